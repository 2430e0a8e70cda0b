//! The block of a response: every byte as it was received, in memory while it is small, else in a nameless file.
//!
//! Bytes are only ever appended, and the digest is taken as they pass. The file has no name in any directory, so a
//! crash leaves nothing behind. It is made and written by other threads: a disk that is slow keeps this fetch waiting and
//! no other. Any number of readers can be open at once; each has a place of its own.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ecluse_warc::{Digester, Sha1Digest};
use tokio::task::JoinHandle;

/// So much is written to a file in one go. While that goes on, as much again may come.
const WRITE_BYTES: usize = 256 * 1024;

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
    /// It was let go.
    Nowhere,
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
            BlockStorage::File(_) | BlockStorage::Nowhere => None,
        }
    }

    /// Gives back what the bytes take, in memory or on disk; their number and digest stay. A large file is not gone in a
    /// moment, so whoever must not wait leaves this to another thread.
    pub fn let_go(&mut self) {
        self.place = BlockStorage::Nowhere;
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
            BlockStorage::Nowhere => Err(io::Error::other("the block was let go")),
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
    /// What is in no file yet.
    held: Vec<u8>,
    /// The file that has the rest, while nobody writes to it.
    file: Option<File>,
    writing: Option<JoinHandle<io::Result<Written>>>,
    bytes: u64,
    digester: Digester,
    spooling: Spooling,
}

/// A file that was written to, and the memory from which it was.
type Written = (File, Vec<u8>);

impl BlockWriter {
    pub(crate) fn new(spooling: &Spooling) -> Self {
        Self {
            held: Vec::new(),
            file: None,
            writing: None,
            bytes: 0,
            digester: Digester::default(),
            spooling: spooling.clone(),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes room for so many bytes to come, as far as they may stay in memory: to grow with each piece copies what is there.
    pub(crate) fn expect(&mut self, bytes: u64) {
        let room = self.spooling.memory_bytes.saturating_sub(self.held.len());
        let bytes = usize::try_from(bytes).map_or(room, |bytes| bytes.min(room));
        self.held.reserve_exact(bytes);
    }

    /// Appends to what is held in memory: [`BlockWriter::relieve`] must follow before long.
    pub(crate) fn append(&mut self, piece: &[u8]) {
        self.held.extend_from_slice(piece);
        self.digester.update(piece);
        self.bytes += piece.len() as u64;
    }

    /// Has more than may stay in memory written to the file, and waits for what is being written already.
    pub(crate) async fn relieve(&mut self) -> io::Result<()> {
        let is_small = self.bytes <= self.spooling.memory_bytes as u64;
        let is_little =
            self.held.len() < WRITE_BYTES && (self.file.is_some() || self.writing.is_some());
        if is_small || is_little {
            return Ok(());
        }
        self.begin_write().await
    }

    async fn begin_write(&mut self) -> io::Result<()> {
        let spare = self.end_write().await?;
        let held = std::mem::replace(&mut self.held, spare);
        let (file, directory) = (self.file.take(), self.spooling.directory.clone());
        self.writing = Some(tokio::task::spawn_blocking(move || {
            let mut file = file.map_or_else(|| nameless_file(&directory), Ok)?;
            file.write_all(&held)?;
            Ok((file, held))
        }));
        Ok(())
    }

    /// Waits for what is being written, and returns memory that can be used again.
    async fn end_write(&mut self) -> io::Result<Vec<u8>> {
        let Some(writing) = &mut self.writing else {
            return Ok(Vec::new());
        };
        let written = writing.await;
        self.writing = None;
        let (file, mut spare) = written.map_err(io::Error::other)??;
        self.file = Some(file);
        spare.clear();
        Ok(spare)
    }

    pub(crate) async fn finish(mut self) -> io::Result<Block> {
        if self.bytes > self.spooling.memory_bytes as u64 {
            if !self.held.is_empty() {
                self.begin_write().await?;
            }
            self.end_write().await?;
        }
        Ok(Block {
            place: match self.file {
                Some(file) => BlockStorage::File(file),
                None => BlockStorage::Memory(self.held),
            },
            bytes: self.bytes,
            digest: self.digester.finish(),
        })
    }
}

fn nameless_file(directory: &Path) -> io::Result<File> {
    tempfile::tempfile_in(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait<Output>(future: impl Future<Output = Output>) -> Output {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(future)
    }

    fn spooled(memory_bytes: usize, pieces: &[&[u8]]) -> Block {
        let mut writer = BlockWriter::new(&Spooling {
            memory_bytes,
            directory: std::env::temp_dir(),
        });
        wait(async {
            for piece in pieces {
                writer.append(piece);
                writer.relieve().await.unwrap();
                assert!(writer.held.len() <= memory_bytes.max(WRITE_BYTES));
            }
            writer.finish().await.unwrap()
        })
    }

    #[test]
    fn a_large_one_is_written_piece_by_piece_in_order() {
        let bytes: Vec<u8> = (0..3 << 20_u32).map(|at| (at >> 7) as u8).collect();
        let pieces: Vec<&[u8]> = bytes.chunks(33_333).collect();
        let mut block = spooled(100_000, &pieces);
        assert!(block.in_memory().is_none());
        let mut all = Vec::new();
        block.reader().read_to_end(&mut all).unwrap();
        assert!(all == bytes);
        block.let_go();
        assert_eq!(block.bytes(), 3 << 20);
        assert_eq!(block.digest(), Sha1Digest::of(&bytes));
        assert!(block.reader().read(&mut [0; 1]).is_err());
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
        writer.append(b"abc");
        let finished = wait(async {
            writer.relieve().await?;
            writer.finish().await
        });
        assert!(finished.is_err());
    }
}
