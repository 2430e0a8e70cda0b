//! The starts of a group's requests: what each demands of the next, so that one that never was can be undone.
//!
//! Pure arithmetic. The rule it keeps: whatever is taken back, the sums are as if it had never begun. It is
//! in memory only; without requests under way the sums say everything.

use crate::item::Millis;

/// When a request began, and until when no other may.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Start {
    at: Millis,
    until: Millis,
}

/// The requests under way, and the sum of those that are over.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Starts {
    over: Start,
    under_way: Vec<(u64, Start)>,
}

impl Starts {
    /// Nothing is under way; the last request began `at`, and the next may `until`.
    pub(crate) fn quiet(at: Millis, until: Millis) -> Self {
        Self {
            over: Start { at, until },
            under_way: Vec::new(),
        }
    }

    /// An item is asked for now.
    pub(crate) fn begin(&mut self, item: u64, at: Millis, until: Millis) {
        self.under_way.push((item, Start { at, until }));
    }

    /// An item was asked for, and that is over.
    pub(crate) fn end(&mut self, item: u64) {
        if let Some(start) = self.remove(item) {
            self.over.at = self.over.at.max(start.at);
            self.over.until = self.over.until.max(start.until);
        }
    }

    /// An item was not asked for after all.
    pub(crate) fn take_back(&mut self, item: u64) {
        self.remove(item);
    }

    fn remove(&mut self, item: u64) -> Option<Start> {
        let place = self.under_way.iter().position(|(other, _)| *other == item);
        place.map(|place| self.under_way.swap_remove(place).1)
    }

    /// Nothing may begin before `until`, whatever began before.
    pub(crate) fn hold(&mut self, until: Millis) {
        self.over.until = self.over.until.max(until);
    }

    /// Nothing may begin so many milliseconds after the last start, whichever that will turn out to be.
    pub(crate) fn space(&mut self, rest: u64) {
        let under_way = self.under_way.iter_mut().map(|(_, start)| start);
        for start in under_way.chain([&mut self.over]) {
            let until = Millis(start.at.0.saturating_add(rest));
            start.until = start.until.max(until);
        }
    }

    /// When the last request began, and from when on the next may.
    pub(crate) fn sum(&self) -> (Millis, Millis) {
        let all = self.under_way.iter().map(|(_, start)| *start);
        let sum = all.fold(self.over, |sum, start| Start {
            at: sum.at.max(start.at),
            until: sum.until.max(start.until),
        });
        (sum.at, sum.until)
    }
}
