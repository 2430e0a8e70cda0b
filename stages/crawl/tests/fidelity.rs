//! Awkward but real responses: each block is the bytes that were sent, each payload digest that of the entity without
//! its chunks, each request the bytes that were received.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod web;

use ecluse_testkit::web::{After, Answer, Web, chunked, gzip, html};
use ecluse_warc::{RecordKind, Sha1Digest};

use web::{Job, Order, web_on};

/// A response, and what must be kept of it.
struct Awkward {
    name: &'static str,
    /// Sent before the block and kept apart from it.
    interim: &'static [u8],
    block: Vec<u8>,
    payload: Vec<u8>,
    status: i32,
    /// What crawl.log says of it.
    annotation: Option<&'static str>,
    truncated: Option<&'static str>,
}

fn awkward(name: &'static str, head: &[u8], body: &[u8], payload: &[u8]) -> Awkward {
    Awkward {
        name,
        interim: b"",
        block: [head, body].concat(),
        payload: payload.to_vec(),
        status: 200,
        annotation: None,
        truncated: None,
    }
}

/// The fifteen of which other tools keep thirteen at most.
fn fifteen() -> Vec<Awkward> {
    let text = |name: &str| format!("<p>{name}, told at some length</p>").into_bytes();
    let plain = |name: &'static str, head: &[u8]| {
        let body = text(name);
        let head = String::from_utf8_lossy(head).replace("LENGTH", &body.len().to_string());
        awkward(name, head.as_bytes(), &body, &body)
    };
    let in_chunks = |name: &'static str, head: &str| {
        let body = text(name);
        awkward(name, head.as_bytes(), &chunked(&body, 7), &body)
    };
    let with = |name: &'static str| {
        awkward(
            name,
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n",
            b"5;name=value;other=\"quoted; text\"\r\nfirst\r\n6 ; x\r\nsecond\r\n0;last\r\nX-Sum: 99\r\nX-Odd:  y\r\n\r\n",
            b"firstsecond",
        )
    };
    let padded = awkward(
        "padded-sizes",
        b"HTTP/1.1 200 OK\r\ntRaNsFeR-eNcOdInG: ChUnKeD\r\n\r\n",
        b"000A\r\n0123456789\r\n0000000B\r\nabcdefghijk\r\n0000\r\n\r\n",
        b"0123456789abcdefghijk",
    );
    let packed = gzip(&text("gzip-with-length"));
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        packed.len()
    );
    let gzip_length = awkward("gzip-with-length", head.as_bytes(), &packed, &packed);
    let packed = gzip(&text("gzip-in-chunks"));
    let gzip_chunked = awkward(
        "gzip-in-chunks",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n",
        &chunked(&packed, 11),
        &packed,
    );
    let mut latin = awkward(
        "latin-1",
        b"HTTP/1.1 200 Tr\xe8s bien\r\nX-Name: \xc9cluse \xa9\r\nContent-Length: 7\r\n\r\n",
        b"latin 1",
        b"latin 1",
    );
    latin.annotation = None;
    let mut early = plain(
        "early-hints",
        b"HTTP/1.1 200 OK\r\nContent-Length: LENGTH\r\n\r\n",
    );
    early.interim = b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n";
    early.annotation = Some("interim:1");
    let mut cut = awkward(
        "length-too-large",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n",
        b"less than that",
        b"less than that",
    );
    cut.annotation = Some("disconnectTrunc");
    cut.truncated = Some("disconnect");
    let mut found = plain(
        "redirect-with-body",
        b"HTTP/1.1 302 Found\r\nLocation: /plain\r\nContent-Length: LENGTH\r\n\r\n",
    );
    found.status = 302;
    let mut broken = in_chunks(
        "error-in-chunks",
        "HTTP/1.1 500 Broken\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    broken.status = 500;
    vec![
        plain("plain", b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: LENGTH\r\n\r\n"),
        in_chunks("chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        with("extensions-and-trailer"),
        padded,
        gzip_length,
        gzip_chunked,
        plain(
            "odd-headers",
            b"HTTP/1.1 200 OK\r\ncOnTeNt-LeNgTh:LENGTH\r\nX-Twice:  a \r\nx-twice: b\r\nSet-Cookie: a=1\r\nSet-Cookie: a=2\r\nX-Padded:\t \tp\t \r\nX-Empty:\r\n\r\n",
        ),
        plain("http-1.0", b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n"),
        plain("bare-line-ends", b"HTTP/1.1 200 OK\nContent-Type: text/html\nContent-Length: LENGTH\n\n"),
        latin,
        plain("no-reason", b"HTTP/1.1 200\r\nContent-Length: LENGTH\r\n\r\n"),
        early,
        cut,
        found,
        broken,
    ]
}

#[test]
fn fifteen_awkward_responses_are_kept_byte_for_byte() {
    let (web, names) = web_on(1);
    web.host("awkward.test", |request, wire| {
        let cases = fifteen();
        let case = cases.iter().find(|case| request.target[1..] == *case.name);
        match case {
            Some(case) => {
                wire.send(case.interim)?;
                wire.send(&case.block)?;
            }
            None => wire.send(b"HTTP/1.1 404 None\r\nContent-Length: 0\r\n\r\n")?,
        }
        Ok(After::Close)
    });
    let mut order = Order::new(&names);
    order
        .text("scope.reach", "page")
        .set("budget.queue.tries", 1);
    let cases = fifteen();
    assert_eq!(cases.len(), 15);
    for case in &cases {
        order.seed(web.url("awkward.test", &format!("/{}", case.name)));
    }
    let harvest = Job::crawl(&order);
    let log = web.log();
    for case in &cases {
        let url = web.url("awkward.test", &format!("/{}", case.name));
        let line = harvest.line(&url);
        assert_eq!(line.status, case.status, "{}: {line:?}", case.name);
        if let Some(annotation) = case.annotation {
            assert!(line.has(annotation), "{}: {line:?}", case.name);
        }
        let response = harvest.response(&url);
        assert_eq!(
            String::from_utf8_lossy(&response.block),
            String::from_utf8_lossy(&case.block),
            "{}",
            case.name
        );
        assert_eq!(response.block, case.block, "{}", case.name);
        let digest = Sha1Digest::of(&case.payload).to_string();
        let stated = response.field("WARC-Payload-Digest");
        assert_eq!(stated, Some(digest.as_str()), "{}", case.name);
        assert_eq!(line.digest, digest, "{}", case.name);
        assert_eq!(
            response.field("WARC-Truncated"),
            case.truncated,
            "{}",
            case.name
        );
        assert_eq!(
            response.field("WARC-IP-Address"),
            Some("127.0.0.1"),
            "{}",
            case.name
        );
        let requests = harvest.of(RecordKind::Request, &url);
        assert_eq!(requests.len(), 1, "{}", case.name);
        let path = format!("/{}", case.name);
        let seen: Vec<_> = log.iter().filter(|seen| seen.target == path).collect();
        assert_eq!(seen.len(), 1, "{}", case.name);
        assert_eq!(requests[0].block, seen[0].bytes, "{}", case.name);
        assert_eq!(requests[0].field("WARC-Date"), response.field("WARC-Date"));
        let together = [&response, &requests[0]].iter().any(|record| {
            let other = record.field("WARC-Concurrent-To");
            other.is_some() && other != record.field("WARC-Record-ID")
        });
        assert!(together, "{}: neither names the other", case.name);
    }
}

#[test]
fn every_file_begins_with_what_it_is_and_names_are_kept_too() {
    let (web, names) = web_on(1);
    web.pages("one.test", [("/".to_owned(), html("one"))]);
    let mut order = Order::new(&names);
    order.seed(web.url("one.test", "/"));
    let harvest = Job::crawl(&order);
    let first = &harvest.records[0];
    assert_eq!(first.kind, RecordKind::Warcinfo);
    let info = String::from_utf8_lossy(&first.block).into_owned();
    assert!(info.contains("https://archive.example/crawler"), "{info}");
    let dns: Vec<_> = harvest
        .records
        .iter()
        .filter(|record| record.url == "dns:one.test")
        .collect();
    assert_eq!(dns.len(), 1);
    let text = String::from_utf8_lossy(&dns[0].block).into_owned();
    assert!(
        text.contains("one.test.") && text.contains("127.0.0.1"),
        "{text}"
    );
    assert_eq!(dns[0].field("Content-Type"), Some("text/dns"));
    assert_eq!(
        harvest.line(&web.url("one.test", "/robots.txt")).status,
        404
    );
    harvest.response(&web.url("one.test", "/robots.txt"));
}

#[test]
fn a_body_larger_than_memory_is_kept_whole() {
    let (web, names) = web_on(1);
    let body: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let answer = Answer::of("application/octet-stream", &body);
    web.pages("large.test", [("/".to_owned(), answer.clone())]);
    let mut order = Order::new(&names);
    order.seed(web.url("large.test", "/"));
    order
        .text("limits.memory", "64 KiB")
        .text("limits.time", "30s");
    let harvest = Job::crawl(&order);
    let response = harvest.response(&web.url("large.test", "/"));
    assert!(response.block == answer.bytes(), "the block differs");
    let digest = Sha1Digest::of(&body).to_string();
    assert_eq!(response.field("WARC-Payload-Digest"), Some(digest.as_str()));
}

/// Two texts of one SHA-1, published in 2017 (shattered.io): the same beginning, and then one of two ends.
fn colliding() -> [Vec<u8>; 2] {
    let start = "255044462d312e330a25e2e3cfd30a0a0a312030206f626a0a3c3c2f57696474682032203020522f4865696768742033\
     203020522f547970652034203020522f537562747970652035203020522f46696c7465722036203020522f436f6c6f72\
     53706163652037203020522f4c656e6774682038203020522f42697473506572436f6d706f6e656e7420383e3e0a7374\
     7265616d0affd8fffe00245348412d3120697320646561642121212121852fec092339759c39b1a1c63c4c97e1fffe01";
    let ends = [
        "7346dc9166b67e118f029ab621b2560ff9ca67cca8c7f85ba84c79030c2b3de218f86db3a90901d5df45c14f26fedfb3\
     dc38e96ac22fe7bd728f0e45bce046d23c570feb141398bb552ef5a0a82be331fea48037b8b5d71f0e332edf93ac3500\
     eb4ddc0decc1a864790c782c76215660dd309791d06bd0af3f98cda4bc4629b1",
        "7f46dc93a6b67e013b029aaa1db2560b45ca67d688c7f84b8c4c791fe02b3df614f86db1690901c56b45c1530afedfb7\
     6038e972722fe7ad728f0e4904e046c230570fe9d41398abe12ef5bc942be33542a4802d98b5d70f2a332ec37fac3514\
     e74ddc0f2cc1a874cd0c78305a21566461309789606bd0bf3f98cda8044629a1",
    ];
    ends.map(|end| {
        let text = format!("{start}{end}");
        let pairs = text.as_bytes().chunks(2);
        pairs
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    })
}

#[test]
fn two_payloads_of_one_sha1_are_both_kept() {
    let [one, other] = colliding();
    assert_eq!(Sha1Digest::of(&one), Sha1Digest::of(&other));
    assert_ne!(one, other);
    let (web, names) = web_on(1);
    let pages = [
        ("/1-one", &one),
        ("/2-other", &other),
        ("/3-one", &one),
        ("/4-other", &other),
    ];
    let mut answers =
        Vec::from(pages.map(|(path, body)| (path.to_owned(), Answer::of("application/pdf", body))));
    // Each page leads to one and to the next page. With one thread that packs, what the next page leads to is asked for
    // when the one before it is known.
    for (number, (path, _)) in pages.iter().enumerate() {
        let page = format!(
            "<a href={path}>it</a> <a href=/page/{}>next</a>",
            number + 1
        );
        answers.push((format!("/page/{number}"), html(&page)));
    }
    web.pages("twins.test", answers);
    let mut order = Order::new(&names);
    order.seed(web.url("twins.test", "/page/0"));
    let job = Job::give(&order);
    job.root
        .settings(&["crawl"], "[stage.crawl]\npack-threads = 1\n");
    job.finish();
    let harvest = web::Harvest::read(job);
    let kinds = pages.map(|(path, body)| {
        let url = web.url("twins.test", path);
        let kinds = [RecordKind::Response, RecordKind::Revisit];
        let found = kinds.map(|kind| harvest.of(kind, &url)).concat();
        assert_eq!(found.len(), 1, "{url}");
        let digest = Sha1Digest::of(body).to_string();
        assert_eq!(found[0].field("WARC-Payload-Digest"), Some(&*digest));
        if found[0].kind == RecordKind::Response {
            assert!(found[0].block.ends_with(body), "{url}");
        }
        found[0].kind
    });
    // What has the SHA-1 of another is never a revisit: whoever looks for its original by that finds the other.
    use RecordKind::{Response, Revisit};
    assert_eq!(kinds, [Response, Response, Revisit, Response]);
}

/// A site that shows whoever comes what it has seen of him before.
#[test]
fn a_page_is_as_somebody_sees_it_who_comes_for_the_first_time() {
    let crawl = |kept: &str| {
        let (web, names) = web_on(1);
        web.host("trail.test", |request, wire| {
            let seen = request.field("Cookie").unwrap_or_default();
            let (mime, body) = match request.target.as_str() {
                "/" => ("text/html", "<a href=/2>next</a> <img src=/i>"),
                "/2" => ("text/html", "<link rel=stylesheet href=/s>"),
                "/s" => ("text/css", "a { background: url(/j) }"),
                _ => ("image/gif", "i"),
            };
            let name = request.target.trim_start_matches('/');
            let cookie = format!("Set-Cookie: seen{name}=1\r\n");
            let body = format!("{body}<!-- {seen} -->");
            let fields = format!("Content-Type: {mime}\r\n{cookie}");
            wire.answer(&Answer::new("200 OK", &fields, body.as_bytes()))
        });
        let mut order = Order::new(&names);
        order
            .seed(web.url("trail.test", "/"))
            .text("robots.policy", "ignore")
            .text("agent.cookies-kept", kept);
        let harvest = Job::crawl(&order);
        ["/", "/i", "/2", "/s", "/j"].map(|path| {
            let response = harvest.response(&web.url("trail.test", path));
            let text = String::from_utf8_lossy(&response.block).into_owned();
            let (_, seen) = text.split_once("<!-- ").unwrap();
            seen.trim_end_matches(" -->").to_owned()
        })
    };
    let own = ["", "seen=1", "", "seen2=1", "seen2=1; seens=1"];
    assert_eq!(crawl("page"), own);
    let job = crawl("job");
    assert!(job[2].contains("seen=1"), "{job:?}");
}

#[test]
fn what_came_over_tls_is_kept_and_its_certificate_judged() {
    let web = Web::secure();
    let (_, names) = web_on(1);
    let answer = html("<p>over TLS</p>");
    web.pages("safe.test", [("/".to_owned(), answer.clone())]);
    let mut order = Order::new(&names);
    order.seed(web.url("safe.test", "/"));
    let harvest = Job::crawl(&order);
    let url = web.url("safe.test", "/");
    let response = harvest.response(&url);
    assert_eq!(response.block, answer.bytes());
    let header = &response.header;
    assert!(header.contains("WARC-Protocol: tls/1.3"), "{header}");
    assert!(header.contains("WARC-Cipher-Suite: TLS_"), "{header}");
    let line = harvest.line(&url);
    assert_eq!(line.status, 200, "{line:?}");
    let judged = line.annotations.iter().any(|what| what.starts_with("tls:"));
    assert!(judged, "{line:?}");
}
