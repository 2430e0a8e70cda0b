//! The manifest made anew from receipts: into another file, which takes the place of the old one when it is whole.
//!
//! Receipts may be told in any order within a stage, and the stages in the order of the chain. Nothing is kept in memory.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;

use crate::deposit::{DepositFile, put_deposit, put_handed_over};
use crate::error::{ManifestError, Result};
use crate::package::{PackageRow, put_package, put_sha512};
use crate::places::PlaceRoot;
use crate::row::{Copy, CopyKind, FileState, IndexFacts, NewFile};
use crate::{
    during, insert_at, journal, put_copy_at, put_damage, schema, signed, skip_at, step_at,
};

/// A manifest under construction.
pub struct Rebuild {
    connection: Connection,
    places: PlaceRoot,
    path: PathBuf,
}

/// Which parcels are of which files, and which went into which batch; gone when the manifest is whole.
const TEMPORARY: &str = "
CREATE TABLE rebuild_parcel (parcel TEXT PRIMARY KEY, name TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE rebuild_batch (batch TEXT NOT NULL, member TEXT NOT NULL, PRIMARY KEY (batch, member)) WITHOUT ROWID;
";

impl Rebuild {
    /// Begins in a file that must not exist, for the archive under `root`.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn begin(path: &Path, root: &Path) -> Result<Self> {
        let at = |source| ManifestError::Open {
            path: path.to_owned(),
            source,
        };
        let mut connection = Connection::open(path).map_err(at)?;
        // Nobody reads it before it is whole and synced.
        connection
            .pragma_update(None, "journal_mode", "memory")
            .and_then(|()| connection.pragma_update(None, "synchronous", "OFF"))
            .map_err(at)?;
        let places = PlaceRoot::new(root);
        schema::prepare(&mut connection, path, &places)?;
        connection.execute_batch(TEMPORARY).map_err(at)?;
        connection.execute_batch("BEGIN IMMEDIATE").map_err(at)?;
        Ok(Self {
            connection,
            places,
            path: path.to_owned(),
        })
    }

    /// A file was taken in.
    pub fn ingested(&mut self, file: &NewFile<'_>, at: &str) -> Result<()> {
        self.is_of(file.parcel, file.name)?;
        let source = self.places.short(file.source);
        let file = &NewFile {
            source: &source,
            ..*file
        };
        let inserted = insert_at(&self.connection, file, Some(at), "DO NOTHING");
        inserted.map(drop).map_err(during("take in", file.name))
    }

    /// The SHA-512 of a file with this SHA-256 was taken.
    pub fn hashed(&mut self, name: &str, sha256: &str, sha512: &str) -> Result<()> {
        let put = put_sha512(&self.connection, name, sha256, sha512);
        put.map_err(during("note the SHA-512 of", name))
    }

    /// A part of a package was made.
    pub fn packaged(&mut self, part: &PackageRow, names: &[String], at: &str) -> Result<()> {
        let put = put_package(&self.connection, part, names, Some(at));
        put.map_err(during("package", &part.job))
    }

    /// A package was handed over, file by file.
    pub fn handed_over(
        &mut self,
        (package, sha512): (&str, &str),
        files: &[DepositFile],
        at: &str,
    ) -> Result<()> {
        let fail = || during("hand over package", package);
        for file in files {
            put_deposit(&self.connection, file).map_err(fail())?;
        }
        put_handed_over(&self.connection, package, sha512, Some(at)).map_err(fail())
    }

    /// A file was found that was known.
    pub fn skipped(&mut self, parcel: &str, name: &str, source: &str, at: &str) -> Result<()> {
        let source = self.places.short(source);
        let skipped = skip_at(&self.connection, parcel, name, &source, Some(at));
        skipped.map(drop).map_err(during("count", name))
    }

    /// A file was indexed.
    pub fn indexed(
        &mut self,
        parcel: &str,
        name: &str,
        found: &IndexFacts,
        at: &str,
    ) -> Result<()> {
        self.is_of(parcel, name)?;
        let fail = || during("index", name);
        // Indexed again with a newer version: the last counts.
        let known: Option<String> = self
            .connection
            .query_row("SELECT indexed FROM file WHERE name = ?1", [name], |row| {
                row.get(0)
            })
            .optional()
            .map_err(fail())?
            .flatten();
        if known.is_some_and(|known| known.as_str() > at) {
            return Ok(());
        }
        step_at(&self.connection, name, FileState::Indexed, Some(at))
            .and_then(|()| {
                self.connection.execute(
                    "UPDATE file SET captures = ?2, damages = ?3, indexed = ?4 WHERE name = ?1",
                    params![name, signed(found.lines), signed(found.damages), at],
                )
            })
            .and_then(|_| put_damage(&self.connection, name, &found.told))
            .map_err(fail())
    }

    /// A copy was made.
    pub fn copied(
        &mut self,
        parcel: &str,
        name: &str,
        kind: CopyKind,
        copy: &Copy<'_>,
        proof: Option<&Value>,
        at: &str,
    ) -> Result<()> {
        self.is_of(parcel, name)?;
        let copy = &Copy {
            place: &self.places.short(copy.place),
            ..*copy
        };
        let state = match kind {
            CopyKind::Stored => FileState::Stored,
            CopyKind::Backup => FileState::BackedUp,
        };
        step_at(&self.connection, name, state, Some(at))
            .and_then(|()| put_copy_at(&self.connection, name, kind, copy, proof, Some(at)))
            .map(drop)
            .map_err(during("copy", name))
    }

    /// The working copy was taken out.
    pub fn deleted(&mut self, name: &str, at: &str) -> Result<()> {
        step_at(&self.connection, name, FileState::Deleted, Some(at))
            .map_err(during("delete", name))
    }

    /// Parcels went into another one.
    pub fn gathered<'a>(
        &mut self,
        batch: &str,
        members: impl Iterator<Item = &'a str>,
    ) -> Result<()> {
        for member in members {
            self.connection
                .execute(
                    "INSERT OR IGNORE INTO rebuild_batch (batch, member) VALUES (?1, ?2)",
                    [batch, member],
                )
                .map_err(during("gather", member))?;
        }
        Ok(())
    }

    /// The lines of all files in a day's parcel are in a generation.
    pub fn published(
        &mut self,
        day: &str,
        collection: Option<&str>,
        generation: u64,
        at: &str,
    ) -> Result<()> {
        let fail = || during("publish", day);
        let sql = "UPDATE file SET \
             state = CASE WHEN state = 'cleaned' THEN state ELSE 'published' END, \
             generation = min(coalesce(generation, ?2), ?2), \
             collection = coalesce(collection, ?3), \
             published = min(coalesce(published, ?4), ?4) \
             WHERE name IN (SELECT name FROM rebuild_parcel JOIN rebuild_batch ON parcel = member WHERE batch = ?1) \
             AND collection IS ?3";
        self.connection
            .execute(sql, params![day, signed(generation), collection, at])
            .map(drop)
            .map_err(fail())
    }

    /// Says which files are gone from `harvested/`: those that were published and are no longer where they were found.
    pub fn cleaned(&mut self, is_gone: impl Fn(&str) -> bool) -> Result<u64> {
        let fail = || during("look for", "cleaned files");
        let mut after = String::new();
        let mut count = 0;
        loop {
            let sql = "SELECT name, source FROM file WHERE state = 'published' AND name > ?1 \
                 AND source IS NOT NULL ORDER BY name LIMIT 1000";
            let rows: Vec<(String, String)> = {
                let mut statement = self.connection.prepare_cached(sql).map_err(fail())?;
                let rows = statement
                    .query_map([&after], |row| Ok((row.get(0)?, row.get(1)?)))
                    .map_err(fail())?;
                rows.collect::<rusqlite::Result<_>>().map_err(fail())?
            };
            let Some((last, _)) = rows.last() else {
                return Ok(count);
            };
            after.clone_from(last);
            for (name, _) in rows
                .iter()
                .filter(|(_, source)| is_gone(&self.places.whole(source)))
            {
                step_at(&self.connection, name, FileState::Cleaned, None).map_err(fail())?;
                count += 1;
            }
        }
    }

    /// Tells whether a stored copy of a file is known.
    pub fn is_stored(&self, name: &str) -> Result<bool> {
        let sql = "SELECT 1 FROM copy WHERE file = ?1 AND kind = 'stored'";
        let row = self.connection.query_row(sql, [name], |_| Ok(()));
        Ok(row.optional().map_err(during("read", name))?.is_some())
    }

    /// Returns the size and digest that were taken of a file when it came in.
    pub fn digest(&self, name: &str) -> Result<Option<(u64, String)>> {
        let sql = "SELECT bytes, sha256 FROM file WHERE name = ?1 AND sha256 IS NOT NULL";
        let row = self.connection.query_row(sql, [name], |row| {
            Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get(1)?))
        });
        row.optional().map_err(during("read", name))
    }

    /// Counts the files.
    pub fn count(&self) -> Result<u64> {
        let sql = "SELECT count(*) FROM file";
        let count = self.connection.query_row(sql, [], |row| row.get(0));
        count
            .map(|count: i64| count.unsigned_abs())
            .map_err(during("count", "files"))
    }

    /// Takes over what only the old manifest knows: the last checks, and the freeze.
    ///
    /// # Errors
    /// When the old one cannot be read: then [`Rebuild::freeze`] is right.
    pub fn take_checks(&mut self, old: &Path) -> Result<()> {
        let fail = || during("read", "the old manifest");
        let old = crate::Manifest::open_to_read(old, Path::new(""))?;
        let mut statement = old
            .connection()
            .prepare("SELECT file, kind, target, sha256, checked, found FROM copy WHERE checked IS NOT NULL")
            .map_err(fail())?;
        let mut rows = statement.query([]).map_err(fail())?;
        while let Some(row) = rows.next().map_err(fail())? {
            let value = |at| row.get::<_, Option<String>>(at);
            let values = (0..6).map(value).collect::<rusqlite::Result<Vec<_>>>();
            self.connection
                .execute(
                    "UPDATE copy SET checked = ?5, found = ?6 \
                     WHERE file = ?1 AND kind = ?2 AND target = ?3 AND sha256 = ?4",
                    rusqlite::params_from_iter(values.map_err(fail())?),
                )
                .map_err(fail())?;
        }
        for check in old.failing_packages().unwrap_or_default() {
            let values = [Some(check.row.package), check.checked, check.found];
            let sql =
                "INSERT OR IGNORE INTO package_check (package, checked, found) VALUES (?1, ?2, ?3)";
            let put = self
                .connection
                .execute(sql, rusqlite::params_from_iter(values));
            put.map_err(fail())?;
        }
        if let Some(frozen) = old.frozen()? {
            self.connection
                .execute(
                    "INSERT INTO frozen (one, why, since) VALUES (1, ?1, ?2) ON CONFLICT (one) DO NOTHING",
                    [frozen.why, frozen.since],
                )
                .map_err(fail())?;
        }
        Ok(())
    }

    /// Lets nothing be removed: whether anything was frozen before is not known.
    pub fn freeze(&mut self, why: &str) -> Result<()> {
        crate::check::freeze(&self.connection, why).map_err(during("freeze", "removals"))
    }

    /// Makes it whole and durable, and removes it: this was to be seen only.
    ///
    /// # Errors
    /// When it cannot be written, or is not sound.
    #[expect(
        clippy::disallowed_methods,
        reason = "what this module made is this module's to remove"
    )]
    pub fn discard(self) -> Result<()> {
        let path = self.path.clone();
        self.seal()?;
        std::fs::remove_file(&path).map_err(|error| moved("remove", &path, error))
    }

    /// Makes it whole and durable and gives it its name; what had that name is called `old` then, if there was anything.
    ///
    /// # Errors
    /// When it cannot be written, or is not sound.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place where a manifest takes the place of another"
    )]
    pub fn publish(self, path: &Path, old: &Path) -> Result<()> {
        let new = self.path.clone();
        self.seal()?;
        match std::fs::hard_link(path, old) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            linked => linked.map_err(|error| moved("keep", path, error))?,
        }
        // A log belongs to its database: the new one must not find that of the old.
        for ending in ["-wal", "-shm", "-journal"] {
            let (from, to) = (journal::beside(path, ending), journal::beside(old, ending));
            match std::fs::rename(&from, to) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                done => done.map_err(|error| moved("keep", &from, error))?,
            }
        }
        std::fs::rename(&new, path).map_err(|error| moved("name", path, error))?;
        let directory = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        std::fs::File::open(directory)
            .and_then(|directory| directory.sync_all())
            .map_err(|error| moved("sync", directory, error))
    }

    fn seal(self) -> Result<()> {
        let at = |source| ManifestError::Open {
            path: self.path.clone(),
            source,
        };
        let end = "DROP TABLE rebuild_parcel; DROP TABLE rebuild_batch; COMMIT; \
             PRAGMA synchronous = FULL; VACUUM;";
        self.connection.execute_batch(end).map_err(at)?;
        let sound: String = self
            .connection
            .query_row("PRAGMA quick_check", [], |row| row.get(0))
            .map_err(at)?;
        let path = self.path.clone();
        if sound != "ok" {
            let error = std::io::Error::other(sound);
            return Err(moved("check", &path, error));
        }
        self.connection
            .close()
            .map_err(|(_, source)| ManifestError::Open {
                path: path.clone(),
                source,
            })?;
        std::fs::File::open(&path)
            .and_then(|file| file.sync_all())
            .map_err(|error| moved("sync", &path, error))
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) fn is_of(&self, parcel: &str, name: &str) -> Result<()> {
        self.connection
            .execute(
                "INSERT OR IGNORE INTO rebuild_parcel (parcel, name) VALUES (?1, ?2)",
                [parcel, name],
            )
            .map(drop)
            .map_err(during("note the parcel of", name))
    }
}

fn moved(step: &'static str, path: &Path, error: std::io::Error) -> ManifestError {
    ManifestError::File {
        step,
        path: path.to_owned(),
        error,
    }
}
