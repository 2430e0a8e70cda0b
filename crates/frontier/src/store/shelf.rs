//! The runs of the store with their filters, and how the filters share their memory.
//!
//! A small run's filter costs little and is asked as often as a large one's, so a new filter gets its room at
//! the cost of those that have the most bits for each key, the largest first: they are folded to half their
//! size. When all have been, the largest goes.

use std::path::Path;
use std::sync::Arc;

use super::filter::{BITS_PER_KEY, Filter, Spare};
use super::run::Run;
use crate::error::Result;

/// With fewer bits a key a folded filter says "perhaps" too often: at 5 to every eighth key, at 3 to every second.
const LEAST_FOLDED_BITS: u64 = 4;

/// A run and its filter. The run may be shared with a merge, the filter is the store's alone.
pub(super) struct Held {
    pub(super) run: Arc<Run>,
    filter: Option<Filter>,
}

impl Held {
    pub(super) fn new(run: Run, filter: Option<Filter>) -> Self {
        Self {
            run: Arc::new(run),
            filter,
        }
    }

    /// Opens a finished run.
    pub(super) fn open(path: &Path, number: u64, spare: &Spare) -> Result<Self> {
        let (run, filter) = Run::open(path, number, spare)?;
        Ok(Self::new(run, filter))
    }

    /// Whether the filter leaves it open that the run knows a key of this hash.
    pub(super) fn may_contain(&self, hash: u128) -> bool {
        let filter = self.filter.as_ref();
        filter.is_none_or(|filter| filter.may_contain(hash))
    }

    /// The memory of the filter.
    pub(super) fn filter_bytes(&self) -> u64 {
        self.filter.as_ref().map_or(0, Filter::bytes)
    }

    /// Bits of the filter for each key; more than enough counts as enough.
    fn bits(&self) -> u64 {
        let bits = self.filter_bytes() * 8 / self.run.filtered_keys.max(1);
        bits.min(BITS_PER_KEY)
    }

    /// Whether half the filter would still say something.
    fn can_fold(&self) -> bool {
        self.bits() / 2 >= LEAST_FOLDED_BITS && self.filter.as_ref().is_some_and(Filter::can_fold)
    }

    fn fold(&mut self) {
        if let Some(filter) = &mut self.filter {
            filter.fold();
        }
    }
}

/// What all filters take.
pub(super) fn filter_bytes(runs: &[Held]) -> u64 {
    runs.iter().map(Held::filter_bytes).sum()
}

/// Folds filters until they fit into `limit`, and lets the largest go when none can be folded.
pub(super) fn fit(runs: &mut [Held], limit: u64) {
    while filter_bytes(runs) > limit {
        if let Some(held) = richest(runs, |_| false) {
            held.fold();
        } else if let Some(held) = largest(runs) {
            held.filter = None;
        }
    }
}

/// Makes room for the filter of a new run with so many keys, and says how many bytes it may take.
///
/// The runs that `leaves` names will be merged into it: theirs are halved before others are. None of the others
/// is made poorer than the new one would be without it.
pub(super) fn make_room(
    runs: &mut [Held],
    leaves: impl Fn(&Run) -> bool,
    limit: u64,
    keys: u64,
) -> u64 {
    let wanted = keys.saturating_mul(BITS_PER_KEY).div_ceil(8);
    loop {
        let free = limit.saturating_sub(filter_bytes(runs));
        let bits = free * 8 / keys.max(1);
        if free >= wanted {
            return free;
        }
        if let Some(held) = richest(runs, &leaves)
            && (held.bits() / 2 >= bits || leaves(&held.run))
        {
            held.fold();
        } else if let Some(held) = largest(runs)
            && bits < LEAST_FOLDED_BITS
            && held.filter_bytes() > wanted
        {
            held.filter = None;
        } else {
            return free;
        }
    }
}

fn largest(runs: &mut [Held]) -> Option<&mut Held> {
    runs.iter_mut().max_by_key(|held| held.filter_bytes())
}

/// The run whose filter is to be folded next.
fn richest(runs: &mut [Held], first: impl Fn(&Run) -> bool) -> Option<&mut Held> {
    let foldable = runs.iter_mut().filter(|held| held.can_fold());
    foldable.max_by_key(|held| {
        let early = first(&held.run) && held.bits() > BITS_PER_KEY / 2;
        (early, held.bits(), held.filter_bytes())
    })
}
