//! All that the manifest says of a file, as one value that can be kept elsewhere: a package holds those of its files, and the
//! manifest of a lost root is made of them.
//!
//! What changes later is left out: whether the harvested file is gone, and when a copy was last read.

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};

use crate::check::CheckOutcome;
use crate::error::Result;
use crate::package::{PackageRow, put_package, put_sha512};
use crate::row::{CopyKind, Damage};
use crate::{Manifest, NOW, Rebuild, during, put_damage, signed};

/// What is known of a file that is in the index.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FileRecord {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: Option<u64>,
    /// Its SHA-256.
    pub sha256: Option<String>,
    /// Its SHA-512.
    pub sha512: Option<String>,
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
    /// The parcel that took it in.
    pub parcel: Option<String>,
    /// Index lines.
    pub captures: Option<u64>,
    /// Places that could not be read, and the first of them.
    pub damages: Option<u64>,
    /// The first of these places.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damage: Vec<Damage>,
    /// The generation that first held it.
    pub generation: Option<u64>,
    /// When it reached each state.
    pub times: FileTimes,
    /// Its copies.
    pub copies: Vec<CopyRecord>,
}

/// When a file reached each state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FileTimes {
    /// Taken in.
    pub ingested: Option<String>,
    /// Its lines written.
    pub indexed: Option<String>,
    /// At its final place.
    pub stored: Option<String>,
    /// In a backup.
    pub backed_up: Option<String>,
    /// The working copy gone.
    pub deleted: Option<String>,
    /// In the big index.
    pub published: Option<String>,
}

/// A copy of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct CopyRecord {
    /// What it is for.
    pub kind: CopyKind,
    /// The location's or backup's name.
    pub target: String,
    /// Where it is; below the root it begins with `./`.
    pub place: String,
    /// Its size.
    pub bytes: u64,
    /// Its digest when it was made.
    pub sha256: String,
    /// A backup's proof, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<String>,
    /// When it was made.
    pub made: String,
}

const SELECT: &str = "SELECT name, bytes, file.sha256, digest.sha512, kind, job, harvest, collection, source, parcel, captures, \
     damages, generation, ingested, indexed, stored, backed_up, deleted, published FROM file \
     LEFT JOIN digest ON digest.file = name AND digest.sha256 = file.sha256 WHERE name = ?1";

const INSERT: &str = "INSERT INTO file (name, bytes, sha256, kind, job, harvest, collection, source, parcel, captures, damages, \
     generation, ingested, indexed, stored, backed_up, deleted, published, state) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, 'published') \
     ON CONFLICT (name) DO NOTHING";

impl Manifest {
    /// Returns all that is known of a file.
    pub fn record(&self, name: &str) -> Result<Option<FileRecord>> {
        let fail = || during("read", name);
        let row = self.connection().query_row(SELECT, [name], record);
        let Some(mut record) = row.optional().map_err(fail())? else {
            return Ok(None);
        };
        record.damage = self.damage(name)?;
        record.copies = copies(self.connection(), name).map_err(fail())?;
        Ok(Some(record))
    }

    /// Returns what the receipts of a file told that came back from a package, as the package has it.
    pub fn history(&self, file: &str) -> Result<Option<String>> {
        let sql = "SELECT history FROM file_history WHERE file = ?1";
        let row = self.connection().query_row(sql, [file], |row| row.get(0));
        row.optional().map_err(during("read the history of", file))
    }

    /// Returns who closed the job of a package that came back, as the package has it.
    pub fn closing(&self, package: &str) -> Result<Option<String>> {
        let sql = "SELECT closing FROM package_closing WHERE package = ?1";
        let row = self
            .connection()
            .query_row(sql, [package], |row| row.get(0));
        row.optional()
            .map_err(during("read who closed the job of package", package))
    }
}

impl Rebuild {
    /// Takes up a file as it was, with what its receipts told; one of that name that is there stays.
    pub fn restore(&mut self, record: &FileRecord, history: Option<&str>) -> Result<()> {
        let name = &record.name;
        let times = &record.times;
        let connection = self.connection();
        let number = |number: Option<u64>| number.map(signed);
        let values = params![
            name,
            number(record.bytes),
            record.sha256,
            record.kind,
            record.job,
            record.harvest,
            record.collection,
            record.source,
            record.parcel,
            number(record.captures),
            number(record.damages),
            number(record.generation),
            times.ingested,
            times.indexed,
            times.stored,
            times.backed_up,
            times.deleted,
            times.published,
        ];
        let put = || -> rusqlite::Result<()> {
            if connection.execute(INSERT, values)? == 0 {
                return Ok(());
            }
            put_damage(connection, name, &record.damage)?;
            if let Some(history) = history {
                let sql = "INSERT OR REPLACE INTO file_history (file, history) VALUES (?1, ?2)";
                connection.execute(sql, [name.as_str(), history])?;
            }
            if let (Some(sha256), Some(sha512)) = (&record.sha256, &record.sha512) {
                put_sha512(connection, name, sha256, sha512)?;
            }
            let sql = "INSERT INTO copy (file, kind, target, place, bytes, sha256, proof, made) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
            for copy in &record.copies {
                let bytes = signed(copy.bytes);
                let (kind, proof) = (copy.kind.word(), &copy.proof);
                connection.execute(
                    sql,
                    params![
                        name,
                        kind,
                        copy.target,
                        copy.place,
                        bytes,
                        copy.sha256,
                        proof,
                        copy.made
                    ],
                )?;
            }
            Ok(())
        };
        put().map_err(during("take up", name))?;
        match &record.parcel {
            Some(parcel) => self.is_of(parcel, name),
            None => Ok(()),
        }
    }

    /// Takes up a package as it says of itself, unless there is one of that name.
    pub fn restore_package(
        &mut self,
        row: &PackageRow,
        names: &[String],
        made: &str,
        closing: Option<&str>,
    ) -> Result<()> {
        let connection = self.connection();
        let package = row.package.as_str();
        let put = || -> rusqlite::Result<()> {
            let sql = "SELECT EXISTS (SELECT 1 FROM package WHERE package = ?1)";
            if connection.query_row(sql, [package], |row| row.get(0))? {
                return Ok(());
            }
            put_package(connection, row, names, Some(made))?;
            if let Some(closing) = closing {
                let sql =
                    "INSERT OR REPLACE INTO package_closing (package, closing) VALUES (?1, ?2)";
                connection.execute(sql, [package, closing])?;
            }
            Ok(())
        };
        put().map_err(during("take up package", package))
    }

    /// Says what a copy was found to be; to freeze removals is the caller's.
    pub fn checked(
        &mut self,
        file: &str,
        kind: CopyKind,
        target: &str,
        found: &CheckOutcome,
    ) -> Result<()> {
        let sql = format!(
            "UPDATE copy SET checked = {NOW}, found = ?4 WHERE file = ?1 AND kind = ?2 AND target = ?3"
        );
        let values = params![file, kind.word(), target, found.words()];
        let put = self.connection().execute(&sql, values);
        put.map(drop).map_err(during("note the check of", file))
    }
}

fn record(row: &Row<'_>) -> rusqlite::Result<FileRecord> {
    let number = |at: usize| -> rusqlite::Result<Option<u64>> {
        Ok(row.get::<_, Option<i64>>(at)?.map(i64::unsigned_abs))
    };
    Ok(FileRecord {
        name: row.get(0)?,
        bytes: number(1)?,
        sha256: row.get(2)?,
        sha512: row.get(3)?,
        kind: row.get(4)?,
        job: row.get(5)?,
        harvest: row.get(6)?,
        collection: row.get(7)?,
        source: row.get(8)?,
        parcel: row.get(9)?,
        captures: number(10)?,
        damages: number(11)?,
        damage: Vec::new(),
        generation: number(12)?,
        times: FileTimes {
            ingested: row.get(13)?,
            indexed: row.get(14)?,
            stored: row.get(15)?,
            backed_up: row.get(16)?,
            deleted: row.get(17)?,
            published: row.get(18)?,
        },
        copies: Vec::new(),
    })
}

fn copies(connection: &Connection, name: &str) -> rusqlite::Result<Vec<CopyRecord>> {
    let sql = "SELECT kind, target, place, bytes, sha256, proof, made FROM copy WHERE file = ?1 ORDER BY kind DESC, target";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map([name], |row| {
        let kind: String = row.get(0)?;
        Ok(CopyRecord {
            kind: match kind == CopyKind::Stored.word() {
                true => CopyKind::Stored,
                false => CopyKind::Backup,
            },
            target: row.get(1)?,
            place: row.get(2)?,
            bytes: row.get::<_, i64>(3)?.unsigned_abs(),
            sha256: row.get(4)?,
            proof: row.get(5)?,
            made: row.get(6)?,
        })
    })?;
    rows.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Copy, NewFile};

    #[test]
    fn a_file_comes_back_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let mut manifest = Manifest::open(&dir.path().join("m.sqlite"), dir.path()).unwrap();
        let source = dir.path().join("harvested/a.warc.gz");
        let new = NewFile {
            name: "a.warc.gz",
            bytes: 7,
            sha256: "aa",
            kind: "warc",
            job: Some("17"),
            harvest: Some("4"),
            collection: Some("elections"),
            source: source.to_str().unwrap(),
            parcel: "a.warc.gz-1",
        };
        manifest.ingest_hashed(&new, Some("bb")).unwrap();
        let damage = Damage {
            record: 3,
            offset: 5,
            reason: "no end".into(),
        };
        manifest.indexed("a.warc.gz", 9, 1, &[damage]).unwrap();
        let copy = Copy {
            target: "disk",
            place: "/x/a.warc.gz",
            bytes: 7,
            sha256: "aa",
        };
        manifest.stored("a.warc.gz", &copy).unwrap();
        let proof = json!({"kind": "s3"});
        manifest.backed_up("a.warc.gz", &copy, &proof).unwrap();
        manifest.deleted("a.warc.gz").unwrap();
        let names = ["a.warc.gz".to_owned()];
        manifest.published(Some("elections"), 4, &names).unwrap();
        let record = manifest.record("a.warc.gz").unwrap().unwrap();
        assert_eq!(record.source.as_deref(), Some("./harvested/a.warc.gz"));
        assert_eq!(record.copies.len(), 2);
        assert_eq!(manifest.record("b.warc.gz").unwrap(), None);

        let text = serde_json::to_string(&record).unwrap();
        let read: FileRecord = serde_json::from_str(&text).unwrap();
        assert_eq!(read, record);

        let (new, there) = (dir.path().join("new"), dir.path().join("n.sqlite"));
        let mut rebuild = Rebuild::begin(&new, dir.path()).unwrap();
        let history = r#"{"steps":[]}"#;
        rebuild.restore(&read, Some(history)).unwrap();
        let other = FileRecord {
            name: "a.warc.gz".into(),
            ..FileRecord::default()
        };
        rebuild.restore(&other, None).unwrap();
        let row = PackageRow {
            job: "17".into(),
            harvest: "4".into(),
            part: 1,
            parts: 1,
            supplement: 0,
            ark: "ark:/99999/x".into(),
            package: "17-4".into(),
            files: 1,
            bytes: 7,
            sha512: "cc".into(),
        };
        let names = ["a.warc.gz".to_owned()];
        let closing = r#"{"by":"me"}"#;
        let made = "2026-01-02T03:04:05Z";
        rebuild
            .restore_package(&row, &names, made, Some(closing))
            .unwrap();
        let newer = PackageRow {
            sha512: "dd".into(),
            ..row.clone()
        };
        rebuild.restore_package(&newer, &[], made, None).unwrap();
        let bad = CheckOutcome::Bad("other bytes".into());
        rebuild
            .checked("a.warc.gz", CopyKind::Stored, "disk", &bad)
            .unwrap();
        rebuild.publish(&there, &dir.path().join("old")).unwrap();
        let rebuilt = Manifest::open(&there, dir.path()).unwrap();
        assert_eq!(rebuilt.record("a.warc.gz").unwrap(), Some(record));
        assert_eq!(
            rebuilt.file("a.warc.gz").unwrap(),
            manifest.file("a.warc.gz").unwrap()
        );
        assert_eq!(
            rebuilt.history("a.warc.gz").unwrap().as_deref(),
            Some(history)
        );
        assert_eq!(manifest.history("a.warc.gz").unwrap(), None);
        assert_eq!(rebuilt.packages().unwrap(), [row]);
        assert_eq!(rebuilt.closing("17-4").unwrap().as_deref(), Some(closing));
        assert_eq!(rebuilt.health().unwrap().bad, 1);
    }
}
