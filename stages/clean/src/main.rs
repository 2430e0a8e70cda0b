//! `ecluse-clean`; the work is in the library.

use std::process::ExitCode;

use ecluse_clean::Clean;

fn main() -> ExitCode {
    ecluse_stage::main::<Clean>()
}
