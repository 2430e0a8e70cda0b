//! What keeps a worker from claiming: a pause, a full destination, a full disk.

use std::time::Instant;

use ecluse_spool::{Blocked, SpoolError};
use ecluse_telemetry::Cause;

use super::stand_by::Owning;
use super::{PRESSURE_EVERY, StepError, WorkerLoop};
use crate::pool::nexts;
use crate::stage::Stage;

impl<Kind: Stage> WorkerLoop<Kind> {
    /// Waits while something keeps the stage from claiming.
    pub(super) fn hold_back(&mut self) -> Result<bool, StepError> {
        let now = Instant::now();
        if now >= self.pressure_at {
            self.pressure_at = now + PRESSURE_EVERY;
            self.must_own()?;
            let pipeline = self.context.stage.control.pipeline();
            let nexts = nexts(&pipeline, self.context.stage.name);
            let blocked = if Kind::SPREADS {
                self.pressure_of_all(&nexts)?
            } else {
                self.pressure(&nexts)?
            };
            self.set_blocked(blocked);
        }
        let Some(blocked) = &self.blocked else {
            return Ok(false);
        };
        let why = say_blocked(blocked);
        self.commit()?;
        self.worker.give_back_unasked()?;
        self.note("blocked", &why, "");
        self.upkeep_if_due()?;
        let heard = self.context.bell.rings();
        let wait = PRESSURE_EVERY.min(self.longest_wait());
        self.context.bell.wait(heard, wait);
        Ok(true)
    }

    /// Fails when another host owns by now what the stage works on.
    fn must_own(&self) -> Result<(), StepError> {
        let own = Owning::of(&self.context, &self.settings);
        match own.ask()? {
            None => Ok(()),
            Some(other) => {
                tracing::warn!(reason = %other, "what this stage works on is another host's");
                let worker = self.worker.name().to_string();
                Err(SpoolError::Fenced { worker }.into())
            }
        }
    }

    fn pressure(&self, nexts: &[String]) -> Result<Option<Blocked>, StepError> {
        let was = self.blocked.as_ref();
        let engine = &self.context.engine;
        Ok(engine.pressure(self.context.stage.name, nexts, &self.marks, was)?)
    }

    /// Blocked by its nexts only when each of them is over its mark.
    fn pressure_of_all(&self, nexts: &[String]) -> Result<Option<Blocked>, StepError> {
        let mut full = self.pressure(&[])?;
        if full.is_some() {
            return Ok(full);
        }
        for next in nexts {
            full = self.pressure(std::slice::from_ref(next))?;
            if full.is_none() {
                return Ok(None);
            }
        }
        Ok(full)
    }

    fn set_blocked(&mut self, blocked: Option<Blocked>) {
        if self.blocked == blocked {
            return;
        }
        let metrics = &self.context.stage.metrics;
        for cause in [Cause::Paused, Cause::HighMark, Cause::Space] {
            metrics.blocked(
                cause,
                blocked.as_ref().is_some_and(|b| cause_of(b) == cause),
            );
        }
        let said = blocked.as_ref().map(say_blocked);
        match (&said, &self.blocked) {
            (Some(reason), None) => tracing::warn!(%reason, "claiming nothing"),
            (None, Some(_)) => {
                tracing::info!("claiming again");
                self.more_waiting = true;
            }
            _ => {}
        }
        self.context.tally.set_blocked(said);
        self.blocked = blocked;
    }
}

fn cause_of(blocked: &Blocked) -> Cause {
    match blocked {
        Blocked::Paused(_) => Cause::Paused,
        Blocked::HighMark { .. } => Cause::HighMark,
        Blocked::Space { .. } | Blocked::Scratch { .. } => Cause::Space,
    }
}

/// Says in one sentence what keeps a stage from claiming.
pub fn say_blocked(blocked: &Blocked) -> String {
    match blocked {
        Blocked::Paused(paused) if paused.who.is_empty() => "paused by hand".into(),
        Blocked::Paused(paused) => format!("paused by {}: {}", paused.who, paused.why),
        Blocked::HighMark {
            stage,
            waiting,
            low,
        } => format!("{stage} has {waiting} waiting; goes on at {low}"),
        Blocked::Space { free, floor } => format!(
            "{} free, needs {}",
            rounded(*free),
            ecluse_config::Bytes(*floor)
        ),
        Blocked::Scratch {
            used,
            wanted,
            limit,
        } => {
            let limit = ecluse_config::Bytes(*limit);
            let used = rounded(*used);
            match wanted {
                0 => format!(
                    "{used} lie in the scratch directory; 'engine.scratch-limit' is {limit}"
                ),
                wanted => format!(
                    "{used} lie in the scratch directory and a file of {} has to; 'engine.scratch-limit' is {limit}",
                    rounded(*wanted)
                ),
            }
        }
    }
}

/// Returns bytes as people read them, never more than there are. What is free changes all the time: only the first figures count,
/// and a reason that stays the same is told once.
fn rounded(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "kB", "MB", "GB", "TB", "PB"];
    let mut scale = 1;
    let mut unit = 0;
    while bytes / scale >= 1000 && unit + 1 < UNITS.len() {
        scale *= 1000;
        unit += 1;
    }
    let (whole, tenths) = (bytes / scale, bytes % scale * 10 / scale);
    match unit {
        0 => format!("{whole} B"),
        _ => format!("{whole}.{tenths} {}", UNITS[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_space_is_told_in_few_figures() {
        let space = |free| {
            say_blocked(&Blocked::Space {
                free,
                floor: 1 << 30,
            })
        };
        assert_eq!(space(68_272_402_432), "68.2 GB free, needs 1 GiB");
        assert_eq!(space(999_999), "999.9 kB free, needs 1 GiB");
        assert_eq!(space(999), "999 B free, needs 1 GiB");
        assert_eq!(space(0), "0 B free, needs 1 GiB");
    }

    #[test]
    fn a_full_scratch_directory_is_told_with_the_setting() {
        let scratch = |wanted| {
            say_blocked(&Blocked::Scratch {
                used: 51_200_000_000,
                wanted,
                limit: 50 << 30,
            })
        };
        assert_eq!(
            scratch(0),
            "51.2 GB lie in the scratch directory; 'engine.scratch-limit' is 50 GiB"
        );
        assert_eq!(
            scratch(4_000_000_000),
            "51.2 GB lie in the scratch directory and a file of 4.0 GB has to; 'engine.scratch-limit' is 50 GiB"
        );
    }
}
