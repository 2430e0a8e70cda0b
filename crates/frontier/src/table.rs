//! Records of one kind at hand: those in use stay, the others go when there are too many.
//!
//! A changed record is written into the store when it goes, and at the latest when all are saved.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::error::{FrontierError, Result};
use crate::key::Id;
use crate::record::Record;
use crate::store::Store;

/// A map by identifiers, which are hashes already.
pub(crate) type IdMap<Value> = HashMap<Id, Value, BuildHasherDefault<IdHasher>>;

/// Takes eight bytes of an identifier as they are.
#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            self.0 = u64::from_le_bytes(*first);
        }
    }

    // The length of an array, which is always the same.
    fn write_usize(&mut self, _: usize) {}
}

struct Entry<Kept> {
    record: Kept,
    changed: bool,
    pins: u32,
    used: u64,
}

/// The records at hand.
pub(crate) struct Table<Kept> {
    entries: IdMap<Entry<Kept>>,
    changed: Vec<Id>,
    tick: u64,
    pinned: usize,
    buffer: Vec<u8>,
}

impl<Kept: Record> Table<Kept> {
    pub(crate) fn new() -> Self {
        Self {
            entries: IdMap::default(),
            changed: Vec::new(),
            tick: 0,
            pinned: 0,
            buffer: Vec::new(),
        }
    }

    /// Takes a new record.
    pub(crate) fn insert(&mut self, id: Id, record: Kept) {
        self.tick += 1;
        let entry = Entry {
            record,
            changed: true,
            pins: 0,
            used: self.tick,
        };
        self.entries.insert(id, entry);
        self.changed.push(id);
    }

    /// The record, from the store if it is not at hand.
    pub(crate) fn get(&mut self, store: &mut Store, id: &Id) -> Result<Option<&Kept>> {
        Ok(self.entry(store, id)?.map(|entry| &entry.record))
    }

    /// The record, to be changed.
    pub(crate) fn change(&mut self, store: &mut Store, id: &Id) -> Result<Option<&mut Kept>> {
        if self.entry(store, id)?.is_none() {
            return Ok(None);
        }
        let entry = self.entries.get_mut(id);
        Ok(entry.map(|entry| {
            if !entry.changed {
                entry.changed = true;
                self.changed.push(*id);
            }
            &mut entry.record
        }))
    }

    /// The record if it is at hand.
    pub(crate) fn at_hand(&self, id: &Id) -> Option<&Kept> {
        self.entries.get(id).map(|entry| &entry.record)
    }

    /// Keeps a record at hand until it is unpinned as often.
    pub(crate) fn pin(&mut self, store: &mut Store, id: &Id) -> Result<()> {
        if let Some(entry) = self.entry(store, id)? {
            entry.pins += 1;
            if entry.pins == 1 {
                self.pinned += 1;
            }
        }
        Ok(())
    }

    pub(crate) fn unpin(&mut self, id: &Id) {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.pins = entry.pins.saturating_sub(1);
            if entry.pins == 0 {
                self.pinned -= 1;
            }
        }
    }

    fn entry(&mut self, store: &mut Store, id: &Id) -> Result<Option<&mut Entry<Kept>>> {
        self.tick += 1;
        if !self.entries.contains_key(id) {
            let Some(bytes) = store.get(&Kept::key(id))? else {
                return Ok(None);
            };
            let record = Kept::decode(&bytes).ok_or_else(|| store.bad_record())?;
            let entry = Entry {
                record,
                changed: false,
                pins: 0,
                used: 0,
            };
            self.entries.insert(*id, entry);
        }
        let mut entry = self.entries.get_mut(id);
        if let Some(entry) = &mut entry {
            entry.used = self.tick;
        }
        Ok(entry)
    }

    /// How many records are at hand.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Writes every changed record into the store.
    pub(crate) fn save(&mut self, store: &mut Store) -> Result<()> {
        for id in std::mem::take(&mut self.changed) {
            if let Some(entry) = self.entries.get_mut(&id)
                && entry.changed
            {
                entry.changed = false;
                self.buffer.clear();
                entry.record.encode(&mut self.buffer);
                store.put(Kept::key(&id), &self.buffer)?;
            }
        }
        Ok(())
    }

    /// Lets half of the records go that nobody uses, if there are more than `limit`.
    pub(crate) fn trim(&mut self, store: &mut Store, limit: usize) -> Result<()> {
        if self.entries.len() - self.pinned <= limit {
            return Ok(());
        }
        self.save(store)?;
        let idle = self.entries.values().filter(|entry| entry.pins == 0);
        let mut used: Vec<u64> = idle.map(|entry| entry.used).collect();
        let middle = used.len() / 2;
        let (_, bound, _) = used.select_nth_unstable(middle);
        let bound = *bound;
        self.entries
            .retain(|_, entry| entry.pins > 0 || entry.used > bound);
        Ok(())
    }
}

impl Store {
    /// A record that was whole by its checksum, yet cannot be understood.
    pub(crate) fn bad_record(&self) -> FrontierError {
        crate::error::damaged(self.dir(), 0, "a record that makes no sense")
    }
}
