//! A limit, or its absence said in a word.
//!
//! `urls = "none"` can be read by someone new; `urls = 0` or `-1` must be looked up.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, Deserialize, Deserializer, IntoDeserializer, Visitor};
use serde::ser::{Serialize, Serializer};

/// At most so much, or `none`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Limit<Quantity> {
    /// There is no limit.
    #[default]
    None,
    /// At most so much.
    At(Quantity),
}

impl<Quantity: Copy + PartialOrd> Limit<Quantity> {
    /// The limit, if there is one.
    pub fn get(self) -> Option<Quantity> {
        match self {
            Limit::None => None,
            Limit::At(limit) => Some(limit),
        }
    }

    /// Returns the limit that `amount` is over.
    pub fn exceeded_by(self, amount: Quantity) -> Option<Quantity> {
        self.get().filter(|limit| amount > *limit)
    }
}

impl<Quantity: fmt::Display> fmt::Display for Limit<Quantity> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::None => f.write_str("none"),
            Limit::At(limit) => limit.fmt(f),
        }
    }
}

impl<Quantity: Serialize> Serialize for Limit<Quantity> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Limit::None => serializer.serialize_str("none"),
            Limit::At(limit) => limit.serialize(serializer),
        }
    }
}

impl<'de, Quantity: Deserialize<'de>> Deserialize<'de> for Limit<Quantity> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LimitVisitor(PhantomData))
    }
}

struct LimitVisitor<Quantity>(PhantomData<Quantity>);

impl<'de, Quantity: Deserialize<'de>> Visitor<'de> for LimitVisitor<Quantity> {
    type Value = Limit<Quantity>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(r#"a limit or "none""#)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        if text == "none" {
            return Ok(Limit::None);
        }
        Quantity::deserialize(text.into_deserializer()).map(Limit::At)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
        Quantity::deserialize(number.into_deserializer()).map(Limit::At)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
        Quantity::deserialize(number.into_deserializer()).map(Limit::At)
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Self::Value, E> {
        Quantity::deserialize(number.into_deserializer()).map(Limit::At)
    }
}

#[cfg(test)]
mod tests {
    use ecluse_config::{Bytes, Span};

    use super::*;

    #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Budget {
        urls: Limit<u64>,
        bytes: Limit<Bytes>,
        time: Limit<Span>,
    }

    #[test]
    fn a_limit_is_a_quantity_or_none() {
        let text = "urls = 7\nbytes = \"1 MB\"\ntime = \"none\"\n";
        let budget: Budget = toml::from_str(text).unwrap();
        let expected = Budget {
            urls: Limit::At(7),
            bytes: Limit::At(Bytes(1_000_000)),
            time: Limit::None,
        };
        assert_eq!(budget, expected);
        assert_eq!(toml::to_string(&budget).unwrap(), text);
        for text in ["urls = -1", "urls = \"seven\"", "urls = true", "urls = 0.5"] {
            let text = format!("{text}\nbytes = \"none\"\ntime = \"none\"");
            assert!(toml::from_str::<Budget>(&text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_limit_is_exceeded_by_more() {
        assert_eq!(Limit::At(7).exceeded_by(7), None);
        assert_eq!(Limit::At(7).exceeded_by(8), Some(7));
        assert_eq!(Limit::None.exceeded_by(u64::MAX), None);
        assert_eq!(
            (Limit::At(7).to_string(), Limit::<u8>::None.to_string()),
            ("7".into(), "none".into())
        );
    }
}
