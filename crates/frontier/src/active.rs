//! A queue in memory: its first URLs, what they wait for, and what is left of its session.

use std::collections::BTreeMap;

use crate::key::{Id, Position};
use crate::prerequisite::Awaited;

/// What an entry of the head costs beside its bytes.
const ENTRY_BYTES: usize = 64;

/// An active queue.
///
/// `head` holds every waiting URL before `from` that is not in flight; those from there on are on disk.
pub(crate) struct Active {
    pub(crate) group: Id,
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
    /// What its first URL waits for.
    pub(crate) awaits: Option<Awaited>,
}

impl Active {
    pub(crate) fn new(group: Id, balance: i64, from: Position) -> Self {
        Self {
            group,
            turn: 0,
            listed: false,
            balance,
            head: BTreeMap::new(),
            head_bytes: 0,
            from: Some(from),
            awaits: None,
        }
    }

    /// Whether nothing waits in memory.
    pub(crate) fn is_dry(&self) -> bool {
        self.head.is_empty()
    }

    /// Whether nothing waits at all.
    pub(crate) fn is_over(&self) -> bool {
        self.head.is_empty() && self.from.is_none()
    }

    /// Takes a URL read from disk; false once the head is large enough.
    pub(crate) fn load(&mut self, position: Position, item: &[u8], share: usize) -> bool {
        if self.head_bytes > share {
            self.from = Some(position);
            return false;
        }
        self.put(position, item.to_vec());
        true
    }

    /// Takes a new URL, if it belongs into the head, and cuts a head that grew too long.
    pub(crate) fn insert(&mut self, position: Position, item: &[u8], share: usize) {
        if self.from.is_some_and(|from| position >= from) {
            return;
        }
        self.put(position, item.to_vec());
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

    /// Puts a URL at its place in the head.
    pub(crate) fn put(&mut self, position: Position, item: Vec<u8>) {
        self.head_bytes += item.len() + ENTRY_BYTES;
        self.head.insert(position, item);
    }

    /// Takes the first URL out.
    pub(crate) fn pop(&mut self) -> Option<(Position, Vec<u8>)> {
        let (position, item) = self.head.pop_first()?;
        self.head_bytes -= item.len() + ENTRY_BYTES;
        Some((position, item))
    }

    /// Takes a URL out, if it is in memory.
    pub(crate) fn take(&mut self, position: Position) {
        if let Some(item) = self.head.remove(&position) {
            self.head_bytes -= item.len() + ENTRY_BYTES;
        }
    }

    /// The first position at which a URL may wait.
    pub(crate) fn first(&self) -> Option<Position> {
        let waiting = self.head.keys().next().copied();
        waiting.into_iter().chain(self.from).min()
    }

    /// What is waited for before anything can be handed out.
    pub(crate) fn missing(&self) -> Option<&Awaited> {
        let first = self.head.keys().next();
        self.awaits
            .as_ref()
            .filter(|awaited| Some(&awaited.position) == first)
    }
}
