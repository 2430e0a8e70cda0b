//! Calendar expressions as systemd has them in `OnCalendar=`: `Mon..Fri 06:00`, `*-*-01 03:00 Europe/Paris`, `weekly`.
//!
//! What is taken and what comes next is what `systemd-analyze calendar` says; a test asks it. Fractions of a second and `@`
//! seconds are not taken: no harvest needs them.

use jiff::civil::{Date, DateTime, Time, date};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use crate::zone::zone_named;

/// No time after this year is looked for; systemd's own limit.
const LAST_YEAR: i16 = 2199;

/// A calendar expression.
#[derive(Debug, Clone, PartialEq)]
pub struct CalendarExpression {
    /// Which days of the week, Monday first.
    weekdays: [bool; 7],
    years: Chain,
    months: Chain,
    days: Chain,
    /// The days count from the end of the month.
    is_from_end: bool,
    hours: Chain,
    minutes: Chain,
    seconds: Chain,
    /// The zone in the expression itself.
    pub zone: Option<TimeZone>,
}

/// The values a part of the time may have; none in it means all.
#[derive(Debug, Clone, PartialEq, Default)]
struct Chain(Vec<Part>);

/// One value, or several at equal distances.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Part {
    start: i16,
    stop: Option<i16>,
    repeat: i16,
}

/// The short words, and what they stand for.
const WORDS: [(&str, &str); 13] = [
    ("minutely", "*-*-* *:*:00"),
    ("hourly", "*-*-* *:00:00"),
    ("daily", "*-*-* 00:00:00"),
    ("monthly", "*-*-01 00:00:00"),
    ("weekly", "Mon *-*-* 00:00:00"),
    ("annually", "*-01-01 00:00:00"),
    ("yearly", "*-01-01 00:00:00"),
    ("anually", "*-01-01 00:00:00"),
    ("quarterly", "*-01,04,07,10-01 00:00:00"),
    ("semiannually", "*-01,07-01 00:00:00"),
    ("semi-annually", "*-01,07-01 00:00:00"),
    ("biannually", "*-01,07-01 00:00:00"),
    ("bi-annually", "*-01,07-01 00:00:00"),
];

const WEEKDAYS: [&str; 7] = [
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
];

impl CalendarExpression {
    /// Reads an expression.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let whole = text.trim();
        let (mut rest, zone) = match whole.rsplit_once(' ') {
            Some((before, zone)) => match zone_named(zone) {
                Some(found) => (before.trim_end(), Some(found)),
                None => (whole, None),
            },
            None => (whole, None),
        };
        if rest.is_empty() {
            return Err(format!("{text:?} is empty"));
        }
        let lower = rest.to_ascii_lowercase();
        if let Some((_, long)) = WORDS.iter().find(|(word, _)| *word == lower) {
            rest = long;
        }
        let bad = |what: &str| format!("{text:?} is no calendar expression: {what}");
        let mut expression = Self {
            weekdays: [true; 7],
            years: Chain::default(),
            months: Chain::default(),
            days: Chain::default(),
            is_from_end: false,
            hours: Chain::one(0),
            minutes: Chain::one(0),
            seconds: Chain::one(0),
            zone,
        };
        if rest.starts_with(|c: char| c.is_ascii_alphabetic()) {
            let (days, after) = rest.split_once(' ').unwrap_or((rest, ""));
            expression.weekdays = weekdays(days).ok_or_else(|| bad("the days of the week"))?;
            rest = after.trim_start();
        }
        let (day, time) = match rest.split_once(' ') {
            Some((day, time)) => (day, time.trim_start()),
            None if rest.contains(':') => ("", rest),
            None => (rest, ""),
        };
        if !day.is_empty() {
            expression.read_day(day).ok_or_else(|| bad("the day"))?;
        }
        if !time.is_empty() {
            expression.read_time(time).ok_or_else(|| bad("the time"))?;
        }
        match expression.is_valid() {
            true => Ok(expression),
            false => Err(bad("a number is too large or too small")),
        }
    }

    fn read_day(&mut self, text: &str) -> Option<()> {
        let (before, day, is_from_end) = match text.rsplit_once('~') {
            Some((before, day)) => (before, day, true),
            None => {
                let (before, day) = text.rsplit_once('-')?;
                (before, day, false)
            }
        };
        let (year, month) = before.split_once('-').unwrap_or(("*", before));
        self.years = Chain::parse(year)?.of_years();
        self.months = Chain::parse(month)?;
        self.days = Chain::parse(day)?;
        self.is_from_end = is_from_end;
        Some(())
    }

    fn read_time(&mut self, text: &str) -> Option<()> {
        let parts: Vec<&str> = text.split(':').collect();
        let (hours, minutes, seconds) = match parts[..] {
            [hours, minutes] => (hours, minutes, "0"),
            [hours, minutes, seconds] => (hours, minutes, seconds),
            _ => return None,
        };
        self.hours = Chain::parse(hours)?;
        self.minutes = Chain::parse(minutes)?;
        // A star for seconds is every second, as any other.
        self.seconds = Chain::parse(seconds)?;
        Some(())
    }

    fn is_valid(&self) -> bool {
        self.years.is_within(1970, LAST_YEAR, false)
            && self.months.is_within(1, 12, false)
            && self.days.is_within(1, 31, self.is_from_end)
            && self.hours.is_within(0, 23, false)
            && self.minutes.is_within(0, 59, false)
            && self.seconds.is_within(0, 59, false)
    }

    /// Returns the first time after another; none where there is none any more. `zone` counts where the expression names none.
    pub fn next_after(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let zone = self.zone.as_ref().unwrap_or(zone);
        let mut from = after.to_zoned(zone.clone()).datetime();
        loop {
            let found = self.next_civil(from)?;
            let ambiguous = zone.to_ambiguous_timestamp(found);
            // A clock that is put forward does not show this time: there is no run, as systemd has it.
            if !matches!(ambiguous.offset(), jiff::tz::AmbiguousOffset::Gap { .. })
                && let Ok(time) = ambiguous.compatible()
                && time > after
            {
                return Some(time);
            }
            from = found;
        }
    }

    /// Returns the first time on the clock after another.
    fn next_civil(&self, after: DateTime) -> Option<DateTime> {
        let mut day = after.date();
        let mut least = after.checked_add(1.second()).ok()?;
        if least.date() != day {
            day = least.date();
        }
        least = least.with().subsec_nanosecond(0).build().ok()?;
        loop {
            day = self.next_day(day)?;
            let time = match day == least.date() {
                true => least.time(),
                false => Time::midnight(),
            };
            if let Some(time) = self.next_time(time) {
                return Some(day.to_datetime(time));
            }
            day = day.checked_add(1.day()).ok()?;
        }
    }

    /// Returns the first day that fits, from one on.
    fn next_day(&self, from: Date) -> Option<Date> {
        let mut day = from;
        while day.year() <= LAST_YEAR {
            if !self.years.has(day.year()) {
                day = date(day.year() + 1, 1, 1);
                continue;
            }
            if !self.months.has(i16::from(day.month())) {
                day = day.first_of_month().checked_add(1.month()).ok()?;
                continue;
            }
            let weekday = day.weekday().to_monday_zero_offset();
            let last = i16::from(day.days_in_month());
            let number = i16::from(day.day());
            let fits = match self.is_from_end {
                true => self.days.has_from_end(number, last),
                false => self.days.has(number),
            };
            if fits && self.weekdays[usize::from(weekday.unsigned_abs())] {
                return Some(day);
            }
            day = day.checked_add(1.day()).ok()?;
        }
        None
    }

    /// Returns the first time of a day that fits, from one on.
    fn next_time(&self, from: Time) -> Option<Time> {
        let (hour, minute, second) = (from.hour(), from.minute(), from.second());
        let mut next_hour = self.hours.next(i16::from(hour), 23);
        while let Some(h) = next_hour {
            let is_first = h == i16::from(hour);
            let mut next_minute = self
                .minutes
                .next(if is_first { i16::from(minute) } else { 0 }, 59);
            while let Some(m) = next_minute {
                let is_first = is_first && m == i16::from(minute);
                let least = if is_first { i16::from(second) } else { 0 };
                if let Some(s) = self.seconds.next(least, 59) {
                    let part = |number: i16| i8::try_from(number).unwrap_or(0);
                    return Time::new(part(h), part(m), part(s), 0).ok();
                }
                next_minute = self.minutes.next(m + 1, 59);
            }
            next_hour = self.hours.next(h + 1, 23);
        }
        None
    }
}

impl Chain {
    fn one(value: i16) -> Self {
        Self(vec![Part {
            start: value,
            stop: None,
            repeat: 0,
        }])
    }

    fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::default());
        }
        let parts: Option<Vec<Part>> = text.split(',').map(Part::parse).collect();
        parts.map(Self)
    }

    /// Two figures mean a year of our time.
    fn of_years(mut self) -> Self {
        let full = |year: i16| match year {
            0..70 => 2000 + year,
            70..100 => 1900 + year,
            _ => year,
        };
        for part in &mut self.0 {
            part.start = full(part.start);
            part.stop = part.stop.map(full);
        }
        self
    }

    fn is_within(&self, from: i16, to: i16, is_from_end: bool) -> bool {
        // A day may not be missing in any month when it counts from the end.
        let to = if is_from_end { to - 3 } else { to };
        self.0.iter().all(|part| {
            let range = from..=to;
            range.contains(&part.start)
                && part.repeat <= to - from
                && match part.stop {
                    Some(stop) => range.contains(&stop) && part.start + part.repeat <= stop,
                    None if is_from_end => part.start - part.repeat >= from,
                    None => part.start + part.repeat <= to,
                }
        })
    }

    fn has(&self, value: i16) -> bool {
        self.0.is_empty() || self.0.iter().any(|part| part.has(value))
    }

    /// Whether a day fits that counts from the end of a month: 1 is the last, and repetitions go on towards the end.
    fn has_from_end(&self, day: i16, last: i16) -> bool {
        let from_end = |number: i16| last + 1 - number;
        self.0.is_empty()
            || self.0.iter().any(|part| {
                let (start, stop) = match part.stop {
                    Some(stop) => (from_end(stop), Some(from_end(part.start))),
                    None => (from_end(part.start), None),
                };
                let turned = Part {
                    start,
                    stop,
                    repeat: part.repeat,
                };
                turned.has(day)
            })
    }

    /// Returns the first value from `least` on.
    fn next(&self, least: i16, most: i16) -> Option<i16> {
        (least..=most).find(|value| self.has(*value))
    }
}

impl Part {
    fn parse(text: &str) -> Option<Self> {
        let (values, repeat) = match text.split_once('/') {
            Some((values, repeat)) => (values, Some(number(repeat)?)),
            None => (text, None),
        };
        if repeat == Some(0) {
            return None;
        }
        let (start, stop) = match values.split_once("..") {
            Some((start, stop)) => (number(start)?, Some(number(stop)?)),
            None => (number(values)?, None),
        };
        let usual = if stop.is_some() { 1 } else { 0 };
        Some(Self {
            start,
            stop,
            repeat: repeat.unwrap_or(usual),
        })
    }

    fn has(self, value: i16) -> bool {
        match value - self.start {
            0 => true,
            above if above > 0 && self.repeat > 0 => {
                above % self.repeat == 0 && self.stop.is_none_or(|stop| value <= stop)
            }
            _ => false,
        }
    }
}

fn number(text: &str) -> Option<i16> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

fn weekdays(text: &str) -> Option<[bool; 7]> {
    let mut days = [false; 7];
    // A comma behind the days is allowed.
    for range in text.strip_suffix(',').unwrap_or(text).split(',') {
        match range.split_once("..") {
            Some((first, last)) => {
                let (first, last) = (weekday(first)?, weekday(last)?);
                if first >= last {
                    return None;
                }
                days[first..=last].fill(true);
            }
            None => days[weekday(range)?] = true,
        }
    }
    Some(days)
}

fn weekday(text: &str) -> Option<usize> {
    let lower = text.to_ascii_lowercase();
    WEEKDAYS
        .iter()
        .position(|name| *name == lower || (lower.len() == 3 && name.starts_with(&lower)))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// What is asked of systemd too. (Not `*:00/7`, before midnight: systemd 252 leaves out the 00:00 after it.)
    const EXPRESSIONS: &[&str] = &[
        "minutely",
        "hourly",
        "daily",
        "monthly",
        "weekly",
        "yearly",
        "annually",
        "quarterly",
        "semiannually",
        "Daily",
        "*-*-* 06:00",
        "*-*-* 06:00:30",
        "06:00",
        "*:0/15",
        "Mon..Fri *-*-* 06:00",
        "Mon,Wed,Fri 12:30",
        "Sat,Sun",
        "Monday 00:00",
        "mon *-*-* 00:00:00",
        "Mon..Wed,Sat 08:00",
        "Thu,Fri 2027-*-1,5 11:12:13",
        "*-*-01 03:00",
        "*-*-01,15 03:00",
        "*-01,04,07,10-01 00:00:00",
        "*-*~01 23:00",
        "*-02~03 00:00",
        "Mon *-05~07/1",
        "*-*~1..3 04:00",
        "*-02-29 12:00",
        "2028-02-29",
        "2027-03-05 05:40",
        "27-03-05 05:40",
        "03-05 05:40",
        "*-*-1/10 00:00",
        "*-*-5..20/5 00:00",
        "*-1..12/3-1",
        "0/2:00",
        "8..18/2:30",
        "*-*-* *:*:0/20",
        "2027..2029-06-01 00:00",
        "Sun *-*-1..7 10:00",
        "Fri *-*-13 13:13:13",
        "*-12-25",
        "*-*-31 00:00",
        "Tue *-*-* 06:00 Europe/Paris",
        "*-*-* 02:30 Europe/Paris",
        "hourly Europe/Paris",
        "*-*-* 03:00 UTC",
        "2020-01-01 00:00",
        "*-02-30 00:00",
        "*-*-* 23:59:59",
        "*-10-25 02:30 Europe/Paris",
        "*-03-28 02:30 Europe/Paris",
        "1..5:10..20/5",
        "Mon",
        "Sat..Sun 20:00",
    ];
    /// What systemd refuses, and so do we.
    const REFUSED: &[&str] = &[
        "",
        "never",
        "*",
        "5",
        "*-*-32",
        "*-13-01",
        "25:00",
        "06:60",
        "06:00:61",
        "*/2:00",
        "Mon..",
        "Fri..Mon 06:00",
        "Mun 06:00",
        "*-*-* 06",
        "06:00:00:00",
        "*-*-*-*",
        "*-*~0",
        "*-*~30",
        "*-*-1/0",
        "*-*-1/40",
        "10..5:00",
        "*-*-* 06:00 Europe/Nowhere",
        "06:00 daily",
        "2027-01-01 2028-01-01",
        "1,:00",
        "a",
        "2027-03-05T05:40:07",
        "-1-1 00:00",
    ];

    fn systemd(expression: &str, from: &str) -> Option<Option<Vec<Timestamp>>> {
        let mut command = Command::new("systemd-analyze");
        command
            .env("TZ", "UTC")
            .args(["calendar", "--iterations=6"]);
        command.arg(format!("--base-time={from}")).arg(expression);
        let output = match command.output() {
            Ok(output) => output,
            Err(_) if std::env::var_os("ECLUSE_MUST").is_none() => return None,
            Err(error) => panic!("systemd-analyze: {error}"),
        };
        if !output.status.success() {
            return Some(None);
        }
        let mut times = Vec::new();
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            let Some((label, value)) = line.trim().split_once(": ") else {
                continue;
            };
            let (label, value) = (label.trim(), value.trim());
            let is_elapse = label == "Next elapse" || label.starts_with("Iter. #");
            if is_elapse || label == "(in UTC)" {
                if value == "never" {
                    break;
                }
                let mut words = value.split(' ').skip(1);
                let text = format!("{}T{}Z", words.next().unwrap(), words.next().unwrap());
                if label == "(in UTC)" {
                    times.pop();
                }
                times.push(text.parse().unwrap());
            }
        }
        Some(Some(times))
    }

    #[test]
    fn what_comes_next_is_what_systemd_says() {
        let mut asked = 0;
        for from in [
            "2026-11-17 20:19:04 UTC",
            "2027-03-27 12:00:00 UTC",
            "2028-02-28 23:59:59 UTC",
            "2026-10-24 20:00:00 UTC",
        ] {
            let begin: Timestamp = format!("{}Z", from[..19].replace(' ', "T"))
                .parse()
                .unwrap();
            for text in EXPRESSIONS {
                let Some(expected) = systemd(text, from) else {
                    return;
                };
                let expected = expected.unwrap_or_else(|| panic!("systemd refuses {text:?}"));
                let expression = CalendarExpression::parse(text).unwrap();
                let mut times = Vec::new();
                let mut at = begin;
                while times.len() < 6
                    && let Some(next) = expression.next_after(at, &TimeZone::UTC)
                {
                    times.push(next);
                    at = next;
                }
                assert_eq!(times, expected, "{text:?} from {from}");
                asked += 1;
            }
        }
        for text in REFUSED {
            assert!(CalendarExpression::parse(text).is_err(), "{text:?}");
            assert_eq!(
                systemd(text, "2026-11-17 20:19:04 UTC"),
                Some(None),
                "{text:?}"
            );
        }
        eprintln!("measured: {asked} expressions as systemd has them");
    }
}
