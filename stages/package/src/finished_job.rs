//! The parcel that asks for a package: which job is finished, and who says so.

use std::ffi::OsStr;
use std::io::Read;

use ecluse_manifest::{JobName, PackageRow};
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
    /// Which supplement is to be made, from 1, of files that came after the package; 0 for the package itself.
    #[serde(default, skip_serializing_if = "is_package_itself")]
    pub supplement: u64,
    /// The name of a package that was lost and is to be made again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<String>,
}

fn is_package_itself(supplement: &u64) -> bool {
    *supplement == 0
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
    /// Returns the next thing to be packed of a job that has these packages: the package itself, or a supplement to it.
    #[must_use]
    pub fn next_of(name: &JobName, packages: &[PackageRow]) -> Self {
        let last = packages.iter().map(|row| row.supplement).max();
        Self {
            job: name.job.clone(),
            harvest: name.harvest.clone(),
            closed: None,
            supplement: last.map_or(0, |last| last + 1),
            again: None,
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
        let mut whole = format!("{}\0{harvest}", self.job);
        let mut name = format!("job-{}-{harvest}", self.job);
        if self.supplement > 0 {
            whole.push_str(&format!("\0{}", self.supplement));
            name.push_str(&format!("-supplement-{}", self.supplement));
        }
        let digest = ecluse_spool::digest(whole.as_bytes());
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
        let mut bytes = Vec::new();
        parcel.open(name)?.take(JOB_BYTES).read_to_end(&mut bytes)?;
        serde_json::from_slice(&bytes)
            .map_err(|error| Failure::hold(format!("{name} does not name a finished job: {error}")))
    }
}
