//! Where a generation is computed: a directory that outlives a kill, beside the generations it will be one of.

#![expect(
    clippy::disallowed_methods,
    reason = "what is linked or removed here is the workspace's own, and nobody else knows it"
)]

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::RankError;

/// The directory.
pub(crate) struct Workspace {
    path: PathBuf,
}

impl Workspace {
    /// Opens the workspace of a piece of work, and removes those of all others.
    pub(crate) fn open(links: &Path, work: &str) -> Result<Self, RankError> {
        let parent = links.join("work");
        fs::create_dir_all(&parent).map_err(RankError::io("make", &parent))?;
        let failed = |error| RankError::io("read", &parent)(error);
        for entry in fs::read_dir(&parent).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_name() != work {
                remove(&entry.path())?;
            }
        }
        let path = parent.join(work);
        fs::create_dir_all(&path).map_err(RankError::io("make", &path))?;
        Ok(Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Brings a file into a generation; it stays here too, for the case that the generation is never shown.
    pub(crate) fn bring(&self, name: &str, generation: &Path) -> Result<(), RankError> {
        let (from, to) = (self.file(name), generation.join(name));
        if fs::hard_link(&from, &to).is_err() {
            fs::copy(&from, &to).map_err(RankError::io("copy", &from))?;
        }
        let file = File::open(&to).map_err(RankError::io("open", &to))?;
        file.sync_all().map_err(RankError::io("sync", &to))
    }

    /// Removes all of it.
    pub(crate) fn clear(self) -> Result<(), RankError> {
        remove(&self.path)
    }
}

fn remove(path: &Path) -> Result<(), RankError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(RankError::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}
