//! The lanes: one for each group with active queues, ready now, waiting for a time, or busy.
//!
//! Ready lanes are taken in the order in which their queues had their last turn, so every queue has its turn. Everything here is O(log n) in the number of active queues.

use std::collections::BTreeSet;

use crate::error::Result;
use crate::frontier::Frontier;
use crate::item::Millis;
use crate::key::Id;
use crate::record::GroupRecord;

/// A group with active queues or requests in flight. Its record is pinned meanwhile.
#[derive(Default)]
pub(crate) struct Lane {
    /// Active queues of the group.
    pub(crate) queues: u32,
    /// Those with something to fetch: last turn, queue.
    pub(crate) ready: BTreeSet<(u64, Id)>,
    pub(crate) place: LanePlace,
    /// The queue that complained last, and until when it rests for that.
    pub(crate) told: Option<(Id, Millis)>,
}

/// Where a lane is listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum LanePlace {
    /// It is busy, or has nothing to fetch.
    #[default]
    Nowhere,
    /// It waits for this time.
    Timer(u64),
    /// It is ready: the turn of its first queue.
    Ready(u64),
}

impl Frontier {
    /// Makes the lane of a group if there is none, and lets the group make up for a restart.
    pub(crate) fn open_lane(&mut self, group: &Id) -> Result<()> {
        if self.lanes.contains_key(group) {
            return Ok(());
        }
        self.groups.pin(&mut self.store, group)?;
        let (epoch, clean) = (self.totals.epoch, self.opened_clean);
        let (manners, opened_at) = (self.settings.manners, self.opened_at);
        if let Some(record) = self.groups.at_hand(group)
            && record.epoch != epoch
            && let Some(record) = self.groups.change(&mut self.store, group)?
        {
            // In the first opening nobody can have been asked before.
            if epoch > 1 {
                let manners = record.overrides.over(&manners);
                record.pace.restarts(&manners, opened_at, clean);
            }
            record.epoch = epoch;
        }
        self.lanes.insert(*group, Lane::default());
        Ok(())
    }

    /// Forgets a lane nobody needs.
    pub(crate) fn close_lane(&mut self, group: &Id) {
        if let Some(lane) = self.lanes.get(group)
            && lane.queues == 0
            && self.flights.of_group(group) == 0
        {
            self.place_lane(group);
            self.lanes.remove(group);
            self.groups.unpin(group);
        }
    }

    /// Lists a lane where it belongs now.
    pub(crate) fn place_lane(&mut self, group: &Id) {
        let Some(lane) = self.lanes.get_mut(group) else {
            return;
        };
        match std::mem::take(&mut lane.place) {
            LanePlace::Nowhere => {}
            LanePlace::Timer(due) => {
                self.timers.remove(&(due, *group));
            }
            LanePlace::Ready(turn) => {
                self.ready.remove(&(turn, *group));
            }
        }
        let (Some(record), Some((turn, _))) = (self.groups.at_hand(group), lane.ready.first())
        else {
            return;
        };
        if self.flights.of_group(group) >= self.settings.connections(record) {
            return;
        }
        let due = record.pace.next_allowed;
        if due > self.now {
            lane.place = LanePlace::Timer(due.0);
            self.timers.insert((due.0, *group));
        } else {
            lane.place = LanePlace::Ready(*turn);
            self.ready.insert((*turn, *group));
        }
    }

    /// Makes lanes ready whose time has come.
    pub(crate) fn expire_timers(&mut self) {
        while let Some((due, group)) = self.timers.first().copied()
            && Millis(due) <= self.now
        {
            self.place_lane(&group);
        }
        while let Some((due, queue)) = self.resting.first().copied()
            && Millis(due) <= self.now
        {
            self.resting.pop_first();
            self.list(&queue);
        }
    }

    /// Lets an active queue make up for a restart, as its group does.
    pub(crate) fn restart_queue(&mut self, id: &Id) -> Result<()> {
        let (epoch, clean) = (self.totals.epoch, self.opened_clean);
        let (manners, opened_at) = (self.settings.manners.of_member(), self.opened_at);
        let is_known = |queue: &crate::record::QueueRecord| queue.epoch == epoch;
        if self.queues.at_hand(id).is_none_or(is_known) {
            return Ok(());
        }
        self.change_queue(id, |queue| {
            if epoch > 1 && queue.pace != crate::manners::Pace::default() {
                queue.pace.restarts(&manners, opened_at, clean);
            }
            queue.epoch = epoch;
        })
    }

    /// Tells its lane that a queue has something to fetch, if that is so.
    pub(crate) fn list(&mut self, queue: &Id) {
        let Some(active) = self.active.get_mut(queue) else {
            return;
        };
        let record = self.queues.at_hand(queue);
        let spent = |record: &crate::record::QueueRecord| {
            let flying = self.flights.of_queue(queue);
            let flying = flying.map(|flight| u64::from(flight.cost)).sum();
            let spent = record.exhausted(&self.settings.budget, flying, self.now);
            spent.is_some()
        };
        // What is in flight may use the budget up: the rest waits until that is known.
        let reserved = !self.flights.is_idle(queue) && record.is_none_or(spent);
        if active.listed || active.is_dry() || reserved {
            return;
        }
        if let Some(missing) = active.missing()
            && missing.until > self.now
        {
            self.resting.insert((missing.until.0, *queue));
            return;
        }
        if let Some(record) = record
            && record.pace.next_allowed > self.now
        {
            self.resting.insert((record.pace.next_allowed.0, *queue));
            return;
        }
        active.listed = true;
        let entry = (active.turn, *queue);
        let group = active.group;
        if let Some(lane) = self.lanes.get_mut(&group) {
            lane.ready.insert(entry);
        }
        self.place_lane(&group);
    }

    /// Takes a queue back from its lane.
    pub(crate) fn unlist(&mut self, queue: &Id) {
        let Some(active) = self.active.get_mut(queue) else {
            return;
        };
        if !std::mem::take(&mut active.listed) {
            return;
        }
        let entry = (active.turn, *queue);
        let group = active.group;
        if let Some(lane) = self.lanes.get_mut(&group) {
            lane.ready.remove(&entry);
        }
        self.place_lane(&group);
    }
}

impl crate::Settings {
    /// The requests a group may have in flight.
    pub(crate) fn connections(&self, group: &GroupRecord) -> u32 {
        group.overrides.over(&self.manners).connections.max(1)
    }
}
