//! Checksums taken on the way: what is read is what was written, and what is written can be told again.
//!
//! XXH3 of 128 bits: it finds what disks and memory do to bytes, at a tenth of the cost of SHA-256. Nobody's claim rests
//! on it; an index can be made again from the archive.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ecluse_generation::IndexFile;
use ecluse_stage::Outbox;
use twox_hash::xxhash3_128::Hasher;

/// Bytes counted and summed.
#[derive(Default)]
pub(crate) struct Sum {
    hasher: Hasher,
    bytes: u64,
}

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        self.hasher.write(bytes);
        self.bytes += bytes.len() as u64;
    }

    /// Returns the entry of a file whose bytes these were.
    fn entry(&self, name: &str) -> IndexFile {
        IndexFile {
            name: name.to_owned(),
            bytes: self.bytes,
            lines: None,
            xxh128: format!("{:032x}", self.hasher.finish_128()),
        }
    }
}

/// A reader whose sum can be asked for after it was given away.
pub(crate) struct SummedReader {
    file: File,
    sum: Arc<Mutex<Sum>>,
}

/// The sum of what a [`SummedReader`] has read.
pub(crate) struct ReaderSum(Arc<Mutex<Sum>>);

impl SummedReader {
    pub(crate) fn new(file: File) -> (Self, ReaderSum) {
        let sum = Arc::new(Mutex::new(Sum::default()));
        let reader = Self {
            file,
            sum: Arc::clone(&sum),
        };
        (reader, ReaderSum(sum))
    }
}

impl Read for SummedReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        let mut sum = self.sum.lock().unwrap_or_else(PoisonError::into_inner);
        sum.add(&buffer[..read]);
        Ok(read)
    }
}

impl ReaderSum {
    pub(crate) fn entry(&self, name: &str) -> IndexFile {
        let sum = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sum.entry(name)
    }
}

/// A file being written: summed, a sign of life with every block, and given up when the stage is asked to stop.
pub(crate) struct SummedFile<'a> {
    file: File,
    sum: Sum,
    outbox: &'a Outbox,
}

impl<'a> SummedFile<'a> {
    /// Makes a file that is not there yet.
    pub(crate) fn create(path: &Path, outbox: &'a Outbox) -> io::Result<Self> {
        Ok(Self {
            file: File::create_new(path)?,
            sum: Sum::default(),
            outbox,
        })
    }

    /// Syncs it and returns its entry.
    pub(crate) fn finish(self, name: &str) -> io::Result<IndexFile> {
        self.file.sync_all()?;
        Ok(self.sum.entry(name))
    }
}

impl Write for SummedFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.outbox.tick();
        if self.outbox.stop_asked() {
            return Err(io::Error::other(AskedToStop));
        }
        let written = self.file.write(bytes)?;
        self.sum.add(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Nobody is at fault: the stage was asked to stop.
#[derive(Debug, thiserror::Error)]
#[error("asked to stop")]
pub(crate) struct AskedToStop;

impl AskedToStop {
    /// Says whether an error is this one.
    pub(crate) fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

/// Reads a file that was written by others and returns its entry.
pub(crate) fn entry_of(path: &Path, name: &str) -> io::Result<IndexFile> {
    let mut file = File::open(path)?;
    let mut sum = Sum::default();
    let mut buffer = vec![0; 256 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(sum.entry(name)),
            read => sum.add(&buffer[..read]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_that_of_xxh128sum() {
        let mut sum = Sum::default();
        assert_eq!(sum.entry("x").xxh128, "99aa06d3014798d86001c324468d497f");
        sum.add(b"a");
        sum.add(b"bc");
        let entry = sum.entry("x");
        assert_eq!(
            (entry.bytes, entry.xxh128.as_str()),
            (3, "06b05ab6733a618578af5f94892f3950")
        );
    }
}
