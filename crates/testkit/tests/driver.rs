//! The driver as an operator types it, with the sample stages.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use ecluse_spool::{Fs, RealFs, WorkTree};
use ecluse_testkit::root::until_so;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn ecluse(root: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ecluse-sample"))
        .env("ECLUSE_ROOT", root)
        .env("PATH", root.join("bin"))
        .env("USER", "amel")
        .env_remove("SUDO_USER")
        .env_remove("ECLUSE_LOG")
        .args(words)
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(root: &Path, words: &[&str]) -> Value {
    let mut words = words.to_vec();
    words.push("--json");
    let output = ecluse(root, &words);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["schema"], 1);
    value
}

fn stage(value: &Value, name: &str) -> Value {
    let stages = value["stages"].as_array().unwrap();
    stages.iter().find(|s| s["name"] == name).unwrap().clone()
}

/// A root for which a disk is never too full: what is shown does not hang on the machine.
fn root() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(
        root.path().join("pipeline.toml"),
        "version = 1\n[chain]\nstages = [\"relay\", \"split\", \"tally\", \"end\"]\n[defaults]\nmin-free = \"1 MB\"\nsettle = \"10ms\"\n\
         [alert]\nfree = { warn = \"1 MB\", crit = \"1 MB\" }\n",
    )
    .unwrap();
    root
}

/// A root with a program on its path: what is shown then is as short as on a machine where it is installed.
fn installed() -> tempfile::TempDir {
    let root = root();
    std::fs::create_dir(root.path().join("bin")).unwrap();
    std::fs::write(root.path().join("bin/ecluse"), "").unwrap();
    root
}

fn give(root: &Path, name: &str, content: &str) {
    std::fs::write(root.join(name), content).unwrap();
    let file = root.join(name);
    let output = ecluse(root, &["give", "relay", file.to_str().unwrap()]);
    assert!(output.status.success(), "{}", complaint(&output));
}

#[test]
fn a_day_of_an_operator() {
    let dir = installed();
    let root = dir.path();
    let output = ecluse(root, &["init"]);
    assert!(text(&output).contains("work directories for 4 stages"));
    for i in 0..5 {
        give(root, &format!("f{i}"), &format!("hello {i}"));
    }
    give(root, "bad\u{1b}[31m\nname", "hold this one");
    give(root, "later", "defer this one");

    // Before anything runs, the screen says who is missing.
    let screen = text(&ecluse(root, &["status"]));
    assert!(
        screen.contains("relay") && screen.contains("7 waiting and no worker"),
        "{screen}"
    );
    assert!(
        screen.lines().all(|line| line.chars().count() <= 100),
        "{screen}"
    );

    let output = ecluse(root, &["run", "--once"]);
    assert_eq!(output.status.code(), Some(65), "{}", complaint(&output));
    assert!(
        text(&output).contains("1 held, 1 deferred"),
        "{}",
        text(&output)
    );
    let status = json(root, &["status"]);
    assert_eq!(stage(&status, "relay")["held"], 1);
    assert_eq!(stage(&status, "relay")["deferred"], 1);
    assert_eq!(stage(&status, "relay")["last_hour"]["count"], 5);
    assert_eq!(stage(&status, "end")["ready"], 1);
    let needs = status["needs_you"].as_array().unwrap();
    assert_eq!(
        needs.len(),
        2,
        "the held one, then why one is deferred: {needs:?}"
    );
    let deferred = needs[1]["what"].as_str().unwrap();
    assert!(
        deferred.contains("1 deferred") && deferred.contains("asks to wait"),
        "{deferred}"
    );
    assert!(
        needs[0]["what"]
            .as_str()
            .unwrap()
            .contains("asks to be held")
    );

    // What it says to type is what can be typed.
    let retry: Vec<&str> = needs[1]["command"]
        .as_str()
        .unwrap()
        .split_whitespace()
        .skip(1)
        .chain(["--dry-run"])
        .collect();
    let output = ecluse(root, &retry);
    assert!(
        text(&output).contains("would retry later"),
        "{retry:?}: {}",
        complaint(&output)
    );

    // Nothing of a hostile name reaches the terminal raw.
    let screen = text(&ecluse(root, &["status"]));
    assert!(!screen.contains('\u{1b}'), "{screen:?}");
    let why = text(&ecluse(root, &["why", "1"]));
    assert!(!why.contains('\u{1b}'), "{why:?}");
    assert!(
        why.contains("original name") && why.contains("ecluse release"),
        "{why}"
    );
    assert!(
        !why.contains("ecluse hold"),
        "only what is legal is offered: {why}"
    );

    // A finished one tells its life from the first stage to the last.
    let why = text(&ecluse(root, &["why", "f0"]));
    assert!(
        why.contains("passed on to split") && why.contains("made 2 parcels for tally"),
        "{why}"
    );
    let id = json(root, &["why", "f0"])["parcel"]
        .as_str()
        .unwrap()
        .to_owned();
    let child = text(&ecluse(root, &["why", &format!("{id}.a")]));
    assert!(
        child.contains("relay") && child.contains("split") && child.contains("tally"),
        "{child}"
    );
    // Of one that was given no receipt is read but its own: a stray one is not met.
    let stray = root.join("work/relay/receipts/00/stray.json");
    let aside = root.join("stray");
    std::fs::create_dir_all(&stray).unwrap();
    let why = text(&ecluse(root, &["why", &id]));
    assert!(why.contains("made 2 parcels for tally"), "{why}");
    RealFs.rename(&stray, &aside).unwrap();
    // What was folded is found all the same, parents too.
    let tree = WorkTree::open(&root.join("work"));
    for stage in ["relay", "split", "tally"] {
        let folded = ecluse_spool::fold(&tree, stage, Duration::ZERO).unwrap();
        assert!(folded > 0, "{stage}");
    }
    let folded = text(&ecluse(root, &["why", &format!("{id}.a")]));
    assert_eq!(folded, child);

    // The deferred one says when it is tried again; the number still means what was shown.
    let why = text(&ecluse(root, &["why", "later"]));
    assert!(
        why.contains("tried again at") && why.contains("asks to wait"),
        "{why}"
    );
    assert!(text(&ecluse(root, &["find", "later"])).contains("deferred"));
    assert_eq!(ecluse(root, &["find", "nowhere"]).status.code(), Some(64));

    let output = ecluse(root, &["discard", "1"]);
    assert_eq!(output.status.code(), Some(64));
    assert!(complaint(&output).contains("needs --why"));
    let output = ecluse(root, &["discard", "1", "--why", "a test", "--dry-run"]);
    assert!(text(&output).contains("would discard"));
    assert_eq!(stage(&json(root, &["status"]), "relay")["held"], 1);
    let output = ecluse(root, &["discard", "1", "--why", "a test"]);
    assert!(output.status.success(), "{}", complaint(&output));
    assert_eq!(stage(&json(root, &["status"]), "relay")["held"], 0);

    let output = ecluse(
        root,
        &["retry", "--stage", "relay", "--reason", "asks to wait"],
    );
    assert!(output.status.success(), "{}", complaint(&output));
    let output = ecluse(root, &["hold", "later", "--why", "curator looks first"]);
    assert!(output.status.success(), "{}", complaint(&output));
    let output = ecluse(root, &["hold", "later", "--why", "again"]);
    assert!(
        complaint(&output).contains("it is held in relay"),
        "{}",
        complaint(&output)
    );
    assert!(ecluse(root, &["release", "later"]).status.success());

    let audit = std::fs::read_to_string(root.join("audit.jsonl")).unwrap();
    let lines: Vec<Value> = audit
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let discard = lines.iter().find(|l| l["verb"] == "discard").unwrap();
    assert_eq!(
        (discard["who"].as_str(), discard["why"].as_str()),
        (Some("amel"), Some("a test"))
    );
    assert_eq!(lines.iter().filter(|l| l["verb"] == "give").count(), 7);
    assert_eq!(lines.iter().filter(|l| l["verb"] == "hold").count(), 1);
}

/// Finds a key with a hyphen anywhere in a value.
fn hyphen_in(value: &Value) -> Option<String> {
    match value {
        Value::Object(object) => object.iter().find_map(|(key, value)| {
            let own = key.contains('-').then(|| key.clone());
            own.or_else(|| hyphen_in(value))
        }),
        Value::Array(values) => values.iter().find_map(hyphen_in),
        _ => None,
    }
}

#[test]
fn json_is_an_answer_of_every_verb_or_is_refused() {
    let dir = installed();
    let root = dir.path();
    give(root, "held", "hold this one");
    give(root, "good", "hello");
    assert_eq!(ecluse(root, &["run", "--once"]).status.code(), Some(65));
    for words in [
        &["status"][..],
        &["why", "good"],
        &["find", "good"],
        &["jobs"],
        &["retry", "held"],
        &["hold", "held", "--why", "x"],
        &["release", "held", "--dry-run"],
        &["discard", "held", "--why", "x"],
        &["pause", "split", "--why", "x"],
        &["resume", "all"],
        &["give", "relay", "/proc/version", "--dry-run"],
        &["run", "--once"],
    ] {
        let value = json(root, words);
        assert_eq!(hyphen_in(&value), None, "{words:?}: {value}");
        assert!(value.as_object().unwrap().len() > 1, "{words:?}: {value}");
    }
    for words in [
        &["config"][..],
        &["init"],
        &["completions", "bash"],
        &["man"],
        &["units", "--out", "/nowhere"],
    ] {
        let words = [words, &["--json"]].concat();
        let output = ecluse(root, &words);
        assert_eq!(output.status.code(), Some(64), "{words:?}");
        assert!(
            complaint(&output).contains("no answer in JSON"),
            "{words:?}"
        );
        assert!(output.stdout.is_empty(), "{words:?}");
    }
    for words in [
        ["status", "--watch", "--json"],
        ["--json", "status", "--watch"],
    ] {
        let output = ecluse(root, &words);
        assert_eq!(output.status.code(), Some(64), "{words:?}");
        assert!(output.stdout.is_empty(), "{words:?}");
    }
}

#[test]
fn q_leaves_the_screen_that_is_drawn_again() {
    let dir = installed();
    let root = dir.path();
    give(root, "f", "hello");
    // A terminal of its own; what is piped to it is typed.
    let mut watch = Command::new("script")
        .args([
            "-qec",
            concat!(env!("CARGO_BIN_EXE_ecluse-sample"), " status --watch"),
        ])
        .arg("/dev/null")
        .env("ECLUSE_ROOT", root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keys = watch.stdin.take().unwrap();
    keys.write_all(b"xq").unwrap();
    let output = watch.wait_with_output().unwrap();
    assert!(output.status.success());
    let drawn = text(&output);
    assert!(drawn.contains("relay"), "{drawn:?}");
    assert!(
        drawn.ends_with("\x1b[?1049l"),
        "the terminal is as it was: {drawn:?}"
    );
}

/// The same, typed by somebody else or in another session.
fn ecluse_as(root: &Path, who: &str, terminal: &str, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ecluse-sample"))
        .env("ECLUSE_ROOT", root)
        .env("PATH", root.join("bin"))
        .env("SUDO_USER", who)
        .env("SUDO_TTY", terminal)
        .env_remove("ECLUSE_LOG")
        .args(words)
        .output()
        .unwrap()
}

#[test]
fn numbers_belong_to_a_person_and_a_terminal() {
    let dir = installed();
    let root = dir.path();
    give(root, "one", "hold this one");
    give(root, "two", "defer this one");
    assert_eq!(ecluse(root, &["run", "--once"]).status.code(), Some(65));
    let anne = |words: &[&str]| ecluse_as(root, "anne", "/dev/pts/1", words);
    let refused = |output: &Output| {
        assert_eq!(output.status.code(), Some(64), "{}", text(output));
        assert!(
            complaint(output).contains("no number 1 was shown to"),
            "{}",
            complaint(output)
        );
    };
    // Nobody was shown a number by a machine's answer, nor by one line.
    assert!(anne(&["status", "--json"]).status.success());
    assert!(anne(&["status", "--brief"]).status.success());
    refused(&anne(&["discard", "1", "--why", "x"]));
    assert!(text(&anne(&["status"])).contains("NEEDS YOU (2)"));
    // Another person, and another terminal of the same one, see and change nothing of it.
    for (who, terminal) in [("bert", "/dev/pts/1"), ("anne", "/dev/pts/2")] {
        refused(&ecluse_as(
            root,
            who,
            terminal,
            &["discard", "1", "--why", "x"],
        ));
        ecluse_as(root, who, terminal, &["status", "split"]);
    }
    let output = anne(&["discard", "3", "--why", "x"]);
    assert!(
        complaint(&output).contains("no number 3"),
        "{}",
        complaint(&output)
    );
    let output = anne(&["discard", "1", "--why", "x"]);
    assert!(text(&output).contains("one"), "{}", complaint(&output));
}

#[test]
fn many_files_with_one_fault_are_one_entry() {
    let dir = installed();
    let root = dir.path();
    for i in 0..60 {
        give(root, &format!("f{i}"), "hold this one");
    }
    give(root, "other", "hello");
    assert!(
        ecluse(root, &["hold", "other", "--why", "curator"])
            .status
            .success()
    );
    assert_eq!(ecluse(root, &["run", "--once"]).status.code(), Some(65));
    let screen = text(&ecluse(root, &["status"]));
    assert!(screen.contains("NEEDS YOU (2)"), "{screen}");
    assert!(screen.contains("60 parcels: "), "{screen}");
    assert!(screen.lines().count() < 24, "{screen}");
    // What is offered is what helps: what a person held may go on, what is at fault itself would only be held again.
    assert!(screen.contains("or  release 2"), "{screen}");
    assert!(
        !screen.contains("release 1") && !screen.contains("retry 1"),
        "{screen}"
    );
    // One number is no word for sixty parcels.
    let output = ecluse(root, &["discard", "1", "--why", "x"]);
    assert_eq!(output.status.code(), Some(64));
    assert!(
        complaint(&output).contains("stands for 60 parcels"),
        "{}",
        complaint(&output)
    );
    // What would only be held again is not offered without saying so.
    let output = ecluse(root, &["retry", "1"]);
    assert_eq!(output.status.code(), Some(64));
    let said = complaint(&output);
    let words = [
        "would be held again",
        "discard --stage relay --reason",
        "retry --stage relay --reason",
    ];
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
    // To look at what would be done needs no reason.
    let output = ecluse(root, &["discard", "other", "--dry-run"]);
    assert_eq!(output.status.code(), Some(0), "{}", complaint(&output));
    assert!(
        text(&output).contains("would discard other"),
        "{}",
        text(&output)
    );
    let told = text(&ecluse(root, &["why", "1"]));
    let at = |word: &str| told.find(word).unwrap_or_else(|| panic!("{word}: {told}"));
    assert!(at(" discard f") < at(" release f"), "{told}");
    assert!(at("would be held again") > 0);
    // The command for all of them is one that can be typed.
    let bulk = screen
        .lines()
        .find_map(|line| line.split_once("or  discard "))
        .unwrap()
        .1;
    let bulk = bulk.replace('\u{2026}', "a test of the crawl team");
    let typed = Command::new("sh")
        .env("ECLUSE_ROOT", root)
        .env("USER", "amel")
        .arg("-c")
        .arg(format!(
            "{} discard {bulk}",
            env!("CARGO_BIN_EXE_ecluse-sample")
        ))
        .output()
        .unwrap();
    assert!(typed.status.success(), "{bulk}: {}", complaint(&typed));
    let status = json(root, &["status"]);
    assert_eq!(stage(&status, "relay")["held"], 1, "{status}");
}

#[test]
fn a_paused_stage_lets_work_pile_up_and_says_so() {
    let dir = installed();
    let root = dir.path();
    give(root, "f", "hello");
    let output = ecluse(root, &["pause", "split", "--why", "a rumour"]);
    assert!(output.status.success());
    // Somebody else's reason is not lost without a word.
    let output = ecluse(root, &["pause", "split", "--why", "disk swap"]);
    assert!(
        text(&output).contains("before this it was paused by amel: a rumour"),
        "{}",
        text(&output)
    );
    let output = ecluse(root, &["run", "--once"]);
    assert_eq!(output.status.code(), Some(75), "{}", complaint(&output));
    assert!(
        text(&output).contains("split: paused by amel: disk swap"),
        "{}",
        text(&output)
    );
    let screen = text(&ecluse(root, &["status"]));
    assert!(
        screen.contains("PAUSED") && screen.contains("ecluse resume split"),
        "{screen}"
    );
    let why = text(&ecluse(root, &["why", "f"]));
    assert!(
        why.contains("waits: split: paused by amel: disk swap"),
        "{why}"
    );
    let check = ecluse(root, &["check"]);
    // What is worse than a warning here is of the machine: a file system that a power cut empties.
    let critical = text(&check)
        .lines()
        .filter(|line| line.starts_with("critical: "))
        .all(|line| line.contains("docs/file-systems.md"));
    assert!(critical, "{}", text(&check));
    assert!(matches!(check.status.code(), Some(1 | 2)), "{check:?}");
    let paused = "\nwarning: split: paused by amel: disk swap";
    assert!(text(&check).contains(paused), "{}", text(&check));
    assert!(text(&check).contains(" | waiting="));
    assert!(ecluse(root, &["resume", "all"]).status.success());
    assert_eq!(ecluse(root, &["run", "--once"]).status.code(), Some(0));
}

#[test]
fn one_process_a_stage_gives_the_same_as_threads() {
    let dir = root();
    let root = dir.path();
    for i in 0..4 {
        give(root, &format!("f{i}"), &format!("hello {i}"));
    }
    let output = ecluse(root, &["run", "--once", "--processes", "--log", "error"]);
    assert_eq!(output.status.code(), Some(0), "{}", complaint(&output));
    let status = json(root, &["status"]);
    assert_eq!(stage(&status, "split")["last_hour"]["count"], 4);
    assert!(stage(&status, "end")["ready"].as_u64().unwrap() >= 1);
}

#[test]
fn wrong_words_are_told_in_one_line() {
    let dir = root();
    let root = dir.path();
    // Nothing must be done to the only parcel there is because a word was empty.
    give(root, "f", "hello");
    for (words, code, told) in [
        (&["run", "nosuch"][..], 64, "no stage \"nosuch\""),
        (
            &["pause", "nosuch"],
            64,
            "there are: relay, split, tally, end",
        ),
        (&["why", "nosuch"], 64, "no parcel \"nosuch\""),
        (&["why", "7"], 64, "no number 7 was shown to amel"),
        (&["release"], 64, "which?"),
        (&["give", "relay", "/no/such/file"], 64, "/no/such/file"),
        (&["give", "relay", "/dev/zero"], 64, "no plain file"),
        (&["give", "relay", "/", "--dry-run"], 64, "is a directory"),
        (&["discard", "", "--why", "x"], 64, "names no parcel"),
        (&["hold", "work/", "--why", "x"], 64, "names no parcel"),
        (&["why", "https://a.example/"], 64, "--job JOB"),
        (&["frobnicate"], 64, "frobnicate"),
    ] {
        let output = ecluse(root, words);
        assert!(
            complaint(&output).contains(told),
            "{words:?}: {}",
            complaint(&output)
        );
        assert!(!complaint(&output).contains("panicked"));
        assert_eq!(output.status.code(), Some(code), "{words:?}");
    }
    std::fs::write(
        root.join("pipeline.toml"),
        "version = 1\n[defaults]\nworker = 3\n",
    )
    .unwrap();
    let output = ecluse(root, &["status"]);
    assert_eq!(output.status.code(), Some(78));
    assert!(
        complaint(&output).contains("did you mean 'workers'"),
        "{}",
        complaint(&output)
    );
}

#[test]
fn a_directory_that_is_no_archive_is_no_healthy_chain() {
    let dir = tempfile::tempdir().unwrap();
    for root in [dir.path().to_owned(), dir.path().join("mistyped")] {
        for words in [
            &["status"][..],
            &["status", "--brief"],
            &["find", "x"],
            &["why", "x"],
            &["pause", "relay"],
            &["resume", "all"],
            &["give", "relay", "/proc/version"],
            &["retry", "--stage", "relay", "--all"],
        ] {
            let output = ecluse(&root, words);
            assert_eq!(output.status.code(), Some(64), "{words:?}");
            assert!(complaint(&output).contains("no archive in"), "{words:?}");
        }
        let check = ecluse(&root, &["check"]);
        assert_eq!(check.status.code(), Some(3));
        let told = text(&check);
        assert!(told.starts_with("ECLUSE UNKNOWN - "), "{told}");
    }
    let run = ecluse(&dir.path().join("mistyped"), &["run", "--once"]);
    assert_eq!(run.status.code(), Some(64));
    let told = complaint(&run);
    assert!(told.contains("no directory"), "{told}");
    let left = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(left, 0, "nothing was made");
}

#[test]
fn a_monitor_hears_one_of_its_four_codes_whatever_is_wrong() {
    let dir = root();
    let root = dir.path();
    assert!(ecluse(root, &["init"]).status.success());
    for (settings, told) in [
        ("version = [", "not TOML"),
        (
            "version = 1\n[defaults]\nworker = 3\n",
            "did you mean 'workers'",
        ),
        (
            "version = 1\n[chain]\nstages = [\"relay\", \"nosuch\", \"split\"]\n",
            "\"nosuch\"",
        ),
    ] {
        std::fs::write(root.join("pipeline.toml"), settings).unwrap();
        for words in [&["check"][..], &["check", "--offline"]] {
            let output = ecluse(root, words);
            assert_eq!(output.status.code(), Some(2), "{settings}");
            let text = text(&output);
            assert!(text.starts_with("ECLUSE CRITICAL - "), "{text}");
            assert!(text.contains(told), "{text}");
        }
    }
    let dir = self::root();
    let root = dir.path();
    std::fs::write(root.join("work"), "no directory").unwrap();
    let output = ecluse(root, &["check", "--json"]);
    assert_eq!(output.status.code(), Some(3), "{}", complaint(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["grade"], "UNKNOWN", "{report}");
}

#[test]
fn a_blocked_stage_ends_a_run_of_processes_too() {
    let dir = root();
    let root = dir.path();
    give(root, "f", "hello");
    assert!(
        ecluse(root, &["pause", "split", "--why", "disk swap"])
            .status
            .success()
    );
    let once = ["run", "--once", "--processes", "--log", "error"];
    let output = ecluse(root, &once);
    assert_eq!(output.status.code(), Some(75), "{}", complaint(&output));
    assert!(
        text(&output).contains("1 step done") && text(&output).contains("split: paused by amel"),
        "{}",
        text(&output)
    );
    // The floor of free space, which nobody reaches.
    assert!(ecluse(root, &["resume", "split"]).status.success());
    let settings = root.join("pipeline.toml");
    let more = std::fs::read_to_string(&settings).unwrap();
    std::fs::write(
        &settings,
        format!("{more}[stage.split]\nmin-free = \"900 PB\"\n"),
    )
    .unwrap();
    let output = ecluse(root, &once);
    assert_eq!(output.status.code(), Some(75), "{}", complaint(&output));
    assert!(text(&output).contains("needs 900"), "{}", text(&output));
}

#[test]
fn one_machine_s_copy_of_a_stage_is_a_process_too() {
    let dir = root();
    let root = dir.path();
    std::fs::write(
        root.join("pipeline.toml"),
        "version = 1\n[chain]\nstages = [\"relay\", \"split\", \"tally\", \"end\"]\n[defaults]\nmin-free = \"1 MB\"\n[stage.relay]\nnext = [\"split@alpha\"]\n",
    )
    .unwrap();
    give(root, "f", "hello");
    let words = [
        "run",
        "relay",
        "split@alpha",
        "--once",
        "--processes",
        "--log",
        "error",
    ];
    let output = ecluse(root, &words);
    assert_eq!(output.status.code(), Some(0), "{}", complaint(&output));
    let status = json(root, &["status"]);
    assert_eq!(stage(&status, "split@alpha")["last_hour"]["count"], 1);
}

#[test]
fn a_worker_that_lives_and_does_not_move_is_shown() {
    let dir = installed();
    let root = dir.path();
    std::fs::write(
        root.join("pipeline.toml"),
        "version = 1\n[chain]\nstages = [\"relay\", \"end\"]\n[defaults]\nmin-free = \"1 MB\"\nheartbeat = \"200ms\"\nlease = \"600ms\"\n",
    )
    .unwrap();
    let mut run = Command::new(env!("CARGO_BIN_EXE_ecluse-sample"))
        .args(["--log", "error", "--root"])
        .arg(root)
        .args(["run", "relay"])
        .spawn()
        .unwrap();
    let pid = Pid::from_raw(i32::try_from(run.id()).unwrap()).unwrap();
    let is = |state: &str| {
        root.join("work").exists() && stage(&json(root, &["status"]), "relay")["state"] == state
    };
    until_so("it runs", || is("ok"));
    kill_process(pid, Signal::STOP).unwrap();
    until_so("it is silent", || is("silent"));
    let check = ecluse(root, &["check"]);
    assert_eq!(check.status.code(), Some(2), "{}", text(&check));
    let screen = text(&ecluse(root, &["status"]));
    assert!(
        screen.contains("systemctl restart ecluse@relay"),
        "{screen}"
    );
    kill_process(pid, Signal::CONT).unwrap();
    until_so("it goes on", || is("ok"));
    run.kill().unwrap();
    run.wait().unwrap();
    until_so("it is gone", || is("stopped"));
}
