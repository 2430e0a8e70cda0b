//! What was seen of a name while it was read: a set of small facts, written as words.

use std::fmt;

/// A set of facts about a name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NameFlags(u16);

/// The words, in the order of their bits, which is the order in which they are written.
const WORDS: [&str; 13] = [
    "www",
    "path",
    "port",
    "user",
    "latin1",
    "idn",
    "mixed",
    "deviation",
    "underscore",
    "hyphens",
    "suffix",
    "unlisted",
    "context",
];

impl NameFlags {
    /// Nothing was seen.
    pub const NONE: Self = Self(0);
    /// The first label is `www`.
    pub const WWW: Self = Self(1);
    /// A path, a query or a fragment was cut off.
    pub const PATH: Self = Self(1 << 1);
    /// A port other than 80 and 443 was cut off.
    pub const PORT: Self = Self(1 << 2);
    /// A user name was cut off.
    pub const USER: Self = Self(1 << 3);
    /// The line was no UTF-8.
    pub const LATIN1: Self = Self(1 << 4);
    /// A label is international.
    pub const IDN: Self = Self(1 << 5);
    /// A label has Latin letters beside Cyrillic or Greek ones.
    pub const MIXED: Self = Self(1 << 6);
    /// A label has a character that UTS 46 once mapped and no longer does.
    pub const DEVIATION: Self = Self(1 << 7);
    /// A label has an underscore.
    pub const UNDERSCORE: Self = Self(1 << 8);
    /// Hyphens stand where no registry has them.
    pub const HYPHENS: Self = Self(1 << 9);
    /// The name is a public suffix.
    pub const SUFFIX: Self = Self(1 << 10);
    /// The last label is not in the Public Suffix List.
    pub const UNLISTED: Self = Self(1 << 11);
    /// A label breaks the rule for text from right to left, or has a joiner that its script does not need.
    pub const CONTEXT: Self = Self(1 << 12);

    /// Returns the facts of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns these facts when `is_so`, and none otherwise.
    #[must_use]
    pub const fn when(self, is_so: bool) -> Self {
        if is_so { self } else { Self::NONE }
    }

    /// Tells whether all of these facts are there.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the set as a number, for files that nobody else reads.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Returns the set of a number; bits without a meaning are dropped.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits & ((1 << WORDS.len()) - 1))
    }

    /// Reads what [`NameFlags`] displays.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "-" {
            return Some(Self::NONE);
        }
        let mut flags = Self::NONE;
        for word in text.split(',') {
            let bit = WORDS.iter().position(|known| *known == word)?;
            flags = flags.with(Self(1 << bit));
        }
        (flags.to_string() == text).then_some(flags)
    }
}

impl fmt::Display for NameFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NONE {
            return f.write_str("-");
        }
        let mut separator = "";
        for (bit, word) in WORDS.iter().enumerate() {
            if self.has(Self(1 << bit)) {
                f.write_str(separator)?;
                f.write_str(word)?;
                separator = ",";
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_is_written_and_read() {
        for bits in 0..1 << WORDS.len() {
            let flags = NameFlags::from_bits(bits);
            assert_eq!(flags.bits(), bits);
            assert_eq!(NameFlags::parse(&flags.to_string()), Some(flags));
        }
        assert_eq!(NameFlags::from_bits(0xffff).bits(), 0x1fff);
        for bad in ["", "www,", "path,www", "www,www", "WWW", "-,www"] {
            assert_eq!(NameFlags::parse(bad), None, "{bad}");
        }
    }
}
