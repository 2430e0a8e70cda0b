//! The manifest says what happened, once, whoever asks and however often.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::path::Path;

use ecluse_manifest::{
    CheckOutcome, Copy, CopyKind, Damage, FileState, Ingested, Manifest, ManifestError, NewFile,
    Term,
};
use serde_json::json;

fn new_file<'a>(name: &'a str, sha256: &'a str, parcel: &'a str) -> NewFile<'a> {
    NewFile {
        name,
        bytes: 7,
        sha256,
        kind: "warc",
        job: Some("12"),
        harvest: Some("3"),
        collection: None,
        source: "/harvested/a",
        parcel,
    }
}

const COPY: Copy<'_> = Copy {
    target: "repository",
    place: "/repository/a.warc.gz",
    bytes: 7,
    sha256: "aa",
};

fn open(dir: &Path) -> Manifest {
    Manifest::open(&dir.join("manifest.sqlite"), dir).unwrap()
}

fn state(manifest: &Manifest, name: &str) -> FileState {
    manifest.file(name).unwrap().unwrap().state
}

#[test]
fn who_only_asks_needs_no_leave_to_write() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("what is this? 100%.sqlite");
    assert!(Manifest::open_to_read(&path, dir.path()).is_err());
    assert!(!path.exists(), "asking makes nothing");
    let mut manifest = Manifest::open(&path, dir.path()).unwrap();
    let taken = manifest.ingest(&new_file("a.warc.gz", "aa", "t1"));
    assert_eq!(taken.unwrap(), Ingested::New);
    for writer_is_gone in [false, true] {
        if writer_is_gone {
            manifest = Manifest::open_to_read(&path, dir.path()).unwrap();
        }
        let mut reader = Manifest::open_to_read(&path, dir.path()).unwrap();
        assert_eq!(state(&reader, "a.warc.gz"), FileState::Ingested);
        assert!(reader.ingest(&new_file("b.warc.gz", "bb", "t2")).is_err());
    }
    drop(manifest);
}

#[test]
fn a_parcel_that_handed_nothing_over_gives_its_name_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut manifest = open(dir.path());
    let name = "a.warc.gz";
    manifest.ingest(&new_file(name, "aa", "t1")).unwrap();
    assert_eq!(manifest.forgo(name, "t2", |_| true).unwrap(), None);
    assert_eq!(state(&manifest, name), FileState::Ingested, "not its file");
    assert_eq!(manifest.forgo(name, "t1", |_| true).unwrap(), None);
    assert_eq!(manifest.file(name).unwrap(), None);
    let taken = manifest.ingest(&new_file(name, "bb", "t2")).unwrap();
    assert_eq!(taken, Ingested::New);

    // Another left the same bytes to it: they are told, and it must take them.
    manifest.ingest(&new_file(name, "bb", "t3")).unwrap();
    let elsewhere = manifest.forgo(name, "t2", |_| true).unwrap();
    assert_eq!(elsewhere.as_deref(), Some("/harvested/a"));
    assert_eq!(state(&manifest, name), FileState::Ingested);

    // What has gone further was handed over.
    manifest.indexed(name, 1, 0, &[]).unwrap();
    assert_eq!(manifest.forgo(name, "t2", |_| true).unwrap(), None);
    assert_eq!(state(&manifest, name), FileState::Indexed);
}

#[test]
fn a_name_is_free_once_its_bytes_are_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let mut manifest = open(dir.path());
    let name = "a.warc.gz";
    manifest.ingest(&new_file(name, "aa", "t1")).unwrap();
    manifest.ingest(&new_file(name, "aa", "t2")).unwrap();
    // What was left to the first parcel has gone as well: a third must not be left to it.
    assert_eq!(manifest.forgo(name, "t1", |_| false).unwrap(), None);
    assert_eq!(manifest.file(name).unwrap(), None);
    // It comes back, as a disk that was not mounted does, and its own parcel is done with.
    let elsewhere = manifest.forgo(name, "t1", |_| true).unwrap();
    assert_eq!(elsewhere.as_deref(), Some("/harvested/a"));
    let taken = manifest.ingest(&new_file(name, "aa", "t3")).unwrap();
    assert_eq!(taken, Ingested::New);
    assert_eq!(manifest.forgo(name, "t1", |_| true).unwrap(), None);
}

#[test]
fn a_manifest_without_an_index_is_given_it() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let path = dir.path().join("manifest.sqlite");
    let count = |connection: &rusqlite::Connection| -> i64 {
        let sql = "SELECT count(*) FROM sqlite_master WHERE name = 'skipped_by_file'";
        connection.query_row(sql, [], |row| row.get(0)).unwrap()
    };
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch("DROP INDEX skipped_by_file")
        .unwrap();
    drop(open(dir.path()));
    assert_eq!(count(&connection), 1);
    // Where it is there, opening waits for nobody who writes.
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    drop(open(dir.path()));
    connection.execute_batch("ROLLBACK").unwrap();
}

#[test]
fn a_name_is_taken_in_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut manifest = open(dir.path());
    let mut ingest = |sha256: &str, parcel: &str| {
        manifest
            .ingest(&new_file("a.warc.gz", sha256, parcel))
            .unwrap()
    };
    assert_eq!(ingest("aa", "t1"), Ingested::New);
    assert_eq!(ingest("aa", "t1"), Ingested::New, "killed and done again");
    assert_eq!(ingest("aa", "t2"), Ingested::Same);
    assert_eq!(ingest("aa", "t2"), Ingested::Same);
    let differs = Ingested::Differs {
        bytes: 7,
        sha256: "aa".into(),
    };
    assert_eq!(ingest("bb", "t3"), differs);
    let row = manifest.file("a.warc.gz").unwrap().unwrap();
    assert_eq!(row.sha256.as_deref(), Some("aa"));
    assert_eq!(row.job.as_deref(), Some("12"));
    assert_eq!(row.state, FileState::Ingested);
    let skipped: i64 = rusqlite_count(dir.path(), "SELECT count(*) FROM skipped");
    assert_eq!(skipped, 1, "counted once, however often it was asked");
}

fn rusqlite_count(dir: &Path, sql: &str) -> i64 {
    let connection = rusqlite::Connection::open(dir.join("manifest.sqlite")).unwrap();
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

#[test]
fn a_file_only_goes_forward() {
    let dir = tempfile::tempdir().unwrap();
    let mut manifest = open(dir.path());
    manifest.ingest(&new_file("a.warc.gz", "aa", "t1")).unwrap();
    manifest.stored("a.warc.gz", &COPY).unwrap();
    manifest.indexed("a.warc.gz", 10, 1, &[]).unwrap();
    assert_eq!(
        state(&manifest, "a.warc.gz"),
        FileState::Stored,
        "index came late"
    );
    manifest
        .backed_up("a.warc.gz", &COPY, &json!({"how": "read back"}))
        .unwrap();
    manifest.deleted("a.warc.gz").unwrap();
    for _ in 0..2 {
        let names = ["a.warc.gz".to_owned()];
        manifest.published(None, 4, &names).unwrap();
        assert_eq!(state(&manifest, "a.warc.gz"), FileState::Published);
    }
    manifest.cleaned("a.warc.gz").unwrap();
    manifest.stored("a.warc.gz", &COPY).unwrap();
    let row = manifest.file("a.warc.gz").unwrap().unwrap();
    assert_eq!(row.state, FileState::Cleaned);
    assert_eq!((row.captures, row.damages), (Some(10), Some(1)));
    assert_eq!(row.generation, Some(4));
    let copies = manifest.copies("a.warc.gz").unwrap();
    let kinds: Vec<CopyKind> = copies.iter().map(|copy| copy.kind).collect();
    assert_eq!(kinds, [CopyKind::Stored, CopyKind::Backup]);
    assert_eq!(manifest.counts().unwrap(), [(FileState::Cleaned, 1)]);
    let times = "SELECT count(*) FROM file WHERE ingested IS NOT NULL AND indexed IS NOT NULL \
         AND stored IS NOT NULL AND backed_up IS NOT NULL AND deleted IS NOT NULL \
         AND published IS NOT NULL AND cleaned IS NOT NULL";
    assert_eq!(rusqlite_count(dir.path(), times), 1);
}

#[test]
fn a_parcel_given_by_hand_is_added_and_may_be_taken_in_later() {
    let dir = tempfile::tempdir().unwrap();
    let mut manifest = open(dir.path());
    manifest.indexed("by-hand.warc.gz", 3, 0, &[]).unwrap();
    let row = manifest.file("by-hand.warc.gz").unwrap().unwrap();
    assert_eq!((row.state, row.sha256), (FileState::Indexed, None));
    let file = new_file("by-hand.warc.gz", "aa", "t1");
    assert_eq!(manifest.ingest(&file).unwrap(), Ingested::New);
    assert_eq!(state(&manifest, "by-hand.warc.gz"), FileState::Indexed);
}

#[test]
fn the_oldest_check_comes_first_and_a_mismatch_freezes() {
    let dir = tempfile::tempdir().unwrap();
    let mut manifest = open(dir.path());
    for name in ["a", "b", "c"] {
        manifest.ingest(&new_file(name, "aa", name)).unwrap();
        manifest.stored(name, &COPY).unwrap();
    }
    let names = |manifest: &Manifest, bytes| -> Vec<String> {
        let due = manifest.due(bytes).unwrap();
        due.into_iter().map(|copy| copy.file).collect()
    };
    assert_eq!(names(&manifest, 0), ["a"], "at least one, however large");
    assert_eq!(names(&manifest, 15), ["a", "b"]);
    let due = manifest.due(u64::MAX).unwrap();
    manifest.checked(&due[0], &CheckOutcome::Good).unwrap();
    assert_eq!(names(&manifest, u64::MAX), ["b", "c", "a"]);
    let gone = CheckOutcome::Unread("the disk is not mounted".into());
    manifest.checked(&due[1], &gone).unwrap();
    assert_eq!(manifest.frozen().unwrap(), None, "unread is not bad");
    manifest
        .checked(&due[2], &CheckOutcome::Bad("sha256 is 00".into()))
        .unwrap();
    let frozen = manifest.frozen().unwrap().unwrap();
    let health = manifest.health().unwrap();
    assert_eq!((health.bad, health.unread), (1, 1));
    assert_eq!(health.frozen.as_ref(), Some(&frozen));
    let failing = manifest.failing(5).unwrap();
    let failing: Vec<&str> = failing.iter().map(|copy| copy.file.as_str()).collect();
    assert_eq!(failing, ["b", "c"]);
    assert!(
        frozen.why.contains("c in repository: sha256 is 00"),
        "{frozen:?}"
    );
    assert_eq!(manifest.thaw().unwrap(), Some(frozen));
    assert_eq!(manifest.frozen().unwrap(), None);
}

#[test]
fn damage_is_a_query() {
    let dir = tempfile::tempdir().unwrap();
    let mut manifest = open(dir.path());
    let damage = |record| Damage {
        record,
        offset: 100 * record,
        reason: "the member is cut".into(),
    };
    manifest.indexed("a", 3, 0, &[]).unwrap();
    for _ in 0..2 {
        manifest
            .indexed("b", 3, 70, &[damage(2), damage(5)])
            .unwrap();
    }
    assert_eq!(manifest.damaged().unwrap(), 1);
    assert_eq!(manifest.damage("b").unwrap(), [damage(2), damage(5)]);
    assert_eq!(manifest.damage("a").unwrap(), []);
    let mut found = Vec::new();
    let see = |row: ecluse_manifest::FileRow| {
        found.push((row.name, row.damages));
        Ok::<(), ManifestError>(())
    };
    manifest
        .find(&[Term::Damaged, Term::Name("b")], see)
        .unwrap();
    assert_eq!(found, [("b".to_owned(), Some(70))]);
    // Indexed again by a version that reads more of it.
    manifest.indexed("b", 4, 0, &[]).unwrap();
    assert_eq!(
        (manifest.damaged().unwrap(), manifest.damage("b").unwrap()),
        (0, vec![])
    );
}

#[test]
fn many_write_at_once() {
    let dir = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let dir = dir.path();
            scope.spawn(move || {
                let mut manifest = open(dir);
                for number in 0..25 {
                    let name = format!("{worker}-{number}");
                    manifest.ingest(&new_file(&name, "aa", &name)).unwrap();
                    manifest.indexed(&name, 1, 0, &[]).unwrap();
                }
            });
        }
    });
    assert_eq!(
        open(dir.path()).counts().unwrap(),
        [(FileState::Indexed, 100)]
    );
}

#[test]
fn a_later_version_is_refused_and_a_text_file_is_no_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("manifest.sqlite");
    drop(open(dir.path()));
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    drop(connection);
    let refused = Manifest::open(&path, dir.path()).err().unwrap();
    assert!(matches!(refused, ManifestError::Version { found: 99, .. }));
    let text = dir.path().join("text.sqlite");
    std::fs::write(
        &text,
        "not a database, but long enough to be taken for one: ".repeat(20),
    )
    .unwrap();
    let refused = Manifest::open(&text, dir.path()).err().unwrap();
    assert!(refused.to_string().contains("text.sqlite"), "{refused}");
}

#[test]
fn files_are_found_by_job_digest_and_part_of_a_name() {
    let dir = tempfile::tempdir().unwrap();
    let mut manifest = open(dir.path());
    manifest
        .ingest(&new_file("a-1.warc.gz", "aa11", "t1"))
        .unwrap();
    manifest
        .ingest(&new_file("b_1.warc.gz", "bb22", "t2"))
        .unwrap();
    let find = |terms: &[Term<'_>]| -> Vec<String> {
        let mut names = Vec::new();
        let found = manifest.find(terms, |row| {
            names.push(row.name);
            Ok::<(), ManifestError>(())
        });
        found.unwrap();
        names
    };
    assert_eq!(find(&[Term::Job("12")]), ["a-1.warc.gz", "b_1.warc.gz"]);
    assert_eq!(
        find(&[Term::Job("12"), Term::Digest("BB")]),
        ["b_1.warc.gz"]
    );
    assert_eq!(
        find(&[Term::Name("_1"), Term::Harvest("3")]),
        ["b_1.warc.gz"]
    );
    assert_eq!(find(&[Term::Name("%")]), [""; 0], "no pattern, only a part");
}

#[test]
fn the_places_of_an_earlier_version_begin_at_the_root_now() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("manifest.sqlite");
    let root = dir.path().to_str().unwrap();
    let inside = format!("{root}/repository/a.warc.gz");
    let copy = |target, place| Copy {
        target,
        place,
        bytes: 3,
        sha256: "00",
    };
    let mut manifest = open(dir.path());
    manifest.stored("a.warc.gz", &copy("in", &inside)).unwrap();
    manifest
        .stored("a.warc.gz", &copy("out", "/mnt/a"))
        .unwrap();
    drop(manifest);
    let written = || {
        let connection = rusqlite::Connection::open(&path).unwrap();
        let sql = "SELECT place FROM copy ORDER BY target";
        let mut statement = connection.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.collect::<rusqlite::Result<Vec<String>>>().unwrap()
    };
    assert_eq!(written(), ["./repository/a.warc.gz", "/mnt/a"]);
    let connection = rusqlite::Connection::open(&path).unwrap();
    let sql = "UPDATE copy SET place = ?1 WHERE target = 'in'";
    connection.execute(sql, [&inside]).unwrap();
    for table in ["file", "skipped"] {
        let sql = format!("ALTER TABLE {table} RENAME COLUMN parcel TO ticket");
        connection.execute(&sql, []).unwrap();
    }
    connection.pragma_update(None, "user_version", 1).unwrap();
    drop(connection);
    // Who only asks brings it up to date as well.
    let asked = Manifest::open_to_read(&path, dir.path()).unwrap();
    assert_eq!(asked.unfinished(10).unwrap().len(), 1);
    drop(asked);
    let copies = open(dir.path()).copies("a.warc.gz").unwrap();
    assert_eq!(copies[0].place, inside);
    assert_eq!(written(), ["./repository/a.warc.gz", "/mnt/a"]);
}
