//! A thread as the kernel sees it: whether it waits for the disk.
//!
//! A worker that stands still in an `fsync` is not wedged. No restart would help: the process could not even be killed before the
//! disk answers, and the parcel in hand would pay with an attempt.

use std::path::PathBuf;

/// A thread of this process.
#[derive(Debug, Clone)]
pub(crate) struct Thread {
    /// Its `stat` below `/proc`; none where there is no such thing.
    stat: Option<PathBuf>,
}

impl Thread {
    /// Returns the thread that asks.
    pub(crate) fn current() -> Self {
        let own = std::fs::read_link("/proc/thread-self");
        Self {
            stat: own
                .ok()
                .map(|own| PathBuf::from("/proc").join(own).join("stat")),
        }
    }

    /// Tells whether it sleeps in a call that only the disk can end.
    pub(crate) fn waits_for_disk(&self) -> bool {
        let Some(stat) = &self.stat else { return false };
        std::fs::read(stat).is_ok_and(|stat| state_of(&stat) == Some(b'D'))
    }
}

/// Returns the state in a `stat` line. It stands after the name, which may hold anything, brackets too.
fn state_of(stat: &[u8]) -> Option<u8> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    stat.get(end + 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_stands_after_the_name() {
        assert_eq!(state_of(b"17 (index-0) D 1 17 17 0"), Some(b'D'));
        assert_eq!(state_of(b"17 (a) D (b)) R 1 17 17 0"), Some(b'R'));
        assert_eq!(state_of(b"17 (index-0)"), None);
        assert_eq!(state_of(b""), None);
    }

    #[test]
    fn a_thread_that_computes_does_not_wait_for_the_disk() {
        let thread = Thread::current();
        let stat = thread.stat.clone().expect("Linux has /proc");
        assert_eq!(
            state_of(&std::fs::read(stat).expect("it lives")),
            Some(b'R')
        );
        assert!(!thread.waits_for_disk());
    }
}
