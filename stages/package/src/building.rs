//! A package under construction: a directory that takes its name when all of it is durable.
//!
//! It is built beside the packages under a temporary name, locked for as long as its builder lives. One whose lock is free is a
//! dead builder's and is swept. The last step is one rename that never takes the place of another package.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ecluse_bag::{InfoField, PayloadEntry, TagFile, write_tags};
use ecluse_holding::{CopyDirectory, CopyFault, Fixity, Going, TEMPORARY, open_plain};
use ecluse_spool::{Fs, RealFs};
use ecluse_stage::Failure;
use rustix::fs::{CWD, FlockOperation, RenameFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256, Sha512};

/// The tag manifest fixes a whole package.
pub(crate) const SEAL: &str = "tagmanifest-sha512.txt";

/// Brings a package that lies elsewhere among those of an archive, under that name; returns where it is then. One of the
/// same seal that is there stays.
///
/// # Errors
/// When there is another of that name, and when the disk fails.
pub fn adopt(root: &Path, packages: &Path, from: &Path, name: &str) -> Result<PathBuf, Failure> {
    let packages = PackageDirectory::open(root, packages)?;
    let mut draft = packages.begin(name)?;
    draft.take_whole(from)?;
    draft.publish(name)?;
    Ok(packages.path.join(name))
}

/// The directory of the packages.
pub(crate) struct PackageDirectory {
    path: PathBuf,
}

/// A package under construction.
pub(crate) struct PackageDraft {
    packages: PathBuf,
    path: PathBuf,
    /// Holds the lock.
    _lock: File,
    payload: Vec<PayloadEntry>,
    /// The directories in it, to be synced.
    directories: BTreeSet<PathBuf>,
}

/// How a file came into a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Packed {
    Linked,
    Cloned,
    Copied,
}

impl PackageDirectory {
    /// Opens the directory; one below the root is made, any other must be there. What dead builders left is swept.
    pub(crate) fn open(root: &Path, path: &Path) -> Result<Self, Failure> {
        let whole = root.join(path);
        if path.is_absolute() {
            if !whole.is_dir() {
                let shown = whole.display();
                return Err(Failure::defer(format!("there is no directory {shown}")));
            }
        } else {
            fs::create_dir_all(&whole).map_err(|error| halted("make", &whole, &error))?;
        }
        let directory = Self { path: whole };
        directory.sweep()?;
        Ok(directory)
    }

    fn sweep(&self) -> Result<(), Failure> {
        let unread = |error: io::Error| halted("read", &self.path, &error);
        for entry in fs::read_dir(&self.path).map_err(unread)? {
            let entry = entry.map_err(unread)?;
            let name = entry.file_name();
            if !name.as_encoded_bytes().starts_with(TEMPORARY.as_bytes()) {
                continue;
            }
            let Ok(lock) = File::open(entry.path()) else {
                continue;
            };
            if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
                RealFs.remove_tree(&entry.path())?;
                tracing::info!(package = ?name, "half a package of a dead worker swept");
            }
        }
        Ok(())
    }

    /// Begins a package.
    pub(crate) fn begin(&self, name: &str) -> Result<PackageDraft, Failure> {
        let number = std::process::id();
        let thread = format!("{:?}", std::thread::current().id());
        let thread: String = thread.chars().filter(char::is_ascii_digit).collect();
        let path = self
            .path
            .join(format!("{TEMPORARY}package-{number}-{thread}-{name}"));
        // Of this process and this thread: nobody is building there.
        let made = RealFs
            .remove_tree(&path)
            .and_then(|()| fs::create_dir(&path))
            .and_then(|()| File::open(&path));
        let lock = made.map_err(|error| halted("make", &path, &error))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| Failure::halt(format!("cannot lock {}: {error}", path.display())))?;
        Ok(PackageDraft {
            packages: self.path.clone(),
            directories: BTreeSet::from([path.clone()]),
            path,
            _lock: lock,
            payload: Vec::new(),
        })
    }
}

impl PackageDraft {
    /// Takes in an archive file whose digests are known: linked, cloned or copied, whichever can be had first. Only a
    /// copy is read.
    pub(crate) fn take(
        &mut self,
        from: &Path,
        below: &str,
        wanted: &Fixity,
        sha512: &str,
        going: Going<'_>,
    ) -> Result<Packed, Failure> {
        let path = format!("data/{below}");
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", &path));
        let directory = self.folder(folder)?;
        let to = directory.join(name);
        let how = if RealFs.link(from, &to).is_ok() {
            Packed::Linked
        } else if clone(from, &to)? {
            Packed::Cloned
        } else {
            self.copy(from, folder, name, wanted, going)?;
            Packed::Copied
        };
        let bytes =
            fs::symlink_metadata(&to).map(|found| found.is_file().then_some(found.len()))?;
        if bytes != Some(wanted.bytes) {
            return Err(Failure::hold(format!(
                "the stored copy {} is no file of {} bytes",
                from.display(),
                wanted.bytes
            )));
        }
        self.payload.push(PayloadEntry {
            path,
            bytes: wanted.bytes,
            sha512: sha512.to_owned(),
        });
        Ok(how)
    }

    fn copy(
        &self,
        from: &Path,
        folder: &str,
        name: &str,
        wanted: &Fixity,
        going: Going<'_>,
    ) -> Result<(), Failure> {
        let shelf = CopyDirectory::make(&self.path, Path::new(folder), "package");
        let kept = shelf.and_then(|shelf| {
            let mut open = || -> io::Result<Box<dyn io::Read>> { Ok(Box::new(open_plain(from)?)) };
            shelf.keep(name, wanted, 0, &mut open, going)
        });
        kept.map(drop).map_err(|fault| match fault {
            CopyFault::Stopped => Failure::give_back(),
            CopyFault::Differs { .. } => Failure::hold(format!("{}: {fault}", from.display())),
            CopyFault::NoRoom { .. } | CopyFault::Place { .. } => Failure::halt(fault),
            fault => Failure::defer(fault),
        })
    }

    /// Writes a document; returns its size and digests.
    pub(crate) fn write(
        &mut self,
        below: &str,
        text: &str,
    ) -> Result<(u64, String, String), Failure> {
        let path = format!("data/{below}");
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", &path));
        let to = self.folder(folder)?.join(name);
        let mut file = OpenOptions::new().write(true).create_new(true).open(&to)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
        let sha512 = hex(&Sha512::digest(text.as_bytes()));
        let bytes = text.len() as u64;
        self.payload.push(PayloadEntry {
            path,
            bytes,
            sha512: sha512.clone(),
        });
        Ok((bytes, hex(&Sha256::digest(text.as_bytes())), sha512))
    }

    fn folder(&mut self, folder: &str) -> Result<PathBuf, Failure> {
        let mut path = self.path.clone();
        for step in folder.split('/') {
            path.push(step);
            if self.directories.insert(path.clone()) {
                fs::create_dir(&path)?;
            }
        }
        Ok(path)
    }

    /// Writes the tag files, makes everything durable and gives the package its name. Returns the digest of its seal. A package of that name that is the same, from before a crash, stays.
    pub(crate) fn seal(
        self,
        name: &str,
        info: &[InfoField],
        own: &[TagFile],
    ) -> Result<String, Failure> {
        let seal = write_tags(&self.path, info, &self.payload, own).map_err(Failure::halt)?;
        self.publish(name)?;
        Ok(seal)
    }

    fn publish(self, name: &str) -> Result<(), Failure> {
        for directory in self.directories.iter().rev() {
            File::open(directory)?.sync_all()?;
        }
        let to = self.packages.join(name);
        match rustix::fs::renameat_with(CWD, &self.path, CWD, &to, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            Err(Errno::EXIST) => {
                let is_same = fs::read(to.join(SEAL)).ok() == fs::read(self.path.join(SEAL)).ok();
                RealFs.remove_tree(&self.path)?;
                if !is_same {
                    return Err(Failure::hold(format!(
                        "there is another package {}: if it is not wanted, move it away and retry",
                        to.display()
                    )));
                }
            }
            Err(error) => {
                let shown = to.display();
                return Err(Failure::halt(format!("cannot name {shown}: {error}")));
            }
        }
        Ok(File::open(&self.packages)?.sync_all()?)
    }

    /// Makes it an object without an inventory, whose first version is a package that lies elsewhere; returns where it is.
    pub(crate) fn fill_object(&self, package: &Path) -> Result<PathBuf, Failure> {
        let content = self.path.join("v1/content");
        fs::create_dir_all(&content)?;
        let mut inner = PackageDraft {
            packages: self.path.clone(),
            directories: BTreeSet::from([content.clone()]),
            path: content,
            _lock: self._lock.try_clone()?,
            payload: Vec::new(),
        };
        inner.take_whole(package)?;
        for directory in inner.directories.iter().rev() {
            File::open(directory)?.sync_all()?;
        }
        Ok(self.path.clone())
    }

    /// Takes in every file of a package that lies elsewhere: linked where that can be, else copied.
    fn take_whole(&mut self, package: &Path) -> Result<(), Failure> {
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(package.join(&folder))? {
                let entry = entry?;
                let Ok(name) = entry.file_name().into_string() else {
                    continue;
                };
                let below = format!("{folder}{name}");
                if entry.file_type()?.is_dir() {
                    self.folder(&below)?;
                    folders.push(below + "/");
                    continue;
                }
                let to = self.path.join(&below);
                if RealFs.link(&entry.path(), &to).is_err() && !clone(&entry.path(), &to)? {
                    let mut source = open_plain(&entry.path())?;
                    let mut target = OpenOptions::new().write(true).create_new(true).open(&to)?;
                    io::copy(&mut source, &mut target)?;
                    target.sync_all()?;
                }
            }
        }
        Ok(())
    }

    /// Throws it away.
    pub(crate) fn discard(self) -> Result<(), Failure> {
        Ok(RealFs.remove_tree(&self.path)?)
    }
}

/// The machine's fault, with the path: whoever mends it must know where.
fn halted(verb: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::halt(format!("cannot {verb} {}: {error}", path.display()))
}

/// Makes a copy that shares its blocks with the original; tells whether the file system can.
fn clone(from: &Path, to: &Path) -> Result<bool, Failure> {
    let Ok(source) = open_plain(from) else {
        return Ok(false);
    };
    let target = OpenOptions::new().write(true).create_new(true).open(to)?;
    if rustix::fs::ioctl_ficlone(&target, &source).is_ok() {
        target.sync_all()?;
        return Ok(true);
    }
    RealFs.remove_tree(to)?;
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixity(bytes: &[u8]) -> Fixity {
        Fixity {
            bytes: bytes.len() as u64,
            sha256: ecluse_spool::digest(bytes),
        }
    }

    #[test]
    fn a_dead_builders_half_package_goes_and_a_living_ones_stays() {
        let root = tempfile::tempdir().unwrap();
        let packages = PackageDirectory::open(root.path(), Path::new("p")).unwrap();
        let draft = packages.begin("one").unwrap();
        let path = draft.path.clone();
        fs::create_dir(root.path().join("p/.ecluse-tmp-package-1-1-dead")).unwrap();
        fs::create_dir(root.path().join("p/one")).unwrap();
        packages.sweep().unwrap();
        assert!(path.exists());
        assert!(!root.path().join("p/.ecluse-tmp-package-1-1-dead").exists());
        drop(draft);
        packages.sweep().unwrap();
        assert!(!path.exists());
        assert!(root.path().join("p/one").exists());
    }

    #[test]
    fn a_package_never_takes_the_place_of_another() {
        let root = tempfile::tempdir().unwrap();
        let from = root.path().join("a.warc.gz");
        fs::write(&from, "abc").unwrap();
        let packages = PackageDirectory::open(root.path(), Path::new("p")).unwrap();
        let build = |text: &str| {
            let mut draft = packages.begin("one")?;
            let how = draft.take(&from, "x/a.warc.gz", &fixity(b"abc"), "00", &|| true)?;
            assert_eq!(how, Packed::Linked);
            draft.write("METS.xml", text)?;
            draft.seal("one", &[], &[])
        };
        let seal = build("<a/>").unwrap();
        assert_eq!(build("<a/>").unwrap(), seal);
        let path = root.path().join("p/one");
        let held = build("<b/>").unwrap_err();
        assert!(held.reason.contains("another package"), "{held}");
        assert_eq!(
            fs::read_to_string(path.join("data/METS.xml")).unwrap(),
            "<a/>"
        );
        let names: Vec<_> = fs::read_dir(root.path().join("p")).unwrap().collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }

    #[test]
    fn a_package_from_elsewhere_is_taken_in_whole_and_never_over_another() {
        let root = tempfile::tempdir().unwrap();
        let from = root.path().join("other");
        fs::create_dir_all(from.join("data/x")).unwrap();
        fs::write(from.join(SEAL), "seal").unwrap();
        fs::write(from.join("data/x/a"), "abc").unwrap();
        let take = || adopt(root.path(), Path::new("p"), &from, "one");
        let there = take().unwrap();
        assert_eq!(fs::read(there.join("data/x/a")).unwrap(), b"abc");
        assert_eq!(take().unwrap(), there, "it is the same");
        // A new file: the old one is linked.
        RealFs.unlink(&from.join(SEAL)).unwrap();
        fs::write(from.join(SEAL), "another").unwrap();
        let held = take().unwrap_err();
        assert!(held.reason.contains("another package"), "{held}");
    }

    #[test]
    fn a_copy_is_read_back_and_a_bad_one_is_held() {
        let root = tempfile::tempdir().unwrap();
        let from = root.path().join("a.warc.gz");
        fs::write(&from, "abc").unwrap();
        let packages = PackageDirectory::open(root.path(), Path::new("p")).unwrap();
        let mut draft = packages.begin("one").unwrap();
        let folder = draft.folder("data/x").unwrap();
        draft
            .copy(&from, "data/x", "a", &fixity(b"abc"), &|| true)
            .unwrap();
        assert_eq!(fs::read(folder.join("a")).unwrap(), b"abc");
        let bad = draft
            .copy(&from, "data/x", "b", &fixity(b"abd"), &|| true)
            .unwrap_err();
        assert!(bad.reason.contains("ingest took"), "{bad}");
        let short = draft
            .take(&from, "x/c", &fixity(b"ab"), "00", &|| true)
            .unwrap_err();
        assert!(short.reason.contains("no file of 2 bytes"), "{short}");
    }
}
