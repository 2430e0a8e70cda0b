//! The tables, and their version.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use crate::error::{ManifestError, Result};
use crate::places::PlaceRoot;

/// Since version 2 places below the root are relative to it.
const VERSION: i64 = 2;

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
    ticket     TEXT,              -- the parcel of ingest that took it in
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
    ticket TEXT PRIMARY KEY,
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
    parts   INTEGER NOT NULL,
    ark     TEXT NOT NULL,
    package TEXT NOT NULL,        -- the name of its directory in archive.packages
    files   INTEGER NOT NULL,     -- archive files in it
    bytes   INTEGER NOT NULL,     -- of these
    sha512  TEXT NOT NULL,        -- of its tagmanifest-sha512.txt, which fixes all of it
    made    TEXT NOT NULL,
    PRIMARY KEY (job, harvest, part)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS file_metadata ON file (published, name) WHERE kind = 'metadata';
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
        if found == 0 {
            transaction.execute_batch(TABLES).map_err(at)?;
        }
        transaction.execute_batch(LATER).map_err(at)?;
        if found < VERSION {
            places.shorten_all(&transaction).map_err(at)?;
            transaction
                .pragma_update(None, "user_version", VERSION)
                .map_err(at)?;
        }
        transaction.commit().map_err(at)?;
    }
    check(connection, path)?;
    connection.execute_batch(LATER).map_err(at)
}

/// Refuses a database of a later version.
pub(crate) fn check(connection: &Connection, path: &Path) -> Result<()> {
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
    Ok(())
}

fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}
