//! The work tree: where every stage's work directory lies, and what all workers of a machine share.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use crate::clock::LastReading;
use crate::error::{At, Result, SpoolError};
use crate::fs::{FileKind, Fs, RealFs};
use crate::name::{ParcelEntry, ParcelId, WorkerId};
use crate::worker::LeaseNote;

/// Who this machine is, as far as leases are concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Host name.
    pub name: String,
    /// Changes at every boot.
    pub boot: String,
    /// Tells two machines of one name apart; empty when the machine has none.
    pub machine: String,
    /// This process.
    pub pid: u32,
}

impl Host {
    /// Reads the identity of this machine.
    pub fn this() -> Self {
        let read = |path: &str| {
            std::fs::read_to_string(path)
                .map(|text| text.trim().to_owned())
                .unwrap_or_default()
        };
        Self {
            name: rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
            boot: read("/proc/sys/kernel/random/boot_id"),
            machine: read("/etc/machine-id"),
            pid: std::process::id(),
        }
    }

    /// Tells whether the lock of a worker's lease shows that the worker lives; if not, only its
    /// heartbeat does. `is_one_machines`: no second machine can use the file system.
    ///
    /// * The same host and boot: one kernel, which knows who holds a lock.
    /// * The same host booted again: its old workers are dead, but two machines copied from one
    ///   image have the same name and machine-id, and a network file system may be mounted so that
    ///   a machine does not see the locks of others (`nolock`, `local_lock=all`). So only where no
    ///   other machine could be meant.
    /// * Without a machine-id, two hosts of one name cannot be told apart.
    pub(crate) fn knows_lock_of(
        &self,
        worker: &LeaseNote,
        is_one_machines: impl FnOnce() -> bool,
    ) -> bool {
        if worker.host != self.name || worker.machine != self.machine {
            return false;
        }
        let is_same_boot = !self.boot.is_empty() && worker.boot == self.boot;
        is_same_boot || (!self.machine.is_empty() && is_one_machines())
    }
}

/// The wall clock, in milliseconds since 1970. For texts that people read: what is decided goes by
/// the file system's clock or the monotonic one.
pub type Wall = Arc<dyn Fn() -> u64 + Send + Sync>;
/// The clock of this process that never goes back: what waits are measured with.
pub type Monotonic = Arc<dyn Fn() -> Instant + Send + Sync>;
/// The source of random names.
pub type RandomSource = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Where the work directories lie, and what the workers of a machine share.
#[derive(Clone)]
pub struct WorkTree {
    pub(crate) fs: Arc<dyn Fs>,
    work: PathBuf,
    /// This machine.
    pub host: Host,
    pub(crate) wall: Wall,
    pub(crate) monotonic: Monotonic,
    pub(crate) reading: LastReading,
    pub(crate) dice: RandomSource,
}

impl WorkTree {
    /// Opens the work tree under `work` on this machine's file system.
    pub fn open(work: &Path) -> Self {
        let wall = Arc::new(|| {
            std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |since| since.as_millis() as u64)
        });
        let dice = Arc::new(|| getrandom::u64().unwrap_or_else(|_| u64::from(std::process::id())));
        Self::with(
            around(Arc::new(RealFs), work),
            work,
            Host::this(),
            wall,
            dice,
        )
    }

    /// Opens a work tree on any file system, with any clock: for tests.
    pub fn with(fs: Arc<dyn Fs>, work: &Path, host: Host, wall: Wall, dice: RandomSource) -> Self {
        Self {
            fs,
            work: work.to_owned(),
            host,
            wall,
            monotonic: Arc::new(Instant::now),
            reading: Arc::default(),
            dice,
        }
    }

    /// The same tree with another monotonic clock: for tests.
    #[must_use]
    pub fn with_monotonic(self, monotonic: Monotonic) -> Self {
        Self { monotonic, ..self }
    }

    /// Returns the directory that holds every stage's.
    pub fn work(&self) -> &Path {
        &self.work
    }

    /// Returns the paths of a stage.
    pub fn stage(&self, name: &str) -> StageDir {
        StageDir {
            name: name.to_owned(),
            root: self.work.join(name),
        }
    }

    /// Names the stages that have a work directory, sorted.
    pub fn stages(&self) -> Result<Vec<String>> {
        let entries = self.list(&self.work)?.into_iter();
        let mut names: Vec<String> = entries
            .filter(|(_, kind)| *kind == FileKind::Dir)
            .filter_map(|(name, _)| name.into_string().ok())
            .collect();
        names.sort();
        Ok(names)
    }

    /// Makes the work directory of a stage, or finds it made.
    ///
    /// # Errors
    /// When it does not lie on the file system of all work directories: a rename from one to another
    /// would not be one step.
    pub fn init(&self, stage: &str) -> Result<StageDir> {
        let dir = self.stage(stage);
        let mut made = false;
        for ancestor in [self.work.parent(), Some(self.work.as_path())]
            .into_iter()
            .flatten()
        {
            if !ancestor.as_os_str().is_empty() {
                self.fs.ensure_dir(ancestor).at("make", ancestor)?;
            }
        }
        let device = self.device_of(&self.work)?;
        for path in std::iter::once(dir.root.clone()).chain(dir.parts()) {
            made |= self.fs.ensure_dir(&path).at("make", &path)?;
            if self.device_of(&path)? != device {
                return Err(SpoolError::Refused(format!(
                    "{} lies on another file system than {}: one rename could not move a parcel",
                    path.display(),
                    self.work.display()
                )));
            }
        }
        if made {
            self.fs.sync_dir(&dir.root).at("sync", &dir.root)?;
            self.fs.sync_dir(&self.work).at("sync", &self.work)?;
        }
        Ok(dir)
    }

    /// Returns the device a directory lies on; refuses what is none, and a link to one.
    fn device_of(&self, path: &Path) -> Result<u64> {
        let stat = self.fs.stat(path).at("look at", path)?;
        let what = match stat.kind {
            FileKind::Dir => return Ok(stat.device),
            FileKind::Symlink => "a symbolic link, which is refused here",
            FileKind::File | FileKind::Other => "not a directory",
        };
        Err(SpoolError::Refused(format!("{} is {what}", path.display())))
    }

    /// Returns the present time as RFC 3339.
    pub(crate) fn now_text(&self) -> String {
        time_text((self.wall)())
    }

    /// Returns where a parcel waits in a stage.
    pub(crate) fn ready_slot(&self, dir: &StageDir, entry: &ParcelEntry) -> PathBuf {
        dir.ready().join(entry.file_name())
    }
}

/// Returns a time, in milliseconds since 1970, as RFC 3339: for texts that people read.
pub fn time_text(millis: u64) -> String {
    let millis = i64::try_from(millis).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(millis).map_or_else(|_| String::new(), |t| t.to_string())
}

/// Puts a file system around another, for the work directories under a path.
#[cfg(feature = "failpoints")]
pub type Around = fn(Arc<dyn Fs>, &Path) -> Arc<dyn Fs>;

/// What is put around the file system of every work tree that this process opens: for torture, set before the first is opened.
#[cfg(feature = "failpoints")]
pub static AROUND: std::sync::OnceLock<Around> = std::sync::OnceLock::new();

#[cfg(feature = "failpoints")]
fn around(fs: Arc<dyn Fs>, work: &Path) -> Arc<dyn Fs> {
    match AROUND.get() {
        Some(around) => around(fs, work),
        None => fs,
    }
}

#[cfg(not(feature = "failpoints"))]
fn around(fs: Arc<dyn Fs>, _work: &Path) -> Arc<dyn Fs> {
    fs
}

/// The name of a commit record.
pub(crate) fn receipt_name(work: &ParcelId) -> String {
    format!("{work}.json")
}

/// The paths of one stage's work directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageDir {
    /// The stage.
    pub name: String,
    root: PathBuf,
}

impl StageDir {
    /// `work/<stage>`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where anybody may put a file.
    pub fn drop(&self) -> PathBuf {
        self.root.join("drop")
    }

    /// Claimable parcels.
    pub fn ready(&self) -> PathBuf {
        self.root.join("ready")
    }

    /// Living workers.
    pub fn claim(&self) -> PathBuf {
        self.root.join("claim")
    }

    /// Dead workers being settled.
    pub fn reap(&self) -> PathBuf {
        self.root.join("reap")
    }

    /// Parcels that wait for the world.
    pub fn deferred(&self) -> PathBuf {
        self.root.join("deferred")
    }

    /// Parcels that wait for a person.
    pub fn held(&self) -> PathBuf {
        self.root.join("held")
    }

    /// The commit records.
    pub fn receipts(&self) -> PathBuf {
        self.root.join("receipts")
    }

    /// The commit record of a piece of work.
    pub fn receipt(&self, work: &ParcelId) -> PathBuf {
        let mut path = self.receipts();
        path.push(work.shard());
        path.push(receipt_name(work));
        path
    }

    /// The ledger of old receipts.
    pub fn ledger(&self) -> PathBuf {
        self.root.join("ledger")
    }

    /// Where things are built; never scanned.
    pub fn tmp(&self) -> PathBuf {
        self.root.join("tmp")
    }

    /// Present: claim nothing.
    pub fn paused(&self) -> PathBuf {
        self.root.join("PAUSED")
    }

    /// A living worker's directory.
    pub fn home(&self, worker: &WorkerId) -> PathBuf {
        self.claim().join(worker.as_str())
    }

    fn parts(&self) -> [PathBuf; 9] {
        [
            self.drop(),
            self.ready(),
            self.claim(),
            self.reap(),
            self.deferred(),
            self.held(),
            self.receipts(),
            self.ledger(),
            self.tmp(),
        ]
    }
}
