//! How far a check is and how fast: for the log, for `status`, and for whoever looks at a terminal.

use std::time::{Duration, Instant};

/// Counts what is done.
pub(crate) struct CheckTally {
    /// What there is, where that is known.
    total: Option<u64>,
    done: u64,
    /// Of these, how many were done before.
    before: u64,
    begun: Instant,
    told: Instant,
}

impl CheckTally {
    pub(crate) fn new(total: Option<u64>, before: u64) -> Self {
        let now = Instant::now();
        Self {
            total,
            done: before,
            before,
            begun: now,
            told: now,
        }
    }

    pub(crate) fn count(&mut self) {
        self.done += 1;
    }

    /// Tells whether it is time to tell again.
    pub(crate) fn is_due(&mut self, every: Duration) -> bool {
        let is_due = self.told.elapsed() >= every;
        if is_due {
            self.told = Instant::now();
        }
        is_due
    }

    /// Says how far it is; `part` of the whole where the whole is not counted in names.
    pub(crate) fn text(&self, what: &str, part: Option<f64>) -> String {
        say(
            what,
            self.done,
            self.total,
            self.done - self.before,
            self.begun.elapsed(),
            part,
        )
    }
}

fn say(
    what: &str,
    done: u64,
    total: Option<u64>,
    lately: u64,
    took: Duration,
    part: Option<f64>,
) -> String {
    let rate = lately as f64 / took.as_secs_f64().max(0.001);
    let of = total.map_or_else(String::new, |total| format!(" of {}", grouped(total)));
    let mut text = format!(
        "{}{of} {what}, {} a second",
        grouped(done),
        grouped(rate as u64)
    );
    let left = match (total, part) {
        (Some(total), _) if rate > 0.0 => Some(total.saturating_sub(done) as f64 / rate),
        (None, Some(part)) if part > 0.0 => Some(took.as_secs_f64() * (1.0 - part) / part),
        _ => None,
    };
    if let Some(left) = left {
        text.push_str(&format!(", {} left", span(left as u64)));
    }
    text
}

fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h {:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

/// A number with commas.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_and_time_left_are_those_of_this_run() {
        let took = Duration::from_secs(10);
        assert_eq!(
            say("names", 60_000, Some(100_000), 20_000, took, None),
            "60,000 of 100,000 names, 2,000 a second, 20s left"
        );
        assert_eq!(
            say("names", 1234, None, 1234, took, Some(0.1)),
            "1,234 names, 123 a second, 1m 30s left"
        );
        assert_eq!(
            say("names", 0, Some(5), 0, took, None),
            "0 of 5 names, 0 a second"
        );
        assert_eq!(span(7_384), "2h 03m");
    }
}
