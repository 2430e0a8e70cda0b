//! What the crawl writes beside the frontier's own state, with the same commit.

use std::collections::BTreeMap;

use ecluse_report::JobTally;
use serde::{Deserialize, Serialize};

use crate::online::OnlineCash;
use crate::warcs::WarcState;

/// Everything the engine needs to go on where it was.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(crate) struct Checkpoint {
    /// The files.
    pub(crate) warc: WarcState,
    /// Lengths of the logs, in the order of [`crate::logs`].
    pub(crate) logs: [u64; 4],
    /// What was fetched.
    pub(crate) tally: JobTally,
    /// Links not followed, by rule.
    pub(crate) rejected: BTreeMap<String, u64>,
    /// What on-line importance has beside its pages, where it is asked for.
    pub(crate) online: OnlineCash,
    /// When the job was begun, in milliseconds since 1970.
    pub(crate) begun: u64,
    /// When this was written, by the job's own clock, in milliseconds since 1970.
    pub(crate) at: u64,
    /// Milliseconds of work on it.
    pub(crate) busy: u64,
    /// URLs that count against the job's budget: prerequisites do not.
    pub(crate) fetched: u64,
    /// The seeds are all queued.
    pub(crate) seeded: bool,
    /// How many there are.
    pub(crate) seeds: u64,
    /// How it ended, and when.
    pub(crate) ended: Option<Ended>,
}

/// Why a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EndReason {
    /// Everything is fetched that will be.
    Drained,
    /// A limit of the job: so many URLs.
    Urls,
    /// So many bytes.
    Bytes,
    /// So much time.
    Time,
    /// A person ended it. So it is told where an earlier version noted no reason, too.
    #[default]
    ByHand,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) how: String,
    #[serde(default)]
    pub(crate) why: EndReason,
    /// In milliseconds since 1970.
    pub(crate) at: u64,
}
