//! The one file of a parcel that is archived, the small ones beside it, and where it is read from.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ecluse_manifest::PlaceRoot;
use ecluse_spool::{FileEntry, ParcelManifest};
use ecluse_stage::{Failure, Parcel};

use crate::digest::{Fixity, Going, ReadFault, digest_of, open_plain, read_afresh};

/// What the stages put beside a file, named after it. No other list of them exists.
const BESIDE: [&str; 6] = [
    ".cdxj",
    ".cdx",
    ".links.zst",
    ".seen.json",
    ".path",
    ".backup.json",
];
/// A file beside the payload that is larger than this is not ours.
const SMALL_BYTES: u64 = 1 << 20;

/// Returns the archive file that this one is, or is named after.
pub fn archive_file_of(name: &str) -> &str {
    let mut stems = BESIDE.iter().filter_map(|suffix| name.strip_suffix(suffix));
    stems.next().unwrap_or(name)
}

/// Returns the archived file of a parcel: the only one that is not named after another.
///
/// # Errors
/// Holds a parcel with none, or with several.
pub fn payload(manifest: &ParcelManifest) -> Result<&FileEntry, Failure> {
    let is_beside = |name: &str| {
        let stems = BESIDE.iter().filter_map(|suffix| name.strip_suffix(suffix));
        stems.into_iter().any(|stem| manifest.file(stem).is_some())
    };
    let mut files = manifest.files.iter().filter(|file| !is_beside(&file.name));
    match (files.next(), files.next()) {
        (Some(file), None) => Ok(file),
        (None, _) => Err(Failure::hold("the parcel has no archive file")),
        (Some(one), Some(other)) => Err(Failure::hold(format!(
            "the parcel has two archive files, {} and {}",
            one.name, other.name
        ))),
    }
}

impl From<&FileEntry> for Fixity {
    fn from(file: &FileEntry) -> Self {
        Self {
            bytes: file.bytes,
            sha256: file.sha256.clone(),
        }
    }
}

/// Reads a small file of a parcel and checks it; `None` when the parcel has none of that name.
///
/// # Errors
/// Holds the parcel when the file is too large or not the one its manifest names.
pub fn read_small(parcel: &Parcel, name: &str) -> Result<Option<Vec<u8>>, Failure> {
    let Some(entry) = parcel.manifest().file(name) else {
        return Ok(None);
    };
    let mut bytes = Vec::new();
    let mut source = parcel.open(name)?.take(SMALL_BYTES + 1);
    source.read_to_end(&mut bytes)?;
    let found = ecluse_spool::digest(&bytes);
    if found != entry.sha256 {
        return Err(Failure::hold(format!(
            "{name} has sha256 {found}, parcel.json says {}",
            entry.sha256
        )));
    }
    Ok(Some(bytes))
}

/// Returns where `NAME.path` says the stored copies of a parcel's file are, in the archive with these places; empty without
/// one.
///
/// # Errors
/// Holds a parcel whose `NAME.path` is not of this file, or names no path.
pub fn stored_places(
    parcel: &Parcel,
    name: &str,
    places: &PlaceRoot,
) -> Result<Vec<PathBuf>, Failure> {
    let path_name = format!("{name}.path");
    let Some(bytes) = read_small(parcel, &path_name)? else {
        return Ok(Vec::new());
    };
    let text =
        String::from_utf8(bytes).map_err(|_| Failure::hold(format!("{path_name} is not UTF-8")))?;
    let mut stored = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let place = line.split_once('\t').and_then(|(filename, location)| {
            let place = PathBuf::from(&*places.whole(location));
            (filename == name && place.is_absolute()).then_some(place)
        });
        stored.push(place.ok_or_else(|| {
            let number = number + 1;
            Failure::hold(format!("line {number} of {path_name} is no path of {name}"))
        })?);
    }
    Ok(stored)
}

/// Where the bytes of a parcel's file are read from.
pub enum PayloadSource<'a> {
    /// The stored copy.
    Stored(PathBuf),
    /// The working copy in the parcel.
    Working(&'a Parcel, &'a str),
}

impl PayloadSource<'_> {
    /// Opens it.
    ///
    /// # Errors
    /// Holds when the stored copy is missing from a directory that is there, defers when the whole
    /// directory is missing, halts when the disk fails.
    pub fn open(&self) -> Result<Box<dyn Read>, Failure> {
        match self {
            Self::Stored(path) => Ok(Box::new(open_stored(path)?)),
            Self::Working(parcel, name) => Ok(Box::new(parcel.open(name)?)),
        }
    }

    /// Reads it from the disk and compares.
    ///
    /// # Errors
    /// Holds when it differs; else as [`PayloadSource::open`].
    pub fn verify(&self, wanted: &Fixity, going: Going<'_>) -> Result<(), Failure> {
        let (found, named) = match self {
            Self::Stored(path) => {
                let found = read_afresh(&mut open_stored(path)?, going);
                (found, format!("the stored copy {}", path.display()))
            }
            Self::Working(parcel, name) => {
                let found = digest_of(&mut parcel.open(name)?, going);
                (found, format!("the working copy {name}"))
            }
        };
        let found = found.map_err(|fault| match fault {
            ReadFault::Io(error) => Failure::halt(format!("cannot read {named}: {error}")),
            ReadFault::Stopped => Failure::give_back(),
        })?;
        if found == *wanted {
            return Ok(());
        }
        Err(Failure::hold(format!(
            "{named} has {found}, ingest took {wanted}"
        )))
    }
}

fn open_stored(path: &Path) -> Result<File, Failure> {
    open_plain(path).map_err(|error| {
        let reason = format!("cannot open the stored copy {}: {error}", path.display());
        let dir_is_there = path.parent().is_some_and(Path::is_dir);
        match error.kind() {
            // A whole directory that is missing is a disk that is not mounted.
            io::ErrorKind::NotFound if dir_is_there => Failure::hold(reason),
            io::ErrorKind::NotFound => Failure::defer(reason),
            io::ErrorKind::InvalidInput => Failure::hold(reason),
            _ => Failure::halt(reason),
        }
    })
}

#[cfg(test)]
mod tests {
    use ecluse_spool::ParcelId;

    use super::*;

    fn manifest(names: &[&str]) -> ParcelManifest {
        let mut manifest = ParcelManifest::new(ParcelId::new("p").unwrap(), "warc", String::new());
        for name in names {
            manifest.put(FileEntry {
                name: (*name).to_owned(),
                bytes: 0,
                sha256: String::new(),
            });
        }
        manifest
    }

    #[test]
    fn the_archive_file_is_the_one_not_named_after_another() {
        for names in [
            &["a.warc.gz"][..],
            &["a.warc.gz", "a.warc.gz.cdxj", "a.warc.gz.seen.json"],
            &["a.warc.gz", "a.warc.gz.cdx", "a.warc.gz.cdxj"],
            &["a.warc.gz", "a.warc.gz.path", "a.warc.gz.backup.json"],
        ] {
            assert_eq!(payload(&manifest(names)).unwrap().name, "a.warc.gz");
        }
        // A name that ends like one of ours is still a name.
        assert_eq!(payload(&manifest(&["x.path"])).unwrap().name, "x.path");
    }

    #[test]
    fn none_or_two_are_held() {
        assert!(payload(&manifest(&[])).is_err());
        let two = payload(&manifest(&["a.warc.gz", "b.warc.gz.cdxj"])).unwrap_err();
        assert!(two.reason.contains("a.warc.gz"), "{two}");
        assert!(two.reason.contains("b.warc.gz.cdxj"), "{two}");
    }
}
