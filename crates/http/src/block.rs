//! The block of a response: every byte as it was received, in memory while it is small, else in a nameless file.
//!
//! Bytes are only ever appended, and the digest is taken as they pass. The file has no name in any directory, so a
//! crash leaves nothing behind. Any number of readers can be open at once; each has a place of its own.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ecluse_warc::{Digester, Sha1Digest};

/// Where blocks are kept while they are fetched.
#[derive(Debug, Clone)]
pub struct Spooling {
    /// What one block may take in memory.
    pub memory_bytes: usize,
    /// Where larger ones go.
    pub directory: PathBuf,
}

impl Spooling {
    /// Keeps 256 KiB of each block in memory and larger ones in `directory`.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        Self {
            memory_bytes: 256 * 1024,
            directory: directory.to_owned(),
        }
    }
}

/// The bytes of a response as they were received.
#[derive(Debug)]
pub struct Block {
    place: BlockStorage,
    bytes: u64,
    digest: Sha1Digest,
}

#[derive(Debug)]
enum BlockStorage {
    Memory(Vec<u8>),
    File(File),
}

impl Block {
    /// Returns how many bytes it has.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the digest of all of them.
    #[must_use]
    pub fn digest(&self) -> Sha1Digest {
        self.digest
    }

    /// Returns the bytes, if they are in memory.
    #[must_use]
    pub fn in_memory(&self) -> Option<&[u8]> {
        match &self.place {
            BlockStorage::Memory(bytes) => Some(bytes),
            BlockStorage::File(_) => None,
        }
    }

    /// Reads it from the start.
    #[must_use]
    pub fn reader(&self) -> BlockReader<'_> {
        BlockReader {
            block: self,
            position: 0,
        }
    }

    fn read_at(&self, position: u64, out: &mut [u8]) -> io::Result<usize> {
        match &self.place {
            BlockStorage::Memory(bytes) => {
                let start = usize::try_from(position).unwrap_or(usize::MAX);
                let rest = bytes.get(start..).unwrap_or_default();
                let count = rest.len().min(out.len());
                out[..count].copy_from_slice(&rest[..count]);
                Ok(count)
            }
            BlockStorage::File(file) => file.read_at(out, position),
        }
    }
}

/// Reads a [`Block`].
#[derive(Debug, Clone)]
pub struct BlockReader<'b> {
    block: &'b Block,
    position: u64,
}

impl Read for BlockReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.block.read_at(self.position, out)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for BlockReader<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let place = match to {
            SeekFrom::Start(place) => Some(place),
            SeekFrom::End(by) => self.block.bytes.checked_add_signed(by),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
        };
        self.position = place
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "seek before the start"))?;
        Ok(self.position)
    }
}

/// A block being received.
#[derive(Debug)]
pub(crate) struct BlockWriter {
    place: BlockStorage,
    bytes: u64,
    digester: Digester,
    spooling: Spooling,
}

impl BlockWriter {
    pub(crate) fn new(spooling: &Spooling) -> Self {
        Self {
            place: BlockStorage::Memory(Vec::new()),
            bytes: 0,
            digester: Digester::default(),
            spooling: spooling.clone(),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn append(&mut self, piece: &[u8]) -> io::Result<()> {
        if let BlockStorage::Memory(held) = &mut self.place {
            if held.len() + piece.len() <= self.spooling.memory_bytes {
                held.extend_from_slice(piece);
            } else {
                let mut file = nameless_file(&self.spooling.directory)?;
                file.write_all(held)?;
                file.write_all(piece)?;
                self.place = BlockStorage::File(file);
            }
        } else if let BlockStorage::File(file) = &mut self.place {
            file.write_all(piece)?;
        }
        self.digester.update(piece);
        self.bytes += piece.len() as u64;
        Ok(())
    }

    pub(crate) fn finish(self) -> Block {
        Block {
            place: self.place,
            bytes: self.bytes,
            digest: self.digester.finish(),
        }
    }
}

fn nameless_file(directory: &Path) -> io::Result<File> {
    tempfile::tempfile_in(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spooled(memory_bytes: usize, pieces: &[&[u8]]) -> Block {
        let mut writer = BlockWriter::new(&Spooling {
            memory_bytes,
            directory: std::env::temp_dir(),
        });
        for piece in pieces {
            writer.append(piece).unwrap();
        }
        writer.finish()
    }

    #[test]
    fn small_stays_in_memory_large_goes_to_a_file() {
        for (memory_bytes, in_memory) in [(11, true), (10, false), (0, false)] {
            let block = spooled(memory_bytes, &[b"hello ", b"", b"world"]);
            assert_eq!(block.in_memory().is_some(), in_memory);
            assert_eq!(block.bytes(), 11);
            assert_eq!(block.digest(), Sha1Digest::of(b"hello world"));
            let mut all = Vec::new();
            block.reader().read_to_end(&mut all).unwrap();
            assert_eq!(all, b"hello world");
        }
    }

    #[test]
    fn readers_seek_and_do_not_disturb_each_other() {
        for memory_bytes in [100, 0] {
            let block = spooled(memory_bytes, &[b"hello world"]);
            let (mut first, mut second) = (block.reader(), block.reader());
            let mut piece = [0; 5];
            first.seek(SeekFrom::End(-5)).unwrap();
            second.read_exact(&mut piece).unwrap();
            assert_eq!(&piece, b"hello");
            first.read_exact(&mut piece).unwrap();
            assert_eq!(&piece, b"world");
            assert_eq!(first.read(&mut piece).unwrap(), 0);
            assert!(first.seek(SeekFrom::Current(-100)).is_err());
            first.seek(SeekFrom::Start(1 << 40)).unwrap();
            assert_eq!(first.read(&mut piece).unwrap(), 0);
        }
    }

    #[test]
    fn a_missing_directory_is_an_error() {
        let mut writer = BlockWriter::new(&Spooling {
            memory_bytes: 1,
            directory: PathBuf::from("/nonexistent/of/course"),
        });
        assert!(writer.append(b"abc").is_err());
    }
}
