//! Several crawl hosts and one that keeps the archive, with nothing in common but the servers of the engine: orders are spread
//! over the crawlers, their files travel to ingest, and a crawler that was killed goes on with its job.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ecluse_manifest::{FileRow, FileState, Manifest};
use ecluse_testkit::dns::{Named, Names};
use ecluse_testkit::root::settle_environment;
use ecluse_testkit::servers::EngineServers;
use ecluse_testkit::web::{After, Answer, Web, html};

const ECLUSE: &str = env!("CARGO_BIN_EXE_ecluse");
const PATIENCE: Duration = Duration::from_secs(300);
const SITES: usize = 6;
/// Each is linked from the one before.
const PAGES: usize = 4;
const ARCHIVE: [&str; 8] = [
    "plan", "ingest", "index", "transfer", "backup", "delete", "merge", "bigmerge",
];

const SETTINGS: &str = r#"
[site]
contact = "https://archive.example/"
[chain]
stages = ["plan", "crawl", "ingest", "index", "transfer", "backup", "delete", "merge", "bigmerge"]
[hosts]
alpha = ["plan", "ingest", "index", "transfer", "backup", "delete", "merge", "bigmerge"]
beta  = ["crawl@beta", "ingest@beta"]
gamma = ["crawl@gamma", "ingest@gamma"]
# Nobody's death is a parcel's fault here.
[defaults]
attempts = 1000
scan = "200ms"
settle = "100ms"
heartbeat = "500ms"
lease = "12s"
min-free = "0 B"
[stage.plan]
next = ["crawl@beta", "crawl@gamma"]
batch.wait = "1ms"
jobs.domains = 1
[stage.crawl]
workers = 1
[stage.merge]
batch.wait = "200ms"
[stage.bigmerge]
spare = "0 B"
batch.wait = "200ms"
[[archive.repository]]
name = "repository"
path = "repository"
leave-free = "0 B"
[[stage.backup.targets]]
name = "backup"
kind = "directory"
path = "backup"
leave-free = "0 B"
"#;

/// Hosts with a root each and the same settings.
struct Hosts {
    dir: tempfile::TempDir,
}

impl Hosts {
    fn new(engine: &str) -> Self {
        let hosts = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        for host in ["alpha", "beta", "gamma"] {
            hosts.write(host, "pipeline.toml", &format!("{SETTINGS}{engine}"));
        }
        hosts
    }

    fn path(&self, host: &str, path: &str) -> PathBuf {
        self.dir.path().join(host).join(path)
    }

    fn write(&self, host: &str, path: &str, text: &str) {
        let path = self.path(host, path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn command(&self, host: &str, words: &[&str]) -> Command {
        let mut command = Command::new(ECLUSE);
        settle_environment(&mut command);
        command.env("ECLUSE_HOST", host);
        command.arg("--root").arg(self.path(host, "")).args(words);
        command
    }

    fn ecluse(&self, host: &str, words: &[&str]) -> Output {
        self.command(host, words).output().unwrap()
    }

    fn must(&self, host: &str, words: &[&str]) -> String {
        let output = self.ecluse(host, words);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {said}{errors}");
        said
    }

    fn start(&self, host: &str, stages: &[&str]) -> Host {
        let path = self.path(host, "log");
        let log = fs::File::options().create(true).append(true).open(path);
        let mut command = self.command(host, &["run"]);
        command.args(stages);
        command.stdout(Stdio::null()).stderr(log.unwrap());
        Host(command.spawn().unwrap())
    }

    fn start_crawler(&self, host: &str) -> Host {
        let stages = [format!("crawl@{host}"), format!("ingest@{host}")];
        self.start(host, &stages.each_ref().map(String::as_str))
    }

    fn logs(&self) -> String {
        let logs = ["alpha", "beta", "gamma"].map(|host| {
            let log = fs::read_to_string(self.path(host, "log")).unwrap_or_default();
            let end = log.lines().rev().take(30).collect::<Vec<_>>();
            format!("\n== {host}\n{}", end.join("\n"))
        });
        logs.concat()
    }

    /// The jobs of a host, by their directories.
    fn jobs(&self, host: &str) -> BTreeSet<String> {
        let names = names_in(&self.path(host, "jobs")).into_iter();
        names.filter(|name| name.starts_with("trial.")).collect()
    }

    /// What the manifest knows of all files.
    fn files(&self) -> Vec<FileRow> {
        let manifest = self.path("alpha", "manifest.sqlite");
        let Ok(manifest) = Manifest::open_to_read(&manifest, &self.path("alpha", "")) else {
            return Vec::new();
        };
        manifest.files_after("", 1000).unwrap_or_default()
    }

    /// The harvested files of a host, by their names.
    fn harvested(&self, host: &str) -> BTreeMap<String, Vec<u8>> {
        let dir = self.path(host, "harvested");
        let names = names_in(&dir).into_iter();
        let whole = names.filter(|name| !name.starts_with('.') && !name.ends_with(".open"));
        whole
            .map(|name| (name.clone(), fs::read(dir.join(name)).unwrap()))
            .collect()
    }
}

fn names_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect()
}

/// The process of a host; killed when it is dropped.
struct Host(Child);

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for what several processes do one after the other: longer than that takes on a busy machine.
fn eventually<Value>(hosts: &Hosts, what: &str, mut is_so: impl FnMut() -> Option<Value>) -> Value {
    let began = Instant::now();
    loop {
        if let Some(value) = is_so() {
            return value;
        }
        let waited = began.elapsed();
        let logs = || hosts.logs();
        assert!(
            waited < PATIENCE,
            "waited {waited:?} in vain: {what}{}",
            logs()
        );
        thread::sleep(Duration::from_millis(50));
    }
}

/// Sites whose last page comes when the gate is open.
fn sites(web: &Web, names: &Names, gate: &Arc<AtomicBool>) {
    for site in 0..SITES {
        let gate = Arc::clone(gate);
        names.set(
            &format!("site{site}.fr"),
            Named::V4(vec![Ipv4Addr::LOCALHOST]),
        );
        web.host(&format!("site{site}.fr"), move |request, wire| {
            let number = match request.path() {
                "/" => Some(0),
                path => path.strip_prefix("/p").and_then(|n| n.parse().ok()),
            };
            let answer = match number {
                Some(last) if last == PAGES - 1 => {
                    while !gate.load(Ordering::SeqCst) {
                        thread::sleep(Duration::from_millis(10));
                    }
                    html(&format!("<p>the end of {site}</p>"))
                }
                // Large enough that its file is full.
                Some(0) => html(&format!(
                    "<p>{}</p><a href=/p1>next</a>",
                    format!("site {site} ").repeat(150_000)
                )),
                Some(number) if number < PAGES => html(&format!(
                    "<p>page {number} of {site}</p><a href=/p{}>next</a>",
                    number + 1
                )),
                _ => Answer::missing(),
            };
            wire.answer(&answer).map(|_| After::Close)
        });
    }
}

fn define(hosts: &Hosts, web: &Web, names: &Names) {
    hosts.write(
        "alpha",
        "harvests/templates/t.toml",
        &format!(
            "[network]\nallow-private = true\nresolvers = ['{}']\n[budget]\nwait = '1s'\n[budget.queue]\ntries = 3\n\
             error-penalty = 0\n[manners]\nmin-delay = '1ms'\nmax-delay = '1ms'\naddress-delay = '0s'\n[extract]\nsitemaps = false\n\
             [warc]\nsize = '1 MB'\ncompression = 'none'\n",
            names.address()
        ),
    );
    let from = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second() - 60).unwrap();
    let mut text = format!(
        "kind = 'selective'\nfrom = '{from}'\nuntil = '2200-01-01'\nevery = '3000d'\ntemplate = 'templates/t.toml'\n"
    );
    for site in 0..SITES {
        let url = web.url(&format!("site{site}.fr"), "/");
        text += &format!("[[domains]]\nurls = ['{url}']\n");
    }
    hosts.write("alpha", "harvests/trial.toml", &text);
}

#[test]
fn crawlers_share_nothing_and_one_that_was_killed_goes_on() {
    let servers = EngineServers::start(
        &ecluse_peers::server("nats-server"),
        &ecluse_peers::server("weed"),
    );
    let (web, names, gate) = (
        Web::start(),
        Names::start(60),
        Arc::new(AtomicBool::new(false)),
    );
    sites(&web, &names, &gate);
    let hosts = Hosts::new(&servers.settings("crawlers"));
    define(&hosts, &web, &names);

    let alpha = hosts.start("alpha", &ARCHIVE);
    let beta = hosts.start_crawler("beta");
    let gamma = hosts.start_crawler("gamma");
    // A file of beta's first job is in the manifest on alpha: what is in it is durable on beta. The job is not at its end.
    let first = eventually(&hosts, "a file of a job of beta that goes on", || {
        let job = hosts.jobs("beta").into_iter().next()?;
        let files = hosts.files();
        let mut names = files.iter().map(|file| file.name.as_str());
        let is_its = |name: &str| name.starts_with(&job);
        names.any(is_its).then_some(job)
    });
    let elsewhere = hosts.ecluse("alpha", &["job", "pause", &first]);
    let said = String::from_utf8_lossy(&elsewhere.stderr).into_owned();
    assert!(
        said.contains(&format!(
            "job {first} is in the hands of crawl@beta on beta"
        )),
        "{said}"
    );
    let told = hosts.must("alpha", &["jobs"]);
    assert!(
        told.contains("\ncrawl@beta: ") && told.contains(", on beta\n"),
        "{told}"
    );
    assert!(told.contains("on gamma\n"), "{told}");
    let told = hosts.must("beta", &["jobs"]);
    assert!(told.contains("running"), "{told}");

    drop(beta);
    gate.store(true, Ordering::SeqCst);
    let beta = hosts.start_crawler("beta");
    eventually(&hosts, "all files of all jobs to be in the index", || {
        let files = hosts.files();
        let is_done = |file: &FileRow| file.state >= FileState::Published;
        let known = files.iter().filter(|file| is_done(file));
        let known: BTreeSet<&str> = known.map(|file| file.name.as_str()).collect();
        let metadata = known.iter().filter(|name| name.contains("-metadata-"));
        if metadata.count() < SITES || known.len() < files.len() {
            return None;
        }
        let mut harvested = ["beta", "gamma"]
            .map(|host| hosts.harvested(host))
            .into_iter();
        let all_known = harvested.all(|files| files.keys().all(|name| known.contains(&**name)));
        all_known.then_some(())
    });
    let status = hosts.must("alpha", &["status"]);
    assert!(
        status.contains("crawl@beta") && status.contains("crawl@gamma"),
        "{status}"
    );
    assert!(status.contains("Nothing needs you"), "{status}");
    drop((alpha, beta, gamma));

    // Each job at one crawler, and both have some.
    let (of_beta, of_gamma) = (hosts.jobs("beta"), hosts.jobs("gamma"));
    assert!(of_beta.is_disjoint(&of_gamma), "{of_beta:?} {of_gamma:?}");
    assert_eq!(of_beta.len() + of_gamma.len(), SITES);
    assert!(of_beta.len() >= 2 && of_gamma.len() >= 2, "{of_beta:?}");

    // What was harvested there is what is archived here, every byte of it and nothing else.
    let mut harvested = hosts.harvested("beta");
    harvested.extend(hosts.harvested("gamma"));
    let archived = hosts.files();
    let archived: Vec<&str> = archived.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(archived, harvested.keys().collect::<Vec<_>>());
    for (name, bytes) in &harvested {
        assert!(
            fs::read(hosts.path("alpha", "repository").join(name)).unwrap() == *bytes,
            "{name}"
        );
    }
    // Every page once, and what was fetched before the kill was not asked for again.
    let index = fs::read_to_string(hosts.path("alpha", "index/current/index.cdxj")).unwrap();
    for site in 0..SITES {
        let host = format!("site{site}.fr");
        let pages = (0..PAGES).map(|page| match page {
            0 => "/".to_owned(),
            page => format!("/p{page}"),
        });
        for page in pages {
            let url = format!("\"url\": \"{}\"", web.url(&host, &page));
            let is_response =
                |line: &&str| line.contains(&url) && line.contains("\"status\": \"200\"");
            assert_eq!(
                index.lines().filter(is_response).count(),
                1,
                "{url}: {index}"
            );
        }
        let log = web.log_of(&[&host]);
        let begun = log.iter().filter(|seen| seen.target == "/").count();
        assert_eq!(begun, 1, "{host} was begun once");
    }
}
