//! What must be proven before a harvested file may go.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use ecluse_cdx::{LineSource, Lines, MAX_LINE_BYTES, ReadError, cdxj, path};
use ecluse_generation::{FLAT, IndexDirectory, IndexError, PATHS};
use ecluse_holding::{Going, is_same_file, open_plain, read_afresh};
use ecluse_manifest::{CopyKind, CopyRow, FileRow};
use ecluse_stage::Failure;

use crate::Candidate;

/// What the current indexes hold of the files in question.
#[derive(Debug, Default)]
pub(crate) struct Published(HashMap<Option<String>, HashMap<String, FoundLines>>);

/// What an index holds of a file.
#[derive(Debug, Default, Clone, Copy)]
struct FoundLines {
    paths: u64,
    captures: u64,
}

impl Published {
    /// Reads the lists of each index in question once, counting the lines of the files asked for.
    ///
    /// # Errors
    /// Halts when an index is not whole or cannot be read.
    pub(crate) fn read<'a>(
        index: &Path,
        rows: impl Iterator<Item = &'a FileRow>,
        going: Going<'_>,
    ) -> Result<Self, Failure> {
        let mut published = Self::default();
        for row in rows {
            let files = published.0.entry(row.collection.clone()).or_default();
            files.insert(row.name.clone(), FoundLines::default());
        }
        for (collection, files) in &mut published.0 {
            let directory = match IndexDirectory::of(index, collection.as_deref()) {
                Ok(directory) => directory,
                Err(IndexError::BadCollection(_)) => continue,
                Err(error) => return Err(Failure::halt(error)),
            };
            let Some(number) = directory.current_number().map_err(Failure::halt)? else {
                continue;
            };
            // Lines that were lost cannot be counted, but this says that they were, and what to do.
            directory.whole(number).map_err(Failure::halt)?;
            let generation = directory.generation(number);
            count(&generation.join(PATHS), files, going, |line| {
                let name = path::parse(line).ok()?.filename;
                Some((name.into(), |found| found.paths += 1))
            })?;
            if files.values().any(|found| found.paths > 0) {
                count(&generation.join(FLAT), files, going, |line| {
                    let name = cdxj::filename_of(line)?;
                    Some((name, |found| found.captures += 1))
                })?;
            }
        }
        Ok(published)
    }

    /// Returns what is missing of a file in the current index, if anything.
    pub(crate) fn missing(&self, row: &FileRow) -> Option<String> {
        let files = self.0.get(&row.collection);
        let found = files.and_then(|files| files.get(&row.name));
        let found = found.copied().unwrap_or_default();
        if found.paths == 0 {
            return Some("it is not in the current index".into());
        }
        match row.captures {
            None => Some("it is not known how many index lines it has".into()),
            Some(lines) if found.captures < lines => Some(format!(
                "{} of its {lines} lines are in the current index",
                found.captures
            )),
            Some(_) => None,
        }
    }
}

/// Tells whose line this is, and how it counts.
type Counted<'a> = (std::borrow::Cow<'a, str>, fn(&mut FoundLines));

/// Counts the lines of a list that belong to these files.
fn count(
    list: &Path,
    files: &mut HashMap<String, FoundLines>,
    going: Going<'_>,
    counted: impl Fn(&[u8]) -> Option<Counted<'_>>,
) -> Result<(), Failure> {
    let source = match LineSource::open(list) {
        Ok(source) => source,
        // An index put there by hand may have no PATH lines.
        Err(ReadError::Open { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(());
        }
        Err(error) => return Err(Failure::halt(error)),
    };
    let mut lines = Lines::new(source, MAX_LINE_BYTES);
    while let Some(line) = lines.next_line().map_err(Failure::halt)? {
        if line.number % 4096 == 0 && !going() {
            return Err(Failure::give_back());
        }
        if let Some((name, add)) = counted(line.bytes)
            && let Some(found) = files.get_mut(&*name)
        {
            add(found);
        }
    }
    Ok(())
}

/// Returns what the manifest does not prove of a file, if anything.
pub(crate) fn not_recorded(candidate: &Candidate, backups: usize) -> Option<String> {
    let row = &candidate.row;
    let Some(sha256) = &row.sha256 else {
        return Some("no digest was taken at ingest".into());
    };
    if row.deleted.is_none() {
        return Some("its working copy was not deleted".into());
    }
    let proved = candidate.copies.iter().filter(|copy| {
        // It may have been found bad, and removals released since.
        copy.kind == CopyKind::Backup && agrees(copy, row, sha256) && !copy.is_bad()
    });
    let proved = proved.count();
    if proved < backups {
        return Some(format!("proved backups: {proved} of {backups} needed"));
    }
    if stored_copy(candidate, sha256).is_none() {
        return Some("no stored copy has the digest taken at ingest".into());
    }
    None
}

/// Why a harvested file may not go.
pub(crate) enum Unproven {
    /// Something of the archive is missing.
    Archive(String),
    /// This harvested file is not what was taken in under its name: it grew, or another took its place.
    Original(PathBuf, String),
}

impl Unproven {
    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::Archive(reason) | Self::Original(_, reason) => reason,
        }
    }
}

/// Returns what a fresh read of the stored copy and of the harvested files does not prove, if anything.
pub(crate) fn not_read(candidate: &Candidate, going: Going<'_>) -> Option<Unproven> {
    let sha256 = candidate.row.sha256.as_deref()?;
    let stored = stored_copy(candidate, sha256)?;
    let originals = candidate.originals.iter().map(|file| file.path.as_path());
    // A location or a backup in a harvested directory: what would be removed is the copy itself.
    for original in originals.clone() {
        let mut files = candidate.copies.iter().filter(|copy| is_in_a_file(copy));
        let same =
            |copy: &&CopyRow| is_same_file(original, Path::new(&copy.place)).unwrap_or(false);
        if let Some(copy) = files.find(same) {
            return Some(Unproven::Archive(format!(
                "{} is the copy in {} itself",
                original.display(),
                copy.target
            )));
        }
    }
    let stored = Path::new(&stored.place);
    for place in std::iter::once(stored).chain(originals) {
        let read = open_plain(place)
            .map_err(Into::into)
            .and_then(|mut file| read_afresh(&mut file, going));
        match read {
            Ok(fixity) if fixity.sha256 == sha256 => {}
            Ok(fixity) if place != stored => {
                return Some(Unproven::Original(
                    place.to_owned(),
                    format!(
                        "it is not the file that was taken in under its name: sha256 is {} ({} bytes), at ingest it was {sha256}",
                        fixity.sha256, fixity.bytes
                    ),
                ));
            }
            Ok(fixity) => {
                return Some(Unproven::Archive(format!(
                    "{}: sha256 is {}, at ingest it was {sha256}",
                    place.display(),
                    fixity.sha256
                )));
            }
            Err(error) => {
                return Some(Unproven::Archive(format!("{}: {error}", place.display())));
            }
        }
    }
    None
}

fn stored_copy<'a>(candidate: &'a Candidate, sha256: &str) -> Option<&'a CopyRow> {
    let mut copies = candidate.copies.iter();
    copies.find(|copy| copy.kind == CopyKind::Stored && agrees(copy, &candidate.row, sha256))
}

fn agrees(copy: &CopyRow, row: &FileRow, sha256: &str) -> bool {
    copy.sha256 == sha256 && Some(copy.bytes) == row.bytes
}

/// Tells whether the place of a copy is a path.
fn is_in_a_file(copy: &CopyRow) -> bool {
    copy.kind == CopyKind::Stored || Path::new(&copy.place).is_absolute()
}
