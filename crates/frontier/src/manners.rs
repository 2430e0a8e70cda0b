//! The one model of manners: when a group may be asked again.
//!
//! Pure arithmetic on times that are passed in. The rule it keeps: with one connection no request begins
//! before the rest after the last one is over; with several no two begin closer than the rest.

use std::time::Duration;

use crate::item::{Millis, Outcome, whole_millis};
use crate::settings::Manners;
use crate::starts::Starts;

/// Why a group rests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RestReason {
    /// It was never asked.
    #[default]
    New = 0,
    /// The shortest rest.
    MinDelay = 1,
    /// A multiple of the last fetch's duration.
    Duration = 2,
    /// The longest rest.
    MaxDelay = 3,
    /// Its robots.txt asks for it.
    CrawlDelay = 4,
    /// It is overloaded or could not be reached, and rests longer each time.
    Backoff = 5,
    /// It named the time itself.
    RetryAfter = 6,
    /// The crawl was restarted, and what was asked last is not known.
    Restart = 7,
    /// More came from it than may come in the time.
    Bandwidth = 8,
    /// Another job asks it.
    OtherJob = 9,
}

impl RestReason {
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        [
            Self::New,
            Self::MinDelay,
            Self::Duration,
            Self::MaxDelay,
            Self::CrawlDelay,
            Self::Backoff,
            Self::RetryAfter,
            Self::Restart,
            Self::Bandwidth,
            Self::OtherJob,
        ]
        .into_iter()
        .find(|reason| *reason as u8 == byte)
    }
}

/// How a group is paced.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Pace {
    /// It may not be asked before.
    pub(crate) next_allowed: Millis,
    /// When that was decided.
    pub(crate) stamp: Millis,
    /// When it was asked last.
    pub(crate) last_start: Millis,
    /// The rest in force, in milliseconds.
    pub(crate) delay: u64,
    pub(crate) reason: RestReason,
    /// How many times the back-off has grown, and one.
    pub(crate) level: u8,
    /// Failed connections in a row.
    pub(crate) strikes: u32,
    /// Until when the bytes that came are paid for. Not stored: what begins after a restart begins later.
    pub(crate) paid_until: Millis,
    /// What `next_allowed` and `last_start` are the sums of.
    pub(crate) starts: Starts,
}

impl Pace {
    /// Notes that the group is asked for an item now.
    pub(crate) fn begins(&mut self, manners: &Manners, now: Millis, item: u64) {
        let mut until = Millis(0);
        if manners.connections > 1 {
            let rest = self.delay.max(whole_millis(manners.min_delay));
            until = Millis(now.0.saturating_add(rest));
        }
        self.starts.begin(item, now, until);
        self.sum_up(now);
    }

    /// Decides when the group may be asked again after a fetch. Where nobody was asked, nothing ever began.
    pub(crate) fn ends(&mut self, manners: &Manners, now: Millis, item: u64, outcome: &Outcome) {
        let Some(duration) = outcome.fetch_duration else {
            self.starts.take_back(item);
            self.sum_up(now);
            return;
        };
        self.starts.end(item);
        (self.delay, self.reason) = rest(manners, duration, outcome.crawl_delay);
        self.judge(manners, outcome);
        // Who names the time knows it best, be it shorter than ours.
        let is_named = outcome.retry_after.is_some();
        let backoff = if is_named {
            0
        } else {
            backoff(manners, self.level)
        };
        if backoff > self.delay {
            (self.delay, self.reason) = (backoff, RestReason::Backoff);
        }
        match manners.connections {
            0 | 1 => self.starts.hold(Millis(now.0.saturating_add(self.delay))),
            _ if self.level > 0 => self.starts.hold(Millis(now.0.saturating_add(self.delay))),
            _ => self.starts.space(self.delay),
        }
        self.sum_up(now);
        if let Some(rate) = manners.bytes_per_second {
            let began = Millis(now.0.saturating_sub(whole_millis(duration)));
            let paid = self.pay(rate, began, outcome.bytes);
            self.hold(now, paid, RestReason::Bandwidth);
        }
        if let Some(asked) = outcome.retry_after {
            let until = now.after(asked.min(manners.retry_after_limit));
            self.hold(now, until, RestReason::RetryAfter);
        }
    }

    /// Lets the group rest until then, and says why if that is longer than it rests anyway.
    pub(crate) fn hold(&mut self, now: Millis, until: Millis, why: RestReason) {
        if until > self.next_allowed {
            self.reason = why;
        }
        self.starts.hold(until);
        self.sum_up(now);
    }

    /// Pays for bytes at so many a second, from when the fetch began and all earlier bytes were paid for.
    fn pay(&mut self, rate: u64, began: Millis, bytes: u64) -> Millis {
        let millis = (u128::from(bytes) * 1000).div_ceil(u128::from(rate.max(1)));
        let millis = millis.try_into().unwrap_or(u64::MAX);
        // The greatest rate is none, also for the last byte.
        let millis = if rate == u64::MAX { 0 } else { millis };
        let from = self.paid_until.max(began);
        self.paid_until = Millis(from.0.saturating_add(millis));
        self.paid_until
    }

    /// Makes up, after a restart, for what was asked since the last commit and is not known.
    ///
    /// A clock that was set back does not lengthen a wait: only what was left of it at the time counts.
    pub(crate) fn restarts(&mut self, manners: &Manners, opened: Millis, clean: bool) {
        let left = self.next_allowed.0.saturating_sub(self.stamp.0);
        let stored = self.next_allowed.0.min(opened.0.saturating_add(left));
        let last_start = self.last_start.min(opened);
        self.starts = Starts::quiet(last_start, Millis(stored));
        if !clean {
            let rest = self.delay.max(whole_millis(manners.min_delay));
            let until = Millis(opened.0.saturating_add(rest));
            if until.0 > stored {
                self.reason = RestReason::Restart;
                self.starts.hold(until);
            }
        }
        self.sum_up(opened);
    }

    fn sum_up(&mut self, now: Millis) {
        (self.last_start, self.next_allowed) = self.starts.sum();
        self.stamp = now;
    }

    /// Counts troubles, and forgets one of them with each success.
    fn judge(&mut self, manners: &Manners, outcome: &Outcome) {
        match outcome.status {
            _ if outcome.overloaded => self.raise(manners),
            // Failed to connect, connection lost, time-out before any answer.
            -4..=-2 => {
                self.strikes = self.strikes.saturating_add(1);
                if self.strikes >= manners.backoff_failures {
                    self.raise(manners);
                }
            }
            _ => {
                self.strikes = 0;
                self.level = self.level.saturating_sub(1);
            }
        }
    }

    /// One level up, unless the rest is as long as it gets: then a success shortens it at once.
    fn raise(&mut self, manners: &Manners) {
        let higher = self.level.saturating_add(1);
        if backoff(manners, higher) > backoff(manners, self.level) || self.level == 0 {
            self.level = higher;
        }
    }
}

/// The rest of an overloaded group, in milliseconds.
fn backoff(manners: &Manners, level: u8) -> u64 {
    let Some(times) = level.checked_sub(1) else {
        return 0;
    };
    // A factor that is no number counts as 1 too.
    let factor = manners.backoff_factor.max(1.0).powi(times.into());
    let grown = manners.backoff.as_secs_f64() * 1000.0 * factor;
    (grown as u64).min(whole_millis(manners.backoff_limit))
}

/// The rest after a fetch in quiet times, in milliseconds, and what decided it.
fn rest(manners: &Manners, duration: Duration, crawl_delay: Option<Duration>) -> (u64, RestReason) {
    let connections = f64::from(manners.connections.max(1));
    let multiple = manners.delay_factor * duration.as_secs_f64() * 1000.0 / connections;
    // A factor that is no number gives none; what is too large gives the largest.
    let mut rest = (multiple as u64, RestReason::Duration);
    let least = whole_millis(manners.min_delay);
    if rest.0 <= least {
        rest = (least, RestReason::MinDelay);
    }
    let most = whole_millis(manners.max_delay);
    if rest.0 > most {
        rest = (most, RestReason::MaxDelay);
    }
    let asked = crawl_delay
        .unwrap_or_default()
        .min(manners.crawl_delay_limit);
    if whole_millis(asked) > rest.0 {
        rest = (whole_millis(asked), RestReason::CrawlDelay);
    }
    rest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MANNERS: Manners = Manners {
        delay_factor: 5.0,
        min_delay: Duration::from_millis(3000),
        max_delay: Duration::from_millis(30_000),
        address_delay: Duration::from_millis(1000),
        crawl_delay_limit: Duration::from_secs(300),
        connections: 1,
        backoff: Duration::from_secs(10),
        backoff_factor: 2.0,
        backoff_limit: Duration::from_secs(60),
        backoff_failures: 2,
        retry_after_limit: Duration::from_secs(600),
        bytes_per_second: None,
    };

    fn after(pace: &mut Pace, now: u64, status: i32) -> u64 {
        pace.begins(&MANNERS, Millis(now), 1);
        let outcome = Outcome::done(status, 0, Duration::from_millis(100));
        pace.ends(&MANNERS, Millis(now), 1, &outcome);
        pace.next_allowed.0 - now
    }

    #[test]
    fn heritrix_formula() {
        let rest = |duration, crawl_delay: Option<u64>| {
            let crawl_delay = crawl_delay.map(Duration::from_millis);
            rest(&MANNERS, Duration::from_millis(duration), crawl_delay)
        };
        assert_eq!(rest(100, None), (3000, RestReason::MinDelay));
        assert_eq!(rest(1000, None), (5000, RestReason::Duration));
        assert_eq!(rest(60_000, None), (30_000, RestReason::MaxDelay));
        assert_eq!(rest(100, Some(10_000)), (10_000, RestReason::CrawlDelay));
        assert_eq!(
            rest(60_000, Some(900_000)),
            (300_000, RestReason::CrawlDelay)
        );
        let odd = Manners {
            delay_factor: f64::NAN,
            ..MANNERS
        };
        assert_eq!(
            super::rest(&odd, Duration::MAX, None),
            (3000, RestReason::MinDelay)
        );
    }

    #[test]
    fn trouble_doubles_the_rest_and_successes_halve_it_again() {
        let mut pace = Pace::default();
        assert_eq!(after(&mut pace, 100_000, 429), 10_000);
        assert_eq!(after(&mut pace, 200_000, 503), 20_000);
        assert_eq!(after(&mut pace, 300_000, 429), 40_000);
        assert_eq!(after(&mut pace, 400_000, 429), 60_000);
        assert_eq!(after(&mut pace, 500_000, 200), 40_000);
        assert_eq!(after(&mut pace, 600_000, 200), 20_000);
        assert_eq!(after(&mut pace, 700_000, 200), 10_000);
        assert_eq!(after(&mut pace, 800_000, 200), 3000);
    }

    #[test]
    fn the_rest_grows_by_its_factor_and_no_further_than_its_limit() {
        let manners = Manners {
            backoff_factor: 1.5,
            backoff_failures: 3,
            ..MANNERS
        };
        let mut pace = Pace::default();
        let mut after = |now: u64, status, overloaded| {
            let mut outcome = Outcome::done(status, 0, Duration::from_millis(100));
            outcome.overloaded = overloaded;
            pace.ends(&manners, Millis(now), 1, &outcome);
            pace.next_allowed.0 - now
        };
        // The caller says which answers mean it.
        assert_eq!(after(100_000, 429, false), 3000);
        assert_eq!(after(200_000, 500, true), 10_000);
        assert_eq!(after(300_000, 404, true), 15_000);
        assert_eq!(after(400_000, 500, true), 22_500);
        for round in 5..100 {
            after(round * 100_000, 500, true);
        }
        assert_eq!(after(10_000_000, 500, true), 60_000);
        // However long the trouble was, the first success shortens the rest.
        assert_eq!(after(10_100_000, 200, false), 50_625);
        for (round, rest) in [(102, 33_750), (103, 22_500), (104, 15_000), (105, 10_000)] {
            assert_eq!(after(round * 100_000, 200, false), rest);
        }
        assert_eq!(after(10_600_000, 200, false), 3000);
        assert_eq!(after(10_650_000, -2, false), 3000);
        assert_eq!(after(10_700_000, -3, false), 3000);
        assert_eq!(after(10_800_000, -4, false), 10_000);
        assert_eq!(after(10_900_000, -4, false), 15_000);
        for factor in [0.0, -1.0, f64::NAN] {
            let odd = Manners {
                backoff_factor: factor,
                ..MANNERS
            };
            assert_eq!(backoff(&odd, 200), 10_000);
        }
        assert_eq!(backoff(&MANNERS, u8::MAX), 60_000);
    }

    #[test]
    fn bytes_are_paid_for() {
        let manners = Manners {
            bytes_per_second: Some(1000),
            connections: 2,
            ..MANNERS
        };
        let mut pace = Pace::default();
        let fetch = |bytes| Outcome::done(200, bytes, Duration::from_secs(2));
        pace.begins(&manners, Millis(10_000), 1);
        pace.begins(&manners, Millis(13_000), 2);
        pace.ends(&manners, Millis(12_000), 1, &fetch(20_000));
        assert_eq!(pace.next_allowed, Millis(30_000));
        assert_eq!(pace.reason, RestReason::Bandwidth);
        // What comes at the same time is paid for behind it.
        pace.ends(&manners, Millis(15_000), 2, &fetch(5001));
        assert_eq!(pace.next_allowed, Millis(35_001));
        pace.ends(&manners, Millis(50_000), 3, &fetch(1));
        assert_eq!(pace.next_allowed, Millis(48_001));
        let free = Manners {
            bytes_per_second: Some(u64::MAX),
            ..MANNERS
        };
        let mut pace = Pace::default();
        pace.ends(&free, Millis(10_000), 1, &fetch(u64::MAX));
        assert_eq!(
            (pace.next_allowed, pace.reason),
            (Millis(20_000), RestReason::Duration)
        );
    }

    #[test]
    fn one_failed_connection_is_forgiven() {
        let mut pace = Pace::default();
        assert_eq!(after(&mut pace, 100_000, -2), 3000);
        assert_eq!(after(&mut pace, 200_000, -2), 10_000);
        assert_eq!(after(&mut pace, 300_000, -4), 20_000);
    }

    #[test]
    fn retry_after_is_kept_up_to_its_limit_and_is_not_the_next_rest() {
        let mut pace = Pace::default();
        let mut outcome = Outcome::done(503, 0, Duration::from_millis(100));
        outcome.retry_after = Some(Duration::from_secs(120));
        pace.ends(&MANNERS, Millis(1000), 1, &outcome);
        assert_eq!(pace.next_allowed, Millis(121_000));
        assert_eq!((pace.reason, pace.delay), (RestReason::RetryAfter, 3000));
        outcome.retry_after = Some(Duration::from_secs(100_000));
        pace.ends(&MANNERS, Millis(121_000), 1, &outcome);
        assert_eq!(pace.next_allowed, Millis(721_000));
        // A time that is shorter than ours counts too.
        outcome.retry_after = Some(Duration::from_secs(4));
        pace.ends(&MANNERS, Millis(721_000), 1, &outcome);
        assert_eq!(pace.next_allowed, Millis(725_000));
    }

    #[test]
    fn a_server_that_was_not_asked_owes_nothing() {
        let mut pace = Pace::default();
        let mut outcome = Outcome::done(-9998, 0, Duration::ZERO);
        outcome.fetch_duration = None;
        pace.ends(&MANNERS, Millis(1000), 1, &outcome);
        assert_eq!(pace.next_allowed, Millis(0));
    }

    #[test]
    fn a_restart_keeps_the_distance_whatever_the_clock_says() {
        let mut pace = Pace::default();
        after(&mut pace, 100_000, 200);
        let mut later = pace.clone();
        later.restarts(&MANNERS, Millis(101_000), true);
        assert_eq!(later.next_allowed, Millis(103_000));
        let mut unclean = pace.clone();
        unclean.restarts(&MANNERS, Millis(101_000), false);
        assert_eq!(unclean.next_allowed, Millis(104_000));
        let mut set_back = pace;
        set_back.restarts(&MANNERS, Millis(20_000), true);
        assert_eq!(set_back.next_allowed, Millis(23_000));
    }

    proptest! {
        /// Items begin and end at random; a third of them never asked anybody, and leave no trace.
        #[test]
        fn what_asked_nobody_never_was(
            connections in 1..5_u32,
            items in prop::collection::vec((0..3_u8, 1..400_u64, 0..3000_u64, 0..4_u8), 1..30),
        ) {
            let manners = Manners { connections, bytes_per_second: Some(1000), ..MANNERS };
            let mut events = Vec::new();
            let mut now = 1000;
            for (item, (asks, pause, duration, how)) in items.iter().enumerate() {
                now += pause;
                events.push((now, true, item as u64, *asks > 0, *how));
                events.push((now + duration, false, item as u64, *asks > 0, *how));
            }
            events.sort_unstable_by_key(|(at, begins, item, _, _)| (*at, !*begins, *item));
            let (mut pace, mut reference) = (Pace::default(), Pace::default());
            for (at, begins, item, asks, how) in events {
                let at = Millis(at);
                let mut outcome = Outcome::done(if how == 0 { 503 } else { 200 }, 900, Duration::from_millis(300));
                outcome.retry_after = (how == 1).then_some(Duration::from_secs(1));
                if !asks {
                    outcome.fetch_duration = None;
                }
                match (begins, asks) {
                    (true, _) => pace.begins(&manners, at, item),
                    (false, _) => pace.ends(&manners, at, item, &outcome),
                }
                match (begins, asks) {
                    (true, true) => reference.begins(&manners, at, item),
                    (false, true) => reference.ends(&manners, at, item, &outcome),
                    (_, false) => {}
                }
            }
            prop_assert_eq!(pace.next_allowed, reference.next_allowed);
            prop_assert_eq!(pace.last_start, reference.last_start);
            prop_assert_eq!((pace.delay, pace.level), (reference.delay, reference.level));
        }
    }
}
