//! A parcel that kills its worker is held, and costs no neighbour anything.

#![expect(clippy::unwrap_used, reason = "a test builds its own scene")]

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use ecluse_spool::{Gift, WorkTree};

const NEIGHBOURS: usize = 100;

/// Lets everything finished wait for its commit as long as it may: the worst for neighbours.
fn settle(root: &Path, stage: &str) {
    let settings = format!(
        "[chain]\nstages = [\"{stage}\", \"shelf\"]\n\
         [defaults]\nmin-free = \"1 MiB\"\n\
         group = {{ parcels = 1000, wait = \"10s\" }}\n"
    );
    std::fs::write(root.join("pipeline.toml"), settings).unwrap();
}

fn give(tree: &WorkTree, root: &Path, stage: &str, name: &str, text: &str) {
    let file = root.join(name);
    std::fs::write(&file, text).unwrap();
    tree.give(stage, &file, &Gift::default()).unwrap();
}

/// Runs a stage until it ends by itself; returns how often it died before.
fn run_until_it_ends(program: &str, root: &Path) -> usize {
    for deaths in 0..50 {
        let status = Command::new(program)
            .arg("--root")
            .arg(root)
            .args(["--once", "--log", "error"])
            .status()
            .unwrap();
        if status.signal().is_none() {
            return deaths;
        }
    }
    panic!("{program} does not end");
}

#[test]
fn a_parcel_that_kills_its_worker_is_held_alone() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    settle(root, "relay");
    let tree = WorkTree::open(&root.join("work"));
    for n in 0..NEIGHBOURS {
        give(&tree, root, "relay", &format!("good{n}"), "good");
    }
    give(&tree, root, "relay", "bad", "die");

    let deaths = run_until_it_ends(env!("CARGO_BIN_EXE_ecluse-relay"), root);
    assert_eq!(deaths, 5, "held after as many deaths as the settings say");
    let relay = tree.depths("relay").unwrap();
    assert_eq!((relay.ready, relay.working, relay.held), (0, 0, 1));
}

#[test]
fn a_batch_is_not_held_for_one_of_its_members() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    settle(root, "tally");
    let tree = WorkTree::open(&root.join("work"));
    for n in 0..NEIGHBOURS {
        give(&tree, root, "tally", &format!("good{n}"), "good");
    }
    give(&tree, root, "tally", "bad", "die");

    run_until_it_ends(env!("CARGO_BIN_EXE_ecluse-tally"), root);
    let tally = tree.depths("tally").unwrap();
    assert_eq!((tally.ready, tally.working, tally.held), (0, 0, 1));
}
