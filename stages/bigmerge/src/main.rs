//! `ecluse-bigmerge`; the work is in the library.

use std::process::ExitCode;

use ecluse_bigmerge::Bigmerge;

fn main() -> ExitCode {
    ecluse_stage::main::<Bigmerge>()
}
