//! The program: the contract of every stage, and what it makes of captures.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::fs;
use std::io::Write;
use std::path::Path;

use ecluse_changes::{
    Announcement, ArchiveTime, PageChanges, PagePattern, PatternOf, ReadOutcome, SignalKind,
    SitePattern, VersionChange,
};
use ecluse_testkit::contract::Contract;
use flate2::Compression;
use flate2::write::GzEncoder;

use common::*;

#[test]
fn change_keeps_the_contract() {
    Contract {
        stage: "change",
        binary: Path::new(CHANGE),
        settings: "next = [\"sink\"]\nbatch = { parcels = 100, wait = \"50ms\" }",
        good: &[(
            "captures.cdxj",
            b"org,example)/ 20260101000000 {\"url\": \"http://example.org/\", \"mime\": \"text/html\", \"status\": \"200\", \
              \"digest\": \"sha1:A\", \"length\": \"1\", \"offset\": \"0\", \"filename\": \"a.warc\"}\n",
        )],
        bad: &[("captures.cdxj", b"b 20260101000000 {}\na 20260101000000 {}\n")],
    }
    .keep();
}

fn time(digits: &str) -> ArchiveTime {
    ArchiveTime::parse(digits).unwrap()
}

const OLD: &str =
    "<nav><a href=/>Home</a></nav><main><h1>News</h1><p>The gate is open today</p></main>";
const NEW: &str =
    "<nav><a href=/>Home</a></nav><main><h1>News</h1><p>The gate is closed today</p></main>";

#[test]
fn a_page_that_changed_is_weighed_and_one_that_did_not_is_not_read() {
    let root = root("");
    let captures = [
        page("", "20260105120000", OLD),
        revisit("", "20260106120000", OLD),
        page("", "20260107120000", NEW),
        page("still", "20260105120000", "<p>same</p>"),
        page("still", "20260107120000", "<p>same</p>"),
        Fetched {
            mime: "image/png",
            ..page("a.png", "20260105120000", "x")
        },
        Fetched {
            status: 404,
            ..page("gone", "20260105120000", "no")
        },
    ];
    let lines = store(&root, "a.warc", &captures);
    publish(&root, None, &lines, &["a.warc"]);
    tell(&root, "one", None, &lines);
    run(&root, 0);
    let pages: Vec<PageChanges> = records(&current(&root));
    let names: Vec<&str> = pages.iter().map(|page| page.surt.as_str()).collect();
    assert_eq!(names, ["org,example)/", "org,example)/still"]);
    let [home, still] = &pages[..] else { panic!() };
    assert_eq!((home.looks, home.changes, home.quiet_days), (3, 1, 1.0));
    assert_eq!(
        (home.first, home.last),
        (time("20260105120000"), time("20260107120000"))
    );
    assert_eq!(
        (home.last_change, home.status),
        (Some(home.last), Some(200))
    );
    assert_eq!(home.intervals.counts[4], 1);
    assert_eq!((still.looks, still.changes, still.quiet_days), (2, 0, 2.0));
    assert!(still.rate < home.rate);
    let versions: Vec<VersionChange> = records(&current(&root));
    assert_eq!(versions.len(), 3);
    let change = &versions[1];
    assert_eq!(change.before.as_ref().unwrap().0, time("20260106120000"));
    assert_eq!(change.counts.counts, [[0, 0, 1], [0, 0, 0], [0, 0, 0]]);
    // Of eight words in seven a block has, five and its heading are in the changed one: one text of two, 2 of 6 words differ.
    let expected = (6.0 / 8.0) * (1.0 / 2.0) * (1.0 - 4.0 / 6.0) / 9.0;
    assert!(
        (change.weight.unwrap() - expected).abs() < 1e-8,
        "{change:?}"
    );
    assert_eq!(home.change_weight, change.weight);
    assert_eq!(home.simhash, change.simhash);
    assert!(change.distance.unwrap() > 0);
    // What was seen belongs to the site too.
    let sites: Vec<SitePattern> = records(&current(&root));
    assert_eq!((sites.len(), sites[0].pages, sites[0].changes), (1, 2, 1));
    assert_eq!(home.pattern, Some(PatternOf::Site));
    // The second parcel of the same captures adds nothing.
    tell(&root, "again", None, &lines);
    let before = given(&current(&root));
    run(&root, 0);
    assert_eq!(given(&current(&root)), before);
}

#[test]
fn what_servers_sitemaps_and_feeds_declare_is_taken() {
    let root = root("");
    let sitemap = "<urlset><url><loc>http://example.org/a</loc><lastmod>2026-01-04</lastmod></url>\
                   <url><loc>http://example.org/ahead</loc><lastmod>2030-01-04</lastmod></url>\
                   <url><loc>http://example.org/unseen</loc><lastmod>2026-01-03</lastmod></url></urlset>";
    let feed = "<rss><channel><item><link>/a</link><pubDate>Mon, 05 Jan 2026 01:00:00 GMT</pubDate></item></channel></rss>";
    let sent =
        |day: &str, tag: &str| format!("Last-Modified: {day} 00:00:00 GMT\r\nETag: \"{tag}\"\r\n");
    let captures = [
        Fetched {
            mime: "application/xml",
            ..page("sitemap.xml", "20260105120000", sitemap)
        },
        Fetched {
            mime: "application/rss+xml",
            ..page("feed", "20260105120000", feed)
        },
        Fetched {
            headers: sent("Sun, 04 Jan 2026", "one two"),
            ..page("a", "20260105000000", OLD)
        },
        Fetched {
            headers: sent("Tue, 06 Jan 2026", "3"),
            ..page("a", "20260107000000", NEW)
        },
    ];
    let lines = store(&root, "a.warc", &captures);
    publish(&root, None, &lines, &["a.warc"]);
    tell(&root, "one", None, &lines);
    run(&root, 0);
    let pages: Vec<PageChanges> = records(&current(&root));
    let page = pages.iter().find(|page| page.url.ends_with("/a")).unwrap();
    assert_eq!(
        page.signal,
        Some((SignalKind::Feed, time("20260105010000")))
    );
    assert_eq!((page.declared_changes, page.declared_days), (2, 2.0));
    assert_eq!(page.etag.as_deref(), Some("\"3\""));
    assert_eq!(
        page.last_modified.as_deref(),
        Some("Tue, 06 Jan 2026 00:00:00 GMT")
    );
    let signals: Vec<Announcement> = records(&current(&root));
    let urls: Vec<&str> = signals.iter().map(|told| told.url.as_str()).collect();
    assert_eq!(urls, ["http://example.org/a", "http://example.org/unseen"]);
}

#[test]
fn a_packed_sitemap_and_a_json_feed_are_read() {
    let root = root("");
    let sitemap =
        "<urlset><url><loc>http://example.org/a</loc><lastmod>2026-01-04</lastmod></url></urlset>";
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(sitemap.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    let feed = r#"{"version":"https://jsonfeed.org/version/1.1","items":[{"url":"/b","date_modified":"2026-01-04T01:00:00Z"}]}"#;
    let time = "20260105120000";
    let captures = [
        Fetched {
            mime: "application/x-gzip",
            body: packed.clone(),
            ..page("sitemap.XML.gz", time, "")
        },
        // What it is packed in does not tell what is packed.
        Fetched {
            mime: "application/gzip",
            body: packed.clone(),
            ..page("backup.tar.gz", time, "")
        },
        // Half of it, and of another type: what is before the damage counts.
        Fetched {
            mime: "text/xml",
            body: packed[..packed.len() - 6].to_vec(),
            ..page("map", time, "")
        },
        Fetched {
            mime: "application/feed+json",
            ..page("feed.json", time, feed)
        },
    ];
    let lines = store(&root, "a.warc", &captures);
    publish(&root, None, &lines, &["a.warc"]);
    tell(&root, "one", None, &lines);
    run(&root, 0);
    let signals: Vec<Announcement> = records(&current(&root));
    let told: Vec<(&str, SignalKind)> = signals
        .iter()
        .map(|told| (told.url.as_str(), told.kind))
        .collect();
    let expected = [
        ("http://example.org/a", SignalKind::Sitemap),
        ("http://example.org/b", SignalKind::Feed),
    ];
    assert_eq!(told, expected);
    let pages: Vec<PageChanges> = records(&current(&root));
    let keys: Vec<&str> = pages.iter().map(|page| page.surt.as_str()).collect();
    assert_eq!(keys.len(), 3, "{keys:?}");
    // Its text is that of the sitemap.
    assert!(pages.iter().all(|page| page.text_weight.is_some()));
}

#[test]
fn words_of_a_list_are_counted() {
    let root = root("words = \"words.tsv\"");
    let captures = [
        page("", "20260105120000", OLD),
        page("", "20260107120000", NEW),
        Fetched {
            mime: "application/pdf",
            ..page("c.pdf", "20260105000000", "%PDF")
        },
    ];
    let lines = store(&root, "a.warc", &captures);
    publish(&root, None, &lines, &["a.warc"]);
    tell(&root, "one", None, &lines);
    // Without the list it does not begin, and says so; what came waits.
    let said = run(&root, 78);
    assert!(said.contains("words.tsv"), "{said}");
    fs::write(root.path().join("words.tsv"), "the\t1000\ngate\tmany\n").unwrap();
    let said = run(&root, 78);
    assert!(said.contains("line 2"), "{said}");
    fs::write(
        root.path().join("words.tsv"),
        "the\t1000\ngate\t4\nclosed\t2\n",
    )
    .unwrap();
    run(&root, 0);
    let versions: Vec<VersionChange> = records(&current(&root));
    let [first, second, pdf] = &versions[..] else {
        panic!("{versions:?}")
    };
    let words = |version: &VersionChange| version.words.unwrap();
    assert!((words(first).infrequency - (0.001 + 0.25)).abs() < 1e-6);
    assert!((words(second).infrequency - (0.001 + 0.25 + 0.5)).abs() < 1e-6);
    assert!((words(second).share - 13.0 / NEW.len() as f64).abs() < 1e-6);
    assert_eq!(pdf.words, None);
    let pages: Vec<PageChanges> = records(&current(&root));
    assert_eq!((pages[0].words, pages[1].words), (second.words, None));
}

#[test]
fn what_is_damaged_or_gone_is_told_and_tried_again() {
    let root = root("");
    let captures = [
        page("a", "20260105000000", OLD),
        page("a", "20260106000000", NEW),
        page("b", "20260105000000", OLD),
        Fetched {
            mime: "application/pdf",
            ..page("c.pdf", "20260105000000", "%PDF")
        },
        Fetched {
            mime: "application/pdf",
            ..page("c.pdf", "20260106000000", "%PDF2")
        },
        revisit("d", "20260106000000", "of something else"),
    ];
    let lines = store(&root, "a.warc", &captures);
    publish(&root, None, &lines, &["a.warc"]);
    let path = root.path().join("repository/a.warc");
    let whole = fs::read(&path).unwrap();
    let damaged =
        String::from_utf8(whole.clone())
            .unwrap()
            .replacen("WARC/1.1\r\n", "WHAT/1.1\r\n", 1);
    fs::write(&path, damaged).unwrap();
    tell(&root, "one", None, &lines);
    run(&root, 0);
    let outcomes = || -> Vec<(String, ReadOutcome)> {
        let versions: Vec<VersionChange> = records(&current(&root));
        let told = |it: VersionChange| {
            (
                it.surt.split('/').next_back().unwrap().to_owned(),
                it.outcome,
            )
        };
        versions.into_iter().map(told).collect()
    };
    let expected = |first, second| {
        vec![
            ("a".to_owned(), first),
            ("a".to_owned(), second),
            ("b".to_owned(), ReadOutcome::Read),
            ("c.pdf".to_owned(), ReadOutcome::NoText),
            ("c.pdf".to_owned(), ReadOutcome::NoText),
        ]
    };
    assert_eq!(
        outcomes(),
        expected(ReadOutcome::Damaged, ReadOutcome::Damaged)
    );
    let receipt = receipt(&root);
    assert!(
        receipt.contains("\"versions damaged\": 2") || receipt.contains("\"versions damaged\":2"),
        "{receipt}"
    );
    assert!(
        receipt.contains("passed over: a revisit of no document"),
        "{receipt}"
    );
    let pages: Vec<PageChanges> = records(&current(&root));
    assert_eq!((pages[0].changes, pages[0].change_weight), (1, None));
    // It is whole again, and the page is captured again.
    fs::write(&path, whole).unwrap();
    let more = store(&root, "b.warc", &[page("a", "20260107000000", NEW)]);
    publish(
        &root,
        None,
        &[lines, more.clone()].concat(),
        &["a.warc", "b.warc"],
    );
    tell(&root, "two", None, &more);
    run(&root, 0);
    assert_eq!(outcomes(), expected(ReadOutcome::Read, ReadOutcome::Read));
    // A file that is nowhere.
    let lost = store(&root, "c.warc", &[page("lost", "20260107000000", NEW)]);
    tell(&root, "three", None, &lost);
    run(&root, 0);
    assert!(outcomes().contains(&("lost".to_owned(), ReadOutcome::Missing)));
}

fn receipt(root: &ecluse_testkit::root::Root) -> String {
    let files = ecluse_testkit::root::contents(&root.part("change", "receipts"));
    files
        .values()
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .collect()
}

/// Captures of many pages over weeks, in four files, some of them of the same days.
fn history(root: &ecluse_testkit::root::Root) -> Vec<(String, Vec<String>)> {
    let mut files = Vec::new();
    for part in 0..4usize {
        let mut captures = Vec::new();
        for n in 0..12 {
            for week in 0..3 {
                let day = 1 + week * 7 + (part * 5 + n) % 7;
                let version = (week * 7 + part) / (n + 1);
                let body = format!(
                    "<h1>Page {n}</h1><p>version {version} of it</p><a href=/{version}>x</a>"
                );
                let mut fetched = page(
                    &format!("p{n}"),
                    &format!("202601{day:02}{:02}0000", part * 6),
                    &body,
                );
                if n == 3 {
                    fetched.headers = format!(
                        "ETag: \"{version}\"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n"
                    );
                }
                captures.push(fetched);
            }
        }
        let lastmod = format!(
            "<urlset><url><loc>http://example.org/p1</loc><lastmod>2026-01-0{}</lastmod></url></urlset>",
            1 + part
        );
        captures.push(Fetched {
            mime: "text/xml",
            ..page("sitemap.xml", &format!("2026012{part}000000"), &lastmod)
        });
        let name = format!("part{part}.warc");
        files.push((name.clone(), store(root, &name, &captures)));
    }
    files
}

#[test]
fn the_same_captures_give_the_same_bytes_in_any_order_and_batch() {
    let mut expected = None;
    // Together; one after the other; backwards, so that each is older than what is known.
    for order in [
        vec![vec![0, 1, 2, 3]],
        vec![vec![0], vec![1], vec![2], vec![3]],
        vec![vec![3], vec![2, 1], vec![0]],
    ] {
        let root = root("");
        let files = history(&root);
        let mut lines = Vec::new();
        let mut names = Vec::new();
        for (at, group) in order.iter().enumerate() {
            for part in group {
                let (name, more) = &files[*part];
                lines.extend(more.clone());
                names.push(name.as_str());
                tell(&root, &format!("{at}-{part}"), None, more);
            }
            publish(&root, None, &lines, &names);
            run(&root, 0);
        }
        let found = given(&current(&root));
        assert_eq!(found.len(), 5);
        let pages: Vec<PageChanges> = records(&current(&root));
        assert_eq!(pages.len(), 13);
        assert!(
            pages
                .iter()
                .any(|page| page.pattern == Some(PatternOf::Page))
        );
        assert!(!records::<PagePattern>(&current(&root)).is_empty());
        let expected = expected.get_or_insert_with(|| found.clone());
        assert_eq!(
            expected.keys().collect::<Vec<_>>(),
            found.keys().collect::<Vec<_>>()
        );
        for (name, bytes) in &found {
            assert!(bytes == &expected[name], "{name} differs in {order:?}");
        }
    }
}

#[test]
fn a_collection_has_changes_of_its_own() {
    let root = root("keep = 1");
    let captures = [
        page("", "20260105000000", OLD),
        page("", "20260106000000", NEW),
    ];
    let lines = store(&root, "a.warc", &captures);
    publish(&root, None, &lines, &["a.warc"]);
    publish(&root, Some("press"), &lines[..1], &["a.warc"]);
    tell(&root, "main", None, &lines);
    tell(&root, "press", Some("press"), &lines[..1]);
    run(&root, 0);
    let pages: Vec<PageChanges> = records(&current(&root));
    assert_eq!((pages[0].looks, pages[0].changes), (2, 1));
    let pages: Vec<PageChanges> = records(&root.path().join("changes/press/current"));
    assert_eq!((pages[0].looks, pages[0].changes), (1, 0));
    tell(&root, "next", None, &lines[1..]);
    run(&root, 0);
    assert_eq!(
        fs::read_dir(root.path().join("changes/generations"))
            .unwrap()
            .count(),
        1
    );
}

#[test]
fn settings_say_how_changes_are_read() {
    // One of nine, or all of it; half of the first 60 bytes is all that is looked at.
    let weigh = |settings: &str| {
        let root = root(settings);
        let tail = "<p>and more below</p>".repeat(20);
        let captures = [
            page(
                "",
                "20260105000000",
                &format!("<p>one two three</p><img src=/spots/1>{tail}"),
            ),
            page(
                "",
                "20260105013000",
                &format!("<p>four five six</p><img src=/spots/2>{tail}"),
            ),
        ];
        let lines = store(&root, "a.warc", &captures);
        publish(&root, None, &lines, &["a.warc"]);
        tell(&root, "one", None, &lines);
        run(&root, 0);
        let version: Vec<VersionChange> = records(&current(&root));
        let page: Vec<PageChanges> = records(&current(&root));
        let pattern: Vec<PagePattern> = records(&current(&root));
        (version[1].weight.unwrap(), page[0].clone(), pattern)
    };
    let (formula, page, pattern) = weigh("");
    assert_eq!(
        (page.pattern, pattern[0].sums.periods()),
        (Some(PatternOf::Site), 24)
    );
    let (example, _, _) = weigh("norm = \"example\"");
    assert!(
        (example - (formula * 9.0).min(1.0)).abs() < 1e-7,
        "{example} {formula}"
    );
    let (algorithm, _, _) = weigh("norm = \"algorithm-2\"");
    assert!((algorithm - (formula * 3.0).min(1.0)).abs() < 1e-7);
    let (short, _, _) = weigh("document = \"40 B\"");
    assert!(short > formula);
    let (spots, _, _) = weigh("advertisements = [\"/spots/\"]");
    assert!(spots < formula);
    let (_, other, pattern) =
        weigh("prior = \"1h\"\nperiods = 12\npattern-changes = 1\nmemory = \"1 MiB\"");
    assert!(other.rate > page.rate);
    assert_eq!(
        (other.pattern, pattern[0].sums.periods()),
        (Some(PatternOf::Page), 12)
    );
    let (_, apart, pattern) = weigh("pattern-gap = \"1h\"");
    assert_eq!((apart.pattern, pattern.len()), (None, 0));
}
