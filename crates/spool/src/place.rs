//! The one way in which a parcel gets to where it belongs: one rename, and one answer when the place is taken.
//!
//! What to do with that answer is the caller's: beside it, as the next attempt, where both are wanted
//! ([`WorkTree::place_beside`]); dropped where the content is the same; refused where a person is asked.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::{At, Result};
use crate::fs::is_taken;
use crate::tree::{StageDir, WorkTree};

/// What came of moving a parcel to its place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Placed {
    /// It lies there.
    There,
    /// Something of that very name lies there already, and the parcel where it was.
    Taken,
    /// The parcel is not where it was: somebody moved it before.
    Gone,
}

impl WorkTree {
    /// Moves a parcel to `slot`, in a directory of `stage`, in one step. The directories are made if they are not there: the
    /// stage may have never run here, or somebody may have taken them away.
    pub(crate) fn place(&self, parcel: &Path, stage: &StageDir, slot: &Path) -> Result<Placed> {
        let mut made = false;
        loop {
            match self.fs.rename(parcel, slot) {
                Ok(()) => return Ok(Placed::There),
                Err(e) if is_taken(&*self.fs, &e, slot) => return Ok(Placed::Taken),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    if !self.fs.is_there(parcel).at("look at", parcel)? {
                        return Ok(Placed::Gone);
                    }
                    // It is here and its place is not: taking that for gone would lose it.
                    if made {
                        return Err(e).at("move", parcel);
                    }
                    self.init(&stage.name)?;
                    made = true;
                }
                Err(e) => return Err(e).at("move", parcel),
            }
        }
    }

    /// Moves a parcel to `slot` or, where that is taken, beside it under the number of the next attempt, so that neither is
    /// lost. Returns where it lies; `None` when it is gone.
    pub(crate) fn place_beside(
        &self,
        parcel: &Path,
        stage: &StageDir,
        slot: &Path,
    ) -> Result<Option<PathBuf>> {
        let mut slot = slot.to_owned();
        loop {
            match self.place(parcel, stage, &slot)? {
                Placed::There => return Ok(Some(slot)),
                Placed::Taken => slot = next_attempt(&slot),
                Placed::Gone => return Ok(None),
            }
        }
    }
}

fn next_attempt(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let renamed = match name.rsplit_once('~') {
        Some((stem, attempts)) => {
            let attempts: u64 = attempts.parse().unwrap_or(0);
            format!("{stem}~{}", attempts + 1)
        }
        None => format!("{name}~1"),
    };
    path.with_file_name(renamed)
}
