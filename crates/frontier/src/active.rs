//! A queue in memory: its first URLs, what it has in flight, and what is left of its session.

use std::collections::BTreeMap;

use crate::key::{Id, Position};
use crate::record::NO_HEAD;

/// What an entry of the head costs beside its bytes.
const ENTRY_BYTES: usize = 64;

/// An active queue.
///
/// `head` holds every waiting URL before `from` that is not in flight; those from there on are on disk.
pub(crate) struct Active {
    pub(crate) group: Id,
    pub(crate) priority: u8,
    /// When it had its last turn.
    pub(crate) turn: u64,
    /// Whether its group's lane knows that it is ready.
    pub(crate) listed: bool,
    /// What it may spend before another queue gets its place.
    pub(crate) balance: i64,
    head: BTreeMap<Position, Vec<u8>>,
    head_bytes: usize,
    /// Where the head ends; none if it holds everything.
    pub(crate) from: Option<Position>,
    pub(crate) flying: Vec<Position>,
    pub(crate) flying_cost: u64,
}

impl Active {
    pub(crate) fn new(group: Id, priority: u8, balance: i64, from: Position) -> Self {
        Self {
            group,
            priority,
            turn: 0,
            listed: false,
            balance,
            head: BTreeMap::new(),
            head_bytes: 0,
            from: Some(from),
            flying: Vec::new(),
            flying_cost: 0,
        }
    }

    /// Whether nothing waits in memory.
    pub(crate) fn is_dry(&self) -> bool {
        self.head.is_empty()
    }

    /// Whether nothing is left of it at all.
    pub(crate) fn is_over(&self) -> bool {
        self.head.is_empty() && self.from.is_none() && self.flying.is_empty()
    }

    /// Takes a URL read from disk; false once the head is large enough.
    pub(crate) fn load(&mut self, position: Position, item: &[u8], share: usize) -> bool {
        if self.head_bytes > share {
            self.from = Some(position);
            return false;
        }
        if !self.flying.contains(&position) {
            self.head_bytes += item.len() + ENTRY_BYTES;
            self.head.insert(position, item.to_vec());
        }
        true
    }

    /// Takes a new URL, if it belongs into the head, and cuts a head that grew too long.
    pub(crate) fn insert(&mut self, position: Position, item: &[u8], share: usize) {
        if self.from.is_some_and(|from| position >= from) {
            return;
        }
        self.head_bytes += item.len() + ENTRY_BYTES;
        self.head.insert(position, item.to_vec());
        if self.head_bytes <= share.saturating_mul(2) {
            return;
        }
        while self.head_bytes > share && self.head.len() > 1 {
            if let Some((position, item)) = self.head.pop_last() {
                self.head_bytes -= item.len() + ENTRY_BYTES;
                self.from = Some(position);
            }
        }
    }

    /// Takes the first URL out.
    pub(crate) fn pop(&mut self) -> Option<(Position, Vec<u8>)> {
        let (position, item) = self.head.pop_first()?;
        self.head_bytes -= item.len() + ENTRY_BYTES;
        Some((position, item))
    }

    /// The first position at which a URL may be, in flight or not.
    pub(crate) fn first(&self) -> Position {
        let flying = self.flying.iter().min().copied();
        let waiting = self.head.keys().next().copied();
        let bounds = [flying, waiting, self.from];
        bounds.into_iter().flatten().min().unwrap_or(NO_HEAD)
    }
}
