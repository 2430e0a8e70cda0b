//! Merges the days of all machines into the next generation of the big index.
//!
//! * **Reads** a batch of parcels with sorted `.cdxj`, `.path` and `.files` lists, and the current generation.
//! * **Writes** `index/generations/N/`, or `index/<collection>/generations/N/`, lets `current` point to it, keeps the last
//!   few, and tells the manifest; a parcel of kind `generation` with `generation.files` for each collection, and to each stage
//!   in `back` one of kind `captures` with the lines that came in; the members are consumed. With `ranges`, the days of a large
//!   index become one parcel of kind `days` for this stage itself, and the stage `range` is asked for parts in `index/.building`.
//! * **Never** leaves readers without an index or with half of one, and never changes a generation that is there.
//! * **Defers** when there is no room for the next generation, another has the index or the next generation is being built in
//!   ranges of other days, and while no machine builds ranges. **Holds** a parcel with a line out of
//!   order, and one of a collection that cannot name a directory. An index that is not what was written, or not there, stops
//!   the stage: no generation has fewer lines than the one before.
//! * **Again**: a parcel that a kept generation holds is not merged again; one merged again adds no line.

mod building;
mod days;
mod joining;
mod planning;
mod sums;

use std::collections::{BTreeMap, HashSet};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ecluse_cdx::{LineShape, Lines, MAX_LINE_BYTES, MergeOptions};
use ecluse_config::Bytes;
use ecluse_generation::{
    BuilderLock, FLAT, IndexDirectory, IndexError, IndexMember, LastGeneration, PATHS,
};
use ecluse_holding::pieces_of;
use ecluse_manifest::Manifest;
use ecluse_stage::{Failure, Home, Intake, Outbox, Parcel, ParcelId, SettingsCheck, Stage};
use serde::Deserialize;

use building::{Building, bytes_of, cannot, join, open};
use days::{members_of, names_of};
use planning::Planned;

/// The stage.
pub struct Bigmerge {
    settings: Settings,
    index: PathBuf,
    has_next: bool,
    /// Where the runs of a merge in several rounds lie; they have no names.
    temporary: PathBuf,
    home: Home,
}

/// What `[stage.bigmerge]` may say of its own.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Settings {
    /// How many generations stay.
    pub keep: NonZeroU32,
    /// How much stays free beside the next generation.
    pub spare: Bytes,
    /// How much memory the buffers take together.
    pub memory: Bytes,
    /// Reads every line of the new generation again before it is shown.
    pub recheck: bool,
    /// Writes ZipNum beside the flat index.
    pub zipnum: bool,
    /// How many lines a gzip member of it has.
    pub zipnum_lines: NonZeroU32,
    /// How large a shard of it grows.
    pub zipnum_shard: Bytes,
    /// In how many ranges of keys other machines build a generation; 1: it is built here.
    pub ranges: NonZeroU32,
    /// How large the flat index must be for that.
    pub ranges_from: Bytes,
}

/// What the fact of a receipt begins with that names the days in a parcel; the parcel comes after it.
pub const GATHERED_DAYS: &str = "days of ";
/// How long another may have the index before this one does something else.
const PATIENCE: Duration = Duration::from_secs(60);
/// How many names the manifest is told at a time.
const NAMES: usize = 10_000;

impl Settings {
    fn options(&self, shape: LineShape) -> MergeOptions {
        MergeOptions {
            shape,
            memory_bytes: usize::try_from(self.memory.0).unwrap_or(usize::MAX),
            ..MergeOptions::default()
        }
    }
}

impl Stage for Bigmerge {
    const NAME: &'static str = "bigmerge";
    const ABOUT: &'static str =
        "Merges the days of all machines into the next generation of the big index";
    const INTAKE: Intake = Intake::Batch;
    type Settings = Settings;

    fn check(settings: &Settings, home: &Home, check: &mut SettingsCheck<'_>) {
        check.manifest(home);
        check.directory("archive.index", &home.archive.index);
        if settings.ranges.get() > 1 && !check.has_stage(planning::STAGE) {
            let stage = planning::STAGE;
            check.warning(
                "stage.bigmerge.ranges",
                format_args!("no host runs the stage {stage}, and without it the index stands still: add it to 'chain.stages'"),
            );
        }
    }

    fn open(settings: Settings, home: &Home) -> Result<Self, Failure> {
        Ok(Self {
            index: home.index(),
            has_next: !home.next.is_empty(),
            home: home.clone(),
            temporary: home.temporary(),
            settings,
        })
    }

    fn writes(_settings: &Settings, home: &Home) -> Vec<PathBuf> {
        vec![home.index(), home.manifest_directory()]
    }

    fn process(&mut self, parcel: &Parcel, outbox: &mut Outbox) -> Result<(), Failure> {
        self.process_batch(std::slice::from_ref(parcel), outbox)
    }

    fn process_batch(&mut self, batch: &[Parcel], outbox: &mut Outbox) -> Result<(), Failure> {
        let mut collections: BTreeMap<Option<&str>, Vec<&Parcel>> = BTreeMap::new();
        for parcel in batch {
            let collection = parcel.manifest().collection.as_deref();
            collections.entry(collection).or_default().push(parcel);
        }
        for (collection, members) in collections {
            let (begun, days): (Vec<&Parcel>, Vec<&Parcel>) = members
                .into_iter()
                .partition(|parcel| days::is_gathered(parcel));
            for parcel in begun {
                let added = self.add(collection, &[parcel], outbox);
                added.map_err(|failure| match failure.member {
                    None => failure.of_member(parcel.id()),
                    Some(_) => failure,
                })?;
            }
            if days.is_empty() {
                continue;
            }
            must_have_lines(&days)?;
            if self.gathers(collection)? {
                self.gather(collection, &days, outbox)?;
            } else {
                self.add(collection, &days, outbox)?;
            }
        }
        Ok(())
    }
}

impl Bigmerge {
    /// Brings parcels into the index of one collection and tells of it.
    fn add(
        &self,
        collection: Option<&str>,
        members: &[&Parcel],
        outbox: &mut Outbox,
    ) -> Result<(), Failure> {
        must_have_lines(members)?;
        let index = IndexDirectory::of(&self.index, collection).map_err(Failure::hold)?;
        let number = self.grow(&index, collection, members, outbox)?;
        self.tell(collection, number, members, outbox)?;
        let name = collection.map_or("generation".to_owned(), |name| format!("generation {name}"));
        outbox.fact(&name, number);
        for parcel in members.iter().filter(|parcel| days::is_gathered(parcel)) {
            // The receipt names the parcel alone.
            let names = names_of(&[parcel])?
                .into_iter()
                .map(|name| name.to_string());
            let key = format!("{GATHERED_DAYS}{}", parcel.id());
            outbox.fact(&key, names.collect::<Vec<_>>());
        }
        if self.has_next {
            self.emit(collection, members, outbox)?;
        }
        for stage in &self.home.back {
            self.send_captures(stage, collection, members, outbox)?;
        }
        Ok(())
    }

    /// Returns the number of a current generation that holds all members, built now unless it was built before.
    fn grow(
        &self,
        index: &IndexDirectory,
        collection: Option<&str>,
        members: &[&Parcel],
        outbox: &Outbox,
    ) -> Result<u64, Failure> {
        index.prepare().map_err(blame)?;
        let lock = wait_for_lock(index, outbox)?;
        let last = index.settle(&lock).map_err(blame)?;
        if last.is_none() {
            self.must_be_new(index, collection)?;
        }
        let fresh = unknown(index, members)?;
        let number = match &last {
            Some(last) if fresh.is_empty() => last.number,
            last => {
                let last = last.as_ref();
                let planned = self.plan((index, collection), &lock, last, &fresh, outbox)?;
                self.make_room(index, last, &fresh, planned.as_ref())?;
                self.build(index, &lock, last, (&fresh, planned.as_ref()), outbox)?
            }
        };
        index
            .drop_plans(&lock, |plan| plan.previous == number)
            .map_err(blame)?;
        let retired = index
            .prune(&lock, self.settings.keep.get() as usize)
            .map_err(blame)?;
        if !retired.is_empty() {
            tracing::info!(index = %index.root().display(), ?retired, "old generations retired");
        }
        Ok(number)
    }

    fn manifest(&self) -> Result<Manifest, Failure> {
        Manifest::open(&self.home.manifest(), &self.home.root).map_err(Failure::halt)
    }

    /// Where there is no generation, the manifest must not say that there was one: a disk may not be mounted.
    fn must_be_new(&self, index: &IndexDirectory, collection: Option<&str>) -> Result<(), Failure> {
        let manifest = self.manifest()?;
        if !manifest.has_published(collection).map_err(Failure::halt)? {
            return Ok(());
        }
        Err(Failure::halt(format!(
            "there is no index in {}, and the manifest has files that are in it. Is its disk mounted? Put it back; \
             docs/formats/index-generation.md, \"When an index is lost\"",
            index.root().display()
        )))
    }

    fn build(
        &self,
        index: &IndexDirectory,
        lock: &BuilderLock,
        last: Option<&LastGeneration>,
        (members, planned): (&[&Parcel], Option<&Planned<'_>>),
        outbox: &Outbox,
    ) -> Result<u64, Failure> {
        let number = last.map_or(0, |last| last.number) + 1;
        let directory = index.begin(lock, number).map_err(blame)?;
        let building = Building {
            settings: &self.settings,
            index,
            last,
            members,
            directory: &directory,
            root: &self.home.root,
            planned,
            outbox,
        };
        let published = building.build(number).and_then(|generation| {
            must_not_be_fenced(members)?;
            let published = index.publish(lock, &directory, &generation, last);
            published.map_err(blame)?;
            Ok(generation)
        });
        let generation = published.map_err(|failure| {
            // What it leaves takes room that others may need now; if that fails too, the next one sweeps.
            let _ = index.abandon(&directory);
            // A builder that lost its lock finds its files gone: that is not the disk's fault.
            match index.must_be_locked(lock) {
                Err(error @ IndexError::Overtaken { .. }) => blame(error),
                _ => failure,
            }
        })?;
        tracing::info!(
            index = %index.root().display(),
            generation = number,
            lines = generation.lines,
            duplicates = generation.duplicates,
            parcels = members.len(),
            "generation made current"
        );
        Ok(number)
    }

    /// Defers unless the file system takes another generation.
    fn make_room(
        &self,
        index: &IndexDirectory,
        last: Option<&LastGeneration>,
        fresh: &[&Parcel],
        planned: Option<&Planned<'_>>,
    ) -> Result<(), Failure> {
        const MIB: u64 = 1 << 20;
        let mut needed =
            bytes_of(&pieces_of(fresh, ".cdxj")) + bytes_of(&pieces_of(fresh, ".path"));
        if let Some(last) = last {
            needed += flat_bytes(&index.generation(last.number))?;
        }
        let flat = needed;
        if self.settings.zipnum {
            // A quarter is usual; a third is safe.
            needed += needed / 3;
        }
        if planned.is_some() {
            // The parts lie there beside what is made of them.
            needed += flat;
        }
        needed = needed.saturating_add(self.settings.spare.0);
        let free = rustix::fs::statvfs(index.root())
            .map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize))
            .map_err(|error| cannot("ask for room in", index.root(), &error.into()))?;
        if free < needed {
            return Err(Failure::defer(format!(
                "the next generation of {} needs {}, {} free",
                index.root().display(),
                Bytes(needed.div_ceil(MIB).saturating_mul(MIB)),
                Bytes(free / MIB * MIB)
            )));
        }
        Ok(())
    }

    /// Tells the manifest which files the current generation holds.
    fn tell(
        &self,
        collection: Option<&str>,
        number: u64,
        members: &[&Parcel],
        outbox: &Outbox,
    ) -> Result<(), Failure> {
        let mut manifest = self.manifest()?;
        let mut tell = |names: &[String]| {
            outbox.tick();
            manifest
                .published(collection, number, names)
                .map_err(Failure::halt)
        };
        let mut names = Vec::new();
        for piece in pieces_of(members, ".files") {
            let mut lines = Lines::new(open(&piece)?, MAX_LINE_BYTES);
            while let Some(line) = lines.next_line().map_err(Failure::hold)? {
                let fields = ecluse_cdx::path::parse(line.bytes).map_err(Failure::hold)?;
                names.push(fields.filename.to_owned());
                if names.len() == NAMES {
                    tell(&std::mem::take(&mut names))?;
                }
            }
        }
        tell(&names)
    }

    fn emit(
        &self,
        collection: Option<&str>,
        members: &[&Parcel],
        outbox: &mut Outbox,
    ) -> Result<(), Failure> {
        let ids = names_of(members)?;
        let mut output = outbox.parcel(ParcelId::of_batch("generation", &ids), "generation")?;
        output.manifest().collection = collection.map(str::to_owned);
        let mut file = output.create("generation.files")?;
        let options = MergeOptions {
            shape: LineShape::Path,
            ..MergeOptions::default()
        };
        let lists = pieces_of(members, ".files");
        join(&lists, &mut file, &self.temporary, &options, outbox)?;
        output.add(file)?;
        Ok(outbox.emit(output)?)
    }

    /// Sends the lines that came in to a stage that wants to know of every capture. They are in the index by now.
    fn send_captures(
        &self,
        stage: &str,
        collection: Option<&str>,
        members: &[&Parcel],
        outbox: &mut Outbox,
    ) -> Result<(), Failure> {
        let ids = names_of(members)?;
        let mut output = outbox.parcel(ParcelId::of_batch("captures", &ids), "captures")?;
        output.manifest().collection = collection.map(str::to_owned);
        let mut file = output.create("captures.cdxj")?;
        let options = self.settings.options(LineShape::Capture);
        let lists = pieces_of(members, ".cdxj");
        join(&lists, &mut file, &self.temporary, &options, outbox)?;
        output.add(file)?;
        outbox.emit_to(output, stage);
        Ok(())
    }
}

/// Refuses a parcel that brings no list of captures.
fn must_have_lines(members: &[&Parcel]) -> Result<(), Failure> {
    for parcel in members {
        if pieces_of(&[parcel], ".cdxj").is_empty() {
            let id = parcel.id();
            return Err(Failure::hold(format!("{id} has no .cdxj file")).of_member(id));
        }
    }
    Ok(())
}

/// Takes the lock of an index, waiting for a while for another that has it.
fn wait_for_lock(index: &IndexDirectory, outbox: &Outbox) -> Result<BuilderLock, Failure> {
    let since = Instant::now();
    loop {
        if let Some(lock) = index.try_lock().map_err(blame)? {
            return Ok(lock);
        }
        if outbox.stop_asked() {
            return Err(Failure::give_back());
        }
        if since.elapsed() >= PATIENCE {
            let root = index.root().display();
            return Err(Failure::defer(format!("another is at work on {root}")));
        }
        outbox.tick();
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Fails when this worker was taken for dead: its parcels are no longer where it claimed them, and another merges them.
fn must_not_be_fenced(members: &[&Parcel]) -> Result<(), Failure> {
    for parcel in members {
        parcel.must_be_in_hand()?;
    }
    Ok(())
}

/// Returns those of the parcels that no kept generation names.
fn unknown<'a>(index: &IndexDirectory, members: &[&'a Parcel]) -> Result<Vec<&'a Parcel>, Failure> {
    let mut known: HashSet<(ParcelId, String)> = HashSet::new();
    for number in index.numbers().map_err(blame)? {
        let generation = index.describe(number).map_err(blame)?;
        let members = generation
            .into_iter()
            .flat_map(|generation| generation.members);
        known.extend(members.map(|member| (member.parcel, member.content)));
    }
    let is_known = |member: IndexMember| known.contains(&(member.parcel, member.content));
    let mut fresh = Vec::new();
    for parcel in members {
        if !members_of(parcel)?.into_iter().all(is_known) {
            fresh.push(*parcel);
        }
    }
    Ok(fresh)
}

/// Returns the size of the two lists of a generation.
fn flat_bytes(generation: &Path) -> Result<u64, Failure> {
    let mut bytes = 0;
    for name in [FLAT, PATHS] {
        let path = generation.join(name);
        match path.metadata() {
            Ok(meta) => bytes += meta.len(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(cannot("look at", &path, &error)),
        }
    }
    Ok(bytes)
}

fn blame(error: IndexError) -> Failure {
    match error {
        IndexError::BadCollection(_) => Failure::hold(error),
        IndexError::Overtaken { .. } => Failure::defer(error),
        _ => Failure::halt(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_are_those_of_the_merge() {
        let text = "[stage.bigmerge]\nmemory = \"3 MiB\"\n";
        let pipeline = ecluse_config::Pipeline::parse(text, "").unwrap();
        let settings: Settings = pipeline.stage_settings("bigmerge").unwrap();
        assert_eq!(settings.options(LineShape::Path).memory_bytes, 3 << 20);
    }
}
