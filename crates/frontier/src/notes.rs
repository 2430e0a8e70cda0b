//! Notes: small things the caller remembers beside its URLs, durable with the same commit.
//!
//! A kind and a key name a note; what they mean is the caller's affair. Notes have a key space of their own,
//! and the filters know them: a look for one that is not there touches no file, as a rule.

use crate::error::{FrontierError, Result};
use crate::frontier::Frontier;
use crate::key;
use crate::store::Key;

/// A kind of note, numbered by the caller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NoteKind(pub u8);

impl NoteKind {
    /// The longest key of a note, in bytes.
    pub const KEY_BYTES: usize = key::NOTE_BYTES;
    /// The longest value, in bytes.
    pub const VALUE_BYTES: usize = 1 << 20;
}

impl Frontier {
    /// Remembers `value` under `key`, instead of what was there.
    ///
    /// # Errors
    /// When the key or the value is too long (a key is never shortened or hashed), or the machine refuses.
    pub fn note(&mut self, kind: NoteKind, key: &[u8], value: &[u8]) -> Result<()> {
        let key = note_key(kind, key)?;
        check("value of a note", value.len(), NoteKind::VALUE_BYTES)?;
        self.store.put(key, value)
    }

    /// What is remembered under `key`, with the changes since the last commit.
    ///
    /// # Errors
    /// When the key is too long, a file is damaged or the machine refuses.
    pub fn noted(&mut self, kind: NoteKind, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.store.get(&note_key(kind, key)?)
    }

    /// Shows the notes of a kind to `each`, key and value, in the order of their keys, until it returns false. The
    /// changes since the last commit are among them.
    ///
    /// # Errors
    /// When a file is damaged or the machine refuses.
    pub fn notes(&self, kind: NoteKind, mut each: impl FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.store.scan(key::notes(kind.0), |key, value| {
            each(key::of_note(key), value)
        })
    }
}

fn note_key(kind: NoteKind, key: &[u8]) -> Result<Key> {
    check("key of a note", key.len(), NoteKind::KEY_BYTES)?;
    Ok(key::note(kind.0, key))
}

fn check(what: &'static str, bytes: usize, limit: usize) -> Result<()> {
    if bytes > limit {
        return Err(FrontierError::TooLong { what, bytes, limit });
    }
    Ok(())
}
