//! `ecluse rebuild path`: where each file is, after the archive was moved.
//!
//! The manifest keeps places below the root relative to it, so a moved or copied root needs nothing. The PATH lists of the
//! indexes are absolute, because readers of others know of no root: each gets a generation with the places of now. A place
//! outside the root that is not in its location as pipeline.toml has it now is looked for there; it counts when a file of
//! the right size is there, and the manifest is told.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ecluse_cdx::path::{PathLine, parse, write};
use ecluse_cdx::{LineSource, Lines, MAX_LINE_BYTES};
use ecluse_generation::{IndexDirectory, IndexError, PATHS};
use ecluse_holding::is_same_file;
use ecluse_index::Index;
use ecluse_manifest::{CopyKind, CopyRow, FileRow, Manifest, MovedPlace, MovedThing};
use ecluse_spool::{Gift, ParcelState};
use ecluse_stage::{Exit, Stage};
use serde_json::json;

use crate::audit::{self, Line};
use crate::cli::RebuildOptions;
use crate::context::{DriverContext, Trouble};
use crate::rebuild::must_be_stopped;
use crate::repair::{CopyHome, homes, is_in_a_directory};
use crate::verify;

/// So many files are told the manifest at a time.
const PAGE: usize = 1000;
/// So many copies are looked at to see whether the archive was moved.
const LOOKED_AT: usize = 20;

/// What was done.
#[derive(Default)]
struct Sums {
    /// Places that are other ones now.
    moved: u64,
    /// Copies that are neither where they were nor where they should be.
    missing: u64,
    /// Lines of PATH lists that are other ones now.
    lines: u64,
    /// Parcels that are given again from where their files are now.
    given: u64,
    /// Day's lists on their way that have places of before.
    days: u64,
}

pub(crate) fn rebuild(
    context: &DriverContext,
    options: &RebuildOptions,
) -> Result<ExitCode, Trouble> {
    context.must_be_archive()?;
    must_be_stopped(context)?;
    let is_dry = options.act.dry_run;
    let mut manifest = verify::open(context)?;
    let now = PlacesNow::of(context)?;
    let mut sums = Sums::default();
    now.mend_manifest(&mut manifest, is_dry, &mut sums)?;
    give_again(context, &now, &manifest, is_dry, &mut sums)?;
    for index in indexes(context)? {
        sums.lines += now.mend_index(&index, &manifest, is_dry)?;
    }
    let outcome = format!(
        "{} places and {} lines of the index are where the files are now; {} copies are not there",
        sums.moved, sums.lines, sums.missing
    );
    if !is_dry {
        let line = Line {
            verb: "rebuild path",
            stage: "",
            parcel: None,
            why: options.act.why.as_deref(),
            outcome: &outcome,
        };
        audit::write(context, &line)?;
    }
    if context.json {
        context.print_json(json!({
            "dry_run": is_dry, "places": sums.moved, "lines": sums.lines, "missing": sums.missing,
            "given_again": sums.given, "days": sums.days,
        }))?;
        return Ok(Exit::Done.into());
    }
    let would = if is_dry { "would be so: " } else { "" };
    context.say(&format!("{would}{outcome}"))?;
    if sums.given > 0 {
        let given = sums.given;
        context.say(&format!("{would}{given} parcels that named the old places are discarded, and their files given to index again"))?;
    }
    if sums.days > 0 {
        let again = context.command("rebuild path");
        let days = sums.days;
        context.say(&format!(
            "{days} day's lists are on their way with the old places: when they are in the index, {again} once more"
        ))?;
    }
    Ok(Exit::Done.into())
}

impl DriverContext {
    /// Returns the place of a copy that is elsewhere now, where the archive seems to have been moved.
    pub(crate) fn moved_copy(
        &self,
        manifest: &Manifest,
        failing: &[CopyRow],
    ) -> Result<Option<String>, Trouble> {
        let now = PlacesNow::of(self)?;
        let some = manifest.some_copies(LOOKED_AT)?;
        let mut copies = failing.iter().take(LOOKED_AT).chain(&some);
        let moved = copies.find(|copy| now.of_copy(copy).is_some());
        if let Some(copy) = moved {
            return Ok(Some(copy.place.clone()));
        }
        for index in indexes(self)? {
            let Some(number) = index.current_number()? else {
                continue;
            };
            let list = index.generation(number).join(PATHS);
            // An index put there by hand may have no such list; one that is lost shows elsewhere.
            let Ok(source) = LineSource::open(&list) else {
                continue;
            };
            let mut lines = Lines::new(source, MAX_LINE_BYTES);
            for _ in 0..LOOKED_AT {
                let Ok(Some(line)) = lines.next_line() else {
                    break;
                };
                let Ok(PathLine { filename, location }) = parse(line.bytes) else {
                    break;
                };
                let stored = now.of_stored(manifest, filename)?;
                if !stored.is_empty() && is_elsewhere(location, &stored) {
                    return Ok(Some(location.to_owned()));
                }
            }
        }
        Ok(None)
    }
}

/// Tells whether a place of a PATH list is a path, and none of these.
fn is_elsewhere(place: &str, stored: &[String]) -> bool {
    let path = Path::new(place);
    let is_it = |now: &String| now == place || is_same_file(Path::new(now), path).unwrap_or(false);
    path.is_absolute() && !stored.iter().any(is_it)
}

/// Where files are now.
struct PlacesNow {
    homes: Vec<CopyHome>,
    harvested: Vec<PathBuf>,
}

/// Returns where a file is now that was elsewhere before: below one of these directories, as deep as it was. That there is
/// a file where it was says nothing: that may be another archive, which this one was copied from.
fn place_now<'a>(
    before: &str,
    bytes: u64,
    homes: impl Iterator<Item = &'a Path> + Clone,
) -> Option<PathBuf> {
    let path = Path::new(before);
    let is_at_home = homes.clone().any(|home| path.starts_with(home));
    if !path.is_absolute() || (is_at_home && !is_gone(path)) {
        return None;
    }
    let parts: Vec<&OsStr> = path.iter().skip(1).collect();
    for home in homes {
        // The longest way first: of two files of one name the one in the same folder is meant.
        for at in 0..parts.len() {
            let place = home.join(parts.get(at..)?.iter().collect::<PathBuf>());
            if place
                .metadata()
                .is_ok_and(|found| found.is_file() && found.len() == bytes)
            {
                // By another name of the same directory it is where it was.
                let is_moved = !is_same_file(path, &place).unwrap_or(false);
                return is_moved.then_some(place);
            }
        }
    }
    None
}

fn is_gone(path: &Path) -> bool {
    let looked = path.symlink_metadata();
    looked.is_err_and(|error| {
        let kind = error.kind();
        kind == io::ErrorKind::NotFound || kind == io::ErrorKind::NotADirectory
    })
}

impl PlacesNow {
    fn of(context: &DriverContext) -> Result<Self, Trouble> {
        let root = std::path::absolute(&context.root)?;
        let harvested = &context.pipeline.archive.harvested;
        Ok(Self {
            homes: homes(context)?,
            harvested: harvested.iter().map(|path| root.join(path)).collect(),
        })
    }

    fn of_copy(&self, copy: &CopyRow) -> Option<PathBuf> {
        let is_its = |home: &&CopyHome| home.kind == copy.kind && home.target == copy.target;
        let homes = self.homes.iter().filter(is_its);
        place_now(
            &copy.place,
            copy.bytes,
            homes.map(|home| home.path.as_path()),
        )
    }

    /// Returns where the stored copies of a file are.
    fn of_stored(&self, manifest: &Manifest, file: &str) -> Result<Vec<String>, Trouble> {
        let copies = manifest.copies(file)?.into_iter();
        let stored = copies.filter(|copy| copy.kind == CopyKind::Stored);
        let places = stored.map(|copy| match self.of_copy(&copy) {
            Some(place) => place.to_string_lossy().into_owned(),
            None => copy.place,
        });
        Ok(places.collect())
    }

    fn of_harvested(&self, place: &str, bytes: u64) -> Option<PathBuf> {
        place_now(place, bytes, self.harvested.iter().map(PathBuf::as_path))
    }

    fn mend_manifest(
        &self,
        manifest: &mut Manifest,
        is_dry: bool,
        sums: &mut Sums,
    ) -> Result<(), Trouble> {
        let mut after = String::new();
        loop {
            let files = manifest.files_after(&after, PAGE)?;
            let Some(last) = files.last() else {
                return Ok(());
            };
            after.clone_from(&last.name);
            let mut moved = Vec::new();
            for file in &files {
                self.moved_of(manifest, file, &mut moved, sums)?;
            }
            sums.moved += moved.len() as u64;
            if !is_dry && !moved.is_empty() {
                manifest.moved(&moved)?;
            }
        }
    }

    fn moved_of(
        &self,
        manifest: &Manifest,
        file: &FileRow,
        moved: &mut Vec<MovedPlace>,
        sums: &mut Sums,
    ) -> Result<(), Trouble> {
        let mut add = |what, place: PathBuf| {
            // A place that is not UTF-8 could not have been written either.
            let place = place.into_os_string().into_string();
            moved.extend(place.ok().map(|place| MovedPlace {
                file: file.name.clone(),
                what,
                place,
            }));
        };
        for copy in manifest.copies(&file.name)? {
            match self.of_copy(&copy) {
                Some(place) => add(MovedThing::Copy(copy.kind, copy.target), place),
                None if is_in_a_directory(&copy) && is_gone(Path::new(&copy.place)) => {
                    sums.missing += 1;
                }
                None => {}
            }
        }
        let bytes = file.bytes.unwrap_or_default();
        let source = file.source.as_deref();
        if let Some(place) = source.and_then(|source| self.of_harvested(source, bytes)) {
            add(MovedThing::Source, place);
        }
        for before in manifest.skipped(&file.name)? {
            if let Some(place) = self.of_harvested(&before, bytes) {
                add(MovedThing::Skipped(before), place);
            }
        }
        Ok(())
    }

    /// Publishes a generation with the places of now, where that changes anything; returns how many lines changed.
    fn mend_index(
        &self,
        index: &IndexDirectory,
        manifest: &Manifest,
        is_dry: bool,
    ) -> Result<u64, Trouble> {
        let Some(lock) = index.try_lock()? else {
            let root = index.root().display();
            return Err(Trouble::new(
                Exit::Deferred,
                format!("another is at work on {root}"),
            ));
        };
        let Some(last) = index.settle(&lock)? else {
            return Ok(0);
        };
        let list = index.generation(last.number).join(PATHS);
        // What a person put there may have no such list.
        if last.described.is_none() && is_gone(&list) {
            return Ok(0);
        }
        let (changed, _) = self.copy_list(&list, manifest, &mut io::sink())?;
        if changed > 0 && !is_dry {
            index.replace(&lock, &last, PATHS, |out| -> Result<u64, Trouble> {
                self.copy_list(&list, manifest, out).map(|(_, lines)| lines)
            })?;
        }
        Ok(changed)
    }

    /// Copies a PATH list with the places of now; returns how many lines changed, and how many there are.
    fn copy_list(
        &self,
        list: &Path,
        manifest: &Manifest,
        out: &mut dyn Write,
    ) -> Result<(u64, u64), Trouble> {
        let bad = |error: &dyn std::fmt::Display| {
            Trouble::new(Exit::Machine, format!("{}: {error}", list.display()))
        };
        let source = LineSource::open(list).map_err(|error| bad(&error))?;
        let mut lines = Lines::new(source, MAX_LINE_BYTES);
        let (mut changed, mut count) = (0, 0);
        let mut file = String::new();
        let mut places: Vec<String> = Vec::new();
        loop {
            let line = lines.next_line().map_err(|error| bad(&error))?;
            let line = line.map(|line| parse(line.bytes).map_err(|fault| bad(&fault)));
            let line = line.transpose()?;
            if let Some(PathLine { filename, location }) = line
                && filename == file
            {
                places.push(location.to_owned());
                continue;
            }
            changed += self.settle_places(&file, &mut places, manifest)?;
            count += places.len() as u64;
            let mut text = Vec::new();
            for location in &places {
                let line = PathLine {
                    filename: &file,
                    location,
                };
                write(line, &mut text).map_err(|fault| bad(&fault))?;
            }
            out.write_all(&text)?;
            let Some(PathLine { filename, location }) = line else {
                return Ok((changed, count));
            };
            file = filename.to_owned();
            places = vec![location.to_owned()];
        }
    }

    /// Puts the places of now in the place of those of before, in order; returns how many changed. A list never has fewer
    /// lines than before: a place of before whose file is named already stays.
    fn settle_places(
        &self,
        file: &str,
        places: &mut [String],
        manifest: &Manifest,
    ) -> Result<u64, Trouble> {
        let mut changed = 0;
        let stored = self.of_stored(manifest, file)?;
        for at in 0..places.len() {
            let is_meant = |place: &&String| !places.contains(*place);
            let place = stored.iter().find(is_meant).cloned();
            if let Some(place) = place
                && let Some(slot) = places
                    .get_mut(at)
                    .filter(|slot| is_elsewhere(slot, &stored))
            {
                *slot = place;
                changed += 1;
            }
        }
        places.sort_unstable();
        Ok(changed)
    }
}

/// Returns the big index and those of collections.
fn indexes(context: &DriverContext) -> Result<Vec<IndexDirectory>, Trouble> {
    let root = std::path::absolute(&context.root)?.join(&context.pipeline.archive.index);
    let mut indexes = Vec::new();
    if !root.is_dir() {
        return Ok(indexes);
    }
    indexes.extend(IndexDirectory::of(&root, None));
    for entry in std::fs::read_dir(&root)? {
        let name = entry?.file_name();
        indexes.extend(
            name.to_str()
                .and_then(|name| IndexDirectory::of(&root, Some(name)).ok()),
        );
    }
    indexes.retain(|index| index.root().join("generations").is_dir());
    Ok(indexes)
}

/// Parcels behind transfer name the old places of their one file: it is given to index again from where it is now.
fn give_again(
    context: &DriverContext,
    now: &PlacesNow,
    manifest: &Manifest,
    is_dry: bool,
    sums: &mut Sums,
) -> Result<(), Trouble> {
    let index = context.stages()?;
    let index = index
        .iter()
        .find(|stage| ecluse_config::base_of(stage) == Index::NAME);
    for stage in context.stages()? {
        let mut places = Vec::new();
        context.engine.each_place(&stage, &mut |place| {
            if matches!(place.state, ParcelState::Ready | ParcelState::Deferred) {
                places.push(place);
            }
        })?;
        for place in places {
            let Ok(parcel) = context.engine.manifest(&place) else {
                continue;
            };
            let Some(list) = parcel
                .files
                .iter()
                .find(|file| file.name.ends_with(".path"))
            else {
                continue;
            };
            let text = std::fs::read_to_string(context.engine.look_at(&place)?.join(&list.name))?;
            if !text.lines().any(|line| {
                let place = line.split('\t').nth(1).unwrap_or_default();
                Path::new(place).is_absolute() && is_gone(Path::new(place))
            }) {
                continue;
            }
            let name = ecluse_holding::archive_file_of(&list.name);
            let is_day = parcel
                .files
                .iter()
                .any(|file| file.name.ends_with(".files"));
            let file = manifest.file(name)?.filter(|_| !is_day);
            let copies = manifest.copies(name)?;
            let stored = copies.iter().find(|copy| copy.kind == CopyKind::Stored);
            let stored = stored.map(|copy| now.of_copy(copy).unwrap_or(copy.place.clone().into()));
            let (Some(file), Some(stored), Some(index)) = (file, stored, index) else {
                sums.days += 1;
                continue;
            };
            sums.given += 1;
            if is_dry {
                continue;
            }
            let gift = Gift {
                kind: file.kind.unwrap_or_default(),
                harvest: file.harvest,
                job: file.job,
                collection: file.collection,
                again: true,
            };
            // First the new one: killed in between, the old one waits and is met again.
            context.engine.give(index, &stored, &gift)?;
            let why = "it names places of before the archive was moved; given to index again";
            context.engine.discard(&place, why, &audit::who())?;
        }
    }
    Ok(())
}

impl From<IndexError> for Trouble {
    fn from(error: IndexError) -> Self {
        let exit = match error {
            IndexError::Overtaken { .. } => Exit::Deferred,
            _ => Exit::Machine,
        };
        Self::new(exit, error)
    }
}
