//! Randomness that a seed repeats.

use std::time::Duration;

/// The generator splitmix64.
#[derive(Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Returns a number below `limit`, which is not zero.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// Tells whether something of these odds happens.
    pub(crate) fn happens(&mut self, odds: f64) -> bool {
        ((self.next() >> 11) as f64 / (1u64 << 53) as f64) < odds
    }

    pub(crate) fn pick<'a, Thing>(&mut self, things: &'a [Thing]) -> &'a Thing {
        &things[self.below(things.len())]
    }

    /// Returns a time between two, in milliseconds.
    pub(crate) fn millis(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(least + self.below((most - least + 1) as usize) as u64)
    }
}

/// Returns a seed nobody chose.
pub(crate) fn any_seed() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = since.map_or(0, |since| since.as_nanos() as u64);
    Dice::new(nanos ^ u64::from(std::process::id())).next() >> 32
}
