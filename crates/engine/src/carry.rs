//! One parcel from the work directories into the store, or from the store into the directories, so that it is in one place
//! whatever is killed and whenever. `docs/formats/object-store.md` has the steps and what a restart makes of each.
//!
//! One carrier at a time has the lock of a stage. It goes on first with what another left half way.

use std::collections::HashSet;
use std::path::Path;

use ecluse_spool::{
    Arrival, CarryLock, Departure, Engine, FileEntry, ParcelPlace, ParcelState, Receipt, Result,
    Signs, Spool, SpoolError, StepWatch, WorkTree, Worker, WorkerLimits, WorkerTerms, time_text,
};
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::JetstreamEngine;
use crate::cluster::{Inner, ReadTicket, wall_ms};
use crate::hand_over::Repeat;
use crate::operator::{mark_of, place_of};
use crate::queue::Hint;
use crate::store::{Downloaded, Listed, Put, make_file};
use crate::ticket::{HistoryPage, StageKeys, Ticket, TicketState, payload_key};
use crate::worker::{JetstreamWorker, is_of};

/// The maker of files that came out of work directories.
const MOVED: &str = "moved";
/// So many parcels are looked at before the directories are read again.
const AT_A_TIME: usize = 4096;
/// So many receipts are copied at a time.
const RECEIPTS: usize = 256;
/// So many requests are under way at a time.
const TOGETHER: usize = 16;
/// Who holds what cannot be moved.
const BY: &str = "ecluse move";

/// Which way parcels are carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    ToStore,
    ToDirectories,
}

/// What carrying came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    /// Parcels that arrived.
    pub(crate) parcels: u64,
    /// Receipts that were copied, or were there.
    pub(crate) receipts: u64,
    /// Parcels that cannot be carried, each with the reason: they stay where they are, held.
    pub(crate) left: Vec<(String, String)>,
}

impl Inner {
    /// Tells whether a parcel was carried into the work directories.
    pub(crate) async fn has_gone(&self, stage: &str, name: &str) -> Result<bool> {
        let key = format!("{}{name}", StageKeys(stage).gone());
        Ok(self.store.get(&key).await?.is_some())
    }
}

/// Whoever carries parcels of one stage.
pub(crate) struct Carrier<'a> {
    pub(crate) tree: &'a WorkTree,
    pub(crate) store: &'a JetstreamEngine,
    pub(crate) stage: &'a str,
    pub(crate) lock: CarryLock,
    pub(crate) signs: Signs,
    pub(crate) step: StepWatch<'a>,
    pub(crate) carried: Carried,
    /// What was found to be damaged: it is not tried again by this one.
    pub(crate) refused: HashSet<String>,
}

impl Carrier<'_> {
    fn inner(&self) -> &Inner {
        &self.store.inner
    }

    fn keys(&self) -> StageKeys<'_> {
        StageKeys(self.stage)
    }

    fn passed(&mut self, step: &'static str) -> Result<()> {
        self.signs.tick();
        (self.step)(step)
    }

    /// Goes on with what another carrier left half way, then carries everything that waits.
    pub(crate) fn carry(&mut self, way: Way) -> Result<()> {
        for place in self.tree.leaving(self.stage, &self.lock)? {
            self.send_off(place)?;
        }
        for name in self.names(&self.keys().moving())? {
            let is_moving = self
                .read(&name)?
                .is_some_and(|read| matches!(read.ticket.state, TicketState::Moving { .. }));
            match is_moving {
                true => self.bring_home(&name)?,
                false => self.remove(&format!("{}{name}", self.keys().moving()))?,
            }
        }
        match way {
            Way::ToStore => self.all_to_store(),
            Way::ToDirectories => self.all_to_directories(),
        }
    }

    fn names(&self, directory: &str) -> Result<Vec<String>> {
        let inner = self.inner();
        let listed: Vec<Listed> = inner.wait(inner.store.list(directory, "").try_collect())?;
        Ok(listed.into_iter().map(|listed| listed.name).collect())
    }

    fn read(&self, name: &str) -> Result<Option<ReadTicket>> {
        let inner = self.inner();
        inner.wait(inner.ticket(self.stage, name))
    }

    fn remove(&self, key: &str) -> Result<()> {
        let inner = self.inner();
        inner.wait(inner.store.remove(key))
    }

    fn remove_all(&self, keys: &[String]) -> Result<()> {
        let inner = self.inner();
        inner.wait(inner.store.remove_all(keys))
    }

    fn all_to_store(&mut self) -> Result<()> {
        loop {
            let mut places = Vec::new();
            let refused = &self.refused;
            self.tree.each_place(self.stage, &mut |place| {
                let waits = place.state != ParcelState::Working;
                let key = place.path.display().to_string();
                if waits && places.len() < AT_A_TIME && !refused.contains(&key) {
                    places.push(place);
                }
            })?;
            if places.is_empty() {
                return Ok(());
            }
            for place in places {
                if self.is_done_here(&place)? {
                    self.refused.insert(place.path.display().to_string());
                    continue;
                }
                if self.tree.take_out(&place, &self.lock)? {
                    self.passed("taken-out")?;
                }
            }
            for place in self.tree.leaving(self.stage, &self.lock)? {
                self.send_off(place)?;
            }
        }
    }

    /// Tells whether a waiting parcel has its receipt, and settles it as its workers would: by that, where it lies.
    fn is_done_here(&mut self, place: &ParcelPlace) -> Result<bool> {
        if place.state != ParcelState::Ready {
            return Ok(false);
        }
        let Ok(manifest) = self.tree.manifest(place) else {
            return Ok(false);
        };
        let Some(filed) = self.tree.receipt(self.stage, &place.parcel)? else {
            return Ok(false);
        };
        let input = filed.receipt.input(&place.parcel);
        if input.is_none_or(|input| input.born != manifest.born) {
            return Ok(false);
        }
        let limits = WorkerLimits::default();
        let mut settler = Worker::open(self.tree, self.stage, &[], limits, "0")?;
        let entry = ecluse_spool::ParcelEntry::new(&place.parcel, place.attempts);
        if let Some(parcel) = settler.claim(&ecluse_spool::Waiting { entry })? {
            settler.give_back(parcel)?;
        }
        Box::new(settler).close()?;
        Ok(true)
    }

    /// Puts a parcel that was taken out of the directories into the store.
    fn send_off(&mut self, place: ParcelPlace) -> Result<()> {
        match self.tree.departure(place.clone(), &self.signs) {
            Ok(departure) => self.take_in(&departure)?,
            Err(SpoolError::Damaged { reason, .. }) => return self.leave_there(&place, reason),
            Err(error) => return Err(error),
        }
        self.tree.forget_departed(&place, &self.lock)?;
        self.carried.parcels += 1;
        self.passed("departed")
    }

    /// Holds what cannot be carried in the directories.
    fn leave_there(&mut self, place: &ParcelPlace, reason: String) -> Result<()> {
        self.tree.put_in_again(place)?;
        let mut there = Vec::new();
        self.tree.each_place(self.stage, &mut |found| {
            if found.parcel == place.parcel && found.state == place.state {
                there.push(found);
            }
        })?;
        for found in there {
            self.refused.insert(found.path.display().to_string());
            if matches!(found.state, ParcelState::Ready | ParcelState::Deferred) {
                match self.tree.hold(&found, &reason, BY) {
                    Ok(()) | Err(SpoolError::Refused(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        // Wherever it lies held now, it is not tried again.
        let refused = &mut self.refused;
        self.tree.each_place(self.stage, &mut |found| {
            if found.parcel == place.parcel && found.state != ParcelState::Working {
                refused.insert(found.path.display().to_string());
            }
        })?;
        self.carried.left.push((place.parcel.to_string(), reason));
        Ok(())
    }

    /// Puts a parcel into the store as it stood. It is shown when all of it is there.
    fn take_in(&mut self, departure: &Departure) -> Result<()> {
        let (stage, place) = (self.stage, &departure.place);
        let pages = departure.history.iter().map(|(stage, filed)| HistoryPage {
            stage: stage.clone(),
            work: filed.receipt.work.clone(),
        });
        let state = match place.state {
            ParcelState::Ready | ParcelState::Working => TicketState::Ready,
            ParcelState::Deferred => TicketState::Deferred {
                due: place.due.unwrap_or(0),
            },
            ParcelState::Held => TicketState::Held,
            ParcelState::Discarded => TicketState::Discarded,
        };
        let mut ticket = Ticket {
            attempts: place.attempts,
            trouble: departure.trouble.clone(),
            ..Ticket::new(departure.manifest.clone(), MOVED, pages.collect())
        };
        let name = ticket.name();
        let key = self.keys().ticket(&name);
        let before = match self.read(&name)? {
            None => {
                let inner = self.inner();
                if inner.wait(inner.has_passed(stage, &place.parcel, &ticket))? {
                    return Ok(());
                }
                None
            }
            // It arrived, and may have been worked on since.
            Some(read) if !matches!(read.ticket.state, TicketState::Moving { .. }) => return Ok(()),
            Some(read) => Some(read),
        };
        self.upload(departure, &ticket)?;
        self.passed("uploaded")?;
        self.put_moving_mark(&name)?;
        self.passed("mark-put")?;
        let moving = TicketState::Moving {
            was: Box::new(state.clone()),
        };
        // Not claimable yet. While it lies there, a hand-over that is repeated puts no second one.
        ticket.turn = before.as_ref().map_or(0, |read| read.ticket.turn + 1);
        ticket.state = moving;
        let inner = self.inner();
        let put = match &before {
            None => inner.wait(inner.store.put_new(&key, &ticket.to_bytes()))?,
            Some(read) => inner.wait(inner.store.put_over(&key, &ticket.to_bytes(), &read.etag))?,
        };
        let Put::There(etag) = put else {
            return Err(changed(stage, place));
        };
        self.passed("ticket-put")?;
        self.remove(&format!("{}{name}", self.keys().gone()))?;
        self.passed("not-gone")?;
        let shown = ticket.turned(state, place.attempts);
        let inner = self.inner();
        inner.wait(inner.mark_again(stage, &shown))?;
        let put = inner.wait(inner.store.put_over(&key, &shown.to_bytes(), &etag))?;
        let Put::There(etag) = put else {
            return Err(changed(stage, place));
        };
        self.passed("shown")?;
        self.remove(&format!("{}{name}", self.keys().moving()))?;
        if shown.state == TicketState::Ready {
            let inner = self.inner();
            inner.wait(inner.tell(stage, Hint::of(&shown, &etag)));
        }
        // The files that an interrupted way back had left under other keys.
        if let Some(read) = before {
            let new: HashSet<String> = keys_of(&shown).collect();
            let old = keys_of(&read.ticket).filter(|old| !new.contains(old));
            self.remove_all(&old.collect::<Vec<String>>())?;
        }
        Ok(())
    }

    fn put_moving_mark(&self, name: &str) -> Result<()> {
        let inner = self.inner();
        let mark = format!("{}{name}", self.keys().moving());
        inner.wait(inner.store.put(&mark, b""))
    }

    fn upload(&self, departure: &Departure, ticket: &Ticket) -> Result<()> {
        let inner = self.inner();
        inner.wait(async {
            for file in &departure.manifest.files {
                let key = payload_key(MOVED, &ticket.manifest, file);
                let path = departure.file(file);
                inner
                    .store
                    .upload(&key, &path, file.bytes, &self.signs)
                    .await?;
            }
            // A ticket names receipts: they must be there.
            for (stage, filed) in &departure.history {
                let key = StageKeys(stage).receipt(&filed.receipt.work);
                inner.store.put_new(&key, &filed.receipt.to_line()).await?;
            }
            Ok(())
        })
    }

    fn all_to_directories(&mut self) -> Result<()> {
        for name in self.names(&self.keys().tickets())? {
            if !self.refused.contains(&name) {
                self.bring_home(&name)?;
            }
        }
        let inner = self.inner();
        // Nobody here listens, and who sends parcels here counts them.
        if inner.wait(inner.queue.depth(self.stage))?.messages > 0 {
            inner.wait(inner.queue.purge(self.stage))?;
        }
        Ok(())
    }

    /// Brings a parcel of the store into the directories as it stands.
    fn bring_home(&mut self, name: &str) -> Result<()> {
        let Some(mut read) = self.read(name)? else {
            return self.remove(&format!("{}{name}", self.keys().moving()));
        };
        if let TicketState::Working { .. } = read.ticket.state {
            return Ok(());
        }
        let inner = self.inner();
        if !inner.wait(inner.has_gone(self.stage, name))? {
            if self.is_done_there(&read.ticket)? {
                return Ok(());
            }
            if !matches!(read.ticket.state, TicketState::Moving { .. }) {
                match self.turn_moving(name, &read)? {
                    Some(moving) => read = moving,
                    // A worker was quicker, or a person.
                    None => return Ok(()),
                }
            }
            match self.fetch(name, &read.ticket) {
                Err(SpoolError::Damaged { reason, .. }) => {
                    return self.leave_in_store(name, &read, reason);
                }
                other => other?,
            }
            self.passed("received")?;
            let inner = self.inner();
            let key = format!("{}{name}", self.keys().gone());
            inner.wait(inner.store.put(&key, now().as_bytes()))?;
            self.passed("gone")?;
        }
        let mut ticket = read.ticket;
        let moving = match ticket.state.clone() {
            TicketState::Moving { was } => std::mem::replace(&mut ticket.state, *was),
            other => other,
        };
        let place = place_of(self.stage, &ticket);
        let shown = self
            .tree
            .show_received(self.stage, name, &place, &self.lock)?;
        self.passed("shown")?;
        self.carried.parcels += u64::from(shown);
        self.remove(&self.keys().ticket(name))?;
        self.passed("ticket-removed")?;
        let mut served: Vec<String> = keys_of(&ticket).collect();
        served.extend(mark_of(self.stage, &ticket));
        if let TicketState::Moving { .. } = moving {
            served.push(format!("{}{name}", self.keys().moving()));
        }
        self.remove_all(&served)?;
        self.passed("departed")
    }

    /// Carries out the receipt of a parcel that has it, in the store.
    fn is_done_there(&self, ticket: &Ticket) -> Result<bool> {
        let inner = self.inner();
        let filed = inner.wait(inner.receipt(self.stage, &ticket.manifest.id))?;
        let Some(filed) = filed.filter(|filed| is_of(&filed.receipt, ticket)) else {
            return Ok(false);
        };
        let inputs = std::slice::from_ref(ticket);
        inner.wait(inner.complete(self.stage, &filed.receipt, inputs, None, Repeat::Perhaps))?;
        Ok(true)
    }

    fn turn_moving(&mut self, name: &str, read: &ReadTicket) -> Result<Option<ReadTicket>> {
        self.put_moving_mark(name)?;
        self.passed("mark-put")?;
        let was = Box::new(read.ticket.state.clone());
        let moving = read
            .ticket
            .turned(TicketState::Moving { was }, read.ticket.attempts);
        let inner = self.inner();
        let key = self.keys().ticket(name);
        let put = inner.wait(inner.store.put_over(&key, &moving.to_bytes(), &read.etag))?;
        self.passed("taken-out")?;
        match put {
            Put::There(etag) => Ok(Some(ReadTicket {
                ticket: moving,
                etag,
                written_ms: read.written_ms,
            })),
            Put::Taken => {
                self.remove(&format!("{}{name}", self.keys().moving()))?;
                Ok(None)
            }
        }
    }

    /// Builds the parcel in `arriving/` of the directories.
    fn fetch(&self, name: &str, ticket: &Ticket) -> Result<()> {
        let inner = self.inner();
        let mut history: Vec<(String, Receipt)> = Vec::new();
        for page in &ticket.history {
            let filed = match inner.wait(inner.receipt(&page.stage, &page.work))? {
                Some(filed) => Some(filed),
                None => self.tree.receipt(&page.stage, &page.work)?,
            };
            let Some(filed) = filed else {
                return Err(SpoolError::Damaged {
                    parcel: ticket.manifest.id.clone(),
                    reason: format!("there is no receipt of {} in {}", page.work, page.stage),
                });
            };
            history.push((page.stage.clone(), filed.receipt));
        }
        let arrival = Arrival {
            manifest: &ticket.manifest,
            trouble: ticket.trouble.as_ref(),
            history: &history,
        };
        let mut bring = |file: &FileEntry, path: &Path| {
            let key = ticket.payload_key(file);
            let damaged = |reason: String| SpoolError::Damaged {
                parcel: ticket.manifest.id.clone(),
                reason,
            };
            match inner.wait(
                inner
                    .store
                    .download(&key, file, path, make_file, &self.signs),
            )? {
                Downloaded::There => Ok(()),
                Downloaded::Missing => Err(damaged(format!("there is no {key}"))),
                Downloaded::Other { sha256 } => Err(damaged(format!(
                    "{} has the digest {sha256}, not {}",
                    file.name, file.sha256
                ))),
            }
        };
        self.tree
            .receive(self.stage, name, &arrival, &mut bring, &self.lock)
    }

    /// Holds what cannot be carried in the store.
    fn leave_in_store(&mut self, name: &str, read: &ReadTicket, reason: String) -> Result<()> {
        let parcel = read.ticket.manifest.id.to_string();
        let why = ecluse_spool::Why {
            parcel: parcel.clone(),
            stage: self.stage.to_owned(),
            reason: reason.clone(),
            attempts: read.ticket.attempts,
            when: now(),
            by: BY.to_owned(),
            held_for: None,
        };
        let inner = self.inner();
        inner.wait(inner.hold_ticket(self.stage, &read.ticket, &read.etag, why))?;
        self.remove(&format!("{}{name}", self.keys().moving()))?;
        self.refused.insert(name.to_owned());
        self.carried.left.push((parcel, reason));
        Ok(())
    }

    /// Copies the receipts that count, the ledger's too. What is there stays.
    pub(crate) fn copy_receipts(&mut self, way: Way) -> Result<()> {
        let (tree, stage, store) = (self.tree, self.stage, self.store);
        let mut some: Vec<Receipt> = Vec::new();
        let mut copied = Ok(());
        match way {
            Way::ToStore => tree.each_receipt_ever(stage, &mut |filed| {
                if copied.is_ok() {
                    copied = counts(tree, stage, &filed).and_then(|counts| match counts {
                        true => self.copy_more(way, &mut some, filed.receipt),
                        false => Ok(()),
                    });
                }
            })?,
            Way::ToDirectories => store.each_receipt(stage, &mut |filed| {
                if copied.is_ok() {
                    copied = self.copy_more(way, &mut some, filed.receipt);
                }
            })?,
        }
        copied?;
        self.copy_some(way, &some)
    }

    fn copy_more(&mut self, way: Way, some: &mut Vec<Receipt>, one: Receipt) -> Result<()> {
        some.push(one);
        if some.len() < RECEIPTS {
            return Ok(());
        }
        self.copy_some(way, some)?;
        some.clear();
        Ok(())
    }

    fn copy_some(&mut self, way: Way, some: &[Receipt]) -> Result<()> {
        match way {
            Way::ToStore => self.put_receipts(some)?,
            Way::ToDirectories => self.tree.file_receipts(self.stage, some)?,
        }
        self.carried.receipts += some.len() as u64;
        self.passed("receipts")
    }

    fn put_receipts(&self, receipts: &[Receipt]) -> Result<()> {
        let inner = self.inner();
        let stage = self.stage;
        let lines = receipts.iter().flat_map(|receipt| {
            let line = receipt.to_line();
            let names = std::iter::once(&receipt.work).chain(receipt.members());
            names.map(move |name| (StageKeys(stage).receipt(name), line.clone()))
        });
        let puts = stream::iter(lines)
            .map(|(key, line)| async move {
                let mut put = inner.store.put_new(&key, &line).await?;
                while put == Put::Taken {
                    // What was given up there may not stand in the way of what was done here.
                    let Some(there) = inner.store.get(&key).await? else {
                        put = inner.store.put_new(&key, &line).await?;
                        continue;
                    };
                    if !there.bytes.starts_with(b"{\"given-up\"") {
                        break;
                    }
                    put = inner.store.put_over(&key, &line, &there.etag).await?;
                }
                Ok::<(), SpoolError>(())
            })
            .buffer_unordered(TOGETHER)
            .try_collect::<Vec<()>>();
        inner.wait(puts).map(drop)
    }

    /// Forgets which parcels have gone into the directories: all have come back, or have their receipts here.
    pub(crate) fn forget_gone(&mut self) -> Result<()> {
        let gone = self.keys().gone();
        let names = self.names(&gone)?;
        let keys = names.iter().map(|name| format!("{gone}{name}"));
        self.remove_all(&keys.collect::<Vec<String>>())
    }
}

/// Settles what dead workers of a stage left, on the engine that the stage leaves.
pub(crate) enum Settler {
    Tree(Box<Worker>),
    Store(Box<JetstreamWorker>),
}

impl Settler {
    pub(crate) fn open(
        tree: &WorkTree,
        store: &JetstreamEngine,
        way: Way,
        terms: &WorkerTerms<'_>,
    ) -> Result<Self> {
        Ok(match way {
            Way::ToStore => Self::Tree(Box::new(Worker::open(
                tree,
                terms.stage,
                terms.next,
                terms.limits.clone(),
                terms.version,
            )?)),
            Way::ToDirectories => Self::Store(Box::new(JetstreamWorker::open(store, terms)?)),
        })
    }

    /// Settles the dead, and makes parcels of what was dropped.
    pub(crate) fn settle(&mut self, store: &JetstreamEngine, stage: &str) -> Result<()> {
        match self {
            Self::Tree(worker) => {
                worker.recover()?;
                worker.adopt(&[]).map(drop)
            }
            Self::Store(worker) => {
                worker.recover()?;
                let mut working = Vec::new();
                store.each_place(stage, &mut |place| {
                    if place.state == ParcelState::Working && place.worker.is_some() {
                        let name = place.path.file_name().unwrap_or_default();
                        working.push(name.to_string_lossy().into_owned());
                    }
                })?;
                for name in working {
                    worker.settle_unless_alive(&name)?;
                }
                Ok(())
            }
        }
    }

    pub(crate) fn close(self) -> Result<()> {
        match self {
            Self::Tree(worker) => worker.close(),
            Self::Store(worker) => worker.close(),
        }
    }
}

/// Tells whether a receipt on a sheet is the one that was committed.
fn counts(tree: &WorkTree, stage: &str, filed: &ecluse_spool::Filed) -> Result<bool> {
    let committed = tree.receipt(stage, &filed.receipt.work)?;
    Ok(committed.is_some_and(|committed| committed.digest == filed.digest))
}

fn keys_of(ticket: &Ticket) -> impl Iterator<Item = String> {
    let files = ticket.manifest.files.iter();
    files.map(|file| ticket.payload_key(file))
}

fn changed(stage: &str, place: &ParcelPlace) -> SpoolError {
    SpoolError::Refused(format!(
        "the ticket of {} in {stage} changed while it was carried",
        place.parcel
    ))
}

fn now() -> String {
    time_text(u64::try_from(wall_ms()).unwrap_or(0))
}
