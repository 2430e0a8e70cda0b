//! At which times of the day a page changes, and how much.
//!
//! A day has as many periods as the caller likes; weekdays and weekends are two patterns.

/// What a page is like in each period of a day.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DayPattern {
    /// The mean importance of changes in each period, days without one included.
    pub gain: Vec<f64>,
    /// In which share of the days it changed in each period.
    pub chance: Vec<f64>,
    /// From how many days it was learned.
    pub days: u32,
}

impl DayPattern {
    /// Learns from days; a period of which nothing is known (before the first version ever seen) is `None`.
    pub fn learn(periods: usize, days: &[Vec<Option<f64>>]) -> Self {
        let mut pattern = Self {
            gain: vec![0.0; periods],
            chance: vec![0.0; periods],
            days: u32::try_from(days.len()).unwrap_or(u32::MAX),
        };
        for period in 0..periods {
            let known = days.iter().filter_map(|day| day[period]);
            let (count, sum, changed) = known.fold((0.0, 0.0, 0.0), |(n, sum, changed), gain| {
                (n + 1.0, sum + gain, changed + f64::from(gain > 0.0))
            });
            if count > 0.0 {
                pattern.gain[period] = sum / count;
                pattern.chance[period] = changed / count;
            }
        }
        pattern
    }

    /// Returns the importance from which on a version is shown: the mean of the periods.
    pub fn threshold(&self) -> f64 {
        mean(&self.gain)
    }

    /// Returns the pattern smoothed over neighbouring periods and drawn to its mean, the more so the fewer days it was
    /// learned from. For the Lagrange index; the belief is better without.
    pub fn smoothed(&self) -> Self {
        let days = f64::from(self.days);
        let smooth = |values: &[f64]| -> Vec<f64> {
            let (count, mean) = (values.len(), mean(values));
            (0..count)
                .map(|at| {
                    let before = values[(at + count - 1) % count];
                    let after = values[(at + 1) % count];
                    let near = values[at] / 2.0 + before / 4.0 + after / 4.0;
                    (days * near + 2.0 * mean) / (days + 2.0)
                })
                .collect()
        };
        let chance = smooth(&self.chance);
        let gain = smooth(&self.gain);
        Self {
            gain: gain.into_iter().map(|gain| gain.max(1e-6)).collect(),
            chance: chance.into_iter().map(|p| p.clamp(1e-4, 0.99)).collect(),
            days: self.days,
        }
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Whether a version's change counts before the threshold is asked, or after, as the paper prints it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexingOrder {
    /// Count, then ask.
    Corrected,
    /// Ask of the change alone and of what was gathered before it, then count: a version late.
    Printed,
}

/// Tells of each version whether it is shown: those at which the change since the last one shown has come to the threshold.
pub fn indexed_versions(changes: &[f64], threshold: f64, order: IndexingOrder) -> Vec<bool> {
    // Sums of tenths are a little less than they should be.
    let enough = threshold - 1e-9;
    let mut gathered = 0.0;
    let judge = |change: &f64| match order {
        IndexingOrder::Corrected => {
            gathered += change;
            let shown = gathered >= enough;
            if shown {
                gathered = 0.0;
            }
            shown
        }
        IndexingOrder::Printed => {
            let shown = gathered >= enough || *change >= enough;
            if shown {
                gathered = 0.0;
            } else {
                gathered += change;
            }
            shown
        }
    };
    changes.iter().map(judge).collect()
}

/// Returns the urgency of a page by its pattern alone: its weight, what the period brings, and how long ago it was taken.
/// A period that brings nothing starves no page: `least` counts in its place.
pub fn urgency(weight: f64, gain: f64, age: f64, least: f64) -> f64 {
    weight * gain.max(least) * age
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAINS: [f64; 6] = [0.1, 0.3, 0.6, 0.42, 0.37, 0.83];

    #[test]
    fn the_threshold_is_the_mean_of_the_periods() {
        let pattern = DayPattern {
            gain: GAINS.to_vec(),
            ..DayPattern::default()
        };
        assert!((pattern.threshold() - 0.436_667).abs() < 1e-6);
        assert!((urgency(1.0, 0.83, 4.0, 0.0) - 3.32).abs() < 1e-9);
        assert!(urgency(1.0, 0.0, 4.0, 1e-6) > 0.0);
    }

    #[test]
    fn versions_are_shown_when_enough_has_changed() {
        let shown = |changes: &[f64], threshold, order| -> Vec<usize> {
            let shown = indexed_versions(changes, threshold, order);
            let numbered = shown.into_iter().zip(1..);
            numbered
                .filter_map(|(shown, at)| shown.then_some(at))
                .collect()
        };
        let tenths = [0.1; 12];
        assert_eq!(shown(&tenths, 0.3, IndexingOrder::Corrected), [3, 6, 9, 12]);
        assert_eq!(shown(&tenths, 0.3, IndexingOrder::Printed), [4, 8, 12]);
        assert_eq!(
            shown(&GAINS, 0.436_667, IndexingOrder::Corrected),
            [3, 5, 6]
        );
        assert_eq!(shown(&GAINS, 0.436_667, IndexingOrder::Printed), [3, 6]);
    }

    #[test]
    fn a_period_of_which_nothing_is_known_is_not_one_without_change() {
        let days = [vec![None, Some(0.4)], vec![Some(0.2), Some(0.0)]];
        let pattern = DayPattern::learn(2, &days);
        assert_eq!(pattern.gain, [0.2, 0.2]);
        assert_eq!(pattern.chance, [1.0, 0.5]);
        let smooth = pattern.smoothed();
        assert!(smooth.chance.iter().all(|chance| *chance <= 0.99));
        assert!((smooth.gain[0] - 0.2).abs() < 1e-12);
    }
}
