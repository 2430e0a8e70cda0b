//! `ecluse`, the one command an operator types; the work is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    ecluse::main(ecluse::stages::ALL)
}
