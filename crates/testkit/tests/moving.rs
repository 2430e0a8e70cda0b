//! A chain that works while its stages are moved between engines, there and back, and whoever works or moves is killed again and
//! again: judged from the disk at the end, nothing is lost and nothing is twice.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use ecluse_spool::{Fs, RealFs, WorkTree};
use ecluse_testkit::checker::{Given, GivenLog, STAGES, check};
use ecluse_testkit::root::{Program, settle_environment, until_so};
use ecluse_testkit::servers::EngineServers;
use rustix::process::Signal;

const SETTINGS: &str = r#"
[chain]
stages = ["relay", "split", "tally", "shelf"]
[defaults]
# Nobody's death is a parcel's fault here.
attempts  = 1000
heartbeat = "500ms"
lease     = "3s"
scan      = "200ms"
settle    = "10ms"
min-free  = "0 B"
retry     = { first = "1s", factor = 1.0, max = "1s", limit = "1h" }
batch     = { parcels = 5, wait = "100ms" }
"#;
const ROUNDS: u64 = 12;
const FILES: u64 = 4;

struct Chain {
    dir: tempfile::TempDir,
}

impl Chain {
    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ecluse-sample"));
        settle_environment(&mut command);
        command.arg("--root").arg(self.path("root")).args(words);
        command
    }

    fn must(&self, words: &[&str]) -> Output {
        let output = self.command(words).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {errors}");
        output
    }

    fn give(&self, log: &mut GivenLog, round: u64) {
        let mut words = vec!["give".to_owned(), "relay".to_owned()];
        let mut names = Vec::new();
        for number in 0..FILES {
            let name = format!("f{round}.{number}.txt");
            let text = match number {
                0 => format!("hold {round}\n"),
                1 => format!("sleep 150 {round}\n"),
                _ => format!("plain {round} {number} {}\n", "more ".repeat(200)),
            };
            let file = self.path(&name);
            fs::write(&file, &text).unwrap();
            words.push(file.display().to_string());
            log.give(&Given {
                stage: "relay".to_owned(),
                name: name.clone(),
                text,
                acknowledged: false,
            })
            .unwrap();
            names.push(name);
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.must(&words);
        for name in names {
            log.acknowledge(&name).unwrap();
        }
    }
}

/// A little randomness that is the same every time.
fn dice(seed: &mut u64) -> u64 {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

#[test]
fn killed_again_and_again_while_stages_move_nothing_is_lost_and_nothing_twice() {
    let servers = EngineServers::start(
        &ecluse_peers::server("nats-server"),
        &ecluse_peers::server("weed"),
    );
    let chain = Chain {
        dir: tempfile::tempdir().unwrap(),
    };
    fs::create_dir(chain.path("root")).unwrap();
    let engine = servers.settings("moving").replace(
        "kind = \"jetstream\"",
        "kind = \"directories\"\nmoving = true",
    );
    fs::write(
        chain.path("root/pipeline.toml"),
        format!("{SETTINGS}{engine}"),
    )
    .unwrap();
    let given = chain.path("given");
    let mut log = GivenLog::create(&given).unwrap();
    let mut seed = 2026;
    let mut killed = 0;
    let mut run = None;
    for round in 0..ROUNDS {
        chain.give(&mut log, round);
        let working = run.get_or_insert_with(|| Program::start(chain.command(&["run"])));
        working.must_live();
        let to = ["jetstream", "directories"][usize::from(round / 3 % 2 == 1)];
        let words = ["move", "--to", to, "--why", "a test"];
        let mut moving = chain.command(&words).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(dice(&mut seed) % 2500));
        killed += usize::from(moving.try_wait().unwrap().is_none());
        let _ = moving.kill();
        moving.wait().unwrap();
        if dice(&mut seed).is_multiple_of(2)
            && let Some(mut working) = run.take()
        {
            working.signal(Signal::KILL);
            working.wait();
        }
    }
    assert!(killed > 0, "every move was over before it could be killed");
    // Those who work finish what was begun, without anybody's help.
    let mut working = run.unwrap_or_else(|| Program::start(chain.command(&["run"])));
    until_so("no stage that somebody works for to be on its way", || {
        working.must_live();
        let output = chain.must(&["status", "--json"]);
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let stages = status["stages"].as_array().unwrap();
        assert!(stages.iter().any(|stage| stage["name"] == "relay"));
        let is_moving = |stage: &serde_json::Value| stage.to_string().contains("it moves to");
        !stages
            .iter()
            .any(|stage| stage["name"] != "shelf" && is_moving(stage))
    });
    for to in ["jetstream", "directories"] {
        let output = chain.must(&["move", "--to", to, "--why", "a test"]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("is on"), "{said}");
    }
    working.signal(Signal::TERM);
    working.wait();
    let output = chain.command(&["run", "--once"]).output().unwrap();
    // 65 when it held one itself.
    let code = output.status.code();
    assert!(matches!(code, Some(0 | 65)), "{output:?}");
    let output = chain.must(&["move", "--to", "directories", "--why", "the end"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("all stages are on directories"), "{said}");

    let root = chain.path("root");
    nothing_is_half_way(&root);
    let verdict = check(&root, &given).unwrap();
    assert!(verdict.is_clean(), "{verdict}: {:#?}", verdict.findings);
    assert_eq!(verdict.parcels as u64, ROUNDS * FILES);
    assert_eq!(verdict.held as u64, ROUNDS);
}

/// Looks at what only a chain that moves has in its directories, and takes it away: the judge knows nothing of it.
fn nothing_is_half_way(root: &Path) {
    let tree = WorkTree::open(&root.join("work"));
    for stage in STAGES {
        let dir = root.join("work").join(stage);
        for part in [
            "leaving/ready",
            "leaving/held",
            "leaving/deferred",
            "arriving",
        ] {
            let entries: Vec<_> = fs::read_dir(dir.join(part)).into_iter().flatten().collect();
            assert!(entries.is_empty(), "{stage}/{part}: {entries:?}");
        }
        for part in ["leaving", "arriving"] {
            RealFs.remove_tree(&dir.join(part)).unwrap();
        }
        tree.sweep(stage, Duration::ZERO).unwrap();
    }
    RealFs.unlink(&root.join("work/.identity")).unwrap();
}
