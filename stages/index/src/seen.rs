//! What was seen in a file: `NAME.seen.json`, as `docs/formats/seen.md` has it.
//!
//! Memory is bounded whatever the file says: names from the web are counted one by one up to a limit, then together.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};

use ecluse_cdx::Capture;
use ecluse_holding::PackingList;
use ecluse_manifest::Damage;
use ecluse_warc::RecordKind;
use serde::Serialize;

use crate::found::FoundFormat;

/// How many media types are counted apart.
const MIMES: usize = 500;

/// How long a media type may be to be counted apart.
const MIME_BYTES: usize = 100;

/// How many hosts are told from each other.
const HOSTS: usize = 200_000;

/// What a value that is not counted apart counts as.
const OTHER: &str = "other";

/// What was seen in a (W)ARC file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Seen {
    /// The file's name.
    pub file: String,
    /// Its size.
    pub bytes: u64,
    /// How it is packed: `gzip`, `zstd` or `none`.
    pub packing: &'static str,
    /// How many records were found.
    pub records: u64,
    /// The records by type.
    pub types: BTreeMap<&'static str, u64>,
    /// The bytes of all blocks, as the headers state them.
    pub block_bytes: u64,
    /// How many lines were made.
    pub captures: u64,
    /// The captures by media type.
    pub mime: BTreeMap<String, u64>,
    /// The payloads by media type as declared and as found.
    pub formats: Vec<FormatCount>,
    /// The captures by HTTP status.
    pub status: BTreeMap<String, u64>,
    /// How many hosts the captures are of.
    pub hosts: u64,
    /// The time of the first capture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
    /// The time of the last capture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<String>,
    /// What was wrong with the file.
    pub damage: DamageReport,
    /// The last member that was given up because it inflates beyond all measure: such a file is held.
    #[serde(skip)]
    pub bomb: Option<Damage>,
    /// The job's packing list, in its metadata file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packing_list: Option<PackingList>,
}

/// Payloads of one declared and one found format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct FormatCount {
    /// The media type in the line.
    pub declared: String,
    /// The media type that the first bytes tell; `-` where there are none, or they are encoded.
    pub found: &'static str,
    /// Its identifier in PRONOM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub puid: Option<&'static str>,
    /// How many there are.
    pub count: u64,
}

/// What was wrong with a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct DamageReport {
    /// How many damages there are.
    pub count: u64,
    /// The first of them.
    pub list: Vec<Damage>,
}

impl Seen {
    /// Returns the bytes of `NAME.seen.json`.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec_pretty(self)
            .expect("it holds strings, numbers and maps with strings for keys");
        json.push(b'\n');
        json
    }

    /// Returns the counts, without what the receipt tells elsewhere or what may be long.
    pub(crate) fn summary(&self) -> serde_json::Value {
        serde_json::json!({
            "packing": self.packing,
            "types": self.types,
            "block-bytes": self.block_bytes,
            "mime": self.mime,
            "formats": self.formats,
            "status": self.status,
            "hosts": self.hosts,
            "first": self.first,
            "last": self.last,
        })
    }

    /// Returns what is wrong with the file: an empty one has no record, which nobody meant to keep.
    pub(crate) fn damage(&self) -> DamageReport {
        if self.records > 0 || self.damage.count > 0 {
            return self.damage.clone();
        }
        DamageReport {
            count: 1,
            list: vec![Damage {
                record: 1,
                offset: 0,
                reason: match self.bytes {
                    0 => "the file is empty".to_owned(),
                    bytes => format!("there is no record in its {bytes} bytes"),
                },
            }],
        }
    }

    /// Tells whether nothing in the file could be read, though there is something.
    pub fn is_unreadable(&self) -> bool {
        self.records == 0 && self.damage.count > 0
    }
}

/// Returns what the reader found as it is told.
pub(crate) fn told(damage: &ecluse_warc::RecordDamage) -> Damage {
    Damage {
        record: damage.record,
        offset: damage.offset,
        reason: damage.reason.to_string(),
    }
}

/// Counts while a file is read.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    types: BTreeMap<&'static str, u64>,
    block_bytes: u64,
    captures: u64,
    mime: BTreeMap<String, u64>,
    /// By declared type, as far as these are counted apart.
    formats: BTreeMap<String, BTreeMap<FoundFormat, u64>>,
    status: BTreeMap<String, u64>,
    hosts: HashSet<u64, BuildHasherDefault<AsIs>>,
    times: Option<(String, String)>,
    pub(crate) packing_list: Option<PackingList>,
}

impl Tally {
    pub(crate) fn record(&mut self, kind: RecordKind, block_bytes: Option<u64>) {
        let name = kind.name().unwrap_or(OTHER);
        *self.types.entry(name).or_default() += 1;
        self.block_bytes = self.block_bytes.saturating_add(block_bytes.unwrap_or(0));
    }

    pub(crate) fn capture(
        &mut self,
        capture: &Capture<'_>,
        host: &[u8],
        found: Option<FoundFormat>,
    ) {
        self.captures += 1;
        let mime = capture.mime.as_deref().unwrap_or("-");
        count(&mut self.mime, mime, |mime, counted| {
            counted < MIMES && mime.len() <= MIME_BYTES
        });
        if let Some(found) = found {
            self.format(mime, found);
        }
        let status = capture.status.as_deref().unwrap_or("-");
        count(&mut self.status, status, |status, _| {
            status == "-" || (status.len() == 3 && status.bytes().all(|b| b.is_ascii_digit()))
        });
        if self.hosts.len() < HOSTS {
            let mut hasher = DefaultHasher::new();
            host.hash(&mut hasher);
            self.hosts.insert(hasher.finish());
        }
        self.time(capture.time.as_str());
    }

    pub(crate) fn finish(self, file: &str, facts: Facts) -> Seen {
        let (first, last) = self.times.unzip();
        Seen {
            file: file.to_owned(),
            bytes: facts.bytes,
            packing: facts.packing,
            records: facts.records,
            types: self.types,
            block_bytes: self.block_bytes,
            captures: self.captures,
            mime: self.mime,
            formats: format_counts(self.formats),
            status: self.status,
            hosts: self.hosts.len() as u64,
            first,
            last,
            damage: facts.damage,
            bomb: facts.bomb,
            packing_list: self.packing_list,
        }
    }

    fn format(&mut self, declared: &str, found: FoundFormat) {
        let declared = match self.mime.contains_key(declared) {
            true => declared,
            false => OTHER,
        };
        let counts = match self.formats.get_mut(declared) {
            Some(counts) => counts,
            None => self.formats.entry(declared.to_owned()).or_default(),
        };
        *counts.entry(found).or_default() += 1;
    }

    fn time(&mut self, time: &str) {
        let Some((first, last)) = &mut self.times else {
            self.times = Some((time.to_owned(), time.to_owned()));
            return;
        };
        if time < first.as_str() {
            time.clone_into(first);
        }
        if time > last.as_str() {
            time.clone_into(last);
        }
    }
}

fn format_counts(formats: BTreeMap<String, BTreeMap<FoundFormat, u64>>) -> Vec<FormatCount> {
    let mut list = Vec::new();
    for (declared, counts) in formats {
        list.extend(counts.into_iter().map(|(found, count)| FormatCount {
            declared: declared.clone(),
            found: found.media_type,
            puid: found.puid,
            count,
        }));
    }
    list
}

/// What the reader knows at the end of a file.
pub(crate) struct Facts {
    pub(crate) bytes: u64,
    pub(crate) packing: &'static str,
    pub(crate) records: u64,
    pub(crate) damage: DamageReport,
    pub(crate) bomb: Option<Damage>,
}

fn count(counts: &mut BTreeMap<String, u64>, name: &str, apart: impl FnOnce(&str, usize) -> bool) {
    if let Some(known) = counts.get_mut(name) {
        *known += 1;
        return;
    }
    let name = if apart(name, counts.len()) {
        name
    } else {
        OTHER
    };
    *counts.entry(name.to_owned()).or_default() += 1;
}

/// Takes a number that is a hash already for its own hash.
#[derive(Debug, Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0 << 8 | u64::from(*byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

#[cfg(test)]
mod tests {
    use ecluse_cdx::CaptureTime;

    use super::*;

    fn capture(time: &str, mime: &str, status: &str) -> Capture<'static> {
        let time = CaptureTime::from_digits(time.as_bytes()).unwrap();
        let mut capture = Capture::new("a)/", time);
        capture.mime = Some(mime.to_owned().into());
        capture.status = Some(status.to_owned().into());
        capture
    }

    fn facts() -> Facts {
        Facts {
            bytes: 0,
            packing: "none",
            records: 0,
            damage: DamageReport::default(),
            bomb: None,
        }
    }

    #[test]
    fn names_from_the_web_are_counted_up_to_a_limit() {
        let mut tally = Tally::default();
        for number in 0..2 * MIMES {
            let mime = format!("x/{number}");
            tally.capture(&capture("20260102030405", &mime, "20x"), b"org,a", None);
        }
        tally.capture(&capture("20260102030405", "x/1", "200"), b"org,b", None);
        let seen = tally.finish("a", facts());
        assert_eq!(seen.mime.len(), MIMES + 1);
        assert_eq!(seen.mime["other"], MIMES as u64);
        assert_eq!(seen.mime["x/1"], 2);
        assert_eq!((seen.status["other"], seen.status["200"]), (1000, 1));
        assert_eq!(seen.hosts, 2);
    }

    #[test]
    fn first_and_last_are_by_time_not_by_place() {
        let mut tally = Tally::default();
        for time in ["20260102030405", "20250102030405", "20260302030405"] {
            tally.capture(&capture(time, "a/b", "200"), b"a", None);
        }
        let seen = tally.finish("a", facts());
        assert_eq!(seen.first.as_deref(), Some("20250102030405"));
        assert_eq!(seen.last.as_deref(), Some("20260302030405"));
    }
}
