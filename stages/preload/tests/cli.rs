//! The program: the contract of every stage, the sources' directory, rules, register, hostile lists, and the filter.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{PRELOAD, names_of, report_in, report_of, root, runs_of};
use ecluse_register::{Register, RegisterDay, RegisterRecord};
use ecluse_testkit::contract::Contract;
use ecluse_testkit::root::{Root, settle_environment, until_so};
use serde_json::{Value, json};

#[test]
fn preload_keeps_the_contract() {
    Contract {
        stage: "preload",
        binary: Path::new(PRELOAD),
        settings: "next = [\"sink\"]\nbatch = { parcels = 60, wait = \"50ms\" }",
        good: &[(
            "afnic.txt",
            b"exemple.fr\nHTTP://www.Exemple.fr/a\n\n127.0.0.1\n",
        )],
        bad: &[(
            "afnic.txt.gz",
            b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03cut",
        )],
    }
    .keep();
}

fn put(root: &Root, path: &str, bytes: impl AsRef<[u8]>) {
    let path = root.path().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

#[track_caller]
fn run(root: &Root) -> String {
    let (code, said) = root.run(PRELOAD, &["--once"]);
    assert_eq!(code, 0, "{said}");
    said
}

fn gzip(text: &str) -> Vec<u8> {
    let mut compressor = libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
    let mut out = vec![0; compressor.gzip_compress_bound(text.len())];
    let bytes = compressor.gzip_compress(text.as_bytes(), &mut out).unwrap();
    out.truncate(bytes);
    out
}

#[test]
fn lists_of_every_kind_become_one_with_their_origins() {
    let root = root("");
    put(
        &root,
        "sources/registry/afnic.txt.gz",
        gzip("exemple.fr\nautre.fr\nexemple.fr\n"),
    );
    put(
        &root,
        "sources/registrar/ovh.zst",
        zstd::encode_all(&b"EXEMPLE.FR.\nfoo.blogspot.com\n"[..], 1).unwrap(),
    );
    put(
        &root,
        "sources/selection/bcweb.csv",
        "Titre;URL\n\"Un; blog\";\"http://exemple.fr/blog?a=b#c\"\nx;https://seul.re:8443/\ny\n",
    );
    put(
        &root,
        "sources/selection/bcweb.csv.source.toml",
        "name = \"librarians\"\ncolumn = \"url\"\n",
    );
    put(&root, "sources/selection/later.part", "unfinished.fr\n");
    run(&root);
    let names = names_of(&root);
    let expected = [
        ("autre.fr", "afnic:1 new - -"),
        ("exemple.fr", "afnic:2,librarians:1,ovh:1 new - path"),
        ("foo.blogspot.com", "ovh:1 new - -"),
        ("seul.re", "librarians:1 new - port"),
    ];
    assert_eq!(
        names,
        expected
            .map(|(name, told)| (name.to_owned(), told.to_owned()))
            .into()
    );
    let parcels = root.list("sink", "ready");
    let seeds = fs::read_to_string(
        root.part("sink", "ready")
            .join(&parcels[0])
            .join("seeds.tsv"),
    )
    .unwrap();
    assert_eq!(
        seeds,
        "exemple.fr\tlibrarians\thttp://exemple.fr/blog?a=b\nseul.re\tlibrarians\thttps://seul.re:8443/\n"
    );

    let report = report_of(&root);
    let text = &report["statistics.txt"];
    assert!(
        text.starts_with("librarians (selection): 2 domains, 1 found nowhere else\n"),
        "{text}"
    );
    assert_eq!(
        report["rejects.tsv.zst"],
        "librarians\tbcweb.csv\t4\tno-column\t-\ty\n"
    );
    let figures: Value = serde_json::from_str(&report["statistics.json"]).unwrap();
    let shared = figures["shared"].as_array().unwrap();
    assert_eq!(shared.len(), 3, "three pairs share exemple.fr: {shared:?}");
    assert!(report["statistics.csv"].contains("\nexclusive-domains,ovh,registrar,1\n"));

    // Nothing has changed: nothing is read again. A list that changes is.
    let receipts = root.receipts("preload");
    run(&root);
    assert_eq!(root.receipts("preload"), receipts);
    put(
        &root,
        "sources/registry/afnic.txt.gz",
        gzip("troisieme.fr\n"),
    );
    run(&root);
    assert!(names_of(&root).contains_key("troisieme.fr"));
    assert!(root.receipts("preload") > receipts);
}

fn rule(verdict: &str, what: &str) -> String {
    format!(
        "[[rule]]\nverdict = \"{verdict}\"\n{what}\nwho = \"M. Duval\"\nwhen = \"2026-10-02\"\nwhy = \"asked for\"\n"
    )
}

#[test]
fn the_librarians_word_wins() {
    let root = root("");
    let rules = rule("out", "domain = \"exemple.fr\"")
        + &rule("in", "domain = \"bon.exemple.fr\"")
        + &rule("in", "domain = \"oublie.fr\"")
        + &rule("in", "prefix = \"https://page.fr/perso/\"")
        + &rule("out", "prefix = \"http://selection.fr/prive/\"");
    put(&root, "forced.toml", rules);
    put(
        &root,
        "sources/selection/bcweb.txt",
        "exemple.fr\nwww.exemple.fr\na.bon.exemple.fr\nhttp://selection.fr/prive/x\nhttp://selection.fr/ouvert\n",
    );
    run(&root);
    let expected = [
        ("a.bon.exemple.fr", "bcweb:1 new in -"),
        ("bon.exemple.fr", "- new in -"),
        ("oublie.fr", "- new in -"),
        ("page.fr", "- new in -"),
        ("selection.fr", "bcweb:2 new - path"),
    ];
    assert_eq!(
        names_of(&root),
        expected
            .map(|(name, told)| (name.to_owned(), told.to_owned()))
            .into()
    );
    let parcels = root.list("sink", "ready");
    let seeds = fs::read_to_string(
        root.part("sink", "ready")
            .join(&parcels[0])
            .join("seeds.tsv"),
    )
    .unwrap();
    assert_eq!(
        seeds,
        "page.fr\tforced\thttps://page.fr/perso/\nselection.fr\tbcweb\thttp://selection.fr/ouvert\n"
    );
    let rejects = &report_of(&root)["rejects.tsv.zst"];
    assert_eq!(
        rejects,
        "bcweb\tbcweb.txt\t1\tforced-out\texemple.fr\texemple.fr\nbcweb\tbcweb.txt\t2\tforced-out\texemple.fr\twww.exemple.fr\n"
    );

    put(
        &root,
        "forced.toml",
        "[[rule]]\nverdict = \"out\"\ndomain = \"a.fr\"\n",
    );
    let (code, said) = root.run(PRELOAD, &["--check"]);
    assert_eq!(code, 78, "{said}");
    assert!(
        said.contains("stage.preload.forced") && said.contains("who"),
        "{said}"
    );
}

#[test]
fn lists_that_nobody_would_take_are_refused() {
    let (code, said) = root("list = 1000001").run(PRELOAD, &["--check"]);
    assert_eq!(code, 78, "{said}");
    assert!(said.contains("stage.preload.list"), "{said}");
    let (code, said) = root("list = 1000000").run(PRELOAD, &["--check"]);
    assert_eq!(code, 0, "{said}");
}

#[test]
fn names_are_held_against_the_register() {
    let root = root("");
    let register = Register::at(&root.path().join("register")).unwrap();
    let day = RegisterDay::new(2025, 10, 1).unwrap();
    let mut records: Vec<RegisterRecord> = [
        "amazonaws.com",
        "x.s3.amazonaws.com",
        "exemple.fr",
        "parti.fr",
        "revenu.fr",
        "zz.fr",
    ]
    .map(|domain| RegisterRecord::new(domain, day))
    .into();
    for record in &mut records {
        let sources: &[&str] = if record.domain == "revenu.fr" {
            &["autre"]
        } else {
            &["afnic", "autre"]
        };
        record.sources = sources
            .iter()
            .map(|source| ((*source).to_owned(), day))
            .collect();
    }
    records.sort_by_key(RegisterRecord::key);
    register
        .update(Vec::new(), records.into_iter().map(Ok), 3, &|| false)
        .unwrap();

    let list = "www.exemple.fr\nnouveau.fr\nrevenu.fr\nx.s3.amazonaws.com\ny.s3.amazonaws.com\nzoo.amazonaws.com\n";
    put(&root, "sources/registry/afnic.txt", list);
    put(&root, "sources/selection/bcweb.txt", "nouveau.fr\n");
    run(&root);
    let names = names_of(&root);
    let known: Vec<&str> = names
        .iter()
        .filter(|(_, told)| told.contains(" known "))
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(
        known,
        [
            "revenu.fr",
            "www.exemple.fr",
            "x.s3.amazonaws.com",
            "zoo.amazonaws.com"
        ]
    );
    let figures: Value = serde_json::from_str(&report_of(&root)["statistics.json"]).unwrap();
    assert_eq!(
        (&figures["new-domains"], &figures["register"]),
        (&2.into(), &1.into())
    );
    let afnic = figures["sources"]
        .as_array()
        .unwrap()
        .iter()
        .find(|source| source["name"] == "afnic")
        .unwrap();
    assert_eq!(
        afnic["vanished-domains"], 2,
        "parti.fr and zz.fr; of `autre` there is no list in this run"
    );
    assert_eq!(afnic["new-domains"], 2);
}

#[test]
fn hostile_lists_are_counted_by_reason_and_nothing_of_them_is_shown_raw() {
    let root = root("line = \"1 KiB\"\nmemory = \"1 MiB\"");
    let mut list: Vec<u8> = Vec::new();
    let long_label = format!("{}.fr", "a".repeat(300));
    let good = "bon.fr";
    for line in [
        b"a\0b.fr".as_slice(),
        b"a\x1b]0;title\x07.fr",
        b"\xff\xfe\xfd",
        b"\xc3\x28.fr",
        long_label.as_bytes(),
        "\u{430}pple.fr".as_bytes(),
        b"127.0.0.1",
        b"0x7f000001",
        b"0177.1",
        b"2130706433",
        b"[::1]",
        b"[::ffff:127.0.0.1]",
        "１２７.1".as_bytes(),
        b"localhost",
        b"LOCALHOST:80",
        b"file:///etc/passwd",
        b"javascript:alert(1)",
        b"..",
        b".",
        b"a..fr",
        good.as_bytes(),
    ] {
        list.extend_from_slice(line);
        list.push(b'\n');
    }
    put(&root, "sources/other/hostile.txt", &list);
    // No line feed in a gigabyte, then a good line; packed, it is small.
    let mut packer = zstd::Encoder::new(Vec::new(), 1).unwrap();
    for _ in 0..1024 {
        packer.write_all(&vec![b'x'; 1 << 20]).unwrap();
    }
    packer.write_all(b"\nbon.fr\n").unwrap();
    put(
        &root,
        "sources/other/one-line.zst",
        packer.finish().unwrap(),
    );
    let said = run(&root);
    let names = names_of(&root);
    assert_eq!(
        names.keys().map(String::as_str).collect::<Vec<_>>(),
        ["bon.fr", "xn--pple-43d.fr"]
    );
    assert_eq!(names["xn--pple-43d.fr"], "hostile:1 new - idn,mixed");
    let report = report_of(&root);
    let figures: Value = serde_json::from_str(&report["statistics.json"]).unwrap();
    let rejected = |name: &str| {
        figures["sources"]
            .as_array()
            .unwrap()
            .iter()
            .find(|source| source["name"] == name)
            .unwrap()["rejected"]
            .clone()
    };
    let expected = serde_json::json!({
        "control": 2, "scheme": 2, "one-label": 1, "ip-address": 7, "local": 2, "empty-label": 3, "label-too-long": 1, "bad-name": 1,
    });
    let found = rejected("hostile");
    assert_eq!(found, expected);
    assert_eq!(rejected("one-line"), serde_json::json!({"too-long": 1}));
    for text in report.values().map(String::as_str).chain([said.as_str()]) {
        let raw = text
            .chars()
            .find(|c| (c.is_control() && !"\n\t".contains(*c)) || !c.is_ascii());
        assert_eq!(raw, None);
    }
}

#[test]
fn a_list_that_cannot_be_read_is_held_and_its_neighbours_pass() {
    let root = root("");
    let mut cut = gzip(&"exemple.fr\n".repeat(9_999));
    cut.truncate(cut.len() / 2);
    root.put_files("preload", "cut", &[("afnic.gz", &cut)]);
    root.put_files("preload", "wide", &[("wide.txt", b"\xff\xfea\0.\0f\0r\0")]);
    root.put_files(
        "preload",
        "heading",
        &[
            ("a.csv", b"Nom,Date\nx,y\n"),
            ("source.toml", b"column = \"URL\""),
        ],
    );
    root.put_files(
        "preload",
        "sidecar",
        &[("a.txt", b"a.fr\n"), ("source.toml", b"nom = \"x\"")],
    );
    root.put_files(
        "preload",
        "two",
        &[("a.txt", b"a.fr\n"), ("b.txt", b"b.fr\n")],
    );
    root.put_files(
        "preload",
        "good",
        &[
            ("a.txt", b"good.fr\n"),
            ("source.toml", b"name = \"redirects\"\nkind = \"redirects\""),
        ],
    );
    let (code, said) = root.run(PRELOAD, &["--once"]);
    assert_eq!(code, 65, "{said}");
    for (parcel, words) in [
        ("cut", "afnic.gz: cannot be read after line"),
        ("wide", "it is UTF-16"),
        ("heading", "no column \"URL\""),
        ("sidecar", "unknown field `nom`"),
        ("two", "not one list but 2 files"),
    ] {
        let why = root.why("preload", parcel);
        assert!(why.contains(words), "{parcel}: {why}");
    }
    assert_eq!(root.list("preload", "held").len(), 5);
    assert_eq!(names_of(&root)["good.fr"], "redirects:1 new - -");
    let left = fs::read_dir(root.path().join("reports/preload"))
        .unwrap()
        .count();
    assert_eq!(left, 1, "what was begun and given up is gone");
}

#[test]
fn a_source_too_many_waits_for_the_next_run() {
    let root = root("batch = { parcels = 100, wait = \"50ms\" }");
    for number in 0..66 {
        let file = format!("list-{number:02}.txt");
        let line = format!("name-{number}.fr\n");
        let id = format!("p-{number:02}");
        root.put_files("preload", &id, &[(&file, line.as_bytes())]);
    }
    let (code, said) = root.run(PRELOAD, &["--once"]);
    assert_eq!(code, 75, "{said}");
    assert_eq!(names_of(&root).len(), 64);
    assert_eq!(root.list("preload", "deferred").len(), 2);
}

#[test]
fn without_a_stage_after_it_the_list_lies_with_the_reports() {
    let root = Root::new();
    root.settings(&["preload"], "");
    put(
        &root,
        "sources/selection/bcweb.txt",
        "http://exemple.fr/a\n",
    );
    run(&root);
    let report = report_of(&root);
    assert_eq!(
        report["names.tsv"],
        "fr,exemple\texemple.fr\texemple.fr\texemple.fr\tbcweb:1\tnew\t-\tpath\n"
    );
    assert_eq!(
        report["seeds.tsv"],
        "exemple.fr\tbcweb\thttp://exemple.fr/a\n"
    );
}

#[test]
fn lists_are_cut_at_their_length() {
    let root = root("list = 2");
    put(
        &root,
        "sources/other/a.txt",
        "a.fr\nb.fr\nc.fr\nd.fr\ne.fr\n",
    );
    run(&root);
    let parcels = root.list("sink", "ready");
    assert_eq!(parcels.len(), 3);
    let ends: Vec<&str> = parcels
        .iter()
        .map(|parcel| &parcel[parcel.len() - 7..])
        .collect();
    assert_eq!(ends, ["00001~0", "00002~0", "00003~0"]);
    let last = fs::read_to_string(
        root.part("sink", "ready")
            .join(&parcels[2])
            .join("names.tsv"),
    )
    .unwrap();
    assert!(last.starts_with("fr,e\t"));
}

#[test]
fn a_list_that_comes_while_it_runs_is_taken_when_it_is_at_rest() {
    let root = root("batch = { parcels = 60, wait = \"50ms\" }");
    let mut program = root.start(PRELOAD, &[]);
    until_so("a worker", || !root.list("preload", "claim").is_empty());
    put(&root, "sources/registry/afnic.txt", "exemple.fr\n");
    root.await_count("sink", "ready", 1);
    assert_eq!(program.stop(), 0, "{}", program.log());
    assert!(names_of(&root).contains_key("exemple.fr"));
}

#[test]
fn the_filter_writes_one_list_and_says_what_each_source_brought() {
    let root = Root::new();
    put(&root, "selection/bcweb.txt", "exemple.fr\nseul.fr\n");
    put(
        &root,
        "registry/afnic.gz",
        gzip("www.exemple.fr\nexemple.fr\n"),
    );
    let filter = |files: &[&str], input: &str| {
        let mut command = Command::new(PRELOAD);
        settle_environment(&mut command);
        command
            .arg("--root")
            .arg(root.path())
            .args(files)
            .current_dir(root.path());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let (code, list, said) = filter(
        &["selection/bcweb.txt", "registry/afnic.gz", "-"],
        "exemple.fr\n",
    );
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(
        list,
        "fr,exemple\texemple.fr\texemple.fr\texemple.fr\tafnic:1,bcweb:1,standard-input:1\tnew\t-\t-\n\
         fr,exemple,www\twww.exemple.fr\texemple.fr\texemple.fr\tafnic:1\tnew\t-\twww\n\
         fr,seul\tseul.fr\tseul.fr\tseul.fr\tbcweb:1\tnew\t-\t-\n"
    );
    assert!(
        said.starts_with("bcweb (selection): 2 domains, 1 found nowhere else\n"),
        "{said}"
    );
    put(&root, "registry/ovh.txt", "a.fr\n127.0.0.1\n");
    let files = ["--reports", "told", "registry/ovh.txt"];
    let (code, list, told) = filter(&files, "");
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(list, "fr,a\ta.fr\ta.fr\ta.fr\tovh:1\tnew\t-\t-\n");
    let report = report_in(&root.path().join("told"));
    assert_eq!(report["statistics.txt"], told);
    assert_eq!(
        report["rejects.tsv.zst"],
        "ovh\tregistry/ovh.txt\t2\tip-address\t127.0.0.1\t127.0.0.1\n"
    );
    assert!(report["statistics.csv"].starts_with("what,of,and,figure\nnames,,,1\n"));
    assert_eq!(
        source_in(&report, "ovh")["rejected"],
        json!({"ip-address": 1})
    );
    let (code, _, told) = filter(&files, "");
    assert_eq!(code, Some(78));
    assert!(told.starts_with("told is there already"), "{told}");
    let (code, _, told) = filter(&["--reports", "cut", "nowhere.txt"], "");
    assert_eq!(
        (code, root.path().join("cut").exists()),
        (Some(65), false),
        "{told}"
    );
    let (code, _, said) = filter(&["nowhere.txt"], "");
    assert_eq!(code, Some(65));
    assert!(said.starts_with("cannot open nowhere.txt: "), "{said}");
}

/// Runs it once more: returns its exit code, its report, and the names that it gave.
fn run_again(root: &Root) -> (i32, BTreeMap<String, String>, BTreeMap<String, String>) {
    let before = match root.path().join("reports/preload").exists() {
        true => runs_of(root),
        false => BTreeSet::new(),
    };
    for parcel in root.list("sink", "ready") {
        fs::remove_dir_all(root.part("sink", "ready").join(parcel)).unwrap();
    }
    let (code, said) = root.run(PRELOAD, &["--once"]);
    let new: Vec<_> = runs_of(root).difference(&before).cloned().collect();
    assert_eq!(new.len(), 1, "{said}");
    (code, report_in(&new[0]), names_of(root))
}

fn figures_in(report: &BTreeMap<String, String>) -> Value {
    serde_json::from_str(&report["statistics.json"]).unwrap()
}

fn source_in(report: &BTreeMap<String, String>, name: &str) -> Value {
    let figures = figures_in(report);
    let sources = figures["sources"].as_array().unwrap();
    let found = sources.iter().find(|source| source["name"] == name);
    found.unwrap().clone()
}

#[test]
fn figures_are_of_all_lists_as_they_stand_and_names_of_those_that_changed() {
    let root = root("");
    put(&root, "sources/registry/afnic.txt", "a.fr\nb.fr\n");
    put(
        &root,
        "sources/selection/bcweb.txt",
        "b.fr\nc.fr\n127.0.0.1\n",
    );
    assert_eq!(run_again(&root).2.len(), 3);

    put(
        &root,
        "sources/selection/bcweb.txt",
        "b.fr\nhttp://d.fr/x\ne.fr\n127.0.0.2\n",
    );
    let (code, report, names) = run_again(&root);
    assert_eq!(code, 0);
    let text = &report["statistics.txt"];
    assert!(
        text.starts_with(
            "bcweb (selection): 3 domains, 2 found nowhere else\n\
             afnic (registry): 2 domains, 1 found nowhere else\n\n\
             6 lines gave 4 names of 4 domains\n\
             3 names are given on: those of lists that are new or have changed\n"
        ),
        "{text}"
    );
    let figures = figures_in(&report);
    assert_eq!(
        figures["shared"],
        json!([{"sources": ["afnic", "bcweb"], "domains": 1}])
    );
    assert_eq!(
        (&figures["names"], &figures["given-names"]),
        (&json!(4), &json!(3))
    );
    let expected = [
        ("b.fr", "afnic:1,bcweb:1 new - -"),
        ("d.fr", "bcweb:1 new - path"),
        ("e.fr", "bcweb:1 new - -"),
    ];
    assert_eq!(
        names,
        expected
            .map(|(name, told)| (name.to_owned(), told.to_owned()))
            .into()
    );
    assert_eq!(
        report["rejects.tsv.zst"],
        "bcweb\tbcweb.txt\t4\tip-address\t127.0.0.2\t127.0.0.2\n"
    );

    // A piece of a source says nothing of what is missing from it, and all others are there as they were.
    root.put_files(
        "preload",
        "piece",
        &[
            ("x.txt", b"a.fr\nz.fr\n"),
            ("source.toml", b"name = \"redirects\"\nkind = \"redirects\""),
        ],
    );
    let (code, report, names) = run_again(&root);
    assert_eq!(code, 0);
    let text = &report["statistics.txt"];
    assert!(
        text.starts_with(
            "bcweb (selection): 3 domains, 2 found nowhere else\n\
             afnic (registry): 2 domains, 0 found nowhere else\n\
             redirects (redirects, in part): 2 domains, 1 found nowhere else\n"
        ),
        "{text}"
    );
    assert_eq!(
        source_in(&report, "redirects")["vanished-domains"],
        Value::Null
    );
    assert_eq!(source_in(&report, "afnic")["vanished-domains"], 0);
    assert!(!report["statistics.csv"].contains("vanished-domains,redirects"));
    let names: Vec<&str> = names.keys().map(String::as_str).collect();
    assert_eq!(names, ["a.fr", "z.fr"]);
}

/// A register that has these domains of a source.
fn register_of(root: &Root, source: &str, domains: &[&str]) {
    let day = RegisterDay::new(2025, 10, 1).unwrap();
    let mut records: Vec<RegisterRecord> = domains
        .iter()
        .map(|domain| {
            let mut record = RegisterRecord::new(domain, day);
            record.sources.insert(source.to_owned(), day);
            record
        })
        .collect();
    records.sort_by_key(RegisterRecord::key);
    let register = Register::at(&root.path().join("register")).unwrap();
    register
        .update(Vec::new(), records.into_iter().map(Ok), 3, &|| false)
        .unwrap();
}

#[test]
fn what_vanished_is_told_of_whole_sources_only() {
    let root = root("");
    register_of(&root, "afnic", &["un.fr", "deux.fr", "parti.fr"]);
    put(&root, "sources/registry/afnic.1.txt", "un.fr\n");
    put(&root, "sources/registry/afnic.2.txt", "deux.fr\n");
    let (_, report, _) = run_again(&root);
    assert_eq!(source_in(&report, "afnic")["vanished-domains"], 1);

    // One file of two has changed: the other is still there.
    put(&root, "sources/registry/afnic.2.txt", "deux.fr\ntrois.fr\n");
    let (_, report, names) = run_again(&root);
    let afnic = source_in(&report, "afnic");
    assert_eq!(
        (
            &afnic["vanished-domains"],
            &afnic["domains"],
            &afnic["whole"]
        ),
        (&json!(1), &json!(3), &json!(true))
    );
    assert_eq!(names.len(), 2, "un.fr was given before: {names:?}");

    // What is given by hand is a piece, unless it says that it is all.
    root.put_files("preload", "piece", &[("afnic.txt", b"quatre.fr\n")]);
    let (_, report, _) = run_again(&root);
    let afnic = source_in(&report, "afnic");
    assert_eq!(
        (&afnic["vanished-domains"], &afnic["domains"]),
        (&Value::Null, &json!(4))
    );
    for name in ["afnic.1.txt", "afnic.2.txt"] {
        fs::remove_file(root.path().join("sources/registry").join(name)).unwrap();
    }
    let whole = [
        ("afnic.txt", b"un.fr\n".as_slice()),
        ("source.toml", b"whole = true"),
    ];
    root.put_files("preload", "whole", &whole);
    let (_, report, _) = run_again(&root);
    assert_eq!(source_in(&report, "afnic")["vanished-domains"], 2);
}

#[test]
fn a_list_that_cannot_be_counted_is_named_and_holds_nothing_up() {
    let root = root("");
    register_of(&root, "afnic", &["parti.fr"]);
    let mut cut = gzip(&"exemple.fr\n".repeat(9_999));
    cut.truncate(cut.len() / 2);
    put(&root, "sources/registry/afnic.1.gz", &cut);
    put(&root, "sources/registry/afnic.2.txt", "bon.fr\n");
    put(&root, "sources/selection/bcweb.txt", "bon.fr\n");
    let (code, report, names) = run_again(&root);
    assert_eq!(code, 65);
    assert_eq!(names["bon.fr"], "afnic:1,bcweb:1 new - -");
    let left_out = figures_in(&report)["not-counted"].clone();
    let of_cut = left_out[0]["reason"].as_str().unwrap();
    assert!(of_cut.starts_with("afnic.1.gz: cannot be read"), "{of_cut}");
    let text = &report["statistics.txt"];
    assert!(text.contains("\nnot counted: ") && text.contains("afnic (registry, in part): 1"));
    assert_eq!(source_in(&report, "afnic")["vanished-domains"], Value::Null);

    // It stays in the way of nothing afterwards, and neither does a sidecar that says nothing.
    put(&root, "sources/registry/ovh.txt", "loin.fr\n");
    put(&root, "sources/registry/ovh.txt.source.toml", "nom = 1\n");
    put(&root, "sources/selection/bcweb.txt", "bon.fr\nneuf.fr\n");
    let (_, report, names) = run_again(&root);
    assert_eq!(names.len(), 2);
    let left_out = figures_in(&report)["not-counted"].clone();
    let sources: Vec<&str> = left_out
        .as_array()
        .unwrap()
        .iter()
        .map(|list| list["source"].as_str().unwrap())
        .collect();
    assert_eq!(sources, ["ovh", "afnic"]);
    assert!(report["statistics.csv"].contains("\nlist-not-counted,afnic,"));
}

#[test]
fn a_new_list_with_the_name_of_one_that_stands_elsewhere_is_held() {
    let root = root("");
    put(&root, "sources/registrar/afnic.txt", "a.fr\n");
    run(&root);
    put(&root, "sources/registry/afnic.txt", "b.fr\n");
    let (code, said) = root.run(PRELOAD, &["--once"]);
    assert_eq!(code, 65, "{said}");
    let held = root.list("preload", "held");
    let id = held[0].rsplit_once('~').unwrap().0;
    let why = root.why("preload", id);
    assert!(why.contains("would both be the source afnic"), "{why}");
}

#[test]
fn a_small_known_case_is_told_whole_in_each_form() {
    let root = root("");
    register_of(&root, "afnic", &["exemple.fr", "parti.fr"]);
    put(
        &root,
        "sources/registry/afnic.txt",
        "exemple.fr\nexemple.fr\nwww.exemple.fr\nautre.fr\nmachine.lan\n",
    );
    put(
        &root,
        "sources/selection/bcweb.txt",
        "exemple.fr\nhttp://seul.re/a\n\n127.0.0.1\nfoo.blogspot.com\n",
    );
    put(
        &root,
        "sources/other/zones.txt",
        "autre.fr\nfoo.blogspot.com\nexemple.fr\n",
    );
    put(&root, "forced.toml", rule("in", "domain = \"oublie.fr\""));
    put(
        &root,
        "sources/redirects/redirects.txt",
        "exemple.fr\nloin.com\n",
    );
    let (code, report, names) = run_again(&root);
    assert_eq!((code, names.len()), (0, 8));
    assert_eq!(
        report["statistics.txt"],
        include_str!("known/statistics.txt")
    );
    assert_eq!(
        report["statistics.csv"],
        include_str!("known/statistics.csv")
    );
    assert_eq!(
        report["statistics.json"],
        include_str!("known/statistics.json")
    );
}
