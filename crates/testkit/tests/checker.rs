//! The checker accepts what the chain leaves, and sees each kind of damage done to it.

#![expect(clippy::unwrap_used, reason = "a test breaks the tree by hand")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ecluse_spool::{Fs, Gift, RealFs, WorkTree};
use ecluse_testkit::checker::{CheckerVerdict, Given, GivenLog, RELAY_ATTEMPTS, check};

/// A root through which three files went, and the log of what was given.
struct Left {
    _dir: tempfile::TempDir,
    root: PathBuf,
    given: PathBuf,
}

impl Left {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (root, given) = (dir.path().join("root"), dir.path().join("given"));
        fs::create_dir(&root).unwrap();
        let settings = "[chain]\nstages = [\"relay\", \"split\", \"tally\", \"shelf\"]\n[defaults]\nmin-free = \"1 MiB\"\n";
        fs::write(root.join("pipeline.toml"), settings).unwrap();
        let left = Self {
            _dir: dir,
            root,
            given,
        };
        let mut log = GivenLog::create(&left.given).unwrap();
        left.give(&mut log, "relay", "a.txt", "plain text of some length\n");
        left.give(&mut log, "relay", "b.txt", "plain text of another\n");
        left.give(&mut log, "relay", "c.txt", "hold me\n");
        for program in [
            env!("CARGO_BIN_EXE_ecluse-relay"),
            env!("CARGO_BIN_EXE_ecluse-split"),
            env!("CARGO_BIN_EXE_ecluse-tally"),
        ] {
            let status = Command::new(program)
                .arg("--root")
                .arg(&left.root)
                .args(["--once", "--log", "error"])
                .status()
                .unwrap();
            assert!(matches!(status.code(), Some(0 | 65)), "{program}: {status}");
        }
        left
    }

    fn give(&self, log: &mut GivenLog, stage: &str, name: &str, text: &str) {
        let given = Given {
            stage: stage.to_owned(),
            name: name.to_owned(),
            text: text.to_owned(),
            acknowledged: false,
        };
        log.give(&given).unwrap();
        let file = self.root.join(name);
        fs::write(&file, text).unwrap();
        let tree = WorkTree::open(&self.root.join("work"));
        let id = tree.give(stage, &file, &Gift::default()).unwrap();
        assert_eq!(id.as_str(), given.id());
        log.acknowledge(name).unwrap();
    }

    fn check(&self) -> CheckerVerdict {
        check(&self.root, &self.given).unwrap()
    }

    fn work(&self, path: &str) -> PathBuf {
        self.root.join("work").join(path)
    }

    /// Finds the one entry of a directory tree whose name begins so.
    fn find(&self, under: &str, start: &str) -> PathBuf {
        fn search(dir: &Path, start: &str) -> Option<PathBuf> {
            let mut entries: Vec<PathBuf> = fs::read_dir(dir)
                .unwrap()
                .map(|e| e.unwrap().path())
                .collect();
            entries.sort();
            entries.into_iter().find_map(|path| {
                if path
                    .file_name()
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .starts_with(start)
                {
                    return Some(path);
                }
                path.is_dir().then(|| search(&path, start)).flatten()
            })
        }
        search(&self.work(under), start).unwrap()
    }
}

/// Lost, twice and bad.
fn counts(verdict: &CheckerVerdict) -> (usize, usize, usize) {
    (verdict.lost, verdict.twice, verdict.bad)
}

#[test]
fn what_the_chain_leaves_is_accepted() {
    let left = Left::new();
    let verdict = left.check();
    assert!(verdict.is_clean(), "{:#?}", verdict.findings);
    assert_eq!((verdict.parcels, verdict.held), (3, 1));
    assert_eq!(verdict.to_string(), "3 parcels, 0 lost, 0 twice, 0 bad");
}

#[test]
fn a_held_parcel_that_is_gone_is_lost() {
    let left = Left::new();
    RealFs
        .remove_tree(&left.find("relay/held", "c.txt"))
        .unwrap();
    let verdict = left.check();
    assert_eq!(counts(&verdict), (1, 0, 0), "{:#?}", verdict.findings);
}

#[test]
fn a_reason_that_is_gone_is_missed() {
    let left = Left::new();
    let held = left.work("relay/held");
    for entry in RealFs.list(&held).unwrap() {
        RealFs
            .unlink(&held.join(entry.0).join("trouble.json"))
            .unwrap();
    }
    let verdict = left.check();
    assert_eq!(counts(&verdict), (0, 0, 1), "{:#?}", verdict.findings);
}

#[test]
fn a_receipt_that_is_gone_is_missed_with_what_it_stood_for() {
    let left = Left::new();
    RealFs
        .unlink(&left.find("split/receipts", "a.txt"))
        .unwrap();
    let verdict = left.check();
    assert_eq!(verdict.lost, 1, "{:#?}", verdict.findings);
    assert!(verdict.bad > 0, "its halves came from nowhere");
}

#[test]
fn a_parcel_that_was_done_and_waits_again_is_there_twice() {
    let left = Left::new();
    let id = left.find("relay/receipts", "a.txt");
    let id = id.file_stem().unwrap().to_str().unwrap();
    fs::create_dir(left.work(&format!("relay/ready/{id}~0"))).unwrap();
    let verdict = left.check();
    assert_eq!(counts(&verdict), (0, 1, 1), "{:#?}", verdict.findings);
}

#[test]
fn an_altered_byte_on_the_shelf_is_seen() {
    let left = Left::new();
    let sheet = left.find("shelf/ready", "sheet-").join("sheet");
    let mut bytes = fs::read(&sheet).unwrap();
    bytes[0] ^= 1;
    fs::write(&sheet, bytes).unwrap();
    let verdict = left.check();
    assert_eq!(counts(&verdict), (0, 0, 1), "{:#?}", verdict.findings);
}

#[test]
fn a_sheet_that_is_gone_is_lost() {
    let left = Left::new();
    RealFs
        .remove_tree(&left.find("shelf/ready", "sheet-"))
        .unwrap();
    let verdict = left.check();
    assert_eq!(counts(&verdict), (1, 0, 0), "{:#?}", verdict.findings);
}

#[test]
fn what_is_left_lying_is_seen() {
    let left = Left::new();
    for place in ["split/tmp/x", "tally/claim/h-b-1-r", "relay/drop/y"] {
        fs::create_dir(left.work(place)).unwrap();
    }
    let verdict = left.check();
    assert_eq!(counts(&verdict), (0, 0, 3), "{:#?}", verdict.findings);
}

#[test]
fn a_file_nobody_was_told_has_arrived_may_be_absent() {
    let left = Left::new();
    let mut log = fs::read_to_string(&left.given).unwrap();
    log.push_str("{\"give\":{\"stage\":\"relay\",\"name\":\"d.txt\",\"text\":\"cut short\"}}\n");
    fs::write(&left.given, &log).unwrap();
    assert!(left.check().is_clean());
    log.push_str("{\"acknowledged\":\"d.txt\"}\n");
    fs::write(&left.given, &log).unwrap();
    assert_eq!(counts(&left.check()), (1, 0, 0));
}

#[test]
fn a_parcel_held_before_it_used_up_its_attempts_is_seen() {
    let left = Left::new();
    let held = left.work("relay/held");
    for (name, _) in RealFs.list(&held).unwrap() {
        let name = name.into_string().unwrap();
        let (id, _) = name.rsplit_once('~').unwrap();
        let trouble = held.join(&name).join("trouble.json");
        fs::write(trouble, r#"{"held":{"reason":"its worker died, 1 times"}}"#).unwrap();
        assert_eq!(counts(&left.check()), (0, 0, 1), "held after one death");
        let (from, to) = (format!("{id}~1"), format!("{id}~{RELAY_ATTEMPTS}"));
        RealFs.rename(&held.join(from), &held.join(to)).unwrap();
        assert_eq!(counts(&left.check()), (0, 0, 0), "held after all of them");
    }
}
