//! The places a queue can be in: the rotation, parked behind its group, asleep, retired, or nowhere.
//!
//! A queue with work is in exactly one of them, and the place stands in its record as well as in a list
//! on disk. An active queue stays in the rotation until it is done with, so that it is found again after
//! a crash. Of each group only so many queues take part; the others are parked and follow one by one.

use crate::active::Active;
use crate::error::Result;
use crate::frontier::Frontier;
use crate::key::{self, Id, Position};
use crate::record::{NO_HEAD, QueuePlace, QueueRecord, Retired, Sleeper};

/// What positions in the lists of queues begin with.
const LIST: u8 = 128;
/// Queues read from the rotation at one time.
const ROTATION_LOAD: usize = 256;
/// Queues that may be preferred to others; beyond, all are alike again.
const PREFERRED: usize = 1 << 20;
/// Sleepers woken at one time.
const WAKE_LOAD: usize = 256;

impl Frontier {
    /// Gives a queue that is nowhere and has work a place: the rotation, or behind its group.
    pub(crate) fn enlist(&mut self, id: &Id) -> Result<()> {
        let Some(group) = self.group_of(id)? else {
            return Ok(());
        };
        let usual = u64::from(self.settings.group_queues);
        let room = match self.groups.get(&mut self.store, &group)? {
            Some(record) => {
                record.taking_part < usual.max(self.settings.connections(record).into())
            }
            None => return Ok(()),
        };
        if room {
            self.change_group(&group, |group| group.taking_part += 1)?;
            self.enter_rotation(id)
        } else {
            self.park(id, &group)
        }
    }

    fn enter_rotation(&mut self, id: &Id) -> Result<()> {
        let turn = self.number();
        let list = self.preferred.get(id).copied().unwrap_or(LIST);
        let position = (list, turn);
        self.change_queue(id, |queue| queue.place = QueuePlace::Rotation(position))?;
        self.store.put_fresh(key::rotation(position), id)?;
        self.totals.rotating += 1;
        if self.rotation_from.is_none_or(|from| position < from) {
            self.rotation.insert(position, *id);
            if self.rotation.len() > 2 * ROTATION_LOAD {
                let cut = self.rotation.keys().nth(ROTATION_LOAD).copied();
                self.rotation_from = cut;
                cut.map(|cut| self.rotation.split_off(&cut));
            }
        }
        Ok(())
    }

    /// Lets a queue have its turns before those with a higher level, and before all that have none. It counts from its next turn on, and is
    /// forgotten when the frontier is closed; its place in the rotation is not.
    ///
    /// # Errors
    /// When a file is damaged or the machine refuses.
    pub fn prefer_queue(&mut self, queue: &str, level: u8) -> Result<()> {
        let id = key::id(queue);
        let list = level.min(LIST - 1);
        if self.preferred.len() >= PREFERRED {
            self.preferred.clear();
        }
        if self.preferred.insert(id, list) == Some(list) || self.active.contains_key(&id) {
            return Ok(());
        }
        let place = match self.queues.get(&mut self.store, &id)? {
            Some(record) => record.place,
            None => return Ok(()),
        };
        match place {
            QueuePlace::Rotation(position) if position.0 != list => {
                self.leave_rotation(position)?;
                self.enter_rotation(&id)
            }
            QueuePlace::Rotation(_)
            | QueuePlace::Nowhere
            | QueuePlace::Parked(_)
            | QueuePlace::Sleeping { .. }
            | QueuePlace::Retired(_) => Ok(()),
        }
    }

    fn park(&mut self, id: &Id, group: &Id) -> Result<()> {
        let turn = self.number();
        let position = (LIST, turn);
        self.change_queue(id, |queue| queue.place = QueuePlace::Parked(position))?;
        self.store.put_fresh(key::parked(group, position), id)?;
        self.totals.parked += 1;
        self.change_group(group, |group| {
            group.parked += 1;
            group.parked_head = group.parked_head.min(position);
        })
    }

    /// Lets the next parked queue of a group take part.
    fn unpark_one(&mut self, group: &Id) -> Result<()> {
        let Some(record) = self.groups.get(&mut self.store, group)? else {
            return Ok(());
        };
        if record.parked == 0 {
            return Ok(());
        }
        let mut found: Option<(Position, Id)> = None;
        let range = key::parked_from(group, record.parked_head);
        self.store.scan(range, |key, id| {
            found = key::position(key).zip(id.try_into().ok());
            false
        })?;
        let Some((position, id)) = found else {
            return Err(self.store.bad_record());
        };
        self.store.delete(key::parked(group, position))?;
        self.totals.parked -= 1;
        self.change_group(group, |group| {
            group.parked -= 1;
            group.parked_head = (position.0, position.1 + 1);
            group.taking_part += 1;
        })?;
        self.enter_rotation(&id)
    }

    /// Takes a queue from wherever it is.
    pub(crate) fn withdraw(&mut self, id: &Id) -> Result<()> {
        self.deactivate(id)?;
        let Some(group) = self.group_of(id)? else {
            return Ok(());
        };
        let (mut place, mut queued) = (QueuePlace::Nowhere, 0);
        self.change_queue(id, |queue| {
            queued = queue.queued;
            place = std::mem::replace(&mut queue.place, QueuePlace::Nowhere);
        })?;
        match place {
            QueuePlace::Nowhere => Ok(()),
            QueuePlace::Rotation(position) => {
                self.leave_rotation(position)?;
                self.step_back(&group)
            }
            QueuePlace::Parked(position) => {
                self.store.delete(key::parked(&group, position))?;
                self.totals.parked -= 1;
                self.change_group(&group, |group| group.parked -= 1)
            }
            QueuePlace::Sleeping { due, number } => {
                self.store.delete(key::sleeping(due, number))?;
                self.totals.sleeping_queues -= 1;
                self.step_back(&group)
            }
            QueuePlace::Retired(_) => {
                self.totals.retired_queues -= 1;
                self.totals.retired_items -= queued;
                Ok(())
            }
        }
    }

    fn leave_rotation(&mut self, position: Position) -> Result<()> {
        self.rotation.remove(&position);
        self.totals.rotating -= 1;
        self.store.delete(key::rotation(position))
    }

    /// One queue of the group takes part no more; the next may.
    fn step_back(&mut self, group: &Id) -> Result<()> {
        self.change_group(group, |group| group.taking_part -= 1)?;
        self.unpark_one(group)
    }

    /// Ends a queue's session: it goes to the end of the rotation, or behind its group's parked ones.
    pub(crate) fn rotate(&mut self, id: &Id) -> Result<()> {
        self.withdraw(id)?;
        self.enlist(id)
    }

    /// Puts a queue to sleep; it still takes part in its group.
    pub(crate) fn sleep(&mut self, id: &Id, due: u64) -> Result<()> {
        self.deactivate(id)?;
        let number = self.number();
        let mut place = QueuePlace::Nowhere;
        self.change_queue(id, |queue| {
            place = std::mem::replace(&mut queue.place, QueuePlace::Sleeping { due, number });
        })?;
        if let QueuePlace::Rotation(position) = place {
            self.leave_rotation(position)?;
        }
        self.totals.sleeping_queues += 1;
        self.put_sleeper(due, number, &Sleeper::Queue(*id))
    }

    pub(crate) fn put_sleeper(&mut self, due: u64, number: u64, sleeper: &Sleeper) -> Result<()> {
        self.next_due = self.next_due.min(due);
        self.store
            .put_fresh(key::sleeping(due, number), &sleeper.encode())
    }

    /// Retires a queue; its URLs stay.
    pub(crate) fn retire_queue(&mut self, id: &Id, why: Retired) -> Result<()> {
        self.withdraw(id)?;
        let mut queued = 0;
        self.change_queue(id, |queue| {
            queued = queue.queued;
            queue.place = QueuePlace::Retired(why);
        })?;
        self.totals.retired_queues += 1;
        self.totals.retired_items += queued;
        Ok(())
    }

    /// Gives a queue that was withdrawn a place again, if it has anything to fetch.
    pub(crate) fn place_again(&mut self, id: &Id) -> Result<()> {
        match self.queues.get(&mut self.store, id)? {
            Some(queue) if queue.queued > queue.sleeping => self.enlist(id),
            _ => Ok(()),
        }
    }

    /// Wakes what slept until now.
    pub(crate) fn wake(&mut self) -> Result<()> {
        while self.next_due <= self.now.0 {
            let mut woken = Vec::new();
            let mut range = key::sleeping_until(self.now.0);
            range.start = key::sleeping(self.next_due, 0);
            self.store.scan(range, |key, value| {
                woken.push((*key, Sleeper::decode(value)));
                woken.len() < WAKE_LOAD
            })?;
            for (key, sleeper) in woken {
                let sleeper = sleeper.ok_or_else(|| self.store.bad_record())?;
                self.store.delete(key)?;
                self.wake_one(sleeper)?;
            }
            self.find_next_due()?;
        }
        Ok(())
    }

    fn wake_one(&mut self, sleeper: Sleeper) -> Result<()> {
        match sleeper {
            Sleeper::Item {
                queue,
                precedence,
                item,
            } => {
                self.totals.sleeping_items -= 1;
                self.change_queue(&queue, |queue| queue.sleeping -= 1)?;
                self.insert_item(&queue, precedence, &item).map(|_| ())
            }
            Sleeper::Queue(queue) => {
                self.totals.sleeping_queues -= 1;
                self.enter_rotation(&queue)
            }
        }
    }

    /// Finds out when the next sleeper wakes.
    pub(crate) fn find_next_due(&mut self) -> Result<()> {
        let mut range = key::sleeping_until(u64::MAX);
        let known = if self.next_due == u64::MAX {
            0
        } else {
            self.next_due
        };
        range.start = key::sleeping(known, 0);
        let mut due = None;
        self.store.scan(range, |key, _| {
            due = key::due(key);
            false
        })?;
        self.next_due = due.unwrap_or(u64::MAX);
        Ok(())
    }

    /// Makes queues active while there is room, not too many at once if there is something to do.
    pub(crate) fn fill(&mut self) -> Result<()> {
        const AT_ONCE: u32 = 4;
        let mut activated = 0;
        while self.active.len() < self.settings.active_queues.max(1) {
            let busy = !self.ready.is_empty() && activated >= AT_ONCE;
            if busy || !self.activate_next()? {
                return Ok(());
            }
            activated += 1;
        }
        Ok(())
    }

    fn first_in_rotation(&mut self) -> Result<Option<(Position, Id)>> {
        while self.rotation.is_empty()
            && let Some(from) = self.rotation_from.take()
        {
            let (rotation, active) = (&mut self.rotation, &self.active);
            let mut stopped = None;
            self.store.scan(key::rotation_from(from), |key, id| {
                let (Some(position), Ok(id)) = (key::position(key), id.try_into()) else {
                    return true;
                };
                if rotation.len() >= ROTATION_LOAD {
                    stopped = Some(position);
                    return false;
                }
                if !active.contains_key(&id) {
                    rotation.insert(position, id);
                }
                true
            })?;
            self.rotation_from = stopped;
        }
        Ok(self.rotation.first_key_value().map(|(at, id)| (*at, *id)))
    }

    /// Makes the next queue of the rotation active; false if there is none.
    fn activate_next(&mut self) -> Result<bool> {
        let Some((position, id)) = self.first_in_rotation()? else {
            return Ok(false);
        };
        self.rotation.remove(&position);
        let Some(queue) = self.queues.get(&mut self.store, &id)? else {
            return Err(self.store.bad_record());
        };
        if let Some(why) = queue.exhausted(&self.settings.budget, 0, self.now) {
            self.retire_queue(&id, why)?;
            return Ok(true);
        }
        let group = key::id(&queue.group);
        let balance = i64::from(self.settings.session_balance);
        let mut active = Active::new(group, balance, queue.head);
        active.turn = self.turn();
        self.queues.pin(&mut self.store, &id)?;
        self.restart_queue(&id)?;
        self.open_lane(&group)?;
        if let Some(lane) = self.lanes.get_mut(&group) {
            lane.queues += 1;
        }
        self.active.insert(id, active);
        self.refill(&id)?;
        if self.is_over(&id) {
            self.withdraw(&id)?;
        } else {
            self.list(&id);
        }
        Ok(true)
    }

    /// Reads the next URLs of an active queue if none is left in memory.
    pub(crate) fn refill(&mut self, id: &Id) -> Result<()> {
        let share = self.share();
        let Some(active) = self.active.get_mut(id) else {
            return Ok(());
        };
        if !active.is_dry() {
            return Ok(());
        }
        let Some(from) = active.from.take() else {
            return Ok(());
        };
        let flying: Vec<Position> = self
            .flights
            .of_queue(id)
            .map(|flight| flight.position)
            .collect();
        self.store.scan(key::items_from(id, from), |key, item| {
            let position = key::position(key).filter(|position| !flying.contains(position));
            position.is_none_or(|position| active.load(position, item, share))
        })
    }

    /// Whether nothing is left of an active queue, waiting or in flight.
    pub(crate) fn is_over(&self, id: &Id) -> bool {
        self.active.get(id).is_some_and(Active::is_over) && self.flights.is_idle(id)
    }

    /// The first position at which an active queue may have a URL, in flight or not.
    pub(crate) fn first_of(&self, id: &Id) -> Position {
        let flying = self.flights.of_queue(id).map(|flight| flight.position);
        let waiting = self.active.get(id).and_then(Active::first);
        flying.chain(waiting).min().unwrap_or(NO_HEAD)
    }

    /// What the head of one active queue may take.
    pub(crate) fn share(&self) -> usize {
        self.settings.memory.heads / self.settings.active_queues.max(1)
    }

    /// Lets an active queue go from memory; it stays in the rotation.
    fn deactivate(&mut self, id: &Id) -> Result<()> {
        self.unlist(id);
        self.stop_waiting(id);
        let first = self.first_of(id);
        let Some(active) = self.active.remove(id) else {
            return Ok(());
        };
        self.change_queue(id, |queue| queue.head = first)?;
        self.queues.unpin(id);
        if let Some(lane) = self.lanes.get_mut(&active.group) {
            lane.queues -= 1;
        }
        self.close_lane(&active.group);
        Ok(())
    }

    fn group_of(&mut self, id: &Id) -> Result<Option<Id>> {
        let queue: Option<&QueueRecord> = self.queues.get(&mut self.store, id)?;
        Ok(queue.map(|queue| key::id(&queue.group)))
    }
}
