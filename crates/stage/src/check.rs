//! What a stage says of its settings before it starts.
//!
//! The same questions are asked for `--check`, by `ecluse check`, at the start and before settings are read again: what
//! is found sound starts. Nothing is touched here.

use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ecluse_config::{ConfigError, Level, Pipeline, Problem};

use crate::failure::Failure;
use crate::home::Home;
use crate::open_files::{NEEDED, open_files};
use crate::stage::Stage;

/// What is wrong with the settings of a stage, collected.
pub struct SettingsCheck<'a> {
    pipeline: &'a Pipeline,
    problems: Vec<Problem>,
}

impl SettingsCheck<'_> {
    /// The stage cannot start; `key` is a whole path such as `stage.ingest.names[0]`.
    pub fn error(&mut self, key: &str, message: impl Display) {
        self.add(Level::Error, key, message);
    }

    /// The stage starts, and waits for what is missing.
    pub fn warning(&mut self, key: &str, message: impl Display) {
        self.add(Level::Warning, key, message);
    }

    /// Tells whether the chain or a host has a stage.
    pub fn has_stage(&self, name: &str) -> bool {
        let chain = self.pipeline.chain.stages.iter();
        let placed = self.pipeline.hosts.values().flatten();
        chain.chain(placed).any(|stage| stage == name)
    }

    fn add(&mut self, level: Level, key: &str, message: impl Display) {
        let problem = self.pipeline.problem(level, key, &message.to_string());
        self.problems.push(problem);
    }

    /// Asks for a directory of the settings. A relative one is made by the stage; any other may be a disk that is not
    /// mounted yet.
    pub fn directory(&mut self, key: &str, path: &Path) {
        if path.is_absolute() && !path.is_dir() {
            self.warning(
                key,
                format_args!("there is no directory {}", path.display()),
            );
        }
    }

    /// Asks for the directories that the stages of an archive share.
    pub fn harvested(&mut self, home: &Home) {
        for (number, path) in home.archive.harvested.iter().enumerate() {
            self.directory(&format!("archive.harvested[{number}]"), path);
        }
    }

    /// Asks for the directory of the manifest, which nobody makes but the root.
    pub fn manifest(&mut self, home: &Home) {
        let directory = home.manifest_directory();
        if directory != home.root && !directory.is_dir() {
            let shown = directory.display();
            self.error(
                "archive.manifest",
                format_args!("there is no directory {shown}"),
            );
        }
    }

    /// Asks for so many files open at once.
    pub fn open_files(&mut self, key: &str, files: u64) {
        let needed = files.saturating_add(NEEDED);
        let open_files = open_files();
        if open_files < needed {
            self.error(
                key,
                format_args!("{open_files} files may be open at once here, and {needed} are needed: raise `ulimit -n`, or LimitNOFILE in the unit"),
            );
        }
    }

    /// Asks for a file that can be read.
    pub fn file(&mut self, key: &str, path: &Path) {
        let read = File::open(path).and_then(|file| file.take(1).read_to_end(&mut Vec::new()));
        if let Err(error) = read {
            self.error(key, format_args!("cannot read {}: {error}", path.display()));
        }
    }

    /// Asks for a file that can be read, and not by everybody.
    pub fn secret_file(&mut self, key: &str, path: &Path) {
        self.file(key, path);
        let Ok(metadata) = path.metadata() else {
            return;
        };
        let mode = metadata.permissions().mode() & 0o7777;
        if mode & 0o027 != 0 {
            let path = path.display();
            self.error(
                key,
                format_args!("{path} has mode {mode:o} and holds a secret: chmod 640 or 600"),
            );
        }
    }

    /// Asks for a program, as a shell would find it. It may lie on a disk that is not mounted yet.
    pub fn program(&mut self, key: &str, program: &str) {
        let is_program = |path: &PathBuf| {
            let metadata = path.metadata();
            metadata.is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
        };
        let found = if program.contains('/') {
            is_program(&PathBuf::from(program))
        } else {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).any(|directory| is_program(&directory.join(program)))
        };
        if !found {
            self.warning(key, format_args!("there is no program {program}"));
        }
    }
}

/// Returns what is wrong with the settings of a stage.
pub(crate) fn check_settings<Kind: Stage>(pipeline: &Pipeline, root: &Path) -> Vec<Problem> {
    let mut problems = asked::<Kind>(pipeline, root, Kind::check);
    problems.extend(pipeline.check_locations(root));
    problems
}

/// Returns what is wrong with those that a stage needs outside this machine.
pub(crate) fn try_out<Kind: Stage>(pipeline: &Pipeline, root: &Path) -> Vec<Problem> {
    asked::<Kind>(pipeline, root, Kind::try_out)
}

fn asked<Kind: Stage>(
    pipeline: &Pipeline,
    root: &Path,
    ask: impl FnOnce(&Kind::Settings, &Home, &mut SettingsCheck<'_>),
) -> Vec<Problem> {
    let settings = match pipeline.stage_settings::<Kind::Settings>(Kind::NAME) {
        Ok(settings) => settings,
        Err(ConfigError::Invalid(problems)) => return problems,
        Err(error) => return vec![pipeline.problem(Level::Error, "", &error.to_string())],
    };
    let mut check = SettingsCheck {
        pipeline,
        problems: Vec::new(),
    };
    let home = Home::of(pipeline, Kind::NAME, root);
    ask(&settings, &home, &mut check);
    check.problems
}

/// Turns errors into a failure; warnings are for those who ask.
pub(crate) fn must_be_sound(mut problems: Vec<Problem>) -> Result<(), Failure> {
    problems.retain(|problem| problem.level == Level::Error);
    if problems.is_empty() {
        return Ok(());
    }
    Err(Failure::config(ConfigError::Invalid(problems)))
}
