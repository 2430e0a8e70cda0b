//! The jobs of the crawl: where each has its directory, and how it is.
//!
//! A job says itself how it is, in `status.json`. Whether somebody still works on it is told by the workers' leases: a job that
//! says it runs and whose worker is dead is stopped, and so is one that has no worker and is silent.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use ecluse_crawl::{Crawl, JobState, JobStatus, STATUS_FILE, Settings};
use ecluse_spool::WorkerId;
use ecluse_stage::{Exit, Stage};
use ecluse_telemetry::printable;
use serde::Serialize;

use crate::desk::{Desk, Trouble};
use crate::paint::Paint;
use crate::show;
use crate::survey::Need;

/// A job that has not been heard of for so long, and has no worker, is stopped.
const SILENT: Duration = Duration::from_secs(30);
/// More jobs than this are counted, not listed.
const LISTED: usize = 12;

/// A job at one moment.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Job {
    /// The name of its directory: `JOB-HARVEST`.
    pub(crate) name: String,
    pub(crate) dir: PathBuf,
    #[serde(flatten)]
    pub(crate) status: JobStatus,
}

impl Desk {
    /// Returns the directory of all jobs.
    pub(crate) fn jobs_dir(&self) -> Result<PathBuf, Trouble> {
        let settings: Settings = self
            .pipeline
            .stage_settings(Crawl::NAME)
            .map_err(|error| Trouble::new(Exit::Config, error))?;
        Ok(self.root.join(settings.jobs))
    }

    /// Reads how every job is, in the order of their names. One that says nothing yet is left out.
    pub(crate) fn jobs(&self) -> Result<Vec<Job>, Trouble> {
        let mut jobs = Vec::new();
        let mut workers: Option<Workers> = None;
        for (name, dir) in self.job_dirs()? {
            // One that cannot be read is being written, or was never ours.
            let Ok(Some(mut status)) = JobStatus::read(&dir) else {
                continue;
            };
            if status.state != JobState::Finished {
                let workers = match &mut workers {
                    Some(workers) => workers,
                    none => none.insert(self.crawling()?),
                };
                let silent = is_silent(&dir);
                settle(&mut status, workers, silent);
            }
            jobs.push(Job { name, dir, status });
        }
        Ok(jobs)
    }

    /// Returns the jobs that have not ended.
    pub(crate) fn unfinished_jobs(&self) -> Result<Vec<Job>, Trouble> {
        let mut jobs = self.jobs()?;
        jobs.retain(|job| job.status.state != JobState::Finished);
        Ok(jobs)
    }

    /// Returns the directory of the job that is meant: by job and harvest, or the newest harvest of a job.
    pub(crate) fn job_dir(&self, word: &str) -> Result<PathBuf, Trouble> {
        let dirs = self.job_dirs()?;
        if let Some((_, dir)) = dirs.iter().find(|(name, _)| name == word) {
            return Ok(dir.clone());
        }
        let of_job = dirs
            .iter()
            .filter(|(name, _)| name.rsplit_once('-').is_some_and(|(job, _)| job == word));
        let newest = of_job.max_by_key(|(name, dir)| {
            let begun = JobStatus::read(dir).ok().flatten().unwrap_or_default();
            (begun.begun, name.clone())
        });
        newest.map(|(_, dir)| dir.clone()).ok_or_else(|| {
            let known: Vec<&str> = dirs.iter().rev().take(5).map(|(n, _)| &**n).collect();
            let known = match known.as_slice() {
                [] => "there is none yet".to_owned(),
                some => format!("there are {}", some.join(", ")),
            };
            Trouble::usage(format!("no job {word:?}: {known}"))
        })
    }

    /// Lists the directories of jobs, sorted by name.
    fn job_dirs(&self) -> Result<Vec<(String, PathBuf)>, Trouble> {
        let parent = self.jobs_dir()?;
        let entries = match std::fs::read_dir(&parent) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => {
                let line = format!("cannot list {}: {error}", parent.display());
                return Err(Trouble::new(Exit::Machine, line));
            }
        };
        let mut dirs = Vec::new();
        for entry in entries {
            let entry = entry?;
            if let Ok(name) = entry.file_name().into_string()
                && !name.starts_with('.')
                && entry.file_type().is_ok_and(|kind| kind.is_dir())
            {
                dirs.push((name, entry.path()));
            }
        }
        dirs.sort();
        Ok(dirs)
    }

    /// Returns the processes of the crawl's workers.
    fn crawling(&self) -> Result<Workers, Trouble> {
        let lease = self.pipeline.shell(Crawl::NAME).lease.0;
        let mut workers = Workers::default();
        for worker in self.yard.workers(Crawl::NAME, lease)? {
            let Some(id) = WorkerId::parse(std::ffi::OsStr::new(&worker.id)) else {
                continue;
            };
            let pids = match worker.alive {
                true => &mut workers.living,
                false => &mut workers.dead,
            };
            pids.push(id.pid().to_owned());
        }
        Ok(workers)
    }
}

/// The processes of a stage's workers: those that live, and those that died with something in hand.
#[derive(Debug, Default)]
struct Workers {
    living: Vec<String>,
    dead: Vec<String>,
}

fn is_silent(dir: &std::path::Path) -> bool {
    let written = std::fs::metadata(dir.join(STATUS_FILE)).and_then(|meta| meta.modified());
    // A time to come is no age: such a job is taken at its word.
    written.is_ok_and(|time| {
        SystemTime::now()
            .duration_since(time)
            .is_ok_and(|age| age > SILENT)
    })
}

/// Says `stopped` of a job that nobody works on, whatever its last word was.
fn settle(status: &mut JobStatus, workers: &Workers, silent: bool) {
    let pid = status.pid.to_string();
    let gone = !workers.living.contains(&pid) && (silent || workers.dead.contains(&pid));
    if gone || status.state == JobState::Stopped {
        status.state = JobState::Stopped;
        status.urls_per_second = 0.0;
        status.bytes_per_second = 0.0;
        status.in_flight = 0;
        status.slowest = None;
    }
}

/// Returns what paused jobs need of a person.
pub(crate) fn needs(jobs: &[Job]) -> Vec<Need> {
    let paused = jobs
        .iter()
        .filter(|job| job.status.state == JobState::Paused);
    let need = |job: &Job| Need {
        stage: Crawl::NAME.to_owned(),
        parcel: None,
        what: format!(
            "job {} is paused: {}",
            job.name,
            job.status.why.as_deref().unwrap_or("it does not say why")
        ),
        command: format!(
            "it goes on by itself when that is mended   ecluse amend {} FILE --why \"…\"",
            job.name
        ),
    };
    paused.map(need).collect()
}

/// Returns the word an operator reads.
pub(crate) fn word(state: JobState) -> &'static str {
    match state {
        JobState::Starting => "starting",
        JobState::Running => "running",
        JobState::Paused => "PAUSED",
        JobState::Stopped => "stopped",
        JobState::Finishing => "finishing",
        JobState::Finished => "finished",
    }
}

/// Returns the lines of the status screen about jobs; none without a job. What does not fit into so many columns as a table is told
/// in words.
pub(crate) fn table(jobs: &[Job], paint: Paint, width: usize) -> String {
    if jobs.is_empty() {
        return String::new();
    }
    let is_wide = width >= HEAD.len();
    let mut text = String::new();
    if is_wide {
        text.push_str(&paint.dim(&format!("{HEAD}\n")));
    }
    for job in jobs.iter().take(LISTED) {
        let state = format!("{:<9}", word(job.status.state));
        let state = match job.status.state {
            JobState::Paused => paint.yellow(&state),
            JobState::Stopped => paint.dim(&state),
            _ => state,
        };
        let name = printable(job.name.as_bytes());
        text.push_str(&match is_wide {
            true => row(&job.status, &name, &state),
            false => in_words(&job.status, &name, &state),
        });
        if let Some(line) = slowest(&job.status) {
            let line = show::cut(&line, width.saturating_sub(8));
            text.push_str(&paint.dim(&format!("       {line}\n")));
        }
    }
    if jobs.len() > LISTED {
        let more = jobs.len() - LISTED;
        text.push_str(&format!("     and {more} more: ecluse status --json\n"));
    }
    text.push('\n');
    text
}

const HEAD: &str = "     JOB                                STATE        DONE   QUEUED FLIGHT QUEUES RETIRED   URL/S      BYTES";

fn row(status: &JobStatus, name: &str, state: &str) -> String {
    format!(
        "     {:<34} {state} {:>7} {:>8} {:>6} {:>6} {:>7} {:>7.1} {:>10}\n",
        show::cut(name, 34),
        status.done,
        status.queued,
        status.in_flight,
        status.active_queues,
        status.retired_queues,
        status.urls_per_second,
        show::bytes(status.bytes),
    )
}

fn in_words(status: &JobStatus, name: &str, state: &str) -> String {
    format!(
        "  job {name} {state}\n       {} done, {} queued, {} in flight, {:.1} URL/s, {}\n       {} queues, {} retired\n",
        status.done,
        status.queued,
        status.in_flight,
        status.urls_per_second,
        show::bytes(status.bytes),
        status.active_queues,
        status.retired_queues,
    )
}

/// Returns which group must wait longest and why, in a line safe to show.
pub(crate) fn slowest(status: &JobStatus) -> Option<String> {
    let slowest = status.slowest.as_ref()?;
    let line = format!(
        "slowest: {} waits {} ({}), {} between requests",
        slowest.group,
        show::span(slowest.waits),
        slowest.why,
        show::span(slowest.delay)
    );
    Some(show::cut(&printable(line.as_bytes()), 100))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ecluse_crawl::Slowest;

    fn running() -> JobStatus {
        JobStatus {
            job: "a.example".into(),
            harvest: "20260101000000".into(),
            state: JobState::Running,
            pid: 4711,
            done: 12,
            queued: 30,
            in_flight: 2,
            slowest: Some(Slowest {
                group: "a.example\x1b[2J".into(),
                why: "Crawl-delay".into(),
                waits: 3.24,
                delay: 5.0,
                queues: 1,
            }),
            ..JobStatus::default()
        }
    }

    #[test]
    fn a_job_without_a_worker_is_stopped() {
        let workers = |living: &[&str], dead: &[&str]| Workers {
            living: living.iter().map(|pid| (*pid).to_owned()).collect(),
            dead: dead.iter().map(|pid| (*pid).to_owned()).collect(),
        };
        let mut status = running();
        settle(&mut status, &workers(&[], &["11"]), false);
        assert_eq!(status.state, JobState::Running, "it spoke just now");
        settle(&mut status, &workers(&["4711"], &["4711"]), true);
        assert_eq!(status.state, JobState::Running, "its worker lives");
        settle(&mut status, &workers(&["11"], &[]), true);
        assert_eq!(status.state, JobState::Stopped);
        let mut status = running();
        settle(&mut status, &workers(&["11"], &["4711"]), false);
        assert_eq!(status.state, JobState::Stopped, "its worker died");
        assert_eq!(status.in_flight, 0);
    }

    #[test]
    fn the_table_shows_nothing_raw() {
        let job = Job {
            name: "a.example-20260101000000".into(),
            dir: PathBuf::new(),
            status: running(),
        };
        let text = table(std::slice::from_ref(&job), Paint { color: false }, 80);
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        assert!(text.contains("12 done, 30 queued, 2 in flight"), "{text}");
        let text = table(&[job], Paint { color: false }, usize::MAX);
        assert!(text.contains("a.example-20260101000000"), "{text}");
        assert!(text.contains("running"), "{text}");
        assert!(text.contains("waits 3.2s (Crawl-delay)"), "{text}");
        assert!(!text.contains('\x1b'), "{text}");
        assert_eq!(table(&[], Paint { color: true }, 80), "");
    }

    #[test]
    fn a_paused_job_needs_someone() {
        let mut job = Job {
            name: "a.example-1".into(),
            dir: PathBuf::new(),
            status: running(),
        };
        assert!(needs(std::slice::from_ref(&job)).is_empty());
        job.status.state = JobState::Paused;
        job.status.why = Some("less than 1 GiB free".into());
        let needs = needs(&[job]);
        assert_eq!(
            needs[0].what,
            "job a.example-1 is paused: less than 1 GiB free"
        );
    }
}
