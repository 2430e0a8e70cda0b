//! `ecluse-relay`; the work is in the library.

use std::process::ExitCode;

use ecluse_testkit::Relay;

fn main() -> ExitCode {
    ecluse_stage::main::<Relay>()
}
