//! A crawl that is killed, stopped, or finds the disk full: it goes on where it was, loses nothing and stores nothing twice.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod web;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use ecluse_crawl::JobState;
use ecluse_testkit::dns::{Named, Names};
use ecluse_testkit::machine::{empty, fill, inside, mount};
use ecluse_testkit::root::{Root, until, until_so};
use ecluse_testkit::web::{After, Answer, Web, chunked, gzip, html};
use rustix::process::Signal;
use tempfile::TempDir;

use web::{CRAWL, Dice, Gate, Harvest, Job, Order, at, web_on};

const ADDRESSES: u8 = 8;
const PAGES: usize = 10;

/// What a page of a host is; beside the ten there are a redirect and what does not exist.
fn page(host: &str, path: &str) -> Answer {
    let number: usize = match path {
        "/" => 0,
        "/moved" => return Answer::redirect("/9"),
        "/robots.txt" => return Answer::of("text/plain", b"User-agent: *\nDisallow: /forbidden\n"),
        "/same" => return html("<p>the same on every host</p>"),
        path => match path[1..].parse() {
            Ok(number) if number < PAGES => number,
            _ => return Answer::missing(),
        },
    };
    let mut body = format!("<p>{host} {number}</p>");
    for other in 1..PAGES {
        write!(body, "<a href='/{other}'></a>").unwrap();
    }
    body.push_str(
        "<a href='/moved'></a><a href='/none'></a><a href='/forbidden/x'></a><a href='/same'></a>",
    );
    match number % 3 {
        0 => html(&body),
        1 => {
            let fields = "Content-Type: text/html\r\nContent-Encoding: gzip\r\n";
            Answer::new("200 OK", fields, &gzip(body.as_bytes()))
        }
        _ => {
            let mut bytes = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n".to_vec();
            bytes.extend(chunked(body.as_bytes(), 100));
            Answer::raw(bytes)
        }
    }
}

/// A web of so many hosts whose pages take a while, and the order to crawl it.
fn web_of(hosts: usize, pause: Duration) -> (Web, Names, Order) {
    web_that_waits(hosts, move |_| thread::sleep(pause))
}

/// So many requests of each host are answered at once by a web behind a gate.
const BEFORE_THE_GATE: usize = 4;

/// A web whose hosts answer a few requests, and all others when the gate is opened; the crawl has the patience.
fn web_behind(gate: &Gate, hosts: usize) -> (Web, Names, Order) {
    let gate = gate.clone();
    let (web, names, mut order) = web_that_waits(hosts, move |answered| {
        if answered >= BEFORE_THE_GATE {
            gate.wait();
        }
    });
    for limit in ["limits.time", "limits.idle"] {
        order.text(limit, "1m");
    }
    (web, names, order)
}

/// Waits until all hosts have a request that waits at the gate.
fn all_wait(web: &Web, hosts: usize) {
    let all = hosts * (BEFORE_THE_GATE + 1);
    until_so("a request of each host at the gate", || {
        web.log().len() >= all
    });
}

/// A web of so many hosts, each of which waits so before it answers, and the order to crawl it.
fn web_that_waits(
    hosts: usize,
    wait: impl Fn(usize) + Clone + Send + Sync + 'static,
) -> (Web, Names, Order) {
    let (web, names) = web_on(ADDRESSES);
    let mut order = Order::new(&names);
    for number in 0..hosts {
        let host = format!("h{number:02}.test");
        let last = u8::try_from(number).unwrap() % ADDRESSES + 1;
        names.set(&host, Named::V4(vec![at(last)]));
        order.seed(web.url(&host, "/"));
        let (named, wait) = (host.clone(), wait.clone());
        let asked = AtomicUsize::new(0);
        web.host(&host, move |request, wire| {
            wait(asked.fetch_add(1, Ordering::SeqCst));
            wire.answer(&page(&named, &request.target))
        });
    }
    order.text("manners.group-by", "queue");
    (web, names, order)
}

/// What must be there of each host: robots.txt, ten pages, the redirect, the duplicate and what does not exist.
const OF_A_HOST: usize = 1 + PAGES + 3;

/// Reads what is there, and compares it with what must be.
fn complete(job: Job, web: &Web, hosts: usize) -> Harvest {
    let harvest = Harvest::read(job);
    harvest.each_line_once();
    let captures = harvest.captures();
    assert_eq!(captures.len(), hosts * OF_A_HOST);
    for host in 0..hosts {
        let url = web.url(&format!("h{host:02}.test"), "/forbidden/x");
        assert_eq!(harvest.line(&url).status, -9998);
        let name = format!("dns:h{host:02}.test");
        let answers = harvest.records.iter().filter(|record| record.url == name);
        assert_eq!(answers.count(), 1, "{name}");
    }
    harvest
}

/// The captures without the port, which differs from web to web.
fn without_port(harvest: &Harvest, web: &Web) -> BTreeSet<(String, String, String)> {
    let port = format!(":{}", web.port());
    let captures = harvest.captures().into_iter();
    captures
        .map(|(url, status, digest)| (url.replace(&port, ""), status, digest))
        .collect()
}

#[test]
fn killed_twenty_times_it_captures_the_same() {
    captures_the_same_when_killed("none");
}

/// Cash lies in the frontier and in its checkpoint: what was given away before a kill and not committed is given once more, with it.
#[test]
fn killed_twenty_times_with_importance_it_captures_the_same() {
    captures_the_same_when_killed("opic");
}

/// Jobs are killed one after the other until there were as many kills as are asked for: 10, or `ECLUSE_KILLS`.
fn captures_the_same_when_killed(importance: &str) {
    let asked_for: usize = std::env::var("ECLUSE_KILLS").map_or(10, |text| text.parse().unwrap());
    let hosts = 40;
    let (calm_web, _names, order) = web_of(hosts, Duration::from_millis(1));
    let job = Job::give(&order);
    job.finish();
    let calm = complete(job, &calm_web, hosts);
    let calm = without_port(&calm, &calm_web);
    let mut dice = Dice(20);
    let (mut kills, mut rounds, mut asked) = (0, 0, 0);
    while kills < asked_for {
        let (web, _names, mut order) = web_of(hosts, Duration::from_millis(60));
        order
            .text("frontier.importance", importance)
            .text("manners.min-delay", "150ms")
            .text("manners.max-delay", "150ms");
        let job = Job::give(&order);
        let killed = job.kill(20, &mut dice, 60, 450);
        assert!(killed >= 10, "it was at work {killed} times only");
        job.finish();
        let harvest = complete(job, &web, hosts);
        assert_eq!(without_port(&harvest, &web), calm);
        kills += killed;
        rounds += 1;
        asked += web.log().len();
    }
    eprintln!(
        "measured: {kills} kills in {rounds} jobs, {} captures, {asked} requests",
        rounds * hosts * OF_A_HOST
    );
}

fn has_name(dir: &Path, part: &str) -> bool {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .any(|name| name.contains(part))
}

/// What is waited for before the kill, in words and in fact.
type Moment<'a> = (&'a str, &'a dyn Fn(&Job) -> bool);

#[test]
fn killed_while_it_ends_it_ends_once() {
    let moments: [Moment; 4] = [
        ("a report", &|job| has_name(&job.dir().join("reports"), "")),
        ("all reports", &|job| {
            has_name(&job.dir().join("reports"), "seeds")
        }),
        ("the metadata", &|job| {
            has_name(&job.root.path().join("harvested"), "-metadata-")
        }),
        ("the state", &|job| {
            let status = job.status();
            status.is_some_and(|status| status.state == JobState::Finishing)
        }),
    ];
    for (what, moment) in moments {
        // A slow look finds the job over; then another is killed.
        let hit = (0..20).any(|_| ends_once_when_killed_at(what, moment));
        assert!(hit, "{what}: every kill came after the receipt");
    }
}

/// Kills a job at a moment of its end and lets another worker end it; tells whether the kill came before the receipt.
fn ends_once_when_killed_at(what: &str, moment: &dyn Fn(&Job) -> bool) -> bool {
    let (web, _names, order) = web_of(2, Duration::ZERO);
    let job = Job::give(&order);
    let mut program = job.start();
    until(what, || {
        (moment(&job) || job.root.receipts("crawl") > 0).then_some(())
    });
    program.signal(Signal::KILL);
    program.wait();
    let hit = job.root.receipts("crawl") == 0;
    job.finish();
    let harvested = job.root.path().join("harvested");
    let entries = fs::read_dir(&harvested).unwrap();
    let metadata = entries.filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_string_lossy().contains("-metadata-")
    });
    assert_eq!(metadata.count(), 1, "{what}");
    for report in ["crawl-report.txt", "seeds-report.txt", "hosts-report.txt"] {
        assert!(
            job.dir().join("reports").join(report).is_file(),
            "{what}: {report}"
        );
    }
    complete(job, &web, 2);
    hit
}

#[test]
fn asked_to_stop_it_finishes_what_is_in_flight_and_goes_on_later() {
    let hosts = 8;
    let gate = Gate::default();
    let (web, _names, mut order) = web_behind(&gate, hosts);
    // Long enough for a stop to be seen before the next request.
    order
        .text("manners.min-delay", "1s")
        .text("manners.max-delay", "1s");
    let job = Job::give(&order);
    let mut program = job.start();
    all_wait(&web, hosts);
    program.signal(Signal::TERM);
    gate.open();
    let code = program.wait();
    assert!([0, 75].contains(&code), "{code}: {}", program.log());
    assert_eq!(
        job.root.list("crawl", "ready").len(),
        1,
        "the order was not given back"
    );
    let status = job.status().unwrap();
    assert_eq!(status.state, JobState::Stopped);
    assert!(status.queued > 0, "it was over");
    job.finish();
    // Nothing was asked twice: whatever was in flight when it was stopped had been kept.
    let mut asked = BTreeSet::new();
    for seen in web.log() {
        let target = format!("{}{}", seen.host, seen.target);
        assert!(asked.insert(target.clone()), "{target} was asked twice");
    }
    complete(job, &web, hosts);
}

#[test]
fn a_full_disk_pauses_the_crawl_until_there_is_room() {
    if !inside("a_full_disk_pauses_the_crawl_until_there_is_room") {
        return;
    }
    let dir = TempDir::new().unwrap();
    mount(dir.path(), "64m");
    let hosts = 8;
    let gate = Gate::default();
    let (web, _names, order) = web_behind(&gate, hosts);
    let job = Job::give_in(Root::at(dir.path()), &order);
    let mut program = job.root.start(CRAWL, &[]);
    all_wait(&web, hosts);
    let filler = fill(job.root.path());
    gate.open();
    let why = until("a pause", || {
        program.must_live();
        let status = job.status();
        let paused = status.filter(|status| status.state == JobState::Paused);
        let halted = job
            .root
            .notes("crawl")
            .into_iter()
            .find(|note| note.state == "halted");
        paused
            .and_then(|status| status.why)
            .or_else(|| halted.map(|note| note.why))
    });
    assert!(why.contains("space") || why.contains("disk"), "{why}");
    empty(&filler);
    until_so("the end of the job", || {
        program.must_live();
        let status = job.status();
        status.is_some_and(|status| status.state == JobState::Finished)
    });
    until_so("its receipt", || job.root.receipts("crawl") == 1);
    assert_eq!(program.stop(), 0, "{}", program.log());
    complete(job, &web, hosts);
}

#[test]
fn a_server_that_is_asked_again_after_a_kill_gets_the_same_request() {
    let (web, names) = web_on(1);
    let is_asked = AtomicBool::new(false);
    web.host("slow.test", move |request, wire| {
        if request.target == "/" && !is_asked.swap(true, Ordering::SeqCst) {
            return wire.hang();
        }
        wire.answer(&page("slow.test", &request.target))?;
        Ok(After::Close)
    });
    let mut order = Order::new(&names);
    order
        .seed(web.url("slow.test", "/"))
        .text("limits.time", "1m")
        .text("limits.idle", "1m")
        .text("scope.reach", "page");
    let job = Job::give(&order);
    let mut program = job.start();
    until_so("the request", || {
        web.log().iter().any(|seen| seen.target == "/")
    });
    program.signal(Signal::KILL);
    program.wait();
    job.finish();
    let asked: Vec<Vec<u8>> = web
        .log()
        .into_iter()
        .filter(|seen| seen.target == "/")
        .map(|seen| seen.bytes)
        .collect();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[0], asked[1]);
    let harvest = Harvest::read(job);
    harvest.response(&web.url("slow.test", "/"));
}
