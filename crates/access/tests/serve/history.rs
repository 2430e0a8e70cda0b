//! The history of a URL: search, calendar, list, and what is said of one that is not there.

use crate::made::{Made, Served};

const PAGE: &str = "http://www.a.example/dir/";

fn archive() -> (Made, Served) {
    let mut made = Made::new();
    made.html(PAGE, "20240229120000", "first");
    made.html(PAGE, "20260105060000", "second");
    made.html(PAGE, "20260105180000", "third");
    made.record(
        "revisit",
        PAGE,
        "20260210000000",
        "WARC-Payload-Digest: sha1:5\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
    );
    made.html("http://www.a.example/dir/index.html", "20250101000000", "x");
    made.html("http://www.a.example/dir/next.html", "20250101000000", "x");
    made.publish(1);
    let served = made.serve();
    (made, served)
}

fn told(served: &Served, path: &str, more: &str) -> (u16, String) {
    let answer = served.ask("GET", path, more);
    (answer.status, answer.text().replace("&#x2f;", "/"))
}

#[test]
fn the_search_box_leads_to_the_history_of_a_url() {
    let (_made, served) = archive();
    let (status, home) = told(&served, "/", "");
    assert!(status == 200 && home.contains("<form class=\"search\" action=\"/search\""));
    let led = served.get("/search?url=www.a.example%2Fdir%2F&collection=web");
    assert_eq!(led.status, 302);
    assert_eq!(
        led.field("location"),
        Some("/web/*/http://www.a.example/dir/")
    );
    assert_eq!(served.get("/search?url=").field("location"), Some("/"));
    assert_eq!(served.get("/search?url=a&collection=none").status, 404);
}

#[test]
fn calendar_and_list_show_when_a_url_was_captured_and_what_was_found() {
    let (_made, served) = archive();
    let (status, page) = told(&served, &format!("/web/*/{PAGE}"), "");
    assert_eq!(status, 200);
    for part in [
        "4 captures, from 29 February 2024 to 10 February 2026.",
        "<h2>2026</h2>",
        "<caption>January</caption>",
        // A day with two captures leads to the list, one with one to the capture.
        "<a href=\"#t20260105060000\" aria-label=\"5 January 2026: 2 captures\">5</a>",
        "<a href=\"/web/20260210000000/http://www.a.example/dir/\" aria-label=\"10 February 2026: 1 capture\">10</a>",
        "5 January 2026, 18:00:00",
        "<td>200</td><td>text/html</td>",
        "<td>unchanged</td>",
        "href=\"/web/2024*/http://www.a.example/dir/\"",
        // The same page under another address.
        "http://www.a.example/dir/index.html</a> – 1 capture",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    let (_, year) = told(
        &served,
        &format!("/web/2024*/{PAGE}"),
        "Accept-Language: fr-FR, en;q=0.5\r\n",
    );
    assert!(
        year.contains("29 février 2024 à 12:00:00") && !year.contains("2026, 18"),
        "{year}"
    );
    // With and without www, http and https, are one URL.
    let (_, other) = told(&served, "/web/*/https://a.example/dir/", "");
    assert!(other.contains("4 captures, from"), "{other}");
}

#[test]
fn what_is_not_there_is_said_with_what_was_tried_and_what_is_near() {
    let (_made, served) = archive();
    let (status, page) = told(&served, "/web/*/http://www.a.example/dir/none.html", "");
    assert_eq!(status, 404);
    assert!(
        page.contains("Not in the archive") && page.contains("/dir/next.html"),
        "{page}"
    );
    let (status, page) = told(&served, "/web/2026mp_/http://www.a.example/dir/none", "");
    assert_eq!(status, 404);
    assert!(
        page.contains("These addresses were tried too") && page.contains("/dir/none/index.php"),
        "{page}"
    );
    let (status, page) = told(
        &served,
        "/web/2026mp_/http://www.a.example/dir/index.html?session=1",
        "",
    );
    assert_eq!(status, 404);
    assert!(
        page.contains("/web/*/http://www.a.example/dir/index.html\""),
        "{page}"
    );
}

#[test]
fn the_calendar_shows_captures_at_which_enough_has_changed() {
    use ecluse_changes::{
        ArchiveTime, ElementCounts, HistorySettings, PageHistory, ReadOutcome, RecordWriter,
        VersionChange,
    };
    let (made, _) = archive();
    let versions: Vec<VersionChange> = [
        ("20240229120000", None),
        ("20260105060000", Some(0.1)),
        ("20260105180000", Some(0.3)),
    ]
    .into_iter()
    .map(|(time, weight)| VersionChange {
        surt: "example,a)/dir".into(),
        time: ArchiveTime::parse(time).unwrap(),
        digest: time.into(),
        before: None,
        weight,
        counts: ElementCounts::default(),
        simhash: None,
        distance: None,
        text_weight: None,
        etag: None,
        last_modified: None,
        outcome: ReadOutcome::Read,
        words: None,
    })
    .collect();
    let settings = HistorySettings {
        periods: 24,
        prior_days: 0.5,
        pattern_gap_days: 0.0,
        pattern_changes: 9,
        unweighed: 0.1,
    };
    let (page, _) = PageHistory::begin(settings, PAGE, &versions[0]).finish();
    let generation = made.path().join("changes/generations/1");
    std::fs::create_dir_all(&generation).unwrap();
    std::os::unix::fs::symlink("generations/1", made.path().join("changes/current")).unwrap();
    let mut out = RecordWriter::create(&generation).unwrap();
    for version in &versions {
        out.write(version).unwrap();
    }
    out.finish().unwrap();
    let mut out = RecordWriter::create(&generation).unwrap();
    out.write(&page).unwrap();
    out.finish().unwrap();
    RecordWriter::<ecluse_changes::SitePattern>::create(&generation)
        .unwrap()
        .finish()
        .unwrap();
    // The mean of its changes is 0.2: the second change comes to it, with what was left of the first.
    let served = made.serve_with(|access| access.calendar = ecluse_config::AccessCalendar::Changed);
    let (_, shown) = told(&served, &format!("/web/*/{PAGE}"), "");
    for part in [
        "2 captures, from 29 February 2024 to 5 January 2026.",
        "2 captures with little or no change are not shown.",
        "<a href=\"/web/2026**/http://www.a.example/dir/\">Show all captures</a>",
        "5 January 2026, 18:00:00",
    ] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
    assert!(!shown.contains("5 January 2026, 06:00:00"), "{shown}");
    // All of them are a link away, and stay so from year to year.
    let (_, all) = told(&served, &format!("/web/2026**/{PAGE}"), "");
    assert!(
        all.contains("4 captures, from") && all.contains("/web/2024**/"),
        "{all}"
    );
    assert!(!all.contains("Show all captures"), "{all}");
    // Where nothing is known of a page, and where the settings say so, all are shown.
    let (_, other) = told(&served, "/web/*/http://www.a.example/dir/next.html", "");
    assert!(other.contains("1 capture"), "{other}");
    let (_, as_shipped) = told(&made.serve(), &format!("/web/*/{PAGE}"), "");
    assert!(as_shipped.contains("4 captures, from"), "{as_shipped}");
}
