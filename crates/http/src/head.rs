//! The head of a response: the status line and the fields, as raw bytes in the order received.
//!
//! Nothing is refused: line ends may lack their CR, lines may be folded, names may be in any case and have blanks
//! before the colon, values may be ISO 8859-1 or worse. A line without a colon is no field and is passed over. The
//! bytes are kept, and the fields are views of them.

use std::borrow::Cow;
use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use memchr::{memchr, memchr_iter};

/// A parsed head.
#[derive(Debug, Clone, Default)]
pub struct Head {
    bytes: Vec<u8>,
    version: Option<HttpVersion>,
    status: Option<u16>,
    fields: Vec<Span>,
    has_folded: bool,
    has_bare_lf: bool,
}

/// The version in a status line, as in `HTTP/1.1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HttpVersion {
    /// Before the point.
    pub major: u8,
    /// Behind it.
    pub minor: u8,
}

#[derive(Debug, Clone)]
struct Span {
    name: Range<usize>,
    value: Range<usize>,
}

/// One field of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpField<'h> {
    /// The name as it was sent.
    pub name: &'h [u8],
    /// The value as it was sent, without the blanks around it; a folded one still has its line ends.
    pub raw_value: &'h [u8],
}

impl<'h> HttpField<'h> {
    /// Tells whether the field has this name, in any case.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }

    /// Returns the value, with folded lines joined by one blank.
    #[must_use]
    pub fn value(&self) -> Cow<'h, [u8]> {
        if memchr(b'\n', self.raw_value).is_none() {
            return Cow::Borrowed(self.raw_value);
        }
        let lines: Vec<&[u8]> = self
            .raw_value
            .split(|&byte| byte == b'\n')
            .map(trim)
            .filter(|line| !line.is_empty())
            .collect();
        Cow::Owned(lines.join(&b' '))
    }

    /// Returns the value as text: UTF-8 if it is that, else ISO 8859-1.
    #[must_use]
    pub fn text(&self) -> Cow<'h, str> {
        match self.value() {
            Cow::Borrowed(bytes) => text(bytes),
            Cow::Owned(bytes) => Cow::Owned(text(&bytes).into_owned()),
        }
    }
}

impl Head {
    /// Parses a head with a status line.
    #[must_use]
    pub fn parse(bytes: Vec<u8>) -> Self {
        let mut head = Self {
            bytes,
            ..Self::default()
        };
        let start = leading_blank_bytes(&head.bytes);
        let end = head.line_end(start);
        (head.version, head.status) = status_line(trim(&head.bytes[start..end]));
        head.read_fields(end);
        head
    }

    /// Parses a head that begins with a field.
    #[must_use]
    pub fn parse_without_status_line(bytes: Vec<u8>) -> Self {
        let mut head = Self {
            bytes,
            ..Self::default()
        };
        head.read_fields(0);
        head
    }

    /// Returns all its bytes, the blank line included.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the version, if the status line has one.
    #[must_use]
    pub fn version(&self) -> Option<HttpVersion> {
        self.version
    }

    /// Returns the status, if the status line has one of three digits.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.status
    }

    /// Returns the fields in the order received.
    pub fn fields(&self) -> impl Iterator<Item = HttpField<'_>> {
        self.fields.iter().map(|span| HttpField {
            name: &self.bytes[span.name.clone()],
            raw_value: &self.bytes[span.value.clone()],
        })
    }

    /// Returns the fields of a name, in any case.
    pub fn all<'h>(&'h self, name: &'h str) -> impl Iterator<Item = HttpField<'h>> {
        self.fields().filter(move |field| field.is(name))
    }

    /// Returns the first field of a name, in any case.
    #[must_use]
    pub fn first(&self, name: &str) -> Option<HttpField<'_>> {
        self.fields().find(|field| field.is(name))
    }

    /// Returns the value of the first field of a name as text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<Cow<'_, str>> {
        self.first(name).map(|field| field.text())
    }

    /// Returns how long the server asks to be left alone, by `Retry-After`: a number of seconds, or until a date.
    #[must_use]
    pub fn retry_after(&self, now: SystemTime) -> Option<Duration> {
        let value = self.text("Retry-After")?;
        let value = value.trim();
        if let Ok(seconds) = value.parse::<u64>() {
            return Some(Duration::from_secs(seconds));
        }
        let when = jiff::fmt::rfc2822::DateTimeParser::new()
            .parse_timestamp(value)
            .ok()?;
        let now = now.duration_since(UNIX_EPOCH).ok()?.as_secs();
        let seconds = when.as_second() - i64::try_from(now).ok()?;
        u64::try_from(seconds).ok().map(Duration::from_secs)
    }

    /// Returns the elements of a field that is a list, over all its lines, in lower case, without parameters.
    #[must_use]
    pub fn tokens(&self, name: &str) -> Vec<String> {
        self.all(name)
            .flat_map(|field| {
                field
                    .text()
                    .split(',')
                    .map(|token| {
                        let token = token.split(';').next().unwrap_or_default();
                        token.trim().to_ascii_lowercase()
                    })
                    .filter(|token| !token.is_empty())
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    /// Tells whether a line is folded.
    #[must_use]
    pub fn has_folded(&self) -> bool {
        self.has_folded
    }

    /// Tells whether a line ends without CR.
    #[must_use]
    pub fn has_bare_lf(&self) -> bool {
        self.has_bare_lf
    }

    /// Returns the bytes of blank lines before the status line.
    #[must_use]
    pub fn leading_blank_bytes(&self) -> usize {
        leading_blank_bytes(&self.bytes)
    }

    /// Returns where the next line begins.
    fn line_end(&self, start: usize) -> usize {
        memchr(b'\n', &self.bytes[start..]).map_or(self.bytes.len(), |at| start + at + 1)
    }

    fn read_fields(&mut self, mut start: usize) {
        self.has_bare_lf =
            memchr_iter(b'\n', &self.bytes).any(|at| at == 0 || self.bytes[at - 1] != b'\r');
        let mut in_field = false;
        while start < self.bytes.len() {
            let end = self.line_end(start);
            let line = &self.bytes[start..end];
            if matches!(line.first(), Some(b' ' | b'\t')) {
                if let (true, Some(span)) = (in_field, self.fields.last_mut()) {
                    // Only the new line is looked at: a head of many of them would be read again for each.
                    let more = trimmed(&self.bytes, start..end);
                    if !more.is_empty() {
                        let is_first = span.value.is_empty();
                        span.value.start = if is_first {
                            more.start
                        } else {
                            span.value.start
                        };
                        span.value.end = more.end;
                    }
                    self.has_folded = true;
                }
            } else if let Some(colon) = memchr(b':', line) {
                self.fields.push(Span {
                    name: trimmed(&self.bytes, start..start + colon),
                    value: trimmed(&self.bytes, start + colon + 1..end),
                });
                in_field = true;
            } else {
                in_field = false;
            }
            start = end;
        }
    }
}

/// Finds the end of a head: one behind the first blank line that follows a line. `from` is where the search may begin;
/// the second value is where the next one may, if there is no end yet.
pub(crate) fn find_end(bytes: &[u8], from: usize) -> Result<usize, usize> {
    for at in memchr_iter(b'\n', &bytes[from..]).map(|at| from + at) {
        match &bytes[at + 1..] {
            [b'\n', ..] => return Ok(at + 2),
            [b'\r', b'\n', ..] => return Ok(at + 3),
            [] | [b'\r'] => return Err(at),
            _ => {}
        }
    }
    Err(bytes.len())
}

pub(crate) fn leading_blank_bytes(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .take_while(|byte| matches!(byte, b'\r' | b'\n'))
        .count()
}

/// Returns text for bytes of unknown charset: UTF-8 if they are that, else ISO 8859-1.
pub(crate) fn text(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(bytes.iter().map(|&byte| char::from(byte)).collect()),
    }
}

/// Reads `HTTP/1.1 200 Anything`, and `HTTP 200`, which some servers write.
fn status_line(line: &[u8]) -> (Option<HttpVersion>, Option<u16>) {
    let mut words = line
        .split(|byte| matches!(byte, b' ' | b'\t'))
        .filter(|word| !word.is_empty());
    let version = words.next().and_then(|word| match word {
        [_, _, _, _, b'/', major, b'.', minor] => {
            let digit = |byte: &u8| char::from(*byte).to_digit(10).map(|digit| digit as u8);
            Some(HttpVersion {
                major: digit(major)?,
                minor: digit(minor)?,
            })
        }
        _ => None,
    });
    let status = words.next().and_then(|word| {
        let number: u16 = std::str::from_utf8(word).ok()?.parse().ok()?;
        (word.len() == 3 && (100..1000).contains(&number)).then_some(number)
    });
    (version, status)
}

fn trim(bytes: &[u8]) -> &[u8] {
    &bytes[trimmed(bytes, 0..bytes.len())]
}

/// Takes the white space off both ends of a range.
fn trimmed(bytes: &[u8], range: Range<usize>) -> Range<usize> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let slice = &bytes[range.clone()];
    let Some(first) = slice.iter().position(|byte| !is_blank(byte)) else {
        return range.start..range.start;
    };
    let last = slice
        .iter()
        .rposition(|byte| !is_blank(byte))
        .expect("there is a first");
    range.start + first..range.start + last + 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pairs(head: &Head) -> Vec<(String, String)> {
        head.fields()
            .map(|field| (text(field.name).into_owned(), field.text().into_owned()))
            .collect()
    }

    #[test]
    fn a_head_of_many_folded_lines_is_read_once() {
        // A value that stays empty was looked at from its start again for each line: 256 KiB took 13 s.
        let lines = 500_000;
        let mut bytes = b"HTTP/1.1 200 OK\r\nA:\r\n".to_vec();
        bytes.extend(b" \r\n".repeat(lines));
        bytes.extend(b"  one\r\n\t\r\n two \r\nB: 2\r\n\r\n");
        let head = Head::parse(bytes);
        assert_eq!(
            pairs(&head),
            [
                ("A".to_owned(), "one two".to_owned()),
                ("B".to_owned(), "2".to_owned())
            ]
        );
    }

    #[test]
    fn status_lines_as_they_come() {
        type Case = (&'static [u8], Option<(u8, u8)>, Option<u16>);
        let cases: &[Case] = &[
            (b"HTTP/1.1 200 OK\r\n\r\n", Some((1, 1)), Some(200)),
            (b"HTTP/1.0 404\r\n\r\n", Some((1, 0)), Some(404)),
            (b"http/1.1  301   Moved\n\n", Some((1, 1)), Some(301)),
            (b"HTTP 200 OK\r\n\r\n", None, Some(200)),
            (b"HTTP/1.1 \r\n\r\n", Some((1, 1)), None),
            (b"HTTP/1.1 2000 OK\r\n\r\n", Some((1, 1)), None),
            (b"HTTP/1.1 +20 OK\r\n\r\n", Some((1, 1)), None),
            (b"HTTP/1.1 abc\r\n\r\n", Some((1, 1)), None),
            (b"\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", Some((1, 1)), Some(200)),
            (b"HTTP/9.9 999 \xe8\r\n\r\n", Some((9, 9)), Some(999)),
        ];
        for (bytes, version, status) in cases {
            let head = Head::parse(bytes.to_vec());
            let found = head.version().map(|version| (version.major, version.minor));
            assert_eq!((found, head.status()), (*version, *status));
        }
    }

    #[test]
    fn fields_in_order_in_any_case() {
        let head = Head::parse(
            b"HTTP/1.1 200 OK\r\ncOnTeNt-TyPe: text/html\r\nSet-Cookie: a=1\r\nX-Odd :    two  blanks  \r\n\
              Set-Cookie:b=2\r\nno colon here\r\nX-N: caf\xe9\r\nX-U: caf\xc3\xa9\r\nEmpty:\r\n\r\n"
                .to_vec(),
        );
        let expected = [
            ("cOnTeNt-TyPe", "text/html"),
            ("Set-Cookie", "a=1"),
            ("X-Odd", "two  blanks"),
            ("Set-Cookie", "b=2"),
            ("X-N", "café"),
            ("X-U", "café"),
            ("Empty", ""),
        ];
        let expected: Vec<_> = expected
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        assert_eq!(pairs(&head), expected);
        assert_eq!(head.all("set-cookie").count(), 2);
        assert_eq!(head.text("CONTENT-TYPE").unwrap(), "text/html");
        assert_eq!(&*head.first("x-n").unwrap().value(), b"caf\xe9");
        assert!(!head.has_bare_lf() && !head.has_folded());
    }

    #[test]
    fn folded_lines_are_joined() {
        let head = Head::parse(
            b"HTTP/1.1 200 OK\n lost\nA: one\n\ttwo  \r\n   three\nB: four\nnone\n also lost\n\n"
                .to_vec(),
        );
        assert_eq!(head.text("a").unwrap(), "one two three");
        assert_eq!(head.text("b").unwrap(), "four");
        assert_eq!(head.fields().count(), 2);
        assert!(head.has_folded() && head.has_bare_lf());
    }

    #[test]
    fn lists_are_split() {
        let head = Head::parse(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: GZIP;q=1 , \r\ntransfer-encoding: Chunked\r\n\r\n".to_vec(),
        );
        assert_eq!(head.tokens("Transfer-Encoding"), ["gzip", "chunked"]);
        assert!(head.tokens("Connection").is_empty());
    }

    #[test]
    fn ends_are_found_whatever_the_pieces() {
        for bytes in [
            b"HTTP/1.1 200\r\nA: b\r\n\r\nbody\r\n\r\n".as_slice(),
            b"HTTP/1.1 200\nA: b\n\nbody\n\n",
            b"HTTP/1.1 200\nA: b\n\r\nbody",
        ] {
            let end = find_end(bytes, 0).unwrap();
            assert!(bytes[end..].starts_with(b"body"));
            let mut from = 0;
            for length in 0..end {
                from = find_end(&bytes[..length], from).unwrap_err();
            }
            assert_eq!(find_end(&bytes[..end], from), Ok(end));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_parse(bytes: Vec<u8>) {
            for head in [Head::parse(bytes.clone()), Head::parse_without_status_line(bytes.clone())] {
                prop_assert_eq!(head.bytes(), &bytes[..]);
                for field in head.fields() {
                    prop_assert!(!field.value().contains(&b'\n'));
                    let _ = field.text();
                }
            }
        }

        /// Whatever `httparse` accepts is read the same way here.
        #[test]
        fn agrees_with_httparse(
            status in 100u16..1000,
            fields in proptest::collection::vec(("[A-Za-z0-9!#$%&'*+.^_`|~-]{1,12}", "[\t -~\u{80}-\u{ff}]{0,20}"), 0..8),
        ) {
            let mut bytes = format!("HTTP/1.1 {status} Fine\r\n").into_bytes();
            for (name, value) in &fields {
                bytes.extend_from_slice(name.as_bytes());
                bytes.extend_from_slice(b": ");
                bytes.extend(value.chars().map(|letter| letter as u8));
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(b"\r\n");
            let mut slots = [httparse::EMPTY_HEADER; 16];
            let mut theirs = httparse::Response::new(&mut slots);
            prop_assume!(theirs.parse(&bytes).is_ok_and(|parsed| parsed.is_complete()));
            let ours = Head::parse(bytes.clone());
            prop_assert_eq!(ours.status(), theirs.code);
            let ours: Vec<_> = ours.fields().map(|field| (field.name, field.raw_value)).collect();
            let theirs: Vec<_> = theirs.headers.iter().map(|field| (field.name.as_bytes(), trim(field.value))).collect();
            prop_assert_eq!(ours, theirs);
        }
    }
}
