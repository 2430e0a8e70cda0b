//! Named fields, as WARC and HTTP headers have them: one parser for both, as lenient as warcio.
//!
//! Lines end with LF, with or without CR. A line of white space ends the header. A line that starts with a blank goes on
//! from the one before. A line without a colon is passed over. Nothing is copied until a folded value is asked for.

use std::borrow::Cow;

use memchr::memchr;

use crate::{format, text};

/// One named field of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'h> {
    /// The name as written.
    pub name: &'h [u8],
    /// The lines of the value, from its first byte to its last.
    raw: &'h [u8],
    folded: bool,
}

impl<'h> Field<'h> {
    /// Returns the value; the lines of a folded one are joined by a blank each, as RFC 9112 has it.
    #[must_use]
    pub fn value(&self) -> Cow<'h, [u8]> {
        if !self.folded {
            return Cow::Borrowed(self.raw);
        }
        Cow::Owned(self.lines().collect::<Vec<_>>().join(&b' '))
    }

    /// Returns the value as text: each line UTF-8 or, failing that, ISO 8859-1.
    #[must_use]
    pub fn text(&self) -> Cow<'h, str> {
        if !self.folded {
            return text::decode(self.raw);
        }
        Cow::Owned(self.lines().map(text::decode).collect::<Vec<_>>().join(" "))
    }

    /// Returns the lines of a folded value that hold something, without white space around them.
    fn lines(&self) -> impl Iterator<Item = &'h [u8]> {
        self.raw
            .split(|&byte| byte == b'\n')
            .map(|line| text::trim_start(text::trim_end(line)))
            .filter(|line| !line.is_empty())
    }

    /// Tells whether the field has this name, in upper or lower case.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }
}

/// Where a field is, counted from the start of the header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FieldSpan {
    name: (u32, u32),
    value: (u32, u32),
    folded: bool,
}

impl FieldSpan {
    pub(crate) fn field<'h>(&self, header: &'h [u8]) -> Field<'h> {
        let slice = |(start, end): (u32, u32)| &header[start as usize..end as usize];
        Field {
            name: slice(self.name),
            raw: slice(self.value),
            folded: self.folded,
        }
    }

    pub(crate) fn name_length(&self) -> usize {
        (self.name.1 - self.name.0) as usize
    }
}

/// Why a header could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unread {
    /// The blank line is not among these bytes.
    Unfinished,
    /// There are more lines than allowed.
    TooManyLines,
    /// A line in it starts another record.
    BrokenOff,
}

/// Reads all fields from `start` into `spans` and returns the length of the header, its blank line included.
pub(crate) fn parse(
    bytes: &[u8],
    start: usize,
    line_limit: usize,
    spans: &mut Vec<FieldSpan>,
) -> Result<usize, Unread> {
    spans.clear();
    let mut lines = Lines { bytes, at: start };
    let mut previous = Previous::Nothing;
    for _ in 0..line_limit {
        let line = lines
            .next_line()
            .filter(|line| line.complete)
            .ok_or(Unread::Unfinished)?;
        let Some(&first) = line.text.first() else {
            return Ok(lines.at);
        };
        if matches!(first, b' ' | b'\t') && previous != Previous::Nothing {
            if let (Previous::Field, Some(span)) = (previous, spans.last_mut()) {
                span.value.1 = to_u32(line.end());
                span.folded = true;
            }
            continue;
        }
        previous = match line.split() {
            Some((name_end, value_start)) => {
                spans.push(FieldSpan {
                    name: (to_u32(line.start), to_u32(name_end)),
                    value: (to_u32(value_start), to_u32(line.end())),
                    folded: false,
                });
                Previous::Field
            }
            // Were it passed over, each of many such lines would be the start of a header that runs to the limit.
            None if format::is_version_line(line.text) => return Err(Unread::BrokenOff),
            None => Previous::Other,
        };
    }
    Err(Unread::TooManyLines)
}

/// What a continuation line would go on from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Previous {
    Nothing,
    Field,
    Other,
}

fn to_u32(offset: usize) -> u32 {
    u32::try_from(offset).expect("headers are far shorter than 4 GiB")
}

/// Returns where the fields that start at `at` end, behind their blank line; `None` if it is not among these bytes.
pub(crate) fn end_of_fields(bytes: &[u8], at: usize) -> Option<usize> {
    let mut lines = Lines { bytes, at };
    loop {
        let line = lines.next_line()?;
        if line.text.is_empty() && line.complete {
            return Some(lines.at);
        }
        // White space up to the end of the bytes ends a header too, there being nothing behind it.
        if !line.complete {
            return None;
        }
    }
}

/// Reads the fields of a header one by one, as long as someone asks.
#[derive(Debug, Clone)]
pub struct Fields<'h> {
    lines: Lines<'h>,
    ahead: Option<Line<'h>>,
}

impl<'h> Fields<'h> {
    /// Starts at the first line of the fields.
    pub(crate) fn new(bytes: &'h [u8], at: usize) -> Self {
        let mut lines = Lines { bytes, at };
        let ahead = lines.next_line();
        Self { lines, ahead }
    }
}

impl<'h> Iterator for Fields<'h> {
    type Item = Field<'h>;

    fn next(&mut self) -> Option<Field<'h>> {
        loop {
            let first = self.ahead.take().filter(|line| !line.text.is_empty())?;
            let mut end = first.end();
            self.ahead = self.lines.next_line();
            while let Some(line) = self
                .ahead
                .filter(|line| matches!(line.text.first(), Some(b' ' | b'\t')))
            {
                end = line.end();
                self.ahead = self.lines.next_line();
            }
            if let Some((name_end, value_start)) = first.split() {
                return Some(Field {
                    name: &self.lines.bytes[first.start..name_end],
                    raw: &self.lines.bytes[value_start..end],
                    folded: end != first.end(),
                });
            }
        }
    }
}

/// One line, without its end and white space before that.
#[derive(Debug, Clone, Copy)]
struct Line<'h> {
    start: usize,
    text: &'h [u8],
    /// The line's end is among the bytes.
    complete: bool,
}

impl Line<'_> {
    fn end(&self) -> usize {
        self.start + self.text.len()
    }

    /// Returns where the name ends and where the value starts, if there is a colon.
    fn split(&self) -> Option<(usize, usize)> {
        let colon = memchr(b':', self.text)?;
        let name = self.text[..colon]
            .iter()
            .rposition(|byte| !matches!(byte, b' ' | b'\t'))
            .map_or(0, |last| last + 1);
        let value = text::trim_start(&self.text[colon + 1..]);
        Some((self.start + name, self.end() - value.len()))
    }
}

#[derive(Debug, Clone)]
struct Lines<'h> {
    bytes: &'h [u8],
    at: usize,
}

impl<'h> Lines<'h> {
    fn next_line(&mut self) -> Option<Line<'h>> {
        let rest = &self.bytes[self.at..];
        if rest.is_empty() {
            return None;
        }
        let start = self.at;
        let (line, complete) = match memchr(b'\n', rest) {
            Some(newline) => (&rest[..newline], true),
            None => (rest, false),
        };
        self.at += line.len() + usize::from(complete);
        Some(Line {
            start,
            text: text::trim_end(line),
            complete,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> (Vec<(String, String)>, Result<usize, Unread>) {
        let mut spans = Vec::new();
        let end = parse(bytes, 0, 100, &mut spans);
        let fields: Vec<_> = spans.iter().map(|span| span.field(bytes)).collect();
        let lazily: Vec<_> = Fields::new(bytes, 0).collect();
        if end.is_ok() {
            assert_eq!(fields, lazily);
            assert_eq!(end_of_fields(bytes, 0), end.ok());
        }
        let texts = lazily
            .iter()
            .map(|field| {
                (
                    text::decode(field.name).into_owned(),
                    field.text().into_owned(),
                )
            })
            .collect();
        (texts, end)
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected
            .iter()
            .map(|&(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    #[test]
    fn ordinary_fields() {
        let header = b"A: 1\r\nb:2\nC : x:y \r\n\r\nbody: no";
        assert_eq!(
            all(header),
            (
                pairs(&[("A", "1"), ("b", "2"), ("C", "x:y")]),
                Ok(header.len() - 8)
            )
        );
    }

    #[test]
    fn folded_fields_and_lines_without_a_colon() {
        let (fields, _) =
            all(b"A: one\r\n  two \r\n\tthree\r\njunk\r\n more junk: 1\r\nB: 2\r\n\r\n");
        assert_eq!(fields, pairs(&[("A", "one two three"), ("B", "2")]));
        let (fields, _) = all(b"A:\r\n  2026-01-02\r\n \t\r\n\r\n");
        assert_eq!(fields, pairs(&[("A", "2026-01-02")]));
        let (fields, _) = all(b" A: first line\n\n");
        assert_eq!(fields, pairs(&[(" A", "first line")]));
    }

    #[test]
    fn text_that_is_not_utf_8() {
        let (fields, _) = all(b"A: caf\xe9\r\nB: caf\xc3\xa9\r\n\r\n");
        assert_eq!(fields, pairs(&[("A", "caf\u{e9}"), ("B", "caf\u{e9}")]));
    }

    #[test]
    fn ends() {
        assert_eq!(all(b"A: 1\r\n \t \r\nrest").1, Ok(11));
        assert_eq!(all(b"\nrest").1, Ok(1));
        assert_eq!(all(b"A: 1\r\n").1, Err(Unread::Unfinished));
        assert_eq!(all(b"A: 1\r\n\r").1, Err(Unread::Unfinished));
        assert_eq!(all(&b"A: 1\r\n".repeat(101)).1, Err(Unread::TooManyLines));
        assert_eq!(end_of_fields(b"A: 1", 0), None);
    }
}
