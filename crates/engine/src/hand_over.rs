//! From a receipt to where its results belong: tickets in the next stages, the own one removed.
//!
//! Everything here can be repeated from the receipt, the sheet and the ticket by anybody: a ticket that is there was put
//! before, and one that is gone has been handed over.

use std::io;
use std::path::PathBuf;

use ecluse_spool::{Fate, FileEntry, ParcelId, Receipt, Result, SpoolError};
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::cluster::Inner;
use crate::commit::{Sent, SentSheet};
use crate::failpoint::hit;
use crate::queue::Hint;
use crate::store::Put;
use crate::ticket::{HistoryPage, StageKeys, Ticket};

/// How many objects of one work are put or removed at a time.
const TOGETHER: usize = 8;
/// How many parcels are told of at a time. The servers sync many at once, when many come at once.
const TELLS: usize = 1024;

/// Whether a receipt may have been carried out before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It was just put.
    No,
    /// It was found.
    Perhaps,
}

/// What is left to do of a receipt whose results are in the store: to tell of them, and to remove what has served.
#[derive(Default)]
pub(crate) struct Leftover {
    /// Parcels that their stages are to be told of.
    untold: Vec<(String, Hint)>,
    /// The sheet of the work, the tickets of its inputs, the files that these leave behind.
    removals: Vec<String>,
}

impl Inner {
    /// Carries out what a receipt says, for the inputs whose tickets are given.
    pub(crate) async fn complete(
        &self,
        stage: &str,
        receipt: &Receipt,
        inputs: &[Ticket],
        known: Option<&[Sent]>,
        repeat: Repeat,
    ) -> Result<()> {
        let left = self
            .hand_over(stage, receipt, inputs, known, repeat)
            .await?;
        self.clear_up(vec![left]).await
    }

    /// Puts the tickets that a receipt sends into the next stages; returns what is to be done when they are there.
    pub(crate) async fn hand_over(
        &self,
        stage: &str,
        receipt: &Receipt,
        inputs: &[Ticket],
        known: Option<&[Sent]>,
        repeat: Repeat,
    ) -> Result<Leftover> {
        let line = receipt.to_line();
        let sheet = StageKeys(stage).sheet(&receipt.work, &line);
        let has_sheet = !receipt.outputs.is_empty();
        let mut sent = match known {
            Some(sent) => sent.to_vec(),
            None if has_sheet => self.read_sheet(&sheet).await?,
            None => Vec::new(),
        };
        if let Fate::PassOn { to, .. } = &receipt.fate {
            let passed = inputs
                .iter()
                .map(|ticket| passed_on(stage, ticket, receipt));
            sent.extend(passed.map(|ticket| Sent::new(to, ticket)));
        }
        let put = stream::iter(&sent)
            .map(|sent| self.send(sent, repeat))
            .buffer_unordered(TOGETHER)
            .try_collect::<Vec<Option<(String, Hint)>>>()
            .await?;
        // Those that were members of a batch are found by their own names too.
        if repeat == Repeat::Perhaps {
            self.file_members(stage, receipt, &line).await?;
        }
        hit("handed-over");
        let mut left = Leftover {
            untold: put.into_iter().flatten().collect(),
            removals: Vec::new(),
        };
        if has_sheet {
            // Those of tries that did not count are left: they say which files can be collected.
            left.removals.push(sheet);
        }
        for ticket in inputs {
            left.removals.extend(retired(stage, ticket, Some(receipt)));
        }
        Ok(left)
    }

    /// Tells of what was handed over, then removes what has served, of many pieces of work at once.
    ///
    /// A store removes the objects of one request in any order, and may be cut off in the middle. Whatever is left then: while the
    /// ticket of an input is there, its receipt is carried out again, for which neither its files nor the sheet are needed any
    /// more; when it is not, sheets and files are without an owner.
    pub(crate) async fn clear_up(&self, left: Vec<Leftover>) -> Result<()> {
        let mut removals = Vec::new();
        let mut untold = Vec::new();
        for left in left {
            untold.extend(left.untold);
            removals.extend(left.removals);
        }
        stream::iter(untold)
            .for_each_concurrent(TELLS, |(stage, hint)| async move {
                self.tell(&stage, hint).await;
                hit("told");
            })
            .await;
        self.store.remove_all(&removals).await?;
        if !removals.is_empty() {
            hit("ticket-removed");
        }
        hit("retired");
        Ok(())
    }

    async fn file_members(&self, stage: &str, receipt: &Receipt, line: &[u8]) -> Result<()> {
        for member in receipt.members() {
            let key = StageKeys(stage).receipt(member);
            self.store.put_new(&key, line).await?;
        }
        Ok(())
    }

    async fn read_sheet(&self, key: &str) -> Result<Vec<Sent>> {
        // No longer there: all of it was handed over.
        let Some(read) = self.store.get(key).await? else {
            return Ok(Vec::new());
        };
        // Without it nobody knows what the work made: the ticket stays, and somebody comes back to this.
        let sheet = SentSheet::parse(&read.bytes).ok_or_else(|| SpoolError::Io {
            step: "read",
            path: PathBuf::from(format!("{}/{key}", self.store.address)),
            source: io::Error::other("it is no list of parcels"),
        })?;
        Ok(sheet.sent)
    }

    /// Puts the ticket of a parcel into a stage; returns what is to be told of it.
    async fn send(&self, sent: &Sent, repeat: Repeat) -> Result<Option<(String, Hint)>> {
        let id = &sent.ticket.manifest.id;
        // It may have come, been worked on and gone: then it must not come again.
        if repeat == Repeat::Perhaps
            && (self.has_passed(&sent.to, id, &sent.ticket).await?
                || self.has_gone(&sent.to, &sent.ticket.name()).await?)
        {
            return Ok(None);
        }
        let key = StageKeys(&sent.to).ticket(&sent.ticket.name());
        let put = self.store.put_new(&key, &sent.ticket.to_bytes()).await?;
        let Put::There(etag) = put else {
            return Ok(None);
        };
        hit("ticket-put");
        Ok(Some((sent.to.clone(), Hint::of(&sent.ticket, &etag))))
    }

    /// Tells whether a stage has finished this very parcel.
    pub(crate) async fn has_passed(
        &self,
        stage: &str,
        id: &ParcelId,
        ticket: &Ticket,
    ) -> Result<bool> {
        let filed = self.receipt(stage, id).await?;
        Ok(filed.is_some_and(|filed| {
            let input = filed.receipt.input(id);
            input.is_some_and(|input| input.born == ticket.manifest.born)
        }))
    }

    /// Removes the ticket of a parcel that needs no receipt of its own, and its files.
    pub(crate) async fn retire(&self, stage: &str, ticket: &Ticket) -> Result<()> {
        let removals = retired(stage, ticket, None).collect();
        let left = Leftover {
            removals,
            ..Leftover::default()
        };
        self.clear_up(vec![left]).await
    }
}

/// Names what goes when a parcel has left a stage: its ticket, and the files that it leaves behind.
fn retired(
    stage: &str,
    ticket: &Ticket,
    receipt: Option<&Receipt>,
) -> impl Iterator<Item = String> {
    let is_left = move |file: &FileEntry| match receipt.map(|receipt| &receipt.fate) {
        Some(Fate::PassOn {
            attached, detached, ..
        }) => detached.contains(&file.name) || attached.iter().any(|new| new.name == file.name),
        Some(Fate::Consume) | None => true,
    };
    let files = ticket.manifest.files.iter();
    let left = files
        .filter(move |file| is_left(file))
        .map(|file| ticket.payload_key(file));
    std::iter::once(StageKeys(stage).ticket(&ticket.name())).chain(left)
}

/// Returns the ticket with which a parcel leaves a stage.
fn passed_on(stage: &str, ticket: &Ticket, receipt: &Receipt) -> Ticket {
    let mut manifest = ticket.manifest.clone();
    let mut makers = ticket.makers.clone();
    if let Fate::PassOn {
        attached, detached, ..
    } = &receipt.fate
    {
        for name in detached {
            manifest.take(name);
            makers.remove(name);
        }
        for file in attached {
            manifest.put(file.clone());
            makers.insert(file.name.clone(), stage.to_owned());
        }
    }
    let mut history = ticket.history.clone();
    history.push(page_of(stage, receipt));
    Ticket {
        makers,
        ..Ticket::new(manifest, "", history)
    }
}

/// Returns the page of a history that a receipt makes.
pub(crate) fn page_of(stage: &str, receipt: &Receipt) -> HistoryPage {
    HistoryPage {
        stage: stage.to_owned(),
        work: receipt.work.clone(),
    }
}

/// Returns the ticket of a new parcel that a stage made.
pub(crate) fn new_ticket(
    stage: &str,
    manifest: &ecluse_spool::ParcelManifest,
    parent: Option<&Ticket>,
    receipt: &Receipt,
) -> Ticket {
    let mut history = parent
        .map(|parent| parent.history.clone())
        .unwrap_or_default();
    history.push(page_of(stage, receipt));
    Ticket::new(manifest.clone(), stage, history)
}
