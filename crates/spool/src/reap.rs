//! Settling the dead: one rename takes a dead worker's whole directory, inputs and outputs
//! together; then each parcel is settled by its receipt.
//!
//! Taking inputs and outputs by two renames lost parcels: a reaper that died between them left
//! outputs behind that the next one took for handed over. The torture must catch a file system
//! that does so: see `crates/failpoint`.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{At, Result, SpoolError};
use crate::fs::{FileKind, if_there};
use crate::ledger;
use crate::name::{ParcelEntry, ParcelId, WorkerId};
use crate::receipt::{Receipt, parse_sheet};
use crate::worker::{LeaseNote, Standing, Worker, read_manifest};

/// What a look for the dead came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Dead workers settled.
    pub workers: usize,
    /// Parcels put back, handed over or held for them.
    pub parcels: usize,
}

impl Worker {
    /// Finds dead workers of this stage and settles what they held.
    pub fn recover(&mut self) -> Result<Recovered> {
        let mut recovered = Recovered::default();
        let claim = self.stage.claim();
        for (name, kind) in self.fs.list(&claim).at("list", &claim)? {
            let Some(worker) = WorkerId::parse(&name) else {
                continue;
            };
            if kind != FileKind::Dir || worker == self.id || !self.is_dead(&worker)? {
                continue;
            }
            let dead_home = self.stage.reap().join(format!("{worker}@{}", self.id));
            let moved = if_there(self.fs.rename(&claim.join(&name), &dead_home));
            if moved.at("reap", &dead_home)?.is_none() {
                self.check_fence()?;
                continue;
            }
            tracing::warn!(dead = %worker, "settling a dead worker");
            recovered.parcels += self.settle(&dead_home, Some("its worker died"))?;
            recovered.workers += 1;
        }
        self.take_over_reaped(&mut recovered)?;
        self.seen_leases.end_round();
        Ok(recovered)
    }

    /// Goes on with what reapers left half settled, ours and dead ones'.
    fn take_over_reaped(&mut self, recovered: &mut Recovered) -> Result<()> {
        let reap = self.stage.reap();
        for (name, _) in self.fs.list(&reap).at("list", &reap)? {
            let Some((dead, reaper)) = name.to_str().and_then(|n| n.split_once('@')) else {
                continue;
            };
            let mut dead_home = reap.join(&name);
            if reaper != self.id.as_str() {
                // A reaper whose name says nothing cannot be alive.
                let alive = match WorkerId::parse(OsStr::new(reaper)) {
                    Some(reaper) => !self.is_dead(&reaper)?,
                    None => false,
                };
                if alive {
                    continue;
                }
                let taken = reap.join(format!("{dead}@{}", self.id));
                let moved = if_there(self.fs.rename(&dead_home, &taken));
                if moved.at("reap", &taken)?.is_none() {
                    continue;
                }
                dead_home = taken;
            }
            recovered.parcels += self.settle(&dead_home, Some("its worker died"))?;
            recovered.workers += 1;
        }
        Ok(())
    }

    /// Tells whether a worker of this stage can be taken for dead: its lock is free where that tells
    /// something, or its heartbeat has not moved for the lease time of our own monotonic clock. No
    /// two wall clocks are compared.
    fn is_dead(&mut self, worker: &WorkerId) -> Result<bool> {
        let lease = self.stage.home(worker).join(".lease");
        let Some(bytes) = if_there(self.fs.read(&lease, 1 << 16)).at("read", &lease)? else {
            // Gone with its directory, or never made visible: nobody can work there.
            return Ok(true);
        };
        let note: Option<LeaseNote> = serde_json::from_slice(&bytes).ok();
        let is_one_machines = || self.fs.is_one_machines(&lease);
        if note.is_some_and(|note| self.tree.host.knows_lock_of(&note, is_one_machines)) {
            let lock = if_there(self.fs.lock(&lease)).at("lock", &lease)?;
            return Ok(lock.is_none_or(|lock| lock.is_some()));
        }
        let Some(stat) = if_there(self.fs.stat(&lease)).at("look at", &lease)? else {
            return Ok(true);
        };
        let mtime = stat.mtime_ns;
        let now = (self.tree.monotonic)();
        let seen = &mut self.seen_leases;
        Ok(seen.is_at_rest(worker.as_str(), mtime, self.limits.lease, now))
    }

    /// Puts everything this worker holds where it belongs: what is committed goes on, the rest goes
    /// back, the attempt not counted. After an error of the machine, and before a good end.
    pub fn reset(&mut self) -> Result<usize> {
        self.check_fence()?;
        let home = self.home.clone();
        self.settle_contents(&home, None)
    }

    /// Takes away everything another worker of this process holds: what is committed goes on, the
    /// rest goes back, the attempt not counted. That worker is fenced from then on.
    pub fn evict(&mut self, worker: &WorkerId) -> Result<usize> {
        let dead_home = self.stage.reap().join(format!("{worker}@{}", self.id));
        let moved = if_there(self.fs.rename(&self.stage.home(worker), &dead_home));
        match moved.at("evict", &dead_home)? {
            Some(()) => self.settle(&dead_home, None),
            None => Ok(0),
        }
    }

    /// Settles a dead worker's directory and removes it.
    fn settle(&mut self, dead_home: &Path, died: Option<&str>) -> Result<usize> {
        let parcels = self.settle_contents(dead_home, died)?;
        // The receipts would repeat the hand-overs from this directory: durable before it goes.
        self.sync_touched()?;
        self.fs.remove_tree(dead_home).at("remove", dead_home)?;
        Ok(parcels)
    }

    fn settle_contents(&mut self, dir: &Path, died: Option<&str>) -> Result<usize> {
        let mut settled = 0;
        let out = dir.join("out");
        let inputs = dir.join("in");
        for (name, _) in self.tree.list(&out)? {
            let text = name.to_string_lossy();
            if text.starts_with(".sheet-") {
                settled += self.settle_sheet(dir, &out.join(&name))?;
            }
        }
        for (name, _) in self.tree.list(&inputs)? {
            self.settle_claimed(dir, &inputs.join(&name), died)?;
            settled += 1;
        }
        self.settle_adoptions(&dir.join("adopt"))?;
        for (name, _) in self.tree.list(&out)? {
            let path = out.join(&name);
            self.fs.remove_tree(&path).at("remove", &path)?;
        }
        Ok(settled)
    }

    /// Carries out the receipts of a sheet that were committed, and takes back what was filed for
    /// batches that were not.
    fn settle_sheet(&mut self, dir: &Path, sheet: &Path) -> Result<usize> {
        let bytes = self.fs.read(sheet, 1 << 30).at("read", sheet)?;
        let ours = self.fs.stat(sheet).at("look at", sheet)?.inode;
        let (mut committed, mut others) = (Vec::new(), Vec::new());
        for filed in parse_sheet(&bytes) {
            let receipt = filed.receipt;
            let path = self.stage.receipt(&receipt.work);
            let is_ours = match self.inode_of(&path)? {
                // One inode: it was this very sheet that won, not another worker's.
                Some(inode) => inode == ours,
                None => {
                    let folded = ledger::find(&*self.fs, &self.stage, &receipt.work)?;
                    folded.is_some_and(|folded| folded.receipt == receipt)
                }
            };
            if is_ours {
                committed.push(receipt);
            } else {
                others.push(receipt);
            }
        }
        for member in others.iter().flat_map(Receipt::members) {
            let path = self.stage.receipt(member);
            let is_kept = committed.iter().any(|r| r.input(member).is_some());
            if !is_kept && self.inode_of(&path)? == Some(ours) {
                self.take_back(dir, &[path])?;
            }
        }
        let mut settled = 0;
        for receipt in committed {
            let claimed = self.claimed_in(dir)?;
            let find = |id: &ParcelId| {
                let (_, path) = claimed.iter().find(|(claimed, _)| claimed == id)?;
                Some(path.clone())
            };
            self.complete(dir, &receipt, &find)?;
            settled += receipt.inputs.len();
        }
        Ok(settled)
    }

    /// Decides about a parcel in `in/` of `dir` that no sheet there speaks of.
    ///
    /// `died`: whose fault the interrupted attempt was; `None` when nobody's.
    pub(crate) fn settle_claimed(
        &mut self,
        dir: &Path,
        path: &Path,
        died: Option<&str>,
    ) -> Result<()> {
        let Some(mut entry) = path.file_name().and_then(ParcelEntry::parse) else {
            return Ok(());
        };
        let (manifest, _) = match read_manifest(&*self.fs, path, &entry.id) {
            Ok(read) => read,
            Err(SpoolError::Damaged { reason, .. }) => {
                return self.hold_unasked(path, &entry, &reason);
            }
            Err(SpoolError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        if let Standing::Done(filed) = self.standing(&manifest)? {
            return self.complete(dir, &filed.receipt, &|id| {
                (id == &entry.id).then(|| path.to_owned())
            });
        }
        match died {
            Some(reason) if entry.attempts >= self.limits.attempts => {
                let reason = format!("{reason}, {} times", entry.attempts);
                self.hold_unasked(path, &entry, &reason)?;
                return Ok(());
            }
            Some(_) => {}
            None => entry.attempts = entry.attempts.saturating_sub(1),
        }
        let slot = self.tree.ready_slot(&self.stage, &entry);
        self.put_back(path, &slot)?;
        Ok(())
    }

    fn inode_of(&self, path: &Path) -> Result<Option<u64>> {
        let stat = if_there(self.fs.stat(path)).at("look at", path)?;
        Ok(stat.map(|stat| stat.inode))
    }

    fn claimed_in(&self, dir: &Path) -> Result<Vec<(ParcelId, PathBuf)>> {
        let inputs = dir.join("in");
        Ok(self
            .tree
            .list(&inputs)?
            .into_iter()
            .filter_map(|(name, _)| {
                let entry = ParcelEntry::parse(&name)?;
                Some((entry.id, inputs.join(name)))
            })
            .collect())
    }

    /// Moves a parcel back; if one of that very name is there, beside it. Gone: settled by another.
    pub(crate) fn put_back(&mut self, path: &Path, slot: &Path) -> Result<()> {
        if let Some(slot) = self.tree.place_beside(path, &self.stage, slot)?
            && let Some(dir) = slot.parent()
        {
            self.touched.insert(dir.to_owned());
        }
        Ok(())
    }
}
