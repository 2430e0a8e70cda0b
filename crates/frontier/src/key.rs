//! The keys under which the frontier keeps things, and the hashes in them.
//!
//! A URL is known by 128 bits of the SHA-256 of its canonical form. Of a thousand million URLs two would
//! share them with a chance of 10^18 / 2^129, about 1 in 10^21; and nobody can make two that do, since
//! the hash is a cryptographic one. So nothing is compared but the hash, and no URL is lost.

use std::ops::Range;

use sha2::{Digest, Sha256};
use twox_hash::XxHash3_128;

use crate::store::{Key, Space};

/// The hash of a canonical form; the first four bytes keep the URLs of a site together on disk.
pub(crate) type UrlHash = [u8; 20];
/// The hash of a queue's or a group's name.
pub(crate) type Id = [u8; 16];
/// Where an item is in its queue: precedence, number.
pub(crate) type Position = (u8, u64);

/// How much of a queue's identifier stands beside a URL's hash.
pub(crate) const SHORT_ID_BYTES: usize = 8;
/// The longest key that the caller may give a note.
pub(crate) const NOTE_BYTES: usize = 24;

/// The hash of a canonical form.
pub(crate) fn url_hash(canonical: &[u8]) -> UrlHash {
    let site = XxHash3_128::oneshot(site(canonical)) as u32;
    let digest = Sha256::digest(canonical);
    let mut hash = [0; 20];
    hash[..4].copy_from_slice(&site.to_be_bytes());
    hash[4..].copy_from_slice(&digest[..16]);
    hash
}

/// The part that the canonical forms of one site begin with: up to the `)` of a SURT, or the slash behind
/// an authority. It only says where on disk a URL is looked for, so a poor guess costs speed, no more.
fn site(canonical: &[u8]) -> &[u8] {
    let mut slashes = 0;
    let end = canonical.iter().position(|byte| {
        slashes += usize::from(*byte == b'/');
        *byte == b')' || slashes == 3
    });
    &canonical[..end.unwrap_or(canonical.len().min(32))]
}

/// The identifier of a queue or a group.
pub(crate) fn id(name: &str) -> Id {
    let digest = Sha256::digest(name.as_bytes());
    let mut id = [0; 16];
    id.copy_from_slice(&digest[..16]);
    id
}

pub(crate) fn seen(hash: &UrlHash) -> Key {
    Key::new(&[&[Space::Seen as u8], hash])
}

pub(crate) fn queue(id: &[u8]) -> Key {
    Key::new(&[&[Space::Queue as u8], id])
}

pub(crate) fn group(id: &Id) -> Key {
    Key::new(&[&[Space::Group as u8], id])
}

pub(crate) fn item(queue: &Id, position: Position) -> Key {
    owned(Space::Item, queue, position)
}

pub(crate) fn parked(group: &Id, position: Position) -> Key {
    owned(Space::Parked, group, position)
}

pub(crate) fn note(kind: u8, key: &[u8]) -> Key {
    Key::new(&[&[Space::Note as u8, kind], key])
}

/// Every note of a kind.
pub(crate) fn notes(kind: u8) -> Range<Key> {
    note(kind, &[])..note(kind, &[0xff; NOTE_BYTES + 1])
}

/// The caller's part of a note's key.
pub(crate) fn of_note(key: &Key) -> &[u8] {
    key.as_slice().get(2..).unwrap_or_default()
}

fn owned(space: Space, owner: &Id, position: Position) -> Key {
    let (first, number) = position;
    Key::new(&[&[space as u8], owner, &[first], &number.to_be_bytes()])
}

/// A queue's place in the rotation: which list, and its turn.
pub(crate) fn rotation(position: Position) -> Key {
    let (list, turn) = position;
    Key::new(&[&[Space::Rotation as u8, list], &turn.to_be_bytes()])
}

/// When something sleeps until, and its number.
pub(crate) fn sleeping(due: u64, number: u64) -> Key {
    Key::new(&[
        &[Space::Sleeping as u8],
        &due.to_be_bytes(),
        &number.to_be_bytes(),
    ])
}

/// The time until which a sleeper sleeps.
pub(crate) fn due(key: &Key) -> Option<u64> {
    let bytes = key.as_slice().get(1..9)?;
    Some(u64::from_be_bytes(bytes.try_into().ok()?))
}

/// The position at the end of an item's, a parked queue's or a rotating queue's key.
pub(crate) fn position(key: &Key) -> Option<Position> {
    let (_, position) = key.as_slice().split_last_chunk::<9>()?;
    let (first, number) = position.split_first()?;
    Some((*first, u64::from_be_bytes(number.try_into().ok()?)))
}

/// The items of a queue from a position on.
pub(crate) fn items_from(queue: &Id, from: Position) -> Range<Key> {
    item(queue, from)..item(queue, (u8::MAX, u64::MAX))
}

/// The parked queues of a group from a position on.
pub(crate) fn parked_from(group: &Id, from: Position) -> Range<Key> {
    parked(group, from)..parked(group, (u8::MAX, u64::MAX))
}

/// The rotation from a position on.
pub(crate) fn rotation_from(from: Position) -> Range<Key> {
    rotation(from)..rotation((u8::MAX, u64::MAX))
}

/// What sleeps until `now` at the latest.
pub(crate) fn sleeping_until(now: u64) -> Range<Key> {
    sleeping(0, 0)..sleeping(now.saturating_add(1), 0)
}

/// Everything in a space whose keys go on with `begin`.
pub(crate) fn all(space: Space, begin: &[u8]) -> Range<Key> {
    let start = Key::new(&[&[space as u8], begin]);
    start..Key::new(&[&[space as u8], begin, &[0xff; 24]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_keeps_together_and_hashes_differ() {
        let one = url_hash(b"(org,example,)/a");
        let other = url_hash(b"(org,example,)/b");
        assert_eq!(one[..4], other[..4]);
        assert_ne!(one, other);
        assert_eq!(
            url_hash(b"http://example.org/a")[..4],
            url_hash(b"http://example.org/b?c")[..4]
        );
        assert_ne!(url_hash(b"http://example.org/a")[..4], one[..4]);
    }

    #[test]
    fn positions_are_read_back_in_order() {
        let id = id("example.org");
        let positions = [(0, 7), (0, 8), (1, 2), (255, u64::MAX - 1)];
        let keys = positions.map(|position| item(&id, position));
        assert!(keys.is_sorted());
        for (key, expected) in keys.iter().zip(positions) {
            assert_eq!(position(key), Some(expected));
            assert!(items_from(&id, (0, 0)).contains(key));
        }
        assert_eq!(position(&rotation((3, 9))), Some((3, 9)));
        assert_eq!(due(&sleeping(77, 1)), Some(77));
    }
}
