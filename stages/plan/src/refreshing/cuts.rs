//! From which priority on candidates are taken, and how visits are divided among the kinds of them.

use std::fs::File;
use std::io::{BufReader, Read};

use ecluse_stage::Failure;

use super::entry::{DISCOVERY, FORGOTTEN, REFRESH};
use super::ranking::Ranking;
use crate::priority::PriorityCut;

/// Priorities, and from which one on candidates are taken.
pub(super) struct Cuts {
    pub(super) priorities: File,
    pub(super) cuts: [PriorityCut; 3],
    pub(super) ranking: Ranking,
    /// Priority and size of each site, where sites are taken whole.
    pub(super) sites: Option<BufReader<File>>,
    pub(super) too_large: u64,
}

pub(super) fn read_site(sites: &mut impl Read) -> Result<(f32, u64), Failure> {
    let mut bytes = [0; 12];
    sites.read_exact(&mut bytes)?;
    let [priority, pages] = [&bytes[..4], &bytes[4..]];
    Ok((
        f32::from_le_bytes(priority.try_into().expect("four bytes")),
        u64::from_le_bytes(pages.try_into().expect("eight bytes")),
    ))
}

/// How many visits go to known pages, to URLs that were never fetched, and to pages nobody visited for too long; what one cannot use goes to the others.
pub(super) fn divide(budget: u64, discovery: f64, candidates: [u64; 3]) -> [u64; 3] {
    let [known, unknown, forgotten] = candidates;
    let for_discovery = ((budget as f64 * discovery).round() as u64).min(budget);
    let rest = budget - for_discovery;
    let mut visits = [0, for_discovery.min(unknown), (rest / 2).min(forgotten)];
    visits[REFRESH] = (budget - visits[DISCOVERY] - visits[FORGOTTEN]).min(known);
    for (side, candidates) in [(FORGOTTEN, forgotten), (DISCOVERY, unknown)] {
        let spent: u64 = visits.iter().sum();
        visits[side] = (visits[side] + budget - spent).min(candidates);
    }
    visits
}

/// How urgent a visit is, by how far it is above the last one that is taken: from 1 to 4.
pub(super) fn level_of(priority: f64, least: f64) -> u8 {
    let above = |times: f64| priority > 0.0 && priority >= least.max(1e-30) * times;
    match () {
        () if above(8.0) => 1,
        () if above(4.0) => 2,
        () if above(2.0) => 3,
        () => 4,
    }
}
