//! What the packages of jobs need to know, and which there are.

use rusqlite::{Row, params};
use serde::{Deserialize, Serialize};

use crate::check::{CheckOutcome, freeze};
use crate::row::{self, FileRow, FileState};
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PackageRow {
    /// The job.
    pub job: String,
    /// The harvest; empty for none.
    pub harvest: String,
    /// Which part, from 1; those of supplements are counted on.
    pub part: u64,
    /// How many parts were made together.
    pub parts: u64,
    /// Which supplement it belongs to, from 1; 0 for the package itself.
    #[serde(default)]
    pub supplement: u64,
    /// Its identifier.
    pub ark: String,
    /// The name of its directory in `archive.packages`.
    pub package: String,
    /// How many archive files it has.
    pub files: u64,
    /// Their size.
    pub bytes: u64,
    /// The SHA-512 of its tag manifest; empty in the package itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sha512: String,
}

/// A package whose turn it is to be read, or that was not found good when it was last read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PackageCheck {
    /// The package.
    #[serde(flatten)]
    pub row: PackageRow,
    /// When it was last read.
    pub checked: Option<String>,
    /// What that gave.
    pub found: Option<String>,
}

pub(crate) const SELECT_FINISHED: &str = "SELECT file.job, file.harvest, file.published FROM file \
     LEFT JOIN package ON package.job = file.job AND package.harvest = coalesce(file.harvest, '') \
     AND package.part = 1 WHERE file.kind = 'metadata' AND file.published >= ?1 AND file.job IS NOT NULL \
     AND package.job IS NULL ORDER BY file.published LIMIT ?2";

/// Files of packed jobs that no package has. Of packages that were made before their files were noted nothing is said.
pub(crate) const SELECT_LATE: &str = "SELECT file.job, package.harvest, max(file.published) AS last FROM file \
     JOIN package ON package.job = file.job AND package.part = 1 \
     AND (package.harvest = '' OR file.harvest IS NULL OR package.harvest = file.harvest) \
     WHERE file.published >= ?1 AND NOT EXISTS (SELECT 1 FROM package_file WHERE package_file.file = file.name) \
     AND EXISTS (SELECT 1 FROM package_file WHERE package_file.package = package.package) \
     GROUP BY file.job, package.harvest ORDER BY last LIMIT ?2";

const SELECT_JOB: &str = "SELECT name, bytes, file.sha256, kind, job, harvest, collection, source, state, \
     captures, damages, generation, deleted, digest.sha512, parcel FROM file \
     LEFT JOIN digest ON digest.file = name AND digest.sha256 = file.sha256 \
     WHERE job = ?1 AND (?2 IS NULL OR harvest IS NULL OR harvest = ?2) ORDER BY name";

impl Manifest {
    /// Returns so many of the jobs whose metadata file has this state since then and that have no package, each with that
    /// time.
    pub fn finished_jobs(
        &self,
        state: FileState,
        since: &str,
        most: usize,
    ) -> Result<Vec<(JobName, String)>> {
        let read = || {
            let sql = SELECT_FINISHED.replace("file.published", &column(state));
            let mut statement = self.connection().prepare_cached(&sql)?;
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

    /// Returns so many of the packed jobs of which a file has this state since then that is in no package, each with that
    /// time.
    pub fn late_jobs(
        &self,
        state: FileState,
        since: &str,
        most: usize,
    ) -> Result<Vec<(JobName, String)>> {
        let read = || {
            let sql = SELECT_LATE.replace("file.published", &column(state));
            let mut statement = self.connection().prepare_cached(&sql)?;
            let rows = statement.query_map(params![since, signed(most as u64)], |row| {
                let harvest: String = row.get(1)?;
                let name = JobName {
                    job: row.get(0)?,
                    harvest: (!harvest.is_empty()).then_some(harvest),
                };
                Ok((name, row.get(2)?))
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(during("list", "jobs with late files"))
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

    /// Says that the package of a job is made, in all its parts, each with the names of its archive files.
    pub fn packaged(&mut self, parts: &[(PackageRow, Vec<String>)]) -> Result<()> {
        let job = parts.first().map_or("", |(part, _)| part.job.as_str());
        let transaction = self.begin("package", job)?;
        for (part, names) in parts {
            put_package(&transaction, part, names, None).map_err(during("package", job))?;
        }
        transaction.commit().map_err(during("package", job))
    }

    /// Returns the packages, in order of job.
    pub fn packages(&self) -> Result<Vec<PackageRow>> {
        let sql = format!("SELECT {COLUMNS} FROM package ORDER BY job, harvest, part");
        self.read_packages(&sql, [])
    }

    /// Returns the packages of a job, in order.
    pub fn packages_of_job(&self, name: &JobName) -> Result<Vec<PackageRow>> {
        let sql =
            format!("SELECT {COLUMNS} FROM package WHERE job = ?1 AND harvest = ?2 ORDER BY part");
        let harvest = name.harvest.as_deref().unwrap_or_default();
        self.read_packages(&sql, [name.job.as_str(), harvest])
    }

    /// Returns the packages that a file is in.
    pub fn packages_with(&self, file: &str) -> Result<Vec<PackageRow>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM package WHERE package IN \
             (SELECT package FROM package_file WHERE file = ?1) ORDER BY job, harvest, part"
        );
        self.read_packages(&sql, [file])
    }

    /// Returns the archive files of a package.
    pub fn files_of_package(&self, package: &str) -> Result<Vec<String>> {
        let read = || {
            let sql = "SELECT file FROM package_file WHERE package = ?1 ORDER BY file";
            let mut statement = self.connection().prepare_cached(sql)?;
            let rows = statement.query_map([package], |row| row.get(0))?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(during("list the files of package", package))
    }

    fn read_packages(&self, sql: &str, values: impl rusqlite::Params) -> Result<Vec<PackageRow>> {
        let read = || {
            let mut statement = self.connection().prepare(sql)?;
            let rows = statement.query_map(values, package)?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(during("list", "packages"))
    }

    /// Returns the packages that were never read again, or whose last check is oldest, first.
    pub fn packages_to_check(&self) -> Result<Vec<PackageCheck>> {
        self.read_checks("ORDER BY checked, made, package")
    }

    /// Returns the packages that were not found good when they were last read.
    pub fn failing_packages(&self) -> Result<Vec<PackageCheck>> {
        self.read_checks("WHERE found <> 'good' ORDER BY package")
    }

    fn read_checks(&self, which: &str) -> Result<Vec<PackageCheck>> {
        let read = || {
            let sql = format!(
                "SELECT {COLUMNS}, checked, found FROM package LEFT JOIN package_check USING (package) {which}"
            );
            let mut statement = self.connection().prepare(&sql)?;
            let rows = statement.query_map([], |row| {
                Ok(PackageCheck {
                    row: package(row)?,
                    checked: row.get(10)?,
                    found: row.get(11)?,
                })
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(during("list", "packages to check"))
    }

    /// Says what reading a package again gave. A bad one freezes every removal, in the same transaction.
    pub fn package_checked(&mut self, package: &str, found: &CheckOutcome) -> Result<()> {
        let fail = || during("note the check of package", package);
        let transaction = self.begin("note the check of package", package)?;
        let sql = format!(
            "INSERT INTO package_check (package, checked, found) VALUES (?1, {NOW}, ?2) \
             ON CONFLICT (package) DO UPDATE SET checked = {NOW}, found = ?2"
        );
        transaction
            .execute(&sql, [package, &found.words()])
            .map_err(fail())?;
        if let CheckOutcome::Bad(what) = found {
            freeze(&transaction, &format!("package {package}: {what}")).map_err(fail())?;
        }
        transaction.commit().map_err(fail())
    }
}

/// The column with the time of a state.
fn column(state: FileState) -> String {
    format!("file.{}", state.word().replace('-', "_"))
}

pub(crate) const COLUMNS: &str =
    "job, harvest, part, parts, supplement, ark, package, files, bytes, sha512";

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

/// Writes the row of a part and the names of its files, made at another time than now where that is known. What was found
/// of a package of that name before is forgotten.
pub(crate) fn put_package(
    connection: &rusqlite::Connection,
    part: &PackageRow,
    names: &[String],
    at: Option<&str>,
) -> rusqlite::Result<()> {
    let sql = format!(
        "INSERT INTO package (job, harvest, part, parts, supplement, ark, package, files, bytes, sha512, made) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, coalesce(?11, {NOW})) ON CONFLICT (job, harvest, part) \
         DO UPDATE SET parts = ?4, supplement = ?5, ark = ?6, package = ?7, files = ?8, bytes = ?9, sha512 = ?10"
    );
    let values = params![
        part.job,
        part.harvest,
        signed(part.part),
        signed(part.parts),
        signed(part.supplement),
        part.ark,
        part.package,
        signed(part.files),
        signed(part.bytes),
        part.sha512,
        at,
    ];
    connection.execute(&sql, values)?;
    // One that was bad is so until it was read again: removals stay frozen until then.
    connection.execute(
        "DELETE FROM package_check WHERE package = ?1 AND found NOT LIKE 'bad%'",
        [&part.package],
    )?;
    let mut insert = connection
        .prepare_cached("INSERT OR IGNORE INTO package_file (file, package) VALUES (?1, ?2)")?;
    for name in names {
        insert.execute([name, &part.package])?;
    }
    Ok(())
}

pub(crate) fn package(row: &Row<'_>) -> rusqlite::Result<PackageRow> {
    let number = |at: usize| row.get::<_, i64>(at).map(i64::unsigned_abs);
    Ok(PackageRow {
        job: row.get(0)?,
        harvest: row.get(1)?,
        part: number(2)?,
        parts: number(3)?,
        supplement: number(4)?,
        ark: row.get(5)?,
        package: row.get(6)?,
        files: number(7)?,
        bytes: number(8)?,
        sha512: row.get(9)?,
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
        let finished =
            |manifest: &Manifest| manifest.finished_jobs(FileState::Published, "", 9).unwrap();
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
            supplement: 0,
            ark: "ark:/99999/x".into(),
            package: "17-4".into(),
            files: 2,
            bytes: 2,
            sha512: "dd".into(),
        };
        let packed = ["17-4-0.warc.gz", "17-4-metadata-1.warc.gz"].map(str::to_owned);
        let part = [(row.clone(), packed.to_vec())];
        manifest.packaged(&part).unwrap();
        manifest.packaged(&part).unwrap();
        assert_eq!(manifest.packages().unwrap(), std::slice::from_ref(&row));
        assert_eq!(finished(&manifest), []);

        // What comes after that is late, and is so until a package has it.
        let late = |manifest: &Manifest| manifest.late_jobs(FileState::Published, "", 9).unwrap();
        assert_eq!(late(&manifest), []);
        ingest(&mut manifest, "17-4-1.warc.gz", "warc", Some("4"));
        assert_eq!(late(&manifest), [], "it is not in the index");
        let names = ["17-4-1.warc.gz", "17-5-0.warc.gz"].map(str::to_owned);
        manifest.published(None, 2, &names).unwrap();
        let [(of, _)] = late(&manifest).try_into().unwrap();
        assert_eq!(of, job);
        let supplement = PackageRow {
            part: 2,
            supplement: 1,
            package: "17-4.supplement-1".into(),
            ..row.clone()
        };
        manifest
            .packaged(&[(supplement.clone(), vec![names[0].clone()])])
            .unwrap();
        assert_eq!(late(&manifest), []);
        assert_eq!(manifest.packages_with(&names[0]).unwrap(), [supplement]);
        assert_eq!(manifest.files_of_package("17-4").unwrap(), packed);

        // The one whose check is oldest comes first; a bad one freezes, and one made anew is bad until it was read.
        manifest
            .package_checked("17-4", &CheckOutcome::Good)
            .unwrap();
        let due = manifest.packages_to_check().unwrap();
        assert_eq!(due[0].row.package, "17-4.supplement-1");
        let bad = CheckOutcome::Bad("rot".into());
        manifest.package_checked("17-4", &bad).unwrap();
        assert!(manifest.frozen().unwrap().is_some());
        assert_eq!(manifest.health().unwrap().bad_packages, 1);
        manifest.packaged(&part).unwrap();
        assert_eq!(manifest.health().unwrap().bad_packages, 1);
        manifest
            .package_checked("17-4", &CheckOutcome::Good)
            .unwrap();
        assert_eq!(manifest.failing_packages().unwrap(), []);
    }
}
