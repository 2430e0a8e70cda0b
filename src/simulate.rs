//! `ecluse plan HARVEST --simulate DAYS`: what each refresh policy would have caught of the archive's own history.
//!
//! The index says when a page was captured and whether it was another than before. Policies learn from what lies before
//! the last DAYS days of the index and are judged by these days, all with the same budget. A change counts at the capture that saw it first: when it
//! really came, nobody knows. Each change counts as much as another, and each page.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ecluse_cdx::{KeyRange, cdxj};
use ecluse_changes::{PageChanges, RecordReader, site_of};
use ecluse_generation::IndexDirectory;
use ecluse_links::{RANKS_FILE, RankReader};
use ecluse_plan::{Harvest, HarvestKind};
use ecluse_refresh::{
    CapturePolicy, ChangeRate, CompletenessOf, DayPattern, LagrangeSettings, RateForm,
    RefreshPolicy, SimulatedPage, Simulation, SimulationScore,
};
use ecluse_stage::Exit;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde_json::json;

use crate::cli::{Match, SimulateOptions};
use crate::context::{DriverContext, Trouble};
use crate::lookup::{each_line, range_of};
use crate::show;

/// More pages than this are not looked at: a simulation holds them in memory.
const MOST_PAGES: usize = 20_000;
/// The longest window, in days.
pub(crate) const MOST_DAYS: u32 = 366;
/// One change and one time without are taken for granted, each of so many days: every page can be planned with.
const PRIOR_DAYS: f64 = 0.5;
/// The budgets of the plot, beside that of the table.
const PLOTTED: [f64; 5] = [0.1, 0.25, 0.5, 1.0, 2.0];
const SECONDS_A_DAY: i64 = 86_400;
/// No page counts for less than this share of the mean.
const LEAST_WEIGHT: f64 = 0.01;

/// The policies side by side, as they are called in the table.
fn policies() -> [(&'static str, CapturePolicy); 11] {
    let refresh = CapturePolicy::Refresh;
    // Prices need not be exact to tell policies apart, and a window has many periods.
    let settings = LagrangeSettings {
        ages: 72,
        steps: 20,
    };
    [
        ("uniform", refresh(RefreshPolicy::Uniform)),
        ("by change", refresh(RefreshPolicy::ByChange)),
        ("least obsolescence", refresh(RefreshPolicy::Obsolescence)),
        ("mixed", refresh(RefreshPolicy::DEFAULT)),
        ("harmonic", refresh(RefreshPolicy::Harmonic)),
        ("signalled", CapturePolicy::Signalled),
        ("sites", CapturePolicy::Sites),
        ("importance-pattern", CapturePolicy::ImportancePattern),
        ("belief", CapturePolicy::Belief),
        ("Lagrange", CapturePolicy::Lagrange(settings)),
        ("sees what changes", CapturePolicy::SeesChanges),
    ]
}

/// Shows what each policy would have caught of a harvest's pages.
pub(crate) fn simulate(
    context: &DriverContext,
    harvest: &Harvest,
    days: u32,
    options: &SimulateOptions,
) -> Result<ExitCode, Trouble> {
    let mut history = History::read(context, harvest)?;
    history.weigh(context, harvest)?;
    let Some(window) = Window::of(&history, days, options.hourly) else {
        let line = format!(
            "the index has no capture of harvest {}: there is no history to replay",
            harvest.name
        );
        return Err(Trouble::usage(line));
    };
    let pages = window.pages(&history);
    if pages.is_empty() {
        let line = format!(
            "no page of harvest {} was captured before the last {}: nothing can be learned; try fewer",
            harvest.name,
            show::count(days, "day", "days")
        );
        return Err(Trouble::usage(line));
    }
    let most = options.budget.unwrap_or_else(|| window.made(&history));
    let run = |budget: usize, policy: CapturePolicy| {
        let simulation = Simulation {
            pages: &pages,
            most: budget.clamp(1, pages.len()),
            // A page that never changed has lost nothing: what counts is the share of all changes.
            objective: CompletenessOf::Everything,
        };
        simulation.run(policy)
    };
    let scores: Vec<(&str, SimulationScore)> = policies()
        .into_iter()
        .map(|(name, policy)| (name, run(most, policy)))
        .collect();
    if let Some(path) = &options.plot {
        let budgets = PLOTTED.map(|share| ((most as f64 * share).round() as usize).max(1));
        let curves: Vec<(&str, Vec<f64>)> = policies()
            .into_iter()
            .map(|(name, policy)| {
                let caught = |budget| run(budget, policy).complete_in_all;
                (name, budgets.iter().map(|budget| caught(*budget)).collect())
            })
            .collect();
        fs::write(path, plot(&harvest.name, &budgets, &curves)).map_err(|error| {
            let line = format!("cannot write {}: {error}", path.display());
            Trouble::new(Exit::Machine, line)
        })?;
    }
    let facts = Facts {
        harvest: &harvest.name,
        pages: pages.len(),
        unseen: history.pages.len() - pages.len(),
        left_out: history.left_out,
        changes: pages
            .iter()
            .map(|page| page.changes.iter().filter(|change| **change > 0.0).count())
            .sum(),
        periods: window.periods,
        hourly: window.hourly,
        most: most.clamp(1, pages.len()),
        sources: history.sources,
    };
    match context.json {
        true => context.print_json(facts.json(&scores))?,
        false => context.print(&facts.table(&scores))?,
    }
    Ok(Exit::Done.into())
}

/// A capture of a page: when, and whether it was another than the one before.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Seen {
    /// Seconds since 1970.
    at: i64,
    is_new: bool,
}

/// What the index tells of a harvest's pages.
#[derive(Debug, Default)]
struct History {
    pages: Vec<Vec<Seen>>,
    /// The key of each.
    keys: Vec<String>,
    /// What each counts, and what one of its changes does; all alike where nothing is known.
    weights: Vec<(f64, f64)>,
    /// The site of each, by a number.
    sites: Vec<usize>,
    /// Whether its changes were announced, by a sitemap or a feed.
    told: Vec<bool>,
    /// Generations of links and changes that weights come from.
    sources: [Option<u64>; 2],
    /// Pages beyond the most that are looked at.
    left_out: usize,
}

impl History {
    fn read(context: &DriverContext, harvest: &Harvest) -> Result<Self, Trouble> {
        let ranges = match harvest.definition.kind {
            HarvestKind::Broad | HarvestKind::Unsaid => vec![KeyRange::all()],
            HarvestKind::Selective => {
                let domains = harvest.chosen.keys();
                domains
                    .map(|domain| range_of(domain, Match::Domain))
                    .collect::<Result<_, _>>()?
            }
        };
        let collection = Some(harvest.definition.index.as_str()).filter(|name| !name.is_empty());
        let mut history = Self::default();
        for range in ranges {
            let mut reading = Reading::default();
            each_line(context, collection, range, &mut |line| {
                reading.line(line, &mut history);
                true
            })?;
            reading.end(&mut history);
        }
        Ok(history)
    }

    /// Takes what pages count from their ranks, and what their changes do from the changes that were weighed.
    fn weigh(&mut self, context: &DriverContext, harvest: &Harvest) -> Result<(), Trouble> {
        let machine =
            |error: &dyn std::fmt::Display| Trouble::new(Exit::Machine, error.to_string());
        let collection = Some(harvest.definition.index.as_str()).filter(|name| !name.is_empty());
        let archive = &context.pipeline.archive;
        let current =
            |path: &Path, collection| -> Result<(Option<u64>, Option<PathBuf>), Trouble> {
                let directory = IndexDirectory::of(&context.root.join(path), collection)
                    .map_err(|error| machine(&error))?;
                let number = directory
                    .current_number()
                    .map_err(|error| machine(&error))?;
                Ok((number, number.map(|number| directory.generation(number))))
            };
        let numbers: HashMap<&str, usize> = self.keys.iter().map(String::as_str).zip(0..).collect();
        let mut ranks = vec![0.0; self.pages.len()];
        let mut changes = vec![None; self.pages.len()];
        let (links, path) = current(&archive.links, None)?;
        if let Some(path) = path {
            let mut reader =
                RankReader::open(&path.join(RANKS_FILE)).map_err(|error| machine(&error))?;
            while let Some(record) = reader.next_record().map_err(|error| machine(&error))? {
                if let Some(at) = numbers.get(record.surt) {
                    ranks[*at] = f64::from(record.rank);
                }
            }
        }
        let (changed, path) = current(&archive.changes, collection)?;
        if let Some(path) = path {
            let mut reader =
                RecordReader::<PageChanges>::open(&path).map_err(|error| machine(&error))?;
            while let Some(page) = reader.next_record().map_err(|error| machine(&error))? {
                if let Some(at) = numbers.get(page.surt.as_str()) {
                    changes[*at] = page.change_weight;
                    self.told[*at] = page.signal.is_some();
                }
            }
        }
        let mean = ranks.iter().sum::<f64>() / ranks.len().max(1) as f64;
        let weight = |rank: f64| match mean > 0.0 {
            true => (rank / mean).max(LEAST_WEIGHT),
            false => 1.0,
        };
        let known: Vec<f64> = changes.iter().copied().flatten().collect();
        let usual = match known.is_empty() {
            true => 1.0,
            false => known.iter().sum::<f64>() / known.len() as f64,
        };
        let weights = ranks.into_iter().zip(changes);
        self.weights = weights
            .map(|(rank, change)| (weight(rank), change.unwrap_or(usual).max(1e-3)))
            .collect();
        self.sources = [links, changed];
        Ok(())
    }

    fn add(&mut self, key: &str, captures: Vec<Seen>) {
        if captures.is_empty() {
            return;
        }
        if self.pages.len() < MOST_PAGES {
            self.pages.push(captures);
            self.keys.push(key.to_owned());
            self.weights.push((1.0, 1.0));
            // Keys come in order: those of a site are together.
            let is_same = |before: &String| site_of(before) == site_of(key);
            let before = self.sites.last().copied().unwrap_or(0);
            let begins = !self.keys.iter().rev().nth(1).is_some_and(is_same);
            self.sites.push(before + usize::from(begins));
            self.told.push(false);
        } else {
            self.left_out += 1;
        }
    }
}

/// The lines of one page after the other.
#[derive(Default)]
struct Reading {
    key: String,
    digest: String,
    captures: Vec<Seen>,
}

impl Reading {
    fn line(&mut self, line: &[u8], history: &mut History) {
        let Ok(capture) = cdxj::parse(line) else {
            return;
        };
        let is_good = capture.is_revisit()
            || capture
                .status
                .as_deref()
                .is_some_and(|status| status.starts_with('2'));
        let (Some(digest), Some(at), true, true) = (
            capture.digest.as_deref(),
            seconds(capture.time.as_str()),
            is_good,
            // Names of servers and papers of jobs are no pages.
            capture.key.contains(")/"),
        ) else {
            return;
        };
        if capture.key != self.key {
            self.end(history);
            self.key = capture.key.clone().into_owned();
        }
        let is_new = digest != self.digest;
        if is_new {
            self.digest = digest.to_owned();
        }
        self.captures.push(Seen { at, is_new });
    }

    fn end(&mut self, history: &mut History) {
        history.add(&self.key, std::mem::take(&mut self.captures));
        self.key.clear();
        self.digest.clear();
    }
}

/// Returns fourteen digits as seconds since 1970.
fn seconds(digits: &str) -> Option<i64> {
    let part = |from: usize, to: usize| digits.get(from..to)?.parse::<i16>().ok();
    let small = |from: usize| part(from, from + 2).and_then(|part| i8::try_from(part).ok());
    let (month, day, hour) = (small(4)?, small(6)?, small(8)?);
    let at = DateTime::new(part(0, 4)?, month, day, hour, small(10)?, small(12)?, 0).ok()?;
    Some(at.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second())
}

/// The days that policies are judged by.
struct Window {
    from: i64,
    /// How long a period is, in seconds.
    length: i64,
    periods: usize,
    hourly: bool,
}

impl Window {
    /// The last days before the last capture; none where there is no capture.
    fn of(history: &History, days: u32, hourly: bool) -> Option<Self> {
        let captures = history.pages.iter().flatten();
        let last = captures.map(|seen| seen.at).max()?;
        let (length, periods) = match hourly {
            true => (3600, days as usize * 24),
            false => (SECONDS_A_DAY, days as usize),
        };
        // Whole days, so that a period is always the same hours.
        let end = last - last.rem_euclid(SECONDS_A_DAY) + SECONDS_A_DAY;
        Some(Self {
            from: end - i64::from(days) * SECONDS_A_DAY,
            length,
            periods,
            hourly,
        })
    }

    /// Returns how many captures were made in a period, on average.
    fn made(&self, history: &History) -> usize {
        let known = history.pages.iter().filter(|page| page[0].at < self.from);
        let made = known.flatten().filter(|seen| seen.at >= self.from).count();
        made.div_ceil(self.periods.max(1)).max(1)
    }

    /// Returns the pages that were captured before, with what was learned of each.
    fn pages(&self, history: &History) -> Vec<SimulatedPage> {
        let known = (0..history.pages.len()).filter(|at| history.pages[*at][0].at < self.from);
        known
            .map(|at| SimulatedPage {
                site: history.sites[at],
                tells: history.told[at],
                ..self.page(&history.pages[at], history.weights[at])
            })
            .collect()
    }

    fn page(&self, captures: &[Seen], (weight, change_weight): (f64, f64)) -> SimulatedPage {
        let (before, after): (Vec<Seen>, Vec<Seen>) =
            captures.iter().partition(|seen| seen.at < self.from);
        let mut changes = vec![0.0; self.periods];
        for seen in after.iter().filter(|seen| seen.is_new) {
            let period = ((seen.at - self.from) / self.length) as usize;
            if let Some(change) = changes.get_mut(period) {
                *change = change_weight;
            }
        }
        let flat = self.chance_of(&before);
        let patterns = self.patterns(&before);
        let chance: Vec<f64> = (0..self.periods)
            .map(|period| {
                let at = self.from + period as i64 * self.length;
                let (weekend, hour) = self.place(at);
                let pattern = patterns[usize::from(weekend)].as_ref();
                pattern.map_or(flat, |pattern| pattern.chance[hour])
            })
            .collect();
        SimulatedPage {
            weight,
            site: 0,
            tells: false,
            changes,
            gain: chance.iter().map(|chance| chance * change_weight).collect(),
            chance,
        }
    }

    /// The chance of a change in a period, by the rate alone.
    fn chance_of(&self, before: &[Seen]) -> f64 {
        let mut rate = ChangeRate::default();
        for pair in before.windows(2) {
            let length = (pair[1].at - pair[0].at) as f64 / SECONDS_A_DAY as f64;
            match pair[1].is_new {
                true if length > 0.0 => rate.changed.push(length),
                true => {}
                false => rate.unchanged += length,
            }
        }
        let rate = rate.smoothed(PRIOR_DAYS).estimate(RateForm::Corrected);
        let periods_a_day = SECONDS_A_DAY as f64 / self.length as f64;
        -(-rate / periods_a_day).exp_m1()
    }

    /// Patterns of weekdays and of weekends, where a page was seen often enough: in most periods of at least five days.
    fn patterns(&self, before: &[Seen]) -> [Option<DayPattern>; 2] {
        let a_day = (SECONDS_A_DAY / self.length) as usize;
        let mut days: BTreeMap<i64, Vec<Option<f64>>> = BTreeMap::new();
        for seen in before.iter().skip(1) {
            let day = days
                .entry(seen.at.div_euclid(SECONDS_A_DAY))
                .or_insert_with(|| vec![None; a_day]);
            let (_, hour) = self.place(seen.at);
            let change = day[hour].get_or_insert(0.0);
            *change = f64::max(*change, f64::from(seen.is_new));
        }
        [false, true].map(|weekend| {
            let days: Vec<Vec<Option<f64>>> = days
                .iter()
                .filter(|(day, _)| self.place(**day * SECONDS_A_DAY).0 == weekend)
                .map(|(_, periods)| periods.clone())
                .collect();
            let known = days.iter().flatten().flatten().count();
            let is_enough = days.len() >= 5 && known * 2 > days.len() * a_day;
            is_enough.then(|| DayPattern::learn(a_day, &days).smoothed())
        })
    }

    /// Tells whether a moment is at a weekend, and in which period of its day.
    fn place(&self, at: i64) -> (bool, usize) {
        // The first of January 1970 was a Thursday.
        let weekday = (at.div_euclid(SECONDS_A_DAY) + 3).rem_euclid(7);
        let period = at.rem_euclid(SECONDS_A_DAY) / self.length;
        (weekday >= 5, period as usize)
    }
}

/// What stands above the table.
struct Facts<'a> {
    harvest: &'a str,
    pages: usize,
    /// Pages that were first captured within the window.
    unseen: usize,
    left_out: usize,
    changes: usize,
    periods: usize,
    hourly: bool,
    most: usize,
    /// Generations of links and changes by which pages and changes count.
    sources: [Option<u64>; 2],
}

impl Facts<'_> {
    fn json(&self, scores: &[(&str, SimulationScore)]) -> serde_json::Value {
        let policies: Vec<serde_json::Value> = scores
            .iter()
            .map(|(name, score)| {
                json!({
                    "policy": name,
                    "completeness": score.complete_in_all,
                    "completeness_by_page": score.complete,
                    "freshness": score.fresh,
                    "obsolescence": score.obsolete,
                    "captures": score.captures,
                })
            })
            .collect();
        json!({
            "harvest": self.harvest,
            "pages": self.pages,
            "pages_first_seen_later": self.unseen,
            "pages_left_out": self.left_out,
            "changes": self.changes,
            "periods": self.periods,
            "period": if self.hourly { "hour" } else { "day" },
            "budget": self.most,
            "links": self.sources[0],
            "changes_generation": self.sources[1],
            "policies": policies,
        })
    }

    fn table(&self, scores: &[(&str, SimulationScore)]) -> String {
        let period = if self.hourly { "hour" } else { "day" };
        let mut text = format!(
            "harvest {}: {} with {} in the last {}, {} a {period}\n",
            self.harvest,
            show::count(self.pages, "page", "pages"),
            show::count(self.changes, "change", "changes"),
            show::count(self.periods, period, &format!("{period}s")),
            show::count(self.most, "capture", "captures"),
        );
        if self.unseen > 0 {
            let pages = show::count(self.unseen, "page", "pages");
            let _ = writeln!(text, "left out: {pages} first captured in that time");
        }
        if self.left_out > 0 {
            let pages = show::count(self.left_out, "page", "pages");
            let _ = writeln!(text, "left out: {pages} beyond the first {MOST_PAGES}");
        }
        for (what, generation) in [
            ("pages count by their ranks, links", self.sources[0]),
            ("changes count by their weights, changes", self.sources[1]),
        ] {
            if let Some(number) = generation {
                let _ = writeln!(text, "{what} generation {number}");
            }
        }
        text += "\npolicy                completeness   freshness   obsolescence   captures\n";
        for (name, score) in scores {
            let _ = writeln!(
                text,
                "{name:<20}  {:>10.1} %  {:>8.1} %   {:>12.3}   {:>8}",
                score.complete_in_all * 100.0,
                score.fresh * 100.0,
                score.obsolete,
                score.captures
            );
        }
        text += "\ncompleteness: changes caught before the next came, of all; freshness: time in which the copy was the page;\n\
                 obsolescence: changes that the copy lacked, on average. A change counts at the capture that saw it first.\n\
                 'sees what changes' knows what nobody knows before a visit: it is there to compare with.\n";
        text
    }
}

/// Draws completeness by budget, a line for each policy.
fn plot(harvest: &str, budgets: &[usize], curves: &[(&str, Vec<f64>)]) -> String {
    const COLOURS: [&str; 11] = [
        "#888888", "#b07d2b", "#2b6cb0", "#2f855a", "#805ad5", "#b83280", "#c05621", "#c53030",
        "#1a202c", "#319795", "#d69e2e",
    ];
    let (left, top, width, height) = (60.0, 50.0, 440.0, 300.0);
    let x = |at: usize| left + width * at as f64 / (budgets.len() - 1).max(1) as f64;
    let y = |share: f64| top + height * (1.0 - share);
    let mut svg = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 420\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"720\" height=\"420\" fill=\"white\"/>\n",
    );
    let _ = writeln!(
        svg,
        "<text x=\"{left}\" y=\"28\" font-size=\"16\">{}: changes caught, by captures a period</text>",
        escaped(harvest)
    );
    for tenth in (0..=10).step_by(2) {
        let share = f64::from(tenth) / 10.0;
        let _ = writeln!(
            svg,
            "<path d=\"M{left} {0:.1}h{width}\" stroke=\"#dddddd\"/><text x=\"{1}\" y=\"{2:.1}\" text-anchor=\"end\">{3} %</text>",
            y(share),
            left - 8.0,
            y(share) + 4.0,
            tenth * 10
        );
    }
    for (at, budget) in budgets.iter().enumerate() {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{budget}</text>",
            x(at),
            top + height + 20.0
        );
    }
    for (number, (name, shares)) in curves.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let points: Vec<String> = shares
            .iter()
            .enumerate()
            .map(|(at, share)| format!("{:.1},{:.1}", x(at), y(*share)))
            .collect();
        let row = top + 14.0 + 22.0 * number as f64;
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <path d=\"M520 {1}h20\" stroke=\"{colour}\" stroke-width=\"2\"/><text x=\"546\" y=\"{2}\">{3}</text>",
            points.join(" "),
            row - 4.0,
            row,
            escaped(name)
        );
    }
    svg + "</svg>\n"
}

/// Returns a text as it may stand in XML.
fn escaped(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .map(|c| match c {
            '&' => "&amp;".to_owned(),
            '<' => "&lt;".to_owned(),
            '>' => "&gt;".to_owned(),
            c => c.to_string(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(day: u32, digest: &str) -> String {
        format!(
            r#"org,example)/news 202601{day:02}080000 {{"url": "https://example.org/news", "mime": "text/html", "status": "200", "digest": "{digest}", "length": "10", "offset": "0", "filename": "a.warc.gz"}}"#
        )
    }

    fn history(lines: &[String]) -> History {
        let (mut history, mut reading) = (History::default(), Reading::default());
        for line in lines {
            reading.line(line.as_bytes(), &mut history);
        }
        reading.end(&mut history);
        history
    }

    #[test]
    fn a_page_has_changed_where_its_digest_has() {
        let lines = [line(1, "a"), line(2, "a"), line(3, "b"), line(4, "a")];
        let history = history(&lines);
        let news: Vec<bool> = history.pages[0].iter().map(|seen| seen.is_new).collect();
        assert_eq!(news, [true, false, true, true]);
        // Names of servers, failures and what is no line are no captures of a page.
        let lines = [
            line(1, "a").replace("org,example)/news", "dns:example.org"),
            line(1, "a").replace("\"200\"", "\"404\""),
            "no line".to_owned(),
        ];
        assert_eq!(super::tests::history(&lines).pages.len(), 0);
    }

    #[test]
    fn policies_learn_before_the_window_and_are_judged_in_it() {
        let lines: Vec<String> = (1..=20)
            .map(|day| line(day, &format!("{}", day / 2)))
            .collect();
        let history = history(&lines);
        let window = Window::of(&history, 6, false).unwrap();
        let pages = window.pages(&history);
        assert_eq!(pages.len(), 1);
        assert_eq!(pages[0].changes.iter().sum::<f64>(), 3.0);
        assert_eq!(window.made(&history), 1);
        let chance = pages[0].chance[0];
        assert!((0.3..0.7).contains(&chance), "{chance}");
        // Nothing lies before a window of all days.
        let window = Window::of(&history, 20, false).unwrap();
        assert_eq!(window.pages(&history).len(), 0);
        assert!(Window::of(&History::default(), 6, false).is_none());
    }

    #[test]
    fn hours_of_weekdays_and_weekends_are_told_apart() {
        // Every hour for three weeks; it changes at eight on weekdays.
        let start = seconds("20260105000000").unwrap();
        let captures: Vec<Seen> = (0..21 * 24)
            .map(|hour| {
                let at = start + hour * 3600;
                let is_new = hour % 24 == 8 && hour / 24 % 7 < 5;
                Seen { at, is_new }
            })
            .collect();
        let history = History {
            pages: vec![captures],
            keys: vec!["fr,a)/".to_owned()],
            weights: vec![(1.0, 1.0)],
            sites: vec![0],
            told: vec![false],
            ..History::default()
        };
        let window = Window::of(&history, 7, true).unwrap();
        assert_eq!(window.periods, 7 * 24);
        let page = &window.pages(&history)[0];
        assert_eq!(page.changes.iter().sum::<f64>(), 5.0);
        let (morning, night) = (page.chance[8], page.chance[20]);
        assert!(morning > 4.0 * night, "{morning} {night}");
    }

    #[test]
    fn the_plot_is_sound_whatever_the_harvest_is_called() {
        let curves = [("mixed", vec![0.1, 0.5]), ("a<b", vec![0.2, 1.0])];
        let svg = plot("<b>&\x1b", &[1, 2], &curves);
        assert!(svg.contains("&lt;b&gt;&amp;"), "{svg}");
        assert!(!svg.contains('\x1b') && !svg.contains("a<b"), "{svg}");
        assert_eq!(svg.matches("<polyline").count(), 2);
    }
}
