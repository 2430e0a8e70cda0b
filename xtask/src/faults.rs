//! `cargo xtask faults`: an archive on three hosts, a NATS server and workers on each and an S3 store beside them, under which one
//! thing after the other breaks. While it is broken `ecluse status` must say what is wrong, and what can go on must; mended, all must
//! finish by itself, and the checker judges what is in the store.
//!
//! Every fault has servers and namespaces of its own, which end with it. Processes that end are started again as the units have it: a
//! second later, and never after a usage error or bad settings.

mod ailing_store;
mod cluster;
mod network;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ecluse_config::Pipeline;
use ecluse_engine::JetstreamEngine;
use ecluse_spool::{Engine, Fs, RealFs};
use ecluse_testkit::checker::lay_out;
use ecluse_testkit::servers::mirror_archive;
use rustix::process::Signal;

use crate::dice::{Dice, any_seed};
use crate::feed::{Feeder, given_log};
use crate::flags::Flags;
use crate::fleet::{Death, Fleet, HostDoor, STAGES, Start};
use crate::samples::{Judged, Samples};
use crate::torture::settings;
use ailing_store::Ailment;
use cluster::{Cluster, HOSTS, VOLUMES, node};
use network::{is_inside, run_inside};

/// What its archive is called on the servers.
const PREFIX: &str = "faults";
/// Longer than the slowest call of an ailing store.
const LEASE: Duration = Duration::from_secs(8);
const HEARTBEAT: Duration = Duration::from_secs(1);
/// A fault lasts longer than every lease.
const LASTS: Duration = Duration::from_secs(20);
/// How long something may take that must come by itself.
const PATIENCE: Duration = Duration::from_secs(180);
/// How long is given while something is broken.
const GIVING: Duration = Duration::from_secs(20);
/// As the units have it.
const RESTART_AFTER: Duration = Duration::from_secs(1);
const NEVER_AGAIN: [i32; 2] = [64, 78];
/// How many parcels are given before, while and after something is broken.
const GIFTS: [u64; 3] = [60, 12, 40];
/// How long `status` may take at most.
const STATUS_SECONDS: &str = "120";
/// The clocks of the hosts: an hour from the store's is more than S3 takes.
const CLOCKS: [Option<&str>; HOSTS] = [None, Some("+1h"), Some("-1h")];

/// The one whose clock can be more than an hour wrong, and by how much. It has workers of every stage.
const SKEWED_HOST: usize = 1;
const FAR_OFF: &str = "+1d";

/// Something that breaks.
struct Fault {
    name: &'static str,
    about: &'static str,
    kind: FaultKind,
    /// What `status` must say while it is broken.
    says: &'static str,
    /// All work is done in spite of it.
    goes_on: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FaultKind {
    KillNode,
    CutNode,
    CutMajority,
    WipeBroker,
    KillVolumes,
    Store(Ailment),
    Clock,
}

/// Said of a server that does not answer.
const CUT_OFF: &str = "is cut off from here";
/// Said where too few servers are together.
const NO_LEADER: &str = "have no leader";

const FAULTS: &[Fault] = &[
    Fault {
        name: "kill-node",
        about: "a host dies: its server and its workers",
        kind: FaultKind::KillNode,
        says: CUT_OFF,
        goes_on: true,
    },
    Fault {
        name: "cut-node",
        about: "a host is cut off for longer than every lease",
        kind: FaultKind::CutNode,
        says: CUT_OFF,
        goes_on: true,
    },
    Fault {
        name: "cut-majority",
        about: "two of three hosts are cut off",
        kind: FaultKind::CutMajority,
        says: NO_LEADER,
        goes_on: false,
    },
    Fault {
        name: "wipe-broker",
        about: "all servers die and lose every message",
        kind: FaultKind::WipeBroker,
        says: "cannot reach nats://",
        goes_on: false,
    },
    Fault {
        name: "kill-volumes",
        about: "of three volume servers of the store one dies, and then a second",
        kind: FaultKind::KillVolumes,
        says: "the store can",
        goes_on: false,
    },
    Fault {
        name: "store-read-only",
        about: "the store refuses every change",
        kind: FaultKind::Store(Ailment::ReadOnly),
        says: "can be read and not written",
        goes_on: false,
    },
    Fault {
        name: "store-full",
        about: "the store has no room",
        kind: FaultKind::Store(Ailment::Full),
        says: "can be read and not written",
        goes_on: false,
    },
    Fault {
        name: "store-slow",
        about: "every call to the store takes five seconds",
        kind: FaultKind::Store(Ailment::Slow),
        says: " s for a call",
        goes_on: false,
    },
    Fault {
        name: "store-503",
        about: "the store answers 503 to everything",
        kind: FaultKind::Store(Ailment::Unavailable),
        says: "the store cannot be read",
        goes_on: false,
    },
    Fault {
        name: "clock",
        about: "the clock of a host is a day ahead, and no other host works",
        kind: FaultKind::Clock,
        says: "this host's clock is 1d 00h ahead of the store's",
        goes_on: true,
    },
];

/// Reads the command line and runs.
pub(crate) fn main(mut flags: Flags) -> anyhow::Result<bool> {
    let only: Option<String> = flags.value("--fault")?;
    let seed = flags.value("--seed")?.unwrap_or_else(any_seed);
    let dir: PathBuf = flags
        .value("--dir")?
        .unwrap_or_else(|| PathBuf::from("/dev/shm"));
    let keep = flags.switch("--keep");
    let list = flags.switch("--list");
    flags.end()?;
    let chosen: Vec<&Fault> = FAULTS
        .iter()
        .filter(|fault| {
            only.as_ref()
                .is_none_or(|only| only.split(',').any(|only| only == fault.name))
        })
        .collect();
    if list || chosen.is_empty() {
        for fault in FAULTS {
            println!("{:16} {}", fault.name, fault.about);
        }
        return Ok(list);
    }
    if is_inside() {
        return run(chosen[0], seed, &dir, keep);
    }
    Samples::build_plain()?;
    ecluse_peers::server("nats-server");
    let mut fine = true;
    for fault in chosen {
        let mut words: Vec<String> = ["faults", "--fault", fault.name, "--seed"]
            .map(str::to_owned)
            .to_vec();
        words.push(seed.to_string());
        words.extend(["--dir".to_owned(), dir.display().to_string()]);
        if keep {
            words.push("--keep".to_owned());
        }
        fine &= run_inside(&words)?;
    }
    Ok(fine)
}

fn run(fault: &Fault, seed: u64, dir: &Path, keep: bool) -> anyhow::Result<bool> {
    let dir = dir.join(format!("ecluse-faults-{}-{seed}", fault.name));
    RealFs.remove_tree(&dir)?;
    fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let outcome = Trial::begin(fault, seed, &dir).and_then(Trial::run);
    if keep || !matches!(&outcome, Ok(outcome) if outcome.is_fine()) {
        println!("kept: {}", dir.display());
    } else {
        RealFs.remove_tree(&dir)?;
    }
    let outcome = outcome.with_context(|| format!("{}, seed {seed}", fault.name))?;
    for line in outcome.judged.findings.lines() {
        println!("  {line}");
    }
    println!("{}; status: {}", outcome.judged.last, outcome.said);
    Ok(outcome.is_fine())
}

/// How a trial ended.
struct Outcome {
    judged: Judged,
    /// What was not as it must be, beside what the checker found.
    wrong: Vec<String>,
    /// What `status` said while it was broken.
    said: String,
}

impl Outcome {
    fn is_fine(&self) -> bool {
        self.judged.clean && self.wrong.is_empty()
    }
}

/// One fault under work.
struct Trial<'a> {
    fault: &'a Fault,
    fleet: Fleet,
    feeder: Feeder,
    engine: Arc<dyn Engine>,
    cluster: Cluster,
    dir: PathBuf,
    /// The hosts whose processes are not started.
    down: BTreeSet<usize>,
    /// Processes that ended, and when they are started again.
    restarts: Vec<(usize, Instant)>,
    wrong: Vec<String>,
    began: Instant,
}

impl<'a> Trial<'a> {
    fn begin(fault: &'a Fault, seed: u64, dir: &Path) -> anyhow::Result<Self> {
        let servers = dir.join("servers");
        fs::create_dir(&servers)?;
        let cluster = Cluster::start(
            &servers,
            &ecluse_peers::server("nats-server"),
            &ecluse_peers::server("weed"),
        )?;
        let text = format!(
            "{}{}reconcile = \"15s\"\n",
            settings(LEASE, HEARTBEAT),
            cluster.settings(PREFIX)
        );
        let away = dir.join("away");
        let roots: Vec<PathBuf> = (0..HOSTS)
            .map(|host| dir.join(format!("host{host}")))
            .collect();
        for root in roots.iter().chain([&away]) {
            fs::create_dir(root)?;
            fs::write(root.join("pipeline.toml"), &text)?;
        }
        let settings = Pipeline::parse(&text, "pipeline.toml")?.engine;
        let engine = open(&settings, &away)?;
        let roots: Vec<&Path> = roots.iter().map(PathBuf::as_path).collect();
        let samples = Samples::plain();
        let mut fleet = Fleet::new(samples, Arc::clone(&engine), &roots, &away.join("log"))?;
        let faketime = ecluse_peers::libfaketime();
        fleet.doors = (0..HOSTS)
            .map(|host| HostDoor {
                words: cluster.network.door(host),
                environment: clock(&faketime, CLOCKS[host]),
            })
            .collect();
        let mut trial = Self {
            fault,
            feeder: Feeder::new(Arc::clone(&engine), &away, &away, Dice::new(seed))?,
            fleet,
            engine,
            cluster,
            dir: dir.to_owned(),
            down: BTreeSet::new(),
            restarts: Vec::new(),
            wrong: Vec::new(),
            began: Instant::now(),
        };
        trial.say("servers and engine are there");
        Ok(trial)
    }

    fn say(&mut self, what: &str) {
        println!(
            "  {} {:5.1} s: {what}",
            self.fault.name,
            self.began.elapsed().as_secs_f64()
        );
    }

    /// Notes what is not as it must be.
    fn fail(&mut self, line: String) {
        self.say(&format!("WRONG: {line}"));
        self.wrong.push(line);
    }

    fn run(mut self) -> anyhow::Result<Outcome> {
        self.fleet.start_all(&Start::default())?;
        self.give(GIFTS[0])?;
        let deadline = Instant::now() + PATIENCE;
        while self.receipts()? == 0 {
            if Instant::now() > deadline {
                bail!("nothing is done before anything broke");
            }
            self.tend()?;
        }
        self.say("work is done");
        let broken = self.break_it()?;
        self.say("it is broken");
        let said = self.look_on(broken)?;
        self.mend()?;
        self.say("it is mended");
        self.give(GIFTS[2])?;
        self.finish()?;
        self.say("all is at rest");
        let after = self.status(0);
        if after.contains(self.fault.says) {
            self.fail(format!("mended, `status` still says: {after}"));
        }
        self.fleet.end()?;
        let objects = self.dir.join("away/objects");
        mirror_archive(self.cluster.filer()?, PREFIX, &objects)?;
        let judged_root = self.dir.join("judged");
        lay_out(&objects, &judged_root.join("work"))?;
        let given = given_log(&self.dir.join("away"));
        let words = format!(
            "{} ({:.0} s)",
            self.fault.name,
            self.began.elapsed().as_secs_f64()
        );
        let judged = self.fleet.samples().judge(&judged_root, &given, &words)?;
        Ok(Outcome {
            judged,
            wrong: std::mem::take(&mut self.wrong),
            said,
        })
    }

    /// Gives so many, as long as there is time: while something is broken one may take long, or fail.
    fn give(&mut self, count: u64) -> anyhow::Result<()> {
        let until = Instant::now() + GIVING;
        for _ in 0..count {
            if let Err(error) = self.feeder.give_any() {
                self.say(&format!("cannot give: {error:#}"));
            }
            self.tend()?;
            if Instant::now() > until {
                break;
            }
        }
        Ok(())
    }

    /// Counts what the first stage has done.
    fn receipts(&self) -> anyhow::Result<u64> {
        let within = Duration::from_secs(3600);
        Ok(self.engine.throughput(STAGES[0], within)?.count)
    }

    /// Starts what ended, a while after.
    fn tend(&mut self) -> anyhow::Result<()> {
        for (at, death) in self.fleet.deaths()? {
            if let Death::Ended(Some(code)) = death
                && NEVER_AGAIN.contains(&code)
            {
                let stage = self.fleet.slots[at].stage;
                let line = format!("{stage} ended with {code}: no unit would start it again");
                self.fail(line);
            }
            self.restarts.push((at, Instant::now() + RESTART_AFTER));
        }
        let due: Vec<usize> = self
            .restarts
            .iter()
            .filter(|(at, when)| {
                *when <= Instant::now() && !self.down.contains(&self.fleet.slots[*at].host)
            })
            .map(|(at, _)| *at)
            .collect();
        self.restarts.retain(|(at, _)| !due.contains(at));
        for at in due {
            self.fleet.start(at, &Start::default())?;
        }
        std::thread::sleep(Duration::from_millis(20));
        Ok(())
    }

    /// Breaks it; returns the hosts that are broken.
    fn break_it(&mut self) -> anyhow::Result<Vec<usize>> {
        match self.fault.kind {
            FaultKind::KillNode => {
                let host = self.leader()?;
                self.down.insert(host);
                self.cluster.kill_nats(host);
                for at in 0..self.fleet.slots.len() {
                    if self.fleet.slots[at].host == host {
                        self.fleet.signal(at, Signal::KILL);
                    }
                }
                Ok(vec![host])
            }
            FaultKind::CutNode => {
                let host = self.leader()?;
                self.cluster.network.cut(host)?;
                Ok(vec![host])
            }
            FaultKind::CutMajority => {
                let leader = self.leader()?;
                let hosts = vec![leader, (leader + 1) % HOSTS];
                for &host in &hosts {
                    self.cluster.network.cut(host)?;
                }
                Ok(hosts)
            }
            FaultKind::WipeBroker => {
                for host in 0..HOSTS {
                    self.cluster.kill_nats(host);
                }
                Ok(Vec::new())
            }
            FaultKind::KillVolumes => {
                self.cluster.kill_volume(0);
                Ok(Vec::new())
            }
            FaultKind::Store(ailment) => {
                self.cluster.door.ail(ailment);
                Ok(Vec::new())
            }
            FaultKind::Clock => {
                self.set_clock(SKEWED_HOST, Some(FAR_OFF));
                self.down = (0..HOSTS).filter(|&host| host != SKEWED_HOST).collect();
                for at in 0..self.fleet.slots.len() {
                    self.fleet.signal(at, Signal::KILL);
                }
                Ok(Vec::new())
            }
        }
    }

    /// Sets the clock of what is started on a host from now on.
    fn set_clock(&mut self, host: usize, off_by: Option<&str>) {
        let library = ecluse_peers::libfaketime();
        self.fleet.doors[host].environment = clock(&library, off_by);
    }

    /// Returns the host whose server leads the queue of the first stage: the worst to lose.
    fn leader(&self) -> anyhow::Result<usize> {
        let view = self.engine.cluster(&[STAGES[0].to_owned()]);
        let queue = view.and_then(|mut view| view.queues.pop());
        let leader = queue.and_then(|queue| queue.leader);
        let host = (0..HOSTS).find(|&host| leader.as_ref() == Some(&node(host)));
        host.context("nobody leads")
    }

    /// Gives some, until it has lasted, `status` has said what is wrong, and what can go on has.
    fn look_on(&mut self, broken: Vec<usize>) -> anyhow::Result<String> {
        let lasts_until = Instant::now() + LASTS;
        self.give(GIFTS[1])?;
        if self.fault.kind == FaultKind::KillVolumes {
            self.rest("with one volume server less")?;
            self.say("all was done with one volume server less");
            self.cluster.kill_volume(1);
            self.give(2)?;
        }
        let whole = match self.fault.kind {
            FaultKind::Clock => SKEWED_HOST,
            _ => (0..HOSTS).find(|host| !broken.contains(host)).unwrap_or(0),
        };
        let deadline = Instant::now() + PATIENCE;
        let mut said;
        loop {
            said = self.status(whole);
            self.tend()?;
            let is_said = said.contains(self.fault.says);
            if is_said && Instant::now() > lasts_until {
                break;
            }
            if Instant::now() > deadline {
                let line = format!("`status` does not say {:?}: {said}", self.fault.says);
                self.fail(line);
                break;
            }
        }
        for host in broken {
            self.look_from(host)?;
        }
        if self.fault.goes_on {
            self.rest("while it was broken")?;
            self.say("all was done while it was broken");
        }
        let mut lines = said.lines();
        let line = lines.find(|line| line.contains(self.fault.says));
        Ok(line.unwrap_or("nothing of it").trim().to_owned())
    }

    /// Who looks from a host that is cut off sees that too.
    fn look_from(&mut self, host: usize) -> anyhow::Result<()> {
        if self.fault.kind == FaultKind::KillNode {
            return Ok(());
        }
        let said = self.status(host);
        if !said.contains(NO_LEADER) {
            let line = format!("on the host that is cut off `status` does not say so: {said}");
            self.fail(line);
        }
        self.tend()
    }

    /// Waits until nothing moves any more.
    fn rest(&mut self, when: &str) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.tend()?;
            let moving = self.fleet.moving_in_all();
            if matches!(moving, Ok(None)) {
                return Ok(());
            }
            if Instant::now() > deadline {
                self.fail(format!("{when}: {moving:?}"));
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn mend(&mut self) -> anyhow::Result<()> {
        match self.fault.kind {
            FaultKind::KillNode => {
                for host in std::mem::take(&mut self.down) {
                    self.cluster.start_nats(host)?;
                }
            }
            FaultKind::CutNode | FaultKind::CutMajority => {
                for host in 0..HOSTS {
                    self.cluster.network.heal(host)?;
                }
            }
            FaultKind::WipeBroker => {
                for host in 0..HOSTS {
                    self.cluster.wipe_nats(host)?;
                    self.cluster.start_nats(host)?;
                }
            }
            FaultKind::KillVolumes => {
                for number in 0..VOLUMES - 1 {
                    self.cluster.start_volume(number)?;
                }
            }
            FaultKind::Store(_) => {
                if self.cluster.door.refused() == 0 {
                    self.fail("nobody asked the store".to_owned());
                }
                self.cluster.door.ail(Ailment::None);
            }
            FaultKind::Clock => {
                self.down.clear();
                self.set_clock(SKEWED_HOST, CLOCKS[SKEWED_HOST]);
                for at in 0..self.fleet.slots.len() {
                    if self.fleet.slots[at].host == SKEWED_HOST {
                        self.fleet.signal(at, Signal::KILL);
                    }
                }
            }
        }
        Ok(())
    }

    /// Waits until all workers are there and nothing moves any more.
    fn finish(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let mut quiet = 0;
        while quiet < 3 {
            self.tend()?;
            let moving = self.fleet.moving();
            quiet = match &moving {
                Ok(None) => quiet + 1,
                _ => 0,
            };
            if quiet == 0 && Instant::now() > deadline {
                self.fail(format!("it does not finish: {moving:?}"));
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    /// Asks `ecluse status` on a host.
    fn status(&self, host: usize) -> String {
        let door = &self.fleet.doors[host];
        let driver = self.fleet.samples().program("sample");
        let output = door
            .command(Path::new("timeout"))
            .arg(STATUS_SECONDS)
            .arg(driver)
            .arg("--root")
            .arg(self.dir.join(format!("host{host}")))
            .arg("status")
            .stdin(Stdio::null())
            .output();
        match output {
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stdout).into_owned();
                let more = String::from_utf8_lossy(&output.stderr);
                let code = output.status.code().unwrap_or(-1);
                format!("{said}{more}[exit {code} on {}]", node(host))
            }
            Err(error) => format!("cannot run the driver: {error}"),
        }
    }
}

/// Opens the engine as soon as the servers are one cluster.
fn open(settings: &ecluse_config::EngineSettings, away: &Path) -> anyhow::Result<Arc<dyn Engine>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let opened = JetstreamEngine::open(settings, away, Some("giver"))
            .map_err(anyhow::Error::from)
            .and_then(|engine| {
                engine.init(STAGES[0])?;
                Ok(engine)
            });
        match opened {
            Ok(engine) => return Ok(Arc::new(engine)),
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(200)),
        }
    }
}

/// Returns what the environment of a host's processes has so that its clock is off.
fn clock(library: &Path, off_by: Option<&str>) -> Vec<(String, String)> {
    let Some(off_by) = off_by else {
        return Vec::new();
    };
    [
        ("LD_PRELOAD", library.display().to_string()),
        ("FAKETIME", off_by.to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ("FAKETIME_DONT_RESET", "1".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}
