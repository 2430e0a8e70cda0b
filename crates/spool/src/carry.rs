//! Parcels that leave the work directories for another engine, and parcels that come from there.
//!
//! ```text
//! work/<stage>/leaving/.lock                  held by whoever carries parcels of the stage
//! work/<stage>/leaving/<place>/<name>         taken out of <place>/ (ready, held …) in one rename: nobody claims it any more
//! work/<stage>/arriving/<name>                whole and durable, not shown yet
//! ```
//!
//! What lies in `leaving/` is removed when the other engine has it, and what lies in `arriving/` is shown in one rename when
//! the other engine knows that it has gone: a carrier that dies leaves something that the next one goes on with.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use crate::depths::Paused;
use crate::error::{At, Result, SpoolError};
use crate::fs::{FileKind, Lease, gone, if_there};
use crate::name::{Deferred, ParcelEntry, ParcelId};
use crate::new_parcel::hash;
use crate::operator::{ParcelPlace, ParcelState};
use crate::parcel::{FileEntry, HISTORY, MANIFEST, ParcelManifest, TROUBLE, Trouble};
use crate::receipt::{Filed, Receipt, parse_sheet};
use crate::setback::beside;
use crate::tree::{StageDir, WorkTree};
use crate::worker::{Signs, read_manifest};

const LEAVING: &str = "leaving";
const ARRIVING: &str = "arriving";

/// A parcel that was taken out of the work directories and is on its way to another engine.
#[derive(Debug)]
pub struct Departure {
    /// How it stood, and its name.
    pub place: ParcelPlace,
    /// What it is.
    pub manifest: ParcelManifest,
    /// What went wrong with it lately.
    pub trouble: Option<Trouble>,
    /// The receipts that it has gathered, each with its stage, in order.
    pub history: Vec<(String, Filed)>,
}

impl Departure {
    /// Returns where one of its files lies.
    pub fn file(&self, file: &FileEntry) -> PathBuf {
        self.place.path.join(&file.name)
    }
}

/// A parcel that comes from another engine.
#[derive(Debug)]
pub struct Arrival<'a> {
    /// What it is.
    pub manifest: &'a ParcelManifest,
    /// What went wrong with it lately.
    pub trouble: Option<&'a Trouble>,
    /// The receipts that it has gathered, each with its stage, in order.
    pub history: &'a [(String, Receipt)],
}

/// Held by whoever carries parcels of a stage between engines.
pub struct CarryLock {
    _lease: Box<dyn Lease>,
}

impl WorkTree {
    /// Returns a name that no other work tree has, written into this one.
    ///
    /// # Errors
    /// When it cannot be read, or is not there and cannot be written.
    pub fn identity(&self, make: bool) -> Result<Option<String>> {
        let path = self.work().join(".identity");
        let read = || if_there(self.fs.read(&path, 1 << 10)).at("read", &path);
        if let Some(bytes) = read()? {
            return Ok(Some(String::from_utf8_lossy(&bytes).trim().to_owned()));
        }
        if !make {
            return Ok(None);
        }
        let work = self.work();
        for dir in [work.parent(), Some(work)].into_iter().flatten() {
            if !dir.as_os_str().is_empty() {
                self.fs.ensure_dir(dir).at("make", dir)?;
            }
        }
        let new = work.join(format!(".identity-{:016x}", (self.dice)()));
        let text = format!("{:016x}{:016x}", (self.dice)(), (self.dice)());
        self.fs
            .write_durable(&new, text.as_bytes())
            .at("write", &new)?;
        // The first counts.
        let linked = self.fs.link(&new, &path);
        gone(self.fs.unlink(&new)).at("remove", &new)?;
        match linked {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            other => other.at("write", &path)?,
        }
        self.fs.sync_dir(work).at("sync", work)?;
        let bytes = read()?.unwrap_or_default();
        Ok(Some(String::from_utf8_lossy(&bytes).trim().to_owned()))
    }

    /// Takes the lock of those who carry parcels of a stage between engines; `None` when another has it.
    ///
    /// # Errors
    /// When the stage's directory cannot be made.
    pub fn lock_carrying(&self, stage: &str) -> Result<Option<CarryLock>> {
        let dir = self.init(stage)?;
        let leaving = dir.root().join(LEAVING);
        for path in [leaving.clone(), dir.root().join(ARRIVING)] {
            if self.fs.ensure_dir(&path).at("make", &path)? {
                self.fs.sync_dir(dir.root()).at("sync", dir.root())?;
            }
        }
        let path = leaving.join(".lock");
        drop(self.fs.append(&path).at("open", &path)?);
        let lease = self.fs.lock(&path).at("lock", &path)?;
        Ok(lease.map(|lease| CarryLock { _lease: lease }))
    }

    /// Takes a parcel out of where it waits, so that nobody claims it; `false` when somebody was quicker.
    ///
    /// # Errors
    /// When it cannot be moved.
    pub fn take_out(&self, place: &ParcelPlace, _lock: &CarryLock) -> Result<bool> {
        let root = self.stage(&place.stage).root().to_owned();
        let from = place
            .path
            .parent()
            .and_then(Path::file_name)
            .unwrap_or_default();
        let parent = root.join(LEAVING).join(from);
        self.fs.ensure_dir(&parent).at("make", &parent)?;
        let to = parent.join(place.path.file_name().unwrap_or_default());
        let moved = if_there(self.fs.rename(&place.path, &to));
        Ok(moved.at("move", &place.path)?.is_some())
    }

    /// Names the parcels of a stage that were taken out and are not known to have arrived elsewhere.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn leaving(&self, stage: &str, _lock: &CarryLock) -> Result<Vec<ParcelPlace>> {
        let root = self.stage(stage).root().join(LEAVING);
        let mut places = Vec::new();
        for (from, kind) in self.list(&root)? {
            let state = match from.to_str() {
                Some("ready") => ParcelState::Ready,
                Some("held") => ParcelState::Held,
                Some("discarded") => ParcelState::Discarded,
                Some("deferred") => ParcelState::Deferred,
                _ => continue,
            };
            if kind != FileKind::Dir {
                continue;
            }
            let parent = root.join(&from);
            for (name, _) in self.list(&parent)? {
                let (due, entry) = match state {
                    ParcelState::Deferred => match Deferred::parse(&name) {
                        Some(deferred) => (Some(deferred.due), deferred.entry),
                        None => continue,
                    },
                    _ => match ParcelEntry::parse(&name) {
                        Some(entry) => (None, entry),
                        None => continue,
                    },
                };
                places.push(ParcelPlace {
                    stage: stage.to_owned(),
                    state,
                    parcel: entry.id,
                    attempts: entry.attempts,
                    due,
                    worker: None,
                    path: parent.join(&name),
                });
            }
        }
        Ok(places)
    }

    /// Reads a parcel that was taken out, every file of it.
    ///
    /// # Errors
    /// [`SpoolError::Damaged`] when it is not what its manifest says.
    pub fn departure(&self, place: ParcelPlace, signs: &Signs) -> Result<Departure> {
        let (manifest, _) = read_manifest(&*self.fs, &place.path, &place.parcel)?;
        let damaged = |reason: String| SpoolError::Damaged {
            parcel: place.parcel.clone(),
            reason,
        };
        for file in &manifest.files {
            let path = place.path.join(&file.name);
            let (bytes, sha256) = match if_there(hash(&*self.fs, &path, signs)).at("read", &path)? {
                Some(found) => found,
                None => return Err(damaged(format!("there is no {}", file.name))),
            };
            if bytes != file.bytes || sha256 != file.sha256 {
                let name = &file.name;
                let reason = format!("{name} has the digest {sha256}, not {}", file.sha256);
                return Err(damaged(reason));
            }
        }
        let path = place.path.join(TROUBLE);
        let trouble = if_there(self.fs.read(&path, 1 << 20)).at("read", &path)?;
        let mut trouble: Option<Trouble> =
            trouble.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        // An earlier version wrote the reason beside the parcel.
        let is_held = place.state == ParcelState::Held;
        if is_held
            && trouble
                .as_ref()
                .is_none_or(|trouble| trouble.held.is_none())
        {
            let path = beside(&self.stage(&place.stage).held(), place.parcel.as_str());
            let bytes = if_there(self.fs.read(&path, 1 << 20)).at("read", &path)?;
            let why = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
            trouble = why.map(|why| Trouble {
                stage: place.stage.clone(),
                held: Some(why),
                ..trouble.unwrap_or_default()
            });
        }
        let history = self.pages(&place)?;
        Ok(Departure {
            place,
            manifest,
            trouble,
            history,
        })
    }

    /// Reads the history of a parcel page by page. A page may be a sheet that speaks of other work too: what counts is the
    /// line that this parcel, or what it was made of, went through.
    fn pages(&self, place: &ParcelPlace) -> Result<Vec<(String, Filed)>> {
        let dir = place.path.join(HISTORY);
        let mut pages = self.list(&dir)?;
        pages.sort_by(|a, b| a.0.cmp(&b.0));
        let mut known: BTreeSet<ParcelId> = [place.parcel.clone()].into();
        let mut history = Vec::new();
        for (page, _) in pages.iter().rev() {
            let name = page.to_string_lossy();
            let stage = name.strip_suffix(".json").and_then(|n| n.split_once('-'));
            let Some((_, stage)) = stage else { continue };
            let path = dir.join(page);
            let sheet = self.fs.read(&path, 1 << 30).at("read", &path)?;
            let lines = parse_sheet(&sheet);
            let is_alone = lines.len() == 1;
            let found = lines.into_iter().find(|filed| {
                let receipt = &filed.receipt;
                let outputs = receipt.outputs.iter().map(|output| &output.parcel);
                let inputs = receipt.inputs.iter().map(|input| &input.parcel);
                is_alone || outputs.chain(inputs).any(|id| known.contains(id))
            });
            if let Some(filed) = found {
                known.insert(filed.receipt.work.clone());
                if let [input] = filed.receipt.inputs.as_slice() {
                    known.insert(input.parcel.clone());
                }
                history.push((stage.to_owned(), filed));
            }
        }
        history.reverse();
        Ok(history)
    }

    /// Puts a parcel that was taken out back where it was, or beside it.
    ///
    /// # Errors
    /// When it cannot be moved.
    pub fn put_in_again(&self, place: &ParcelPlace) -> Result<()> {
        let stage = self.stage(&place.stage);
        let from = place.path.parent().and_then(Path::file_name);
        let parent = stage.root().join(from.unwrap_or_default());
        let slot = parent.join(place.path.file_name().unwrap_or_default());
        self.place_beside(&place.path, &stage, &slot)?;
        self.fs.sync_dir(&parent).at("sync", &parent)
    }

    /// Removes a parcel that was taken out and has arrived elsewhere.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn forget_departed(&self, place: &ParcelPlace, _lock: &CarryLock) -> Result<()> {
        let stage = self.stage(&place.stage);
        // Away in one step: half of a parcel would be taken for a damaged one.
        let bin = stage.tmp().join(format!("left-{:016x}", (self.dice)()));
        gone(self.fs.rename(&place.path, &bin)).at("remove", &place.path)?;
        if let Some(parent) = place.path.parent() {
            self.fs.sync_dir(parent).at("sync", parent)?;
        }
        self.fs.remove_tree(&bin).at("remove", &bin)
    }

    /// Builds a parcel that comes from another engine in `arriving/`, whole and durable; `fetch` brings a file to a path.
    ///
    /// # Errors
    /// When it cannot be written, or a file not be brought.
    pub fn receive(
        &self,
        stage: &str,
        name: &str,
        arrival: &Arrival<'_>,
        fetch: &mut dyn FnMut(&FileEntry, &Path) -> Result<()>,
        _lock: &CarryLock,
    ) -> Result<()> {
        let dir = self.stage(stage);
        let draft = dir.tmp().join(format!("coming-{:016x}", (self.dice)()));
        let built = self.build(&draft, arrival, fetch);
        if let Err(error) = built {
            let _ = self.fs.remove_tree(&draft);
            return Err(error);
        }
        let to = dir.root().join(ARRIVING).join(name);
        // Of a carrier that died before it was told of.
        self.fs.remove_tree(&to).at("remove", &to)?;
        self.fs.rename(&draft, &to).at("move", &to)?;
        let arriving = dir.root().join(ARRIVING);
        self.fs.sync_dir(&arriving).at("sync", &arriving)
    }

    fn build(
        &self,
        draft: &Path,
        arrival: &Arrival<'_>,
        fetch: &mut dyn FnMut(&FileEntry, &Path) -> Result<()>,
    ) -> Result<()> {
        let history = draft.join(HISTORY);
        for path in [draft, history.as_path()] {
            self.fs.mkdir(path).at("make", path)?;
        }
        for file in &arrival.manifest.files {
            let path = draft.join(&file.name);
            fetch(file, &path)?;
            self.fs.sync_file(&path).at("sync", &path)?;
        }
        let durable = |path: PathBuf, bytes: &[u8]| {
            self.fs.write_new(&path, bytes).at("write", &path)?;
            self.fs.sync_file(&path).at("sync", &path)
        };
        durable(draft.join(MANIFEST), &arrival.manifest.to_bytes())?;
        if let Some(trouble) = arrival.trouble {
            durable(draft.join(TROUBLE), &trouble.to_bytes())?;
        }
        for (number, (stage, receipt)) in arrival.history.iter().enumerate() {
            let name = format!("{:02}-{stage}.json", number + 1);
            durable(history.join(name), &receipt.to_line())?;
        }
        self.fs.sync_dir(&history).at("sync", &history)?;
        self.fs.sync_dir(draft).at("sync", draft)
    }

    /// Shows a parcel that lies in `arriving/` where it stands. `false`: it does not lie there, so it was shown before.
    ///
    /// # Errors
    /// When it cannot be moved.
    pub fn show_received(
        &self,
        stage: &str,
        name: &str,
        place: &ParcelPlace,
        _lock: &CarryLock,
    ) -> Result<bool> {
        let dir = self.stage(stage);
        let entry = ParcelEntry::new(&place.parcel, place.attempts);
        let (parent, file_name) = match place.state {
            ParcelState::Ready | ParcelState::Working => (dir.ready(), entry.file_name()),
            ParcelState::Held => (dir.held(), entry.file_name()),
            ParcelState::Discarded => (dir.root().join("discarded"), entry.file_name()),
            ParcelState::Deferred => {
                let due = place.due.unwrap_or(0);
                (dir.deferred(), Deferred { due, entry }.file_name())
            }
        };
        self.fs.ensure_dir(&parent).at("make", &parent)?;
        let from = dir.root().join(ARRIVING).join(name);
        let shown = self.place_beside(&from, &dir, &parent.join(file_name))?;
        // Not there: it was moved before, perhaps by somebody who did not live to make it durable.
        self.fs.sync_dir(&parent).at("sync", &parent)?;
        Ok(shown.is_some())
    }

    /// Files a committed receipt of another engine, under the name of its work and of each member. What is there stays.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn file_receipts(&self, stage: &str, receipts: &[Receipt]) -> Result<()> {
        let dir = self.init(stage)?;
        let mut changed = Vec::new();
        for receipt in receipts {
            let sheet = dir.tmp().join(format!("sheet-{:016x}", (self.dice)()));
            let line = receipt.to_line();
            let mut written = false;
            for id in std::iter::once(&receipt.work).chain(receipt.members()) {
                let to = dir.receipt(id);
                if self.fs.is_there(&to).at("look at", &to)? || self.folded(&dir, id)? {
                    continue;
                }
                if !written {
                    self.fs.write_durable(&sheet, &line).at("write", &sheet)?;
                    written = true;
                }
                let shard = to.parent().expect("a receipt lies in its shard").to_owned();
                if self.fs.ensure_dir(&shard).at("make", &shard)? {
                    changed.push(dir.receipts());
                }
                match self.fs.link(&sheet, &to) {
                    Ok(()) => {}
                    Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                    Err(e) if e.kind() == io::ErrorKind::TooManyLinks => {
                        self.fs.write_durable(&to, &line).at("write", &to)?;
                    }
                    Err(e) => return Err(e).at("link", &to),
                }
                changed.push(shard);
            }
            gone(self.fs.unlink(&sheet)).at("remove", &sheet)?;
        }
        changed.sort();
        changed.dedup();
        for path in &changed {
            self.fs.sync_dir(path).at("sync", path)?;
        }
        Ok(())
    }

    fn folded(&self, dir: &StageDir, id: &ParcelId) -> Result<bool> {
        crate::ledger::holds(&*self.fs, dir, id)
    }

    /// Pauses a stage as another engine had it paused.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn pause_as(&self, stage: &str, paused: &Paused) -> Result<()> {
        let dir = self.init(stage)?;
        let text = serde_json::to_vec_pretty(paused).expect("a pause holds only strings");
        self.replace(&dir.tmp(), &dir.paused(), &text)
    }

    /// Counts the files that lie in `drop/` of a stage.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn dropped(&self, stage: &str) -> Result<usize> {
        let entries = self.list(&self.stage(stage).drop())?;
        let is_file = |(name, kind): &(std::ffi::OsString, FileKind)| {
            *kind == FileKind::File && !name.as_encoded_bytes().starts_with(b".")
        };
        Ok(entries.iter().filter(|entry| is_file(entry)).count())
    }
}
