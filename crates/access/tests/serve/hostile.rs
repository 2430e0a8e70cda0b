//! Archives, requests and clients that mean harm, and disks that fail.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::made::Made;

const FILE: &str = "1-1-20260101000000000-00000-test.warc.gz";

#[test]
fn archived_headers_act_on_nobody() {
    let mut made = Made::new();
    let head = "Content-Type: text/html\r\n\
        Set-Cookie: lang=xx; Path=/\r\n\
        Strict-Transport-Security: max-age=9\r\n\
        Content-Security-Policy: default-src *\r\n\
        Clear-Site-Data: \"*\"\r\n\
        Refresh: 0;url=http://live.example/\r\n\
        Link: <http://live.example/x.css>; rel=preload\r\n\
        Access-Control-Allow-Origin: http://evil.example\r\n\
        Access-Control-Allow-Credentials: true\r\n\
        Service-Worker-Allowed: /\r\n\
        Memento-Datetime: Thu, 01 Jan 1970 00:00:00 GMT\r\n\
        Location: http://live.example/\r\n\
        X-Bad\x01Name: a\r\n\
        X-Bad-Value: a\x01b\r\n\
        Content-Length: 99999\r\n\
        Connection: upgrade\r\n";
    made.page("http://a.example/", "20260101000000", head, b"x");
    made.publish(1);
    let served = made.serve();
    for modifier in ["id_", "mp_"] {
        let answer = served.get(&format!("/web/20260101000000{modifier}/http://a.example/"));
        assert_eq!(answer.status, 200);
        for gone in [
            "set-cookie",
            "strict-transport-security",
            "clear-site-data",
            "refresh",
            "access-control-allow-credentials",
            "service-worker-allowed",
            "x-bad-value",
        ] {
            assert_eq!(answer.field(gone), None, "{modifier} {gone}");
        }
        assert_eq!(
            answer.field("x-archive-orig-set-cookie"),
            Some("lang=xx; Path=/")
        );
        assert_eq!(answer.field("access-control-allow-origin"), Some("*"));
        assert!(!answer.field("link").unwrap().contains("live.example"));
        assert_eq!(
            answer.field("memento-datetime"),
            Some("Thu, 01 Jan 2026 00:00:00 GMT")
        );
        let to = format!("/web/20260101000000{modifier}/http://live.example/");
        assert_eq!(answer.field("location"), Some(to.as_str()));
        let policy = answer.field("content-security-policy").unwrap();
        assert!(policy.starts_with("sandbox allow-scripts"), "{policy}");
        assert!(
            !policy.contains("allow-same-origin") && !policy.contains('*'),
            "{policy}"
        );
        let fields = answer
            .head
            .lines()
            .filter(|l| l.to_lowercase().starts_with("content-security-policy"));
        assert_eq!(fields.count(), 1);
    }
}

#[test]
fn nothing_in_an_address_ends_a_header() {
    let mut made = Made::new();
    let url = "http://a.example/?x=%0d%0aSet-Cookie:%20a=b";
    made.html(url, "20260101000000", "x");
    let block = b"HTTP/1.1 302 Found\r\nLocation: http://b.example/%0d%0aX: y \xe9<>\"\r\n\r\n";
    made.record(
        "response",
        "http://a.example/go",
        "20260101000000",
        "",
        block,
    );
    made.publish(1);
    let served = made.serve();
    for path in [
        "/web/2026id_/http://a.example/?x=%0d%0aSet-Cookie:%20a=b",
        "/web/http://a.example/?x=%0d%0aSet-Cookie:%20a=b",
        "/web/timemap/link/http://a.example/?x=%0d%0aSet-Cookie:%20a=b",
        "/search?url=http://a.example/%0d%0aSet-Cookie:%20a=b",
        "/web/*/http://a.example/?x=%0d%0aSet-Cookie:%20a=b",
        "/settings?lang=en%0d%0aSet-Cookie:%20a=b",
    ] {
        let answer = served.get(path);
        assert_eq!(answer.field("set-cookie"), None, "{path}: {}", answer.head);
        assert!(answer.status < 500, "{path}");
    }
    let location = served.get("/web/2026id_/http://a.example/go");
    let to = location.field("location").unwrap();
    assert!(
        to.starts_with("/web/20260101000000id_/http://b.example/"),
        "{to}"
    );
    assert!(!to.contains(['<', '>', '"', ' ']), "{to}");
    // A host that could not be one is refused: it would stand in headers and pages.
    let answer = served.send(b"GET / HTTP/1.1\r\nHost: a\" onload=x\r\nConnection: close\r\n\r\n");
    assert!(
        answer.starts_with(b"HTTP/1.1 400"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
}

#[test]
fn no_address_leads_out_of_the_archive() {
    let mut made = Made::new();
    made.html("http://a.example/", "20260101000000", "x");
    // An index line may name anything; only what PATH has is opened.
    made.lines.push(
        "example,b)/ 20260101000000 {\"url\": \"http://b.example/\", \"mime\": \"text/plain\", \"status\": \"200\", \"length\": \"100\", \"offset\": \"0\", \"filename\": \"../../../../../../etc/passwd\"}".into(),
    );
    made.publish(1);
    let served = made.serve();
    assert_eq!(served.get("/web/2026id_/http://b.example/").status, 503);
    for path in [
        "/static/../Cargo.toml",
        "/static/..%2f..%2fetc/passwd",
        "/../../etc/passwd",
        "//etc/passwd",
        "/web/path/../../../../etc/passwd",
        "/generations/2026id_/http://a.example/",
    ] {
        assert_eq!(served.get(path).status, 404, "{path}");
    }
}

#[test]
fn pages_escape_what_comes_from_the_web() {
    let mut made = Made::new();
    let url = "http://a.example/<script>alert(1)</script>";
    made.html(url, "20260101000000", "x");
    made.publish(1);
    let served = made.serve();
    for path in [
        "/web/*/http://a.example/<script>alert(1)</script>",
        "/web/*/http://a.example/%3Cscript%3Ealert(1)%3C/script%3E",
        "/web/*/http://nowhere.example/%3Cscript%3Ealert(1)%3C/script%3E",
        "/web/20260101000000/http://a.example/%3Cscript%3Ealert(1)%3C/script%3E",
        "/web/*/javascript:alert(1)",
    ] {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            served.address
        );
        let answer = String::from_utf8_lossy(&served.send(request.as_bytes())).into_owned();
        let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
        assert!(!body.contains("<script>alert"), "{path}: {body}");
        assert!(!body.contains("href=\"javascript:"), "{path}: {body}");
    }
    let home = served.get("/");
    let policy = home.field("content-security-policy").unwrap();
    assert!(
        policy.contains("default-src 'none'") && !policy.contains("script-src"),
        "{policy}"
    );
    assert_eq!(home.field("x-frame-options"), Some("DENY"));
}

#[test]
fn a_file_that_is_missing_cut_or_changed_is_said() {
    let mut made = Made::new();
    made.html("http://a.example/", "20260101000000", &"a".repeat(5_000));
    made.html("http://b.example/", "20260101000000", &"b".repeat(5_000));
    made.publish(1);
    let served = made.serve();
    let stored = made.stored(FILE);
    let good = fs::read(&stored).unwrap();
    let ask = |host: &str| served.get(&format!("/web/2026id_/http://{host}.example/"));
    assert_eq!((ask("a").status, ask("b").status), (200, 200));
    // The disk is away, and comes back.
    let aside = stored.with_extension("aside");
    fs::rename(&stored, &aside).unwrap();
    let away = ask("a");
    assert_eq!((away.status, away.field("retry-after")), (503, Some("30")));
    assert!(
        !away.text().contains(FILE),
        "readers need no names of files"
    );
    fs::rename(&aside, &stored).unwrap();
    assert_eq!(ask("a").status, 200);
    // Cut within the second record, and before it.
    fs::write(&stored, &good[..good.len() - 20]).unwrap();
    assert_eq!((ask("a").status, ask("b").status), (200, 500));
    fs::write(&stored, &good[..10]).unwrap();
    assert_eq!((ask("a").status, ask("b").status), (500, 500));
    // Bytes that are no record, a flipped bit, and another file under the same name.
    fs::write(&stored, vec![b'x'; good.len()]).unwrap();
    assert_eq!((ask("a").status, ask("b").status), (500, 500));
    let mut flipped = good.clone();
    flipped[200] ^= 0x40;
    fs::write(&stored, &flipped).unwrap();
    assert_eq!(ask("a").status, 500);
    let mut other = Made::new();
    other.html(
        "http://other.example/",
        "20260101000000",
        &"a".repeat(5_000),
    );
    other.publish(1);
    fs::copy(other.stored(FILE), &stored).unwrap();
    assert_eq!(ask("a").status, 500);
    fs::write(&stored, &good).unwrap();
    assert_eq!((ask("a").status, ask("b").status), (200, 200));
}

#[test]
fn a_large_body_that_is_cut_does_not_look_whole() {
    let mut made = Made::new();
    let noise: Vec<u8> = (0..4_000_000u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let head = "Content-Type: video/mp4\r\n";
    made.page("http://a.example/", "20260101000000", head, &noise);
    made.publish(1);
    let served = made.serve();
    let stored = made.stored(FILE);
    let good = fs::read(&stored).unwrap();
    fs::write(&stored, &good[..good.len() / 2]).unwrap();
    let answer = served.get("/web/2026id_/http://a.example/");
    let declared: usize = answer
        .field("content-length")
        .map_or(0, |all| all.parse().unwrap());
    assert!(answer.status == 500 || answer.body.len() < declared);
}

#[test]
fn a_bomb_ends_at_the_limit() {
    let mut made = Made::new();
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packer.write_all(&vec![b' '; 24 << 20]).unwrap();
    let bomb = packer.finish().unwrap();
    let head = "Content-Type: text/html\r\nContent-Encoding: gzip\r\n";
    made.page("http://a.example/", "20260101000000", head, &bomb);
    made.publish(1);
    let served = made.serve_with(|settings| settings.rewrite = ecluse_config::Bytes(1 << 20));
    let answer = served.get("/web/2026mp_/http://a.example/");
    assert!(
        answer.body.len() <= (1 << 20) + 8192,
        "{}",
        answer.body.len()
    );
    assert_eq!(served.get("/healthz").status, 200);
}

#[test]
fn slow_and_greedy_clients_are_turned_away() {
    let mut made = Made::new();
    let large = vec![b'x'; 16_000_000];
    let head = "Content-Type: video/mp4\r\n";
    made.page("http://a.example/", "20260101000000", head, &large);
    made.publish(1);
    let served = made.serve_with(|settings| {
        settings.patience = ecluse_config::Span(Duration::from_millis(200));
        settings.connections = 1;
    });
    // One sends half a head, one says nothing at all, one reads nothing of a large answer; each has the only place until the
    // server has no more patience with it.
    let large_path = "/web/2026id_/http://a.example/";
    let large_answer = format!("GET {large_path} HTTP/1.1\r\nHost: x\r\n\r\n");
    for begun in ["GET / HTTP/1.1\r\nHost: ", "", &large_answer] {
        let mut client = TcpStream::connect(served.address).unwrap();
        client.write_all(begun.as_bytes()).unwrap();
        let health = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        while !served.send(health).starts_with(b"HTTP/1.1 200") {
            std::thread::yield_now();
        }
        let mut got = Vec::new();
        let _ = client.read_to_end(&mut got);
        assert!(got.len() < large.len(), "{begun:?}: {}", got.len());
    }
}

#[test]
fn heads_without_end_are_refused() {
    let mut made = Made::new();
    made.html("http://a.example/", "20260101000000", "x");
    made.publish(1);
    let served = made.serve_with(|settings| {
        settings.patience = ecluse_config::Span(Duration::from_secs(1));
    });
    let long = format!("/web/2026id_/http://a.example/{}", "a".repeat(9_000));
    assert_eq!(served.get(&long).status, 400);
    let longer = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(200_000));
    let answer = served.send(longer.as_bytes());
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"));
    let fields = "X: y\r\n".repeat(500);
    let many = format!("GET / HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
    let answer = served.send(many.as_bytes());
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"));
    assert_eq!(served.get("/healthz").status, 200);
}

#[test]
fn ten_thousand_redirects_cost_one_answer_each() {
    let mut made = Made::new();
    let to =
        |target: &str| format!("HTTP/1.1 302 Found\r\nLocation: {target}\r\n\r\n").into_bytes();
    // A chain, a ring under one key, and one that leads to itself.
    for link in 0..10_000 {
        let next = to(&format!("http://chain.example/{}", link + 1));
        let url = format!("http://chain.example/{link}");
        made.record("response", &url, "20260101000000", "", &next);
        if link % 5 != 0 {
            continue;
        }
        let time = format!(
            "2026{:02}{:02}0000{:02}",
            1 + link / 2_000,
            1 + link / 100 % 20,
            link % 100 % 60
        );
        let (url, target) = match link % 10 {
            0 => ("http://ring.example/", "https://www.ring.example/"),
            _ => ("https://www.ring.example/", "http://ring.example/"),
        };
        made.record("response", url, &time, "", &to(target));
        let own = "http://own.example/";
        made.record("response", own, &time, "", &to(own));
    }
    made.publish(1);
    let served = made.serve();
    for link in [0, 1, 4_999, 9_998] {
        let answer = served.get(&format!(
            "/web/20260101000000mp_/http://chain.example/{link}"
        ));
        let next = format!("/web/20260101000000mp_/http://chain.example/{}", link + 1);
        assert_eq!(
            (answer.status, answer.field("location")),
            (302, Some(next.as_str()))
        );
    }
    let end = served.get("/web/20260101000000mp_/http://chain.example/10000");
    assert_eq!(end.status, 404);
    assert_eq!(served.get("/web/2026mp_/http://own.example/").status, 508);
    // Of the ring one redirect is given, and it stays in the archive: the browser counts.
    let ring = served.get("/web/2026mp_/http://ring.example/");
    assert!(matches!(ring.status, 302 | 508), "{}", ring.status);
    assert!(
        ring.field("location")
            .is_none_or(|to| to.starts_with("/web/"))
    );
}
