//! `cargo xtask torture`: kills stage processes from outside and after every step of the protocol,
//! starts them again, feeds them all the while, and lets the checker judge what is left on disk.
//!
//! With `--engine jetstream` the parcels live on a NATS server and in an S3 store, and the processes on two hosts: two roots
//! with a scratch directory each. In the middle the server loses all messages. At the end one host dies for good, and the other must
//! finish without anybody being started again; then what is in the store is laid out as work directories for the checker.

mod aim;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ecluse_config::Pipeline;
use ecluse_engine::JetstreamEngine;
use ecluse_spool::{Engine, Fs, RealFs, WorkTree};
use ecluse_testkit::checker::{RELAY_ATTEMPTS, lay_out};
use ecluse_testkit::servers::EngineServers;
use rustix::process::Signal;

use crate::dice::{Dice, any_seed};
use crate::feed::{Ask, Feeder, Way, given_log};
use crate::flags::Flags;
use crate::fleet::{Death, Fleet, Start};
use crate::samples::{Judged, Samples};
use aim::{Aim, DIRECTORIES, Failpoints, JETSTREAM};

/// Every failpoint must have killed so many times ...
const HITS: u64 = 20;
/// ... in a run of at least so many kills.
const COVERED_FROM: u64 = 2_000;
/// The known-bad builds that kills can show.
const MUTANTS: [&str; 2] = ["two-renames", "receipt-first"];
/// Where a known-bad build shows: a death after a commit, and one of the reaper that settles it.
const MUTANTS_SHOW: [&str; 3] = ["committed", "receipts-durable", "reap-taken"];
/// The same of the other engine: a death between the parts of a commit, and one with something in hand.
const JETSTREAM_MUTANTS_SHOW: [&str; 3] = ["uploaded", "claimed", "member-filed"];
/// A known-bad build must be caught within so many runs of so many kills.
const MUTANT_RUNS: u64 = 15;
const MUTANT_KILLS: u64 = 300;
/// The same of the other engine, on which every run ends with the death of a host.
const JETSTREAM_MUTANT_KILLS: u64 = 60;

/// The lease of a worker from another host, and how often it is renewed.
const LEASE: Duration = Duration::from_millis(1500);
const HEARTBEAT: Duration = Duration::from_millis(150);
/// The same where each is a request to a store.
const STORE_LEASE: Duration = Duration::from_secs(3);
const STORE_HEARTBEAT: Duration = Duration::from_millis(500);
/// What its archive is called on the servers.
const PREFIX: &str = "torture";
/// So much is given before one of two hosts dies for good.
const LAST_GIFTS: u64 = 120;

/// How long a run may go on after its kills for the failpoints that were hit seldom.
const CLOSING: Duration = Duration::from_secs(180);

/// How often something is given.
const FEED_EVERY: Duration = Duration::from_millis(50);
/// What failpoints that were hit seldom need to be reached.
const EXTRAS: &[(&[&str], Ask, Way)] = &[
    (&["why-written", "held"], Ask::Hold, Way::Ready),
    (
        &["trouble-written", "deferred", "undeferred"],
        Ask::Defer,
        Way::Ready,
    ),
    (&["given-back"], Ask::Sleep, Way::Ready),
    (&["settle-poisoned"], Ask::Die, Way::Ready),
    (ADOPTION, Ask::Nothing, Way::Drop),
];
/// The same of the other engine.
const JETSTREAM_EXTRAS: &[(&[&str], Ask, Way)] = &[
    (&["mark-put", "set-aside"], Ask::Hold, Way::Ready),
    (&["let-go-on", "mark-removed"], Ask::Defer, Way::Ready),
    (&["put-back"], Ask::Sleep, Way::Ready),
];
const ADOPTION: &[&str] = &[
    "adopt-taken",
    "adopt-described",
    "adopted",
    "settle-adoption-returned",
];

/// What a run does.
#[derive(Debug, Clone)]
struct Plan {
    engine: EngineKind,
    kills: u64,
    parcels: u64,
    seed: u64,
    mutant: Option<String>,
    zombies: bool,
    dir: PathBuf,
    keep: bool,
}

/// Where the parcels live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EngineKind {
    Directories,
    Jetstream,
}

impl EngineKind {
    fn failpoints(self) -> Failpoints {
        match self {
            Self::Directories => DIRECTORIES,
            Self::Jetstream => JETSTREAM,
        }
    }

    fn mutants(self) -> &'static [&'static str] {
        match self {
            Self::Directories => &MUTANTS,
            Self::Jetstream => &ecluse_engine::MUTANTS,
        }
    }

    fn mutants_show(self) -> &'static [&'static str] {
        match self {
            Self::Directories => &MUTANTS_SHOW,
            Self::Jetstream => &JETSTREAM_MUTANTS_SHOW,
        }
    }

    fn mutant_kills(self) -> u64 {
        match self {
            Self::Directories => MUTANT_KILLS,
            Self::Jetstream => JETSTREAM_MUTANT_KILLS,
        }
    }

    fn extras(self) -> &'static [(&'static [&'static str], Ask, Way)] {
        match self {
            Self::Directories => EXTRAS,
            Self::Jetstream => JETSTREAM_EXTRAS,
        }
    }

    /// The failpoint that only who is asked to end comes by.
    fn asked_to_end(self) -> &'static str {
        match self {
            Self::Directories => "given-back",
            Self::Jetstream => "put-back",
        }
    }
}

/// How a run ended.
struct Outcome {
    judged: Judged,
    kills: u64,
    stops: u64,
    fenced: u64,
    /// Failpoints that killed too seldom, with how often they did.
    seldom: Vec<(&'static str, u64)>,
    /// How often the failpoint that killed least did.
    fewest: u64,
    /// What did not come to rest.
    restless: Option<String>,
    seconds: f64,
}

/// Reads the command line and runs.
pub(crate) fn main(mut flags: Flags) -> anyhow::Result<bool> {
    let zombies = flags.switch("--zombies");
    let mutants = flags.switch("--mutants");
    let engine = match flags.value::<String>("--engine")?.as_deref() {
        None | Some("directories") => EngineKind::Directories,
        Some("jetstream") => EngineKind::Jetstream,
        Some(other) => bail!("--engine takes directories or jetstream, not {other}"),
    };
    if engine == EngineKind::Jetstream && zombies {
        bail!("--zombies is for directories");
    }
    let kills = flags
        .value("--kills")?
        .unwrap_or(if zombies { 150 } else { 2_000 });
    let plan = Plan {
        engine,
        kills,
        parcels: flags
            .value("--parcels")?
            .unwrap_or(kills * if zombies { 15 } else { 3 }),
        seed: flags.value("--seed")?.unwrap_or_else(any_seed),
        mutant: flags.value("--mutant")?,
        zombies,
        dir: flags
            .value("--dir")?
            .unwrap_or_else(|| PathBuf::from("/dev/shm")),
        keep: flags.switch("--keep"),
    };
    flags.end()?;
    match (&plan.mutant, mutants) {
        (Some(mutant), _) => return try_mutants(&plan, &[mutant]),
        (None, true) => return try_mutants(&plan, engine.mutants()),
        (None, false) => {}
    }
    let outcome = run(&plan)?;
    Ok(report(&plan, &outcome))
}

/// Runs known-bad builds, each until it is caught. One that is not makes this fail: a torture that
/// cannot fail is worthless.
fn try_mutants(plan: &Plan, mutants: &[&str]) -> anyhow::Result<bool> {
    let mut all_caught = true;
    for &mutant in mutants {
        let mut kills = 0;
        let mut caught = None;
        for round in 0..MUTANT_RUNS {
            let plan = Plan {
                mutant: Some(mutant.to_owned()),
                kills: plan.engine.mutant_kills(),
                parcels: plan.engine.mutant_kills() * 3,
                seed: plan.seed + round,
                ..plan.clone()
            };
            let outcome = run(&plan)?;
            kills += outcome.kills;
            if !outcome.judged.clean || outcome.restless.is_some() {
                caught = Some(outcome);
                break;
            }
        }
        match caught {
            Some(outcome) => {
                let first = outcome.judged.findings.lines().next().unwrap_or_default();
                println!(
                    "{mutant}: rejected after {kills} kills: {}",
                    outcome.judged.last
                );
                println!("  {first}");
            }
            None => {
                println!("{mutant}: NOT rejected in {kills} kills");
                all_caught = false;
            }
        }
    }
    Ok(all_caught)
}

fn report(plan: &Plan, outcome: &Outcome) -> bool {
    println!("{}", outcome.judged.findings);
    println!(
        "seed {}, {:.0} s, {:.0} kills a second",
        plan.seed,
        outcome.seconds,
        outcome.kills as f64 / outcome.seconds
    );
    let failpoints = plan.engine.failpoints().all.len();
    println!(
        "{failpoints} failpoints, each killed at least {} times",
        outcome.fewest
    );
    if let Some(what) = &outcome.restless {
        println!("did not come to rest: {what}");
    }
    for (name, hits) in &outcome.seldom {
        println!("failpoint {name} killed {hits} times, fewer than {HITS}");
    }
    let mut fine = outcome.judged.clean && outcome.restless.is_none() && outcome.seldom.is_empty();
    if plan.zombies {
        println!("{} stops, {} zombies fenced", outcome.stops, outcome.fenced);
        if outcome.fenced == 0 {
            println!("no zombie was fenced: nothing was tried");
            fine = false;
        }
    }
    println!("{}", outcome.judged.last);
    fine
}

fn run(plan: &Plan) -> anyhow::Result<Outcome> {
    let samples = Samples::build()?;
    let dir = plan.dir.join(format!(
        "ecluse-torture-{}-{}",
        std::process::id(),
        plan.seed
    ));
    fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let outcome = Torture::begin(plan, samples, &dir).and_then(Torture::run);
    let keep = plan.keep || matches!(&outcome, Ok(outcome) if !outcome.judged.clean);
    if keep && plan.mutant.is_none() {
        println!("kept: {}", dir.display());
    } else {
        RealFs.remove_tree(&dir)?;
    }
    outcome
}

struct Torture<'a> {
    plan: &'a Plan,
    root: PathBuf,
    away: PathBuf,
    fleet: Fleet,
    feeder: Feeder,
    /// Of the engine beyond one machine. They end after the fleet.
    servers: Option<EngineServers>,
    have_lost: bool,
    aim: Aim,
    dice: Dice,
    kills: u64,
    starts: u64,
    feed_at: Instant,
    began: Instant,
    /// When all kills were done and some failpoints still wanted hits.
    closing: Option<Instant>,
}

impl<'a> Torture<'a> {
    fn begin(plan: &'a Plan, samples: Samples, dir: &Path) -> anyhow::Result<Self> {
        let (root, other, away) = (dir.join("root"), dir.join("other"), dir.join("away"));
        for dir in [&root, &other, &away] {
            fs::create_dir(dir)?;
        }
        let (engine, servers): (Arc<dyn Engine>, _) = match plan.engine {
            EngineKind::Directories => {
                fs::write(root.join("pipeline.toml"), pipeline(plan.zombies))?;
                (Arc::new(WorkTree::open(&root.join("work"))), None)
            }
            EngineKind::Jetstream => {
                let servers = EngineServers::start(
                    &ecluse_peers::server("nats-server"),
                    &ecluse_peers::server("weed"),
                );
                // A known-bad build must not be saved by what comes again and again.
                let reconcile = match plan.mutant {
                    Some(_) => "10m",
                    None => "15s",
                };
                let engine = servers.settings(PREFIX);
                let text = format!("{}{engine}reconcile = \"{reconcile}\"\n", store_pipeline());
                for root in [&root, &other] {
                    fs::write(root.join("pipeline.toml"), &text)?;
                }
                let settings = Pipeline::parse(&text, "pipeline.toml")?.engine;
                let engine = JetstreamEngine::open(&settings, &away, Some("giver"))?;
                (Arc::new(engine), Some(servers))
            }
        };
        let roots: &[&Path] = match plan.engine {
            EngineKind::Directories => &[&root],
            EngineKind::Jetstream => &[&root, &other],
        };
        let mut dice = Dice::new(plan.seed);
        let fleet = Fleet::new(samples, Arc::clone(&engine), roots, &away.join("log"))?;
        Ok(Self {
            plan,
            fleet,
            aim: Aim::new(&away, plan.engine.failpoints()),
            feeder: Feeder::new(engine, &root, &away, Dice::new(dice.next()))?,
            root,
            away,
            servers,
            have_lost: false,
            dice,
            kills: 0,
            starts: 0,
            feed_at: Instant::now(),
            began: Instant::now(),
            closing: None,
        })
    }

    fn run(mut self) -> anyhow::Result<Outcome> {
        for at in 0..self.fleet.slots.len() {
            self.start(at)?;
        }
        let mut kill_at = Instant::now();
        loop {
            if self.kills >= self.plan.kills && self.closing.is_none() {
                if !self.uncovered() {
                    break;
                }
                self.close();
            }
            if self
                .closing
                .is_some_and(|since| !self.uncovered() || since.elapsed() > CLOSING)
            {
                break;
            }
            for (at, death) in self.fleet.deaths()? {
                self.kills += u64::from(death == Death::Killed);
                self.aim.read_hits(at)?;
                self.start(at)?;
            }
            self.end_some();
            if Instant::now() >= kill_at {
                self.kill_one();
                kill_at = Instant::now() + self.until_next_kill();
            }
            if let Some(servers) = &mut self.servers
                && !self.have_lost
                && self.kills > self.plan.kills / 2
            {
                self.have_lost = true;
                servers.lose_all_messages();
            }
            if self.plan.zombies {
                let dice = &mut self.dice;
                self.fleet.wake(|| LEASE + dice.millis(300, 2500));
            }
            self.feed()?;
            std::thread::sleep(Duration::from_millis(2));
        }
        self.judge()
    }

    /// Tells whether failpoints want more hits, as they do in a long run only.
    fn uncovered(&self) -> bool {
        self.plan.kills >= COVERED_FROM && !self.plan.zombies && !self.aim.seldom(HITS).is_empty()
    }

    /// Begins the end of a run: how often a failpoint is come by depends on the machine, so that who
    /// starts from now on dies where few did, and seldom elsewhere, until each has enough.
    fn close(&mut self) {
        self.closing = Some(Instant::now());
        for at in 0..self.fleet.slots.len() {
            self.fleet.signal(at, Signal::KILL);
        }
    }

    fn start(&mut self, at: usize) -> anyhow::Result<()> {
        self.starts += 1;
        let stage = self.fleet.slots[at].stage;
        let mut failpoints = match self.closing {
            Some(_) => self.aim.seldom_failpoints(at, stage, HITS, &mut self.dice),
            None => self
                .aim
                .failpoints(at, stage, self.plan.zombies, &mut self.dice),
        };
        if self.plan.mutant.is_some() && self.dice.happens(0.5) {
            let name = self.dice.pick(self.plan.engine.mutants_show());
            failpoints.push_str(&format!(" focus={name}:0.5"));
        }
        // Only who is asked to end gives back: who is to die there is asked, and some others are.
        let odds = match failpoints.contains(self.plan.engine.asked_to_end()) {
            true => 1.0,
            false if self.closing.is_some() => 0.0,
            false => 0.02,
        };
        let start = Start {
            failpoints: Some(failpoints),
            mutant: self.plan.mutant.clone(),
            host: self.plan.zombies.then(|| format!("host{}", self.starts)),
        };
        self.fleet.start(at, &start)?;
        if self.dice.happens(odds) {
            self.fleet.slots[at].end_at = Some(Instant::now() + self.dice.millis(30, 150));
        }
        Ok(())
    }

    fn kill_one(&mut self) {
        let running: Vec<usize> = (0..self.fleet.slots.len())
            .filter(|&at| self.fleet.slots[at].runs() && self.fleet.slots[at].end_at.is_none())
            .collect();
        if !running.is_empty() {
            self.fleet.signal(*self.dice.pick(&running), Signal::KILL);
        }
    }

    /// Asks those to end whose time has come; they may still be killed while they do.
    fn end_some(&mut self) {
        for at in 0..self.fleet.slots.len() {
            let slot = &mut self.fleet.slots[at];
            if slot.end_at.is_some_and(|end| Instant::now() >= end) {
                slot.end_at = None;
                self.fleet.signal(at, Signal::TERM);
            }
        }
    }

    fn until_next_kill(&mut self) -> Duration {
        if self.plan.zombies {
            self.dice.millis(300, 900)
        } else if self.plan.engine == EngineKind::Jetstream {
            // Who is started has servers to greet before there is anything to lose.
            self.dice.millis(50, 200)
        } else if self.closing.is_some() {
            // A reaper wants somebody dead.
            self.dice.millis(200, 600)
        } else if self.kills > self.plan.kills / 2 && !self.aim.seldom(HITS).is_empty() {
            // More of the deaths that are left must be where few were.
            self.dice.millis(40, 120)
        } else {
            self.dice.millis(10, 40)
        }
    }

    /// Gives in bursts, in step with the kills, and more of what a seldom failpoint needs.
    fn feed(&mut self) -> anyhow::Result<()> {
        if self.feed_at > Instant::now() {
            return Ok(());
        }
        self.feed_at = Instant::now()
            + match self.plan.engine {
                EngineKind::Directories => FEED_EVERY,
                // To look how much waits is a request to a store.
                EngineKind::Jetstream => FEED_EVERY * 5,
            };
        let crowded = self.feeder.crowded()?;
        let due = self.plan.parcels * (self.kills + 5) / self.plan.kills.max(1);
        if !crowded && self.feeder.given() < due.min(self.plan.parcels) {
            for _ in 0..1 + self.dice.below(40) {
                self.feeder.give_any()?;
            }
        }
        let odds = if self.plan.zombies { 0.03 } else { 0.3 };
        if self.closing.is_some() && !crowded {
            self.feeder.give_any()?;
        }
        for (names, ask, way) in self.plan.engine.extras() {
            if self.dice.happens(odds) && names.iter().any(|name| self.aim.wants(name)) {
                self.feeder.give(*ask, *way)?;
            }
        }
        Ok(())
    }

    fn judge(mut self) -> anyhow::Result<Outcome> {
        self.kills += self.fleet.kill_all() as u64;
        let quiet = Start {
            mutant: self.plan.mutant.clone(),
            host: self.plan.zombies.then(|| "last".to_owned()),
            ..Start::default()
        };
        let patience = match (self.plan.engine, &self.plan.mutant) {
            (EngineKind::Directories, Some(_)) => 15,
            (EngineKind::Directories, None) => 90,
            (EngineKind::Jetstream, Some(_)) => 40,
            (EngineKind::Jetstream, None) => 240,
        };
        let patience = Duration::from_secs(patience);
        let restless = match self.plan.engine {
            EngineKind::Directories => self.fleet.settle(&quiet, patience)?,
            EngineKind::Jetstream => self.lose_a_host(&quiet, patience)?,
        };
        for at in 0..self.fleet.slots.len() {
            self.aim.read_hits(at)?;
        }
        if let Some(servers) = &self.servers {
            let objects = self.away.join("objects");
            servers.mirror(PREFIX, &objects)?;
            lay_out(&objects, &self.root.join("work"))?;
        }
        let words = format!("{} kills", self.kills);
        let judged = self
            .fleet
            .samples()
            .judge(&self.root, &given_log(&self.away), &words)?;
        let log = fs::read_to_string(self.away.join("log")).unwrap_or_default();
        let covered = self.plan.kills < COVERED_FROM || self.plan.zombies;
        Ok(Outcome {
            judged,
            kills: self.kills,
            stops: self.aim.stops(),
            fenced: log.lines().filter(|line| line.contains("fenced")).count() as u64,
            seldom: if covered {
                Vec::new()
            } else {
                self.aim.seldom(HITS)
            },
            fewest: self.aim.fewest(),
            restless,
            seconds: self.began.elapsed().as_secs_f64(),
        })
    }
}

impl Torture<'_> {
    /// Lets both hosts work, and then one die for good. Nobody is started again: what the dead had in hand must come to the others.
    fn lose_a_host(&mut self, start: &Start, patience: Duration) -> anyhow::Result<Option<String>> {
        let restless = self.fleet.calm(start, patience)?;
        if restless.is_some() {
            return Ok(restless);
        }
        for _ in 0..LAST_GIFTS {
            self.feeder.give(Ask::Nothing, Way::Ready)?;
        }
        std::thread::sleep(self.dice.millis(0, 300));
        for at in 0..self.fleet.slots.len() {
            if self.fleet.slots[at].host == 1 {
                self.fleet.signal(at, Signal::KILL);
                self.kills += 1;
            }
        }
        let restless = self.fleet.rest(patience)?;
        if restless.is_none() {
            self.fleet.end()?;
        }
        Ok(restless)
    }
}

/// The settings of the stages under torture: everything small and short, so that every path is
/// taken. Only relay may hold a parcel because its workers died; elsewhere too many die.
pub(crate) fn pipeline(zombies: bool) -> String {
    match zombies {
        true => settings(LEASE, HEARTBEAT),
        false => settings(Duration::from_secs(300), Duration::from_secs(30)),
    }
}

/// The same where the parcels live in a store.
fn store_pipeline() -> String {
    settings(STORE_LEASE, STORE_HEARTBEAT)
}

/// Returns settings with this patience.
pub(crate) fn settings(lease: Duration, heartbeat: Duration) -> String {
    format!(
        r#"
[chain]
stages = ["relay", "split", "tally", "shelf"]

[defaults]
attempts    = 1000
heartbeat   = "{}ms"
lease       = "{}ms"
scan        = "100ms"
settle      = "200ms"
high-mark   = 1000000
low-mark    = 900000
min-free    = "1 MiB"
grace       = "2s"
retry       = {{ first = "1s", factor = 1.0, max = "1s", limit = "1h" }}
group       = {{ parcels = 16, wait = "5ms" }}
batch       = {{ parcels = 40, wait = "100ms" }}

[stage.relay]
attempts = {RELAY_ATTEMPTS}

[log]
format = "json"
level  = "warn"
"#,
        heartbeat.as_millis(),
        lease.as_millis()
    )
}
