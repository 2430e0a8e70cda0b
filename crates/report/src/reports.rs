//! The reports of a job, as text in Heritrix's layouts and as JSON of the same content.
//!
//! Hosts and seeds come from the caller one by one; what is held of them in memory has a limit. The same input gives the
//! same bytes, so that a job killed while it reports can report again.

mod crawl;
mod frequencies;
mod hosts;
mod seeds;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::host_tally::HostTally;
use crate::job::JobFacts;
use crate::report_file::{write_json, write_text};
use crate::seed_tally::SeedTally;
use crate::tally::JobTally;

pub use hosts::SORTED_HOSTS;

/// Where the reports get what does not fit into memory.
pub trait ReportSource {
    /// Hands over the tally of every host, each once, in an order that is the same every time.
    fn hosts(&mut self, each: &mut dyn FnMut(HostTally)) -> io::Result<()>;

    /// Hands over what became of every seed, in an order that is the same every time.
    fn seeds(&mut self, each: &mut dyn FnMut(SeedTally)) -> io::Result<()>;

    /// Returns the summary of the frontier, for people and for machines.
    fn frontier_summary(&mut self) -> io::Result<(String, Value)>;
}

/// Writes all reports into `dir`, durable, and returns their paths in the order of their names.
pub fn write_reports(
    dir: &Path,
    facts: &JobFacts,
    tally: &JobTally,
    source: &mut dyn ReportSource,
) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    let hosts = hosts::write(dir, source, &mut paths)?;
    let seeds = seeds::write(dir, source, &mut paths)?;
    crawl::write(dir, facts, tally, &hosts, &seeds, &mut paths)?;
    frequencies::write(dir, tally, &mut paths)?;
    let (text, summary) = source.frontier_summary()?;
    paths.push(write_text(dir, "frontier-summary-report.txt", &text)?);
    paths.push(write_json(dir, "frontier-summary-report.json", &summary)?);
    File::open(dir)?.sync_all()?;
    paths.sort();
    Ok(paths)
}
