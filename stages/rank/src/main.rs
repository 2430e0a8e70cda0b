//! `ecluse-rank`; the work is in the library.

use std::process::ExitCode;

use ecluse_rank::Rank;

fn main() -> ExitCode {
    ecluse_stage::main::<Rank>()
}
