//! The state of the chain, read from its directories: what `status`, `check` and `run` tell.

use std::time::Duration;

use ecluse_clean::Clean;
use ecluse_spool::{Blocked, Depths, Place, Room, State, Throughput};
use ecluse_stage::{Exit, Stage, marks_of, say_blocked};
use serde::{Deserialize, Serialize};

use crate::desk::{Desk, Trouble};
use crate::holdings::Holdings;
use crate::jobs::Job;
use crate::show;

/// The whole chain at one moment.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Survey {
    pub(crate) stages: Vec<StageView>,
    #[serde(skip)]
    pub(crate) room: Option<Room>,
    pub(crate) free_bytes: Option<u64>,
    /// The jobs of the crawl that have not ended.
    pub(crate) jobs: Vec<Job>,
    /// The archive's files.
    pub(crate) holdings: Holdings,
    pub(crate) needs_you: Vec<Need>,
}

/// One stage at one moment.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct StageView {
    pub(crate) name: String,
    pub(crate) next: Vec<String>,
    #[serde(flatten)]
    pub(crate) depths: Depths,
    pub(crate) last_hour: Throughput,
    pub(crate) state: Condition,
    pub(crate) why: String,
    pub(crate) living_workers: usize,
    /// It is blocked by a full disk.
    #[serde(skip)]
    pub(crate) is_short_of_room: bool,
    /// Nobody waits for what it would do.
    pub(crate) is_optional: bool,
    /// Only a place where results go: no stage of this chain takes from it.
    pub(crate) is_end: bool,
}

/// How a stage is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Condition {
    Ok,
    Stopped,
    Paused,
    Blocked,
    Silent,
    Halted,
}

impl Condition {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Condition::Ok => "ok",
            Condition::Stopped => "not running",
            Condition::Paused => "PAUSED",
            Condition::Blocked => "BLOCKED",
            Condition::Silent => "SILENT",
            Condition::Halted => "HALTED",
        }
    }
}

/// Something a person has to look at, with the command that helps.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Need {
    pub(crate) stage: String,
    pub(crate) parcel: Option<String>,
    pub(crate) what: String,
    pub(crate) command: String,
}

impl Need {
    /// Where the numbers last shown are kept, under the root.
    pub(crate) const SHOWN: &'static str = ".needs-you.json";
}

/// More needs than this are counted, not listed.
pub(crate) const LISTED: usize = 200;

impl Desk {
    /// Looks at the chain, or at one of its stages.
    pub(crate) fn survey(&self, only: Option<&str>) -> Result<Survey, Trouble> {
        let mut survey = Survey {
            stages: Vec::new(),
            room: self.yard.room().ok(),
            free_bytes: None,
            jobs: Vec::new(),
            holdings: self.holdings(),
            needs_you: Vec::new(),
        };
        survey.free_bytes = survey.room.map(|room| room.free);
        for name in self.stages()? {
            if only.is_some_and(|only| only != name) {
                continue;
            }
            let view = self.view(&name)?;
            self.needs_of_stage(&view, &mut survey.needs_you);
            survey.stages.push(view);
        }
        one_for_all(&mut survey.needs_you);
        let names: Vec<String> = survey.stages.iter().map(|view| view.name.clone()).collect();
        survey.needs_you.append(&mut survey.holdings.needs(self));
        if let Some((stage, what)) = names.first().zip(self.clock_trouble(&names)) {
            survey.needs_you.push(Need {
                stage: stage.clone(),
                parcel: None,
                what,
                command: "set the clock of this host or of the file server".into(),
            });
        }
        if only.is_none_or(|only| only == ecluse_crawl::Crawl::NAME) {
            survey.jobs = self.unfinished_jobs()?;
            let mut needs = self.needs_of_jobs(&survey.jobs)?;
            survey.needs_you.append(&mut needs);
        }
        let mut waiting = Vec::new();
        for name in names {
            self.needs_of_parcels(&name, &mut survey.needs_you, &mut waiting)?;
        }
        // What goes on by itself comes last.
        survey.needs_you.append(&mut waiting);
        Ok(survey)
    }

    /// Says by how much this host's clock differs from the file system's, when it is too much.
    pub(crate) fn clock_trouble(&self, stages: &[String]) -> Option<String> {
        let mut skews = stages.iter().filter_map(|name| self.yard.clock_skew(name));
        let skew = skews.next()?;
        if skew.unsigned_abs() <= ecluse_spool::CLOCK_SKEW_LIMIT.as_secs() {
            return None;
        }
        let side = if skew > 0 { "ahead of" } else { "behind" };
        let by = show::age(skew.unsigned_abs());
        Some(format!(
            "this host's clock is {by} {side} the file system's"
        ))
    }

    /// Looks at one stage.
    pub(crate) fn view(&self, name: &str) -> Result<StageView, Trouble> {
        let depths = self.yard.depths(name)?;
        let settings = self.pipeline.shell(name);
        let next: Vec<String> = self
            .pipeline
            .next_of(name)
            .into_iter()
            .map(str::to_owned)
            .collect();
        let workers = self.yard.workers(name, settings.lease.0)?;
        let living = workers.iter().filter(|worker| worker.alive).count();
        let halted = workers
            .iter()
            .find(|worker| worker.alive && worker.note.state == "halted");
        let base = ecluse_config::base_of(name);
        let is_end = !self.entries.iter().any(|entry| entry.name == base);
        let silent = workers
            .iter()
            .filter(|worker| worker.alive && worker.silent > settings.lease.0)
            .max_by_key(|worker| worker.silent);
        let mut is_short_of_room = false;
        let (state, why) = if let Some(worker) = halted {
            (Condition::Halted, worker.note.why.clone())
        } else if let Some(worker) = silent {
            let silent = show::age(worker.silent.as_secs());
            let why = format!("worker {} lives and has not moved for {silent}", worker.id);
            (Condition::Silent, why)
        } else if let Some(blocked) = self.blocked(name, &next)? {
            let state = match blocked {
                Blocked::Paused(_) => Condition::Paused,
                Blocked::Space { .. } | Blocked::HighMark { .. } => Condition::Blocked,
            };
            is_short_of_room = matches!(blocked, Blocked::Space { .. });
            (state, say_blocked(&blocked))
        } else if living == 0 && !is_end {
            (Condition::Stopped, String::new())
        } else {
            (Condition::Ok, String::new())
        };
        Ok(StageView {
            last_hour: self.yard.throughput(name, Duration::from_secs(3600))?,
            name: name.to_owned(),
            next,
            depths,
            state,
            why,
            living_workers: living,
            is_short_of_room,
            is_optional: living == 0 && base == Clean::NAME && self.is_dry_run()?,
            is_end,
        })
    }

    /// Tells whether clean only says what it would remove: a chain that runs without it does all of its work.
    fn is_dry_run(&self) -> Result<bool, Trouble> {
        let settings: ecluse_clean::Settings = self
            .pipeline
            .stage_settings(Clean::NAME)
            .map_err(|error| Trouble::new(Exit::Config, error))?;
        Ok(!settings.remove)
    }

    pub(crate) fn blocked(&self, name: &str, next: &[String]) -> Result<Option<Blocked>, Trouble> {
        if !self.yard.stage(name).root().exists() {
            return Ok(None);
        }
        let marks = marks_of(&self.pipeline.shell(name));
        let base = ecluse_config::base_of(name);
        let spreads = self.entries.iter().any(|e| e.name == base && e.spreads);
        if !spreads || next.len() < 2 {
            return Ok(self.yard.pressure(name, next, &marks, None)?);
        }
        // It goes on while one of them has room.
        let mut full = None;
        for next in next {
            let next = std::slice::from_ref(next);
            full = self.yard.pressure(name, next, &marks, None)?;
            if full.is_none() {
                break;
            }
        }
        Ok(full)
    }

    fn needs_of_stage(&self, view: &StageView, needs: &mut Vec<Need>) {
        let behind = view.depths.ready + view.depths.dropped;
        let mut need = |what: String, command: String| {
            needs.push(Need {
                stage: view.name.clone(),
                parcel: None,
                what,
                command,
            });
        };
        match view.state {
            Condition::Paused => need(
                format!("{}, {behind} behind it", view.why),
                self.command(&format!("resume {}", view.name)),
            ),
            Condition::Halted => need(
                format!("halted: {}", view.why),
                "mend the machine; it goes on by itself".into(),
            ),
            Condition::Blocked if view.is_short_of_room => need(
                format!("claims nothing: {}", view.why),
                "make room, or set min-free lower; it goes on by itself".into(),
            ),
            Condition::Blocked => need(
                format!("claims nothing: {}", view.why),
                "it goes on by itself".into(),
            ),
            Condition::Silent => need(
                view.why.clone(),
                format!("systemctl restart ecluse@{}", view.name),
            ),
            Condition::Stopped if view.is_optional => {}
            Condition::Stopped if behind + view.depths.working > 0 => {
                let left = match view.depths.working {
                    0 => String::new(),
                    working => format!(", {working} left by the dead"),
                };
                let run = self.command(&format!("run {}", view.name));
                need(
                    format!("{behind} waiting and no worker{left}"),
                    format!("systemctl start ecluse@{}  or  {run}", view.name),
                );
            }
            Condition::Stopped | Condition::Ok => {}
        }
        if !view.depths.refused.is_empty() {
            let names = view.depths.refused.join(" ");
            need(
                format!("not plain files or parcels: {}", show::cut(&names, 60)),
                format!("ls -la {}", self.yard.stage(&view.name).root().display()),
            );
        }
    }

    fn needs_of_parcels(
        &self,
        stage: &str,
        needs: &mut Vec<Need>,
        waiting: &mut Vec<Need>,
    ) -> Result<(), Trouble> {
        let mut held: Vec<Place> = Vec::new();
        let mut deferred: (usize, Option<Place>) = (0, None);
        self.yard
            .each_place(stage, &mut |place| match place.state {
                State::Held => held.push(place),
                State::Deferred => {
                    deferred.0 += 1;
                    // The one that comes next tells what all wait for.
                    if deferred.1.as_ref().is_none_or(|next| place.due < next.due) {
                        deferred.1 = Some(place);
                    }
                }
                _ => {}
            })?;
        if let (count, Some(next)) = deferred {
            let reason = self.yard.trouble(&next).unwrap_or_default().reason;
            waiting.push(Need {
                stage: stage.to_owned(),
                parcel: None,
                what: format!("{count} deferred, tried again by themselves: {reason}"),
                command: self.command(&format!("retry --stage {stage} --all")),
            });
        }
        held.sort_by(|a, b| a.parcel.cmp(&b.parcel));
        for place in held.into_iter().take(LISTED.saturating_sub(needs.len())) {
            let what = match self.yard.why(&place)? {
                Some(why) => format!(
                    "{}; since {}, {} {}",
                    why.reason.trim_end().replace('\n', "; "),
                    show::local(&why.when),
                    place.attempts,
                    if place.attempts == 1 { "try" } else { "tries" }
                ),
                None => "held by hand".to_owned(),
            };
            let number = needs.len() + 1;
            needs.push(Need {
                stage: stage.to_owned(),
                parcel: Some(place.parcel.to_string()),
                what,
                command: format!(
                    "{}   or  release {number}",
                    self.command(&format!("why {number}"))
                ),
            });
        }
        Ok(())
    }
}

/// Tells once what keeps many stages from working: a full disk is one thing to mend.
fn one_for_all(needs: &mut Vec<Need>) {
    let mut told: Vec<(Need, usize)> = Vec::new();
    for need in needs.drain(..) {
        let same = |(known, _): &&mut (Need, usize)| {
            known.what == need.what && known.command == need.command
        };
        match told.iter_mut().find(same) {
            Some((_, more)) => *more += 1,
            None => told.push((need, 0)),
        }
    }
    needs.extend(told.into_iter().map(|(mut need, more)| {
        if more > 0 {
            need.what = format!("and {more} more: {}", need.what);
        }
        need
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ails_many_stages_is_told_once() {
        let need = |stage: &str, what: &str| Need {
            stage: stage.into(),
            parcel: None,
            what: what.into(),
            command: "make room".into(),
        };
        let mut needs = vec![
            need("crawl", "1 MB free"),
            need("index", "halted"),
            need("merge", "1 MB free"),
            need("clean", "1 MB free"),
        ];
        one_for_all(&mut needs);
        let told: Vec<_> = needs.iter().map(|n| (&*n.stage, &*n.what)).collect();
        assert_eq!(
            told,
            [("crawl", "and 2 more: 1 MB free"), ("index", "halted")]
        );
    }
}
