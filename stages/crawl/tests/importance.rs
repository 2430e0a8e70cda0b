//! On-line importance: what more leads to is fetched first, and only where the order asks for it.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod web;

use ecluse_testkit::dns::Names;
use ecluse_testkit::web::{Web, html};

use web::{Job, Order, web_on};

/// The paths that the host was asked for, in order, robots.txt apart.
fn asked(web: &Web) -> Vec<String> {
    let log = web.log_of(&["opic.test"]);
    let targets = log.into_iter().map(|seen| seen.target);
    targets.filter(|target| target != "/robots.txt").collect()
}

/// An order by importance, or by none. It has more patience than others: on a machine under load an answer takes longer than the two seconds that
/// tests mostly wait, and is asked for again.
fn order_by(importance: &str, web: &Web, names: &Names) -> Order {
    let mut order = Order::new(names);
    order.seed(web.url("opic.test", "/"));
    order.text("frontier.importance", importance);
    for limit in ["limits.connect", "limits.idle", "limits.time"] {
        order.text(limit, "1m");
    }
    order
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
    let order = order_by(importance, &web, &names);
    Job::crawl(&order).each_line_once();
    asked(&web)
}

#[test]
fn links_that_much_leads_to_go_first_where_the_order_says_so() {
    let place = |paths: &[String], path: &str| paths.iter().position(|p| p == path).unwrap();
    let plain = crawl("none");
    assert_eq!(plain.len(), 24, "{plain:?}");
    assert!(place(&plain, "/m0") < place(&plain, "/chosen"), "{plain:?}");
    let online = crawl("opic");
    assert_eq!(online.len(), 24, "{online:?}");
    // What one page leads to alone has as much as that page had; a twentieth goes to each of the others.
    assert!(
        place(&online, "/chosen") < place(&online, "/m0"),
        "{online:?}"
    );
}

/// One page has forty links; the last of them is found again on a page that is fetched before all of them.
#[test]
fn a_link_that_waits_goes_forward_when_more_leads_to_it() {
    let (web, names) = web_on(1);
    let many: String = (0..40)
        .map(|n| format!("<a href='/m{n:02}'>m</a>"))
        .collect();
    let mut pages = vec![
        (
            "/".to_owned(),
            html("<a href='/many'>a</a><a href='/one'>b</a>"),
        ),
        ("/many".to_owned(), html(&many)),
        ("/one".to_owned(), html("<a href='/m39'>m</a>")),
    ];
    pages.extend((0..40).map(|n| (format!("/m{n:02}"), html("the end"))));
    web.pages("opic.test", pages);
    let order = order_by("opic", &web, &names);
    Job::crawl(&order).each_line_once();
    let asked = asked(&web);
    assert_eq!(asked.len(), 43, "{asked:?}");
    // It was found with the others and as the last of them, and had no more than they had.
    assert_eq!(asked[..4], ["/", "/many", "/one", "/m39"], "{asked:?}");
    assert_eq!(asked[4], "/m00", "{asked:?}");
}
