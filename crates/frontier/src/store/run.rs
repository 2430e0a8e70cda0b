//! A run: a file of sorted entries, written once and never changed.
//!
//! Blocks with a checksum each, then the filter, the index (the shortest key that parts each block from
//! the one before) and a footer. The index is in memory, blocks are read when they are wanted.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use twox_hash::XxHash3_128;

use super::block::{Block, BlockBuilder, shared_prefix};
use super::filter::{Filter, PIECE_BYTES, Spare};
use super::index::{Index, UNIT_BYTES};
use super::memtable::{KEY_BYTES, Key};
use super::shelf::Held;
use super::space::Space;
use crate::error::{Result, damaged, io_error};

const MAGIC: [u8; 8] = *b"ecluseR2";
const CHECK_BYTES: usize = 4;
/// Filter offset, index offset, entries, filtered keys, checksum of filter and index, magic.
const FOOTER_BYTES: usize = 8 * 6;

fn check(bytes: &[u8]) -> u64 {
    chain(0, bytes)
}

/// The checksum of `bytes` behind what `sum` is the checksum of.
fn chain(sum: u64, bytes: &[u8]) -> u64 {
    XxHash3_128::oneshot_with_seed(sum, bytes) as u64
}

/// An open run.
pub(super) struct Run {
    pub(super) number: u64,
    file: File,
    path: PathBuf,
    index: Index,
    pub(super) filtered_keys: u64,
}

impl Run {
    /// Opens a finished run, and reads its filter.
    pub(super) fn open(path: &Path, number: u64, spare: &Spare) -> Result<(Self, Option<Filter>)> {
        let file = File::open(path).map_err(io_error("open", path))?;
        let bytes = file.metadata().map_err(io_error("stat", path))?.len();
        let no_footer = || damaged(path, bytes, "no footer of a run");
        let footer_at = bytes
            .checked_sub(FOOTER_BYTES as u64)
            .ok_or_else(no_footer)?;
        let footer = read_at(&file, path, footer_at, FOOTER_BYTES)?;
        let fields = footer.as_chunks::<8>().0;
        let field = |number: usize| u64::from_le_bytes(fields[number]);
        let (filter_at, index_at) = (field(0), field(1));
        if fields[5] != MAGIC || filter_at > index_at || index_at > footer_at {
            return Err(no_footer());
        }
        let mut filter = Filter::unread(spare);
        let sum = read_filter(&mut filter, &file, path, filter_at..index_at)?;
        let index = read_at(&file, path, index_at, (footer_at - index_at) as usize)?;
        if chain(sum, &index) != field(4) {
            return Err(damaged(path, filter_at, "the filter or the index of a run"));
        }
        let index = Index::decode(&index)
            .filter(|index| index.end() == filter_at)
            .ok_or_else(|| damaged(path, index_at, "the index of a run"))?;
        let run = Self {
            number,
            file,
            path: path.to_owned(),
            index,
            filtered_keys: field(3),
        };
        Ok((run, filter.unless_empty()))
    }

    pub(super) fn bytes(&self) -> u64 {
        self.index.end()
    }

    /// The memory its index takes.
    pub(super) fn index_bytes(&self) -> u64 {
        self.index.bytes()
    }

    /// The block in which `key` is, if it is in the run.
    pub(super) fn block_of(&self, key: &[u8]) -> Option<usize> {
        self.index.block_of(key)
    }

    /// Reads a block and checks it. The memory of one that is no longer wanted is used again.
    pub(super) fn block(&self, number: usize, old: Option<Block>) -> Result<Block> {
        let (from, count) = self.index.extent(number);
        let mut bytes = old.map(Block::into_bytes).unwrap_or_default();
        bytes.reserve_exact(count.saturating_sub(bytes.len()));
        bytes.resize(count, 0);
        let read = self.file.read_exact_at(&mut bytes, from);
        read.map_err(io_error("read", &self.path))?;
        let broken = || damaged(&self.path, from, "a block of a run");
        let body = bytes.len().checked_sub(CHECK_BYTES).ok_or_else(broken)?;
        if (check(&bytes[..body]) as u32).to_le_bytes()[..] != bytes[body..] {
            return Err(broken());
        }
        bytes.truncate(body);
        Block::new(bytes).ok_or_else(broken)
    }

    /// What is wrong when an entry of a checked block cannot be read.
    pub(super) fn broken(&self, block: usize) -> crate::FrontierError {
        damaged(
            &self.path,
            self.index.extent(block).0,
            "an entry of a block",
        )
    }
}

fn read_at(file: &File, path: &Path, at: u64, count: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; count];
    file.read_exact_at(&mut bytes, at)
        .map_err(io_error("read", path))?;
    Ok(bytes)
}

/// Reads a filter, and gives its checksum.
fn read_filter(filter: &mut Filter, file: &File, path: &Path, range: Range<u64>) -> Result<u64> {
    let mut sum = 0;
    for at in range.clone().step_by(PIECE_BYTES) {
        let count = (range.end - at).min(PIECE_BYTES as u64);
        let piece = read_at(file, path, at, count as usize)?;
        sum = chain(sum, &piece);
        filter.extend(&piece);
    }
    Ok(sum)
}

/// Goes through a run from a key on.
pub(super) struct Cursor {
    run: Arc<Run>,
    number: usize,
    block: Option<Block>,
    entry: usize,
    key: Option<Key>,
}

impl Cursor {
    /// Stands on the first entry that is not before `from`.
    pub(super) fn seek(run: Arc<Run>, from: &Key) -> Result<Self> {
        let number = run.block_of(from.as_slice()).unwrap_or(0);
        let mut cursor = Self {
            run,
            number,
            block: None,
            entry: 0,
            key: None,
        };
        cursor.load()?;
        if let Some(block) = &cursor.block {
            cursor.entry = block
                .seek(from.as_slice())
                .ok_or_else(|| cursor.run.broken(number))?
                .0;
        }
        cursor.settle()?;
        Ok(cursor)
    }

    /// The key it stands on; none at the end.
    pub(super) fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// The value it stands on; none for a deleted key.
    pub(super) fn value(&self) -> Option<&[u8]> {
        let block = self.block.as_ref()?;
        block.value(self.entry)?
    }

    pub(super) fn advance(&mut self) -> Result<()> {
        self.entry += 1;
        self.settle()
    }

    fn settle(&mut self) -> Result<()> {
        while let Some(block) = &self.block {
            if self.entry < block.count() {
                let entry = block.entry(self.entry);
                let (key, _) = entry.ok_or_else(|| self.run.broken(self.number))?;
                self.key = Some(key);
                return Ok(());
            }
            self.number += 1;
            self.entry = 0;
            self.load()?;
        }
        self.key = None;
        Ok(())
    }

    fn load(&mut self) -> Result<()> {
        let old = self.block.take();
        self.block = match self.number < self.run.index.blocks() {
            true => Some(self.run.block(self.number, old)?),
            false => None,
        };
        Ok(())
    }
}

/// Writes a run, entry by entry in the order of their keys.
pub(super) struct RunWriter {
    out: BufWriter<File>,
    path: PathBuf,
    number: u64,
    offset: u64,
    builder: BlockBuilder,
    block: Vec<u8>,
    last: Option<Key>,
    /// The last key of the block before.
    before: Option<Key>,
    index: Index,
    filter: Option<Filter>,
    filtered_keys: u64,
    /// What the filter was told last, of keys that are told by their prefix.
    prefix: Vec<u8>,
    entries: u64,
}

impl RunWriter {
    pub(super) fn create(path: &Path, number: u64, filter: Option<Filter>) -> Result<Self> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
            .map_err(io_error("create", path))?;
        Ok(Self {
            out: BufWriter::with_capacity(1 << 18, file),
            path: path.to_owned(),
            number,
            offset: 0,
            builder: BlockBuilder::default(),
            block: Vec::new(),
            last: None,
            before: None,
            index: Index::new(),
            filter,
            filtered_keys: 0,
            prefix: Vec::with_capacity(KEY_BYTES),
            entries: 0,
        })
    }

    pub(super) fn push(&mut self, key: Key, value: Option<&[u8]>) -> Result<()> {
        assert!(
            self.last.is_none_or(|last| last < key),
            "a run is written in the order of its keys"
        );
        let space = Space::of(key.as_slice());
        let changes_space = self
            .builder
            .first()
            .is_some_and(|first| first.as_slice().first() != key.as_slice().first());
        let limit = space.block_bytes() - CHECK_BYTES;
        if changes_space || self.builder.is_full(&key, value, limit) {
            self.end_block()?;
        }
        self.tell_filter(space, key.as_slice());
        self.builder.push(key, value);
        self.last = Some(key);
        self.entries += 1;
        Ok(())
    }

    fn tell_filter(&mut self, space: Space, key: &[u8]) {
        let told = space.filtered(key);
        if told.is_empty() || told == self.prefix {
            return;
        }
        self.prefix.clear();
        self.prefix.extend_from_slice(told);
        self.filtered_keys += 1;
        if let Some(filter) = &mut self.filter {
            filter.insert(told);
        }
    }

    fn end_block(&mut self) -> Result<()> {
        let Some(first) = self.builder.first().copied() else {
            return Ok(());
        };
        let first = first.as_slice();
        let shared = self
            .before
            .as_ref()
            .map_or(0, |before| shared_prefix(before.as_slice(), first));
        self.block.clear();
        self.builder.finish(&mut self.block);
        let whole = (self.block.len() + CHECK_BYTES).next_multiple_of(UNIT_BYTES);
        self.block.resize(whole - CHECK_BYTES, 0);
        let sum = check(&self.block) as u32;
        self.block.extend_from_slice(&sum.to_le_bytes());
        let block = std::mem::take(&mut self.block);
        self.write(&block)?;
        self.block = block;
        let separator = &first[..first.len().min(shared + 1)];
        let units = (whole / UNIT_BYTES) as u64;
        let too_long = || damaged(&self.path, self.offset, "a run of more than 8 TiB");
        self.index.push(units, separator).ok_or_else(too_long)?;
        self.before = self.last;
        Ok(())
    }

    /// Writes the rest, makes the file durable and opens it.
    pub(super) fn finish(self) -> Result<Held> {
        let path = self.path.clone();
        let (held, file) = self.finish_unsynced()?;
        file.sync_all().map_err(io_error("fsync", &path))?;
        Ok(held)
    }

    /// Writes filter, index and footer, and opens the file. It is not durable before the handle that comes with it is synced.
    pub(super) fn finish_unsynced(mut self) -> Result<(Held, File)> {
        self.end_block()?;
        let filter_at = self.offset;
        let mut sum = 0;
        let filter = self.filter.take();
        if let Some(filter) = &filter {
            for piece in filter.pieces() {
                sum = chain(sum, &piece);
                self.write(&piece)?;
            }
        }
        self.index.shrink();
        let index = self.index.encode();
        let fields = [
            filter_at,
            self.offset,
            self.entries,
            self.filtered_keys,
            chain(sum, &index),
        ];
        self.write(&index)?;
        let footer: Vec<u8> = fields
            .iter()
            .flat_map(|field| field.to_le_bytes())
            .collect();
        self.write(&footer)?;
        self.write(&MAGIC)?;
        let file = self
            .out
            .into_inner()
            .map_err(|error| io_error("write", &self.path)(error.into_error()))?;
        let run = Run {
            number: self.number,
            file: File::open(&self.path).map_err(io_error("open", &self.path))?,
            path: self.path,
            index: self.index,
            filtered_keys: self.filtered_keys,
        };
        Ok((Held::new(run, filter), file))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.out
            .write_all(bytes)
            .map_err(io_error("write", &self.path))?;
        self.offset += bytes.len() as u64;
        Ok(())
    }
}
