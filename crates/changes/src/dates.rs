//! Dates as servers, feeds and sitemaps write them.

use jiff::civil::Date;

use crate::archive_time::ArchiveTime;

/// A `Last-Modified` this near to the access says "now", and tells nothing.
const NOW_SECONDS: i64 = 60;
/// No page of the web is older.
const OLDEST: &str = "19900101000000";

/// Reads a date as HTTP and RSS have it: `Thu, 01 Jan 2026 00:00:00 GMT`.
pub fn http_date(text: &str) -> Option<ArchiveTime> {
    let time = jiff::fmt::rfc2822::parse(text.trim()).ok()?;
    ArchiveTime::from_seconds(time.timestamp().as_second())
}

/// Reads a date as sitemaps and Atom have it, `2026-01-01T00:00:00Z`, or the day alone; or as HTTP has it.
pub fn any_date(text: &str) -> Option<ArchiveTime> {
    let text = text.trim();
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return ArchiveTime::from_seconds(time.as_second());
    }
    if let Some(day) = text.get(..10).filter(|_| text.len() == 10) {
        let day: Date = day.parse().ok()?;
        let digits = format!("{:04}{:02}{:02}000000", day.year(), day.month(), day.day());
        return ArchiveTime::parse(&digits);
    }
    http_date(text)
}

/// Returns the moment that a `Last-Modified` declares, if it can be believed: it is earlier than the access, and not "now".
pub fn declared_change(last_modified: Option<&str>, access: ArchiveTime) -> Option<ArchiveTime> {
    let declared = http_date(last_modified?)?;
    let oldest = ArchiveTime::parse(OLDEST)?;
    let is_believable = declared >= oldest && access.seconds() - declared.seconds() >= NOW_SECONDS;
    is_believable.then_some(declared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read_as_they_are_written() {
        let read = |text| any_date(text).map(|time| time.to_string());
        for (text, digits) in [
            ("Thu, 01 Jan 2026 00:00:00 GMT", "20260101000000"),
            ("Thu, 01 Jan 2026 02:00:00 +0200", "20260101000000"),
            ("2026-01-01", "20260101000000"),
            (" 2026-01-01T01:02:03+01:00 ", "20260101000203"),
            ("2026-01-01T00:00:00.5Z", "20260101000000"),
        ] {
            assert_eq!(read(text).as_deref(), Some(digits), "{text}");
        }
        for text in ["", "yesterday", "2026-13-01", "2026", "é026-01-01"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn a_declared_change_is_before_the_access_and_not_now() {
        let access = ArchiveTime::parse("20260101120000").unwrap();
        let declared = |text| declared_change(Some(text), access).map(|time| time.to_string());
        assert_eq!(
            declared("Thu, 01 Jan 2026 11:00:00 GMT").as_deref(),
            Some("20260101110000")
        );
        assert_eq!(declared("Thu, 01 Jan 2026 11:59:30 GMT"), None);
        assert_eq!(declared("Fri, 02 Jan 2026 11:59:30 GMT"), None);
        assert_eq!(declared("Thu, 01 Jan 1970 00:00:00 GMT"), None);
        assert_eq!(declared_change(None, access), None);
    }
}
