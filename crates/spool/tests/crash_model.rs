//! The protocol on a model of a disk: crashed before every call, by a kill and by every legal
//! power cut, and crashed again in the recovery; nothing is lost and nothing is done twice.
//!
//! The default run is a seeded sample of a few seconds; `ECLUSE_EXHAUSTIVE=1` tries everything.

#![expect(clippy::unwrap_used, reason = "the model and its judge are tests")]

mod model {
    pub(crate) mod chain;
    mod clocks;
    pub(crate) mod disk;
    pub(crate) mod explore;
    pub(crate) mod fs;
    pub(crate) mod judge;
    mod reasons;
}

use model::chain::Scenario;
use model::explore::{Effort, Other, crash, faults, given_again, paused_reapers, pauses, reapers};

macro_rules! scenarios {
    ($($name:ident)*) => {
        $(mod $name {
            use super::*;

            #[test]
            fn crashes() {
                crash(&Scenario::$name(), Effort::asked()).close();
            }

            #[test]
            fn killed_reapers() {
                reapers(&Scenario::$name(), Effort::asked()).close();
            }

            #[test]
            fn paused_reapers() {
                super::paused_reapers(&Scenario::$name(), Effort::asked()).close();
            }

            #[test]
            fn gifts_given_again() {
                given_again(&Scenario::$name(), Effort::asked()).close();
            }

            #[test]
            fn faulty_calls() {
                faults(&Scenario::$name(), Effort::asked()).close();
            }

            #[test]
            fn zombies() {
                pauses(&Scenario::$name(), Other::Heir, Effort::asked()).close();
            }

            #[test]
            fn rivals() {
                pauses(&Scenario::$name(), Other::Rival, Effort::asked()).close();
            }
        })*
    };
}

scenarios! {
    pass_on attach fan_out branch gather gather_and_fold attach_and_fold deferral hold adoption consume group
}

/// Runs these tests again with each known-bad variant of the protocol: a suite that lets one pass
/// proves nothing.
#[cfg(feature = "mutants")]
#[test]
fn mutants_are_rejected() {
    if std::env::var_os("ECLUSE_MUTANT").is_some() {
        return;
    }
    for (mutant, test) in [
        ("two-renames", "attach::killed_reapers"),
        ("two-renames", "branch::killed_reapers"),
        ("no-fsync", "attach::crashes"),
        ("no-fsync", "fan_out::crashes"),
        ("receipt-first", "fan_out::crashes"),
    ] {
        let mut run = std::process::Command::new(std::env::current_exe().unwrap());
        run.args([test, "--exact", "--nocapture"]);
        run.env("ECLUSE_MUTANT", mutant);
        if mutant == "two-renames" {
            // One death in the few calls between commit and hand-over, another between the two
            // renames: a sample may miss it.
            run.env("ECLUSE_EXHAUSTIVE", "1");
        }
        let run = run.output().unwrap();
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(!run.status.success(), "{mutant} passes {test}");
        assert!(said.contains("MODEL VERDICT"), "{mutant}: {said}");
        println!("{mutant} is rejected by {test}");
    }
}
