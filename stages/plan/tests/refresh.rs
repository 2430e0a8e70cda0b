//! Harvests that visit what the archive knows: which pages, why, and never more than the budget.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

mod common;

use std::collections::BTreeMap;
use std::fs;

use common::*;
use ecluse_changes::{ArchiveTime, PageChanges, PagePattern, PatternOf, PatternSums, SignalKind};
use ecluse_plan::{PlannedVisit, VisitReason, visits_of};
use ecluse_testkit::root::Root;

const HARVEST: &str = r#"
kind  = "selective"
from  = "2026-11-17T06:00:00Z"
until = "2027-11-17"
every = "1d"
[[domains]]
names = ["exemple.fr", "autre.fr"]
"#;

/// A root with a harvest that is due now, by a policy.
fn refreshing(refresh: &str) -> Root {
    let root = root("[site]\ncontact = \"mailto:a@b.example\"");
    set_clock(&root, "2026-11-17T06:10:00Z");
    put(
        &root,
        "harvests/soigne.toml",
        &format!("{HARVEST}\n[refresh]\n{refresh}\n"),
    );
    root
}

/// The seeds of the orders, in order, without their tags.
fn seeds(root: &Root) -> Vec<String> {
    let mut parcels: Vec<_> = fs::read_dir(root.part("sink", "ready"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    parcels.sort();
    let texts = parcels
        .iter()
        .map(|path| fs::read_to_string(path.join("seeds.txt")).unwrap());
    let lines: Vec<String> = texts
        .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    lines
        .iter()
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect()
}

fn visit_to(root: &Root, surt: &str) -> Option<PlannedVisit> {
    let path = root
        .path()
        .join("runs/soigne/20261117060000.visits.tsv.zst");
    visits_of(&path, surt).unwrap().pop()
}

fn record_of_run(root: &Root) -> serde_json::Value {
    let path = root.path().join("runs/soigne/20261117060000.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Pages of one site that were all captured a day ago: each changes twice as often as the one before.
fn by_rate() -> Vec<PageChanges> {
    (0..8)
        .map(|number| {
            let surt = format!("fr,exemple)/{number}");
            page(&surt, "20261116060000", 0.01 * f64::powi(2.0, number))
        })
        .collect()
}

#[test]
fn what_is_due_is_visited_and_every_seed_says_why() {
    let root = refreshing("budget = 5\npolicy = \"obsolescence\"\ndiscovery = 0.4");
    put_changes(&root, 1, &by_rate(), &[]);
    put_ranks(
        &root,
        7,
        &[
            ("fr,exemple)/7", 0.001, 0.0, Some("20261116060000")),
            ("fr,exemple)/0", 0.5, 0.0, Some("20261116060000")),
            ("fr,exemple)/image.png", 0.5, 9.0, Some("20261116060000")),
            ("fr,exemple)/neuf", 0.1, 2.0, None),
            ("fr,exemple)/obscur", 0.1, 0.5, None),
            ("fr,exemple)/dehors", 0.1, -1.0, None),
            ("fr,inconnu)/", 0.9, 9.0, None),
        ],
    );
    must_run(&root);
    // The definition names autre.fr, of which nothing is known: it comes before what is only known from links.
    let found = seeds(&root);
    assert_eq!(found.len(), 5, "{found:?}");
    assert!(found.contains(&"http://autre.fr/".to_owned()), "{found:?}");
    assert!(
        found.contains(&"http://exemple.fr/neuf".to_owned())
            || found.contains(&"http://exemple.fr/".to_owned())
    );
    let visit = visit_to(&root, "fr,exemple)/0").expect("it matters more than all others");
    assert_eq!(visit.reason, VisitReason::Refresh);
    assert_eq!(visit.last.as_deref(), Some("20261116060000"));
    assert_eq!(visit.etag.as_deref(), Some("\"v 1\""));
    assert!(visit.value > 0.0 && visit.level <= 4);
    assert_eq!(visit.job, "soigne.202611170600.0001");
    assert_eq!(
        visit_to(&root, "fr,autre)/").unwrap().reason,
        VisitReason::Perimeter
    );
    assert!(
        visit_to(&root, "fr,inconnu)/").is_none(),
        "of no domain of the harvest"
    );
    let run = record_of_run(&root);
    assert_eq!(run["refresh"]["policy"], "obsolescence");
    assert_eq!(run["refresh"]["known"], 8);
    assert_eq!(
        (&run["refresh"]["links"], &run["refresh"]["changes"]),
        (&7.into(), &1.into())
    );
    assert_eq!(run["left-out"]["no documents"], 1);
    assert_eq!(run["left-out"]["irrelevant"], 1);
    let visits: u64 = run["refresh"]["visits"]
        .as_object()
        .unwrap()
        .values()
        .map(|n| n.as_u64().unwrap())
        .sum();
    assert_eq!(visits, 5);
    // A visit is one page, with what it needs.
    let parcel = fs::read_dir(root.part("sink", "ready"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let order = fs::read_to_string(parcel.join("order.toml")).unwrap();
    assert!(order.contains("reach = \"page\""), "{order}");
}

/// Which of the pages a policy takes.
fn taken(refresh: &str, pages: &[PageChanges], patterns: &[PagePattern]) -> Vec<String> {
    let root = refreshing(&format!("discovery = 0\n{refresh}"));
    put_changes(&root, 1, pages, patterns);
    must_run(&root);
    let mut found: Vec<String> = seeds(&root)
        .iter()
        .map(|url| url.trim_start_matches("http://exemple.fr/").to_owned())
        .collect();
    found.sort();
    found
}

#[test]
fn each_policy_has_its_own_order() {
    let mut pages = by_rate();
    // The first was captured long ago.
    pages[0].last = ArchiveTime::parse("20261001000000").unwrap();
    assert_eq!(
        taken("budget = 1\npolicy = \"uniform\"", &pages, &[]),
        ["0"]
    );
    assert_eq!(
        taken("budget = 2\npolicy = \"by-change\"", &by_rate(), &[]),
        ["6", "7"]
    );
    for policy in ["obsolescence", "mixed", "harmonic"] {
        let found = taken(&format!("budget = 3\npolicy = {policy:?}"), &by_rate(), &[]);
        assert_eq!(found, ["5", "6", "7"], "{policy}");
    }
    // A change was announced of two pages that hardly change.
    let mut signalled = by_rate();
    for page in &mut signalled[1..3] {
        let time = ArchiveTime::parse("20261116120000").unwrap();
        page.signal = Some((SignalKind::Sitemap, time));
    }
    let found = taken("budget = 2\npolicy = \"signalled\"", &signalled, &[]);
    assert_eq!(found, ["1", "2"]);
}

/// It changes between `hour` and the next one, every day, and at no other time.
fn hourly(surt: &str, hour: u32) -> PagePattern {
    let mut sums = PatternSums::new(24);
    for day in 2..16 {
        for begin in 0..24 {
            let at = |hours: i64| {
                let midnight = ArchiveTime::parse(&format!("202611{day:02}000000")).unwrap();
                ArchiveTime::from_seconds(midnight.seconds() + hours * 3600).unwrap()
            };
            let change = (begin == i64::from(hour)).then_some(0.5);
            sums.see(at(begin), at(begin + 1), change);
        }
    }
    PagePattern {
        surt: surt.to_owned(),
        sums,
    }
}

#[test]
fn who_knows_the_hours_comes_after_the_news() {
    let mut pages = by_rate();
    let mut patterns = Vec::new();
    for (number, page) in pages.iter_mut().enumerate() {
        page.rate = 1.0;
        page.pattern = Some(PatternOf::Page);
        // All captured at one in the morning; one has its news at 5, the others in the evening.
        page.last = ArchiveTime::parse("20261117010000").unwrap();
        patterns.push(hourly(&page.surt, if number == 3 { 5 } else { 20 }));
    }
    for policy in ["importance-pattern", "belief", "lagrange"] {
        let found = taken(
            &format!("budget = 1\npolicy = {policy:?}"),
            &pages,
            &patterns,
        );
        assert_eq!(found, ["3"], "{policy}");
    }
    // Without patterns the shape is that of the rate: nothing tells them apart, and the first are taken.
    let plain = taken("budget = 2\npolicy = \"belief\"", &by_rate(), &[]);
    assert_eq!(plain.len(), 2);
}

#[test]
fn sites_are_fetched_whole_or_not_at_all() {
    let root = root("[site]\ncontact = \"mailto:a@b.example\"");
    set_clock(&root, "2026-11-17T06:10:00Z");
    let definition = HARVEST.replace(
        "\"exemple.fr\", \"autre.fr\"",
        "\"exemple.fr\", \"autre.fr\", \"grand.fr\"",
    );
    put(
        &root,
        "harvests/soigne.toml",
        &format!("{definition}\n[refresh]\nbudget = 6\npolicy = \"sites\"\n"),
    );
    let mut pages = Vec::new();
    for number in 0..4 {
        pages.push(page(&format!("fr,autre)/{number}"), "20261110000000", 0.5));
        pages.push(page(
            &format!("fr,exemple)/{number}"),
            "20261110000000",
            0.1,
        ));
    }
    for number in 0..9 {
        pages.push(page(&format!("fr,grand)/{number}"), "20261110000000", 5.0));
    }
    put_changes(&root, 1, &pages, &[]);
    must_run(&root);
    let found = seeds(&root);
    // Its own four pages and the seed of the domain; the next site does not fit any more.
    assert_eq!(found.len(), 5, "{found:?}");
    assert!(
        found.iter().all(|url| url.starts_with("http://autre.fr/")),
        "{found:?}"
    );
    assert_eq!(record_of_run(&root)["refresh"]["too-large"], 1);
}

#[test]
fn nobody_is_forgotten_and_nobody_is_asked_for_ever() {
    let mut pages = by_rate();
    pages[0].last = ArchiveTime::parse("20250101000000").unwrap();
    pages[1].last = ArchiveTime::parse("20250601000000").unwrap();
    let found = taken("budget = 2\npolicy = \"by-change\"", &pages, &[]);
    // Half of the visits are for those that were not visited for longer than a year.
    assert_eq!(found, ["0", "7"]);
    let found = taken(
        "budget = 2\npolicy = \"by-change\"\nlongest-interval = \"none\"",
        &pages,
        &[],
    );
    assert_ne!(found, ["0", "7"]);
    // What is gone is asked for once in the longest interval.
    for page in &mut pages {
        page.status = Some(404);
    }
    assert!(taken("budget = 8", &pages, &[]).len() < 4);
}

#[test]
fn the_same_lists_give_the_same_bytes_and_no_budget_is_overspent() {
    let mut bytes: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for _ in 0..2 {
        for (policy, budget) in [("mixed", 3), ("lagrange", 7), ("signalled", 100)] {
            let root = refreshing(&format!(
                "policy = {policy:?}\nbudget = {budget}\ndiscovery = 0.5"
            ));
            put_changes(&root, 1, &by_rate(), &[]);
            let ranks: Vec<(String, f32)> =
                (0..8).map(|n| (format!("fr,autre)/{n}"), 0.01)).collect();
            let ranks: Vec<_> = ranks
                .iter()
                .map(|(surt, rank)| (surt.as_str(), *rank, 1.0, None))
                .collect();
            put_ranks(&root, 1, &ranks);
            must_run(&root);
            let found = seeds(&root);
            // Unspent visits of one side go to the other: there are 18 candidates.
            assert_eq!(found.len(), budget.min(18), "{policy} {found:?}");
            let path = root
                .path()
                .join("runs/soigne/20261117060000.visits.tsv.zst");
            let now = [fs::read(path).unwrap(), found.join("\n").into_bytes()].concat();
            let before = bytes
                .entry(policy.to_owned())
                .or_insert_with(|| now.clone());
            assert_eq!(*before, now, "{policy}");
        }
    }
}

#[test]
fn what_makes_no_sense_is_told_with_its_line() {
    let root = refreshing(
        "policy = \"best\"\nbudget = 0\ndiscovery = 2\nleast-importance = 0\nlongest-interval = \"1s\"\nspeed = 3",
    );
    let (_, said) = run(&root);
    for told in [
        "soigne.toml:10: 'refresh.policy': unknown value 'best'",
        "soigne.toml:11: 'refresh.budget': is not set",
        "soigne.toml:12: 'refresh.discovery': 2 is no share",
        "soigne.toml:13: 'refresh.least-importance'",
        "soigne.toml:14: 'refresh.longest-interval': is less than an hour",
        "soigne.toml:15: unknown key 'refresh.speed'",
    ] {
        assert!(said.contains(told), "{told}: {said}");
    }
    assert!(!root.path().join("runs/soigne/20261117060000.json").exists());
    // Without a list there is nothing to visit but what the definition names.
    let root = refreshing("budget = 10");
    must_run(&root);
    assert_eq!(seeds(&root), ["http://autre.fr/", "http://exemple.fr/"]);
}
