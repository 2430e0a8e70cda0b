//! From work done to committed: seal, make durable, commit by link. Then [`handover`](crate::handover) begins.
//!
//! The order is the promise. Data and receipt are durable before the link; the link is durable
//! before anything is handed over; what is handed over is found again from the receipt whatever
//! happens, so the hand-over itself waits for no disk. Many pieces of work may go through
//! together and share every sync: a group commit.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{At, Result, SpoolError};
use crate::fs::{Fs, SYNC_ALL_ABOVE, gone};
use crate::handover::leaves_changed;
use crate::name::ParcelId;
use crate::outbox::{ATTACHED, Choice, NEW_MANIFEST, Outbox, Parcel, work_id};
use crate::parcel::{HISTORY, MANIFEST, ParcelManifest, digest};
use crate::receipt::{Fate, Input, Output, Receipt};
use crate::worker::Worker;

/// One finished piece of work: what went in, and the outbox made from it.
pub struct Work {
    /// One parcel, or the parcels of a batch.
    pub parcels: Vec<Parcel>,
    /// What came of them.
    pub outbox: Outbox,
}

impl Work {
    /// Returns the receipt of this work, as every engine writes it.
    ///
    /// # Errors
    /// When a batch is to pass on: only one parcel can.
    pub fn receipt(&self, stage: &str, version: &str, worker: &str, now: &str) -> Result<Receipt> {
        let (parcels, outbox) = (&self.parcels, &self.outbox);
        let fate = match &outbox.choice {
            Choice::Consume => Fate::Consume,
            Choice::PassOn(to) => {
                let [parcel] = parcels.as_slice() else {
                    return Err(SpoolError::Refused(
                        "a batch is consumed: only one parcel can pass on".into(),
                    ));
                };
                Fate::PassOn {
                    to: to.clone(),
                    digest: leaving_manifest(parcel, outbox).map_or_else(
                        || parcel.digest.clone(),
                        |manifest| digest(&manifest.to_bytes()),
                    ),
                    attached: outbox.attached.clone(),
                    detached: outbox.detached.clone(),
                }
            }
        };
        let Some(first) = parcels.first() else {
            return Err(SpoolError::Refused("work without a parcel".into()));
        };
        let inputs = parcels.iter().map(|parcel| Input {
            parcel: parcel.id().clone(),
            born: parcel.manifest.born.clone(),
            content: parcel.manifest.content(),
            digest: parcel.digest.clone(),
        });
        let outputs = outbox.outputs.iter().map(|(output, to)| Output {
            parcel: output.manifest.id.clone(),
            digest: digest(&output.manifest.to_bytes()),
            bytes: output.manifest.bytes(),
            to: to.clone(),
        });
        Ok(Receipt {
            work: work_id(stage, parcels),
            schema: 1,
            stage: stage.to_owned(),
            version: version.to_owned(),
            worker: worker.to_owned(),
            attempt: first.attempt,
            claimed: first.claimed.clone(),
            finished: now.to_owned(),
            inputs: inputs.collect(),
            outputs: outputs.collect(),
            fate,
            facts: outbox.facts.clone(),
        })
    }
}

/// How a commit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The receipt is durable and everything is handed over.
    Committed,
    /// Another worker committed this work first; its results stand, ours are dropped.
    AlreadyCommitted,
}

impl Worker {
    /// Commits finished work, all of it together, and hands it over.
    ///
    /// # Errors
    /// After an error everything this worker holds is as before the commit or committed; call
    /// [`Worker::reset`] to put it back where it belongs.
    pub fn finish(&mut self, works: &mut Vec<Work>) -> Result<Vec<Finish>> {
        if works.is_empty() {
            return Ok(Vec::new());
        }
        let now = self.tree.now_text();
        let mut receipts = Vec::with_capacity(works.len());
        for work in works.iter() {
            let (stage, worker) = (&self.stage.name, self.id.as_str());
            receipts.push(work.receipt(stage, &self.version, worker, &now)?);
        }
        let mut syncs = SyncSet::default();
        for work in works.iter() {
            self.seal(work, &mut syncs)?;
        }
        let sheet = self.write_sheet(&receipts, &mut syncs)?;
        syncs.run(&*self.fs, &self.home)?;
        let finishes = self.commit(&receipts, &sheet)?;
        self.hand_over(works, &receipts, &finishes, &sheet)?;
        works.clear();
        Ok(finishes)
    }

    fn seal(&self, work: &Work, syncs: &mut SyncSet) -> Result<()> {
        self.seal_outputs(&work.parcels, &work.outbox, syncs)?;
        let ([parcel], Choice::PassOn(_)) = (work.parcels.as_slice(), &work.outbox.choice) else {
            return Ok(());
        };
        let Some(manifest) = leaving_manifest(parcel, &work.outbox) else {
            return Ok(());
        };
        let bytes = manifest.to_bytes();
        let dir = &work.outbox.dir;
        if !work.outbox.made {
            self.fs.mkdir(dir).at("make", dir)?;
        }
        let path = dir.join(NEW_MANIFEST);
        self.fs.write_new(&path, &bytes).at("write", &path)?;
        syncs.file(path);
        for file in &work.outbox.attached {
            syncs.file(dir.join(ATTACHED).join(&file.name));
        }
        if !work.outbox.attached.is_empty() {
            syncs.dir(dir.join(ATTACHED));
        }
        syncs.dir(dir.clone());
        syncs.dir(self.home.join("out"));
        // What is to change must be known to lie here, or a restart would look for it elsewhere.
        syncs.dir(self.home.join("in"));
        Ok(())
    }

    fn seal_outputs(&self, parcels: &[Parcel], outbox: &Outbox, syncs: &mut SyncSet) -> Result<()> {
        let history = match parcels {
            [parcel] => Some(parcel.path.join(HISTORY)),
            _ => None,
        };
        for (output, _) in &outbox.outputs {
            output.seal(history.as_deref())?;
            let dir = &output.dir;
            for file in &output.manifest.files {
                syncs.file(dir.join(&file.name));
            }
            syncs.file(dir.join(MANIFEST));
            syncs.dir(dir.join(HISTORY));
            syncs.dir(dir.clone());
        }
        if !outbox.outputs.is_empty() {
            syncs.dir(outbox.dir.clone());
            syncs.dir(self.home.join("out"));
        }
        Ok(())
    }

    fn write_sheet(&mut self, receipts: &[Receipt], syncs: &mut SyncSet) -> Result<PathBuf> {
        self.sheets += 1;
        let sheet = self
            .home
            .join("out")
            .join(format!(".sheet-{}", self.sheets));
        let mut bytes = Vec::with_capacity(receipts.len() * 700);
        for receipt in receipts {
            receipt.write_line(&mut bytes);
        }
        if syncs.is_empty() {
            // Nothing but the sheet must be durable before the link: no second look for it.
            self.fs.write_durable(&sheet, &bytes).at("write", &sheet)?;
        } else {
            self.fs.write_new(&sheet, &bytes).at("write", &sheet)?;
            syncs.file(sheet.clone());
        }
        Ok(sheet)
    }

    /// Links the sheet into `receipts/` once for each piece of work: the first wins.
    fn commit(&mut self, receipts: &[Receipt], sheet: &Path) -> Result<Vec<Finish>> {
        let mut finishes = Vec::with_capacity(receipts.len());
        let mut links = Links::default();
        for receipt in receipts {
            finishes.push(self.commit_one(receipt, sheet, &mut links)?);
        }
        let synced = self.fs.sync_dirs(&links.changed);
        if let Err(e) = synced.at("sync", &self.stage.receipts()) {
            // Not known to be durable: take it back while nothing has been handed over. A worker
            // taken for dead must not: its heir may have acted on the receipt already.
            self.check_fence()?;
            self.take_back(&self.home, &links.made)?;
            return Err(e);
        }
        Ok(finishes)
    }

    /// Commits one piece of work. The members of a batch are filed first, each for itself: a copy of
    /// one of them may be in another batch, and only one of the two may have it.
    fn commit_one(&self, receipt: &Receipt, sheet: &Path, links: &mut Links) -> Result<Finish> {
        let before = links.made.len();
        let mut members: Vec<&ParcelId> = receipt.members().collect();
        // All in one order: of two batches with common members the first to file one files all.
        members.sort_unstable();
        for member in members {
            let to = self.stage.receipt(member);
            // On the same sheet the inode does not tell which batch was first.
            let is_ours = !links.members.insert(member.clone());
            match if is_ours {
                Link::Taken
            } else {
                self.link_receipt(sheet, &to, links)?
            } {
                Link::Made => {}
                // Filed with the hand-over, by a copy of the line.
                Link::TooMany => {}
                Link::Taken => {
                    let made = links.made.split_off(before);
                    self.take_back(&self.home, &made)?;
                    return Ok(Finish::AlreadyCommitted);
                }
            }
        }
        let to = self.stage.receipt(&receipt.work);
        match self.link_receipt(sheet, &to, links)? {
            Link::Made => Ok(Finish::Committed),
            Link::Taken => {
                let made = links.made.split_off(before);
                self.take_back(&self.home, &made)?;
                Ok(Finish::AlreadyCommitted)
            }
            Link::TooMany => Err(io::Error::from(io::ErrorKind::TooManyLinks)).at("commit", &to),
        }
    }

    fn link_receipt(&self, sheet: &Path, to: &Path, links: &mut Links) -> Result<Link> {
        let shard = to.parent().expect("a receipt lies in its shard").to_owned();
        let mut result = self.fs.link(sheet, to);
        if matches!(&result, Err(e) if e.kind() == io::ErrorKind::NotFound) {
            self.check_fence()?;
            if self.fs.ensure_dir(&shard).at("make", &shard)? {
                links.changed.push(self.stage.receipts());
            }
            result = self.fs.link(sheet, to);
        }
        let link = match result {
            Ok(()) => Link::Made,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                let (theirs, ours) = (self.fs.stat(to), self.fs.stat(sheet));
                let ours = ours.at("look at", sheet)?.inode;
                match theirs {
                    // Our own link; the reply was lost on a network file system.
                    Ok(theirs) if theirs.inode == ours => Link::Made,
                    Ok(_) => Link::Taken,
                    // Another batch had filed it, and took it back.
                    Err(e) if e.kind() == io::ErrorKind::NotFound => Link::Taken,
                    Err(e) => return Err(e).at("look at", to),
                }
            }
            Err(e) if e.kind() == io::ErrorKind::TooManyLinks => Link::TooMany,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.check_fence()?;
                return Err(e).at("commit", to);
            }
            Err(e) => return Err(e).at("commit", to),
        };
        if link == Link::Made {
            links.changed.push(shard);
            links.made.push(to.to_owned());
        }
        Ok(link)
    }

    /// Takes links of a sheet in `dir` out of `receipts/`, the last first.
    ///
    /// By a rename into `dir`, which fails once that was taken over: an unlink would not, and might
    /// meet a receipt that was filed there since.
    pub(crate) fn take_back(&self, dir: &Path, links: &[PathBuf]) -> Result<()> {
        for path in links.iter().rev() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let bin = dir.join("out").join(format!(".back-{name}"));
            gone(self.fs.rename(path, &bin)).at("take back", path)?;
            gone(self.fs.unlink(&bin)).at("remove", &bin)?;
        }
        Ok(())
    }
}

/// Links of one sheet into `receipts/`.
#[derive(Default)]
struct Links {
    /// The links.
    made: Vec<PathBuf>,
    /// The members of batches that were to be filed.
    members: BTreeSet<ParcelId>,
    /// Directories that were changed, the one changed last at the end.
    changed: Vec<PathBuf>,
}

/// What came of an attempt to link a sheet.
#[derive(PartialEq, Eq)]
enum Link {
    Made,
    /// Another receipt has the name.
    Taken,
    /// The sheet has as many names as the file system allows.
    TooMany,
}

/// Returns `parcel.json` as the parcel leaves, if the stage changed its files.
fn leaving_manifest(parcel: &Parcel, outbox: &Outbox) -> Option<ParcelManifest> {
    if !leaves_changed(outbox) {
        return None;
    }
    let mut manifest = parcel.manifest.clone();
    for name in &outbox.detached {
        manifest.take(name);
    }
    for file in &outbox.attached {
        manifest.put(file.clone());
    }
    Some(manifest)
}

/// What must be durable before the next step.
#[derive(Default)]
pub(crate) struct SyncSet {
    files: Vec<PathBuf>,
    dirs: Vec<PathBuf>,
}

impl SyncSet {
    fn file(&mut self, path: PathBuf) {
        self.files.push(path);
    }

    fn is_empty(&self) -> bool {
        self.files.is_empty() && self.dirs.is_empty()
    }

    fn dir(&mut self, path: PathBuf) {
        // Past the limit one call syncs everything, so the list need not stay free of repeats.
        if self.dirs.len() > SYNC_ALL_ABOVE || !self.dirs.contains(&path) {
            self.dirs.push(path);
        }
    }

    /// Syncs everything: one by one while that is cheap, the whole file system when it is not.
    fn run(&self, fs: &dyn Fs, anywhere: &Path) -> Result<()> {
        if self.files.len() + self.dirs.len() > SYNC_ALL_ABOVE {
            return fs.sync_all(anywhere).at("sync", anywhere);
        }
        for path in &self.files {
            fs.sync_file(path).at("sync", path)?;
        }
        for path in &self.dirs {
            fs.sync_dir(path).at("sync", path)?;
        }
        Ok(())
    }
}
