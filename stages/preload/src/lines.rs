//! The lines of a list, whatever is in it: bounded, and with one column taken out where it is CSV.

use std::io::{self, Read};

use ecluse_names::RejectReason;
use memchr::{memchr, memchr2};

use crate::source::SourceList;

/// A block is read at once: the processor's cache should still hold it when its lines are looked at.
const BLOCK_BYTES: usize = 256 << 10;
/// Behind a block, so that its last line is followed by something as all others are.
const BEHIND_BYTES: usize = 64;

/// Reads lines, none of them longer than a limit.
pub(crate) struct LineReader {
    source: Box<dyn Read>,
    block: Vec<u8>,
    start: usize,
    end: usize,
    line_bytes: usize,
    /// A line that did not end where the block did.
    carried: Vec<u8>,
    /// How much of the block was given last.
    given: usize,
}

/// A line without its line feed.
#[derive(Debug)]
pub(crate) enum ListLine<'a> {
    /// As many first bytes of a text; what follows them is not the line's.
    Whole(&'a [u8], usize),
    /// It is longer than the limit: its beginning.
    TooLong(&'a [u8]),
}

impl LineReader {
    pub(crate) fn new(source: Box<dyn Read>, line_bytes: usize) -> Self {
        Self {
            source,
            block: vec![0; BLOCK_BYTES + BEHIND_BYTES],
            start: 0,
            end: 0,
            line_bytes,
            carried: Vec::new(),
            given: 0,
        }
    }

    /// Returns the next line; none at the end.
    pub(crate) fn next_line(&mut self) -> io::Result<Option<ListLine<'_>>> {
        self.start += std::mem::take(&mut self.given);
        if let Some(feed) = memchr(b'\n', &self.block[self.start..self.end]) {
            self.given = feed + 1;
            return Ok(Some(bounded(
                &self.block[self.start..],
                feed,
                self.line_bytes,
            )));
        }
        self.carried.clear();
        let mut is_any = false;
        loop {
            if self.start == self.end && !self.fill()? {
                break;
            }
            is_any = true;
            let rest = &self.block[self.start..self.end];
            let feed = memchr(b'\n', rest);
            let part = &rest[..feed.unwrap_or(rest.len())];
            // One byte more than allowed tells that it is too long; the rest is skipped.
            let room = (self.line_bytes + 1).saturating_sub(self.carried.len());
            self.carried
                .extend_from_slice(&part[..part.len().min(room)]);
            self.start += part.len() + usize::from(feed.is_some());
            if feed.is_some() {
                break;
            }
        }
        Ok(is_any.then(|| bounded(&self.carried, self.carried.len(), self.line_bytes)))
    }

    /// Reads another block; tells whether there was one.
    fn fill(&mut self) -> io::Result<bool> {
        (self.start, self.end) = (0, 0);
        loop {
            match self.source.read(&mut self.block[..BLOCK_BYTES]) {
                Ok(read) => {
                    self.end = read;
                    return Ok(read > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn bounded(text: &[u8], length: usize, line_bytes: usize) -> ListLine<'_> {
    if length > line_bytes {
        return ListLine::TooLong(&text[..line_bytes]);
    }
    ListLine::Whole(text, length)
}

/// Which part of a line is the name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// All of it.
    Line,
    /// A column of CSV.
    Csv(CsvColumn),
}

/// A column of CSV.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CsvColumn {
    separator: u8,
    number: usize,
}

impl Column {
    /// Returns the column of a list that has no heading; none where the heading must tell.
    pub(crate) fn without_heading(list: &SourceList, first_line: &[u8]) -> Option<Self> {
        match (&list.column, list.is_csv) {
            (Some(_), _) => None,
            (None, true) => Some(Self::Csv(CsvColumn {
                separator: separator_of(list, first_line),
                number: 0,
            })),
            (None, false) => Some(Self::Line),
        }
    }

    /// Finds the column by the heading.
    pub(crate) fn by_heading(list: &SourceList, heading: &[u8]) -> Result<Self, String> {
        let wanted = list.column.as_deref().unwrap_or_default();
        let separator = separator_of(list, heading);
        let heading = heading.strip_prefix(b"\xef\xbb\xbf").unwrap_or(heading);
        let mut buffer = Vec::new();
        let mut number = 0;
        while let Some(field) = field(heading, separator, number, &mut buffer) {
            let name = String::from_utf8_lossy(field);
            if name.trim().eq_ignore_ascii_case(wanted.trim()) {
                return Ok(Self::Csv(CsvColumn { separator, number }));
            }
            number += 1;
        }
        Err(format!("there is no column {wanted:?} in its first line"))
    }
}

impl CsvColumn {
    /// Returns the name's part of a line.
    pub(crate) fn field_of<'a>(
        &self,
        line: &'a [u8],
        buffer: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], RejectReason> {
        if line.trim_ascii().is_empty() {
            return Err(RejectReason::Blank);
        }
        field(line, self.separator, self.number, buffer).ok_or(RejectReason::NoColumn)
    }
}

/// Returns what is between columns: as the list says, or what the line has most of.
fn separator_of(list: &SourceList, line: &[u8]) -> u8 {
    if let Some(separator) = list.separator {
        return separator as u8;
    }
    let count = |wanted: u8| line.iter().filter(|byte| **byte == wanted).count();
    let mut best = b',';
    for separator in [b';', b'\t'] {
        if count(separator) > count(best) {
            best = separator;
        }
    }
    best
}

/// Returns a field of a line of CSV, by RFC 4180; none where the line ends before it or a quote is left open.
fn field<'a>(
    line: &'a [u8],
    separator: u8,
    number: usize,
    buffer: &'a mut Vec<u8>,
) -> Option<&'a [u8]> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut rest = line;
    for _ in 0..number {
        rest = &rest[field_end(rest, separator)?..];
        rest = rest.strip_prefix(&[separator])?;
    }
    let raw = &rest[..field_end(rest, separator)?];
    let Some(inner) = raw
        .strip_prefix(b"\"")
        .and_then(|raw| raw.strip_suffix(b"\""))
    else {
        return Some(raw);
    };
    if memchr(b'"', inner).is_none() {
        return Some(inner);
    }
    buffer.clear();
    let mut bytes = inner.iter();
    while let Some(byte) = bytes.next() {
        buffer.push(*byte);
        if *byte == b'"' {
            bytes.next();
        }
    }
    Some(buffer)
}

/// Returns where a field ends; none where its quote does not.
fn field_end(rest: &[u8], separator: u8) -> Option<usize> {
    if rest.first() != Some(&b'"') {
        return Some(memchr(separator, rest).unwrap_or(rest.len()));
    }
    let mut at = 1;
    loop {
        at += memchr2(b'"', b'"', &rest[at..])? + 1;
        if rest.get(at) != Some(&b'"') {
            break;
        }
        at += 1;
    }
    // What some programs write behind a closing quote belongs to the field.
    Some(at + memchr(separator, &rest[at..]).unwrap_or(rest.len() - at))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A source that gives a few bytes at a time.
    struct Dribble(Vec<u8>, usize);

    impl Read for Dribble {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let bytes = self.0.len().min(self.1).min(buffer.len());
            buffer[..bytes].copy_from_slice(&self.0[..bytes]);
            self.0.drain(..bytes);
            Ok(bytes)
        }
    }

    fn lines(text: &[u8], step: usize, line_bytes: usize) -> Vec<(Vec<u8>, bool)> {
        let mut reader = LineReader::new(Box::new(Dribble(text.to_vec(), step)), line_bytes);
        let mut lines = Vec::new();
        while let Some(line) = reader.next_line().unwrap() {
            lines.push(match line {
                ListLine::Whole(text, length) => (text[..length].to_vec(), true),
                ListLine::TooLong(begin) => (begin.to_vec(), false),
            });
        }
        lines
    }

    proptest! {
        #[test]
        fn lines_are_those_of_the_text(text in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'a'), Just(0u8)], 0..60), step in 1usize..9) {
            let mut expected: Vec<(Vec<u8>, bool)> = text.split(|byte| *byte == b'\n').map(|line| match line.get(..5) {
                Some(begin) if line.len() > 5 => (begin.to_vec(), false),
                _ => (line.to_vec(), true),
            }).collect();
            if expected.last().is_some_and(|(line, _)| line.is_empty()) {
                expected.pop();
            }
            prop_assert_eq!(lines(&text, step, 5), expected);
        }
    }

    fn list(said: &str) -> SourceList {
        SourceList::of("x.csv", "", Some(said)).unwrap()
    }

    #[test]
    fn a_column_is_found_by_its_heading() {
        let mut buffer = Vec::new();
        let mut of = |column: &Column, line: &str| {
            let Column::Csv(csv) = column else {
                panic!("{column:?}");
            };
            let field = csv.field_of(line.as_bytes(), &mut buffer);
            field.map(|field| String::from_utf8(field.to_vec()).unwrap())
        };
        let wanted = list("column = \"url\"");
        for (heading, line, value) in [
            ("Nom,URL,Date", "a,http://b.fr/,c", "http://b.fr/"),
            ("Nom;URL;Date", "a,x;http://b.fr/;c", "http://b.fr/"),
            ("\u{feff}URL\tNom", "b.fr\ta", "b.fr"),
            (
                "\"Nom, complet\",\" url \"",
                "\"a, \"\"b\"\"\",\"http://b.fr/?a,\"\"b\"\r",
                "http://b.fr/?a,\"b",
            ),
        ] {
            let column = Column::by_heading(&wanted, heading.as_bytes()).unwrap();
            assert_eq!(of(&column, line).as_deref(), Ok(value), "{line}");
        }
        assert!(Column::by_heading(&wanted, b"Nom,Date").is_err());
        let column = Column::by_heading(&wanted, b"Nom,URL").unwrap();
        assert_eq!(of(&column, "a"), Err(RejectReason::NoColumn));
        assert_eq!(of(&column, "\"a,b.fr"), Err(RejectReason::NoColumn));
        assert_eq!(of(&column, "  "), Err(RejectReason::Blank));
        let first = Column::without_heading(&list(""), b"a.fr;2026").unwrap();
        assert_eq!(of(&first, "a.fr;2026").as_deref(), Ok("a.fr"));
    }
}
