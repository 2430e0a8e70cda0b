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
use trial::Trial;

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
    let (days, pages, budget) = (
        number("ECLUSE_WEEKS_DAYS", 21),
        number("ECLUSE_WEEKS_PAGES", 48) as usize,
        number("ECLUSE_WEEKS_BUDGET", 14) as usize,
    );
    // Another build of the program, where one is named.
    let program = std::env::var_os("ECLUSE_PROGRAM")
        .map_or_else(|| env!("CARGO_BIN_EXE_ecluse").into(), PathBuf::from);
    let mut page = Page::begin("weeks");
    page.say(format!(
        "{pages} pages, {days} days with two runs each, {budget} visits a run; completeness by what the web itself logged:\n"
    ));
    page.say(
        "| policy | each page by its own changes | all changes alike | visits |\n|---|--:|--:|--:|",
    );
    let mut found = Vec::new();
    for policy in POLICIES {
        let trial = Trial {
            ecluse: &program,
            policy,
            pages,
            days,
            budget,
        };
        let caught = trial.run();
        assert!(caught.most <= budget, "{policy} overspent: {}", caught.most);
        page.say(format!(
            "| {policy} | {:.3} | {:.3} | {} in {} runs |",
            caught.complete, caught.in_all, caught.visits, caught.runs
        ));
        found.push(caught.complete);
    }
    let plain = found[0].max(found[1]);
    let holds = [2, 4, 5].iter().all(|at| found[*at] > plain);
    let verdict = if holds { "holds" } else { "does not hold" };
    page.say(format!(
        "\nMixed, belief and Lagrange above uniform and ∝ change: {verdict}."
    ));
    page.end(days == 21 && pages == 48);
}
