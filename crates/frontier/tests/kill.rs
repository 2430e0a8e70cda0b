//! A little crawler is killed fifty times, wherever it is, and started again: at the end every page is in its
//! archive once, and the frontier says so.
//!
//! The crawler appends a line to its archive for each page and commits the archive's length with the
//! frontier, as the crawl does with its WARC files. It prints a dot for each page; the parent counts dots to
//! choose the moment, so that nobody sleeps.

#![expect(clippy::unwrap_used, reason = "a test may die")]

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use ecluse_frontier::{
    Candidate, Disposition, Frontier, Item, Manners, Memory, Millis, Next, Outcome, Settings,
};

const KILLS: u32 = 50;
const PAGES: u64 = 20_000;
const HOSTS: u64 = 97;
const CHILD: &str = "ECLUSE_FRONTIER_KILL_DIR";

fn main() {
    if let Some(dir) = std::env::var_os(CHILD) {
        crawl(Path::new(&dir));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut dice = 0x2545_f491_4f6c_dd1d_u64;
    let mut kills = 0;
    while kills < KILLS {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        assert!(
            kill_after(dir.path(), dice % 700),
            "the crawl was over after {kills} kills"
        );
        kills += 1;
    }
    let status = child(dir.path()).stdout(Stdio::null()).status().unwrap();
    assert!(status.success(), "{status}");
    judge(dir.path());
    println!("{kills} kills, {PAGES} pages, none lost, none twice");
}

fn child(dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(CHILD, dir);
    command
}

/// Starts the crawler and kills it after so many pages; false if it ended by itself.
fn kill_after(dir: &Path, pages: u64) -> bool {
    let mut child = child(dir).stdout(Stdio::piped()).spawn().unwrap();
    let dots = BufReader::new(child.stdout.take().unwrap()).bytes();
    let read = dots.take(pages as usize + 1).count();
    child.kill().unwrap();
    child.wait().unwrap();
    read as u64 == pages + 1
}

fn judge(dir: &Path) {
    let archive = fs::read_to_string(dir.join("archive")).unwrap();
    let mut pages: BTreeMap<u64, u32> = BTreeMap::new();
    for line in archive.lines() {
        *pages.entry(page(line)).or_default() += 1;
    }
    let twice: Vec<_> = pages.iter().filter(|(_, count)| **count != 1).collect();
    assert!(twice.is_empty(), "archived more than once: {twice:?}");
    let lost: Vec<_> = (0..PAGES)
        .filter(|page| !pages.contains_key(page))
        .collect();
    assert!(lost.is_empty(), "lost: {lost:?}");
    let mut frontier = Frontier::open(&dir.join("frontier"), settings()).unwrap();
    let counts = frontier.counts();
    assert_eq!(
        (counts.known, counts.done, counts.queued),
        (PAGES, PAGES, 0)
    );
    assert_eq!(
        frontier.next(Millis(u64::MAX / 2), |_| None).unwrap(),
        Next::Empty
    );
    assert_eq!(
        frontier.checkpoint(),
        Some(&(archive.len() as u64).to_le_bytes()[..])
    );
}

fn settings() -> Settings {
    Settings {
        manners: Manners {
            min_delay: Duration::ZERO,
            max_delay: Duration::ZERO,
            connections: 2,
            ..Manners::default()
        },
        active_queues: 20,
        session_balance: 7,
        group_queues: 2,
        // Small, so that new runs, merges and new logs happen all the time.
        memory: Memory {
            changes: 64 << 10,
            filters: 64 << 10,
            heads: 20 << 10,
            records: 64,
            blocks: 16,
        },
        ..Settings::default()
    }
}

fn crawl(dir: &Path) {
    let mut frontier = Frontier::open(&dir.join("frontier"), settings()).unwrap();
    let mut archive = OpenOptions::new()
        .create(true)
        .read(true)
        .append(true)
        .open(dir.join("archive"))
        .unwrap();
    let checkpoint = frontier
        .checkpoint()
        .map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
    let mut length = checkpoint.unwrap_or(0);
    archive.set_len(length).unwrap();
    add(&mut frontier, 0);
    let mut out = std::io::stdout();
    let mut flying: Vec<Item> = Vec::new();
    let mut now = 1;
    for round in 0_u64.. {
        now += 1;
        match frontier.next(Millis(now), |_| None).unwrap() {
            Next::Fetch(item) => flying.push(item),
            Next::Wait(until) => now = now.max(until.0),
            Next::Missing(_) | Next::Idle => {}
            Next::Empty => break,
        }
        if flying.len() < 9 && round % 3 != 0 {
            continue;
        }
        let Some(item) = flying.pop() else { continue };
        // A third of the hosts turn out to share a server.
        let host = page(&item.url) % HOSTS;
        if host.is_multiple_of(3) && !item.group.starts_with("ip:") {
            let address = format!("ip:{}", host % 4);
            frontier.set_group(&item.queue, &address).unwrap();
            let back = Outcome::put_back(Duration::from_millis(host % 2 * 20));
            frontier.finish(Millis(now), item.id, &back).unwrap();
            continue;
        }
        let mut outcome = Outcome::done(200, 10, Duration::ZERO);
        // Every seventh page needs a second try.
        if item.attempts == 0 && page(&item.url) % 7 == 3 {
            outcome.disposition = Disposition::Retry {
                after: Duration::from_millis(20),
            };
            frontier.finish(Millis(now), item.id, &outcome).unwrap();
            continue;
        }
        let line = format!("{}\n", item.url);
        archive.write_all(line.as_bytes()).unwrap();
        length += line.len() as u64;
        let number = page(&item.url);
        for link in [2 * number + 1, 2 * number + 2, number / 2, number / 3] {
            add(&mut frontier, link);
        }
        frontier.finish(Millis(now), item.id, &outcome).unwrap();
        if number.is_multiple_of(37) {
            frontier.commit(&length.to_le_bytes()).unwrap();
        }
        // Nobody reads on once the parent has seen enough.
        if out.write_all(b".").and_then(|()| out.flush()).is_err() {
            std::process::abort();
        }
    }
    frontier.commit(&length.to_le_bytes()).unwrap();
}

fn add(frontier: &mut Frontier, page: u64) {
    if page < PAGES {
        let queue = format!("host{}", page % HOSTS);
        let group = format!("group{}", page % HOSTS / 5);
        let url = format!("http://{queue}/{page}");
        let candidate = Candidate {
            group: &group,
            ..Candidate::new(&url, &queue)
        };
        frontier.add(&candidate).unwrap();
    }
}

fn page(url: &str) -> u64 {
    url.rsplit_once('/').unwrap().1.parse().unwrap()
}
