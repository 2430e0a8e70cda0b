//! What must be proven before a harvested file may go.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use ecluse_holding::{Going, is_same_file, open_plain, read_afresh};
use ecluse_manifest::{CopyKind, CopyRow, FileRow};

use crate::Source;

/// The PATH file of a generation.
const PATHS: &str = "path-index.txt";

/// Which of the files in question the current indexes name.
#[derive(Debug, Default)]
pub(crate) struct Published {
    names: HashMap<Option<String>, HashSet<String>>,
}

impl Published {
    /// Reads the PATH file of each index in question once, keeping only the names asked for.
    pub(crate) fn read(index: &Path, rows: &[FileRow]) -> io::Result<Self> {
        let mut wanted: HashMap<Option<String>, HashSet<&str>> = HashMap::new();
        for row in rows {
            let names = wanted.entry(row.collection.clone()).or_default();
            names.insert(&row.name);
        }
        let mut published = Self::default();
        for (collection, names) in wanted {
            let directory = match &collection {
                Some(collection) => index.join(collection),
                None => index.to_owned(),
            };
            let path = directory.join("current").join(PATHS);
            let found = match File::open(&path) {
                Ok(file) => named(file, &names)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => HashSet::new(),
                Err(error) => return Err(error),
            };
            published.names.insert(collection, found);
        }
        Ok(published)
    }

    fn has(&self, row: &FileRow) -> bool {
        let names = self.names.get(&row.collection);
        names.is_some_and(|names| names.contains(&row.name))
    }
}

fn named(file: File, wanted: &HashSet<&str>) -> io::Result<HashSet<String>> {
    let mut found = HashSet::new();
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 {
            return Ok(found);
        }
        let name = line.split(|byte| *byte == b'\t').next().unwrap_or_default();
        if let Ok(name) = std::str::from_utf8(name)
            && wanted.contains(name)
        {
            found.insert(name.to_owned());
        }
    }
}

/// Tells whether the place of a copy is a path.
fn is_in_a_file(copy: &CopyRow) -> bool {
    copy.kind == CopyKind::Stored || Path::new(&copy.place).is_absolute()
}

/// Returns what is not proven of a file, if anything. What costs a read comes last.
pub(crate) fn missing_proof(
    row: &FileRow,
    copies: &[CopyRow],
    published: &Published,
    backups: usize,
    sources: &[Source],
    going: Going<'_>,
) -> Option<String> {
    let Some(sha256) = &row.sha256 else {
        return Some("no digest was taken at ingest".into());
    };
    if row.deleted.is_none() {
        return Some("its working copy was not deleted".into());
    }
    if !published.has(row) {
        return Some("it is not in the current index".into());
    }
    let agrees = |copy: &&CopyRow| copy.sha256 == *sha256 && Some(copy.bytes) == row.bytes;
    let proved = copies
        .iter()
        .filter(|copy| copy.kind == CopyKind::Backup)
        .filter(agrees)
        // It may have been found bad, and removals released since.
        .filter(|copy| !copy.is_bad())
        .count();
    if proved < backups {
        return Some(format!("{proved} backups are proved, {backups} are needed"));
    }
    let mut stored = copies.iter().filter(|copy| copy.kind == CopyKind::Stored);
    let Some(stored) = stored.find(agrees) else {
        return Some("no stored copy has the digest taken at ingest".into());
    };
    // A location or a backup in a harvested directory: what would be removed is the copy itself.
    let sources = sources.iter().map(|source| source.path.as_path());
    for source in sources.clone() {
        let mut files = copies.iter().filter(|copy| is_in_a_file(copy));
        let same = |copy: &&CopyRow| is_same_file(source, Path::new(&copy.place)).unwrap_or(false);
        if let Some(copy) = files.find(same) {
            return Some(format!(
                "{} is the copy in {} itself",
                source.display(),
                copy.target
            ));
        }
    }
    let places = std::iter::once(Path::new(&stored.place)).chain(sources);
    for place in places {
        let read = open_plain(place)
            .map_err(Into::into)
            .and_then(|mut file| read_afresh(&mut file, going));
        match read {
            Ok(fixity) if fixity.sha256 == *sha256 => {}
            Ok(fixity) => {
                return Some(format!(
                    "{}: sha256 is {}, at ingest it was {sha256}",
                    place.display(),
                    fixity.sha256
                ));
            }
            Err(error) => return Some(format!("{}: {error}", place.display())),
        }
    }
    None
}
