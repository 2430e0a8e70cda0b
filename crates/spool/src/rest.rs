//! When a file that somebody else writes is at rest: it has looked the same to this process for
//! some time on its own monotonic clock.
//!
//! A file's times come from the clock of whoever wrote it or of a file server. They are compared
//! with each other, to see that nothing changed, and never with a clock of ours: a server a minute
//! behind would make a file half written look old.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// How many files are watched at a time. More wait until these are at rest or gone.
const WATCHED: usize = 65_536;

/// Files under observation: how each looked, and since when.
#[derive(Debug)]
pub struct RestWatch<Key, Look> {
    seen: HashMap<Key, Seen<Look>>,
    round: u64,
}

#[derive(Debug)]
struct Seen<Look> {
    look: Look,
    since: Instant,
    round: u64,
}

impl<Key, Look> Default for RestWatch<Key, Look> {
    fn default() -> Self {
        Self {
            seen: HashMap::new(),
            round: 0,
        }
    }
}

impl<Key: Eq + Hash, Look: PartialEq> RestWatch<Key, Look> {
    /// Takes note of how a file looks at `now`; tells whether it has looked so for `rest`.
    pub fn is_at_rest<Name>(&mut self, key: &Name, look: Look, rest: Duration, now: Instant) -> bool
    where
        Name: Eq + Hash + ToOwned<Owned = Key> + ?Sized,
        Key: Borrow<Name>,
    {
        let round = self.round;
        match self.seen.get_mut(key) {
            Some(seen) if seen.look == look => {
                seen.round = round;
                now.saturating_duration_since(seen.since) >= rest
            }
            Some(seen) => {
                *seen = Seen {
                    look,
                    since: now,
                    round,
                };
                rest.is_zero()
            }
            None => {
                if self.seen.len() < WATCHED {
                    let seen = Seen {
                        look,
                        since: now,
                        round,
                    };
                    self.seen.insert(key.to_owned(), seen);
                }
                rest.is_zero()
            }
        }
    }

    /// Ends a look at everything there is: what was not seen in it has gone and is forgotten.
    pub fn end_round(&mut self) {
        let round = self.round;
        self.seen.retain(|_, seen| seen.round == round);
        self.round += 1;
    }

    /// Tells whether a file is watched; one is not when there was no room.
    pub fn watches<Name>(&self, key: &Name) -> bool
    where
        Name: Eq + Hash + ?Sized,
        Key: Borrow<Name>,
    {
        self.seen.contains_key(key)
    }

    /// Names the files that are watched.
    pub fn watched(&self) -> impl Iterator<Item = &Key> {
        self.seen.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: Duration = Duration::from_secs(10);

    #[test]
    fn what_changes_more_often_than_it_may_rest_is_never_at_rest() {
        let start = Instant::now();
        let mut watch: RestWatch<String, u64> = RestWatch::default();
        for step in 0..100 {
            let now = start + REST / 2 * step;
            assert!(!watch.is_at_rest("a", u64::from(step), REST, now));
            watch.end_round();
        }
        let last = start + REST / 2 * 99;
        assert!(!watch.is_at_rest("a", 99, REST, last + REST - Duration::from_millis(1)));
        assert!(watch.is_at_rest("a", 99, REST, last + REST));
    }

    #[test]
    fn what_went_and_came_back_is_watched_anew() {
        let now = Instant::now();
        let mut watch: RestWatch<String, u64> = RestWatch::default();
        assert!(!watch.is_at_rest("a", 1, REST, now));
        watch.end_round();
        watch.end_round();
        assert!(!watch.is_at_rest("a", 1, REST, now + REST));
    }

    #[test]
    fn memory_is_bounded_and_what_has_no_room_waits() {
        let now = Instant::now();
        let mut watch: RestWatch<u64, u64> = RestWatch::default();
        let all = WATCHED as u64 + 100;
        for key in 0..all {
            assert!(!watch.is_at_rest(&key, 1, REST, now));
        }
        assert_eq!(watch.watched().count(), WATCHED);
        watch.end_round();
        // Those at rest are taken; then there is room for the others.
        for key in 0..all {
            let is_at_rest = watch.is_at_rest(&key, 1, REST, now + REST);
            assert_eq!(is_at_rest, key < WATCHED as u64);
        }
        watch.end_round();
        watch.end_round();
        for key in WATCHED as u64..all {
            assert!(!watch.is_at_rest(&key, 1, REST, now + REST));
            assert!(watch.is_at_rest(&key, 1, REST, now + REST * 2));
        }
    }
}
