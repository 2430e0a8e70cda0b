//! What can go wrong in a spool, with the evidence.

use std::io;
use std::path::{Path, PathBuf};

use crate::name::ParcelId;

/// Why a step of the protocol did not happen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpoolError {
    /// The file system refused.
    #[error("cannot {step} {path}: {source}")]
    Io {
        /// The step, as a verb.
        step: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The worker was taken for dead and its directory is another's now: it must stop.
    #[error("worker {worker} was taken for dead and fenced off")]
    Fenced {
        /// The worker.
        worker: String,
    },
    /// The parcel cannot be read as one.
    #[error("parcel {parcel} is damaged: {reason}")]
    Damaged {
        /// The parcel.
        parcel: ParcelId,
        /// What is wrong with it.
        reason: String,
    },
    /// A parcel of that name waits already.
    #[error("{parcel} waits in stage {stage} already")]
    Waits {
        /// The parcel.
        parcel: ParcelId,
        /// Where it waits.
        stage: String,
    },
    /// The machine has no room for it now: it waits.
    #[error("{0}")]
    NoRoom(String),
    /// A stage asked for something the spool refuses.
    #[error("{0}")]
    Refused(String),
}

/// The result of a step.
pub type Result<Value> = std::result::Result<Value, SpoolError>;

/// Names the step and the place an I/O error happened at.
pub(crate) trait At<Value> {
    fn at(self, step: &'static str, path: &Path) -> Result<Value>;
}

impl<Value> At<Value> for io::Result<Value> {
    fn at(self, step: &'static str, path: &Path) -> Result<Value> {
        self.map_err(|source| SpoolError::Io {
            step,
            path: path.to_owned(),
            source,
        })
    }
}
