//! Digests of blocks and payloads, written `sha1:` and base 32, as every replay tool expects.

use std::fmt;

use sha1::Digest;

const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// A SHA-1 digest, shown as `sha1:` and 32 base-32 characters.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sha1Digest([u8; 20]);

impl Sha1Digest {
    /// Returns the digest of some bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let mut digester = Digester::default();
        digester.update(bytes);
        digester.finish()
    }

    /// A digest that was taken before.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 20]) -> Self {
        Self(bytes)
    }

    /// Returns the 20 bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 20] {
        &self.0
    }

    /// Returns the 32 base-32 characters, without the algorithm's name.
    #[must_use]
    pub fn base32(&self) -> [u8; 32] {
        let mut out = [0; 32];
        for (group, place) in self.0.chunks_exact(5).zip(out.chunks_exact_mut(8)) {
            let bits = group
                .iter()
                .fold(0u64, |bits, &byte| bits << 8 | u64::from(byte));
            for (index, slot) in place.iter_mut().enumerate() {
                *slot = ALPHABET[(bits >> (35 - 5 * index) & 31) as usize];
            }
        }
        out
    }
}

impl fmt::Display for Sha1Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("sha1:")?;
        out.write_str(std::str::from_utf8(&self.base32()).expect("base 32 is ASCII"))
    }
}

impl fmt::Debug for Sha1Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// Takes a digest piece by piece.
#[derive(Debug, Default, Clone)]
pub struct Digester(sha1::Sha1);

impl Digester {
    /// Takes in the next piece.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the digest of all pieces.
    #[must_use]
    pub fn finish(self) -> Sha1Digest {
        Sha1Digest(self.0.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_digests() {
        assert_eq!(
            Sha1Digest::of(b"").to_string(),
            "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ"
        );
        assert_eq!(
            Sha1Digest::of(b"abc").to_string(),
            "sha1:VGMT4NSHA2AWVOR6EVYXQUGCNSONBWE5"
        );
    }

    #[test]
    fn pieces_make_the_whole() {
        let mut digester = Digester::default();
        digester.update(b"a");
        digester.update(b"bc");
        assert_eq!(digester.finish(), Sha1Digest::of(b"abc"));
    }
}
