//! What does a crawl cost, beside the programs that do it today?
//!
//! `cargo bench --bench crawl [-- [--dir DIR] [--hosts N] [--rounds N] [--no-memory] [--only NAME] [--build PROGRAM]...]`
//!
//! A real nginx serves N hosts (200 by default) of 20 pages, 7 resources and a robots.txt each, 157 MB in all, in a network
//! of its own: it needs root, nginx, wget, and `cargo xtask peers` for the spider crate. Each program crawls the same URLs
//! without delay, by turns; CPU-seconds of user and system per 1,000 URLs, the best of the rounds. wget is given the list
//! of URLs, and so extracts nothing. Worrying: more than 0.30 plain or 0.70 with gzip, more than 0.2 or 0.4 of wget; more
//! than 256 MiB with 1,000 active queues and a million known URLs. With `--build`, once or more, nothing but these
//! `ecluse-crawl` programs is measured, by turns: two builds side by side on a machine that has other things to do.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a bench may die, and makes and removes its own files"
)]

#[path = "page.rs"]
mod page;
#[path = "crawl/web.rs"]
mod web;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ecluse_testkit::root::Root;
use ecluse_warc::{ReaderLimits, RecordKind, WarcReader};
use page::Page;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn main() {
    let options = Options::parse();
    if !web::inside(&options.dir) {
        return;
    }
    let (queues, links) = (1000, 1000);
    let _names = web::name(options.hosts.max(queues));
    let urls: Vec<String> = (0..options.hosts)
        .flat_map(|number| web::urls(&web::host(number)))
        .collect();
    let mut page = Page::begin("crawl");
    let whole = {
        let root = web::make(&options.dir, options.hosts);
        let _served = web::serve(&options.dir, &root);
        if !options.builds.is_empty() {
            return builds(&options, &urls);
        }
        speed(&mut page, &options, &urls)
    };
    if options.memory {
        let root = web::make_wide(&options.dir, queues, links);
        let _served = web::serve(&options.dir, &root);
        memory(&mut page, &options, queues, links);
    }
    page.end(whole && options.memory);
}

struct Options {
    dir: PathBuf,
    hosts: usize,
    rounds: usize,
    memory: bool,
    only: Option<String>,
    builds: Vec<PathBuf>,
}

impl Options {
    fn parse() -> Self {
        let mut options = Self {
            dir: Path::new(ROOT).join(".bench/crawl"),
            hosts: 200,
            rounds: 3,
            memory: true,
            only: None,
            builds: Vec::new(),
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--dir" => options.dir = words.next().unwrap().into(),
                "--hosts" => options.hosts = words.next().unwrap().parse().unwrap(),
                "--rounds" => options.rounds = words.next().unwrap().parse().unwrap(),
                "--only" => options.only = words.next(),
                "--build" => options.builds.push(words.next().unwrap().into()),
                "--no-memory" => options.memory = false,
                "--bench" => {}
                other => panic!("unknown option {other}"),
            }
        }
        options
    }
}

/// What a run cost.
#[derive(Clone, Copy)]
struct Cost {
    cpu: Duration,
    wall: Duration,
    /// The most memory it had, in KiB.
    peak: u64,
    /// URLs that are in its files with status 200.
    urls: usize,
}

/// A program of the table.
struct Runner {
    name: &'static str,
    bar: &'static str,
    run: fn(&Options, &[String], &Path) -> Cost,
    best: Option<Cost>,
}

/// Sets the programs side by side; returns whether all of them were there.
fn speed(page: &mut Page, options: &Options, urls: &[String]) -> bool {
    let mut runners: Vec<Runner> = RUNNERS
        .iter()
        .filter(|(name, ..)| options.only.as_ref().is_none_or(|only| name.contains(only)))
        .map(|&(name, bar, run)| Runner {
            name,
            bar,
            run,
            best: None,
        })
        .collect();
    if !peer().exists() {
        println!("spider is left out: run `cargo xtask peers`");
        runners.retain(|runner| !runner.name.contains("spider"));
    }
    for round in 0..options.rounds {
        for runner in &mut runners {
            let dir = options
                .dir
                .join(format!("run-{}-{round}", std::process::id()));
            fs::create_dir_all(&dir).unwrap();
            let cost = (runner.run)(options, urls, &dir);
            fs::remove_dir_all(&dir).unwrap();
            let best = runner.best.get_or_insert(cost);
            best.cpu = best.cpu.min(cost.cpu);
            best.wall = best.wall.min(cost.wall);
            best.peak = best.peak.max(cost.peak);
            best.urls = best.urls.min(cost.urls);
        }
    }
    let per_thousand = |cost: Cost| cost.cpu.as_secs_f64() * 1000.0 / cost.urls as f64;
    let wget = runners.iter().find(|runner| runner.name == WGET);
    let wget = wget.and_then(|runner| runner.best).map(per_thousand);
    page.say(format!(
        "{} URLs; best of {}, by turns\n",
        urls.len(),
        options.rounds
    ));
    page.say(
        "| program | URLs | CPU-s per 1,000 | beside wget | at most | URLs a second | peak MiB |",
    );
    page.say("|---|--:|--:|--:|--:|--:|--:|");
    for runner in &runners {
        let cost = runner.best.unwrap();
        let beside = wget.map_or("–".to_owned(), |wget| {
            format!("{:.2} ×", per_thousand(cost) / wget)
        });
        page.say(format!(
            "| {} | {} | {:.3} | {beside} | {} | {:.0} | {:.0} |",
            runner.name,
            cost.urls,
            per_thousand(cost),
            runner.bar,
            cost.urls as f64 / cost.wall.as_secs_f64(),
            cost.peak as f64 / 1024.0
        ));
    }
    runners.len() == RUNNERS.len()
}

/// Sets builds of `ecluse-crawl` side by side: every round of each, the best first.
fn builds(options: &Options, urls: &[String]) {
    let packings = [("plain", "warc.compression = \"none\""), ("gzip", "")];
    let mut costs = vec![[Vec::new(), Vec::new()]; options.builds.len()];
    for round in 0..options.rounds {
        for (number, (_, more)) in packings.iter().enumerate() {
            for (program, costs) in options.builds.iter().zip(&mut costs) {
                let dir = format!("build-{}-{round}", std::process::id());
                let dir = options.dir.join(dir);
                fs::create_dir_all(&dir).unwrap();
                let root = give(&dir, &order(options.hosts, more));
                let mut command = root.program(program);
                let cost = measure(command.args(["--log", "error", "--once"]));
                assert_eq!(captured(&dir.join("harvested")), urls.len());
                fs::remove_dir_all(&dir).unwrap();
                costs[number].push(cost.cpu.as_secs_f64() * 1000.0 / urls.len() as f64);
            }
        }
    }
    println!("| build | packing | CPU-s per 1,000 |\n|---|---|---|");
    for (program, costs) in options.builds.iter().zip(&mut costs) {
        for ((packing, _), costs) in packings.iter().zip(costs) {
            costs.sort_by(f64::total_cmp);
            let costs: Vec<String> = costs.iter().map(|cost| format!("{cost:.3}")).collect();
            println!(
                "| {} | {packing} | {} |",
                program.display(),
                costs.join(", ")
            );
        }
    }
}

const WGET: &str = "wget 1.21 `--warc-file`, a list, gzip";

type Row = (
    &'static str,
    &'static str,
    fn(&Options, &[String], &Path) -> Cost,
);

const RUNNERS: [Row; 5] = [
    (
        "`ecluse-crawl`, plain",
        "0.30; 0.2 ×",
        |options, urls, dir| ecluse(options, urls, dir, "warc.compression = \"none\""),
    ),
    (
        "`ecluse-crawl`, gzip",
        "0.70; 0.4 ×",
        |options, urls, dir| ecluse(options, urls, dir, ""),
    ),
    (
        "wget 1.21 `--warc-file`, a list, plain",
        "",
        |_, urls, dir| wget(urls, dir, &["--no-warc-compression"]),
    ),
    (WGET, "", |_, urls, dir| wget(urls, dir, &[])),
    ("`spider` 2.53, 16 sites, plain", "", |options, _, dir| {
        spider(options, dir)
    }),
];

/// The order of a crawl without delay; `more` are further keys.
fn order(seeds: usize, more: &str) -> String {
    let seeds: Vec<String> = (0..seeds)
        .map(|number| format!("http://{}/", web::host(number)))
        .collect();
    format!(
        "job = \"1\"\nharvest = \"1\"\nagent.contact = \"https://archive.example/crawler\"\n\
         network.allow-private = true\nnetwork.resolvers = [\"{}\"]\n\
         manners.group-by = \"queue\"\nmanners.delay-factor = 0.0\nmanners.min-delay = \"0s\"\nmanners.max-delay = \"0s\"\n\
         {more}\n[[seeds]]\nurls = {seeds:?}\n",
        web::RESOLVER
    )
}

fn ecluse(options: &Options, urls: &[String], dir: &Path, more: &str) -> Cost {
    let root = give(dir, &order(options.hosts, more));
    let mut cost = measure(&mut crawl(&root));
    cost.urls = captured(&dir.join("harvested"));
    assert_eq!(cost.urls, urls.len(), "captures of {}", dir.display());
    cost
}

fn give(dir: &Path, order: &str) -> Root {
    let root = Root::at(dir);
    root.settings(&["crawl"], "");
    root.put_files("crawl", "order", &[("order.toml", order.as_bytes())]);
    root
}

fn crawl(root: &Root) -> Command {
    let mut command = root.program(env!("CARGO_BIN_EXE_ecluse"));
    command.args(["--log", "error", "run", "--once", "crawl"]);
    command
}

fn wget(urls: &[String], dir: &Path, more: &[&str]) -> Cost {
    let list = dir.join("urls");
    fs::write(&list, urls.join("\n")).unwrap();
    let mut command = Command::new("wget");
    command
        .args(["-q", "-O", "/dev/null", "--no-warc-keep-log", "-i"])
        .arg(&list)
        .arg("--warc-file")
        .arg(dir.join("wget"))
        .args(more);
    let mut cost = measure(&mut command);
    cost.urls = captured(dir);
    assert_eq!(cost.urls, urls.len(), "captures of {}", dir.display());
    cost
}

fn peer() -> PathBuf {
    Path::new(ROOT).join("target/peers/release/peer-spider")
}

fn spider(options: &Options, dir: &Path) -> Cost {
    let mut command = Command::new(peer());
    command.arg(dir);
    command.args((0..options.hosts).map(|number| format!("http://{}/", web::host(number))));
    let mut cost = measure(&mut command);
    cost.urls = captured(dir);
    assert!(cost.urls > options.hosts, "{} URLs", cost.urls);
    cost
}

/// Counts the responses with status 200 in the files of a directory, robots.txt apart.
fn captured(dir: &Path) -> usize {
    let mut urls = std::collections::BTreeSet::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if !path.to_string_lossy().contains(".warc") {
            continue;
        }
        let mut reader = WarcReader::new(fs::File::open(&path).unwrap(), ReaderLimits::default());
        while let Some(record) = reader.next().unwrap() {
            let is_page = matches!(record.kind(), RecordKind::Response | RecordKind::Revisit);
            let is_good = record
                .http()
                .and_then(|head| head.status().map(|status| status == "200"));
            let uri = record.target_uri().unwrap_or_default();
            if is_page && is_good == Some(true) && !uri.ends_with("/robots.txt") {
                urls.insert(uri.into_owned());
            }
        }
    }
    urls.len()
}

/// Runs a program to its end; its CPU time and the most memory it had.
fn measure(command: &mut Command) -> Cost {
    let wall = Instant::now();
    let before = childrens_cpu();
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let status_file = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    let status = loop {
        let text = fs::read_to_string(&status_file).unwrap_or_default();
        let now = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let now = now.and_then(|line| line.split_whitespace().next()?.parse().ok());
        peak = peak.max(now.unwrap_or(0));
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(status.success(), "{command:?} ended with {status}");
    Cost {
        cpu: childrens_cpu() - before,
        wall: wall.elapsed(),
        peak,
        urls: 0,
    }
}

/// The CPU time of children that have ended, in the kernel's ticks of 10 ms.
fn childrens_cpu() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let ticks: u64 = fields[13].parse::<u64>().unwrap() + fields[14].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

/// The most memory of a crawl with many queues that knows many URLs.
fn memory(page: &mut Page, options: &Options, hosts: usize, links: usize) {
    let dir = options.dir.join(format!("memory-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let more = format!("budget.urls = {}\nrobots.policy = \"ignore\"", 3 * hosts);
    let root = give(&dir, &order(hosts, &more));
    let cost = measure(&mut crawl(&root));
    let status = fs::read(dir.join("jobs/1-1/status.json")).unwrap();
    let status: serde_json::Value = serde_json::from_slice(&status).unwrap();
    page.say(format!(
        "\n{} queues, {} URLs known ({} asked for), {} done: {:.0} MiB at most (bar: 256), {:.0} CPU-s",
        status["queues"],
        status["known"],
        hosts * (links + 1),
        status["done"],
        cost.peak as f64 / 1024.0,
        cost.cpu.as_secs_f64()
    ));
    fs::remove_dir_all(&dir).unwrap();
}
