//! Which of two versions stood at a moment between their captures.

use crate::archive_time::ArchiveTime;

/// The chances that one of two captures shows what stood at a moment between them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StandingChances {
    /// That of the capture before.
    pub before: f64,
    /// That of the capture after.
    pub after: f64,
}

/// Returns the chances at a moment between two captures with different content, for changes that come independently at a
/// rate (in changes a day). What is missing to one is the chance that something else stood there, which nobody captured.
///
/// Given that it changed at least once between them, it had not changed yet with the chance
/// e^(−λx)·(1−e^(−λy))/(1−e^(−λ(x+y))), x after the one and y before the other; and it had changed for the last time likewise.
/// So the nearer capture is always the likelier, at any rate; the rate says how sure that is.
pub fn standing_chances(
    before: ArchiveTime,
    moment: ArchiveTime,
    after: ArchiveTime,
    rate: f64,
) -> StandingChances {
    let since = moment.days_since(before).max(0.0);
    let until = after.days_since(moment).max(0.0);
    let whole = since + until;
    if whole <= 0.0 {
        return StandingChances {
            before: 1.0,
            after: 1.0,
        };
    }
    let changed = |days: f64| -(-rate * days).exp_m1();
    // At a rate near 0 it changed once, at any moment alike.
    if rate * whole < 1e-9 {
        return StandingChances {
            before: until / whole,
            after: since / whole,
        };
    }
    let chance = |near: f64, far: f64| (-rate * near).exp() * changed(far) / changed(whole);
    StandingChances {
        before: chance(since, until),
        after: chance(until, since),
    }
}

/// Returns how often a page has changed between two captures, on average, when they differ.
pub fn expected_changes(days: f64, rate: f64) -> f64 {
    let expected = rate * days;
    match expected < 1e-9 {
        true => 1.0,
        false => expected / -(-expected).exp_m1(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
    }

    #[test]
    fn the_nearer_capture_is_the_likelier() {
        let time = |digits| ArchiveTime::parse(digits).unwrap();
        let (before, after) = (time("20260101000000"), time("20260111000000"));
        let at = |digits, rate| standing_chances(before, time(digits), after, rate);
        let early = at("20260102000000", 0.1);
        // e^-.1 (1-e^-.9) / (1-e^-1), and e^-.9 (1-e^-.1) / (1-e^-1).
        close(early.before, 0.849_455);
        close(early.after, 0.061_207);
        let late = at("20260110000000", 0.1);
        close(late.after, early.before);
        // Nearly no change: one, at any moment alike.
        close(at("20260102000000", 1e-12).before, 0.9);
        // Very many: what stood in the middle nobody knows.
        assert!(at("20260106000000", 10.0).before < 1e-9);
        close(at("20260101000000", 0.1).before, 1.0);
    }

    #[test]
    fn captures_far_apart_have_missed_changes() {
        close(expected_changes(10.0, 0.1), 1.0 / (1.0 - (-1f64).exp()));
        close(expected_changes(0.0, 5.0), 1.0);
        close(expected_changes(100.0, 1.0), 100.0);
    }
}
