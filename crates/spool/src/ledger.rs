//! The ledger: old receipts of a stage, folded into compressed files that only grow.
//!
//! It is divided as `receipts/` is. `ledger/<hh>.jsonl.gz` holds gzip members of receipt lines;
//! `ledger/<hh>.index` is sorted text, a line for each receipt: `name<TAB>offset<TAB>length`, or
//! `name<TAB>=<batch>` for a member of a batch, whose receipt is the batch's. So the duplicate check
//! finds a receipt by bisection and a person by `grep`. An index is replaced in one step after the
//! members it points to are durable, and the receipts are removed after the index is. What a fold
//! that was cut short has appended is cut off by the next one.
//!
//! What a worker has in hand, living or dead, may have to be handed over by its receipt yet: that
//! is not folded. Whoever looks for a receipt looks here too, since it may be folded meanwhile.

use std::collections::HashSet;
use std::io::{self, BufRead, BufReader, Read, SeekFrom, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::Compression;
use flate2::read::{GzDecoder, MultiGzDecoder};
use flate2::write::GzEncoder;

use crate::error::{At, Result, SpoolError};
use crate::fs::{Fs, Lease, SeekRead, gone, if_there};
use crate::name::{ParcelEntry, ParcelId};
use crate::receipt::{Filed, find_in_sheet, parse_sheet};
use crate::tree::{StageDir, WorkTree};
use crate::worker::{Signs, filed_as, is_committed};

/// Receipts in one gzip member: what a lookup has to inflate.
const LINES_A_MEMBER: usize = 256;
/// Receipts that are folded at a time: what is kept in memory.
const FOLDED_AT_ONCE: usize = 8192;

/// One line of an index.
struct IndexLine {
    name: String,
    at: Whereabouts,
}

/// Where a folded receipt is.
enum Whereabouts {
    /// In the gzip member there.
    Member { offset: u64, bytes: u64 },
    /// It is that of a batch.
    Batch(ParcelId),
}

impl IndexLine {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.trim_end().split('\t');
        let name = fields.next()?.to_owned();
        let second = fields.next()?;
        let at = match second.strip_prefix('=') {
            Some(batch) => Whereabouts::Batch(ParcelId::new(batch).ok()?),
            None => Whereabouts::Member {
                offset: second.parse().ok()?,
                bytes: fields.next()?.parse().ok()?,
            },
        };
        Some(Self { name, at })
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        match &self.at {
            Whereabouts::Member { offset, bytes } => {
                writeln!(out, "{}\t{offset}\t{bytes}", self.name)
            }
            Whereabouts::Batch(batch) => writeln!(out, "{}\t={batch}", self.name),
        }
    }
}

/// An index and the receipts it points to.
struct Files {
    index: PathBuf,
    receipts: PathBuf,
}

impl Files {
    fn of_shard(stage: &StageDir, shard: &str) -> Self {
        let ledger = stage.ledger();
        Self {
            index: ledger.join(format!("{shard}.index")),
            receipts: ledger.join(format!("{shard}.jsonl.gz")),
        }
    }

    fn line_of(&self, fs: &dyn Fs, id: &ParcelId) -> Result<Option<IndexLine>> {
        match if_there(fs.open(&self.index)).at("open", &self.index)? {
            Some(mut index) => bisect(&mut *index, id.as_str()).at("search", &self.index),
            None => Ok(None),
        }
    }
}

/// Tells whether the receipt of a piece of work, or of a member of a batch, was folded.
pub(crate) fn holds(fs: &dyn Fs, stage: &StageDir, id: &ParcelId) -> Result<bool> {
    let files = Files::of_shard(stage, &id.shard());
    Ok(files.line_of(fs, id)?.is_some())
}

/// Finds the folded receipt of a piece of work, or of a member of a batch.
pub(crate) fn find(fs: &dyn Fs, stage: &StageDir, id: &ParcelId) -> Result<Option<Filed>> {
    let files = Files::of_shard(stage, &id.shard());
    let Some(line) = files.line_of(fs, id)? else {
        return Ok(None);
    };
    let (found, place) = match line.at {
        Whereabouts::Member { offset, bytes } => {
            let path = &files.receipts;
            let lines = read_member(fs, path, offset, bytes).at("read", path)?;
            (find_in_sheet(&lines, id), format!("at {offset}"))
        }
        Whereabouts::Batch(batch) => {
            let filed = filed_as(fs, stage, &batch)?;
            let filed = filed.filter(|filed| filed.receipt.input(id).is_some());
            (filed, format!("in {batch}"))
        }
    };
    let lost = || SpoolError::Damaged {
        parcel: id.clone(),
        reason: format!("the ledger names it {place} but it is not there"),
    };
    found.map(Some).ok_or_else(lost)
}

/// Calls `see` with every line of a stage's ledger.
pub(crate) fn each_line(fs: &dyn Fs, stage: &StageDir, see: &mut dyn FnMut(&[u8])) -> Result<()> {
    let ledger = stage.ledger();
    let names = if_there(fs.list(&ledger)).at("list", &ledger)?;
    for (name, _) in names.unwrap_or_default() {
        if !name.as_encoded_bytes().ends_with(b".gz") {
            continue;
        }
        let path = ledger.join(name);
        let file = BufReader::new(fs.open(&path).at("open", &path)?);
        let mut lines = BufReader::new(MultiGzDecoder::new(file));
        let mut line = Vec::new();
        loop {
            line.clear();
            match lines.read_until(b'\n', &mut line) {
                Ok(0) => break,
                Ok(_) => see(&line),
                // What a fold that was cut short has left behind.
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput
                    ) =>
                {
                    break;
                }
                Err(e) => return Err(e).at("read", &path),
            }
        }
    }
    Ok(())
}

/// Folds all receipts of a stage that are older than `age`; returns how many.
pub fn fold(tree: &WorkTree, stage: &str, age: Duration) -> Result<usize> {
    // Taken once: a program that another thread is just starting holds a lock for a moment after it was given up here.
    let Some(_lock) = lock(tree, stage)? else {
        return Ok(0);
    };
    let mut folded = 0;
    for shard in 0..=255 {
        loop {
            let more = fold_locked(tree, stage, shard, age, &Signs::default())?;
            folded += more;
            if more < FOLDED_AT_ONCE {
                break;
            }
        }
    }
    Ok(folded)
}

/// Returns the next shard of a stage, from this one on, in which there are receipts.
pub(crate) fn next_shard(tree: &WorkTree, stage: &str, from: u8) -> Result<Option<u8>> {
    let receipts = tree.stage(stage).receipts();
    for shard in from..=u8::MAX {
        let dir = receipts.join(format!("{shard:02x}"));
        let mut is_empty = true;
        let looked = tree.fs.visit(&dir, &mut |_, _| {
            is_empty = false;
            ControlFlow::Break(())
        });
        if if_there(looked).at("list", &dir)?.is_some() && !is_empty {
            return Ok(Some(shard));
        }
    }
    Ok(None)
}

/// Folds the receipts of one shard that are older than `age`, no more than some thousands at a time,
/// into the ledger of a stage; returns how many.
pub fn fold_shard(
    tree: &WorkTree,
    stage: &str,
    shard: u8,
    age: Duration,
    signs: &Signs,
) -> Result<usize> {
    match lock(tree, stage)? {
        Some(_lock) => fold_locked(tree, stage, shard, age, signs),
        None => Ok(0),
    }
}

/// Takes the lock of a stage's ledger. `None`: another has it.
fn lock(tree: &WorkTree, stage: &str) -> Result<Option<Box<dyn Lease>>> {
    let path = tree.stage(stage).ledger().join(".lock");
    drop(tree.fs.append(&path).at("open", &path)?);
    tree.fs.lock(&path).at("lock", &path)
}

fn fold_locked(
    tree: &WorkTree,
    stage: &str,
    shard: u8,
    age: Duration,
    signs: &Signs,
) -> Result<usize> {
    let fs = &*tree.fs;
    let stage = tree.stage(stage);
    let shard = format!("{shard:02x}");
    let old = old_receipts(tree, &stage, &shard, age, signs)?;
    if old.is_empty() {
        return Ok(0);
    }
    let fold = Fold {
        fs,
        files: Files::of_shard(&stage, &shard),
        in_hand: in_hand(tree, &stage)?,
        stage,
        signs,
    };
    fold.run(old)
}

/// A receipt to be folded.
struct OldReceipt {
    id: ParcelId,
    path: PathBuf,
    inode: u64,
}

struct Fold<'a> {
    fs: &'a dyn Fs,
    stage: StageDir,
    files: Files,
    /// What some worker has in hand: it may still need the receipt.
    in_hand: HashSet<ParcelId>,
    signs: &'a Signs,
}

impl Fold<'_> {
    fn run(&self, mut old: Vec<OldReceipt>) -> Result<usize> {
        let (fs, receipts) = (self.fs, &self.files.receipts);
        let (end, known) = self.read_index(&old)?;
        let stat = if_there(fs.stat(receipts)).at("look at", receipts)?;
        let length = stat.map_or(0, |stat| stat.bytes);
        if length > end {
            tracing::info!(ledger = %receipts.display(), "cutting off what a fold cut short has left");
            fs.truncate(receipts, end).at("cut", receipts)?;
        }
        // The names of one sheet together: it is read once.
        old.sort_by_key(|receipt| receipt.inode);
        let (folded, lines) = self.append(old, end, &known)?;
        if !lines.is_empty() {
            self.replace_index(lines)?;
        }
        for receipt in &folded {
            self.signs.tick();
            gone(fs.unlink(&receipt.path)).at("remove", &receipt.path)?;
        }
        Ok(folded.len())
    }

    /// Reads the index through: returns where the receipts end, and which of these it has already.
    fn read_index(&self, old: &[OldReceipt]) -> Result<(u64, HashSet<String>)> {
        let index = &self.files.index;
        let (mut end, mut known) = (0, HashSet::new());
        let names: HashSet<&str> = old.iter().map(|receipt| receipt.id.as_str()).collect();
        let mut text = String::new();
        let mut reader = self.open_index()?;
        loop {
            text.clear();
            if reader.read_line(&mut text).at("read", index)? == 0 {
                return Ok((end, known));
            }
            self.signs.tick();
            let Some(line) = IndexLine::parse(&text) else {
                continue;
            };
            if let Whereabouts::Member { offset, bytes } = line.at {
                end = end.max(offset + bytes);
            }
            if names.contains(line.name.as_str()) {
                known.insert(line.name);
            }
        }
    }

    fn open_index(&self) -> Result<Box<dyn BufRead>> {
        let index = &self.files.index;
        Ok(match if_there(self.fs.open(index)).at("open", index)? {
            Some(file) => Box::new(BufReader::new(file)),
            None => Box::new(io::empty()),
        })
    }

    /// Appends what is not known yet; returns what is folded now, with the new lines of the index.
    fn append(
        &self,
        old: Vec<OldReceipt>,
        end: u64,
        known: &HashSet<String>,
    ) -> Result<(Vec<OldReceipt>, Vec<IndexLine>)> {
        let (fs, path) = (self.fs, &self.files.receipts);
        let (mut folded, mut lines) = (Vec::new(), Vec::new());
        let mut writer = fs.append(path).at("open", path)?;
        let (mut offset, mut member, mut names) = (end, Vec::new(), Vec::new());
        let mut sheet = LastSheet::default();
        let mut flush = |member: &mut Vec<u8>, names: &mut Vec<String>, lines: &mut Vec<_>| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(member)?;
            let packed = encoder.finish()?;
            writer.write_all(&packed)?;
            let bytes = packed.len() as u64;
            lines.extend(names.drain(..).map(|name| IndexLine {
                name,
                at: Whereabouts::Member { offset, bytes },
            }));
            offset += bytes;
            member.clear();
            io::Result::Ok(())
        };
        for receipt in old {
            self.signs.tick();
            let Some(filed) = sheet.find(fs, &receipt)? else {
                tracing::warn!(receipt = %receipt.path.display(), "not a receipt: left where it is");
                continue;
            };
            if !self.may_go(&receipt.id, filed)? {
                continue;
            }
            if known.contains(receipt.id.as_str()) {
                // Folded before the receipt could be removed.
                let folded_before = find(fs, &self.stage, &receipt.id)?;
                if folded_before.is_none_or(|before| before.receipt != filed.receipt) {
                    tracing::warn!(receipt = %receipt.path.display(), "the ledger has another: left");
                    continue;
                }
            } else if filed.receipt.work == receipt.id {
                member.extend(filed.receipt.to_line());
                names.push(receipt.id.to_string());
                if names.len() >= LINES_A_MEMBER {
                    flush(&mut member, &mut names, &mut lines).at("write", path)?;
                }
            } else {
                lines.push(IndexLine {
                    name: receipt.id.to_string(),
                    at: Whereabouts::Batch(filed.receipt.work.clone()),
                });
            }
            folded.push(receipt);
        }
        if !names.is_empty() {
            flush(&mut member, &mut names, &mut lines).at("write", path)?;
        }
        writer.flush().at("write", path)?;
        drop(writer);
        fs.sync_file(path).at("sync", path)?;
        Ok((folded, lines))
    }

    /// Tells whether nobody needs a receipt any more but those who look for it.
    fn may_go(&self, id: &ParcelId, filed: &Filed) -> Result<bool> {
        let receipt = &filed.receipt;
        let mut inputs = receipt.inputs.iter().map(|input| &input.parcel);
        let in_hand = |id: &ParcelId| self.in_hand.contains(id);
        if in_hand(id) || in_hand(&receipt.work) || inputs.any(in_hand) {
            return Ok(false);
        }
        is_committed(self.fs, &self.stage, id, receipt)
    }

    /// Merges new lines into the index and replaces it in one step.
    fn replace_index(&self, mut lines: Vec<IndexLine>) -> Result<()> {
        lines.sort_by(|a, b| a.name.cmp(&b.name));
        let (fs, path) = (self.fs, &self.files.index);
        let new = path.with_extension("new");
        gone(fs.unlink(&new)).at("remove", &new)?;
        let mut out = io::BufWriter::new(fs.create(&new).at("create", &new)?);
        let mut old = self.open_index()?;
        let mut fresh = lines.iter().peekable();
        let mut text = String::new();
        loop {
            self.signs.tick();
            text.clear();
            let more = old.read_line(&mut text).at("read", path)? > 0;
            let name = text.split('\t').next().unwrap_or_default();
            while let Some(line) = fresh.peek()
                && (!more || line.name.as_str() <= name)
            {
                line.write(&mut out).at("write", &new)?;
                fresh.next();
            }
            if !more {
                break;
            }
            out.write_all(text.as_bytes()).at("write", &new)?;
        }
        out.flush().at("write", &new)?;
        drop(out);
        fs.sync_file(&new).at("sync", &new)?;
        fs.rename(&new, path).at("replace", path)?;
        let dir = self.stage.ledger();
        fs.sync_dir(&dir).at("sync", &dir)
    }
}

/// The sheet read last, and the receipt found in it: the members of a batch share both.
#[derive(Default)]
struct LastSheet {
    inode: Option<u64>,
    bytes: Vec<u8>,
    found: Option<Filed>,
}

impl LastSheet {
    fn find(&mut self, fs: &dyn Fs, old: &OldReceipt) -> Result<Option<&Filed>> {
        if self.inode != Some(old.inode) {
            self.bytes = fs.read(&old.path, 1 << 30).at("read", &old.path)?;
            self.inode = Some(old.inode);
            self.found = None;
        }
        let speaks_of =
            |filed: &Filed| filed.receipt.work == old.id || filed.receipt.input(&old.id).is_some();
        if !self.found.as_ref().is_some_and(speaks_of) {
            self.found = find_in_sheet(&self.bytes, &old.id);
        }
        Ok(self.found.as_ref())
    }
}

fn old_receipts(
    tree: &WorkTree,
    stage: &StageDir,
    shard: &str,
    age: Duration,
    signs: &Signs,
) -> Result<Vec<OldReceipt>> {
    let now = tree.now_ns(stage);
    let dir = stage.receipts().join(shard);
    let mut old = Vec::new();
    for (name, _) in tree.list(&dir)? {
        signs.tick();
        if old.len() == FOLDED_AT_ONCE {
            break;
        }
        let path = dir.join(&name);
        let id = name.to_str().and_then(|name| name.strip_suffix(".json"));
        let Some(id) = id.and_then(|id| ParcelId::new(id).ok()) else {
            continue;
        };
        let Some(stat) = if_there(tree.fs.stat(&path)).at("look at", &path)? else {
            // Taken back by a batch that was not committed.
            continue;
        };
        if age.is_zero() || now - stat.mtime_ns >= age.as_nanos() as i128 {
            old.push(OldReceipt {
                id,
                path,
                inode: stat.inode,
            });
        }
    }
    Ok(old)
}

/// Names the parcels that workers of a stage have in hand, living or dead, and the work they are
/// about to hand over.
fn in_hand(tree: &WorkTree, stage: &StageDir) -> Result<HashSet<ParcelId>> {
    let mut in_hand = HashSet::new();
    for parent in [stage.claim(), stage.reap()] {
        for (worker, _) in tree.list(&parent)? {
            let home = parent.join(worker);
            let claimed = tree.list(&home.join("in"))?;
            let claimed = claimed
                .iter()
                .filter_map(|(name, _)| ParcelEntry::parse(name));
            in_hand.extend(claimed.map(|entry| entry.id));
            let out = home.join("out");
            for (name, _) in tree.list(&out)? {
                if !name.as_encoded_bytes().starts_with(b".sheet-") {
                    continue;
                }
                let sheet = out.join(name);
                let bytes = if_there(tree.fs.read(&sheet, 1 << 30)).at("read", &sheet)?;
                let Some(bytes) = bytes else {
                    // Handed over meanwhile.
                    continue;
                };
                for filed in parse_sheet(&bytes) {
                    in_hand.extend(filed.receipt.inputs.into_iter().map(|input| input.parcel));
                    in_hand.insert(filed.receipt.work);
                }
            }
        }
    }
    Ok(in_hand)
}

/// Finds the line of `name` in a sorted file of lines.
fn bisect(index: &mut dyn SeekRead, name: &str) -> io::Result<Option<IndexLine>> {
    let mut low = 0;
    let mut high = index.seek(SeekFrom::End(0))?;
    // Invariant: the line, if any, starts at or after `low` and before `high`.
    while high - low > 4096 {
        let middle = low + (high - low) / 2;
        let (start, line) = line_after(index, middle)?;
        if start >= high || line.split('\t').next().unwrap_or_default() > name {
            high = middle;
        } else {
            low = start;
        }
    }
    index.seek(SeekFrom::Start(low))?;
    let reader = BufReader::new(index.take(high - low + (64 << 10)));
    for line in reader.lines() {
        let line = line?;
        let found = line.split('\t').next().unwrap_or_default();
        if found == name {
            return Ok(IndexLine::parse(&line));
        }
        if found > name {
            break;
        }
    }
    Ok(None)
}

/// Returns the first whole line that starts after `position`, and where it starts.
fn line_after(index: &mut dyn SeekRead, position: u64) -> io::Result<(u64, String)> {
    index.seek(SeekFrom::Start(position))?;
    let mut reader = BufReader::with_capacity(1024, index);
    let mut skipped = Vec::new();
    let start = position + reader.read_until(b'\n', &mut skipped)? as u64;
    let mut line = String::new();
    reader.read_line(&mut line)?;
    Ok((start, line))
}

fn read_member(fs: &dyn Fs, path: &Path, offset: u64, bytes: u64) -> io::Result<Vec<u8>> {
    let mut file = fs.open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut lines = Vec::new();
    GzDecoder::new(file.take(bytes)).read_to_end(&mut lines)?;
    Ok(lines)
}
