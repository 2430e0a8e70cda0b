//! The index of a run: where each block begins, and the shortest key that parts it from the one before.
//!
//! Every run's index is in memory, and at tens of millions of URLs it is out of the machine's cache. So the
//! first eight bytes of each of these keys stand as numbers of their own, with a guide above them: a look-up
//! touches a few lines, and the rest of a key only where the numbers are alike.

use super::memtable::KEY_BYTES;
use crate::codec::{Reader, put_bytes, put_number};

/// What blocks are a multiple of, so that a small one is within one page of the machine's memory.
pub(super) const UNIT_BYTES: usize = 2048;
/// Blocks for each entry of the guide.
const GUIDE_BLOCKS: usize = 16;
/// Bytes of a key that stand as a number.
const HEAD_BYTES: usize = 8;

/// The blocks of a run.
pub(super) struct Index {
    /// The first bytes of the key that parts each block from the one before.
    heads: Vec<u64>,
    /// The head of one block in so many.
    guide: Vec<u64>,
    /// How long each of the keys is.
    lengths: Vec<u8>,
    /// What is behind the heads, end to end.
    tails: Vec<u8>,
    /// Where the tails begin of the blocks that belong to each entry of the guide.
    tail_starts: Vec<u32>,
    /// The unit at which each block begins, and where the last one ends.
    units: Vec<u32>,
}

impl Index {
    pub(super) fn new() -> Self {
        Self {
            heads: Vec::new(),
            guide: Vec::new(),
            lengths: Vec::new(),
            tails: Vec::new(),
            tail_starts: Vec::new(),
            units: vec![0],
        }
    }

    /// Takes the next block: its units, and a key that is not after its first one but after all before it.
    pub(super) fn push(&mut self, units: u64, separator: &[u8]) -> Option<()> {
        if separator.len() > KEY_BYTES || units == 0 {
            return None;
        }
        let end = u64::from(*self.units.last()?).checked_add(units)?;
        self.units.push(end.try_into().ok()?);
        if self.heads.len().is_multiple_of(GUIDE_BLOCKS) {
            self.guide.push(head(separator));
            self.tail_starts.push(self.tails.len().try_into().ok()?);
        }
        self.heads.push(head(separator));
        self.lengths.push(separator.len() as u8);
        let tail = separator.get(HEAD_BYTES..).unwrap_or_default();
        self.tails.extend_from_slice(tail);
        Some(())
    }

    /// The bytes of the index in a file.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.heads.len() * 12 + self.tails.len());
        for block in 0..self.blocks() {
            put_number(
                &mut out,
                u64::from(self.units[block + 1] - self.units[block]),
            );
            let (separator, length) = self.separator(block);
            put_bytes(&mut out, &separator[..length]);
        }
        out
    }

    /// Reads the bytes of an index; nothing if they are none.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let mut index = Self::new();
        while !reader.is_empty() {
            let units = reader.number()?;
            index.push(units, reader.bytes()?)?;
        }
        index.shrink();
        Some(index)
    }

    /// Gives back memory that was taken for more blocks to come.
    pub(super) fn shrink(&mut self) {
        self.heads.shrink_to_fit();
        self.guide.shrink_to_fit();
        self.lengths.shrink_to_fit();
        self.tails.shrink_to_fit();
        self.tail_starts.shrink_to_fit();
        self.units.shrink_to_fit();
    }

    /// How many blocks there are.
    pub(super) fn blocks(&self) -> usize {
        self.heads.len()
    }

    /// Where a block begins, and how long it is.
    pub(super) fn extent(&self, block: usize) -> (u64, usize) {
        let (from, to) = (self.units[block], self.units[block + 1]);
        let bytes = |units: u32| u64::from(units) * UNIT_BYTES as u64;
        (bytes(from), bytes(to - from) as usize)
    }

    /// Where the last block ends.
    pub(super) fn end(&self) -> u64 {
        let end = self.units.last().copied().unwrap_or_default();
        u64::from(end) * UNIT_BYTES as u64
    }

    /// The memory it takes.
    pub(super) fn bytes(&self) -> u64 {
        let numbers = 8 * (self.heads.len() + self.guide.len());
        let small = 4 * (self.tail_starts.len() + self.units.len());
        (numbers + small + self.lengths.len() + self.tails.len()) as u64
    }

    /// The block in which `key` is, if it is in any.
    pub(super) fn block_of(&self, key: &[u8]) -> Option<usize> {
        let wanted = head(key);
        let low = self.first(|head| head >= wanted);
        let mut after = low;
        if self.heads.get(low) == Some(&wanted) {
            let mut high = self.first(|head| head > wanted);
            while after < high {
                let middle = after.midpoint(high);
                let (separator, length) = self.separator(middle);
                if &separator[..length] <= key {
                    after = middle + 1;
                } else {
                    high = middle;
                }
            }
        }
        after.checked_sub(1)
    }

    /// The first block whose head is as wanted; all behind it are too.
    fn first(&self, wanted: impl Fn(u64) -> bool) -> usize {
        let near = self.guide.partition_point(|head| !wanted(*head));
        let from = near.saturating_sub(1) * GUIDE_BLOCKS;
        let to = (near * GUIDE_BLOCKS).min(self.heads.len());
        from + self.heads[from..to].partition_point(|head| !wanted(*head))
    }

    /// The key that parts a block from the one before, and its length.
    fn separator(&self, block: usize) -> ([u8; KEY_BYTES], usize) {
        let tail = |length: &u8| usize::from(*length).saturating_sub(HEAD_BYTES);
        let group = block / GUIDE_BLOCKS;
        let before = &self.lengths[group * GUIDE_BLOCKS..block];
        let start = self.tail_starts[group] as usize + before.iter().map(tail).sum::<usize>();
        let length = usize::from(self.lengths[block]);
        let mut separator = [0; KEY_BYTES];
        separator[..HEAD_BYTES].copy_from_slice(&self.heads[block].to_be_bytes());
        let tail = tail(&self.lengths[block]);
        separator[HEAD_BYTES..HEAD_BYTES + tail].copy_from_slice(&self.tails[start..start + tail]);
        (separator, length)
    }
}

/// The first bytes of a key as a number; what is missing counts as zeros.
fn head(key: &[u8]) -> u64 {
    let mut bytes = [0; HEAD_BYTES];
    let count = key.len().min(HEAD_BYTES);
    bytes[..count].copy_from_slice(&key[..count]);
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Keys that begin alike, end in zeros, or are short.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![4 => Just(0_u8), 2 => Just(1), 1 => Just(0xff)];
        prop::collection::vec(byte, 0..14)
    }

    proptest! {
        #[test]
        fn a_key_is_found_where_it_belongs(
            separators in prop::collection::btree_set(key(), 0..120),
            asked in prop::collection::vec(key(), 1..20),
        ) {
            let separators: BTreeSet<Vec<u8>> = separators;
            let mut index = Index::new();
            for (number, separator) in separators.iter().enumerate() {
                index.push(number as u64 % 3 + 1, separator).unwrap();
            }
            let index = Index::decode(&index.encode()).unwrap();
            prop_assert_eq!(index.blocks(), separators.len());
            let mut end = 0;
            for (number, separator) in separators.iter().enumerate() {
                prop_assert_eq!(index.extent(number), (end, UNIT_BYTES * (number % 3 + 1)));
                end += (UNIT_BYTES * (number % 3 + 1)) as u64;
                let (found, length) = index.separator(number);
                prop_assert_eq!(&found[..length], &separator[..]);
            }
            prop_assert_eq!(index.end(), end);
            for key in asked.iter().chain(&separators) {
                let expected = separators.range(..=key.clone()).count().checked_sub(1);
                prop_assert_eq!(index.block_of(key), expected);
            }
        }

        #[test]
        fn any_bytes_are_an_index_or_none(bytes: Vec<u8>, key: Vec<u8>) {
            if let Some(index) = Index::decode(&bytes) {
                let _ = index.block_of(&key);
                prop_assert!(index.blocks() <= bytes.len());
            }
        }
    }
}
