//! What is handed out and not finished. Only this knows it: queues and groups ask here what they have in flight.

use std::collections::HashMap;

use crate::item::Millis;
use crate::key::{Id, Position, UrlHash};
use crate::table::IdMap;

/// A URL that was handed out.
#[derive(Clone, Copy)]
pub(crate) struct InFlight {
    pub(crate) queue: Id,
    pub(crate) group: Id,
    pub(crate) position: Position,
    pub(crate) hash: UrlHash,
    pub(crate) cost: u32,
    pub(crate) attempts: u32,
    pub(crate) since: Millis,
}

/// Everything in flight, by its number.
#[derive(Default)]
pub(crate) struct Flights {
    flights: HashMap<u64, InFlight>,
    queues: IdMap<Vec<u64>>,
    groups: IdMap<u32>,
}

impl Flights {
    pub(crate) fn begin(&mut self, flight: InFlight) {
        let number = flight.position.1;
        self.queues.entry(flight.queue).or_default().push(number);
        *self.groups.entry(flight.group).or_default() += 1;
        self.flights.insert(number, flight);
    }

    pub(crate) fn end(&mut self, number: u64) -> Option<InFlight> {
        let flight = self.flights.remove(&number)?;
        if let Some(numbers) = self.queues.get_mut(&flight.queue) {
            numbers.retain(|other| *other != number);
            if numbers.is_empty() {
                self.queues.remove(&flight.queue);
            }
        }
        if let Some(count) = self.groups.get_mut(&flight.group) {
            *count -= 1;
            if *count == 0 {
                self.groups.remove(&flight.group);
            }
        }
        Some(flight)
    }

    pub(crate) fn len(&self) -> usize {
        self.flights.len()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &InFlight> {
        self.flights.values()
    }

    pub(crate) fn of_queue(&self, queue: &Id) -> impl Iterator<Item = &InFlight> {
        let numbers = self.queues.get(queue).into_iter().flatten();
        numbers.filter_map(|number| self.flights.get(number))
    }

    /// Tells whether nothing of a queue is in flight.
    pub(crate) fn is_idle(&self, queue: &Id) -> bool {
        !self.queues.contains_key(queue)
    }

    /// How many of a group are in flight.
    pub(crate) fn of_group(&self, group: &Id) -> u32 {
        self.groups.get(group).copied().unwrap_or(0)
    }
}
