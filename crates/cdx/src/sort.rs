//! Sorting lines that come in any order, with a limit on memory.
//!
//! Lines gather in memory. When the limit is reached they are sorted and go to a temporary file without a name,
//! which the system frees whatever becomes of this process; at the end such runs are merged.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::PathBuf;

use crate::merge::{self, Output};
use crate::{Duplicates, LineShape, MergeError, MergeOptions, MergeStats};

/// How to sort.
#[derive(Debug, Clone)]
pub struct SortOptions {
    /// What to do with equal lines.
    pub duplicates: Duplicates,
    /// How much memory the lines may take before they are spilled.
    pub memory_bytes: usize,
    /// Where temporary files are made, if any are needed.
    pub temporary: PathBuf,
}

/// Takes lines in any order and gives them sorted.
pub struct Sorter {
    options: SortOptions,
    lines: Vec<u8>,
    entries: Vec<Entry>,
    runs: Vec<File>,
    stats: MergeStats,
}

/// One line in memory.
#[derive(Clone, Copy)]
struct Entry {
    /// The first eight bytes, most significant first, which decide most comparisons without touching the line.
    head: u64,
    start: u32,
    /// The line's length without its feed.
    bytes: u32,
}

impl Sorter {
    /// Returns a sorter without lines.
    pub fn new(options: SortOptions) -> Self {
        Self {
            options,
            lines: Vec::new(),
            entries: Vec::new(),
            runs: Vec::new(),
            stats: MergeStats::default(),
        }
    }

    /// Takes one line, with or without its line feed.
    ///
    /// # Panics
    ///
    /// When the line holds a line feed before its end: it would be two lines.
    pub fn push(&mut self, line: &[u8]) -> Result<(), MergeError> {
        self.push_parts(&[line.strip_suffix(b"\n").unwrap_or(line)])
    }

    /// Takes one line that is in several parts, without its line feed.
    ///
    /// # Panics
    ///
    /// When a part holds a line feed: it would be two lines.
    pub fn push_parts(&mut self, parts: &[&[u8]]) -> Result<(), MergeError> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        if !self.entries.is_empty() && self.needed_bytes(bytes) > self.limit_bytes() {
            self.spill()?;
        }
        let start = self.lines.len();
        for part in parts {
            self.lines.extend_from_slice(part);
        }
        let line = &self.lines[start..];
        assert!(
            memchr::memchr(b'\n', line).is_none(),
            "a line has one line feed, at its end"
        );
        self.entries.push(Entry {
            head: head_of(line),
            start: u32::try_from(start).expect("the limit is below 4 GiB"),
            bytes: u32::try_from(bytes).expect("a line is below 4 GiB"),
        });
        self.lines.push(b'\n');
        self.stats.lines_read += 1;
        Ok(())
    }

    /// Writes all lines in byte order.
    pub fn finish(mut self, out: &mut impl Write) -> Result<MergeStats, MergeError> {
        if self.runs.is_empty() {
            self.write_sorted(out)?;
            return Ok(self.stats);
        }
        self.spill()?;
        let options = MergeOptions {
            duplicates: self.options.duplicates,
            shape: LineShape::Any,
            memory_bytes: self.options.memory_bytes,
            // What is in a run has been in memory.
            line_bytes: u32::MAX as usize,
            ..MergeOptions::default()
        };
        // The merge needs the memory now.
        (self.lines, self.entries) = (Vec::new(), Vec::new());
        let merged = merge::merge_runs(self.runs, out, &self.options.temporary, &options)?;
        Ok(MergeStats {
            lines_read: self.stats.lines_read,
            duplicates: self.stats.duplicates + merged.duplicates,
            ..merged
        })
    }

    fn limit_bytes(&self) -> usize {
        // Offsets are kept in 32 bits.
        self.options.memory_bytes.min(u32::MAX as usize / 2)
    }

    fn needed_bytes(&self, line_bytes: usize) -> usize {
        // A growing vector takes up to twice its length.
        2 * (self.lines.len() + line_bytes + 1 + (self.entries.len() + 1) * size_of::<Entry>())
    }

    fn spill(&mut self) -> Result<(), MergeError> {
        let directory = self.options.temporary.clone();
        let failed = |source: io::Error| MergeError::Temporary {
            directory: directory.clone(),
            source,
        };
        let mut run = tempfile::tempfile_in(&directory).map_err(failed)?;
        self.write_sorted(&mut run).map_err(|error| match error {
            MergeError::Write { source, .. } => failed(source),
            other => other,
        })?;
        run.rewind().map_err(failed)?;
        self.runs.push(run);
        self.lines.clear();
        self.entries.clear();
        Ok(())
    }

    fn write_sorted(&mut self, out: &mut dyn Write) -> Result<(), MergeError> {
        let lines = self.lines.as_slice();
        let line = |entry: &Entry| &lines[entry.start as usize..][..entry.bytes as usize];
        self.entries.sort_unstable_by(|left, right| {
            left.head
                .cmp(&right.head)
                .then_with(|| line(left).cmp(line(right)))
        });
        let mut output = Output::new(out, 256 << 10);
        let mut last: Option<&[u8]> = None;
        for entry in &self.entries {
            let found = line(entry);
            if self.options.duplicates == Duplicates::Remove && last == Some(found) {
                self.stats.duplicates += 1;
                continue;
            }
            last = Some(found);
            output.write(&lines[entry.start as usize..][..entry.bytes as usize + 1])?;
            self.stats.lines_written += 1;
        }
        self.stats.bytes_written = output.finish()?;
        Ok(())
    }
}

fn head_of(line: &[u8]) -> u64 {
    let mut head = [0; 8];
    let bytes = line.len().min(8);
    head[..bytes].copy_from_slice(&line[..bytes]);
    u64::from_be_bytes(head)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn sorted(
        lines: &[Vec<u8>],
        duplicates: Duplicates,
        memory_bytes: usize,
    ) -> (Vec<u8>, MergeStats) {
        let temporary = std::env::temp_dir();
        let mut sorter = Sorter::new(SortOptions {
            duplicates,
            memory_bytes,
            temporary,
        });
        for line in lines {
            sorter.push(line).unwrap();
        }
        let mut out = Vec::new();
        let stats = sorter.finish(&mut out).unwrap();
        (out, stats)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn lines_come_out_in_byte_order_whatever_the_memory(
            lines in vec(vec(prop_oneof![Just(0u8), Just(b'a'), Just(b'\t'), Just(0xff)], 0..12), 0..60),
            memory_bytes in 0usize..2_000,
        ) {
            let mut expected = lines.clone();
            expected.sort();
            for duplicates in [Duplicates::Keep, Duplicates::Remove] {
                if duplicates == Duplicates::Remove {
                    expected.dedup();
                }
                let (out, stats) = sorted(&lines, duplicates, memory_bytes);
                let text: Vec<u8> = expected.iter().flat_map(|line| [line.as_slice(), b"\n"].concat()).collect();
                prop_assert_eq!(&out, &text);
                prop_assert_eq!(stats, MergeStats {
                    lines_read: lines.len() as u64,
                    lines_written: expected.len() as u64,
                    duplicates: (lines.len() - expected.len()) as u64,
                    bytes_written: out.len() as u64,
                });
            }
        }
    }

    #[test]
    fn memory_stays_under_the_limit() {
        let temporary = std::env::temp_dir();
        let mut sorter = Sorter::new(SortOptions {
            duplicates: Duplicates::Keep,
            memory_bytes: 64 << 10,
            temporary,
        });
        for number in 0..20_000u32 {
            sorter
                .push(format!("{:08x}", number.wrapping_mul(0x9e37_79b9)).as_bytes())
                .unwrap();
            let held = sorter.lines.capacity() + sorter.entries.capacity() * size_of::<Entry>();
            assert!(held <= 64 << 10, "{held} bytes after {number} lines");
        }
        assert!(sorter.runs.len() > 1);
        let mut out = Vec::new();
        assert_eq!(sorter.finish(&mut out).unwrap().lines_written, 20_000);
        assert!(out.chunks(9).is_sorted());
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let temporary = PathBuf::from("/nonexistent/tmp");
        let mut sorter = Sorter::new(SortOptions {
            duplicates: Duplicates::Keep,
            memory_bytes: 0,
            temporary,
        });
        sorter.push(b"a\n").unwrap();
        let error = sorter.push(b"b").unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot use a temporary file in /nonexistent/tmp"
        );
    }
}
