//! `ecluse-ingest`; the work is in the library.

use std::process::ExitCode;

use ecluse_ingest::Ingest;

fn main() -> ExitCode {
    ecluse_stage::main::<Ingest>()
}
