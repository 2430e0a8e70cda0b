//! Fixity: which copy is read again next, what was found, and the freeze that a mismatch brings.

use rusqlite::{Connection, OptionalExtension, params};
use serde::Serialize;

use crate::error::Result;
use crate::row::{self, CopyKind, CopyRow};
use crate::{Manifest, NOW, during, signed};

/// Why nothing is removed any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Frozen {
    /// The mismatch.
    pub why: String,
    /// When it was found.
    pub since: String,
}

/// What reading a copy again gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckOutcome {
    /// The digest taken at ingest.
    Good,
    /// Something else, in words.
    Bad(String),
    /// It could not be read this time: neither good nor bad.
    Unread(String),
}

impl CheckOutcome {
    /// Returns it as the manifest has it.
    pub(crate) fn words(&self) -> String {
        match self {
            CheckOutcome::Good => "good".to_owned(),
            CheckOutcome::Bad(what) => format!("bad: {what}"),
            CheckOutcome::Unread(what) => format!("unread: {what}"),
        }
    }
}

/// Lets nothing be removed any more, unless that is so already.
pub(crate) fn freeze(connection: &Connection, why: &str) -> rusqlite::Result<()> {
    let sql = format!(
        "INSERT INTO frozen (one, why, since) VALUES (1, ?1, {NOW}) ON CONFLICT (one) DO NOTHING"
    );
    connection.execute(&sql, [why]).map(drop)
}

/// How the files of the archive are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ArchiveHealth {
    /// Files of which something could not be read when they were indexed.
    pub damaged: u64,
    /// Copies that are not what they should be.
    pub bad: u64,
    /// Copies that could not be read when they were last checked.
    pub unread: u64,
    /// Packages that are not what they should be.
    pub bad_packages: u64,
    /// Why nothing is removed, if so.
    pub frozen: Option<Frozen>,
}

/// The copies whose last check did not find them good.
pub(crate) const FAILING: &str = "SELECT file, kind, target, place, bytes, sha256, proof, checked, found \
     FROM copy WHERE found <> 'good' ORDER BY file LIMIT ?1";

pub(crate) const COUNT_FAILING: &str =
    "SELECT sum(found LIKE 'bad%'), sum(found NOT LIKE 'bad%') FROM copy WHERE found <> 'good'";

/// Those never checked come first: NULL is below everything. The order is that of an index, so nothing is sorted.
pub(crate) const DUE: &str = "SELECT file, kind, target, place, bytes, sha256, proof, checked, found FROM copy \
     WHERE kind = 'stored' OR json_extract(proof, '$.kind') = 'directory' \
     ORDER BY checked, made, file, kind, target";

/// A copy whose turn it is.
pub type Due = CopyRow;

impl Manifest {
    /// Returns the copies in files that were never checked or whose check is oldest, up to `bytes` in
    /// all and at least one. Backups in services are theirs to check.
    pub fn due(&self, bytes: u64) -> Result<Vec<Due>> {
        let read = || {
            let mut statement = self.connection().prepare(DUE)?;
            let mut due = Vec::new();
            let mut sum = 0_u64;
            for row in statement.query_map([], |row| row::copy(row, self.places()))? {
                let copy = row?;
                sum = sum.saturating_add(copy.bytes);
                if sum > bytes && !due.is_empty() {
                    break;
                }
                due.push(copy);
            }
            Ok(due)
        };
        read().map_err(during("list", "copies to check"))
    }

    /// Says what reading a copy again gave. A bad one freezes every removal, in the same transaction.
    pub fn checked(&mut self, copy: &Due, found: &CheckOutcome) -> Result<()> {
        let transaction = self.begin("note the check of", &copy.file)?;
        let fail = || during("note the check of", &copy.file);
        transaction
            .execute(
                &format!(
                    "UPDATE copy SET checked = {NOW}, found = ?4 \
                     WHERE file = ?1 AND kind = ?2 AND target = ?3"
                ),
                params![copy.file, copy.kind.word(), copy.target, found.words()],
            )
            .map_err(fail())?;
        if let CheckOutcome::Bad(what) = found {
            let why = format!("{} in {}: {what}", copy.file, copy.target);
            freeze(&transaction, &why).map_err(fail())?;
        }
        transaction.commit().map_err(fail())
    }

    /// Counts what a person ought to know of.
    pub fn health(&self) -> Result<ArchiveHealth> {
        let number = |row: &rusqlite::Row<'_>, at| -> rusqlite::Result<u64> {
            let number: Option<i64> = row.get(at)?;
            Ok(number.unwrap_or(0).unsigned_abs())
        };
        let (bad, unread) = self
            .connection()
            .query_row(COUNT_FAILING, [], |row| {
                Ok((number(row, 0)?, number(row, 1)?))
            })
            .map_err(during("count", "bad copies"))?;
        let sql = "SELECT count(*) FROM package JOIN package_check USING (package) WHERE found LIKE 'bad%'";
        // A manifest that no stage of this version has opened has no such table.
        let bad_packages = self.connection().query_row(sql, [], |row| number(row, 0));
        Ok(ArchiveHealth {
            bad_packages: bad_packages.unwrap_or_default(),
            damaged: self.damaged()?,
            bad,
            unread,
            frozen: self.frozen()?,
        })
    }

    /// Returns so many of the copies that were not found good when they were last checked, in order of name.
    pub fn failing(&self, most: usize) -> Result<Vec<CopyRow>> {
        let read = || {
            let mut statement = self.connection().prepare(FAILING)?;
            let rows =
                statement.query_map([signed(most as u64)], |row| row::copy(row, self.places()))?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(during("list", "bad copies"))
    }

    /// Tells whether a location or backup should hold more than one copy.
    pub fn holds_many(&self, kind: CopyKind, target: &str) -> Result<bool> {
        let sql =
            "SELECT count(*) FROM (SELECT 1 FROM copy WHERE kind = ?1 AND target = ?2 LIMIT 2)";
        self.connection()
            .query_row(sql, [kind.word(), target], |row| row.get(0))
            .map(|count: i64| count > 1)
            .map_err(during("count the copies in", target))
    }

    /// Returns why nothing is removed, if so.
    pub fn frozen(&self) -> Result<Option<Frozen>> {
        self.connection()
            .query_row("SELECT why, since FROM frozen", [], |row| {
                Ok(Frozen {
                    why: row.get(0)?,
                    since: row.get(1)?,
                })
            })
            .optional()
            .map_err(during("read", "the freeze"))
    }

    /// Lets removals go on; tells what had stopped them.
    pub fn thaw(&mut self) -> Result<Option<Frozen>> {
        let frozen = self.frozen()?;
        self.connection()
            .execute("DELETE FROM frozen", [])
            .map_err(during("lift", "the freeze"))?;
        Ok(frozen)
    }
}
