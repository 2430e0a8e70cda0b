//! What the frontier keeps for the crawl beside URLs, and by which keys.

use ecluse_frontier::NoteKind;
use sha2::{Digest, Sha256};

/// The first capture of a payload, by its digest.
pub(crate) const PAYLOAD: NoteKind = NoteKind(b'd');
/// The last capture of a URL, by the hash of its canonical form.
pub(crate) const CAPTURE: NoteKind = NoteKind(b'c');
/// Counts for a host, by the hash of its name.
pub(crate) const HOST: NoteKind = NoteKind(b'h');
/// What became of a seed, by its number.
pub(crate) const SEED: NoteKind = NoteKind(b's');
/// Which seed a URL is, by the hash of its canonical form.
pub(crate) const SEED_NUMBER: NoteKind = NoteKind(b'n');
/// A URL that counts as a seed since one redirected to it, by the hash of its canonical form.
pub(crate) const SEED_TARGET: NoteKind = NoteKind(b't');
/// robots.txt of an authority, by the hash of its name.
pub(crate) const ROBOTS: NoteKind = NoteKind(b'r');
/// Until when the stored answer of the DNS for a name holds, by the hash of the name.
pub(crate) const DNS: NoteKind = NoteKind(b'a');
/// A file that was closed, by its number.
pub(crate) const FILE: NoteKind = NoteKind(b'f');

/// The key of something that is known by its name.
pub(crate) fn key_of(name: &[u8]) -> [u8; 16] {
    let digest = Sha256::digest(name);
    let mut key = [0; 16];
    key.copy_from_slice(&digest[..16]);
    key
}
