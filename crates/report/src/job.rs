//! What is known of a job when its reports are written.

use serde::{Deserialize, Serialize};

use crate::moment::Moment;

/// What is known of a job when its reports are written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct JobFacts {
    /// Its number.
    pub job: String,
    /// The number of its harvest.
    pub harvest: String,
    /// The how-manieth run of the harvest it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub harvest_run: Option<u64>,
    /// What the names of its files begin with; empty if with the job.
    pub prefix: String,
    /// What it is for.
    pub description: String,
    /// When it was begun.
    pub begun: Moment,
    /// When it ended.
    pub ended: Moment,
    /// How long it was worked on, breaks not counted.
    pub busy_ms: u64,
    /// How it ended: `finished`, `the limit of 500 URLs was reached`, …
    pub how: String,
    /// What it told servers it was.
    pub user_agent: String,
    /// Where a webmaster can complain.
    pub contact: String,
    /// Who is responsible.
    pub operator: String,
    /// The machine.
    pub host: String,
    /// The address of the machine, if it is to be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The program and its version.
    pub software: String,
    /// How robots.txt was treated.
    pub robots: String,
    /// How many seeds it had.
    pub seeds: u64,
    /// Different URLs that were ever queued.
    pub known: u64,
    /// URLs that still wait.
    pub queued: u64,
    /// Queues that were closed before they were empty; the first thousand.
    pub retired_queues: Vec<String>,
}
