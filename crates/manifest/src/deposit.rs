//! What was handed over to the preservation repository, file by file, and what it answered.
//!
//! A file is known there by its job, its name and its digest. Its state is written down before anything is done with it, so that
//! nobody who dies in between leaves a doubt: what may have been sent says so.

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};

use crate::package::{COLUMNS, PackageRow, package};
use crate::{Manifest, NOW, Result, during, signed};

/// How far a file is on its way to the repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DepositState {
    /// It is in a package, and was not sent.
    Built,
    /// It was sent, or may have been, and there is no receipt.
    Sent,
    /// The repository has given a receipt.
    Receipted,
}

impl DepositState {
    /// Returns it as the manifest has it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            DepositState::Built => "built",
            DepositState::Sent => "sent",
            DepositState::Receipted => "receipted",
        }
    }

    fn parse(word: &str) -> Self {
        match word {
            "receipted" => DepositState::Receipted,
            "sent" => DepositState::Sent,
            _ => DepositState::Built,
        }
    }
}

/// By what the repository knows a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct DepositKey {
    /// The job.
    pub job: String,
    /// The harvest; empty for none.
    pub harvest: String,
    /// The name of an archive file, or the package and the path in it.
    pub file: String,
    /// Its digest.
    pub sha256: String,
}

/// A file on its way to the repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct DepositFile {
    /// By what the repository knows it.
    #[serde(flatten)]
    pub key: DepositKey,
    /// The package that it is in.
    pub package: String,
    /// Where the job's files come from.
    pub channel: String,
    /// What it is: `metadata`, `document`, `data` or `tag`.
    pub role: String,
    /// Its size.
    pub bytes: u64,
    /// How far it is.
    pub state: DepositState,
    /// How often it was sent.
    pub tries: u64,
    /// When it was last sent.
    pub sent: Option<String>,
    /// When the receipt came.
    pub receipted: Option<String>,
    /// The repository's identifier for it.
    pub identifier: Option<String>,
    /// The receipt, word for word.
    pub receipt: Option<String>,
    /// What the repository said last that was no receipt.
    pub said: Option<String>,
}

/// Two files with one identifier, or two identifiers for one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentifierConflict {
    /// In words.
    pub what: String,
}

/// What was sent and has no receipt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct AwaitedReceipts {
    /// How many files.
    pub files: u64,
    /// Their size.
    pub bytes: u64,
    /// When the first of them was sent.
    pub since: Option<String>,
}

const DEPOSIT: &str = "job, harvest, file, sha256, package, channel, role, bytes, state, tries, sent, receipted, \
     identifier, receipt, said";
const KEY: &str = "job = ?1 AND harvest = ?2 AND file = ?3 AND sha256 = ?4";

impl Manifest {
    /// Returns the package of this name.
    pub fn package(&self, name: &str) -> Result<Option<PackageRow>> {
        let sql = format!("SELECT {COLUMNS} FROM package WHERE package = ?1");
        let row = self.connection().query_row(&sql, [name], package);
        row.optional().map_err(during("read package", name))
    }

    /// Returns so many of the packages that were not handed over as they are now, in the order they were made.
    pub fn packages_to_hand_over(&self, most: usize) -> Result<Vec<PackageRow>> {
        let read = || {
            let sql = format!(
                "SELECT {COLUMNS} FROM package WHERE NOT EXISTS (SELECT 1 FROM handed_over \
                 WHERE handed_over.package = package.package AND handed_over.sha512 = package.sha512) \
                 ORDER BY made, job, harvest, part LIMIT ?1"
            );
            let mut statement = self.connection().prepare_cached(&sql)?;
            let rows = statement.query_map([signed(most as u64)], package)?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(during("list", "packages to hand over"))
    }

    /// Says that every file of a package has a receipt.
    pub fn handed_over(&mut self, package: &PackageRow) -> Result<()> {
        put_handed_over(self.connection(), &package.package, &package.sha512, None)
            .map_err(during("hand over package", &package.package))
    }

    /// Says that these files are to be handed over; what is known of them stays.
    pub fn to_deposit(&mut self, files: &[DepositFile]) -> Result<()> {
        let package = files.first().map_or("", |file| file.package.as_str());
        let what = package.to_owned();
        let transaction = self.begin("note the files of", &what)?;
        for file in files {
            put_deposit(&transaction, file).map_err(during("note", &file.key.file))?;
        }
        transaction
            .commit()
            .map_err(during("note the files of", &what))
    }

    /// Returns how far a file is.
    pub fn deposit(&self, key: &DepositKey) -> Result<Option<DepositFile>> {
        let sql = format!("SELECT {DEPOSIT} FROM deposit WHERE {KEY}");
        let row = self.connection().query_row(&sql, values(key), deposit);
        row.optional().map_err(during("read", &key.file))
    }

    /// Says that a file is about to be sent: from here on it may have been.
    pub fn sending(&mut self, key: &DepositKey) -> Result<()> {
        let sql = format!(
            "UPDATE deposit SET state = 'sent', tries = tries + 1, sent = {NOW} WHERE {KEY} AND state <> 'receipted'"
        );
        let done = self.connection().execute(&sql, values(key));
        done.map(drop)
            .map_err(during("note the sending of", &key.file))
    }

    /// Says that nothing of a file was sent after all.
    pub fn not_sent(&mut self, key: &DepositKey) -> Result<()> {
        let sql = format!(
            "UPDATE deposit SET state = 'built', tries = max(tries - 1, 0), sent = NULL WHERE {KEY} AND state = 'sent'"
        );
        let done = self.connection().execute(&sql, values(key));
        done.map(drop).map_err(during("note", &key.file))
    }

    /// Says that the repository has a file, though nobody here knows when it was sent.
    pub fn known_there(&mut self, key: &DepositKey) -> Result<()> {
        let sql = format!(
            "UPDATE deposit SET state = 'sent', sent = coalesce(sent, {NOW}) WHERE {KEY} AND state = 'built'"
        );
        let done = self.connection().execute(&sql, values(key));
        done.map(drop).map_err(during("note", &key.file))
    }

    /// Keeps what the repository said of a file that was no receipt.
    pub fn deposit_said(&mut self, key: &DepositKey, words: &str) -> Result<()> {
        let sql = format!("UPDATE deposit SET said = ?5 WHERE {KEY}");
        let [job, harvest, file, sha256] = values(key);
        let done = self
            .connection()
            .execute(&sql, [job, harvest, file, sha256, words]);
        done.map(drop).map_err(during("note", &key.file))
    }

    /// Keeps a receipt; the first one counts. Tells when its identifier cannot be right, and keeps nothing then.
    pub fn receipted(
        &mut self,
        key: &DepositKey,
        identifier: Option<&str>,
        receipt: &str,
    ) -> Result<std::result::Result<(), IdentifierConflict>> {
        let fail = || during("note the receipt of", &key.file);
        let transaction = self.begin("note the receipt of", &key.file)?;
        let sql = format!("SELECT state, identifier FROM deposit WHERE {KEY}");
        let known: Option<(String, Option<String>)> = transaction
            .query_row(&sql, values(key), |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
            .map_err(fail())?;
        if let (Some((state, Some(known))), Some(identifier)) = (&known, identifier)
            && state == "receipted"
            && known != identifier
        {
            let what = format!(
                "{} has the identifier {known}, and now another: {identifier}",
                key.file
            );
            return Ok(Err(IdentifierConflict { what }));
        }
        if let Some(identifier) = identifier {
            let sql = "SELECT file FROM deposit WHERE identifier = ?1 AND NOT (file = ?2 AND sha256 = ?3)";
            let other: Option<String> = transaction
                .query_row(sql, [identifier, &key.file, &key.sha256], |row| row.get(0))
                .optional()
                .map_err(fail())?;
            if let Some(other) = other {
                let what = format!("{} was given {identifier}, which {other} has", key.file);
                return Ok(Err(IdentifierConflict { what }));
            }
        }
        let sql = format!(
            "UPDATE deposit SET state = 'receipted', receipted = {NOW}, identifier = ?5, receipt = ?6, said = NULL \
             WHERE {KEY} AND state <> 'receipted'"
        );
        let values = params![
            key.job,
            key.harvest,
            key.file,
            key.sha256,
            identifier,
            receipt
        ];
        transaction.execute(&sql, values).map_err(fail())?;
        transaction.commit().map_err(fail())?;
        Ok(Ok(()))
    }

    /// Returns so many of the packages that were handed over since then, each with the time.
    pub fn handed_over_since(&self, since: &str, most: usize) -> Result<Vec<(PackageRow, String)>> {
        let read = || {
            let sql = format!(
                "SELECT {} , handed_over.at FROM handed_over JOIN package ON package.package = handed_over.package \
                 AND package.sha512 = handed_over.sha512 WHERE handed_over.at >= ?1 ORDER BY handed_over.at LIMIT ?2",
                COLUMNS
                    .split(", ")
                    .map(|column| format!("package.{column}"))
                    .collect::<Vec<_>>()
                    .join(", ")
            );
            let mut statement = self.connection().prepare_cached(&sql)?;
            let rows = statement.query_map(params![since, signed(most as u64)], |row| {
                Ok((package(row)?, row.get(10)?))
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(during("list", "packages that were handed over"))
    }

    /// Returns the files of a package that have receipts, in order of name.
    pub fn receipts_of(&self, row: &PackageRow) -> Result<Vec<DepositFile>> {
        let read = || {
            let sql = format!(
                "SELECT {DEPOSIT} FROM deposit WHERE job = ?1 AND harvest = ?2 AND package = ?3 \
                 AND state = 'receipted' ORDER BY file, sha256"
            );
            let mut statement = self.connection().prepare_cached(&sql)?;
            let rows = statement.query_map([&row.job, &row.harvest, &row.package], deposit)?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(during("list the receipts of package", &row.package))
    }

    /// Calls `see` for every file that was or is to be handed over, in order of package.
    ///
    /// # Errors
    /// When the manifest cannot be read.
    pub fn each_deposit(&self, see: &mut dyn FnMut(DepositFile)) -> Result<()> {
        let read = |see: &mut dyn FnMut(DepositFile)| {
            let sql = format!("SELECT {DEPOSIT} FROM deposit ORDER BY harvest, job, package, file");
            let mut statement = self.connection().prepare(&sql)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                see(deposit(row)?);
            }
            Ok(())
        };
        read(see).map_err(during("list", "what was handed over"))
    }

    /// Returns the packages of which a directory has taken something, as its receipts say.
    pub fn packages_taken_by(&self, directory: &str) -> Result<Vec<String>> {
        let read = || {
            let sql = "SELECT DISTINCT package FROM deposit WHERE state = 'receipted' \
                 AND CASE WHEN json_valid(receipt) THEN json_extract(receipt, '$.directory') END = ?1 ORDER BY package";
            let mut statement = self.connection().prepare_cached(sql)?;
            let rows = statement.query_map([directory], |row| row.get(0))?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(during("list what was taken by", directory))
    }

    /// Returns what was sent and has no receipt.
    pub fn awaited_receipts(&self) -> Result<AwaitedReceipts> {
        let sql =
            "SELECT count(*), coalesce(sum(bytes), 0), min(sent) FROM deposit WHERE state = 'sent'";
        let row = self.connection().query_row(sql, [], |row| {
            Ok(AwaitedReceipts {
                files: row.get::<_, i64>(0)?.unsigned_abs(),
                bytes: row.get::<_, i64>(1)?.unsigned_abs(),
                since: row.get(2)?,
            })
        });
        row.map_err(during("count", "awaited receipts"))
    }

    /// Returns how many packages were handed over whole, and how many were not.
    pub fn handed_over_count(&self) -> Result<(u64, u64)> {
        let sql = "SELECT count(handed_over.package), count(*) FROM package LEFT JOIN handed_over \
             ON handed_over.package = package.package AND handed_over.sha512 = package.sha512";
        let row = self.connection().query_row(sql, [], |row| {
            let (done, all): (i64, i64) = (row.get(0)?, row.get(1)?);
            Ok((done.unsigned_abs(), (all - done).unsigned_abs()))
        });
        row.map_err(during("count", "packages"))
    }

    /// Returns how many files were sent since a time, and when the first of them was.
    pub fn sent_since(&self, since: &str) -> Result<(u64, Option<String>)> {
        let sql = "SELECT count(*), min(sent) FROM deposit WHERE sent > ?1";
        let row = self.connection().query_row(sql, [since], |row| {
            Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get(1)?))
        });
        row.map_err(during("count", "what was sent"))
    }

    /// Tells whether the repository has given a receipt for an archive file with these bytes.
    pub fn is_receipted(&self, file: &str, sha256: &str) -> Result<bool> {
        let sql = "SELECT 1 FROM deposit WHERE file = ?1 AND sha256 = ?2 AND state = 'receipted'";
        let row = self.connection().query_row(sql, [file, sha256], |_| Ok(()));
        Ok(row.optional().map_err(during("read", file))?.is_some())
    }
}

fn values(key: &DepositKey) -> [&str; 4] {
    [&key.job, &key.harvest, &key.file, &key.sha256]
}

/// Writes a file with all that is known of it, unless it is known already.
pub(crate) fn put_deposit(connection: &Connection, file: &DepositFile) -> rusqlite::Result<()> {
    let sql = format!(
        "INSERT OR IGNORE INTO deposit ({DEPOSIT}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)"
    );
    let values = params![
        file.key.job,
        file.key.harvest,
        file.key.file,
        file.key.sha256,
        file.package,
        file.channel,
        file.role,
        signed(file.bytes),
        file.state.word(),
        signed(file.tries),
        file.sent,
        file.receipted,
        file.identifier,
        file.receipt,
        file.said,
    ];
    connection.prepare_cached(&sql)?.execute(values).map(drop)
}

pub(crate) fn put_handed_over(
    connection: &Connection,
    package: &str,
    sha512: &str,
    at: Option<&str>,
) -> rusqlite::Result<()> {
    let sql = format!(
        "INSERT INTO handed_over (package, sha512, at) VALUES (?1, ?2, coalesce(?3, {NOW})) \
         ON CONFLICT (package) DO UPDATE SET sha512 = ?2, at = coalesce(?3, {NOW})"
    );
    connection
        .execute(&sql, params![package, sha512, at])
        .map(drop)
}

fn deposit(row: &Row<'_>) -> rusqlite::Result<DepositFile> {
    let number = |at: usize| row.get::<_, i64>(at).map(i64::unsigned_abs);
    Ok(DepositFile {
        key: DepositKey {
            job: row.get(0)?,
            harvest: row.get(1)?,
            file: row.get(2)?,
            sha256: row.get(3)?,
        },
        package: row.get(4)?,
        channel: row.get(5)?,
        role: row.get(6)?,
        bytes: number(7)?,
        state: DepositState::parse(&row.get::<_, String>(8)?),
        tries: number(9)?,
        sent: row.get(10)?,
        receipted: row.get(11)?,
        identifier: row.get(12)?,
        receipt: row.get(13)?,
        said: row.get(14)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> DepositFile {
        DepositFile {
            key: DepositKey {
                job: "17".into(),
                harvest: "4".into(),
                file: name.into(),
                sha256: "aa".into(),
            },
            package: "17-4".into(),
            channel: "ecluse".into(),
            role: "data".into(),
            bytes: 7,
            state: DepositState::Built,
            tries: 0,
            sent: None,
            receipted: None,
            identifier: None,
            receipt: None,
            said: None,
        }
    }

    #[test]
    fn a_file_goes_forward_and_its_first_receipt_counts() {
        let dir = tempfile::tempdir().unwrap();
        let mut manifest = Manifest::open(&dir.path().join("m.sqlite"), dir.path()).unwrap();
        let (one, two) = (file("one.warc"), file("two.warc"));
        manifest.to_deposit(&[one.clone(), two.clone()]).unwrap();
        assert_eq!(manifest.awaited_receipts().unwrap().files, 0);
        manifest.sending(&one.key).unwrap();
        manifest.deposit_said(&one.key, "busy").unwrap();
        // Begun again, it is not forgotten that it was sent.
        manifest.to_deposit(&[one.clone(), two.clone()]).unwrap();
        let known = manifest.deposit(&one.key).unwrap().unwrap();
        assert_eq!((known.state, known.tries), (DepositState::Sent, 1));
        assert_eq!(known.said.as_deref(), Some("busy"));
        let awaited = manifest.awaited_receipts().unwrap();
        assert_eq!((awaited.files, awaited.bytes), (1, 7));
        assert!(awaited.since.is_some());
        assert_eq!(manifest.sent_since("2000").unwrap().0, 1);

        let receipt = |manifest: &mut Manifest, file: &DepositFile, identifier| {
            let told = manifest.receipted(&file.key, Some(identifier), "{}");
            told.unwrap().map_err(|conflict| conflict.what)
        };
        assert!(!manifest.is_receipted("one.warc", "aa").unwrap());
        receipt(&mut manifest, &one, "ark:/1/a").unwrap();
        receipt(&mut manifest, &one, "ark:/1/a").unwrap();
        assert!(manifest.is_receipted("one.warc", "aa").unwrap());
        assert!(!manifest.is_receipted("one.warc", "bb").unwrap());
        let what = receipt(&mut manifest, &one, "ark:/1/b").unwrap_err();
        assert!(what.contains("and now another"), "{what}");
        let what = receipt(&mut manifest, &two, "ark:/1/a").unwrap_err();
        assert!(what.contains("which one.warc has"), "{what}");
        manifest.sending(&one.key).unwrap();
        let known = manifest.deposit(&one.key).unwrap().unwrap();
        assert_eq!(known.state, DepositState::Receipted, "it never goes back");
    }
}
