//! Quantities that carry their unit: sizes, durations, free space.
//!
//! What is written is read back as the same value. A number without a unit is refused, with what
//! to write instead: `lease = 5` means five minutes to one reader and five seconds to the next.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bytesize::ByteSize;
use jiff::SpanRelativeTo;
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};
use thiserror::Error;

/// A size in bytes, written `"1 GiB"`, `"5 MB"` or `"512 B"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(pub u64);

/// A duration, written `"90s"`, `"10m"` or `"1h 30m"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(pub Duration);

/// A share of a whole in hundredths of a percent, written `"5%"` or `"0.25%"`; at most 100 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Percent(u16);

/// Free space: a size, or a share of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Free {
    /// So many bytes.
    Bytes(Bytes),
    /// So much of the file system.
    Percent(Percent),
}

/// Why a quantity cannot be read; the message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UnitError {
    /// There is a number and no unit.
    #[error("{text:?} has no unit; write {example}")]
    NoUnit {
        /// What was written.
        text: String,
        /// What could be written, with the same number.
        example: String,
    },
    /// It is none of these quantities.
    #[error("{text:?} is not {example}")]
    NoQuantity {
        /// What was written.
        text: String,
        /// What could be written.
        example: &'static str,
    },
}

/// What one kind of quantity is told by.
trait Quantity: FromStr<Err = UnitError> {
    /// What could be written.
    const EXAMPLE: &'static str;
    /// Units for a number without one.
    const UNITS: [&'static str; 3];

    /// What could be written with this number.
    fn examples(number: &str) -> String {
        let [one, two, three] = Self::UNITS.map(|unit| format!("\"{number}{unit}\""));
        format!("{one}, {two} or {three}")
    }

    fn refuse(text: &str) -> UnitError {
        let number = text.trim();
        if number.ends_with(|c: char| c.is_ascii_digit()) && number.parse::<f64>().is_ok() {
            return UnitError::NoUnit {
                text: text.to_owned(),
                example: Self::examples(number),
            };
        }
        UnitError::NoQuantity {
            text: text.to_owned(),
            example: Self::EXAMPLE,
        }
    }
}

impl Quantity for Bytes {
    const EXAMPLE: &'static str = r#"a size such as "1 GiB" or "500 MB""#;
    const UNITS: [&'static str; 3] = [" B", " MB", " MiB"];
}

impl Quantity for Span {
    const EXAMPLE: &'static str = r#"a duration such as "90s", "10m", "6h" or "7d""#;
    const UNITS: [&'static str; 3] = ["s", "m", "h"];
}

impl Quantity for Percent {
    const EXAMPLE: &'static str = r#"a percentage such as "5%""#;
    const UNITS: [&'static str; 3] = ["%", ".5%", "0%"];
}

impl Quantity for Free {
    const EXAMPLE: &'static str = r#""5%" or a size such as "1 GiB""#;
    const UNITS: [&'static str; 3] = ["%", " GB", " GiB"];
}

impl Bytes {
    /// The number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl FromStr for Bytes {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let size = text.trim();
        // A lone K, M or G is no unit: half its readers would take it for the other one.
        let parsed = size.ends_with('B').then(|| size.parse::<ByteSize>());
        match parsed {
            // What does not fit is as large as it can be.
            Some(Ok(bytes)) if bytes.0 < u64::MAX => Ok(Bytes(bytes.0)),
            _ => Err(Self::refuse(text)),
        }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u64); 9] = [
            ("TiB", 1 << 40),
            ("TB", 1_000_000_000_000),
            ("GiB", 1 << 30),
            ("GB", 1_000_000_000),
            ("MiB", 1 << 20),
            ("MB", 1_000_000),
            ("KiB", 1 << 10),
            ("kB", 1_000),
            ("B", 1),
        ];
        let (number, unit) = in_largest_whole(self.0, &UNITS);
        write!(f, "{number} {unit}")
    }
}

impl Span {
    /// A span of so many whole seconds.
    pub const fn secs(seconds: u64) -> Span {
        Span(Duration::from_secs(seconds))
    }

    /// A span of so many milliseconds.
    pub const fn millis(milliseconds: u64) -> Span {
        Span(Duration::from_millis(milliseconds))
    }

    /// The duration itself.
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Duration {
        span.0
    }
}

impl FromStr for Span {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let span = text.trim().parse::<jiff::Span>().ok();
        span.and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()).ok())
            .and_then(|duration| Duration::try_from(duration).ok())
            .map(Span)
            .ok_or_else(|| Self::refuse(text))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Seven days is easier to compare with thirty than one week is.
        const SECONDS: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
        const PARTS: [(&str, u64); 3] = [("ms", 1_000_000), ("us", 1_000), ("ns", 1)];
        let (seconds, nanoseconds) = (self.0.as_secs(), u64::from(self.0.subsec_nanos()));
        if seconds > 0 || nanoseconds == 0 {
            let (number, unit) = in_largest_whole(seconds, &SECONDS);
            write!(f, "{number}{unit}")?;
        }
        if nanoseconds > 0 {
            let (number, unit) = in_largest_whole(nanoseconds, &PARTS);
            let gap = if seconds > 0 { " " } else { "" };
            write!(f, "{gap}{number}{unit}")?;
        }
        Ok(())
    }
}

/// Returns a value in the largest unit of which it is a whole number, and nothing in the smallest.
fn in_largest_whole(value: u64, units: &[(&'static str, u64)]) -> (u64, &'static str) {
    let mut units = units.iter().copied();
    let fits =
        |(_, scale): &(&str, u64)| *scale == 1 || (value > 0 && value.is_multiple_of(*scale));
    let (unit, scale) = units.find(fits).expect("the smallest unit is one");
    (value / scale, unit)
}

impl Percent {
    /// A whole number of percent; anything over 100 is 100.
    pub const fn of(percent: u16) -> Percent {
        if percent > 100 {
            Percent(10_000)
        } else {
            Percent(percent * 100)
        }
    }

    /// So much of `whole`, rounded up.
    pub const fn share_of(self, whole: u64) -> u64 {
        let share = (whole as u128 * self.0 as u128).div_ceil(10_000);
        // At most `whole`, since the share is at most 10,000 of 10,000.
        share as u64
    }
}

impl FromStr for Percent {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let number = text.trim().strip_suffix('%').map(str::trim_end);
        let is_plain = |c: char| c.is_ascii_digit() || c == '.';
        let number = number.filter(|number| number.chars().all(is_plain));
        let hundredths = number
            .and_then(|number| number.parse::<f64>().ok())
            .map(|percent| percent * 100.0)
            .filter(|hundredths| (0.0..=10_000.0).contains(hundredths))
            .filter(|hundredths| (hundredths - hundredths.round()).abs() < 1e-6);
        match hundredths {
            Some(hundredths) => Ok(Percent(hundredths.round() as u16)),
            None => Err(Self::refuse(text)),
        }
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.0) / 100.0)
    }
}

impl Free {
    /// The bytes this means on a file system of `total` bytes.
    pub const fn bytes_of(self, total: u64) -> u64 {
        match self {
            Free::Bytes(bytes) => bytes.0,
            Free::Percent(percent) => percent.share_of(total),
        }
    }
}

impl FromStr for Free {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let percent = text.parse().map(Free::Percent);
        percent
            .or_else(|_| text.parse().map(Free::Bytes))
            .map_err(|_: UnitError| Self::refuse(text))
    }
}

impl fmt::Display for Free {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Free::Bytes(bytes) => bytes.fmt(f),
            Free::Percent(percent) => percent.fmt(f),
        }
    }
}

/// Reads a quantity from a string, and turns a bare number into advice.
struct QuantityVisitor<Kind>(std::marker::PhantomData<Kind>);

impl<Kind: Quantity> Visitor<'_> for QuantityVisitor<Kind> {
    type Value = Kind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Kind::EXAMPLE)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Kind, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Kind, E> {
        Err(bare::<Kind, E>(&number.to_string()))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Kind, E> {
        Err(bare::<Kind, E>(&number.to_string()))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Kind, E> {
        Err(bare::<Kind, E>(&number.to_string()))
    }
}

fn bare<Kind: Quantity, E: de::Error>(number: &str) -> E {
    let examples = Kind::examples(number);
    E::custom(format_args!(
        "the bare number {number} has no unit; write {examples}"
    ))
}

macro_rules! as_string {
    ($($quantity:ty),*) => {$(
        impl Serialize for $quantity {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $quantity {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(QuantityVisitor(std::marker::PhantomData))
            }
        }
    )*};
}

as_string!(Bytes, Span, Free, Percent);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_read_with_their_unit() {
        for (text, bytes) in [
            ("0 B", 0),
            ("512 B", 512),
            ("1GiB", 1 << 30),
            ("1 GiB", 1 << 30),
            ("5 MB", 5_000_000),
            ("1.5 KiB", 1_536),
            ("2.50 kB", 2_500),
            ("  7 KB ", 7_000),
            ("16 EB", 16_000_000_000_000_000_000),
            ("18446744073709551614 B", u64::MAX - 1),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
    }

    #[test]
    fn a_bad_size_says_what_to_write() {
        for (text, message) in [
            (
                "64",
                r#""64" has no unit; write "64 B", "64 MB" or "64 MiB""#,
            ),
            ("1 G", r#""1 G" is not a size such as "1 GiB" or "500 MB""#),
            (
                "16 EiB",
                r#""16 EiB" is not a size such as "1 GiB" or "500 MB""#,
            ),
        ] {
            let error = text.parse::<Bytes>().unwrap_err();
            assert_eq!(error.to_string(), message);
        }
        for text in [
            "",
            " ",
            "GB",
            "1 GB 2 MB",
            "1..5 GB",
            "-1 GB",
            "1e3 B",
            "１ GB",
            "1 GB\u{202e}",
        ] {
            assert!(text.parse::<Bytes>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn durations_are_read_with_their_unit() {
        for (text, milliseconds) in [
            ("0s", 0),
            ("20ms", 20),
            ("90s", 90_000),
            ("90 s", 90_000),
            ("10m", 600_000),
            ("10min", 600_000),
            ("1.5h", 5_400_000),
            ("1h30m", 5_400_000),
            ("1h 30m", 5_400_000),
            ("7d", 604_800_000),
            ("2w", 1_209_600_000),
        ] {
            assert_eq!(text.parse(), Ok(Span::millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn a_bad_duration_says_what_to_write() {
        for (text, message) in [
            ("30", r#""30" has no unit; write "30s", "30m" or "30h""#),
            (
                "3 months",
                r#""3 months" is not a duration such as "90s", "10m", "6h" or "7d""#,
            ),
        ] {
            let error = text.parse::<Span>().unwrap_err();
            assert_eq!(error.to_string(), message);
        }
        for text in ["", "s", "-5s", "5 s s", "1h 30", "40000000000000w"] {
            assert!(text.parse::<Span>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn free_space_is_a_size_or_a_share() {
        assert_eq!("5%".parse(), Ok(Free::Percent(Percent::of(5))));
        assert_eq!("1 GiB".parse(), Ok(Free::Bytes(Bytes(1 << 30))));
        assert_eq!("12.5 %".parse::<Free>().unwrap().to_string(), "12.5%");
        assert_eq!("0.05%".parse::<Free>().unwrap().to_string(), "0.05%");
        assert_eq!("12.5%".parse::<Free>().unwrap().bytes_of(1_000), 125);
        assert_eq!("1%".parse::<Free>().unwrap().bytes_of(101), 2);
        assert_eq!("100%".parse::<Free>().unwrap().bytes_of(u64::MAX), u64::MAX);
        assert_eq!("10 B".parse::<Free>().unwrap().bytes_of(u64::MAX), 10);
        assert_eq!(
            "5".parse::<Free>().unwrap_err().to_string(),
            r#""5" has no unit; write "5%", "5 GB" or "5 GiB""#
        );
        for text in ["101%", "-1%", "%", "0.001%", "5% 5%", "5%%", "65536%"] {
            assert!(text.parse::<Free>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn shown_in_the_largest_whole_unit() {
        assert_eq!(Bytes(0).to_string(), "0 B");
        assert_eq!(Bytes(1_536).to_string(), "1536 B");
        assert_eq!(Bytes(5_000_000).to_string(), "5 MB");
        assert_eq!(Bytes(3 << 40).to_string(), "3 TiB");
        assert_eq!(Span::secs(0).to_string(), "0s");
        assert_eq!(Span::secs(90).to_string(), "90s");
        assert_eq!(Span::secs(5_400).to_string(), "90m");
        assert_eq!(Span::secs(604_800).to_string(), "7d");
        assert_eq!(Span::millis(20).to_string(), "20ms");
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(bytes in 0..u64::MAX, seconds in 0..3_000_000_000u64, nanoseconds in 0u32..1_000_000_000, share in 0u16..=10_000) {
            prop_assert_eq!(Bytes(bytes).to_string().parse(), Ok(Bytes(bytes)));
            let span = Span(Duration::new(seconds, nanoseconds));
            prop_assert_eq!(span.to_string().parse(), Ok(span));
            prop_assert_eq!(Percent(share).to_string().parse(), Ok(Percent(share)));
        }

        #[test]
        fn no_text_panics(text in "\\PC*", close in "[-+0-9. ]{0,40}[a-zA-Z%]{0,3}") {
            for text in [text, close] {
                let _ = text.parse::<Bytes>();
                let _ = text.parse::<Span>();
                let _ = text.parse::<Free>();
            }
        }
    }
}
