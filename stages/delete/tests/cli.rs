//! The program as an operator runs it.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::fs;
use std::path::{Path, PathBuf};

use ecluse_manifest::{CheckOutcome, Copy, FileState, Manifest};
use ecluse_spool::digest;
use ecluse_testkit::contract::Contract;
use ecluse_testkit::root::{Root, until_so};
use tempfile::TempDir;

const DELETE: &str = env!("CARGO_BIN_EXE_ecluse-delete");
const NAME: &str = "a.warc.gz";
const SOON: &str = r#"retry = { first = "50ms", factor = 1.0, max = "50ms", limit = "7d" }"#;

/// A stored copy somewhere, and the parcel that speaks of it.
struct Case {
    root: Root,
    dir: TempDir,
    path: String,
    proofs: String,
}

fn proof(target: &str, bytes: &[u8]) -> String {
    format!(
        r#"{{"target":"{target}","kind":"directory","place":"/vault/{NAME}","bytes":{},"sha256":"{}","how":"read back"}}"#,
        bytes.len(),
        digest(bytes)
    )
}

/// Tells a manifest of the stored copy, as the stages before do.
fn tell(manifest: &Path, place: &Path, bytes: &[u8]) {
    let copy = Copy {
        target: "node",
        place: place.to_str().unwrap(),
        bytes: bytes.len() as u64,
        sha256: &digest(bytes),
    };
    let mut manifest = Manifest::open(manifest, manifest.parent().unwrap()).unwrap();
    manifest.stored(NAME, &copy).unwrap();
}

impl Case {
    fn new(more: &str) -> Self {
        let root = Root::new();
        root.settings(
            &["delete", "sink"],
            &format!("[stage.delete]\n{SOON}\n{more}\n"),
        );
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(NAME), b"bytes").unwrap();
        let place = dir.path().join(NAME);
        if !more.contains("manifest") {
            tell(&root.path().join("manifest.sqlite"), &place, b"bytes");
        }
        Self {
            root,
            path: format!("{NAME}\t{}\n", place.display()),
            proofs: format!("[{}]\n", proof("vault", b"bytes")),
            dir,
        }
    }

    fn stored(&self) -> PathBuf {
        self.dir.path().join(NAME)
    }

    /// What only a broken disk or a person does.
    #[expect(clippy::disallowed_methods, reason = "the test is the broken disk")]
    fn lose(&self) {
        fs::remove_file(self.stored()).unwrap();
    }

    fn put(&self) {
        let files = [
            (NAME, &b"bytes"[..]),
            ("a.warc.gz.cdxj", b"lines"),
            ("a.warc.gz.path", self.path.as_bytes()),
            ("a.warc.gz.backup.json", self.proofs.as_bytes()),
        ];
        self.root.put_files("delete", "p", &files);
    }

    /// Runs it; the parcel must be held with its working copy.
    fn must_hold(&self, said: &[&str]) {
        let (code, log) = self.root.run(DELETE, &["--once"]);
        assert_eq!(code, 65, "{log}");
        let why = self.root.why("delete", "p");
        for word in said {
            assert!(why.contains(word), "{word}: {why}");
        }
        let working = self.root.part("delete", &format!("held/p~1/{NAME}"));
        assert_eq!(fs::read(working).unwrap(), b"bytes");
    }
}

#[test]
fn delete_keeps_the_contract() {
    let case = Case::new("");
    let manifest = case.root.path().join("manifest.sqlite");
    Contract {
        stage: "delete",
        binary: Path::new(DELETE),
        settings: &format!("[archive]\nmanifest = {manifest:?}"),
        good: &[
            (NAME, b"bytes"),
            ("a.warc.gz.path", case.path.as_bytes()),
            ("a.warc.gz.backup.json", case.proofs.as_bytes()),
        ],
        bad: &[(NAME, b"bytes"), ("a.warc.gz.path", case.path.as_bytes())],
    }
    .keep();
}

#[test]
fn the_manifest_is_the_archives() {
    let case = Case::new("[archive]\nmanifest = \"elsewhere.sqlite\"");
    let mut manifest =
        Manifest::open(&case.root.path().join("elsewhere.sqlite"), case.root.path()).unwrap();
    let copy = Copy {
        target: "t",
        place: "/x",
        bytes: 5,
        sha256: &digest(b"bytes"),
    };
    manifest.stored("other.warc.gz", &copy).unwrap();
    let due = manifest.due(0).unwrap();
    let bad = CheckOutcome::Bad("sha256 is 00".into());
    manifest.checked(&due[0], &bad).unwrap();
    case.put();
    let (code, said) = case.root.run(DELETE, &["--once"]);
    assert_eq!(code, 75, "{said}");
    assert!(!case.root.path().join("manifest.sqlite").exists());
}

#[test]
fn two_proofs_that_agree_take_the_working_copy_out() {
    let case = Case::new("");
    case.put();
    let (code, said) = case.root.run(DELETE, &["--once"]);
    assert_eq!(code, 0, "{said}");
    let parcel = case.root.part("sink", "ready/p~0");
    assert!(!parcel.join(NAME).exists());
    assert!(parcel.join("a.warc.gz.cdxj").exists());
    assert!(
        !fs::read_to_string(parcel.join("parcel.json"))
            .unwrap()
            .contains("\"a.warc.gz\"")
    );
    assert_eq!(fs::read(case.stored()).unwrap(), b"bytes");
    let manifest =
        Manifest::open(&case.root.path().join("manifest.sqlite"), case.root.path()).unwrap();
    assert_eq!(
        manifest.file(NAME).unwrap().unwrap().state,
        FileState::Deleted
    );
}

#[test]
fn where_it_is_not_wanted_the_working_copy_passes_on() {
    let case = Case::new("working-copy = false");
    case.put();
    let (code, said) = case.root.run(DELETE, &["--once"]);
    assert_eq!(code, 0, "{said}");
    assert!(
        case.root
            .part("sink", &format!("ready/p~0/{NAME}"))
            .exists()
    );
}

#[test]
fn a_stored_copy_that_differs_or_is_missing_is_held() {
    let case = Case::new("");
    fs::write(case.stored(), b"BYTES").unwrap();
    case.put();
    case.must_hold(&["stored copy", &digest(b"BYTES"), &digest(b"bytes")]);

    let case = Case::new("");
    case.lose();
    case.put();
    case.must_hold(&["stored copy", "No such file"]);

    let case = Case::new("");
    case.lose();
    std::os::unix::fs::symlink("/etc/hostname", case.stored()).unwrap();
    case.put();
    case.must_hold(&["stored copy", "symbolic link"]);

    let mut case = Case::new("");
    case.path.clear();
    case.put();
    case.must_hold(&["not stored"]);

    let mut case = Case::new("");
    case.path = format!("{NAME}\t../../etc/hostname\n");
    case.put();
    case.must_hold(&["is no path of"]);

    // One good copy does not make up for a bad one.
    let mut case = Case::new("");
    let second = case.dir.path().join("second");
    fs::write(&second, b"other").unwrap();
    case.path
        .push_str(&format!("{NAME}\t{}\n", second.display()));
    case.put();
    case.must_hold(&["second"]);
}

#[test]
fn a_proof_that_differs_or_is_missing_is_held() {
    for (proofs, said) in [
        ("[]\n".to_owned(), "0 proofs"),
        ("{\n".to_owned(), "cannot read"),
        (format!("[{}]", proof("vault", b"other")), "vault"),
        (
            format!(
                "[{},{}]",
                proof("vault", b"bytes"),
                proof("tape", b"bytes\n")
            ),
            "tape",
        ),
    ] {
        let mut case = Case::new("");
        case.proofs = proofs;
        case.put();
        case.must_hold(&[said]);
    }
    // The same target twice is one backup.
    let mut case = Case::new("backups = 2");
    let one = proof("vault", b"bytes");
    case.proofs = format!("[{one},{one}]");
    case.put();
    case.must_hold(&["1 proofs", "2 are asked for"]);
}

#[test]
fn a_parcel_that_speaks_of_other_bytes_than_the_manifest_is_held() {
    let case = Case::new("[archive]\nmanifest = \"other.sqlite\"");
    tell(
        &case.root.path().join("other.sqlite"),
        Path::new("/x"),
        b"others",
    );
    case.put();
    case.must_hold(&["manifest", &digest(b"others")]);
}

#[test]
fn a_file_that_the_manifest_does_not_know_is_held() {
    // Another archive's manifest, or a new and empty one.
    let case = Case::new("[archive]\nmanifest = \"other.sqlite\"");
    case.put();
    case.must_hold(&["the manifest does not know a.warc.gz"]);
}

#[test]
fn a_frozen_archive_loses_nothing_until_a_person_says_so() {
    let case = Case::new("");
    let path = case.root.path().join("manifest.sqlite");
    let mut manifest = Manifest::open(&path, case.root.path()).unwrap();
    let copy = Copy {
        target: "node",
        place: "/x",
        bytes: 5,
        sha256: &digest(b"bytes"),
    };
    manifest.stored(NAME, &copy).unwrap();
    let due = manifest.due(u64::MAX).unwrap();
    manifest
        .checked(&due[0], &CheckOutcome::Bad("it rots".to_owned()))
        .unwrap();
    case.put();
    let mut program = case.root.start(DELETE, &[]);
    program.await_log("nothing is removed since");
    assert!(program.log().contains("it rots"), "{}", program.log());
    assert_eq!(case.root.list("sink", "ready"), [""; 0]);
    manifest.thaw().unwrap();
    until_so("it to go on", || case.root.list("sink", "ready") == ["p~0"]);
    assert_eq!(program.stop(), 0);
}

#[test]
fn a_place_that_is_not_mounted_is_waited_for() {
    let mut case = Case::new("");
    let mounted = case.dir.path().join("node");
    case.path = format!("{NAME}\t{}\n", mounted.join(NAME).display());
    case.put();
    let (code, said) = case.root.run(DELETE, &["--once"]);
    assert_eq!(code, 75, "{said}");
    fs::create_dir(&mounted).unwrap();
    fs::write(mounted.join(NAME), b"bytes").unwrap();
    let mut program = case.root.start(DELETE, &[]);
    case.root.await_count("sink", "ready", 1);
    assert_eq!(program.stop(), 0);
}
