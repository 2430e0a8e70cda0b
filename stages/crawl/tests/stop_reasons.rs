//! Why a domain's harvest stopped, as the real crawl tells plan: each of NetarchiveSuite's reasons.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod web;

use std::fs;

use ecluse_testkit::dns::Names;
use ecluse_testkit::root::Root;
use ecluse_testkit::web::{Web, html};

use web::{CRAWL, Order, web_on};

/// Pages that the first one leads to.
const PAGES: usize = 9;

fn site(web: &Web, host: &str) {
    let links: String = (0..PAGES)
        .map(|page| format!("<a href='/{page}'></a>"))
        .collect();
    let mut pages = vec![("/".to_owned(), html(&links))];
    // No two are the same, and each is large beside its head.
    let page = |page: usize| html(&format!("{page} ").repeat(2000));
    pages.extend((0..PAGES).map(|number| (format!("/{number}"), page(number))));
    web.pages(host, pages);
}

/// Crawls to the end of the job, and returns the lines of its results: site, seeds, objects, reason.
fn results(order: &Order, end: Option<&str>) -> Vec<(String, u64, u64, String)> {
    let root = Root::new();
    root.settings(&["crawl", "plan"], "[stage.crawl]\nback = ['plan']\n");
    let text = order.text_of();
    root.put_files("crawl", "order", &[("order.toml", text.as_bytes())]);
    if let Some(end) = end {
        let control = root.path().join("jobs/4711-7/control");
        fs::create_dir_all(&control).unwrap();
        fs::write(control.join("END"), end).unwrap();
    }
    let (code, said) = root.run(CRAWL, &["--once"]);
    assert_eq!(code, 0, "{said}");
    let ready = root.list("plan", "ready");
    assert_eq!(ready.len(), 1, "{said}");
    let file = root
        .part("plan", "ready")
        .join(&ready[0])
        .join("results.tsv");
    let text = fs::read_to_string(file).unwrap();
    let lines = text.lines().map(|line| {
        let columns: Vec<&str> = line.split('\t').collect();
        let number = |at: usize| columns[at].parse().unwrap();
        (
            columns[1].to_owned(),
            number(2),
            number(3),
            columns[5].to_owned(),
        )
    });
    lines.collect()
}

/// Returns the objects and the reason of the one domain of an order with these keys, as TOML has them.
fn stop(web: &Web, names: &Names, keys: &[(&str, &str)], end: Option<&str>) -> (u64, String) {
    let mut order = Order::new(names);
    order
        .seed(web.url("site.test", "/"))
        .text("manners.queue-by", "domain");
    for (key, value) in keys {
        order.set(key, value);
    }
    let results = results(&order, end);
    assert_eq!(results.len(), 1, "{results:?}");
    let (site, seeds, objects, stop) = results[0].clone();
    assert_eq!((site.as_str(), seeds), ("site.test", 1));
    (objects, stop)
}

#[test]
fn each_limit_is_told_by_its_own_reason() {
    let (web, names) = web_on(1);
    site(&web, "site.test");
    let urls = ("budget.queue.urls", "4");
    let bytes = ("budget.queue.bytes", "'6 KB'");
    let own = ("budget.queue.own", "true");
    let exception = |what| ("budget.exceptions", what);
    let own_urls = exception("[{ hosts = ['.site.test'], urls = 4 }]");
    let own_bytes = exception("[{ hosts = ['.site.test'], bytes = '6 KB' }]");
    let roomy = exception("[{ hosts = ['.site.test'], bytes = '1 GB' }]");
    // What is set, and the reason.
    let cases: [(&[(&str, &str)], &str); 11] = [
        (&[], "DOWNLOAD_COMPLETE"),
        (&[urls], "OBJECT_LIMIT"),
        (&[bytes], "SIZE_LIMIT"),
        (&[urls, own], "CONFIG_OBJECT_LIMIT"),
        (&[bytes, own], "CONFIG_SIZE_LIMIT"),
        (&[own_urls], "CONFIG_OBJECT_LIMIT"),
        (&[own_bytes], "CONFIG_SIZE_LIMIT"),
        // An exception for something else is not what stopped it.
        (&[roomy, urls], "OBJECT_LIMIT"),
        (&[("budget.queue.time", "'1ms'")], "TIME_LIMIT"),
        (&[("budget.time", "'1ms'")], "TIME_LIMIT"),
        (&[("budget.urls", "3")], "DOWNLOAD_UNFINISHED"),
    ];
    for (keys, reason) in cases {
        let (objects, stop) = stop(&web, &names, keys, None);
        assert_eq!(stop, reason, "{keys:?}");
        let is_whole = objects > PAGES as u64;
        let is_complete = stop == "DOWNLOAD_COMPLETE";
        assert_eq!(is_whole, is_complete, "{keys:?}: {objects} objects");
    }
}

/// What a person writes is no reason: a job ended by hand is unfinished, whatever its limit of time is called.
#[test]
fn a_job_ended_by_hand_is_unfinished_and_not_late() {
    let (web, names) = web_on(1);
    site(&web, "site.test");
    let end = r#"{"who": "anne", "why": "the limit of 1h was reached, said the site"}"#;
    let (_, reason) = stop(&web, &names, &[("budget.time", "'1h'")], Some(end));
    assert_eq!(reason, "DOWNLOAD_UNFINISHED");
}
