//! Damage: what was wrong with a file, where, and on what evidence.
//!
//! Damage never ends the reading. It is kept with the reader, up to a limit; past it, it is counted.

use std::fmt;

/// One thing wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("record {record} at offset {offset}: {reason}")]
#[non_exhaustive]
pub struct RecordDamage {
    /// The number of the record at fault, counted from 1; for damage between records, of the record that comes next.
    pub record: u64,
    /// Where in the file: the offset of the member or, in an uncompressed file, of the byte.
    pub offset: u64,
    /// What is wrong.
    pub reason: DamageReason,
}

/// What is wrong with a record or with the bytes between records.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DamageReason {
    /// Bytes between members or records that belong to none.
    #[error("{bytes} bytes that belong to no record, first {start}")]
    Garbage {
        /// How many.
        bytes: u64,
        /// The first of them.
        start: Snippet,
    },
    /// The compressed data cannot be inflated.
    #[error("cannot inflate beyond byte {inflated} of the member")]
    Inflate {
        /// How many bytes were inflated before the fault.
        inflated: u64,
    },
    /// The inflated data does not have the checksum that the member states.
    #[error("checksum of the member is {computed:08x}, stated {stated:08x}")]
    Checksum {
        /// What the member's trailer says.
        stated: u32,
        /// What the inflated bytes have.
        computed: u32,
    },
    /// The inflated data does not have the length that the member states.
    #[error("length of the member is {computed} modulo 2^32, stated {stated}")]
    MemberLength {
        /// What the member's trailer says.
        stated: u32,
        /// How many bytes came out, modulo 2^32.
        computed: u32,
    },
    /// The file, or the room before the next member, ends inside a member.
    #[error("member ends after {inflated} inflated bytes")]
    TruncatedMember {
        /// How many bytes were inflated before the end.
        inflated: u64,
    },
    /// The member inflates beyond all measure, and was given up.
    #[error("a bomb: {packed} bytes of the member inflate to more than {limit}")]
    Bomb {
        /// How many of its bytes were read.
        packed: u64,
        /// What a member that deflates so well may inflate to.
        limit: u64,
    },
    /// A zstd frame cannot be read: it wants a larger window, or a dictionary that is not there.
    #[error("cannot read zstd frame: {message}")]
    Frame {
        /// What the codec says.
        message: String,
    },
    /// The zstd dictionary frame cannot be used.
    #[error("cannot use zstd dictionary: {message}")]
    Dictionary {
        /// Why not.
        message: String,
    },
    /// A place where a record should start holds something else.
    #[error("not a record, first {start}")]
    NotARecord {
        /// The first bytes there.
        start: Snippet,
    },
    /// The record header is longer than the limit.
    #[error("record header of more than {limit} bytes")]
    HeaderBytes {
        /// The limit.
        limit: usize,
    },
    /// The record header has more lines than the limit.
    #[error("record header of more than {limit} lines")]
    HeaderLines {
        /// The limit.
        limit: usize,
    },
    /// A line in the record header starts another record.
    #[error("record header breaks off where another record starts")]
    BrokenHeader,
    /// The file ends inside a record header.
    #[error("file ends in a record header")]
    TruncatedHeader,
    /// The record does not say how long it is.
    #[error("no Content-Length")]
    NoContentLength,
    /// The record's length is not a number.
    #[error("Content-Length is not a length: {found}")]
    BadContentLength {
        /// What stands there.
        found: Snippet,
    },
    /// The block is shorter than the record says.
    #[error("block of {found} bytes, Content-Length {declared}")]
    ShortBlock {
        /// What the record says.
        declared: u64,
        /// How many bytes there are.
        found: u64,
    },
    /// Bytes follow the block where a record, or the end, should be.
    #[error("{bytes} bytes after the block, first {start}")]
    TrailingBytes {
        /// How many, up to the end of the member.
        bytes: u64,
        /// The first of them.
        start: Snippet,
    },
    /// A member holds several records, so that none of them can be reached by its offset.
    #[error("member holds more than one record")]
    SharedMember,
}

/// The first bytes of something, for a message; shown escaped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Snippet {
    bytes: [u8; Snippet::BYTES],
    length: u8,
}

impl Snippet {
    const BYTES: usize = 40;

    /// Keeps the first bytes of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let length = bytes.len().min(Self::BYTES);
        let mut kept = [0; Self::BYTES];
        kept[..length].copy_from_slice(&bytes[..length]);
        Self {
            bytes: kept,
            length: u8::try_from(length).expect("a snippet is shorter than 256 bytes"),
        }
    }

    /// Returns the bytes kept.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl fmt::Display for Snippet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "\"{}\"", self.as_bytes().escape_ascii())
    }
}

impl fmt::Debug for Snippet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// The damages of one file: the first ones whole, all of them counted.
#[derive(Debug)]
pub(crate) struct DamageLog {
    kept: Vec<RecordDamage>,
    limit: usize,
    total: u64,
}

impl DamageLog {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            kept: Vec::new(),
            limit,
            total: 0,
        }
    }

    pub(crate) fn add(&mut self, record: u64, offset: u64, reason: DamageReason) {
        self.total += 1;
        if self.kept.len() < self.limit {
            self.kept.push(RecordDamage {
                record,
                offset,
                reason,
            });
        }
    }

    pub(crate) fn kept(&self) -> &[RecordDamage] {
        &self.kept
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_bounded_and_counts_on() {
        let mut log = DamageLog::new(2);
        for offset in 0..5 {
            log.add(1, offset, DamageReason::TruncatedHeader);
        }
        assert_eq!((log.kept().len(), log.total()), (2, 5));
    }

    #[test]
    fn messages_are_escaped() {
        let damage = RecordDamage {
            record: 812,
            offset: 73_400_320,
            reason: DamageReason::NotARecord {
                start: Snippet::of(b"\x1b[2J\n\0abc"),
            },
        };
        assert_eq!(
            damage.to_string(),
            r#"record 812 at offset 73400320: not a record, first "\x1b[2J\n\x00abc""#
        );
    }
}
