//! Everything that lies under `work/`, read once: receipts, held parcels, the shelf, and leftovers.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde::Deserialize;

use super::{CheckerVerdict, STAGES, sha256};

/// One line of a sheet.
#[derive(Debug, Deserialize)]
pub(super) struct Receipt {
    pub(super) work: String,
    pub(super) stage: String,
    pub(super) worker: String,
    pub(super) attempt: u32,
    pub(super) inputs: Vec<Input>,
    #[serde(default)]
    pub(super) outputs: Vec<Output>,
    pub(super) fate: Fate,
}

#[derive(Debug, Deserialize)]
pub(super) struct Input {
    pub(super) parcel: String,
    pub(super) born: String,
    pub(super) content: String,
    pub(super) digest: String,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Output {
    pub(super) parcel: String,
    pub(super) digest: String,
    pub(super) bytes: u64,
    pub(super) to: String,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "do")]
pub(super) enum Fate {
    PassOn { to: String, digest: String },
    Consume,
}

/// A receipt and the digest of the line it stands on.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) receipt: Receipt,
    pub(super) digest: String,
}

/// A parcel that lies somewhere.
#[derive(Debug)]
pub(super) struct Lying {
    pub(super) path: PathBuf,
    /// `ready`, `held`, `deferred`, `claim`, `reap`.
    pub(super) place: &'static str,
    /// Attempts begun, as its name says.
    pub(super) attempts: u32,
}

#[derive(Debug, Default)]
pub(super) struct Stage {
    /// The receipts, by the name of the work.
    pub(super) receipts: BTreeMap<String, Rc<Line>>,
    /// For each parcel that went in, the piece of work that took it.
    pub(super) taken: HashMap<String, String>,
    /// The parcels that lie here, by name.
    pub(super) lying: HashMap<String, Vec<Lying>>,
    /// Why a parcel is held.
    pub(super) why: HashMap<String, String>,
}

#[derive(Debug)]
pub(super) struct Disk {
    pub(super) stages: HashMap<&'static str, Stage>,
}

impl Disk {
    pub(super) fn read(work: &Path, verdict: &mut CheckerVerdict) -> io::Result<Self> {
        let mut stages = HashMap::new();
        for (name, path) in list(work)? {
            let Some(known) = STAGES.into_iter().find(|stage| **stage == *name) else {
                verdict.bad(format!("a stranger in work/: {name}"));
                continue;
            };
            stages.insert(known, read_stage(known, &path, verdict)?);
        }
        for stage in STAGES {
            stages.entry(stage).or_default();
        }
        no_empty_files(work, verdict)?;
        Ok(Self { stages })
    }
}

fn read_stage(name: &'static str, dir: &Path, verdict: &mut CheckerVerdict) -> io::Result<Stage> {
    let mut stage = Stage::default();
    let last = name == STAGES[STAGES.len() - 1];
    read_receipts(name, &dir.join("receipts"), &mut stage, verdict)?;
    for (entry, path) in list(&dir.join("ready"))? {
        lies(&mut stage, &entry, path, "ready", name, verdict);
    }
    for (entry, path) in list(&dir.join("deferred"))? {
        let entry = entry.split_once('~').map_or("", |(_, entry)| entry);
        lies(&mut stage, entry, path, "deferred", name, verdict);
    }
    for (entry, path) in list(&dir.join("held"))? {
        if let Some((id, _)) = entry.rsplit_once('~') {
            let reason = reason(&path.join("trouble.json"));
            stage
                .why
                .extend(reason.map(|reason| (id.to_owned(), reason)));
        }
        lies(&mut stage, &entry, path, "held", name, verdict);
    }
    for place in ["claim", "reap"] {
        for (worker, path) in list(&dir.join(place))? {
            verdict.bad(format!("left in {name}/{place}: {worker}"));
            for (entry, path) in list(&path.join("in"))? {
                lies(&mut stage, &entry, path, place, name, verdict);
            }
        }
    }
    let places: &[&str] = if last {
        &["deferred", "drop", "tmp", "held"]
    } else {
        &["ready", "deferred", "drop", "tmp"]
    };
    for place in places {
        for (entry, _) in list(&dir.join(place))? {
            verdict.bad(format!("left in {name}/{place}: {entry}"));
        }
    }
    Ok(stage)
}

/// Notes a parcel's directory under the name it has without its attempts.
fn lies(
    stage: &mut Stage,
    entry: &str,
    path: PathBuf,
    place: &'static str,
    name: &str,
    verdict: &mut CheckerVerdict,
) {
    let parsed = entry.rsplit_once('~');
    match parsed.and_then(|(id, attempts)| Some((id, attempts.parse().ok()?))) {
        Some((id, attempts)) => {
            let lying = Lying {
                path,
                place,
                attempts,
            };
            stage.lying.entry(id.to_owned()).or_default().push(lying);
        }
        None => verdict.bad(format!("no parcel's name in {name}/{place}: {entry}")),
    }
}

fn reason(path: &Path) -> Option<String> {
    #[derive(Deserialize)]
    struct Trouble {
        held: Why,
    }
    #[derive(Deserialize)]
    struct Why {
        reason: String,
    }
    let trouble: Trouble = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    Some(trouble.held.reason).filter(|reason| !reason.is_empty())
}

fn read_receipts(
    name: &str,
    dir: &Path,
    stage: &mut Stage,
    verdict: &mut CheckerVerdict,
) -> io::Result<()> {
    // A sheet has a name for each receipt on it: each is read once.
    let mut sheets: HashMap<u64, Vec<Rc<Line>>> = HashMap::new();
    let mut members: Vec<(String, Rc<Line>)> = Vec::new();
    for (_, shard) in list(dir)? {
        for (file, path) in list(&shard)? {
            let inode = fs::symlink_metadata(&path)?.ino();
            let sheet = match sheets.entry(inode) {
                Entry::Occupied(sheet) => sheet.into_mut(),
                Entry::Vacant(place) => place.insert(parse(&fs::read(&path)?, &path, verdict)),
            };
            let id = file.strip_suffix(".json").unwrap_or(&file);
            let mut found = sheet.iter().filter(|line| {
                let receipt = &line.receipt;
                receipt.work == id || receipt.inputs.iter().any(|i| i.parcel == id)
            });
            let Some(line) = found.next().map(Rc::clone) else {
                verdict.bad(format!("{} holds no receipt of {id}", path.display()));
                continue;
            };
            if found.next().is_some() {
                verdict.twice(format!("two receipts of {id} on one sheet of {name}"));
            }
            judge_line(name, &line.receipt, verdict);
            if line.receipt.work == id {
                stage.receipts.insert(id.to_owned(), line);
            } else {
                members.push((id.to_owned(), line));
            }
        }
    }
    let mut taken = HashMap::new();
    for (work, line) in &stage.receipts {
        for input in &line.receipt.inputs {
            if let Some(other) = taken.insert(input.parcel.clone(), work.clone()) {
                verdict.twice(format!(
                    "{name} took {} for {other} and for {work}",
                    input.parcel
                ));
            }
        }
    }
    for (id, line) in &members {
        let filed = stage.receipts.get(&line.receipt.work);
        if filed.is_none_or(|filed| filed.digest != line.digest) {
            verdict.bad(format!(
                "{name} filed {id} under a batch that was not committed"
            ));
        }
    }
    let members: HashSet<&String> = members.iter().map(|(id, _)| id).collect();
    for (id, work) in &taken {
        if id != work && !members.contains(id) {
            verdict.bad(format!("{name} has not filed {id} of batch {work}"));
        }
    }
    stage.taken = taken;
    Ok(())
}

fn parse(bytes: &[u8], path: &Path, verdict: &mut CheckerVerdict) -> Vec<Rc<Line>> {
    let mut lines = Vec::new();
    for line in bytes.split_inclusive(|&b| b == b'\n') {
        match serde_json::from_slice(line) {
            Ok(receipt) if line.ends_with(b"\n") => lines.push(Rc::new(Line {
                receipt,
                digest: sha256(line),
            })),
            _ => verdict.bad(format!("no receipt on a line of {}", path.display())),
        }
    }
    lines
}

fn judge_line(name: &str, receipt: &Receipt, verdict: &mut CheckerVerdict) {
    if receipt.stage != name || receipt.worker.is_empty() {
        verdict.bad(format!("a receipt of {} lies in {name}", receipt.stage));
    }
    if receipt.attempt < 1 {
        verdict.bad(format!("{name} did {} without an attempt", receipt.work));
    }
}

fn no_empty_files(dir: &Path, verdict: &mut CheckerVerdict) -> io::Result<()> {
    for (name, path) in list(dir)? {
        let meta = fs::symlink_metadata(&path)?;
        if meta.is_dir() {
            no_empty_files(&path, verdict)?;
        } else if !meta.is_file() {
            verdict.bad(format!("not a file: {}", path.display()));
        } else if meta.len() == 0 && name != ".lock" {
            verdict.bad(format!("an empty file: {}", path.display()));
        }
    }
    Ok(())
}

/// Lists a directory by name; one that is not there is empty.
pub(super) fn list(dir: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let mut names = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        names.push((name, path));
    }
    names.sort();
    Ok(names)
}
