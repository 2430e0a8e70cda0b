//! The changes since the last run, sorted, in memory.
//!
//! Keys stand in the tree itself and values in one arena, so that a change costs no allocation of its
//! own. A key that was never in a run leaves no tombstone when it is deleted: that is what keeps the
//! heads of busy queues short.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

/// The longest key.
pub(crate) const KEY_BYTES: usize = 31;
/// What a key costs in the tree, with its slot and the tree's own slack.
const NODE_BYTES: usize = 72;

/// A key of the store: its bytes, zeros, and its length in the last byte. So two keys compare as two
/// pairs of large numbers do, and in the order of their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key([u8; KEY_BYTES + 1]);

impl Key {
    /// Joins the parts; what goes beyond the longest key is cut off.
    pub(crate) fn new(parts: &[&[u8]]) -> Self {
        let mut key = [0; KEY_BYTES + 1];
        let mut len = 0;
        for part in parts {
            let count = part.len().min(KEY_BYTES - len);
            key[len..len + count].copy_from_slice(&part[..count]);
            len += count;
        }
        key[KEY_BYTES] = len as u8;
        Self(key)
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.0[..usize::from(self.0[KEY_BYTES])]
    }

    fn halves(&self) -> (u128, u128) {
        let (first, second) = self.0.split_at(16);
        let number = |half: &[u8]| u128::from_be_bytes(half.try_into().expect("half of 32 bytes"));
        (number(first), number(second))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.halves().cmp(&other.halves())
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A value, or the statement that there is none any more.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    at: u32,
    len: u32,
    /// How long a value the arena has room for there.
    room: u32,
    state: EntryState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum EntryState {
    Value,
    /// A value whose key is in no run.
    Fresh,
    Deleted,
}

/// The sorted changes.
#[derive(Default)]
pub(super) struct Memtable {
    map: BTreeMap<Key, Slot>,
    arena: Vec<u8>,
}

impl Memtable {
    /// The memory it takes, about.
    pub(super) fn bytes(&self) -> usize {
        self.arena.len() + self.map.len() * NODE_BYTES
    }

    pub(super) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// The keys that changed, and the bytes of their values at most.
    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    /// Forgets everything and gives the arena's memory back.
    pub(super) fn clear(&mut self) {
        self.map.clear();
        self.arena.clear();
    }

    pub(super) fn put(&mut self, key: Key, value: &[u8], fresh: bool) {
        let len = value.len() as u32;
        if let Some(slot) = self.map.get_mut(&key) {
            if slot.state != EntryState::Fresh {
                slot.state = EntryState::Value;
            }
            if slot.room < len {
                slot.at = self.arena.len() as u32;
                slot.room = len;
                self.arena.extend_from_slice(value);
            } else {
                let at = slot.at as usize;
                self.arena[at..at + value.len()].copy_from_slice(value);
            }
            slot.len = len;
            return;
        }
        let slot = Slot {
            at: self.arena.len() as u32,
            len,
            room: len,
            state: if fresh {
                EntryState::Fresh
            } else {
                EntryState::Value
            },
        };
        self.arena.extend_from_slice(value);
        self.map.insert(key, slot);
    }

    pub(super) fn delete(&mut self, key: Key) {
        match self.map.get_mut(&key) {
            Some(slot) if slot.state == EntryState::Fresh => {
                self.map.remove(&key);
            }
            Some(slot) => slot.state = EntryState::Deleted,
            None => {
                let slot = Slot {
                    at: 0,
                    len: 0,
                    room: 0,
                    state: EntryState::Deleted,
                };
                self.map.insert(key, slot);
            }
        }
    }

    /// What is known of `key` here: nothing, that it is deleted, or its value.
    pub(super) fn get(&self, key: &Key) -> Option<Option<&[u8]>> {
        self.map.get(key).map(|slot| self.value(slot))
    }

    /// The changes from `from` on, in order.
    pub(super) fn range(&self, from: &Key) -> impl Iterator<Item = (&Key, Option<&[u8]>)> {
        self.map
            .range((Bound::Included(*from), Bound::Unbounded))
            .map(|(key, slot)| (key, self.value(slot)))
    }

    fn value(&self, slot: &Slot) -> Option<&[u8]> {
        let at = slot.at as usize;
        (slot.state != EntryState::Deleted).then(|| &self.arena[at..at + slot.len as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_their_bytes_do() {
        let mut slices: Vec<&[u8]> = vec![b"", b"a", b"a\0", b"a\0\x01", b"a\x01", b"ab", b"b"];
        let keys: Vec<Key> = slices.iter().map(|slice| Key::new(&[slice])).collect();
        slices.sort_unstable();
        assert!(keys.is_sorted());
        assert!(keys.iter().map(Key::as_slice).eq(slices));
    }

    #[test]
    fn a_fresh_key_leaves_no_tombstone() {
        let mut table = Memtable::default();
        let key = Key::new(&[b"k"]);
        table.put(key, b"one", true);
        table.put(key, b"longer", false);
        assert_eq!(table.get(&key), Some(Some(&b"longer"[..])));
        table.delete(key);
        assert_eq!(table.get(&key), None);
        table.put(key, b"x", false);
        table.delete(key);
        assert_eq!(table.get(&key), Some(None));
        table.put(key, b"again", false);
        assert_eq!(table.get(&key), Some(Some(&b"again"[..])));
    }

    #[test]
    fn a_value_that_changes_often_takes_its_room_once() {
        let mut table = Memtable::default();
        let key = Key::new(&[b"k"]);
        for round in 0..1000_usize {
            table.put(key, &[7; 120][round % 20..], false);
            assert_eq!(table.get(&key), Some(Some(&[7; 120][round % 20..])));
        }
        assert!(table.bytes() < 300, "{} bytes", table.bytes());
    }
}
