//! The manifest: one row for each archive file that was ever taken in, and one for each copy of it.
//!
//! It is an SQLite database, `manifest.sqlite`, which an operator can open with `sqlite3` at any time;
//! `docs/formats/manifest.md` explains its columns. Every call is one durable transaction and says the
//! same thing when it is made again, so a stage may be killed before or after it.
//!
//! A file only ever goes forward: a call that comes late never turns its state back.

mod check;
mod deposit;
mod error;
mod harvested;
mod journal;
mod moved;
mod owner;
mod package;
mod places;
mod rebuild;
mod record;
mod row;
mod schema;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use serde_json::Value;

pub use check::{ArchiveHealth, CheckOutcome, Due, Frozen};
pub use deposit::{AwaitedReceipts, DepositFile, DepositKey, DepositState, IdentifierConflict};
use owner::WritingHost;

pub use error::{ManifestError, Result};
pub use harvested::{Finding, HarvestedCount, HarvestedFile};
pub use moved::{MovedPlace, MovedThing};
pub use package::{JobFile, JobName, PackageCheck, PackageRow};
pub use places::PlaceRoot;
pub use rebuild::Rebuild;
pub use record::{CopyRecord, FileRecord, FileTimes};
pub use row::{
    Copy, CopyKind, CopyRow, Damage, FileRow, FileState, IndexFacts, Ingested, NewFile, Term,
    UnfinishedFile,
};

/// Returns the file beside a database that tells that there is one; not named so that who removes the database by its
/// name and what follows removes it too.
fn mark_of(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.made"))
}

/// How long another process may hold the database before a call gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// The open database.
pub struct Manifest {
    connection: Connection,
    places: PlaceRoot,
    /// Keeps the writers of other hosts out, where that is needed.
    _owner: Option<File>,
}

impl Manifest {
    /// Opens the database of the archive under `root`, making it if there never was one: an empty one in place of one that
    /// was lost would know of no freeze and of no file.
    ///
    /// # Errors
    /// When it cannot be opened, was lost, or was made by a later version.
    pub fn open(path: &Path, root: &Path) -> Result<Self> {
        if let Some(lost) = Self::lost(path) {
            return Err(lost);
        }
        let at = |source| ManifestError::Open {
            path: path.to_owned(),
            source,
        };
        let owner = match journal::is_shared(path) {
            true => Some(owner::claim(path, &WritingHost::this(), PATIENCE)?),
            false => None,
        };
        let connection = Connection::open(path).map_err(at)?;
        connection.busy_timeout(PATIENCE).map_err(at)?;
        journal::choose(&connection, path, PATIENCE).map_err(at)?;
        let places = PlaceRoot::new(root);
        let mut manifest = Self {
            connection,
            places,
            _owner: owner,
        };
        schema::prepare(&mut manifest.connection, path, &manifest.places)?;
        let mark = mark_of(path);
        if !mark.exists() {
            std::fs::write(&mark, "").map_err(|error| ManifestError::File {
                step: "mark",
                path: mark,
                error,
            })?;
        }
        Ok(manifest)
    }

    /// Says so if there was a database here and is none any more.
    #[must_use]
    pub fn lost(path: &Path) -> Option<ManifestError> {
        let mark = mark_of(path);
        let is_lost = !path.exists() && mark.exists();
        is_lost.then(|| ManifestError::Lost {
            path: path.to_owned(),
            mark,
        })
    }

    /// Opens the database to ask it only, which whoever may read it can: a curator, a monitor. One of an earlier version is
    /// brought up to this one first, by whoever may.
    ///
    /// # Errors
    /// When it is not there, cannot be read, or was made by a later version.
    pub fn open_to_read(path: &Path, root: &Path) -> Result<Self> {
        let at = |source| ManifestError::Open {
            path: path.to_owned(),
            source,
        };
        let connection = journal::open_to_read(path).map_err(at)?;
        connection.busy_timeout(PATIENCE).map_err(at)?;
        if schema::is_earlier(&connection, path)? {
            drop(connection);
            return Self::open(path, root);
        }
        // A table that is not there yet has nothing to tell whoever may not make it.
        if schema::is_short(&connection)
            && let Ok(manifest) = Self::open(path, root)
        {
            return Ok(manifest);
        }
        Ok(Self {
            connection,
            places: PlaceRoot::new(root),
            _owner: None,
        })
    }

    /// Returns the root that its places begin at.
    pub fn places(&self) -> &PlaceRoot {
        &self.places
    }

    /// Takes a file in, or says that it is there already.
    pub fn ingest(&mut self, file: &NewFile<'_>) -> Result<Ingested> {
        self.ingest_hashed(file, None)
    }

    /// The same, with the SHA-512 of its bytes.
    pub fn ingest_hashed(&mut self, file: &NewFile<'_>, sha512: Option<&str>) -> Result<Ingested> {
        let source = self.places.short(file.source).into_owned();
        let file = &NewFile {
            source: &source,
            ..*file
        };
        let transaction = self.begin("take in", file.name)?;
        let known: Option<(Option<i64>, Option<String>, Option<String>)> = transaction
            .query_row(
                "SELECT bytes, sha256, parcel FROM file WHERE name = ?1",
                [file.name],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
            .optional()
            .map_err(during("take in", file.name))?;
        let outcome = match known {
            Some((_, sha256, Some(parcel))) if parcel == file.parcel => {
                // It was begun before and not handed over; the bytes that count are those that go out now.
                if sha256.as_deref() != Some(file.sha256) {
                    insert(&transaction, file).map_err(during("take in", file.name))?;
                }
                Ingested::New
            }
            Some((_, Some(sha256), _)) if sha256 == file.sha256 => {
                skip(&transaction, file).map_err(during("count", file.name))?;
                Ingested::Same
            }
            // A row without a parcel of ingest came with a parcel given by hand: this is its file.
            Some((_, None, _)) | None => {
                insert(&transaction, file).map_err(during("take in", file.name))?;
                Ingested::New
            }
            Some((bytes, Some(sha256), _)) => Ingested::Differs {
                bytes: bytes.unwrap_or_default().unsigned_abs(),
                sha256,
            },
        };
        if let (Ingested::New | Ingested::Same, Some(sha512)) = (&outcome, sha512) {
            package::put_sha512(&transaction, file.name, file.sha256, sha512)
                .map_err(during("take in", file.name))?;
        }
        transaction.commit().map_err(during("take in", file.name))?;
        Ok(outcome)
    }

    /// Takes back that a parcel of ingest took a file in: it was killed before it handed the file over, and what it found there is
    /// gone or has changed.
    ///
    /// Where the same bytes were found under another path meanwhile, and left alone because of this one, that path
    /// is returned and the row stays: it must take them from there. `is_there` tells whether there still is
    /// something. Otherwise the name is free again.
    pub fn forgo(
        &mut self,
        name: &str,
        parcel: &str,
        is_there: impl Fn(&str) -> bool,
    ) -> Result<Option<String>> {
        let fail = || during("take back", name);
        let places = self.places.clone();
        let transaction = self.begin("take back", name)?;
        let begun: Option<bool> = transaction
            .query_row(
                "SELECT parcel IS ?2 AND state = 'ingested' FROM file WHERE name = ?1",
                [name, parcel],
                |row| row.get(0),
            )
            .optional()
            .map_err(fail())?;
        if begun == Some(false) {
            return Ok(None);
        }
        // Without a row, the name was freed before; what was left alone may have come back since.
        let elsewhere = elsewhere(&transaction, name).map_err(fail())?;
        let mut elsewhere = elsewhere
            .iter()
            .map(|source| places.whole(source).into_owned());
        let elsewhere = elsewhere.find(|source| is_there(source));
        if elsewhere.is_none() && begun == Some(true) {
            transaction
                .execute("DELETE FROM file WHERE name = ?1", [name])
                .map_err(fail())?;
        }
        transaction.commit().map_err(fail())?;
        Ok(elsewhere)
    }

    /// Returns what is known of a file.
    pub fn file(&self, name: &str) -> Result<Option<FileRow>> {
        let sql = format!("{} WHERE name = ?1", row::SELECT);
        let row = self
            .connection
            .query_row(&sql, [name], |row| row::file(row, &self.places))
            .optional()
            .map_err(during("read", name))?;
        Ok(row)
    }

    /// Returns the copies of a file.
    pub fn copies(&self, name: &str) -> Result<Vec<CopyRow>> {
        let read = || {
            let mut statement = self.connection.prepare_cached(row::SELECT_COPIES)?;
            let rows = statement.query_map([name], |row| row::copy(row, &self.places))?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(during("read the copies of", name))
    }

    /// Calls `see` for each file that fits every term, in order of name; no more than one is held at a time.
    ///
    /// # Errors
    /// When the manifest cannot be read, and what `see` says.
    pub fn find<Stop: From<ManifestError>>(
        &self,
        terms: &[Term<'_>],
        mut see: impl FnMut(FileRow) -> std::result::Result<(), Stop>,
    ) -> std::result::Result<(), Stop> {
        let mut sql = format!("{} WHERE 1", row::SELECT);
        let mut values = Vec::new();
        for term in terms {
            let at = values.len() + 1;
            match term {
                Term::Job(job) => {
                    sql.push_str(&format!(" AND job = ?{at}"));
                    values.push((*job).to_owned());
                }
                Term::Harvest(harvest) => {
                    sql.push_str(&format!(" AND harvest = ?{at}"));
                    values.push((*harvest).to_owned());
                }
                // Hexadecimal digits are all below `g`; a range is found by the index.
                Term::Digest(digest) => {
                    sql.push_str(&format!(" AND sha256 < ?{at} || 'g' AND sha256 >= ?{at}"));
                    values.push(digest.to_ascii_lowercase());
                }
                Term::Name(part) => {
                    sql.push_str(&format!(" AND 0 < instr(name, ?{at})"));
                    values.push((*part).to_owned());
                }
                Term::Damaged => sql.push_str(" AND damages > 0"),
            }
        }
        sql.push_str(" ORDER BY name");
        let what = values.join(" ");
        let fail = || during("look for", &what);
        let mut statement = self.connection.prepare(&sql).map_err(fail())?;
        let mut rows = statement
            .query(rusqlite::params_from_iter(&values))
            .map_err(fail())?;
        while let Some(row) = rows.next().map_err(fail())? {
            see(row::file(row, &self.places).map_err(fail())?)?;
        }
        Ok(())
    }

    /// Returns where else the same file was found.
    pub fn skipped(&self, name: &str) -> Result<Vec<String>> {
        let read = || {
            let mut statement = self.connection.prepare_cached(row::SELECT_SKIPPED)?;
            let rows = statement.query_map([name], |row| {
                let source: String = row.get(0)?;
                Ok(self.places.whole(&source).into_owned())
            })?;
            rows.collect::<rusqlite::Result<Vec<String>>>()
        };
        read().map_err(during("read where else there is", name))
    }

    /// Returns so many of the files in a state, in order of name, from the first behind `after`.
    pub fn in_state(&self, state: FileState, after: &str, most: usize) -> Result<Vec<FileRow>> {
        let read = || {
            let mut statement = self.connection.prepare_cached(row::SELECT_IN_STATE)?;
            let most = signed(most as u64);
            let rows = statement.query_map(params![state.word(), after, most], |row| {
                row::file(row, &self.places)
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(during("list", state.word()))
    }

    /// Returns so many of the files that are not in the index yet.
    pub fn unfinished(&self, most: usize) -> Result<Vec<UnfinishedFile>> {
        let read = || {
            let mut statement = self.connection.prepare(row::SELECT_UNFINISHED)?;
            let rows = statement.query_map([signed(most as u64)], |row| {
                Ok(UnfinishedFile {
                    name: row.get(0)?,
                    sha256: row.get(1)?,
                    parcel: row.get(2)?,
                })
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(during("list", "unfinished files"))
    }

    /// Returns how many files are in each state.
    pub fn counts(&self) -> Result<Vec<(FileState, u64)>> {
        let read = || {
            let sql = "SELECT state, count(*) FROM file GROUP BY state";
            let mut statement = self.connection.prepare(sql)?;
            let rows =
                statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get(1)?)))?;
            let mut counts = Vec::new();
            for row in rows {
                let (word, count): (String, i64) = row?;
                if let Some(state) = FileState::parse(&word) {
                    counts.push((state, count.unsigned_abs()));
                }
            }
            Ok(counts)
        };
        let mut counts = read().map_err(during("count", "files"))?;
        counts.sort();
        Ok(counts)
    }

    /// Says that a file was indexed: how many lines it has, how many places could not be read, and the first of these.
    pub fn indexed(
        &mut self,
        name: &str,
        captures: u64,
        damages: u64,
        told: &[Damage],
    ) -> Result<()> {
        self.forward(name, FileState::Indexed, |transaction| {
            transaction.execute(
                "UPDATE file SET captures = ?2, damages = ?3 WHERE name = ?1",
                params![name, signed(captures), signed(damages)],
            )?;
            put_damage(transaction, name, told)?;
            Ok(0)
        })
    }

    /// Returns the first places of a file that could not be read.
    pub fn damage(&self, name: &str) -> Result<Vec<Damage>> {
        let read = || {
            let sql =
                "SELECT record, offset, reason FROM damage WHERE file = ?1 ORDER BY offset, record";
            let mut statement = self.connection.prepare(sql)?;
            let rows = statement.query_map([name], |row| {
                Ok(Damage {
                    record: row.get::<_, i64>(0)?.unsigned_abs(),
                    offset: row.get::<_, i64>(1)?.unsigned_abs(),
                    reason: row.get(2)?,
                })
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(during("read the damage of", name))
    }

    /// Returns how many files could not be read whole.
    pub fn damaged(&self) -> Result<u64> {
        let count = self.connection.query_row(DAMAGED, [], |row| row.get(0));
        count
            .map(i64::unsigned_abs)
            .map_err(during("count", "damaged files"))
    }

    /// Says that a verified copy is at its final place.
    pub fn stored(&mut self, name: &str, copy: &Copy<'_>) -> Result<()> {
        let place = self.places.short(copy.place).into_owned();
        let copy = &Copy {
            place: &place,
            ..*copy
        };
        self.forward(name, FileState::Stored, |transaction| {
            put_copy(transaction, name, CopyKind::Stored, copy, None)
        })
    }

    /// Says that a verified copy is in a backup.
    pub fn backed_up(&mut self, name: &str, copy: &Copy<'_>, proof: &Value) -> Result<()> {
        let place = self.places.short(copy.place).into_owned();
        let copy = &Copy {
            place: &place,
            ..*copy
        };
        self.forward(name, FileState::BackedUp, |transaction| {
            put_copy(transaction, name, CopyKind::Backup, copy, Some(proof))
        })
    }

    /// Says that the working copy is gone.
    pub fn deleted(&mut self, name: &str) -> Result<()> {
        self.forward(name, FileState::Deleted, |_| Ok(0))
    }

    /// Says in which generation of which index the lines of these files are.
    pub fn published(
        &mut self,
        index: Option<&str>,
        generation: u64,
        names: &[String],
    ) -> Result<()> {
        let what = index.unwrap_or("the big index");
        let transaction = self.begin("publish in", what)?;
        for name in names {
            step(&transaction, name, FileState::Published).map_err(during("publish", name))?;
            transaction
                .execute(
                    "UPDATE file SET generation = coalesce(generation, ?2), \
                     collection = coalesce(collection, ?3) WHERE name = ?1",
                    params![name, signed(generation), index],
                )
                .map_err(during("publish", name))?;
        }
        transaction.commit().map_err(during("publish in", what))
    }

    /// Tells whether any file is said to be in an index.
    pub fn has_published(&self, index: Option<&str>) -> Result<bool> {
        let sql = "SELECT EXISTS (SELECT 1 FROM file WHERE state IN ('published', 'cleaned') \
             AND collection IS ?1)";
        self.connection
            .query_row(sql, [index], |row| row.get(0))
            .map_err(during("look for", "published files"))
    }

    /// Says that the harvested file was removed.
    pub fn cleaned(&mut self, name: &str) -> Result<()> {
        self.forward(name, FileState::Cleaned, |_| Ok(0))
    }

    fn forward(
        &mut self,
        name: &str,
        state: FileState,
        more: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<usize>,
    ) -> Result<()> {
        let transaction = self.begin(state.word(), name)?;
        step(&transaction, name, state)
            .and_then(|()| more(&transaction))
            .map_err(during(state.word(), name))?;
        transaction.commit().map_err(during(state.word(), name))
    }

    pub(crate) fn begin(&mut self, step: &'static str, name: &str) -> Result<Transaction<'_>> {
        self.connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(during(step, name))
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }
}

/// Takes a file forward to a state; one that is further stays there.
fn step(connection: &Connection, name: &str, state: FileState) -> rusqlite::Result<()> {
    step_at(connection, name, state, None)
}

/// The same, at a time other than now.
pub(crate) fn step_at(
    connection: &Connection,
    name: &str,
    state: FileState,
    at: Option<&str>,
) -> rusqlite::Result<()> {
    connection.execute(
        "INSERT INTO file (name, state) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING",
        params![name, state.word()],
    )?;
    let now: String =
        connection.query_row("SELECT state FROM file WHERE name = ?1", [name], |row| {
            row.get(0)
        })?;
    if FileState::parse(&now).is_none_or(|now| now < state) {
        connection.execute(
            "UPDATE file SET state = ?2 WHERE name = ?1",
            params![name, state.word()],
        )?;
    }
    let column = state.column();
    connection.execute(
        &format!("UPDATE file SET {column} = coalesce({column}, ?2, {NOW}) WHERE name = ?1"),
        params![name, at],
    )?;
    Ok(())
}

fn insert(transaction: &Transaction<'_>, file: &NewFile<'_>) -> rusqlite::Result<usize> {
    let again = format!(
        "DO UPDATE SET bytes = ?2, sha256 = ?3, kind = ?4, job = ?5, harvest = ?6, collection = ?7, \
         source = ?8, parcel = ?9, ingested = {NOW}"
    );
    insert_at(transaction, file, None, &again)
}

/// Takes a file in at that time, or now; `again` says what becomes of a row that is there.
pub(crate) fn insert_at(
    connection: &Connection,
    file: &NewFile<'_>,
    at: Option<&str>,
    again: &str,
) -> rusqlite::Result<usize> {
    connection.execute(
        &format!(
            "INSERT INTO file \
             (name, bytes, sha256, kind, job, harvest, collection, source, parcel, state, ingested) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 'ingested', coalesce(?10, {NOW})) \
             ON CONFLICT (name) {again}"
        ),
        params![
            file.name,
            signed(file.bytes),
            file.sha256,
            file.kind,
            file.job,
            file.harvest,
            file.collection,
            file.source,
            file.parcel,
            at,
        ],
    )
}

/// Returns where else a file was found, the last first.
fn elsewhere(transaction: &Transaction<'_>, name: &str) -> rusqlite::Result<Vec<String>> {
    let sql = "SELECT source FROM skipped WHERE file = ?1 ORDER BY at DESC, source";
    let mut statement = transaction.prepare_cached(sql)?;
    let rows = statement.query_map([name], |row| row.get(0))?;
    rows.collect()
}

fn skip(transaction: &Transaction<'_>, file: &NewFile<'_>) -> rusqlite::Result<usize> {
    skip_at(transaction, file.parcel, file.name, file.source, None)
}

pub(crate) fn skip_at(
    connection: &Connection,
    parcel: &str,
    name: &str,
    source: &str,
    at: Option<&str>,
) -> rusqlite::Result<usize> {
    connection.execute(
        &format!(
            "INSERT INTO skipped (parcel, file, source, at) VALUES (?1, ?2, ?3, coalesce(?4, {NOW})) \
             ON CONFLICT (parcel) DO NOTHING"
        ),
        params![parcel, name, source, at],
    )
}

fn put_copy(
    connection: &Connection,
    name: &str,
    kind: CopyKind,
    copy: &Copy<'_>,
    proof: Option<&Value>,
) -> rusqlite::Result<usize> {
    put_copy_at(connection, name, kind, copy, proof, None)
}

pub(crate) fn put_copy_at(
    connection: &Connection,
    name: &str,
    kind: CopyKind,
    copy: &Copy<'_>,
    proof: Option<&Value>,
    at: Option<&str>,
) -> rusqlite::Result<usize> {
    connection.execute(
        "UPDATE file SET bytes = coalesce(bytes, ?2), sha256 = coalesce(sha256, ?3) WHERE name = ?1",
        params![name, signed(copy.bytes), copy.sha256],
    )?;
    connection.execute(
        &format!(
            "INSERT INTO copy (file, kind, target, place, bytes, sha256, proof, made) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, coalesce(?8, {NOW})) \
             ON CONFLICT (file, kind, target) DO UPDATE SET \
             place = ?4, bytes = ?5, sha256 = ?6, proof = ?7, checked = NULL, found = NULL"
        ),
        params![
            name,
            kind.word(),
            copy.target,
            copy.place,
            signed(copy.bytes),
            copy.sha256,
            proof.map(Value::to_string),
            at,
        ],
    )
}

pub(crate) fn put_damage(
    connection: &Connection,
    name: &str,
    told: &[Damage],
) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM damage WHERE file = ?1", [name])?;
    for damage in told {
        connection.execute(
            "INSERT OR IGNORE INTO damage (file, record, offset, reason) VALUES (?1, ?2, ?3, ?4)",
            params![
                name,
                signed(damage.record),
                signed(damage.offset),
                damage.reason
            ],
        )?;
    }
    Ok(())
}

const DAMAGED: &str = "SELECT count(*) FROM file WHERE damages > 0";

/// This moment, as every time in the database is written.
pub(crate) const NOW: &str = "strftime('%Y-%m-%dT%H:%M:%SZ', 'now')";

/// SQLite has no unsigned numbers; no file has 2^63 bytes.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) fn during(
    step: &'static str,
    name: &str,
) -> impl FnOnce(rusqlite::Error) -> ManifestError {
    let name = name.to_owned();
    move |source| ManifestError::Step { step, name, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_tables_are_neither_scanned_nor_sorted() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = Manifest::open(&dir.path().join("m.sqlite"), dir.path()).unwrap();
        let by_digest = format!("{} WHERE sha256 < ?1 || 'g' AND sha256 >= ?1", row::SELECT);
        for sql in [
            check::DUE,
            row::SELECT_IN_STATE,
            row::SELECT_SKIPPED,
            row::SELECT_UNFINISHED,
            package::SELECT_FINISHED,
            moved::SOME_COPIES,
            DAMAGED,
            check::FAILING,
            check::COUNT_FAILING,
            &by_digest,
        ] {
            let mut plan = manifest
                .connection
                .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
                .unwrap();
            let nothing = vec![rusqlite::types::Null; plan.parameter_count()];
            let steps = plan
                .query_map(rusqlite::params_from_iter(nothing), |row| row.get(3))
                .unwrap();
            let steps: rusqlite::Result<Vec<String>> = steps.collect();
            let steps = steps.unwrap();
            assert!(!steps.is_empty());
            for step in steps {
                assert!(step.contains(" USING "), "{sql}: {step}");
            }
        }
    }
}
