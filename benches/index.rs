//! How fast are lines made of (W)ARC files, beside the programs that do it today and the limit of inflating alone?
//!
//! `cargo bench --bench index [-- --corpus DIR] [--dir DIR] [--megabytes N] [--rounds N] [--no-python]`
//!
//! Without `--corpus` it makes its own files, four of N megabytes. Each program runs in a process of its own, by turns;
//! CPU-seconds of user and system, the best of the rounds. The peers are installed by `cargo xtask peers`; one that is
//! not there is left out, and said so. Worrying: below 1.5 times the fastwarc crate, 10 times cdxj-indexer, or 0.75 of
//! bare libdeflate on the same members; more than a quarter more CPU with links; two workers below 1.8 times one; more than 64 MiB a worker.

#![expect(clippy::unwrap_used, reason = "a bench may die")]

#[path = "index/corpus.rs"]
mod corpus;
#[path = "page.rs"]
mod page;

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use ecluse_cdx::{Capture, Duplicates, SortOptions, Sorter, cdxj};
use ecluse_index::{Index, Settings, write_links};
use ecluse_stage::Stage;
use ecluse_warc::{Extent, ReaderLimits, WarcReader};
use page::Page;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["task-index", files @ ..] => task_index(files),
        ["task-links", files @ ..] => task_links(files),
        ["task-inflate", files @ ..] => task_inflate(files),
        ["task-workers", workers, files @ ..] => task_workers(workers.parse().unwrap(), files),
        _ => run(&words),
    }
}

fn run(words: &[&str]) {
    let value = |name: &str| {
        let at = words.iter().position(|word| *word == name)?;
        words.get(at + 1).copied()
    };
    let rounds: usize = value("--rounds").map_or(5, |number| number.parse().unwrap());
    let megabytes = value("--megabytes").map_or(40, |number| number.parse().unwrap());
    let dir = value("--dir").map_or_else(|| Path::new(ROOT).join(".bench/index"), PathBuf::from);
    let files = match value("--corpus") {
        Some(dir) => given(Path::new(dir)),
        None => corpus::make(&dir, megabytes).unwrap(),
    };
    let bytes: u64 = files
        .iter()
        .map(|file| file.metadata().unwrap().len())
        .sum();
    let mut page = Page::begin("index");
    page.say(format!(
        "{} files, {:.1} MB; best of {rounds}, by turns\n",
        files.len(),
        bytes as f64 / 1e6
    ));
    let python = !words.contains(&"--no-python");
    let whole = speed(&mut page, &files, bytes, rounds, python);
    scaling(&mut page, &files, bytes, rounds);
    memory(&mut page, &files, &dir);
    page.end(whole);
}

fn given(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(".warc.gz"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no *.warc.gz in {}", dir.display());
    files
}

/// One program of the table.
struct Runner {
    name: &'static str,
    /// What ours must reach beside it.
    bar: &'static str,
    command: Vec<String>,
    /// How often it runs: the slow one is steady.
    rounds: usize,
    best: f64,
}

/// Sets the programs side by side; returns whether all of them were there.
fn speed(page: &mut Page, files: &[PathBuf], bytes: u64, rounds: usize, python: bool) -> bool {
    let mut runners = vec![
        runner(
            "bare libdeflate inflate",
            "0.75 ×",
            &myself("task-inflate"),
            rounds,
        ),
        runner("`ecluse-index`", "", &myself("task-index"), rounds),
        runner(
            "the same, with links",
            "at most 1.25 ×",
            &myself("task-links"),
            rounds,
        ),
    ];
    let fastwarc = Path::new(ROOT).join("target/peers/release/peer-fastwarc");
    let indexer = Path::new(ROOT).join("target/interop/bin/cdxj-indexer");
    if fastwarc.exists() {
        let command = [fastwarc.display().to_string()];
        runners.push(runner(
            "`fastwarc` 2.0.0 with `surt-rs`",
            "1.5 ×",
            &command,
            rounds,
        ));
    } else {
        println!("fastwarc is left out: run `cargo xtask peers`");
    }
    if indexer.exists() && python {
        let command = [indexer.display().to_string(), "-s".to_owned()];
        runners.push(runner(
            "cdxj-indexer 1.5, `-s`",
            "10 ×",
            &command,
            rounds.min(2),
        ));
    } else {
        println!("cdxj-indexer is left out: run `cargo xtask peers`, without --no-python");
    }
    for round in 0..rounds {
        for runner in runners.iter_mut().filter(|runner| round < runner.rounds) {
            runner.best = runner.best.min(cpu_seconds(&runner.command, files));
        }
    }
    let ours = runners[1].best;
    page.say("| program | CPU s | MB a CPU-s | `ecluse-index` beside it | at least |");
    page.say("|---|--:|--:|--:|--:|");
    for runner in &runners {
        let bar = runner.bar;
        let rate = bytes as f64 / 1e6 / runner.best;
        page.say(format!(
            "| {} | {:.3} | {rate:.0} | {:.2} × | {bar} |",
            runner.name,
            runner.best,
            runner.best / ours
        ));
    }
    runners.len() == 5
}

fn runner(name: &'static str, bar: &'static str, command: &[String], rounds: usize) -> Runner {
    Runner {
        name,
        bar,
        command: command.to_vec(),
        rounds,
        best: f64::MAX,
    }
}

fn myself(task: &str) -> Vec<String> {
    let program = std::env::current_exe().unwrap();
    vec![program.display().to_string(), task.to_owned()]
}

/// Runs a program on the files; its CPU-seconds, unless it says them itself.
fn cpu_seconds(command: &[String], files: &[PathBuf]) -> f64 {
    let output = Command::new("bash")
        .args(["-c", "\"$@\" > /dev/null && times", "bash"])
        .args(command)
        .args(files)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    if let Some(seconds) = said.lines().find_map(|line| line.strip_prefix("seconds ")) {
        return seconds.parse().unwrap();
    }
    let text = String::from_utf8(output.stdout).unwrap();
    // The last line is the children's: `0m1.234s 0m0.567s`.
    let children = text.lines().last().unwrap();
    let seconds = |time: &str| {
        let (minutes, seconds) = time.trim_end_matches('s').split_once('m').unwrap();
        60.0 * minutes.parse::<f64>().unwrap() + seconds.parse::<f64>().unwrap()
    };
    children.split_whitespace().map(seconds).sum()
}

/// Two workers beside one, on the same files, each file once.
fn scaling(page: &mut Page, files: &[PathBuf], bytes: u64, rounds: usize) {
    let mut best = [(f64::MAX, f64::MAX); 2];
    for _ in 0..rounds {
        for (workers, best) in (1..).zip(&mut best) {
            let mut command = myself("task-workers");
            command.push(workers.to_string());
            let began = Instant::now();
            let cpu = cpu_seconds(&command, files);
            *best = (best.0.min(began.elapsed().as_secs_f64()), best.1.min(cpu));
        }
    }
    let [(one, one_cpu), (two, two_cpu)] = best;
    let rate = |seconds: f64| bytes as f64 / 1e6 / seconds;
    page.say("\n| workers | s | MB a second | CPU s |");
    page.say("|---|--:|--:|--:|");
    for (workers, seconds, cpu) in [("one", one, one_cpu), ("two", two, two_cpu)] {
        let rate = rate(seconds);
        page.say(format!(
            "| {workers} | {seconds:.3} | {rate:.0} | {cpu:.3} |"
        ));
    }
    page.say(format!(
        "\ntwo workers: {:.2} × one by the clock (at least 1.8 ×, on two cores that are free); {:.2} × by CPU-seconds",
        one / two,
        2.0 * one_cpu / two_cpu
    ));
}

/// The most memory a worker takes: on the files, and on one of giants.
fn memory(page: &mut Page, files: &[PathBuf], dir: &Path) {
    let giant = dir.join("giant.warc.gz");
    fs::create_dir_all(dir).unwrap();
    write_giant(&giant);
    let peak = |files: &[PathBuf]| {
        let output = Command::new(std::env::current_exe().unwrap())
            .arg("task-index")
            .args(files)
            .stdout(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = said.lines().find_map(|line| line.strip_prefix("peak "));
        line.unwrap().parse::<u64>().unwrap() as f64 / 1024.0
    };
    let largest = files
        .iter()
        .map(|file| peak(std::slice::from_ref(file)))
        .fold(0.0, f64::max);
    page.say(format!(
        "\npeak memory (at most 64 MiB): {largest:.1} MiB on these files; {:.1} MiB on 300 MB in a member and 300,000 lines",
        peak(&[giant])
    ));
}

/// A record larger than any window, and more lines than are sorted in memory.
fn write_giant(path: &Path) {
    let mut out = io::BufWriter::new(File::create(path).unwrap());
    let mut packer = libdeflater::Compressor::new(libdeflater::CompressionLvl::new(1).unwrap());
    let mut write = |uri: &str, body: usize| {
        let mut record = format!(
            "WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: {uri}\r\nWARC-Date: 2026-01-02T03:04:05Z\r\n\
             Content-Length: {}\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
            body + 19
        )
        .into_bytes();
        record.resize(record.len() + body, b'x');
        record.extend_from_slice(b"\r\n\r\n");
        let mut packed = vec![0; packer.gzip_compress_bound(record.len())];
        let bytes = packer.gzip_compress(&record, &mut packed).unwrap();
        out.write_all(&packed[..bytes]).unwrap();
    };
    write("http://giant.example/", 300_000_000);
    for number in 0..300_000 {
        write(&format!("http://www.example.org/{number}"), 10);
    }
    out.flush().unwrap();
}

fn shipped() -> Settings {
    let pipeline = ecluse_config::Pipeline::default();
    pipeline.stage_settings("index").unwrap()
}

/// Prints the lines of the files, as `ecluse-index` does, and says how much memory that took.
fn task_index(files: &[&str]) {
    let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
    let mut out = io::BufWriter::with_capacity(64 << 10, io::stdout().lock());
    Index::filter(shipped(), &files, &mut out).unwrap();
    out.flush().unwrap();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.unwrap().split_whitespace().next().unwrap();
    eprintln!("peak {peak}");
}

/// Makes lines as the filter does, and writes what captures link to in the same reading.
fn task_links(files: &[&str]) {
    let settings = shipped();
    let temporary = std::env::temp_dir();
    let mut lines = Sorter::new(SortOptions {
        duplicates: Duplicates::Remove,
        memory_bytes: usize::try_from(settings.sort_memory.0).unwrap(),
        temporary: temporary.clone(),
    });
    let mut line = Vec::new();
    let mut out = io::BufWriter::with_capacity(64 << 10, io::stdout().lock());
    for file in files {
        let mut sink = |capture: &Capture<'_>| {
            line.clear();
            if let Err(fault) = cdxj::write(capture, &mut line) {
                return Ok(Err(fault));
            }
            lines.push(&line).unwrap();
            Ok(Ok(()))
        };
        write_links(Path::new(file), &settings, &temporary, &mut sink, &mut out).unwrap();
    }
    lines.finish(&mut out).unwrap();
    out.flush().unwrap();
}

/// Inflates every member and says how long that took: the files are in memory, and the places of the members known.
fn task_inflate(files: &[&str]) {
    let mut out = vec![0; 64 << 20];
    let mut inflater = libdeflater::Decompressor::new();
    let mut seconds = 0.0;
    for file in files {
        let bytes = fs::read(file).unwrap();
        let members = members(&bytes);
        let before = thread_seconds();
        for (offset, length) in members {
            let member = &bytes[offset..offset + length];
            black_box(inflater.gzip_decompress(member, &mut out).unwrap());
        }
        seconds += thread_seconds() - before;
    }
    eprintln!("seconds {seconds}");
}

fn members(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut reader = WarcReader::new(bytes, ReaderLimits::default());
    let mut members = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        if let Extent::Own { offset, length } = record.finish().unwrap() {
            members.push((
                usize::try_from(offset).unwrap(),
                usize::try_from(length).unwrap(),
            ));
        }
    }
    members
}

/// Indexes the files with so many workers; a worker takes the next file that nobody has.
fn task_workers(workers: usize, files: &[&str]) {
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some(file) = files.get(at) else { return };
                    Index::filter(shipped(), &[file.into()], &mut io::sink()).unwrap();
                }
            });
        }
    });
}

/// Returns the run time of this thread, finer than clock ticks.
fn thread_seconds() -> f64 {
    let schedstat = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanoseconds = schedstat.split(' ').next().unwrap();
    nanoseconds.parse::<f64>().unwrap() / 1e9
}
