//! `ecluse-tally`; the work is in the library.

use std::process::ExitCode;

use ecluse_testkit::Tally;

fn main() -> ExitCode {
    ecluse_testkit::let_it_fail();
    ecluse_stage::main::<Tally>()
}
