//! What a worker does when something fails: parcels are set aside, and a sick machine is waited for.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ecluse_spool::{Parcel, Setback, SpoolError, Verdict};
use ecluse_telemetry::{Cause, ResultKind};

use super::{Left, WorkerLoop, is_fenced_now};
use crate::failure::{Blame, Failure};
use crate::stage::Stage;

/// How long a worker rests after the machine was sick.
const AFTER_HALT: Duration = Duration::from_millis(500);
/// How long a worker rests at first, and at most, when what people wrote makes no sense.
const AFTER_REFUSAL: Duration = Duration::from_millis(500);
const LONGEST_REFUSAL: Duration = Duration::from_secs(5);
/// With `--once`, how often the machine is tried after failures with nothing finished between them.
const TRIES_OF_ONCE: u32 = 3;

/// A file that makes no sense.
pub(super) struct Refusal {
    reason: String,
    /// The last rest.
    wait: Duration,
}

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum StepError {
    /// The work directories did not do what they were asked.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// The stage says that the machine or the configuration is at fault.
    #[error(transparent)]
    Stage(Failure),
}

impl StepError {
    /// Tells a fenced worker from a sick machine.
    pub(super) fn is_fenced(&self) -> bool {
        matches!(self, Self::Spool(SpoolError::Fenced { .. }))
    }

    pub(super) fn failure(self) -> Failure {
        match self {
            // Whatever it is, no parcel is at fault: none is in hand.
            Self::Spool(error) => Failure::halt(error),
            Self::Stage(failure) => failure,
        }
    }
}

impl<Kind: Stage> WorkerLoop<Kind> {
    /// Sets parcels aside as the blame says.
    pub(super) fn refuse(
        &mut self,
        parcels: Vec<Parcel>,
        failure: Failure,
    ) -> Result<(), StepError> {
        let reason = failure.reason.clone();
        let verdict = match failure.blame {
            Blame::Parcel => Verdict::Hold { reason },
            Blame::World => match failure.pause {
                Some(wait) => Verdict::Wait { reason, wait },
                None => Verdict::Defer { reason },
            },
            Blame::Nobody => {
                for parcel in parcels {
                    self.worker.give_back(parcel)?;
                    self.context.stage.metrics.result(ResultKind::GivenBack);
                }
                return Ok(());
            }
            Blame::Machine | Blame::Config => {
                // What is finished is not to be done again for it.
                self.commit()?;
                self.failed_on = parcels.first().map(|parcel| parcel.id().clone());
                for parcel in parcels {
                    self.worker.give_back(parcel)?;
                }
                return Err(StepError::Stage(failure));
            }
        };
        for parcel in parcels {
            let setback = self.worker.fail(parcel, &verdict)?;
            self.count_setback(Some(setback), &failure.reason);
        }
        Ok(())
    }

    pub(super) fn count_setback(&mut self, setback: Option<Setback>, reason: &str) {
        let tally = &self.context.tally;
        match setback {
            Some(Setback::Held) => {
                tracing::warn!(reason, "held");
                tally.held.fetch_add(1, Ordering::Relaxed);
                self.context.stage.metrics.result(ResultKind::Held);
            }
            Some(Setback::DeferredUntil(due)) => {
                // Known at once, not from the next scan: it may be due before that.
                self.next_due = Some(self.next_due.map_or(due, |next| next.min(due)));
                tracing::info!(reason, due, "deferred");
                tally.deferred.fetch_add(1, Ordering::Relaxed);
                self.context.stage.metrics.result(ResultKind::Deferred);
            }
            None => {}
        }
    }

    /// After an error: puts everything back, and waits until the machine is well. `--once` waits for a few tries only.
    pub(super) fn settle_error(&mut self, error: StepError) -> ControlFlow<Left> {
        self.finished.clear();
        self.first_finished = None;
        self.queue.clear();
        self.more_waiting = true;
        if error.is_fenced() || is_fenced_now(&*self.worker) {
            tracing::warn!("taken for dead and fenced: starting over as another worker");
            return ControlFlow::Break(Left::Fenced);
        }
        let mut failure = error.failure();
        if failure.blame == Blame::Config {
            return self.settle_refusal(failure);
        }
        let mut wait = Duration::from_millis(200);
        let since = Instant::now();
        tracing::error!(reason = %failure, "the machine is not well: claiming nothing");
        self.context.stage.metrics.blocked(Cause::Halted, true);
        loop {
            self.note("halted", &failure.reason, "");
            let (tally, number) = (&self.context.tally, self.context.number);
            tally.set_halted(number, Some(&failure.reason));
            self.tries += 1;
            let is_last = self.context.stage.once && self.tries >= TRIES_OF_ONCE;
            match self.try_machine() {
                // Well again and again, and it fails again and again: the work is too much for it.
                Ok(()) if is_last => {}
                Ok(()) => break,
                Err(error) if error.is_fenced() => return ControlFlow::Break(Left::Fenced),
                Err(error) => failure = error.failure(),
            }
            if is_last {
                self.context.tally.halt(failure);
                return ControlFlow::Break(Left::Halted);
            }
            if self.stopping() {
                return ControlFlow::Break(Left::Stopped);
            }
            self.rest(wait);
            wait = (wait * 2).min(Duration::from_secs(5));
        }
        tracing::info!(halted = ?since.elapsed(), "the machine is well again");
        self.context.stage.metrics.blocked(Cause::Halted, false);
        self.context.tally.set_halted(self.context.number, None);
        // Not at once: what failed may fail again, and must not spin.
        self.rest(AFTER_HALT);
        ControlFlow::Continue(())
    }

    /// After a file of people that makes no sense: says so once, and rests ever longer until it does. The machine is well.
    fn settle_refusal(&mut self, failure: Failure) -> ControlFlow<Left> {
        let wait = match self.refusal.take() {
            Some(known) if known.reason == failure.reason => {
                tracing::debug!(reason = %failure, "it still makes no sense");
                (known.wait * 2).min(LONGEST_REFUSAL)
            }
            _ => {
                tracing::error!(reason = %failure, "a file makes no sense: claiming nothing until it does");
                AFTER_REFUSAL
            }
        };
        self.context.stage.metrics.blocked(Cause::Halted, true);
        self.note("refusing", &failure.reason, "");
        let (tally, number) = (&self.context.tally, self.context.number);
        tally.set_halted(number, Some(&failure.reason));
        self.tries += 1;
        if self.context.stage.once && self.tries >= TRIES_OF_ONCE {
            tally.halt(failure);
            return ControlFlow::Break(Left::Halted);
        }
        self.refusal = Some(Refusal {
            reason: failure.reason,
            wait,
        });
        match self.worker.reset() {
            Ok(_) => {}
            Err(SpoolError::Fenced { .. }) => return ControlFlow::Break(Left::Fenced),
            Err(error) => {
                self.refusal = None;
                return self.settle_error(error.into());
            }
        }
        self.rest(wait);
        ControlFlow::Continue(())
    }

    /// After a step that succeeded: says that the file makes sense again, once that is known.
    pub(super) fn settle_well(&mut self) {
        let is_proved = self.tries == 0 || self.waiting == 0;
        if self.refusal.is_none() || !is_proved || self.blocked.is_some() {
            return;
        }
        self.refusal = None;
        self.tries = 0;
        tracing::info!("the file makes sense again");
        self.context.stage.metrics.blocked(Cause::Halted, false);
        self.context.tally.set_halted(self.context.number, None);
        self.note("idle", "", "");
    }

    /// Puts back what is in hand and writes a little.
    fn try_machine(&mut self) -> Result<(), StepError> {
        let (engine, stage) = (&self.context.engine, self.context.stage.name);
        self.worker.reset()?;
        // Directories that somebody took away are made again.
        engine.init(stage)?;
        Ok(engine.probe(stage)?)
    }

    /// Rests for so long. The bell does not shorten it: the parcels given back have just rung it.
    fn rest(&mut self, wait: Duration) {
        let rested = Instant::now() + wait;
        while !self.stopping() && Instant::now() < rested {
            self.worker.signs().tick();
            let left = rested.saturating_duration_since(Instant::now());
            let heard = self.context.bell.rings();
            self.context.bell.wait(heard, left.min(self.longest_wait()));
        }
    }
}
