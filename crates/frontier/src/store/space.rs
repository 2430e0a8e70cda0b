//! The key spaces of the store, told apart by the first byte of a key, and how each is read.

/// What a key is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Space {
    /// A group: its manners and what is left to wait.
    Group = b'g',
    /// A URL that waits in a queue: queue, precedence, number.
    Item = b'i',
    /// What the caller remembers: kind, key.
    Note = b'n',
    /// A queue kept behind its group's others: group, priority, turn.
    Parked = b'p',
    /// A queue's record.
    Queue = b'q',
    /// A queue with work: priority, turn.
    Rotation = b'r',
    /// A URL that is known, by its hash.
    Seen = b's',
    /// A URL or a queue that sleeps: time, number.
    Sleeping = b'w',
}

/// Keys looked up one by one lie in small blocks: what is copied for one of them costs more than the search.
const POINT_BLOCK: usize = 2048;
/// Notes are longer, and their blocks too, for a shorter index.
const NOTE_BLOCK: usize = 4096;
/// Keys read in ranges lie in larger ones, for a shorter index.
const RANGE_BLOCK: usize = 16 * 1024;
/// Space and the identifier of a queue or a group.
const OWNER_BYTES: usize = 17;

impl Space {
    pub(super) fn of(key: &[u8]) -> Self {
        match key.first() {
            Some(b'g') => Self::Group,
            Some(b'i') => Self::Item,
            Some(b'n') => Self::Note,
            Some(b'p') => Self::Parked,
            Some(b'q') => Self::Queue,
            Some(b'r') => Self::Rotation,
            Some(b's') => Self::Seen,
            _ => Self::Sleeping,
        }
    }

    pub(super) fn block_bytes(self) -> usize {
        match self {
            Self::Group | Self::Queue | Self::Seen => POINT_BLOCK,
            Self::Note => NOTE_BLOCK,
            Self::Item | Self::Parked | Self::Rotation | Self::Sleeping => RANGE_BLOCK,
        }
    }

    /// The part of a key that a run's filter knows; nothing where ranges are read across owners.
    pub(super) fn filtered(self, key: &[u8]) -> &[u8] {
        match self {
            Self::Group | Self::Note | Self::Queue | Self::Seen => key,
            Self::Item | Self::Parked => &key[..key.len().min(OWNER_BYTES)],
            Self::Rotation | Self::Sleeping => &[],
        }
    }
}
