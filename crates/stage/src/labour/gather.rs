//! Gathering: many parcels become one piece of work.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Instant;

use ecluse_spool::{Parcel, SpoolError, Waiting};
use ecluse_telemetry::ResultKind;

use super::{Labour, panic_text};
use crate::stage::Stage;

impl<Kind: Stage> Labour<Kind> {
    pub(super) fn take_batch(&mut self) -> Result<(), SpoolError> {
        if self.queue.is_empty() {
            self.batch_since = None;
            self.idle();
            return Ok(());
        }
        let since = *self.batch_since.get_or_insert_with(Instant::now);
        let limit = self.settings.batch.parcels as usize;
        let hurry = self.hands.hurry.load(Ordering::SeqCst);
        let waited = since.elapsed() >= self.settings.batch.wait.0;
        if self.queue.len() < limit && !waited && !hurry {
            let left = self.settings.batch.wait.0.saturating_sub(since.elapsed());
            let heard = self.heard;
            self.hands.bell.wait(heard, left.min(self.longest_wait()));
            return self.look();
        }
        self.batch_since = None;
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
