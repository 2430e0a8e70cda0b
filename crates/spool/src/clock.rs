//! One clock for all hosts of a root: the one that stamps files on its file system.
//!
//! What one host writes and another judges by (when a deferred parcel is due, how old a receipt
//! is) is told in this clock, so that no two hosts' wall clocks are compared. It is read now and
//! then off a directory made for the purpose: a server stamps that itself, while some clients
//! stamp files they write. In between it is carried on with the process's monotonic clock. Who
//! may make nothing there, a reader without rights or on a full disk, goes by its own wall clock.
//!
//! A file system whose clients stamp everything themselves (CephFS, GlusterFS) has no clock of its
//! own. There hosts must keep time; what is deferred is then late or early by as much as they
//! differ, and never tried in a circle: see [`Worker::undefer`](crate::Worker::undefer).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::tree::{StageDir, WorkTree};

/// How long a reading is carried on with the monotonic clock.
const READ_EVERY: Duration = Duration::from_secs(30);

/// A host whose wall clock differs by more than this from the file system's should say so.
pub const CLOCK_SKEW_LIMIT: Duration = Duration::from_secs(300);

/// The last reading, shared by all workers of a process.
pub(crate) type LastReading = Arc<Mutex<Option<Reading>>>;

/// What the clocks said at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    file_system_ns: i128,
    wall_ns: i128,
    at: Instant,
}

impl WorkTree {
    /// Goes by this host's own clock for as long as a look takes: nothing is made to read another.
    #[must_use]
    pub fn only_looking(self) -> Self {
        let reading = Reading {
            file_system_ns: self.wall_ns(),
            wall_ns: self.wall_ns(),
            at: (self.monotonic)(),
        };
        *self.reading.lock().unwrap_or_else(PoisonError::into_inner) = Some(reading);
        self
    }

    /// Returns the present time by the clock of the file system, in nanoseconds since 1970.
    pub(crate) fn now_ns(&self, stage: &StageDir) -> i128 {
        match self.reading(stage) {
            Some(reading) => {
                let since = (self.monotonic)().saturating_duration_since(reading.at);
                reading.file_system_ns + since.as_nanos() as i128
            }
            None => self.wall_ns(),
        }
    }

    /// Returns the present time by the clock of the file system, in Unix seconds.
    pub fn now_seconds(&self, stage: &str) -> u64 {
        seconds_of(self.now_ns(&self.stage(stage)))
    }

    /// Returns by how many seconds this host's wall clock is ahead of the file system's; negative
    /// when it is behind, `None` when the file system cannot be asked.
    pub fn clock_skew(&self, stage: &str) -> Option<i64> {
        let reading = self.reading(&self.stage(stage))?;
        i64::try_from((reading.wall_ns - reading.file_system_ns) / 1_000_000_000).ok()
    }

    fn reading(&self, stage: &StageDir) -> Option<Reading> {
        let mut last = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let now = (self.monotonic)();
        let is_fresh = |reading: &Reading| now.saturating_duration_since(reading.at) < READ_EVERY;
        if !last.as_ref().is_some_and(is_fresh)
            && let Some(file_system_ns) = self.read_clock(stage)
        {
            *last = Some(Reading {
                file_system_ns,
                wall_ns: self.wall_ns(),
                at: now,
            });
        }
        *last
    }

    fn read_clock(&self, stage: &StageDir) -> Option<i128> {
        let path = stage.tmp().join(format!("clock-{:016x}", (self.dice)()));
        self.fs.mkdir(&path).ok()?;
        let stat = self.fs.stat(&path);
        // Left behind, it is swept with the rest of tmp/.
        let _ = self.fs.rmdir(&path);
        stat.ok().map(|stat| stat.mtime_ns)
    }

    fn wall_ns(&self) -> i128 {
        i128::from((self.wall)()) * 1_000_000
    }
}

/// Returns a time as a number that only grows. A clock before 1970 goes on too, in numbers that no clock after it shows: what
/// is due by them was deferred by a wrong clock.
fn seconds_of(ns: i128) -> u64 {
    let seconds = ns.div_euclid(1_000_000_000).rem_euclid(1 << 40);
    u64::try_from(seconds).expect("it is below 2^40")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_before_1970_goes_on() {
        assert_eq!(seconds_of(1_800_000_000_999_999_999), 1_800_000_000);
        let before = [-86_400_i128, -2, -1].map(|second| seconds_of(second * 1_000_000_000));
        assert!(
            before.is_sorted() && before[1] - before[0] == 86_398,
            "{before:?}"
        );
        assert!(before[0] > seconds_of(i128::from(u32::MAX) * 1_000_000_000));
    }
}
