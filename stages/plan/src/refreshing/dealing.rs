//! Visits dealt to jobs as they come, and what they come to.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Seek};

use ecluse_cdx::Sorter;
use ecluse_changes::ArchiveTime;
use ecluse_stage::Failure;
use serde::{Deserialize, Serialize};

use super::Refreshing;
use crate::candidates::Candidate;
use crate::planning::{HarvestPlan, LargestDomain, PlannedJob};
use crate::split::JobDraft;
use crate::visits::{PlannedVisit, VisitWriter};

/// The most urgent visits that a preview shows.
const SHOWN: usize = 10;

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

/// Deals visits to jobs as they come, in the order of keys.
pub(super) struct VisitDealer<'a> {
    pub(super) refreshing: &'a Refreshing<'a>,
    pub(super) job_name: &'a dyn Fn(usize) -> String,
    pub(super) drafts: Vec<JobDraft>,
    /// The job that is open for a group of settings, and its last domain with its visits.
    pub(super) open: BTreeMap<usize, OpenJob>,
    pub(super) seeds: Sorter,
    pub(super) visits: VisitWriter<BufWriter<File>>,
    pub(super) first: BTreeMap<(u8, u32, String), PlannedVisit>,
    pub(super) summary: RefreshSummary,
    pub(super) largest: BTreeMap<(u64, String), ()>,
}

pub(super) struct OpenJob {
    pub(super) number: usize,
    pub(super) domain: std::rc::Rc<str>,
    pub(super) visits: u64,
}

impl<'a> VisitDealer<'a> {
    pub(super) fn new(
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

    pub(super) fn give(
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
    pub(super) fn job_of(&mut self, candidate: &Candidate) -> usize {
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

    pub(super) fn finish(self) -> Result<PlannedVisits, Failure> {
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
