//! The engine: its servers, this machine's scratch directory, and the clock that all hosts share.

use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant, SystemTime};

use ecluse_config::EngineSettings;
use ecluse_spool::{Host, ParcelId, Result, find_in_sheet, time_text};
use futures_util::future;
use tokio::runtime::{Builder, Runtime};

use crate::OpenError;
use crate::owner::Owners;
use crate::queue::{Hint, Queue};
use crate::scratch::Scratch;
use crate::store::Store;
use crate::ticket::{StageKeys, Ticket};

/// How long a reading of the store's clock is carried on with the monotonic one.
const READ_EVERY: Duration = Duration::from_secs(30);
/// Hints that could not be told are remembered; what is more is found by reconcile.
const OWED: usize = 10_000;

/// The engine on NATS JetStream and an S3 store.
#[derive(Clone)]
pub struct JetstreamEngine {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) runtime: Runtime,
    pub(crate) store: Store,
    pub(crate) queue: Queue,
    pub(crate) scratch: Scratch,
    /// How old files are that are collected.
    pub(crate) collect_after: Duration,
    pub(crate) host: Host,
    clock: Mutex<Option<ClockReading>>,
    owed: Mutex<Vec<(String, Hint)>>,
    /// How many parcels each worker of this process has heard of and not claimed, by stage.
    heard: Mutex<Vec<(String, Weak<AtomicUsize>)>>,
    /// Which processes own things together: those of one running kernel, unless they were given another name. Containers
    /// have names of their own, and share its locks and files.
    pub(crate) identity: String,
    /// What this host owns, as far as this process knows.
    pub(crate) owners: Owners,
}

#[derive(Debug, Clone, Copy)]
struct ClockReading {
    store_ms: i64,
    wall_ms: i64,
    at: Instant,
}

/// A ticket as it was read.
#[derive(Debug, Clone)]
pub(crate) struct ReadTicket {
    pub(crate) ticket: Ticket,
    pub(crate) etag: String,
    pub(crate) written_ms: i64,
}

impl JetstreamEngine {
    /// Opens the engine. Relative paths begin at `root`; `host` is the name this host goes by, when it is not its own.
    ///
    /// # Errors
    /// A file of the settings that cannot be read, servers or a store that refuse us, or servers that cannot be reached.
    pub fn open(
        settings: &EngineSettings,
        root: &Path,
        host: Option<&str>,
    ) -> std::result::Result<Self, OpenError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("engine")
            .enable_all()
            .build()
            .map_err(|error| OpenError::new("kind", format!("no threads: {error}")))?;
        let store = Store::open(settings, root)?;
        // Who is refused ends here; a store that is away is waited for by who needs it.
        let (queue, refusal) =
            runtime.block_on(future::join(Queue::open(settings, root), store.refusal()));
        if let Some(refusal) = refusal.filter(|refusal| !refusal.is_away) {
            return Err(refusal);
        }
        let queue = queue?;
        let mut this = Host::this();
        let identity = match host {
            Some(host) => format!("{host}@{}", this.boot),
            None => this.boot.clone(),
        };
        if let Some(host) = host {
            this.name = host.to_owned();
        }
        let inner = Inner {
            runtime,
            store,
            queue,
            scratch: Scratch::new(root.join(&settings.scratch), settings.scratch_limit.0),
            collect_after: settings.collect_after.0,
            host: this,
            clock: Mutex::default(),
            owed: Mutex::default(),
            heard: Mutex::default(),
            identity,
            owners: Owners::default(),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }
}

/// Lets a thread that waits look again.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits on this thread, which is inside of another runtime. What that one allows a task at a time does not count here: nobody
/// would ever allow more.
fn poll_until_ready<Value>(future: impl Future<Output = Value>) -> Value {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(tokio::task::unconstrained(future));
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

impl Inner {
    /// Waits for what the servers say.
    pub(crate) fn wait<Value>(&self, future: impl Future<Output = Value>) -> Value {
        if tokio::runtime::Handle::try_current().is_err() {
            return self.runtime.block_on(future);
        }
        // The crawl asks on the thread of a runtime of its own, where no other can begin. Those of this one read and write.
        let _entered = self.runtime.enter();
        poll_until_ready(future)
    }

    /// Returns the present time by the store's clock, in milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> i64 {
        match self.clock_reading() {
            Some(reading) => {
                let since = reading.at.elapsed().as_millis();
                reading.store_ms + i64::try_from(since).unwrap_or(i64::MAX)
            }
            None => wall_ms(),
        }
    }

    pub(crate) fn now_seconds(&self) -> u64 {
        u64::try_from(self.now_ms() / 1000).unwrap_or(0)
    }

    /// Returns by how many seconds this host's clock is ahead of the store's.
    pub(crate) fn clock_skew(&self) -> Option<i64> {
        let reading = self.clock_reading()?;
        Some((reading.wall_ms - reading.store_ms) / 1000)
    }

    fn clock_reading(&self) -> Option<ClockReading> {
        let mut last = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reading) = *last
            && reading.at.elapsed() < READ_EVERY
        {
            return Some(reading);
        }
        let key = format!("clocks/{}", self.host.name);
        let read = self.wait(async {
            self.store
                .put(&key, time_text(wall_ms() as u64).as_bytes())
                .await?;
            self.store.get(&key).await
        });
        if let Ok(Some(read)) = read {
            *last = Some(ClockReading {
                store_ms: read.written_ms,
                wall_ms: wall_ms(),
                at: Instant::now(),
            });
        }
        *last
    }

    /// Reads a ticket. One that makes no sense is as good as none, and is told of.
    pub(crate) async fn ticket(&self, stage: &str, name: &str) -> Result<Option<ReadTicket>> {
        let key = StageKeys(stage).ticket(name);
        let Some(read) = self.store.get(&key).await? else {
            return Ok(None);
        };
        match serde_json::from_slice(&read.bytes) {
            Ok(ticket) => Ok(Some(ReadTicket {
                ticket,
                etag: read.etag,
                written_ms: read.written_ms,
            })),
            Err(error) => {
                tracing::error!(%error, key, "a ticket makes no sense");
                Ok(None)
            }
        }
    }

    /// Reads the receipt filed under a name, committed or not.
    pub(crate) async fn filed(&self, stage: &str, id: &ParcelId) -> Result<FiledObject> {
        let Some(read) = self.store.get(&StageKeys(stage).receipt(id)).await? else {
            return Ok(FiledObject::Nothing);
        };
        Ok(FiledObject::parse(&read.bytes, id, read.etag))
    }

    /// Reads the receipt of a parcel or of a batch, if it counts.
    pub(crate) async fn receipt(
        &self,
        stage: &str,
        id: &ParcelId,
    ) -> Result<Option<ecluse_spool::Filed>> {
        let FiledObject::Receipt { filed, .. } = self.filed(stage, id).await? else {
            return Ok(None);
        };
        if &filed.receipt.work == id {
            return Ok(Some(*filed));
        }
        // A batch files its members before it is committed, and what counts is what it was committed with.
        let batch = self.filed(stage, &filed.receipt.work).await?;
        Ok(match batch {
            FiledObject::Receipt { filed, .. } => Some(*filed),
            FiledObject::Nothing | FiledObject::GivenUp { .. } => None,
        })
    }

    /// Tells a stage of a parcel; when nobody listens, later.
    pub(crate) async fn tell(&self, stage: &str, hint: Hint) {
        if let Err(error) = self.queue.tell(stage, &hint).await {
            tracing::warn!(%error, stage, "a parcel is told of later");
            let mut owed = self.owed.lock().unwrap_or_else(PoisonError::into_inner);
            if owed.len() < OWED {
                owed.push((stage.to_owned(), hint));
            }
        }
    }

    /// Returns a count of parcels that a worker of a stage has heard of, for the worker to keep.
    pub(crate) fn hear(&self, stage: &str) -> Arc<AtomicUsize> {
        let heard = Arc::new(AtomicUsize::new(0));
        let mut all = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, heard)| heard.strong_count() > 0);
        all.push((stage.to_owned(), Arc::downgrade(&heard)));
        heard
    }

    /// Counts the messages of a stage that are in hands here, and whose parcels wait nevertheless.
    pub(crate) fn heard(&self, stage: &str) -> usize {
        let all = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let of_stage = all.iter().filter(|(of, _)| of == stage);
        let counts = of_stage.filter_map(|(_, heard)| heard.upgrade());
        counts.map(|heard| heard.load(Ordering::SeqCst)).sum()
    }

    /// Tells what could not be told before.
    pub(crate) async fn tell_owed(&self) {
        let owed = std::mem::take(&mut *self.owed.lock().unwrap_or_else(PoisonError::into_inner));
        for (stage, hint) in owed {
            self.tell(&stage, hint).await;
        }
    }
}

/// What lies where a receipt would.
pub(crate) enum FiledObject {
    Nothing,
    /// A receipt, of the work or of a batch that has it.
    Receipt {
        filed: Box<ecluse_spool::Filed>,
        etag: String,
    },
    /// A batch that will never be committed under what was filed for it, or a parcel that is sealed under a fence.
    GivenUp {
        etag: String,
        times: u64,
        /// 0 for a batch.
        fence: u64,
    },
}

/// What lies in place of the receipt of a batch that somebody gave up for its dead worker.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct GivenUpBatch {
    /// How often: no two of one batch are the same.
    #[serde(rename = "given-up")]
    pub(crate) times: u64,
    /// Who did.
    pub(crate) by: String,
    /// The fence of a parcel's seal: work under this one or a later one may be committed over it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) fence: u64,
}

impl FiledObject {
    pub(crate) fn parse(bytes: &[u8], id: &ParcelId, etag: String) -> Self {
        if let Some(filed) = find_in_sheet(bytes, id) {
            return Self::Receipt {
                filed: Box::new(filed),
                etag,
            };
        }
        let given_up = serde_json::from_slice::<GivenUpBatch>(bytes);
        let (times, fence) = given_up.map_or((0, 0), |batch| (batch.times, batch.fence));
        Self::GivenUp { etag, times, fence }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

pub(crate) fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}

pub(crate) fn now_text() -> String {
    time_text(u64::try_from(wall_ms()).unwrap_or(0))
}

pub(crate) fn dice() -> u64 {
    getrandom::u64().unwrap_or_else(|_| u64::from(std::process::id()))
}
