//! A moment to the second, as 14 digits and as a number that can be reckoned with. UTC throughout.

use std::fmt;

/// Days and weekends are two patterns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DayClass {
    /// Monday to Friday.
    Weekday,
    /// Saturday and Sunday.
    Weekend,
}

impl DayClass {
    /// Both, in the order they are written.
    pub const ALL: [Self; 2] = [Self::Weekday, Self::Weekend];
}

/// A moment to the second, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArchiveTime {
    seconds: i64,
}

/// The first second of the year 1, and the last of 9999.
const FIRST_SECOND: i64 = -62_135_596_800;
const LAST_SECOND: i64 = 253_402_300_799;
/// Seconds of a day.
pub(crate) const DAY_SECONDS: i64 = 86_400;

impl ArchiveTime {
    /// Returns the moment so many seconds after 1970 began; none outside the years 1 to 9999.
    pub fn from_seconds(seconds: i64) -> Option<Self> {
        // A plan asks this some hundred times for each page: the calendar would be slow.
        (FIRST_SECOND..=LAST_SECOND)
            .contains(&seconds)
            .then_some(Self { seconds })
    }

    /// Reads 14 digits, or the first 14 of 17; none where the calendar has no such day.
    pub fn parse(digits: &str) -> Option<Self> {
        let bytes = digits.as_bytes();
        if !matches!(bytes.len(), 14 | 17) || !bytes.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let number = |from: usize, to: usize| {
            let digits = bytes[from..to].iter();
            digits.fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'))
        };
        let (year, month, day) = (number(0, 4), number(4, 6), number(6, 8));
        let (hour, minute, second) = (number(8, 10), number(10, 12), number(12, 14));
        // A leap second is the second before it.
        let second = if second == 60 { 59 } else { second };
        if year < 1 || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let days = days_of(year, month, day);
        if civil(days) != (year, month, day) {
            return None;
        }
        let seconds = days * DAY_SECONDS + hour * 3600 + minute * 60 + second;
        Some(Self { seconds })
    }

    /// Returns the seconds since 1970 began.
    pub fn seconds(self) -> i64 {
        self.seconds
    }

    /// Returns how many days lie between an earlier moment and this one.
    pub fn days_since(self, earlier: Self) -> f64 {
        (self.seconds - earlier.seconds) as f64 / DAY_SECONDS as f64
    }

    /// Returns whether its day is one of a weekend.
    pub fn class(self) -> DayClass {
        // The first day of 1970 was a Thursday.
        match (self.seconds.div_euclid(DAY_SECONDS) + 3).rem_euclid(7) {
            5 | 6 => DayClass::Weekend,
            _ => DayClass::Weekday,
        }
    }

    /// Returns in which of so many periods of its day it lies.
    pub fn period(self, periods: usize) -> usize {
        let second = self.seconds.rem_euclid(DAY_SECONDS);
        let period = second * periods as i64 / DAY_SECONDS;
        usize::try_from(period).expect("a second of a day is not negative")
    }
}

impl fmt::Display for ArchiveTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil(self.seconds.div_euclid(DAY_SECONDS));
        let second = self.seconds.rem_euclid(DAY_SECONDS);
        let (hour, minute) = (second / 3600, second / 60 % 60);
        write!(
            f,
            "{year:04}{month:02}{day:02}{hour:02}{minute:02}{:02}",
            second % 60
        )
    }
}

/// Days since 1970 began, of a day of the Gregorian calendar (after Howard Hinnant's `days_from_civil`).
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The other way round.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_come_back_as_they_were_and_days_that_never_were_do_not() {
        for (digits, seconds) in [
            ("19700101000000", 0),
            ("20000229123456", 951_827_696),
            ("20261118024509", 1_794_969_909),
            ("00010101000000", -62_135_596_800),
            ("99991231235959", 253_402_300_799),
        ] {
            let time = ArchiveTime::parse(digits).unwrap();
            assert_eq!((time.seconds(), time.to_string()), (seconds, digits.into()));
            assert_eq!(ArchiveTime::from_seconds(seconds), Some(time));
        }
        let milliseconds = ArchiveTime::parse("20000229123456789").unwrap();
        assert_eq!(milliseconds.to_string(), "20000229123456");
        for digits in [
            "",
            "-",
            "20010229000000",
            "20011301000000",
            "20010101250000",
            "00000101000000",
        ] {
            assert_eq!(ArchiveTime::parse(digits), None, "{digits}");
        }
    }

    #[test]
    fn saturdays_are_weekends_and_hours_are_periods() {
        let time = |digits| ArchiveTime::parse(digits).unwrap();
        assert_eq!(time("20261118235959").class(), DayClass::Weekday);
        assert_eq!(time("20261121000000").class(), DayClass::Weekend);
        assert_eq!(time("20261122235959").class(), DayClass::Weekend);
        assert_eq!(time("20261123000000").class(), DayClass::Weekday);
        assert_eq!(time("20261118235959").period(24), 23);
        assert_eq!(time("20261118010000").period(24), 1);
        assert_eq!(time("20261118004800").period(30), 1);
        assert_eq!(
            time("20261119000000").days_since(time("20261118120000")),
            0.5
        );
    }
}
