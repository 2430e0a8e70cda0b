//! Files on no stage: the manifest has them as not yet in the index, and no parcel carries them. Somebody removed a work
//! directory by hand.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use ecluse_bigmerge::Bigmerge;
use ecluse_holding::archive_file_of;
use ecluse_manifest::{FileState, Manifest, ManifestError, UnfinishedFile};
use ecluse_spool::{ParcelId, ParcelPlace};
use ecluse_stage::Stage;

use crate::context::{DriverContext, Trouble};

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
            self.tree.each_place(&stage, &mut |place| {
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
            self.tree
                .each_place(&stage, &mut |place| places.push(place))?;
            for place in places {
                // One that cannot be read shows elsewhere, and one that has just moved on is met again.
                let Ok(parcel) = self.tree.manifest(&place) else {
                    continue;
                };
                for file in &parcel.files {
                    missing.remove(archive_file_of(&file.name));
                    if file.name.ends_with(".files") {
                        let list = std::fs::read_to_string(place.path.join(&file.name));
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
    let copies = manifest.copies(name)?;
    let source = manifest.file(name)?.and_then(|row| row.source);
    let mut places = copies.into_iter().map(|copy| copy.place).chain(source);
    let is_it = |place: &String| {
        let place = Path::new(place);
        place.is_absolute() && place.is_file() && place.file_name() == Some(OsStr::new(name))
    };
    Ok(places.find(is_it).map(PathBuf::from))
}
