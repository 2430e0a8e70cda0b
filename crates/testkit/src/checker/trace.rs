//! Follows every given file through the chain and works out anew what must have come of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use super::disk::{Disk, Fate, Line, Output, list};
use super::{CheckerVerdict, Given, RELAY_ATTEMPTS, sha256};

/// A parcel as it must be.
struct Expected {
    id: String,
    kind: &'static str,
    born: String,
    /// Name and content, in order of name.
    files: Vec<(String, Vec<u8>)>,
}

impl Expected {
    fn manifest(&self, born: &str) -> Vec<u8> {
        let files: Vec<String> = self
            .files
            .iter()
            .map(|(name, bytes)| {
                let digest = sha256(bytes);
                format!(
                    r#"{{"name":"{name}","bytes":{},"sha256":"{digest}"}}"#,
                    bytes.len()
                )
            })
            .collect();
        format!(
            "{{\"schema\":1,\"id\":\"{}\",\"kind\":\"{}\",\"born\":\"{born}\",\"files\":[{}]}}\n",
            self.id,
            self.kind,
            files.join(",")
        )
        .into_bytes()
    }

    fn digest(&self) -> String {
        sha256(&self.manifest(&self.born))
    }

    fn content(&self) -> String {
        sha256(&self.manifest(""))
    }

    fn output(&self, to: &str) -> Output {
        Output {
            parcel: self.id.clone(),
            digest: self.digest(),
            bytes: self.files.iter().map(|(_, bytes)| bytes.len() as u64).sum(),
            to: to.to_owned(),
        }
    }

    fn child(
        &self,
        stage: &str,
        id: String,
        kind: &'static str,
        file: &str,
        bytes: Vec<u8>,
    ) -> Self {
        Self {
            born: birth(stage, &self.id, &self.born, &id),
            id,
            kind,
            files: vec![(file.to_owned(), bytes)],
        }
    }
}

fn birth(stage: &str, work: &str, parent: &str, id: &str) -> String {
    let hash = sha256(format!("{stage}\n{parent}\n{id}\n").as_bytes());
    match work == id {
        true => hash[..16].to_owned(),
        false => format!("{} {stage} {work}", &hash[..16]),
    }
}

fn batch_id(prefix: &str, members: &BTreeSet<String>) -> String {
    let text: String = members.iter().map(|member| format!("{member}\n")).collect();
    format!("{prefix}-{}", &sha256(text.as_bytes())[..20])
}

pub(super) fn follow(disk: &Disk, gifts: &[Given], verdict: &mut CheckerVerdict) {
    let mut trace = Trace {
        disk,
        verdict,
        seen: HashMap::new(),
        halves: BTreeMap::new(),
    };
    for given in gifts {
        trace.given(given);
    }
    trace.sheets();
    trace.strangers();
}

struct Trace<'a> {
    disk: &'a Disk,
    verdict: &'a mut CheckerVerdict,
    /// What must have a receipt, or be held, in each stage.
    seen: HashMap<&'static str, BTreeSet<String>>,
    /// The halves that must have been gathered, each with its line.
    halves: BTreeMap<String, String>,
}

/// Where a parcel of a stage came to.
enum Came<'a> {
    Through(&'a Line),
    /// With so many attempts begun.
    Held(u32),
    Nowhere,
}

impl<'a> Trace<'a> {
    fn given(&mut self, given: &Given) {
        let id = given.id();
        let relay = &self.disk.stages["relay"];
        let is_there = relay.taken.contains_key(&id) || relay.lying.contains_key(&id);
        if !given.acknowledged && !is_there {
            return;
        }
        self.verdict.parcels += 1;
        let mut parcel = Expected {
            born: String::new(),
            id,
            kind: "file",
            files: vec![(given.name.clone(), given.text.clone().into_bytes())],
        };
        parcel.born = self.born(&parcel.id);
        self.relay(parcel, given);
    }

    /// Returns the birth mark of a given file: nobody can work it out, only read it.
    fn born(&self, id: &str) -> String {
        let stage = &self.disk.stages["relay"];
        let line = stage
            .taken
            .get(id)
            .and_then(|work| stage.receipts.get(work));
        let input = line.and_then(|line| line.receipt.inputs.iter().find(|i| i.parcel == id));
        if let Some(input) = input {
            return input.born.clone();
        }
        let lying = stage.lying.get(id).and_then(|lying| lying.first());
        lying
            .and_then(|lying| fs::read(lying.path.join("parcel.json")).ok())
            .and_then(|bytes| serde_json::from_slice::<serde_json::Value>(&bytes).ok())
            .and_then(|manifest| Some(manifest["born"].as_str()?.to_owned()))
            .unwrap_or_default()
    }

    /// Finds what became of a parcel in a stage; it must be one thing only.
    fn came(&mut self, stage: &'static str, parcel: &Expected) -> Came<'a> {
        self.seen
            .entry(stage)
            .or_default()
            .insert(parcel.id.clone());
        let there = &self.disk.stages[stage];
        let line = there
            .taken
            .get(&parcel.id)
            .and_then(|work| there.receipts.get(work));
        let lying = there.lying.get(&parcel.id).map_or(&[][..], Vec::as_slice);
        if lying.len() + usize::from(line.is_some()) > 1 {
            let places: Vec<&str> = lying.iter().map(|lying| lying.place).collect();
            let places = places.join(", ");
            let done = if line.is_some() { "done, and " } else { "" };
            self.verdict
                .twice(format!("{} of {stage} is {done}in {places}", parcel.id));
        }
        if let Some(line) = line {
            self.judge_input(stage, line, parcel);
            return Came::Through(line);
        }
        match lying {
            [] => {
                self.verdict.lost(format!("{} in {stage}", parcel.id));
                Came::Nowhere
            }
            [lying, ..] => {
                self.judge_lying(&lying.path, parcel);
                if lying.place == "held" {
                    Came::Held(lying.attempts)
                } else {
                    // Counted as a leftover already.
                    Came::Nowhere
                }
            }
        }
    }

    fn judge_input(&mut self, stage: &str, line: &Line, parcel: &Expected) {
        let input = line.receipt.inputs.iter().find(|i| i.parcel == parcel.id);
        let Some(input) = input else {
            return self
                .verdict
                .bad(format!("{} is no input in {stage}", parcel.id));
        };
        if input.digest != parcel.digest() || input.content != parcel.content() {
            self.verdict.bad(format!(
                "{stage} took {} as {}, not as {}: the chain of digests is broken",
                parcel.id,
                input.digest,
                parcel.digest()
            ));
        }
    }

    fn judge_lying(&mut self, path: &Path, parcel: &Expected) {
        let manifest = fs::read(path.join("parcel.json")).unwrap_or_default();
        if manifest != parcel.manifest(&parcel.born) {
            self.verdict
                .bad(format!("{} has another parcel.json", path.display()));
        }
        for (name, bytes) in &parcel.files {
            if fs::read(path.join(name)).ok().as_ref() != Some(bytes) {
                self.verdict
                    .bad(format!("{} has another {name}", path.display()));
            }
        }
        let known = ["parcel.json", "history", "trouble.json"];
        for (name, _) in list(path).unwrap_or_default() {
            if !known.contains(&name.as_str()) && !parcel.files.iter().any(|(n, _)| *n == name) {
                self.verdict
                    .bad(format!("{} holds a stranger, {name}", path.display()));
            }
        }
    }

    fn held(&mut self, stage: &'static str, parcel: &Expected, may: &[&str]) {
        self.verdict.held += 1;
        match self.disk.stages[stage].why.get(&parcel.id) {
            None => self
                .verdict
                .bad(format!("{} is held in {stage} for no reason", parcel.id)),
            Some(reason) if !may.iter().any(|may| reason.contains(may)) => {
                let id = &parcel.id;
                self.verdict
                    .bad(format!("{id} should not be held in {stage}: {reason}"));
            }
            Some(_) => {}
        }
    }

    fn relay(&mut self, mut parcel: Expected, given: &Given) {
        let word = given.text.split_whitespace().next().unwrap_or_default();
        match self.came("relay", &parcel) {
            Came::Through(line) => {
                let (name, bytes) = &parcel.files[0];
                let note = format!("{name} {}\n", bytes.len()).into_bytes();
                parcel.files.push(("relayed".to_owned(), note));
                let fate = Fate::PassOn {
                    to: "split".to_owned(),
                    digest: parcel.digest(),
                };
                self.expect("relay", line, &[], &fate);
                if ["hold", "die", "panic"].contains(&word) {
                    self.verdict
                        .bad(format!("{} should have been held", parcel.id));
                }
                self.split(&parcel);
            }
            Came::Held(attempts) => {
                let mut may = Vec::new();
                if word == "hold" {
                    may.push("asks to be held");
                }
                if attempts >= RELAY_ATTEMPTS {
                    may.extend(["its worker died", "its work crashed"]);
                }
                self.held("relay", &parcel, &may);
            }
            Came::Nowhere => {}
        }
    }

    fn split(&mut self, parcel: &Expected) {
        match self.came("split", parcel) {
            Came::Through(line) => {
                let halves = [("a", 0), ("b", 1)].map(|(half, start)| {
                    let bytes = parcel.files[0].1.iter().copied().skip(start).step_by(2);
                    let id = format!("{}.{half}", parcel.id);
                    parcel.child("split", id, "half", "half", bytes.collect())
                });
                let outputs = [halves[0].output("tally"), halves[1].output("tally")];
                self.expect("split", line, &outputs, &Fate::Consume);
                for half in halves {
                    self.tally(&half);
                }
            }
            Came::Held(_) => self.held("split", parcel, &[]),
            Came::Nowhere => {}
        }
    }

    fn tally(&mut self, half: &Expected) {
        match self.came("tally", half) {
            Came::Through(_) => {
                let line = format!("{} {}\n", half.id, sha256(&half.files[0].1));
                self.halves.insert(half.id.clone(), line);
            }
            Came::Held(_) => self.held("tally", half, &[]),
            Came::Nowhere => {}
        }
    }

    fn expect(&mut self, stage: &str, line: &Line, outputs: &[Output], fate: &Fate) {
        let receipt = &line.receipt;
        if receipt.outputs != outputs || &receipt.fate != fate {
            self.verdict.bad(format!(
                "{stage} made {:?} of {} and {:?}, not {outputs:?} and {fate:?}",
                receipt.outputs, receipt.work, receipt.fate
            ));
        }
    }

    /// Every batch must have its sheet on the shelf, and every half its line in one sheet.
    fn sheets(&mut self) {
        let disk = self.disk;
        let mut gathered: HashMap<String, usize> = HashMap::new();
        for (work, line) in &disk.stages["tally"].receipts {
            let receipt = &line.receipt;
            let members: BTreeSet<String> =
                receipt.inputs.iter().map(|i| i.parcel.clone()).collect();
            let (name, parent) = match receipt.inputs.as_slice() {
                [one] => (one.parcel.clone(), one.born.clone()),
                _ => (batch_id("tally", &members), batch_id("tally", &members)),
            };
            if *work != name {
                self.verdict
                    .bad(format!("batch {work} should be named {name}"));
            }
            let mut lines: Vec<&str> = members
                .iter()
                .filter_map(|member| self.halves.get(member).map(String::as_str))
                .collect();
            lines.sort_unstable();
            let id = batch_id("sheet", &members);
            let sheet = Expected {
                born: birth("tally", &name, &parent, &id),
                id,
                kind: "sheet",
                files: vec![("sheet".to_owned(), lines.concat().into_bytes())],
            };
            self.expect("tally", line, &[sheet.output("shelf")], &Fate::Consume);
            self.shelf(&sheet, line);
            for member in members {
                *gathered.entry(member).or_default() += 1;
            }
        }
        for (half, times) in gathered {
            if times > 1 {
                self.verdict
                    .twice(format!("{half} stands in {times} sheets"));
            }
        }
    }

    fn shelf(&mut self, sheet: &Expected, line: &Line) {
        let lying = self.disk.stages["shelf"].lying.get(&sheet.id);
        self.seen
            .entry("shelf")
            .or_default()
            .insert(sheet.id.clone());
        match lying.map_or(&[][..], Vec::as_slice) {
            [] => self
                .verdict
                .lost(format!("the sheet {} on the shelf", sheet.id)),
            [lying] => {
                self.judge_lying(&lying.path, sheet);
                self.judge_history(&lying.path, sheet, line);
            }
            _ => self
                .verdict
                .twice(format!("the sheet {} on the shelf", sheet.id)),
        }
    }

    /// The last page of a sheet's history is the receipt it came with.
    fn judge_history(&mut self, path: &Path, sheet: &Expected, line: &Line) {
        let pages = list(&path.join("history")).unwrap_or_default();
        let last = pages
            .last()
            .filter(|(name, _)| name.ends_with("-tally.json"));
        let told = last.is_some_and(|(_, page)| {
            let bytes = fs::read(page).unwrap_or_default();
            let mut lines = bytes.split_inclusive(|&b| b == b'\n');
            lines.any(|text| sha256(text) == line.digest)
        });
        let expected = if line.receipt.inputs.len() == 1 {
            3..
        } else {
            1..
        };
        if !told || !expected.contains(&pages.len()) {
            self.verdict
                .bad(format!("the history of sheet {} is not its own", sheet.id));
        }
    }

    /// What nobody gave.
    fn strangers(&mut self) {
        let none = BTreeSet::new();
        for (name, stage) in &self.disk.stages {
            let seen = self.seen.get(name).unwrap_or(&none);
            let ids: BTreeSet<&String> = stage.taken.keys().chain(stage.lying.keys()).collect();
            for id in ids {
                if !seen.contains(id) {
                    self.verdict
                        .bad(format!("{id} in {name} came from nowhere"));
                }
            }
        }
    }
}
