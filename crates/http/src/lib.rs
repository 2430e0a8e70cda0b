//! The crawler's wire client: HTTP/1.1 with the exact bytes kept.
//!
//! [`Client::fetch`] sends a [`Request`] as exact bytes and gives an [`Exchange`]: the response as it was received,
//! byte for byte, with the payload decoded, counted and digested beside it. `docs/formats/http-capture.md` says what is
//! block, what is payload, what is tolerated, and how each end of a fetch is numbered.
//!
//! * Whatever comes over the wire is kept, be it HTTP or not; only a fetch that brings no byte is an error.
//! * Everything ends within [`FetchLimits`], whatever the server does. Memory is bounded by [`Settings`].
//! * Nothing is followed, retried or remembered here: redirects, back-off and cookies are the caller's. The one
//!   exception is a kept connection that was closed before the answer.
//!
//! [`Resolver`] asks the DNS and keeps the answer as text; [`Jar`] holds cookies.

mod address;
mod block;
mod chunked;
mod client;
mod connection;
mod cookies;
mod decode;
mod dns;
mod error;
mod exchange;
mod head;
mod message;
mod rate;
mod request;
mod settings;
mod tap;
mod tls;

pub use address::is_public;
pub use block::{Block, BlockReader, Spooling};
pub use chunked::{ChunkDamage, ChunkFault};
pub use client::{Client, ClientError};
pub use cookies::{Cookie, CookiePlace, CookieReach, Jar, JarLimits};
pub use decode::{Decoded, DecodedEnd};
pub use dns::{
    AnswerSource, DnsError, Families, KnownAddresses, Resolved, Resolver, ResolverError,
    ResolverSettings, Servers,
};
pub use ecluse_warc::Sha1Digest;
pub use error::{FetchError, HttpLimit};
pub use exchange::{ConnectionUse, Exchange, PayloadReader, Timings};
pub use head::{Head, HttpField, HttpVersion};
pub use message::{Anomaly, Framing, Shape, Truncation};
pub use request::{AddressPolicy, Authority, Request, Scheme};
pub use settings::{DigestedBody, FetchLimits, Roots, Settings};
pub use tap::Tap;
pub use tls::{CertificateFault, CertificatePolicy, TlsFacts, TlsFault};
