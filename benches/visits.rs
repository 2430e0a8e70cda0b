//! What does it cost to choose visits among millions of URLs, and does memory stay the same whatever their number?
//!
//! `ecluse-plan --once` with a harvest whose `[refresh]` asks for 1 % of the URLs, in a process of its own: CPU-seconds, user and system together, and the
//! peak of its memory. One page in a hundred has a pattern of the day of its own, half of the others that of their site. `stage.plan.memory` is 16 MiB: with more, the visits of small runs are sorted in memory, and it seems to grow. Worrying: more than 64 MiB, or
//! memory that grows with the URLs.
//!
//! `cargo build --release -p ecluse-plan`, then `cargo bench -p ecluse-changes --bench visits -- [--dir DIR] [--urls N,N…] [--policies NAME,NAME…]`.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a bench may die, and makes and removes its own files"
)]

#[path = "page.rs"]
mod page;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ecluse_changes::{
    ArchiveTime, PageChanges, PagePattern, PatternOf, PatternSums, RecordWriter, SitePattern,
    site_of,
};
use ecluse_links::{RANKS_FILE, RankRecord, RankWriter};
use ecluse_refresh::{Dice, IntervalHistogram};
use page::Page;

/// Pages of a site.
const SITE: u64 = 1000;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let directory =
        option("--dir").map_or_else(|| std::env::temp_dir().join("ecluse-bench"), PathBuf::from);
    let list = |name: &str, default: &str| -> Vec<String> {
        let words = option(name).unwrap_or_else(|| default.to_owned());
        words.split(',').map(str::to_owned).collect()
    };
    let sizes = list("--urls", "1000000,5000000,20000000");
    let policies = list("--policies", "obsolescence,mixed,belief,lagrange");
    let mut page = Page::begin("visits");
    page.say("| URLs, of which 9 in 10 are known pages | policy | visits | CPU s | s | peak MiB | at most |\n|--:|---|--:|--:|--:|--:|--:|");
    for urls in sizes {
        let urls: u64 = urls.parse().unwrap();
        let root = directory.join("visits-root");
        let _ = fs::remove_dir_all(&root);
        fill(&root, urls);
        for policy in &policies {
            let (visits, cost) = run(&root, urls / 100, policy);
            let RunCost { cpu, wall, peak } = cost;
            page.say(format!(
                "| {urls} | {policy} | {visits} | {cpu:.1} | {wall:.0} | {peak} | 64 |"
            ));
        }
        fs::remove_dir_all(&root).unwrap();
    }
    page.end(option("--urls").or(option("--policies")).is_none());
}

/// What a run cost: CPU-seconds, seconds by the clock, and the peak of its memory in MiB.
struct RunCost {
    cpu: f64,
    wall: f64,
    peak: u64,
}

/// Runs plan by a policy; returns how many visits it gave out, and what that cost.
fn run(root: &Path, budget: u64, policy: &str) -> (u64, RunCost) {
    for done in ["runs", "work"] {
        let _ = fs::remove_dir_all(root.join(done));
    }
    let definition = format!(
        "kind = 'selective'\nfrom = '2026-11-20T03:00:00Z'\nuntil = '2027-11-20'\nevery = '1d'\n[refresh]\npolicy = '{policy}'\nbudget = {budget}\n\
         [[domains]]\nnames = ['pages.fr']\n"
    );
    fs::create_dir_all(root.join("harvests")).unwrap();
    fs::write(root.join("harvests/visits.toml"), definition).unwrap();
    let itself = std::env::current_exe().unwrap();
    let program = itself.ancestors().nth(2).unwrap().join("ecluse-plan");
    assert!(program.exists(), "cargo build --release -p ecluse-plan");
    let command = format!(
        "ECLUSE_CLOCK_FILE='{0}/clock' '{1}' --root '{0}' --once --log error",
        root.display(),
        program.display()
    );
    let cost = measured(&command);
    let record = fs::read_to_string(root.join("runs/visits/20261120030000.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    let visits = record["objects"].as_u64().unwrap();
    assert_eq!(visits, budget, "{record}");
    (visits, cost)
}

fn fill(root: &Path, urls: u64) {
    let (links, changes) = (
        root.join("links/generations/1"),
        root.join("changes/generations/1"),
    );
    for (name, directory) in [("links", &links), ("changes", &changes)] {
        fs::create_dir_all(directory).unwrap();
        std::os::unix::fs::symlink("generations/1", root.join(name).join("current")).unwrap();
    }
    fs::write(
        root.join("pipeline.toml"),
        "[site]\ncontact = 'https://archive.example/'\n[chain]\nstages = ['plan', 'orders']\n[stage.plan]\nnext = ['orders']\n\
         memory = '16 MiB'\nbatch = { parcels = 1000, wait = '50ms' }\n",
    )
    .unwrap();
    fs::write(root.join("clock"), "2026-11-20T03:00:10Z\n").unwrap();
    let mut dice = Dice::new(1);
    let ranks = fs::File::create(links.join(RANKS_FILE)).unwrap();
    let mut ranks = RankWriter::new(std::io::BufWriter::new(ranks)).unwrap();
    let mut pages = RecordWriter::<PageChanges>::create(&changes).unwrap();
    let mut patterns = RecordWriter::<PagePattern>::create(&changes).unwrap();
    let mut sites = RecordWriter::<SitePattern>::create(&changes).unwrap();
    let sums = mornings();
    let now = ArchiveTime::parse("20261120030000").unwrap().seconds();
    for number in 0..urls {
        let (site, path) = (number / SITE, number % SITE);
        let surt = format!("fr,pages,s{site:05})/a/page-{path:04}.html");
        let url = format!("http://s{site:05}.pages.fr/a/page-{path:04}.html");
        let is_known = path % 10 != 9;
        let age = (dice.unit() * 200.0 * 86_400.0) as i64 + 3600;
        let last = ArchiveTime::from_seconds(now - age).unwrap();
        let digits = last.to_string();
        let record = RankRecord {
            surt: &surt,
            url: &url,
            rank: (dice.unit().max(1e-9).powf(-1.0 / 1.6) / (2.67 * urls as f64)) as f32,
            interest: 0.0,
            relevance: dice.unit() as f32,
            links_in: 3,
            links_out: 10,
            fetched: is_known
                .then(|| ecluse_cdx::CaptureTime::from_digits(digits.as_bytes()).unwrap()),
        };
        ranks.write(&record).unwrap();
        // One page in a hundred has a pattern of its own; of every second site the others have the site's.
        let pattern = match (path % 100, site % 2) {
            (0, _) => Some(PatternOf::Page),
            (_, 0) => Some(PatternOf::Site),
            (_, _) => None,
        };
        if path == 0 {
            let record = SitePattern {
                site: site_of(&surt).to_owned(),
                pages: SITE,
                changes: 5 * SITE,
                rate: 0.1,
                sums: sums.clone(),
            };
            sites.write(&record).unwrap();
        }
        if pattern == Some(PatternOf::Page) {
            let (surt, sums) = (surt.clone(), sums.clone());
            patterns.write(&PagePattern { surt, sums }).unwrap();
        }
        if is_known {
            pages
                .write(&PageChanges {
                    surt,
                    url,
                    first: ArchiveTime::from_seconds(now - 400 * 86_400).unwrap(),
                    last,
                    looks: 20,
                    changes: 5,
                    last_change: Some(last),
                    quiet_days: 100.0,
                    declared_days: 0.0,
                    declared_changes: 0,
                    intervals: IntervalHistogram::default(),
                    rate: (dice.normal() * 1.8).exp() / 30.0,
                    change_weight: Some((dice.unit() * 1000.0).round() / 1000.0),
                    text_weight: Some(0.4),
                    status: Some(200),
                    etag: Some(format!("\"{number:x}\"")),
                    last_modified: None,
                    signal: None,
                    simhash: Some(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
                    pattern,
                    words: None,
                })
                .unwrap();
        }
    }
    ranks.finish().unwrap();
    pages.finish().unwrap();
    patterns.finish().unwrap();
    sites.finish().unwrap();
}

/// Changes between nine and ten on weekdays, mostly.
fn mornings() -> PatternSums {
    let mut sums = PatternSums::new(24);
    for day in 9..=22 {
        for hour in 0..23 {
            let at = |hour: u32| {
                let digits = format!("202611{day:02}{hour:02}0000");
                ArchiveTime::parse(&digits).unwrap()
            };
            let is_change = hour == 9 || (day + hour) % 11 == 0;
            sums.see(at(hour), at(hour + 1), is_change.then_some(0.3));
        }
    }
    sums
}

/// Runs a command; the CPU-seconds of all its processes, and the most memory one of them had.
fn measured(command: &str) -> RunCost {
    let output = Command::new("/usr/bin/time")
        .args(["-f", "%U %S %e %M", "sh", "-c", command])
        .env_remove("ECLUSE_CONFIG")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command} failed: {said}");
    let last = said.lines().last().unwrap();
    let figures: Vec<f64> = last.split(' ').map(|word| word.parse().unwrap()).collect();
    RunCost {
        cpu: figures[0] + figures[1],
        wall: figures[2],
        peak: figures[3] as u64 / 1024,
    }
}
