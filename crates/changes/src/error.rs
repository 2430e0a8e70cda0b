//! What can be wrong with a file of changes.

use std::io;
use std::path::{Path, PathBuf};

/// What is wrong with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its {column} is none")]
pub struct BadLine {
    /// The first column that cannot be read.
    pub column: &'static str,
}

/// Why a file of changes could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangesError {
    /// The file system refused, or what is packed is damaged.
    #[error("cannot {step} {}: {source}", path.display())]
    Io {
        /// The step, as a verb.
        step: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file begins with something else.
    #[error("{} is no such file: its first line is not {expected:?}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What it should begin with.
        expected: &'static str,
    },
    /// A line is none.
    #[error("{} is damaged at line {line}: {source}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, from 1; after a search, counted from where it began.
        line: u64,
        /// What is wrong with it.
        source: BadLine,
    },
    /// A line is not above the one before it.
    #[error("{} is not in order at line {line}: {key} comes after {before}", path.display())]
    Unsorted {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The key before.
        before: String,
        /// The key that is below it.
        key: String,
    },
}

impl ChangesError {
    pub(crate) fn io(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            step,
            path: path.to_owned(),
            source,
        }
    }
}
