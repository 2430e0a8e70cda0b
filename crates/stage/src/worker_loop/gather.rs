//! Gathering: many parcels become one piece of work.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ecluse_spool::{Outbox, Parcel, ParcelId, Waiting};
use ecluse_telemetry::ResultKind;

use super::{StepError, WorkerLoop, panic_text};
use crate::failure::{Blame, Failure};
use crate::stage::Stage;

/// The oldest of the waiting parcels.
pub(super) struct Oldest {
    id: ParcelId,
    /// How old it was when it was looked at.
    age: Duration,
    looked: Instant,
}

/// How the work on a batch ended.
enum Worked {
    /// Well, begun then.
    Done(Box<Outbox>, Instant),
    Failed(Failure),
    Crashed(String),
}

impl<Kind: Stage> WorkerLoop<Kind> {
    pub(super) fn take_batch(&mut self) -> Result<(), StepError> {
        if self.queue.is_empty() {
            self.idle();
            return Ok(());
        }
        if self.take_suspect()? {
            return Ok(());
        }
        let limit = self.settings.batch.parcels as usize;
        let hurry = self.context.hurry.load(Ordering::SeqCst);
        if self.waiting < limit && !hurry {
            let left = self.settings.batch.wait.0.saturating_sub(self.age()?);
            if !left.is_zero() {
                self.note("idle", "waits for more parcels", "");
                let heard = self.heard;
                self.context.bell.wait(heard, left.min(self.longest_wait()));
                return self.look();
            }
        }
        self.oldest = None;
        if !self.context.stage.once {
            self.context.hurry.store(false, Ordering::SeqCst);
        }
        let mut parcels: Vec<Parcel> = Vec::new();
        while parcels.len() < limit
            && let Some(waiting) = self.queue.pop()
        {
            // Two copies of one parcel cannot be in hand together: the second comes after.
            if !parcels.iter().any(|p| p.id() == &waiting.entry.id) {
                parcels.extend(self.claim(&waiting)?);
            }
        }
        self.work_off(parcels)
    }

    /// Takes a parcel by itself that is to be held if this fails too: others would be held with it.
    fn take_suspect(&mut self) -> Result<bool, StepError> {
        let most = self.settings.attempts;
        let is_suspect = |waiting: &Waiting| {
            let attempts = waiting.entry.attempts;
            attempts > 0 && attempts + 1 >= most
        };
        let Some(suspect) = self.queue.iter().position(is_suspect) else {
            return Ok(false);
        };
        let waiting = self.queue.swap_remove(suspect);
        let parcels = self.claim(&waiting)?;
        self.work_off(parcels.into_iter().collect())?;
        Ok(true)
    }

    /// Works on a batch until each of its parcels is finished or set aside. One that is at fault costs the others nothing:
    /// they go on without it, or in two halves when nobody knows which one it is.
    fn work_off(&mut self, mut parcels: Vec<Parcel>) -> Result<(), StepError> {
        self.more_waiting = true;
        // Claimed in this worker's own order; the same batch is worked on in the same one.
        parcels.sort_by(|a, b| a.id().cmp(b.id()));
        let mut batches = vec![parcels];
        while let Some(mut batch) = batches.pop() {
            if batch.is_empty() {
                continue;
            }
            let failure = match self.work_on_batch(&batch)? {
                Worked::Done(outbox, began) => {
                    self.finish_later(batch, *outbox, began);
                    self.commit()?;
                    continue;
                }
                Worked::Crashed(reason) if batch.len() == 1 => {
                    for parcel in batch {
                        let setback = self.worker.give_back_crashed(parcel, &reason)?;
                        self.count_setback(setback, &reason);
                    }
                    continue;
                }
                Worked::Crashed(reason) => Failure::hold(reason),
                Worked::Failed(failure) => failure,
            };
            let member = failure.member.as_ref();
            let member = member.and_then(|id| batch.iter().position(|p| p.id() == id));
            match (failure.blame, member) {
                (Blame::Machine | Blame::Config | Blame::Nobody, _) => {
                    batch.extend(batches.drain(..).flatten());
                    self.refuse(batch, failure)?;
                }
                (Blame::Parcel | Blame::World, Some(member)) => {
                    let member = batch.remove(member);
                    self.refuse(vec![member], failure)?;
                    batches.push(batch);
                }
                (Blame::Parcel, None) if batch.len() > 1 => {
                    let reason = &failure.reason;
                    tracing::warn!(%reason, "a batch is refused: trying each half of it");
                    batches.push(batch.split_off(batch.len() / 2));
                    batches.push(batch);
                }
                (Blame::Parcel | Blame::World, None) => self.refuse(batch, failure)?,
            }
        }
        Ok(())
    }

    fn work_on_batch(&mut self, parcels: &[Parcel]) -> Result<Worked, StepError> {
        let span = tracing::info_span!("batch", parcels = parcels.len());
        let _inside = span.enter();
        let began = Instant::now();
        self.note("working", "", &format!("{} parcels", parcels.len()));
        let mut outbox = self.worker.outbox(parcels);
        outbox.consume();
        let worked = {
            let (stage, outbox) = (&mut self.stage, &mut outbox);
            catch_unwind(AssertUnwindSafe(move || {
                stage.process_batch(parcels, outbox)
            }))
        };
        match worked {
            Ok(Ok(())) => Ok(Worked::Done(Box::new(outbox), began)),
            Ok(Err(failure)) => {
                outbox.discard()?;
                Ok(Worked::Failed(failure))
            }
            Err(panic) => {
                outbox.discard()?;
                self.context.stage.metrics.result(ResultKind::Died);
                self.reopen();
                Ok(Worked::Crashed(panic_text(&*panic)))
            }
        }
    }

    /// Returns the age of the oldest parcel that waits. One is looked for again when that one is gone: what came since is
    /// younger.
    fn age(&mut self) -> Result<Duration, StepError> {
        let waits = |oldest: &Oldest| self.queue.iter().any(|w| w.entry.id == oldest.id);
        if !self.oldest.as_ref().is_some_and(waits) {
            let oldest = self.worker.oldest(&self.queue)?;
            self.oldest = oldest.map(|(id, age)| Oldest {
                id,
                age,
                looked: Instant::now(),
            });
        }
        let oldest = self.oldest.as_ref();
        Ok(oldest.map_or(Duration::ZERO, |oldest| {
            oldest.age.saturating_add(oldest.looked.elapsed())
        }))
    }
}
