//! A sick machine: full, read-only, failing and foreign file systems, clocks, bells, crowds.
//!
//! In each case nothing is lost, the stage says what is wrong, and it goes on by itself when the
//! cause is gone. Cases that mount something run again in namespaces of their own, which an
//! ordinary user may make on most systems; where neither that nor root can be had they say so.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::fs;
use std::process::Command;
use std::time::Instant;

use ecluse_spool::{ParcelId, ParcelManifest};
use ecluse_testkit::cannot_run;
use ecluse_testkit::machine::{INSIDE, empty, fill, inside, mount, sh};
use ecluse_testkit::root::{Program, Root, settle_environment, until, until_so};
use rustix::process::Signal;
use tempfile::TempDir;

const RELAY: &str = env!("CARGO_BIN_EXE_ecluse-relay");

fn relay_settings(root: &Root, more: &str) {
    root.settings(&["relay", "sink"], &format!("[stage.relay]\n{more}\n"));
}

/// A root on a file system of its own.
fn mounted(size: &str, more: &str) -> (TempDir, Root) {
    let dir = TempDir::new().unwrap();
    mount(dir.path(), size);
    let root = Root::at(dir.path());
    relay_settings(&root, more);
    (dir, root)
}

/// Every parcel has passed, once, at its first attempt.
fn all_passed(root: &Root, parcels: usize) {
    assert_eq!(root.list("sink", "ready").len(), parcels);
    for part in ["ready", "claim", "reap", "held", "deferred"] {
        assert_eq!(root.list("relay", part), [""; 0], "{part}");
    }
    let mut seen = 0;
    let see = &mut |filed: ecluse_spool::Filed| {
        seen += 1;
        assert_eq!(
            filed.receipt.attempt, 1,
            "the machine's fault is no attempt"
        );
    };
    root.tree().each_receipt("relay", see).unwrap();
    assert_eq!(seen, parcels);
    must_be_whole(root, "sink");
}

/// Every parcel waiting in a stage has the files its manifest names, byte for byte.
fn must_be_whole(root: &Root, stage: &str) {
    let tree = root.tree();
    let mut places = Vec::new();
    tree.each_place(stage, &mut |place| places.push(place))
        .unwrap();
    for place in places {
        let bytes = fs::read(place.path.join("parcel.json")).unwrap();
        let manifest: ParcelManifest = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(manifest.id, place.parcel);
        for file in &manifest.files {
            let bytes = fs::read(place.path.join(&file.name)).unwrap();
            assert_eq!(bytes.len() as u64, file.bytes, "{:?}", place.path);
            assert_eq!(
                ecluse_spool::digest(&bytes),
                file.sha256,
                "{:?}",
                place.path
            );
        }
    }
}

#[test]
fn a_full_disk_halts_until_there_is_room() {
    if !inside("a_full_disk_halts_until_there_is_room") {
        return;
    }
    let (_dir, root) = mounted("4m", "");
    root.tree()
        .pause("relay", "test", "until it is full")
        .unwrap();
    for number in 0..5 {
        root.put("relay", &format!("p-{number}"), b"some bytes");
    }
    let mut program = root.start_ready(RELAY, "relay", &[]);
    root.await_note("relay", "blocked");
    let filler = fill(root.path());
    root.tree().resume("relay").unwrap();
    let why = root.await_note("relay", "halted");
    assert!(why.contains("No space left on device"), "{why}");
    program.await_log("the machine is not well: claiming nothing");
    until_so("everything given back", || {
        root.list("relay", "ready").len() == 5
    });
    assert_eq!(root.list("sink", "ready"), [""; 0]);
    program.must_live();
    empty(&filler);
    root.await_count("sink", "ready", 5);
    program.await_log("the machine is well again");
    root.await_note("relay", "idle");
    assert_eq!(program.stop(), 0, "{}", program.log());
    all_passed(&root, 5);
}

#[test]
fn a_run_on_a_full_disk_ends_with_74_and_loses_nothing() {
    if !inside("a_run_on_a_full_disk_ends_with_74_and_loses_nothing") {
        return;
    }
    let (_dir, root) = mounted("4m", "");
    root.put("relay", "p", b"some bytes");
    root.drop_file("relay", "dropped", b"a file");
    let filler = fill(root.path());
    let (code, said) = root.run(RELAY, &["--once"]);
    assert_eq!(code, 74, "{said}");
    assert!(said.contains("No space left on device"), "{said}");
    assert_eq!(root.list("relay", "ready"), ["p~0"]);
    assert_eq!(root.list("relay", "drop"), ["dropped"]);
    empty(&filler);
    let (code, said) = root.run(RELAY, &["--once"]);
    assert_eq!(code, 0, "{said}");
    all_passed(&root, 2);
}

#[test]
fn too_little_room_blocks_until_there_is_more() {
    if !inside("too_little_room_blocks_until_there_is_more") {
        return;
    }
    let (_dir, root) = mounted("8m", "min-free = \"4 MiB\"");
    let filler = root.path().join("filler");
    fs::write(&filler, vec![0; 6 << 20]).unwrap();
    root.put("relay", "p", b"some bytes");
    let mut program = root.start_ready(RELAY, "relay", &[]);
    let why = root.await_note("relay", "blocked");
    assert!(why.contains("free, needs 4 MiB"), "{why}");
    program.await_log("claiming nothing");
    assert_eq!(root.list("relay", "ready"), ["p~0"]);
    // A run that is to end says so instead of waiting.
    let (code, said) = root.run(RELAY, &["--once"]);
    assert_eq!(code, 75, "{said}");
    assert!(said.contains("needs 4 MiB"), "{said}");
    empty(&filler);
    root.await_count("sink", "ready", 1);
    program.await_log("claiming again");
    assert_eq!(program.stop(), 0);
    all_passed(&root, 1);
}

#[test]
fn a_read_only_disk_halts_until_it_can_be_written() {
    if !inside("a_read_only_disk_halts_until_it_can_be_written") {
        return;
    }
    let (_dir, root) = mounted("16m", "");
    let outside = TempDir::new().unwrap();
    let go_on = outside.path().join("go-on");
    relay_settings(&root, &format!("wedge-until = {go_on:?}"));
    for number in 0..4 {
        root.put("relay", &format!("p-{number}"), b"wedge");
    }
    let mut program = root.start(RELAY, &[]);
    until_so("one in hand", || {
        program.must_live();
        !root.claimed("relay").is_empty()
    });
    // The same tree, mounted over itself: every path leads to a file system that cannot be written.
    sh(
        "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\"",
        root.path(),
    );
    fs::write(&go_on, "").unwrap();
    program.await_log("the machine is not well: claiming nothing");
    program.await_log("Read-only file system");
    program.must_live();
    assert_eq!(root.list("sink", "ready"), [""; 0]);
    sh("umount -l \"$1\"", root.path());
    root.await_count("sink", "ready", 4);
    program.await_log("the machine is well again");
    assert_eq!(program.stop(), 0, "{}", program.log());
    all_passed(&root, 4);
    // A stage that starts on one ends at once, with a line that says why.
    sh(
        "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\"",
        root.path(),
    );
    let (code, said) = root.run(RELAY, &[]);
    assert_eq!(code, 74, "{said}");
    assert!(said.contains("Read-only file system"), "{said}");
    let mut check = root.start(RELAY, &["--check"]);
    assert_eq!(
        check.wait(),
        0,
        "--check needs no writable disk: {}",
        check.log()
    );
}

/// Starts the relay with some of its system calls failing.
fn failing(root: &Root, inject: &str) -> Program {
    let mut probe = Command::new("strace");
    let works = probe.args(["-o", "/dev/null", "true"]).output();
    assert!(
        works.is_ok_and(|output| output.status.success()),
        "needs strace, and leave to trace a program: apt-get install strace"
    );
    let mut command = Command::new("strace");
    settle_environment(&mut command);
    // -D: the program is our child, the tracer is not, so that signals reach the right one.
    command.args([
        "-D",
        "-f",
        "-o",
        "/dev/null",
        "-e",
        "trace=fsync,fdatasync,syncfs",
    ]);
    command.args(["-e", &format!("inject={inject}"), RELAY, "--root"]);
    command.arg(root.path());
    Program::start(command)
}

#[test]
fn a_failed_fsync_is_not_tried_again_on_the_same_bytes_and_loses_nothing() {
    // Three come before the worker is born; strace counts those of each thread. The ranges cover the outputs, the
    // sheet, and the directory of the receipt, which is synced after the link.
    for first in [4, 6, 9, 11] {
        let root = Root::new();
        relay_settings(&root, "");
        for stage in ["relay", "sink"] {
            root.tree().init(stage).unwrap();
        }
        root.put("relay", "p", b"some bytes");
        let last = first + 1;
        let mut program = failing(&root, &format!("fsync:error=EIO:when={first}..{last}"));
        root.await_count("sink", "ready", 1);
        program.await_log("Input/output error");
        program.await_log("the machine is well again");
        assert_eq!(program.stop(), 0, "{first}: {}", program.log());
        all_passed(&root, 1);
    }
}

#[test]
fn a_failed_sync_of_a_group_loses_nothing() {
    let root = Root::new();
    relay_settings(&root, "");
    for number in 0..30 {
        root.put("relay", &format!("p-{number}"), b"some bytes");
    }
    let mut program = failing(&root, "syncfs:error=EIO:when=1+2");
    // Every other one fails: what is committed on the way stays, the rest comes again.
    root.await_count("sink", "ready", 30);
    program.await_log("Input/output error");
    assert_eq!(program.stop(), 0, "{}", program.log());
    all_passed(&root, 30);
}

#[test]
fn a_first_scan_that_fails_is_no_end() {
    let root = Root::new();
    relay_settings(&root, "wedge-until = \"/\"");
    root.tree().init("sink").unwrap();
    root.put("relay", "p", b"sleep 600000");
    let mut dead = root.start(RELAY, &[]);
    until_so("the parcel in hand", || !root.claimed("relay").is_empty());
    dead.signal(Signal::KILL);
    dead.wait();
    // Settling the dead worker is the first thing the next one does; its sync fails.
    let mut program = failing(&root, "fsync:error=EIO:when=4..5");
    program.await_log("the machine is well again");
    until_so("the parcel in hand again", || {
        program.must_live();
        root.claimed("relay") == ["p~2"]
    });
    assert_eq!(program.stop(), 0, "{}", program.log());
    assert_eq!(root.list("relay", "ready"), ["p~1"]);
}

#[test]
fn a_wall_clock_that_jumps_changes_no_due_time() {
    let library = ecluse_peers::libfaketime();
    let root = Root::new();
    relay_settings(
        &root,
        "retry = { first = \"2s\", factor = 1.0, max = \"2s\", limit = \"7d\" }\nsettle = \"200ms\"",
    );
    let clock = root.path().join("clock");
    fs::write(&clock, "+0").unwrap();
    let mut command = root.program(RELAY);
    command
        .env("LD_PRELOAD", library)
        .env("FAKETIME_TIMESTAMP_FILE", &clock)
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        // Files are stamped by another clock than this host's.
        .env("NO_FAKE_STAT", "1")
        .env("FAKETIME_DONT_RESET", "1");
    root.put("relay", "later", b"defer");
    let mut program = Program::start(command);
    let due = |root: &Root| -> Option<u64> {
        let deferred = root.list("relay", "deferred");
        deferred.first()?.split('~').next()?.parse().ok()
    };
    let first = until("a deferral", || {
        program.must_live();
        due(&root)
    });
    fs::write(&clock, "-3600").unwrap();
    let second = until("the next deferral", || {
        due(&root).filter(|due| *due != first)
    });
    assert!((first..first + 1800).contains(&second), "{first} {second}");
    // A file and a parcel that are an hour older than now are taken like any other.
    root.drop_file("relay", "from-the-future", b"bytes");
    root.put("relay", "p", b"bytes");
    root.await_count("sink", "ready", 2);
    program.must_live();
    // And forward again.
    fs::write(&clock, "+3600").unwrap();
    let second = due(&root);
    let third = until("the deferral after it", || {
        due(&root).filter(|due| Some(*due) != second)
    });
    assert!((first..first + 1800).contains(&third), "{first} {third}");
    assert_eq!(program.stop(), 0, "{}", program.log());
    assert_eq!(root.list("relay", "held"), [""; 0]);
    assert_eq!(root.list("relay", "deferred").len(), 1);
}

#[test]
fn a_hundred_thousand_waiting_parcels_are_no_trouble() {
    if !inside("a_hundred_thousand_waiting_parcels_are_no_trouble") {
        return;
    }
    const PARCELS: usize = 100_000;
    const ENOUGH: usize = 2_000;
    let (_dir, root) = mounted("2g", "high-mark = 1000000\nlow-mark = 900000");
    let tree = root.tree();
    let ready = tree.init("relay").unwrap().ready();
    let began = Instant::now();
    // Two hands: this is most of the test's time.
    std::thread::scope(|scope| {
        for hand in 0..2 {
            let ready = &ready;
            scope.spawn(move || {
                for number in (hand..PARCELS).step_by(2) {
                    let id = ParcelId::new(&format!("p-{number:06}")).unwrap();
                    let dir = ready.join(format!("{id}~0"));
                    fs::create_dir(&dir).unwrap();
                    let manifest = ParcelManifest::new(id, "test", "0".into());
                    fs::write(dir.join("parcel.json"), manifest.to_bytes()).unwrap();
                }
            });
        }
    });
    eprintln!("measured: {PARCELS} parcels made in {:?}", began.elapsed());
    let limits = ecluse_spool::WorkerLimits::default();
    let mut worker = ecluse_spool::Worker::open(&tree, "relay", &[], limits, "test").unwrap();
    let began = Instant::now();
    let scan = worker.scan().unwrap();
    eprintln!(
        "measured: scan of {PARCELS} parcels in {:?}",
        began.elapsed()
    );
    assert_eq!(scan.total, PARCELS);
    assert!(
        scan.waiting.len() < 10_000,
        "the backlog is not held in memory"
    );
    let began = Instant::now();
    assert_eq!(worker.scan().unwrap().total, PARCELS);
    eprintln!("measured: scan again in {:?}", began.elapsed());
    worker.close().unwrap();

    let began = Instant::now();
    let mut program = root.start(RELAY, &["--workers", "2"]);
    let passed = || root.list("sink", "ready").len();
    until_so("some thousands to pass", || {
        program.must_live();
        passed() >= ENOUGH
    });
    eprintln!(
        "measured: {} parcels passed in {:?}",
        passed(),
        began.elapsed()
    );
    assert_eq!(program.stop(), 0, "{}", program.log());
    assert_eq!(
        program.lines_with("\"level\":\"error\""),
        0,
        "{}",
        program.log()
    );
    assert_eq!(root.list("relay", "claim"), [""; 0]);
    assert_eq!(
        root.list("relay", "ready").len() + passed(),
        PARCELS,
        "each in one place"
    );
    assert_eq!(root.receipts("relay"), passed());
}

#[test]
fn more_events_than_the_queue_holds_ring_the_bell() {
    if !inside("more_events_than_the_queue_holds_ring_the_bell") {
        return;
    }
    let text = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let queue: usize = text.trim().parse().unwrap();
    if queue > 200_000 {
        return cannot_run(&format!("the queue of this machine holds {queue} events"));
    }
    let (_dir, root) = mounted("1g", "scan = \"10m\"");
    let mut program = root.start_ready(RELAY, "relay", &[]);
    root.await_note("relay", "idle");
    program.signal(Signal::STOP);
    // Directories in drop/ ring no bell of their own.
    for number in 0..queue + 1000 {
        fs::create_dir(root.part("relay", "drop").join(number.to_string())).unwrap();
    }
    for number in 0..5 {
        root.put("relay", &format!("p-{number}"), b"bytes");
    }
    program.signal(Signal::CONT);
    root.await_count("sink", "ready", 5);
    assert_eq!(program.stop(), 0, "{}", program.log());
    all_passed(&root, 5);
}

#[test]
fn without_a_bell_the_directory_is_read_more_often() {
    let test = "without_a_bell_the_directory_is_read_more_often";
    if std::env::var_os(INSIDE).is_none() {
        let mut probe = Command::new("unshare");
        let none = "echo 0 > /proc/sys/user/max_inotify_instances";
        let output = probe.args(["-Urm", "sh", "-ec", none]).output();
        if !output.is_ok_and(|output| output.status.success()) {
            return cannot_run("needs unshare and user namespaces");
        }
    }
    if !inside(test) {
        return;
    }
    fs::write("/proc/sys/user/max_inotify_instances", "0").unwrap();
    let root = Root::new();
    relay_settings(&root, "scan = \"10m\"");
    let mut program = root.start_ready(RELAY, "relay", &[]);
    program.await_log("no bell on this machine: scanning more often instead");
    root.await_note("relay", "idle");
    root.put("relay", "p", b"bytes");
    root.drop_file("relay", "dropped", b"bytes");
    root.await_count("sink", "ready", 2);
    assert_eq!(program.stop(), 0, "{}", program.log());
    all_passed(&root, 2);
}

#[test]
fn a_destination_that_is_taken_away_is_made_again() {
    let root = Root::new();
    relay_settings(&root, "");
    let mut program = root.start_ready(RELAY, "relay", &[]);
    root.put("relay", "one", b"bytes");
    root.await_count("sink", "ready", 1);
    sh("rm -rf \"$1\"", &root.part("sink", ""));
    root.put("relay", "two", b"bytes");
    root.await_count("sink", "ready", 1);
    // Its waiting room alone.
    sh("rm -rf \"$1\"", &root.part("sink", "ready"));
    root.put("relay", "three", b"bytes");
    root.await_count("sink", "ready", 1);
    assert_eq!(program.stop(), 0, "{}", program.log());
    assert_eq!(
        program.lines_with("\"level\":\"error\""),
        0,
        "{}",
        program.log()
    );
}

#[test]
fn a_stage_emptied_under_its_feet_goes_on() {
    let root = Root::new();
    relay_settings(&root, "");
    let mut program = root.start_ready(RELAY, "relay", &[]);
    root.await_note("relay", "idle");
    sh("rm -rf \"$1\"/*", &root.part("relay", ""));
    root.put("relay", "one", b"bytes");
    root.await_count("sink", "ready", 1);
    // Its waiting room alone, while a parcel is in hand: that one goes back and is not lost.
    root.put("relay", "long", b"sleep 600000");
    until_so("it in hand", || !root.claimed("relay").is_empty());
    sh("rm -rf \"$1\"", &root.part("relay", "ready"));
    assert_eq!(program.stop(), 0, "{}", program.log());
    assert_eq!(root.list("relay", "ready"), ["long~0"]);
    must_be_whole(&root, "relay");
    // And while nothing is: made again, and the bell hangs on the new one.
    sh("rm -rf \"$1\"/*", &root.part("relay", "ready"));
    let mut program = root.start_ready(RELAY, "relay", &[]);
    root.await_note("relay", "idle");
    sh("rm -rf \"$1\"", &root.part("relay", "ready"));
    root.put("relay", "two", b"bytes");
    root.await_count("sink", "ready", 2);
    assert_eq!(program.stop(), 0, "{}", program.log());
}

#[test]
fn a_dead_workers_parcel_is_not_lost_with_its_waiting_room() {
    let root = Root::new();
    relay_settings(&root, "");
    root.put("relay", "long", b"sleep 600000");
    let mut program = root.start(RELAY, &[]);
    until_so("it in hand", || !root.claimed("relay").is_empty());
    let mut other = root.start_ready(RELAY, "relay", &[]);
    root.put("relay", "good", b"bytes");
    root.await_count("sink", "ready", 1);
    sh("rm -rf \"$1\"", &root.part("relay", "ready"));
    program.signal(Signal::KILL);
    program.wait();
    assert_eq!(other.stop(), 0, "{}", other.log());
    let mut next = root.start(RELAY, &[]);
    until_so("it in hand again", || {
        next.must_live();
        root.claimed("relay") == ["long~2"]
    });
    assert_eq!(next.stop(), 0);
    assert_eq!(root.list("relay", "ready"), ["long~1"]);
    must_be_whole(&root, "relay");
}

#[test]
fn a_destination_on_another_file_system_is_refused() {
    if !inside("a_destination_on_another_file_system_is_refused") {
        return;
    }
    let (_dir, root) = mounted("32m", "");
    let sink = root.part("sink", "");
    mount(&sink, "8m");
    assert!(root.tree().init("sink").is_err());
    root.put("relay", "p", b"bytes");
    let (code, said) = root.run(RELAY, &["--once"]);
    assert_eq!(code, 74, "{said}");
    assert!(said.contains("sink lies on another file system"), "{said}");
    assert_eq!(root.list("relay", "ready"), ["p~0"], "nothing is begun");
}
