//! How long does a sweep over the slices take, with how much memory, and how many are needed?
//!
//! `cargo bench -p ecluse-rank --bench rank -- [--urls N] [--degree N] [--graph uniform|hosts] [--slice N] [--threads N] [--inner N]
//! [--tolerance X] [--dir DIR] [--turns N] [--peer]`
//!
//! It makes a graph of its own, the same each time, in DIR (default `.bench/rank`; about 14 bytes a link while it is made, 4 then), and ranks it in a
//! process of its own: seconds of wall and of CPU a sweep, sweeps until the tolerance, and the most memory that was resident. `uniform`: every
//! link goes anywhere. `hosts`: URLs stand by host, three of four links stay in it, the others go to the first pages of hosts, the larger
//! the likelier. Worrying at 20,000,000 URLs with 10 links each: more than 1.5 s a sweep on two quiet cores, more than 16 MB, more than
//! 16 sweeps to 1e-6 on the graph of hosts.
//!
//! `--peer` ranks the same graph with webgraph-algo too (`cargo xtask peers` builds it), to the same tolerance of the same norm, by turns, and says how far
//! its ranks are from ours, all together. Worrying: less than 3 times as many links a CPU-second as it has. `--limit BYTES` ranks in a cgroup that may have so much memory, page cache
//! and all, with nothing of the graph cached before; it has to be root's. `--most N` ends after so many sweeps.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a bench may die, and removes what it made"
)]

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use ecluse_rank::{
    DanglingRule, GraphFiles, GraphWriter, NumberWriter, PairSorter, StateLog, SweepRule, Sweeps,
    Vector,
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// Memory for making the graph.
const MEMORY: usize = 512 << 20;

struct Options {
    urls: u32,
    degree: u32,
    graph: String,
    slice: u32,
    threads: u32,
    inner: u32,
    tolerance: f64,
    most: u32,
    turns: u32,
    dir: PathBuf,
    /// The program to compare with.
    peer: Option<PathBuf>,
    limit: Option<u64>,
}

/// What ranking took: sweeps, seconds by the clock and of CPU, and the most megabytes that were resident.
#[derive(Clone, Copy)]
struct Cost {
    sweeps: f64,
    wall: f64,
    cpu: f64,
    resident: f64,
}

impl Cost {
    /// Reads what a process printed last.
    fn parse(printed: &str) -> Self {
        let line = printed.lines().last().unwrap();
        let numbers: Vec<f64> = line.split(' ').map(|n| n.parse().unwrap()).collect();
        Self {
            sweeps: numbers[0],
            wall: numbers[1],
            cpu: numbers[2],
            resident: numbers[3],
        }
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let at = words.iter().position(|word| word == name)?;
        words.get(at + 1).map(String::as_str)
    };
    let number = |name: &str, default: u32| value(name).map_or(default, |n| n.parse().unwrap());
    let options = Options {
        urls: number("--urls", 1_000_000),
        degree: number("--degree", 10),
        graph: value("--graph").unwrap_or("hosts").to_owned(),
        slice: number("--slice", 393_216),
        threads: number("--threads", 2),
        inner: number("--inner", 3),
        tolerance: value("--tolerance").map_or(1e-6, |number| number.parse().unwrap()),
        most: number("--most", 200),
        turns: number("--turns", 1),
        dir: value("--dir")
            .map_or_else(|| Path::new(ROOT).join("../../.bench/rank"), PathBuf::from),
        peer: words.iter().any(|word| word == "--peer").then(peer),
        limit: value("--limit").map(|bytes| bytes.parse().unwrap()),
    };
    if words.iter().any(|word| word == "task-sweep") {
        return sweep(&options);
    }
    let directory = options.directory();
    let made = match options.peer {
        Some(_) => "pairs",
        None => "done",
    };
    if !directory.join(made).exists() || !directory.join("done").exists() {
        let began = Instant::now();
        make(&options);
        println!("made in {:.0} s", began.elapsed().as_secs_f64());
    }
    compare(&options, &words);
}

fn peer() -> PathBuf {
    let path = Path::new(ROOT).join("../../target/peers/release/peer-webgraph");
    assert!(path.exists(), "cargo xtask peers");
    path
}

/// Ranks by turns, each in a process of its own, and prints the best of each.
fn compare(options: &Options, words: &[String]) {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let directory = options.directory();
    for _ in 0..options.turns {
        let ourselves = std::env::current_exe().unwrap();
        let group = options.limit.map(|limit| limited(limit, &directory));
        let mut command = match &group {
            None => Command::new(ourselves),
            Some(group) => {
                let mut shell = Command::new("sh");
                let script = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";
                shell.args(["-c", script]).arg(group).arg(ourselves);
                shell
            }
        };
        ours.push(run(command.args(words).arg("task-sweep")));
        group.map(fs::remove_dir).transpose().unwrap();
        if let Some(peer) = &options.peer {
            let mut command = Command::new(peer);
            command.arg(directory.join("pairs"));
            command.args([options.urls.to_string(), options.tolerance.to_string()]);
            command.arg(options.threads.to_string());
            theirs.push(run(command.arg(directory.join("their-ranks"))));
        }
    }
    let links: f64 = fs::read_to_string(directory.join("done"))
        .unwrap()
        .parse()
        .unwrap();
    let load = fs::read_to_string("/proc/loadavg").unwrap();
    println!(
        "{}, {} M URLs / {:.0} M links, {} slices, {} rounds, {} threads, load {}",
        options.graph,
        options.urls / 1_000_000,
        links / 1e6,
        options.files().slices(),
        options.inner,
        options.threads,
        load.split(' ').next().unwrap()
    );
    println!(
        "| | s a sweep | CPU-s a sweep | M links a CPU-s | sweeps | s in all | CPU-s in all | resident MB |\n|---|--:|--:|--:|--:|--:|--:|--:|"
    );
    for (name, costs) in [("ecluse", &ours), ("webgraph-algo", &theirs)] {
        let best = costs
            .iter()
            .min_by(|one, other| one.cpu.total_cmp(&other.cpu));
        if let Some(cost) = best {
            println!(
                "| {name} | {:.2} | {:.2} | {:.0} | {} | {:.1} | {:.1} | {:.1} |",
                cost.wall / cost.sweeps,
                cost.cpu / cost.sweeps,
                links * cost.sweeps / cost.cpu / 1e6,
                cost.sweeps,
                cost.wall,
                cost.cpu,
                cost.resident
            );
        }
    }
    if options.peer.is_some() {
        let distance = distance(&directory.join("ranks"), &directory.join("their-ranks"));
        println!("apart, all together: {distance:.1e}");
    }
}

fn run(command: &mut Command) -> Cost {
    let output = command.stderr(std::process::Stdio::inherit()).output();
    let output = output.unwrap();
    assert!(output.status.success());
    Cost::parse(&String::from_utf8_lossy(&output.stdout))
}

/// Makes a cgroup with so much memory; nothing of the graph stays cached.
fn limited(limit: u64, directory: &Path) -> PathBuf {
    for entry in fs::read_dir(directory).unwrap() {
        let file = File::open(entry.unwrap().path()).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
    let name = format!("ecluse-rank-bench-{}", std::process::id());
    let old = Path::new("/sys/fs/cgroup/memory");
    let (group, file) = match old.is_dir() {
        true => (old.join(name), "memory.limit_in_bytes"),
        false => (Path::new("/sys/fs/cgroup").join(name), "memory.max"),
    };
    fs::create_dir(&group).unwrap();
    fs::write(group.join(file), limit.to_string()).unwrap();
    group
}

/// Returns how far two files of 64-bit floats are from each other, all together.
fn distance(one: &Path, other: &Path) -> f64 {
    let mut files = [one, other].map(|path| {
        let file = File::open(path).unwrap();
        assert!(file.metadata().unwrap().len().is_multiple_of(8));
        BufReader::with_capacity(1 << 20, file)
    });
    let mut sum = 0.0;
    loop {
        let numbers = files.each_mut().map(|file| {
            let mut bytes = [0; 8];
            file.read_exact(&mut bytes).ok()?;
            Some(f64::from_le_bytes(bytes))
        });
        match numbers {
            [Some(one), Some(other)] => sum += (one - other).abs(),
            [None, None] => return sum,
            _ => panic!("they have not the same length"),
        }
    }
}

impl Options {
    fn directory(&self) -> PathBuf {
        let Self {
            graph,
            urls,
            degree,
            slice,
            ..
        } = self;
        self.dir.join(format!("{graph}-{urls}-{degree}-{slice}"))
    }

    fn files(&self) -> GraphFiles {
        GraphFiles {
            directory: self.directory(),
            name: "slice",
            urls: self.urls,
            pages: self.slice,
        }
    }
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u32) -> u32 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u32
    }

    fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Returns where each host begins: sizes by a Pareto law with mean about 100, none above a hundredth of all.
fn hosts(urls: u32) -> Vec<u32> {
    let mut dice = Dice(7);
    let mut begins = vec![0];
    let mut at = 0u32;
    while at < urls {
        let size = (30.0 / (1.0 - dice.part()).powf(1.0 / 1.4)) as u32;
        at = at.saturating_add(size.clamp(1, (urls / 100).max(1)));
        begins.push(at.min(urls));
    }
    begins
}

fn make(options: &Options) {
    let directory = options.directory();
    fs::create_dir_all(&directory).unwrap();
    let urls = options.urls;
    let mut links = PairSorter::new(MEMORY / 2, &directory);
    let mut outdegrees = Vec::with_capacity(urls as usize);
    let mut dice = Dice(1);
    let begins = hosts(urls);
    let mut host = 0;
    let mut targets = Vec::new();
    for source in 0..urls {
        while begins[host + 1] <= source {
            host += 1;
        }
        let (begin, size) = (begins[host], begins[host + 1] - begins[host]);
        targets.clear();
        // One page in 20 links to nothing.
        let degree = match dice.below(20) {
            0 => 0,
            _ => dice.below(2 * options.degree) + 1,
        };
        for _ in 0..degree {
            let target = if options.graph == "uniform" {
                dice.below(urls)
            } else if dice.below(4) > 0 {
                begin + (f64::from(size) * dice.part().powi(2)) as u32
            } else {
                // A page anywhere is on a large host more likely; its first pages have most of the links.
                let other = begins.partition_point(|begin| *begin <= dice.below(urls)) - 1;
                let size = begins[other + 1] - begins[other];
                begins[other] + (f64::from(size) * dice.part().powi(6)) as u32
            };
            if target != source && target < urls {
                targets.push(target);
            }
        }
        targets.sort_unstable();
        targets.dedup();
        outdegrees.push(targets.len() as u32);
        for target in &targets {
            links.push(*target, source).unwrap();
        }
    }
    let graph = options.files();
    let mut writer = GraphWriter::new(&graph, MEMORY, &directory);
    // The same links, for others: pairs of 32-bit numbers by target.
    let mut pairs = options
        .peer
        .as_ref()
        .map(|_| BufWriter::new(File::create(directory.join("pairs")).unwrap()));
    links
        .finish(|target, source| {
            if let Some(pairs) = &mut pairs {
                pairs.write_all(&source.to_le_bytes()).unwrap();
                pairs.write_all(&target.to_le_bytes()).unwrap();
            }
            writer.push(source, target)
        })
        .unwrap();
    if let Some(pairs) = &mut pairs {
        pairs.flush().unwrap();
    }
    let (total, _) = writer.finish().unwrap();
    let mut weights = NumberWriter::create(&directory.join("out.f32")).unwrap();
    for degree in &outdegrees {
        let weight = match degree {
            0 => 0.0,
            degree => 1.0 / *degree as f32,
        };
        weights.float(weight).unwrap();
    }
    weights.finish().unwrap();
    fs::write(directory.join("done"), total.to_string()).unwrap();
}

fn sweep(options: &Options) {
    let directory = options.directory();
    let graph = options.files();
    let weight = directory.join("out.f32");
    let sweeps = Sweeps {
        graph: &graph,
        name: "rank",
        source_weight: Some(&weight),
        target_weight: None,
        preference: None,
        rule: SweepRule::Rank {
            damping: 0.85,
            dangling: DanglingRule::Prefer,
            inner: options.inner,
            tolerance: options.tolerance,
        },
        threads: options.threads,
        most: options.most,
    };
    sweeps.prepare(None).unwrap();
    let state = directory.join(format!("state-{}", std::process::id()));
    let mut log = StateLog::open(&state, "bench").unwrap();
    let (began, cpu) = (Instant::now(), cpu_seconds());
    let swept = sweeps.run(&mut log, &|| false).unwrap();
    println!(
        "{} {:.3} {:.2} {:.1}",
        swept.sweeps,
        began.elapsed().as_secs_f64(),
        cpu_seconds() - cpu,
        resident_megabytes()
    );
    if options.peer.is_some() {
        let mut out = BufWriter::new(File::create(directory.join("ranks")).unwrap());
        let scale = swept.scale / f64::from(options.urls);
        let values = Vector::open(&swept.values).unwrap();
        values
            .for_each_block(options.urls, |_, numbers| {
                for number in numbers.iter() {
                    let rank = f64::from(*number) * scale;
                    out.write_all(&rank.to_le_bytes()).unwrap();
                }
                Ok(())
            })
            .unwrap();
        out.flush().unwrap();
    }
}

/// User and system time of this process, by the kernel's clock of 100 ticks a second.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let ticks: f64 = fields[11..13]
        .iter()
        .map(|n| n.parse::<f64>().unwrap())
        .sum();
    ticks / 100.0
}

/// The most memory that was resident at once.
fn resident_megabytes() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap();
    let kilobytes: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes / 1000.0
}
