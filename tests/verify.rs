//! `ecluse verify`: fixity, oldest check first, and the freeze.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

use std::fs;
use std::path::Path;
use std::process::Command;

use ecluse_manifest::{Copy, Manifest};

fn ecluse(root: &Path, arguments: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ecluse"))
        .arg("--root")
        .arg(root)
        .args(arguments)
        .env_remove("ECLUSE_CONFIG")
        .output()
        .unwrap();
    let mut said = String::from_utf8(output.stdout).unwrap();
    said.push_str(&String::from_utf8(output.stderr).unwrap());
    (output.status.code().unwrap(), said)
}

fn store(root: &Path, name: &str, bytes: &[u8]) {
    let place = root.join("repository").join(name);
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::write(&place, bytes).unwrap();
    let mut file = fs::File::open(&place).unwrap();
    let fixity = ecluse_holding::read_afresh(&mut file, &|| true).unwrap();
    let mut manifest = Manifest::open(&root.join("manifest.sqlite")).unwrap();
    let copy = Copy {
        target: "repository",
        place: place.to_str().unwrap(),
        bytes: fixity.bytes,
        sha256: &fixity.sha256,
    };
    manifest.stored(name, &copy).unwrap();
}

#[test]
fn a_mismatch_freezes_until_a_person_lifts_it() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let (code, said) = ecluse(root, &["verify"]);
    assert_eq!(code, 64, "{said}");
    assert!(said.contains("nothing was taken in"), "{said}");
    store(root, "a.warc.gz", b"aaaa");
    store(root, "b.warc.gz", b"bbbb");
    store(root, "c.warc.gz", b"cccc");
    let (code, said) = ecluse(root, &["verify", "--budget", "8 B"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("2 copies read again: 2 good"), "{said}");
    // The one that was left out comes first.
    let (_, said) = ecluse(root, &["verify", "--budget", "1 B", "--dry-run"]);
    assert!(said.contains("c.warc.gz (last: never)"), "{said}");
    fs::write(root.join("repository/b.warc.gz"), b"bbbx").unwrap();
    fs::remove_file(root.join("repository/c.warc.gz")).unwrap();
    let (code, said) = ecluse(root, &["verify"]);
    assert_eq!(code, 65, "{said}");
    assert!(said.contains("1 good, 2 bad"), "{said}");
    assert!(said.contains("it is not there any more"), "{said}");
    let (_, status) = ecluse(root, &["status"]);
    assert!(status.contains("nothing is removed since"), "{status}");
    assert!(status.contains("verify --release"), "{status}");
    let (code, said) = ecluse(root, &["verify", "--release"]);
    assert_eq!(code, 64, "{said}");
    let (code, said) = ecluse(root, &["verify", "--release", "--why", "disk replaced"]);
    assert_eq!(code, 0, "{said}");
    let (_, status) = ecluse(root, &["status"]);
    assert!(!status.contains("nothing is removed"), "{status}");
    let audit = fs::read_to_string(root.join("audit.jsonl")).unwrap();
    assert!(audit.contains("disk replaced"), "{audit}");
}

#[test]
fn a_disk_that_is_not_mounted_is_no_mismatch() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    store(root, "a.warc.gz", b"aaaa");
    fs::rename(root.join("repository"), root.join("elsewhere")).unwrap();
    fs::create_dir(root.join("repository")).unwrap();
    let (code, said) = ecluse(root, &["verify"]);
    assert_eq!(code, 75, "{said}");
    assert!(said.contains("1 could not be read"), "{said}");
    let (_, status) = ecluse(root, &["status"]);
    assert!(!status.contains("nothing is removed"), "{status}");
}
