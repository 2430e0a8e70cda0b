//! A list in the sources' directory, as it was found: the small parcel that stands for it.

use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ecluse_stage::{ParcelId, digest};
use serde::{Deserialize, Serialize};

use crate::source::{SourceList, parts};

/// The file of its parcel.
pub(crate) const SOURCE_FILE: &str = "list.json";
/// The kind of its parcel.
pub(crate) const KIND: &str = "source-list";

/// How a file looks: what tells one state of it from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct ListLook {
    pub(crate) bytes: u64,
    pub(crate) inode: u64,
    pub(crate) seconds: i64,
    pub(crate) nanoseconds: i64,
}

impl ListLook {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            bytes: metadata.len(),
            inode: metadata.ino(),
            seconds: metadata.mtime(),
            nanoseconds: metadata.mtime_nsec(),
        }
    }
}

/// A list and how it was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct SourceFile {
    /// The path; empty when it is no text.
    pub(crate) path: String,
    /// The path with unusual bytes escaped, for people.
    pub(crate) shown: String,
    pub(crate) look: ListLook,
    /// What its name, directory and sidecar said.
    list: Option<SourceList>,
    /// Why it cannot be read.
    problem: Option<String>,
}

impl SourceFile {
    pub(crate) fn of(path: &Path, look: ListLook, sidecar: Result<Option<String>, String>) -> Self {
        let (directory, file) = parts(path);
        let list =
            sidecar.and_then(|sidecar| SourceList::of(&file, &directory, sidecar.as_deref()));
        let list = list.and_then(|list| match path.to_str() {
            Some(_) => Ok(list),
            None => Err("its name is no UTF-8".to_owned()),
        });
        let shown = path.as_os_str().as_bytes().escape_ascii().to_string();
        let problem = list
            .as_ref()
            .err()
            .map(|problem| format!("{shown}: {problem}"));
        Self {
            path: path.to_str().unwrap_or_default().to_owned(),
            shown,
            look,
            list: list.ok(),
            problem,
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| format!("{SOURCE_FILE}: {error}"))
    }

    /// Returns what the list is, or why it cannot be read.
    pub(crate) fn list(&self) -> Result<&SourceList, String> {
        let problem = || {
            self.problem
                .clone()
                .unwrap_or_else(|| format!("{SOURCE_FILE} says nothing"))
        };
        self.list.as_ref().ok_or_else(problem)
    }

    /// Returns the name of the file.
    pub(crate) fn name(&self) -> String {
        parts(Path::new(&self.path)).1
    }

    /// Tells whether the file is as it was found.
    ///
    /// # Errors
    /// When it is gone, or cannot be looked at.
    pub(crate) fn is_current(&self) -> Result<bool, ecluse_stage::Failure> {
        match Path::new(&self.path).metadata() {
            Ok(metadata) => Ok(ListLook::of(&metadata) == self.look),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(
                ecluse_stage::Failure::hold(format!("{} is gone", self.shown)),
            ),
            Err(error) => Err(ecluse_stage::Failure::defer(format!(
                "cannot look at {}: {error}",
                self.shown
            ))),
        }
    }

    /// Returns its parcel's name and the bytes of that parcel's file: the same for the same state of the same file and sidecar.
    pub(crate) fn parcel(&self) -> (ParcelId, Vec<u8>) {
        let mut bytes = serde_json::to_vec(self).expect("it holds only strings and numbers");
        bytes.push(b'\n');
        let name = self.name();
        (ParcelId::for_file(name.as_ref(), &digest(&bytes)), bytes)
    }
}
