//! What does the whole chain cost beside the work nobody can spare, and how much does ingest take in a day?
//!
//! `cargo bench --bench chain [-- [--dir DIR] [--files N] [--megabytes M]]`
//!
//! Takes N files of M MB from `harvested/` to the merged day with the real program, everything synced,
//! and sets its CPU time beside one SHA-256, one SHA-512, one inflation and two synced copies of the same bytes.
//! A ratio over 1.5 should worry us.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a bench may die, and makes and removes its own files"
)]

#[path = "page.rs"]
mod page;
#[path = "warc_files.rs"]
mod warc_files;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ecluse_warc::{ReaderLimits, WarcReader};
use page::Page;
use sha2::{Digest, Sha256, Sha512};
use warc_files::{childrens_cpu, model, write_file};

const STAGES: [&str; 6] = ["ingest", "index", "transfer", "backup", "delete", "merge"];

fn main() {
    let options = Options::parse();
    let dir = options.dir.join(format!("chain-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let model = model(options.megabytes << 20);
    let files: Vec<PathBuf> = (0..options.files)
        .map(|number| write_file(&dir, &model, number))
        .collect();
    let bytes: u64 = files
        .iter()
        .map(|file| file.metadata().unwrap().len())
        .sum();
    rustix::fs::sync();
    let mut page = Page::begin("chain");
    page.say(format!(
        "{} files, {:.2} GB of gzip WARC, best of {}\n",
        files.len(),
        bytes as f64 / 1e9,
        options.rounds
    ));

    let mut bare = Cost::MAX;
    let mut steps = [Cost::MAX; 6];
    for round in 0..options.rounds {
        bare = bare.min(bare_work(&dir, &files));
        let costs = whole_chain(&dir.join(format!("root-{round}")), &files);
        steps = std::array::from_fn(|at| steps[at].min(costs[at]));
    }
    page.say("| | CPU-s | wall s | CPU-s a GB | ratio of CPU |");
    page.say("|---|--:|--:|--:|--:|");
    let gigabytes = bytes as f64 / 1e9;
    let mut row = |what: &str, cost: Cost, ratio: f64| {
        page.say(format!(
            "| {what} | {:.2} | {:.2} | {:.2} | {ratio:.2} |",
            cost.cpu.as_secs_f64(),
            cost.wall.as_secs_f64(),
            cost.cpu.as_secs_f64() / gigabytes
        ));
    };
    row(
        "one SHA-256, one SHA-512, one inflation, two synced copies",
        bare,
        1.0,
    );
    let ratio = |cost: Cost| cost.cpu.as_secs_f64() / bare.cpu.as_secs_f64();
    for (stage, cost) in STAGES.iter().zip(steps) {
        row(stage, cost, ratio(cost));
    }
    let chain = Cost {
        cpu: steps.iter().map(|step| step.cpu).sum(),
        wall: steps.iter().map(|step| step.wall).sum(),
    };
    row(
        "the chain, ingest to merge (at most 1.5)",
        chain,
        ratio(chain),
    );
    let a_day = 86_400.0 * files.len() as f64 / steps[0].wall.as_secs_f64();
    let volume = a_day * bytes as f64 / files.len() as f64 / 1e12;
    page.say(format!(
        "\ningest: {a_day:.0} files of {} MB a day, {volume:.0} TB (the old ceiling: 20,000 of 100 MB, 2 TB)",
        options.megabytes
    ));
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
    wall: Duration,
}

impl Cost {
    const MAX: Self = Self {
        cpu: Duration::MAX,
        wall: Duration::MAX,
    };

    /// The best of each: a shared machine has bad moments.
    fn min(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.min(other.cpu),
            wall: self.wall.min(other.wall),
        }
    }
}

/// What nobody can spare: two digests (the manifest's and the packages'), an inflation, two copies that are synced.
fn bare_work(dir: &Path, files: &[PathBuf]) -> Cost {
    let wall = Instant::now();
    let cpu = own_cpu();
    for file in files {
        let mut source = File::open(file).unwrap();
        let mut sha256 = Sha256::new();
        let mut sha512 = Sha512::new();
        let mut buffer = vec![0; 1 << 20];
        loop {
            let read = source.read(&mut buffer).unwrap();
            if read == 0 {
                break;
            }
            sha256.update(&buffer[..read]);
            sha512.update(&buffer[..read]);
        }
        assert_ne!(sha256.finalize()[..], [0; 32][..]);
        assert_ne!(sha512.finalize()[..], [0; 64][..]);
        inflate(&fs::read(file).unwrap());
        for copy in ["copy-1", "copy-2"] {
            let to = dir.join(copy);
            let mut target = File::create(&to).unwrap();
            io::copy(&mut File::open(file).unwrap(), &mut target).unwrap();
            target.sync_all().unwrap();
            fs::remove_file(&to).unwrap();
        }
    }
    Cost {
        cpu: own_cpu() - cpu,
        wall: wall.elapsed(),
    }
}

/// Inflates every member with libdeflate and nothing else; where each begins is found beforehand by
/// the reader, whose time is not counted.
fn inflate(bytes: &[u8]) {
    let before = own_cpu();
    let offsets = member_offsets(bytes);
    EXCUSED.with(|excused| excused.set(excused.get() + (own_cpu() - before)));
    let mut decompressor = libdeflater::Decompressor::new();
    let mut out = vec![0; 1 << 20];
    for pair in offsets.windows(2) {
        let member = &bytes[pair[0]..pair[1]];
        let written = decompressor.gzip_decompress(member, &mut out).unwrap();
        assert!(written > 0);
    }
}

thread_local! {
    /// CPU time that is no part of what is measured.
    static EXCUSED: std::cell::Cell<Duration> = const { std::cell::Cell::new(Duration::ZERO) };
}

fn member_offsets(bytes: &[u8]) -> Vec<usize> {
    let mut reader = WarcReader::new(bytes, ReaderLimits::default());
    let mut offsets = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        if let ecluse_warc::Extent::Own { offset, .. } = record.finish().unwrap() {
            offsets.push(offset as usize);
        }
    }
    offsets.push(bytes.len());
    offsets
}

/// Takes the files through the chain, one stage after the other; returns the cost of each.
fn whole_chain(root: &Path, files: &[PathBuf]) -> [Cost; 6] {
    let harvested = root.join("harvested");
    fs::create_dir_all(&harvested).unwrap();
    for file in files {
        fs::hard_link(file, harvested.join(file.file_name().unwrap())).unwrap();
    }
    // What it waits until a file is at rest is no work: as short as it goes.
    let settings = "[defaults]\nmin-free = \"0 B\"\nsettle = \"100ms\"\n";
    fs::write(root.join("pipeline.toml"), settings).unwrap();
    let steps = STAGES.map(|stage| run(root, &[stage]));
    let day = root.join("work/bigmerge/ready");
    assert_eq!(
        fs::read_dir(day).unwrap().count(),
        1,
        "the day waits for bigmerge"
    );
    let stored = fs::read_dir(root.join("repository")).unwrap().count();
    assert_eq!(stored, files.len());
    fs::remove_dir_all(root).unwrap();
    steps
}

fn run(root: &Path, stages: &[&str]) -> Cost {
    let wall = Instant::now();
    let cpu = childrens_cpu();
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
        wall: wall.elapsed(),
    }
}

fn own_cpu() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let spent = Duration::new(now.tv_sec as u64, now.tv_nsec as u32);
    spent - EXCUSED.with(std::cell::Cell::get)
}
