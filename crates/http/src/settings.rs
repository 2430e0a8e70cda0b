//! What bounds the client and each fetch.

use std::path::Path;
use std::time::Duration;

use crate::block::Spooling;
use crate::message::MessageLimits;

/// What holds for a client and all its fetches.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Connections open for fetches at once; further fetches wait.
    pub connections: usize,
    /// Bytes a second over all fetches, if limited.
    pub bytes_per_second: Option<u64>,
    /// Connections kept open between fetches, over all authorities.
    pub kept_connections: usize,
    /// Connections kept open between fetches to one authority.
    pub kept_per_authority: usize,
    /// How long a connection is kept unused.
    pub keep_for: Duration,
    /// Where blocks are kept.
    pub spooling: Spooling,
    /// Whom certificates must come from.
    pub roots: Roots,
}

impl Settings {
    /// Returns what suits one crawl; large blocks are kept in `directory`.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        Self {
            connections: 500,
            bytes_per_second: None,
            kept_connections: 500,
            kept_per_authority: 4,
            keep_for: Duration::from_secs(60),
            spooling: Spooling::new(directory),
            roots: Roots::Mozilla,
        }
    }
}

/// The authorities that certificates must come from.
#[derive(Debug, Clone)]
pub enum Roots {
    /// Mozilla's list, as compiled in.
    Mozilla,
    /// These certificates, in DER.
    Given(Vec<Vec<u8>>),
}

/// What bounds one fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchLimits {
    /// For each address: until it is connected.
    pub connect: Duration,
    /// For the TLS handshake.
    pub tls: Duration,
    /// From the request until the first byte.
    pub first_byte: Duration,
    /// Between any two bytes.
    pub idle: Duration,
    /// For everything, without the wait for a free connection.
    pub total: Duration,
    /// The slowest that a response may come, in bytes a second, once it has had the time of grace.
    pub slowest_bytes_per_second: u64,
    /// How long a response may be slower than that.
    pub slow_grace: Duration,
    /// The fastest that it may come, if limited.
    pub bytes_per_second: Option<u64>,
    /// What all heads of a response may have, interim ones included.
    pub head_bytes: usize,
    /// What a body may have, chunk framing included.
    pub body_bytes: u64,
    /// How many interim responses may come.
    pub interim_responses: usize,
    /// What the payload digests are of.
    pub digested: DigestedBody,
}

/// What the digests of a payload are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DigestedBody {
    /// The payload: transfer encoding removed.
    #[default]
    Payload,
    /// The body as it came, with the sizes of its chunks.
    Framed,
}

impl Default for FetchLimits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(20),
            tls: Duration::from_secs(20),
            first_byte: Duration::from_secs(60),
            idle: Duration::from_secs(20),
            total: Duration::from_secs(1200),
            slowest_bytes_per_second: 64,
            slow_grace: Duration::from_secs(60),
            bytes_per_second: None,
            head_bytes: 256 * 1024,
            body_bytes: 4 * 1024 * 1024 * 1024,
            interim_responses: 16,
            digested: DigestedBody::Payload,
        }
    }
}

impl FetchLimits {
    pub(crate) fn of_message(&self) -> MessageLimits {
        MessageLimits {
            head_bytes: self.head_bytes,
            body_bytes: self.body_bytes,
            interim: self.interim_responses,
            digested: self.digested,
        }
    }
}
