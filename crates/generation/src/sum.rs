//! Checksums of the files of a generation.
//!
//! XXH3 of 128 bits: it finds what disks and memory do to bytes, at a tenth of the cost of SHA-256. Nobody's claim rests
//! on it; an index can be made again from the archive.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::num::NonZeroU64;
use std::ops::Range;
use std::path::{Path, PathBuf};

use twox_hash::xxhash3_128::Hasher;

use crate::generation::{FileBlocks, IndexFile};

/// How much is read at a time.
const BUFFER_BYTES: usize = 256 << 10;

/// Bytes counted and summed.
#[derive(Default)]
pub struct FileSum {
    hasher: Hasher,
    bytes: u64,
    blocks: Option<BlockSums>,
}

/// The sums of the blocks of a file, as far as it has come.
struct BlockSums {
    block_bytes: NonZeroU64,
    hasher: Hasher,
    /// How much of the block is there.
    filled: u64,
    done: Vec<String>,
}

impl FileSum {
    /// Returns one that sums each block too.
    pub fn in_blocks(block_bytes: NonZeroU64) -> Self {
        let blocks = BlockSums {
            block_bytes,
            hasher: Hasher::default(),
            filled: 0,
            done: Vec::new(),
        };
        Self {
            blocks: Some(blocks),
            ..Self::default()
        }
    }

    /// Adds what was read or written.
    pub fn add(&mut self, bytes: &[u8]) {
        self.hasher.write(bytes);
        self.bytes += bytes.len() as u64;
        if let Some(blocks) = &mut self.blocks {
            blocks.add(bytes);
        }
    }

    /// Returns the entry of a file whose bytes these were; its lines are not known.
    pub fn entry(&self, name: &str) -> IndexFile {
        IndexFile {
            name: name.to_owned(),
            bytes: self.bytes,
            lines: None,
            xxh128: digits(&self.hasher),
            blocks: self.blocks.as_ref().map(BlockSums::sums),
        }
    }
}

impl BlockSums {
    fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let left = self.block_bytes.get() - self.filled;
            let take = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
            let (block, rest) = bytes.split_at(take);
            self.hasher.write(block);
            self.filled += take as u64;
            if self.filled == self.block_bytes.get() {
                self.done.push(digits(&self.hasher));
                self.hasher = Hasher::default();
                self.filled = 0;
            }
            bytes = rest;
        }
    }

    fn sums(&self) -> FileBlocks {
        let mut xxh128 = self.done.clone();
        if self.filled > 0 {
            xxh128.push(digits(&self.hasher));
        }
        FileBlocks {
            bytes: self.block_bytes,
            xxh128,
        }
    }
}

fn digits(hasher: &Hasher) -> String {
    format!("{:032x}", hasher.finish_128())
}

/// Returns the size of the blocks of a file that will have about so many bytes: some thousand blocks, none below 1 MiB.
pub fn block_bytes(file_bytes: u64) -> NonZeroU64 {
    const BLOCKS: u64 = 4096;
    const LEAST: u64 = 1 << 20;
    let bytes = (file_bytes / BLOCKS).max(LEAST).checked_next_power_of_two();
    NonZeroU64::new(bytes.unwrap_or(1 << 63)).unwrap_or(NonZeroU64::MIN)
}

/// Reads a file and returns its entry.
///
/// # Errors
/// When it cannot be read.
pub fn entry_of(path: &Path, name: &str) -> io::Result<IndexFile> {
    let mut file = File::open(path)?;
    let mut sum = FileSum::default();
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(sum.entry(name)),
            read => sum.add(&buffer[..read]),
        }
    }
}

/// A part of a file, of which every block that it touches is held against its checksum.
///
/// The rest of the first and of the last block is read too. The last checksum is asked for when the end is read: whoever stops
/// before has read something that nobody vouches for.
pub struct CheckedSlice {
    file: File,
    path: PathBuf,
    blocks: FileBlocks,
    file_bytes: u64,
    wanted: Range<u64>,
    /// Where the next read begins.
    at: u64,
    hasher: Hasher,
}

impl CheckedSlice {
    /// Opens a part of a file that is described so.
    ///
    /// # Errors
    /// When it cannot be opened, has another size, or its blocks are not known.
    pub fn open(path: &Path, described: &IndexFile, wanted: Range<u64>) -> io::Result<Self> {
        let bad = |problem: String| io::Error::new(io::ErrorKind::InvalidData, problem);
        let Some(blocks) = described.blocks.clone() else {
            return Err(bad(format!(
                "no checksums of the blocks of {}",
                path.display()
            )));
        };
        let mut file = File::open(path)?;
        let (found, expected) = (file.metadata()?.len(), described.bytes);
        let is_all = blocks.xxh128.len() as u64 == expected.div_ceil(blocks.bytes.get());
        if found != expected || !is_all || wanted.start > wanted.end || wanted.end > expected {
            let (path, sums) = (path.display(), blocks.xxh128.len());
            return Err(bad(format!(
                "{path} has {found} bytes, {expected} in {sums} blocks of {} were written",
                blocks.bytes
            )));
        }
        let at = wanted.start / blocks.bytes * blocks.bytes.get();
        file.seek(SeekFrom::Start(at))?;
        Ok(Self {
            file,
            path: path.to_owned(),
            blocks,
            file_bytes: expected,
            wanted,
            at,
            hasher: Hasher::default(),
        })
    }

    /// Reads on, no further than `end` and the end of the block.
    fn read_on(&mut self, buffer: &mut [u8], end: u64) -> io::Result<usize> {
        let block = self.at / self.blocks.bytes;
        let block_end = ((block + 1) * self.blocks.bytes.get()).min(self.file_bytes);
        let most = end.min(block_end) - self.at;
        let most = usize::try_from(most).map_or(buffer.len(), |most| most.min(buffer.len()));
        let read = self.file.read(&mut buffer[..most])?;
        if read == 0 {
            return Err(self.is_not_what_was_written(block));
        }
        self.hasher.write(&buffer[..read]);
        self.at += read as u64;
        if self.at == block_end {
            let found = digits(&std::mem::take(&mut self.hasher));
            let expected = usize::try_from(block)
                .ok()
                .and_then(|block| self.blocks.xxh128.get(block));
            if expected != Some(&found) {
                return Err(self.is_not_what_was_written(block));
            }
        }
        Ok(read)
    }

    fn is_not_what_was_written(&self, block: u64) -> io::Error {
        let (path, from) = (self.path.display(), block * self.blocks.bytes.get());
        let problem = format!(
            "{path} is not what was written: the checksum of its block at offset {from} is another"
        );
        io::Error::new(io::ErrorKind::InvalidData, problem)
    }

    fn is_between_blocks(&self) -> bool {
        self.at == self.file_bytes || self.at % self.blocks.bytes == 0
    }
}

impl Read for CheckedSlice {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() || self.wanted.is_empty() {
            return Ok(0);
        }
        let mut aside = Vec::new();
        if self.at < self.wanted.start {
            aside.resize(BUFFER_BYTES, 0);
        }
        while self.at < self.wanted.start {
            self.read_on(&mut aside, self.wanted.start)?;
        }
        if self.at < self.wanted.end {
            return self.read_on(buffer, self.wanted.end);
        }
        aside.resize(BUFFER_BYTES, 0);
        while !self.is_between_blocks() {
            self.read_on(&mut aside, u64::MAX)?;
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_that_of_xxh128sum() {
        let mut sum = FileSum::default();
        assert_eq!(sum.entry("x").xxh128, "99aa06d3014798d86001c324468d497f");
        sum.add(b"a");
        sum.add(b"bc");
        let entry = sum.entry("x");
        assert_eq!(
            (entry.bytes, entry.xxh128.as_str()),
            (3, "06b05ab6733a618578af5f94892f3950")
        );
        assert_eq!(entry.blocks, None);
    }

    /// Sums bytes in blocks, however they come.
    fn summed(bytes: &[u8], block: u64, step: usize) -> IndexFile {
        let mut sum = FileSum::in_blocks(NonZeroU64::new(block).unwrap());
        bytes.chunks(step).for_each(|piece| sum.add(piece));
        sum.entry("x")
    }

    #[test]
    fn a_slice_is_its_bytes_and_vouched_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        for length in [0usize, 1, 9, 10, 11, 35] {
            let bytes: Vec<u8> = (0..length as u8).collect();
            std::fs::write(&path, &bytes).unwrap();
            let described = summed(&bytes, 10, 3);
            assert_eq!(described, summed(&bytes, 10, 40));
            for from in 0..=length {
                for to in from..=length {
                    let wanted = from as u64..to as u64;
                    let mut slice = CheckedSlice::open(&path, &described, wanted).unwrap();
                    let mut found = Vec::new();
                    slice.read_to_end(&mut found).unwrap();
                    assert_eq!(found, bytes[from..to]);
                }
            }
            // One byte that changed is found by every slice that has a byte of its block, and by no other.
            for at in 0..length {
                let mut spoilt = bytes.clone();
                spoilt[at] ^= 1;
                std::fs::write(&path, &spoilt).unwrap();
                for from in 0..length {
                    let to = (from + 4).min(length);
                    let wanted = from as u64..to as u64;
                    let mut slice = CheckedSlice::open(&path, &described, wanted).unwrap();
                    let read = slice.read_to_end(&mut Vec::new());
                    let is_touched = (from / 10..=(to - 1) / 10).contains(&(at / 10));
                    assert_eq!(read.is_err(), is_touched, "{at} of {length}, {from}..{to}");
                }
            }
        }
    }

    #[test]
    fn a_file_of_another_size_or_without_sums_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, "abcdef").unwrap();
        let mut described = summed(b"abcdef", 4, 1);
        assert!(CheckedSlice::open(&path, &described, 2..7).is_err());
        std::fs::write(&path, "abcde").unwrap();
        assert!(CheckedSlice::open(&path, &described, 0..5).is_err());
        described.blocks = None;
        assert!(CheckedSlice::open(&path, &described, 0..5).is_err());
    }

    #[test]
    fn blocks_grow_with_the_file() {
        for (file, block) in [(0, 1 << 20), (4 << 30, 1 << 20), (15 << 40, 4 << 30)] {
            assert_eq!(block_bytes(file).get(), block, "{file}");
        }
        assert_eq!(block_bytes(u64::MAX).get(), 1 << 52);
    }
}
