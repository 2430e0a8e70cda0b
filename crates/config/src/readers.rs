//! Who reads: ranges of addresses, the places they stand for, and what is kept back for a time.
//!
//! Each is one text in `pipeline.toml` and is written back as it was read.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Addresses that begin alike: `10.1.0.0/16`, or one address alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    address: IpAddr,
    bits: u8,
}

impl AddressRange {
    /// Says whether an address is among these. An IPv4 address in IPv6's clothes is the IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let shared = |one: u128, two: u128, width: u32| {
            let left = width - u32::from(self.bits);
            one.checked_shr(left).unwrap_or(0) == two.checked_shr(left).unwrap_or(0)
        };
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(one), IpAddr::V4(two)) => {
                shared(one.to_bits().into(), two.to_bits().into(), 32)
            }
            (IpAddr::V6(one), IpAddr::V6(two)) => shared(one.to_bits(), two.to_bits(), 128),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }

    fn width(address: IpAddr) -> u8 {
        match address {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        }
    }
}

impl FromStr for AddressRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || {
            format!("{text:?} is no range of addresses; write such as \"10.1.0.0/16\" or \"::1\"")
        };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| refuse())?;
        let width = Self::width(address);
        let bits = match bits {
            Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => {
                bits.parse().ok().filter(|bits| *bits <= width)
            }
            Some(_) => None,
            None => Some(width),
        };
        let bits = bits.ok_or_else(refuse)?;
        Ok(Self { address, bits })
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bits == Self::width(self.address) {
            true => write!(out, "{}", self.address),
            false => write!(out, "{}/{}", self.address, self.bits),
        }
    }
}

/// Where readers sit, and which user of the rules they are there: `reading-room 10.1.0.0/16`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessPlace {
    /// The user.
    pub user: String,
    /// The addresses.
    pub range: AddressRange,
}

impl FromStr for AccessPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (user, range) = text.trim().split_once(' ').ok_or_else(|| {
            format!("{text:?} is no place; write such as \"reading-room 10.1.0.0/16\"")
        })?;
        Ok(Self {
            user: user.to_owned(),
            range: range.trim().parse()?,
        })
    }
}

impl fmt::Display for AccessPlace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.user, self.range)
    }
}

/// A length of time by the calendar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CalendarAge {
    /// Years.
    pub years: i64,
    /// Months.
    pub months: i64,
    /// Weeks.
    pub weeks: i64,
    /// Days.
    pub days: i64,
}

/// Which captures are kept back, as pywb's `embargo` has it: those before or after a time, or older or newer than an age.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Embargo {
    /// None.
    #[default]
    None,
    /// Those before a time, in digits.
    Before(String),
    /// Those after a time, in digits.
    After(String),
    /// Those that are older.
    Older(CalendarAge),
    /// Those that are newer.
    Newer(CalendarAge),
}

impl FromStr for Embargo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || {
            format!(
                "{text:?} is no embargo; write such as \"newer 6 months\", \"before 2020\" or \"\""
            )
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let Some((kind, rest)) = words.split_first() else {
            return Ok(Self::None);
        };
        let time = || match rest {
            [digits]
                if (4..=14).contains(&digits.len())
                    && digits.bytes().all(|byte| byte.is_ascii_digit()) =>
            {
                Ok((*digits).to_owned())
            }
            _ => Err(refuse()),
        };
        let age = || {
            let mut age = CalendarAge::default();
            if rest.is_empty() || rest.len() % 2 != 0 {
                return Err(refuse());
            }
            for pair in rest.chunks(2) {
                let count: u16 = pair[0].parse().map_err(|_| refuse())?;
                let count = i64::from(count);
                match pair[1] {
                    "years" | "year" => age.years = count,
                    "months" | "month" => age.months = count,
                    "weeks" | "week" => age.weeks = count,
                    "days" | "day" => age.days = count,
                    _ => return Err(refuse()),
                }
            }
            Ok(age)
        };
        match *kind {
            "before" => time().map(Self::Before),
            "after" => time().map(Self::After),
            "older" => age().map(Self::Older),
            "newer" => age().map(Self::Newer),
            _ => Err(refuse()),
        }
    }
}

impl fmt::Display for Embargo {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, age) = match self {
            Self::None => return Ok(()),
            Self::Before(digits) => return write!(out, "before {digits}"),
            Self::After(digits) => return write!(out, "after {digits}"),
            Self::Older(age) => ("older", age),
            Self::Newer(age) => ("newer", age),
        };
        write!(out, "{kind}")?;
        for (count, unit) in [
            (age.years, "years"),
            (age.months, "months"),
            (age.weeks, "weeks"),
            (age.days, "days"),
        ] {
            if count > 0 {
                write!(out, " {count} {unit}")?;
            }
        }
        Ok(())
    }
}

/// Who may have captures as they were archived, and know where they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccessDownload {
    /// Every reader.
    All,
    /// Staff alone.
    Staff,
}

macro_rules! written_as_text {
    ($($name:ty),*) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(de::Error::custom)
            }
        }
    )*};
}

written_as_text!(AddressRange, AccessPlace, Embargo);

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> AddressRange {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_that_begin_alike() {
        for (range, inside, outside) in [
            ("192.0.2.7", "192.0.2.7", "192.0.2.8"),
            ("192.0.2.0/25", "192.0.2.127", "192.0.2.128"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::1"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("::/0", "::1", "1.2.3.4"),
        ] {
            let range: AddressRange = range.parse().unwrap();
            assert!(range.contains(inside.parse().unwrap()), "{range:?}");
            assert!(!range.contains(outside.parse().unwrap()), "{range:?}");
        }
        for text in [
            "",
            "192.0.2",
            "192.0.2.0/33",
            "::/129",
            "192.0.2.0/",
            "192.0.2.0/+8",
            "192.0.2.0/-1",
            "a/8",
            "192.0.2.0/8/8",
        ] {
            assert!(text.parse::<AddressRange>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_range_has_what_begins_like_it() {
        for (text, inside, outside) in [
            ("10.1.0.0/16", "10.1.255.7", "10.2.0.0"),
            ("10.1.0.0/16", "::ffff:10.1.2.3", "::10.1.2.3"),
            ("127.0.0.1", "127.0.0.1", "127.0.0.2"),
            ("0.0.0.0/0", "203.0.113.9", "::1"),
            ("fd00::/8", "fdff::1", "fe00::1"),
            ("::/0", "2001:db8::1", "192.0.2.1"),
        ] {
            assert!(range(text).contains(inside.parse().unwrap()), "{text}");
            assert!(!range(text).contains(outside.parse().unwrap()), "{text}");
            assert_eq!(range(text).to_string(), text);
        }
        for wrong in [
            "",
            "10.1",
            "10.1.0.0/33",
            "::1/129",
            "10.0.0.0/",
            "a/8",
            "1.2.3.4/-1",
        ] {
            assert!(wrong.parse::<AddressRange>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn places_and_embargoes_are_read_back_as_they_were_written() {
        let place: AccessPlace = "reading-room 10.1.0.0/16".parse().unwrap();
        assert_eq!(place.user, "reading-room");
        assert_eq!(place.to_string(), "reading-room 10.1.0.0/16");
        assert!("reading-room".parse::<AccessPlace>().is_err());
        for text in [
            "",
            "before 2020",
            "after 20200101000000",
            "older 1 years 6 months",
            "newer 3 days",
        ] {
            assert_eq!(text.parse::<Embargo>().unwrap().to_string(), text);
        }
        for wrong in [
            "older",
            "older 6",
            "older six months",
            "before",
            "before then",
            "sometimes",
            "before 20",
        ] {
            assert!(wrong.parse::<Embargo>().is_err(), "{wrong}");
        }
    }
}
