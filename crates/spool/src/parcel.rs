//! `parcel.json`: what a parcel is.
//!
//! The bytes of this file are the identity of a parcel's content: its SHA-256 stands in the
//! receipts before and after it and chains them. So nothing in it depends on who made it or when:
//! the same work done again gives the same bytes.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::name::{ParcelId, hex};
use crate::setback::Why;

/// The file that makes a directory a parcel.
pub const MANIFEST: &str = "parcel.json";
/// The directory of the receipts a parcel has gathered.
pub const HISTORY: &str = "history";
/// What went wrong with it lately, for `why`; not part of its content.
pub const TROUBLE: &str = "trouble.json";
/// A manifest larger than this is not one of ours.
pub(crate) const MANIFEST_BYTES: u64 = 64 << 20;

/// The content of `parcel.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ParcelManifest {
    /// Version of this format.
    pub schema: u32,
    /// The parcel's name.
    pub id: ParcelId,
    /// What kind of thing it is: `warc`, `cdxj`, `job-order`.
    pub kind: String,
    /// Tells two parcels of one name apart: the one being finished, and a copy come late.
    pub born: String,
    /// The harvest it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub harvest: Option<String>,
    /// The crawl job it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The collection it belongs to: a sub-chain with an index of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collection: Option<String>,
    /// The name the file had when it was dropped, with unusual bytes as `\xNN`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original: Option<String>,
    /// The finished parcel this one does over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<ParcelId>,
    /// Its files, in order of name.
    pub files: Vec<FileEntry>,
}

/// One file of a parcel, or one written by a stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FileEntry {
    /// Name inside the parcel.
    pub name: String,
    /// Size.
    pub bytes: u64,
    /// SHA-256, in hex.
    pub sha256: String,
}

impl ParcelManifest {
    /// Returns a manifest without files.
    pub fn new(id: ParcelId, kind: &str, born: String) -> Self {
        Self {
            schema: 1,
            id,
            kind: kind.to_owned(),
            born,
            harvest: None,
            job: None,
            collection: None,
            original: None,
            replaces: None,
            files: Vec::new(),
        }
    }

    /// Adds a file, or replaces the one of that name.
    pub fn put(&mut self, file: FileEntry) {
        match self.files.binary_search_by(|f| f.name.cmp(&file.name)) {
            Ok(at) => self.files[at] = file,
            Err(at) => self.files.insert(at, file),
        }
    }

    /// Takes a file out.
    pub fn take(&mut self, name: &str) -> Option<FileEntry> {
        let at = self.files.iter().position(|f| f.name == name)?;
        Some(self.files.remove(at))
    }

    /// Returns the entry of a file.
    pub fn file(&self, name: &str) -> Option<&FileEntry> {
        self.files.iter().find(|f| f.name == name)
    }

    /// Returns the size of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|f| f.bytes).sum()
    }

    /// Returns the digest of the content alone: the same for two parcels that differ in birth only.
    pub fn content(&self) -> String {
        let mut nameless = self.clone();
        nameless.born.clear();
        digest(&nameless.to_bytes())
    }

    /// Returns the bytes of `parcel.json`.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(512);
        serde_json::to_writer(&mut bytes, self).expect("a manifest holds only strings and numbers");
        bytes.push(b'\n');
        bytes
    }
}

/// Returns the SHA-256 of `bytes` in hex.
pub fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Returns the birth mark of an output: the same for the same work on the same parent. An output with another name than
/// the work names it, so that its maker can be found.
pub(crate) fn birth_mark(stage: &str, work: &ParcelId, parent_born: &str, id: &ParcelId) -> String {
    let mut mark = digest(format!("{stage}\n{parent_born}\n{id}\n").as_bytes());
    mark.truncate(16);
    if work != id {
        mark.push_str(&format!(" {stage} {work}"));
    }
    mark
}

/// Returns the stage and the work that made a parcel of another name, by its birth mark.
pub fn maker_of(born: &str) -> Option<(&str, ParcelId)> {
    let (stage, work) = born.split_once(' ')?.1.split_once(' ')?;
    Some((stage, ParcelId::new(work).ok()?))
}

/// Returns the birth mark of a parcel that was given or adopted.
pub(crate) fn given_mark(random: u64) -> String {
    format!("given-{random:016x}")
}

/// What went wrong with a parcel in a stage; kept inside it, so that it moves with it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Trouble {
    /// How often it was deferred in this stage.
    pub deferrals: u32,
    /// When it was first deferred, in Unix seconds.
    pub since: u64,
    /// The last reason.
    pub reason: String,
    /// The stage that said so.
    pub stage: String,
    /// Why it was held or discarded last. Counts while it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<Why>,
}

impl Trouble {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("trouble holds only strings and numbers")
    }
}
