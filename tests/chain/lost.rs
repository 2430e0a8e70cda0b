//! What was lost, moved or copied by hand: it is told, and can be made again.

use super::*;

/// What the manifest says of each file, without the seconds at which it was told.
fn rows(manifest: &Manifest) -> Vec<String> {
    let mut rows = Vec::new();
    let found = manifest.find(&[], |mut row| {
        row.deleted = row.deleted.map(|_| "then".to_owned());
        let copies = manifest.copies(&row.name)?;
        let damage = manifest.damage(&row.name)?;
        let skipped = manifest.skipped(&row.name)?;
        rows.push(format!("{row:?} {copies:?} {damage:?} {skipped:?}"));
        Ok::<(), ecluse_manifest::ManifestError>(())
    });
    found.unwrap();
    rows
}

#[test]
fn a_lost_manifest_is_made_again_from_receipts_and_stored_files() {
    let archive = Archive::new(QUICK);
    for number in 0..3 {
        let name = format!("{number}-7-20260101000000000-00001-h.warc.gz");
        archive.harvest(&name, &warc(number, 4));
    }
    let whole = warc(9, 6);
    archive.harvest("cut.warc.gz", &whole[..whole.len() - 40]);
    let (code, said) = archive.once(&CHAIN[..7]);
    assert_eq!(code, 0, "{said}");
    // One of the files a second time, and one that is on its way.
    fs::create_dir(archive.path("harvested/again")).unwrap();
    archive.harvest("again/0-7-20260101000000000-00001-h.warc.gz", &warc(0, 4));
    let (code, said) = archive.once(&["ingest"]);
    assert_eq!(code, 0, "{said}");
    archive.harvest("8-metadata-1.warc.gz", &warc(8, 2));
    let (code, said) = archive.once(&CHAIN[..3]);
    assert_eq!(code, 0, "{said}");
    let before = rows(&archive.manifest());
    assert_eq!(before.len(), 5);
    // Some of what is known is in the ledger only.
    let tree = ecluse_spool::WorkTree::open(&archive.path("work"));
    for stage in ["ingest", "index", "transfer", "merge"] {
        assert!(
            ecluse_spool::fold(&tree, stage, Duration::ZERO).unwrap() > 0,
            "{stage}"
        );
    }
    let output = archive.ecluse(&["rebuild", "manifest", "--dry-run"]);
    assert_eq!(output.status.code(), Some(0), "{}", self::said(&output));
    let garbage = "not a database, but long enough to be taken for one: ".repeat(20);
    fs::write(archive.path("manifest.sqlite"), &garbage).unwrap();
    // What only somebody's hand can have put there is taken up as well.
    fs::write(archive.path("repository/by-hand.warc.gz"), warc(5, 1)).unwrap();
    let output = archive.ecluse(&["rebuild", "manifest", "--why", "it was lost"]);
    let words = self::said(&output);
    assert_eq!(output.status.code(), Some(0), "{words}");
    assert!(
        words.contains("6 files") && words.contains("1 stored file without"),
        "{words}"
    );
    let mut after = rows(&archive.manifest());
    after.retain(|row| !row.contains("by-hand"));
    assert_eq!(after, before);
    let old = fs::read_dir(archive.dir.path()).unwrap();
    let mut old = old.map(|entry| entry.unwrap().path());
    let old = old.find(|path| {
        let path = path.to_string_lossy();
        path.contains("manifest.sqlite.old-") && path.ends_with('Z')
    });
    assert_eq!(fs::read(old.unwrap()).unwrap(), garbage.as_bytes());
    // Nobody knows whether something was frozen: nothing is removed until a person says so.
    assert!(archive.status().contains("nothing is removed since"));
    // That nothing bad is known is no reason: nothing was read.
    let output = archive.ecluse(&["repair", "--all"]);
    assert!(self::said(&output).contains("stay frozen"), "{output:?}");
    assert!(archive.manifest().frozen().unwrap().is_some());
    let output = archive.ecluse(&["verify", "--release", "--why", "looked"]);
    assert_eq!(output.status.code(), Some(0), "{}", self::said(&output));
    let (code, said) = archive.once(&CHAIN[..7]);
    assert_eq!(code, 0, "{said}");
    let row = archive
        .manifest()
        .file("8-metadata-1.warc.gz")
        .unwrap()
        .unwrap();
    assert_eq!(row.state, FileState::Published);
    // With a manifest that can be read, checks and freeze are taken over, and nothing changes.
    let output = archive.ecluse(&["verify"]);
    assert_eq!(output.status.code(), Some(0), "{}", self::said(&output));
    let checks = |manifest: &Manifest| manifest.copies("cut.warc.gz").unwrap()[0].checked.clone();
    let checked = checks(&archive.manifest());
    let output = archive.ecluse(&["rebuild", "manifest"]);
    assert_eq!(output.status.code(), Some(0), "{}", self::said(&output));
    assert!(checked.is_some());
    assert_eq!(checks(&archive.manifest()), checked);
    assert!(archive.manifest().frozen().unwrap().is_none());
}

#[test]
fn a_file_whose_claim_was_removed_by_hand_is_told_and_given_again() {
    let archive = Archive::new(QUICK);
    let files = files(3);
    for (name, bytes) in &files {
        archive.harvest(name, bytes);
    }
    let (code, said) = archive.once(&CHAIN[..3]);
    assert_eq!(code, 0, "{said}");
    assert!(!archive.status().contains("on no stage"));
    // A worker of backup has one of them, and somebody cleans up.
    let tree = ecluse_spool::WorkTree::open(&archive.path("work"));
    let limits = ecluse_spool::WorkerLimits::default();
    let mut worker = ecluse_spool::Worker::open(&tree, "backup", &[], limits, "test").unwrap();
    let scan = worker.scan().unwrap();
    assert!(worker.claim(&scan.waiting[0]).unwrap().is_some());
    assert!(!archive.status().contains("on no stage"));
    let home = archive.path("work/backup/claim").join(worker.id().as_str());
    fs::remove_dir_all(home).unwrap();
    drop(worker);
    let (code, said) = archive.once(&CHAIN[..7]);
    assert_eq!(code, 0, "{said}");
    let states = archive.manifest().counts().unwrap();
    assert_eq!(states, [(FileState::Stored, 1), (FileState::Published, 2)]);
    let status = archive.status();
    assert!(status.contains("1 file is on no stage"), "{status}");
    assert!(status.contains("give index --lost"), "{status}");
    let check = archive.ecluse(&["check"]);
    let words = self::said(&check);
    assert!(words.contains("warning: index: 1 file is on"), "{words}");
    let given = archive.ecluse(&["give", "index", "--lost", "--why", "claim was removed"]);
    assert_eq!(given.status.code(), Some(0), "{}", self::said(&given));
    assert!(!archive.status().contains("on no stage"));
    // What waits in a day's list is on a stage too.
    let (code, said) = archive.once(&CHAIN[..6]);
    assert_eq!(code, 0, "{said}");
    assert!(!entries(&archive.path("work/bigmerge/ready")).is_empty());
    assert!(!archive.status().contains("on no stage"));
    let (code, said) = archive.once(&CHAIN[..7]);
    assert_eq!(code, 0, "{said}");
    archive.must_hold(&files, FileState::Published);
    assert!(!archive.status().contains("on no stage"));
}

#[test]
fn a_root_that_was_moved_finds_its_files_again() {
    let settings = QUICK.replace("remove = true", "remove = false");
    let mut archive = Archive::new(&settings);
    let mut files = files(3);
    for (name, bytes) in &files {
        archive.harvest(name, bytes);
    }
    let (code, said) = archive.once(&CHAIN[..7]);
    assert_eq!(code, 0, "{said}");
    // One is in a day's lists, and one is on its way to its backup.
    let day = ("day.warc.gz".to_owned(), warc(76, 3));
    archive.harvest(&day.0, &day.1);
    let (code, said) = archive.once(&CHAIN[..6]);
    assert_eq!(code, 0, "{said}");
    let late = ("late.warc.gz".to_owned(), warc(77, 3));
    archive.harvest(&late.0, &late.1);
    let (code, said) = archive.once(&CHAIN[..3]);
    assert_eq!(code, 0, "{said}");
    let output = archive.ecluse(&["rebuild", "path"]);
    let words = self::said(&output);
    assert!(words.starts_with("0 places and 0 lines"), "{words}");
    let before = archive.index();
    let elsewhere = tempfile::tempdir().unwrap();
    fs::rename(archive.dir.path(), elsewhere.path()).unwrap();
    archive = Archive { dir: elsewhere };
    let status = archive.status();
    assert!(status.contains("the archive was moved"), "{status}");
    assert!(status.contains("rebuild path"), "{status}");
    let check = self::said(&archive.ecluse(&["check"]));
    assert!(check.contains("warning: transfer: the archive"), "{check}");
    let output = archive.ecluse(&["rebuild", "path", "--dry-run"]);
    assert_eq!(output.status.code(), Some(0), "{}", self::said(&output));
    assert_eq!(entries(&archive.path("index/generations")), ["1"]);
    let output = archive.ecluse(&["rebuild", "path", "--why", "a new disk"]);
    let words = self::said(&output);
    assert_eq!(output.status.code(), Some(0), "{words}");
    // What the manifest and the parcels say begins at the root: only the index names whole places.
    assert!(words.starts_with("0 places and 3 lines"), "{words}");
    assert!(words.contains("0 copies are not there"), "{words}");
    assert_eq!(words.lines().count(), 1, "{words}");
    assert_eq!(archive.index(), before);
    archive.must_be_at_home();
    let status = archive.status();
    assert!(!status.contains("was moved"), "{status}");
    let output = archive.ecluse(&["verify"]);
    assert_eq!(output.status.code(), Some(0), "{}", self::said(&output));
    let output = archive.ecluse(&["show", "http://h2.example/2/1"]);
    let words = self::said(&output);
    assert_eq!(output.status.code(), Some(0), "{words}");
    assert!(words.contains("<p>2 1</p>"), "{words}");
    let output = archive.ecluse(&["lookup", "http://h2.example/2/1"]);
    assert_eq!(output.status.code(), Some(0), "{}", self::said(&output));
    let output = archive.ecluse(&["rebuild", "path"]);
    let words = self::said(&output);
    assert!(words.starts_with("0 places and 0 lines"), "{words}");
    // What was on its way and one more file pass through the whole chain.
    files.extend([day, late]);
    files.push(("more.warc.gz".to_owned(), warc(78, 3)));
    archive.harvest("more.warc.gz", &files[5].1);
    let (code, said) = archive.once(&CHAIN);
    assert_eq!(code, 0, "{said}");
    let output = archive.ecluse(&["rebuild", "path"]);
    let words = self::said(&output);
    assert!(words.starts_with("0 places and 0 lines"), "{words}");
    archive.must_hold(&files, FileState::Published);
    archive.must_be_at_home();
    assert!(said.contains("would remove 6 files of "), "{said}");
}

#[test]
fn a_copied_archive_is_judged_by_its_own_files() {
    let settings = QUICK.replace("remove = true", "remove = false");
    let old = Archive::new(&settings);
    let mut files = files(3);
    for (name, bytes) in &files {
        old.harvest(name, bytes);
    }
    let (code, said) = old.once(&CHAIN[..7]);
    assert_eq!(code, 0, "{said}");
    let late = ("late.warc.gz".to_owned(), warc(77, 3));
    old.harvest(&late.0, &late.1);
    let (code, said) = old.once(&CHAIN[..3]);
    assert_eq!(code, 0, "{said}");
    let new = Archive {
        dir: tempfile::tempdir().unwrap(),
    };
    let copied = std::process::Command::new("cp")
        .args(["-a", "."])
        .arg(new.dir.path())
        .current_dir(old.dir.path())
        .status();
    assert!(copied.unwrap().success());
    let status = new.status();
    assert!(status.contains("was moved or copied"), "{status}");
    assert!(!old.status().contains("was moved or copied"));
    // What is wrong in one is wrong there, and nowhere else.
    let bad = new.path("repository").join(&files[0].0);
    fs::write(&bad, b"rotten").unwrap();
    let output = new.ecluse(&["verify"]);
    let words = self::said(&output);
    assert_eq!(output.status.code(), Some(65), "{words}");
    assert!(words.contains(bad.to_str().unwrap()), "{words}");
    let output = old.ecluse(&["verify"]);
    assert_eq!(output.status.code(), Some(0), "{}", self::said(&output));
    let output = new.ecluse(&["repair", "--all"]);
    assert_eq!(output.status.code(), Some(0), "{}", self::said(&output));
    let output = new.ecluse(&["rebuild", "path"]);
    let words = self::said(&output);
    assert!(words.starts_with("0 places and 3 lines"), "{words}");
    new.must_be_at_home();
    let status = new.status();
    assert!(!status.contains("was moved"), "{status}");
    // It goes on by itself, with what was on its way, and without the old one.
    drop(old);
    fs::remove_file(bad.with_file_name(format!(".ecluse-bad-1-{}", files[0].0))).unwrap();
    files.push(late);
    let (code, said) = new.once(&CHAIN);
    assert_eq!(code, 0, "{said}");
    new.must_hold(&files, FileState::Published);
    new.must_be_at_home();
    assert!(said.contains("would remove 4 files of "), "{said}");
}

#[test]
fn a_file_that_was_lost_and_moved_stays_in_the_index_of_its_collection() {
    let settings = format!(
        "{QUICK}\n[stage.ingest]\ncollections = [{{ name = \"elections\", harvests = \"9\" }}]\n"
    );
    let mut archive = Archive::new(&settings);
    archive.harvest("1-9-20261116120000000-00000-h.warc.gz", &warc(1, 2));
    archive.harvest("1-3-20261116120000000-00001-h.warc.gz", &warc(2, 3));
    let (code, said) = archive.once(&CHAIN[..6]);
    assert_eq!(code, 0, "{said}");
    // A whole day's lists are removed.
    for day in entries(&archive.path("work/bigmerge/ready")) {
        fs::remove_dir_all(archive.path("work/bigmerge/ready").join(day)).unwrap();
    }
    let status = archive.status();
    assert!(status.contains("2 files are on no stage"), "{status}");
    let given = archive.ecluse(&["give", "index", "--lost"]);
    assert_eq!(given.status.code(), Some(0), "{}", self::said(&given));
    let (code, said) = archive.once(&CHAIN[..7]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(archive.index().len(), 3);
    let elections = lines(&archive.path("index/elections/current/index.cdxj"));
    assert_eq!(elections.len(), 2);
    let row = archive.manifest();
    let row = row.file("1-9-20261116120000000-00000-h.warc.gz").unwrap();
    let row = row.unwrap();
    assert_eq!(
        (row.state, row.collection.as_deref()),
        (FileState::Published, Some("elections"))
    );
    // The index of a collection is mended too when the archive moves.
    let elsewhere = tempfile::tempdir().unwrap();
    fs::rename(archive.dir.path(), elsewhere.path()).unwrap();
    archive = Archive { dir: elsewhere };
    let output = archive.ecluse(&["rebuild", "path"]);
    let words = self::said(&output);
    assert!(words.starts_with("0 places and 2 lines"), "{words}");
    let paths = lines(&archive.path("index/elections/current/path-index.txt"));
    let home = archive.path("repository/1-9-20261116120000000-00000-h.warc.gz");
    assert_eq!(paths.len(), 1);
    assert!(
        paths[0].ends_with(&format!("\t{}", home.display())),
        "{paths:?}"
    );
    assert_eq!(
        lines(&archive.path("index/elections/current/index.cdxj")),
        elections
    );
}

#[test]
fn a_harvested_file_that_nothing_accounts_for_is_told() {
    let archive = Archive::new("[stage.clean]\nevery = \"1s\"\n");
    archive.harvest("1-3-20261116120000000-00001-h.warc.gz", &warc(2, 3));
    let (code, said) = archive.once(&CHAIN);
    assert_eq!(code, 0, "{said}");
    assert!(!archive.status().contains("nothing accounts for"));
    // Ingest does not run; clean sees the file once, and once more.
    archive.harvest("stranger.warc.gz", &warc(7, 1));
    let told = (0..50).any(|_| {
        let (code, said) = archive.once(&["clean"]);
        assert_eq!(code, 0, "{said}");
        archive.status().contains("nothing accounts for")
    });
    assert!(told, "{}", archive.status());
}

#[test]
fn a_file_that_grew_after_it_was_stored_is_told_when_its_hold_is_gone() {
    let archive = Archive::new("[stage.clean]\nevery = \"1s\"\nremove = true\n");
    let name = "1-3-20261116120000000-00001-h.warc.gz";
    archive.harvest(name, &warc(2, 3));
    let (code, said) = archive.once(&CHAIN[..7]);
    assert_eq!(code, 0, "{said}");
    let mut longer = warc(2, 3);
    longer.extend(warc(7, 1));
    archive.harvest(name, &longer);
    let (code, said) = archive.once(&["ingest"]);
    assert_eq!(code, 65, "{said}");
    let held = entries(&archive.path("work/ingest/held"));
    let parcel = held[0].split('~').next().unwrap();
    let output = archive.ecluse(&["discard", parcel, "--why", "not wanted"]);
    assert_eq!(output.status.code(), Some(0), "{}", self::said(&output));
    let told = (0..50).any(|_| {
        let (code, said) = archive.once(&["clean"]);
        assert_eq!(code, 0, "{said}");
        archive.status().contains("nothing accounts for")
    });
    assert!(told, "{}", archive.status());
    let left = fs::read(archive.path("harvested").join(name)).unwrap();
    assert_eq!(left, longer);
    let check = self::said(&archive.ecluse(&["check"]));
    assert!(check.contains("it is not the file that was"), "{check}");
}

#[test]
fn a_lost_index_is_made_anew_from_the_archives_files() {
    let settings = format!(
        "{QUICK}\n[stage.ingest]\ncollections = [{{ name = \"elections\", harvests = \"9\" }}]\n"
    );
    let archive = Archive::new(&settings);
    archive.harvest("1-9-20261116120000000-00000-h.warc.gz", &warc(1, 2));
    archive.harvest("1-3-20261116120000000-00001-h.warc.gz", &warc(2, 3));
    archive.harvest("1-3-20261116120000000-00002-h.warc.gz", &warc(3, 4));
    let (code, said) = archive.once(&CHAIN);
    assert_eq!(code, 0, "{said}");
    let lists = [
        "index/current/index.cdxj",
        "index/current/path-index.txt",
        "index/elections/current/index.cdxj",
        "index/elections/current/path-index.txt",
    ];
    let before = lists.map(|list| lines(&archive.path(list)));
    let output = archive.ecluse(&["rebuild", "index"]);
    let words = self::said(&output);
    assert_eq!(words.matches("is whole").count(), 2, "{words}");
    fs::remove_file(archive.path("index/current/index.cdxj")).unwrap();
    fs::remove_dir_all(archive.path("index/elections/generations")).unwrap();
    let status = archive.status();
    assert!(status.contains(" rebuild index"), "{status}");
    assert!(!status.contains("rebuild manifest"), "{status}");
    let output = archive.ecluse(&["rebuild", "index", "--why", "a disk"]);
    let words = self::said(&output);
    assert_eq!(output.status.code(), Some(0), "{words}");
    assert!(words.contains("7 lines of 2 files; 0 lines"), "{words}");
    assert!(words.contains("2 lines of 1 files; 0 lines"), "{words}");
    assert_eq!(lists.map(|list| lines(&archive.path(list))), before);
    // It grows as any other.
    archive.harvest("1-3-20261116120000000-00003-h.warc.gz", &warc(4, 5));
    let (code, said) = archive.once(&CHAIN);
    assert_eq!(code, 0, "{said}");
    assert_eq!(archive.index().len(), 12);
    // Of a file without a copy the lines are missed, and that is told.
    for place in ["repository", "backup"] {
        fs::remove_file(
            archive
                .path(place)
                .join("1-3-20261116120000000-00003-h.warc.gz"),
        )
        .unwrap();
    }
    fs::remove_file(archive.path("index/current/index.cdxj")).unwrap();
    let output = archive.ecluse(&["rebuild", "index"]);
    let words = self::said(&output);
    assert_eq!(output.status.code(), Some(65), "{words}");
    assert!(words.contains("5 lines are missing"), "{words}");
    assert_eq!(archive.index().len(), 7);
}

#[test]
fn a_lost_manifest_or_index_is_told_and_nothing_goes_on_without_it() {
    let archive = Archive::new("[stage.clean]\nremove = true\n");
    let late = "1-3-20261116120000000-00002-h.warc.gz";
    archive.harvest("1-3-20261116120000000-00001-h.warc.gz", &warc(2, 3));
    let (code, said) = archive.once(&CHAIN);
    assert_eq!(code, 0, "{said}");

    let index = archive.path("index/current/index.cdxj");
    let aside = archive.path("aside.cdxj");
    fs::copy(&index, &aside).unwrap();
    fs::remove_file(&index).unwrap();
    let status = archive.status();
    assert!(status.contains("index.cdxj is not there"), "{status}");
    assert_eq!(archive.ecluse(&["check"]).status.code(), Some(2));
    fs::copy(&aside, &index).unwrap();

    for name in [
        "manifest.sqlite",
        "manifest.sqlite-wal",
        "manifest.sqlite-shm",
    ] {
        let _ = fs::remove_file(archive.path(name));
    }
    archive.harvest(late, &warc(3, 3));
    let status = archive.status();
    assert!(status.contains("is not there any more"), "{status}");
    assert_eq!(archive.ecluse(&["check"]).status.code(), Some(2));
    let verified = archive.ecluse(&["verify"]);
    assert_eq!(verified.status.code(), Some(74), "{}", said_of(&verified));
    let (code, said) = archive.once(&CHAIN);
    assert_eq!(code, 74, "{said}");
    assert!(said.contains("rebuild manifest"), "{said}");
    assert!(archive.path("harvested").join(late).exists());

    let rebuilt = archive.ecluse(&["rebuild", "manifest", "--why", "lost"]);
    assert_eq!(rebuilt.status.code(), Some(0), "{}", said_of(&rebuilt));
    let (code, said) = archive.once(&CHAIN);
    assert!([0, 75].contains(&code), "{said}");
    assert!(archive.path("repository").join(late).exists(), "{said}");
}
