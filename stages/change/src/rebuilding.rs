//! The changes of an archive made anew, from the index and the stored documents.

use std::path::Path;

use ecluse_access::DocumentReader;
use ecluse_generation::{IndexDirectory, IndexGeneration, SCHEMA};

use crate::building::{BuildError, Building};
use crate::captures::CaptureJoin;
use crate::documents::Documents;
use crate::{MAIN, Settings};

/// What was made anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RebuiltChanges {
    /// The number of the generation.
    pub number: u64,
    /// Its pages.
    pub pages: u64,
    /// The versions that were read.
    pub versions: u64,
}

/// Makes the changes of an index anew; those that were there are put aside as `generations.<aside>`. None where there is no index,
/// or another is at work on the changes.
///
/// # Errors
/// When the index cannot be read, or the changes cannot be written.
pub fn rebuild_changes(
    root: &Path,
    (index, changes): (&Path, &Path),
    collection: Option<&str>,
    settings: &Settings,
    temporary: &Path,
    aside: &str,
) -> Result<Option<RebuiltChanges>, BuildError> {
    let reader = DocumentReader::new(index, MAIN, root, settings.document.0);
    let name = collection.unwrap_or(MAIN);
    let Ok(generation) = reader.archive().current(name) else {
        return Ok(None);
    };
    let directory = IndexDirectory::of(changes, collection)?;
    directory.prepare()?;
    let Some(lock) = directory.try_lock()? else {
        return Ok(None);
    };
    let words = settings.word_list(root).map_err(|source| BuildError::Io {
        step: "read the list of words",
        source,
    })?;
    let documents = Documents {
        reader: &reader,
        collection: name,
        generation: Some(&generation),
        advertisements: &settings.advertisements,
        words: words.as_ref(),
        limit_bytes: settings.document.0,
    };
    let number = directory.put_aside(&lock, aside)?;
    let building_directory = directory.begin(&lock, number)?;
    let building = Building {
        last: None,
        directory: &building_directory,
        temporary,
        sort_bytes: settings.sort_bytes(),
        periods: settings.periods.get() as usize,
        tick: &|| {},
        is_stopped: &|| false,
    };
    let join = CaptureJoin::all(&generation.lines)?;
    let built = building.build(join, settings.following(documents))?;
    let described = IndexGeneration {
        schema: SCHEMA,
        number,
        previous: None,
        lines: built.pages,
        duplicates: 0,
        files: built.files,
        members: Vec::new(),
    };
    let written = described.write(&building_directory);
    written.map_err(|source| BuildError::Io {
        step: "describe the generation",
        source,
    })?;
    directory.publish(&lock, &building_directory, &described, None)?;
    Ok(Some(RebuiltChanges {
        number,
        pages: built.pages,
        versions: built.counts.versions,
    }))
}
