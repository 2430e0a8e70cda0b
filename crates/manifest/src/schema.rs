//! The tables, and their version.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use crate::error::{ManifestError, Result};
use crate::places::PlaceRoot;

/// Since version 2 places below the root are relative to it; since version 3 a parcel is called so.
const VERSION: i64 = 3;

const TABLES: &str = "
CREATE TABLE file (
    name       TEXT PRIMARY KEY,  -- of the archive file
    bytes      INTEGER,
    sha256     TEXT,              -- taken at ingest
    kind       TEXT,              -- warc or metadata
    job        TEXT,
    harvest    TEXT,
    collection TEXT,              -- its own index, when it has one
    source     TEXT,              -- where it was found
    parcel     TEXT,              -- the parcel of ingest that took it in
    state      TEXT NOT NULL,     -- ingested indexed stored backed-up deleted published cleaned
    captures   INTEGER,           -- index lines
    damages    INTEGER,           -- places that could not be read
    generation INTEGER,           -- of the index that first held it
    ingested   TEXT, indexed TEXT, stored TEXT, backed_up TEXT, deleted TEXT, published TEXT, cleaned TEXT
) WITHOUT ROWID;
CREATE INDEX file_by_state ON file (state, name);
CREATE INDEX file_by_job ON file (job, harvest);
CREATE INDEX file_by_digest ON file (sha256);
CREATE TABLE copy (
    file    TEXT NOT NULL REFERENCES file (name),
    kind    TEXT NOT NULL,        -- stored or backup
    target  TEXT NOT NULL,        -- the location's or the backup's name in pipeline.toml
    place   TEXT NOT NULL,        -- path, object or what the command said
    bytes   INTEGER NOT NULL,
    sha256  TEXT NOT NULL,        -- of the bytes read back
    proof   TEXT,                 -- JSON, of a backup
    made    TEXT NOT NULL,
    checked TEXT,                 -- last read again by ecluse verify
    found   TEXT,                 -- what that gave: good, or what was wrong
    PRIMARY KEY (file, kind, target)
) WITHOUT ROWID;
CREATE INDEX copy_by_check ON copy (checked, made);
CREATE TABLE skipped (
    parcel TEXT PRIMARY KEY,
    file   TEXT NOT NULL,
    source TEXT NOT NULL,
    at     TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE frozen (
    one   INTEGER PRIMARY KEY CHECK (one = 1),
    why   TEXT NOT NULL,
    since TEXT NOT NULL
);
";

/// What the first manifests had not. Where it is there, nothing is written.
const LATER: &str = "
CREATE INDEX IF NOT EXISTS skipped_by_file ON skipped (file, source);
CREATE INDEX IF NOT EXISTS file_by_damage ON file (name) WHERE damages > 0;
CREATE INDEX IF NOT EXISTS copy_failing ON copy (file) WHERE found <> 'good';
CREATE TABLE IF NOT EXISTS damage (
    file   TEXT NOT NULL,         -- a damaged file has up to 20 rows; file.damages counts all
    record INTEGER NOT NULL,      -- from 1
    offset INTEGER NOT NULL,      -- in the file
    reason TEXT NOT NULL,
    PRIMARY KEY (file, record, offset, reason)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS harvested (
    path    TEXT PRIMARY KEY,     -- of a file that clean found in a harvested directory
    bytes   INTEGER NOT NULL,
    stamp   TEXT NOT NULL,        -- device, inode, size and times when it was looked at
    finding TEXT NOT NULL,        -- removable, new or unaccounted
    why     TEXT NOT NULL,
    since   TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS digest (
    file   TEXT PRIMARY KEY,
    sha256 TEXT NOT NULL,         -- of the same bytes: of others this row says nothing
    sha512 TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS package (
    job     TEXT NOT NULL,
    harvest TEXT NOT NULL,        -- empty for none
    part    INTEGER NOT NULL,     -- from 1
    parts   INTEGER NOT NULL,     -- made together
    supplement INTEGER NOT NULL DEFAULT 0,  -- from 1; 0 for the package itself
    ark     TEXT NOT NULL,
    package TEXT NOT NULL,        -- the name of its directory in archive.packages
    files   INTEGER NOT NULL,     -- archive files in it
    bytes   INTEGER NOT NULL,     -- of these
    sha512  TEXT NOT NULL,        -- of its tagmanifest-sha512.txt, which fixes all of it
    made    TEXT NOT NULL,
    PRIMARY KEY (job, harvest, part)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS file_metadata ON file (published, name) WHERE kind = 'metadata';
CREATE INDEX IF NOT EXISTS file_by_publishing ON file (published);
CREATE TABLE IF NOT EXISTS package_file (
    file    TEXT NOT NULL,        -- an archive file
    package TEXT NOT NULL,        -- a package that has it
    PRIMARY KEY (file, package)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS package_file_by_package ON package_file (package);
CREATE TABLE IF NOT EXISTS package_check (
    package TEXT PRIMARY KEY,
    checked TEXT NOT NULL,        -- last read again by ecluse verify
    found   TEXT NOT NULL         -- what that gave: good, or what was wrong
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS file_history (
    file    TEXT PRIMARY KEY,     -- an archive file that came back from a package: its receipts are lost
    history TEXT NOT NULL         -- JSON, what they told, as the package has it
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS package_closing (
    package TEXT PRIMARY KEY,     -- a package that came back, of a job that was closed by hand
    closing TEXT NOT NULL         -- JSON: by whom, why and when, as the package has it
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS deposit (
    job        TEXT NOT NULL,
    harvest    TEXT NOT NULL,     -- empty for none
    file       TEXT NOT NULL,     -- the name of an archive file, or PACKAGE/PATH
    sha256     TEXT NOT NULL,
    package    TEXT NOT NULL,
    channel    TEXT NOT NULL,
    role       TEXT NOT NULL,     -- metadata document data tag
    bytes      INTEGER NOT NULL,
    state      TEXT NOT NULL,     -- built sent receipted
    tries      INTEGER NOT NULL,
    sent       TEXT,              -- last
    receipted  TEXT,
    identifier TEXT,              -- the repository's
    receipt    TEXT,              -- word for word
    said       TEXT,              -- the repository's last words that were no receipt
    PRIMARY KEY (job, harvest, file, sha256)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS deposit_by_file ON deposit (file, sha256);
CREATE INDEX IF NOT EXISTS deposit_by_identifier ON deposit (identifier) WHERE identifier IS NOT NULL;
CREATE INDEX IF NOT EXISTS deposit_by_sending ON deposit (sent);
CREATE INDEX IF NOT EXISTS deposit_awaited ON deposit (sent) WHERE state = 'sent';
CREATE TABLE IF NOT EXISTS handed_over (
    package TEXT PRIMARY KEY,
    sha512  TEXT NOT NULL,        -- of the package that was handed over
    at      TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS handed_over_by_time ON handed_over (at);
";

/// What had another name before version 3.
const RENAMED: &str = "
ALTER TABLE file RENAME COLUMN ticket TO parcel;
ALTER TABLE skipped RENAME COLUMN ticket TO parcel;
";

/// Makes the tables in an empty database, and brings one of an earlier version up to this one; refuses one of a later version.
pub(crate) fn prepare(connection: &mut Connection, path: &Path, places: &PlaceRoot) -> Result<()> {
    let at = |source| ManifestError::Open {
        path: path.to_owned(),
        source,
    };
    if version(connection).map_err(at)? < VERSION {
        // Two programs may start at once: the second finds the tables made.
        let transaction = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(at)?;
        let found = version(&transaction).map_err(at)?;
        match found {
            0 => transaction.execute_batch(TABLES).map_err(at)?,
            1 | 2 => transaction.execute_batch(RENAMED).map_err(at)?,
            _ => {}
        }
        transaction.execute_batch(LATER).map_err(at)?;
        if found < 2 {
            places.shorten_all(&transaction).map_err(at)?;
        }
        transaction
            .pragma_update(None, "user_version", VERSION.max(found))
            .map_err(at)?;
        transaction.commit().map_err(at)?;
    }
    is_earlier(connection, path)?;
    connection.execute_batch(LATER).map_err(at)?;
    add_supplement(connection).map_err(at)
}

/// The first packages had no supplements.
fn add_supplement(connection: &Connection) -> rusqlite::Result<()> {
    let sql = "SELECT count(*) FROM pragma_table_info('package') WHERE name = 'supplement'";
    let has: i64 = connection.query_row(sql, [], |row| row.get(0))?;
    if has > 0 {
        return Ok(());
    }
    let sql = "ALTER TABLE package ADD COLUMN supplement INTEGER NOT NULL DEFAULT 0";
    match connection.execute_batch(sql) {
        // Another program was faster.
        Err(error) if error.to_string().contains("duplicate column") => Ok(()),
        done => done,
    }
}

/// Tells whether a database is of an earlier version; refuses one of a later version.
pub(crate) fn is_earlier(connection: &Connection, path: &Path) -> Result<bool> {
    let found = version(connection).map_err(|source| ManifestError::Open {
        path: path.to_owned(),
        source,
    })?;
    if found > VERSION {
        return Err(ManifestError::Version {
            path: path.to_owned(),
            found,
            known: VERSION,
        });
    }
    Ok(found < VERSION)
}

/// Tells whether a database of this version lacks what was added to it since.
pub(crate) fn is_short(connection: &Connection) -> bool {
    let sql = "SELECT count(*) FROM sqlite_master WHERE name = 'file_history'";
    let count = connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    count.is_ok_and(|count| count == 0)
}

fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}
