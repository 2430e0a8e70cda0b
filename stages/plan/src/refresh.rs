//! `[refresh]` of a harvest: that its runs visit pages the archive knows, and by which rule.

use ecluse_config::Span;
use ecluse_refresh::{CompletenessOf, RefreshPolicy};
use ecluse_scope::Limit;
use serde::{Deserialize, Serialize};

/// What `[refresh]` of a definition may say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct RefreshDefinition {
    /// By which rule pages are chosen.
    pub policy: VisitPolicy,
    /// Visits of a run.
    pub budget: u64,
    /// The share of them for URLs that were never fetched.
    pub discovery: f64,
    /// No page counts for less than this share of the mean.
    pub least_importance: f64,
    /// A page that was not visited for so long comes first, in half of the visits that are not for discovery.
    pub longest_interval: Limit<Span>,
    /// What rules that look at the hours try to make great.
    pub objective: VisitObjective,
}

impl Default for RefreshDefinition {
    fn default() -> Self {
        Self {
            policy: VisitPolicy::Mixed,
            budget: 0,
            discovery: 0.2,
            least_importance: 0.01,
            longest_interval: Limit::At(Span::secs(365 * 86_400)),
            objective: VisitObjective::Page,
        }
    }
}

/// By which rule pages are visited again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VisitPolicy {
    /// Each as often as the others.
    Uniform,
    /// In proportion to their rates of change.
    ByChange,
    /// So that copies lack the fewest changes.
    Obsolescence,
    /// So that copies lack few changes and are seldom stale.
    #[default]
    Mixed,
    /// By the least harmonic cost.
    Harmonic,
    /// Pages that announced a change by chance, the others by the least harmonic cost.
    Signalled,
    /// Whole sites, one after the other.
    Sites,
    /// By importance, what the hour brings, and time since.
    ImportancePattern,
    /// By what a visit is expected to find now, less what waiting would add.
    Belief,
    /// By what a visit now gains over one later.
    Lagrange,
}

impl VisitPolicy {
    /// Returns the rule by which visits are divided, where it is one.
    pub(crate) fn division(self) -> Option<RefreshPolicy> {
        match self {
            Self::Uniform => Some(RefreshPolicy::Uniform),
            Self::ByChange => Some(RefreshPolicy::ByChange),
            Self::Obsolescence => Some(RefreshPolicy::Obsolescence),
            Self::Mixed => Some(RefreshPolicy::DEFAULT),
            Self::Harmonic | Self::Signalled => Some(RefreshPolicy::Harmonic),
            Self::Sites | Self::ImportancePattern | Self::Belief | Self::Lagrange => None,
        }
    }

    /// Tells whether it looks at the hours at which pages change.
    pub(crate) fn is_by_hours(self) -> bool {
        matches!(
            self,
            Self::ImportancePattern | Self::Belief | Self::Lagrange
        )
    }

    /// Returns the word of the definition.
    pub fn word(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::ByChange => "by-change",
            Self::Obsolescence => "obsolescence",
            Self::Mixed => "mixed",
            Self::Harmonic => "harmonic",
            Self::Signalled => "signalled",
            Self::Sites => "sites",
            Self::ImportancePattern => "importance-pattern",
            Self::Belief => "belief",
            Self::Lagrange => "lagrange",
        }
    }
}

/// What is to be great: what is caught of each page, or in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VisitObjective {
    /// Each page counts by the share of its own changes that is caught.
    #[default]
    Page,
    /// All changes count, whatever page they are on.
    All,
}

impl From<VisitObjective> for CompletenessOf {
    fn from(objective: VisitObjective) -> Self {
        match objective {
            VisitObjective::Page => Self::EachPage,
            VisitObjective::All => Self::Everything,
        }
    }
}

impl RefreshDefinition {
    /// Returns what is wrong with it: the key, and what to say of it.
    pub(crate) fn faults(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        if self.budget == 0 {
            faults.push((
                "budget",
                "is not set: how many visits has a run?".to_owned(),
            ));
        }
        if !(0.0..=1.0).contains(&self.discovery) {
            let message = format!("{} is no share from 0 to 1", self.discovery);
            faults.push(("discovery", message));
        }
        if !(0.0..=1.0).contains(&self.least_importance) || self.least_importance == 0.0 {
            let message = "must be above 0 and at most 1: a page that counts for nothing is never visited again";
            faults.push(("least-importance", message.to_owned()));
        }
        if let Limit::At(longest) = self.longest_interval
            && longest.get().as_secs() < 3600
        {
            faults.push(("longest-interval", "is less than an hour".to_owned()));
        }
        faults
    }
}
