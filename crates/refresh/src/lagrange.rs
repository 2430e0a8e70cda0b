//! The Lagrange index: which pages to take in a period when at most so many can be taken.
//!
//! A price for a capture in each period makes the pages independent of each other: each has its own best times to be
//! taken. The prices are those at which about as many pages want to be taken as can be. One page is looked at at a time.

/// What a page does in the periods to come.
#[derive(Debug, Clone, PartialEq)]
pub struct PagePeriods {
    /// The chance of a change in each period.
    pub chance: Vec<f64>,
    /// The mean importance of changes in each period, those without one included.
    pub gain: Vec<f64>,
    /// What one unit of importance of this page is worth.
    pub worth: f64,
}

/// What a capture at the end of a period is expected to earn, by how long ago the last one was.
///
/// Ages begin at one: taken at the end of the period before.
#[derive(Debug, Clone, PartialEq)]
pub struct BeliefTable {
    ages: usize,
    cells: Vec<f64>,
}

impl BeliefTable {
    /// Fills the table of a page; ages beyond `ages` count as `ages`.
    pub fn of(page: &PagePeriods, ages: usize) -> Self {
        let periods = page.gain.len();
        let mut cells = vec![0.0; periods * ages];
        for period in 0..periods {
            for age in 1..=ages {
                // Before the first period nothing is known to have happened.
                let before = match (period, age) {
                    (0, _) | (_, 1) => 0.0,
                    _ => cells[(period - 1) * ages + age - 2],
                };
                cells[period * ages + age - 1] =
                    page.gain[period] + (1.0 - page.chance[period]) * before;
            }
        }
        Self { ages, cells }
    }

    /// Returns what is expected at the end of a period.
    pub fn at(&self, period: usize, age: usize) -> f64 {
        self.cells[period * self.ages + age.min(self.ages) - 1]
    }
}

/// How the prices are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LagrangeSettings {
    /// The greatest age that is told apart.
    pub ages: usize,
    /// How often the prices are mended.
    pub steps: u32,
}

impl Default for LagrangeSettings {
    fn default() -> Self {
        Self {
            ages: 72,
            steps: 40,
        }
    }
}

/// What each decision of a page is worth at given prices.
#[derive(Debug, Clone, PartialEq)]
pub struct LagrangeIndex {
    ages: usize,
    /// What taking the page gains over leaving it, by period and age.
    index: Vec<f64>,
    /// What the page is worth from the first period on, by age.
    value: Vec<f64>,
}

impl LagrangeIndex {
    /// Works back from the last period. Before the first nothing is known of the page.
    pub fn of(page: &PagePeriods, prices: &[f64], ages: usize) -> Self {
        Self::after(page, 0, prices, ages)
    }

    /// Works back from the last period of a page whose first `past` periods are over: they say what a capture earns that
    /// comes after a long time.
    pub fn after(page: &PagePeriods, past: usize, prices: &[f64], ages: usize) -> Self {
        let beliefs = BeliefTable::of(page, ages);
        let periods = prices.len();
        let mut index = vec![0.0; periods * ages];
        let mut value = vec![0.0; ages];
        let mut now = vec![0.0; ages];
        for period in (0..periods).rev() {
            for age in 1..=ages {
                let taken = page.worth * beliefs.at(past + period, age) - prices[period] + value[0];
                let left = value[age.min(ages - 1)];
                index[period * ages + age - 1] = taken - left;
                now[age - 1] = f64::max(taken, left);
            }
            std::mem::swap(&mut value, &mut now);
        }
        Self { ages, index, value }
    }

    /// Returns what taking the page in a period gains over leaving it.
    pub fn at(&self, period: usize, age: usize) -> f64 {
        self.index[period * self.ages + age.min(self.ages) - 1]
    }

    /// Returns what the page is worth at its best.
    pub fn value(&self, age: usize) -> f64 {
        self.value[age.min(self.ages) - 1]
    }

    /// Tells for each period whether the page is best taken, when it was last taken `age` periods ago.
    pub fn path(&self, mut age: usize) -> Vec<bool> {
        let periods = self.index.len() / self.ages;
        (0..periods)
            .map(|period| {
                let taken = self.at(period, age) > 0.0;
                age = if taken { 1 } else { age + 1 };
                taken
            })
            .collect()
    }
}

/// A price for a capture in each period.
#[derive(Debug, Clone, PartialEq)]
pub struct Prices {
    /// By period.
    pub prices: Vec<f64>,
    /// No schedule can be expected to earn more than this.
    pub bound: f64,
}

impl Prices {
    /// Returns what all pages together are worth at given prices: an upper bound of what can be earned.
    pub fn bound_at(pages: &[PagePeriods], prices: &[f64], most: f64, ages: usize) -> f64 {
        let values = pages
            .iter()
            .map(|page| LagrangeIndex::of(page, prices, ages).value(1));
        most * prices.iter().sum::<f64>() + values.sum::<f64>()
    }

    /// Looks for the prices at which `most` pages want to be taken in each period. All were taken in the period before.
    pub fn find(pages: &[PagePeriods], most: f64, settings: LagrangeSettings) -> Self {
        Self::find_after(pages, 0, |_| 1, most, settings)
    }

    /// Looks for the prices of the periods after the first `past` ones of each page; `age_of` says for how many periods a
    /// page, by its number, was not taken.
    pub fn find_after(
        pages: &[PagePeriods],
        past: usize,
        age_of: impl Fn(usize) -> usize,
        most: f64,
        settings: LagrangeSettings,
    ) -> Self {
        let periods = pages
            .first()
            .map_or(0, |page| page.gain.len().saturating_sub(past));
        let mut prices = vec![usual_worth(pages, settings.ages); periods];
        let step = prices.iter().sum::<f64>() / periods.max(1) as f64;
        let mut best = Self {
            prices: prices.clone(),
            bound: f64::INFINITY,
        };
        for number in 0..settings.steps {
            let mut taken = vec![0.0; periods];
            let mut bound = most * prices.iter().sum::<f64>();
            for (at, page) in pages.iter().enumerate() {
                let index = LagrangeIndex::after(page, past, &prices, settings.ages);
                let age = age_of(at).max(1);
                bound += index.value(age);
                for (taken, is_taken) in taken.iter_mut().zip(index.path(age)) {
                    *taken += f64::from(is_taken);
                }
            }
            if bound < best.bound {
                best = Self {
                    prices: prices.clone(),
                    bound,
                };
            }
            let width = step / f64::from(1 + number).sqrt();
            for (price, taken) in prices.iter_mut().zip(taken) {
                let wanted: f64 = (taken - most) / most;
                *price = (*price + width * wanted.clamp(-1.0, 2.0)).max(0.0);
            }
        }
        best
    }
}

/// The median over pages and periods of what a capture earns at the age of eight.
fn usual_worth(pages: &[PagePeriods], ages: usize) -> f64 {
    let mut worths: Vec<f64> = Vec::new();
    for page in pages {
        let beliefs = BeliefTable::of(page, ages);
        let periods = 0..page.gain.len();
        worths.extend(periods.map(|period| page.worth * beliefs.at(period, 8)));
    }
    if worths.is_empty() {
        return 0.0;
    }
    let middle = worths.len() / 2;
    *worths.select_nth_unstable_by(middle, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICES: [f64; 4] = [0.05, 0.05, 0.1, 0.1];

    fn pages() -> [PagePeriods; 3] {
        let page = |chance: [f64; 4], gain: [f64; 4], worth| PagePeriods {
            chance: chance.to_vec(),
            gain: gain.to_vec(),
            worth,
        };
        [
            page([0.5, 0.1, 0.9, 0.5], [0.4, 0.05, 0.6, 0.2], 0.2),
            page([0.2; 4], [0.1; 4], 1.25),
            page([0.9, 0.9, 0.1, 0.1], [0.09, 0.09, 0.01, 0.01], 1.25),
        ]
    }

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
    }

    #[test]
    fn index_and_values_are_those_of_the_oracle() {
        let [one, two, three] = pages();
        let beliefs = BeliefTable::of(&one, 4);
        for (age, expected) in [(1, 0.2), (2, 0.5), (3, 0.5025), (4, 0.5205)] {
            close(beliefs.at(3, age), expected);
        }
        let beliefs = BeliefTable::of(&two, 4);
        for (age, expected) in [(1, 0.1), (2, 0.18), (3, 0.244), (4, 0.2952)] {
            close(beliefs.at(3, age), expected);
        }
        let cells = [
            (0, 1),
            (1, 1),
            (1, 2),
            (2, 1),
            (2, 2),
            (3, 1),
            (3, 2),
            (3, 3),
        ];
        let expected = [
            [-0.001, -0.041, 0.0238, 0.02, 0.0205, -0.06, 0.0, 0.0005],
            [-0.02, -0.005, 0.031, -0.075, -0.055, 0.025, 0.125, 0.205],
            [
                0.05125,
                0.047_625,
                0.049_762_5,
                -0.0875,
                -0.001_125,
                -0.0875,
                -0.07625,
                0.014_875,
            ],
        ];
        let values = [0.052, 0.3, 0.125];
        let paths = ["0110", "0101", "1100"];
        for (at, page) in [&one, &two, &three].into_iter().enumerate() {
            let index = LagrangeIndex::of(page, &PRICES, 4);
            for ((period, age), expected) in cells.into_iter().zip(expected[at]) {
                close(index.at(period, age), expected);
            }
            assert!((index.value(1) - values[at]).abs() < 1e-3, "{index:?}");
            let path: String = index
                .path(1)
                .iter()
                .map(|taken| if *taken { '1' } else { '0' })
                .collect();
            assert_eq!(path, paths[at]);
        }
        close(Prices::bound_at(&pages(), &PRICES, 1.0, 4), 0.777);
    }

    /// What a schedule of one page a period is expected to earn.
    fn earned(pages: &[PagePeriods], schedule: &[usize]) -> f64 {
        let mut ages = [1; 3];
        let mut earned = 0.0;
        for (period, taken) in schedule.iter().enumerate() {
            for (at, page) in pages.iter().enumerate() {
                if at == *taken {
                    earned += page.worth * BeliefTable::of(page, 4).at(period, ages[at]);
                    ages[at] = 1;
                } else {
                    ages[at] += 1;
                }
            }
        }
        earned
    }

    /// Takes in each period the page for which `urge` is greatest.
    fn schedule(
        pages: &[PagePeriods],
        mut urge: impl FnMut(usize, usize, usize) -> f64,
    ) -> Vec<usize> {
        let mut ages = [1; 3];
        (0..4)
            .map(|period| {
                let urges: Vec<f64> = (0..pages.len())
                    .map(|at| urge(at, period, ages[at]))
                    .collect();
                let best = (0..pages.len())
                    .max_by(|a, b| urges[*a].total_cmp(&urges[*b]))
                    .unwrap();
                ages.iter_mut().for_each(|age| *age += 1);
                ages[best] = 1;
                best
            })
            .collect()
    }

    #[test]
    fn the_schedule_by_index_is_the_best_of_all() {
        let pages = pages();
        let indexes: Vec<LagrangeIndex> = pages
            .iter()
            .map(|page| LagrangeIndex::of(page, &PRICES, 4))
            .collect();
        let by_index = schedule(&pages, |at, period, age| indexes[at].at(period, age));
        assert_eq!(by_index, [2, 2, 0, 1]);
        close(earned(&pages, &by_index), 0.7222);
        let best = (0..81)
            .map(|number| {
                let schedule: Vec<usize> = (0..4).map(|at| number / 3usize.pow(at) % 3).collect();
                earned(&pages, &schedule)
            })
            .fold(0.0, f64::max);
        close(best, 0.7222);

        let beliefs: Vec<BeliefTable> = pages.iter().map(|p| BeliefTable::of(p, 4)).collect();
        let by_belief = schedule(&pages, |at, period, age| {
            pages[at].worth * beliefs[at].at(period, age)
        });
        assert_eq!(by_belief, [1, 1, 0, 1]);
        close(earned(&pages, &by_belief), 0.6032);
        let weights = [1.0, 2.0, 1.0];
        let by_pattern = schedule(&pages, |at, period, age| {
            weights[at] * pages[at].gain[period] * age as f64
        });
        assert_eq!(by_pattern, [0, 1, 0, 1]);
        close(earned(&pages, &by_pattern), 0.651);
    }

    #[test]
    fn what_is_past_says_what_a_late_capture_earns() {
        let [one, ..] = pages();
        // The same page twice over: the second half has a past, and a page that was taken just before it is as before.
        let twice = |values: &[f64]| [values, values].concat();
        let known = PagePeriods {
            chance: twice(&one.chance),
            gain: twice(&one.gain),
            worth: one.worth,
        };
        let (fresh, after) = (
            LagrangeIndex::of(&one, &PRICES, 4),
            LagrangeIndex::after(&known, 4, &PRICES, 4),
        );
        close(after.at(0, 1), fresh.at(0, 1));
        // Two periods ago: what the last of the past brought is still there with a chance of one half, and worth a capture.
        assert!(after.at(0, 2) > after.at(0, 1), "{after:?}");
        let settings = LagrangeSettings { ages: 4, steps: 40 };
        let prices = Prices::find_after(&[known], 4, |_| 2, 1.0, settings);
        assert_eq!(prices.prices.len(), 4);
    }

    #[test]
    fn prices_that_are_found_bound_what_can_be_earned() {
        let settings = LagrangeSettings { ages: 4, steps: 40 };
        let found = Prices::find(&pages(), 1.0, settings);
        assert!(found.bound >= 0.7222 - 1e-9, "{found:?}");
        assert!(found.bound < 0.80, "{found:?}");
        assert_eq!(Prices::find(&[], 1.0, settings).bound, 0.0);
    }
}
