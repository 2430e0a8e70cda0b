//! Captures as they were archived: revisits, codings, ranges, redirects, and Memento's headers.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::made::Made;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

#[test]
fn the_raw_capture_has_its_bytes_and_its_date() {
    let mut made = Made::new();
    let page = "<a href='/x'>é</a>";
    made.html("http://a.example/", "20260101000000", page);
    made.html("http://a.example/", "20260301000000", "later");
    made.publish(1);
    let served = made.serve();
    let answer = served.get("/web/20260101000000id_/http://a.example/");
    assert_eq!((answer.status, answer.text().as_str()), (200, page));
    assert_eq!(
        answer.field("content-type"),
        Some("text/html; charset=utf-8")
    );
    assert_eq!(
        answer.field("memento-datetime"),
        Some("Thu, 01 Jan 2026 00:00:00 GMT")
    );
    let (base, link) = (served.base(), answer.field("link").unwrap());
    for part in [
        "<http://a.example/>; rel=\"original\"".to_owned(),
        format!("<{base}/web/http://a.example/>; rel=\"timegate\""),
        format!("<{base}/web/timemap/link/http://a.example/>; rel=\"timemap\""),
        format!("<{base}/web/20260101000000id_/http://a.example/>; rel=\"first memento\""),
        format!("<{base}/web/20260301000000id_/http://a.example/>; rel=\"last next memento\""),
    ] {
        assert!(link.contains(&part), "{part}\n{link}");
    }
    // The nearest is meant by any other time.
    for (digits, body) in [
        ("2026", page),
        ("20260215", "later"),
        ("1999", page),
        ("", "later"),
    ] {
        let answer = served.get(&format!("/web/{digits}id_/http://a.example/"));
        assert_eq!(answer.text(), body, "{digits}");
    }
    let head = served.ask("HEAD", "/web/20260101000000id_/http://a.example/", "");
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(
        head.field("content-length"),
        Some(page.len().to_string().as_str())
    );
    assert_eq!(served.get("/web/2026id_/http://b.example/").status, 404);
}

#[test]
fn the_policy_chooses_the_side() {
    let mut made = Made::new();
    made.html("http://a.example/", "20260101000000", "one");
    made.html("http://a.example/", "20260110000000", "ten");
    made.publish(1);
    for (policy, body) in [
        (ecluse_config::AccessPolicy::Closest, "ten"),
        (ecluse_config::AccessPolicy::Before, "one"),
        (ecluse_config::AccessPolicy::After, "ten"),
    ] {
        let served = made.serve_with(|settings| settings.policy = policy);
        let at = |time: &str| {
            served
                .get(&format!("/web/{time}id_/http://a.example/"))
                .text()
        };
        assert_eq!(at("20260109"), body);
        assert_eq!(at("20250101"), "one", "the only side there is");
        assert_eq!(at("20270101"), "ten");
    }
}

#[test]
fn chunks_are_undone_and_codings_left_to_those_who_know_them() {
    let mut made = Made::new();
    let html = "Content-Type: text/html\r\n";
    let packed = gzip(b"hello");
    let mut chunked = format!("{:x}\r\n", packed.len()).into_bytes();
    chunked.extend_from_slice(&packed);
    chunked.extend_from_slice(b"\r\n0\r\n\r\n");
    let head = format!("{html}Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n");
    made.page("http://a.example/gzip", "20260101000000", &head, &chunked);
    let zstd = zstd::encode_all(&b"hello"[..], 3).unwrap();
    let head = format!("{html}Content-Encoding: zstd\r\n");
    made.page("http://a.example/zstd", "20260101000000", &head, &zstd);
    let head = format!("{html}Transfer-Encoding: chunked\r\n");
    made.page(
        "http://a.example/stored-plain",
        "20260101000000",
        &head,
        b"<p>hello",
    );
    made.publish(1);
    let served = made.serve();
    let raw = served.get("/web/2026id_/http://a.example/gzip");
    assert_eq!(raw.body, packed);
    assert_eq!(raw.field("content-encoding"), Some("gzip"));
    assert_eq!(raw.field("transfer-encoding"), None);
    for name in ["gzip", "zstd"] {
        let path = format!("/web/2026im_/http://a.example/{name}");
        let plain = served.get(&path);
        assert_eq!(plain.field("content-encoding"), None, "{name}");
        assert_eq!(plain.text(), "hello", "{name}");
        let packed = served.ask("GET", &path, &format!("Accept-Encoding: br, {name}\r\n"));
        assert_eq!(packed.field("content-encoding"), Some(name));
        let refused = served.ask("GET", &path, &format!("Accept-Encoding: {name};q=0\r\n"));
        assert_eq!(refused.text(), "hello");
    }
    let stored = served.get("/web/2026id_/http://a.example/stored-plain");
    assert_eq!(stored.text(), "<p>hello");
}

#[test]
fn revisits_are_resolved_across_files_and_collections() {
    let digest = "WARC-Payload-Digest: sha1:SAME\r\n";
    let block = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-When: first\r\n\r\nthe body";
    let again = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-When: again\r\n\r\n";
    let mut made = Made::new();
    made.record(
        "response",
        "http://a.example/",
        "20260101000000",
        digest,
        block,
    );
    made.publish_in("index/older", 1);
    made.lines.clear();
    made.record(
        "response",
        "http://b.example/",
        "20260101000000",
        digest,
        block,
    );
    made.next_file("2-2-20260201000000000-00000-test.warc.gz");
    made.record(
        "revisit",
        "http://b.example/",
        "20260201000000",
        digest,
        again,
    );
    let refers = format!(
        "{digest}WARC-Refers-To-Target-URI: http://a.example/\r\nWARC-Refers-To-Date: 2026-01-01T00:00:00Z\r\n"
    );
    // Of another URL, in another collection, and without a head of its own.
    made.record(
        "revisit",
        "http://c.example/",
        "20260201000000",
        &refers,
        b"",
    );
    let other = "WARC-Payload-Digest: sha1:LOST\r\n";
    made.record(
        "revisit",
        "http://d.example/",
        "20260201000000",
        other,
        again,
    );
    let not_modified = b"HTTP/1.1 304 Not Modified\r\nX-When: unchanged\r\n\r\n";
    made.record(
        "revisit",
        "http://b.example/",
        "20260301000000",
        digest,
        not_modified,
    );
    made.publish(1);
    let served = made.serve();
    let b = served.get("/web/20260201000000id_/http://b.example/");
    assert_eq!((b.status, b.text().as_str()), (200, "the body"));
    assert_eq!(
        b.field("x-archive-orig-x-when"),
        Some("again"),
        "its own head"
    );
    assert_eq!(
        b.field("memento-datetime"),
        Some("Sun, 01 Feb 2026 00:00:00 GMT")
    );
    let c = served.get("/web/20260201000000id_/http://c.example/");
    assert_eq!((c.status, c.text().as_str()), (200, "the body"));
    let unchanged = served.get("/web/20260301000000id_/http://b.example/");
    assert_eq!(
        (unchanged.status, unchanged.text().as_str()),
        (200, "the body")
    );
    let lost = served.get("/web/20260201000000id_/http://d.example/");
    assert_eq!(lost.status, 404);
    assert!(lost.text().contains("unchanged since an earlier capture"));
}

#[test]
fn ranges_of_small_and_large_bodies() {
    let mut made = Made::new();
    let large: Vec<u8> = (0..5_000_000u32).map(|at| (at % 251) as u8).collect();
    let head = "Content-Type: video/mp4\r\n";
    made.page(
        "http://a.example/small",
        "20260101000000",
        head,
        b"0123456789",
    );
    made.page("http://a.example/large", "20260101000000", head, &large);
    made.page("http://a.example/empty", "20260101000000", head, b"");
    made.publish(1);
    let served = made.serve();
    let ask = |name: &str, range: &str| {
        let path = format!("/web/2026mp_/http://a.example/{name}");
        served.ask("GET", &path, &format!("Range: bytes={range}\r\n"))
    };
    let part = ask("small", "2-4");
    assert_eq!((part.status, part.text().as_str()), (206, "234"));
    assert_eq!(part.field("content-range"), Some("bytes 2-4/10"));
    let beyond = ask("small", "10-");
    assert_eq!(
        (beyond.status, beyond.field("content-range")),
        (416, Some("bytes */10"))
    );
    assert_eq!(ask("small", "0-1,3-4").status, 200);
    let whole = served.get("/web/2026id_/http://a.example/large");
    assert_eq!(whole.field("content-length"), Some("5000000"));
    assert!(whole.body == large);
    let part = ask("large", "4000001-4999999");
    assert_eq!(
        part.field("content-range"),
        Some("bytes 4000001-4999999/5000000")
    );
    assert!(part.body == large[4_000_001..]);
    let tail = ask("large", "-7");
    assert!(tail.body == large[4_999_993..]);
    assert_eq!(ask("large", "5000000-").status, 416);
    assert_eq!(served.get("/web/2026id_/http://a.example/empty").body, b"");
    let head = served.ask("HEAD", "/web/2026id_/http://a.example/large", "");
    assert_eq!(head.field("content-length"), Some("5000000"));
}

#[test]
fn redirects_stay_in_the_archive_and_one_to_itself_gives_way() {
    let mut made = Made::new();
    let mut redirect = |url: &str, time: &str, to: &str| {
        let block = format!("HTTP/1.1 301 Moved\r\nLocation: {to}\r\n\r\n");
        made.record("response", url, time, "", block.as_bytes());
    };
    redirect("http://a.example/old", "20260101000000", "/new?x=1");
    redirect(
        "http://a.example/",
        "20260101000000",
        "https://www.a.example/",
    );
    redirect("http://b.example/", "20260101000000", "http://b.example/");
    made.html("https://www.a.example/", "20260101000002", "home");
    made.publish(1);
    let served = made.serve();
    let old = served.get("/web/20260101000000id_/http://a.example/old");
    assert_eq!(old.status, 301);
    assert_eq!(
        old.field("location"),
        Some("/web/20260101000000id_/http://a.example/new?x=1")
    );
    // The redirect to its own https is nearer, but leads back here.
    let home = served.get("/web/20260101000000id_/http://a.example/");
    assert_eq!((home.status, home.text().as_str()), (200, "home"));
    assert_eq!(served.get("/web/2026mp_/http://b.example/").status, 508);
}

#[test]
fn a_timegate_leads_to_the_memento() {
    let mut made = Made::new();
    for time in ["20250101000000", "20260101000000", "20270101000000"] {
        made.html("http://a.example/?q=1", time, time);
    }
    made.publish(1);
    let served = made.serve();
    let gate = |more: &str| served.ask("GET", "/web/http://a.example/?q=1", more);
    let last = gate("");
    assert_eq!(last.status, 302);
    assert_eq!(last.field("vary"), Some("accept-datetime"));
    let at = |time: &str| format!("{}/web/{time}mp_/http://a.example/?q=1", served.base());
    assert_eq!(last.field("location"), Some(at("20270101000000").as_str()));
    let then = gate("Accept-Datetime: Sun, 02 Feb 2025 00:00:00 GMT\r\n");
    assert_eq!(then.field("location"), Some(at("20250101000000").as_str()));
    assert!(then.field("link").unwrap().contains("rel=\"original\""));
    assert!(
        then.field("memento-datetime").is_none(),
        "it is no memento itself"
    );
    assert_eq!(gate("Accept-Datetime: yesterday\r\n").status, 400);
    assert_eq!(
        served.get("/web/timegate/http://a.example/?q=1").status,
        302
    );
    assert_eq!(served.get("/web/http://nowhere.example/").status, 404);
}

/// Reads a TimeMap as RFC 6690 writes links: target and parameters.
fn links(text: &str) -> Vec<(String, Vec<(String, String)>)> {
    let mut links = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (target, after) = rest.strip_prefix('<').unwrap().split_once('>').unwrap();
        let mut parameters = Vec::new();
        rest = after;
        while let Some(after) = rest.trim_start().strip_prefix(';') {
            let (name, after) = after.trim_start().split_once("=\"").unwrap();
            let (value, after) = after.split_once('"').unwrap();
            parameters.push((name.to_owned(), value.to_owned()));
            rest = after;
        }
        links.push((target.to_owned(), parameters));
        rest = rest.trim_start();
        if !rest.is_empty() {
            rest = rest.strip_prefix(',').unwrap().trim_start();
        }
    }
    links
}

#[test]
fn time_maps_list_every_memento_once() {
    let mut made = Made::new();
    let times = [
        "20250101000000",
        "20260101000000",
        "20260101000000",
        "20270101000000",
    ];
    for (at, time) in times.iter().enumerate() {
        made.html("http://a.example/", time, &"x".repeat(at + 1));
    }
    made.publish(1);
    let served = made.serve();
    let map = served.get("/web/timemap/link/http://a.example/");
    assert_eq!(map.field("content-type"), Some("application/link-format"));
    let links = links(&map.text());
    let with = |rel: &str| {
        let has = |(_, parameters): &&(String, Vec<(String, String)>)| {
            parameters
                .iter()
                .any(|(name, value)| name == "rel" && value.split(' ').any(|one| one == rel))
        };
        links.iter().filter(has).collect::<Vec<_>>()
    };
    assert_eq!(with("original")[0].0, "http://a.example/");
    assert_eq!(
        with("timegate")[0].0,
        format!("{}/web/http://a.example/", served.base())
    );
    let own = &with("self")[0].1;
    assert!(
        own.contains(&("from".into(), "Wed, 01 Jan 2025 00:00:00 GMT".into())),
        "{own:?}"
    );
    assert!(
        own.contains(&("until".into(), "Fri, 01 Jan 2027 00:00:00 GMT".into())),
        "{own:?}"
    );
    let mementos = with("memento");
    assert_eq!(mementos.len(), 3);
    assert_eq!((with("first").len(), with("last").len()), (1, 1));
    for (target, _) in mementos {
        let path = target.strip_prefix(&served.base()).unwrap();
        let answer = served.get(path);
        assert_eq!(answer.status, 200, "{path}");
        assert!(answer.field("memento-datetime").is_some(), "{path}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&served.get("/web/timemap/json/http://a.example/").text()).unwrap();
    assert_eq!(json["mementos"]["list"].as_array().unwrap().len(), 3);
    assert_eq!(
        json["mementos"]["first"]["datetime"],
        "2025-01-01T00:00:00Z"
    );
    let cdxj = served.get("/web/timemap/cdxj/http://a.example/").text();
    assert_eq!(
        cdxj.lines().filter(|line| !line.starts_with('!')).count(),
        3
    );
    assert_eq!(
        served.get("/web/timemap/link/http://b.example/").status,
        404
    );
    assert_eq!(served.get("/web/timemap/xml/http://a.example/").status, 400);
}

#[test]
fn what_was_not_fetched_over_http_is_shown_too() {
    let mut made = Made::new();
    let plain = "Content-Type: text/plain\r\n";
    made.record(
        "resource",
        "http://a.example/made",
        "20260101000000",
        plain,
        b"made by hand",
    );
    made.publish(1);
    let served = made.serve();
    let answer = served.get("/web/2026id_/http://a.example/made");
    assert_eq!(
        (answer.status, answer.text().as_str()),
        (200, "made by hand")
    );
    assert_eq!(answer.field("content-type"), Some("text/plain"));
}

#[test]
fn what_a_page_needs_comes_from_its_own_harvest_first() {
    let mut made = Made::new();
    made.next_file("1-1-20260101000000000-00000-test.warc.gz");
    made.html("http://a.example/", "20260101000000", "page of one");
    made.html("http://a.example/x", "20260101090000", "of one");
    made.next_file("2-2-20260101000000000-00000-test.warc.gz");
    made.html("http://a.example/x", "20260101000001", "of two");
    made.html("http://a.example/y", "20260101000001", "only of two");
    made.publish(1);
    let served = made.serve();
    let from = |referer: &str, path: &str| {
        let more = format!("Referer: {}{referer}\r\n", served.base());
        served.ask("GET", path, &more).text()
    };
    let page = "/web/20260101000000mp_/http://a.example/";
    let at = |name: &str| format!("/web/20260101000000im_/http://a.example/{name}");
    assert_eq!(
        from(page, &at("x")),
        "of one",
        "hours away, but of the same harvest"
    );
    assert_eq!(from(page, &at("y")), "only of two");
    assert_eq!(from("/", &at("x")), "of two", "the nearest");
    assert_eq!(served.get(&at("x")).text(), "of two");
    // An address that was not rewritten is known by the page it comes from.
    let more = format!("Referer: {}{page}\r\n", served.base());
    let lost = served.ask("GET", "/x?y=1", &more);
    assert_eq!(lost.status, 307);
    assert_eq!(
        lost.field("location"),
        Some("/web/20260101000000mp_/http://a.example/x?y=1")
    );
    assert_eq!(
        served
            .ask(
                "GET",
                "/x",
                "Referer: http://evil.example/web/2026mp_/http://a/\r\n"
            )
            .status,
        404
    );
}

#[test]
fn a_document_opened_by_itself_goes_into_its_frame() {
    let mut made = Made::new();
    made.html("http://a.example/", "20260101000000", "<a href=/b>b</a>");
    made.publish(1);
    let served = made.serve();
    let path = "/web/20260101000000mp_/http://a.example/";
    let alone = served.ask("GET", path, "Sec-Fetch-Dest: document\r\n");
    assert_eq!(alone.status, 307);
    assert_eq!(
        alone.field("location"),
        Some("/web/20260101000000/http://a.example/")
    );
    let framed = served.ask("GET", path, "Sec-Fetch-Dest: iframe\r\n");
    assert!(
        framed
            .text()
            .contains("/web/20260101000000mp_/http://a.example/b"),
        "{}",
        framed.text()
    );
    let frame = served.get("/web/20260101000000/http://a.example/");
    assert!(
        frame.text().contains("sandbox=\"allow-scripts"),
        "{}",
        frame.text()
    );
    assert_eq!(frame.field("x-frame-options"), Some("DENY"));
    // Any other time leads to that of the capture, and a host to its slash.
    let year = served.get("/web/2026/http://a.example/");
    assert_eq!(
        (year.status, year.field("location")),
        (302, Some("/web/20260101000000/http://a.example/"))
    );
    assert_eq!(served.get("/web/2026mp_/http://a.example").status, 307);
}

#[test]
fn a_program_that_rewrites_by_itself_gets_the_body_as_it_was_and_redirects_led_here() {
    let mut made = Made::new();
    let page = "<a href=\"/x\">x</a>";
    made.html("http://a.example/", "20260101000000", page);
    let away = b"HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n";
    made.record(
        "response",
        "http://a.example/old",
        "20260101000000",
        "",
        away,
    );
    made.publish(1);
    let served = made.serve();
    let raw = served.get("/web/20260101000000ir_/http://a.example/");
    assert_eq!((raw.status, raw.text().as_str()), (200, page));
    let redirect = served.get("/web/20260101000000ir_/http://a.example/old");
    assert_eq!(redirect.status, 302);
    assert_eq!(
        redirect.field("location"),
        Some("/web/20260101000000ir_/http://a.example/")
    );
}

#[test]
fn a_revisit_of_nothing_needs_no_original() {
    let mut made = Made::new();
    made.record(
        "revisit",
        "http://a.example/old",
        "20260101000000",
        "WARC-Payload-Digest: sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://a.example/new\r\n\r\n",
    );
    made.publish(1);
    let answer = made
        .serve()
        .get("/web/20260101000000mp_/http://a.example/old");
    assert_eq!((answer.status, answer.body.len()), (302, 0));
    assert_eq!(
        answer.field("location"),
        Some("/web/20260101000000mp_/http://a.example/new")
    );
}

#[test]
fn the_reader_chooses_which_capture_a_link_leads_to() {
    let (page, target, other) = (
        "http://a.example/",
        "http://b.example/",
        "http://c.example/",
    );
    let mut made = Made::new();
    // Harvest 1, then 2, then 3; the page is of the second.
    made.html(target, "20260101000000", "one");
    made.html(other, "20260101000000", "one");
    made.next_file("1-2-20260201000000000-00000-test.warc.gz");
    made.html(page, "20260201000000", "<a href=http://b.example/>b</a>");
    made.html(target, "20260301000000", "two");
    made.next_file("1-3-20260202000000000-00000-test.warc.gz");
    made.html(target, "20260202000000", "three");
    made.publish(1);
    let served = made.serve();
    let body = |part: &str, url: &str, more: &str| {
        let answer = served.ask("GET", &format!("/{part}/20260201000000mp_/{url}"), more);
        (answer.status, answer.text())
    };
    for (part, found) in [
        ("web", "three"),
        ("web~closest", "three"),
        ("web~before", "one"),
        ("web~after", "three"),
    ] {
        let (status, text) = body(part, target, "");
        assert!(status == 200 && text.contains(found), "{part}: {text}");
        // The page hands the choice on.
        let (_, text) = body(part, page, "");
        assert!(
            text.contains(&format!("\"/{part}/20260201000000mp_/{target}\"")),
            "{text}"
        );
        let frame = served.get(&format!("/{part}/20260201000000/{page}"));
        assert_eq!(frame.status, 200);
        let frame = frame.text().replace("&#x2f;", "/");
        assert!(
            frame.contains("\"/web~harvest/20260201000000/http://a.example/\""),
            "{frame}"
        );
        assert_eq!(frame.matches("aria-current").count(), 1, "{frame}");
    }
    let referer = |part: &str| {
        format!(
            "Referer: {}/{part}/20260201000000mp_/{page}\r\n",
            served.base()
        )
    };
    // Without another word its own harvest comes first, then the closest; with it nothing else comes.
    assert!(body("web", target, &referer("web")).1.contains("two"));
    assert!(body("web", other, &referer("web")).1.contains("one"));
    assert!(
        body("web~harvest", target, &referer("web~harvest"))
            .1
            .contains("two")
    );
    assert_eq!(body("web~harvest", other, &referer("web~harvest")).0, 404);
    assert_eq!(
        served
            .get("/web~never/20260201000000mp_/http://a.example/")
            .status,
        404
    );
    assert_eq!(served.get("/web~before/").status, 200);
}

#[test]
fn links_of_a_feed_lead_here_where_a_browser_shows_it() {
    let mut made = Made::new();
    let feed = "<?xml version=\"1.0\"?><rss xmlns:x=\"http://x.example/\"><link>http://a.example/</link></rss>";
    let head = "Content-Type: application/rss+xml\r\n";
    made.page(
        "http://a.example/feed",
        "20260101000000",
        head,
        feed.as_bytes(),
    );
    made.publish(1);
    let served = made.serve();
    let path = "/web/20260101000000mp_/http://a.example/feed";
    let shown = served.ask("GET", path, "Sec-Fetch-Dest: iframe\r\n");
    assert_eq!(
        shown.text(),
        feed.replace("<link>", "<link>/web/20260101000000mp_/")
    );
    assert_eq!(shown.field("content-type"), Some("application/rss+xml"));
    // A script reads it as it was.
    let fetched = served.ask("GET", path, "Sec-Fetch-Dest: empty\r\n");
    assert_eq!(fetched.text(), feed);
}
