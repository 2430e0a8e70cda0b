//! A sorted file read in large blocks of whole lines, so that what lies between two changes is copied and not parsed.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ecluse_generation::{FileSum, IndexFile};
use memchr::{memchr, memrchr};

use crate::error::RegisterError;
use crate::record::{BadRecord, RECORD_BYTES};

/// How much is read at a time; more than any line.
const BLOCK_BYTES: usize = 4 * RECORD_BYTES;

/// The file, and the block of it that is in memory.
pub(crate) struct LineBlocks {
    file: File,
    path: PathBuf,
    sum: FileSum,
    block: Vec<u8>,
    /// Where the lines that were not taken yet begin.
    start: usize,
    /// Where what was read ends.
    end: usize,
    /// Where `start` is in the file.
    offset: u64,
}

impl LineBlocks {
    pub(crate) fn open(path: &Path) -> Result<Self, RegisterError> {
        let file = File::open(path).map_err(RegisterError::io("open", path))?;
        Ok(Self {
            file,
            path: path.to_owned(),
            sum: FileSum::default(),
            block: vec![0; BLOCK_BYTES],
            start: 0,
            end: 0,
            offset: 0,
        })
    }

    /// Returns the whole lines in memory, at least one unless the file is at its end.
    pub(crate) fn lines(&mut self) -> Result<&[u8], RegisterError> {
        if memchr(b'\n', &self.block[self.start..self.end]).is_none() {
            self.fill()?;
        }
        let rest = &self.block[self.start..self.end];
        match memrchr(b'\n', rest) {
            Some(feed) => Ok(&rest[..=feed]),
            None if rest.is_empty() => Ok(&[]),
            None => Err(self.damaged("line")),
        }
    }

    /// Goes on behind lines that were taken.
    pub(crate) fn take(&mut self, bytes: usize) {
        self.start += bytes;
        self.offset += bytes as u64;
    }

    /// Returns the error of the line that is next.
    pub(crate) fn damaged(&self, column: &'static str) -> RegisterError {
        RegisterError::Damaged {
            path: self.path.clone(),
            offset: self.offset,
            source: BadRecord { column },
        }
    }

    /// Fails unless everything was read and is what was written.
    pub(crate) fn must_be(&self, written: &IndexFile) -> Result<(), RegisterError> {
        let found = self.sum.entry(&written.name);
        if (found.bytes, &found.xxh128) == (written.bytes, &written.xxh128) {
            return Ok(());
        }
        Err(RegisterError::Changed {
            path: self.path.clone(),
            bytes: found.bytes,
            found: found.xxh128,
            expected: written.xxh128.clone(),
        })
    }

    fn fill(&mut self) -> Result<(), RegisterError> {
        self.block.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        while self.end < self.block.len() {
            match self.file.read(&mut self.block[self.end..]) {
                Ok(0) => break,
                Ok(read) => {
                    self.sum.add(&self.block[self.end..self.end + read]);
                    self.end += read;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(RegisterError::io("read", &self.path)(error)),
            }
        }
        Ok(())
    }
}

/// Returns the key of the line that begins here.
pub(crate) fn key_at(lines: &[u8]) -> &[u8] {
    let line = &lines[..memchr(b'\n', lines).unwrap_or(lines.len())];
    &line[..memchr(b'\t', line).unwrap_or(line.len())]
}

/// Returns the last of whole lines.
pub(crate) fn last_line(lines: &[u8]) -> &[u8] {
    let before = &lines[..lines.len().saturating_sub(1)];
    &lines[memrchr(b'\n', before).map_or(0, |feed| feed + 1)..]
}

/// Returns where the first line is whose key is not below this one: the end where there is none.
pub(crate) fn position(lines: &[u8], key: &[u8]) -> usize {
    let (mut low, mut high) = (0, lines.len());
    while low < high {
        let middle = low + (high - low) / 2;
        let line = memrchr(b'\n', &lines[low..middle]).map_or(low, |feed| low + feed + 1);
        if key_at(&lines[line..]) < key {
            low = memchr(b'\n', &lines[line..]).map_or(lines.len(), |feed| line + feed + 1);
        } else {
            high = line;
        }
    }
    low
}
