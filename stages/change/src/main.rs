//! `ecluse-change`; the work is in the library.

use std::process::ExitCode;

use ecluse_change::ChangeStage;

fn main() -> ExitCode {
    ecluse_stage::main::<ChangeStage>()
}
