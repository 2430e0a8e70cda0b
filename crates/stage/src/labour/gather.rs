//! Gathering: many parcels become one piece of work.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ecluse_spool::{Parcel, ParcelId, SpoolError, Waiting};
use ecluse_telemetry::ResultKind;

use super::{Labour, panic_text};
use crate::stage::Stage;

/// The oldest of the waiting parcels.
pub(super) struct Oldest {
    id: ParcelId,
    /// How old it was when it was looked at.
    age: Duration,
    looked: Instant,
}

impl<Kind: Stage> Labour<Kind> {
    pub(super) fn take_batch(&mut self) -> Result<(), SpoolError> {
        if self.queue.is_empty() {
            self.idle();
            return Ok(());
        }
        let limit = self.settings.batch.parcels as usize;
        let hurry = self.hands.hurry.load(Ordering::SeqCst);
        if self.waiting < limit && !hurry {
            let left = self.settings.batch.wait.0.saturating_sub(self.age()?);
            if !left.is_zero() {
                self.note("idle", "waits for more parcels", "");
                let heard = self.heard;
                self.hands.bell.wait(heard, left.min(self.longest_wait()));
                return self.look();
            }
        }
        self.oldest = None;
        if !self.hands.post.once {
            self.hands.hurry.store(false, Ordering::SeqCst);
        }
        let mut parcels = Vec::new();
        while parcels.len() < limit
            && let Some(waiting) = self.queue.pop()
        {
            // Two copies of one parcel cannot be in hand together: the second comes after.
            let twin = |parcel: &Parcel| parcel.id() == &waiting.entry.id;
            let suspect = self.is_suspect(&waiting);
            if parcels.iter().any(twin) || (suspect && !parcels.is_empty()) {
                continue;
            }
            parcels.extend(self.claim(&waiting)?);
            if suspect && !parcels.is_empty() {
                break;
            }
        }
        if parcels.is_empty() {
            self.more_waiting = true;
            return Ok(());
        }
        self.more_waiting = true;
        // Claimed in this worker's own order; the same batch is worked on in the same one.
        parcels.sort_by(|a, b| a.id().cmp(b.id()));
        self.work_on_batch(parcels)?;
        self.commit()
    }

    /// Returns the age of the oldest parcel that waits. One is looked for again when that one is gone: what came since is
    /// younger.
    fn age(&mut self) -> Result<Duration, SpoolError> {
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

    /// Tells whether a parcel makes a batch of its own: it is to be held if this fails too, and the
    /// others of its batch with it.
    fn is_suspect(&self, waiting: &Waiting) -> bool {
        let attempts = waiting.entry.attempts;
        self.apart.contains(&waiting.entry.id)
            || (attempts > 0 && attempts + 1 >= self.settings.attempts)
    }

    fn work_on_batch(&mut self, parcels: Vec<Parcel>) -> Result<(), SpoolError> {
        let span = tracing::info_span!("batch", parcels = parcels.len());
        let _inside = span.enter();
        let began = Instant::now();
        self.note("working", "", &format!("{} parcels", parcels.len()));
        let mut outbox = self.worker.outbox(&parcels);
        outbox.consume();
        let worked = {
            let (stage, outbox) = (&mut self.stage, &mut outbox);
            let parcels = &parcels;
            catch_unwind(AssertUnwindSafe(move || {
                stage.process_batch(parcels, outbox)
            }))
        };
        match worked {
            Ok(Ok(())) => {
                for parcel in &parcels {
                    self.apart.remove(parcel.id());
                }
                self.finish_later(parcels, outbox, began);
            }
            Ok(Err(failure)) => {
                outbox.discard()?;
                self.refuse(parcels, &failure)?;
            }
            Err(panic) => {
                outbox.discard()?;
                let reason = panic_text(&*panic);
                for parcel in parcels {
                    let setback = self.worker.give_back_crashed(parcel, &reason)?;
                    self.count_setback(setback, &reason);
                }
                self.hands.post.metrics.result(ResultKind::Died);
                self.reopen();
            }
        }
        Ok(())
    }
}
