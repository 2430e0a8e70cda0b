//! Vectors on disk: a number for each URL, 32 bits, little-endian, in the order of URLs.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::RankError;

/// How many numbers are read or written at a time.
pub(crate) const BLOCK: usize = 1 << 14;

/// A vector; many threads may read and write parts of it.
pub struct Vector {
    file: File,
    path: PathBuf,
}

impl Vector {
    /// Makes a vector, or takes one that is there; parts that nobody wrote are 0.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(path: &Path, length: u32) -> Result<Self, RankError> {
        let mut options = OpenOptions::new();
        let file = options.create(true).read(true).write(true).truncate(false);
        let file = file.open(path).map_err(RankError::io("make", path))?;
        let sized = file.set_len(4 * u64::from(length));
        sized.map_err(RankError::io("make", path))?;
        Ok(Self {
            file,
            path: path.to_owned(),
        })
    }

    /// Opens a vector to read it.
    ///
    /// # Errors
    /// When it is not there.
    pub fn open(path: &Path) -> Result<Self, RankError> {
        let file = File::open(path).map_err(RankError::io("open", path))?;
        Ok(Self {
            file,
            path: path.to_owned(),
        })
    }

    /// Reads numbers from a place on; `bytes` is room that serves again.
    ///
    /// # Errors
    /// When they are not there.
    pub(crate) fn read(
        &self,
        at: u32,
        numbers: &mut [f32],
        bytes: &mut Vec<u8>,
    ) -> Result<(), RankError> {
        bytes.resize(4 * BLOCK, 0);
        let mut at = u64::from(at);
        for part in numbers.chunks_mut(BLOCK) {
            let bytes = &mut bytes[..4 * part.len()];
            let read = self.file.read_exact_at(bytes, 4 * at);
            read.map_err(RankError::io("read", &self.path))?;
            let (words, _) = bytes.as_chunks::<4>();
            for (number, word) in part.iter_mut().zip(words) {
                *number = f32::from_le_bytes(*word);
            }
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Writes numbers from a place on.
    ///
    /// # Errors
    /// When they cannot be written.
    pub(crate) fn write(
        &self,
        at: u32,
        numbers: &[f32],
        bytes: &mut Vec<u8>,
    ) -> Result<(), RankError> {
        let mut at = u64::from(at);
        for part in numbers.chunks(BLOCK) {
            bytes.clear();
            for number in part {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            let written = self.file.write_all_at(bytes, 4 * at);
            written.map_err(RankError::io("write", &self.path))?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Gives all numbers to `each`, in blocks, with where each block begins.
    ///
    /// # Errors
    /// When they cannot be read, and what `each` says.
    pub fn for_each_block(
        &self,
        length: u32,
        mut each: impl FnMut(u32, &mut [f32]) -> Result<(), RankError>,
    ) -> Result<(), RankError> {
        let (mut block, mut bytes) = (vec![0.0; BLOCK], Vec::new());
        let mut at = 0;
        while at < length {
            let part = (length - at).min(BLOCK as u32);
            let numbers = &mut block[..part as usize];
            self.read(at, numbers, &mut bytes)?;
            each(at, numbers)?;
            at += part;
        }
        Ok(())
    }

    /// Returns all numbers; for tests and small graphs.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn all(&self, length: u32) -> Result<Vec<f32>, RankError> {
        let mut numbers = vec![0.0; length as usize];
        self.read(0, &mut numbers, &mut Vec::new())?;
        Ok(numbers)
    }
}

/// Writes numbers of 32 bits one after the other.
pub struct NumberWriter {
    out: BufWriter<File>,
    path: PathBuf,
}

impl NumberWriter {
    /// Begins a file.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(path: &Path) -> Result<Self, RankError> {
        let file = File::create(path).map_err(RankError::io("make", path))?;
        Ok(Self {
            out: BufWriter::with_capacity(64 << 10, file),
            path: path.to_owned(),
        })
    }

    /// Writes a float.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn float(&mut self, number: f32) -> Result<(), RankError> {
        self.bytes(number.to_le_bytes())
    }

    /// Writes a count.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn count(&mut self, number: u32) -> Result<(), RankError> {
        self.bytes(number.to_le_bytes())
    }

    /// Ends the file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self) -> Result<(), RankError> {
        let flushed = self.out.flush();
        flushed.map_err(RankError::io("write", &self.path))
    }

    fn bytes(&mut self, bytes: [u8; 4]) -> Result<(), RankError> {
        let written = self.out.write_all(&bytes);
        written.map_err(RankError::io("write", &self.path))
    }
}

/// Reads numbers of 32 bits one after the other.
pub(crate) struct NumberReader {
    source: std::io::BufReader<File>,
    path: PathBuf,
}

impl NumberReader {
    pub(crate) fn open(path: &Path) -> Result<Self, RankError> {
        let file = File::open(path).map_err(RankError::io("open", path))?;
        Ok(Self {
            source: std::io::BufReader::with_capacity(64 << 10, file),
            path: path.to_owned(),
        })
    }

    pub(crate) fn count(&mut self) -> Result<u32, RankError> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }

    pub(crate) fn float(&mut self) -> Result<f32, RankError> {
        Ok(f32::from_le_bytes(self.bytes()?))
    }

    fn bytes(&mut self) -> Result<[u8; 4], RankError> {
        let mut bytes = [0; 4];
        let read = std::io::Read::read_exact(&mut self.source, &mut bytes);
        read.map_err(RankError::io("read", &self.path))?;
        Ok(bytes)
    }
}
