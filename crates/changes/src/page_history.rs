//! What the captures of a page, followed one by one in the order of time, tell of its changes.

use ecluse_refresh::{DeclaredChanges, IntervalHistogram, RateLimits};

use crate::archive_time::ArchiveTime;
use crate::dates::declared_change;
use crate::page_changes::{PageChanges, PatternOf};
use crate::pattern_sums::{PagePattern, PatternSums};
use crate::version_change::VersionChange;

/// Hours of a day: the unit of intervals is an hour.
const HOURS: f64 = 24.0;
/// Rates that can be planned with, in changes a day: once in ten years, once an hour.
const LIMITS: RateLimits = RateLimits {
    least: 1.0 / 3650.0,
    greatest: HOURS,
};

/// How histories are read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HistorySettings {
    /// Periods of a day.
    pub periods: usize,
    /// One change and one time without of so many days are taken for granted.
    pub prior_days: f64,
    /// Two captures further apart tell nothing of the time of the day.
    pub pattern_gap_days: f64,
    /// So many changes, seen with captures near enough, make a pattern of a page's own.
    pub pattern_changes: u64,
    /// What a change counts that could not be weighed.
    pub unweighed: f64,
}

/// A page being followed through its captures.
#[derive(Debug, Clone)]
pub struct PageHistory {
    settings: HistorySettings,
    page: PageChanges,
    sums: PatternSums,
    /// Changes that a pattern was learned from.
    pattern_changes: u64,
    weights: f64,
    weighed: u64,
}

impl PageHistory {
    /// Begins with the first version of a page.
    pub fn begin(settings: HistorySettings, url: &str, version: &VersionChange) -> Self {
        let mut history = Self {
            settings,
            sums: PatternSums::new(settings.periods),
            pattern_changes: 0,
            weights: 0.0,
            weighed: 0,
            page: PageChanges {
                surt: version.surt.clone(),
                url: url.to_owned(),
                first: version.time,
                last: version.time,
                looks: 1,
                changes: 0,
                last_change: None,
                quiet_days: 0.0,
                declared_days: 0.0,
                declared_changes: 0,
                intervals: IntervalHistogram::default(),
                rate: 0.0,
                change_weight: None,
                text_weight: None,
                status: None,
                etag: None,
                last_modified: None,
                signal: None,
                simhash: None,
                pattern: None,
                words: None,
            },
        };
        if let Some(declared) = declared_change(version.last_modified.as_deref(), version.time) {
            history.page.declared_changes = 1;
            history.page.declared_days = version.time.days_since(declared);
        }
        history.take(version);
        history
    }

    /// Takes in the next capture of the document: a version of its own, or the same once more.
    pub fn see(&mut self, time: ArchiveTime, url: &str, version: Option<&VersionChange>) {
        let before = self.page.last;
        let days = time.days_since(before).max(0.0);
        self.page.looks += 1;
        self.page.last = self.page.last.max(time);
        url.clone_into(&mut self.page.url);
        let is_near = days <= self.settings.pattern_gap_days;
        let Some(version) = version else {
            self.page.quiet_days += days;
            if is_near {
                self.sums.see(before, time, None);
            }
            return;
        };
        self.page.changes += 1;
        self.page.last_change = Some(time);
        let declared = declared_change(version.last_modified.as_deref(), time);
        match declared.filter(|declared| *declared > before) {
            Some(declared) => {
                self.page.declared_changes += 1;
                self.page.declared_days += time.days_since(declared);
            }
            None => self.page.intervals.add(days * HOURS),
        }
        if let Some(weight) = version.weight {
            self.weights += weight;
            self.weighed += 1;
        }
        if is_near {
            self.pattern_changes += 1;
            let weight = version.weight.unwrap_or(self.settings.unweighed);
            self.sums.see(before, time, Some(weight));
        }
        self.take(version);
    }

    /// Notes the status of a capture, be it of the document or not.
    pub fn note_status(&mut self, status: Option<u16>) {
        self.page.status = status.or(self.page.status);
    }

    fn take(&mut self, version: &VersionChange) {
        self.page.text_weight = version.text_weight;
        self.page.simhash = version.simhash;
        self.page.words = version.words;
        self.page.etag.clone_from(&version.etag);
        self.page.last_modified.clone_from(&version.last_modified);
    }

    /// Returns what is known of the page, and its pattern where there is something known of any period.
    pub fn finish(mut self) -> (PageChanges, Option<PagePattern>) {
        let page = &mut self.page;
        let declared = DeclaredChanges {
            changes: page.declared_changes,
            ages: page.declared_days * HOURS,
        };
        let prior = self.settings.prior_days * HOURS;
        let hourly = page
            .intervals
            .estimate_all(page.quiet_days * HOURS, &declared, prior);
        page.rate = LIMITS.clamp(hourly * HOURS);
        if self.weighed > 0 {
            page.change_weight = Some(self.weights / self.weighed as f64);
        }
        if self.pattern_changes >= self.settings.pattern_changes {
            page.pattern = Some(PatternOf::Page);
        }
        let pattern = (!self.sums.is_empty()).then(|| PagePattern {
            surt: self.page.surt.clone(),
            sums: self.sums,
        });
        (self.page, pattern)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive_time::DayClass;
    use crate::version_change::{ElementCounts, ReadOutcome};

    const SETTINGS: HistorySettings = HistorySettings {
        periods: 24,
        prior_days: 0.5,
        pattern_gap_days: 7.0,
        pattern_changes: 3,
        unweighed: 0.1,
    };

    fn time(digits: &str) -> ArchiveTime {
        ArchiveTime::parse(digits).unwrap()
    }

    fn version(digits: &str, weight: Option<f64>, last_modified: Option<&str>) -> VersionChange {
        VersionChange {
            surt: "org,example)/".into(),
            time: time(digits),
            digest: digits.into(),
            before: None,
            weight,
            counts: ElementCounts::default(),
            simhash: None,
            distance: None,
            text_weight: None,
            etag: None,
            last_modified: last_modified.map(str::to_owned),
            outcome: ReadOutcome::Read,
            words: None,
        }
    }

    #[test]
    fn intervals_are_counted_by_what_was_seen() {
        let mut history = PageHistory::begin(
            SETTINGS,
            "http://example.org/",
            &version("20260105000000", None, None),
        );
        let mut see = |digits: &str, changed: Option<f64>| {
            let version = changed.map(|weight| version(digits, Some(weight), None));
            history.see(time(digits), "https://example.org/", version.as_ref());
        };
        see("20260106000000", None);
        see("20260107000000", Some(0.2));
        see("20260108000000", None);
        see("20260108010000", Some(0.4));
        let (page, pattern) = history.finish();
        assert_eq!((page.looks, page.changes), (5, 2));
        assert_eq!(page.quiet_days, 2.0);
        assert_eq!(page.last_change, Some(time("20260108010000")));
        assert_eq!(page.url, "https://example.org/");
        assert_eq!((page.intervals.counts[0], page.intervals.counts[4]), (1, 1));
        assert!((page.change_weight.unwrap() - 0.3).abs() < 1e-12);
        assert!(page.rate > 0.5 && page.rate < 2.0, "{}", page.rate);
        let sums = pattern.unwrap().sums;
        assert!((sums.days(DayClass::Weekday) - 3.0 - 1.0 / 24.0).abs() < 1e-6);
        assert_eq!(page.pattern, None);
    }

    #[test]
    fn declared_moments_count_when_they_can_be_believed() {
        let first = version(
            "20260105000000",
            None,
            Some("Sun, 04 Jan 2026 00:00:00 GMT"),
        );
        let mut history = PageHistory::begin(SETTINGS, "u", &first);
        // Between the two captures; before them; just now.
        for (digits, declared) in [
            ("20260107000000", "Tue, 06 Jan 2026 12:00:00 GMT"),
            ("20260108000000", "Tue, 06 Jan 2026 12:00:00 GMT"),
            ("20260109000000", "Fri, 09 Jan 2026 00:00:00 GMT"),
        ] {
            history.see(
                time(digits),
                "u",
                Some(&version(digits, None, Some(declared))),
            );
        }
        let (page, _) = history.finish();
        assert_eq!((page.changes, page.declared_changes), (3, 2));
        assert_eq!((page.declared_days, page.quiet_days), (1.5, 0.0));
        assert_eq!(page.intervals.counts[4], 2);
        assert_eq!(page.pattern, Some(PatternOf::Page));
        assert_eq!(page.change_weight, None);
    }

    #[test]
    fn a_page_seen_once_can_be_planned_with() {
        let history = PageHistory::begin(SETTINGS, "u", &version("20260105000000", None, None));
        let (page, pattern) = history.finish();
        assert!((page.rate - std::f64::consts::LN_2 / 0.5).abs() < 1e-6);
        assert!(pattern.is_none());
        // One that never changes, over a century.
        let mut history = PageHistory::begin(SETTINGS, "u", &version("19000105000000", None, None));
        history.see(time("20260105000000"), "u", None);
        assert_eq!(history.finish().0.rate, 1.0 / 3650.0);
    }
}
