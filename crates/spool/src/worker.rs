//! One worker: born locked, claims by rename, lets go of everything when it dies.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::adopt::DropLook;
use crate::error::{At, Result, SpoolError};
use crate::fs::{Fs, Inside, Lease, gone, if_there};
use crate::ledger;
use crate::name::{Deferred, ParcelEntry, ParcelId, WorkerId, is_payload_name};
use crate::outbox::{Outbox, Parcel, is_at_fault};
use crate::parcel::{HISTORY, MANIFEST, MANIFEST_BYTES, ParcelManifest, TROUBLE, Trouble, digest};
use crate::receipt::{Filed, Receipt, find_in_sheet};
use crate::rest::RestWatch;
use crate::tree::{StageDir, WorkTree, receipt_name};

/// How patient a stage is.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerLimits {
    /// Deaths of workers over one parcel before it is held.
    pub attempts: u32,
    /// The first wait of a deferred parcel.
    pub retry_first: Duration,
    /// How much longer each further wait is.
    pub retry_factor: f64,
    /// The longest wait.
    pub retry_longest: Duration,
    /// A parcel deferred for longer than this altogether is held.
    pub retry_limit: Duration,
    /// A worker whose heartbeat has not moved for so long is dead, where its lock does not tell.
    pub lease: Duration,
    /// A dropped file at rest for so long is adopted.
    pub settle: Duration,
    /// How many waiting parcels a scan names; all are counted.
    pub names: usize,
    /// How many parcels are taken up together: a batch, or a group that shares a commit.
    pub together: usize,
    /// Rubbish in `tmp/` older than this is removed; longer than anybody may take to build there.
    pub tmp_age: Duration,
}

impl Default for WorkerLimits {
    fn default() -> Self {
        Self {
            attempts: 5,
            retry_first: Duration::from_secs(30),
            retry_factor: 2.0,
            retry_longest: Duration::from_secs(3600),
            retry_limit: Duration::from_secs(7 * 86_400),
            lease: Duration::from_secs(300),
            settle: Duration::from_secs(10),
            names: 4096,
            together: 64,
            tmp_age: Duration::from_secs(36 * 3600),
        }
    }
}

impl WorkerLimits {
    /// Returns the wait after the n-th deferral: exponential, with a jitter of a quarter.
    pub fn wait_after(&self, deferrals: u32, random: u64) -> Duration {
        let growth = self
            .retry_factor
            .powi(deferrals.saturating_sub(1).min(64) as i32);
        let wait = (self.retry_first.as_secs_f64() * growth).min(self.retry_longest.as_secs_f64());
        let jitter = (random % 1000) as f64 / 1000.0 * 0.5 + 0.75;
        Duration::from_secs_f64((wait * jitter).clamp(0.0, 1e9))
    }
}

/// What `.lease` says of its worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct LeaseNote {
    /// Host name.
    pub host: String,
    /// Boot of that host.
    pub boot: String,
    /// Identity of that machine.
    pub machine: String,
    /// Process.
    pub pid: u32,
    /// Born when, RFC 3339.
    pub since: String,
    /// Version of the program.
    pub version: String,
}

/// One worker of a stage on this machine.
pub struct Worker {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) tree: WorkTree,
    pub(crate) stage: StageDir,
    pub(crate) limits: WorkerLimits,
    pub(crate) next: Vec<String>,
    pub(crate) id: WorkerId,
    pub(crate) home: PathBuf,
    pub(crate) version: String,
    /// Sheets written so far.
    pub(crate) sheets: u32,
    /// Directories that took something over and are not known to be durable.
    pub(crate) touched: BTreeSet<PathBuf>,
    /// Heartbeats of workers whose locks tell nothing here.
    pub(crate) seen_leases: RestWatch<String, i128>,
    /// Deferred parcels that are due later than any back-off goes.
    pub(crate) seen_far: RestWatch<std::ffi::OsString, ()>,
    pub(crate) seen_drops: RestWatch<std::ffi::OsString, DropLook>,
    pub(crate) signs: Signs,
    /// Parcels held without a verdict of the stage, not yet told.
    pub(crate) held_unasked: Vec<(ParcelId, String)>,
    lease: Option<Box<dyn Lease>>,
}

/// Signs that pass between a worker's thread and those who watch over it.
#[derive(Debug, Clone, Default)]
pub struct Signs {
    ticks: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Signs {
    /// Says that work goes forward; every read and write of a stage does so by itself.
    pub fn tick(&self) {
        self.ticks.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how often work has gone forward: a number that stands still is a wedged worker.
    pub fn ticks(&self) -> u64 {
        self.ticks.load(Ordering::Relaxed)
    }

    /// Asks the work in hand to end soon.
    pub fn ask_to_stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Tells whether the work in hand should end soon.
    pub fn stop_asked(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl Worker {
    /// Is born: builds its directory in `tmp/`, locks its lease, then moves into `claim/`.
    ///
    /// Locked first, visible after: no reaper can take a newborn for dead.
    pub fn open(
        tree: &WorkTree,
        stage: &str,
        next: &[String],
        limits: WorkerLimits,
        version: &str,
    ) -> Result<Self> {
        let dir = tree.init(stage)?;
        let fs = Arc::clone(&tree.fs);
        let id = WorkerId::new(
            &tree.host.name,
            &tree.host.boot,
            tree.host.pid,
            (tree.dice)(),
        );
        let draft = dir.tmp().join(id.as_str());
        for path in [
            draft.clone(),
            draft.join("in"),
            draft.join("out"),
            draft.join("adopt"),
        ] {
            fs.mkdir(&path).at("make", &path)?;
        }
        let note = LeaseNote {
            host: tree.host.name.clone(),
            boot: tree.host.boot.clone(),
            machine: tree.host.machine.clone(),
            pid: tree.host.pid,
            since: tree.now_text(),
            version: version.to_owned(),
        };
        let path = draft.join(".lease");
        let text = serde_json::to_vec(&note).expect("a lease holds only strings and numbers");
        fs.write_new(&path, &text).at("write", &path)?;
        let Some(lease) = fs.lock(&path).at("lock", &path)? else {
            return Err(SpoolError::Refused(format!(
                "another process holds the new lease {}",
                path.display()
            )));
        };
        fs.sync_file(&path).at("sync", &path)?;
        fs.sync_dir(&draft).at("sync", &draft)?;
        let home = dir.home(&id);
        fs.rename(&draft, &home).at("move", &home)?;
        let claim = dir.claim();
        fs.sync_dir(&claim).at("sync", &claim)?;
        Ok(Self {
            fs,
            tree: tree.clone(),
            stage: dir,
            limits,
            next: next.to_vec(),
            id,
            home,
            version: version.to_owned(),
            sheets: 0,
            touched: BTreeSet::new(),
            seen_leases: RestWatch::default(),
            seen_far: RestWatch::default(),
            seen_drops: RestWatch::default(),
            signs: Signs::default(),
            held_unasked: Vec::new(),
            lease: Some(lease),
        })
    }

    /// Returns this worker's name.
    pub fn id(&self) -> &WorkerId {
        &self.id
    }

    /// Returns the paths of its stage.
    pub fn stage(&self) -> &StageDir {
        &self.stage
    }

    /// Returns the signs that pass between this worker and those who watch over it.
    pub fn signs(&self) -> &Signs {
        &self.signs
    }

    /// Changes how patient the worker is.
    pub fn set_limits(&mut self, limits: WorkerLimits) {
        self.limits = limits;
    }

    /// Changes where results go.
    pub fn set_next(&mut self, next: &[String]) {
        self.next = next.to_vec();
    }

    /// Returns the path whose time another thread moves forward while this one works.
    pub fn pulse(&self) -> Pulse {
        let fs = Arc::clone(&self.fs);
        let path = self.home.join(".lease");
        let worker = self.id.to_string();
        Pulse::new(move || {
            let touched = if_there(fs.touch(&path));
            fenced(touched.at("touch", &path)?, &worker)
        })
    }

    /// Tries to claim a waiting parcel. `None`: another was quicker, or it needs no more work.
    ///
    /// # Errors
    /// [`SpoolError::Fenced`] when this worker was taken for dead.
    pub fn claim(&mut self, waiting: &Waiting) -> Result<Option<Parcel>> {
        let from = self.tree.ready_slot(&self.stage, &waiting.entry);
        let attempts = waiting.entry.attempts.saturating_add(1);
        let entry = ParcelEntry::new(&waiting.entry.id, attempts);
        let path = self.home.join("in").join(entry.file_name());
        match self.fs.rename(&from, &path) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                // A lost reply on a network file system: the rename happened, the answer did not come.
                if !self.fs.is_there(&path).at("look at", &path)? {
                    self.check_fence()?;
                    return Ok(None);
                }
            }
            Err(e) => return Err(e).at("claim", &from),
        }
        self.examine(path, &entry)
    }

    /// Reads a claimed parcel; settles it at once if it is damaged, done already, or come too late.
    fn examine(&mut self, path: PathBuf, entry: &ParcelEntry) -> Result<Option<Parcel>> {
        let (manifest, digest, seen) = match inspect(&*self.fs, &path, &entry.id, &self.stage.name)
        {
            Ok(read) => read,
            Err(SpoolError::Damaged { reason, .. }) => {
                self.hold_unasked(&path, entry, &reason)?;
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        let parcel = Parcel {
            fs: Arc::clone(&self.fs),
            path,
            manifest,
            digest,
            attempt: entry.attempts,
            claimed: self.tree.now_text(),
            seen,
            source: None,
            signs: self.signs.clone(),
        };
        match self.standing(&parcel.manifest)? {
            Standing::New => Ok(Some(parcel)),
            Standing::Done(filed) => {
                tracing::info!(parcel = %entry.id, "finishing a parcel that has its receipt");
                self.complete(&self.home.clone(), &filed.receipt, &|_| {
                    Some(parcel.path.clone())
                })?;
                Ok(None)
            }
            Standing::Late => {
                tracing::warn!(parcel = %entry.id, "dropping a late copy of a finished parcel");
                self.discard_claimed(&parcel.path, entry)?;
                Ok(None)
            }
            Standing::Clash(reason) => {
                self.hold_unasked(&parcel.path, entry, &reason)?;
                Ok(None)
            }
            Standing::Spoken => {
                tracing::info!(parcel = %entry.id, "a batch under way may have a copy of it");
                let deferred = Deferred {
                    due: self.tree.now_seconds(&self.stage.name) + 2,
                    entry: ParcelEntry::new(&entry.id, entry.attempts.saturating_sub(1)),
                };
                let to = self.stage.deferred().join(deferred.file_name());
                self.move_claimed(&parcel.path, &to)?;
                Ok(None)
            }
        }
    }

    /// Looks up what this stage already did with a parcel of this name.
    pub(crate) fn standing(&self, manifest: &ParcelManifest) -> Result<Standing> {
        let id = &manifest.id;
        let shard = self.stage.receipts().join(id.shard());
        let name = receipt_name(id);
        let sheet = match if_there(self.fs.look_inside(&shard)).at("look at", &shard)? {
            Some(inside) => {
                if_there(inside.read(&name, SHEET_BYTES)).at("read", &shard.join(&name))?
            }
            None => None,
        };
        let filed = match sheet {
            Some(bytes) => in_sheet(&bytes, &self.stage, id).map(Some),
            // After the look: what was folded meanwhile is found there.
            None => ledger::find(&*self.fs, &self.stage, id),
        };
        let filed = match filed {
            Ok(Some(filed)) => filed,
            Ok(None) => return Ok(Standing::New),
            // Nobody can tell whether it was done: a person must, and the next parcel goes on.
            Err(SpoolError::Damaged { reason, .. }) => return Ok(Standing::Clash(reason)),
            Err(e) => return Err(e),
        };
        let Some(input) = filed.receipt.input(&manifest.id) else {
            return Ok(Standing::Clash(format!(
                "a batch of stage {} already has this name",
                self.stage.name
            )));
        };
        if !is_committed(&*self.fs, &self.stage, id, &filed.receipt)? {
            return Ok(Standing::Spoken);
        }
        if input.born == manifest.born {
            return Ok(Standing::Done(Box::new(filed)));
        }
        if input.content == manifest.content() {
            return Ok(Standing::Late);
        }
        Ok(Standing::Clash(format!(
            "stage {} finished another parcel of this name on {}, with other content",
            self.stage.name, filed.receipt.finished
        )))
    }

    /// Returns the receipt of a parcel, from `receipts/` or from the ledger.
    pub(crate) fn filed(&self, id: &ParcelId) -> Result<Option<Filed>> {
        find_receipt(&*self.fs, &self.stage, id)
    }

    /// Returns an empty outbox for one parcel, or for a batch.
    pub fn outbox(&self, parcels: &[Parcel]) -> Outbox {
        let out = self.home.join("out");
        Outbox::for_work(
            &self.fs,
            &out,
            &self.stage.name,
            parcels,
            &self.next,
            &self.signs,
        )
    }

    /// Fails when this worker's directory was taken over.
    pub fn check_fence(&self) -> Result<()> {
        let lease = if_there(self.fs.stat(&self.home.join(".lease")));
        fenced(lease.at("look at", &self.home)?.map(drop), self.id.as_str())
    }

    /// Makes every hand-over so far durable. Needed only before a place it could be repeated from
    /// is removed: until then the receipts would repeat it after a power cut.
    pub(crate) fn sync_touched(&mut self) -> Result<()> {
        // Forgotten one by one: what could not be synced is still not known to be durable.
        while let Some(dir) = self.touched.first().cloned() {
            // Taken away since, with all that was in it: nothing there is left to make durable.
            gone(self.fs.sync_dir(&dir)).at("sync", &dir)?;
            self.touched.remove(&dir);
        }
        Ok(())
    }

    /// Dies in good order: everything claimed goes back, the directory is removed.
    pub fn close(mut self) -> Result<()> {
        self.reset()?;
        self.sync_touched()?;
        let home = self.home.clone();
        self.fs.remove_tree(&home).at("remove", &home)?;
        self.lease.take();
        Ok(())
    }
}

/// What this stage already did with a parcel of a given name.
pub(crate) enum Standing {
    /// Nothing.
    New,
    /// This very parcel has its receipt: what remains is to hand over.
    Done(Box<Filed>),
    /// A copy of a parcel that was finished before.
    Late,
    /// Another parcel of the same name was finished before.
    Clash(String),
    /// A batch with a parcel of this name is being committed, or died of it: nobody can tell yet.
    Spoken,
}

/// Moves the heartbeat of a worker forward; used by a thread of its own.
pub struct Pulse(Box<dyn Fn() -> Result<()> + Send>);

impl Pulse {
    /// Returns a pulse that beats so.
    pub fn new(beat: impl Fn() -> Result<()> + Send + 'static) -> Self {
        Self(Box::new(beat))
    }

    /// Says "I live" to other hosts.
    pub fn beat(&self) -> Result<()> {
        (self.0)()
    }
}

/// A parcel seen waiting by a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The parcel and its attempts.
    pub entry: ParcelEntry,
}

/// What a look into a parcel's directory told: true while the parcel is in the same hands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Pages of its history; `None` when it has no history yet.
    pub(crate) pages: Option<usize>,
    /// Whether one of them is of this stage.
    pub(crate) has_page: bool,
    /// Whether it was in trouble before.
    pub(crate) in_trouble: bool,
}

/// Reads and checks `parcel.json`; returns it with the digest of its bytes.
pub(crate) fn read_manifest(
    fs: &dyn Fs,
    path: &Path,
    id: &ParcelId,
) -> Result<(ParcelManifest, String)> {
    let (inside, _) = open_parcel(fs, path, id, "")?;
    check_manifest(&*inside, path, id)
}

/// The same, with what else lies in the parcel that `stage` needs to know to hand it over.
fn inspect(
    fs: &dyn Fs,
    path: &Path,
    id: &ParcelId,
    stage: &str,
) -> Result<(ParcelManifest, String, Seen)> {
    let (inside, mut seen) = open_parcel(fs, path, id, stage)?;
    let trouble = path.join(TROUBLE);
    seen.in_trouble = inside.is_there(TROUBLE).at("look at", &trouble)?;
    let (manifest, digest) = check_manifest(&*inside, path, id)?;
    Ok((manifest, digest, seen))
}

fn open_parcel<'fs>(
    fs: &'fs dyn Fs,
    path: &'fs Path,
    id: &ParcelId,
    stage: &str,
) -> Result<(Box<dyn Inside + 'fs>, Seen)> {
    let damaged = |reason: String| SpoolError::Damaged {
        parcel: id.clone(),
        reason,
    };
    let inside = match fs.look_inside(path) {
        Ok(inside) => inside,
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
            return Err(damaged("it is not a directory".into()));
        }
        Err(e) => return Err(e).at("look at", path),
    };
    let (mut pages, mut has_page) = (0, false);
    let listed = inside.visit(HISTORY, &mut |name| {
        pages += 1;
        has_page |= is_page_of(name, stage);
    });
    let pages = match listed {
        Ok(()) => Some(pages),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        // Pages are added to it: behind a link they would land outside the tree.
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
            return Err(damaged(format!("{HISTORY} is not a directory")));
        }
        Err(e) => return Err(e).at("list", &path.join(HISTORY)),
    };
    let seen = Seen {
        pages,
        has_page,
        in_trouble: false,
    };
    Ok((inside, seen))
}

/// Tells whether a page of a history is the receipt of `stage`.
pub(crate) fn is_page_of(name: &OsStr, stage: &str) -> bool {
    name.to_str()
        .and_then(|name| name.strip_suffix(".json")?.strip_suffix(stage))
        .is_some_and(|number| number.ends_with('-'))
}

fn check_manifest(
    inside: &dyn Inside,
    path: &Path,
    id: &ParcelId,
) -> Result<(ParcelManifest, String)> {
    let damaged = |reason: String| SpoolError::Damaged {
        parcel: id.clone(),
        reason,
    };
    let bytes = match inside.read(MANIFEST, MANIFEST_BYTES) {
        Ok(bytes) => bytes,
        Err(e) if is_at_fault(&e) => return Err(damaged(format!("cannot read {MANIFEST}: {e}"))),
        Err(e) => return Err(e).at("read", &path.join(MANIFEST)),
    };
    let manifest: ParcelManifest =
        serde_json::from_slice(&bytes).map_err(|e| damaged(format!("bad {MANIFEST}: {e}")))?;
    if &manifest.id != id {
        return Err(damaged(format!(
            "{MANIFEST} is of another parcel, {}",
            manifest.id
        )));
    }
    if let Some(bad) = manifest.files.iter().find(|f| !is_payload_name(&f.name)) {
        return Err(damaged(format!("{MANIFEST} names a file {:?}", bad.name)));
    }
    Ok((manifest, digest(&bytes)))
}

/// Returns what went wrong with a parcel in this stage before.
pub(crate) fn read_trouble(fs: &dyn Fs, path: &Path, stage: &str) -> Trouble {
    fs.read(&path.join(TROUBLE), 1 << 20)
        .ok()
        .and_then(|bytes| serde_json::from_slice::<Trouble>(&bytes).ok())
        .filter(|trouble| trouble.stage == stage)
        .unwrap_or_default()
}

/// Returns the receipt of a piece of work, from `receipts/` or from the ledger.
pub(crate) fn find_receipt(fs: &dyn Fs, stage: &StageDir, id: &ParcelId) -> Result<Option<Filed>> {
    let Some(filed) = filed_as(fs, stage, id)? else {
        return Ok(None);
    };
    Ok(is_committed(fs, stage, id, &filed.receipt)?.then_some(filed))
}

/// Returns the receipt filed under a name, committed or not.
pub(crate) fn filed_as(fs: &dyn Fs, stage: &StageDir, id: &ParcelId) -> Result<Option<Filed>> {
    let path = stage.receipt(id);
    match if_there(fs.read(&path, SHEET_BYTES)).at("read", &path)? {
        Some(bytes) => in_sheet(&bytes, stage, id).map(Some),
        None => ledger::find(fs, stage, id),
    }
}

/// Tells whether the receipt found under the name of a parcel counts: a batch files its members
/// before it is committed by its own name.
pub(crate) fn is_committed(
    fs: &dyn Fs,
    stage: &StageDir,
    id: &ParcelId,
    receipt: &Receipt,
) -> Result<bool> {
    if &receipt.work == id {
        return Ok(true);
    }
    let path = stage.receipt(&receipt.work);
    if fs.is_there(&path).at("look at", &path)? {
        return Ok(true);
    }
    ledger::holds(fs, stage, &receipt.work)
}

/// A sheet larger than this is not one of ours.
const SHEET_BYTES: u64 = 1 << 30;

fn in_sheet(bytes: &[u8], stage: &StageDir, id: &ParcelId) -> Result<Filed> {
    find_in_sheet(bytes, id).ok_or_else(|| SpoolError::Damaged {
        parcel: id.clone(),
        reason: format!("{} holds no receipt of it", stage.receipt(id).display()),
    })
}

fn fenced(is_there: Option<()>, worker: &str) -> Result<()> {
    is_there.ok_or_else(|| SpoolError::Fenced {
        worker: worker.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::Gift;

    #[test]
    fn a_parcel_whose_receipt_cannot_be_read_is_held_and_blocks_nobody() {
        let root = tempfile::tempdir().unwrap();
        let tree = WorkTree::open(&root.path().join("work"));
        let file = root.path().join("a");
        std::fs::write(&file, "text").unwrap();
        let id = tree.give("stage", &file, &Gift::default()).unwrap();
        let receipt = tree.stage("stage").receipt(&id);
        std::fs::create_dir(receipt.parent().unwrap()).unwrap();
        std::fs::write(&receipt, "").unwrap();

        let mut worker = Worker::open(&tree, "stage", &[], WorkerLimits::default(), "0").unwrap();
        let waiting = worker.scan().unwrap().waiting.remove(0);
        assert!(worker.claim(&waiting).unwrap().is_none());
        let depths = tree.depths("stage").unwrap();
        assert_eq!((depths.held, depths.working), (1, 0));
        let places = tree.locate(&["stage".into()], &id).unwrap();
        assert!(tree.why(&places[0]).unwrap().is_some());
    }
}
