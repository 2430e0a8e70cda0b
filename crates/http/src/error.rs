//! Why a fetch brought nothing. Once a byte of a response has come, there is an exchange instead.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::tls::TlsFault;

/// Why a fetch brought nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The request cannot be sent as it stands.
    #[error("cannot send a request with {what}: {value:?}")]
    Request {
        /// What is wrong with it.
        what: &'static str,
        /// The evidence.
        value: String,
    },
    /// There is no address to connect to.
    #[error("no address for {host}")]
    NoAddress {
        /// Whose.
        host: String,
    },
    /// No address of the host may be reached.
    #[error("address {address} of {host} is not public")]
    AddressRefused {
        /// Whose.
        host: String,
        /// The first one.
        address: IpAddr,
    },
    /// Nothing of the web is on this port.
    #[error("port {port} of {host} is one that browsers refuse")]
    PortRefused {
        /// Whose.
        host: String,
        /// Which.
        port: u16,
    },
    /// This machine has no more descriptors, ports or memory for a connection.
    #[error("this machine cannot open another connection")]
    Exhausted {
        /// What the system said.
        source: io::Error,
    },
    /// No connection could be made.
    #[error("cannot connect to {peer}")]
    Connect {
        /// The last address tried.
        peer: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The handshake failed.
    #[error("no TLS with {peer} ({fault}): {detail}")]
    Tls {
        /// With whom.
        peer: SocketAddr,
        /// The kind of failure.
        fault: TlsFault,
        /// What the library said.
        detail: String,
    },
    /// The connection ended before a byte of the response.
    #[error("{peer} closed the connection without an answer")]
    Lost {
        /// Who.
        peer: SocketAddr,
        /// What the system said, unless it was simply closed.
        source: Option<io::Error>,
    },
    /// A limit of time was reached before a byte of the response.
    #[error("no answer from {peer} after {after:?} ({limit})")]
    Timeout {
        /// From whom.
        peer: SocketAddr,
        /// Which limit.
        limit: HttpLimit,
        /// Its value.
        after: Duration,
    },
    /// The block could not be written: the fault of this machine.
    #[error("cannot spool the response of {peer}")]
    Spool {
        /// Whose response.
        peer: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// A limit that ended a fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum HttpLimit {
    /// Connecting took too long.
    #[error("connect")]
    Connect,
    /// The handshake took too long.
    #[error("tls")]
    Tls,
    /// The first byte took too long.
    #[error("first-byte")]
    FirstByte,
    /// A byte took too long.
    #[error("idle")]
    Idle,
    /// The bytes came too slowly.
    #[error("slowest-rate")]
    Slow,
    /// It all took too long.
    #[error("total")]
    Total,
}

impl FetchError {
    /// Returns the status that crawl.log has for it, as Heritrix numbers them.
    #[must_use]
    pub fn code(&self) -> i32 {
        match self {
            Self::NoAddress { .. } => -1,
            Self::Connect { .. } | Self::Tls { .. } => -2,
            Self::Timeout {
                limit: HttpLimit::Connect | HttpLimit::Tls,
                ..
            } => -2,
            Self::Lost { .. } => -3,
            Self::Timeout { .. } => -4,
            Self::Spool { .. } | Self::Exhausted { .. } => -5,
            Self::Request { .. } => -7,
            Self::AddressRefused { .. } | Self::PortRefused { .. } => -5001,
        }
    }

    /// Tells whether this machine is at fault and not the world.
    #[must_use]
    pub fn is_local(&self) -> bool {
        matches!(self, Self::Spool { .. } | Self::Exhausted { .. })
    }
}
