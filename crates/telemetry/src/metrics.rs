//! The figures of one stage.
//!
//! Counting never waits, and a scrape sees each figure whole. A scrape between two figures of one parcel may see the first without
//! the second; the next one sees both.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use crate::registry::{Families, Registry};

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
pub struct DepthGauges {
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

impl DepthGauges {
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

/// The figures of one stage; a clone counts into the same ones.
#[derive(Clone, Debug)]
pub struct Metrics {
    stage: Arc<str>,
    figures: Arc<Figures>,
}

/// A gauge of whole things.
pub(crate) type Count = Gauge<u64, AtomicU64>;
/// A gauge of seconds.
pub(crate) type Seconds = Gauge<f64, AtomicU64>;

#[derive(Debug)]
struct Figures {
    parcels: [Count; DepthKind::ALL.len()],
    oldest: [Seconds; DepthKind::ALL.len()],
    results: [Counter; ResultKind::ALL.len()],
    done_bytes: Counter,
    duration: Histogram,
    paused: Count,
    halted: Count,
    blocked: [Count; Cause::ALL.len()],
    reaped: Counter,
    batch_wait: Seconds,
    passing: Mutex<PassingFigures>,
    /// Apart from the others: the answer may take its time, and counting never waits.
    archive: Mutex<Option<ArchiveProbe>>,
}

/// The figures that are not there all the time.
#[derive(Debug, Default)]
pub(crate) struct PassingFigures {
    /// When a parcel was last done, since the epoch.
    pub(crate) last_success: Option<Duration>,
    /// The crawl jobs that run here.
    pub(crate) crawls: BTreeMap<String, CrawlFigures>,
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

impl Metrics {
    /// The figures of a stage, of which nothing is shown: those that are come from [`Registry::stage`].
    pub fn new(stage: &str) -> Metrics {
        Registry::new(env!("CARGO_PKG_VERSION")).stage(stage)
    }

    /// The figures of a stage among those of all; each is there from the start, as zero.
    pub(crate) fn among(families: &Families, stage: &str) -> Metrics {
        let of_stage = || vec![("stage", stage.to_owned())];
        let of = |label, value: &str| vec![("stage", stage.to_owned()), (label, value.to_owned())];
        let figures = Figures {
            parcels: DepthKind::ALL.map(|state| {
                families
                    .parcels
                    .get_or_create_owned(&of("state", state.as_str()))
            }),
            oldest: DepthKind::ALL.map(|state| {
                families
                    .oldest
                    .get_or_create_owned(&of("state", state.as_str()))
            }),
            results: ResultKind::ALL.map(|result| {
                families
                    .done
                    .get_or_create_owned(&of("result", result.as_str()))
            }),
            done_bytes: families.done_bytes.get_or_create_owned(&of_stage()),
            duration: families.duration.get_or_create_owned(&of_stage()),
            paused: families.paused.get_or_create_owned(&of_stage()),
            halted: families.halted.get_or_create_owned(&of_stage()),
            blocked: Cause::ALL.map(|cause| {
                families
                    .blocked
                    .get_or_create_owned(&of("cause", cause.as_str()))
            }),
            reaped: families.reaped.get_or_create_owned(&of_stage()),
            batch_wait: families.batch_wait.get_or_create_owned(&of_stage()),
            passing: Mutex::default(),
            archive: Mutex::default(),
        };
        Metrics {
            stage: stage.into(),
            figures: Arc::new(figures),
        }
    }

    /// The stage's name.
    pub fn stage(&self) -> &str {
        &self.stage
    }

    /// Counts a parcel done: its bytes, its time, its result, and the moment.
    pub fn done(&self, bytes: u64, took: Duration) {
        self.done_at(bytes, took, SystemTime::now());
    }

    /// As [`Metrics::done`], with the clock of the caller.
    pub fn done_at(&self, bytes: u64, took: Duration, at: SystemTime) {
        self.figures.done_bytes.inc_by(bytes);
        self.figures.duration.observe(took.as_secs_f64());
        self.last_success(at);
        self.result(ResultKind::Done);
    }

    /// Counts a parcel that left the worker in another way; [`Metrics::done`] counts its own.
    pub fn result(&self, result: ResultKind) {
        self.figures.results[result as usize].inc();
    }

    /// Sets when a parcel was last done; a stage that starts again knows it from its receipts.
    pub fn last_success(&self, at: SystemTime) {
        let since_epoch = at.duration_since(UNIX_EPOCH).ok();
        let mut passing = self.passing();
        passing.last_success = passing.last_success.max(since_epoch);
    }

    /// Sets what is in the work directory.
    pub fn depths(&self, depths: &DepthGauges) {
        for state in DepthKind::ALL {
            let Depth { parcels, oldest } = depths.of(state);
            self.figures.parcels[state as usize].set(parcels);
            let oldest = oldest.unwrap_or_default().as_secs_f64();
            self.figures.oldest[state as usize].set(oldest);
        }
    }

    /// Says that a cause keeps the stage from claiming, or no longer does.
    pub fn blocked(&self, cause: Cause, blocks: bool) {
        let blocks = u64::from(blocks);
        self.figures.blocked[cause as usize].set(blocks);
        match cause {
            Cause::Paused => self.figures.paused.set(blocks),
            Cause::Halted => self.figures.halted.set(blocks),
            Cause::HighMark | Cause::Space => 0,
        };
    }

    /// Counts a dead worker settled.
    pub fn reaped(&self) {
        self.figures.reaped.inc();
    }

    /// Says how long the stage gathers parcels at most.
    pub fn batch_wait(&self, wait: Duration) {
        self.figures.batch_wait.set(wait.as_secs_f64());
    }

    /// Sets the figures of a crawl job; without any, the job is no longer running here.
    pub fn crawl(&self, job: &str, figures: Option<CrawlFigures>) {
        let mut passing = self.passing();
        match figures {
            Some(figures) => passing.crawls.insert(job.to_owned(), figures),
            None => passing.crawls.remove(job),
        };
    }

    /// Says how the figures of the archive are asked for: at every scrape, so that a paused stage tells the truth too.
    pub fn archive(&self, ask: impl Fn() -> Option<ArchiveFigures> + Send + 'static) {
        *unpoisoned(&self.figures.archive) = Some(ArchiveProbe(Box::new(ask)));
    }

    pub(crate) fn archive_figures(&self) -> Option<ArchiveFigures> {
        let archive = unpoisoned(&self.figures.archive);
        archive.as_ref().and_then(|probe| (probe.0)())
    }

    pub(crate) fn passing(&self) -> MutexGuard<'_, PassingFigures> {
        unpoisoned(&self.figures.passing)
    }
}

/// No figure is ever half set, and a panic elsewhere must not end them.
fn unpoisoned<T>(figures: &Mutex<T>) -> MutexGuard<'_, T> {
    figures.lock().unwrap_or_else(PoisonError::into_inner)
}
