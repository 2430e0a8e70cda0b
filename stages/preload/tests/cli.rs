//! The program: the contract of every stage, the sources' directory, rules, register, hostile lists, and the filter.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

mod common;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{PRELOAD, names_of, report_of, root};
use ecluse_register::{Register, RegisterDay, RegisterRecord};
use ecluse_testkit::contract::Contract;
use ecluse_testkit::root::{Root, settle_environment, until_so};
use serde_json::Value;

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
    let (code, _, said) = filter(&["nowhere.txt"], "");
    assert_eq!(code, Some(65));
    assert!(said.starts_with("cannot open nowhere.txt: "), "{said}");
}
