//! The program: the contract of every stage, and what it makes of the index.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use ecluse_cdx::{KeyRange, Lookup};
use ecluse_generation::{BY_HAND, DESCRIPTION, FLAT, IndexDirectory, PATHS, SUMMARY};
use ecluse_manifest::{FileState, Manifest};
use ecluse_testkit::contract::Contract;
use ecluse_testkit::root::{Root, contents};

use common::{BIGMERGE, index, line, lines, put, root, run};

#[test]
fn bigmerge_keeps_the_contract() {
    Contract {
        stage: "bigmerge",
        binary: Path::new(BIGMERGE),
        settings: "batch = { parcels = 100, wait = \"50ms\" }",
        good: &[
            ("day.cdxj", b"org,example)/ 20260101000000 {}\n"),
            ("day.path", b"a.warc.gz\t/repository/a.warc.gz\n"),
            ("day.files", b"a.warc.gz\t00\n"),
        ],
        bad: &[("day.cdxj", b"b 20260101000000 {}\na 20260101000000 {}\n")],
    }
    .keep();
}

#[test]
fn a_generation_is_the_last_one_and_the_new_lines() {
    let root = root("");
    put(&root, "day-1", None, &lines([1, 3, 5]));
    put(&root, "day-2", None, &lines([3, 4]));
    run(&root, 0);
    assert_eq!(index(&root, "index"), lines([1, 3, 4, 5]));
    put(&root, "day-3", None, &lines([0, 4, 9]));
    run(&root, 0);
    assert_eq!(index(&root, "index"), lines([0, 1, 3, 4, 5, 9]));
    let shelf = shelf(&root, None);
    let paths = fs::read_to_string(shelf.current().unwrap().unwrap().join(PATHS)).unwrap();
    assert_eq!(
        paths,
        "day-1\t/repository/day-1\nday-2\t/repository/day-2\nday-3\t/repository/day-3\n"
    );

    let generation = shelf.describe(2).unwrap().unwrap();
    assert_eq!((generation.number, generation.previous), (2, Some(1)));
    assert_eq!((generation.lines, generation.duplicates), (6, 1));
    let members: Vec<&str> = generation
        .members
        .iter()
        .map(|m| m.parcel.as_str())
        .collect();
    assert_eq!(members, ["day-3"]);
    // What went in is told to the manifest and to the next stage.
    let manifest = Manifest::open(&root.path().join("manifest.sqlite"), root.path()).unwrap();
    for (name, generation) in [("day-1", 1), ("day-2", 1), ("day-3", 2)] {
        let row = manifest.file(name).unwrap().unwrap();
        assert_eq!(
            (row.state, row.generation),
            (FileState::Published, Some(generation))
        );
    }
    let told: Vec<String> = contents(&root.part("sink", "ready"))
        .into_iter()
        .filter(|(path, _)| path.ends_with("generation.files"))
        .map(|(_, bytes)| String::from_utf8(bytes).unwrap())
        .collect();
    assert_eq!(told.len(), 2);
    assert!(
        told.contains(&"day-1\t00\nday-2\t00\n".to_owned()),
        "{told:?}"
    );
}

#[test]
fn what_came_in_is_told_to_the_stages_in_back() {
    let root = root("back = [\"watcher\"]\n[stage.watcher]");
    put(&root, "day-1", None, &lines([1, 3]));
    put(&root, "day-2", None, &lines([2, 3]));
    put(&root, "press", Some("presse"), &lines([7]));
    run(&root, 0);
    let mut told: Vec<String> = contents(&root.part("watcher", "ready"))
        .into_iter()
        .filter(|(path, _)| path.ends_with("captures.cdxj"))
        .map(|(_, bytes)| String::from_utf8(bytes).unwrap())
        .collect();
    told.sort();
    assert_eq!(told, [lines([1, 2, 3]), lines([7])]);
    let manifests: String = contents(&root.part("watcher", "ready"))
        .into_iter()
        .filter(|(path, _)| path.ends_with("parcel.json"))
        .map(|(_, bytes)| String::from_utf8(bytes).unwrap())
        .collect();
    assert!(
        manifests.contains("presse") && manifests.contains("captures"),
        "{manifests}"
    );
}

fn shelf(root: &Root, collection: Option<&str>) -> IndexDirectory {
    IndexDirectory::of(&root.path().join("index"), collection).unwrap()
}

#[test]
fn the_last_three_stay() {
    let root = root("");
    for number in 1..=5 {
        put(&root, &format!("day-{number}"), None, &lines([number]));
        run(&root, 0);
    }
    let shelf = shelf(&root, None);
    assert_eq!(shelf.numbers().unwrap(), [3, 4, 5]);
    assert_eq!(
        fs::read_link(shelf.root().join("current")).unwrap(),
        Path::new("generations/5")
    );
    assert_eq!(index(&root, "index/generations/3").lines().count(), 3);
    assert_eq!(index(&root, "index"), lines(1..=5));
}

#[test]
fn a_collection_has_an_index_of_its_own() {
    let root = root("");
    put(&root, "main", None, &lines([1, 2]));
    put(&root, "press", Some("presse"), &lines([2, 3]));
    run(&root, 0);
    assert_eq!(index(&root, "index"), lines([1, 2]));
    assert_eq!(index(&root, "index/presse"), lines([2, 3]));
    for name in ["current", "generations", "../x", "A"] {
        let root = common::root("");
        put(&root, "stranger", Some(name), &lines([1]));
        put(&root, "main", None, &lines([1]));
        run(&root, 65);
        assert!(
            root.why("bigmerge", "stranger")
                .contains("cannot name an index"),
            "{name}"
        );
        assert_eq!(
            index(&root, "index"),
            lines([1]),
            "{name}: its neighbour passes"
        );
    }
}

#[test]
fn an_unsorted_day_is_held_and_its_neighbours_pass() {
    let root = root("");
    put(&root, "first", None, &lines([1]));
    run(&root, 0);
    put(&root, "bad", None, &format!("{}{}", line(7), line(6)));
    put(&root, "good", None, &lines([2]));
    run(&root, 65);
    assert_eq!(root.list("bigmerge", "held"), ["bad~1"]);
    let why = root.why("bigmerge", "bad");
    assert!(
        why.starts_with("line 2 of bad/day.cdxj at offset "),
        "{why}"
    );
    assert_eq!(index(&root, "index"), lines([1, 2]));
    assert_eq!(
        root.list("../index", "generations").len(),
        2,
        "nothing half built is left"
    );
}

#[test]
fn a_member_of_a_kept_generation_is_not_merged_again() {
    let root = root("");
    put(&root, "day-1", None, &lines([1, 2]));
    put(&root, "day-2", None, &lines([3]));
    run(&root, 0);
    // The worker died after the swap and before its receipt: the same parcels come again, with another.
    #[expect(clippy::disallowed_methods, reason = "a test undoes a commit")]
    fs::remove_dir_all(root.part("bigmerge", "receipts")).unwrap();
    put(&root, "day-1", None, &lines([1, 2]));
    put(&root, "day-2", None, &lines([3]));
    run(&root, 0);
    assert_eq!(shelf(&root, None).numbers().unwrap(), [1]);
    #[expect(clippy::disallowed_methods, reason = "a test undoes a commit")]
    fs::remove_dir_all(root.part("bigmerge", "receipts")).unwrap();
    put(&root, "day-1", None, &lines([1, 2]));
    put(&root, "day-3", None, &lines([4]));
    run(&root, 0);
    let generation = shelf(&root, None).describe(2).unwrap().unwrap();
    assert_eq!(
        (
            generation.lines,
            generation.duplicates,
            generation.members.len()
        ),
        (4, 0, 1)
    );
}

#[test]
fn a_builder_that_died_between_the_two_renames_is_followed_by_one_that_ends_its_work() {
    let root = root("");
    put(&root, "day-1", None, &lines([1]));
    run(&root, 0);
    put(&root, "day-2", None, &lines([2]));
    run(&root, 0);
    let shelf = shelf(&root, None);
    // As it was: generation 2 there, `current` still at 1, a third begun.
    let current = shelf.root().join("current");
    #[expect(clippy::disallowed_methods, reason = "a test undoes a swap")]
    fs::remove_file(&current).unwrap();
    symlink("generations/1", &current).unwrap();
    fs::create_dir(shelf.root().join("generations/.tmp-3")).unwrap();
    fs::write(
        shelf.root().join("generations/.tmp-3/index.cdxj"),
        "half a l",
    )
    .unwrap();
    assert_eq!(index(&root, "index"), lines([1]));
    put(&root, "day-3", None, &lines([3]));
    run(&root, 0);
    assert_eq!(index(&root, "index"), lines([1, 2, 3]));
    assert_eq!(root.list("../index", "generations"), ["1", "2", "3"]);
}

#[test]
fn an_index_that_is_not_what_was_written_stops_the_stage() {
    let root = root("");
    put(&root, "day-1", None, &lines([1, 2, 3]));
    run(&root, 0);
    let path = root.path().join("index/generations/1").join(FLAT);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"2\"", "\"7\"")).unwrap();
    put(&root, "day-2", None, &lines([4]));
    let said = run(&root, 74);
    assert!(
        said.contains("generations/1/index.cdxj is not what was written"),
        "{said}"
    );
    assert_eq!(root.list("bigmerge", "ready"), ["day-2~0"], "the day waits");
    assert_eq!(root.list("../index", "generations"), ["1"]);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test loses an index")]
fn a_lost_index_stops_the_stage_until_it_is_back() {
    let lost: [(&str, &str); 5] = [
        ("index/current/index.cdxj", "index.cdxj is not there"),
        (
            "index/current/path-index.txt",
            "path-index.txt is not there",
        ),
        (
            "index/current/generation.json",
            "generation.json is not there",
        ),
        ("index/generations/2", "its directory is not there"),
        ("index", "there is no index in "),
    ];
    for (path, reason) in lost {
        let root = root("");
        for (name, pages) in [("day-1", [1, 2, 3]), ("day-2", [4, 5, 6])] {
            put(&root, name, None, &lines(pages));
            run(&root, 0);
        }
        let (path, away) = (root.path().join(path), root.path().join("away"));
        fs::rename(&path, &away).unwrap();
        put(&root, "day-3", None, &lines([7]));
        let said = run(&root, 74);
        assert!(said.contains(reason), "{said}");
        assert!(said.contains("When an index is lost"), "{said}");
        assert_eq!(root.list("bigmerge", "ready"), ["day-3~0"], "{reason}");
        let manifest = Manifest::open(&root.path().join("manifest.sqlite"), root.path()).unwrap();
        assert!(manifest.file("day-3").unwrap().is_none(), "{reason}");
        // What the stage made to look there is in the way of what comes back.
        let _ = fs::remove_dir_all(&path);
        fs::rename(&away, &path).unwrap();
        run(&root, 0);
        assert_eq!(index(&root, "index"), lines(1..=7));
    }
}

#[test]
fn a_generation_tells_the_lines_of_its_lists() {
    let root = root("");
    put(&root, "day-1", None, &lines([1, 2, 3]));
    run(&root, 0);
    let path = root.path().join("index/current").join(DESCRIPTION);
    let text = fs::read_to_string(path).unwrap();
    let generation: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(generation["schema"], 2);
    for (at, name, lines) in [(0, FLAT, 3), (1, PATHS, 1)] {
        let file = &generation["files"][at];
        assert_eq!(
            (&file["name"], &file["lines"]),
            (&name.into(), &lines.into())
        );
    }
}

#[test]
fn an_index_put_there_by_hand_is_checked_line_by_line() {
    let root = root("");
    let generation = root.path().join("index/generations/41");
    fs::create_dir_all(&generation).unwrap();
    fs::write(generation.join(FLAT), lines([1, 5])).unwrap();
    symlink("generations/41", root.path().join("index/current")).unwrap();
    put(&root, "day-1", None, &lines([3]));
    // Nobody has said yet that it is not one of ours whose description was lost.
    let said = run(&root, 74);
    assert!(said.contains("generations/41/by-hand"), "{said}");
    fs::write(generation.join(BY_HAND), "").unwrap();
    run(&root, 0);
    assert_eq!(index(&root, "index"), lines([1, 3, 5]));
    assert_eq!(shelf(&root, None).current_number().unwrap(), Some(42));

    let root = common::root("");
    let generation = root.path().join("index/generations/1");
    fs::create_dir_all(&generation).unwrap();
    fs::write(
        generation.join(FLAT),
        format!("{}{}{}", line(1), line(5), line(2)),
    )
    .unwrap();
    fs::write(generation.join(BY_HAND), "").unwrap();
    symlink("generations/1", root.path().join("index/current")).unwrap();
    put(&root, "day-1", None, &lines([3]));
    let said = run(&root, 74);
    assert!(
        said.contains("line 3 of") && said.contains("not in byte order"),
        "{said}"
    );
    assert_eq!(
        root.list("bigmerge", "ready"),
        ["day-1~0"],
        "the day is not at fault"
    );
}

#[test]
fn without_room_it_waits_and_says_both_figures() {
    let root = root("spare = \"1000 TiB\"");
    put(&root, "day-1", None, &lines([1]));
    let said = run(&root, 75);
    assert!(said.contains("index needs 1048576001 MiB, "), "{said}");
    assert!(said.contains(" free"), "{said}");
    assert_eq!(root.list("bigmerge", "deferred").len(), 1);
    assert_eq!(root.list("../index", "generations"), [""; 0]);
}

#[test]
fn many_days_are_merged_in_rounds_and_rechecked() {
    let root = root("recheck = true\nbatch = { parcels = 1000, wait = \"1s\" }");
    for number in 0..300 {
        put(
            &root,
            &format!("day-{number:03}"),
            None,
            &lines([number, number + 300]),
        );
    }
    run(&root, 0);
    assert_eq!(index(&root, "index"), lines(0..600));
    assert_eq!(shelf(&root, None).numbers().unwrap(), [1]);
}

#[test]
fn zipnum_serves_the_lines_of_the_flat_index() {
    let root = root("zipnum = true\nzipnum-lines = 7\nzipnum-shard = \"200 B\"");
    put(
        &root,
        "day-1",
        None,
        &lines((0..100).filter(|n| n % 2 == 0)),
    );
    run(&root, 0);
    put(
        &root,
        "day-2",
        None,
        &lines((0..100).filter(|n| n % 3 == 0)),
    );
    run(&root, 0);
    let current = shelf(&root, None).current().unwrap().unwrap();
    let flat = Lookup::open(&current.join(FLAT)).unwrap();
    let zipnum = Lookup::open(&current.join(SUMMARY)).unwrap();
    let keys = (0..100).map(|page| format!("org,example)/{page:06}"));
    let ranges = keys.map(|key| KeyRange::exact(key.as_bytes()));
    let ranges = ranges.chain([KeyRange::all(), KeyRange::prefix(b"org,example)/00004")]);
    for range in ranges {
        let found = |lookup: &Lookup| -> Vec<Vec<u8>> {
            lookup
                .range(range.clone())
                .unwrap()
                .map(Result::unwrap)
                .collect()
        };
        assert_eq!(found(&flat), found(&zipnum), "{range:?}");
    }
    let generation = shelf(&root, None).describe(2).unwrap().unwrap();
    assert!(generation.files.len() > 5, "{:?}", generation.files);
    for file in &generation.files {
        let bytes = fs::metadata(current.join(&file.name)).unwrap().len();
        assert_eq!(bytes, file.bytes, "{}", file.name);
    }
}
