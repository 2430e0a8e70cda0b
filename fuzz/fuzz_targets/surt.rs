//! Any URL has a printable key or none, and the range of an exact match begins with it.

#![no_main]

use ecluse_surt::{Match, key_range, surt};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|url: &[u8]| {
    let mut key = b"before ".to_vec();
    let outcome = surt(url, &mut key);
    let key = key.strip_prefix(b"before ").expect("a key is appended");
    assert_eq!(outcome.is_err(), key.is_empty());
    if !url.starts_with(b"filedesc") {
        assert!(key.iter().all(u8::is_ascii_graphic));
    }
    for kind in [Match::Exact, Match::Prefix, Match::Host, Match::Domain] {
        if let Ok(range) = key_range(url, kind) {
            assert!(range.start < range.end);
            assert!(kind != Match::Exact || range.start == key);
        }
    }
});
