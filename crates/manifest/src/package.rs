//! What the packages of jobs need to know, and which there are.

use rusqlite::{Row, params};
use serde::Serialize;

use crate::row::{self, FileRow};
use crate::{Manifest, NOW, Result, during, signed};

/// A job, as the names of its files tell it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobName {
    /// The job.
    pub job: String,
    /// The harvest; none where only other files tell.
    pub harvest: Option<String>,
}

/// A file of a job, with what its package needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFile {
    /// Its row.
    pub row: FileRow,
    /// Its SHA-512, where it is known of these bytes.
    pub sha512: Option<String>,
    /// The parcel it went through the chain in.
    pub parcel: Option<String>,
}

/// One part of a job's package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PackageRow {
    /// The job.
    pub job: String,
    /// The harvest; empty for none.
    pub harvest: String,
    /// Which part, from 1.
    pub part: u64,
    /// How many parts there are.
    pub parts: u64,
    /// Its identifier.
    pub ark: String,
    /// The name of its directory in `archive.packages`.
    pub package: String,
    /// How many archive files it has.
    pub files: u64,
    /// Their size.
    pub bytes: u64,
    /// The SHA-512 of its tag manifest.
    pub sha512: String,
}

pub(crate) const SELECT_FINISHED: &str = "SELECT file.job, file.harvest, file.published FROM file \
     LEFT JOIN package ON package.job = file.job AND package.harvest = coalesce(file.harvest, '') \
     AND package.part = 1 WHERE file.kind = 'metadata' AND file.published >= ?1 AND file.job IS NOT NULL \
     AND package.job IS NULL ORDER BY file.published LIMIT ?2";

const SELECT_JOB: &str = "SELECT name, bytes, file.sha256, kind, job, harvest, collection, source, state, \
     captures, damages, generation, deleted, digest.sha512, ticket FROM file \
     LEFT JOIN digest ON digest.file = name AND digest.sha256 = file.sha256 \
     WHERE job = ?1 AND (?2 IS NULL OR harvest IS NULL OR harvest = ?2) ORDER BY name";

impl Manifest {
    /// Returns so many of the jobs whose metadata file is in the index since then and that have no package, each
    /// with that time.
    pub fn finished_jobs(&self, since: &str, most: usize) -> Result<Vec<(JobName, String)>> {
        let read = || {
            let mut statement = self.connection().prepare_cached(SELECT_FINISHED)?;
            let rows = statement.query_map(params![since, signed(most as u64)], |row| {
                let name = JobName {
                    job: row.get(0)?,
                    harvest: row.get(1)?,
                };
                Ok((name, row.get(2)?))
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(during("list", "finished jobs"))
    }

    /// Returns the files of a job in order of name; without a harvest, those of every harvest.
    pub fn files_of_job(&self, name: &JobName) -> Result<Vec<JobFile>> {
        let read = || {
            let mut statement = self.connection().prepare_cached(SELECT_JOB)?;
            let rows = statement.query_map(params![name.job, name.harvest], |row| {
                Ok(JobFile {
                    row: row::file(row, self.places())?,
                    sha512: row.get(13)?,
                    parcel: row.get(14)?,
                })
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(during("list the files of job", &name.job))
    }

    /// Says what the SHA-512 of a file is whose SHA-256 is this.
    pub fn note_sha512(&mut self, file: &str, sha256: &str, sha512: &str) -> Result<()> {
        let transaction = self.begin("note the SHA-512 of", file)?;
        put_sha512(&transaction, file, sha256, sha512)
            .and_then(|()| transaction.commit())
            .map_err(during("note the SHA-512 of", file))
    }

    /// Says that the package of a job is made, in all its parts.
    pub fn packaged(&mut self, parts: &[PackageRow]) -> Result<()> {
        let job = parts.first().map_or("", |part| part.job.as_str());
        let transaction = self.begin("package", job)?;
        for part in parts {
            put_package(&transaction, part, None).map_err(during("package", job))?;
        }
        transaction.commit().map_err(during("package", job))
    }

    /// Returns the packages, in order of job.
    pub fn packages(&self) -> Result<Vec<PackageRow>> {
        let read = || {
            let sql = "SELECT job, harvest, part, parts, ark, package, files, bytes, sha512 FROM package \
                 ORDER BY job, harvest, part";
            let mut statement = self.connection().prepare(sql)?;
            let rows = statement.query_map([], package)?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(during("list", "packages"))
    }
}

pub(crate) fn put_sha512(
    connection: &rusqlite::Connection,
    file: &str,
    sha256: &str,
    sha512: &str,
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO digest (file, sha256, sha512) VALUES (?1, ?2, ?3) ON CONFLICT (file) DO UPDATE \
         SET sha256 = ?2, sha512 = ?3";
    connection.execute(sql, [file, sha256, sha512]).map(drop)
}

/// Writes the row of a part, made at another time than now where that is known.
pub(crate) fn put_package(
    connection: &rusqlite::Connection,
    part: &PackageRow,
    at: Option<&str>,
) -> rusqlite::Result<()> {
    let sql = format!(
        "INSERT INTO package (job, harvest, part, parts, ark, package, files, bytes, sha512, made) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, coalesce(?10, {NOW})) ON CONFLICT (job, harvest, part) \
         DO UPDATE SET parts = ?4, ark = ?5, package = ?6, files = ?7, bytes = ?8, sha512 = ?9"
    );
    let values = params![
        part.job,
        part.harvest,
        signed(part.part),
        signed(part.parts),
        part.ark,
        part.package,
        signed(part.files),
        signed(part.bytes),
        part.sha512,
        at,
    ];
    connection.execute(&sql, values).map(drop)
}

fn package(row: &Row<'_>) -> rusqlite::Result<PackageRow> {
    let number = |at: usize| row.get::<_, i64>(at).map(i64::unsigned_abs);
    Ok(PackageRow {
        job: row.get(0)?,
        harvest: row.get(1)?,
        part: number(2)?,
        parts: number(3)?,
        ark: row.get(4)?,
        package: row.get(5)?,
        files: number(6)?,
        bytes: number(7)?,
        sha512: row.get(8)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NewFile;

    fn ingest(manifest: &mut Manifest, name: &str, kind: &str, harvest: Option<&str>) {
        let new = NewFile {
            name,
            bytes: 1,
            sha256: "aa",
            kind,
            job: Some("17"),
            harvest,
            collection: None,
            source: "/x",
            parcel: name,
        };
        manifest.ingest(&new).unwrap();
    }

    #[test]
    fn a_job_is_finished_once_its_metadata_is_in_the_index_and_until_it_has_a_package() {
        let dir = tempfile::tempdir().unwrap();
        let mut manifest = Manifest::open(&dir.path().join("m.sqlite"), dir.path()).unwrap();
        ingest(&mut manifest, "17-4-0.warc.gz", "warc", Some("4"));
        ingest(
            &mut manifest,
            "17-4-metadata-1.warc.gz",
            "metadata",
            Some("4"),
        );
        ingest(&mut manifest, "17-5-0.warc.gz", "warc", Some("5"));
        let finished = |manifest: &Manifest| manifest.finished_jobs("", 9).unwrap();
        assert_eq!(finished(&manifest), []);
        let names = ["17-4-metadata-1.warc.gz".to_owned()];
        manifest.published(None, 1, &names).unwrap();
        let [(job, _)] = finished(&manifest).try_into().unwrap();
        assert_eq!(job.harvest.as_deref(), Some("4"));
        manifest.note_sha512("17-4-0.warc.gz", "aa", "bb").unwrap();
        manifest
            .note_sha512("17-4-metadata-1.warc.gz", "other", "cc")
            .unwrap();
        let files = manifest.files_of_job(&job).unwrap();
        let digests: Vec<_> = files.iter().map(|file| file.sha512.as_deref()).collect();
        assert_eq!(digests, [Some("bb"), None], "of these bytes only");
        let row = PackageRow {
            job: "17".into(),
            harvest: "4".into(),
            part: 1,
            parts: 1,
            ark: "ark:/99999/x".into(),
            package: "17-4".into(),
            files: 2,
            bytes: 2,
            sha512: "dd".into(),
        };
        manifest.packaged(std::slice::from_ref(&row)).unwrap();
        manifest.packaged(std::slice::from_ref(&row)).unwrap();
        assert_eq!(manifest.packages().unwrap(), [row]);
        assert_eq!(finished(&manifest), []);
    }
}
