//! The operator's hand: find, give, hold, release, retry, set aside, pause.
//!
//! Each act is one rename, as a person could do it with `mv`: a parcel moved by hand between
//! `ready/`, `deferred/` and `held/` is as good. What a worker has claimed cannot be taken from it.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::depths::Paused;
use crate::error::{At, Result, SpoolError};
use crate::fs::{FileKind, gone, if_there};
use crate::name::{Deferred, ParcelEntry, ParcelId, safe_file_name};
use crate::new_parcel::NewParcel;
use crate::outbox::is_at_fault;
use crate::parcel::{HISTORY, ParcelManifest, Trouble};
use crate::place::Placed;
use crate::receipt::{Filed, parse_sheet};
use crate::setback::{Why, beside};
use crate::tree::WorkTree;
use crate::worker::{find_receipt, read_manifest, read_trouble};

/// Where in a stage a parcel is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ParcelState {
    /// Waiting to be claimed.
    Ready,
    /// Claimed.
    Working,
    /// Waiting for the world.
    Deferred,
    /// Waiting for a person.
    Held,
    /// Set aside by a person, outside the chain.
    Discarded,
}

impl ParcelState {
    /// Returns the word an operator reads.
    pub fn word(self) -> &'static str {
        match self {
            ParcelState::Ready => "waiting",
            ParcelState::Working => "working",
            ParcelState::Deferred => "deferred",
            ParcelState::Held => "held",
            ParcelState::Discarded => "discarded",
        }
    }
}

/// One place where a parcel was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ParcelPlace {
    /// The stage.
    pub stage: String,
    /// Where in the stage.
    pub state: ParcelState,
    /// The parcel.
    pub parcel: ParcelId,
    /// Attempts begun.
    pub attempts: u32,
    /// When it is due, if deferred, in Unix seconds.
    pub due: Option<u64>,
    /// The worker that has it, if claimed.
    pub worker: Option<String>,
    /// Its directory.
    pub path: PathBuf,
}

/// How a file is given to a stage.
#[derive(Debug, Clone, Default)]
pub struct Gift {
    /// Its kind; `file` when empty.
    pub kind: String,
    /// The harvest it belongs to.
    pub harvest: Option<String>,
    /// The job it belongs to.
    pub job: Option<String>,
    /// The collection it belongs to.
    pub collection: Option<String>,
    /// Do it over although a parcel of this name is finished: the next id, `X+2`.
    pub again: bool,
}

impl Gift {
    /// Returns the kind of the parcel.
    pub fn kind(&self) -> &str {
        match self.kind.as_str() {
            "" => "file",
            kind => kind,
        }
    }

    /// Returns the id of a parcel that is to become a file's, until its content is known.
    pub fn id_of(file: &Path) -> ParcelId {
        ParcelId::for_file(file.file_name().unwrap_or_default(), "")
    }

    /// Fills a new parcel with a copy of the file, and names it after that.
    ///
    /// # Errors
    /// When the file cannot be read, or the copy not be written.
    pub fn fill(
        &self,
        parcel: &mut NewParcel,
        file: &Path,
        is_finished: &dyn Fn(&ParcelId) -> Result<bool>,
    ) -> Result<()> {
        let name = file.file_name().unwrap_or_default();
        let source = std::fs::File::open(file).at("open", file)?;
        parcel.copy(source, file, &safe_file_name(name))?;
        parcel.name_after(name);
        let manifest = parcel.manifest();
        while self.again && is_finished(&manifest.id)? {
            let next = manifest.id.again();
            manifest.replaces = Some(std::mem::replace(&mut manifest.id, next));
        }
        manifest.harvest.clone_from(&self.harvest);
        manifest.job.clone_from(&self.job);
        manifest.collection.clone_from(&self.collection);
        Ok(())
    }
}

impl WorkTree {
    /// Finds where a parcel is, in the order of the stages given.
    pub fn locate(&self, stages: &[String], id: &ParcelId) -> Result<Vec<ParcelPlace>> {
        let mut places = Vec::new();
        for stage in stages {
            self.each_place(stage, &mut |place| {
                if &place.parcel == id {
                    places.push(place);
                }
            })?;
        }
        Ok(places)
    }

    /// Calls `see` for every parcel of a stage.
    pub fn each_place(&self, stage: &str, see: &mut dyn FnMut(ParcelPlace)) -> Result<()> {
        let dir = self.stage(stage);
        let place = |state, entry: ParcelEntry, path: PathBuf| ParcelPlace {
            stage: stage.to_owned(),
            state,
            parcel: entry.id,
            attempts: entry.attempts,
            due: None,
            worker: None,
            path,
        };
        for (parent, state) in [
            (dir.ready(), ParcelState::Ready),
            (dir.held(), ParcelState::Held),
            (self.discarded(stage), ParcelState::Discarded),
        ] {
            for (name, _) in self.list(&parent)? {
                if let Some(entry) = ParcelEntry::parse(&name) {
                    see(place(state, entry, parent.join(&name)));
                }
            }
        }
        for (name, _) in self.list(&dir.deferred())? {
            if let Some(deferred) = Deferred::parse(&name) {
                let path = dir.deferred().join(&name);
                see(ParcelPlace {
                    due: Some(deferred.due),
                    ..place(ParcelState::Deferred, deferred.entry, path)
                });
            }
        }
        for parent in [dir.claim(), dir.reap()] {
            for (worker, _) in self.list(&parent)? {
                let inputs = parent.join(&worker).join("in");
                for (name, _) in self.list(&inputs)? {
                    if let Some(entry) = ParcelEntry::parse(&name) {
                        see(ParcelPlace {
                            worker: Some(worker.to_string_lossy().into_owned()),
                            ..place(ParcelState::Working, entry, inputs.join(&name))
                        });
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads the manifest of a parcel where it was found.
    pub fn manifest(&self, place: &ParcelPlace) -> Result<ParcelManifest> {
        read_manifest(&*self.fs, &place.path, &place.parcel).map(|(manifest, _)| manifest)
    }

    /// Reads what went wrong with a parcel lately.
    pub fn trouble(&self, place: &ParcelPlace) -> Option<Trouble> {
        let trouble = read_trouble(&*self.fs, &place.path, &place.stage);
        (trouble.deferrals > 0 && trouble.held.is_none()).then_some(trouble)
    }

    /// Reads why a parcel is held or was discarded. `None`: it is not, or somebody moved it there by hand.
    pub fn why(&self, place: &ParcelPlace) -> Result<Option<Why>> {
        let (ParcelState::Held | ParcelState::Discarded) = place.state else {
            return Ok(None);
        };
        let stat = if_there(self.fs.stat(&place.path)).at("look at", &place.path)?;
        let Some(stat) = stat else {
            return Ok(None);
        };
        if stat.kind == FileKind::Dir
            && let Some(why) = read_trouble(&*self.fs, &place.path, &place.stage).held
        {
            return Ok(Some(why));
        }
        let path = self.beside(place);
        match self.fs.read(&path, 1 << 20) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(e) if is_at_fault(&e) => Ok(None),
            Err(e) => Err(e).at("read", &path),
        }
    }

    fn beside(&self, place: &ParcelPlace) -> PathBuf {
        let dir = place.path.parent().expect("a parcel lies in a directory");
        beside(dir, place.parcel.as_str())
    }

    /// Finds the receipt of a parcel in a stage, the ledger included.
    pub fn receipt(&self, stage: &str, id: &ParcelId) -> Result<Option<Filed>> {
        find_receipt(&*self.fs, &self.stage(stage), id)
    }

    /// Reads the receipts a parcel carries with it, in order.
    pub fn history(&self, place: &ParcelPlace) -> Result<Vec<Filed>> {
        let dir = place.path.join(HISTORY);
        let mut pages = self.list(&dir)?;
        pages.sort_by(|a, b| a.0.cmp(&b.0));
        let mut history = Vec::new();
        for (page, _) in pages {
            let path = dir.join(&page);
            let bytes = self.fs.read(&path, 1 << 30).at("read", &path)?;
            history.extend(parse_sheet(&bytes));
        }
        Ok(history)
    }

    /// Calls `see` once with the name of every piece of work and of every parcel that has a receipt still in `receipts/`
    /// of one of these stages, and with the first of them. No receipt is read.
    pub fn each_finished(&self, stages: &[String], see: &mut dyn FnMut(&str, &str)) -> Result<()> {
        // A name lies in the same shard in every stage: only the names of one are kept in mind.
        for shard in 0..=255_u8 {
            let mut seen = std::collections::HashSet::new();
            for stage in stages {
                let dir = self.stage(stage).receipts().join(format!("{shard:02x}"));
                for (name, _) in self.list(&dir)? {
                    let name = name.to_str().and_then(|name| name.strip_suffix(".json"));
                    let name = name.filter(|name| ParcelId::new(name).is_ok());
                    if let Some(name) = name.filter(|name| seen.insert((*name).to_owned())) {
                        see(stage, name);
                    }
                }
            }
        }
        Ok(())
    }

    /// Calls `see` for every receipt still in `receipts/` of a stage, each once.
    pub fn each_receipt(&self, stage: &str, see: &mut dyn FnMut(Filed)) -> Result<()> {
        let receipts = self.stage(stage).receipts();
        let mut seen = std::collections::HashSet::new();
        for (shard, _) in self.list(&receipts)? {
            let dir = receipts.join(shard);
            for (name, _) in self.list(&dir)? {
                let path = dir.join(name);
                let Ok(stat) = self.fs.stat(&path) else {
                    continue;
                };
                // A sheet has one name for each receipt on it: read it once.
                if !seen.insert(stat.inode) {
                    continue;
                }
                let sheet = self.fs.read(&path, 1 << 30).at("read", &path)?;
                parse_sheet(&sheet).into_iter().for_each(&mut *see);
            }
        }
        Ok(())
    }

    /// Calls `see` for every receipt of a stage, those in its ledger too. One may be seen twice.
    pub fn each_receipt_ever(&self, stage: &str, see: &mut dyn FnMut(Filed)) -> Result<()> {
        crate::ledger::each_line(&*self.fs, &self.stage(stage), &mut |line| {
            parse_sheet(line).into_iter().for_each(&mut *see);
        })?;
        self.each_receipt(stage, see)
    }

    /// Gives a copy of a file to a stage as a parcel.
    pub fn give(&self, stage: &str, file: &Path, gift: &Gift) -> Result<ParcelId> {
        let is_finished = |id: &ParcelId| Ok(self.receipt(stage, id)?.is_some());
        self.put(stage, &Gift::id_of(file), gift.kind(), |parcel| {
            gift.fill(parcel, file, &is_finished)
        })
    }

    /// Holds a waiting or deferred parcel.
    pub fn hold(&self, place: &ParcelPlace, reason: &str, by: &str) -> Result<()> {
        self.must_be(place, &[ParcelState::Ready, ParcelState::Deferred], "hold")?;
        self.give_reason(place, &place.path, reason, by)?;
        let held = self.stage(&place.stage).held();
        self.set_aside(place, &held).map(drop)
    }

    /// Lets a held or deferred parcel be tried again at once, its attempts forgotten.
    ///
    /// One rename. The reason goes with it and no longer counts: removed before or after, it might
    /// be that of somebody who holds the parcel at the same time.
    pub fn release(&self, place: &ParcelPlace) -> Result<()> {
        self.must_be(
            place,
            &[
                ParcelState::Held,
                ParcelState::Deferred,
                ParcelState::Discarded,
            ],
            "release",
        )?;
        let dir = self.stage(&place.stage);
        let entry = ParcelEntry::new(&place.parcel, 0);
        self.shift(place, &dir.ready().join(entry.file_name()))?;
        self.forget_beside(place)
    }

    /// Sets a parcel aside, out of the chain but still on disk, in `discarded/` of its stage.
    pub fn discard(&self, place: &ParcelPlace, reason: &str, by: &str) -> Result<PathBuf> {
        self.must_be(
            place,
            &[ParcelState::Held, ParcelState::Ready, ParcelState::Deferred],
            "discard",
        )?;
        let bin = self.discarded(&place.stage);
        self.fs.ensure_dir(&bin).at("make", &bin)?;
        if place.state != ParcelState::Held {
            self.give_reason(place, &place.path, reason, by)?;
            return self.set_aside(place, &bin);
        }
        // It has a reason, perhaps a newer one than the person saw: moved first, it is kept.
        let to = self.set_aside(place, &bin)?;
        match self.give_reason(place, &to, reason, by) {
            // Somebody has just let it go on again.
            Err(SpoolError::Refused(_)) => {}
            other => other?,
        }
        self.forget_beside(place)?;
        Ok(to)
    }

    /// Writes into a parcel, which lies at `path` now, why a person takes it out.
    fn give_reason(&self, place: &ParcelPlace, path: &Path, reason: &str, by: &str) -> Result<()> {
        self.must_be_dir(path)?;
        let is_held = place.state == ParcelState::Held;
        let before = read_trouble(&*self.fs, path, &place.stage).held;
        let why = Why {
            parcel: place.parcel.to_string(),
            stage: place.stage.clone(),
            reason: reason.to_owned(),
            attempts: place.attempts,
            when: self.now_text(),
            by: by.to_owned(),
            held_for: before.filter(|_| is_held).map(|why| why.reason),
        };
        let tmp = self.stage(&place.stage).tmp();
        let new = tmp.join(format!("{:016x}", (self.dice)()));
        let written = self.write_reason(&new, path, &why);
        if written.is_err() {
            let _ = self.fs.unlink(&new);
        }
        match written {
            Err(SpoolError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Err(no_longer(place))
            }
            other => other,
        }
    }

    /// Removes a reason that an earlier version put beside the parcel. This one writes none there
    /// for what can be moved.
    fn forget_beside(&self, place: &ParcelPlace) -> Result<()> {
        if place.state == ParcelState::Deferred {
            return Ok(());
        }
        let path = self.beside(place);
        gone(self.fs.unlink(&path)).at("remove", &path)
    }

    /// Moves a parcel into a directory where it stays until a person moves it on.
    fn set_aside(&self, place: &ParcelPlace, to: &Path) -> Result<PathBuf> {
        let entry = ParcelEntry::new(&place.parcel, place.attempts);
        self.must_be_dir(&place.path)?;
        let stage = self.stage(&place.stage);
        let lies = self.place_beside(&place.path, &stage, &to.join(entry.file_name()))?;
        let path = lies.ok_or_else(|| no_longer(place))?;
        self.fs.sync_dir(to).at("sync", to)?;
        Ok(path)
    }

    /// Stops a stage from claiming.
    pub fn pause(&self, stage: &str, who: &str, why: &str) -> Result<()> {
        let dir = self.init(stage)?;
        let paused = Paused {
            who: who.to_owned(),
            when: self.now_text(),
            why: why.to_owned(),
        };
        let text = serde_json::to_vec_pretty(&paused).expect("a pause holds only strings");
        self.replace(&dir.tmp(), &dir.paused(), &text)
    }

    /// Lets a stage claim again; says whether it was paused.
    pub fn resume(&self, stage: &str) -> Result<bool> {
        let path = self.stage(stage).paused();
        let removed = if_there(self.fs.unlink(&path)).at("remove", &path)?;
        Ok(removed.is_some())
    }

    /// Where a person's discarded parcels of a stage lie.
    fn discarded(&self, stage: &str) -> PathBuf {
        self.stage(stage).root().join("discarded")
    }

    fn must_be(&self, place: &ParcelPlace, states: &[ParcelState], verb: &str) -> Result<()> {
        if states.contains(&place.state) {
            return Ok(());
        }
        Err(SpoolError::Refused(format!(
            "cannot {verb} {}: it is {} in {}",
            place.parcel,
            place.state.word(),
            place.stage
        )))
    }

    /// Moves a parcel from where it was seen; fails when it is no longer there.
    fn shift(&self, place: &ParcelPlace, to: &Path) -> Result<()> {
        self.must_be_dir(&place.path)?;
        match self.place(&place.path, &self.stage(&place.stage), to)? {
            Placed::There => {}
            Placed::Gone => return Err(no_longer(place)),
            Placed::Taken => {
                return Err(SpoolError::Refused(format!(
                    "another {} is there already: {}",
                    place.parcel,
                    to.display()
                )));
            }
        }
        let dir = to.parent().expect("a parcel lies in a directory");
        self.fs.sync_dir(dir).at("sync", dir)
    }

    /// Refuses what is named like a parcel and is none: nothing behind a link is touched.
    fn must_be_dir(&self, path: &Path) -> Result<()> {
        if self.fs.stat(path).is_ok_and(|s| s.kind != FileKind::Dir) {
            return Err(SpoolError::Refused(format!(
                "{} is not a directory",
                path.display()
            )));
        }
        Ok(())
    }

    /// Replaces a small file in one durable step.
    pub(crate) fn replace(&self, tmp: &Path, to: &Path, bytes: &[u8]) -> Result<()> {
        let new = tmp.join(format!("{:016x}", (self.dice)()));
        self.fs.write_new(&new, bytes).at("write", &new)?;
        self.fs.sync_file(&new).at("sync", &new)?;
        self.fs.rename(&new, to).at("write", to)?;
        let dir = to.parent().expect("a file lies in a directory");
        self.fs.sync_dir(dir).at("sync", dir)
    }
}

fn no_longer(place: &ParcelPlace) -> SpoolError {
    SpoolError::Refused(format!(
        "{} is no longer {} in {}",
        place.parcel,
        place.state.word(),
        place.stage
    ))
}
