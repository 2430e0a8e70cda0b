//! Who owns what only one host may write: the manifest, the register, the index.
//!
//! `owners/<thing>`, such as `owners/manifest` or `owners/jobs@beta`, is put where there is none, put again over itself as heartbeat, and taken over by whoever has seen it
//! unchanged for the lease time of his own monotonic clock: over the one that was seen, so of several one wins. Each
//! take-over counts the *fence* up. A worker works under the fence that its host had when it was opened, and three things keep
//! one whose host has lost it from doing harm:
//!
//! * Before a receipt is put, the owner is read: another fence, and nothing is committed. What was written before that was
//!   written while the host owned it.
//! * Whoever claims a parcel that somebody else had in hand first puts a *seal* with its fence where the receipt would be. Only work
//!   of this fence or a later one is committed over it; a put that was on its way since before finds its place taken.
//! * Its work in hand is asked to stop as soon as the loss is known.
//!
//! The thing itself must be there for whoever takes over. A mark lies beside it, and its text in the owner's object: a host that
//! has another mark, or none, does not own the thing, however long nobody else does.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use ecluse_config::Owned;
use ecluse_spool::{Fs, NotOwned, OtherOwner, RealFs, Result, Signs, SpoolError};
use serde::{Deserialize, Serialize};

use crate::cluster::{FiledObject, GivenUpBatch, Inner, dice, now_text};
use crate::commit::GivingUp;
use crate::scratch::at;
use crate::store::Put;
use crate::ticket::{StageKeys, Ticket};

/// A lease is renewed so many times before it would end.
const BEATS: u32 = 4;
/// The shortest time between two looks.
const LEAST: Duration = Duration::from_millis(100);

/// What a worker commits under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fence {
    pub(crate) thing: Owned,
    pub(crate) number: u64,
}

/// What this process knows of the things that hosts own.
#[derive(Default)]
pub(crate) struct Owners {
    holdings: Mutex<BTreeMap<Owned, Arc<Holding>>>,
}

/// One of them.
struct Holding {
    thing: Owned,
    /// The fence under which this host owns it; 0: it does not.
    fence: AtomicU64,
    /// Whether somebody renews it.
    is_kept: AtomicBool,
    state: tokio::sync::Mutex<HoldingState>,
    /// What is asked to stop when it is lost.
    at_work: Mutex<Vec<(u64, Signs)>>,
    /// Shared by the processes of this host: the last of them gives the thing up.
    lock: Mutex<Option<File>>,
}

struct HoldingState {
    lease: Duration,
    place: PathBuf,
    /// The object as it was last seen, and since when it looks so.
    seen: Option<(String, Instant)>,
    /// When this host was last known to be the owner.
    confirmed: Instant,
}

/// `owners/<thing>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct OwnerSheet {
    schema: u32,
    thing: String,
    /// Counts the owners.
    fence: u64,
    /// What it is called, for messages.
    host: String,
    /// Which processes it is of.
    identity: String,
    /// What the mark beside the thing says.
    state: String,
    /// How long it may look the same, in milliseconds.
    lease: u64,
    since: String,
    /// Another number every time.
    beat: u64,
    /// Nobody owns it any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    free: bool,
}

impl OwnerSheet {
    /// Tells whether it is of this host, running since the same boot: two machines copied from one image have one name.
    fn is_of(&self, identity: &str) -> bool {
        !self.free && self.identity == identity
    }

    fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("an owner holds only strings and numbers")
    }
}

fn key(thing: &Owned) -> String {
    format!("owners/{thing}")
}

impl Owners {
    fn holding(&self, thing: &Owned) -> Arc<Holding> {
        let mut holdings = self.holdings.lock().unwrap_or_else(PoisonError::into_inner);
        let holding = holdings.entry(thing.clone()).or_insert_with(|| {
            Arc::new(Holding {
                thing: thing.clone(),
                fence: AtomicU64::new(0),
                is_kept: AtomicBool::new(false),
                state: tokio::sync::Mutex::new(HoldingState {
                    lease: Duration::ZERO,
                    place: PathBuf::new(),
                    seen: None,
                    confirmed: Instant::now(),
                }),
                at_work: Mutex::default(),
                lock: Mutex::default(),
            })
        });
        Arc::clone(holding)
    }

    /// Returns the fence that a worker born now works under, and remembers whom to ask to stop.
    pub(crate) fn enter(&self, stage: &str, signs: &Signs) -> Option<Fence> {
        let thing = Owned::by_stage(stage)?;
        let holding = self.holding(&thing);
        let number = holding.fence.load(Ordering::SeqCst);
        if number == 0 {
            return None;
        }
        let mut at_work = holding
            .at_work
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        at_work.retain(|(fence, _)| *fence == number);
        at_work.push((number, signs.clone()));
        Some(Fence { thing, number })
    }

    /// Tells whether this host has a thing under this fence, as far as it knows.
    pub(crate) fn holds(&self, fence: &Fence) -> bool {
        self.holding(&fence.thing).fence.load(Ordering::SeqCst) == fence.number
    }
}

impl Holding {
    /// Takes note of the fence under which this host owns the thing now, if it does.
    fn set(&self, fence: u64) {
        let before = self.fence.swap(fence, Ordering::SeqCst);
        if before == fence {
            return;
        }
        let thing = &self.thing;
        if fence != 0 {
            tracing::info!(%thing, fence, "this host owns it");
        }
        if before == 0 {
            return;
        }
        tracing::warn!(
            %thing,
            fence = before,
            "another host may own it: work in hand is given up"
        );
        let mut at_work = self.at_work.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, signs) in at_work.drain(..) {
            signs.ask_to_stop();
        }
    }

    /// Lets the other processes of this host see that this one counts on the thing.
    fn share(&self, path: &Path) -> Result<()> {
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if lock.is_some() {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(at("make", parent))?;
        }
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path);
        let file = file.map_err(at("open", path))?;
        file.lock_shared().map_err(at("lock", path))?;
        *lock = Some(file);
        Ok(())
    }
}

impl Inner {
    /// Makes this host the owner of what a stage needs, or says who is.
    pub(crate) fn own(
        self: &Arc<Self>,
        stage: &str,
        lease: Duration,
        place: &Path,
    ) -> Result<Option<OtherOwner>> {
        let Some(thing) = Owned::by_stage(stage) else {
            return Ok(None);
        };
        let holding = self.owners.holding(&thing);
        holding.share(&self.owner_lock(&thing))?;
        let other = self.wait(async {
            let mut state = holding.state.lock().await;
            state.lease = state.lease.max(lease);
            place.clone_into(&mut state.place);
            let is_owner = holding.fence.load(Ordering::SeqCst) != 0;
            if is_owner && state.confirmed.elapsed() < state.lease / BEATS {
                return Ok(None);
            }
            self.look_after(&holding, &mut state).await
        })?;
        if other.is_none() && !holding.is_kept.swap(true, Ordering::SeqCst) {
            self.runtime.spawn(keep(Arc::downgrade(self), holding));
        }
        Ok(other)
    }

    fn owner_lock(&self, thing: &Owned) -> PathBuf {
        let name = format!("{thing}-{}", self.identity);
        self.scratch.root.join(".owners").join(name)
    }

    /// Renews what this host owns, takes over what nobody does, or says who owns it.
    async fn look_after(
        &self,
        holding: &Holding,
        state: &mut HoldingState,
    ) -> Result<Option<OtherOwner>> {
        let key = key(&holding.thing);
        loop {
            let Some(read) = self.store.get(&key).await? else {
                let id = first_mark(&state.place, &holding.thing)?;
                let fence = holding.fence.load(Ordering::SeqCst) + 1;
                let sheet = self.sheet(&holding.thing, fence, id, state.lease);
                if let Put::There(_) = self.store.put_new(&key, &sheet.to_bytes()).await? {
                    self.confirm(holding, state, fence);
                    return Ok(None);
                }
                continue;
            };
            let Ok(sheet) = serde_json::from_slice::<OwnerSheet>(&read.bytes) else {
                return Err(SpoolError::Refused(format!(
                    "{key} in the store makes no sense"
                )));
            };
            let next = if sheet.is_of(&self.identity) {
                write_mark(&state.place, &holding.thing, &sheet.state)?;
                let lease = state.lease.max(Duration::from_millis(sheet.lease));
                OwnerSheet {
                    since: sheet.since.clone(),
                    ..self.sheet(&holding.thing, sheet.fence, sheet.state.clone(), lease)
                }
            } else {
                holding.set(0);
                if let Some(why) = not_owned(state, &holding.thing, &sheet, &read.etag) {
                    let thing = holding.thing.to_string();
                    return Ok(Some(OtherOwner { thing, why }));
                }
                self.sheet(
                    &holding.thing,
                    sheet.fence + 1,
                    sheet.state.clone(),
                    state.lease,
                )
            };
            let put = self
                .store
                .put_over(&key, &next.to_bytes(), &read.etag)
                .await?;
            if let Put::There(_) = put {
                if !sheet.is_of(&self.identity) {
                    let (thing, from, fence) = (&holding.thing, &sheet.host, next.fence);
                    tracing::warn!(%thing, from, fence, "taken over");
                }
                self.confirm(holding, state, next.fence);
                return Ok(None);
            }
            // Another was first: a process of this host, or another host.
        }
    }

    fn confirm(&self, holding: &Holding, state: &mut HoldingState, fence: u64) {
        state.confirmed = Instant::now();
        state.seen = None;
        holding.set(fence);
    }

    fn sheet(&self, thing: &Owned, fence: u64, state: String, lease: Duration) -> OwnerSheet {
        OwnerSheet {
            schema: 1,
            thing: thing.to_string(),
            fence,
            host: self.host.name.clone(),
            identity: self.identity.clone(),
            state,
            lease: u64::try_from(lease.as_millis()).unwrap_or(u64::MAX),
            since: now_text(),
            beat: dice(),
            free: false,
        }
    }

    /// Fails unless this host owns a thing under this fence now.
    pub(crate) async fn must_own(&self, fence: &Fence, worker: &str) -> Result<()> {
        let read = self.store.get(&key(&fence.thing)).await?;
        let sheet = read.and_then(|read| serde_json::from_slice::<OwnerSheet>(&read.bytes).ok());
        if sheet.is_some_and(|sheet| sheet.is_of(&self.identity) && sheet.fence == fence.number) {
            return Ok(());
        }
        let holding = self.owners.holding(&fence.thing);
        let known = holding.fence.load(Ordering::SeqCst);
        if known == fence.number {
            holding.set(0);
        }
        Err(SpoolError::Fenced {
            worker: worker.to_owned(),
        })
    }

    /// Sees to it that whoever had a parcel in hand under an earlier fence cannot commit it any more. `false`: it is committed,
    /// or sealed under a later fence.
    pub(crate) async fn seal(
        &self,
        stage: &str,
        ticket: &Ticket,
        fence: &Fence,
        by: &str,
    ) -> Result<bool> {
        let id = &ticket.manifest.id;
        let key = StageKeys(stage).receipt(id);
        loop {
            let (etag, times) = match self.filed(stage, id).await? {
                FiledObject::Nothing => (None, 1),
                FiledObject::GivenUp {
                    etag,
                    times,
                    fence: sealed,
                } => {
                    if sealed > fence.number {
                        return Ok(false);
                    }
                    (Some(etag), times + 1)
                }
                FiledObject::Receipt { filed, .. } if &filed.receipt.work == id => {
                    return Ok(false);
                }
                // Filed for a batch, which is not to be committed any more either.
                FiledObject::Receipt { filed, etag } => {
                    match self.give_up(stage, &filed.receipt.work, by).await? {
                        GivingUp::Committed => return Ok(false),
                        GivingUp::Done { .. } => (Some(etag), 1),
                    }
                }
            };
            let seal = GivenUpBatch {
                times,
                by: by.to_owned(),
                fence: fence.number,
            };
            let bytes = serde_json::to_vec(&seal).expect("it holds numbers and a name");
            let put = match etag {
                None => self.store.put_new(&key, &bytes).await?,
                Some(etag) => self.store.put_over(&key, &bytes, &etag).await?,
            };
            if let Put::There(_) = put {
                return Ok(true);
            }
        }
    }

    /// Gives up what this host owns, unless other processes of it count on it.
    pub(crate) fn disown(&self) {
        let holdings: Vec<Arc<Holding>> = {
            let holdings = self.owners.holdings.lock();
            let holdings = holdings.unwrap_or_else(PoisonError::into_inner);
            holdings.values().cloned().collect()
        };
        for holding in holdings {
            let lock = holding
                .lock
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            let fence = holding.fence.swap(0, Ordering::SeqCst);
            // Shared becomes exclusive when nobody else shares it.
            let Some(file) = lock.filter(|_| fence != 0) else {
                continue;
            };
            if file
                .unlock()
                .and_then(|()| file.try_lock().map_err(Into::into))
                .is_err()
            {
                continue;
            }
            let thing = &holding.thing;
            match self.wait(self.free(thing, fence)) {
                Ok(()) => tracing::info!(%thing, fence, "given up"),
                Err(error) => tracing::warn!(%error, %thing, "left to its lease"),
            }
        }
    }

    async fn free(&self, thing: &Owned, fence: u64) -> Result<()> {
        let Some(read) = self.store.get(&key(thing)).await? else {
            return Ok(());
        };
        let sheet = serde_json::from_slice::<OwnerSheet>(&read.bytes).ok();
        let ours = sheet.filter(|sheet| sheet.is_of(&self.identity) && sheet.fence == fence);
        let Some(mut sheet) = ours else { return Ok(()) };
        sheet.free = true;
        sheet.beat = dice();
        let (key, bytes) = (key(thing), sheet.to_bytes());
        self.store
            .put_over(&key, &bytes, &read.etag)
            .await
            .map(drop)
    }
}

/// Says why this host may not take over what another had, if it may not.
fn not_owned(
    state: &mut HoldingState,
    thing: &Owned,
    sheet: &OwnerSheet,
    etag: &str,
) -> Option<NotOwned> {
    let silence = state.lease.max(Duration::from_millis(sheet.lease));
    let since = match &state.seen {
        Some((seen, since)) if seen == etag => *since,
        _ => {
            let now = Instant::now();
            state.seen = Some((etag.to_owned(), now));
            now
        }
    };
    let host = sheet.host.clone();
    if !sheet.free && since.elapsed() < silence {
        return Some(NotOwned::By { host });
    }
    if read_mark(&state.place, thing).as_deref() == Some(sheet.state.as_str()) {
        return None;
    }
    Some(NotOwned::Elsewhere {
        host,
        mark: mark_path(&state.place, thing),
        state: sheet.state.clone(),
    })
}

fn mark_path(place: &Path, thing: &Owned) -> PathBuf {
    place.join(format!(".owner-{thing}"))
}

fn read_mark(place: &Path, thing: &Owned) -> Option<String> {
    let text = std::fs::read_to_string(mark_path(place, thing)).ok()?;
    let word = text.trim();
    let is_word = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_word.then(|| word.to_owned())
}

/// Returns what the mark of a thing says, and makes one where there is none. Of several hosts that do so at once on one file
/// system the first wins: were it written over by one that then does not own the thing, nobody could take it over.
fn first_mark(place: &Path, thing: &Owned) -> Result<String> {
    if let Some(mark) = read_mark(place, thing) {
        return Ok(mark);
    }
    std::fs::create_dir_all(place).map_err(at("make", place))?;
    let path = mark_path(place, thing);
    let mark = format!("{:016x}", dice());
    let new = place.join(format!(".owner-{thing}-{mark}"));
    RealFs
        .write_new(&new, format!("{mark}\n").as_bytes())
        .map_err(at("write", &new))?;
    let linked = RealFs.link(&new, &path);
    RealFs.unlink(&new).map_err(at("remove", &new))?;
    match linked {
        Ok(()) => Ok(mark),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            match read_mark(place, thing) {
                Some(mark) => Ok(mark),
                // It says nothing that can be read: it is as good as none.
                None => write_mark(place, thing, &mark).map(|()| mark),
            }
        }
        Err(error) => Err(at("make", &path)(error)),
    }
}

fn write_mark(place: &Path, thing: &Owned, state: &str) -> Result<()> {
    if read_mark(place, thing).as_deref() == Some(state) {
        return Ok(());
    }
    std::fs::create_dir_all(place).map_err(at("make", place))?;
    let path = mark_path(place, thing);
    std::fs::write(&path, format!("{state}\n")).map_err(at("write", &path))
}

/// Renews a lease until it is lost or given up. Work may take hours: whoever does it does not come by.
async fn keep(inner: Weak<Inner>, holding: Arc<Holding>) {
    loop {
        let lease = holding.state.lock().await.lease;
        tokio::time::sleep((lease / BEATS).max(LEAST)).await;
        let Some(inner) = inner.upgrade() else { return };
        let mut state = holding.state.lock().await;
        if holding.fence.load(Ordering::SeqCst) == 0 {
            break;
        }
        if state.confirmed.elapsed() < state.lease / BEATS {
            continue;
        }
        match inner.look_after(&holding, &mut state).await {
            Ok(None) => {}
            Ok(Some(_)) => break,
            Err(error) => {
                tracing::warn!(%error, thing = %holding.thing, "a lease is not renewed");
            }
        }
    }
    holding.is_kept.store(false, Ordering::SeqCst);
}

#[cfg(test)]
mod tests;
