//! Receives one response, piece by piece, without knowing where the pieces come from.
//!
//! Every byte of the final response goes into the block as it came; interim responses (1xx) are kept apart. Beside
//! the block the payload is decoded, counted, digested and tapped. Whatever the server sends, receiving ends at the
//! limits and says what was odd; see `docs/formats/http-capture.md`.

use std::fmt;
use std::io;
use std::ops::ControlFlow;

use crate::block::{Block, BlockWriter, Spooling};
use crate::chunked::{ChunkDamage, ChunkFault, ChunkedDecoder};
use crate::head::{self, Head, HttpVersion};
use crate::settings::DigestedBody;
use crate::tap::Tap;
use ecluse_warc::{Digester, Sha1Digest};
use sha2::{Digest, Sha256};

/// What kind of answer came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shape {
    /// A response with a status.
    Http,
    /// A status line without a status of three digits. Its fields are read all the same.
    BadStatusLine,
    /// Fields without a status line before them.
    NoStatusLine,
    /// No head at all: HTTP/0.9, another protocol, or garbage. All of it is payload.
    NotHttp,
    /// A head that does not end. There is no payload.
    HeadCut,
    /// A head longer than the limit, or too many interim responses. There is no payload.
    HeadTooLong,
}

/// How the end of a body is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Framing {
    /// There is no body, whatever the fields say.
    None,
    /// By its length.
    Length(u64),
    /// By a chunk of size 0.
    Chunked,
    /// By the end of the connection.
    UntilClose,
}

/// Why a response is not whole: the reasons of `WARC-Truncated`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Truncation {
    /// It is longer than the limit.
    Length,
    /// It took longer than a limit.
    Time,
    /// The connection ended before it did.
    Disconnect,
    /// The tap had heard enough.
    Unspecified,
}

impl Truncation {
    /// Returns the value of `WARC-Truncated`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Length => "length",
            Self::Time => "time",
            Self::Disconnect => "disconnect",
            Self::Unspecified => "unspecified",
        }
    }

    /// Returns the annotation that Heritrix writes into crawl.log, and one of the same make where it has none.
    #[must_use]
    pub fn annotation(self) -> &'static str {
        match self {
            Self::Length => "lenTrunc",
            Self::Time => "timeTrunc",
            Self::Disconnect => "disconnectTrunc",
            Self::Unspecified => "midFetchTrunc",
        }
    }
}

/// What was odd about a response. Shown as an annotation for crawl.log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Anomaly {
    /// Interim responses came first; they are kept apart.
    Interim {
        /// How many.
        count: usize,
    },
    /// Blank lines before the status line; they are in the block.
    LeadingBlankLines,
    /// Line ends without CR in the head.
    BareLf,
    /// Folded lines in the head.
    Folded,
    /// Both a transfer encoding and a length: the length is passed over.
    LengthAndChunked,
    /// Lengths that contradict each other: the body lasts until the connection ends.
    ConflictingLengths,
    /// A length that is none: the body lasts until the connection ends.
    BadLength,
    /// A transfer encoding other than chunked. It is not undone.
    OtherTransferEncoding,
    /// Damaged chunks: the payload ends there, or is the whole body if the first chunk is none already.
    ChunkDamage(ChunkDamage),
    /// The last chunk came, the end of the message did not.
    UnfinishedTrailers,
    /// Bytes that came behind the message. They are no part of it and are not kept.
    Excess {
        /// How many were read.
        bytes: usize,
    },
    /// TLS ended without saying so, in a body that lasts until the connection ends.
    NoCloseNotify,
}

impl fmt::Display for Anomaly {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interim { count } => write!(out, "interim:{count}"),
            Self::LeadingBlankLines => out.write_str("leadingBlankLines"),
            Self::BareLf => out.write_str("bareLf"),
            Self::Folded => out.write_str("foldedHeader"),
            Self::LengthAndChunked => out.write_str("lengthAndChunked"),
            Self::ConflictingLengths => out.write_str("conflictingLengths"),
            Self::BadLength => out.write_str("badLength"),
            Self::OtherTransferEncoding => out.write_str("otherTransferEncoding"),
            Self::ChunkDamage(damage) => write!(out, "chunkDamage:{}", damage.offset),
            Self::UnfinishedTrailers => out.write_str("unfinishedTrailers"),
            Self::Excess { bytes } => write!(out, "excess:{bytes}"),
            Self::NoCloseNotify => out.write_str("noCloseNotify"),
        }
    }
}

/// What bounds one response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MessageLimits {
    pub(crate) head_bytes: usize,
    pub(crate) body_bytes: u64,
    pub(crate) interim: usize,
    pub(crate) digested: DigestedBody,
}

/// Whether a body can follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Body,
    HeadOnly,
}

/// Whether more is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    More,
    Done,
}

/// How the pieces ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The receiver was done.
    Done,
    /// The server closed the connection.
    Closed,
    /// The server closed the connection, but TLS did not say so.
    ClosedWithoutNotify,
    /// The connection broke.
    Broken,
    /// A limit of time was reached.
    Time,
}

/// One response, received.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) shape: Shape,
    pub(crate) head: Head,
    pub(crate) interim: Vec<Vec<u8>>,
    pub(crate) framing: Framing,
    pub(crate) block: Block,
    pub(crate) payload_place: PayloadPlace,
    pub(crate) payload_bytes: u64,
    pub(crate) payload_digest: Sha1Digest,
    pub(crate) payload_sha256: [u8; 32],
    pub(crate) truncation: Option<Truncation>,
    pub(crate) anomalies: Vec<Anomaly>,
    /// The message ended by itself and the server keeps the connection.
    pub(crate) can_keep_alive: bool,
}

/// Where in the block the payload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PayloadPlace {
    Nowhere,
    /// All that follows this many bytes.
    Behind(u64),
    /// In the chunks that follow this many bytes.
    ChunkedBehind(u64),
}

/// Receives one response.
#[derive(Debug)]
pub(crate) struct Receiver {
    asked: Asked,
    limits: MessageLimits,
    phase: Phase,
    shape: Shape,
    head: Head,
    interim: Vec<Vec<u8>>,
    interim_bytes: usize,
    framing: Framing,
    block: BlockWriter,
    body_bytes: u64,
    payload: PayloadCount,
    truncation: Option<Truncation>,
    anomalies: Vec<Anomaly>,
}

#[derive(Debug)]
enum Phase {
    Head {
        buffer: Vec<u8>,
        searched: usize,
        opening: Opening,
    },
    Body(Body),
    Done,
}

#[derive(Debug)]
enum Body {
    Length {
        left: u64,
    },
    Chunked {
        decoder: ChunkedDecoder,
        /// What came before the first chunk: it is payload if there is no chunk at all.
        lead: Vec<u8>,
    },
    UntilClose,
}

/// What the first bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opening {
    Unknown,
    StatusLine,
    HttpField,
    Other,
}

#[derive(Debug, Default)]
struct PayloadCount {
    bytes: u64,
    digested: DigestedBody,
    digester: Digester,
    sha256: Sha256,
    is_enough: bool,
}

impl PayloadCount {
    fn take(&mut self, piece: &[u8], tap: &mut dyn Tap) {
        if piece.is_empty() {
            return;
        }
        self.bytes += piece.len() as u64;
        if self.digested == DigestedBody::Payload {
            self.digest(piece);
        }
        if !self.is_enough && tap.payload(piece) == ControlFlow::Break(()) {
            self.is_enough = true;
        }
    }

    fn digest(&mut self, piece: &[u8]) {
        self.digester.update(piece);
        self.sha256.update(piece);
    }
}

impl Receiver {
    pub(crate) fn new(asked: Asked, limits: MessageLimits, spooling: &Spooling) -> Self {
        Self {
            asked,
            limits,
            phase: Phase::new_head(Vec::new()),
            shape: Shape::NotHttp,
            head: Head::default(),
            interim: Vec::new(),
            interim_bytes: 0,
            framing: Framing::UntilClose,
            block: BlockWriter::new(spooling),
            body_bytes: 0,
            payload: PayloadCount {
                digested: limits.digested,
                ..PayloadCount::default()
            },
            truncation: None,
            anomalies: Vec::new(),
        }
    }

    /// Takes a piece.
    pub(crate) fn push(&mut self, piece: &[u8], tap: &mut dyn Tap) -> Step {
        let Phase::Head { buffer, .. } = &mut self.phase else {
            return self.push_body(piece, tap);
        };
        buffer.extend_from_slice(piece);
        loop {
            match self.push_head(tap) {
                HeadStep::Again => {}
                HeadStep::More => return Step::More,
                HeadStep::Done => return Step::Done,
                HeadStep::Body(rest) => return self.push_body(rest.bytes(), tap),
            }
        }
    }

    /// Looks at what has been received of the head.
    fn push_head(&mut self, tap: &mut dyn Tap) -> HeadStep {
        let Phase::Head {
            buffer,
            searched,
            opening,
        } = &mut self.phase
        else {
            return HeadStep::More;
        };
        if *opening == Opening::Unknown {
            *opening = Opening::of(buffer);
        }
        let limit = self.limits.head_bytes.saturating_sub(self.interim_bytes);
        match opening {
            Opening::Unknown if buffer.len() <= limit => return HeadStep::More,
            Opening::Unknown | Opening::Other => {
                let rest = Rest::all(std::mem::take(buffer));
                return self.begin_body(Shape::NotHttp, Vec::new(), rest, tap);
            }
            Opening::StatusLine | Opening::HttpField => {}
        }
        let from = (*searched).max(head::leading_blank_bytes(buffer));
        let end = match head::find_end(buffer, from) {
            Ok(end) if end <= limit => end,
            Err(next) if buffer.len() <= limit => {
                *searched = next;
                return HeadStep::More;
            }
            Ok(_) | Err(_) => {
                buffer.truncate(limit);
                let bytes = std::mem::take(buffer);
                return self.end_in_head(Shape::HeadTooLong, bytes, Truncation::Length);
            }
        };
        // The head is short, and what follows it need not be copied.
        let bytes = buffer[..end].to_vec();
        let rest = Rest {
            buffer: std::mem::take(buffer),
            from: end,
        };
        if *opening == Opening::HttpField {
            return self.begin_body(Shape::NoStatusLine, bytes, rest, tap);
        }
        let head = Head::parse(bytes);
        match head.status() {
            // 101 is the last response of its connection, all the same.
            Some(100 | 102..=199) => {
                if self.interim.len() >= self.limits.interim {
                    let bytes = head.bytes().to_vec();
                    return self.end_in_head(Shape::HeadTooLong, bytes, Truncation::Length);
                }
                self.interim_bytes += head.bytes().len();
                self.interim.push(head.bytes().to_vec());
                self.phase = Phase::new_head(rest.bytes().to_vec());
                HeadStep::Again
            }
            Some(_) => self.begin_body_of(Shape::Http, head, rest, tap),
            None => self.begin_body_of(Shape::BadStatusLine, head, rest, tap),
        }
    }

    fn end_in_head(&mut self, shape: Shape, bytes: Vec<u8>, truncation: Truncation) -> HeadStep {
        self.shape = shape;
        self.block.append(&bytes);
        self.head = Head::parse(bytes);
        self.truncation = Some(truncation);
        self.framing = Framing::None;
        self.phase = Phase::Done;
        HeadStep::Done
    }

    fn begin_body(
        &mut self,
        shape: Shape,
        head: Vec<u8>,
        rest: Rest,
        tap: &mut dyn Tap,
    ) -> HeadStep {
        self.begin_body_of(shape, Head::parse_without_status_line(head), rest, tap)
    }

    fn begin_body_of(
        &mut self,
        shape: Shape,
        head: Head,
        rest: Rest,
        tap: &mut dyn Tap,
    ) -> HeadStep {
        self.shape = shape;
        self.block.append(head.bytes());
        self.note_head(&head);
        self.framing = framing(&head, self.asked, &mut self.anomalies);
        if let Framing::Length(bytes) = self.framing {
            self.block.expect(bytes.min(self.limits.body_bytes));
        }
        self.phase = match self.framing {
            Framing::None | Framing::Length(0) => Phase::Done,
            Framing::Length(left) => Phase::Body(Body::Length { left }),
            Framing::Chunked => Phase::Body(Body::Chunked {
                decoder: ChunkedDecoder::new(),
                lead: Vec::new(),
            }),
            Framing::UntilClose => Phase::Body(Body::UntilClose),
        };
        self.head = head;
        if tap.head(&self.head) == ControlFlow::Break(()) && !matches!(self.phase, Phase::Done) {
            self.truncation = Some(Truncation::Unspecified);
            return HeadStep::Done;
        }
        HeadStep::Body(rest)
    }

    fn note_head(&mut self, head: &Head) {
        if !self.interim.is_empty() {
            let count = self.interim.len();
            self.anomalies.push(Anomaly::Interim { count });
        }
        if head.leading_blank_bytes() > 0 {
            self.anomalies.push(Anomaly::LeadingBlankLines);
        }
        if head.has_bare_lf() {
            self.anomalies.push(Anomaly::BareLf);
        }
        if head.has_folded() {
            self.anomalies.push(Anomaly::Folded);
        }
    }

    fn push_body(&mut self, piece: &[u8], tap: &mut dyn Tap) -> Step {
        let allowed = self.limits.body_bytes - self.body_bytes;
        let within = usize::try_from(allowed).map_or(piece.len(), |room| room.min(piece.len()));
        let taken = match &mut self.phase {
            Phase::Body(body) => body.take(&piece[..within], &mut self.payload, tap),
            Phase::Head { .. } | Phase::Done => 0,
        };
        self.block.append(&piece[..taken]);
        self.body_bytes += taken as u64;
        if self.payload.digested == DigestedBody::Framed {
            self.payload.digest(&piece[..taken]);
        }
        let is_over = match &self.phase {
            Phase::Body(body) => body.is_over(),
            Phase::Head { .. } | Phase::Done => true,
        };
        if is_over {
            self.phase = Phase::Done;
            if taken < piece.len() {
                let bytes = piece.len() - taken;
                self.anomalies.push(Anomaly::Excess { bytes });
            }
            return Step::Done;
        }
        if self.payload.is_enough {
            self.truncation = Some(Truncation::Unspecified);
            return Step::Done;
        }
        if within < piece.len() {
            self.truncation = Some(Truncation::Length);
            return Step::Done;
        }
        Step::More
    }

    /// Has what may not stay in memory written, between pieces. The only error is that it cannot be.
    pub(crate) async fn relieve(&mut self) -> io::Result<()> {
        self.block.relieve().await
    }

    /// Ends the reception, however much came. The only error is that the block cannot be written.
    pub(crate) async fn finish(mut self, end: End, tap: &mut dyn Tap) -> io::Result<Received> {
        if let Phase::Head {
            buffer, opening, ..
        } = &mut self.phase
        {
            let bytes = std::mem::take(buffer);
            if *opening == Opening::StatusLine || b"HTTP/".starts_with(&bytes) {
                let why = if end == End::Time {
                    Truncation::Time
                } else {
                    Truncation::Disconnect
                };
                self.end_in_head(Shape::HeadCut, bytes, why);
            } else if let HeadStep::Body(rest) =
                self.begin_body(Shape::NotHttp, Vec::new(), Rest::all(bytes), tap)
            {
                self.push_body(rest.bytes(), tap);
            }
        }
        let payload_place = self.payload_place();
        if self.truncation.is_none() {
            self.truncation = self.truncation_at(end);
        }
        let can_keep_alive = end == End::Done && self.server_keeps_alive();
        Ok(Received {
            shape: self.shape,
            head: self.head,
            interim: self.interim,
            framing: self.framing,
            block: self.block.finish().await?,
            payload_place,
            payload_bytes: self.payload.bytes,
            payload_digest: self.payload.digester.finish(),
            payload_sha256: self.payload.sha256.finalize().into(),
            truncation: self.truncation,
            anomalies: self.anomalies,
            can_keep_alive,
        })
    }

    /// Tells what is missing, now that nothing more will come, and notes what was odd about the body.
    fn truncation_at(&mut self, end: End) -> Option<Truncation> {
        let cut = match end {
            End::Done | End::Closed | End::ClosedWithoutNotify | End::Broken => {
                Truncation::Disconnect
            }
            End::Time => Truncation::Time,
        };
        let is_closed = matches!(end, End::Closed | End::ClosedWithoutNotify);
        let Phase::Body(body) = &self.phase else {
            return None;
        };
        match body {
            Body::Length { .. } => Some(cut),
            Body::Chunked { decoder, .. } => {
                if let Some(damage) = decoder.damage() {
                    self.anomalies.push(Anomaly::ChunkDamage(damage));
                    (!is_closed).then_some(cut)
                } else if decoder.last_chunk_seen() {
                    self.anomalies.push(Anomaly::UnfinishedTrailers);
                    None
                } else {
                    Some(cut)
                }
            }
            Body::UntilClose => {
                if end == End::ClosedWithoutNotify {
                    self.anomalies.push(Anomaly::NoCloseNotify);
                }
                (!is_closed).then_some(cut)
            }
        }
    }

    fn payload_place(&self) -> PayloadPlace {
        let head_bytes = self.block.bytes() - self.body_bytes;
        match (&self.phase, self.framing) {
            (_, Framing::None) => PayloadPlace::Nowhere,
            (Phase::Body(Body::Chunked { decoder, .. }), _) if is_not_chunked(decoder) => {
                PayloadPlace::Behind(head_bytes)
            }
            (_, Framing::Chunked) => PayloadPlace::ChunkedBehind(head_bytes),
            (_, Framing::Length(_) | Framing::UntilClose) => PayloadPlace::Behind(head_bytes),
        }
    }

    fn server_keeps_alive(&self) -> bool {
        let is_whole = matches!(self.phase, Phase::Done) && self.truncation.is_none();
        let is_clean = !self.anomalies.iter().any(|anomaly| {
            matches!(
                anomaly,
                Anomaly::Excess { .. } | Anomaly::LengthAndChunked | Anomaly::LeadingBlankLines
            )
        });
        let connection = self.head.tokens("Connection");
        let says = |word: &str| connection.iter().any(|token| token == word);
        let is_new = self.head.version() >= Some(HttpVersion { major: 1, minor: 1 });
        is_whole
            && is_clean
            && self.shape == Shape::Http
            && self.head.status() != Some(101)
            && !says("close")
            && (is_new || says("keep-alive"))
    }
}

enum HeadStep {
    More,
    Again,
    Done,
    Body(Rest),
}

/// What came behind a head.
struct Rest {
    buffer: Vec<u8>,
    from: usize,
}

impl Rest {
    fn all(buffer: Vec<u8>) -> Self {
        Self { buffer, from: 0 }
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[self.from..]
    }
}

impl Phase {
    fn new_head(buffer: Vec<u8>) -> Self {
        Self::Head {
            buffer,
            searched: 0,
            opening: Opening::Unknown,
        }
    }
}

impl Body {
    /// Takes what belongs to the body and returns how much that was.
    fn take(&mut self, piece: &[u8], payload: &mut PayloadCount, tap: &mut dyn Tap) -> usize {
        match self {
            Self::Length { left } => {
                let count =
                    usize::try_from(*left).map_or(piece.len(), |left| left.min(piece.len()));
                payload.take(&piece[..count], tap);
                *left -= count as u64;
                count
            }
            Self::UntilClose => {
                payload.take(piece, tap);
                piece.len()
            }
            Self::Chunked { decoder, .. } if is_not_chunked(decoder) => {
                payload.take(piece, tap);
                piece.len()
            }
            Self::Chunked { decoder, lead } => {
                if !decoder.has_begun() && decoder.damage().is_none() {
                    lead.extend_from_slice(piece);
                }
                let count = decoder.push(piece, |bytes| payload.take(bytes, tap));
                if is_not_chunked(decoder) {
                    payload.take(&std::mem::take(lead), tap);
                } else if decoder.has_begun() {
                    *lead = Vec::new();
                }
                count
            }
        }
    }

    fn is_over(&self) -> bool {
        match self {
            Self::Length { left } => *left == 0,
            Self::Chunked { decoder, .. } => decoder.is_done(),
            Self::UntilClose => false,
        }
    }
}

impl Opening {
    fn of(bytes: &[u8]) -> Self {
        const PROTOCOL: &[u8] = b"HTTP";
        const NAME_BYTES: usize = 64;
        let bytes = &bytes[head::leading_blank_bytes(bytes)..];
        let common = bytes.len().min(PROTOCOL.len());
        if bytes[..common].eq_ignore_ascii_case(&PROTOCOL[..common]) {
            match bytes.get(PROTOCOL.len()) {
                None => return Self::Unknown,
                Some(b'/' | b' ') => return Self::StatusLine,
                Some(_) => {}
            }
        }
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
        match bytes.iter().position(|byte| !is_name(byte)) {
            Some(at) if at > 0 && bytes[at] == b':' => Self::HttpField,
            Some(_) => Self::Other,
            None if bytes.len() > NAME_BYTES => Self::Other,
            None => Self::Unknown,
        }
    }
}

fn is_not_chunked(decoder: &ChunkedDecoder) -> bool {
    decoder
        .damage()
        .is_some_and(|damage| damage.fault == ChunkFault::NotChunked)
}

/// Decides how the end of the body is known: RFC 9112 section 6.3, with what servers get wrong.
fn framing(head: &Head, asked: Asked, anomalies: &mut Vec<Anomaly>) -> Framing {
    if asked == Asked::HeadOnly || matches!(head.status(), Some(100..=199 | 204 | 304)) {
        return Framing::None;
    }
    let codings = head.tokens("Transfer-Encoding");
    if codings
        .iter()
        .any(|coding| coding != "chunked" && coding != "identity")
    {
        anomalies.push(Anomaly::OtherTransferEncoding);
    }
    if codings.iter().any(|coding| coding == "chunked") {
        if head.first("Content-Length").is_some() {
            anomalies.push(Anomaly::LengthAndChunked);
        }
        return Framing::Chunked;
    }
    let mut lengths = head.tokens("Content-Length").into_iter().map(|token| {
        let is_number = token.bytes().all(|byte| byte.is_ascii_digit());
        token.parse::<u64>().ok().filter(|_| is_number)
    });
    match lengths.next() {
        None => Framing::UntilClose,
        Some(None) => {
            anomalies.push(Anomaly::BadLength);
            Framing::UntilClose
        }
        Some(Some(length)) if lengths.all(|other| other == Some(length)) => Framing::Length(length),
        Some(Some(_)) => {
            anomalies.push(Anomaly::ConflictingLengths);
            Framing::UntilClose
        }
    }
}

#[cfg(test)]
mod tests;
