//! A checksum taken on the way: what is read is what was written.

use std::fs::File;
use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};

use ecluse_generation::{FileSum, IndexFile};

/// A reader whose sum can be asked for after it was given away.
pub(crate) struct SummedReader {
    file: File,
    sum: Arc<Mutex<FileSum>>,
}

/// The sum of what a [`SummedReader`] has read.
pub(crate) struct ReaderSum(Arc<Mutex<FileSum>>);

impl SummedReader {
    pub(crate) fn new(file: File) -> (Self, ReaderSum) {
        let sum = Arc::new(Mutex::new(FileSum::default()));
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
