//! The directory of harvest definitions: what is there, what is wrong with it, and what is due.

use std::path::{Path, PathBuf};

use ecluse_config::Problem;
use ecluse_stage::HarvestCollection;
use jiff::Timestamp;

use crate::definition::{DefinitionContext, Harvest, read_harvest, read_small};
use crate::traps::TrapFile;

/// A definition in the directory.
pub struct HarvestFile {
    /// Its name.
    pub name: String,
    /// What it says, or what is wrong with it, a line each.
    pub harvest: Result<Harvest, Vec<String>>,
}

/// A start may be so long ago when a definition is first seen: somebody has just put it there.
const GRACE: jiff::SignedDuration = jiff::SignedDuration::from_hours(1);
/// So many definitions are read.
const DEFINITIONS: usize = 10_000;

/// Reads every definition of a directory, in order of their names.
///
/// # Errors
/// When the directory cannot be read; one that is not there is empty.
pub fn read_harvests(
    directory: &Path,
    contact: &str,
    traps: &TrapFile,
) -> Result<Vec<HarvestFile>, String> {
    let mut files = Vec::new();
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", directory.display());
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(files),
        Err(error) => return Err(failed(error)),
    };
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let is_hidden = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if path.extension().is_some_and(|end| end == "toml") && !is_hidden {
            paths.push(path);
        }
    }
    paths.sort();
    if paths.len() > DEFINITIONS {
        return Err(format!(
            "{} has {} definitions, {DEFINITIONS} at most",
            directory.display(),
            paths.len()
        ));
    }
    for path in paths {
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let harvest = read_file(&path, &name, contact, traps);
        files.push(HarvestFile { name, harvest });
    }
    Ok(files)
}

/// Reads one definition.
///
/// # Errors
/// What is wrong with it, a line each.
pub fn read_file(
    path: &Path,
    name: &str,
    contact: &str,
    traps: &TrapFile,
) -> Result<Harvest, Vec<String>> {
    let text = read_small(path)
        .map_err(|error| vec![format!("cannot read {}: {error}", path.display())])?;
    let context = DefinitionContext {
        directory: path.parent().unwrap_or(Path::new(".")),
        contact,
        traps,
    };
    read_harvest(name, &text, &context)
        .map_err(|problems| problems.iter().map(Problem::to_string).collect())
}

/// Says that a harvest nobody has seen before begins in the past; `since` is when it was first seen.
pub fn begins_in_the_past(
    harvest: &Harvest,
    since: Option<Timestamp>,
    now: Timestamp,
) -> Option<String> {
    let from = harvest.schedule.from;
    let is_past = since.is_none() && from < now.checked_sub(GRACE).unwrap_or(now);
    is_past.then(|| {
        format!("'from' is in the past ({from}): nobody would notice what is not harvested; set it to when it shall begin")
    })
}

/// Says that the index of a harvest is not the one that ingest chooses by its name.
pub fn index_fault(harvest: &Harvest, collections: &[HarvestCollection]) -> Option<String> {
    let goes_to = collections.iter().find(|collection| {
        regex::Regex::new(&format!("^(?:{})$", collection.harvests))
            .is_ok_and(|harvests| harvests.is_match(&harvest.name))
    });
    let goes_to = goes_to.map_or("", |collection| collection.name.as_str());
    let wanted = harvest.definition.index.as_str();
    let shown = |name: &str| match name {
        "" => "the main index".to_owned(),
        name => format!("index {name}"),
    };
    (goes_to != wanted).then(|| {
        format!(
            "'index' says {}, and 'stage.ingest.collections' of pipeline.toml gives harvest {} to {}",
            shown(wanted),
            harvest.name,
            shown(goes_to)
        )
    })
}
