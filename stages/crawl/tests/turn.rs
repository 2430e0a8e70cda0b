//! Whose turn it is: the more urgent order first, also when a less urgent job has the only worker.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod web;

use ecluse_crawl::{JobState, JobStatus};
use ecluse_testkit::dns::Names;
use ecluse_testkit::root::{Root, until_so};
use ecluse_testkit::web::{Web, html};

use web::{CRAWL, Harvest, Job, Order, web_on};

/// A page leads to the next one, so that a job lasts as long as its delays.
fn host(web: &Web, name: &str, pages: usize) {
    let page = |number: usize| {
        (
            format!("/{number}"),
            html(&format!("<a href='/{}'>next</a>", number + 1)),
        )
    };
    web.pages(name, (0..pages).map(page));
}

fn order(web: &Web, names: &Names, job: &str, host: &str, priority: &str) -> Order {
    let mut order = Order::new(names);
    order.text("job", job).text("priority", priority);
    order.text("manners.group-by", "queue");
    order
        .text("robots.policy", "ignore")
        .text("scope.hops", "none");
    order.seed(web.url(host, "/0"));
    order
}

fn state(root: &Root, job: &str) -> Option<JobState> {
    let status = JobStatus::read(&root.path().join(format!("jobs/{job}-7"))).unwrap();
    status.map(|status| status.state)
}

#[test]
fn a_broad_crawl_makes_way_for_a_selective_one_and_goes_on_later() {
    let (web, names) = web_on(1);
    host(&web, "broad.test", 60);
    host(&web, "selective.test", 3);
    let root = Root::new();
    root.settings(&["crawl"], "[stage.crawl]\nworkers = 1\n");
    let mut broad = order(&web, &names, "1", "broad.test", "low");
    broad
        .text("manners.min-delay", "100ms")
        .text("manners.max-delay", "100ms");
    root.put_files(
        "crawl",
        "broad",
        &[("order.toml", broad.text_of().as_bytes())],
    );
    let mut program = root.start(CRAWL, &["--once"]);
    until_so("the broad crawl", || web.log_of(&["broad.test"]).len() > 3);
    let selective = order(&web, &names, "2", "selective.test", "high");
    root.put_files(
        "crawl",
        "selective",
        &[("order.toml", selective.text_of().as_bytes())],
    );
    until_so("the selective crawl", || {
        program.must_live();
        state(&root, "2") == Some(JobState::Finished)
    });
    assert_ne!(
        state(&root, "1"),
        Some(JobState::Finished),
        "it should have waited"
    );
    let before = web.log_of(&["broad.test"]).len();
    assert!(before < 61, "{before}");
    assert_eq!(program.wait(), 0, "{}", program.log());
    assert_eq!(state(&root, "1"), Some(JobState::Finished));
    let asked = web.log_of(&["broad.test"]);
    assert_eq!(
        asked.len(),
        61,
        "every page once, and the one that is not there"
    );
}

#[test]
fn of_two_orders_that_wait_the_more_urgent_is_taken_first() {
    let (web, names) = web_on(1);
    let root = Root::new();
    root.settings(&["crawl"], "[stage.crawl]\nworkers = 1\n");
    for (job, priority) in [
        ("1", "low"),
        ("2", "normal"),
        ("3", "high"),
        ("4", "low"),
        ("5", "high"),
    ] {
        let name = format!("host{job}.test");
        host(&web, &name, 2);
        let text = order(&web, &names, job, &name, priority).text_of();
        root.put_files(
            "crawl",
            &format!("order-{job}"),
            &[("order.toml", text.as_bytes())],
        );
    }
    let (code, said) = root.run(CRAWL, &["--once"]);
    assert_eq!(code, 0, "{said}");
    let mut hosts: Vec<String> = web.log().into_iter().map(|seen| seen.host).collect();
    hosts.dedup();
    let priorities: Vec<usize> = hosts
        .iter()
        .map(|host| match host.split(':').next().unwrap() {
            "host3.test" | "host5.test" => 0,
            "host2.test" => 1,
            _ => 2,
        })
        .collect();
    assert_eq!(priorities, [0, 0, 1, 2, 2], "{hosts:?}");
}

#[test]
fn a_document_larger_than_the_scope_wants_is_not_let_in() {
    let (web, names) = web_on(1);
    let large = "<p>large</p>".repeat(10_000);
    web.pages(
        "one.test",
        [
            ("/0".to_owned(), html("<a href='/large'>large</a>")),
            ("/large".to_owned(), html(&large)),
        ],
    );
    let mut order = order(&web, &names, "4711", "one.test", "normal");
    order.text("scope.size", "50 kB");
    let harvest: Harvest = Job::crawl(&order);
    let line = harvest.line(&web.url("one.test", "/large"));
    assert!(line.has("midFetchTrunc"), "{line:?}");
    assert!(
        harvest
            .response(&web.url("one.test", "/large"))
            .field("WARC-Truncated")
            .is_some()
    );
    assert_eq!(harvest.line(&web.url("one.test", "/0")).status, 200);
}
