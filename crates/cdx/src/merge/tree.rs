//! A tree of losers over sorted sources, which compares no byte twice.
//!
//! For each source the tree knows how many bytes its line shares with the line that won last. Of two lines, both
//! not below that winner, the one that shares more is the smaller; only when they share equally much are their
//! bytes compared, from there on. The check of a source's own order gives that number for its next line at once,
//! and a line that shares all its bytes with the winner is a duplicate of it.
//!
//! The rule: every loser on the path from the winner's leaf to the root knows what it shares with that winner,
//! because it lost to it. So replaying that one path is enough.

use crate::cursor::{Cursor, common_prefix};
use crate::{LineFault, LineSource, ReadError};

use super::{LineShape, MergeOptions};

pub(super) struct Tree {
    cursors: Vec<Cursor>,
    /// What each source's line shares with the last winner; [`ENDED`] when it has no line left.
    shared: Vec<isize>,
    /// The loser of the match at each inner node; the winner of all at 0.
    losers: Vec<usize>,
    shape: LineShape,
    /// The length of the winner before this one; none before the first.
    last_bytes: Option<usize>,
}

/// Less than any line shares, so a source that has ended loses against every other.
const ENDED: isize = -1;

impl Tree {
    pub(super) fn new(
        sources: Vec<LineSource>,
        buffer_bytes: usize,
        options: &MergeOptions,
    ) -> Result<Self, ReadError> {
        let count = sources.len();
        let mut tree = Self {
            cursors: Vec::with_capacity(count),
            shared: Vec::with_capacity(count),
            losers: vec![0; count],
            shape: options.shape,
            last_bytes: None,
        };
        for source in sources {
            let mut cursor = Cursor::new(source, buffer_bytes, options.line_bytes);
            let has_line = cursor.advance()?;
            if has_line {
                tree.check_shape(&cursor)?;
            }
            tree.cursors.push(cursor);
            // Before the first winner stands the empty line, with which every line shares nothing.
            tree.shared.push(if has_line { 0 } else { ENDED });
        }
        if count > 0 {
            tree.losers[0] = tree.play_all(1);
        }
        Ok(tree)
    }

    /// Returns the source with the smallest line; none when all have ended.
    #[inline]
    pub(super) fn winner(&self) -> Option<usize> {
        let winner = *self.losers.first()?;
        (self.shared[winner] != ENDED).then_some(winner)
    }

    #[inline]
    pub(super) fn cursor(&self, source: usize) -> &Cursor {
        &self.cursors[source]
    }

    /// Says whether the winner's line equals the winner's before it.
    #[inline]
    pub(super) fn is_duplicate(&self) -> bool {
        let winner = self.losers[0];
        let line_bytes = self.cursors[winner].line().len();
        self.shared[winner] == line_bytes as isize && self.last_bytes == Some(line_bytes)
    }

    /// Replaces the winner's line by its source's next, if that is in the buffer.
    ///
    /// When it is not, the bytes of the winner's line are about to move: the caller copies what it needs and calls
    /// [`Tree::advance_by_reading`].
    #[inline]
    pub(super) fn advance_in_buffer(&mut self) -> Result<bool, ReadError> {
        let winner = self.losers[0];
        let last_bytes = self.cursors[winner].line().len();
        let Some(previous) = self.cursors[winner].advance_in_buffer() else {
            return Ok(false);
        };
        let shared = self.cursors[winner].check_order(previous)?;
        self.check_shape(&self.cursors[winner])?;
        self.replay(winner, shared as isize, last_bytes);
        Ok(true)
    }

    /// Replaces the winner's line by its source's next, reading on.
    pub(super) fn advance_by_reading(&mut self) -> Result<(), ReadError> {
        let winner = self.losers[0];
        while self.cursors[winner].refill()? {
            if self.advance_in_buffer()? {
                return Ok(());
            }
        }
        let last_bytes = self.cursors[winner].line().len();
        self.replay(winner, ENDED, last_bytes);
        Ok(())
    }

    #[inline]
    fn replay(&mut self, source: usize, shared: isize, last_bytes: usize) {
        self.last_bytes = Some(last_bytes);
        self.shared[source] = shared;
        let mut winner = source;
        let mut node = (self.cursors.len() + source) / 2;
        while node > 0 {
            winner = self.play(node, winner, self.losers[node]);
            node /= 2;
        }
        self.losers[0] = winner;
    }

    /// Plays every match below a node for the first time and returns who won.
    fn play_all(&mut self, node: usize) -> usize {
        let count = self.cursors.len();
        if node >= count {
            return node - count;
        }
        let left = self.play_all(2 * node);
        let right = self.play_all(2 * node + 1);
        self.play(node, left, right)
    }

    /// Notes the loser at the node and returns the winner.
    #[inline]
    fn play(&mut self, node: usize, left: usize, right: usize) -> usize {
        let (left_shared, right_shared) = (self.shared[left], self.shared[right]);
        let left_wins = if left_shared != right_shared {
            left_shared > right_shared
        } else if left_shared == ENDED {
            true
        } else {
            self.compare_from(left_shared as usize, left, right)
        };
        let (winner, loser) = if left_wins {
            (left, right)
        } else {
            (right, left)
        };
        self.losers[node] = loser;
        winner
    }

    /// Says whether the left line is not above the right one, and notes what the loser shares with the winner.
    fn compare_from(&mut self, known: usize, left: usize, right: usize) -> bool {
        let left_line = &self.cursors[left].line()[known..];
        let right_line = &self.cursors[right].line()[known..];
        let more = common_prefix(left_line, right_line);
        let left_wins = match (left_line.get(more), right_line.get(more)) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(left), Some(right)) => left < right,
        };
        let loser = if left_wins { right } else { left };
        self.shared[loser] = (known + more) as isize;
        left_wins
    }

    #[inline]
    fn check_shape(&self, cursor: &Cursor) -> Result<(), ReadError> {
        self.shape
            .check(cursor.line())
            .map_err(|fault: LineFault| ReadError::Malformed {
                place: cursor.place(),
                fault,
            })
    }
}
