//! `ecluse-drip`; the work is in the library.

use std::process::ExitCode;

use ecluse_testkit::Drip;

fn main() -> ExitCode {
    ecluse_stage::main::<Drip>()
}
