//! Why ranks could not be made.

use std::io;
use std::path::{Path, PathBuf};

use ecluse_cdx::MergeError;
use ecluse_generation::IndexError;
use ecluse_links::LinksError;
use ecluse_stage::Failure;

/// Why ranks could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RankError {
    /// A list, a slice or a generation is at fault.
    #[error(transparent)]
    Links(#[from] LinksError),
    /// The directory of generations is at fault.
    #[error(transparent)]
    Generations(#[from] IndexError),
    /// Lines could not be merged or sorted.
    #[error(transparent)]
    Merge(#[from] MergeError),
    /// What is known of changes cannot be read.
    #[error(transparent)]
    Changes(#[from] ecluse_changes::ChangesError),
    /// The register cannot be read.
    #[error(transparent)]
    Register(#[from] ecluse_register::RegisterError),
    /// The file of countries cannot be read.
    #[error("{0}")]
    Countries(String),
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
    /// A parcel is at fault, or cannot be opened.
    #[error("a parcel cannot be read")]
    Parcel(Box<Failure>),
    /// Interest leads somewhere, and there is nowhere to lead to.
    #[error("no URL is a target: interest is not defined")]
    NoTarget,
    /// There are more URLs than numbers.
    #[error("more than 4,293,918,720 URLs")]
    TooMany,
    /// Another is making a generation.
    #[error("another is at work on the ranks")]
    Busy,
    /// Asked to stop.
    #[error("asked to stop")]
    Stopped,
}

impl RankError {
    pub(crate) fn io(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            step,
            path: path.to_owned(),
            source,
        }
    }
}
