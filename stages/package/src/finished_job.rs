//! The parcel that asks for a package: which job is finished, and who says so.

use std::ffi::OsStr;
use std::io::Read;

use ecluse_manifest::JobName;
use ecluse_stage::{Failure, Parcel, ParcelId};
use serde::{Deserialize, Serialize};

/// The file of such a parcel.
pub const FILE: &str = "job.json";
/// What kind of parcel it is.
pub const KIND: &str = "finished-job";
/// More than any name and reason need.
const JOB_BYTES: u64 = 64 << 10;

/// A job whose package is to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FinishedJob {
    /// The job.
    pub job: String,
    /// The harvest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub harvest: Option<String>,
    /// Who closed it, where no metadata file says that it is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<JobClosing>,
}

/// A job closed by hand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct JobClosing {
    /// Who closed it.
    pub by: String,
    /// Why it counts as complete.
    pub why: String,
    /// When, RFC 3339.
    pub at: String,
}

impl FinishedJob {
    pub(crate) fn of(name: &JobName) -> Self {
        Self {
            job: name.job.clone(),
            harvest: name.harvest.clone(),
            closed: None,
        }
    }

    pub(crate) fn name(&self) -> JobName {
        JobName {
            job: self.job.clone(),
            harvest: self.harvest.clone(),
        }
    }

    /// Returns the name of its parcel: the same whoever asks for the package.
    #[must_use]
    pub fn parcel_id(&self) -> ParcelId {
        let harvest = self.harvest.as_deref().unwrap_or_default();
        let digest = ecluse_spool::digest(format!("{}\0{harvest}", self.job).as_bytes());
        let name = format!("job-{}-{harvest}", self.job);
        ParcelId::for_file(OsStr::new(&name), &digest)
    }

    /// Returns the bytes of its file.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(self).expect("it holds only strings");
        bytes.push(b'\n');
        bytes
    }

    pub(crate) fn read(parcel: &Parcel) -> Result<Self, Failure> {
        let name = &parcel.only_file()?.name;
        let mut text = String::new();
        parcel
            .open(name)?
            .take(JOB_BYTES)
            .read_to_string(&mut text)?;
        serde_json::from_str(&text).map_err(|error| Failure::hold(format!("{name}: {error}")))
    }
}
