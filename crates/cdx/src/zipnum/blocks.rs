//! The lines of a ZipNum index, member after member.

use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use libdeflater::{DecompressionError, Decompressor};
use memchr::memchr;

use super::summary::{Summary, parse_summary_line};
use crate::cursor::Cursor;
use crate::{KeyRange, LinePlace, LookupError, ReadError};

/// The largest member that is read, packed and unpacked: far above what 3,000 lines take, far below what harms.
const MEMBER_BYTES: u64 = 256 << 20;

/// Why a gzip member of an index cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlockError {
    /// The summary names a shard the locations do not have.
    #[error("no location for shard {shard:?}")]
    UnknownShard {
        /// The shard.
        shard: String,
    },
    /// A shard cannot be opened.
    #[error("cannot open {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A member cannot be read from its shard.
    #[error(
        "cannot read {length_bytes} bytes of shard {shard:?} at offset {offset}, as {place} says"
    )]
    Read {
        /// The line of the summary.
        place: LinePlace,
        /// The shard.
        shard: String,
        /// Where the member begins.
        offset: u64,
        /// How long it is.
        length_bytes: u64,
        /// What the system said.
        source: io::Error,
    },
    /// What stands there is not one whole gzip member.
    #[error(
        "no gzip member of {length_bytes} bytes in shard {shard:?} at offset {offset}, as {place} says: {reason}"
    )]
    Damaged {
        /// The line of the summary.
        place: LinePlace,
        /// The shard.
        shard: String,
        /// Where the member should begin.
        offset: u64,
        /// How long it should be.
        length_bytes: u64,
        /// What is wrong.
        reason: &'static str,
    },
}

/// Lines from some member on.
pub(crate) struct Blocks<'a> {
    summary: &'a Summary,
    members: Cursor,
    decompressor: Decompressor,
    packed: Vec<u8>,
    lines: Vec<u8>,
    current: Range<usize>,
    next: usize,
}

impl<'a> Blocks<'a> {
    pub(super) fn new(summary: &'a Summary, members: Cursor) -> Self {
        Self {
            summary,
            members,
            decompressor: Decompressor::new(),
            packed: Vec::new(),
            lines: Vec::new(),
            current: 0..0,
            next: 0,
        }
    }

    pub(crate) fn line(&self) -> &[u8] {
        &self.lines[self.current.clone()]
    }

    /// Goes to the next line; false at the end, and before a member that lies wholly above the range.
    pub(crate) fn advance(&mut self, range: &KeyRange) -> Result<bool, LookupError> {
        while self.next >= self.lines.len() {
            if !self.members.advance()? || range.is_past(first_of(self.members.line())) {
                return Ok(false);
            }
            self.read_member()?;
        }
        let length =
            memchr(b'\n', &self.lines[self.next..]).expect("every member ends with a line feed");
        self.current = self.next..self.next + length;
        self.next = self.current.end + 1;
        Ok(true)
    }

    fn read_member(&mut self) -> Result<(), LookupError> {
        let line =
            parse_summary_line(self.members.line()).map_err(|fault| ReadError::Malformed {
                place: self.members.place(),
                fault,
            })?;
        let (offset, length_bytes) = (line.offset, line.length_bytes);
        let damaged = |reason| BlockError::Damaged {
            place: self.members.place(),
            shard: line.shard.into(),
            offset,
            length_bytes,
            reason,
        };
        if length_bytes > MEMBER_BYTES {
            return Err(damaged("longer than any member").into());
        }
        let shard = self.summary.shard(line.shard)?;
        self.packed.resize(length_bytes as usize, 0);
        shard
            .read_exact_at(&mut self.packed, offset)
            .map_err(|source| BlockError::Read {
                place: self.members.place(),
                shard: line.shard.into(),
                offset,
                length_bytes,
                source,
            })?;
        // The last four bytes of a member are its length unpacked.
        let unpacked = self
            .packed
            .last_chunk()
            .map_or(0, |bytes| u32::from_le_bytes(*bytes));
        if u64::from(unpacked) > MEMBER_BYTES {
            return Err(damaged("unpacks to more than any member").into());
        }
        self.lines.resize(unpacked as usize, 0);
        self.next = 0;
        let unpacked = match self
            .decompressor
            .gzip_decompress(&self.packed, &mut self.lines)
        {
            Ok(unpacked) => unpacked,
            Err(DecompressionError::BadData) => {
                return Err(damaged("not gzip, or its checksum is wrong").into());
            }
            Err(DecompressionError::InsufficientSpace) => {
                return Err(damaged("longer than it says").into());
            }
        };
        if unpacked != self.lines.len() {
            return Err(damaged("shorter than it says").into());
        }
        // pywb's own sample has no feed after a member's last line. The checksum says that nothing is missing.
        if self.lines.last().is_some_and(|byte| *byte != b'\n') {
            self.lines.push(b'\n');
        }
        Ok(())
    }
}

fn first_of(line: &[u8]) -> &[u8] {
    &line[..memchr(b'\t', line).unwrap_or(line.len())]
}
