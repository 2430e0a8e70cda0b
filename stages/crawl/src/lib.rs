//! Fetches what a job order asks for, and keeps every byte.
//!
//! * **Reads** a parcel with a job order, `order.toml`, and maybe seed files beside it; what librarians force out.
//! * **Writes** (W)ARC files into the harvested directory as each closes, then the job's metadata file; and a parcel of kind
//!   `results` for each stage in `back`: what became of each domain.
//! * **Never** alters a byte that came over the wire, never asks a server sooner than its manners allow, and never for what
//!   librarians force out.
//! * **Defers** while another process works on the job. **Holds** an order that makes no sense.
//! * **Again**: a job goes on where its last commit was; a finished one is not crawled again.

mod checkpoint;
mod control;
mod earlier;
mod engine;
mod explain;
mod fetch_task;
mod finish;
mod forced;
mod forced_seeds;
mod guesses;
mod in_force;
mod job;
mod link_filter;
mod logs;
mod manners;
mod notes;
mod online;
mod page_jars;
mod place;
mod pool;
mod readiness;
mod records;
mod results;
mod robots;
mod settings;
mod status;
mod turn;
mod warcs;
mod writer;

use std::path::{Path, PathBuf};
use std::time::Duration;

use ecluse_names::ForcedRules;
use ecluse_stage::{Failure, Home, Outbox, Parcel, ParcelId, SettingsCheck, Stage};

use crate::engine::{Engine, Left, Surroundings};
use crate::job::Job;
use crate::manners::Capacity;
use crate::turn::{Urgencies, Way};

pub use crate::control::{CONTROL, END_FILE, PAUSE_FILE, by_whom, told};
pub use crate::explain::{Explanation, explain};
pub use crate::settings::Settings;
pub use crate::status::{JobState, JobStatus, STATUS_FILE, Slowest};

/// The stage.
pub struct Crawl {
    settings: Settings,
    home: Home,
    urgencies: Urgencies,
}

impl Stage for Crawl {
    const NAME: &'static str = "crawl";
    const ABOUT: &'static str = "Fetches what a job order asks for, and keeps every byte";
    type Settings = Settings;
    const BY_URGENCY: bool = true;

    fn urgency(&mut self, parcel: &ParcelId, path: &Path) -> u8 {
        self.urgencies.of(parcel.as_str(), path) as u8
    }

    fn check(settings: &Settings, home: &Home, check: &mut SettingsCheck<'_>) {
        check.directory("archive.harvested[0]", home.archive.crawled());
        if let Err(fault) = ForcedRules::read(&home.path(&settings.forced)) {
            check.error("stage.crawl.forced", fault);
        }
    }

    fn open(settings: Settings, home: &Home) -> Result<Self, Failure> {
        let harvested = home.archive.crawled();
        if harvested.is_relative() {
            // Made before ingest hangs its bell there. A disk of its own must be mounted by somebody.
            std::fs::create_dir_all(home.path(harvested))?;
        }
        Ok(Self {
            settings,
            home: home.clone(),
            urgencies: Urgencies::default(),
        })
    }

    fn process(&mut self, parcel: &Parcel, outbox: &mut Outbox) -> Result<(), Failure> {
        let (job, forced_out) = Job::open(parcel, &self.settings, &self.home)?;
        if forced_out > 0 {
            outbox.fact("forced-out", forced_out);
        }
        let Some(job) = job else {
            tracing::warn!(forced_out, "nothing is left of the order: no job");
            outbox.consume();
            return Ok(());
        };
        let way = Way::new(
            &self.home,
            &self.home.stage,
            &self.urgencies,
            parcel.id().as_str(),
            job.order.priority,
        );
        let is_in_the_way = || way.is_in_the_way();
        let stage_paused = || Ok(self.home.engine.paused(&self.home.stage)?);
        let around = Surroundings {
            harvested: self.home.path(self.home.archive.crawled()),
            digests: self.home.path(&self.settings.digests),
            forced: self.home.path(&self.settings.forced),
            pace_table: self
                .home
                .path(&self.settings.jobs)
                .join(".paces")
                .join(host_name()),
            capacity: Capacity {
                active_queues: self.settings.active_queues,
                memory: self.settings.frontier_memory.get(),
            },
            threads: self.settings.threads(),
            commit_every: self.settings.commit.get(),
            floor: self.home.shell.min_free,
            host: host_name(),
            outbox,
            metrics: self.home.metrics.clone(),
            is_in_the_way: &is_in_the_way,
            stage_paused: &stage_paused,
        };
        let (facts, results) = crawl(&job, &around)?;
        for stage in &self.home.back {
            results::send(&results, &facts, stage, outbox)?;
        }
        outbox.fact("job", job.order.job.as_str());
        outbox.fact("harvest", job.order.harvest.as_str());
        outbox.fact("ended", facts.how.as_str());
        outbox.fact("known", facts.known);
        outbox.consume();
        Ok(())
    }

    fn writes(settings: &Settings, home: &Home) -> Vec<PathBuf> {
        let digests = home.path(&settings.digests);
        let harvested = home.path(home.archive.crawled());
        let mut paths = vec![harvested, home.path(&settings.jobs)];
        paths.extend(digests.parent().map(PathBuf::from));
        paths.dedup();
        paths
    }

    fn needs_network(_settings: &Settings) -> bool {
        true
    }
}

/// Threads that write large responses to disk while they come.
const SPOOL_THREADS: usize = 8;

/// Crawls a job to its end.
fn crawl(
    job: &Job,
    around: &Surroundings<'_>,
) -> Result<(ecluse_report::JobFacts, results::SiteResults), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(SPOOL_THREADS)
        .enable_all()
        .build()?;
    let local = tokio::task::LocalSet::new();
    let lived = local.block_on(&runtime, async {
        let mut engine = Engine::open(job, around)?;
        let left = engine.live().await;
        match left.inspect_err(|failure| engine.tell_failed(&failure.reason))? {
            Left::Stopped => Err(Failure::give_back()),
            Left::Ended => {
                let finished = finish::finish(around, &mut engine)?;
                engine.tell_finished();
                Ok(finished)
            }
        }
    });
    // What still sleeps in it waits for nobody.
    runtime.shutdown_timeout(Duration::from_millis(100));
    lived
}

/// The name of this machine, as it may stand in a file name.
fn host_name() -> String {
    let name = std::env::var("ECLUSE_HOST").unwrap_or_else(|_| {
        rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned()
    });
    let safe = |letter: char| match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '-' => letter,
        _ => '_',
    };
    name.chars().map(safe).take(60).collect()
}
