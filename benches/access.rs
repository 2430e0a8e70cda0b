//! Does `ecluse serve` answer with a fraction of the CPU that pywb 2.10 takes for the same question about the same data?
//!
//! Both serve one index of 5,000,000 lines, flat and as ZipNum, and real HTML pages in WARC files: those of Rust's own documentation.
//! Each gets its turn of every round, with four connections, and is held against the CPU of its process: throughput means
//! nothing on a busy machine. Before that, their answers are compared. The data is made once, in `target/bench-access`.
//!
//! `--rounds N` (5), `--seconds N` a turn (3), `--lines N` (5000000). The figures that would worry us are the bars in the table.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a bench stops where it fails, and makes its own data"
)]

#[path = "access/client.rs"]
mod client;
#[path = "access/data.rs"]
mod data;
#[path = "page.rs"]
mod page;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use ecluse_access::{AccessServer, AccessSite};
use ecluse_config::Pipeline;

use crate::client::{Answer, ask, ask_for};
use crate::data::{Data, TIMES};
use crate::page::Page;

/// A question that both are asked, and how many times less of it must cost us.
struct Case {
    name: &'static str,
    bar: f64,
    paths: Vec<String>,
}

/// A server under measurement.
struct Running {
    child: Child,
    port: u16,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if let Some(at) = words.iter().position(|word| word == "--serve") {
        return serve(Path::new(&words[at + 1]));
    }
    let option = |name: &str, default: u64| {
        let at = words.iter().position(|word| word == name);
        at.map_or(default, |at| words[at + 1].parse().unwrap())
    };
    let (rounds, seconds) = (option("--rounds", 5), option("--seconds", 3));
    let data = Data::make(option("--lines", 5_000_000));
    let mut page = Page::begin("access");
    page.say(data.told());
    let (ours, pywb) = (start_ours(&data), start_pywb(&data));
    let at_rest = memory(&ours);
    let cases = cases(&data);
    for case in &cases {
        compare(case, &ours, &pywb);
    }
    page.say(
        "\n| server CPU a request | pywb 2.10 | `ecluse serve` | times less | worst round | at least |\n|---|--:|--:|--:|--:|--:|",
    );
    let mut is_met = true;
    for case in &cases {
        let turns: Vec<(f64, f64)> = (0..rounds)
            .map(|_| (cost(&pywb, case, seconds), cost(&ours, case, seconds)))
            .collect();
        let mut ratios: Vec<f64> = turns.iter().map(|(theirs, own)| theirs / own).collect();
        ratios.sort_by(f64::total_cmp);
        let middle = |side: fn(&(f64, f64)) -> f64| {
            let mut costs: Vec<f64> = turns.iter().map(side).collect();
            costs.sort_by(f64::total_cmp);
            costs[costs.len() / 2]
        };
        let ratio = ratios[ratios.len() / 2];
        is_met &= ratio >= case.bar;
        page.say(format!(
            "| {} | {:.0} µs | {:.0} µs | {ratio:.1} | {:.1} | {} |",
            case.name,
            middle(|turn| turn.0),
            middle(|turn| turn.1),
            ratios[0],
            case.bar
        ));
    }
    let [before, after] = [at_rest, memory(&ours)].map(|kib| kib as f64 / 1024.0);
    page.say(format!(
        "\nMemory of `ecluse serve` without load, resident: {before:.1} MiB after the start, {after:.1} MiB after all this; at most 64 MiB. pywb's: {:.1} MiB.",
        memory(&pywb) as f64 / 1024.0
    ));
    is_met &= after <= 64.0;
    println!(
        "{}",
        if is_met {
            "every bar is met"
        } else {
            "A BAR IS MISSED"
        }
    );
    page.end(data.lines >= 5_000_000);
}

/// Serves the data until nobody holds the other end of the input.
fn serve(root: &Path) {
    let mut settings = Pipeline::default().access;
    settings.listen = "127.0.0.1:0".parse().unwrap();
    settings.main = "flat".into();
    let site = AccessSite::new(root.to_owned(), Path::new("index"), settings).unwrap();
    let server = AccessServer::start(site).unwrap();
    println!("{}", server.address().port());
    let mut rest = Vec::new();
    std::io::stdin().read_to_end(&mut rest).unwrap();
}

fn start_ours(data: &Data) -> Running {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("--serve").arg(&data.root);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let mut line = String::new();
    let mut told = BufReader::new(child.stdout.take().unwrap());
    told.read_line(&mut line).unwrap();
    let port = line.trim().parse().unwrap();
    Running { child, port }
}

fn start_pywb(data: &Data) -> Running {
    let port = {
        let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        probe.local_addr().unwrap().port()
    };
    let home = data.root.join("pywb");
    fs::create_dir_all(&home).unwrap();
    let index = data.root.join("index");
    let index = index.display();
    let config = format!(
        "collections:\n  flat:\n    index_paths: {index}/current/index.cdxj\n    archive_paths: {index}/current/path-index.txt\n  \
         zipped:\n    index_paths: zipnum+{index}/zipped/current/index.idx\n    archive_paths: {index}/current/path-index.txt\n  \
         pages:\n    index_paths: {index}/pages/current/index.cdxj\n    archive_paths: {index}/pages/current/path-index.txt\n\
         enable_memento: true\n"
    );
    fs::write(home.join("config.yaml"), config).unwrap();
    let mut command = Command::new(ecluse_peers::program("wayback"));
    command
        .args(["--bind", "127.0.0.1", "--threads", "4", "--port"])
        .arg(port.to_string())
        .current_dir(&home)
        .stdout(Stdio::null())
        .stderr(fs::File::create(home.join("log")).unwrap());
    let child = command.spawn().unwrap();
    let running = Running { child, port };
    while ask_for(port, "/flat/cdx?url=nothing.example").is_err() {
        thread::sleep(Duration::from_millis(200));
    }
    running
}

fn cases(data: &Data) -> Vec<Case> {
    let cdx = |collection: &str, urls: &[String]| {
        let path = |url: &String| format!("/{collection}/cdx?url={url}");
        urls.iter().map(path).collect()
    };
    let replay = |modifier: &str| {
        let pages = data.pages.iter().enumerate();
        let path = |(at, url): (usize, &String)| {
            format!("/pages/{}{modifier}/{url}", TIMES[at % TIMES.len()])
        };
        pages.map(path).collect()
    };
    vec![
        Case {
            name: "CDX, one URL, flat file",
            bar: 20.0,
            paths: cdx("flat", &data.few),
        },
        Case {
            name: "CDX, one URL with 200 captures and more",
            bar: 20.0,
            paths: cdx("flat", &data.many),
        },
        Case {
            name: "CDX, one URL, ZipNum",
            bar: 3.0,
            paths: cdx("zipped", &data.few),
        },
        Case {
            name: "replay, raw (`id_`)",
            bar: 15.0,
            paths: replay("id_"),
        },
        Case {
            name: "replay, rewritten (`mp_`)",
            bar: 10.0,
            paths: replay("mp_"),
        },
    ]
}

/// Stops where the two do not answer alike.
fn compare(case: &Case, ours: &Running, pywb: &Running) {
    let step = (case.paths.len() / 60).max(1);
    for path in case.paths.iter().step_by(step) {
        let [own, theirs] = [ours, pywb].map(|server| ask_for(server.port, path).unwrap());
        assert_eq!((own.status, theirs.status), (200, 200), "{path}");
        assert!(!own.body.is_empty(), "{path}");
        if path.contains("/cdx?") {
            assert_eq!(lines(&own), lines(&theirs), "{path}");
        } else if path.contains("id_/") {
            assert!(own.body == theirs.body, "{path}");
        }
    }
}

/// Returns key and time of each line.
fn lines(answer: &Answer) -> Vec<String> {
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let start = |line: &str| line.splitn(3, ' ').take(2).collect::<Vec<_>>().join(" ");
    text.lines().map(start).collect()
}

/// Returns the microseconds of CPU that a request took, over some seconds of them.
fn cost(server: &Running, case: &Case, seconds: u64) -> f64 {
    let before = cpu_seconds(server);
    let asked = ask(server.port, &case.paths, Duration::from_secs(seconds));
    let used = cpu_seconds(server) - before;
    assert!(
        used > 0.0 && asked > 0,
        "{}: {used} s for {asked}",
        case.name
    );
    used / asked as f64 * 1e6
}

/// Returns the CPU that the process has used. The clock of the kernel ticks a hundred times a second.
fn cpu_seconds(server: &Running) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", server.child.id())).unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    let ticks = rest.split_whitespace().skip(11).take(2);
    ticks
        .map(|ticks| ticks.parse::<f64>().unwrap())
        .sum::<f64>()
        / 100.0
}

/// Returns the resident memory in KiB.
fn memory(server: &Running) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.unwrap().parse().unwrap()
}
