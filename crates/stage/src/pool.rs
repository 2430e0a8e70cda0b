//! The workers of one stage in this process: started together, watched, stopped in good order.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ecluse_config::{Free, Pipeline, ShellSettings};
use ecluse_spool::{BellWire, Engine, Floor, Marks, Signs, WorkerId, WorkerLimits, WorkerTerms};
use ecluse_telemetry::Metrics;

use crate::bell;
use crate::check::{check_settings, must_be_sound};
use crate::control::{Bell, Control};
use crate::failure::Failure;
use crate::home::Home;
use crate::inbox::News;
use crate::stage::{Intake, Stage};
use crate::thread::Thread;
use crate::worker_loop::WorkerLoop;

/// Where workers work and for whom.
#[derive(Clone)]
pub struct StageContext {
    /// The stage, or one of several machines' copies of it: `index`, `index@alpha`.
    pub name: &'static str,
    /// Everything lies under here.
    pub root: PathBuf,
    /// The stop and the settings of this process.
    pub control: Arc<Control>,
    /// The stage's figures.
    pub metrics: Metrics,
    /// Stop at the first failure of the machine instead of waiting for it to get well.
    pub once: bool,
    /// How many workers, when the command line says so.
    pub workers: Option<u32>,
    /// Where the parcels live.
    pub engine: Arc<dyn Engine>,
}

impl StageContext {
    /// Returns how many workers the pool has.
    pub(crate) fn size(&self, settings: &ShellSettings) -> u32 {
        self.workers.unwrap_or(settings.workers).max(1)
    }
}

/// What became of the parcels of a stage.
#[derive(Debug, Default)]
pub struct StageTally {
    /// Handed over.
    pub done: AtomicU64,
    /// Deferred.
    pub deferred: AtomicU64,
    /// Held.
    pub held: AtomicU64,
    /// Why it gave up, the first time; only with `--once`.
    halt: Mutex<Option<Failure>>,
    /// Workers that wait for the machine to get well, by number, and why.
    halted: Mutex<BTreeMap<u32, String>>,
    /// Parcels waiting, as last scanned.
    pub waiting: AtomicU64,
    /// Files outside that are not at rest yet, as last looked at.
    pub settling: AtomicU64,
    /// What keeps the workers from claiming, if anything.
    blocked: Mutex<Option<String>>,
    /// The last ring of the bell after which the directories were read.
    pub(crate) looked: AtomicU64,
}

impl StageTally {
    pub(crate) fn halt(&self, failure: Failure) {
        lock(&self.halt).get_or_insert(failure);
    }

    /// Returns why the workers gave up, if they did.
    pub(crate) fn halt_failure(&self) -> Option<Failure> {
        lock(&self.halt).clone()
    }

    pub(crate) fn set_halted(&self, worker: u32, why: Option<&str>) {
        let mut halted = lock(&self.halted);
        match why {
            Some(why) => halted.insert(worker, format!("halted: {why}")),
            None => halted.remove(&worker),
        };
    }

    /// Returns why a worker waits for the machine to get well, if one does.
    pub(crate) fn halted(&self) -> Option<String> {
        lock(&self.halted).values().next().cloned()
    }

    pub(crate) fn set_blocked(&self, why: Option<String>) {
        *lock(&self.blocked) = why;
    }

    /// Returns what keeps the workers from claiming, if anything.
    pub fn blocked(&self) -> Option<String> {
        lock(&self.blocked).clone()
    }
}

/// A worker of this process, as those who watch over it know it.
#[derive(Clone)]
pub(crate) struct PoolWorker {
    pub(crate) number: u32,
    pub(crate) id: WorkerId,
    pub(crate) signs: Signs,
    pub(crate) thread: Thread,
}

/// The workers of one stage in this process.
pub struct WorkerPool {
    /// The stage.
    pub name: &'static str,
    /// What it takes at a time.
    pub intake: Intake,
    /// What became of its parcels.
    pub tally: Arc<StageTally>,
    stage: StageContext,
    watched: fn(&StageContext) -> Vec<PathBuf>,
    spawn: fn(WorkerContext, Option<Birth>) -> io::Result<JoinHandle<()>>,
    /// The threads of the workers, by number.
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The number of the settings that the pool has the size of.
    sized: AtomicU64,
    members: Arc<Mutex<Vec<PoolWorker>>>,
    bell: Arc<Bell>,
    hurry: Arc<AtomicBool>,
    seen: Mutex<Vec<(WorkerId, u64)>>,
    wire: Mutex<Option<bell::Wire>>,
    /// Rings the bell for an engine without directories.
    _ring: Option<BellWire>,
    has_bell: Arc<AtomicBool>,
}

/// Refuses a file system on which parcels would be lost. One on which nothing can be tried now is full, or read-only, and
/// shows that soon enough.
fn must_be_fit(engine: &dyn Engine, stage: &str) -> Result<(), Failure> {
    let faults = engine.faults(stage).unwrap_or_default();
    if faults.is_empty() {
        return Ok(());
    }
    Err(Failure::config(format!(
        "the file system of {} cannot carry it: {}; see docs/file-systems.md",
        engine.place(),
        faults.join("; ")
    )))
}

impl WorkerPool {
    /// Starts the workers of a stage: each is born and has scanned once when this returns.
    pub fn start<Kind: Stage + 'static>(stage: StageContext) -> Result<Self, Failure> {
        must_be_sound(check_settings::<Kind>(
            &stage.control.pipeline(),
            &stage.root,
        ))?;
        let engine = Arc::clone(&stage.engine);
        // No parcel is at fault yet: a work directory that is refused is the machine's.
        engine.init(stage.name).map_err(Failure::halt)?;
        for next in stage.control.pipeline().next_of(stage.name) {
            engine.init(next).map_err(Failure::halt)?;
        }
        must_be_fit(&*engine, stage.name)?;
        let bell = Arc::new(Bell::default());
        let rung = Arc::clone(&bell);
        let ring = engine.wire(stage.name, Arc::new(move || rung.ring()));
        let dir = engine.directories().map(|tree| tree.stage(stage.name));
        let wire = bell::wire(dir.as_ref(), &watched::<Kind>(&stage), &bell);
        let sized = stage.control.settings_number();
        let settings = stage.control.pipeline().shell(stage.name);
        let started = Self {
            name: stage.name,
            intake: Kind::INTAKE,
            tally: Arc::default(),
            watched: watched::<Kind>,
            spawn: spawn::<Kind>,
            threads: Mutex::default(),
            sized: AtomicU64::new(sized),
            members: Arc::default(),
            bell,
            hurry: Arc::default(),
            seen: Mutex::default(),
            has_bell: Arc::new(AtomicBool::new(wire.is_some())),
            wire: Mutex::new(wire),
            _ring: ring,
            stage,
        };
        for number in 0..started.stage.size(&settings) {
            let (sender, born) = std::sync::mpsc::channel();
            let thread = started.hire(number, Some(sender)).map_err(Failure::halt)?;
            lock(&started.threads).push(thread);
            match born.recv() {
                Ok(Ok(())) => {}
                Ok(Err(failure)) => {
                    started.stage.control.stop();
                    started.wake();
                    return Err(failure);
                }
                Err(_) => {
                    return Err(Failure::halt(format!(
                        "a worker of {} ended before it began",
                        started.name
                    )));
                }
            }
        }
        Ok(started)
    }

    fn hire(&self, number: u32, born: Option<Birth>) -> io::Result<JoinHandle<()>> {
        let context = WorkerContext {
            stage: self.stage.clone(),
            engine: Arc::clone(&self.stage.engine),
            bell: Arc::clone(&self.bell),
            has_bell: Arc::clone(&self.has_bell),
            tally: Arc::clone(&self.tally),
            members: Arc::clone(&self.members),
            hurry: Arc::clone(&self.hurry),
            number,
        };
        (self.spawn)(context, born)
    }

    /// Has as many workers as the settings say: starts what is missing. What is too many ends by itself, when its work in
    /// hand is done.
    pub(crate) fn keep_size(&self) {
        let control = &self.stage.control;
        let settings = control.settings_number();
        if self.sized.load(Ordering::SeqCst) == settings || control.stopping() {
            return;
        }
        let size = self.stage.size(&control.pipeline().shell(self.name));
        let mut threads = lock(&self.threads);
        for number in 0..size {
            let index = number as usize;
            if threads
                .get(index)
                .is_some_and(|thread| !thread.is_finished())
            {
                continue;
            }
            match self.hire(number, None) {
                Ok(thread) if index < threads.len() => threads[index] = thread,
                Ok(thread) => threads.push(thread),
                Err(error) => return tracing::error!(%error, "no thread for another worker"),
            }
        }
        // One that was about to end when the settings changed again has left the list: it is missing soon.
        let members = lock(&self.members);
        let is_there = |number: u32| members.iter().any(|member| member.number == number);
        let too_many = threads.iter().skip(size as usize);
        if (0..size).all(is_there) && too_many.into_iter().all(JoinHandle::is_finished) {
            threads.truncate(size as usize);
            self.sized.store(settings, Ordering::SeqCst);
        }
    }

    /// Returns why the pool is not ready, if it is not.
    pub(crate) fn unwell(&self) -> Option<String> {
        let lives = !lock(&self.members).is_empty();
        let halted = self.tally.halted();
        halted.or_else(|| (!lives).then(|| "no worker lives".to_owned()))
    }

    /// Wakes the workers, so that they see what changed.
    pub fn wake(&self) {
        self.bell.ring();
    }

    /// Returns a number that grows, or falls, with everything that its workers do.
    pub(crate) fn movement(&self) -> u64 {
        let tally = &self.tally;
        let counts = [&tally.done, &tally.deferred, &tally.held, &tally.waiting];
        let counts = counts.into_iter().chain([&tally.settling, &tally.looked]);
        let sum = counts.fold(0u64, |sum, count| {
            sum.wrapping_mul(31)
                .wrapping_add(count.load(Ordering::SeqCst))
        });
        sum.wrapping_add(self.bell.rings())
    }

    /// Rings, and returns the number of the ring: [`WorkerPool::has_looked`] tells when it was heeded.
    pub(crate) fn ask_to_look(&self) -> u64 {
        self.bell.ring();
        self.bell.rings()
    }

    /// Tells whether the directories were read since that ring, outside ones included. A pool that is blocked reads none.
    pub(crate) fn has_looked(&self, ring: u64) -> bool {
        self.tally.blocked().is_some() || self.tally.looked.load(Ordering::SeqCst) >= ring
    }

    /// Wires the bell anew when the directories it hangs on have changed.
    pub(crate) fn keep_bell(&self) {
        if !self.bell.take_wires_changed() {
            return;
        }
        let engine = &self.stage.engine;
        let dir = engine.directories().map(|tree| tree.stage(self.name));
        if dir
            .as_ref()
            .is_some_and(|dir| !(dir.ready().is_dir() && dir.drop().is_dir()))
        {
            // Until a worker has made them again there is nothing to hang it on.
            self.has_bell.store(false, Ordering::SeqCst);
            return self.bell.wires_changed();
        }
        let watched = (self.watched)(&self.stage);
        let wire = bell::wire(dir.as_ref(), &watched, &self.bell);
        self.has_bell.store(wire.is_some(), Ordering::SeqCst);
        *lock(&self.wire) = wire;
        // Something may have come while nothing was wired.
        self.wake();
        for path in watched.into_iter().filter(|path| path.is_dir()) {
            self.bell.ring_outside(News { path, whole: false });
        }
    }

    /// Wires the bell anew and wakes the workers: the settings have changed.
    pub(crate) fn rewire(&self) {
        self.bell.wires_changed();
        self.wake();
    }

    /// Lets a gathering stage take what there is without waiting for more.
    pub fn hurry(&self, hurry: bool) {
        if self.hurry.swap(hurry, Ordering::SeqCst) != hurry {
            self.wake();
        }
    }

    /// Tells whether every worker has gone forward since this was last asked, or waits for the disk.
    pub fn goes_forward(&self) -> bool {
        let members = lock(&self.members);
        let mut seen = lock(&self.seen);
        let now: Vec<(WorkerId, u64)> = members
            .iter()
            .map(|member| (member.id.clone(), member.signs.ticks()))
            .collect();
        let mut stuck = false;
        for (member, state) in members.iter().zip(&now) {
            if !seen.contains(state) {
                continue;
            }
            if member.thread.waits_for_disk() {
                tracing::warn!(worker = member.id.as_str(), "waits for the disk");
            } else {
                stuck = true;
            }
        }
        *seen = now;
        !stuck
    }

    /// Tells whether all workers have ended.
    pub fn ended(&self) -> bool {
        lock(&self.threads).iter().all(JoinHandle::is_finished)
    }

    /// Asks the work in hand to end soon.
    pub fn ask_to_stop(&self) {
        for member in &*lock(&self.members) {
            member.signs.ask_to_stop();
        }
        self.wake();
    }

    /// Waits for the workers to end; those that do not within the grace lose what they hold, which
    /// goes back untouched.
    pub fn stop(self, deadline: Instant) -> Result<(), Failure> {
        self.ask_to_stop();
        while !self.ended() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        if self.ended() {
            for thread in lock(&self.threads).drain(..) {
                let _ = thread.join();
            }
            return Ok(());
        }
        tracing::warn!(
            stage = self.name,
            "work in hand outlasted the grace: giving it back"
        );
        let pipeline = self.stage.control.pipeline();
        let limits = limits_of(&pipeline.shell(self.name));
        let members = lock(&self.members).clone();
        let members: Vec<WorkerId> = members.into_iter().map(|member| member.id).collect();
        let terms = WorkerTerms {
            stage: self.name,
            next: &nexts(&pipeline, self.name),
            limits: &limits,
            version: VERSION,
        };
        Ok(self.stage.engine.evict(&terms, &members)?)
    }
}

/// Where a worker says how its birth went.
pub(crate) type Birth = Sender<Result<(), Failure>>;

fn spawn<Kind: Stage + 'static>(
    context: WorkerContext,
    born: Option<Birth>,
) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(format!("{}-{}", context.stage.name, context.number))
        .spawn(move || WorkerLoop::<Kind>::run(context, born))
}

/// Takes a lock; what is behind ours is whole whatever happened to its last holder.
fn lock<Value>(mutex: &Mutex<Value>) -> MutexGuard<'_, Value> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What one worker's thread starts with.
pub(crate) struct WorkerContext {
    pub(crate) stage: StageContext,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) has_bell: Arc<AtomicBool>,
    pub(crate) tally: Arc<StageTally>,
    pub(crate) members: Arc<Mutex<Vec<PoolWorker>>>,
    pub(crate) hurry: Arc<AtomicBool>,
    pub(crate) number: u32,
}

/// Returns the surroundings of a stage.
pub(crate) fn home(stage: &StageContext, pipeline: &Pipeline) -> Home {
    Home {
        engine: Arc::clone(&stage.engine),
        metrics: stage.metrics.clone(),
        ..Home::of(pipeline, stage.name, &stage.root)
    }
}

fn watched<Kind: Stage>(stage: &StageContext) -> Vec<PathBuf> {
    let pipeline = stage.control.pipeline();
    match pipeline.stage_settings::<Kind::Settings>(Kind::NAME) {
        Ok(settings) => Kind::watched(&settings, &home(stage, &pipeline)),
        Err(_) => Vec::new(),
    }
}

/// The version that stands in leases and receipts.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(crate) fn nexts(pipeline: &Pipeline, stage: &str) -> Vec<String> {
    let next = pipeline.next_of(stage);
    next.into_iter().map(str::to_owned).collect()
}

/// Returns how patient the workers of a stage with these settings are.
pub fn limits_of(settings: &ShellSettings) -> WorkerLimits {
    let limits = WorkerLimits::default();
    WorkerLimits {
        attempts: settings.attempts,
        retry_first: settings.retry.first.0,
        retry_factor: settings.retry.factor,
        retry_longest: settings.retry.max.0,
        retry_limit: settings.retry.limit.0,
        lease: settings.lease.0,
        settle: settings.settle.0,
        names: limits.names.max(settings.batch.parcels as usize),
        ..limits
    }
}

/// Returns the marks between which a stage with these settings stops and goes on. One that makes room stops only when the disk
/// takes no receipt any more.
pub fn marks_of(settings: &ShellSettings, makes_room: bool) -> Marks {
    Marks {
        high: usize::try_from(settings.high_mark).unwrap_or(usize::MAX),
        low: usize::try_from(settings.low_mark).unwrap_or(usize::MAX),
        floor: match settings.min_free {
            _ if makes_room => Floor::Bytes(0),
            Free::Bytes(bytes) => Floor::Bytes(bytes.0),
            Free::Percent(share) => Floor::Share(share.share_of(10_000) as u16),
        },
    }
}
