//! The receipts of a package that was handed over: the next version of its OCFL object.
//!
//! Deposit has the receipts, and this stage the storage root: what is written there has one owner. The lines follow from the
//! manifest, so that the work done again gives the same bytes.

use std::ffi::OsStr;
use std::io::Read;

use ecluse_manifest::{DepositFile, PackageRow};
use ecluse_stage::{Failure, Parcel, ParcelId};
use serde::{Deserialize, Serialize};

/// The file of a parcel that asks for such a version.
pub(crate) const FILE: &str = "handed-over.json";
/// What kind of parcel it is.
pub(crate) const KIND: &str = "handed-over";
/// More than any such file has.
const FILE_BYTES: u64 = 64 << 10;

/// A package that was handed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HandedOver {
    pub(crate) package: String,
    /// Of its tag manifest: handed over again with other bytes, it has other receipts.
    pub(crate) sha512: String,
}

impl HandedOver {
    pub(crate) fn of(row: &PackageRow) -> Self {
        Self {
            package: row.package.clone(),
            sha512: row.sha512.clone(),
        }
    }

    pub(crate) fn parcel_id(&self) -> ParcelId {
        let name = format!("receipts-{}", self.package);
        ParcelId::for_file(OsStr::new(&name), &self.sha512)
    }

    pub(crate) fn read(parcel: &Parcel) -> Result<Self, Failure> {
        let name = &parcel.only_file()?.name;
        let mut bytes = Vec::new();
        let file = parcel.open(name)?;
        file.take(FILE_BYTES).read_to_end(&mut bytes)?;
        serde_json::from_slice(&bytes).map_err(|error| {
            Failure::hold(format!(
                "{name} does not name a package that was handed over: {error}"
            ))
        })
    }
}

/// A line of the file of receipts.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct ReceiptLine<'a> {
    job: &'a str,
    harvest: &'a str,
    file: &'a str,
    sha256: &'a str,
    role: &'a str,
    bytes: u64,
    sent: Option<&'a str>,
    receipted: Option<&'a str>,
    identifier: Option<&'a str>,
    receipt: Option<&'a str>,
}

/// Returns the receipts of files, one JSON object a line, and when the last of them came.
pub(crate) fn lines(files: &[DepositFile]) -> Result<(Vec<u8>, String), Failure> {
    let mut text = Vec::new();
    for file in files {
        let line = ReceiptLine {
            job: &file.key.job,
            harvest: &file.key.harvest,
            file: &file.key.file,
            sha256: &file.key.sha256,
            role: &file.role,
            bytes: file.bytes,
            sent: file.sent.as_deref(),
            receipted: file.receipted.as_deref(),
            identifier: file.identifier.as_deref(),
            receipt: file.receipt.as_deref(),
        };
        serde_json::to_writer(&mut text, &line).map_err(Failure::halt)?;
        text.push(b'\n');
    }
    let times = files.iter().filter_map(|file| file.receipted.clone());
    Ok((text, times.max().unwrap_or_default()))
}
