//! Claiming several parcels at a time, for stages that are quick.
//!
//! A claim is a put and a read: where a stage has done with a parcel in a moment, the way to the store and back is most of its
//! time. So the one that is asked for and those that would be next are claimed side by side. How many follows from how
//! quickly the worker came back: one whose work takes long claims one at a time, and keeps nothing from others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ecluse_spool::{Filed, ParcelId, Result};
use futures_util::{StreamExt, future, stream};

use super::{COMMITS, JetstreamWorker};
use crate::failpoint::hit;
use crate::store::Put;
use crate::ticket::{StageKeys, Ticket, TicketState};

/// Work that took no longer than this was quick.
const QUICK: Duration = Duration::from_millis(20);
/// The most parcels that are claimed at a time.
const MOST: usize = 256;

/// How many parcels a worker claims at a time.
#[derive(Debug, Default)]
pub(super) struct Appetite {
    /// When the last parcel was handed out.
    given: Option<Instant>,
    /// How many are claimed next; one when nothing is known.
    parcels: usize,
    /// Whether the last work took long.
    is_slow: bool,
}

impl Appetite {
    /// A parcel was handed out.
    pub(super) fn give(&mut self) {
        self.given = Some(Instant::now());
    }

    /// The worker is back, for the next one or to commit.
    pub(super) fn come_back(&mut self) {
        if let Some(given) = self.given.take() {
            self.is_slow = given.elapsed() > QUICK;
            let grown = (self.parcels.max(1) * 2).min(MOST);
            self.parcels = if self.is_slow { 1 } else { grown };
        }
    }

    /// The next is chosen one by one.
    pub(super) fn be_modest(&mut self) {
        (self.given, self.parcels) = (None, 1);
    }

    /// Tells whether the last work took long: others may do what waits meanwhile.
    pub(super) fn is_slow(&self) -> bool {
        self.is_slow
    }
}

/// A ticket that was claimed.
struct ClaimedTicket {
    ticket: Ticket,
    etag: String,
    /// What lies where its receipt would.
    filed: Result<Option<Filed>>,
}

impl JetstreamWorker {
    /// Claims a fresh parcel and those that will be asked for next. Where one was changed meanwhile, it is left to be claimed alone.
    pub(super) fn claim_together(&mut self, first: &ParcelId) -> Result<()> {
        let parcels = self.appetite.parcels.min(self.limits.together);
        if parcels < 2 || !self.is_fresh(first) {
            return Ok(());
        }
        // From the end, as they are asked for.
        let mut names: Vec<ParcelId> = self.told.keys().cloned().collect();
        names.retain(|id| id != first && self.is_fresh(id));
        let seed = self.id.seed();
        names.sort_by_cached_key(|id| std::cmp::Reverse(id.order(seed)));
        names.truncate(parcels - 1);
        names.push(first.clone());

        let inner = Arc::clone(&self.inner);
        let (stage, worker) = (self.stage.clone(), self.id.to_string());
        let mut asked = Vec::with_capacity(names.len());
        for id in names {
            if let Some(told) = self.told.get_mut(&id)
                && let Some((ticket, etag)) = told.ticket.take()
            {
                asked.push((id, told.name.clone(), ticket, etag));
            }
        }
        let claims = stream::iter(asked)
            .map(|(id, name, ticket, etag)| {
                let (inner, stage, worker) = (&inner, stage.as_str(), worker.clone());
                async move {
                    let state = TicketState::Working { worker };
                    let claimed = ticket.turned(state, ticket.attempts + 1);
                    let key = StageKeys(stage).ticket(&name);
                    let bytes = claimed.to_bytes();
                    // Whatever is committed meanwhile by one who is taken for dead was first: only the commit decides.
                    let (put, filed) = future::join(
                        inner.store.put_over(&key, &bytes, &etag),
                        inner.receipt(stage, &id),
                    )
                    .await;
                    Ok(match put? {
                        Put::There(etag) => {
                            hit("claimed");
                            let ticket = claimed;
                            Some((
                                id,
                                ClaimedTicket {
                                    ticket,
                                    etag,
                                    filed,
                                },
                            ))
                        }
                        Put::Taken => None,
                    })
                }
            })
            .buffer_unordered(COMMITS)
            .collect::<Vec<Result<Option<(ParcelId, ClaimedTicket)>>>>();
        let claims = inner.wait(claims);
        self.signs.tick();
        // All that was claimed is in hand, whatever became of the others.
        let mut failed = None;
        for claim in claims {
            let kept = match claim {
                Ok(Some((id, claimed))) => self.keep_ahead(id, claimed),
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            failed = failed.or(kept.err());
        }
        failed.map_or(Ok(()), Err)
    }

    fn keep_ahead(&mut self, id: ParcelId, claimed: ClaimedTicket) -> Result<()> {
        let Some(told) = self.told.remove(&id) else {
            return Ok(());
        };
        self.count_heard();
        let ClaimedTicket {
            ticket,
            etag,
            filed,
        } = claimed;
        let parcel = match filed {
            Ok(Some(_)) => self.examine(ticket, etag, told.message)?,
            Ok(None) => Some(self.take_in_hand(ticket, etag, told.message)?),
            Err(error) => {
                // In hand, so that it is put back with the rest.
                self.take_in_hand(ticket, etag, told.message)?;
                return Err(error);
            }
        };
        if let Some(parcel) = parcel {
            self.ahead.insert(id, parcel);
        }
        Ok(())
    }

    /// Tells whether nobody has begun a parcel, as far as the message says.
    fn is_fresh(&self, id: &ParcelId) -> bool {
        let told = self.told.get(id);
        let ticket = told.and_then(|told| told.ticket.as_ref());
        ticket.is_some_and(|(ticket, _)| ticket.state == TicketState::Ready && ticket.attempts == 0)
    }

    /// Puts back what was claimed and not asked for, before a parcel is begun that may be what killed its worker: it would
    /// cost the others an attempt.
    pub(super) fn put_back_ahead(&mut self) -> Result<()> {
        let ids: Vec<ParcelId> = self.ahead.drain().map(|(id, _)| id).collect();
        for id in ids {
            let in_hand = self.hand_of(&id)?;
            self.put_back(&in_hand, in_hand.ticket.attempts.saturating_sub(1))?;
            self.let_go(&id)?;
        }
        Ok(())
    }
}
