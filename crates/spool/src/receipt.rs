//! Receipts: the commit record of one piece of work, and the provenance of what came out.
//!
//! A receipt is one line of JSON. A **sheet** is a file of such lines: the receipts that one
//! group commit makes durable with one fsync. The sheet is linked into `receipts/` once for each
//! piece of work it commits, so a thousand receipts may share one inode, and each link is still
//! its own first-wins commit. A reader of `receipts/<hh>/X.json` looks for the line of X.

use memchr::memmem;
use serde::{Deserialize, Serialize};

use crate::name::ParcelId;
use crate::parcel::{FileEntry, digest};

/// One line of a sheet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Receipt {
    /// The piece of work: the parcel, or for a gathering stage the batch. First, so that a line
    /// can be found without reading the others.
    pub work: ParcelId,
    /// Version of this format.
    pub schema: u32,
    /// The stage.
    pub stage: String,
    /// The version of the program.
    pub version: String,
    /// The worker, whose name holds host, boot and process.
    pub worker: String,
    /// Which attempt it was.
    pub attempt: u32,
    /// When it was claimed, RFC 3339.
    pub claimed: String,
    /// When the receipt was written, RFC 3339.
    pub finished: String,
    /// What went in.
    pub inputs: Vec<Input>,
    /// The parcels that came out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<Output>,
    /// What becomes of the inputs themselves.
    pub fate: Fate,
    /// What the stage learned, in its own words.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub facts: serde_json::Map<String, serde_json::Value>,
}

/// One parcel that went in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Input {
    /// The parcel.
    pub parcel: ParcelId,
    /// Its birth mark.
    pub born: String,
    /// SHA-256 of its content, birth mark left out: the same for a copy come late.
    pub content: String,
    /// SHA-256 of its `parcel.json`: what the receipt before this one says came out.
    pub digest: String,
}

/// One new parcel that came out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Output {
    /// The parcel.
    pub parcel: ParcelId,
    /// SHA-256 of its `parcel.json`.
    pub digest: String,
    /// The size of its files.
    pub bytes: u64,
    /// The stage it goes to.
    pub to: String,
}

/// What becomes of the inputs once the receipt is durable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "do")]
pub enum Fate {
    /// The parcel goes on, with files added or taken out.
    #[serde(rename_all = "kebab-case")]
    PassOn {
        /// The stage it goes to.
        to: String,
        /// SHA-256 of its `parcel.json` as it leaves.
        digest: String,
        /// Files added or replaced.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attached: Vec<FileEntry>,
        /// Files taken out.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        detached: Vec<String>,
    },
    /// The parcel has served and is removed.
    Consume,
}

impl Receipt {
    /// Returns the receipt's line, ending in a newline.
    pub fn to_line(&self) -> Vec<u8> {
        let mut line = Vec::with_capacity(1024);
        self.write_line(&mut line);
        line
    }

    /// Appends the receipt's line to a sheet.
    pub(crate) fn write_line(&self, sheet: &mut Vec<u8>) {
        serde_json::to_writer(&mut *sheet, self)
            .expect("a receipt holds only strings, numbers and JSON");
        sheet.push(b'\n');
    }

    /// Names the parcels of a batch, which have a name of their own in `receipts/`.
    pub fn members(&self) -> impl Iterator<Item = &ParcelId> {
        let inputs = self.inputs.iter().map(|input| &input.parcel);
        inputs.filter(|id| *id != &self.work)
    }

    /// Returns the input of that name.
    pub fn input(&self, parcel: &ParcelId) -> Option<&Input> {
        self.inputs.iter().find(|i| &i.parcel == parcel)
    }
}

/// A receipt with the digest of its line.
#[derive(Debug, Clone, PartialEq)]
pub struct Filed {
    /// The receipt.
    pub receipt: Receipt,
    /// SHA-256 of its line.
    pub digest: String,
}

/// Returns every whole receipt of a sheet. A torn last line is no receipt.
pub fn parse_sheet(bytes: &[u8]) -> Vec<Filed> {
    lines(bytes).filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Filed> {
    let receipt = serde_json::from_slice(line).ok()?;
    Some(Filed {
        receipt,
        digest: digest(line),
    })
}

/// Finds the receipt in which `parcel` is the work or one of the inputs.
pub fn find_in_sheet(bytes: &[u8], parcel: &ParcelId) -> Option<Filed> {
    let quoted = format!("\"{parcel}\"");
    lines(bytes)
        .filter(|line| memmem::find(line, quoted.as_bytes()).is_some())
        .find_map(|line| {
            let receipt: Receipt = serde_json::from_slice(line).ok()?;
            let is_it = &receipt.work == parcel || receipt.input(parcel).is_some();
            is_it.then(|| Filed {
                receipt,
                digest: digest(line),
            })
        })
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes
        .split_inclusive(|&b| b == b'\n')
        .filter(|line| line.ends_with(b"\n"))
}
