//! Small chains of stages, and one life of the program that runs them until idle.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ecluse_spool::{
    Fs, Host, NewParcel, Outbox, Parcel, ParcelId, Result, Signs, SpoolError, Verdict, Work,
    WorkTree, Worker, WorkerLimits, digest, fold_shard,
};

use super::disk::{Dice, Disk};
use super::fs::Process;

/// Where the work directories of the model lie.
pub(crate) const WORK: &str = "/work";
/// Before this time the stage [`Job::Wait`] defers everything.
const OPENS_MS: u64 = 1_800_000_040_000;

/// What a stage of the model does with a parcel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Job {
    /// Hands it on as it is.
    Pass,
    /// Adds a file `length`.
    Attach,
    /// Takes `text` out, replaces `length` and adds `again`.
    Swap,
    /// Makes two parcels of it.
    Split,
    /// Hands it on with `length` added, and sends a new parcel to the second destination.
    Branch,
    /// Makes one parcel of two.
    Gather,
    /// Defers until the world has opened.
    Wait,
    /// Holds what begins with `bad`.
    Inspect,
    /// Removes it, and notes the digest of its text.
    Consume,
}

/// One stage of a scenario.
pub(crate) struct Stage {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it does.
    pub(crate) job: Job,
    /// Where its results go.
    pub(crate) next: &'static [&'static str],
}

/// A parcel that has to be there when all is done.
pub(crate) struct End {
    /// The stage it waits in.
    pub(crate) stage: &'static str,
    /// Its id.
    pub(crate) id: String,
    /// Its files with their content.
    pub(crate) files: Vec<(String, String)>,
    /// The stages it has passed.
    pub(crate) history: &'static [&'static str],
}

/// A small program and what has to come of it, whatever happens in between.
pub(crate) struct Scenario {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its stages; the first gets the gifts.
    pub(crate) stages: Vec<Stage>,
    /// Parcels given by an operator: id and text.
    pub(crate) gifts: Vec<(String, String)>,
    /// Files dropped by an operator: name and text.
    pub(crate) drops: Vec<(String, String)>,
    /// Begin without any directory.
    pub(crate) bare: bool,
    /// Receipts are folded into the ledger as soon as may be, the dead not yet settled.
    pub(crate) folds: bool,
    /// What has arrived in the end.
    pub(crate) ends: Vec<End>,
    /// The receipts that have to be there: stage and name.
    pub(crate) receipts: Vec<(&'static str, String)>,
    /// What is held in the end: stage, id and reason.
    pub(crate) held: Vec<(&'static str, &'static str, &'static str)>,
}

fn stage(name: &'static str, job: Job, next: &'static [&'static str]) -> Stage {
    Stage { name, job, next }
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter()
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
        .collect()
}

fn end(
    stage: &'static str,
    id: &str,
    files: &[(&str, &str)],
    history: &'static [&'static str],
) -> End {
    End {
        stage,
        id: id.to_owned(),
        files: pairs(files),
        history,
    }
}

fn receipts(list: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    list.iter()
        .map(|(stage, name)| (*stage, (*name).to_owned()))
        .collect()
}

impl Scenario {
    fn new(name: &'static str, stages: Vec<Stage>, gifts: &[(&str, &str)]) -> Self {
        Self {
            name,
            stages,
            gifts: pairs(gifts),
            drops: Vec::new(),
            bare: false,
            folds: false,
            ends: Vec::new(),
            receipts: Vec::new(),
            held: Vec::new(),
        }
    }

    /// Two parcels through two stages that change nothing, on an empty disk.
    pub(crate) fn pass_on() -> Self {
        Self {
            bare: true,
            ends: vec![
                end("end", "a", &[("text", "alpha")], &["one", "two"]),
                end("end", "b", &[("text", "beta")], &["one", "two"]),
            ],
            receipts: receipts(&[("one", "a"), ("one", "b"), ("two", "a"), ("two", "b")]),
            ..Self::new(
                "pass-on",
                vec![
                    stage("one", Job::Pass, &["two"]),
                    stage("two", Job::Pass, &["end"]),
                ],
                &[("a", "alpha"), ("b", "beta")],
            )
        }
    }

    /// Files are added, replaced and taken out on the way.
    pub(crate) fn attach() -> Self {
        Self {
            ends: vec![end(
                "end",
                "a",
                &[("length", "five"), ("again", "alpha")],
                &["one", "two"],
            )],
            receipts: receipts(&[("one", "a"), ("two", "a")]),
            ..Self::new(
                "attach",
                vec![
                    stage("one", Job::Attach, &["two"]),
                    stage("two", Job::Swap, &["end"]),
                ],
                &[("a", "alpha")],
            )
        }
    }

    /// One parcel becomes two.
    pub(crate) fn fan_out() -> Self {
        Self {
            ends: vec![
                end("end", "a-1", &[("text", "alpha 1")], &["one", "two"]),
                end("end", "a-2", &[("text", "alpha 2")], &["one", "two"]),
            ],
            receipts: receipts(&[("one", "a"), ("two", "a-1"), ("two", "a-2")]),
            ..Self::new(
                "fan-out",
                vec![
                    stage("one", Job::Split, &["two"]),
                    stage("two", Job::Pass, &["end"]),
                ],
                &[("a", "alpha")],
            )
        }
    }

    /// A parcel goes on and a new one goes elsewhere; the new one has its parent's history.
    pub(crate) fn branch() -> Self {
        let files = [("text", "alpha"), ("length", "5")];
        Self {
            ends: vec![
                end("end", "a", &files, &["one", "two"]),
                end("side", "a-side", &[("text", "alpha")], &["one", "two"]),
            ],
            receipts: receipts(&[("one", "a"), ("two", "a")]),
            ..Self::new(
                "branch",
                vec![
                    stage("one", Job::Pass, &["two"]),
                    stage("two", Job::Branch, &["end", "side"]),
                ],
                &[("a", "alpha")],
            )
        }
    }

    /// Two parcels become one.
    pub(crate) fn gather() -> Self {
        let members = ["a", "b"].map(|id| ParcelId::new(id).unwrap());
        let batch = ParcelId::of_batch("one", &members);
        Self {
            ends: vec![end(
                "end",
                "all",
                &[("a", "alpha"), ("b", "beta")],
                &["one"],
            )],
            receipts: receipts(&[("one", "a"), ("one", "b"), ("one", batch.as_str())]),
            ..Self::new(
                "gather",
                vec![stage("one", Job::Gather, &["end"])],
                &[("a", "alpha"), ("b", "beta")],
            )
        }
    }

    /// Two parcels become one, and every receipt goes into the ledger.
    pub(crate) fn gather_and_fold() -> Self {
        Self {
            folds: true,
            ..Self::gather()
        }
    }

    /// Files change on the way, and every receipt goes into the ledger.
    pub(crate) fn attach_and_fold() -> Self {
        Self {
            folds: true,
            ..Self::attach()
        }
    }

    /// A parcel that has to wait for the world.
    pub(crate) fn deferral() -> Self {
        Self {
            ends: vec![end("end", "a", &[("text", "alpha")], &["one"])],
            receipts: receipts(&[("one", "a")]),
            ..Self::new(
                "deferral",
                vec![stage("one", Job::Wait, &["end"])],
                &[("a", "alpha")],
            )
        }
    }

    /// A bad parcel and a good one.
    pub(crate) fn hold() -> Self {
        Self {
            ends: vec![end("end", "b", &[("text", "beta")], &["one"])],
            receipts: receipts(&[("one", "b")]),
            held: vec![("one", "a", "it is bad")],
            ..Self::new(
                "hold",
                vec![stage("one", Job::Inspect, &["end"])],
                &[("a", "bad alpha"), ("b", "beta")],
            )
        }
    }

    /// A dropped file.
    pub(crate) fn adoption() -> Self {
        let (name, text) = ("my note.txt", "a note");
        let id = ParcelId::for_file(name.as_ref(), &digest(text.as_bytes()));
        Self {
            drops: pairs(&[(name, text)]),
            ends: vec![end("end", id.as_str(), &[("my_note.txt", text)], &["one"])],
            receipts: receipts(&[("one", id.as_str())]),
            ..Self::new("adoption", vec![stage("one", Job::Pass, &["end"])], &[])
        }
    }

    /// The end of a chain, where the parcel is removed.
    pub(crate) fn consume() -> Self {
        Self {
            receipts: receipts(&[("one", "a"), ("two", "a")]),
            ..Self::new(
                "consume",
                vec![
                    stage("one", Job::Attach, &["two"]),
                    stage("two", Job::Consume, &[]),
                ],
                &[("a", "alpha")],
            )
        }
    }

    /// A group so large that one sync of everything replaces many.
    pub(crate) fn group() -> Self {
        let ids: Vec<String> = (0..10).map(|n| format!("p{n}")).collect();
        let text = |id: &String| format!("text of {id}");
        Self {
            ends: ids
                .iter()
                .map(|id| end("end", id, &[("text", &text(id))], &["one"]))
                .collect(),
            receipts: ids.iter().map(|id| ("one", id.clone())).collect(),
            gifts: ids.iter().map(|id| (id.clone(), text(id))).collect(),
            ..Self::new("group", vec![stage("one", Job::Pass, &["end"])], &[])
        }
    }

    /// Returns the disk a scenario begins on.
    pub(crate) fn disk(&self) -> Disk {
        let process = Process::new(Disk::new(None));
        if !self.bare {
            let tree = tree(&process, "setup");
            for stage in self.stage_names() {
                tree.init(stage).unwrap();
            }
        }
        process.disk().settle();
        process.disk().clone()
    }

    /// Returns the names of all stages, those without a worker too.
    pub(crate) fn stage_names(&self) -> BTreeSet<&'static str> {
        let named = self.stages.iter().map(|stage| stage.name);
        let nexts = self.stages.iter().flat_map(|stage| stage.next);
        named.chain(nexts.copied()).collect()
    }
}

/// How a life takes an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Temper {
    /// None is expected.
    Strict,
    /// The machine fails for a while: reset, and try again.
    Patient,
    /// It may have been taken for dead: a fenced worker stops.
    Fenceable,
}

/// One life of the program on one host.
pub(crate) struct Life<'scenario> {
    scenario: &'scenario Scenario,
    process: Process,
    tree: WorkTree,
    temper: Temper,
    lease: Duration,
    errors: usize,
    /// Changes it had made when it had settled the dead; counted while recording.
    pub(crate) recovered: usize,
    /// Worker directories of others it found when it was born.
    pub(crate) met: BTreeSet<String>,
    /// Its own workers that found themselves fenced.
    pub(crate) fenced: BTreeSet<String>,
    /// Its other workers, each with the calls by which it ended in good order.
    pub(crate) closed: BTreeMap<String, Range<usize>>,
}

impl<'scenario> Life<'scenario> {
    /// Begins a life on the disk of `process`.
    pub(crate) fn new(
        scenario: &'scenario Scenario,
        process: &Process,
        host: &str,
        temper: Temper,
    ) -> Self {
        Self {
            scenario,
            process: process.clone(),
            tree: tree(process, host),
            temper,
            lease: WorkerLimits::default().lease,
            errors: 0,
            recovered: 0,
            met: BTreeSet::new(),
            fenced: BTreeSet::new(),
            closed: BTreeMap::new(),
        }
    }

    /// Takes the workers of other hosts for dead at once.
    pub(crate) fn impatient(mut self) -> Self {
        self.lease = Duration::ZERO;
        self
    }

    /// Gives, recovers, works until idle, and ends in good order.
    pub(crate) fn run(&mut self) -> Result<()> {
        let scenario = self.scenario;
        for (id, text) in &scenario.gifts {
            self.attempt(|life| life.give(id, text))?;
        }
        for (name, text) in &scenario.drops {
            self.attempt(|life| life.drop_file(name, text))?;
        }
        self.met = self.claims();
        let mut workers = Vec::new();
        for stage in &scenario.stages {
            let worker = self.attempt(|life| {
                let next: Vec<String> = stage.next.iter().map(|s| (*s).to_owned()).collect();
                let limits = WorkerLimits {
                    settle: Duration::ZERO,
                    lease: life.lease,
                    ..WorkerLimits::default()
                };
                Worker::open(&life.tree, stage.name, &next, limits, "model")
            })?;
            workers.extend(worker.map(|worker| (stage, worker)));
        }
        self.attempt(Self::fold)?;
        for (_, worker) in &mut workers {
            self.attempt_with(worker, |worker| worker.recover().map(|_| ()))?;
        }
        self.recovered = self.process.changes();
        let mut rounds = 0;
        while self.round(&mut workers)? {
            rounds += 1;
            self.attempt(Self::fold)?;
            // A rival that finds its batch committed and not yet handed over tries again and again.
            if rounds > 50 && self.temper == Temper::Fenceable {
                break;
            }
            assert!(rounds < 500, "{} never comes to rest", scenario.name);
        }
        self.attempt(Self::fold)?;
        for (_, worker) in workers {
            let id = worker.id().to_string();
            if matches!(worker.check_fence(), Err(SpoolError::Fenced { .. })) {
                self.fenced.insert(id);
                continue;
            }
            let calls = self.process.calls();
            let closed = worker.close();
            self.closed.insert(id, calls..self.process.calls());
            if self.temper == Temper::Strict {
                closed?;
            }
        }
        Ok(())
    }

    /// Folds all receipts, however young.
    fn fold(&self) -> Result<()> {
        for stage in self.scenario.stages.iter().filter(|_| self.scenario.folds) {
            let receipts = self.tree.stage(stage.name).receipts();
            let shards = self.process.disk().list(&receipts).unwrap_or_default();
            for (shard, _) in shards {
                let shard = u8::from_str_radix(shard.to_str().unwrap(), 16).unwrap();
                let signs = Signs::default();
                fold_shard(&self.tree, stage.name, shard, Duration::ZERO, &signs)?;
            }
        }
        Ok(())
    }

    /// Lets every stage work once; says whether there is more to do.
    fn round(&mut self, workers: &mut [(&Stage, Worker)]) -> Result<bool> {
        let mut busy = false;
        let mut next_due = None;
        let clock_ms = self.process.disk().outside.clock_ms;
        for (stage, worker) in workers {
            let worked = self.attempt_with(worker, |worker| {
                let due = worker.undefer()?;
                Ok((due, work(worker, stage.job, clock_ms)?))
            })?;
            match worked {
                Worked::Done((due, worked)) => {
                    busy |= worked;
                    next_due = next_due.max(due);
                }
                Worked::Reset => busy = true,
                Worked::Fenced => {}
            }
        }
        if !busy && let Some(due) = next_due {
            let mut disk = self.process.disk();
            disk.outside.clock_ms = disk.outside.clock_ms.max((due + 1) * 1000);
            return Ok(true);
        }
        Ok(busy)
    }

    fn attempt<Value>(
        &mut self,
        mut act: impl FnMut(&Self) -> Result<Value>,
    ) -> Result<Option<Value>> {
        loop {
            match act(self) {
                Ok(value) => return Ok(Some(value)),
                Err(e) => self.bear(e)?,
            }
        }
    }

    fn attempt_with<Value>(
        &mut self,
        worker: &mut Worker,
        mut act: impl FnMut(&mut Worker) -> Result<Value>,
    ) -> Result<Worked<Value>> {
        match act(worker) {
            Ok(value) => return Ok(Worked::Done(value)),
            Err(e) => self.bear(e)?,
        }
        loop {
            match worker.reset() {
                Ok(_) => return Ok(Worked::Reset),
                Err(SpoolError::Fenced { .. }) if self.temper == Temper::Fenceable => {
                    return Ok(Worked::Fenced);
                }
                Err(e) => self.bear(e)?,
            }
        }
    }

    /// Counts an error; passes it on when it is not expected, or comes again and again.
    fn bear(&mut self, e: SpoolError) -> Result<()> {
        self.errors += 1;
        if self.temper == Temper::Strict || self.errors > 40 {
            return Err(e);
        }
        Ok(())
    }

    /// Gives a parcel as an operator does, unless it was said to be safe before.
    fn give(&self, id: &str, text: &str) -> Result<()> {
        if self.process.disk().outside.acknowledged.contains(id) {
            return Ok(());
        }
        let tick = self.process.disk().tick();
        let lives = self.process.disk().lives;
        let stage = self.scenario.stages[0].name;
        let name = ParcelId::new(id).unwrap();
        let given = self.tree.put(stage, &name, "text", |parcel| {
            parcel.manifest().born = format!("{id}-of-life-{lives}-{tick}");
            parcel.write("text", text.as_bytes())?;
            let offer = (id.to_owned(), digest(&parcel.manifest().to_bytes()));
            self.process.disk().outside.offered.insert(offer);
            Ok(())
        });
        match given {
            Ok(_) => {
                let mut disk = self.process.disk();
                disk.outside.acknowledged.insert(id.to_owned());
                Ok(())
            }
            // That it is safe was not said: ask again next time.
            Err(SpoolError::Waits { .. }) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Drops a file as a careful program does: written aside, synced, moved in, synced.
    fn drop_file(&self, name: &str, text: &str) -> Result<()> {
        if self.process.disk().outside.acknowledged.contains(name) {
            return Ok(());
        }
        let stage = self.tree.init(self.scenario.stages[0].name)?;
        let dir = stage.drop();
        let new = stage
            .tmp()
            .join(format!("drop-{}", self.process.disk().tick()));
        let path = dir.join(name);
        let fs = &self.process;
        let dropped = fs
            .write_new(&new, text.as_bytes())
            .and_then(|()| fs.sync_file(&new))
            .and_then(|()| fs.rename(&new, &path))
            .and_then(|()| fs.sync_dir(&dir));
        self.io("drop", &path, dropped)?;
        let mut disk = self.process.disk();
        disk.outside.acknowledged.insert(name.to_owned());
        Ok(())
    }

    fn io(&self, step: &'static str, path: &Path, result: std::io::Result<()>) -> Result<()> {
        result.map_err(|source| SpoolError::Io {
            step,
            path: path.to_owned(),
            source,
        })
    }

    fn claims(&self) -> BTreeSet<String> {
        let disk = self.process.disk();
        let mut claims = BTreeSet::new();
        for stage in &self.scenario.stages {
            let list = disk.list(&self.tree.stage(stage.name).claim());
            for (name, _) in list.unwrap_or_default() {
                claims.insert(name.to_string_lossy().into_owned());
            }
        }
        claims
    }
}

enum Worked<Value> {
    Done(Value),
    Reset,
    Fenced,
}

/// Claims what waits, works on it and commits it together; says whether there was any.
fn work(worker: &mut Worker, job: Job, clock_ms: u64) -> Result<bool> {
    worker.adopt(&[])?;
    let scan = worker.scan()?;
    if scan.waiting.is_empty() {
        return Ok(false);
    }
    let mut parcels = Vec::new();
    for waiting in &scan.waiting {
        parcels.extend(worker.claim(waiting)?);
    }
    let mut works = Vec::new();
    if job == Job::Gather {
        // A copy come late falls out at the claim, and what is left may be too few for a batch.
        if parcels.len() < 2 {
            let settled = parcels.is_empty();
            for parcel in parcels {
                worker.give_back(parcel)?;
            }
            return Ok(settled || scan.waiting.len() > 1);
        }
        works.push(gather(worker, parcels)?);
    } else {
        for parcel in parcels {
            works.extend(treat(worker, job, clock_ms, parcel)?);
        }
    }
    worker.finish(&mut works)?;
    Ok(true)
}

fn treat(worker: &mut Worker, job: Job, clock_ms: u64, parcel: Parcel) -> Result<Option<Work>> {
    let mut outbox = worker.outbox(std::slice::from_ref(&parcel));
    let id = parcel.id().to_string();
    match job {
        Job::Pass => {}
        Job::Attach => attach(&mut outbox, "length", "5")?,
        Job::Swap => {
            let text = read(&parcel, "text")?;
            attach(&mut outbox, "length", "five")?;
            attach(&mut outbox, "again", &text)?;
            outbox.detach("text");
        }
        Job::Split => {
            let text = read(&parcel, "text")?;
            for n in 1..=2 {
                emit(&mut outbox, &format!("{id}-{n}"), &format!("{text} {n}"))?;
            }
            outbox.consume();
        }
        Job::Branch => {
            let text = read(&parcel, "text")?;
            attach(&mut outbox, "length", "5")?;
            let side = new_text(&mut outbox, &format!("{id}-side"), &text)?;
            outbox.emit_to(side, "side");
        }
        Job::Wait => {
            if clock_ms < OPENS_MS {
                let reason = "not open yet".into();
                worker.fail(parcel, &Verdict::Defer { reason })?;
                return Ok(None);
            }
        }
        Job::Inspect => {
            if read(&parcel, "text")?.starts_with("bad") {
                let reason = "it is bad".into();
                worker.fail(parcel, &Verdict::Hold { reason })?;
                return Ok(None);
            }
        }
        Job::Consume => {
            let text = read(&parcel, "text")?;
            outbox.fact("text", digest(text.as_bytes()));
            outbox.consume();
        }
        Job::Gather => unreachable!("a batch is gathered"),
    }
    Ok(Some(Work {
        parcels: vec![parcel],
        outbox,
    }))
}

fn gather(worker: &mut Worker, mut parcels: Vec<Parcel>) -> Result<Work> {
    parcels.sort_by(|a, b| a.id().cmp(b.id()));
    let mut outbox = worker.outbox(&parcels);
    let mut output = outbox.parcel(ParcelId::new("all").unwrap(), "texts")?;
    for parcel in &parcels {
        let text = read(parcel, "text")?;
        let mut file = output.create(parcel.id().as_str())?;
        file.write_all(text.as_bytes()).map_err(broken)?;
        output.add(file)?;
    }
    outbox.emit(output)?;
    Ok(Work { parcels, outbox })
}

fn attach(outbox: &mut Outbox, name: &str, text: &str) -> Result<()> {
    let mut file = outbox.create(name)?;
    file.write_all(text.as_bytes()).map_err(broken)?;
    outbox.attach(file)?;
    Ok(())
}

fn emit(outbox: &mut Outbox, id: &str, text: &str) -> Result<()> {
    let output = new_text(outbox, id, text)?;
    outbox.emit(output)
}

fn new_text(outbox: &mut Outbox, id: &str, text: &str) -> Result<NewParcel> {
    let mut output = outbox.parcel(ParcelId::new(id).unwrap(), "text")?;
    let mut file = output.create("text")?;
    file.write_all(text.as_bytes()).map_err(broken)?;
    output.add(file)?;
    Ok(output)
}

fn read(parcel: &Parcel, name: &str) -> Result<String> {
    let mut text = String::new();
    parcel
        .open(name)?
        .read_to_string(&mut text)
        .map_err(broken)?;
    Ok(text)
}

fn broken(source: std::io::Error) -> SpoolError {
    SpoolError::Io {
        step: "work",
        path: WORK.into(),
        source,
    }
}

/// Returns the tree of one host on a model disk.
pub(crate) fn tree(process: &Process, host: &str) -> WorkTree {
    tree_ahead(process, host, 0)
}

/// Returns the tree of a host whose wall clock is ahead of the disk's, or behind.
pub(crate) fn tree_ahead(process: &Process, host: &str, ahead_ms: i64) -> WorkTree {
    let (lives, boots, start_ms) = {
        let disk = process.disk();
        (disk.lives, disk.boots, disk.outside.clock_ms)
    };
    let (wall, monotonic) = (process.clone(), process.clone());
    let salt = host
        .bytes()
        .fold(0, |salt: u64, b| salt * 31 + u64::from(b));
    let dice = std::sync::Mutex::new(Dice(u64::from(lives) << 32 | salt));
    let start = Instant::now();
    WorkTree::with(
        ecluse_failpoint::wrap(Arc::new(process.clone()), Path::new(WORK)),
        Path::new(WORK),
        Host {
            name: host.to_owned(),
            boot: format!("{boots:08x}"),
            machine: host.to_owned(),
            pid: lives,
        },
        Arc::new(move || wall.disk().outside.clock_ms.saturating_add_signed(ahead_ms)),
        Arc::new(move || dice.lock().unwrap().next()),
    )
    .with_monotonic(Arc::new(move || {
        start + Duration::from_millis(monotonic.disk().outside.clock_ms - start_ms)
    }))
}
