//! What the rows say.

use std::fmt;

use rusqlite::Row;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::places::PlaceRoot;

/// How far a file has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileState {
    /// Taken in.
    Ingested,
    /// Its lines are written.
    Indexed,
    /// At its final place.
    Stored,
    /// In a backup.
    BackedUp,
    /// The working copy is gone.
    Deleted,
    /// In the big index.
    Published,
    /// Gone from `harvested/`.
    Cleaned,
}

impl FileState {
    /// Every state, in order.
    pub const ALL: [Self; 7] = [
        Self::Ingested,
        Self::Indexed,
        Self::Stored,
        Self::BackedUp,
        Self::Deleted,
        Self::Published,
        Self::Cleaned,
    ];

    /// Returns its word in the database.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ingested => "ingested",
            Self::Indexed => "indexed",
            Self::Stored => "stored",
            Self::BackedUp => "backed-up",
            Self::Deleted => "deleted",
            Self::Published => "published",
            Self::Cleaned => "cleaned",
        }
    }

    /// Returns the column with the time it was reached.
    pub(crate) fn column(self) -> &'static str {
        match self {
            Self::BackedUp => "backed_up",
            other => other.word(),
        }
    }

    /// Reads a word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }
}

/// A file that is taken in.
#[derive(Debug, Clone, Copy)]
pub struct NewFile<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its size.
    pub bytes: u64,
    /// Its SHA-256, in hex.
    pub sha256: &'a str,
    /// `warc` or `metadata`.
    pub kind: &'a str,
    /// The job in its name.
    pub job: Option<&'a str>,
    /// The harvest in its name.
    pub harvest: Option<&'a str>,
    /// The collection its harvest belongs to.
    pub collection: Option<&'a str>,
    /// Where it was found.
    pub source: &'a str,
    /// The parcel that took it in: the same when the work is done again.
    pub parcel: &'a str,
}

/// What became of a file that was to be taken in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ingested {
    /// It is new, or this very parcel took it in before.
    New,
    /// A file of that name and digest is known: counted and left alone.
    Same,
    /// A file of that name with other bytes is known.
    Differs {
        /// The size of the known one.
        bytes: u64,
        /// Its digest.
        sha256: String,
    },
}

/// A copy, as the stage that made it tells.
#[derive(Debug, Clone, Copy)]
pub struct Copy<'a> {
    /// The location's or backup's name in the settings.
    pub target: &'a str,
    /// Where it is: a path, an object.
    pub place: &'a str,
    /// Its size.
    pub bytes: u64,
    /// Its SHA-256 as read back, in hex.
    pub sha256: &'a str,
}

/// What a copy is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CopyKind {
    /// The copy readers use.
    Stored,
    /// A copy against loss.
    Backup,
}

impl CopyKind {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Backup => "backup",
        }
    }
}

/// What is known of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct FileRow {
    /// Its name.
    pub name: String,
    /// Its size; unknown for a parcel given by hand, until it is stored.
    pub bytes: Option<u64>,
    /// Its SHA-256.
    pub sha256: Option<String>,
    /// `warc` or `metadata`.
    pub kind: Option<String>,
    /// The job.
    pub job: Option<String>,
    /// The harvest.
    pub harvest: Option<String>,
    /// The collection.
    pub collection: Option<String>,
    /// Where it was found.
    pub source: Option<String>,
    /// How far it has come.
    pub state: FileState,
    /// Index lines.
    pub captures: Option<u64>,
    /// Places that could not be read.
    pub damages: Option<u64>,
    /// The generation that first held it.
    pub generation: Option<u64>,
    /// When the working copy went.
    pub deleted: Option<String>,
}

/// A file that is not in the index yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfinishedFile {
    /// Its name.
    pub name: String,
    /// Its SHA-256.
    pub sha256: Option<String>,
    /// The parcel that ingest made of it.
    pub parcel: Option<String>,
}

/// A place in a file that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// The number of the record, from 1.
    pub record: u64,
    /// Where in the file.
    pub offset: u64,
    /// What is wrong.
    pub reason: String,
}

impl Damage {
    /// So many of a file are told one by one, in its receipt and in the manifest; all are counted.
    pub const TOLD: usize = 20;
}

/// What the receipt of index says of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexFacts {
    /// Its lines in the index; equal ones are one.
    pub lines: u64,
    /// How many places could not be read.
    pub damages: u64,
    /// The first of them.
    pub told: Vec<Damage>,
}

impl IndexFacts {
    /// Reads them. Early receipts have the captures only, which is the number of lines unless some are equal.
    pub fn of(facts: &serde_json::Map<String, Value>) -> Self {
        let number = |key: &str| facts.get(key).and_then(Value::as_u64);
        let told = facts.get("damage").cloned().unwrap_or_default();
        Self {
            lines: number("lines").or(number("captures")).unwrap_or(0),
            damages: number("damages").unwrap_or(0),
            told: serde_json::from_value(told).unwrap_or_default(),
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            record,
            offset,
            reason,
        } = self;
        write!(out, "record {record} at offset {offset}: {reason}")
    }
}

/// One copy of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct CopyRow {
    /// The file.
    pub file: String,
    /// What it is for.
    pub kind: CopyKind,
    /// The location's or backup's name.
    pub target: String,
    /// Where it is.
    pub place: String,
    /// Its size.
    pub bytes: u64,
    /// Its digest when it was made.
    pub sha256: String,
    /// A backup's proof, as JSON.
    pub proof: Option<String>,
    /// When it was last read again.
    pub checked: Option<String>,
    /// What that gave.
    pub found: Option<String>,
}

impl CopyRow {
    /// Tells whether it was not what it should be when it was last read again.
    pub fn is_bad(&self) -> bool {
        self.found
            .as_deref()
            .is_some_and(|found| found.starts_with("bad"))
    }
}

pub(crate) const SELECT: &str = "SELECT name, bytes, sha256, kind, job, harvest, collection, source, \
     state, captures, damages, generation, deleted FROM file";

pub(crate) const SELECT_COPIES: &str = "SELECT file, kind, target, place, bytes, sha256, proof, checked, \
     found FROM copy WHERE file = ?1 ORDER BY kind DESC, target";

pub(crate) const SELECT_IN_STATE: &str = "SELECT name, bytes, sha256, kind, job, harvest, collection, \
     source, state, captures, damages, generation, deleted FROM file \
     WHERE state = ?1 AND name > ?2 ORDER BY name LIMIT ?3";

pub(crate) const SELECT_UNFINISHED: &str = "SELECT name, sha256, parcel FROM file \
     WHERE state IN ('ingested', 'indexed', 'stored', 'backed-up', 'deleted') LIMIT ?1";

pub(crate) const SELECT_SKIPPED: &str =
    "SELECT source FROM skipped WHERE file = ?1 ORDER BY source";

pub(crate) fn file(row: &Row<'_>, places: &PlaceRoot) -> rusqlite::Result<FileRow> {
    let number = |at: usize| -> rusqlite::Result<Option<u64>> {
        Ok(row.get::<_, Option<i64>>(at)?.map(i64::unsigned_abs))
    };
    let word: String = row.get(8)?;
    let source: Option<String> = row.get(7)?;
    Ok(FileRow {
        name: row.get(0)?,
        bytes: number(1)?,
        sha256: row.get(2)?,
        kind: row.get(3)?,
        job: row.get(4)?,
        harvest: row.get(5)?,
        collection: row.get(6)?,
        source: source.map(|source| places.whole(&source).into_owned()),
        // A word nobody writes is the work of a hand: the file counts as just taken in.
        state: FileState::parse(&word).unwrap_or(FileState::Ingested),
        captures: number(9)?,
        damages: number(10)?,
        generation: number(11)?,
        deleted: row.get(12)?,
    })
}

pub(crate) fn copy(row: &Row<'_>, places: &PlaceRoot) -> rusqlite::Result<CopyRow> {
    let kind: String = row.get(1)?;
    let place: String = row.get(3)?;
    Ok(CopyRow {
        file: row.get(0)?,
        kind: if kind == "stored" {
            CopyKind::Stored
        } else {
            CopyKind::Backup
        },
        target: row.get(2)?,
        place: places.whole(&place).into_owned(),
        bytes: row.get::<_, i64>(4)?.unsigned_abs(),
        sha256: row.get(5)?,
        proof: row.get(6)?,
        checked: row.get(7)?,
        found: row.get(8)?,
    })
}

/// What a file is looked for by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Term<'a> {
    /// Its job.
    Job(&'a str),
    /// Its harvest.
    Harvest(&'a str),
    /// The beginning of its SHA-256, in hex.
    Digest(&'a str),
    /// A part of its name.
    Name(&'a str),
    /// Those of which something could not be read.
    Damaged,
}
