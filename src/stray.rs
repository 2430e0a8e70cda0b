//! Files on no stage: the manifest has them as not yet in the index, and no parcel carries them. Somebody removed a work
//! directory by hand. And where a file can be read, wherever it is.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use ecluse_bigmerge::Bigmerge;
use ecluse_holding::{ReadFault, archive_file_of, open_plain, read_afresh};
use ecluse_manifest::{FileRow, FileState, Manifest, ManifestError, UnfinishedFile};
use ecluse_spool::{ParcelId, ParcelPlace};
use ecluse_stage::{Exit, Stage};

use crate::context::{DriverContext, Trouble};
use crate::packages;

/// So many unfinished files are looked for; with more of them on their way the rest has its turn later.
const LOOKED_FOR: usize = 100_000;

impl DriverContext {
    /// Returns the names of files that are not in the index and that no parcel carries.
    pub(crate) fn stray_files(&self, manifest: &Manifest) -> Result<BTreeSet<String>, Trouble> {
        let stages = self.pipeline.stage_names();
        // Without an index nothing is ever finished.
        if !stages.iter().any(|stage| is_bigmerge(stage)) {
            return Ok(BTreeSet::new());
        }
        let files = manifest.unfinished(LOOKED_FOR)?;
        let mut missing: BTreeSet<String> = files.iter().map(|file| file.name.clone()).collect();
        self.take_out_by_name(&files, &mut missing)?;
        if !missing.is_empty() {
            self.take_out_by_content(&mut missing)?;
        }
        // It may have been finished meanwhile.
        let mut stray = BTreeSet::new();
        for name in missing {
            let row = manifest.file(&name)?;
            if row.is_some_and(|row| row.state < FileState::Published) {
                stray.insert(name);
            }
        }
        Ok(stray)
    }

    /// Takes out what a parcel is named after. Stages are looked at in the order in which parcels pass them, so that none
    /// that moves on meanwhile is missed.
    fn take_out_by_name(
        &self,
        files: &[UnfinishedFile],
        missing: &mut BTreeSet<String>,
    ) -> Result<(), Trouble> {
        let mut names: HashMap<String, &str> = HashMap::new();
        for file in files {
            names.extend(file.parcel.clone().map(|id| (id, file.name.as_str())));
            let given = (file.sha256.as_ref())
                .map(|sha256| ParcelId::for_file(OsStr::new(&file.name), sha256));
            names.extend(given.map(|id| (id.as_str().to_owned(), file.name.as_str())));
        }
        for stage in self.stages()? {
            if missing.is_empty() {
                break;
            }
            self.engine.each_place(&stage, &mut |place| {
                if let Some(name) = names.get(first_round(place.parcel.as_str())) {
                    missing.remove(*name);
                }
            })?;
        }
        Ok(())
    }

    /// Takes out what a parcel says that it holds: a day's lists, or a file under another name.
    fn take_out_by_content(&self, missing: &mut BTreeSet<String>) -> Result<(), Trouble> {
        for stage in self.stages()? {
            let mut places: Vec<ParcelPlace> = Vec::new();
            self.engine
                .each_place(&stage, &mut |place| places.push(place))?;
            for place in places {
                // One that cannot be read shows elsewhere, and one that has just moved on is met again.
                let Ok(parcel) = self.engine.manifest(&place) else {
                    continue;
                };
                for file in &parcel.files {
                    missing.remove(archive_file_of(&file.name));
                    if file.name.ends_with(".files") {
                        let dir = self.engine.look_at(&place)?;
                        let list = std::fs::read_to_string(dir.join(&file.name));
                        for line in list.unwrap_or_default().lines() {
                            missing.remove(line.split('\t').next().unwrap_or(line));
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

fn is_bigmerge(stage: &str) -> bool {
    ecluse_config::base_of(stage) == Bigmerge::NAME
}

/// Returns the name that a parcel had before it was done over: `X` of `X+2`.
fn first_round(parcel: &str) -> &str {
    match parcel.rsplit_once('+') {
        Some((stem, round)) if round.parse::<u32>().is_ok() => stem,
        _ => parcel,
    }
}

/// Returns where a file can be read: a stored copy, a backup, or where it was found.
pub(crate) fn copy_of(manifest: &Manifest, name: &str) -> Result<Option<PathBuf>, ManifestError> {
    Ok(copies_of(manifest, name)?.into_iter().next())
}

/// Returns all the places where a file can be read, in the order in which they are to be tried.
fn copies_of(manifest: &Manifest, name: &str) -> Result<Vec<PathBuf>, ManifestError> {
    let copies = manifest.copies(name)?;
    let source = manifest.file(name)?.and_then(|row| row.source);
    let places = copies.into_iter().map(|copy| copy.place).chain(source);
    let is_it = |place: &PathBuf| {
        place.is_absolute() && place.is_file() && place.file_name() == Some(OsStr::new(name))
    };
    Ok(places.map(PathBuf::from).filter(is_it).collect())
}

impl DriverContext {
    /// Returns the first copy of a file that is still what ingest took, in a package if there is no other; the bad ones before it
    /// are told.
    pub(crate) fn good_copy(&self, manifest: &Manifest, row: &FileRow) -> Result<PathBuf, Trouble> {
        let mut bad = Vec::new();
        let mut paths = copies_of(manifest, &row.name)?;
        for package in manifest.packages_with(&row.name).unwrap_or_default() {
            let package = self.packages().join(package.package);
            paths.extend(packages::files_in(&package).remove(&row.name));
        }
        for path in paths {
            let Some(why) = what_is_wrong(&path, row) else {
                for line in &bad {
                    eprintln!("ecluse: {line}; {} is taken", path.display());
                }
                return Ok(path);
            };
            bad.push(format!("the copy {} {why}", path.display()));
        }
        Err(match bad.is_empty() {
            true => Trouble::new(
                Exit::Machine,
                format!("no copy of {} can be read", row.name),
            ),
            false => Trouble::new(Exit::Held, bad.join("; ")),
        })
    }
}

/// Reads a copy, and says how it differs from what ingest took.
fn what_is_wrong(path: &Path, row: &FileRow) -> Option<String> {
    let read = open_plain(path).map_err(ReadFault::Io);
    let found = match read.and_then(|mut file| read_afresh(&mut file, &|| true)) {
        Ok(found) => found,
        Err(fault) => return Some(format!("cannot be read: {fault}")),
    };
    let is_other = row.sha256.as_ref().is_some_and(|it| *it != found.sha256)
        || row.bytes.is_some_and(|bytes| bytes != found.bytes);
    is_other.then(|| {
        let taken = row.sha256.as_deref().unwrap_or("none");
        let bytes = row.bytes.map_or_else(|| "?".into(), |n| n.to_string());
        format!("has {found}, ingest took sha256 {taken} ({bytes} bytes)")
    })
}
