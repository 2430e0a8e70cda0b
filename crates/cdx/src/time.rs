//! When a capture was made, as index lines write it.

use std::fmt;

/// The digits of a capture's time: 14 to the second, or 17 to the millisecond.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CaptureTime {
    // Padded with zero bytes, so that the derived order is the order of the digits.
    digits: [u8; 17],
}

impl CaptureTime {
    /// Reads 14 or 17 digits; the calendar is not checked, because old indexes hold days that never were.
    pub fn from_digits(digits: &[u8]) -> Option<Self> {
        if !matches!(digits.len(), 14 | 17) || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let mut padded = [0; 17];
        padded[..digits.len()].copy_from_slice(digits);
        Some(Self { digits: padded })
    }

    /// Returns the time to the second of a `WARC-Date`, read as leniently as warcio does.
    ///
    /// The numbers are whatever stands between non-digits: year, month and day at least, then hour, minute and
    /// second, then a fraction, which is dropped. A date that is not in the calendar is refused.
    pub fn from_iso(date: &str) -> Option<Self> {
        let mut numbers: Vec<&str> = date.split(|c: char| !c.is_ascii_digit()).collect();
        if numbers.last() == Some(&"") {
            numbers.pop();
        }
        if !(3..=7).contains(&numbers.len()) {
            return None;
        }
        let mut parts = [0u32; 6];
        for (part, number) in parts.iter_mut().zip(&numbers) {
            *part = number.parse().ok()?;
        }
        if numbers.get(6).is_some_and(|fraction| fraction.is_empty()) {
            return None;
        }
        let [year, month, day, hour, minute, second] = parts;
        let in_calendar = (1..=9999).contains(&year)
            && (1..=12).contains(&month)
            && (1..=days_in_month(year, month)).contains(&day)
            && hour < 24
            && minute < 60
            && second < 60;
        if !in_calendar {
            return None;
        }
        let digits = format!("{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}");
        Self::from_digits(digits.as_bytes())
    }

    /// Returns the digits.
    pub fn as_str(&self) -> &str {
        let length = if self.digits[14] == 0 { 14 } else { 17 };
        str::from_utf8(&self.digits[..length]).expect("only ASCII digits are stored")
    }
}

impl fmt::Display for CaptureTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for CaptureTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CaptureTime({self})")
    }
}

fn days_in_month(year: u32, month: u32) -> u32 {
    match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => {
            29
        }
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iso(date: &str) -> Option<String> {
        CaptureTime::from_iso(date).map(|time| time.to_string())
    }

    #[test]
    fn reads_dates_as_warcio_does() {
        assert_eq!(
            iso("2013-12-26T10:11:12Z").as_deref(),
            Some("20131226101112")
        );
        assert_eq!(
            iso("2013-12-26T10:11:12.456789Z").as_deref(),
            Some("20131226101112")
        );
        assert_eq!(iso("2013-12-26").as_deref(), Some("20131226000000"));
        assert_eq!(iso("2013-1-2T3:4").as_deref(), Some("20130102030400"));
        assert_eq!(
            iso("2012-02-29T00:00:00Z").as_deref(),
            Some("20120229000000")
        );
    }

    #[test]
    fn refuses_what_is_not_in_the_calendar() {
        for date in [
            "",
            "-",
            "2013",
            "2013-12",
            "2013-13-01",
            "2013-02-29T00:00:00Z",
            "2013-12-26T24:00:00Z",
            "2013-12-26T10:11:60Z",
            "2013--26T10:11:12Z",
            "2013-12-26T10:11:12+01:00",
            "99999999999999999999-01-01",
        ] {
            assert_eq!(iso(date), None, "{date}");
        }
    }

    #[test]
    fn keeps_14_and_17_digits_and_nothing_else() {
        for digits in ["20131226101112", "20131226101112345", "29991231231659"] {
            let time = CaptureTime::from_digits(digits.as_bytes()).unwrap();
            assert_eq!(time.as_str(), digits);
        }
        for digits in [
            "",
            "-",
            "2013",
            "2013122610111",
            "2013122610111x",
            "201312261011123456",
        ] {
            assert_eq!(
                CaptureTime::from_digits(digits.as_bytes()),
                None,
                "{digits}"
            );
        }
        let second = CaptureTime::from_digits(b"20131226101112");
        assert!(second < CaptureTime::from_digits(b"20131226101112000"));
    }
}
