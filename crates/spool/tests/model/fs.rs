//! The calls of a process on a model disk: counted, recorded, failed or held up as a test asks.

use std::ffi::OsStr;
use std::io::{self, Cursor, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use ecluse_spool::{FileKind, Fs, Inside, InsideByPath, Lease, Room, SeekRead, Sink, Stat};
use rustix::io::Errno;

use super::disk::{Disk, Inode};

/// A disk that several processes share.
pub(crate) type Shared = Arc<Mutex<Disk>>;

/// What is on the disk just before a call that changes something.
pub(crate) struct Moment {
    /// The call.
    pub(crate) call: String,
    /// The disk.
    pub(crate) disk: Disk,
}

/// A call that fails, without effect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    /// The first call to fail, counted from 0.
    pub(crate) at: usize,
    /// How many fail.
    pub(crate) calls: usize,
    /// How.
    pub(crate) error: Errno,
}

/// One process: its calls go to the disk one after the other.
#[derive(Clone)]
pub(crate) struct Process {
    disk: Shared,
    calls: Arc<AtomicUsize>,
    moments: Option<Arc<Mutex<Vec<Moment>>>>,
    fault: Option<Fault>,
    failed: Arc<Mutex<String>>,
    syncs: Arc<Mutex<Vec<usize>>>,
    turn: Option<(Arc<Turns>, usize)>,
    backwards: bool,
    /// A network file system mounted so that machines do not see each other's locks.
    network: bool,
    /// May look and change nothing.
    reader: bool,
}

/// Whether a call changes what is on the disk, or what a crash leaves of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    Reads,
    Changes,
}

impl Process {
    /// Starts a process on a disk.
    pub(crate) fn new(disk: Disk) -> Self {
        Self::on(&Arc::new(Mutex::new(disk)))
    }

    /// Starts a process on a disk it shares.
    pub(crate) fn on(disk: &Shared) -> Self {
        // No order of a listing is promised: every second life sees the other one.
        let backwards = lock(disk).lives.is_multiple_of(2);
        Self {
            disk: Arc::clone(disk),
            calls: Arc::default(),
            moments: None,
            fault: None,
            failed: Arc::default(),
            syncs: Arc::default(),
            turn: None,
            backwards,
            network: false,
            reader: false,
        }
    }

    /// Makes the disk a network file system mounted without common locks.
    pub(crate) fn on_network(mut self) -> Self {
        self.network = true;
        self
    }

    /// Lets the process look and change nothing.
    pub(crate) fn reading_only(mut self) -> Self {
        self.reader = true;
        self
    }

    /// Keeps the disk as it is before every change.
    pub(crate) fn recording(mut self) -> Self {
        self.moments = Some(Arc::default());
        self
    }

    /// Lets some calls fail.
    pub(crate) fn failing(mut self, fault: Fault) -> Self {
        self.fault = Some(fault);
        self
    }

    /// Takes turns with another process, as number `me`.
    pub(crate) fn taking_turns(mut self, turns: &Arc<Turns>, me: usize) -> Self {
        self.turn = Some((Arc::clone(turns), me));
        self
    }

    /// Returns the disk, locked.
    pub(crate) fn disk(&self) -> MutexGuard<'_, Disk> {
        lock(&self.disk)
    }

    /// Returns how many calls were made.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    /// Returns how many changes were recorded.
    pub(crate) fn changes(&self) -> usize {
        let moments = self.moments.as_ref();
        moments.map_or(0, |moments| moments.lock().unwrap().len())
    }

    /// Names the call that failed last.
    pub(crate) fn failed(&self) -> Arc<Mutex<String>> {
        Arc::clone(&self.failed)
    }

    /// Returns the numbers of the calls that were syncs.
    pub(crate) fn syncs(&self) -> Vec<usize> {
        self.syncs.lock().unwrap().clone()
    }

    /// Returns the moments kept, with the last, after which nothing was changed.
    pub(crate) fn moments(&self) -> Vec<Moment> {
        let mut moments = match &self.moments {
            Some(moments) => std::mem::take(&mut *moments.lock().unwrap()),
            None => Vec::new(),
        };
        moments.push(Moment {
            call: "the end".into(),
            disk: self.disk().clone(),
        });
        moments
    }

    fn enter(&self, call: &str, path: &Path, effect: Effect) -> io::Result<MutexGuard<'_, Disk>> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        if let Some((turns, me)) = &self.turn {
            turns.before_call(*me, number);
        }
        if call.starts_with("sync") {
            self.syncs.lock().unwrap().push(number);
        }
        if self.reader && (effect == Effect::Changes || call == "lock") {
            return Err(Errno::ACCESS.into());
        }
        let mut disk = self.disk();
        if effect == Effect::Changes
            && let Some(moments) = &self.moments
        {
            moments.lock().unwrap().push(Moment {
                call: format!("{call} {}", path.display()),
                disk: disk.clone(),
            });
        }
        if let Some(fault) = self.fault
            && (fault.at..fault.at + fault.calls).contains(&number)
        {
            if call.starts_with("sync") {
                disk.fail_sync(path, call == "sync-all");
            }
            *self.failed.lock().unwrap() = format!("{call} {}", path.display());
            return Err(fault.error.into());
        }
        Ok(disk)
    }
}

fn lock(disk: &Shared) -> MutexGuard<'_, Disk> {
    disk.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

use Effect::{Changes, Reads};

impl Fs for Process {
    fn mkdir(&self, path: &Path) -> io::Result<()> {
        self.enter("mkdir", path, Changes)?.mkdir(path)
    }

    fn rmdir(&self, path: &Path) -> io::Result<()> {
        self.enter("rmdir", path, Changes)?.rmdir(path)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.enter("unlink", path, Changes)?.unlink(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.enter("rename", from, Changes)?.rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.enter("link", to, Changes)?.link(from, to)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Sink>> {
        let inode = self.enter("create", path, Changes)?.create(path)?;
        Ok(Box::new(Writer {
            process: self.clone(),
            inode,
            path: path.to_owned(),
        }))
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn Sink>> {
        let mut disk = self.enter("append", path, Changes)?;
        let inode = match disk.stat(path) {
            Ok((inode, ..)) => inode,
            Err(_) => disk.create(path)?,
        };
        drop(disk);
        Ok(Box::new(Writer {
            process: self.clone(),
            inode,
            path: path.to_owned(),
        }))
    }

    fn truncate(&self, path: &Path, bytes: u64) -> io::Result<()> {
        self.enter("truncate", path, Changes)?.truncate(path, bytes)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn SeekRead>> {
        let bytes = self.enter("open", path, Reads)?.bytes(path)?;
        Ok(Box::new(Cursor::new(bytes.to_vec())))
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let disk = self.enter("stat", path, Reads)?;
        let (inode, device, bytes, touched) = disk.stat(path)?;
        // Of directories only the clock is asked for, right after they were made.
        let time = match bytes {
            Some(_) => i128::from(touched),
            None => i128::from(disk.outside.clock_ms) * 1_000_000,
        };
        Ok(Stat {
            kind: bytes.map_or(FileKind::Dir, |_| FileKind::File),
            inode,
            device: device as u64,
            bytes: bytes.unwrap_or(0),
            mtime_ns: time,
            ctime_ns: time,
        })
    }

    fn visit(
        &self,
        dir: &Path,
        visit: &mut dyn FnMut(&OsStr, FileKind) -> ControlFlow<()>,
    ) -> io::Result<()> {
        let mut names = self.enter("list", dir, Reads)?.list(dir)?;
        if self.backwards {
            names.reverse();
        }
        for (name, is_dir) in names {
            let kind = if is_dir {
                FileKind::Dir
            } else {
                FileKind::File
            };
            if visit(&name, kind).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn look_inside<'fs>(&'fs self, dir: &'fs Path) -> io::Result<Box<dyn Inside + 'fs>> {
        Ok(Box::new(InsideByPath::open(self, dir)?))
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.enter("sync-file", path, Changes)?.sync_file(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.enter("sync-dir", path, Changes)?.sync_dir(path)
    }

    fn sync_dirs(&self, dirs: &[PathBuf]) -> io::Result<()> {
        // The disk keeps the order of changes, as ext4 and XFS do.
        dirs.last().map_or(Ok(()), |last| self.sync_dir(last))
    }

    fn sync_all(&self, path: &Path) -> io::Result<()> {
        self.enter("sync-all", path, Changes)?.sync_all(path)
    }

    fn touch(&self, path: &Path) -> io::Result<()> {
        self.enter("touch", path, Reads)?.touch(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lease>>> {
        let mut disk = self.enter("lock", path, Reads)?;
        let token = disk.tick();
        if self.network {
            disk.stat(path)?;
            return Ok(Some(Box::new(NoLock)));
        }
        let Some(inode) = disk.lock(path, token)? else {
            return Ok(None);
        };
        Ok(Some(Box::new(Lock {
            disk: Arc::clone(&self.disk),
            inode,
            token,
        })))
    }

    fn is_one_machines(&self, _path: &Path) -> bool {
        !self.network
    }

    fn room(&self, path: &Path) -> io::Result<Room> {
        self.enter("room", path, Reads)?.stat(path)?;
        Ok(Room {
            free: 1 << 40,
            total: 1 << 40,
            free_inodes: None,
        })
    }
}

/// An open file; what is written goes to the file wherever it was moved to.
struct Writer {
    process: Process,
    inode: Inode,
    path: PathBuf,
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut disk = self.process.enter("write", &self.path, Changes)?;
        disk.write(self.inode, bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Lock {
    disk: Shared,
    inode: Inode,
    token: u64,
}

impl Lease for Lock {}

/// What a lock is worth that only its own machine knows of.
struct NoLock;

impl Lease for NoLock {}

impl Drop for Lock {
    fn drop(&mut self) {
        lock(&self.disk).unlock(self.inode, self.token);
    }
}

/// Two processes of which one runs at a time: each stands still before one chosen call until the
/// other stands still or ends.
pub(crate) struct Turns {
    state: Mutex<Turn>,
    changed: Condvar,
    stops: [Option<usize>; 2],
}

struct Turn {
    whose: usize,
    ended: [bool; 2],
}

impl Turns {
    /// Process 0 begins; process n stands still before its call `stops[n]`.
    pub(crate) fn new(stops: [Option<usize>; 2]) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(Turn {
                whose: 0,
                ended: [false; 2],
            }),
            changed: Condvar::new(),
            stops,
        })
    }

    /// Waits for the first turn.
    pub(crate) fn begin(&self, me: usize) {
        let mut turn = self.state.lock().unwrap();
        while turn.whose != me {
            turn = self.changed.wait(turn).unwrap();
        }
    }

    /// Gives the turn away for good.
    pub(crate) fn end(&self, me: usize) {
        let mut turn = self.state.lock().unwrap_or_else(|p| p.into_inner());
        turn.ended[me] = true;
        turn.whose = 1 - me;
        self.changed.notify_all();
    }

    fn before_call(&self, me: usize, number: usize) {
        if self.stops[me] != Some(number) {
            return;
        }
        let mut turn = self.state.lock().unwrap();
        if turn.ended[1 - me] {
            return;
        }
        turn.whose = 1 - me;
        self.changed.notify_all();
        while turn.whose != me {
            turn = self.changed.wait(turn).unwrap();
        }
    }
}
