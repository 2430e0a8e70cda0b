//! A file of a harvested directory, as it was found: what the parcel says by which it is taken in.

use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ecluse_stage::{ParcelId, digest};
use serde::{Deserialize, Serialize};

use crate::name;

/// What tells one state of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct FileIdentity {
    bytes: u64,
    inode: u64,
    seconds: i64,
    nanoseconds: i64,
}

impl FileIdentity {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            bytes: metadata.len(),
            inode: metadata.ino(),
            seconds: metadata.mtime(),
            nanoseconds: metadata.mtime_nsec(),
        }
    }
}

/// Something in a harvested directory that is to be taken in, or held.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct HarvestedFile {
    /// The path; empty when it is no text.
    pub(crate) path: String,
    /// The path with unusual bytes escaped, for people.
    pub(crate) shown: String,
    /// The file's name.
    pub(crate) name: String,
    pub(crate) identity: FileIdentity,
    /// Why it cannot be taken in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
    /// Where it was found, whatever bytes that is made of; empty in what was read from a parcel.
    #[serde(skip)]
    pub(crate) found_at: PathBuf,
}

/// How a file is now, beside how it was found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HarvestedState {
    AsFound,
    Changed,
    Gone,
}

impl HarvestedFile {
    /// The kind of its parcel.
    pub(crate) const KIND: &str = "harvested-file";
    /// The file of its parcel.
    pub(crate) const NAME: &str = "harvested.json";

    pub(crate) fn new(found_at: PathBuf, identity: FileIdentity, problem: Option<&str>) -> Self {
        let name = found_at.file_name().unwrap_or_default();
        let problem = problem.map(str::to_owned);
        Self {
            path: found_at.to_str().unwrap_or_default().to_owned(),
            shown: found_at.as_os_str().as_bytes().escape_ascii().to_string(),
            name: name.to_string_lossy().into_owned(),
            identity,
            problem: problem.or_else(|| name::problem_of(name.as_bytes())),
            found_at,
        }
    }

    /// Returns a plain file as it is now; none when there is none.
    pub(crate) fn now(path: &Path) -> io::Result<Option<Self>> {
        match path.symlink_metadata() {
            Ok(metadata) if metadata.is_file() => Ok(Some(Self::new(
                path.to_owned(),
                FileIdentity::of(&metadata),
                None,
            ))),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| format!("{}: {error}", Self::NAME))
    }

    /// Returns its parcel's name and the bytes of that parcel's file: the same for the same state of the same file.
    pub(crate) fn parcel(&self) -> (ParcelId, Vec<u8>) {
        let mut bytes = serde_json::to_vec(self).expect("it holds only strings and numbers");
        bytes.push(b'\n');
        let path = self.found_at.as_os_str().as_bytes();
        let digest = digest(&[path, &bytes].concat());
        let name = self.found_at.file_name().unwrap_or_default();
        (ParcelId::for_file(name, &digest), bytes)
    }

    /// Compares the file with how it was found.
    pub(crate) fn state(&self) -> io::Result<HarvestedState> {
        match Path::new(&self.path).symlink_metadata() {
            Ok(metadata) if metadata.is_file() && FileIdentity::of(&metadata) == self.identity => {
                Ok(HarvestedState::AsFound)
            }
            Ok(_) => Ok(HarvestedState::Changed),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(HarvestedState::Gone),
            Err(error) => Err(error),
        }
    }
}
