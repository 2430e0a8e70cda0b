//! Whether a file system can carry a work directory: the few properties the protocol leans on are tried, in a directory
//! of their own, before any parcel depends on them.

mod two;

use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;

use two::SecondProcess;
pub use two::second_process;

use crate::error::{At, Result};
use crate::fs::{FileKind, Fs};
use crate::tree::WorkTree;

impl WorkTree {
    /// Tries what a work directory needs of its file system in `tmp/` of a stage, and says what is wrong, with what helps.
    ///
    /// # Errors
    /// When nothing can be tried there: it is full, read-only, or somebody else's.
    pub fn fitness(&self, stage: &str) -> Result<Vec<String>> {
        self.try_in(stage, |dir| probe(&*self.fs, dir))
    }

    /// The same, and what two processes must see of each other. `second` makes the command of the other process for a
    /// directory: a program that calls [`second_process`] for it with its standard input and output.
    ///
    /// # Errors
    /// As [`WorkTree::fitness`], and when the other process cannot be started.
    pub fn fitness_for_two(
        &self,
        stage: &str,
        second: impl FnOnce(&Path) -> Command,
    ) -> Result<Vec<String>> {
        let faults = self.fitness(stage)?;
        if !faults.is_empty() {
            return Ok(faults);
        }
        self.try_in(stage, |dir| {
            let mut other = SecondProcess::start(&mut second(dir))?;
            two::probe(&*self.fs, dir, &mut other)
        })
    }

    /// Tries something in a directory of its own.
    fn try_in(
        &self,
        stage: &str,
        probe: impl FnOnce(&Path) -> io::Result<Vec<String>>,
    ) -> Result<Vec<String>> {
        let dir = self.stage(stage).tmp();
        let dir = dir.join(format!("fitness-{:016x}", (self.dice)()));
        self.fs.mkdir(&dir).at("make", &dir)?;
        let faults = probe(&dir).at("try the file system in", &dir);
        // What stays, because something is very wrong, is swept with the rest of `tmp/`.
        let _ = clear(&*self.fs, &dir);
        faults
    }
}

/// Tries each property and names those that do not hold.
fn probe(fs: &dyn Fs, dir: &Path) -> io::Result<Vec<String>> {
    let mut faults = Vec::new();
    let file = dir.join("file");
    fs.write_new(&file, b"whole")?;
    if fs.read(&file, 100)? != b"whole" {
        faults.push(
            "what was written is not what is read: mount it without caches of its own".into(),
        );
    }
    links(fs, dir, &file, &mut faults)?;
    renames(fs, dir, &mut faults)?;
    locks(fs, &file, &mut faults);
    if let Err(error) = fs.sync_dir(dir) {
        faults.push(format!(
            "a directory cannot be synced ({error}): a power cut would lose what was done"
        ));
    }
    sight(fs, dir, &mut faults)?;
    Ok(faults)
}

/// A receipt is a link: its first wins, and both names are one file.
fn links(fs: &dyn Fs, dir: &Path, file: &Path, faults: &mut Vec<String>) -> io::Result<()> {
    let second = dir.join("second");
    if let Err(error) = fs.link(file, &second) {
        faults.push(format!("a file cannot have two names ({error})"));
        return Ok(());
    }
    if fs.stat(file)?.inode != fs.stat(&second)?.inode {
        faults.push(
            "the two names of one file have different inodes, as over sshfs: use NFSv4 instead"
                .into(),
        );
    }
    for name in [file, &second] {
        if let Some(count @ (0 | 1 | 3..)) = fs.link_count(name)? {
            faults.push(format!(
                "a file with two names is said to have {count}: mount it without caching attributes (attribute-timeout=0, noac)"
            ));
            break;
        }
    }
    match fs.link(file, &second) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => faults.push(format!(
            "a name that is taken is refused with {error}, not as taken"
        )),
        Ok(()) => faults.push("a second file takes a name that is taken".into()),
    }
    Ok(())
}

/// A parcel moves by one rename, and never onto another.
fn renames(fs: &dyn Fs, dir: &Path, faults: &mut Vec<String>) -> io::Result<()> {
    let (one, two, moved) = (dir.join("one"), dir.join("two"), dir.join("moved"));
    for parcel in [&one, &two] {
        fs.mkdir(parcel)?;
        fs.write_new(&parcel.join("inside"), b"x")?;
    }
    if let Err(error) = fs.rename(&one, &moved) {
        faults.push(format!("a directory cannot be renamed ({error})"));
        return Ok(());
    }
    let is_there = |path: &Path| fs.stat(path).is_ok();
    if is_there(&one) || !is_there(&moved.join("inside")) {
        faults.push("a renamed directory is seen under its old name: mount it without caching names (entry-timeout=0, lookupcache=none)".into());
    }
    if fs.rename(&moved, &two).is_ok() {
        faults.push("a directory takes the place of another that is not empty".into());
    }
    let (old, new) = (dir.join("old"), dir.join("new"));
    fs.write_new(&old, b"old")?;
    fs.write_new(&new, b"new")?;
    match fs.rename(&new, &old) {
        Err(error) => faults.push(format!("a file cannot be replaced by a rename ({error})")),
        Ok(()) if fs.read(&old, 100)? != b"new" => {
            faults.push("a file that was replaced by a rename is read as it was: mount it without caches of its own".into());
        }
        Ok(()) => {}
    }
    Ok(())
}

/// A worker lives as long as its lease is locked.
fn locks(fs: &dyn Fs, file: &Path, faults: &mut Vec<String>) {
    const HELP: &str = "over NFS mount it without nolock and local_lock";
    let first = match fs.lock(file) {
        Ok(Some(first)) => first,
        Ok(None) => {
            faults.push(format!("a file that nobody has locked is locked: {HELP}"));
            return;
        }
        Err(error) => {
            faults.push(format!("a file cannot be locked ({error}): {HELP}"));
            return;
        }
    };
    if !matches!(fs.lock(file), Ok(None)) {
        faults.push(format!("two can hold one lock: {HELP}"));
    }
    drop(first);
    if !matches!(fs.lock(file), Ok(Some(_))) {
        faults.push(format!("a lock that was let go of stays: {HELP}"));
    }
}

/// A scan sees what is there.
fn sight(fs: &dyn Fs, dir: &Path, faults: &mut Vec<String>) -> io::Result<()> {
    let mut missing = vec!["file", "two", "old"];
    fs.visit(dir, &mut |name, _| {
        missing.retain(|known| name != *known);
        ControlFlow::Continue(())
    })?;
    if !missing.is_empty() {
        faults.push("a directory does not list what was just made in it: mount it without caching directories".into());
    }
    Ok(())
}

fn clear(fs: &dyn Fs, dir: &Path) -> io::Result<()> {
    for (name, kind) in fs.list(dir)? {
        let path = dir.join(name);
        match kind {
            FileKind::Dir => clear(fs, &path)?,
            _ => fs.unlink(&path)?,
        }
    }
    fs.rmdir(dir)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::ffi::OsStr;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::fs::{Inside, Lease, RealFs, Room, SeekRead, Sink, Stat};

    #[derive(Clone, Copy, Debug, PartialEq)]
    pub(super) enum Lie {
        None,
        TwoInodes,
        OneLink,
        LinkTakesAll,
        NoLinks,
        RenameLeaves,
        LocksForAll,
        NoLocks,
        LocksForEver,
        NoSyncOfDirectories,
        ListsNothing,
    }

    pub(super) struct LyingFs {
        lie: Lie,
        locked: AtomicBool,
    }

    impl LyingFs {
        pub(super) fn new(lie: Lie) -> Self {
            let locked = AtomicBool::new(false);
            Self { lie, locked }
        }

        fn refuse(&self, lie: Lie) -> io::Result<()> {
            match self.lie == lie {
                true => Err(io::ErrorKind::Unsupported.into()),
                false => Ok(()),
            }
        }
    }

    impl Fs for LyingFs {
        fn mkdir(&self, path: &Path) -> io::Result<()> {
            RealFs.mkdir(path)
        }
        fn rmdir(&self, path: &Path) -> io::Result<()> {
            RealFs.rmdir(path)
        }
        fn unlink(&self, path: &Path) -> io::Result<()> {
            RealFs.unlink(path)
        }
        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            RealFs.rename(from, to)?;
            if self.lie == Lie::RenameLeaves {
                RealFs.mkdir(from)?;
            }
            Ok(())
        }
        fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
            self.refuse(Lie::NoLinks)?;
            match RealFs.link(from, to) {
                Err(_) if self.lie == Lie::LinkTakesAll => Ok(()),
                other => other,
            }
        }
        fn create(&self, path: &Path) -> io::Result<Box<dyn Sink>> {
            RealFs.create(path)
        }
        fn append(&self, path: &Path) -> io::Result<Box<dyn Sink>> {
            RealFs.append(path)
        }
        fn open(&self, path: &Path) -> io::Result<Box<dyn SeekRead>> {
            RealFs.open(path)
        }
        fn truncate(&self, path: &Path, bytes: u64) -> io::Result<()> {
            RealFs.truncate(path, bytes)
        }
        fn stat(&self, path: &Path) -> io::Result<Stat> {
            let mut stat = RealFs.stat(path)?;
            if self.lie == Lie::TwoInodes && path.ends_with("second") {
                stat.inode += 1;
            }
            Ok(stat)
        }
        fn link_count(&self, path: &Path) -> io::Result<Option<u64>> {
            match self.lie {
                Lie::OneLink => Ok(Some(1)),
                _ => RealFs.link_count(path),
            }
        }
        fn visit(
            &self,
            dir: &Path,
            visit: &mut dyn FnMut(&OsStr, FileKind) -> ControlFlow<()>,
        ) -> io::Result<()> {
            match self.lie {
                Lie::ListsNothing => Ok(()),
                _ => RealFs.visit(dir, visit),
            }
        }
        fn look_inside<'fs>(&'fs self, dir: &'fs Path) -> io::Result<Box<dyn Inside + 'fs>> {
            RealFs.look_inside(dir)
        }
        fn sync_file(&self, path: &Path) -> io::Result<()> {
            RealFs.sync_file(path)
        }
        fn sync_dir(&self, path: &Path) -> io::Result<()> {
            self.refuse(Lie::NoSyncOfDirectories)?;
            RealFs.sync_dir(path)
        }
        fn sync_dirs(&self, dirs: &[PathBuf]) -> io::Result<()> {
            RealFs.sync_dirs(dirs)
        }
        fn sync_all(&self, path: &Path) -> io::Result<()> {
            RealFs.sync_all(path)
        }
        fn touch(&self, path: &Path) -> io::Result<()> {
            RealFs.touch(path)
        }
        fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lease>>> {
            self.refuse(Lie::NoLocks)?;
            let was = self.locked.swap(true, Ordering::SeqCst);
            match self.lie {
                Lie::LocksForAll => Ok(Some(Box::new(std::fs::File::open(path)?))),
                Lie::LocksForEver if was => Ok(None),
                _ => RealFs.lock(path),
            }
        }
        fn room(&self, path: &Path) -> io::Result<Room> {
            RealFs.room(path)
        }
        fn is_one_machines(&self, path: &Path) -> bool {
            RealFs.is_one_machines(path)
        }
    }

    fn faults(lie: Lie) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let fs = LyingFs::new(lie);
        let faults = probe(&fs, dir.path()).unwrap();
        if lie == Lie::None {
            clear(&fs, dir.path()).unwrap();
            assert!(!dir.path().exists());
        }
        faults
    }

    #[test]
    fn a_file_system_that_lies_is_found_out() {
        assert_eq!(faults(Lie::None), [""; 0]);
        for (lie, words) in [
            (Lie::TwoInodes, "different inodes"),
            (Lie::OneLink, "is said to have 1"),
            (Lie::LinkTakesAll, "takes a name that is taken"),
            (Lie::NoLinks, "cannot have two names"),
            (Lie::RenameLeaves, "under its old name"),
            (Lie::LocksForAll, "two can hold one lock"),
            (Lie::NoLocks, "cannot be locked"),
            (Lie::LocksForEver, "a lock that was let go of stays"),
            (Lie::NoSyncOfDirectories, "cannot be synced"),
            (Lie::ListsNothing, "does not list"),
        ] {
            let faults = faults(lie);
            assert_eq!(faults.len(), 1, "{lie:?}: {faults:?}");
            assert!(faults[0].contains(words), "{lie:?}: {faults:?}");
        }
    }

    #[test]
    fn this_file_system_is_fit_and_nothing_is_left_of_the_trial() {
        let dir = tempfile::tempdir().unwrap();
        let tree = WorkTree::open(&dir.path().join("work"));
        let stage = tree.init("one").unwrap();
        assert_eq!(tree.fitness("one").unwrap(), [""; 0]);
        assert_eq!(std::fs::read_dir(stage.tmp()).unwrap().count(), 0);
    }
}
