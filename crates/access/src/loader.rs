//! A capture with everything that is needed to show it: its own head, and the body it has or refers to.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use ecluse_cdx::{KeyRange, LookupError, cdxj};
use ecluse_warc::RecordKind;

use crate::archive::{ArchiveError, OpenGeneration, ReadingArchive};
use crate::capture_list::IndexedCapture;
use crate::locations::{LocationStay, Locations};
use crate::record::{
    RecordError, RecordFile, ResponseHead, RevisitReference, body_of, head_of, open_first,
    paths_of, read_record, reference_of,
};
use crate::url_text::key_of;

/// A larger body is not held in memory.
pub(crate) const WHOLE_BYTES: u64 = 2 << 20;
/// Captures of the URL that a revisit refers to, that are looked at.
const REFERRED_LINES: usize = 10_000;

/// The digests of an empty payload, in SHA-1 and in SHA-256.
const EMPTY: [&str; 3] = [
    "3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ",
    "4OYMIQUY7QOBJGX36TEJS35ZEQT24QPEMSNZGTFESWMRW6CSXBKQ====",
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
];

/// Why a capture cannot be shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum LoadError {
    #[error(transparent)]
    ReadingArchive(#[from] ArchiveError),
    #[error(transparent)]
    Lookup(#[from] LookupError),
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A revisit whose original the archive does not have.
    #[error("what the capture of {url} at {time} refers to is not in the archive")]
    NoOriginal { url: String, time: String },
}

/// A capture, ready to be shown.
pub(crate) struct LoadedCapture {
    /// The capture that was asked for.
    pub(crate) capture: IndexedCapture,
    /// Its head; for a revisit without one, that of what it refers to.
    pub(crate) head: ResponseHead,
    /// The head of the record that the body is in: it says how the body is packed.
    pub(crate) body_head: ResponseHead,
    /// The record that the body is in.
    pub(crate) stored: IndexedCapture,
    pub(crate) generation: Arc<OpenGeneration>,
    pub(crate) body: LoadedBody,
}

/// A body without its chunks, its content codings as they were.
pub(crate) enum LoadedBody {
    /// All of it.
    Whole(Vec<u8>),
    /// In its file, to be read in pieces; how long it is, where that is known.
    Stored(Option<u64>),
}

/// Loads a capture.
pub(crate) fn load(
    archive: &ReadingArchive,
    locations: &Locations,
    root: &Path,
    collection: &str,
    generation: &Arc<OpenGeneration>,
    capture: IndexedCapture,
) -> Result<LoadedCapture, LoadError> {
    let (mut file, stay) = open_file(locations, root, generation, &capture)?;
    let mut record = read_record(&mut file, &capture)?;
    let own_head = head_of(&record);
    if record.kind() != RecordKind::Revisit {
        let body = read_body(&mut record, &own_head, &capture)?;
        return Ok(LoadedCapture {
            stored: capture.clone(),
            capture,
            body_head: own_head.clone(),
            head: own_head,
            generation: Arc::clone(generation),
            body,
        });
    }
    // Of nothing there is no original to look for: a redirect, mostly.
    if EMPTY.contains(&bare(&capture.digest)) && !own_head.is_made {
        return Ok(LoadedCapture {
            stored: capture.clone(),
            capture,
            body_head: own_head.clone(),
            head: own_head,
            generation: Arc::clone(generation),
            body: LoadedBody::Whole(Vec::new()),
        });
    }
    let reference = reference_of(&record);
    drop(stay);
    let (found, stored) = original(archive, collection, generation, &capture, &reference)?
        .ok_or_else(|| LoadError::NoOriginal {
            url: capture.url.clone(),
            time: capture.time.clone(),
        })?;
    let (mut file, _stay) = open_file(locations, root, &found, &stored)?;
    let mut record = read_record(&mut file, &stored)?;
    let body_head = head_of(&record);
    let body = read_body(&mut record, &body_head, &stored)?;
    // "Not modified" was the answer to the crawler, not to a reader.
    let shows_own = !own_head.is_made && own_head.status != 304;
    Ok(LoadedCapture {
        capture,
        head: if shows_own {
            own_head
        } else {
            body_head.clone()
        },
        body_head,
        stored,
        generation: found,
        body,
    })
}

fn read_body<Source: Read>(
    record: &mut ecluse_warc::Record<'_, Source>,
    head: &ResponseHead,
    capture: &IndexedCapture,
) -> Result<LoadedBody, RecordError> {
    let declared = record.declared_bytes();
    let length = declared.map(|all| all.saturating_sub(head.head_bytes as u64));
    if declared.is_none_or(|declared| declared > WHOLE_BYTES) {
        return Ok(LoadedBody::Stored(length.filter(|_| !head.is_chunked())));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length.unwrap_or(0)).unwrap_or(0));
    let read = body_of(record, head).and_then(|mut body| body.read_to_end(&mut bytes));
    read.map_err(|source| RecordError::Read {
        file: capture.filename.clone(),
        offset: capture.offset,
        source,
    })?;
    Ok(LoadedBody::Whole(bytes))
}

/// Opens the file of a capture at its record: the first of its copies that can be opened and whose disk answers. The stay lasts
/// as long as is read.
fn open_file<'a>(
    locations: &'a Locations,
    root: &Path,
    generation: &OpenGeneration,
    capture: &IndexedCapture,
) -> Result<(RecordFile, LocationStay<'a>), RecordError> {
    let mut refusal = RecordError::NoCopy(capture.filename.clone());
    for path in paths_of(root, generation, capture)? {
        let Ok(stay) = locations.enter(&path) else {
            refusal = RecordError::Hung(capture.filename.clone());
            continue;
        };
        if let Ok(file) = open_first(std::slice::from_ref(&path), capture) {
            return Ok((file, stay));
        }
    }
    Err(refusal)
}

/// Reads a stored body in pieces; `see` says whether more is wanted.
pub(crate) fn read_stored(
    locations: &Locations,
    root: &Path,
    generation: &OpenGeneration,
    stored: &IndexedCapture,
    head: &ResponseHead,
    see: &mut dyn FnMut(&mut dyn Read) -> io::Result<()>,
) -> io::Result<()> {
    let opened = open_file(locations, root, generation, stored);
    let (mut file, stay) = opened.map_err(io::Error::other)?;
    let mut record = read_record(&mut file, stored).map_err(io::Error::other)?;
    // From here on the client's pace counts.
    drop(stay);
    let mut body = body_of(&mut record, head)?;
    see(&mut *body)
}

/// Finds what a revisit refers to: by what it says, else another capture of the same URL with the same payload; in its own
/// collection first, then in the others.
fn original(
    archive: &ReadingArchive,
    collection: &str,
    generation: &Arc<OpenGeneration>,
    revisit: &IndexedCapture,
    reference: &RevisitReference,
) -> Result<Option<(Arc<OpenGeneration>, IndexedCapture)>, LoadError> {
    let referred = reference.url.as_deref().and_then(key_of);
    let keys = [referred, Some(revisit.key.clone().into_bytes())];
    let mut keys: Vec<Vec<u8>> = keys.into_iter().flatten().collect();
    keys.dedup();
    let find = |generation: &OpenGeneration| -> Result<Option<IndexedCapture>, LookupError> {
        for key in &keys {
            if let Some(found) = same_payload(generation, key, revisit, reference)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    };
    if let Some(found) = find(generation)? {
        return Ok(Some((Arc::clone(generation), found)));
    }
    for other in archive.collections() {
        if other == collection {
            continue;
        }
        let Ok(generation) = archive.current(&other) else {
            continue;
        };
        if let Some(found) = find(&generation)? {
            return Ok(Some((generation, found)));
        }
    }
    Ok(None)
}

/// Returns the capture of a key that has the payload of a revisit: that of the time it names, else the nearest before it.
fn same_payload(
    generation: &OpenGeneration,
    key: &[u8],
    revisit: &IndexedCapture,
    reference: &RevisitReference,
) -> Result<Option<IndexedCapture>, LookupError> {
    let mut lines = generation.lines.range(KeyRange::exact(key))?;
    let mut best: Option<IndexedCapture> = None;
    for _ in 0..REFERRED_LINES {
        let Some(line) = lines.next_line()? else {
            break;
        };
        let Some(other) = cdxj::parse(line)
            .ok()
            .and_then(|line| IndexedCapture::of(&line))
        else {
            continue;
        };
        let is_named = reference.time.as_deref() == other.time.get(..14);
        // A digest may be missing in indexes of another make; then the time that is named must do.
        let is_same = match (revisit.digest.as_str(), other.digest.as_str()) {
            ("", _) | (_, "") => is_named,
            (one, two) => bare(one) == bare(two),
        };
        if other.is_revisit || !is_same {
            continue;
        }
        if is_named {
            return Ok(Some(other));
        }
        let is_later = other.time > revisit.time;
        if best.is_none() || !is_later {
            best = Some(other);
        }
    }
    Ok(best)
}

/// Returns a digest without its label.
fn bare(digest: &str) -> &str {
    digest.rsplit(':').next().unwrap_or(digest)
}
