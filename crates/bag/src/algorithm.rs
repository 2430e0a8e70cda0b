//! The digests a manifest may be of, by the names of RFC 8493 section 2.4.

use std::fmt::Write;

use md5::Md5;
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256, SHA384, SHA512};
use sha2::{Digest, Sha224};

/// A digest algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DigestAlgorithm {
    /// MD5, in older bags.
    Md5,
    /// SHA-1, in older bags.
    Sha1,
    /// SHA-224.
    Sha224,
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512, the one that RFC 8493 asks for.
    Sha512,
}

impl DigestAlgorithm {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Md5,
        Self::Sha1,
        Self::Sha224,
        Self::Sha256,
        Self::Sha384,
        Self::Sha512,
    ];

    /// Returns its name in the name of a manifest.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Md5 => "md5",
            Self::Sha1 => "sha1",
            Self::Sha224 => "sha224",
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
        }
    }

    /// Finds the algorithm of a name, in whatever case and with or without hyphens.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase().replace('-', "");
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.name() == name)
    }

    /// Begins a digest.
    #[must_use]
    pub fn hasher(self) -> Hasher {
        Hasher::new(self)
    }

    /// Returns the digest of some bytes, in lower-case hex.
    #[must_use]
    pub fn digest(self, bytes: &[u8]) -> String {
        let mut hasher = Hasher::new(self);
        hasher.update(bytes);
        hasher.finish()
    }

    /// Returns how many hexadecimal digits its digests have.
    #[must_use]
    pub fn digits(self) -> usize {
        match self {
            Self::Md5 => 32,
            Self::Sha1 => 40,
            Self::Sha224 => 56,
            Self::Sha256 => 64,
            Self::Sha384 => 96,
            Self::Sha512 => 128,
        }
    }
}

/// A digest under way.
pub struct Hasher(Hashing);

enum Hashing {
    Md5(Md5),
    Sha224(Sha224),
    // Ring's are the fastest of their kind on every processor that was tried.
    Ring(Context),
}

impl Hasher {
    pub(crate) fn new(algorithm: DigestAlgorithm) -> Self {
        Self(Hashing::new(algorithm))
    }

    /// Takes some bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the digest in lower-case hex.
    #[must_use]
    pub fn finish(self) -> String {
        self.0.finish()
    }
}

impl Hashing {
    fn new(algorithm: DigestAlgorithm) -> Self {
        match algorithm {
            DigestAlgorithm::Md5 => Self::Md5(Md5::new()),
            DigestAlgorithm::Sha224 => Self::Sha224(Sha224::new()),
            DigestAlgorithm::Sha1 => Self::Ring(Context::new(&SHA1_FOR_LEGACY_USE_ONLY)),
            DigestAlgorithm::Sha256 => Self::Ring(Context::new(&SHA256)),
            DigestAlgorithm::Sha384 => Self::Ring(Context::new(&SHA384)),
            DigestAlgorithm::Sha512 => Self::Ring(Context::new(&SHA512)),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Md5(hash) => hash.update(bytes),
            Self::Sha224(hash) => hash.update(bytes),
            Self::Ring(hash) => hash.update(bytes),
        }
    }

    fn finish(self) -> String {
        match self {
            Self::Md5(hash) => hex(&hash.finalize()),
            Self::Sha224(hash) => hex(&hash.finalize()),
            Self::Ring(hash) => hex(hash.finish().as_ref()),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a String takes everything");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_digest_of_nothing_is_known() {
        for (name, begins) in [
            ("md5", "d41d8cd98f00b204"),
            ("SHA-1", "da39a3ee5e6b4b0d"),
            ("sha224", "d14a028c2a3a2bc9"),
            ("SHA256", "e3b0c44298fc1c14"),
            ("sha384", "38b060a751ac9638"),
            ("sha-512", "cf83e1357eefb8bd"),
        ] {
            let algorithm = DigestAlgorithm::named(name).unwrap();
            let digest = Hasher::new(algorithm).finish();
            assert!(digest.starts_with(begins), "{name}: {digest}");
            assert_eq!(digest.len(), algorithm.digits());
        }
        assert_eq!(DigestAlgorithm::named("crc32"), None);
    }
}
