//! On-line importance: what more leads to is fetched first, and only where the order asks for it.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod web;

use ecluse_testkit::web::{Web, html};

use web::{Job, Order, web_on};

/// The paths that the host was asked for, in order, robots.txt apart.
fn asked(web: &Web) -> Vec<String> {
    let log = web.log_of(&["opic.test"]);
    let targets = log.into_iter().map(|seen| seen.target);
    targets.filter(|target| target != "/robots.txt").collect()
}

/// The home page leads to two others; the first has twenty links, the second one.
fn site(web: &Web) {
    let many: String = (0..20).map(|n| format!("<a href='/m{n}'>m</a>")).collect();
    let mut pages = vec![
        (
            "/".to_owned(),
            html("<a href='/many'>a</a><a href='/one'>b</a>"),
        ),
        ("/many".to_owned(), html(&many)),
        ("/one".to_owned(), html("<a href='/chosen'>c</a>")),
        ("/chosen".to_owned(), html("the end")),
    ];
    pages.extend((0..20).map(|n| (format!("/m{n}"), html("the end"))));
    web.pages("opic.test", pages);
}

fn crawl(importance: &str) -> Vec<String> {
    let (web, names) = web_on(1);
    site(&web);
    let mut order = Order::new(&names);
    order.seed(web.url("opic.test", "/"));
    order.text("frontier.importance", importance);
    Job::crawl(&order);
    asked(&web)
}

#[test]
fn links_that_much_leads_to_go_first_where_the_order_says_so() {
    let place = |paths: &[String], path: &str| paths.iter().position(|p| p == path).unwrap();
    let plain = crawl("none");
    assert_eq!(plain.len(), 24);
    assert!(place(&plain, "/m0") < place(&plain, "/chosen"), "{plain:?}");
    let online = crawl("opic");
    assert_eq!(online.len(), 24);
    // What one page leads to alone has as much as that page had; a twentieth goes to each of the others.
    assert!(
        place(&online, "/chosen") < place(&online, "/m0"),
        "{online:?}"
    );
}
