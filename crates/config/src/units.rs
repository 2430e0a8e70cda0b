//! Quantities that carry their unit: sizes, durations, free space.
//!
//! What is written is read back as the same value. A number without a unit is refused, with what
//! to write instead: `lease = 5` means five minutes to one reader and five seconds to the next.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

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
    /// There is no number where one must be.
    #[error("{text:?} has no number where one is due; write {example}")]
    NoNumber {
        /// What was written.
        text: String,
        /// What could be written.
        example: &'static str,
    },
    /// There is a number and no unit.
    #[error("{text:?} has no unit; write {example}")]
    NoUnit {
        /// What was written.
        text: String,
        /// What could be written, with the same number.
        example: String,
    },
    /// The unit is not one of ours.
    #[error("{text:?} has the unknown unit {unit:?}; units are {units}")]
    UnknownUnit {
        /// What was written.
        text: String,
        /// The unit in it.
        unit: String,
        /// The units there are.
        units: &'static str,
    },
    /// The value is not a whole number of the smallest unit.
    #[error("{text:?} is not a whole number of {smallest}")]
    NotWhole {
        /// What was written.
        text: String,
        /// The smallest unit.
        smallest: &'static str,
    },
    /// The value does not fit.
    #[error("{text:?} is too large")]
    TooLarge {
        /// What was written.
        text: String,
    },
}

/// Sizes by unit, largest first. A lone `K`, `M` or `G` is no unit: half its readers would take it
/// for the other one.
const SIZES: [(&str, u128); 14] = [
    ("EiB", 1 << 60),
    ("EB", 1_000_000_000_000_000_000),
    ("PiB", 1 << 50),
    ("PB", 1_000_000_000_000_000),
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1_000),
    ("KB", 1_000),
    ("B", 1),
];
const SIZE_UNITS: &str = "B, kB, KiB, MB, MiB, GB, GiB, TB, TiB, PB, PiB, EB, EiB";
const SIZE_EXAMPLE: &str = r#"a size such as "1 GiB" or "500 MB""#;

/// Nanoseconds by unit, largest first.
const SPANS: [(&str, u128); 9] = [
    ("w", 604_800_000_000_000),
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];
const SPAN_UNITS: &str = "ns, us, ms, s, m, h, d, w";
const SPAN_EXAMPLE: &str = r#"a duration such as "90s" or "10m""#;
const FREE_EXAMPLE: &str = r#""5%", or a size such as "1 GiB""#;

impl Bytes {
    /// The number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl FromStr for Bytes {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let mut rest = text.trim();
        let (number, unit) = take_quantity(text, &mut rest, SIZE_EXAMPLE)?;
        if unit.is_empty() {
            return Err(no_size_unit(text));
        }
        if !rest.is_empty() {
            return Err(no_number(text, SIZE_EXAMPLE));
        }
        let scale = scale_of(text, unit, &SIZES, SIZE_UNITS)?;
        let bytes = number.times(scale, text, "bytes")?;
        u64::try_from(bytes).map(Bytes).map_err(|_| too_large(text))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, scale) = largest_whole(u128::from(self.0), &SIZES, "B");
        write!(f, "{} {unit}", u128::from(self.0) / scale)
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
        let mut rest = text.trim();
        let mut total: u128 = 0;
        loop {
            let (number, unit) = take_quantity(text, &mut rest, SPAN_EXAMPLE)?;
            if unit.is_empty() {
                return Err(no_span_unit(text));
            }
            let scale = scale_of(text, unit, &SPANS, SPAN_UNITS)?;
            let nanoseconds = number.times(scale, text, "nanoseconds")?;
            total = total
                .checked_add(nanoseconds)
                .ok_or_else(|| too_large(text))?;
            if rest.is_empty() {
                break;
            }
        }
        let seconds = u64::try_from(total / 1_000_000_000).map_err(|_| too_large(text))?;
        let nanoseconds =
            u32::try_from(total % 1_000_000_000).expect("a remainder of 10^9 fits in 32 bits");
        Ok(Span(Duration::new(seconds, nanoseconds)))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanoseconds = self.0.as_nanos();
        // Seven days is easier to compare with thirty than one week is.
        let (unit, scale) = largest_whole(nanoseconds, &SPANS[1..], "s");
        write!(f, "{}{unit}", nanoseconds / scale)
    }
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
        let mut rest = text.trim();
        let (number, unit) = take_quantity(text, &mut rest, FREE_EXAMPLE)?;
        if unit != "%" {
            return Err(UnitError::UnknownUnit {
                text: text.to_owned(),
                unit: unit.to_owned(),
                units: "%",
            });
        }
        if !rest.is_empty() {
            return Err(no_number(text, FREE_EXAMPLE));
        }
        let hundredths = number.times(100, text, "hundredths of a percent")?;
        match u16::try_from(hundredths) {
            Ok(hundredths) if hundredths <= 10_000 => Ok(Percent(hundredths)),
            _ => Err(too_large(text)),
        }
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, hundredths) = (self.0 / 100, self.0 % 100);
        if hundredths == 0 {
            write!(f, "{whole}%")
        } else if hundredths.is_multiple_of(10) {
            write!(f, "{whole}.{}%", hundredths / 10)
        } else {
            write!(f, "{whole}.{hundredths:02}%")
        }
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
        if text.trim_end().ends_with('%') {
            return text.parse().map(Free::Percent);
        }
        match text.parse() {
            Ok(bytes) => Ok(Free::Bytes(bytes)),
            Err(UnitError::NoNumber { text, .. }) => Err(no_number(&text, FREE_EXAMPLE)),
            Err(UnitError::NoUnit { text, .. }) => Err(no_free_unit(&text)),
            Err(other) => Err(other),
        }
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

/// A decimal number, exact: `digits / 10^decimals`.
struct Number {
    digits: u128,
    decimals: u32,
}

impl Number {
    fn times(&self, scale: u128, text: &str, smallest: &'static str) -> Result<u128, UnitError> {
        let scaled = self
            .digits
            .checked_mul(scale)
            .ok_or_else(|| too_large(text))?;
        let divisor = 10u128.pow(self.decimals);
        if !scaled.is_multiple_of(divisor) {
            return Err(UnitError::NotWhole {
                text: text.to_owned(),
                smallest,
            });
        }
        Ok(scaled / divisor)
    }
}

/// Takes a number and the unit after it from the front of `rest`; the unit may be empty.
fn take_quantity<'a>(
    text: &str,
    rest: &mut &'a str,
    example: &'static str,
) -> Result<(Number, &'a str), UnitError> {
    let number_end = rest
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(rest.len());
    let (digits, after) = rest.split_at(number_end);
    let number = parse_number(text, digits, example)?;
    let after = after.trim_start();
    let unit_end = after
        .find(|c: char| c.is_ascii_digit() || c.is_whitespace())
        .unwrap_or(after.len());
    let (unit, after) = after.split_at(unit_end);
    *rest = after.trim_start();
    Ok((number, unit))
}

fn parse_number(text: &str, digits: &str, example: &'static str) -> Result<Number, UnitError> {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let well_formed = !whole.is_empty()
        && !fraction.contains('.')
        && (fraction.is_empty() != digits.contains('.'));
    if !well_formed {
        return Err(no_number(text, example));
    }
    let fraction = fraction.trim_end_matches('0');
    let decimals = u32::try_from(fraction.len()).map_err(|_| too_large(text))?;
    // Eighteen decimals and a unit of at most 2^60 stay far below 2^128.
    if decimals > 18 {
        return Err(UnitError::NotWhole {
            text: text.to_owned(),
            smallest: "its smallest unit",
        });
    }
    let digits = format!("{whole}{fraction}")
        .parse()
        .map_err(|_| too_large(text))?;
    Ok(Number { digits, decimals })
}

fn scale_of(
    text: &str,
    unit: &str,
    scales: &[(&str, u128)],
    units: &'static str,
) -> Result<u128, UnitError> {
    scales
        .iter()
        .find(|(name, _)| *name == unit)
        .map(|(_, scale)| *scale)
        .ok_or_else(|| UnitError::UnknownUnit {
            text: text.to_owned(),
            unit: unit.to_owned(),
            units,
        })
}

/// Returns the largest unit of which `value` is a whole number, and `zero` for nothing.
fn largest_whole(
    value: u128,
    scales: &[(&'static str, u128)],
    zero: &'static str,
) -> (&'static str, u128) {
    if value == 0 {
        return (zero, 1);
    }
    // `min` and `KB` are read but not written; their shorter twins follow them or stand before.
    scales
        .iter()
        .filter(|(unit, _)| *unit != "min" && *unit != "KB")
        .find(|(_, scale)| value.is_multiple_of(*scale))
        .copied()
        .expect("the smallest unit is one")
}

fn no_number(text: &str, example: &'static str) -> UnitError {
    UnitError::NoNumber {
        text: text.to_owned(),
        example,
    }
}

fn no_size_unit(text: &str) -> UnitError {
    let number = text.trim();
    UnitError::NoUnit {
        text: text.to_owned(),
        example: format!(r#""{number} B", "{number} MB" or "{number} MiB""#),
    }
}

fn no_span_unit(text: &str) -> UnitError {
    let number = text.trim();
    // Of "1h 30" only the last number lacks its unit.
    let number = number.rsplit(char::is_whitespace).next().unwrap_or(number);
    UnitError::NoUnit {
        text: text.to_owned(),
        example: format!(r#""{number}s", "{number}m" or "{number}h""#),
    }
}

fn no_free_unit(text: &str) -> UnitError {
    let number = text.trim();
    UnitError::NoUnit {
        text: text.to_owned(),
        example: format!(r#""{number}%", "{number} GB" or "{number} GiB""#),
    }
}

fn too_large(text: &str) -> UnitError {
    UnitError::TooLarge {
        text: text.to_owned(),
    }
}

/// Reads a quantity from a string, and turns a bare number into advice.
struct QuantityVisitor<Quantity> {
    expecting: &'static str,
    no_unit: fn(&str) -> UnitError,
    quantity: std::marker::PhantomData<Quantity>,
}

impl<Quantity> Visitor<'_> for QuantityVisitor<Quantity>
where
    Quantity: FromStr<Err = UnitError>,
{
    type Value = Quantity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expecting)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Quantity, E> {
        self.bare(&number)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Quantity, E> {
        self.bare(&number)
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Quantity, E> {
        self.bare(&number)
    }
}

impl<Quantity> QuantityVisitor<Quantity> {
    fn bare<E: de::Error>(&self, number: &dyn fmt::Display) -> Result<Quantity, E> {
        match (self.no_unit)(&number.to_string()) {
            UnitError::NoUnit { text, example } => Err(E::custom(format_args!(
                "the bare number {text} has no unit; write {example}"
            ))),
            other => Err(E::custom(other)),
        }
    }
}

macro_rules! as_string {
    ($quantity:ty, $expecting:expr, $no_unit:expr) => {
        impl Serialize for $quantity {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $quantity {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(QuantityVisitor::<$quantity> {
                    expecting: $expecting,
                    no_unit: $no_unit,
                    quantity: std::marker::PhantomData,
                })
            }
        }
    };
}

as_string!(Bytes, SIZE_EXAMPLE, no_size_unit);
as_string!(Span, SPAN_EXAMPLE, no_span_unit);
as_string!(Free, FREE_EXAMPLE, no_free_unit);
as_string!(Percent, r#"a percentage such as "5%""#, no_free_unit);

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
            ("18446744073709551615 B", u64::MAX),
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
            (
                "1 G",
                r#""1 G" has the unknown unit "G"; units are B, kB, KiB, MB, MiB, GB, GiB, TB, TiB, PB, PiB, EB, EiB"#,
            ),
            ("0.3 B", r#""0.3 B" is not a whole number of bytes"#),
            ("16 EiB", r#""16 EiB" is too large"#),
            (
                "-1 GB",
                r#""-1 GB" has no number where one is due; write a size such as "1 GiB" or "500 MB""#,
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
            ".5 GB",
            "5. GB",
            "1 gib",
            "1e3 B",
            "１ GB",
            "1 GB\u{202e}",
            "99999999999999999999999999999999999999999 B",
            "0.0000000000000000000000001 EiB",
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
                "1h 30",
                r#""1h 30" has no unit; write "30s", "30m" or "30h""#,
            ),
            (
                "3 months",
                r#""3 months" has the unknown unit "months"; units are ns, us, ms, s, m, h, d, w"#,
            ),
            ("40000000000000w", r#""40000000000000w" is too large"#),
        ] {
            let error = text.parse::<Span>().unwrap_err();
            assert_eq!(error.to_string(), message);
        }
        for text in ["", "s", "-5s", "5 s s", "1h,30m"] {
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
        fn what_is_shown_reads_back(bytes: u64, seconds: u64, nanoseconds in 0u32..1_000_000_000, share in 0u16..=10_000) {
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
