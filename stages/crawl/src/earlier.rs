//! What was captured before, in this job and in earlier ones: by payload, and by URL.
//!
//! Within the job it stands in the frontier's notes, so that it is as old or as new as everything else there: a capture
//! that was cut off after a kill is never referred to. When a job is finished its notes go into a database that all jobs
//! of the archive share; until then no other job sees them.

use std::path::Path;

use ecluse_frontier::{Frontier, NoteKind};
use ecluse_http::Sha1Digest;
use rusqlite::{Connection, OptionalExtension, params};

use crate::notes;
use crate::records::RecordUuid;

/// The first capture of a payload: what a revisit refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Original {
    /// Its URL.
    pub(crate) url: String,
    /// Its date, in seconds since 1970, as its record has it.
    pub(crate) seconds: u64,
    /// The identifier of its record. One that was noted by an earlier version has none.
    pub(crate) id: Option<RecordUuid>,
}

/// The payload of a capture: the digest that its record states, and the one by which it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PayloadDigests {
    pub(crate) sha1: Sha1Digest,
    pub(crate) sha256: [u8; 32],
}

/// What is known of a payload when it comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KnownPayload {
    /// Nothing.
    New,
    /// It was captured before.
    Same(Original),
    /// Another one with the same SHA-1 was. Replay finds an original by its SHA-1, so this one is never referred to.
    Collides,
}

impl KnownPayload {
    /// Returns what a revisit refers to.
    pub(crate) fn original(&self) -> Option<&Original> {
        match self {
            Self::Same(original) => Some(original),
            Self::New | Self::Collides => None,
        }
    }
}

impl PayloadDigests {
    /// Returns what is noted of its first capture, under its SHA-1.
    pub(crate) fn note(&self, first: &Original) -> Vec<u8> {
        let mut bytes = self.sha256.to_vec();
        bytes.extend_from_slice(&first.encode());
        bytes
    }

    /// Compares it with what is noted under its SHA-1.
    pub(crate) fn compare(&self, noted: &[u8]) -> KnownPayload {
        let first = noted.split_first_chunk::<32>();
        let Some((sha256, first)) = first else {
            return KnownPayload::New;
        };
        match Original::decode(first) {
            Some(first) if *sha256 == self.sha256 => KnownPayload::Same(first),
            _ => KnownPayload::Collides,
        }
    }
}

/// The last capture of a URL that nothing was linked from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LastCapture {
    /// The capture whose payload it was.
    pub(crate) original: Original,
    pub(crate) digest: Sha1Digest,
    pub(crate) etag: Vec<u8>,
    pub(crate) last_modified: Vec<u8>,
}

impl Original {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.seconds.to_be_bytes().to_vec();
        if let Some(id) = self.id {
            // No URL begins with a zero.
            bytes.push(0);
            bytes.extend_from_slice(&id.0);
        }
        bytes.extend_from_slice(self.url.as_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (seconds, rest) = bytes.split_first_chunk::<8>()?;
        let (id, url) = match rest.split_first() {
            Some((0, rest)) => {
                let (id, url) = rest.split_first_chunk::<16>()?;
                (Some(RecordUuid(*id)), url)
            }
            _ => (None, rest),
        };
        Some(Self {
            url: std::str::from_utf8(url).ok()?.to_owned(),
            seconds: u64::from_be_bytes(*seconds),
            id,
        })
    }
}

impl LastCapture {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.digest.bytes().to_vec();
        for value in [&self.etag, &self.last_modified] {
            let length = u16::try_from(value.len()).unwrap_or(0);
            bytes.extend_from_slice(&length.to_be_bytes());
            bytes.extend_from_slice(&value[..usize::from(length)]);
        }
        bytes.extend_from_slice(&self.original.encode());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (digest, mut rest) = bytes.split_first_chunk::<20>()?;
        let mut value = || {
            let (length, behind) = rest.split_first_chunk::<2>()?;
            let (value, behind) = behind.split_at_checked(u16::from_be_bytes(*length).into())?;
            rest = behind;
            Some(value.to_vec())
        };
        let (etag, last_modified) = (value()?, value()?);
        Some(Self {
            digest: Sha1Digest::from_bytes(*digest),
            etag,
            last_modified,
            original: Original::decode(rest)?,
        })
    }
}

/// The database of earlier jobs.
pub(crate) struct Earlier {
    database: Option<Connection>,
}

/// `payload` is of a version that knew payloads by their SHA-1 alone.
const SCHEMA: &str = "
    DROP TABLE IF EXISTS payload;
    CREATE TABLE IF NOT EXISTS first_capture (sha1 BLOB PRIMARY KEY, noted BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS capture (url BLOB PRIMARY KEY, last BLOB NOT NULL) WITHOUT ROWID;
";

/// Rows of one transaction when a job's notes are added.
const ROWS: usize = 10_000;

impl Earlier {
    /// Opens the database if there is one: the first job of an archive has nothing to look up.
    pub(crate) fn open(path: &Path) -> rusqlite::Result<Self> {
        if !path.is_file() {
            return Ok(Self { database: None });
        }
        Ok(Self {
            database: Some(connect(path)?),
        })
    }

    /// Returns what is known of a payload.
    pub(crate) fn payload(&self, digests: &PayloadDigests) -> rusqlite::Result<KnownPayload> {
        let query = "SELECT noted FROM first_capture WHERE sha1 = ?1";
        let found = self.blob(query, digests.sha1.bytes())?;
        Ok(found.map_or(KnownPayload::New, |noted| digests.compare(&noted)))
    }

    /// Returns the last capture of a URL, if asking for a change can make sense.
    pub(crate) fn last(&self, url_key: &[u8]) -> rusqlite::Result<Option<LastCapture>> {
        let found = self.blob("SELECT last FROM capture WHERE url = ?1", url_key)?;
        Ok(found.as_deref().and_then(LastCapture::decode))
    }

    fn blob(&self, query: &str, key: &[u8]) -> rusqlite::Result<Option<Vec<u8>>> {
        let Some(database) = &self.database else {
            return Ok(None);
        };
        let mut query = database.prepare_cached(query)?;
        query.query_row([key], |row| row.get(0)).optional()
    }

    /// Adds what a finished job captured. Doing it again changes nothing.
    pub(crate) fn add_job(
        path: &Path,
        frontier: &mut Frontier,
        going: &mut dyn FnMut(),
    ) -> Result<(), String> {
        let database = connect(path).map_err(|error| shown(path, &error))?;
        // The first capture of a payload stays what others refer to; the last one of a URL is the newest.
        let payloads = "INSERT OR IGNORE INTO first_capture VALUES (?1, ?2)";
        let captures = "INSERT OR REPLACE INTO capture VALUES (?1, ?2)";
        for (kind, insert) in [(notes::PAYLOAD, payloads), (notes::CAPTURE, captures)] {
            copy(&database, insert, frontier, kind, going).map_err(|error| match error {
                CopyError::Database(error) => shown(path, &error),
                CopyError::Frontier(error) => error.to_string(),
            })?;
        }
        Ok(())
    }
}

enum CopyError {
    Database(rusqlite::Error),
    Frontier(ecluse_frontier::FrontierError),
}

/// Copies the notes of a kind in the order of their keys: neighbours in the database are written together.
fn copy(
    database: &Connection,
    insert: &str,
    frontier: &mut Frontier,
    kind: NoteKind,
    going: &mut dyn FnMut(),
) -> Result<(), CopyError> {
    let mut failed = None;
    let mut rows = 0;
    let mut one = |key: &[u8], value: &[u8]| -> rusqlite::Result<()> {
        if rows == 0 {
            database.execute_batch("BEGIN IMMEDIATE")?;
        }
        database
            .prepare_cached(insert)?
            .execute(params![key, value])?;
        rows += 1;
        if rows == ROWS {
            rows = 0;
            going();
            database.execute_batch("COMMIT")?;
        }
        Ok(())
    };
    let walked = frontier.notes(kind, |key, value| match one(key, value) {
        Ok(()) => true,
        Err(error) => {
            failed = Some(error);
            false
        }
    });
    if let Some(error) = failed {
        return Err(CopyError::Database(error));
    }
    walked.map_err(CopyError::Frontier)?;
    if rows > 0 {
        let commit = database.execute_batch("COMMIT");
        commit.map_err(CopyError::Database)?;
    }
    Ok(())
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let database = Connection::open(path)?;
    database.busy_timeout(std::time::Duration::from_secs(60))?;
    database.pragma_update(None, "journal_mode", "wal")?;
    database.pragma_update(None, "synchronous", "normal")?;
    // Also for who only looks: a job that was killed in time leaves a database without tables.
    database.execute_batch(SCHEMA)?;
    database.set_prepared_statement_cache_capacity(8);
    Ok(database)
}

fn shown(path: &Path, error: &rusqlite::Error) -> String {
    format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use sha2::Digest;

    use super::*;

    fn original(url: &str) -> Original {
        Original {
            url: url.to_owned(),
            seconds: 1_700_000_000,
            id: Some(RecordUuid([7; 16])),
        }
    }

    fn digests(text: &[u8]) -> PayloadDigests {
        PayloadDigests {
            sha1: Sha1Digest::of(text),
            sha256: sha2::Sha256::digest(text).into(),
        }
    }

    #[test]
    fn notes_read_back() {
        let first = original("http://lock.example/");
        assert_eq!(Original::decode(&first.encode()), Some(first.clone()));
        let nameless = Original {
            id: None,
            ..first.clone()
        };
        assert_eq!(Original::decode(&nameless.encode()), Some(nameless));
        let last = LastCapture {
            original: first,
            digest: Sha1Digest::of(b"x"),
            etag: b"\"1\"".to_vec(),
            last_modified: Vec::new(),
        };
        let bytes = last.encode();
        assert_eq!(LastCapture::decode(&bytes), Some(last));
        for cut in 0..24 {
            assert_eq!(LastCapture::decode(&bytes[..cut]), None);
        }
    }

    #[test]
    fn a_database_that_was_only_begun_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("earlier.sqlite");
        std::fs::write(&path, b"").unwrap();
        let earlier = Earlier::open(&path).unwrap();
        let known = earlier.payload(&digests(b"page")).unwrap();
        assert_eq!(known, KnownPayload::New);
        assert_eq!(earlier.last(b"0123456789abcdef").unwrap(), None);
    }

    #[test]
    fn a_finished_job_is_seen_by_the_next_and_the_first_original_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("earlier.sqlite");
        assert!(Earlier::open(&path).unwrap().database.is_none());
        let page = digests(b"page");
        for job in ["one", "two"] {
            let settings = ecluse_frontier::Settings::default();
            let mut frontier = Frontier::open(&dir.path().join(job), settings).unwrap();
            let value = page.note(&original(&format!("http://{job}.example/")));
            frontier
                .note(notes::PAYLOAD, page.sha1.bytes(), &value)
                .unwrap();
            for _ in 0..2 {
                Earlier::add_job(&path, &mut frontier, &mut || {}).unwrap();
            }
        }
        let earlier = Earlier::open(&path).unwrap();
        let found = earlier.payload(&page).unwrap();
        assert_eq!(found, KnownPayload::Same(original("http://one.example/")));
        let known = earlier.payload(&digests(b"other")).unwrap();
        assert_eq!(known, KnownPayload::New);
        // Another text can be made with the same SHA-1; its bytes stand nowhere yet.
        let twin = PayloadDigests {
            sha256: [7; 32],
            ..page
        };
        assert_eq!(earlier.payload(&twin).unwrap(), KnownPayload::Collides);
        assert_eq!(earlier.last(b"0123456789abcdef").unwrap(), None);
    }

    #[test]
    fn what_an_older_version_knew_by_sha1_alone_counts_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("earlier.sqlite");
        let old =
            "CREATE TABLE payload (digest BLOB PRIMARY KEY, original BLOB NOT NULL) WITHOUT ROWID";
        let database = Connection::open(&path).unwrap();
        database.execute_batch(old).unwrap();
        let page = digests(b"page");
        let first = original("http://one.example/").encode();
        database
            .execute(
                "INSERT INTO payload VALUES (?1, ?2)",
                params![page.sha1.bytes(), first],
            )
            .unwrap();
        drop(database);
        let earlier = Earlier::open(&path).unwrap();
        assert_eq!(earlier.payload(&page).unwrap(), KnownPayload::New);
    }
}
