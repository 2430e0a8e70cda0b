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

/// A generation of changes with pages of one site: the number of each, and how often it changes.
fn put_changes(root: &Path) {
    use ecluse_changes::{ArchiveTime, PageChanges, RecordWriter};
    let directory = root.join("changes/generations/3");
    fs::create_dir_all(&directory).unwrap();
    std::os::unix::fs::symlink("generations/3", root.join("changes/current")).unwrap();
    let time = |digits: &str| ArchiveTime::parse(digits).unwrap();
    let mut writer = RecordWriter::<PageChanges>::create(&directory).unwrap();
    for number in 0..4 {
        let page = PageChanges {
            surt: format!("fr,presse)/{number}"),
            url: format!("http://presse.fr/{number}"),
            first: time("20260101000000"),
            last: time("20261118060000"),
            looks: 9,
            changes: 4,
            last_change: None,
            quiet_days: 3.0,
            declared_days: 0.0,
            declared_changes: 0,
            intervals: Default::default(),
            rate: 0.1 * f64::from(number + 1),
            change_weight: Some(0.4),
            text_weight: None,
            status: Some(200),
            etag: None,
            last_modified: None,
            signal: None,
            simhash: None,
            pattern: None,
            words: None,
        };
        writer.write(&page).unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn visits_are_shown_before_they_are_ordered_and_explained_after() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    put(
        root,
        "pipeline.toml",
        "[site]\ncontact = 'a@archive.example'\n[stage.plan]\nbatch = { parcels = 10, wait = '1ms' }\n",
    );
    let definition = "kind = 'selective'\nfrom = '2026-11-20T06:00:00Z'\nuntil = '2027-11-20'\nevery = '1d'\n\
                      [[domains]]\nnames = ['presse.fr']\n[refresh]\nbudget = 3\n";
    put(root, "harvests/press.toml", definition);
    put_changes(root);
    let (code, told, said) = ecluse(root, &["plan", "press", "--preview"]);
    assert_eq!(code, 0, "{said}");
    for line in [
        "visits       3 of at most 3 by policy mixed: 2 refresh, 0 discovery, 1 perimeter\n",
        "candidates   4 known pages, 1 URLs never fetched; 0 pages were not visited for too long\n",
        "links        there are none yet\n",
        "changes      generation 3\n",
        "http://presse.fr/3\n",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
    let (_, told, _) = ecluse(root, &["plan", "press", "--preview", "--json"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["refresh"]["policy"], "mixed");
    assert_eq!(told["first"][0]["reason"], "perimeter");
    // Nothing was ordered yet; of its changes something is known.
    let (code, told, _) = ecluse(root, &["why", "http://presse.fr/3"]);
    assert_eq!(code, 0);
    assert!(
        told.contains("no run of a harvest with [refresh] visits it"),
        "{told}"
    );
    let (code, _, said) = ecluse(root, &["why", "http://presse.fr/none"]);
    assert_eq!(code, 64, "{said}");

    let (code, _, said) = ecluse(root, &["run", "--once", "plan"]);
    assert_eq!(code, 0, "{said}");
    let (code, told, said) = ecluse(root, &["why", "http://presse.fr/3"]);
    assert_eq!(code, 0, "{said}");
    for part in [
        "run 20261120060000 of harvest press, job press.202611200600.0001",
        "refresh, level ",
        "last captured 20261118060000",
        "about 0.400 changes a day",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let (_, told, _) = ecluse(root, &["why", "http://presse.fr/3", "--json"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["visits"][0]["harvest"], "press");
    assert_eq!(told["visits"][0]["visit"]["reason"], "refresh");
}
