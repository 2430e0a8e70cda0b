//! `ecluse-deposit`; the work is in the library.

use std::process::ExitCode;

use ecluse_deposit::Deposit;

fn main() -> ExitCode {
    ecluse_stage::main::<Deposit>()
}
