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
    let mut manifest = Manifest::open(&root.join("manifest.sqlite"), root).unwrap();
    let copy = Copy {
        target: "repository",
        place: place.to_str().unwrap(),
        bytes: fixity.bytes,
        sha256: &fixity.sha256,
    };
    manifest.stored(name, &copy).unwrap();
    // Otherwise somebody would have to give it again. In the index of a collection: the big one would be missed.
    let names = [name.to_owned()];
    manifest.published(Some("presse"), 1, &names).unwrap();
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
    assert!(status.contains("2 copies are bad"), "{status}");
    assert!(status.contains("repair --all"), "{status}");
    let (code, said) = ecluse(root, &["check"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("critical: nothing is removed"), "{said}");
    assert!(said.contains("critical: 2 copies"), "{said}");
    // Who wants to hear nothing hears what is wrong.
    let (code, said) = ecluse(root, &["-q", "verify"]);
    assert_eq!(code, 65, "{said}");
    assert!(said.contains("b.warc.gz: BAD: sha256 is"), "{said}");
    assert!(said.contains("are frozen since"), "{said}");
    assert!(!said.contains("read again"), "{said}");
    let (code, said) = ecluse(root, &["-q", "repair", "--all"]);
    assert_eq!(code, 65, "{said}");
    assert!(said.contains("no good copy can be read"), "{said}");
    // No other copy is known of them.
    let (code, said) = ecluse(root, &["repair", "--all"]);
    assert_eq!(code, 65, "{said}");
    assert!(
        said.contains("b.warc.gz: no good copy can be read"),
        "{said}"
    );
    let (code, said) = ecluse(root, &["verify", "--release"]);
    assert_eq!(code, 64, "{said}");
    let (code, said) = ecluse(root, &["verify", "--release", "--why", "disk replaced"]);
    assert_eq!(code, 0, "{said}");
    let (_, status) = ecluse(root, &["status"]);
    assert!(!status.contains("nothing is removed"), "{status}");
    let (code, said) = ecluse(root, &["check"]);
    assert_eq!(code, 2, "a bad copy is critical: {said}");
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
    assert!(
        status.contains("a copy is missing or unreadable"),
        "{status}"
    );
    let (code, said) = ecluse(root, &["check"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("a copy is missing"), "{said}");
}

/// Makes a backup of a stored file, as the stage tells the manifest.
fn back_up(root: &Path, name: &str) {
    let place = root.join("backup").join(name);
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::copy(root.join("repository").join(name), &place).unwrap();
    let mut file = fs::File::open(&place).unwrap();
    let fixity = ecluse_holding::read_afresh(&mut file, &|| true).unwrap();
    let mut manifest = Manifest::open(&root.join("manifest.sqlite"), root).unwrap();
    let copy = Copy {
        target: "backup",
        place: place.to_str().unwrap(),
        bytes: fixity.bytes,
        sha256: &fixity.sha256,
    };
    let proof = serde_json::json!({
        "target": "backup", "kind": "directory", "place": place, "bytes": fixity.bytes,
        "sha256": fixity.sha256, "how": "read back",
    });
    manifest.backed_up(name, &copy, &proof).unwrap();
}

#[test]
fn a_bad_or_missing_copy_is_put_back_from_a_good_one() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let settings = "[stage.transfer]\nleave-free = \"0 B\"\n\
         [[stage.backup.targets]]\nname = \"backup\"\nkind = \"directory\"\npath = \"backup\"\n\
         leave-free = \"0 B\"\n";
    fs::write(root.join("pipeline.toml"), settings).unwrap();
    for (name, bytes) in [("a.warc.gz", b"aaaa"), ("b.warc.gz", b"bbbb")] {
        store(root, name, bytes);
        back_up(root, name);
    }
    let (code, said) = ecluse(root, &["verify"]);
    assert_eq!(code, 0, "{said}");
    // The stored copy of one, the backup of the other.
    fs::write(root.join("repository/a.warc.gz"), b"aaax").unwrap();
    fs::remove_file(root.join("backup/b.warc.gz")).unwrap();
    let (code, said) = ecluse(root, &["verify"]);
    assert_eq!(code, 65, "{said}");
    assert!(said.contains("repair --all"), "{said}");
    let (code, said) = ecluse(root, &["repair", "--all", "--dry-run"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("would put back"), "{said}");
    assert_eq!(
        fs::read(root.join("repository/a.warc.gz")).unwrap(),
        b"aaax"
    );
    let (code, said) = ecluse(root, &["repair", "a.warc.gz", "--why", "bit rot"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("stay frozen: 1 bad"), "{said}");
    assert_eq!(
        fs::read(root.join("repository/a.warc.gz")).unwrap(),
        b"aaaa"
    );
    let aside = root.join("repository/.ecluse-bad-1-a.warc.gz");
    assert_eq!(fs::read(aside).unwrap(), b"aaax");
    let (code, said) = ecluse(root, &["repair", "--all"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("delete and clean go on"), "{said}");
    assert_eq!(fs::read(root.join("backup/b.warc.gz")).unwrap(), b"bbbb");
    let (code, said) = ecluse(root, &["verify"]);
    assert_eq!(code, 0, "{said}");
    let (_, status) = ecluse(root, &["status"]);
    assert!(status.contains("Nothing needs you"), "{status}");
    let audit = fs::read_to_string(root.join("audit.jsonl")).unwrap();
    assert!(
        audit.contains("bit rot") && audit.contains("put back"),
        "{audit}"
    );
}

#[test]
fn a_new_disk_needs_no_directory_of_before() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let settings = "[stage.transfer]\nleave-free = \"0 B\"\n\
         [[stage.backup.targets]]\nname = \"backup\"\nkind = \"directory\"\npath = \"backup\"\n\
         leave-free = \"0 B\"\n";
    fs::write(root.join("pipeline.toml"), settings).unwrap();
    store(root, "a.warc.gz", b"aaaa");
    back_up(root, "a.warc.gz");
    fs::remove_dir_all(root.join("backup")).unwrap();
    let (code, said) = ecluse(root, &["repair", "a.warc.gz"]);
    assert_eq!(code, 75, "{said}");
    let (code, said) = ecluse(root, &["repair", "a.warc.gz", "--new-disk"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(fs::read(root.join("backup/a.warc.gz")).unwrap(), b"aaaa");
}

#[test]
fn nothing_is_put_back_below_the_place_of_a_disk_that_is_not_mounted() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    fs::write(
        root.join("pipeline.toml"),
        "[stage.transfer]\nleave-free = \"0 B\"\n",
    )
    .unwrap();
    for (name, bytes) in [("a.warc.gz", b"aaaa"), ("b.warc.gz", b"bbbb")] {
        store(root, name, bytes);
        back_up(root, name);
    }
    fs::rename(root.join("repository"), root.join("elsewhere")).unwrap();
    fs::create_dir(root.join("repository")).unwrap();
    let (code, said) = ecluse(root, &["repair", "a.warc.gz"]);
    assert_eq!(code, 75, "{said}");
    assert!(said.contains("mount it"), "{said}");
    assert!(!root.join("repository/a.warc.gz").exists());
    let (code, said) = ecluse(root, &["repair", "a.warc.gz", "--new-disk"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(
        fs::read(root.join("repository/a.warc.gz")).unwrap(),
        b"aaaa"
    );
    // The disk comes back: it was never bad.
    fs::remove_dir_all(root.join("repository")).unwrap();
    let (code, said) = ecluse(root, &["verify"]);
    assert_eq!(code, 75, "{said}");
    fs::rename(root.join("elsewhere"), root.join("repository")).unwrap();
    let (code, said) = ecluse(root, &["repair", "--all"]);
    assert_eq!(code, 0, "{said}");
    let (_, status) = ecluse(root, &["status"]);
    assert!(status.contains("Nothing needs you"), "{status}");
}
