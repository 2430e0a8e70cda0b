//! Killed two hundred times, anywhere in its work, it gives the same bytes as when it is left alone.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::collections::HashSet;
use std::fs;
use std::time::{Duration, Instant};

use ecluse_generation::IndexDirectory;
use ecluse_testkit::root::Root;
use rustix::process::Signal;

use common::*;

const KILLS: usize = 200;
const PARCELS: usize = 24;
const PAGES: usize = 3;

/// Captures of a few pages, told in many parcels.
fn full_root() -> Root {
    let root = root("keep = 1000\nattempts = 100000\nbatch = { parcels = 2, wait = \"1ms\" }");
    let mut lines = Vec::new();
    let mut names = Vec::new();
    for part in 0..PARCELS {
        let captures: Vec<Fetched> = (0..PAGES)
            .map(|n| {
                let at = format!("202601{:02}{:02}0000", 1 + part / 24, part % 24);
                page(
                    &format!("p{n}"),
                    &at,
                    &format!("<h1>{n}</h1><p>text of {}</p>", part / (n + 1)),
                )
            })
            .collect();
        let name = format!("part{part:02}.warc");
        let more = store(&root, &name, &captures);
        tell(&root, &format!("part-{part:02}"), None, &more);
        lines.extend(more);
        names.push(name);
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    publish(&root, None, &lines, &names);
    root
}

#[test]
fn killed_two_hundred_times_it_gives_the_same_bytes() {
    let calm = full_root();
    let begun = Instant::now();
    run(&calm, 0);
    let whole = begun.elapsed();
    let expected = given(&current(&calm));

    let mut killed = 0;
    // Some are done before they can be killed: then all begins anew.
    for _ in 0..60 {
        let root = full_root();
        for round in 0.. {
            let mut program = root.start(CHANGE, &["--once"]);
            // Somewhere in its work; where exactly is left to the machine.
            let part = u32::try_from(round * 37 % 100).unwrap();
            std::thread::sleep(Duration::from_millis(2) + whole * part / 250);
            program.signal(Signal::KILL);
            match program.wait() {
                -9 => killed += 1,
                0 => break,
                code => panic!("{code}: {}", program.log()),
            }
            if killed >= KILLS {
                break;
            }
        }
        run(&root, 0);
        assert!(given(&current(&root)) == expected, "after {killed} kills");
        assert_eq!(root.list("change", "held"), [""; 0]);
        must_be_tidy(&root);
        if killed >= KILLS {
            return println!("measured: {killed} kills, the same bytes each time");
        }
    }
    panic!("only {killed} could be killed");
}

/// No parcel went into two generations, and nothing half built is left.
fn must_be_tidy(root: &Root) {
    let changes = IndexDirectory::of(&root.path().join("changes"), None).unwrap();
    let mut members = HashSet::new();
    let numbers = changes.numbers().unwrap();
    for number in &numbers {
        for member in changes.describe(*number).unwrap().unwrap().members {
            assert!(
                members.insert(member.parcel.clone()),
                "{} twice",
                member.parcel
            );
        }
    }
    assert_eq!(members.len(), PARCELS);
    let entries = fs::read_dir(root.path().join("changes/generations")).unwrap();
    assert_eq!(entries.count(), numbers.len());
}
