//! What can be wrong with links and ranks.

use std::io;
use std::path::{Path, PathBuf};

use ecluse_generation::IndexError;

/// Why something could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinksError {
    /// The directory of generations is at fault.
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
    /// A line is not what it should be.
    #[error("line {line} of {}: {source}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        source: BadLinkLine,
    },
    /// A binary file is not what was written.
    #[error("{} is damaged: {what}", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadLinkLine(
    /// In words, with the column.
    pub &'static str,
);

impl LinksError {
    /// Names the step that failed and where.
    pub fn io(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            step,
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn damaged(path: &Path, line: u64) -> impl FnOnce(BadLinkLine) -> Self {
        move |source| Self::Damaged {
            path: path.to_owned(),
            line,
            source,
        }
    }
}
