//! The program: the contract of every stage, the day it writes, and the filter.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use ecluse_manifest::{Manifest, NewFile};
use ecluse_spool::{FileEntry, ParcelId, ParcelManifest, digest};
use ecluse_testkit::contract::Contract;
use ecluse_testkit::root::{Root, contents, settle_environment, until_so};
use proptest::collection::vec;
use proptest::prelude::*;

const MERGE: &str = env!("CARGO_BIN_EXE_ecluse-merge");
const LINE: &[u8] = b"org,example)/ 20260101000000 {\"url\": \"https://example.org/\"}\n";

#[test]
fn merge_keeps_the_contract() {
    Contract {
        stage: "merge",
        binary: Path::new(MERGE),
        settings: "batch = { parcels = 100, wait = \"50ms\" }",
        good: &[
            ("a.warc.gz.cdxj", LINE),
            ("a.warc.gz.path", b"a.warc.gz\t/repository/a.warc.gz\n"),
        ],
        bad: &[("a.warc.gz.cdxj", b"no such file or directory\n")],
    }
    .keep();
}

/// A root whose merge sends to a stage nobody runs.
fn root(more: &str) -> Root {
    let root = Root::new();
    let table = format!("[stage.merge]\n{more}\n");
    root.settings(&["merge", "sink"], &table);
    root
}

/// Puts a parcel as `delete` leaves it.
fn put(root: &Root, name: &str, collection: Option<&str>, cdxj: &str, sha256: &str) {
    let proof = format!("[{{\"target\": \"vault\", \"sha256\": \"{sha256}\"}}]\n");
    let path = format!("{name}\t/repository/{name}\n");
    root.put_with("merge", name, "warc", |parcel| {
        parcel.manifest().collection = collection.map(str::to_owned);
        for (suffix, text) in [("cdxj", cdxj), ("path", &path), ("backup.json", &proof)] {
            parcel.write(&format!("{name}.{suffix}"), text.as_bytes())?;
        }
        Ok(())
    });
}

/// The files of each day in the sink, by collection.
fn days(root: &Root) -> BTreeMap<Option<String>, BTreeMap<String, String>> {
    let mut days: BTreeMap<PathBuf, BTreeMap<String, String>> = BTreeMap::new();
    for (path, bytes) in contents(&root.part("sink", "ready")) {
        let text = String::from_utf8(bytes).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        days.entry(path.parent().unwrap().to_owned())
            .or_default()
            .insert(name, text);
    }
    let mut named = BTreeMap::new();
    for mut files in days.into_values() {
        let manifest: ParcelManifest =
            serde_json::from_str(&files.remove("parcel.json").unwrap()).unwrap();
        assert_eq!(manifest.kind, "day");
        assert!(
            named.insert(manifest.collection, files).is_none(),
            "one day a collection"
        );
    }
    named
}

fn line(page: u32, second: u32) -> String {
    format!("org,example)/{page:04} 202601010000{second:02} {{\"offset\": \"{page}\"}}\n")
}

fn sorted(mut lines: Vec<String>) -> String {
    lines.sort();
    lines.dedup();
    lines.concat()
}

#[test]
fn a_day_is_the_sorted_sum_of_its_pieces_whatever_their_number() {
    // Three open at once: eleven pieces take three rounds.
    let root = root("open-files = 3");
    let mut all = Vec::new();
    for piece in 0..11 {
        let lines: Vec<String> = (0..40).map(|n| line(n * (piece + 1) % 97, n % 3)).collect();
        all.extend(lines.clone());
        let name = format!("p{piece:02}.warc.gz");
        put(&root, &name, None, &sorted(lines), &"ab".repeat(32));
    }
    let (code, said) = root.run(MERGE, &["--once"]);
    assert_eq!(code, 0, "{said}");
    let days = days(&root);
    let day = &days[&None];
    assert_eq!(day["day.cdxj"], sorted(all));
    let names = (0..11).map(|piece| format!("p{piece:02}.warc.gz"));
    let paths: String = names
        .clone()
        .map(|n| format!("{n}\t/repository/{n}\n"))
        .collect();
    assert_eq!(day["day.path"], paths);
    let files: String = names
        .map(|n| format!("{n}\t{}\n", "ab".repeat(32)))
        .collect();
    assert_eq!(day["day.files"], files);
    assert_eq!(root.list("merge", "tmp"), [""; 0]);
}

#[test]
fn each_collection_has_a_day_of_its_own() {
    let root = root("");
    for (name, collection) in [
        ("a", None),
        ("b", Some("presse")),
        ("c", None),
        ("d", Some("x")),
    ] {
        put(&root, name, collection, &line(1, 1), &"00".repeat(32));
    }
    let (code, said) = root.run(MERGE, &["--once"]);
    assert_eq!(code, 0, "{said}");
    let days = days(&root);
    let names: Vec<Option<&str>> = days.keys().map(Option::as_deref).collect();
    assert_eq!(names, [None, Some("presse"), Some("x")]);
    assert_eq!(
        days[&None]["day.cdxj"],
        line(1, 1),
        "the same line stands there once"
    );
    assert_eq!(
        days[&Some("presse".into())]["day.path"],
        "b\t/repository/b\n"
    );
}

#[test]
fn a_bad_piece_is_held_with_file_and_line_and_the_others_pass() {
    let cases = [
        (
            "unsorted",
            format!("{}{}", line(2, 0), line(1, 0)),
            "line 2 of bad/bad.cdxj at offset 49",
        ),
        (
            "cut short",
            format!("{}org,exa", line(2, 0)),
            "line 2 of bad/bad.cdxj",
        ),
        (
            "malformed",
            format!("{}oops\n", line(2, 0)),
            "line 2 of bad/bad.cdxj",
        ),
    ];
    for (what, text, place) in cases {
        let root = root("");
        put(&root, "bad", None, &text, &"00".repeat(32));
        for number in 0..3 {
            put(
                &root,
                &format!("good-{number}"),
                None,
                &line(number, 0),
                &"00".repeat(32),
            );
        }
        let (code, said) = root.run(MERGE, &["--once"]);
        assert_eq!(code, 65, "{what}: {said}");
        assert_eq!(root.list("merge", "held"), ["bad~1"], "{what}");
        let why = root.why("merge", "bad");
        assert!(why.contains(place), "{what}: {why}");
        assert_eq!(batches(&root), [3], "{what}");
    }
}

/// What merge is shipped with.
const SHIPPED: &str = "batch = { parcels = 5000, wait = \"1d\" }";

/// The number of parcels in each batch that merge has finished.
fn batches(root: &Root) -> Vec<usize> {
    let mut batches = Vec::new();
    let see = &mut |filed: ecluse_spool::Filed| batches.push(filed.receipt.inputs.len());
    root.tree().each_receipt("merge", see).unwrap();
    batches
}

/// Makes every waiting parcel older.
fn age(root: &Root, by: Duration) {
    for name in root.list("merge", "ready") {
        let parcel = File::open(root.part("merge", "ready").join(name)).unwrap();
        let written = parcel.metadata().unwrap().modified().unwrap();
        parcel.set_modified(written - by).unwrap();
    }
}

#[test]
fn as_many_as_make_a_batch_are_taken_though_none_has_waited() {
    let root = root(SHIPPED);
    let ready = root.tree().init("merge").unwrap().ready();
    for number in 0..5_100 {
        let name = format!("p{number}");
        let mut manifest = ParcelManifest::new(ParcelId::new(&name).unwrap(), "warc", "0".into());
        manifest.put(FileEntry {
            name: "a.cdxj".into(),
            bytes: LINE.len() as u64,
            sha256: digest(LINE),
        });
        let dir = ready.join(format!("{name}~0"));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("a.cdxj"), LINE).unwrap();
        let manifest = serde_json::to_vec(&manifest).unwrap();
        fs::write(dir.join("parcel.json"), manifest).unwrap();
    }
    let mut program = root.start(MERGE, &[]);
    root.await_count("merge", "ready", 100);
    root.await_count("sink", "ready", 1);
    assert_eq!(program.stop(), 0, "{}", program.log());
    assert_eq!(batches(&root), [5_000], "the rest is no batch yet");
    assert_eq!(root.list("merge", "ready").len(), 100);
}

#[test]
fn a_restart_does_not_begin_the_wait_again() {
    let root = root(SHIPPED);
    put(&root, "a", None, &line(1, 0), &"00".repeat(32));
    age(&root, Duration::from_secs(17 * 3600));
    put(&root, "b", None, &line(2, 0), &"00".repeat(32));
    for hours in [17, 20, 23] {
        let mut program = root.start(MERGE, &[]);
        until_so("it waits for more", || {
            program.must_live();
            let notes = root.notes("merge");
            notes
                .iter()
                .any(|note| note.why == "waits for more parcels")
        });
        assert_eq!(program.stop(), 0, "{}", program.log());
        assert_eq!(root.list("sink", "ready"), [""; 0], "{hours} hours");
        age(&root, Duration::from_secs(3 * 3600));
    }
    let mut program = root.start(MERGE, &[]);
    root.await_count("sink", "ready", 1);
    assert_eq!(program.stop(), 0, "{}", program.log());
    assert_eq!(batches(&root), [2]);
}

#[test]
fn the_neighbours_of_a_bad_parcel_do_not_wait_for_another_batch() {
    let root = root("batch = { parcels = 9, wait = \"1h\" }");
    for number in 0..8 {
        let name = format!("good-{number}");
        put(&root, &name, None, &line(number, 0), &"00".repeat(32));
    }
    root.put_files("merge", "bad", &[("hostname", b"localhost\n")]);
    let mut program = root.start(MERGE, &[]);
    root.await_count("sink", "ready", 1);
    root.await_count("merge", "claim", 1);
    until_so("nothing in hand", || root.claimed("merge").is_empty());
    assert_eq!(program.stop(), 0, "{}", program.log());
    assert_eq!(batches(&root), [8], "all in one go");
    assert_eq!(root.list("merge", "held"), ["bad~1"]);
    assert_eq!(root.list("merge", "ready"), [""; 0]);
}

#[test]
fn proofs_that_disagree_and_parcels_without_an_index_are_held() {
    let root = root("");
    put(&root, "vague", None, &line(1, 0), "unknown");
    root.put_files("merge", "bare", &[("a.warc.gz", b"WARC/1.1")]);
    let (code, said) = root.run(MERGE, &["--once"]);
    assert_eq!(code, 65, "{said}");
    assert_eq!(
        root.why("merge", "bare"),
        "bare has no .cdxj file: not indexed"
    );
    assert!(root.why("merge", "vague").contains("is no SHA-256"));
}

#[test]
fn without_a_stage_after_it_nothing_is_touched() {
    let root = Root::new();
    root.settings(&["merge"], "");
    put(&root, "a", None, &line(1, 0), &"00".repeat(32));
    let (code, said) = root.run(MERGE, &["--once"]);
    assert_eq!(code, 78, "{said}");
    assert!(said.contains("no stage after it"), "{said}");
    assert_eq!(root.list("merge", "ready"), ["a~0"]);
}

#[test]
fn a_digest_that_no_proof_tells_is_taken_from_the_manifest() {
    let root = root("");
    let mut manifest = Manifest::open(&root.path().join("manifest.sqlite"), root.path()).unwrap();
    let file = NewFile {
        name: "a.warc.gz",
        bytes: 1,
        sha256: &"cd".repeat(32),
        parcel: "t",
        kind: "warc",
        job: None,
        harvest: None,
        collection: None,
        source: "harvested/a.warc.gz",
    };
    manifest.ingest(&file).unwrap();
    let captures = line(1, 0);
    for (id, name) in [("known", "a.warc.gz.cdxj"), ("by-hand", "b.warc.gz.cdxj")] {
        root.put_files("merge", id, &[(name, captures.as_bytes())]);
    }
    let (code, said) = root.run(MERGE, &["--once"]);
    assert_eq!(code, 0, "{said}");
    let files = &days(&root)[&None]["day.files"];
    assert_eq!(files, &format!("a.warc.gz\t{}\n", "cd".repeat(32)));
}

fn filter(directory: &Path, files: &[&str]) -> Output {
    let mut command = Command::new(MERGE);
    settle_environment(&mut command);
    command
        .arg("--root")
        .arg(directory)
        .args(files)
        .current_dir(directory);
    command.output().unwrap()
}

#[test]
fn the_filter_merges_files_and_refuses_disorder() {
    let root = Root::new();
    let write = |name: &str, lines: &[String]| {
        fs::write(root.path().join(name), lines.concat()).unwrap();
    };
    write("a.cdxj", &[line(1, 0), line(3, 0)]);
    write("b.cdxj", &[line(1, 0), line(2, 0), line(4, 0)]);
    write("c.cdxj", &[line(2, 0), line(5, 0), line(4, 0)]);
    let merged = filter(root.path(), &["a.cdxj", "b.cdxj"]);
    assert_eq!(merged.status.code(), Some(0));
    let expected = [1, 2, 3, 4].map(|page| line(page, 0)).concat();
    assert_eq!(String::from_utf8(merged.stdout).unwrap(), expected);

    let refused = filter(root.path(), &["a.cdxj", "c.cdxj"]);
    assert_eq!(refused.status.code(), Some(65));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        said.starts_with("line 3 of c.cdxj at offset 98 is not in byte order"),
        "{said}"
    );
    let begun = String::from_utf8(refused.stdout).unwrap();
    assert!(
        begun.is_empty() || begun.ends_with('\n'),
        "never half a line: {begun:?}"
    );

    let missing = filter(root.path(), &["a.cdxj", "z.cdxj"]);
    assert_eq!(missing.status.code(), Some(65));
    assert!(
        String::from_utf8(missing.stderr)
            .unwrap()
            .starts_with("cannot open z.cdxj: ")
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn the_filter_is_a_sort_of_all_lines(files in vec(vec((0u32..30, 0u32..3), 0..40), 1..6)) {
        let root = Root::new();
        let mut names = Vec::new();
        let mut all = Vec::new();
        for (number, lines) in files.into_iter().enumerate() {
            let mut lines: Vec<String> = lines.into_iter().map(|(page, second)| line(page, second)).collect();
            lines.sort();
            names.push(format!("{number}.cdxj"));
            fs::write(root.path().join(&names[number]), lines.concat()).unwrap();
            all.extend(lines);
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let merged = filter(root.path(), &names);
        prop_assert_eq!(merged.status.code(), Some(0));
        prop_assert_eq!(String::from_utf8(merged.stdout).unwrap(), sorted(all));
    }
}

/// A large day, with the settings as they are shipped: lists are merged as soon as enough files wait, and nobody waits for
/// midnight. At 20,000 files a day one comes every 4.3 seconds and a batch is full after six hours.
#[test]
fn twenty_thousand_waiting_files_become_four_days_as_shipped() {
    const FILES: usize = 20_000;
    const LEFT: usize = 3;
    let shipped = ecluse_config::Pipeline::load(None).unwrap();
    let batch = shipped.shell("merge").batch;
    assert_eq!(FILES % batch.parcels as usize, 0);
    // Delete goes on while a batch gathers, and nothing waits longer than a day.
    assert!(u64::from(batch.parcels) < shipped.shell("delete").high_mark);
    assert!(batch.wait.0 <= Duration::from_secs(24 * 60 * 60));
    let root = Root::new();
    root.settings(&["merge", "sink"], "");
    let ready = root.tree().init("merge").unwrap().ready();
    for number in 0..FILES + LEFT {
        let name = format!("{number:05}.warc.gz");
        let page = u32::try_from(number).unwrap();
        let files = [
            (format!("{name}.cdxj"), line(page, 0)),
            (
                format!("{name}.path"),
                format!("{name}\t./repository/{name}\n"),
            ),
        ];
        let id = ParcelId::new(&name).unwrap();
        let mut manifest = ParcelManifest::new(id, "warc", "0000000000000000".into());
        let directory = ready.join(format!("{name}~0"));
        fs::create_dir(&directory).unwrap();
        for (name, text) in files {
            fs::write(directory.join(&name), &text).unwrap();
            manifest.put(FileEntry {
                name,
                bytes: text.len() as u64,
                sha256: digest(text.as_bytes()),
            });
        }
        let text = serde_json::to_vec(&manifest).unwrap();
        fs::write(directory.join("parcel.json"), text).unwrap();
    }
    let mut program = root.start(MERGE, &[]);
    for day in 1..=FILES / batch.parcels as usize {
        root.await_count("sink", "ready", day);
    }
    // What is left over waits for its day.
    assert_eq!(program.stop(), 0, "{}", program.log());
    assert_eq!(root.list("merge", "ready").len(), LEFT);
    let mut lines = 0;
    for (path, bytes) in contents(&root.part("sink", "ready")) {
        if path.extension().is_some_and(|end| end == "cdxj") {
            lines += bytes.split(|byte| *byte == b'\n').count() - 1;
        }
    }
    assert_eq!(lines, FILES);
}

/// The lines of links that went to a stage, by collection.
fn links_at(root: &Root, stage: &str) -> BTreeMap<Option<String>, Vec<String>> {
    let mut found = BTreeMap::new();
    for parcel in root.list(stage, "ready") {
        let files = contents(&root.part(stage, "ready").join(parcel));
        let manifest: ParcelManifest =
            serde_json::from_slice(&files[Path::new("parcel.json")]).unwrap();
        assert_eq!(manifest.kind, "links");
        let packed = &files[Path::new("day.links.zst")];
        let text = String::from_utf8(zstd::decode_all(packed.as_slice()).unwrap()).unwrap();
        found.insert(
            manifest.collection,
            text.lines().map(str::to_owned).collect(),
        );
    }
    found
}

#[test]
fn the_links_of_the_day_go_to_those_who_ask_for_them() {
    let begin = |back: &str, bad: bool| {
        let root = Root::new();
        let table = format!("[stage.merge]\nnext = ['sink']\nback = {back}\n");
        root.settings(&["merge", "sink", "rank", "other"], &table);
        for (name, collection, pages) in [
            ("a", None, &["fr,b)/\tx", "fr,c)/\tx"][..]),
            ("b", None, &["fr,a)/\tx", "fr,c)/\tx"]),
            ("c", Some("elections"), &["fr,d)/\tx"]),
            ("d", None, &[]),
        ] {
            root.put_with("merge", name, "warc", |parcel| {
                parcel.manifest().collection = collection.map(str::to_owned);
                parcel.write(&format!("{name}.warc.gz.cdxj"), LINE)?;
                if name != "d" {
                    let lines: String = pages.iter().map(|page| format!("{page}\n")).collect();
                    let text = format!("# ecluse links 1\n{lines}");
                    let mut packed = zstd::encode_all(text.as_bytes(), 1).unwrap();
                    if bad && name == "a" {
                        packed.truncate(packed.len() - 4);
                    }
                    parcel.write(&format!("{name}.warc.gz.links.zst"), &packed)?;
                }
                Ok(())
            });
        }
        let (code, said) = root.run(MERGE, &["--once"]);
        (code, said, root)
    };
    let (code, said, root) = begin("['rank', 'other']", false);
    assert_eq!(code, 0, "{said}");
    for stage in ["rank", "other"] {
        let links = links_at(&root, stage);
        assert_eq!(
            links[&None],
            ["# ecluse links 1", "fr,a)/\tx", "fr,b)/\tx", "fr,c)/\tx"]
        );
        assert_eq!(
            links[&Some("elections".to_owned())],
            ["# ecluse links 1", "fr,d)/\tx"]
        );
    }
    let (code, said, root) = begin("[]", false);
    assert_eq!(code, 0, "{said}");
    assert!(links_at(&root, "rank").is_empty());
    // A piece that cannot be unpacked holds its parcel, and the day goes on.
    let (code, said, root) = begin("['rank']", true);
    assert_eq!(code, 65, "{said}");
    assert_eq!(root.list("merge", "held"), ["a~1"]);
    assert_eq!(
        links_at(&root, "rank")[&None],
        ["# ecluse links 1", "fr,a)/\tx", "fr,c)/\tx"]
    );
}
