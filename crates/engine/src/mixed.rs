//! A chain of which some stages are in work directories and others in the store: the way from one engine to the other.
//!
//! A stage is on one of the two, and `moves/stages/<stage>.json` in the store says on which. Its workers claim there and
//! commit there, each engine as it always does; results go to the next stage on the *same* engine. When that stage is on
//! the other one, they lie in the wrong place and nobody claims them there: a worker of either stage carries them over
//! ([`Carrier`]). So a hand-over between engines is a move of one parcel, and nothing else is new.
//!
//! While a stage moves, nobody claims its parcels on either engine: whoever has claimed one reads the note again and, if
//! it says so, gives it back. So what is in hand when the note is written is seen by whoever moves the stage, and he waits for it.

mod worker;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ecluse_config::{EngineKind, EngineSettings};
use ecluse_spool::{
    BellWire, Blocked, ClusterView, CollectExtent, Collected, Depths, Engine, EngineSide,
    FileEntry, Filed, FoldedShard, Gift, Host, Marks, Movable, MoveRound, NewParcel, OtherOwner,
    ParcelId, ParcelManifest, ParcelPlace, Paused, ReconcileExtent, Result, Ring, Room, Signs,
    Spool, SpoolError, StageStanding, StepWatch, Throughput, Trouble, Why, WorkTree, WorkerId,
    WorkerTerms, WorkerView,
};
use futures_util::StreamExt;

use crate::carry::{Carried, Carrier, Settler, Way};
use crate::cluster::now_text;
use crate::store::Put;
use crate::ticket::StageKeys;
use crate::{JetstreamEngine, OpenError};

use worker::MixedWorker;

/// How long a note of where a stage is counts before it is read again, where nothing hangs on it.
const READ_EVERY: Duration = Duration::from_secs(1);
/// How often one process looks for parcels that lie on the wrong engine.
const CARRY_EVERY: Duration = Duration::from_millis(500);
/// Which work directories are the archive's.
const TREE: &str = "moves/tree.json";

/// What the store says of where a stage is.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
struct MoveNote {
    schema: u32,
    /// The engine that had it when the move began.
    from: EngineSide,
    to: EngineSide,
    /// It is there. Until then it is on its way, and nobody claims its parcels.
    done: bool,
    who: String,
    when: String,
    why: String,
    /// How often it was written: no two are the same.
    turn: u64,
}

/// Both engines, while a chain moves from one to the other.
#[derive(Clone)]
pub struct MixedEngine {
    inner: Arc<MixedInner>,
}

struct MixedInner {
    tree: WorkTree,
    store: JetstreamEngine,
    /// Where a stage is that was never moved.
    default: EngineSide,
    standings: Mutex<HashMap<String, (Instant, StageStanding)>>,
    carried: Mutex<HashMap<String, Instant>>,
    /// Whether the work directories here are the archive's; known once they are.
    has_tree: Mutex<bool>,
    settlers: Mutex<HashMap<String, (Way, Settler)>>,
    /// What was found to be damaged, by stage: it is not tried again and again.
    refused: Mutex<HashMap<String, HashSet<String>>>,
}

impl MixedEngine {
    /// Opens both engines. `tree` are the work directories under the same root.
    ///
    /// # Errors
    /// What the engine with servers says.
    pub fn open(
        settings: &EngineSettings,
        root: &Path,
        host: Option<&str>,
        tree: WorkTree,
    ) -> std::result::Result<Self, OpenError> {
        let store = JetstreamEngine::open(settings, root, host)?;
        let default = match settings.kind {
            EngineKind::Directories => EngineSide::Directories,
            EngineKind::Jetstream => EngineSide::Jetstream,
        };
        Ok(Self {
            inner: Arc::new(MixedInner {
                tree,
                store,
                default,
                standings: Mutex::default(),
                carried: Mutex::default(),
                has_tree: Mutex::default(),
                settlers: Mutex::default(),
                refused: Mutex::default(),
            }),
        })
    }

    fn side(&self, side: EngineSide) -> &dyn Engine {
        match side {
            EngineSide::Directories => &self.inner.tree,
            EngineSide::Jetstream => &self.inner.store,
        }
    }

    /// Returns the engine that has a stage, as it was a moment ago.
    fn home(&self, stage: &str) -> Result<&dyn Engine> {
        Ok(self.side(self.lately(stage)?.home))
    }

    fn lately(&self, stage: &str) -> Result<StageStanding> {
        let known = lock(&self.inner.standings).get(stage).copied();
        match known {
            Some((at, standing)) if at.elapsed() < READ_EVERY => Ok(standing),
            _ => self.now(stage),
        }
    }

    /// Reads where a stage is.
    fn now(&self, stage: &str) -> Result<StageStanding> {
        let note = self.note(stage)?;
        let standing = self.standing_of(note.as_ref().map(|(note, _)| note));
        lock(&self.inner.standings).insert(stage.to_owned(), (Instant::now(), standing));
        Ok(standing)
    }

    fn standing_of(&self, note: Option<&MoveNote>) -> StageStanding {
        match note {
            None => StageStanding {
                home: self.inner.default,
                is_moving: false,
            },
            Some(note) => StageStanding {
                home: if note.done { note.to } else { note.from },
                is_moving: !note.done,
            },
        }
    }

    fn note(&self, stage: &str) -> Result<Option<(MoveNote, String)>> {
        let inner = &self.inner.store.inner;
        let key = note_key(stage);
        let Some(read) = inner.wait(inner.store.get(&key))? else {
            return Ok(None);
        };
        let note = serde_json::from_slice(&read.bytes)
            .map_err(|error| SpoolError::Refused(format!("{key} makes no sense: {error}")))?;
        Ok(Some((note, read.etag)))
    }

    fn put_note(&self, stage: &str, note: &MoveNote, etag: Option<&str>) -> Result<bool> {
        let inner = &self.inner.store.inner;
        let key = note_key(stage);
        let bytes = serde_json::to_vec(note).expect("a note holds only strings");
        let put = match etag {
            None => inner.wait(inner.store.put_new(&key, &bytes))?,
            Some(etag) => inner.wait(inner.store.put_over(&key, &bytes, etag))?,
        };
        lock(&self.inner.standings).remove(stage);
        Ok(matches!(put, Put::There(_)))
    }

    /// Returns what a stage that moves looks like to those who would claim: paused.
    fn moving_pause(&self, stage: &str) -> Result<Option<Paused>> {
        if !self.lately(stage)?.is_moving {
            return Ok(None);
        }
        Ok(self
            .note(stage)?
            .filter(|(note, _)| !note.done)
            .map(|(note, _)| Paused {
                why: format!("it moves to {}: {}", note.to.word(), note.why),
                who: note.who,
                when: note.when,
            }))
    }

    /// Tells whether the work directories here are the archive's: no other may take its parcels.
    fn has_tree(&self) -> Result<bool> {
        if *lock(&self.inner.has_tree) {
            return Ok(true);
        }
        let Some(ours) = self.inner.tree.identity(false)? else {
            return Ok(false);
        };
        let inner = &self.inner.store.inner;
        let theirs = inner.wait(inner.store.get(TREE))?;
        let has_tree = theirs.is_some_and(|theirs| theirs.bytes == ours.as_bytes());
        *lock(&self.inner.has_tree) = has_tree;
        Ok(has_tree)
    }

    fn be_the_tree(&self) -> Result<()> {
        let ours = self.inner.tree.identity(true)?.unwrap_or_default();
        let inner = &self.inner.store.inner;
        match inner.wait(inner.store.put_new(TREE, ours.as_bytes()))? {
            Put::There(_) => Ok(()),
            Put::Taken => Err(SpoolError::Refused(
                "the work directories of this archive are elsewhere: move its stages there".into(),
            )),
        }
    }

    /// Tells whether parcels of a stage lie on the engine that does not have it.
    fn has_strays(&self, stage: &str, home: EngineSide) -> Result<bool> {
        let inner = &self.inner.store.inner;
        match home {
            EngineSide::Jetstream => {
                let mut found = false;
                let root = self.inner.tree.stage(stage);
                // Nothing there is as good as nothing in there.
                for dir in [root.ready(), root.root().join("leaving/ready")] {
                    let mut entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
                    found |= entries.any(|entry| entry.path().is_dir());
                }
                Ok(found)
            }
            EngineSide::Directories => {
                let directory = StageKeys(stage).tickets();
                let refused = lock(&self.inner.refused).get(stage).cloned();
                let refused = refused.unwrap_or_default();
                let mut listed = inner.store.list(&directory, "");
                while let Some(one) = inner.wait(listed.next()) {
                    if !refused.contains(&one?.name) {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }

    /// Carries what lies on the wrong engine, now and then. What is being moved is not touched.
    fn carry_strays(&self, stage: &str, signs: &Signs) -> Result<()> {
        {
            let mut carried = lock(&self.inner.carried);
            let last = carried.get(stage);
            if last.is_some_and(|at| at.elapsed() < CARRY_EVERY) {
                return Ok(());
            }
            carried.insert(stage.to_owned(), Instant::now());
        }
        let standing = self.lately(stage)?;
        if standing.is_moving || !self.has_tree()? || !self.has_strays(stage, standing.home)? {
            return Ok(());
        }
        self.carry_all(stage, signs)
    }

    /// Carries what lies on the wrong engine, so that a parcel of the same name is found to wait.
    fn carry_before_giving(&self, stage: &str) -> Result<()> {
        let standing = self.lately(stage)?;
        if self.has_tree()? && self.has_strays(stage, standing.home)? {
            self.carry_all(stage, &Signs::default())?;
        }
        Ok(())
    }

    /// Carries what lies on the wrong engine, unless another process does or the stage is being moved.
    fn carry_all(&self, stage: &str, signs: &Signs) -> Result<()> {
        if !self.has_tree()? {
            return Ok(());
        }
        let Some(lock) = self.inner.tree.lock_carrying(stage)? else {
            return Ok(());
        };
        // Under the lock nobody else moves the stage: what is read now stays so.
        let standing = self.now(stage)?;
        if standing.is_moving {
            return Ok(());
        }
        let mut step = |_: &'static str| Ok(());
        let mut carrier = self.carrier(stage, lock, signs, &mut step);
        carrier.carry(way_to(standing.home))?;
        for (parcel, reason) in &carrier.carried.left {
            tracing::error!(
                parcel,
                reason,
                "a parcel cannot be carried to the other engine"
            );
        }
        self.remember(stage, carrier.refused);
        Ok(())
    }

    fn carrier<'a>(
        &'a self,
        stage: &'a str,
        lock: ecluse_spool::CarryLock,
        signs: &Signs,
        step: StepWatch<'a>,
    ) -> Carrier<'a> {
        let known = self::lock(&self.inner.refused).get(stage).cloned();
        Carrier {
            tree: &self.inner.tree,
            store: &self.inner.store,
            stage,
            lock,
            signs: signs.clone(),
            step,
            carried: Carried::default(),
            refused: known.unwrap_or_default(),
        }
    }

    fn remember(&self, stage: &str, refused: HashSet<String>) {
        lock(&self.inner.refused).insert(stage.to_owned(), refused);
    }

    /// Takes over the pause of a stage, or that there is none.
    fn copy_pause(&self, stage: &str, to: EngineSide) -> Result<()> {
        let paused = self.side(to.other()).paused(stage)?;
        let Some(paused) = paused else {
            return self.side(to).resume(stage).map(drop);
        };
        match to {
            EngineSide::Directories => self.inner.tree.pause_as(stage, &paused),
            EngineSide::Jetstream => {
                let inner = &self.inner.store.inner;
                let bytes = serde_json::to_vec(&paused).expect("a pause holds only strings");
                inner.wait(inner.store.put(&StageKeys(stage).paused(), &bytes))
            }
        }
    }

    /// Returns the engine that a place is on.
    fn of_place(&self, place: &ParcelPlace) -> &dyn Engine {
        let is_path = place.path.starts_with(self.inner.tree.work());
        self.side(match is_path {
            true => EngineSide::Directories,
            false => EngineSide::Jetstream,
        })
    }

    fn both(&self) -> [&dyn Engine; 2] {
        [&self.inner.tree, &self.inner.store]
    }

    /// Moves a stage on, with the one who settles its dead.
    fn round(
        &self,
        terms: &WorkerTerms<'_>,
        note: (MoveNote, String),
        carrier: &mut Carrier<'_>,
    ) -> Result<MoveRound> {
        let stage = terms.stage;
        let (mut note, etag) = note;
        let way = way_to(note.to);
        let (tree, store) = (&self.inner.tree, &self.inner.store);
        // Kept from round to round: whether a worker of another host is dead, only time tells.
        let known = lock(&self.inner.settlers).remove(stage);
        let mut settler = match known {
            Some((was, settler)) if was == way => settler,
            Some((_, old)) => {
                old.close()?;
                Settler::open(tree, store, way, terms)?
            }
            None => Settler::open(tree, store, way, terms)?,
        };
        settler.settle(store, stage)?;
        lock(&self.inner.settlers).insert(stage.to_owned(), (way, settler));
        carrier.carry(way)?;
        let mut round = MoveRound::default();
        let left = &carrier.refused;
        let from = self.side(note.to.other());
        from.each_place(stage, &mut |place| {
            let key = match way {
                Way::ToStore => place.path.display().to_string(),
                Way::ToDirectories => {
                    let name = place.path.file_name().unwrap_or_default();
                    name.to_string_lossy().into_owned()
                }
            };
            round.remaining += u64::from(!left.contains(&key));
        })?;
        if way == Way::ToStore {
            round.remaining += tree.dropped(stage)? as u64;
        }
        if round.remaining == 0 {
            // Nobody has anything in hand there and nobody will: these are all.
            carrier.copy_receipts(way)?;
            if note.from != note.to {
                self.copy_pause(stage, note.to)?;
            }
            if way == Way::ToStore {
                carrier.forget_gone()?;
            }
            (carrier.step)("ready-to-switch")?;
            note.done = true;
            note.turn += 1;
            note.when = now_text();
            round.is_done = self.put_note(stage, &note, Some(&etag))?;
            if round.is_done {
                (carrier.step)("switched")?;
                from.resume(stage)?;
                let settler = lock(&self.inner.settlers).remove(stage);
                if let Some((_, settler)) = settler {
                    settler.close()?;
                }
                if way == Way::ToStore {
                    self.inner.store.reconcile(stage, ReconcileExtent::All)?;
                }
            }
        }
        round.parcels = carrier.carried.parcels;
        round.receipts = carrier.carried.receipts;
        round.left = std::mem::take(&mut carrier.carried.left);
        self.remember(stage, carrier.refused.clone());
        Ok(round)
    }
}

impl Movable for MixedEngine {
    fn standing(&self, stage: &str) -> Result<StageStanding> {
        self.now(stage)
    }

    fn begin_move(&self, stage: &str, to: EngineSide, who: &str, why: &str) -> Result<()> {
        self.be_the_tree()?;
        loop {
            let before = self.note(stage)?;
            let standing = self.standing_of(before.as_ref().map(|(note, _)| note));
            let going_to = before.as_ref().map_or(standing.home, |(note, _)| note.to);
            if going_to == to {
                return Ok(());
            }
            let (tree, store) = (&self.inner.tree, &self.inner.store);
            tree.init(stage)?;
            Engine::init(store, stage)?;
            let note = MoveNote {
                schema: 1,
                from: standing.home,
                to,
                done: false,
                who: who.to_owned(),
                when: now_text(),
                why: why.to_owned(),
                turn: before.as_ref().map_or(0, |(note, _)| note.turn + 1),
            };
            let etag = before.as_ref().map(|(_, etag)| etag.as_str());
            if self.put_note(stage, &note, etag)? {
                return Ok(());
            }
        }
    }

    fn move_on(
        &self,
        terms: &WorkerTerms<'_>,
        signs: &Signs,
        step: StepWatch<'_>,
    ) -> Result<MoveRound> {
        let stage = terms.stage;
        let busy = MoveRound {
            is_busy: true,
            ..MoveRound::default()
        };
        if !self.has_tree()? {
            return Ok(busy);
        }
        let Some(lock) = self.inner.tree.lock_carrying(stage)? else {
            return Ok(busy);
        };
        let mut carrier = self.carrier(stage, lock, signs, step);
        match self.note(stage)? {
            Some((note, etag)) if !note.done => self.round(terms, (note, etag), &mut carrier),
            // It has moved. What came behind it comes along.
            other => {
                let standing = self.standing_of(other.as_ref().map(|(note, _)| note));
                carrier.carry(way_to(standing.home))?;
                Ok(MoveRound {
                    parcels: carrier.carried.parcels,
                    left: std::mem::take(&mut carrier.carried.left),
                    is_done: true,
                    ..MoveRound::default()
                })
            }
        }
    }

    fn count(&self, stage: &str, side: EngineSide) -> Result<u64> {
        let mut count = 0;
        self.side(side).each_name(stage, &mut |_| count += 1)?;
        Ok(count)
    }
}

impl Engine for MixedEngine {
    fn directories(&self) -> Option<&WorkTree> {
        Some(&self.inner.tree)
    }

    fn movable(&self) -> Option<&dyn Movable> {
        Some(self)
    }

    fn place(&self) -> String {
        let (tree, store) = (&self.inner.tree, &self.inner.store);
        format!("{}, and {}", Engine::place(tree), store.place())
    }

    fn host(&self) -> &Host {
        self.inner.store.host()
    }

    fn init(&self, stage: &str) -> Result<()> {
        for engine in self.both() {
            engine.init(stage)?;
        }
        Ok(())
    }

    fn faults(&self, stage: &str) -> Result<Vec<String>> {
        self.home(stage)?.faults(stage)
    }

    fn probe(&self, stage: &str) -> Result<()> {
        self.home(stage)?.probe(stage)
    }

    fn open_worker(&self, terms: &WorkerTerms<'_>) -> Result<Box<dyn Spool>> {
        let standing = self.now(terms.stage)?;
        let worker = self.side(standing.home).open_worker(terms)?;
        Ok(Box::new(MixedWorker {
            id: worker.name().clone(),
            signs: worker.signs().clone(),
            worker: Some(worker),
            engine: self.clone(),
            side: standing.home,
            stage: terms.stage.to_owned(),
            next: terms.next.to_vec(),
            limits: terms.limits.clone(),
            version: terms.version.to_owned(),
            in_hand: 0,
        }))
    }

    // What has one owner has it wherever the parcels are: it is told in the store.
    fn own(&self, stage: &str, lease: Duration, place: &Path) -> Result<Option<OtherOwner>> {
        self.inner.store.own(stage, lease, place)
    }

    fn disown(&self) {
        self.inner.store.disown();
    }

    fn cluster(&self, stages: &[String]) -> Option<ClusterView> {
        self.inner.store.cluster(stages)
    }

    fn evict(&self, terms: &WorkerTerms<'_>, workers: &[WorkerId]) -> Result<()> {
        for worker in workers {
            let home = self.inner.tree.stage(terms.stage).home(worker);
            let side = match home.exists() {
                true => EngineSide::Directories,
                false => EngineSide::Jetstream,
            };
            self.side(side).evict(terms, std::slice::from_ref(worker))?;
        }
        Ok(())
    }

    fn wire(&self, stage: &str, ring: Ring) -> Option<BellWire> {
        self.inner.store.wire(stage, ring)
    }

    fn reconcile(&self, stage: &str, extent: ReconcileExtent) -> Result<u64> {
        self.carry_all(stage, &Signs::default())?;
        self.home(stage)?.reconcile(stage, extent)
    }

    fn collect(&self, extent: CollectExtent) -> Result<Option<Collected>> {
        match extent {
            CollectExtent::IfDue => Ok(None),
            CollectExtent::Count | CollectExtent::All => Err(SpoolError::Refused(
                "nothing is collected while stages move between engines: 'engine.moving' is true"
                    .into(),
            )),
        }
    }

    fn temporary(&self, stage: &str) -> PathBuf {
        // It need not be where the parcels are, only on this machine.
        match self.home(stage) {
            Ok(home) => home.temporary(stage),
            Err(_) => self.inner.store.temporary(stage),
        }
    }

    fn stage_directory(&self, stage: &str) -> PathBuf {
        match self.home(stage) {
            Ok(home) => home.stage_directory(stage),
            Err(_) => self.inner.store.stage_directory(stage),
        }
    }

    fn stages(&self) -> Result<Vec<String>> {
        let mut stages = Vec::new();
        for engine in self.both() {
            stages.extend(engine.stages()?);
        }
        stages.sort();
        stages.dedup();
        Ok(stages)
    }

    fn depths(&self, stage: &str) -> Result<Depths> {
        let standing = self.lately(stage)?;
        let mut depths = self.side(standing.home).depths(stage)?;
        let other = self.side(standing.home.other()).depths(stage)?;
        depths.ready += other.ready;
        depths.working += other.working;
        depths.deferred += other.deferred;
        depths.held += other.held;
        depths.dropped += other.dropped;
        depths.workers += other.workers;
        depths.oldest_ready = depths.oldest_ready.max(other.oldest_ready);
        depths.oldest_held = depths.oldest_held.max(other.oldest_held);
        depths.next_due = depths.next_due.into_iter().chain(other.next_due).min();
        if let Some(moving) = self.moving_pause(stage)? {
            depths.paused = Some(moving);
        }
        Ok(depths)
    }

    fn workers(&self, stage: &str, lease: Duration) -> Result<Vec<WorkerView>> {
        let mut workers = Vec::new();
        for engine in self.both() {
            workers.extend(engine.workers(stage, lease)?);
        }
        Ok(workers)
    }

    fn throughput(&self, stage: &str, within: Duration) -> Result<Throughput> {
        self.home(stage)?.throughput(stage, within)
    }

    fn pressure(
        &self,
        stage: &str,
        destinations: &[String],
        marks: &Marks,
        blocked: Option<&Blocked>,
    ) -> Result<Option<Blocked>> {
        if let Some(moving) = self.moving_pause(stage)? {
            return Ok(Some(Blocked::Paused(moving)));
        }
        let home = self.lately(stage)?.home;
        let pressed = self
            .side(home)
            .pressure(stage, destinations, marks, blocked)?;
        if pressed.is_some() {
            return Ok(pressed);
        }
        for destination in destinations {
            let theirs = self.lately(destination)?.home;
            if theirs == home {
                continue;
            }
            let was =
                matches!(blocked, Some(Blocked::HighMark { stage, .. }) if stage == destination);
            let mark = if was { marks.low } else { marks.high };
            let waiting = self.side(theirs).depths(destination)?.ready;
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
        self.inner.store.room()
    }

    fn now_seconds(&self, stage: &str) -> u64 {
        match self.home(stage) {
            Ok(home) => home.now_seconds(stage),
            Err(_) => self.inner.store.now_seconds(stage),
        }
    }

    fn clock_skew(&self, stage: &str) -> Option<i64> {
        self.home(stage).ok()?.clock_skew(stage)
    }

    fn clock_owner(&self, stage: &str) -> &'static str {
        match self.home(stage) {
            Ok(home) => home.clock_owner(stage),
            Err(_) => self.inner.store.clock_owner(stage),
        }
    }

    fn paused(&self, stage: &str) -> Result<Option<Paused>> {
        match self.moving_pause(stage)? {
            Some(moving) => Ok(Some(moving)),
            None => self.home(stage)?.paused(stage),
        }
    }

    fn pause(&self, stage: &str, who: &str, why: &str) -> Result<()> {
        self.side(self.now(stage)?.home).pause(stage, who, why)
    }

    fn resume(&self, stage: &str) -> Result<bool> {
        self.side(self.now(stage)?.home).resume(stage)
    }

    fn each_name(&self, stage: &str, see: &mut dyn FnMut(ParcelId)) -> Result<()> {
        for engine in self.both() {
            engine.each_name(stage, see)?;
        }
        Ok(())
    }

    fn each_place(&self, stage: &str, see: &mut dyn FnMut(ParcelPlace)) -> Result<()> {
        for engine in self.both() {
            engine.each_place(stage, see)?;
        }
        Ok(())
    }

    fn locate(&self, stages: &[String], id: &ParcelId) -> Result<Vec<ParcelPlace>> {
        let mut places = Vec::new();
        for stage in stages {
            for engine in self.both() {
                places.extend(engine.locate(std::slice::from_ref(stage), id)?);
            }
        }
        Ok(places)
    }

    fn look_at(&self, place: &ParcelPlace) -> Result<PathBuf> {
        self.of_place(place).look_at(place)
    }

    fn bring(&self, place: &ParcelPlace, file: &FileEntry, directory: &Path) -> Result<PathBuf> {
        self.of_place(place).bring(place, file, directory)
    }

    fn manifest(&self, place: &ParcelPlace) -> Result<ParcelManifest> {
        self.of_place(place).manifest(place)
    }

    fn trouble(&self, place: &ParcelPlace) -> Option<Trouble> {
        self.of_place(place).trouble(place)
    }

    fn why(&self, place: &ParcelPlace) -> Result<Option<Why>> {
        self.of_place(place).why(place)
    }

    fn history(&self, place: &ParcelPlace) -> Result<Vec<Filed>> {
        self.of_place(place).history(place)
    }

    fn receipt(&self, stage: &str, id: &ParcelId) -> Result<Option<Filed>> {
        self.home(stage)?.receipt(stage, id)
    }

    fn each_finished(&self, stages: &[String], see: &mut dyn FnMut(&str, &str)) -> Result<()> {
        // A name is seen once, with the first stage that has it: what the engines have of the stages must be put together.
        let mut seen: HashMap<String, usize> = HashMap::new();
        for engine in self.both() {
            let mut here = Vec::new();
            for stage in stages {
                if std::ptr::addr_eq(self.home(stage)?, engine) {
                    here.push(stage.clone());
                }
            }
            engine.each_finished(&here, &mut |stage, name| {
                let at = stages.iter().position(|known| known == stage);
                let at = at.unwrap_or(usize::MAX);
                let first = seen.entry(name.to_owned()).or_insert(at);
                *first = at.min(*first);
            })?;
        }
        for (name, at) in &seen {
            if let Some(stage) = stages.get(*at) {
                see(stage, name);
            }
        }
        Ok(())
    }

    fn each_receipt(&self, stage: &str, see: &mut dyn FnMut(Filed)) -> Result<()> {
        self.home(stage)?.each_receipt(stage, see)
    }

    fn each_receipt_ever(&self, stage: &str, see: &mut dyn FnMut(Filed)) -> Result<()> {
        self.home(stage)?.each_receipt_ever(stage, see)
    }

    fn put_built(
        &self,
        stage: &str,
        id: &ParcelId,
        kind: &str,
        build: &mut dyn FnMut(&mut NewParcel) -> Result<()>,
    ) -> Result<ParcelId> {
        self.carry_before_giving(stage)?;
        self.home(stage)?.put_built(stage, id, kind, build)
    }

    fn give(&self, stage: &str, file: &Path, gift: &Gift) -> Result<ParcelId> {
        self.carry_before_giving(stage)?;
        self.home(stage)?.give(stage, file, gift)
    }

    fn hold(&self, place: &ParcelPlace, reason: &str, by: &str) -> Result<()> {
        self.of_place(place).hold(place, reason, by)
    }

    fn release(&self, place: &ParcelPlace) -> Result<()> {
        self.of_place(place).release(place)
    }

    fn discard(&self, place: &ParcelPlace, reason: &str, by: &str) -> Result<PathBuf> {
        self.of_place(place).discard(place, reason, by)
    }

    fn sweep(&self, stage: &str, age: Duration) -> Result<usize> {
        let mut swept = 0;
        for engine in self.both() {
            swept += engine.sweep(stage, age)?;
        }
        Ok(swept)
    }

    fn fold(
        &self,
        stage: &str,
        from: u8,
        age: Duration,
        signs: &Signs,
    ) -> Result<Option<FoldedShard>> {
        self.home(stage)?.fold(stage, from, age, signs)
    }
}

fn way_to(side: EngineSide) -> Way {
    match side {
        EngineSide::Directories => Way::ToDirectories,
        EngineSide::Jetstream => Way::ToStore,
    }
}

fn note_key(stage: &str) -> String {
    format!("moves/stages/{stage}.json")
}

fn lock<Value>(mutex: &Mutex<Value>) -> std::sync::MutexGuard<'_, Value> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
