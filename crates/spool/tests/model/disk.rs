//! The disk of the model: what processes see, and what a power cut may leave of it.
//!
//! Names and bytes are kept apart. A change of names is one entry of a log; a power cut keeps a
//! prefix of the log that holds everything a sync has promised, as a journalling file system does.
//! The bytes of a file that were not synced may survive, be cut short, or be gone. What this leaves
//! out: metadata that becomes durable out of order, and bits that turn.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

/// The number of a file or directory; never used twice.
pub(crate) type Inode = u64;

const ROOT: Inode = 1;
/// File systems: the one everything lies on, and a second one for a stage that lies apart.
const DEVICES: usize = 2;

type Names = BTreeMap<OsString, Inode>;

#[derive(Clone)]
enum Node {
    Dir {
        names: Arc<Names>,
        device: usize,
    },
    File {
        bytes: Arc<Vec<u8>>,
        synced: Arc<Vec<u8>>,
        /// A sync failed: the kernel calls the pages clean, and no later sync writes them.
        lost: bool,
        device: usize,
        touched: u64,
    },
}

/// One change of names, which happens whole or not at all.
#[derive(Clone, Hash)]
struct Change {
    device: usize,
    edits: Vec<Edit>,
}

#[derive(Clone, Hash)]
struct Edit {
    dir: Inode,
    name: OsString,
    now: Option<Inode>,
}

/// What lies outside the machine and no crash changes: the clock, the operator's memory.
#[derive(Clone, Default, Hash)]
pub(crate) struct Outside {
    /// The wall clock.
    pub(crate) clock_ms: u64,
    /// Gifts the operator was told are safe.
    pub(crate) acknowledged: BTreeSet<String>,
    /// Digests of the manifests the operator tried to give.
    pub(crate) offered: BTreeSet<(String, String)>,
}

/// A disk, its processes' locks, and what lies outside.
#[derive(Clone)]
pub(crate) struct Disk {
    nodes: BTreeMap<Inode, Node>,
    durable: BTreeMap<Inode, Arc<Names>>,
    log: Vec<Change>,
    locks: BTreeMap<Inode, u64>,
    last_inode: Inode,
    ticks: u64,
    apart: Option<PathBuf>,
    /// Boots of the machine.
    pub(crate) boots: u32,
    /// Lives of the program, the present one included.
    pub(crate) lives: u32,
    /// What no crash touches.
    pub(crate) outside: Outside,
}

/// What becomes of bytes that were not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Survival {
    /// Those of the last sync.
    Old,
    /// None.
    Empty,
    /// The first half.
    Torn,
    /// All.
    New,
}

/// One legal outcome of a power cut.
#[derive(Debug, Clone)]
pub(crate) struct Cut {
    keep: [usize; DEVICES],
    bytes: Fates,
}

/// Files whose bytes a power cut may take, with what may become of each.
type Unsynced = Vec<(Inode, Vec<Survival>)>;

#[derive(Debug, Clone)]
enum Fates {
    All(Survival),
    Each(Vec<(Inode, Survival)>),
}

/// A thing on the disk, as the judge sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Thing {
    /// A directory.
    Dir,
    /// A file with its bytes and its number.
    File(Arc<Vec<u8>>, Inode),
}

impl Disk {
    /// Returns an empty disk. A directory made at `apart` lies on a file system of its own.
    pub(crate) fn new(apart: Option<&Path>) -> Self {
        let names = Arc::new(Names::new());
        Self {
            nodes: BTreeMap::from([(
                ROOT,
                Node::Dir {
                    names: Arc::clone(&names),
                    device: 0,
                },
            )]),
            durable: BTreeMap::from([(ROOT, names)]),
            log: Vec::new(),
            locks: BTreeMap::new(),
            last_inode: ROOT,
            ticks: 0,
            apart: apart.map(Path::to_owned),
            boots: 1,
            lives: 1,
            outside: Outside {
                clock_ms: 1_800_000_000_000,
                ..Outside::default()
            },
        }
    }

    /// Makes a directory.
    pub(crate) fn mkdir(&mut self, path: &Path) -> io::Result<()> {
        let Some((dir, name)) = self.parent(path)? else {
            return Err(Errno::EXIST.into());
        };
        if self.names(dir)?.contains_key(name) {
            return Err(Errno::EXIST.into());
        }
        let device = match &self.apart {
            Some(apart) if apart == path => 1,
            _ => self.device(dir),
        };
        let inode = self.add(Node::Dir {
            names: Arc::default(),
            device,
        });
        self.change(vec![edit(dir, name, Some(inode))]);
        Ok(())
    }

    /// Removes an empty directory.
    pub(crate) fn rmdir(&mut self, path: &Path) -> io::Result<()> {
        let (dir, name, inode) = self.entry(path)?;
        if !self.names(inode)?.is_empty() {
            return Err(Errno::NOTEMPTY.into());
        }
        self.change(vec![edit(dir, &name, None)]);
        Ok(())
    }

    /// Removes one name of a file.
    pub(crate) fn unlink(&mut self, path: &Path) -> io::Result<()> {
        let (dir, name, inode) = self.entry(path)?;
        if self.is_dir(inode) {
            return Err(Errno::ISDIR.into());
        }
        self.change(vec![edit(dir, &name, None)]);
        Ok(())
    }

    /// Moves a file or directory.
    pub(crate) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let (from_dir, from_name, inode) = self.entry(from)?;
        let Some((to_dir, to_name)) = self.parent(to)? else {
            return Err(Errno::BUSY.into());
        };
        if to.starts_with(from) && to != from {
            return Err(Errno::INVAL.into());
        }
        if self.device(from_dir) != self.device(to_dir) {
            return Err(Errno::XDEV.into());
        }
        if let Some(&there) = self.names(to_dir)?.get(to_name) {
            if there == inode {
                return Ok(());
            }
            match (self.is_dir(inode), self.is_dir(there)) {
                (true, false) => return Err(Errno::NOTDIR.into()),
                (false, true) => return Err(Errno::ISDIR.into()),
                (true, true) if !self.names(there)?.is_empty() => {
                    return Err(Errno::NOTEMPTY.into());
                }
                _ => {}
            }
        }
        let to_name = to_name.to_owned();
        self.change(vec![
            edit(from_dir, &from_name, None),
            edit(to_dir, &to_name, Some(inode)),
        ]);
        Ok(())
    }

    /// Gives a file a second name.
    pub(crate) fn link(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let (from_dir, _, inode) = self.entry(from)?;
        let Some((dir, name)) = self.parent(to)? else {
            return Err(Errno::EXIST.into());
        };
        if self.names(dir)?.contains_key(name) {
            return Err(Errno::EXIST.into());
        }
        if self.is_dir(inode) {
            return Err(Errno::PERM.into());
        }
        if self.device(from_dir) != self.device(dir) {
            return Err(Errno::XDEV.into());
        }
        let name = name.to_owned();
        self.change(vec![edit(dir, &name, Some(inode))]);
        Ok(())
    }

    /// Creates an empty file.
    pub(crate) fn create(&mut self, path: &Path) -> io::Result<Inode> {
        let Some((dir, name)) = self.parent(path)? else {
            return Err(Errno::EXIST.into());
        };
        if self.names(dir)?.contains_key(name) {
            return Err(Errno::EXIST.into());
        }
        let (name, device, touched) = (name.to_owned(), self.device(dir), self.tick());
        let inode = self.add(Node::File {
            bytes: Arc::default(),
            synced: Arc::default(),
            lost: false,
            device,
            touched,
        });
        self.change(vec![edit(dir, &name, Some(inode))]);
        Ok(inode)
    }

    /// Writes at the end of a file.
    pub(crate) fn write(&mut self, inode: Inode, more: &[u8]) {
        let now = self.tick();
        if let Some(Node::File {
            bytes,
            lost,
            touched,
            ..
        }) = self.nodes.get_mut(&inode)
        {
            Arc::make_mut(bytes).extend_from_slice(more);
            *lost = false;
            *touched = now;
        }
    }

    /// Cuts a file off.
    pub(crate) fn truncate(&mut self, path: &Path, length: u64) -> io::Result<()> {
        let inode = self.look(path)?;
        if let Some(Node::File { bytes, .. }) = self.nodes.get_mut(&inode) {
            Arc::make_mut(bytes).truncate(length as usize);
        }
        Ok(())
    }

    /// Moves a file's time forward.
    pub(crate) fn touch(&mut self, path: &Path) -> io::Result<()> {
        let inode = self.look(path)?;
        let now = self.tick();
        if let Some(Node::File { touched, .. }) = self.nodes.get_mut(&inode) {
            *touched = now;
        }
        Ok(())
    }

    /// Returns a file's bytes.
    pub(crate) fn bytes(&self, path: &Path) -> io::Result<Arc<Vec<u8>>> {
        match &self.nodes[&self.look(path)?] {
            Node::File { bytes, .. } => Ok(Arc::clone(bytes)),
            Node::Dir { .. } => Err(Errno::ISDIR.into()),
        }
    }

    /// Returns number, device, size and time, size `None` for a directory.
    pub(crate) fn stat(&self, path: &Path) -> io::Result<(Inode, usize, Option<u64>, u64)> {
        let inode = self.look(path)?;
        Ok(match &self.nodes[&inode] {
            Node::Dir { device, .. } => (inode, *device, None, 0),
            Node::File {
                bytes,
                device,
                touched,
                ..
            } => (inode, *device, Some(bytes.len() as u64), *touched),
        })
    }

    /// Lists a directory: names, and whether each is a directory.
    pub(crate) fn list(&self, path: &Path) -> io::Result<Vec<(OsString, bool)>> {
        let names = self.names(self.look(path)?)?;
        Ok(names
            .iter()
            .map(|(name, &inode)| (name.clone(), self.is_dir(inode)))
            .collect())
    }

    /// Promises the bytes of a file, and nothing about its names.
    pub(crate) fn sync_file(&mut self, path: &Path) -> io::Result<()> {
        let inode = self.look(path)?;
        match self.nodes.get_mut(&inode) {
            Some(Node::File {
                bytes,
                synced,
                lost: false,
                ..
            }) => *synced = Arc::clone(bytes),
            Some(Node::File { lost: true, .. }) => {}
            _ => return Err(Errno::ISDIR.into()),
        }
        Ok(())
    }

    /// Promises every change up to the last one of the names in this directory.
    pub(crate) fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        let dir = self.look(path)?;
        self.names(dir)?;
        let last = self
            .log
            .iter()
            .rposition(|change| change.edits.iter().any(|edit| edit.dir == dir));
        if let Some(last) = last {
            self.promise(self.device(dir), last + 1);
        }
        Ok(())
    }

    /// Promises everything on one file system.
    pub(crate) fn sync_all(&mut self, path: &Path) -> io::Result<()> {
        let here = self.device_of(self.look(path)?);
        self.promise(here, self.log.len());
        for node in self.nodes.values_mut() {
            if let Node::File {
                bytes,
                synced,
                lost: false,
                device,
                ..
            } = node
                && *device == here
            {
                *synced = Arc::clone(bytes);
            }
        }
        Ok(())
    }

    /// Promises everything everywhere: where a scenario starts.
    pub(crate) fn settle(&mut self) {
        for device in 0..DEVICES {
            self.promise(device, self.log.len());
        }
        for node in self.nodes.values_mut() {
            if let Node::File { bytes, synced, .. } = node {
                *synced = Arc::clone(bytes);
            }
        }
    }

    /// Loses what a failed sync should have written: later syncs will not write it either.
    pub(crate) fn fail_sync(&mut self, path: &Path, everything: bool) {
        let Ok(inode) = self.look(path) else { return };
        let here = self.device_of(inode);
        for (number, node) in &mut self.nodes {
            if let Node::File {
                bytes,
                synced,
                lost,
                device,
                ..
            } = node
                && bytes != synced
                && (*number == inode || everything && *device == here)
            {
                *lost = true;
            }
        }
    }

    /// Takes a lock; `false` when another has it.
    pub(crate) fn lock(&mut self, path: &Path, token: u64) -> io::Result<Option<Inode>> {
        let inode = self.look(path)?;
        if self.locks.contains_key(&inode) {
            return Ok(None);
        }
        self.locks.insert(inode, token);
        Ok(Some(inode))
    }

    /// Lets go of a lock.
    pub(crate) fn unlock(&mut self, inode: Inode, token: u64) {
        if self.locks.get(&inode) == Some(&token) {
            self.locks.remove(&inode);
        }
    }

    /// Returns a number never returned before.
    pub(crate) fn tick(&mut self) -> u64 {
        self.ticks += 1;
        self.ticks
    }

    /// Ends all processes: their locks are free, everything they wrote is there.
    pub(crate) fn kill(&self) -> Self {
        Self {
            locks: BTreeMap::new(),
            lives: self.lives + 1,
            ..self.clone()
        }
    }

    /// Cuts the power and boots again.
    pub(crate) fn power_cut(&self, cut: &Cut) -> Self {
        let tree = self.kept(&cut.keep);
        let mut nodes = BTreeMap::new();
        for inode in reachable(&tree) {
            let node = match (&tree.get(&inode), &self.nodes[&inode]) {
                (Some(names), Node::Dir { device, .. }) => Node::Dir {
                    names: Arc::clone(names),
                    device: *device,
                },
                (_, node) => self.survivor(inode, node, &cut.bytes),
            };
            nodes.insert(inode, node);
        }
        let durable = tree
            .into_iter()
            .filter(|(inode, _)| nodes.contains_key(inode))
            .collect();
        Self {
            nodes,
            durable,
            log: Vec::new(),
            locks: BTreeMap::new(),
            last_inode: self.last_inode,
            ticks: self.ticks,
            apart: self.apart.clone(),
            boots: self.boots + 1,
            lives: self.lives + 1,
            outside: self.outside.clone(),
        }
    }

    fn survivor(&self, inode: Inode, node: &Node, fates: &Fates) -> Node {
        let Node::File {
            bytes,
            synced,
            device,
            touched,
            ..
        } = node
        else {
            unreachable!("a directory is in the tree");
        };
        let fate = match fates {
            Fates::All(fate) => *fate,
            Fates::Each(fates) => fates
                .iter()
                .find(|(number, _)| *number == inode)
                .map_or(Survival::Old, |(_, fate)| *fate),
        };
        let kept = match fate {
            _ if bytes == synced => Arc::clone(bytes),
            Survival::Old => Arc::clone(synced),
            Survival::Empty => Arc::default(),
            Survival::Torn => Arc::new(bytes[..bytes.len() / 2].to_vec()),
            Survival::New => Arc::clone(bytes),
        };
        Node::File {
            bytes: Arc::clone(&kept),
            synced: kept,
            lost: false,
            device: *device,
            touched: *touched,
        }
    }

    /// Returns outcomes of a power cut now, all of them or `most` with the extremes among them,
    /// and how many there are.
    pub(crate) fn cuts(&self, most: usize, dice: &mut Dice) -> (usize, Vec<Cut>) {
        let mut outcomes = Vec::new();
        let mut total: usize = 0;
        for (keep, unsynced) in self.prefixes() {
            let ways = unsynced
                .iter()
                .map(|(_, ways)| ways.len())
                .fold(1, usize::saturating_mul);
            total = total.saturating_add(ways);
            outcomes.push((keep, unsynced, ways));
        }
        if total <= most {
            let all = outcomes
                .iter()
                .flat_map(|(keep, unsynced, ways)| (0..*ways).map(|n| pick(keep, unsynced, n)));
            return (total, all.collect());
        }
        let mut cuts = self.extremes();
        while cuts.len() < most {
            let (keep, unsynced, ways) = &outcomes[dice.below(outcomes.len())];
            cuts.push(pick(keep, unsynced, dice.below(*ways)));
        }
        (total, cuts)
    }

    /// Returns the shortest and the longest log with none, half and all of the bytes.
    pub(crate) fn extremes(&self) -> Vec<Cut> {
        let mut ends = vec![[0; DEVICES], self.whole_log()];
        ends.dedup();
        let fates = [
            Survival::Old,
            Survival::Empty,
            Survival::Torn,
            Survival::New,
        ];
        ends.iter()
            .flat_map(|keep| {
                fates.map(|fate| Cut {
                    keep: *keep,
                    bytes: Fates::All(fate),
                })
            })
            .collect()
    }

    fn whole_log(&self) -> [usize; DEVICES] {
        let mut all = [0; DEVICES];
        for change in &self.log {
            all[change.device] += 1;
        }
        all
    }

    /// Returns every pair of prefixes of the log, with the files a cut after them leaves unsynced
    /// and the possible fates of each.
    fn prefixes(&self) -> Vec<([usize; DEVICES], Unsynced)> {
        let dirty: Unsynced = self.nodes.iter().filter_map(fates_of).collect();
        let all = self.whole_log();
        let mut prefixes = Vec::new();
        for second in 0..=all[1] {
            let mut tree = self.kept(&[0, second]);
            let mut changes = self.log.iter().filter(|change| change.device == 0);
            for first in 0..=all[0] {
                let mut unsynced = dirty.clone();
                if !unsynced.is_empty() {
                    let there = reachable(&tree);
                    unsynced.retain(|(inode, _)| there.contains(inode));
                }
                prefixes.push(([first, second], unsynced));
                if let Some(change) = changes.next() {
                    self.replay(&mut tree, change);
                }
            }
        }
        prefixes
    }

    /// Returns the directories after these prefixes of the log.
    fn kept(&self, keep: &[usize; DEVICES]) -> BTreeMap<Inode, Arc<Names>> {
        let mut tree = self.durable.clone();
        let mut left = *keep;
        for change in &self.log {
            if left[change.device] > 0 {
                left[change.device] -= 1;
                self.replay(&mut tree, change);
            }
        }
        tree
    }

    fn replay(&self, tree: &mut BTreeMap<Inode, Arc<Names>>, change: &Change) {
        for edit in &change.edits {
            let names = Arc::make_mut(tree.entry(edit.dir).or_default());
            match edit.now {
                Some(inode) => {
                    names.insert(edit.name.clone(), inode);
                    if self.is_dir(inode) {
                        tree.entry(inode).or_default();
                    }
                }
                None => {
                    names.remove(&edit.name);
                }
            }
        }
    }

    fn promise(&mut self, device: usize, upto: usize) {
        let mut tree = std::mem::take(&mut self.durable);
        let later = self.log.split_off(upto);
        let mut others = Vec::new();
        for change in std::mem::take(&mut self.log) {
            if change.device == device {
                self.replay(&mut tree, &change);
            } else {
                others.push(change);
            }
        }
        others.extend(later);
        self.log = others;
        self.durable = tree;
    }

    fn change(&mut self, edits: Vec<Edit>) {
        let device = self.device(edits[0].dir);
        for edit in &edits {
            if let Some(Node::Dir { names, .. }) = self.nodes.get_mut(&edit.dir) {
                let names = Arc::make_mut(names);
                match edit.now {
                    Some(inode) => names.insert(edit.name.clone(), inode),
                    None => names.remove(&edit.name),
                };
            }
        }
        self.log.push(Change { device, edits });
    }

    fn add(&mut self, node: Node) -> Inode {
        self.last_inode += 1;
        self.nodes.insert(self.last_inode, node);
        self.last_inode
    }

    fn look(&self, path: &Path) -> io::Result<Inode> {
        let mut at = ROOT;
        for part in path.components() {
            match part {
                Component::RootDir => at = ROOT,
                Component::Normal(name) => {
                    at = *self.names(at)?.get(name).ok_or(Errno::NOENT)?;
                }
                _ => return Err(Errno::INVAL.into()),
            }
        }
        Ok(at)
    }

    /// Returns the directory a path lies in and its name there; `None` for the root.
    fn parent<'path>(&self, path: &'path Path) -> io::Result<Option<(Inode, &'path OsStr)>> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(None);
        };
        let dir = self.look(parent)?;
        self.names(dir)?;
        Ok(Some((dir, name)))
    }

    fn entry(&self, path: &Path) -> io::Result<(Inode, OsString, Inode)> {
        let Some((dir, name)) = self.parent(path)? else {
            return Err(Errno::BUSY.into());
        };
        let inode = *self.names(dir)?.get(name).ok_or(Errno::NOENT)?;
        Ok((dir, name.to_owned(), inode))
    }

    fn names(&self, dir: Inode) -> io::Result<&Names> {
        match &self.nodes[&dir] {
            Node::Dir { names, .. } => Ok(names),
            Node::File { .. } => Err(Errno::NOTDIR.into()),
        }
    }

    fn is_dir(&self, inode: Inode) -> bool {
        matches!(self.nodes[&inode], Node::Dir { .. })
    }

    fn device(&self, dir: Inode) -> usize {
        self.device_of(dir)
    }

    fn device_of(&self, inode: Inode) -> usize {
        match &self.nodes[&inode] {
            Node::Dir { device, .. } | Node::File { device, .. } => *device,
        }
    }

    /// Returns everything on the disk by path.
    pub(crate) fn tree(&self) -> BTreeMap<PathBuf, Thing> {
        let mut tree = BTreeMap::new();
        let mut todo = vec![(PathBuf::from("/"), ROOT)];
        while let Some((path, inode)) = todo.pop() {
            let thing = match &self.nodes[&inode] {
                Node::Dir { names, .. } => {
                    todo.extend(names.iter().map(|(name, &inode)| (path.join(name), inode)));
                    Thing::Dir
                }
                Node::File { bytes, .. } => Thing::File(Arc::clone(bytes), inode),
            };
            tree.insert(path, thing);
        }
        tree
    }

    /// Returns a hash of all that can matter for what happens next: two disks of one fingerprint
    /// need one run.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hash = DefaultHasher::new();
        self.outside.hash(&mut hash);
        let mut order: BTreeMap<Inode, usize> = BTreeMap::new();
        let mut todo = vec![ROOT];
        while let Some(inode) = todo.pop() {
            match &self.nodes[&inode] {
                Node::Dir { names, .. } => {
                    names.len().hash(&mut hash);
                    for (name, &inode) in names.iter() {
                        name.hash(&mut hash);
                        todo.push(inode);
                    }
                }
                Node::File { bytes, .. } => {
                    let next = order.len();
                    order.entry(inode).or_insert(next).hash(&mut hash);
                    bytes.hash(&mut hash);
                }
            }
        }
        self.log.hash(&mut hash);
        for (inode, node) in &self.nodes {
            if let Node::File { synced, .. } = node
                && !is_synced(node)
            {
                (inode, synced).hash(&mut hash);
            }
        }
        hash.finish()
    }
}

impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (path, thing) in self.tree() {
            if let Thing::File(bytes, inode) = thing {
                writeln!(f, "  {} #{inode} {} bytes", path.display(), bytes.len())?;
            } else if self.list(&path).is_ok_and(|names| names.is_empty()) {
                writeln!(f, "  {}/", path.display())?;
            }
        }
        Ok(())
    }
}

fn edit(dir: Inode, name: &OsStr, now: Option<Inode>) -> Edit {
    Edit {
        dir,
        name: name.to_owned(),
        now,
    }
}

fn fates_of((inode, node): (&Inode, &Node)) -> Option<(Inode, Vec<Survival>)> {
    match node {
        Node::File { synced, .. } if !is_synced(node) => {
            let mut fates = vec![Survival::Old, Survival::New];
            if !synced.is_empty() {
                fates.push(Survival::Empty);
            }
            Some((*inode, fates))
        }
        Node::File { .. } | Node::Dir { .. } => None,
    }
}

fn is_synced(node: &Node) -> bool {
    match node {
        Node::Dir { .. } => true,
        Node::File { bytes, synced, .. } => bytes == synced,
    }
}

fn reachable(tree: &BTreeMap<Inode, Arc<Names>>) -> BTreeSet<Inode> {
    let mut seen = BTreeSet::new();
    let mut todo = vec![ROOT];
    while let Some(inode) = todo.pop() {
        if seen.insert(inode)
            && let Some(names) = tree.get(&inode)
        {
            todo.extend(names.values());
        }
    }
    seen
}

/// Returns the n-th combination of fates.
fn pick(keep: &[usize; DEVICES], unsynced: &Unsynced, mut n: usize) -> Cut {
    let fates = unsynced.iter().map(|(inode, ways)| {
        let fate = ways[n % ways.len()];
        n /= ways.len();
        (*inode, fate)
    });
    Cut {
        keep: *keep,
        bytes: Fates::Each(fates.collect()),
    }
}

/// A seeded source of choices.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// Returns the next 64 bits, by splitmix64.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Returns about `most` of the things, in their order.
    pub(crate) fn choose<Thing>(&mut self, most: usize, mut things: Vec<Thing>) -> Vec<Thing> {
        let all = things.len();
        things.retain(|_| self.odds(most, all));
        things
    }

    /// Says yes `some` times of `all`.
    pub(crate) fn odds(&mut self, some: usize, all: usize) -> bool {
        some >= all || self.below(all) < some
    }

    /// Returns a number below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> PathBuf {
        PathBuf::from(text)
    }

    fn write(disk: &mut Disk, text: &str) {
        let inode = disk.create(&path(text)).unwrap();
        disk.write(inode, b"new bytes");
    }

    /// Returns what each legal power cut leaves: names, and for files their size.
    fn outcomes(disk: &Disk) -> BTreeSet<String> {
        let (total, cuts) = disk.cuts(usize::MAX, &mut Dice(1));
        assert_eq!(total, cuts.len());
        let show = |disk: Disk| {
            let tree = disk.tree().into_iter().skip(1);
            let texts = tree.map(|(path, thing)| match thing {
                Thing::Dir => format!("{}/", path.display()),
                Thing::File(bytes, _) => format!("{}={}", path.display(), bytes.len()),
            });
            texts.collect::<Vec<_>>().join(" ")
        };
        cuts.iter().map(|cut| show(disk.power_cut(cut))).collect()
    }

    fn set(texts: &[&str]) -> BTreeSet<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_name_may_survive_without_its_bytes() {
        let mut disk = Disk::new(None);
        write(&mut disk, "/a");
        assert_eq!(outcomes(&disk), set(&["", "/a=0", "/a=9"]));
        disk.sync_dir(&path("/")).unwrap();
        assert_eq!(outcomes(&disk), set(&["/a=0", "/a=9"]));
        disk.sync_file(&path("/a")).unwrap();
        assert_eq!(outcomes(&disk), set(&["/a=9"]));
    }

    #[test]
    fn synced_bytes_do_not_keep_a_name() {
        let mut disk = Disk::new(None);
        write(&mut disk, "/a");
        disk.sync_file(&path("/a")).unwrap();
        assert_eq!(outcomes(&disk), set(&["", "/a=9"]));
    }

    #[test]
    fn changes_of_names_become_durable_in_order() {
        let mut disk = Disk::new(None);
        disk.mkdir(&path("/d")).unwrap();
        disk.mkdir(&path("/d/x")).unwrap();
        disk.mkdir(&path("/e")).unwrap();
        disk.rename(&path("/d/x"), &path("/e/x")).unwrap();
        let all = ["", "/d/", "/d/ /d/x/", "/d/ /d/x/ /e/", "/d/ /e/ /e/x/"];
        assert_eq!(outcomes(&disk), set(&all));
        // A sync of the place it left promises the move, and all before it.
        disk.sync_dir(&path("/d")).unwrap();
        assert_eq!(outcomes(&disk), set(&["/d/ /e/ /e/x/"]));
    }

    #[test]
    fn two_file_systems_are_set_back_apart() {
        let mut disk = Disk::new(Some(Path::new("/b")));
        disk.mkdir(&path("/a")).unwrap();
        disk.mkdir(&path("/b")).unwrap();
        disk.settle();
        disk.mkdir(&path("/a/x")).unwrap();
        disk.mkdir(&path("/b/y")).unwrap();
        let all = [
            "/a/ /b/",
            "/a/ /a/x/ /b/",
            "/a/ /b/ /b/y/",
            "/a/ /a/x/ /b/ /b/y/",
        ];
        assert_eq!(outcomes(&disk), set(&all));
        let crossing = disk.rename(&path("/a/x"), &path("/b/x")).unwrap_err();
        assert_eq!(crossing.kind(), io::ErrorKind::CrossesDevices);
        disk.sync_all(&path("/b")).unwrap();
        let left = ["/a/ /b/ /b/y/", "/a/ /a/x/ /b/ /b/y/"];
        assert_eq!(outcomes(&disk), set(&left));
    }

    #[test]
    fn a_second_sync_does_not_mend_a_failed_one() {
        let mut disk = Disk::new(None);
        write(&mut disk, "/a");
        disk.sync_dir(&path("/")).unwrap();
        disk.fail_sync(&path("/a"), false);
        disk.sync_file(&path("/a")).unwrap();
        assert_eq!(outcomes(&disk), set(&["/a=0", "/a=9"]));
    }

    #[test]
    fn names_follow_posix() {
        let mut disk = Disk::new(None);
        let kind = |result: io::Result<()>| result.unwrap_err().kind();
        for dir in ["/d", "/d/x", "/d/full", "/d/full/y"] {
            disk.mkdir(&path(dir)).unwrap();
        }
        write(&mut disk, "/d/f");
        write(&mut disk, "/d/g");
        use io::ErrorKind::*;
        let (x, f) = (path("/d/x"), path("/d/f"));
        assert_eq!(kind(disk.mkdir(&x)), AlreadyExists);
        assert_eq!(kind(disk.mkdir(&path("/no/x"))), NotFound);
        assert_eq!(kind(disk.rename(&x, &path("/d/full"))), DirectoryNotEmpty);
        assert_eq!(kind(disk.rename(&x, &f)), NotADirectory);
        assert_eq!(kind(disk.rename(&f, &x)), IsADirectory);
        assert_eq!(
            kind(disk.rename(&path("/d"), &path("/d/x/d"))),
            InvalidInput
        );
        assert_eq!(kind(disk.link(&f, &path("/d/g"))), AlreadyExists);
        assert_eq!(kind(disk.link(&path("/d/none"), &path("/d/g"))), NotFound);
        assert_eq!(kind(disk.rmdir(&path("/d/full"))), DirectoryNotEmpty);
        disk.link(&f, &path("/d/f2")).unwrap();
        assert_eq!(
            disk.stat(&f).unwrap().0,
            disk.stat(&path("/d/f2")).unwrap().0
        );
        disk.rename(&f, &path("/d/g")).unwrap();
        disk.rename(&path("/d/full"), &x).unwrap();
        assert!(disk.stat(&path("/d/x/y")).is_ok());
        // Two names of one file: POSIX has the move do nothing.
        disk.rename(&path("/d/f2"), &path("/d/g")).unwrap();
        assert!(disk.stat(&path("/d/f2")).is_ok());
    }

    #[test]
    fn a_lock_ends_with_its_process() {
        let mut disk = Disk::new(None);
        write(&mut disk, "/lease");
        assert!(disk.lock(&path("/lease"), 1).unwrap().is_some());
        assert!(disk.lock(&path("/lease"), 2).unwrap().is_none());
        let mut after = disk.kill();
        assert!(after.lock(&path("/lease"), 2).unwrap().is_some());
    }
}
