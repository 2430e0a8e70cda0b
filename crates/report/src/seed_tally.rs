//! What became of a seed.

use serde::Serialize;

use crate::compact::{self, DecodeError, Encoder};

/// What became of a seed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct SeedTally {
    /// Its URL.
    pub url: String,
    /// Its tag.
    pub tag: String,
    /// The last status code; 0 if it was never tried.
    pub status: i32,
    /// Where it sent us.
    pub redirect: Option<String>,
}

impl SeedTally {
    /// Returns `CRAWLED` or `NOTCRAWLED`, as Heritrix does.
    #[must_use]
    pub fn verdict(&self) -> &'static str {
        if self.is_crawled() {
            "CRAWLED"
        } else {
            "NOTCRAWLED"
        }
    }

    /// Tells whether it was answered.
    #[must_use]
    pub fn is_crawled(&self) -> bool {
        self.status > 0
    }

    /// Returns it as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::new();
        out.text(1, &self.url);
        out.text(2, &self.tag);
        out.signed(3, i64::from(self.status));
        if let Some(redirect) = &self.redirect {
            out.text(4, redirect);
        }
        out.finish()
    }

    /// Reads what [`SeedTally::encode`] wrote, in this version or a later one.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut tally = Self::default();
        compact::decode(bytes, |field| {
            match field.tag {
                1 => tally.url = field.text()?,
                2 => tally.tag = field.text()?,
                3 => tally.status = i32::try_from(field.signed()?).ok()?,
                4 => tally.redirect = Some(field.text()?),
                _ => {}
            }
            Some(())
        })?;
        Ok(tally)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_answer_makes_it_crawled() {
        for (status, verdict) in [
            (200, "CRAWLED"),
            (404, "CRAWLED"),
            (0, "NOTCRAWLED"),
            (-2, "NOTCRAWLED"),
        ] {
            let seed = SeedTally {
                status,
                ..SeedTally::default()
            };
            assert_eq!(seed.verdict(), verdict);
        }
    }

    proptest! {
        #[test]
        fn any_seed_comes_back(
            url in any::<String>(),
            tag in any::<String>(),
            status in any::<i32>(),
            redirect in proptest::option::of(any::<String>()),
        ) {
            let seed = SeedTally { url, tag, status, redirect };
            prop_assert_eq!(SeedTally::decode(&seed.encode()), Ok(seed));
        }
    }
}
