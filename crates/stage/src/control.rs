//! What the threads of one process tell each other: stop, hurry, settings changed, the bell rang.

use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use ecluse_config::Pipeline;

use crate::inbox::News;

/// Shared by everything that runs in one process.
pub struct Control {
    stop: AtomicBool,
    /// Counts up when the settings change.
    settings: AtomicU64,
    pipeline: RwLock<Arc<Pipeline>>,
    /// How long a worker may wait without a sign of life, in milliseconds.
    longest_wait: AtomicU64,
}

impl Control {
    /// Starts with these settings.
    pub fn new(pipeline: Pipeline) -> Self {
        Self {
            stop: AtomicBool::new(false),
            settings: AtomicU64::new(0),
            pipeline: RwLock::new(Arc::new(pipeline)),
            longest_wait: AtomicU64::new(5000),
        }
    }

    /// Asks everything to stop; says whether it was asked before.
    pub fn stop(&self) -> bool {
        self.stop.swap(true, Ordering::SeqCst)
    }

    /// Tells whether everything was asked to stop.
    pub fn stopping(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Lets no worker wait longer than this without a sign of life.
    pub(crate) fn wait_at_most(&self, wait: Duration) {
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.longest_wait.fetch_min(millis.max(1), Ordering::SeqCst);
    }

    /// Returns how long a worker may wait without a sign of life.
    pub(crate) fn longest_wait(&self) -> Duration {
        Duration::from_millis(self.longest_wait.load(Ordering::SeqCst))
    }

    /// Puts new settings in force.
    pub fn reload(&self, pipeline: Pipeline) {
        *self
            .pipeline
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(pipeline);
        self.settings.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the settings in force.
    pub fn pipeline(&self) -> Arc<Pipeline> {
        Arc::clone(&self.pipeline.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a number that changes when the settings do.
    pub fn settings_number(&self) -> u64 {
        self.settings.load(Ordering::SeqCst)
    }
}

/// The bell of one stage: rings when something came, and wakes whoever waits.
#[derive(Default)]
pub(crate) struct Bell {
    state: Mutex<BellState>,
    rung: Condvar,
}

#[derive(Default)]
struct BellState {
    rings: u64,
    /// Files in `drop/` that their writer closed or that were renamed in.
    closed: Vec<OsString>,
    /// The same under the directories outside.
    outside: Vec<News>,
    /// The directories it is wired to are no longer those that are there.
    wires_changed: bool,
}

/// More names than this are not worth keeping: the scan finds the files anyway.
const CLOSED_KEPT: usize = 10_000;

impl Bell {
    /// Rings.
    pub(crate) fn ring(&self) {
        self.lock().rings += 1;
        self.rung.notify_all();
    }

    /// Rings for a complete file in `drop/`.
    pub(crate) fn ring_closed(&self, name: OsString) {
        let mut state = self.lock();
        state.rings += 1;
        if state.closed.len() < CLOSED_KEPT {
            state.closed.push(name);
        }
        drop(state);
        self.rung.notify_all();
    }

    /// Rings for something outside.
    pub(crate) fn ring_outside(&self, news: News) {
        let mut state = self.lock();
        state.rings += 1;
        if state.outside.len() < CLOSED_KEPT {
            state.outside.push(news);
        }
        drop(state);
        self.rung.notify_all();
    }

    /// Takes what was told of the directories outside.
    pub(crate) fn take_outside(&self) -> Vec<News> {
        std::mem::take(&mut self.lock().outside)
    }

    /// Says that it must be wired anew.
    pub(crate) fn wires_changed(&self) {
        self.lock().wires_changed = true;
    }

    /// Tells whether it must be wired anew, once.
    pub(crate) fn take_wires_changed(&self) -> bool {
        std::mem::take(&mut self.lock().wires_changed)
    }

    /// Returns how often it rang.
    pub(crate) fn rings(&self) -> u64 {
        self.lock().rings
    }

    /// Takes the names of the complete files.
    pub(crate) fn take_closed(&self) -> Vec<OsString> {
        std::mem::take(&mut self.lock().closed)
    }

    /// Waits until it rings once more than `heard`, or for `at_most`; returns the rings.
    pub(crate) fn wait(&self, heard: u64, at_most: Duration) -> u64 {
        let state = self.lock();
        let (state, _) = self
            .rung
            .wait_timeout_while(state, at_most, |state| state.rings == heard)
            .unwrap_or_else(PoisonError::into_inner);
        state.rings
    }

    fn lock(&self) -> MutexGuard<'_, BellState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
