//! Nothing panics, nothing runs away: random bytes, mutated documents, and documents made to hurt.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::time::{Duration, Instant};

use ecluse_extract::{Context, Ended, ExtractLimits, Link, Report, Url, extract, extract_headers};
use proptest::prelude::*;

const TYPES: [Option<&str>; 10] = [
    None,
    Some("text/html"),
    Some("application/xhtml+xml"),
    Some("text/css"),
    Some("application/javascript"),
    Some("application/json"),
    Some("application/xml"),
    Some("application/rss+xml"),
    Some("application/vnd.apple.mpegurl"),
    Some("text/html; charset=utf-16"),
];

fn read(content_type: Option<&str>, limits: ExtractLimits, document: &[u8]) -> (Vec<Link>, Report) {
    let url = Url::parse("http://lock.example/a/b").unwrap();
    let mut context = Context::new(&url, content_type);
    context.limits = limits;
    let mut links = Vec::new();
    let report = extract(&mut &*document, &context, &mut |link| links.push(link)).unwrap();
    (links, report)
}

/// What holds of every document.
fn check(document: &[u8]) -> Result<(), TestCaseError> {
    let limits = ExtractLimits {
        links: 50,
        url_bytes: 100,
        token_bytes: 300,
        ..ExtractLimits::default()
    };
    for content_type in TYPES {
        let (links, report) = read(content_type, limits.clone(), document);
        prop_assert!(links.len() <= 50);
        prop_assert_eq!(links.len(), report.counts.links);
        for link in &links {
            prop_assert!(link.url.len() <= 100);
            prop_assert!(!link.url.contains('#'));
            let parsed = Url::parse(&link.url).expect("a link is a URL");
            prop_assert_eq!(parsed.as_str(), &link.url);
        }
    }
    Ok(())
}

/// Pieces of every syntax, to be put together in no order.
fn scrap() -> impl Strategy<Value = String> {
    let scraps = [
        "<a href=",
        "'/x'",
        "\"/y.png\"",
        ">",
        "<script>",
        "</script>",
        "<style>",
        "</style>",
        "url(",
        ")",
        "<!--",
        "-->",
        "<![CDATA[",
        "]]>",
        "<svg>",
        "</svg>",
        "`",
        "${",
        "}",
        "{",
        "\\",
        "/*",
        "*/",
        "//",
        "\n",
        "@import ",
        "<noscript>",
        "</noscript>",
        "<base href=/z>",
        "<!--[if IE]>",
        "<![endif]-->",
        "srcset='a 1x, b'",
        " data-src=",
        "<loc>",
        "</loc>",
        "<rss>",
        "<urlset>",
        "<?xml",
        "?>",
        "&amp;",
        "&#x2f;",
        "é",
        "\u{10FFFF}",
        "[",
        "]",
        ":",
        ",",
        "+",
        "'",
        "\"",
        "/",
        "<",
        "<meta charset=shift_jis>",
        "#EXTM3U",
        "\u{0}",
        "<template>",
        "<plaintext>",
        "<math>",
        "image-set(",
        "import './q.js'",
        "http://gate.example/p.js",
        "\\u002f",
        "<iframe srcdoc='",
    ];
    prop::collection::vec(prop::sample::select(scraps.to_vec()), 0..40)
        .prop_map(|scraps| scraps.concat())
}

proptest! {
    #[test]
    fn random_bytes(document in prop::collection::vec(any::<u8>(), 0..600)) {
        check(&document)?;
    }

    #[test]
    fn scraps_in_no_order(document in scrap()) {
        check(document.as_bytes())?;
    }

    #[test]
    fn mutated_scraps(document in scrap(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut document = document.into_bytes();
        for (at, byte) in changes {
            if !document.is_empty() {
                let at = at.index(document.len());
                document[at] = byte;
            }
        }
        check(&document)?;
    }

    #[test]
    fn random_headers(name in "(?i)link|location|refresh|content-location", value in prop::collection::vec(any::<u8>(), 0..80)) {
        let url = Url::parse("http://lock.example/").unwrap();
        let mut links = 0;
        let counts = extract_headers(&url, [(name.as_str(), value.as_slice())], &ExtractLimits::default(), &mut |_| links += 1);
        prop_assert_eq!(counts.links, links);
    }
}

/// Reads a document made to hurt, and fails if it takes longer than anything could excuse.
fn endure(content_type: &str, document: &[u8]) -> Report {
    let start = Instant::now();
    let (links, report) = read(Some(content_type), ExtractLimits::default(), document);
    // A debug build on a busy machine needs a few seconds for the worst; what is quadratic needs hours.
    assert!(
        start.elapsed() < Duration::from_secs(120),
        "{content_type}: {:?}",
        start.elapsed()
    );
    assert!(links.len() <= 6_000);
    report
}

#[test]
fn ten_megabytes_of_links_end_at_the_limit() {
    let mut page = String::new();
    for number in 0..350_000 {
        page.push_str(&format!("<a href=/page/{number}>link</a>"));
    }
    let report = endure("text/html", page.as_bytes());
    assert_eq!((report.ended, report.counts.links), (Ended::Links, 6_000));
    assert!(report.bytes < 1_000_000, "{} bytes read", report.bytes);
    let same = "<a href=/same>link</a>".repeat(30_000);
    let report = endure("text/html", same.as_bytes());
    assert_eq!(report.ended, Ended::Complete);
    assert_eq!((report.counts.links, report.counts.repeated), (1, 29_999));
}

#[test]
fn what_never_closes_costs_itself_only() {
    const SIZE: usize = 2 << 20;
    let mut junk = "x='y' ".repeat(SIZE / 6);
    for (open, close) in [
        ("<a title=\"", "\">"),
        ("<a ", ">"),
        ("<!-- ", "-->"),
        ("<noscript>", "</noscript>"),
        ("<style>", "</style>"),
        ("<script>", "</script>"),
    ] {
        let page = format!(
            "<a href=/before>{open}{junk}{close}{}<a href=/after>",
            " ".repeat(100_000)
        );
        let (links, _) = read(Some("text/html"), ExtractLimits::default(), page.as_bytes());
        let urls: Vec<_> = links.iter().map(|link| link.url.as_str()).collect();
        assert_eq!(
            urls,
            ["http://lock.example/before", "http://lock.example/after"],
            "{open}"
        );
    }
    junk.truncate(SIZE);
    for (content_type, open) in [
        ("text/html", "<a title=\""),
        ("text/html", "<script>x=`"),
        ("text/css", "a{b:url("),
        ("text/css", "/*"),
        ("text/css", "a{b:'"),
        ("application/javascript", "x=`"),
        ("application/javascript", "x=\""),
        ("application/javascript", "x=/"),
        ("application/javascript", "/*"),
        ("application/json", "[\""),
        ("application/xml", "<a b=\""),
        ("application/xml", "<![CDATA["),
        ("application/xml", "<!DOCTYPE ["),
        ("application/rss+xml", "<rss><link>"),
    ] {
        let report = endure(content_type, format!("{open}{junk}").as_bytes());
        assert_eq!(report.ended, Ended::Complete, "{content_type} {open}");
    }
}

#[test]
fn repetition_is_not_quadratic() {
    for (content_type, scrap) in [
        ("text/html", "<div>"),
        ("text/html", "<svg>"),
        ("text/html", "<script></script>"),
        ("text/html", "<noscript><a b=c></noscript>"),
        ("text/html", "<!--[if IE]><a b=c><![endif]-->"),
        ("text/html", "<!--[if"),
        ("text/html", "<"),
        ("text/html", "&amp;"),
        ("text/html", "<a b=c d=e "),
        ("text/css", "("),
        ("text/css", "a\\"),
        ("text/css", "url("),
        ("text/css", "'"),
        ("application/javascript", "`${"),
        ("application/javascript", "'+'"),
        ("application/javascript", "'<a b=c>';"),
        ("application/javascript", "{"),
        ("application/javascript", "/"),
        ("application/javascript", "\\"),
        ("application/json", "[\"{\\\"a\\\":\\\"/\\\"}\"],"),
        ("application/json", "\\\""),
        ("application/xml", "<a>"),
        ("application/xml", "<a b='"),
        ("application/xml", "<!"),
        (
            "application/rss+xml",
            "<rss><description>&lt;a b=c</description>",
        ),
        ("text/plain", "Sitemap: /x"),
    ] {
        let report = endure(
            content_type,
            scrap.repeat((300 << 10) / scrap.len()).as_bytes(),
        );
        assert_eq!(report.ended, Ended::Complete, "{content_type} {scrap}");
    }
}

#[test]
fn tables_of_names_take_what_they_may() {
    // Every key makes a name as long as all parts: a table of 20,000 keys and long parts would make gigabytes.
    let table: Vec<String> = (0..30_000).map(|n| format!("{n}:\"{n}\"")).collect();
    let long = "x".repeat(190);
    let parts = vec![format!("\"{long}\""); 20].join("+");
    let script = format!("x=\"a/\"+{parts}+{{{}}}[e]+\".js\"", table.join(","));
    endure("text/javascript", script.as_bytes());
    let huge = format!(
        "x=\"a/\"+{{1:\"{}\"}}[e]+\".js\";y='/a.png'",
        "x".repeat(900_000)
    );
    let report = endure("text/javascript", huge.as_bytes());
    assert_eq!(report.counts.links, 1);
}

#[test]
fn documents_in_documents_end() {
    let mut page = String::from("<img src=/deep.png>");
    for _ in 0..12 {
        page = format!(
            "<iframe srcdoc=\"{}\"></iframe>",
            page.replace('&', "&amp;").replace('"', "&quot;")
        );
    }
    let (links, report) = read(Some("text/html"), ExtractLimits::default(), page.as_bytes());
    assert_eq!(links.len(), 0);
    assert_eq!(report.passed_over, 1);
}
