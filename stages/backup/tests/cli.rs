//! The program as an operator runs it, with directories and commands.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ecluse_holding::Proof;
use ecluse_manifest::{CopyKind, FileState, Manifest};
use ecluse_spool::digest;
use ecluse_testkit::contract::Contract;
use ecluse_testkit::machine::{empty, fill, inside, kill_at, mount, newcomer, sh};
use ecluse_testkit::root::{Root, until_so};

const BACKUP: &str = env!("CARGO_BIN_EXE_ecluse-backup");
const NAME: &str = "a.warc.gz";
const SOON: &str = r#"retry = { first = "50ms", factor = 1.0, max = "50ms", limit = "7d" }"#;

fn root(targets: &str) -> Root {
    let root = Root::new();
    let table = format!("[stage.backup]\n{SOON}\nattempts = 1000\ntargets = [{targets}]\n");
    root.settings(&["backup", "sink"], &table);
    root
}

fn directory(name: &str, path: &Path) -> String {
    format!("{{ name = {name:?}, kind = \"directory\", path = {path:?}, leave-free = \"0 B\" }}")
}

/// Writes a program of the operator's.
fn script(root: &Root, name: &str, text: &str) -> PathBuf {
    let path = root.path().join(name);
    let fresh = root.path().join(format!("{name}.new"));
    fs::write(&fresh, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o755)).unwrap();
    sh("mv \"$1\" \"${1%.new}\"", &fresh);
    path
}

fn command(name: &str, program: &Path, more: &str) -> String {
    format!(
        "{{ name = {name:?}, kind = \"command\", command = [{program:?}, \"{{path}}\", \"{{sha256}}\", \"{{name}}\"]{more} }}"
    )
}

/// Puts a parcel whose stored copy lies in the root's repository.
fn put(root: &Root, id: &str, name: &str, bytes: &[u8]) -> PathBuf {
    let repository = root.path().join("repository");
    fs::create_dir_all(&repository).unwrap();
    let stored = repository.join(name);
    fs::write(&stored, bytes).unwrap();
    let line = format!("{name}\t{}\n", stored.display());
    let files = [(name, bytes), (&format!("{name}.path"), line.as_bytes())];
    root.put_files("backup", id, &files);
    stored
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

fn run(root: &Root, wanted: i32) -> String {
    let (code, said) = root.run(BACKUP, &["--once"]);
    assert_eq!(code, wanted, "{said}");
    said
}

fn proofs(root: &Root, parcel: &str, name: &str) -> Vec<Proof> {
    let path = root.part("sink", &format!("ready/{parcel}~0/{name}.backup.json"));
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn backup_keeps_the_contract() {
    let place = tempfile::tempdir().unwrap();
    let settings = format!("targets = [{}]", directory("vault", place.path()));
    Contract {
        stage: "backup",
        binary: Path::new(BACKUP),
        settings: &settings,
        good: &[(NAME, b"good"), ("a.warc.gz.seen.json", b"{}")],
        bad: &[
            (NAME, b"bytes"),
            ("a.warc.gz.path", b"another.warc.gz\t/x\n"),
        ],
    }
    .keep();
    assert_eq!(names(place.path()), [NAME]);
}

#[test]
fn the_stored_copy_itself_is_no_backup() {
    // A second name of the stored file in the target: the one copy would prove itself.
    let root =
        root("{ name = \"near\", kind = \"directory\", path = \"backup\", leave-free = \"0 B\" }");
    let stored = put(&root, "p", NAME, b"bytes");
    fs::create_dir(root.path().join("backup")).unwrap();
    fs::hard_link(stored, root.path().join("backup").join(NAME)).unwrap();
    let said = run(&root, 75);
    assert!(said.contains("is the stored copy itself"), "{said}");
    let manifest = Manifest::open(&root.path().join("manifest.sqlite"), root.path()).unwrap();
    assert_eq!(manifest.copies(NAME).unwrap(), []);
    assert!(!root.part("sink", "ready/p~0").exists());
}

#[test]
fn every_target_gets_a_copy_and_gives_a_proof() {
    let root = Root::new();
    let tape = script(
        &root,
        "tape",
        "test \"$(sha256sum < \"$1\" | cut -d' ' -f1)\" = \"$2\"\necho writing >&2\necho working\necho \"tape 7: $3\"",
    );
    let targets = format!(
        "{{ name = \"near\", kind = \"directory\", path = \"backup\" }}, {}, {}",
        directory("far", &root.path().join("far")),
        command("tape", &tape, "")
    );
    fs::create_dir(root.path().join("far")).unwrap();
    let table = format!("[stage.backup]\ntargets = [{targets}]\n");
    root.settings(&["backup", "sink"], &table);
    put(&root, "p", NAME, b"bytes");
    run(&root, 0);
    let proofs = proofs(&root, "p", NAME);
    let places: Vec<(&str, &str, String)> = proofs
        .iter()
        .map(|proof| {
            (
                proof.target.as_str(),
                proof.kind.as_str(),
                proof.place.clone(),
            )
        })
        .collect();
    let at = |dir: &str| format!("./{dir}/{NAME}");
    assert_eq!(
        places,
        [
            ("near", "directory", at("backup")),
            ("far", "directory", at("far")),
            ("tape", "command", "tape 7: a.warc.gz".to_owned()),
        ]
    );
    assert!(
        proofs
            .iter()
            .all(|proof| proof.sha256 == digest(b"bytes") && proof.bytes == 5)
    );
    for dir in ["backup", "far"] {
        assert_eq!(
            fs::read(root.path().join(dir).join(NAME)).unwrap(),
            b"bytes"
        );
    }
    let manifest = Manifest::open(&root.path().join("manifest.sqlite"), root.path()).unwrap();
    assert_eq!(
        manifest.file(NAME).unwrap().unwrap().state,
        FileState::BackedUp
    );
    let copies = manifest.copies(NAME).unwrap();
    assert_eq!(
        copies
            .iter()
            .filter(|copy| copy.kind == CopyKind::Backup)
            .count(),
        3
    );
}

#[test]
fn a_command_that_fails_is_waited_for_and_the_others_are_not_done_twice() {
    let place = tempfile::tempdir().unwrap();
    let root = Root::new();
    let first = script(&root, "first", "echo \"$3\" >> \"$0.log\"; echo shelf 1");
    let second = script(&root, "second", "echo the robot is on strike >&2; exit 3");
    let targets = format!(
        "{}, {}, {}",
        command("first", &first, ""),
        command("second", &second, ""),
        directory("vault", place.path())
    );
    let table = format!("[stage.backup]\n{SOON}\ntargets = [{targets}]\n");
    root.settings(&["backup", "sink"], &table);
    put(&root, "p", NAME, b"bytes");
    let mut program = root.start(BACKUP, &[]);
    program.await_log("the robot is on strike");
    let said = program.log();
    assert!(
        said.contains("backup second: ") && said.contains("exit status: 3"),
        "{said}"
    );
    // The one after it did not wait.
    until_so("the copy", || names(place.path()) == [NAME]);
    let inode = fs::metadata(place.path().join(NAME)).unwrap().ino();
    script(&root, "second", "echo shelf 2");
    root.await_count("sink", "ready", 1);
    assert_eq!(program.stop(), 0, "{}", program.log());
    let places: Vec<String> = proofs(&root, "p", NAME)
        .into_iter()
        .map(|proof| proof.place)
        .collect();
    assert_eq!(places[..2], ["shelf 1", "shelf 2"]);
    let log = fs::read_to_string(root.path().join("first.log")).unwrap();
    assert_eq!(log, "a.warc.gz\n", "taken once");
    assert_eq!(fs::metadata(place.path().join(NAME)).unwrap().ino(), inode);
}

#[test]
fn a_command_without_end_is_ended_with_all_it_started() {
    let root = Root::new();
    let slow = script(&root, "slow", "sleep 600 & echo $! > \"$0.pid\"; wait");
    let table = format!(
        "[stage.backup]\ntargets = [{}]\n",
        command("slow", &slow, ", timeout = \"300ms\"")
    );
    root.settings(&["backup", "sink"], &table);
    put(&root, "p", NAME, b"bytes");
    let said = run(&root, 75);
    assert!(said.contains("did not end within 300ms"), "{said}");
    let pid = fs::read_to_string(root.path().join("slow.pid")).unwrap();
    let stat = PathBuf::from(format!("/proc/{}/stat", pid.trim()));
    until_so("its child to be gone", || {
        fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") Z ")) || !stat.exists()
    });
}

#[test]
fn a_command_that_cannot_be_run_is_the_worlds_fault() {
    let root = root(&command("tape", Path::new("/nonexistent/to-tape"), ""));
    put(&root, "p", NAME, b"bytes");
    let said = run(&root, 75);
    assert!(said.contains("cannot run /nonexistent/to-tape"), "{said}");
    // Nothing of a name or path reaches a shell, and what a command says reaches no terminal raw.
    let root = Root::new();
    let echo = script(&root, "echo", "printf '\\033[2J%s\\n' \"$1\"");
    let table = format!(
        "[stage.backup]\ntargets = [{}]\n",
        command("tape", &echo, "")
    );
    root.settings(&["backup", "sink"], &table);
    let repository = root.path().join("repository");
    fs::create_dir(&repository).unwrap();
    let odd = repository.join("$(touch owned); ' \"{name}");
    fs::write(&odd, b"bytes").unwrap();
    let line = format!("{NAME}\t{}\n", odd.display());
    let files = [(NAME, &b"bytes"[..]), ("a.warc.gz.path", line.as_bytes())];
    root.put_files("backup", "q", &files);
    run(&root, 0);
    let place = &proofs(&root, "q", NAME)[0].place;
    assert_eq!(*place, format!("\u{fffd}[2J{}", odd.display()));
    assert!(!root.path().join("owned").exists());
}

#[test]
fn a_stored_copy_that_is_not_what_ingest_took_is_held() {
    let place = tempfile::tempdir().unwrap();
    let root = Root::new();
    let tape = script(&root, "tape", "touch \"$0.ran\"");
    let targets = format!(
        "{}, {}",
        command("tape", &tape, ""),
        directory("vault", place.path())
    );
    for targets in [targets, directory("vault", place.path())] {
        let table = format!("[stage.backup]\ntargets = [{targets}]\n");
        root.settings(&["backup", "sink"], &table);
        let id = format!("p-{}", targets.len());
        let stored = put(&root, &id, NAME, b"bytes");
        fs::write(stored, b"BYTES").unwrap();
        run(&root, 65);
        let why = root.why("backup", &id);
        assert!(
            why.contains(&digest(b"BYTES")) && why.contains(&digest(b"bytes")),
            "{why}"
        );
    }
    assert!(!root.path().join("tape.ran").exists());
    assert_eq!(names(place.path()), [""; 0]);
}

#[test]
fn another_file_of_the_name_is_held_and_left_alone() {
    let place = tempfile::tempdir().unwrap();
    let root = root(&directory("vault", place.path()));
    fs::write(place.path().join(NAME), b"older").unwrap();
    put(&root, "p", NAME, b"newer");
    put(&root, "q", "q.warc.gz", b"fine");
    run(&root, 65);
    let why = root.why("backup", "p");
    assert!(
        why.contains(&digest(b"older")) && why.contains(&digest(b"newer")),
        "{why}"
    );
    assert_eq!(fs::read(place.path().join(NAME)).unwrap(), b"older");
    assert_eq!(root.list("sink", "ready"), ["q~0"]);
}

#[test]
fn twenty_deaths_leave_one_verified_copy_of_each_and_nothing_else() {
    let place = tempfile::tempdir().unwrap();
    let root = root(&directory("vault", place.path()));
    let mut files = Vec::new();
    for number in 0..24_u8 {
        let bytes: Vec<u8> = (0..300_000_u32).map(|at| (at as u8) ^ number).collect();
        let name = format!("{number}.warc.gz");
        put(&root, &format!("p-{number}"), &name, &bytes);
        files.push((name, bytes));
    }
    let temporary = newcomer(place.path(), |name| name.starts_with(".ecluse-tmp-"));
    let named = newcomer(place.path(), |name| !name.starts_with('.'));
    let claimed = || !root.claimed("backup").is_empty();
    let kills = kill_at(
        &root,
        BACKUP,
        "backup",
        100,
        &[&claimed, &temporary, &named],
    );
    eprintln!(
        "measured: {} files backed up under {kills} kills",
        files.len()
    );
    assert!(kills >= 20, "{kills}");
    run(&root, 0);
    assert_eq!(root.list("sink", "ready").len(), files.len());
    assert_eq!(
        names(place.path()).len(),
        files.len(),
        "{:?}",
        names(place.path())
    );
    for (name, bytes) in &files {
        assert_eq!(
            digest(&fs::read(place.path().join(name)).unwrap()),
            digest(bytes)
        );
    }
}

#[test]
fn a_full_or_read_only_vault_is_waited_for() {
    if !inside("a_full_or_read_only_vault_is_waited_for") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let vault = dir.path().join("vault");
    mount(&vault, "4m");
    let root = root(&directory("vault", &vault));
    let filler = fill(&vault);
    put(&root, "p", NAME, &vec![b'x'; 2 << 20]);
    let mut program = root.start(BACKUP, &[]);
    program.await_log("backup vault: 0 bytes are free, 2097152 are needed");
    sh("mount -o remount,ro \"$1\"", &vault);
    program.await_log("bytes are free");
    assert_eq!(root.list("sink", "ready"), [""; 0]);
    sh("mount -o remount,rw \"$1\"", &vault);
    empty(&filler);
    root.await_count("sink", "ready", 1);
    sh("mount -o remount,ro \"$1\"", &vault);
    put(&root, "q", "q.warc.gz", b"bytes");
    program.await_log("Read-only file system");
    sh("mount -o remount,rw \"$1\"", &vault);
    root.await_count("sink", "ready", 2);
    assert_eq!(program.stop(), 0, "{}", program.log());
    assert_eq!(names(&vault), [NAME, "filler", "q.warc.gz"]);
}
