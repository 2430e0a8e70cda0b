//! The shipped command: what a newcomer sees before there is anything to run.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::process::{Command, Output};

fn ecluse(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ecluse"))
        .env_remove("ECLUSE_ROOT")
        .args(words)
        .output()
        .unwrap()
}

#[test]
fn every_verb_has_help_with_an_example() {
    let help = String::from_utf8(ecluse(&["--help"]).stdout).unwrap();
    let verbs: Vec<&str> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| line.starts_with("  "))
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|verb| *verb != "help")
        .collect();
    assert!(verbs.len() >= 16, "{verbs:?}");
    for verb in verbs {
        let help = String::from_utf8(ecluse(&[verb, "--help"]).stdout).unwrap();
        assert!(help.contains("Example"), "{verb}: {help}");
        assert!(
            help.contains(&format!("ecluse {verb}")) || help.contains("ecluse --root"),
            "{verb}"
        );
    }
}

#[test]
fn the_shipped_settings_are_written_once_and_never_over() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().to_str().unwrap();
    assert!(ecluse(&["--root", path, "init"]).status.success());
    let file = root.path().join("pipeline.toml");
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        ecluse_config::SHIPPED
    );
    std::fs::write(&file, "version = 1\n").unwrap();
    assert!(ecluse(&["--root", path, "init"]).status.success());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "version = 1\n");
}

#[test]
fn completions_and_manual_pages_are_made() {
    for shell in ["bash", "zsh", "fish"] {
        let output = ecluse(&["completions", shell]);
        assert!(output.status.success());
        assert!(String::from_utf8(output.stdout).unwrap().contains("status"));
    }
    let out = tempfile::tempdir().unwrap();
    assert!(
        ecluse(&["man", "--out", out.path().to_str().unwrap()])
            .status
            .success()
    );
    assert!(out.path().join("ecluse-status.1").exists());
}

#[test]
fn a_chain_without_stages_is_a_configuration_error() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("pipeline.toml");
    std::fs::write(&file, "version = 1\n[chain]\nstages = []\n").unwrap();
    let output = ecluse(&["--root", root.path().to_str().unwrap(), "run", "--once"]);
    assert_eq!(output.status.code(), Some(78));
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(complaint.contains("[chain] stages"), "{complaint}");
}

#[test]
fn check_refuses_directories_that_lie_in_each_other_and_stages_that_are_none() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().to_str().unwrap();
    let file = root.path().join("pipeline.toml");
    for (settings, told) in [
        (
            "[archive]\nharvested = [\".\"]\n",
            "pipeline.toml:2: 'archive.harvested[0]': '.' is around the work directories",
        ),
        (
            "[archive]\nindex = \"harvested/index\"\n",
            "pipeline.toml:2: 'archive.index': 'harvested/index' lies in 'harvested'",
        ),
        (
            "[stage.indx]\nworkers = 2\n",
            "pipeline.toml:1: stage 'indx' has a table, but is not in the chain; did you mean 'index'?",
        ),
    ] {
        std::fs::write(&file, settings).unwrap();
        let output = ecluse(&["--root", path, "check", "--offline"]);
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_eq!(said.matches(told).count(), 1, "{said}");
        // What check refuses does not start.
        let run = ecluse(&["--root", path, "run", "--once"]);
        assert_eq!(run.status.code(), Some(78), "{run:?}");
    }
}

#[test]
fn a_job_that_nobody_works_on_does_not_go_on() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().to_str().unwrap();
    assert!(ecluse(&["--root", path, "init"]).status.success());
    std::fs::create_dir_all(root.path().join("jobs/weekly-7")).unwrap();
    let job = |words: &[&str]| {
        let output = ecluse(&[&["--root", path, "job"], words].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    job(&["pause", "weekly-7", "--why", "a test"]);
    for verb in ["resume", "end"] {
        let said = job(&[verb, "weekly-7", "--why", "a test"]);
        assert!(
            said.contains("when the crawl stage runs, which it does not"),
            "{said}"
        );
        assert!(said.contains("run crawl"), "{said}");
    }
}

#[test]
fn validate_says_on_its_first_line_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let bag = dir.path().join("bag");
    std::fs::create_dir_all(bag.join("data")).unwrap();
    let put = |name: &str, text: &str| std::fs::write(bag.join(name), text).unwrap();
    put("data/hello", "hello");
    put(
        "bagit.txt",
        "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n",
    );
    put(
        "manifest-md5.txt",
        "5d41402abc4b2a76b9719d911017c592  data/hello\n",
    );
    let bag_path = bag.to_str().unwrap();
    let good = ecluse(&["validate", bag_path]);
    let said = String::from_utf8(good.stdout).unwrap();
    assert_eq!(good.status.code(), Some(0), "{said}");
    assert!(
        said.starts_with(&format!("{bag_path}: valid, 1 files")),
        "{said}"
    );

    put("data/hello", "jello");
    let bad = ecluse(&["validate", "--quiet", bag_path]);
    let said = String::from_utf8(bad.stdout).unwrap();
    assert_eq!(bad.status.code(), Some(65), "{said}");
    assert!(
        said.starts_with(&format!("{bag_path}: not valid: data/hello: md5 is ")),
        "{said}"
    );
    let json = ecluse(&["validate", "--json", bag_path]);
    let value: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(value["packages"][0]["valid"], false);
    let none = ecluse(&["validate", dir.path().join("none").to_str().unwrap()]);
    assert_eq!(none.status.code(), Some(65));
}
