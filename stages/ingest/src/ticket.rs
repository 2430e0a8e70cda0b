//! The ticket: a small parcel that says which harvested file is to be taken in, and as what it was found.

use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ecluse_stage::{ParcelId, Ticket};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::name;

/// The file of a ticket.
const NAME: &str = "harvested.json";

/// What tells one state of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Identity {
    pub(crate) bytes: u64,
    pub(crate) inode: u64,
    pub(crate) seconds: i64,
    pub(crate) nanoseconds: i64,
}

impl Identity {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            bytes: metadata.len(),
            inode: metadata.ino(),
            seconds: metadata.mtime(),
            nanoseconds: metadata.mtime_nsec(),
        }
    }
}

/// A file and the state it was found in.
pub(crate) type Key = (PathBuf, Identity);

/// Something in a harvested directory that is to be taken in, or held.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) key: Key,
    /// Why it cannot be taken in: not a plain file.
    pub(crate) problem: Option<String>,
}

/// What a ticket says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Note {
    /// The path; empty when it is no text.
    pub(crate) path: String,
    /// The path with unusual bytes escaped, for people.
    pub(crate) shown: String,
    /// The file's name.
    pub(crate) name: String,
    pub(crate) identity: Identity,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
    #[serde(skip, default = "no_key")]
    pub(crate) key: Key,
}

fn no_key() -> Key {
    let identity = Identity {
        bytes: 0,
        inode: 0,
        seconds: 0,
        nanoseconds: 0,
    };
    (PathBuf::new(), identity)
}

/// How a file is now, beside what its ticket says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum State {
    AsFound,
    Changed,
    Gone,
}

impl Note {
    pub(crate) fn of(found: Found) -> Self {
        let (path, identity) = &found.key;
        let file_name = path.file_name().unwrap_or_default();
        let problem = found
            .problem
            .or_else(|| name::problem_of(file_name.as_bytes()));
        Self {
            path: path.to_str().unwrap_or_default().to_owned(),
            shown: path.as_os_str().as_bytes().escape_ascii().to_string(),
            name: file_name.to_string_lossy().into_owned(),
            identity: *identity,
            problem,
            key: found.key,
        }
    }

    /// Notes a plain file as it is now; none when there is none.
    pub(crate) fn now(path: &Path) -> io::Result<Option<Self>> {
        match path.symlink_metadata() {
            Ok(metadata) if metadata.is_file() => Ok(Some(Self::of(Found {
                key: (path.to_owned(), Identity::of(&metadata)),
                problem: None,
            }))),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| format!("{NAME}: {error}"))
    }

    /// Returns the ticket: the same for the same state of the same file.
    pub(crate) fn ticket(&self) -> Ticket {
        let mut bytes = serde_json::to_vec(self).expect("a note holds only strings and numbers");
        bytes.push(b'\n');
        let (path, _) = &self.key;
        let mut hash = Sha256::new();
        hash.update(path.as_os_str().as_bytes());
        hash.update(&bytes);
        let digest: String = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
        Ticket {
            id: ParcelId::for_file(path.file_name().unwrap_or_default(), &digest),
            kind: "harvested-file",
            name: NAME,
            bytes,
        }
    }

    /// Compares the file with what its ticket says.
    pub(crate) fn state(&self) -> io::Result<State> {
        match Path::new(&self.path).symlink_metadata() {
            Ok(metadata) if metadata.is_file() && Identity::of(&metadata) == self.identity => {
                Ok(State::AsFound)
            }
            Ok(_) => Ok(State::Changed),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(State::Gone),
            Err(error) => Err(error),
        }
    }
}
