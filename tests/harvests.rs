//! `ecluse harvest check`, `ecluse harvests`, `ecluse plan` and `ecluse status`: what they say of definitions, rules and runs.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

use std::fs;
use std::path::Path;
use std::process::Command;

use ecluse_testkit::root::settle_environment;
use serde_json::Value;

const NOW: &str = "2026-11-20T06:00:10Z";

fn ecluse(root: &Path, words: &[&str]) -> (i32, String, String) {
    fs::write(root.join("clock"), format!("{NOW}\n")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ecluse"));
    settle_environment(&mut command);
    command.env("ECLUSE_CLOCK_FILE", root.join("clock"));
    command.arg("--root").arg(root).args(words);
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap();
    (code, text(output.stdout), text(output.stderr))
}

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

const PRESS: &str = "kind = 'selective'\nfrom = '2026-11-20T06:00:00Z'\nuntil = '2027-11-20'\nevery = '1d'\n\
                     budget = { urls = 20 }\n[[domains]]\nurls = ['http://presse.fr/']\n";

#[test]
fn a_run_that_is_due_is_told_before_that_of_tomorrow() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    put(
        root,
        "pipeline.toml",
        "[site]\ncontact = 'a@archive.example'\n",
    );
    put(root, "harvests/press.toml", PRESS);
    let file = root.join("harvests/press.toml");
    let file = file.to_str().unwrap();
    let (code, told, said) = ecluse(root, &["harvest", "check", file]);
    assert_eq!(code, 0, "{told}{said}");
    assert!(
        told.ends_with("its next run: 2026-11-20T06:00:00Z, which is now due\n"),
        "{told}"
    );
    let (_, told, _) = ecluse(root, &["harvests"]);
    assert!(
        told.contains("next      2026-11-20T06:00:00Z, which is now due\n"),
        "{told}"
    );
    // Ordered, it is no longer to come.
    assert_eq!(ecluse(root, &["run", "--once", "plan"]).0, 0);
    assert_eq!(ecluse(root, &["run", "--once", "plan"]).0, 0);
    let (_, told, _) = ecluse(root, &["harvests", "--json"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["harvests"][0]["last"]["state"], "ordered", "{told}");
    assert_eq!(told["harvests"][0]["next"][0], "2026-11-21T06:00:00Z");
    assert_eq!(told["harvests"][0]["next"].as_array().unwrap().len(), 5);
}

#[test]
fn a_syntax_error_stands_alone() {
    let root = tempfile::tempdir().unwrap();
    put(root.path(), "broken.toml", &format!("{PRESS}from = = 1\n"));
    let file = root.path().join("broken.toml");
    let (code, told, _) = ecluse(root.path(), &["harvest", "check", file.to_str().unwrap()]);
    assert_eq!(code, 78);
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(
        told.contains("broken.toml:8") && told.contains("not TOML"),
        "{told}"
    );
}

#[test]
fn status_says_which_file_to_mend() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    put(root, "pipeline.toml", "");
    put(root, "traps.toml", "everywhere = ['(']\n");
    let (code, told, said) = ecluse(root, &["status"]);
    assert_eq!(code, 0, "{said}");
    assert!(
        told.contains("traps.toml") && told.contains("mend that file"),
        "{told}"
    );
}

#[test]
fn a_preview_shows_the_jobs_that_the_run_then_orders_and_starts_none() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    put(
        root,
        "pipeline.toml",
        "[site]\ncontact = 'a@archive.example'\n",
    );
    let domains = "[[domains]]\nurls = ['http://un.fr/', 'http://deux.fr/']\n\
                   [[domains]]\nbudget = { urls = 7 }\nurls = ['http://trois.fr/']\n";
    put(root, "harvests/press.toml", &format!("{PRESS}{domains}"));
    let (code, told, said) = ecluse(root, &["plan", "press", "--preview"]);
    assert_eq!(code, 0, "{said}");
    // Other settings are another job.
    assert!(
        told.starts_with("harvest press: 2 jobs for 4 domains, "),
        "{told}"
    );
    for part in ["expected ", "time ", "register ", "presse.fr", "trois.fr"] {
        assert!(told.contains(part), "{part:?} in {told}");
    }
    let (_, told, _) = ecluse(root, &["plan", "press", "--preview", "--json"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["jobs"].as_array().unwrap().len(), 2, "{told}");
    let orders = || fs::read_dir(root.join("work/crawl/ready")).map_or(0, Iterator::count);
    assert_eq!(orders(), 0, "nothing was started");

    assert_eq!(ecluse(root, &["run", "--once", "plan"]).0, 0);
    assert_eq!(ecluse(root, &["run", "--once", "plan"]).0, 0);
    assert_eq!(orders(), 2);
    let (_, run, _) = ecluse(root, &["harvests", "--json"]);
    let run: Value = serde_json::from_str(&run).unwrap();
    let last = &run["harvests"][0]["last"];
    assert_eq!(last["domains"], told["domains"], "{last} {told}");
    assert_eq!(last["objects"], told["objects"], "{last} {told}");

    let (code, _, said) = ecluse(root, &["plan", "gone", "--preview"]);
    assert_eq!(code, 64, "{said}");
    assert!(said.contains("there are: press"), "{said}");
}
