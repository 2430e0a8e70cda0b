//! One worker's life: scan, claim, work, commit, wait for the bell.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use ecluse_config::ShellSettings;
use ecluse_spool::{
    Blocked, Finish, Marks, Note, Outbox, Parcel, Pulse, Setback, SpoolError, Verdict, Waiting,
    Work, Worker,
};
use ecluse_telemetry::{Cause, ResultKind};

use crate::crew::{Hands, Member, VERSION, is_fenced, limits_of, marks_of, nexts};
use crate::failure::{Blame, Failure};
use crate::stage::{Intake, Stage};

/// How long a worker waits at most before it looks around, whatever it waits for.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// How often pressure is looked at.
const PRESSURE_EVERY: Duration = Duration::from_millis(500);
/// Without a bell, the directory is read this often.
const SCAN_WITHOUT_BELL: Duration = Duration::from_secs(2);
/// After so many lost claims the listing is stale.
const LOSSES: u32 = 8;
/// A parcel larger than this is no company for small ones: what is finished is committed first.
const LARGE: u64 = 1 << 20;
/// How often old receipts are folded and rubbish is swept, by the first worker.
const HOUSEKEEPING: Duration = Duration::from_secs(3600);

/// One worker at work.
pub(crate) struct Labour<Kind: Stage> {
    hands: Hands,
    stage: Kind,
    worker: Worker,
    settings: ShellSettings,
    marks: Marks,
    settings_number: u64,
    finished: Vec<(Work, Instant)>,
    first_finished: Option<Instant>,
    queue: Vec<Waiting>,
    more_waiting: bool,
    losses: u32,
    heard: u64,
    batch_since: Option<Instant>,
    next_due: Option<u64>,
    settling: bool,
    upkeep_at: Instant,
    housekeeping_at: Instant,
    pressure_at: Instant,
    blocked: Option<Blocked>,
    noted: Note,
    beating: Arc<AtomicBool>,
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

impl<Kind: Stage> Labour<Kind> {
    /// Lives until stopped; says on `born` how its first birth went.
    pub(crate) fn run(hands: Hands, born: Sender<Result<(), Failure>>) {
        let span = tracing::info_span!("worker", stage = Kind::NAME);
        let _inside = span.enter();
        let mut born = Some(born);
        let mut hands = Some(hands);
        loop {
            let Some(taken) = hands.take() else { return };
            let mut labour = match Self::begin(taken) {
                Ok(labour) => labour,
                Err((failure, taken)) => {
                    if let Some(born) = born.take() {
                        let _ = born.send(Err(failure));
                        return;
                    }
                    tracing::error!(reason = %failure, "cannot start again");
                    taken.tally.halt(&failure.reason);
                    if taken.post.control.stopping() || taken.post.once {
                        return;
                    }
                    std::thread::sleep(Duration::from_secs(1));
                    hands = Some(taken);
                    continue;
                }
            };
            // The first scan comes before the birth is told: ready means ready.
            let first = labour.upkeep();
            if let Some(born) = born.take() {
                let _ = born.send(Ok(()));
            }
            let left = match first {
                Ok(()) => labour.live(),
                Err(error) => labour.settle_error(error),
            };
            match left {
                Left::Stopped | Left::Halted => return labour.end(),
                Left::Fenced => hands = Some(labour.leave()),
            }
        }
    }

    fn begin(hands: Hands) -> Result<Self, (Failure, Hands)> {
        let pipeline = hands.post.control.pipeline();
        let settings_number = hands.post.control.settings_number();
        let settings = pipeline.shell(Kind::NAME);
        let opened = pipeline
            .stage_settings::<Kind::Settings>(Kind::NAME)
            .map_err(Failure::config)
            .and_then(|own| Kind::open(own, &pipeline.site))
            .and_then(|stage| {
                let next = nexts(&pipeline, Kind::NAME);
                let limits = limits_of(&settings);
                let worker = Worker::open(&hands.yard, Kind::NAME, &next, limits, VERSION)?;
                Ok((stage, worker))
            });
        let (stage, worker) = match opened {
            Ok(opened) => opened,
            Err(failure) => return Err((failure, hands)),
        };
        let beating = Arc::new(AtomicBool::new(true));
        beat(
            worker.pulse(),
            settings.heartbeat.0,
            Arc::clone(&beating),
            worker.id().as_str(),
        );
        hands
            .members
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Member {
                id: worker.id().clone(),
                signs: worker.signs().clone(),
            });
        let now = Instant::now();
        let heard = hands.bell.rings();
        Ok(Self {
            marks: marks_of(&settings),
            hands,
            stage,
            worker,
            settings,
            settings_number,
            finished: Vec::new(),
            first_finished: None,
            queue: Vec::new(),
            more_waiting: true,
            losses: 0,
            heard,
            batch_since: None,
            next_due: None,
            settling: false,
            upkeep_at: now,
            housekeeping_at: now,
            pressure_at: now,
            blocked: None,
            noted: Note::default(),
            beating,
        })
    }

    fn live(&mut self) -> Left {
        loop {
            match self.step() {
                Ok(true) => {}
                Ok(false) => return Left::Stopped,
                Err(error) => match self.settle_error(error) {
                    Left::Stopped if !self.stopping() => {}
                    left => return left,
                },
            }
        }
    }

    fn stopping(&self) -> bool {
        self.hands.post.control.stopping()
    }

    /// One round. `false`: asked to stop, and nothing is left in hand.
    fn step(&mut self) -> Result<bool, SpoolError> {
        self.worker.signs().tick();
        if self.stopping() {
            self.commit()?;
            return Ok(false);
        }
        self.follow_settings();
        if self.hold_back()? {
            return Ok(true);
        }
        let now = Instant::now();
        if now >= self.upkeep_at {
            self.upkeep()?;
        }
        if self.queue.is_empty() && (self.more_waiting || self.hands.bell.rings() != self.heard) {
            self.look()?;
        }
        match Kind::INTAKE {
            Intake::One => self.take_one()?,
            Intake::Batch => self.take_batch()?,
        }
        Ok(true)
    }

    /// Waits while something keeps the stage from claiming.
    fn hold_back(&mut self) -> Result<bool, SpoolError> {
        let now = Instant::now();
        if now >= self.pressure_at {
            self.pressure_at = now + PRESSURE_EVERY;
            let pipeline = self.hands.post.control.pipeline();
            let blocked = self.hands.yard.pressure(
                Kind::NAME,
                &nexts(&pipeline, Kind::NAME),
                &self.marks,
                self.blocked.as_ref(),
            )?;
            self.set_blocked(blocked);
        }
        let Some(blocked) = &self.blocked else {
            return Ok(false);
        };
        let why = say_blocked(blocked);
        self.commit()?;
        self.note("blocked", &why, "");
        self.upkeep_if_due()?;
        self.hands
            .bell
            .wait(self.hands.bell.rings(), PRESSURE_EVERY);
        Ok(true)
    }

    fn upkeep_if_due(&mut self) -> Result<(), SpoolError> {
        // Settling the dead loses nothing and frees what others wait for, blocked or not.
        if Instant::now() >= self.upkeep_at {
            let recovered = self.worker.recover()?;
            self.count_reaped(recovered.workers);
            self.upkeep_at = Instant::now() + self.scan_every();
        }
        Ok(())
    }

    fn set_blocked(&mut self, blocked: Option<Blocked>) {
        if self.blocked == blocked {
            return;
        }
        let metrics = &self.hands.post.metrics;
        for cause in [Cause::Paused, Cause::HighMark, Cause::Space] {
            metrics.blocked(
                cause,
                blocked.as_ref().is_some_and(|b| cause_of(b) == cause),
            );
        }
        let said = blocked.as_ref().map(say_blocked);
        match (&said, &self.blocked) {
            (Some(reason), None) => tracing::warn!(%reason, "claiming nothing"),
            (None, Some(_)) => {
                tracing::info!("claiming again");
                self.more_waiting = true;
            }
            _ => {}
        }
        self.hands.tally.set_blocked(said);
        self.blocked = blocked;
    }

    /// What is done at the start and at every scan: settle the dead, wake the deferred, adopt.
    fn upkeep(&mut self) -> Result<(), SpoolError> {
        let recovered = self.worker.recover()?;
        self.count_reaped(recovered.workers);
        self.look()?;
        self.upkeep_at = Instant::now() + self.scan_every();
        if self.hands.number == 0 && Instant::now() >= self.housekeeping_at {
            self.housekeeping_at = Instant::now() + HOUSEKEEPING;
            let age = self.settings.keep_receipts.0;
            let folded = ecluse_spool::fold(&self.hands.yard, Kind::NAME, age)?;
            let swept = self
                .hands
                .yard
                .sweep(Kind::NAME, limits_of(&self.settings).tmp_age)?;
            if folded + swept > 0 {
                tracing::info!(folded, swept, "kept house");
            }
        }
        Ok(())
    }

    fn scan_every(&self) -> Duration {
        if self.hands.has_bell {
            self.settings.scan.0
        } else {
            self.settings.scan.0.min(SCAN_WITHOUT_BELL)
        }
    }

    fn count_reaped(&self, workers: usize) {
        for _ in 0..workers {
            self.hands.post.metrics.reaped();
            self.hands.post.metrics.result(ResultKind::Died);
        }
    }

    /// Reads the directories: what is due, what was dropped, what waits.
    fn look(&mut self) -> Result<(), SpoolError> {
        self.heard = self.hands.bell.rings();
        self.next_due = self.worker.undefer()?;
        let closed = self.hands.bell.take_closed();
        let adopted = self.worker.adopt(&closed)?;
        self.settling = adopted.settling > 0;
        for name in &adopted.refused {
            tracing::debug!(name, "not a plain file: left in drop/");
        }
        let scan = self.worker.scan()?;
        self.more_waiting = scan.total > scan.waiting.len();
        let waiting = u64::try_from(scan.total).unwrap_or(u64::MAX);
        self.hands.tally.waiting.store(waiting, Ordering::Relaxed);
        self.queue = scan.waiting;
        self.losses = 0;
        Ok(())
    }

    fn take_one(&mut self) -> Result<(), SpoolError> {
        let Some(waiting) = self.queue.pop() else {
            if self.finished.is_empty() {
                self.idle();
                return Ok(());
            }
            return self.commit();
        };
        let Some(parcel) = self.worker.claim(&waiting)? else {
            self.losses += 1;
            if self.losses >= LOSSES {
                self.queue.clear();
                self.more_waiting = true;
            }
            return Ok(());
        };
        self.losses = 0;
        let suspect = self.is_suspect(parcel.attempt());
        if suspect || parcel.manifest().bytes() > LARGE {
            self.commit()?;
            self.note("working", "", parcel.id().as_str());
        }
        self.work_on(parcel)?;
        if suspect {
            return self.commit();
        }
        let group = &self.settings.group;
        let waited = self
            .first_finished
            .is_some_and(|first| first.elapsed() >= group.wait.0);
        if waited || self.finished.len() >= group.parcels as usize {
            self.commit()?;
        }
        Ok(())
    }

    /// Tells whether a parcel has been there at so many deaths that it may be their cause. Such a one
    /// is worked on alone: its neighbours would be held for its fault.
    fn is_suspect(&self, attempt: u32) -> bool {
        attempt > self.settings.attempts / 2 && attempt > 1
    }

    fn work_on(&mut self, parcel: Parcel) -> Result<(), SpoolError> {
        let span = tracing::info_span!("parcel", parcel = %parcel.id());
        let _inside = span.enter();
        let began = Instant::now();
        let mut outbox = self.worker.outbox(std::slice::from_ref(&parcel));
        let worked = {
            let (stage, outbox) = (&mut self.stage, &mut outbox);
            let parcel = &parcel;
            catch_unwind(AssertUnwindSafe(move || stage.process(parcel, outbox)))
        };
        match worked {
            Ok(Ok(())) => self.finish_later(vec![parcel], outbox, began),
            Ok(Err(failure)) => self.refuse(vec![parcel], &failure)?,
            Err(panic) => {
                let reason = panic_text(&*panic);
                tracing::error!(%reason, "the work crashed");
                let setback = self.worker.give_back_crashed(parcel, &reason)?;
                self.count_setback(setback, &reason);
                self.hands.post.metrics.result(ResultKind::Died);
                self.more_waiting = true;
                self.reopen();
            }
        }
        Ok(())
    }

    fn take_batch(&mut self) -> Result<(), SpoolError> {
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
            self.hands.bell.wait(heard, left.min(LONGEST_WAIT));
            return self.look();
        }
        self.batch_since = None;
        let mut parcels = Vec::new();
        while parcels.len() < limit
            && let Some(waiting) = self.queue.pop()
        {
            if self.is_suspect(waiting.entry.attempts.saturating_add(1)) {
                if !parcels.is_empty() {
                    continue;
                }
                parcels.extend(self.worker.claim(&waiting)?);
                if !parcels.is_empty() {
                    break;
                }
                continue;
            }
            parcels.extend(self.worker.claim(&waiting)?);
        }
        if parcels.is_empty() {
            self.more_waiting = true;
            return Ok(());
        }
        self.more_waiting = true;
        self.work_on_batch(parcels)?;
        self.commit()
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
            Ok(Ok(())) => self.finish_later(parcels, outbox, began),
            Ok(Err(failure)) => self.refuse(parcels, &failure)?,
            Err(panic) => {
                let reason = panic_text(&*panic);
                tracing::error!(%reason, "the work crashed");
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

    fn finish_later(&mut self, parcels: Vec<Parcel>, outbox: Outbox, began: Instant) {
        self.first_finished.get_or_insert_with(Instant::now);
        self.finished.push((Work { parcels, outbox }, began));
    }

    /// Commits everything that is finished.
    fn commit(&mut self) -> Result<(), SpoolError> {
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
                    self.hands.post.metrics.done(bytes, began.elapsed());
                    self.hands
                        .tally
                        .done
                        .fetch_add(parcels as u64, Ordering::Relaxed);
                }
                Finish::AlreadyCommitted => {
                    self.hands.post.metrics.result(ResultKind::Duplicate);
                }
            }
        }
        tracing::debug!(works = finishes.len(), "committed");
        Ok(())
    }

    /// Sets parcels aside as the blame says.
    fn refuse(&mut self, parcels: Vec<Parcel>, failure: &Failure) -> Result<(), SpoolError> {
        let reason = failure.reason.clone();
        let verdict = match failure.blame {
            Blame::Parcel => Verdict::Hold { reason },
            Blame::World => Verdict::Defer { reason },
            Blame::Nobody => {
                for parcel in parcels {
                    self.worker.give_back(parcel)?;
                    self.hands.post.metrics.result(ResultKind::GivenBack);
                }
                return Ok(());
            }
            Blame::Machine | Blame::Config => {
                for parcel in parcels {
                    self.worker.give_back(parcel)?;
                }
                return Err(SpoolError::Io {
                    step: "work in",
                    path: self.worker.stage().root().to_owned(),
                    source: std::io::Error::other(failure.reason.clone()),
                });
            }
        };
        for parcel in parcels {
            let setback = self.worker.fail(parcel, &verdict)?;
            self.count_setback(Some(setback), &failure.reason);
        }
        Ok(())
    }

    fn count_setback(&self, setback: Option<Setback>, reason: &str) {
        let tally = &self.hands.tally;
        match setback {
            Some(Setback::Held) => {
                tracing::warn!(reason, "held");
                tally.held.fetch_add(1, Ordering::Relaxed);
                self.hands.post.metrics.result(ResultKind::Held);
            }
            Some(Setback::DeferredUntil(due)) => {
                tracing::info!(reason, due, "deferred");
                tally.deferred.fetch_add(1, Ordering::Relaxed);
                self.hands.post.metrics.result(ResultKind::Deferred);
            }
            None => {}
        }
    }

    /// Waits for the bell, or until something is due.
    fn idle(&mut self) {
        self.note("idle", "", "");
        let now = Instant::now();
        let mut wait = self
            .upkeep_at
            .saturating_duration_since(now)
            .min(LONGEST_WAIT);
        if self.settling {
            wait = wait.min(self.settings.settle.0.max(Duration::from_millis(20)));
        }
        if let Some(due) = self.next_due {
            let now = std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |since| since.as_secs());
            wait =
                wait.min(Duration::from_secs(due.saturating_sub(now)) + Duration::from_millis(50));
        }
        let heard = self.heard;
        let rang = self
            .hands
            .bell
            .wait(heard, wait.max(Duration::from_millis(1)));
        if rang != heard || self.settling || self.next_due.is_some() {
            self.more_waiting = true;
        }
    }

    /// After an error: puts everything back, and waits until the machine is well.
    fn settle_error(&mut self, error: SpoolError) -> Left {
        self.finished.clear();
        self.first_finished = None;
        self.queue.clear();
        self.more_waiting = true;
        if is_fenced(&error) || is_fenced_now(&self.worker) {
            tracing::warn!("taken for dead and fenced: starting over as another worker");
            return Left::Fenced;
        }
        let mut reason = error.to_string();
        let mut wait = Duration::from_millis(200);
        let since = Instant::now();
        tracing::error!(%reason, "the machine is not well: claiming nothing");
        self.hands.post.metrics.blocked(Cause::Halted, true);
        loop {
            self.note("halted", &reason, "");
            self.hands
                .tally
                .set_blocked(Some(format!("halted: {reason}")));
            let well = self
                .worker
                .reset()
                .map(drop)
                .and_then(|()| self.hands.yard.probe(Kind::NAME));
            match well {
                Ok(()) => break,
                Err(error) if is_fenced(&error) => return Left::Fenced,
                Err(error) => reason = error.to_string(),
            }
            if self.hands.post.once {
                self.hands.tally.halt(&reason);
                return Left::Halted;
            }
            if self.stopping() {
                return Left::Stopped;
            }
            self.worker.signs().tick();
            let heard = self.hands.bell.rings();
            self.hands.bell.wait(heard, wait);
            wait = (wait * 2).min(Duration::from_secs(5));
        }
        if self.hands.post.once && since.elapsed() < Duration::from_millis(100) {
            // It got well at once: the failure was of this parcel's size. Waiting would not end.
            self.hands.tally.halt(&reason);
            return Left::Halted;
        }
        tracing::info!(halted = ?since.elapsed(), "the machine is well again");
        self.hands.post.metrics.blocked(Cause::Halted, false);
        self.hands.tally.set_blocked(None);
        // Not at once: what failed may fail again, and must not spin.
        let heard = self.hands.bell.rings();
        self.hands.bell.wait(heard, Duration::from_millis(500));
        Left::Stopped
    }

    /// Takes up settings that changed.
    fn follow_settings(&mut self) {
        let control = &self.hands.post.control;
        let number = control.settings_number();
        if number == self.settings_number {
            return;
        }
        self.settings_number = number;
        self.settings = control.pipeline().shell(Kind::NAME);
        self.marks = marks_of(&self.settings);
        self.worker.set_limits(limits_of(&self.settings));
        self.reopen();
    }

    /// Opens the stage anew, with the settings in force; keeps the old one if that fails.
    fn reopen(&mut self) {
        let pipeline = self.hands.post.control.pipeline();
        let opened = pipeline
            .stage_settings::<Kind::Settings>(Kind::NAME)
            .map_err(Failure::config)
            .and_then(|own| Kind::open(own, &pipeline.site));
        match opened {
            Ok(stage) => self.stage = stage,
            Err(failure) => tracing::error!(reason = %failure, "keeping the stage as it was"),
        }
    }

    fn note(&mut self, state: &str, why: &str, parcel: &str) {
        if self.noted.state == state && self.noted.why == why && self.noted.parcel == parcel {
            return;
        }
        let since = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        self.noted = Note {
            state: state.to_owned(),
            why: why.to_owned(),
            since,
            parcel: parcel.to_owned(),
        };
        self.worker.note(&self.noted);
    }

    /// Gives everything up and goes.
    fn end(self) {
        let id = self.worker.id().clone();
        let hands = &self.hands;
        self.beating.store(false, Ordering::SeqCst);
        if let Err(error) = self.worker.close() {
            tracing::warn!(%error, "left things behind: the next worker settles them");
        }
        strike(hands, id.as_str());
    }

    /// Leaves a directory that is another's now.
    fn leave(self) -> Hands {
        self.beating.store(false, Ordering::SeqCst);
        strike(&self.hands, self.worker.id().as_str());
        self.hands
    }
}

fn strike(hands: &Hands, id: &str) {
    let mut members = hands.members.lock().unwrap_or_else(PoisonError::into_inner);
    members.retain(|member| member.id.as_str() != id);
}

fn is_fenced_now(worker: &Worker) -> bool {
    matches!(worker.check_fence(), Err(SpoolError::Fenced { .. }))
}

/// Moves a lease forward until told to end.
fn beat(pulse: Pulse, every: Duration, beating: Arc<AtomicBool>, worker: &str) {
    let name = format!("pulse {worker}");
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        let step = every.min(Duration::from_millis(500));
        let mut waited = Duration::ZERO;
        while beating.load(Ordering::SeqCst) {
            std::thread::sleep(step);
            waited += step;
            if waited >= every {
                waited = Duration::ZERO;
                if matches!(pulse.beat(), Err(SpoolError::Fenced { .. })) {
                    return;
                }
            }
        }
    });
    if let Err(error) = thread {
        tracing::error!(%error, "no thread for the heartbeat: other hosts may take this worker for dead");
    }
}

fn cause_of(blocked: &Blocked) -> Cause {
    match blocked {
        Blocked::Paused(_) => Cause::Paused,
        Blocked::HighMark { .. } => Cause::HighMark,
        Blocked::Space { .. } => Cause::Space,
    }
}

/// Says in one sentence what keeps a stage from claiming.
pub fn say_blocked(blocked: &Blocked) -> String {
    match blocked {
        Blocked::Paused(paused) if paused.who.is_empty() => "paused by hand".into(),
        Blocked::Paused(paused) => format!("paused by {}: {}", paused.who, paused.why),
        Blocked::HighMark {
            stage,
            waiting,
            low,
        } => format!("{stage} has {waiting} waiting; goes on at {low}"),
        Blocked::Space { free, floor } => format!(
            "{} free, needs {}",
            ecluse_config::Bytes(*free),
            ecluse_config::Bytes(*floor)
        ),
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panic".to_owned())
}
