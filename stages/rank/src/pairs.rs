//! Sorting links, which are pairs of numbers, with a limit on memory.
//!
//! Pairs gather in memory; when the limit is reached they are sorted and go to a temporary file without a name. At the end such runs are merged.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use crate::error::RankError;

/// Takes pairs in any order and gives them sorted by the first, then the second.
pub struct PairSorter {
    pairs: Vec<u64>,
    limit: usize,
    runs: Vec<File>,
    temporary: PathBuf,
}

impl PairSorter {
    /// Returns a sorter without pairs; `temporary` is where runs lie, if there must be any.
    pub fn new(memory_bytes: usize, temporary: &Path) -> Self {
        Self {
            pairs: Vec::new(),
            limit: (memory_bytes / size_of::<u64>()).max(1024),
            runs: Vec::new(),
            temporary: temporary.to_owned(),
        }
    }

    /// Takes one pair.
    ///
    /// # Errors
    /// When a run cannot be written.
    pub fn push(&mut self, first: u32, second: u32) -> Result<(), RankError> {
        if self.pairs.len() == self.limit {
            self.spill()?;
        }
        if self.pairs.len() == self.pairs.capacity() {
            // Doubling would go over the limit at the end.
            let more = self.pairs.len().clamp(1024, self.limit);
            self.pairs
                .reserve_exact(more.min(self.limit - self.pairs.len()));
        }
        self.pairs.push(u64::from(first) << 32 | u64::from(second));
        Ok(())
    }

    /// Gives all pairs to `each`, in order.
    ///
    /// # Errors
    /// When a run cannot be read, and what `each` says.
    pub fn finish(
        mut self,
        mut each: impl FnMut(u32, u32) -> Result<(), RankError>,
    ) -> Result<(), RankError> {
        let mut give = |pair: u64| each((pair >> 32) as u32, pair as u32);
        if self.runs.is_empty() {
            self.pairs.sort_unstable();
            return self.pairs.iter().try_for_each(|pair| give(*pair));
        }
        self.spill()?;
        self.pairs = Vec::new();
        let failed = |error| RankError::io("read a run in", &self.temporary)(error);
        let buffer_bytes = (8 * self.limit / self.runs.len()).clamp(4 << 10, 256 << 10);
        let mut sources = Vec::with_capacity(self.runs.len());
        let mut heap = BinaryHeap::new();
        for run in self.runs {
            let mut source = BufReader::with_capacity(buffer_bytes, run);
            if let Some(pair) = next_pair(&mut source).map_err(failed)? {
                heap.push(Reverse((pair, sources.len())));
            }
            sources.push(source);
        }
        while let Some(mut top) = heap.peek_mut() {
            let Reverse((pair, run)) = *top;
            give(pair)?;
            match next_pair(&mut sources[run]).map_err(failed)? {
                Some(next) => *top = Reverse((next, run)),
                None => drop(std::collections::binary_heap::PeekMut::pop(top)),
            }
        }
        Ok(())
    }

    fn spill(&mut self) -> Result<(), RankError> {
        self.pairs.sort_unstable();
        let failed = |error| RankError::io("write a run in", &self.temporary)(error);
        let run = tempfile::tempfile_in(&self.temporary).map_err(failed)?;
        let mut out = BufWriter::with_capacity(128 << 10, run);
        for pair in &self.pairs {
            out.write_all(&pair.to_le_bytes()).map_err(failed)?;
        }
        let mut run = out
            .into_inner()
            .map_err(|error| failed(error.into_error()))?;
        run.rewind().map_err(failed)?;
        self.runs.push(run);
        self.pairs.clear();
        Ok(())
    }
}

fn next_pair(source: &mut impl Read) -> std::io::Result<Option<u64>> {
    let mut bytes = [0; 8];
    match source.read_exact(&mut bytes) {
        Ok(()) => Ok(Some(u64::from_le_bytes(bytes))),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn pairs_come_sorted_whatever_the_memory(seed in any::<u32>(), count in 0usize..5000) {
            let temporary = tempfile::tempdir().unwrap();
            let mut expected: Vec<(u32, u32)> = (0..count as u32)
                .map(|n| (n.wrapping_mul(2_654_435_761) ^ seed, n.wrapping_mul(seed)))
                .collect();
            let mut sorter = PairSorter::new(0, temporary.path());
            for (first, second) in &expected {
                sorter.push(*first, *second).unwrap();
            }
            expected.sort_unstable();
            let mut found = Vec::new();
            sorter.finish(|first, second| { found.push((first, second)); Ok(()) }).unwrap();
            prop_assert_eq!(found, expected);
        }
    }
}
