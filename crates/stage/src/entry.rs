//! A stage without its type, for the driver that holds many.

use std::process::ExitCode;

use ecluse_config::Pipeline;

use crate::crew::{Crew, Post};
use crate::failure::Failure;
use crate::stage::{Intake, Stage};

/// One stage the driver knows.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// What it takes at a time.
    pub intake: Intake,
    /// Reads its settings and says what is wrong with them.
    pub check: fn(&Pipeline) -> Result<(), Failure>,
    /// Starts its workers.
    pub start: fn(Post) -> Result<Crew, Failure>,
    /// Its own program, with these arguments: its name, then options.
    pub main_with: fn(Vec<String>) -> ExitCode,
}

impl Entry {
    /// Returns the entry of a stage.
    pub const fn of<Kind: Stage + 'static>() -> Self {
        Self {
            name: Kind::NAME,
            about: Kind::ABOUT,
            intake: Kind::INTAKE,
            check: crate::crew::check_settings::<Kind>,
            start: Crew::start::<Kind>,
            main_with: crate::program::main_with::<Kind>,
        }
    }
}
