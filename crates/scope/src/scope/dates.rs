//! Calendars without end: pages for dates nobody wrote anything about.
//!
//! A site may have a page for every month until the year 9999, each linking the next. An archive wants the newspaper
//! of 1944 and not the agenda of 2071. So dates are looked for in the URL, and the years in which they may lie are a
//! window: wide for any date, narrow where the URL speaks of a calendar.

use serde::{Deserialize, Serialize};

use crate::limit::Limit;

/// The years in which a date in a URL may lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct CalendarOrder {
    /// The first year of any date.
    pub from: u32,
    /// Years after that of the crawl, for any date.
    pub ahead: u32,
    /// Years before that of the crawl, where the URL speaks of a calendar.
    pub events_behind: Limit<u32>,
    /// Years after that of the crawl, where the URL speaks of a calendar.
    pub events_ahead: u32,
}

impl Default for CalendarOrder {
    fn default() -> CalendarOrder {
        CalendarOrder {
            from: 1600,
            ahead: 10,
            events_behind: Limit::None,
            events_ahead: 2,
        }
    }
}

/// A date outside its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StrayDate {
    pub(super) year: u32,
    pub(super) first: u32,
    pub(super) last: u32,
}

impl CalendarOrder {
    /// Returns the first date in `target`, a path with its query, that lies outside the window around `year`.
    pub(super) fn stray_date(&self, target: &str, year: u32) -> Option<StrayDate> {
        let (first, last) = if speaks_of_a_calendar(target) {
            (
                self.events_behind
                    .get()
                    .map_or(self.from, |years| year.saturating_sub(years)),
                year.saturating_add(self.events_ahead),
            )
        } else {
            (self.from, year.saturating_add(self.ahead))
        };
        let stray = dates(target.as_bytes()).find(|found| *found < first || *found > last);
        stray.map(|year| StrayDate { year, first, last })
    }
}

/// Words that make a URL one of a calendar, in the languages that our neighbours' software speaks.
const WORDS: [&str; 14] = [
    "calendar",
    "calendrier",
    "calendario",
    "kalender",
    "kalendar",
    "agenda",
    "events",
    "event-",
    "eventi",
    "evenements",
    "veranstaltungen",
    "viewcal",
    "tribe-bar-date",
    "tribe_event",
];

fn speaks_of_a_calendar(target: &str) -> bool {
    let target = target.to_ascii_lowercase();
    WORDS
        .iter()
        .any(|word| memchr::memmem::find(target.as_bytes(), word.as_bytes()).is_some())
}

/// Arguments whose number is a year.
const YEARS: [&[u8]; 8] = [
    b"year", b"yr", b"annee", b"jahr", b"anno", b"ano", b"cyear", b"calyear",
];

/// The years of the dates in a URL: `/2071/11/`, `2071-11-30`, `date=20711130`, `year=2071`.
fn dates(target: &[u8]) -> impl Iterator<Item = u32> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < target.len() {
            if !target[at].is_ascii_digit() {
                at += 1;
                continue;
            }
            let begin = at;
            at += target[begin..]
                .iter()
                .take_while(|byte| byte.is_ascii_digit())
                .count();
            if let Some(year) = year_at(target, begin, at) {
                return Some(year);
            }
        }
        None
    })
}

/// The year that the digits from `begin` to `end` are, if they are part of a date.
fn year_at(target: &[u8], begin: usize, end: usize) -> Option<u32> {
    let digits = &target[begin..end];
    let before = &target[..begin];
    let after = &target[end..];
    if is_after_a_name(before) && digits.len() <= 9 {
        return number(digits);
    }
    // `1.2026/11` is a version, `a2026` part of a word.
    let is_alone = before
        .last()
        .is_none_or(|byte| matches!(byte, b'/' | b'=' | b'-' | b'_' | b':'));
    if !is_alone {
        return None;
    }
    match digits.len() {
        4 | 5 => is_month_next(after).then(|| number(digits)).flatten(),
        // Only as the value of an argument: elsewhere eight digits are an identifier.
        8 if before.ends_with(b"=") => {
            let month = number(&digits[4..6])?;
            let day = number(&digits[6..])?;
            let is_date = (1..=12).contains(&month) && (1..=31).contains(&day);
            is_date.then(|| number(&digits[..4])).flatten()
        }
        _ => None,
    }
}

fn is_after_a_name(before: &[u8]) -> bool {
    let Some(before) = before.strip_suffix(b"=") else {
        return false;
    };
    YEARS.iter().any(|name| {
        let Some(front) = before
            .len()
            .checked_sub(name.len())
            .map(|at| before.split_at(at))
        else {
            return false;
        };
        front.1.eq_ignore_ascii_case(name)
            && front
                .0
                .last()
                .is_none_or(|byte| !byte.is_ascii_alphanumeric())
    })
}

/// Tells whether a separator and the number of a month follow.
fn is_month_next(after: &[u8]) -> bool {
    let Some((separator, rest)) = after.split_first() else {
        return false;
    };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    matches!(separator, b'/' | b'-' | b'_' | b'.')
        && (1..=2).contains(&digits)
        && number(&rest[..digits]).is_some_and(|month| (1..=12).contains(&month))
        // `/2071/11th-street` is none.
        && rest.get(digits).is_none_or(|byte| !byte.is_ascii_alphanumeric())
}

fn number(digits: &[u8]) -> Option<u32> {
    str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stray(target: &str) -> Option<u32> {
        CalendarOrder::default()
            .stray_date(target, 2026)
            .map(|date| date.year)
    }

    #[test]
    fn dates_far_away_are_strays() {
        for (target, year) in [
            ("/2071/11/", 2071),
            ("/archive/2071/1", 2071),
            ("/a/2071-11-30/", 2071),
            ("/a?date=2071-11", 2071),
            ("/a?date=20711130", 2071),
            ("/a?x=1&Year=2071&month=2", 2071),
            ("/a?year=12026", 12_026),
            ("/12026/11/", 12_026),
            ("/0017/03/", 17),
            ("/agenda/2029/01/", 2029),
            ("/agenda/1492/10/12", 1492),
            ("/events/2026-11-03/2029-01-01", 2029),
        ] {
            assert_eq!(stray(target), Some(year), "{target}");
        }
    }

    #[test]
    fn other_dates_and_numbers_are_none() {
        for target in [
            "/2026/11/",
            "/archives/1944/08/25/paris",
            "/1789/07/14",
            "/agenda/2027/01",
            "/agenda/2015/12/24",
            "/?tribe-bar-date=1999-01-01",
            "/2036/12/",
            "/product/9999",
            "/product/9999/42",
            "/product/9999/12th-street",
            "/v2071.11/doc",
            "/x2071/11",
            "/12071130/",
            "/a?id=99991399",
            "/a?id=123456/11",
            "/a?myyear=9999",
            "/a?year=",
            "/",
            "",
            "/9999/13/",
            "/9999/00/",
            "/20261/130/",
        ] {
            assert_eq!(stray(target), None, "{target}");
        }
    }

    #[test]
    fn an_order_may_leave_out_what_is_over() {
        let order = CalendarOrder {
            events_behind: Limit::At(10),
            ..CalendarOrder::default()
        };
        let stray = |target| order.stray_date(target, 2026).map(|date| date.year);
        assert_eq!(stray("/agenda/2015/12/24"), Some(2015));
        assert_eq!(stray("/agenda/2016/01"), None);
        assert_eq!(stray("/1944/08/25"), None);
    }

    #[test]
    fn an_endless_calendar_ends() {
        let months = (2026..100_000)
            .flat_map(|year| (1..=12).map(move |month| format!("/cal/{year}/{month:02}/")));
        assert_eq!(
            months.take_while(|path| stray(path).is_none()).count(),
            11 * 12
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*", close in "[/=\\-_.a-z0-9&]{0,40}", year: u32) {
            for text in [text, close] {
                let _ = CalendarOrder::default().stray_date(&text, year);
            }
        }
    }
}
