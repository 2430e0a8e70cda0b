//! The scan: what waits in a stage. Bells may ring or not; this is the truth.

use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use crate::error::{At, Result};
use crate::fs::{FileKind, gone, if_there};
use crate::name::{Deferred, ParcelEntry, ParcelId, fnv1a, spread};
use crate::worker::{Waiting, Worker};

/// Tells how urgent a waiting parcel is, by its name and where it lies.
pub type Urgency<'a> = dyn FnMut(&ParcelId, &Path) -> u8 + 'a;

/// What a scan of `ready/` found.
#[derive(Debug, Default)]
pub struct Scan {
    /// Parcels to claim, in this worker's own order, the last to be taken first.
    pub waiting: Vec<Waiting>,
    /// How many wait in all.
    pub total: usize,
    /// Names that are no parcels: symbolic links, files, strangers. Never more than 20.
    pub refused: Vec<String>,
    /// Those of them that are in another worker's share.
    of_others: Vec<Waiting>,
    /// How urgent those are that are named; nothing less urgent is.
    urgency: u8,
}

/// What of a scan is kept.
struct Keep<'a, 'b> {
    share: Share,
    /// How many names; the backlog itself is never held in memory.
    names: usize,
    urgency: Option<&'a mut Urgency<'b>>,
}

/// The waiting parcels a worker begins with: one of as many parts as there are workers. Nothing
/// hangs on it but how often two of them reach for the same parcel.
struct Share {
    before: u64,
    workers: u64,
}

impl Share {
    fn holds(&self, id: &[u8]) -> bool {
        self.workers < 2 || spread(fnv1a(id)) % self.workers == self.before
    }
}

impl Scan {
    /// Returns what another engine than the directories found, of so many that wait.
    pub fn of(waiting: Vec<Waiting>, total: usize) -> Self {
        Self {
            waiting,
            total,
            ..Self::default()
        }
    }
}

impl Worker {
    /// Counts what waits and names as many as the limits say. No entry is looked at.
    pub fn scan(&mut self) -> Result<Scan> {
        self.scan_by(None)
    }

    /// Counts what waits and names the most urgent of all of it.
    pub fn scan_urgent(&mut self, urgency: &mut Urgency<'_>) -> Result<Scan> {
        self.scan_by(Some(urgency))
    }

    fn scan_by(&mut self, urgency: Option<&mut Urgency<'_>>) -> Result<Scan> {
        let mut scan = Scan::default();
        let mut keep = Keep {
            share: self.share()?,
            names: self.limits.names,
            urgency,
        };
        let ready = self.stage.ready();
        let mut shards = Vec::new();
        self.fs
            .visit(&ready, &mut |name, kind| {
                if kind == FileKind::Dir && is_shard(name) {
                    shards.push(name.to_owned());
                } else {
                    scan.see(&ready, name, kind, &mut keep);
                }
                ControlFlow::Continue(())
            })
            .at("scan", &ready)?;
        for shard in shards {
            for (name, kind) in self.move_up(&ready.join(shard))? {
                scan.see(&ready, &name, kind, &mut keep);
            }
        }
        let seed = self.id.seed();
        scan.waiting.append(&mut scan.of_others);
        scan.waiting.truncate(keep.names);
        // Two workers that walked the same listing in the same order, or each in its own to the
        // end, lost every other claim: each begins with its share and takes others' after that.
        scan.waiting.sort_by_cached_key(|waiting| {
            let id = &waiting.entry.id;
            (keep.share.holds(id.as_str().as_bytes()), id.order(seed))
        });
        // Of two copies one is claimed now and the other when the first is finished: claimed
        // together they would share one place in the outbox and one name in a batch.
        scan.waiting
            .dedup_by(|one, other| one.entry.id == other.entry.id);
        Ok(scan)
    }

    /// Returns the oldest of these waiting parcels and its age, as it lies on disk, by the clock of the file system: no
    /// restart makes it younger, and no other clock is asked.
    pub fn oldest(&self, waiting: &[Waiting]) -> Result<Option<(ParcelId, Duration)>> {
        let now_ns = self.tree.now_ns(&self.stage);
        let mut oldest: Option<(&ParcelId, i128)> = None;
        for waiting in waiting {
            let path = self.tree.ready_slot(&self.stage, &waiting.entry);
            // Another worker may have it by now.
            let Some(stat) = if_there(self.fs.stat(&path)).at("look at", &path)? else {
                continue;
            };
            if oldest.is_none_or(|(_, mtime_ns)| stat.mtime_ns < mtime_ns) {
                oldest = Some((&waiting.entry.id, stat.mtime_ns));
            }
        }
        Ok(oldest.map(|(id, mtime_ns)| {
            let age = u64::try_from((now_ns - mtime_ns).max(0)).unwrap_or(u64::MAX);
            (id.clone(), Duration::from_nanos(age))
        }))
    }

    /// Moves the parcels of a shard into `ready/` itself, removes the shard, and says what lay in it.
    ///
    /// Version 0.1 spread a crowd of waiting parcels over 256 such directories.
    fn move_up(&mut self, shard: &Path) -> Result<Vec<(OsString, FileKind)>> {
        let mut moved = Vec::new();
        for (name, kind) in self.tree.list(shard)? {
            if let Some(entry) = ParcelEntry::parse(&name) {
                let slot = self.tree.ready_slot(&self.stage, &entry);
                self.put_back(&shard.join(&name), &slot)?;
                moved.push((name, kind));
            }
        }
        // What is no parcel stays, and keeps the directory; another worker may have been quicker.
        match self.fs.rmdir(shard) {
            Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            other => gone(other).at("remove", shard)?,
        }
        Ok(moved)
    }

    /// Returns which of the waiting parcels are this worker's to begin with.
    fn share(&self) -> Result<Share> {
        let claim = self.stage.claim();
        let (mut before, mut workers) = (0, 0);
        self.fs
            .visit(&claim, &mut |name, kind| {
                if kind == FileKind::Dir && !name.as_bytes().starts_with(b".") {
                    workers += 1;
                    before += u64::from(name.as_bytes() < self.id.as_str().as_bytes());
                }
                ControlFlow::Continue(())
            })
            .at("list", &claim)?;
        Ok(Share { before, workers })
    }

    /// Brings deferred parcels that are due back to `ready/`, and says when the next one is, in
    /// Unix seconds of the file system's clock.
    ///
    /// One due later than any back-off goes was deferred by a clock that was wrong. It is taken once
    /// this process has seen it lie there for the longest wait: taken at once, two hosts whose
    /// clocks differ would take it from each other without end.
    pub fn undefer(&mut self) -> Result<Option<u64>> {
        let deferred = self.stage.deferred();
        let now = self.tree.now_seconds(&self.stage.name);
        let longest = self.limits.retry_longest;
        let horizon = now + longest.as_secs().saturating_mul(5) / 4 + 2;
        let mut next: Option<u64> = None;
        for (name, kind) in self.fs.list(&deferred).at("list", &deferred)? {
            let Some(waiting) = Deferred::parse(&name).filter(|_| kind == FileKind::Dir) else {
                continue;
            };
            let is_far = waiting.due > horizon;
            let is_due = if is_far {
                let seen_at = (self.tree.monotonic)();
                self.seen_far.is_at_rest(&name, (), longest, seen_at)
            } else {
                waiting.due <= now
            };
            if !is_due {
                let due = waiting.due.min(horizon);
                next = Some(next.map_or(due, |next| next.min(due)));
                continue;
            }
            let slot = self.tree.ready_slot(&self.stage, &waiting.entry);
            self.put_back(&deferred.join(&name), &slot)?;
        }
        self.seen_far.end_round();
        Ok(next)
    }
}

impl Scan {
    fn see(&mut self, dir: &Path, name: &OsStr, kind: FileKind, keep: &mut Keep<'_, '_>) {
        if name.as_bytes().starts_with(b".") {
            return;
        }
        if kind != FileKind::Dir {
            return self.refuse(name);
        }
        let bytes = name.as_bytes();
        let id = bytes.rsplitn(2, |&b| b == b'~').last().unwrap_or(bytes);
        let is_ours = keep.share.holds(id);
        if self.named(is_ours).len() >= keep.names && keep.urgency.is_none() {
            self.total += 1;
            return;
        }
        match ParcelEntry::parse(name) {
            Some(entry) => {
                self.total += 1;
                if let Some(urgency) = &mut keep.urgency {
                    let urgency = urgency(&entry.id, &dir.join(name));
                    if urgency < self.urgency {
                        return;
                    }
                    if urgency > self.urgency {
                        self.urgency = urgency;
                        self.waiting.clear();
                        self.of_others.clear();
                    }
                }
                let named = self.named(is_ours);
                if named.len() < keep.names {
                    named.push(Waiting { entry });
                }
            }
            None => self.refuse(name),
        }
    }

    fn named(&mut self, is_ours: bool) -> &mut Vec<Waiting> {
        if is_ours {
            &mut self.waiting
        } else {
            &mut self.of_others
        }
    }

    fn refuse(&mut self, name: &OsStr) {
        if self.refused.len() < 20 {
            self.refused
                .push(name.as_bytes().escape_ascii().to_string());
        }
    }
}

/// A shard is two hex digits; a parcel's entry always holds a `~`.
fn is_shard(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    bytes.len() == 2 && bytes.iter().all(u8::is_ascii_hexdigit)
}
