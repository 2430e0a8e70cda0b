//! `ecluse harvest` with the real program, and what an operator sees of its job.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ecluse_testkit::root::{Program, settle_environment, until_so};
use rustix::process::Signal;
use serde_json::Value;

const ECLUSE: &str = env!("CARGO_BIN_EXE_ecluse");
const QUICK: &str = r#"
[site]
contact = "keeper@lock.example"
[defaults]
settle = "100ms"
min-free = "0 B"
[stage.bigmerge]
spare = "0 B"
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

/// A site of so many pages, each with links to all, and how often each was asked for.
struct Site {
    port: u16,
    asked: Arc<Mutex<HashMap<String, u32>>>,
}

impl Site {
    fn of(pages: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let site = Self {
            port: listener.local_addr().unwrap().port(),
            asked: Arc::default(),
        };
        let asked = Arc::clone(&site.asked);
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let asked = Arc::clone(&asked);
                std::thread::spawn(move || serve(&stream, pages, &asked));
            }
        });
        site
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    fn asked(&self, path: &str) -> u32 {
        self.asked.lock().unwrap().get(path).copied().unwrap_or(0)
    }
}

fn serve(mut stream: &TcpStream, pages: usize, asked: &Mutex<HashMap<String, u32>>) {
    let mut lines = BufReader::new(stream).lines();
    while let Some(Ok(first)) = lines.next() {
        let path = first.split(' ').nth(1).unwrap_or("/").to_owned();
        while lines
            .next()
            .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
        {}
        *asked.lock().unwrap().entry(path.clone()).or_default() += 1;
        let number = path.strip_prefix("/page/").and_then(|n| n.parse().ok());
        let (status, kind, body) = if path == "/" || number.is_some_and(|n: usize| n < pages) {
            let links: String = (0..pages)
                .map(|n| format!("<a href=\"/page/{n}\">{n}</a>\n"))
                .collect();
            ("200 OK", "text/html", format!("<h1>{path}</h1>{links}"))
        } else {
            ("404 Not Found", "text/plain", "no".to_owned())
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        if stream.write_all((head + &body).as_bytes()).is_err() {
            return;
        }
    }
}

struct Archive {
    dir: tempfile::TempDir,
}

impl Archive {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("pipeline.toml"), QUICK).unwrap();
        Self { dir }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(ECLUSE);
        settle_environment(&mut command);
        command.arg("--root").arg(self.dir.path()).args(words);
        command
    }

    fn ecluse(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    fn json(&self, words: &[&str]) -> Value {
        let output = self.command(words).arg("--json").output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| {
            panic!("{}", String::from_utf8_lossy(&output.stderr));
        })
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The time that all threads of a process were at work.
fn worked(pid: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let nanos = tasks.map(|task| {
        // A thread may end meanwhile.
        let text = fs::read_to_string(task.unwrap().path().join("schedstat"));
        let text = text.unwrap_or_default();
        text.split(' ')
            .next()
            .and_then(|nanos| nanos.parse().ok())
            .unwrap_or(0)
    });
    Duration::from_nanos(nanos.sum())
}

#[test]
fn a_harvest_that_waits_for_a_site_costs_next_to_nothing() {
    let site = Site::of(5);
    let archive = Archive::new();
    let command = archive.command(&[
        "harvest",
        &site.url("/"),
        "--allow-private",
        "--delay",
        "1h",
    ]);
    let mut program = Program::start(command);
    until_so("the site was asked", || site.asked("/robots.txt") > 0);
    // A while in which it may settle, and then one in which it only waits: of any five seconds a two-hundredth.
    until_so("a harvest that waits takes under 0.5 % of a core", || {
        let before = worked(program.pid());
        std::thread::sleep(Duration::from_secs(5));
        program.must_live();
        worked(program.pid()) - before < Duration::from_millis(25)
    });
    assert_eq!(site.asked("/"), 0, "it waits for the delay");
    program.stop();
}

#[test]
fn a_line_that_is_no_seed_is_told() {
    let site = Site::of(1);
    let archive = Archive::new();
    let seeds = archive.path("list.txt");
    fs::write(&seeds, format!("{}\nexmaple .org\n", site.url("/"))).unwrap();
    let seeds = seeds.to_str().unwrap();
    let words = ["harvest", "--seeds", seeds, "--allow-private"];
    let output = archive.ecluse(&[&words[..], &["--delay", "10ms"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("no seed: line 2: "), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
}

#[test]
fn too_few_open_files_are_told_before_anything_begins() {
    let archive = Archive::new();
    let limited = |words: &[&str]| {
        let mut command = Command::new("sh");
        settle_environment(&mut command);
        let script = "ulimit -n 64; exec \"$0\" \"$@\"";
        command.args(["-c", script, ECLUSE, "--root"]);
        let output = command.arg(archive.dir.path()).args(words).output();
        output.unwrap()
    };
    let output = limited(&["harvest", "http://127.0.0.1:9/", "--allow-private"]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(78), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains("64 files may be open at once"), "{text}");
    assert!(!archive.path("work").exists());
    archive.ecluse(&["init"]);
    let output = limited(&["check"]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("and 256 are needed"), "{text}");
    assert!(
        text.contains("'stage.merge.open-files': 64 files"),
        "{text}"
    );
}

#[test]
fn two_harvests_of_one_moment_do_not_refuse_each_other() {
    let site = Site::of(2);
    let archive = Archive::new();
    archive.ecluse(&["init"]);
    let url = site.url("/");
    let words = ["harvest", &url, "--allow-private", "--delay", "10ms"];
    let start = || {
        let mut command = archive.command(&words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    for child in [start(), start()] {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    }
    let captures = archive.ecluse(&["lookup", &url]);
    assert_eq!(captures.status.code(), Some(0), "{}", said(&captures));
}

#[test]
fn a_harvest_tells_only_of_what_is_stored() {
    let site = Site::of(1);
    let archive = Archive::new();
    let settings = QUICK.replacen("leave-free = \"0 B\"", "leave-free = \"900 TB\"", 1);
    fs::write(archive.path("pipeline.toml"), settings).unwrap();
    let words = ["harvest", &site.url("/"), "--allow-private", "--delay"];
    let output = archive.ecluse(&[&words[..], &["10ms"]].concat());
    assert_eq!(output.status.code(), Some(75), "{}", said(&output));
    let text = said(&output);
    assert!(text.contains("  stored    0 of 2, 0 B\n"), "{text}");
    assert!(
        text.contains("  deferred  2 for later: transfer: "),
        "{text}"
    );
}

#[test]
fn a_site_is_harvested_stored_and_found() {
    let site = Site::of(5);
    let archive = Archive::new();
    let url = site.url("/");
    let words = ["harvest", &url, "--allow-private", "--delay", "10ms"];
    let output = archive.ecluse(&words);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    for part in [
        "captures: 7 new",
        "repository/",
        "backup/",
        "index.cdxj",
        "lookup http://",
    ] {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
    assert!(!text.contains('\x1b'), "no colours in a pipe");
    assert!(output.stderr.is_empty(), "{}", said(&output));
    // It ends with a package that is sound.
    let packages: Vec<_> = fs::read_dir(archive.path("packages")).unwrap().collect();
    assert_eq!(packages.len(), 1, "{packages:?}");
    let package = packages[0].as_ref().unwrap().path();
    let valid = archive.ecluse(&["validate", package.to_str().unwrap()]);
    assert_eq!(valid.status.code(), Some(0), "{}", said(&valid));

    let found = archive.ecluse(&["lookup", &site.url("/page/3")]);
    assert_eq!(found.status.code(), Some(0), "{}", said(&found));
    // The same as the browser had it, in a pipe and in a file.
    let page = site.url("/page/3");
    let shown = archive.ecluse(&["show", &page]);
    assert_eq!(shown.status.code(), Some(0), "{}", said(&shown));
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.starts_with("HTTP/1.1 200 OK\r\n"), "{shown}");
    assert!(shown.contains("\r\n\r\n<h1>/page/3</h1>"), "{shown}");
    let file = archive.path("page.html");
    let words = ["show", &page, "-o", file.to_str().unwrap()];
    assert_eq!(archive.ecluse(&words).status.code(), Some(0));
    let saved = fs::read_to_string(&file).unwrap();
    assert!(saved.starts_with("<h1>/page/3</h1>"), "{saved}");
    assert_eq!(archive.ecluse(&words).status.code(), Some(64), "never over");
    let none = archive.ecluse(&["show", &site.url("/nowhere")]);
    assert_eq!(none.status.code(), Some(1));
    assert!(said(&none).contains("of its host: "), "{}", said(&none));
    let described = archive.json(&["show", &page]);
    assert_eq!(described["status"], "200", "{described}");

    let status = archive.json(&["status"]);
    assert_eq!(status["jobs"].as_array().unwrap().len(), 0, "{status}");
    // By its job a finished order is found, and the file by its path.
    let found = archive.json(&["find", "job=127.0.0.1"]);
    let found = found["found"].as_array().unwrap();
    let is_order = |one: &Value| one["stage"] == "crawl" && one["state"] == "finished";
    assert!(found.iter().any(is_order), "{found:?}");
    let stored = found.iter().find_map(|one| one["copies"][0].as_str());
    let why = archive.ecluse(&["why", stored.unwrap()]);
    assert_eq!(why.status.code(), Some(0), "{}", said(&why));
    assert!(said(&why).contains("passed on to backup"), "{}", said(&why));

    let why = archive.ecluse(&["why", &site.url("/page/3"), "--job", "127.0.0.1"]);
    assert_eq!(why.status.code(), Some(0), "{}", said(&why));
    assert!(said(&why).contains("verdict: accept"), "{}", said(&why));
    let why = archive.ecluse(&["why", "http://lock.example/", "--job", "127.0.0.1"]);
    assert!(said(&why).contains("verdict: reject"), "{}", said(&why));
}

#[test]
fn limit_and_depth_hold() {
    let site = Site::of(5);
    let archive = Archive::new();
    let url = site.url("/");
    let words = [
        "harvest",
        &url,
        "--allow-private",
        "--delay",
        "10ms",
        "--depth",
        "0",
    ];
    let report = archive.json(&words);
    assert_eq!(report["captures"], 2, "the page and robots.txt: {report}");
    assert_eq!(site.asked("/page/1"), 0);

    let words = [
        "harvest",
        &url,
        "--allow-private",
        "--delay",
        "10ms",
        "--limit",
        "3",
    ];
    let report = archive.json(&words);
    let urls = report["urls"].as_u64().unwrap();
    assert!((3..6).contains(&urls), "{report}");
    assert!(report["ended_early"].is_string(), "{report}");
}

#[test]
fn without_a_server_one_line_says_so() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", closed.local_addr().unwrap());
    drop(closed);
    let archive = Archive::new();
    let output = archive.ecluse(&["harvest", &url, "--allow-private", "--tries", "1"]);
    assert_eq!(output.status.code(), Some(75), "{}", said(&output));
    let text = said(&output);
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(
        text.contains("no network, or these hosts do not answer: 127.0.0.1"),
        "{text}"
    );
}

#[test]
fn what_may_not_be_asked_is_told_with_the_option_that_allows_it() {
    let site = Site::of(1);
    let archive = Archive::new();
    let output = archive.ecluse(&["harvest", &site.url("/"), "--quiet"]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(64), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains("add --allow-private"), "{text}");
    assert_eq!(site.asked("/"), 0);
}

#[test]
fn a_harvest_that_is_killed_is_shown_as_stopped_at_once() {
    let site = Site::of(12);
    let archive = Archive::new();
    let url = site.url("/");
    let words = ["harvest", &url, "--allow-private", "--delay", "10s"];
    let mut program = Program::start(archive.command(&words));
    let state = || archive.json(&["status"])["jobs"][0]["state"].clone();
    until_so("the job runs", || state() == "running");
    program.signal(Signal::KILL);
    program.wait();
    assert_eq!(state(), "stopped");
}

#[test]
fn a_harvest_that_is_stopped_goes_on() {
    let site = Site::of(12);
    let archive = Archive::new();
    let url = site.url("/");
    let words = ["harvest", &url, "--allow-private", "--delay", "150ms"];
    let mut running = Program::start(archive.command(&words));
    until_so("a few pages were asked for", || site.asked("/page/2") > 0);
    let jobs = archive.json(&["status"])["jobs"].clone();
    assert_eq!(jobs[0]["job"], "127.0.0.1", "{jobs}");
    assert_eq!(jobs[0]["state"], "running", "{jobs}");
    running.signal(Signal::INT);
    assert_eq!(running.wait(), 75, "{}", running.log());
    let status = said(&archive.ecluse(&["status"]));
    assert!(status.contains("stopped"), "{status}");

    // Another wish for the same site is no second harvest beside it.
    let other = [
        "harvest",
        &url,
        "--allow-private",
        "--delay",
        "150ms",
        "--limit",
        "9",
    ];
    let refused = archive.ecluse(&other);
    assert_eq!(refused.status.code(), Some(64), "{}", said(&refused));
    for part in ["is not finished", "--unfinished go-on", "amend", "drop"] {
        assert!(said(&refused).contains(part), "{}", said(&refused));
    }

    let report = archive.json(&words);
    assert_eq!(report["went_on"], true, "{report}");
    assert_eq!(report["captures"], 14, "{report}");
    let again: Vec<u32> = (0..12).map(|n| site.asked(&format!("/page/{n}"))).collect();
    assert!(
        again.iter().all(|times| (1..=2).contains(times)),
        "{again:?}"
    );
    let jobs = fs::read_dir(archive.path("jobs")).unwrap();
    // What begins with a dot is shared by all jobs.
    let is_job = |entry: &fs::DirEntry| {
        entry.path().is_dir() && !entry.file_name().to_string_lossy().starts_with('.')
    };
    let jobs = jobs.filter(|entry| is_job(entry.as_ref().unwrap()));
    assert_eq!(jobs.count(), 1);
}

#[test]
fn an_unfinished_harvest_is_amended_or_ended_as_the_command_says() {
    let site = Site::of(12);
    let archive = Archive::new();
    let url = site.url("/");
    let slow = ["harvest", &url, "--allow-private", "--delay", "10s"];
    let quick = |how: &'static str| {
        let url = url.clone();
        move |archive: &Archive| {
            let words = [
                "harvest",
                &url,
                "--allow-private",
                "--delay",
                "10ms",
                "--limit",
                "5",
            ];
            let words = [&words[..], &["--unfinished", how]].concat();
            archive.json(&words)
        }
    };
    let stop = || {
        let mut running = Program::start(archive.command(&slow));
        let state = || archive.json(&["status"])["jobs"][0]["state"].clone();
        until_so("the job runs", || state() == "running");
        let at_work = archive.ecluse(&["harvest", &url, "--allow-private"]);
        assert_eq!(at_work.status.code(), Some(64), "{}", said(&at_work));
        assert!(said(&at_work).contains("is at work"), "{}", said(&at_work));
        running.signal(Signal::INT);
        assert_eq!(running.wait(), 75, "{}", running.log());
    };
    stop();
    let amended = quick("amend")(&archive);
    assert_eq!(amended["went_on"], true, "{amended}");
    assert_eq!(
        amended["ended_early"], "the limit of 5 URLs was reached",
        "{amended}"
    );
    stop();
    let fresh = quick("drop")(&archive);
    assert_eq!(fresh["went_on"], false, "{fresh}");
    let jobs = archive.json(&["jobs"]);
    let jobs = jobs["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 3, "{jobs:?}");
    assert!(
        jobs.iter().all(|job| job["state"] == "finished"),
        "{jobs:?}"
    );
    let ended = jobs.iter().filter(|job| {
        job["why"]
            .as_str()
            .is_some_and(|why| why.starts_with("ended by"))
    });
    assert_eq!(ended.count(), 1, "{jobs:?}");
}

#[test]
fn a_running_job_takes_changes() {
    let site = Site::of(40);
    let archive = Archive::new();
    let url = site.url("/");
    let words = ["harvest", &url, "--allow-private", "--delay", "200ms"];
    let mut running = Program::start(archive.command(&words));
    until_so("the job runs", || site.asked("/page/1") > 0);
    let change = archive.path("change.toml");
    let change = change.to_str().unwrap();
    fs::write(change, "[manners]\nmin-delai = \"5ms\"\n").unwrap();
    let refused = archive.ecluse(&["amend", "127.0.0.1", change, "--why", "a slip"]);
    assert_eq!(refused.status.code(), Some(64), "{}", said(&refused));
    assert!(said(&refused).contains("min-delay"), "{}", said(&refused));
    fs::write(
        change,
        "[manners]\nmin-delay = \"5ms\"\nmax-delay = \"5ms\"\n",
    )
    .unwrap();
    let amended = archive.ecluse(&["amend", "127.0.0.1", change, "--why", "in a hurry"]);
    assert_eq!(amended.status.code(), Some(0), "{}", said(&amended));
    assert!(
        said(&amended).contains("manners.min-delay"),
        "{}",
        said(&amended)
    );
    assert_eq!(running.wait(), 0, "{}", running.log());
    let late = archive.ecluse(&["amend", "127.0.0.1", change, "--why", "too late"]);
    assert_eq!(late.status.code(), Some(64), "{}", said(&late));
    assert!(said(&late).contains("finished"), "{}", said(&late));
    let audit = fs::read_to_string(archive.path("audit.jsonl")).unwrap();
    assert_eq!(audit.lines().count(), 2);
    assert!(audit.contains("in a hurry"));
}

#[test]
fn an_order_that_makes_no_sense_is_not_given() {
    let archive = Archive::new();
    for (words, part) in [
        (vec!["harvest"], "URL"),
        (vec!["harvest", "gopher://lock.example/"], "gopher"),
        (
            vec!["harvest", "lock.example", "--contact", "the keeper"],
            "the keeper",
        ),
        (vec!["harvest", "lock.example", "--delay", "fast"], "fast"),
        (
            vec!["harvest", "--seeds", "/nowhere/seeds.txt"],
            "/nowhere/seeds.txt",
        ),
    ] {
        let output = archive.ecluse(&words);
        assert_eq!(
            output.status.code(),
            Some(64),
            "{words:?}: {}",
            said(&output)
        );
        assert!(said(&output).contains(part), "{words:?}: {}", said(&output));
    }
    assert!(!archive.path("work").exists(), "nothing was made");
}

#[test]
fn a_job_whose_worker_is_gone_is_shown_as_stopped() {
    let archive = Archive::new();
    let dir = archive.path("jobs/a.example-20260101000000");
    fs::create_dir_all(&dir).unwrap();
    let status = dir.join("status.json");
    let text = r#"{"job": "a.example", "harvest": "20260101000000", "state": "running", "pid": 1,
        "done": 7, "queued": 3, "urls-per-second": 2.5}"#;
    fs::write(&status, text).unwrap();
    let jobs = archive.json(&["status"])["jobs"].clone();
    assert_eq!(jobs[0]["state"], "running", "it spoke just now");
    let old = std::time::SystemTime::now() - Duration::from_secs(60);
    fs::File::options()
        .write(true)
        .open(&status)
        .unwrap()
        .set_modified(old)
        .unwrap();
    let jobs = archive.json(&["status"])["jobs"].clone();
    assert_eq!(jobs[0]["state"], "stopped", "{jobs}");
    assert_eq!(jobs[0]["done"], 7);

    // A pause is known of a job that nobody works on, and what lifts it is offered.
    let words = ["job", "pause", "a.example", "--why", "its owner asked"];
    let paused = archive.ecluse(&words);
    assert_eq!(paused.status.code(), Some(0), "{}", said(&paused));
    let screen = said(&archive.ecluse(&["status"]));
    assert!(screen.contains(": its owner asked"), "{screen}");
    assert!(screen.contains("job resume a.example-2026"), "{screen}");
    let listed = said(&archive.ecluse(&["jobs"]));
    assert!(listed.contains("PAUSED"), "{listed}");
    let listed = archive.json(&["jobs", "a.example"]);
    assert_eq!(listed["jobs"][0]["state"], "paused", "{listed}");
    let resumed = archive.ecluse(&["job", "resume", "a.example"]);
    assert!(
        said(&resumed).contains("goes on when the crawl stage runs"),
        "{}",
        said(&resumed)
    );
    let unknown = archive.ecluse(&["job", "end", "b.example", "--why", "x"]);
    assert_eq!(unknown.status.code(), Some(64), "{}", said(&unknown));
    let audit = fs::read_to_string(archive.path("audit.jsonl")).unwrap();
    assert!(audit.contains("job pause") && audit.contains("its owner asked"));

    fs::write(&status, text.replace("running", "paused")).unwrap();
    let screen = said(&archive.ecluse(&["status"]));
    assert!(screen.contains("NEEDS YOU (1)"), "{screen}");
    assert!(
        screen.contains("job a.example-20260101000000 is paused"),
        "{screen}"
    );
}

#[test]
fn what_the_crawl_would_hold_is_refused_at_the_door() {
    let archive = Archive::new();
    assert!(archive.ecluse(&["init"]).status.success());
    let order = |seeds: &str| {
        let agent = "[agent]\ncontact = \"https://lock.example/\"\n";
        format!("job = \"weekly\"\nharvest = \"7\"\n{seeds}{agent}")
    };
    let good = order("[[seeds]]\nurls = [\"http://lock.example/\"]\n");
    let give = |name: &str, text: &str| {
        let file = archive.path(name);
        fs::write(&file, text).unwrap();
        let output = archive.ecluse(&["give", "crawl", file.to_str().unwrap()]);
        (output.status.code().unwrap(), said(&output))
    };
    for (name, text, told) in [
        ("broken.toml", "job = ".to_owned(), "broken.toml"),
        ("typing.toml", order("sedes = []\n"), "sedes"),
        ("none.toml", order(""), "seed"),
        ("file.toml", order("[[seeds]]\nfile = \"s.txt\"\n"), "s.txt"),
        ("order.txt", good.clone(), "*.toml"),
    ] {
        let (code, said) = give(name, &text);
        assert_eq!(code, 64, "{name}: {said}");
        assert!(said.contains(told), "{name}: {said}");
    }
    // The job of that name was begun with another order.
    let job = archive.path("jobs/weekly-7");
    fs::create_dir_all(&job).unwrap();
    fs::write(job.join("order-given.toml"), "another").unwrap();
    let (code, said) = give("good.toml", &good);
    assert_eq!(code, 64, "{said}");
    assert!(
        said.contains("weekly-7 was begun with another order"),
        "{said}"
    );
    let waiting = || {
        fs::read_dir(archive.path("work/crawl/ready"))
            .unwrap()
            .count()
    };
    assert_eq!(waiting(), 0, "nothing got in");
    fs::write(job.join("order-given.toml"), &good).unwrap();
    let (code, said) = give("good.toml", &good);
    assert_eq!((code, waiting()), (0, 1), "{said}");
}
