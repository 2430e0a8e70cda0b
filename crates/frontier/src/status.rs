//! What the frontier says of itself: counts, queues and why they wait, groups, single URLs, a report.

use std::fmt::Write;
use std::time::Duration;

use crate::active::Active;
use crate::error::Result;
use crate::frontier::Frontier;
use crate::item::{Millis, Precedence};
use crate::key::{self, Id, UrlHash};
use crate::manners::{Pace, RestReason};
use crate::record::{
    GroupRecord, QueuePlace, QueueRecord, Record, Retired, Seen, SeenState, Sleeper, StoredItem,
};
use crate::settings::Budget;
use crate::store::Space;

/// URLs that are looked at to find one in its queue.
const LOOKED_AT: usize = 10_000;

/// How much there is of everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrontierCounts {
    /// Different URLs that were ever added.
    pub known: u64,
    /// URLs that wait, in retired queues too; not those in flight.
    pub queued: u64,
    /// URLs of these that wait for their retry.
    pub retrying: u64,
    /// URLs handed out and not finished.
    pub in_flight: u64,
    /// How often a URL was handed out since the frontier was opened.
    pub handed_out: u64,
    /// Fetches that ended well.
    pub done: u64,
    /// URLs given up.
    pub failed: u64,
    /// Bytes that came over the wire.
    pub bytes: u64,
    /// Queues that ever were.
    pub queues: u64,
    /// Groups that ever were.
    pub groups: u64,
    /// Queues in memory.
    pub active_queues: u64,
    /// Queues with work that wait for a place in memory.
    pub inactive_queues: u64,
    /// Queues with work that wait behind others of their group.
    pub parked_queues: u64,
    /// Queues that wait long.
    pub snoozed_queues: u64,
    /// Queues that are retired.
    pub retired_queues: u64,
    /// URLs in them.
    pub retired_urls: u64,
}

/// What a queue does, or why it does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueState {
    /// Nothing waits in it.
    Exhausted,
    /// Its next URL may be fetched now.
    Ready,
    /// A URL of it is in flight.
    InProcess {
        /// How many are.
        in_flight: u32,
    },
    /// Its group must rest.
    Snoozed {
        /// Until then.
        until: Millis,
        /// For this reason.
        why: RestReason,
    },
    /// Its group has as many requests in flight as it may.
    GroupBusy,
    /// Everything in it waits to be tried again.
    Retrying,
    /// What its next URL needs before it can be fetched is being looked for.
    Missing,
    /// It waits for a place among the active queues.
    Inactive,
    /// It waits behind other queues of its group.
    Parked,
    /// It is retired.
    Retired(Retired),
}

/// A queue as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueStatus {
    /// Its name.
    pub name: String,
    /// Its group's.
    pub group: String,
    /// What it does.
    pub state: QueueState,
    /// URLs in it, those in flight included.
    pub queued: u64,
    /// Of these, to be tried again later.
    pub retrying: u64,
    /// Fetches that ended well.
    pub done: u64,
    /// URLs given up.
    pub failed: u64,
    /// Bytes that came over the wire.
    pub bytes: u64,
    /// What its URLs cost so far, with penalties.
    pub spent: u64,
    /// What it may spend.
    pub budget: Budget,
    /// The status of its last fetch.
    pub last_status: i32,
    /// When its first fetch began.
    pub first_fetch: Option<Millis>,
}

/// A group as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupStatus {
    /// Its name.
    pub name: String,
    /// Requests in flight.
    pub in_flight: u32,
    /// Requests it may have in flight.
    pub connections: u32,
    /// It may be asked from then on.
    pub next_allowed: Millis,
    /// The rest in force.
    pub delay: Duration,
    /// Why it rests.
    pub why: RestReason,
    /// How often the back-off has grown, and one; 0 in quiet times.
    pub backoff_level: u8,
    /// The status of the last fetch.
    pub last_status: i32,
    /// Queues with work that take part.
    pub queues: u64,
    /// Queues that wait behind these.
    pub parked_queues: u64,
}

/// What is known of one URL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Known {
    /// How far it is.
    pub state: UrlState,
    /// How often it was tried before.
    pub attempts: u32,
    /// Its queue.
    pub queue: Option<QueueStatus>,
    /// Where it comes from: while it is in flight, or waits and is among the first of its queue or of what sleeps.
    /// Of a URL that is finished, or far behind, only its hash is at hand.
    pub origin: Option<Origin>,
}

/// Where a URL comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The URL as it is to be fetched.
    pub url: String,
    /// Where it was found.
    pub via: String,
    /// The path of hops from the seed.
    pub hops: String,
    /// The tag of its seed.
    pub source: String,
    /// Its place among the URLs of its queue.
    pub precedence: Precedence,
}

/// How far a URL is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UrlState {
    /// It waits; the status is of the last attempt, or 0.
    Queued {
        /// Of the last attempt.
        status: i32,
    },
    /// It was handed out.
    InFlight {
        /// At this time.
        since: Millis,
    },
    /// It is done.
    Done {
        /// Of the last fetch.
        status: i32,
    },
    /// It was given up.
    Failed {
        /// Of the last attempt.
        status: i32,
    },
}

impl Frontier {
    /// Counts everything, at no cost.
    #[must_use]
    pub fn counts(&self) -> FrontierCounts {
        let totals = &self.totals;
        let in_flight = self.flights.len() as u64;
        FrontierCounts {
            known: totals.known,
            queued: totals.queued.saturating_sub(in_flight),
            retrying: totals.sleeping_items,
            in_flight,
            handed_out: self.handed_out,
            done: totals.done,
            failed: totals.failed,
            bytes: totals.bytes,
            queues: totals.queues,
            groups: totals.groups,
            active_queues: self.active.len() as u64,
            inactive_queues: self.waiting_queues(),
            parked_queues: totals.parked,
            snoozed_queues: totals.sleeping_queues,
            retired_queues: totals.retired_queues,
            retired_urls: totals.retired_items,
        }
    }

    /// Looks a URL up by its canonical form.
    ///
    /// # Errors
    /// When a file is damaged or the machine refuses.
    pub fn lookup(&mut self, canonical: &[u8]) -> Result<Option<Known>> {
        let hash = key::url_hash(canonical);
        let Some(bytes) = self.store.get(&key::seen(&hash))? else {
            return Ok(None);
        };
        let seen = Seen::decode(&bytes).ok_or_else(|| self.store.bad_record())?;
        let status = i32::from(seen.status);
        let flight = self.flights.all().find(|flight| flight.hash == hash);
        let state = match (seen.state, flight) {
            (_, Some(flight)) => UrlState::InFlight {
                since: flight.since,
            },
            (SeenState::Queued, None) => UrlState::Queued { status },
            (SeenState::Done, None) => UrlState::Done { status },
            (SeenState::Failed, None) => UrlState::Failed { status },
        };
        self.queues.save(&mut self.store)?;
        let mut queue = None;
        let range = key::all(Space::Queue, &seen.queue);
        self.store.scan(range, |key, bytes| {
            let id = key.as_slice()[1..].try_into().ok();
            queue = id.zip(QueueRecord::decode(bytes));
            false
        })?;
        let origin = match (&queue, seen.state) {
            (Some((id, record)), SeenState::Queued) => self.origin(&hash, id, record)?,
            (_, SeenState::Queued | SeenState::Done | SeenState::Failed) => None,
        };
        Ok(Some(Known {
            state,
            attempts: seen.attempts.into(),
            queue: queue.map(|(id, record)| self.queue_status(&id, &record)),
            origin,
        }))
    }

    /// Finds a URL that waits among the first of its queue, or else among what sleeps.
    fn origin(&self, hash: &UrlHash, id: &Id, record: &QueueRecord) -> Result<Option<Origin>> {
        let (mut found, mut looked) = (None, 0);
        let range = key::items_from(id, (0, 0));
        self.store.scan(range, |key, item| {
            looked += 1;
            found = key::position(key)
                .filter(|_| item.starts_with(hash))
                .zip(StoredItem::decode(item));
            found.is_none() && looked < LOOKED_AT
        })?;
        let mut found = found.map(|((precedence, _), item)| (precedence, item));
        if found.is_none() && record.sleeping > 0 {
            let range = key::sleeping_until(u64::MAX);
            looked = 0;
            self.store.scan(range, |_, sleeper| {
                looked += 1;
                found = match Sleeper::decode(sleeper) {
                    Some(Sleeper::Item {
                        precedence, item, ..
                    }) if item.starts_with(hash) => Some(precedence).zip(StoredItem::decode(&item)),
                    Some(Sleeper::Item { .. } | Sleeper::Queue(_)) | None => None,
                };
                found.is_none() && looked < LOOKED_AT
            })?;
        }
        Ok(found.map(|(precedence, item)| Origin {
            url: item.url,
            via: item.via,
            hops: item.hops,
            source: item.source,
            precedence: Precedence(precedence),
        }))
    }

    /// Shows every queue to `each`, in no useful order, until it returns false.
    ///
    /// # Errors
    /// When a file is damaged or the machine refuses.
    pub fn queues(&mut self, mut each: impl FnMut(QueueStatus) -> bool) -> Result<()> {
        self.queues.save(&mut self.store)?;
        let mut bad = false;
        let range = key::all(Space::Queue, &[]);
        self.store.scan(range, |key, bytes| {
            let id = key.as_slice()[1..].try_into().ok();
            match id.zip(QueueRecord::decode(bytes)) {
                Some((id, record)) => each(self.queue_status(&id, &record)),
                None => {
                    bad = true;
                    false
                }
            }
        })?;
        if bad {
            return Err(self.store.bad_record());
        }
        Ok(())
    }

    fn queue_status(&self, id: &Id, record: &QueueRecord) -> QueueStatus {
        QueueStatus {
            name: record.name.clone(),
            group: record.group.clone(),
            state: self.queue_state(id, record),
            queued: record.queued,
            retrying: record.sleeping,
            done: record.done,
            failed: record.failed,
            bytes: record.bytes,
            spent: record.spent,
            budget: record.budget.unwrap_or(self.settings.budget),
            last_status: record.last_status,
            first_fetch: record.first_fetch,
        }
    }

    fn queue_state(&self, id: &Id, record: &QueueRecord) -> QueueState {
        match record.place {
            QueuePlace::Retired(why) => QueueState::Retired(why),
            QueuePlace::Parked(_) => QueueState::Parked,
            QueuePlace::Sleeping { due, .. } => QueueState::Snoozed {
                until: Millis(due),
                why: self
                    .groups
                    .at_hand(&key::id(&record.group))
                    .map_or(RestReason::Backoff, |group| group.pace.reason),
            },
            QueuePlace::Nowhere if record.sleeping > 0 => QueueState::Retrying,
            QueuePlace::Nowhere => QueueState::Exhausted,
            QueuePlace::Rotation(_) => self.active_state(id),
        }
    }

    fn active_state(&self, id: &Id) -> QueueState {
        let Some(active) = self.active.get(id) else {
            return QueueState::Inactive;
        };
        if !self.flights.is_idle(id) {
            let in_flight = self.flights.of_queue(id).count() as u32;
            return QueueState::InProcess { in_flight };
        }
        if active.missing().is_some() {
            return QueueState::Missing;
        }
        let Some(group) = self.groups.at_hand(&active.group) else {
            return QueueState::Ready;
        };
        if self.flights.of_group(&active.group) >= self.settings.connections(group) {
            return QueueState::GroupBusy;
        }
        let queue = self.queues.at_hand(id).map(|queue| &queue.pace);
        let paces = [Some(&group.pace), queue].into_iter().flatten();
        let pace = paces.max_by_key(|pace| pace.next_allowed);
        if let Some(pace) = pace.filter(|pace| pace.next_allowed > self.now) {
            QueueState::Snoozed {
                until: pace.next_allowed,
                why: pace.reason,
            }
        } else {
            QueueState::Ready
        }
    }

    /// Says how a group is.
    ///
    /// # Errors
    /// When a file is damaged or the machine refuses.
    pub fn group(&mut self, name: &str) -> Result<Option<GroupStatus>> {
        let id = key::id(name);
        let record = self.groups.get(&mut self.store, &id)?.cloned();
        Ok(record.map(|record| self.group_status(&id, &record)))
    }

    /// Tells whether nothing is left but URLs that wait to be tried again, and groups that rest because they failed or
    /// asked for it. Means something when [`Frontier::next`] says to wait and nothing is in flight.
    #[must_use]
    pub fn is_left_with_failures(&self) -> bool {
        let fails = |pace: &Pace| match pace.reason {
            RestReason::Backoff | RestReason::RetryAfter => true,
            // Longer than a server rests in quiet times: it failed there.
            RestReason::OtherJob => {
                let quiet = self.settings.manners.crawl_delay_limit;
                pace.next_allowed.since(self.now) > quiet
            }
            RestReason::New
            | RestReason::MinDelay
            | RestReason::Duration
            | RestReason::MaxDelay
            | RestReason::CrawlDelay
            | RestReason::Restart
            | RestReason::Bandwidth => false,
        };
        let mut resting = self.resting.iter().filter(|(_, queue)| {
            let active = self.active.get(queue);
            let waits = |active: &Active| !active.listed && active.missing().is_none();
            active.is_some_and(waits) && self.flights.is_idle(queue)
        });
        self.lanes.iter().all(|(group, lane)| {
            let is_idle = lane.ready.is_empty() && self.flights.of_group(group) == 0;
            let group = self.groups.at_hand(group);
            is_idle || group.is_some_and(|group| fails(&group.pace))
        }) && resting.all(|(_, queue)| {
            let queue = self.queues.at_hand(queue);
            queue.is_some_and(|queue| fails(&queue.pace))
        })
    }

    /// The active group that must wait longest, and among those that need not wait the one that rests longest.
    #[must_use]
    pub fn slowest_group(&self) -> Option<GroupStatus> {
        let groups = self.lanes.keys();
        let groups = groups.filter_map(|id| Some((id, self.groups.at_hand(id)?)));
        let slowest = groups.max_by_key(|(_, group)| {
            let pace = &group.pace;
            (pace.next_allowed.since(self.now), pace.delay)
        });
        slowest.map(|(id, group)| self.group_status(id, group))
    }

    fn group_status(&self, id: &Id, record: &GroupRecord) -> GroupStatus {
        let pace = &record.pace;
        GroupStatus {
            name: record.name.clone(),
            in_flight: self.flights.of_group(id),
            connections: self.settings.connections(record),
            next_allowed: pace.next_allowed,
            delay: Duration::from_millis(pace.delay),
            why: pace.reason,
            backoff_level: pace.level,
            last_status: record.last_status,
            queues: record.taking_part,
            parked_queues: record.parked,
        }
    }

    /// Writes the frontier report: the counts, and a line for each of the first `limit` queues that have work
    /// or are retired.
    ///
    /// # Errors
    /// When a file is damaged or the machine refuses.
    pub fn report(&mut self, limit: usize) -> Result<String> {
        let counts = self.counts();
        let mut out = String::new();
        let FrontierCounts {
            known,
            queued,
            in_flight,
            done,
            failed,
            queues,
            ..
        } = counts;
        // Writing into a string does not fail.
        let _ = writeln!(
            out,
            "URLs: {known} known, {queued} queued ({} to be tried again, {} in retired queues), {in_flight} in flight, {done} done, {failed} failed",
            counts.retrying, counts.retired_urls,
        );
        let _ = writeln!(
            out,
            "queues: {queues}, of which {} active, {} inactive, {} behind their group, {} snoozed, {} retired",
            counts.active_queues,
            counts.inactive_queues,
            counts.parked_queues,
            counts.snoozed_queues,
            counts.retired_queues,
        );
        let (now, mut left) = (self.now, limit);
        self.queues(|queue| {
            if queue.state == QueueState::Exhausted {
                return true;
            }
            if left > 0 {
                let _ = writeln!(out, "{}", queue_line(&queue, now));
            }
            left = left.saturating_sub(1);
            left > 0
        })?;
        Ok(out)
    }
}

fn queue_line(queue: &QueueStatus, now: Millis) -> String {
    let state = match queue.state {
        QueueState::Exhausted => "exhausted".to_owned(),
        QueueState::Ready => "ready".to_owned(),
        QueueState::InProcess { in_flight } => format!("in process, {in_flight} in flight"),
        QueueState::Snoozed { until, why } => {
            format!("snoozed for {} ms: {why:?}", until.since(now).as_millis())
        }
        QueueState::GroupBusy => format!("waits for its group {:?}", queue.group),
        QueueState::Retrying => "waits to try again".to_owned(),
        QueueState::Missing => "waits for an address or robots.txt".to_owned(),
        QueueState::Inactive => "inactive".to_owned(),
        QueueState::Parked => format!("behind its group {:?}", queue.group),
        QueueState::Retired(Retired::Urls) => "retired: budget of URLs spent".to_owned(),
        QueueState::Retired(Retired::Bytes) => "retired: budget of bytes spent".to_owned(),
        QueueState::Retired(Retired::Time) => "retired: its time is over".to_owned(),
    };
    format!(
        "{:?} {} queued, {} done, {} failed, {} spent, {} bytes: {state}",
        queue.name, queue.queued, queue.done, queue.failed, queue.spent, queue.bytes
    )
}
