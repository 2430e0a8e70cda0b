//! What the tests of plan share.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "each test uses its part, and stops where it fails"
)]

use std::fs;
use std::path::PathBuf;

use ecluse_cdx::CaptureTime;
use ecluse_changes::{ArchiveTime, PageChanges, PagePattern, RecordWriter};
use ecluse_links::{RANKS_FILE, RankRecord, RankWriter};
use ecluse_names::{NameFlags, NameLine, Registered, key_of};
use ecluse_refresh::IntervalHistogram;
use ecluse_register::{Register, RegisterRecord};
use ecluse_testkit::root::Root;

pub(crate) const PLAN: &str = env!("CARGO_BIN_EXE_ecluse-plan");

/// A root whose plan sends to a stage nobody runs, with a clock of its own.
pub(crate) fn root(more: &str) -> Root {
    let root = Root::new();
    let text = format!("[stage.plan]\nbatch = {{ parcels = 1000, wait = \"50ms\" }}\n{more}\n");
    root.settings(&["plan", "sink"], &text);
    set_clock(&root, "2026-11-17T12:00:00Z");
    root
}

pub(crate) fn set_clock(root: &Root, time: &str) {
    fs::write(root.path().join("clock"), format!("{time}\n")).unwrap();
}

pub(crate) fn put(root: &Root, path: &str, text: &str) {
    let path = root.path().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Runs plan until it is idle; returns its code and what it said.
pub(crate) fn run(root: &Root) -> (i32, String) {
    let mut command = root.program(PLAN);
    command.env("ECLUSE_CLOCK_FILE", root.path().join("clock"));
    let output = command.arg("--once").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap(), said)
}

#[track_caller]
pub(crate) fn must_run(root: &Root) -> String {
    let (code, said) = run(root);
    assert_eq!(code, 0, "{said}");
    said
}

/// A line of the list of names.
pub(crate) fn name_line(name: &str, sources: &str) -> String {
    let registered = Registered::of(name);
    let key = key_of(name);
    let line = NameLine {
        key: &key,
        name,
        domain: registered.domain,
        site: registered.site,
        sources,
        is_known: false,
        is_forced: false,
        flags: NameFlags::NONE,
    };
    let mut text = Vec::new();
    line.write(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

/// What DNS says of a name: it answers, it is gone, or nobody knows.
pub(crate) fn checked_line(name: &str, says: &str) -> String {
    let key = key_of(name);
    match says {
        "ok" => format!(
            "{key}\t{name}\tOK_A\tOK_A\tpresent\tapex,www\t192.0.2.1\t-\t{{\"apex\":{{\"a\":[\"192.0.2.1\"]}},\"www\":{{\"a\":[\"192.0.2.1\"]}}}}\n"
        ),
        "gone" => format!("{key}\t{name}\tNXDOMAIN\tNXDOMAIN\tabsent\t-\t-\t-\t{{}}\n"),
        _ => format!("{key}\t{name}\tTIMEOUT\tTIMEOUT\tunknown\t-\t-\t-\t{{}}\n"),
    }
}

/// Puts a parcel of names as dns-filter leaves it, checked on a day.
pub(crate) fn put_names(root: &Root, id: &str, day: &str, names: &[(&str, &str, &str)]) {
    let mut sorted = names.to_vec();
    sorted.sort_by_key(|(name, _, _)| key_of(name));
    let list: String = sorted
        .iter()
        .map(|(name, sources, _)| name_line(name, sources))
        .collect();
    let checked: String = sorted
        .iter()
        .map(|(name, _, says)| checked_line(name, says))
        .collect();
    root.put_files(
        "plan",
        id,
        &[
            ("names.tsv", list.as_bytes()),
            ("checked.tsv", checked.as_bytes()),
        ],
    );
    add_receipt(root, id, day);
}

/// Adds the receipt that says when the names of a parcel were checked.
pub(crate) fn add_receipt(root: &Root, id: &str, day: &str) {
    let history = root
        .part("plan", "ready")
        .join(format!("{id}~0"))
        .join("history");
    fs::create_dir_all(&history).unwrap();
    let receipt = format!(
        "{{\"work\":\"{id}\",\"schema\":1,\"stage\":\"dns-filter\",\"version\":\"0\",\"worker\":\"w\",\"attempt\":1,\"claimed\":\"x\",\"finished\":\"x\",\"inputs\":[],\"fate\":{{\"do\":\"consume\"}},\"facts\":{{\"checked\":\"{day}\"}}}}\n"
    );
    fs::write(history.join("00-dns-filter.json"), receipt).unwrap();
}

/// Puts the results of a job as crawl sends them.
pub(crate) fn put_results(
    root: &Root,
    job: &str,
    harvest: &str,
    day: &str,
    lines: &[(&str, u64, u64, &str)],
) {
    let about = format!(
        "{{\"job\":\"{job}\",\"harvest\":\"{harvest}\",\"how\":\"finished\",\"ended\":\"{day}\"}}\n"
    );
    let mut lines = lines.to_vec();
    lines.sort_by_key(|(site, ..)| key_of(site));
    let text: String = lines
        .iter()
        .map(|(site, objects, bytes, stop)| {
            format!("{}\t{site}\t2\t{objects}\t{bytes}\t{stop}\n", key_of(site))
        })
        .collect();
    let id = format!("results-{job}-{harvest}");
    root.put_files(
        "plan",
        &id,
        &[
            ("job.json", about.as_bytes()),
            ("results.tsv", text.as_bytes()),
        ],
    );
}

pub(crate) fn register(root: &Root) -> Register {
    Register::at(&root.path().join("register")).unwrap()
}

pub(crate) fn record(root: &Root, domain: &str) -> RegisterRecord {
    let found = register(root).lookup(domain).unwrap();
    found.unwrap_or_else(|| panic!("{domain} is not in the register"))
}

/// The bytes of the current register.
pub(crate) fn register_bytes(root: &Root) -> Vec<u8> {
    fs::read(root.path().join("register/current/register.tsv")).unwrap()
}

/// The orders in the sink: their text and their seeds, by name.
pub(crate) fn orders(root: &Root) -> Vec<(String, String, String)> {
    let ready = root.part("sink", "ready");
    let names = root.list("sink", "ready").into_iter();
    names
        .map(|name| {
            let path: PathBuf = ready.join(&name);
            let read = |file: &str| fs::read_to_string(path.join(file)).unwrap();
            (name.clone(), read("order.toml"), read("seeds.txt"))
        })
        .collect()
}

/// A page as a list of changes has it: key, last capture, changes a day.
pub(crate) fn page(surt: &str, last: &str, rate: f64) -> PageChanges {
    let time = |digits: &str| ArchiveTime::parse(digits).unwrap();
    PageChanges {
        surt: surt.to_owned(),
        url: url_of(surt),
        first: time("20260101000000"),
        last: time(last),
        looks: 20,
        changes: 5,
        last_change: Some(time(last)),
        quiet_days: 10.0,
        declared_days: 0.0,
        declared_changes: 0,
        intervals: IntervalHistogram::default(),
        rate,
        change_weight: Some(0.3),
        text_weight: Some(0.5),
        status: Some(200),
        etag: Some("\"v 1\"".to_owned()),
        last_modified: None,
        signal: None,
        simhash: None,
        pattern: None,
        words: None,
    }
}

/// `http://www.exemple.fr/a` of `fr,exemple,www)/a`.
pub(crate) fn url_of(surt: &str) -> String {
    let (host, path) = surt.split_once(')').unwrap();
    let mut labels: Vec<&str> = host.split(',').collect();
    labels.reverse();
    format!("http://{}{path}", labels.join("."))
}

/// Makes a generation of what is known of changes the current one.
pub(crate) fn put_changes(
    root: &Root,
    number: u64,
    pages: &[PageChanges],
    patterns: &[PagePattern],
) {
    let directory = generation(root, "changes", number);
    let mut pages = pages.to_vec();
    pages.sort_by(|one, other| one.surt.cmp(&other.surt));
    let mut writer = RecordWriter::<PageChanges>::create(&directory).unwrap();
    for page in &pages {
        writer.write(page).unwrap();
    }
    writer.finish().unwrap();
    let mut writer = RecordWriter::<PagePattern>::create(&directory).unwrap();
    for pattern in patterns {
        writer.write(pattern).unwrap();
    }
    writer.finish().unwrap();
}

/// Makes a generation of ranks the current one: key, rank, relevance, time of the capture.
pub(crate) fn put_ranks(root: &Root, number: u64, ranks: &[(&str, f32, f32, Option<&str>)]) {
    let directory = generation(root, "links", number);
    let file = fs::File::create(directory.join(RANKS_FILE)).unwrap();
    let mut writer = RankWriter::new(file).unwrap();
    let mut ranks = ranks.to_vec();
    ranks.sort_by_key(|rank| rank.0);
    for (surt, rank, relevance, fetched) in ranks {
        let url = url_of(surt);
        let record = RankRecord {
            surt,
            url: &url,
            rank,
            interest: 0.0,
            relevance,
            links_in: 1,
            links_out: 1,
            fetched: fetched.map(|time| CaptureTime::from_digits(time.as_bytes()).unwrap()),
        };
        writer.write(&record).unwrap();
    }
    writer.finish().unwrap();
}

fn generation(root: &Root, name: &str, number: u64) -> PathBuf {
    let place = root.path().join(name);
    let directory = place.join("generations").join(number.to_string());
    fs::create_dir_all(&directory).unwrap();
    let current = place.join("current");
    let _ = fs::remove_file(&current);
    std::os::unix::fs::symlink(format!("generations/{number}"), current).unwrap();
    directory
}
