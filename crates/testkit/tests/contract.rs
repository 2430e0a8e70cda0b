//! The contract of every stage, kept by the samples, and what becomes of a parcel by blame.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and moves as an operator does"
)]

use std::path::Path;

use ecluse_testkit::contract::Contract;
use ecluse_testkit::root::{Root, until_so};

const RELAY: &str = env!("CARGO_BIN_EXE_ecluse-relay");
const SPLIT: &str = env!("CARGO_BIN_EXE_ecluse-split");
const TALLY: &str = env!("CARGO_BIN_EXE_ecluse-tally");

#[test]
fn relay_keeps_the_contract() {
    Contract {
        stage: "relay",
        binary: Path::new(RELAY),
        settings: "",
        good: &[("data", b"good"), ("more", b"and more")],
        bad: &[("data", b"hold this one")],
    }
    .keep();
}

#[test]
fn split_keeps_the_contract() {
    Contract {
        stage: "split",
        binary: Path::new(SPLIT),
        settings: "workers = 2",
        good: &[("data", b"abcdefgh")],
        bad: &[],
    }
    .keep();
}

#[test]
fn tally_keeps_the_contract() {
    Contract {
        stage: "tally",
        binary: Path::new(TALLY),
        settings: "batch = { parcels = 100, wait = \"50ms\" }",
        good: &[("data", b"counted")],
        bad: &[],
    }
    .keep();
}

fn relay_root(more: &str) -> Root {
    let root = Root::new();
    root.settings(&["relay", "sink"], &format!("[stage.relay]\n{more}\n"));
    root
}

#[test]
fn a_held_parcel_says_why_and_its_neighbours_pass() {
    let root = relay_root("");
    root.put("relay", "bad", b"hold it");
    for number in 0..4 {
        root.put("relay", &format!("good-{number}"), b"fine");
    }
    let (code, said) = root.run(RELAY, &["--once"]);
    assert_eq!(code, 65, "{said}");
    assert_eq!(root.list("relay", "held"), ["bad~1"]);
    assert_eq!(root.why("relay", "bad"), "bad asks to be held");
    assert_eq!(root.list("sink", "ready").len(), 4);
    // Held is not tried again.
    let (code, said) = root.run(RELAY, &["--once"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(root.list("relay", "held"), ["bad~1"]);
}

#[test]
fn a_deferred_parcel_waits_longer_each_time_and_its_attempts_do_not_count() {
    let root =
        relay_root("retry = { first = \"100s\", factor = 1000.0, max = \"7d\", limit = \"90d\" }");
    root.put("relay", "later", b"defer it");
    root.put("relay", "good", b"fine");
    let before = now();
    let (code, said) = root.run(RELAY, &["--once"]);
    assert_eq!(code, 75, "{said}");
    let first = due(&root);
    let about = before + 50..now() + 200;
    assert!(about.contains(&first), "100 seconds or so: {first}");
    assert_eq!(root.list("sink", "ready"), ["good~0"]);
    // It is due, as by the hand of an operator: it is tried again, and waits a thousand times as long.
    let deferred = root.part("relay", "deferred");
    let name = root.list("relay", "deferred").remove(0);
    std::fs::rename(deferred.join(name), deferred.join("1~later~0")).unwrap();
    let (code, said) = root.run(RELAY, &["--once"]);
    assert_eq!(code, 75, "{said}");
    assert!(due(&root) >= before + 50_000);
    let name = root.list("relay", "deferred").remove(0);
    assert!(
        name.ends_with("~later~0"),
        "{name}: deferring is no attempt"
    );
    assert_eq!(root.list("relay", "held"), [""; 0]);
}

fn due(root: &Root) -> u64 {
    let deferred = root.list("relay", "deferred");
    let [name] = deferred.as_slice() else {
        panic!("one is deferred: {deferred:?}");
    };
    let (due, _) = name.split_once('~').unwrap();
    due.parse().unwrap()
}

fn now() -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap();
    since.as_secs()
}

#[test]
fn a_parcel_deferred_past_the_limit_is_held() {
    let root = relay_root("retry = { first = \"1s\", factor = 1.0, max = \"1s\", limit = \"1s\" }");
    root.put("relay", "later", b"defer it");
    until_so("it to be held", || {
        let (code, said) = root.run(RELAY, &["--once"]);
        assert!([65, 75].contains(&code), "{code}: {said}");
        code == 65
    });
    assert_eq!(root.list("relay", "held"), ["later~1"]);
    let why = root.why("relay", "later");
    assert!(
        why.starts_with("deferred ") && why.ends_with("later asks to wait"),
        "{why}"
    );
}

#[test]
fn a_parcel_that_crashes_its_work_is_held_after_the_attempts_and_the_stage_lives_on() {
    let root = relay_root("attempts = 3");
    root.put("relay", "crash", b"panic");
    root.put("relay", "good", b"fine");
    let mut program = root.start(RELAY, &[]);
    root.await_count("relay", "held", 1);
    root.await_count("sink", "ready", 1);
    root.put("relay", "after", b"fine too");
    root.await_count("sink", "ready", 2);
    assert_eq!(program.stop(), 0);
    assert_eq!(root.list("relay", "held"), ["crash~3"]);
    let why = root.why("relay", "crash");
    assert_eq!(why, "its work crashed 3 times: crash asks for a crash");
    assert_eq!(
        program.lines_with("asks for a crash"),
        3 + 1,
        "one line a crash, one for the hold"
    );
    assert_eq!(program.lines_with("backtrace"), 0);
    assert!(
        program.log().lines().all(|line| line.starts_with('{')),
        "{}",
        program.log()
    );
}

#[test]
fn a_halt_stops_the_run_and_keeps_the_parcel() {
    let root = relay_root("");
    root.put("relay", "breaker", b"halt");
    let (code, said) = root.run(RELAY, &["--once"]);
    assert_eq!(code, 74, "{said}");
    assert!(said.contains("breaker breaks the machine"), "{said}");
    let halts = said.matches("the machine is not well").count();
    assert_eq!(halts, 3, "tried a few times, not for ever: {said}");
    assert_eq!(
        root.list("relay", "ready"),
        ["breaker~0"],
        "no attempt counts"
    );
    assert_eq!(root.list("relay", "claim"), [""; 0]);
}

#[test]
fn a_halt_that_lasts_does_not_spin_and_does_not_stop_the_neighbours() {
    let root = relay_root("");
    root.put("relay", "breaker", b"halt");
    for number in 0..10 {
        root.put("relay", &format!("good-{number}"), b"fine");
    }
    let mut program = root.start(RELAY, &[]);
    root.await_count("sink", "ready", 10);
    until_so("four halts", || {
        program.lines_with("the machine is not well") >= 4
    });
    // By its own log it rests between two halts, however slow the machine is.
    let log = program.log();
    let halts: Vec<jiff::Timestamp> = log
        .lines()
        .filter(|line| line.contains("the machine is not well"))
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            line["time"].as_str().unwrap().parse().unwrap()
        })
        .collect();
    for pair in halts.windows(2) {
        let rest = pair[1].duration_since(pair[0]);
        assert!(rest.as_millis() >= 490, "{rest:?} between two halts: {log}");
    }
    assert_eq!(program.stop(), 0, "{}", program.log());
    assert_eq!(root.list("relay", "ready"), ["breaker~0"]);
}

#[test]
fn one_that_kills_its_process_costs_no_neighbour_an_attempt_twice() {
    let root = relay_root("attempts = 3\nwedge-until = \"/nonexistent\"");
    root.put("relay", "killer", b"wedge");
    for number in 0..12 {
        root.put("relay", &format!("good-{number}"), b"fine");
    }
    // Killed in the middle of it, as the kernel does when memory runs out.
    for attempt in 1..=3 {
        let mut program = root.start(RELAY, &[]);
        let in_hand = format!("killer~{attempt}");
        until_so("the killer in hand", || {
            program.must_live();
            root.claimed("relay").contains(&in_hand)
        });
        program.signal(rustix::process::Signal::KILL);
        assert_eq!(program.wait(), -9);
    }
    let (code, said) = root.run(RELAY, &["--once"]);
    assert_eq!(code, 65, "{said}");
    assert_eq!(root.list("relay", "held"), ["killer~3"]);
    assert_eq!(root.why("relay", "killer"), "its worker died, 3 times");
    assert_eq!(root.list("sink", "ready").len(), 12);
}

#[test]
fn two_copies_of_one_parcel_do_not_stop_a_stage() {
    let root = relay_root("");
    root.put("relay", "twin", b"the same");
    let (from, to) = (
        root.part("relay", "ready/twin~0"),
        root.part("relay", "ready/twin~4"),
    );
    std::fs::create_dir(&to).unwrap();
    for name in ["parcel.json", "data"] {
        std::fs::copy(from.join(name), to.join(name)).unwrap();
    }
    root.put("relay", "other", b"another");
    let (code, said) = root.run(RELAY, &["--once"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(root.list("sink", "ready"), ["other~0", "twin~0"]);
    assert_eq!(root.list("relay", "ready"), [""; 0]);
}

#[test]
fn a_file_still_being_written_does_not_keep_a_run_from_ending() {
    let root = relay_root("");
    root.drop_file("relay", "a.warc.gz.part", b"half of");
    root.drop_file("relay", ".hidden", b"not for us");
    root.drop_file("relay", "whole", b"all of it");
    let (code, said) = root.run(RELAY, &["--once"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(root.list("sink", "ready").len(), 1);
    assert_eq!(root.list("relay", "drop"), [".hidden", "a.warc.gz.part"]);
}
