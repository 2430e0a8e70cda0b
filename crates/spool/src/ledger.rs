//! The ledger: old receipts of a stage, folded into one compressed file that only grows.
//!
//! `ledger/receipts.jsonl.gz` holds gzip members of receipt lines; `ledger/index` is sorted text,
//! `name<TAB>offset<TAB>length`, one line for each receipt, so that the duplicate check finds one
//! by bisection and a person by `grep`. The index is replaced in one step after the members it
//! points to are durable, and the receipts are removed after the index is.

use std::io::{self, BufRead, BufReader, Read, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use crate::error::{At, Result, SpoolError};
use crate::fs::{Fs, Kind, Source, gone};
use crate::name::ParcelId;
use crate::receipt::{Filed, find_in_sheet};
use crate::worker::is_committed;
use crate::yard::{StageDir, Yard};

const RECEIPTS: &str = "receipts.jsonl.gz";
const INDEX: &str = "index";
/// Receipts in one gzip member: what a lookup has to inflate.
const LINES_A_MEMBER: usize = 256;

/// One line of the index.
struct IndexLine {
    name: String,
    offset: u64,
    bytes: u64,
}

impl IndexLine {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.trim_end().split('\t');
        Some(Self {
            name: fields.next()?.to_owned(),
            offset: fields.next()?.parse().ok()?,
            bytes: fields.next()?.parse().ok()?,
        })
    }
}

/// The index, opened; receipts folded after that are not in it.
pub(crate) struct Index<'fs> {
    fs: &'fs dyn Fs,
    stage: &'fs StageDir,
    file: Box<dyn Source>,
}

impl<'fs> Index<'fs> {
    /// Opens the index of a stage, if anything was ever folded there.
    pub(crate) fn open(fs: &'fs dyn Fs, stage: &'fs StageDir) -> Result<Option<Self>> {
        let path = stage.ledger().join(INDEX);
        match fs.open(&path) {
            Ok(file) => Ok(Some(Self { fs, stage, file })),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e).at("open", &path),
        }
    }

    /// Tells whether the receipt of a piece of work was folded.
    pub(crate) fn holds(&mut self, id: &ParcelId) -> Result<bool> {
        Ok(self.line(id)?.is_some())
    }

    /// Finds the folded receipt of a piece of work.
    pub(crate) fn find(&mut self, id: &ParcelId) -> Result<Option<Filed>> {
        let Some(line) = self.line(id)? else {
            return Ok(None);
        };
        let path = self.stage.ledger().join(RECEIPTS);
        let bytes = read_member(self.fs, &path, &line).at("read", &path)?;
        match find_in_sheet(&bytes, id) {
            Some(filed) => Ok(Some(filed)),
            None => Err(SpoolError::Damaged {
                parcel: id.clone(),
                reason: format!("the ledger names it at {} but it is not there", line.offset),
            }),
        }
    }

    fn line(&mut self, id: &ParcelId) -> Result<Option<IndexLine>> {
        let path = self.stage.ledger().join(INDEX);
        bisect(&mut *self.file, id.as_str()).at("search", &path)
    }
}

/// Folds receipts older than `age` into the ledger of a stage; returns how many.
pub fn fold(yard: &Yard, stage: &str, age: Duration) -> Result<usize> {
    let fs = &*yard.fs;
    let stage = yard.stage(stage);
    let lock_path = stage.ledger().join(".lock");
    drop(fs.append(&lock_path).at("open", &lock_path)?);
    let Some(_lock) = fs.lock(&lock_path).at("lock", &lock_path)? else {
        return Ok(0);
    };
    let old = old_receipts(yard, &stage, age)?;
    if old.is_empty() {
        return Ok(0);
    }
    let mut lines = Vec::with_capacity(old.len());
    let ledger = stage.ledger().join(RECEIPTS);
    let mut offset = fs.stat(&ledger).map_or(0, |stat| stat.bytes);
    let mut writer = fs.append(&ledger).at("open", &ledger)?;
    for group in old.chunks(LINES_A_MEMBER) {
        let mut member = GzEncoder::new(Vec::new(), Compression::default());
        let mut ids = Vec::with_capacity(group.len());
        for (id, path) in group {
            let bytes = fs.read(path, 1 << 30).at("read", path)?;
            let Some(filed) = find_in_sheet(&bytes, id) else {
                tracing::warn!(receipt = %path.display(), "not a receipt: left where it is");
                continue;
            };
            if !is_committed(fs, &stage, id, &filed.receipt)? {
                continue;
            }
            member
                .write_all(&filed.receipt.to_line())
                .at("compress", path)?;
            ids.push(id.clone());
        }
        let member = member.finish().at("compress", &ledger)?;
        writer.write_all(&member).at("write", &ledger)?;
        let bytes = member.len() as u64;
        lines.extend(ids.into_iter().map(|id| IndexLine {
            name: id.into(),
            offset,
            bytes,
        }));
        offset += bytes;
    }
    writer.flush().at("write", &ledger)?;
    drop(writer);
    fs.sync_file(&ledger).at("sync", &ledger)?;
    replace_index(fs, &stage, &mut lines)?;
    let folded = lines.len();
    for line in lines {
        if let Ok(id) = ParcelId::new(&line.name) {
            let path = stage.receipt(&id);
            gone(fs.unlink(&path)).at("remove", &path)?;
        }
    }
    Ok(folded)
}

fn old_receipts(
    yard: &Yard,
    stage: &StageDir,
    age: Duration,
) -> Result<Vec<(ParcelId, std::path::PathBuf)>> {
    let fs = &*yard.fs;
    let now = yard.now_ns(stage);
    let receipts = stage.receipts();
    let mut old = Vec::new();
    for (shard, kind) in fs.list(&receipts).at("list", &receipts)? {
        if kind != Kind::Dir {
            continue;
        }
        let dir = receipts.join(shard);
        for (name, _) in fs.list(&dir).at("list", &dir)? {
            let path = dir.join(&name);
            let name = name.to_str().and_then(|name| name.strip_suffix(".json"));
            let Some(id) = name.and_then(|name| ParcelId::new(name).ok()) else {
                continue;
            };
            let stat = fs.stat(&path).at("look at", &path)?;
            if now - stat.mtime_ns >= age.as_nanos() as i128 {
                old.push((id, path));
            }
        }
    }
    Ok(old)
}

/// Merges new lines into the index and replaces it in one step.
fn replace_index(fs: &dyn Fs, stage: &StageDir, lines: &mut [IndexLine]) -> Result<()> {
    lines.sort_by(|a, b| a.name.cmp(&b.name));
    let (path, new) = (
        stage.ledger().join(INDEX),
        stage.ledger().join(".index.new"),
    );
    gone(fs.unlink(&new)).at("remove", &new)?;
    let mut out = io::BufWriter::new(fs.create(&new).at("create", &new)?);
    let mut old: Box<dyn BufRead> = match fs.open(&path) {
        Ok(file) => Box::new(BufReader::new(file)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Box::new(io::empty()),
        Err(e) => return Err(e).at("open", &path),
    };
    let mut fresh = lines.iter().peekable();
    let mut text = String::new();
    loop {
        text.clear();
        let more = old.read_line(&mut text).at("read", &path)? > 0;
        let name = text.split('\t').next().unwrap_or_default();
        while let Some(line) = fresh.peek()
            && (!more || line.name.as_str() <= name)
        {
            writeln!(out, "{}\t{}\t{}", line.name, line.offset, line.bytes).at("write", &new)?;
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
    fs.rename(&new, &path).at("replace", &path)?;
    let dir = stage.ledger();
    fs.sync_dir(&dir).at("sync", &dir)
}

/// Finds the line of `name` in a sorted file of lines.
fn bisect(index: &mut dyn Source, name: &str) -> io::Result<Option<IndexLine>> {
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
fn line_after(index: &mut dyn Source, position: u64) -> io::Result<(u64, String)> {
    index.seek(SeekFrom::Start(position))?;
    let mut reader = BufReader::with_capacity(1024, index);
    let mut skipped = Vec::new();
    let start = position + reader.read_until(b'\n', &mut skipped)? as u64;
    let mut line = String::new();
    reader.read_line(&mut line)?;
    Ok((start, line))
}

fn read_member(fs: &dyn Fs, path: &Path, line: &IndexLine) -> io::Result<Vec<u8>> {
    let mut file = fs.open(path)?;
    file.seek(SeekFrom::Start(line.offset))?;
    let mut bytes = Vec::new();
    GzDecoder::new(file.take(line.bytes)).read_to_end(&mut bytes)?;
    Ok(bytes)
}
