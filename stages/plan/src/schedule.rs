//! When a harvest is due: by the calendar or at an interval, from and until a time, and not on certain days.

use std::time::Duration;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};

use crate::calendar::CalendarExpression;

/// When a harvest is due.
#[derive(Debug, Clone, PartialEq)]
pub struct HarvestSchedule {
    /// At which times.
    pub times: ScheduleTimes,
    /// Not before this.
    pub from: Timestamp,
    /// Not after this.
    pub until: Option<Timestamp>,
    /// Not on these days, first and last.
    pub except: Vec<(Date, Date)>,
    /// Where the days are counted.
    pub zone: TimeZone,
}

/// At which times a harvest is due.
#[derive(Debug, Clone, PartialEq)]
pub enum ScheduleTimes {
    /// Once, when it begins.
    Once,
    /// By the calendar.
    Calendar(Box<CalendarExpression>),
    /// At this interval, counted from when it begins.
    Every(Duration),
}

/// How many times that were missed are counted.
const COUNTED: usize = 1000;

impl HarvestSchedule {
    /// Returns the first time after another.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let mut after = after;
        loop {
            let time = self.next_of_times(after)?;
            if self.until.is_some_and(|until| time > until) {
                return None;
            }
            match self.exception_end(time) {
                None => return Some(time),
                // On from the end of the days on which there is no run.
                Some(end) => after = end.max(time),
            }
        }
    }

    fn next_of_times(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.times {
            ScheduleTimes::Once => Some(self.from).filter(|time| *time > after),
            ScheduleTimes::Calendar(calendar) => {
                let before = self.from.checked_sub(1.nanosecond()).ok()?;
                calendar.next_after(after.max(before), &self.zone)
            }
            ScheduleTimes::Every(every) => {
                let every = i64::try_from(every.as_secs()).ok().filter(|s| *s > 0)?;
                let passed = after.as_second() - self.from.as_second();
                let runs = match after < self.from {
                    true => 0,
                    false => passed / every + 1,
                };
                let seconds = self
                    .from
                    .as_second()
                    .checked_add(runs.checked_mul(every)?)?;
                Timestamp::from_second(seconds).ok()
            }
        }
    }

    /// Returns the last moment of the days without a run that a time lies in.
    fn exception_end(&self, time: Timestamp) -> Option<Timestamp> {
        let day = time.to_zoned(self.zone.clone()).date();
        let fitting = self
            .except
            .iter()
            .filter(|(first, last)| (*first..=*last).contains(&day));
        let last = fitting.map(|(_, last)| *last).max()?;
        let next = last.checked_add(1.day()).ok()?.to_zoned(self.zone.clone());
        next.ok()?.timestamp().checked_sub(1.nanosecond()).ok()
    }

    /// Returns the last time until now, and not before `least`.
    pub fn last_until(&self, now: Timestamp, least: Timestamp) -> Option<Timestamp> {
        let least = least.max(self.from);
        // Ever further back, so that a run a year is found as fast as one a minute.
        let mut back = SignedDuration::from_hours(24);
        loop {
            let begin = now.checked_sub(back).unwrap_or(least).max(least);
            let mut at = begin.checked_sub(1.nanosecond()).ok()?;
            let mut last = None;
            while let Some(time) = self.next_after(at).filter(|time| *time <= now) {
                last = Some(time);
                at = time;
            }
            if last.is_some() || begin <= least {
                return last;
            }
            back = back.saturating_mul(8);
        }
    }

    /// Counts the times between two, at most a thousand.
    pub fn count_between(&self, after: Timestamp, before: Timestamp) -> usize {
        let mut at = after;
        let mut count = 0;
        while count < COUNTED
            && let Some(time) = self.next_after(at).filter(|time| *time < before)
        {
            count += 1;
            at = time;
        }
        count
    }

    /// Returns the shortest time between two of the next runs, where there are two.
    pub fn shortest_interval(&self, from: Timestamp) -> Option<SignedDuration> {
        let mut shortest = None;
        let mut at = self.next_after(from.min(self.from.checked_sub(1.nanosecond()).ok()?))?;
        for _ in 0..14 {
            let Some(next) = self.next_after(at) else {
                break;
            };
            let between = next.duration_since(at);
            shortest = Some(shortest.map_or(between, |known: SignedDuration| known.min(between)));
            at = next;
        }
        shortest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn schedule(times: ScheduleTimes) -> HarvestSchedule {
        HarvestSchedule {
            times,
            from: at("2026-11-20T06:00:00Z"),
            until: Some(at("2027-11-20T06:00:00Z")),
            except: vec![(
                jiff::civil::date(2026, 12, 24),
                jiff::civil::date(2026, 12, 26),
            )],
            zone: TimeZone::UTC,
        }
    }

    #[test]
    fn daily_by_the_calendar_with_days_off() {
        let daily = CalendarExpression::parse("*-*-* 06:00").unwrap();
        let daily = schedule(ScheduleTimes::Calendar(Box::new(daily)));
        let next = |text: &str| daily.next_after(at(text)).map(|time| time.to_string());
        // It may begin on the second.
        assert_eq!(
            next("2026-01-01T00:00:00Z").unwrap(),
            "2026-11-20T06:00:00Z"
        );
        assert_eq!(
            next("2026-11-20T06:00:00Z").unwrap(),
            "2026-11-21T06:00:00Z"
        );
        assert_eq!(
            next("2026-12-23T06:00:00Z").unwrap(),
            "2026-12-27T06:00:00Z"
        );
        assert_eq!(
            next("2027-11-19T06:00:00Z").unwrap(),
            "2027-11-20T06:00:00Z"
        );
        assert_eq!(next("2027-11-20T06:00:00Z"), None);
        let last = daily.last_until(at("2026-12-26T12:00:00Z"), at("2026-01-01T00:00:00Z"));
        assert_eq!(last, Some(at("2026-12-23T06:00:00Z")));
        assert_eq!(
            daily.last_until(at("2026-11-20T05:59:59Z"), daily.from),
            None
        );
        // The machine was down for a fortnight: thirteen were missed before the last one.
        let missed = daily.count_between(at("2027-01-01T06:00:00Z"), at("2027-01-15T06:00:00Z"));
        assert_eq!(missed, 13);
        assert_eq!(
            daily.shortest_interval(daily.from),
            Some(SignedDuration::from_hours(24))
        );
    }

    #[test]
    fn at_an_interval_from_its_beginning() {
        let weekly = schedule(ScheduleTimes::Every(Duration::from_secs(7 * 86_400)));
        assert_eq!(
            weekly.next_after(at("2026-01-01T00:00:00Z")),
            Some(weekly.from)
        );
        assert_eq!(
            weekly.next_after(weekly.from),
            Some(at("2026-11-27T06:00:00Z"))
        );
        assert_eq!(
            weekly.next_after(at("2026-12-20T00:00:00Z")),
            Some(at("2027-01-01T06:00:00Z"))
        );
        let once = schedule(ScheduleTimes::Once);
        assert_eq!(once.next_after(at("2026-01-01T00:00:00Z")), Some(once.from));
        assert_eq!(once.next_after(once.from), None);
        assert_eq!(
            once.last_until(at("2027-01-01T00:00:00Z"), once.from),
            Some(once.from)
        );
        assert_eq!(once.shortest_interval(once.from), None);
    }

    #[test]
    fn a_run_a_year_is_found_years_back() {
        let yearly = CalendarExpression::parse("*-10-18 03:00").unwrap();
        let mut yearly = schedule(ScheduleTimes::Calendar(Box::new(yearly)));
        yearly.until = None;
        let found = yearly.last_until(at("2029-10-17T00:00:00Z"), yearly.from);
        assert_eq!(found, Some(at("2028-10-18T03:00:00Z")));
        assert_eq!(
            yearly.last_until(at("2029-10-17T00:00:00Z"), at("2029-01-01T00:00:00Z")),
            None
        );
    }
}
