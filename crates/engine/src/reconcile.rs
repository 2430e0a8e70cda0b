//! What waits in the store, held against the queues: what nobody would be told of is told again.
//!
//! Lists are read page by page and nothing is kept but the names of parcels that are held, discarded or deferred. Of the others
//! the tickets are not read: whoever is told reads them, and finishes what a receipt says is done.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use ecluse_spool::{ReconcileExtent, Result};
use futures_util::{StreamExt, TryStreamExt};

use crate::JetstreamEngine;
use crate::queue::Hint;
use crate::ticket::{StageKeys, parcel_of};
use crate::worker::due_of;

/// How many are told at a time. The servers sync many at once, when many come at once.
const TELLS: usize = 4096;
/// How many tickets are read at a time.
const READS: usize = 32;
/// So many are told of without counting messages first.
const FEW: u64 = 10_000;

/// What reconciling a stage came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// Parcels in the stage.
    pub parcels: u64,
    /// Those held, discarded or deferred.
    pub aside: u64,
    /// Messages that the queue had.
    pub messages: u64,
    /// Parcels that were told of.
    pub told: u64,
}

impl JetstreamEngine {
    /// Tells of the parcels of a stage that can be claimed. One that has a message is not told of twice.
    ///
    /// # Errors
    /// When the servers do not answer.
    pub fn reconcile_stage(&self, stage: &str, extent: ReconcileExtent) -> Result<Reconciled> {
        let inner = &self.inner;
        let keys = StageKeys(stage);
        inner.wait(async {
            inner.queue.init_anew(stage).await?;
            inner.tell_owed().await;
            let mut aside = HashSet::new();
            for directory in [keys.held(), keys.discarded(), keys.deferred()] {
                // A mark whose ticket says otherwise means nothing: its worker died before it said so.
                let names = inner.store.list(&directory, "").map_ok(|mark| {
                    let deferred = due_of(&mark.name).map(|(_, name)| name);
                    async move {
                        let name = deferred.unwrap_or(mark.name);
                        let read = inner.ticket(stage, &name).await?;
                        Ok(read
                            .filter(|read| read.ticket.state.is_aside())
                            .map(|_| name))
                    }
                });
                let mut names = std::pin::pin!(names.try_buffer_unordered(READS));
                while let Some(name) = names.next().await {
                    aside.extend(name?);
                }
            }
            let directory = keys.tickets();
            let aside_count = aside.len() as u64;
            let mut reconciled = Reconciled {
                parcels: 0,
                aside: aside_count,
                messages: inner.queue.depth(stage).await?.messages,
                told: 0,
            };
            // Messages of parcels that have left may stand for others that were lost. Few are told of one by one, and of many again
            // when those have been seen to be old. Where there is no message at all, counting would tell nothing.
            if extent == ReconcileExtent::Missing && reconciled.messages > 0 {
                let count = |count: u64, _| std::future::ready(Ok(count + 1));
                let parcels = inner.store.list(&directory, "").try_fold(0, count).await?;
                reconciled.parcels = parcels;
                // Anew: whoever left while the list was read has taken his message with him.
                reconciled.messages = inner.queue.depth(stage).await?.messages;
                let is_whole = parcels == aside_count
                    || parcels > FEW && reconciled.messages + aside_count >= parcels;
                if is_whole {
                    return Ok(reconciled);
                }
            }
            let parcels = &AtomicU64::new(0);
            let aside = &aside;
            let told = inner
                .store
                .list(&directory, "")
                .try_filter(|listed| {
                    parcels.fetch_add(1, Ordering::Relaxed);
                    let is_wanted =
                        parcel_of(&listed.name).is_some() && !aside.contains(&listed.name);
                    std::future::ready(is_wanted)
                })
                .map_ok(|listed| async move {
                    let hint = Hint::named(&listed.name);
                    inner.queue.tell(stage, &hint).await.map(u64::from)
                })
                .try_buffer_unordered(TELLS)
                .try_fold(0, |sum, one| std::future::ready(Ok(sum + one)));
            reconciled.told = told.await?;
            reconciled.parcels = parcels.load(Ordering::Relaxed);
            Ok(reconciled)
        })
    }
}
