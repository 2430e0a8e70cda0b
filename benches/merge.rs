//! How fast do merge and bigmerge work, as an operator runs them, beside the programs that do it today?
//!
//! In CPU-seconds, user and system together, the best of several runs, by turns, in one sitting:
//!
//! * nine sorted files into one, by the filter and by the stage, against `LC_ALL=C sort -m`: worrying below 1.4 times as fast;
//! * a day with 1 % of new lines into the next generation of a flat index, against `cp` of the index: worrying below half as fast.
//!
//! `cargo bench --bench merge -- [--dir DIR] [--megabytes N] [--runs N] [--scale N,N,…] [--ranges N]`. With `--scale`, a day of 1 % into indexes of so
//! many megabytes, beside `cp` of each: `docs/scale.md` stands on it. With `--ranges N`, a day of 1 % into an index, flat and
//! with ZipNum, built by bigmerge alone and in so many ranges by one worker and by two: worrying when two workers take as long
//! as one. The stages run in the driver's own program, each in
//! a process of its own, fsync included; the peers sync nothing.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a bench may die, and makes and removes its own files"
)]

#[path = "page.rs"]
mod page;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ecluse_spool::{ParcelId, WorkTree};
use page::Page;

const ECLUSE: &str = env!("CARGO_BIN_EXE_ecluse");

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let number = |name, default: u64| option(name).map_or(default, |text| text.parse().unwrap());
    let directory =
        option("--dir").map_or_else(|| std::env::temp_dir().join("ecluse-bench"), PathBuf::from);
    fs::create_dir_all(&directory).unwrap();
    if let Some(sizes) = option("--scale") {
        return scale(&sizes, number("--runs", 3), &directory);
    }
    let bench = Bench {
        big_bytes: number("--megabytes", 200) * 1_000_000,
        runs: number("--runs", 3),
        directory,
    };
    if let Some(ranges) = option("--ranges") {
        bench.generate(Lists::Index);
        return bench.in_ranges(&ranges);
    }
    bench.generate(Lists::All);
    let mut page = Page::begin("merge");
    page.say("| task | CPU s | MB a CPU-s | ratio |\n|---|--:|--:|--:|");
    bench.merge(&mut page);
    bench.bigmerge(&mut page);
    page.end(true);
}

/// Builds the next generation of indexes of several sizes, and holds what each costs against what `cp` of it does. CPU-seconds alone
/// would tell of the machine: nearly all of them are the kernel's, for pages and disks, and differ from run to run for `cp` as well.
fn scale(sizes: &str, runs: u64, directory: &Path) {
    let mut rows = Vec::new();
    for megabytes in sizes.split(',') {
        let bench = Bench {
            big_bytes: megabytes.parse::<u64>().unwrap() * 1_000_000,
            runs,
            directory: directory.join(megabytes),
        };
        fs::create_dir_all(&bench.directory).unwrap();
        bench.generate(Lists::Index);
        let gigabytes = bench.index_bytes() as f64 / 1e9;
        let lines = lines_of(&bench.path("big.cdxj")) + lines_of(&bench.path("new.cdxj"));
        let (copied, built) = bench.time_bigmerge();
        fs::remove_dir_all(&bench.directory).unwrap();
        rows.push((gigabytes, lines, copied, built));
    }
    let ratio = |copied: CpuSeconds, built: CpuSeconds| built.all() / copied.all();
    let ratios = rows
        .iter()
        .map(|(_, _, copied, built)| ratio(*copied, *built));
    let model = ratios.sum::<f64>() / rows.len() as f64;
    let mut page = Page::begin("merge");
    page.say(format!("| index, GB | lines, millions | `cp`, CPU s | the next generation, CPU s | its own code's | beside `cp` | off {model:.2} × |"));
    page.say("|--:|--:|--:|--:|--:|--:|--:|");
    for (gigabytes, lines, copied, built) in rows {
        let ratio = ratio(copied, built);
        page.say(format!(
            "| {gigabytes:.2} | {:.1} | {:.2} | {:.2} | {:.2} | {ratio:.2} × | {:+.0} % |",
            lines as f64 / 1e6,
            copied.all(),
            built.all(),
            built.own,
            (ratio / model - 1.0) * 100.0,
        ));
    }
    page.end(false);
}

fn lines_of(path: &str) -> usize {
    BufReader::with_capacity(1 << 20, File::open(path).unwrap())
        .split(b'\n')
        .count()
}

/// Which lists a bench needs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lists {
    /// The index, the day, and nine files with the lines of both.
    All,
    /// The index and the day.
    Index,
}

struct Bench {
    directory: PathBuf,
    big_bytes: u64,
    runs: u64,
}

impl Bench {
    fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    fn days(&self) -> Vec<String> {
        (0..9)
            .map(|n| self.path(&format!("day-{n}.cdxj")))
            .collect()
    }

    fn merge(&self, page: &mut Page) {
        let (ours, peer) = (self.path("ours.out"), self.path("peer.out"));
        let days = self.days();
        let bytes = days.iter().map(|day| size(day)).sum();
        let into = |out: &str, program: &[&str]| {
            let mut command = vec![
                "sh".to_owned(),
                "-c".into(),
                format!("\"$0\" \"$@\" > '{out}'"),
            ];
            command.extend(program.iter().map(|word| (*word).to_owned()));
            command.extend(days.clone());
            command
        };
        let sort = into(&peer, &["sort", "-m"]);
        let filter = into(
            &ours,
            &[ECLUSE, "stage", "merge", "--root", &self.path("none")],
        );
        let root = self.directory.join("merge-root");
        let stage = once("merge", &root);
        let mut best = [f64::INFINITY; 3];
        for _ in 0..self.runs {
            fresh(&root, "[chain]\nstages = [\"merge\", \"sink\"]\n");
            for (number, day) in days.iter().enumerate() {
                put(
                    &root,
                    "merge",
                    &format!("file-{number}"),
                    &[(day, "x.warc.gz.cdxj")],
                );
            }
            for (best, command) in best.iter_mut().zip([&sort, &filter, &stage]) {
                settle();
                *best = best.min(cpu_seconds(command).all());
            }
        }
        same(&ours, &peer);
        let made = fs::read_dir(root.join("work/sink/ready"))
            .unwrap()
            .next()
            .unwrap();
        same(
            &made.unwrap().path().join("day.cdxj").display().to_string(),
            &peer,
        );
        row(page, "9 files, `LC_ALL=C sort -m`", bytes, best[0], best[0]);
        row(
            page,
            "9 files, `ecluse-merge` as a filter",
            bytes,
            best[1],
            best[0],
        );
        row(
            page,
            "9 files, `ecluse-merge --once`: parcels, SHA-256, receipt",
            bytes,
            best[2],
            best[0],
        );
        fs::remove_dir_all(&root).unwrap();
        fs::remove_file(&ours).unwrap();
    }

    fn bigmerge(&self, page: &mut Page) {
        let (copied, built) = self.time_bigmerge();
        let (copied, built) = (copied.all(), built.all());
        let bytes = self.index_bytes();
        row(page, "`cp` of the index", bytes, copied, copied);
        row(
            page,
            "1 % of new lines, `ecluse-bigmerge --once`: checksums, fsync, swap",
            bytes,
            built,
            copied,
        );
    }

    fn index_bytes(&self) -> u64 {
        size(&self.path("big.cdxj")) + size(&self.path("new.cdxj"))
    }

    /// Returns the CPU-seconds of copying the index, and of building the next generation.
    fn time_bigmerge(&self) -> (CpuSeconds, CpuSeconds) {
        let (big, new, peer) = (
            self.path("big.cdxj"),
            self.path("new.cdxj"),
            self.path("peer.out"),
        );
        let root = self.directory.join("bigmerge-root");
        let settings = "[chain]\nstages = [\"bigmerge\"]\n";
        fresh(&root, settings);
        put(&root, "bigmerge", "first", &[(&big, "day.cdxj")]);
        let stage = once("bigmerge", &root);
        cpu_seconds(&stage);
        let cp = ["cp", &big, &peer].map(str::to_owned).to_vec();
        let merged = self.path("merged.out");
        let sort = ["sort", "-m", "-o", &merged, &big, &new]
            .map(str::to_owned)
            .to_vec();
        cpu_seconds(&sort);
        let (mut copied, mut built) = (CpuSeconds::MOST, CpuSeconds::MOST);
        for run in 0..self.runs {
            put(
                &root,
                "bigmerge",
                &format!("day-{run}"),
                &[(&new, "day.cdxj")],
            );
            settle();
            copied = copied.min(cpu_seconds(&cp));
            fs::remove_file(&peer).unwrap();
            settle();
            built = built.min(cpu_seconds(&stage));
            same(
                &root.join("index/current/index.cdxj").display().to_string(),
                &merged,
            );
            // Back to the first generation, for the next run.
            fs::remove_dir_all(root.join("index/generations/2")).unwrap();
            fs::remove_file(root.join("index/current")).unwrap();
            symlink("generations/1", root.join("index/current")).unwrap();
        }
        fs::remove_file(&merged).unwrap();
        fs::remove_dir_all(&root).unwrap();
        (copied, built)
    }

    /// Builds the next generation of an index, flat and with ZipNum: alone, and in ranges.
    fn in_ranges(&self, ranges: &str) {
        let mut page = Page::begin("merge");
        page.say(format!(
            "An index of {:.2} GB:\n",
            self.index_bytes() as f64 / 1e9
        ));
        page.say("| the next generation | CPU s | s |\n|---|--:|--:|");
        let big = self.path("big.cdxj");
        for (name, zipnum, ranges, workers) in [
            ("with ZipNum, `ranges = 1`", true, "1", 1),
            ("with ZipNum, in ranges, one worker", true, ranges, 1),
            ("with ZipNum, in ranges, two workers", true, ranges, 2),
            ("flat alone, `ranges = 1`", false, "1", 1),
            ("flat alone, in ranges, two workers", false, ranges, 2),
        ] {
            let root = self.directory.join("ranges-root");
            let settings = format!(
                "[chain]\nstages = [\"bigmerge\", \"range\"]\n[stage.bigmerge]\nnext = []\nback = []\nzipnum = {zipnum}\nranges = {ranges}\n\
                 ranges-from = \"0 B\"\nspare = \"0 B\"\n[stage.range]\nworkers = {workers}\n"
            );
            fresh(&root, &settings);
            put(&root, "bigmerge", "first", &[(&big, "day.cdxj")]);
            let shown = root.display().to_string();
            let words = [
                ECLUSE, "--root", &shown, "run", "bigmerge", "range", "--once",
            ];
            let words = words.map(str::to_owned).to_vec();
            cpu_seconds(&words);
            let (mut cpu, mut wall) = (f64::INFINITY, f64::INFINITY);
            for run in 0..self.runs {
                let new = self.path("new.cdxj");
                put(
                    &root,
                    "bigmerge",
                    &format!("day-{run}"),
                    &[(&new, "day.cdxj")],
                );
                settle();
                let began = std::time::Instant::now();
                let seconds = cpu_seconds(&words).all();
                wall = wall.min(began.elapsed().as_secs_f64());
                cpu = cpu.min(seconds);
                let mut built = 0;
                let tree = WorkTree::open(&root.join("work"));
                tree.each_receipt("range", &mut |_| built += 1).unwrap();
                assert_eq!(ranges != "1", built > 0, "built as asked for");
                fs::remove_dir_all(root.join("index/generations/2")).unwrap();
                fs::remove_file(root.join("index/current")).unwrap();
                symlink("generations/1", root.join("index/current")).unwrap();
            }
            page.say(format!("| {name} | {cpu:.1} | {wall:.1} |"));
            fs::remove_dir_all(&root).unwrap();
        }
        page.end(false);
    }

    /// Writes nine files with the lines of the index and of the day, the index, and the day: 1 % of all lines.
    fn generate(&self, lists: Lists) {
        let mark = self.directory.join(format!("generated-{}", self.big_bytes));
        if mark.exists() {
            return;
        }
        let open = |path: &str| BufWriter::with_capacity(1 << 20, File::create(path).unwrap());
        let mut files: Vec<_> = match lists {
            Lists::All => self.days().iter().map(|day| open(day)).collect(),
            Lists::Index => Vec::new(),
        };
        let (mut big, mut new) = (open(&self.path("big.cdxj")), open(&self.path("new.cdxj")));
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let (mut written, mut host, mut page) = (0, 0, 0);
        while written < self.big_bytes {
            // Keys ascend by construction; a page has one to three captures.
            if random.below(40) == 0 {
                (host, page) = (host + 1, 0);
            }
            page += 1 + random.below(50);
            for capture in 0..=random.below(3) {
                let line = capture_line(host, page, capture, &mut random);
                let list = if random.below(100) == 0 {
                    &mut new
                } else {
                    &mut big
                };
                list.write_all(line.as_bytes()).unwrap();
                written += line.len() as u64;
                let file = random.below(9) as usize;
                if let Some(file) = files.get_mut(file) {
                    file.write_all(line.as_bytes()).unwrap();
                }
            }
        }
        for mut file in files.into_iter().chain([big, new]) {
            file.flush().unwrap();
        }
        File::create(mark).unwrap();
    }
}

fn capture_line(host: u64, page: u64, capture: u64, random: &mut Random) -> String {
    let kind = ["text/html", "image/jpeg", "text/css", "warc/revisit"][random.below(4) as usize];
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let digest: String = (0..32)
        .map(|_| letters[random.below(32) as usize] as char)
        .collect();
    let (length, offset, job) = (
        random.below(100_000),
        random.below(1 << 30),
        random.below(1_000),
    );
    format!(
        "fr,domaine{host:07},www)/{page:06}/actualites/article?id={page} 2026010{}000000 {{\"url\": \
         \"https://www.domaine{host:07}.fr/{page:06}/actualites/article?id={page}\", \"mime\": \"{kind}\", \
         \"status\": \"200\", \"digest\": \"sha1:{digest}\", \"length\": \"{length}\", \"offset\": \"{offset}\", \
         \"filename\": \"BnF-{job}-{host}-20260101000000000-00001-crawler.warc.gz\"}}\n",
        capture + 1,
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

fn fresh(root: &Path, settings: &str) {
    let _ = fs::remove_dir_all(root);
    fs::create_dir_all(root).unwrap();
    fs::write(root.join("pipeline.toml"), settings).unwrap();
}

/// Puts a parcel with these files.
fn put(root: &Path, stage: &str, id: &str, files: &[(&str, &str)]) {
    let tree = WorkTree::open(&root.join("work"));
    let id = ParcelId::new(id).unwrap();
    tree.put(stage, &id, "bench", |parcel| {
        files
            .iter()
            .try_for_each(|(from, name)| parcel.bring(Path::new(from), name).map(drop))
    })
    .unwrap();
}

fn once(stage: &str, root: &Path) -> Vec<String> {
    let root = root.display().to_string();
    [
        ECLUSE, "stage", stage, "--root", &root, "--once", "--log", "error",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Lets the disk take what was written before: it is not to be counted.
fn settle() {
    assert!(Command::new("sync").status().unwrap().success());
}

fn row(page: &mut Page, name: &str, bytes: u64, seconds: f64, reference: f64) {
    let megabytes = bytes as f64 / 1e6 / seconds;
    page.say(format!(
        "| {name} | {seconds:.2} | {megabytes:.0} | {:.2} × |",
        reference / seconds
    ));
}

fn size(path: &str) -> u64 {
    fs::metadata(path).unwrap().len()
}

/// Runs a command and asks the shell that ran it for its times.
/// CPU time of a program: in its own code, and in the kernel for it.
#[derive(Debug, Clone, Copy)]
struct CpuSeconds {
    own: f64,
    kernel: f64,
}

impl CpuSeconds {
    const MOST: Self = Self {
        own: f64::INFINITY,
        kernel: f64::INFINITY,
    };

    fn all(self) -> f64 {
        self.own + self.kernel
    }

    /// Returns the run that took less.
    fn min(self, other: Self) -> Self {
        if other.all() < self.all() {
            other
        } else {
            self
        }
    }
}

fn cpu_seconds(command: &[String]) -> CpuSeconds {
    let output = Command::new("bash")
        .args(["-c", "\"$@\" && times", "bash"])
        .args(command)
        .env("LC_ALL", "C")
        .env_remove("ECLUSE_CONFIG")
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "{command:?} failed");
    let text = String::from_utf8(output.stdout).unwrap();
    // The last line is the children's: `0m1.234s 0m0.567s`.
    let children = text.lines().last().unwrap();
    let seconds = |time: &str| {
        let (minutes, seconds) = time.trim_end_matches('s').split_once('m').unwrap();
        60.0 * minutes.parse::<f64>().unwrap() + seconds.parse::<f64>().unwrap()
    };
    let (own, kernel) = children.split_once(' ').unwrap();
    CpuSeconds {
        own: seconds(own),
        kernel: seconds(kernel.trim()),
    }
}

fn same(left: &str, right: &str) {
    let compared = Command::new("cmp").args([left, right]).status().unwrap();
    assert!(compared.success(), "{left} and {right} differ");
}
