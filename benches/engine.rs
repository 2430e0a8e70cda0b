//! What does the engine beyond one machine cost, and is it ever what the work waits for?
//!
//! `cargo bench -p ecluse-engine --bench engine [-- [--dir DIR] [--only PART] [--parcels N] [--rounds N] [--tickets N] [--no-postgres]]`
//! where a part is `parcels`, `reconcile`, `workers` or `crawlers`.
//!
//! Three NATS servers on loopback keep every message together, each synced; one S3 store. *Parcels* pass through three stages,
//! a hundred to a commit, beside JetStream alone with the same settings, the store alone, the directories and PostgreSQL. *Reconcile* finds what a broker
//! lost. *Workers* on two hosts share the work. *Crawlers* wait, seventy of them. The bars are in `docs/benchmarks.md`.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a bench may die, and makes and removes its own files"
)]

#[path = "engine/bare.rs"]
mod bare;
#[path = "engine/crews.rs"]
mod crews;
#[path = "page.rs"]
mod page;
#[path = "postgres.rs"]
mod postgres;
#[path = "engine/reconcile.rs"]
mod reconcile;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ecluse_config::{EngineSettings, Pipeline};
use ecluse_engine::JetstreamEngine;
use ecluse_spool::{
    Engine, ParcelId, Spool, SpoolError, Work, WorkTree, WorkerLimits, WorkerTerms,
};
use ecluse_testkit::nats_cluster::NatsCluster;
use ecluse_testkit::servers::EngineServers;
use page::Page;

/// The stages that parcels pass through, and where they arrive.
const STAGES: [&str; 3] = ["one", "two", "three"];
const END: &str = "end";
/// How many parcels share a commit.
const GROUP: usize = 100;
/// How many workers each stage has.
const WORKERS: usize = 2;

fn main() {
    let options = Options::parse();
    let dir = options.dir.join(format!("engine-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let mut page = Page::begin("engine");
    if options.wants("parcels") {
        parcels(&mut page, &options, &dir);
    }
    if options.wants("reconcile") {
        reconcile::measure(&mut page, &options, &dir);
    }
    if options.wants("workers") {
        crews::workers(&mut page, &dir);
    }
    if options.wants("crawlers") {
        crews::crawlers(&mut page, &dir);
    }
    fs::remove_dir_all(&dir).unwrap();
    page.end(options.only.is_none() && options.postgres && postgres::programs().is_some());
}

pub(crate) struct Options {
    dir: PathBuf,
    only: Option<String>,
    parcels: usize,
    rounds: u32,
    tickets: usize,
    postgres: bool,
}

impl Options {
    fn wants(&self, part: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == part)
    }

    fn parse() -> Self {
        let mut options = Self {
            dir: PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../.bench"),
            only: None,
            parcels: 2_000,
            rounds: 3,
            tickets: 1_000_000,
            postgres: true,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--dir" => options.dir = words.next().unwrap().into(),
                "--only" => options.only = words.next(),
                "--parcels" => options.parcels = words.next().unwrap().parse().unwrap(),
                "--rounds" => options.rounds = words.next().unwrap().parse().unwrap(),
                "--tickets" => options.tickets = words.next().unwrap().parse().unwrap(),
                "--no-postgres" => options.postgres = false,
                "--bench" => {}
                other => panic!("unknown option {other}"),
            }
        }
        fs::create_dir_all(&options.dir).unwrap();
        options
    }
}

/// The servers of an engine: three of NATS, one S3 store.
pub(crate) struct Servers {
    pub(crate) store: EngineServers,
    nats: NatsCluster,
}

impl Servers {
    pub(crate) fn start(dir: &Path) -> Self {
        let (nats, weed) = (
            ecluse_peers::server("nats-server"),
            ecluse_peers::server("weed"),
        );
        Self {
            store: EngineServers::start(&nats, &weed),
            nats: NatsCluster::start(&nats, dir, 3),
        }
    }

    fn settings(&self, prefix: &str) -> EngineSettings {
        let settings = self.nats.settings(&self.store.settings(prefix));
        Pipeline::parse(&settings, "bench").unwrap().engine
    }

    /// Opens the engine as a host of this name.
    pub(crate) fn open(&self, prefix: &str, dir: &Path, host: &str) -> JetstreamEngine {
        let settings = self.settings(prefix);
        let root = dir.join(host);
        fs::create_dir_all(&root).unwrap();
        // A cluster takes a moment to choose who leads it.
        let began = Instant::now();
        loop {
            let engine = JetstreamEngine::open(&settings, &root, Some(host)).unwrap();
            match engine.init(STAGES[0]) {
                Ok(()) => return engine,
                Err(error) if began.elapsed() > Duration::from_secs(60) => panic!("{error}"),
                Err(_) => std::thread::sleep(Duration::from_millis(200)),
            }
        }
    }
}

/// What a run came to.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    pub(crate) a_second: f64,
    /// Our own CPU-seconds for a thousand parcels.
    pub(crate) ours: f64,
    /// The servers'.
    pub(crate) servers: f64,
}

pub(crate) struct Clock {
    began: Instant,
    ours: Duration,
    servers: Duration,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self {
            began: Instant::now(),
            ours: own_cpu(),
            servers: servers_cpu(),
        }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    pub(crate) fn ours(&self) -> Duration {
        own_cpu() - self.ours
    }

    pub(crate) fn servers(&self) -> Duration {
        servers_cpu() - self.servers
    }

    pub(crate) fn stop(&self, parcels: usize) -> Run {
        let parcels = parcels as f64;
        Run {
            a_second: parcels / self.elapsed().as_secs_f64(),
            ours: self.ours().as_secs_f64() / parcels * 1000.0,
            servers: self.servers().as_secs_f64() / parcels * 1000.0,
        }
    }
}

fn own_cpu() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// The CPU time of the programs that this one has started and that run, in the kernel's ticks of 10 ms.
fn servers_cpu() -> Duration {
    let own = std::process::id().to_string();
    let mut ticks = 0;
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .collect();
        if fields.len() > 12 && fields[1] == own {
            ticks += fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        }
    }
    Duration::from_millis(ticks * 10)
}

/// Parcels a second through three stages.
fn parcels(page: &mut Page, options: &Options, dir: &Path) {
    let servers = Servers::start(dir);
    let mut rounds: Vec<[Run; 7]> = Vec::new();
    for round in 0..options.rounds {
        let at = dir.join(format!("round-{round}"));
        let prefix = format!("r{round}");
        let engine = servers.open(&prefix, &at, "host");
        let tree = WorkTree::open(&at.join("work"));
        let settings = servers.settings(&prefix);
        // By turns, so that a bad moment of a shared machine strikes all alike.
        rounds.push([
            bare::three_stages(&servers.nats.addresses(), &prefix, options.parcels),
            bare::puts(&settings, options.parcels, STAGES.len(), 1),
            bare::puts(&settings, options.parcels, 1, 1),
            bare::puts(&settings, options.parcels, STAGES.len(), GROUP),
            three_stages(&engine, options.parcels),
            three_stages(&tree, options.parcels),
            Run {
                a_second: match options.postgres {
                    true => postgres::skip_locked(&at.join("postgres"), options.parcels),
                    false => f64::NAN,
                },
                ours: f64::NAN,
                servers: f64::NAN,
            },
        ]);
    }
    page.say(format!(
        "{} parcels of 512 bytes through three stages, {GROUP} to a commit, two workers a stage; three NATS servers, \
         every message on all of them and synced; the middle of {} rounds\n",
        options.parcels, options.rounds
    ));
    page.say("| | a second | CPU-s per 1,000 | its servers' | beside bare JetStream | middle ratio | at least |");
    page.say("|---|--:|--:|--:|--:|--:|--:|");
    let middle = |mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let of = |which: usize, field: fn(&Run) -> f64| {
        middle(rounds.iter().map(|round| field(&round[which])).collect())
    };
    for (which, (what, bar)) in [
        ("bare JetStream: publish, fetch, ack", ""),
        (
            "the store alone: one conditional put for each parcel and stage",
            "",
        ),
        (
            "the store alone: one for each parcel, in all stages together",
            "",
        ),
        ("the store alone: one for a hundred parcels and stage", ""),
        ("engine 2", "0.5 ×"),
        ("the directories", ""),
        ("PostgreSQL, SKIP LOCKED, two clients", ""),
    ]
    .into_iter()
    .enumerate()
    {
        let rate = |run: &Run| run.a_second;
        let ratios = rounds
            .iter()
            .map(|round| round[which].a_second / round[0].a_second);
        page.say(format!(
            "| {what} | {:.0} | {:.2} | {:.2} | {:.2} × | {:.2} × | {bar} |",
            of(which, rate),
            of(which, |run| run.ours),
            of(which, |run| run.servers),
            of(which, rate) / of(0, rate),
            middle(ratios.collect()),
        ));
    }
    page.say("");
}

/// Fills the first stage and takes everything to the end.
fn three_stages(engine: &(dyn Engine + 'static), parcels: usize) -> Run {
    for stage in STAGES.iter().chain([&END]) {
        engine.init(stage).unwrap();
    }
    put_all(engine, STAGES[0], parcels);
    let pools: Vec<Vec<Box<dyn Spool>>> = (0..WORKERS).map(|_| pool(engine)).collect();
    let clock = Clock::start();
    let arrived = std::sync::atomic::AtomicUsize::new(0);
    let pools: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = pools
            .into_iter()
            .map(|pool| scope.spawn(|| pump(pool, &arrived, parcels)))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    let run = clock.stop(parcels);
    let mut there = 0;
    engine.each_name(END, &mut |_| there += 1).unwrap();
    assert_eq!(there, parcels, "every parcel must arrive");
    for worker in pools.into_iter().flatten() {
        worker.close().unwrap();
    }
    run
}

/// Puts so many parcels of 512 bytes into a stage, several at a time.
pub(crate) fn put_all(engine: &(dyn Engine + 'static), stage: &str, parcels: usize) {
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                for number in (thread..parcels).step_by(8) {
                    let id = ParcelId::new(&format!("p{number}")).unwrap();
                    let put = engine.put::<SpoolError>(stage, &id, "bench", |parcel| {
                        parcel.write("data", &[b'd'; 512])
                    });
                    put.unwrap();
                }
            });
        }
    });
}

/// Opens a worker of a stage; what it has done goes to the next.
pub(crate) fn worker(
    engine: &dyn Engine,
    stage: &str,
    next: &str,
    together: usize,
) -> Box<dyn Spool> {
    let limits = WorkerLimits {
        together,
        ..WorkerLimits::default()
    };
    let terms = WorkerTerms {
        stage,
        next: &[next.to_owned()],
        limits: &limits,
        version: "bench",
    };
    engine.open_worker(&terms).unwrap()
}

fn pool(engine: &dyn Engine) -> Vec<Box<dyn Spool>> {
    let next = STAGES.iter().skip(1).chain([&END]);
    STAGES
        .iter()
        .zip(next)
        .map(|(stage, next)| worker(engine, stage, next, GROUP))
        .collect()
}

/// Moves parcels through all stages, a group at a time, until all have arrived.
fn pump(
    mut pool: Vec<Box<dyn Spool>>,
    arrived: &std::sync::atomic::AtomicUsize,
    parcels: usize,
) -> Vec<Box<dyn Spool>> {
    use std::sync::atomic::Ordering;
    while arrived.load(Ordering::SeqCst) < parcels {
        for (at, worker) in pool.iter_mut().enumerate() {
            let moved = one_look(&mut **worker);
            if at + 1 == STAGES.len() {
                arrived.fetch_add(moved, Ordering::SeqCst);
            }
        }
    }
    pool
}

/// Takes what one look finds, a group to a commit, until another worker proves quicker, as the shell does.
fn one_look(worker: &mut dyn Spool) -> usize {
    let mut waiting = worker.scan().unwrap().waiting;
    let (mut moved, mut losses) = (0, 0);
    let mut works = Vec::new();
    while losses < 8
        && let Some(next) = waiting.pop()
    {
        let Some(parcel) = worker.claim(&next).unwrap() else {
            losses += 1;
            continue;
        };
        losses = 0;
        let parcels = vec![parcel];
        let outbox = worker.outbox(&parcels);
        works.push(Work { parcels, outbox });
        if works.len() == GROUP {
            moved += worker.finish(&mut works).unwrap().len();
        }
    }
    moved + worker.finish(&mut works).unwrap().len()
}
