//! The state of the chain, read from its directories: what `status`, `check` and `run` tell.

use std::time::Duration;

use ecluse_clean::Clean;
use ecluse_spool::{Blocked, ClusterView, Depths, Room, Throughput, WorkerView};
use ecluse_stage::{Exit, STANDING_BY, Stage, marks_of, say_blocked};
use serde::Serialize;

use crate::context::{DriverContext, Trouble};
use crate::harvests::HarvestOverview;
use crate::holdings::Holdings;
use crate::jobs::Job;
use crate::needs::{Need, one_for_all};
use crate::show;

/// What helps where a file of settings or rules makes no sense.
const MEND_FILE: &str = "mend that file; the stage goes on by itself";

/// What a need is about that is about no stage.
const SERVERS: &str = "servers";

/// The whole chain at one moment.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Survey {
    pub(crate) stages: Vec<StageView>,
    #[serde(skip)]
    pub(crate) room: Option<Room>,
    pub(crate) free_bytes: Option<u64>,
    /// The servers, where the parcels are on some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cluster: Option<ClusterView>,
    /// The jobs of the crawl that have not ended.
    pub(crate) jobs: Vec<Job>,
    /// The archive's files.
    pub(crate) holdings: Holdings,
    pub(crate) needs_you: Vec<Need>,
}

impl Survey {
    /// Tells whether the servers are such that the stages could not be looked at.
    pub(crate) fn hides_stages(&self) -> bool {
        let cluster = self.cluster.as_ref();
        cluster.is_some_and(ClusterView::hides_stages)
    }
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
    /// It halted for what people wrote into a file.
    #[serde(skip)]
    pub(crate) is_misconfigured: bool,
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

impl DriverContext {
    /// Looks at the servers, where the parcels are on some.
    fn cluster(&self) -> Option<ClusterView> {
        let names = self.pipeline.stage_names();
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        self.engine.cluster(&names)
    }

    /// Looks at the chain, or at one of its stages.
    pub(crate) fn survey(&self, only: Option<&str>) -> Result<Survey, Trouble> {
        let mut survey = Survey {
            stages: Vec::new(),
            room: self.engine.room().ok(),
            free_bytes: None,
            cluster: self.cluster(),
            jobs: Vec::new(),
            holdings: self.holdings(),
            needs_you: Vec::new(),
        };
        survey.free_bytes = survey.room.map(|room| room.free);
        if let Some(cluster) = &survey.cluster {
            survey
                .needs_you
                .extend(cluster.troubles.iter().map(|trouble| {
                    Need::of_stage(SERVERS, trouble.what.clone(), trouble.help.clone())
                }));
            if cluster.hides_stages() {
                return Ok(survey);
            }
        }
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
            let owner = self.engine.clock_owner(stage);
            let help = format!("set the clock of this host or of {owner}; work goes on meanwhile");
            let need = Need::of_stage(stage, what, help);
            survey.needs_you.push(need);
        }
        if only.is_none_or(|only| only == ecluse_crawl::Crawl::NAME) {
            survey.jobs = self.unfinished_jobs()?;
            let mut needs = self.needs_of_jobs(&survey.jobs)?;
            survey.needs_you.append(&mut needs);
        }
        let mut waiting = Vec::new();
        if names.iter().any(|name| name == ecluse_plan::Plan::NAME) {
            // A file of librarians that makes no sense is something to mend, and no end of the screen.
            match HarvestOverview::open(self) {
                Ok(overview) => {
                    let (mut needs, mut waits) = overview.needs()?;
                    survey.needs_you.append(&mut needs);
                    waiting.append(&mut waits);
                }
                Err(trouble) if trouble.exit == Exit::Config => {
                    let plan = ecluse_plan::Plan::NAME;
                    let what = format!("refused: {}", trouble.line);
                    survey
                        .needs_you
                        .push(Need::of_stage(plan, what, MEND_FILE.to_owned()));
                }
                Err(trouble) => return Err(trouble),
            }
        }
        for name in names {
            self.needs_of_parcels(&name, &mut survey.needs_you, &mut waiting)?;
        }
        // What goes on by itself comes last.
        survey.needs_you.append(&mut waiting);
        Ok(survey)
    }

    /// Says by how much this host's clock differs from the one that all hosts share, when it is too much.
    pub(crate) fn clock_trouble(&self, stages: &[String]) -> Option<String> {
        let mut skews = stages
            .iter()
            .filter_map(|name| Some((name, self.engine.clock_skew(name)?)));
        let (stage, skew) = skews.next()?;
        if skew.unsigned_abs() <= ecluse_spool::CLOCK_SKEW_LIMIT.as_secs() {
            return None;
        }
        let side = if skew > 0 { "ahead of" } else { "behind" };
        let by = show::age(skew.unsigned_abs());
        let owner = self.engine.clock_owner(stage);
        Some(format!("this host's clock is {by} {side} {owner}'s"))
    }

    /// Looks at one stage.
    pub(crate) fn view(&self, name: &str) -> Result<StageView, Trouble> {
        let depths = self.engine.depths(name)?;
        let settings = self.pipeline.shell(name);
        let next: Vec<String> = self
            .pipeline
            .next_of(name)
            .into_iter()
            .map(str::to_owned)
            .collect();
        let workers = self.engine.workers(name, settings.lease.0)?;
        let living = workers.iter().filter(|worker| worker.alive).count();
        let halted = workers
            .iter()
            .find(|worker| worker.alive && ["halted", "refusing"].contains(&&*worker.note.state));
        let is_misconfigured = halted.is_some_and(|worker| worker.note.state == "refusing");
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
                Blocked::Space { .. } | Blocked::Scratch { .. } | Blocked::HighMark { .. } => {
                    Condition::Blocked
                }
            };
            is_short_of_room = matches!(blocked, Blocked::Space { .. } | Blocked::Scratch { .. });
            (state, say_blocked(&blocked))
        } else if let Some(why) = stands_by(&workers) {
            (Condition::Blocked, why)
        } else if living == 0 && !is_end {
            (Condition::Stopped, String::new())
        } else {
            let said = workers
                .iter()
                .filter(|worker| worker.alive && worker.note.state == "working")
                .map(|worker| worker.note.why.as_str());
            let said: Vec<&str> = said.filter(|why| !why.is_empty()).collect();
            (Condition::Ok, said.join("; "))
        };
        Ok(StageView {
            last_hour: self.engine.throughput(name, Duration::from_secs(3600))?,
            name: name.to_owned(),
            next,
            depths,
            state,
            why,
            living_workers: living,
            is_short_of_room,
            is_misconfigured,
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
        if !self.engine.stage_directory(name).exists() {
            return Ok(None);
        }
        let base = ecluse_config::base_of(name);
        let entry = self.entries.iter().find(|entry| entry.name == base);
        let makes_room = entry.is_some_and(|entry| entry.makes_room);
        let marks = marks_of(&self.pipeline.shell(name), makes_room);
        let spreads = entry.is_some_and(|entry| entry.spreads);
        if !spreads || next.len() < 2 {
            return Ok(self.engine.pressure(name, next, &marks, None)?);
        }
        // It goes on while one of them has room.
        let mut full = None;
        for next in next {
            let next = std::slice::from_ref(next);
            full = self.engine.pressure(name, next, &marks, None)?;
            if full.is_none() {
                break;
            }
        }
        Ok(full)
    }

    fn needs_of_stage(&self, view: &StageView, needs: &mut Vec<Need>) {
        let behind = view.depths.ready + view.depths.dropped;
        let mut need = |what: String, command: String| {
            needs.push(Need::of_stage(&view.name, what, command));
        };
        match view.state {
            Condition::Paused => need(
                format!("{}, {behind} behind it", view.why),
                self.command(&format!("resume {}", view.name)),
            ),
            Condition::Halted => need(
                format!("halted: {}", view.why),
                match view.is_misconfigured {
                    true => MEND_FILE,
                    false => "mend the machine; it goes on by itself",
                }
                .into(),
            ),
            Condition::Blocked if view.is_short_of_room => need(
                format!("claims nothing: {}", view.why),
                "make room; it goes on by itself, and delete and clean have not stopped".into(),
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
                let what = match (behind, view.depths.working) {
                    (behind, 0) => format!("{behind} waiting and no worker"),
                    (0, left) => format!(
                        "{left} left by a worker that has died; they go on when the stage runs"
                    ),
                    (behind, left) => {
                        format!("{behind} waiting and no worker, {left} left by one that has died")
                    }
                };
                let run = self.command(&format!("run {}", view.name));
                need(
                    what,
                    format!("systemctl start ecluse@{}  or  {run}", view.name),
                );
            }
            Condition::Stopped | Condition::Ok => {}
        }
        if !view.depths.refused.is_empty() {
            let names = view.depths.refused.join(" ");
            need(
                format!("not plain files or parcels: {}", show::cut(&names, 60)),
                format!(
                    "ls -la {}",
                    self.engine.stage_directory(&view.name).display()
                ),
            );
        }
    }
}

/// Says why all living workers of a stage stand by, if they do: another host owns what they work on, and does not run the stage.
fn stands_by(workers: &[WorkerView]) -> Option<String> {
    let mut living = workers.iter().filter(|worker| worker.alive);
    let first = living.next()?;
    let stands = |worker: &WorkerView| worker.note.state == STANDING_BY;
    (stands(first) && living.all(stands)).then(|| first.note.why.clone())
}
