//! How full a stage is, and what keeps it from taking more.

use std::ops::ControlFlow;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::adopt::is_unfinished;
use crate::error::{At, Result};
use crate::fs::{FileKind, Fs, Room, if_there};
use crate::name::{Deferred, ParcelEntry};
use crate::tree::WorkTree;
use crate::worker::LeaseNote;

/// How many entries are looked at for the age of the oldest; above that it is a lower bound.
const AGED: usize = 2000;

/// What a stage holds, counted from its directories.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Depths {
    /// Parcels waiting.
    pub ready: usize,
    /// Parcels claimed by living or dead workers.
    pub working: usize,
    /// Parcels waiting for the world.
    pub deferred: usize,
    /// Parcels waiting for a person.
    pub held: usize,
    /// Files in `drop/`, not yet adopted.
    pub dropped: usize,
    /// Workers with a directory.
    pub workers: usize,
    /// Dead workers half settled.
    pub reaping: usize,
    /// Seconds the oldest of the waiting parcels has been there.
    pub oldest_ready: Option<u64>,
    /// Seconds the oldest of the held parcels has been there.
    pub oldest_held: Option<u64>,
    /// When the first deferred parcel is due, in Unix seconds.
    pub next_due: Option<u64>,
    /// Present when the stage is paused.
    pub paused: Option<Paused>,
    /// Names in `ready/` and `drop/` that are no parcels or plain files.
    pub refused: Vec<String>,
}

/// The content of `PAUSED`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Paused {
    /// Who paused it.
    pub who: String,
    /// When, RFC 3339.
    pub when: String,
    /// Why.
    pub why: String,
}

/// Why a stage claims nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blocked {
    /// `PAUSED` is there.
    Paused(Paused),
    /// A destination has too much waiting.
    HighMark {
        /// The destination.
        stage: String,
        /// What waits there.
        waiting: usize,
        /// Where work goes on.
        low: usize,
    },
    /// Too little room on the work directory's file system.
    Space {
        /// Free bytes.
        free: u64,
        /// The floor.
        floor: u64,
    },
    /// Too much lies in the scratch directory of this machine for what comes next.
    Scratch {
        /// Bytes that lie there.
        used: u64,
        /// Bytes of what comes next, where that is known.
        wanted: u64,
        /// As many may lie there.
        limit: u64,
    },
}

/// What a worker says of itself, in `claim/<W>/.status`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct WorkerNote {
    /// `working`, `idle`, `blocked`, `standing-by` while another host owns what it works on, `halted`, or `refusing`: a file of settings or rules makes no sense.
    pub state: String,
    /// What blocks it or made it halt; of one that works, how far it is.
    pub why: String,
    /// Since when, in Unix seconds.
    pub since: u64,
    /// The parcel in hand.
    pub parcel: String,
}

/// A worker as others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerView {
    /// Its name.
    pub id: String,
    /// Whether it lives, as far as can be told.
    pub alive: bool,
    /// How long ago its heartbeat was, by the file system's clock: to be shown, never to be acted on.
    pub silent: std::time::Duration,
    /// What it says of itself.
    pub note: WorkerNote,
}

/// What a stage finished lately.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Throughput {
    /// Receipts.
    pub count: u64,
    /// Whether the count was estimated.
    pub estimated: bool,
    /// Seconds since the last one.
    pub last: Option<u64>,
}

/// A note is padded to one block, so that it can be written again when the disk is full.
const NOTE_BYTES: usize = 4096;

impl crate::Worker {
    /// Says what this worker is doing, for `status`. Best effort: a full disk does not matter.
    pub fn note(&self, note: &WorkerNote) {
        write_note(&*self.fs, &self.home, note);
    }
}

pub(crate) fn write_note(fs: &dyn Fs, home: &Path, note: &WorkerNote) {
    let mut bytes = serde_json::to_vec(note).unwrap_or_default();
    bytes.truncate(NOTE_BYTES);
    bytes.resize(NOTE_BYTES, b' ');
    let _ = fs.overwrite(&home.join(".status"), &bytes);
}

/// The marks between which a stage stops and goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marks {
    /// Claim nothing while a destination has more waiting.
    pub high: usize,
    /// Go on when it has no more than this.
    pub low: usize,
    /// Claim nothing while less is free.
    pub floor: Floor,
}

/// The least free space, in bytes or as a share of the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Floor {
    /// Bytes.
    Bytes(u64),
    /// Ten-thousandths of the file system.
    Share(u16),
}

impl Floor {
    /// Returns the floor in bytes on a file system of that size.
    pub fn bytes(self, room: &Room) -> u64 {
        match self {
            Floor::Bytes(bytes) => bytes,
            Floor::Share(share) => room.total / 10_000 * u64::from(share),
        }
    }
}

impl WorkTree {
    /// Counts what a stage holds.
    pub fn depths(&self, stage: &str) -> Result<Depths> {
        let dir = self.stage(stage);
        let mut depths = Depths {
            paused: self.paused(stage)?,
            ..Depths::default()
        };
        let now_ns = self.now_ns(&dir);
        let mut ages = Ages { looked: 0, now_ns };
        let ready = dir.ready();
        for (name, kind) in self.list(&ready)? {
            if ParcelEntry::parse(&name).is_some() && kind == FileKind::Dir {
                depths.ready += 1;
                ages.look(&*self.fs, &ready.join(&name), &mut depths.oldest_ready);
            } else {
                depths.refuse(&name, kind);
            }
        }
        let held = dir.held();
        for (name, kind) in self.list(&held)? {
            if ParcelEntry::parse(&name).is_some() && kind == FileKind::Dir {
                depths.held += 1;
                ages.look(&*self.fs, &held.join(&name), &mut depths.oldest_held);
            }
        }
        for (name, _) in self.list(&dir.deferred())? {
            if let Some(deferred) = Deferred::parse(&name) {
                depths.deferred += 1;
                let next = depths.next_due.get_or_insert(deferred.due);
                *next = deferred.due.min(*next);
            }
        }
        for (name, kind) in self.list(&dir.drop())? {
            match kind {
                // Nobody takes what is still being written.
                FileKind::File if is_unfinished(&name) => {}
                FileKind::File => depths.dropped += 1,
                FileKind::Dir | FileKind::Symlink | FileKind::Other => depths.refuse(&name, kind),
            }
        }
        for (place, count) in [
            (dir.claim(), &mut depths.workers),
            (dir.reap(), &mut depths.reaping),
        ] {
            for (name, _) in self.list(&place)? {
                *count += 1;
                depths.working += self.list(&place.join(&name).join("in"))?.len();
            }
        }
        Ok(depths)
    }

    /// Reads what the living workers of a stage say of themselves.
    pub fn notes(&self, stage: &str) -> Result<Vec<(String, WorkerNote)>> {
        let claim = self.stage(stage).claim();
        let mut notes = Vec::new();
        for (name, _) in self.list(&claim)? {
            let bytes = self.fs.read(&claim.join(&name).join(".status"), 1 << 16);
            let note = bytes.ok().and_then(|b| serde_json::from_slice(&b).ok());
            notes.push((
                name.to_string_lossy().into_owned(),
                note.unwrap_or_default(),
            ));
        }
        Ok(notes)
    }

    /// Lists the workers of a stage and tells which of them live.
    ///
    /// A living worker holds its lock, where that tells something and we may ask; of another it is
    /// known only that its heartbeat moved within `lease`.
    pub fn workers(&self, stage: &str, lease: std::time::Duration) -> Result<Vec<WorkerView>> {
        let dir = self.stage(stage);
        let now_ns = self.now_ns(&dir);
        let mut workers = Vec::new();
        for (id, note) in self.notes(stage)? {
            let path = dir.claim().join(&id).join(".lease");
            let Ok(stat) = self.fs.stat(&path) else {
                continue;
            };
            let silent = u64::try_from((now_ns - stat.mtime_ns).max(0)).unwrap_or(u64::MAX);
            let silent = std::time::Duration::from_nanos(silent);
            // A reader without the right to write may not ask for the lock: that says nothing.
            let alive = self.has_lock(&path).unwrap_or(silent < lease);
            workers.push(WorkerView {
                id,
                alive,
                silent,
                note,
            });
        }
        Ok(workers)
    }

    /// Tells whether a worker holds the lock of its lease; `None` where that cannot be told.
    fn has_lock(&self, lease: &std::path::Path) -> Option<bool> {
        let bytes = self.fs.read(lease, 1 << 16).ok()?;
        let worker: LeaseNote = serde_json::from_slice(&bytes).ok()?;
        let is_one_machines = || self.fs.is_one_machines(lease);
        if !self.host.knows_lock_of(&worker, is_one_machines) {
            return None;
        }
        self.fs.lock(lease).ok().map(|lock| lock.is_none())
    }

    /// Counts the receipts of a stage that are younger than `within`, and tells how long ago the
    /// last one came. Many are estimated from some of the shards.
    pub fn throughput(&self, stage: &str, within: std::time::Duration) -> Result<Throughput> {
        const LOOKS: usize = 4000;
        let dir = self.stage(stage);
        let receipts = dir.receipts();
        let now_ns = self.now_ns(&dir);
        let fresh = |stat: &crate::Stat| now_ns - stat.mtime_ns < within.as_nanos() as i128;
        let mut shards = Vec::new();
        let mut newest = None;
        for (name, _) in self.list(&receipts)? {
            let shard = receipts.join(&name);
            let Ok(stat) = self.fs.stat(&shard) else {
                continue;
            };
            newest = newest.max(Some(stat.mtime_ns));
            if fresh(&stat) {
                shards.push(shard);
            }
        }
        let mut throughput = Throughput {
            count: 0,
            estimated: false,
            last: newest.map(|ns| ((now_ns - ns).max(0) / 1_000_000_000) as u64),
        };
        let mut looked = 0;
        for (done, shard) in shards.iter().enumerate() {
            if looked >= LOOKS {
                throughput.count = throughput.count * shards.len() as u64 / done as u64;
                throughput.estimated = true;
                break;
            }
            for (name, _) in self.list(shard)? {
                looked += 1;
                let stat = self.fs.stat(&shard.join(name));
                throughput.count += u64::from(stat.is_ok_and(|stat| fresh(&stat)));
            }
        }
        Ok(throughput)
    }

    /// Writes, syncs and removes a small file: tells whether the machine is well.
    pub fn probe(&self, stage: &str) -> Result<()> {
        let path = self
            .stage(stage)
            .tmp()
            .join(format!("probe-{:016x}", (self.dice)()));
        self.fs
            .write_new(&path, &[b'.'; 16 << 10])
            .at("write", &path)?;
        let synced = self.fs.sync_file(&path).at("sync", &path);
        crate::fs::gone(self.fs.unlink(&path)).at("remove", &path)?;
        synced
    }

    /// Removes what was being built in `tmp/` and has been left for longer than `age`.
    pub fn sweep(&self, stage: &str, age: std::time::Duration) -> Result<usize> {
        let dir = self.stage(stage);
        let tmp = dir.tmp();
        let now_ns = self.now_ns(&dir);
        let mut removed = 0;
        for (name, _) in self.list(&tmp)? {
            let path = tmp.join(&name);
            let Ok(stat) = self.fs.stat(&path) else {
                continue;
            };
            if now_ns - stat.ctime_ns > age.as_nanos() as i128 {
                self.fs.remove_tree(&path).at("remove", &path)?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Tells whether a stage is paused, by whom and why.
    pub fn paused(&self, stage: &str) -> Result<Option<Paused>> {
        let path = self.stage(stage).paused();
        let bytes = if_there(self.fs.read(&path, 1 << 16)).at("read", &path)?;
        // An operator may make the file by hand with `touch`: that pauses too.
        Ok(bytes.map(|bytes| serde_json::from_slice(&bytes).unwrap_or_default()))
    }

    /// Says what keeps a stage from claiming, if anything does. `blocked` is the answer before this
    /// one: between the marks it stays.
    pub fn pressure(
        &self,
        stage: &str,
        destinations: &[String],
        marks: &Marks,
        blocked: Option<&Blocked>,
    ) -> Result<Option<Blocked>> {
        if let Some(paused) = self.paused(stage)? {
            return Ok(Some(Blocked::Paused(paused)));
        }
        let work = self.stage(stage).root().to_owned();
        let room = self.fs.room(&work).at("look at", &work)?;
        let floor = marks.floor.bytes(&room);
        if room.free < floor {
            return Ok(Some(Blocked::Space {
                free: room.free,
                floor,
            }));
        }
        for destination in destinations {
            let was =
                matches!(blocked, Some(Blocked::HighMark { stage, .. }) if stage == destination);
            let mark = if was { marks.low } else { marks.high };
            let waiting = self.count_ready(destination, mark)?;
            if waiting > mark {
                return Ok(Some(Blocked::HighMark {
                    stage: destination.clone(),
                    waiting,
                    low: marks.low,
                }));
            }
        }
        Ok(None)
    }

    /// Returns the room on the file system of the work directories.
    pub fn room(&self) -> Result<Room> {
        let work = self.work();
        self.fs.room(work).at("look at", work)
    }

    /// Counts what waits in a stage, no further than one past `enough`.
    fn count_ready(&self, stage: &str, enough: usize) -> Result<usize> {
        let ready = self.stage(stage).ready();
        let mut waiting = 0;
        let visited = self.fs.visit(&ready, &mut |_, _| {
            waiting += 1;
            if waiting > enough {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        let counted = if_there(visited).at("count", &ready)?;
        Ok(counted.map_or(0, |()| waiting))
    }

    /// Lists a directory that may not exist.
    pub(crate) fn list(
        &self,
        dir: &std::path::Path,
    ) -> Result<Vec<(std::ffi::OsString, FileKind)>> {
        Ok(if_there(self.fs.list(dir))
            .at("list", dir)?
            .unwrap_or_default())
    }
}

impl Depths {
    fn refuse(&mut self, name: &std::ffi::OsStr, _kind: FileKind) {
        use std::os::unix::ffi::OsStrExt;
        if self.refused.len() < 20 && !name.as_bytes().starts_with(b".") {
            self.refused
                .push(name.as_bytes().escape_ascii().to_string());
        }
    }
}

struct Ages {
    looked: usize,
    now_ns: i128,
}

impl Ages {
    fn look(&mut self, fs: &dyn Fs, path: &std::path::Path, oldest: &mut Option<u64>) {
        if self.looked >= AGED {
            return;
        }
        self.looked += 1;
        if let Ok(stat) = fs.stat(path) {
            let age = ((self.now_ns - stat.ctime_ns) / 1_000_000_000).max(0) as u64;
            *oldest = Some(oldest.map_or(age, |oldest| oldest.max(age)));
        }
    }
}
