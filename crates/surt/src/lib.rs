//! SURT keys: URLs turned round so that sorting brings a site together.
//!
//! `http://www.example.org/a?b` becomes `org,example)/a?b`. The keys are those of the Python package `surt` 0.3.1 with its
//! default options, byte for byte, because every CDX index there is was sorted by them. What they are made of, and
//! where they differ, is told in `docs/formats/surt.md`.
//!
//! URLs are bytes. Decoding the header they came from is a separate step, [`header_text`]; the lines of an index and
//! their order are left to others.

mod escape;
mod exact;
mod fast;
mod host;
mod idna;
mod path;
mod query;
mod split;

use std::borrow::Cow;
use std::fmt;

use thiserror::Error;

/// Appends the key of `url` to `key`; on an error nothing is appended.
///
/// An ordinary URL needs no memory but `key`, unless its query has more than 32 arguments.
///
/// ```
/// let mut key = Vec::new();
/// ecluse_surt::surt(b"https://www.example.org/B/?y=2&x=1#top", &mut key)?;
/// assert_eq!(key, b"org,example)/b?x=1&y=2");
/// # Ok::<(), ecluse_surt::SurtError>(())
/// ```
pub fn surt(url: &[u8], key: &mut Vec<u8>) -> Result<(), SurtError> {
    if fast::append(url, key) {
        Ok(())
    } else {
        exact::append(url, key)
    }
}

/// Appends the key of `url`, or the URL itself when it has none, as cdxj-indexer does.
///
/// Such a URL may hold spaces and, unlike a key, any byte but those its header could not hold.
pub fn surt_or_url(url: &[u8], key: &mut Vec<u8>) {
    if surt(url, key).is_err() {
        key.extend_from_slice(url);
    }
}

/// Returns the bytes of a header value as warcio reads them: UTF-8 if it is that, otherwise Latin-1 turned into UTF-8.
///
/// Keys are made from the result. warcio decides line by line, so a folded header is to be decoded before it is joined.
pub fn header_text(value: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(value) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(value.iter().map(|&byte| char::from(byte)).collect()),
    }
}

/// Why a URL has no key. Python raises an exception for these.
#[derive(Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SurtError {
    /// There is nothing but white space. (The empty URL has a key: `-`.)
    #[error("URL is blank")]
    Blank,
    /// What stands after the colon is no port.
    #[error("port {port:?} of URL is not a number up to 65535")]
    BadPort {
        /// What stands there.
        port: String,
    },
    /// The host is a number that Python refuses to convert.
    #[error("host of URL is a number of {digits} digits, more than 4300")]
    HostNumberTooLong {
        /// How long the number is.
        digits: usize,
    },
}

/// The key of one URL, to keep and compare.
///
/// It is ordered by bytes, as indexes are. Loops that make many keys use [`surt`] and one buffer instead.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Surt(Vec<u8>);

impl Surt {
    /// Makes the key of `url`.
    pub fn of(url: &[u8]) -> Result<Self, SurtError> {
        let mut key = Vec::with_capacity(url.len() + 2);
        surt(url, &mut key)?;
        Ok(Surt(key))
    }

    /// Returns the key as it stands in an index.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the key and keeps nothing.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl AsRef<[u8]> for Surt {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Surt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // All keys are ASCII but those of `filedesc` URLs, which are kept as they came.
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn appends_to_what_is_there() {
        let mut line = b"before ".to_vec();
        surt(b"http://example.org/b", &mut line).unwrap();
        assert_eq!(line, b"before org,example)/b");
        assert_eq!(
            surt(b"http://example.org:x/", &mut line),
            Err(SurtError::BadPort {
                port: "x".to_owned()
            })
        );
        assert_eq!(line, b"before org,example)/b");
    }

    #[test]
    fn a_url_without_a_key_is_its_own() {
        let mut key = Vec::new();
        surt_or_url(b"http://example.org:x/ y", &mut key);
        assert_eq!(key, b"http://example.org:x/ y");
    }

    #[test]
    fn header_text_is_utf8_or_latin1() {
        assert_eq!(header_text("http://é/".as_bytes()), "http://é/");
        assert_eq!(header_text(b"http://\xe9/"), "http://é/");
        let key = |value: &[u8]| Surt::of(header_text(value).as_bytes()).unwrap().to_string();
        assert_eq!(key(b"http://a/\xe9"), "a)/%c3%a9");
        assert_eq!(key("http://a/é".as_bytes()), "a)/%c3%a9");
    }

    #[test]
    fn keys_compare_by_bytes() {
        let of = |url: &str| Surt::of(url.as_bytes()).unwrap();
        assert!(of("http://b.a/") < of("http://b.a/x"));
        assert!(of("http://b.a/x") < of("http://c.b.a/"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        /// No input panics; keys are printable ASCII; and what is written is the same with and without the fast path.
        #[test]
        fn any_bytes_have_a_printable_key_or_an_error(url in any::<Vec<u8>>()) {
            check(&url)?;
        }

        #[test]
        fn any_text_like_a_url_does_too(url in "(http|https|dns|ftp)?:?/{0,3}[\\PC%@:./?#&=\\[\\]]{0,40}") {
            check(url.as_bytes())?;
        }
    }

    fn check(url: &[u8]) -> Result<(), TestCaseError> {
        let (mut key, mut exact) = (Vec::new(), Vec::new());
        let outcome = surt(url, &mut key);
        prop_assert_eq!(&outcome, &exact::append(url, &mut exact));
        prop_assert_eq!(&key, &exact);
        prop_assert_eq!(outcome.is_err(), key.is_empty());
        if !url.starts_with(b"filedesc") {
            prop_assert!(key.iter().all(u8::is_ascii_graphic));
        }
        Ok(())
    }
}
