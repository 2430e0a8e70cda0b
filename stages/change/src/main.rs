//! `ecluse-change`; the work is in the library.

use std::process::ExitCode;

use ecluse_change::Change;

fn main() -> ExitCode {
    ecluse_stage::main::<Change>()
}
