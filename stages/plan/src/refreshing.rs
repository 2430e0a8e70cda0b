//! A run that visits what the archive knows: which URLs, why each of them, and in which jobs.
//!
//! The lists of changes and ranks are read twice: first what is known of each candidate goes into a file of records of one length, and into sums
//! and classes from which the price of a visit follows; each gets its priority, and a histogram says from which one on they are taken; then the lists
//! are read again and those are given out. Memory does not depend on how many there are. The same lists, definition and time give the same visits.

mod cuts;
mod dealing;
mod entry;
mod kept_hours;
mod ranking;
#[cfg(test)]
mod rehearsal;
mod rules;
mod survey;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, Write};
use std::path::Path;

use ecluse_generation::IndexDirectory;
use ecluse_stage::Failure;
use jiff::SignedDuration;

use self::cuts::{Cuts, divide, level_of, read_site};
use self::dealing::VisitDealer;
use self::entry::{BEGINS_SITE, DISCOVERY, Entry, FORGOTTEN, NOBODY, REFRESH};
use self::kept_hours::{HoursReader, HoursWriter};
use self::ranking::{Ranking, SiteSums};
use self::rules::RunRules;
use self::survey::Survey;
use crate::candidates::{CandidateLists, CandidateReader};
use crate::planning::Planning;
use crate::priority::PriorityHistogram;
use crate::refresh::{RefreshDefinition, VisitPolicy};
use crate::traps::TrapFile;
use crate::visits::VisitReason;

pub use self::dealing::{PlannedVisits, RefreshSummary};

const DAY: f64 = 86_400.0;

/// What a run is made of, beside the register.
pub struct RefreshSources<'a> {
    /// The directory of links and ranks.
    pub links: &'a Path,
    /// The directory of what is known of changes.
    pub changes: &'a Path,
    /// Traps for all harvests, and for domains.
    pub traps: &'a TrapFile,
}

/// Plans the visits of a run.
pub struct Refreshing<'a> {
    planning: &'a Planning<'a>,
    refresh: &'a RefreshDefinition,
    sources: &'a RefreshSources<'a>,
    lists: CandidateLists,
    generations: [Option<u64>; 2],
    rules: RunRules<'a>,
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
            rules: RunRules {
                refresh,
                now: planning.now.as_second(),
                days: (interval.as_secs_f64() / DAY).max(1.0 / 1440.0),
            },
        }))
    }

    /// Plans the visits; `job_name` names a job by its number.
    ///
    /// # Errors
    /// When a list or a temporary file fails.
    pub fn plan(&self, job_name: &dyn Fn(usize) -> String) -> Result<PlannedVisits, Failure> {
        let mut left_out = BTreeMap::new();
        let (survey, mut entries, hours) = self.survey(&mut left_out)?;
        let ranking = self.rules.ranking(&survey);
        let mut cuts = self.prioritise(&survey, &mut entries, hours, &ranking)?;
        let mut planned = self.give_out(&survey, &mut entries, &mut cuts, job_name)?;
        planned.plan.left_out = left_out;
        Ok(planned)
    }

    fn reader(&self) -> Result<CandidateReader<'_>, Failure> {
        CandidateReader::open(self.planning, self.sources.traps, &self.lists)
    }

    fn temporary(&self) -> Result<File, Failure> {
        Ok(tempfile::tempfile_in(self.planning.temporary)?)
    }

    /// Reads the lists for the first time: what was summed up, the candidates, and their hours where the policy asks for them later.
    fn survey(
        &self,
        left_out: &mut BTreeMap<&'static str, u64>,
    ) -> Result<(Survey, File, Option<File>), Failure> {
        let mut entries = BufWriter::with_capacity(256 << 10, self.temporary()?);
        let mut hours = match self.refresh.policy {
            VisitPolicy::Lagrange => Some(HoursWriter::new(self.temporary()?)),
            _ => None,
        };
        let mut survey = Survey::new();
        let mut reader = self.reader()?;
        while let Some(candidate) = reader.next()? {
            let entry = self.rules.entry(&candidate);
            entry.write(&mut entries)?;
            if let Some(hours) = &mut hours {
                hours.write(candidate.hours.as_ref())?;
            }
            self.rules.note(&mut survey, &candidate, &entry);
        }
        *left_out = reader.left_out;
        let entries = entries.into_inner().map_err(|error| error.into_error())?;
        let hours = hours.map(HoursWriter::finish).transpose()?;
        Ok((survey, entries, hours))
    }

    /// Gives every candidate its priority, and finds where to cut.
    fn prioritise(
        &self,
        survey: &Survey,
        entries: &mut File,
        hours: Option<File>,
        ranking: &Ranking,
    ) -> Result<Cuts, Failure> {
        let mut out = BufWriter::with_capacity(256 << 10, self.temporary()?);
        let mut histograms = [(); 3].map(|()| PriorityHistogram::new());
        entries.rewind()?;
        let mut entries = BufReader::with_capacity(256 << 10, entries);
        if self.refresh.policy == VisitPolicy::Sites {
            return self.prioritise_sites(&mut entries, out, ranking);
        }
        let mut hours = hours.map(HoursReader::new);
        let mut count = 0;
        while let Some(entry) = Entry::read(&mut entries)? {
            count += 1;
            self.planning.look(count)?;
            let known = match &mut hours {
                Some(hours) => hours.read()?,
                None => None,
            };
            let priority = self.rules.priority(ranking, known.as_ref(), &entry);
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
        survey: &Survey,
        entries: &mut File,
        cuts: &mut Cuts,
        job_name: &dyn Fn(usize) -> String,
    ) -> Result<PlannedVisits, Failure> {
        entries.rewind()?;
        cuts.priorities.rewind()?;
        let mut entries = BufReader::with_capacity(256 << 10, entries);
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
