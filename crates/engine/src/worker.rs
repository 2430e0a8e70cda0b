//! One worker: takes hints, claims tickets, works in its scratch directory, commits to the store.

mod ahead;

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use async_nats::jetstream::AckKind;
use async_nats::jetstream::message::Acker;
use ecluse_config::Owned;
use ecluse_spool::{
    Adopted, Depths, Engine, FileEntry, Finish, Fs, LeaseNote, Outbox, Parcel, ParcelEntry,
    ParcelId, ParcelSource, Pulse, RealFs, Receipt, Recovered, RestWatch, Result, Scan, Setback,
    Signs, Spool, SpoolError, Trouble, Urgency, Verdict, Waiting, Why, Work, WorkerId,
    WorkerLimits, WorkerNote, WorkerTerms,
};
use futures_util::{StreamExt, TryStreamExt, stream};

use self::ahead::Appetite;
use crate::JetstreamEngine;
use crate::cluster::{Inner, ReadTicket, dice, now_text};
use crate::commit::{Deed, Sent, SentSheet, Upload};
use crate::failpoint::{hit, is_mutant};
use crate::hand_over::{Leftover, Repeat, new_ticket};
use crate::owner::Fence;
use crate::queue::Hint;
use crate::scratch::{WorkerHome, at};
use crate::store::{Downloaded, Listed, Put};
use crate::ticket::{StageKeys, Ticket, TicketState, parcel_of, parse_deferred, payload_key};

/// How many pieces of work are committed side by side.
const COMMITS: usize = 16;
/// How long a message rests that came too early: a copy is in hand, or its worker may live.
const LATER: Duration = Duration::from_secs(2);
/// The fewest hints that are asked for at a time, by a worker that is quick.
const FEWEST: usize = 4;
/// A note is padded, as the directories have it.
const NOTE_BYTES: u64 = 1 << 16;

/// What of a parcel waits to be claimed by this worker.
struct Told {
    name: String,
    /// The ticket as it came with the message, if it did.
    ticket: Option<(Ticket, String)>,
    /// None when it was found in the store.
    message: Option<Arc<Acker>>,
    written_ms: i64,
}

/// A parcel that this worker has claimed.
#[derive(Clone)]
struct InHand {
    ticket: Ticket,
    etag: String,
    message: Option<Arc<Acker>>,
}

/// The messages that are in this worker's hands, by ticket.
type Messages = Arc<Mutex<HashMap<String, Arc<Acker>>>>;

/// One worker of a stage.
pub(crate) struct JetstreamWorker {
    engine: JetstreamEngine,
    inner: Arc<Inner>,
    stage: String,
    next: Vec<String>,
    limits: WorkerLimits,
    version: String,
    id: WorkerId,
    home: WorkerHome,
    signs: Signs,
    told: HashMap<ParcelId, Told>,
    in_hand: HashMap<ParcelId, InHand>,
    /// Those in hand that nobody has asked for yet.
    ahead: HashMap<ParcelId, Parcel>,
    appetite: Appetite,
    /// The tickets of the stage as they were read last, by name: no more than a scan names.
    known: HashMap<String, ReadTicket>,
    messages: Messages,
    held_unasked: Vec<(ParcelId, String)>,
    /// Lease objects of workers that may be dead.
    seen_leases: RestWatch<String, String>,
    /// The same, by when they were written.
    forgotten: RestWatch<String, String>,
    lease: Arc<LeaseObject>,
    /// How many parcels it has heard of: others count these as waiting.
    heard: Arc<AtomicUsize>,
    /// Under which its host owns what the stage works on, where that has one owner.
    fence: Option<Fence>,
}

/// The object that shows other hosts that a worker lives, and what it does.
struct LeaseObject {
    inner: Arc<Inner>,
    key: String,
    home: PathBuf,
    worker: String,
    note: LeaseNote,
    /// When it last beat.
    beaten: Mutex<Instant>,
    /// Whether it was removed for good. Held while it is put: a put that is on its way when the worker ends would bring it back.
    is_over: tokio::sync::Mutex<bool>,
}

/// The content of that object.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct WorkerSheet {
    #[serde(flatten)]
    pub(crate) lease: LeaseNote,
    /// Another number every time.
    pub(crate) beat: u64,
    #[serde(default)]
    pub(crate) status: WorkerNote,
}

impl LeaseObject {
    fn bytes(&self) -> Vec<u8> {
        let status = RealFs.read(&self.home.join(".status"), NOTE_BYTES).ok();
        let status = status.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let sheet = WorkerSheet {
            lease: self.note.clone(),
            beat: dice(),
            status: status.unwrap_or_default(),
        };
        serde_json::to_vec(&sheet).expect("a lease holds only strings and numbers")
    }

    fn beat(&self) -> Result<()> {
        if !self.home.join(".lease").exists() {
            return Err(SpoolError::Fenced {
                worker: self.worker.clone(),
            });
        }
        *self.beaten.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.inner.wait(self.put())
    }

    /// Shows how it stands, unless the worker has ended.
    async fn put(&self) -> Result<()> {
        let is_over = self.is_over.lock().await;
        match *is_over {
            true => Ok(()),
            false => self.inner.store.put(&self.key, &self.bytes()).await,
        }
    }

    /// Removes it for good.
    async fn end(&self) -> Result<()> {
        let mut is_over = self.is_over.lock().await;
        *is_over = true;
        self.inner.store.remove(&self.key).await
    }

    /// Tells how long ago it beat.
    fn silent(&self) -> Duration {
        let beaten = self.beaten.lock().unwrap_or_else(PoisonError::into_inner);
        beaten.elapsed()
    }
}

impl JetstreamWorker {
    pub(crate) fn open(engine: &JetstreamEngine, terms: &WorkerTerms<'_>) -> Result<Self> {
        let inner = Arc::clone(&engine.inner);
        let host = &inner.host;
        let id = WorkerId::new(&host.name, &host.boot, host.pid, dice());
        let note = LeaseNote {
            host: host.name.clone(),
            boot: host.boot.clone(),
            machine: host.machine.clone(),
            pid: host.pid,
            since: now_text(),
            version: terms.version.to_owned(),
        };
        inner.wait(inner.queue.init(terms.stage))?;
        let home = inner.scratch.be_born(terms.stage, &id, &note)?;
        let lease = Arc::new(LeaseObject {
            inner: Arc::clone(&inner),
            key: StageKeys(terms.stage).worker(id.as_str()),
            home: home.path.clone(),
            worker: id.to_string(),
            note,
            beaten: Mutex::new(Instant::now()),
            is_over: tokio::sync::Mutex::new(false),
        });
        // Other hosts know that it lives before it has anything.
        lease.beat()?;
        hit("born");
        let signs = Signs::default();
        let fence = inner.owners.enter(terms.stage, &signs);
        let messages = Messages::default();
        inner.runtime.spawn(keep_messages(
            Arc::downgrade(&messages),
            Arc::downgrade(&lease),
            inner.queue.ack_wait() / 3,
            terms.limits.lease,
        ));
        Ok(Self {
            engine: engine.clone(),
            stage: terms.stage.to_owned(),
            next: terms.next.to_vec(),
            limits: terms.limits.clone(),
            version: terms.version.to_owned(),
            id,
            home,
            signs,
            told: HashMap::new(),
            in_hand: HashMap::new(),
            ahead: HashMap::new(),
            appetite: Appetite::default(),
            known: HashMap::new(),
            messages,
            held_unasked: Vec::new(),
            seen_leases: RestWatch::default(),
            forgotten: RestWatch::default(),
            lease,
            heard: inner.hear(terms.stage),
            fence,
            inner,
        })
    }

    fn lock_messages(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Acker>>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a message of ours an answer and forgets it. One that is lost is given again, which does no harm.
    fn answer(&self, name: &str, message: Option<&Arc<Acker>>, kind: AckKind) {
        self.lock_messages().remove(name);
        if let Some(message) = message {
            let _ = self.inner.wait(message.ack_with(kind));
            hit("acknowledged");
        }
    }

    /// Takes hints until there are as many as are wanted at a time.
    fn take_hints(&mut self) -> Result<()> {
        let fewest = if self.appetite.is_slow() { 1 } else { FEWEST };
        let wanted = self.limits.together.max(fewest);
        if self.told.len() >= wanted {
            return Ok(());
        }
        let inner = Arc::clone(&self.inner);
        let fetched = inner.wait(async {
            inner.tell_owed().await;
            inner
                .queue
                .fetch(&self.stage, wanted - self.told.len())
                .await
        })?;
        for (hint, acker) in fetched {
            let message = Arc::new(acker);
            let Some(id) = parcel_of(&hint.name) else {
                self.answer(&hint.name, Some(&message), AckKind::Ack);
                continue;
            };
            // Of two copies of one name the second comes when the first is gone.
            let is_copy = self
                .told
                .get(&id)
                .is_some_and(|told| told.name != hint.name);
            if is_copy || self.in_hand.contains_key(&id) {
                self.answer(&hint.name, Some(&message), AckKind::Nak(Some(LATER)));
                continue;
            }
            self.lock_messages()
                .insert(hint.name.clone(), Arc::clone(&message));
            let told = Told {
                ticket: hint.ticket.map(|ticket| (ticket, hint.etag)),
                name: hint.name,
                message: Some(message),
                written_ms: 0,
            };
            self.told.insert(id, told);
        }
        Ok(())
    }

    fn count_heard(&self) {
        self.heard.store(self.told.len(), Ordering::SeqCst);
    }

    fn waiting(&self) -> Vec<Waiting> {
        self.count_heard();
        let told = self.told.iter().map(|(id, told)| {
            let ticket = told.ticket.as_ref();
            (id, ticket.map_or(0, |(ticket, _)| ticket.attempts))
        });
        let ahead = self.ahead.keys().map(|id| (id, 0));
        let mut waiting: Vec<Waiting> = told
            .chain(ahead)
            .map(|(id, attempts)| Waiting {
                entry: ParcelEntry::new(id, attempts),
            })
            .collect();
        let seed = self.id.seed();
        waiting.sort_by_cached_key(|waiting| waiting.entry.id.order(seed));
        waiting
    }

    /// Reads all tickets that can be claimed: for stages that take the most urgent first. Those that have not changed since the
    /// last time are known.
    fn ready_tickets(&mut self) -> Result<Vec<(String, ReadTicket)>> {
        let (inner, stage) = (&self.inner, self.stage.as_str());
        let directory = StageKeys(stage).tickets();
        let known = std::mem::take(&mut self.known);
        let names = inner.store.list(&directory, "").take(self.limits.names);
        let tickets = names
            .map_ok(|listed| {
                let same = known.get(&listed.name);
                let same = same.filter(|read| read.etag == listed.etag).cloned();
                async move {
                    let read = match same {
                        Some(read) => Some(read),
                        None => inner.ticket(stage, &listed.name).await?,
                    };
                    Ok(read.map(|read| (listed.name, read)))
                }
            })
            .try_buffer_unordered(COMMITS)
            .try_filter_map(|read| std::future::ready(Ok(read)));
        self.known = inner.wait(tickets.try_collect())?;
        let ready = self.known.iter();
        let ready = ready.filter(|(_, read)| read.ticket.state == TicketState::Ready);
        Ok(ready
            .map(|(name, read)| (name.clone(), read.clone()))
            .collect())
    }

    /// Claims a ticket: as the message has it, or as it is now. `None`: there is nothing to claim.
    fn claim_ticket(&mut self, told: &Told) -> Result<Option<(Ticket, String)>> {
        let inner = Arc::clone(&self.inner);
        let mut seen = told.ticket.clone();
        loop {
            let (ticket, etag) = match seen.take() {
                Some(seen) => seen,
                None => match inner.wait(inner.ticket(&self.stage, &told.name))? {
                    Some(read) => (read.ticket, read.etag),
                    None => return Ok(None),
                },
            };
            match &ticket.state {
                TicketState::Ready => {}
                TicketState::Working { worker } => {
                    if !self.is_dead(worker)? {
                        let message = told.message.as_ref();
                        self.answer(&told.name, message, AckKind::Nak(Some(LATER)));
                        return Ok(None);
                    }
                    if ticket.attempts >= self.limits.attempts {
                        self.hold_dead(&ticket, &etag)?;
                        return Ok(None);
                    }
                }
                TicketState::Deferred { .. }
                | TicketState::Held
                | TicketState::Discarded
                | TicketState::Moving { .. } => {
                    // Nobody is told of these, unless their marks are gone: without them nobody would find them.
                    inner.wait(inner.mark_again(&self.stage, &ticket))?;
                    return Ok(None);
                }
            }
            let worker = self.id.to_string();
            let claimed = ticket.turned(TicketState::Working { worker }, ticket.attempts + 1);
            let key = StageKeys(&self.stage).ticket(&told.name);
            let put = inner.wait(inner.store.put_over(&key, &claimed.to_bytes(), &etag))?;
            if let Put::There(etag) = put {
                hit("claimed");
                return Ok(Some((claimed, etag)));
            }
            // Changed since: as it is now it may be claimed still.
        }
    }

    /// Holds a parcel whose workers have died over it, unless it is done.
    fn hold_dead(&mut self, ticket: &Ticket, etag: &str) -> Result<()> {
        let id = ticket.manifest.id.clone();
        let inner = Arc::clone(&self.inner);
        if let Some(filed) = inner.wait(inner.receipt(&self.stage, &id))?
            && is_of(&filed.receipt, ticket)
        {
            let done = inner.complete(
                &self.stage,
                &filed.receipt,
                std::slice::from_ref(ticket),
                None,
                Repeat::Perhaps,
            );
            return inner.wait(done);
        }
        let reason = format!("its worker died, {} times", ticket.attempts);
        if self.put_held(ticket, etag, &reason)? {
            self.held_unasked.push((id, reason));
        }
        Ok(())
    }

    /// Holds a ticket; `false` when it was changed meanwhile.
    fn put_held(&self, ticket: &Ticket, etag: &str, reason: &str) -> Result<bool> {
        let why = Why {
            parcel: ticket.manifest.id.to_string(),
            stage: self.stage.clone(),
            reason: reason.to_owned(),
            attempts: ticket.attempts,
            when: now_text(),
            by: self.id.to_string(),
            held_for: None,
        };
        self.inner
            .wait(self.inner.hold_ticket(&self.stage, ticket, etag, why))
    }

    /// Tells whether a worker of this stage can be taken for dead.
    fn is_dead(&mut self, worker: &str) -> Result<bool> {
        if worker == self.id.as_str() {
            return Ok(true);
        }
        let inner = &self.inner;
        if let Some(alive) = inner.scratch.is_alive(&self.stage, worker, &inner.host) {
            return Ok(!alive);
        }
        let lease = inner.wait(inner.store.get(&StageKeys(&self.stage).worker(worker)))?;
        // Put before its first claim, removed when it has nothing any more.
        let Some(lease) = lease else { return Ok(true) };
        let now = Instant::now();
        Ok(self
            .seen_leases
            .is_at_rest(worker, lease.etag, self.limits.lease, now))
    }

    /// Looks up what this stage already did with a parcel of this name, and settles what needs no more work.
    fn examine(
        &mut self,
        ticket: Ticket,
        etag: String,
        message: Option<Arc<Acker>>,
    ) -> Result<Option<Parcel>> {
        let inner = Arc::clone(&self.inner);
        let id = ticket.manifest.id.clone();
        let name = ticket.name();
        let mut filed = inner.wait(inner.receipt(&self.stage, &id))?;
        if filed.is_none()
            && ticket.attempts > 1
            && let Some(fence) = &self.fence
        {
            // Somebody had it in hand, and may wake up.
            let sealed = inner.seal(&self.stage, &ticket, fence, self.id.as_str());
            if !inner.wait(sealed)? {
                filed = inner.wait(inner.receipt(&self.stage, &id))?;
                if filed.is_none() {
                    return Err(self.fenced());
                }
            }
        }
        let Some(filed) = filed else {
            return self.take_in_hand(ticket, etag, message).map(Some);
        };
        let receipt = &filed.receipt;
        let input = receipt.input(&id);
        if is_of(receipt, &ticket) {
            tracing::info!(parcel = %id, "finishing a parcel that has its receipt");
            let inputs = std::slice::from_ref(&ticket);
            inner.wait(inner.complete(&self.stage, receipt, inputs, None, Repeat::Perhaps))?;
        } else if input.is_some_and(|input| input.content == ticket.manifest.content()) {
            tracing::warn!(parcel = %id, "dropping a late copy of a finished parcel");
            inner.wait(inner.retire(&self.stage, &ticket))?;
        } else {
            let reason = match input {
                Some(_) => format!(
                    "stage {} finished another parcel of this name on {}, with other content",
                    self.stage, receipt.finished
                ),
                None => format!("a batch of stage {} already has this name", self.stage),
            };
            if self.put_held(&ticket, &etag, &reason)? {
                self.held_unasked.push((id, reason));
            }
        }
        self.answer(&name, message.as_ref(), AckKind::Ack);
        Ok(None)
    }

    /// Makes a place for a parcel that was claimed.
    fn take_in_hand(
        &mut self,
        ticket: Ticket,
        etag: String,
        message: Option<Arc<Acker>>,
    ) -> Result<Parcel> {
        if is_mutant("ack-before-receipt") {
            self.answer(&ticket.name(), message.as_ref(), AckKind::Ack);
        }
        let id = ticket.manifest.id.clone();
        let in_hand = InHand {
            ticket: ticket.clone(),
            etag,
            message,
        };
        self.in_hand.insert(id, in_hand);
        let dir = self.home.input(&ticket.name());
        RealFs.remove_tree(&dir).map_err(at("remove", &dir))?;
        RealFs.mkdir(&dir).map_err(at("make", &dir))?;
        let (manifest, attempt) = (ticket.manifest.clone(), ticket.attempts);
        let source = Arc::new(StoredFiles {
            inner: Arc::clone(&self.inner),
            ticket,
            signs: self.signs.clone(),
            in_hand_of: (self.stage.clone(), self.id.to_string(), self.fence.clone()),
        });
        let now = now_text();
        Ok(Parcel::claimed_elsewhere(
            dir,
            manifest,
            attempt,
            now,
            source,
            &self.signs,
        ))
    }

    fn fenced(&self) -> SpoolError {
        SpoolError::Fenced {
            worker: self.id.to_string(),
        }
    }

    /// Returns a parcel that is in this worker's hands, with its outbox thrown away.
    fn hand_of(&self, id: &ParcelId) -> Result<InHand> {
        let in_hand = self.in_hand.get(id).cloned();
        in_hand.ok_or_else(|| SpoolError::Fenced {
            worker: self.id.to_string(),
        })
    }

    /// Takes a parcel that was settled out of the worker's hands and throws its scratch files away. Not before: until it is
    /// settled, [`Spool::reset`] must find it here.
    fn let_go(&mut self, id: &ParcelId) -> Result<()> {
        let Some(in_hand) = self.in_hand.remove(id) else {
            return Ok(());
        };
        for dir in [
            self.home.input(&in_hand.ticket.name()),
            self.home.out().join(id.as_str()),
        ] {
            RealFs.remove_tree(&dir).map_err(at("remove", &dir))?;
        }
        Ok(())
    }

    /// Puts a parcel back; `false` when somebody took it over.
    fn put_back(&self, in_hand: &InHand, attempts: u32) -> Result<bool> {
        let back = in_hand.ticket.turned(TicketState::Ready, attempts);
        let key = StageKeys(&self.stage).ticket(&back.name());
        let put = self.inner.wait(self.inner.store.put_over(
            &key,
            &back.to_bytes(),
            &in_hand.etag,
        ))?;
        let Put::There(etag) = put else {
            self.answer(&back.name(), in_hand.message.as_ref(), AckKind::Ack);
            return Ok(false);
        };
        hit("put-back");
        match &in_hand.message {
            Some(message) => self.answer(&back.name(), Some(message), AckKind::Nak(None)),
            None => self
                .inner
                .wait(self.inner.tell(&self.stage, Hint::of(&back, &etag))),
        }
        Ok(true)
    }

    /// Puts a parcel where it belongs: on, when it has its receipt, or back, the attempt not counted.
    fn settle(&self, in_hand: &InHand) -> Result<()> {
        let inner = &self.inner;
        let id = &in_hand.ticket.manifest.id;
        if let Some(filed) = inner.wait(inner.receipt(&self.stage, id))?
            && is_of(&filed.receipt, &in_hand.ticket)
        {
            let inputs = std::slice::from_ref(&in_hand.ticket);
            let done = inner.complete(&self.stage, &filed.receipt, inputs, None, Repeat::Perhaps);
            inner.wait(done)?;
            self.answer(
                &in_hand.ticket.name(),
                in_hand.message.as_ref(),
                AckKind::Ack,
            );
            return Ok(());
        }
        self.put_back(in_hand, in_hand.ticket.attempts.saturating_sub(1))
            .map(drop)
    }

    /// Returns what is to be committed of a piece of work.
    pub(crate) fn deed_of(&self, work: &Work, now: &str) -> Result<(Deed, Vec<Ticket>)> {
        let receipt = work.receipt(&self.stage, &self.version, self.id.as_str(), now)?;
        let fenced = || SpoolError::Fenced {
            worker: self.id.to_string(),
        };
        let mut inputs = Vec::with_capacity(work.parcels.len());
        for parcel in &work.parcels {
            let in_hand = self.in_hand.get(parcel.id()).ok_or_else(fenced)?;
            inputs.push(in_hand.ticket.clone());
        }
        let mut uploads = Vec::new();
        if let [ticket] = inputs.as_slice() {
            for (path, file) in work.outbox.attached() {
                uploads.push(Upload {
                    key: payload_key(&self.stage, &ticket.manifest, file),
                    path,
                    bytes: file.bytes,
                });
            }
        }
        let parent = match inputs.as_slice() {
            [one] => Some(one),
            _ => None,
        };
        let mut sent = Vec::new();
        for (dir, manifest, to) in work.outbox.outputs() {
            for file in &manifest.files {
                uploads.push(Upload {
                    key: payload_key(&self.stage, manifest, file),
                    path: dir.join(&file.name),
                    bytes: file.bytes,
                });
            }
            let ticket = new_ticket(&self.stage, manifest, parent, &receipt);
            sent.push(Sent::new(to, ticket));
        }
        let worker = self.id.to_string();
        let names = inputs.iter().map(Ticket::name).collect();
        let sheet = SentSheet {
            inputs: names,
            sent,
        };
        let deed = Deed {
            receipt,
            uploads,
            sheet,
            worker,
            fence: self.fence.clone(),
        };
        Ok((deed, inputs))
    }
}

impl Spool for JetstreamWorker {
    fn scan(&mut self) -> Result<Scan> {
        self.take_hints()?;
        let waiting = self.waiting();
        let inner = &self.inner;
        let depth = inner.wait(inner.queue.depth(&self.stage))?;
        let unseen = depth.messages.saturating_sub(depth.in_hands);
        let total = waiting.len() + usize::try_from(unseen).unwrap_or(usize::MAX);
        Ok(Scan::of(waiting, total))
    }

    fn scan_urgent(&mut self, urgency: &mut Urgency<'_>) -> Result<Scan> {
        // The queue rings the bell; who is most urgent, only the store can tell.
        self.appetite.be_modest();
        self.take_hints()?;
        let tickets = self.ready_tickets()?;
        let mut told: HashMap<ParcelId, Told> = std::mem::take(&mut self.told);
        let mut most = 0;
        let mut ranked = Vec::with_capacity(tickets.len());
        for (name, read) in tickets {
            let id = read.ticket.manifest.id.clone();
            let dir = self.inner.look_at(&self.stage, &read.ticket)?;
            let rank = urgency(&id, &dir);
            most = most.max(rank);
            let known = told.remove(&id).filter(|told| told.name == name);
            self.told.insert(
                id.clone(),
                Told {
                    name,
                    message: known.and_then(|told| told.message),
                    written_ms: read.written_ms,
                    ticket: Some((read.ticket, read.etag)),
                },
            );
            ranked.push((id, rank));
        }
        // Messages of parcels that no longer wait have served.
        for gone in told.values() {
            self.answer(&gone.name, gone.message.as_ref(), AckKind::Ack);
        }
        let total = ranked.len();
        ranked.retain(|(_, rank)| *rank == most);
        let mut waiting = self.waiting();
        waiting.retain(|waiting| ranked.iter().any(|(id, _)| id == &waiting.entry.id));
        Ok(Scan::of(waiting, total))
    }

    fn oldest(&self, waiting: &[Waiting]) -> Result<Option<(ParcelId, Duration)>> {
        let (inner, stage) = (&self.inner, self.stage.as_str());
        let names = waiting.iter().filter_map(|waiting| {
            let told = self.told.get(&waiting.entry.id)?;
            Some((waiting.entry.id.clone(), told.name.clone(), told.written_ms))
        });
        let read = stream::iter(names)
            .map(|(id, name, known)| async move {
                if known > 0 {
                    return Ok(Some((id, known)));
                }
                let read = inner.ticket(stage, &name).await?;
                Ok::<_, SpoolError>(read.map(|read| (id, read.written_ms)))
            })
            .buffer_unordered(COMMITS)
            .try_filter_map(|read| std::future::ready(Ok(read)))
            .try_fold(None, |oldest: Option<(ParcelId, i64)>, one| {
                let is_older = oldest.as_ref().is_none_or(|oldest| one.1 < oldest.1);
                std::future::ready(Ok(if is_older { Some(one) } else { oldest }))
            });
        let oldest = inner.wait(read)?;
        let now = inner.now_ms();
        Ok(oldest.map(|(id, written)| {
            let age = u64::try_from(now - written).unwrap_or(0);
            (id, Duration::from_millis(age))
        }))
    }

    fn adopt(&mut self, _closed: &[OsString]) -> Result<Adopted> {
        // No directory, no dropped files: `ecluse give`.
        Ok(Adopted::default())
    }

    fn undefer(&mut self) -> Result<Option<u64>> {
        let inner = Arc::clone(&self.inner);
        let now = inner.now_seconds();
        inner.wait(inner.undefer(&self.stage, now))
    }

    fn claim(&mut self, waiting: &Waiting) -> Result<Option<Parcel>> {
        self.check_fence()?;
        if self.fence.is_none() && Owned::by_stage(&self.stage).is_some() {
            return Err(self.fenced());
        }
        self.appetite.come_back();
        let id = &waiting.entry.id;
        if !self.ahead.contains_key(id) {
            self.claim_together(id)?;
        }
        if let Some(parcel) = self.ahead.remove(id) {
            self.appetite.give();
            return Ok(Some(parcel));
        }
        let Some(told) = self.told.remove(id) else {
            return Ok(None);
        };
        self.count_heard();
        let claimed = self.claim_ticket(&told)?;
        if claimed
            .as_ref()
            .is_some_and(|(ticket, _)| ticket.attempts > 1)
        {
            self.put_back_ahead()?;
        }
        match claimed {
            Some((ticket, etag)) => {
                let parcel = self.examine(ticket, etag, told.message)?;
                self.appetite.give();
                Ok(parcel)
            }
            None => {
                // Whatever became of it, whoever did it told whom it concerns.
                if self.lock_messages().contains_key(&told.name) {
                    self.answer(&told.name, told.message.as_ref(), AckKind::Ack);
                }
                Ok(None)
            }
        }
    }

    fn give_back_unasked(&mut self) -> Result<()> {
        self.put_back_ahead()
    }

    fn outbox(&self, parcels: &[Parcel]) -> Outbox {
        Outbox::elsewhere(
            &self.home.out(),
            &self.stage,
            parcels,
            &self.next,
            &self.signs,
        )
    }

    fn finish(&mut self, works: &mut Vec<Work>) -> Result<Vec<Finish>> {
        self.check_fence()?;
        self.appetite.come_back();
        let now = now_text();
        let mut deeds = Vec::with_capacity(works.len());
        for work in works.iter() {
            deeds.push(self.deed_of(work, &now)?);
        }
        let (inner, stage, signs) = (Arc::clone(&self.inner), self.stage.clone(), &self.signs);
        let committed = stream::iter(&deeds)
            .map(|(deed, inputs)| {
                let (inner, stage) = (&inner, stage.as_str());
                async move {
                    let finish = inner.commit(stage, deed, signs).await?;
                    signs.tick();
                    if finish == Finish::AlreadyCommitted {
                        return Ok((finish, Leftover::default()));
                    }
                    let (receipt, sent) = (&deed.receipt, Some(deed.sheet.sent.as_slice()));
                    let handed_over = inner.hand_over(stage, receipt, inputs, sent, Repeat::No);
                    Ok((finish, handed_over.await?))
                }
            })
            .buffered(COMMITS)
            .collect::<Vec<Result<(Finish, Leftover)>>>();
        // All are tried: what failed is settled by its receipt, or put back.
        let committed = inner.wait(committed);
        let mut left = Vec::with_capacity(committed.len());
        let finishes = committed.into_iter().map(|done| {
            let (finish, leftover) = done?;
            left.push(leftover);
            Ok(finish)
        });
        let finishes: Vec<Result<Finish>> = finishes.collect();
        inner.wait(inner.clear_up(left))?;
        signs.tick();
        let finishes = finishes.into_iter().collect::<Result<Vec<Finish>>>()?;
        for (work, finish) in works.iter().zip(&finishes) {
            for parcel in &work.parcels {
                let in_hand = self.hand_of(parcel.id())?;
                match finish {
                    Finish::Committed => {
                        self.answer(
                            &in_hand.ticket.name(),
                            in_hand.message.as_ref(),
                            AckKind::Ack,
                        );
                    }
                    Finish::AlreadyCommitted => self.settle_lost(&in_hand)?,
                }
                self.let_go(parcel.id())?;
            }
            let out = self
                .home
                .out()
                .join(ecluse_spool::work_id(&self.stage, &work.parcels).as_str());
            RealFs.remove_tree(&out).map_err(at("remove", &out))?;
        }
        works.clear();
        Ok(finishes)
    }

    fn fail(&mut self, parcel: Parcel, verdict: &Verdict) -> Result<Setback> {
        let in_hand = self.hand_of(parcel.id())?;
        let setback = self.set_aside(&in_hand, verdict)?;
        self.let_go(parcel.id())?;
        Ok(setback)
    }

    fn give_back(&mut self, parcel: Parcel) -> Result<()> {
        let in_hand = self.hand_of(parcel.id())?;
        self.put_back(&in_hand, in_hand.ticket.attempts.saturating_sub(1))?;
        self.let_go(parcel.id())
    }
    fn give_back_crashed(&mut self, parcel: Parcel, reason: &str) -> Result<Option<Setback>> {
        let in_hand = self.hand_of(parcel.id())?;
        let attempts = in_hand.ticket.attempts;
        if attempts >= self.limits.attempts {
            let reason = format!("its work crashed {attempts} times: {reason}");
            self.put_held(&in_hand.ticket, &in_hand.etag, &reason)?;
            self.answer(
                &in_hand.ticket.name(),
                in_hand.message.as_ref(),
                AckKind::Ack,
            );
            self.let_go(parcel.id())?;
            return Ok(Some(Setback::Held));
        }
        self.put_back(&in_hand, attempts)?;
        self.let_go(parcel.id())?;
        Ok(None)
    }

    fn take_held(&mut self) -> Vec<(ParcelId, String)> {
        std::mem::take(&mut self.held_unasked)
    }

    fn recover(&mut self) -> Result<Recovered> {
        let mut recovered = Recovered::default();
        let inner = Arc::clone(&self.inner);
        for dead in inner.scratch.dead(&self.stage)? {
            if dead.id == self.id {
                continue;
            }
            tracing::warn!(dead = %dead.id, "settling a dead worker");
            for name in &dead.tickets {
                recovered.parcels += usize::from(self.settle_dead(&dead.id, name)?);
            }
            inner.wait(
                inner
                    .store
                    .remove(&StageKeys(&self.stage).worker(dead.id.as_str())),
            )?;
            RealFs
                .remove_tree(&dead.path)
                .map_err(at("remove", &dead.path))?;
            recovered.workers += 1;
        }
        self.forget_the_dead()?;
        Ok(recovered)
    }

    fn reset(&mut self) -> Result<usize> {
        self.check_fence()?;
        let ids: Vec<ParcelId> = self.in_hand.keys().cloned().collect();
        // What nobody had asked for is no one's loss.
        let count = ids.len() - self.ahead.len();
        self.ahead.clear();
        for id in ids {
            if let Some(in_hand) = self.in_hand.get(&id) {
                self.settle(in_hand)?;
            }
            self.let_go(&id)?;
        }
        let told = std::mem::take(&mut self.told);
        self.count_heard();
        for told in told.into_values() {
            self.answer(&told.name, told.message.as_ref(), AckKind::Nak(None));
        }
        // Of a claim that failed only the message is left. Kept in hand, nobody would be told of its parcel again.
        let left = std::mem::take(&mut *self.lock_messages());
        for (name, message) in left {
            self.answer(&name, Some(&message), AckKind::Nak(None));
        }
        let out = self.home.out();
        RealFs.remove_tree(&out).map_err(at("remove", &out))?;
        RealFs.mkdir(&out).map_err(at("make", &out))?;
        Ok(count)
    }

    fn check_fence(&self) -> Result<()> {
        let is_owner = self
            .fence
            .as_ref()
            .is_none_or(|fence| self.inner.owners.holds(fence));
        if is_owner && self.home.path.join(".lease").exists() {
            return Ok(());
        }
        Err(self.fenced())
    }

    fn pulse(&self) -> Pulse {
        let lease = Arc::clone(&self.lease);
        Pulse::new(move || lease.beat())
    }

    fn signs(&self) -> &Signs {
        &self.signs
    }

    fn name(&self) -> &WorkerId {
        &self.id
    }

    fn note(&self, note: &WorkerNote) {
        let bytes = serde_json::to_vec(note).unwrap_or_default();
        let _ = std::fs::write(self.home.path.join(".status"), bytes);
        // Best effort, and nobody waits for it: the heartbeat tells it again.
        let lease = Arc::clone(&self.lease);
        self.inner.runtime.spawn(async move {
            let _ = lease.put().await;
        });
    }

    fn set_limits(&mut self, limits: WorkerLimits) {
        self.limits = limits;
    }

    fn set_next(&mut self, next: &[String]) {
        self.next = next.to_vec();
    }

    fn depths(&self) -> Result<Depths> {
        self.engine.depths(&self.stage)
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.reset()?;
        self.lock_messages().clear();
        let inner = &self.inner;
        inner.wait(self.lease.end())?;
        inner.scratch.forget(&self.stage, &self.id)
    }
}

impl JetstreamWorker {
    /// Removes the lease objects of workers that died with their host: nobody else would. One that lives puts its own again.
    fn forget_the_dead(&mut self) -> Result<()> {
        let inner = Arc::clone(&self.inner);
        let directory = StageKeys(&self.stage).workers();
        let listed: Vec<Listed> = inner.wait(inner.store.list(&directory, "").try_collect())?;
        let (silence, now) = (self.limits.lease * 2, Instant::now());
        for listed in listed {
            let look = listed.written_ms.to_string();
            let is_other = listed.name != self.id.as_str();
            if is_other
                && self
                    .forgotten
                    .is_at_rest(listed.name.as_str(), look, silence, now)
            {
                inner.wait(inner.store.remove(&format!("{directory}{}", listed.name)))?;
            }
        }
        self.forgotten.end_round();
        Ok(())
    }

    /// Defers or holds a parcel in hand.
    fn set_aside(&self, in_hand: &InHand, verdict: &Verdict) -> Result<Setback> {
        let fenced = || SpoolError::Fenced {
            worker: self.id.to_string(),
        };
        let (reason, pause) = match verdict {
            Verdict::Hold { reason } => {
                if !self.put_held(&in_hand.ticket, &in_hand.etag, reason)? {
                    return Err(fenced());
                }
                self.answer(
                    &in_hand.ticket.name(),
                    in_hand.message.as_ref(),
                    AckKind::Ack,
                );
                return Ok(Setback::Held);
            }
            Verdict::Defer { reason } => (reason, None),
            Verdict::Wait { reason, wait } => (reason, Some(*wait)),
        };
        let now = self.inner.now_seconds();
        let mut trouble = in_hand.ticket.trouble.clone().unwrap_or_default();
        if trouble.stage != self.stage || trouble.held.is_some() || pause.is_some() {
            // Somebody let it go on, or answered: what was before is forgotten.
            trouble = Trouble::default();
        }
        if trouble.deferrals == 0 {
            trouble.since = now;
        }
        trouble.deferrals += 1;
        trouble.reason.clone_from(reason);
        trouble.stage.clone_from(&self.stage);
        if pause.is_none() && now.saturating_sub(trouble.since) >= self.limits.retry_limit.as_secs()
        {
            let reason = format!("deferred {} times: {reason}", trouble.deferrals);
            if !self.put_held(&in_hand.ticket, &in_hand.etag, &reason)? {
                return Err(fenced());
            }
            self.answer(
                &in_hand.ticket.name(),
                in_hand.message.as_ref(),
                AckKind::Ack,
            );
            return Ok(Setback::Held);
        }
        let wait = match pause {
            Some(wait) => wait.min(self.limits.retry_longest),
            None => self.limits.wait_after(trouble.deferrals, dice()),
        };
        let due = now + wait.as_secs().max(1);
        let attempts = in_hand.ticket.attempts.saturating_sub(1);
        let mut deferred = in_hand
            .ticket
            .turned(TicketState::Deferred { due }, attempts);
        deferred.trouble = Some(trouble);
        let inner = &self.inner;
        let put = inner.wait(inner.defer_ticket(&self.stage, &deferred, &in_hand.etag, due))?;
        self.answer(&deferred.name(), in_hand.message.as_ref(), AckKind::Ack);
        if !put {
            return Err(fenced());
        }
        Ok(Setback::DeferredUntil(due))
    }

    /// Settles a parcel whose work another worker committed first, or whose batch lost.
    fn settle_lost(&mut self, in_hand: &InHand) -> Result<()> {
        let inner = Arc::clone(&self.inner);
        let (ticket, id) = (&in_hand.ticket, &in_hand.ticket.manifest.id);
        match inner.wait(inner.receipt(&self.stage, id))? {
            None => return self.settle(in_hand),
            Some(filed) if is_of(&filed.receipt, ticket) => return self.settle(in_hand),
            Some(filed) => {
                let input = filed.receipt.input(id);
                if input.is_some_and(|input| input.content == ticket.manifest.content()) {
                    inner.wait(inner.retire(&self.stage, ticket))?;
                } else {
                    let reason = format!(
                        "stage {} finished another parcel of this name on {}, with other content",
                        self.stage, filed.receipt.finished
                    );
                    if self.put_held(ticket, &in_hand.etag, &reason)? {
                        self.held_unasked.push((id.clone(), reason));
                    }
                }
            }
        }
        self.answer(&ticket.name(), in_hand.message.as_ref(), AckKind::Ack);
        Ok(())
    }

    /// Settles a ticket that is in the hands of a worker who can be taken for dead; `false` when none is.
    pub(crate) fn settle_unless_alive(&mut self, name: &str) -> Result<bool> {
        let inner = Arc::clone(&self.inner);
        let Some(read) = inner.wait(inner.ticket(&self.stage, name))? else {
            return Ok(false);
        };
        let TicketState::Working { worker } = &read.ticket.state else {
            return Ok(false);
        };
        let Some(id) = WorkerId::parse(std::ffi::OsStr::new(worker)) else {
            return Ok(false);
        };
        if !self.is_dead(worker)? {
            return Ok(false);
        }
        self.settle_dead(&id, name)
    }

    /// Settles a ticket that a dead worker of this host had in hand.
    fn settle_dead(&mut self, dead: &WorkerId, name: &str) -> Result<bool> {
        let inner = Arc::clone(&self.inner);
        let Some(read) = inner.wait(inner.ticket(&self.stage, name))? else {
            return Ok(false);
        };
        let is_his = matches!(&read.ticket.state, TicketState::Working { worker } if worker == dead.as_str());
        if !is_his {
            return Ok(false);
        }
        let id = &read.ticket.manifest.id;
        if let Some(filed) = inner.wait(inner.receipt(&self.stage, id))?
            && is_of(&filed.receipt, &read.ticket)
        {
            let inputs = std::slice::from_ref(&read.ticket);
            inner.wait(inner.complete(
                &self.stage,
                &filed.receipt,
                inputs,
                None,
                Repeat::Perhaps,
            ))?;
            return Ok(true);
        }
        if read.ticket.attempts >= self.limits.attempts {
            self.hold_dead(&read.ticket, &read.etag)?;
            return Ok(true);
        }
        let back = read.ticket.turned(TicketState::Ready, read.ticket.attempts);
        let key = StageKeys(&self.stage).ticket(name);
        let put = inner.wait(inner.store.put_over(&key, &back.to_bytes(), &read.etag))?;
        if let Put::There(etag) = put {
            hit("settled");
            inner.wait(inner.tell(&self.stage, Hint::of(&back, &etag)));
        }
        Ok(true)
    }
}

/// Tells whether a receipt is of this very parcel.
pub(crate) fn is_of(receipt: &Receipt, ticket: &Ticket) -> bool {
    let input = receipt.input(&ticket.manifest.id);
    input.is_some_and(|input| input.born == ticket.manifest.born)
}

/// Shows the servers that what is in hand is in living hands: those of a worker that has shown a sign of life within its lease.
async fn keep_messages(
    messages: Weak<Mutex<HashMap<String, Arc<Acker>>>>,
    lease: Weak<LeaseObject>,
    every: Duration,
    silence: Duration,
) {
    loop {
        tokio::time::sleep(every).await;
        let (Some(messages), Some(lease)) = (messages.upgrade(), lease.upgrade()) else {
            return;
        };
        if lease.silent() > silence {
            continue;
        }
        let in_hand: Vec<Arc<Acker>> = {
            let messages = messages.lock().unwrap_or_else(PoisonError::into_inner);
            messages.values().cloned().collect()
        };
        drop((messages, lease));
        for message in in_hand {
            let _ = message.ack_with(AckKind::Progress).await;
        }
    }
}

/// The files and receipts of a parcel in hand.
struct StoredFiles {
    inner: Arc<Inner>,
    ticket: Ticket,
    signs: Signs,
    /// The stage, the worker, and the fence it works under.
    in_hand_of: (String, String, Option<Fence>),
}

impl ParcelSource for StoredFiles {
    fn fetch(&self, file: &FileEntry, path: &Path) -> Result<()> {
        let inner = &self.inner;
        inner.scratch.alone(path, || {
            if path.exists() {
                return Ok(());
            }
            let key = self.ticket.payload_key(file);
            let damaged = |reason: String| SpoolError::Damaged {
                parcel: self.ticket.manifest.id.clone(),
                reason,
            };
            let manifest = &self.ticket.manifest;
            let what = format!("{}/{}", manifest.id, file.name);
            let together = manifest.files.iter().map(|file| file.bytes).sum();
            let make = |part: &Path| {
                let scratch = &inner.scratch;
                scratch.make_room(part, file.bytes, &what, together)
            };
            match inner.wait(inner.store.download(&key, file, path, make, &self.signs))? {
                Downloaded::There => Ok(()),
                Downloaded::Missing => Err(damaged(format!("there is no {key}"))),
                Downloaded::Other { sha256 } => Err(damaged(format!(
                    "{} has the digest {sha256}, not {}",
                    file.name, file.sha256
                ))),
            }
        })
    }

    fn must_be_in_hand(&self) -> Result<()> {
        let (stage, worker, fence) = &self.in_hand_of;
        let inner = &self.inner;
        inner.wait(async {
            if let Some(fence) = fence {
                inner.must_own(fence, worker).await?;
            }
            let read = inner.ticket(stage, &self.ticket.name()).await?;
            let is_his = |read: ReadTicket| matches!(read.ticket.state, TicketState::Working { worker: his } if &his == worker);
            match read.is_some_and(is_his) {
                true => Ok(()),
                false => Err(SpoolError::Fenced {
                    worker: worker.clone(),
                }),
            }
        })
    }

    fn receipt_of(&self, stage: &str) -> Result<Option<Receipt>> {
        let pages = self.ticket.history.iter().rev();
        let mut pages = pages.filter(|page| page.stage.split('@').next() == Some(stage));
        let Some(page) = pages.next() else {
            return Ok(None);
        };
        let filed = self
            .inner
            .wait(self.inner.receipt(&page.stage, &page.work))?;
        // As the directories have it: the receipts of work that it was, or went into.
        let id = &self.ticket.manifest.id;
        let receipt = filed.map(|filed| filed.receipt);
        Ok(receipt.filter(|receipt| &receipt.work == id || receipt.input(id).is_some()))
    }
}

/// Reads when a deferred parcel is due from its mark.
pub(crate) fn due_of(mark: &str) -> Option<(u64, String)> {
    parse_deferred(mark).map(|(due, name)| (due, name.to_owned()))
}
