//! `ecluse-plan`; the work is in the library.

use std::process::ExitCode;

use ecluse_plan::Plan;

fn main() -> ExitCode {
    ecluse_stage::main::<Plan>()
}
