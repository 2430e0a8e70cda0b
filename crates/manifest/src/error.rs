//! What can go wrong with the database: the machine's fault, always.

use std::path::PathBuf;

/// Why the manifest did not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// It cannot be opened.
    #[error("cannot open the manifest {}: {source}", path.display())]
    Open {
        /// The database.
        path: PathBuf,
        /// Why.
        source: rusqlite::Error,
    },
    /// It was there once and is not any more.
    #[error(
        "the manifest {} is not there any more: put it back, or make it again with `ecluse rebuild manifest` in this archive (where it shall begin anew, remove {})",
        path.display(), mark.display()
    )]
    Lost {
        /// The database.
        path: PathBuf,
        /// What tells that there was one.
        mark: PathBuf,
    },
    /// Another host writes it, on a file system where two must not.
    #[error(
        "the manifest {} (archive.manifest) is written by the host {host}, and two hosts may not write it: run ingest, and transfer and all stages after it, on one host; crawl and index may run anywhere; see docs/file-systems.md",
        path.display()
    )]
    OtherHost {
        /// The database.
        path: PathBuf,
        /// The host that writes it.
        host: String,
    },
    /// It was made by a later version.
    #[error("the manifest {} has version {found}; this program reads version {known}", path.display())]
    Version {
        /// The database.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The version this program writes.
        known: i64,
    },
    /// Its file cannot be moved or synced.
    #[error("cannot {step} the manifest {}: {error}", path.display())]
    File {
        /// What was tried.
        step: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A read or write failed.
    #[error("cannot {step} {name} in the manifest: {source}")]
    Step {
        /// What was tried.
        step: &'static str,
        /// With what.
        name: String,
        /// Why.
        source: rusqlite::Error,
    },
}

/// What calls of the manifest return.
pub type Result<T> = std::result::Result<T, ManifestError>;
