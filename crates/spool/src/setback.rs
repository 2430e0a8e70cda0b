//! What becomes of a parcel whose work did not end well: it waits, is held, or goes back.
//!
//! The reason lies in the parcel, `trouble.json`, and is durable before the parcel is held: one rename moves both, and nobody
//! finds a held parcel without a reason. It is never removed while the parcel may be held, only written over.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{At, Result};
use crate::fs::{FileKind, gone};
use crate::name::{Deferred, ParcelEntry, ParcelId};
use crate::outbox::Parcel;
use crate::parcel::{TROUBLE, Trouble};
use crate::tree::{StageDir, WorkTree};
use crate::worker::{Worker, read_trouble};

/// Why a parcel does not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The world is at fault: later, with back-off.
    Defer {
        /// What was wrong.
        reason: String,
    },
    /// Nobody is at fault: somebody asked to be left alone for so long. It is not counted, however often it happens.
    Wait {
        /// What is waited for.
        reason: String,
        /// How long; never longer than the longest back-off.
        wait: Duration,
    },
    /// The parcel is at fault: a person decides.
    Hold {
        /// What was wrong, with file, record and offset where known.
        reason: String,
    },
}

/// What a refused parcel came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setback {
    /// It waits until this time, in Unix seconds.
    DeferredUntil(u64),
    /// It waits for a person.
    Held,
}

/// Why a parcel is held, or was discarded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Why {
    /// The parcel.
    pub parcel: String,
    /// The stage it is held in.
    pub stage: String,
    /// What was wrong.
    pub reason: String,
    /// Attempts begun.
    pub attempts: u32,
    /// When, RFC 3339.
    pub when: String,
    /// The worker or the person who said so.
    pub by: String,
    /// What it was held for when a person discarded it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_for: Option<String>,
}

impl Worker {
    /// Sets a parcel aside, for the world or for a person.
    pub fn fail(&mut self, parcel: Parcel, verdict: &Verdict) -> Result<Setback> {
        let entry = ParcelEntry::new(parcel.id(), parcel.attempt);
        self.throw_out(&entry.id)?;
        match verdict {
            Verdict::Hold { reason } => {
                self.hold_at(&parcel.path, &entry, reason)?;
                Ok(Setback::Held)
            }
            Verdict::Defer { reason } => self.defer(&parcel, &entry, reason, None),
            Verdict::Wait { reason, wait } => self.defer(&parcel, &entry, reason, Some(*wait)),
        }
    }

    fn defer(
        &mut self,
        parcel: &Parcel,
        entry: &ParcelEntry,
        reason: &str,
        pause: Option<Duration>,
    ) -> Result<Setback> {
        let mut trouble = read_trouble(&*self.fs, &parcel.path, &self.stage.name);
        if trouble.held.is_some() || pause.is_some() {
            // Somebody let it go on, or answered: what was before is forgotten.
            trouble = Trouble::default();
        }
        let now = self.tree.now_seconds(&self.stage.name);
        if trouble.deferrals == 0 {
            trouble.since = now;
        }
        trouble.deferrals += 1;
        trouble.reason = reason.to_owned();
        trouble.stage = self.stage.name.clone();
        if pause.is_none() && now.saturating_sub(trouble.since) >= self.limits.retry_limit.as_secs()
        {
            let reason = format!("deferred {} times: {reason}", trouble.deferrals);
            self.hold_at(&parcel.path, entry, &reason)?;
            return Ok(Setback::Held);
        }
        let new = self.home.join("out").join(format!(".trouble-{}", entry.id));
        gone(self.fs.unlink(&new)).at("remove", &new)?;
        self.fs
            .write_new(&new, &trouble.to_bytes())
            .at("write", &new)?;
        let to = parcel.path.join(TROUBLE);
        self.fs.rename(&new, &to).at("write", &to)?;
        let wait = match pause {
            Some(wait) => wait.min(self.limits.retry_longest),
            None => self
                .limits
                .wait_after(trouble.deferrals, (self.tree.dice)()),
        };
        let due = now + wait.as_secs().max(1);
        // The attempt is not the parcel's fault and does not count towards holding it as poison.
        let deferred = Deferred {
            due,
            entry: ParcelEntry::new(&entry.id, entry.attempts.saturating_sub(1)),
        };
        let to = self.stage.deferred().join(deferred.file_name());
        self.move_claimed(&parcel.path, &to)?;
        Ok(Setback::DeferredUntil(due))
    }

    /// Gives a parcel back untouched; the attempt does not count.
    pub fn give_back(&mut self, parcel: Parcel) -> Result<()> {
        self.throw_out(&parcel.manifest.id)?;
        let entry = ParcelEntry::new(parcel.id(), parcel.attempt.saturating_sub(1));
        let to = self.tree.ready_slot(&self.stage, &entry);
        self.move_claimed(&parcel.path, &to)?;
        Ok(())
    }

    /// Gives a parcel back after its work crashed inside the process; the attempt counts.
    pub fn give_back_crashed(&mut self, parcel: Parcel, reason: &str) -> Result<Option<Setback>> {
        self.throw_out(&parcel.manifest.id)?;
        let entry = ParcelEntry::new(parcel.id(), parcel.attempt);
        if entry.attempts >= self.limits.attempts {
            let reason = format!("its work crashed {} times: {reason}", entry.attempts);
            self.hold_at(&parcel.path, &entry, &reason)?;
            return Ok(Some(Setback::Held));
        }
        let to = self.tree.ready_slot(&self.stage, &entry);
        self.move_claimed(&parcel.path, &to)?;
        Ok(None)
    }

    /// Returns the parcels that were held without a verdict of the stage since this was last asked:
    /// damaged ones, and those that killed their workers.
    pub fn take_held(&mut self) -> Vec<(ParcelId, String)> {
        std::mem::take(&mut self.held_unasked)
    }

    /// Holds a parcel the stage never judged, and remembers to tell.
    pub(crate) fn hold_unasked(
        &mut self,
        path: &Path,
        entry: &ParcelEntry,
        reason: &str,
    ) -> Result<()> {
        self.hold_at(path, entry, reason)?;
        self.held_unasked
            .push((entry.id.clone(), reason.to_owned()));
        Ok(())
    }

    /// Removes what the outbox of a parcel holds.
    fn throw_out(&self, id: &ParcelId) -> Result<()> {
        let out = self.home.join("out").join(id.as_str());
        self.fs.remove_tree(&out).at("remove", &out)
    }

    pub(crate) fn hold_at(&mut self, path: &Path, entry: &ParcelEntry, reason: &str) -> Result<()> {
        let stage = self.stage.clone();
        self.give_reason(path, &stage, entry, reason)?;
        let to = stage.held().join(entry.file_name());
        self.move_claimed(path, &to)?;
        let held = stage.held();
        self.fs.sync_dir(&held).at("sync", &held)
    }

    /// Writes into a parcel of ours why it is about to be held in a stage.
    pub(crate) fn give_reason(
        &self,
        parcel: &Path,
        stage: &StageDir,
        entry: &ParcelEntry,
        reason: &str,
    ) -> Result<()> {
        let why = Why {
            parcel: entry.id.to_string(),
            stage: stage.name.clone(),
            reason: reason.to_owned(),
            attempts: entry.attempts,
            when: self.tree.now_text(),
            by: self.id.to_string(),
            held_for: None,
        };
        let new = self.home.join("out").join(format!(".why-{}", entry.id));
        gone(self.fs.unlink(&new)).at("remove", &new)?;
        self.tree.write_reason(&new, parcel, &why)
    }

    /// Moves a parcel out of `in/`; if one of that very name is there, beside it.
    pub(crate) fn move_claimed(&mut self, from: &Path, to: &Path) -> Result<()> {
        if self.tree.place_beside(from, &self.stage, to)?.is_none() {
            self.check_fence()?;
            return Err(io::Error::from(io::ErrorKind::NotFound)).at("move", from);
        }
        Ok(())
    }

    pub(crate) fn discard_claimed(&mut self, path: &Path, entry: &ParcelEntry) -> Result<()> {
        let bin = self
            .home
            .join("out")
            .join(format!(".gone-{}", entry.file_name()));
        gone(self.fs.rename(path, &bin)).at("remove", path)?;
        self.fs.remove_tree(&bin).at("remove", &bin)
    }
}

impl WorkTree {
    /// Writes a reason into a parcel in one durable step, by way of `new`. Into what is no proper
    /// parcel, it cannot: then it lies beside it, in `held/`.
    pub(crate) fn write_reason(&self, new: &Path, parcel: &Path, why: &Why) -> Result<()> {
        let trouble = Trouble {
            stage: why.stage.clone(),
            held: Some(why.clone()),
            ..read_trouble(&*self.fs, parcel, &why.stage)
        };
        let durable = |bytes: &[u8], to: &Path| {
            self.fs.write_durable(new, bytes)?;
            self.fs.rename(new, to)
        };
        // Not behind a link.
        let kind = self.fs.stat(parcel).at("look at", parcel)?.kind;
        let to = parcel.join(TROUBLE);
        if kind == FileKind::Dir {
            match durable(&trouble.to_bytes(), &to) {
                Ok(()) => return self.fs.sync_dir(parcel).at("sync", parcel),
                Err(e) if is_refused(&e) => {
                    gone(self.fs.unlink(new)).at("remove", new)?;
                }
                Err(e) => return Err(e).at("write", &to),
            }
        }
        let text = serde_json::to_vec_pretty(why).expect("a reason holds only strings");
        let held = self.stage(&why.stage).held();
        let to = beside(&held, &why.parcel);
        durable(&text, &to).at("write", &to)?;
        self.fs.sync_dir(&held).at("sync", &held)
    }
}

/// Where a reason lies that is not in its parcel: one that could not be, or of an earlier version.
pub(crate) fn beside(dir: &Path, parcel: &str) -> PathBuf {
    dir.join(format!("{parcel}.why.json"))
}

/// A directory under the name of the file, or a parcel we may not write to.
fn is_refused(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::IsADirectory
            | io::ErrorKind::DirectoryNotEmpty
            | io::ErrorKind::AlreadyExists
            | io::ErrorKind::PermissionDenied
    )
}
