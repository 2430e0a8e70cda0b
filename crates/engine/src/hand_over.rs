//! From a receipt to where its results belong: tickets in the next stages, the own one removed.
//!
//! Everything here can be repeated from the receipt, the sheet and the ticket by anybody: a ticket that is there was put
//! before, and one that is gone has been handed over.

use ecluse_spool::{Fate, ParcelId, Receipt, Result};
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::cluster::Inner;
use crate::commit::Sent;
use crate::failpoint::hit;
use crate::queue::Hint;
use crate::store::{Listed, Put};
use crate::ticket::{HistoryPage, StageKeys, Ticket, names_of};

/// How many objects of one work are put or removed at a time.
const TOGETHER: usize = 8;

/// Whether a receipt may have been carried out before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It was just put.
    No,
    /// It was found.
    Perhaps,
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
        let line = receipt.to_line();
        let sheet = StageKeys(stage).sheet(&receipt.work, &line);
        let has_sheet = !receipt.outputs.is_empty();
        let mut sent = match known {
            Some(sent) => sent.to_vec(),
            None if has_sheet => self.read_sheet(&sheet).await?,
            None => Vec::new(),
        };
        if let Fate::PassOn { to, .. } = &receipt.fate {
            sent.extend(inputs.iter().map(|ticket| Sent {
                to: to.clone(),
                ticket: passed_on(stage, ticket, receipt),
            }));
        }
        stream::iter(&sent)
            .map(|sent| self.send(sent, repeat))
            .buffer_unordered(TOGETHER)
            .try_collect::<Vec<()>>()
            .await?;
        // Those that were members of a batch are found by their own names too.
        if repeat == Repeat::Perhaps {
            self.file_members(stage, receipt, &line).await?;
        }
        hit("handed-over");
        if has_sheet {
            // Whoever tried before may have left one too, also in a try that was not counted. Nobody removes his own when a commit
            // failed: it may have been carried out. While there is a ticket, somebody comes back to this.
            self.remove_sheets(stage, &receipt.work).await?;
        }
        for ticket in inputs {
            self.retire(stage, ticket, Some(receipt)).await?;
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

    async fn remove_sheets(&self, stage: &str, work: &ParcelId) -> Result<()> {
        let (directory, name) = (StageKeys(stage).sheets(), names_of(work));
        let sheets: Vec<Listed> = self.store.list(&directory, &name).try_collect().await?;
        for sheet in sheets {
            self.store
                .remove(&format!("{directory}{}", sheet.name))
                .await?;
        }
        Ok(())
    }

    async fn read_sheet(&self, key: &str) -> Result<Vec<Sent>> {
        // No longer there: all of it was handed over.
        let sheet = self.store.get(key).await?;
        Ok(sheet.map_or_else(Vec::new, |sheet| {
            serde_json::from_slice(&sheet.bytes).unwrap_or_default()
        }))
    }

    /// Puts the ticket of a parcel into a stage and tells of it.
    async fn send(&self, sent: &Sent, repeat: Repeat) -> Result<()> {
        let id = &sent.ticket.manifest.id;
        // It may have come, been worked on and gone: then it must not come again.
        if repeat == Repeat::Perhaps
            && (self.has_passed(&sent.to, id, &sent.ticket).await?
                || self.has_gone(&sent.to, &sent.ticket.name()).await?)
        {
            return Ok(());
        }
        let key = StageKeys(&sent.to).ticket(&sent.ticket.name());
        if let Put::There(etag) = self.store.put_new(&key, &sent.ticket.to_bytes()).await? {
            hit("ticket-put");
            self.tell(&sent.to, Hint::of(&sent.ticket, &etag)).await;
            hit("told");
        }
        Ok(())
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

    /// Removes the ticket of a parcel that has left a stage, and the files that it left behind.
    pub(crate) async fn retire(
        &self,
        stage: &str,
        ticket: &Ticket,
        receipt: Option<&Receipt>,
    ) -> Result<()> {
        self.store
            .remove(&StageKeys(stage).ticket(&ticket.name()))
            .await?;
        hit("ticket-removed");
        let left: Vec<String> = match receipt.map(|receipt| &receipt.fate) {
            Some(Fate::PassOn {
                attached, detached, ..
            }) => ticket
                .manifest
                .files
                .iter()
                .filter(|file| {
                    detached.contains(&file.name)
                        || attached.iter().any(|new| new.name == file.name)
                })
                .map(|file| ticket.payload_key(file))
                .collect(),
            Some(Fate::Consume) | None => {
                let files = ticket.manifest.files.iter();
                files.map(|file| ticket.payload_key(file)).collect()
            }
        };
        stream::iter(&left)
            .map(|key| self.store.remove(key))
            .buffer_unordered(TOGETHER)
            .try_collect::<Vec<()>>()
            .await?;
        Ok(())
    }
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
