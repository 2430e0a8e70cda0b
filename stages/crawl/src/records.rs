//! The records of one capture: response or revisit, request, metadata.
//!
//! Blocks are the bytes of the wire. What is said beside them is in header fields and in the metadata record.

use std::fmt;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use ecluse_extract::Link;
use ecluse_frontier::Item;
use ecluse_http::{Exchange, HttpVersion, Resolved, Shape, Truncation};
use ecluse_report::{Kept, Moment};
use ecluse_warc::{Digests, NewRecord, Packer, Payload, RecordKind, Sha1Digest, WarcWriteError};
use url::Url;

use crate::earlier::{KnownPayload, LastCapture, Original, PayloadDigests};
use crate::pool::While;
use crate::writer::Part;

/// How it is noted that a page asks robots not to follow its links.
pub(crate) const NOFOLLOW: &str = "nofollow";
/// What the headers of a capture's records, its request and the usual lines of its metadata take together.
const BESIDE_A_BLOCK: usize = 4096;
const RESPONSE: &str = "application/http; msgtype=response";
const REQUEST: &str = "application/http; msgtype=request";
const IDENTICAL: &str = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest";
const NOT_MODIFIED: &str = "http://netpreserve.org/warc/1.1/revisit/server-not-modified";

/// One fetch that brought something.
pub(crate) struct Capture {
    pub(crate) item: Item,
    pub(crate) url: Url,
    /// The identifier of its main record.
    pub(crate) id: RecordUuid,
    /// The character set that the page which led here says it has.
    pub(crate) charset: Option<String>,
    /// When it was begun.
    pub(crate) begun: Moment,
    pub(crate) exchange: Box<Exchange>,
    /// What is known of its payload from before.
    pub(crate) known: KnownPayload,
    /// The capture since which the server was asked for changes.
    pub(crate) last: Option<Box<LastCapture>>,
    /// Whether it is to be kept; one that will be tried again is not.
    pub(crate) keep: bool,
    /// What robots.txt asks for between two requests.
    pub(crate) crawl_delay: Option<std::time::Duration>,
}

impl Capture {
    /// Returns as what it is kept.
    pub(crate) fn kept(&self) -> Kept {
        if !self.keep {
            Kept::Nothing
        } else if self.is_unchanged() {
            Kept::NotModified
        } else if self.known.original().is_some() {
            Kept::Revisit
        } else {
            Kept::Stored
        }
    }

    /// Tells whether the server said that nothing has changed since the last capture.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.last.is_some() && self.exchange.code() == 304
    }

    /// The digest of the payload, that of the last capture if it has not changed.
    pub(crate) fn digest(&self) -> Sha1Digest {
        match &self.last {
            Some(last) if self.is_unchanged() => last.digest,
            _ => self.exchange.payload_digest,
        }
    }

    /// By what its payload is known.
    pub(crate) fn payload(&self) -> PayloadDigests {
        PayloadDigests {
            sha1: self.exchange.payload_digest,
            sha256: self.exchange.payload_sha256,
        }
    }

    /// The media type, without parameters.
    pub(crate) fn mime(&self) -> String {
        let value = self.exchange.head.text("Content-Type").unwrap_or_default();
        let mime = value
            .split([';', ',', ' ', '\t'])
            .next()
            .unwrap_or_default();
        mime.chars().take(100).collect()
    }
}

/// What extraction found.
pub(crate) struct Found {
    pub(crate) links: Vec<Link>,
    pub(crate) charset: Option<&'static str>,
    /// The page asks robots not to follow its links.
    pub(crate) nofollow: bool,
}

/// Makes the records of a capture.
///
/// # Errors
/// When a field cannot be written, or this machine fails with a large one.
pub(crate) fn pack(
    packer: &mut Packer,
    spool: &Path,
    capture: &Capture,
    found: &Found,
    going: &dyn Fn() -> bool,
) -> Result<Vec<Part>, WarcWriteError> {
    let [request_id, metadata_id] = new_ids();
    let ids = Ids {
        main: capture.id.to_string(),
        request: request_id.to_string(),
        metadata: metadata_id.to_string(),
    };
    let date = warc_date(capture.begun.0 / 1000);
    let mut parts = Vec::new();
    // What stands beside the block seldom takes more; to grow would copy all of it.
    let block = capture.exchange.block.in_memory().unwrap_or_default();
    let mut bytes = Vec::with_capacity(block.len() + BESIDE_A_BLOCK + 100 * found.links.len());
    let packed = Packed {
        spool,
        bytes: &mut bytes,
        parts: &mut parts,
        going,
    };
    main_record(packer, capture, &ids, &date, packed)?;
    let uri = capture.item.url.as_str();
    let ip = capture.exchange.peer.ip().to_canonical().to_string();
    let concurrent = format!("<{}>", ids.main);
    let request = &capture.exchange.request;
    let record = NewRecord {
        kind: RecordKind::Request,
        id: &ids.request,
        date: &date,
        target_uri: Some(uri),
        content_type: Some(REQUEST),
        fields: &[
            ("WARC-Concurrent-To", &concurrent),
            ("WARC-IP-Address", &ip),
        ],
        payload: Payload::None,
    };
    packer.pack(&record, &Digests::of_block(request), request, &mut bytes)?;
    let metadata = metadata(capture, found);
    let record = NewRecord {
        kind: RecordKind::Metadata,
        id: &ids.metadata,
        content_type: Some("application/warc-fields"),
        fields: &[("WARC-Concurrent-To", &concurrent)],
        ..record
    };
    packer.pack(
        &record,
        &Digests::of_block(&metadata),
        &metadata,
        &mut bytes,
    )?;
    parts.push(Part::Bytes(bytes));
    Ok(parts)
}

/// Where packed records go.
struct Packed<'a> {
    spool: &'a Path,
    bytes: &'a mut Vec<u8>,
    parts: &'a mut Vec<Part>,
    /// Whether somebody waits for them.
    going: &'a dyn Fn() -> bool,
}

/// The response, or what stands for it.
fn main_record(
    packer: &mut Packer,
    capture: &Capture,
    ids: &Ids,
    date: &str,
    packed: Packed<'_>,
) -> Result<(), WarcWriteError> {
    let Packed {
        spool,
        bytes,
        parts,
        going,
    } = packed;
    let exchange = &capture.exchange;
    let mut fields = Fields::of(exchange);
    let kind = match (capture.kept(), capture.known.original(), &capture.last) {
        (Kept::Revisit, Some(original), _) => {
            fields.refer(IDENTICAL, original);
            fields.add("WARC-Truncated", "length");
            RecordKind::Revisit
        }
        (Kept::NotModified, _, Some(last)) => {
            fields.refer(NOT_MODIFIED, &last.original);
            RecordKind::Revisit
        }
        _ => {
            if let Some(truncation) = exchange.truncation {
                fields.add("WARC-Truncated", truncated(truncation));
            }
            // HTTP/0.9, or no HTTP at all: a reader that looks for a head would take the first lines for one.
            match exchange.shape {
                Shape::NotHttp => RecordKind::Resource,
                _ => RecordKind::Response,
            }
        }
    };
    let content_type = match kind {
        RecordKind::Resource => headless_type(exchange.block.in_memory().unwrap_or_default()),
        _ => RESPONSE,
    };
    let fields = fields.views();
    let record = NewRecord {
        kind,
        id: &ids.main,
        date,
        target_uri: Some(&capture.item.url),
        content_type: Some(content_type),
        fields: &fields,
        payload: Payload::None,
    };
    let payload = Some(capture.digest());
    if kind == RecordKind::Revisit {
        let head = exchange.head.bytes();
        let block = Sha1Digest::of(head);
        return packer.pack(&record, &Digests { block, payload }, head, bytes);
    }
    let digests = Digests {
        block: exchange.block.digest(),
        // What is no HTTP has no payload that a reader could find in it.
        payload: payload.filter(|_| exchange.shape == Shape::Http),
    };
    if let Some(block) = exchange.block.in_memory() {
        return packer.pack(&record, &digests, block, bytes);
    }
    let mut file = tempfile::tempfile_in(spool).map_err(unspooled)?;
    let length = packer.pack_from(
        &record,
        &digests,
        &mut While {
            source: exchange.block.reader(),
            going,
        },
        exchange.block.bytes(),
        &mut file,
    )?;
    file.flush().map_err(unspooled)?;
    file.seek(SeekFrom::Start(0)).map_err(unspooled)?;
    parts.push(Part::File(file, length));
    Ok(())
}

/// The type of what came without a head. HTTP/0.9 knew but HTML.
fn headless_type(start: &[u8]) -> &'static str {
    match start.trim_ascii_start().first() {
        Some(b'<') => "text/html",
        _ => "application/octet-stream",
    }
}

fn unspooled(source: io::Error) -> WarcWriteError {
    WarcWriteError::Write { offset: 0, source }
}

fn truncated(truncation: Truncation) -> &'static str {
    match truncation {
        Truncation::Length => "length",
        Truncation::Time => "time",
        Truncation::Disconnect => "disconnect",
        Truncation::Unspecified => "unspecified",
    }
}

/// Header fields beside the usual ones.
struct Fields(Vec<(&'static str, String)>);

impl Fields {
    fn of(exchange: &Exchange) -> Self {
        let mut fields = Self(Vec::with_capacity(8));
        fields.add("WARC-IP-Address", exchange.peer.ip().to_canonical());
        match exchange.head.version() {
            Some(HttpVersion { major: 1, minor: 0 }) => fields.add("WARC-Protocol", "http/1.0"),
            Some(HttpVersion { major: 1, minor: 1 }) => fields.add("WARC-Protocol", "http/1.1"),
            _ => {}
        }
        if let Some(tls) = &exchange.tls {
            fields.add("WARC-Protocol", tls.version);
            fields.add("WARC-Cipher-Suite", &tls.cipher_suite);
        }
        fields
    }

    fn refer(&mut self, profile: &str, original: &Original) {
        self.add("WARC-Profile", profile);
        if let Some(id) = original.id {
            self.add("WARC-Refers-To", format_args!("<{id}>"));
        }
        self.add("WARC-Refers-To-Target-URI", &original.url);
        self.add("WARC-Refers-To-Date", warc_date(original.seconds));
    }

    fn add(&mut self, name: &'static str, value: impl ToString) {
        self.0.push((name, value.to_string()));
    }

    fn views(&self) -> Vec<(&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect()
    }
}

/// The block of the metadata record, as Heritrix writes it.
fn metadata(capture: &Capture, found: &Found) -> Vec<u8> {
    let Capture { item, exchange, .. } = capture;
    let mut lines = Vec::with_capacity(256 + 100 * found.links.len());
    let mut text = String::new();
    let mut put = |name: &str, value: fmt::Arguments<'_>| {
        text.clear();
        // A text takes everything.
        let _ = fmt::Write::write_fmt(&mut text, value);
        put_line(&mut lines, name, &text);
    };
    if item.hops.is_empty() {
        put("seed", format_args!(""));
    } else {
        put("via", format_args!("{}", item.via));
        put("hopsFromSeed", format_args!("{}", item.hops));
    }
    if !item.source.is_empty() {
        put("sourceTag", format_args!("{}", item.source));
    }
    put(
        "fetchTimeMs",
        format_args!("{}", exchange.timings.total.as_millis()),
    );
    if let Some(charset) = found.charset {
        put("charsetForLinkExtraction", format_args!("{charset}"));
    }
    for interim in &exchange.interim {
        put(
            "interimResponse",
            format_args!("{}", interim.escape_ascii()),
        );
    }
    for annotation in exchange.annotations() {
        put("annotation", format_args!("{annotation}"));
    }
    if found.nofollow {
        put("annotation", format_args!("{NOFOLLOW}"));
    }
    for link in &found.links {
        put(
            "outlink",
            format_args!("{} {} {}", link.url, link.hop, link.context),
        );
    }
    lines
}

/// Writes a line. A value from the web is one line, whatever is in it.
fn put_line(lines: &mut Vec<u8>, name: &str, value: &str) {
    for part in [name, ": "] {
        lines.extend_from_slice(part.as_bytes());
    }
    // Nearly all are such texts, and need not be taken apart into characters.
    if value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        lines.extend_from_slice(value.as_bytes());
    } else {
        let clean: String = value.chars().filter(|c| !c.is_control()).collect();
        lines.extend_from_slice(clean.as_bytes());
    }
    lines.extend_from_slice(b"\r\n");
}

/// The record of a DNS answer.
///
/// # Errors
/// When a field cannot be written.
pub(crate) fn pack_dns(
    packer: &mut Packer,
    answer: &Resolved,
    at: Moment,
) -> Result<Part, WarcWriteError> {
    let block = answer.block();
    let uri = format!("dns:{}", answer.name);
    let digest = Sha1Digest::of(block.as_bytes());
    let record = NewRecord {
        kind: RecordKind::Response,
        id: &new_id().to_string(),
        date: &warc_date(at.0 / 1000),
        target_uri: Some(&uri),
        content_type: Some("text/dns"),
        // Heritrix has the name server's address here, which the resolver does not tell.
        fields: &[],
        payload: Payload::None,
    };
    let digests = Digests {
        block: digest,
        payload: Some(digest),
    };
    let mut bytes = Vec::new();
    packer.pack(&record, &digests, block.as_bytes(), &mut bytes)?;
    Ok(Part::Bytes(bytes))
}

/// The first record of a file.
///
/// # Errors
/// When a field cannot be written.
pub(crate) fn pack_warcinfo(
    packer: &mut Packer,
    file: &str,
    at: Moment,
    lines: &str,
) -> Result<Part, WarcWriteError> {
    let record = NewRecord {
        kind: RecordKind::Warcinfo,
        id: &new_id().to_string(),
        date: &warc_date(at.0 / 1000),
        target_uri: None,
        content_type: Some("application/warc-fields"),
        fields: &[("WARC-Filename", file)],
        payload: Payload::None,
    };
    let mut bytes = Vec::new();
    let digests = Digests::of_block(lines.as_bytes());
    packer.pack(&record, &digests, lines.as_bytes(), &mut bytes)?;
    Ok(Part::Bytes(bytes))
}

struct Ids {
    main: String,
    request: String,
    metadata: String,
}

/// What identifies a record: a random UUID, version 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordUuid(pub(crate) [u8; 16]);

/// Makes a new identifier.
pub(crate) fn new_id() -> RecordUuid {
    let [id] = new_ids();
    id
}

/// Makes several; the system is asked once.
fn new_ids<const COUNT: usize>() -> [RecordUuid; COUNT] {
    let mut ids = [[0u8; 16]; COUNT];
    // The system's source of chance does not fail on a machine that has started; without it ids would repeat.
    getrandom::fill(ids.as_flattened_mut()).expect("the system gives random bytes");
    ids.map(|mut bytes| {
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        RecordUuid(bytes)
    })
}

impl fmt::Display for RecordUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = u128::from_be_bytes(self.0);
        write!(
            f,
            "urn:uuid:{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            number >> 96,
            number >> 80 & 0xffff,
            number >> 64 & 0xffff,
            number >> 48 & 0xffff,
            number & 0xffff_ffff_ffff
        )
    }
}

/// `WARC-Date` in whole seconds, which every replay tool reads.
pub(crate) fn warc_date(seconds: u64) -> String {
    let time = i64::try_from(seconds)
        .ok()
        .and_then(|seconds| jiff::Timestamp::from_second(seconds).ok())
        .unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_one_line_whatever_is_in_it() {
        let mut lines = Vec::new();
        put_line(&mut lines, "via", "http://a.example/?b c~");
        put_line(&mut lines, "outlink", "é\r\nvia:\tx\u{85}\u{7f}");
        let wanted = "via: http://a.example/?b c~\r\noutlink: évia:x\r\n";
        assert_eq!(String::from_utf8(lines).unwrap(), wanted);
    }

    #[test]
    fn dates_and_ids() {
        assert_eq!(warc_date(1_700_000_000), "2023-11-14T22:13:20Z");
        let (one, other) = (new_id().to_string(), new_id().to_string());
        assert_eq!((one.len(), &one[..9], &one[23..24]), (45, "urn:uuid:", "4"));
        assert_ne!(one, other);
    }
}
