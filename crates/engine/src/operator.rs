//! What the shell and the operator ask: what waits where, who works, what was done; hold, release, pause.
//!
//! Held, discarded and deferred parcels have a mark of their own beside the ticket, so that they can be counted and found
//! without reading every ticket. A mark is put before the ticket says so and removed after it no longer does: one without such
//! a ticket means nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use ecluse_spool::{
    BellWire, Blocked, ClusterView, CollectExtent, Collected, Depths, Engine, FileEntry, Filed,
    FoldedShard, Fs, Gift, Host, Marks, NewParcel, OtherOwner, ParcelId, ParcelManifest,
    ParcelPlace, ParcelState, Paused, RealFs, ReconcileExtent, Result, Ring, Room, Signs, Spool,
    SpoolError, Throughput, Trouble, Why, WorkTree, WorkerId, WorkerTerms, WorkerView, parse_sheet,
};
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::JetstreamEngine;
use crate::cluster::{Inner, ReadTicket, dice, now_text};
use crate::commit::Upload;
use crate::failpoint::hit;
use crate::queue::Hint;
use crate::scratch::at;
use crate::store::{Downloaded, Put, make_file};
use crate::ticket::{StageKeys, Ticket, TicketState, names_of, parcel_of, payload_key};
use crate::worker::{JetstreamWorker, WorkerSheet, due_of};

/// How many objects are read at a time.
const READS: usize = 32;
/// The stage that brings what comes from outside.
pub(crate) const OUTSIDE: &str = "given";
/// Whoever gives a parcel shows it within this time, and within half the age at which files are collected.
const SHOWN_WITHIN: Duration = Duration::from_secs(12 * 3600);
/// Files of a parcel that is only looked at are no larger.
const LOOKED_AT: u64 = 1 << 20;
/// Tickets are counted one by one up to here; then the queue's own count is taken.
const COUNTED: usize = 20_000;
/// So many receipts are looked at for what was finished lately.
const LOOKS: u64 = 4000;
/// So many deferred parcels are let go at a time.
const DUE_AT_ONCE: usize = 1000;

impl Inner {
    /// Holds a ticket as it was read; `false` when it has changed.
    pub(crate) async fn hold_ticket(
        &self,
        stage: &str,
        ticket: &Ticket,
        etag: &str,
        why: Why,
    ) -> Result<bool> {
        let before = ticket
            .trouble
            .clone()
            .filter(|trouble| trouble.stage == stage);
        let mut held = ticket.turned(TicketState::Held, ticket.attempts);
        held.trouble = Some(Trouble {
            stage: stage.to_owned(),
            held: Some(why),
            ..before.unwrap_or_default()
        });
        let keys = StageKeys(stage);
        let mark = format!("{}{}", keys.held(), held.name());
        self.store.put(&mark, b"").await?;
        hit("mark-put");
        let put = self
            .store
            .put_over(&keys.ticket(&held.name()), &held.to_bytes(), etag)
            .await?;
        hit("set-aside");
        Ok(matches!(put, Put::There(_)))
    }

    /// Defers a ticket; `false` when it has changed.
    pub(crate) async fn defer_ticket(
        &self,
        stage: &str,
        deferred: &Ticket,
        etag: &str,
        due: u64,
    ) -> Result<bool> {
        let keys = StageKeys(stage);
        let name = deferred.name();
        self.store.put(&keys.deferred_mark(due, &name), b"").await?;
        hit("mark-put");
        let put = self
            .store
            .put_over(&keys.ticket(&name), &deferred.to_bytes(), etag)
            .await?;
        hit("set-aside");
        Ok(matches!(put, Put::There(_)))
    }

    /// Lets deferred parcels that are due be claimed; says when the next one is.
    pub(crate) async fn undefer(&self, stage: &str, now: u64) -> Result<Option<u64>> {
        let keys = StageKeys(stage);
        let directory = keys.deferred();
        let mut due = Vec::new();
        let mut next = None;
        let mut marks = self.store.list(&directory, "");
        while let Some(mark) = marks.next().await {
            let mark = mark?.name;
            let Some((when, name)) = due_of(&mark) else {
                continue;
            };
            if when > now || due.len() >= DUE_AT_ONCE {
                next = Some(when.max(now));
                break;
            }
            due.push((format!("{directory}{mark}"), name, when));
        }
        drop(marks);
        for (mark, name, when) in due {
            if let Some(read) = self.ticket(stage, &name).await? {
                match &read.ticket.state {
                    TicketState::Deferred { due } if *due == when => {
                        self.let_go_on(stage, &read, read.ticket.attempts).await?;
                    }
                    // Its worker may be about to say so: without the mark nobody would find it then.
                    TicketState::Working { .. } => continue,
                    TicketState::Ready
                    | TicketState::Deferred { .. }
                    | TicketState::Held
                    | TicketState::Discarded
                    | TicketState::Moving { .. } => {}
                }
            }
            self.store.remove(&mark).await?;
            hit("mark-removed");
        }
        Ok(next)
    }

    /// Makes a ticket claimable and tells of it; `false` when it has changed.
    async fn let_go_on(&self, stage: &str, read: &ReadTicket, attempts: u32) -> Result<bool> {
        let ready = read.ticket.turned(TicketState::Ready, attempts);
        let key = StageKeys(stage).ticket(&ready.name());
        let put = self
            .store
            .put_over(&key, &ready.to_bytes(), &read.etag)
            .await?;
        let Put::There(etag) = put else {
            return Ok(false);
        };
        hit("let-go-on");
        self.tell(stage, Hint::of(&ready, &etag)).await;
        Ok(true)
    }

    /// Brings the small files of a parcel to a local directory, and returns that.
    pub(crate) fn look_at(&self, stage: &str, ticket: &Ticket) -> Result<PathBuf> {
        let dir = self.scratch.look(stage, &ticket.name());
        std::fs::create_dir_all(&dir).map_err(at("make", &dir))?;
        let small = |file: &&FileEntry| file.bytes <= LOOKED_AT;
        for file in ticket.manifest.files.iter().filter(small) {
            let path = dir.join(&file.name);
            let is_there = path.metadata().is_ok_and(|about| about.len() == file.bytes);
            if is_there {
                continue;
            }
            self.bring(ticket, file, &path)?;
        }
        Ok(dir)
    }

    /// Brings a file of a parcel to a path.
    fn bring(&self, ticket: &Ticket, file: &FileEntry, path: &Path) -> Result<()> {
        let key = ticket.payload_key(file);
        let signs = Signs::default();
        let reason = match self.wait(self.store.download(&key, file, path, make_file, &signs))? {
            Downloaded::There => return Ok(()),
            Downloaded::Missing => format!("there is no {key}"),
            Downloaded::Other { sha256 } => {
                let (name, wanted) = (&file.name, &file.sha256);
                format!("{name} has the digest {sha256}, not {wanted}")
            }
        };
        Err(SpoolError::Damaged {
            parcel: ticket.manifest.id.clone(),
            reason,
        })
    }

    async fn count(&self, directory: &str, most: usize) -> Result<usize> {
        let listed = self.store.list(directory, "").take(most);
        listed
            .try_fold(0, |count, _| std::future::ready(Ok(count + 1)))
            .await
    }

    async fn oldest(&self, directory: &str, now: i64) -> Result<Option<u64>> {
        let listed = self.store.list(directory, "").take(2000);
        let oldest = listed.try_fold(None, |oldest: Option<i64>, listed| {
            let written = listed.written_ms;
            let oldest = oldest.map_or(written, |oldest| oldest.min(written));
            std::future::ready(Ok(Some(oldest)))
        });
        let age = |written| u64::try_from((now - written) / 1000).unwrap_or(0);
        Ok(oldest.await?.map(age))
    }

    /// Calls `see` for the tickets of a stage whose names begin so. Nobody waits for the servers meanwhile: `see` may ask them.
    fn places(&self, stage: &str, start: &str, see: &mut dyn FnMut(ParcelPlace)) -> Result<()> {
        let directory = StageKeys(stage).tickets();
        let tickets = self
            .store
            .list(&directory, start)
            .map_ok(|listed| async move { self.ticket(stage, &listed.name).await })
            .try_buffered(READS)
            .try_filter_map(|read| std::future::ready(Ok(read)));
        let mut tickets = std::pin::pin!(tickets);
        while let Some(read) = self.wait(tickets.next()) {
            see(place_of(stage, &read?.ticket));
        }
        Ok(())
    }

    /// Finds the ticket of a place, as it is now.
    async fn ticket_at(&self, place: &ParcelPlace) -> Result<ReadTicket> {
        let name = place.path.file_name().unwrap_or_default().to_string_lossy();
        let read = self.ticket(&place.stage, &name).await?;
        read.ok_or_else(|| no_longer(place))
    }

    /// Puts the mark of a ticket that is set aside, where it may be missing.
    pub(crate) async fn mark_again(&self, stage: &str, ticket: &Ticket) -> Result<()> {
        match mark_of(stage, ticket) {
            Some(mark) => self.store.put(&mark, b"").await,
            None => Ok(()),
        }
    }

    async fn mark_off(&self, stage: &str, ticket: &Ticket) -> Result<()> {
        match mark_of(stage, ticket) {
            Some(mark) => self.store.remove(&mark).await,
            None => Ok(()),
        }
    }
}

/// Returns the key of the mark that a ticket in this state has.
pub(crate) fn mark_of(stage: &str, ticket: &Ticket) -> Option<String> {
    let (keys, name) = (StageKeys(stage), ticket.name());
    match &ticket.state {
        TicketState::Held => Some(format!("{}{name}", keys.held())),
        TicketState::Discarded => Some(format!("{}{name}", keys.discarded())),
        TicketState::Deferred { due } => Some(keys.deferred_mark(*due, &name)),
        TicketState::Moving { .. } => Some(format!("{}{name}", keys.moving())),
        TicketState::Ready | TicketState::Working { .. } => None,
    }
}

pub(crate) fn place_of(stage: &str, ticket: &Ticket) -> ParcelPlace {
    let (due, worker) = match &ticket.state {
        TicketState::Deferred { due } => (Some(*due), None),
        TicketState::Working { worker } => (None, Some(worker.clone())),
        TicketState::Moving { .. } => (None, Some("move".to_owned())),
        TicketState::Ready | TicketState::Held | TicketState::Discarded => (None, None),
    };
    ParcelPlace {
        stage: stage.to_owned(),
        state: ticket.state.parcel_state(),
        parcel: ticket.manifest.id.clone(),
        attempts: ticket.attempts,
        due,
        worker,
        path: PathBuf::from(StageKeys(stage).ticket(&ticket.name())),
    }
}

fn no_longer(place: &ParcelPlace) -> SpoolError {
    SpoolError::Refused(format!(
        "{} is no longer {} in {}",
        place.parcel,
        place.state.word(),
        place.stage
    ))
}

/// Fails unless a parcel is still as it was seen, and may be treated so.
fn must_be(
    place: &ParcelPlace,
    read: &ReadTicket,
    states: &[ParcelState],
    verb: &str,
) -> Result<()> {
    let state = read.ticket.state.parcel_state();
    if state != place.state {
        return Err(no_longer(place));
    }
    if states.contains(&state) {
        return Ok(());
    }
    Err(SpoolError::Refused(format!(
        "cannot {verb} {}: it is {} in {}",
        place.parcel,
        state.word(),
        place.stage
    )))
}

/// Stops what it began when it is dropped.
struct Subscribed(tokio::task::JoinHandle<()>);

impl Drop for Subscribed {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Engine for JetstreamEngine {
    fn directories(&self) -> Option<&WorkTree> {
        None
    }

    fn place(&self) -> String {
        format!(
            "{} and {}",
            self.inner.store.address, self.inner.queue.address
        )
    }

    fn host(&self) -> &Host {
        &self.inner.host
    }

    fn init(&self, stage: &str) -> Result<()> {
        self.inner.scratch.init(stage)?;
        self.inner.wait(self.inner.queue.init(stage))
    }

    fn faults(&self, _stage: &str) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn probe(&self, stage: &str) -> Result<()> {
        let inner = &self.inner;
        let key = format!("probes/{}-{:016x}", inner.host.name, dice());
        inner.wait(async {
            inner.store.put(&key, b".").await?;
            inner.store.remove(&key).await?;
            inner.queue.depth(stage).await.map(drop)
        })?;
        let path = inner
            .scratch
            .tmp(stage)
            .join(format!("probe-{:016x}", dice()));
        RealFs
            .write_durable(&path, &[b'.'; 16 << 10])
            .map_err(at("write", &path))?;
        RealFs.unlink(&path).map_err(at("remove", &path))
    }

    fn open_worker(&self, terms: &WorkerTerms<'_>) -> Result<Box<dyn Spool>> {
        Ok(Box::new(JetstreamWorker::open(self, terms)?))
    }

    fn own(&self, stage: &str, lease: Duration, place: &Path) -> Result<Option<OtherOwner>> {
        self.inner.own(stage, lease, place)
    }

    fn disown(&self) {
        self.inner.disown();
    }

    fn evict(&self, terms: &WorkerTerms<'_>, workers: &[WorkerId]) -> Result<()> {
        let (inner, stage) = (&self.inner, terms.stage);
        for worker in workers {
            for name in inner.scratch.tickets_of(stage, worker)? {
                let Some(read) = inner.wait(inner.ticket(stage, &name))? else {
                    continue;
                };
                let is_his = matches!(&read.ticket.state, TicketState::Working { worker: his } if his == worker.as_str());
                if is_his {
                    let attempts = read.ticket.attempts.saturating_sub(1);
                    inner.wait(inner.let_go_on(stage, &read, attempts))?;
                }
            }
            inner.wait(
                inner
                    .store
                    .remove(&StageKeys(stage).worker(worker.as_str())),
            )?;
            inner.scratch.forget(stage, worker)?;
        }
        Ok(())
    }

    fn wire(&self, stage: &str, ring: Ring) -> Option<BellWire> {
        let subject = self.inner.queue.subjects(stage);
        let client = self.inner.queue.client.clone();
        let task = self.inner.runtime.spawn(async move {
            loop {
                match client.subscribe(subject.clone()).await {
                    Ok(mut told) => {
                        while told.next().await.is_some() {
                            ring();
                        }
                    }
                    Err(error) => tracing::warn!(%error, "the bell is out of order"),
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        Some(Box::new(Subscribed(task)))
    }

    fn reconcile(&self, stage: &str, extent: ReconcileExtent) -> Result<u64> {
        let reconciled = self.reconcile_stage(stage, extent)?;
        Ok(reconciled.told)
    }

    fn collect(&self, extent: CollectExtent) -> Result<Option<Collected>> {
        self.inner.collect(extent)
    }

    fn temporary(&self, stage: &str) -> PathBuf {
        self.inner.scratch.tmp(stage)
    }

    fn stage_directory(&self, stage: &str) -> PathBuf {
        self.inner.scratch.stage(stage)
    }

    fn cluster(&self, stages: &[String]) -> Option<ClusterView> {
        Some(self.inner.wait(self.inner.standing(stages)))
    }

    fn stages(&self) -> Result<Vec<String>> {
        let mut names = self.inner.wait(self.inner.store.directories("stages/"))?;
        names.sort();
        Ok(names)
    }

    fn depths(&self, stage: &str) -> Result<Depths> {
        let inner = &self.inner;
        let keys = StageKeys(stage);
        let paused = self.paused(stage)?;
        let now = inner.now_ms();
        let next_due = |mark: Option<Result<crate::store::Listed>>| {
            let mark = mark.transpose()?;
            Ok::<_, SpoolError>(mark.and_then(|mark| due_of(&mark.name)).map(|(due, _)| due))
        };
        inner.wait(async {
            let (tickets, held, discarded, deferred) = (
                keys.tickets(),
                keys.held(),
                keys.discarded(),
                keys.deferred(),
            );
            let depth = inner.queue.depth(stage).await?;
            let in_all = inner.count(&tickets, COUNTED + 1).await?;
            let mut depths = Depths {
                held: inner.count(&held, usize::MAX).await?,
                deferred: inner.count(&deferred, usize::MAX).await?,
                next_due: next_due(inner.store.list(&deferred, "").next().await)?,
                workers: inner.count(&keys.workers(), usize::MAX).await?,
                paused,
                ..Depths::default()
            };
            depths.oldest_held = match depths.held {
                0 => None,
                _ => inner.oldest(&held, now).await?,
            };
            let aside = depths.held + depths.deferred + inner.count(&discarded, usize::MAX).await?;
            let on_their_way = if in_all > COUNTED {
                usize::try_from(depth.messages).unwrap_or(usize::MAX)
            } else {
                in_all.saturating_sub(aside)
            };
            // What another host's worker only heard of counts as its work: it will be.
            let in_hands = usize::try_from(depth.in_hands).unwrap_or(usize::MAX);
            depths.working = in_hands
                .saturating_sub(inner.heard(stage))
                .min(on_their_way);
            depths.ready = on_their_way - depths.working;
            depths.oldest_ready = match depths.ready {
                0 => None,
                _ => inner.oldest(&tickets, now).await?,
            };
            Ok(depths)
        })
    }

    fn workers(&self, stage: &str, lease: Duration) -> Result<Vec<WorkerView>> {
        let inner = &self.inner;
        let now = inner.now_ms();
        let directory = StageKeys(stage).workers();
        let listed: Vec<_> = inner.wait(inner.store.list(&directory, "").try_collect())?;
        let mut workers = Vec::new();
        for listed in listed {
            let read = inner.wait(inner.store.get(&StageKeys(stage).worker(&listed.name)))?;
            let sheet =
                read.and_then(|read| serde_json::from_slice::<WorkerSheet>(&read.bytes).ok());
            let Some(sheet) = sheet else { continue };
            let silent = Duration::from_millis(u64::try_from(now - listed.written_ms).unwrap_or(0));
            let known = inner.scratch.is_alive(stage, &listed.name, &inner.host);
            workers.push(WorkerView {
                alive: known.unwrap_or(silent < lease),
                id: listed.name,
                silent,
                note: sheet.status,
            });
        }
        Ok(workers)
    }

    fn throughput(&self, stage: &str, within: Duration) -> Result<Throughput> {
        let inner = &self.inner;
        let now = inner.now_ms();
        let since = now - i64::try_from(within.as_millis()).unwrap_or(i64::MAX);
        let directory = StageKeys(stage).receipts();
        inner.wait(async {
            let mut listed = inner.store.list(&directory, "");
            let (mut looked, mut throughput) = (0, Throughput::default());
            while let Some(receipt) = listed.next().await {
                let receipt = receipt?;
                looked += 1;
                throughput.count += u64::from(receipt.written_ms >= since);
                let age = u64::try_from((now - receipt.written_ms) / 1000).unwrap_or(0);
                throughput.last = Some(throughput.last.map_or(age, |last| last.min(age)));
                if looked >= LOOKS {
                    // They are spread evenly over 256 shards, which come in order.
                    let shard = receipt
                        .name
                        .get(..2)
                        .and_then(|shard| u64::from_str_radix(shard, 16).ok());
                    throughput.count = throughput.count * 256 / (shard.unwrap_or(255) + 1);
                    throughput.estimated = true;
                    break;
                }
            }
            Ok(throughput)
        })
    }

    fn pressure(
        &self,
        stage: &str,
        destinations: &[String],
        marks: &Marks,
        blocked: Option<&Blocked>,
    ) -> Result<Option<Blocked>> {
        let inner = &self.inner;
        if let Some(paused) = self.paused(stage)? {
            return Ok(Some(Blocked::Paused(paused)));
        }
        let room = self.room()?;
        let floor = marks.floor.bytes(&room);
        if room.free < floor {
            return Ok(Some(Blocked::Space {
                free: room.free,
                floor,
            }));
        }
        if let Some(full) = inner.scratch.is_full() {
            return Ok(Some(full));
        }
        for destination in destinations {
            let was =
                matches!(blocked, Some(Blocked::HighMark { stage, .. }) if stage == destination);
            let mark = if was { marks.low } else { marks.high };
            let depth = inner.wait(inner.queue.depth(destination))?;
            let waiting = usize::try_from(depth.messages).unwrap_or(usize::MAX);
            if waiting > mark {
                return Ok(Some(Blocked::HighMark {
                    stage: destination.clone(),
                    waiting,
                    low: marks.low,
                }));
            }
        }
        Ok(None)
    }

    fn room(&self) -> Result<Room> {
        let root = &self.inner.scratch.root;
        std::fs::create_dir_all(root).map_err(at("make", root))?;
        RealFs.room(root).map_err(at("look at", root))
    }

    fn now_seconds(&self, _stage: &str) -> u64 {
        self.inner.now_seconds()
    }

    fn clock_skew(&self, _stage: &str) -> Option<i64> {
        self.inner.clock_skew()
    }

    fn clock_owner(&self, _stage: &str) -> &'static str {
        "the store"
    }

    fn paused(&self, stage: &str) -> Result<Option<Paused>> {
        let read = self
            .inner
            .wait(self.inner.store.get(&StageKeys(stage).paused()))?;
        Ok(read.map(|read| serde_json::from_slice(&read.bytes).unwrap_or_default()))
    }

    fn pause(&self, stage: &str, who: &str, why: &str) -> Result<()> {
        let paused = Paused {
            who: who.to_owned(),
            when: now_text(),
            why: why.to_owned(),
        };
        let bytes = serde_json::to_vec(&paused).expect("a pause holds only strings");
        self.inner
            .wait(self.inner.store.put(&StageKeys(stage).paused(), &bytes))
    }

    fn resume(&self, stage: &str) -> Result<bool> {
        let was = self.paused(stage)?.is_some();
        self.inner
            .wait(self.inner.store.remove(&StageKeys(stage).paused()))?;
        Ok(was)
    }

    fn each_name(&self, stage: &str, see: &mut dyn FnMut(ParcelId)) -> Result<()> {
        let inner = &self.inner;
        let directory = StageKeys(stage).tickets();
        let mut listed = inner.store.list(&directory, "");
        while let Some(listed) = inner.wait(listed.next()) {
            if let Some(id) = parcel_of(&listed?.name) {
                see(id);
            }
        }
        Ok(())
    }

    fn each_place(&self, stage: &str, see: &mut dyn FnMut(ParcelPlace)) -> Result<()> {
        self.inner.places(stage, "", see)
    }

    fn locate(&self, stages: &[String], id: &ParcelId) -> Result<Vec<ParcelPlace>> {
        let mut places = Vec::new();
        for stage in stages {
            let see = &mut |place| places.push(place);
            self.inner.places(stage, &names_of(id), see)?;
        }
        Ok(places)
    }

    fn look_at(&self, place: &ParcelPlace) -> Result<PathBuf> {
        let read = self.inner.wait(self.inner.ticket_at(place))?;
        self.inner.look_at(&place.stage, &read.ticket)
    }

    fn bring(&self, place: &ParcelPlace, file: &FileEntry, directory: &Path) -> Result<PathBuf> {
        let read = self.inner.wait(self.inner.ticket_at(place))?;
        let path = directory.join(&file.name);
        self.inner.bring(&read.ticket, file, &path)?;
        Ok(path)
    }

    fn manifest(&self, place: &ParcelPlace) -> Result<ParcelManifest> {
        let read = self.inner.wait(self.inner.ticket_at(place))?;
        Ok(read.ticket.manifest)
    }

    fn trouble(&self, place: &ParcelPlace) -> Option<Trouble> {
        let read = self.inner.wait(self.inner.ticket_at(place)).ok()?;
        let trouble = read
            .ticket
            .trouble
            .filter(|trouble| trouble.stage == place.stage)?;
        (trouble.deferrals > 0 && trouble.held.is_none()).then_some(trouble)
    }

    fn why(&self, place: &ParcelPlace) -> Result<Option<Why>> {
        let (ParcelState::Held | ParcelState::Discarded) = place.state else {
            return Ok(None);
        };
        let read = self.inner.wait(self.inner.ticket_at(place))?;
        Ok(read.ticket.trouble.and_then(|trouble| trouble.held))
    }

    fn history(&self, place: &ParcelPlace) -> Result<Vec<Filed>> {
        let inner = &self.inner;
        let read = inner.wait(inner.ticket_at(place))?;
        let pages = stream::iter(read.ticket.history)
            .map(|page| async move { inner.receipt(&page.stage, &page.work).await })
            .buffered(READS)
            .try_filter_map(|filed| std::future::ready(Ok(filed)));
        inner.wait(pages.try_collect())
    }

    fn receipt(&self, stage: &str, id: &ParcelId) -> Result<Option<Filed>> {
        self.inner.wait(self.inner.receipt(stage, id))
    }

    fn each_finished(&self, stages: &[String], see: &mut dyn FnMut(&str, &str)) -> Result<()> {
        let inner = &self.inner;
        // A name lies in the same shard in every stage: only the names of one are kept in mind.
        for shard in 0..=255_u8 {
            let mut seen = std::collections::HashSet::new();
            for stage in stages {
                let directory = format!("{}{shard:02x}/", StageKeys(stage).receipts());
                let listed: Vec<_> = inner.wait(inner.store.list(&directory, "").try_collect())?;
                for listed in listed {
                    let name = listed.name.strip_suffix(".json").unwrap_or_default();
                    if ParcelId::new(name).is_ok() && seen.insert(name.to_owned()) {
                        see(stage, name);
                    }
                }
            }
        }
        Ok(())
    }

    fn each_receipt(&self, stage: &str, see: &mut dyn FnMut(Filed)) -> Result<()> {
        let inner = &self.inner;
        let directory = StageKeys(stage).receipts();
        let (store, directory) = (&inner.store, directory.as_str());
        let receipts = store
            .list(directory, "")
            .map_ok(|listed| async move {
                let read = store.get(&format!("{directory}{}", listed.name)).await?;
                Ok((listed.name, read))
            })
            .try_buffered(READS);
        let mut receipts = std::pin::pin!(receipts);
        while let Some(read) = inner.wait(receipts.next()) {
            let (name, Some(read)) = read? else { continue };
            for filed in parse_sheet(&read.bytes) {
                // That of a batch lies under the names of its members too.
                let own = format!("{}/{}.json", filed.receipt.work.shard(), filed.receipt.work);
                if name == own {
                    see(filed);
                }
            }
        }
        Ok(())
    }

    fn each_receipt_ever(&self, stage: &str, see: &mut dyn FnMut(Filed)) -> Result<()> {
        self.each_receipt(stage, see)
    }

    fn put_built(
        &self,
        stage: &str,
        id: &ParcelId,
        kind: &str,
        build: &mut dyn FnMut(&mut NewParcel) -> Result<()>,
    ) -> Result<ParcelId> {
        let inner = &self.inner;
        self.init(stage)?;
        let dir = inner
            .scratch
            .tmp(stage)
            .join(format!("new-{:016x}", dice()));
        let mut parcel = NewParcel::draft(dir.clone(), id, kind, dice())?;
        let put = build(&mut parcel).and_then(|()| {
            let manifest = parcel.manifest().clone();
            inner.wait(self.show(stage, manifest, &dir))
        });
        let _ = RealFs.remove_tree(&dir);
        put
    }

    fn give(&self, stage: &str, file: &Path, gift: &Gift) -> Result<ParcelId> {
        let is_finished = |id: &ParcelId| Ok(self.receipt(stage, id)?.is_some());
        self.put_built(stage, &Gift::id_of(file), gift.kind(), &mut |parcel| {
            gift.fill(parcel, file, &is_finished)
        })
    }

    fn hold(&self, place: &ParcelPlace, reason: &str, by: &str) -> Result<()> {
        let inner = &self.inner;
        let read = inner.wait(inner.ticket_at(place))?;
        must_be(
            place,
            &read,
            &[ParcelState::Ready, ParcelState::Deferred],
            "hold",
        )?;
        let why = why_of(place, &read, reason, by);
        if !inner.wait(inner.hold_ticket(&place.stage, &read.ticket, &read.etag, why))? {
            return Err(no_longer(place));
        }
        inner.wait(inner.mark_off(&place.stage, &read.ticket))
    }

    fn release(&self, place: &ParcelPlace) -> Result<()> {
        let inner = &self.inner;
        let read = inner.wait(inner.ticket_at(place))?;
        let states = [
            ParcelState::Held,
            ParcelState::Deferred,
            ParcelState::Discarded,
        ];
        must_be(place, &read, &states, "release")?;
        if !inner.wait(inner.let_go_on(&place.stage, &read, 0))? {
            return Err(no_longer(place));
        }
        inner.wait(inner.mark_off(&place.stage, &read.ticket))
    }

    fn discard(&self, place: &ParcelPlace, reason: &str, by: &str) -> Result<PathBuf> {
        let inner = &self.inner;
        let read = inner.wait(inner.ticket_at(place))?;
        let states = [ParcelState::Held, ParcelState::Ready, ParcelState::Deferred];
        must_be(place, &read, &states, "discard")?;
        let mut discarded = read
            .ticket
            .turned(TicketState::Discarded, read.ticket.attempts);
        discarded.trouble = Some(Trouble {
            stage: place.stage.clone(),
            held: Some(why_of(place, &read, reason, by)),
            ..Trouble::default()
        });
        let keys = StageKeys(&place.stage);
        let name = discarded.name();
        let put = inner.wait(async {
            inner
                .store
                .put(&format!("{}{name}", keys.discarded()), b"")
                .await?;
            let key = keys.ticket(&name);
            inner
                .store
                .put_over(&key, &discarded.to_bytes(), &read.etag)
                .await
        })?;
        if put == Put::Taken {
            return Err(no_longer(place));
        }
        inner.wait(inner.mark_off(&place.stage, &read.ticket))?;
        Ok(place.path.clone())
    }

    fn sweep(&self, stage: &str, age: Duration) -> Result<usize> {
        let mut removed = 0;
        let look = self.inner.scratch.stage(stage).join("look");
        for dir in [self.inner.scratch.tmp(stage), look] {
            for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
                let changed = entry.metadata().and_then(|about| about.modified());
                let is_old = changed.is_ok_and(|at| at.elapsed().is_ok_and(|since| since > age));
                if is_old {
                    let path = entry.path();
                    RealFs.remove_tree(&path).map_err(at("remove", &path))?;
                    removed += 1;
                }
            }
        }
        Ok(removed)
    }

    fn fold(
        &self,
        _stage: &str,
        _from: u8,
        _age: Duration,
        _signs: &Signs,
    ) -> Result<Option<FoldedShard>> {
        // A store does not mind many objects.
        Ok(None)
    }
}

fn why_of(place: &ParcelPlace, read: &ReadTicket, reason: &str, by: &str) -> Why {
    let before = read
        .ticket
        .trouble
        .as_ref()
        .and_then(|trouble| trouble.held.as_ref());
    let is_held = read.ticket.state == TicketState::Held;
    Why {
        parcel: place.parcel.to_string(),
        stage: place.stage.clone(),
        reason: reason.to_owned(),
        attempts: place.attempts,
        when: now_text(),
        by: by.to_owned(),
        held_for: before.filter(|_| is_held).map(|why| why.reason.clone()),
    }
}

impl JetstreamEngine {
    /// Puts the files of a new parcel into the store, then its ticket, and tells of it.
    async fn show(&self, stage: &str, manifest: ParcelManifest, dir: &Path) -> Result<ParcelId> {
        let inner: &Arc<Inner> = &self.inner;
        let id = manifest.id.clone();
        let directory = StageKeys(stage).tickets();
        let taken = inner
            .store
            .list(&directory, &names_of(&id))
            .next()
            .await
            .transpose()?;
        if taken.is_some() {
            return Err(SpoolError::Waits {
                parcel: id,
                stage: stage.to_owned(),
            });
        }
        let signs = Signs::default();
        let begun = (Instant::now(), SystemTime::now());
        for file in &manifest.files {
            let upload = Upload {
                key: payload_key(OUTSIDE, &manifest, file),
                path: dir.join(&file.name),
                bytes: file.bytes,
            };
            inner
                .store
                .upload(&upload.key, &upload.path, upload.bytes, &signs)
                .await?;
        }
        // Files that nobody shows for long are collected. By both clocks: the machine may have slept.
        let slept = begun.1.elapsed().unwrap_or_default();
        let took = begun.0.elapsed().max(slept);
        if took > SHOWN_WITHIN.min(inner.collect_after / 2) {
            return Err(SpoolError::Refused(format!(
                "to put the files of {id} took {} s, and some may be gone by now: give it again",
                took.as_secs()
            )));
        }
        let ticket = Ticket::new(manifest, OUTSIDE, Vec::new());
        let key = StageKeys(stage).ticket(&ticket.name());
        if let Put::There(etag) = inner.store.put_new(&key, &ticket.to_bytes()).await? {
            inner.tell(stage, Hint::of(&ticket, &etag)).await;
        }
        Ok(id)
    }
}
