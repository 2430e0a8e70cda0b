//! The archive as its readers see it: the current generation of each index, and where the files lie.
//!
//! A generation is opened once and shared. Before each question the link `current` is read, which costs a microsecond: so a new
//! generation is taken over with the first question after it, and questions begun on the old one end on it. A generation that
//! cannot be opened does not take the place of one that can be read.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use ecluse_cdx::{KeyRange, Lookup, LookupError};
use ecluse_generation::{FLAT, IndexDirectory, IndexError, PATHS, SUMMARY};

use crate::link_policy::split_policy;

/// One generation of one index, open to be read.
pub struct OpenGeneration {
    /// The number of the generation.
    pub number: u64,
    /// The index lines.
    pub lines: Lookup,
    /// Where the files are; none where the generation has no such list.
    pub paths: Option<Lookup>,
    identity: (u64, u64),
    /// Its files as they were when it was opened.
    files: Vec<GenerationFile>,
}

/// A file of a generation: where it is, how long it is, and which one it is.
struct GenerationFile {
    path: PathBuf,
    bytes: u64,
    inode: u64,
}

/// Why the archive cannot be asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// There is no such collection.
    #[error("no collection {0:?}")]
    NoCollection(String),
    /// There is no index yet, or it is lost.
    #[error("no index in {}", .0.display())]
    NoIndex(PathBuf),
    /// The directory of the index cannot be read.
    #[error(transparent)]
    Directory(#[from] IndexError),
    /// The index cannot be read.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// A file of the index is not what it was when it was opened.
    #[error("{}: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// There is a newer generation, and it cannot be opened.
    #[error("generation {newer} cannot be opened, {served} is served")]
    Stale {
        /// The one that is current.
        newer: u64,
        /// The one that is served.
        served: u64,
    },
}

/// The indexes of an archive.
pub struct ReadingArchive {
    index: PathBuf,
    main: String,
    open: RwLock<HashMap<String, Arc<OpenGeneration>>>,
}

impl ReadingArchive {
    /// Returns the archive whose indexes lie in a directory; `main` is what the index that is no collection's is called.
    pub fn new(index: &Path, main: &str) -> Self {
        Self {
            index: index.to_owned(),
            main: main.to_owned(),
            open: RwLock::default(),
        }
    }

    /// Returns what the main index is called.
    pub fn main(&self) -> &str {
        &self.main
    }

    /// Names the indexes there are: the main one, then the collections with an index of their own.
    pub fn collections(&self) -> Vec<String> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.index).into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let directory = IndexDirectory::of(&self.index, Some(&name));
            if directory.is_ok_and(|own| own.current_number().is_ok_and(|n| n.is_some())) {
                names.push(name);
            }
        }
        names.sort();
        names.retain(|name| *name != self.main);
        names.insert(0, self.main.clone());
        names
    }

    /// Returns the current generation of an index; what a reader chose may stand behind its name.
    ///
    /// # Errors
    /// When there is no such index, or none that can be read.
    pub fn current(&self, collection: &str) -> Result<Arc<OpenGeneration>, ArchiveError> {
        let (collection, _) = split_policy(collection);
        let own = (collection != self.main).then_some(collection);
        let directory = IndexDirectory::of(&self.index, own)
            .map_err(|_| ArchiveError::NoCollection(collection.to_owned()))?;
        let known = {
            let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
            open.get(collection).cloned()
        };
        match self.opened(&directory, known.as_deref()) {
            Ok(Some(newer)) => {
                let newer = Arc::new(newer);
                let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
                open.insert(collection.to_owned(), Arc::clone(&newer));
                tracing::info!(collection, generation = newer.number, "generation opened");
                Ok(newer)
            }
            Ok(None) => known.ok_or_else(|| match own {
                Some(name) if !directory.root().is_dir() => {
                    ArchiveError::NoCollection(name.to_owned())
                }
                _ => ArchiveError::NoIndex(directory.root().to_owned()),
            }),
            // What is open can still be asked.
            Err(error) => match known {
                Some(known) => {
                    tracing::warn!(collection, %error, "generation cannot be opened");
                    Ok(known)
                }
                None => Err(error),
            },
        }
    }

    /// Looks whether the current generation of an index is there and as long as it was; returns its number.
    ///
    /// A few calls a file, nothing is searched: it may be asked every second.
    ///
    /// # Errors
    /// What is wrong, with the file.
    pub fn check(&self, collection: &str) -> Result<u64, ArchiveError> {
        let mut generation = self.current(collection)?;
        if generation.is_replaced() {
            // Put back from a copy, perhaps; what is open is the file that was taken away.
            let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
            open.remove(collection);
            drop(open);
            generation = self.current(collection)?;
        }
        let own = (collection != self.main).then_some(collection);
        let directory = IndexDirectory::of(&self.index, own)
            .map_err(|_| ArchiveError::NoCollection(collection.to_owned()))?;
        match directory.current_number()? {
            None => return Err(ArchiveError::NoIndex(directory.root().to_owned())),
            Some(newer) if newer != generation.number => {
                let served = generation.number;
                return Err(ArchiveError::Stale { newer, served });
            }
            Some(_) => {}
        }
        generation.check()?;
        Ok(generation.number)
    }

    /// Opens the current generation, unless it is the one that is known already or there is none.
    fn opened(
        &self,
        directory: &IndexDirectory,
        known: Option<&OpenGeneration>,
    ) -> Result<Option<OpenGeneration>, ArchiveError> {
        let mut tried = None;
        loop {
            let Some(number) = directory.current_number()? else {
                return Ok(None);
            };
            let path = directory.generation(number);
            let identity = fs::metadata(&path).map_or((0, 0), |found| (found.dev(), found.ino()));
            if known.is_some_and(|known| (known.number, known.identity) == (number, identity)) {
                return Ok(None);
            }
            match OpenGeneration::open(&path, number, identity) {
                Ok(generation) => return Ok(Some(generation)),
                // It may have been retired between the two looks; then the link says something else by now.
                Err(error) if tried == Some(number) => return Err(error),
                Err(_) => tried = Some(number),
            }
        }
    }
}

/// Lists the files of a generation.
fn files_of(path: &Path) -> Vec<GenerationFile> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| {
        let found = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        Some(GenerationFile {
            path: entry.path(),
            bytes: found.len(),
            inode: found.ino(),
        })
    });
    files.collect()
}

impl OpenGeneration {
    fn open(path: &Path, number: u64, identity: (u64, u64)) -> Result<Self, ArchiveError> {
        let lists = [FLAT, SUMMARY].map(|name| path.join(name));
        // A pipe in its place would hold its reader for ever.
        let list = lists.into_iter().find(|list| list.is_file());
        let list = list.ok_or_else(|| ArchiveError::NoIndex(path.to_owned()))?;
        let paths = path.join(PATHS);
        let paths = match paths.is_file() {
            true => Some(Lookup::open(&paths)?),
            false => None,
        };
        Ok(Self {
            number,
            lines: Lookup::open(&list)?,
            paths,
            identity,
            files: files_of(path),
        })
    }

    /// Says whether another file stands in the place of one that is open.
    fn is_replaced(&self) -> bool {
        self.files.iter().any(|file| {
            fs::metadata(&file.path).is_ok_and(|found| found.is_file() && found.ino() != file.inode)
        })
    }

    /// Looks whether its files are there, as long as they were, and can be read.
    fn check(&self) -> Result<(), ArchiveError> {
        for GenerationFile { path, bytes, .. } in &self.files {
            let damaged = |reason: String| ArchiveError::Damaged {
                path: path.clone(),
                reason,
            };
            let told = |error: std::io::Error| match error.kind() {
                std::io::ErrorKind::NotFound => damaged("is missing".to_owned()),
                _ => damaged(format!("cannot be read: {error}")),
            };
            let found = fs::metadata(path).map_err(told)?;
            if !found.is_file() {
                return Err(damaged("is no file".to_owned()));
            }
            if found.len() < *bytes {
                return Err(damaged(format!("has {} of {bytes} bytes", found.len())));
            }
            let file = fs::File::open(path).map_err(told)?;
            if let Some(last) = bytes.checked_sub(1) {
                file.read_exact_at(&mut [0], last).map_err(told)?;
            }
        }
        Ok(())
    }

    /// Returns where the copies of a file are, in the order of the list.
    ///
    /// # Errors
    /// When the list cannot be read.
    pub fn places(&self, filename: &str) -> Result<Vec<String>, LookupError> {
        let Some(paths) = &self.paths else {
            return Ok(Vec::new());
        };
        let mut start = filename.as_bytes().to_vec();
        start.push(b'\t');
        let mut found = paths.range(KeyRange::starting_with(&start))?;
        let mut places = Vec::new();
        while let Some(line) = found.next_line()? {
            if let Ok(line) = ecluse_cdx::path::parse(line) {
                places.push(line.location.to_owned());
            }
        }
        Ok(places)
    }
}
