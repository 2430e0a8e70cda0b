//! One request and what came back.

use std::io::{self, Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::block::{Block, BlockReader};
use crate::chunked::ChunkedDecoder;
use crate::decode::Decoded;
use crate::error::HttpLimit;
use crate::head::Head;
use crate::message::{Anomaly, Framing, PayloadPlace, Shape, Truncation};
use crate::tls::TlsFacts;
use ecluse_warc::Sha1Digest;

/// One request and what came back: at least one byte.
#[derive(Debug)]
pub struct Exchange {
    /// The request as it was sent: the block of the request record.
    pub request: Vec<u8>,
    /// What kind of answer came.
    pub shape: Shape,
    /// The head of the final response; empty if there is none.
    pub head: Head,
    /// The interim responses before it, each as received. They are no part of the block.
    pub interim: Vec<Vec<u8>>,
    /// How the end of the body is known.
    pub framing: Framing,
    /// The final response as it was received: the block of the response record.
    pub block: Block,
    /// Bytes of the payload: transfer encoding removed, content encoding kept.
    pub payload_bytes: u64,
    /// The digest of the payload.
    pub payload_digest: Sha1Digest,
    /// Its SHA-256: by this payloads are told apart, of which others can be made with one SHA-1.
    pub payload_sha256: [u8; 32],
    /// Why the response is not whole, if it is not.
    pub truncation: Option<Truncation>,
    /// The limit of time that ended it, if one did.
    pub limit: Option<HttpLimit>,
    /// What was odd about it.
    pub anomalies: Vec<Anomaly>,
    /// Who answered.
    pub peer: SocketAddr,
    /// What is known of the connection's TLS, if it had any.
    pub tls: Option<Arc<TlsFacts>>,
    /// How long things took.
    pub timings: Timings,
    /// What connection was used.
    pub connection: ConnectionUse,
    /// The connection is kept for the next request.
    pub kept_alive: bool,
    pub(crate) payload_place: PayloadPlace,
}

/// How long things took. The resolver is not in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timings {
    /// To connect; nothing on a kept connection.
    pub connect: Duration,
    /// For the TLS handshake; nothing on a kept connection.
    pub tls: Duration,
    /// From the start until the first byte of the answer.
    pub first_byte: Duration,
    /// From the start until the end.
    pub total: Duration,
}

/// What connection was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionUse {
    /// A new one.
    New,
    /// One kept from an earlier fetch.
    Kept,
    /// A new one, after a kept one was found closed.
    NewAfterStale,
}

impl Exchange {
    /// Returns the status that crawl.log has for it: that of HTTP, or one as Heritrix numbers them.
    #[must_use]
    pub fn code(&self) -> i32 {
        match (self.shape, self.head.status()) {
            (Shape::Http, Some(status)) => i32::from(status),
            (Shape::HeadCut, _) if self.truncation == Some(Truncation::Time) => -4,
            _ => -3,
        }
    }

    /// Tells whether all of the payload came, as far as HTTP can tell.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let damaged = |anomaly: &Anomaly| matches!(anomaly, Anomaly::ChunkDamage(_));
        self.shape == Shape::Http
            && self.truncation.is_none()
            && !self.anomalies.iter().any(damaged)
    }

    /// Returns the annotations for crawl.log.
    #[must_use]
    pub fn annotations(&self) -> Vec<String> {
        let shape = match self.shape {
            Shape::Http => None,
            Shape::BadStatusLine => Some("badStatusLine"),
            Shape::NoStatusLine => Some("noStatusLine"),
            Shape::NotHttp => Some("notHttp"),
            Shape::HeadCut => Some("headCut"),
            Shape::HeadTooLong => Some("headerTrunc"),
        };
        let stale = match self.connection {
            ConnectionUse::NewAfterStale => Some("staleConnection"),
            ConnectionUse::New | ConnectionUse::Kept => None,
        };
        let faults = self.tls.iter().flat_map(|tls| &tls.faults);
        shape
            .into_iter()
            .chain(self.truncation.map(Truncation::annotation))
            .chain(stale)
            .map(str::to_owned)
            .chain(self.anomalies.iter().map(ToString::to_string))
            .chain(faults.map(|fault| format!("tls:{fault}")))
            .collect()
    }

    /// Reads the payload: transfer encoding removed, content encoding kept.
    #[must_use]
    pub fn payload(&self) -> PayloadReader<'_> {
        PayloadReader::new(&self.block, self.payload_place)
    }

    /// Reads the payload with its content encodings undone, up to a limit.
    #[must_use]
    pub fn decoded(&self, limit_bytes: u64) -> Decoded<'_> {
        let codings = self.head.tokens("Content-Encoding");
        Decoded::new(Box::new(self.payload()), &codings, limit_bytes)
    }
}

/// Reads the payload out of a block.
#[derive(Debug)]
pub struct PayloadReader<'b> {
    source: BlockReader<'b>,
    chunks: Option<Chunks>,
    is_over: bool,
}

#[derive(Debug)]
struct Chunks {
    decoder: ChunkedDecoder,
    raw: Vec<u8>,
    decoded: Vec<u8>,
    given: usize,
}

impl<'b> PayloadReader<'b> {
    pub(crate) fn new(block: &'b Block, place: PayloadPlace) -> Self {
        let mut source = block.reader();
        let (start, chunks) = match place {
            PayloadPlace::Nowhere => (block.bytes(), None),
            PayloadPlace::Behind(start) => (start, None),
            PayloadPlace::ChunkedBehind(start) => (start, Some(Chunks::new())),
        };
        source
            .seek(SeekFrom::Start(start))
            .expect("a block can be sought in from its start");
        Self {
            source,
            chunks,
            is_over: false,
        }
    }
}

impl Chunks {
    fn new() -> Self {
        Self {
            decoder: ChunkedDecoder::new(),
            raw: vec![0; 16 * 1024],
            decoded: Vec::new(),
            given: 0,
        }
    }
}

impl Read for PayloadReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let Some(chunks) = &mut self.chunks else {
            return self.source.read(out);
        };
        while chunks.given == chunks.decoded.len() && !self.is_over {
            chunks.decoded.clear();
            chunks.given = 0;
            let count = self.source.read(&mut chunks.raw)?;
            let decoded = &mut chunks.decoded;
            chunks.decoder.push(&chunks.raw[..count], |bytes| {
                decoded.extend_from_slice(bytes);
            });
            self.is_over =
                count == 0 || chunks.decoder.is_done() || chunks.decoder.damage().is_some();
        }
        let rest = &chunks.decoded[chunks.given..];
        let count = rest.len().min(out.len());
        out[..count].copy_from_slice(&rest[..count]);
        chunks.given += count;
        Ok(count)
    }
}
