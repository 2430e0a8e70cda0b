//! The stage processes under torture: started, killed, stopped, woken, started again.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ecluse_spool::Engine;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::samples::Samples;

/// The processes: their stage, and how many workers each has.
const PROCESSES: [(&str, u32); 8] = [
    ("relay", 1),
    ("relay", 1),
    ("relay", 1),
    ("relay", 2),
    ("split", 1),
    ("split", 2),
    ("tally", 1),
    ("tally", 2),
];

/// The stages that work, in order.
pub(crate) const STAGES: [&str; 3] = ["relay", "split", "tally"];

/// How long a process may take to end.
const ENDING: Duration = Duration::from_secs(20);

/// How a process is started.
#[derive(Debug, Clone, Default)]
pub(crate) struct Start {
    /// `ECLUSE_FAILPOINTS`.
    pub(crate) failpoints: Option<String>,
    /// `ECLUSE_MUTANT`.
    pub(crate) mutant: Option<String>,
    /// `ECLUSE_HOST`.
    pub(crate) host: Option<String>,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Death {
    /// By SIGKILL, its own or ours.
    Killed,
    /// By itself, with this code.
    Ended(Option<i32>),
}

/// How a host is entered: what stands before a command there, and what its environment has more.
#[derive(Debug, Clone, Default)]
pub(crate) struct HostDoor {
    /// A program and words that become the command after them.
    pub(crate) words: Vec<String>,
    /// Names and values.
    pub(crate) environment: Vec<(String, String)>,
}

impl HostDoor {
    /// Returns a command that runs behind this door.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = match self.words.split_first() {
            Some((first, words)) => {
                let mut command = Command::new(first);
                command.args(words).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// One place for a process.
pub(crate) struct Slot {
    /// The stage it runs.
    pub(crate) stage: &'static str,
    workers: u32,
    /// Which host it runs on.
    pub(crate) host: usize,
    child: Option<Child>,
    /// When it is to be woken, once it was seen standing still.
    wake_at: Option<Instant>,
    /// Asked to end by SIGTERM at this time.
    pub(crate) end_at: Option<Instant>,
}

/// All processes.
pub(crate) struct Fleet {
    samples: Samples,
    engine: Arc<dyn Engine>,
    /// The root of each host.
    roots: Vec<PathBuf>,
    /// How each host is entered, where that is not plain.
    pub(crate) doors: Vec<HostDoor>,
    log: PathBuf,
    /// Somebody wants this to end: everything is to be killed and put away.
    interrupted: Arc<AtomicBool>,
    /// Every place, running or not.
    pub(crate) slots: Vec<Slot>,
}

impl Fleet {
    /// Makes the places, by turns on the hosts with these roots; nothing runs yet. Logs go to `log`.
    pub(crate) fn new(
        samples: Samples,
        engine: Arc<dyn Engine>,
        roots: &[&Path],
        log: &Path,
    ) -> anyhow::Result<Self> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
        }
        let slots = PROCESSES.iter().enumerate();
        let slots = slots.map(|(at, &(stage, workers))| Slot {
            stage,
            workers,
            host: at % roots.len(),
            child: None,
            wake_at: None,
            end_at: None,
        });
        Ok(Self {
            samples,
            engine,
            roots: roots.iter().map(|&root| root.to_owned()).collect(),
            doors: Vec::new(),
            log: log.to_owned(),
            interrupted,
            slots: slots.collect(),
        })
    }

    /// Returns the programs.
    pub(crate) fn samples(&self) -> &Samples {
        &self.samples
    }

    /// Starts the process of one place.
    pub(crate) fn start(&mut self, at: usize, start: &Start) -> anyhow::Result<()> {
        let log = File::options().append(true).create(true).open(&self.log)?;
        let slot = &mut self.slots[at];
        let program = self.samples.program(slot.stage);
        let door = self.doors.get(slot.host).cloned().unwrap_or_default();
        let mut command = door.command(&program);
        command
            .arg("--root")
            .arg(&self.roots[slot.host])
            .args(["--workers", &slot.workers.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let several = self.roots.len() > 1;
        let host = several.then(|| format!("host{}", slot.host));
        for (name, value) in [
            ("ECLUSE_FAILPOINTS", &start.failpoints),
            ("ECLUSE_MUTANT", &start.mutant),
            ("ECLUSE_HOST", &start.host.clone().or(host)),
        ] {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        slot.child = Some(child);
        slot.wake_at = None;
        slot.end_at = None;
        Ok(())
    }

    /// Starts every process that is not running.
    pub(crate) fn start_all(&mut self, start: &Start) -> anyhow::Result<()> {
        for at in 0..self.slots.len() {
            if self.slots[at].child.is_none() {
                self.start(at, start)?;
            }
        }
        Ok(())
    }

    /// Returns the places whose process has ended since, and how.
    ///
    /// # Errors
    /// When somebody wants this to end.
    pub(crate) fn deaths(&mut self) -> anyhow::Result<Vec<(usize, Death)>> {
        if self.interrupted.load(Ordering::SeqCst) {
            bail!("interrupted");
        }
        let mut deaths = Vec::new();
        for (at, slot) in self.slots.iter_mut().enumerate() {
            let Some(child) = &mut slot.child else {
                continue;
            };
            if let Some(status) = child.try_wait()? {
                slot.child = None;
                let killed = status.signal() == Some(Signal::KILL.as_raw());
                let death = match killed {
                    true => Death::Killed,
                    false => Death::Ended(status.code()),
                };
                deaths.push((at, death));
            }
        }
        Ok(deaths)
    }

    /// Sends a signal to the process of a place.
    pub(crate) fn signal(&self, at: usize, signal: Signal) {
        if let Some(pid) = self.slots[at].pid() {
            // A process that has just ended is not waited for yet: its number is still its own.
            let _ = kill_process(pid, signal);
        }
    }

    /// Wakes the processes whose time to stand still is over, which `how_long` says for each.
    pub(crate) fn wake(&mut self, mut how_long: impl FnMut() -> Duration) {
        for at in 0..self.slots.len() {
            let slot = &mut self.slots[at];
            if !slot.pid().is_some_and(is_stopped) {
                slot.wake_at = None;
                continue;
            }
            let wake_at = *slot
                .wake_at
                .get_or_insert_with(|| Instant::now() + how_long());
            if Instant::now() >= wake_at {
                slot.wake_at = None;
                self.signal(at, Signal::CONT);
            }
        }
    }

    /// Kills everything and waits for it; returns how many were killed so.
    pub(crate) fn kill_all(&mut self) -> usize {
        let mut killed = 0;
        for slot in &mut self.slots {
            if let Some(mut child) = slot.child.take() {
                let _ = child.kill();
                let status = child.wait();
                killed += usize::from(
                    status.is_ok_and(|status| status.signal() == Some(Signal::KILL.as_raw())),
                );
            }
        }
        killed
    }

    /// Lets everything run undisturbed until nothing moves any more, then ends it in good order.
    /// The answer says what still moves when the patience is over.
    pub(crate) fn settle(
        &mut self,
        start: &Start,
        patience: Duration,
    ) -> anyhow::Result<Option<String>> {
        if let Some(what) = self.calm(start, patience)? {
            return Ok(Some(what));
        }
        self.end()?;
        // What was never born is removed by age: here it is old enough.
        for stage in self.engine.stages()? {
            self.engine.sweep(&stage, Duration::ZERO)?;
        }
        Ok(None)
    }

    /// Lets everything run undisturbed until nothing moves any more.
    pub(crate) fn calm(
        &mut self,
        start: &Start,
        patience: Duration,
    ) -> anyhow::Result<Option<String>> {
        let deadline = Instant::now() + patience;
        let mut quiet = 0;
        while quiet < 3 {
            for (at, _) in self.deaths()? {
                self.start(at, start)?;
            }
            self.start_all(start)?;
            let moving = self.moving()?;
            quiet = if moving.is_none() { quiet + 1 } else { 0 };
            if let Some(what) = moving
                && Instant::now() > deadline
            {
                self.kill_all();
                return Ok(Some(what));
            }
            std::thread::sleep(Duration::from_millis(40));
        }
        Ok(None)
    }

    /// Waits until nothing moves any more, whoever runs. The answer says what still moves when the patience is over.
    pub(crate) fn rest(&mut self, patience: Duration) -> anyhow::Result<Option<String>> {
        let deadline = Instant::now() + patience;
        loop {
            self.deaths()?;
            let Some(what) = self.moving_in_all()? else {
                return Ok(None);
            };
            if Instant::now() > deadline {
                self.kill_all();
                return Ok(Some(what));
            }
            std::thread::sleep(Duration::from_millis(40));
        }
    }

    /// Asks everybody to end, and waits until all have.
    pub(crate) fn end(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + ENDING;
        for at in 0..self.slots.len() {
            self.signal(at, Signal::TERM);
        }
        while self.slots.iter().any(|slot| slot.child.is_some()) {
            self.deaths()?;
            if Instant::now() > deadline {
                self.kill_all();
                bail!("a stage did not end when asked to");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Says what still moves, or whose workers are not all there.
    pub(crate) fn moving(&self) -> anyhow::Result<Option<String>> {
        for stage in STAGES {
            let there = self.engine.depths(stage)?.workers;
            let pool = self.slots.iter().filter(|slot| slot.stage == stage);
            let workers: u32 = pool.map(|slot| slot.workers).sum();
            if there != workers as usize {
                return Ok(Some(format!("{stage}: {there} of {workers} workers")));
            }
        }
        self.moving_in_all()
    }

    pub(crate) fn moving_in_all(&self) -> anyhow::Result<Option<String>> {
        for stage in STAGES {
            let depths = self.engine.depths(stage)?;
            let moving = depths.ready + depths.deferred + depths.dropped + depths.working;
            if moving + depths.reaping > 0 {
                return Ok(Some(format!(
                    "{stage}: {} ready, {} deferred, {} dropped, {} working, {} reaping",
                    depths.ready, depths.deferred, depths.dropped, depths.working, depths.reaping,
                )));
            }
        }
        Ok(None)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.kill_all();
    }
}

impl Slot {
    fn pid(&self) -> Option<Pid> {
        let child = self.child.as_ref()?;
        i32::try_from(child.id()).ok().and_then(Pid::from_raw)
    }

    /// Tells whether a process runs here and does not stand still.
    pub(crate) fn runs(&self) -> bool {
        self.child.is_some() && self.wake_at.is_none()
    }
}

fn is_stopped(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    // The name in parentheses may hold anything; the state follows the last one.
    stat.is_ok_and(|stat| {
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('T'))
    })
}
