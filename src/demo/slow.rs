//! `slow.localhost`: a server that asks for patience in three ways: a Crawl-delay, a 503, and bytes that drip.

use std::time::Duration;

use super::page::{Manner, Page, links};

pub(crate) fn page(path: &str, first_time: impl FnOnce() -> bool) -> Option<Page> {
    let page = match path {
        "/" => Page::html(
            "Slowly",
            &links([
                ("Busy", "/busy".to_owned()),
                ("Dripping", "/drip".to_owned()),
            ]),
        ),
        "/robots.txt" => Page::text("User-agent: *\nCrawl-delay: 0.5\n"),
        "/style.css" => Page::of("text/css", "body { opacity: 0.8 }\n"),
        "/busy" if first_time() => Page {
            status: 503,
            validates: false,
            ..Page::text("come back in a second\n")
        }
        .with("Retry-After", "1"),
        "/busy" => Page::html("Busy", "<p>Thank you for waiting.</p>"),
        "/drip" => {
            Page::text(&"drip ".repeat(200)).sent(Manner::Dripping(Duration::from_millis(80)))
        }
        _ => return None,
    };
    Some(page)
}
