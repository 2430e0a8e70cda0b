//! How often a page changes, from what its captures saw.
//!
//! Between two captures a page has changed or it has not; how often it changed in between nobody saw. So the rate is the
//! one that makes what was seen most likely, for changes that come independently of each other.

/// Whether the likelihood is taken as a product, as it must be, or as a sum, as the paper prints it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateForm {
    /// The product of the chances of all intervals.
    Corrected,
    /// The sum: kept to be compared with.
    Printed,
}

/// Within which rates a plan can be made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateLimits {
    /// The least rate: a page is never forgotten for ever.
    pub least: f64,
    /// The greatest rate.
    pub greatest: f64,
}

/// What was seen of a page's changes, in one unit of time throughout.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChangeRate {
    /// The lengths of the intervals in which it changed.
    pub changed: Vec<f64>,
    /// The sum of the intervals in which it did not.
    pub unchanged: f64,
}

impl ChangeRate {
    /// Returns the rate that makes what was seen most likely: 0 when no change was seen, infinite when nothing else was.
    pub fn estimate(&self, form: RateForm) -> f64 {
        let weighted = self.changed.iter().map(|length| (*length, 1.0));
        solve(weighted, self.unchanged, form)
    }

    /// Adds one change and one interval without, each of the length `prior`, so that every page can be planned with.
    pub fn smoothed(mut self, prior: f64) -> Self {
        self.changed.push(prior);
        self.unchanged += prior;
        self
    }

    /// Returns the rate from the times between a change and the capture that saw it, where a believable `Last-Modified`
    /// tells them. The printed form leaves out the time without changes.
    pub fn estimate_by_ages(&self, ages: f64, form: RateForm) -> f64 {
        let changes = self.changed.len() as f64;
        match form {
            RateForm::Corrected => changes / (ages + self.unchanged),
            RateForm::Printed => changes / ages,
        }
    }
}

impl RateLimits {
    /// Returns the rate within the limits.
    pub fn clamp(&self, rate: f64) -> f64 {
        rate.clamp(self.least, self.greatest)
    }
}

/// Returns the rate of a page that was looked at `looks` times, `spacing` apart, and had changed `changes` times.
pub fn regular_rate(changes: u32, looks: u32, spacing: f64) -> f64 {
    let unchanged = f64::from(looks.saturating_sub(changes));
    -((unchanged + 0.5) / (f64::from(looks) + 0.5)).ln() / spacing
}

/// The lengths of changed intervals by powers of two: sixteen counts in the place of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IntervalHistogram {
    /// How many intervals have a length from 2^k up to 2^(k+1) units.
    pub counts: [u16; 16],
}

impl IntervalHistogram {
    /// Counts an interval of so many units.
    pub fn add(&mut self, length: f64) {
        let bin = length.max(1.0).log2().floor().min(15.0);
        let count = &mut self.counts[bin as usize];
        *count = count.saturating_add(1);
    }

    /// Estimates the rate as [`ChangeRate::estimate`] does, each interval as long as the middle of its bin.
    pub fn estimate(&self, unchanged: f64) -> f64 {
        let bins = self.counts.iter().zip(0..16);
        let weighted = bins.map(|(count, bin)| (2f64.powi(bin) * 2f64.sqrt(), f64::from(*count)));
        solve(
            weighted.filter(|(_, count)| *count > 0.0),
            unchanged,
            RateForm::Corrected,
        )
    }

    /// Estimates the rate from these intervals, from changes whose moment was declared, and from the time without changes,
    /// with one change and one interval without, each of the length `prior`, added. Each declared change is as likely as its moment,
    /// rate·e^(−rate·age): with such changes only it is [`ChangeRate::estimate_by_ages`], with none [`Self::estimate`].
    pub fn estimate_all(&self, unchanged: f64, declared: &DeclaredChanges, prior: f64) -> f64 {
        let bins = self.counts.iter().zip(0..);
        let weighted = bins.map(|(count, bin)| (2f64.powi(bin) * 2f64.sqrt(), f64::from(*count)));
        let weighted = weighted
            .chain([(prior, 1.0)])
            .filter(|(length, count)| *count > 0.0 && *length > 0.0);
        let quiet = unchanged + declared.ages + prior;
        let slope = |rate: f64| {
            let gained = |(length, count): (f64, f64)| count * length / expm1(length * rate);
            weighted.clone().map(gained).sum::<f64>() + declared.changes as f64 / rate - quiet
        };
        let changes: f64 = weighted.clone().map(|(_, count)| count).sum();
        zero_of(slope, changes + declared.changes as f64, quiet)
    }
}

/// Changes whose moment was declared.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DeclaredChanges {
    /// How many.
    pub changes: u64,
    /// The times between each and the capture that saw it, summed up.
    pub ages: f64,
}

/// Finds where the likelihood is greatest: its slope falls, so bisection finds the zero.
fn solve(changed: impl Iterator<Item = (f64, f64)> + Clone, unchanged: f64, form: RateForm) -> f64 {
    let changes: f64 = changed.clone().map(|(_, count)| count).sum();
    let slope = |rate: f64| match form {
        RateForm::Corrected => {
            let gained = |(length, count): (f64, f64)| count * length / expm1(length * rate);
            changed.clone().map(gained).sum::<f64>() - unchanged
        }
        RateForm::Printed => {
            let (mut above, mut below) = (0.0, 0.0);
            for (length, count) in changed.clone() {
                let kept = (-length * rate).exp();
                above += count * length * kept;
                below += count * (1.0 - kept);
            }
            above / below - unchanged
        }
    };
    zero_of(slope, changes, unchanged)
}

/// Finds where a slope that falls is zero; 0 without changes, infinite where there is nothing else.
fn zero_of(slope: impl Fn(f64) -> f64, changes: f64, unchanged: f64) -> f64 {
    if changes == 0.0 {
        return 0.0;
    }
    if unchanged <= 0.0 {
        return f64::INFINITY;
    }
    let (mut low, mut high) = (0.0, changes / unchanged);
    while slope(high) > 0.0 {
        (low, high) = (high, high * 2.0);
    }
    for _ in 0..200 {
        let middle = low + (high - low) / 2.0;
        if slope(middle) > 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    low + (high - low) / 2.0
}

/// As `exp_m1`, and large where that overflows.
fn expm1(x: f64) -> f64 {
    x.min(700.0).exp_m1()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dice;

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
    }

    fn seen(changed: &[f64], unchanged: f64) -> ChangeRate {
        ChangeRate {
            changed: changed.to_vec(),
            unchanged,
        }
    }

    #[test]
    fn rates_are_those_of_the_oracle() {
        close(
            seen(&[1.0; 3], 7.0).estimate(RateForm::Corrected),
            (10f64 / 7.0).ln(),
        );
        let uneven = seen(&[1.0, 2.0, 4.0], 5.0);
        close(uneven.estimate(RateForm::Corrected), 0.382_096);
        close(uneven.estimate(RateForm::Printed), 0.158_297);
        close(
            uneven.smoothed(0.5).estimate(RateForm::Corrected),
            0.473_437,
        );
        let smoothed = |changed: &[f64], unchanged| {
            let smoothed = seen(changed, unchanged).smoothed(0.5);
            smoothed.estimate(RateForm::Corrected)
        };
        close(smoothed(&[], 10.0), 0.093_040);
        close(smoothed(&[1.0; 10], 0.0), 3.303_841);
        close(smoothed(&[], 0.0), std::f64::consts::LN_2 / 0.5);
        close(regular_rate(3, 10, 1.0), 0.336_472);
    }

    #[test]
    fn declared_moments_and_intervals_make_one_estimate() {
        let none = DeclaredChanges::default();
        let mut bins = IntervalHistogram::default();
        for length in [3.0, 20.0, 20.0, 70.0] {
            bins.add(length);
        }
        // Without declared moments it is that of the intervals, with the prior among them.
        let mut listed = seen(&[12.0], 200.0 + 12.0);
        for (length, count) in [(2.0, 1), (16.0, 2), (64.0, 1)] {
            for _ in 0..count {
                listed.changed.push(length * 2f64.sqrt());
            }
        }
        close(
            bins.estimate_all(200.0, &none, 12.0),
            listed.estimate(RateForm::Corrected),
        );
        // With nothing but declared moments it is that by ages.
        let declared = DeclaredChanges {
            changes: 3,
            ages: 5.0,
        };
        let empty = IntervalHistogram::default();
        close(
            empty.estimate_all(7.0, &declared, 0.0),
            seen(&[1.0; 3], 7.0).estimate_by_ages(5.0, RateForm::Corrected),
        );
        close(
            empty.estimate_all(0.0, &none, 0.5),
            std::f64::consts::LN_2 / 0.5,
        );
    }

    #[test]
    fn what_was_never_seen_has_no_rate_to_plan_with() {
        assert_eq!(seen(&[], 3.0).estimate(RateForm::Corrected), 0.0);
        assert_eq!(
            seen(&[3.0], 0.0).estimate(RateForm::Corrected),
            f64::INFINITY
        );
        assert_eq!(regular_rate(0, 10, 1.0), 0.0);
        let limits = RateLimits {
            least: 0.001,
            greatest: 1.0,
        };
        assert_eq!(limits.clamp(0.0), 0.001);
        assert_eq!(limits.clamp(f64::INFINITY), 1.0);
        // Intervals so long that the exponential of one would overflow.
        assert!(seen(&[1e6], 1.0).estimate(RateForm::Corrected) > 0.0);
    }

    /// A page that changes at a known rate and is looked at now and then: what estimates make of it.
    fn looked_at(dice: &mut Dice, rate: f64, looks: usize) -> (ChangeRate, f64, IntervalHistogram) {
        let (mut seen, mut ages, mut bins) =
            (ChangeRate::default(), 0.0, IntervalHistogram::default());
        for _ in 0..looks {
            let length = dice.between(0.5, 3.0);
            // From the look backwards to the last change before it.
            let age = dice.wait(rate);
            if age < length {
                seen.changed.push(length);
                ages += age;
                bins.add(length * 16.0);
            } else {
                seen.unchanged += length;
            }
        }
        (seen, ages, bins)
    }

    #[test]
    fn estimates_are_hardly_biased_and_the_printed_one_is() {
        let (rate, runs) = (0.3, 4000);
        let mut dice = Dice::new(9);
        let (mut product, mut by_ages, mut printed, mut binned) = (0.0, 0.0, 0.0, 0.0);
        for _ in 0..runs {
            let (seen, ages, bins) = looked_at(&mut dice, rate, 40);
            product += seen.estimate(RateForm::Corrected);
            by_ages += seen.estimate_by_ages(ages, RateForm::Corrected);
            printed += seen.estimate_by_ages(ages, RateForm::Printed);
            binned += bins.estimate(seen.unchanged * 16.0) * 16.0;
        }
        let mean = |sum: f64| sum / f64::from(runs);
        assert!(
            (mean(product) / rate - 1.0).abs() < 0.03,
            "{}",
            mean(product)
        );
        assert!(
            (mean(by_ages) / rate - 1.0).abs() < 0.03,
            "{}",
            mean(by_ages)
        );
        assert!(
            (mean(binned) / mean(product) - 1.0).abs() < 0.03,
            "{}",
            mean(binned)
        );
        assert!(mean(printed) > 3.0 * rate, "{}", mean(printed));
    }
}
