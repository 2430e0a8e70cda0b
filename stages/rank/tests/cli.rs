//! The program: the contract of every stage, the generations it makes, and what a kill leaves.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use ecluse_changes::{ArchiveTime, PageChanges, RecordWriter, WordMeasures};
use ecluse_links::{LINKS_HEADER, LinksDirectory};
use ecluse_refresh::IntervalHistogram;
use ecluse_register::{Register, RegisterDay, RegisterRecord};
use ecluse_testkit::contract::Contract;
use ecluse_testkit::root::{Root, contents};
use serde_json::json;

const RANK: &str = env!("CARGO_BIN_EXE_ecluse-rank");

fn packed(lines: &[&str]) -> Vec<u8> {
    let text: String = [LINKS_HEADER]
        .iter()
        .chain(lines)
        .map(|line| format!("{line}\n"))
        .collect();
    zstd::encode_all(text.as_bytes(), 1).unwrap()
}

fn unpacked(path: &Path) -> String {
    let mut text = String::new();
    let file = std::fs::File::open(path).unwrap();
    zstd::Decoder::new(file)
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    text
}

const LINE: &str = "fr,a)/\t20260101000000\tsha1:A\thttps://a.fr/\ta https://b.fr/";

#[test]
fn rank_keeps_the_contract() {
    Contract {
        stage: "rank",
        binary: Path::new(RANK),
        settings: "batch = { parcels = 100, wait = \"50ms\" }\nnext = [\"sink\"]",
        good: &[("a.links.zst", &packed(&[LINE]))],
        bad: &[("a.links.zst", b"no such file or directory\n")],
    }
    .keep();
}

fn root(more: &str) -> Root {
    let root = Root::new();
    root.settings(&["rank"], &format!("[stage.rank]\nnext = []\n{more}\n"));
    root
}

fn put(root: &Root, id: &str, lines: &[&str]) {
    root.put_with("rank", id, "links", |parcel| {
        parcel.write("day.links.zst", &packed(lines))
    });
}

fn run(root: &Root) {
    let (code, said) = root.run(RANK, &["--once"]);
    assert_eq!(code, 0, "{said}");
}

/// What is known of each URL: its rank, its links in and out, and when it was fetched.
fn ranks(root: &Root) -> BTreeMap<String, (f32, u32, u32, Option<String>)> {
    let links = LinksDirectory::at(&root.path().join("links")).unwrap();
    let mut reader = links.ranks().unwrap().unwrap();
    let mut found = BTreeMap::new();
    let (mut rank, mut interest) = (0.0, 0.0);
    while let Some(record) = reader.next_record().unwrap() {
        rank += f64::from(record.rank);
        interest += f64::from(record.interest);
        let fetched = record.fetched.map(|time| time.to_string());
        let known = (record.rank, record.links_in, record.links_out, fetched);
        found.insert(record.url.to_owned(), known);
    }
    assert!((rank - 1.0).abs() < 1e-5 && (interest - 1.0).abs() < 1e-5);
    found
}

fn current(root: &Root, name: &str) -> String {
    unpacked(&root.path().join("links/current").join(name))
}

/// The graph of five pages of the facts sheet, with links that do not count among the others.
const FIVE: [&str; 5] = [
    "fr,a)/0\t20260101000000\tsha1:0\thttps://a.fr/0\ta https://www.a.fr/1\ta https://b.fr/2\te https://a.fr/x.png\ta https://a.fr/0",
    "fr,a)/1\t20260101000000\tsha1:1\thttps://www.a.fr/1\ta https://b.fr/2\tr https://b.fr/2",
    "fr,a)/4\t20260101000000\tsha1:4\thttps://a.fr/4\tc https://b.fr:81/3",
    "fr,b)/2\t20260101000000\tsha1:2\thttps://b.fr/2\tr https://a.fr/0",
    "fr,b:81)/3\t20260101000000\tsha1:3\thttps://b.fr:81/3\ta https://a.fr/0",
];

#[test]
fn ranks_are_those_of_the_sheet_and_sites_the_sum_of_their_pages() {
    for slice in [1, 2, 1000] {
        let root = root(&format!("slice = {slice}\ntolerance = 1e-8"));
        put(&root, "five", &FIVE);
        run(&root);
        let found = ranks(&root);
        for (url, rank, links_in, links_out) in [
            ("https://a.fr/0", 0.374_901, 2, 2),
            ("https://www.a.fr/1", 0.189_333, 1, 1),
            ("https://b.fr/2", 0.350_266, 2, 1),
            ("https://b.fr:81/3", 0.055_5, 1, 1),
            ("https://a.fr/4", 0.03, 0, 1),
        ] {
            let known = &found[url];
            assert!((known.0 - rank).abs() < 1e-6, "{url} {known:?}");
            assert_eq!((known.1, known.2), (links_in, links_out), "{url}");
            assert_eq!(known.3.as_deref(), Some("20260101000000"));
        }
        assert_eq!(found.len(), 5, "a picture is embedded and does not count");
        let sites = LinksDirectory::at(&root.path().join("links")).unwrap();
        let mut sites = sites.sites().unwrap().unwrap();
        let mut told = Vec::new();
        while let Some(site) = sites.next_record().unwrap() {
            let rank = (site.rank * 1e4).round() / 1e4;
            let (links_in, links_out) = (site.links_in, site.links_out);
            told.push((
                site.domain.to_owned(),
                site.pages,
                rank,
                links_in,
                links_out,
            ));
        }
        assert_eq!(
            told,
            [
                ("a.fr".to_owned(), 3, 0.5942, 2, 3),
                ("b.fr".to_owned(), 2, 0.4058, 3, 2)
            ]
        );
    }
}

#[test]
fn the_latest_capture_of_a_page_counts_and_a_generation_stands_on_the_last_one() {
    let root = root("");
    put(
        &root,
        "one",
        &[
            "fr,a)/\t20260101000000\tsha1:A\thttps://a.fr/\ta https://old.fr/",
            "fr,a)/\t20260102000000\tsha1:B\thttps://a.fr/\ta https://b.fr/\ta https://c.fr/",
            "fr,a)/\t20260103000000\tsha1:B\thttps://a.fr/\t=",
            "fr,d)/\t20260103000000\t-\thttps://d.fr/\t=",
        ],
    );
    run(&root);
    let first = ranks(&root);
    let names: Vec<&str> = first.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "https://a.fr/",
            "https://b.fr/",
            "https://c.fr/",
            "https://d.fr/"
        ]
    );
    assert_eq!(first["https://a.fr/"].3.as_deref(), Some("20260103000000"));
    assert_eq!(first["https://b.fr/"].3, None);
    let links = current(&root, "links.tsv.zst");
    assert!(links.contains(
        "fr,a)/\t20260103000000\tsha1:B\thttps://a.fr/\ta https://b.fr/\ta https://c.fr/\n"
    ));

    // What is older than what is known changes nothing, and what is newer replaces it.
    put(
        &root,
        "two",
        &[
            "fr,a)/\t20251231000000\tsha1:Z\thttps://a.fr/\ta https://older.fr/",
            "fr,b)/\t20260105000000\tsha1:C\thttps://b.fr/\ta https://a.fr/",
            "fr,d)/\t20260105000000\tsha1:D\thttps://d.fr/",
        ],
    );
    run(&root);
    let second = ranks(&root);
    assert_eq!(second.len(), 4);
    assert_eq!(second["https://b.fr/"].2, 1);
    assert!(second["https://a.fr/"].0 > first["https://a.fr/"].0);
    let number = std::fs::read_link(root.path().join("links/current")).unwrap();
    assert_eq!(number, Path::new("generations/2"));

    // The same ranks come from all links at once: where sweeps begin does not matter.
    let once = self::root("");
    put(
        &once,
        "b",
        &[
            "fr,a)/\t20260102000000\tsha1:B\thttps://a.fr/\ta https://b.fr/\ta https://c.fr/",
            "fr,b)/\t20260105000000\tsha1:C\thttps://b.fr/\ta https://a.fr/",
            "fr,d)/\t20260105000000\tsha1:D\thttps://d.fr/",
        ],
    );
    run(&once);
    for (url, (rank, ..)) in ranks(&once) {
        assert!((rank - second[&url].0).abs() < 1e-6, "{url}");
    }
    // A parcel that a generation holds makes no other.
    put(
        &once,
        "b",
        &[
            "fr,a)/\t20260102000000\tsha1:B\thttps://a.fr/\ta https://b.fr/\ta https://c.fr/",
            "fr,b)/\t20260105000000\tsha1:C\thttps://b.fr/\ta https://a.fr/",
            "fr,d)/\t20260105000000\tsha1:D\thttps://d.fr/",
        ],
    );
    let _ = once.run(RANK, &["--once"]);
    let number = std::fs::read_link(once.path().join("links/current")).unwrap();
    assert_eq!(number, Path::new("generations/1"));
}

#[test]
fn a_line_that_makes_no_sense_holds_its_parcel_and_no_other() {
    let root = root("");
    put(&root, "good", &[LINE]);
    put(&root, "bad", &["fr,a)/\tyesterday\t-\thttps://a.fr/"]);
    put(
        &root,
        "unsorted",
        &["fr,b)/\t20260101000000\t-\thttps://b.fr/", LINE],
    );
    root.put_files("rank", "other", &[("x.cdxj", b"")]);
    let (code, said) = root.run(RANK, &["--once"]);
    assert_eq!(code, 65, "{said}");
    assert_eq!(ranks(&root).len(), 2);
    assert!(root.why("rank", "bad").contains("day.links.zst: bad time"));
    assert!(root.why("rank", "unsorted").contains("not in byte order"));
    assert!(root.why("rank", "other").contains("has no .links.zst file"));
}

#[test]
fn a_day_without_captures_makes_an_empty_generation() {
    let root = root("");
    put(&root, "none", &[]);
    run(&root);
    let links = LinksDirectory::at(&root.path().join("links")).unwrap();
    let mut ranks = links.ranks().unwrap().unwrap();
    assert_eq!(ranks.next_record().unwrap(), None);
    put(&root, "some", &[LINE]);
    run(&root);
    assert_eq!(self::ranks(&root).len(), 2);
}

#[test]
fn relevance_goes_over_links_and_seeds_are_as_relevant_as_anything() {
    let lines = [
        "com,x)/\t20260101000000\t-\thttps://x.com/\ta https://a.fr/",
        "fr,a)/\t20260101000000\t-\thttps://a.fr/\ta https://y.com/\ta https://b.fr/",
    ];
    let told = |perimeter: &str, seeds: &str| {
        let root = root(&format!("[stage.rank.perimeter]\n{perimeter}"));
        std::fs::write(root.path().join("seeds.txt"), seeds).unwrap();
        put(&root, "x", &lines);
        run(&root);
        let links = LinksDirectory::at(&root.path().join("links")).unwrap();
        let mut reader = links.ranks().unwrap().unwrap();
        let mut found = BTreeMap::new();
        while let Some(record) = reader.next_record().unwrap() {
            found.insert(record.url.to_owned(), record.relevance);
        }
        [
            "https://x.com/",
            "https://y.com/",
            "https://a.fr/",
            "https://b.fr/",
        ]
        .map(|url| found[url])
    };
    // X = (x 0, y 0, a 1, b 1); a links to y and b, x links to a.
    assert_eq!(
        told("tlds = [\"fr\"]\ndirection = \"in\"", ""),
        [0.0, 0.25, 1.0, 1.25]
    );
    assert_eq!(
        told("tlds = [\"fr\"]\ndirection = \"out\"", ""),
        [0.625, 0.0, 1.25, 1.0]
    );
    assert_eq!(told("tlds = [\"fr\"]", ""), [0.625, 0.25, 1.25, 1.25]);
    assert_eq!(
        told("tlds = [\"fr\"]\nforeign = -1.0\ndecay = 0.0", ""),
        [-1.0, -1.0, 1.0, 1.0]
    );
    assert_eq!(
        told("tlds = [\"fr\"]\ndirection = \"in\"", "https://x.com/\n"),
        [1.5, 0.375, 1.5, 1.375]
    );
    assert_eq!(told("", ""), [0.0; 4]);
}

/// A page of which change knows how much is text, and what its words say.
fn measured(surt: &str, text_weight: f64, words: Option<WordMeasures>) -> PageChanges {
    let time = ArchiveTime::parse("20260101000000").unwrap();
    PageChanges {
        surt: surt.to_owned(),
        url: "https://a.fr/".to_owned(),
        first: time,
        last: time,
        looks: 1,
        changes: 0,
        last_change: None,
        quiet_days: 0.0,
        declared_days: 0.0,
        declared_changes: 0,
        intervals: IntervalHistogram::default(),
        rate: 1.0,
        change_weight: None,
        text_weight: Some(text_weight),
        status: Some(200),
        etag: None,
        last_modified: None,
        signal: None,
        simhash: None,
        pattern: None,
        words,
    }
}

/// The register says that b.com is French and stands in France, and that c.com is neither.
fn register(root: &Root) {
    let record = |domain: &str, language: &str, address: &str| {
        let mut record = RegisterRecord::new(domain, RegisterDay::new(2026, 1, 1).unwrap());
        let evidence = json!({"language": {"value": language, "day": "20260101"}});
        record.more.insert("evidence".to_owned(), evidence);
        record.more.insert("addresses".to_owned(), json!([address]));
        Ok(record)
    };
    let register = Register::at(&root.path().join("register")).unwrap();
    let records = [
        record("b.com", "fr", "192.0.2.7"),
        record("c.com", "en", "203.0.113.1"),
    ];
    let made = register.update(Vec::new(), records.into_iter(), 2, &|| false);
    assert_eq!(made.unwrap().records, 2);
    let countries = ecluse_testkit::mmdb::country("FR", [192, 0, 2]);
    std::fs::write(root.path().join("countries.mmdb"), countries).unwrap();
}

#[test]
fn texts_languages_and_addresses_count_for_pages_and_sites() {
    let more = "[stage.rank.perimeter]\nlanguages = [\"fr\"]\nlanguage = 2.0\ncountries = [\"FR\"]\naddress = 8.0\n\
                country-file = \"countries.mmdb\"\ndecay = 0.0";
    let root = root(more);
    register(&root);
    let generation = root.path().join("changes/generations/1");
    std::fs::create_dir_all(&generation).unwrap();
    let current = root.path().join("changes/current");
    std::os::unix::fs::symlink("generations/1", current).unwrap();
    let words = |infrequency, share| Some(WordMeasures { infrequency, share });
    let mut pages = RecordWriter::<PageChanges>::create(&generation).unwrap();
    for page in [
        measured("com,b)/", 0.5, None),
        measured("com,c)/", 0.25, words(3.0, 0.5)),
        measured("com,c)/unknown", 0.9, None),
        measured("com,c)/x", 0.75, words(4.5, 0.25)),
    ] {
        pages.write(&page).unwrap();
    }
    pages.finish().unwrap();
    let lines = [
        "com,b)/\t20260101000000\t-\thttps://b.com/\ta https://b.com:81/x\ta https://d.com/",
        "com,c)/\t20260101000000\t-\thttps://c.com/\ta https://www.c.com/x\ta https://b-2.com/",
    ];
    put(&root, "x", &lines);
    run(&root);
    let links = LinksDirectory::at(&root.path().join("links")).unwrap();
    let mut reader = links.ranks().unwrap().unwrap();
    let mut found = BTreeMap::new();
    while let Some(record) = reader.next_record().unwrap() {
        found.insert(record.url.to_owned(), record.relevance);
    }
    for (url, relevance) in [
        // By its site; also on another port, which comes after the next site.
        ("https://b.com/", 10.0),
        ("https://b.com:81/x", 10.0),
        ("https://b-2.com/", 0.0),
        // By its own words, which go before what its site is said to be.
        ("https://c.com/", 1.0),
        ("https://d.com/", 0.0),
    ] {
        assert_eq!(found[url], relevance, "{url} in {found:?}");
    }
    let mut sites = links.sites().unwrap().unwrap();
    let mut told = Vec::new();
    while let Some(site) = sites.next_record().unwrap() {
        let words = (site.infrequency, site.word_share);
        told.push((site.domain.to_owned(), site.text_weight, words));
    }
    let none = (None, None);
    assert_eq!(
        told,
        [
            ("b.com".to_owned(), Some(0.5), none),
            ("b-2.com".to_owned(), None, none),
            // The infrequency of a site is that of its pages together, the others are means.
            ("c.com".to_owned(), Some(0.5), (Some(7.5), Some(0.375))),
            ("d.com".to_owned(), None, none),
        ]
    );
}

/// Links of so many pages on a few hosts.
fn many(pages: u64) -> Vec<String> {
    let mut lines = Vec::new();
    for page in 0..pages {
        let host = page % 7;
        let mut line =
            format!("fr,h{host})/{page:05}\t20260101000000\t-\thttps://h{host}.fr/{page:05}");
        for link in 1..8 {
            let target = (page * link * 31 + link * link) % (pages + 50);
            line += &format!("\ta https://h{}.fr/{target:05}", target % 7);
        }
        lines.push(line);
    }
    lines.sort();
    lines
}

/// 200 kills while it works: what comes out in the end is the same, byte by byte.
#[test]
fn killed_at_any_moment_it_goes_on_to_the_same_bytes() {
    let lines = many(600);
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let begin = || {
        let root = root("slice = 40\nattempts = 1000\nmemory = \"64 KiB\"\ntolerance = 1e-7");
        put(&root, "many", &lines);
        root
    };
    let results = |root: &Root| {
        let mut files = contents(&root.path().join("links/generations"));
        files.retain(|path, _| !path.to_string_lossy().contains("lock"));
        files
    };
    let whole = begin();
    run(&whole);
    let whole = results(&whole);
    assert!(whole.len() > 30, "{:?}", whole.keys());
    let mut root = begin();
    let (mut kills, mut ends, mut resumed) = (0, 0, 0);
    let mut wait = 1u64;
    while kills < 200 {
        let mut command = root.program(RANK);
        let mut child = command
            .arg("--once")
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // Now early, now late; how fast the machine is decides only where it dies.
        wait = wait * 48_271 % 2_147_483_647;
        std::thread::sleep(Duration::from_micros(wait % 60_000));
        let is_over = child.try_wait().unwrap().is_some();
        child.kill().unwrap();
        child.wait().unwrap();
        if !is_over {
            kills += 1;
            resumed += u32::from(root.path().join("links/work").exists());
        }
        if root.receipts("rank") == 1 && root.list("rank", "ready").is_empty() {
            assert!(results(&root) == whole, "after {kills} kills");
            ends += 1;
            root = begin();
        }
    }
    let (code, said) = root.run(RANK, &["--once"]);
    assert_eq!(code, 0, "{said}");
    assert!(results(&root) == whole, "after {kills} kills");
    assert!(resumed > 0, "{ends} ends, and none in between");
    assert!(
        !std::fs::read_dir(root.path().join("links/work"))
            .unwrap()
            .any(|_| true)
    );
}
