//! A package as an OCFL object in a storage root, beside the packages: the same files, linked where that can be.
//!
//! The bag is the content of version 1. What comes later, such as the receipts of a repository, is a version of its own: nothing of an
//! earlier one ever changes. Only this stage writes in a storage root.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use ecluse_ocfl::{NewVersion, ObjectFile, OcflError, StorageRoot, VersionNote, object_path};
use ecluse_stage::Failure;
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;

use crate::building::{PackageDirectory, SEAL};

/// Where the receipts of a repository are in an object.
const RECEIPTS: &str = "receipts/receipts.jsonl";

/// A package that becomes an object.
pub(crate) struct NewObject<'a> {
    /// Its identifier.
    pub(crate) id: &'a str,
    /// Where it lies.
    pub(crate) package: &'a Path,
    /// The SHA-512 of files in it that need not be read.
    pub(crate) known: BTreeMap<String, String>,
    pub(crate) note: VersionNote,
}

/// Writes an object; one of the same package that is there stays.
pub(crate) fn store(root: &Path, storage: &Path, object: &NewObject<'_>) -> Result<(), Failure> {
    let directory = PackageDirectory::open(root, storage)?;
    let storage = root.join(storage);
    let storage_root = StorageRoot::open(&storage).map_err(blame)?;
    let place = storage_root.place_of(object.id).map_err(blame)?;
    let seal = |package: &Path| fs::read(package.join(SEAL)).ok();
    let is_there = || seal(&place.join("v1/content")) == seal(object.package);
    let other = || {
        Failure::hold(format!(
            "there is another object {}: if it is not wanted, move it away and retry",
            place.display()
        ))
    };
    if place.exists() {
        return if is_there() { Ok(()) } else { Err(other()) };
    }
    let draft = directory.begin("object")?;
    let top = draft.fill_object(object.package)?;
    ecluse_ocfl::write_object(&top, object.id, &object.known, &object.note).map_err(blame)?;
    match rustix::fs::renameat_with(CWD, &top, CWD, &place, RenameFlags::NOREPLACE) {
        Ok(()) => {}
        Err(Errno::EXIST | Errno::NOTEMPTY) => {
            draft.discard()?;
            if !is_there() {
                return Err(other());
            }
        }
        Err(error) => {
            return Err(Failure::halt(format!(
                "cannot name {}: {error}",
                place.display()
            )));
        }
    }
    let above = place.parent().unwrap_or(&storage);
    Ok(fs::File::open(above)?.sync_all()?)
}

/// Adds the receipts of a repository to the object of a package, as its next version; none where there is no such object.
pub(crate) fn add_receipts(
    storage: &Path,
    id: &str,
    receipts: Vec<u8>,
    note: &VersionNote,
) -> Result<Option<NewVersion>, Failure> {
    let object = storage.join(object_path(id));
    if !object.is_dir() {
        return Ok(None);
    }
    let file = ObjectFile {
        path: RECEIPTS.to_owned(),
        bytes: receipts,
    };
    let added = ecluse_ocfl::add_files(&object, &[file], note);
    // An object that somebody changed is for a person to look at.
    added.map(Some).map_err(|error| match error {
        OcflError::Unfit { .. } => Failure::hold(error),
        error => Failure::halt(error),
    })
}

fn blame(error: OcflError) -> Failure {
    match error {
        OcflError::Unfit { .. } => Failure::config(format!("stage.package.ocfl: {error}")),
        error => Failure::halt(error),
    }
}
