//! Merges the CDXJ, PATH and link pieces of many files into those of a day.
//!
//! * **Reads** a batch of parcels, each with `NAME.cdxj` and `NAME.path`, sorted, and maybe `NAME.links.zst`.
//! * **Writes** one parcel of kind `day` for each collection in the batch: `day.cdxj` and `day.path`, sorted, equal
//!   lines once, and `day.files`; the members are consumed. To each stage in `back` goes a parcel of kind `links` with
//!   `day.links.zst`. Named files are merged to standard output instead.
//! * **Never** holds the day in memory, has more files open than the settings say, or writes half a line.
//! * **Holds** a parcel without CDXJ, or with a line out of order, cut short or of another shape: file and line are
//!   named. It defers nothing: nothing it does depends on the world.
//! * **Again**: the same batch gives the same bytes.

mod day;
mod pieces;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ecluse_cdx::{LineShape, LineSource, MergeError, MergeOptions, ReadError, merge_pieces};
use ecluse_config::Bytes;
use ecluse_stage::{Exit, Failure, Home, Intake, Outbox, Parcel, SettingsCheck, Stage};
use serde::Deserialize;

/// The stage.
pub struct Merge {
    settings: Settings,
    /// Where the runs of a merge in several rounds lie; they have no names.
    temporary: PathBuf,
    home: Home,
    /// Who is told of links.
    back: Vec<String>,
}

/// What `[stage.merge]` may say of its own.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Settings {
    /// How much memory the buffers take together.
    pub memory: Bytes,
    /// How many pieces are open at once; more are merged in rounds.
    pub open_files: u32,
}

impl Settings {
    fn options(&self, shape: LineShape) -> MergeOptions {
        MergeOptions {
            shape,
            memory_bytes: usize::try_from(self.memory.0).unwrap_or(usize::MAX),
            open_files: self.open_files as usize,
            ..MergeOptions::default()
        }
    }
}

impl Stage for Merge {
    const NAME: &'static str = "merge";
    const ABOUT: &'static str = "Merges the CDXJ and PATH pieces of many files into those of a day";
    const INTAKE: Intake = Intake::Batch;
    type Settings = Settings;
    const FILTER: Option<&'static str> =
        Some("Sorted CDXJ files: they are merged to standard output, equal lines once");

    fn check(settings: &Settings, home: &Home, check: &mut SettingsCheck<'_>) {
        check.manifest(home);
        check.open_files("stage.merge.open-files", settings.open_files.into());
        if home.next.is_empty() {
            let message = "merge has no stage after it: its days would go nowhere";
            check.error("stage.merge.next", message);
        }
    }

    fn open(settings: Settings, home: &Home) -> Result<Self, Failure> {
        Ok(Self {
            home: home.clone(),
            back: home.back.clone(),
            settings,
            temporary: home.temporary(),
        })
    }

    fn writes(_settings: &Settings, home: &Home) -> Vec<PathBuf> {
        // It only asks the manifest, but a reader of the database writes beside it too.
        vec![home.manifest_directory()]
    }

    fn process(&mut self, parcel: &Parcel, outbox: &mut Outbox) -> Result<(), Failure> {
        self.process_batch(std::slice::from_ref(parcel), outbox)
    }

    fn process_batch(&mut self, batch: &[Parcel], outbox: &mut Outbox) -> Result<(), Failure> {
        for day in day::days_of(batch) {
            day.write(self, outbox)?;
        }
        Ok(())
    }

    fn filter(
        settings: Settings,
        files: &[PathBuf],
        mut out: &mut dyn Write,
    ) -> Result<Exit, Failure> {
        let options = settings.options(LineShape::Capture);
        let temporary = std::env::temp_dir();
        let merged = merge_pieces(files, |file| open(file), &mut out, &temporary, &options);
        match merged {
            Ok(_) => Ok(Exit::Done),
            // Whoever read along has seen enough.
            Err(MergeError::Write { source, .. }) if source.kind() == io::ErrorKind::BrokenPipe => {
                Ok(Exit::Done)
            }
            Err(MergeError::Read(ReadError::Open { file, source })) => {
                Err(Failure::hold(format!("cannot open {file}: {source}")))
            }
            Err(error) => Err(pieces::blame(&error)),
        }
    }
}

fn open(file: &Path) -> Result<LineSource, MergeError> {
    if file == Path::new("-") {
        return Ok(LineSource::new("standard input", io::stdin()));
    }
    Ok(LineSource::open(file)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_are_those_of_the_merge() {
        let text = "[stage.merge]\nmemory = \"3 MiB\"\nopen-files = 5\n";
        let pipeline = ecluse_config::Pipeline::parse(text, "").unwrap();
        let settings: Settings = pipeline.stage_settings("merge").unwrap();
        let options = settings.options(LineShape::Capture);
        assert_eq!((options.memory_bytes, options.open_files), (3 << 20, 5));
    }
}
