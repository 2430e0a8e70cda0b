//! Killed two hundred times, anywhere in its work, it gives the same bytes as when it is left alone.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::*;
use ecluse_testkit::root::{Program, Root, contents};
use rustix::process::Signal;

const KILLS: usize = 200;
const NAMES: usize = 3_000;

const BROAD: &str = "kind = 'broad'\nfrom = '2026-11-17T11:59:00Z'\nbudget = { urls = 500 }\nselect = { unchecked = 'take' }\n\
                     template = 't.toml'\n";

/// One that is due later, before which DNS is asked again.
const LATER: &str =
    "kind = 'broad'\nfrom = '2026-11-20'\nbudget = { urls = 500 }\ntemplate = 't.toml'\n";

/// Names, results and rules that are there from the start, and a harvest that is due an instant later.
fn full_root() -> Root {
    let root = root("");
    root.settings(
        &["dns-filter", "plan", "sink"],
        "[stage.plan]\nbatch = { parcels = 1000, wait = \"50ms\" }\nmemory = \"1 MiB\"\nattempts = 100000\ncheck-list = 100\n\
         [stage.plan.jobs]\ndomains = 100\nobjects = 100000\nratio = 100\ndifference = 2000\n",
    );
    let names: Vec<String> = (0..NAMES)
        .map(|n| format!("site{:05}.fr", n * 7919 % NAMES))
        .collect();
    for (part, chunk) in names.chunks(500).enumerate() {
        let lines: Vec<(&str, &str, &str)> = chunk
            .iter()
            .enumerate()
            .map(|(n, name)| {
                (
                    name.as_str(),
                    "afnic:1",
                    ["ok", "ok", "unknown", "gone"][n % 4],
                )
            })
            .collect();
        put_names(&root, &format!("names-{part}"), "20261101", &lines);
    }
    let results: Vec<(&str, u64, u64, &str)> = names
        .iter()
        .enumerate()
        .map(|(n, name)| (name.as_str(), (n % 300) as u64, 38_000, "DOWNLOAD_COMPLETE"))
        .collect();
    put_results(&root, "job", "broad", "20261030", &results);
    put(
        &root,
        "forced.toml",
        "[[rule]]\nverdict = 'out'\ndomain = 'site00017.fr'\nwho = 'a'\nwhen = '2026-01-01'\nwhy = 'b'\n",
    );
    root
}

fn start(root: &Root) -> Program {
    let mut command = root.program(PLAN);
    command
        .env("ECLUSE_CLOCK_FILE", root.path().join("clock"))
        .arg("--once");
    Program::start(command)
}

/// What it gave: the register, the orders, the runs.
fn given(root: &Root) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut given = contents(&root.part("sink", "ready"));
    let asked = contents(&root.part("dns-filter", "ready")).into_iter();
    given.extend(asked.map(|(path, bytes)| (Path::new("asked").join(path), bytes)));
    given.extend(contents(&root.path().join("runs")));
    // Who did it and when is told in the history; which generation it was depends on how the work was cut into batches.
    given.retain(|path, _| !path.to_string_lossy().contains("history"));
    for (path, bytes) in &mut given {
        if path.ends_with("parcel.json") {
            // A run that is due is a parcel of its own, with a birth mark of its own, which its orders inherit.
            let mut manifest: serde_json::Value = serde_json::from_slice(bytes).unwrap();
            manifest["born"].take();
            *bytes = manifest.to_string().into_bytes();
        }
        let text = String::from_utf8_lossy(bytes).into_owned();
        let lines = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("\"generation\""));
        *bytes = lines.collect::<Vec<_>>().join("\n").into_bytes();
    }
    given.insert(PathBuf::from("register"), register_bytes(root));
    given
}

/// First the register, then the harvest: the orders are made of all of it.
fn both_halves(root: &Root, each: &mut dyn FnMut(&Root)) {
    each(root);
    put(root, "harvests/t.toml", "");
    std::fs::create_dir_all(root.path().join("harvests")).unwrap();
    std::fs::write(
        root.path().join("harvests/t.toml"),
        "[agent]\ncontact = 'a@archive.example'\n",
    )
    .unwrap();
    put(root, "harvests/broad.toml", BROAD);
    put(root, "harvests/later.toml", LATER);
    each(root);
}

#[test]
fn killed_two_hundred_times_it_gives_the_same_bytes() {
    let quiet = full_root();
    let mut whole = Duration::ZERO;
    both_halves(&quiet, &mut |root| {
        let began = Instant::now();
        must_run(root);
        must_run(root);
        whole = whole.max(began.elapsed() / 2);
    });
    let expected = given(&quiet);
    assert!(expected.len() > 20, "{} files", expected.len());
    // A quarter of the names was denied once.
    let lists = expected
        .keys()
        .filter(|path| path.starts_with("asked") && path.ends_with("names.tsv"));
    assert_eq!(lists.count(), 8);

    let (mut kills, mut tries, mut rounds) = (0, 0u32, 0);
    while kills < KILLS {
        let root = full_root();
        both_halves(&root, &mut |root| {
            // Twice to the end: rules are looked at once there is a register.
            let mut ended = 0;
            while ended < 2 {
                let mut program = start(root);
                let part = tries * 37 % 100;
                tries += 1;
                std::thread::sleep(whole * part / 90 + Duration::from_millis(1));
                program.signal(Signal::KILL);
                match program.wait() {
                    0 => ended += 1,
                    -9 => kills += 1,
                    code => panic!("{code}: {}", program.log()),
                }
            }
        });
        rounds += 1;
        let given = given(&root);
        assert_eq!(
            given.keys().collect::<Vec<_>>(),
            expected.keys().collect::<Vec<_>>()
        );
        for (path, bytes) in &given {
            assert!(
                bytes == &expected[path],
                "round {rounds}, after {kills} kills: {}",
                path.display()
            );
        }
        assert_eq!(root.list("plan", "held"), [""; 0]);
    }
    eprintln!("measured: {kills} kills, {rounds} times the same bytes");
}
