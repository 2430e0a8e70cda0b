//! Killed at any moment, two at once: every line is in the index once, and a reader never misses it.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ecluse_generation::{DESCRIPTION, FLAT, IndexDirectory, IndexGeneration, PATHS};
use ecluse_testkit::root::until_so;
use rustix::process::Signal;

use common::{BIGMERGE, index, lines, put, root, run};

const DAYS: u32 = 60;
const KILLS: u64 = 40;
/// Pages of one day; every tenth is also the next day's.
const PAGES: u32 = 2_000;

fn day(number: u32) -> String {
    let (from, shared) = (number * PAGES, PAGES / 10);
    lines(from..from + PAGES + shared)
}

#[test]
fn killed_at_any_moment_every_line_is_there_once_and_readers_see_whole_generations() {
    let settings = "keep = 1000\nattempts = 1000\nbatch = { parcels = 3, wait = \"1ms\" }";
    let root = root(settings);
    for number in 0..DAYS {
        put(&root, &format!("day-{number:02}"), None, &day(number));
    }
    let ended = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_until(&ended, &root.path().join("index")));
        let mut killed = 0;
        for kill in 0..KILLS {
            let pair = [(), ()].map(|()| root.start(BIGMERGE, &["--once"]));
            // Somewhere in their work; where exactly is left to the machine.
            std::thread::sleep(Duration::from_millis(15 + kill * 37 % 90));
            for mut program in pair {
                program.signal(Signal::KILL);
                let code = program.wait();
                assert!([-9, 0].contains(&code), "{code}: {}", program.log());
                killed += u32::from(code == -9);
            }
        }
        println!("{killed} were killed");
        assert!(killed > 0, "all were done before they could be killed");
        run(&root, 0);
        ended.store(true, Ordering::SeqCst);
        reader.join().unwrap()
    });
    assert!(seen > 0, "the reader has read");
    assert_eq!(index(&root, "index"), lines(0..DAYS * PAGES + PAGES / 10));
    let paths = fs::read_to_string(root.path().join("index/current").join(PATHS)).unwrap();
    assert_eq!(paths.lines().count(), DAYS as usize);
    assert_eq!(root.list("bigmerge", "held"), [""; 0]);

    // No day went into two generations, whoever was killed after the swap.
    let shelf = IndexDirectory::of(&root.path().join("index"), None).unwrap();
    let mut members = HashSet::new();
    for number in shelf.numbers().unwrap() {
        for member in shelf.describe(number).unwrap().unwrap().members {
            assert!(
                members.insert(member.parcel.clone()),
                "{} twice",
                member.parcel
            );
        }
    }
    assert_eq!(members.len(), DAYS as usize);
    let entries = fs::read_dir(root.path().join("index/generations")).unwrap();
    let numbers = shelf.numbers().unwrap();
    assert_eq!(entries.count(), numbers.len(), "nothing half built is left");
    println!("{} generations", numbers.len());
}

/// Reads the index as replay does, again and again; returns how often.
fn read_until(ended: &AtomicBool, index: &Path) -> u64 {
    let (mut reads, mut last_count) = (0, 0);
    while !ended.load(Ordering::SeqCst) {
        let open = fs::File::open(index.join("current").join(FLAT));
        if reads == 0 && open.is_err() {
            std::thread::yield_now();
            continue;
        }
        open.expect("there is an index at every moment once there was one");
        // Two files of one generation: the link is followed once.
        let generation = fs::canonicalize(index.join("current")).unwrap();
        let text = fs::read_to_string(generation.join(FLAT)).unwrap();
        let described = fs::read(generation.join(DESCRIPTION)).unwrap();
        let described: IndexGeneration = serde_json::from_slice(&described).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(text.ends_with('\n'), "whole lines");
        assert!(lines.is_sorted_by(|a, b| a < b), "in order, each line once");
        assert_eq!(
            lines.len() as u64,
            described.lines,
            "one generation, no mixture"
        );
        assert!(lines.len() >= last_count, "never back to an older one");
        last_count = lines.len();
        reads += 1;
    }
    reads
}

/// Two builders, the first of which lost its lock while it was stopped in the middle of its work.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test takes the lock away")]
fn a_builder_whose_lock_was_taken_away_publishes_nothing_mixed() {
    const PAGES: u32 = 300_000;
    let root = root("batch = { parcels = 1, wait = \"1ms\" }");
    put(&root, "day-0", None, &lines([PAGES]));
    run(&root, 0);
    put(&root, "day-1", None, &lines(0..PAGES));
    let mut slow = root.start(BIGMERGE, &["--once"]);
    let generations = root.path().join("index/generations");
    let is_building = || {
        let entries = fs::read_dir(&generations).unwrap().flatten();
        let mut names = entries.map(|entry| entry.file_name().into_string().unwrap());
        names.any(|name| name.starts_with(".tmp-2-"))
    };
    while !is_building() {
        std::thread::yield_now();
    }
    slow.signal(Signal::STOP);
    assert!(
        is_building(),
        "it was done before it could be stopped: more pages"
    );
    fs::remove_file(root.path().join("index/.lock")).unwrap();
    put(&root, "day-2", None, &lines([PAGES + 1]));
    let mut quick = root.start(BIGMERGE, &["--once"]);
    let current = root.path().join("index/current");
    until_so("the second builder has published", || {
        fs::read_link(&current).unwrap().ends_with("2")
    });
    assert_eq!(index(&root, "index"), lines([PAGES, PAGES + 1]));
    slow.signal(Signal::CONT);
    assert_eq!(slow.wait(), 75, "{}", slow.log());
    assert!(
        slow.log().contains("another builder is at work"),
        "{}",
        slow.log()
    );
    assert_eq!(index(&root, "index"), lines([PAGES, PAGES + 1]));
    assert!([0, 75].contains(&quick.wait()), "{}", quick.log());
    let manifest =
        ecluse_manifest::Manifest::open(&root.path().join("manifest.sqlite"), root.path()).unwrap();
    assert!(
        manifest.file("day-1").unwrap().is_none(),
        "it is not in the index"
    );
    // As `ecluse retry` does: it need not wait until it is due.
    let deferred = root.list("bigmerge", "deferred");
    let [parcel] = &deferred
        .iter()
        .filter(|name| name.contains("day-1"))
        .collect::<Vec<_>>()[..]
    else {
        panic!("{deferred:?}");
    };
    let from = root.part("bigmerge", "deferred").join(parcel);
    fs::rename(from, root.part("bigmerge", "ready").join("day-1~0")).unwrap();
    run(&root, 0);
    assert_eq!(index(&root, "index"), lines(0..PAGES + 2));
}
