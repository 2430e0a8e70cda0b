//! The calendar of a URL: its years, and the months of one of them with the days that have a capture.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::capture_list::IndexedCapture;
use crate::moment::days_of;
use crate::pages::Words;
use crate::site::Question;
use crate::url_text::safe_url;

/// A year with captures.
#[derive(Debug, Serialize)]
pub(crate) struct YearView {
    year: String,
    count: u64,
    href: String,
}

/// A month of the calendar.
#[derive(Debug, Serialize)]
pub(crate) struct MonthView {
    name: String,
    weeks: Vec<Vec<Option<DayView>>>,
}

/// A day of the calendar; one without a capture leads nowhere.
#[derive(Debug, Serialize)]
struct DayView {
    day: i64,
    href: Option<String>,
    label: Option<String>,
}

pub(crate) fn years_of(
    question: &Question<'_>,
    captures: &[IndexedCapture],
    url: &str,
    stars: &str,
) -> Vec<YearView> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for capture in captures {
        *counts.entry(&capture.time[..4]).or_default() += 1;
    }
    let view = |(year, count): (&str, u64)| YearView {
        year: year.to_owned(),
        count,
        href: format!("/{}/{year}{stars}/{}", question.collection, safe_url(url)),
    };
    counts.into_iter().map(view).collect()
}

/// Returns the months of a year, those with a capture only. A day with one capture leads to it, one with more to the list.
pub(crate) fn months_of(
    question: &Question<'_>,
    of_year: &[&IndexedCapture],
    year: &str,
    url: &str,
    words: &Words<'_>,
) -> Vec<MonthView> {
    let mut days: BTreeMap<(i64, i64), Vec<&IndexedCapture>> = BTreeMap::new();
    for capture in of_year {
        let part = |from: usize, to: usize| capture.time[from..to].parse::<i64>().unwrap_or(1);
        days.entry((part(4, 6), part(6, 8)))
            .or_default()
            .push(capture);
    }
    let number: i64 = year.parse().unwrap_or(1970);
    let mut months: Vec<i64> = days.keys().map(|(month, _)| *month).collect();
    months.dedup();
    let view = |month: i64| {
        let first = days_of(number, month, 1);
        let next = match month {
            12 => days_of(number + 1, 1, 1),
            _ => days_of(number, month + 1, 1),
        };
        // The first of January 1970 was a Thursday; weeks begin on Monday.
        let blank = usize::try_from((first + 3).rem_euclid(7)).unwrap_or(0);
        let mut cells: Vec<Option<DayView>> = Vec::new();
        cells.resize_with(blank, || None);
        for day in 1..=(next - first) {
            cells.push(Some(day_view(
                question,
                days.get(&(month, day)),
                day,
                url,
                words,
            )));
        }
        let mut weeks = Vec::new();
        while !cells.is_empty() {
            let rest = cells.split_off(cells.len().min(7));
            cells.resize_with(7, || None);
            weeks.push(std::mem::replace(&mut cells, rest));
        }
        MonthView {
            name: words.month(usize::try_from(month).unwrap_or(1)).to_owned(),
            weeks,
        }
    };
    months
        .into_iter()
        .filter(|month| (1..=12).contains(month))
        .map(view)
        .collect()
}

fn day_view(
    question: &Question<'_>,
    captures: Option<&Vec<&IndexedCapture>>,
    day: i64,
    url: &str,
    words: &Words<'_>,
) -> DayView {
    let Some((first, count)) = captures.and_then(|all| Some((all.first()?, all.len()))) else {
        return DayView {
            day,
            href: None,
            label: None,
        };
    };
    let moment = first.moment();
    let (collection, time) = (question.collection, moment.as_str());
    let href = match count {
        1 => format!("/{collection}/{time}/{}", safe_url(url)),
        _ => format!("#t{time}"),
    };
    let label = format!("{}: {}", words.day(moment), words.captures(count as u64));
    DayView {
        day,
        href: Some(href),
        label: Some(label),
    }
}
