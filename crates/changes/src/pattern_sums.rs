//! At which times of the day a page, and a site, changes: lines of `patterns.tsv.zst` and `sites.tsv.zst`.
//!
//! Everything is counted in whole millionths, so that sums do not depend on the order in which they are made.

use std::fmt::Write as _;

use ecluse_refresh::DayPattern;

use crate::ChangeRecord;
use crate::archive_time::{ArchiveTime, DAY_SECONDS, DayClass};
use crate::error::BadLine;
use crate::field::{Fields, NONE, push_number};

/// One, as it is counted.
const ONE: f64 = 1e6;

/// What was seen in one period of the day, over all days, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PeriodSums {
    /// How many such periods lie between captures.
    pub known: u64,
    /// In how many of them it changed.
    pub changed: u64,
    /// How much its changes weigh together.
    pub gain: u64,
}

/// What was seen in each period of the day, weekdays and weekends apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatternSums {
    /// By class of the day, and within it by period.
    classes: [Vec<PeriodSums>; 2],
}

impl PatternSums {
    /// Knows nothing yet of days with so many periods.
    pub fn new(periods: usize) -> Self {
        let empty = vec![PeriodSums::default(); periods.max(1)];
        Self {
            classes: [empty.clone(), empty],
        }
    }

    /// Returns how many periods a day has.
    pub fn periods(&self) -> usize {
        self.classes[0].len()
    }

    /// Returns what was seen in the periods of a class of days.
    pub fn class(&self, class: DayClass) -> &[PeriodSums] {
        &self.classes[class as usize]
    }

    /// Says whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.classes
            .iter()
            .flatten()
            .all(|period| period.known == 0)
    }

    /// Returns from how many days a class was learned.
    pub fn days(&self, class: DayClass) -> f64 {
        let known: u64 = self.class(class).iter().map(|period| period.known).sum();
        known as f64 / ONE / self.periods() as f64
    }

    /// Returns the mean weight of changes in a period, those without one included; none where nothing is known of it.
    pub fn gain(&self, class: DayClass, period: usize) -> Option<f64> {
        let sums = self.class(class).get(period)?;
        (sums.known > 0).then(|| sums.gain as f64 / sums.known as f64)
    }

    /// Returns in which share of the days it changed in a period; none where nothing is known of it.
    pub fn chance(&self, class: DayClass, period: usize) -> Option<f64> {
        let sums = self.class(class).get(period)?;
        (sums.known > 0).then(|| (sums.changed as f64 / sums.known as f64).min(1.0))
    }

    /// Returns the pattern of a class of days; none where nothing is known of any period. A period of which nothing is known
    /// has the mean of those that are.
    pub fn day_pattern(&self, class: DayClass) -> Option<DayPattern> {
        let filled = |value: &dyn Fn(usize) -> Option<f64>| -> Option<Vec<f64>> {
            let values: Vec<Option<f64>> = (0..self.periods()).map(value).collect();
            let known: Vec<f64> = values.iter().copied().flatten().collect();
            if known.is_empty() {
                return None;
            }
            let mean = known.iter().sum::<f64>() / known.len() as f64;
            Some(
                values
                    .into_iter()
                    .map(|value| value.unwrap_or(mean))
                    .collect(),
            )
        };
        Some(DayPattern {
            gain: filled(&|period| self.gain(class, period))?,
            chance: filled(&|period| self.chance(class, period))?,
            days: self.days(class).round() as u32,
        })
    }

    /// Adds what was seen of another page; one with other periods adds nothing.
    pub fn add(&mut self, other: &Self) {
        if self.periods() != other.periods() {
            return;
        }
        let sums = self.classes.iter_mut().flatten();
        for (sum, more) in sums.zip(other.classes.iter().flatten()) {
            sum.known += more.known;
            sum.changed += more.changed;
            sum.gain += more.gain;
        }
    }

    /// Takes in what two captures saw: between them it changed by a weight, or it did not.
    ///
    /// All periods between them are known by it, each by the part that lies between. A change belongs to the period of the
    /// capture that saw it (the one that ends with it) when the two are no more than a period apart; otherwise to all periods between them, by what each
    /// brought so far, and where nothing is known, by its length.
    pub fn see(&mut self, before: ArchiveTime, time: ArchiveTime, change: Option<f64>) {
        let periods = self.periods();
        let whole = DAY_SECONDS as f64 / periods as f64;
        let gap = (time.seconds() - before.seconds()) as f64;
        if gap <= 0.0 {
            return;
        }
        let parts = parts(before, time, periods);
        if let Some(weight) = change {
            if gap <= whole {
                let seen = parts.last().expect("the gap has a length");
                self.classes[seen.class as usize][seen.period].count(1.0, weight);
            } else {
                let shares: Vec<f64> = {
                    let brought = |part: &GapPart| {
                        let gain = self.gain(part.class, part.period).unwrap_or(0.0);
                        gain * part.seconds as f64
                    };
                    let shares: Vec<f64> = parts.iter().map(brought).collect();
                    match shares.iter().sum::<f64>() > 0.0 {
                        true => shares,
                        false => parts.iter().map(|part| part.seconds as f64).collect(),
                    }
                };
                let sum: f64 = shares.iter().sum();
                for (part, share) in parts.iter().zip(&shares) {
                    let share = share / sum;
                    self.classes[part.class as usize][part.period].count(share, weight * share);
                }
            }
        }
        for part in parts {
            let known = part.seconds as f64 / whole * ONE;
            self.classes[part.class as usize][part.period].known += known.round() as u64;
        }
    }

    fn push(&self, line: &mut String) {
        let _ = write!(line, "\t{}", self.periods());
        for class in &self.classes {
            for (sums, at) in class.iter().zip(0..) {
                line.push(if at == 0 { '\t' } else { ',' });
                let PeriodSums {
                    known,
                    changed,
                    gain,
                } = sums;
                match (known, changed, gain) {
                    (0, 0, 0) => line.push_str(NONE),
                    (_, 0, 0) => {
                        let _ = write!(line, "{known}");
                    }
                    _ => {
                        let _ = write!(line, "{known}/{changed}/{gain}");
                    }
                }
            }
        }
    }

    fn parse(fields: &mut Fields<'_>) -> Result<Self, BadLine> {
        let periods: usize = fields.parsed("periods")?;
        let mut class = |column| -> Result<Vec<PeriodSums>, BadLine> {
            let text = fields.text(column)?;
            let sums: Option<Vec<PeriodSums>> = text.split(',').map(PeriodSums::parse).collect();
            let sums = sums.filter(|sums| sums.len() == periods);
            sums.ok_or(BadLine { column })
        };
        Ok(Self {
            classes: [class("weekday")?, class("weekend")?],
        })
    }
}

impl PeriodSums {
    fn count(&mut self, changed: f64, gain: f64) {
        self.changed += (changed * ONE).round() as u64;
        self.gain += (gain * ONE).round() as u64;
    }

    fn parse(text: &str) -> Option<Self> {
        if text == NONE {
            return Some(Self::default());
        }
        let mut parts = text.split('/');
        let known = parts.next()?.parse().ok()?;
        let mut sums = Self {
            known,
            ..Self::default()
        };
        if let Some(changed) = parts.next() {
            sums.changed = changed.parse().ok()?;
            sums.gain = parts.next()?.parse().ok()?;
        }
        parts.next().is_none().then_some(sums)
    }
}

/// A part of the time between two captures that lies in one period of one class of days.
struct GapPart {
    class: DayClass,
    period: usize,
    seconds: i64,
}

/// Cuts the time between two captures at the borders of periods.
fn parts(before: ArchiveTime, time: ArchiveTime, periods: usize) -> Vec<GapPart> {
    let mut parts = Vec::new();
    let mut at = before;
    while at < time {
        let day = at.seconds().div_euclid(DAY_SECONDS) * DAY_SECONDS;
        let period = at.period(periods);
        // The first second of the next period: rounded up where a day does not divide evenly.
        let end = ((period + 1) as i64 * DAY_SECONDS).div_euclid(periods as i64);
        let is_even = ((period + 1) as i64 * DAY_SECONDS).rem_euclid(periods as i64) == 0;
        let end = (day + end + i64::from(!is_even)).min(time.seconds());
        parts.push(GapPart {
            class: at.class(),
            period,
            seconds: end - at.seconds(),
        });
        match ArchiveTime::from_seconds(end) {
            Some(next) => at = next,
            None => break,
        }
    }
    parts
}

/// What was seen of a page in each period of the day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PagePattern {
    /// The key of the page in the index.
    pub surt: String,
    /// What was seen.
    pub sums: PatternSums,
}

/// What was seen of all pages of a site together.
#[derive(Debug, Clone, PartialEq)]
pub struct SitePattern {
    /// The site: the host, as keys of the index have it, with the `)` behind it.
    pub site: String,
    /// Its pages with a line in `pages.tsv.zst`.
    pub pages: u64,
    /// How often they changed.
    pub changes: u64,
    /// The mean of their rates.
    pub rate: f64,
    /// What was seen of those that have a line in `patterns.tsv.zst`.
    pub sums: PatternSums,
}

/// Returns the site of a key: the host, in the order of the key, with the `)` behind it, so that sites have the order of keys.
pub fn site_of(surt: &str) -> &str {
    surt.find(')').map_or(surt, |end| &surt[..=end])
}

impl ChangeRecord for PagePattern {
    const FILE: &'static str = "patterns.tsv.zst";
    const HEADER: &'static str = "# ecluse patterns 1";

    fn key(&self) -> &str {
        &self.surt
    }

    fn write(&self, line: &mut String) {
        line.push_str(&self.surt);
        self.sums.push(line);
    }

    fn parse(line: &str) -> Result<Self, BadLine> {
        let mut fields = Fields::of(line);
        let surt = fields.text("surt")?.to_owned();
        let sums = PatternSums::parse(&mut fields)?;
        fields.end()?;
        Ok(Self { surt, sums })
    }
}

impl ChangeRecord for SitePattern {
    const FILE: &'static str = "sites.tsv.zst";
    const HEADER: &'static str = "# ecluse sites 1";

    fn key(&self) -> &str {
        &self.site
    }

    fn write(&self, line: &mut String) {
        let _ = write!(line, "{}\t{}\t{}\t", self.site, self.pages, self.changes);
        push_number(line, self.rate);
        self.sums.push(line);
    }

    fn parse(line: &str) -> Result<Self, BadLine> {
        let mut fields = Fields::of(line);
        let site = Self {
            site: fields.text("site")?.to_owned(),
            pages: fields.parsed("pages")?,
            changes: fields.parsed("changes")?,
            rate: fields.number("rate")?,
            sums: PatternSums::parse(&mut fields)?,
        };
        fields.end()?;
        Ok(site)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(digits: &str) -> ArchiveTime {
        ArchiveTime::parse(digits).unwrap()
    }

    #[test]
    fn a_period_of_which_nothing_is_known_is_missing() {
        let mut sums = PatternSums::new(24);
        assert!(sums.is_empty() && sums.day_pattern(DayClass::Weekday).is_none());
        // A Wednesday.
        sums.see(time("20261118090000"), time("20261118100000"), None);
        sums.see(time("20261118100000"), time("20261118110000"), Some(0.25));
        assert_eq!(sums.gain(DayClass::Weekday, 8), None);
        assert_eq!(sums.gain(DayClass::Weekday, 9), Some(0.0));
        // The capture at eleven ends the hour.
        assert_eq!(sums.gain(DayClass::Weekday, 10), Some(0.25));
        sums.see(time("20261118113000"), time("20261118120100"), Some(0.25));
        assert_eq!(sums.class(DayClass::Weekday)[12].gain, 250_000);
        assert!(sums.day_pattern(DayClass::Weekend).is_none());
    }

    #[test]
    fn a_change_in_a_long_gap_is_spread_by_what_the_periods_brought() {
        let mut flat = PatternSums::new(24);
        flat.see(time("20261118000000"), time("20261119000000"), Some(0.24));
        let gains: Vec<u64> = flat
            .class(DayClass::Weekday)
            .iter()
            .map(|p| p.gain)
            .collect();
        assert_eq!(gains, [10_000; 24]);
        assert_eq!(flat.days(DayClass::Weekday), 1.0);
        // It is known to change at nine.
        let mut known = PatternSums::new(24);
        known.see(time("20261117090500"), time("20261117095500"), Some(0.5));
        known.see(time("20261118000000"), time("20261119000000"), Some(0.3));
        assert_eq!(known.class(DayClass::Weekday)[9].gain, 800_000);
        assert_eq!(known.gain(DayClass::Weekday, 10), Some(0.0));
    }

    #[test]
    fn gaps_over_the_weekend_fall_into_both_classes() {
        let mut sums = PatternSums::new(24);
        // From Friday noon to Monday noon.
        sums.see(time("20261120120000"), time("20261123120000"), None);
        assert_eq!(sums.days(DayClass::Weekday), 1.0);
        assert_eq!(sums.days(DayClass::Weekend), 2.0);
        // Periods that no whole number of seconds makes.
        let mut odd = PatternSums::new(7);
        odd.see(time("20261118000000"), time("20261119000000"), Some(0.7));
        assert!((odd.days(DayClass::Weekday) - 1.0).abs() < 1e-4);
        let gain: u64 = odd.class(DayClass::Weekday).iter().map(|p| p.gain).sum();
        assert!(gain.abs_diff(700_000) < 10);
    }
}
