//! How fast do parcels move, and how far is that from what the disk allows?
//!
//! `cargo bench --bench spool [-- [--dir DIR] [--parcels N] [--no-postgres]]`
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

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ecluse_spool::{Limits, Work, Worker, Yard};

const STAGES: [&str; 3] = ["one", "two", "three"];

fn main() {
    let options = Options::parse();
    let dir = options.dir.join(format!("spool-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    println!(
        "parcels of 512 bytes through three stages, durable, in {}\n",
        dir.display()
    );
    println!("| | a second | CPU-s per 1,000 | limit or peer, a second | ratio |");
    println!("|---|---|---|---|---|");

    // Interleaved, best of three: a shared machine has bad moments.
    let mut bare = f64::MAX;
    let mut moved = f64::MAX;
    let mut single = Run::default();
    for _ in 0..3 {
        bare = bare.min(bare_fsyncs(&dir.join("bare"), 100));
        moved = moved.min(bare_moves(&dir.join("moves"), 100));
        single = single.best(one_at_a_time(&dir.join("single"), options.single));
    }
    let limit = |step: f64| 1.0 / (step * STAGES.len() as f64);
    let one = "one worker, one at a time";
    row(one, single, "two bare fsyncs a step", limit(bare));
    row(
        one,
        single,
        "the same among the protocol's moves",
        limit(moved),
    );

    let mut grouped = Run::default();
    let mut postgres = None;
    for _ in 0..3 {
        grouped = grouped.best(group_commit(&dir.join("group"), options.parcels, 2));
        if options.postgres {
            let rate = postgres_skip_locked(&dir.join("postgres"), options.parcels);
            postgres = Some(rate.max(postgres.unwrap_or(0.0)));
        }
    }
    match postgres {
        Some(rate) => row(
            "two workers, group commit",
            grouped,
            "PostgreSQL, 100 a batch",
            rate,
        ),
        None => row(
            "two workers, group commit",
            grouped,
            "PostgreSQL not asked",
            f64::NAN,
        ),
    }
    fs::remove_dir_all(&dir).unwrap();
}

struct Options {
    dir: PathBuf,
    parcels: usize,
    single: usize,
    postgres: bool,
}

impl Options {
    fn parse() -> Self {
        let mut options = Self {
            dir: PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(".bench"),
            parcels: 10_000,
            single: 200,
            postgres: true,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--dir" => options.dir = words.next().unwrap().into(),
                "--parcels" => options.parcels = words.next().unwrap().parse().unwrap(),
                "--no-postgres" => options.postgres = false,
                "--bench" => {}
                other => panic!("unknown option {other}"),
            }
        }
        options
    }
}

#[derive(Clone, Copy, Default)]
struct Run {
    a_second: f64,
    cpu_per_thousand: f64,
}

impl Run {
    fn best(self, other: Self) -> Self {
        if other.a_second > self.a_second {
            other
        } else {
            self
        }
    }
}

fn row(what: &str, run: Run, peer: &str, limit: f64) {
    println!(
        "| {what} | {:.0} | {:.2} | {peer}: {limit:.0} | {:.2} |",
        run.a_second,
        run.cpu_per_thousand,
        run.a_second / limit
    );
}

/// Returns the seconds of the fsyncs one stage needs for one parcel: the receipt's bytes, and the
/// directory its link lies in.
fn bare_fsyncs(dir: &Path, rounds: u32) -> f64 {
    fs::create_dir_all(dir.join("receipts")).unwrap();
    let receipts = File::open(dir.join("receipts")).unwrap();
    let began = Instant::now();
    for round in 0..rounds {
        let sheet = dir.join(format!("sheet-{round}"));
        let mut file = File::create_new(&sheet).unwrap();
        file.write_all(&[b'x'; 700]).unwrap();
        file.sync_all().unwrap();
        fs::hard_link(&sheet, dir.join(format!("receipts/{round}"))).unwrap();
        receipts.sync_all().unwrap();
    }
    let took = began.elapsed().as_secs_f64() / f64::from(rounds);
    fs::remove_dir_all(dir).unwrap();
    took
}

/// The same two fsyncs with the moves around them that they have to make durable, and nothing else:
/// a claim, the receipt, its link, the page of the history, the hand-over.
fn bare_moves(dir: &Path, rounds: u32) -> f64 {
    for place in ["ready", "in", "out", "next"] {
        fs::create_dir_all(dir.join(place)).unwrap();
    }
    for shard in 0..256 {
        fs::create_dir_all(dir.join(format!("receipts/{shard}"))).unwrap();
    }
    for round in 0..rounds {
        fs::create_dir_all(dir.join(format!("ready/{round}/history"))).unwrap();
    }
    rustix::fs::sync();
    let began = Instant::now();
    for round in 0..rounds {
        let at = |place: &str| dir.join(format!("{place}/{round}"));
        fs::rename(at("ready"), at("in")).unwrap();
        let mut file = File::create_new(at("out")).unwrap();
        file.write_all(&[b'x'; 700]).unwrap();
        file.sync_all().unwrap();
        let shard = dir.join(format!("receipts/{}", round * 37 % 256));
        fs::hard_link(at("out"), shard.join(round.to_string())).unwrap();
        File::open(&shard).unwrap().sync_all().unwrap();
        fs::hard_link(at("out"), at("in").join("history/1")).unwrap();
        fs::rename(at("in"), at("next")).unwrap();
        fs::remove_file(at("out")).unwrap();
    }
    let took = began.elapsed().as_secs_f64() / f64::from(rounds);
    fs::remove_dir_all(dir).unwrap();
    took
}

fn fill(yard: &Yard, parcels: usize) {
    let ready = yard.init(STAGES[0]).unwrap().ready();
    for stage in STAGES.iter().skip(1).chain(&["end"]) {
        yard.init(stage).unwrap();
    }
    // A chain that has run for a minute has all its shards.
    for stage in STAGES {
        for shard in 0..=255u8 {
            let receipts = yard.stage(stage).receipts();
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

fn crew(yard: &Yard) -> Vec<Worker> {
    let next = |i: usize| vec![(*STAGES.get(i + 1).unwrap_or(&"end")).to_owned()];
    STAGES
        .iter()
        .enumerate()
        .map(|(i, stage)| Worker::open(yard, stage, &next(i), Limits::default(), "bench").unwrap())
        .collect()
}

fn one_at_a_time(dir: &Path, parcels: usize) -> Run {
    let yard = Yard::open(&dir.join("work"));
    fs::create_dir_all(dir).unwrap();
    fill(&yard, parcels);
    let mut crew = crew(&yard);
    let clock = Clock::start();
    for worker in &mut crew {
        loop {
            let waiting = worker.scan().unwrap().waiting;
            if waiting.is_empty() {
                break;
            }
            for waiting in waiting {
                commit(worker, &[waiting]);
            }
        }
    }
    let run = clock.stop(parcels);
    finish(&yard, crew, dir, parcels);
    run
}

fn group_commit(dir: &Path, parcels: usize, workers: usize) -> Run {
    fs::create_dir_all(dir).unwrap();
    let yard = Yard::open(&dir.join("work"));
    fill(&yard, parcels);
    let crews: Vec<Vec<Worker>> = (0..workers).map(|_| crew(&yard)).collect();
    let clock = Clock::start();
    let crews: Vec<Vec<Worker>> = std::thread::scope(|scope| {
        let threads: Vec<_> = crews
            .into_iter()
            .map(|crew| scope.spawn(|| pump(crew, &yard, parcels)))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    let run = clock.stop(parcels);
    finish(&yard, crews.into_iter().flatten().collect(), dir, parcels);
    run
}

/// Moves parcels through all stages, a group at a time, until all have arrived.
fn pump(mut crew: Vec<Worker>, yard: &Yard, parcels: usize) -> Vec<Worker> {
    let end = yard.stage("end").ready();
    loop {
        let mut moved = 0;
        for worker in &mut crew {
            let waiting = worker.scan().unwrap().waiting;
            for group in waiting.chunks(512) {
                moved += commit(worker, group);
            }
        }
        if moved == 0 && fs::read_dir(&end).unwrap().count() == parcels {
            return crew;
        }
    }
}

fn commit(worker: &mut Worker, group: &[ecluse_spool::Waiting]) -> usize {
    let mut works = Vec::with_capacity(group.len());
    for waiting in group {
        if let Some(parcel) = worker.claim(waiting).unwrap() {
            let parcels = vec![parcel];
            let outbox = worker.outbox(&parcels);
            works.push(Work { parcels, outbox });
        }
    }
    worker.finish(&mut works).unwrap().len()
}

fn finish(yard: &Yard, crew: Vec<Worker>, dir: &Path, parcels: usize) {
    let arrived = fs::read_dir(yard.stage("end").ready()).unwrap().count();
    assert_eq!(arrived, parcels, "every parcel must arrive");
    for worker in crew {
        worker.close().unwrap();
    }
    fs::remove_dir_all(dir).unwrap();
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

/// Moves rows through three states with SKIP LOCKED, 100 a transaction, two clients, synchronous
/// commit; returns rows a second.
fn postgres_skip_locked(dir: &Path, rows: usize) -> f64 {
    let Some(bin) = postgres_bin() else {
        println!("PostgreSQL is missing: apt-get install postgresql");
        return f64::NAN;
    };
    let _ = fs::remove_dir_all(dir);
    fs::create_dir_all(dir).unwrap();
    let as_postgres = is_root();
    if as_postgres {
        run(Command::new("chown").arg("postgres").arg(dir));
        for ancestor in dir.ancestors().skip(1) {
            // The server's user must be able to walk to its data.
            let _ = Command::new("chmod").arg("o+x").arg(ancestor).status();
        }
    }
    let pg = |program: &str| {
        let path = bin.join(program);
        if as_postgres {
            let mut command = Command::new("runuser");
            command.args(["-u", "postgres", "--"]).arg(path);
            command
        } else {
            Command::new(path)
        }
    };
    let data = dir.join("data");
    run(pg("initdb")
        .args(["-A", "trust", "-U", "bench", "-D"])
        .arg(&data));
    let socket = format!(
        "-k {} -c listen_addresses='' -c shared_buffers=256MB",
        dir.display()
    );
    run(pg("pg_ctl")
        .args(["-w", "-o", &socket, "-l"])
        .arg(dir.join("log"))
        .arg("-D")
        .arg(&data)
        .arg("start"));
    let psql = |sql: &str| {
        run(pg("psql")
            .args(["-q", "-U", "bench", "-d", "postgres", "-h"])
            .arg(dir)
            .args(["-c", sql]));
    };
    psql("create table jobs (id bigserial primary key, state int not null, payload text not null)");
    psql(&format!(
        "insert into jobs (state, payload) select 0, repeat('d', 200) from generate_series(1, {rows})"
    ));
    psql("create index on jobs (state, id)");
    psql("vacuum analyze jobs");
    psql("checkpoint");
    let script = dir.join("move.sql");
    let step = |from: i32| {
        format!(
            "update jobs set state = {} where id in (select id from jobs where state = {from} order by id limit 100 for update skip locked) returning payload;\n",
            from + 1
        )
    };
    fs::write(&script, step(0) + &step(1) + &step(2)).unwrap();
    // Two clients, so each has half of the rows to move; a statement is a transaction of its own.
    let turns = rows.div_ceil(200).to_string();
    let began = Instant::now();
    run(pg("pgbench")
        .args([
            "-n", "-c", "2", "-j", "2", "-t", &turns, "-U", "bench", "-h",
        ])
        .arg(dir)
        .arg("-f")
        .arg(&script)
        .arg("postgres"));
    let took = began.elapsed().as_secs_f64();
    let done = pg("psql")
        .args(["-qAt", "-U", "bench", "-d", "postgres", "-h"])
        .arg(dir)
        .args(["-c", "select count(*) from jobs where state = 3"])
        .output()
        .unwrap();
    let done: f64 = String::from_utf8(done.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    assert!(done >= rows as f64 * 0.9, "{done} of {rows} rows arrived");
    run(pg("pg_ctl")
        .args(["-m", "fast", "-D"])
        .arg(&data)
        .arg("stop"));
    fs::remove_dir_all(dir).unwrap();
    done / took
}

fn postgres_bin() -> Option<PathBuf> {
    let mut versions: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .ok()?
        .map(|entry| entry.unwrap().path().join("bin"))
        .filter(|bin| bin.join("initdb").exists())
        .collect();
    versions.sort();
    versions.pop()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn run(command: &mut Command) {
    let output = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let output = output.spawn().unwrap().wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
