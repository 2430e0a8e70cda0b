//! What clean found in the harvested directories: files that may go, and files that no row accounts for.

use rusqlite::{OptionalExtension, Row, params};
use serde::Serialize;

use crate::error::Result;
use crate::places::PlaceRoot;
use crate::{Manifest, NOW, during, signed};

/// What clean says of a harvested file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// Every proof was there; it goes once clean may remove.
    Removable,
    /// It was not known yet: ingest may be about to take it.
    New,
    /// No row accounts for it, and it stays until a person looks.
    Unaccounted,
}

impl Finding {
    const ALL: [Self; 3] = [Self::Removable, Self::New, Self::Unaccounted];

    fn word(self) -> &'static str {
        match self {
            Self::Removable => "removable",
            Self::New => "new",
            Self::Unaccounted => "unaccounted",
        }
    }
}

/// A harvested file as clean found it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct HarvestedFile {
    /// Where it lies.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// What tells this state of it from another.
    pub stamp: String,
    /// What was found.
    pub finding: Finding,
    /// Why it is not accounted for; empty otherwise.
    pub why: String,
}

/// How many files a finding was made of, and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct HarvestedCount {
    /// Files.
    pub files: u64,
    /// Bytes.
    pub bytes: u64,
}

const SELECT: &str = "SELECT path, bytes, stamp, finding, why FROM harvested";

impl Manifest {
    /// Notes what was found of a harvested file.
    pub fn note_harvested(&mut self, file: &HarvestedFile) -> Result<()> {
        let sql = format!(
            "INSERT INTO harvested (path, bytes, stamp, finding, why, since) \
             VALUES (?1, ?2, ?3, ?4, ?5, {NOW}) ON CONFLICT (path) DO UPDATE SET \
             bytes = ?2, stamp = ?3, finding = ?4, why = ?5, \
             since = iif(stamp = ?3 AND finding = ?4, since, {NOW})"
        );
        let HarvestedFile {
            path,
            bytes,
            stamp,
            finding,
            why,
        } = file;
        let path = self.places().short(path);
        let values = params![path, signed(*bytes), stamp, finding.word(), why];
        let noted = self.connection().execute(&sql, values);
        noted.map(drop).map_err(during("note", &path))
    }

    /// Returns what was noted of a harvested file.
    pub fn harvested(&self, path: &str) -> Result<Option<HarvestedFile>> {
        let read = || {
            let sql = format!("{SELECT} WHERE path = ?1");
            let mut statement = self.connection().prepare_cached(&sql)?;
            let path = self.places().short(path);
            statement
                .query_row([path], |row| harvested(row, self.places()))
                .optional()
        };
        read().map_err(during("read", path))
    }

    /// Returns so many of the noted files, in order of path, from the first behind `after`.
    pub fn harvested_after(&self, after: &str, most: usize) -> Result<Vec<HarvestedFile>> {
        let read = || {
            let sql = format!("{SELECT} WHERE path > ?1 ORDER BY path LIMIT ?2");
            let mut statement = self.connection().prepare_cached(&sql)?;
            let values = params![self.places().short(after), signed(most as u64)];
            let rows = statement.query_map(values, |row| harvested(row, self.places()))?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(during("list", "harvested files"))
    }

    /// Forgets a harvested file that is gone.
    pub fn forget_harvested(&mut self, path: &str) -> Result<()> {
        let sql = "DELETE FROM harvested WHERE path = ?1";
        let forgotten = self.connection().execute(sql, [self.places().short(path)]);
        forgotten.map(drop).map_err(during("forget", path))
    }

    /// Returns how many harvested files clean made this finding of, when it last looked.
    pub fn harvested_count(&self, finding: Finding) -> Result<HarvestedCount> {
        let sql = "SELECT count(*), coalesce(sum(bytes), 0) FROM harvested WHERE finding = ?1";
        let count = |row: &Row<'_>| {
            Ok(HarvestedCount {
                files: row.get::<_, i64>(0)?.unsigned_abs(),
                bytes: row.get::<_, i64>(1)?.unsigned_abs(),
            })
        };
        match self.connection().query_row(sql, [finding.word()], count) {
            // Whoever only asks does not make what an earlier version had not.
            Err(error) if error.to_string().contains("no such table") => {
                Ok(HarvestedCount::default())
            }
            counted => counted.map_err(during("count", "harvested files")),
        }
    }
}

impl Manifest {
    /// Returns the first harvested file that clean made this finding of.
    pub fn first_harvested(&self, finding: Finding) -> Result<Option<HarvestedFile>> {
        let sql = format!("{SELECT} WHERE finding = ?1 ORDER BY path LIMIT 1");
        let first = |row: &Row<'_>| harvested(row, self.places());
        let found = self.connection().query_row(&sql, [finding.word()], first);
        match found.optional() {
            Err(error) if error.to_string().contains("no such table") => Ok(None),
            found => found.map_err(during("look for", "harvested files")),
        }
    }
}

fn harvested(row: &Row<'_>, places: &PlaceRoot) -> rusqlite::Result<HarvestedFile> {
    let path: String = row.get(0)?;
    let word: String = row.get(3)?;
    let finding = Finding::ALL
        .into_iter()
        .find(|finding| finding.word() == word);
    Ok(HarvestedFile {
        path: places.whole(&path).into_owned(),
        bytes: row.get::<_, i64>(1)?.unsigned_abs(),
        stamp: row.get(2)?,
        // A word nobody writes is the work of a hand: a person has to look.
        finding: finding.unwrap_or(Finding::Unaccounted),
        why: row.get(4)?,
    })
}
