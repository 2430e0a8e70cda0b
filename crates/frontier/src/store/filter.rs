//! A blocked Bloom filter: says "not in this run" in one look at one cache line.

use std::sync::{Arc, Mutex, PoisonError};

use twox_hash::XxHash3_128;

/// Bits looked at for one key. At 10 bits a key six would do a little better, but a folded filter does with four.
const PROBES: u32 = 4;
/// Words in a line of 64 bytes.
const LINE_WORDS: usize = 8;
/// Bytes in it.
const LINE_BYTES: usize = 8 * LINE_WORDS;
/// More bits a key are not worth their memory.
pub(super) const BITS_PER_KEY: u64 = 10;
/// With fewer bits a key the filter says "perhaps" to almost everything.
const LEAST_BITS_PER_KEY: u64 = 2;

/// What the filters of all runs know a key by: hashed once, however many are asked.
pub(super) fn hash(key: &[u8]) -> u128 {
    XxHash3_128::oneshot(key)
}

/// What one look touches; aligned, or it would touch two lines of the machine's cache.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Line([u64; LINE_WORDS]);

/// Lines in a full piece.
const PIECE_LINES: usize = 1024;
/// Bytes in it.
pub(super) const PIECE_BYTES: usize = PIECE_LINES * LINE_BYTES;

type Piece = Box<[Line]>;

/// Full pieces of filters that are gone, for those to come: filters are most of the memory, and would leave it
/// full of holes that fit nothing.
#[derive(Clone, Default)]
pub(super) struct Spare(Arc<Mutex<Vec<Piece>>>);

impl Spare {
    /// An empty piece.
    fn take(&self, lines: usize) -> Piece {
        let old = match lines {
            PIECE_LINES => self.with(Vec::pop),
            _ => None,
        };
        match old {
            Some(mut piece) => {
                piece.fill(Line::default());
                piece
            }
            None => vec![Line::default(); lines].into(),
        }
    }

    fn give(&self, piece: Piece) {
        if piece.len() == PIECE_LINES {
            self.with(|pieces| pieces.push(piece));
        }
    }

    /// Gives the memory back.
    pub(super) fn clear(&self) {
        self.with(|pieces| *pieces = Vec::new());
    }

    fn with<Value>(&self, change: impl FnOnce(&mut Vec<Piece>) -> Value) -> Value {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The filter of one run. All pieces but the last are full.
pub(super) struct Filter {
    spare: Spare,
    pieces: Vec<Piece>,
    /// Lines it was made with.
    lines: usize,
    /// How often it was folded.
    folds: u32,
}

impl Filter {
    /// Makes an empty filter for `keys` keys within `bytes` bytes; none if that would be useless.
    pub(super) fn sized(keys: u64, bytes: u64, spare: &Spare) -> Option<Self> {
        let bits = keys
            .saturating_mul(BITS_PER_KEY)
            .min(bytes.saturating_mul(8));
        if keys == 0 || bits < keys.saturating_mul(LEAST_BITS_PER_KEY) {
            return None;
        }
        let lines = usize::try_from(bits.div_ceil(512)).ok()?;
        let mut pieces = Vec::new();
        for from in (0..lines).step_by(PIECE_LINES) {
            let count = PIECE_LINES.min(lines - from);
            pieces.push(spare.take(count));
        }
        Some(Self {
            spare: spare.clone(),
            pieces,
            lines,
            folds: 0,
        })
    }

    pub(super) fn bytes(&self) -> u64 {
        let lines = self.pieces.iter().map(|piece| piece.len()).sum::<usize>();
        (lines * LINE_BYTES) as u64
    }

    pub(super) fn insert(&mut self, key: &[u8]) {
        let (line, mut probes) = self.place(hash(key));
        let Line(words) = &mut self.pieces[line / PIECE_LINES][line % PIECE_LINES];
        for _ in 0..PROBES {
            let bit = (probes & 511) as usize;
            words[bit / 64] |= 1 << (bit % 64);
            probes >>= 9;
        }
    }

    /// Whether a key of this hash may have been inserted.
    pub(super) fn may_contain(&self, hash: u128) -> bool {
        let (line, mut probes) = self.place(hash);
        let Line(words) = &self.pieces[line / PIECE_LINES][line % PIECE_LINES];
        for _ in 0..PROBES {
            let bit = (probes & 511) as usize;
            if words[bit / 64] & (1 << (bit % 64)) == 0 {
                return false;
            }
            probes >>= 9;
        }
        true
    }

    /// The key's line, and its bits.
    fn place(&self, hash: u128) -> (usize, u64) {
        let line = (hash >> 64).wrapping_mul(self.lines as u128) >> 64;
        (line as usize >> self.folds, hash as u64)
    }

    /// Whether folding makes it smaller.
    pub(super) fn can_fold(&self) -> bool {
        self.bytes() > LINE_BYTES as u64
    }

    /// Lays each two lines upon each other: half the memory, and all that was inserted is still known.
    pub(super) fn fold(&mut self) {
        let mut old = std::mem::take(&mut self.pieces).into_iter();
        while let Some(one) = old.next() {
            let other = old.next().unwrap_or_default();
            let pairs = one.chunks(2).chain(other.chunks(2));
            let mut folded = self
                .spare
                .take(one.len().div_ceil(2) + other.len().div_ceil(2));
            for (line, pair) in folded.iter_mut().zip(pairs) {
                *line = union(pair);
            }
            self.pieces.push(folded);
            self.spare.give(one);
            self.spare.give(other);
        }
        self.folds += 1;
    }

    /// The bytes of the filter, piece by piece, so that it is not in memory twice.
    pub(super) fn pieces(&self) -> impl Iterator<Item = Vec<u8>> {
        let words = |line: &Line| line.0.map(u64::to_le_bytes);
        let pieces = self.pieces.iter();
        pieces.map(move |piece| piece.iter().flat_map(words).flatten().collect())
    }

    /// A filter that is read piece by piece; nothing yet.
    pub(super) fn unread(spare: &Spare) -> Self {
        Self {
            spare: spare.clone(),
            pieces: Vec::new(),
            lines: 0,
            folds: 0,
        }
    }

    /// Takes the next piece of a filter that is read; whole lines only.
    pub(super) fn extend(&mut self, piece: &[u8]) {
        let bytes = piece.as_chunks::<LINE_BYTES>().0;
        let mut lines = self.spare.take(bytes.len());
        for (Line(words), bytes) in lines.iter_mut().zip(bytes) {
            let bytes = bytes.as_chunks::<8>().0;
            for (word, bytes) in words.iter_mut().zip(bytes) {
                *word = u64::from_le_bytes(*bytes);
            }
        }
        self.lines += lines.len();
        self.pieces.push(lines);
    }

    /// The filter, or none if it has no lines.
    pub(super) fn unless_empty(self) -> Option<Self> {
        (self.lines > 0).then_some(self)
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        for piece in self.pieces.drain(..) {
            self.spare.give(piece);
        }
    }
}

fn union(lines: &[Line]) -> Line {
    let mut union = Line::default();
    for Line(words) in lines {
        for (all, word) in union.0.iter_mut().zip(words) {
            *all |= word;
        }
    }
    union
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sized(keys: u64, bytes: u64) -> Option<Filter> {
        Filter::sized(keys, bytes, &Spare::default())
    }

    #[test]
    fn nothing_inserted_is_denied_and_little_else_is_granted() {
        let mut filter = sized(100_000, u64::MAX).unwrap();
        for number in 0..100_000_u32 {
            filter.insert(&number.to_le_bytes());
        }
        let mut read = Filter::unread(&Spare::default());
        filter.pieces().for_each(|piece| read.extend(&piece));
        assert_eq!(read.bytes(), filter.bytes());
        let filter = read.unless_empty().unwrap();
        assert!((0..100_000_u32).all(|number| filter.may_contain(hash(&number.to_le_bytes()))));
        let wrong =
            (100_000..200_000_u32).filter(|number| filter.may_contain(hash(&number.to_le_bytes())));
        assert!(wrong.count() < 2_500, "more than 2.5 % false positives");
    }

    #[test]
    fn a_folded_filter_still_knows_every_key() {
        for keys in [1, 60, 5000, 77_777_u32] {
            let mut filter = sized(keys.into(), u64::MAX).unwrap();
            for number in 0..keys {
                filter.insert(&number.to_le_bytes());
            }
            let mut bytes = filter.bytes();
            for most_wrong in [1400, 5500] {
                filter.fold();
                assert_eq!(filter.bytes(), bytes.div_ceil(128) * 64);
                bytes = filter.bytes();
                let knows = |number: u32| filter.may_contain(hash(&number.to_le_bytes()));
                assert!((0..keys).all(knows));
                let wrong = (keys..keys + 10_000)
                    .filter(|number| knows(*number))
                    .count();
                assert!(keys < 5000 || wrong < most_wrong, "{wrong}");
            }
        }
    }

    #[test]
    fn the_memory_of_old_filters_serves_new_ones() {
        let spare = Spare::default();
        let count = || spare.with(|pieces| pieces.len());
        let mut one = Filter::sized(200_000, u64::MAX, &spare).unwrap();
        assert_eq!((one.pieces.len(), count()), (4, 0));
        one.insert(b"key");
        one.fold();
        assert_eq!((one.pieces.len(), count()), (2, 3));
        drop(one);
        assert_eq!(count(), 4);
        let two = Filter::sized(200_000, u64::MAX, &spare).unwrap();
        assert_eq!(count(), 1);
        assert!(!two.may_contain(hash(b"key")));
        drop(two);
        spare.clear();
        assert_eq!(count(), 0);
    }

    #[test]
    fn too_little_memory_means_no_filter() {
        assert!(sized(1_000_000, 1_000).is_none());
        assert!(sized(0, 1_000).is_none());
        assert!(Filter::unread(&Spare::default()).unless_empty().is_none());
        assert!(sized(1_000_000, 300_000).unwrap().bytes() <= 300_032);
    }
}
