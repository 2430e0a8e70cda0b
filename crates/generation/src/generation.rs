//! `generation.json`: what a generation of an index is made of.
//!
//! Nothing in it depends on who made it or when. `docs/formats/index-generation.md` has the bytes.

use std::fs::File;
use std::io::{self, Write};
use std::num::NonZeroU64;
use std::path::Path;

use ecluse_spool::ParcelId;
use serde::{Deserialize, Serialize};

/// The version of `generation.json` that is written; earlier ones are read.
pub const SCHEMA: u32 = 2;
/// The version of one in which a file has sums of its blocks.
pub(crate) const SCHEMA_WITH_BLOCKS: u32 = 3;
/// The file that says it.
pub const DESCRIPTION: &str = "generation.json";
/// The flat index.
pub const FLAT: &str = "index.cdxj";
/// Where each (W)ARC file is, as pywb takes it.
pub const PATHS: &str = "path-index.txt";
/// The name of the ZipNum files, and of their summary.
pub const ZIPNUM: &str = "index";
/// Stands in a generation that a person put there, in place of `generation.json`.
pub const BY_HAND: &str = "by-hand";
/// The summary of the ZipNum index.
pub const SUMMARY: &str = "index.idx";

/// The content of `generation.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct IndexGeneration {
    /// Version of this format.
    pub schema: u32,
    /// Its number: the name of its directory.
    pub number: u64,
    /// The generation it was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<u64>,
    /// Lines of the flat index.
    pub lines: u64,
    /// New lines that were left out: they were there already.
    pub duplicates: u64,
    /// Its files.
    pub files: Vec<IndexFile>,
    /// The parcels that went in with it.
    pub members: Vec<IndexMember>,
}

/// One file of a generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct IndexFile {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Its lines; unknown of the files of ZipNum, and of what version 1 wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<u64>,
    /// Its XXH3 checksum of 128 bits, as `xxh128sum` prints it.
    pub xxh128: String,
    /// The checksums of its blocks, for whoever reads a part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<FileBlocks>,
}

/// The checksums of a file, block by block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FileBlocks {
    /// The size of a block; the last one may be smaller.
    pub bytes: NonZeroU64,
    /// The checksum of each, in order.
    pub xxh128: Vec<String>,
}

/// One parcel that went into a generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct IndexMember {
    /// Its name.
    pub parcel: ParcelId,
    /// The digest of its content.
    pub content: String,
}

impl IndexGeneration {
    /// Returns what is known of a file.
    pub fn file(&self, name: &str) -> Option<&IndexFile> {
        self.files.iter().find(|file| file.name == name)
    }

    /// Returns the version that a generation of these files has.
    pub fn schema_of(files: &[IndexFile]) -> u32 {
        match files.iter().any(|file| file.blocks.is_some()) {
            true => SCHEMA_WITH_BLOCKS,
            false => SCHEMA,
        }
    }

    /// Writes and syncs it as `generation.json` of a directory that has none.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(self).expect("it holds only strings and numbers");
        text.push(b'\n');
        let mut file = File::create_new(directory.join(DESCRIPTION))?;
        file.write_all(&text)?;
        file.sync_all()
    }

    /// Returns how many lines a file has, where that is known.
    pub fn lines_of(&self, name: &str) -> Option<u64> {
        let lines = self.file(name).and_then(|file| file.lines);
        lines.or((name == FLAT).then_some(self.lines))
    }
}
