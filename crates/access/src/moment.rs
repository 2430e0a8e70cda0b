//! Times as archives write them: up to fourteen digits; and as HTTP writes them.
//!
//! Days that never were (old indexes hold some) count as the days after them, so that every time has its place in order.

/// The longest time that is read: to the second.
const DIGITS: usize = 14;
/// What a time that is cut short may mean at the earliest, and at the latest.
const EARLIEST: &str = "00000101000000";
const LATEST: &str = "99991231235959";

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Fourteen digits: a time to the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment {
    digits: [u8; DIGITS],
}

impl Moment {
    /// Returns the first second that these digits, perhaps cut short, may mean; digits behind the second are left out.
    pub(crate) fn first_of(digits: &str) -> Option<Self> {
        Self::padded(digits, EARLIEST)
    }

    /// Returns the last second that these digits may mean.
    pub(crate) fn last_of(digits: &str) -> Option<Self> {
        // February has no 31st day, but no capture of it is left out either.
        Self::padded(digits, LATEST)
    }

    fn padded(digits: &str, pad: &str) -> Option<Self> {
        let is_time = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        if !is_time || digits.len() > 17 {
            return None;
        }
        let mut padded: [u8; DIGITS] = pad.as_bytes().try_into().ok()?;
        let known = digits.len().min(DIGITS);
        padded[..known].copy_from_slice(&digits.as_bytes()[..known]);
        // Of a month, a day or an hour only the first digit may be known: 20261 begins in October, 20260 ends in September.
        let is_latest = pad == LATEST;
        if let Some(at) = [5, 7, 9].into_iter().find(|at| *at == known) {
            padded[at] = match (padded[at - 1], is_latest) {
                (b'0', false) if at < 9 => b'1',
                (_, false) => b'0',
                (b'1', true) if at == 5 => b'2',
                (b'3', true) if at == 7 => b'1',
                (b'2', true) if at == 9 => b'3',
                (_, true) => b'9',
            };
        }
        Some(Self { digits: padded })
    }

    /// Returns the time of so many seconds since 1970.
    pub(crate) fn of_seconds(seconds: i64) -> Self {
        let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        let text = format!(
            "{:04}{month:02}{day:02}{:02}{:02}{:02}",
            year.clamp(0, 9999),
            second / 3600,
            second / 60 % 60,
            second % 60
        );
        let digits = text.as_bytes().try_into().expect("fourteen were written");
        Self { digits }
    }

    pub(crate) fn as_str(&self) -> &str {
        str::from_utf8(&self.digits).expect("only digits are stored")
    }

    fn part(&self, from: usize, to: usize) -> i64 {
        self.digits[from..to]
            .iter()
            .fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'))
    }

    /// Returns the seconds since 1970.
    pub(crate) fn seconds(&self) -> i64 {
        let days = days_of(self.part(0, 4), self.part(4, 6), self.part(6, 8));
        days * 86_400 + self.part(8, 10) * 3600 + self.part(10, 12) * 60 + self.part(12, 14)
    }

    /// Returns it as HTTP and Memento write it: `Thu, 01 Jan 2026 00:00:00 GMT`.
    pub(crate) fn http_date(&self) -> String {
        // Over the seconds, so that a day that never was is written as one that was.
        let real = Self::of_seconds(self.seconds());
        let days = real.seconds().div_euclid(86_400);
        // The first of January 1970 was a Thursday.
        let weekday = DAYS[usize::try_from((days + 3).rem_euclid(7)).unwrap_or(0)];
        let month = MONTHS[usize::try_from(real.part(4, 6) - 1).unwrap_or(0).min(11)];
        let text = real.as_str();
        format!(
            "{weekday}, {} {month} {} {}:{}:{} GMT",
            &text[6..8],
            &text[..4],
            &text[8..10],
            &text[10..12],
            &text[12..14]
        )
    }

    /// Reads a time as HTTP writes it.
    pub(crate) fn from_http_date(text: &str) -> Option<Self> {
        let rest = text.split_once(',').map_or(text, |(_, rest)| rest);
        let mut words = rest.split_ascii_whitespace();
        let day: u32 = words.next()?.parse().ok()?;
        let name = words.next()?;
        let month = MONTHS.iter().position(|month| *month == name)? + 1;
        let year = words.next().filter(|year| year.len() == 4)?;
        let clock: Vec<u32> = words
            .next()?
            .split(':')
            .map(|part| part.parse().ok())
            .collect::<Option<_>>()?;
        let is_gmt = words.next().is_some_and(|zone| zone == "GMT") && words.next().is_none();
        let [hour, minute, second] = clock[..] else {
            return None;
        };
        let fits = is_gmt && (1..=31).contains(&day) && hour < 24 && minute < 60 && second < 61;
        if !fits {
            return None;
        }
        Self::first_of(&format!(
            "{year}{month:02}{day:02}{hour:02}{minute:02}{second:02}"
        ))
    }

    /// Returns the day as forms have it: `2026-01-31`.
    pub(crate) fn iso_day(&self) -> String {
        self.rfc3339()[..10].to_owned()
    }

    /// Returns it as RFC 3339 has it.
    pub(crate) fn rfc3339(&self) -> String {
        let text = self.as_str();
        format!(
            "{}-{}-{}T{}:{}:{}Z",
            &text[..4],
            &text[4..6],
            &text[6..8],
            &text[8..10],
            &text[10..12],
            &text[12..14]
        )
    }
}

/// Returns the days since 1970 of a day of the calendar; months and days out of their range are counted on.
pub(crate) fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let month = month.clamp(1, 12);
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Returns the day of the calendar so many days after 1970.
pub(crate) fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_of_year = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_of_year + 2) / 5 + 1;
    let month = if month_of_year < 10 {
        month_of_year + 3
    } else {
        month_of_year - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(digits: &str) -> Moment {
        Moment::first_of(digits).unwrap()
    }

    #[test]
    fn times_cut_short_have_a_first_and_a_last_second() {
        for (digits, low, high) in [
            ("2026", "20260101000000", "20261231235959"),
            ("202602", "20260201000000", "20260231235959"),
            ("20261", "20261001000000", "20261231235959"),
            ("20260", "20260101000000", "20260931235959"),
            ("2026011", "20260110000000", "20260119235959"),
            ("202601311", "20260131100000", "20260131195959"),
            ("20260131120000", "20260131120000", "20260131120000"),
            ("20260131120000123", "20260131120000", "20260131120000"),
        ] {
            assert_eq!(first(digits).as_str(), low);
            assert_eq!(Moment::last_of(digits).unwrap().as_str(), high);
        }
        for bad in ["", "x", "2026-01", "202601011200001234"] {
            assert_eq!(Moment::first_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn http_dates_are_written_and_read() {
        for (digits, date) in [
            ("19941115081231", "Tue, 15 Nov 1994 08:12:31 GMT"),
            ("20000229235959", "Tue, 29 Feb 2000 23:59:59 GMT"),
            ("20260101000000", "Thu, 01 Jan 2026 00:00:00 GMT"),
        ] {
            assert_eq!(first(digits).http_date(), date);
            assert_eq!(Moment::from_http_date(date).unwrap().as_str(), digits);
        }
        assert_eq!(
            first("20260230000000").http_date(),
            "Mon, 02 Mar 2026 00:00:00 GMT"
        );
        for bad in [
            "",
            "yesterday",
            "Thu, 01 Jan 2026 00:00:00 CET",
            "Thu, 01 Foo 2026 00:00:00 GMT",
            "Thu, 99 Jan 2026 00:00:00 GMT",
            "Thu, 01 Jan 2026 25:00:00 GMT",
        ] {
            assert_eq!(Moment::from_http_date(bad), None, "{bad}");
        }
    }

    #[test]
    fn seconds_are_undone() {
        for digits in ["19960229123456", "20261231235959", "19700101000000"] {
            let moment = first(digits);
            assert_eq!(Moment::of_seconds(moment.seconds()), moment);
        }
        assert_eq!(first("19700101000001").seconds(), 1);
    }
}
