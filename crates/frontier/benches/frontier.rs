//! Does the frontier slow down as it grows, and what does a URL cost?
//!
//! `cargo bench -p ecluse-frontier [-- --millions 1,10,50] [--dir DIR]`
//!
//! One process grows one frontier. For each page that is handed out it adds ten links: five new ones (four of
//! the same host) and five that are known (three of the same host, two from anywhere), and it commits every
//! thousand pages, with the fsync. The cost is for one new URL: its own addition, one look-up of a known one,
//! and a fifth of a hand-out and a finish, in CPU of all threads, merges included.
//!
//! A busy machine makes the same work dearer by half, so a figure of one minute is not compared with one of
//! another. Around each size ten windows of 100,000 URLs are measured, and after each of them one of a second
//! process that grows a frontier afresh around 1 million; the ratio is that of the two medians. What a large
//! merge costs falls into few windows: the mean since the size before stands beside it.
//!
//! It would worry us if 50 million cost more than 1.5 times what 1 million does, or if the peak went beyond
//! 128 MiB.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a bench may die, and makes and removes its own files"
)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use ecluse_frontier::{Added, Candidate, Frontier, Millis, Next, Outcome, Settings};

/// New URLs in one window.
const WINDOW: u64 = 100_000;
/// Windows around each size, half of them before it.
const WINDOWS: u64 = 10;
const HOSTS: u64 = 100_000;
const COMMIT_PAGES: u64 = 1000;

fn main() {
    let mut dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../.bench");
    let mut millions = vec![1, 10];
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--dir" => dir = words.next().unwrap().into(),
            "--millions" => {
                let list = words.next().unwrap();
                millions = list.split(',').map(|word| word.parse().unwrap()).collect();
            }
            "--control" => return control(Path::new(&words.next().unwrap())),
            "--bench" => {}
            other => panic!("unknown option {other}"),
        }
    }
    let dir = dir.join(format!("frontier-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    println!(
        "| known URLs | CPU µs a URL | least, most | 1 M beside it | × | mean since the size before | RSS MiB | peak MiB | disk MB | runs | reopen ms |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let mut web = Web::new();
    let mut frontier = Frontier::open(&dir, Settings::default()).unwrap();
    for million in millions {
        let size = million * 1_000_000;
        let whole = Meter::start(&frontier);
        web.grow(&mut frontier, size - WINDOWS / 2 * WINDOW);
        let mut control = Control::start(&dir.with_extension("control"));
        let (mut costs, mut others) = (Vec::new(), Vec::new());
        for window in 1..=WINDOWS {
            let meter = Meter::start(&frontier);
            web.grow(&mut frontier, size + window * WINDOW - WINDOWS / 2 * WINDOW);
            costs.push(meter.cost(&frontier));
            others.push(control.window());
        }
        control.end();
        let mean = whole.cost(&frontier);
        let (median, other) = (median(&mut costs), median(&mut others));
        let (rss, peak) = (memory("VmRSS:"), memory("VmHWM:"));
        let size = frontier.store_size();
        frontier.pause(b"").unwrap();
        drop(frontier);
        let opening = Instant::now();
        frontier = Frontier::open(&dir, Settings::default()).unwrap();
        web.next(&mut frontier);
        let opening = opening.elapsed().as_millis();
        println!(
            "| {million} M | {median:.2} | {:.2}, {:.2} | {other:.2} | {:.2} | {mean:.2} | {rss} | {peak} | {} | {} | {opening} |",
            costs[0],
            costs[costs.len() - 1],
            median / other,
            (size.run_bytes + size.log_bytes) / 1_000_000,
            size.runs,
        );
        std::io::stdout().flush().unwrap();
    }
    drop(frontier);
    fs::remove_dir_all(&dir).unwrap();
}

/// The second process: a frontier around a million, one window whenever it is asked.
struct Control {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
    dir: PathBuf,
}

impl Control {
    fn start(dir: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg("--control")
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (ask, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut control = Self {
            child,
            ask,
            answers: BufReader::new(answers),
            dir: dir.to_owned(),
        };
        assert_eq!(control.answer(), "ready");
        control
    }

    fn window(&mut self) -> f64 {
        self.ask.write_all(b"\n").unwrap();
        self.answer().parse().unwrap()
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn end(mut self) {
        drop(self.ask);
        assert!(self.child.wait().unwrap().success());
        fs::remove_dir_all(&self.dir).unwrap();
    }
}

/// What the second process does.
fn control(dir: &Path) {
    let mut web = Web::new();
    let mut frontier = Frontier::open(dir, Settings::default()).unwrap();
    let mut size = 1_000_000 - WINDOWS / 2 * WINDOW;
    web.grow(&mut frontier, size);
    println!("ready");
    for _ in std::io::stdin().lines() {
        let meter = Meter::start(&frontier);
        size += WINDOW;
        web.grow(&mut frontier, size);
        println!("{}", meter.cost(&frontier));
    }
}

/// What a stretch of growth costs.
struct Meter {
    known: u64,
    cpu: Duration,
}

impl Meter {
    fn start(frontier: &Frontier) -> Self {
        Self {
            known: frontier.counts().known,
            cpu: cpu_time(),
        }
    }

    /// CPU time for one new URL, in µs.
    fn cost(&self, frontier: &Frontier) -> f64 {
        let urls = (frontier.counts().known - self.known) as f64;
        (cpu_time() - self.cpu).as_secs_f64() * 1e6 / urls
    }
}

fn median(costs: &mut [f64]) -> f64 {
    costs.sort_unstable_by(f64::total_cmp);
    costs[costs.len() / 2].midpoint(costs[(costs.len() - 1) / 2])
}

/// A web that is made up as it is crawled.
struct Web {
    dice: u64,
    /// How many pages of each host are known.
    hosts: Vec<u32>,
    now: u64,
    pages: u64,
    commit_pages: u64,
    flying: Vec<(ecluse_frontier::ItemId, u64)>,
}

impl Web {
    fn new() -> Self {
        Self {
            dice: 0x2545_f491_4f6c_dd1d,
            hosts: vec![0; HOSTS as usize],
            now: 1_700_000_000_000,
            pages: 0,
            commit_pages: 0,
            flying: Vec::new(),
        }
    }

    fn grow(&mut self, frontier: &mut Frontier, size: u64) {
        if frontier.counts().known == 0 {
            for host in 0..1000 {
                self.add_new(frontier, host);
            }
        }
        while frontier.counts().known < size {
            self.next(frontier);
            if self.pages >= self.commit_pages {
                frontier.commit(b"checkpoint").unwrap();
                self.commit_pages = self.pages + COMMIT_PAGES;
            }
        }
    }

    fn next(&mut self, frontier: &mut Frontier) {
        match frontier.next(Millis(self.now), |_| None).unwrap() {
            Next::Fetch(item) => {
                let host = item.queue["www.host".len()..]
                    .split_once('.')
                    .unwrap()
                    .0
                    .parse()
                    .unwrap();
                self.flying.push((item.id, host));
                if self.flying.len() >= 50 {
                    self.fetch(frontier);
                }
            }
            Next::Wait(until) => {
                self.fetch(frontier);
                self.now = self.now.max(until.0);
            }
            Next::Missing(_) | Next::Idle | Next::Empty => self.fetch(frontier),
        }
    }

    fn fetch(&mut self, frontier: &mut Frontier) {
        self.now += 20;
        for (id, host) in std::mem::take(&mut self.flying) {
            for _ in 0..4 {
                self.add_new(frontier, host);
            }
            let elsewhere = self.dice() % HOSTS;
            self.add_new(frontier, elsewhere);
            for _ in 0..3 {
                self.add_known(frontier, host);
            }
            for _ in 0..2 {
                let elsewhere = self.dice() % HOSTS;
                self.add_known(frontier, elsewhere);
            }
            // What was in flight when the frontier was opened again is handed out again.
            let outcome = Outcome::done(200, 40_000, Duration::from_millis(200));
            let _ = frontier.finish(Millis(self.now), id, &outcome);
            self.pages += 1;
        }
    }

    fn add_new(&mut self, frontier: &mut Frontier, host: u64) {
        let page = self.hosts[host as usize];
        self.hosts[host as usize] += 1;
        assert_eq!(add(frontier, host, page), Added::New);
    }

    fn add_known(&mut self, frontier: &mut Frontier, host: u64) {
        let pages = self.hosts[host as usize];
        if pages > 0 {
            let page = (self.dice() % u64::from(pages)) as u32;
            assert_eq!(add(frontier, host, page), Added::Seen);
        }
    }

    fn dice(&mut self) -> u64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.dice >> 11
    }
}

fn add(frontier: &mut Frontier, host: u64, page: u32) -> Added {
    let queue = format!("www.host{host}.example");
    let url = format!("https://{queue}/section-{}/article-{page}.html", page % 17);
    let key = format!(
        "(example,host{host},)/section-{}/article-{page}.html",
        page % 17
    );
    let via = format!("https://{queue}/section-{}/", page % 17);
    let candidate = Candidate {
        key: key.as_bytes(),
        via: &via,
        hops: "LLL",
        source: "seed",
        ..Candidate::new(&url, &queue)
    };
    frontier.add(&candidate).unwrap()
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn memory(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        / 1024
}
