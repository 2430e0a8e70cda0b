//! Plan, crawl, index, change and plan again, on a web that changes by a simulated clock.

#[path = "../benches/weeks/trial.rs"]
mod trial;

use std::path::Path;

use trial::{Trial, World};

/// A few days; `cargo bench --bench weeks` has three weeks and all policies.
#[test]
fn what_changes_by_known_hours_is_visited_within_the_budget() {
    let trial = Trial {
        ecluse: Path::new(env!("CARGO_BIN_EXE_ecluse")),
        policy: "belief",
        world: World::Press,
        pages: 8,
        days: 2,
        every: 12,
        budget: 5,
    };
    let caught = trial.run();
    assert!(caught.most <= 5, "{} visits in a run", caught.most);
    assert_eq!(caught.runs, 4);
    // There are always more pages than visits: every run spends all it has.
    assert_eq!(caught.visits, 20);
    assert!(
        caught.complete > 0.4 && caught.in_all > 0.0,
        "{}",
        caught.complete
    );
}
