//! What is caught of a web that changes by known hours, in three weeks of plan, crawl, index, change and plan, by each policy with the same budget?
//!
//! A web on loopback changes by a simulated clock, and logs who came when: that is the truth. The figure that would worry us: mixed, belief or
//! Lagrange below uniform or ∝ change.

#[path = "page.rs"]
mod page;
#[path = "weeks/trial.rs"]
mod trial;

use std::path::PathBuf;

use page::Page;
use trial::{Caught, Trial, World};

const POLICIES: [&str; 6] = [
    "uniform",
    "by-change",
    "mixed",
    "importance-pattern",
    "belief",
    "lagrange",
];

fn main() {
    let number = |name: &str, usual: i64| {
        std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
    };
    let (days, every, pages, budget) = (
        number("ECLUSE_WEEKS_DAYS", 21),
        number("ECLUSE_WEEKS_EVERY", 4),
        number("ECLUSE_WEEKS_PAGES", 48) as usize,
        number("ECLUSE_WEEKS_BUDGET", 5) as usize,
    );
    // Another build of the program, where one is named.
    let program = std::env::var_os("ECLUSE_PROGRAM")
        .map_or_else(|| env!("CARGO_BIN_EXE_ecluse").into(), PathBuf::from);
    let mut page = Page::begin("weeks");
    page.say(format!(
        "{pages} pages, {days} days with a run every {every} hours, {budget} visits a run; completeness by what the web itself logged:\n"
    ));
    let mut worlds = vec![
        ("a newspaper", World::Press),
        ("each page at an hour of its own", World::Scattered),
        ("half of the pages never change", World::Quiet),
    ];
    if let Ok(only) = std::env::var("ECLUSE_WEEKS_WORLD") {
        worlds.retain(|(name, _)| name.contains(&only));
    }
    for (name, world) in worlds {
        page.say(format!(
            "\n{name}:\n\n| policy | each page by its own changes | all changes alike | visits |\n|---|--:|--:|--:|"
        ));
        let trial = |policy: &'static str| {
            let trial = Trial {
                ecluse: &program,
                policy,
                world,
                pages,
                days,
                every,
                budget,
            };
            trial.run()
        };
        // Each has a web and an archive of its own, and mostly waits.
        let caught: Vec<Caught> = std::thread::scope(|scope| {
            let trials = POLICIES.map(|policy| scope.spawn(move || trial(policy)));
            trials
                .map(|trial| trial.join().expect("a trial says why it fails"))
                .into()
        });
        for (policy, caught) in POLICIES.iter().zip(&caught) {
            assert!(caught.most <= budget, "{policy} overspent: {}", caught.most);
            page.say(format!(
                "| {policy} | {:.3} | {:.3} | {} in {} runs |",
                caught.complete, caught.in_all, caught.visits, caught.runs
            ));
        }
        let found: Vec<f64> = caught.iter().map(|caught| caught.complete).collect();
        let plain = found[0].max(found[1]);
        let holds = [2, 4, 5].iter().all(|at| found[*at] > plain);
        let verdict = if holds { "holds" } else { "does not hold" };
        page.say(format!(
            "\nMixed, belief and Lagrange above uniform and ∝ change: {verdict}."
        ));
    }
    page.end(days == 21 && every == 4 && pages == 48);
}
