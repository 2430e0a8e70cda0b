//! How fast do parcels move, and how far is that from what the disk allows?
//!
//! `cargo bench --bench spool [-- [--dir DIR] [--parcels N] [--rounds N] [--only PART] [--calls] [--no-postgres]]`
//! where a part is `single` or `group`; `--calls` counts and times the calls of a step instead.
//!
//! Three stages, parcels of 512 bytes that pass on unchanged, everything durable:
//! one worker committing each parcel alone, against the bare fsyncs that needs; and two workers
//! with group commit, against PostgreSQL's SKIP LOCKED with batches of 100 on the same disk.
//! A ratio under the bar in `docs/benchmarks.md` should worry us.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a bench may die, and makes and removes its own files"
)]

#[path = "page.rs"]
mod page;
#[path = "postgres.rs"]
mod postgres;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ecluse_spool::{
    FileKind, Fs, Host, Inside, Lease, RealFs, Room, SeekRead, Sink, Stat, Waiting, Work, WorkTree,
    Worker, WorkerLimits,
};
use page::Page;

const STAGES: [&str; 3] = ["one", "two", "three"];

fn main() {
    let options = Options::parse();
    let dir = options.dir.join(format!("spool-{}", std::process::id()));
    fs::create_dir_all(&options.dir).unwrap();
    // ext4 looks at every inode deleted in the last minutes of a group before it makes a file there:
    // nothing is removed before the end, and each run gets a place of its own.
    let _ = Command::new("chattr").arg("+T").arg(&options.dir).status();
    fs::create_dir(&dir).unwrap();
    if options.calls {
        count_calls(&options, &dir);
        fs::remove_dir_all(&dir).unwrap();
        return;
    }
    let mut page = Page::begin("spool");
    page.say("| | a second | CPU-s per 1,000 | limit or peer, a second | ratio | middle round |");
    page.say("|---|--:|--:|--:|--:|--:|");

    if options.wants("single") {
        one_by_one(&mut page, &options, &dir);
    }
    if options.wants("group") {
        in_groups(&mut page, &options, &dir);
    }
    fs::remove_dir_all(&dir).unwrap();
    let both = options.wants("single") && options.wants("group");
    page.end(both && options.postgres && postgres::programs().is_some());
}

/// Each parcel committed alone, against the bare fsyncs that needs.
fn one_by_one(page: &mut Page, options: &Options, dir: &Path) {
    // By turns, so that a bad moment of a shared machine strikes all alike.
    let rounds: Vec<[Run; 3]> = (0..options.rounds)
        .map(|round| {
            let at = |what: &str| dir.join(format!("{what}-{round}"));
            [
                bare_fsyncs(&at("bare"), options.single),
                one_at_a_time(&at("single"), options.single),
                stage_by_stage(&at("stages"), options.single),
            ]
        })
        .collect();
    let runs = |which: usize| {
        rounds
            .iter()
            .map(|round| round[which])
            .collect::<Vec<Run>>()
    };
    let peer = ("two bare fsyncs a step", runs(0));
    row(page, "one worker, one at a time", &runs(1), &peer);
    row(page, "one worker a stage, one at a time", &runs(2), &peer);
}

/// Two workers with group commit, against PostgreSQL.
fn in_groups(page: &mut Page, options: &Options, dir: &Path) {
    let mut groups = Vec::new();
    let mut peers = Vec::new();
    for round in 0..options.rounds {
        let at = |what: &str| dir.join(format!("{what}-{round}"));
        groups.push(group_commit(&at("group"), options.parcels, 2));
        if options.postgres {
            peers.push(Run {
                a_second: postgres::skip_locked(&at("postgres"), options.parcels),
                cpu_per_thousand: f64::NAN,
            });
        }
    }
    let peer = ("PostgreSQL, 100 a batch", peers);
    row(page, "two workers, group commit", &groups, &peer);
}

struct Options {
    dir: PathBuf,
    parcels: usize,
    single: usize,
    rounds: u32,
    only: Option<String>,
    calls: bool,
    postgres: bool,
}

impl Options {
    fn wants(&self, part: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == part)
    }

    fn parse() -> Self {
        let mut options = Self {
            dir: PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(".bench"),
            parcels: 10_000,
            single: 200,
            rounds: 3,
            only: None,
            calls: false,
            postgres: true,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--dir" => options.dir = words.next().unwrap().into(),
                "--parcels" => options.parcels = words.next().unwrap().parse().unwrap(),
                "--rounds" => options.rounds = words.next().unwrap().parse().unwrap(),
                "--only" => options.only = words.next(),
                "--calls" => options.calls = true,
                "--no-postgres" => options.postgres = false,
                "--bench" => {}
                other => panic!("unknown option {other}"),
            }
        }
        options
    }
}

#[derive(Clone, Copy)]
struct Run {
    a_second: f64,
    cpu_per_thousand: f64,
}

/// The best of all rounds on both sides, and the ratio of the two in the middle round.
fn row(page: &mut Page, what: &str, runs: &[Run], peer: &(&str, Vec<Run>)) {
    let best = |runs: &[Run]| {
        let fastest = runs.iter().max_by(|a, b| a.a_second.total_cmp(&b.a_second));
        fastest.map_or((f64::NAN, f64::NAN), |run| {
            (run.a_second, run.cpu_per_thousand)
        })
    };
    let (ours, cpu) = best(runs);
    let (theirs, _) = best(&peer.1);
    let mut ratios: Vec<f64> = runs
        .iter()
        .zip(&peer.1)
        .map(|(ours, theirs)| ours.a_second / theirs.a_second)
        .collect();
    ratios.sort_by(f64::total_cmp);
    let middle = ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN);
    page.say(format!(
        "| {what} | {ours:.0} | {cpu:.2} | {}: {theirs:.0} | {:.2} | {middle:.2} |",
        peer.0,
        ours / theirs,
    ));
}

/// What three stages need of the disk for each parcel and nothing else, in the places where they
/// need it: a new file of a receipt's size with an fsync, a link to it in one of 256 directories with
/// an fsync of that, its handle kept open.
fn bare_fsyncs(dir: &Path, parcels: usize) -> Run {
    let shards: Vec<Vec<File>> = STAGES
        .iter()
        .map(|stage| {
            let stage = dir.join(stage);
            fs::create_dir_all(stage.join("out")).unwrap();
            let shard = |shard: u32| {
                let path = stage.join(format!("receipts/{shard:02x}"));
                fs::create_dir_all(&path).unwrap();
                File::open(&path).unwrap()
            };
            (0..256).map(shard).collect()
        })
        .collect();
    rustix::fs::sync();
    let clock = Clock::start();
    for (stage, shards) in STAGES.iter().zip(&shards) {
        let stage = dir.join(stage);
        for parcel in 0..parcels {
            let sheet = stage.join(format!("out/sheet-{parcel}"));
            let mut file = File::create_new(&sheet).unwrap();
            file.write_all(&[b'x'; 503]).unwrap();
            file.sync_all().unwrap();
            // As scattered as the hash of a name.
            let shard = parcel * 37 % 256;
            let link = stage.join(format!("receipts/{shard:02x}/p{parcel}.json"));
            fs::hard_link(&sheet, link).unwrap();
            shards[shard].sync_all().unwrap();
        }
    }
    clock.stop(parcels)
}

/// Says which calls a step is made of, one parcel at a time and in a group.
fn count_calls(options: &Options, dir: &Path) {
    for (what, parcels) in [("single", options.single), ("group", options.parcels)] {
        if !options.wants(what) {
            continue;
        }
        let counted = Arc::new(Counted::default());
        let work = dir.join(what).join("work");
        fs::create_dir_all(dir.join(what)).unwrap();
        let wall = Arc::new(|| 1_770_000_000_000);
        let seed = AtomicU64::new(7);
        let dice = Arc::new(move || seed.fetch_add(1, Ordering::Relaxed));
        let tree = WorkTree::with(counted.clone(), &work, Host::this(), wall, dice);
        fill(&tree, parcels);
        let mut pools: Vec<Vec<Worker>> = vec![pool(&tree)];
        counted.calls.lock().unwrap().clear();
        let clock = Clock::start();
        if what == "single" {
            pools[0]
                .iter_mut()
                .for_each(|worker| alone(worker, parcels));
        } else {
            pools.push(pool(&tree));
            pools = together(pools, &tree, parcels);
        }
        let run = clock.stop(parcels);
        let steps = parcels as f64 * STAGES.len() as f64;
        let took = 1e6 / run.a_second / STAGES.len() as f64;
        println!("\n{what}: {took:.1} µs a step");
        println!("| call | a step | µs each | µs a step |");
        println!("|---|--:|--:|--:|");
        let mut total = 0.0;
        for (call, (count, spent)) in &*counted.calls.lock().unwrap() {
            let spent = spent.as_secs_f64() * 1e6;
            total += spent / steps;
            println!(
                "| {call} | {:.3} | {:.1} | {:.1} |",
                *count as f64 / steps,
                spent / *count as f64,
                spent / steps
            );
        }
        println!("| all | | | {total:.1} |");
        finish(&tree, pools.into_iter().flatten().collect(), parcels);
    }
}

/// The machine's file system, with every call counted and timed.
#[derive(Default)]
struct Counted {
    fs: RealFs,
    calls: Mutex<BTreeMap<String, (u64, Duration)>>,
}

impl Counted {
    fn time<'fs, Answer>(
        &'fs self,
        call: &str,
        path: &Path,
        run: impl FnOnce(&'fs RealFs) -> io::Result<Answer>,
    ) -> io::Result<Answer> {
        let began = Instant::now();
        let answer = run(&self.fs);
        let took = began.elapsed();
        let refused = if answer.is_err() { ", refused" } else { "" };
        let mut calls = self.calls.lock().unwrap();
        let slot = calls
            .entry(format!("{call} {}{refused}", place(path)))
            .or_default();
        *slot = (slot.0 + 1, slot.1 + took);
        answer
    }
}

/// A path without what differs from parcel to parcel.
fn place(path: &Path) -> String {
    let parts = path.components().map(|part| part.as_os_str().to_str());
    let parts: Vec<&str> = parts.map(Option::unwrap).collect();
    let work = parts.iter().rposition(|part| *part == "work").unwrap();
    let generic = |part: &&str| match *part {
        part if part.starts_with('p') && part.as_bytes()[1].is_ascii_digit() => {
            part.replace(|c: char| c.is_ascii_digit(), "")
        }
        part if part.starts_with(".sheet-") => ".sheet".into(),
        part if part.len() == 2 && part != "in" => "hh".into(),
        part if part.ends_with("-one.json") || part.ends_with("-two.json") => "page".into(),
        part if part.ends_with("-three.json") => "page".into(),
        part if part.len() > 20 => "W".into(),
        part => part.into(),
    };
    let parts: Vec<String> = parts.iter().skip(work + 2).map(generic).collect();
    parts.join("/")
}

impl Fs for Counted {
    fn mkdir(&self, path: &Path) -> io::Result<()> {
        self.time("mkdir", path, |fs| fs.mkdir(path))
    }

    fn rmdir(&self, path: &Path) -> io::Result<()> {
        self.time("rmdir", path, |fs| fs.rmdir(path))
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.time("unlink", path, |fs| fs.unlink(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.time("rename to", to, |fs| fs.rename(from, to))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.time("link to", to, |fs| fs.link(from, to))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Sink>> {
        self.time("create", path, |fs| fs.create(path))
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn Sink>> {
        self.time("append", path, |fs| fs.append(path))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn SeekRead>> {
        self.time("open", path, |fs| fs.open(path))
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.time("stat", path, |fs| fs.stat(path))
    }

    fn visit(
        &self,
        dir: &Path,
        visit: &mut dyn FnMut(&OsStr, FileKind) -> ControlFlow<()>,
    ) -> io::Result<()> {
        self.time("list", dir, |fs| fs.visit(dir, visit))
    }

    fn look_inside<'fs>(&'fs self, dir: &'fs Path) -> io::Result<Box<dyn Inside + 'fs>> {
        let inside = self.time("look inside", dir, |fs| fs.look_inside(dir))?;
        Ok(Box::new(CountedInside {
            counted: self,
            dir: dir.to_owned(),
            inside,
        }))
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.time("sync", path, |fs| fs.sync_file(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.time("sync", path, |fs| fs.sync_dir(path))
    }

    fn sync_dirs(&self, dirs: &[PathBuf]) -> io::Result<()> {
        self.time("sync", &dirs[0], |fs| fs.sync_dirs(dirs))
    }

    fn sync_all(&self, path: &Path) -> io::Result<()> {
        self.time("sync all of", path, |fs| fs.sync_all(path))
    }

    fn touch(&self, path: &Path) -> io::Result<()> {
        self.time("touch", path, |fs| fs.touch(path))
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lease>>> {
        self.time("lock", path, |fs| fs.lock(path))
    }

    fn truncate(&self, path: &Path, bytes: u64) -> io::Result<()> {
        self.time("truncate", path, |fs| fs.truncate(path, bytes))
    }

    fn is_one_machines(&self, path: &Path) -> bool {
        self.fs.is_one_machines(path)
    }

    fn room(&self, path: &Path) -> io::Result<Room> {
        self.time("room", path, |fs| fs.room(path))
    }

    fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        self.time("read", path, |fs| fs.read(path, limit))
    }

    fn write_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.time("write", path, |fs| fs.write_new(path, bytes))
    }

    fn write_durable(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.time("write and sync", path, |fs| fs.write_durable(path, bytes))
    }
}

struct CountedInside<'fs> {
    counted: &'fs Counted,
    dir: PathBuf,
    inside: Box<dyn Inside + 'fs>,
}

impl Inside for CountedInside<'_> {
    fn read(&self, name: &str, limit: u64) -> io::Result<Vec<u8>> {
        let path = self.dir.join(name);
        let read = |_| self.inside.read(name, limit);
        self.counted.time("read inside", &path, read)
    }

    fn visit(&self, name: &str, visit: &mut dyn FnMut(&OsStr)) -> io::Result<()> {
        let path = self.dir.join(name);
        let list = |_| self.inside.visit(name, visit);
        self.counted.time("list inside", &path, list)
    }

    fn is_there(&self, name: &str) -> io::Result<bool> {
        let path = self.dir.join(name);
        let look = |_| self.inside.is_there(name);
        self.counted.time("look for", &path, look)
    }
}

fn fill(tree: &WorkTree, parcels: usize) {
    let ready = tree.init(STAGES[0]).unwrap().ready();
    for stage in STAGES.iter().skip(1).chain(&["end"]) {
        tree.init(stage).unwrap();
    }
    // A chain that has run for a minute has all its shards.
    for stage in STAGES {
        for shard in 0..=255u8 {
            let receipts = tree.stage(stage).receipts();
            fs::create_dir(receipts.join(format!("{shard:02x}"))).unwrap();
        }
    }
    for number in 0..parcels {
        let parcel = ready.join(format!("p{number}~0"));
        fs::create_dir_all(parcel.join("history")).unwrap();
        fs::write(parcel.join("data"), [b'd'; 512]).unwrap();
        let manifest = format!(
            r#"{{"schema":1,"id":"p{number}","kind":"bench","born":"{number:016x}","files":[{{"name":"data","bytes":512,"sha256":"{:064x}"}}]}}"#,
            0
        );
        fs::write(parcel.join("parcel.json"), manifest).unwrap();
    }
    rustix::fs::sync();
}

fn pool(tree: &WorkTree) -> Vec<Worker> {
    let next = |i: usize| vec![(*STAGES.get(i + 1).unwrap_or(&"end")).to_owned()];
    STAGES
        .iter()
        .enumerate()
        .map(|(i, stage)| {
            Worker::open(tree, stage, &next(i), WorkerLimits::default(), "bench").unwrap()
        })
        .collect()
}

fn one_at_a_time(dir: &Path, parcels: usize) -> Run {
    let tree = WorkTree::open(&dir.join("work"));
    fs::create_dir_all(dir).unwrap();
    fill(&tree, parcels);
    let mut pool = pool(&tree);
    let clock = Clock::start();
    for worker in &mut pool {
        alone(worker, parcels);
    }
    let run = clock.stop(parcels);
    finish(&tree, pool, parcels);
    run
}

/// The same as it is deployed: each stage has its worker, and all work at once.
fn stage_by_stage(dir: &Path, parcels: usize) -> Run {
    let tree = WorkTree::open(&dir.join("work"));
    fs::create_dir_all(dir).unwrap();
    fill(&tree, parcels);
    let mut pool = pool(&tree);
    let clock = Clock::start();
    std::thread::scope(|scope| {
        for worker in &mut pool {
            scope.spawn(|| alone(worker, parcels));
        }
    });
    let run = clock.stop(parcels);
    finish(&tree, pool, parcels);
    run
}

/// Takes so many parcels through one stage, each committed before the next is claimed.
fn alone(worker: &mut Worker, parcels: usize) {
    let mut moved = 0;
    while moved < parcels {
        let waiting = worker.scan().unwrap().waiting;
        if waiting.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        for waiting in waiting.iter().rev() {
            let mut works = Vec::from_iter(claim(worker, waiting));
            moved += worker.finish(&mut works).unwrap().len();
        }
    }
}

fn group_commit(dir: &Path, parcels: usize, workers: usize) -> Run {
    fs::create_dir_all(dir).unwrap();
    let tree = WorkTree::open(&dir.join("work"));
    fill(&tree, parcels);
    let pools: Vec<Vec<Worker>> = (0..workers).map(|_| pool(&tree)).collect();
    let clock = Clock::start();
    let pools = together(pools, &tree, parcels);
    let run = clock.stop(parcels);
    finish(&tree, pools.into_iter().flatten().collect(), parcels);
    run
}

fn together(pools: Vec<Vec<Worker>>, tree: &WorkTree, parcels: usize) -> Vec<Vec<Worker>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = pools
            .into_iter()
            .map(|pool| scope.spawn(|| pump(pool, tree, parcels)))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

/// Moves parcels through all stages, a group at a time, until all have arrived.
fn pump(mut pool: Vec<Worker>, tree: &WorkTree, parcels: usize) -> Vec<Worker> {
    let end = tree.stage("end").ready();
    loop {
        let mut moved = 0;
        for worker in &mut pool {
            moved += one_look(worker);
        }
        if moved == 0 && fs::read_dir(&end).unwrap().count() == parcels {
            return pool;
        }
    }
}

/// Takes what one look at `ready/` finds, until another worker proves quicker, as the shell does.
fn one_look(worker: &mut Worker) -> usize {
    let mut waiting = worker.scan().unwrap().waiting;
    let (mut moved, mut losses) = (0, 0);
    let mut works = Vec::new();
    while losses < 8
        && let Some(next) = waiting.pop()
    {
        let Some(work) = claim(worker, &next) else {
            losses += 1;
            continue;
        };
        losses = 0;
        works.push(work);
        if works.len() == 512 {
            moved += worker.finish(&mut works).unwrap().len();
        }
    }
    moved + worker.finish(&mut works).unwrap().len()
}

fn claim(worker: &mut Worker, waiting: &Waiting) -> Option<Work> {
    let parcels = vec![worker.claim(waiting).unwrap()?];
    let outbox = worker.outbox(&parcels);
    Some(Work { parcels, outbox })
}

fn finish(tree: &WorkTree, pool: Vec<Worker>, parcels: usize) {
    let arrived = fs::read_dir(tree.stage("end").ready()).unwrap().count();
    assert_eq!(arrived, parcels, "every parcel must arrive");
    for worker in pool {
        worker.close().unwrap();
    }
}

struct Clock {
    began: Instant,
    cpu: Duration,
}

impl Clock {
    fn start() -> Self {
        Self {
            began: Instant::now(),
            cpu: cpu_time(),
        }
    }

    fn stop(&self, parcels: usize) -> Run {
        let parcels = parcels as f64;
        Run {
            a_second: parcels / self.began.elapsed().as_secs_f64(),
            cpu_per_thousand: (cpu_time() - self.cpu).as_secs_f64() / parcels * 1000.0,
        }
    }
}

/// The CPU time of this process.
fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
