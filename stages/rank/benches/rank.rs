//! How long does a sweep over the slices take, with how much memory, and how many are needed?
//!
//! `cargo bench -p ecluse-rank --bench rank -- [--urls N] [--degree N] [--graph uniform|hosts] [--slice N] [--threads N] [--inner N]
//! [--tolerance X] [--dir DIR] [--ranks FILE]`
//!
//! It makes a graph of its own, the same each time, in DIR (default `.bench/rank`; about 14 bytes a link while it is made, 4 then), and ranks it in a
//! process of its own: seconds of wall and of CPU a sweep, sweeps until the tolerance, and the most memory that was resident. `uniform`: every
//! link goes anywhere. `hosts`: URLs stand by host, three of four links stay in it, the others go to the first pages of hosts, the larger
//! the likelier. Worrying at 20,000,000 URLs with 10 links each: more than 1.5 s a sweep on two quiet cores, more than 16 MB, more than
//! 16 sweeps to 1e-6 on the graph of hosts. `--ranks` writes the ranks as 64-bit floats, to be compared with those of others (`benches/peers/webgraph`).

#![expect(clippy::unwrap_used, reason = "a bench may die")]

use std::fs::{self, File};
use std::io::{BufWriter, Write};
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
    dir: PathBuf,
    ranks: Option<PathBuf>,
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
        dir: value("--dir")
            .map_or_else(|| Path::new(ROOT).join("../../.bench/rank"), PathBuf::from),
        ranks: value("--ranks").map(PathBuf::from),
    };
    if words.iter().any(|word| word == "task-sweep") {
        return sweep(&options);
    }
    let directory = options.directory();
    if !directory.join("done").exists() {
        let began = Instant::now();
        make(&options);
        println!("made in {:.0} s", began.elapsed().as_secs_f64());
    }
    let status = Command::new(std::env::current_exe().unwrap())
        .args(&words)
        .arg("task-sweep")
        .status();
    assert!(status.unwrap().success());
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
        .ranks
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
    let links: f64 = fs::read_to_string(directory.join("done"))
        .unwrap()
        .parse()
        .unwrap();
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
        most: 200,
    };
    sweeps.prepare(None).unwrap();
    let state = directory.join(format!("state-{}", std::process::id()));
    let mut log = StateLog::open(&state, "bench").unwrap();
    let (began, cpu) = (Instant::now(), cpu_seconds());
    let swept = sweeps.run(&mut log, &|| false).unwrap();
    let wall = began.elapsed().as_secs_f64() / f64::from(swept.sweeps);
    let cpu = (cpu_seconds() - cpu) / f64::from(swept.sweeps);
    println!(
        "| {} | {} M / {:.0} M | {} | {} | {} | {wall:.2} | {cpu:.2} | {:.0} | {} | {:.1e} | {:.1} |",
        options.graph,
        options.urls / 1_000_000,
        links / 1e6,
        graph.slices(),
        options.inner,
        options.threads,
        links / cpu / 1e6,
        swept.sweeps,
        swept.bound,
        resident_megabytes()
    );
    if let Some(path) = &options.ranks {
        let mut out = BufWriter::new(File::create(path).unwrap());
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
