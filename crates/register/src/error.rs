//! What can be wrong with a register.

use std::io;
use std::path::{Path, PathBuf};

use ecluse_generation::IndexError;

use crate::record::BadRecord;

/// Why something could not be done to a register.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The directory of its generations is at fault.
    #[error(transparent)]
    Generations(#[from] IndexError),
    /// The file system refused.
    #[error("cannot {step} {}: {source}", path.display())]
    Io {
        /// The step, as a verb.
        step: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A line is none of a register's.
    #[error("{} is damaged near offset {offset}: {source}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the line begins.
        offset: u64,
        /// What is wrong with it.
        source: BadRecord,
    },
    /// The file is not what was written.
    #[error("{} is not what was written: {bytes} bytes with checksum {found}, expected {expected}", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// The bytes found.
        bytes: u64,
        /// Their checksum.
        found: String,
        /// What was written of it.
        expected: String,
    },
    /// A change has no larger key than the change before it.
    #[error("the changes are not in order: {key} comes after {before}")]
    Unsorted {
        /// The key before.
        before: String,
        /// The key that is not above it.
        key: String,
    },
    /// Whoever gives the changes could not go on.
    #[error("cannot read the changes: {0}")]
    Changes(io::Error),
    /// Another is making the next generation.
    #[error("another is at work on {}", .0.display())]
    Busy(PathBuf),
    /// The one who asked for it no longer wants it.
    #[error("asked to stop")]
    Stopped,
}

impl RegisterError {
    pub(crate) fn io(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            step,
            path: path.to_owned(),
            source,
        }
    }
}
