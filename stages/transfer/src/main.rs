//! `ecluse-transfer`; the work is in the library.

use std::process::ExitCode;

use ecluse_transfer::Transfer;

fn main() -> ExitCode {
    ecluse_stage::main::<Transfer>()
}
