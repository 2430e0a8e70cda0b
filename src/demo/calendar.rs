//! `calendar.localhost`: a trap. Every month has a month before it and one after it.

use super::page::{Page, links};

pub(crate) fn page(path: &str) -> Option<Page> {
    if path == "/" {
        let first = [("This month", "/calendar/2026/11/".to_owned())];
        return Some(Page::html("The calendar", &links(first)));
    }
    let mut parts = path.strip_prefix("/calendar/")?.splitn(3, '/');
    let year: u32 = parts.next()?.parse().ok()?;
    let month: u32 = parts.next()?.parse().ok()?;
    if !parts.next()?.is_empty() || !(1..=12).contains(&month) || !(1..=9998).contains(&year) {
        return None;
    }
    let (earlier, later) = (year * 12 + month - 2, year * 12 + month);
    let at = |months: u32| format!("/calendar/{}/{}/", months / 12, months % 12 + 1);
    Some(Page::html(
        &format!("{month}/{year}"),
        &links([("Earlier", at(earlier)), ("Later", at(later))]),
    ))
}
