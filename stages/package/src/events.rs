//! PREMIS events: what the receipts tell, one event for all files that it is true of.
//!
//! A package of a thousand files has as many events as one of ten. Identifiers follow from what an event says, so that
//! the work done again gives the same bytes.

use std::collections::BTreeMap;

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::facts::{FileFacts, JobFacts};
use crate::history::{Deed, FileHistory, Step};

/// One event and the objects it is about.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Event {
    pub(crate) id: String,
    /// As <http://id.loc.gov/vocabulary/preservation/eventType> names it, and its code there.
    #[serde(rename = "type")]
    pub(crate) name: &'static str,
    pub(crate) code: &'static str,
    /// When the last of them was done.
    pub(crate) at: String,
    pub(crate) detail: String,
    pub(crate) outcome: &'static str,
    pub(crate) note: String,
    pub(crate) agent: String,
    pub(crate) objects: Vec<String>,
}

/// Who did it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Agent {
    pub(crate) id: String,
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    pub(crate) version: Option<String>,
}

const SUCCESS: &str = "success";

/// What files share that were done the same: what was done, by which version, with what outcome.
type SameDeed<'a> = (Deed, &'a str, &'a str);

/// Returns the events of these files and their agents.
pub(crate) fn events_of(
    job: &JobFacts,
    files: &[FileFacts],
    histories: &[FileHistory],
    created: &str,
    version: &str,
) -> (Vec<Event>, Vec<Agent>) {
    let mut agents = Agents::default();
    let mut events = Vec::new();
    events.extend(capture(job, files, &mut agents));
    if let Some(closed) = &job.closed {
        let objects = vec![job.ark.clone()];
        events.push(Event {
            id: uuid(&["closing", &closed.at, &objects[0]]),
            name: "accession",
            code: "acc",
            at: closed.at.clone(),
            detail: "the job was closed by hand: its files are complete".into(),
            outcome: SUCCESS,
            note: closed.why.clone(),
            agent: agents.person(&closed.by),
            objects,
        });
    }
    let mut groups: BTreeMap<SameDeed<'_>, Vec<(&Step, &str)>> = BTreeMap::new();
    for (file, history) in files.iter().zip(histories) {
        for step in &history.steps {
            let key = (step.deed, step.version.as_str(), step.outcome.as_str());
            groups.entry(key).or_default().push((step, &file.ark));
        }
    }
    for ((deed, version, outcome), steps) in groups {
        events.push(of_steps(deed, version, outcome, &steps, &mut agents));
    }
    let objects = vec![job.ark.clone()];
    events.push(Event {
        id: uuid(&["packaging", created, &objects[0]]),
        name: "information package creation",
        code: "ipc",
        at: created.to_owned(),
        detail: "files linked or copied, digests taken over from those of ingest".into(),
        outcome: SUCCESS,
        note: format!("{} files", files.len()),
        agent: agents.program("package", version),
        objects,
    });
    (events, agents.0.into_values().collect())
}

/// The crawl, as its captures tell.
fn capture(job: &JobFacts, files: &[FileFacts], agents: &mut Agents) -> Option<Event> {
    let (first, last) = (job.first.as_deref()?, job.last.as_deref()?);
    let objects: Vec<String> = files.iter().map(|file| file.ark.clone()).collect();
    Some(Event {
        id: uuid(&["capture", first, last, &job.ark]),
        name: "capture",
        code: "cap",
        at: last.to_owned(),
        detail: format!(
            "captures from {first} to {last}, by the channel {}",
            job.channel
        ),
        outcome: SUCCESS,
        note: String::new(),
        agent: agents.crawler(&job.channel),
        objects,
    })
}

fn of_steps(
    deed: Deed,
    version: &str,
    outcome: &str,
    steps: &[(&Step, &str)],
    agents: &mut Agents,
) -> Event {
    let (name, code, detail) = match deed {
        Deed::Digest => (
            "message digest calculation",
            "mes",
            "when the file was taken in",
        ),
        Deed::Validation => (
            "validation",
            "val",
            "every record was read, and its index lines written",
        ),
        Deed::Transfer => ("transfer", "tra", "copied to its final place and read back"),
        Deed::Replication => ("replication", "rep", "copied to a backup and proved"),
        Deed::Deletion => ("deletion", "del", "of a copy that is not needed any more"),
    };
    let first = steps.iter().map(|(step, _)| step.at.as_str()).min();
    let last = steps.iter().map(|(step, _)| step.at.as_str()).max();
    let (first, last) = (first.unwrap_or_default(), last.unwrap_or_default());
    let objects: Vec<String> = steps.iter().map(|(_, ark)| (*ark).to_owned()).collect();
    let is_damaged = deed == Deed::Validation && outcome.contains("cannot be read");
    Event {
        id: uuid(&[name, last, outcome, &objects.concat()]),
        name,
        code,
        at: last.to_owned(),
        detail: format!("{detail}; from {first} to {last}"),
        outcome: if is_damaged { "warning" } else { SUCCESS },
        note: outcome.to_owned(),
        agent: agents.program(deed.stage(), version),
        objects,
    }
}

/// The agents met so far, by identifier.
#[derive(Default)]
struct Agents(BTreeMap<String, Agent>);

impl Agents {
    fn program(&mut self, stage: &str, version: &str) -> String {
        self.add(&format!("ecluse-{stage}"), "software", Some(version))
    }

    fn crawler(&mut self, channel: &str) -> String {
        self.add(channel, "software", None)
    }

    fn person(&mut self, name: &str) -> String {
        self.add(name, "person", None)
    }

    fn add(&mut self, name: &str, kind: &'static str, version: Option<&str>) -> String {
        let id = uuid(&["agent", name, kind, version.unwrap_or_default()]);
        let agent = || Agent {
            id: id.clone(),
            name: name.to_owned(),
            kind,
            version: version.map(str::to_owned),
        };
        self.0.entry(id.clone()).or_insert_with(agent);
        id
    }
}

/// Returns a UUID of version 8 (RFC 9562) that follows from some words.
fn uuid(words: &[&str]) -> String {
    let mut hash = Sha256::new();
    for word in words {
        hash.update(word.as_bytes());
        hash.update([0]);
    }
    let digest = hash.finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}
