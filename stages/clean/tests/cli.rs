//! What is removed, and above all what is not.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

use std::fs;
use std::path::{Path, PathBuf};

use ecluse_manifest::{CheckOutcome, Copy, FileState, Finding, Manifest, NewFile};
use ecluse_testkit::contract::Contract;
use ecluse_testkit::root::Root;
use serde_json::json;

const CLEAN: &str = env!("CARGO_BIN_EXE_ecluse-clean");
const NAME: &str = "12-3-20261116120000123-00007-h.warc.gz";

#[test]
fn clean_keeps_the_contract() {
    Contract {
        stage: "clean",
        binary: Path::new(CLEAN),
        settings: "every = \"0s\"\nnext = [\"sink\"]",
        good: &[("generation.files", b"")],
        bad: &[],
    }
    .keep();
}

/// A root in which one file has passed the whole chain.
struct Archive {
    root: Root,
    harvested: PathBuf,
    stored: PathBuf,
}

impl Archive {
    fn new(settings: &str) -> Self {
        let root = Root::new();
        root.settings(&["clean"], &format!("[stage.clean]\n{settings}\n"));
        let at = |path: &str| root.path().join(path);
        for directory in ["harvested", "repository", "backup", "index/generations/1"] {
            fs::create_dir_all(at(directory)).unwrap();
        }
        let harvested = at("harvested").join(NAME);
        let stored = at("repository").join(NAME);
        let backup = at("backup").join(NAME);
        for copy in [&harvested, &stored, &backup] {
            fs::write(copy, b"the bytes").unwrap();
        }
        fs::write(at("index/generations/1/by-hand"), "").unwrap();
        std::os::unix::fs::symlink("generations/1", at("index/current")).unwrap();
        let archive = Self {
            root,
            harvested,
            stored,
        };
        archive.publish(&[(NAME, 2)]);
        let mut file = fs::File::open(&archive.harvested).unwrap();
        let fixity = ecluse_holding::read_afresh(&mut file, &|| true).unwrap();
        let mut manifest = archive.manifest();
        manifest
            .ingest(&NewFile {
                name: NAME,
                bytes: fixity.bytes,
                sha256: &fixity.sha256,
                kind: "warc",
                job: None,
                harvest: None,
                collection: None,
                source: archive.harvested.to_str().unwrap(),
                parcel: "t",
            })
            .unwrap();
        manifest.indexed(NAME, 2, 0, &[]).unwrap();
        let copy = |place| Copy {
            target: "x",
            place,
            bytes: fixity.bytes,
            sha256: &fixity.sha256,
        };
        manifest
            .stored(NAME, &copy(archive.stored.to_str().unwrap()))
            .unwrap();
        let proof = json!({"kind": "directory"});
        manifest
            .backed_up(NAME, &copy(backup.to_str().unwrap()), &proof)
            .unwrap();
        manifest.deleted(NAME).unwrap();
        manifest.published(None, 1, &[NAME.to_owned()]).unwrap();
        archive
    }

    /// Writes an index in which each file has so many lines.
    fn publish(&self, files: &[(&str, u32)]) {
        let (mut paths, mut lines) = (String::new(), String::new());
        for (name, captures) in files {
            paths.push_str(&format!("{name}\t/repository/{name}\n"));
            for offset in 0..*captures {
                lines.push_str(&format!(
                    "org,example)/ 20260101000000 {{\"offset\": \"{offset}\", \"filename\": \"{name}\"}}\n"
                ));
            }
        }
        let current = self.root.path().join("index/current");
        fs::write(current.join("path-index.txt"), paths).unwrap();
        fs::write(current.join("index.cdxj"), lines).unwrap();
    }

    fn manifest(&self) -> Manifest {
        Manifest::open(&self.root.path().join("manifest.sqlite"), self.root.path()).unwrap()
    }

    fn sql(&self, sql: &str) {
        let path = self.root.path().join("manifest.sqlite");
        rusqlite::Connection::open(path)
            .unwrap()
            .execute_batch(sql)
            .unwrap();
    }

    fn clean(&self) -> (i32, String, String) {
        let output = self.root.program(CLEAN).arg("--once").output().unwrap();
        (
            output.status.code().unwrap(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    }

    /// Runs a sweep that must keep the file, for this reason.
    fn must_keep(&self, reason: &str) {
        let (_, out, log) = self.clean();
        assert!(
            self.harvested.exists() || reason.contains("harvested"),
            "{log}"
        );
        assert_eq!(out, "", "{reason}");
        assert!(log.contains(reason), "{reason}: {log}");
        assert_eq!(
            self.manifest().counts().unwrap(),
            [(FileState::Published, 1)]
        );
    }
}

#[test]
fn as_shipped_it_only_says_what_it_would_remove() {
    let archive = Archive::new("");
    let (code, out, log) = archive.clean();
    assert_eq!(code, 0, "{log}");
    assert!(out.starts_with("would remove 1 file of 9 B from "), "{out}");
    assert!(out.contains("stage.clean.remove = true"), "{out}");
    assert_eq!(out.lines().count(), 1, "one line, however many files");
    // The list that it names is there.
    let removable = archive.manifest().harvested_after("", 10).unwrap();
    let paths: Vec<_> = removable.iter().map(|file| Path::new(&file.path)).collect();
    assert_eq!(paths, [archive.harvested.as_path()]);
    assert!(archive.harvested.exists());
    // Asked to remove, it sweeps anew and does.
    archive
        .root
        .settings(&["clean"], "[stage.clean]\nremove = true\n");
    let (code, out, log) = archive.clean();
    assert_eq!(code, 0, "{log}");
    assert_eq!(out, format!("removed {}\n", archive.harvested.display()));
    assert!(!archive.harvested.exists());
    assert!(archive.stored.exists());
    assert_eq!(
        archive.manifest().counts().unwrap(),
        [(FileState::Cleaned, 1)]
    );
    assert!(
        archive
            .manifest()
            .harvested_after("", 10)
            .unwrap()
            .is_empty()
    );
}

#[test]
fn what_it_would_remove_is_read_once_whoever_starts_it() {
    let archive = Archive::new("every = \"0s\"");
    let sweep = |name| {
        archive
            .root
            .put_files("clean", name, &[("generation.files", b"")]);
        archive.clean()
    };
    assert!(sweep("g1").1.starts_with("would remove 1 file"));
    // Were it read again, it would be found to differ: the proof of the first time is remembered.
    fs::write(&archive.stored, b"the bytez").unwrap();
    let (_, out, log) = sweep("g2");
    assert!(out.starts_with("would remove 1 file"), "{log}");
    // A file that was touched is another one.
    fs::write(&archive.harvested, b"the bytes").unwrap();
    let (_, out, log) = sweep("g3");
    assert_eq!(out, "", "{log}");
    assert!(log.contains("sha256 is"), "{log}");
    assert!(
        archive
            .manifest()
            .harvested_after("", 10)
            .unwrap()
            .is_empty()
    );
    // Nobody lets it remove on the strength of an old proof.
    let archive = Archive::new("every = \"0s\"");
    archive
        .root
        .put_files("clean", "g1", &[("generation.files", b"")]);
    assert!(archive.clean().1.starts_with("would remove 1 file"));
    fs::write(&archive.stored, b"the bytez").unwrap();
    archive
        .root
        .settings(&["clean"], "[stage.clean]\nremove = true\n");
    archive.must_keep("sha256 is");
}

#[test]
fn a_file_that_comes_after_its_row_is_cleaned_goes_by_the_same_proofs() {
    let archive = Archive::new("remove = true");
    assert_eq!(archive.clean().0, 0);
    let elsewhere = archive.root.path().join("harvested/again").join(NAME);
    fs::create_dir(elsewhere.parent().unwrap()).unwrap();
    for late in [&archive.harvested, &elsewhere] {
        fs::write(late, b"the bytes").unwrap();
        archive.root.put(
            "clean",
            &format!("after-{}", late.to_str().unwrap().len()),
            b"",
        );
        let (code, out, log) = archive.clean();
        assert_eq!(
            (code, out),
            (0, format!("removed {}\n", late.display())),
            "{log}"
        );
        assert!(!late.exists());
    }
    // Other bytes of the same name are nobody's: they stay, and are counted.
    fs::write(&archive.harvested, b"new bytes").unwrap();
    archive.root.put("clean", "other-bytes", b"");
    let (code, out, log) = archive.clean();
    assert_eq!((code, out.as_str()), (0, ""), "{log}");
    assert!(archive.harvested.exists());
    let count = archive
        .manifest()
        .harvested_count(Finding::Unaccounted)
        .unwrap();
    assert_eq!((count.files, count.bytes), (1, 9));
    // What a person takes away is no longer counted.
    fs::remove_file(&archive.harvested).unwrap();
    archive.root.put("clean", "taken-away", b"");
    archive.clean();
    let count = archive
        .manifest()
        .harvested_count(Finding::Unaccounted)
        .unwrap();
    assert_eq!(count.files, 0);
}

#[test]
fn a_file_that_was_moved_inside_the_harvested_directory_goes_too() {
    for settings in ["remove = true", "remove = false"] {
        let archive = Archive::new(settings);
        let moved = archive.root.path().join("harvested/moved").join(NAME);
        fs::create_dir(moved.parent().unwrap()).unwrap();
        fs::rename(&archive.harvested, &moved).unwrap();
        let (code, out, log) = archive.clean();
        assert_eq!((code, out.lines().count()), (0, 1), "{log}");
        assert_eq!(moved.exists(), settings == "remove = false", "{log}");
    }
}

#[test]
fn a_file_that_no_row_accounts_for_is_counted_at_the_second_sight() {
    let archive = Archive::new("remove = true");
    let stranger = archive.root.path().join("harvested/stranger.warc.gz");
    fs::write(&stranger, b"the bytes").unwrap();
    fs::write(archive.root.path().join("harvested/README"), b"").unwrap();
    fs::write(archive.root.path().join("harvested/new.warc.gz.open"), b"").unwrap();
    for (sweep, expected) in [("s1", 0), ("s2", 1), ("s3", 1)] {
        archive.root.put("clean", sweep, b"");
        assert_eq!(archive.clean().0, 0);
        let count = archive.manifest().harvested_count(Finding::Unaccounted);
        assert_eq!(count.unwrap().files, expected, "{sweep}");
    }
    assert!(stranger.exists());
}

#[test]
fn every_line_of_a_file_is_looked_for_in_the_current_index() {
    let fewer = Archive::new("remove = true");
    fewer.publish(&[(NAME, 1)]);
    fewer.must_keep("1 of its 2 lines are in the current index");

    let none = Archive::new("remove = true");
    none.publish(&[(NAME, 0), ("other.warc.gz", 5)]);
    none.must_keep("0 of its 2 lines are in the current index");

    let unknown = Archive::new("remove = true");
    unknown.sql("UPDATE file SET captures = NULL");
    unknown.must_keep("it is not known how many index lines it has");

    // One that bigmerge wrote and somebody cut short is not looked into at all.
    let lost = Archive::new("remove = true");
    let generation = lost.root.path().join("index/current/generation.json");
    let described = r#"{"schema": 2, "number": 1, "lines": 2, "duplicates": 0, "members": [],
        "files": [{"name": "index.cdxj", "bytes": 1000, "lines": 2, "xxh128": ""}]}"#;
    fs::write(generation, described).unwrap();
    let (code, _, log) = lost.clean();
    assert_eq!(code, 74, "{log}");
    assert!(log.contains("index.cdxj has "), "{log}");
    assert!(lost.harvested.exists());
}

#[test]
fn nothing_goes_without_every_proof() {
    let not_deleted = Archive::new("remove = true");
    not_deleted.sql("UPDATE file SET deleted = NULL");
    not_deleted.must_keep("its working copy was not deleted");

    let no_backup = Archive::new("remove = true");
    no_backup.sql("DELETE FROM copy WHERE kind = 'backup'");
    no_backup.must_keep("proved backups: 0 of 1 needed");

    let other_backup = Archive::new("remove = true");
    other_backup.sql("UPDATE copy SET sha256 = 'ff' WHERE kind = 'backup'");
    other_backup.must_keep("proved backups: 0 of");

    let two_backups = Archive::new("remove = true\nbackups = 2");
    two_backups.must_keep("proved backups: 1 of 2 needed");

    let not_stored = Archive::new("remove = true");
    not_stored.sql("DELETE FROM copy WHERE kind = 'stored'");
    not_stored.must_keep("no stored copy has the digest");

    let rotten = Archive::new("remove = true");
    fs::write(&rotten.stored, b"the bytez").unwrap();
    rotten.must_keep("sha256 is");

    let gone = Archive::new("remove = true");
    fs::remove_file(&gone.stored).unwrap();
    gone.must_keep("No such file");

    let changed = Archive::new("remove = true");
    fs::write(&changed.harvested, b"other bytes").unwrap();
    changed.must_keep("sha256 is");

    let not_indexed = Archive::new("remove = true");
    not_indexed.publish(&[("another.warc.gz", 2)]);
    not_indexed.must_keep("it is not in the current index");

    let no_index = Archive::new("remove = true");
    fs::remove_file(no_index.root.path().join("index/current")).unwrap();
    no_index.must_keep("it is not in the current index");

    let outside = Archive::new("remove = true");
    let other = outside.root.path().join("other.warc.gz");
    fs::rename(&outside.harvested, &other).unwrap();
    outside.sql(&format!("UPDATE file SET source = '{}'", other.display()));
    outside.must_keep("outside the harvested directories");
    assert!(other.exists());

    let in_place = Archive::new("remove = true");
    let place = in_place.harvested.display();
    in_place.sql(&format!(
        "UPDATE copy SET place = '{place}' WHERE kind = 'stored'"
    ));
    in_place.must_keep("is the copy in x itself");

    let backed_up_in_place = Archive::new("remove = true");
    let place = backed_up_in_place.harvested.display();
    backed_up_in_place.sql(&format!(
        "UPDATE copy SET place = '{place}' WHERE kind = 'backup'"
    ));
    backed_up_in_place.must_keep("is the copy in x itself");

    let sideways = Archive::new("remove = true");
    let path = format!(
        "{}/harvested/../repository/{NAME}",
        sideways.root.path().display()
    );
    fs::remove_file(&sideways.harvested).unwrap();
    sideways.sql(&format!("UPDATE file SET source = '{path}'"));
    sideways.must_keep("outside the harvested directories");
    assert!(sideways.stored.exists());
}

#[test]
fn a_mismatch_found_by_verify_freezes_it() {
    let archive = Archive::new("remove = true");
    let mut manifest = archive.manifest();
    let due = manifest.due(0).unwrap();
    manifest
        .checked(&due[0], &CheckOutcome::Bad("sha256 is 00".into()))
        .unwrap();
    let (code, out, log) = archive.clean();
    assert_eq!(code, 75, "{log}");
    assert_eq!(out, "");
    assert!(log.contains("ecluse verify --release"), "{log}");
    assert!(archive.harvested.exists());
}

#[test]
fn a_backup_found_bad_is_no_proof_after_the_release() {
    let archive = Archive::new("remove = true");
    let mut manifest = archive.manifest();
    let due = manifest.due(u64::MAX).unwrap();
    let backup = due.iter().find(|copy| copy.place.contains("/backup/"));
    let bad = CheckOutcome::Bad("sha256 is x".into());
    manifest.checked(backup.unwrap(), &bad).unwrap();
    manifest.thaw().unwrap();
    archive.must_keep("proved backups: 0 of 1 needed");
    manifest
        .checked(backup.unwrap(), &CheckOutcome::Good)
        .unwrap();
    drop(manifest);
    archive.root.put("clean", "again", b"");
    let (code, _, log) = archive.clean();
    assert_eq!(code, 0, "{log}");
    assert!(!archive.harvested.exists(), "{log}");
}

#[test]
fn a_file_found_twice_at_one_place_goes_once() {
    let archive = Archive::new("remove = true");
    let source = archive.harvested.to_str().unwrap();
    archive.sql(&format!(
        "INSERT INTO skipped VALUES ('t2', '{NAME}', '{source}', '')"
    ));
    let (code, out, log) = archive.clean();
    assert_eq!((code, out.lines().count()), (0, 1), "{log}");
    let row = archive.manifest().file(NAME).unwrap().unwrap();
    assert_eq!(row.state, FileState::Cleaned);
}

#[test]
fn no_setting_lets_a_file_go_without_a_backup() {
    let archive = Archive::new("remove = true\nbackups = 0");
    let (code, out, log) = archive.clean();
    assert_eq!(code, 78, "{log}");
    assert_eq!(out, "");
    assert!(archive.harvested.exists());
}

#[test]
fn a_mismatch_found_in_the_middle_of_a_sweep_ends_it() {
    let archive = Archive::new("remove = true");
    // A second file; whoever removes the first finds the archive frozen before the second.
    let other = NAME.replace("00007", "00008");
    let [harvested, stored] =
        ["harvested", "repository"].map(|at| archive.root.path().join(at).join(&other));
    fs::write(&harvested, b"the bytes").unwrap();
    fs::write(&stored, b"the bytes").unwrap();
    archive.publish(&[(NAME, 2), (&other, 2)]);
    let (from, to) = (archive.root.path().display(), stored.display());
    archive.sql(&format!(
        "INSERT INTO file SELECT '{other}', bytes, sha256, kind, job, harvest, collection, \
         '{from}/harvested/{other}', 't3', state, captures, damages, generation, ingested, indexed, stored, \
         backed_up, deleted, published, cleaned FROM file;
         INSERT INTO copy SELECT '{other}', kind, target, iif(kind = 'stored', '{to}', place), bytes, sha256, \
         proof, made, checked, found FROM copy;
         CREATE TRIGGER found AFTER UPDATE OF cleaned ON file BEGIN
         INSERT OR IGNORE INTO frozen VALUES (1, 'sha256 is 00', 'now'); END;"
    ));
    let (code, out, log) = archive.clean();
    assert_eq!(code, 75, "{log}");
    assert_eq!(out, format!("removed {}\n", archive.harvested.display()));
    assert!(harvested.exists());
}

#[test]
fn what_may_not_be_removed_stays_and_the_others_go() {
    use std::os::unix::fs::PermissionsExt;
    let archive = Archive::new("remove = true");
    // The first of the two lies in a directory that nobody may write to.
    let [closed, open] = ["11-3-20261116120000123-00001-h.warc.gz", NAME];
    let directory = archive.root.path().join("harvested/closed");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join(closed), b"the bytes").unwrap();
    archive.publish(&[(closed, 2), (open, 2)]);
    let source = directory.join(closed);
    archive.sql(&format!(
        "INSERT INTO file SELECT '{closed}', bytes, sha256, kind, job, harvest, collection, \
         '{}', 't3', state, captures, damages, generation, ingested, indexed, stored, \
         backed_up, deleted, published, cleaned FROM file WHERE name = '{open}';
         INSERT INTO copy SELECT '{closed}', kind, target, place, bytes, sha256, \
         proof, made, checked, found FROM copy;",
        source.display()
    ));
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o555)).unwrap();
    let mut command = archive.root.program(CLEAN);
    if rustix::process::geteuid().is_root() {
        // What a superuser may do beyond the modes is taken away.
        command = std::process::Command::new("setpriv");
        command.args(["--bounding-set", "-dac_override", CLEAN, "--root"]);
        command.arg(archive.root.path());
    }
    let output = command.arg("--once").output().unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{log}");
    assert!(log.contains("may not be removed"), "{log}");
    assert!(source.exists() && !archive.harvested.exists(), "{log}");
    let counts = archive.manifest().counts().unwrap();
    assert_eq!(counts, [(FileState::Published, 1), (FileState::Cleaned, 1)]);
}

#[test]
fn a_file_found_twice_goes_twice() {
    let archive = Archive::new("remove = true");
    let twin = archive.root.path().join("harvested/twin").join(NAME);
    fs::create_dir(twin.parent().unwrap()).unwrap();
    fs::write(&twin, b"the bytes").unwrap();
    archive.sql(&format!(
        "INSERT INTO skipped (parcel, file, source, at) VALUES ('t2', '{NAME}', '{}', 'now')",
        twin.display()
    ));
    let (code, out, log) = archive.clean();
    assert_eq!(code, 0, "{log}");
    assert_eq!(out.lines().count(), 2, "{out}");
    assert!(!archive.harvested.exists() && !twin.exists());
}
