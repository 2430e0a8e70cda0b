//! What the priorities of a run follow from, for pages and for whole sites.

use ecluse_changes::ArchiveTime;
use ecluse_refresh::{CompletenessOf, PageValue, RefreshPolicy};

use super::DAY;
use super::entry::{Entry, IS_ANNOUNCED, NOBODY};
use crate::refresh::VisitPolicy;

/// What the priorities of a run follow from.
#[derive(Debug, Clone)]
pub(super) struct Ranking {
    pub(super) policy: VisitPolicy,
    pub(super) objective: CompletenessOf,
    pub(super) mean_rank: f64,
    pub(super) least: f64,
    pub(super) days: f64,
    /// The rule and the price of a visit.
    pub(super) division: Option<(RefreshPolicy, f64)>,
    /// Visits for a unit of importance.
    pub(super) signals: f64,
    /// The price of a visit at this run and those after it.
    pub(super) lagrange: Option<Vec<f64>>,
}

/// The days in which completeness is looked at: as many as patterns are learned from.
const LOOKED_AT: f64 = 28.0;

impl Ranking {
    /// Importance by the mean; pages of which no rank is known are like the mean where none has one.
    pub(super) fn importance(&self, rank: f64) -> f64 {
        match self.mean_rank > 0.0 {
            true => (rank / self.mean_rank).max(self.least),
            false => 1.0,
        }
    }

    /// What a unit of importance of changes on a page is worth, when a week brings so much and it changes so many times a day.
    ///
    /// Where each page counts by its own changes, it is a share of all that the page brings. One that changes less than once in the
    /// days that are looked at brings at most one change there: that is as rare as it gets, and not worth the more the rarer it is.
    pub(super) fn worth(&self, rank: f32, week: f64, rate: f64) -> f64 {
        let importance = self.importance(f64::from(rank));
        let rarer = 1.0 / (LOOKED_AT * rate).clamp(1e-6, 1.0);
        match self.objective {
            CompletenessOf::EachPage => importance / (week * rarer).max(1e-9),
            CompletenessOf::Everything => importance,
        }
    }

    /// How many runs ago a page was last visited.
    pub(super) fn periods(&self, age_days: f64) -> usize {
        ((age_days / self.days).round() as usize).max(1)
    }

    /// How many visits a page gets at each run.
    pub(super) fn visits(&self, entry: &Entry) -> Option<f64> {
        let (division, price) = self.division?;
        let value = PageValue {
            importance: self.importance(f64::from(entry.rank)),
            rate: f64::from(entry.rate) * self.days,
        };
        Some(division.visits_at(value, price).min(1.0))
    }

    pub(super) fn priority(&self, entry: &Entry) -> f32 {
        let importance = self.importance(f64::from(entry.rank));
        let runs = f64::from(entry.age) / self.days;
        let overdue = self.visits(entry).map(|visits| visits * runs);
        let priority = match self.policy {
            VisitPolicy::Signalled if entry.flags & IS_ANNOUNCED != 0 => {
                let rate = (f64::from(entry.rate) * self.days).max(1e-12);
                let chance = (self.signals * importance / rate).min(1.0);
                match f64::from(entry.hour) < chance {
                    true => 1e6 + chance,
                    false => overdue.unwrap_or(0.0),
                }
            }
            VisitPolicy::ImportancePattern => {
                let hours = f64::from(entry.age) * 24.0;
                ecluse_refresh::urgency(importance, f64::from(entry.hour), hours, 1e-9)
            }
            VisitPolicy::Belief | VisitPolicy::Lagrange => {
                let worth = self.worth(entry.rank, f64::from(entry.week), f64::from(entry.rate));
                worth * f64::from(entry.hour)
            }
            VisitPolicy::Uniform
            | VisitPolicy::ByChange
            | VisitPolicy::Obsolescence
            | VisitPolicy::Mixed
            | VisitPolicy::Harmonic
            | VisitPolicy::Signalled
            | VisitPolicy::Sites => overdue.unwrap_or(0.0),
        };
        priority as f32
    }

    /// Returns since when a page is due, where visits are divided.
    pub(super) fn due_since(
        &self,
        entry: &Entry,
        last: Option<ArchiveTime>,
    ) -> Option<ArchiveTime> {
        let visits = self.visits(entry).filter(|visits| *visits > 0.0)?;
        let after = (self.days / visits).min(36_500.0);
        let is_due = f64::from(entry.age) >= after;
        let last = last.filter(|_| is_due)?;
        ArchiveTime::from_seconds(last.seconds() + (after * DAY) as i64)
    }
}

/// What is summed up of a site.
#[derive(Debug, Default)]
pub(super) struct SiteSums {
    pub(super) pages: u64,
    pub(super) importance: f64,
    pub(super) weighted: f64,
    pub(super) rates: f64,
    pub(super) since: f64,
}

impl SiteSums {
    pub(super) fn add(&mut self, entry: &Entry, ranking: &Ranking) {
        if usize::from(entry.side) == NOBODY {
            return;
        }
        let importance = ranking.importance(f64::from(entry.rank));
        self.pages += 1;
        self.importance += importance;
        self.weighted += importance * f64::from(entry.rate);
        self.rates += f64::from(entry.rate);
        self.since = self.since.max(f64::from(entry.age)).max(ranking.days);
    }

    /// ρ(S), as [`ecluse_refresh::site_priority`] has it, from sums.
    pub(super) fn priority(&self) -> f64 {
        let pages = self.pages.max(1) as f64;
        let rate = match self.importance > 0.0 {
            true => self.weighted / self.importance,
            false => self.rates / pages,
        };
        self.importance * self.since * rate / pages
    }
}
