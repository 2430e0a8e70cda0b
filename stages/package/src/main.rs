//! `ecluse-package`; the work is in the library.

use std::process::ExitCode;

use ecluse_package::Package;

fn main() -> ExitCode {
    ecluse_stage::main::<Package>()
}
