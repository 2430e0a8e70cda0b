//! Checksums taken on the way: what is read is what was written, and what is written can be told again.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ecluse_generation::{FileSum, IndexFile};
use ecluse_stage::Outbox;

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

/// A file being written: summed, a sign of life with every block, and given up when the stage is asked to stop.
pub(crate) struct SummedFile<'a> {
    file: File,
    sum: FileSum,
    outbox: &'a Outbox,
}

impl<'a> SummedFile<'a> {
    /// Makes a file that is not there yet.
    pub(crate) fn create(path: &Path, outbox: &'a Outbox) -> io::Result<Self> {
        Ok(Self {
            file: File::create_new(path)?,
            sum: FileSum::default(),
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
