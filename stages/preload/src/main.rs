//! `ecluse-preload`; the work is in the library.

use std::process::ExitCode;

use ecluse_preload::Preload;

fn main() -> ExitCode {
    ecluse_stage::main::<Preload>()
}
