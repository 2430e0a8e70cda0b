//! Weeks of runs without a crawl: the worlds of `benches/weeks.rs`, and what the policies catch of them, learning as they go.
//!
//! Histories, patterns, rules and cuts are the real ones; only files, jobs and the network are left out. It takes seconds.

use std::rc::Rc;

use ecluse_changes::{
    ArchiveTime, ElementCounts, HistorySettings, PageHistory, PatternOf, PatternSums, ReadOutcome,
    VersionChange,
};
use ecluse_refresh::{Completeness, CompletenessOf, Dice, PageRecord};

use super::cuts::divide;
use super::entry::{DISCOVERY, FORGOTTEN, NOBODY, REFRESH};
use super::rules::RunRules;
use super::survey::Survey;
use crate::candidates::{Candidate, UNKNOWN_RATE};
use crate::hours::{HoursKnown, PageHours, SiteShape};
use crate::priority::PriorityHistogram;
use crate::refresh::{RefreshDefinition, VisitPolicy};
use crate::visits::VisitReason;

const HOUR: i64 = 3600;
/// A Monday.
const BEGIN: i64 = 1_794_787_200;
/// What `stage.change` has.
const HISTORY: HistorySettings = HistorySettings {
    periods: 24,
    prior_days: 0.5,
    pattern_gap_days: 7.0,
    pattern_changes: 5,
    unweighed: 0.1,
};

#[derive(Debug, Clone, Copy, PartialEq)]
enum World {
    /// All that changes by hours does so at one hour, or twelve hours later.
    Press,
    /// Each page has an hour of its own.
    Scattered,
    /// Half of it never changes, and a quarter once a week.
    Quiet,
    /// Nothing comes by hours: rates from once in two months to ten times a day.
    Chance,
}

/// The moments at which a page changes, in hours from the beginning.
fn changes(world: World, page: usize, hours: i64, seed: u64) -> Vec<i64> {
    let mut dice = Dice::new(seed * 1000 + page as u64);
    if world == World::Chance {
        let rate = dice.between((1.0f64 / 60.0).ln(), 10f64.ln()).exp() / 24.0;
        return (0..hours)
            .filter(|_| dice.unit() < 1.0 - (-rate).exp())
            .collect();
    }
    let number = page as i64;
    // The first seed is the web of the bench; the others have their hours and days by chance.
    let (hour, weekday) = match (world, seed) {
        (World::Press, 0) => (5, (number / 8) % 5),
        (World::Press, _) => (
            Dice::new(seed).between(0.0, 24.0) as i64,
            dice.between(0.0, 5.0) as i64,
        ),
        (_, 0) => ((number * 7 + 3) % 24, (number / 8) % 5),
        (_, _) => (
            dice.between(0.0, 24.0) as i64,
            dice.between(0.0, 5.0) as i64,
        ),
    };
    let kind = match world {
        World::Quiet => [0, 1, 2, 2, 4, 4, 4, 4],
        _ => [0, 0, 1, 1, 2, 2, 3, 4],
    }[page % 8];
    let is_change = |at: &i64| {
        let (day, now) = ((at / 24) % 7, at % 24);
        match kind {
            0 => now % 12 == hour % 12,
            1 => now == hour && day < 5,
            2 => now == hour && day == weekday,
            3 => true,
            _ => false,
        }
    };
    (0..hours).filter(is_change).collect()
}

struct RehearsedPage {
    surt: String,
    /// The hours of its changes.
    changes: Vec<i64>,
    history: Option<PageHistory>,
    last: Option<ArchiveTime>,
    version: usize,
    earned: f64,
}

impl RehearsedPage {
    fn version_at(&self, now: i64) -> usize {
        self.changes
            .partition_point(|hour| BEGIN + hour * HOUR <= now)
    }

    fn visit(&mut self, now: i64) {
        let version = self.version_at(now);
        // The crawl comes a minute after the plan.
        let time = ArchiveTime::from_seconds(now + 60).unwrap();
        let line = VersionChange {
            surt: self.surt.clone(),
            time,
            digest: version.to_string(),
            before: None,
            weight: self.last.map(|_| 0.1),
            counts: ElementCounts::default(),
            simhash: None,
            distance: None,
            text_weight: None,
            etag: None,
            last_modified: None,
            outcome: ReadOutcome::Read,
            words: None,
        };
        let is_new = self.last.is_none() || version != self.version;
        match &mut self.history {
            Some(history) => history.see(time, "u", is_new.then_some(&line)),
            None => self.history = Some(PageHistory::begin(HISTORY, "u", &line)),
        }
        if is_new && version > 0 {
            self.earned += 1.0;
        }
        self.version = version;
        self.last = Some(time);
    }
}

/// What is known of the pages at a run.
fn candidates(pages: &[RehearsedPage]) -> Vec<Candidate> {
    let finish = |page: &RehearsedPage| page.history.clone().map(PageHistory::finish);
    let known: Vec<_> = pages.iter().map(finish).collect();
    let mut site = PatternSums::new(HISTORY.periods);
    for (_, pattern) in known.iter().flatten() {
        if let Some(pattern) = pattern {
            site.add(&pattern.sums);
        }
    }
    let shape = SiteShape::of(&site).map(Rc::new);
    let of_page = |(page, known): (&RehearsedPage, _)| {
        let (changes, pattern): (Option<ecluse_changes::PageChanges>, Option<_>) = match known {
            Some((changes, pattern)) => (Some(changes), pattern),
            None => (None, None),
        };
        let hours = changes.as_ref().map(|changes| {
            let weight = changes.change_weight;
            let own = match changes.pattern {
                Some(PatternOf::Page) => pattern
                    .and_then(|pattern: ecluse_changes::PagePattern| PageHours::own(&pattern.sums))
                    .map(HoursKnown::Own),
                _ => shape
                    .clone()
                    .map(|shape| HoursKnown::OfSite(shape, changes.rate, weight)),
            };
            own.unwrap_or(HoursKnown::Even(changes.rate, weight))
        });
        Candidate {
            surt: page.surt.clone(),
            url: page.surt.clone(),
            domain: Rc::from("presse.fr"),
            group: 0,
            reason: match page.last {
                Some(_) => VisitReason::Refresh,
                None => VisitReason::Perimeter,
            },
            begins_site: false,
            is_gone: false,
            rank: 0.0,
            relevance: 0.0,
            rate: changes
                .as_ref()
                .map_or(UNKNOWN_RATE, |changes| changes.rate),
            last: page.last,
            page: changes,
            hours,
        }
    };
    pages.iter().zip(known).map(of_page).collect()
}

#[derive(Debug, Clone, Copy)]
struct Rehearsal {
    world: World,
    seed: u64,
    pages: usize,
    days: i64,
    every: i64,
    budget: u64,
    /// Belief is what its paper has: what a visit finds now, whatever waiting would add.
    is_printed: bool,
}

impl Rehearsal {
    /// Returns the completeness, each page by its own changes.
    fn run(&self, policy: VisitPolicy) -> f64 {
        let mut pages: Vec<RehearsedPage> = (0..self.pages)
            .map(|page| RehearsedPage {
                surt: format!("fr,presse)/p{page}"),
                changes: changes(self.world, page, self.days * 24, self.seed),
                history: None,
                last: None,
                version: 0,
                earned: 0.0,
            })
            .collect();
        pages.sort_by(|a, b| a.surt.cmp(&b.surt));
        let refresh = RefreshDefinition {
            policy,
            budget: self.budget,
            ..RefreshDefinition::default()
        };
        for hour in (2..self.days * 24).step_by(usize::try_from(self.every).unwrap()) {
            let rules = RunRules {
                refresh: &refresh,
                now: BEGIN + hour * HOUR,
                days: self.every as f64 / 24.0,
            };
            self.once(&rules, &mut pages);
        }
        let mut completeness = Completeness::default();
        for page in pages.iter().filter(|page| !page.changes.is_empty()) {
            completeness.add(&PageRecord {
                weight: 1.0,
                earned: page.earned,
                total: page.changes.len() as f64,
            });
        }
        completeness.of(CompletenessOf::EachPage)
    }

    fn once(&self, rules: &RunRules<'_>, pages: &mut [RehearsedPage]) {
        let candidates = candidates(pages);
        let mut survey = Survey::new();
        let mut entries: Vec<_> = candidates.iter().map(|one| rules.entry(one)).collect();
        if self.is_printed {
            for (candidate, entry) in candidates.iter().zip(&mut entries) {
                let age = (candidate.age_days(rules.now) * 86_400.0) as i64;
                let hours = candidate.hours.as_ref().map(HoursKnown::hours);
                entry.hour = hours.map_or(0.0, |hours| hours.belief(rules.now, age)) as f32;
            }
        }
        for (candidate, entry) in candidates.iter().zip(&entries) {
            rules.note(&mut survey, candidate, entry);
        }
        let ranking = rules.ranking(&survey);
        let mut histograms = [(); 3].map(|()| PriorityHistogram::new());
        let mut priorities = Vec::new();
        for (candidate, entry) in candidates.iter().zip(&entries) {
            let priority = rules.priority(&ranking, candidate.hours.as_ref(), entry);
            if usize::from(entry.side) != NOBODY {
                histograms[usize::from(entry.side)].add(priority, 1);
            }
            priorities.push(priority);
        }
        let counts = [REFRESH, DISCOVERY, FORGOTTEN].map(|side| survey.candidates[side]);
        let budgets = divide(rules.refresh.budget, rules.refresh.discovery, counts);
        let mut cuts = [0, 1, 2].map(|side| histograms[side].cut(budgets[side]));
        let mut visits = 0;
        for ((page, entry), priority) in pages.iter_mut().zip(&entries).zip(priorities) {
            let side = usize::from(entry.side);
            if side != NOBODY && cuts[side].takes(priority, 1) {
                page.visit(rules.now);
                visits += 1;
            }
        }
        assert!(visits <= self.budget, "{visits} visits");
    }
}

/// Uniform and ∝ change; then those that must catch more.
const POLICIES: [VisitPolicy; 5] = [
    VisitPolicy::Uniform,
    VisitPolicy::ByChange,
    VisitPolicy::Mixed,
    VisitPolicy::Belief,
    VisitPolicy::Lagrange,
];

/// Says what the policies catch, and returns it.
fn caught<const COUNT: usize>(
    world: World,
    seed: u64,
    policies: [VisitPolicy; COUNT],
) -> [f64; COUNT] {
    let rehearsal = Rehearsal {
        world,
        seed,
        pages: 48,
        days: 21,
        every: 4,
        budget: 5,
        is_printed: false,
    };
    let found = policies.map(|policy| rehearsal.run(policy));
    let figures = policies.iter().zip(found);
    let mut line: String = figures
        .map(|(policy, found)| format!("  {} {found:.3}", policy.word()))
        .collect();
    if std::env::var_os("ECLUSE_REHEARSE").is_some() {
        let printed = Rehearsal {
            is_printed: true,
            ..rehearsal
        };
        let found = printed.run(VisitPolicy::Belief);
        line.push_str(&format!("  belief, printed {found:.3}"));
    }
    eprintln!("measured: {world:?} {seed}:{line}");
    found
}

#[test]
fn mixed_belief_and_lagrange_catch_more_than_uniform_and_by_change() {
    let [uniform, by_change, mixed, belief, lagrange] = caught(World::Press, 0, POLICIES);
    let plain = uniform.max(by_change);
    assert!(mixed > plain && belief > plain && lagrange > plain);
    for (world, seeds) in [(World::Press, 1..3), (World::Scattered, 0..3)] {
        for seed in seeds {
            // The Lagrange index takes longer than all others together.
            let policies = [POLICIES[0], POLICIES[1], POLICIES[2], POLICIES[3]];
            let [uniform, by_change, mixed, belief] = caught(world, seed, policies);
            let plain = uniform.max(by_change);
            assert!(mixed > plain && belief > plain, "{world:?} {seed}");
        }
    }
}

/// Of two webs it is only measured: `ECLUSE_REHEARSE=8` has so many seeds of all four, for the table of `docs/planning.md`.
#[test]
fn other_webs_are_measured() {
    let seeds = std::env::var("ECLUSE_REHEARSE").map_or(0, |seeds| seeds.parse().unwrap());
    for world in [World::Press, World::Scattered, World::Quiet, World::Chance] {
        for seed in 0..seeds {
            caught(world, seed, POLICIES);
        }
    }
    let [uniform, belief] = caught(World::Quiet, 0, [POLICIES[0], POLICIES[3]]);
    assert!(belief > uniform);
}
