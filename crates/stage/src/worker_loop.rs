//! One worker's life: scan, claim, work, commit, wait for the bell.

mod faults;
mod gather;
mod pressure;
mod stand_by;

use std::any::Any;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use ecluse_config::{Pipeline, ShellSettings};
use ecluse_spool::{
    Blocked, CollectExtent, Finish, Marks, Outbox, Parcel, ParcelId, Pulse, ReconcileExtent,
    Setback, Spool, SpoolError, Waiting, Work, WorkerLimits, WorkerNote, WorkerTerms,
};
use ecluse_telemetry::ResultKind;

use crate::failure::Failure;
use crate::inbox::Inbox;
use crate::pool::{PoolWorker, VERSION, WorkerContext, home, limits_of, marks_of, nexts};
use crate::stage::{Intake, Stage};
use crate::thread::Thread;

use faults::StepError;

pub use pressure::say_blocked;
pub use stand_by::STANDING_BY;

/// How often pressure is looked at.
const PRESSURE_EVERY: Duration = Duration::from_millis(500);
/// Without a bell, the directory is read this often.
const SCAN_WITHOUT_BELL: Duration = Duration::from_secs(2);
/// After so many lost claims the listing is stale.
const LOSSES: u32 = 8;
/// A parcel larger than this is no company for small ones: what is finished is committed first.
const LARGE: u64 = 1 << 20;
/// How often old receipts are folded and rubbish is swept, by the first worker.
const HOUSEKEEPING: Duration = Duration::from_secs(86_400);
/// It is done in small pieces, and the work goes on in between.
const BETWEEN_PIECES: Duration = Duration::from_secs(1);

/// One worker at work.
pub(crate) struct WorkerLoop<Kind: Stage> {
    context: WorkerContext,
    stage: Kind,
    worker: Box<dyn Spool>,
    settings: ShellSettings,
    marks: Marks,
    settings_number: u64,
    finished: Vec<(Work, Instant)>,
    first_finished: Option<Instant>,
    queue: Vec<Waiting>,
    /// How many waited when last looked, in the queue or not.
    waiting: usize,
    more_waiting: bool,
    losses: u32,
    heard: u64,
    oldest: Option<gather::Oldest>,
    /// The parcel whose work last failed for the machine: the others go first.
    failed_on: Option<ParcelId>,
    /// Entries that were refused when last looked at.
    refused: HashSet<String>,
    next_due: Option<u64>,
    settling: bool,
    upkeep_at: Instant,
    housekeeping_at: Instant,
    reconcile_at: Instant,
    /// The shard of `receipts/` that is folded next.
    fold_next: u8,
    pressure_at: Instant,
    blocked: Option<Blocked>,
    /// How often the machine was tried since something was finished.
    tries: u32,
    /// A file of people that makes no sense, while it does not.
    refusal: Option<faults::Refusal>,
    noted: WorkerNote,
    /// Ends the heartbeat when it is dropped.
    heartbeat: Sender<()>,
}

/// Why the loop was left.
enum Left {
    /// Asked to stop.
    Stopped,
    /// The worker was taken for dead: start over as another.
    Fenced,
    /// The machine failed and nobody waits for it to get well.
    Halted,
}

impl<Kind: Stage> WorkerLoop<Kind> {
    /// Lives until stopped; says on `born` how its first birth went. Where nobody listens, it is tried again.
    pub(crate) fn run(context: WorkerContext, mut born: Option<Sender<Result<(), Failure>>>) {
        let span = tracing::info_span!("worker", stage = context.stage.name);
        let _inside = span.enter();
        let mut context = Some(context);
        loop {
            let Some(taken) = context.take() else { return };
            let Some(taken) = stand_by::stand_by::<Kind>(taken, &mut born) else {
                return;
            };
            let mut worker_loop = match Self::begin(taken) {
                Ok(worker_loop) => worker_loop,
                Err(failed) => {
                    let (failure, taken) = *failed;
                    if let Some(born) = born.take() {
                        let _ = born.send(Err(failure));
                        return;
                    }
                    tracing::error!(reason = %failure, "cannot start again");
                    if taken.stage.once {
                        taken.tally.halt(failure);
                    }
                    if taken.stage.control.stopping() || taken.stage.once {
                        return;
                    }
                    std::thread::sleep(Duration::from_secs(1));
                    context = Some(taken);
                    continue;
                }
            };
            // Written while there is room: it can then be written over when there is none.
            worker_loop.note("idle", "", "");
            // The first scan comes before the birth is told: ready means ready.
            let first = worker_loop.upkeep();
            if let Some(born) = born.take() {
                let _ = born.send(Ok(()));
            }
            let left = match first {
                Ok(()) => worker_loop.live(),
                Err(error) => match worker_loop.settle_error(error) {
                    ControlFlow::Continue(()) => worker_loop.live(),
                    ControlFlow::Break(left) => left,
                },
            };
            match left {
                Left::Stopped | Left::Halted => return worker_loop.end(),
                Left::Fenced => context = Some(worker_loop.leave()),
            }
        }
    }

    fn begin(context: WorkerContext) -> Result<Self, Box<(Failure, WorkerContext)>> {
        let pipeline = context.stage.control.pipeline();
        let settings_number = context.stage.control.settings_number();
        let settings = pipeline.shell(context.stage.name);
        let opened = pipeline
            .stage_settings::<Kind::Settings>(Kind::NAME)
            .map_err(Failure::config)
            .and_then(|own| open::<Kind>(own, &context, &pipeline))
            .and_then(|stage| {
                let next = nexts(&pipeline, context.stage.name);
                let limits = limits_for::<Kind>(&settings);
                let worker = context.engine.open_worker(&WorkerTerms {
                    stage: context.stage.name,
                    next: &next,
                    limits: &limits,
                    version: VERSION,
                })?;
                Ok((stage, worker))
            });
        let (stage, worker) = match opened {
            Ok(opened) => opened,
            Err(failure) => return Err(Box::new((failure, context))),
        };
        let heartbeat = beat(worker.pulse(), settings.heartbeat.0, worker.name().as_str());
        context
            .members
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(PoolWorker {
                number: context.number,
                id: worker.name().clone(),
                signs: worker.signs().clone(),
                thread: Thread::current(),
            });
        tell_wait::<Kind>(&context, &settings);
        let now = Instant::now();
        let heard = context.bell.rings();
        Ok(Self {
            marks: marks_of(&settings, Kind::MAKES_ROOM),
            context,
            stage,
            worker,
            settings,
            settings_number,
            finished: Vec::new(),
            first_finished: None,
            queue: Vec::new(),
            waiting: 0,
            more_waiting: true,
            losses: 0,
            heard,
            oldest: None,
            failed_on: None,
            refused: HashSet::new(),
            next_due: None,
            settling: false,
            upkeep_at: now,
            housekeeping_at: now,
            reconcile_at: now,
            fold_next: 0,
            pressure_at: now,
            blocked: None,
            tries: 0,
            refusal: None,
            noted: WorkerNote::default(),
            heartbeat,
        })
    }

    fn live(&mut self) -> Left {
        loop {
            match self.step() {
                Ok(true) => self.settle_well(),
                Ok(false) => return Left::Stopped,
                Err(error) => {
                    if let ControlFlow::Break(left) = self.settle_error(error) {
                        return left;
                    }
                }
            }
        }
    }

    fn stopping(&self) -> bool {
        self.context.stage.control.stopping()
    }

    /// How long a worker waits at most before it looks around, whatever it waits for.
    fn longest_wait(&self) -> Duration {
        self.context.stage.control.longest_wait()
    }

    /// One round. `false`: asked to stop, and nothing is left in hand.
    fn step(&mut self) -> Result<bool, StepError> {
        self.worker.signs().tick();
        self.follow_settings();
        // The settings may want fewer workers than there are.
        if self.stopping() || self.context.number >= self.context.stage.size(&self.settings) {
            self.commit()?;
            return Ok(false);
        }
        if self.hold_back()? {
            return Ok(true);
        }
        let now = Instant::now();
        if now >= self.upkeep_at {
            self.upkeep()?;
        }
        self.keep_house()?;
        if self.queue.is_empty() && (self.more_waiting || self.context.bell.rings() != self.heard) {
            self.look()?;
        }
        match Kind::INTAKE {
            Intake::One => self.take_one()?,
            Intake::Batch => self.take_batch()?,
        }
        Ok(true)
    }

    fn upkeep_if_due(&mut self) -> Result<(), StepError> {
        // Settling the dead loses nothing and frees what others wait for, blocked or not.
        if Instant::now() >= self.upkeep_at {
            self.recover()?;
            self.upkeep_at = Instant::now() + self.scan_every();
        }
        Ok(())
    }

    /// What is done at the start and at every scan: settle the dead, wake the deferred, adopt.
    fn upkeep(&mut self) -> Result<(), StepError> {
        self.recover()?;
        self.reconcile()?;
        self.look()?;
        self.upkeep_at = Instant::now() + self.scan_every();
        Ok(())
    }

    /// Has the engine find what no worker would be told of, now and then. One worker is enough.
    fn reconcile(&mut self) -> Result<(), StepError> {
        if self.context.number != 0 || Instant::now() < self.reconcile_at {
            return Ok(());
        }
        let (engine, stage) = (&self.context.engine, self.context.stage.name);
        let told = engine.reconcile(stage, ReconcileExtent::Missing)?;
        if told > 0 {
            tracing::warn!(told, "parcels were told of again");
        }
        engine.collect(CollectExtent::IfDue)?;
        let every = self.context.stage.control.pipeline().engine.reconcile.0;
        self.reconcile_at = Instant::now() + every;
        Ok(())
    }

    /// Folds some of the old receipts. Never before the first scan is told: nobody waits for it to
    /// be ready, however much there is to fold.
    fn keep_house(&mut self) -> Result<(), SpoolError> {
        if self.context.number != 0 || Instant::now() < self.housekeeping_at {
            return Ok(());
        }
        let (engine, stage) = (&self.context.engine, self.context.stage.name);
        let mut swept = 0;
        if self.fold_next == 0 {
            swept = engine.sweep(stage, limits_of(&self.settings).tmp_age)?;
        }
        let age = self.settings.keep_receipts.0;
        let signs = self.worker.signs();
        let folded = match engine.fold(stage, self.fold_next, age, signs)? {
            Some(folded) => {
                self.fold_next = folded.shard;
                folded.receipts
            }
            None => {
                self.fold_next = u8::MAX;
                0
            }
        };
        if folded + swept > 0 {
            tracing::info!(folded, swept, "kept house");
        }
        let mut wait = BETWEEN_PIECES;
        // There may be more of it.
        if folded == 0 {
            self.fold_next = self.fold_next.wrapping_add(1);
            if self.fold_next == 0 {
                wait = HOUSEKEEPING;
            }
        }
        self.housekeeping_at = Instant::now() + wait;
        Ok(())
    }

    fn scan_every(&self) -> Duration {
        if self.context.has_bell.load(Ordering::SeqCst) {
            self.settings.scan.0
        } else {
            self.settings.scan.0.min(SCAN_WITHOUT_BELL)
        }
    }

    fn count_reaped(&self, workers: usize) {
        for _ in 0..workers {
            self.context.stage.metrics.reaped();
            self.context.stage.metrics.result(ResultKind::Died);
        }
    }

    /// Reads the directories: what is due, what was dropped, what waits.
    fn look(&mut self) -> Result<(), StepError> {
        self.heard = self.context.bell.rings();
        let outside = self.collect()?;
        self.next_due = self.worker.undefer()?;
        let closed = self.context.bell.take_closed();
        let adopted = self.worker.adopt(&closed)?;
        self.settling = adopted.settling > 0 || outside > 0;
        let scan = if Kind::BY_URGENCY {
            let stage = &mut self.stage;
            self.worker
                .scan_urgent(&mut |parcel, path| stage.urgency(parcel, path))?
        } else {
            self.worker.scan()?
        };
        self.tell_refused(&adopted.refused, &scan.refused);
        self.waiting = scan.total;
        let waiting = u64::try_from(scan.total).unwrap_or(u64::MAX);
        self.context.tally.waiting.store(waiting, Ordering::Relaxed);
        self.queue = scan.waiting;
        if Kind::BY_URGENCY {
            // When this one is done, there may be one more urgent than the next.
            let before = self.queue.len().saturating_sub(1);
            self.queue.drain(..before);
        }
        self.more_waiting = self.waiting > self.queue.len();
        if let Some(failed_on) = &self.failed_on {
            // Taken from the end: what may be too large for this machine comes last.
            self.queue
                .sort_by_key(|waiting| &waiting.entry.id != failed_on);
        }
        self.losses = 0;
        // The first worker is the one that looks outside.
        if self.context.number == 0 {
            self.context
                .tally
                .looked
                .store(self.heard, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Brings in what lies outside; returns how much of it is not at rest yet.
    fn collect(&mut self) -> Result<usize, StepError> {
        // One worker is enough; others would find the same.
        if self.context.number != 0 {
            return Ok(0);
        }
        let context = &self.context;
        let news = context.bell.take_outside();
        let deaf = !context.has_bell.load(Ordering::SeqCst);
        let mut inbox = Inbox::new(&*context.engine, context.stage.name, news, deaf);
        let collected = self.stage.collect(&mut inbox);
        let settling = collected.map_err(StepError::Stage)?;
        let told = &context.tally.settling;
        told.store(settling as u64, Ordering::SeqCst);
        Ok(settling)
    }

    /// Tells once of each entry that is neither a parcel nor a file, and stays where it is.
    fn tell_refused(&mut self, dropped: &[String], waiting: &[String]) {
        // One worker is enough to say so.
        if self.context.number != 0 {
            return;
        }
        let dropped = dropped.iter().map(|name| format!("drop/{name}"));
        let waiting = waiting.iter().map(|name| format!("ready/{name}"));
        let refused: HashSet<String> = dropped.chain(waiting).collect();
        for entry in refused.difference(&self.refused) {
            tracing::warn!(
                entry,
                "refused and left where it is: not a parcel, not a plain file"
            );
        }
        self.refused = refused;
    }

    fn take_one(&mut self) -> Result<(), StepError> {
        let Some(waiting) = self.queue.pop() else {
            if self.finished.is_empty() {
                self.idle();
                return Ok(());
            }
            return self.commit();
        };
        let alone = self.goes_alone(&waiting);
        if alone {
            self.commit()?;
        }
        let Some(parcel) = self.claim(&waiting)? else {
            self.losses += 1;
            if self.losses >= LOSSES {
                self.queue.clear();
                self.more_waiting = true;
            }
            return Ok(());
        };
        self.losses = 0;
        if parcel.manifest().bytes() > LARGE {
            self.commit()?;
            self.note("working", "", parcel.id().as_str());
        }
        self.work_on(parcel)?;
        let group = &self.settings.group;
        let waited = self
            .first_finished
            .is_some_and(|first| first.elapsed() >= group.wait.0);
        if alone || waited || self.finished.len() >= group.parcels as usize {
            self.commit()?;
        }
        Ok(())
    }

    /// Tells whether a parcel shares no commit with others.
    ///
    /// One that was begun before may be what killed its worker: were others finished and not yet
    /// committed when it does so again, they would pay with an attempt each. And two copies of one
    /// parcel cannot be in hand together.
    fn goes_alone(&self, waiting: &Waiting) -> bool {
        let id = &waiting.entry.id;
        let in_hand = |(work, _): &(Work, Instant)| work.parcels.iter().any(|p| p.id() == id);
        waiting.entry.attempts > 0 || self.finished.iter().any(in_hand)
    }

    fn claim(&mut self, waiting: &Waiting) -> Result<Option<Parcel>, StepError> {
        let claimed = self.worker.claim(waiting);
        self.tell_held();
        Ok(claimed?)
    }

    fn recover(&mut self) -> Result<(), StepError> {
        let recovered = self.worker.recover();
        self.tell_held();
        self.count_reaped(recovered?.workers);
        Ok(())
    }

    /// Tells of the parcels that were held before the stage could judge them.
    fn tell_held(&mut self) {
        for (parcel, reason) in self.worker.take_held() {
            let span = tracing::info_span!("parcel", %parcel);
            let _inside = span.enter();
            self.count_setback(Some(Setback::Held), &reason);
        }
    }

    fn work_on(&mut self, parcel: Parcel) -> Result<(), StepError> {
        let span = tracing::info_span!("parcel", parcel = %parcel.id());
        let _inside = span.enter();
        let began = Instant::now();
        let mut outbox = self.worker.outbox(std::slice::from_ref(&parcel));
        let worked = {
            let (stage, outbox) = (&mut self.stage, &mut outbox);
            let parcel = &parcel;
            catch_unwind(AssertUnwindSafe(move || stage.process(parcel, outbox)))
        };
        if outbox.has_said() {
            // What stands there is no longer what we wrote.
            self.noted = WorkerNote::default();
        }
        match worked {
            Ok(Ok(())) => self.finish_later(vec![parcel], outbox, began),
            Ok(Err(failure)) => self.refuse(vec![parcel], failure)?,
            Err(panic) => {
                let reason = panic_text(&*panic);
                let setback = self.worker.give_back_crashed(parcel, &reason)?;
                self.count_setback(setback, &reason);
                self.context.stage.metrics.result(ResultKind::Died);
                self.more_waiting = true;
                self.reopen();
            }
        }
        Ok(())
    }

    fn finish_later(&mut self, parcels: Vec<Parcel>, outbox: Outbox, began: Instant) {
        self.first_finished.get_or_insert_with(Instant::now);
        self.finished.push((Work { parcels, outbox }, began));
    }

    /// Commits everything that is finished.
    fn commit(&mut self) -> Result<(), StepError> {
        if self.finished.is_empty() {
            return Ok(());
        }
        self.first_finished = None;
        let began: Vec<(Instant, u64, usize)> = self
            .finished
            .iter()
            .map(|(work, began)| {
                let bytes = work.parcels.iter().map(|p| p.manifest().bytes()).sum();
                (*began, bytes, work.parcels.len())
            })
            .collect();
        let mut works: Vec<Work> = self.finished.drain(..).map(|(work, _)| work).collect();
        let finishes = self.worker.finish(&mut works)?;
        for (finish, (began, bytes, parcels)) in finishes.iter().zip(began) {
            match finish {
                Finish::Committed => {
                    self.tries = 0;
                    self.context.stage.metrics.done(bytes, began.elapsed());
                    self.context
                        .tally
                        .done
                        .fetch_add(parcels as u64, Ordering::Relaxed);
                }
                Finish::AlreadyCommitted => {
                    self.context.stage.metrics.result(ResultKind::Duplicate);
                }
            }
        }
        tracing::debug!(works = finishes.len(), "committed");
        Ok(())
    }

    /// Waits for the bell, or until something is due.
    fn idle(&mut self) {
        self.note("idle", "", "");
        let now = Instant::now();
        let mut wait = self
            .upkeep_at
            .saturating_duration_since(now)
            .min(self.longest_wait());
        if self.settling {
            wait = wait.min(self.settings.settle.0.max(Duration::from_millis(20)));
        }
        if let Some(due) = self.next_due {
            let now = self.context.engine.now_seconds(self.context.stage.name);
            wait =
                wait.min(Duration::from_secs(due.saturating_sub(now)) + Duration::from_millis(50));
        }
        let heard = self.heard;
        let rang = self
            .context
            .bell
            .wait(heard, wait.max(Duration::from_millis(1)));
        if rang != heard || self.settling || self.next_due.is_some() {
            self.more_waiting = true;
        }
    }

    /// Takes up settings that changed.
    fn follow_settings(&mut self) {
        let control = &self.context.stage.control;
        let number = control.settings_number();
        if number == self.settings_number {
            return;
        }
        self.settings_number = number;
        self.settings = control.pipeline().shell(self.context.stage.name);
        self.marks = marks_of(&self.settings, Kind::MAKES_ROOM);
        tell_wait::<Kind>(&self.context, &self.settings);
        self.worker.set_limits(limits_for::<Kind>(&self.settings));
        let next = nexts(&control.pipeline(), self.context.stage.name);
        self.worker.set_next(&next);
        self.reopen();
    }

    /// Opens the stage anew, with the settings in force; keeps the old one if that fails.
    fn reopen(&mut self) {
        let pipeline = self.context.stage.control.pipeline();
        let opened = pipeline
            .stage_settings::<Kind::Settings>(Kind::NAME)
            .map_err(Failure::config)
            .and_then(|own| open::<Kind>(own, &self.context, &pipeline));
        match opened {
            Ok(stage) => self.stage = stage,
            Err(failure) => tracing::error!(reason = %failure, "keeping the stage as it was"),
        }
    }

    fn note(&mut self, state: &str, why: &str, parcel: &str) {
        if self.noted.state == state && self.noted.why == why && self.noted.parcel == parcel {
            return;
        }
        // What a person has to mend stays to be read until it is mended.
        if self.refusal.is_some() && state != "halted" && state != "refusing" {
            return;
        }
        let since = self.context.engine.now_seconds(self.context.stage.name);
        self.noted = WorkerNote {
            state: state.to_owned(),
            why: why.to_owned(),
            since,
            parcel: parcel.to_owned(),
        };
        self.worker.note(&self.noted);
    }

    /// Gives everything up and goes.
    fn end(self) {
        let id = self.worker.name().clone();
        let context = &self.context;
        drop(self.heartbeat);
        if let Err(error) = self.worker.close() {
            tracing::warn!(%error, "left things behind: the next worker settles them");
        }
        forget(context, id.as_str());
    }

    /// Leaves a directory that is another's now.
    fn leave(self) -> WorkerContext {
        drop(self.heartbeat);
        self.context.tally.set_halted(self.context.number, None);
        forget(&self.context, self.worker.name().as_str());
        self.context
    }
}

/// Opens the stage; a crash in there is the machine's failure, not the end of the worker.
fn open<Kind: Stage>(
    own: Kind::Settings,
    context: &WorkerContext,
    pipeline: &Pipeline,
) -> Result<Kind, Failure> {
    let home = home(&context.stage, pipeline);
    catch_unwind(AssertUnwindSafe(|| Kind::open(own, &home))).unwrap_or_else(|panic| {
        Err(Failure::halt(format!(
            "crashed while it was opened: {}",
            panic_text(&*panic)
        )))
    })
}

/// Returns how patient a worker is, and how much it takes up together.
fn limits_for<Kind: Stage>(settings: &ShellSettings) -> WorkerLimits {
    let together = match Kind::INTAKE {
        Intake::One => settings.group.parcels,
        Intake::Batch => settings.batch.parcels,
    };
    WorkerLimits {
        together: together as usize,
        ..limits_of(settings)
    }
}

/// Tells how old what waits may grow before it is worked on.
fn tell_wait<Kind: Stage>(context: &WorkerContext, settings: &ShellSettings) {
    if Kind::INTAKE == Intake::Batch {
        context.stage.metrics.batch_wait(settings.batch.wait.0);
    }
}

fn forget(context: &WorkerContext, id: &str) {
    let mut members = context
        .members
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    members.retain(|member| member.id.as_str() != id);
}

fn is_fenced_now(worker: &dyn Spool) -> bool {
    matches!(worker.check_fence(), Err(SpoolError::Fenced { .. }))
}

/// Moves a lease forward until what it returns is dropped.
fn beat(pulse: Pulse, every: Duration, worker: &str) -> Sender<()> {
    let (heartbeat, ended) = channel();
    let name = format!("pulse {worker}");
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
            if matches!(pulse.beat(), Err(SpoolError::Fenced { .. })) {
                return;
            }
        }
    });
    if let Err(error) = thread {
        tracing::error!(%error, "no thread for the heartbeat: other hosts may take this worker for dead");
    }
    heartbeat
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panic".to_owned())
}
