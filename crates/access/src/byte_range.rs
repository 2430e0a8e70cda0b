//! `Range`: which bytes of a body are wanted.

use hyper::header;

use crate::reply::Asked;

/// One range as it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByteRange {
    /// From one byte to another, both included.
    Between(u64, u64),
    /// From a byte to the end.
    From(u64),
    /// So many at the end.
    Last(u64),
}

/// A range held against a length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ranged {
    Part { first: u64, length: u64 },
    Unsatisfiable,
}

impl ByteRange {
    /// Reads the field; none where there is none, or one that may be passed over: several ranges, another unit, `If-Range`.
    pub(crate) fn asked(asked: &Asked) -> Option<Self> {
        if asked.headers.contains_key(header::IF_RANGE) {
            return None;
        }
        Self::parse(asked.header(header::RANGE)?)
    }

    fn parse(text: &str) -> Option<Self> {
        let range = text.trim().strip_prefix("bytes=")?;
        let (first, last) = range.split_once('-')?;
        let number = |text: &str| text.trim().parse::<u64>().ok();
        match (first.trim(), last.trim()) {
            ("", "") => None,
            ("", last) => Some(Self::Last(number(last)?)),
            (first, "") => Some(Self::From(number(first)?)),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Self::Between(first, last))
            }
        }
    }

    pub(crate) fn within(self, length: u64) -> Ranged {
        let (first, end) = match self {
            Self::Between(first, last) => (first, last.saturating_add(1).min(length)),
            Self::From(first) => (first, length),
            Self::Last(count) => (length - count.min(length), length),
        };
        match first < end {
            true => Ranged::Part {
                first,
                length: end - first,
            },
            false => Ranged::Unsatisfiable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_held_against_a_length() {
        let part = |first, length| Some(Ranged::Part { first, length });
        for (text, ranged) in [
            ("bytes=0-3", part(0, 4)),
            ("bytes=2-", part(2, 8)),
            ("bytes=-3", part(7, 3)),
            ("bytes=-30", part(0, 10)),
            ("bytes=5-99", part(5, 5)),
            ("bytes=10-", Some(Ranged::Unsatisfiable)),
            ("bytes=-0", Some(Ranged::Unsatisfiable)),
            ("bytes=0-18446744073709551615", part(0, 10)),
            ("bytes=3-1", None),
            ("bytes=0-1,3-4", None),
            ("lines=0-1", None),
            ("bytes=-", None),
            ("bytes=x-y", None),
        ] {
            assert_eq!(
                ByteRange::parse(text).map(|range| range.within(10)),
                ranged,
                "{text}"
            );
        }
        assert_eq!(ByteRange::From(0).within(0), Ranged::Unsatisfiable);
    }
}
