//! Writes one sorted CDXJ file for each WARC file, and what was seen in it.
//!
//! * **Reads** a parcel with one (W)ARC file.
//! * **Writes** `NAME.cdxj` beside it, sorted, one line a capture, and `NAME.seen.json`; `NAME.cdx` too when the
//!   settings ask for that layout, and `NAME.links.zst`, what captures link to, unless they say not to. The receipt has what the manifest is to know; transfer tells it, so that many
//!   machines may index and one host writes the manifest.
//!   To each stage in `back` goes a parcel of kind `evidence`: what the file tells of the sites in it.
//! * **Never** changes a WARC file, and never reads the network.
//! * **Defers** nothing. **Holds** a file in which there is something and no record. Damage in part of a file is told
//!   in `NAME.seen.json` and in the receipt, and the parcel passes; so does an empty file, without lines.
//! * **Again**: indexing the same file twice gives the same bytes.

mod draft;
mod evidence;
mod found;
mod index;
mod lines;
mod links;
mod seen;
mod settings;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use ecluse_cdx::{Capture, MergeError};
use ecluse_holding::payload;
use ecluse_manifest::Damage;
use ecluse_stage::{Blame, Exit, Failure, Home, Outbox, Parcel, ParcelId, Stage};
use ecluse_telemetry::printable;
use ecluse_warc::{ReaderLimits, WarcReader};

use crate::evidence::EvidenceGatherer;
use crate::found::FormatFinder;
use crate::index::{Looks, index_and_look};
pub use crate::index::{Taken, index};
use crate::lines::{Lines, unsorted};
use crate::links::LinkGatherer;
pub use crate::seen::{DamageReport, FormatCount, Seen};
pub use crate::settings::{Format, Settings};

/// The stage.
pub struct Index {
    settings: Settings,
    temporary: PathBuf,
    /// Who is told of the sites in a file.
    back: Vec<String>,
}

impl Stage for Index {
    const NAME: &'static str = "index";
    const ABOUT: &'static str =
        "Writes one sorted CDXJ file for each WARC file, and what was seen in it";
    const FILTER: Option<&'static str> = Some("(W)ARC files whose sorted lines are printed");
    type Settings = Settings;

    fn open(settings: Settings, home: &Home) -> Result<Self, Failure> {
        Ok(Self {
            temporary: home.temporary(),
            back: home.back.clone(),
            settings,
        })
    }

    fn writes(_settings: &Settings, _home: &Home) -> Vec<PathBuf> {
        Vec::new()
    }

    fn process(&mut self, parcel: &Parcel, outbox: &mut Outbox) -> Result<(), Failure> {
        let name = payload(parcel.manifest())?.name.clone();
        let mut evidence = EvidenceGatherer::new(self.settings.evidence_pages);
        let mut links = self
            .settings
            .links
            .then(|| LinkGatherer::new(&self.settings, self.temporary.clone()));
        let (seen, outputs) = self.read(parcel, &name, outbox, &mut evidence, links.as_mut())?;
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
        if let Some(links) = links {
            let mut file = outbox.create(&format!("{name}.links.zst"))?;
            links.finish(&mut file).map_err(unsorted)?;
            outbox.attach(file)?;
        }
        self.send_evidence(parcel, &evidence, outbox)?;
        let mut damage = seen.damage();
        damage.list.truncate(Damage::TOLD);
        outbox.fact("records", seen.records);
        // The package of its job tells of it when this parcel is long gone.
        outbox.fact("seen", seen.summary());
        outbox.fact("captures", seen.captures);
        outbox.fact("lines", lines_of_file);
        outbox.fact("damages", damage.count);
        if damage.count > 0 {
            let list = serde_json::to_value(&damage.list).map_err(Failure::halt)?;
            outbox.fact("damage", list);
        }
        Ok(())
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

/// Writes what the captures of a (W)ARC file link to, as the stage does it beside their lines, which `sink` is given; returns how many captures
/// that are.
///
/// # Errors
/// When the file cannot be read, or the list not written.
pub fn write_links(
    path: &Path,
    settings: &Settings,
    temporary: &Path,
    sink: &mut dyn FnMut(&Capture<'_>) -> Result<Taken, Failure>,
    out: &mut impl Write,
) -> Result<u64, Failure> {
    let mut links = LinkGatherer::new(settings, temporary.to_owned());
    let looks = Looks {
        links: Some(&mut links),
        ..Looks::default()
    };
    let reader = open(path, settings.limits())?;
    index_and_look(reader, &filename(path), settings, sink, looks)?;
    links.finish(out).map_err(unsorted)
}

impl Index {
    /// Reads the file and gathers its lines in each layout asked for.
    fn read(
        &self,
        parcel: &Parcel,
        name: &str,
        outbox: &Outbox,
        evidence: &mut EvidenceGatherer,
        links: Option<&mut LinkGatherer>,
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
        let reader = WarcReader::seekable(source, self.settings.limits()).asking(Stoppable::ask);
        let is_asked = !self.back.is_empty() && self.settings.evidence_pages > 0;
        let evidence = Some(evidence).filter(|_| is_asked);
        let mut push = |capture: &Capture<'_>| {
            for lines in &mut outputs {
                if let Err(fault) = lines.push(capture)? {
                    return Ok(Err(fault));
                }
            }
            Ok(Ok(()))
        };
        let looks = Looks {
            formats: Some(FormatFinder::new()),
            evidence,
            links,
        };
        let seen = index_and_look(reader, name, &self.settings, &mut push, looks);
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

    /// Tells others what the file tells of its sites. Named after the file's parcel: the same work gives the same parcel.
    fn send_evidence(
        &self,
        parcel: &Parcel,
        evidence: &EvidenceGatherer,
        outbox: &mut Outbox,
    ) -> Result<(), Failure> {
        let lines = evidence.lines();
        if lines.is_empty() {
            return Ok(());
        }
        for stage in &self.back {
            let id = ParcelId::new(&format!("evidence-{}", parcel.id()));
            // Names that are too long for one more word have no evidence; they have their lines.
            let Ok(id) = id else { return Ok(()) };
            let mut told = outbox.parcel(id, "evidence")?;
            told.write("evidence.tsv", lines.as_bytes())?;
            outbox.emit_to(told, stage);
        }
        Ok(())
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

impl<Source> Stoppable<'_, Source> {
    /// Says that work goes forward, unless the stage was asked to stop.
    fn ask(&mut self) -> io::Result<()> {
        self.outbox.tick();
        match self.outbox.stop_asked() {
            true => Err(io::Error::other("asked to stop")),
            false => Ok(()),
        }
    }
}

impl<Source: Read> Read for Stoppable<'_, Source> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.ask()?;
        self.source.read(buffer)
    }
}

impl<Source: Seek> Seek for Stoppable<'_, Source> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.source.seek(to)
    }
}

#[cfg(test)]
mod tests {
    use ecluse_spool::{Signs, WorkTree, Worker, WorkerLimits};

    use super::*;

    /// A file that is asked to stop when its last byte was read: all that follows happens in memory.
    struct LastByteRead<'s> {
        bytes: io::Cursor<Vec<u8>>,
        signs: &'s Signs,
        reads: u64,
    }

    impl Read for LastByteRead<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.reads += 1;
            let bytes = self.bytes.read(buffer)?;
            if bytes == 0 && !buffer.is_empty() {
                self.signs.ask_to_stop();
            }
            Ok(bytes)
        }
    }

    impl Seek for LastByteRead<'_> {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.bytes.seek(to)
        }
    }

    #[test]
    fn the_search_for_a_good_member_can_be_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let tree = WorkTree::open(dir.path());
        let worker = Worker::open(&tree, "index", &[], WorkerLimits::default(), "0").unwrap();
        let outbox = worker.outbox(&[]);
        let magic_numbers = [0x1F, 0x8B, 0x08].repeat(100_000);
        let mut source = LastByteRead {
            bytes: io::Cursor::new(magic_numbers),
            signs: worker.signs(),
            reads: 0,
        };
        let stoppable = Stoppable {
            source: &mut source,
            outbox: &outbox,
        };
        let before = worker.signs().ticks();
        let reader = WarcReader::seekable(stoppable, ReaderLimits::default());
        let mut reader = reader.asking(Stoppable::ask);
        let error = reader.next().map(|_| ()).unwrap_err();
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        assert_eq!(cause.as_deref(), Some("asked to stop"), "{error}");
        // It ticked when it was asked, and not only when something was read.
        assert!(worker.signs().ticks() - before > source.reads);
    }
}
