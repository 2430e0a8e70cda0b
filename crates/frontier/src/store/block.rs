//! A block of a run: sorted entries behind the prefix they share, found by bisection.
//!
//! `prefix length u8, count u16, prefix, count × offset u16, entries`; an entry is `suffix length u8,
//! value length + 1 (0: deleted), suffix, value`. Reading checks every bound and never panics.

use std::cmp::Ordering;

use super::memtable::Key;
use crate::codec::{Reader, put_number};

/// Entries beyond the first begin within this many bytes, so that an offset fits into two.
const LARGEST: usize = 60_000;
/// The length of the prefix, and the count.
const HEADER_BYTES: usize = 3;

/// Collects the entries of one block.
#[derive(Default)]
pub(super) struct BlockBuilder {
    entries: Vec<(Key, Option<(usize, usize)>)>,
    values: Vec<u8>,
    /// What the entries would take if they shared nothing.
    size: usize,
}

impl BlockBuilder {
    pub(super) fn first(&self) -> Option<&Key> {
        self.entries.first().map(|(key, _)| key)
    }

    /// Whether another entry would make the block larger than `limit`.
    pub(super) fn is_full(&self, key: &Key, value: Option<&[u8]>, limit: usize) -> bool {
        let Some(first) = self.first() else {
            return false;
        };
        let shared = shared_prefix(first.as_slice(), key.as_slice());
        let size = self.size + entry_size(key, value);
        // The prefix is written once, instead of with each entry.
        let saved = shared * self.entries.len();
        HEADER_BYTES + size - saved > limit.min(LARGEST)
    }

    pub(super) fn push(&mut self, key: Key, value: Option<&[u8]>) {
        self.size += entry_size(&key, value);
        let at = self.values.len();
        self.values.extend_from_slice(value.unwrap_or_default());
        let span = value.map(|value| (at, value.len()));
        self.entries.push((key, span));
    }

    /// Appends the block to `out` and starts anew.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        let (Some((first, _)), Some((last, _))) = (self.entries.first(), self.entries.last())
        else {
            return;
        };
        let shared = shared_prefix(first.as_slice(), last.as_slice());
        out.push(shared as u8);
        out.extend_from_slice(&(self.entries.len() as u16).to_le_bytes());
        out.extend_from_slice(&first.as_slice()[..shared]);
        let table = out.len();
        out.resize(table + 2 * self.entries.len(), 0);
        let base = out.len();
        for (number, (key, span)) in self.entries.iter().enumerate() {
            let offset = (out.len() - base) as u16;
            out[table + 2 * number..][..2].copy_from_slice(&offset.to_le_bytes());
            let suffix = &key.as_slice()[shared..];
            out.push(suffix.len() as u8);
            put_number(out, span.map_or(0, |(_, len)| len as u64 + 1));
            out.extend_from_slice(suffix);
            if let Some((at, len)) = span {
                out.extend_from_slice(&self.values[*at..at + len]);
            }
        }
        self.entries.clear();
        self.values.clear();
        self.size = 0;
    }
}

/// What an entry takes with its whole key: offset, lengths, key and value.
fn entry_size(key: &Key, value: Option<&[u8]>) -> usize {
    let value_bytes = value.map_or(0, <[u8]>::len);
    let length_bytes = match value_bytes {
        0..0x7f => 1,
        0x7f..0x3fff => 2,
        0x3fff.. => 3,
    };
    2 + 1 + length_bytes + key.as_slice().len() + value_bytes
}

/// The bytes two keys begin with alike.
pub(super) fn shared_prefix(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

/// A block read back.
pub(super) struct Block {
    bytes: Vec<u8>,
    prefix_end: usize,
    base: usize,
    count: usize,
}

impl Block {
    /// Takes the bytes of a block; `None` if they are not one.
    pub(super) fn new(bytes: Vec<u8>) -> Option<Self> {
        let prefix_len = usize::from(*bytes.first()?);
        let count = usize::from(u16::from_le_bytes([*bytes.get(1)?, *bytes.get(2)?]));
        let prefix_end = 3 + prefix_len;
        let base = prefix_end + 2 * count;
        (count > 0 && base <= bytes.len()).then_some(Self {
            bytes,
            prefix_end,
            base,
            count,
        })
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The memory it takes, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.capacity()
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The entry's key and its value, if it has one.
    pub(super) fn entry(&self, number: usize) -> Option<(Key, Option<&[u8]>)> {
        let (suffix, value) = self.parts(number)?;
        Some((Key::new(&[&self.bytes[3..self.prefix_end], suffix]), value))
    }

    /// The number of the first entry that is not before `key`, and whether it is `key`.
    pub(super) fn seek(&self, key: &[u8]) -> Option<(usize, bool)> {
        let prefix = &self.bytes[3..self.prefix_end];
        let head = &key[..key.len().min(prefix.len())];
        match head.cmp(&prefix[..head.len()]) {
            Ordering::Less => return Some((0, false)),
            Ordering::Greater => return Some((self.count, false)),
            Ordering::Equal if head.len() < prefix.len() => return Some((0, false)),
            Ordering::Equal => {}
        }
        let wanted = &key[prefix.len()..];
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            match self.parts(middle)?.0.cmp(wanted) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Some((middle, true)),
                Ordering::Greater => high = middle,
            }
        }
        Some((low, false))
    }

    /// The value of an entry, if it has one.
    pub(super) fn value(&self, number: usize) -> Option<Option<&[u8]>> {
        Some(self.parts(number)?.1)
    }

    fn parts(&self, number: usize) -> Option<(&[u8], Option<&[u8]>)> {
        let at = self.prefix_end + 2 * number;
        let offset = u16::from_le_bytes(self.bytes.get(at..at + 2)?.try_into().ok()?);
        let mut reader = Reader::new(self.bytes.get(self.base + usize::from(offset)..)?);
        let suffix_len = usize::from(reader.byte()?);
        let value_len = reader.number()?;
        let suffix = reader.take(suffix_len)?;
        let value = match value_len.checked_sub(1) {
            None => None,
            Some(len) => Some(reader.take(len.try_into().ok()?)?),
        };
        Some((suffix, value))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_built_is_found(
            entries in prop::collection::btree_map(
                prop::collection::vec(0..4_u8, 0..8), prop::option::of(any::<Vec<u8>>()), 1..40),
            asked in prop::collection::vec(0..4_u8, 0..8),
        ) {
            let entries: BTreeMap<Vec<u8>, Option<Vec<u8>>> = entries;
            let mut builder = BlockBuilder::default();
            let mut fits = 0;
            for (key, value) in &entries {
                let (key, value) = (Key::new(&[key]), value.as_deref());
                fits = (fits..).find(|limit| !builder.is_full(&key, value, *limit)).unwrap();
                builder.push(key, value);
            }
            let mut bytes = Vec::new();
            builder.finish(&mut bytes);
            prop_assert!(entries.len() == 1 || bytes.len() == fits, "{} is not {fits}", bytes.len());
            let block = Block::new(bytes).unwrap();
            prop_assert_eq!(block.count(), entries.len());
            for (number, (key, value)) in entries.iter().enumerate() {
                let (found, stored) = block.entry(number).unwrap();
                prop_assert_eq!(found.as_slice(), &key[..]);
                prop_assert_eq!(stored, value.as_deref());
            }
            let expected = entries.range(..asked.clone()).count();
            prop_assert_eq!(block.seek(&asked), Some((expected, entries.contains_key(&asked))));
        }

        #[test]
        fn any_bytes_make_a_block_or_none(bytes: Vec<u8>, key: Vec<u8>) {
            if let Some(block) = Block::new(bytes) {
                let _ = block.seek(&key);
                for number in 0..block.count() {
                    let _ = block.entry(number);
                }
            }
        }
    }
}
