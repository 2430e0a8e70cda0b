//! When to fetch a page again.
//!
//! Numbers in, numbers out: no clock, no files, no settings. [`ChangeRate`] estimates how often a page changes from what
//! its captures saw, [`RefreshPolicy`] divides a budget of visits between pages, [`DayPattern`] and [`CapturePolicy`] say which
//! pages to take in a period of the day, and [`Completeness`] how much of what happened was caught.
//!
//! The formulas are those of the papers as corrected in `docs/planning.md`; where a paper prints another form, that form is
//! kept beside it for comparison, under the word *printed*.

mod change_rate;
mod completeness;
mod dice;
mod lagrange;
mod pattern;
mod policy;
mod simulation;

pub use change_rate::{
    ChangeRate, DeclaredChanges, IntervalHistogram, RateForm, RateLimits, regular_rate,
};
pub use completeness::{Completeness, CompletenessOf, PageRecord};
pub use dice::Dice;
pub use lagrange::{BeliefTable, LagrangeIndex, LagrangeSettings, PagePeriods, Prices};
pub use pattern::{DayPattern, IndexingOrder, indexed_versions, urgency};
pub use policy::{
    PageClass, PageValue, RefreshPolicy, RefreshScore, SiteValue, price_of_classes, shares,
    signalled_shares, site_priority,
};
pub use simulation::{CapturePolicy, SimulatedPage, Simulation, SimulationScore};
