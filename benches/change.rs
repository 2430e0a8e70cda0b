//! What does it cost to find out how much documents have changed?
//!
//! In CPU-seconds, user and system together. Pages of Rust's documentation, two versions of each that differ in a few places: every tenth
//! paragraph is written anew, links and a block come and go. Megabytes are those of both versions, unpacked.
//!
//! * the arithmetic alone: two documents cut into blocks and compared;
//! * `ecluse-change --once` over WARC files with a gzip member a record: found in the index, read, unpacked, cut, compared, written.
//!
//! Worrying below 20 MB a CPU-second. `cargo build --release -p ecluse-change`, then
//! `cargo bench -p ecluse-change --bench change -- [--dir DIR] [--pages N]`.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a bench may die, and makes and removes its own files"
)]

#[path = "page.rs"]
mod page;

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ecluse_changes::{BlockDocument, DocumentForm, PageChanges, RecordReader, WeightNorm, compare};
use flate2::Compression;
use flate2::write::GzEncoder;
use page::Page;

/// Runs of which the best counts.
const ROUNDS: usize = 3;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let directory =
        option("--dir").map_or_else(|| std::env::temp_dir().join("ecluse-bench"), PathBuf::from);
    let most = option("--pages").map_or(3000, |text| text.parse().unwrap());
    let root = directory.join("change");
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(&root).unwrap();
    let pairs: Vec<(Vec<u8>, Vec<u8>)> = documentation(most)
        .iter()
        .map(|path| fs::read(path).unwrap())
        .map(|old| (old.clone(), changed(&old)))
        .collect();
    let bytes: usize = pairs.iter().map(|(old, new)| old.len() + new.len()).sum();
    let megabytes = bytes as f64 / 1e6;
    let mut page = Page::begin("change");
    page.say(format!(
        "{} pages of Rust's documentation in two versions, {:.0} kB in the mean, {megabytes:.0} MB together\n",
        pairs.len(),
        megabytes * 500.0 / pairs.len() as f64
    ));
    page.say(
        "| documents that differ | CPU s | MB/CPU-s | at least | peak MiB |\n|---|--:|--:|--:|--:|",
    );
    let alone = (0..ROUNDS)
        .map(|_| arithmetic(&pairs))
        .fold(f64::MAX, f64::min);
    page.say(format!(
        "| cut into blocks and compared | {alone:.2} | {:.0} | 20 | |",
        megabytes / alone
    ));
    let (cpu, peak) = (0..ROUNDS)
        .map(|round| stage(&root.join(round.to_string()), &pairs))
        .fold(
            (f64::MAX, 0),
            |best, other| if other.0 < best.0 { other } else { best },
        );
    page.say(format!(
        "| `ecluse-change --once`, from gzip WARC files to `changes/current` | {cpu:.2} | {:.0} | 20 | {peak} |",
        megabytes / cpu
    ));
    page.end(most == 3000);
    fs::remove_dir_all(&root).unwrap();
}

/// Returns pages from all over the documentation that comes with the compiler.
fn documentation(most: usize) -> Vec<PathBuf> {
    let output = Command::new("rustc")
        .args(["--print", "sysroot"])
        .output()
        .unwrap();
    let sysroot = String::from_utf8(output.stdout).unwrap();
    let root = Path::new(sysroot.trim()).join("share/doc/rust/html");
    let mut found = Vec::new();
    let mut stack = vec![root.clone()];
    while let Some(directory) = stack.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().unwrap().is_dir() {
                stack.push(path);
            } else if path.extension().is_some_and(|end| end == "html") {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(
        !found.is_empty(),
        "{} has no documentation: rustup component add rust-docs",
        root.display()
    );
    let step = (found.len() / most).max(1);
    found.into_iter().step_by(step).take(most).collect()
}

/// Returns a page that was edited here and there.
fn changed(old: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(old);
    let mut new = String::with_capacity(old.len() + 1000);
    for (number, part) in text.split("<p>").enumerate() {
        if number > 0 {
            new.push_str("<p>");
        }
        if number % 10 == 1 {
            new.push_str("This was <a href=/edited>written anew</a> a while after. ");
        }
        new.push_str(part);
    }
    new = new.replacen(
        "<section",
        "<aside><p>Look at this first</aside><section",
        1,
    );
    new.push_str("<footer><p>edited</footer>");
    new.into_bytes()
}

/// Returns the CPU seconds of comparing all pairs.
fn arithmetic(pairs: &[(Vec<u8>, Vec<u8>)]) -> f64 {
    let markers = [
        "/ads/".to_owned(),
        "doubleclick".to_owned(),
        "adserver".to_owned(),
    ];
    let begun = cpu_seconds();
    let mut weights = 0.0;
    for (old, new) in pairs {
        let old = BlockDocument::read(old, DocumentForm::Page, &markers);
        let new = BlockDocument::read(new, DocumentForm::Page, &markers);
        weights += compare(&old, &new, WeightNorm::Formula).weight;
    }
    assert!(weights > 0.0);
    cpu_seconds() - begun
}

fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns the CPU seconds of the stage over an archive of these pairs, and its memory.
fn stage(root: &Path, pairs: &[(Vec<u8>, Vec<u8>)]) -> (f64, u64) {
    let generation = root.join("index/generations/1");
    fs::create_dir_all(&generation).unwrap();
    fs::create_dir_all(root.join("repository")).unwrap();
    fs::write(
        root.join("pipeline.toml"),
        "[defaults]\nmin-free = \"0 B\"\n[chain]\nstages = [\"change\"]\n[stage.change]\nbatch = { parcels = 1, wait = \"1ms\" }\n",
    )
    .unwrap();
    let mut out = fs::File::create(root.join("repository/a.warc.gz")).unwrap();
    let (mut offset, mut lines) = (0, Vec::new());
    for (number, (old, new)) in pairs.iter().enumerate() {
        for (time, body) in [("20260101000000", old), ("20260102000000", new)] {
            let url = format!("http://docs.example/p{number:05}");
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n";
            let record = format!(
                "WARC/1.1\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:{number:08}-0000-0000-0000-{time}>\r\n\
                 WARC-Date: {}-{}-{}T00:00:00Z\r\nWARC-Target-URI: {url}\r\n\
                 Content-Type: application/http; msgtype=response\r\nContent-Length: {}\r\n\r\n{head}",
                &time[..4],
                &time[4..6],
                &time[6..8],
                head.len() + body.len()
            );
            let mut member = GzEncoder::new(Vec::new(), Compression::default());
            member.write_all(record.as_bytes()).unwrap();
            member.write_all(body).unwrap();
            member.write_all(b"\r\n\r\n").unwrap();
            let member = member.finish().unwrap();
            out.write_all(&member).unwrap();
            lines.push(format!(
                "example,docs)/p{number:05} {time} {{\"url\": \"{url}\", \"mime\": \"text/html\", \"status\": \"200\", \"digest\": \
                 \"sha1:{number}X{time}\", \"length\": \"{}\", \"offset\": \"{offset}\", \"filename\": \"a.warc.gz\"}}\n",
                member.len()
            ));
            offset += member.len();
        }
    }
    fs::write(generation.join("index.cdxj"), lines.concat()).unwrap();
    fs::write(
        generation.join("path-index.txt"),
        "a.warc.gz\trepository/a.warc.gz\n",
    )
    .unwrap();
    symlink("generations/1", root.join("index/current")).unwrap();
    let ready = root.join("captures.cdxj");
    fs::write(&ready, lines.concat()).unwrap();
    let tree = ecluse_spool::WorkTree::open(&root.join("work"));
    let id = ecluse_spool::ParcelId::new("captures").unwrap();
    tree.put("change", &id, "captures", |parcel| {
        parcel.write("captures.cdxj", lines.concat().as_bytes())
    })
    .unwrap();
    let itself = std::env::current_exe().unwrap();
    let program = itself.ancestors().nth(2).unwrap().join("ecluse-change");
    assert!(program.exists(), "cargo build --release -p ecluse-change");
    let found = measured(&program, root);
    let pages = RecordReader::<PageChanges>::open(&root.join("changes/current")).unwrap();
    let weighed = pages.filter(|page| page.as_ref().unwrap().change_weight.is_some());
    assert_eq!(weighed.count(), pairs.len());
    fs::remove_dir_all(root).unwrap();
    found
}

/// Runs the stage; returns its CPU seconds, and the most memory it had in MiB.
fn measured(program: &Path, root: &Path) -> (f64, u64) {
    let output = Command::new("/usr/bin/time")
        .args(["-f", "%U %S %M"])
        .arg(program)
        .arg("--root")
        .arg(root)
        .args(["--once", "--log", "error"])
        .env_remove("ECLUSE_CONFIG")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let last = said.lines().last().unwrap();
    let figures: Vec<f64> = last.split(' ').map(|word| word.parse().unwrap()).collect();
    (figures[0] + figures[1], figures[2] as u64 / 1024)
}
