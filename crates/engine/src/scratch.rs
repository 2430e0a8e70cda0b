//! The scratch directory: what parcels in hand need of a machine's own disk.
//!
//! ```text
//! <scratch>/<stage>/workers/<W>/.lease     a living worker of this host, locked for life
//! <scratch>/<stage>/workers/<W>/.status    what it says of itself
//! <scratch>/<stage>/workers/<W>/in/<ticket>/   files of a parcel in hand, as far as somebody opened them
//! <scratch>/<stage>/workers/<W>/out/       its outputs under construction
//! <scratch>/<stage>/look/<ticket>/         small files of parcels that were looked at
//! <scratch>/<stage>/tmp/                   temporary files of the stage
//! ```
//!
//! Nothing here is the truth: what a dead worker leaves is thrown away once its tickets are settled.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ecluse_spool::{
    Blocked, FileKind, Fs, Host, Lease, LeaseNote, RealFs, Result, SpoolError, WorkerId,
};

/// How long a count of what lies here is good for.
const COUNTED_FOR: Duration = Duration::from_secs(5);

/// How long nothing else is claimed for a file that found no room.
const WANTED_FOR: Duration = Duration::from_secs(30);

/// The scratch directory of this machine.
pub(crate) struct Scratch {
    pub(crate) root: PathBuf,
    /// No more bytes shall lie here.
    limit: u64,
    counted: Mutex<Option<(Instant, u64)>>,
    /// How large the file was that found no room last, and when.
    wanted: Mutex<Option<(Instant, u64)>>,
    /// One reader of a file fetches it; the others wait for him.
    fetching: Mutex<HashMap<PathBuf, Arc<Mutex<()>>>>,
}

/// The directory of one worker.
pub(crate) struct WorkerHome {
    pub(crate) path: PathBuf,
    _lease: Box<dyn Lease>,
}

impl WorkerHome {
    pub(crate) fn input(&self, ticket: &str) -> PathBuf {
        self.path.join("in").join(ticket)
    }

    pub(crate) fn out(&self) -> PathBuf {
        self.path.join("out")
    }
}

impl Scratch {
    pub(crate) fn new(root: PathBuf, limit: u64) -> Self {
        Self {
            root,
            limit,
            counted: Mutex::default(),
            wanted: Mutex::default(),
            fetching: Mutex::default(),
        }
    }

    pub(crate) fn stage(&self, stage: &str) -> PathBuf {
        self.root.join(stage)
    }

    pub(crate) fn tmp(&self, stage: &str) -> PathBuf {
        self.stage(stage).join("tmp")
    }

    pub(crate) fn look(&self, stage: &str, ticket: &str) -> PathBuf {
        self.stage(stage).join("look").join(ticket)
    }

    fn workers(&self, stage: &str) -> PathBuf {
        self.stage(stage).join("workers")
    }

    /// Makes the directories of a stage.
    pub(crate) fn init(&self, stage: &str) -> Result<()> {
        for dir in [
            self.tmp(stage),
            self.workers(stage),
            self.stage(stage).join("look"),
        ] {
            std::fs::create_dir_all(&dir).map_err(at("make", &dir))?;
        }
        Ok(())
    }

    /// Makes the directory of a worker, locked before it can be seen.
    pub(crate) fn be_born(
        &self,
        stage: &str,
        id: &WorkerId,
        note: &LeaseNote,
    ) -> Result<WorkerHome> {
        self.init(stage)?;
        let draft = self.tmp(stage).join(id.as_str());
        for dir in [draft.join("in"), draft.join("out")] {
            std::fs::create_dir_all(&dir).map_err(at("make", &dir))?;
        }
        let path = draft.join(".lease");
        let text = serde_json::to_vec(note).expect("a lease holds only strings and numbers");
        RealFs.write_new(&path, &text).map_err(at("write", &path))?;
        let lease = RealFs.lock(&path).map_err(at("lock", &path))?;
        let Some(lease) = lease else {
            let shown = path.display();
            return Err(SpoolError::Refused(format!(
                "another process holds the new lease {shown}"
            )));
        };
        let home = self.workers(stage).join(id.as_str());
        RealFs.rename(&draft, &home).map_err(at("move", &home))?;
        Ok(WorkerHome {
            path: home,
            _lease: lease,
        })
    }

    /// Tells whether a worker of this host lives; `None` where nothing here says so.
    pub(crate) fn is_alive(&self, stage: &str, worker: &str, host: &Host) -> Option<bool> {
        let id = WorkerId::parse(OsStr::new(worker))?;
        let boot: String = host
            .boot
            .chars()
            .filter(char::is_ascii_hexdigit)
            .take(8)
            .collect();
        if id.host() != host.name || id.boot() != boot {
            return None;
        }
        let lease = self.workers(stage).join(worker).join(".lease");
        match RealFs.lock(&lease) {
            Ok(lock) => Some(lock.is_none()),
            Err(_) => None,
        }
    }

    /// Names the dead workers of this host, each with the lock of its lease, and what each had in hand.
    pub(crate) fn dead(&self, stage: &str) -> Result<Vec<DeadWorker>> {
        let workers = self.workers(stage);
        let mut dead = Vec::new();
        let listed = match RealFs.list(&workers) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(dead),
            listed => listed.map_err(at("list", &workers))?,
        };
        for (name, kind) in listed {
            let (FileKind::Dir, Some(id)) = (kind, WorkerId::parse(&name)) else {
                continue;
            };
            let path = workers.join(&name);
            let Ok(Some(lease)) = RealFs.lock(&path.join(".lease")) else {
                continue;
            };
            dead.push(DeadWorker {
                tickets: self.tickets_of(stage, &id)?,
                id,
                path,
                _lease: lease,
            });
        }
        Ok(dead)
    }

    /// Names the tickets that a worker of this host has in hand.
    pub(crate) fn tickets_of(&self, stage: &str, worker: &WorkerId) -> Result<Vec<String>> {
        let inputs = self.workers(stage).join(worker.as_str()).join("in");
        let listed = match RealFs.list(&inputs) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            listed => listed.map_err(at("list", &inputs))?,
        };
        let names = listed
            .into_iter()
            .filter_map(|(name, _)| name.into_string().ok());
        Ok(names.collect())
    }

    /// Removes the directory of a worker.
    pub(crate) fn forget(&self, stage: &str, worker: &WorkerId) -> Result<()> {
        let path = self.workers(stage).join(worker.as_str());
        RealFs.remove_tree(&path).map_err(at("remove", &path))
    }

    /// Lets one at a time see to a file.
    pub(crate) fn alone<Value>(&self, path: &Path, act: impl FnOnce() -> Value) -> Value {
        let lock = {
            let mut fetching = self.fetching.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(fetching.entry(path.to_owned()).or_default())
        };
        let value = {
            let _alone = lock.lock().unwrap_or_else(PoisonError::into_inner);
            act()
        };
        let mut fetching = self.fetching.lock().unwrap_or_else(PoisonError::into_inner);
        fetching.remove(path);
        value
    }

    /// Counts the bytes that lie here, now and then.
    fn used(&self) -> u64 {
        let mut counted = self.counted();
        if let Some((at, bytes)) = *counted
            && at.elapsed() < COUNTED_FOR
        {
            return bytes;
        }
        let bytes = bytes_below(&self.root);
        *counted = Some((Instant::now(), bytes));
        bytes
    }

    fn counted(&self) -> MutexGuard<'_, Option<(Instant, u64)>> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wanted(&self) -> MutexGuard<'_, Option<(Instant, u64)>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells why nothing is to be claimed: more lies here than may, or a file has just found no room and still finds none. Others
    /// have their turn after a while, and one that is larger than all the room there is keeps nobody waiting.
    pub(crate) fn is_full(&self) -> Option<Blocked> {
        let (used, limit) = (self.used(), self.limit);
        let wanted = self.wanted().filter(|(at, bytes)| {
            let may_fit = *bytes <= limit && used + bytes > limit;
            may_fit && at.elapsed() < WANTED_FOR
        });
        let is_full = used > limit || wanted.is_some();
        is_full.then_some(Blocked::Scratch {
            used,
            wanted: wanted.map_or(0, |(_, bytes)| bytes),
            limit,
        })
    }

    /// Makes an empty file for so many bytes to come, which counts as whole at once: what others bring meanwhile, in this process
    /// or another, is held against it.
    ///
    /// # Errors
    /// [`SpoolError::NoRoom`] when more would lie here than may; `what` says for whom, and `together` how much its parcel needs.
    pub(crate) fn make_room(
        &self,
        path: &Path,
        bytes: u64,
        what: &str,
        together: u64,
    ) -> Result<std::fs::File> {
        let mut counted = self.counted();
        let known = counted.filter(|(at, used)| {
            at.elapsed() < COUNTED_FOR && used.saturating_add(bytes) <= self.limit
        });
        // A part that a killed try left is written over.
        let _ = RealFs.unlink(path);
        let (at, used) = known.unwrap_or_else(|| (Instant::now(), bytes_below(&self.root)));
        if used.saturating_add(bytes) > self.limit {
            *counted = Some((at, used));
            drop(counted);
            *self.wanted() = Some((Instant::now(), bytes));
            return Err(SpoolError::NoRoom(
                self.no_room(what, bytes, used, together),
            ));
        }
        let file = std::fs::File::create(path).map_err(self::at("write", path))?;
        file.set_len(bytes).map_err(self::at("write", path))?;
        *counted = Some((at, used + bytes));
        Ok(file)
    }

    fn no_room(&self, what: &str, bytes: u64, used: u64, together: u64) -> String {
        let limit = ecluse_config::Bytes(self.limit);
        if bytes > self.limit {
            return format!(
                "{what} has {bytes} bytes, and 'engine.scratch-limit' is {limit}: it never finds room; raise the limit"
            );
        }
        let alone = match together > self.limit {
            true => format!(
                "; all files of its parcel are {together} bytes: if its stage needs them together, raise the limit"
            ),
            false => String::new(),
        };
        format!(
            "{what} has {bytes} bytes, {used} lie in the scratch directory, and 'engine.scratch-limit' is {limit}{alone}"
        )
    }
}

/// A dead worker of this host.
pub(crate) struct DeadWorker {
    pub(crate) id: WorkerId,
    pub(crate) tickets: Vec<String>,
    pub(crate) path: PathBuf,
    _lease: Box<dyn Lease>,
}

fn bytes_below(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(about) if about.is_dir() => bytes_below(&entry.path()),
        Ok(about) => about.len(),
        Err(_) => 0,
    });
    bytes.sum()
}

/// Names the step and the place an I/O error happened at.
pub(crate) fn at<'a>(step: &'static str, path: &'a Path) -> impl Fn(io::Error) -> SpoolError + 'a {
    move |source| SpoolError::Io {
        step,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(dir: &Path, limit: u64) -> Scratch {
        Scratch::new(dir.to_owned(), limit)
    }

    fn make(scratch: &Scratch, name: &str, bytes: u64, together: u64) -> Result<()> {
        let path = scratch.root.join(name);
        let made = scratch.make_room(&path, bytes, &format!("p/{name}"), together);
        made.map(drop)
    }

    #[test]
    fn files_that_are_brought_at_once_never_pass_the_limit_together() {
        let dir = tempfile::tempdir().unwrap();
        // Two processes, of which neither hears of the other.
        let (one, other) = (scratch(dir.path(), 1000), scratch(dir.path(), 1000));
        assert_eq!(one.used(), 0);
        make(&one, "a", 400, 400).unwrap();
        make(&other, "b", 400, 400).unwrap();
        let error = make(&other, "c", 400, 400).unwrap_err();
        assert!(matches!(error, SpoolError::NoRoom(_)));
        assert_eq!(
            error.to_string(),
            "p/c has 400 bytes, 800 lie in the scratch directory, and 'engine.scratch-limit' is 1 kB"
        );
        // What has just found no room comes next.
        assert_eq!(
            other.is_full(),
            Some(Blocked::Scratch {
                used: 800,
                wanted: 400,
                limit: 1000
            })
        );
        RealFs.remove_tree(&dir.path().join("a")).unwrap();
        // Not from memory, where that would refuse.
        make(&other, "c", 400, 400).unwrap();
        assert_eq!(bytes_below(dir.path()), 800);
        // What a killed try left is written over, and counts once.
        make(&other, "c", 600, 600).unwrap();
        assert_eq!(bytes_below(dir.path()), 1000);
    }

    #[test]
    fn what_never_finds_room_is_told_so_and_keeps_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let scratch = scratch(dir.path(), 1000);
        let error = make(&scratch, "a", 1001, 1001).unwrap_err();
        assert_eq!(
            error.to_string(),
            "p/a has 1001 bytes, and 'engine.scratch-limit' is 1 kB: it never finds room; raise the limit"
        );
        assert_eq!(scratch.is_full(), None);
        make(&scratch, "b", 900, 1800).unwrap();
        let error = make(&scratch, "c", 900, 1800).unwrap_err();
        let together = "all files of its parcel are 1800 bytes: if its stage needs them together, raise the limit";
        assert!(error.to_string().ends_with(together), "{error}");
        // What a stage writes itself is not stopped, and counts.
        let other = super::Scratch::new(dir.path().to_owned(), 1000);
        std::fs::write(dir.path().join("out"), [0; 200]).unwrap();
        assert_eq!(
            other.is_full(),
            Some(Blocked::Scratch {
                used: 1100,
                wanted: 0,
                limit: 1000
            })
        );
    }
}
