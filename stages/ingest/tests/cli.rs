//! The program as an operator runs it: what is taken in, what is left, what is held.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ecluse_manifest::{FileState, Ingested, Manifest, NewFile};
use ecluse_testkit::contract::Contract;
use ecluse_testkit::root::{Root, until_so};
use sha2::Digest;

const INGEST: &str = env!("CARGO_BIN_EXE_ecluse-ingest");

/// A parcel whose file has become another one: consumed without a result.
const CHANGED: &[u8] = br#"{"path":"/dev/null","shown":"/dev/null","name":"null","identity":{"bytes":1,"inode":1,"seconds":1,"nanoseconds":1}}"#;
const IMPOSSIBLE: &[u8] = br#"{"path":"","shown":"x","name":"x","problem":"is a directory","identity":{"bytes":1,"inode":1,"seconds":1,"nanoseconds":1}}"#;

#[test]
fn ingest_keeps_the_contract() {
    Contract {
        stage: "ingest",
        binary: Path::new(INGEST),
        settings: "",
        good: &[("harvested.json", CHANGED)],
        bad: &[("harvested.json", IMPOSSIBLE)],
    }
    .keep();
}

fn root(more: &str) -> Root {
    let root = Root::new();
    configure(&root, more);
    root
}

fn configure(root: &Root, more: &str) {
    let table = format!("[stage.ingest]\nsettle = \"300ms\"\n{more}");
    root.settings(&["ingest", "index"], &table);
    fs::create_dir_all(root.path().join("harvested")).unwrap();
}

/// Puts a file that has been at rest for an hour.
fn harvest(root: &Root, name: &str, bytes: &[u8]) -> PathBuf {
    let path = root.path().join("harvested").join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
    let old = SystemTime::now() - Duration::from_secs(3600);
    let file = fs::File::open(&path).unwrap();
    file.set_modified(old).unwrap();
    path
}

fn ingest(root: &Root) -> (i32, String) {
    root.run(INGEST, &["--once"])
}

fn manifest(root: &Root) -> Manifest {
    Manifest::open(&root.path().join("manifest.sqlite"), root.path()).unwrap()
}

/// The names of the files that wait for a stage, sorted.
fn waiting(root: &Root, stage: &str) -> Vec<String> {
    let mut names = Vec::new();
    for parcel in root.list(stage, "ready") {
        let parcel = root.part(stage, "ready").join(parcel);
        let manifest = fs::read(parcel.join("parcel.json")).unwrap();
        let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
        for file in manifest["files"].as_array().unwrap() {
            let name = file["name"].as_str().unwrap();
            assert!(parcel.join(name).is_file());
            names.push(name.to_owned());
        }
    }
    names.sort();
    names
}

fn held(root: &Root) -> Vec<String> {
    let held = root.part("ingest", "held");
    let mut reasons = Vec::new();
    for name in root.list("ingest", "held") {
        let trouble = fs::read(held.join(name).join("trouble.json")).unwrap();
        let trouble: serde_json::Value = serde_json::from_slice(&trouble).unwrap();
        reasons.push(trouble["held"]["reason"].as_str().unwrap().to_owned());
    }
    reasons.sort();
    reasons
}

#[test]
fn a_file_at_rest_is_linked_and_stands_in_the_manifest() {
    let root = root("");
    let name = "12-3-20261116120000123-00007-h.warc.gz";
    let path = harvest(&root, &format!("job-12/{name}"), b"bytes");
    harvest(&root, "12-3-metadata-1.warc.gz", b"meta");
    let (code, said) = ingest(&root);
    assert_eq!(code, 0, "{said}");
    assert_eq!(
        waiting(&root, "index"),
        [
            "12-3-20261116120000123-00007-h.warc.gz",
            "12-3-metadata-1.warc.gz"
        ]
    );
    let row = manifest(&root).file(name).unwrap().unwrap();
    assert_eq!(row.state, FileState::Ingested);
    assert_eq!(
        (row.job.as_deref(), row.harvest.as_deref()),
        (Some("12"), Some("3"))
    );
    assert_eq!(row.kind.as_deref(), Some("warc"));
    assert_eq!(row.source.as_deref(), path.to_str());
    assert_eq!(
        fs::metadata(&path).unwrap().nlink(),
        2,
        "linked, not copied"
    );
    // Once more: nothing is taken twice, nothing is touched.
    let (code, said) = ingest(&root);
    assert_eq!(code, 0, "{said}");
    assert_eq!(waiting(&root, "index").len(), 2);
    assert_eq!(fs::read(&path).unwrap(), b"bytes");
}

#[test]
fn unfinished_and_hidden_files_are_left_alone() {
    let root = root("");
    for name in [
        "a.warc.gz.open",
        "b.warc.gz.lck",
        "c.tmp",
        ".d.warc.gz",
        ".hidden/e.warc.gz",
        "x.open/f.warc",
        "notes.txt",
    ] {
        harvest(&root, name, b"x");
    }
    let (code, said) = ingest(&root);
    assert_eq!(code, 0, "{said}");
    assert_eq!(waiting(&root, "index"), [""; 0]);
    assert_eq!(root.list("ingest", "held"), [""; 0]);
}

#[test]
fn the_same_again_is_skipped_and_other_bytes_are_held() {
    let root = root("");
    harvest(&root, "one/a.warc.gz", b"first");
    assert_eq!(ingest(&root).0, 0);
    harvest(&root, "two/a.warc.gz", b"first");
    assert_eq!(ingest(&root).0, 0);
    assert_eq!(waiting(&root, "index"), ["a.warc.gz"]);
    harvest(&root, "three/a.warc.gz", b"other");
    harvest(&root, "three/b.warc.gz", b"neighbour");
    let (code, said) = ingest(&root);
    assert_eq!(code, 65, "{said}");
    assert_eq!(waiting(&root, "index"), ["a.warc.gz", "b.warc.gz"]);
    let reasons = held(&root);
    assert_eq!(reasons.len(), 1);
    assert!(
        reasons[0].contains("three/a.warc.gz is known with other bytes"),
        "{reasons:?}"
    );
    // Found again at the next start, it is not held a second time.
    assert_eq!(ingest(&root).0, 0);
    assert_eq!(held(&root).len(), 1);
}

fn digest(bytes: &[u8]) -> String {
    let digest = sha2::Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A parcel that told the manifest of a file and was killed before it handed the file over; the file was touched since.
fn interrupted(root: &Root, id: &str, path: &Path, bytes: &[u8]) {
    let note = serde_json::json!({
        "path": path, "shown": path, "name": path.file_name().unwrap().to_str(),
        "identity": {"bytes": bytes.len(), "inode": 1, "seconds": 1, "nanoseconds": 1},
    });
    root.put_files(
        "ingest",
        id,
        &[("harvested.json", note.to_string().as_bytes())],
    );
}

fn told(root: &Root, parcel: &str, path: &Path, bytes: &[u8]) {
    let file = NewFile {
        name: path.file_name().unwrap().to_str().unwrap(),
        bytes: bytes.len() as u64,
        sha256: &digest(bytes),
        kind: "warc",
        job: None,
        harvest: None,
        collection: None,
        source: path.to_str().unwrap(),
        parcel,
    };
    assert_eq!(manifest(root).ingest(&file).unwrap(), Ingested::New);
}

#[test]
fn a_file_touched_after_a_kill_is_taken_in_all_the_same() {
    // The old parcel and the new one are worked on in one run, in whatever order.
    let one_run = root("");
    let path = harvest(&one_run, "a.warc.gz", b"bytes");
    told(&one_run, "old", &path, b"bytes");
    interrupted(&one_run, "old", &path, b"bytes");
    let (code, said) = ingest(&one_run);
    assert_eq!(code, 0, "{said}");
    assert_eq!(waiting(&one_run, "index"), ["a.warc.gz"]);

    // The new one first: it leaves the file to the old one.
    let new_first = root("");
    let path = harvest(&new_first, "a.warc.gz", b"bytes");
    told(&new_first, "old", &path, b"bytes");
    assert_eq!(ingest(&new_first).0, 0);
    assert_eq!(waiting(&new_first, "index"), [""; 0]);
    interrupted(&new_first, "old", &path, b"bytes");
    let (code, said) = ingest(&new_first);
    assert_eq!(code, 0, "{said}");
    assert_eq!(waiting(&new_first, "index"), ["a.warc.gz"]);
    let row = manifest(&new_first).file("a.warc.gz").unwrap().unwrap();
    assert_eq!(row.sha256, Some(digest(b"bytes")));

    // The old one first, and other bytes meanwhile: the name is free for them.
    let other_bytes = root("");
    let path = harvest(&other_bytes, "a.warc.gz", b"other bytes");
    told(&other_bytes, "old", &path, b"bytes");
    fs::rename(&path, other_bytes.path().join("away")).unwrap();
    interrupted(&other_bytes, "old", &path, b"bytes");
    assert_eq!(
        ingest(&other_bytes).0,
        65,
        "it vanished, and a person should know"
    );
    fs::rename(other_bytes.path().join("away"), &path).unwrap();
    let (_, said) = ingest(&other_bytes);
    assert_eq!(waiting(&other_bytes, "index"), ["a.warc.gz"], "{said}");
}

#[test]
fn a_name_is_free_when_its_file_and_the_one_left_to_it_have_gone() {
    let root = root("");
    let path = harvest(&root, "a.warc.gz", b"bytes");
    told(&root, "old", &path, b"bytes");
    // Left to the old parcel; then both are gone.
    assert_eq!(ingest(&root).0, 0);
    fs::remove_file(&path).unwrap();
    interrupted(&root, "old", &path, b"bytes");
    assert_eq!(ingest(&root).0, 65, "a person should know");
    fs::create_dir(root.path().join("harvested/again")).unwrap();
    harvest(&root, "again/a.warc.gz", b"bytes");
    let (_, said) = ingest(&root);
    assert_eq!(waiting(&root, "index"), ["a.warc.gz"], "{said}");
}

/// Runs the stage as somebody who may read only what the modes allow, which a superuser is not.
fn ingest_without_privilege(root: &Root) -> (i32, String) {
    let mut command = std::process::Command::new("setpriv");
    command.args(["--bounding-set", "-dac_override,-dac_read_search", INGEST]);
    if rustix::process::geteuid().is_root() {
        command.arg("--once").arg("--root").arg(root.path());
    } else {
        command = root.program(INGEST);
        command.arg("--once");
    }
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), said)
}

#[test]
fn a_file_that_may_not_be_read_waits_and_the_others_do_not() {
    use std::os::unix::fs::PermissionsExt;
    let root = root("retry = { first = \"10ms\", factor = 1.0, max = \"10ms\", limit = \"7d\" }\n");
    let closed = harvest(&root, "closed.warc.gz", b"bytes");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    for name in ["a.warc.gz", "z.warc.gz"] {
        harvest(&root, name, b"x");
    }
    let (code, said) = ingest_without_privilege(&root);
    assert_eq!(code, 75, "{said}");
    assert_eq!(waiting(&root, "index"), ["a.warc.gz", "z.warc.gz"]);
    assert!(said.contains("closed.warc.gz: Permission denied"), "{said}");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o644)).unwrap();
    until_so("it is taken in", || {
        ingest_without_privilege(&root);
        waiting(&root, "index").len() == 3
    });
}

#[test]
fn what_is_no_plain_file_or_breaks_a_line_is_held() {
    let root = root("");
    let harvested = root.path().join("harvested");
    fs::create_dir(harvested.join("directory.warc.gz")).unwrap();
    fs::write(harvested.join("directory.warc.gz/inside.warc.gz"), b"x").unwrap();
    let outside = tempfile::NamedTempFile::new().unwrap();
    std::os::unix::fs::symlink(outside.path(), harvested.join("link.warc.gz")).unwrap();
    harvest(&root, "new\nline\x1b[2J.warc.gz", b"x");
    let invalid = std::ffi::OsStr::from_bytes(b"\xff\xfe.warc.gz");
    fs::write(harvested.join(invalid), b"x").unwrap();
    harvest(&root, "good.warc.gz", b"x");
    let heritrix = "WEB-20260102030405123-00001-12~host.example~8443.warc.gz";
    harvest(&root, heritrix, b"x");
    let (code, said) = ingest(&root);
    assert_eq!(code, 65, "{said}");
    assert_eq!(waiting(&root, "index"), [heritrix, "good.warc.gz"]);
    let reasons = held(&root).join("\n");
    for words in [
        "directory.warc.gz: is a directory",
        "link.warc.gz: is a symbolic link",
        "new\\nline\\x1b[2J.warc.gz: its name",
        "\\xff\\xfe.warc.gz: its name is not UTF-8",
    ] {
        assert!(reasons.contains(words), "{words}: {reasons}");
    }
    assert_eq!(held(&root).len(), 4);
    assert!(!said.contains('\x1b'), "nothing raw on a terminal");
}

#[test]
fn directories_that_are_not_there_yet_ring_once_they_are() {
    let root = Root::new();
    let mounted = tempfile::tempdir().unwrap();
    let later = mounted.path().join("disk/harvested");
    // No scan comes in the time of this test: only the bell can tell.
    let table = format!(
        "[archive]\nharvested = [\"harvested\", {later:?}]\n[stage.ingest]\nscan = \"10m\"\n"
    );
    root.settings(&["ingest", "index"], &table);
    let mut program = root.start_ready(INGEST, "ingest", &[]);
    let own = root.path().join("harvested");
    until_so("its own directory", || own.is_dir());
    fs::write(own.join("own.warc.gz"), b"o").unwrap();
    until_so("the file in its own directory", || {
        waiting(&root, "index") == ["own.warc.gz"]
    });
    fs::create_dir_all(&later).unwrap();
    fs::write(later.join("mounted.warc.gz"), b"m").unwrap();
    until_so("the file in the other", || {
        waiting(&root, "index") == ["mounted.warc.gz", "own.warc.gz"]
    });
    // A link is whole and only made: it is taken once it is at rest.
    let linked = mounted.path().join("linked");
    fs::write(&linked, b"l").unwrap();
    fs::hard_link(&linked, later.join("linked.warc.gz")).unwrap();
    until_so("the linked file", || waiting(&root, "index").len() == 3);
    // Taken away and put there again.
    fs::remove_dir_all(mounted.path().join("disk")).unwrap();
    fs::create_dir_all(&later).unwrap();
    fs::write(later.join("again.warc.gz"), b"a").unwrap();
    until_so("the file that came after it", || {
        waiting(&root, "index").len() == 4
    });
    assert_eq!(program.stop(), 0, "{}", program.log());
}

#[test]
fn a_file_is_taken_when_it_is_closed_or_renamed() {
    // Long settle time: only the bell can tell that these are whole.
    let root = Root::new();
    root.settings(&["ingest", "index"], "[stage.ingest]\nsettle = \"1h\"\n");
    let harvested = root.path().join("harvested");
    fs::create_dir_all(&harvested).unwrap();
    let elsewhere = root.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let mut program = root.start_ready(INGEST, "ingest", &[]);
    fs::write(harvested.join("written.warc.gz"), b"w").unwrap();
    until_so("the written file", || {
        waiting(&root, "index") == ["written.warc.gz"]
    });
    fs::write(elsewhere.join("renamed"), b"r").unwrap();
    fs::rename(elsewhere.join("renamed"), harvested.join("renamed.warc.gz")).unwrap();
    until_so("the renamed file", || waiting(&root, "index").len() == 2);
    // One that is still being written is not taken.
    let mut open = fs::File::create(harvested.join("open.warc.gz")).unwrap();
    open.write_all(b"o").unwrap();
    fs::write(harvested.join("after.warc.gz"), b"a").unwrap();
    until_so("the file after it", || waiting(&root, "index").len() == 3);
    assert!(!waiting(&root, "index").contains(&"open.warc.gz".to_owned()));
    drop(open);
    until_so("the closed file", || waiting(&root, "index").len() == 4);
    // Nor is one whose name was made before its bytes.
    fs::write(harvested.join("touched.warc.gz"), b"").unwrap();
    fs::write(harvested.join("behind.warc.gz"), b"b").unwrap();
    until_so("the file behind it", || waiting(&root, "index").len() == 5);
    fs::write(harvested.join("touched.warc.gz"), b"t").unwrap();
    until_so("the filled file", || waiting(&root, "index").len() == 6);
    let row = manifest(&root).file("touched.warc.gz").unwrap().unwrap();
    assert_eq!(row.bytes, Some(1));
    assert_eq!(program.stop(), 0, "{}", program.log());
}

#[test]
fn a_file_that_came_before_is_taken_after_the_settle_time() {
    let root = root("");
    let path = root.path().join("harvested/new.warc.gz");
    fs::write(&path, b"new").unwrap();
    let future = SystemTime::now() + Duration::from_secs(7200);
    let ahead = root.path().join("harvested/ahead.warc.gz");
    fs::write(&ahead, b"ahead").unwrap();
    fs::File::open(&ahead)
        .unwrap()
        .set_modified(future)
        .unwrap();
    let (code, said) = ingest(&root);
    assert_eq!(code, 0, "{said}");
    assert_eq!(
        waiting(&root, "index"),
        ["ahead.warc.gz", "new.warc.gz"],
        "--once waits for them"
    );
}

#[test]
fn the_machine_with_the_fewest_waiting_gets_the_file() {
    let root = root("next = [\"index@alpha\", \"index@beta\"]");
    for number in 0..3 {
        root.put("index@alpha", &format!("busy-{number}"), b"x");
    }
    for number in 0..5 {
        harvest(&root, &format!("{number}.warc.gz"), b"x");
    }
    let (code, said) = ingest(&root);
    assert_eq!(code, 0, "{said}");
    assert_eq!(root.list("index@alpha", "ready").len(), 4);
    assert_eq!(root.list("index@beta", "ready").len(), 4);
    assert_eq!(root.list("index", "ready"), [""; 0]);
}

#[test]
fn a_machine_over_its_limit_gets_nothing_while_another_has_room() {
    let root = root("next = [\"index@alpha\", \"index@beta\"]\nhigh-mark = 2\nlow-mark = 1");
    for number in 0..5 {
        root.put("index@alpha", &format!("busy-{number}"), b"x");
    }
    harvest(&root, "a.warc.gz", b"x");
    let (code, said) = ingest(&root);
    assert_eq!(code, 0, "{said}");
    assert_eq!(root.list("index@alpha", "ready").len(), 5);
    assert_eq!(waiting(&root, "index@beta"), ["a.warc.gz"]);
}

#[test]
fn a_collection_has_an_index_of_its_own() {
    let root = root("collections = [{ name = \"elections\", harvests = \"9.*\" }]");
    let name = "12-91-20261116120000123-00007-h.warc.gz";
    harvest(&root, name, b"x");
    assert_eq!(ingest(&root).0, 0);
    let row = manifest(&root).file(name).unwrap().unwrap();
    assert_eq!(row.collection.as_deref(), Some("elections"));
}

#[test]
fn a_bad_pattern_touches_nothing() {
    let root = root("names = [\"(\"]");
    harvest(&root, "a.warc.gz", b"x");
    let (code, said) = ingest(&root);
    assert_eq!(code, 78, "{said}");
    assert!(said.contains("bad pattern"), "{said}");
    assert_eq!(root.list("ingest", "ready"), [""; 0]);
}

#[test]
fn killed_at_any_moment_nothing_is_lost_or_taken_twice() {
    let root = root("");
    for number in 0..40 {
        harvest(
            &root,
            &format!("{number:02}.warc.gz"),
            format!("bytes of {number}").as_bytes(),
        );
    }
    for round in 0..20 {
        let mut program = root.start(INGEST, &["--once"]);
        std::thread::sleep(Duration::from_millis(3 * round));
        program.signal(rustix::process::Signal::KILL);
        program.wait();
    }
    let (code, said) = ingest(&root);
    assert_eq!(code, 0, "{said}");
    let all: Vec<String> = (0..40)
        .map(|number| format!("{number:02}.warc.gz"))
        .collect();
    assert_eq!(waiting(&root, "index"), all);
    assert_eq!(
        manifest(&root).counts().unwrap(),
        [(FileState::Ingested, 40)]
    );
    assert_eq!(root.list("ingest", "claim"), [""; 0]);
}

#[test]
fn a_copy_sends_the_files_of_its_host_and_ingest_takes_them_in_once() {
    let root = root("");
    let names = [
        "7-1-20260101000000000-00001-beta.warc.gz",
        "7-1-metadata-1.warc",
    ];
    for name in names {
        harvest(&root, name, name.as_bytes());
    }
    let (code, said) = root.run(INGEST, &["--instance", "beta", "--once"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(waiting(&root, "ingest"), names);
    assert_eq!(waiting(&root, "index"), [""; 0], "that is ingest's to give");
    assert!(!root.path().join("manifest.sqlite").exists());
    // The other host has its own directory: there is nothing in it yet.
    let there = root.path().join("harvested");
    fs::rename(&there, root.path().join("beta")).unwrap();
    for _ in 0..2 {
        let (code, said) = ingest(&root);
        assert_eq!(code, 0, "{said}");
        assert_eq!(waiting(&root, "index"), names);
        for name in names {
            assert_eq!(fs::read(there.join(name)).unwrap(), name.as_bytes());
        }
    }
    // Sent once more after all of that, and after it was cleaned.
    fs::remove_file(there.join(names[0])).unwrap();
    root.put_files("ingest", "late", &[(names[0], names[0].as_bytes())]);
    let (code, said) = ingest(&root);
    assert_eq!(code, 0, "{said}");
    assert!(
        !there.join(names[0]).exists(),
        "it need not be cleaned again"
    );
    assert_eq!(waiting(&root, "index"), names);
}

#[test]
fn what_was_sent_and_cannot_be_kept_is_held() {
    let root = root("");
    harvest(&root, "7-1-metadata-1.warc", b"one");
    root.put_files(
        "ingest",
        "other",
        &[("7-1-metadata-1.warc", b"two".as_slice())],
    );
    root.put_files("ingest", "odd", &[("notes.txt", b"no archive".as_slice())]);
    let (code, said) = ingest(&root);
    assert_eq!(code, 65, "{said}");
    let held = held(&root);
    assert_eq!(held.len(), 2, "{held:?}");
    assert!(
        held.iter()
            .any(|why| why.contains("notes.txt is no (W)ARC file")),
        "{held:?}"
    );
    assert!(
        held.iter()
            .any(|why| why.contains("7-1-metadata-1.warc is taken by another file")),
        "{held:?}"
    );
    let kept = root.path().join("harvested/7-1-metadata-1.warc");
    assert_eq!(fs::read(kept).unwrap(), b"one");
}
