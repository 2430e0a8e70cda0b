//! The head of an HTTP message in a block: as much of it as someone asks for.
//!
//! Read as warcio reads it, so that indexes agree: whatever the first line of the block is, it is the status line.
//! A block without HTTP headers thus has a strange status.

use std::borrow::Cow;

use memchr::memchr;

use crate::header::{self, Field, Fields};
use crate::text;

/// The head of a request or a response.
#[derive(Debug, Clone, Copy)]
pub struct HttpHead<'b> {
    /// The block, or as much of its start as is at hand.
    bytes: &'b [u8],
    /// The first line, without its end.
    first_line: &'b [u8],
    /// Where the second line starts.
    fields: usize,
}

impl<'b> HttpHead<'b> {
    /// Takes the start of a block for the head of an HTTP message; `None` if it is empty.
    #[must_use]
    pub fn parse(bytes: &'b [u8]) -> Option<Self> {
        if bytes.is_empty() {
            return None;
        }
        let (line, fields) = match memchr(b'\n', bytes) {
            Some(newline) => (&bytes[..newline], newline + 1),
            None => (bytes, bytes.len()),
        };
        Some(Self {
            bytes,
            first_line: text::trim_end(line),
            fields,
        })
    }

    /// Returns the first line, without its end.
    #[must_use]
    pub fn first_line(&self) -> Cow<'b, str> {
        text::decode(self.first_line)
    }

    /// Returns the status code as it stands in the second word of the first line, a number or not.
    ///
    /// `None` if neither a status nor any field is there, as for a blank first line.
    #[must_use]
    pub fn status(&self) -> Option<Cow<'b, str>> {
        let rest = text::trim_end(text::trim_start(self.split().1));
        let code = memchr(b' ', rest).map_or(rest, |blank| &rest[..blank]);
        if rest.is_empty() && (self.first_line.is_empty() || self.fields().next().is_none()) {
            return None;
        }
        Some(text::decode(code))
    }

    /// Returns the fields, in order.
    #[must_use]
    pub fn fields(&self) -> Fields<'b> {
        // A blank first line ends the head at once.
        let at = if self.first_line.is_empty() {
            self.bytes.len()
        } else {
            self.fields
        };
        Fields::new(self.bytes, at)
    }

    /// Returns the first field of this name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Field<'b>> {
        self.fields().find(|field| field.is(name))
    }

    /// Returns the text of the first field of this name.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<Cow<'b, str>> {
        self.field(name).map(|field| field.text())
    }

    /// Returns the length of the head, its blank line included: where the payload starts.
    ///
    /// `None` if the head does not end in the bytes at hand.
    #[must_use]
    pub fn head_bytes(&self) -> Option<usize> {
        if self.first_line.is_empty() {
            return Some(self.fields);
        }
        header::end_of_fields(self.bytes, self.fields)
    }

    /// Tells whether the payload is sent in chunks, as warcio decides it: by the exact word.
    #[must_use]
    pub fn is_chunked(&self) -> bool {
        self.field("Transfer-Encoding")
            .is_some_and(|field| *field.value() == *b"chunked")
    }

    fn split(&self) -> (&'b [u8], &'b [u8]) {
        match memchr(b' ', self.first_line) {
            Some(blank) => (&self.first_line[..blank], &self.first_line[blank + 1..]),
            None => (self.first_line, &[]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(bytes: &[u8]) -> HttpHead<'_> {
        HttpHead::parse(bytes).unwrap()
    }

    fn status(bytes: &[u8]) -> Option<String> {
        head(bytes).status().map(Cow::into_owned)
    }

    #[test]
    fn an_ordinary_response() {
        let response =
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nX: 1\r\n\r\nbody";
        let head = head(response);
        assert_eq!(head.status().unwrap(), "200");
        assert_eq!(
            head.text("content-type").unwrap(),
            "text/html; charset=utf-8"
        );
        assert_eq!(head.text("x").unwrap(), "1");
        assert_eq!(head.text("y"), None);
        assert_eq!(&response[head.head_bytes().unwrap()..], b"body");
    }

    #[test]
    fn odd_status_lines() {
        assert_eq!(status(b"HTTP/1.0 200\r\n\r\n").as_deref(), Some("200"));
        assert_eq!(
            status(b"HTTP/1.0  404  Not Found\nA: b\n\nx").as_deref(),
            Some("404")
        );
        assert_eq!(
            status(b"HTTP/1.1 410 Gone\r\r\n\r\n").as_deref(),
            Some("410")
        );
        assert_eq!(status(b"HTTP/1.0\nA: b\n\n").as_deref(), Some(""));
        assert_eq!(status(b"HTTP/1.0\n\n"), None);
        assert_eq!(status(b"\r\nbody"), None);
        assert_eq!(status(b"<html lang=fr>\n<p>"), Some("lang=fr>".to_owned()));
    }

    #[test]
    fn ends_of_the_head() {
        assert_eq!(
            head(b"HTTP/1.0 200 OK\nA: b\n\nbody").head_bytes(),
            Some(22)
        );
        assert_eq!(head(b"\r\nbody").head_bytes(), Some(2));
        assert_eq!(head(b"HTTP/1.0 200 OK\nA: b\n").head_bytes(), None);
        assert_eq!(head(b"HTTP/1.0 200 OK").head_bytes(), None);
    }

    #[test]
    fn chunked_is_an_exact_word() {
        assert!(head(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").is_chunked());
        assert!(!head(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n").is_chunked());
    }
}
