//! The frontier: candidates go in, items are handed out, outcomes come back, and a commit makes it last.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::active::Active;
use crate::error::{FrontierError, Result};
use crate::flights::{Flights, InFlight};
use crate::item::{Added, Candidate, Item, ItemId, Millis, Next, Precedence};
use crate::key::{self, Id, Position, SHORT_ID_BYTES};
use crate::lane::Lane;
use crate::prerequisite::Prerequisite;
use crate::record::{
    GroupRecord, META_VERSION, QueuePlace, QueueRecord, Seen, SeenState, StoredItem, Totals,
};
use crate::settings::Settings;
use crate::store::{PendingCommit, Recovered, Store, StoreLimits};
use crate::table::{IdMap, Table};

/// The open frontier of one job.
pub struct Frontier {
    pub(crate) store: Store,
    pub(crate) settings: Settings,
    pub(crate) totals: Totals,
    checkpoint: Option<Vec<u8>>,
    pub(crate) now: Millis,
    /// The first time the caller told.
    pub(crate) opened_at: Millis,
    told: bool,
    /// Whether the last process closed the frontier after its last commit.
    pub(crate) opened_clean: bool,
    pub(crate) queues: Table<QueueRecord>,
    pub(crate) groups: Table<GroupRecord>,
    pub(crate) active: IdMap<Active>,
    pub(crate) lanes: IdMap<Lane>,
    pub(crate) ready: BTreeSet<(u64, Id)>,
    pub(crate) timers: BTreeSet<(u64, Id)>,
    /// Active queues that rest or wait for a prerequisite though their group may be asked, by when that is over; some may be
    /// active no more.
    pub(crate) resting: BTreeSet<(u64, Id)>,
    /// The first queues of the rotation that are not active; those from `rotation_from` on are on disk.
    pub(crate) rotation: BTreeMap<Position, Id>,
    pub(crate) rotation_from: Option<Position>,
    pub(crate) flights: Flights,
    /// Prerequisites, and the queues that wait for them; some may do so no more.
    pub(crate) awaiting: IdMap<Vec<Id>>,
    /// Queues that go before others, and how far.
    pub(crate) preferred: IdMap<u8>,
    /// How often a URL was handed out since it was opened.
    pub(crate) handed_out: u64,
    /// When the next sleeper wakes; the end of time if none sleeps.
    pub(crate) next_due: u64,
    turns: u64,
    buffer: Vec<u8>,
}

impl Frontier {
    /// Opens the frontier in `dir` at its last commit, making it if there is none.
    ///
    /// # Errors
    /// When another process has it open, it is of another version, a file is damaged, or the machine refuses.
    pub fn open(dir: &Path, settings: Settings) -> Result<Self> {
        let recovered = Store::open(dir, limits(&settings))?;
        let mut frontier = Self::stand_on(dir, recovered, settings)?;
        frontier.totals.epoch += 1;
        // Before anything is handed out: a process that dies before its first commit leaves this trace.
        let meta = frontier.totals.encode(frontier.checkpoint.as_deref());
        frontier.store.commit(&meta)?;
        frontier.find_next_due()?;
        Ok(frontier)
    }

    /// Opens the frontier in `dir` as its last commit left it, to be asked and not changed: nothing is written, no other
    /// process is kept from opening it, and a commit fails.
    ///
    /// # Errors
    /// When there is none, another process has it open, a file is damaged, or the machine refuses.
    pub fn open_to_read(dir: &Path, settings: Settings) -> Result<Self> {
        let recovered = Store::open_to_read(dir, limits(&settings))?;
        Self::stand_on(dir, recovered, settings)
    }

    fn stand_on(dir: &Path, recovered: Recovered, settings: Settings) -> Result<Self> {
        let store = recovered.store;
        if let Some(found) = recovered.meta.first().copied()
            && found != META_VERSION
        {
            return Err(FrontierError::Version {
                dir: dir.to_owned(),
                found,
                known: META_VERSION,
            });
        }
        let (mut totals, checkpoint) = match recovered.meta.is_empty() {
            true => (Totals::default(), None),
            false => Totals::decode(&recovered.meta).ok_or_else(|| store.bad_record())?,
        };
        let opened_clean = std::mem::take(&mut totals.clean);
        Ok(Self {
            store,
            settings,
            totals,
            checkpoint,
            now: Millis(0),
            opened_at: Millis(0),
            told: false,
            opened_clean,
            queues: Table::new(),
            groups: Table::new(),
            active: IdMap::default(),
            lanes: IdMap::default(),
            ready: BTreeSet::new(),
            timers: BTreeSet::new(),
            resting: BTreeSet::new(),
            rotation: BTreeMap::new(),
            rotation_from: Some((0, 0)),
            flights: Flights::default(),
            awaiting: IdMap::default(),
            preferred: IdMap::default(),
            handed_out: 0,
            next_due: 0,
            turns: 0,
            buffer: Vec::new(),
        })
    }

    /// The caller's checkpoint of the last commit, if it ever made one.
    #[must_use]
    pub fn checkpoint(&self) -> Option<&[u8]> {
        self.checkpoint.as_deref()
    }

    /// Queues a URL unless it is known.
    ///
    /// A forced one is queued again once it was finished; one that is queued or in flight is not queued twice.
    ///
    /// # Errors
    /// When a string is longer than the settings allow, or the machine refuses.
    pub fn add(&mut self, candidate: &Candidate<'_>) -> Result<Added> {
        let number = self.add_numbered(candidate)?;
        Ok(number.map_or(Added::Seen, |_| Added::New))
    }

    /// Does the same, and returns the number of its stay, for [`Frontier::raise`]; none where it is not queued now.
    ///
    /// # Errors
    /// The same.
    pub fn add_numbered(&mut self, candidate: &Candidate<'_>) -> Result<Option<ItemId>> {
        self.check_lengths(candidate)?;
        let hash = key::url_hash(candidate.key);
        let seen_key = key::seen(&hash);
        let known = self.store.get(&seen_key)?;
        if let Some(bytes) = &known {
            let seen = Seen::decode(bytes).ok_or_else(|| self.store.bad_record())?;
            if !candidate.force || seen.state == SeenState::Queued {
                return Ok(None);
            }
        } else {
            self.totals.known += 1;
        }
        let id = key::id(candidate.queue);
        self.trim()?;
        self.ensure_queue(&id, candidate)?;
        let seen = Seen {
            state: SeenState::Queued,
            attempts: 0,
            status: 0,
            queue: short(&id),
        };
        self.store.put(seen_key, &seen.encode())?;
        let mut retired = false;
        self.change_queue(&id, |queue| {
            queue.queued += 1;
            retired = matches!(queue.place, QueuePlace::Retired(_));
        })?;
        self.totals.queued += 1;
        self.totals.retired_items += u64::from(retired);
        let mut item = std::mem::take(&mut self.buffer);
        item.clear();
        StoredItem::encode_candidate(&hash, candidate, &mut item);
        let inserted = self.insert_item(&id, candidate.precedence.0, &item);
        self.buffer = item;
        inserted.map(Some)
    }

    /// Lets a URL that waits go before others of its queue: it gets a lower precedence than it has, and keeps its number. Returns whether
    /// it waits there now; one that is in flight, sleeps, waits for a prerequisite, or is not there any more is left as it is.
    ///
    /// # Errors
    /// When a file is damaged or the machine refuses.
    pub fn raise(
        &mut self,
        queue: &str,
        item: ItemId,
        from: Precedence,
        to: Precedence,
    ) -> Result<bool> {
        let id = key::id(queue);
        let (old, new) = ((from.0, item.0), (to.0, item.0));
        let is_flying = self
            .flights
            .of_queue(&id)
            .any(|flight| flight.position == old);
        let active = self.active.get(&id);
        let is_awaited = active
            .is_some_and(|active| active.awaits.is_some_and(|awaited| awaited.position == old));
        if new >= old || is_flying || is_awaited {
            return Ok(false);
        }
        let old_key = key::item(&id, old);
        let Some(bytes) = self.store.get(&old_key)? else {
            return Ok(false);
        };
        self.trim()?;
        self.store.delete(old_key)?;
        if let Some(active) = self.active.get_mut(&id) {
            active.take(old);
        }
        self.put_item(&id, new, &bytes)?;
        Ok(true)
    }

    fn check_lengths(&self, candidate: &Candidate<'_>) -> Result<()> {
        let limit = self.settings.longest_string;
        let Candidate {
            url,
            queue,
            group,
            via,
            hops,
            source,
            ..
        } = *candidate;
        let fields = [
            ("URL", url),
            ("queue name", queue),
            ("group name", group),
            ("via", via),
            ("hop path", hops),
            ("source tag", source),
        ];
        match fields.iter().find(|(_, field)| field.len() > limit) {
            None => Ok(()),
            Some((what, field)) => Err(FrontierError::TooLong {
                what,
                bytes: field.len(),
                limit,
            }),
        }
    }

    fn ensure_queue(&mut self, id: &Id, candidate: &Candidate<'_>) -> Result<()> {
        if self.queues.get(&mut self.store, id)?.is_some() {
            return Ok(());
        }
        let group = match candidate.group {
            "" => candidate.queue,
            group => group,
        };
        self.ensure_group(group)?;
        self.queues
            .insert(*id, QueueRecord::new(candidate.queue, group));
        self.totals.queues += 1;
        Ok(())
    }

    pub(crate) fn ensure_group(&mut self, name: &str) -> Result<Id> {
        let id = key::id(name);
        if self.groups.get(&mut self.store, &id)?.is_none() {
            self.groups.insert(id, GroupRecord::new(name));
            self.totals.groups += 1;
        }
        Ok(id)
    }

    /// Puts a URL into its queue and sees to it that the queue has a place.
    pub(crate) fn insert_item(&mut self, id: &Id, precedence: u8, item: &[u8]) -> Result<ItemId> {
        let number = self.number();
        self.put_item(id, (precedence, number), item)?;
        Ok(ItemId(number))
    }

    fn put_item(&mut self, id: &Id, position: Position, item: &[u8]) -> Result<()> {
        self.store.put_fresh(key::item(id, position), item)?;
        let mut place = QueuePlace::Nowhere;
        self.change_queue(id, |queue| {
            place = queue.place;
            queue.head = queue.head.min(position);
        })?;
        let share = self.share();
        if let Some(active) = self.active.get_mut(id) {
            active.insert(position, item, share);
            self.list(id);
            return Ok(());
        }
        match place {
            QueuePlace::Nowhere => self.enlist(id),
            QueuePlace::Rotation(_)
            | QueuePlace::Parked(_)
            | QueuePlace::Sleeping { .. }
            | QueuePlace::Retired(_) => Ok(()),
        }
    }

    /// Says what to do now. `missing` says of the URL whose turn it is what must be there before it can be fetched; none if
    /// nothing is missing, and then it is handed out. The queue of one that misses something waits until that is
    /// fulfilled by [`Frontier::fulfil`], or its time is over.
    ///
    /// # Errors
    /// When a file is damaged or the machine refuses.
    pub fn next(
        &mut self,
        now: Millis,
        mut missing: impl FnMut(&Item) -> Option<Prerequisite>,
    ) -> Result<Next> {
        self.tell(now);
        self.trim()?;
        self.wake()?;
        loop {
            self.expire_timers();
            self.fill()?;
            let Some((_, group)) = self.ready.first().copied() else {
                return Ok(self.nothing_ready());
            };
            if std::mem::take(&mut self.totals.clean) {
                // A process that dies after this has asked somebody.
                let checkpoint = self.checkpoint.take().unwrap_or_default();
                self.commit(&checkpoint)?;
            }
            if let Some(next) = self.hand_out(&group, &mut missing)? {
                return Ok(next);
            }
        }
    }

    fn nothing_ready(&self) -> Next {
        let first = |timers: &BTreeSet<(u64, Id)>| timers.first().map_or(u64::MAX, |(due, _)| *due);
        let due = first(&self.timers)
            .min(first(&self.resting))
            .min(self.next_due);
        if due < u64::MAX {
            Next::Wait(Millis(due))
        } else if self.flights.len() == 0 {
            Next::Empty
        } else {
            Next::Idle
        }
    }

    /// Hands out the next URL of a ready group; none if its queue turned out to have spent its budget.
    fn hand_out(
        &mut self,
        group: &Id,
        missing: &mut impl FnMut(&Item) -> Option<Prerequisite>,
    ) -> Result<Option<Next>> {
        let first = self.lanes.get(group).and_then(|lane| lane.ready.first());
        let Some((_, id)) = first.copied() else {
            self.place_lane(group);
            return Ok(None);
        };
        self.unlist(&id);
        let Some(queue) = self.queues.get(&mut self.store, &id)? else {
            return Err(self.store.bad_record());
        };
        if let Some(why) = queue.exhausted(&self.settings.budget, 0, self.now) {
            self.retire_queue(&id, why)?;
            return Ok(None);
        }
        let (queue_name, group_name) = (queue.name.clone(), queue.group.clone());
        let turn = self.turn();
        let Some(active) = self.active.get_mut(&id) else {
            return Ok(None);
        };
        let Some((position, bytes)) = active.pop() else {
            return Ok(None);
        };
        active.turn = turn;
        let stored = StoredItem::decode(&bytes).ok_or_else(|| self.store.bad_record())?;
        let (hash, item) = (stored.hash, stored.item(position, queue_name, group_name));
        if let Some(missing) = missing(&item) {
            active.put(position, bytes);
            self.await_for(&id, position, &missing);
            return Ok(Some(Next::Missing(item)));
        }
        self.flights.begin(InFlight {
            queue: id,
            group: *group,
            position,
            hash,
            cost: item.cost,
            attempts: item.attempts,
            since: self.now,
        });
        self.handed_out += 1;
        let (manners, now) = (self.settings.manners, self.now);
        self.change_group(group, |group| {
            let manners = group.overrides.over(&manners);
            group.pace.begins(&manners, now, position.1);
        })?;
        self.refill(&id)?;
        self.list(&id);
        self.place_lane(group);
        Ok(Some(Next::Fetch(item)))
    }

    /// Makes everything since the last commit durable, with the caller's checkpoint, as one.
    ///
    /// What is in flight then is handed out again if it is not finished before a later commit.
    ///
    /// # Errors
    /// When the machine refuses; the frontier must then be opened again, and is at its last commit.
    pub fn commit(&mut self, checkpoint: &[u8]) -> Result<()> {
        self.begin_commit(checkpoint)?.write()
    }

    /// Begins a commit as [`Frontier::commit`] makes it. It holds everything up to now and is written by whoever likes to,
    /// after those that were begun before it; what changes meanwhile belongs to the next one.
    ///
    /// # Errors
    /// When the machine refuses.
    pub fn begin_commit(&mut self, checkpoint: &[u8]) -> Result<PendingCommit> {
        self.queues.save(&mut self.store)?;
        self.groups.save(&mut self.store)?;
        let meta = self.totals.encode(Some(checkpoint));
        let commit = self.store.begin_commit(&meta)?;
        self.checkpoint = Some(checkpoint.to_vec());
        Ok(commit)
    }

    /// Commits, and notes that nothing was asked since: the next opening need not wait before it asks. Before another URL
    /// is handed out, that is noted.
    ///
    /// # Errors
    /// When the machine refuses.
    pub fn pause(&mut self, checkpoint: &[u8]) -> Result<()> {
        self.begin_pause(checkpoint)?.write()
    }

    /// Begins a commit as [`Frontier::pause`] makes it.
    ///
    /// # Errors
    /// When the machine refuses.
    pub fn begin_pause(&mut self, checkpoint: &[u8]) -> Result<PendingCommit> {
        // What is in flight may have been asked already.
        self.totals.clean = self.flights.len() == 0;
        self.begin_commit(checkpoint)
    }

    /// The number of changes' bytes and other sizes of the store.
    #[must_use]
    pub fn store_size(&self) -> crate::StoreSize {
        self.store.size()
    }

    /// How many URLs are handed out and not finished.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Queues in the rotation that are not active.
    pub(crate) fn waiting_queues(&self) -> u64 {
        self.totals
            .rotating
            .saturating_sub(self.active.len() as u64)
    }

    /// Time never goes back here, whatever the caller says.
    pub(crate) fn tell(&mut self, now: Millis) {
        self.now = self.now.max(now);
        if !std::mem::replace(&mut self.told, true) {
            self.opened_at = self.now;
        }
    }

    pub(crate) fn trim(&mut self) -> Result<()> {
        let limit = self.settings.memory.records / 2;
        self.queues.trim(&mut self.store, limit)?;
        self.groups.trim(&mut self.store, limit)
    }

    /// A number that was never used before.
    pub(crate) fn number(&mut self) -> u64 {
        self.totals.sequence += 1;
        self.totals.sequence
    }

    pub(crate) fn turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    pub(crate) fn change_queue(
        &mut self,
        id: &Id,
        change: impl FnOnce(&mut QueueRecord),
    ) -> Result<()> {
        if let Some(queue) = self.queues.change(&mut self.store, id)? {
            change(queue);
        }
        Ok(())
    }

    pub(crate) fn change_group(
        &mut self,
        id: &Id,
        change: impl FnOnce(&mut GroupRecord),
    ) -> Result<()> {
        if let Some(group) = self.groups.change(&mut self.store, id)? {
            change(group);
        }
        Ok(())
    }
}

pub(crate) fn limits(settings: &Settings) -> StoreLimits {
    StoreLimits {
        changes: settings.memory.changes.max(4096),
        filters: settings.memory.filters,
        blocks: settings.memory.blocks,
    }
}

pub(crate) fn short(id: &Id) -> [u8; SHORT_ID_BYTES] {
    let mut short = [0; SHORT_ID_BYTES];
    short.copy_from_slice(&id[..SHORT_ID_BYTES]);
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::Outcome;

    #[test]
    fn another_version_is_refused_by_its_number() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path(), limits(&Settings::default()))
            .unwrap()
            .store;
        store.commit(&[1, 0]).unwrap();
        drop(store);
        let refused = Frontier::open(dir.path(), Settings::default()).err();
        assert!(matches!(
            refused,
            Some(FrontierError::Version { found: 1, .. })
        ));
    }

    #[test]
    fn a_reader_changes_nothing_and_keeps_nobody_out() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Frontier::open(dir.path(), Settings::default());
        let read = || Frontier::open_to_read(dir.path(), Settings::default());
        assert!(read().is_err());
        let mut frontier = open().unwrap();
        frontier.add(&Candidate::new("http://a/", "a")).unwrap();
        frontier.commit(b"here").unwrap();
        assert!(matches!(read().err(), Some(FrontierError::Locked { .. })));
        drop(frontier);
        // What a crash left behind the last commit stays for whoever opens it next.
        let log = dir.path().join("log-00000001");
        let mut bytes = std::fs::read(&log).unwrap();
        bytes.extend_from_slice(b"half a frame");
        std::fs::write(&log, &bytes).unwrap();
        let mut reader = read().unwrap();
        assert_eq!(reader.checkpoint(), Some(&b"here"[..]));
        assert!(reader.lookup(b"http://a/").unwrap().is_some());
        assert!(reader.commit(b"there").is_err());
        assert_eq!(std::fs::read(&log).unwrap(), bytes);
        let other = open().unwrap();
        assert_eq!(other.checkpoint(), Some(&b"here"[..]));
    }

    #[test]
    fn inactive_queues_are_on_disk_only() {
        let mut settings = Settings {
            active_queues: 8,
            ..Settings::default()
        };
        settings.memory.records = 128;
        settings.memory.changes = 1 << 16;
        settings.manners.min_delay = std::time::Duration::ZERO;
        settings.manners.max_delay = std::time::Duration::ZERO;
        let dir = tempfile::tempdir().unwrap();
        let mut frontier = Frontier::open(dir.path(), settings).unwrap();
        for number in 0..6000 {
            let queue = format!("host{}", number % 3000);
            let url = format!("http://{queue}/{number}");
            frontier.add(&Candidate::new(&url, &queue)).unwrap();
            assert!(frontier.queues.len() <= 66 && frontier.groups.len() <= 66);
        }
        assert!(frontier.rotation.len() <= 512);
        let mut done = 0;
        while let Next::Fetch(item) = frontier.next(Millis(1), |_| None).unwrap() {
            let outcome = Outcome::done(200, 1, std::time::Duration::ZERO);
            frontier.finish(Millis(1), item.id, &outcome).unwrap();
            assert!(frontier.active.len() <= 8 && frontier.lanes.len() <= 8);
            assert!(frontier.queues.len() <= 80 && frontier.groups.len() <= 80);
            done += 1;
        }
        assert_eq!(done, 6000);
        assert_eq!(frontier.counts().queued, 0);
        assert!(
            frontier.lanes.is_empty() && frontier.timers.is_empty() && frontier.ready.is_empty()
        );
        assert_eq!(frontier.waiting_queues(), 0);
    }
}
