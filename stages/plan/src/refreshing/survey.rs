//! What is summed up when the lists are first read: classes of pages by importance and rate, and a sample of them.

use std::collections::BTreeMap;

use ecluse_refresh::{PageClass, PagePeriods, PageValue};

/// Pages from which the prices of the Lagrange index are found.
const SAMPLE: usize = 2_000;
/// Octaves of importance and of rates that are told apart, and parts of each.
const IMPORTANCES: usize = 48;
const RATES: usize = 40;
const PARTS: usize = 4;

/// What was summed up when the lists were first read.
pub(super) struct Survey {
    pub(super) pages: u64,
    pub(super) ranks: f64,
    pub(super) candidates: [u64; 4],
    pub(super) classes: ValueClasses,
    pub(super) sample: PageSample,
}

impl Survey {
    pub(super) fn new() -> Self {
        Self {
            pages: 0,
            ranks: 0.0,
            candidates: [0; 4],
            classes: ValueClasses::new(),
            sample: PageSample::default(),
        }
    }
}

/// Counts pages by importance and rate, so that a price is found without reading them again.
///
/// Importance is told by octaves of the rank, since the mean is not known while they are read.
pub(super) struct ValueClasses {
    pub(super) cells: Vec<[f64; 3]>,
}

impl ValueClasses {
    pub(super) fn new() -> Self {
        Self {
            cells: vec![[0.0; 3]; IMPORTANCES * RATES * PARTS * PARTS],
        }
    }

    pub(super) fn add(&mut self, rank: f64, rate: f64) {
        let part = |value: f64, least: f64, count: usize| {
            let at = (value.max(1e-300).log2() - least) * PARTS as f64;
            at.clamp(0.0, (count * PARTS - 1) as f64) as usize
        };
        let row = part(rank, -40.0, IMPORTANCES);
        let cell = &mut self.cells[row * RATES * PARTS + part(rate, -16.0, RATES)];
        *cell = [cell[0] + 1.0, cell[1] + rank, cell[2] + rate];
    }

    /// Returns the classes with importance by the mean and rates by the time between two runs.
    pub(super) fn values(&self, importance: impl Fn(f64) -> f64, days: f64) -> Vec<PageClass> {
        let full = self.cells.iter().filter(|cell| cell[0] > 0.0);
        full.map(|[pages, rank, rate]| PageClass {
            value: PageValue {
                importance: importance(rank / pages),
                rate: rate / pages * days,
            },
            pages: *pages,
        })
        .collect()
    }
}

/// Some of the pages, always the same ones: those whose keys have the lowest digests.
#[derive(Default)]
pub(super) struct PageSample {
    pub(super) pages: BTreeMap<(u64, String), SampledPage>,
}

pub(super) struct SampledPage {
    pub(super) rank: f32,
    pub(super) age: f64,
    pub(super) week: f64,
    /// Changes a day.
    pub(super) rate: f64,
    pub(super) periods: PagePeriods,
}

impl PageSample {
    pub(super) fn offers(&self, number: u64) -> bool {
        self.pages.len() < SAMPLE
            || self
                .pages
                .last_key_value()
                .is_some_and(|((greatest, _), _)| number < *greatest)
    }

    pub(super) fn add(&mut self, number: u64, surt: &str, page: SampledPage) {
        self.pages.insert((number, surt.to_owned()), page);
        if self.pages.len() > SAMPLE {
            self.pages.pop_last();
        }
    }
}

/// A number that depends on a text alone.
pub(super) fn number_of(text: &str) -> u64 {
    // FNV-1a, and its bits mixed.
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in text.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}
