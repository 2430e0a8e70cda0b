//! A directory: every file is copied, read back from the disk, and only then named.

use std::io;
use std::path::{Path, PathBuf};

use ecluse_holding::{CopyDirectory, CopyFault, open_plain};
use ecluse_manifest::Manifest;
use ecluse_stage::{Failure, Stage};

use crate::Deposit;
use crate::receiver::{Answer, DepositFault, DepositTask, Receipt};
use crate::settings::DirectorySettings;

pub(crate) struct DirectoryReceiver {
    settings: DirectorySettings,
    root: PathBuf,
    is_swept: bool,
    /// A package that was seen there.
    seen: Option<String>,
}

impl DirectoryReceiver {
    pub(crate) fn new(settings: DirectorySettings, root: PathBuf) -> Self {
        Self {
            settings,
            root,
            is_swept: false,
            seen: None,
        }
    }

    /// Defers while nothing is there of what it took before: a disk may not be mounted.
    pub(crate) fn must_be_mounted(&mut self, manifest: &Manifest) -> Result<(), Failure> {
        let path = self.root.join(&self.settings.path);
        let is_there = |package: &String| path.join(package).is_dir();
        if !self.seen.as_ref().is_some_and(is_there) {
            self.seen = package_in(&self.settings, &self.root, manifest).map_err(Failure::defer)?;
        }
        Ok(())
    }

    /// Reads the file if it is there.
    pub(crate) fn ask(&mut self, task: &DepositTask<'_>) -> Result<Answer, DepositFault> {
        let (folder, name) = place_of(task);
        let found = self.open().and_then(|top| match top.find_folder(&folder)? {
            Some(folder) => folder.read(name, task.going),
            None => Ok(None),
        });
        Ok(match found.map_err(blame)? {
            Some(found) => Answer::Receipt(self.receipt(found.sha256)),
            None => Answer::Absent,
        })
    }

    /// Copies it there.
    pub(crate) fn send(&mut self, task: &DepositTask<'_>) -> Result<Answer, DepositFault> {
        let (folder, name) = place_of(task);
        let mut open = || -> io::Result<Box<dyn io::Read>> { Ok(Box::new(open_plain(task.path)?)) };
        let kept = self.open().and_then(|top| {
            let leave = self.settings.leave_free.bytes_of(top.room()?.total);
            let folder = top.folder(&folder)?;
            folder.keep(name, &task.wanted, leave, &mut open, task.going)
        });
        kept.map_err(|fault| match fault {
            CopyFault::NoRoom { .. } => {
                let path = self.root.join(&self.settings.path);
                DepositFault::Closed(format!("{}: {fault}", path.display()))
            }
            fault => blame(fault),
        })?;
        Ok(Answer::Receipt(self.receipt(task.wanted.sha256.clone())))
    }

    fn receipt(&self, sha256: String) -> Receipt {
        let directory = self.settings.path.to_string_lossy();
        let text =
            serde_json::json!({ "sha256": sha256, "how": "read back", "directory": directory });
        Receipt {
            text: text.to_string(),
            sha256,
            identifier: None,
        }
    }

    fn open(&mut self) -> Result<CopyDirectory, CopyFault> {
        let path = &self.settings.path;
        CopyDirectory::open_swept(&self.root, path, Deposit::NAME, &mut self.is_swept)
    }
}

/// Returns a package that is in the directory still; `None` when it took nothing yet.
///
/// # Errors
/// When it took something, and nothing of that is there.
pub(crate) fn package_in(
    settings: &DirectorySettings,
    root: &Path,
    manifest: &Manifest,
) -> Result<Option<String>, String> {
    let taken = manifest.packages_taken_by(&settings.path.to_string_lossy());
    let taken = taken.map_err(|error| error.to_string())?;
    let path = root.join(&settings.path);
    let took_nothing = taken.is_empty();
    let there = taken
        .into_iter()
        .find(|package| path.join(package).is_dir());
    match there.is_some() || took_nothing {
        true => Ok(there),
        false => Err(format!(
            "{} holds nothing of what was handed over before; is it mounted?",
            path.display()
        )),
    }
}

/// The folder and the name of a file: as it lies in its package.
fn place_of<'a>(task: &DepositTask<'a>) -> (String, &'a str) {
    let (folder, name) = task.below.rsplit_once('/').unwrap_or(("", task.below));
    let package = &task.file.package;
    match folder {
        "" => (package.clone(), name),
        folder => (format!("{package}/{folder}"), name),
    }
}

fn blame(fault: CopyFault) -> DepositFault {
    match fault {
        CopyFault::Stopped => Failure::give_back().into(),
        CopyFault::Place { ref error, .. } if error.kind() == io::ErrorKind::StorageFull => {
            DepositFault::Closed(fault.to_string())
        }
        CopyFault::Taken { .. } | CopyFault::Obstructed { .. } => {
            DepositFault::Refused(fault.to_string())
        }
        CopyFault::Differs { .. } => Failure::hold(fault).into(),
        fault => DepositFault::Away(fault.to_string()),
    }
}
