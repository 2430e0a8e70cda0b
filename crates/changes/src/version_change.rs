//! One version of a page and how it differs from the one before: a line of `changes.tsv.zst`.

use std::fmt::Write as _;

use crate::ChangeRecord;
use crate::archive_time::ArchiveTime;
use crate::error::BadLine;
use crate::field::{Fields, push_escaped, push_number, push_optional, push_words};
use crate::words::WordMeasures;

/// How many elements of each kind were inserted, deleted and updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ElementCounts {
    /// By element (text, link, image) and, within it, by operation (insert, delete, update).
    pub counts: [[u32; 3]; 3],
}

/// Whether the documents of a change could be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReadOutcome {
    /// What had to be read was read.
    Read,
    /// It has no text that we can read, such as a PDF.
    NoText,
    /// The file is not where it should be.
    Missing,
    /// The record is not what was indexed, or cannot be unpacked.
    Damaged,
    /// A revisit of something that the archive does not have.
    NoOriginal,
}

impl ReadOutcome {
    /// All, in the order they are told.
    pub const ALL: [Self; 5] = [
        Self::Read,
        Self::NoText,
        Self::Missing,
        Self::Damaged,
        Self::NoOriginal,
    ];

    /// Returns the word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::NoText => "no-text",
            Self::Missing => "missing",
            Self::Damaged => "damaged",
            Self::NoOriginal => "no-original",
        }
    }
}

/// One version of a page: the first capture of a content that the capture before it did not have.
#[derive(Debug, Clone, PartialEq)]
pub struct VersionChange {
    /// The key of the page in the index.
    pub surt: String,
    /// The first capture of the version.
    pub time: ArchiveTime,
    /// Its payload digest, as the index has it.
    pub digest: String,
    /// The capture before it, and its digest; none of the first version.
    pub before: Option<(ArchiveTime, String)>,
    /// How much the change weighs, from 0 to 1; none of the first version, and where it could not be weighed.
    pub weight: Option<f64>,
    /// What was inserted, deleted and updated.
    pub counts: ElementCounts,
    /// The simhash of its text.
    pub simhash: Option<u64>,
    /// How many bits of the simhash differ from the version before.
    pub distance: Option<u32>,
    /// The share of the document that is text.
    pub text_weight: Option<f64>,
    /// Its `ETag`.
    pub etag: Option<String>,
    /// Its `Last-Modified`, as it was sent.
    pub last_modified: Option<String>,
    /// Whether it could be read.
    pub outcome: ReadOutcome,
    /// What its words say; none without a list of words.
    pub words: Option<WordMeasures>,
}

impl ChangeRecord for VersionChange {
    const FILE: &'static str = "changes.tsv.zst";
    const HEADER: &'static str = "# ecluse changes 1";

    fn key(&self) -> &str {
        &self.surt
    }

    fn write(&self, line: &mut String) {
        let _ = write!(line, "{}\t{}\t", self.surt, self.time);
        push_escaped(line, &self.digest);
        match &self.before {
            Some((time, digest)) => {
                let _ = write!(line, "\t{time}\t");
                push_escaped(line, digest);
            }
            None => line.push_str("\t-\t-"),
        }
        push_optional(line, self.weight, push_number);
        let counts = self.counts.counts.as_flattened();
        for (count, at) in counts.iter().zip(0..) {
            let _ = write!(line, "{}{count}", if at == 0 { '\t' } else { ',' });
        }
        push_optional(line, self.simhash, |line, simhash| {
            let _ = write!(line, "{simhash:016x}");
        });
        push_optional(line, self.distance, |line, distance| {
            let _ = write!(line, "{distance}");
        });
        push_optional(line, self.text_weight, push_number);
        push_optional(line, self.etag.as_deref(), push_escaped);
        push_optional(line, self.last_modified.as_deref(), push_escaped);
        let _ = write!(line, "\t{}", self.outcome.word());
        push_words(line, self.words);
    }

    fn parse(line: &str) -> Result<Self, BadLine> {
        let mut fields = Fields::of(line);
        let surt = fields.text("surt")?.to_owned();
        let time = fields.time("time")?;
        let digest = fields
            .escaped("digest")?
            .ok_or(BadLine { column: "digest" })?;
        let before = fields.optional_time("before")?;
        let before = match (before, fields.escaped("before-digest")?) {
            (Some(time), Some(digest)) => Some((time, digest)),
            (None, None) => None,
            _ => {
                return Err(BadLine {
                    column: "before-digest",
                });
            }
        };
        let version = Self {
            surt,
            time,
            digest,
            before,
            weight: fields.optional_number("weight")?,
            counts: parse_counts(fields.text("counts")?).ok_or(BadLine { column: "counts" })?,
            simhash: fields.optional("simhash", |text| u64::from_str_radix(text, 16).ok())?,
            distance: fields.optional("distance", |text| text.parse().ok())?,
            text_weight: fields.optional_number("text-weight")?,
            etag: fields.escaped("etag")?,
            last_modified: fields.escaped("last-modified")?,
            outcome: {
                let word = fields.text("outcome")?;
                let known = ReadOutcome::ALL
                    .into_iter()
                    .find(|known| known.word() == word);
                known.ok_or(BadLine { column: "outcome" })?
            },
            words: fields.words()?,
        };
        fields.end()?;
        Ok(version)
    }
}

fn parse_counts(text: &str) -> Option<ElementCounts> {
    let mut counts = ElementCounts::default();
    let mut parts = text.split(',');
    for count in counts.counts.as_flattened_mut() {
        *count = parts.next()?.parse().ok()?;
    }
    parts.next().is_none().then_some(counts)
}
