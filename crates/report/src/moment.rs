//! A moment, as logs and reports write it.

use std::fmt;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

/// The last millisecond that has a year of four digits.
const LAST: u64 = 253_402_300_799_999;

/// Milliseconds since 1970.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Moment(pub u64);

impl Moment {
    /// Returns it as `2026-11-16T01:00:00.123Z`.
    #[must_use]
    pub fn iso(self) -> String {
        self.to_string()
    }

    /// Returns it as `2026-11-16T01:00:00Z`.
    #[must_use]
    pub fn iso_seconds(self) -> String {
        let iso = self.iso();
        format!("{}Z", &iso[..19])
    }

    /// Returns it as 17 digits, `20261116010000123`.
    #[must_use]
    pub fn digits17(self) -> String {
        self.iso().chars().filter(char::is_ascii_digit).collect()
    }

    /// Returns it as 14 digits, `20261116010000`.
    #[must_use]
    pub fn digits14(self) -> String {
        let mut digits = self.digits17();
        digits.truncate(14);
        digits
    }

    /// Reads what [`Moment::iso`] writes; a fraction may be missing or have other lengths.
    #[must_use]
    pub fn parse_iso(text: &str) -> Option<Self> {
        let moment: Timestamp = text.parse().ok()?;
        u64::try_from(moment.as_millisecond()).ok().map(Self)
    }

    /// Reads what [`Moment::digits17`] writes.
    #[must_use]
    pub fn parse_digits17(text: &str) -> Option<Self> {
        if text.len() != 17 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        Self::parse_iso(&format!(
            "{}-{}-{}T{}:{}:{}.{}Z",
            &text[..4],
            &text[4..6],
            &text[6..8],
            &text[8..10],
            &text[10..12],
            &text[12..14],
            &text[14..]
        ))
    }
}

impl fmt::Display for Moment {
    /// Writes it as [`Moment::iso`] does. What lies behind the year 9999 is written as that year's end.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = i64::try_from(self.0.min(LAST)).expect("the year 9999 is in range");
        // jiff's last timestamp lies a day before the end of the year, so that every time zone can show it.
        let moment = Timestamp::from_millisecond(milliseconds).unwrap_or(Timestamp::MAX);
        let civil = moment.to_zoned(TimeZone::UTC).datetime();
        write!(
            out,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
            civil.year(),
            civil.month(),
            civil.day(),
            civil.hour(),
            civil.minute(),
            civil.second(),
            civil.millisecond()
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn moments_are_written_three_ways() {
        let moment = Moment(1_794_790_800_123);
        assert_eq!(moment.iso(), "2026-11-16T01:00:00.123Z");
        assert_eq!(moment.iso_seconds(), "2026-11-16T01:00:00Z");
        assert_eq!(moment.digits17(), "20261116010000123");
        assert_eq!(moment.digits14(), "20261116010000");
        assert_eq!(Moment(0).iso(), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn the_end_of_time_has_four_digits_too() {
        for moment in [LAST, LAST + 1, u64::MAX] {
            assert!(Moment(moment).iso().starts_with("9999-12-3"));
            assert_eq!(Moment(moment).digits17().len(), 17);
        }
    }

    #[test]
    fn nonsense_is_no_moment() {
        for text in [
            "",
            "-",
            "2026",
            "2026111601000012",
            "2026111601000012é",
            "20261399010000123",
        ] {
            assert_eq!(Moment::parse_digits17(text), None, "{text}");
            assert_eq!(Moment::parse_iso(text), None, "{text}");
        }
        assert_eq!(Moment::parse_iso("1969-12-31T23:59:59Z"), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(milliseconds in 0..LAST - 86_400_000 * 2) {
            let moment = Moment(milliseconds);
            prop_assert_eq!(Moment::parse_iso(&moment.iso()), Some(moment));
            prop_assert_eq!(Moment::parse_digits17(&moment.digits17()), Some(moment));
        }
    }
}
