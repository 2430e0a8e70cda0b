//! `ecluse-range`; the work is in the library.

use std::process::ExitCode;

use ecluse_range::RangeStage;

fn main() -> ExitCode {
    ecluse_stage::main::<RangeStage>()
}
