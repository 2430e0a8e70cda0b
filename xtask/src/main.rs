//! Chores of the workspace that are not tests of one crate: `cargo xtask VERB`.
//!
//! Each verb is a module with one function that takes the rest of the command line and says whether
//! what it looked for holds.

mod deny;
mod dice;
mod faults;
mod feed;
mod flags;
mod fleet;
mod fuzz;
mod peers;
mod powercut;
mod samples;
mod systemd;
mod tidy;
mod torture;

use std::process::ExitCode;

use flags::Flags;

/// A verb: its name, one line about it, and what it does.
type Verb = (
    &'static str,
    &'static str,
    fn(Flags) -> anyhow::Result<bool>,
);

const VERBS: &[Verb] = &[
    (
        "tidy",
        "checks the lists that stand in two places, and prints the longest files",
        tidy::main,
    ),
    (
        "deny",
        "holds deny.toml: licences, bans and sources of what is built in",
        deny::main,
    ),
    (
        "fuzz",
        "runs the fuzz targets: [TARGET…] [--seconds 10] [--seed N] [--input FILE]",
        fuzz::main,
    ),
    (
        "torture",
        "kills real stage processes and lets a checker judge what is left on disk",
        torture::main,
    ),
    (
        "faults",
        "breaks hosts, brokers and store of an archive on three hosts: [--fault NAME] [--list]; needs root",
        faults::main,
    ),
    (
        "peers",
        "installs the programs that tests and benches compare with, under target/",
        peers::main,
    ),
    (
        "powercut",
        "cuts the power of a file system under real stage processes; needs root",
        powercut::main,
    ),
    (
        "systemd",
        "analyses the units and runs them under a systemd of their own; needs root",
        |flags| systemd::run(&flags.rest()).map(|()| true),
    ),
];

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let verb = words.next().unwrap_or_default();
    let Some((_, _, run)) = VERBS.iter().find(|(name, ..)| *name == verb) else {
        eprintln!("usage: cargo xtask VERB");
        for (name, about, _) in VERBS {
            eprintln!("  {name:10} {about}");
        }
        return ExitCode::from(64);
    };
    match run(Flags::new(words)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{verb}: {error:#}");
            ExitCode::FAILURE
        }
    }
}
