//! What an operator orders, and what he changes and asks while the job runs.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod web;

use std::fs;
use std::time::Duration;

use ecluse_crawl::{JobState, JobStatus};
use ecluse_testkit::root::{until, until_so};
use ecluse_testkit::web::{Answer, Web, html};
use rustix::process::Signal;
use serde_json::Value;

use web::{Harvest, Job, Order, web_on};

/// A host with a page that links to all others.
fn site(web: &Web, host: &str, pages: usize) {
    let links: String = (0..pages)
        .map(|page| format!("<a href='/{page}'></a>"))
        .collect();
    let mut all = vec![("/".to_owned(), html(&links))];
    for page in 0..pages {
        all.push((format!("/{page}"), html(&format!("<p>{host} {page}</p>"))));
    }
    web.pages(host, all);
}

/// Puts a change into the control directory, and waits for what became of it.
#[expect(
    clippy::disallowed_methods,
    reason = "as an operator does it: no parcel is moved"
)]
fn amend(job: &Job, name: &str, text: &[u8]) -> Value {
    let control = job.dir().join("control");
    until_so("a job that heeds", || control.join("done").is_dir());
    fs::write(control.join(".draft"), text).unwrap();
    fs::rename(control.join(".draft"), control.join(name)).unwrap();
    let done = control.join("done").join(format!("{name}.json"));
    let told = until("an answer", || fs::read(&done).ok());
    serde_json::from_slice(&told).unwrap()
}

/// A job on a host that is slow enough to be changed: its delay is long until a change shortens it.
fn slow(order: &mut Order) {
    order.text("manners.min-delay", "400ms");
    order.text("manners.max-delay", "400ms");
}

const QUICK: &str = "manners.min-delay = '1ms'\nmanners.max-delay = '2ms'\n";

#[test]
fn rules_change_while_the_job_runs_and_nonsense_changes_nothing() {
    let (web, names) = web_on(1);
    site(&web, "site.test", 12);
    let mut order = Order::new(&names);
    slow(&mut order);
    order.seed(web.url("site.test", "/"));
    let job = Job::give(&order);
    let mut program = job.start();
    for (name, text) in [
        ("a.toml", &b"scope = [["[..]),
        ("b.toml", b"scope.hopps = 3"),
        ("c.toml", b"scope.reject-regexes = ['(']"),
        ("d.toml", b"description = '\xff'"),
        ("e.toml", b"warc.compression = 'none'"),
    ] {
        let told = amend(&job, name, text);
        assert_eq!(told["changes"], Value::Array(Vec::new()), "{told}");
        assert!(!told["problems"].as_array().unwrap().is_empty(), "{told}");
    }
    let told = amend(&job, "f.toml", QUICK.as_bytes());
    assert_eq!(told["problems"], Value::Array(Vec::new()), "{told}");
    assert_eq!(told["changes"].as_array().unwrap().len(), 2, "{told}");
    assert_eq!(program.wait(), 0, "{}", program.log());
    let changes = fs::read_to_string(job.dir().join("logs/changes.log")).unwrap();
    for text in ["d.toml refused: is not UTF-8", "f.toml: manners.min-delay"] {
        assert!(changes.contains(text), "{text}: {changes}");
    }
    let harvest = Harvest::read(job);
    assert_eq!(harvest.captures().len(), 14);
}

/// Puts a file into the control directory, as `ecluse job` does, or takes it away.
#[expect(
    clippy::disallowed_methods,
    reason = "as an operator does it: no parcel is moved"
)]
fn tell(job: &Job, name: &str, text: Option<&str>) {
    let control = job.dir().join("control");
    until_so("a job that heeds", || control.join("done").is_dir());
    match text {
        Some(text) => {
            fs::write(control.join(".draft"), text).unwrap();
            fs::rename(control.join(".draft"), control.join(name)).unwrap();
        }
        None => fs::remove_file(control.join(name)).unwrap(),
    }
}

fn until_state(job: &Job, state: JobState) -> JobStatus {
    until(&format!("a job that is {state:?}"), || {
        job.status().filter(|status| status.state == state)
    })
}

#[test]
fn a_job_is_paused_goes_on_and_is_ended_by_a_person() {
    let (web, names) = web_on(1);
    site(&web, "site.test", 30);
    let mut order = Order::new(&names);
    slow(&mut order);
    order.seed(web.url("site.test", "/"));
    let job = Job::give(&order);
    let mut program = job.start();
    until_so("a few pages", || job.status().is_some_and(|s| s.done >= 3));
    tell(&job, "PAUSED", Some(r#"{"who": "anne", "why": "a call"}"#));
    let paused = until_state(&job, JobState::Paused);
    assert_eq!(paused.why.as_deref(), Some("paused by anne: a call"));
    // What was in flight is taken in; then the server is left alone.
    let still = until("nothing in flight", || {
        job.status().filter(|status| status.in_flight == 0)
    });
    tell(&job, "more.toml", Some("description = 'in a pause'"));
    let done = job.dir().join("control/done/more.toml.json");
    until_so("a change that is heeded in a pause", || done.exists());
    let later = until("a later word", || {
        job.status().filter(|later| later.updated > still.updated)
    });
    assert_eq!((later.done, later.state), (still.done, JobState::Paused));
    assert_eq!(later.seconds, still.seconds, "a pause is no work");
    // A stop does not forget it.
    program.signal(Signal::TERM);
    assert_eq!(program.wait(), 0, "{}", program.log());
    let mut program = job.start();
    let again = until_state(&job, JobState::Paused);
    assert_eq!(again.done, still.done);
    tell(&job, "PAUSED", None);
    until_so("it goes on", || {
        job.status().is_some_and(|status| status.done > still.done)
    });
    tell(&job, "END", Some(r#"{"who": "anne", "why": "enough"}"#));
    assert_eq!(program.wait(), 0, "{}", program.log());
    let status = job.status().unwrap();
    assert_eq!(status.state, JobState::Finished);
    let changes = fs::read_to_string(job.dir().join("logs/changes.log")).unwrap();
    for text in ["paused by anne: a call", "resumed", "ended by anne: enough"] {
        assert!(changes.contains(text), "{text}: {changes}");
    }
    let harvest = Harvest::read(job);
    assert!(harvest.captures().len() as u64 > still.captures);
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "as `ecluse resume` does it: no parcel is removed"
)]
fn a_pause_of_the_stage_pauses_its_running_jobs() {
    let (web, names) = web_on(1);
    site(&web, "site.test", 30);
    let mut order = Order::new(&names);
    slow(&mut order);
    order.seed(web.url("site.test", "/"));
    let job = Job::give(&order);
    let mut program = job.start();
    until_state(&job, JobState::Running);
    let pause = job.root.path().join("work/crawl/PAUSED");
    fs::write(&pause, r#"{"who": "anne", "why": "maintenance"}"#).unwrap();
    let paused = until_state(&job, JobState::Paused);
    assert_eq!(paused.why.as_deref(), Some("paused by anne: maintenance"));
    fs::remove_file(&pause).unwrap();
    until_state(&job, JobState::Running);
    tell(&job, "END", Some(""));
    assert_eq!(program.wait(), 0, "{}", program.log());
    let status = job.status().unwrap();
    assert_eq!(status.why.as_deref(), Some("ended by hand"));
}

#[test]
fn a_queue_that_spent_its_budget_comes_back_when_it_gets_another() {
    let (web, names) = web_on(2);
    names.set(
        "slow.test",
        ecluse_testkit::dns::Named::V4(vec![web::at(2)]),
    );
    site(&web, "poor.test", 10);
    site(&web, "slow.test", 4);
    let mut order = Order::new(&names);
    order.set("budget.queue.urls", 4);
    order.set(
        "budget.exceptions",
        "[{ hosts = ['slow.test'], urls = 100 }]",
    );
    // Something must go on while the poor queue is retired.
    order.set(
        "manners.groups",
        "[{ name = 'slow', hosts = ['slow.test'], min-delay = '700ms', max-delay = '700ms' }]",
    );
    order
        .seed(web.url("poor.test", "/"))
        .seed(web.url("slow.test", "/"));
    let job = Job::give(&order);
    let mut program = job.start();
    until_so("a retired queue", || {
        job.status()
            .is_some_and(|status| status.retired_queues == 1)
    });
    let told = amend(
        &job,
        "more.toml",
        b"budget.exceptions = [{ hosts = ['poor.test', 'slow.test'], urls = 50 }]",
    );
    assert_eq!(told["problems"], Value::Array(Vec::new()), "{told}");
    assert_eq!(program.wait(), 0, "{}", program.log());
    let harvest = Harvest::read(job);
    for page in 0..10 {
        harvest.response(&web.url("poor.test", &format!("/{page}")));
    }
    assert_eq!(harvest.job.status().unwrap().retired_queues, 0);
}

#[test]
fn a_seed_that_redirects_reaches_no_further_than_it_would() {
    let (web, names) = web_on(1);
    let to = web.url("site.test", "/news/index");
    let there = format!("Location: {to}\r\n");
    web.pages(
        "old.test",
        [("/".to_owned(), Answer::new("301 Moved", &there, b""))],
    );
    site(&web, "site.test", 3);
    web.pages(
        "site.test",
        [
            (
                "/news/index".to_owned(),
                html("<a href='a'></a><a href='/0'></a>"),
            ),
            ("/news/a".to_owned(), html("news")),
            ("/0".to_owned(), html("not news")),
        ],
    );
    let mut order = Order::new(&names);
    order.seed(web.url("none.test", "/"));
    let text = order.text_of();
    let seeds = format!(
        "{text}\n[[seeds]]\nreach = \"path\"\nurls = [{:?}]\n",
        web.url("old.test", "/")
    );
    let job = Job::give_text(&seeds, &[]);
    job.finish();
    let why = |path: &str| {
        let url = web.url("site.test", path);
        let forced = job.root.path().join("forced.toml");
        let told = ecluse_crawl::explain(&job.dir(), &url, "", &forced, Duration::from_secs(9));
        told.unwrap().verdict
    };
    // A finished job still knows where its seeds led.
    assert_eq!(
        (why("/news/a"), why("/0")),
        ("accept".into(), "reject".into())
    );
    let harvest = Harvest::read(job);
    harvest.response(&web.url("site.test", "/news/a"));
    assert!(harvest.lines.iter().all(|line| !line.url.ends_with("/0")));
}

#[test]
fn a_seed_file_may_widen_the_scope_and_its_faults_are_told() {
    let (web, names) = web_on(1);
    web.pages(
        "site.test",
        [(
            "/".to_owned(),
            html(&format!("<a href='{}'></a>", web.url("wide.test", "/x"))),
        )],
    );
    web.pages("wide.test", [("/x".to_owned(), html("wide"))]);
    let mut order = Order::new(&names);
    order.seed(web.url("site.test", "/"));
    let text = format!("{}\n[[seeds]]\nfile = \"seeds.txt\"\n", order.text_of());
    let job = Job::give_text(
        &text,
        &[("seeds.txt", b"+http://(test,wide,\nftp://site.test/\n")],
    );
    job.finish();
    let changes = fs::read_to_string(job.dir().join("logs/changes.log")).unwrap();
    assert!(changes.contains("no seed: line 2"), "{changes}");
    Harvest::read(job).response(&web.url("wide.test", "/x"));
}

#[test]
fn what_a_budget_left_over_is_told_by_host() {
    let (web, names) = web_on(1);
    site(&web, "poor.test", 10);
    site(&web, "other.test", 2);
    let mut order = Order::new(&names);
    order.set("budget.exceptions", "[{ hosts = ['poor.test'], urls = 4 }]");
    order
        .seed(web.url("poor.test", "/"))
        .seed(web.url("other.test", "/"));
    let harvest = Job::crawl(&order);
    let report = harvest.job.dir().join("reports/hosts-report.txt");
    let report = fs::read_to_string(report).unwrap();
    let remaining = |host: &str| {
        let line = report.lines().find(|line| line.contains(host)).unwrap();
        line.split(' ').nth(4).unwrap().to_owned()
    };
    assert_eq!(remaining("other.test"), "0", "{report}");
    let fetched = harvest
        .lines
        .iter()
        .filter(|line| line.url.contains("poor.test"));
    let fetched = fetched.filter(|line| line.status == 200).count();
    assert_eq!(
        remaining("poor.test"),
        (11 - fetched).to_string(),
        "{report}"
    );
    let log = harvest.job.dir().join("logs/progress-statistics.log");
    let log = fs::read_to_string(log).unwrap();
    let last = log.lines().last().unwrap();
    let downloaded: usize = last.split_whitespace().nth(3).unwrap().parse().unwrap();
    assert!(downloaded > 2, "the end is not told: {log}");
}

#[test]
fn favicons_are_asked_for_where_the_order_says_so() {
    let (web, names) = web_on(1);
    let icon = Answer::of("image/x-icon", b"icon");
    let image = format!("<img src='{}'>", web.url("img.test", "/i"));
    web.pages(
        "site.test",
        [
            ("/a/b".to_owned(), html(&image)),
            ("/favicon.ico".to_owned(), icon.clone()),
        ],
    );
    web.pages(
        "img.test",
        [
            ("/i".to_owned(), Answer::of("image/png", b"image")),
            ("/favicon.ico".to_owned(), icon),
        ],
    );
    let mut order = Order::new(&names);
    order.text("scope.reach", "page");
    order.seed(web.url("site.test", "/a/b"));
    let icons = |harvest: &Harvest| -> Vec<(String, String)> {
        let lines = harvest.lines.iter();
        lines
            .filter(|line| line.url.ends_with(".ico"))
            .map(|line| (line.url.clone(), line.hops.clone()))
            .collect()
    };
    assert_eq!(icons(&Job::crawl(&order)), []);
    order.set("extract.favicons", true);
    let expected = (web.url("site.test", "/favicon.ico"), "I".to_owned());
    assert_eq!(icons(&Job::crawl(&order)), [expected]);
}

#[test]
fn a_redirect_to_the_same_page_with_a_session_is_followed() {
    let (web, names) = web_on(1);
    let session = "/;jsessionid=0123456789ABCDEF0123456789ABCDEF";
    web.host("java.test", move |request, wire| {
        match request.target.as_str() {
            "/" => {
                let there = format!("Location: {session}\r\n");
                wire.answer(&Answer::new("302 Found", &there, b""))
            }
            "/loop" => wire.answer(&Answer::new("302 Found", "Location: /loop\r\n", b"")),
            target if target == session => wire.answer(&html("<a href='/loop'>content</a>")),
            _ => wire.answer(&Answer::missing()),
        }
    });
    let mut order = Order::new(&names);
    order.seed(web.url("java.test", "/"));
    let harvest = Job::crawl(&order);
    assert_eq!(harvest.line(&web.url("java.test", "/")).status, 302);
    assert_eq!(harvest.line(&web.url("java.test", session)).status, 200);
    assert_eq!(harvest.line(&web.url("java.test", "/loop")).status, 302);
}

#[test]
fn a_change_holds_after_a_kill() {
    let (web, names) = web_on(1);
    web.pages(
        "site.test",
        [
            (
                "/".to_owned(),
                html("<a href='/drop/x'></a><a href='/keep'></a>"),
            ),
            ("/drop/x".to_owned(), html("dropped")),
            ("/keep".to_owned(), html("kept")),
        ],
    );
    let mut order = Order::new(&names);
    // robots.txt, then a pause in which the change is heeded, then the page with the links.
    order.text("manners.min-delay", "2s");
    order.text("manners.max-delay", "2s");
    order.seed(web.url("site.test", "/"));
    let job = Job::give(&order);
    let mut program = job.start();
    let text = format!("scope.reject-regexes = ['/drop/']\n{QUICK}");
    let told = amend(&job, "drop.toml", text.as_bytes());
    assert_eq!(told["problems"], Value::Array(Vec::new()), "{told}");
    program.signal(rustix::process::Signal::KILL);
    program.wait();
    job.finish();
    let harvest = Harvest::read(job);
    harvest.response(&web.url("site.test", "/keep"));
    let is_dropped = harvest.lines.iter().any(|line| line.url.contains("/drop/"));
    assert!(!is_dropped);
    let asked = web.log_of(&["site.test"]);
    assert!(asked.iter().all(|seen| seen.target != "/drop/x"));
}

#[test]
fn a_new_rule_is_also_for_what_waits_already() {
    let (web, names) = web_on(1);
    let links: String = (0..30)
        .map(|page| format!("<a href='/trap/{page}'></a>"))
        .collect();
    web.host("site.test", move |request, wire| {
        match request.target.as_str() {
            "/robots.txt" => wire.answer(&Answer::missing()),
            _ => wire.answer(&html(&links)),
        }
    });
    let mut order = Order::new(&names);
    slow(&mut order);
    order.set("budget.queue.urls", 60);
    order.seed(web.url("site.test", "/"));
    let job = Job::give(&order);
    let mut program = job.start();
    until_so("a page of the trap", || {
        web.log()
            .iter()
            .any(|seen| seen.target.starts_with("/trap/"))
    });
    let text = format!("scope.reject-regexes = ['/trap/']\n{QUICK}");
    let told = amend(&job, "trap.toml", text.as_bytes());
    assert_eq!(told["problems"], Value::Array(Vec::new()), "{told}");
    assert_eq!(program.wait(), 0, "{}", program.log());
    let harvest = Harvest::read(job);
    harvest.each_line_once();
    let of = |status| {
        let lines = harvest.lines.iter().filter(|line| line.status == status);
        lines
            .filter(|line| line.url.contains("/trap/"))
            .collect::<Vec<_>>()
    };
    let (fetched, dropped) = (of(200), of(-5000));
    assert_eq!(fetched.len() + dropped.len(), 30);
    assert!(dropped.len() > 10, "{} were dropped", dropped.len());
    assert!(dropped.iter().all(|line| line.has("scope:reject")));
    // They are no failures: the queue keeps its budget.
    assert_eq!(harvest.job.status().unwrap().retired_queues, 0);
}
