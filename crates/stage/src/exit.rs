//! Exit codes, the same for every program; they follow sysexits.

use std::process::ExitCode;

/// How a program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Exit {
    /// All is done.
    Done = 0,
    /// The command line makes no sense.
    Usage = 64,
    /// Some parcels are held for a person.
    Held = 65,
    /// The machine failed.
    Machine = 74,
    /// Something waits for later.
    Deferred = 75,
    /// `pipeline.toml` is wrong.
    Config = 78,
}

impl Exit {
    /// Every code with what it means, for `--help` and the manual.
    pub const TABLE: [(Exit, &'static str); 6] = [
        (Exit::Done, "done"),
        (Exit::Usage, "usage error"),
        (Exit::Held, "some parcels are held"),
        (Exit::Machine, "the machine failed"),
        (Exit::Deferred, "some parcels wait for later"),
        (Exit::Config, "configuration error"),
    ];
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}
