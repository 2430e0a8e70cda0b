//! The store: sorted keys with values on disk, changed in memory, durable at each commit.
//!
//! Changes go into a memtable and, at a commit, into the log with one fsync. A full memtable becomes a
//! run; a new log that names the runs replaces the old one at the next commit, and its first commit is
//! the moment the change counts. So the directory always is at one commit, and no file is ever renamed
//! or changed in place. Formats: `docs/formats/frontier.md`.

mod block;
mod commit;
mod files;
mod filter;
mod index;
mod log;
mod memtable;
mod merge;
mod run;
mod shelf;
mod space;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use self::block::Block;
use self::filter::{Filter, Spare};
use self::log::{Extent, Kind, Log};
use self::memtable::Memtable;
use self::merge::{Merge, Plan};
use self::run::{Cursor, Run, RunWriter};
use self::shelf::Held;
use crate::codec::{Reader, put_number};
use crate::error::{FrontierError, Result, damaged, io_error};

pub use self::commit::PendingCommit;
pub(crate) use self::memtable::Key;
pub(crate) use self::space::Space;

/// Changes waiting in memory for the log, at most.
const PENDING_BYTES: usize = 1 << 20;
/// A log longer than this many memtables is replaced, however often it changed the same keys.
const LOG_MEMTABLES: u64 = 8;
/// With more runs than this the writer waits for a merge.
const MOST_RUNS: usize = 48;
/// A block longer than this holds one long value, and is not kept at hand.
const LONGEST_KEPT_BLOCK: usize = 32 * 1024;
/// Nor does a small block get the memory of one that was larger than this.
const MOST_REUSED_BYTES: usize = 8 * 1024;
/// Merges at one time, of different sizes.
const MOST_MERGES: usize = 3;

const PUT: u8 = 1;
const PUT_FRESH: u8 = 2;
const DELETE: u8 = 3;

/// How much memory the store may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreLimits {
    /// The memtable.
    pub(crate) changes: usize,
    /// The filters of all runs.
    pub(crate) filters: u64,
    /// Blocks kept at hand.
    pub(crate) blocks: usize,
}

/// The open store.
pub(crate) struct Store {
    dir: PathBuf,
    limits: StoreLimits,
    log: Log,
    log_number: u64,
    memtable: Memtable,
    /// Changes since the last commit that are not in the log yet.
    pending: Vec<u8>,
    /// The newest first.
    runs: Vec<Held>,
    next_run: u64,
    /// The log's head no longer is enough: a memtable became a run since.
    spilled: bool,
    /// Runs that no log names yet, and that are not synced.
    unsynced: Vec<(PathBuf, File)>,
    /// Runs that were merged into others, but are still named by the log's head.
    superseded: Vec<u64>,
    merges: Vec<Merge>,
    /// Memory for filters.
    spare: Spare,
    blocks: Vec<Option<CachedBlock>>,
    /// A write failed: set by the commits that are written elsewhere, too.
    dead: Arc<AtomicBool>,
    _lock: File,
}

struct CachedBlock {
    run: u64,
    number: usize,
    block: Arc<Block>,
}

/// What the last commit said.
pub(crate) struct Recovered {
    pub(crate) store: Store,
    pub(crate) meta: Vec<u8>,
}

impl Store {
    /// Opens the store in `dir` at its last commit, making it if there is none.
    pub(crate) fn open(dir: &Path, limits: StoreLimits) -> Result<Recovered> {
        fs::create_dir_all(dir).map_err(io_error("create", dir))?;
        let lock = lock(dir)?;
        let (logs, run_files) = files::listing(dir)?;
        let state = match newest_log(dir, &logs)? {
            Some((number, extent)) => replay(dir, number, &extent, Log::resume)?,
            None => begin(dir)?,
        };
        for number in logs.into_iter().filter(|log| *log != state.log_number) {
            files::remove(&files::log_path(dir, number))?;
        }
        for number in &run_files {
            if !state.runs.contains(number) {
                files::remove(&files::run_path(dir, *number))?;
            }
        }
        let mut recovered = Self::stand_on(dir, limits, state, lock)?;
        recovered.store.next_run = run_files.last().map_or(1, |last| last + 1);
        Ok(recovered)
    }

    /// Opens the store as its last commit left it, changing nothing: neither a file nor whether another can open it. Every
    /// change fails.
    pub(crate) fn open_to_read(dir: &Path, limits: StoreLimits) -> Result<Recovered> {
        let path = dir.join("lock");
        let lock = File::open(&path).map_err(io_error("open", &path))?;
        match lock.try_lock_shared() {
            Ok(()) => lock.unlock().map_err(io_error("unlock", &path))?,
            Err(TryLockError::WouldBlock) => return Err(FrontierError::Locked { path }),
            Err(TryLockError::Error(source)) => return Err(io_error("lock", &path)(source)),
        }
        let (logs, _) = files::listing(dir)?;
        let newest = newest_log(dir, &logs)?;
        let (number, extent) = newest.ok_or_else(|| damaged(&path, 0, "no log beside it"))?;
        let state = replay(dir, number, &extent, Log::read_only)?;
        Self::stand_on(dir, limits, state, lock)
    }

    fn stand_on(
        dir: &Path,
        limits: StoreLimits,
        mut state: StoreState,
        lock: File,
    ) -> Result<Recovered> {
        let (mut runs, spare) = (Vec::new(), Spare::default());
        for number in &state.runs {
            let path = files::run_path(dir, *number);
            runs.push(Held::open(&path, *number, &spare)?);
            shelf::fit(&mut runs, limits.filters);
        }
        spare.clear();
        let meta = std::mem::take(&mut state.meta);
        let store = Self {
            dir: dir.to_owned(),
            limits,
            log: state.log,
            log_number: state.log_number,
            memtable: state.memtable,
            pending: Vec::new(),
            runs,
            next_run: 1,
            spilled: false,
            unsynced: Vec::new(),
            superseded: Vec::new(),
            merges: Vec::new(),
            spare,
            blocks: std::iter::repeat_with(|| None)
                .take(limits.blocks.max(1))
                .collect(),
            dead: Arc::default(),
            _lock: lock,
        };
        Ok(Recovered { store, meta })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Takes new limits; memory above them is given back as things are written.
    pub(crate) fn set_limits(&mut self, limits: StoreLimits) {
        self.limits = limits;
        shelf::fit(&mut self.runs, limits.filters);
        self.spare.clear();
        self.blocks.clear();
        self.blocks.resize_with(limits.blocks.max(1), || None);
    }

    /// Sets a value.
    pub(crate) fn put(&mut self, key: Key, value: &[u8]) -> Result<()> {
        self.change(PUT, key, value)
    }

    /// Sets the value of a key that never was in the store before.
    pub(crate) fn put_fresh(&mut self, key: Key, value: &[u8]) -> Result<()> {
        self.change(PUT_FRESH, key, value)
    }

    /// Removes a key.
    pub(crate) fn delete(&mut self, key: Key) -> Result<()> {
        self.change(DELETE, key, &[])
    }

    fn change(&mut self, act: u8, key: Key, value: &[u8]) -> Result<()> {
        self.alive()?;
        self.pending.push(act);
        self.pending.push(key.as_slice().len() as u8);
        self.pending.extend_from_slice(key.as_slice());
        if act != DELETE {
            put_number(&mut self.pending, value.len() as u64);
            self.pending.extend_from_slice(value);
        }
        apply(&mut self.memtable, act, key, value);
        if self.pending.len() > PENDING_BYTES {
            let written = self.log.append(&[(Kind::Changes, &self.pending)]);
            self.pending.clear();
            self.or_dead(written)?;
        }
        if self.memtable.bytes() > self.limits.changes {
            let spilled = self.spill();
            self.or_dead(spilled)?;
        }
        Ok(())
    }

    /// Looks a key up.
    pub(crate) fn get(&mut self, key: &Key) -> Result<Option<Vec<u8>>> {
        if let Some(found) = self.memtable.get(key) {
            return Ok(found.map(<[u8]>::to_vec));
        }
        let bytes = key.as_slice();
        let told = Space::of(bytes).filtered(bytes);
        let hash = (!told.is_empty()).then(|| filter::hash(told));
        for index in 0..self.runs.len() {
            if hash.is_some_and(|hash| !self.runs[index].may_contain(hash)) {
                continue;
            }
            let Some(number) = self.runs[index].run.block_of(bytes) else {
                continue;
            };
            let block = self.block(index, number)?;
            let broken = || self.runs[index].run.broken(number);
            let (entry, found) = block.seek(bytes).ok_or_else(broken)?;
            if found {
                let value = block.value(entry).ok_or_else(broken)?;
                return Ok(value.map(<[u8]>::to_vec));
            }
        }
        Ok(None)
    }

    fn block(&mut self, index: usize, number: usize) -> Result<Arc<Block>> {
        let run = &self.runs[index].run;
        let place = (run.number as usize)
            .wrapping_mul(0x9e37_79b9)
            .wrapping_add(number)
            % self.blocks.len();
        if let Some(cached) = &self.blocks[place]
            && cached.run == run.number
            && cached.number == number
        {
            return Ok(Arc::clone(&cached.block));
        }
        let old = self.blocks[place].take();
        let old = old.and_then(|cached| Arc::into_inner(cached.block));
        let old = old.filter(|old| old.bytes() <= MOST_REUSED_BYTES);
        let block = Arc::new(run.block(number, old)?);
        if block.bytes() > LONGEST_KEPT_BLOCK {
            return Ok(block);
        }
        self.blocks[place] = Some(CachedBlock {
            run: run.number,
            number,
            block: Arc::clone(&block),
        });
        Ok(block)
    }

    /// Gives the entries from `range.start` to before `range.end` to `each`, until it returns false.
    pub(crate) fn scan(
        &self,
        range: Range<Key>,
        mut each: impl FnMut(&Key, &[u8]) -> bool,
    ) -> Result<()> {
        let space = Space::of(range.start.as_slice());
        let told = space.filtered(range.start.as_slice());
        // A filter knows the owner of a range only if the range does not go beyond that owner.
        let owned = !told.is_empty()
            && told.len() < range.start.as_slice().len()
            && range.end.as_slice().starts_with(told);
        let hash = owned.then(|| filter::hash(told));
        let mut cursors = Vec::new();
        for held in &self.runs {
            if hash.is_none_or(|hash| held.may_contain(hash)) {
                let cursor = Cursor::seek(Arc::clone(&held.run), &range.start)?;
                if cursor.key().is_some_and(|key| *key < range.end) {
                    cursors.push(cursor);
                }
            }
        }
        let mut changes = self.memtable.range(&range.start).peekable();
        loop {
            let stored = merge::least(&cursors);
            let changed = changes.peek().map(|(key, _)| **key);
            let key = match (stored, changed) {
                (None, None) => return Ok(()),
                (Some((_, key)), None) => key,
                (None, Some(key)) => key,
                (Some((_, one)), Some(other)) => one.min(other),
            };
            if key >= range.end {
                return Ok(());
            }
            let value = match changes.next_if(|(changed, _)| **changed == key) {
                Some((_, value)) => value,
                None => stored.and_then(|(newest, _)| cursors[newest].value()),
            };
            if let Some(value) = value
                && !each(&key, value)
            {
                return Ok(());
            }
            for cursor in &mut cursors {
                if cursor.key() == Some(&key) {
                    cursor.advance()?;
                }
            }
        }
    }

    /// Makes every change so far durable, with `meta`, as one.
    pub(crate) fn commit(&mut self, meta: &[u8]) -> Result<()> {
        self.begin_commit(meta)?.write()
    }

    /// Puts every change so far, with `meta`, into a commit that is to be written: by whom and when is the caller's to say,
    /// as long as commits are written in the order in which they were begun.
    pub(crate) fn begin_commit(&mut self, meta: &[u8]) -> Result<PendingCommit> {
        self.alive()?;
        let begun = self.try_begin_commit(meta);
        self.or_dead(begun)
    }

    fn try_begin_commit(&mut self, meta: &[u8]) -> Result<PendingCommit> {
        self.settle_merges()?;
        if self.log.bytes() > LOG_MEMTABLES * self.limits.changes as u64 && !self.spilled {
            self.spill()?;
        }
        let mut commit = PendingCommit::new(&self.dead);
        if self.spilled {
            self.begin_log(&mut commit)?;
        }
        let pending = std::mem::take(&mut self.pending);
        let frames = [(Kind::Changes, &pending[..]), (Kind::Commit, meta)];
        commit.frames = Some(self.log.frame(&frames));
        self.pending = pending;
        self.pending.clear();
        Ok(commit)
    }

    /// Starts the log that stands on the present runs. The commit makes it count, and removes what it makes needless.
    fn begin_log(&mut self, commit: &mut PendingCommit) -> Result<()> {
        let old = files::log_path(&self.dir, self.log_number);
        self.log_number += 1;
        self.log = Log::create(&files::log_path(&self.dir, self.log_number))?;
        self.log.append(&[(Kind::Head, &head(&self.runs))])?;
        self.spilled = false;
        commit.runs = std::mem::take(&mut self.unsynced);
        commit.names = Some(self.dir.clone());
        let runs = self.superseded.drain(..);
        commit.needless = runs.map(|run| files::run_path(&self.dir, run)).collect();
        commit.needless.push(old);
        Ok(())
    }

    /// Turns the memtable into a run; it counts from the next commit on.
    fn spill(&mut self) -> Result<()> {
        if self.memtable.is_empty() {
            return Ok(());
        }
        self.settle_merges()?;
        while self.runs.len() >= MOST_RUNS && !self.merges.is_empty() {
            self.wait_for_merge()?;
        }
        let keys = self.memtable.len() as u64;
        let filter = self.new_filter(keys, &[]);
        let number = self.next_run;
        self.next_run += 1;
        let path = files::run_path(&self.dir, number);
        let mut out = RunWriter::create(&path, number, filter)?;
        for (key, value) in self.memtable.range(&Key::new(&[])) {
            out.push(*key, value)?;
        }
        let (run, file) = out.finish_unsynced()?;
        self.runs.insert(0, run);
        self.unsynced.push((path, file));
        self.memtable.clear();
        // What these changes say is in the run now, and in no commit of the old log.
        self.pending.clear();
        self.spilled = true;
        self.start_merge()
    }

    /// A filter for so many keys, with what memory there is. The runs in `leaving` are merged into its run.
    fn new_filter(&mut self, keys: u64, leaving: &[u64]) -> Option<Filter> {
        let building: u64 = self.merges.iter().map(|merge| merge.filter_bytes).sum();
        let limit = self.limits.filters.saturating_sub(building);
        let leaves = |run: &Run| leaving.contains(&run.number);
        let room = shelf::make_room(&mut self.runs, leaves, limit, keys);
        Filter::sized(keys, room, &self.spare)
    }

    fn start_merge(&mut self) -> Result<()> {
        if self.merges.len() >= MOST_MERGES {
            return Ok(());
        }
        let busy = |held: &Held| {
            let mut merges = self.merges.iter();
            merges.any(|merge| merge.inputs.contains(&held.run.number))
        };
        let free = self.runs.iter().take_while(|held| !busy(held)).count();
        let free = self.runs[..free].iter();
        let sizes: Vec<u64> = free.map(|held| held.run.bytes()).collect();
        let Some(chosen) = merge::choose(&sizes, self.limits.changes as u64 / 2) else {
            return Ok(());
        };
        let inputs = self.runs[chosen.clone()].iter();
        let inputs: Vec<Arc<Run>> = inputs.map(|held| Arc::clone(&held.run)).collect();
        let keys = inputs.iter().map(|run| run.filtered_keys).sum();
        let numbers: Vec<u64> = inputs.iter().map(|run| run.number).collect();
        let filter = self.new_filter(keys, &numbers);
        let number = self.next_run;
        self.next_run += 1;
        let merge = Merge::start(Plan {
            inputs,
            oldest: chosen.end == self.runs.len(),
            path: files::run_path(&self.dir, number),
            number,
            filter,
        })?;
        self.merges.push(merge);
        Ok(())
    }

    /// Takes over what finished merges wrote, and starts the next.
    fn settle_merges(&mut self) -> Result<()> {
        while let Some(done) = self.merges.iter().position(Merge::is_finished) {
            let merge = self.merges.swap_remove(done);
            self.take_over(merge)?;
            self.start_merge()?;
        }
        Ok(())
    }

    fn wait_for_merge(&mut self) -> Result<()> {
        // The last one started is the smallest, as a rule.
        if let Some(merge) = self.merges.pop() {
            self.take_over(merge)?;
            self.start_merge()?;
        }
        Ok(())
    }

    fn take_over(&mut self, merge: Merge) -> Result<()> {
        let inputs = merge.inputs.clone();
        let Some(merged) = merge.join()? else {
            return Ok(());
        };
        let first = |held: &Held| held.run.number == inputs[0];
        let place = self.runs.iter().position(first);
        let place = place.expect("runs being merged stay in the list");
        self.runs.splice(place..place + inputs.len(), [merged]);
        self.superseded.extend(inputs);
        Ok(())
    }

    fn alive(&self) -> Result<()> {
        match self.dead.load(Ordering::Relaxed) {
            true => Err(FrontierError::Dead {
                dir: self.dir.clone(),
            }),
            false => Ok(()),
        }
    }

    /// After a failed write the files say nothing certain: only opening them again does.
    fn or_dead<Value>(&mut self, result: Result<Value>) -> Result<Value> {
        if result.is_err() {
            self.dead.store(true, Ordering::Relaxed);
        }
        result
    }

    /// What the store holds in memory and on disk.
    pub(crate) fn size(&self) -> StoreSize {
        let runs = || self.runs.iter().map(|held| &held.run);
        let index_bytes: u64 = runs().map(|run| run.index_bytes()).sum();
        StoreSize {
            runs: self.runs.len(),
            run_bytes: runs().map(|run| run.bytes()).sum(),
            log_bytes: self.log.bytes(),
            memory_bytes: self.memtable.bytes() as u64
                + shelf::filter_bytes(&self.runs)
                + index_bytes,
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        for merge in self.merges.drain(..) {
            merge.cancel();
        }
    }
}

/// What a store holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StoreSize {
    /// Sorted files.
    pub runs: usize,
    /// Their bytes.
    pub run_bytes: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Memory for changes, filters and indexes.
    pub memory_bytes: u64,
}

fn lock(dir: &Path) -> Result<File> {
    let path = dir.join("lock");
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(io_error("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(FrontierError::Locked { path }),
        Err(TryLockError::Error(source)) => Err(io_error("lock", &path)(source)),
    }
}

/// The newest log with a commit. One without is what a crash left of the next log.
fn newest_log(dir: &Path, logs: &[u64]) -> Result<Option<(u64, Extent)>> {
    for number in logs.iter().rev() {
        if let Some(extent) = log::extent(&files::log_path(dir, *number))? {
            return Ok(Some((*number, extent)));
        }
    }
    match logs {
        // The very first log has no predecessor that could still be there.
        [] | [1] => Ok(None),
        [.., last] => Err(damaged(
            &files::log_path(dir, *last),
            0,
            "no commit in any log",
        )),
    }
}

struct StoreState {
    log: Log,
    log_number: u64,
    memtable: Memtable,
    runs: Vec<u64>,
    meta: Vec<u8>,
}

/// The first log of a new store, with an empty commit.
fn begin(dir: &Path) -> Result<StoreState> {
    let mut log = Log::create(&files::log_path(dir, 1))?;
    let frames = log.frame(&[(Kind::Head, &head(&[])), (Kind::Commit, b"")]);
    frames.write()?;
    frames.sync()?;
    files::sync_dir(dir)?;
    Ok(StoreState {
        log,
        log_number: 1,
        memtable: Memtable::default(),
        runs: Vec::new(),
        meta: Vec::new(),
    })
}

fn replay(
    dir: &Path,
    number: u64,
    extent: &Extent,
    open: impl FnOnce(&Path, &Extent) -> Result<Log>,
) -> Result<StoreState> {
    let path = files::log_path(dir, number);
    let mut memtable = Memtable::default();
    let (mut runs, mut meta) = (Vec::new(), Vec::new());
    log::replay(&path, extent, |kind, body| {
        match kind {
            Kind::Head => runs = read_head(body)?,
            Kind::Changes => apply_all(&mut memtable, body)?,
            Kind::Commit => {
                meta.clear();
                meta.extend_from_slice(body);
            }
        }
        Some(())
    })?;
    Ok(StoreState {
        log: open(&path, extent)?,
        log_number: number,
        memtable,
        runs,
        meta,
    })
}

fn head(runs: &[Held]) -> Vec<u8> {
    let mut out = Vec::new();
    for held in runs {
        put_number(&mut out, held.run.number);
    }
    out
}

fn read_head(body: &[u8]) -> Option<Vec<u64>> {
    let mut reader = Reader::new(body);
    let mut runs = Vec::new();
    while !reader.is_empty() {
        runs.push(reader.number()?);
    }
    Some(runs)
}

fn apply_all(memtable: &mut Memtable, body: &[u8]) -> Option<()> {
    let mut reader = Reader::new(body);
    while !reader.is_empty() {
        let act = reader.byte()?;
        let key_len = reader.byte()?;
        let key = Key::new(&[reader.take(usize::from(key_len))?]);
        let value = match act {
            PUT | PUT_FRESH => reader.bytes()?,
            DELETE => &[],
            _ => return None,
        };
        apply(memtable, act, key, value);
    }
    Some(())
}

fn apply(memtable: &mut Memtable, act: u8, key: Key, value: &[u8]) {
    match act {
        DELETE => memtable.delete(key),
        _ => memtable.put(key, value, act == PUT_FRESH),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const SMALL: StoreLimits = StoreLimits {
        changes: 4096,
        filters: 1 << 16,
        blocks: 4,
    };

    fn key(number: u16) -> Key {
        let space = [b's', b'q', b'i', b'r', b'w', b'n'][usize::from(number % 6)];
        Key::new(&[&[space], b"0123456789abcdef", &number.to_be_bytes()])
    }

    fn all(store: &Store) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut found = BTreeMap::new();
        let range = Key::new(&[b""])..Key::new(&[&[0xff]]);
        store
            .scan(range, |key, value| {
                found.insert(key.as_slice().to_vec(), value.to_vec());
                true
            })
            .unwrap();
        found
    }

    #[derive(Clone, Debug)]
    enum Act {
        Put(u16, Vec<u8>),
        Delete(u16),
        Commit,
        Reopen,
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            20 => (0..200_u16, prop::collection::vec(any::<u8>(), 0..300)).prop_map(|(key, value)| Act::Put(key, value)),
            10 => (0..200_u16).prop_map(Act::Delete),
            3 => Just(Act::Commit),
            1 => Just(Act::Reopen),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn it_is_a_map_that_falls_back_to_its_last_commit(acts in prop::collection::vec(act(), 1..400)) {
            let dir = tempfile::tempdir().unwrap();
            let mut store = Store::open(dir.path(), SMALL).unwrap().store;
            let mut model = BTreeMap::new();
            let mut committed = model.clone();
            let mut commits = 0_u32;
            for act in acts {
                match act {
                    Act::Put(number, value) => {
                        store.put(key(number), &value).unwrap();
                        model.insert(key(number).as_slice().to_vec(), value);
                    }
                    Act::Delete(number) => {
                        store.delete(key(number)).unwrap();
                        model.remove(key(number).as_slice());
                    }
                    Act::Commit => {
                        commits += 1;
                        store.commit(&commits.to_le_bytes()).unwrap();
                        committed = model.clone();
                    }
                    Act::Reopen => {
                        drop(store);
                        let recovered = Store::open(dir.path(), SMALL).unwrap();
                        store = recovered.store;
                        if commits > 0 {
                            prop_assert_eq!(recovered.meta, commits.to_le_bytes());
                        }
                        model = committed.clone();
                    }
                }
            }
            prop_assert_eq!(&all(&store), &model);
            for number in 0..200 {
                let expected = model.get(key(number).as_slice()).cloned();
                prop_assert_eq!(store.get(&key(number)).unwrap(), expected);
            }
        }
    }

    #[test]
    fn commits_that_are_written_later_count_one_by_one() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path(), SMALL).unwrap().store;
        // So large that the second and the fourth begin a log of their own.
        let values = [10, 5000, 20, 6000, 30];
        let mut commits = Vec::new();
        for (number, bytes) in (0..).zip(values) {
            store.put(key(number), &vec![7; bytes]).unwrap();
            commits.push(store.begin_commit(&[number as u8]).unwrap());
            assert_eq!(store.get(&key(0)).unwrap().unwrap().len(), values[0]);
        }
        // As a crash leaves them: the directory as it was when so many were written.
        let lies = || {
            let copy = tempfile::tempdir().unwrap();
            for entry in fs::read_dir(dir.path()).unwrap() {
                let entry = entry.unwrap();
                fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
            }
            let recovered = Store::open(copy.path(), SMALL).unwrap();
            (recovered.meta, all(&recovered.store).len())
        };
        assert_eq!(lies(), (Vec::new(), 0));
        for (number, commit) in commits.into_iter().enumerate() {
            commit.write().unwrap();
            assert_eq!(lies(), (vec![number as u8], number + 1));
        }
        assert_eq!(files::listing(dir.path()).unwrap().0.len(), 1);
    }

    #[test]
    fn after_a_commit_that_nobody_wrote_nothing_more_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path(), SMALL).unwrap().store;
        store.put(key(1), b"one").unwrap();
        store.commit(b"1").unwrap();
        store.put(key(2), b"two").unwrap();
        drop(store.begin_commit(b"2").unwrap());
        assert!(matches!(
            store.put(key(3), b"three"),
            Err(FrontierError::Dead { .. })
        ));
        drop(store);
        assert_eq!(Store::open(dir.path(), SMALL).unwrap().meta, b"1");
    }

    #[test]
    fn runs_are_merged_and_superseded_files_go() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path(), SMALL).unwrap().store;
        for number in 0..20_000_u64 {
            let bytes = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
            store.put(Key::new(&[b"s", &bytes]), b"value").unwrap();
            if number % 100 == 0 {
                store.commit(b"").unwrap();
            }
        }
        while !store.merges.is_empty() {
            store.wait_for_merge().unwrap();
        }
        let held = shelf::filter_bytes(&store.runs);
        assert!(held <= SMALL.filters, "{held} bytes of filters");
        assert!(store.runs.len() < 20, "{} runs", store.runs.len());
        assert_eq!(all(&store).len(), 20_000);
        store.put(Key::new(&[b"x"]), &[0; 5000]).unwrap();
        store.commit(b"end").unwrap();
        drop(store);
        let recovered = Store::open(dir.path(), SMALL).unwrap();
        assert_eq!(recovered.meta, b"end");
        let (logs, runs) = files::listing(dir.path()).unwrap();
        assert_eq!(logs.len(), 1);
        assert_eq!(runs.len(), recovered.store.runs.len());
        assert_eq!(all(&recovered.store).len(), 20_001);
    }

    #[test]
    fn filters_share_little_memory_and_small_runs_keep_theirs() {
        let dir = tempfile::tempdir().unwrap();
        let key = |number: u64| {
            let bytes = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
            Key::new(&[b"s", &bytes])
        };
        let mut limits = StoreLimits {
            filters: 8192,
            ..SMALL
        };
        let mut store = Store::open(dir.path(), limits).unwrap().store;
        for number in 0..20_000 {
            store.put(key(number), b"value").unwrap();
            let building = store.merges.iter().map(|merge| merge.filter_bytes);
            let held = shelf::filter_bytes(&store.runs) + building.sum::<u64>();
            assert!(held <= limits.filters, "{held} bytes of filters");
        }
        store.commit(b"").unwrap();
        let newest = &store.runs[0];
        assert!(newest.filter_bytes() * 8 >= 5 * newest.run.filtered_keys);
        for filters in [8192, 1000, 0] {
            drop(store);
            limits.filters = filters;
            store = Store::open(dir.path(), limits).unwrap().store;
            assert!(shelf::filter_bytes(&store.runs) <= filters);
            for number in 0..20_000 {
                assert_eq!(
                    store.get(&key(number)).unwrap().as_deref(),
                    Some(&b"value"[..])
                );
            }
            assert_eq!(store.get(&key(20_000)).unwrap(), None);
        }
    }

    #[test]
    fn a_second_process_is_refused_and_damage_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path(), SMALL).unwrap().store;
        let again = Store::open(dir.path(), SMALL).err();
        assert!(matches!(again, Some(FrontierError::Locked { .. })));
        for number in 0..200 {
            store.put(key(number), &[7; 100]).unwrap();
        }
        store.commit(b"").unwrap();
        drop(store);
        drop(Store::open(dir.path(), SMALL).unwrap());
        let newest = *files::listing(dir.path()).unwrap().1.last().unwrap();
        let run = files::run_path(dir.path(), newest);
        let mut bytes = fs::read(&run).unwrap();
        bytes[40] ^= 1;
        fs::write(&run, &bytes).unwrap();
        let store = Store::open(dir.path(), SMALL).unwrap().store;
        let range = Key::new(&[b""])..Key::new(&[&[0xff]]);
        let found = store.scan(range, |_, _| true);
        assert!(matches!(found, Err(FrontierError::Damaged { path, .. }) if path == run));
    }
}
