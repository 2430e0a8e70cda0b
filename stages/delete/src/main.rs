//! `ecluse-delete`; the work is in the library.

use std::process::ExitCode;

use ecluse_delete::Delete;

fn main() -> ExitCode {
    ecluse_stage::main::<Delete>()
}
