//! Files of a generation while they are read and written: long work that shows signs of life, and ends when it is asked to.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use ecluse_spool::Signs;

use crate::generation::IndexFile;
use crate::sum::FileSum;

/// A file being written: summed, a sign of life with every block, and given up when the stage is asked to stop.
pub struct SummedFile {
    file: File,
    sum: FileSum,
    signs: Signs,
}

impl SummedFile {
    /// Makes a file that is not there yet; `sum` has seen nothing.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(path: &Path, sum: FileSum, signs: &Signs) -> io::Result<Self> {
        Ok(Self {
            file: File::create_new(path)?,
            sum,
            signs: signs.clone(),
        })
    }

    /// Syncs it and returns its entry.
    ///
    /// # Errors
    /// When it cannot be synced.
    pub fn finish(self, name: &str) -> io::Result<IndexFile> {
        self.file.sync_all()?;
        Ok(self.sum.entry(name))
    }
}

impl Write for SummedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        go_on(&self.signs)?;
        let written = self.file.write(bytes)?;
        self.sum.add(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A reader that shows a sign of life with every read, and gives up when the stage is asked to stop.
pub struct WatchedReader<Source> {
    source: Source,
    signs: Signs,
}

impl<Source> WatchedReader<Source> {
    /// Watches over what is read from `source`.
    pub fn new(source: Source, signs: &Signs) -> Self {
        Self {
            source,
            signs: signs.clone(),
        }
    }
}

impl<Source: Read> Read for WatchedReader<Source> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        go_on(&self.signs)?;
        self.source.read(buffer)
    }
}

fn go_on(signs: &Signs) -> io::Result<()> {
    signs.tick();
    match signs.stop_asked() {
        true => Err(io::Error::other(AskedToStop)),
        false => Ok(()),
    }
}

/// Nobody is at fault: the stage was asked to stop.
#[derive(Debug, thiserror::Error)]
#[error("asked to stop")]
pub struct AskedToStop;

impl AskedToStop {
    /// Says whether an error is this one.
    pub fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}
