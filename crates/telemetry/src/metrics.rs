//! The figures of one stage.
//!
//! All of them are atomics: counting never waits, and a scrape sees each figure whole. A scrape
//! between two figures of one parcel may see the first without the second; the next one sees both.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::family::{Exposition, Family, write_sample};
use crate::registry::Registry;

/// Where a parcel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DepthKind {
    /// It can be claimed.
    Waiting,
    /// A worker has it.
    Working,
    /// It waits for its time.
    Deferred,
    /// It waits for a person.
    Held,
}

/// How a parcel left a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultKind {
    /// Committed and handed over.
    Done,
    /// Another worker had committed it.
    Duplicate,
    /// The world was at fault.
    Deferred,
    /// The parcel was at fault.
    Held,
    /// Given back unfinished, on request.
    GivenBack,
    /// Its worker died.
    Died,
}

/// Why a stage claims nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// An operator said so.
    Paused,
    /// The destination is full.
    HighMark,
    /// The disk is.
    Space,
    /// The machine failed.
    Halted,
}

impl DepthKind {
    /// All of them.
    pub const ALL: [DepthKind; 4] = [
        DepthKind::Waiting,
        DepthKind::Working,
        DepthKind::Deferred,
        DepthKind::Held,
    ];

    /// The label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            DepthKind::Waiting => "waiting",
            DepthKind::Working => "working",
            DepthKind::Deferred => "deferred",
            DepthKind::Held => "held",
        }
    }
}

impl ResultKind {
    /// All of them.
    pub const ALL: [ResultKind; 6] = [
        ResultKind::Done,
        ResultKind::Duplicate,
        ResultKind::Deferred,
        ResultKind::Held,
        ResultKind::GivenBack,
        ResultKind::Died,
    ];

    /// The label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            ResultKind::Done => "done",
            ResultKind::Duplicate => "duplicate",
            ResultKind::Deferred => "deferred",
            ResultKind::Held => "held",
            ResultKind::GivenBack => "given-back",
            ResultKind::Died => "died",
        }
    }
}

impl Cause {
    /// All of them.
    pub const ALL: [Cause; 4] = [Cause::Paused, Cause::HighMark, Cause::Space, Cause::Halted];

    /// The label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Cause::Paused => "paused",
            Cause::HighMark => "high-mark",
            Cause::Space => "space",
            Cause::Halted => "halted",
        }
    }
}

/// What is in a work directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depths {
    /// What can be claimed.
    pub waiting: Depth,
    /// What is claimed.
    pub working: Depth,
    /// What waits for its time.
    pub deferred: Depth,
    /// What waits for a person.
    pub held: Depth,
}

/// So many parcels, and the age of the oldest when it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// How many.
    pub parcels: u64,
    /// How long the oldest has been there.
    pub oldest: Option<Duration>,
}

impl Depths {
    /// The depth of one state.
    pub const fn of(&self, state: DepthKind) -> Depth {
        match state {
            DepthKind::Waiting => self.waiting,
            DepthKind::Working => self.working,
            DepthKind::Deferred => self.deferred,
            DepthKind::Held => self.held,
        }
    }
}

/// Upper bounds of the histogram in milliseconds, with the label each is written as. A small file
/// takes milliseconds, a large one minutes, a crawl hours.
const BUCKETS: [(u64, &str); 12] = [
    (1, "0.001"),
    (5, "0.005"),
    (25, "0.025"),
    (100, "0.1"),
    (500, "0.5"),
    (2_500, "2.5"),
    (10_000, "10.0"),
    (60_000, "60.0"),
    (300_000, "300.0"),
    (1_800_000, "1800.0"),
    (7_200_000, "7200.0"),
    (86_400_000, "86400.0"),
];

/// The figures of one stage; a clone counts into the same ones.
#[derive(Clone, Debug)]
pub struct Metrics {
    stage: Arc<str>,
    figures: Arc<Figures>,
}

#[derive(Debug, Default)]
struct Figures {
    parcels: [AtomicU64; DepthKind::ALL.len()],
    oldest_millis: [AtomicU64; DepthKind::ALL.len()],
    results: [AtomicU64; ResultKind::ALL.len()],
    done_bytes: AtomicU64,
    durations: [AtomicU64; BUCKETS.len()],
    longer: AtomicU64,
    duration_nanos: AtomicU64,
    /// Since the epoch; zero before the first success.
    last_success_millis: AtomicU64,
    blocked: [AtomicBool; Cause::ALL.len()],
    reaped: AtomicU64,
    batch_wait_millis: AtomicU64,
    crawls: Mutex<BTreeMap<String, CrawlFigures>>,
    archive: Mutex<Option<ArchiveProbe>>,
}

/// What the manifest says of the archive's copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArchiveFigures {
    /// Nothing is removed.
    pub frozen: bool,
    /// Copies found bad.
    pub bad: u64,
    /// Copies that could not be read.
    pub unread: u64,
}

/// Asks for the figures of the archive.
struct ArchiveProbe(Box<dyn Fn() -> Option<ArchiveFigures> + Send>);

impl std::fmt::Debug for ArchiveProbe {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("ArchiveProbe")
    }
}

/// The figures of a running crawl job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CrawlFigures {
    /// Different URLs that were ever queued.
    pub known: u64,
    /// URLs that wait.
    pub queued: u64,
    /// URLs being fetched.
    pub in_flight: u64,
    /// URLs fetched.
    pub done: u64,
    /// URLs given up.
    pub failed: u64,
    /// URLs that robots.txt forbids.
    pub forbidden: u64,
    /// Responses stored whole.
    pub captures: u64,
    /// Responses stored as references.
    pub revisits: u64,
    /// Bytes received.
    pub bytes: u64,
    /// Queues being worked on.
    pub active_queues: u64,
    /// Queues that wait.
    pub waiting_queues: u64,
    /// Queues whose budget is spent.
    pub retired_queues: u64,
    /// How long the slowest group must still wait.
    pub slowest_wait: Duration,
}

impl CrawlFigures {
    fn write(&self, family: Family, job: &[(&str, &str); 2], text: &mut String) {
        let mut by = |label: &'static str, value: &'static str, count: u64| {
            let labels = [job[0], job[1], (label, value)];
            write_sample(text, family.name(), &labels, &count);
        };
        match family {
            Family::CrawlUrls => {
                by("state", "known", self.known);
                by("state", "queued", self.queued);
                by("state", "in-flight", self.in_flight);
                by("state", "done", self.done);
                by("state", "failed", self.failed);
                by("state", "forbidden", self.forbidden);
            }
            Family::CrawlCaptures => {
                by("kind", "stored", self.captures);
                by("kind", "revisit", self.revisits);
            }
            Family::CrawlQueues => {
                by("state", "active", self.active_queues);
                by("state", "waiting", self.waiting_queues);
                by("state", "retired", self.retired_queues);
            }
            Family::CrawlBytes => write_sample(text, family.name(), job, &self.bytes),
            Family::CrawlWait => {
                let millis = u64::try_from(self.slowest_wait.as_millis()).unwrap_or(u64::MAX);
                write_sample(text, family.name(), job, &seconds(millis));
            }
            _ => {}
        }
    }
}

impl Metrics {
    /// The figures of a stage, all zero.
    pub fn new(stage: &str) -> Metrics {
        Metrics {
            stage: stage.into(),
            figures: Arc::default(),
        }
    }

    /// The stage they are of.
    pub fn stage(&self) -> &str {
        &self.stage
    }

    /// Counts a parcel as done: its bytes, its time, its result, and the moment.
    pub fn done(&self, bytes: u64, took: Duration) {
        self.done_at(bytes, took, SystemTime::now());
    }

    /// As [`Metrics::done`], with the clock of the caller.
    pub fn done_at(&self, bytes: u64, took: Duration, at: SystemTime) {
        let figures = &self.figures;
        figures.done_bytes.fetch_add(bytes, Ordering::Relaxed);
        let bucket = BUCKETS
            .iter()
            .position(|(bound, _)| took <= Duration::from_millis(*bound));
        let bucket = bucket.map_or(&figures.longer, |index| &figures.durations[index]);
        bucket.fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        figures.duration_nanos.fetch_add(nanos, Ordering::Relaxed);
        self.last_success(at);
        self.result(ResultKind::Done);
    }

    /// Counts a parcel that left the worker in another way; [`Metrics::done`] counts its own.
    pub fn result(&self, result: ResultKind) {
        self.figures.results[result as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Sets when a parcel was last done; a stage that starts again knows it from its receipts.
    pub fn last_success(&self, at: SystemTime) {
        let since_epoch = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let millis = u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX);
        self.figures
            .last_success_millis
            .fetch_max(millis, Ordering::Relaxed);
    }

    /// Sets what is in the work directory.
    pub fn depths(&self, depths: &Depths) {
        for state in DepthKind::ALL {
            let Depth { parcels, oldest } = depths.of(state);
            let millis = oldest.unwrap_or_default().as_millis();
            let millis = u64::try_from(millis).unwrap_or(u64::MAX);
            self.figures.parcels[state as usize].store(parcels, Ordering::Relaxed);
            self.figures.oldest_millis[state as usize].store(millis, Ordering::Relaxed);
        }
    }

    /// Says that a cause keeps the stage from claiming, or no longer does.
    pub fn blocked(&self, cause: Cause, blocks: bool) {
        self.figures.blocked[cause as usize].store(blocks, Ordering::Relaxed);
    }

    /// Counts a dead worker settled.
    pub fn reaped(&self) {
        self.figures.reaped.fetch_add(1, Ordering::Relaxed);
    }

    /// Says how long the stage gathers parcels at most.
    pub fn batch_wait(&self, wait: Duration) {
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let figure = &self.figures.batch_wait_millis;
        figure.store(millis, Ordering::Relaxed);
    }

    /// Sets the figures of a crawl job; without any, the job is no longer running here.
    pub fn crawl(&self, job: &str, figures: Option<CrawlFigures>) {
        let mut crawls = self
            .figures
            .crawls
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match figures {
            Some(figures) => crawls.insert(job.to_owned(), figures),
            None => crawls.remove(job),
        };
    }

    /// Says how the figures of the archive are asked for: at every scrape, so that a paused stage tells the truth too.
    pub fn archive(&self, ask: impl Fn() -> Option<ArchiveFigures> + Send + 'static) {
        let mut archive = self
            .figures
            .archive
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *archive = Some(ArchiveProbe(Box::new(ask)));
    }

    fn archive_figures(&self) -> Option<ArchiveFigures> {
        let archive = self
            .figures
            .archive
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        archive.as_ref().and_then(|probe| (probe.0)())
    }

    /// Renders the figures of this stage alone, in OpenMetrics.
    pub fn render(&self) -> String {
        let registry = Registry::new(env!("CARGO_PKG_VERSION"));
        registry.add(self);
        registry.render(Exposition::OpenMetrics)
    }

    /// Writes the samples of one family.
    pub(crate) fn write_samples(&self, family: Family, text: &mut String) {
        let figures = &self.figures;
        let name = family.name();
        let stage = ("stage", self.stage());
        let load = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        let is_blocked =
            |cause: Cause| u8::from(figures.blocked[cause as usize].load(Ordering::Relaxed));
        match family {
            Family::Build => {}
            Family::Parcels => {
                for state in DepthKind::ALL {
                    let labels = [stage, ("state", state.as_str())];
                    write_sample(text, name, &labels, &load(&figures.parcels[state as usize]));
                }
            }
            Family::Oldest => {
                for state in DepthKind::ALL {
                    let labels = [stage, ("state", state.as_str())];
                    let seconds = seconds(load(&figures.oldest_millis[state as usize]));
                    write_sample(text, name, &labels, &seconds);
                }
            }
            Family::Done => {
                for result in ResultKind::ALL {
                    let labels = [stage, ("result", result.as_str())];
                    let count = load(&figures.results[result as usize]);
                    write_sample(text, name, &labels, &count);
                }
            }
            Family::DoneBytes => write_sample(text, name, &[stage], &load(&figures.done_bytes)),
            Family::Duration => self.write_durations(name, text),
            Family::LastSuccess => {
                let millis = load(&figures.last_success_millis);
                if millis > 0 {
                    write_sample(text, name, &[stage], &seconds(millis));
                }
            }
            Family::Paused => write_sample(text, name, &[stage], &is_blocked(Cause::Paused)),
            Family::Halted => write_sample(text, name, &[stage], &is_blocked(Cause::Halted)),
            Family::Blocked => {
                for cause in Cause::ALL {
                    let labels = [stage, ("cause", cause.as_str())];
                    write_sample(text, name, &labels, &is_blocked(cause));
                }
            }
            Family::Reaped => write_sample(text, name, &[stage], &load(&figures.reaped)),
            Family::Frozen => {
                if let Some(figures) = self.archive_figures() {
                    write_sample(text, name, &[stage], &u8::from(figures.frozen));
                }
            }
            Family::Copies => {
                if let Some(ArchiveFigures { bad, unread, .. }) = self.archive_figures() {
                    write_sample(text, name, &[stage, ("found", "bad")], &bad);
                    write_sample(text, name, &[stage, ("found", "unread")], &unread);
                }
            }
            Family::BatchWait => {
                let wait = seconds(load(&figures.batch_wait_millis));
                write_sample(text, name, &[stage], &wait);
            }
            Family::CrawlUrls
            | Family::CrawlCaptures
            | Family::CrawlBytes
            | Family::CrawlQueues
            | Family::CrawlWait => {
                let crawls = figures
                    .crawls
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                for (job, figures) in crawls.iter() {
                    // Not `job`: Prometheus gives that label to what it scrapes, and would call ours `exported_job`.
                    figures.write(family, &[stage, ("crawl_job", job)], text);
                }
            }
        }
    }

    fn write_durations(&self, name: &str, text: &mut String) {
        let figures = &self.figures;
        let bucket_name = format!("{name}_bucket");
        let stage = ("stage", self.stage());
        // The count is the sum of the buckets, so that the two agree while others are counting.
        let mut count = 0;
        for ((_, bound), figure) in BUCKETS.iter().zip(&figures.durations) {
            count += figure.load(Ordering::Relaxed);
            write_sample(text, &bucket_name, &[stage, ("le", bound)], &count);
        }
        count += figures.longer.load(Ordering::Relaxed);
        write_sample(text, &bucket_name, &[stage, ("le", "+Inf")], &count);
        write_sample(text, &format!("{name}_count"), &[stage], &count);
        let nanos = figures.duration_nanos.load(Ordering::Relaxed);
        let sum = format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
        write_sample(text, &format!("{name}_sum"), &[stage], &sum);
    }
}

fn seconds(millis: u64) -> String {
    format!("{}.{:03}", millis / 1_000, millis % 1_000)
}
