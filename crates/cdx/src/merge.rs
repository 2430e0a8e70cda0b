//! Merging sorted files of lines into one, in bounded memory.
//!
//! The order is that of the bytes of whole lines, as `LC_ALL=C sort -m` has it. Every input is checked while it is
//! read: a line out of order, a line cut short at the end of a file or one of the wrong shape stops the merge and
//! is named. What reaches the output before that is whole lines only.
//!
//! [`merge`] looks at every line of every input. [`merge_into`] trusts one big input, which an earlier merge has
//! written and checked, and copies the runs of it between two new lines as blocks.

mod gallop;
mod output;
mod tree;

use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};

use crate::{LineFault, LineSource, MAX_LINE_BYTES, ReadError, cdx};
pub(crate) use output::Output;
use tree::Tree;

/// What to do with lines that are equal in every byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duplicates {
    /// One of them is written.
    Remove,
    /// All of them are written.
    Keep,
}

/// What every line must look like, beyond being in order.
///
/// The test is cheap and shallow: it keeps a program's error message or a piece of another file out of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineShape {
    /// Anything.
    Any,
    /// A CDX or CDXJ line: a key, a time of 14 or 17 digits, and more; or a CDX header.
    Capture,
    /// A PATH line: something, a tab, something.
    Path,
}

impl LineShape {
    /// Says what keeps a line from having this shape.
    #[inline]
    pub(crate) fn check(self, line: &[u8]) -> Result<(), LineFault> {
        match self {
            Self::Any => Ok(()),
            Self::Capture => check_capture(line),
            Self::Path => match memchr::memchr(b'\t', line) {
                Some(tab) if tab > 0 && tab + 1 < line.len() => Ok(()),
                _ => Err(LineFault::NotPath),
            },
        }
    }
}

fn check_capture(line: &[u8]) -> Result<(), LineFault> {
    let space = match memchr::memchr(b' ', line) {
        Some(0) if cdx::is_header(line) => return Ok(()),
        Some(0) | None => return Err(LineFault::NoKey),
        Some(space) => space,
    };
    let rest = &line[space + 1..];
    let digits = rest
        .iter()
        .take(18)
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    if matches!(digits, 14 | 17) && rest.get(digits) == Some(&b' ') {
        Ok(())
    } else {
        let end = memchr::memchr(b' ', rest).unwrap_or(rest.len());
        Err(LineFault::BadTime {
            found: crate::fault::excerpt(&rest[..end]),
        })
    }
}

/// How to merge.
#[derive(Debug, Clone)]
pub struct MergeOptions {
    /// What to do with equal lines.
    pub duplicates: Duplicates,
    /// What every line must look like.
    pub shape: LineShape,
    /// How much memory the buffers may take together.
    pub memory_bytes: usize,
    /// How long a line may be.
    pub line_bytes: usize,
    /// How many files to have open at once; [`merge_pieces`] merges more than that in several rounds.
    pub open_files: usize,
}

impl Default for MergeOptions {
    fn default() -> Self {
        Self {
            duplicates: Duplicates::Remove,
            shape: LineShape::Any,
            memory_bytes: 64 << 20,
            line_bytes: MAX_LINE_BYTES,
            open_files: 256,
        }
    }
}

impl MergeOptions {
    /// Returns the size of each of so many buffers. Larger ones than a processor's cache holds are slower.
    fn buffer_bytes(&self, buffers: usize) -> usize {
        // Tests stay at the borders of buffers.
        const LEAST: usize = if cfg!(test) { 16 } else { 16 << 10 };
        const MOST: usize = 256 << 10;
        let bytes = (self.memory_bytes / buffers.max(1)).clamp(LEAST, MOST);
        // A power of two, so that blocks begin where pages do.
        1 << bytes.ilog2()
    }
}

/// What a merge did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MergeStats {
    /// Lines of all inputs.
    pub lines_read: u64,
    /// Lines of the output.
    pub lines_written: u64,
    /// Lines left out because they were equal to one written.
    pub duplicates: u64,
    /// Bytes of the output.
    pub bytes_written: u64,
}

/// Why a merge stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// An input cannot be read further.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The output cannot be written: what has been written is not to be used.
    #[error("cannot write merged lines after {bytes_written} bytes")]
    Write {
        /// How much had been handed over before.
        bytes_written: u64,
        /// What the system said.
        source: io::Error,
    },
    /// A temporary file cannot be made, written or read back.
    #[error("cannot use a temporary file in {}", directory.display())]
    Temporary {
        /// Where it should be.
        directory: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Merges sorted sources into `out`. Memory is the options' limit, whatever the sources hold.
pub fn merge(
    sources: Vec<LineSource>,
    out: &mut impl Write,
    options: &MergeOptions,
) -> Result<MergeStats, MergeError> {
    let buffer_bytes = options.buffer_bytes(sources.len() + 1);
    let mut output = Output::new(out, buffer_bytes);
    let merged = merge_lines(sources, &mut output, buffer_bytes, options);
    finish(merged, output)
}

/// Ends the output with a whole line, whatever became of the merge.
fn finish(
    merged: Result<MergeStats, MergeError>,
    output: Output<'_>,
) -> Result<MergeStats, MergeError> {
    let written = output.finish();
    let stats = merged?;
    Ok(MergeStats {
        bytes_written: written?,
        ..stats
    })
}

fn merge_lines(
    sources: Vec<LineSource>,
    output: &mut Output<'_>,
    buffer_bytes: usize,
    options: &MergeOptions,
) -> Result<MergeStats, MergeError> {
    let mut tree = Tree::new(sources, buffer_bytes, options)?;
    let mut stats = MergeStats::default();
    // Lines that leave one buffer one after the other are copied together, when the run of them ends.
    let mut runner = 0;
    let mut run = 0..0;
    while let Some(winner) = tree.winner() {
        stats.lines_read += 1;
        let line = tree.cursor(winner).line_with_feed();
        let is_left_out = options.duplicates == Duplicates::Remove && tree.is_duplicate();
        if winner != runner || line.start != run.end || is_left_out {
            output.write(tree.cursor(runner).bytes(run))?;
            runner = winner;
            run = line.start..line.start;
        }
        if is_left_out {
            stats.duplicates += 1;
        } else {
            stats.lines_written += 1;
            run.end = line.end;
        }
        if !tree.advance_in_buffer()? {
            // Reading on moves the buffer's bytes. Every source ends here too, so no run is left after the loop.
            output.write(tree.cursor(runner).bytes(run))?;
            run = 0..0;
            tree.advance_by_reading()?;
        }
    }
    Ok(stats)
}

/// Merges lines into a big sorted file, of which long runs are copied without being looked at line by line.
///
/// The order of the big file is checked at the border of every block and trusted in between: give it only what a
/// [`merge`] has written or [`check`] has read. Its lines are counted, so that they can be compared with what is known
/// of it. Its own duplicates stay.
pub fn merge_into(
    big: LineSource,
    small: Vec<LineSource>,
    out: &mut impl Write,
    options: &MergeOptions,
) -> Result<MergeStats, MergeError> {
    gallop::merge_into(big, small, out, options)
}

/// Merges sorted pieces, in several rounds through temporary files when there are more than may be open at once; `open` is
/// asked for each when its round comes.
pub fn merge_pieces<Piece, Failed: From<MergeError>>(
    pieces: &[Piece],
    mut open: impl FnMut(&Piece) -> Result<LineSource, Failed>,
    out: &mut impl Write,
    temporary: &Path,
    options: &MergeOptions,
) -> Result<MergeStats, Failed> {
    let fan_in = options.open_files.max(2);
    let mut open_all = |pieces: &[Piece]| pieces.iter().map(&mut open).collect();
    if pieces.len() <= fan_in {
        let sources: Result<Vec<LineSource>, Failed> = open_all(pieces);
        return Ok(merge(sources?, out, options)?);
    }
    let mut runs = Vec::new();
    let mut first = MergeStats::default();
    for group in pieces.chunks(fan_in) {
        let (run, stats) = merge_to_run(open_all(group)?, temporary, options)?;
        first.lines_read += stats.lines_read;
        first.duplicates += stats.duplicates;
        runs.push(run);
    }
    let last = merge_runs(runs, out, temporary, options)?;
    Ok(MergeStats {
        lines_read: first.lines_read,
        duplicates: first.duplicates + last.duplicates,
        ..last
    })
}

/// Reads a sorted source to its end and says what is in it, or what is wrong with it, as `LC_ALL=C sort -c` does.
///
/// [`Duplicates::Remove`] counts the lines that equal the one before; nothing is an error for being there twice.
pub fn check(source: LineSource, options: &MergeOptions) -> Result<MergeStats, MergeError> {
    merge(vec![source], &mut io::sink(), options)
}

/// Merges temporary files until so few are left that one round does it.
pub(crate) fn merge_runs(
    mut runs: Vec<File>,
    out: &mut impl Write,
    temporary: &Path,
    options: &MergeOptions,
) -> Result<MergeStats, MergeError> {
    let fan_in = options.open_files.max(2);
    let mut duplicates = 0;
    while runs.len() > fan_in {
        let rest = runs.split_off(fan_in);
        let (run, stats) = merge_to_run(name_runs(runs), temporary, options)?;
        duplicates += stats.duplicates;
        runs = rest;
        runs.push(run);
    }
    let stats = merge(name_runs(runs), out, options)?;
    Ok(MergeStats {
        duplicates: stats.duplicates + duplicates,
        ..stats
    })
}

fn merge_to_run(
    sources: Vec<LineSource>,
    temporary: &Path,
    options: &MergeOptions,
) -> Result<(File, MergeStats), MergeError> {
    let failed = |source| MergeError::Temporary {
        directory: temporary.to_path_buf(),
        source,
    };
    let mut run = tempfile::tempfile_in(temporary).map_err(failed)?;
    let stats = merge(sources, &mut run, options).map_err(|error| match error {
        MergeError::Write { source, .. } => failed(source),
        other => other,
    })?;
    run.rewind().map_err(failed)?;
    Ok((run, stats))
}

fn name_runs(runs: Vec<File>) -> Vec<LineSource> {
    let name = |(number, run)| LineSource::new(format!("temporary run {number}"), run);
    (1..).zip(runs).map(name).collect()
}

#[cfg(test)]
mod tests;
