//! Finds out how pages change: whether, how much, how often, and when.
//!
//! * **Reads** a batch of parcels with the sorted `.cdxj` lines of captures that are in the index by now; the index, and the stored
//!   documents that differ from those before them.
//! * **Writes** the next generation of `changes/`, or of `changes/<collection>/`, and lets `current` point to it.
//! * **Never** reads a document whose digest is that of the capture before it, alters one, or stops at one that is damaged or gone: it is
//!   counted, and the receipt says how many and why.
//! * **Defers** while another is at work on the changes. **Holds** a parcel with a line out of order, or without lines.
//! * **Again**: what is written of a page follows from its captures in the index and their documents alone, so the same parcels give
//!   the same changes, in any order and any batches, once all are in.

mod building;
mod captures;
mod documents;
mod following;
mod rebuilding;

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, BufWriter, Seek};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ecluse_access::{ArchiveError, DocumentReader, OpenGeneration};
use ecluse_cdx::{LineShape, LineSource, MergeError, MergeOptions, ReadError, merge_pieces};
use ecluse_changes::{HistorySettings, WeightNorm, WordList};
use ecluse_config::{Bytes, Span};
use ecluse_generation::{
    BuilderLock, IndexDirectory, IndexError, IndexGeneration, IndexMember, LastGeneration, SCHEMA,
};
use ecluse_holding::{IndexPiece, pieces_of};
use ecluse_stage::{Failure, Home, Intake, Outbox, Parcel, ParcelId, SettingsCheck, Stage};
use serde::Deserialize;

use crate::building::{Building, BuiltChanges};
use crate::captures::CaptureJoin;
use crate::documents::Documents;
use crate::following::{ChangeCounts, Following};

pub use crate::building::BuildError;
pub use crate::rebuilding::{RebuiltChanges, rebuild_changes};

/// The stage.
pub struct ChangeStage {
    settings: Settings,
    home: Home,
}

/// What `[stage.change]` may say of its own.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Settings {
    /// How many generations stay.
    pub keep: NonZeroU32,
    /// How much of a document is read.
    pub document: Bytes,
    /// How the changes of blocks are summed up.
    pub norm: NormSetting,
    /// One change and one time without change of this length are taken for granted.
    pub prior: Span,
    /// Periods of a day.
    pub periods: NonZeroU32,
    /// Two captures further apart tell nothing of the time of the day.
    pub pattern_gap: Span,
    /// Changes from which on a page has a pattern of its own.
    pub pattern_changes: NonZeroU32,
    /// How much memory sorting takes.
    pub memory: Bytes,
    /// What the address of an advertisement holds.
    pub advertisements: Vec<String>,
    /// A file of the words of the language and how often the web has each; empty for none.
    pub words: PathBuf,
}

/// How the changes of blocks are summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NormSetting {
    /// As the formula of the paper.
    Formula,
    /// As its worked example.
    Example,
    /// As its Algorithm 2.
    #[serde(rename = "algorithm-2")]
    Algorithm2,
}

/// How long another may have the changes before this one does something else.
const PATIENCE: Duration = Duration::from_secs(60);
/// What the main index is called here: no collection can have the name.
const MAIN: &str = "main/";
/// The most periods a day can have.
const PERIODS: u32 = 1440;

impl Settings {
    fn norm(&self) -> WeightNorm {
        match self.norm {
            NormSetting::Formula => WeightNorm::Formula,
            NormSetting::Example => WeightNorm::Example,
            NormSetting::Algorithm2 => WeightNorm::Algorithm2,
        }
    }

    fn history(&self) -> HistorySettings {
        let days = |span: Span| span.0.as_secs_f64() / 86_400.0;
        HistorySettings {
            periods: self.periods.get() as usize,
            prior_days: days(self.prior),
            pattern_gap_days: days(self.pattern_gap),
            pattern_changes: u64::from(self.pattern_changes.get()),
            unweighed: self.norm().rewritten(),
        }
    }

    fn sort_bytes(&self) -> usize {
        usize::try_from(self.memory.0).unwrap_or(usize::MAX)
    }

    /// Reads the list of words, if there is one.
    pub(crate) fn word_list(&self, root: &Path) -> io::Result<Option<WordList>> {
        if self.words.as_os_str().is_empty() {
            return Ok(None);
        }
        let path = root.join(&self.words);
        let told = |why: String| io::Error::other(format!("{}: {why}", path.display()));
        let text = std::fs::read_to_string(&path).map_err(|error| told(error.to_string()))?;
        let list = WordList::parse(&text);
        let list = list.map_err(|(line, bad)| told(format!("in line {line}, {bad}")))?;
        Ok(Some(list))
    }

    fn following<'a>(&'a self, documents: Documents<'a>) -> Following<'a> {
        Following {
            documents,
            history: self.history(),
            norm: self.norm(),
            counts: ChangeCounts::default(),
        }
    }
}

impl Stage for ChangeStage {
    const NAME: &'static str = "change";
    const ABOUT: &'static str = "Finds out how pages change, and how much";
    const INTAKE: Intake = Intake::Batch;
    type Settings = Settings;

    fn check(settings: &Settings, home: &Home, check: &mut SettingsCheck<'_>) {
        check.directory("archive.changes", &home.archive.changes);
        if settings.periods.get() > PERIODS {
            check.error("stage.change.periods", format!("must be at most {PERIODS}"));
        }
        if settings.prior.0.is_zero() {
            check.error(
                "stage.change.prior",
                "must not be 0: no page without a change could be planned with",
            );
        }
        if let Err(error) = settings.word_list(&home.root) {
            check.error("stage.change.words", format!("cannot read {error}"));
        }
        if settings.advertisements.iter().any(String::is_empty) {
            check.error(
                "stage.change.advertisements",
                "has an empty text, which every address holds",
            );
        }
    }

    fn open(settings: Settings, home: &Home) -> Result<Self, Failure> {
        Ok(Self {
            settings,
            home: home.clone(),
        })
    }

    fn writes(_settings: &Settings, home: &Home) -> Vec<PathBuf> {
        vec![home.changes()]
    }

    fn process(&mut self, parcel: &Parcel, outbox: &mut Outbox) -> Result<(), Failure> {
        self.process_batch(std::slice::from_ref(parcel), outbox)
    }

    fn process_batch(&mut self, batch: &[Parcel], outbox: &mut Outbox) -> Result<(), Failure> {
        outbox.consume();
        let mut collections: BTreeMap<Option<&str>, Vec<&Parcel>> = BTreeMap::new();
        for parcel in batch {
            let collection = parcel.manifest().collection.as_deref();
            collections.entry(collection).or_default().push(parcel);
        }
        for (collection, mut members) in collections {
            // The same batch in the same order, whoever claimed its members first.
            members.sort_by(|left, right| left.id().cmp(right.id()));
            self.grow(collection, &members, outbox)?;
        }
        Ok(())
    }
}

impl ChangeStage {
    /// Brings what parcels tell into the changes of one collection.
    fn grow(
        &self,
        collection: Option<&str>,
        members: &[&Parcel],
        outbox: &mut Outbox,
    ) -> Result<(), Failure> {
        for parcel in members {
            if pieces_of(&[parcel], ".cdxj").is_empty() {
                let id = parcel.id();
                return Err(Failure::hold(format!("{id} has no .cdxj file")).of_member(id));
            }
        }
        let changes = IndexDirectory::of(&self.home.changes(), collection);
        let changes = changes.map_err(|error| Failure::hold(error).of_member(members[0].id()))?;
        changes.prepare().map_err(blame)?;
        let lock = wait_for_lock(&changes, outbox)?;
        let last = changes.settle(&lock).map_err(blame)?;
        let fresh = unknown(&changes, members)?;
        let number = match &last {
            Some(last) if fresh.is_empty() => last.number,
            last => self.build(collection, &changes, &lock, last.as_ref(), &fresh, outbox)?,
        };
        let retired = changes.prune(&lock, self.settings.keep.get() as usize);
        let retired = retired.map_err(blame)?;
        if !retired.is_empty() {
            tracing::info!(changes = %changes.root().display(), ?retired, "old generations retired");
        }
        let name = collection.map_or("generation".to_owned(), |name| format!("generation {name}"));
        outbox.fact(&name, number);
        Ok(())
    }

    fn build(
        &self,
        collection: Option<&str>,
        changes: &IndexDirectory,
        lock: &BuilderLock,
        last: Option<&LastGeneration>,
        members: &[&Parcel],
        outbox: &mut Outbox,
    ) -> Result<u64, Failure> {
        let incoming = self.joined(members, outbox)?;
        let number = last.map_or(0, |last| last.number) + 1;
        let directory = changes.begin(lock, number).map_err(blame)?;
        let built = self.write(collection, changes, last, &directory, incoming, outbox);
        let published = built.and_then(|built| {
            must_not_be_fenced(members)?;
            let generation = IndexGeneration {
                schema: SCHEMA,
                number,
                previous: last.map(|last| last.number),
                lines: built.pages,
                duplicates: 0,
                files: built.files,
                members: members.iter().map(|parcel| member_of(parcel)).collect(),
            };
            let written = generation.write(&directory);
            written.map_err(|error| {
                Failure::halt(format!("cannot write {}: {error}", directory.display()))
            })?;
            let published = changes.publish(lock, &directory, &generation, last);
            published.map_err(blame)?;
            Ok((built.pages, built.counts))
        });
        let (pages, counts) = published.map_err(|failure| {
            // What it leaves takes room that others may need now; if that fails too, the next one sweeps.
            let _ = changes.abandon(&directory);
            match changes.must_be_locked(lock) {
                Err(error @ IndexError::Overtaken { .. }) => blame(error),
                _ => failure,
            }
        })?;
        tell(&counts, outbox);
        tracing::info!(
            changes = %changes.root().display(),
            generation = number,
            pages,
            followed = counts.pages,
            versions = counts.versions,
            "generation made current"
        );
        Ok(number)
    }

    fn write(
        &self,
        collection: Option<&str>,
        changes: &IndexDirectory,
        last: Option<&LastGeneration>,
        directory: &Path,
        incoming: File,
        outbox: &Outbox,
    ) -> Result<BuiltChanges, Failure> {
        let limit = self.settings.document.0;
        let reader = DocumentReader::new(&self.home.index(), MAIN, &self.home.root, limit);
        let name = collection.unwrap_or(MAIN);
        let index = current(&reader, name)?;
        let words = self.settings.word_list(&self.home.root);
        let words = words.map_err(|error| Failure::config(format!("cannot read {error}")))?;
        let documents = Documents {
            reader: &reader,
            collection: name,
            generation: index.as_ref(),
            advertisements: &self.settings.advertisements,
            words: words.as_ref(),
            limit_bytes: limit,
        };
        let last = last.map(|last| changes.generation(last.number));
        let temporary = self.home.temporary();
        let building = Building {
            last: last.as_deref(),
            directory,
            temporary: &temporary,
            sort_bytes: self.settings.sort_bytes(),
            periods: self.settings.periods.get() as usize,
            tick: &|| outbox.tick(),
            is_stopped: &|| outbox.stop_asked(),
        };
        let lookup = index.as_ref().map(|index| &index.lines);
        let join = CaptureJoin::of(incoming, lookup).map_err(Failure::halt)?;
        let following = self.settings.following(documents);
        building
            .build(join, following)
            .map_err(|error| match error {
                BuildError::Stopped => Failure::give_back(),
                error => Failure::halt(error),
            })
    }

    /// Merges the lines that came in into one file without a name.
    fn joined(&self, members: &[&Parcel], outbox: &Outbox) -> Result<File, Failure> {
        /// Why they did not become one.
        enum Stopped {
            Merge(MergeError),
            Open(Failure),
        }

        impl From<MergeError> for Stopped {
            fn from(error: MergeError) -> Self {
                Self::Merge(error)
            }
        }

        let temporary = self.home.temporary();
        let unmade = |error: io::Error| {
            Failure::halt(format!(
                "cannot make a file in {}: {error}",
                temporary.display()
            ))
        };
        let mut out = BufWriter::new(tempfile::tempfile_in(&temporary).map_err(unmade)?);
        let options = MergeOptions {
            shape: LineShape::Capture,
            memory_bytes: self.settings.sort_bytes(),
            ..MergeOptions::default()
        };
        let open = |piece: &IndexPiece<'_>| {
            outbox.tick();
            let opened = piece.open().map_err(Stopped::Open)?;
            Ok(LineSource::new(piece.label(), opened))
        };
        let pieces = pieces_of(members, ".cdxj");
        let joined = merge_pieces(&pieces, open, &mut out, &temporary, &options);
        joined.map_err(|stopped| match stopped {
            Stopped::Merge(error @ MergeError::Read(ReadError::Read { .. })) => {
                Failure::halt(error)
            }
            Stopped::Merge(MergeError::Read(error)) => {
                let piece = error.file().to_owned();
                Failure::hold(with_cause(&error)).of_piece(&piece)
            }
            Stopped::Merge(error) => Failure::halt(with_cause(&error)),
            Stopped::Open(failure) => failure,
        })?;
        let mut file = out
            .into_inner()
            .map_err(|error| unmade(error.into_error()))?;
        file.rewind().map_err(unmade)?;
        Ok(file)
    }
}

/// Returns the current generation of an index; none where there is no index yet.
fn current(
    reader: &DocumentReader,
    collection: &str,
) -> Result<Option<Arc<OpenGeneration>>, Failure> {
    match reader.archive().current(collection) {
        Ok(generation) => Ok(Some(generation)),
        Err(ArchiveError::NoIndex(_) | ArchiveError::NoCollection(_)) => Ok(None),
        Err(error) => Err(Failure::halt(error)),
    }
}

/// Writes what was counted into the receipt.
fn tell(counts: &ChangeCounts, outbox: &mut Outbox) {
    outbox.fact("keys", counts.keys);
    outbox.fact("pages", counts.pages);
    outbox.fact("versions", counts.versions);
    for (outcome, count) in &counts.outcomes {
        outbox.fact(&format!("versions {}", outcome.word()), *count);
    }
    for (reason, count) in &counts.passed_over {
        outbox.fact(&format!("passed over: {reason}"), *count);
    }
}

fn member_of(parcel: &Parcel) -> IndexMember {
    IndexMember {
        parcel: parcel.id().clone(),
        content: parcel.manifest().content(),
    }
}

/// Takes the lock, waiting for a while for another that has it.
fn wait_for_lock(changes: &IndexDirectory, outbox: &Outbox) -> Result<BuilderLock, Failure> {
    let since = Instant::now();
    loop {
        if let Some(lock) = changes.try_lock().map_err(blame)? {
            return Ok(lock);
        }
        if outbox.stop_asked() {
            return Err(Failure::give_back());
        }
        if since.elapsed() >= PATIENCE {
            let root = changes.root().display();
            return Err(Failure::defer(format!("another is at work on {root}")));
        }
        outbox.tick();
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Fails when this worker was taken for dead: its parcels are no longer where it claimed them.
fn must_not_be_fenced(members: &[&Parcel]) -> Result<(), Failure> {
    for parcel in members {
        parcel.must_be_in_hand()?;
    }
    Ok(())
}

/// Returns those of the parcels that no kept generation names.
fn unknown<'a>(
    changes: &IndexDirectory,
    members: &[&'a Parcel],
) -> Result<Vec<&'a Parcel>, Failure> {
    let mut known: HashSet<(ParcelId, String)> = HashSet::new();
    for number in changes.numbers().map_err(blame)? {
        let generation = changes.describe(number).map_err(blame)?;
        let members = generation.into_iter().flat_map(|it| it.members);
        known.extend(members.map(|member| (member.parcel, member.content)));
    }
    let is_fresh = |parcel: &&&Parcel| {
        let IndexMember { parcel, content } = member_of(parcel);
        !known.contains(&(parcel, content))
    };
    Ok(members.iter().filter(is_fresh).copied().collect())
}

fn blame(error: IndexError) -> Failure {
    match error {
        IndexError::BadCollection(_) => Failure::hold(error),
        IndexError::Overtaken { .. } => Failure::defer(error),
        _ => Failure::halt(error),
    }
}

fn with_cause(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_the_arithmetics() {
        let text = "[stage.change]\nmemory = \"3 MiB\"\nprior = \"6h\"\nnorm = \"example\"\npattern-gap = \"2d\"\n";
        let pipeline = ecluse_config::Pipeline::parse(text, "").unwrap();
        let settings: Settings = pipeline.stage_settings("change").unwrap();
        assert_eq!(settings.sort_bytes(), 3 << 20);
        let history = settings.history();
        assert_eq!((history.prior_days, history.pattern_gap_days), (0.25, 2.0));
        assert_eq!((history.periods, history.pattern_changes), (24, 5));
        assert_eq!(history.unweighed, 1.0);
    }
}
