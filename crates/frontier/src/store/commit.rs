//! A commit on its way to the disk.
//!
//! It holds everything that is to be written and synced, so that another thread can do it while the store changes on. Until
//! it is written the store is at the commit before, whatever happens.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::files;
use super::log::Frames;
use crate::error::{Result, io_error};

/// A commit that was begun and is not durable yet.
///
/// Commits are written in the order in which they were begun. When one fails, or is dropped unwritten, the frontier takes no
/// more changes: opened again, it is at the last one that was written.
#[must_use = "nothing is durable before it is written"]
pub struct PendingCommit {
    /// Runs that the log names, to be synced before it does.
    pub(super) runs: Vec<(PathBuf, File)>,
    /// What is added to the log; none once it is written.
    pub(super) frames: Option<Frames>,
    /// The directory in which names are new.
    pub(super) names: Option<PathBuf>,
    /// What nobody needs when all that is durable.
    pub(super) needless: Vec<PathBuf>,
    dead: Arc<AtomicBool>,
}

impl PendingCommit {
    pub(super) fn new(dead: &Arc<AtomicBool>) -> Self {
        Self {
            runs: Vec::new(),
            frames: None,
            names: None,
            needless: Vec::new(),
            dead: Arc::clone(dead),
        }
    }

    /// Writes it and makes it durable.
    ///
    /// # Errors
    /// When the machine refuses; the frontier must then be opened again.
    pub fn write(mut self) -> Result<()> {
        self.try_write()?;
        self.frames = None;
        Ok(())
    }

    fn try_write(&self) -> Result<()> {
        for (path, run) in &self.runs {
            run.sync_all().map_err(io_error("fsync", path))?;
        }
        if let Some(frames) = &self.frames {
            frames.write()?;
            frames.sync()?;
        }
        if let Some(dir) = &self.names {
            files::sync_dir(dir)?;
        }
        self.needless
            .iter()
            .try_for_each(|path| files::remove(path))
    }
}

impl Drop for PendingCommit {
    fn drop(&mut self) {
        if self.frames.is_some() {
            self.dead.store(true, Ordering::Relaxed);
        }
    }
}
