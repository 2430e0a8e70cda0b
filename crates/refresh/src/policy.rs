//! How a budget of visits is divided between pages.
//!
//! Every policy but the plainest is a price for a visit: a page gets as many visits as are worth more than the price, and
//! the price is the one at which the budget is spent. A price is a number, so pages need not be in memory: they are read
//! once for each step of the search.

/// What a page is worth and how often it changes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PageValue {
    /// Its importance; over all pages the mean is one.
    pub importance: f64,
    /// Changes in a unit of time.
    pub rate: f64,
}

/// By which rule the budget is divided.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RefreshPolicy {
    /// As many visits for each.
    Uniform,
    /// In proportion to the rate of change: what most crawlers come to.
    ByChange,
    /// In proportion to the importance.
    ByImportance,
    /// Least obsolescence: t = K/√(rλ).
    Obsolescence,
    /// The same as printed, which makes the total of a cycle least and not the mean: t = K/∛(rλ).
    PrintedObsolescence,
    /// Obsolescence with the weight `obsolete`, and the share of time a copy is stale with the weight `stale`.
    Mixed {
        /// Weight of the mean number of changes missed.
        obsolete: f64,
        /// Weight of the share of time.
        stale: f64,
    },
    /// Greatest freshness with visits at fixed intervals; leaves out what changes too often.
    Freshness,
    /// Greatest freshness with visits at random moments; leaves out too.
    MemorylessFreshness,
    /// Least harmonic cost −Σ r ln(f/(f+λ)): leaves nobody out.
    Harmonic,
}

impl RefreshPolicy {
    /// The mixed penalty with the weights that lose least on each measure.
    pub const DEFAULT: Self = Self::Mixed {
        obsolete: 0.1,
        stale: 1.0,
    };

    /// Returns how many visits a page gets at a price; the dearer, the fewer.
    pub fn visits_at(self, page: PageValue, price: f64) -> f64 {
        let PageValue { importance, rate } = page;
        match self {
            Self::Uniform => 1.0 / price,
            Self::ByChange => rate / price,
            Self::ByImportance => importance / price,
            Self::Obsolescence => (importance * rate).sqrt() / price,
            Self::PrintedObsolescence => (importance * rate).cbrt() / price,
            Self::Mixed { obsolete, stale } => visits_mixed(page, obsolete, stale, price),
            Self::Freshness => visits_mixed(page, 0.0, 1.0, price),
            Self::MemorylessFreshness => ((importance * rate / price).sqrt() - rate).max(0.0),
            Self::Harmonic => {
                let root = (rate * rate + 4.0 * importance * rate / price).sqrt();
                // The difference of two numbers that are nearly equal when visits are few.
                2.0 * importance * rate / price / (rate + root)
            }
        }
    }
}

/// Solves r·[αλ/(2f²) + β(1−(1+x)e^−x)/λ] = price with x = λ/f, for f; the left side falls as f grows.
fn visits_mixed(page: PageValue, obsolete: f64, stale: f64, price: f64) -> f64 {
    let PageValue { importance, rate } = page;
    if rate <= 0.0 || importance <= 0.0 {
        return 0.0;
    }
    let gain = |visits: f64| {
        let x = rate / visits;
        // 1−(1+x)e^−x, without the loss of digits near 0.
        let stays = if x < 1e-4 {
            x * x / 2.0
        } else {
            1.0 - (1.0 + x) * (-x).exp()
        };
        importance * (obsolete * rate / (2.0 * visits * visits) + stale * stays / rate)
    };
    // Without obsolescence a visit to what changes all the time gains r/λ at most.
    if obsolete == 0.0 && price * rate / importance >= stale {
        return 0.0;
    }
    // 1−(1+x)e^−x lies between 0 and x²/2.
    let visits_for = |weight: f64| (importance * rate * weight / (2.0 * price)).sqrt();
    let most = visits_for(obsolete + stale);
    let (mut low, mut high) = (visits_for(obsolete).max(most * 1e-9), most);
    for _ in 0..64 {
        let middle = (low * high).sqrt();
        if gain(middle) > price {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low * high).sqrt()
}

/// Divides `budget` visits in a unit of time between pages, at most `most` for each.
///
/// Pages that would get more than `most` get that, and what they leave goes to the others (water-filling): it is the
/// same price with a cap. `pages` is read once for each step of the search; nothing of it is kept but what is returned.
pub fn shares<'a, Pages>(
    policy: RefreshPolicy,
    pages: impl Fn() -> Pages,
    budget: f64,
    most: f64,
) -> Vec<f64>
where
    Pages: Iterator<Item = &'a PageValue>,
{
    let price = price(policy, &pages, budget, most);
    let capped = |page: &PageValue| policy.visits_at(*page, price).min(most);
    pages().map(capped).collect()
}

/// Finds the price at which the budget is spent and never overspent.
fn price<'a, Pages>(
    policy: RefreshPolicy,
    pages: &impl Fn() -> Pages,
    budget: f64,
    most: f64,
) -> f64
where
    Pages: Iterator<Item = &'a PageValue>,
{
    price_at(
        |price| {
            let capped = |page: &PageValue| policy.visits_at(*page, price).min(most);
            pages().map(capped).sum()
        },
        budget,
    )
}

/// Finds the lowest price at which no more than the budget is spent; the dearer, the less is.
fn price_at(spent: impl Fn(f64) -> f64, budget: f64) -> f64 {
    let (mut low, mut high) = (1e-200f64.ln(), 1e200f64.ln());
    for _ in 0..80 {
        let middle = low + (high - low) / 2.0;
        if spent(middle.exp()) > budget {
            low = middle;
        } else {
            high = middle;
        }
    }
    high.exp()
}

/// Pages that are nearly alike: how many, and what they are on average.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PageClass {
    /// What one of them is.
    pub value: PageValue,
    /// How many there are.
    pub pages: f64,
}

/// Finds the price at which `budget` visits in a unit of time are spent on classes of pages, at most `most` for each page.
/// [`RefreshPolicy::visits_at`] says what a page gets at it.
pub fn price_of_classes(
    policy: RefreshPolicy,
    classes: &[PageClass],
    budget: f64,
    most: f64,
) -> f64 {
    price_at(
        |price| {
            let visits =
                |class: &PageClass| class.pages * policy.visits_at(class.value, price).min(most);
            classes.iter().map(visits).sum()
        },
        budget,
    )
}

/// Returns with which chance a page is fetched when it says that it has changed, so that `budget` fetches are made in a
/// unit of time.
pub fn signalled_shares(pages: &[PageValue], budget: f64) -> Vec<f64> {
    let mut chances = vec![None; pages.len()];
    let mut left = budget;
    loop {
        let open = || {
            pages
                .iter()
                .enumerate()
                .filter(|(at, _)| chances[*at].is_none())
        };
        let importance: f64 = open().map(|(_, page)| page.importance).sum();
        let chance = |page: &PageValue| left * page.importance / (page.rate * importance);
        let sure: Vec<usize> = open()
            .filter(|(_, page)| chance(page) >= 1.0)
            .map(|(at, _)| at)
            .collect();
        if sure.is_empty() {
            let chances = chances.iter().zip(pages);
            return chances
                .map(|(known, page)| known.unwrap_or_else(|| chance(page).max(0.0)))
                .collect();
        }
        for at in sure {
            chances[at] = Some(1.0);
            left -= pages[at].rate;
        }
    }
}

/// How good a division is, by the three measures there are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RefreshScore {
    /// The share of time in which a copy is what the page is, weighted by importance, with visits at fixed intervals.
    pub freshness: f64,
    /// The same with visits at random moments.
    pub memoryless_freshness: f64,
    /// The mean number of changes a copy lacks, weighted by importance, summed over all pages.
    pub obsolescence: f64,
    /// −Σ r ln(f/(f+λ)).
    pub harmonic: f64,
    /// The share of pages that get no visit.
    pub starved: f64,
}

impl RefreshScore {
    /// Scores a division of visits.
    pub fn of(pages: &[PageValue], visits: &[f64]) -> Self {
        let (mut fresh, mut memoryless, mut weight) = (0.0, 0.0, 0.0);
        let (mut obsolete, mut harmonic, mut starved) = (0.0, 0.0, 0.0);
        for (page, visits) in pages.iter().zip(visits) {
            let PageValue { importance, rate } = *page;
            weight += importance;
            if *visits <= 0.0 {
                starved += 1.0;
            }
            memoryless += match rate > 0.0 {
                true => importance * visits / (visits + rate),
                false => importance,
            };
            let x = rate / visits;
            fresh += importance * if x > 0.0 { -(-x).exp_m1() / x } else { 1.0 };
            obsolete += importance * x / 2.0;
            harmonic += importance * x.ln_1p();
        }
        Self {
            freshness: fresh / weight,
            memoryless_freshness: memoryless / weight,
            obsolescence: obsolete,
            harmonic,
            starved: starved / pages.len() as f64,
        }
    }
}

/// What is known of a site that is fetched as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct SiteValue {
    /// Importance and changes in a unit of time of each page known.
    pub pages: Vec<PageValue>,
    /// The rate of a site of which no page is known.
    pub usual_rate: f64,
    /// How long ago it was fetched.
    pub since: f64,
}

/// Returns ρ(S): what fetching a whole site gains for each of its pages. Sites are fetched in the order of it.
pub fn site_priority(site: &SiteValue) -> f64 {
    let importance: f64 = site.pages.iter().map(|page| page.importance).sum();
    let pages = site.pages.len().max(1) as f64;
    let rate = if site.pages.is_empty() {
        site.usual_rate
    } else if importance > 0.0 {
        let weighted = site.pages.iter().map(|page| page.rate * page.importance);
        weighted.sum::<f64>() / importance
    } else {
        site.pages.iter().map(|page| page.rate).sum::<f64>() / pages
    };
    importance * site.since * rate / pages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dice;

    fn close(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        for (one, other) in found.iter().zip(expected) {
            assert!((one - other).abs() < 1e-6, "{found:?}, not {expected:?}");
        }
    }

    fn pages(rates: &[f64], importances: &[f64]) -> Vec<PageValue> {
        let both = rates.iter().zip(importances);
        both.map(|(rate, importance)| PageValue {
            importance: *importance,
            rate: *rate,
        })
        .collect()
    }

    fn visits(policy: RefreshPolicy, pages: &[PageValue], budget: f64) -> Vec<f64> {
        shares(policy, || pages.iter(), budget, f64::INFINITY)
    }

    #[test]
    fn visits_are_those_of_the_oracle() {
        let alike = pages(&[1.0, 4.0, 9.0], &[1.0; 3]);
        let best = visits(RefreshPolicy::Obsolescence, &alike, 2.0);
        close(&best, &[1.0 / 3.0, 1.0 / 1.5, 1.0]);
        let obsolescence = |visits: &[f64]| RefreshScore::of(&alike, visits).obsolescence;
        close(&[obsolescence(&best)], &[9.0]);
        for policy in [RefreshPolicy::Uniform, RefreshPolicy::ByChange] {
            close(&[obsolescence(&visits(policy, &alike, 2.0))], &[10.5]);
        }

        let pages = pages(&[1.0, 4.0, 9.0], &[2.0, 0.5, 0.5]);
        let best = visits(RefreshPolicy::Obsolescence, &pages, 2.0);
        close(&best, &[1.0 / 1.75, 1.0 / 1.75, 1.0 / 1.166_666_666]);
        close(&[RefreshScore::of(&pages, &best).obsolescence], &[6.125]);
        let alone = RefreshPolicy::Mixed {
            obsolete: 1.0,
            stale: 0.0,
        };
        close(&visits(alone, &pages, 2.0), &best);
        let mixed = visits(RefreshPolicy::DEFAULT, &pages, 2.0);
        close(&mixed, &[0.962_334, 0.430_183, 0.607_482]);
        let harmonic = visits(RefreshPolicy::Harmonic, &pages, 2.0);
        close(&harmonic, &[1.032_846, 0.469_740, 0.497_413]);
        close(
            &[RefreshScore::of(&pages, &harmonic).harmonic],
            &[3.955_367],
        );
        for policy in [RefreshPolicy::Freshness, RefreshPolicy::MemorylessFreshness] {
            close(&visits(policy, &pages, 2.0), &[2.0, 0.0, 0.0]);
        }
        let score = RefreshScore::of(&pages, &[2.0, 0.0, 0.0]);
        close(&[score.freshness], &[0.524_626]);
        close(&[score.memoryless_freshness], &[0.444_444_444]);
        let printed = visits(RefreshPolicy::PrintedObsolescence, &alike, 2.0);
        let times: Vec<f64> = printed.iter().map(|visits| 1.0 / visits).collect();
        close(&times, &[2.333_742, 1.470_166, 1.121_946]);
    }

    #[test]
    fn who_tells_its_changes_is_fetched_by_chance() {
        let importances = [2.0, 0.5, 0.5];
        let chances = signalled_shares(&pages(&[1.0, 4.0, 9.0], &importances), 2.0);
        close(&chances, &[1.0, 0.125, 0.055_555_555]);
        let chances = signalled_shares(&pages(&[0.2, 4.0, 9.0], &importances), 2.0);
        close(&chances, &[1.0, 0.225, 0.1]);
    }

    #[test]
    fn what_one_page_cannot_use_goes_to_the_others() {
        let pages = pages(&[1.0, 4.0, 100.0], &[1.0; 3]);
        let filled = shares(RefreshPolicy::Obsolescence, || pages.iter(), 2.0, 1.0);
        close(&filled, &[1.0 / 3.0, 2.0 / 3.0, 1.0]);
        let unclamped = visits(RefreshPolicy::Obsolescence, &pages, 2.0);
        assert!((unclamped[2] - 1.538).abs() < 1e-3, "{unclamped:?}");
    }

    #[test]
    fn classes_of_pages_have_the_price_of_their_pages() {
        let pages = population();
        let alone: Vec<PageClass> = pages
            .iter()
            .map(|value| PageClass {
                value: *value,
                pages: 1.0,
            })
            .collect();
        for policy in [RefreshPolicy::DEFAULT, RefreshPolicy::Harmonic] {
            let price = price_of_classes(policy, &alone, 200.0, 1.0);
            let found: Vec<f64> = pages
                .iter()
                .map(|page| policy.visits_at(*page, price).min(1.0))
                .collect();
            close(&found, &shares(policy, || pages.iter(), 200.0, 1.0));
        }
    }

    #[test]
    fn a_site_is_worth_what_its_pages_are() {
        let site = SiteValue {
            pages: pages(&[12.0, 52.0], &[0.4, 0.1]),
            usual_rate: 1.0,
            since: 30.0,
        };
        close(&[site_priority(&site)], &[150.0]);
        let unknown = SiteValue {
            pages: Vec::new(),
            ..site.clone()
        };
        assert_eq!(site_priority(&unknown), 0.0);
        let worthless = SiteValue {
            pages: pages(&[1.0], &[0.0]),
            ..site
        };
        assert_eq!(site_priority(&worthless), 0.0);
    }

    /// 4,000 pages as on the web: most change rarely, few matter much.
    fn population() -> Vec<PageValue> {
        let mut dice = Dice::new(7);
        let mut pages: Vec<PageValue> = (0..4000)
            .map(|_| PageValue {
                rate: (dice.normal() * 1.8).exp() / 30.0,
                importance: dice.between(0.0, 1.0).max(1e-9).powf(-1.0 / 1.6),
            })
            .collect();
        let mean = pages.iter().map(|page| page.importance).sum::<f64>() / 4000.0;
        pages.iter_mut().for_each(|page| page.importance /= mean);
        pages
    }

    #[test]
    fn each_form_wins_its_own_measure_and_no_budget_is_overspent() {
        let pages = population();
        let policies = [
            RefreshPolicy::Uniform,
            RefreshPolicy::ByChange,
            RefreshPolicy::ByImportance,
            RefreshPolicy::Obsolescence,
            RefreshPolicy::DEFAULT,
            RefreshPolicy::Freshness,
            RefreshPolicy::MemorylessFreshness,
            RefreshPolicy::Harmonic,
        ];
        for budget in [0.01, 0.05, 0.2].map(|visits| visits * 4000.0) {
            let mut scores = Vec::new();
            for policy in policies {
                let visits = visits(policy, &pages, budget);
                let spent: f64 = visits.iter().sum();
                assert!(spent <= budget * (1.0 + 1e-12), "{policy:?}: {spent}");
                assert!(spent > budget * 0.999_999, "{policy:?}: {spent}");
                scores.push((policy, RefreshScore::of(&pages, &visits)));
            }
            let best = |measure: &dyn Fn(&RefreshScore) -> f64| {
                let (policy, _) = scores
                    .iter()
                    .min_by(|a, b| measure(&a.1).total_cmp(&measure(&b.1)))
                    .unwrap();
                *policy
            };
            assert_eq!(
                best(&|score| score.obsolescence),
                RefreshPolicy::Obsolescence
            );
            assert_eq!(best(&|score| score.harmonic), RefreshPolicy::Harmonic);
            assert_eq!(best(&|score| -score.freshness), RefreshPolicy::Freshness);
            // The least there can be, by its closed form.
            let roots: f64 = pages
                .iter()
                .map(|page| (page.importance * page.rate).sqrt())
                .sum();
            let least = roots * roots / (2.0 * budget);
            let found = scores[3].1.obsolescence;
            assert!((found / least - 1.0).abs() < 1e-3, "{found}, not {least}");
            // An archive forgets nobody: the default starves none, and is near the best on both measures.
            let mixed = scores[4].1;
            assert_eq!(mixed.starved, 0.0);
            assert!(mixed.harmonic < scores[7].1.harmonic * 1.06, "{mixed:?}");
            assert!(mixed.obsolescence < scores[7].1.obsolescence, "{mixed:?}");
            assert!(scores[5].1.starved > 0.01);
        }
    }
}
