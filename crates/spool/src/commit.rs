//! From work done to handed over: seal, make durable, commit by link, hand over.
//!
//! The order is the promise. Data and receipt are durable before the link; the link is durable
//! before anything is handed over; what is handed over is found again from the receipt whatever
//! happens, so the hand-over itself waits for no disk. Many pieces of work may go through
//! together and share every sync: a group commit.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use crate::error::{At, Result, SpoolError};
use crate::failpoint::{after, mutant};
use crate::fs::{Fs, SYNC_ALL_ABOVE, gone, is_taken};
use crate::name::{Entry, ParcelId};
use crate::outbox::{ATTACHED, Choice, NEW_MANIFEST, Outbox, Parcel, Ticking};
use crate::parcel::{HISTORY, MANIFEST, TROUBLE, digest};
use crate::receipt::{Fate, Input, Output, Receipt};
use crate::worker::{Seen, Signs, Why, Worker, is_page_of, read_manifest};

/// One finished piece of work: what went in, and the outbox made from it.
pub struct Work {
    /// One parcel, or the parcels of a batch.
    pub parcels: Vec<Parcel>,
    /// What came of them.
    pub outbox: Outbox,
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
        let now = self.yard.now_text();
        let mut receipts = Vec::with_capacity(works.len());
        for work in works.iter() {
            receipts.push(self.receipt_of(work, &now)?);
        }
        if mutant("receipt-first") {
            let sheet = self.write_sheet(&receipts, &mut SyncSet::default())?;
            let finishes = self.commit(&receipts, &sheet)?;
            let mut syncs = SyncSet::default();
            for work in works.iter() {
                self.seal(work, &mut syncs)?;
            }
            self.hand_over(works, &receipts, &finishes, &sheet)?;
            works.clear();
            return Ok(finishes);
        }
        let mut syncs = SyncSet::default();
        for work in works.iter() {
            self.seal(work, &mut syncs)?;
        }
        after("outputs-sealed");
        let sheet = self.write_sheet(&receipts, &mut syncs)?;
        after("sheet-written");
        syncs.run(&*self.fs, &self.home)?;
        after("data-durable");
        let finishes = self.commit(&receipts, &sheet)?;
        self.hand_over(works, &receipts, &finishes, &sheet)?;
        works.clear();
        Ok(finishes)
    }

    /// Commits the outputs made so far as one part of a long piece of work, and hands them over.
    /// Returns the number of the part.
    pub fn finish_part(&mut self, parcel: &mut Parcel, outbox: Outbox) -> Result<u32> {
        let part = parcel.parts + 1;
        self.commit_part(parcel, part, &outbox)?;
        parcel.parts = part;
        Ok(part)
    }

    pub(crate) fn commit_part(
        &mut self,
        parcel: &Parcel,
        part: u32,
        outbox: &Outbox,
    ) -> Result<()> {
        if !outbox.attached.is_empty() || !outbox.detached.is_empty() {
            return Err(SpoolError::Refused(
                "a part hands over new parcels only: attach files when the work is finished".into(),
            ));
        }
        let receipt = Receipt {
            part: Some(part),
            fate: Fate::Keep,
            ..self.receipt_from(
                std::slice::from_ref(parcel),
                outbox,
                Fate::Keep,
                &self.yard.now_text(),
            )?
        };
        let mut syncs = SyncSet::default();
        self.seal_outputs(std::slice::from_ref(parcel), outbox, &mut syncs)?;
        let receipts = [receipt];
        let sheet = self.write_sheet(&receipts, &mut syncs)?;
        syncs.run(&*self.fs, &self.home)?;
        let finishes = self.commit(&receipts, &sheet)?;
        after("part-committed");
        if finishes == [Finish::Committed] {
            self.complete(&self.home.clone(), &receipts[0], &|_| None)?;
        } else {
            let out = &outbox.dir;
            self.fs.remove_tree(out).at("remove", out)?;
        }
        self.fs.unlink(&sheet).at("remove", &sheet)
    }

    fn receipt_of(&self, work: &Work, now: &str) -> Result<Receipt> {
        let fate = match &work.outbox.choice {
            Choice::Consume => Fate::Consume,
            Choice::PassOn(to) => {
                let [parcel] = work.parcels.as_slice() else {
                    return Err(SpoolError::Refused(
                        "a batch is consumed: only one parcel can pass on".into(),
                    ));
                };
                Fate::PassOn {
                    to: to.clone(),
                    digest: leaving_manifest(parcel, &work.outbox)
                        .map_or_else(|| parcel.digest.clone(), |bytes| digest(&bytes)),
                    attached: work.outbox.attached.clone(),
                    detached: work.outbox.detached.clone(),
                }
            }
        };
        self.receipt_from(&work.parcels, &work.outbox, fate, now)
    }

    fn receipt_from(
        &self,
        parcels: &[Parcel],
        outbox: &Outbox,
        fate: Fate,
        now: &str,
    ) -> Result<Receipt> {
        let Some(first) = parcels.first() else {
            return Err(SpoolError::Refused("work without a parcel".into()));
        };
        Ok(Receipt {
            work: self.work_id(parcels),
            part: None,
            schema: 1,
            stage: self.stage.name.clone(),
            version: self.version.clone(),
            worker: self.id.to_string(),
            attempt: first.attempt,
            claimed: first.claimed.clone(),
            finished: now.to_owned(),
            inputs: parcels
                .iter()
                .map(|parcel| Input {
                    parcel: parcel.id().clone(),
                    born: parcel.manifest.born.clone(),
                    content: parcel.manifest.content(),
                    digest: parcel.digest.clone(),
                })
                .collect(),
            outputs: outbox
                .outputs
                .iter()
                .map(|(output, to)| Output {
                    parcel: output.manifest.id.clone(),
                    digest: digest(&output.manifest.to_bytes()),
                    bytes: output.manifest.bytes(),
                    to: to.clone(),
                })
                .collect(),
            fate,
            facts: outbox.facts.clone(),
        })
    }

    fn seal(&self, work: &Work, syncs: &mut SyncSet) -> Result<()> {
        self.seal_outputs(&work.parcels, &work.outbox, syncs)?;
        let ([parcel], Choice::PassOn(_)) = (work.parcels.as_slice(), &work.outbox.choice) else {
            return Ok(());
        };
        let Some(bytes) = leaving_manifest(parcel, &work.outbox) else {
            return Ok(());
        };
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
            let mut dir = output.dir.clone();
            if mutant("receipt-first") {
                dir.set_file_name(output.manifest.id.as_str());
                self.fs.rename(&output.dir, &dir).at("move", &dir)?;
            }
            for file in &output.manifest.files {
                syncs.file(dir.join(&file.name));
            }
            syncs.file(dir.join(MANIFEST));
            syncs.dir(dir.join(HISTORY));
            syncs.dir(dir);
        }
        if !outbox.outputs.is_empty() {
            syncs.dir(outbox.dir.clone());
            syncs.dir(self.home.join("out"));
        }
        Ok(())
    }

    fn write_sheet(&self, receipts: &[Receipt], syncs: &mut SyncSet) -> Result<PathBuf> {
        let number = self.sheets.fetch_add(1, Ordering::Relaxed) + 1;
        let sheet = self.home.join("out").join(format!(".sheet-{number}"));
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
            after("committed");
        }
        if let Err(e) = self.sync_shards(&links.changed) {
            // Not known to be durable: take it back while nothing has been handed over. A worker
            // taken for dead must not: its heir may have acted on the receipt already.
            self.check_fence()?;
            self.take_back(&self.home, &links.made)?;
            return Err(e);
        }
        after("receipts-durable");
        Ok(finishes)
    }

    fn sync_shards(&self, shards: &[PathBuf]) -> Result<()> {
        if mutant("no-fsync") {
            return Ok(());
        }
        self.fs.sync_dirs(shards).at("sync", &self.stage.receipts())
    }

    /// Commits one piece of work. The members of a batch are filed first, each for itself: a copy of
    /// one of them may be in another batch, and only one of the two may have it.
    fn commit_one(&self, receipt: &Receipt, sheet: &Path, links: &mut Links) -> Result<Finish> {
        let before = links.made.len();
        let mut members: Vec<&ParcelId> = receipt.members().collect();
        // All in one order: of two batches with common members the first to file one files all.
        members.sort_unstable();
        for member in members {
            let to = self.stage.receipt(member, None);
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
            after("member-filed");
        }
        let to = self.stage.receipt(&receipt.work, receipt.part);
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

    fn hand_over(
        &mut self,
        works: &[Work],
        receipts: &[Receipt],
        finishes: &[Finish],
        sheet: &Path,
    ) -> Result<()> {
        let home = self.home.clone();
        for ((work, receipt), finish) in works.iter().zip(receipts).zip(finishes) {
            let path_of = |id: &ParcelId| {
                let parcel = work.parcels.iter().find(|p| p.id() == id)?;
                Some(parcel.path.clone())
            };
            let known = Known {
                seen: match work.parcels.as_slice() {
                    [parcel] => Some(&parcel.seen),
                    _ => None,
                },
                has_outbox: work.outbox.made || leaves_changed(&work.outbox),
                sheet: (works.len() == 1).then_some(sheet),
            };
            match finish {
                Finish::Committed => {
                    if self.complete_knowing(&home, receipt, &path_of, &known)? == Sheet::Filed {
                        return Ok(());
                    }
                }
                Finish::AlreadyCommitted => {
                    let out = &work.outbox.dir;
                    self.fs.remove_tree(out).at("remove", out)?;
                    for parcel in &work.parcels {
                        self.settle_claimed(&home, &parcel.path, None)?;
                    }
                }
            }
        }
        gone(self.fs.unlink(sheet)).at("remove", sheet)?;
        after("sheet-removed");
        Ok(())
    }

    /// Carries out what a durable receipt says, from the worker directory `dir`, ours or a dead
    /// worker's. What is no longer here was carried out before.
    pub(crate) fn complete(
        &mut self,
        dir: &Path,
        receipt: &Receipt,
        path_of: &dyn Fn(&ParcelId) -> Option<PathBuf>,
    ) -> Result<()> {
        let nothing = Known {
            seen: None,
            has_outbox: true,
            sheet: None,
        };
        self.complete_knowing(dir, receipt, path_of, &nothing)?;
        Ok(())
    }

    fn complete_knowing(
        &mut self,
        dir: &Path,
        receipt: &Receipt,
        path_of: &dyn Fn(&ParcelId) -> Option<PathBuf>,
        known: &Known,
    ) -> Result<Sheet> {
        let out = dir.join("out").join(receipt.work.as_str());
        let filed = self.stage.receipt(&receipt.work, receipt.part);
        let mut sheet = Sheet::Left;
        for output in &receipt.outputs {
            let path = out.join(output.parcel.as_str());
            if !self.fs.is_there(&path).at("look at", &path)? {
                continue;
            }
            self.add_history(&path, &filed, &receipt.work)?;
            self.deliver(&path, &output.parcel, &output.to)?;
            after("output-handed-over");
        }
        match &receipt.fate {
            Fate::Keep => {}
            Fate::PassOn {
                to,
                attached,
                detached,
                ..
            } => {
                for input in &receipt.inputs {
                    let Some(path) = path_of(&input.parcel) else {
                        continue;
                    };
                    self.change_files(&out, &path, attached, detached, known)?;
                    sheet = self.add_page(&path, &filed, &input.parcel, known)?;
                    self.deliver(&path, &input.parcel, to)?;
                    after("passed-on");
                }
            }
            Fate::Consume => {
                for input in &receipt.inputs {
                    self.consume(receipt, &filed, &input.parcel, path_of(&input.parcel), dir)?;
                }
            }
        }
        if known.has_outbox && self.fs.is_there(&out).at("look at", &out)? {
            self.fs.remove_tree(&out).at("remove", &out)?;
            after("outbox-removed");
        }
        Ok(sheet)
    }

    fn change_files(
        &self,
        out: &Path,
        parcel: &Path,
        attached: &[crate::FileEntry],
        detached: &[String],
        known: &Known,
    ) -> Result<()> {
        for file in attached {
            let from = out.join(ATTACHED).join(&file.name);
            let to = parcel.join(&file.name);
            gone(self.fs.rename(&from, &to)).at("attach", &to)?;
            after("file-attached");
        }
        if !attached.is_empty() || !detached.is_empty() {
            let (from, to) = (out.join(NEW_MANIFEST), parcel.join(MANIFEST));
            gone(self.fs.rename(&from, &to)).at("write", &to)?;
            after("manifest-replaced");
        }
        for name in detached {
            let path = parcel.join(name);
            gone(self.fs.unlink(&path)).at("remove", &path)?;
        }
        if known.seen.is_some_and(|seen| !seen.in_trouble) {
            return Ok(());
        }
        let trouble = parcel.join(TROUBLE);
        gone(self.fs.unlink(&trouble)).at("remove", &trouble)
    }

    /// Gives a parcel the receipt as the next page of its history, without a look where its
    /// history is known and with the sheet itself where nobody else needs that.
    fn add_page(&self, parcel: &Path, filed: &Path, id: &ParcelId, known: &Known) -> Result<Sheet> {
        if let Some(Seen {
            pages: Some(pages),
            has_page: false,
            ..
        }) = known.seen
        {
            let page = self.page(parcel, *pages);
            if let Some(sheet) = known.sheet
                && self.fs.rename(sheet, &page).is_ok()
            {
                after("history-linked");
                return Ok(Sheet::Filed);
            }
            if self.fs.link(filed, &page).is_ok() {
                after("history-linked");
                return Ok(Sheet::Left);
            }
        }
        self.add_history(parcel, filed, id)?;
        Ok(Sheet::Left)
    }

    /// Returns the path of the page that follows the first so many.
    fn page(&self, parcel: &Path, pages: usize) -> PathBuf {
        let name = format!("{:02}-{}.json", pages + 1, self.stage.name);
        parcel.join(HISTORY).join(name)
    }

    /// Gives a parcel the receipt as the next page of its history.
    fn add_history(&self, parcel: &Path, filed: &Path, id: &ParcelId) -> Result<()> {
        let history = parcel.join(HISTORY);
        let mut pages = 0;
        let mut there = false;
        let listed = self.fs.visit(&history, &mut |name, _| {
            pages += 1;
            there |= is_page_of(name, &self.stage.name);
            std::ops::ControlFlow::Continue(())
        });
        match listed {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => match self.fs.mkdir(&history) {
                Ok(()) => {}
                // The parcel itself is gone: it was handed over before.
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(e) => return Err(e).at("make", &history),
            },
            Err(e) => return Err(e).at("list", &history),
        }
        if there {
            return Ok(());
        }
        let page = self.page(parcel, pages);
        match self.fs.link(filed, &page) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            // Folded into the ledger since, out of links, or on another file system: copy its line.
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::TooManyLinks
                        | io::ErrorKind::CrossesDevices
                        | io::ErrorKind::NotFound
                ) =>
            {
                if let Some(line) = self.filed(id)? {
                    self.fs
                        .write_new(&page, &line.receipt.to_line())
                        .at("write", &page)?;
                }
            }
            Err(e) => return Err(e).at("link", &page),
        }
        after("history-linked");
        Ok(())
    }

    fn consume(
        &mut self,
        receipt: &Receipt,
        filed: &Path,
        id: &ParcelId,
        path: Option<PathBuf>,
        dir: &Path,
    ) -> Result<()> {
        if id != &receipt.work {
            let to = self.stage.receipt(id, None);
            let shard = to.parent().expect("a receipt lies in its shard");
            self.fs.ensure_dir(shard).at("make", shard)?;
            match self.fs.link(filed, &to) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) if e.kind() == io::ErrorKind::TooManyLinks => {
                    self.fs
                        .write_new(&to, &receipt.to_line())
                        .at("write", &to)?;
                }
                Err(e) => return Err(e).at("link", &to),
            }
            self.touched.insert(shard.to_owned());
        }
        let Some(path) = path else {
            return Ok(());
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let bin = dir.join("out").join(format!(".gone-{name}"));
        match self.fs.rename(&path, &bin) {
            Ok(()) => after("consumed"),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(e).at("remove", &path),
        }
        self.fs.remove_tree(&bin).at("remove", &bin)?;
        after("consumed-removed");
        Ok(())
    }

    /// Moves a parcel into the `ready/` of another stage. Not there any more: it was moved before.
    pub(crate) fn deliver(&mut self, path: &Path, id: &ParcelId, to: &str) -> Result<()> {
        let dest = self.yard.stage(to);
        let entry = Entry {
            id: id.clone(),
            attempts: 0,
        };
        let slot = self.yard.ready_slot(&dest, &entry);
        let mut result = self.fs.rename(path, &slot);
        if matches!(&result, Err(e) if e.kind() == io::ErrorKind::NotFound) {
            if !self.fs.is_there(path).at("look at", path)? {
                return self.check_fence();
            }
            // The next stage has never run here, or somebody took its directories away.
            self.yard.remake(&dest, &slot)?;
            result = self.fs.rename(path, &slot);
        }
        match result {
            Ok(()) => {
                if let Some(dir) = slot.parent()
                    && !self.touched.contains(dir)
                {
                    self.touched.insert(dir.to_owned());
                }
                Ok(())
            }
            Err(e) if is_taken(&*self.fs, &e, &slot) => {
                if self.is_copy(path, &slot, &entry, to)? {
                    return self.discard_claimed(path, &entry);
                }
                let reason = format!(
                    "another parcel of this name, with other content, waited when {} sent this one",
                    self.stage.name
                );
                self.write_why(&dest, &entry, &reason)?;
                self.put_back(path, &dest.held().join(entry.file_name()))
            }
            Err(e) if e.kind() == io::ErrorKind::CrossesDevices => {
                self.deliver_across(path, &dest, &entry)
            }
            Err(e) => Err(e).at("hand over", &slot),
        }
    }

    /// A parcel of this name waits there already: tells whether it is the same. If so the second is
    /// to be dropped, if not it is to be held there.
    fn is_copy(&self, path: &Path, slot: &Path, entry: &Entry, to: &str) -> Result<bool> {
        let (ours, _) = read_manifest(&*self.fs, path, &entry.id)?;
        let same = match read_manifest(&*self.fs, slot, &entry.id) {
            Ok((theirs, _)) => theirs.content() == ours.content(),
            Err(SpoolError::Damaged { .. }) => false,
            Err(e) => return Err(e),
        };
        if same {
            tracing::warn!(parcel = %entry.id, to, "dropping a copy of a parcel that waits there");
        } else {
            tracing::error!(parcel = %entry.id, to, "two parcels of one name: the second is held");
        }
        Ok(same)
    }

    /// The next stage lies on another file system: the parcel is copied, made durable, then marked
    /// here as sent, and only then shown there. The mark is what a restart goes by.
    fn deliver_across(&mut self, path: &Path, dest: &crate::StageDir, entry: &Entry) -> Result<()> {
        // The same name when the same worker tries again; a full parcel id would leave no room.
        let number = entry.id.order(self.id.seed());
        let draft = dest.tmp().join(format!("copy-{number:016x}"));
        self.fs.remove_tree(&draft).at("remove", &draft)?;
        if let Err(error) = copy_tree(&*self.fs, path, &draft, &self.signs) {
            // Half a copy must not keep the other disk full.
            let _ = self.fs.remove_tree(&draft);
            return Err(error);
        }
        // Under this name it is not swept, however long it takes until somebody shows it.
        let copy = dest.tmp().join(format!("{SENT}{number:016x}"));
        self.fs.remove_tree(&copy).at("remove", &copy)?;
        self.fs.rename(&draft, &copy).at("copy", &copy)?;
        let tmp = dest.tmp();
        self.fs.sync_dir(&tmp).at("sync", &tmp)?;
        let out = self.home.join("out");
        let mark = out.join(format!(".sent-{}", entry.file_name()));
        // Names, not paths: the next worker may see the same directories from elsewhere.
        let note = SentNote {
            to: dest.name.clone(),
            copy: number,
            parcel: entry.id.clone(),
        };
        let note = serde_json::to_vec(&note).expect("a note holds only strings and a number");
        let note_path = path.join(SENT_NOTE);
        gone(self.fs.unlink(&note_path)).at("remove", &note_path)?;
        self.fs
            .write_new(&note_path, &note)
            .at("write", &note_path)?;
        self.fs.sync_file(&note_path).at("sync", &note_path)?;
        self.fs.sync_dir(path).at("sync", path)?;
        self.fs.rename(path, &mark).at("mark as sent", &mark)?;
        self.show_sent(&mark)
    }

    /// Shows a parcel that was copied to another file system, and forgets it here.
    pub(crate) fn show_sent(&mut self, mark: &Path) -> Result<()> {
        let path = mark.join(SENT_NOTE);
        let bytes = match self.fs.read(&path, 1 << 16) {
            Ok(bytes) => bytes,
            // The note is durable before the mark is made: this is what is left of a removal.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return self.fs.remove_tree(mark).at("remove", mark);
            }
            Err(e) => return Err(e).at("read", &path),
        };
        // Two file systems, two journals: were the mark not durable here, a power cut would bring
        // the parcel back after it was shown there. Whoever comes to show it sees to that again.
        if let Some(out) = mark.parent() {
            self.fs.sync_dir(out).at("sync", out)?;
        }
        let note: SentNote = serde_json::from_slice(&bytes)
            .map_err(|e| SpoolError::Refused(format!("{}: {e}", path.display())))?;
        let dest = self.yard.stage(&note.to);
        let copy = dest.tmp().join(format!("{SENT}{:016x}", note.copy));
        let entry = Entry {
            id: note.parcel,
            attempts: 0,
        };
        let slot = self.yard.ready_slot(&dest, &entry);
        // Not there any more: it was shown before.
        if self.fs.is_there(&copy).at("look at", &copy)? {
            self.show_copy(&copy, &slot, &dest, &entry)?;
        }
        self.fs.remove_tree(mark).at("remove", mark)
    }

    fn show_copy(
        &mut self,
        copy: &Path,
        slot: &Path,
        dest: &crate::StageDir,
        entry: &Entry,
    ) -> Result<()> {
        let mut result = self.fs.rename(copy, slot);
        if matches!(&result, Err(e) if e.kind() == io::ErrorKind::NotFound) {
            self.yard.remake(dest, slot)?;
            result = self.fs.rename(copy, slot);
        }
        match result {
            Err(e) if is_taken(&*self.fs, &e, slot) => {
                if self.is_copy(copy, slot, entry, &dest.name)? {
                    return self.fs.remove_tree(copy).at("remove", copy);
                }
                self.put_back(copy, &dest.held().join(entry.file_name()))?;
                self.sync_touched()
            }
            other => {
                other.at("hand over", slot)?;
                let dir = slot.parent().expect("a slot lies in ready/");
                self.fs.sync_dir(dir).at("sync", dir)
            }
        }
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
        let Some(mut entry) = path.file_name().and_then(Entry::parse) else {
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
        if let crate::worker::Standing::Done(filed) = self.standing(&manifest)? {
            return self.complete(dir, &filed.receipt, &|id| {
                (id == &entry.id).then(|| path.to_owned())
            });
        }
        match died {
            Some(reason) if entry.attempts >= self.limits.attempts => {
                let reason = format!("{reason}, {} times", entry.attempts);
                self.hold_unasked(path, &entry, &reason)?;
                after("settle-poisoned");
                return Ok(());
            }
            Some(_) => {}
            None => entry.attempts = entry.attempts.saturating_sub(1),
        }
        // Before it waits again: whoever claims it then may hold it and say why under the same name.
        self.forget_why(dir, &entry.id)?;
        let slot = self.yard.ready_slot(&self.stage, &entry);
        self.put_back(path, &slot)?;
        after("settle-requeued");
        Ok(())
    }

    /// Removes the reason for which the owner of `dir` was about to hold a parcel that will wait again.
    fn forget_why(&self, dir: &Path, id: &ParcelId) -> Result<()> {
        let path = self.stage.why(id);
        let bytes = match self.fs.read(&path, 1 << 20) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(e).at("read", &path),
        };
        let Ok(why) = serde_json::from_slice::<Why>(&bytes) else {
            return Ok(());
        };
        let owner = dir.file_name().unwrap_or_default().to_string_lossy();
        let was_his = owner.split('@').next() == Some(why.by.as_str());
        if was_his && !self.yard.is_held(&self.stage, id, why.attempts)? {
            gone(self.fs.unlink(&path)).at("remove", &path)?;
        }
        Ok(())
    }
}

/// What whoever carries out a receipt need not look for.
struct Known<'work> {
    /// What the only parcel held when it was claimed.
    seen: Option<&'work Seen>,
    /// Whether the work may have left something in its outbox.
    has_outbox: bool,
    /// The sheet, when it speaks of nothing else: it may become a page of the history.
    sheet: Option<&'work Path>,
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

/// What became of a sheet.
#[derive(PartialEq, Eq)]
enum Sheet {
    /// It lies where it was.
    Left,
    /// It is a page of its parcel's history now.
    Filed,
}

fn leaves_changed(outbox: &Outbox) -> bool {
    !outbox.attached.is_empty() || !outbox.detached.is_empty()
}

/// Returns the bytes of `parcel.json` as the parcel leaves, if the stage changed its files.
fn leaving_manifest(parcel: &Parcel, outbox: &Outbox) -> Option<Vec<u8>> {
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
    Some(manifest.to_bytes())
}

fn copy_tree(fs: &dyn Fs, from: &Path, to: &Path, signs: &Signs) -> Result<()> {
    fs.mkdir(to).at("make", to)?;
    for (name, kind) in fs.list(from).at("list", from)? {
        let (source, copy) = (from.join(&name), to.join(&name));
        if name == SENT_NOTE {
            continue;
        }
        match kind {
            crate::fs::Kind::Dir => copy_tree(fs, &source, &copy, signs)?,
            crate::fs::Kind::File => {
                let source_file = fs.open(&source).at("open", &source)?;
                let mut reader = Ticking::new(source_file, signs);
                let mut writer = fs.create(&copy).at("create", &copy)?;
                io::copy(&mut reader, &mut writer).at("copy to", &copy)?;
                writer.flush().at("write", &copy)?;
                drop(writer);
                fs.sync_file(&copy).at("sync", &copy)?;
            }
            // No manifest names it, or the parcel would have been held.
            crate::fs::Kind::Symlink | crate::fs::Kind::Other => {
                tracing::warn!(entry = ?source, "left behind: neither a file nor a directory");
            }
        }
    }
    fs.sync_dir(to).at("sync", to)
}

/// How the name of a parcel sent to another file system begins, in `tmp/` there.
pub(crate) const SENT: &str = "sent-";

/// The note of a parcel that was copied to another file system, inside what is left of it here.
const SENT_NOTE: &str = ".sent.json";

#[derive(serde::Serialize, serde::Deserialize)]
struct SentNote {
    to: String,
    copy: u64,
    parcel: ParcelId,
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
        if mutant("no-fsync") {
            return Ok(());
        }
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
