//! What does it cost to make the next index of the last one and the days that wait: by bigmerge, by the Spark job that `ecluse export --sort-job` writes, and by DataFusion?
//!
//! CPU-seconds, user and system together, and seconds by the clock, each once, one after the other; memory is the peak of one process. The lists are sorted, as they are in an archive: bigmerge
//! merges them and syncs what it writes, the others sort. Every output must be the same bytes. Worrying: bigmerge above a fifth of the CPU of another.
//!
//! `cargo build --release -p ecluse-bigmerge`, then `cargo bench -p ecluse-peers --bench sort -- [--dir DIR] [--megabytes N]`. Spark and DataFusion are installed
//! when first wanted; Java of 17 or newer must be there.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a bench may die, and makes and removes its own files"
)]

#[path = "page.rs"]
mod page;

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use ecluse_spool::{ParcelId, WorkTree};
use page::Page;

/// Days that wait.
const DAYS: u64 = 9;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let directory =
        option("--dir").map_or_else(|| std::env::temp_dir().join("ecluse-bench"), PathBuf::from);
    let megabytes: u64 = option("--megabytes").map_or(1000, |text| text.parse().unwrap());
    let submit = ecluse_peers::spark_submit().expect("java of 17 or newer");
    let python = ecluse_peers::datafusion_python();
    let work = directory.join("sort-bench");
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&work).unwrap();
    let bench = Bench { work };
    let lines = bench.generate(megabytes * 1_000_000);
    let mut page = Page::begin("sort");
    page.say(format!(
        "{megabytes} MB: an index of 0.9 and {DAYS} days of 0.1 together, {lines} lines, one in 50 of the days' is in the index already\n\n\
         | program | CPU s | s | MB a CPU-s | bigmerge's CPU | peak MiB |\n|---|--:|--:|--:|--:|--:|"
    ));
    let mut ours = 0.0;
    let mut row = |name: &str, cost: Cost| {
        if ours == 0.0 {
            ours = cost.cpu;
        }
        page.say(format!(
            "| {name} | {:.1} | {:.1} | {:.0} | {:.2} × | {} |",
            cost.cpu,
            cost.wall,
            megabytes as f64 / cost.cpu,
            ours / cost.cpu,
            cost.peak
        ));
    };
    row(
        "`ecluse-bigmerge --once`: merges, checksums, fsync",
        bench.bigmerge(),
    );
    row("`LC_ALL=C sort -m -u`", bench.sort());
    row("Spark 4.3 `local[2]`, `sort.py`", bench.spark(&submit));
    row(
        "DataFusion 55, `SELECT DISTINCT … ORDER BY`",
        bench.datafusion(&python),
    );
    fs::remove_dir_all(&bench.work).unwrap();
    page.end(megabytes == 1000);
}

struct Cost {
    cpu: f64,
    wall: f64,
    peak: u64,
}

struct Bench {
    work: PathBuf,
}

impl Bench {
    fn path(&self, name: &str) -> PathBuf {
        self.work.join(name)
    }

    /// The index, then the days.
    fn lists(&self) -> Vec<PathBuf> {
        let days = (0..DAYS).map(|day| self.path(&format!("day-{day}.cdxj")));
        std::iter::once(self.path("big.cdxj")).chain(days).collect()
    }

    /// Writes sorted lists; returns how many lines they have together.
    fn generate(&self, bytes: u64) -> u64 {
        let open = |path: &PathBuf| BufWriter::with_capacity(1 << 20, File::create(path).unwrap());
        let mut files: Vec<_> = self.lists().iter().map(open).collect();
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let (mut written, mut lines, mut host, mut page) = (0, 0, 0, 0);
        while written < bytes {
            // Keys ascend by construction; a page has one to three captures.
            if random.below(40) == 0 {
                (host, page) = (host + 1, 0);
            }
            page += 1 + random.below(50);
            for capture in 0..=random.below(3) {
                let line = capture_line(host, page, capture, &mut random);
                let list = match random.below(10) {
                    0 => 1 + random.below(DAYS),
                    _ => 0,
                };
                let is_known = list > 0 && random.below(50) == 0;
                for list in [Some(list), is_known.then_some(0)].into_iter().flatten() {
                    files[list as usize].write_all(line.as_bytes()).unwrap();
                    written += line.len() as u64;
                    lines += 1;
                }
            }
        }
        for mut file in files {
            file.flush().unwrap();
        }
        lines
    }

    /// Makes a generation of the index, and the next one of the days; the second counts.
    fn bigmerge(&self) -> Cost {
        let root = self.path("root");
        fs::create_dir_all(&root).unwrap();
        let settings = "[chain]\nstages = ['bigmerge']\n[stage.bigmerge]\nspare = '0 B'\n";
        fs::write(root.join("pipeline.toml"), settings).unwrap();
        let itself = std::env::current_exe().unwrap();
        let program = itself.ancestors().nth(2).unwrap().join("ecluse-bigmerge");
        assert!(program.exists(), "cargo build --release -p ecluse-bigmerge");
        let command = || {
            let mut command = Command::new(&program);
            command.args(["--once", "--log", "error", "--root"]);
            command.arg(&root);
            command
        };
        let lists = self.lists();
        put(&root, "index", &lists[0]);
        measured(command());
        for (number, day) in lists[1..].iter().enumerate() {
            put(&root, &format!("day-{number}"), day);
        }
        let cost = measured(command());
        fs::rename(root.join("index/current/index.cdxj"), self.path("ours")).unwrap();
        fs::remove_dir_all(&root).unwrap();
        cost
    }

    fn sort(&self) -> Cost {
        let out = self.path("sorted");
        let mut command = Command::new("sort");
        command.args(["-m", "-u", "-o"]).arg(&out);
        command.args(self.lists()).env("LC_ALL", "C");
        let cost = measured(command);
        self.must_be_ours(&[out]);
        cost
    }

    fn spark(&self, submit: &Path) -> Cost {
        let list: String = self
            .lists()
            .iter()
            .map(|path| format!("{}\t{}\n", path.metadata().unwrap().len(), path.display()))
            .collect();
        fs::write(self.path("inputs.txt"), list).unwrap();
        let (job, out) = (self.path("sort.py"), self.path("parts"));
        fs::write(&job, include_str!("../src/export/sort_job.py")).unwrap();
        let home = submit.parent().unwrap();
        let path = std::env::var("PATH").unwrap();
        let mut command = Command::new(submit);
        command
            .args(["--master", "local[2]", "--driver-memory", "2g"])
            .args(["--conf", "spark.ui.enabled=false"])
            .args([&job, &out])
            .env("PATH", format!("{}:{path}", home.display()))
            .env("PYSPARK_PYTHON", home.join("python"))
            .env("SPARK_LOCAL_IP", "127.0.0.1")
            .env("SPARK_LOCAL_DIRS", self.path("scratch"));
        let cost = measured(command);
        let entries = fs::read_dir(&out).unwrap();
        let mut parts: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        parts.retain(|part| part.to_string_lossy().contains("/part-"));
        parts.sort();
        self.must_be_ours(&parts);
        fs::remove_dir_all(out).unwrap();
        cost
    }

    fn datafusion(&self, python: &Path) -> Cost {
        let (script, out) = (self.path("distinct.py"), self.path("datafusion.csv"));
        fs::write(&script, DATAFUSION).unwrap();
        let mut command = Command::new(python);
        command.arg(&script).arg(&out).args(self.lists());
        let cost = measured(command);
        self.must_be_ours(&[out]);
        cost
    }

    /// Holds files, one after the other, against what bigmerge wrote; removes them.
    fn must_be_ours(&self, files: &[PathBuf]) {
        let mut command = Command::new("bash");
        command.args(["-c", "ours=$0; cat \"$@\" | cmp - \"$ours\""]);
        let compared = command.arg(self.path("ours")).args(files).status().unwrap();
        assert!(compared.success(), "{files:?} differ from bigmerge's");
        files.iter().for_each(|file| fs::remove_file(file).unwrap());
    }
}

/// Lines are read as the one column of a CSV file that has no delimiter and no quotes. It takes UTF-8 only.
const DATAFUSION: &str = r#"
import sys
from datafusion import RuntimeEnvBuilder, SessionConfig, SessionContext

out, *lists = sys.argv[1:]
runtime = RuntimeEnvBuilder().with_disk_manager_os().with_fair_spill_pool(2 << 30)
context = SessionContext(SessionConfig().with_target_partitions(2), runtime)
for number, path in enumerate(lists):
    context.sql(f"""CREATE EXTERNAL TABLE list{number} (line VARCHAR) STORED AS CSV LOCATION '{path}'
        OPTIONS ('format.has_header' 'false', 'format.delimiter' '\x01', 'format.quote' '\x02')""").collect()
every = " UNION ALL ".join(f"SELECT line FROM list{number}" for number in range(len(lists)))
context.sql(f"""COPY (SELECT DISTINCT line FROM ({every}) ORDER BY line) TO '{out}' STORED AS CSV
    OPTIONS ('format.has_header' 'false', 'format.delimiter' '\x01', 'format.quote' '\x02')""").collect()
"#;

/// Puts a day.
fn put(root: &Path, id: &str, list: &Path) {
    let tree = WorkTree::open(&root.join("work"));
    let id = ParcelId::new(id).unwrap();
    let put = tree.put("bigmerge", &id, "bench", |parcel| {
        parcel.bring(list, "day.cdxj").map(drop)
    });
    put.unwrap();
}

/// Runs a command with nothing waiting for the disk; the CPU-seconds of all its processes, and the most memory one of them had.
fn measured(command: Command) -> Cost {
    assert!(Command::new("sync").status().unwrap().success());
    let mut timed = Command::new("/usr/bin/time");
    timed.args(["-f", "%U %S %M"]).arg(command.get_program());
    timed.args(command.get_args());
    for (name, value) in command.get_envs() {
        timed.env(name, value.unwrap());
    }
    timed.env_remove("ECLUSE_CONFIG");
    timed.stdin(Stdio::null()).stdout(Stdio::null());
    let since = Instant::now();
    let output = timed.output().unwrap();
    let wall = since.elapsed().as_secs_f64();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?} failed: {said}");
    let last = said.lines().last().unwrap();
    let figures: Vec<f64> = last.split(' ').map(|word| word.parse().unwrap()).collect();
    Cost {
        cpu: figures[0] + figures[1],
        wall,
        peak: figures[2] as u64 / 1024,
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

/// A small generator, so that every run makes the same lists.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}
