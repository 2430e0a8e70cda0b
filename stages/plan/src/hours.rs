//! What a page brings hour by hour: by its own pattern, by the shape of its site, or evenly by its rate.

use std::rc::Rc;

use ecluse_changes::{ArchiveTime, DayClass, PatternSums};
use ecluse_refresh::{DayPattern, PagePeriods};

/// Hours that are looked back at: what happened before them is long gone or long there.
const BACK: usize = 14 * 24;
/// A change that nobody weighed weighs this much.
const USUAL_WEIGHT: f64 = 0.5;
const HOUR: i64 = 3600;
const WEEK: i64 = 7 * 24 * HOUR;

/// What is known of the hours of a page. Of one without a pattern of its own it is two numbers, and the shape it shares with its site.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum HoursKnown {
    /// A pattern of its own.
    Own(PageHours),
    /// The hours of its site; so many times a day, with that weight.
    OfSite(Rc<SiteShape>, f64, Option<f64>),
    /// Any hour; so many times a day, with that weight.
    Even(f64, Option<f64>),
}

impl HoursKnown {
    /// Returns what the page brings by the hour.
    pub(crate) fn hours(&self) -> PageHours {
        match self {
            Self::Own(hours) => hours.clone(),
            Self::OfSite(shape, rate, weight) => shape.of_page(*rate, *weight),
            Self::Even(rate, weight) => PageHours::even(*rate, *weight),
        }
    }
}

/// The hours at which the pages of a site change.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SiteShape {
    /// What is known of all of its pages together.
    pub(crate) hours: PageHours,
    /// Changes a day.
    mean: f64,
}

impl SiteShape {
    /// None where nothing is known of the site, or nothing changes there.
    pub(crate) fn of(site: &PatternSums) -> Option<Self> {
        Self::new(PageHours::own(site)?)
    }

    /// The shape by what a site brings by the hour.
    pub(crate) fn new(hours: PageHours) -> Option<Self> {
        let of_day =
            |day: &DayPattern| day.chance.iter().map(|chance| hazard(*chance)).sum::<f64>();
        let mean = (5.0 * of_day(&hours.days[0]) + 2.0 * of_day(&hours.days[1])) / 7.0;
        (mean > 0.0).then_some(Self { hours, mean })
    }

    /// A page that changes at the hours of its site, so many times a day.
    pub(crate) fn of_page(&self, rate: f64, weight: Option<f64>) -> PageHours {
        let weight = weight.unwrap_or(USUAL_WEIGHT);
        let of_day = |day: &DayPattern| {
            let of_period = |chance: &f64| -(-hazard(*chance) * rate / self.mean).exp_m1();
            let chance: Vec<f64> = day.chance.iter().map(of_period).collect();
            DayPattern {
                gain: chance.iter().map(|chance| chance * weight).collect(),
                chance,
                days: day.days,
            }
        };
        let [weekday, weekend] = &self.hours.days;
        PageHours {
            days: [of_day(weekday), of_day(weekend)],
        }
    }
}

fn hazard(chance: f64) -> f64 {
    -(1.0 - chance.min(0.999)).ln()
}

/// What a page brings by the hours of weekdays and weekends.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PageHours {
    /// Weekdays, weekends.
    pub(crate) days: [DayPattern; 2],
}

impl PageHours {
    /// A page with a pattern of its own; a class of days of which nothing is known is like the other. None where nothing is known of either.
    pub(crate) fn own(sums: &PatternSums) -> Option<Self> {
        let weekday = sums.day_pattern(DayClass::Weekday);
        let weekend = sums.day_pattern(DayClass::Weekend);
        let days = match (weekday, weekend) {
            (Some(weekday), Some(weekend)) => [weekday, weekend],
            (Some(one), None) | (None, Some(one)) => [one.clone(), one],
            (None, None) => return None,
        };
        Some(Self { days })
    }

    /// A page that changes at any hour, so many times a day.
    pub(crate) fn even(rate: f64, weight: Option<f64>) -> Self {
        let chance = -(-rate / 24.0).exp_m1();
        let day = DayPattern {
            gain: vec![chance * weight.unwrap_or(USUAL_WEIGHT); 24],
            chance: vec![chance; 24],
            days: u32::MAX,
        };
        Self {
            days: [day.clone(), day],
        }
    }

    /// The same with neighbouring hours drawn together, as the Lagrange index wants it.
    pub(crate) fn smoothed(&self) -> Self {
        Self {
            days: [self.days[0].smoothed(), self.days[1].smoothed()],
        }
    }

    /// Returns what a week brings.
    pub(crate) fn week(&self) -> f64 {
        let [weekday, weekend] = &self.days;
        5.0 * weekday.gain.iter().sum::<f64>() + 2.0 * weekend.gain.iter().sum::<f64>()
    }

    /// Returns what the hour that ends now usually brings.
    pub(crate) fn gain(&self, now: i64) -> f64 {
        self.step(now - HOUR, HOUR).1
    }

    /// Returns what a visit now is expected to find, when the last one was so many seconds ago.
    pub(crate) fn belief(&self, now: i64, age: i64) -> f64 {
        let hours = usize::try_from((age + HOUR - 1) / HOUR)
            .unwrap_or(BACK)
            .clamp(1, BACK);
        let mut found = 0.0;
        for back in (0..hours).rev() {
            let begin = now - (back as i64 + 1) * HOUR;
            let (chance, gain) = self.step(begin, HOUR);
            found = gain + (1.0 - chance) * found;
        }
        found
    }

    /// Returns what a visit now is expected to find, less what waiting would add to it.
    ///
    /// Visits that come again and again after a time a, each at a cost c, gain (b(a) − c)/a. Those after a+k gain as much when
    /// c = b(a) − a/k·(b(a+k) − b(a)): the least of these costs over all k is the most that a visit now may cost. k is a number of
    /// runs, up to a week of them. Where nothing is to come, it is the belief; where more is to come than has come, it is below zero.
    pub(crate) fn ripeness(&self, now: i64, age: i64, run: i64) -> f64 {
        let found = self.belief(now, age);
        let ahead = (WEEK / run.max(60)).clamp(1, WEEK / HOUR);
        let (mut later, mut least) = (found, found);
        for at in 0..ahead {
            let (chance, gain) = self.period(now + at * run, run);
            later = gain + (1.0 - chance) * later;
            let times = age.max(1) as f64 / ((at + 1) * run) as f64;
            least = least.min(found - times * (later - found));
        }
        least
    }

    /// Returns what periods of a length bring: `past` of them before now, and those after.
    pub(crate) fn periods(&self, now: i64, length: i64, past: usize, ahead: usize) -> PagePeriods {
        let mut periods = PagePeriods {
            chance: Vec::with_capacity(past + ahead),
            gain: Vec::with_capacity(past + ahead),
            worth: 0.0,
        };
        // The first of those ahead ends now: its decision is the one to take.
        let begin = now - (past as i64 + 1) * length;
        for at in 0..past + ahead {
            let (chance, gain) = self.period(begin + at as i64 * length, length);
            periods.chance.push(chance);
            periods.gain.push(gain);
        }
        periods
    }

    /// The chance of a change in a period, and what a visit at its end finds of it: the last change counts.
    fn period(&self, begin: i64, length: i64) -> (f64, f64) {
        let (mut stays, mut found) = (1.0, 0.0);
        let mut at = begin;
        while at < begin + length {
            let step = HOUR.min(begin + length - at);
            let (chance, gain) = self.step(at, step);
            stays *= 1.0 - chance;
            found = gain + (1.0 - chance) * found;
            at += step;
        }
        (1.0 - stays, found)
    }

    /// The chance of a change within an hour or less, and its mean weight, times without one included.
    fn step(&self, begin: i64, length: i64) -> (f64, f64) {
        let Some(middle) = ArchiveTime::from_seconds(begin + length / 2) else {
            return (0.0, 0.0);
        };
        let day = &self.days[middle.class() as usize];
        let periods = day.chance.len();
        let period = middle.period(periods);
        let (chance, gain) = (day.chance[period], day.gain[period]);
        // The part of the pattern's period that it is.
        let part = length as f64 * periods as f64 / 86_400.0;
        if (part - 1.0).abs() < 1e-9 || chance <= 0.0 {
            return (chance, gain);
        }
        let less = -((1.0 - chance.min(0.999_999)).ln() * part).exp_m1();
        (less, gain * less / chance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(digits: &str) -> ArchiveTime {
        ArchiveTime::parse(digits).unwrap()
    }

    /// It changes between nine and ten on weekdays, and at no other time.
    fn mornings() -> PatternSums {
        let mut sums = PatternSums::new(24);
        for day in 16..=20 {
            for hour in 0..23 {
                let at = |hour: u32| time(&format!("202611{day}{hour:02}0000"));
                sums.see(at(hour), at(hour + 1), (hour == 9).then_some(0.8));
            }
        }
        sums
    }

    #[test]
    fn a_visit_after_the_hour_finds_what_it_brought() {
        let hours = PageHours::own(&mornings()).unwrap();
        let at = |digits: &str| time(digits).seconds();
        // A Wednesday.
        assert_eq!(hours.gain(at("20261118100000")), 0.8);
        assert_eq!(hours.gain(at("20261118090000")), 0.0);
        let belief = |digits, age| hours.belief(at(digits), age);
        assert_eq!(belief("20261118100000", 2 * HOUR), 0.8);
        assert_eq!(belief("20261118180000", 12 * HOUR), 0.8);
        assert_eq!(belief("20261118180000", 6 * HOUR), 0.0);
        assert!(hours.week() >= 4.0);
        // A day as one period has it once.
        let periods = hours.periods(at("20261118120000"), 86_400, 1, 2);
        assert_eq!(periods.gain, [0.8, 0.8, 0.8]);
        assert_eq!(periods.chance, [1.0, 1.0, 1.0]);
        assert!(hours.smoothed().gain(at("20261118110000")) > 0.0);
    }

    #[test]
    fn what_waiting_adds_is_taken_off() {
        let hours = PageHours::own(&mornings()).unwrap();
        let at = |digits: &str| time(digits).seconds();
        let ripe = |digits, age| hours.ripeness(at(digits), age, 4 * HOUR);
        // It came at ten, and nothing more comes before it is lost.
        assert_eq!(ripe("20261118100000", 24 * HOUR), 0.8);
        // Nothing is there yet, and it comes within the next run.
        assert!(ripe("20261118080000", 4 * HOUR) < 0.0);
        // Where the hour does not matter, it is what the best times between visits have at a price: (1−(1+x)e^−x)/λ.
        for (rate, days) in [(0.2, 2.0), (0.2, 10.0), (3.0, 0.5)] {
            let even = PageHours::even(rate, Some(rate));
            let age = (days * 86_400.0) as i64;
            let found = even.ripeness(at("20261118080000"), age, HOUR / 60);
            let x: f64 = rate * days;
            let expected = rate * (1.0 - (1.0 + x) * (-x).exp());
            assert!((found - expected).abs() < 0.02 * rate, "{found} {expected}");
        }
    }

    #[test]
    fn a_page_without_a_pattern_has_the_shape_of_its_site_or_none() {
        let shape = SiteShape::of(&mornings()).unwrap();
        let site = shape.of_page(0.5, Some(0.2));
        let known = HoursKnown::OfSite(Rc::new(shape), 0.5, Some(0.2));
        assert_eq!(known.hours(), site);
        let at = |digits: &str| time(digits).seconds();
        let morning = site.gain(at("20261118100000"));
        assert!(morning > 0.05 && site.gain(at("20261118090000")) == 0.0);
        let even = PageHours::even(2.4, None);
        let gain = even.gain(at("20261118090000"));
        assert!((gain - 0.5 * (1.0 - (-0.1f64).exp())).abs() < 1e-12);
        // Half an hour of it, and two.
        let (half, _) = even.period(at("20261118090000"), HOUR / 2);
        assert!((half - (1.0 - (-0.05f64).exp())).abs() < 1e-12);
        let (two, _) = even.period(at("20261118090000"), 2 * HOUR);
        assert!((two - (1.0 - (-0.2f64).exp())).abs() < 1e-12);
        assert!(PageHours::own(&PatternSums::new(24)).is_none());
        assert!(SiteShape::of(&PatternSums::new(24)).is_none());
        // A site where nothing changes has no shape.
        let mut still = PatternSums::new(24);
        still.see(time("20261116000000"), time("20261116060000"), None);
        assert!(PageHours::own(&still).is_some() && SiteShape::of(&still).is_none());
    }
}
