//! A run that visits what the archive knows: which URLs, why each of them, and in which jobs.
//!
//! The lists of changes and ranks are read twice (three times for the Lagrange index): first what is known of each candidate goes into a file of records of one length, and into sums
//! and classes from which the price of a visit follows; each gets its priority, and a histogram says from which one on they are taken; then the lists
//! are read again and those are given out. Memory does not depend on how many there are. The same lists, definition and time give the same visits.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, Write};
use std::path::Path;

use ecluse_cdx::Sorter;
use ecluse_changes::ArchiveTime;
use ecluse_generation::IndexDirectory;
use ecluse_refresh::{
    CompletenessOf, LagrangeIndex, LagrangeSettings, PageClass, PagePeriods, PageValue, Prices,
    RefreshPolicy, price_of_classes,
};
use ecluse_scope::Limit;
use ecluse_stage::Failure;
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use crate::candidates::{Candidate, CandidateLists, CandidateReader};
use crate::planning::{HarvestPlan, LargestDomain, PlannedJob, Planning};
use crate::priority::{PriorityCut, PriorityHistogram};
use crate::refresh::{RefreshDefinition, VisitPolicy};
use crate::split::JobDraft;
use crate::traps::TrapFile;
use crate::visits::{PlannedVisit, VisitReason, VisitWriter};

const DAY: f64 = 86_400.0;
/// The most urgent visits that a preview shows.
const SHOWN: usize = 10;
/// Pages from which the prices of the Lagrange index are found.
const SAMPLE: usize = 2_000;
/// Periods that it looks ahead and tells ages apart, at most.
const AHEAD: usize = 168;
const AGES: usize = 72;
/// Steps in which its prices are found.
const STEPS: u32 = 40;
/// Octaves of importance and of rates that are told apart, and parts of each.
const IMPORTANCES: usize = 48;
const RATES: usize = 40;
const PARTS: usize = 4;

/// What a run is made of, beside the register.
pub struct RefreshSources<'a> {
    /// The directory of links and ranks.
    pub links: &'a Path,
    /// The directory of what is known of changes.
    pub changes: &'a Path,
    /// Traps for all harvests, and for domains.
    pub traps: &'a TrapFile,
}

/// What the visits of a run come to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct RefreshSummary {
    /// By which rule.
    pub policy: String,
    /// How many visits there may be.
    pub budget: u64,
    /// Pages that could be visited again.
    pub known: u64,
    /// URLs that were never fetched.
    pub unknown: u64,
    /// Pages that were not visited for longer than they may.
    pub forgotten: u64,
    /// Visits, by reason.
    pub visits: BTreeMap<String, u64>,
    /// Visits, by level.
    pub levels: [u64; 5],
    /// Sites that are larger than all visits of a run.
    pub too_large: u64,
    /// The generation of the ranks.
    pub links: Option<u64>,
    /// The generation of what is known of changes.
    pub changes: Option<u64>,
}

/// The visits of a run.
pub struct PlannedVisits {
    /// What it comes to.
    pub plan: HarvestPlan,
    /// Its jobs.
    pub drafts: Vec<JobDraft>,
    /// The most urgent of them.
    pub first: Vec<PlannedVisit>,
    /// All of them, packed, in the order of keys.
    pub(crate) file: File,
    /// Job, level, URL and domain, in the order in which they stand in the orders.
    pub(crate) seeds: Sorter,
}

/// What is kept of a candidate between two readings of the lists.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Entry {
    side: u8,
    flags: u8,
    rank: f32,
    relevance: f32,
    /// Changes a day.
    rate: f32,
    /// Days since the last visit.
    age: f32,
    /// What the hour brings, or a visit is expected to find; or a number by chance.
    hour: f32,
    /// What a week brings.
    week: f32,
}

const ENTRY_BYTES: usize = 28;
/// Pages that are known.
const REFRESH: usize = 0;
/// URLs that were never fetched.
const DISCOVERY: usize = 1;
/// Pages that were not visited for too long.
const FORGOTTEN: usize = 2;
/// Not to be visited now.
const NOBODY: usize = 3;
const BEGINS_SITE: u8 = 1;
const IS_ANNOUNCED: u8 = 2;

impl Entry {
    fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        let mut bytes = [0; ENTRY_BYTES];
        (bytes[0], bytes[1]) = (self.side, self.flags);
        let numbers = [
            self.rank,
            self.relevance,
            self.rate,
            self.age,
            self.hour,
            self.week,
        ];
        for (place, number) in bytes[4..].chunks_exact_mut(4).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        out.write_all(&bytes)
    }

    fn read(from: &mut impl Read) -> std::io::Result<Option<Self>> {
        let mut bytes = [0; ENTRY_BYTES];
        if let Err(error) = from.read_exact(&mut bytes) {
            return match error.kind() {
                std::io::ErrorKind::UnexpectedEof => Ok(None),
                _ => Err(error),
            };
        }
        let number = |at: usize| {
            let place = 4 + 4 * at;
            f32::from_le_bytes(bytes[place..place + 4].try_into().expect("four bytes"))
        };
        Ok(Some(Self {
            side: bytes[0],
            flags: bytes[1],
            rank: number(0),
            relevance: number(1),
            rate: number(2),
            age: number(3),
            hour: number(4),
            week: number(5),
        }))
    }
}

/// What was summed up when the lists were first read.
struct Survey {
    entries: File,
    pages: u64,
    ranks: f64,
    candidates: [u64; 4],
    classes: ValueClasses,
    sample: PageSample,
}

/// Counts pages by importance and rate, so that a price is found without reading them again.
///
/// Importance is told by octaves of the rank, since the mean is not known while they are read.
struct ValueClasses {
    cells: Vec<[f64; 3]>,
}

impl ValueClasses {
    fn new() -> Self {
        Self {
            cells: vec![[0.0; 3]; IMPORTANCES * RATES * PARTS * PARTS],
        }
    }

    fn add(&mut self, rank: f64, rate: f64) {
        let part = |value: f64, least: f64, count: usize| {
            let at = (value.max(1e-300).log2() - least) * PARTS as f64;
            at.clamp(0.0, (count * PARTS - 1) as f64) as usize
        };
        let row = part(rank, -40.0, IMPORTANCES);
        let cell = &mut self.cells[row * RATES * PARTS + part(rate, -16.0, RATES)];
        *cell = [cell[0] + 1.0, cell[1] + rank, cell[2] + rate];
    }

    /// Returns the classes with importance by the mean and rates by the time between two runs.
    fn values(&self, importance: impl Fn(f64) -> f64, days: f64) -> Vec<PageClass> {
        let full = self.cells.iter().filter(|cell| cell[0] > 0.0);
        full.map(|[pages, rank, rate]| PageClass {
            value: PageValue {
                importance: importance(rank / pages),
                rate: rate / pages * days,
            },
            pages: *pages,
        })
        .collect()
    }
}

/// Some of the pages, always the same ones: those whose keys have the lowest digests.
#[derive(Default)]
struct PageSample {
    pages: BTreeMap<(u64, String), SampledPage>,
}

struct SampledPage {
    rank: f32,
    age: f64,
    week: f64,
    periods: PagePeriods,
}

impl PageSample {
    fn offers(&self, number: u64) -> bool {
        self.pages.len() < SAMPLE
            || self
                .pages
                .last_key_value()
                .is_some_and(|((greatest, _), _)| number < *greatest)
    }

    fn add(&mut self, number: u64, surt: &str, page: SampledPage) {
        self.pages.insert((number, surt.to_owned()), page);
        if self.pages.len() > SAMPLE {
            self.pages.pop_last();
        }
    }
}

/// A number that depends on a text alone.
fn number_of(text: &str) -> u64 {
    // FNV-1a, and its bits mixed.
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in text.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// Plans the visits of a run.
pub struct Refreshing<'a> {
    planning: &'a Planning<'a>,
    refresh: &'a RefreshDefinition,
    sources: &'a RefreshSources<'a>,
    lists: CandidateLists,
    generations: [Option<u64>; 2],
    now: i64,
    /// Days between this run and the next.
    days: f64,
}

impl<'a> Refreshing<'a> {
    /// Looks where the lists are; none where the harvest visits no pages again.
    ///
    /// # Errors
    /// When a directory cannot be read.
    pub fn open(
        planning: &'a Planning<'a>,
        sources: &'a RefreshSources<'a>,
    ) -> Result<Option<Self>, Failure> {
        let Some(refresh) = &planning.harvest.definition.refresh else {
            return Ok(None);
        };
        let index = planning.harvest.definition.index.as_str();
        let collection = (!index.is_empty()).then_some(index);
        let mut found = [None, None];
        let mut generations = [None, None];
        let directories = [(sources.links, None), (sources.changes, collection)];
        for (at, (path, collection)) in directories.into_iter().enumerate() {
            let directory = IndexDirectory::of(path, collection).map_err(Failure::halt)?;
            generations[at] = directory.current_number().map_err(Failure::halt)?;
            // By its number: the link may lead elsewhere when the lists are read again.
            found[at] = generations[at].map(|number| directory.generation(number));
        }
        let [links, changes] = found;
        let schedule = &planning.harvest.schedule;
        let next = schedule.next_after(planning.now);
        let interval = next.map(|next| next.duration_since(planning.now));
        let interval = interval
            .or_else(|| schedule.shortest_interval(schedule.from))
            .unwrap_or(SignedDuration::from_hours(24));
        Ok(Some(Self {
            planning,
            refresh,
            sources,
            lists: CandidateLists {
                links,
                changes,
                with_hours: refresh.policy.is_by_hours(),
            },
            generations,
            now: planning.now.as_second(),
            days: (interval.as_secs_f64() / DAY).max(1.0 / 1440.0),
        }))
    }

    /// Plans the visits; `job_name` names a job by its number.
    ///
    /// # Errors
    /// When a list or a temporary file fails.
    pub fn plan(&self, job_name: &dyn Fn(usize) -> String) -> Result<PlannedVisits, Failure> {
        let mut left_out = BTreeMap::new();
        let mut survey = self.survey(&mut left_out)?;
        let ranking = self.ranking(&survey);
        let mut cuts = self.prioritise(&mut survey, &ranking)?;
        let mut planned = self.give_out(&mut survey, &mut cuts, job_name)?;
        planned.plan.left_out = left_out;
        Ok(planned)
    }

    fn reader(&self) -> Result<CandidateReader<'_>, Failure> {
        CandidateReader::open(self.planning, self.sources.traps, &self.lists)
    }

    fn temporary(&self) -> Result<File, Failure> {
        Ok(tempfile::tempfile_in(self.planning.temporary)?)
    }

    /// Reads the lists for the first time.
    fn survey(&self, left_out: &mut BTreeMap<&'static str, u64>) -> Result<Survey, Failure> {
        let mut entries = BufWriter::with_capacity(256 << 10, self.temporary()?);
        let mut survey = Survey {
            entries: self.temporary()?,
            pages: 0,
            ranks: 0.0,
            candidates: [0; 4],
            classes: ValueClasses::new(),
            sample: PageSample::default(),
        };
        let mut reader = self.reader()?;
        while let Some(candidate) = reader.next()? {
            let entry = self.entry(&candidate);
            entry.write(&mut entries)?;
            survey.candidates[usize::from(entry.side)] += 1;
            if candidate.reason == VisitReason::Refresh {
                survey.pages += 1;
                survey.ranks += f64::from(entry.rank);
            }
            if usize::from(entry.side) == REFRESH {
                survey.classes.add(f64::from(entry.rank), candidate.rate);
            }
            if self.refresh.policy == VisitPolicy::Lagrange {
                self.sample(&candidate, &entry, &mut survey.sample);
            }
        }
        *left_out = reader.left_out;
        survey.entries = entries.into_inner().map_err(|error| error.into_error())?;
        Ok(survey)
    }

    fn entry(&self, candidate: &Candidate) -> Entry {
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
        if let Some(hours) = &candidate.hours {
            let seconds = (age * DAY) as i64;
            hour = match self.refresh.policy {
                VisitPolicy::ImportancePattern => hours.gain(self.now),
                _ => hours.belief(self.now, seconds),
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
            .smoothed()
            .periods(self.now, self.period(), ages, ahead);
        let page = SampledPage {
            rank: entry.rank,
            age: f64::from(entry.age),
            week: f64::from(entry.week),
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
    fn ranking(&self, survey: &Survey) -> Ranking {
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
                    worth: ranking.worth(page.rank, page.week),
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

    /// Gives every candidate its priority, and finds where to cut.
    fn prioritise(&self, survey: &mut Survey, ranking: &Ranking) -> Result<Cuts, Failure> {
        let mut out = BufWriter::with_capacity(256 << 10, self.temporary()?);
        let mut histograms = [(); 3].map(|()| PriorityHistogram::new());
        survey.entries.rewind()?;
        let mut entries = BufReader::with_capacity(256 << 10, &survey.entries);
        if self.refresh.policy == VisitPolicy::Sites {
            return self.prioritise_sites(&mut entries, out, ranking);
        }
        let mut reader = match ranking.lagrange {
            Some(_) => Some(self.reader()?),
            None => None,
        };
        let mut count = 0;
        while let Some(entry) = Entry::read(&mut entries)? {
            count += 1;
            self.planning.look(count)?;
            let candidate = match &mut reader {
                Some(reader) => reader.next()?,
                None => None,
            };
            let priority = match usize::from(entry.side) {
                REFRESH => match (&ranking.lagrange, candidate) {
                    (Some(prices), Some(candidate)) => {
                        self.index(ranking, prices, &candidate, &entry)
                    }
                    (_, _) => ranking.priority(&entry),
                },
                FORGOTTEN => entry.age,
                DISCOVERY => (entry.relevance.max(0.0) + entry.rank).min(f32::MAX),
                _ => f32::NEG_INFINITY,
            };
            if usize::from(entry.side) != NOBODY {
                histograms[usize::from(entry.side)].add(priority, 1);
            }
            out.write_all(&priority.to_le_bytes())?;
        }
        let counts = [REFRESH, DISCOVERY, FORGOTTEN].map(|side| survey.candidates[side]);
        let budgets = divide(self.refresh.budget, self.refresh.discovery, counts);
        let file = out.into_inner().map_err(|error| error.into_error())?;
        Ok(Cuts {
            priorities: file,
            cuts: [0, 1, 2].map(|side| histograms[side].cut(budgets[side])),
            ranking: ranking.clone(),
            sites: None,
            too_large: 0,
        })
    }

    /// What a visit now gains over one at a later run.
    fn index(
        &self,
        ranking: &Ranking,
        prices: &[f64],
        candidate: &Candidate,
        entry: &Entry,
    ) -> f32 {
        let Some(hours) = &candidate.hours else {
            return 0.0;
        };
        let (_, ahead, ages) = self.horizon();
        let smooth = hours.smoothed();
        let mut page = smooth.periods(self.now, self.period(), ages, ahead);
        page.worth = ranking.worth(entry.rank, f64::from(entry.week));
        let age = ranking.periods(f64::from(entry.age)).min(ages);
        let index = LagrangeIndex::after(&page, ages, prices, ages).at(0, age);
        // Ages are whole runs in the index; what this visit finds is known by the hour.
        let by_runs = (ages + 1 - age..=ages).fold(0.0, |found, at| {
            page.gain[at] + (1.0 - page.chance[at]) * found
        });
        let by_hours = smooth.belief(self.now, (f64::from(entry.age) * DAY) as i64);
        (index + page.worth * (by_hours - by_runs)) as f32
    }

    /// Sites are taken whole, by what fetching them gains for each of their pages.
    fn prioritise_sites(
        &self,
        entries: &mut impl Read,
        out: BufWriter<File>,
        ranking: &Ranking,
    ) -> Result<Cuts, Failure> {
        let mut sites = BufWriter::with_capacity(64 << 10, self.temporary()?);
        let mut histogram = PriorityHistogram::new();
        let mut site: Option<SiteSums> = None;
        let mut too_large = 0;
        let mut close = |site: Option<SiteSums>| -> Result<(), Failure> {
            let Some(site) = site else {
                return Ok(());
            };
            // One that is larger than all visits of a run is never taken, and told.
            let priority = match site.pages > self.refresh.budget {
                true => {
                    too_large += 1;
                    f32::NEG_INFINITY
                }
                false => site.priority() as f32,
            };
            if priority > f32::NEG_INFINITY && site.pages > 0 {
                histogram.add(priority, site.pages);
            }
            sites.write_all(&priority.to_le_bytes())?;
            sites.write_all(&site.pages.to_le_bytes())?;
            Ok(())
        };
        while let Some(entry) = Entry::read(entries)? {
            if entry.flags & BEGINS_SITE != 0 {
                close(site.take())?;
            }
            site.get_or_insert_default().add(&entry, ranking);
        }
        close(site)?;
        let mut sites = sites.into_inner().map_err(|error| error.into_error())?;
        sites.rewind()?;
        let cut = histogram.cut(self.refresh.budget);
        Ok(Cuts {
            priorities: out.into_inner().map_err(|error| error.into_error())?,
            cuts: [cut; 3],
            ranking: ranking.clone(),
            sites: Some(BufReader::new(sites)),
            too_large,
        })
    }

    /// Reads the lists again and gives out what is visited.
    fn give_out(
        &self,
        survey: &mut Survey,
        cuts: &mut Cuts,
        job_name: &dyn Fn(usize) -> String,
    ) -> Result<PlannedVisits, Failure> {
        survey.entries.rewind()?;
        cuts.priorities.rewind()?;
        let mut entries = BufReader::with_capacity(256 << 10, &survey.entries);
        let mut priorities = BufReader::with_capacity(256 << 10, cuts.priorities.try_clone()?);
        let least = cuts.cuts.map(|cut| f64::from(cut.least()));
        let mut dealer = VisitDealer::new(self, job_name)?;
        let mut reader = self.reader()?;
        let mut site = (f32::NEG_INFINITY, false);
        while let Some(candidate) = reader.next()? {
            let entry = Entry::read(&mut entries)?
                .ok_or_else(|| Failure::halt("the lists are not as they were"))?;
            let side = usize::from(entry.side);
            let (priority, is_taken) = match &mut cuts.sites {
                Some(sites) => {
                    if entry.flags & BEGINS_SITE != 0 {
                        let (priority, pages) = read_site(sites)?;
                        let is_taken = priority > f32::NEG_INFINITY
                            && pages > 0
                            && cuts.cuts[0].takes(priority, pages);
                        site = (priority, is_taken);
                    }
                    (site.0, site.1 && side != NOBODY)
                }
                None => {
                    let mut bytes = [0; 4];
                    priorities.read_exact(&mut bytes)?;
                    let priority = f32::from_le_bytes(bytes);
                    let is_taken = side != NOBODY && cuts.cuts[side].takes(priority, 1);
                    (priority, is_taken)
                }
            };
            if is_taken {
                let level = match (candidate.reason, side) {
                    (VisitReason::Perimeter, _) | (_, FORGOTTEN) => 0,
                    (_, _) => level_of(f64::from(priority), least[side]),
                };
                let due = cuts.ranking.due_since(&entry, candidate.last);
                dealer.give(candidate, level, priority, due)?;
            }
        }
        let mut planned = dealer.finish()?;
        let summary = planned.plan.refresh.get_or_insert_default();
        summary.policy = self.refresh.policy.word().to_owned();
        summary.budget = self.refresh.budget;
        summary.known = survey.candidates[REFRESH] + survey.candidates[FORGOTTEN];
        summary.unknown = survey.candidates[DISCOVERY];
        summary.forgotten = survey.candidates[FORGOTTEN];
        summary.too_large = cuts.too_large;
        [summary.links, summary.changes] = self.generations;
        Ok(planned)
    }
}

/// What the priorities of a run follow from.
#[derive(Debug, Clone)]
struct Ranking {
    policy: VisitPolicy,
    objective: CompletenessOf,
    mean_rank: f64,
    least: f64,
    days: f64,
    /// The rule and the price of a visit.
    division: Option<(RefreshPolicy, f64)>,
    /// Visits for a unit of importance.
    signals: f64,
    /// The price of a visit at this run and those after it.
    lagrange: Option<Vec<f64>>,
}

impl Ranking {
    /// Importance by the mean; pages of which no rank is known are like the mean where none has one.
    fn importance(&self, rank: f64) -> f64 {
        match self.mean_rank > 0.0 {
            true => (rank / self.mean_rank).max(self.least),
            false => 1.0,
        }
    }

    /// What a unit of importance of changes on a page is worth.
    fn worth(&self, rank: f32, week: f64) -> f64 {
        let importance = self.importance(f64::from(rank));
        match self.objective {
            CompletenessOf::EachPage => importance / week.max(1e-3),
            CompletenessOf::Everything => importance,
        }
    }

    /// How many runs ago a page was last visited.
    fn periods(&self, age_days: f64) -> usize {
        ((age_days / self.days).round() as usize).max(1)
    }

    /// How many visits a page gets at each run.
    fn visits(&self, entry: &Entry) -> Option<f64> {
        let (division, price) = self.division?;
        let value = PageValue {
            importance: self.importance(f64::from(entry.rank)),
            rate: f64::from(entry.rate) * self.days,
        };
        Some(division.visits_at(value, price).min(1.0))
    }

    fn priority(&self, entry: &Entry) -> f32 {
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
                self.worth(entry.rank, f64::from(entry.week)) * f64::from(entry.hour)
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
    fn due_since(&self, entry: &Entry, last: Option<ArchiveTime>) -> Option<ArchiveTime> {
        let visits = self.visits(entry).filter(|visits| *visits > 0.0)?;
        let after = (self.days / visits).min(36_500.0);
        let is_due = f64::from(entry.age) >= after;
        let last = last.filter(|_| is_due)?;
        ArchiveTime::from_seconds(last.seconds() + (after * DAY) as i64)
    }
}

/// What is summed up of a site.
#[derive(Debug, Default)]
struct SiteSums {
    pages: u64,
    importance: f64,
    weighted: f64,
    rates: f64,
    since: f64,
}

impl SiteSums {
    fn add(&mut self, entry: &Entry, ranking: &Ranking) {
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
    fn priority(&self) -> f64 {
        let pages = self.pages.max(1) as f64;
        let rate = match self.importance > 0.0 {
            true => self.weighted / self.importance,
            false => self.rates / pages,
        };
        self.importance * self.since * rate / pages
    }
}

/// Priorities, and from which one on candidates are taken.
struct Cuts {
    priorities: File,
    cuts: [PriorityCut; 3],
    ranking: Ranking,
    /// Priority and size of each site, where sites are taken whole.
    sites: Option<BufReader<File>>,
    too_large: u64,
}

fn read_site(sites: &mut impl Read) -> Result<(f32, u64), Failure> {
    let mut bytes = [0; 12];
    sites.read_exact(&mut bytes)?;
    let [priority, pages] = [&bytes[..4], &bytes[4..]];
    Ok((
        f32::from_le_bytes(priority.try_into().expect("four bytes")),
        u64::from_le_bytes(pages.try_into().expect("eight bytes")),
    ))
}

/// How many visits go to known pages, to URLs that were never fetched, and to pages nobody visited for too long; what one cannot use goes to the others.
fn divide(budget: u64, discovery: f64, candidates: [u64; 3]) -> [u64; 3] {
    let [known, unknown, forgotten] = candidates;
    let for_discovery = ((budget as f64 * discovery).round() as u64).min(budget);
    let rest = budget - for_discovery;
    let mut visits = [0, for_discovery.min(unknown), (rest / 2).min(forgotten)];
    visits[REFRESH] = (budget - visits[DISCOVERY] - visits[FORGOTTEN]).min(known);
    for (side, candidates) in [(FORGOTTEN, forgotten), (DISCOVERY, unknown)] {
        let spent: u64 = visits.iter().sum();
        visits[side] = (visits[side] + budget - spent).min(candidates);
    }
    visits
}

/// How urgent a visit is, by how far it is above the last one that is taken: from 1 to 4.
fn level_of(priority: f64, least: f64) -> u8 {
    let above = |times: f64| priority > 0.0 && priority >= least.max(1e-30) * times;
    match () {
        () if above(8.0) => 1,
        () if above(4.0) => 2,
        () if above(2.0) => 3,
        () => 4,
    }
}

/// Deals visits to jobs as they come, in the order of keys.
struct VisitDealer<'a> {
    refreshing: &'a Refreshing<'a>,
    job_name: &'a dyn Fn(usize) -> String,
    drafts: Vec<JobDraft>,
    /// The job that is open for a group of settings, and its last domain with its visits.
    open: BTreeMap<usize, OpenJob>,
    seeds: Sorter,
    visits: VisitWriter<BufWriter<File>>,
    first: BTreeMap<(u8, u32, String), PlannedVisit>,
    summary: RefreshSummary,
    largest: BTreeMap<(u64, String), ()>,
}

struct OpenJob {
    number: usize,
    domain: std::rc::Rc<str>,
    visits: u64,
}

impl<'a> VisitDealer<'a> {
    fn new(
        refreshing: &'a Refreshing<'a>,
        job_name: &'a dyn Fn(usize) -> String,
    ) -> Result<Self, Failure> {
        let file = BufWriter::with_capacity(64 << 10, refreshing.temporary()?);
        Ok(Self {
            refreshing,
            job_name,
            drafts: Vec::new(),
            open: BTreeMap::new(),
            seeds: refreshing.planning.sorter(),
            visits: VisitWriter::new(file)?,
            first: BTreeMap::new(),
            summary: RefreshSummary::default(),
            largest: BTreeMap::new(),
        })
    }

    fn give(
        &mut self,
        candidate: Candidate,
        level: u8,
        value: f32,
        due: Option<ArchiveTime>,
    ) -> Result<(), Failure> {
        let job = self.job_of(&candidate);
        let page = candidate.page;
        let visit = PlannedVisit {
            job: (self.job_name)(job),
            level,
            reason: candidate.reason,
            // What the definition names is not chosen by a number.
            value: if value >= f32::MAX { 0.0 } else { value },
            due_since: due.map(|due| due.to_string()),
            last: candidate.last.map(|last| last.to_string()),
            etag: page.as_ref().and_then(|page| page.etag.clone()),
            last_modified: page.and_then(|page| page.last_modified),
            surt: candidate.surt,
            url: candidate.url,
        };
        let line = format!(
            "{job:08}\t{level}\t{}\t{}\t{}",
            visit.surt, visit.url, candidate.domain
        );
        self.seeds.push(line.as_bytes()).map_err(Failure::halt)?;
        self.visits.write(&visit)?;
        let reason = visit.reason.word().to_owned();
        *self.summary.visits.entry(reason).or_default() += 1;
        self.summary.levels[usize::from(level)] += 1;
        // Positive numbers sort as their bits do: the greatest first.
        let below = u32::MAX - visit.value.max(0.0).to_bits();
        self.first.insert((level, below, visit.surt.clone()), visit);
        if self.first.len() > SHOWN {
            self.first.pop_last();
        }
        Ok(())
    }

    /// Returns the job that takes it: a full one is followed by another, but not in the middle of a domain that fits.
    fn job_of(&mut self, candidate: &Candidate) -> usize {
        let limits = &self.refreshing.planning.settings.jobs;
        let group = u32::try_from(candidate.group).unwrap_or(u32::MAX);
        let open = self.open.get_mut(&candidate.group);
        let is_new_domain = open
            .as_ref()
            .is_none_or(|open| open.domain != candidate.domain);
        let is_full = open.as_ref().is_none_or(|open| {
            let draft = &self.drafts[open.number];
            draft.objects >= limits.objects || (is_new_domain && draft.domains >= limits.domains)
        });
        if is_full {
            self.drafts.push(JobDraft {
                group,
                domains: 0,
                objects: 0,
                bytes: 0,
                largest: 0,
            });
        }
        let number = match (is_full, &open) {
            (false, Some(open)) => open.number,
            (_, _) => self.drafts.len() - 1,
        };
        let visits = match (is_new_domain || is_full, open) {
            (false, Some(open)) => open.visits + 1,
            (_, _) => 1,
        };
        let draft = &mut self.drafts[number];
        draft.domains += u64::from(visits == 1);
        draft.objects += 1;
        draft.largest = draft.largest.max(visits);
        if visits > 1 {
            self.largest
                .remove(&(visits - 1, candidate.domain.to_string()));
        }
        self.largest
            .insert((visits, candidate.domain.to_string()), ());
        if self.largest.len() > SHOWN {
            self.largest.pop_first();
        }
        let domain = std::rc::Rc::clone(&candidate.domain);
        self.open.insert(
            candidate.group,
            OpenJob {
                number,
                domain,
                visits,
            },
        );
        number
    }

    fn finish(self) -> Result<PlannedVisits, Failure> {
        let limits = &self.refreshing.planning.settings.jobs;
        let jobs: Vec<PlannedJob> = self
            .drafts
            .iter()
            .map(|draft| PlannedJob {
                group: draft.group as usize,
                domains: draft.domains,
                objects: draft.objects,
                bytes: draft.bytes,
                fill: (draft.fill(limits) * 1000.0).round() / 1000.0,
            })
            .collect();
        let largest = self.largest.into_keys().rev();
        let plan = HarvestPlan {
            generation: self
                .refreshing
                .planning
                .register
                .current()
                .map_err(Failure::halt)?,
            domains: jobs.iter().map(|job| job.domains).sum(),
            objects: jobs.iter().map(|job| job.objects).sum(),
            largest: largest
                .map(|(objects, domain)| LargestDomain { domain, objects })
                .collect(),
            jobs,
            refresh: Some(self.summary),
            ..HarvestPlan::default()
        };
        let mut file = self
            .visits
            .finish()?
            .into_inner()
            .map_err(|error| error.into_error())?;
        file.rewind()?;
        Ok(PlannedVisits {
            plan,
            drafts: self.drafts,
            first: self.first.into_values().collect(),
            file,
            seeds: self.seeds,
        })
    }
}
