//! The judge: reads only the disk, with its own eyes.
//!
//! It shares no code with the protocol beyond the formats: manifests and receipt lines are parsed,
//! every digest is computed again from bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use ecluse_spool::{
    Fate, Filed, MANIFEST, ParcelId, ParcelManifest, Receipt, TROUBLE, Trouble, parse_sheet,
};
use sha2::{Digest, Sha256};

use super::chain::{End, Job, Scenario, WORK, tree};
use super::disk::{Disk, Inode, Thing};
use super::fs::Process;

/// Returns everything that is wrong with a disk on which a scenario has come to rest.
pub(crate) fn judge(disk: &Disk, scenario: &Scenario) -> Vec<String> {
    let mut case = Case {
        tree: disk.tree(),
        names: BTreeMap::new(),
        sheets: BTreeMap::new(),
        wrong: Vec::new(),
    };
    for path in case.tree.keys() {
        if let (Some(dir), Some(name)) = (path.parent(), path.file_name()) {
            let names = case.names.entry(dir.to_owned()).or_default();
            names.insert(name.to_string_lossy().into_owned());
        }
    }
    let receipts = case.receipts(disk, scenario);
    let made = case.chain(disk, scenario, &receipts);
    for stage in scenario.stage_names() {
        case.is_empty(stage, "claim");
        case.is_empty(stage, "reap");
        case.is_empty(stage, "drop");
        case.is_empty(stage, "deferred");
        case.ready(stage, scenario);
        case.held(disk, stage, scenario);
    }
    for end in &scenario.ends {
        case.arrived(end, &made, &receipts);
    }
    case.wrong
}

struct Case {
    tree: BTreeMap<PathBuf, Thing>,
    names: BTreeMap<PathBuf, BTreeSet<String>>,
    /// Receipt lines by the number of the file: a sheet has many names.
    sheets: BTreeMap<Inode, Rc<Vec<Filed>>>,
    wrong: Vec<String>,
}

/// Receipts by stage and name.
type Receipts = BTreeMap<(String, String), Filed>;
/// Digests of manifests by the stage a parcel goes to and its id.
type Made = BTreeMap<(String, String), BTreeSet<String>>;

impl Case {
    fn complain(&mut self, text: String) {
        self.wrong.push(text);
    }

    fn names(&self, dir: &Path) -> BTreeSet<String> {
        self.names.get(dir).cloned().unwrap_or_default()
    }

    fn sheet(&mut self, path: &Path) -> Rc<Vec<Filed>> {
        let Some(Thing::File(bytes, inode)) = self.tree.get(path) else {
            return Rc::default();
        };
        let lines = self.sheets.entry(*inode);
        Rc::clone(lines.or_insert_with(|| Rc::new(parse_sheet(bytes))))
    }

    fn bytes(&self, path: &Path) -> Option<Arc<Vec<u8>>> {
        match self.tree.get(path)? {
            Thing::File(bytes, _) => Some(Arc::clone(bytes)),
            Thing::Dir => None,
        }
    }

    fn is_empty(&mut self, stage: &str, part: &str) {
        let names = self.names(&Path::new(WORK).join(stage).join(part));
        if !names.is_empty() {
            self.complain(format!("left in {stage}/{part}: {names:?}"));
        }
    }

    fn ready(&mut self, stage: &str, scenario: &Scenario) {
        let found = self.names(&Path::new(WORK).join(stage).join("ready"));
        let expected: BTreeSet<String> = scenario
            .ends
            .iter()
            .filter(|end| end.stage == stage)
            .map(|end| format!("{}~0", end.id))
            .collect();
        for lost in expected.difference(&found) {
            self.complain(format!("lost: {lost} is not in {stage}/ready"));
        }
        for extra in found.difference(&expected) {
            self.complain(format!("twice: {extra} is in {stage}/ready"));
        }
    }

    fn held(&mut self, disk: &Disk, stage: &str, scenario: &Scenario) {
        let dir = Path::new(WORK).join(stage).join("held");
        let mut found = self.names(&dir);
        for (_, id, reason) in scenario.held.iter().filter(|held| held.0 == stage) {
            let entries: Vec<String> = found
                .iter()
                .filter(|name| name.starts_with(&format!("{id}~")))
                .cloned()
                .collect();
            for entry in &entries {
                let text = self.bytes(&dir.join(entry).join(TROUBLE));
                match serde_json::from_slice::<Trouble>(&text.unwrap_or_default()) {
                    Ok(trouble) if trouble.held.as_ref().is_some_and(|w| w.reason == *reason) => {}
                    other => self.complain(format!("{id} is held for no reason: {other:?}")),
                }
            }
            // What an operator gave twice may be held twice.
            let offers = disk.outside.offered.iter().filter(|(o, _)| o == id).count();
            if !(1..=offers).contains(&entries.len()) {
                self.complain(format!("{id} is held {} times: {entries:?}", entries.len()));
            }
            found.retain(|name| !entries.contains(name));
        }
        if !found.is_empty() {
            let whys: Vec<String> = found
                .iter()
                .filter_map(|name| self.bytes(&dir.join(name)))
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
                .collect();
            self.complain(format!("held in {stage}: {found:?} {whys:?}"));
        }
    }

    /// Reads all receipts: exactly the expected ones, each with a line of its own.
    fn receipts(&mut self, disk: &Disk, scenario: &Scenario) -> Receipts {
        let mut receipts = self.folded(disk, scenario);
        for stage in scenario.stage_names() {
            let dir = Path::new(WORK).join(stage).join("receipts");
            for shard in self.names(&dir) {
                for file in self.names(&dir.join(&shard)) {
                    let path = dir.join(&shard).join(&file);
                    let name = file.trim_end_matches(".json").to_owned();
                    match line_of(&self.sheet(&path), &name) {
                        Some(filed) => {
                            receipts.insert((stage.to_owned(), name), filed);
                        }
                        None => self.complain(format!("{} is no receipt", path.display())),
                    }
                }
            }
        }
        let found: BTreeSet<(String, String)> = receipts.keys().cloned().collect();
        let expected: BTreeSet<(String, String)> = scenario
            .receipts
            .iter()
            .map(|(stage, name)| ((*stage).to_owned(), name.clone()))
            .collect();
        for (stage, name) in expected.difference(&found) {
            self.complain(format!("lost: no receipt {name} of {stage}"));
        }
        for (stage, name) in found.difference(&expected) {
            self.complain(format!("receipt {name} of {stage} was not to be"));
        }
        receipts
    }

    /// Reads the ledgers: each name there stands for one receipt that can be found.
    fn folded(&mut self, disk: &Disk, scenario: &Scenario) -> Receipts {
        let mut receipts = Receipts::new();
        let tree = tree(&Process::new(disk.clone()), "judge");
        for stage in scenario.stage_names() {
            let dir = Path::new(WORK).join(stage).join("ledger");
            for file in self.names(&dir) {
                if !file.ends_with(".index") {
                    continue;
                }
                let index = self.bytes(&dir.join(&file)).unwrap_or_default();
                for line in String::from_utf8_lossy(&index).lines() {
                    let name = line.split('\t').next().unwrap_or_default().to_owned();
                    let id = ParcelId::new(&name).unwrap();
                    let key = (stage.to_owned(), name);
                    match tree.receipt(stage, &id) {
                        Ok(Some(filed)) if !receipts.contains_key(&key) => {
                            receipts.insert(key, filed);
                        }
                        other => self.complain(format!("{key:?} in the ledger: {other:?}")),
                    }
                }
            }
        }
        if scenario.folds && receipts.is_empty() {
            self.complain("nothing was folded".into());
        }
        receipts
    }

    /// Follows the digests: what went into a stage is what came out of the one before.
    fn chain(&mut self, disk: &Disk, scenario: &Scenario, receipts: &Receipts) -> Made {
        let mut made = Made::new();
        let first = scenario.stages[0].name;
        for (id, digest) in &disk.outside.offered {
            add(&mut made, first, id, digest);
        }
        for filed in receipts.values() {
            outcome(&filed.receipt, &mut made);
        }
        for ((stage, name), filed) in receipts {
            let adopted = !scenario.drops.is_empty() && stage == first;
            for input in &filed.receipt.inputs {
                let key = (stage.clone(), input.parcel.to_string());
                let known = made.get(&key).is_some_and(|d| d.contains(&input.digest));
                if !known && !adopted {
                    self.complain(format!(
                        "receipt {name} of {stage} names an input {} of digest {} that nobody made",
                        input.parcel, input.digest
                    ));
                }
            }
            if filed.receipt.attempt == 0 {
                self.complain(format!("receipt {name} of {stage} counts no attempt"));
            }
            let consumes = scenario
                .stages
                .iter()
                .any(|s| s.name == stage && s.job == Job::Consume);
            if consumes {
                let text = scenario.gifts.iter().find(|(id, _)| id == name);
                let expected = text.map(|(_, text)| sha256(text.as_bytes()));
                if filed.receipt.facts.get("text").and_then(|v| v.as_str()) != expected.as_deref() {
                    self.complain(format!("{stage} consumed {name} with another content"));
                }
            }
        }
        made
    }

    /// Looks at a parcel that came through: bytes, manifest, history.
    fn arrived(&mut self, end: &End, made: &Made, receipts: &Receipts) {
        let dir = Path::new(WORK)
            .join(end.stage)
            .join("ready")
            .join(format!("{}~0", end.id));
        if !self.tree.contains_key(&dir) {
            return;
        }
        let bytes = self.bytes(&dir.join(MANIFEST)).unwrap_or_default();
        let Ok(manifest) = serde_json::from_slice::<ParcelManifest>(&bytes) else {
            return self.complain(format!("{} has no manifest", end.id));
        };
        let key = (end.stage.to_owned(), end.id.clone());
        if !made.get(&key).is_some_and(|d| d.contains(&sha256(&bytes))) {
            self.complain(format!("{} is not what the last receipt says", end.id));
        }
        let mut expected: BTreeSet<String> = [MANIFEST.to_owned(), "history".to_owned()].into();
        for (name, text) in &end.files {
            expected.insert(name.clone());
            let found = self.bytes(&dir.join(name)).unwrap_or_default();
            if **found != *text.as_bytes() {
                let found = String::from_utf8_lossy(&found).into_owned();
                self.complain(format!("{} of {} is {found:?}, not {text:?}", name, end.id));
            }
            let entry = manifest.file(name);
            if !entry.is_some_and(|e| e.sha256 == sha256(&found) && e.bytes == found.len() as u64) {
                self.complain(format!("the manifest of {} is wrong about {name}", end.id));
            }
        }
        if manifest.files.len() != end.files.len() {
            self.complain(format!("the manifest of {} names other files", end.id));
        }
        let found = self.names(&dir);
        if found != expected {
            self.complain(format!("{} holds {found:?}, not {expected:?}", end.id));
        }
        self.history(end, &dir.join("history"), receipts);
    }

    fn history(&mut self, end: &End, dir: &Path, receipts: &Receipts) {
        let found: Vec<String> = self.names(dir).into_iter().collect();
        let expected: Vec<String> = (1..)
            .zip(end.history)
            .map(|(n, stage)| format!("{n:02}-{stage}.json"))
            .collect();
        if found != expected {
            self.complain(format!(
                "the history of {} is {found:?}, not {expected:?}",
                end.id
            ));
        }
        for (page, stage) in expected.iter().zip(end.history) {
            let lines = self.sheet(&dir.join(page));
            let of_stage = receipts.iter().filter(|((s, _), _)| s == stage);
            let real = of_stage.map(|(_, filed)| &filed.digest);
            if !real
                .clone()
                .any(|d| lines.iter().any(|line| &line.digest == d))
            {
                self.complain(format!("{page} of {} is no receipt of {stage}", end.id));
            }
        }
    }
}

/// Finds the line of a sheet that is filed under `name`.
fn line_of(sheet: &[Filed], name: &str) -> Option<Filed> {
    let is_it = |receipt: &Receipt| {
        let inputs = receipt
            .inputs
            .iter()
            .any(|input| input.parcel.as_str() == name);
        receipt.work.as_str() == name || inputs
    };
    sheet.iter().find(|filed| is_it(&filed.receipt)).cloned()
}

fn outcome(receipt: &Receipt, made: &mut Made) {
    for output in &receipt.outputs {
        add(made, &output.to, output.parcel.as_str(), &output.digest);
    }
    if let Fate::PassOn { to, digest, .. } = &receipt.fate {
        for input in &receipt.inputs {
            add(made, to, input.parcel.as_str(), digest);
        }
    }
}

fn add(made: &mut Made, stage: &str, id: &str, digest: &str) {
    made.entry((stage.to_owned(), id.to_owned()))
        .or_default()
        .insert(digest.to_owned());
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
