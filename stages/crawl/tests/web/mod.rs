//! A job as an operator gives it to the program, and what it leaves on disk.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test uses a part of it, and stops where it fails"
)]

mod harvest;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use ecluse_crawl::{JobState, JobStatus};
use ecluse_testkit::dns::{Named, Names};
use ecluse_testkit::root::{Program, Root};
use ecluse_testkit::web::Web;
use rustix::process::Signal;

pub(crate) use harvest::Harvest;

pub(crate) const CRAWL: &str = env!("CARGO_BIN_EXE_ecluse-crawl");

/// The order of a test: its keys with their values as TOML has them.
#[derive(Clone)]
pub(crate) struct Order {
    keys: BTreeMap<String, String>,
    seeds: Vec<String>,
}

impl Order {
    /// Returns an order for servers on loopback, with little patience.
    pub(crate) fn new(names: &Names) -> Self {
        let mut order = Self {
            keys: BTreeMap::new(),
            seeds: Vec::new(),
        };
        order.text("job", "4711").text("harvest", "7");
        order.text("agent.contact", "https://archive.example/crawler");
        order.set("network.allow-private", true);
        order.set("network.resolvers", format!("[\"{}\"]", names.address()));
        order
            .text("manners.min-delay", "5ms")
            .text("manners.max-delay", "20ms")
            .text("manners.back-off.first", "50ms")
            .text("manners.back-off.max", "200ms")
            .set("manners.delay-factor", "0.0")
            .set("budget.queue.tries", 2)
            .text("budget.queue.retry-delay", "100ms")
            .text("robots.retry", "100ms")
            .text("limits.connect", "2s")
            .text("limits.idle", "2s")
            .text("limits.time", "4s");
        order
    }

    /// Sets a key to a value as TOML has it.
    pub(crate) fn set(&mut self, key: &str, value: impl Display) -> &mut Self {
        self.keys.insert(key.to_owned(), value.to_string());
        self
    }

    /// Sets a key to a text.
    pub(crate) fn text(&mut self, key: &str, value: &str) -> &mut Self {
        self.set(key, format!("{value:?}"))
    }

    /// Adds a seed.
    pub(crate) fn seed(&mut self, url: impl Into<String>) -> &mut Self {
        self.seeds.push(url.into());
        self
    }

    /// The order as a file has it.
    pub(crate) fn text_of(&self) -> String {
        let mut text = String::new();
        for (key, value) in &self.keys {
            text.push_str(&format!("{key} = {value}\n"));
        }
        text.push_str(&format!("[[seeds]]\nurls = {:?}\n", self.seeds));
        text
    }
}

/// One job in a root of its own.
pub(crate) struct Job {
    pub(crate) root: Root,
}

impl Job {
    /// Gives an order to the crawl in a new root.
    pub(crate) fn give(order: &Order) -> Self {
        Self::give_in(Root::new(), order)
    }

    /// Gives an order to the crawl in this root.
    pub(crate) fn give_in(root: Root, order: &Order) -> Self {
        root.settings(&["crawl"], "");
        let text = order.text_of();
        root.put_files("crawl", "order", &[("order.toml", text.as_bytes())]);
        Self { root }
    }

    /// Gives an order as a text, with files beside it, to the crawl in a new root.
    pub(crate) fn give_text(text: &str, files: &[(&str, &[u8])]) -> Self {
        let root = Root::new();
        root.settings(&["crawl"], "");
        let mut all = vec![("order.toml", text.as_bytes())];
        all.extend_from_slice(files);
        root.put_files("crawl", "order", &all);
        Self { root }
    }

    /// Crawls it in a new root to its end and returns what is there.
    pub(crate) fn crawl(order: &Order) -> Harvest {
        let job = Self::give(order);
        job.finish();
        Harvest::read(job)
    }

    pub(crate) fn start(&self) -> Program {
        self.root.start(CRAWL, &["--once"])
    }

    /// Runs it to its end.
    pub(crate) fn finish(&self) {
        let (code, said) = self.root.run(CRAWL, &["--once"]);
        assert_eq!(code, 0, "{said}");
        let status = self.status().expect("a job that ended has a status");
        assert_eq!(status.state, JobState::Finished, "{said}");
        assert_eq!(self.root.list("crawl", "held"), [""; 0], "{said}");
    }

    /// Starts and kills it so many times, each after a while that `dice` chooses; returns how often it was still at work.
    pub(crate) fn kill(&self, times: usize, dice: &mut Dice, least: u64, most: u64) -> usize {
        let mut killed = 0;
        for _ in 0..times {
            let mut program = self.start();
            thread::sleep(Duration::from_millis(dice.between(least, most)));
            program.signal(Signal::KILL);
            killed += usize::from(program.wait() == -9);
        }
        killed
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.root.path().join("jobs/4711-7")
    }

    pub(crate) fn status(&self) -> Option<JobStatus> {
        JobStatus::read(&self.dir()).unwrap()
    }
}

/// Where servers wait until it is opened.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub(crate) fn wait(&self) {
        let (is_open, opened) = &*self.0;
        let is_open = is_open.lock().unwrap();
        drop(opened.wait_while(is_open, |is_open| !*is_open).unwrap());
    }

    pub(crate) fn open(&self) {
        let (is_open, opened) = &*self.0;
        *is_open.lock().unwrap() = true;
        opened.notify_all();
    }
}

/// Chance that can be had again: a seed gives the same numbers.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        least + (self.0 >> 33) % (most - least)
    }
}

/// An address of loopback.
pub(crate) fn at(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, last)
}

/// A web on as many addresses, and a name server that puts every host of it on the first unless told otherwise.
pub(crate) fn web_on(addresses: u8) -> (Web, Names) {
    let addresses: Vec<Ipv4Addr> = (1..=addresses).map(at).collect();
    let names = Names::start(3600);
    names.set("*.test", Named::V4(vec![at(1)]));
    (Web::on(&addresses), names)
}
