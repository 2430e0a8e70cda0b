//! Tickets: the small object that says of a parcel what it is and how it stands, and the keys of everything in the store.
//!
//! A parcel waits in a stage as long as its ticket lies under the stage's `in/`. The ticket is made where there is none and
//! changed only as the one that was read, so a parcel is in one state at a time whoever reaches for it. Its name holds the
//! birth mark: a copy of the same name come late has a ticket of its own, and whoever removes one removes that one.

use std::collections::BTreeMap;

use ecluse_spool::{FileEntry, ParcelId, ParcelManifest, ParcelState, Trouble, digest};
use serde::{Deserialize, Serialize};

/// What stands between a parcel's name and the digest of its birth mark.
const MARK: char = '=';

/// How a parcel stands in a stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "is")]
pub(crate) enum TicketState {
    /// It may be claimed.
    Ready,
    /// A worker has it.
    Working {
        /// The worker.
        worker: String,
    },
    /// It waits for the world.
    Deferred {
        /// Until when, in Unix seconds of the store's clock.
        due: u64,
    },
    /// It waits for a person.
    Held,
    /// A person took it out of the chain.
    Discarded,
    /// It is being carried from one engine to the other, and nobody claims it.
    Moving {
        /// How it stood, and will.
        was: Box<TicketState>,
    },
}

impl TicketState {
    /// Tells whether it waits for something else than a worker.
    pub(crate) fn is_aside(&self) -> bool {
        match self {
            Self::Ready | Self::Working { .. } => false,
            Self::Deferred { .. } | Self::Held | Self::Discarded | Self::Moving { .. } => true,
        }
    }

    pub(crate) fn parcel_state(&self) -> ParcelState {
        match self {
            Self::Ready => ParcelState::Ready,
            Self::Working { .. } | Self::Moving { .. } => ParcelState::Working,
            Self::Deferred { .. } => ParcelState::Deferred,
            Self::Held => ParcelState::Held,
            Self::Discarded => ParcelState::Discarded,
        }
    }
}

/// A receipt that a parcel has gathered, by where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct HistoryPage {
    /// The stage that wrote it.
    pub(crate) stage: String,
    /// The work it is of: the parcel, or a batch.
    pub(crate) work: ParcelId,
}

/// What the store knows of a parcel in a stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Ticket {
    /// Version of this format.
    pub(crate) schema: u32,
    /// How often it was written: no two states of a ticket have the same bytes.
    pub(crate) turn: u64,
    /// How it stands.
    pub(crate) state: TicketState,
    /// Attempts begun that did not end well.
    pub(crate) attempts: u32,
    /// `parcel.json`.
    pub(crate) manifest: ParcelManifest,
    /// Which stage brought each file: that is part of the file's key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) makers: BTreeMap<String, String>,
    /// The receipts it has gathered, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) history: Vec<HistoryPage>,
    /// What went wrong lately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trouble: Option<Trouble>,
}

impl Ticket {
    /// Returns the ticket of a parcel whose files a stage brings.
    pub(crate) fn new(manifest: ParcelManifest, maker: &str, history: Vec<HistoryPage>) -> Self {
        let files = manifest.files.iter();
        let makers = files.map(|file| (file.name.clone(), maker.to_owned()));
        Self {
            schema: 1,
            turn: 0,
            state: TicketState::Ready,
            attempts: 0,
            makers: makers.collect(),
            manifest,
            history,
            trouble: None,
        }
    }

    /// Returns its name.
    pub(crate) fn name(&self) -> String {
        ticket_name(&self.manifest)
    }

    /// Returns it in another state, one turn on.
    pub(crate) fn turned(&self, state: TicketState, attempts: u32) -> Self {
        Self {
            turn: self.turn + 1,
            state,
            attempts,
            ..self.clone()
        }
    }

    /// Returns the key of one of its files.
    pub(crate) fn payload_key(&self, file: &FileEntry) -> String {
        let maker = self.makers.get(&file.name).map_or("", String::as_str);
        payload_key(maker, &self.manifest, file)
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(self).expect("a ticket holds only strings and numbers");
        bytes.push(b'\n');
        bytes
    }
}

/// Returns the name of a parcel's ticket.
pub(crate) fn ticket_name(manifest: &ParcelManifest) -> String {
    format!("{}{MARK}{}", manifest.id, mark_of_born(&manifest.born))
}

/// Returns what a birth mark becomes in the names of tickets and files.
pub(crate) fn mark_of_born(born: &str) -> String {
    let mut mark = digest(born.as_bytes());
    mark.truncate(12);
    mark
}

/// Returns the parcel whose ticket has this name.
pub(crate) fn parcel_of(name: &str) -> Option<ParcelId> {
    let (id, mark) = name.rsplit_once(MARK)?;
    let is_mark = mark.len() == 12 && mark.bytes().all(|byte| byte.is_ascii_hexdigit());
    ParcelId::new(id).ok().filter(|_| is_mark)
}

/// What the names of all tickets of parcels of this name begin with.
pub(crate) fn names_of(id: &ParcelId) -> String {
    format!("{id}{MARK}")
}

/// Returns the key of a file that a stage brought into a parcel. It follows from content, name and owner: the same work puts
/// it under the same key, and no other file, parcel or stage shares it, so whoever knows that it is no longer needed may
/// remove it.
pub(crate) fn payload_key(maker: &str, manifest: &ParcelManifest, file: &FileEntry) -> String {
    let shard = manifest.id.shard();
    let owner = ticket_name(manifest);
    let name = digest(file.name.as_bytes());
    format!(
        "payloads/{maker}/{shard}/{owner}/{}-{}",
        file.sha256,
        &name[..8]
    )
}

/// The keys of one stage.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StageKeys<'a>(pub(crate) &'a str);

impl StageKeys<'_> {
    pub(crate) fn tickets(&self) -> String {
        format!("stages/{}/in/", self.0)
    }

    pub(crate) fn ticket(&self, name: &str) -> String {
        format!("stages/{}/in/{name}", self.0)
    }

    /// Where names of held parcels are listed, beside their tickets.
    pub(crate) fn held(&self) -> String {
        format!("stages/{}/held/", self.0)
    }

    /// Where names of discarded parcels are listed.
    pub(crate) fn discarded(&self) -> String {
        format!("stages/{}/discarded/", self.0)
    }

    /// Where names of deferred parcels are listed, by when they are due.
    pub(crate) fn deferred(&self) -> String {
        format!("stages/{}/deferred/", self.0)
    }

    pub(crate) fn deferred_mark(&self, due: u64, name: &str) -> String {
        format!("stages/{}/deferred/{due:012}{MARK}{name}", self.0)
    }

    /// Where names of parcels are listed that are being carried between engines.
    pub(crate) fn moving(&self) -> String {
        format!("stages/{}/moving/", self.0)
    }

    /// Where names of parcels are listed that were carried into work directories.
    pub(crate) fn gone(&self) -> String {
        format!("stages/{}/gone/", self.0)
    }

    pub(crate) fn receipts(&self) -> String {
        format!("stages/{}/receipts/", self.0)
    }

    pub(crate) fn receipt(&self, work: &ParcelId) -> String {
        format!("stages/{}/receipts/{}/{work}.json", self.0, work.shard())
    }

    pub(crate) fn sheets(&self) -> String {
        format!("stages/{}/sheets/", self.0)
    }

    /// The parcels that a receipt hands over, until it has.
    pub(crate) fn sheet(&self, work: &ParcelId, receipt: &[u8]) -> String {
        let digest = digest(receipt);
        format!("stages/{}/sheets/{work}{MARK}{}", self.0, &digest[..16])
    }

    pub(crate) fn workers(&self) -> String {
        format!("stages/{}/workers/", self.0)
    }

    pub(crate) fn worker(&self, worker: &str) -> String {
        format!("stages/{}/workers/{worker}", self.0)
    }

    pub(crate) fn paused(&self) -> String {
        format!("stages/{}/paused.json", self.0)
    }
}

/// Reads when a parcel is due and the name of its ticket from the last part of a deferred mark.
pub(crate) fn parse_deferred(mark: &str) -> Option<(u64, &str)> {
    let (due, name) = mark.split_once(MARK)?;
    Some((due.parse().ok()?, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_tells_copies_of_one_name_apart() {
        let id = ParcelId::new("a+2.warc.gz").unwrap();
        let one = ParcelManifest::new(id.clone(), "file", "one".into());
        let two = ParcelManifest::new(id.clone(), "file", "two".into());
        assert_ne!(ticket_name(&one), ticket_name(&two));
        assert_eq!(parcel_of(&ticket_name(&one)), Some(id.clone()));
        assert!(ticket_name(&one).starts_with(&names_of(&id)));
        for bad in ["a", "a=", "a=12345", "=0123456789ab", "a=0123456789xy"] {
            assert_eq!(parcel_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn marks_of_deferred_parcels_sort_by_when_they_are_due() {
        let keys = StageKeys("index@alpha");
        let (early, late) = (
            keys.deferred_mark(99, "b=1"),
            keys.deferred_mark(100, "a=2"),
        );
        assert!(early < late);
        let mark = early.strip_prefix(&keys.deferred()).unwrap();
        assert_eq!(parse_deferred(mark), Some((99, "b=1")));
    }

    #[test]
    fn a_ticket_reads_back_and_no_two_turns_are_the_same() {
        let id = ParcelId::new("a").unwrap();
        let ticket = Ticket::new(
            ParcelManifest::new(id, "file", "one".into()),
            "give",
            Vec::new(),
        );
        let read: Ticket = serde_json::from_slice(&ticket.to_bytes()).unwrap();
        assert_eq!(read, ticket);
        let back = ticket
            .turned(TicketState::Held, 1)
            .turned(TicketState::Ready, 0);
        assert_ne!(back.to_bytes(), ticket.to_bytes());
    }
}
