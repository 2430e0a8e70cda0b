//! A stage without its type, for the driver that holds many.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ecluse_config::{Pipeline, Problem};

use crate::check::{check_settings, must_be_sound, try_out};
use crate::failure::Failure;
use crate::home::Home;
use crate::pool::{StageContext, WorkerPool};
use crate::stage::{Intake, Stage};

/// One stage the driver knows, or one machine's copy of it.
#[derive(Clone, Copy)]
pub struct StageEntry {
    /// Its name.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// What it takes at a time.
    pub intake: Intake,
    /// It goes on while one of its nexts has room.
    pub spreads: bool,
    /// It goes on below `min-free`.
    pub makes_room: bool,
    /// What it does with files named on its command line, when it is a filter too.
    pub filter: Option<&'static str>,
    /// What it writes into the directory of `--reports`, when it is a filter that has reports.
    pub filter_reports: Option<&'static str>,
    /// The directories outside the work directories that it writes to, under this root.
    pub writes: fn(&Pipeline, &Path) -> Vec<PathBuf>,
    /// It opens connections to other machines.
    pub needs_network: fn(&Pipeline) -> bool,
    /// Reads its settings and says what is wrong with them under this root.
    pub check: fn(&Pipeline, &Path) -> Vec<Problem>,
    /// Tries those it needs outside this machine.
    pub try_out: fn(&Pipeline, &Path) -> Vec<Problem>,
    /// Starts its workers.
    pub start: fn(StageContext) -> Result<WorkerPool, Failure>,
    /// Its own program, with these arguments: its name, then options.
    pub main_with: fn(Vec<String>) -> ExitCode,
}

impl StageEntry {
    /// Returns the entry of a stage.
    pub const fn of<Kind: Stage + 'static>() -> Self {
        Self {
            name: Kind::NAME,
            about: Kind::ABOUT,
            intake: Kind::INTAKE,
            spreads: Kind::SPREADS,
            makes_room: Kind::MAKES_ROOM,
            filter: Kind::FILTER,
            filter_reports: Kind::FILTER_REPORTS,
            writes: writes::<Kind>,
            needs_network: needs_network::<Kind>,
            check: check_settings::<Kind>,
            try_out: try_out::<Kind>,
            start: WorkerPool::start::<Kind>,
            main_with: crate::program::main_with::<Kind>,
        }
    }
}

impl StageEntry {
    /// Fails when the stage could not start with these settings.
    ///
    /// # Errors
    /// The settings are at fault.
    pub fn must_be_sound(&self, pipeline: &Pipeline, root: &Path) -> Result<(), Failure> {
        must_be_sound((self.check)(pipeline, root))
    }

    /// Returns this stage as one machine's copy of it, with a work directory of its own:
    /// `index@alpha`. Settings are the stage's.
    ///
    /// # Errors
    /// When the name cannot be part of a directory's.
    pub fn at(self, machine: &str) -> Result<Self, Failure> {
        let name = format!("{}@{machine}", self.name);
        if !ecluse_config::is_stage_name(&name) {
            return Err(Failure::config(format!("{name:?} cannot name a stage")));
        }
        // Named once, when the program starts.
        let name = Box::leak(name.into_boxed_str());
        Ok(Self { name, ..self })
    }
}

fn needs_network<Kind: Stage>(pipeline: &Pipeline) -> bool {
    let settings = pipeline.stage_settings::<Kind::Settings>(Kind::NAME);
    settings.is_ok_and(|settings| Kind::needs_network(&settings))
}

pub(crate) fn writes<Kind: Stage>(pipeline: &Pipeline, root: &Path) -> Vec<PathBuf> {
    let home = Home::of(pipeline, Kind::NAME, root);
    match pipeline.stage_settings::<Kind::Settings>(Kind::NAME) {
        Ok(settings) => Kind::writes(&settings, &home),
        // The settings are checked where it matters.
        Err(_) => Vec::new(),
    }
}
