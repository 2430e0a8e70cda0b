//! One record: its header, its block, and where it lies in the file.
//!
//! A record borrows the reader. Its header can be asked at any time; its block is a slice if it fits in memory, and can
//! be read as a stream in any case. [`Record::finish`] reads to its end and says where it lay.

use std::borrow::Cow;
use std::io::{self, Read};

use crate::date::{DateError, RecordDate};
use crate::digest::Sha1Digest;
use crate::format::{ArchiveFormat, WarcVersion};
use crate::header::Field;
use crate::http::HttpHead;
use crate::reader::{WarcReadError, WarcReader};
use crate::text;

/// What a record is: its `WARC-Type`, whatever its case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RecordKind {
    /// About the file; also the first record of an ARC file.
    Warcinfo,
    /// What a server said; also every other record of an ARC file.
    Response,
    /// What was fetched by other means, or made.
    Resource,
    /// What a server was asked.
    Request,
    /// About another record.
    Metadata,
    /// That a capture was the same as another.
    Revisit,
    /// Another form of a record.
    Conversion,
    /// A further segment of a record.
    Continuation,
    /// A type that the standard does not name.
    Other,
    /// No type at all.
    Missing,
}

impl RecordKind {
    const NAMES: [(&'static str, Self); 8] = [
        ("response", Self::Response),
        ("request", Self::Request),
        ("metadata", Self::Metadata),
        ("revisit", Self::Revisit),
        ("resource", Self::Resource),
        ("warcinfo", Self::Warcinfo),
        ("conversion", Self::Conversion),
        ("continuation", Self::Continuation),
    ];

    /// Reads a `WARC-Type`.
    #[must_use]
    pub fn parse(value: &[u8]) -> Self {
        Self::NAMES
            .iter()
            .find(|(name, _)| value.eq_ignore_ascii_case(name.as_bytes()))
            .map_or(Self::Other, |&(_, kind)| kind)
    }

    /// Returns the name the standard gives it, if it does.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        Self::NAMES
            .iter()
            .find(|&&(_, kind)| kind == self)
            .map(|&(name, _)| name)
    }
}

/// Where a record lies in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// These bytes hold this record and nothing else: a member, or a stretch of an uncompressed file.
    Own {
        /// The offset of the first byte.
        offset: u64,
        /// How many bytes. Padding behind the record counts in a member, and does not in an uncompressed file.
        length: u64,
    },
    /// The record shares a member with others: no offset leads to it.
    Shared {
        /// The offset of the member.
        member: u64,
        /// The offset of the record in the inflated member.
        inside: u64,
    },
}

/// One record of a file.
#[derive(Debug)]
pub struct Record<'r, Source> {
    pub(crate) reader: &'r mut WarcReader<Source>,
}

impl<Source: Read> Record<'_, Source> {
    /// Returns the number of the record in the file, from 1.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.reader.current().number
    }

    /// Returns how the record is written.
    #[must_use]
    pub fn format(&self) -> ArchiveFormat {
        self.reader.current().format
    }

    /// Returns the version of a WARC record.
    #[must_use]
    pub fn version(&self) -> Option<WarcVersion> {
        self.reader.current().version
    }

    /// Returns what the record is.
    #[must_use]
    pub fn kind(&self) -> RecordKind {
        self.reader.current().kind
    }

    /// Returns the offset of the record or, in a compressed file, of its member.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.reader.current().offset
    }

    /// Tells whether the member could not be inflated to its end, or the block is not as long as the header says.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.reader.is_damaged()
    }

    /// Returns the fields of a WARC header in order; an ARC record has none.
    pub fn fields(&self) -> impl Iterator<Item = Field<'_>> {
        let header = self.reader.header();
        self.reader
            .spans()
            .iter()
            .map(move |span| span.field(header))
    }

    /// Returns the first field of this name, in upper or lower case. An ARC record has none.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Field<'_>> {
        let header = self.reader.header();
        self.reader
            .spans()
            .iter()
            .filter(|span| span.name_length() == name.len())
            .map(|span| span.field(header))
            .find(|field| field.is(name))
    }

    /// Returns the text of the first field of this name.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<Cow<'_, str>> {
        self.field(name).map(|field| field.text())
    }

    /// Returns the header as it stands in the file: up to its blank line, or an ARC URL-record line.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        self.reader.header()
    }

    /// Returns the target URI: without the angle brackets of wget 1.19, blanks as `%20`.
    ///
    /// The first record of an ARC file has none.
    #[must_use]
    pub fn target_uri(&self) -> Option<Cow<'_, str>> {
        let uri = match self.reader.arc_field(|line| &line.url) {
            Some(_) if self.kind() == RecordKind::Warcinfo => return None,
            Some(url) => self.decode_arc(url),
            None => self.text("WARC-Target-URI")?,
        };
        Some(clean_uri(uri))
    }

    /// Returns the capture time: `WARC-Date`, or the date of an ARC record.
    pub fn capture_time(&self) -> Result<RecordDate, DateError> {
        match self.reader.arc_field(|line| &line.date) {
            Some(date) => Ok(RecordDate::from_arc_date(date)),
            None => RecordDate::from_warc_date(
                &self
                    .field("WARC-Date")
                    .map(|field| field.value())
                    .unwrap_or_default(),
            ),
        }
    }

    /// Returns the record's own content type: for an ARC record, what the server said of the payload.
    #[must_use]
    pub fn content_type(&self) -> Option<Cow<'_, str>> {
        match self.reader.arc_field(|line| &line.content_type) {
            Some(content_type) => Some(self.decode_arc(content_type)),
            None => self.text("Content-Type"),
        }
    }

    /// Returns the address of the server.
    #[must_use]
    pub fn address(&self) -> Option<Cow<'_, str>> {
        match self.reader.arc_field(|line| &line.address) {
            Some(address) => Some(self.decode_arc(address)),
            None => self.text("WARC-IP-Address"),
        }
    }

    /// Returns the length of the block as the header states it, if it is a length.
    #[must_use]
    pub fn declared_bytes(&self) -> Option<u64> {
        self.reader.current().declared
    }

    /// Returns the whole block, if it fits in memory.
    #[must_use]
    pub fn block(&self) -> Option<&[u8]> {
        self.reader.block()
    }

    /// Returns the start of the block: all of it, or as much as the limits allow.
    #[must_use]
    pub fn block_start(&self) -> &[u8] {
        self.reader.block_start()
    }

    /// Returns the HTTP head, where there should be one: in a request, a response or a revisit of an `http:` or `https:`
    /// URI whose block is not empty.
    #[must_use]
    pub fn http(&self) -> Option<HttpHead<'_>> {
        if !matches!(
            self.kind(),
            RecordKind::Response | RecordKind::Request | RecordKind::Revisit
        ) {
            return None;
        }
        let uri = match self.reader.arc_field(|line| &line.url) {
            Some(url) => Cow::Borrowed(url),
            None => self.field("WARC-Target-URI")?.value(),
        };
        let uri = uri.strip_prefix(b"<").unwrap_or(&uri);
        if !uri.starts_with(b"http:") && !uri.starts_with(b"https:") {
            return None;
        }
        HttpHead::parse(self.block_start())
    }

    /// Returns the digest of the payload: of what follows the HTTP head or, without one, of the block, as it stands.
    ///
    /// This is what cdxj-indexer writes when the header has no `WARC-Payload-Digest`: chunks and content encodings are not
    /// undone. It gives no digest to `warcinfo` and `revisit` records; that is left to the caller. A block too large for
    /// memory is read to its end by this.
    pub fn digest_payload(&mut self) -> Result<Sha1Digest, WarcReadError> {
        let http = self.http().map(|head| head.head_bytes());
        self.reader.digest_payload(http)
    }

    /// Reads to the end of the record and says where it lay.
    pub fn finish(self) -> Result<Extent, WarcReadError> {
        self.reader.settle()
    }

    fn decode_arc<'t>(&self, field: &'t [u8]) -> Cow<'t, str> {
        // The line is UTF-8 or not as a whole.
        match std::str::from_utf8(self.reader.header()) {
            Ok(_) => text::decode(field),
            Err(_) => Cow::Owned(field.iter().map(|&byte| char::from(byte)).collect()),
        }
    }
}

/// Reads the block, from where the last reading stopped.
impl<Source: Read> Read for Record<'_, Source> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.reader.read_block(out)
    }
}

fn clean_uri(uri: Cow<'_, str>) -> Cow<'_, str> {
    let uri = match uri {
        Cow::Borrowed(text) => Cow::Borrowed(strip_brackets(text)),
        Cow::Owned(text) => Cow::Owned(strip_brackets(&text).to_owned()),
    };
    if uri.contains(' ') {
        Cow::Owned(uri.replace(' ', "%20"))
    } else {
        uri
    }
}

fn strip_brackets(uri: &str) -> &str {
    uri.strip_prefix('<')
        .and_then(|rest| rest.strip_suffix('>'))
        .unwrap_or(uri)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_names_in_any_case() {
        assert_eq!(RecordKind::parse(b"Response"), RecordKind::Response);
        assert_eq!(RecordKind::parse(b"response"), RecordKind::Response);
        assert_eq!(RecordKind::parse(b"monkeys"), RecordKind::Other);
        assert_eq!(RecordKind::Revisit.name(), Some("revisit"));
        assert_eq!(RecordKind::Other.name(), None);
    }

    #[test]
    fn uris_are_cleaned() {
        assert_eq!(clean_uri(Cow::Borrowed("<http://a/ b>")), "http://a/%20b");
        assert_eq!(clean_uri(Cow::Borrowed("<http://a/")), "<http://a/");
        assert_eq!(clean_uri(Cow::Borrowed("http://a/")), "http://a/");
    }
}
