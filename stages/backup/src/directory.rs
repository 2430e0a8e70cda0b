//! A directory, on another file system if it is to be worth something.

use std::io;
use std::path::Path;

use ecluse_holding::{CopyDirectory, CopyFault, PayloadSource, is_same_file};
use ecluse_stage::{Failure, Stage};

use crate::settings::Directory;
use crate::{Backup, BackupTask, Made};

/// A directory, and whether this worker has swept it.
pub(crate) struct Vault {
    settings: Directory,
    swept: bool,
}

impl Vault {
    pub(crate) fn new(settings: Directory) -> Self {
        Self {
            settings,
            swept: false,
        }
    }

    /// Copies the file here and reads it back, unless it is here already; then it is read.
    pub(crate) fn keep(&mut self, root: &Path, task: &BackupTask<'_>) -> Result<Made, Failure> {
        let kept = self.open(root).and_then(|copies| {
            let leave = self.settings.leave_free.bytes_of(copies.room()?.total);
            let mut open = || task.source.open().map_err(io::Error::other);
            copies.keep(task.name, task.wanted, leave, &mut open, task.going)?;
            Ok(copies.path().join(task.name))
        });
        let place = kept.map_err(|fault| blame(fault, task))?;
        if let PayloadSource::Stored(stored) = task.source
            && is_same_file(stored, &place)?
        {
            return Err(Failure::defer(format!(
                "{} is the stored copy itself, not a second one: a target and a location must be different directories",
                place.display()
            )));
        }
        let place = place
            .into_os_string()
            .into_string()
            .map_err(|path| Failure::config(format!("{path:?} is no UTF-8 path")))?;
        Ok(Made {
            place,
            how: "read back",
        })
    }

    fn open(&mut self, root: &Path) -> Result<CopyDirectory, CopyFault> {
        CopyDirectory::open_swept(root, &self.settings.path, Backup::NAME, &mut self.swept)
    }
}

fn blame(fault: CopyFault, task: &BackupTask<'_>) -> Failure {
    match &fault {
        CopyFault::Stopped => Failure::give_back(),
        CopyFault::Taken { .. } | CopyFault::Obstructed { .. } => Failure::hold(fault),
        // Opened again, it says itself who is at fault.
        CopyFault::Source(_) => match task.source.open() {
            Ok(_) => Failure::halt(fault),
            Err(failure) => failure,
        },
        // Either the source is not what ingest took, or the target does not keep what it is given.
        CopyFault::Differs { .. } => match task.source.verify(task.wanted, task.going) {
            Ok(()) => Failure::defer(fault),
            Err(failure) => failure,
        },
        _ => Failure::defer(fault),
    }
}
