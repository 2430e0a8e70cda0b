//! Killed two hundred times, anywhere in its work, it gives the same bytes as when it is left alone.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use common::{PRELOAD, root};
use ecluse_testkit::lists::{SOURCES, write_list};
use ecluse_testkit::root::{Root, contents};
use rustix::process::Signal;

const KILLS: usize = 200;
const LINES: u64 = 20_000;

fn full_root() -> Root {
    let root = root("memory = \"1 MiB\"\nlist = 1000\nattempts = 100000");
    for (place, (name, _, _)) in SOURCES.into_iter().enumerate() {
        let mut text = Vec::new();
        write_list(place, LINES, &mut text).unwrap();
        let sidecar = format!("name = \"{name}\"\nkind = \"selection\"");
        root.put_files(
            "preload",
            name,
            &[("list.txt", &text), ("source.toml", sidecar.as_bytes())],
        );
    }
    root
}

/// Everything it gave: parcels and reports.
fn given(root: &Root) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut given = contents(&root.part("sink", "ready"));
    given.extend(contents(&root.path().join("reports")));
    // Who did it and when is told there.
    given.retain(|path, _| !path.to_string_lossy().contains("history"));
    given
}

#[test]
fn killed_two_hundred_times_it_gives_the_same_bytes() {
    let quiet = full_root();
    let began = Instant::now();
    let (code, said) = quiet.run(PRELOAD, &["--once"]);
    assert_eq!(code, 0, "{said}");
    let whole = began.elapsed();
    let expected = given(&quiet);
    assert!(expected.len() > 10, "{} files", expected.len());

    let (mut kills, mut tries, mut rounds) = (0, 0, 0);
    while kills < KILLS {
        let root = full_root();
        loop {
            let mut program = root.start(PRELOAD, &["--once"]);
            // Somewhere in its work; where exactly is left to the machine.
            let part = tries * 37 % 100;
            tries += 1;
            std::thread::sleep(whole * part / 90 + Duration::from_millis(1));
            program.signal(Signal::KILL);
            match program.wait() {
                0 => break,
                -9 => kills += 1,
                code => panic!("{code}: {}", program.log()),
            }
        }
        rounds += 1;
        assert!(
            given(&root) == expected,
            "round {rounds}, after {kills} kills"
        );
        assert_eq!(root.list("preload", "held"), [""; 0]);
        assert_eq!(
            fs::read_dir(root.path().join("reports/preload"))
                .unwrap()
                .count(),
            1
        );
    }
    eprintln!("measured: {kills} kills, {rounds} times the same bytes");
}
