//! What a job has fetched of one host, counted.
//!
//! There may be millions of hosts, so the bytes are few, and every table has a limit.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::compact::{self, DecodeError, Encoder};
use crate::crawl_log::{Fetched, Kept};
use crate::escape::shortened;
use crate::tally::{Fate, Share, bump, slot};

/// The most status codes that are counted one by one.
const CODES: usize = 64;

/// The most source tags that are counted one by one.
const SOURCES: usize = 32;

/// The most bytes of a source tag that are kept.
const SOURCE_BYTES: usize = 200;

/// What a job has fetched of one host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct HostTally {
    /// Its name.
    pub host: String,
    /// URLs that were answered.
    pub urls: u64,
    /// Bytes of their content.
    pub bytes: u64,
    /// Bytes that came over the wire.
    pub wire_bytes: u64,
    /// URLs that robots.txt forbids.
    pub robots_denied: u64,
    /// URLs that failed.
    pub failures: u64,
    /// URLs that were left out: scope, a budget, a rule of the operator.
    pub disregarded: u64,
    /// URLs that still wait; the caller sets it when it reports.
    pub remaining: u64,
    /// Stored, with their content.
    pub novel: Share,
    /// Stored as references to the same content.
    pub duplicate: Share,
    /// Stored as not modified.
    pub not_modified: Share,
    /// Finished URLs by status code.
    pub codes: BTreeMap<i32, u64>,
    /// Finished URLs whose code found no room.
    pub other_codes: u64,
    /// Answered URLs by source tag.
    pub sources: BTreeMap<String, u64>,
    /// Answered URLs whose tag found no room.
    pub other_sources: u64,
}

impl HostTally {
    /// Returns the tally of a host of which nothing is finished.
    #[must_use]
    pub fn new(host: &str) -> Self {
        Self {
            host: host.to_owned(),
            ..Self::default()
        }
    }

    /// Counts a finished URL; its host is taken to be this one.
    pub fn count(&mut self, fetched: &Fetched<'_>) {
        let bytes = fetched.size.unwrap_or(0);
        self.wire_bytes = self.wire_bytes.saturating_add(fetched.wire_bytes);
        match Fate::of(fetched.status) {
            Fate::Fetched => {
                bump(&mut self.urls);
                self.bytes = self.bytes.saturating_add(bytes);
                let source = shortened(fetched.source, SOURCE_BYTES).to_owned();
                bump(slot(&mut self.sources, SOURCES, source).unwrap_or(&mut self.other_sources));
            }
            Fate::Failed => bump(&mut self.failures),
            Fate::Forbidden => bump(&mut self.robots_denied),
            Fate::Disregarded => bump(&mut self.disregarded),
        }
        match fetched.kind {
            Kept::Stored => self.novel.add(bytes),
            Kept::Revisit => self.duplicate.add(bytes),
            Kept::NotModified => self.not_modified.add(bytes),
            Kept::Nothing => {}
        }
        bump(slot(&mut self.codes, CODES, fetched.status).unwrap_or(&mut self.other_codes));
    }

    /// Returns how many URLs are finished, whatever became of them.
    #[must_use]
    pub fn finished(&self) -> u64 {
        [self.failures, self.robots_denied, self.disregarded]
            .into_iter()
            .fold(self.urls, u64::saturating_add)
    }

    /// Returns it as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::new();
        out.text(1, &self.host);
        for (tag, number) in [
            (2, self.urls),
            (3, self.bytes),
            (4, self.wire_bytes),
            (5, self.robots_denied),
            (6, self.failures),
            (7, self.disregarded),
            (8, self.remaining),
            (9, self.novel.urls),
            (10, self.novel.bytes),
            (11, self.duplicate.urls),
            (12, self.duplicate.bytes),
            (13, self.not_modified.urls),
            (14, self.not_modified.bytes),
            (15, self.other_codes),
            (16, self.other_sources),
        ] {
            out.number(tag, number);
        }
        for (code, count) in &self.codes {
            out.code_count(17, *code, *count);
        }
        for (source, count) in &self.sources {
            out.text_count(18, source, *count);
        }
        out.finish()
    }

    /// Reads what [`HostTally::encode`] wrote, in this version or a later one.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut tally = Self::default();
        compact::decode(bytes, |field| {
            match field.tag {
                1 => tally.host = field.text()?,
                17 => tally.codes.extend([field.code_count()?]),
                18 => tally.sources.extend([field.text_count()?]),
                tag => {
                    if let Some(slot) = tally.number(tag) {
                        *slot = field.number()?;
                    }
                }
            }
            Some(())
        })?;
        Ok(tally)
    }

    fn number(&mut self, tag: u8) -> Option<&mut u64> {
        Some(match tag {
            2 => &mut self.urls,
            3 => &mut self.bytes,
            4 => &mut self.wire_bytes,
            5 => &mut self.robots_denied,
            6 => &mut self.failures,
            7 => &mut self.disregarded,
            8 => &mut self.remaining,
            9 => &mut self.novel.urls,
            10 => &mut self.novel.bytes,
            11 => &mut self.duplicate.urls,
            12 => &mut self.duplicate.bytes,
            13 => &mut self.not_modified.urls,
            14 => &mut self.not_modified.bytes,
            15 => &mut self.other_codes,
            16 => &mut self.other_sources,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tally::tests::fetched;

    #[test]
    fn a_host_is_counted() {
        let mut tally = HostTally::new("a.example");
        tally.count(&fetched(200, 1000, Kept::Stored));
        tally.count(&fetched(200, 500, Kept::Revisit));
        tally.count(&fetched(304, 0, Kept::NotModified));
        tally.count(&fetched(-9998, 0, Kept::Nothing));
        tally.count(&fetched(-4, 0, Kept::Nothing));
        tally.count(&fetched(-5003, 0, Kept::Nothing));
        assert_eq!((tally.urls, tally.bytes, tally.finished()), (3, 1500, 6));
        assert_eq!(
            (tally.robots_denied, tally.failures, tally.disregarded),
            (1, 1, 1)
        );
        assert_eq!(
            tally.novel,
            Share {
                urls: 1,
                bytes: 1000
            }
        );
        assert_eq!(tally.sources["tag"], 3);
        assert_eq!(tally.codes.values().sum::<u64>(), 6);
        assert_eq!(HostTally::decode(&tally.encode()), Ok(tally));
    }

    #[test]
    fn tables_have_a_limit() {
        let mut tally = HostTally::new("a.example");
        for number in 1..=100 {
            let source = format!("{}{number}", "é".repeat(50));
            tally.count(&Fetched {
                source: &source,
                ..fetched(number, 1, Kept::Stored)
            });
        }
        assert_eq!((tally.codes.len(), tally.other_codes), (CODES, 36));
        assert_eq!((tally.sources.len(), tally.other_sources), (SOURCES, 68));
        assert_eq!(HostTally::decode(&tally.encode()), Ok(tally));
    }

    #[test]
    fn few_bytes_for_a_small_host() {
        let mut tally = HostTally::new("www.example.org");
        for _ in 0..100 {
            tally.count(&fetched(200, 40_000, Kept::Stored));
        }
        assert!(tally.encode().len() < 64, "{}", tally.encode().len());
    }

    #[test]
    fn what_a_later_version_adds_is_passed_over() {
        let mut bytes = HostTally::new("a").encode();
        bytes.extend_from_slice(&[200, 3, 1, 2, 3]);
        assert_eq!(HostTally::decode(&bytes), Ok(HostTally::new("a")));
        bytes.extend_from_slice(&[2, 1, 0x80]);
        assert!(HostTally::decode(&bytes).is_err());
    }

    proptest! {
        #[test]
        fn any_tally_comes_back(
            host in any::<String>(),
            urls in any::<u64>(),
            bytes in any::<u64>(),
            codes in proptest::collection::btree_map(any::<i32>(), any::<u64>(), 0..8),
            sources in proptest::collection::btree_map(any::<String>(), any::<u64>(), 0..4),
        ) {
            let tally = HostTally {
                urls,
                bytes,
                other_sources: urls,
                not_modified: Share { urls: bytes, bytes: urls },
                codes,
                sources,
                ..HostTally::new(&host)
            };
            prop_assert_eq!(HostTally::decode(&tally.encode()), Ok(tally));
        }

        #[test]
        fn any_bytes_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = HostTally::decode(&bytes);
        }
    }
}
