//! `ecluse-split`; the work is in the library.

use std::process::ExitCode;

use ecluse_testkit::Split;

fn main() -> ExitCode {
    ecluse_testkit::let_it_fail();
    ecluse_stage::main::<Split>()
}
