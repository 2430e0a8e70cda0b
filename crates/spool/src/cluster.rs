//! The servers that an engine stands on, at one moment: who answers, who leads, who lags, what is wrong.

use std::time::Duration;

use serde::Serialize;

/// The servers of an engine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ClusterView {
    /// The servers that dispatch.
    pub servers: Vec<ServerView>,
    /// The queues of the stages.
    pub queues: Vec<QueueView>,
    /// The store that has the parcels.
    pub store: StoreView,
    /// What is wrong, in words.
    pub troubles: Vec<ClusterTrouble>,
}

/// A server that dispatches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ServerView {
    /// Its name; empty when nobody knows it.
    pub name: String,
    /// Its address; empty when the settings do not have it.
    pub address: String,
    /// How it is.
    pub state: ServerState,
    /// How many queues it leads.
    pub leads: usize,
    /// By how many changes its copies are behind, in all.
    pub lag: u64,
}

/// How a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerState {
    /// It answers, and its copies are whole.
    Ok,
    /// It answers, and some of its copies are behind.
    Behind,
    /// It does not answer, or not the other servers.
    CutOff,
}

impl ServerState {
    /// Returns the word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Behind => "behind",
            Self::CutOff => "CUT OFF",
        }
    }
}

/// The queue of a stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct QueueView {
    /// The stage.
    pub stage: String,
    /// The server that leads it; none when there is no majority.
    pub leader: Option<String>,
    /// The servers whose copy is not whole.
    pub behind: Vec<String>,
}

/// The store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct StoreView {
    /// Its address.
    pub address: String,
    /// How long it took to read a small object, in milliseconds; none when it could not be read.
    pub read_ms: Option<u64>,
    /// The same of writing.
    pub write_ms: Option<u64>,
}

/// Something that is wrong with the servers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ClusterTrouble {
    /// What.
    pub what: String,
    /// What helps.
    pub help: String,
    /// As long as it lasts nobody can see what is in the stages, or not soon.
    pub hides_stages: bool,
}

impl ClusterView {
    /// A store that takes longer than this for a call is too slow to be asked for everything.
    pub const SLOW: Duration = Duration::from_secs(2);

    /// Tells whether what is in the stages cannot be seen, or not soon.
    pub fn hides_stages(&self) -> bool {
        self.troubles.iter().any(|trouble| trouble.hides_stages)
    }
}
