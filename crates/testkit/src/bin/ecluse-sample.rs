//! `ecluse-sample`: the driver with the sample stages instead of the shipped ones.

use std::process::ExitCode;

use ecluse_stage::StageEntry;
use ecluse_testkit::{Relay, Split, Tally};

const STAGES: &[StageEntry] = &[
    StageEntry::of::<Relay>(),
    StageEntry::of::<Split>(),
    StageEntry::of::<Tally>(),
];

fn main() -> ExitCode {
    ecluse::main(STAGES)
}
