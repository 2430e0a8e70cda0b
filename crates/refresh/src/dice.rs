//! Numbers by chance for simulations: the same for the same seed, on every machine.

/// A small generator (SplitMix64).
#[derive(Debug, Clone)]
pub struct Dice {
    state: u64,
}

impl Dice {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns a number from 0 up to 1.
    pub fn unit(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a number from `low` up to `high`.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + self.unit() * (high - low)
    }

    /// Returns how long the next change takes at a rate.
    pub fn wait(&mut self, rate: f64) -> f64 {
        -(1.0 - self.unit()).ln() / rate
    }

    /// Returns a number of the normal distribution.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spread_as_they_should_be() {
        let mut dice = Dice::new(1);
        let (mut units, mut waits, mut squares) = (0.0, 0.0, 0.0);
        for _ in 0..100_000 {
            units += dice.unit();
            waits += dice.wait(4.0);
            squares += dice.normal().powi(2);
        }
        assert!((units / 1e5 - 0.5).abs() < 0.01, "{units}");
        assert!((waits / 1e5 - 0.25).abs() < 0.01, "{waits}");
        assert!((squares / 1e5 - 1.0).abs() < 0.03, "{squares}");
        assert_eq!(Dice::new(5).unit(), Dice::new(5).unit());
    }
}
