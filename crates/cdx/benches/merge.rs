//! How fast are lines merged, beside the programs that do it today?
//!
//! Three questions, in CPU-seconds, user and system together, the best of several runs, in one sitting:
//!
//! * nine sorted files into one, against `LC_ALL=C sort -m`: worrying below 1.4 times as fast;
//! * 1 % of new lines into a big flat index, against `cp` of it: worrying below half as fast;
//! * what checking the order of every line of the big index costs, against trusting it.
//!
//! `cargo bench -p ecluse-cdx --bench merge -- [--dir DIR] [--megabytes N] [--runs N]`. Each task runs in a process of
//! its own, so that its time can be taken from the system; the bench calls itself for ours.

#![expect(clippy::disallowed_methods, reason = "a bench removes its own files")]

use std::env;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ecluse_cdx::{LineShape, LineSource, MergeOptions, merge, merge_into};

fn main() {
    let arguments: Vec<String> = env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    match arguments.first().map(String::as_str) {
        Some(task @ ("merge" | "into")) => run_task(task, &arguments[1..]),
        _ => run_bench(&arguments),
    }
}

/// Merges the files named after the first, which is the output.
fn run_task(task: &str, paths: &[String]) {
    let options = MergeOptions {
        shape: LineShape::Capture,
        ..MergeOptions::default()
    };
    let mut out = File::create(&paths[0]).expect("the output can be made");
    let mut sources: Vec<LineSource> = paths[1..]
        .iter()
        .map(|path| LineSource::open(Path::new(path)).expect("the inputs are there"))
        .collect();
    let stats = if task == "into" {
        let big = sources.remove(0);
        merge_into(big, sources, &mut out, &options)
    } else {
        merge(sources, &mut out, &options)
    };
    let stats = stats.expect("the inputs are sorted");
    assert_eq!(stats.lines_read, stats.lines_written + stats.duplicates);
}

fn run_bench(arguments: &[String]) {
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let number =
        |name, default: u64| option(name).map_or(default, |text| text.parse().expect("a number"));
    let directory =
        option("--dir").map_or_else(|| env::temp_dir().join("ecluse-cdx-bench"), PathBuf::from);
    let big_bytes = number("--megabytes", 200) * 1_000_000;
    let runs = number("--runs", 3);
    fs::create_dir_all(&directory).expect("the directory can be made");

    let days = generate(&directory, big_bytes);
    let path = |name: &str| directory.join(name).display().to_string();
    let (big, new, out, peer) = (
        path("big.cdxj"),
        path("new.cdxj"),
        path("ours.out"),
        path("peer.out"),
    );
    let itself = env::current_exe()
        .expect("this program has a path")
        .display()
        .to_string();

    let mut inputs: Vec<String> = days.iter().map(|day| path(day)).collect();
    let day_bytes = total_bytes(&inputs);
    let mut sort = vec!["sort".into(), "-m".into(), "-o".into(), peer.clone()];
    sort.append(&mut inputs.clone());
    let mut ours = vec![itself.clone(), "merge".into(), out.clone()];
    ours.append(&mut inputs);
    println!(
        "{:<44} {:>8} {:>9} {:>8}",
        "task", "CPU s", "MB/CPU-s", "ratio"
    );
    let sort_seconds = best(&sort, runs);
    row(
        "merge of 9 files: LC_ALL=C sort -m",
        day_bytes,
        sort_seconds,
        sort_seconds,
    );
    row(
        "merge of 9 files: ours, order checked",
        day_bytes,
        best(&ours, runs),
        sort_seconds,
    );
    assert_same(&out, &peer);

    let all_bytes = total_bytes(&[big.clone(), new.clone()]);
    let cp = [vec!["cp".into(), big.clone(), peer.clone()]].concat();
    let cp_seconds = best(&cp, runs);
    row(
        "1 % into the big index: cp of it",
        all_bytes,
        cp_seconds,
        cp_seconds,
    );
    let cat = vec!["sh".into(), "-c".into(), format!("cat '{big}' > '{peer}'")];
    row(
        "1 % into the big index: cat of it",
        all_bytes,
        best(&cat, runs),
        cp_seconds,
    );
    let sort = ["sort", "-m", "-o", &peer, &big, &new].map(str::to_owned);
    row(
        "1 % into the big index: LC_ALL=C sort -m",
        all_bytes,
        best(&sort, runs),
        cp_seconds,
    );
    for (task, name) in [
        ("into", "1 % into the big index: ours, trusted"),
        ("merge", "1 % into the big index: ours, checked"),
    ] {
        let ours = [itself.as_str(), task, &out, &big, &new].map(str::to_owned);
        row(name, all_bytes, best(&ours, runs), cp_seconds);
        assert_same(&out, &peer);
    }
    for file in [&out, &peer] {
        fs::remove_file(file).expect("it was written here");
    }
}

fn row(name: &str, bytes: u64, seconds: f64, reference: f64) {
    let megabytes = bytes as f64 / 1e6 / seconds;
    println!(
        "{name:<44} {seconds:>8.2} {megabytes:>9.0} {:>7.2}x",
        reference / seconds
    );
}

/// Writes nine files for a day, a tenth of the big index together, the big index, and 1 % of new lines; returns the names of the first.
fn generate(directory: &Path, big_bytes: u64) -> Vec<String> {
    let days: Vec<String> = (0..9).map(|number| format!("day-{number}.cdxj")).collect();
    let mark = directory.join(format!("generated-{big_bytes}"));
    if mark.exists() {
        return days;
    }
    let open = |name: &str| {
        BufWriter::with_capacity(1 << 20, File::create(directory.join(name)).expect("room"))
    };
    let mut big = open("big.cdxj");
    let mut new = open("new.cdxj");
    let mut pieces: Vec<_> = days.iter().map(|day| open(day)).collect();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut written, mut host, mut page) = (0, 0u64, 0u64);
    while written < big_bytes {
        // Keys ascend by construction; a page has one to four captures.
        if random.below(40) == 0 {
            (host, page) = (host + 1, 0);
        }
        page += 1 + random.below(50);
        for capture in 0..=random.below(3) {
            let line = capture_line(host, page, capture, &mut random);
            let out = if random.below(100) == 0 {
                &mut new
            } else {
                &mut big
            };
            out.write_all(line.as_bytes()).expect("room");
            written += line.len() as u64;
            let piece = random.below(9) as usize;
            pieces[piece].write_all(line.as_bytes()).expect("room");
        }
    }
    for mut file in pieces.into_iter().chain([big, new]) {
        file.flush().expect("room");
    }
    File::create(mark).expect("room");
    days
}

fn capture_line(host: u64, page: u64, capture: u64, random: &mut Random) -> String {
    let kinds = [
        "text/html",
        "image/jpeg",
        "application/javascript",
        "text/css",
        "warc/revisit",
    ];
    let kind = kinds[random.below(5) as usize];
    let digest: String = (0..32)
        .map(|_| b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[random.below(32) as usize] as char)
        .collect();
    let section = ["actualites", "archives", "boutique", "forum"][(page / 500 % 4) as usize];
    format!(
        "fr,domaine{host:07},www)/{page:06}/{section}/article?id={page} {time} {{\"url\": \
         \"https://www.domaine{host:07}.fr/{page:06}/{section}/article?id={page}\", \"mime\": \"{kind}\", \"status\": \"200\", \
         \"digest\": \"sha1:{digest}\", \"length\": \"{length}\", \"offset\": \"{offset}\", \
         \"filename\": \"BnF-{job}-{host}-2026010100000{capture}-00001-crawler.warc.gz\"}}\n",
        time = 20_260_101_000_000 + capture * 86_400,
        length = random.below(100_000),
        offset = random.below(1_000_000_000),
        job = random.below(1_000),
    )
}

/// A small generator, so that every run makes the same files.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

fn total_bytes(paths: &[String]) -> u64 {
    paths
        .iter()
        .map(|path| fs::metadata(path).expect("it was made").len())
        .sum()
}

/// Returns the CPU-seconds of the best of several runs of a command.
fn best(command: &[String], runs: u64) -> f64 {
    (0..runs)
        .map(|_| cpu_seconds(command))
        .fold(f64::INFINITY, f64::min)
}

/// Runs a command and asks the shell that ran it for its times.
fn cpu_seconds(command: &[String]) -> f64 {
    let script = "\"$@\" && times";
    let output = Command::new("bash")
        .args(["-c", script, "bash"])
        .args(command)
        .env("LC_ALL", "C")
        .stderr(Stdio::inherit())
        .output()
        .expect("bash can be run");
    assert!(output.status.success(), "{command:?} failed");
    let text = String::from_utf8(output.stdout).expect("times are ASCII");
    // The last line is the children's: `0m1.234s 0m0.567s`.
    let children = text.lines().last().expect("times prints two lines");
    children
        .split_whitespace()
        .map(|time| {
            let (minutes, seconds) = time
                .trim_end_matches('s')
                .split_once('m')
                .expect("minutes and seconds");
            60.0 * minutes.parse::<f64>().expect("minutes")
                + seconds.parse::<f64>().expect("seconds")
        })
        .sum()
}

fn assert_same(left: &str, right: &str) {
    let compared = Command::new("cmp")
        .args([left, right])
        .status()
        .expect("cmp can be run");
    assert!(compared.success(), "{left} and {right} differ");
}
