//! `ecluse harvests`, `ecluse plan` and `ecluse harvest check`: harvest definitions, their runs, and what a run would order.

use std::path::Path;
use std::process::ExitCode;

use ecluse_crawl::Crawl;
use ecluse_plan::{
    CheckProgress, Harvest, HarvestFile, HarvestPlan, JobDraft, Perimeter, Plan, PlanClock,
    PlannedVisit, Planning, RefreshSources, RefreshSummary, Refreshing, RunDirectory, RunRecord,
    RunState, Settings, TrapFile, begins_in_the_past, index_fault, read_file, read_harvests,
};
use ecluse_register::Register;
use ecluse_stage::{Exit, Stage};
use ecluse_telemetry::printable;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cli::{HarvestCheckOptions, PlanOptions};
use crate::context::{DriverContext, Trouble};
use crate::needs::Need;
use crate::show;
use crate::simulate::simulate;

/// How many runs to come are listed.
const RUNS: usize = 5;

/// Everything about harvests in one place.
pub(crate) struct HarvestOverview<'a> {
    context: &'a DriverContext,
    settings: Settings,
    traps: TrapFile,
    runs: RunDirectory,
    now: Timestamp,
}

impl<'a> HarvestOverview<'a> {
    pub(crate) fn open(context: &'a DriverContext) -> Result<Self, Trouble> {
        let settings: Settings = context
            .pipeline
            .stage_settings(Plan::NAME)
            .map_err(|error| Trouble::new(Exit::Config, error))?;
        let traps = TrapFile::read(&context.root.join(&settings.traps))
            .map_err(|fault| Trouble::new(Exit::Config, fault))?;
        Ok(Self {
            runs: RunDirectory::at(context.root.join(&settings.runs)),
            now: PlanClock::of_environment().now()?,
            context,
            settings,
            traps,
        })
    }

    fn contact(&self) -> &str {
        &self.context.pipeline.site.contact
    }

    fn files(&self) -> Result<Vec<HarvestFile>, Trouble> {
        let directory = self.context.root.join(&self.settings.harvests);
        read_harvests(&directory, self.contact(), &self.traps)
            .map_err(|fault| Trouble::new(Exit::Machine, fault))
    }

    /// Says what is wrong with a harvest that can be read.
    fn faults(&self, harvest: &Harvest) -> Result<Vec<String>, Trouble> {
        let mut faults = Vec::new();
        let since = self.runs.since(&harvest.name)?;
        faults.extend(begins_in_the_past(harvest, since, self.now));
        faults.extend(self.index_fault(harvest)?);
        Ok(faults)
    }

    /// The index of a harvest is chosen by ingest, by the harvest's name: both must say the same.
    fn index_fault(&self, harvest: &Harvest) -> Result<Option<String>, Trouble> {
        let ingest: ecluse_ingest::Settings = self
            .context
            .pipeline
            .stage_settings(ecluse_ingest::Ingest::NAME)
            .map_err(|error| Trouble::new(Exit::Config, error))?;
        Ok(index_fault(harvest, &ingest.collections))
    }

    /// Returns the time of a run whose orders are not made yet though its time has come.
    fn due(&self, harvest: &Harvest) -> Result<Option<Timestamp>, Trouble> {
        let schedule = &harvest.schedule;
        let Some(due) = schedule.last_until(self.now, schedule.from) else {
            return Ok(None);
        };
        let run = self.runs.run(&harvest.name, due)?;
        Ok(Some(due).filter(|_| run.is_none_or(|run| run.state != RunState::Ordered)))
    }

    /// Returns the runs to come; the first is one that is due, where there is one.
    fn next_runs(&self, harvest: &Harvest) -> Result<Vec<Timestamp>, Trouble> {
        let mut runs: Vec<Timestamp> = self.due(harvest)?.into_iter().collect();
        let mut at = self.now;
        while runs.len() < RUNS
            && let Some(next) = harvest.schedule.next_after(at)
        {
            runs.push(next);
            at = next;
        }
        Ok(runs)
    }

    /// A time, and whether it has come.
    fn shown(&self, run: &Timestamp) -> String {
        match *run <= self.now {
            true => format!("{run}, which is now due"),
            false => run.to_string(),
        }
    }

    /// Plans a run as it would be ordered now.
    fn plan(&self, harvest: &Harvest) -> Result<PreviewedRun, Trouble> {
        let archive = &self.context.pipeline.archive;
        let path = |path: &Path| self.context.root.join(path);
        let register = Register::at(&path(&archive.register))
            .map_err(|error| Trouble::new(Exit::Machine, error))?;
        let perimeter = Perimeter::open(&self.settings.perimeter, &self.context.root)
            .map_err(|fault| Trouble::new(Exit::Config, fault))?;
        let never = || false;
        let planning = Planning {
            harvest,
            settings: &self.settings,
            register: &register,
            perimeter: &perimeter,
            temporary: &std::env::temp_dir(),
            now: self.due(harvest)?.unwrap_or(self.now),
            asks_again: !self.context.pipeline.back_of(Plan::NAME).is_empty(),
            is_stopped: &never,
        };
        let progress = planning.check_progress()?;
        let (links, changes) = (path(&archive.links), path(&archive.changes));
        let sources = RefreshSources {
            links: &links,
            changes: &changes,
            traps: &self.traps,
        };
        Ok(match Refreshing::open(&planning, &sources)? {
            Some(refreshing) => {
                let planned = refreshing.plan(&|number| format!("job {}", number + 1))?;
                PreviewedRun {
                    plan: planned.plan,
                    drafts: planned.drafts,
                    visits: planned.first,
                    progress,
                }
            }
            None => {
                let planned = planning.plan(false)?;
                PreviewedRun {
                    plan: planned.plan,
                    drafts: planned.drafts,
                    visits: Vec::new(),
                    progress,
                }
            }
        })
    }

    /// Returns what definitions need of a person, and which runs wait.
    pub(crate) fn needs(&self) -> Result<(Vec<Need>, Vec<Need>), Trouble> {
        let (mut needs, mut waiting) = (Vec::new(), Vec::new());
        for file in self.files()? {
            let faults = match &file.harvest {
                Ok(harvest) => self.faults(harvest)?,
                Err(faults) => faults.clone(),
            };
            let name = &file.name;
            if let Some(first) = faults.first() {
                let command = format!(
                    "harvest check {}",
                    show::word(&format!("{}/{name}.toml", self.settings.harvests.display()))
                );
                let what = format!("harvest {name} is refused: {first}");
                needs.push(Need::of_stage(
                    Plan::NAME,
                    what,
                    self.context.command(&command),
                ));
            }
            if let Ok(Some(run)) = self.runs.last_run(name)
                && run.state == RunState::Waiting
            {
                let command = self
                    .context
                    .command(&format!("plan {} --preview", show::word(name)));
                waiting.push(Need::of_stage(Plan::NAME, waits(&run), command));
            }
        }
        Ok((needs, waiting))
    }
}

fn waits(run: &RunRecord) -> String {
    let (checked, of) = run.checked.unwrap_or_default();
    match of {
        0 => format!(
            "harvest {}, due {}, waits: the register has no domain for it yet",
            run.harvest, run.due
        ),
        of => format!(
            "harvest {}, due {}, waits for DNS: {} of {} domains were checked in time ({} %){}",
            run.harvest,
            run.due,
            grouped(checked),
            grouped(of),
            checked.saturating_mul(100) / of,
            denied_once(run.denied)
        ),
    }
}

/// What the rest of them waits for, beside being asked.
fn denied_once(domains: u64) -> String {
    match domains {
        0 => String::new(),
        domains => format!(
            "; {} that DNS denied once {} asked again when a day has passed",
            grouped(domains),
            if domains == 1 { "is" } else { "are" }
        ),
    }
}

/// Lists the definitions with their runs.
pub(crate) fn harvests(context: &DriverContext) -> Result<ExitCode, Trouble> {
    let overview = HarvestOverview::open(context)?;
    let mut told = Vec::new();
    let mut text = String::new();
    for file in overview.files()? {
        let name = printable(file.name.as_bytes());
        let last = overview.runs.last_run(&file.name).unwrap_or_default();
        let (kind, next, faults) = match &file.harvest {
            Ok(harvest) => (
                format!("{:?}", harvest.definition.kind).to_lowercase(),
                overview.next_runs(harvest)?,
                overview.faults(harvest)?,
            ),
            Err(faults) => ("refused".to_owned(), Vec::new(), faults.clone()),
        };
        told.push(json!({
            "harvest": file.name, "kind": kind, "refused": faults, "last": last,
            "next": next.iter().map(Timestamp::to_string).collect::<Vec<_>>(),
        }));
        let description = file
            .harvest
            .as_ref()
            .map_or("", |harvest| &harvest.definition.description);
        text += format!(
            "{name:<24} {kind:<10} {}",
            printable(description.as_bytes())
        )
        .trim_end();
        text.push('\n');
        for fault in &faults {
            text += &format!("    REFUSED   {}\n", printable(fault.as_bytes()));
        }
        if let Some(last) = &last {
            text += &format!("    last      {}\n", last_line(last));
        }
        for (at, run) in next.iter().enumerate() {
            let label = if at == 0 { "next" } else { "" };
            text += &format!("    {label:<9} {}\n", overview.shown(run));
        }
        if next.is_empty() && faults.is_empty() {
            text += "    next      none: it has ended\n";
        }
    }
    if context.json {
        context.print_json(json!({"harvests": told}))?;
        return Ok(Exit::Done.into());
    }
    if text.is_empty() {
        let directory = context.root.join(&overview.settings.harvests);
        text = format!("no harvest is defined in {}\n", directory.display());
    }
    context.print(&text)?;
    Ok(Exit::Done.into())
}

fn last_line(run: &RunRecord) -> String {
    let mut line = match run.state {
        RunState::Waiting => format!("{}: {}", run.due, waits(run)),
        RunState::Missed => format!("{}: missed, it waited until the next one was due", run.due),
        RunState::Due => format!("{}: its orders are being made", run.due),
        RunState::Ordered => format!(
            "{}: {} for {}, {:.0} % full",
            run.due,
            show::count(
                usize::try_from(run.jobs).unwrap_or(usize::MAX),
                "job",
                "jobs"
            ),
            show::count(
                usize::try_from(run.domains).unwrap_or(usize::MAX),
                "domain",
                "domains"
            ),
            run.fill * 100.0
        ),
    };
    if let Some(late) = run.late_seconds() {
        line += &format!(", {} late", show::age(late.unsigned_abs()));
    }
    if run.missed > 0 {
        line += &format!(", {} before it missed", run.missed);
    }
    line
}

/// Says what is wrong with definitions, before they are put into the directory or where they lie.
pub(crate) fn check(
    context: &DriverContext,
    options: &HarvestCheckOptions,
) -> Result<ExitCode, Trouble> {
    let overview = HarvestOverview::open(context)?;
    let mut told = Vec::new();
    let mut text = String::new();
    let mut is_refused = false;
    for path in &options.files {
        let shown = printable(path.display().to_string().as_bytes());
        let (faults, next) = checked(&overview, path)?;
        is_refused |= !faults.is_empty();
        for fault in &faults {
            text += &format!("{shown}: {}\n", printable(fault.as_bytes()));
        }
        if faults.is_empty() {
            let first = next
                .first()
                .map_or("none any more".to_owned(), |run| overview.shown(run));
            text += &format!("{shown}: good; its next run: {first}\n");
        }
        let next: Vec<String> = next.iter().map(Timestamp::to_string).collect();
        told.push(json!({"file": path, "refused": faults, "next": next}));
    }
    match context.json {
        true => context.print_json(json!({"checked": told}))?,
        false => context.print(&text)?,
    }
    Ok(if is_refused { Exit::Config } else { Exit::Done }.into())
}

fn checked(
    overview: &HarvestOverview<'_>,
    path: &Path,
) -> Result<(Vec<String>, Vec<Timestamp>), Trouble> {
    let name = path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    Ok(
        match read_file(path, &name, overview.contact(), &overview.traps) {
            Ok(harvest) => (overview.faults(&harvest)?, overview.next_runs(&harvest)?),
            Err(faults) => (faults, Vec::new()),
        },
    )
}

/// Shows what a run of a harvest would order now.
pub(crate) fn plan(context: &DriverContext, options: &PlanOptions) -> Result<ExitCode, Trouble> {
    let overview = HarvestOverview::open(context)?;
    let path = context
        .root
        .join(&overview.settings.harvests)
        .join(format!("{}.toml", options.harvest));
    if options.harvest.contains('/') || !path.is_file() {
        let known: Vec<String> = overview
            .files()?
            .into_iter()
            .map(|file| file.name)
            .collect();
        return Err(Trouble::usage(format!(
            "there is no harvest {:?}; there are: {}",
            options.harvest,
            known.join(", ")
        )));
    }
    let harvest = read_file(&path, &options.harvest, overview.contact(), &overview.traps)
        .map_err(|faults| Trouble::new(Exit::Config, faults.join("\n")))?;
    if let Some(days) = options.simulate {
        return simulate(context, &harvest, days, &options.simulation);
    }
    let planned = overview.plan(&harvest)?;
    let workers = context.pipeline.shell(Crawl::NAME).workers;
    let workers = usize::try_from(workers).unwrap_or(1);
    let time = planned.plan.duration(&harvest, workers, &planned.drafts);
    let plan = &planned.plan;
    if context.json {
        let mut told = serde_json::to_value(plan).map_err(std::io::Error::from)?;
        told["harvest"] = options.harvest.as_str().into();
        told["seconds"] = time.as_secs().into();
        told["fill"] = plan.fill().into();
        told["checked"] = planned
            .progress
            .map_or(Value::Null, |progress| json!(progress));
        if plan.refresh.is_some() {
            told["first"] = json!(planned.visits);
        }
        context.print_json(told)?;
    } else {
        context.print(&preview(&harvest, &planned, time, workers))?;
    }
    Ok(Exit::Done.into())
}

/// What a run would order now.
struct PreviewedRun {
    plan: HarvestPlan,
    drafts: Vec<JobDraft>,
    /// The most urgent visits, where it visits what the archive knows.
    visits: Vec<PlannedVisit>,
    progress: Option<CheckProgress>,
}

fn preview(
    harvest: &Harvest,
    planned: &PreviewedRun,
    time: std::time::Duration,
    workers: usize,
) -> String {
    let (plan, progress) = (&planned.plan, planned.progress);
    let mut text = format!(
        "harvest {}: {} for {}, {:.0} % full on average\n",
        harvest.name,
        show::count(plan.jobs.len(), "job", "jobs"),
        show::count(
            usize::try_from(plan.domains).unwrap_or(usize::MAX),
            "domain",
            "domains"
        ),
        plan.fill() * 100.0
    );
    match &plan.refresh {
        Some(refresh) => text += &in_visits(refresh, plan.objects),
        None => {
            text += &format!(
                "expected     {} objects, {}\n",
                grouped(plan.objects),
                show::bytes(plan.bytes)
            );
        }
    }
    text += &format!(
        "time         about {} at {} between two requests to a site, {} at a time\n",
        show::age(time.as_secs()),
        harvest.order.manners.min_delay,
        show::count(workers, "job", "jobs")
    );
    match plan.generation {
        Some(number) => text += &format!("register     generation {number}\n"),
        None => text += "register     there is none yet\n",
    }
    if let Some(progress) = progress {
        text += &format!(
            "DNS          {} of {} domains were checked in time",
            grouped(progress.checked),
            grouped(progress.of)
        );
        if progress.checked < progress.of {
            text += ": the run waits for the others";
        }
        text += &denied_once(progress.denied);
        text.push('\n');
    }
    for (reason, count) in &plan.left_out {
        text += &format!("left out     {} {reason}\n", grouped(*count));
    }
    if !planned.visits.is_empty() {
        text += "\nmost urgent\n  level  why             value  due since       URL\n";
    }
    for visit in &planned.visits {
        text += &format!(
            "  {:>5}  {:<9} {:>11}  {:<14}  {}\n",
            visit.level,
            visit.reason.word(),
            figure(visit.value),
            visit.due_since.as_deref().unwrap_or("-"),
            printable(visit.url.as_bytes())
        );
    }
    if !plan.largest.is_empty() {
        text += "\nlargest domains                              expected objects\n";
    }
    for large in &plan.largest {
        text += &format!(
            "  {:<44} {:>14}\n",
            printable(large.domain.as_bytes()),
            grouped(large.objects)
        );
    }
    if !plan.jobs.is_empty() {
        text += "\n   job    domains        objects          bytes   full\n";
    }
    const SHOWN: usize = 20;
    for (number, job) in plan.jobs.iter().enumerate().take(SHOWN) {
        text += &format!(
            "{:>6} {:>10} {:>14} {:>14} {:>4.0} %\n",
            number + 1,
            grouped(job.domains),
            grouped(job.objects),
            show::bytes(job.bytes),
            job.fill * 100.0
        );
    }
    if plan.jobs.len() > SHOWN {
        text += &format!("       and {} more\n", plan.jobs.len() - SHOWN);
    }
    text
}

/// What the visits of a run come to.
fn in_visits(refresh: &RefreshSummary, visits: u64) -> String {
    let of = |reason: &str| grouped(refresh.visits.get(reason).copied().unwrap_or(0));
    let mut text = format!(
        "visits       {} of at most {} by policy {}: {} refresh, {} discovery, {} perimeter\n",
        grouped(visits),
        grouped(refresh.budget),
        refresh.policy,
        of("refresh"),
        of("discovery"),
        of("perimeter")
    );
    text += &format!(
        "candidates   {} known pages, {} URLs never fetched; {} pages were not visited for too long\n",
        grouped(refresh.known),
        grouped(refresh.unknown),
        grouped(refresh.forgotten)
    );
    let levels: Vec<String> = refresh.levels.iter().map(|count| grouped(*count)).collect();
    text += &format!("levels 0–4   {}\n", levels.join("  "));
    if refresh.too_large > 0 {
        text += &format!(
            "too large    {} of the sites have more pages than a run has visits\n",
            grouped(refresh.too_large)
        );
    }
    for (name, generation) in [("links", refresh.links), ("changes", refresh.changes)] {
        text += &match generation {
            Some(number) => format!("{name:<12} generation {number}\n"),
            None => format!("{name:<12} there are none yet\n"),
        };
    }
    text
}

/// A value with the digits that tell it from another.
fn figure(value: f32) -> String {
    match value.abs() {
        0.0 => "-".to_owned(),
        at if (0.001..1e6).contains(&at) => format!("{value:.3}"),
        _ => format!("{value:.2e}"),
    }
}

/// A number with commas between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
