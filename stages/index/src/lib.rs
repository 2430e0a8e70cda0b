//! Writes one sorted CDXJ file for each WARC file, and what was seen in it.
//!
//! * **Reads** a parcel with one (W)ARC file.
//! * **Writes** `NAME.cdxj` beside it, sorted, one line a capture, and `NAME.seen.json`; `NAME.cdx` too when the
//!   settings ask for that layout. Says in the manifest that the file was indexed.
//! * **Never** changes a WARC file, and never reads the network.
//! * **Defers** nothing. **Holds** a file in which there is something and no record. Damage in part of a file is told
//!   in `NAME.seen.json` and in the receipt, and the parcel passes; so does an empty file, without lines.
//! * **Again**: indexing the same file twice gives the same bytes.

mod draft;
mod index;
mod lines;
mod seen;
mod settings;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use ecluse_cdx::MergeError;
use ecluse_holding::payload;
use ecluse_manifest::{Damage, Manifest};
use ecluse_stage::{Blame, Exit, Failure, Home, Outbox, Parcel, SettingsCheck, Stage};
use ecluse_telemetry::printable;
use ecluse_warc::{ReaderLimits, WarcReader};

pub use crate::index::{Taken, index};
use crate::lines::{Lines, unsorted};
pub use crate::seen::{DamageReport, Seen};
pub use crate::settings::{Format, Settings};

/// The stage.
pub struct Index {
    settings: Settings,
    temporary: PathBuf,
    /// Opened by the first parcel: a stage that has nothing to do makes no database.
    manifest: Option<Manifest>,
    home: Home,
}

impl Stage for Index {
    const NAME: &'static str = "index";
    const ABOUT: &'static str =
        "Writes one sorted CDXJ file for each WARC file, and what was seen in it";
    const FILTER: Option<&'static str> = Some("(W)ARC files whose sorted lines are printed");
    type Settings = Settings;

    fn check(_settings: &Settings, home: &Home, check: &mut SettingsCheck<'_>) {
        check.manifest(home);
    }

    fn open(settings: Settings, home: &Home) -> Result<Self, Failure> {
        Ok(Self {
            temporary: home.temporary(),
            manifest: None,
            home: home.clone(),
            settings,
        })
    }

    fn writes(_settings: &Settings, home: &Home) -> Vec<PathBuf> {
        vec![home.manifest_directory()]
    }

    fn process(&mut self, parcel: &Parcel, outbox: &mut Outbox) -> Result<(), Failure> {
        let name = payload(parcel.manifest())?.name.clone();
        let (seen, outputs) = self.read(parcel, &name, outbox)?;
        if seen.is_unreadable() {
            return Err(unreadable(&seen));
        }
        if let Some(bomb) = &seen.bomb {
            return Err(Failure::hold(format!(
                "{name}: {bomb}; if it is good, raise stage.index.bomb and try again"
            )));
        }
        // Equal lines are one: so many will be found in the big index.
        let mut lines_of_file = 0;
        for lines in outputs {
            let format = lines.format;
            let mut file = outbox.create(&format!("{name}.{}", format.suffix()))?;
            let written = lines.finish(&mut file).map_err(unsorted)?;
            if format == Format::Cdxj {
                lines_of_file = written;
            }
            outbox.attach(file)?;
        }
        let mut file = outbox.create(&format!("{name}.seen.json"))?;
        file.write_all(&seen.to_json())?;
        outbox.attach(file)?;
        let mut damage = seen.damage();
        damage.list.truncate(Damage::TOLD);
        outbox.fact("records", seen.records);
        // The package of its job tells of it when this parcel is long gone.
        outbox.fact("seen", seen.summary());
        outbox.fact("captures", seen.captures);
        outbox.fact("damages", damage.count);
        if damage.count > 0 {
            let list = serde_json::to_value(&damage.list).map_err(Failure::halt)?;
            outbox.fact("damage", list);
        }
        self.manifest()?
            .indexed(&name, lines_of_file, damage.count, &damage.list)
            .map_err(Failure::halt)
    }

    fn filter(settings: Settings, files: &[PathBuf], out: &mut dyn Write) -> Result<Exit, Failure> {
        let mut lines = Lines::new(settings.format, &settings, std::env::temp_dir());
        let mut exit = Exit::Done;
        for path in files {
            let filename = filename(path);
            let reader = match open(path, settings.limits()) {
                Ok(reader) => reader,
                // One name that leads nowhere does not cost the others their lines.
                Err(failure) if failure.blame == Blame::Parcel => {
                    writeln!(io::stderr(), "{}", failure.reason)?;
                    exit = Exit::Held;
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            let seen = index(reader, &filename, &settings, &mut |capture| {
                lines.push(capture)
            })?;
            if seen.damage.count > 0 {
                exit = Exit::Held;
                complain(path, &seen.damage)?;
            }
        }
        match lines.finish(out) {
            Ok(_) => Ok(exit),
            // Whoever read along has seen enough.
            Err(MergeError::Write { source, .. }) if source.kind() == io::ErrorKind::BrokenPipe => {
                Ok(exit)
            }
            Err(error) => Err(unsorted(error)),
        }
    }
}

impl Index {
    fn manifest(&mut self) -> Result<&mut Manifest, Failure> {
        let manifest = match self.manifest.take() {
            Some(manifest) => manifest,
            None => {
                Manifest::open(&self.home.manifest(), &self.home.root).map_err(Failure::halt)?
            }
        };
        Ok(self.manifest.insert(manifest))
    }

    /// Reads the file and gathers its lines in each layout asked for.
    fn read(
        &self,
        parcel: &Parcel,
        name: &str,
        outbox: &Outbox,
    ) -> Result<(Seen, Vec<Lines>), Failure> {
        let gather = |format| Lines::new(format, &self.settings, self.temporary.clone());
        let mut outputs = vec![gather(Format::Cdxj)];
        if self.settings.format != Format::Cdxj {
            outputs.push(gather(self.settings.format));
        }
        let source = Stoppable {
            source: parcel.open(name)?,
            outbox,
        };
        let reader = WarcReader::seekable(source, self.settings.limits());
        let seen = index(reader, name, &self.settings, &mut |capture| {
            for lines in &mut outputs {
                if let Err(fault) = lines.push(capture)? {
                    return Ok(Err(fault));
                }
            }
            Ok(Ok(()))
        });
        // A reading that was broken off is no fault of the machine.
        let seen = seen.map_err(|failure| {
            if outbox.stop_asked() {
                Failure::give_back()
            } else {
                failure
            }
        })?;
        Ok((seen, outputs))
    }
}

fn unreadable(seen: &Seen) -> Failure {
    let first = seen.damage.list.first();
    let first = first.map_or_else(|| "damaged".to_owned(), ToString::to_string);
    Failure::hold(format!("no record in {}: {first}", seen.file))
}

/// Names each damage on standard error, as `FILE: record N at offset O: reason`.
fn complain(path: &Path, damage: &DamageReport) -> Result<(), Failure> {
    let mut errors = io::stderr().lock();
    let path = path.as_os_str().as_encoded_bytes();
    for damage in &damage.list {
        // What a reason quotes of the file is escaped in it.
        writeln!(errors, "{}: {damage}", printable(path))?;
    }
    let more = damage.count.saturating_sub(damage.list.len() as u64);
    if more > 0 {
        writeln!(errors, "{}: {more} more damages", printable(path))?;
    }
    Ok(())
}

fn open(path: &Path, limits: ReaderLimits) -> Result<WarcReader<File>, Failure> {
    if path == Path::new("-") {
        let stdin = io::stdin().as_fd().try_clone_to_owned()?;
        return Ok(WarcReader::new(File::from(stdin), limits));
    }
    let unopened = |error: io::Error| {
        let path = printable(path.as_os_str().as_encoded_bytes());
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::IsADirectory => {
                Failure::hold(format!("cannot read {path}: {error}"))
            }
            _ => Failure::halt(format!("cannot read {path}: {error}")),
        }
    };
    let file = File::open(path).map_err(unopened)?;
    if file.metadata().map_err(unopened)?.is_dir() {
        return Err(unopened(io::ErrorKind::IsADirectory.into()));
    }
    Ok(WarcReader::seekable(file, limits))
}

/// Returns the name that stands in the lines: the file's, without its directory.
fn filename(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

/// A source that ends with an error when the stage was asked to stop.
struct Stoppable<'o, Source> {
    source: Source,
    outbox: &'o Outbox,
}

impl<Source: Read> Read for Stoppable<'_, Source> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.outbox.stop_asked() {
            return Err(io::Error::other("asked to stop"));
        }
        self.source.read(buffer)
    }
}

impl<Source: Seek> Seek for Stoppable<'_, Source> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.source.seek(to)
    }
}
