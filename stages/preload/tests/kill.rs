//! Killed two hundred times, anywhere in its work, it gives the same bytes as when it is left alone.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use common::{PRELOAD, root};
use ecluse_testkit::lists::{SOURCES, write_list};
use ecluse_testkit::root::{Root, contents};
use rustix::process::Signal;

const KILLS: usize = 200;
const LINES: u64 = 20_000;

fn full_root() -> Root {
    let root = root("memory = \"1 MiB\"\nlist = 1000\nattempts = 100000");
    // One list was read before and stands there.
    let standing = root.path().join("sources/registry/standing.txt");
    let mut text = b"127.0.0.1\nnulle-part-ailleurs.fr\n".to_vec();
    write_list(0, LINES / 10, &mut text).unwrap();
    fs::create_dir_all(standing.parent().unwrap()).unwrap();
    fs::write(standing, &text).unwrap();
    let (code, said) = root.run(PRELOAD, &["--once"]);
    assert_eq!(code, 0, "{said}");
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

/// Everything it gave: parcels and reports. A run is named by how the list that stands there looks, which is another in each root.
fn given(root: &Root) -> BTreeMap<String, Vec<u8>> {
    let mut files = contents(&root.part("sink", "ready"));
    files.extend(contents(&root.path().join("reports")));
    let mut given = BTreeMap::new();
    for (path, bytes) in files {
        let path = path.to_string_lossy().into_owned();
        // Who did it and when is told there.
        if path.contains("history") {
            continue;
        }
        let (before, after) = path.split_once("names-").unwrap();
        let (run, after) = after.split_at(RUN_DIGITS);
        let is_first = given_in_first_run(root, run);
        let place = format!("{before}{is_first}{after}");
        let mut bytes = bytes;
        if path.ends_with("parcel.json") {
            let mut manifest: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
            // Both tell of the run.
            for key in ["id", "born"] {
                manifest.as_object_mut().unwrap().remove(key).unwrap();
            }
            bytes = manifest.to_string().into_bytes();
        }
        assert!(given.insert(place, bytes).is_none(), "{path}");
    }
    given
}

/// How many digits tell one run from another.
const RUN_DIGITS: usize = 20;

/// Tells whether a run was of the list that stands there alone.
fn given_in_first_run(root: &Root, run: &str) -> bool {
    let report = root
        .path()
        .join("reports/preload")
        .join(format!("names-{run}"));
    let figures = fs::read_to_string(report.join("statistics.csv")).unwrap();
    !figures.contains(SOURCES[0].0)
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
        let found = given(&root);
        let other = found
            .iter()
            .filter(|(path, bytes)| expected.get(*path) != Some(*bytes));
        let other: Vec<&String> = other.map(|(path, _)| path).collect();
        assert!(
            found == expected,
            "round {rounds}, after {kills} kills: {} files, {} before; {other:?}",
            found.len(),
            expected.len()
        );
        assert_eq!(root.list("preload", "held"), [""; 0]);
        assert_eq!(
            fs::read_dir(root.path().join("reports/preload"))
                .unwrap()
                .count(),
            2
        );
    }
    eprintln!("measured: {kills} kills, {rounds} times the same bytes");
}
