//! Which links of a site are followed, seen by its server.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod web;

use std::collections::BTreeSet;

use ecluse_testkit::web::{After, Answer, Web, chunked, gzip, html};
use ecluse_warc::{RecordKind, Sha1Digest};

use web::{Job, Order, web_on};

/// The paths that a host was asked for, robots.txt apart.
fn asked(web: &Web, host: &str) -> BTreeSet<String> {
    let log = web.log_of(&[host]);
    let targets = log.into_iter().map(|seen| seen.target);
    targets.filter(|target| target != "/robots.txt").collect()
}

fn paths(paths: &[&str]) -> BTreeSet<String> {
    paths.iter().map(|&path| path.to_owned()).collect()
}

#[test]
fn packed_sitemaps_are_read() {
    let (web, names) = web_on(1);
    let urls = |path: &str| {
        let url = web.url("maps.test", path);
        gzip(format!("<urlset><url><loc>{url}</loc></url></urlset>").as_bytes())
    };
    let list = web.url("maps.test", "/listed");
    let robots = format!(
        "Sitemap: {}\nSitemap: {}\nSitemap: {}\n",
        web.url("maps.test", "/a.xml.gz"),
        web.url("maps.test", "/b"),
        web.url("maps.test", "/sitemap.txt.gz"),
    );
    let page = |path: &str, answer: Answer| (path.to_owned(), answer);
    web.pages(
        "maps.test",
        [
            page("/robots.txt", Answer::of("text/plain", robots.as_bytes())),
            page("/", html("home")),
            page(
                "/a.xml.gz",
                Answer::of("application/gzip", &urls("/from-a")),
            ),
            page(
                "/b",
                Answer::of("application/octet-stream", &urls("/from-b")),
            ),
            page(
                "/sitemap.txt.gz",
                Answer::of("application/x-gzip", &gzip(list.as_bytes())),
            ),
            page("/from-a", html("a")),
            page("/from-b", html("b")),
            page("/listed", html("c")),
        ],
    );
    let mut order = Order::new(&names);
    order.seed(web.url("maps.test", "/"));
    Job::crawl(&order);
    assert_eq!(
        asked(&web, "maps.test"),
        paths(&[
            "/",
            "/a.xml.gz",
            "/b",
            "/from-a",
            "/from-b",
            "/listed",
            "/sitemap.txt.gz"
        ])
    );
}

#[test]
fn links_that_a_page_asks_not_to_follow_are_not_where_robots_are_heeded() {
    let (web, names) = web_on(1);
    let page = "<meta name=robots content='noindex,nofollow'><a href=/next>x</a><img src=/x.png>";
    let header = Answer::new(
        "200 OK",
        "Content-Type: text/html\r\nX-Robots-Tag: nofollow\r\n",
        b"<a href=/header-next>x</a>",
    );
    let pages = [
        (
            "/".to_owned(),
            html("<a href=/page>x</a><a href=/header>x</a><a href=/marked rel=nofollow>x</a>"),
        ),
        ("/page".to_owned(), html(page)),
        ("/header".to_owned(), header),
        ("/next".to_owned(), html("next")),
        ("/header-next".to_owned(), html("next")),
        ("/marked".to_owned(), html("marked")),
        ("/x.png".to_owned(), Answer::of("image/png", b"png")),
    ];
    let always = ["/", "/page", "/header", "/x.png"];
    for (number, (settings, more)) in [
        (vec![], &["/marked"][..]),
        (vec![("robots.nofollow", "links")], &[]),
        (
            vec![("robots.nofollow", "ignore")],
            &["/marked", "/next", "/header-next"],
        ),
        (
            vec![("robots.policy", "ignore")],
            &["/marked", "/next", "/header-next"],
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let host = format!("follow{number}.test");
        web.pages(&host, pages.clone());
        let mut order = Order::new(&names);
        order.seed(web.url(&host, "/"));
        for (key, value) in &settings {
            order.text(key, value);
        }
        let harvest = Job::crawl(&order);
        assert_eq!(
            asked(&web, &host),
            paths(&[&always, more].concat()),
            "{settings:?}"
        );
        // It is recorded, whatever is made of it.
        for path in ["/page", "/header"] {
            let url = web.url(&host, path);
            assert!(harvest.line(&url).has("nofollow"), "{path} {settings:?}");
            let metadata = harvest.of(RecordKind::Metadata, &url);
            let text = String::from_utf8_lossy(&metadata[0].block).into_owned();
            assert!(text.contains("annotation: nofollow"), "{text}");
        }
        assert!(!harvest.line(&web.url(&host, "/")).has("nofollow"));
    }
}

#[test]
fn a_script_is_in_the_character_set_that_its_page_says() {
    let (web, names) = web_on(1);
    // Two letters in KOI8-R, which as any other character set would be others.
    let script = |letters: &[u8]| {
        let text = [b"x='/".as_slice(), letters, b"/a.png'"].concat();
        Answer::of("text/javascript", &text)
    };
    web.pages(
        "letters.test",
        [
            (
                "/".to_owned(),
                html("<script src=/told.js charset=koi8-r></script><script src=/own.js charset=koi8-r></script>"),
            ),
            ("/told.js".to_owned(), script(b"\xC4\xC1")),
            (
                "/own.js".to_owned(),
                Answer::of("text/javascript; charset=utf-8", "x='/é/b.png'".as_bytes()),
            ),
        ],
    );
    let mut order = Order::new(&names);
    order.seed(web.url("letters.test", "/"));
    Job::crawl(&order);
    let asked = asked(&web, "letters.test");
    assert!(asked.contains("/%D0%B4%D0%B0/a.png"), "{asked:?}");
    assert!(asked.contains("/%C3%A9/b.png"), "{asked:?}");
}

#[test]
fn a_redirect_back_with_a_cookie_is_followed_once() {
    let (web, names) = web_on(1);
    web.host("cookie.test", |request, wire| {
        let has_cookie = request.field("Cookie").is_some();
        let set = |to: &str| {
            let fields = format!("Location: {to}\r\nSet-Cookie: seen=1; path=/\r\n");
            Answer::new("302 Found", &fields, b"")
        };
        wire.answer(&match (request.path(), has_cookie) {
            ("/", false) => set("/"),
            ("/", true) => html("<a href=/inside/>x</a>"),
            // By way of another page, with a cookie of its own.
            ("/inside/", _) if request.field("Cookie").unwrap_or_default().contains("in=1") => {
                html("<a href=/stubborn>x</a>")
            }
            ("/inside/", _) => set("/inside/check"),
            ("/inside/check", _) => Answer::new(
                "302 Found",
                "Location: /inside/\r\nSet-Cookie: in=1; path=/\r\n",
                b"",
            ),
            // One that never has enough.
            ("/stubborn", _) => set("/stubborn"),
            _ => Answer::missing(),
        })
    });
    let mut order = Order::new(&names);
    order.seed(web.url("cookie.test", "/"));
    let harvest = Job::crawl(&order);
    let log = web.log_of(&["cookie.test"]);
    let times = |path: &str| log.iter().filter(|seen| seen.target == path).count();
    assert_eq!(
        ["/", "/inside/", "/inside/check", "/stubborn"].map(times),
        [2, 2, 1, 2]
    );
    let responses = harvest.of(RecordKind::Response, &web.url("cookie.test", "/"));
    let statuses: Vec<_> = responses
        .iter()
        .map(|response| response.status.clone().unwrap_or_default())
        .collect();
    assert_eq!(statuses, ["302", "200"]);
}

#[test]
fn a_neighbour_that_strings_link_to_is_not_harvested() {
    let (web, names) = web_on(1);
    let away = web.url("neighbour.test", "/post");
    let image = web.url("neighbour.test", "/x.png");
    let json = format!(r#"{{"rendered":"<a href=\"{away}\">x</a><img src=\"{image}\">"}}"#);
    let script = format!(r#"x="<a href='{away}?js'>x</a>""#);
    web.pages(
        "strings.test",
        [
            (
                "/".to_owned(),
                html("<script src=/a.js></script><link rel=preload href=/a.json>"),
            ),
            (
                "/a.js".to_owned(),
                Answer::of("text/javascript", script.as_bytes()),
            ),
            (
                "/a.json".to_owned(),
                Answer::of("application/json", json.as_bytes()),
            ),
        ],
    );
    web.pages("neighbour.test", []);
    let mut order = Order::new(&names);
    order
        .seed(web.url("strings.test", "/"))
        .text("scope.reach", "host");
    Job::crawl(&order);
    assert_eq!(asked(&web, "neighbour.test"), paths(&["/x.png"]));
}

#[test]
fn modules_fonts_and_frames_of_a_page_come_from_anywhere() {
    let (web, names) = web_on(1);
    let cdn = |path: &str| web.url("cdn.test", path);
    let script = |text: &str| Answer::of("text/javascript", text.as_bytes());
    let style = |text: &str| Answer::of("text/css", text.as_bytes());
    let page = |path: &str, answer: Answer| (path.to_owned(), answer);
    web.pages(
        "page.test",
        [page(
            "/",
            html(&format!(
                "<script type=module src={}></script><iframe src={}></iframe>",
                cdn("/m/1.js"),
                cdn("/frame")
            )),
        )],
    );
    web.pages(
        "cdn.test",
        [
            page("/m/1.js", script("import './2.js'")),
            page("/m/2.js", script("export * from './3.js'")),
            page("/m/3.js", script("import x from './4.js'")),
            page("/m/4.js", script("new URL('w.wasm', import.meta.url)")),
            page("/m/w.wasm", Answer::of("application/wasm", b"\0asm")),
            page(
                "/frame",
                html("<link rel=stylesheet href=/a.css><iframe src=/inner>"),
            ),
            page("/a.css", style("@import 'b.css'")),
            page("/b.css", style("@font-face{src:url(font.woff2)}")),
            page("/font.woff2", Answer::of("font/woff2", b"font")),
            page("/inner", html("<iframe src=/innermost>")),
        ],
    );
    let mut order = Order::new(&names);
    order
        .seed(web.url("page.test", "/"))
        .text("scope.reach", "host");
    Job::crawl(&order);
    assert_eq!(
        asked(&web, "cdn.test"),
        paths(&[
            "/m/1.js",
            "/m/2.js",
            "/m/3.js",
            "/m/4.js",
            "/m/w.wasm",
            "/frame",
            "/a.css",
            "/b.css",
            "/font.woff2",
            "/inner",
        ])
    );
}

#[test]
fn guesses_that_lead_nowhere_are_given_up() {
    let (web, names) = web_on(1);
    let index: Vec<String> = (0..60).map(|n| format!("'core/x{n}.html'")).collect();
    let script = format!("var index=[{}]", index.join(","));
    for (host, setting) in [("vain.test", None), ("eager.test", Some("\"none\""))] {
        web.pages(
            host,
            [
                (
                    "/".to_owned(),
                    html("<script src=/static/search.js></script>"),
                ),
                (
                    "/static/search.js".to_owned(),
                    Answer::of("text/javascript", script.as_bytes()),
                ),
            ],
        );
        let mut order = Order::new(&names);
        order.seed(web.url(host, "/"));
        if let Some(setting) = setting {
            order.set("extract.guess-misses", setting);
        }
        let harvest = Job::crawl(&order);
        let missing = asked(&web, host).len() - 2;
        let dropped = harvest.lines.iter().filter(|line| line.has("guessGivenUp"));
        let (dropped, expected) = (dropped.count(), if setting.is_none() { 5 } else { 60 });
        assert_eq!((missing, dropped), (expected, 60 - expected), "{host}");
    }
}

#[test]
fn revisits_name_their_original_and_damage_is_no_revisit() {
    let (web, names) = web_on(1);
    let body = b"<p>told twice, at some length</p>";
    web.host("twice.test", move |request, wire| {
        let mut whole =
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n"
                .to_vec();
        match request.path() {
            "/" => {
                let links =
                    "<a href=/one>1</a><a href=/two>2</a><a href=/damaged>3</a><a href=/old>4</a>";
                return wire.answer(&html(links));
            }
            "/one" => whole.extend_from_slice(&chunked(body, 7)),
            "/two" => whole.extend_from_slice(&chunked(body, 9)),
            "/damaged" => {
                let chunks = chunked(body, 7);
                whole.extend_from_slice(&chunks[..chunks.len() - 5]);
                whole.extend_from_slice(b"no size\r\n");
            }
            // HTTP/0.9: no head at all.
            "/old" => whole = b"<html><title>x: 1</title>\nold\n".to_vec(),
            _ => return wire.answer(&Answer::missing()),
        }
        wire.send(&whole)?;
        Ok(After::Close)
    });
    for digest in ["payload", "body"] {
        let mut order = Order::new(&names);
        order
            .seed(web.url("twice.test", "/"))
            .text("warc.payload-digest", digest);
        let harvest = Job::crawl(&order);
        let one = harvest.response(&web.url("twice.test", "/one"));
        let stated = one.field("WARC-Payload-Digest");
        let two = harvest.of(RecordKind::Revisit, &web.url("twice.test", "/two"));
        if digest == "payload" {
            assert_eq!(stated, Some(Sha1Digest::of(body).to_string().as_str()));
            assert_eq!(two.len(), 1);
            assert_eq!(two[0].field("WARC-Refers-To"), one.field("WARC-Record-ID"));
            assert_eq!(two[0].field("WARC-Payload-Digest"), stated);
        } else {
            // Other chunks are another payload to those who count them.
            let framed = Sha1Digest::of(&chunked(body, 7)).to_string();
            assert_eq!(stated, Some(framed.as_str()));
            assert_eq!(two.len(), 0);
        }
        let damaged = harvest.response(&web.url("twice.test", "/damaged"));
        assert!(damaged.block.ends_with(b"no size\r\n"));
        let old = harvest.of(RecordKind::Resource, &web.url("twice.test", "/old"));
        assert_eq!(old.len(), 1);
        assert_eq!(old[0].field("Content-Type"), Some("text/html"));
        assert!(old[0].block.starts_with(b"<html>"));
        assert!(
            harvest
                .of(RecordKind::Response, &web.url("twice.test", "/old"))
                .is_empty()
        );
    }
}
