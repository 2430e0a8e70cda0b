//! DNS is asked again before a broad harvest: about which names, once, and what the answers do to the register and to the run.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

mod common;

use common::*;
use ecluse_plan::{RunDirectory, RunRecord, RunState};
use ecluse_register::DomainState;
use ecluse_testkit::root::Root;

const BROAD: &str = "kind = 'broad'\nfrom = '2026-11-18T03:00:00Z'\nschedule = '*-11-18 03:00'\nbudget = { urls = 100 }\n\
                     template = 't.toml'\n";

/// A root whose plan asks a dns-filter that nobody runs.
fn asking_root(more: &str) -> Root {
    let root = root("");
    let text = format!("[stage.plan]\nbatch = {{ parcels = 1000, wait = \"50ms\" }}\n{more}\n");
    root.settings(&["dns-filter", "plan", "sink"], &text);
    put(
        &root,
        "harvests/t.toml",
        "[agent]\ncontact = 'a@archive.example'\n",
    );
    root
}

fn run_of(root: &Root, harvest: &str) -> Option<RunRecord> {
    let runs = RunDirectory::at(root.path().join("runs"));
    runs.last_run(harvest).unwrap()
}

/// The names that dns-filter was given, by parcel; every line without a source.
fn asked(root: &Root) -> Vec<(String, Vec<String>)> {
    let ready = root.part("dns-filter", "ready");
    let parcels = root.list("dns-filter", "ready").into_iter();
    parcels
        .map(|parcel| {
            let text = std::fs::read_to_string(ready.join(&parcel).join("names.tsv")).unwrap();
            let names = text.lines().map(|line| {
                let columns: Vec<&str> = line.split('\t').collect();
                assert_eq!((columns[4], columns[6]), ("-", "-"), "{line}");
                columns[1].to_owned()
            });
            (parcel.clone(), names.collect())
        })
        .collect()
}

/// Answers what dns-filter was given, as it would.
fn answer(root: &Root, day: &str, says: &dyn Fn(&str) -> &'static str) {
    for (parcel, names) in asked(root) {
        let path = root.part("dns-filter", "ready").join(&parcel);
        let list = std::fs::read(path.join("names.tsv")).unwrap();
        let checked: String = names
            .iter()
            .map(|name| checked_line(name, says(name)))
            .collect();
        let id = parcel.trim_end_matches("~0");
        let files = [
            ("names.tsv", &list[..]),
            ("checked.tsv", checked.as_bytes()),
        ];
        root.put_files("plan", id, &files);
        add_receipt(root, id, day);
        std::fs::remove_dir_all(path).unwrap();
    }
}

#[test]
fn names_not_asked_lately_and_names_denied_once_are_asked_again_and_the_run_waits_for_them() {
    let root = asking_root("check-list = 3");
    put(&root, "harvests/broad.toml", BROAD);
    for (id, day, names) in [
        ("a", "20261110", vec![("fresh.fr", "afnic:1", "ok")]),
        // It has vanished from its list since.
        ("b", "20260801", vec![("old.fr", "afnic:1", "ok")]),
        ("c", "20261114", vec![("denied.fr", "afnic:1", "gone")]),
        ("d", "20261117", vec![("today.fr", "afnic:1", "gone")]),
        ("e", "20261001", vec![("dead.fr", "afnic:1", "gone")]),
        ("f", "20261003", vec![("dead.fr", "afnic:1", "gone")]),
        // Denied, and then nobody could say: it is kept.
        ("g", "20261010", vec![("unsure.fr", "afnic:1", "gone")]),
        ("h", "20261012", vec![("unsure.fr", "afnic:1", "unknown")]),
        (
            "i",
            "20260801",
            vec![
                ("several.fr", "afnic:1", "ok"),
                ("blog.several.fr", "librarians:1", "ok"),
            ],
        ),
    ] {
        put_names(&root, id, day, &names);
    }
    must_run(&root);
    must_run(&root);
    let expected = [
        (
            "recheck-20261117-00001~0",
            vec!["denied.fr", "old.fr", "several.fr"],
        ),
        ("recheck-20261117-00002~0", vec!["blog.several.fr"]),
    ];
    let expected: Vec<(String, Vec<String>)> = expected
        .into_iter()
        .map(|(id, names)| (id.into(), names.into_iter().map(Into::into).collect()))
        .collect();
    assert_eq!(asked(&root), expected);
    // Once, while they are on their way, whatever the day.
    must_run(&root);
    set_clock(&root, "2026-11-18T03:00:10Z");
    must_run(&root);
    must_run(&root);
    assert_eq!(asked(&root), expected);
    let waiting = run_of(&root, "broad").unwrap();
    assert_eq!((waiting.checked, waiting.denied), (Some((2, 6)), 2));

    let before = record(&root, "old.fr");
    answer(&root, "20261118", &|name| match name {
        "denied.fr" => "gone",
        _ => "ok",
    });
    must_run(&root);
    must_run(&root);
    let after = record(&root, "old.fr");
    assert_eq!(
        (&after.sources, after.first, after.last),
        (&before.sources, before.first, before.last),
        "nobody gave it anew"
    );
    assert_eq!(after.dns.unwrap().day.to_string(), "20261118");
    assert_eq!(record(&root, "denied.fr").state, DomainState::Inactive);
    assert_eq!(record(&root, "unsure.fr").state, DomainState::Active);
    // What was denied yesterday is not asked today: a day must have passed.
    let waiting = run_of(&root, "broad").unwrap();
    assert_eq!((waiting.checked, waiting.denied), (Some((4, 5)), 1));
    assert_eq!(asked(&root), []);
    set_clock(&root, "2026-11-19T12:00:00Z");
    must_run(&root);
    must_run(&root);
    assert_eq!(
        asked(&root),
        [(
            "recheck-20261119-00001~0".to_owned(),
            vec!["today.fr".to_owned()]
        )]
    );
    // It cannot be found out: it is kept, and the run goes on by itself.
    answer(&root, "20261119", &|_| "unknown");
    must_run(&root);
    must_run(&root);
    let ordered = run_of(&root, "broad").unwrap();
    assert_eq!((ordered.state, ordered.domains), (RunState::Ordered, 5));
    assert_eq!(ordered.left_out["inactive"], 2);
    assert_eq!(asked(&root), []);
}

#[test]
fn long_before_a_broad_harvest_nothing_is_asked() {
    let root = asking_root("check-ahead = \"2h\"");
    put(&root, "harvests/broad.toml", BROAD);
    put_names(&root, "a", "20260801", &[("old.fr", "afnic:1", "ok")]);
    must_run(&root);
    must_run(&root);
    assert_eq!(asked(&root), []);
    set_clock(&root, "2026-11-18T01:30:00Z");
    must_run(&root);
    must_run(&root);
    assert_eq!(asked(&root).len(), 1);
}

#[test]
fn a_round_that_a_person_threw_away_holds_nothing_up_for_ever() {
    let root = asking_root("");
    put(&root, "harvests/broad.toml", BROAD);
    put_names(&root, "a", "20260801", &[("old.fr", "afnic:1", "ok")]);
    must_run(&root);
    must_run(&root);
    assert_eq!(asked(&root).len(), 1);
    std::fs::remove_dir_all(
        root.part("dns-filter", "ready")
            .join("recheck-20261117-00001~0"),
    )
    .unwrap();
    set_clock(&root, "2026-11-18T12:00:00Z");
    must_run(&root);
    must_run(&root);
    assert_eq!(asked(&root), []);
    set_clock(&root, "2026-11-19T12:00:00Z");
    must_run(&root);
    must_run(&root);
    assert_eq!(asked(&root)[0].0, "recheck-20261119-00001~0");
}

#[test]
fn a_run_that_waits_until_the_next_is_due_is_missed_and_told() {
    let root = root("");
    put(
        &root,
        "harvests/t.toml",
        "[agent]\ncontact = 'a@archive.example'\n",
    );
    put(
        &root,
        "harvests/broad.toml",
        "kind = 'broad'\nfrom = '2026-11-18T03:00:00Z'\nuntil = '2026-12-18'\nevery = '1d'\nbudget = { urls = 10 }\ntemplate = 't.toml'\n",
    );
    put_names(&root, "a", "20260801", &[("old.fr", "afnic:1", "ok")]);
    must_run(&root);
    let runs = RunDirectory::at(root.path().join("runs"));
    let first = "2026-11-18T03:00:00Z".parse().unwrap();
    set_clock(&root, "2026-11-18T03:00:10Z");
    must_run(&root);
    must_run(&root);
    let waiting = runs.run("broad", first).unwrap().unwrap();
    assert_eq!((waiting.state, waiting.missed), (RunState::Waiting, 0));
    set_clock(&root, "2026-11-20T03:00:10Z");
    let said = must_run(&root);
    must_run(&root);
    assert!(said.contains("runs before this one were missed"), "{said}");
    let overtaken = runs.run("broad", first).unwrap().unwrap();
    assert_eq!(overtaken.state, RunState::Missed);
    let last = run_of(&root, "broad").unwrap();
    assert_eq!((last.state, last.missed), (RunState::Waiting, 2));
    put_names(&root, "b", "20261119", &[("old.fr", "afnic:1", "ok")]);
    must_run(&root);
    must_run(&root);
    let last = run_of(&root, "broad").unwrap();
    assert_eq!((last.state, last.missed), (RunState::Ordered, 2));
    assert_eq!(orders(&root).len(), 1);
}

#[test]
fn a_harvest_whose_index_ingest_would_not_choose_has_no_runs() {
    let press = "kind = 'selective'\nfrom = '2026-11-17T11:59:00Z'\nindex = 'press'\nbudget = { urls = 10 }\ntemplate = 't.toml'\n\
                 [[domains]]\nurls = ['http://presse.fr/']\n";
    let root = root("");
    put(
        &root,
        "harvests/t.toml",
        "[agent]\ncontact = 'a@archive.example'\n",
    );
    put(&root, "harvests/press.toml", press);
    let said = must_run(&root);
    must_run(&root);
    assert!(
        said.contains("'index' says index press") && said.contains("to the main index"),
        "{said}"
    );
    assert_eq!((orders(&root).len(), run_of(&root, "press")), (0, None));
    // As soon as both say the same, it has.
    root.settings(
        &["plan", "sink"],
        "[stage.plan]\nbatch = { parcels = 1000, wait = \"50ms\" }\n\
         [stage.ingest]\ncollections = [{ name = \"press\", harvests = \"press\" }]\n",
    );
    let said = must_run(&root) + &must_run(&root);
    assert_eq!(orders(&root).len(), 1, "{said}");
}
