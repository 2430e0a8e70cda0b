//! The program as an operator runs it.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ecluse_manifest::{FileState, Manifest};
use ecluse_spool::digest;
use ecluse_testkit::contract::Contract;
use ecluse_testkit::machine::{empty, fill, inside, kill_at, mount, newcomer, sh};
use ecluse_testkit::root::Root;
use rustix::process::Signal;

const TRANSFER: &str = env!("CARGO_BIN_EXE_ecluse-transfer");
const NAME: &str = "7-42-20200101000000000-00000-crawler.warc.gz";
const SOON: &str = r#"retry = { first = "50ms", factor = 1.0, max = "50ms", limit = "7d" }"#;

fn root(more: &str) -> Root {
    let root = Root::new();
    configure(&root, more);
    root
}

fn configure(root: &Root, more: &str) {
    let table = format!("[stage.transfer]\nleave-free = \"0 B\"\n{more}\n");
    root.settings(&["transfer", "sink"], &table);
}

fn locations(paths: &[&Path]) -> String {
    let tables: Vec<String> = paths
        .iter()
        .enumerate()
        .map(|(number, path)| format!("{{ name = \"node{number}\", path = {path:?} }}"))
        .collect();
    format!("[archive]\nrepository = [{}]", tables.join(", "))
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn held(root: &Root) -> Vec<String> {
    root.list("transfer", "held")
}

fn run(root: &Root, wanted: i32) -> String {
    let (code, said) = root.run(TRANSFER, &["--once"]);
    assert_eq!(code, wanted, "{said}");
    said
}

/// What the parcel says of its copies.
fn path_file(root: &Root, parcel: &str, name: &str) -> String {
    let path = root.part("sink", &format!("ready/{parcel}~0/{name}.path"));
    fs::read_to_string(path).unwrap()
}

#[test]
fn transfer_keeps_the_contract() {
    let place = tempfile::tempdir().unwrap();
    Contract {
        stage: "transfer",
        binary: Path::new(TRANSFER),
        settings: &format!("leave-free = \"0 B\"\n{}", locations(&[place.path()])),
        good: &[
            (NAME, b"good"),
            (
                "7-42-20200101000000000-00000-crawler.warc.gz.cdxj",
                b"lines",
            ),
        ],
        bad: &[("a.warc.gz", b"one"), ("b.warc.gz", b"and another")],
    }
    .keep();
    assert_eq!(names(place.path()), [NAME]);
}

#[test]
fn a_file_is_stored_with_its_path_and_its_row() {
    let root = root("layout = \"{harvest}/{job}\"");
    root.put_files("transfer", "p", &[(NAME, b"bytes")]);
    run(&root, 0);
    let place = root.path().join("repository/unknown/unknown").join(NAME);
    assert_eq!(fs::read(&place).unwrap(), b"bytes");
    assert_eq!(
        path_file(&root, "p", NAME),
        format!("{NAME}\t./repository/unknown/unknown/{NAME}\n")
    );
    assert!(root.part("sink", &format!("ready/p~0/{NAME}")).exists());
    let manifest = Manifest::open(&root.path().join("manifest.sqlite"), root.path()).unwrap();
    assert_eq!(
        manifest.file(NAME).unwrap().unwrap().state,
        FileState::Stored
    );
    let copies = manifest.copies(NAME).unwrap();
    assert_eq!(copies.len(), 1);
    assert_eq!(copies[0].target, "repository");
    assert_eq!(copies[0].sha256, digest(b"bytes"));
    assert_eq!(Path::new(&copies[0].place), place);
}

/// Index may run on another host than the one that writes the manifest.
#[test]
fn what_index_found_is_told_to_the_manifest() {
    let root = root("");
    root.put_files("transfer", "p", &[(NAME, b"bytes")]);
    let receipt = |lines: u64, damages: u64| {
        format!(
            "{{\"work\":\"p\",\"schema\":1,\"stage\":\"index@alpha\",\"version\":\"0\",\"worker\":\"w\",\"attempt\":1,\
             \"claimed\":\"\",\"finished\":\"\",\"inputs\":[],\"fate\":{{\"do\":\"consume\"}},\"facts\":{{\"captures\":9,\
             \"lines\":{lines},\"damages\":{damages},\"damage\":[{{\"record\":2,\"offset\":7,\"reason\":\"torn\"}}]}}}}\n"
        )
    };
    let history = root.part("transfer", "ready/p~0/history");
    fs::create_dir_all(&history).unwrap();
    fs::write(history.join("02-index.json"), receipt(1, 0)).unwrap();
    // Indexed once more: the last counts.
    fs::write(history.join("03-index@alpha.json"), receipt(8, 70)).unwrap();
    run(&root, 0);
    let manifest = Manifest::open(&root.path().join("manifest.sqlite"), root.path()).unwrap();
    let row = manifest.file(NAME).unwrap().unwrap();
    assert_eq!((row.captures, row.damages), (Some(8), Some(70)));
    assert_eq!(row.state, FileState::Stored);
    let damage = &manifest.damage(NAME).unwrap()[0];
    assert_eq!(damage.to_string(), "record 2 at offset 7: torn");
}

#[test]
fn each_location_has_its_turn() {
    let root = root(
        "choose = \"round-robin\"\n[archive]\nrepository = [{ name = \"a\", path = \"a\" }, { name = \"b\", path = \"b\" }]",
    );
    for number in 0..6 {
        let name = format!("{number}.warc.gz");
        root.put_files("transfer", &format!("p-{number}"), &[(&name, b"bytes")]);
    }
    run(&root, 0);
    assert_eq!(names(&root.path().join("a")).len(), 3);
    assert_eq!(names(&root.path().join("b")).len(), 3);
}

#[test]
fn a_copy_that_is_there_counts_and_is_not_made_again() {
    let root = root(
        "[archive]\nrepository = [{ name = \"a\", path = \"a\" }, { name = \"b\", path = \"b\" }]",
    );
    // As after a death between the name and the receipt, though the settings were changed since.
    let there = root.path().join("b").join(NAME);
    fs::create_dir(root.path().join("b")).unwrap();
    fs::write(&there, b"bytes").unwrap();
    let before = fs::metadata(&there).unwrap();
    root.put_files("transfer", "p", &[(NAME, b"bytes")]);
    run(&root, 0);
    let after = fs::metadata(&there).unwrap();
    assert_eq!(
        (before.ino(), before.mtime_nsec()),
        (after.ino(), after.mtime_nsec())
    );
    assert_eq!(names(&root.path().join("a")), [""; 0]);
    assert_eq!(path_file(&root, "p", NAME), format!("{NAME}\t./b/{NAME}\n"));
}

#[test]
fn another_file_of_the_name_is_held_with_both_digests() {
    let root = root("");
    let there = root.path().join("repository").join(NAME);
    fs::create_dir(root.path().join("repository")).unwrap();
    fs::write(&there, b"older").unwrap();
    root.put_files("transfer", "p", &[(NAME, b"newer")]);
    root.put_files("transfer", "q", &[("other.warc.gz", b"fine")]);
    run(&root, 65);
    let why = root.why("transfer", "p");
    assert!(
        why.contains(&digest(b"older")) && why.contains(&digest(b"newer")),
        "{why}"
    );
    assert_eq!(fs::read(&there).unwrap(), b"older");
    assert_eq!(root.list("sink", "ready"), ["q~0"]);
    assert_eq!(
        names(&root.path().join("repository")),
        [NAME, "other.warc.gz"]
    );
}

#[test]
fn a_working_copy_that_is_not_what_ingest_took_is_held() {
    let root = root("");
    for (id, bytes) in [
        ("same-size", &b"BYTES"[..]),
        ("longer", b"bytes and more"),
        ("empty", b""),
    ] {
        root.put_files("transfer", id, &[(NAME, b"bytes")]);
        let file = root.part("transfer", &format!("ready/{id}~0/{NAME}"));
        fs::write(file, bytes).unwrap();
    }
    run(&root, 65);
    assert_eq!(held(&root).len(), 3);
    let why = root.why("transfer", "same-size");
    assert!(
        why.contains(&digest(b"BYTES")) && why.contains(&digest(b"bytes")),
        "{why}"
    );
    assert_eq!(names(&root.path().join("repository")), [""; 0]);
}

#[test]
fn names_that_lead_elsewhere_never_leave_the_parcel() {
    let root = root("");
    for (number, name) in ["../escaped", "/etc/escaped", "a/b", ".hidden", "a\\u001bb"]
        .iter()
        .enumerate()
    {
        let dir = root
            .tree()
            .init("transfer")
            .unwrap()
            .ready()
            .join(format!("h-{number}~0"));
        fs::create_dir(&dir).unwrap();
        let json = format!(
            "{{\"schema\":1,\"id\":\"h-{number}\",\"kind\":\"warc\",\"born\":\"0\",\"files\":[{{\"name\":\"{name}\",\"bytes\":5,\"sha256\":\"{}\"}}]}}\n",
            digest(b"bytes")
        );
        fs::write(dir.join("parcel.json"), json).unwrap();
    }
    root.put_files("transfer", "good", &[(NAME, b"bytes")]);
    run(&root, 65);
    assert_eq!(held(&root).len(), 5);
    assert_eq!(names(&root.path().join("repository")), [NAME]);
    assert!(!root.path().join("escaped").exists());
}

#[test]
fn a_location_that_is_a_link_or_missing_is_skipped_by_name() {
    let outside = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let gone = elsewhere.path().join("not-mounted");
    let root = root(&format!(
        "{SOON}\n[archive]\nrepository = [{{ name = \"linked\", path = \"link\" }}, {{ name = \"gone\", path = {gone:?} }}]"
    ));
    std::os::unix::fs::symlink(outside.path(), root.path().join("link")).unwrap();
    root.put_files("transfer", "p", &[(NAME, b"bytes")]);
    let mut program = root.start(TRANSFER, &[]);
    program.await_log("no location takes");
    let said = program.log();
    assert!(
        said.contains("linked: ") && said.contains("gone: "),
        "{said}"
    );
    assert_eq!(names(outside.path()), [""; 0]);
    // Mounted at last, it goes on by itself.
    fs::create_dir(&gone).unwrap();
    root.await_count("sink", "ready", 1);
    assert_eq!(program.stop(), 0);
    assert_eq!(names(&gone), [NAME]);
}

#[test]
fn two_parcels_of_one_name_give_one_copy_or_one_held() {
    let root = root(
        "choose = \"round-robin\"\nworkers = 4\n[archive]\nrepository = [{ name = \"a\", path = \"a\" }, { name = \"b\", path = \"b\" }]",
    );
    let (one, two) = (vec![1; 1 << 20], vec![2; 1 << 20]);
    for number in 0..8 {
        root.put_files(
            "transfer",
            &format!("same-{number}"),
            &[("same.warc.gz", &one)],
        );
        let other = if number % 2 == 0 { &one } else { &two };
        root.put_files(
            "transfer",
            &format!("other-{number}"),
            &[("other.warc.gz", other)],
        );
    }
    run(&root, 65);
    // Nothing was written over, and every parcel that passed names only copies of its own bytes.
    for parcel in root.list("sink", "ready") {
        let dir = root.part("sink", "ready").join(&parcel);
        let name = names(&dir)
            .into_iter()
            .find(|name| name.ends_with(".warc.gz"))
            .unwrap();
        let lines = fs::read_to_string(dir.join(format!("{name}.path"))).unwrap();
        for line in lines.lines() {
            let place = root.path().join(line.split_once('\t').unwrap().1);
            assert_eq!(fs::read(place).unwrap(), fs::read(dir.join(&name)).unwrap());
        }
    }
    assert!(!held(&root).is_empty());
    assert!(
        held(&root)
            .iter()
            .all(|parcel| parcel.starts_with("other-"))
    );
}

#[test]
fn twenty_deaths_leave_one_verified_copy_of_each_and_nothing_else() {
    let root = root("attempts = 1000");
    let mut files = Vec::new();
    for number in 0..24_u8 {
        let bytes: Vec<u8> = (0..300_000_u32).map(|at| (at as u8) ^ number).collect();
        let name = format!("{number}.warc.gz");
        root.put_files("transfer", &format!("p-{number}"), &[(&name, &bytes)]);
        files.push((name, bytes));
    }
    let repository = root.path().join("repository");
    let temporary = newcomer(&repository, |name| name.starts_with(".ecluse-tmp-"));
    let named = newcomer(&repository, |name| !name.starts_with('.'));
    let claimed = || !root.claimed("transfer").is_empty();
    let kills = kill_at(
        &root,
        TRANSFER,
        "transfer",
        100,
        &[&claimed, &temporary, &named],
    );
    eprintln!("measured: {} files stored under {kills} kills", files.len());
    assert!(kills >= 20, "{kills}");
    run(&root, 0);
    assert_eq!(root.list("sink", "ready").len(), files.len());
    assert_eq!(held(&root), [""; 0]);
    assert_eq!(
        names(&repository).len(),
        files.len(),
        "{:?}",
        names(&repository)
    );
    for (name, bytes) in &files {
        assert_eq!(
            digest(&fs::read(repository.join(name)).unwrap()),
            digest(bytes)
        );
    }
}

#[test]
fn half_copies_of_the_dead_are_swept_and_nothing_else() {
    let root = root("");
    let repository = root.path().join("repository");
    fs::create_dir(&repository).unwrap();
    for name in [
        ".ecluse-tmp-transfer-99-0",
        ".ecluse-tmp-backup-99-0",
        ".hidden",
        "kept",
    ] {
        fs::write(repository.join(name), b"half").unwrap();
    }
    root.put_files("transfer", "p", &[(NAME, b"bytes")]);
    run(&root, 0);
    assert_eq!(
        names(&repository),
        [".ecluse-tmp-backup-99-0", ".hidden", NAME, "kept"]
    );
}

#[test]
fn a_full_location_waits_and_says_so() {
    if !inside("a_full_location_waits_and_says_so") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (small, smaller) = (dir.path().join("small"), dir.path().join("smaller"));
    mount(&small, "8m");
    mount(&smaller, "4m");
    let root = Root::new();
    let table = format!(
        "[stage.transfer]\nleave-free = \"1 MiB\"\nchoose = \"most-free\"\n{SOON}\n{}\n",
        locations(&[&smaller, &small])
    );
    root.settings(&["transfer", "sink"], &table);
    let filler = fill(&small);
    let bytes = vec![b'x'; 4 << 20];
    root.put_files("transfer", "p", &[(NAME, &bytes)]);
    let mut program = root.start(TRANSFER, &[]);
    program.await_log("no location takes");
    let said = program.log();
    assert!(
        said.contains("node0: ") && said.contains("node1: "),
        "{said}"
    );
    assert!(
        said.contains("0 bytes are free, 5242880 are needed"),
        "{said}"
    );
    assert_eq!(names(&smaller), [""; 0]);
    empty(&filler);
    root.await_count("sink", "ready", 1);
    assert_eq!(program.stop(), 0, "{}", program.log());
    assert_eq!(names(&small), [NAME, "filler"]);
    assert_eq!(names(&smaller), [""; 0]);
    // The next one fits nowhere with what must be left.
    root.put_files("transfer", "q", &[("q.warc.gz", &bytes)]);
    let (code, said) = root.run(TRANSFER, &["--once"]);
    assert_eq!(code, 75, "{said}");
}

#[test]
fn a_disk_that_fills_while_it_is_written_leaves_nothing() {
    if !inside("a_disk_that_fills_while_it_is_written_leaves_nothing") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    mount(&first, "3m");
    mount(&second, "64m");
    // Four workers find room for one each; the location holds one in all.
    let root = root(&format!("workers = 4\n{}", locations(&[&first, &second])));
    let bytes = vec![b'x'; 2 << 20];
    for number in 0..8 {
        let name = format!("{number}.warc.gz");
        root.put_files("transfer", &format!("p-{number}"), &[(&name, &bytes)]);
    }
    run(&root, 0);
    assert!(names(&first).len() <= 1, "{:?}", names(&first));
    assert_eq!(names(&first).len() + names(&second).len(), 8);
}

#[test]
fn a_read_only_location_is_passed_over_until_it_is_well() {
    if !inside("a_read_only_location_is_passed_over_until_it_is_well") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    mount(&first, "8m");
    mount(&second, "8m");
    let root = root(&format!("{SOON}\n{}", locations(&[&first, &second])));
    sh("mount -o remount,ro \"$1\"", &first);
    root.put_files("transfer", "p", &[(NAME, b"bytes")]);
    run(&root, 0);
    assert_eq!(names(&second), [NAME]);
    sh("mount -o remount,ro \"$1\"", &second);
    // What is there already needs no writing.
    root.put_files("transfer", "again", &[(NAME, b"bytes")]);
    run(&root, 0);
    root.put_files("transfer", "q", &[("q.warc.gz", b"bytes")]);
    let mut program = root.start(TRANSFER, &[]);
    program.await_log("no location takes");
    assert!(
        program.log().contains("Read-only file system"),
        "{}",
        program.log()
    );
    sh("mount -o remount,rw \"$1\"", &first);
    root.await_count("sink", "ready", 3);
    program.signal(Signal::TERM);
    assert_eq!(program.wait(), 0);
    assert_eq!(names(&first), ["q.warc.gz"]);
}
