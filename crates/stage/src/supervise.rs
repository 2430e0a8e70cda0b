//! Watches over the pools of this process: signals, the watchdog, metrics, the end.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ecluse_config::{EngineSettings, Pipeline};
use ecluse_spool::{Depths, Engine, ParcelPlace, ParcelState};
use ecluse_telemetry as telemetry;
use ecluse_telemetry::{Exposition, Registry};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::control::Control;
use crate::engine::open_engine;
use crate::exit::Exit;
use crate::failure::{Blame, Failure};
use crate::open_files::must_have_files;
use crate::pool::{StageContext, WorkerPool};
use crate::stage::Intake;

/// How often the pools are looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How often they are at least, however long nothing moves.
const REST: Duration = Duration::from_millis(500);
/// How often work directories are read, with `once`, while nothing moves in this process: others may work there too.
const READ_AGAIN: Duration = Duration::from_secs(2);
/// How often they are at least, however long nothing moves.
const READ_AT_REST: Duration = Duration::from_secs(6);
/// How often depths are counted for metrics and the status line.
const COUNT: Duration = Duration::from_secs(10);

/// Shows how far the pools are.
pub type Progress = Box<dyn FnMut(&[WorkerPool])>;

/// What a process runs.
pub struct RunPlan {
    /// Everything lies under here.
    pub root: PathBuf,
    /// The file the settings came from, to be read again on SIGHUP.
    pub config: Option<PathBuf>,
    /// Stop when all is idle.
    pub once: bool,
    /// The version that metrics tell.
    pub version: &'static str,
    /// Called whenever the pools are looked at, to show progress.
    pub progress: Option<Progress>,
    /// The log, so that SIGHUP can change its level.
    pub log: Option<telemetry::log::Handle>,
}

/// How a run ended.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct RunEnd {
    /// Parcels handed over.
    pub done: u64,
    /// Parcels held; not counted for a run that was to go on until told to stop.
    pub held: u64,
    /// Parcels deferred and still waiting.
    pub deferred: u64,
    /// What the first of them waits for.
    pub deferred_for: Option<String>,
    /// What failed of the machine, or is wrong with the settings.
    pub halted: Option<String>,
    /// It is the settings.
    pub misconfigured: bool,
    /// What still blocks a stage.
    pub blocked: Option<String>,
}

impl RunEnd {
    /// Returns the exit code.
    pub fn exit(&self) -> Exit {
        if self.misconfigured {
            Exit::Config
        } else if self.halted.is_some() {
            Exit::Machine
        } else if self.held > 0 {
            Exit::Held
        } else if self.deferred > 0 || self.blocked.is_some() {
            Exit::Deferred
        } else {
            Exit::Done
        }
    }
}

/// Starts the pools and watches over them until they are told to stop, or with `once` until all is
/// idle.
pub fn supervise(
    mut plan: RunPlan,
    control: &Arc<Control>,
    starts: &[crate::StageEntry],
    workers: Option<u32>,
    host: Option<String>,
) -> Result<RunEnd, Failure> {
    // Paths are written down in receipts and in the manifest: they must not hang on where we stand.
    plan.root = std::path::absolute(&plan.root).map_err(Failure::halt)?;
    must_have_files()?;
    let registry = Registry::new(plan.version);
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1]).map_err(Failure::halt)?;
    let health = telemetry::Health::starting();
    let pipeline = control.pipeline();
    let _server = match pipeline.metrics.listen {
        Some(address) => Some(
            telemetry::Server::start(address, registry.clone(), health.clone())
                .map_err(|e| Failure::config(format!("cannot listen on {address}: {e}")))?,
        ),
        None => None,
    };
    let dog = sd_notify::watchdog_enabled();
    if let Some(limit) = dog {
        // An idle worker must be seen to live as often as the watchdog is fed.
        control.wait_at_most(limit / 8);
    }
    let mut pools: Vec<WorkerPool> = Vec::new();
    if starts.is_empty() {
        return Err(Failure::config("no stage to run"));
    }
    let user = match starts {
        [alone] => alone.name,
        _ => EngineSettings::OPERATOR,
    };
    let engine = open_engine(&pipeline, &plan.root, user, host.as_deref())?;
    for entry in starts {
        let stage = StageContext {
            name: entry.name,
            root: plan.root.clone(),
            control: Arc::clone(control),
            metrics: registry.stage(entry.name),
            once: plan.once,
            workers,
            engine: Arc::clone(&engine),
        };
        match (entry.start)(stage) {
            Ok(pool) => pools.push(pool),
            Err(failure) => {
                control.stop();
                stop_all(pools, Instant::now() + Duration::from_secs(5));
                return Err(failure);
            }
        }
    }
    health.well("start");
    tell_systemd(&[sd_notify::NotifyState::Ready]);
    let mut watch = Watch {
        plan: &mut plan,
        control,
        starts,
        engine: &*engine,
        registry: &registry,
        health: &health,
        signals,
        counted: None,
        dog,
        fed: Instant::now(),
        idle_rounds: 0,
        last_look: Vec::new(),
        movement: 0,
        moved: Instant::now(),
        busy: None,
    };
    watch.until_end(&pools);
    health.unwell("stop", "stopping");
    tell_systemd(&[sd_notify::NotifyState::Stopping]);
    let grace = pools
        .iter()
        .map(|pool| control.pipeline().shell(pool.name).grace.0)
        .max()
        .unwrap_or_default();
    watch.drain(&pools, Instant::now() + grace);
    let ended = ended(&pools, &*engine, plan.once);
    stop_all(pools, Instant::now());
    // Another host need not wait for a lease to end.
    engine.disown();
    publish(&registry, &control.pipeline(), starts);
    Ok(ended)
}

struct Watch<'a> {
    plan: &'a mut RunPlan,
    control: &'a Arc<Control>,
    starts: &'a [crate::StageEntry],
    engine: &'a dyn Engine,
    registry: &'a Registry,
    health: &'a telemetry::Health,
    signals: Signals,
    counted: Option<Instant>,
    dog: Option<Duration>,
    fed: Instant,
    idle_rounds: u32,
    /// The rings that asked the pools for a last look; none while something moves.
    last_look: Vec<u64>,
    /// What the pools have counted, as last seen; another number means that something has moved.
    movement: u64,
    /// When it was another.
    moved: Instant,
    /// When the work directories were last read and something was at work there, and what the pools had counted.
    busy: Option<(Instant, u64)>,
}

impl Watch<'_> {
    /// Returns when the pools should stop.
    fn until_end(&mut self, pools: &[WorkerPool]) {
        loop {
            self.hear_signals(pools);
            if self.control.stopping() || pools.iter().all(WorkerPool::ended) {
                self.control.stop();
                return;
            }
            pools.iter().for_each(WorkerPool::keep_bell);
            pools.iter().for_each(WorkerPool::keep_size);
            self.tell_health(pools);
            self.feed_dog(pools);
            self.count(pools);
            if let Some(progress) = &mut self.plan.progress {
                progress(pools);
            }
            if self.plan.once && self.all_idle(pools) {
                self.control.stop();
                return;
            }
            std::thread::sleep(self.pause(pools));
        }
    }

    /// Returns how long the pools may be left alone: the longer, the longer nothing has moved.
    fn pause(&mut self, pools: &[WorkerPool]) -> Duration {
        let movement = movement(pools);
        if movement != self.movement {
            self.movement = movement;
            self.moved = Instant::now();
        }
        let least = if self.plan.once { LOOK / 5 } else { LOOK };
        (self.moved.elapsed() / 8).clamp(least, REST)
    }

    /// Says whether the process is ready: every pool has a worker, and none waits for the machine to get well.
    fn tell_health(&self, pools: &[WorkerPool]) {
        for pool in pools {
            match pool.unwell() {
                Some(why) => self.health.unwell(pool.name, &why),
                None => self.health.well(pool.name),
            }
        }
    }

    /// Waits for the pools to end, hearing a second signal.
    fn drain(&mut self, pools: &[WorkerPool], deadline: Instant) {
        for pool in pools {
            pool.ask_to_stop();
        }
        while !pools.iter().all(WorkerPool::ended) && Instant::now() < deadline {
            self.hear_signals(pools);
            self.feed_dog(pools);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn hear_signals(&mut self, pools: &[WorkerPool]) {
        let pending: Vec<i32> = self.signals.pending().collect();
        for signal in pending {
            match signal {
                SIGHUP => self.reload(pools),
                // On demand: gathering stages take what there is, without waiting for more.
                SIGUSR1 => pools.iter().for_each(|pool| pool.hurry(true)),
                _ => {
                    if self.control.stop() {
                        // Asked twice: go now. What is in hand is settled by the next worker.
                        tracing::warn!("stopping at once: the next worker settles what is in hand");
                        std::process::exit(Exit::Deferred as i32);
                    }
                    tracing::info!("stopping: finishing the work in hand");
                    tell_systemd(&[sd_notify::NotifyState::Stopping]);
                }
            }
        }
    }

    fn reload(&mut self, pools: &[WorkerPool]) {
        let loaded = Pipeline::load(self.plan.config.as_deref())
            .map_err(Failure::config)
            .and_then(|pipeline| {
                // All or nothing: a stage's own keys are looked at before anything changes.
                for entry in self.starts {
                    entry.must_be_sound(&pipeline, &self.plan.root)?;
                }
                Ok(pipeline)
            });
        match loaded {
            Ok(pipeline) => {
                if let Some(log) = &self.plan.log {
                    let _ = log.set_filter(pipeline.log.level.as_str());
                }
                self.control.reload(pipeline);
                pools.iter().for_each(WorkerPool::rewire);
                tracing::info!("settings read again");
            }
            Err(error) => tracing::error!(%error, "keeping the settings as they were"),
        }
    }

    /// Feeds systemd's watchdog while every worker goes forward.
    fn feed_dog(&mut self, pools: &[WorkerPool]) {
        let Some(limit) = self.dog else { return };
        if self.fed.elapsed() < limit / 4 {
            return;
        }
        self.fed = Instant::now();
        // All are asked, so that each is compared with its state at this very moment.
        let forward = pools.iter().filter(|pool| pool.goes_forward()).count();
        if forward == pools.len() {
            tell_systemd(&[sd_notify::NotifyState::Watchdog]);
        } else {
            tracing::error!("a worker stands still: not feeding the watchdog");
        }
    }

    fn count(&mut self, pools: &[WorkerPool]) {
        if self.counted.is_some_and(|at| at.elapsed() < COUNT) {
            return;
        }
        self.counted = Some(Instant::now());
        let mut sum = Depths::default();
        for pool in pools {
            let Ok(depths) = self.engine.depths(pool.name) else {
                continue;
            };
            let metrics = self.registry.stage(pool.name);
            metrics.depths(&figures(&depths));
            metrics.blocked(telemetry::Cause::Paused, depths.paused.is_some());
            sum.ready += depths.ready;
            sum.working += depths.working;
            sum.deferred += depths.deferred;
            sum.held += depths.held;
        }
        let mut status = format!(
            "waiting {} working {} deferred {} held {}",
            sum.ready, sum.working, sum.deferred, sum.held
        );
        for pool in pools {
            if let Some(why) = pool.tally.halted().or_else(|| pool.tally.blocked()) {
                let line = format!("; {}: {why}", pool.name);
                status.push_str(&telemetry::printable(line.as_bytes()));
            }
        }
        tell_systemd(&[sd_notify::NotifyState::Status(&status)]);
        let stages: Vec<&str> = pools.iter().map(|pool| pool.name).collect();
        publish_textfile(self.registry, &self.control.pipeline(), &stages);
    }

    /// Tells whether nothing moves any more. Gathering stages are hurried once all before them is
    /// still, so that they take everything in one batch.
    fn all_idle(&mut self, pools: &[WorkerPool]) -> bool {
        if pools.iter().any(|pool| pool.tally.halt_failure().is_some()) {
            return true;
        }
        let movement = movement(pools);
        let every = (self.moved.elapsed() / 4).clamp(READ_AGAIN, READ_AT_REST);
        let is_known = |(at, before): (Instant, u64)| before == movement && at.elapsed() < every;
        if self.busy.is_some_and(is_known) {
            return false;
        }
        self.busy = None;
        let mut still = true;
        for pool in pools {
            // Behind a stage that is busy nothing is hurried, whatever waits there.
            if !still {
                pool.hurry(false);
                continue;
            }
            let Ok(depths) = self.engine.depths(pool.name) else {
                return false;
            };
            if pool.intake == Intake::Batch {
                pool.hurry(still && depths.working == 0);
            }
            let blocked = pool.tally.blocked().is_some();
            let settling = pool.tally.settling.load(Ordering::SeqCst) > 0;
            let waiting = depths.ready + depths.dropped > 0;
            // What is blocked takes nothing up, and never sees a file come to rest.
            let busy = depths.working > 0 || (!blocked && (settling || waiting));
            still &= !busy;
        }
        if !still {
            self.busy = Some((Instant::now(), movement));
            self.idle_rounds = 0;
            self.last_look.clear();
            return false;
        }
        // A stage may have left something where only a look from the next one finds it.
        if self.last_look.is_empty() {
            self.last_look = pools.iter().map(WorkerPool::ask_to_look).collect();
        }
        let looked = |(pool, ring): (&WorkerPool, &u64)| pool.has_looked(*ring);
        if !pools.iter().zip(&self.last_look).all(looked) {
            return false;
        }
        // Several times in a row: a parcel between two stages is counted in neither for a moment.
        self.idle_rounds += 1;
        self.idle_rounds >= 3
    }
}

/// Returns a number that is another when something has moved.
fn movement(pools: &[WorkerPool]) -> u64 {
    pools
        .iter()
        .fold(0, |sum, pool| sum.wrapping_add(pool.movement()))
}

fn ended(pools: &[WorkerPool], engine: &dyn Engine, once: bool) -> RunEnd {
    let mut ended = RunEnd::default();
    for pool in pools {
        let tally = &pool.tally;
        ended.done += tally.done.load(Ordering::Relaxed);
        if once {
            // A stage that runs for months has held something: that is no failure of its end.
            ended.held += tally.held.load(Ordering::Relaxed);
        }
        if let Some(failure) = tally.halt_failure() {
            ended.misconfigured |= failure.blame == Blame::Config;
            let reason = format!("{}: {failure}", pool.name);
            ended.halted.get_or_insert(reason);
        }
        if once && let Some(why) = tally.blocked() {
            ended.blocked.get_or_insert(format!("{}: {why}", pool.name));
        }
        if once && let Ok(depths) = engine.depths(pool.name) {
            ended.deferred += depths.deferred as u64;
            let waits_for = || deferred_for(engine, pool.name);
            ended.deferred_for = ended.deferred_for.or_else(waits_for);
        }
    }
    ended
}

/// Says what the parcel of a stage that is tried next waits for.
pub fn deferred_for(engine: &dyn Engine, stage: &str) -> Option<String> {
    let mut next: Option<ParcelPlace> = None;
    let looked = engine.each_place(stage, &mut |place| {
        let is_next = next.as_ref().is_none_or(|next| place.due < next.due);
        if place.state == ParcelState::Deferred && is_next {
            next = Some(place);
        }
    });
    looked.ok()?;
    let trouble = engine.trouble(&next?)?;
    Some(format!("{stage}: {}", trouble.reason))
}

fn stop_all(pools: Vec<WorkerPool>, deadline: Instant) {
    for pool in pools {
        let name = pool.name;
        if let Err(failure) = pool.stop(deadline) {
            tracing::error!(stage = name, reason = %failure, "could not give everything back");
        }
    }
}

/// Turns depths into figures.
fn figures(depths: &Depths) -> telemetry::DepthGauges {
    let depth = |parcels: usize, oldest: Option<u64>| telemetry::Depth {
        parcels: parcels as u64,
        oldest: oldest.map(Duration::from_secs),
    };
    telemetry::DepthGauges {
        waiting: depth(depths.ready, depths.oldest_ready),
        working: depth(depths.working, None),
        deferred: depth(depths.deferred, None),
        held: depth(depths.held, depths.oldest_held),
    }
}

fn publish(registry: &Registry, pipeline: &Pipeline, starts: &[crate::StageEntry]) {
    let stages: Vec<&str> = starts.iter().map(|entry| entry.name).collect();
    publish_textfile(registry, pipeline, &stages);
}

fn publish_textfile(registry: &Registry, pipeline: &Pipeline, stages: &[&str]) {
    let name = match stages {
        [one] => one,
        _ => "all",
    };
    if let Some(path) = pipeline.metrics.textfile_of(name)
        && let Err(error) = telemetry::textfile::write(&path, &registry.render(Exposition::Plain))
    {
        tracing::warn!(%error, path = %path.display(), "cannot write the metrics");
    }
}

/// Tells systemd, if it is there.
fn tell_systemd(states: &[sd_notify::NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "systemd does not listen");
    }
}

impl Failure {
    /// Returns the exit code of a program that ends with this failure.
    pub fn exit(&self) -> Exit {
        match self.blame {
            Blame::Parcel => Exit::Held,
            Blame::Machine => Exit::Machine,
            Blame::World | Blame::Nobody => Exit::Deferred,
            Blame::Config => Exit::Config,
        }
    }
}
