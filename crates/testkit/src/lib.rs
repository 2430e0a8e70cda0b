//! For tests only: three sample stages that show how a stage is written and exercise the spool, temporary roots with the programs that run in them, a web and a name server on
//! loopback, source lists of any length, the contract every stage keeps, and the checker that judges what a torture left on disk.
//! Nothing of it is shipped.

pub mod checker;
pub mod contract;
pub mod dns;
pub mod engine;
pub mod fence;
pub mod lists;
pub mod machine;
pub mod mmdb;
pub mod name_servers;
mod nats_accounts;
pub mod nats_cluster;
mod relay;
pub mod repository;
pub mod root;
pub mod servers;
mod split;
mod tally;
pub mod web;
mod words;

pub use relay::Relay;
pub use split::Split;
pub use tally::Tally;

/// Set to `1` where every test must run, as in CI.
pub const MUST: &str = "ECLUSE_MUST";

/// Says why a test cannot run on this machine; the test then returns.
///
/// # Panics
/// Where every test must run: a skip that looks like a pass hides faults.
pub fn cannot_run(why: &str) {
    assert!(
        std::env::var_os(MUST).is_none_or(|must| must != "1"),
        "cannot run, and {MUST}=1: {why}"
    );
    eprintln!("skipped: {why}");
}

/// Lets the file system of this process kill or lie as the environment says, in builds that are made for torture.
pub fn let_it_fail() {
    #[cfg(any(feature = "failpoints", feature = "mutants"))]
    let _ = ecluse_spool::AROUND.set(ecluse_failpoint::wrap);
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{MUST, cannot_run};

    #[test]
    fn a_test_that_cannot_run_fails_where_it_must() {
        const INSIDE: &str = "ECLUSE_TEST_SKIP";
        if std::env::var_os(INSIDE).is_some() {
            return cannot_run("this is only a test");
        }
        for (must, passes) in [("", true), ("0", true), ("1", false)] {
            let mut itself = Command::new(std::env::current_exe().expect("a test has a program"));
            itself.args([
                "--exact",
                "tests::a_test_that_cannot_run_fails_where_it_must",
            ]);
            let output = itself.env(INSIDE, "1").env(MUST, must).output();
            let output = output.expect("a test can run itself");
            assert_eq!(output.status.success(), passes, "{MUST}={must}: {output:?}");
        }
    }
}
