//! By which rules a run chooses: what is noted of each candidate, and what its priority is. No lists and no files.

use ecluse_refresh::{LagrangeIndex, LagrangeSettings, PagePeriods, Prices, price_of_classes};
use ecluse_scope::Limit;

use super::DAY;
use super::entry::{BEGINS_SITE, DISCOVERY, Entry, FORGOTTEN, IS_ANNOUNCED, NOBODY, REFRESH};
use super::ranking::Ranking;
use super::survey::{PageSample, SampledPage, Survey, number_of};
use crate::candidates::Candidate;
use crate::hours::{HoursKnown, PageHours};
use crate::refresh::{RefreshDefinition, VisitPolicy};
use crate::visits::VisitReason;

/// Periods that the Lagrange index looks ahead and tells ages apart, at most.
const AHEAD: usize = 168;
const AGES: usize = 72;
/// Steps in which its prices are found.
const STEPS: u32 = 40;

/// What a run's choice depends on beside the lists.
#[derive(Clone, Copy)]
pub(super) struct RunRules<'a> {
    pub(super) refresh: &'a RefreshDefinition,
    pub(super) now: i64,
    /// Days between this run and the next.
    pub(super) days: f64,
}

impl RunRules<'_> {
    /// Sums up a candidate.
    pub(super) fn note(&self, survey: &mut Survey, candidate: &Candidate, entry: &Entry) {
        survey.candidates[usize::from(entry.side)] += 1;
        if candidate.reason == VisitReason::Refresh {
            survey.pages += 1;
            survey.ranks += f64::from(entry.rank);
        }
        if usize::from(entry.side) == REFRESH {
            survey.classes.add(f64::from(entry.rank), candidate.rate);
        }
        if self.refresh.policy == VisitPolicy::Lagrange {
            self.sample(candidate, entry, &mut survey.sample);
        }
    }

    /// Returns how urgent a candidate is among those of its side.
    pub(super) fn priority(
        &self,
        ranking: &Ranking,
        hours: Option<&HoursKnown>,
        entry: &Entry,
    ) -> f32 {
        match usize::from(entry.side) {
            REFRESH => match (&ranking.lagrange, hours) {
                (Some(prices), Some(hours)) => self.index(ranking, prices, &hours.hours(), entry),
                (Some(_), None) => 0.0,
                (None, _) => ranking.priority(entry),
            },
            FORGOTTEN => entry.age,
            DISCOVERY => (entry.relevance.max(0.0) + entry.rank).min(f32::MAX),
            _ => f32::NEG_INFINITY,
        }
    }

    /// Returns what is kept of a candidate.
    pub(super) fn entry(&self, candidate: &Candidate) -> Entry {
        let age = candidate.age_days(self.now);
        let longest = match self.refresh.longest_interval {
            Limit::At(longest) => longest.get().as_secs_f64() / DAY,
            Limit::None => f64::INFINITY,
        };
        let side = match candidate.reason {
            VisitReason::Discovery | VisitReason::Perimeter => DISCOVERY,
            // Captured after the run was due.
            VisitReason::Refresh if age <= 0.0 => NOBODY,
            // It is asked for once in the longest interval: nobody knows when it was asked for last.
            VisitReason::Refresh if candidate.is_gone => match self.is_turn(candidate, longest) {
                true => FORGOTTEN,
                false => NOBODY,
            },
            VisitReason::Refresh if age >= longest => FORGOTTEN,
            VisitReason::Refresh => REFRESH,
        };
        let mut flags = 0;
        if candidate.begins_site {
            flags |= BEGINS_SITE;
        }
        if candidate.is_announced() {
            flags |= IS_ANNOUNCED;
        }
        let (mut hour, mut week) = (0.0, 0.0);
        if let Some(hours) = candidate.hours.as_ref().map(HoursKnown::hours) {
            let seconds = (age * DAY) as i64;
            hour = match self.refresh.policy {
                VisitPolicy::ImportancePattern => hours.gain(self.now),
                VisitPolicy::Belief => hours.ripeness(self.now, seconds, self.period()),
                // The Lagrange index asks for hours once the prices are known.
                _ => 0.0,
            };
            week = hours.week();
        }
        if self.refresh.policy == VisitPolicy::Signalled {
            // By chance, but the same for the same run.
            let drawn = number_of(&format!("{} {}", self.now, candidate.surt));
            hour = drawn as f64 / u64::MAX as f64;
        }
        let relevance = match candidate.reason {
            // Before all that is only known from links.
            VisitReason::Perimeter => f32::MAX,
            VisitReason::Discovery | VisitReason::Refresh => candidate.relevance,
        };
        Entry {
            side: side as u8,
            flags,
            rank: candidate.rank,
            relevance,
            rate: candidate.rate as f32,
            age: age as f32,
            hour: hour as f32,
            week: week as f32,
        }
    }

    /// Tells whether it is the turn of a page that is asked for once in so many days.
    fn is_turn(&self, candidate: &Candidate, longest: f64) -> bool {
        if !longest.is_finite() {
            return false;
        }
        let runs = (longest / self.days).max(1.0) as u64;
        let run = (self.now as f64 / (self.days * DAY)).max(0.0) as u64;
        number_of(&candidate.surt) % runs == run % runs
    }

    fn sample(&self, candidate: &Candidate, entry: &Entry, sample: &mut PageSample) {
        let number = number_of(&candidate.surt);
        let Some(hours) = candidate.hours.as_ref().filter(|_| sample.offers(number)) else {
            return;
        };
        let (_, ahead, ages) = self.horizon();
        let periods = hours
            .hours()
            .smoothed()
            .periods(self.now, self.period(), ages, ahead);
        let page = SampledPage {
            rank: entry.rank,
            age: f64::from(entry.age),
            week: f64::from(entry.week),
            rate: f64::from(entry.rate),
            periods,
        };
        sample.add(number, &candidate.surt, page);
    }

    /// The seconds between two runs.
    fn period(&self) -> i64 {
        (self.days * DAY).round().max(60.0) as i64
    }

    /// Days, periods ahead, and ages that are told apart.
    fn horizon(&self) -> (f64, usize, usize) {
        let ahead = ((7.0 / self.days) as usize).clamp(8, AHEAD);
        (ahead as f64 * self.days, ahead, AGES.min(2 * ahead))
    }

    /// Finds what the priorities follow from.
    pub(super) fn ranking(&self, survey: &Survey) -> Ranking {
        let mean = match survey.ranks > 0.0 {
            true => survey.ranks / survey.pages as f64,
            false => 0.0,
        };
        let mut ranking = Ranking {
            policy: self.refresh.policy,
            objective: self.refresh.objective.into(),
            mean_rank: mean,
            least: self.refresh.least_importance,
            days: self.days,
            division: None,
            signals: 0.0,
            lagrange: None,
        };
        let visits = (1.0 - self.refresh.discovery) * self.refresh.budget as f64;
        if let Some(division) = self.refresh.policy.division() {
            let classes = survey
                .classes
                .values(|rank| ranking.importance(rank), self.days);
            let price = price_of_classes(division, &classes, visits.max(1e-9), 1.0);
            let importances: f64 = classes
                .iter()
                .map(|class| class.pages * class.value.importance)
                .sum();
            ranking.division = Some((division, price));
            ranking.signals = visits / importances.max(1e-300);
        }
        if self.refresh.policy == VisitPolicy::Lagrange && !survey.sample.pages.is_empty() {
            let (_, _, ages) = self.horizon();
            let sample = || survey.sample.pages.values();
            let pages: Vec<PagePeriods> = sample()
                .map(|page| PagePeriods {
                    worth: ranking.worth(page.rank, page.week, page.rate),
                    ..page.periods.clone()
                })
                .collect();
            let age: Vec<usize> = sample().map(|page| ranking.periods(page.age)).collect();
            let share = pages.len() as f64 / survey.candidates[REFRESH].max(1) as f64;
            let settings = LagrangeSettings { ages, steps: STEPS };
            let most = (visits * share.min(1.0)).max(1e-6);
            let prices = Prices::find_after(&pages, ages, |at| age[at], most, settings);
            ranking.lagrange = Some(prices.prices);
        }
        ranking
    }

    /// What a visit now gains over one at a later run.
    fn index(&self, ranking: &Ranking, prices: &[f64], hours: &PageHours, entry: &Entry) -> f32 {
        let (_, ahead, ages) = self.horizon();
        let smooth = hours.smoothed();
        let mut page = smooth.periods(self.now, self.period(), ages, ahead);
        page.worth = ranking.worth(entry.rank, f64::from(entry.week), f64::from(entry.rate));
        let age = ranking.periods(f64::from(entry.age)).min(ages);
        let index = LagrangeIndex::after(&page, ages, prices, ages).at(0, age);
        // Ages are whole runs in the index; what this visit finds is known by the hour.
        let by_runs = (ages + 1 - age..=ages).fold(0.0, |found, at| {
            page.gain[at] + (1.0 - page.chance[at]) * found
        });
        let by_hours = smooth.belief(self.now, (f64::from(entry.age) * DAY) as i64);
        (index + page.worth * (by_hours - by_runs)) as f32
    }
}
