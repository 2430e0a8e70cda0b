//! Whose turn it is: a more urgent job is never stuck behind a less urgent one.
//!
//! The most urgent order that waits is taken first. When one waits and every worker has a job, the least urgent of these
//! makes way: it stops as it would for an operator and goes on later where it was.

use std::cell::Cell;
use std::collections::HashMap;
use std::path::Path;

use ecluse_scope::Priority;
use ecluse_stage::{Home, State, Waiting};

use crate::job::priority_of;

/// Orders that are looked at; what waits beyond these is taken in no order.
const LOOKED_AT: usize = 500;
/// An order whose beginning says no priority has none.
const READ_BYTES: u64 = 1 << 20;

/// Puts the more urgent orders behind the less urgent.
pub(crate) fn arrange(home: &Home, stage: &str, waiting: &mut [Waiting]) {
    if waiting.len() < 2 {
        return;
    }
    let mut urgency = HashMap::new();
    let seen = home.yard.each_place(stage, &mut |place| {
        if place.state == State::Ready && urgency.len() < LOOKED_AT {
            urgency.insert(place.parcel, priority_at(&place.path));
        }
    });
    if let Err(error) = seen {
        tracing::warn!(%error, "cannot tell which order is more urgent");
    }
    waiting.sort_by_key(|waiting| urgency.get(&waiting.entry.id).copied().unwrap_or_default());
}

/// Knows when a job should make way.
pub(crate) struct Way<'a> {
    home: &'a Home,
    stage: &'a str,
    /// The parcel of the job.
    name: String,
    priority: Priority,
    /// Somebody waited when last looked: a free worker would have taken it by now.
    waited: Cell<bool>,
}

impl<'a> Way<'a> {
    pub(crate) fn new(home: &'a Home, stage: &'a str, name: &str, priority: Priority) -> Self {
        Self {
            home,
            stage,
            name: name.to_owned(),
            priority,
            waited: Cell::new(false),
        }
    }

    /// Tells whether a more urgent order waits, and has waited, and no less urgent job could make way for it.
    pub(crate) fn is_in_the_way(&self) -> bool {
        let (mut waits, mut another) = (false, false);
        let seen = self
            .home
            .yard
            .each_place(self.stage, &mut |place| match place.state {
                State::Ready => waits = waits || priority_at(&place.path) > self.priority,
                State::Working if place.parcel.as_str() != self.name => {
                    let theirs = (priority_at(&place.path), place.parcel.as_str());
                    another = another || theirs < (self.priority, self.name.as_str());
                }
                _ => {}
            });
        if seen.is_err() {
            return false;
        }
        let waited = self.waited.replace(waits);
        waits && waited && !another
    }
}

/// How urgent the order in a parcel's directory is.
fn priority_at(parcel: &Path) -> Priority {
    let Ok(entries) = std::fs::read_dir(parcel) else {
        return Priority::Normal;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let is_order = path.extension().is_some_and(|end| end == "toml");
        if is_order && entry.metadata().is_ok_and(|meta| meta.len() <= READ_BYTES) {
            return std::fs::read_to_string(&path)
                .map_or(Priority::Normal, |text| priority_of(&text));
        }
    }
    Priority::Normal
}
