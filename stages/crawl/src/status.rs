//! How a job is: what `status.json` in its directory says, for people and for the driver.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use ecluse_stage::CrawlFigures;
use serde::{Deserialize, Serialize};

/// The name of the file in the job's directory.
pub const STATUS_FILE: &str = "status.json";

/// What a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    /// It is being set up, or opened again.
    #[default]
    Starting,
    /// It fetches.
    Running,
    /// It fetches nothing until something is well again; `why` says what.
    Paused,
    /// It was stopped, and goes on when a worker takes it up again.
    Stopped,
    /// Its last files and reports are written.
    Finishing,
    /// It is done.
    Finished,
}

/// How a job is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct JobStatus {
    /// The job.
    pub job: String,
    /// Its harvest.
    pub harvest: String,
    /// `high`, `normal` or `low`.
    pub priority: String,
    /// What it does.
    pub state: JobState,
    /// Why it is paused, or why it ended before everything was fetched.
    pub why: Option<String>,
    /// The process that works on it.
    pub pid: u32,
    /// When it was begun, RFC 3339.
    pub begun: String,
    /// When this was written, RFC 3339.
    pub updated: String,
    /// Seconds of work on it, breaks not counted.
    pub seconds: f64,
    /// Different URLs that were ever queued.
    pub known: u64,
    /// URLs that wait.
    pub queued: u64,
    /// URLs being fetched.
    pub in_flight: u64,
    /// How often a URL's turn came to be fetched, since this process took the job up.
    pub handed_out: u64,
    /// URLs fetched.
    pub done: u64,
    /// URLs given up.
    pub failed: u64,
    /// URLs that robots.txt forbids.
    pub forbidden: u64,
    /// Responses stored whole.
    pub captures: u64,
    /// Responses stored as references to earlier ones.
    pub revisits: u64,
    /// Bytes that came over the wire.
    pub bytes: u64,
    /// (W)ARC files closed, and the one being written.
    pub files: u64,
    /// Bytes in them.
    pub file_bytes: u64,
    /// Queues that ever were.
    pub queues: u64,
    /// Queues that are being worked on.
    pub active_queues: u64,
    /// Queues with work that wait for their turn or sleep.
    pub waiting_queues: u64,
    /// Queues whose budget is spent.
    pub retired_queues: u64,
    /// URLs in these.
    pub retired_urls: u64,
    /// URLs a second, lately.
    pub urls_per_second: f64,
    /// Bytes a second, lately.
    pub bytes_per_second: f64,
    /// The group that must wait longest.
    pub slowest: Option<Slowest>,
    /// The last URL that was fetched.
    pub last_url: String,
}

/// The group that must wait longest.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Slowest {
    /// Its name.
    pub group: String,
    /// Why it waits, in a few words.
    pub why: String,
    /// Seconds until it may be asked.
    pub waits: f64,
    /// Seconds between two requests.
    pub delay: f64,
    /// URLs of its queues, as far as they are active.
    pub queues: u64,
}

impl JobStatus {
    /// The same as metrics.
    pub(crate) fn figures(&self) -> CrawlFigures {
        let wait = self.slowest.as_ref().map_or(0.0, |slowest| slowest.waits);
        CrawlFigures {
            known: self.known,
            queued: self.queued,
            in_flight: self.in_flight,
            done: self.done,
            failed: self.failed,
            forbidden: self.forbidden,
            captures: self.captures,
            revisits: self.revisits,
            bytes: self.bytes,
            active_queues: self.active_queues,
            waiting_queues: self.waiting_queues,
            retired_queues: self.retired_queues,
            slowest_wait: Duration::try_from_secs_f64(wait).unwrap_or_default(),
        }
    }

    /// Reads the status of the job in a directory; none if it has none yet.
    ///
    /// # Errors
    /// When the file cannot be read or makes no sense.
    pub fn read(job_dir: &Path) -> io::Result<Option<Self>> {
        match std::fs::read(job_dir.join(STATUS_FILE)) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// What was done lately, for rates.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    samples: VecDeque<(Instant, u64, u64)>,
}

/// How far back rates look.
const WINDOW: Duration = Duration::from_secs(20);

impl Rates {
    /// Notes how much there is by now.
    pub(crate) fn see(&mut self, urls: u64, bytes: u64) {
        let now = Instant::now();
        while self.samples.len() > 2
            && self
                .samples
                .front()
                .is_some_and(|(at, ..)| now.duration_since(*at) > WINDOW)
        {
            self.samples.pop_front();
        }
        self.samples.push_back((now, urls, bytes));
    }

    pub(crate) fn urls_per_second(&self) -> f64 {
        self.rate(|sample| sample.1)
    }

    pub(crate) fn bytes_per_second(&self) -> f64 {
        self.rate(|sample| sample.2)
    }

    fn rate(&self, of: impl Fn(&(Instant, u64, u64)) -> u64) -> f64 {
        let (Some(first), Some(last)) = (self.samples.front(), self.samples.back()) else {
            return 0.0;
        };
        let seconds = last.0.duration_since(first.0).as_secs_f64();
        if seconds < 0.05 {
            return 0.0;
        }
        of(last).saturating_sub(of(first)) as f64 / seconds
    }
}
