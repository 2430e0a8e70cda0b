//! DNS, asked a second time: names that broad harvests take soon, and of which DNS was not asked lately or said once that they do
//! not exist, go to dns-filter as parcels like preload's.
//!
//! A day has one such round, and none begins before the answers of the last one are in the register. Nobody gave these names anew:
//! their lines have no source.

use std::io::{self, BufWriter, Write};

use ecluse_names::{NameFlags, NameLine, Registered, key_of};
use ecluse_register::RegisterDay;
use ecluse_stage::{Failure, Inbox, NewParcel, OutFile, Outbox, Parcel, ParcelId, ParcelState};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::changes::NAMES;
use crate::definition::{Harvest, HarvestKind, is_harvest_name};
use crate::harvests::read_file;
use crate::planning::{Planning, day_of, read_line};
use crate::record_view::RecordView;
use crate::runs::{RecheckRecord, RunState};
use crate::{Plan, must_not_be_fenced};

/// The small file of a round.
pub(crate) const RECHECK: &str = "recheck.json";
/// Days tell no hours: a check two days ago is one more than a day ago.
const DENIED_BEFORE: SignedDuration = SignedDuration::from_hours(48);

/// What a round asks for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Recheck {
    day: String,
    /// What was denied on this day or before is asked again.
    denied: String,
    harvests: Vec<RecheckedHarvest>,
}

#[derive(Debug, Serialize, Deserialize)]
struct RecheckedHarvest {
    harvest: String,
    #[serde(with = "crate::runs::time_text")]
    due: Timestamp,
}

/// What was looked at without finding a name to ask about: day, generation, harvests.
pub(crate) type QuietDay = (RegisterDay, Option<u64>, Vec<(String, Timestamp)>);

impl Plan {
    /// Returns when a broad harvest is due, where it waits or will be due soon.
    pub(crate) fn soon(
        &self,
        harvest: &Harvest,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, Failure> {
        if harvest.definition.kind != HarvestKind::Broad {
            return Ok(None);
        }
        let schedule = &harvest.schedule;
        if let Some(due) = schedule.last_until(now, schedule.from) {
            let run = self.runs.run(&harvest.name, due)?;
            if run.is_none_or(|run| run.state == RunState::Waiting) {
                return Ok(Some(due));
            }
        }
        let ahead = SignedDuration::try_from(self.settings.check_ahead.get());
        let until = now.checked_add(ahead.map_err(Failure::config)?);
        let until = until.map_err(Failure::config)?;
        Ok(schedule.next_after(now).filter(|due| *due <= until))
    }

    /// Puts the small parcel of a round, when harvests need one.
    pub(crate) fn collect_rechecks(
        &mut self,
        soon: Vec<(Harvest, Timestamp)>,
        now: Timestamp,
        inbox: &mut Inbox<'_>,
    ) -> Result<(), Failure> {
        let generation = self.register.current().map_err(Failure::halt)?;
        if self.home.back.is_empty() || generation.is_none() {
            return Ok(());
        }
        let day = |time| day_of(time).ok_or_else(|| Failure::halt("this day has no date"));
        let today = day(now)?;
        let denied = day(now.checked_sub(DENIED_BEFORE).map_err(Failure::halt)?)?;
        let recheck = |day: String| Recheck {
            day,
            denied: denied.to_string(),
            harvests: soon
                .iter()
                .map(|(harvest, due)| RecheckedHarvest {
                    harvest: harvest.name.clone(),
                    due: *due,
                })
                .collect(),
        };
        if let Some(mut last) = self.runs.recheck()? {
            let Some(parcels) = last.parcels else {
                // Killed in between, it is put again.
                return put(&recheck(last.day), inbox);
            };
            if !last.is_over {
                if !self.is_over(&last.day, parcels, today, denied)? {
                    return Ok(());
                }
                last.is_over = true;
                self.runs.set_recheck(&last)?;
            }
            if last.day >= today.to_string() {
                return Ok(());
            }
        }
        let names = soon
            .iter()
            .map(|(harvest, due)| (harvest.name.clone(), *due));
        // What waits looks at every generation; what is not due yet, once a day.
        let waits = soon.iter().any(|(_, due)| *due <= now);
        let quiet = (today, generation.filter(|_| waits), names.collect());
        if soon.is_empty() || self.quiet.as_ref() == Some(&quiet) {
            return Ok(());
        }
        let mut domains = 0u64;
        self.each_to_check(&soon, denied, &|| false, &mut |_| {
            domains += 1;
            Ok(())
        })?;
        if domains == 0 {
            self.quiet = Some(quiet);
            return Ok(());
        }
        // Put down before the parcel is: killed in between, the round is put again from this.
        self.runs.set_recheck(&RecheckRecord {
            day: today.to_string(),
            parcels: None,
            names: 0,
            is_over: false,
        })?;
        put(&recheck(today.to_string()), inbox)
    }

    /// Tells whether the answers of a round are in the register, or will never come.
    fn is_over(
        &self,
        day: &str,
        parcels: u32,
        today: RegisterDay,
        denied: RegisterDay,
    ) -> Result<bool, Failure> {
        let stages: Vec<String> = self.home.back.iter().take(1).cloned().collect();
        let stages = [stages, vec![self.home.stage.clone()]].concat();
        for number in 1..=parcels {
            let id = part(day, number)?;
            if self.home.engine.receipt(&self.home.stage, &id)?.is_some() {
                continue;
            }
            // One that a person threw away gives no answer. On its first day it may be between two stages.
            if day >= today.to_string().as_str() {
                return Ok(false);
            }
            let places = self.home.engine.locate(&stages, &id)?;
            let is_gone = match places.is_empty() {
                true => day <= denied.to_string().as_str(),
                false => places
                    .iter()
                    .all(|place| place.state == ParcelState::Discarded),
            };
            if !is_gone {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Gives the names of a round to dns-filter.
    pub(crate) fn ask_again(&self, parcel: &Parcel, outbox: &mut Outbox) -> Result<(), Failure> {
        let round: Recheck =
            serde_json::from_reader(parcel.open(RECHECK)?).map_err(Failure::hold)?;
        let days = RegisterDay::parse(&round.day).zip(RegisterDay::parse(&round.denied));
        let (Some((_, denied)), Some(to)) = (days, self.home.back.first()) else {
            return Err(Failure::hold(format!(
                "{RECHECK} of {}: no days, or no stage to ask",
                parcel.id()
            )));
        };
        let traps = self.traps()?;
        let directory = self.home.path(&self.settings.harvests);
        let mut soon = Vec::new();
        for asked in &round.harvests {
            let path = directory.join(format!("{}.toml", asked.harvest));
            let contact = &self.home.site.contact;
            // What is gone or makes no sense any more takes no domain.
            if is_harvest_name(&asked.harvest)
                && let Ok(harvest) = read_file(&path, &asked.harvest, contact, &traps)
            {
                soon.push((harvest, asked.due));
            }
        }
        let mut sink = RecheckSink {
            outbox,
            day: &round.day,
            most: self.settings.check_list.get(),
            to,
            parcels: 0,
            names: 0,
            open: None,
        };
        self.round(&soon, denied, &mut sink)?;
        let (parcels, names) = (sink.parcels, sink.names);
        must_not_be_fenced(&[parcel])?;
        self.runs.set_recheck(&RecheckRecord {
            day: round.day,
            parcels: Some(parcels),
            names,
            is_over: false,
        })?;
        outbox.fact("asked-again", names);
        tracing::info!(names, parcels, "DNS is asked again");
        Ok(())
    }

    fn round(
        &self,
        soon: &[(Harvest, Timestamp)],
        denied: RegisterDay,
        sink: &mut RecheckSink<'_>,
    ) -> Result<(), Failure> {
        let Some((harvest, due)) = soon.first() else {
            return Ok(());
        };
        let perimeter = self.perimeter()?;
        let never = || false;
        let planning = self.planning(harvest, &perimeter, *due, &never);
        let mut sorter = planning.sorter();
        let mut line = Vec::new();
        let outbox = &*sink.outbox;
        let is_stopped = || {
            outbox.tick();
            outbox.stop_asked()
        };
        self.each_to_check(soon, denied, &is_stopped, &mut |record| {
            for name in record.checked_names() {
                let key = key_of(name);
                let listed = NameLine {
                    key: &key,
                    name,
                    domain: Registered::of(name).domain,
                    site: record.domain,
                    sources: "-",
                    is_known: true,
                    is_forced: false,
                    flags: NameFlags::NONE,
                };
                line.clear();
                listed.write(&mut line)?;
                line.pop();
                sorter.push(&line).map_err(Failure::halt)?;
            }
            Ok(())
        })?;
        let mut lines = planning.sorted(sorter)?;
        let (mut line, mut last) = (String::new(), String::new());
        while read_line(&mut lines, &mut line)? {
            let key = line.split('\t').next().unwrap_or_default();
            // A name below one site may be a site itself.
            if key != last {
                last.clear();
                last.push_str(key);
                sink.name(&line)?;
            }
        }
        sink.close()
    }

    /// Calls `each` for every domain about which one of the harvests wants DNS to be asked.
    fn each_to_check(
        &self,
        soon: &[(Harvest, Timestamp)],
        denied: RegisterDay,
        is_stopped: &dyn Fn() -> bool,
        each: &mut dyn FnMut(&RecordView<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let perimeter = self.perimeter()?;
        let plannings: Vec<Planning<'_>> = soon
            .iter()
            .map(|(harvest, due)| self.planning(harvest, &perimeter, *due, is_stopped))
            .collect();
        let Some(first) = plannings.first() else {
            return Ok(());
        };
        first.each_record(&mut |record| {
            let mut wanting = plannings.iter();
            match wanting.any(|planning| planning.wants_check(record, denied)) {
                true => each(record),
                false => Ok(()),
            }
        })
    }
}

/// Parcels of names for dns-filter, one after the other.
struct RecheckSink<'a> {
    outbox: &'a mut Outbox,
    day: &'a str,
    /// Names in a parcel.
    most: u32,
    to: &'a str,
    parcels: u32,
    names: u64,
    open: Option<OpenNames>,
}

struct OpenNames {
    parcel: NewParcel,
    names: BufWriter<OutFile>,
    count: u32,
}

impl RecheckSink<'_> {
    fn name(&mut self, line: &str) -> Result<(), Failure> {
        if self
            .open
            .as_ref()
            .is_none_or(|open| open.count >= self.most)
        {
            self.close()?;
            if self.outbox.stop_asked() {
                return Err(Failure::give_back());
            }
            self.outbox.tick();
            self.parcels += 1;
            let mut parcel = self.outbox.parcel(part(self.day, self.parcels)?, "names")?;
            let names = BufWriter::with_capacity(64 << 10, parcel.create(NAMES)?);
            self.open = Some(OpenNames {
                parcel,
                names,
                count: 0,
            });
        }
        let open = self.open.as_mut().expect("one was begun");
        open.count += 1;
        self.names += 1;
        Ok(writeln!(open.names, "{line}")?)
    }

    fn close(&mut self) -> Result<(), Failure> {
        if let Some(open) = self.open.take() {
            let mut parcel = open.parcel;
            let names = open.names.into_inner();
            parcel.add(names.map_err(io::IntoInnerError::into_error)?)?;
            self.outbox.emit_to(parcel, self.to);
        }
        Ok(())
    }
}

fn put(round: &Recheck, inbox: &mut Inbox<'_>) -> Result<(), Failure> {
    let id = ParcelId::new(&format!("recheck-{}", round.day)).map_err(Failure::halt)?;
    let bytes = serde_json::to_vec(round).map_err(Failure::halt)?;
    inbox.put(&id, "recheck", (RECHECK, &bytes))
}

fn part(day: &str, number: u32) -> Result<ParcelId, Failure> {
    ParcelId::new(&format!("recheck-{day}-{number:05}")).map_err(Failure::halt)
}
