//! What a backup leaves behind; see `docs/formats/warc-parcel.md`.

use serde::{Deserialize, Serialize};

use crate::digest::Fixity;

/// One backup copy of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Proof {
    /// The target's name in `pipeline.toml`.
    pub target: String,
    /// `directory`, `s3` or `command`.
    pub kind: String,
    /// Where the copy is: a path, a URL, or what the command called it.
    pub place: String,
    /// Its size.
    pub bytes: u64,
    /// Its SHA-256.
    pub sha256: String,
    /// How it is known.
    pub how: String,
}

impl Proof {
    /// Tells whether it is of these bytes.
    pub fn is_of(&self, wanted: &Fixity) -> bool {
        self.bytes == wanted.bytes && self.sha256 == wanted.sha256
    }
}
