//! The program: the contract of every stage, the register, harvests that are due, and the orders they become.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

mod common;

use std::fs;
use std::path::Path;

use common::*;
use ecluse_plan::RunDirectory;
use ecluse_register::{DomainState, StopReason};
use ecluse_scope::{Limit, Order, Priority, QueueBy};
use ecluse_testkit::contract::Contract;
use ecluse_testkit::root::{Program, until_so};

#[test]
fn plan_keeps_the_contract() {
    let line = name_line("exemple.fr", "afnic:1");
    Contract {
        stage: "plan",
        binary: Path::new(PLAN),
        settings: "batch = { parcels = 60, wait = \"50ms\" }",
        good: &[("names.tsv", line.as_bytes())],
        bad: &[("names.tsv", b"no list of names\n")],
    }
    .keep();
}

const RULE: &str = "[[rule]]\nverdict = \"out\"\ndomain = \"exemple.fr\"\nwho = \"M. Duval\"\nwhen = \"2026-10-02\"\nwhy = \"asked\"\n";

#[test]
fn names_results_and_rules_come_into_the_register() {
    let root = root("");
    put_names(
        &root,
        "names-1",
        "20261101",
        &[
            ("exemple.fr", "afnic:1,librarians:2", "ok"),
            ("blog.exemple.fr", "librarians:1", "ok"),
            ("parti.fr", "afnic:1", "gone"),
            ("sourd.fr", "ovh:1", "unknown"),
        ],
    );
    must_run(&root);
    let known = record(&root, "exemple.fr");
    assert_eq!(known.forms, ["apex", "www"]);
    assert_eq!(known.dns.as_ref().unwrap().class, "OK_A");
    assert_eq!(known.dns.as_ref().unwrap().day.to_string(), "20261101");
    assert_eq!(
        known.sources.keys().collect::<Vec<_>>(),
        ["afnic", "librarians"]
    );
    assert_eq!(known.more["hosts"][0], "blog.exemple.fr");
    assert_eq!(record(&root, "parti.fr").state, DomainState::Active);

    // A second check on another day: gone, and still there.
    put_names(
        &root,
        "names-2",
        "20261103",
        &[("parti.fr", "afnic:1", "gone")],
    );
    put_results(
        &root,
        "job1",
        "press",
        "20261102",
        &[
            ("exemple.fr", 120, 4_560_000, "DOWNLOAD_COMPLETE"),
            ("inconnu.fr", 7, 70, "OBJECT_LIMIT"),
            ("127.0.0.1", 7, 70, "OBJECT_LIMIT"),
        ],
    );
    must_run(&root);
    assert_eq!(record(&root, "parti.fr").state, DomainState::Inactive);
    let results = record(&root, "exemple.fr").harvests();
    assert_eq!(
        (results[0].objects, results[0].bytes, results[0].stop),
        (120, 4_560_000, StopReason::DownloadComplete)
    );
    assert_eq!(
        (results[0].job.as_str(), results[0].harvest.as_str()),
        ("job1", "press")
    );
    let reasons = [
        "OBJECT_LIMIT",
        "SIZE_LIMIT",
        "CONFIG_OBJECT_LIMIT",
        "CONFIG_SIZE_LIMIT",
        "TIME_LIMIT",
        "DOWNLOAD_UNFINISHED",
    ];
    for (number, reason) in reasons.iter().enumerate() {
        let (job, site) = (format!("reason{number}"), format!("r{number}.fr"));
        let line = [(site.as_str(), 5, 50, *reason)];
        put_results(&root, &job, "press", "20261102", &line);
    }
    must_run(&root);
    for (number, reason) in reasons.iter().enumerate() {
        let harvests = record(&root, &format!("r{number}.fr")).harvests();
        assert_eq!(harvests[0].stop.word(), *reason);
    }
    assert!(record(&root, "inconnu.fr").sources.contains_key("harvests"));
    assert!(register(&root).lookup("127.0.0.1").unwrap().is_none());

    // The librarians' word, when it changes and when it is taken back.
    let before = register_bytes(&root);
    put(&root, "forced.toml", RULE);
    must_run(&root);
    let forced = record(&root, "exemple.fr");
    assert_eq!(
        (forced.state, &forced.more["forced"]["why"]),
        (DomainState::Inactive, &"asked".into())
    );
    let generation = register(&root).current().unwrap();
    must_run(&root);
    assert_eq!(
        register(&root).current().unwrap(),
        generation,
        "once is enough"
    );
    fs::remove_file(root.path().join("forced.toml")).unwrap();
    must_run(&root);
    assert_eq!(register_bytes(&root), before);
}

#[test]
fn what_makes_no_sense_is_held_with_its_line() {
    let root = root("");
    let two = name_line("a.fr", "afnic:1") + &name_line("b.fr", "afnic:1");
    let one = checked_line("a.fr", "ok");
    let other = checked_line("a.fr", "ok") + &checked_line("c.fr", "ok");
    let about = b"{\"job\":\"1\",\"harvest\":\"h\",\"ended\":\"20261101\"}\n";
    type Files<'a> = Vec<(&'a str, &'a [u8])>;
    let cases: [(&str, Files<'_>, &str); 7] = [
        (
            "short",
            vec![
                ("names.tsv", two.as_bytes()),
                ("checked.tsv", one.as_bytes()),
            ],
            "ends before",
        ),
        (
            "other",
            vec![
                ("names.tsv", two.as_bytes()),
                ("checked.tsv", other.as_bytes()),
            ],
            "line 2 of checked.tsv",
        ),
        (
            "undated",
            vec![
                ("names.tsv", &two.as_bytes()[..two.len() - 3]),
                ("checked.tsv", one.as_bytes()),
            ],
            "line 2 of names.tsv",
        ),
        (
            "results",
            vec![
                ("job.json", about),
                (
                    "results.tsv",
                    b"fr,a\ta.fr\t1\tmany\t1\tDOWNLOAD_COMPLETE\n",
                ),
            ],
            "line 1 of results.tsv",
        ),
        (
            "jobless",
            vec![("job.json", b"{}"), ("results.tsv", b"")],
            "job.json",
        ),
        (
            "seeds",
            vec![
                ("names.tsv", &two.as_bytes()[..two.find('\n').unwrap() + 1]),
                ("seeds.tsv", b"a.fr\tx\tjavascript:alert(1)\n"),
            ],
            "no URL of the web",
        ),
        (
            "evidence",
            vec![("evidence.tsv", b"a.fr\tmood\tgood\t20261101\n")],
            "neither language",
        ),
    ];
    for (id, files, _) in &cases {
        root.put_files("plan", id, files);
        if files.iter().any(|(name, _)| *name == "checked.tsv") {
            add_receipt(&root, id, "20261101");
        }
    }
    put_names(&root, "good", "20261101", &[("bon.fr", "afnic:1", "ok")]);
    let (code, said) = run(&root);
    assert_eq!(code, 65, "{said}");
    for (id, _, words) in &cases {
        let why = root.why("plan", id);
        assert!(why.contains(words), "{id}: {why}");
    }
    assert_eq!(root.list("plan", "held").len(), cases.len());
    record(&root, "bon.fr");
}

const PRESS: &str = r#"
kind = "selective"
description = "the press, every day"
from = "2026-11-20T06:00:00Z"
until = "2027-11-20"
schedule = "*-*-* 06:00"
except = ["2026-12-25"]
priority = "high"
collection = "press"
budget = { urls = 2000 }
traps = ['/agenda/']
template = "templates/press.toml"
[[domains]]
names = ["journal.fr"]
[[domains]]
urls = ["https://www.exemple.fr/actualites/"]
reach = "path"
depth = 2
budget = { urls = 100, bytes = "10 MB" }
"#;
const TEMPLATE: &str = "[agent]\ncontact = 'crawler@archive.example'\n[dedup]\nacross-jobs = false\n[scope.traps]\nalso = ['/old/']\n";
const BROAD: &str = r#"
kind = "broad"
from = "2026-11-18T03:00:00Z"
schedule = "*-11-18 03:00"
budget = { urls = 1000, bytes = "100 MB" }
template = "templates/press.toml"
"#;

fn with_harvests(more: &str) -> ecluse_testkit::root::Root {
    let root = root(more);
    put(&root, "harvests/press.toml", PRESS);
    put(&root, "harvests/templates/press.toml", TEMPLATE);
    put(
        &root,
        "traps.toml",
        "everywhere = ['/piege/']\n[domains]\n'journal.fr' = ['/print/']\n",
    );
    root
}

fn order(text: &str) -> Order {
    Order::parse(text, "order.toml", "").unwrap().order
}

#[test]
fn a_selective_harvest_is_ordered_when_it_is_due() {
    let root = with_harvests("");
    put_names(
        &root,
        "names",
        "20261101",
        &[("journal.fr", "afnic:1", "ok")],
    );
    must_run(&root);
    assert_eq!(orders(&root).len(), 0, "not due yet");
    set_clock(&root, "2026-11-20T06:00:10Z");
    must_run(&root);
    must_run(&root);
    let made = orders(&root);
    assert_eq!(
        made.len(),
        2,
        "domains with settings of their own have a job of their own: {made:?}"
    );
    let (name, text, seeds) = &made[0];
    assert_eq!(name, "press.202611200600.0001-press~0");
    assert_eq!(seeds, "journal.fr journal.fr\nwww.journal.fr journal.fr\n");
    let whole = order(text);
    assert_eq!(
        (whole.harvest.as_str(), whole.priority),
        ("press", Priority::High)
    );
    assert_eq!(whole.warc.prefix, "press");
    assert_eq!(whole.budget.queue.urls, Limit::At(2000));
    assert_eq!(whole.manners.queue_by, QueueBy::Domain);
    // Traps of all three levels, beside the template's own.
    assert_eq!(whole.scope.traps.also, ["/old/", "/piege/", "/agenda/"]);
    assert!(
        text.contains("regex = \"/print/\"") && text.contains("fr,journal,"),
        "{text}"
    );
    let path = order(&made[1].1);
    assert_eq!(made[1].2, "https://www.exemple.fr/actualites/ exemple.fr\n");
    assert_eq!(
        (path.scope.reach.name(), path.scope.depth),
        ("path", Limit::At(2))
    );
    assert_eq!(path.budget.queue.urls, Limit::At(100));
    // An entry's own budget is told from the harvest's.
    assert_eq!(
        (whole.budget.queue.own, path.budget.queue.own),
        (false, true)
    );
    // What the template says holds for every job, not for the last one alone.
    assert!(
        made.iter()
            .all(|(_, text, _)| !order(text).dedup.across_jobs)
    );

    // The next day, and nothing twice.
    set_clock(&root, "2026-11-21T06:00:10Z");
    must_run(&root);
    assert_eq!(orders(&root).len(), 4);
    let run = RunDirectory::at(root.path().join("runs"))
        .last_run("press")
        .unwrap()
        .unwrap();
    assert_eq!((run.jobs, run.missed, run.late_seconds()), (2, 0, None));
    // A fortnight without the machine: one run, late, and it is said.
    set_clock(&root, "2026-12-05T09:00:00Z");
    let said = must_run(&root);
    assert_eq!(orders(&root).len(), 6);
    assert!(said.contains("a run is late"), "{said}");
    let run = RunDirectory::at(root.path().join("runs"))
        .last_run("press")
        .unwrap()
        .unwrap();
    assert_eq!(
        (run.due.to_string().as_str(), run.missed),
        ("2026-12-05T06:00:00Z", 13)
    );
    assert_eq!(run.late_seconds(), Some(3 * 3600));
    // Christmas.
    set_clock(&root, "2026-12-25T07:00:00Z");
    must_run(&root);
    let run = RunDirectory::at(root.path().join("runs"))
        .last_run("press")
        .unwrap()
        .unwrap();
    assert_eq!(run.due.to_string(), "2026-12-24T06:00:00Z");
    // Somebody takes the definition away while a run is on its way.
    let id = "run-press-20270101060000";
    root.put_files(
        "plan",
        id,
        &[(
            "run.json",
            br#"{"harvest":"gone","due":"2027-01-01T06:00:00Z","missed":0}"#,
        )],
    );
    assert!(run_held(&root, id));
}

fn run_held(root: &ecluse_testkit::root::Root, id: &str) -> bool {
    let (code, _) = run(root);
    code == 65 && root.why("plan", id).contains("is gone")
}

#[test]
fn a_broad_harvest_waits_for_dns_and_uses_what_came_before() {
    let root = with_harvests(
        "[stage.plan.jobs]\ndomains = 4\nobjects = 8000000\nratio = 100\ndifference = 2000\n",
    );
    put(&root, "harvests/broad.toml", BROAD);
    let names: Vec<String> = (0..10).map(|n| format!("site{n}.fr")).collect();
    let mut lines: Vec<(&str, &str, &str)> = names
        .iter()
        .map(|name| (name.as_str(), "afnic:1", "ok"))
        .collect();
    lines.push(("parti.fr", "afnic:1", "gone"));
    // Half of them were last asked a year ago.
    put_names(&root, "old", "20250901", &lines);
    put_names(&root, "new", "20261101", &lines[..5]);
    put_names(
        &root,
        "older",
        "20250801",
        &[("parti.fr", "afnic:1", "gone")],
    );
    must_run(&root);
    set_clock(&root, "2026-11-18T03:00:10Z");
    must_run(&root);
    must_run(&root);
    assert_eq!(orders(&root).len(), 0);
    let runs = RunDirectory::at(root.path().join("runs"));
    let waiting = runs.last_run("broad").unwrap().unwrap();
    assert_eq!(waiting.checked, Some((5, 10)));
    put_names(&root, "newer", "20261117", &lines[5..10]);
    set_clock(&root, "2026-11-18T09:00:00Z");
    must_run(&root);
    must_run(&root);
    let ordered = runs.last_run("broad").unwrap().unwrap();
    assert_eq!((ordered.jobs, ordered.domains), (3, 10), "{ordered:?}");
    assert_eq!(ordered.left_out["inactive"], 1);
    // Nothing is known of them: 5,000 objects each, but no more than the limit.
    assert_eq!(ordered.objects, 10 * 1000);
    assert_eq!(orders(&root).len(), 3);
    assert_eq!(order(&orders(&root)[0].1).priority, Priority::Low);

    // A year later the results are what is expected.
    let mut results: Vec<(&str, u64, u64, &str)> = names
        .iter()
        .map(|name| (name.as_str(), 10, 380_000, "DOWNLOAD_COMPLETE"))
        .collect();
    results[3] = ("site3.fr", 1000, 38_000_000, "OBJECT_LIMIT");
    put_results(
        &root,
        "broad.202611180300.0001",
        "broad",
        "20261130",
        &results,
    );
    put_names(&root, "next", "20271101", &lines);
    set_clock(&root, "2027-11-18T03:00:00Z");
    must_run(&root);
    must_run(&root);
    let next = runs.last_run("broad").unwrap().unwrap();
    assert_eq!(
        (next.due.to_string().as_str(), next.domains),
        ("2027-11-18T03:00:00Z", 10)
    );
    assert_eq!(next.objects, 9 * 10 + 1000);
    let orders = orders(&root);
    let job = orders
        .iter()
        .find(|(name, ..)| name.starts_with("broad.202711180300.0001"))
        .unwrap();
    assert!(
        job.2.starts_with("site3.fr site3.fr\n") || job.2.contains("\nsite3.fr site3.fr\n"),
        "{}",
        job.2
    );
}

/// Everything that a person can write wrong, and some that no person would.
#[test]
fn hostile_definitions_are_refused_and_harm_no_other() {
    let root = with_harvests("");
    let long = format!("kind = \"selective\"\n# {}\n", "x".repeat(17 << 20));
    let hostile = [
        ("past", PRESS.replace("2026-11-20T06", "2025-11-20T06")),
        ("endless", PRESS.replace("until = \"2027-11-20\"\n", "")),
        ("ended", PRESS.replace("2027-11-20", "2026-11-20")),
        ("never", PRESS.replace("*-*-* 06:00", "*-02-30 06:00")),
        ("huge", PRESS.replace("urls = 2000", "urls = 200000")),
        ("whole", PRESS.replace("budget = { urls = 2000 }\n", "")),
        (
            "twice",
            PRESS.replace("\"journal.fr\"", "\"journal.fr\", \"JOURNAL.fr\""),
        ),
        (
            "part",
            PRESS.replace("\"journal.fr\"", "\"www.journal.fr\""),
        ),
        ("address", PRESS.replace("\"journal.fr\"", "\"127.0.0.1\"")),
        (
            "script",
            PRESS.replace("https://www.exemple.fr/actualites/", "javascript:alert(1)"),
        ),
        (
            "outside",
            PRESS.replace("templates/press.toml", "../../pipeline.toml"),
        ),
        (
            "absent",
            PRESS.replace("templates/press.toml", "templates/none.toml"),
        ),
        ("regex", PRESS.replace("/agenda/", "(")),
        ("key", PRESS.replace("priority", "prority")),
        (
            "zone",
            PRESS.replace("priority = \"high\"", "zone = \"Mars/Olympus\""),
        ),
        (
            "both",
            PRESS.replace("priority = \"high\"", "every = \"1d\""),
        ),
        ("kindless", PRESS.replace("kind = \"selective\"\n", "")),
        ("unfit", PRESS.replace("selective", "broad")),
        ("empty", String::new()),
        ("binary", "\u{0}\u{1b}[31m".to_owned()),
        ("a-b", PRESS.to_owned()),
        ("long", long),
    ];
    for (name, text) in &hostile {
        put(&root, &format!("harvests/{name}.toml"), text);
    }
    fs::write(
        root.path().join("harvests/latin1.toml"),
        b"kind = \"\xe9\"\n",
    )
    .unwrap();
    fs::create_dir(root.path().join("harvests/directory.toml")).unwrap();
    // Nobody ever writes into it: who opens it waits for ever.
    let pipe = root.path().join("harvests/pipe.toml");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    set_clock(&root, "2026-11-20T06:00:10Z");
    let said = must_run(&root);
    must_run(&root);
    assert!(said.contains("no regular file"), "{said}");
    for (name, _) in &hostile {
        assert!(
            said.contains(&format!("\"harvest\":\"{name}\""))
                || said.contains(&format!("harvest={name}"))
                || said.contains(name),
            "{name}: {said}"
        );
    }
    assert!(!said.contains('\u{1b}'));
    // The good one among them was not harmed.
    let made = orders(&root);
    assert_eq!(made.len(), 2, "{made:?}");
    assert!(made.iter().all(|(name, ..)| name.starts_with("press.")));
}

#[test]
fn a_broken_file_of_rules_is_told_once_and_waited_for() {
    let root = root("");
    put_names(&root, "names", "20261101", &[("a.fr", "afnic:1", "ok")]);
    must_run(&root);
    let mut command = root.program(PLAN);
    command
        .env("ECLUSE_CLOCK_FILE", root.path().join("clock"))
        .args(["--log", "debug"]);
    let mut program = Program::start(command);
    root.await_note("plan", "idle");
    put(&root, "forced.toml", "[[rule]]\nverdict = 'out'\n");
    put_names(&root, "more", "20261102", &[("b.fr", "afnic:1", "ok")]);
    let why = root.await_note("plan", "refusing");
    assert!(why.contains("forced.toml"), "{why}");
    until_so("it was looked at three times", || {
        program.lines_with("it still makes no sense") >= 2
    });
    assert_eq!(program.lines_with("claiming nothing until it does"), 1);
    assert_eq!(program.lines_with("the machine is"), 0, "{}", program.log());
    // Whatever else it does, the note stays until the file is mended.
    root.await_note("plan", "refusing");
    put(&root, "forced.toml", RULE);
    program.await_log("the file makes sense again");
    until_so("the names are in", || {
        register(&root).lookup("b.fr").unwrap().is_some()
    });
    assert_eq!(program.lines_with("claiming nothing until it does"), 1);
    assert_eq!(program.stop(), 0, "{}", program.log());

    // One that is broken from the start ends a run with the code of a setting.
    put(&root, "forced.toml", "[[rule]]\n");
    let (code, said) = run(&root);
    assert_eq!(code, 78, "{said}");
}

#[test]
fn what_comes_into_the_register_is_kept() {
    let root = root("news = 'kept'");
    let news = |root: &ecluse_testkit::root::Root| {
        let files = ecluse_testkit::root::contents(&root.path().join("kept"));
        let mut lines: Vec<String> = Vec::new();
        for (path, bytes) in &files {
            assert!(path.to_string_lossy().ends_with(".tsv.zst"), "{path:?}");
            let text = zstd::decode_all(bytes.as_slice()).unwrap();
            let text = String::from_utf8(text).unwrap();
            lines.extend(text.lines().map(str::to_owned));
        }
        (files.len(), lines)
    };
    put_names(&root, "names", "20261101", &[("a.fr", "afnic:1", "ok")]);
    let lines = "a.fr\tlinked\tb.fr\t20261102\nb.fr\tlanguage\tfr\t20261102\n";
    root.put_files("plan", "told", &[("evidence.tsv", lines.as_bytes())]);
    must_run(&root);
    let (files, lines) = news(&root);
    assert_eq!(files, 1);
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!(
        record(&root, "a.fr").more["evidence"]["links"]["from"][0],
        "b.fr"
    );
    // A page tells nothing of what nobody has named.
    assert!(register(&root).lookup("b.fr").unwrap().is_none());
    // Rules are a file of their own, and are read anew.
    put(&root, "forced.toml", &RULE.replace("exemple.fr", "a.fr"));
    must_run(&root);
    assert_eq!(record(&root, "a.fr").state, DomainState::Inactive);
    assert_eq!(news(&root).0, 1);
}

#[test]
fn harvests_due_together_are_shared_among_the_crawlers() {
    let root = root("");
    let copies = "[stage.plan]\nbatch = { parcels = 1000, wait = \"50ms\" }\nnext = [\"crawl@a\", \"crawl@b\"]\n";
    root.settings(&["plan", "crawl"], copies);
    put(
        &root,
        "harvests/t.toml",
        "[agent]\ncontact = 'a@archive.example'\n",
    );
    for name in ["one", "two", "three", "four"] {
        let harvest = format!(
            "kind = 'selective'\nfrom = '2026-11-17T11:59:00Z'\nbudget = {{ urls = 10 }}\ntemplate = 't.toml'\n\
             [[domains]]\nurls = ['http://{name}.fr/']\n"
        );
        put(&root, &format!("harvests/{name}.toml"), &harvest);
    }
    must_run(&root);
    let orders = ["crawl@a", "crawl@b"].map(|crawler| root.list(crawler, "ready").len());
    assert_eq!(orders, [2, 2]);
}
