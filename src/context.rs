//! What every verb works with: the settings, the work tree, the stages, and the way things are told.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use ecluse_config::{EngineSettings, Pipeline};
use ecluse_spool::{Engine, ParcelId, ParcelPlace, SpoolError, WorkTree, safe_file_name};
use ecluse_stage::{Exit, Failure, StageEntry, open_engine};
use ecluse_telemetry::printable_text;
use serde_json::Value;

use crate::cli::Cli;
use crate::show;

/// What a verb works at.
pub(crate) struct DriverContext {
    pub(crate) root: PathBuf,
    pub(crate) config: Option<PathBuf>,
    pub(crate) pipeline: Pipeline,
    /// Where the parcels live.
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) entries: &'static [StageEntry],
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    pub(crate) log: Option<String>,
    pub(crate) color: bool,
    /// What was done, for an answer as JSON.
    told: RefCell<Vec<Value>>,
    program: String,
}

/// Why a verb did not do what it was asked to: told in one line, with an exit code.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub(crate) exit: Exit,
    pub(crate) line: String,
}

impl Trouble {
    pub(crate) fn usage(line: impl ToString) -> Self {
        Self::new(Exit::Usage, line)
    }

    pub(crate) fn new(exit: Exit, line: impl ToString) -> Self {
        Self {
            exit,
            line: line.to_string(),
        }
    }

    pub(crate) fn tell(self) -> ExitCode {
        let mut stderr = io::stderr();
        for line in self.line.lines() {
            let _ = writeln!(stderr, "ecluse: {}", printable_text(line));
        }
        self.exit.into()
    }
}

impl From<SpoolError> for Trouble {
    fn from(error: SpoolError) -> Self {
        let exit = match &error {
            SpoolError::Refused(_) | SpoolError::Waits { .. } => Exit::Usage,
            SpoolError::Damaged { .. } => Exit::Held,
            _ => Exit::Machine,
        };
        Self::new(exit, error)
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::new(failure.exit(), failure)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            // Whoever read along has seen enough.
            std::process::exit(0);
        }
        Self::new(Exit::Machine, error)
    }
}

impl DriverContext {
    pub(crate) fn open(cli: &Cli, entries: &'static [StageEntry]) -> Result<Self, Trouble> {
        let root = cli.root();
        let config = Pipeline::locate(cli.config.as_deref(), &root);
        let pipeline =
            Pipeline::load(config.as_deref()).map_err(|e| Trouble::new(Exit::Config, e))?;
        Ok(Self {
            config,
            engine: match cli.verb.asks_for_parcels() {
                true => open_engine(&pipeline, &root, EngineSettings::OPERATOR, None)?,
                false => Arc::new(WorkTree::open(&root.join("work"))),
            },
            root,
            pipeline,
            entries,
            json: cli.json,
            quiet: cli.quiet,
            log: cli.log.clone(),
            color: io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
            told: RefCell::default(),
            program: program(),
        })
    }

    /// Writes to standard output.
    pub(crate) fn print(&self, text: &str) -> Result<(), Trouble> {
        Ok(io::stdout().write_all(text.as_bytes())?)
    }

    /// Tells what was done, unless asked to be quiet.
    pub(crate) fn say(&self, line: &str) -> Result<(), Trouble> {
        match self.quiet {
            true => Ok(()),
            false => self.say_to_all(line),
        }
    }

    /// Tells what is wrong, to the quiet too.
    pub(crate) fn say_to_all(&self, line: &str) -> Result<(), Trouble> {
        self.print(&format!("{}\n", printable_text(line)))
    }

    /// Tells what was done to one thing: in words, or as a value of the answer that is shown at the end.
    pub(crate) fn tell(&self, line: &str, value: Value) -> Result<(), Trouble> {
        if self.json {
            self.told.borrow_mut().push(value);
            return Ok(());
        }
        self.say(line)
    }

    /// Shows as JSON what was told.
    pub(crate) fn show_told(&self) -> Result<(), Trouble> {
        let told = self.told.take();
        match told.is_empty() {
            true => Ok(()),
            false => self.print_json(serde_json::json!({ "done": told })),
        }
    }

    /// Shows a value as JSON.
    pub(crate) fn print_json(&self, mut value: Value) -> Result<(), Trouble> {
        if let Some(object) = value.as_object_mut() {
            object.insert("schema".into(), 1.into());
        }
        let value = underscored(value);
        let text = serde_json::to_string_pretty(&value).map_err(io::Error::from)?;
        self.print(&format!("{text}\n"))
    }

    /// Names every stage: those of the chain in order, then those that only have a directory.
    pub(crate) fn stages(&self) -> Result<Vec<String>, Trouble> {
        let mut names: Vec<String> = self
            .pipeline
            .stage_names()
            .into_iter()
            .map(str::to_owned)
            .collect();
        for name in self.engine.stages()? {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Fails unless the stage is known by the chain or by its directory.
    pub(crate) fn known_stage(&self, stage: &str) -> Result<(), Trouble> {
        let stages = self.stages()?;
        if stages.iter().any(|known| known == stage) {
            return Ok(());
        }
        Err(Trouble::usage(format!(
            "no stage {stage:?}; there are: {}",
            stages.join(", ")
        )))
    }

    /// Fails unless somebody made an archive here: a mistyped root is no healthy chain without work.
    pub(crate) fn must_be_archive(&self) -> Result<(), Trouble> {
        let settings = self.root.join("pipeline.toml");
        let manifest = crate::verify::manifest_path(self);
        if self.root.join("work").is_dir() || settings.is_file() || manifest.is_file() {
            return Ok(());
        }
        let root = std::path::absolute(&self.root).unwrap_or_else(|_| self.root.clone());
        Err(Trouble::usage(format!(
            "no archive in {}: --root names another place, `ecluse init` makes one here",
            root.display()
        )))
    }

    /// Returns a command as somebody may type it here: with the program and the root that this one was called with.
    pub(crate) fn command(&self, words: &str) -> String {
        let program = show::word(&self.program);
        let said = std::env::var_os("ECLUSE_ROOT").is_some_and(|root| root == *self.root);
        if said || self.root == Path::new(".") {
            return format!("{program} {words}");
        }
        let root = show::word(&self.root.display().to_string());
        format!("{program} --root {root} {words}")
    }

    /// Finds the parcels that a word of an operator means: a number, a name or its beginning.
    pub(crate) fn places(&self, word: &str) -> Result<Vec<ParcelPlace>, Trouble> {
        let Ok(number) = word.parse::<usize>() else {
            return self.named(word);
        };
        let need = self.numbered(number)?;
        let Some(parcel) = need.parcel else {
            return Err(Trouble::usage(format!(
                "number {number} is about stage {}, not about a parcel: {}",
                need.stage, need.command
            )));
        };
        self.named(&parcel)
    }

    /// Finds the parcels whose name is this, or begins so.
    pub(crate) fn named(&self, word: &str) -> Result<Vec<ParcelPlace>, Trouble> {
        let stages = self.stages()?;
        if let Ok(id) = ParcelId::new(word) {
            let exact = self.engine.locate(&stages, &id)?;
            if !exact.is_empty() {
                return Ok(exact);
            }
        }
        let stem = stem_of(word)?;
        let mut places = Vec::new();
        for stage in &stages {
            self.engine.each_place(stage, &mut |place| {
                if place.parcel.as_str().starts_with(&stem) {
                    places.push(place);
                }
            })?;
        }
        // A name that all the others begin with is meant, not what came of it.
        let shortest = places
            .iter()
            .map(|place| place.parcel.clone())
            .min_by_key(|id| id.as_str().len());
        if let Some(shortest) = shortest
            && places
                .iter()
                .all(|place| place.parcel.as_str().starts_with(shortest.as_str()))
        {
            places.retain(|place| place.parcel == shortest);
        }
        Ok(places)
    }
}

/// Returns a value whose keys have underscores, as `jq .needs_you` wants them. On disk keys have hyphens, as settings do.
pub(crate) fn underscored(value: Value) -> Value {
    match value {
        Value::Object(object) => object
            .into_iter()
            .map(|(key, value)| (key.replace('-', "_"), underscored(value)))
            .collect(),
        Value::Array(values) => values.into_iter().map(underscored).collect(),
        other => other,
    }
}

/// Returns the beginning of a parcel's name in what somebody typed, which may be a path. Every name begins with nothing: that
/// is no word for a parcel.
pub(crate) fn stem_of(word: &str) -> Result<String, Trouble> {
    let name = word.rsplit('/').next().unwrap_or(word);
    // Only the attempts follow a parcel's last tilde; Heritrix's own files have two of another kind in their names.
    let stem = match name.rsplit_once('~') {
        Some((stem, attempts)) if attempts.bytes().all(|byte| byte.is_ascii_digit()) => stem,
        _ => name,
    };
    if !stem.is_empty() && !word.contains("://") {
        return Ok(safe_file_name(OsStr::new(stem)));
    }
    let help = if word.contains("://") {
        "; `ecluse why URL --job JOB` tells of a URL"
    } else {
        ""
    };
    Err(Trouble::usage(format!("{word:?} names no parcel{help}")))
}

/// Returns what this program is called from here: by its name where that finds it, else as it was called just now.
fn program() -> String {
    const NAME: &str = "ecluse";
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let is_found = std::env::split_paths(&paths).any(|dir| dir.join(NAME).is_file());
    let called = std::env::args_os().next().unwrap_or_default();
    match called.into_string() {
        Ok(called) if !is_found && called.contains('/') => called,
        _ => NAME.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_underscores_and_values_stay() {
        let value = serde_json::json!({"needs-you": [{"a-b": "c-d"}], "x": 1});
        assert_eq!(
            underscored(value),
            serde_json::json!({"needs_you": [{"a_b": "c-d"}], "x": 1})
        );
    }

    #[test]
    fn nothing_and_a_url_name_no_parcel() {
        assert_eq!(stem_of("a.warc.gz").unwrap(), "a.warc.gz");
        assert_eq!(stem_of("work/index/held/a.warc.gz~2").unwrap(), "a.warc.gz");
        assert_eq!(
            stem_of("WEB-1~host~8443.warc.gz").unwrap(),
            "WEB-1_host_8443.warc.gz"
        );
        for word in [
            "",
            "work/index/held/",
            "~1",
            "https://a.example/",
            "https://a.example/b",
        ] {
            let trouble = stem_of(word).unwrap_err();
            assert_eq!(trouble.exit, Exit::Usage, "{word}");
        }
    }
}
