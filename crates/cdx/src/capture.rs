//! One capture, whatever layout its line had.

use std::borrow::Cow;

use crate::CaptureTime;

/// What an index line says of a capture.
///
/// A field that is absent is `None`, and is left out of CDXJ and written `-` in CDX. An empty string is a value:
/// cdxj-indexer writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capture<'a> {
    /// The key it is sorted by: a SURT, except in indexes of another make.
    pub key: Cow<'a, str>,
    /// When it was captured.
    pub time: CaptureTime,
    /// The target URI as the record has it.
    pub url: Option<Cow<'a, str>>,
    /// The media type without parameters; `warc/revisit` for a revisit record.
    pub mime: Option<Cow<'a, str>>,
    /// The HTTP status, as the server sent it.
    pub status: Option<Cow<'a, str>>,
    /// The payload digest. CDXJ keeps its label (`sha1:`), CDX does not.
    pub digest: Option<Cow<'a, str>>,
    /// How many bytes the record takes in the file, compressed.
    pub length_bytes: Option<u64>,
    /// Where the record begins in the file.
    pub offset: Option<u64>,
    /// The (W)ARC file.
    pub filename: Option<Cow<'a, str>>,
    /// Further fields, in the order they are written. CDX has two of them: `redirect` and `meta`.
    pub extras: Vec<(Cow<'a, str>, Extra<'a>)>,
}

/// The value of a further field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extra<'a> {
    /// A string.
    Text(Cow<'a, str>),
    /// Any other JSON value, as it stood in the line.
    Json(Cow<'a, str>),
}

impl<'a> Capture<'a> {
    /// Returns a capture of which nothing is known but key and time.
    pub fn new(key: impl Into<Cow<'a, str>>, time: CaptureTime) -> Self {
        Self {
            key: key.into(),
            time,
            url: None,
            mime: None,
            status: None,
            digest: None,
            length_bytes: None,
            offset: None,
            filename: None,
            extras: Vec::new(),
        }
    }

    /// Returns a further field's string.
    pub fn extra_text(&self, name: &str) -> Option<&str> {
        self.extras.iter().find_map(|(extra, value)| match value {
            Extra::Text(text) if extra == name => Some(text.as_ref()),
            Extra::Text(_) | Extra::Json(_) => None,
        })
    }

    /// Says whether the line points to a revisit record.
    pub fn is_revisit(&self) -> bool {
        self.mime.as_deref() == Some("warc/revisit")
    }
}
