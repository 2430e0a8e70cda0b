//! Keeps the register of domains, and makes the job orders of harvests when they are due.
//!
//! * **Reads** parcels of checked names, results of jobs and evidence; harvest definitions in `harvests/`, the librarians' rules,
//!   traps; and for each run that is due a small parcel of its own.
//! * **Writes** the next generation of the register, and `news/`: what came into it; the orders of a run, a parcel each, to the crawler
//!   with the fewest; names of which DNS is asked again before a broad harvest, as parcels for dns-filter; and `runs/`: what became of
//!   each run.
//! * **Never** starts a job that nobody can explain, forgets a domain, orders a run twice, or asks about a name while its answer is on its way.
//! * **Defers** while another has the register. **Holds** a parcel with a line that makes no sense, and a run whose definition is
//!   gone or makes no sense any more.
//! * **Again**: the same parcels give the same register, in any order and any batches; the same register and definition give
//!   the same orders.

mod calendar;
mod candidates;
mod changes;
mod clock;
mod definition;
mod forecast;
mod harvests;
mod hours;
mod news;
mod news_log;
mod order;
mod perimeter;
mod planning;
mod priority;
mod rebuilding;
mod recheck;
mod record_view;
mod refresh;
mod refreshing;
mod runs;
mod schedule;
mod sizes;
mod split;
mod traps;
mod visits;
mod zone;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use ecluse_config::{Bytes, Span};
use ecluse_generation::IndexMember;
use ecluse_names::ForcedRules;
use ecluse_register::{Register, RegisterError};
use ecluse_stage::{
    Failure, Home, Inbox, Intake, NewParcel, OutFile, Outbox, Parcel, ParcelId, SettingsCheck,
    ShortestQueue, Stage, digest,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::changes::{ChangeGatherer, EVIDENCE, NAMES, RESULTS};
use crate::news_log::NewsLog;
use crate::order::{JobOrder, SEEDS, order_text};
use crate::planning::day_of;
use crate::recheck::{QuietDay, RECHECK};
use crate::runs::stamp;

pub use crate::calendar::CalendarExpression;
pub use crate::clock::PlanClock;
pub use crate::definition::{
    DefinitionContext, Harvest, HarvestDefinition, HarvestKind, read_harvest,
};
pub use crate::harvests::{HarvestFile, begins_in_the_past, index_fault, read_file, read_harvests};
pub use crate::perimeter::{CriterionScore, Perimeter, PerimeterScore, PerimeterSettings};
pub use crate::planning::{
    CheckProgress, HarvestPlan, LargestDomain, Planned, PlannedJob, Planning,
};
pub use crate::rebuilding::{RebuiltRegister, rebuild_register};
pub use crate::record_view::RecordView;
pub use crate::refresh::{RefreshDefinition, VisitObjective, VisitPolicy};
pub use crate::refreshing::{PlannedVisits, RefreshSources, RefreshSummary, Refreshing};
pub use crate::runs::{RunDirectory, RunRecord, RunState};
pub use crate::schedule::{HarvestSchedule, ScheduleTimes};
pub use crate::sizes::{SizeMethod, SizeSettings};
pub use crate::split::{JobDraft, JobLimits};
pub use crate::traps::TrapFile;
pub use crate::visits::{PlannedVisit, VisitReason, visits_of};

/// What `[stage.plan]` may say.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Settings {
    /// The directory of harvest definitions.
    pub harvests: PathBuf,
    /// What librarians force in and out.
    pub forced: PathBuf,
    /// Traps for all harvests, and for domains.
    pub traps: PathBuf,
    /// The directory of runs.
    pub runs: PathBuf,
    /// The directory of what came into the register.
    pub news: PathBuf,
    /// How many generations of the register stay.
    pub keep: NonZeroU32,
    /// How many results of a domain stay.
    pub history: NonZeroUsize,
    /// How much memory sorting takes.
    pub memory: Bytes,
    /// How long before a broad harvest is due DNS is asked again.
    pub check_ahead: Span,
    /// How many names a parcel for that has at most.
    pub check_list: NonZeroU32,
    /// How much a domain is expected to bring.
    pub sizes: SizeSettings,
    /// How large a job may be.
    pub jobs: JobLimits,
    /// What belongs to the nation's web.
    pub perimeter: PerimeterSettings,
}

/// The stage.
pub struct Plan {
    settings: Settings,
    home: Home,
    clock: PlanClock,
    register: Register,
    runs: RunDirectory,
    news: NewsLog,
    /// Where temporary files may be made.
    temporary: PathBuf,
    /// How far DNS was asked, by harvest, for a generation and a run.
    progress: BTreeMap<String, (Option<u64>, Timestamp, CheckProgress)>,
    /// When broad harvests wanted nothing of DNS.
    quiet: Option<QuietDay>,
    /// What was said of definitions that make no sense.
    complaints: BTreeMap<String, String>,
    /// The queues of the crawlers. Runs of one batch are seen there only when all of it is committed.
    queues: RefCell<ShortestQueue>,
}

/// The small file of a run that is due.
const RUN: &str = "run.json";
/// The small file that says that librarians' rules have changed.
const FORCED: &str = "forced.json";

/// A run that is due.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct DueRun {
    harvest: String,
    #[serde(with = "crate::runs::time_text")]
    due: Timestamp,
    missed: u64,
}

impl Stage for Plan {
    const NAME: &'static str = "plan";
    const ABOUT: &'static str =
        "Keeps the register of domains and makes job orders of harvests that are due";
    const INTAKE: Intake = Intake::Batch;
    const SPREADS: bool = true;
    type Settings = Settings;

    fn check(settings: &Settings, home: &Home, check: &mut SettingsCheck<'_>) {
        check.directory("archive.register", &home.archive.register);
        check.directory("stage.plan.harvests", &settings.harvests);
        check.directory("stage.plan.runs", &settings.runs);
        check.directory("stage.plan.news", &settings.news);
        if let Err(fault) = ForcedRules::read(&home.path(&settings.forced)) {
            check.error("stage.plan.forced", fault);
        }
        if let Err(fault) = TrapFile::read(&home.path(&settings.traps)) {
            check.error("stage.plan.traps", fault);
        }
        for (key, fault) in settings.perimeter.faults() {
            check.error(&format!("stage.plan.perimeter.{key}"), fault);
        }
        if let Err(fault) = Perimeter::open(&settings.perimeter, &home.root) {
            check.error("stage.plan.perimeter.country-file", fault);
        }
        if !(0.01..=1.0).contains(&settings.sizes.quantile) {
            check.error("stage.plan.sizes.quantile", "must be from 0.01 to 1.0");
        }
        if settings.jobs.domains == 0 || settings.jobs.objects == 0 || settings.jobs.ratio == 0 {
            check.error(
                "stage.plan.jobs",
                "domains, objects and ratio must be at least 1",
            );
        }
    }

    fn open(settings: Settings, home: &Home) -> Result<Self, Failure> {
        Ok(Self {
            register: Register::at(&home.register()).map_err(Failure::config)?,
            runs: RunDirectory::at(home.path(&settings.runs)),
            news: NewsLog::at(home.path(&settings.news)),
            temporary: home.temporary(),
            home: home.clone(),
            settings,
            clock: PlanClock::of_environment(),
            progress: BTreeMap::new(),
            quiet: None,
            complaints: BTreeMap::new(),
            queues: RefCell::default(),
        })
    }

    fn watched(settings: &Settings, home: &Home) -> Vec<PathBuf> {
        vec![home.path(&settings.harvests)]
    }

    fn writes(settings: &Settings, home: &Home) -> Vec<PathBuf> {
        vec![
            home.register(),
            home.path(&settings.runs),
            home.path(&settings.news),
        ]
    }

    /// Puts a small parcel for each run that is due, and for rules that have changed.
    fn collect(&mut self, inbox: &mut Inbox<'_>) -> Result<usize, Failure> {
        inbox.take_news();
        self.collect_rules(inbox)?;
        if !self.home.next.is_empty() {
            self.collect_runs(inbox)?;
        }
        Ok(0)
    }

    fn process(&mut self, parcel: &Parcel, outbox: &mut Outbox) -> Result<(), Failure> {
        self.process_batch(std::slice::from_ref(parcel), outbox)
    }

    fn process_batch(&mut self, batch: &[Parcel], outbox: &mut Outbox) -> Result<(), Failure> {
        outbox.consume();
        // The same batch in the same order, whoever claimed its members first.
        let mut members: Vec<&Parcel> = batch.iter().collect();
        members.sort_by(|left, right| left.id().cmp(right.id()));
        let has = |parcel: &Parcel, name| parcel.manifest().file(name).is_some();
        let (work, news): (Vec<&Parcel>, Vec<&Parcel>) = members
            .into_iter()
            .partition(|parcel| has(parcel, RUN) || has(parcel, RECHECK));
        if !news.is_empty() {
            self.grow(&news, outbox)?;
        }
        for parcel in work {
            let done = match has(parcel, RUN) {
                true => self.order(parcel, outbox),
                false => self.ask_again(parcel, outbox),
            };
            done.map_err(|failure| match failure.member {
                None if failure.blame == ecluse_stage::Blame::Parcel => {
                    failure.of_member(parcel.id())
                }
                _ => failure,
            })?;
        }
        Ok(())
    }
}

impl Plan {
    fn collect_rules(&self, inbox: &mut Inbox<'_>) -> Result<(), Failure> {
        let rules = self.rules()?;
        let now = rules
            .text()
            .map_or(String::new(), |text| digest(text.as_bytes()));
        if now == self.runs.forced()? {
            return Ok(());
        }
        let Some(generation) = self.register.current().map_err(Failure::halt)? else {
            return Ok(());
        };
        let short = now.get(..12).unwrap_or("none");
        let id = ParcelId::new(&format!("forced-{short}-{generation}")).map_err(Failure::halt)?;
        let told = serde_json::json!({"digest": now});
        inbox.put(&id, "forced", (FORCED, format!("{told}\n").as_bytes()))
    }

    fn collect_runs(&mut self, inbox: &mut Inbox<'_>) -> Result<(), Failure> {
        let now = self.clock.now()?;
        let mut soon = Vec::new();
        for file in self.harvests()? {
            match file.harvest {
                Ok(harvest) => {
                    if self.collect_harvest(&harvest, now, inbox)?
                        && let Some(due) = self.soon(&harvest, now)?
                    {
                        soon.push((harvest, due));
                    }
                }
                Err(problems) => self.complain(&file.name, problems.join("; ")),
            }
        }
        self.collect_rechecks(soon, now, inbox)
    }

    /// Puts the run of a harvest that is due; tells whether the definition is good.
    fn collect_harvest(
        &mut self,
        harvest: &Harvest,
        now: Timestamp,
        inbox: &mut Inbox<'_>,
    ) -> Result<bool, Failure> {
        let since = self.runs.since(&harvest.name)?;
        let problem = begins_in_the_past(harvest, since, now);
        if let Some(problem) = problem.or_else(|| index_fault(harvest, &self.home.collections)) {
            self.complain(&harvest.name, problem);
            return Ok(false);
        }
        self.complaints.remove(&harvest.name);
        if since.is_none() {
            self.runs.set_since(&harvest.name, now)?;
        }
        let Some(due) = harvest.schedule.last_until(now, harvest.schedule.from) else {
            return Ok(true);
        };
        let known = self.runs.run(&harvest.name, due)?;
        if known
            .as_ref()
            .is_some_and(|run| run.state != RunState::Waiting)
        {
            self.put_run(known.as_ref(), inbox)?;
            return Ok(true);
        }
        let missed = match &known {
            Some(run) => run.missed,
            None => self.missed(harvest, due)?,
        };
        let run = RunRecord::new(&harvest.name, due, now, missed);
        if let Some(progress) = self.waits_for(harvest, due)? {
            self.runs.write(&run.waits(progress))?;
            return Ok(true);
        }
        if let Some(late) = run.late_seconds() {
            tracing::warn!(harvest = harvest.name, %due, late, missed, "a run is late");
        }
        // Put down before the parcel is: killed in between, the run is put again from this.
        self.runs.write(&run)?;
        self.put_run(Some(&run), inbox)?;
        Ok(true)
    }

    fn put_run(&self, run: Option<&RunRecord>, inbox: &mut Inbox<'_>) -> Result<(), Failure> {
        let Some(run) = run.filter(|run| run.state == RunState::Due) else {
            return Ok(());
        };
        let id = ParcelId::new(&format!("run-{}-{}", run.harvest, stamp(run.due)));
        let due = DueRun {
            harvest: run.harvest.clone(),
            due: run.due,
            missed: run.missed,
        };
        let bytes = serde_json::to_vec(&due).map_err(Failure::halt)?;
        inbox.put(&id.map_err(Failure::halt)?, "run", (RUN, &bytes))
    }

    /// Counts the runs between the last one that was begun and this: those that waited until now are missed too.
    fn missed(&self, harvest: &Harvest, due: Timestamp) -> Result<u64, Failure> {
        let after = match self.runs.last_begun(&harvest.name, due)? {
            Some(last) => last.due,
            None => {
                let before = harvest
                    .schedule
                    .from
                    .checked_sub(jiff::SignedDuration::from_nanos(1));
                before.map_err(Failure::halt)?
            }
        };
        let missed = harvest.schedule.count_between(after, due) as u64;
        if missed > 0 {
            tracing::warn!(harvest = harvest.name, %due, missed, "runs before this one were missed");
        }
        Ok(missed)
    }

    /// Returns how far DNS was asked, when that is not far enough.
    fn waits_for(
        &mut self,
        harvest: &Harvest,
        due: Timestamp,
    ) -> Result<Option<CheckProgress>, Failure> {
        if harvest.definition.kind != HarvestKind::Broad {
            return Ok(None);
        }
        let key = (self.register.current().map_err(Failure::halt)?, due);
        let known = self.progress.get(&harvest.name);
        let progress = match known.filter(|known| (known.0, known.1) == key) {
            Some((_, _, progress)) => *progress,
            None => {
                let perimeter = self.perimeter()?;
                let never = || false;
                let planning = self.planning(harvest, &perimeter, due, &never);
                let Some(progress) = planning.check_progress()? else {
                    return Ok(None);
                };
                self.progress
                    .insert(harvest.name.clone(), (key.0, key.1, progress));
                progress
            }
        };
        Ok(Some(progress).filter(|progress| !progress.is_enough()))
    }

    fn complain(&mut self, harvest: &str, problem: String) {
        if self.complaints.get(harvest) != Some(&problem) {
            tracing::warn!(harvest, problem, "the definition is refused");
            self.complaints.insert(harvest.to_owned(), problem);
        }
    }

    /// Brings what parcels tell into the register.
    fn grow(&self, news: &[&Parcel], outbox: &mut Outbox) -> Result<(), Failure> {
        let today =
            day_of(self.clock.now()?).ok_or_else(|| Failure::halt("this day has no date"))?;
        let known: HashSet<(ParcelId, String)> = match self.register.settle() {
            Ok(members) => members
                .into_iter()
                .map(|member| (member.parcel, member.content))
                .collect(),
            Err(error) => return Err(blame(error)),
        };
        let memory = usize::try_from(self.settings.memory.get()).unwrap_or(usize::MAX);
        let mut gatherer = ChangeGatherer::new(memory, &self.temporary, today);
        let rules = self.rules()?;
        let is_stopped = || {
            outbox.tick();
            outbox.stop_asked()
        };
        let mut members = Vec::new();
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        let mut applied = None;
        for parcel in news {
            let member = IndexMember {
                parcel: parcel.id().clone(),
                content: parcel.manifest().content(),
            };
            *counts.entry(kind_of(parcel)).or_default() += 1;
            let is_rules = parcel.manifest().file(FORCED).is_some();
            let is_known = known.contains(&(member.parcel.clone(), member.content.clone()));
            if is_rules {
                applied = Some(
                    rules
                        .text()
                        .map_or(String::new(), |text| digest(text.as_bytes())),
                );
            }
            if is_known {
                continue;
            }
            match is_rules {
                true => {
                    if let Some(number) = self.register.current().map_err(Failure::halt)? {
                        let reader = self.register.read(number).map_err(Failure::halt)?;
                        gatherer.forced(reader, &rules, &is_stopped)?;
                    }
                }
                false => gatherer
                    .take(parcel)
                    .map_err(|failure| failure.of_member(parcel.id()))?,
            }
            members.push(member);
        }
        if gatherer.nameless > 0 {
            tracing::info!(
                results = gatherer.nameless,
                "of what is no domain of a register"
            );
            outbox.fact("nameless-results", gatherer.nameless);
        }
        if gatherer.lines > 0 {
            let named: String = members
                .iter()
                .map(|member| format!("{} {}\n", member.parcel, member.content))
                .collect();
            let name = format!("{today}-{}", &digest(named.as_bytes())[..16]);
            // Before the register shows it: what it is made of can always be read again.
            let mut keep = |lines: &mut std::fs::File| self.news.keep(&name, lines);
            let changes = gatherer.finish(&rules, self.settings.history.get(), &mut keep)?;
            let keep = self.settings.keep.get() as usize;
            let stopped = || outbox.stop_asked();
            let mut fenced = None;
            let mut may_show = || {
                fenced = must_not_be_fenced(news).err();
                fenced.is_none()
            };
            let update = self
                .register
                .update_if(members, changes, keep, &stopped, &mut may_show);
            let update = update.map_err(|error| fenced.unwrap_or_else(|| blame(error)))?;
            outbox.fact("generation", update.number);
            outbox.fact("domains", update.records);
            outbox.fact("added", update.added);
            outbox.fact("changed", update.replaced);
            tracing::info!(
                generation = update.number,
                domains = update.records,
                added = update.added,
                changed = update.replaced,
                "the register has a new generation"
            );
        }
        if let Some(digest) = applied {
            self.runs.set_forced(&digest)?;
        }
        for (kind, count) in counts {
            outbox.fact(&format!("parcels of {kind}"), count);
        }
        Ok(())
    }

    /// Makes the orders of a run.
    fn order(&self, parcel: &Parcel, outbox: &mut Outbox) -> Result<(), Failure> {
        let run: DueRun = serde_json::from_reader(parcel.open(RUN)?).map_err(Failure::hold)?;
        let traps = self.traps()?;
        let path = self
            .home
            .path(&self.settings.harvests)
            .join(format!("{}.toml", run.harvest));
        if !definition::is_harvest_name(&run.harvest) || !path.is_file() {
            return Err(Failure::hold(format!(
                "the definition of harvest {:?} is gone",
                run.harvest
            )));
        }
        let harvest = read_file(&path, &run.harvest, &self.home.site.contact, &traps)
            .map_err(|problems| Failure::hold(problems.join("; ")))?;
        if let Some(problem) = index_fault(&harvest, &self.home.collections) {
            return Err(Failure::hold(problem));
        }
        let perimeter = self.perimeter()?;
        if harvest.definition.refresh.is_some() {
            return self.order_visits(parcel, &run, &harvest, &perimeter, &traps, outbox);
        }
        // The time it was due, so that the same run gives the same orders whenever it is done.
        let planned = {
            let is_stopped = || {
                outbox.tick();
                outbox.stop_asked()
            };
            self.planning(&harvest, &perimeter, run.due, &is_stopped)
                .plan(true)?
        };
        let never = || false;
        let planning = self.planning(&harvest, &perimeter, run.due, &never);
        let mut sink = OrderSink {
            outbox,
            home: &self.home,
            queues: &self.queues,
            harvest: &harvest,
            traps: &traps,
            groups: planned
                .drafts
                .iter()
                .map(|draft| draft.group as usize)
                .collect(),
            due: run.due,
            open: None,
        };
        let plan = planning.each_domain(planned, &mut |domain| sink.domain(domain))?;
        sink.close()?;
        must_not_be_fenced(&[parcel])?;
        self.tell_ordered(&run, &plan, outbox)
    }

    /// Makes the orders of a run that visits what the archive knows.
    fn order_visits(
        &self,
        parcel: &Parcel,
        run: &DueRun,
        harvest: &Harvest,
        perimeter: &Perimeter,
        traps: &TrapFile,
        outbox: &mut Outbox,
    ) -> Result<(), Failure> {
        let (links, changes) = (self.home.links(), self.home.changes());
        let sources = RefreshSources {
            links: &links,
            changes: &changes,
            traps,
        };
        let mut planned = {
            let is_stopped = || {
                outbox.tick();
                outbox.stop_asked()
            };
            let planning = self.planning(harvest, perimeter, run.due, &is_stopped);
            let refreshing = Refreshing::open(&planning, &sources)?
                .ok_or_else(|| Failure::hold("the definition visits no pages any more"))?;
            refreshing.plan(&|number| job_name(harvest, run.due, number))?
        };
        let never = || false;
        let planning = self.planning(harvest, perimeter, run.due, &never);
        let mut sink = OrderSink {
            outbox,
            home: &self.home,
            queues: &self.queues,
            harvest,
            traps,
            groups: planned
                .drafts
                .iter()
                .map(|draft| draft.group as usize)
                .collect(),
            due: run.due,
            open: None,
        };
        let mut lines = planning.sorted(planned.seeds)?;
        let mut line = String::new();
        while planning::read_line(&mut lines, &mut line)? {
            let mut columns = line.split('\t');
            let mut next = || {
                columns
                    .next()
                    .ok_or_else(|| Failure::halt("a line of the plan is not as it was written"))
            };
            let (job, _level, _surt, url, domain) = (next()?, next()?, next()?, next()?, next()?);
            sink.domain(planning::JobDomain {
                job: job.parse().map_err(Failure::halt)?,
                domain,
                seeds: url.split(' '),
            })?;
        }
        sink.close()?;
        must_not_be_fenced(&[parcel])?;
        // Before the orders are: who asks why a URL is in one finds it.
        self.runs
            .keep_visits(&run.harvest, run.due, &mut planned.file)?;
        self.tell_ordered(run, &planned.plan, outbox)
    }

    /// Puts down that a run was ordered.
    fn tell_ordered(
        &self,
        run: &DueRun,
        plan: &HarvestPlan,
        outbox: &mut Outbox,
    ) -> Result<(), Failure> {
        let mut record = match self.runs.run(&run.harvest, run.due)? {
            Some(record) => record,
            None => RunRecord::new(&run.harvest, run.due, run.due, run.missed),
        };
        record = record.ordered(plan);
        self.runs.write(&record)?;
        let name = format!("run {} {}", run.harvest, stamp(run.due));
        let told = serde_json::json!({
            "jobs": plan.jobs.len(), "domains": plan.domains, "objects": plan.objects, "bytes": plan.bytes,
            "fill": record.fill, "missed": run.missed, "left-out": plan.left_out, "generation": plan.generation,
        });
        outbox.fact(&name, told);
        tracing::info!(
            harvest = run.harvest,
            due = %run.due,
            jobs = plan.jobs.len(),
            domains = plan.domains,
            "a run was ordered"
        );
        Ok(())
    }

    fn planning<'a>(
        &'a self,
        harvest: &'a Harvest,
        perimeter: &'a Perimeter,
        now: Timestamp,
        is_stopped: &'a dyn Fn() -> bool,
    ) -> Planning<'a> {
        Planning {
            harvest,
            settings: &self.settings,
            register: &self.register,
            perimeter,
            temporary: &self.temporary,
            now,
            asks_again: !self.home.back.is_empty(),
            is_stopped,
        }
    }

    fn harvests(&self) -> Result<Vec<HarvestFile>, Failure> {
        let traps = self.traps()?;
        let directory = self.home.path(&self.settings.harvests);
        read_harvests(&directory, &self.home.site.contact, &traps).map_err(Failure::halt)
    }

    fn rules(&self) -> Result<ForcedRules, Failure> {
        ForcedRules::read(&self.home.path(&self.settings.forced)).map_err(Failure::config)
    }

    fn traps(&self) -> Result<TrapFile, Failure> {
        TrapFile::read(&self.home.path(&self.settings.traps)).map_err(Failure::config)
    }

    fn perimeter(&self) -> Result<Perimeter, Failure> {
        Perimeter::open(&self.settings.perimeter, &self.home.root).map_err(Failure::config)
    }
}

/// Orders for the next stage, one after the other.
struct OrderSink<'a> {
    outbox: &'a mut Outbox,
    home: &'a Home,
    queues: &'a RefCell<ShortestQueue>,
    harvest: &'a Harvest,
    traps: &'a TrapFile,
    /// The settings of each job.
    groups: Vec<usize>,
    due: Timestamp,
    open: Option<OpenOrder>,
}

struct OpenOrder {
    number: usize,
    parcel: NewParcel,
    seeds: OutFile,
    /// Its domains that have traps of their own.
    domain_traps: Vec<String>,
}

impl OrderSink<'_> {
    fn domain(&mut self, domain: planning::JobDomain<'_>) -> Result<(), Failure> {
        use std::io::Write;
        if self
            .open
            .as_ref()
            .is_none_or(|open| open.number != domain.job)
        {
            self.close()?;
            self.begin(domain.job)?;
        }
        let open = self.open.as_mut().expect("one was begun");
        for seed in domain.seeds {
            writeln!(open.seeds, "{seed} {}", domain.domain)?;
        }
        if self.traps.domains.contains_key(domain.domain) {
            open.domain_traps.push(domain.domain.to_owned());
        }
        Ok(())
    }

    fn begin(&mut self, number: usize) -> Result<(), Failure> {
        if self.outbox.stop_asked() {
            return Err(Failure::give_back());
        }
        self.outbox.tick();
        let name = format!("{}-{}", self.job(number), self.harvest.name);
        let id = ParcelId::new(&name).map_err(Failure::halt)?;
        let mut parcel = self.outbox.parcel(id, "job-order")?;
        parcel.manifest().job = Some(self.job(number));
        parcel.manifest().harvest = Some(self.harvest.name.clone());
        let seeds = parcel.create(SEEDS)?;
        self.open = Some(OpenOrder {
            number,
            parcel,
            seeds,
            domain_traps: Vec::new(),
        });
        Ok(())
    }

    fn job(&self, number: usize) -> String {
        job_name(self.harvest, self.due, number)
    }

    fn close(&mut self) -> Result<(), Failure> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        let job = self.job(open.number);
        let order = JobOrder {
            harvest: self.harvest,
            group: self.groups[open.number],
            job: &job,
            traps: self.traps,
            domain_traps: &open.domain_traps,
            seed_file: Some(SEEDS),
        };
        let text = order_text(&order).map_err(Failure::hold)?;
        let mut parcel = open.parcel;
        parcel.add(open.seeds)?;
        parcel.write("order.toml", text.as_bytes())?;
        let to = self.queues.borrow_mut().of(self.home)?;
        let to = to.ok_or_else(|| Failure::config("plan has no next stage"))?;
        self.outbox.emit_to(parcel, &to);
        Ok(())
    }
}

/// The name of a job: the harvest, when it was due, and its number.
pub(crate) fn job_name(harvest: &Harvest, due: Timestamp, number: usize) -> String {
    let due = due.strftime("%Y%m%d%H%M");
    format!("{}.{due}.{:04}", harvest.name, number + 1)
}

fn kind_of(parcel: &Parcel) -> &'static str {
    let files = [
        (NAMES, "names"),
        (RESULTS, "results"),
        (EVIDENCE, "evidence"),
        (FORCED, "rules"),
    ];
    let known = files
        .iter()
        .find(|(file, _)| parcel.manifest().file(file).is_some());
    known.map_or("nothing known", |(_, kind)| kind)
}

/// Fails when this worker was taken for dead: its parcels are no longer where it claimed them.
fn must_not_be_fenced(parcels: &[&Parcel]) -> Result<(), Failure> {
    for parcel in parcels {
        parcel.must_be_in_hand()?;
    }
    Ok(())
}

/// Says who is at fault.
fn blame(error: RegisterError) -> Failure {
    match error {
        RegisterError::Stopped => Failure::give_back(),
        RegisterError::Busy(_) => Failure::defer(error),
        error => Failure::halt(error),
    }
}
