//! What can go wrong with a frontier, with the file it went wrong in.

use std::io;
use std::path::{Path, PathBuf};

/// The result of a call on the frontier.
pub type Result<Value> = std::result::Result<Value, FrontierError>;

/// Why a call on the frontier failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrontierError {
    /// The machine refused; after a failed write the frontier must be opened again.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file it was tried on.
        path: PathBuf,
        /// What the machine said.
        source: io::Error,
    },
    /// A file does not say what was written into it.
    #[error("{} is damaged at offset {offset}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// It was written by another version of this program, whose records differ.
    #[error("the frontier in {} is of version {found}, not {known}", dir.display())]
    Version {
        /// Its directory.
        dir: PathBuf,
        /// Its version.
        found: u8,
        /// The one that can be read.
        known: u8,
    },
    /// Another process has this frontier open.
    #[error("{} is in use by another process", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// A write failed earlier: nothing more is written until the frontier is opened again.
    #[error("the frontier in {} is closed after a failed write", dir.display())]
    Dead {
        /// Its directory.
        dir: PathBuf,
    },
    /// The item was not handed out, or is finished already.
    #[error("item {item} is not in flight")]
    NotInFlight {
        /// The item's number.
        item: u64,
    },
    /// A field of a candidate is larger than the settings allow.
    #[error("{what} of {bytes} bytes is longer than {limit}")]
    TooLong {
        /// Which field.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The longest that is taken.
        limit: usize,
    },
    /// No queue of this name was ever added to.
    #[error("no queue {name:?}")]
    NoQueue {
        /// The name asked for.
        name: String,
    },
}

/// Names the file and the act in an error of the machine.
pub(crate) fn io_error(
    action: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> FrontierError {
    let path = path.to_owned();
    move |source| FrontierError::Io {
        action,
        path,
        source,
    }
}

pub(crate) fn damaged(path: &Path, offset: u64, what: &'static str) -> FrontierError {
    FrontierError::Damaged {
        path: path.to_owned(),
        offset,
        what,
    }
}
