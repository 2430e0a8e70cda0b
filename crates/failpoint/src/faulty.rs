//! The decorator: every call goes to the real file system, and then to the plan of who dies where.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ecluse_spool::{FileKind, Fs, Inside, Lease, Room, SeekRead, Sink, Stat};

use super::Call;

/// What a file system lies about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    NoFsync,
    ReceiptFirst,
    TwoRenames,
}

/// A file system that kills or lies.
pub(super) struct FaultyFs {
    inner: Arc<dyn Fs>,
    work: PathBuf,
    lie: Option<Lie>,
    /// Manifests that `receipt-first` has not written yet.
    kept_back: Mutex<BTreeMap<PathBuf, Vec<u8>>>,
}

impl FaultyFs {
    pub(super) fn from_environment(inner: Arc<dyn Fs>, work: &Path) -> Arc<dyn Fs> {
        let lie = if cfg!(feature = "mutants") {
            match std::env::var("ECLUSE_MUTANT").as_deref() {
                Ok("no-fsync") => Some(Lie::NoFsync),
                Ok("receipt-first") => Some(Lie::ReceiptFirst),
                Ok("two-renames") => Some(Lie::TwoRenames),
                _ => None,
            }
        } else {
            None
        };
        Arc::new(Self {
            inner,
            work: work.to_owned(),
            lie,
            kept_back: Mutex::default(),
        })
    }

    /// A call has changed something: perhaps it was the last.
    fn after(&self, call: Call, path: &Path, from: Option<&Path>) {
        #[cfg(feature = "failpoints")]
        super::plan::pass(|| {
            let step = super::step::step_of(call, &self.work, path, from)?;
            if step == "committed" && from.is_some_and(|sheet| self.is_members(sheet, path)) {
                return Some("member-filed");
            }
            Some(step)
        });
        #[cfg(not(feature = "failpoints"))]
        let _ = (call, path, from);
    }

    /// Tells whether a receipt is filed under the name of a member of a batch, not under that of the work.
    #[cfg(feature = "failpoints")]
    fn is_members(&self, sheet: &Path, receipt: &Path) -> bool {
        let work = receipt.file_stem().unwrap_or_default().to_string_lossy();
        let sheet = self.inner.read(sheet, 1 << 30).unwrap_or_default();
        memchr::memmem::find(&sheet, format!("{{\"work\":\"{work}\"").as_bytes()).is_none()
    }

    /// Tells whether a path is of this kind: below the work directories, then stage, then `place`.
    fn is_in(&self, path: &Path, place: &str) -> bool {
        let below = path.strip_prefix(&self.work);
        below.is_ok_and(|below| below.iter().nth(1) == Some(OsStr::new(place)))
    }

    fn lies_of_sync(&self, path: &Path) -> bool {
        match self.lie {
            // What a commit waits for; that a worker was born is not part of it.
            Some(Lie::NoFsync) => {
                self.is_in(path, "receipts")
                    || self.is_in(path, "claim") && path.iter().any(|name| name == "out")
                    || self.is_home(path)
            }
            Some(Lie::ReceiptFirst) => self.kept_back().contains_key(path),
            Some(Lie::TwoRenames) | None => false,
        }
    }

    fn is_home(&self, path: &Path) -> bool {
        let claim = path.parent().and_then(Path::file_name);
        self.is_in(path, "claim") && claim == Some(OsStr::new("claim"))
    }

    fn kept_back(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Vec<u8>>> {
        self.kept_back
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the manifests of the piece of work whose receipt is linked at `receipt`.
    fn write_kept_back(&self, receipt: &Path) -> io::Result<()> {
        let work = receipt.file_stem();
        let mut kept_back = self.kept_back();
        let paths: Vec<PathBuf> = kept_back
            .keys()
            .filter(|path| path.iter().any(|name| Some(name) == work))
            .cloned()
            .collect();
        for path in paths {
            let bytes = kept_back.remove(&path).unwrap_or_default();
            self.inner.write_new(&path, &bytes)?;
            self.after(Call::Make, &path, None);
        }
        Ok(())
    }

    /// Takes a dead worker's directory part by part.
    fn take_in_parts(&self, home: &Path, taken: &Path) -> io::Result<()> {
        self.inner.stat(home)?;
        self.ensure_dir(taken)?;
        for part in ["in", "out", "adopt"] {
            let (from, to) = (home.join(part), taken.join(part));
            match self.inner.rename(&from, &to) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                renamed => renamed?,
            }
            self.after(Call::Rename, &to, Some(&from));
        }
        self.remove_tree(home)
    }
}

impl Fs for FaultyFs {
    fn mkdir(&self, path: &Path) -> io::Result<()> {
        self.inner.mkdir(path)?;
        self.after(Call::Make, path, None);
        Ok(())
    }

    fn rmdir(&self, path: &Path) -> io::Result<()> {
        self.inner.rmdir(path)?;
        self.after(Call::Remove, path, None);
        Ok(())
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.inner.unlink(path)?;
        self.after(Call::Remove, path, None);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if self.lie == Some(Lie::TwoRenames) && self.is_home(from) && self.is_in(to, "reap") {
            return self.take_in_parts(from, to);
        }
        self.inner.rename(from, to)?;
        self.after(Call::Rename, to, Some(from));
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.link(from, to)?;
        self.after(Call::Link, to, Some(from));
        if self.lie == Some(Lie::ReceiptFirst) && self.is_in(to, "receipts") {
            self.write_kept_back(to)?;
        }
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Sink>> {
        let sink = self.inner.create(path)?;
        self.after(Call::Make, path, None);
        Ok(sink)
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn Sink>> {
        let sink = self.inner.append(path)?;
        self.after(Call::Make, path, None);
        Ok(sink)
    }

    fn truncate(&self, path: &Path, bytes: u64) -> io::Result<()> {
        self.inner.truncate(path, bytes)?;
        self.after(Call::Make, path, None);
        Ok(())
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn SeekRead>> {
        self.inner.open(path)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.inner.stat(path)
    }

    fn visit(
        &self,
        dir: &Path,
        visit: &mut dyn FnMut(&OsStr, FileKind) -> ControlFlow<()>,
    ) -> io::Result<()> {
        self.inner.visit(dir, visit)
    }

    fn look_inside<'fs>(&'fs self, dir: &'fs Path) -> io::Result<Box<dyn Inside + 'fs>> {
        self.inner.look_inside(dir)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        if !self.lies_of_sync(path) {
            self.inner.sync_file(path)?;
        }
        self.after(Call::Sync, path, None);
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        if !self.lies_of_sync(path) {
            self.inner.sync_dir(path)?;
        }
        self.after(Call::Sync, path, None);
        Ok(())
    }

    fn sync_dirs(&self, dirs: &[PathBuf]) -> io::Result<()> {
        let Some(last) = dirs.last() else {
            return Ok(());
        };
        if !self.lies_of_sync(last) {
            self.inner.sync_dirs(dirs)?;
        }
        self.after(Call::Sync, last, None);
        Ok(())
    }

    fn sync_all(&self, path: &Path) -> io::Result<()> {
        if !self.lies_of_sync(path) {
            self.inner.sync_all(path)?;
        }
        // Asked for by a large commit: the same step as the syncs it stands for.
        self.after(Call::Sync, &path.join("out"), None);
        Ok(())
    }

    fn touch(&self, path: &Path) -> io::Result<()> {
        self.inner.touch(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lease>>> {
        let lease = self.inner.lock(path)?;
        self.after(Call::Lock, path, None);
        Ok(lease)
    }

    fn room(&self, path: &Path) -> io::Result<Room> {
        self.inner.room(path)
    }

    fn is_one_machines(&self, path: &Path) -> bool {
        self.inner.is_one_machines(path)
    }

    fn write_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let is_manifest = path
            .file_name()
            .is_some_and(|name| name == "parcel.json" || name == ".parcel.json");
        let is_output = self.is_in(path, "claim") && path.iter().any(|name| name == "out");
        if self.lie == Some(Lie::ReceiptFirst) && is_manifest && is_output {
            self.kept_back().insert(path.to_owned(), bytes.to_owned());
            return Ok(());
        }
        self.inner.write_new(path, bytes)?;
        self.after(Call::Make, path, None);
        Ok(())
    }

    fn write_durable(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        if self.lies_of_sync(path) {
            return self.write_new(path, bytes);
        }
        self.inner.write_durable(path, bytes)?;
        self.after(Call::Make, path, None);
        Ok(())
    }

    fn overwrite(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.inner.overwrite(path, bytes)
    }
}
