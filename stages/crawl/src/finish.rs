//! The end of a job: reports, the metadata file, and what later jobs may refer to.
//!
//! Everything here can be done again after a kill and gives the same files: the checkpoint says when and how the job
//! ended, and nothing else is asked for the time.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::rc::Rc;

use ecluse_frontier::{Frontier, QueueState};
use ecluse_report::{
    HostTally, JobFacts, MetadataEntry, Moment, PACKING_LIST, Packed, Part, ReportSource,
    SeedTally, archivefiles_report, metadata_name, write_metadata, write_reports,
};
use ecluse_scope::Order;
use ecluse_stage::Failure;
use ecluse_warc::WarcWriter;
use serde_json::{Value, json};

use crate::checkpoint::Checkpoint;
use crate::earlier::Earlier;
use crate::engine::{Engine, SOFTWARE, Surroundings, blame, host_of_queue, policy_name};
use crate::job::Job;
use crate::logs::{CHANGES, CRAWL, ERRORS, PROGRESS};
use crate::notes;
use crate::place::publish;
use crate::results::{SiteResults, results};
use crate::warcs::ClosedFile;

/// How hard the metadata file is packed: its logs hardly become smaller beyond this, and take twice as long.
const METADATA_LEVEL: u8 = 6;

/// Retired queues that are named.
const NAMED: usize = 1000;
/// Queues in the frontier's report.
const REPORTED: usize = 2000;

/// Writes what a job leaves behind.
///
/// # Errors
/// When the machine refuses; it can be done again.
pub(crate) fn finish(
    around: &Surroundings<'_>,
    engine: &mut Engine<'_>,
) -> Result<(JobFacts, SiteResults), Failure> {
    // The order as it was at the end: a start after a kill reads the same.
    let in_force = Rc::clone(&engine.in_force);
    let order = &in_force.order;
    let Engine {
        job,
        frontier,
        checkpoint,
        ..
    } = engine;
    let facts = facts(job, order, around, frontier, checkpoint)?;
    let mut source = Notes {
        frontier,
        rejected: checkpoint,
    };
    let reports = write_reports(&job.dir.reports(), &facts, &checkpoint.tally, &mut source)?;
    around.outbox.tick();
    let files = files(frontier)?;
    let mut entries = vec![
        MetadataEntry::of_file(Part::Setup, &job.dir.given_order()),
        MetadataEntry::of_bytes(Part::Reports, PACKING_LIST, archivefiles_report(&files)),
    ];
    if job.dir.order().is_file() {
        entries.push(MetadataEntry::of_file(Part::Setup, &job.dir.order()));
    }
    for name in &job.seed_files {
        entries.push(MetadataEntry::of_file(
            Part::Setup,
            &job.dir.seeds().join(name),
        ));
    }
    for name in [CRAWL, ERRORS, PROGRESS, CHANGES] {
        entries.push(MetadataEntry::of_file(
            Part::Logs,
            &job.dir.logs().join(name),
        ));
    }
    for path in &reports {
        entries.push(MetadataEntry::of_file(Part::Reports, path));
    }
    write_metadata_file(job, around, &facts, &entries)?;
    if order.dedup.across_jobs {
        if let Some(dir) = around.digests.parent() {
            std::fs::create_dir_all(dir)?;
        }
        let mut going = || around.outbox.tick();
        Earlier::add_job(&around.digests, frontier, &mut going).map_err(Failure::halt)?;
    }
    let why = checkpoint.ended.as_ref().map(|ended| ended.why);
    let results = results(frontier, order, why.unwrap_or_default())?;
    Ok((facts, results))
}

fn facts(
    job: &Job,
    order: &Order,
    around: &Surroundings<'_>,
    frontier: &mut Frontier,
    checkpoint: &Checkpoint,
) -> Result<JobFacts, Failure> {
    let counts = frontier.counts();
    let mut retired = Vec::new();
    let walked = frontier.queues(|queue| {
        if matches!(queue.state, QueueState::Retired(_)) {
            retired.push(queue.name);
        }
        retired.len() < NAMED
    });
    walked.map_err(blame)?;
    retired.sort();
    let ended = checkpoint.ended.clone();
    Ok(JobFacts {
        job: order.job.clone(),
        harvest: order.harvest.clone(),
        harvest_run: None,
        prefix: order.warc.prefix.clone(),
        description: order.description.clone(),
        begun: Moment(checkpoint.begun),
        ended: Moment(ended.as_ref().map_or(checkpoint.begun, |ended| ended.at)),
        busy_ms: checkpoint.busy,
        how: ended.map(|ended| ended.how).unwrap_or_default(),
        user_agent: order.user_agent(&job.contact).unwrap_or_default(),
        contact: job.contact_of(order).to_owned(),
        operator: job.organization.clone(),
        host: around.host.clone(),
        address: None,
        software: SOFTWARE.to_owned(),
        robots: policy_name(order.robots.policy).to_owned(),
        seeds: match checkpoint.seeds {
            // Begun before they were counted.
            0 => job.seeds.count.kept,
            seeds => seeds,
        },
        known: counts.known,
        queued: counts.queued,
        retired_queues: retired,
    })
}

fn write_metadata_file(
    job: &Job,
    around: &Surroundings<'_>,
    facts: &JobFacts,
    entries: &[MetadataEntry],
) -> Result<(), Failure> {
    let name = metadata_name(facts);
    let path = around.harvested.join(&name);
    if path.is_file() {
        // It was named after everything in it was durable: there is nothing to add.
        return Ok(());
    }
    let open = around.harvested.join(format!("{name}.open"));
    let organization = match job.organization.as_str() {
        "" => "localhost",
        organization => organization,
    };
    let mut out = WarcWriter::new(BufWriter::new(File::create(&open)?), METADATA_LEVEL);
    write_metadata(&mut out, organization, facts, entries)
        .map_err(|error| Failure::halt(crate::pool::causes(&error)))?;
    let mut file = out.into_inner();
    file.flush()?;
    file.get_ref().sync_all()?;
    publish(&open, &path)?;
    Ok(())
}

/// The files of a job, in order.
fn files(frontier: &Frontier) -> Result<Vec<Packed>, Failure> {
    let mut files = Vec::new();
    let walked = frontier.notes(notes::FILE, |_, value| {
        if let Ok(file) = serde_json::from_slice::<ClosedFile>(value) {
            files.push(Packed {
                name: file.name,
                opened: Moment(file.opened),
                closed: Moment(file.closed),
                bytes: file.bytes,
            });
        }
        true
    });
    walked.map_err(blame)?;
    Ok(files)
}

/// Hosts and seeds out of the frontier's notes.
struct Notes<'a> {
    frontier: &'a mut Frontier,
    rejected: &'a Checkpoint,
}

impl Notes<'_> {
    /// URLs that were not fetched, by host; a queue of a whole domain counts for the host of that name.
    fn remaining(&mut self) -> ecluse_frontier::Result<BTreeMap<String, u64>> {
        let mut remaining = BTreeMap::new();
        self.frontier.queues(|queue| {
            if queue.queued > 0 {
                let host = host_of_queue(&queue.name).to_owned();
                *remaining.entry(host).or_default() += queue.queued;
            }
            true
        })?;
        Ok(remaining)
    }
}

impl ReportSource for Notes<'_> {
    fn hosts(&mut self, each: &mut dyn FnMut(HostTally)) -> io::Result<()> {
        let mut remaining = self.remaining().map_err(io::Error::other)?;
        let walked = self.frontier.notes(notes::HOST, |_, value| {
            if let Ok(mut host) = HostTally::decode(value) {
                host.remaining = remaining.remove(&host.host).unwrap_or(0);
                each(host);
            }
            true
        });
        walked.map_err(io::Error::other)?;
        // Those of which nothing was ever fetched.
        for (host, urls) in remaining {
            let mut host = HostTally::new(&host);
            host.remaining = urls;
            each(host);
        }
        Ok(())
    }

    fn seeds(&mut self, each: &mut dyn FnMut(SeedTally)) -> io::Result<()> {
        let walked = self.frontier.notes(notes::SEED, |_, value| {
            if let Ok(seed) = SeedTally::decode(value) {
                each(seed);
            }
            true
        });
        walked.map_err(io::Error::other)
    }

    fn frontier_summary(&mut self) -> io::Result<(String, Value)> {
        let mut text = self.frontier.report(REPORTED).map_err(io::Error::other)?;
        text.push_str("\nlinks not followed, by rule:\n");
        for (rule, count) in &self.rejected.rejected {
            text.push_str(&format!("{count:>12} {rule}\n"));
        }
        let counts = self.frontier.counts();
        let summary = json!({
            "known": counts.known,
            "queued": counts.queued,
            "retrying": counts.retrying,
            "done": counts.done,
            "failed": counts.failed,
            "bytes": counts.bytes,
            "queues": counts.queues,
            "groups": counts.groups,
            "retired-queues": counts.retired_queues,
            "retired-urls": counts.retired_urls,
            "links-not-followed": self.rejected.rejected,
        });
        Ok((text, summary))
    }
}
