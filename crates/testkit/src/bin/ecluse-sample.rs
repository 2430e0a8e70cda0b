//! `ecluse-sample`: the driver with the sample stages instead of the shipped ones.

use std::process::ExitCode;

use ecluse_stage::Entry;
use ecluse_testkit::{Relay, Split, Tally};

const STAGES: &[Entry] = &[
    Entry::of::<Relay>(),
    Entry::of::<Split>(),
    Entry::of::<Tally>(),
];

fn main() -> ExitCode {
    ecluse::main(STAGES)
}
