//! The ranges of keys that answer a lookup, as pywb and the wayback CDX server cut them.
//!
//! A range holds for whole index lines as well as for bare keys: a line goes on with a space, which sorts before
//! anything a key may hold.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use thiserror::Error;

use crate::{SurtError, surt};

/// How much around a URL a lookup asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Match {
    /// The URL alone.
    Exact,
    /// Everything whose key begins with the key of the URL.
    Prefix,
    /// Everything on the host of the URL.
    Host,
    /// Everything on the host of the URL and on the hosts below it.
    Domain,
}

impl Match {
    /// All of them, in the order of their reach.
    pub const ALL: [Match; 4] = [Match::Exact, Match::Prefix, Match::Host, Match::Domain];

    /// Reads the wildcards people type: `*.example.org` for a domain, `example.org/a*` for a prefix.
    pub fn of_pattern(pattern: &[u8]) -> (Match, &[u8]) {
        if let Some(url) = pattern.strip_prefix(b"*.") {
            (Match::Domain, url)
        } else if let Some(url) = pattern.strip_suffix(b"*") {
            (Match::Prefix, url)
        } else {
            (Match::Exact, pattern)
        }
    }

    /// Returns the name that `matchType` has in a CDX query.
    pub fn name(self) -> &'static str {
        match self {
            Match::Exact => "exact",
            Match::Prefix => "prefix",
            Match::Host => "host",
            Match::Domain => "domain",
        }
    }
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Match {
    type Err = UnknownMatch;

    fn from_str(name: &str) -> Result<Self, UnknownMatch> {
        let found = Match::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| UnknownMatch {
            name: name.to_owned(),
        })
    }
}

/// A name that is none of the four.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("unknown match {name:?}, expected exact, prefix, host or domain")]
#[non_exhaustive]
pub struct UnknownMatch {
    /// The name as given.
    pub name: String,
}

/// Why a URL has no range.
#[derive(Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RangeError {
    /// The URL has no key.
    #[error(transparent)]
    Surt(#[from] SurtError),
    /// The key has no host, so that neither host nor domain can be looked up.
    #[error("key {key:?} has no host to match by {kind}")]
    NoHost {
        /// The key of the URL.
        key: String,
        /// What was asked for.
        kind: Match,
    },
}

/// Returns the range of keys, or of index lines, that match `url`: from the start, up to but not including the end.
///
/// As in pywb, host and domain leave out ports other than the default, and the domain of a name without a dot
/// begins below it: that of `com` holds `com,example)/` but not `com)/`.
pub fn key_range(url: &[u8], kind: Match) -> Result<Range<Vec<u8>>, RangeError> {
    let mut key = Vec::with_capacity(url.len() + 2);
    surt(url, &mut key)?;
    match kind {
        Match::Exact => Ok(key.clone()..with(key, b"!")),
        Match::Prefix => Ok(prefix_range(url, key)),
        Match::Host => {
            let host = host_of(&key, kind)?;
            Ok(with(host.clone(), b")/")..with(host, b"*"))
        }
        Match::Domain => {
            let host = host_of(&key, kind)?;
            let first: &[u8] = if host.contains(&b',') { b")/" } else { b"," };
            Ok(with(host.clone(), first)..with(host, b"-"))
        }
    }
}

/// The key loses a trailing slash or question mark; in a prefix it says something, and is put back.
fn prefix_range(url: &[u8], key: Vec<u8>) -> Range<Vec<u8>> {
    let mut start = key;
    for delimiter in [b"/", b"?"] {
        if url.ends_with(delimiter) && !start.ends_with(delimiter) {
            start = with(start, delimiter);
        }
    }
    let mut end = start.clone();
    // Only the key of a `filedesc` can end in 0xff; nothing that begins with it sorts after its successor.
    while end.last() == Some(&u8::MAX) {
        end.pop();
    }
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    start..end
}

fn host_of(key: &[u8], kind: Match) -> Result<Vec<u8>, RangeError> {
    match key.windows(2).position(|pair| pair == b")/") {
        Some(end) => Ok(key[..end].to_vec()),
        None => Err(RangeError::NoHost {
            key: String::from_utf8_lossy(key).into_owned(),
            kind,
        }),
    }
}

fn with(mut key: Vec<u8>, suffix: &[u8]) -> Vec<u8> {
    key.extend_from_slice(suffix);
    key
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(url: &str, kind: Match) -> (String, String) {
        let range = key_range(url.as_bytes(), kind).unwrap();
        (
            String::from_utf8(range.start).unwrap(),
            String::from_utf8(range.end).unwrap(),
        )
    }

    #[test]
    fn cuts_where_pywb_cuts() {
        let cases = [
            (
                "http://écluse.example/a/b",
                Match::Exact,
                "example,xn--cluse-9ra)/a/b",
                "example,xn--cluse-9ra)/a/b!",
            ),
            (
                "http://www.lock.example/a/b",
                Match::Prefix,
                "example,lock)/a/b",
                "example,lock)/a/c",
            ),
            (
                "http://lock.example/a/",
                Match::Prefix,
                "example,lock)/a/",
                "example,lock)/a0",
            ),
            (
                "http://lock.example/a?",
                Match::Prefix,
                "example,lock)/a?",
                "example,lock)/a@",
            ),
            (
                "http://lock.example/a/?",
                Match::Prefix,
                "example,lock)/a?",
                "example,lock)/a@",
            ),
            (
                "lock.example/a",
                Match::Host,
                "example,lock)/",
                "example,lock*",
            ),
            (
                "lock.example/a",
                Match::Domain,
                "example,lock)/",
                "example,lock-",
            ),
            ("example", Match::Domain, "example,", "example-"),
            (
                "lock.example:8080",
                Match::Prefix,
                "lock.example:8080",
                "lock.example:8081",
            ),
            (
                "http://lock.example:8080/",
                Match::Host,
                "example,lock:8080)/",
                "example,lock:8080*",
            ),
        ];
        for (url, kind, start, end) in cases {
            assert_eq!(
                range(url, kind),
                (start.to_owned(), end.to_owned()),
                "{url} {kind}"
            );
        }
    }

    #[test]
    fn a_prefix_may_end_in_any_byte() {
        let range = key_range(b"filedesc:a\xfe\xff\xff", Match::Prefix).unwrap();
        assert_eq!(
            range,
            b"filedesc:a\xfe\xff\xff".to_vec()..b"filedesc:a\xff".to_vec()
        );
    }

    #[test]
    fn holds_the_lines_it_should_and_no_others() {
        let line = |key: &str| format!("{key} 20240101000000 {{}}").into_bytes();
        let holds = |kind, key| {
            key_range(b"lock.example/a", kind)
                .unwrap()
                .contains(&line(key))
        };
        let keys = [
            ("example,lock)/a", [true, true, true, true]),
            ("example,lock)/a/b", [false, true, true, true]),
            ("example,lock)/a?b", [false, true, true, true]),
            ("example,lock)/b", [false, false, true, true]),
            ("example,lock,upper)/a", [false, false, false, true]),
            ("example,lock-keeper)/a", [false, false, false, false]),
            ("example,locks)/a", [false, false, false, false]),
            ("example)/a", [false, false, false, false]),
        ];
        for (key, expected) in keys {
            assert_eq!(Match::ALL.map(|kind| holds(kind, key)), expected, "{key}");
        }
    }

    #[test]
    fn keys_without_a_host_have_no_host_range() {
        for url in ["urn:a", "dns:lock.example", "-"] {
            assert!(key_range(url.as_bytes(), Match::Exact).is_ok());
        }
        let error = key_range(b"dns:lock.example", Match::Host).unwrap_err();
        assert_eq!(
            error.to_string(),
            "key \"dns:lock.example\" has no host to match by host"
        );
        assert_eq!(
            key_range(b" ", Match::Exact),
            Err(RangeError::Surt(SurtError::Blank))
        );
    }

    #[test]
    fn reads_wildcards_and_names() {
        assert_eq!(
            Match::of_pattern(b"*.lock.example"),
            (Match::Domain, &b"lock.example"[..])
        );
        assert_eq!(
            Match::of_pattern(b"lock.example/a*"),
            (Match::Prefix, &b"lock.example/a"[..])
        );
        assert_eq!(
            Match::of_pattern(b"lock.example"),
            (Match::Exact, &b"lock.example"[..])
        );
        for kind in Match::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        assert!("subtree".parse::<Match>().is_err());
    }

    proptest! {
        #[test]
        fn every_range_that_is_has_its_own_key(url in any::<Vec<u8>>()) {
            for kind in [Match::Exact, Match::Prefix] {
                if let Ok(range) = key_range(&url, kind) {
                    prop_assert!(range.start < range.end);
                }
            }
            if let Ok(range) = key_range(&url, Match::Exact) {
                let mut key = Vec::new();
                prop_assert!(surt(&url, &mut key).is_ok());
                prop_assert!(range.contains(&key));
            }
        }
    }
}
