//! A run of a harvest: which domains it takes, how much is expected of each, and into which jobs they go.
//!
//! The register is read twice: for what like domains brought, then for the domains themselves. They are sorted by settings and
//! size, dealt to jobs, and sorted by job. Memory is what the setting says, whatever the number of domains, but for the jobs.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek};
use std::path::Path;
use std::time::Duration;

use ecluse_cdx::{Duplicates, SortOptions, Sorter};
use ecluse_names::key_of;
use ecluse_register::{Register, RegisterDay};
use ecluse_scope::Limit;
use ecluse_stage::Failure;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::Settings;
use crate::changes::is_from_results;
use crate::definition::{ChosenDomain, Harvest, HarvestKind, Unchecked};
use crate::forecast::duration_of;
use crate::perimeter::Perimeter;
use crate::record_view::{RecordView, line_of};
use crate::refreshing::RefreshSummary;
use crate::sizes::{ExpectedSize, SizeClasses, SizeLimits, SizeMethod, netarchivesuite};
use crate::split::{JobDraft, JobSplitter};

/// How many of the largest domains are told.
const LARGEST: usize = 10;
/// Of this many records each is an example; of larger registers a share is.
const SAMPLED: u64 = 1 << 18;
/// How often it is asked whether to go on.
const LOOK_EVERY: u64 = 1 << 15;

/// What a run is planned with.
pub struct Planning<'a> {
    /// The harvest.
    pub harvest: &'a Harvest,
    /// The stage's settings.
    pub settings: &'a Settings,
    /// The register.
    pub register: &'a Register,
    /// What is inside.
    pub perimeter: &'a Perimeter,
    /// Where temporary files may be made.
    pub temporary: &'a Path,
    /// The time of the run.
    pub now: Timestamp,
    /// There is a stage that asks DNS again: the run waits for a second answer about what was denied once.
    pub asks_again: bool,
    /// Asked now and then.
    pub is_stopped: &'a dyn Fn() -> bool,
}

/// What a run comes to.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct HarvestPlan {
    /// The generation of the register it was made from.
    pub generation: Option<u64>,
    /// Domains that are taken.
    pub domains: u64,
    /// Objects expected of them.
    pub objects: u64,
    /// Bytes expected of them.
    pub bytes: u64,
    /// Domains that are not taken, by reason.
    pub left_out: BTreeMap<&'static str, u64>,
    /// The largest domains.
    pub largest: Vec<LargestDomain>,
    /// The jobs.
    pub jobs: Vec<PlannedJob>,
    /// What it visits of what the archive knows, where it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refresh: Option<RefreshSummary>,
}

/// A large domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LargestDomain {
    /// Its name.
    pub domain: String,
    /// Objects expected of it.
    pub objects: u64,
}

/// A job of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlannedJob {
    /// Which settings it has.
    pub group: usize,
    /// Its domains.
    pub domains: u64,
    /// Objects expected of them.
    pub objects: u64,
    /// Bytes expected of them.
    pub bytes: u64,
    /// How full it is, from 0 to 1.
    pub fill: f64,
}

/// How far DNS was asked about the domains a harvest takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CheckProgress {
    /// Domains that were checked within the limit.
    pub checked: u64,
    /// Domains that it takes.
    pub of: u64,
    /// Of those that were not, domains that DNS denied once: they are asked again when a day has passed.
    pub denied: u64,
}

impl CheckProgress {
    /// Tells whether a run need not wait: a register in which nothing fits yet is one that is not filled yet.
    pub(crate) fn is_enough(&self) -> bool {
        self.of > 0 && self.checked >= self.of
    }
}

/// A domain of a job, with the seeds it begins at.
pub struct JobDomain<'a> {
    /// Its number among the jobs.
    pub job: usize,
    /// The domain.
    pub domain: &'a str,
    /// What to begin at.
    pub seeds: std::str::Split<'a, char>,
}

impl HarvestPlan {
    /// Returns how full the jobs are on average.
    #[expect(clippy::cast_precision_loss, reason = "a share for people to read")]
    pub fn fill(&self) -> f64 {
        match self.jobs.len() {
            0 => 0.0,
            jobs => self.jobs.iter().map(|job| job.fill).sum::<f64>() / jobs as f64,
        }
    }

    /// Returns how long it takes, so many jobs at a time.
    pub fn duration(&self, harvest: &Harvest, at_a_time: usize, drafts: &[JobDraft]) -> Duration {
        duration_of(drafts, &harvest.order.manners, at_a_time)
    }
}

/// A plan whose domains are sorted by size.
pub struct Planned {
    /// What it comes to.
    pub plan: HarvestPlan,
    /// Its jobs.
    pub drafts: Vec<JobDraft>,
    /// Job, domain and seeds, by size.
    dealt: Option<Sorter>,
}

impl Planning<'_> {
    /// Tells how far the domains of the harvest were checked; none where it does not wait for that.
    ///
    /// # Errors
    /// When the register cannot be read.
    pub fn check_progress(&self) -> Result<Option<CheckProgress>, Failure> {
        let select = &self.harvest.definition.select;
        let is_broad = self.harvest.definition.kind == HarvestKind::Broad;
        if !is_broad || select.unchecked != Unchecked::Wait || select.dns_within == Limit::None {
            return Ok(None);
        }
        let mut progress = CheckProgress {
            checked: 0,
            of: 0,
            denied: 0,
        };
        let since = self.checked_since();
        self.each_record(&mut |record| {
            if self.reason_against(record, None).is_none() {
                let is_denied = self.asks_again && record.is_denied_once();
                progress.of += 1;
                progress.checked += u64::from(record.checked() >= since && !is_denied);
                progress.denied += u64::from(is_denied);
            }
            Ok(())
        })?;
        Ok(Some(progress))
    }

    /// Tells whether DNS is to be asked about a domain, so that the run need not wait for it; one that was denied once is asked
    /// again when it was last asked on this day or before.
    pub(crate) fn wants_check(&self, record: &RecordView<'_>, denied: RegisterDay) -> bool {
        let is_old = record.checked() < self.checked_since();
        let is_denied = record.is_denied_once() && record.checked() <= Some(denied);
        (is_old || is_denied) && self.reason_against(record, None).is_none()
    }

    /// Plans the run; with `is_whole`, the domains of each job can be asked for afterwards.
    ///
    /// # Errors
    /// When the register or a temporary file fails.
    pub fn plan(&self, is_whole: bool) -> Result<Planned, Failure> {
        let mut plan = HarvestPlan {
            generation: self.register.current().map_err(Failure::halt)?,
            ..HarvestPlan::default()
        };
        let classes = self.size_classes()?;
        let mut sorter = self.sorter();
        match self.harvest.definition.kind {
            HarvestKind::Broad => self.broad(&classes, &mut plan, &mut sorter)?,
            HarvestKind::Selective | HarvestKind::Unsaid => {
                self.selective(&classes, &mut plan, &mut sorter)?;
            }
        }
        let mut dealt = is_whole.then(|| self.sorter());
        let drafts = self.deal(sorter, &mut plan, dealt.as_mut())?;
        let limits = &self.settings.jobs;
        plan.jobs = drafts
            .iter()
            .map(|draft| PlannedJob {
                group: draft.group as usize,
                domains: draft.domains,
                objects: draft.objects,
                bytes: draft.bytes,
                fill: (draft.fill(limits) * 1000.0).round() / 1000.0,
            })
            .collect();
        Ok(Planned {
            plan,
            drafts,
            dealt,
        })
    }

    /// Gives out the domains of a plan, job by job, in order.
    ///
    /// # Errors
    /// What `each` fails with; when a temporary file fails.
    pub fn each_domain(
        &self,
        planned: Planned,
        each: &mut dyn FnMut(JobDomain<'_>) -> Result<(), Failure>,
    ) -> Result<HarvestPlan, Failure> {
        let Some(dealt) = planned.dealt else {
            return Ok(planned.plan);
        };
        let mut lines = self.sorted(dealt)?;
        let mut line = String::new();
        let mut count = 0u64;
        while read_line(&mut lines, &mut line)? {
            count += 1;
            self.look(count)?;
            let mut columns = line.splitn(4, '\t');
            let mut next = || {
                columns
                    .next()
                    .ok_or_else(|| Failure::halt("a line of the plan is not as it was written"))
            };
            let (job, _key, domain, seeds) = (next()?, next()?, next()?, next()?);
            let job = job.parse().map_err(Failure::halt)?;
            each(JobDomain {
                job,
                domain,
                seeds: seeds.split(' '),
            })?;
        }
        Ok(planned.plan)
    }

    fn size_classes(&self) -> Result<SizeClasses, Failure> {
        let mut classes = SizeClasses::default();
        if self.settings.sizes.method != SizeMethod::Quantile {
            return Ok(classes);
        }
        let Some(number) = self.register.current().map_err(Failure::halt)? else {
            return Ok(classes);
        };
        let mut reader = self.register.read(number).map_err(Failure::halt)?;
        let step = (reader.records() / SAMPLED).max(1);
        let mut count = 0u64;
        while let Some(line) = reader.next_line().map_err(Failure::halt)? {
            count += 1;
            self.look(count)?;
            if !count.is_multiple_of(step) || !line.text.contains("\"harvests\":") {
                continue;
            }
            let record = RecordView::read(line.text).ok_or_else(|| damaged(line.key))?;
            classes.add(&record.history(&self.harvest.name));
        }
        Ok(classes)
    }

    fn broad(
        &self,
        classes: &SizeClasses,
        plan: &mut HarvestPlan,
        sorter: &mut Sorter,
    ) -> Result<(), Failure> {
        let since = self.must_be_checked_since();
        let limits = self.limits(0);
        let mut line = String::new();
        self.each_record(&mut |record| {
            if let Some(reason) = self.reason_against(record, since) {
                *plan.left_out.entry(reason).or_default() += 1;
                return Ok(());
            }
            let expected = self.expected(classes, record, limits);
            write_entry(&mut line, 0, &expected, record.key, record.domain);
            push_seeds(&mut line, record);
            sorter.push(line.as_bytes()).map_err(Failure::halt)
        })
    }

    fn selective(
        &self,
        classes: &SizeClasses,
        plan: &mut HarvestPlan,
        sorter: &mut Sorter,
    ) -> Result<(), Failure> {
        let mut line = String::new();
        for (count, (site, chosen)) in self.harvest.chosen.iter().enumerate() {
            self.look(count as u64)?;
            let found = self.register.lookup(site).map_err(Failure::halt)?;
            let text = found.as_ref().and_then(line_of);
            let record = text.as_deref().and_then(RecordView::read);
            if record.as_ref().and_then(RecordView::forced) == Some(false) {
                *plan.left_out.entry("forced out").or_default() += 1;
                continue;
            }
            let limits = self.limits(chosen.group);
            let expected = match &record {
                Some(record) => self.expected(classes, record, limits),
                None => self.size(classes, &[], limits),
            };
            write_entry(&mut line, chosen.group, &expected, &key_of(site), site);
            match (&record, chosen.is_whole) {
                (Some(record), true) => push_seeds(&mut line, record),
                (None, true) => line.push_str(site),
                (_, false) => {}
            }
            push_urls(&mut line, chosen);
            sorter.push(line.as_bytes()).map_err(Failure::halt)?;
        }
        Ok(())
    }

    /// Deals the sorted domains to jobs.
    fn deal(
        &self,
        sorter: Sorter,
        plan: &mut HarvestPlan,
        mut dealt: Option<&mut Sorter>,
    ) -> Result<Vec<JobDraft>, Failure> {
        let mut lines = self.sorted(sorter)?;
        let mut splitter = JobSplitter::new(self.settings.jobs);
        let (mut line, mut out) = (String::new(), String::new());
        while read_line(&mut lines, &mut line)? {
            plan.domains += 1;
            self.look(plan.domains)?;
            let (group, objects, bytes, rest) = read_entry(&line)
                .ok_or_else(|| Failure::halt("a line of the plan is not as it was written"))?;
            plan.objects = plan.objects.saturating_add(objects);
            plan.bytes = plan.bytes.saturating_add(bytes);
            let domain = rest.split('\t').nth(1).unwrap_or_default();
            keep_largest(&mut plan.largest, domain, objects);
            let job = splitter.add(group, objects, bytes);
            if let Some(dealt) = &mut dealt {
                out.clear();
                out.push_str(&format!("{job:08}\t{rest}"));
                dealt.push(out.as_bytes()).map_err(Failure::halt)?;
            }
        }
        Ok(splitter.finish())
    }

    /// Returns why a domain is not taken; `since` is the day from which DNS must have been asked.
    fn reason_against(
        &self,
        record: &RecordView<'_>,
        since: Option<RegisterDay>,
    ) -> Option<&'static str> {
        let select = &self.harvest.definition.select;
        match record.forced() {
            Some(false) => return Some("forced out"),
            Some(true) => return None,
            None => {}
        }
        if !record.is_active {
            return Some("inactive");
        }
        let is_named = |names: &[String], source: &str| names.iter().any(|name| name == source);
        if !select.sources.is_empty()
            && !record
                .sources()
                .any(|source| is_named(&select.sources, source))
        {
            return Some("not of the sources");
        }
        if select.sources.is_empty() && is_from_results(record) {
            return Some("on no list");
        }
        if !select.except_sources.is_empty()
            && record
                .sources()
                .all(|source| is_named(&select.except_sources, source))
        {
            return Some("of excepted sources alone");
        }
        let label = record.domain.rsplit('.').next().unwrap_or_default();
        if !select.tlds.is_empty() && !is_named(&select.tlds, label) {
            return Some("not of the TLDs");
        }
        if let Limit::At(within) = select.seen_within
            && RegisterDay::parse(record.last) < self.day_before(within.get())
        {
            return Some("not seen lately");
        }
        if since.is_some() && record.checked() < since {
            return Some("DNS not asked lately");
        }
        if select.perimeter && !self.perimeter.is_inside(record) {
            return Some("outside the perimeter");
        }
        None
    }

    /// Returns why a domain is not taken by a broad harvest.
    pub(crate) fn reason_now(&self, record: &RecordView<'_>) -> Option<&'static str> {
        self.reason_against(record, self.must_be_checked_since())
    }

    fn must_be_checked_since(&self) -> Option<RegisterDay> {
        match self.harvest.definition.select.unchecked {
            Unchecked::LeaveOut => self.checked_since(),
            Unchecked::Wait | Unchecked::Take => None,
        }
    }

    fn checked_since(&self) -> Option<RegisterDay> {
        let within = self.harvest.definition.select.dns_within.get()?;
        self.day_before(within.get())
    }

    fn day_before(&self, span: Duration) -> Option<RegisterDay> {
        let span = SignedDuration::try_from(span).ok()?;
        day_of(self.now.checked_sub(span).ok()?)
    }

    fn limits(&self, group: usize) -> SizeLimits {
        let harvest = &self.harvest.definition.budget;
        let settings = &self.harvest.groups[group];
        let mut limits = SizeLimits {
            harvest_objects: harvest.urls.get(),
            harvest_bytes: harvest.bytes.get().map(|bytes| bytes.get()),
            ..SizeLimits::default()
        };
        if settings.is_own {
            // An entry's own budget stands in place of the harvest's.
            limits = SizeLimits {
                own_objects: settings.budget.urls.get(),
                own_bytes: settings.budget.bytes.get().map(|bytes| bytes.get()),
                ..SizeLimits::default()
            };
        }
        limits
    }

    fn expected(
        &self,
        classes: &SizeClasses,
        record: &RecordView<'_>,
        limits: SizeLimits,
    ) -> ExpectedSize {
        self.size(classes, &record.history(&self.harvest.name), limits)
    }

    fn size(
        &self,
        classes: &SizeClasses,
        history: &[crate::sizes::PastResult],
        limits: SizeLimits,
    ) -> ExpectedSize {
        let settings = &self.settings.sizes;
        match settings.method {
            SizeMethod::Quantile => classes.expected(history, limits, settings),
            SizeMethod::NetarchiveSuite => netarchivesuite(history, limits, settings),
        }
    }

    pub(crate) fn each_record(
        &self,
        each: &mut dyn FnMut(&RecordView<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Some(number) = self.register.current().map_err(Failure::halt)? else {
            return Ok(());
        };
        let mut reader = self.register.read(number).map_err(Failure::halt)?;
        let mut count = 0u64;
        while let Some(line) = reader.next_line().map_err(Failure::halt)? {
            count += 1;
            self.look(count)?;
            let record = RecordView::read(line.text).ok_or_else(|| damaged(line.key))?;
            each(&record)?;
        }
        Ok(())
    }

    pub(crate) fn look(&self, count: u64) -> Result<(), Failure> {
        match count.is_multiple_of(LOOK_EVERY) && (self.is_stopped)() {
            true => Err(Failure::give_back()),
            false => Ok(()),
        }
    }

    pub(crate) fn sorter(&self) -> Sorter {
        Sorter::new(SortOptions {
            duplicates: Duplicates::Keep,
            memory_bytes: usize::try_from(self.settings.memory.get() / 2).unwrap_or(usize::MAX),
            temporary: self.temporary.to_owned(),
        })
    }

    pub(crate) fn sorted(&self, sorter: Sorter) -> Result<BufReader<File>, Failure> {
        let mut file = tempfile::tempfile_in(self.temporary)?;
        sorter.finish(&mut file).map_err(Failure::halt)?;
        file.rewind()?;
        Ok(BufReader::with_capacity(256 << 10, file))
    }
}

/// Returns the day of a time, in UTC.
pub(crate) fn day_of(time: Timestamp) -> Option<RegisterDay> {
    let date = time.to_zoned(TimeZone::UTC).date();
    let year = u16::try_from(date.year()).ok()?;
    RegisterDay::new(year, date.month().unsigned_abs(), date.day().unsigned_abs())
}

/// Begins the line of a domain: it sorts by settings, then by size, the largest first, then by name.
fn write_entry(line: &mut String, group: usize, expected: &ExpectedSize, key: &str, domain: &str) {
    use std::fmt::Write;
    line.clear();
    let above = u64::MAX - expected.objects;
    let written = write!(
        line,
        "{group:06x}\t{above:016x}\t{key}\t{domain}\t{:x}\t",
        expected.bytes
    );
    written.expect("a string takes everything");
}

/// Reads such a line: group, objects, bytes, and key, domain and seeds with a tab between them.
fn read_entry(line: &str) -> Option<(u32, u64, u64, String)> {
    let mut columns = line.splitn(6, '\t');
    let group = u32::from_str_radix(columns.next()?, 16).ok()?;
    let objects = u64::MAX - u64::from_str_radix(columns.next()?, 16).ok()?;
    let (key, domain) = (columns.next()?, columns.next()?);
    let bytes = u64::from_str_radix(columns.next()?, 16).ok()?;
    Some((
        group,
        objects,
        bytes,
        format!("{key}\t{domain}\t{}", columns.next()?),
    ))
}

/// Adds what a domain begins at: its names that answer, and its URLs.
pub(crate) fn push_seeds(line: &mut String, record: &RecordView<'_>) {
    let mut forms = record
        .forms
        .split(',')
        .filter(|form| !form.is_empty())
        .peekable();
    if forms.peek().is_none() && record.more.hosts.is_empty() {
        // Nobody knows whether it answers: it is asked.
        line.push_str(record.domain);
    }
    let mut is_first = !line.ends_with(record.domain);
    let mut add = |parts: [&str; 2]| {
        if !is_first {
            line.push(' ');
        }
        is_first = false;
        parts.iter().for_each(|part| line.push_str(part));
    };
    for form in forms {
        match form {
            "www" => add(["www.", record.domain]),
            _ => add([record.domain, ""]),
        }
    }
    for seed in record.more.hosts.iter().chain(&record.more.seeds) {
        add([seed, ""]);
    }
}

fn push_urls(line: &mut String, chosen: &ChosenDomain) {
    for url in &chosen.urls {
        if !line.ends_with('\t') {
            line.push(' ');
        }
        line.push_str(url);
    }
}

fn keep_largest(largest: &mut Vec<LargestDomain>, domain: &str, objects: u64) {
    if largest.len() == LARGEST && largest.last().is_some_and(|least| least.objects >= objects) {
        return;
    }
    let at = largest.partition_point(|known| known.objects >= objects);
    let domain = domain.to_owned();
    largest.insert(at, LargestDomain { domain, objects });
    largest.truncate(LARGEST);
}

pub(crate) fn read_line(lines: &mut BufReader<File>, line: &mut String) -> Result<bool, Failure> {
    line.clear();
    let read = lines.read_line(line)?;
    if line.ends_with('\n') {
        line.pop();
    }
    Ok(read > 0)
}

pub(crate) fn damaged(key: &str) -> Failure {
    Failure::halt(format!("the record {key} of the register cannot be read"))
}
