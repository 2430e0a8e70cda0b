//! `ecluse-index`; the work is in the library.

use std::process::ExitCode;

use ecluse_index::Index;

fn main() -> ExitCode {
    ecluse_stage::main::<Index>()
}
