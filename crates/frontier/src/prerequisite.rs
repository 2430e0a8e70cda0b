//! What a URL may have to wait for before it is handed out, and who waits for it.
//!
//! Its queue waits with it, but for what comes before it: the prerequisite may be such a URL. It is in memory only: after a
//! restart the caller is asked again.

use crate::active::Active;
use crate::frontier::Frontier;
use crate::item::Millis;
use crate::key::{self, Id, Position};

/// What the first URL of a queue waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prerequisite {
    /// By this name it is fulfilled.
    pub name: String,
    /// Then the caller is asked again whether it is still missing.
    pub until: Millis,
}

/// The URL of an active queue that waits, for what and until when.
#[derive(Clone, Copy)]
pub(crate) struct Awaited {
    pub(crate) position: Position,
    pub(crate) prerequisite: Id,
    pub(crate) until: Millis,
}

impl Frontier {
    /// Wakes the queues that wait for this.
    pub fn fulfil(&mut self, prerequisite: &str) {
        let prerequisite = key::id(prerequisite);
        for queue in self.awaiting.remove(&prerequisite).unwrap_or_default() {
            let awaits = |active: &Active| active.awaits.map(|awaited| awaited.prerequisite);
            if self.active.get(&queue).and_then(awaits) == Some(prerequisite) {
                self.stop_waiting(&queue);
                self.list(&queue);
            }
        }
    }

    /// Lets an active queue wait with the URL at this position.
    pub(crate) fn await_for(&mut self, queue: &Id, position: Position, missing: &Prerequisite) {
        let prerequisite = key::id(&missing.name);
        let waiting = self.awaiting.entry(prerequisite).or_default();
        if !waiting.contains(queue) {
            waiting.push(*queue);
        }
        self.stop_waiting(queue);
        if let Some(active) = self.active.get_mut(queue) {
            active.awaits = Some(Awaited {
                position,
                prerequisite,
                until: missing.until,
            });
        }
        self.list(queue);
    }

    /// Forgets what an active queue waits for.
    pub(crate) fn stop_waiting(&mut self, queue: &Id) {
        let active = self.active.get_mut(queue);
        if let Some(awaited) = active.and_then(|active| active.awaits.take()) {
            self.resting.remove(&(awaited.until.0, *queue));
        }
    }
}
