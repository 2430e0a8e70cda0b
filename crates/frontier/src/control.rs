//! What the caller may change while the frontier runs: settings, budgets, groups, rests.
//!
//! Each change becomes durable with the next commit, but for the settings, which the caller keeps.

use std::time::Duration;

use crate::error::{FrontierError, Result};
use crate::frontier::{Frontier, limits};
use crate::item::Millis;
use crate::key::{self, Id};
use crate::manners::RestReason;
use crate::record::{QueuePlace, QueueRecord, Record};
use crate::settings::{Budget, Overrides, Settings};
use crate::store::Space;

/// How long a queue and its group rest from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rests {
    /// The queue itself.
    pub queue: Duration,
    /// Its group.
    pub group: Duration,
}

/// Queues looked at in one go when all of them are.
const SWEEP: usize = 10_000;

impl Frontier {
    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Takes new settings. A larger budget brings queues back that had spent theirs.
    ///
    /// # Errors
    /// When a file is damaged or the machine refuses.
    pub fn set_settings(&mut self, settings: Settings) -> Result<()> {
        let reconsider = settings.budget != self.settings.budget;
        self.store.set_limits(limits(&settings));
        self.settings = settings;
        let groups: Vec<Id> = self.lanes.keys().copied().collect();
        for group in groups {
            self.place_lane(&group);
        }
        if reconsider && self.totals.retired_queues > 0 {
            self.reconsider_retired()?;
        }
        Ok(())
    }

    /// Gives a queue a budget of its own, or the settings' one again.
    ///
    /// # Errors
    /// When there is no such queue, a file is damaged or the machine refuses.
    pub fn set_budget(&mut self, queue: &str, budget: Option<Budget>) -> Result<()> {
        let id = self.existing(queue)?;
        self.change_queue(&id, |queue| queue.budget = budget)?;
        self.reconsider(&id)
    }

    /// Puts a queue into another group, from now on; what is in flight ends in the old one.
    ///
    /// # Errors
    /// When there is no such queue, a file is damaged or the machine refuses.
    pub fn set_group(&mut self, queue: &str, group: &str) -> Result<()> {
        let id = self.existing(queue)?;
        let record = self.queues.get(&mut self.store, &id)?;
        if record.is_some_and(|record| record.group == group) {
            return Ok(());
        }
        self.ensure_group(group)?;
        self.anew(&id, |queue| group.clone_into(&mut queue.group))
    }

    /// Sets what differs in the manners towards a group.
    ///
    /// # Errors
    /// When a file is damaged or the machine refuses.
    pub fn set_overrides(&mut self, group: &str, overrides: Overrides) -> Result<()> {
        let id = self.ensure_group(group)?;
        self.change_group(&id, |group| group.overrides = overrides)?;
        self.place_lane(&id);
        Ok(())
    }

    /// Lets a group rest until then at least, for a reason that the frontier does not know by itself.
    ///
    /// # Errors
    /// When a file is damaged or the machine refuses.
    pub fn hold_group(
        &mut self,
        now: Millis,
        group: &str,
        until: Millis,
        why: RestReason,
    ) -> Result<()> {
        self.tell(now);
        let (id, now) = (self.ensure_group(group)?, self.now);
        self.change_group(&id, |group| group.pace.hold(now, until, why))?;
        self.place_lane(&id);
        Ok(())
    }

    /// Lets a queue rest until then at least, if there is one of this name.
    ///
    /// # Errors
    /// When a file is damaged or the machine refuses.
    pub fn hold_queue(
        &mut self,
        now: Millis,
        queue: &str,
        until: Millis,
        why: RestReason,
    ) -> Result<()> {
        self.tell(now);
        let (id, now) = (key::id(queue), self.now);
        self.change_queue(&id, |queue| queue.pace.hold(now, until, why))?;
        self.unlist(&id);
        self.list(&id);
        Ok(())
    }

    /// Says how long a queue and its group rest.
    ///
    /// # Errors
    /// When a file is damaged or the machine refuses.
    pub fn rests(&mut self, queue: &str, group: &str) -> Result<Rests> {
        let queue = self.queues.get(&mut self.store, &key::id(queue))?;
        let queue = queue.map_or(Millis(0), |queue| queue.pace.next_allowed);
        let group = self.groups.get(&mut self.store, &key::id(group))?;
        let group = group.map_or(Millis(0), |group| group.pace.next_allowed);
        Ok(Rests {
            queue: queue.since(self.now),
            group: group.since(self.now),
        })
    }

    /// Changes a queue while it is in no list, and gives it its place again.
    fn anew(&mut self, id: &Id, change: impl FnOnce(&mut QueueRecord)) -> Result<()> {
        let record = self.queues.get(&mut self.store, id)?;
        match record.map(|record| record.place) {
            Some(QueuePlace::Retired(_)) | None => self.change_queue(id, change),
            Some(_) => {
                self.withdraw(id)?;
                self.change_queue(id, change)?;
                self.place_again(id)
            }
        }
    }

    fn existing(&mut self, name: &str) -> Result<Id> {
        let id = key::id(name);
        match self.queues.get(&mut self.store, &id)? {
            Some(_) => Ok(id),
            None => Err(FrontierError::NoQueue {
                name: name.to_owned(),
            }),
        }
    }

    /// Brings a queue back that was retired for a budget it now has.
    fn reconsider(&mut self, id: &Id) -> Result<()> {
        let (usual, now) = (self.settings.budget, self.now);
        match self.queues.get(&mut self.store, id)? {
            Some(queue) if comes_back(queue, &usual, now) => {
                self.withdraw(id)?;
                self.place_again(id)
            }
            _ => Ok(()),
        }
    }

    fn reconsider_retired(&mut self) -> Result<()> {
        self.queues.save(&mut self.store)?;
        let (usual, now) = (self.settings.budget, self.now);
        let mut range = key::all(Space::Queue, &[]);
        loop {
            let mut back: Vec<Id> = Vec::new();
            let mut last = None;
            self.store.scan(range.clone(), |key, bytes| {
                let returns = |queue: QueueRecord| comes_back(&queue, &usual, now);
                if QueueRecord::decode(bytes).is_some_and(returns)
                    && let Ok(id) = key.as_slice()[1..].try_into()
                {
                    back.push(id);
                    last = Some(*key);
                }
                back.len() < SWEEP
            })?;
            for id in &back {
                self.reconsider(id)?;
            }
            match last {
                Some(last) if back.len() >= SWEEP => range.start = last,
                _ => return Ok(()),
            }
            self.trim()?;
            self.queues.save(&mut self.store)?;
        }
    }
}

fn comes_back(queue: &QueueRecord, usual: &Budget, now: Millis) -> bool {
    match queue.place {
        QueuePlace::Retired(_) => queue.exhausted(usual, 0, now).is_none(),
        QueuePlace::Nowhere
        | QueuePlace::Rotation(_)
        | QueuePlace::Parked(_)
        | QueuePlace::Sleeping { .. } => false,
    }
}
