//! The jobs of the crawl: where each has its directory, and how it is.
//!
//! A job says itself how it is, in `status.json`. Whether somebody still works on it is told by the workers' leases: a job that
//! says it runs and whose worker is dead is stopped, and so is one that has no worker and is silent.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use ecluse_crawl::{Crawl, JobState, JobStatus, PAUSE_FILE, STATUS_FILE, Settings, by_whom, told};
use ecluse_spool::WorkerId;
use ecluse_stage::{Exit, Stage};
use ecluse_telemetry::{printable, printable_text};
use serde::Serialize;

use crate::cli::JobsOptions;
use crate::context::{DriverContext, Trouble};
use crate::needs::Need;
use crate::paint::Paint;
use crate::show;

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
    /// The files of its reports.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) reports: Vec<PathBuf>,
}

/// A copy of the crawl, wherever it runs.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Crawler {
    stage: String,
    /// Those on which it runs.
    hosts: Vec<String>,
    in_hand: usize,
    waiting: usize,
}

pub(crate) fn list(context: &DriverContext, options: &JobsOptions) -> Result<ExitCode, Trouble> {
    context.must_be_archive()?;
    let mut jobs = context.jobs()?;
    if let Some(word) = &options.job {
        let dir = context.job_dir(word)?;
        jobs.retain(|job| job.dir == dir);
        if jobs.is_empty() {
            let line = format!("{} has no status yet", dir.display());
            return Err(Trouble::new(Exit::Deferred, line));
        }
    }
    for job in &mut jobs {
        job.reports = reports_of(&job.dir);
    }
    // Those at work first, then the newest.
    jobs.sort_by(|a, b| {
        let key = |job: &Job| {
            (
                job.status.state != JobState::Finished,
                job.status.begun.clone(),
            )
        };
        key(b).cmp(&key(a))
    });
    let crawlers = context.crawlers()?;
    if context.json {
        let told = serde_json::json!({ "jobs": jobs, "crawlers": crawlers });
        context.print_json(told)?;
    } else if options.job.is_some() {
        for job in &jobs {
            context.print(&whole(job))?;
            if let Some(line) = crate::quality::brief(context, &job.name) {
                context.print(&format!("  quality   {line}\n"))?;
            }
        }
    } else {
        let paint = Paint {
            color: context.color,
        };
        context.print(&overview(&jobs, paint))?;
        let more = context.command("jobs JOB");
        context.print(&match jobs.is_empty() {
            true if crawlers.is_empty() => "There is no job yet.\n".to_owned(),
            true => "There is no job on this host.\n".to_owned(),
            false => paint.dim(&format!("\n{more} tells of one, with its reports\n")),
        })?;
        for crawler in &crawlers {
            context.print(&crawler.line())?;
        }
    }
    Ok(Exit::Done.into())
}

impl Crawler {
    fn line(&self) -> String {
        let hosts = match self.hosts.as_slice() {
            [] => "runs nowhere".to_owned(),
            hosts => format!("on {}", hosts.join(", ")),
        };
        let (in_hand, waiting) = (self.in_hand, self.waiting);
        format!(
            "{}: {in_hand} in hand, {waiting} waiting, {hosts}\n",
            self.stage
        )
    }
}

/// Returns the files of a job's reports and its logs, those for people first.
fn reports_of(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for part in ["reports", "logs"] {
        let mut some: Vec<PathBuf> = std::fs::read_dir(dir.join(part))
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        some.sort();
        files.append(&mut some);
    }
    files
}

/// Returns one line a job, and one more where there is something to say of it.
fn overview(jobs: &[Job], paint: Paint) -> String {
    let row = |name: &str, state: &str, begun: &str, done: &str, given_up: &str, bytes: &str| {
        format!("{name:<29} {state:<9} {begun:<16} {done:>5} {given_up:>8} {bytes:>8}\n")
    };
    let mut text = String::new();
    if !jobs.is_empty() {
        text.push_str(&paint.dim(&row("JOB", "STATE", "BEGUN", "DONE", "GIVEN UP", "BYTES")));
    }
    for job in jobs {
        let status = &job.status;
        text.push_str(&row(
            &show::cut(&printable(job.name.as_bytes()), 29),
            word(status.state),
            &begun(status),
            &status.done.to_string(),
            &status.failed.to_string(),
            &show::bytes(status.bytes),
        ));
        if let Some(why) = &status.why {
            let why = show::cut(&printable_text(why), 74);
            text.push_str(&paint.dim(&format!("    {why}\n")));
        }
    }
    text
}

fn begun(status: &JobStatus) -> String {
    let time = status.begun.parse::<jiff::Timestamp>();
    time.map_or_else(
        |_| "-".to_owned(),
        |time| {
            let zoned = time.to_zoned(jiff::tz::TimeZone::system());
            zoned.strftime("%Y-%m-%d %H:%M").to_string()
        },
    )
}

/// Returns all there is to say of a job.
fn whole(job: &Job) -> String {
    let status = &job.status;
    let mut text = format!("{}\n", printable(job.name.as_bytes()));
    let mut row = |what: &str, value: String| {
        text.push_str(&format!("  {what:<9} {}\n", printable_text(&value)));
    };
    let why = status.why.as_ref().map(|why| format!(", {why}"));
    row(
        "state",
        format!("{}{}", word(status.state), why.unwrap_or_default()),
    );
    row(
        "begun",
        format!("{}, {} of work", begun(status), show::span(status.seconds)),
    );
    row(
        "urls",
        format!(
            "{} done, {} queued, {} in flight, {} given up, {} forbidden by robots.txt",
            status.done, status.queued, status.in_flight, status.failed, status.forbidden
        ),
    );
    row(
        "captures",
        format!(
            "{} new, {} unchanged; {} over the wire",
            status.captures,
            status.revisits,
            show::bytes(status.bytes)
        ),
    );
    row(
        "files",
        format!("{} WARC, {}", status.files, show::bytes(status.file_bytes)),
    );
    row(
        "queues",
        format!(
            "{} active, {} waiting, {} retired",
            status.active_queues, status.waiting_queues, status.retired_queues
        ),
    );
    if let Some(line) = slowest(status) {
        row("slowest", line.trim_start_matches("slowest: ").to_owned());
    }
    for (at, path) in job.reports.iter().enumerate() {
        let what = if at == 0 { "reports" } else { "" };
        row(what, path.display().to_string());
    }
    text
}

impl DriverContext {
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
                heed_pause(&mut status, &dir);
            }
            jobs.push(Job {
                name,
                dir,
                status,
                reports: Vec::new(),
            });
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
        if let Some((_, dir)) = newest {
            return Ok(dir.clone());
        }
        if let Some(elsewhere) = self.job_elsewhere(word)? {
            return Err(Trouble::usage(elsewhere));
        }
        let known: Vec<&str> = dirs.iter().rev().take(5).map(|(n, _)| &**n).collect();
        let known = match known.as_slice() {
            [] => "there is none yet".to_owned(),
            some => format!("there are {}", some.join(", ")),
        };
        Err(Trouble::usage(format!("no job {word:?}: {known}")))
    }

    /// Says which crawler has the order of a job that has no directory here, if one has.
    fn job_elsewhere(&self, word: &str) -> Result<Option<String>, Trouble> {
        for stage in self.crawls()? {
            let mut places = Vec::new();
            self.engine
                .each_place(&stage, &mut |place| places.push(place))?;
            for place in places {
                // What has just gone on is no longer there to be read.
                let Ok(manifest) = self.engine.manifest(&place) else {
                    continue;
                };
                let (job, harvest) = (manifest.job.as_deref(), manifest.harvest.as_deref());
                let whole = format!(
                    "{}-{}",
                    job.unwrap_or_default(),
                    harvest.unwrap_or_default()
                );
                if job != Some(word) && whole != word {
                    continue;
                }
                let worker = place.worker.as_deref().map(std::ffi::OsStr::new);
                let worker = worker.and_then(WorkerId::parse);
                let said = match &worker {
                    Some(worker) => format!(
                        "job {word} is in the hands of {stage} on {}: its directory is there; run this on that host",
                        worker.host()
                    ),
                    None => format!(
                        "job {word} waits in {stage} and has no directory here: `{}` leaves its order out before it begins",
                        self.command(&format!("hold {}", place.parcel))
                    ),
                };
                return Ok(Some(said));
            }
        }
        Ok(None)
    }

    /// Returns a line for each copy of the crawl: what it has, and on which hosts.
    fn crawlers(&self) -> Result<Vec<Crawler>, Trouble> {
        let lease = self.pipeline.shell(Crawl::NAME).lease.0;
        let mut crawlers = Vec::new();
        for stage in self.crawls()? {
            if stage == Crawl::NAME {
                continue;
            }
            let workers = self.engine.workers(&stage, lease)?;
            let living = workers.iter().filter(|worker| worker.alive);
            let ids = living.filter_map(|worker| WorkerId::parse(std::ffi::OsStr::new(&worker.id)));
            let mut hosts: Vec<String> = ids.map(|id| id.host().to_owned()).collect();
            hosts.sort();
            hosts.dedup();
            let depths = self.engine.depths(&stage)?;
            crawlers.push(Crawler {
                stage,
                hosts,
                in_hand: depths.working,
                waiting: depths.ready,
            });
        }
        Ok(crawlers)
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

    /// Tells whether somebody works in the crawl.
    pub(crate) fn is_crawling(&self) -> bool {
        let workers = self.crawling();
        workers.is_ok_and(|workers| !workers.living.is_empty())
    }

    /// Returns the crawl and its copies.
    pub(crate) fn crawls(&self) -> Result<Vec<String>, Trouble> {
        let mut stages = self.stages()?;
        stages.retain(|stage| ecluse_config::base_of(stage) == Crawl::NAME);
        Ok(stages)
    }

    /// Returns the processes of the crawl's workers.
    fn crawling(&self) -> Result<Workers, Trouble> {
        let lease = self.pipeline.shell(Crawl::NAME).lease.0;
        let mut workers = Workers::default();
        for stage in self.crawls()? {
            for worker in self.engine.workers(&stage, lease)? {
                let Some(id) = WorkerId::parse(std::ffi::OsStr::new(&worker.id)) else {
                    continue;
                };
                let pids = match worker.alive {
                    true => &mut workers.living,
                    false => &mut workers.dead,
                };
                pids.push(id.pid().to_owned());
            }
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

/// Says `paused` of a job that a person paused, also while nobody works on it.
fn heed_pause(status: &mut JobStatus, dir: &Path) {
    if matches!(status.state, JobState::Stopped | JobState::Running)
        && let Some(paused) = told(dir, PAUSE_FILE)
    {
        status.state = JobState::Paused;
        status.why = Some(by_whom("paused", &paused));
    }
}

impl DriverContext {
    /// Returns what paused jobs need of a person. Where the whole stage is paused, that is told once, of the stage.
    pub(crate) fn needs_of_jobs(&self, jobs: &[Job]) -> Result<Vec<Need>, Trouble> {
        for stage in self.crawls()? {
            if self.engine.paused(&stage)?.is_some() {
                return Ok(Vec::new());
            }
        }
        let paused = jobs
            .iter()
            .filter(|job| job.status.state == JobState::Paused);
        let need = |job: &Job| {
            let why = job.status.why.as_deref().unwrap_or("it does not say why");
            let by = why.strip_prefix("paused ").map(|by| format!(" {by}"));
            let by = by.unwrap_or_else(|| format!(": {why}"));
            let command = match told(&job.dir, PAUSE_FILE) {
                Some(_) => self.command(&format!("job resume {}", show::word(&job.name))),
                None => "make room; it goes on by itself".to_owned(),
            };
            Need::of_stage(
                Crawl::NAME,
                format!("job {} is paused{by}", job.name),
                command,
            )
        };
        Ok(paused.map(need).collect())
    }
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
            reports: Vec::new(),
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
    fn jobs_are_listed_within_eighty_columns() {
        let job = Job {
            name: "a.example-20260101000000".into(),
            dir: PathBuf::new(),
            status: JobStatus {
                begun: "2026-01-01T00:00:00Z".into(),
                why: Some("paused by anne: \x1b[2J".repeat(9)),
                ..running()
            },
            reports: vec!["reports/seeds-report.txt".into()],
        };
        let text = overview(std::slice::from_ref(&job), Paint { color: false });
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        assert!(text.contains("running") && text.contains("paused by anne"));
        let text = whole(&job);
        for part in ["12 done, 30 queued", "seeds-report.txt", "waits 3.2s"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains('\x1b'), "{text}");
    }
}
