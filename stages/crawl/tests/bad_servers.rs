//! Servers and names at their worst, each beside a healthy host: the bad end within their limits with the right status,
//! the healthy is captured whole meanwhile, and the job ends.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod web;

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, SystemTime};

use ecluse_testkit::dns::{Named, Names};
use ecluse_testkit::root::until_so;
use ecluse_testkit::web::{After, Answer, SeenRequest, Web, WebRequest, Wire, gzip, html, raw};
use ecluse_warc::{RecordKind, Sha1Digest};

use web::{Harvest, Job, Order, at, web_on};

/// So many that the healthy host is still being asked when the bad one has reached its limits.
const GOOD_PAGES: usize = 40;
/// The healthy host is never left alone for so long.
const LARGEST_GAP: Duration = Duration::from_secs(1);

/// A web with a healthy host; `bad.test` is on an address of its own.
struct Beside {
    web: Web,
    names: Names,
    order: Order,
}

impl Beside {
    fn new() -> Self {
        let (web, names) = web_on(3);
        names.set("bad.test", Named::V4(vec![at(2)]));
        let links: String = (0..GOOD_PAGES)
            .map(|page| format!("<a href='/{page}'>{page}</a>"))
            .collect();
        let mut pages = vec![("/".to_owned(), html(&links))];
        pages.extend((0..GOOD_PAGES).map(|page| {
            let body = format!("<p>page {page}</p>");
            (format!("/{page}"), html(&body))
        }));
        web.pages("good.test", pages);
        let mut order = Order::new(&names);
        order.seed(web.url("good.test", "/"));
        Self { web, names, order }
    }

    /// Begins with a server that has no robots.txt, and does this with all else.
    fn server(
        handler: impl Fn(&WebRequest, &mut Wire) -> io::Result<After> + Send + Sync + 'static,
    ) -> Self {
        let mut beside = Self::new();
        beside.web.host("bad.test", move |request, wire| {
            if request.target == "/robots.txt" {
                return wire.answer(&Answer::missing());
            }
            handler(request, wire)
        });
        beside.order.seed(beside.bad("/"));
        beside
    }

    fn bad(&self, path: &str) -> String {
        self.web.url("bad.test", path)
    }

    /// Crawls, and checks that the healthy host was captured whole and without waiting for the bad one.
    fn crawl(&self) -> Harvest {
        let harvest = Job::crawl(&self.order);
        for page in 0..GOOD_PAGES {
            let url = self.web.url("good.test", &format!("/{page}"));
            let body = format!("<p>page {page}</p>");
            let response = harvest.response(&url);
            assert!(response.block.ends_with(body.as_bytes()), "{url}");
            assert_eq!(harvest.line(&url).status, 200, "{url}");
        }
        harvest.each_line_once();
        let asked = self.web.log_of(&["good.test"]);
        assert!(asked.len() > GOOD_PAGES, "{} requests", asked.len());
        let gap_of = |pair: &[SeenRequest]| {
            let answered = pair[0].end.unwrap_or(pair[0].start);
            pair[1].start.saturating_duration_since(answered)
        };
        let gap = asked.windows(2).map(gap_of).max().unwrap();
        eprintln!("measured: {gap:?} is the healthy host's largest gap");
        assert!(gap < LARGEST_GAP, "the healthy host waited {gap:?}");
        harvest
    }
}

#[test]
fn headers_that_never_end_are_cut_at_the_limit() {
    let mut beside = Beside::server(|_, wire| {
        wire.send(b"HTTP/1.1 200 OK\r\n")?;
        loop {
            wire.send(format!("X-More: {}\r\n", "x".repeat(1000)).as_bytes())?;
        }
    });
    beside.order.text("limits.head", "32 KiB");
    let harvest = beside.crawl();
    let line = harvest.line(&beside.bad("/"));
    assert_eq!(line.status, -3, "{line:?}");
    assert!(line.has("headerTrunc"), "{line:?}");
}

#[test]
fn a_body_that_never_ends_is_cut_at_the_limit() {
    let mut beside = Beside::server(|_, wire| {
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")?;
        loop {
            wire.send(&[b'x'; 4096])?;
        }
    });
    beside.order.text("limits.size", "64 KiB");
    let harvest = beside.crawl();
    let line = harvest.line(&beside.bad("/"));
    assert_eq!(line.status, 200, "{line:?}");
    assert!(line.has("lenTrunc"), "{line:?}");
    let response = harvest.response(&beside.bad("/"));
    assert_eq!(response.field("WARC-Truncated"), Some("length"));
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n".len();
    assert_eq!(response.block.len(), head + (64 << 10));
}

#[test]
fn a_drip_is_cut_by_time() {
    let mut beside = Beside::server(|_, wire| {
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")?;
        wire.drip(b"x", 1000, Duration::from_millis(300))?;
        Ok(After::Close)
    });
    beside.order.text("limits.time", "2s");
    let harvest = beside.crawl();
    let line = harvest.line(&beside.bad("/"));
    assert_eq!(line.status, 200, "{line:?}");
    assert!(line.has("timeTrunc"), "{line:?}");
    let response = harvest.response(&beside.bad("/"));
    assert_eq!(response.field("WARC-Truncated"), Some("time"));
    let body = &response.block[b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n".len()..];
    assert!((1..1000).contains(&body.len()), "{} bytes", body.len());
    assert!(body.iter().all(|byte| *byte == b'x'));
}

#[test]
fn silence_in_a_body_is_cut_by_the_idle_limit() {
    let mut beside = Beside::server(|_, wire| {
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nten bytes.")?;
        wire.hang()
    });
    beside.order.text("limits.idle", "500ms");
    let harvest = beside.crawl();
    let line = harvest.line(&beside.bad("/"));
    assert_eq!(line.status, 200, "{line:?}");
    assert!(line.has("timeTrunc"), "{line:?}");
    assert!(
        harvest
            .response(&beside.bad("/"))
            .block
            .ends_with(b"\r\n\r\nten bytes.")
    );
}

#[test]
fn a_server_that_says_nothing_is_a_time_out() {
    let mut beside = Beside::server(|_, wire| wire.hang());
    beside
        .order
        .text("limits.idle", "500ms")
        .text("limits.time", "1s");
    let harvest = beside.crawl();
    assert_eq!(harvest.line(&beside.bad("/")).status, -4);
    assert!(
        harvest
            .of(RecordKind::Response, &beside.bad("/"))
            .is_empty()
    );
}

#[test]
fn a_bomb_is_kept_as_it_came_and_read_no_further_than_the_limit() {
    let mut page = b"<a href='/inside'>first</a>".to_vec();
    page.resize(40 << 20, b' ');
    let bomb = gzip(&page);
    assert!(bomb.len() < 64 << 10);
    let fields = "Content-Type: text/html\r\nContent-Encoding: gzip\r\n";
    let answer = Answer::new("200 OK", fields, &bomb);
    let mut beside = Beside::server(move |request, wire| match request.target.as_str() {
        "/" => wire.answer(&answer),
        _ => wire.answer(&html("inside")),
    });
    beside.order.text("extract.size", "256 KiB");
    let harvest = beside.crawl();
    let line = harvest.line(&beside.bad("/"));
    assert_eq!(line.status, 200, "{line:?}");
    let response = harvest.response(&beside.bad("/"));
    assert!(response.block.ends_with(&bomb));
    let digest = Sha1Digest::of(&bomb).to_string();
    assert_eq!(response.field("WARC-Payload-Digest"), Some(digest.as_str()));
    assert_eq!(harvest.line(&beside.bad("/inside")).status, 200);
}

#[test]
fn a_large_response_is_kept_and_stops_nobody() {
    const LARGE: usize = 1536 << 20;
    let mut beside = Beside::server(|_, wire| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n");
        wire.send(head.as_bytes())?;
        let piece = [b'x'; 1 << 20];
        for _ in 0..LARGE / piece.len() {
            wire.send(&piece)?;
        }
        Ok(After::Close)
    });
    beside
        .order
        .text("warc.compression", "none")
        .text("limits.time", "5m")
        // The healthy host is still being asked when it is written.
        .text("manners.min-delay", "500ms")
        .text("manners.max-delay", "500ms");
    let harvest = beside.crawl();
    let response = harvest.response(&beside.bad("/"));
    assert_eq!(response.field("WARC-Truncated"), None);
    let length: usize = response.field("Content-Length").unwrap().parse().unwrap();
    assert!(length > LARGE, "{length} bytes");
}

#[test]
fn a_head_of_folded_lines_stops_nobody() {
    let mut beside = Beside::server(|_, wire| {
        let lines = " \r\n".repeat(250 << 10 >> 2);
        wire.answer(&Answer::new(
            "200 OK",
            &format!("X-Folded:\r\n{lines}"),
            b"",
        ))
    });
    beside.order.text("limits.head", "256 KiB");
    let harvest = beside.crawl();
    assert!(harvest.line(&beside.bad("/")).has("foldedHeader"));
}

/// Members with nothing in them, over and over, packed and packed again: the innermost layer never gives a byte.
fn layers_of_nothing() -> (Vec<u8>, Answer) {
    let mut layers = gzip(b"").repeat(1 << 20);
    for _ in 0..3 {
        layers = gzip(&layers);
    }
    let fields = "Content-Type: text/html\r\nContent-Encoding: gzip, gzip, gzip, gzip\r\n";
    let answer = Answer::new("200 OK", fields, &layers);
    (layers, answer)
}

#[test]
fn a_job_that_decodes_layers_of_nothing_can_be_stopped() {
    let (_, answer) = layers_of_nothing();
    let beside = Beside::server(move |_, wire| wire.answer(&answer));
    let job = Job::give(&beside.order);
    let mut program = job.start();
    until_so("the layers are fetched", || {
        let asked = beside.web.log_of(&["bad.test"]);
        asked
            .iter()
            .any(|seen| seen.target == "/" && seen.end.is_some())
    });
    assert_eq!(program.stop(), 0, "{}", program.log());
    job.finish();
}

#[test]
fn gzip_in_gzip_in_gzip_stops_nobody() {
    let (layers, answer) = layers_of_nothing();
    let beside = Beside::server(move |_, wire| wire.answer(&answer));
    let harvest = beside.crawl();
    assert_eq!(harvest.line(&beside.bad("/")).status, 200);
    assert!(harvest.response(&beside.bad("/")).block.ends_with(&layers));
}

#[test]
fn long_robots_of_many_hosts_stop_nobody() {
    let mut beside = Beside::new();
    let rules = "User-agent: *\n".to_owned() + &"Disallow:/a\n".repeat(40_000);
    let fields = "Content-Type: text/plain\r\nContent-Encoding: gzip\r\n";
    let robots = Answer::new("200 OK", fields, &gzip(rules.as_bytes()));
    for number in 0..20 {
        let (host, robots) = (format!("h{number}.test"), robots.clone());
        beside.names.set(&host, Named::V4(vec![at(2)]));
        beside.order.seed(beside.web.url(&host, "/"));
        beside
            .web
            .host(&host, move |request, wire| match &*request.target {
                "/robots.txt" => wire.answer(&robots),
                _ => wire.answer(&html("page")),
            });
    }
    let harvest = beside.crawl();
    for number in 0..20 {
        let url = beside.web.url(&format!("h{number}.test"), "/");
        assert_eq!(harvest.line(&url).status, 200, "{url}");
    }
}

#[test]
fn redirects_in_a_circle_end() {
    let beside = Beside::server(|request, wire| {
        wire.answer(&match request.target.as_str() {
            "/" => Answer::redirect("/a"),
            "/a" => Answer::redirect("/b"),
            _ => Answer::redirect("/a"),
        })
    });
    let harvest = beside.crawl();
    for path in ["/", "/a", "/b"] {
        assert_eq!(harvest.line(&beside.bad(path)).status, 302, "{path}");
    }
    assert_eq!(
        beside.web.log_of(&["bad.test"]).len(),
        4,
        "robots.txt and three"
    );
}

#[test]
fn redirects_that_lead_ever_further_end() {
    let mut beside = Beside::server(|request, wire| {
        let number: u32 = request.target[1..].parse().unwrap_or(0);
        wire.answer(&Answer::redirect(&format!("/{}", number + 1)))
    });
    beside
        .order
        .set("scope.hops", 6)
        .set("scope.redirect-hops", 6);
    let harvest = beside.crawl();
    let asked = beside.web.log_of(&["bad.test"]).len();
    assert_eq!(asked, 1 + 1 + 6, "robots.txt, the seed, and six hops");
    assert_eq!(harvest.line(&beside.bad("/1")).status, 302);
}

#[test]
fn a_calendar_is_left_where_its_years_are_absurd() {
    let seconds = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let now = 1970 + i64::try_from(seconds / 31_556_952).unwrap();
    let beside = Beside::server(move |request, wire| {
        let year = request.target.split('/').nth(2);
        let year: i64 = year.and_then(|year| year.parse().ok()).unwrap_or(now);
        wire.answer(&html(&format!(
            "<a href='/calendar/{}/11'>before</a> <a href='/calendar/{}/11'>after</a>",
            year - 1,
            year + 1
        )))
    });
    let harvest = beside.crawl();
    let years: Vec<i64> = harvest
        .lines
        .iter()
        .filter_map(|line| {
            let date = line.url.split("/calendar/").nth(1)?;
            date.split('/').next()?.parse().ok()
        })
        .collect();
    assert!(
        years.contains(&now) || years.contains(&(now + 1)),
        "{years:?}"
    );
    let absurd: Vec<&i64> = years
        .iter()
        .filter(|year| !(1600..=now + 3).contains(*year))
        .collect();
    assert!(absurd.is_empty(), "{absurd:?}");
}

#[test]
fn ten_megabytes_of_links_are_kept_and_followed_up_to_the_limit() {
    let mut page = String::new();
    let mut number = 0;
    while page.len() < 10 << 20 {
        page.push_str(&format!(
            "<a href='/page/{number}?and-a-long-argument=of-no-use'>x</a>"
        ));
        number += 1;
    }
    let answer = html(&page);
    let length = answer.bytes().len();
    let mut beside = Beside::server(move |request, wire| match request.target.as_str() {
        "/" => wire.answer(&answer),
        _ => wire.answer(&html("one of many")),
    });
    beside.order.set("extract.links", 40);
    beside.order.text("limits.time", "20s");
    let harvest = beside.crawl();
    assert_eq!(harvest.response(&beside.bad("/")).block.len(), length);
    let asked = beside.web.log_of(&["bad.test"]).len();
    assert_eq!(asked, 42, "robots.txt, the page and its first links");
}

#[test]
fn a_length_that_is_too_large_is_a_disconnect() {
    let answer = Answer::raw("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nshort");
    let beside = Beside::server(move |_, wire| wire.answer(&answer));
    let harvest = beside.crawl();
    let line = harvest.line(&beside.bad("/"));
    assert_eq!(line.status, 200, "{line:?}");
    assert!(line.has("disconnectTrunc"), "{line:?}");
    let response = harvest.response(&beside.bad("/"));
    assert_eq!(response.field("WARC-Truncated"), Some("disconnect"));
    assert!(response.block.ends_with(b"\r\n\r\nshort"));
}

#[test]
fn a_length_that_is_too_small_leaves_the_rest_out() {
    let answer = Answer::raw("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nshort and more");
    let beside = Beside::server(move |_, wire| wire.answer(&answer));
    let harvest = beside.crawl();
    let line = harvest.line(&beside.bad("/"));
    assert_eq!(line.status, 200, "{line:?}");
    assert!(
        line.annotations
            .iter()
            .any(|what| what.starts_with("excess:")),
        "{line:?}"
    );
    let response = harvest.response(&beside.bad("/"));
    assert_eq!(response.field("WARC-Truncated"), None);
    assert!(response.block.ends_with(b"\r\n\r\nshort"));
}

#[test]
fn a_reset_in_the_body_keeps_what_came() {
    let mut beside = Beside::server(|_, wire| {
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\nsome bytes")?;
        // More than lies between the two: when all of it is sent, the first bytes have arrived. A reset takes what has not.
        wire.send(&vec![b'x'; 16 << 20])?;
        Ok(After::Reset)
    });
    beside
        .order
        .text("warc.compression", "none")
        .text("limits.time", "1m");
    let harvest = beside.crawl();
    let line = harvest.line(&beside.bad("/"));
    assert_eq!(line.status, 200, "{line:?}");
    assert!(line.has("disconnectTrunc"), "{line:?}");
    let block = &harvest.response(&beside.bad("/")).block;
    let came = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\nsome bytesxxx";
    assert!(block.starts_with(came));
}

#[test]
fn a_reset_before_any_byte_is_a_lost_connection() {
    let beside = Beside::server(|_, _| Ok(After::Reset));
    let harvest = beside.crawl();
    assert_eq!(harvest.line(&beside.bad("/")).status, -3);
    assert!(
        harvest
            .of(RecordKind::Response, &beside.bad("/"))
            .is_empty()
    );
}

#[test]
fn nobody_listens() {
    let mut beside = Beside::new();
    // A port that was free a moment ago on an address where nothing else is.
    let port = std::net::TcpListener::bind((at(9), 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    beside.names.set("bad.test", Named::V4(vec![at(9)]));
    beside
        .order
        .set("robots.domains", "{ \"bad.test\" = \"ignore\" }");
    let url = format!("http://bad.test:{port}/");
    beside.order.seed(&url);
    assert_eq!(beside.crawl().line(&url).status, -2);
}

#[test]
fn garbage_instead_of_tls() {
    let mut beside = Beside::new();
    let port = raw(|mut socket: TcpStream| {
        let _ = socket.write_all(b"SSH-2.0-OpenSSH_9.6\r\n");
        let _ = socket.read(&mut [0; 1024]);
    });
    beside.names.set("bad.test", Named::V4(vec![at(1)]));
    beside
        .order
        .set("robots.domains", "{ \"bad.test\" = \"ignore\" }");
    let url = format!("https://bad.test:{port}/");
    beside.order.seed(&url);
    let harvest = beside.crawl();
    assert_eq!(harvest.line(&url).status, -2);
    assert!(harvest.of(RecordKind::Response, &url).is_empty());
}

#[test]
fn a_page_behind_robots_that_cannot_be_had_is_not_asked_for() {
    let mut beside = Beside::new();
    beside
        .web
        .host("bad.test", |request, wire| match request.target.as_str() {
            "/robots.txt" => wire.answer(&Answer::new("500 Broken", "", b"")),
            _ => wire.answer(&html("never")),
        });
    beside.order.seed(beside.bad("/"));
    let harvest = beside.crawl();
    let line = harvest.line(&beside.bad("/"));
    assert!([-61, -9998].contains(&line.status), "{line:?}");
    let pages = beside.web.log_of(&["bad.test"]);
    assert!(pages.iter().all(|seen| seen.target == "/robots.txt"));
}

/// Makes a host whose robots.txt redirects there.
fn robots_elsewhere(web: &Web, target: &str) {
    let there = format!("Location: {target}\r\n");
    web.host("bad.test", move |request, wire| {
        match request.target.as_str() {
            "/robots.txt" => wire.answer(&Answer::new("302 Found", &there, b"")),
            _ => wire.answer(&html("page")),
        }
    });
}

#[test]
fn robots_that_lead_to_where_nobody_may_ask_end() {
    let mut beside = Beside::new();
    robots_elsewhere(&beside.web, "gopher://bad.test/");
    beside.order.seed(beside.bad("/"));
    let harvest = beside.crawl();
    // It leads nowhere, which is as if there was none.
    assert_eq!(harvest.line(&beside.bad("/")).status, 200);
    assert_eq!(asked_for_robots(&beside.web), 1);
}

#[test]
fn robots_that_lead_to_their_like_are_followed() {
    let mut beside = Beside::new();
    let target = "/robots.txt;jsessionid=0123456789abcdef0123456789abcdef";
    beside.web.host("bad.test", move |request, wire| {
        let there = format!("Location: {target}\r\n");
        let rules = b"User-agent: *\nDisallow: /no";
        wire.answer(&match request.target.as_str() {
            "/robots.txt" => Answer::new("302 Found", &there, b""),
            path if path == target => Answer::of("text/plain", rules),
            _ => html("page"),
        })
    });
    // Both are one URL to the frontier, and as a link it would not be followed.
    beside
        .order
        .set("scope.reject-regexes", "['.*;jsessionid=.*']");
    beside.order.seed(beside.bad("/"));
    beside.order.seed(beside.bad("/no"));
    let harvest = beside.crawl();
    assert_eq!(harvest.line(&beside.bad("/")).status, 200);
    assert_eq!(harvest.line(&beside.bad("/no")).status, -9998);
    assert_eq!(asked_for_robots(&beside.web), 1);
}

#[test]
fn robots_that_lead_to_a_slow_host_are_asked_for_once() {
    let mut beside = Beside::new();
    let target = beside.web.url("slow.test", "/r");
    robots_elsewhere(&beside.web, &target);
    beside.names.set("slow.test", Named::V4(vec![at(3)]));
    beside.web.host("slow.test", |_, wire| {
        std::thread::sleep(Duration::from_millis(1200));
        wire.answer(&Answer::of("text/plain", b"User-agent: *\nDisallow: /no"))
    });
    beside.order.text("robots.retry", "1m");
    beside.order.seed(beside.bad("/"));
    beside.order.seed(beside.bad("/no"));
    let harvest = beside.crawl();
    assert_eq!(harvest.line(&beside.bad("/")).status, 200);
    assert_eq!(harvest.line(&beside.bad("/no")).status, -9998);
    assert_eq!(asked_for_robots(&beside.web), 1);
}

#[test]
fn robots_that_lead_to_where_nothing_comes_from_are_given_up() {
    let mut beside = Beside::new();
    let target = beside.web.url("spent.test", "/r");
    robots_elsewhere(&beside.web, &target);
    beside.names.set("spent.test", Named::V4(vec![at(1)]));
    // Its queue may fetch nothing at all.
    beside.order.set(
        "budget.exceptions",
        "[{ hosts = ['spent.test'], time = '1ms' }]",
    );
    beside.web.host("spent.test", |_, wire| {
        wire.answer(&html("<a href='/x'></a>"))
    });
    beside.order.seed(beside.web.url("spent.test", "/"));
    beside.order.seed(beside.bad("/"));
    let harvest = beside.crawl();
    let line = harvest.line(&beside.bad("/"));
    assert!([-61, 200].contains(&line.status), "{line:?}");
}

#[test]
fn robots_longer_than_the_limit_end_with_their_last_whole_line() {
    let mut beside = Beside::new();
    beside
        .web
        .host("bad.test", |request, wire| match request.target.as_str() {
            "/robots.txt" => wire.answer(&Answer::of(
                "text/plain",
                b"User-agent: *\nDisallow: /no\nDisallow: /private\n",
            )),
            _ => wire.answer(&html("page")),
        });
    // It ends behind the `/p` of the last line, which would forbid more than the line does.
    beside.order.text("robots.size", "40 B");
    for path in ["/page", "/no"] {
        beside.order.seed(beside.bad(path));
    }
    let harvest = beside.crawl();
    assert_eq!(harvest.line(&beside.bad("/page")).status, 200);
    assert_eq!(harvest.line(&beside.bad("/no")).status, -9998);
}

fn asked_for_robots(web: &Web) -> usize {
    let seen = web.log_of(&["bad.test"]);
    let robots = seen.iter().filter(|seen| seen.target == "/robots.txt");
    robots.count()
}

#[test]
fn private_addresses_are_not_asked() {
    let (web, names) = web_on(1);
    for host in ["inside.test", "open.test"] {
        web.pages(host, [("/".to_owned(), html("secret"))]);
    }
    let mut order = Order::new(&names);
    order.set("network.allow-private", false);
    order.set("robots.domains", "{ \"open.test\" = \"ignore\" }");
    let literal = format!("http://127.0.0.1:{}/", web.port());
    let urls = [
        web.url("inside.test", "/"),
        web.url("open.test", "/"),
        literal,
    ];
    for url in &urls {
        order.seed(url);
    }
    let harvest = Job::crawl(&order);
    for url in &urls {
        assert_eq!(harvest.line(url).status, -5001, "{url}");
    }
    assert!(web.log().is_empty(), "{:?}", web.log());
}

/// A name that cannot be had, and the status it gives.
fn bad_name(named: Named) {
    let mut beside = Beside::new();
    beside.names.set("bad.test", named);
    beside.order.seed(beside.bad("/"));
    beside.order.set("budget.queue.tries", 1);
    let harvest = beside.crawl();
    let line = harvest.line(&beside.bad("/"));
    assert_eq!(line.status, -1, "{line:?}");
    assert!(beside.web.log_of(&["bad.test"]).is_empty());
}

#[test]
fn a_name_that_does_not_exist() {
    bad_name(Named::NoSuchName);
}

#[test]
fn a_name_without_an_address() {
    bad_name(Named::NoAddress);
}

#[test]
fn a_name_whose_server_fails() {
    bad_name(Named::Fails);
}

#[test]
fn a_name_whose_server_is_silent() {
    bad_name(Named::Silent);
}
