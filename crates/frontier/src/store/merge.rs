//! Merging runs: which ones, and how, in a thread of its own so that nobody waits for it.
//!
//! Four runs of one size become one of the next: an entry is written again once for each size, which
//! grows with the logarithm of the number of entries, and a look-up asks a few runs only.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::filter::Filter;
use super::memtable::Key;
use super::run::{Cursor, Run, RunWriter};
use super::shelf::Held;
use crate::error::{Result, io_error};

/// Runs of one size that become one.
const FAN: usize = 4;
/// Entries between two looks at whether to stop.
const BREATH: u64 = 4096;

/// A merge under way.
pub(super) struct Merge {
    handle: JoinHandle<Result<Option<Held>>>,
    cancel: Arc<AtomicBool>,
    /// The numbers of the runs it reads.
    pub(super) inputs: Vec<u64>,
    /// The memory of the filter it builds.
    pub(super) filter_bytes: u64,
}

/// What a merge is to do.
pub(super) struct Plan {
    /// The newest first, one after the other in age.
    pub(super) inputs: Vec<Arc<Run>>,
    /// Whether the oldest of all runs is among them: deleted keys need not be remembered then.
    pub(super) oldest: bool,
    pub(super) path: PathBuf,
    pub(super) number: u64,
    pub(super) filter: Option<Filter>,
}

impl Merge {
    /// Starts a merge in a thread.
    pub(super) fn start(plan: Plan) -> Result<Self> {
        let cancel = Arc::new(AtomicBool::new(false));
        let inputs = plan.inputs.iter().map(|run| run.number).collect();
        let filter_bytes = plan.filter.as_ref().map_or(0, Filter::bytes);
        let flag = Arc::clone(&cancel);
        let path = plan.path.clone();
        let handle = std::thread::Builder::new()
            .name("frontier-merge".to_owned())
            .spawn(move || merge(plan, &flag))
            .map_err(io_error("start a thread for", &path))?;
        Ok(Self {
            handle,
            cancel,
            inputs,
            filter_bytes,
        })
    }

    pub(super) fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// Waits for the merged run; none if it was cancelled.
    pub(super) fn join(self) -> Result<Option<Held>> {
        match self.handle.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Asks it to stop and waits until it has.
    pub(super) fn cancel(self) {
        self.cancel.store(true, Ordering::Relaxed);
        // Its file is removed when the store is opened again.
        let _ = self.handle.join();
    }
}

fn merge(plan: Plan, cancel: &AtomicBool) -> Result<Option<Held>> {
    let mut out = RunWriter::create(&plan.path, plan.number, plan.filter)?;
    let first = Key::new(&[]);
    let mut cursors = Vec::new();
    for run in plan.inputs {
        cursors.push(Cursor::seek(run, &first)?);
    }
    let mut count = 0_u64;
    while let Some((newest, key)) = least(&cursors) {
        let value = cursors[newest].value();
        if value.is_some() || !plan.oldest {
            out.push(key, value)?;
        }
        for cursor in &mut cursors {
            if cursor.key() == Some(&key) {
                cursor.advance()?;
            }
        }
        count += 1;
        if count.is_multiple_of(BREATH) && cancel.load(Ordering::Relaxed) {
            return Ok(None);
        }
    }
    out.finish().map(Some)
}

/// The cursor with the least key; among equal keys the first, which is the newest.
pub(super) fn least(cursors: &[Cursor]) -> Option<(usize, Key)> {
    let mut least: Option<(usize, &Key)> = None;
    for (number, cursor) in cursors.iter().enumerate() {
        if let Some(key) = cursor.key()
            && least.is_none_or(|(_, other)| key < other)
        {
            least = Some((number, key));
        }
    }
    least.map(|(number, key)| (number, *key))
}

/// Which of the runs, given by their sizes from the newest on, should be merged.
pub(super) fn choose(sizes: &[u64], unit: u64) -> Option<std::ops::Range<usize>> {
    let level = |bytes: &u64| (bytes / unit.max(1)).max(1).ilog(FAN as u64);
    let highest = sizes.iter().map(level).max()?;
    (0..=highest).find_map(|wanted| {
        let end = sizes
            .iter()
            .take_while(|size| level(size) <= wanted)
            .count();
        let here = |size: &&u64| level(size) == wanted;
        let count = sizes[..end].iter().filter(here).count();
        let start = sizes[..end].iter().position(|size| level(size) == wanted)?;
        (count >= FAN).then_some(start..end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_of_a_size_are_merged_and_newer_small_ones_left() {
        assert_eq!(choose(&[], 10), None);
        assert_eq!(choose(&[10, 10, 10], 10), None);
        assert_eq!(choose(&[10, 10, 10, 10], 10), Some(0..4));
        assert_eq!(choose(&[9, 40, 41, 50, 60, 900], 10), Some(1..5));
        assert_eq!(choose(&[10, 10, 40, 41, 50, 900], 10), None);
        // A run that shrank does not hold up the older ones beside it.
        assert_eq!(choose(&[40, 40, 5, 40, 40], 10), Some(0..5));
    }
}
