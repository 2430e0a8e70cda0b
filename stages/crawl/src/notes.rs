//! What the frontier keeps for the crawl beside URLs, and by which keys.

use ecluse_frontier::NoteKind;
use ecluse_scope::{Reach, Seed};
use sha2::{Digest, Sha256};
use url::Url;

/// The first capture of a payload, by its SHA-1. (`d` was the same without a SHA-256, which says too little.)
pub(crate) const PAYLOAD: NoteKind = NoteKind(b'p');
/// The last capture of a URL, by the hash of its canonical form.
pub(crate) const CAPTURE: NoteKind = NoteKind(b'c');
/// Counts for a host, by the hash of its name.
pub(crate) const HOST: NoteKind = NoteKind(b'h');
/// What became of a seed, by its number.
pub(crate) const SEED: NoteKind = NoteKind(b's');
/// Which seed a URL is, by the hash of its canonical form.
pub(crate) const SEED_NUMBER: NoteKind = NoteKind(b'n');
/// A URL that counts as a seed since one redirected to it, by its hash.
pub(crate) const SEED_TARGET: NoteKind = NoteKind(b't');
/// robots.txt of an authority, by the hash of its name.
pub(crate) const ROBOTS: NoteKind = NoteKind(b'r');
/// Until when the stored answer of the DNS for a name holds, by the hash of the name.
pub(crate) const DNS: NoteKind = NoteKind(b'a');
/// The character set that a page says a URL has, by the hash of the URL.
pub(crate) const CHARSET: NoteKind = NoteKind(b'e');
/// The cookies of a registered domain, by the hash of its name.
pub(crate) const COOKIES: NoteKind = NoteKind(b'k');
/// The cash of a page, by the hash of its canonical form.
pub(crate) const CASH: NoteKind = NoteKind(b'o');
/// The cash of a queue, by the hash of its name.
pub(crate) const QUEUE_CASH: NoteKind = NoteKind(b'q');
/// A file that was closed, by its number.
pub(crate) const FILE: NoteKind = NoteKind(b'f');

/// The key of something that is known by its name.
pub(crate) fn key_of(name: &[u8]) -> [u8; 16] {
    let digest = Sha256::digest(name);
    let mut key = [0; 16];
    key.copy_from_slice(&digest[..16]);
    key
}

/// The number of a seed, and how far it reaches if the order says so for it.
pub(crate) fn encode_number(number: u64, reach: Option<Reach>) -> Vec<u8> {
    let mut value = number.to_be_bytes().to_vec();
    value.extend(reach.iter().flat_map(|reach| reach.name().bytes()));
    value
}

/// Reads such a number, which is the key of another note.
pub(crate) fn decode_number(value: &[u8]) -> Option<(&[u8], Option<Reach>)> {
    let (number, reach) = value.split_at_checked(8)?;
    Some((number, str::from_utf8(reach).ok().and_then(reach_named)))
}

/// How far such a URL reaches, if the order says so for its seed, and the URL: `page https://lock.example/`.
pub(crate) fn encode_target(seed: &Seed) -> Vec<u8> {
    match seed.reach {
        Some(reach) => format!("{} {}", reach.name(), seed.url).into_bytes(),
        None => seed.url.as_str().as_bytes().to_vec(),
    }
}

/// Reads such a URL.
pub(crate) fn decode_target(value: &[u8]) -> Option<Seed> {
    let text = str::from_utf8(value).ok()?;
    let (reach, url) = match text.split_once(' ') {
        Some((word, url)) => (Some(reach_named(word)?), url),
        None => (None, text),
    };
    Some(Seed {
        url: Url::parse(url).ok()?,
        tag: String::new(),
        reach,
    })
}

fn reach_named(word: &str) -> Option<Reach> {
    let all = [Reach::Domain, Reach::Host, Reach::Path, Reach::Page];
    all.into_iter().find(|reach| reach.name() == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_seeds_are_read_back() {
        let number = 7_u64.to_be_bytes();
        for reach in [None, Some(Reach::Domain), Some(Reach::Page)] {
            let value = encode_number(7, reach);
            assert_eq!(decode_number(&value), Some((&number[..], reach)));
        }
        assert_eq!(decode_number(b"short"), None);
    }

    #[test]
    fn where_a_seed_leads_reaches_as_far_as_the_seed() {
        for reach in [None, Some(Reach::Domain), Some(Reach::Page)] {
            let seed = Seed {
                url: Url::parse("https://lock.example/a%20b?c d").unwrap(),
                tag: String::new(),
                reach,
            };
            let found = decode_target(&encode_target(&seed)).unwrap();
            assert_eq!((found.url, found.reach), (seed.url, reach));
        }
        assert!(decode_target(b"somewhere https://lock.example/").is_none());
        assert!(decode_target(b"\xff").is_none());
    }
}
