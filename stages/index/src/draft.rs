//! One capture between the reading of its record and the end of it.
//!
//! The length of a record is known when it was read to its end, and its header is gone by then. So what a line needs is
//! copied here first, into buffers that serve for every record.

use std::borrow::Cow;
use std::io::Read;

use ecluse_cdx::{Capture, CaptureTime, LineFault};
use ecluse_warc::{Extent, Record, RecordKind, WarcReadError};

/// What a line will say of a record.
#[derive(Debug)]
pub(crate) struct Draft {
    key: Vec<u8>,
    url: String,
    mime: Text,
    status: Text,
    digest: Text,
    time: CaptureTime,
}

/// A text that may be absent, with a buffer that stays.
#[derive(Debug, Default)]
struct Text {
    present: bool,
    text: String,
}

/// Why a record that should have a line has none.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// It does not say what it is a capture of.
    NoTarget,
    /// Its date names no moment.
    BadDate(String),
    /// Its target URI has no key that could stand in a line.
    BadKey,
    /// What it says makes no line.
    BadLine(LineFault),
}

impl Draft {
    pub(crate) fn new() -> Self {
        Self {
            key: Vec::new(),
            url: String::new(),
            mime: Text::default(),
            status: Text::default(),
            digest: Text::default(),
            time: CaptureTime::from_digits(b"00000000000000").expect("these are fourteen digits"),
        }
    }

    /// Takes what a line needs from a record; the fields are those of cdxj-indexer 1.5.
    pub(crate) fn take<Source: Read>(
        &mut self,
        record: &mut Record<'_, Source>,
    ) -> Result<Result<(), Unfit>, WarcReadError> {
        if let Err(unfit) = self.take_names(record) {
            return Ok(Err(unfit));
        }
        self.take_types(record);
        self.take_digest(record)?;
        Ok(Ok(()))
    }

    /// Returns the line of the record that lies there.
    pub(crate) fn capture<'d>(&'d self, extent: (u64, u64), filename: &'d str) -> Capture<'d> {
        let key = str::from_utf8(&self.key).expect("a key was looked at when it was taken");
        let mut capture = Capture::new(key, self.time);
        let (offset, length) = extent;
        capture.url = Some(Cow::Borrowed(&self.url));
        capture.mime = self.mime.get();
        capture.status = self.status.get();
        capture.digest = self.digest.get();
        capture.length_bytes = Some(length);
        capture.offset = Some(offset);
        capture.filename = Some(Cow::Borrowed(filename));
        capture
    }

    /// Returns the host in the key: what stands before its `)`, without the port.
    pub(crate) fn host(&self) -> &[u8] {
        let end = self.key.iter().position(|byte| *byte == b')');
        let host = &self.key[..end.unwrap_or(self.key.len())];
        host.split(|byte| *byte == b':').next().unwrap_or(host)
    }

    fn take_names<Source: Read>(&mut self, record: &Record<'_, Source>) -> Result<(), Unfit> {
        let url = record.target_uri().filter(|url| !url.is_empty());
        let url = url.ok_or(Unfit::NoTarget)?;
        let time = record.capture_time();
        let time = time.map_err(|error| Unfit::BadDate(error.to_string()))?;
        self.time = CaptureTime::from_digits(time.as_str().as_bytes())
            .expect("a time of the reader is fourteen digits");
        self.url.clear();
        self.url.push_str(&url);
        self.key.clear();
        ecluse_surt::surt_or_url(url.as_bytes(), &mut self.key);
        let breaks_line = |byte: &u8| *byte <= b' ' || *byte == 0x7f;
        if self.key.iter().any(breaks_line) || str::from_utf8(&self.key).is_err() {
            return Err(Unfit::BadKey);
        }
        Ok(())
    }

    fn take_types<Source: Read>(&mut self, record: &Record<'_, Source>) {
        let kind = record.kind();
        let head = record.http();
        let status = match kind {
            RecordKind::Response | RecordKind::Revisit => head.and_then(|head| head.status()),
            _ => None,
        };
        self.status.set(status.as_deref());
        match kind {
            RecordKind::Revisit => self.mime.set(Some("warc/revisit")),
            RecordKind::Response | RecordKind::Request => {
                let mime = head.and_then(|head| head.text("Content-Type"));
                self.mime.set(mime.as_deref().map(media_type));
            }
            _ => self
                .mime
                .set(record.content_type().as_deref().map(media_type)),
        }
    }

    fn take_digest<Source: Read>(
        &mut self,
        record: &mut Record<'_, Source>,
    ) -> Result<(), WarcReadError> {
        let stated = record.text("WARC-Payload-Digest");
        if let Some(digest) = stated.filter(|digest| !digest.is_empty()) {
            self.digest.set(Some(&digest));
        } else if record.kind() == RecordKind::Revisit {
            self.digest.set(None);
        } else {
            let digest = record.digest_payload()?;
            self.digest.set(Some(&digest.to_string()));
        }
        Ok(())
    }
}

impl Text {
    fn set(&mut self, text: Option<&str>) {
        self.text.clear();
        self.present = text.is_some();
        self.text.push_str(text.unwrap_or_default());
    }

    fn get(&self) -> Option<Cow<'_, str>> {
        self.present.then_some(Cow::Borrowed(self.text.as_str()))
    }
}

impl Unfit {
    /// Returns the reason, as damage is told.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::NoTarget => "no target URI".to_owned(),
            Self::BadDate(reason) => reason.clone(),
            Self::BadKey => "target URI has no key that could stand in a line".to_owned(),
            Self::BadLine(fault) => fault.to_string(),
        }
    }
}

/// Returns where a record lies, if it has its bytes to itself.
pub(crate) fn own(extent: Extent) -> Option<(u64, u64)> {
    match extent {
        Extent::Own { offset, length } => Some((offset, length)),
        Extent::Shared { .. } => None,
    }
}

/// Returns a media type without its parameters: up to the first `;` or blank, as Python splits.
fn media_type(value: &str) -> &str {
    let blank = |c: char| c == ';' || c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c);
    value.split(blank).next().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_types_lose_their_parameters() {
        for (value, expected) in [
            ("text/html", "text/html"),
            ("text/html;charset=utf-8", "text/html"),
            ("text/html charset", "text/html"),
            ("text/html\u{a0}x", "text/html"),
            ("; x", ""),
            ("", ""),
        ] {
            assert_eq!(media_type(value), expected, "{value}");
        }
    }

    #[test]
    fn the_host_is_in_the_key() {
        let mut draft = Draft::new();
        for (key, host) in [
            ("org,example)/a", "org,example"),
            ("org,example:8080)/", "org,example"),
            ("plain", "plain"),
        ] {
            draft.key = key.as_bytes().to_vec();
            assert_eq!(draft.host(), host.as_bytes(), "{key}");
        }
    }
}
