//! How much of what happened on a page was caught.
//!
//! A capture earns the importance of the last change before it, once. Changes that were overwritten before anybody came are
//! lost; a second capture of the same version earns nothing.

/// By what the importance that was earned is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletenessOf {
    /// Each page by its own total, and then the weighted mean of the pages.
    EachPage,
    /// All that was earned by all there was.
    Everything,
}

/// What happened on a page, and what was caught of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PageRecord {
    /// How much the page counts.
    pub weight: f64,
    /// The importance of the changes that were caught.
    pub earned: f64,
    /// The importance of all changes.
    pub total: f64,
}

impl PageRecord {
    /// Follows a page through its changes and captures, each in the order of time; a change at the moment of a capture is
    /// caught by it. The first version is no change.
    pub fn of(weight: f64, changes: &[(f64, f64)], captures: &[f64]) -> Self {
        let (mut earned, mut next, mut last) = (0.0, 0, None);
        for capture in captures {
            while let Some((at, importance)) = changes.get(next)
                && at <= capture
            {
                last = Some(*importance);
                next += 1;
            }
            earned += last.take().unwrap_or(0.0);
        }
        Self {
            weight,
            earned,
            total: changes.iter().map(|(_, importance)| importance).sum(),
        }
    }
}

/// The completeness of many pages, summed up one by one.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Completeness {
    weights: f64,
    weighted: f64,
    earned: f64,
    total: f64,
}

impl Completeness {
    /// Adds a page. One on which nothing happened is complete.
    pub fn add(&mut self, page: &PageRecord) {
        let share = if page.total > 0.0 {
            page.earned / page.total
        } else {
            1.0
        };
        self.weights += page.weight;
        self.weighted += page.weight * share;
        self.earned += page.weight * page.earned;
        self.total += page.weight * page.total;
    }

    /// Returns the completeness, from 0 to 1; 1 where there was nothing to catch.
    pub fn of(&self, objective: CompletenessOf) -> f64 {
        let (part, whole) = match objective {
            CompletenessOf::EachPage => (self.weighted, self.weights),
            CompletenessOf::Everything => (self.earned, self.total),
        };
        if whole > 0.0 { part / whole } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_paper_comes_out_as_corrected() {
        let page = |earned, total| PageRecord {
            weight: 1.0,
            earned,
            total,
        };
        let mut both = Completeness::default();
        for page in [page(0.13, 0.63), page(0.45, 0.55)] {
            both.add(&page);
        }
        assert!((both.of(CompletenessOf::EachPage) - 0.512_266).abs() < 1e-6);
        let all = (0.13 + 0.45) / (0.63 + 0.55);
        assert!((both.of(CompletenessOf::Everything) - all).abs() < 1e-12);
    }

    #[test]
    fn a_capture_earns_the_last_change_once() {
        let changes = [(1.0, 0.1), (2.0, 0.2), (5.0, 0.4), (9.0, 0.8)];
        let record = PageRecord::of(1.0, &changes, &[0.0, 3.0, 4.0, 5.0]);
        assert!((record.earned - 0.6).abs() < 1e-12, "{record:?}");
        assert!((record.total - 1.5).abs() < 1e-12, "{record:?}");
        let still = PageRecord::of(1.0, &[], &[1.0]);
        let mut complete = Completeness::default();
        complete.add(&still);
        assert_eq!(complete.of(CompletenessOf::EachPage), 1.0);
        assert_eq!(Completeness::default().of(CompletenessOf::Everything), 1.0);
    }
}
