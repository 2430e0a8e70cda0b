//! `ecluse-relay`; the work is in the library.

use std::process::ExitCode;

use ecluse_testkit::Relay;

fn main() -> ExitCode {
    ecluse_testkit::let_it_fail();
    ecluse_stage::main::<Relay>()
}
