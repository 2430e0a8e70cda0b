//! `ecluse-merge`; the work is in the library.

use std::process::ExitCode;

use ecluse_merge::Merge;

fn main() -> ExitCode {
    ecluse_stage::main::<Merge>()
}
