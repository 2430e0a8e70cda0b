//! What does a package cost whose files were hashed before, beside bagit-python's create? And how much memory does a job of
//! 10,000 files take?
//!
//! `cargo bench -p ecluse-package -- --runs 3`. Files are holes, so that both read from memory; all are on one file system. The stage as it
//! ships: claim, links, documents, tag files, fsync, receipt. bagit-python makes one SHA-512, or its usual two digests. The best counts.
//! Less than 50 times as fast by CPU time and by the clock, or more than 128 MiB, would worry us.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a bench stops where it fails"
)]

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ecluse_manifest::Manifest;
use ecluse_testkit::root::Root;
use sha2::{Digest, Sha256, Sha512};

const PACKAGE: &str = env!("CARGO_BIN_EXE_ecluse-package");
/// What crawlers make as they are shipped.
const FILE_BYTES: u64 = 1_000_000_000;
const FILES: usize = 12;
const MANY: usize = 10_000;

fn main() {
    let content = Content::of(FILE_BYTES);
    let words: Vec<String> = std::env::args().collect();
    let count = words.iter().position(|word| word == "--runs");
    let count = count.map_or(3, |at| words[at + 1].parse().unwrap());
    let runs: Vec<(Cost, Cost, Cost)> = (0..count)
        .map(|_| {
            (
                package(FILES, &content).0,
                bagit(&content, &["--sha512"]),
                bagit(&content, &[]),
            )
        })
        .collect();
    let best = |of: fn(&(Cost, Cost, Cost)) -> Cost| Cost {
        cpu: runs.iter().map(|run| of(run).cpu).min().unwrap(),
        wall: runs.iter().map(|run| of(run).wall).min().unwrap(),
    };
    let ours = best(|run| run.0);
    println!("{FILES} files of {FILE_BYTES} bytes, hashed before:");
    ours.print("ecluse-package --once", ours);
    best(|run| run.1).print("bagit.py --sha512", ours);
    best(|run| run.2).print("bagit.py, its usual two digests", ours);
    let (cost, peak) = package(MANY, &Content::of(1000));
    println!(
        "a job of {MANY} files: {:.2} CPU-s, {:.2} s, peak {peak} KiB; at most {} are allowed",
        cost.cpu.as_secs_f64(),
        cost.wall.as_secs_f64(),
        128 << 10
    );
}

#[derive(Debug, Clone, Copy)]
struct Cost {
    cpu: Duration,
    wall: Duration,
}

impl Cost {
    fn print(self, name: &str, ours: Self) {
        let ratio = |theirs: Duration, ours: Duration| theirs.as_secs_f64() / ours.as_secs_f64();
        println!(
            "{name}: {:.2} CPU-s ({:.0} x), {:.2} s ({:.0} x)",
            self.cpu.as_secs_f64(),
            ratio(self.cpu, ours.cpu),
            self.wall.as_secs_f64(),
            ratio(self.wall, ours.wall)
        );
    }
}

/// So many zeros, and their digests.
struct Content {
    bytes: u64,
    sha256: String,
    sha512: String,
}

impl Content {
    fn of(bytes: u64) -> Self {
        let zeros = vec![0; 1000];
        let (mut sha256, mut sha512) = (Sha256::new(), Sha512::new());
        for _ in 0..bytes / 1000 {
            sha256.update(&zeros);
            sha512.update(&zeros);
        }
        Self {
            bytes,
            sha256: ecluse_stage::hex(&sha256.finalize()),
            sha512: ecluse_stage::hex(&sha512.finalize()),
        }
    }

    fn write(&self, path: &Path) {
        File::create(path).unwrap().set_len(self.bytes).unwrap();
    }
}

/// Packs a job of so many files; returns what that cost, and the most memory that it took.
fn package(files: usize, content: &Content) -> (Cost, u64) {
    let root = Root::new();
    root.settings(&["package"], "[stage.package]\n");
    let at = |path: &str| root.path().join(path);
    for directory in ["repository", "backup"] {
        fs::create_dir(at(directory)).unwrap();
    }
    drop(Manifest::open(&at("manifest.sqlite"), root.path()).unwrap());
    let mut list = "[ARCHIVEFILE] [Opened] [Closed] [Size]\n".to_owned();
    let mut rows = Vec::new();
    for number in 0..files {
        let name = format!("17-4-20260102030405000-{number:05}-h.warc");
        content.write(&at("repository").join(&name));
        let time = "2026-01-02T03:04:05Z";
        list.push_str(&format!("{name} {time} {time} {}\n", content.bytes));
        let digests = (content.sha256.clone(), content.sha512.clone());
        rows.push((name, "warc", content.bytes, digests));
    }
    let name = "17-4-metadata-1.warc".to_owned();
    let text = format!(
        "WARC/1.0\r\nWARC-Type: resource\r\nWARC-Target-URI: metadata://a/crawl/reports/archivefiles-report.txt?harvestid=4&jobid=17\r\n\
         WARC-Date: 2026-01-02T03:04:05Z\r\nWARC-Record-ID: <urn:uuid:1>\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{list}\r\n\r\n",
        list.len()
    );
    fs::write(at("repository").join(&name), &text).unwrap();
    let digests = (
        ecluse_stage::hex(&Sha256::digest(&text)),
        ecluse_stage::hex(&Sha512::digest(&text)),
    );
    rows.push((name, "metadata", text.len() as u64, digests));
    tell(&at("manifest.sqlite"), &rows);
    let mut command = Command::new(PACKAGE);
    ecluse_testkit::root::settle_environment(&mut command);
    command.arg("--root").arg(root.path()).arg("--once");
    let measured = measure(&mut command);
    assert!(at("packages").read_dir().unwrap().next().is_some());
    measured
}

/// Tells a manifest that these files have passed the chain just now, all in one go.
fn tell(path: &Path, rows: &[(String, &str, u64, (String, String))]) {
    let mut connection = rusqlite::Connection::open(path).unwrap();
    let transaction = connection.transaction().unwrap();
    let now = "strftime('%Y-%m-%dT%H:%M:%SZ', 'now')";
    for (name, kind, bytes, (sha256, sha512)) in rows {
        let sql = format!(
            "INSERT INTO file (name, bytes, sha256, kind, job, harvest, source, parcel, state, captures, damages, generation, \
             ingested, indexed, stored, backed_up, deleted, published) VALUES (?1, ?2, ?3, ?4, '17', '4', './harvested', ?1, \
             'published', 1, 0, 1, {now}, {now}, {now}, {now}, {now}, {now})"
        );
        let bytes = i64::try_from(*bytes).unwrap();
        let values = rusqlite::params![name, bytes, sha256, kind];
        transaction.execute(&sql, values).unwrap();
        for (kind, place, proof) in [
            ("stored", "repository", None),
            ("backup", "backup", Some(r#"{"kind":"directory"}"#)),
        ] {
            let sql = format!(
                "INSERT INTO copy (file, kind, target, place, bytes, sha256, proof, made) \
                 VALUES (?1, ?2, 'x', ?3, ?4, ?5, ?6, {now})"
            );
            let place = format!("./{place}/{name}");
            let values = rusqlite::params![name, kind, place, bytes, sha256, proof];
            transaction.execute(&sql, values).unwrap();
        }
        let sql = "INSERT INTO digest (file, sha256, sha512) VALUES (?1, ?2, ?3)";
        transaction.execute(sql, [name, sha256, sha512]).unwrap();
    }
    transaction.commit().unwrap();
}

fn bagit(content: &Content, words: &[&str]) -> Cost {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..FILES {
        content.write(&dir.path().join(format!("{number}.warc")));
    }
    let mut command = Command::new(ecluse_peers::python());
    command.args(["-m", "bagit", "--quiet"]).args(words);
    let (cost, _) = measure(command.arg(dir.path()));
    assert!(dir.path().join("bagit.txt").exists());
    cost
}

/// Runs a program to its end; returns what it cost, and its peak in KiB.
fn measure(command: &mut Command) -> (Cost, u64) {
    let before = spent_by_children();
    let begun = Instant::now();
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    let ended = loop {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let now = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        peak = peak.max(now.unwrap_or(0));
        if let Some(ended) = child.try_wait().unwrap() {
            break ended;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let wall = begun.elapsed();
    assert!(ended.success(), "{command:?}: {ended}");
    let cpu = spent_by_children() - before;
    (Cost { cpu, wall }, peak)
}

/// The CPU time of all children that have ended: ticks of a hundredth of a second.
fn spent_by_children() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let ticks: u64 = fields
        .split(' ')
        .skip(13)
        .take(2)
        .map(|ticks| ticks.parse::<u64>().unwrap())
        .sum();
    Duration::from_millis(ticks * 10)
}
