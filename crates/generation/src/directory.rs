//! The directory of one index: its generations, which of them is current, and the lock of whoever adds one.
//!
//! ```text
//! .lock                  held by the one who builds
//! current -> generations/7
//! generations/5/ 6/ 7/   whole, synced, never changed
//! generations/.tmp-8-X/  being built; X is the builder's own
//! ```
//!
//! A generation appears by one rename and becomes current by another. One that appeared and did not become current, because its
//! builder died in between, is made current by the next.
//!
//! A builder may lose its lock: somebody removes the file, or a file system forgets it. So no two builders share a name, and
//! before each of the two renames the lock and the last generation are looked at again.

#![expect(
    clippy::disallowed_methods,
    reason = "the index is no work directory: its generations are made and retired here alone"
)]

use std::fs::{self, File, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use crate::generation::{BY_HAND, DESCRIPTION, IndexGeneration, SCHEMA_WITH_BLOCKS};

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
    /// Somebody else has the lock, or put a generation there.
    #[error("another builder is at work on {}", root.display())]
    Overtaken {
        /// The index.
        root: PathBuf,
    },
    /// A generation is not as it was written.
    #[error(
        "generation {number} of {} is not whole: {problem}; nothing is added to it, or lines would be lost. Put the file \
         back, or go back to an earlier generation: docs/formats/index-generation.md, \"When an index is lost\"",
        root.display()
    )]
    NotWhole {
        /// The index.
        root: PathBuf,
        /// The generation.
        number: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// There are generations, and none of them is current.
    #[error(
        "{} is missing, and nobody knows whether generation {last} was the last. If it was: ln -s generations/{last} {}",
        path.display(), path.display()
    )]
    NoCurrent {
        /// The link.
        path: PathBuf,
        /// The last generation that is there.
        last: u64,
    },
    /// The next generation would have fewer lines than the last.
    #[error("{name} of generation {number} has {lines} lines, fewer than the {before} before it")]
    Fewer {
        /// The file.
        name: String,
        /// The generation.
        number: u64,
        /// Its lines.
        lines: u64,
        /// The lines of the last generation.
        before: u64,
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
    file: File,
    path: PathBuf,
}

impl BuilderLock {
    /// Tells whether the locked file is still the one everybody else would lock.
    fn is_held(&self) -> io::Result<bool> {
        let ours = self.file.metadata()?;
        match fs::metadata(&self.path) {
            Ok(named) => Ok((named.dev(), named.ino()) == (ours.dev(), ours.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The generation that the next one is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastGeneration {
    /// Its number.
    pub number: u64,
    /// What was written of it; none where a person put it there.
    pub described: Option<IndexGeneration>,
}

/// The directory of all generations.
const GENERATIONS: &str = "generations";
/// What the directory of a generation being built is called, before its number.
pub(crate) const BUILDING: &str = ".tmp-";
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

    /// Reads `generation.json`; none where there is none. [`IndexDirectory::whole`] tells whether there may be none.
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
        if generation.schema > SCHEMA_WITH_BLOCKS {
            return Err(damaged(format!("it has version {}", generation.schema)));
        }
        Ok(Some(generation))
    }

    /// Returns a generation whose files are there with the lengths they were written with.
    ///
    /// # Errors
    /// When one is not, or cannot be looked at, or `generation.json` is missing where no person put the index.
    pub fn whole(&self, number: u64) -> Result<LastGeneration, IndexError> {
        let directory = self.generation(number);
        let described = self.describe(number)?;
        match &described {
            Some(generation) => self.must_be_whole(&directory, generation)?,
            None => {
                let by_hand = directory.join(BY_HAND);
                if !fs::exists(&by_hand).map_err(failed("look at", &by_hand))? {
                    let problem = format!(
                        "{DESCRIPTION} is not there (where you put the index there yourself: touch {})",
                        by_hand.display()
                    );
                    return Err(self.not_whole(number, problem));
                }
            }
        }
        Ok(LastGeneration { number, described })
    }

    fn must_be_whole(
        &self,
        directory: &Path,
        generation: &IndexGeneration,
    ) -> Result<(), IndexError> {
        for file in &generation.files {
            let path = directory.join(&file.name);
            let problem = match fs::metadata(&path) {
                Ok(found) if found.len() == file.bytes => continue,
                Ok(found) => {
                    let (name, found, bytes) = (&file.name, found.len(), file.bytes);
                    format!("{name} has {found} bytes, {bytes} were written")
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    format!("{} is not there", file.name)
                }
                Err(source) => return Err(failed("look at", &path)(source)),
            };
            return Err(self.not_whole(generation.number, problem));
        }
        Ok(())
    }

    pub(crate) fn not_whole(&self, number: u64, problem: String) -> IndexError {
        let root = self.root.clone();
        IndexError::NotWhole {
            root,
            number,
            problem,
        }
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
            Ok(()) => {
                let lock = BuilderLock { file, path };
                let is_held = lock.is_held().map_err(failed("look at", &lock.path))?;
                // Somebody removed the file between the two calls: the next try makes another.
                Ok(is_held.then_some(lock))
            }
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(failed("lock", &path)(source)),
        }
    }

    /// Fails when somebody else may have the lock by now.
    ///
    /// # Errors
    /// [`IndexError::Overtaken`], or when the lock cannot be looked at.
    pub fn must_be_locked(&self, lock: &BuilderLock) -> Result<(), IndexError> {
        match lock.is_held().map_err(failed("look at", &lock.path))? {
            true => Ok(()),
            false => Err(self.overtaken()),
        }
    }

    /// Removes what a dead builder left, and makes the last generation current if it is not; returns it.
    ///
    /// # Errors
    /// When the last generation is not whole, or it is not certain which one was the last.
    pub fn settle(&self, lock: &BuilderLock) -> Result<Option<LastGeneration>, IndexError> {
        self.must_be_locked(lock)?;
        let path = self.root.join(GENERATIONS);
        for entry in fs::read_dir(&path).map_err(failed("read", &path))? {
            let entry = entry.map_err(failed("read", &path))?;
            let name = entry.file_name();
            if name.as_encoded_bytes().starts_with(BUILDING.as_bytes()) {
                let path = entry.path();
                fs::remove_dir_all(&path).map_err(failed("remove", &path))?;
            }
        }
        let current = self.current_number()?;
        let number = self.numbers()?.pop();
        if let Some(current) = current
            && number < Some(current)
        {
            return Err(self.not_whole(current, "its directory is not there".into()));
        }
        let Some(number) = number else {
            return Ok(None);
        };
        let last = self.whole(number)?;
        if current == Some(number) {
            return Ok(Some(last));
        }
        // Of the first generation there was no link before: its builder died. Any other had one.
        let is_first = (last.described.as_ref()).is_some_and(|last| last.previous.is_none());
        if current.is_none() && !is_first {
            return Err(IndexError::NoCurrent {
                path: self.root.join(CURRENT),
                last: number,
            });
        }
        // Its name may be in memory only: a link to it must not outlive it.
        sync(&path)?;
        self.make_current(number)?;
        Ok(Some(last))
    }

    /// Makes the directory a generation is built in. Nobody else has its name.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn begin(&self, lock: &BuilderLock, number: u64) -> Result<PathBuf, IndexError> {
        self.must_be_locked(lock)?;
        let name = nobodys_name(number);
        let path = self.root.join(GENERATIONS).join(name);
        fs::create_dir(&path).map_err(failed("make", &path))?;
        Ok(path)
    }

    /// Removes what was begun.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn abandon(&self, building: &Path) -> Result<(), IndexError> {
        fs::remove_dir_all(building).map_err(failed("remove", building))
    }

    /// Shows a generation whose files are synced, and makes it current.
    ///
    /// # Errors
    /// When it is not what it says, has fewer lines than the last one, or another builder came between.
    pub fn publish(
        &self,
        lock: &BuilderLock,
        building: &Path,
        generation: &IndexGeneration,
        last: Option<&LastGeneration>,
    ) -> Result<(), IndexError> {
        self.must_be_whole(building, generation)?;
        must_not_shrink(generation, last)?;
        sync(building)?;
        self.must_be_last(lock, generation.previous)?;
        let path = self.generation(generation.number);
        // A directory that is there and not empty is not replaced.
        fs::rename(building, &path).map_err(|source| match source.kind() {
            io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists => self.overtaken(),
            _ => failed("show", &path)(source),
        })?;
        sync(&self.root.join(GENERATIONS))?;
        self.must_be_last(lock, Some(generation.number))?;
        self.make_current(generation.number)
    }

    /// Fails when the lock is lost or the last generation is another.
    fn must_be_last(&self, lock: &BuilderLock, number: Option<u64>) -> Result<(), IndexError> {
        self.must_be_locked(lock)?;
        if self.numbers()?.pop() != number {
            return Err(self.overtaken());
        }
        Ok(())
    }

    fn overtaken(&self) -> IndexError {
        let root = self.root.clone();
        IndexError::Overtaken { root }
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
    ///
    /// # Errors
    /// When one cannot be removed.
    pub fn prune(&self, lock: &BuilderLock, keep: usize) -> Result<Vec<u64>, IndexError> {
        self.must_be_locked(lock)?;
        let current = self.current_number()?;
        let mut numbers = self.numbers()?;
        numbers.truncate(numbers.len().saturating_sub(keep));
        numbers.retain(|number| Some(*number) != current);
        for number in &numbers {
            let path = self.generation(*number);
            // Renamed first: half a generation must not look like one.
            let retired = self
                .root
                .join(GENERATIONS)
                .join(format!("{BUILDING}old-{number}"));
            fs::rename(&path, &retired).map_err(failed("retire", &path))?;
            fs::remove_dir_all(&retired).map_err(failed("remove", &retired))?;
        }
        Ok(numbers)
    }
}

/// No line is ever taken out of an index: a generation has those of the last one, and more.
fn must_not_shrink(
    generation: &IndexGeneration,
    last: Option<&LastGeneration>,
) -> Result<(), IndexError> {
    let described = last.and_then(|last| last.described.as_ref());
    for file in described.map_or(&[][..], |last| &last.files) {
        let before = described.and_then(|last| last.lines_of(&file.name));
        let lines = generation.lines_of(&file.name).unwrap_or_default();
        if let Some(before) = before
            && lines < before
        {
            return Err(IndexError::Fewer {
                name: file.name.clone(),
                number: generation.number,
                lines,
                before,
            });
        }
    }
    Ok(())
}

/// Returns a name of something being built that nobody else has.
pub(crate) fn nobodys_name(what: impl std::fmt::Display) -> String {
    let builder = RandomState::new().hash_one(std::process::id());
    format!("{BUILDING}{what}-{builder:016x}")
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

pub(crate) fn failed(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> IndexError {
    move |source| IndexError::Io {
        step,
        path: path.to_owned(),
        source,
    }
}

/// Makes the names in a directory durable.
pub(crate) fn sync(directory: &Path) -> Result<(), IndexError> {
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
    use crate::generation::{FLAT, IndexFile, SCHEMA};

    fn index() -> (tempfile::TempDir, IndexDirectory) {
        let root = tempfile::tempdir().unwrap();
        let index = IndexDirectory::of(&root.path().join("index"), None).unwrap();
        index.prepare().unwrap();
        (root, index)
    }

    fn generation(number: u64, lines: &str) -> IndexGeneration {
        IndexGeneration {
            schema: SCHEMA,
            number,
            previous: (number > 1).then(|| number - 1),
            lines: lines.lines().count() as u64,
            duplicates: 0,
            files: vec![IndexFile {
                name: FLAT.into(),
                bytes: lines.len() as u64,
                lines: Some(lines.lines().count() as u64),
                xxh128: String::new(),
                blocks: None,
            }],
            members: Vec::new(),
        }
    }

    /// Writes a generation of so many lines as its number into a directory.
    fn fill(building: &Path, number: u64) -> IndexGeneration {
        let lines = "x\n".repeat(usize::try_from(number).unwrap());
        let generation = generation(number, &lines);
        fs::write(building.join(FLAT), lines).unwrap();
        let description = serde_json::to_vec(&generation).unwrap();
        fs::write(building.join(DESCRIPTION), description).unwrap();
        generation
    }

    fn add(index: &IndexDirectory, number: u64) {
        let lock = index.try_lock().unwrap().unwrap();
        let last = index.settle(&lock).unwrap();
        let building = index.begin(&lock, number).unwrap();
        let generation = fill(&building, number);
        index
            .publish(&lock, &building, &generation, last.as_ref())
            .unwrap();
    }

    fn settle(index: &IndexDirectory) -> Result<Option<LastGeneration>, IndexError> {
        let lock = index.try_lock().unwrap().unwrap();
        index.settle(&lock)
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
            assert_eq!(text.lines().count() as u64, number);
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
        assert_eq!(index.settle(&lock).unwrap().unwrap().number, 2);
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
    fn one_at_a_time() {
        let (_root, index) = index();
        let lock = index.try_lock().unwrap().unwrap();
        assert!(index.try_lock().unwrap().is_none());
        drop(lock);
        assert!(index.try_lock().unwrap().is_some());
    }

    #[test]
    fn a_builder_that_lost_its_lock_changes_nothing() {
        let (_root, index) = index();
        add(&index, 1);
        let slow = index.try_lock().unwrap().unwrap();
        let last = index.settle(&slow).unwrap();
        let begun = index.begin(&slow, 2).unwrap();
        let late = fill(&begun, 2);
        fs::remove_file(index.root().join(".lock")).unwrap();
        let quick = index.try_lock().unwrap().unwrap();
        let overtaken = |done| matches!(done, Err(IndexError::Overtaken { .. }));
        // Before the other has done anything, and after each of its steps.
        let publish = || index.publish(&slow, &begun, &late, last.as_ref());
        assert!(overtaken(publish()));
        assert!(overtaken(index.begin(&slow, 2).map(drop)));
        assert!(overtaken(index.prune(&slow, 1).map(drop)));
        let other = index.begin(&quick, 2).unwrap();
        assert_ne!(begun, other, "no name is shared");
        let made = fill(&other, 2);
        index.publish(&quick, &other, &made, last.as_ref()).unwrap();
        assert!(overtaken(publish()));
        // Where locks do not work at all, the number is taken.
        let twice = index.publish(&quick, &begun, &late, last.as_ref());
        assert!(overtaken(twice));
        assert_eq!(index.numbers().unwrap(), [1, 2]);
    }

    #[test]
    fn a_generation_that_is_not_whole_is_not_built_upon() {
        type Damage = fn(&Path);
        let damages: [(&str, Damage); 5] = [
            ("index.cdxj is not there", |at| {
                fs::remove_file(at.join(FLAT)).unwrap();
            }),
            ("index.cdxj has 2 bytes, 4 were written", |at| {
                fs::write(at.join(FLAT), "x\n").unwrap();
            }),
            ("generation.json is not there", |at| {
                fs::remove_file(at.join(DESCRIPTION)).unwrap();
            }),
            // Any other answer than "it is there" or "it is not": EIO and ESTALE cannot be had here.
            ("cannot look at", |at| {
                fs::remove_file(at.join(FLAT)).unwrap();
                symlink(FLAT, at.join(FLAT)).unwrap();
            }),
            ("its directory is not there", |at| {
                fs::remove_dir_all(at).unwrap();
            }),
        ];
        for (said, damage) in damages {
            let (_root, index) = index();
            add(&index, 1);
            add(&index, 2);
            damage(&index.generation(2));
            let error = settle(&index).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        // A person may say that an index without description is theirs.
        let (_root, index) = index();
        fs::create_dir(index.generation(1)).unwrap();
        symlink("generations/1", index.root().join(CURRENT)).unwrap();
        assert!(settle(&index).unwrap_err().to_string().contains("by-hand"));
        fs::write(index.generation(1).join(BY_HAND), "").unwrap();
        assert_eq!(settle(&index).unwrap().unwrap().described, None);
    }

    #[test]
    fn without_the_link_only_a_first_generation_is_known_to_be_the_last() {
        let (_root, index) = index();
        add(&index, 1);
        fs::remove_file(index.root().join(CURRENT)).unwrap();
        assert_eq!(settle(&index).unwrap().unwrap().number, 1);
        add(&index, 2);
        fs::remove_file(index.root().join(CURRENT)).unwrap();
        let error = settle(&index).unwrap_err().to_string();
        assert!(error.contains("ln -s generations/2 "), "{error}");
    }

    #[test]
    fn no_generation_has_fewer_lines_than_the_last() {
        let (_root, index) = index();
        add(&index, 1);
        add(&index, 2);
        let lock = index.try_lock().unwrap().unwrap();
        let last = index.settle(&lock).unwrap();
        let building = index.begin(&lock, 3).unwrap();
        fs::write(building.join(FLAT), "x\n").unwrap();
        let made = generation(3, "x\n");
        let error = index.publish(&lock, &building, &made, last.as_ref());
        let error = error.unwrap_err().to_string();
        assert_eq!(
            error,
            "index.cdxj of generation 3 has 1 lines, fewer than the 2 before it"
        );
        assert_eq!(index.numbers().unwrap(), [1, 2]);
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
