//! How quickly does a stage react, look and start, and what does it cost to wait?
//!
//! `cargo bench -p ecluse-testkit --bench shell [-- --dir DIR]`
//!
//! A real stage process, idle machine wanted: the time from a file's arrival to its claim, a scan of
//! 100,000 waiting parcels, the CPU of an idle stage, and the time from start to READY with 10,000
//! parcels waiting. The bars stand in `docs/benchmarks.md`.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a bench may die, and makes and removes its own files"
)]

#[path = "page.rs"]
mod page;

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ecluse_spool::{WorkTree, Worker, WorkerLimits};
use page::Page;

fn main() {
    let mut dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../.bench");
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--dir" => dir = words.next().unwrap().into(),
            "--bench" => {}
            other => panic!("unknown option {other}"),
        }
    }
    let dir = dir.join(format!("shell-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let mut page = Page::begin("shell");
    page.say("| | figure | at least |");
    page.say("|---|---|---|");
    reaction(&mut page, &dir.join("reaction"));
    scan(&mut page, &dir.join("scan"));
    idle(&mut page, &dir.join("idle"));
    start(&mut page, &dir.join("start"));
    page.end(true);
    fs::remove_dir_all(&dir).unwrap();
}

struct Stage {
    child: Child,
    born: Duration,
}

impl Stage {
    /// Starts the relay and waits for READY=1.
    fn start(root: &Path) -> Self {
        let path = root.join("notify");
        let _ = fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        let began = Instant::now();
        let child = Command::new(env!("CARGO_BIN_EXE_ecluse-relay"))
            .arg("--root")
            .arg(root)
            .args(["--log", "error"])
            .env("NOTIFY_SOCKET", &path)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut buffer = [0; 4096];
        loop {
            let read = socket.recv(&mut buffer).unwrap();
            if String::from_utf8_lossy(&buffer[..read]).contains("READY=1") {
                break;
            }
        }
        let born = began.elapsed();
        // Whatever else it says must not fill the socket.
        std::thread::spawn(move || while socket.recv(&mut [0; 4096]).is_ok() {});
        Self { child, born }
    }

    /// User and system time so far, in clock ticks of 10 ms.
    fn cpu(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn root(dir: &Path) -> WorkTree {
    fs::create_dir_all(dir).unwrap();
    fs::write(
        dir.join("pipeline.toml"),
        "version = 1\n[chain]\nstages = [\"relay\", \"end\"]\n[defaults]\nmin-free = \"1 MB\"\n[stage.relay]\nplain = true\n",
    )
    .unwrap();
    let tree = WorkTree::open(&dir.join("work"));
    tree.init("relay").unwrap();
    tree.init("end").unwrap();
    tree
}

fn parcel(at: &Path, id: &str) {
    fs::create_dir_all(at.join("history")).unwrap();
    let manifest = format!(r#"{{"schema":1,"id":"{id}","kind":"bench","born":"{id}","files":[]}}"#);
    fs::write(at.join("parcel.json"), manifest).unwrap();
}

/// Waits until a path is gone and returns how long that took.
fn until_gone(path: &Path) -> Duration {
    let began = Instant::now();
    while path.symlink_metadata().is_ok() {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "{} stays",
            path.display()
        );
        std::thread::sleep(Duration::from_micros(50));
    }
    began.elapsed()
}

fn reaction(page: &mut Page, dir: &Path) {
    let tree = root(dir);
    let stage = Stage::start(dir);
    let relay = tree.stage("relay");
    let mut dropped = Vec::new();
    let mut ready = Vec::new();
    for number in 0..200 {
        let file = dir.join(format!("f{number}"));
        fs::write(&file, format!("content {number}")).unwrap();
        let to = relay.drop().join(format!("f{number}"));
        fs::rename(&file, &to).unwrap();
        dropped.push(until_gone(&to));
        std::thread::sleep(Duration::from_millis(30));
        let made = relay.tmp().join(format!("bench-{number}"));
        parcel(&made, &format!("p{number}"));
        let to = relay.ready().join(format!("p{number}~0"));
        fs::rename(&made, &to).unwrap();
        ready.push(until_gone(&to));
        std::thread::sleep(Duration::from_millis(30));
    }
    drop(stage);
    for (what, mut times) in [
        ("dropped file to claim", dropped),
        ("ready parcel to claim", ready),
    ] {
        times.sort();
        let at = |share: usize| times[times.len() * share / 100].as_secs_f64() * 1000.0;
        page.say(format!(
            "| {what} (bell), p50 / p99 / max | {:.1} / {:.1} / {:.1} ms | p99 under 10 ms |",
            at(50),
            at(99),
            times.last().unwrap().as_secs_f64() * 1000.0
        ));
    }
}

fn scan(page: &mut Page, dir: &Path) {
    let tree = root(dir);
    let ready = tree.stage("relay").ready();
    for number in 0..100_000 {
        fs::create_dir(ready.join(format!("BnF-145-412-20260312101500123-{number:05}-h~0")))
            .unwrap();
    }
    let mut worker = Worker::open(&tree, "relay", &[], WorkerLimits::default(), "bench").unwrap();
    let times: Vec<f64> = (0..5)
        .map(|_| {
            let began = Instant::now();
            assert_eq!(worker.scan().unwrap().total, 100_000);
            began.elapsed().as_secs_f64() * 1000.0
        })
        .collect();
    let best = times.iter().copied().fold(f64::MAX, f64::min);
    page.say(format!("| scan of 100,000 waiting parcels, first / best of 5 | {:.0} / {best:.0} ms | under 100 ms |",
        times[0]
    ));
    worker.close().unwrap();
    fs::remove_dir_all(dir).unwrap();
}

fn idle(page: &mut Page, dir: &Path) {
    root(dir);
    let stage = Stage::start(dir);
    std::thread::sleep(Duration::from_secs(2));
    let (cpu, began) = (stage.cpu(), Instant::now());
    std::thread::sleep(Duration::from_secs(40));
    let share = (stage.cpu() - cpu) / began.elapsed().as_secs_f64() * 100.0;
    page.say(format!(
        "| CPU of an idle stage, over 40 s | {share:.2} % | under 0.5 % |"
    ));
}

fn start(page: &mut Page, dir: &Path) {
    let tree = root(dir);
    let ready = tree.stage("relay").ready();
    for number in 0..10_000 {
        parcel(&ready.join(format!("p{number}~0")), &format!("p{number}"));
    }
    // Paused, so that every start finds them all.
    tree.pause("relay", "bench", "start").unwrap();
    let mut born: Vec<f64> = (0..7)
        .map(|_| Stage::start(dir).born.as_secs_f64() * 1000.0)
        .collect();
    born.sort_by(f64::total_cmp);
    page.say(format!(
        "| start to READY, 10,000 waiting, median / worst of 7 | {:.0} / {:.0} ms | under 200 ms |",
        born[3], born[6]
    ));
}
