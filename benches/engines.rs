//! What does the chain cost on the engine beyond one machine, beside the directories?
//!
//! `cargo bench -p ecluse --bench engines [-- [--dir DIR] [--files N] [--megabytes M] [--rounds N]]`
//!
//! Takes N files of M MB from `harvested/` to the merged day with the real program, on directories and on three NATS servers and an S3
//! store, and compares the CPU time of the program. More than twice should worry us. What the servers spend stands beside it: with a
//! store elsewhere that is spent elsewhere.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a bench may die, and makes and removes its own files"
)]

#[path = "page.rs"]
mod page;
#[path = "warc_files.rs"]
mod warc_files;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ecluse_testkit::nats_cluster::NatsCluster;
use ecluse_testkit::servers::EngineServers;
use page::Page;
use warc_files::{childrens_cpu, model, write_file};

const STAGES: [&str; 6] = ["ingest", "index", "transfer", "backup", "delete", "merge"];

fn main() {
    let options = Options::parse();
    let dir = options.dir.join(format!("engines-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let model = model(options.megabytes << 20);
    let files: Vec<PathBuf> = (0..options.files)
        .map(|number| write_file(&dir, &model, number))
        .collect();
    let bytes: u64 = files
        .iter()
        .map(|file| file.metadata().unwrap().len())
        .sum();
    let (nats, weed) = (
        ecluse_peers::server("nats-server"),
        ecluse_peers::server("weed"),
    );
    let store = EngineServers::start(&nats, &weed);
    let cluster = NatsCluster::start(&nats, &dir, 3);
    rustix::fs::sync();
    let mut page = Page::begin("engines");
    page.say(format!(
        "{} files, {:.2} GB of gzip WARC, best of {}; three NATS servers, everything synced, and an S3 store\n",
        files.len(),
        bytes as f64 / 1e9,
        options.rounds
    ));
    let mut directories = [Cost::MAX; 6];
    let mut jetstream = [Cost::MAX; 6];
    for round in 0..options.rounds {
        let near = whole_chain(&dir.join(format!("near-{round}")), &files, "");
        let settings = cluster.settings(&store.settings(&format!("far{round}")));
        let far = whole_chain(&dir.join(format!("far-{round}")), &files, &settings);
        directories = std::array::from_fn(|at| directories[at].min(near[at]));
        jetstream = std::array::from_fn(|at| jetstream[at].min(far[at]));
    }
    page.say("| | directories, CPU-s | engine 2, CPU-s | ratio | its servers', CPU-s | directories, wall s | engine 2, wall s |");
    page.say("|---|--:|--:|--:|--:|--:|--:|");
    let mut row = |what: &str, near: Cost, far: Cost| {
        page.say(format!(
            "| {what} | {:.2} | {:.2} | {:.2} | {:.2} | {:.1} | {:.1} |",
            near.cpu.as_secs_f64(),
            far.cpu.as_secs_f64(),
            far.cpu.as_secs_f64() / near.cpu.as_secs_f64(),
            far.servers.as_secs_f64(),
            near.wall.as_secs_f64(),
            far.wall.as_secs_f64(),
        ));
    };
    for (stage, (near, far)) in STAGES.iter().zip(directories.iter().zip(&jetstream)) {
        row(stage, *near, *far);
    }
    row(
        "ingest to merge (at most 2)",
        Cost::sum(&directories),
        Cost::sum(&jetstream),
    );
    page.end(true);
    fs::remove_dir_all(&dir).unwrap();
}

struct Options {
    dir: PathBuf,
    files: usize,
    megabytes: usize,
    rounds: usize,
}

impl Options {
    fn parse() -> Self {
        let mut options = Self {
            dir: PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(".bench"),
            files: 10,
            megabytes: 100,
            rounds: 2,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--dir" => options.dir = words.next().unwrap().into(),
                "--files" => options.files = words.next().unwrap().parse().unwrap(),
                "--megabytes" => options.megabytes = words.next().unwrap().parse().unwrap(),
                "--rounds" => options.rounds = words.next().unwrap().parse().unwrap(),
                "--bench" => {}
                other => panic!("unknown option {other}"),
            }
        }
        options
    }
}

#[derive(Clone, Copy)]
struct Cost {
    cpu: Duration,
    servers: Duration,
    wall: Duration,
}

impl Cost {
    const MAX: Self = Self {
        cpu: Duration::MAX,
        servers: Duration::MAX,
        wall: Duration::MAX,
    };

    /// The best of each: a shared machine has bad moments.
    fn min(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.min(other.cpu),
            servers: self.servers.min(other.servers),
            wall: self.wall.min(other.wall),
        }
    }

    fn sum(costs: &[Self]) -> Self {
        Self {
            cpu: costs.iter().map(|cost| cost.cpu).sum(),
            servers: costs.iter().map(|cost| cost.servers).sum(),
            wall: costs.iter().map(|cost| cost.wall).sum(),
        }
    }
}

/// Takes the files through the chain, one stage after the other; returns the cost of each.
fn whole_chain(root: &Path, files: &[PathBuf], engine: &str) -> [Cost; 6] {
    let harvested = root.join("harvested");
    fs::create_dir_all(&harvested).unwrap();
    for file in files {
        fs::hard_link(file, harvested.join(file.file_name().unwrap())).unwrap();
    }
    // What it waits until a file is at rest is no work: as short as it goes.
    let settings = format!("[defaults]\nmin-free = \"0 B\"\nsettle = \"100ms\"\n{engine}");
    fs::write(root.join("pipeline.toml"), settings).unwrap();
    let steps = STAGES.map(|stage| run(root, &[stage]));
    let stored = fs::read_dir(root.join("repository")).unwrap().count();
    assert_eq!(stored, files.len());
    fs::remove_dir_all(root).unwrap();
    steps
}

fn run(root: &Path, stages: &[&str]) -> Cost {
    let wall = Instant::now();
    let (cpu, servers) = (childrens_cpu(), servers_cpu());
    let status = Command::new(env!("CARGO_BIN_EXE_ecluse"))
        .arg("--root")
        .arg(root)
        .args(["--log", "error", "run", "--once"])
        .args(stages)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{stages:?} ended with {status}");
    Cost {
        cpu: childrens_cpu() - cpu,
        servers: servers_cpu() - servers,
        wall: wall.elapsed(),
    }
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
