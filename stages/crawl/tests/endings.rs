//! How a job ends that is left with hosts that fail: within its limits, and with everything that others gave.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod web;

use std::sync::atomic::{AtomicUsize, Ordering};

use ecluse_testkit::dns::Named;
use ecluse_testkit::root::{Program, until_so};
use ecluse_testkit::web::{After, Answer, Web, html};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use web::{Gate, Harvest, Job, Order, at, web_on};

/// A host whose robots.txt never comes: it answers 503, and says what else is in this field.
fn overloaded(web: &Web, host: &str, field: &'static str) {
    web.host(host, move |_, wire| {
        let answer = format!("HTTP/1.1 503 Busy\r\n{field}Content-Length: 0\r\n\r\n");
        wire.send(answer.as_bytes())?;
        Ok(After::Close)
    });
}

/// How often a host was asked for its robots.txt, and for anything else.
fn asked(web: &Web, host: &str) -> (usize, usize) {
    let log = web.log();
    let all = log.iter().filter(|seen| seen.host == host);
    let (robots, pages): (Vec<_>, Vec<_>) = all.partition(|seen| seen.target == "/robots.txt");
    (robots.len(), pages.len())
}

#[test]
fn a_robots_txt_that_cannot_be_had_is_asked_for_as_often_as_a_url() {
    let (web, names) = web_on(1);
    overloaded(&web, "busy.test", "");
    let mut order = Order::new(&names);
    order
        .seed(web.url("busy.test", "/"))
        .seed(web.url("busy.test", "/other"))
        // The host rests for longer than what is known of its robots.txt holds.
        .text("robots.retry", "1ms")
        .text("manners.back-off.first", "50ms")
        .set("budget.queue.tries", 3)
        .text("budget.wait", "none");
    let harvest = Job::crawl(&order);
    assert_eq!(asked(&web, "busy.test"), (3, 0));
    for path in ["/", "/other"] {
        let line = harvest.line(&web.url("busy.test", path));
        assert_eq!(line.status, -61, "{line:?}");
    }
}

#[test]
fn a_host_that_asks_for_an_hour_does_not_keep_a_job_from_its_end() {
    let (web, names) = web_on(2);
    names.set("busy.test", Named::V4(vec![at(2)]));
    overloaded(&web, "busy.test", "Retry-After: 3600\r\n");
    let links = "<a href=/1>1</a> <a href=/2>2</a> <a href=/3>3</a>";
    let mut pages = vec![("/".to_owned(), html(links))];
    for page in 1..4 {
        pages.push((format!("/{page}"), html(&format!("page {page}"))));
    }
    web.pages("good.test", pages);
    let mut order = Order::new(&names);
    order
        .seed(web.url("busy.test", "/"))
        .seed(web.url("good.test", "/"))
        .text("budget.wait", "1m");
    let harvest = Job::crawl(&order);
    let line = harvest.line(&web.url("busy.test", "/"));
    assert_eq!(line.status, -61, "{line:?}");
    assert_eq!(asked(&web, "busy.test"), (1, 0));
    for page in 1..4 {
        harvest.response(&web.url("good.test", &format!("/{page}")));
    }
}

#[test]
fn a_delay_that_a_site_asks_for_is_no_failure() {
    let (web, names) = web_on(1);
    let robots = Answer::of("text/plain", b"User-agent: *\nCrawl-delay: 0.3");
    let links = "<a href=/1>1</a> <a href=/2>2</a> <a href=/3>3</a>";
    let mut pages = vec![
        ("/".to_owned(), html(links)),
        ("/robots.txt".to_owned(), robots),
    ];
    for page in 1..4 {
        pages.push((format!("/{page}"), html(&format!("page {page}"))));
    }
    web.pages("slow.test", pages);
    let mut order = Order::new(&names);
    order
        .seed(web.url("slow.test", "/"))
        .text("budget.wait", "1ms");
    let harvest = Job::crawl(&order);
    for page in 1..4 {
        harvest.response(&web.url("slow.test", &format!("/{page}")));
    }
}

#[test]
fn what_is_fetched_gets_on_while_a_host_is_waited_for() {
    let (web, names) = web_on(2);
    names.set("busy.test", Named::V4(vec![at(2)]));
    overloaded(&web, "busy.test", "Retry-After: 3600\r\n");
    web.pages("good.test", [("/".to_owned(), html("good"))]);
    let mut order = Order::new(&names);
    order
        .seed(web.url("busy.test", "/"))
        .seed(web.url("good.test", "/"))
        .text("budget.wait", "none")
        .text("warc.age", "50ms");
    let job = Job::give(&order);
    let mut program = job.start();
    let closed = || {
        let entries = std::fs::read_dir(job.root.path().join("harvested"));
        let names = entries.into_iter().flatten().flatten();
        names
            .filter(|entry| entry.file_name().to_string_lossy().ends_with(".warc.gz"))
            .count()
    };
    until_so("a file that is closed", || closed() > 0);
    assert_eq!(job.root.receipts("crawl"), 0, "the job goes on");
    program.stop();
}

#[test]
fn want_of_descriptors_stops_the_job_and_is_no_servers_fault() {
    let (web, names) = web_on(2);
    names.set("other.test", Named::V4(vec![at(2)]));
    let mut order = Order::new(&names);
    let gate = Gate::default();
    for host in ["good.test", "other.test"] {
        let (gate, asked) = (gate.clone(), AtomicUsize::new(0));
        // Each page needs a connection of its own; most are not there before nothing can be opened any more.
        web.host(host, move |request, wire| {
            if asked.fetch_add(1, Ordering::SeqCst) >= 3 {
                gate.wait();
            }
            let links: String = (0..20)
                .map(|page| format!("<a href='/{page}'></a>"))
                .collect();
            let links = if request.target == "/" {
                links
            } else {
                String::new()
            };
            wire.answer(&html(&links))?;
            Ok(After::Close)
        });
        order.seed(web.url(host, "/"));
    }
    order.text("limits.time", "1m").text("limits.idle", "1m");
    let job = Job::give(&order);
    let mut program = job.start();
    until_so("some pages are fetched", || web.log().len() >= 8);
    let pid = Pid::from_raw(i32::try_from(program.pid()).unwrap());
    let limit = Rlimit {
        current: Some(4),
        maximum: Some(1024),
    };
    prlimit(pid, Resource::Nofile, limit).unwrap();
    gate.open();
    let code = program.wait();
    assert_eq!(code, 74, "{}", program.log());
    assert!(
        program.log().contains("Too many open files"),
        "{}",
        program.log()
    );
    job.finish();
    let harvest = Harvest::read(job);
    for host in ["good.test", "other.test"] {
        for page in 0..20 {
            let line = harvest.line(&web.url(host, &format!("/{page}")));
            assert_eq!(line.status, 200, "{line:?}");
        }
    }
}

/// The clock of the machine goes back two hours while pages are fetched: the job goes on at its pace and ends.
#[test]
fn a_clock_set_back_while_a_job_runs_stalls_nobody() {
    let (web, names) = web_on(1);
    let links: String = (0..6)
        .map(|page| format!("<a href='/{page}'></a>"))
        .collect();
    let mut pages = vec![("/".to_owned(), html(&links))];
    pages.extend((0..6).map(|page| (format!("/{page}"), html(&format!("page {page}")))));
    web.pages("good.test", pages);
    let mut order = Order::new(&names);
    order
        .seed(web.url("good.test", "/"))
        .text("manners.min-delay", "300ms")
        .text("manners.max-delay", "300ms");
    let job = Job::give(&order);
    let clock = job.root.path().join("clock");
    std::fs::write(&clock, "+0").unwrap();
    let mut command = job.root.program(web::CRAWL);
    command
        .arg("--once")
        .env("LD_PRELOAD", ecluse_peers::libfaketime())
        .env("FAKETIME_TIMESTAMP_FILE", &clock)
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .env("NO_FAKE_STAT", "1")
        .env("FAKETIME_DONT_RESET", "1");
    let mut program = Program::start(command);
    until_so("the first pages are asked for", || {
        program.must_live();
        asked(&web, "good.test").1 >= 2
    });
    std::fs::write(&clock, "-7200").unwrap();
    // A job that waited for its own clock would wait longer than anybody here does.
    until_so("all pages are asked for", || {
        asked(&web, "good.test").1 >= 7
    });
    assert_eq!(program.wait(), 0, "{}", program.log());
    let harvest = Harvest::read(job);
    for page in 0..6 {
        harvest.response(&web.url("good.test", &format!("/{page}")));
    }
}
