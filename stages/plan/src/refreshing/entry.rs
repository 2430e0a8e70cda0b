//! What is kept of a candidate between two readings of the lists: a record of one length.

use std::io::{Read, Write};

/// What is kept of a candidate between two readings of the lists.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Entry {
    pub(super) side: u8,
    pub(super) flags: u8,
    pub(super) rank: f32,
    pub(super) relevance: f32,
    /// Changes a day.
    pub(super) rate: f32,
    /// Days since the last visit.
    pub(super) age: f32,
    /// What the hour brings, or a visit is expected to find, less what waiting adds; or a number by chance.
    pub(super) hour: f32,
    /// What a week brings.
    pub(super) week: f32,
}

pub(super) const ENTRY_BYTES: usize = 28;
/// Pages that are known.
pub(super) const REFRESH: usize = 0;
/// URLs that were never fetched.
pub(super) const DISCOVERY: usize = 1;
/// Pages that were not visited for too long.
pub(super) const FORGOTTEN: usize = 2;
/// Not to be visited now.
pub(super) const NOBODY: usize = 3;
pub(super) const BEGINS_SITE: u8 = 1;
pub(super) const IS_ANNOUNCED: u8 = 2;

impl Entry {
    pub(super) fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        let mut bytes = [0; ENTRY_BYTES];
        (bytes[0], bytes[1]) = (self.side, self.flags);
        let numbers = [
            self.rank,
            self.relevance,
            self.rate,
            self.age,
            self.hour,
            self.week,
        ];
        for (place, number) in bytes[4..].chunks_exact_mut(4).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        out.write_all(&bytes)
    }

    pub(super) fn read(from: &mut impl Read) -> std::io::Result<Option<Self>> {
        let mut bytes = [0; ENTRY_BYTES];
        if let Err(error) = from.read_exact(&mut bytes) {
            return match error.kind() {
                std::io::ErrorKind::UnexpectedEof => Ok(None),
                _ => Err(error),
            };
        }
        let number = |at: usize| {
            let place = 4 + 4 * at;
            f32::from_le_bytes(bytes[place..place + 4].try_into().expect("four bytes"))
        };
        Ok(Some(Self {
            side: bytes[0],
            flags: bytes[1],
            rank: number(0),
            relevance: number(1),
            rate: number(2),
            age: number(3),
            hour: number(4),
            week: number(5),
        }))
    }
}
