//! Sorted files cut into ranges of keys, each of which can be merged by itself.
//!
//! Equal lines are in one range, and every line of a range comes before every line of the next. So ranges merged apart, on threads or
//! on machines, and put one after the other are what one merge of everything writes, byte for byte. Cuts are found by bisection:
//! nobody reads a range that is not his. A file that is not in order is cut somewhere nevertheless, every line of it
//! is in one part, and the two lines that are not in order are in one part too, whose merge stops at them.

use std::io::Read;
use std::path::Path;

use memchr::memchr2;

use crate::lookup::{FlatFile, ReadFrom};
use crate::{LineSource, ReadError, cdx};

/// A sorted file and where its parts begin.
pub struct PartedFile {
    file: FlatFile,
    /// Where each part begins, and where the last one ends.
    cuts: Vec<u64>,
}

impl PartedFile {
    /// Opens a sorted file of lines and cuts it before the first line that is not below each of `splits`, which ascend: into
    /// one part more than there are splits, some perhaps empty.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn open(path: &Path, splits: &[Vec<u8>]) -> Result<Self, ReadError> {
        let file = FlatFile::open(path)?;
        let mut cuts = vec![0];
        for split in splits {
            // In a file that is not in order a later cut may be found before an earlier one.
            let before = *cuts.last().expect("the first is there");
            cuts.push(cut_before(&file, split)?.max(before));
        }
        cuts.push(file.bytes);
        Ok(Self { file, cuts })
    }

    /// Returns how many parts it has.
    pub fn parts(&self) -> usize {
        self.cuts.len() - 1
    }

    /// Returns where each part begins, and where the last one ends.
    pub fn cuts(&self) -> &[u64] {
        &self.cuts
    }

    /// Returns the size of a part.
    pub fn part_bytes(&self, part: usize) -> u64 {
        self.cuts[part + 1] - self.cuts[part]
    }

    /// Returns the lines of a part. Lines and offsets in messages count from its beginning, which the name tells.
    pub fn part(&self, part: usize) -> LineSource {
        let from = self.cuts[part];
        let reader = ReadFrom::new(&self.file, from).take(self.part_bytes(part));
        let name = match from {
            0 => self.file.name.clone(),
            from => format!("{} from offset {from}", self.file.name),
        };
        LineSource::new(name, reader)
    }
}

/// Returns where the first line begins that is not below a split; the end of the file if there is none.
fn cut_before(file: &FlatFile, split: &[u8]) -> Result<u64, ReadError> {
    let mut lines = file.lines_from(file.first_at_or_above(split)?);
    while lines.advance()? {
        if lines.line() >= split {
            return Ok(lines.place().offset);
        }
    }
    Ok(file.bytes)
}

/// Returns keys at which a sorted file falls into about as many equal parts: at most one fewer than parts, ascending. All lines of
/// a key, which is what comes before the first space or tab, are in one part, and every part has a line that is no header. For an index with a ZipNum summary, the summary gives
/// nearly the same as the index itself, and is a thousandth of its size.
///
/// # Errors
/// When it cannot be read.
pub fn split_points(path: &Path, parts: usize) -> Result<Vec<Vec<u8>>, ReadError> {
    let file = FlatFile::open(path)?;
    let mut splits: Vec<Vec<u8>> = Vec::new();
    let mut after = 0;
    // A split at the first key would leave nothing before it.
    let first = first_capture(&file)?;
    for part in 1..parts.max(1) as u64 {
        let wanted = (u128::from(file.bytes) * u128::from(part) / parts as u128) as u64;
        if wanted <= after {
            continue;
        }
        // The byte before may end a line: then the wanted one begins the next.
        let mut lines = file.lines_from(wanted - 1);
        // What is left of a line that began before. At the end of the file there is no other.
        if !lines.advance()? || !lines.advance()? {
            break;
        }
        let line = lines.line();
        after = lines.place().offset;
        let Some(end) = memchr2(b' ', b'\t', line) else {
            continue;
        };
        let split = &line[..=end];
        let before = splits.last().unwrap_or(&first);
        if end > 0 && before.as_slice() < split {
            splits.push(split.to_vec());
        }
    }
    Ok(splits)
}

/// Returns the first line that is no header; nothing where there is none.
fn first_capture(file: &FlatFile) -> Result<Vec<u8>, ReadError> {
    let mut lines = file.lines_from(0);
    while lines.advance()? {
        if !cdx::is_header(lines.line()) {
            return Ok(lines.line().to_vec());
        }
    }
    Ok(Vec::new())
}

#[cfg(test)]
mod tests;
