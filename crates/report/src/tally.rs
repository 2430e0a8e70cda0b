//! What a whole job has fetched, counted.
//!
//! It goes into the job's checkpoint, so its size has a limit: what does not fit into a table is counted as `other`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde::{Deserialize, Serialize};

use crate::crawl_log::{Fetched, Kept, bare_type};
use crate::escape::shortened;
use crate::moment::Moment;

/// The most MIME types that are counted one by one.
const TYPES: usize = 2_000;

/// The most status codes that are counted one by one.
const CODES: usize = 2_000;

/// The most bytes of a MIME type that are kept.
const TYPE_BYTES: usize = 100;

/// What is counted when a table is full.
pub(crate) const OTHER: &str = "other";

/// Heritrix's code for what robots.txt forbids.
const FORBIDDEN: i32 = -9998;

/// URLs, and the bytes of their content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Share {
    /// How many URLs.
    pub urls: u64,
    /// How many bytes.
    pub bytes: u64,
}

impl Share {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.urls = self.urls.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// What became of the URLs of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Totals {
    /// All that are finished.
    pub urls: u64,
    /// Those that were answered.
    pub fetched: u64,
    /// Those that failed.
    pub failed: u64,
    /// Those that robots.txt forbids.
    pub forbidden: u64,
    /// Those that were left out for another reason: scope, a budget, a rule of the operator.
    pub disregarded: u64,
    /// Stored, with their content.
    pub novel: Share,
    /// Stored as references to the same content.
    pub duplicate: Share,
    /// Stored as not modified.
    pub not_modified: Share,
    /// Bytes that came over the wire.
    pub wire_bytes: u64,
}

impl Totals {
    /// Returns the bytes of all content, kept anew or not.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.novel
            .bytes
            .saturating_add(self.duplicate.bytes)
            .saturating_add(self.not_modified.bytes)
    }
}

/// What a whole job has fetched.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct JobTally {
    /// What became of the URLs.
    pub totals: Totals,
    /// URLs by status code.
    pub codes: BTreeMap<i32, u64>,
    /// URLs whose code found no room.
    pub other_codes: u64,
    /// What was answered, by MIME type.
    pub types: BTreeMap<String, Share>,
    /// What was answered and whose type found no room.
    pub other_types: Share,
    /// When the first fetch began.
    pub first: Option<Moment>,
    /// When the last fetch began.
    pub last: Option<Moment>,
}

impl JobTally {
    /// Counts a finished URL.
    pub fn count(&mut self, fetched: &Fetched<'_>) {
        let bytes = fetched.size.unwrap_or(0);
        let totals = &mut self.totals;
        bump(&mut totals.urls);
        match Fate::of(fetched.status) {
            Fate::Fetched => {
                bump(&mut totals.fetched);
                self.count_type(fetched.mime, bytes);
            }
            Fate::Failed => bump(&mut totals.failed),
            Fate::Forbidden => bump(&mut totals.forbidden),
            Fate::Disregarded => bump(&mut totals.disregarded),
        }
        let totals = &mut self.totals;
        totals.wire_bytes = totals.wire_bytes.saturating_add(fetched.wire_bytes);
        match fetched.kind {
            Kept::Stored => totals.novel.add(bytes),
            Kept::Revisit => totals.duplicate.add(bytes),
            Kept::NotModified => totals.not_modified.add(bytes),
            Kept::Nothing => {}
        }
        bump(slot(&mut self.codes, CODES, fetched.status).unwrap_or(&mut self.other_codes));
        if let Some(begun) = fetched.begun {
            self.first = Some(self.first.map_or(begun, |first| first.min(begun)));
            self.last = self.last.max(Some(begun));
        }
    }

    fn count_type(&mut self, mime: &str, bytes: u64) {
        let mime = shortened(bare_type(mime), TYPE_BYTES).to_ascii_lowercase();
        slot(&mut self.types, TYPES, mime)
            .unwrap_or(&mut self.other_types)
            .add(bytes);
    }
}

/// What became of a URL, told by its status code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Fetched,
    Failed,
    Forbidden,
    Disregarded,
}

impl Fate {
    pub(crate) fn of(status: i32) -> Self {
        match status {
            1.. => Self::Fetched,
            FORBIDDEN => Self::Forbidden,
            // Hops, scope, settings, custom processors, quotas, limits, the operator's hand.
            -4002..=-4001 | -5004..=-5000 | -6000 => Self::Disregarded,
            _ => Self::Failed,
        }
    }
}

pub(crate) fn bump(count: &mut u64) {
    *count = count.saturating_add(1);
}

/// Returns the place of a key in a table of at most `room` keys; nothing if it is new and the table full.
pub(crate) fn slot<Key: Ord, Count: Default>(
    table: &mut BTreeMap<Key, Count>,
    room: usize,
    key: Key,
) -> Option<&mut Count> {
    let is_full = table.len() >= room;
    match table.entry(key) {
        Entry::Occupied(known) => Some(known.into_mut()),
        Entry::Vacant(_) if is_full => None,
        Entry::Vacant(new) => Some(new.insert(Count::default())),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn fetched(status: i32, bytes: u64, kind: Kept) -> Fetched<'static> {
        Fetched {
            logged: Moment(1_794_790_800_123),
            status,
            size: Some(bytes),
            url: "http://a.example/",
            hops: "L",
            via: "http://b.example/",
            mime: "Text/HTML; charset=utf-8",
            thread: 1,
            begun: Some(Moment(1_794_790_800_000)),
            took_ms: Some(100),
            digest: None,
            source: "tag",
            annotations: &[],
            extra: None,
            host: "a.example",
            wire_bytes: bytes + 300,
            kind,
        }
    }

    #[test]
    fn every_url_has_one_fate() {
        let mut tally = JobTally::default();
        tally.count(&fetched(200, 1000, Kept::Stored));
        tally.count(&fetched(200, 500, Kept::Revisit));
        tally.count(&fetched(304, 0, Kept::NotModified));
        tally.count(&fetched(-2, 0, Kept::Nothing));
        tally.count(&fetched(0, 0, Kept::Nothing));
        tally.count(&fetched(-9998, 0, Kept::Nothing));
        tally.count(&fetched(-5003, 0, Kept::Nothing));
        let totals = tally.totals;
        assert_eq!(
            (
                totals.urls,
                totals.fetched,
                totals.failed,
                totals.forbidden,
                totals.disregarded
            ),
            (7, 3, 2, 1, 1)
        );
        assert_eq!(
            totals.novel,
            Share {
                urls: 1,
                bytes: 1000
            }
        );
        assert_eq!(
            totals.duplicate,
            Share {
                urls: 1,
                bytes: 500
            }
        );
        assert_eq!(totals.not_modified, Share { urls: 1, bytes: 0 });
        assert_eq!((totals.bytes(), totals.wire_bytes), (1500, 1500 + 7 * 300));
        assert_eq!(tally.codes[&200], 2);
        assert_eq!(
            tally.types["text/html"],
            Share {
                urls: 3,
                bytes: 1500
            }
        );
        assert_eq!(tally.first, tally.last);
    }

    #[test]
    fn first_and_last_are_found_in_any_order() {
        let mut tally = JobTally::default();
        for begun in [Some(Moment(5)), None, Some(Moment(9)), Some(Moment(2))] {
            tally.count(&Fetched {
                begun,
                ..fetched(200, 1, Kept::Stored)
            });
        }
        assert_eq!(
            (tally.first, tally.last),
            (Some(Moment(2)), Some(Moment(9)))
        );
    }

    #[test]
    fn tables_have_a_limit() {
        let mut tally = JobTally::default();
        for number in 0..3_000 {
            let mime = format!("x/{number}");
            tally.count(&Fetched {
                mime: &mime,
                ..fetched(number, 2, Kept::Stored)
            });
        }
        assert_eq!((tally.types.len(), tally.codes.len()), (TYPES, CODES));
        assert_eq!(tally.other_codes, 1_000);
        assert_eq!(
            tally.other_types,
            Share {
                urls: 999,
                bytes: 1_998
            }
        );
        let long = "é".repeat(1_000);
        let mut tally = JobTally::default();
        tally.count(&Fetched {
            mime: &long,
            ..fetched(200, 0, Kept::Nothing)
        });
        assert!(tally.types.keys().all(|mime| mime.len() <= TYPE_BYTES));
    }

    #[test]
    fn a_tally_survives_its_checkpoint() {
        let mut tally = JobTally::default();
        tally.count(&fetched(200, u64::MAX - 300, Kept::Stored));
        tally.count(&fetched(-9998, 0, Kept::Nothing));
        let text = serde_json::to_string(&tally).unwrap();
        assert_eq!(serde_json::from_str::<JobTally>(&text).unwrap(), tally);
        let older: JobTally =
            serde_json::from_str(r#"{"totals":{"urls":3},"unheard-of":1}"#).unwrap();
        assert_eq!(older.totals.urls, 3);
    }
}
