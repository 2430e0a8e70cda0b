//! What policies would have caught of a history that is known.
//!
//! Time goes in periods. In each, pages change as the history says; at its end a policy takes as many pages as the budget
//! allows, knowing what was learned before and when it took each page last, and nothing of the history.

use std::collections::BTreeMap;

use crate::completeness::{Completeness, CompletenessOf, PageRecord};
use crate::dice::Dice;
use crate::lagrange::{LagrangeIndex, LagrangeSettings, PagePeriods, Prices};
use crate::policy::{PageValue, RefreshPolicy, SiteValue, shares, signalled_shares, site_priority};

/// A period that brings nothing counts for this much, so that no page is forgotten.
const LEAST_GAIN: f64 = 1e-9;

/// By which rule pages are taken in a period.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CapturePolicy {
    /// Those that are most overdue by the visits that a division of the budget gives them.
    Refresh(RefreshPolicy),
    /// Always the pages that count most.
    MostImportant,
    /// Pages that tell their changes are taken with a chance when they tell one, the others by the least harmonic cost.
    Signalled,
    /// Whole sites, in the order of ρ(S).
    Sites,
    /// Weight and age, multiplied.
    Importance,
    /// What the period usually brings, and age, multiplied.
    Pattern,
    /// Weight, what the period usually brings, and age, multiplied.
    ImportancePattern,
    /// What a capture is expected to earn now.
    Belief,
    /// What taking a page now gains over taking it later.
    Lagrange(LagrangeSettings),
    /// What a capture earns now: no crawler knows it, and none that does not can be better in a period.
    SeesChanges,
}

/// A page of a simulation.
#[derive(Debug, Clone, PartialEq)]
pub struct SimulatedPage {
    /// What the page counts.
    pub weight: f64,
    /// The site it is on, by a number.
    pub site: usize,
    /// It tells when it has changed.
    pub tells: bool,
    /// The importance of the change in each period; 0 where there was none.
    pub changes: Vec<f64>,
    /// What was learned before: the chance of a change in each period.
    pub chance: Vec<f64>,
    /// What was learned before: the mean importance of changes in each period.
    pub gain: Vec<f64>,
}

/// A history, a budget and what is to be judged.
#[derive(Debug, Clone, Copy)]
pub struct Simulation<'a> {
    /// The pages; all have as many periods.
    pub pages: &'a [SimulatedPage],
    /// How many pages can be taken in a period.
    pub most: usize,
    /// What policies that look ahead try to make great.
    pub objective: CompletenessOf,
}

/// What a policy caught.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SimulationScore {
    /// Earned importance, each page by its own total.
    pub complete: f64,
    /// Earned importance by all there was.
    pub complete_in_all: f64,
    /// The share of periods in which the copy is what the page is, by weight.
    pub fresh: f64,
    /// The mean number of changes a copy lacks, by weight.
    pub obsolete: f64,
    /// Captures made.
    pub captures: usize,
}

impl Simulation<'_> {
    /// Runs a policy through all periods.
    pub fn run(&self, policy: CapturePolicy) -> SimulationScore {
        let mut urge = self.urges(policy);
        let worths: Vec<f64> = match policy {
            CapturePolicy::SeesChanges => self.worths(),
            _ => Vec::new(),
        };
        let values = match policy {
            CapturePolicy::Sites => self.values(),
            _ => Vec::new(),
        };
        let periods = self.pages.first().map_or(0, |page| page.changes.len());
        let mut ages = vec![1; self.pages.len()];
        let mut tallies = vec![Tally::default(); self.pages.len()];
        let mut captures = 0;
        for period in 0..periods {
            for (page, tally) in self.pages.iter().zip(&mut tallies) {
                tally.change(page.changes[period]);
            }
            let mut urges: Vec<(f64, usize)> = (0..self.pages.len())
                .map(|at| match worths.get(at) {
                    Some(worth) => (worth * tallies[at].last.unwrap_or(0.0), at),
                    None => (urge(at, period, ages[at]), at),
                })
                .collect();
            // Ties by the number of the page: the same every time.
            urges.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            let taken: Vec<usize> = match policy {
                CapturePolicy::Sites => self.whole_sites(&values, &ages),
                _ => urges.iter().take(self.most).map(|(_, at)| *at).collect(),
            };
            ages.iter_mut().for_each(|age| *age += 1);
            for at in taken {
                tallies[at].capture();
                ages[at] = 1;
                captures += 1;
            }
            for tally in &mut tallies {
                tally.end_of_period();
            }
        }
        self.score(&tallies, periods, captures)
    }

    fn score(&self, tallies: &[Tally], periods: usize, captures: usize) -> SimulationScore {
        let mut completeness = Completeness::default();
        let (mut fresh, mut obsolete, mut weight) = (0.0, 0.0, 0.0);
        for (page, tally) in self.pages.iter().zip(tallies) {
            completeness.add(&PageRecord {
                weight: page.weight,
                earned: tally.earned,
                total: page.changes.iter().sum(),
            });
            weight += page.weight * periods as f64;
            fresh += page.weight * tally.fresh;
            obsolete += page.weight * tally.lacking;
        }
        let mean = |sum: f64| if weight > 0.0 { sum / weight } else { 1.0 };
        SimulationScore {
            complete: completeness.of(CompletenessOf::EachPage),
            complete_in_all: completeness.of(CompletenessOf::Everything),
            fresh: mean(fresh),
            obsolete: if weight > 0.0 { obsolete / weight } else { 0.0 },
            captures,
        }
    }

    /// Returns what says how urgent a page is in a period at an age.
    fn urges(&self, policy: CapturePolicy) -> Box<dyn FnMut(usize, usize, usize) -> f64 + '_> {
        match policy {
            CapturePolicy::Refresh(policy) => {
                let values: Vec<PageValue> = self.values();
                let visits = shares(policy, || values.iter(), self.most as f64, 1.0);
                Box::new(move |at, _, age| visits[at] * age as f64)
            }
            CapturePolicy::MostImportant => {
                let pages = self.pages;
                Box::new(move |at, _, _| pages[at].weight)
            }
            CapturePolicy::Importance => {
                let pages = self.pages;
                Box::new(move |at, _, age| pages[at].weight * age as f64)
            }
            CapturePolicy::Pattern => {
                let pages = self.pages;
                Box::new(move |at, period, age| {
                    crate::urgency(1.0, pages[at].gain[period], age as f64, LEAST_GAIN)
                })
            }
            CapturePolicy::ImportancePattern => {
                let pages = self.pages;
                Box::new(move |at, period, age| {
                    let page = &pages[at];
                    crate::urgency(page.weight, page.gain[period], age as f64, LEAST_GAIN)
                })
            }
            // Their captures are chosen by what happens, or a site at a time.
            CapturePolicy::SeesChanges | CapturePolicy::Sites => Box::new(|_, _, _| 0.0),
            CapturePolicy::Signalled => self.signalled(),
            CapturePolicy::Belief => {
                let pages = self.periods();
                let mut beliefs = vec![0.0; pages.len()];
                Box::new(move |at, period, age| {
                    // Asked once for each page and period, in order.
                    let before = if age == 1 { 0.0 } else { beliefs[at] };
                    let page = &pages[at];
                    beliefs[at] = page.gain[period] + (1.0 - page.chance[period]) * before;
                    page.worth * beliefs[at]
                })
            }
            CapturePolicy::Lagrange(settings) => {
                let pages = self.periods();
                let prices = Prices::find(&pages, self.most as f64, settings);
                let indexes: Vec<LagrangeIndex> = pages
                    .iter()
                    .map(|page| LagrangeIndex::of(page, &prices.prices, settings.ages))
                    .collect();
                Box::new(move |at, period, age| indexes[at].at(period, age))
            }
        }
    }

    /// A page that told a change since it was taken is drawn once for it; those drawn go before all others.
    fn signalled(&self) -> Box<dyn FnMut(usize, usize, usize) -> f64 + '_> {
        let (pages, values) = (self.pages, self.values());
        let chances = signalled_shares(&values, self.most as f64);
        let visits = shares(
            RefreshPolicy::Harmonic,
            || values.iter(),
            self.most as f64,
            1.0,
        );
        let mut dice = Dice::new(1);
        let mut drawn = vec![false; pages.len()];
        Box::new(move |at, period, age| {
            // Asked once for each page and period, in order.
            drawn[at] &= age > 1;
            if pages[at].tells && pages[at].changes[period] > 0.0 {
                drawn[at] |= dice.unit() < chances[at];
            }
            match drawn[at] {
                true => 1e6 + chances[at],
                false => visits[at] * age as f64,
            }
        })
    }

    /// Sites in the order of ρ(S), as long as they fit.
    fn whole_sites(&self, values: &[PageValue], ages: &[usize]) -> Vec<usize> {
        let mut sites: BTreeMap<usize, (Vec<usize>, SiteValue)> = BTreeMap::new();
        for (at, page) in self.pages.iter().enumerate() {
            let empty = || {
                let site = SiteValue {
                    pages: Vec::new(),
                    usual_rate: 0.0,
                    since: 0.0,
                };
                (Vec::new(), site)
            };
            let (members, site) = sites.entry(page.site).or_insert_with(empty);
            members.push(at);
            site.pages.push(values[at]);
            site.since = site.since.max(ages[at] as f64);
        }
        let ranked = sites.into_values();
        let mut ranked: Vec<(f64, Vec<usize>)> = ranked
            .map(|(members, site)| (site_priority(&site), members))
            .collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut taken = Vec::new();
        for (_, members) in ranked {
            if taken.len() + members.len() <= self.most {
                taken.extend(members);
            }
        }
        taken
    }

    /// Importance with the mean of one, and the rate of change in a period, as learned.
    fn values(&self) -> Vec<PageValue> {
        let count = self.pages.len().max(1) as f64;
        let mean = self.pages.iter().map(|page| page.weight).sum::<f64>() / count;
        let value = |page: &SimulatedPage| {
            let chance = page.chance.iter().sum::<f64>() / page.chance.len().max(1) as f64;
            PageValue {
                importance: (page.weight / mean).max(1e-9),
                rate: -(1.0 - chance.clamp(1e-6, 0.999_999)).ln(),
            }
        };
        self.pages.iter().map(value).collect()
    }

    fn periods(&self) -> Vec<PagePeriods> {
        let pages = self.pages.iter().zip(self.worths());
        pages
            .map(|(page, worth)| PagePeriods {
                chance: page.chance.clone(),
                gain: page.gain.clone(),
                worth,
            })
            .collect()
    }

    /// What a unit of importance of each page is worth.
    fn worths(&self) -> Vec<f64> {
        let weights: f64 = self.pages.iter().map(|page| page.weight).sum();
        let worth = |page: &SimulatedPage| {
            let expected = match self.objective {
                CompletenessOf::EachPage => page.gain.iter().sum::<f64>().max(1e-3),
                CompletenessOf::Everything => 1.0,
            };
            page.weight / (expected * weights)
        };
        self.pages.iter().map(worth).collect()
    }
}

/// What has come of a page so far.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    earned: f64,
    /// The importance of the last change, while nobody has taken it.
    last: Option<f64>,
    missed: f64,
    fresh: f64,
    lacking: f64,
}

impl Tally {
    fn change(&mut self, importance: f64) {
        if importance > 0.0 {
            self.last = Some(importance);
            self.missed += 1.0;
        }
    }

    fn capture(&mut self) {
        self.earned += self.last.take().unwrap_or(0.0);
        self.missed = 0.0;
    }

    fn end_of_period(&mut self) {
        self.fresh += f64::from(self.missed == 0.0);
        self.lacking += self.missed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BeliefTable, Dice};

    /// The belief as it is carried on from period to period.
    fn running_belief(page: &PagePeriods, age: usize, period: usize) -> f64 {
        let first = period + 1 - age;
        (first..=period).fold(0.0, |before, at| {
            page.gain[at] + (1.0 - page.chance[at]) * before
        })
    }

    /// Pages of one weight, each with its news at an hour of its own; an hour later it is gone.
    fn pages(count: usize, periods: usize) -> Vec<SimulatedPage> {
        let mut dice = Dice::new(3);
        (0..count)
            .map(|number| {
                let news = number % 24;
                let (mut chance, mut gain, mut changes) = (Vec::new(), Vec::new(), Vec::new());
                for period in 0..periods {
                    let (chance_now, importance) = match period % 24 {
                        hour if hour == news => (0.9, 0.8),
                        hour if hour == (news + 1) % 24 => (0.9, 0.05),
                        _ => (0.05, 0.05),
                    };
                    chance.push(chance_now);
                    gain.push(chance_now * importance);
                    changes.push(f64::from(dice.unit() < chance_now) * importance);
                }
                SimulatedPage {
                    weight: 1.0,
                    site: number % 20,
                    tells: true,
                    changes,
                    chance,
                    gain,
                }
            })
            .collect()
    }

    #[test]
    fn who_knows_the_hours_catches_more_than_who_does_not() {
        let pages = pages(60, 24 * 10);
        let simulation = Simulation {
            pages: &pages,
            most: 3,
            objective: CompletenessOf::EachPage,
        };
        let uniform = simulation.run(CapturePolicy::Refresh(RefreshPolicy::Uniform));
        let pattern = simulation.run(CapturePolicy::ImportancePattern);
        let belief = simulation.run(CapturePolicy::Belief);
        let settings = LagrangeSettings {
            ages: 48,
            steps: 20,
        };
        let lagrange = simulation.run(CapturePolicy::Lagrange(settings));
        for score in [uniform, pattern, belief, lagrange] {
            assert_eq!(score.captures, 3 * 240);
            assert!((0.0..=1.0).contains(&score.complete), "{score:?}");
        }
        assert!(
            belief.complete > uniform.complete + 0.05,
            "{belief:?} {uniform:?}"
        );
        assert!(
            lagrange.complete >= belief.complete - 0.01,
            "{lagrange:?} {belief:?}"
        );
        assert!(uniform.obsolete > 0.0 && uniform.fresh < 1.0, "{uniform:?}");
        assert_eq!(
            belief,
            simulation.run(CapturePolicy::Belief),
            "the same each time"
        );
    }

    #[test]
    fn pages_that_tell_their_changes_and_whole_sites_are_within_the_budget() {
        let mut pages = pages(60, 24 * 10);
        let run = |pages: &[SimulatedPage], policy| {
            let simulation = Simulation {
                pages,
                most: 4,
                objective: CompletenessOf::EachPage,
            };
            simulation.run(policy)
        };
        let harmonic = run(&pages, CapturePolicy::Refresh(RefreshPolicy::Harmonic));
        let signalled = run(&pages, CapturePolicy::Signalled);
        assert!(
            signalled.fresh > harmonic.fresh,
            "{signalled:?} {harmonic:?}"
        );
        assert_eq!(signalled.captures, 4 * 240);
        // A site has three pages: there is room for one, and none is taken in part.
        assert_eq!(run(&pages, CapturePolicy::Sites).captures, 3 * 240);
        for page in &mut pages {
            page.tells = false;
        }
        assert_eq!(run(&pages, CapturePolicy::Signalled), harmonic);
    }

    #[test]
    fn with_room_for_all_everything_is_caught() {
        let pages = pages(9, 48);
        let simulation = Simulation {
            pages: &pages,
            most: 9,
            objective: CompletenessOf::Everything,
        };
        let score = simulation.run(CapturePolicy::Belief);
        assert_eq!(
            (score.complete, score.fresh, score.obsolete),
            (1.0, 1.0, 0.0)
        );
        let empty = Simulation {
            pages: &[],
            ..simulation
        };
        assert_eq!(empty.run(CapturePolicy::Belief).captures, 0);
    }

    #[test]
    fn the_running_belief_is_that_of_the_table() {
        let mut dice = Dice::new(8);
        let page = PagePeriods {
            chance: (0..20).map(|_| dice.unit()).collect(),
            gain: (0..20).map(|_| dice.unit()).collect(),
            worth: 1.0,
        };
        let table = BeliefTable::of(&page, 20);
        for period in 0..20 {
            for age in 1..=period + 1 {
                let running = running_belief(&page, age, period);
                assert!((table.at(period, age) - running).abs() < 1e-12);
            }
        }
    }
}
