//! What carries the parcels of all stages: plain directories, or servers that many hosts reach.
//!
//! A [`Spool`] is one worker's view of one stage. An [`Engine`] makes such views and answers what the shell and the operator
//! ask beside them: what waits where, who works, what was done, what is to be held or let go. [`WorkTree`] is the engine of
//! directories. Nobody above asks which engine it is, but for what only directories have: a bell that hangs on them, files
//! that people drop, paths to show.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::cluster::ClusterView;
use crate::depths::{Blocked, Depths, Marks, Paused, Throughput, WorkerView};
use crate::error::{Result, SpoolError};
use crate::fs::Room;
use crate::ledger::{fold_shard, next_shard};
use crate::moving::Movable;
use crate::name::{ParcelId, WorkerId};
use crate::new_parcel::NewParcel;
use crate::operator::{Gift, ParcelPlace};
use crate::parcel::{FileEntry, ParcelManifest, Trouble};
use crate::receipt::Filed;
use crate::setback::Why;
use crate::spool::Spool;
use crate::tree::{Host, WorkTree};
use crate::worker::{Signs, Worker, WorkerLimits};

/// Called when something came for a stage.
pub type Ring = Arc<dyn Fn() + Send + Sync>;

/// What keeps a bell wired; dropping it unwires it.
pub type BellWire = Box<dyn Send + Sync>;

/// How a worker is opened.
#[derive(Debug, Clone, Copy)]
pub struct WorkerTerms<'a> {
    /// The stage.
    pub stage: &'a str,
    /// Where its results go.
    pub next: &'a [String],
    /// How patient it is.
    pub limits: &'a WorkerLimits,
    /// The version of the program.
    pub version: &'a str,
}

/// How much was folded of the old receipts of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoldedShard {
    /// The shard that was looked at.
    pub shard: u8,
    /// Receipts folded.
    pub receipts: usize,
}

/// What a stage needs is another host's at this time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherOwner {
    /// What it is: the manifest, the register, the jobs of a copy of the crawl.
    pub thing: String,
    /// Why this host does not own it.
    pub why: NotOwned,
}

/// Why a host does not own a thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotOwned {
    /// A living host does.
    By {
        /// The host.
        host: String,
    },
    /// What lies here is not what the last owner had.
    Elsewhere {
        /// The last owner.
        host: String,
        /// The mark beside the thing, which is not there or says something else.
        mark: PathBuf,
        /// What it should say.
        state: String,
    },
}

impl std::fmt::Display for OtherOwner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let thing = &self.thing;
        match &self.why {
            NotOwned::By { host } => write!(f, "stands by: {host} owns the {thing}"),
            NotOwned::Elsewhere { host, mark, state } => write!(
                f,
                "stands by: the {thing} here is not the one that {host} had; mount it, or make it with `ecluse rebuild` and then: \
                 echo {state} > {}",
                mark.display()
            ),
        }
    }
}

/// How far what nobody needs any more is collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollectExtent {
    /// It is counted and stays.
    Count,
    /// All of it is removed.
    All,
    /// All of it, when nobody has done so for a day. It is done beside other work.
    IfDue,
}

/// What collecting came to, or would.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Collected {
    /// Files that no parcel has.
    pub files: u64,
    /// Their size.
    pub bytes: u64,
    /// Uploads of files that were never ended.
    pub uploads: u64,
    /// Lists of parcels that are not to be handed over any more.
    pub sheets: u64,
    /// Marks that mean nothing.
    pub marks: u64,
    /// What is old, and was left because it is not clear whose it is.
    pub unclear: u64,
}

/// What is told again when an engine is reconciled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReconcileExtent {
    /// What waits, when fewer messages are there than parcels.
    Missing,
    /// Everything that waits; what has a message is not told twice.
    All,
}

/// Where parcels live.
pub trait Engine: Send + Sync {
    /// Returns the work directories, where these are the engine.
    fn directories(&self) -> Option<&WorkTree>;
    /// Returns the engine as one of which stages can be moved to another, while the settings say that they are.
    fn movable(&self) -> Option<&dyn Movable> {
        None
    }
    /// Says in one line where the parcels are.
    fn place(&self) -> String;
    /// Returns who this host is.
    fn host(&self) -> &Host;
    /// Makes what a stage needs, or finds it made.
    fn init(&self, stage: &str) -> Result<()>;
    /// Says what would lose parcels here.
    fn faults(&self, stage: &str) -> Result<Vec<String>>;
    /// Writes a little: tells whether all is well.
    fn probe(&self, stage: &str) -> Result<()>;
    /// Opens one worker's view of a stage.
    fn open_worker(&self, terms: &WorkerTerms<'_>) -> Result<Box<dyn Spool>>;
    /// Makes this host the owner of what a stage needs, where one host at a time may have it, and keeps it so; says who owns it
    /// otherwise. `place` is the directory it lies in; an owner that shows no sign of life for `lease` has lost it.
    ///
    /// # Errors
    /// When that cannot be asked or told.
    fn own(&self, stage: &str, lease: Duration, place: &Path) -> Result<Option<OtherOwner>> {
        let _ = (stage, lease, place);
        Ok(None)
    }
    /// Gives up what this host owns, unless other processes of it are at work.
    fn disown(&self) {}
    /// Takes away what workers of this process hold; it goes back untouched.
    fn evict(&self, terms: &WorkerTerms<'_>, workers: &[WorkerId]) -> Result<()>;
    /// Lets a bell ring when something comes for a stage, where no directory can ring it.
    fn wire(&self, stage: &str, ring: Ring) -> Option<BellWire>;
    /// Finds what no worker would be told of, and tells them; returns how many parcels that were.
    fn reconcile(&self, stage: &str, extent: ReconcileExtent) -> Result<u64>;
    /// Removes what no parcel, receipt or worker can name any more. `None`: there is nothing of the kind here, it was done lately,
    /// or it is done beside other work.
    ///
    /// # Errors
    /// When the store does not answer, or stages are on their way between engines.
    fn collect(&self, extent: CollectExtent) -> Result<Option<Collected>> {
        let _ = extent;
        Ok(None)
    }
    /// Returns a local directory for temporary files of a stage.
    fn temporary(&self, stage: &str) -> PathBuf;
    /// Returns a local directory in which a stage keeps what it knows of parcels in hand.
    fn stage_directory(&self, stage: &str) -> PathBuf;

    /// Looks at the servers that carry these stages, and says what is wrong with them. `None`: there are no servers.
    fn cluster(&self, stages: &[String]) -> Option<ClusterView>;
    /// Names the stages that hold something, sorted.
    fn stages(&self) -> Result<Vec<String>>;
    /// Counts what a stage holds.
    fn depths(&self, stage: &str) -> Result<Depths>;
    /// Lists the workers of a stage and tells which of them live.
    fn workers(&self, stage: &str, lease: Duration) -> Result<Vec<WorkerView>>;
    /// Counts what a stage finished lately.
    fn throughput(&self, stage: &str, within: Duration) -> Result<Throughput>;
    /// Says what keeps a stage from claiming; `blocked` is the answer before this one.
    fn pressure(
        &self,
        stage: &str,
        destinations: &[String],
        marks: &Marks,
        blocked: Option<&Blocked>,
    ) -> Result<Option<Blocked>>;
    /// Returns the room that work has on this machine.
    fn room(&self) -> Result<Room>;
    /// Returns the present time by the clock that all hosts share, in Unix seconds.
    fn now_seconds(&self, stage: &str) -> u64;
    /// Returns by how many seconds this host's clock is ahead of that one.
    fn clock_skew(&self, stage: &str) -> Option<i64>;
    /// Says whose clock that is, for messages.
    fn clock_owner(&self, stage: &str) -> &'static str;
    /// Tells whether a stage is paused, by whom and why.
    fn paused(&self, stage: &str) -> Result<Option<Paused>>;
    /// Stops a stage from claiming.
    fn pause(&self, stage: &str, who: &str, why: &str) -> Result<()>;
    /// Lets a stage claim again; says whether it was paused.
    fn resume(&self, stage: &str) -> Result<bool>;

    /// Calls `see` with the name of every parcel of a stage.
    fn each_name(&self, stage: &str, see: &mut dyn FnMut(ParcelId)) -> Result<()>;
    /// Calls `see` for every parcel of a stage.
    fn each_place(&self, stage: &str, see: &mut dyn FnMut(ParcelPlace)) -> Result<()>;
    /// Finds where a parcel is, in the order of the stages given.
    fn locate(&self, stages: &[String], id: &ParcelId) -> Result<Vec<ParcelPlace>>;
    /// Returns a local directory with the small files of a parcel, to be looked at.
    fn look_at(&self, place: &ParcelPlace) -> Result<PathBuf>;
    /// Returns where a file of a parcel lies on this machine; out of a store it is brought into `directory`.
    ///
    /// # Errors
    /// When the parcel or the file is gone, or the directory does not take it.
    fn bring(&self, place: &ParcelPlace, file: &FileEntry, directory: &Path) -> Result<PathBuf>;
    /// Reads the manifest of a parcel where it was found.
    fn manifest(&self, place: &ParcelPlace) -> Result<ParcelManifest>;
    /// Reads what went wrong with a parcel lately.
    fn trouble(&self, place: &ParcelPlace) -> Option<Trouble>;
    /// Reads why a parcel is held or was discarded.
    fn why(&self, place: &ParcelPlace) -> Result<Option<Why>>;
    /// Reads the receipts a parcel carries with it, in order.
    fn history(&self, place: &ParcelPlace) -> Result<Vec<Filed>>;
    /// Finds the receipt of a parcel in a stage.
    fn receipt(&self, stage: &str, id: &ParcelId) -> Result<Option<Filed>>;
    /// Calls `see` once with every name that has a receipt in one of these stages, and the first of them.
    fn each_finished(&self, stages: &[String], see: &mut dyn FnMut(&str, &str)) -> Result<()>;
    /// Calls `see` for every receipt of a stage that is not in a ledger.
    fn each_receipt(&self, stage: &str, see: &mut dyn FnMut(Filed)) -> Result<()>;
    /// Calls `see` for every receipt of a stage; one may be seen twice.
    fn each_receipt_ever(&self, stage: &str, see: &mut dyn FnMut(Filed)) -> Result<()>;

    /// Builds a parcel and shows it to a stage, durably.
    ///
    /// # Errors
    /// [`SpoolError::Waits`] when a parcel of that name waits there.
    fn put_built(
        &self,
        stage: &str,
        id: &ParcelId,
        kind: &str,
        build: &mut dyn FnMut(&mut NewParcel) -> Result<()>,
    ) -> Result<ParcelId>;
    /// Gives a copy of a file to a stage as a parcel.
    fn give(&self, stage: &str, file: &Path, gift: &Gift) -> Result<ParcelId>;
    /// Holds a waiting or deferred parcel.
    fn hold(&self, place: &ParcelPlace, reason: &str, by: &str) -> Result<()>;
    /// Lets a held or deferred parcel be tried again at once, its attempts forgotten.
    fn release(&self, place: &ParcelPlace) -> Result<()>;
    /// Sets a parcel aside, out of the chain, and says where it is.
    fn discard(&self, place: &ParcelPlace, reason: &str, by: &str) -> Result<PathBuf>;

    /// Removes what was being built and has been left for longer than `age`.
    fn sweep(&self, stage: &str, age: Duration) -> Result<usize>;
    /// Folds some of the receipts of a stage that are older than `age`, from this shard on. `None`: there are none.
    fn fold(
        &self,
        stage: &str,
        from: u8,
        age: Duration,
        signs: &Signs,
    ) -> Result<Option<FoldedShard>>;
}

impl<'engine> dyn Engine + 'engine {
    /// Builds a parcel and shows it to a stage, durably. What fails leaves nothing behind.
    ///
    /// # Errors
    /// [`SpoolError::Waits`] when a parcel of that name waits there; what `build` says.
    pub fn put<Error: From<SpoolError>>(
        &self,
        stage: &str,
        id: &ParcelId,
        kind: &str,
        build: impl FnOnce(&mut NewParcel) -> std::result::Result<(), Error>,
    ) -> std::result::Result<ParcelId, Error> {
        let mut build = Some(build);
        let mut failed = None;
        let put = self.put_built(stage, id, kind, &mut |parcel| {
            let Some(build) = build.take() else {
                return Err(SpoolError::Refused(format!("{id} was built before")));
            };
            build(parcel).map_err(|error| {
                failed = Some(error);
                SpoolError::Refused(format!("{id} was not built"))
            })
        });
        match failed {
            Some(error) => Err(error),
            None => put.map_err(Error::from),
        }
    }
}

impl Engine for WorkTree {
    fn directories(&self) -> Option<&WorkTree> {
        Some(self)
    }

    fn place(&self) -> String {
        self.work().display().to_string()
    }

    fn host(&self) -> &Host {
        &self.host
    }

    fn init(&self, stage: &str) -> Result<()> {
        WorkTree::init(self, stage).map(drop)
    }

    fn faults(&self, stage: &str) -> Result<Vec<String>> {
        self.fitness(stage)
    }

    fn probe(&self, stage: &str) -> Result<()> {
        WorkTree::probe(self, stage)
    }

    fn open_worker(&self, terms: &WorkerTerms<'_>) -> Result<Box<dyn Spool>> {
        Ok(Box::new(open(self, terms)?))
    }

    fn evict(&self, terms: &WorkerTerms<'_>, workers: &[WorkerId]) -> Result<()> {
        let mut settler = open(self, terms)?;
        for worker in workers {
            settler.evict(worker)?;
        }
        settler.close()
    }

    fn wire(&self, _stage: &str, _ring: Ring) -> Option<BellWire> {
        None
    }

    fn reconcile(&self, _stage: &str, _extent: ReconcileExtent) -> Result<u64> {
        // Every scan does.
        Ok(0)
    }

    fn temporary(&self, stage: &str) -> PathBuf {
        self.stage(stage).tmp()
    }

    fn stage_directory(&self, stage: &str) -> PathBuf {
        self.stage(stage).root().to_owned()
    }

    fn cluster(&self, _stages: &[String]) -> Option<ClusterView> {
        None
    }

    fn stages(&self) -> Result<Vec<String>> {
        WorkTree::stages(self)
    }

    fn depths(&self, stage: &str) -> Result<Depths> {
        WorkTree::depths(self, stage)
    }

    fn workers(&self, stage: &str, lease: Duration) -> Result<Vec<WorkerView>> {
        WorkTree::workers(self, stage, lease)
    }

    fn throughput(&self, stage: &str, within: Duration) -> Result<Throughput> {
        WorkTree::throughput(self, stage, within)
    }

    fn pressure(
        &self,
        stage: &str,
        destinations: &[String],
        marks: &Marks,
        blocked: Option<&Blocked>,
    ) -> Result<Option<Blocked>> {
        WorkTree::pressure(self, stage, destinations, marks, blocked)
    }

    fn room(&self) -> Result<Room> {
        WorkTree::room(self)
    }

    fn now_seconds(&self, stage: &str) -> u64 {
        WorkTree::now_seconds(self, stage)
    }

    fn clock_skew(&self, stage: &str) -> Option<i64> {
        WorkTree::clock_skew(self, stage)
    }

    fn clock_owner(&self, _stage: &str) -> &'static str {
        "the file system"
    }

    fn paused(&self, stage: &str) -> Result<Option<Paused>> {
        WorkTree::paused(self, stage)
    }

    fn pause(&self, stage: &str, who: &str, why: &str) -> Result<()> {
        WorkTree::pause(self, stage, who, why)
    }

    fn resume(&self, stage: &str) -> Result<bool> {
        WorkTree::resume(self, stage)
    }

    fn each_name(&self, stage: &str, see: &mut dyn FnMut(ParcelId)) -> Result<()> {
        WorkTree::each_place(self, stage, &mut |place| see(place.parcel))
    }

    fn each_place(&self, stage: &str, see: &mut dyn FnMut(ParcelPlace)) -> Result<()> {
        WorkTree::each_place(self, stage, see)
    }

    fn locate(&self, stages: &[String], id: &ParcelId) -> Result<Vec<ParcelPlace>> {
        WorkTree::locate(self, stages, id)
    }

    fn look_at(&self, place: &ParcelPlace) -> Result<PathBuf> {
        Ok(place.path.clone())
    }

    fn bring(&self, place: &ParcelPlace, file: &FileEntry, _directory: &Path) -> Result<PathBuf> {
        Ok(place.path.join(&file.name))
    }

    fn manifest(&self, place: &ParcelPlace) -> Result<ParcelManifest> {
        WorkTree::manifest(self, place)
    }

    fn trouble(&self, place: &ParcelPlace) -> Option<Trouble> {
        WorkTree::trouble(self, place)
    }

    fn why(&self, place: &ParcelPlace) -> Result<Option<Why>> {
        WorkTree::why(self, place)
    }

    fn history(&self, place: &ParcelPlace) -> Result<Vec<Filed>> {
        WorkTree::history(self, place)
    }

    fn receipt(&self, stage: &str, id: &ParcelId) -> Result<Option<Filed>> {
        WorkTree::receipt(self, stage, id)
    }

    fn each_finished(&self, stages: &[String], see: &mut dyn FnMut(&str, &str)) -> Result<()> {
        WorkTree::each_finished(self, stages, see)
    }

    fn each_receipt(&self, stage: &str, see: &mut dyn FnMut(Filed)) -> Result<()> {
        WorkTree::each_receipt(self, stage, see)
    }

    fn each_receipt_ever(&self, stage: &str, see: &mut dyn FnMut(Filed)) -> Result<()> {
        WorkTree::each_receipt_ever(self, stage, see)
    }

    fn put_built(
        &self,
        stage: &str,
        id: &ParcelId,
        kind: &str,
        build: &mut dyn FnMut(&mut NewParcel) -> Result<()>,
    ) -> Result<ParcelId> {
        WorkTree::put(self, stage, id, kind, build)
    }

    fn give(&self, stage: &str, file: &Path, gift: &Gift) -> Result<ParcelId> {
        WorkTree::give(self, stage, file, gift)
    }

    fn hold(&self, place: &ParcelPlace, reason: &str, by: &str) -> Result<()> {
        WorkTree::hold(self, place, reason, by)
    }

    fn release(&self, place: &ParcelPlace) -> Result<()> {
        WorkTree::release(self, place)
    }

    fn discard(&self, place: &ParcelPlace, reason: &str, by: &str) -> Result<PathBuf> {
        WorkTree::discard(self, place, reason, by)
    }

    fn sweep(&self, stage: &str, age: Duration) -> Result<usize> {
        WorkTree::sweep(self, stage, age)
    }

    fn fold(
        &self,
        stage: &str,
        from: u8,
        age: Duration,
        signs: &Signs,
    ) -> Result<Option<FoldedShard>> {
        let Some(shard) = next_shard(self, stage, from)? else {
            return Ok(None);
        };
        let receipts = fold_shard(self, stage, shard, age, signs)?;
        Ok(Some(FoldedShard { shard, receipts }))
    }
}

fn open(tree: &WorkTree, terms: &WorkerTerms<'_>) -> Result<Worker> {
    let limits = terms.limits.clone();
    Worker::open(tree, terms.stage, terms.next, limits, terms.version)
}
