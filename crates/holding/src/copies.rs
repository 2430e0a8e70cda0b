//! A directory in which copies are kept.
//!
//! A copy is written under a temporary name in the same directory, synced, read back from
//! the disk and only then given its name, which is never taken from another file. Every call goes
//! through the directory's descriptor and follows no symbolic link, so that a directory that is moved
//! or swapped while it is used cannot lead elsewhere.
//!
//! The writer holds a lock on its temporary file for as long as it lives. A temporary file whose lock is free is a
//! dead writer's and is swept; nothing else in the directory is ever touched.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{AtFlags, Dir, FallocateFlags, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::digest::{
    Fixity, Going, PIECE_BYTES, ReadFault, must_be_plain, not_plain, read_afresh, read_piece,
};

/// What the names of copies under construction begin with.
pub const TEMPORARY: &str = ".ecluse-tmp-";
/// What the names of bad copies begin with, once a good one has taken their place.
pub const SET_ASIDE: &str = ".ecluse-bad-";

const DIR: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
const FILE: OFlags = OFlags::NOFOLLOW
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK);

/// A directory in which copies are kept.
pub struct CopyDirectory {
    dir: OwnedFd,
    path: PathBuf,
    /// Where temporary files are: the directory itself, or the one this is a folder of.
    scratch: Rc<OwnedFd>,
    /// Tells the temporary files of one kind of writer from another's.
    prefix: String,
}

/// Room for copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyRoom {
    /// Bytes that may still be written.
    pub free: u64,
    /// Size of the file system.
    pub total: u64,
}

/// How a copy came to be in the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptCopy {
    /// It was copied, and read back.
    Copied,
    /// It was there, and was read.
    Found,
}

/// Why a copy is not in the directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyFault {
    /// The directory failed: it is full, read-only, gone or broken.
    #[error("cannot {what} {}: {error}", path.display())]
    Place {
        /// What was being done.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// There is too little room.
    #[error(
        "{free} bytes are free, {needed} are needed: {bytes} for the file and {leave} to be left"
    )]
    NoRoom {
        /// Bytes free.
        free: u64,
        /// Bytes that would have to be free.
        needed: u64,
        /// Size of the file.
        bytes: u64,
        /// What must be left.
        leave: u64,
    },
    /// Another file has the name.
    #[error("{} is taken by another file: it has {found}, ingest took {wanted}", path.display())]
    Taken {
        /// The name.
        path: PathBuf,
        /// What lies there.
        found: Fixity,
        /// What should.
        wanted: Fixity,
    },
    /// Something that is no plain file has the name.
    #[error("{} is taken: {error}", path.display())]
    Obstructed {
        /// The name.
        path: PathBuf,
        /// What lies there.
        error: io::Error,
    },
    /// What was read back is not what should have been written; the source or the disk lies.
    #[error("the copy in {} was read back as {found}, ingest took {wanted}", path.display())]
    Differs {
        /// The directory.
        path: PathBuf,
        /// What was read back.
        found: Fixity,
        /// What should have been.
        wanted: Fixity,
    },
    /// The source cannot be read.
    #[error("cannot read the source: {0}")]
    Source(io::Error),
    /// The work was asked to stop.
    #[error("asked to stop")]
    Stopped,
}

impl CopyDirectory {
    /// Opens a directory that must be there; `writer` names whose temporary files are swept.
    ///
    /// # Errors
    /// When it is missing, no directory, or a symbolic link.
    pub fn open(path: &Path, writer: &str) -> Result<Self, CopyFault> {
        let dir = rustix::fs::open(path, DIR, Mode::empty()).at("open", path)?;
        Self::of(dir, path, writer)
    }

    /// Opens a directory below `root` and makes it if need be; no step on the way may be a
    /// symbolic link.
    ///
    /// # Errors
    /// When it cannot be made, or leads out of `root`.
    pub fn make(root: &Path, below: &Path, writer: &str) -> Result<Self, CopyFault> {
        let path = root.join(below);
        let mut dir =
            rustix::fs::open(root, DIR & !OFlags::NOFOLLOW, Mode::empty()).at("open", root)?;
        for step in below.components() {
            match step {
                Component::Normal(step) => {
                    dir = make_dir(&dir, Path::new(step)).at("make", &path)?;
                }
                Component::CurDir => {}
                _ => return Err(Errno::INVAL).at("make", &path),
            }
        }
        Self::of(dir, &path, writer)
    }

    /// Opens a directory that settings name: one below `root` is made if need be, any other must be there. What dead
    /// writers left is swept unless it was before.
    ///
    /// # Errors
    /// As [`CopyDirectory::open`] and [`CopyDirectory::make`].
    pub fn open_swept(
        root: &Path,
        path: &Path,
        writer: &str,
        swept: &mut bool,
    ) -> Result<Self, CopyFault> {
        let copies = match path.is_absolute() {
            true => Self::open(path, writer)?,
            false => Self::make(root, path, writer)?,
        };
        if !*swept {
            let dead = copies.sweep()?;
            if dead > 0 {
                tracing::info!(place = %copies.path.display(), dead, "half copies of dead workers swept");
            }
            *swept = true;
        }
        Ok(copies)
    }

    fn of(dir: OwnedFd, path: &Path, writer: &str) -> Result<Self, CopyFault> {
        let scratch = dir
            .try_clone()
            .map_err(|error| fault("open", path, error))?;
        Ok(Self {
            dir,
            path: path.to_owned(),
            scratch: Rc::new(scratch),
            prefix: format!("{TEMPORARY}{writer}-"),
        })
    }

    /// Returns where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns how much room it has.
    ///
    /// # Errors
    /// When the file system cannot be asked.
    pub fn room(&self) -> Result<CopyRoom, CopyFault> {
        let stat = rustix::fs::fstatvfs(&self.dir).at("ask for the room of", &self.path)?;
        Ok(CopyRoom {
            free: stat.f_bavail.saturating_mul(stat.f_frsize),
            total: stat.f_blocks.saturating_mul(stat.f_frsize),
        })
    }

    /// Returns a folder of this directory, made if need be; `folder` may have several steps, and none is the
    /// directory itself. Its temporary files are those of the whole.
    ///
    /// # Errors
    /// As [`CopyDirectory::make`].
    pub fn folder(&self, folder: &str) -> Result<Self, CopyFault> {
        self.enter(folder, make_dir)
            .at("make", &self.path.join(folder))
    }

    /// Returns a folder of this directory if it is there.
    ///
    /// # Errors
    /// When it is no directory, or cannot be opened.
    pub fn find_folder(&self, folder: &str) -> Result<Option<Self>, CopyFault> {
        match self.enter(folder, open_dir) {
            Err(Errno::NOENT) => Ok(None),
            other => other.at("open", &self.path.join(folder)).map(Some),
        }
    }

    fn enter(
        &self,
        folder: &str,
        step_into: fn(&OwnedFd, &Path) -> Result<OwnedFd, Errno>,
    ) -> Result<Self, Errno> {
        let mut dir = rustix::io::dup(&self.dir)?;
        for step in folder.split('/').filter(|step| !step.is_empty()) {
            if step == "." || step == ".." {
                return Err(Errno::INVAL);
            }
            dir = step_into(&dir, Path::new(step))?;
        }
        Ok(Self {
            dir,
            path: self.path.join(folder),
            scratch: Rc::clone(&self.scratch),
            prefix: self.prefix.clone(),
        })
    }

    /// Reads what lies under a name afresh; `None` when nothing does.
    ///
    /// # Errors
    /// When it cannot be read, or is no plain file.
    pub fn read(&self, name: &str, going: Going<'_>) -> Result<Option<Fixity>, CopyFault> {
        self.read_in(&self.dir, name, going)
    }

    fn read_in(
        &self,
        dir: &OwnedFd,
        name: &str,
        going: Going<'_>,
    ) -> Result<Option<Fixity>, CopyFault> {
        let path = self.path.join(name);
        let file = rustix::fs::openat(dir, name, OFlags::RDONLY | FILE, Mode::empty());
        let file = match file {
            Ok(fd) => must_be_plain(File::from(fd)),
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => Err(not_plain("a symbolic link")),
            Err(error) => return Err(error).at("open", &path),
        };
        let mut file = file.map_err(|error| CopyFault::Obstructed {
            path: path.clone(),
            error,
        })?;
        // Whoever wrote it may have died before it was durable.
        file.sync_all()
            .map_err(|error| fault("sync", &path, error))?;
        match read_afresh(&mut file, going) {
            Ok(found) => Ok(Some(found)),
            Err(ReadFault::Io(error)) => Err(fault("read", &path, error)),
            Err(ReadFault::Stopped) => Err(CopyFault::Stopped),
        }
    }

    /// Tells whether the copy under a name is there, whole and durable.
    ///
    /// # Errors
    /// [`CopyFault::Taken`] when something else is.
    pub fn has(&self, name: &str, wanted: &Fixity, going: Going<'_>) -> Result<bool, CopyFault> {
        let Some(found) = self.read(name, going)? else {
            return Ok(false);
        };
        if found != *wanted {
            return Err(CopyFault::Taken {
                path: self.path.join(name),
                found,
                wanted: wanted.clone(),
            });
        }
        self.sync()?;
        Ok(true)
    }

    /// Copies `source` here under a name, with `leave` bytes left free, unless it is here already.
    ///
    /// When this returns, the copy is durable and was read from the disk with the wanted digest.
    /// The source itself is not hashed: the copy's digest proves both.
    ///
    /// # Errors
    /// In every case nothing of the copy is left, except when the process dies.
    pub fn keep(
        &self,
        name: &str,
        wanted: &Fixity,
        leave: u64,
        open: &mut dyn FnMut() -> io::Result<Box<dyn Read>>,
        going: Going<'_>,
    ) -> Result<KeptCopy, CopyFault> {
        if self.has(name, wanted, going)? {
            return Ok(KeptCopy::Found);
        }
        let temporary = self.make_copy(wanted, leave, open, going)?;
        match temporary.publish(name) {
            Ok(()) => {}
            Err(Errno::EXIST) => {
                drop(temporary);
                // Somebody was faster: the same file, or another one of that name.
                return match self.has(name, wanted, going)? {
                    true => Ok(KeptCopy::Found),
                    false => Err(Errno::EXIST).at("name", &self.path.join(name)),
                };
            }
            Err(error) => return Err(error).at("name", &self.path.join(name)),
        }
        self.sync()?;
        Ok(KeptCopy::Copied)
    }

    /// Puts a good copy where a bad one lies, or none, and returns where the bad one was put; `None` when there was none.
    ///
    /// The bad bytes are kept under a name of their own, `.ecluse-bad-N-NAME`: they may be all that is left of something.
    /// They go there when the good copy is written and read back, so that a full disk changes nothing.
    ///
    /// # Errors
    /// As [`CopyDirectory::keep`].
    pub fn replace(
        &self,
        name: &str,
        wanted: &Fixity,
        leave: u64,
        open: &mut dyn FnMut() -> io::Result<Box<dyn Read>>,
        going: Going<'_>,
    ) -> Result<Option<PathBuf>, CopyFault> {
        match self.has(name, wanted, going) {
            Ok(true) => return Ok(None),
            Ok(false) | Err(CopyFault::Taken { .. } | CopyFault::Obstructed { .. }) => {}
            // A disk that cannot read a file may still be able to rename it.
            Err(CopyFault::Place { what: "read", .. }) => {}
            Err(fault) => return Err(fault),
        }
        let temporary = self.make_copy(wanted, leave, open, going)?;
        let aside = self.set_aside(name)?;
        let published = temporary.publish(name);
        published.at("name", &self.path.join(name))?;
        self.sync()?;
        Ok(aside)
    }

    /// Gives what has a name another one, if there is anything.
    fn set_aside(&self, name: &str) -> Result<Option<PathBuf>, CopyFault> {
        for number in 1..u32::MAX {
            let aside = format!("{SET_ASIDE}{number}-{name}");
            // Not every file system can refuse to replace in one step: nobody else uses these names.
            let taken = rustix::fs::statat(&self.dir, &aside, AtFlags::SYMLINK_NOFOLLOW);
            if !matches!(taken, Err(Errno::NOENT)) {
                continue;
            }
            return match rustix::fs::renameat(&self.dir, name, &self.dir, &aside) {
                Ok(()) => Ok(Some(self.path.join(aside))),
                Err(Errno::NOENT) => Ok(None),
                Err(error) => Err(error).at("set aside", &self.path.join(name)),
            };
        }
        Err(Errno::EXIST).at("set aside", &self.path.join(name))
    }

    /// Makes a copy under a temporary name and reads it back.
    fn make_copy(
        &self,
        wanted: &Fixity,
        leave: u64,
        open: &mut dyn FnMut() -> io::Result<Box<dyn Read>>,
        going: Going<'_>,
    ) -> Result<Temporary<'_>, CopyFault> {
        self.must_have_room(wanted.bytes, leave)?;
        let mut source = open().map_err(CopyFault::Source)?;
        let temporary = Temporary::create(self)?;
        let path = self.path.join(&temporary.name);
        temporary
            .reserve(wanted.bytes)
            .at("reserve room in", &path)?;
        // Another writer may have taken the same room at the same moment: now it is counted.
        self.must_have_room(0, leave)?;
        temporary.fill(&mut *source, wanted, going)?;
        let found = self.read_in(&self.scratch, &temporary.name, going)?;
        if found.as_ref() != Some(wanted) {
            return Err(CopyFault::Differs {
                path: self.path.clone(),
                found: found.unwrap_or_else(nothing),
                wanted: wanted.clone(),
            });
        }
        Ok(temporary)
    }

    /// Removes what dead writers of this kind left behind, and says how many files that was.
    ///
    /// # Errors
    /// When the directory cannot be read or written.
    pub fn sweep(&self) -> Result<usize, CopyFault> {
        let mut swept = 0;
        let entries = Dir::read_from(&*self.scratch).at("read", &self.path)?;
        for entry in entries {
            let entry = entry.at("read", &self.path)?;
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            if name.starts_with(&self.prefix) && self.sweep_one(name).at("sweep", &self.path)? {
                swept += 1;
            }
        }
        Ok(swept)
    }

    fn sweep_one(&self, name: &str) -> Result<bool, Errno> {
        let file = match rustix::fs::openat(&self.scratch, name, OFlags::RDWR | FILE, Mode::empty())
        {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::LOOP | Errno::ISDIR | Errno::ACCESS) => return Ok(false),
            Err(error) => return Err(error),
        };
        // Where there are no locks, nobody knows who lives: it stays.
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err()
            || !self.is_named(&file, name)
        {
            return Ok(false);
        }
        rustix::fs::unlinkat(&self.scratch, name, AtFlags::empty())?;
        Ok(true)
    }

    /// Tells whether an open file still goes by a temporary name.
    fn is_named(&self, file: impl AsFd, name: &str) -> bool {
        let named = rustix::fs::statat(&self.scratch, name, AtFlags::SYMLINK_NOFOLLOW);
        match (rustix::fs::fstat(file), named) {
            (Ok(file), Ok(named)) => (file.st_dev, file.st_ino) == (named.st_dev, named.st_ino),
            _ => false,
        }
    }

    fn must_have_room(&self, bytes: u64, leave: u64) -> Result<(), CopyFault> {
        let free = self.room()?.free;
        let needed = bytes.saturating_add(leave);
        if free >= needed {
            return Ok(());
        }
        Err(CopyFault::NoRoom {
            free,
            needed,
            bytes,
            leave,
        })
    }

    fn sync(&self) -> Result<(), CopyFault> {
        rustix::fs::fsync(&self.dir).at("sync", &self.path)
    }
}

/// A copy under construction; removed when it is let go of without a name.
struct Temporary<'a> {
    copies: &'a CopyDirectory,
    name: String,
    file: File,
}

impl<'a> Temporary<'a> {
    fn create(copies: &'a CopyDirectory) -> Result<Self, CopyFault> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | FILE;
        let mode = Mode::from_raw_mode(0o644);
        for number in 0..u32::MAX {
            let name = format!("{}{}-{number}", copies.prefix, std::process::id());
            let file = match rustix::fs::openat(&copies.scratch, &name, flags, mode) {
                Ok(fd) => File::from(fd),
                Err(Errno::EXIST) => continue,
                Err(error) => return Err(error).at("create", &copies.path.join(&name)),
            };
            // A sweeper saw it before it was locked, and removes it. Where there are no locks, nobody sweeps.
            let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
            if locked == Err(Errno::WOULDBLOCK) {
                continue;
            }
            if copies.is_named(&file, &name) {
                return Ok(Self { copies, name, file });
            }
        }
        Err(Errno::EXIST).at("create a file in", &copies.path)
    }

    /// Takes the room before the bytes come, so that a full disk is known at once.
    fn reserve(&self, bytes: u64) -> Result<(), Errno> {
        if bytes == 0 {
            return Ok(());
        }
        match rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, bytes) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(()),
            other => other,
        }
    }

    fn fill(
        &self,
        source: &mut dyn Read,
        wanted: &Fixity,
        going: Going<'_>,
    ) -> Result<(), CopyFault> {
        let path = self.copies.path.join(&self.name);
        let mut buffer = vec![0; PIECE_BYTES];
        let mut copied: u64 = 0;
        loop {
            if !going() {
                return Err(CopyFault::Stopped);
            }
            let read = read_piece(source, &mut buffer).map_err(CopyFault::Source)?;
            if read == 0 {
                break;
            }
            copied += read as u64;
            // A source that grew is not the one that was measured: no need to fill the disk with it.
            if copied > wanted.bytes {
                break;
            }
            (&self.file)
                .write_all(&buffer[..read])
                .map_err(|error| fault("write", &path, error))?;
        }
        self.file
            .sync_all()
            .map_err(|error| fault("sync", &path, error))
    }

    /// Gives the file its name, unless another has it.
    fn publish(&self, name: &str) -> Result<(), Errno> {
        let (from, dir) = (&self.copies.scratch, &self.copies.dir);
        match rustix::fs::renameat_with(from, &self.name, dir, name, RenameFlags::NOREPLACE) {
            // NFS and some others cannot: a link is as good, and the temporary name goes with `self`.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                rustix::fs::linkat(from, &self.name, dir, name, AtFlags::empty())
            }
            other => other,
        }
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if self.copies.is_named(&self.file, &self.name) {
            let _ = rustix::fs::unlinkat(&self.copies.scratch, &self.name, AtFlags::empty());
        }
    }
}

/// Opens a directory in another, made and durable if need be.
fn make_dir(parent: &OwnedFd, step: &Path) -> Result<OwnedFd, Errno> {
    match rustix::fs::mkdirat(parent, step, Mode::from_raw_mode(0o755)) {
        Ok(()) => rustix::fs::fsync(parent)?,
        Err(Errno::EXIST) => {}
        // A file system that is read-only says so even of what is there.
        Err(error @ (Errno::ROFS | Errno::ACCESS)) => {
            return match open_dir(parent, step) {
                Err(Errno::NOENT) => Err(error),
                other => other,
            };
        }
        Err(error) => return Err(error),
    }
    open_dir(parent, step)
}

fn open_dir(parent: &OwnedFd, step: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(parent, step, DIR, Mode::empty())
}

fn nothing() -> Fixity {
    Fixity {
        bytes: 0,
        sha256: String::new(),
    }
}

fn fault(what: &'static str, path: &Path, error: io::Error) -> CopyFault {
    CopyFault::Place {
        what,
        path: path.to_owned(),
        error,
    }
}

/// Says what was being done, and where.
trait At<Value> {
    fn at(self, what: &'static str, path: &Path) -> Result<Value, CopyFault>;
}

impl<Value> At<Value> for Result<Value, Errno> {
    fn at(self, what: &'static str, path: &Path) -> Result<Value, CopyFault> {
        self.map_err(|error| fault(what, path, error.into()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn fixity(bytes: &[u8]) -> Fixity {
        Fixity {
            bytes: bytes.len() as u64,
            sha256: ecluse_spool::digest(bytes),
        }
    }

    fn keep(
        copies: &CopyDirectory,
        name: &str,
        bytes: &[u8],
        claimed: &[u8],
    ) -> Result<KeptCopy, CopyFault> {
        let bytes = bytes.to_vec();
        let mut open = || Ok(Box::new(io::Cursor::new(bytes.clone())) as Box<dyn Read>);
        copies.keep(name, &fixity(claimed), 0, &mut open, &|| true)
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_copy_is_kept_once() {
        let dir = tempfile::tempdir().unwrap();
        let copies = CopyDirectory::open(dir.path(), "test").unwrap();
        let large = vec![7; 3 * PIECE_BYTES + 5];
        assert_eq!(
            keep(&copies, "a", &large, &large).unwrap(),
            KeptCopy::Copied
        );
        assert_eq!(keep(&copies, "a", &large, &large).unwrap(), KeptCopy::Found);
        assert_eq!(keep(&copies, "b", b"", b"").unwrap(), KeptCopy::Copied);
        assert_eq!(fs::read(dir.path().join("a")).unwrap(), large);
        assert_eq!(names(dir.path()), ["a", "b"]);
    }

    #[test]
    fn a_taken_name_is_never_given_away() {
        let dir = tempfile::tempdir().unwrap();
        let copies = CopyDirectory::open(dir.path(), "test").unwrap();
        fs::write(dir.path().join("a"), b"older").unwrap();
        fs::create_dir(dir.path().join("b")).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", dir.path().join("c")).unwrap();
        let taken = keep(&copies, "a", b"newer", b"newer").unwrap_err();
        assert!(matches!(taken, CopyFault::Taken { .. }), "{taken}");
        let said = taken.to_string();
        assert!(said.contains(&fixity(b"older").sha256) && said.contains(&fixity(b"newer").sha256));
        for name in ["b", "c"] {
            let fault = keep(&copies, name, b"x", b"x").unwrap_err();
            assert!(matches!(fault, CopyFault::Obstructed { .. }), "{fault}");
        }
        assert_eq!(fs::read(dir.path().join("a")).unwrap(), b"older");
        assert_eq!(names(dir.path()), ["a", "b", "c"]);
    }

    #[test]
    fn what_is_read_back_must_be_what_was_wanted() {
        let dir = tempfile::tempdir().unwrap();
        let copies = CopyDirectory::open(dir.path(), "test").unwrap();
        for source in [&b"other"[..], b"longer than wanted", b"", b"wante"] {
            let fault = keep(&copies, "a", source, b"wanted").unwrap_err();
            assert!(matches!(fault, CopyFault::Differs { .. }), "{fault}");
        }
        assert_eq!(names(dir.path()), [""; 0]);
    }

    #[test]
    fn a_bad_copy_is_set_aside_for_a_good_one() {
        let dir = tempfile::tempdir().unwrap();
        let copies = CopyDirectory::open(dir.path(), "test").unwrap();
        let replace = |name: &str, leave: u64, source: &'static [u8]| {
            let mut open = || Ok(Box::new(source) as Box<dyn Read>);
            copies.replace(name, &fixity(b"good"), leave, &mut open, &|| true)
        };
        assert_eq!(replace("missing", 0, b"good").unwrap(), None);
        assert_eq!(replace("missing", 0, b"good").unwrap(), None, "it is good");
        for number in 1..3 {
            fs::write(dir.path().join("a"), b"bad!").unwrap();
            // What cannot be put back changes nothing.
            assert!(replace("a", u64::MAX, b"good").is_err());
            assert!(replace("a", 0, b"not good").is_err());
            assert_eq!(fs::read(dir.path().join("a")).unwrap(), b"bad!");
            let aside = replace("a", 0, b"good").unwrap().unwrap();
            assert_eq!(aside, dir.path().join(format!(".ecluse-bad-{number}-a")));
            assert_eq!(fs::read(aside).unwrap(), b"bad!");
            assert_eq!(fs::read(dir.path().join("a")).unwrap(), b"good");
        }
        std::os::unix::fs::symlink("a", dir.path().join("link")).unwrap();
        assert!(replace("link", 0, b"good").unwrap().is_some());
        assert!(
            dir.path()
                .join("link")
                .symlink_metadata()
                .unwrap()
                .is_file()
        );
        assert_eq!(copies.sweep().unwrap(), 0);
    }

    #[test]
    fn only_the_dead_writers_of_its_kind_are_swept() {
        let dir = tempfile::tempdir().unwrap();
        let copies = CopyDirectory::open(dir.path(), "test").unwrap();
        fs::write(dir.path().join(".ecluse-tmp-test-1-0"), b"dead").unwrap();
        fs::write(dir.path().join(".ecluse-tmp-other-1-0"), b"somebody else's").unwrap();
        fs::write(dir.path().join("kept"), b"kept").unwrap();
        fs::create_dir(dir.path().join(".ecluse-tmp-test-dir")).unwrap();
        std::os::unix::fs::symlink("kept", dir.path().join(".ecluse-tmp-test-link")).unwrap();
        let living = Temporary::create(&copies).unwrap();
        assert_eq!(copies.sweep().unwrap(), 1);
        let mut left = names(dir.path());
        assert!(left.contains(&living.name));
        left.retain(|name| *name != living.name);
        assert_eq!(
            left,
            [
                ".ecluse-tmp-other-1-0",
                ".ecluse-tmp-test-dir",
                ".ecluse-tmp-test-link",
                "kept"
            ]
        );
    }

    #[test]
    fn room_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let copies = CopyDirectory::open(dir.path(), "test").unwrap();
        let mut open = || Ok(Box::new(io::empty()) as Box<dyn Read>);
        let kept = copies.keep("a", &fixity(b"abc"), u64::MAX, &mut open, &|| true);
        assert!(matches!(kept, Err(CopyFault::NoRoom { bytes: 3, .. })));
        assert_eq!(names(dir.path()), [""; 0]);
    }

    #[test]
    fn a_shelf_is_no_symbolic_link() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(outside.path(), dir.path().join("out")).unwrap();
        assert!(CopyDirectory::open(&dir.path().join("out"), "test").is_err());
        for below in ["out", "out/deeper", "../x", "/etc"] {
            let made = CopyDirectory::make(dir.path(), Path::new(below), "test");
            assert!(made.is_err(), "{below}");
        }
        let copies = CopyDirectory::make(dir.path(), Path::new("a/b"), "test").unwrap();
        assert!(dir.path().join("a/b").is_dir());
        std::os::unix::fs::symlink(outside.path(), dir.path().join("a/b/job")).unwrap();
        assert!(copies.folder("job").is_err());
        assert!(copies.folder("../../../x").is_err());
        copies.folder("7/8").unwrap();
        assert!(dir.path().join("a/b/7/8").is_dir());
        assert_eq!(names(outside.path()), [""; 0]);
    }

    #[test]
    fn many_writers_of_one_name_leave_one_file() {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for writer in 0..8_u8 {
                let path = dir.path();
                scope.spawn(move || {
                    let copies = CopyDirectory::open(path, "test").unwrap();
                    copies.sweep().unwrap();
                    let bytes = vec![writer % 2; 100_000];
                    keep(&copies, "even", &vec![0; 100_000], &vec![0; 100_000]).unwrap();
                    let _ = keep(&copies, "either", &bytes, &bytes);
                    copies.sweep().unwrap();
                });
            }
        });
        assert_eq!(names(dir.path()), ["either", "even"]);
        let either = fs::read(dir.path().join("either")).unwrap();
        assert!(either == vec![0; 100_000] || either == vec![1; 100_000]);
    }
}
