//! One record of a stored file: found, read, and held against what the index says of it.
//!
//! A file that is missing, cut, or no longer what was indexed is an error that says so; nothing else is ever given in its place.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ecluse_http::Decoded;
use ecluse_warc::{
    Compression, DamageReason, Extent, HttpHead, ReaderLimits, Record, RecordKind, WarcReader,
};
use rustix::fs::{Mode, OFlags};

use crate::archive::OpenGeneration;
use crate::capture_list::IndexedCapture;

/// No line of a chunked body that says how long a chunk is, is longer.
const CHUNK_LINE: u64 = 8 << 10;

/// Why a record cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// No copy of the file can be opened: its disk is not there, or the list of files does not have it.
    #[error("no copy of {0} can be opened")]
    NoCopy(String),
    /// The disk of every copy that there is has stopped to answer.
    #[error("where {0} lies does not answer")]
    Hung(String),
    /// The file could not be read.
    #[error("cannot read {file} at offset {offset}")]
    Read {
        /// The file.
        file: String,
        /// Where.
        offset: u64,
        /// What the system said.
        source: io::Error,
    },
    /// There is no record there, or a damaged one, or another one.
    #[error("{file} at offset {offset} is not what the index says: {reason}")]
    NotAsIndexed {
        /// The file.
        file: String,
        /// Where.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
}

impl RecordError {
    fn not_as_indexed(capture: &IndexedCapture, reason: impl Into<String>) -> Self {
        Self::NotAsIndexed {
            file: capture.filename.clone(),
            offset: capture.offset,
            reason: reason.into(),
        }
    }
}

/// A stored file that is open at a record.
pub type RecordFile = WarcReader<io::Take<File>>;

/// What the head of a response says.
#[derive(Debug, Clone, Default)]
pub struct ResponseHead {
    /// The status; 200 where the record has no HTTP head.
    pub status: u16,
    /// The fields in order, as they were sent.
    pub fields: Vec<(String, Vec<u8>)>,
    /// How long the head is in its record.
    pub head_bytes: usize,
    /// The record had no HTTP head: a resource, or what was fetched by other means.
    pub is_made: bool,
}

impl ResponseHead {
    /// Returns the text of the first field of this name.
    pub fn text(&self, name: &str) -> Option<String> {
        let (_, value) = self
            .fields
            .iter()
            .find(|(field, _)| field.eq_ignore_ascii_case(name))?;
        Some(ecluse_surt::header_text(value).into_owned())
    }

    /// Returns the media type without its parameters, in lower case.
    pub fn media_type(&self) -> String {
        let full = self.text("Content-Type").unwrap_or_default();
        let end = full.find([';', ' ', ',']).unwrap_or(full.len());
        full[..end].trim().to_ascii_lowercase()
    }

    /// Tells whether the body is sent in chunks.
    pub fn is_chunked(&self) -> bool {
        self.text("Transfer-Encoding")
            .is_some_and(|coding| coding.to_ascii_lowercase().contains("chunked"))
    }

    /// Returns the content codings of the body, in the order they were applied.
    pub fn codings(&self) -> Vec<String> {
        self.text("Content-Encoding")
            .unwrap_or_default()
            .split(',')
            .map(|coding| coding.trim().to_ascii_lowercase())
            .filter(|coding| !coding.is_empty() && coding != "identity")
            .collect()
    }
}

/// Opens the file of a capture at its record: the first of its copies that can be opened.
///
/// # Errors
/// When there is none, or the list of files cannot be read.
pub fn open_file(
    root: &Path,
    generation: &OpenGeneration,
    capture: &IndexedCapture,
) -> Result<RecordFile, RecordError> {
    open_first(&paths_of(root, generation, capture)?, capture)
}

/// Returns where the copies of a capture's file are on this machine.
pub(crate) fn paths_of(
    root: &Path,
    generation: &OpenGeneration,
    capture: &IndexedCapture,
) -> Result<Vec<PathBuf>, RecordError> {
    let places = generation.places(&capture.filename).map_err(|error| {
        let source = io::Error::other(error.to_string());
        let file = "the list of files".to_owned();
        RecordError::Read {
            file,
            offset: 0,
            source,
        }
    })?;
    let paths = places.iter().filter(|place| !place.contains("://"));
    Ok(paths.map(|place| root.join(place)).collect())
}

/// Opens the first of these files that can be opened, at the record of a capture.
///
/// # Errors
/// When none can be.
pub fn open_first(paths: &[PathBuf], capture: &IndexedCapture) -> Result<RecordFile, RecordError> {
    let file = paths.iter().find_map(|path| {
        let mut file = open_regular(path).ok()?;
        file.seek(SeekFrom::Start(capture.offset)).ok()?;
        Some(file)
    });
    let file = file.ok_or_else(|| RecordError::NoCopy(capture.filename.clone()))?;
    let limits = ReaderLimits {
        member_bytes: unpacked_bytes(&file, capture).clamp(64 << 10, 1 << 20),
        header_bytes: 64 << 10,
        prefix_bytes: 128 << 10,
        damages: 1,
        ..ReaderLimits::default()
    };
    let length = capture.length_bytes.unwrap_or(u64::MAX);
    Ok(WarcReader::new(file.take(length), limits))
}

/// Opens a file that is one: a pipe or a device in its place could hold its reader for ever.
fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Returns how long a gzip member says it is when it is unpacked. To make room for more costs more than to read the page.
fn unpacked_bytes(file: &File, capture: &IndexedCapture) -> usize {
    let mut said = [0; 4];
    let end = capture.length_bytes.and_then(|length| {
        let end = capture.offset.checked_add(length)?;
        end.checked_sub(said.len() as u64)
    });
    match end.map(|at| file.read_exact_at(&mut said, at)) {
        // What cannot be packed takes a little more room packed.
        Some(Ok(())) => {
            let packed = capture.length_bytes.unwrap_or(0);
            let unpacked = u64::from(u32::from_le_bytes(said)).max(packed);
            usize::try_from(unpacked.saturating_add(1 << 10)).unwrap_or(usize::MAX)
        }
        Some(Err(_)) | None => usize::MAX,
    }
}

/// Reads the record that a file is open at, and holds it against the capture.
///
/// # Errors
/// When there is no such record, or another.
pub fn read_record<'r, Source: Read>(
    reader: &'r mut WarcReader<Source>,
    capture: &IndexedCapture,
) -> Result<Record<'r, Source>, RecordError> {
    let record = reader.next().map_err(|error| RecordError::Read {
        file: capture.filename.clone(),
        offset: capture.offset,
        source: match error {
            ecluse_warc::WarcReadError::Io { source, .. } => source,
            other => io::Error::other(other.to_string()),
        },
    })?;
    let Some(record) = record else {
        return Err(RecordError::not_as_indexed(capture, "there is no record"));
    };
    // The reader passes over what it cannot read; what comes after it is another record.
    if record.offset() != 0 {
        return Err(RecordError::not_as_indexed(
            capture,
            "no record begins there",
        ));
    }
    let found = record.target_uri().unwrap_or_default();
    if found != capture.url.as_str() && key_of(&found) != key_of(&capture.url) {
        let reason = format!(
            "it is a capture of {}",
            ecluse_telemetry::printable(found.as_bytes())
        );
        return Err(RecordError::not_as_indexed(capture, reason));
    }
    if record.is_damaged() {
        return Err(RecordError::not_as_indexed(
            capture,
            "the record is damaged or cut short",
        ));
    }
    Ok(record)
}

/// Opens the first of these files in which the record of a capture is whole, at the record: it was read to its end before.
///
/// # Errors
/// What is wrong with the first that can be opened, when there is no whole one.
pub fn open_whole(paths: &[PathBuf], capture: &IndexedCapture) -> Result<RecordFile, RecordError> {
    let mut first = None;
    for path in paths {
        let path = std::slice::from_ref(path);
        let whole = open_first(path, capture).and_then(|file| must_be_whole(file, capture));
        match whole {
            Ok(()) => return open_first(path, capture),
            Err(RecordError::NoCopy(_)) => {}
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.unwrap_or_else(|| RecordError::NoCopy(capture.filename.clone())))
}

fn must_be_whole(mut file: RecordFile, capture: &IndexedCapture) -> Result<(), RecordError> {
    let differs = |reason: String| Err(RecordError::not_as_indexed(capture, reason));
    let record = read_record(&mut file, capture)?;
    let time = record.capture_time();
    let time = time.as_ref().map_or("no time", |time| time.as_str());
    if time.get(..14) != capture.time.get(..14) {
        return differs(format!("it is a capture of {time}"));
    }
    let extent = record.finish().map_err(|error| RecordError::Read {
        file: capture.filename.clone(),
        offset: capture.offset,
        source: io::Error::other(error.to_string()),
    })?;
    // What stands behind a record in its member takes nothing from it.
    let is_harmless = |reason: &DamageReason| matches!(reason, DamageReason::TrailingBytes { .. });
    if let Some(damage) = file.damages().iter().find(|it| !is_harmless(&it.reason)) {
        return differs(format!("the record is damaged: {}", damage.reason));
    }
    // Of an uncompressed record some count the empty lines behind it.
    let lines = match file.compression() {
        Compression::None => 4,
        _ => 0,
    };
    match (extent, capture.length_bytes) {
        (Extent::Own { length, .. }, Some(bytes))
            if !(length..=length + lines).contains(&bytes) =>
        {
            differs(format!("it has {length} bytes and not {bytes}"))
        }
        _ => Ok(()),
    }
}

fn key_of(url: &str) -> Vec<u8> {
    let mut key = Vec::new();
    ecluse_surt::surt_or_url(url.as_bytes(), &mut key);
    key
}

/// Returns what the head of a record says; of a record without one, what stands for it.
pub fn head_of<Source: Read>(record: &Record<'_, Source>) -> ResponseHead {
    let made = || {
        let content_type = record.content_type().unwrap_or_default().into_owned();
        ResponseHead {
            status: 200,
            fields: vec![("Content-Type".into(), content_type.into_bytes())],
            head_bytes: 0,
            is_made: true,
        }
    };
    if record.kind() == RecordKind::Request {
        return made();
    }
    let Some(http) = record.http() else {
        return made();
    };
    head_from(&http).unwrap_or_else(made)
}

fn head_from(http: &HttpHead<'_>) -> Option<ResponseHead> {
    let head_bytes = http.head_bytes()?;
    let fields = http
        .fields()
        .map(|field| {
            let name = String::from_utf8_lossy(field.name).into_owned();
            (name, field.value().into_owned())
        })
        .collect();
    let status = http.status().and_then(|status| status.parse().ok());
    Some(ResponseHead {
        status: status.filter(|s| (100..1000).contains(s)).unwrap_or(200),
        fields,
        head_bytes,
        is_made: false,
    })
}

/// What a revisit says of the capture it refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevisitReference {
    /// The URL, if it is said.
    pub url: Option<String>,
    /// The time in 14 digits, if it is said.
    pub time: Option<String>,
}

/// Returns what a revisit record refers to.
pub fn reference_of<Source: Read>(record: &Record<'_, Source>) -> RevisitReference {
    let url = record.text("WARC-Refers-To-Target-URI");
    let url = url.map(|url| url.trim_matches(['<', '>']).to_owned());
    let time = record.text("WARC-Refers-To-Date").map(|date| {
        let digits = date.chars().filter(char::is_ascii_digit);
        digits.take(14).collect::<String>()
    });
    RevisitReference {
        url: url.filter(|url| !url.is_empty()),
        time: time.filter(|time| time.len() == 14),
    }
}

/// Reads the body behind a head, its chunks undone.
///
/// # Errors
/// When the head cannot be passed over.
pub fn body_of<'b, Source: Read>(
    record: &'b mut Record<'_, Source>,
    head: &ResponseHead,
) -> io::Result<Box<dyn Read + 'b>> {
    io::copy(&mut record.take(head.head_bytes as u64), &mut io::sink())?;
    Ok(match head.is_chunked() {
        true => Box::new(Dechunked::new(BufReader::new(record))),
        false => Box::new(record),
    })
}

/// Undoes the content codings of a body; at most `limit_bytes` come out.
pub fn decoded<'b>(body: Box<dyn Read + 'b>, codings: &[String], limit_bytes: u64) -> Decoded<'b> {
    Decoded::new(body, codings, limit_bytes)
}

/// A body without its chunks. One that does not begin with a chunk was stored without them, and is given as it is; what is no
/// chunk later on ends it.
pub struct Dechunked<Source> {
    source: Source,
    left: u64,
    state: ChunkState,
}

enum ChunkState {
    Fresh,
    Within,
    Plain,
    Ended,
}

impl<Source: BufRead> Dechunked<Source> {
    /// Reads chunks from a source.
    pub fn new(source: Source) -> Self {
        Self {
            source,
            left: 0,
            state: ChunkState::Fresh,
        }
    }

    fn line(&mut self) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        let mut limited = self.source.by_ref().take(CHUNK_LINE);
        limited.read_until(b'\n', &mut line)?;
        Ok(line)
    }

    /// Goes to the next chunk.
    fn advance(&mut self) -> io::Result<()> {
        if let ChunkState::Fresh = self.state {
            // Nothing is taken away before it is known to be a chunk's length.
            let start = self.source.fill_buf()?;
            let end = start.iter().position(|byte| *byte == b'\n');
            if end.and_then(|end| size_of(&start[..end])).is_none() {
                self.state = ChunkState::Plain;
                return Ok(());
            }
        } else {
            // The line that ends the chunk before.
            self.line()?;
        }
        let line = self.line()?;
        self.left = size_of(&line).unwrap_or(0);
        self.state = match self.left {
            0 => ChunkState::Ended,
            _ => ChunkState::Within,
        };
        Ok(())
    }
}

/// Reads the line that says how long a chunk is.
fn size_of(line: &[u8]) -> Option<u64> {
    let text = str::from_utf8(line).ok()?;
    let digits = text.split(';').next()?.trim();
    u64::from_str_radix(digits, 16).ok()
}

impl<Source: BufRead> Read for Dechunked<Source> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !matches!(self.state, ChunkState::Plain | ChunkState::Ended) {
            self.advance()?;
        }
        match self.state {
            ChunkState::Ended => Ok(0),
            ChunkState::Plain => self.source.read(out),
            ChunkState::Fresh | ChunkState::Within => {
                let read = self.source.by_ref().take(self.left).read(out)?;
                self.left -= read as u64;
                if read == 0 {
                    self.state = ChunkState::Ended;
                }
                Ok(read)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn undone(bytes: &[u8]) -> String {
        let mut body = String::new();
        Dechunked::new(bytes).read_to_string(&mut body).unwrap();
        body
    }

    #[test]
    fn chunks_are_undone() {
        assert_eq!(
            undone(b"5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n"),
            "hello world"
        );
        assert_eq!(undone(b"5\r\nhello\r\nnonsense"), "hello");
        assert_eq!(undone(b"5\r\nhel"), "hel");
        assert_eq!(undone(b""), "");
        assert_eq!(undone(b"0\r\n\r\n"), "");
    }

    #[test]
    fn a_body_stored_without_its_chunks_is_given_as_it_is() {
        assert_eq!(undone(b"<html>\nbody"), "<html>\nbody");
        assert_eq!(
            undone(b"plain, and no line feed"),
            "plain, and no line feed"
        );
    }
}
