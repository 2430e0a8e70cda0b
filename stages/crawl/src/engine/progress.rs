//! What a job tells of itself while it runs: its status, its log of progress and that of changes.

use std::path::Path;

use ecluse_frontier::{Millis, RestReason};
use ecluse_report::{Moment, ProgressLine, progress_note};
use ecluse_scope::{Priority, RobotsPolicy};
use ecluse_stage::Failure;

use super::{Engine, millis};
use crate::fetch_task::now;
use crate::place::write_quick;
use crate::status::{JobStatus, STATUS_FILE, Slowest};

impl Engine<'_> {
    /// Writes a line into the log of changes.
    pub(super) fn note_change(&mut self, what: &str) -> Result<(), Failure> {
        Ok(self.logs.changes.append(&progress_note(now(), what))?)
    }

    pub(super) fn log_progress(&mut self) -> Result<(), Failure> {
        let counts = self.frontier.counts();
        let progress = ProgressLine {
            at: now(),
            busy_ms: millis(self.busy()),
            discovered: counts.known,
            queued: counts.queued,
            downloaded: counts.done,
            bytes: counts.bytes,
            failures: counts.failed,
            busy: counts.in_flight,
            memory_kb: memory_kib(),
            memory_limit_kb: 0,
            congestion: 0.0,
            deepest: 0,
            average_depth: counts.queued / counts.queues.max(1),
        };
        let line = progress.line(self.progress.as_ref());
        self.progress = Some(progress);
        self.logs.progress.append(&line)?;
        Ok(())
    }

    /// Writes the status for others to read.
    pub(super) fn tell(&mut self) -> Result<(), Failure> {
        let status = self.status();
        let job = format!("{}-{}", status.job, status.harvest);
        self.around.metrics.crawl(&job, Some(status.figures()));
        let bytes = serde_json::to_vec_pretty(&status).unwrap_or_default();
        let path = self.job.dir.path().join(STATUS_FILE);
        if let Err(error) = write_quick(&path, &bytes) {
            // The status is for the eye: a full disk that takes no new one stops nothing by that.
            tracing::warn!(%error, "cannot write the status");
        }
        Ok(())
    }

    pub(crate) fn status(&mut self) -> JobStatus {
        let counts = self.frontier.counts();
        let totals = self.checkpoint.tally.totals;
        self.rates.see(counts.done, counts.bytes);
        let at = now();
        JobStatus {
            job: self.in_force.order.job.clone(),
            harvest: self.in_force.order.harvest.clone(),
            priority: priority_name(self.in_force.order.priority).to_owned(),
            state: self.state,
            why: self.why.clone().or_else(|| self.ended_early()),
            pid: std::process::id(),
            begun: Moment(self.checkpoint.begun).iso(),
            updated: at.iso(),
            seconds: self.busy().as_secs_f64(),
            known: counts.known,
            queued: counts.queued,
            in_flight: counts.in_flight,
            handed_out: counts.handed_out,
            done: counts.done,
            failed: counts.failed.saturating_sub(totals.forbidden),
            forbidden: totals.forbidden,
            captures: totals.novel.urls,
            revisits: totals.duplicate.urls + totals.not_modified.urls,
            bytes: counts.bytes,
            files: self.warcs.state.files + u64::from(self.warcs.is_open()),
            file_bytes: self.warcs.all_bytes(),
            queues: counts.queues,
            active_queues: counts.active_queues,
            waiting_queues: counts.inactive_queues + counts.parked_queues + counts.snoozed_queues,
            retired_queues: counts.retired_queues,
            retired_urls: counts.retired_urls,
            urls_per_second: self.rates.urls_per_second(),
            bytes_per_second: self.rates.bytes_per_second(),
            slowest: self.slowest(self.clock.now()),
            last_url: self.last_url.clone(),
        }
    }

    /// How the job ended, if not because everything was fetched.
    fn ended_early(&self) -> Option<String> {
        let how = self
            .checkpoint
            .ended
            .as_ref()
            .map(|ended| ended.how.clone());
        how.filter(|how| how != super::FINISHED)
    }

    fn slowest(&self, at: Millis) -> Option<Slowest> {
        let group = self.frontier.slowest_group()?;
        Some(Slowest {
            why: why_slow(group.why).to_owned(),
            waits: group.next_allowed.since(at).as_secs_f64(),
            delay: group.delay.as_secs_f64(),
            queues: group.queues,
            group: group.name,
        })
    }
}

/// The program, as the files have it.
pub(crate) const SOFTWARE: &str = concat!("ecluse/", env!("CARGO_PKG_VERSION"));

/// The name that an order has for a policy.
pub(crate) fn policy_name(policy: RobotsPolicy) -> &'static str {
    match policy {
        RobotsPolicy::Obey => "obey",
        RobotsPolicy::Ignore => "ignore",
        RobotsPolicy::Requisites => "requisites",
    }
}

pub(crate) fn priority_name(priority: Priority) -> &'static str {
    match priority {
        Priority::Low => "low",
        Priority::Normal => "normal",
        Priority::High => "high",
    }
}

pub(crate) fn why_slow(reason: RestReason) -> &'static str {
    match reason {
        RestReason::New => "not asked yet",
        RestReason::MinDelay => "the shortest delay",
        RestReason::Duration => "a multiple of the last fetch",
        RestReason::MaxDelay => "the longest delay",
        RestReason::CrawlDelay => "its robots.txt asks for it",
        RestReason::Backoff => "it is overloaded or fails",
        RestReason::RetryAfter => "it asked for it (Retry-After)",
        RestReason::Restart => "the crawl was restarted",
        RestReason::Bandwidth => "its share of bandwidth",
        RestReason::OtherJob => "another job asks it",
    }
}

/// Memory of this process, in KiB.
fn memory_kib() -> u64 {
    let text = std::fs::read_to_string(Path::new("/proc/self/statm")).unwrap_or_default();
    let pages = text
        .split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    // Pages of 4 KiB: so it is on every machine this runs on.
    pages.unwrap_or(0) * 4
}
