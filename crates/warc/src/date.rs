//! The dates of WARC and ARC records, read into the fourteen digits that an index line takes.
//!
//! The readings are warcio's, so that an index agrees with cdxj-indexer; where warcio refuses a `WARC-Date` that the
//! standard allows (a year alone, a year and a month), the missing parts are the earliest ones.

use std::fmt;

use crate::text;

/// The date of a record to the second, as fourteen digits: `YYYYMMDDhhmmss`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordDate([u8; 14]);

impl RecordDate {
    /// Reads a `WARC-Date`: numbers between anything that is not a digit, as `2013-12-26T10:11:12.345Z`.
    pub fn from_warc_date(date: &[u8]) -> Result<Self, DateError> {
        if let Some(time) = Self::from_usual_date(date) {
            return Ok(time);
        }
        let fault = || DateError {
            found: date.iter().copied().take(64).collect(),
        };
        let mut parts: [u32; 7] = [0, 1, 1, 0, 0, 0, 0];
        let mut pieces = date
            .split(|byte| !byte.is_ascii_digit())
            .enumerate()
            .peekable();
        while let Some((index, digits)) = pieces.next() {
            if digits.is_empty() && pieces.peek().is_none() && index > 0 {
                break;
            }
            // The seventh number is a fraction of any length; nothing may follow it.
            let digits = if index == 6 {
                &digits[..digits.len().min(6)]
            } else {
                digits
            };
            let slot = parts.get_mut(index).ok_or_else(fault)?;
            *slot = number(digits).ok_or_else(fault)?;
        }
        Self::from_parts(parts).ok_or_else(fault)
    }

    /// Reads the date of an ARC record, whatever it holds: missing digits count as the latest time they could mean, and
    /// what is not a number or out of range is moved to the nearest bound.
    #[must_use]
    pub fn from_arc_date(date: &[u8]) -> Self {
        let mut digits: Vec<char> = text::decode(date).chars().collect();
        let missing = digits.len().min(6);
        digits.extend("299912".chars().skip(missing));
        let part = |start: usize, end: usize, low: u32, high: u32| {
            digits
                .get(start..end)
                .and_then(signed)
                .map_or(high, |value| {
                    u32::try_from(value.clamp(i64::from(low), i64::from(high))).unwrap_or(high)
                })
        };
        let year = part(0, 4, 1900, 2999);
        let month = part(4, 6, 1, 12);
        let day = part(6, 8, 1, days_in_month(year, month));
        let parts = [
            year,
            month,
            day,
            part(8, 10, 0, 23),
            part(10, 12, 0, 59),
            part(12, 14, 0, 59),
            0,
        ];
        Self::from_parts(parts).expect("every part was moved into its bounds")
    }

    /// Returns the fourteen digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("a date is made of ASCII digits")
    }

    /// Reads `YYYY-MM-DDThh:mm:ssZ` with any fraction, which nearly every record has, without splitting.
    fn from_usual_date(date: &[u8]) -> Option<Self> {
        let (head, tail) = date.split_at_checked(19)?;
        let fraction = match tail {
            [b'Z'] => true,
            [b'.', digits @ .., b'Z'] => {
                !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
            }
            _ => false,
        };
        if !fraction || [head[4], head[7], head[10], head[13], head[16]] != *b"--T::" {
            return None;
        }
        let part = |range: std::ops::Range<usize>| number(&head[range]);
        let parts = [
            part(0..4)?,
            part(5..7)?,
            part(8..10)?,
            part(11..13)?,
            part(14..16)?,
            part(17..19)?,
            0,
        ];
        Self::from_parts(parts)
    }

    fn from_parts(parts: [u32; 7]) -> Option<Self> {
        let [year, month, day, hour, minute, second, _] = parts;
        let good = (1..=9999).contains(&year)
            && (1..=12).contains(&month)
            && (1..=days_in_month(year, month)).contains(&day)
            && hour < 24
            && minute < 60
            && second < 60;
        if !good {
            return None;
        }
        let mut digits = [b'0'; 14];
        let mut put = |at: usize, width: usize, mut value: u32| {
            for slot in digits[at..at + width].iter_mut().rev() {
                *slot = b'0' + u8::try_from(value % 10).unwrap_or(0);
                value /= 10;
            }
        };
        put(0, 4, year);
        for (index, value) in [month, day, hour, minute, second].into_iter().enumerate() {
            put(4 + 2 * index, 2, value);
        }
        Some(Self(digits))
    }
}

impl fmt::Display for RecordDate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl fmt::Debug for RecordDate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// A date that names no moment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a date: {}", found.escape_ascii())]
pub struct DateError {
    /// The first bytes of what stood in the place of a date.
    pub found: Vec<u8>,
}

fn number(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() || digits.len() > 9 {
        return None;
    }
    digits.iter().try_fold(0u32, |value, byte| {
        byte.is_ascii_digit()
            .then(|| value * 10 + u32::from(byte - b'0'))
    })
}

/// Reads a number as Python's `int` does: blanks around it and a sign are allowed.
fn signed(digits: &[char]) -> Option<i64> {
    digits.iter().collect::<String>().trim().parse().ok()
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

    fn warc(date: &str) -> Option<String> {
        RecordDate::from_warc_date(date.as_bytes())
            .ok()
            .map(|time| time.to_string())
    }

    #[test]
    fn warc_dates() {
        for (date, expected) in [
            ("2013-12-26T10:11:12Z", Some("20131226101112")),
            ("2013-12-26T10:11:12.456789Z", Some("20131226101112")),
            ("2013-12-26T10:11:12.123456789Z", Some("20131226101112")),
            ("2013-12-26T10:11:12", Some("20131226101112")),
            ("2013-12-26", Some("20131226000000")),
            ("2013-12", Some("20131201000000")),
            ("2013", Some("20130101000000")),
            ("2013-12-26T10:11:12+00:00", None),
            ("2013-13-26T10:11:12Z", None),
            ("2013-02-29T10:11:12Z", None),
            ("2012-02-29T10:11:12Z", Some("20120229101112")),
            ("2013-12-26T10:11:60Z", None),
            ("20131226101112", None),
            ("", None),
            ("yesterday", None),
        ] {
            assert_eq!(warc(date).as_deref(), expected, "{date}");
        }
    }

    #[test]
    fn arc_dates_are_padded_upwards_and_clamped() {
        for (date, expected) in [
            ("20141226095010", "20141226095010"),
            ("2014122609501011", "20141226095010"),
            ("2014122609501", "20141226095059"),
            ("201412260950", "20141226095059"),
            ("2014122", "20141231235959"),
            ("201", "20191231235959"),
            ("", "29991231235959"),
            ("3", "29991231235959"),
            ("20131709005601", "20131209005601"),
            ("40001965252477", "29991231232459"),
            ("2010abc", "20101231235959"),
            ("20130230000000", "20130228000000"),
            ("a0d1fdddf3165d04", "29991231231659"),
        ] {
            assert_eq!(
                RecordDate::from_arc_date(date.as_bytes()).as_str(),
                expected,
                "{date}"
            );
        }
    }
}
