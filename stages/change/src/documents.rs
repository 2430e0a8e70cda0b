//! The documents of captures: read from the stored files, cut into blocks, and asked what they tell of other pages.

use std::borrow::Cow;
use std::io::Read;
use std::sync::Arc;

use ecluse_access::{DocumentError, DocumentReader, IndexedCapture, OpenGeneration};
use ecluse_changes::{
    Announcement, ArchiveTime, BlockDocument, DocumentForm, ReadOutcome, WordList, WordMeasures,
    told_changes,
};
use flate2::bufread::MultiGzDecoder;

/// A date up to this long after the access is taken for one before it: clocks differ.
const AHEAD_SECONDS: i64 = 300;
/// Texts that servers send are cut to this length.
const HEADER_CHARACTERS: usize = 500;

/// A document that was read.
pub(crate) struct ReadDocument {
    /// It is of a kind that is followed.
    pub(crate) is_document: bool,
    /// Its blocks; none where it has no text that can be read.
    pub(crate) blocks: Option<BlockDocument>,
    /// What its words say, where there is a list of words.
    pub(crate) words: Option<WordMeasures>,
    pub(crate) etag: Option<String>,
    pub(crate) last_modified: Option<String>,
    /// What it tells of other pages.
    pub(crate) told: Vec<Announcement>,
}

/// Where documents are read from.
pub(crate) struct Documents<'a> {
    pub(crate) reader: &'a DocumentReader,
    pub(crate) collection: &'a str,
    pub(crate) generation: Option<&'a Arc<OpenGeneration>>,
    pub(crate) advertisements: &'a [String],
    /// The words of the language, and how often the web has them.
    pub(crate) words: Option<&'a WordList>,
    /// No more of what is packed in a document is read.
    pub(crate) limit_bytes: u64,
}

/// Says how a document of a media type is read; none for what is no document. Those of a PDF are known and cannot be read.
///
/// A type that says no more than that something is packed is one of a sitemap where the URL says so. Other archives are not opened.
pub(crate) fn form_of(media_type: &str, url: &str) -> Option<Option<DocumentForm>> {
    let kind = media_type.split(';').next().unwrap_or_default().trim();
    let kind = kind.to_ascii_lowercase();
    match kind.as_str() {
        "text/html" | "application/xhtml+xml" => Some(Some(DocumentForm::Page)),
        "application/pdf" => Some(None),
        "text/css" | "text/javascript" | "text/dns" | "text/ecmascript" => None,
        "image/svg+xml" => None,
        "application/json" | "application/ld+json" | "application/feed+json" => {
            Some(Some(DocumentForm::Text))
        }
        "text/xml" | "application/xml" => Some(Some(DocumentForm::Xml)),
        "application/gzip" | "application/x-gzip" | "application/octet-stream" => {
            is_packed_xml(url).then_some(Some(DocumentForm::Xml))
        }
        other if other.ends_with("+xml") => Some(Some(DocumentForm::Xml)),
        other if other.ends_with("+json") => Some(Some(DocumentForm::Text)),
        other if other.starts_with("text/") => Some(Some(DocumentForm::Text)),
        _ => None,
    }
}

fn is_packed_xml(url: &str) -> bool {
    let path = url.split(['?', '#']).next().unwrap_or(url);
    let end = path.len().checked_sub(".xml.gz".len());
    let end = end.and_then(|at| path.get(at..));
    end.is_some_and(|end| end.eq_ignore_ascii_case(".xml.gz"))
}

/// Unpacks what is packed in itself, as sitemaps are; damage ends it.
fn unpacked(body: &[u8], limit_bytes: u64) -> Cow<'_, [u8]> {
    if !body.starts_with(&[0x1f, 0x8b]) {
        return Cow::Borrowed(body);
    }
    let mut text = Vec::new();
    // What came before the damage counts.
    let _ = MultiGzDecoder::new(body)
        .take(limit_bytes)
        .read_to_end(&mut text);
    Cow::Owned(text)
}

impl Documents<'_> {
    /// Reads the document of a capture; what it tells of others is asked where `is_asked` says so.
    pub(crate) fn read(
        &self,
        capture: &IndexedCapture,
        time: ArchiveTime,
        is_asked: bool,
    ) -> Result<ReadDocument, ReadOutcome> {
        let Some(generation) = self.generation else {
            return Err(ReadOutcome::Missing);
        };
        let document = self.reader.read(self.collection, generation, capture);
        let document = document.map_err(|error| match error {
            DocumentError::Missing(_) => ReadOutcome::Missing,
            DocumentError::NoOriginal(_) => ReadOutcome::NoOriginal,
            _ => ReadOutcome::Damaged,
        })?;
        let header = |name: &str| {
            let text = document.head.text(name)?;
            Some(text.chars().take(HEADER_CHARACTERS).collect::<String>())
        };
        let by_type = |media_type: &str| form_of(media_type, &capture.url);
        let form = by_type(&document.media_type).or_else(|| by_type(&capture.mime));
        let is_document = form.is_some();
        let form = form.flatten();
        let body = match form {
            Some(DocumentForm::Xml) => unpacked(&document.body, self.limit_bytes),
            _ => Cow::Borrowed(document.body.as_slice()),
        };
        let mut told = Vec::new();
        // Feeds are XML or JSON, and both are sent as plain text too; other texts end at their first byte.
        if is_asked && matches!(form, Some(DocumentForm::Xml | DocumentForm::Text)) {
            told_changes(&body, &mut |change| {
                let is_ahead = change.time.seconds() - time.seconds() > AHEAD_SECONDS;
                if !is_ahead {
                    told.extend(announcement(capture, &change));
                }
            });
        }
        let read = |form| BlockDocument::read(&body, form, self.advertisements);
        let blocks = form.map(read);
        let words = blocks.as_ref().zip(self.words);
        Ok(ReadDocument {
            is_document,
            words: words.map(|(blocks, list)| blocks.measure_words(list, body.len())),
            blocks,
            etag: header("ETag"),
            last_modified: header("Last-Modified"),
            told,
        })
    }
}

/// Returns what is told of a page under the key of the page; none of an address that is none of the web.
fn announcement(
    source: &IndexedCapture,
    told: &ecluse_changes::ToldChange,
) -> Option<Announcement> {
    let base = url::Url::parse(&source.url).ok()?;
    let url = base.join(&told.address).ok()?;
    if !matches!(url.scheme(), "http" | "https") {
        return None;
    }
    let mut key = Vec::new();
    ecluse_surt::surt_or_url(url.as_str().as_bytes(), &mut key);
    let surt = String::from_utf8(key).ok().filter(|key| is_plain(key))?;
    Some(Announcement {
        surt,
        time: told.time,
        kind: told.kind,
        url: url.into(),
    })
}

/// Says whether a key can stand in a line.
pub(crate) fn is_plain(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|byte| byte > b' ' && byte != 0x7f)
}
