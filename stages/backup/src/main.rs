//! `ecluse-backup`; the work is in the library.

use std::process::ExitCode;

use ecluse_backup::Backup;

fn main() -> ExitCode {
    ecluse_stage::main::<Backup>()
}
