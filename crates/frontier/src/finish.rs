//! What came of a fetch: the URL, its group and its queue are settled, in this order.

use std::time::Duration;

use crate::error::{FrontierError, Result};
use crate::flights::InFlight;
use crate::frontier::{Frontier, short};
use crate::item::{Disposition, Finished, ItemId, Millis, Outcome, whole_millis};
use crate::key::{self, Id};
use crate::record::{GroupRecord, QueuePlace, Seen, SeenState, Sleeper, StoredItem};
use crate::settings::Manners;

impl Frontier {
    /// Takes back what was handed out, with what came of it.
    ///
    /// # Errors
    /// When the item is not in flight, a file is damaged, or the machine refuses.
    pub fn finish(&mut self, now: Millis, item: ItemId, outcome: &Outcome) -> Result<Finished> {
        self.tell(now);
        let flight = self.flights.end(item.0);
        let flight = flight.ok_or(FrontierError::NotInFlight { item: item.0 })?;
        let finished = match outcome.disposition {
            Disposition::Done => Finished::Done,
            Disposition::Failed => Finished::Failed,
            Disposition::PutBack { .. } => Finished::PutBack,
            Disposition::Retry { .. } if flight.attempts >= self.settings.retries => {
                Finished::GivenUp
            }
            Disposition::Retry { after } => Finished::Retrying {
                at: self.now.after(after),
                attempts: flight.attempts + 1,
            },
        };
        match outcome.disposition {
            Disposition::PutBack { after } => self.put_back(&flight, after)?,
            Disposition::Done | Disposition::Retry { .. } | Disposition::Failed => {
                self.settle_url(&flight, outcome, finished)?;
            }
        }
        self.settle_group(&flight, outcome, finished)?;
        self.settle_queue(&flight, outcome.status, finished)?;
        Ok(finished)
    }

    /// Lets a URL wait in its queue again, under a new number: what has the same precedence goes first.
    fn put_back(&mut self, flight: &InFlight, after: Duration) -> Result<()> {
        let old = key::item(&flight.queue, flight.position);
        let item = self.store.get(&old)?;
        let item = item.ok_or_else(|| self.store.bad_record())?;
        self.store.delete(old)?;
        if after.is_zero() {
            self.insert_item(&flight.queue, flight.position.0, &item)?;
            return Ok(());
        }
        self.put_to_sleep(flight, self.now.after(after), item)
    }

    /// Lets a URL sleep until it goes into its queue again.
    fn put_to_sleep(&mut self, flight: &InFlight, until: Millis, item: Vec<u8>) -> Result<()> {
        let sleeper = Sleeper::Item {
            queue: flight.queue,
            precedence: flight.position.0,
            item,
        };
        let number = self.number();
        self.put_sleeper(until.0, number, &sleeper)?;
        self.totals.sleeping_items += 1;
        self.change_queue(&flight.queue, |queue| queue.sleeping += 1)
    }

    /// Writes down what became of a URL that is not put back.
    fn settle_url(
        &mut self,
        flight: &InFlight,
        outcome: &Outcome,
        finished: Finished,
    ) -> Result<()> {
        let item_key = key::item(&flight.queue, flight.position);
        let (state, attempts) = match finished {
            Finished::Done => (SeenState::Done, flight.attempts),
            Finished::Failed | Finished::GivenUp => (SeenState::Failed, flight.attempts),
            Finished::PutBack => (SeenState::Queued, flight.attempts),
            Finished::Retrying { at, attempts } => {
                let stored = self.store.get(&item_key)?;
                let stored = stored.as_deref().and_then(StoredItem::decode);
                let mut item = stored.ok_or_else(|| self.store.bad_record())?;
                item.attempts = attempts;
                let mut bytes = Vec::new();
                item.encode(&mut bytes);
                self.put_to_sleep(flight, at, bytes)?;
                (SeenState::Queued, attempts)
            }
        };
        self.store.delete(item_key)?;
        let seen = Seen {
            state,
            attempts: attempts.try_into().unwrap_or(u8::MAX),
            status: clamp_status(outcome.status),
            queue: short(&flight.queue),
        };
        self.store.put(key::seen(&flight.hash), &seen.encode())?;
        self.totals.bytes = self.totals.bytes.saturating_add(outcome.bytes);
        let now = self.now;
        self.change_queue(&flight.queue, |queue| {
            queue.bytes = queue.bytes.saturating_add(outcome.bytes);
            queue.last_status = outcome.status;
            if let Some(duration) = outcome.fetch_duration {
                let began = Millis(now.0.saturating_sub(whole_millis(duration)));
                queue.first_fetch.get_or_insert(began);
            }
        })?;
        match state {
            SeenState::Queued => Ok(()),
            SeenState::Done | SeenState::Failed => self.count_out(flight, outcome.status, state),
        }
    }

    /// Counts a URL that is in its queue no more.
    fn count_out(&mut self, flight: &InFlight, status: i32, state: SeenState) -> Result<()> {
        let good = state == SeenState::Done;
        let cost = match state {
            SeenState::Failed if is_disregarded(status) => 0,
            SeenState::Failed => flight.cost.saturating_add(self.settings.error_penalty),
            SeenState::Done | SeenState::Queued => flight.cost,
        };
        let mut retired = false;
        self.change_queue(&flight.queue, |queue| {
            retired = matches!(queue.place, QueuePlace::Retired(_));
            queue.done += u64::from(good);
            queue.failed += u64::from(!good);
            queue.spent = queue.spent.saturating_add(u64::from(cost));
            queue.queued -= 1;
        })?;
        self.totals.done += u64::from(good);
        self.totals.failed += u64::from(!good);
        self.totals.queued -= 1;
        self.totals.retired_items -= u64::from(retired);
        Ok(())
    }

    /// Decides when the group may be asked again.
    fn settle_group(
        &mut self,
        flight: &InFlight,
        outcome: &Outcome,
        finished: Finished,
    ) -> Result<()> {
        let now = self.now;
        let (manners, of_group) = self.settle_shared(flight, outcome)?;
        let mut due = Millis(0);
        self.change_group(&flight.group, |group| {
            group.pace.ends(&manners, now, flight.position.1, &of_group);
            if finished != Finished::PutBack {
                group.last_status = outcome.status;
            }
            due = group.pace.next_allowed;
        })?;
        let waiting = self.lanes.get(&flight.group).into_iter();
        let waiting = waiting.flat_map(|lane| lane.ready.iter().map(|(_, queue)| *queue));
        let waiting: Vec<Id> = waiting.filter(|queue| *queue != flight.queue).collect();
        self.place_lane(&flight.group);
        self.close_lane(&flight.group);
        if due.since(now) > self.settings.long_snooze && self.waiting_queues() > 0 {
            for queue in waiting {
                if self.flights.is_idle(&queue) {
                    self.sleep(&queue, due.0)?;
                }
            }
        }
        Ok(())
    }

    /// Paces the queue where several share a group: what it asks for, it gets alone. Returns the manners towards the group,
    /// and what it is to be told: of trouble only if another queue of it is in trouble too. One name that says no for a
    /// day must not make its neighbours wait.
    fn settle_shared(
        &mut self,
        flight: &InFlight,
        outcome: &Outcome,
    ) -> Result<(Manners, Outcome)> {
        let usual = self.settings.manners;
        let Some(group) = self.groups.get(&mut self.store, &flight.group)? else {
            return Ok((usual, *outcome));
        };
        let manners = group.overrides.over(&usual);
        if !group.is_shared() || outcome.fetch_duration.is_none() {
            return Ok((manners, *outcome));
        }
        let (of_queue, of_group) = match group.is_by_address() {
            true => (manners.of_host(), manners.of_address()),
            false => (manners.of_member(), manners),
        };
        let (now, mut told) = (self.now, None);
        self.change_queue(&flight.queue, |queue| {
            queue.pace.ends(&of_queue, now, flight.position.1, outcome);
            if outcome.is_trouble() && queue.pace.level > 0 {
                told = Some((flight.queue, queue.pace.next_allowed));
            }
        })?;
        // It was listed when it was handed out; with a rest of its own it waits apart.
        self.unlist(&flight.queue);
        let lane = self.lanes.get_mut(&flight.group).filter(|_| told.is_some());
        let before = lane.and_then(|lane| std::mem::replace(&mut lane.told, told));
        let is_another = |(queue, until): (Id, Millis)| queue != flight.queue && until > now;
        Ok(match before.is_some_and(is_another) {
            true => (of_group, *outcome),
            false => (of_group, outcome.without_trouble()),
        })
    }

    /// Sees what becomes of the queue: goes on, ends its session, is over or retired.
    fn settle_queue(&mut self, flight: &InFlight, status: i32, finished: Finished) -> Result<()> {
        let id = &flight.queue;
        self.refill(id)?;
        let Some(active) = self.active.get_mut(id) else {
            return Ok(());
        };
        active.balance -= match finished {
            Finished::Done | Finished::Retrying { .. } => i64::from(flight.cost),
            Finished::Failed if is_disregarded(status) => i64::from(flight.cost),
            Finished::Failed | Finished::GivenUp => {
                i64::from(flight.cost) + i64::from(self.settings.error_penalty)
            }
            Finished::PutBack => 0,
        };
        let (group, balance) = (active.group, active.balance);
        let (first, idle, over) = (
            self.first_of(id),
            self.flights.is_idle(id),
            self.is_over(id),
        );
        self.change_queue(id, |queue| queue.head = first)?;
        let spent = self.queues.at_hand(id);
        let spent = spent.and_then(|queue| queue.exhausted(&self.settings.budget, 0, self.now));
        if over {
            return self.withdraw(id);
        }
        if let Some(why) = spent {
            self.unlist(id);
            return if idle {
                self.retire_queue(id, why)
            } else {
                Ok(())
            };
        }
        let parked = |group: &GroupRecord| group.parked > 0;
        let others = self.waiting_queues() > 0 || self.groups.at_hand(&group).is_some_and(parked);
        let crowded = self.active.len() > self.settings.active_queues.max(1);
        if (balance <= 0 && others) || crowded {
            self.unlist(id);
            return if idle { self.rotate(id) } else { Ok(()) };
        }
        if balance <= 0
            && let Some(active) = self.active.get_mut(id)
        {
            active.balance = i64::from(self.settings.session_balance);
        }
        self.list(id);
        self.snooze(id)
    }

    /// Lets a queue sleep that must wait long while others could have its place.
    fn snooze(&mut self, id: &Id) -> Result<()> {
        let Some(active) = self.active.get(id) else {
            return Ok(());
        };
        let group = self.groups.at_hand(&active.group);
        let group = group.map_or(Millis(0), |group| group.pace.next_allowed);
        let queue = self.queues.at_hand(id);
        let queue = queue.map_or(Millis(0), |queue| queue.pace.next_allowed);
        let due = group.max(queue);
        let long = due.since(self.now) > self.settings.long_snooze;
        if long && self.flights.is_idle(id) && self.waiting_queues() > 0 {
            return self.sleep(id, due.0);
        }
        Ok(())
    }
}

/// Tells whether a URL is given up for a rule of ours or of robots.txt, and not because it failed. These are Heritrix's
/// disregards, which cost a queue nothing: too many hops, out of scope, blocked, deleted, forbidden by robots.txt.
fn is_disregarded(status: i32) -> bool {
    matches!(status, -4002..=-4001 | -5002..=-5000 | -6000 | -9998)
}

fn clamp_status(status: i32) -> i16 {
    status.clamp(i16::MIN.into(), i16::MAX.into()) as i16
}
