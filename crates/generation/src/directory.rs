//! The directory of one index: its generations, which of them is current, and the lock of whoever adds one.
//!
//! ```text
//! .lock                  held by the one who builds
//! current -> generations/7
//! generations/5/ 6/ 7/   whole, synced, never changed
//! generations/.tmp-8/    being built
//! ```
//!
//! A generation appears by one rename and becomes current by another. One that appeared and did not become current, because its
//! builder died in between, is made current by the next.

#![expect(
    clippy::disallowed_methods,
    reason = "the index is no work directory: its generations are made and retired here alone"
)]

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::generation::{DESCRIPTION, IndexGeneration};

/// The directory of one index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexDirectory {
    root: PathBuf,
}

/// Why something could not be done to a index.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The name cannot be that of a directory beside `current` and `generations`.
    #[error(
        "{0:?} cannot name an index: a collection is made of a-z 0-9 and -, and is neither current nor generations"
    )]
    BadCollection(String),
    /// The file system refused.
    #[error("cannot {step} {}: {source}", path.display())]
    Io {
        /// The step, as a verb.
        step: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody else put a generation of this number there.
    #[error("generation {number} of {} was made by another meanwhile", root.display())]
    Overtaken {
        /// The index.
        root: PathBuf,
        /// The generation.
        number: u64,
    },
    /// `current` is not a link to a generation.
    #[error("{} is not a link to a generation", path.display())]
    NotALink {
        /// The path.
        path: PathBuf,
    },
    /// `generation.json` cannot be read as one.
    #[error("{} is damaged: {reason}", path.display())]
    Damaged {
        /// The path.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

/// Held while a generation is added.
#[derive(Debug)]
pub struct BuilderLock {
    _file: File,
}

/// The directory of all generations.
const GENERATIONS: &str = "generations";
/// What the directory of a generation being built is called, before its number.
const BUILDING: &str = ".tmp-";
/// The link to the generation readers read.
const CURRENT: &str = "current";

impl IndexDirectory {
    /// Returns the index of the main index, or of a collection's own.
    ///
    /// # Errors
    /// When the collection's name cannot be that of a directory.
    pub fn of(index: &Path, collection: Option<&str>) -> Result<Self, IndexError> {
        match collection {
            None => Ok(Self {
                root: index.to_owned(),
            }),
            Some(name) if is_collection(name) => Ok(Self {
                root: index.join(name),
            }),
            Some(name) => Err(IndexError::BadCollection(name.to_owned())),
        }
    }

    /// Returns where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the directory of the current generation, its link followed once: whoever reads two files of it reads them there.
    ///
    /// # Errors
    /// When `current` is something else than a link to a generation.
    pub fn current(&self) -> Result<Option<PathBuf>, IndexError> {
        let number = self.current_number()?;
        Ok(number.map(|number| self.generation(number)))
    }

    /// Returns the directory of a generation.
    pub fn generation(&self, number: u64) -> PathBuf {
        self.root.join(GENERATIONS).join(number.to_string())
    }

    /// Returns the number of the current generation.
    ///
    /// # Errors
    /// As [`IndexDirectory::current`].
    pub fn current_number(&self) -> Result<Option<u64>, IndexError> {
        let path = self.root.join(CURRENT);
        let target = match fs::read_link(&path) {
            Ok(target) => target,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                return Err(IndexError::NotALink { path });
            }
            Err(source) => return Err(failed("read", &path)(source)),
        };
        let number = target.strip_prefix(GENERATIONS).ok().and_then(number_of);
        number.map(Some).ok_or(IndexError::NotALink { path })
    }

    /// Returns the numbers of all generations, ascending.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn numbers(&self) -> Result<Vec<u64>, IndexError> {
        let path = self.root.join(GENERATIONS);
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&path).map_err(failed("read", &path))? {
            let entry = entry.map_err(failed("read", &path))?;
            numbers.extend(number_of(Path::new(&entry.file_name())));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Reads `generation.json`; none where somebody put an index by hand.
    ///
    /// # Errors
    /// When it cannot be read, or says something else.
    pub fn describe(&self, number: u64) -> Result<Option<IndexGeneration>, IndexError> {
        let path = self.generation(number).join(DESCRIPTION);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(failed("read", &path)(source)),
        };
        let damaged = |reason: String| IndexError::Damaged {
            path: path.clone(),
            reason,
        };
        let generation: IndexGeneration =
            serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        if generation.number != number {
            return Err(damaged(format!("it says generation {}", generation.number)));
        }
        Ok(Some(generation))
    }

    /// Makes the directories.
    pub fn prepare(&self) -> Result<(), IndexError> {
        let path = self.root.join(GENERATIONS);
        fs::create_dir_all(&path).map_err(failed("make", &path))?;
        sync(&self.root)?;
        self.root.parent().map_or(Ok(()), sync)
    }

    /// Takes the lock; none while another holds it.
    pub fn try_lock(&self) -> Result<Option<BuilderLock>, IndexError> {
        let path = self.root.join(".lock");
        let mut options = File::options();
        let file = options.create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(failed("open", &path))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(BuilderLock { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(failed("lock", &path)(source)),
        }
    }

    /// Removes what a dead builder left, and makes the last generation current if it is not; returns its number.
    pub fn settle(&self, _lock: &BuilderLock) -> Result<Option<u64>, IndexError> {
        let path = self.root.join(GENERATIONS);
        for entry in fs::read_dir(&path).map_err(failed("read", &path))? {
            let entry = entry.map_err(failed("read", &path))?;
            if entry
                .file_name()
                .as_encoded_bytes()
                .starts_with(BUILDING.as_bytes())
            {
                let path = entry.path();
                fs::remove_dir_all(&path).map_err(failed("remove", &path))?;
            }
        }
        let Some(last) = self.numbers()?.pop() else {
            return Ok(None);
        };
        if self.current_number()? != Some(last) {
            // Its name may be in memory only: a link to it must not outlive it.
            sync(&path)?;
            self.make_current(last)?;
        }
        Ok(Some(last))
    }

    /// Makes the directory a generation is built in.
    pub fn begin(&self, _lock: &BuilderLock, number: u64) -> Result<PathBuf, IndexError> {
        let path = self
            .root
            .join(GENERATIONS)
            .join(format!("{BUILDING}{number}"));
        fs::create_dir(&path).map_err(failed("make", &path))?;
        Ok(path)
    }

    /// Removes what was begun.
    pub fn abandon(&self, _lock: &BuilderLock, building: &Path) -> Result<(), IndexError> {
        fs::remove_dir_all(building).map_err(failed("remove", building))
    }

    /// Shows a generation whose files are synced, and makes it current.
    pub fn publish(
        &self,
        _lock: &BuilderLock,
        building: &Path,
        number: u64,
    ) -> Result<(), IndexError> {
        sync(building)?;
        let path = self.generation(number);
        // A directory that is there and not empty is not replaced: a builder that lost its lock stops here.
        fs::rename(building, &path).map_err(|source| match source.kind() {
            io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists => {
                IndexError::Overtaken {
                    root: self.root.clone(),
                    number,
                }
            }
            _ => failed("show", &path)(source),
        })?;
        sync(&self.root.join(GENERATIONS))?;
        self.make_current(number)
    }

    /// Lets `current` point to a generation that is durable; a reader sees the old one or the new one.
    fn make_current(&self, number: u64) -> Result<(), IndexError> {
        let (link, current) = (self.root.join(".current"), self.root.join(CURRENT));
        match fs::remove_file(&link) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("remove", &link)(error));
            }
            _ => {}
        }
        symlink(format!("{GENERATIONS}/{number}"), &link).map_err(failed("make", &link))?;
        fs::rename(&link, &current).map_err(failed("change", &current))?;
        sync(&self.root)
    }

    /// Removes all but the last generations; the current one always stays.
    pub fn prune(&self, _lock: &BuilderLock, keep: usize) -> Result<Vec<u64>, IndexError> {
        let current = self.current_number()?;
        let mut numbers = self.numbers()?;
        numbers.truncate(numbers.len().saturating_sub(keep));
        numbers.retain(|number| Some(*number) != current);
        for number in &numbers {
            let path = self.generation(*number);
            // Renamed first: half a generation must not look like one.
            let grave = self
                .root
                .join(GENERATIONS)
                .join(format!("{BUILDING}old-{number}"));
            fs::rename(&path, &grave).map_err(failed("retire", &path))?;
            fs::remove_dir_all(&grave).map_err(failed("remove", &grave))?;
        }
        Ok(numbers)
    }
}

fn is_collection(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !name.is_empty()
        && name.len() <= 100
        && name.bytes().all(is_plain)
        && ![CURRENT, GENERATIONS].contains(&name)
}

/// Reads the name of a generation's directory; `7`, not `007`.
fn number_of(name: &Path) -> Option<u64> {
    let text = name.to_str()?;
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

fn failed(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> IndexError {
    move |source| IndexError::Io {
        step,
        path: path.to_owned(),
        source,
    }
}

/// Makes the names in a directory durable.
fn sync(directory: &Path) -> Result<(), IndexError> {
    let directory = if directory == Path::new("") {
        Path::new(".")
    } else {
        directory
    };
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(failed("sync", directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> (tempfile::TempDir, IndexDirectory) {
        let root = tempfile::tempdir().unwrap();
        let index = IndexDirectory::of(&root.path().join("index"), None).unwrap();
        index.prepare().unwrap();
        (root, index)
    }

    fn add(index: &IndexDirectory, number: u64) {
        let lock = index.try_lock().unwrap().unwrap();
        let building = index.begin(&lock, number).unwrap();
        fs::write(building.join("index.cdxj"), number.to_string()).unwrap();
        index.publish(&lock, &building, number).unwrap();
    }

    #[test]
    fn a_collection_names_a_directory_beside_the_others() {
        let at = Path::new("index");
        for name in ["presse", "elections-2027", "a"] {
            let index = IndexDirectory::of(at, Some(name)).unwrap();
            assert_eq!(index.root(), at.join(name));
        }
        let long = "a".repeat(101);
        for name in [
            "",
            "..",
            "a/b",
            "Presse",
            "current",
            "generations",
            "é",
            ".x",
            &long,
        ] {
            assert!(IndexDirectory::of(at, Some(name)).is_err(), "{name}");
        }
    }

    #[test]
    fn a_generation_is_read_under_its_number_and_as_current() {
        let (_root, index) = index();
        assert_eq!(index.current().unwrap(), None);
        for number in [1, 2] {
            add(&index, number);
            let text = fs::read_to_string(index.root().join("current/index.cdxj")).unwrap();
            assert_eq!(text, number.to_string());
            assert_eq!(index.current_number().unwrap(), Some(number));
        }
        assert_eq!(index.numbers().unwrap(), [1, 2]);
    }

    #[test]
    fn what_died_between_the_two_renames_is_finished_and_what_was_begun_is_removed() {
        let (_root, index) = index();
        add(&index, 1);
        add(&index, 2);
        let lock = index.try_lock().unwrap().unwrap();
        index.make_current(1).unwrap();
        let begun = index.begin(&lock, 3).unwrap();
        fs::write(begun.join("index.cdxj"), "half").unwrap();
        symlink("generations/2", index.root().join(".current")).unwrap();
        assert_eq!(index.settle(&lock).unwrap(), Some(2));
        assert_eq!(index.current_number().unwrap(), Some(2));
        assert!(!begun.exists());
    }

    #[test]
    fn the_last_stay_and_the_current_one_whatever_its_number() {
        let (_root, index) = index();
        for number in 1..=5 {
            add(&index, number);
        }
        let lock = index.try_lock().unwrap().unwrap();
        assert_eq!(index.prune(&lock, 3).unwrap(), [1, 2]);
        assert_eq!(index.numbers().unwrap(), [3, 4, 5]);
        index.make_current(3).unwrap();
        assert_eq!(index.prune(&lock, 1).unwrap(), [4]);
        assert_eq!(index.numbers().unwrap(), [3, 5]);
    }

    #[test]
    fn one_at_a_time_and_no_generation_is_replaced() {
        let (_root, index) = index();
        add(&index, 1);
        let lock = index.try_lock().unwrap().unwrap();
        assert!(index.try_lock().unwrap().is_none());
        let building = index.begin(&lock, 1).unwrap();
        fs::write(building.join("index.cdxj"), "other").unwrap();
        let error = index.publish(&lock, &building, 1).unwrap_err();
        assert!(
            matches!(error, IndexError::Overtaken { number: 1, .. }),
            "{error}"
        );
        drop(lock);
        assert!(index.try_lock().unwrap().is_some());
    }

    #[test]
    fn something_else_called_current_is_named_and_left() {
        let (_root, index) = index();
        let path = index.root().join("current");
        fs::create_dir(&path).unwrap();
        let error = index.current().unwrap_err().to_string();
        assert!(
            error.ends_with("index/current is not a link to a generation"),
            "{error}"
        );
        fs::remove_dir(&path).unwrap();
        symlink("../../etc", &path).unwrap();
        assert!(index.current().is_err());
    }
}
