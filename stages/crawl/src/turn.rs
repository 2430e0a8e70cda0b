//! Whose turn it is: a more urgent job is never stuck behind a less urgent one.
//!
//! The most urgent order that waits is taken first. When one waits and every worker has a job, the least urgent of these
//! makes way: it stops as it would for an operator and goes on later where it was.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ecluse_scope::Priority;
use ecluse_stage::{Home, ParcelPlace, ParcelState};

use crate::job::priority_of;

/// Orders whose urgency is remembered.
const REMEMBERED: usize = 100_000;

/// How urgent orders are, by parcel, as long as the file is the same. Thousands may wait, and each is read once.
#[derive(Default)]
pub(crate) struct Urgencies(RefCell<HashMap<String, (Version, Priority)>>);

/// By what a file is known to be the same: when it was written, and how long it is.
type Version = (SystemTime, u64);

impl Urgencies {
    /// How urgent the order in a parcel's directory is; one that is gone is as urgent as any.
    pub(crate) fn of(&self, parcel: &str, path: &Path) -> Priority {
        self.look(parcel, path).unwrap_or_default()
    }

    fn look(&self, parcel: &str, path: &Path) -> Option<Priority> {
        let order = order_in(path)?;
        let about = std::fs::metadata(&order).ok()?;
        let version = (about.modified().ok()?, about.len());
        let mut known = self.0.borrow_mut();
        if let Some((before, priority)) = known.get(parcel)
            && *before == version
        {
            return Some(*priority);
        }
        if known.len() >= REMEMBERED {
            known.clear();
        }
        let priority = priority_of(&std::fs::read_to_string(&order).ok()?);
        known.insert(parcel.to_owned(), (version, priority));
        Some(priority)
    }
}

/// The order in a parcel's directory: `order.toml`, or the only TOML file.
fn order_in(dir: &Path) -> Option<PathBuf> {
    let order = dir.join("order.toml");
    if order.is_file() {
        return Some(order);
    }
    let paths = std::fs::read_dir(dir).ok()?.flatten();
    let mut paths = paths
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "toml"));
    paths.next()
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
    known: &'a Urgencies,
}

impl<'a> Way<'a> {
    pub(crate) fn new(
        home: &'a Home,
        stage: &'a str,
        known: &'a Urgencies,
        name: &str,
        priority: Priority,
    ) -> Self {
        Self {
            home,
            stage,
            name: name.to_owned(),
            priority,
            waited: Cell::new(false),
            known,
        }
    }

    /// Tells whether a more urgent order waits, and has waited, and no less urgent job could make way for it.
    pub(crate) fn is_in_the_way(&self) -> bool {
        let (mut waits, mut another) = (false, false);
        let seen = self
            .home
            .engine
            .each_place(self.stage, &mut |place| match place.state {
                ParcelState::Ready => {
                    let theirs = self.priority_of(&place);
                    waits = waits || theirs > self.priority;
                }
                ParcelState::Working if place.parcel.as_str() != self.name => {
                    let theirs = (self.priority_of(&place), place.parcel.as_str());
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

    /// How urgent the order of a parcel is; one that cannot be looked at is as urgent as any.
    fn priority_of(&self, place: &ParcelPlace) -> Priority {
        let path = self.home.engine.look_at(place);
        path.map_or_else(
            |_| Priority::default(),
            |path| self.known.of(place.parcel.as_str(), &path),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_tells_how_urgent_it_is_and_no_other_file() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        let urgencies = Urgencies::default();
        let priority = || urgencies.of("parcel", dir.path());
        assert_eq!(priority(), Priority::Normal);
        write("4711.toml", "priority = 'low'");
        assert_eq!(priority(), Priority::Low);
        write("order.toml", "priority = 'high' # now");
        assert_eq!(priority(), Priority::High);
        // Given again under the same name, it is another order.
        write("order.toml", "priority = 'low'");
        assert_eq!(priority(), Priority::Low);
    }
}
