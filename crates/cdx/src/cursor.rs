//! Lines of a file one after the other, through one buffer of bounded size.
//!
//! The line before the current one stays in the buffer, so that order can be checked without copying it.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use memchr::memchr;

use crate::fault::excerpt;
use crate::{LineFault, LinePlace, ReadError};

/// A file of lines, not yet read.
pub struct LineSource {
    /// What messages call it.
    pub name: String,
    /// Its bytes. They are read in large pieces: a buffer around them would only copy.
    pub reader: Box<dyn Read + Send>,
}

impl LineSource {
    /// Names some bytes.
    pub fn new(name: impl Into<String>, reader: impl Read + Send + 'static) -> Self {
        Self {
            name: name.into(),
            reader: Box::new(reader),
        }
    }

    /// Opens a file.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => Ok(Self::new(name, file)),
            Err(source) => Err(ReadError::Open { file: name, source }),
        }
    }
}

/// The lines of a source, with their places; order is not asked of them.
pub struct Lines {
    cursor: Cursor,
}

/// One line and where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumberedLine<'a> {
    /// The line without its line feed.
    pub bytes: &'a [u8],
    /// Its number, from 1.
    pub number: u64,
    /// The offset of its first byte.
    pub offset: u64,
}

impl Lines {
    /// Begins to read, refusing lines longer than `line_bytes`.
    pub fn new(source: LineSource, line_bytes: usize) -> Self {
        Self {
            cursor: Cursor::new(source, 64 << 10, line_bytes),
        }
    }

    /// Returns the next line; none at the end.
    pub fn next_line(&mut self) -> Result<Option<NumberedLine<'_>>, ReadError> {
        if !self.cursor.advance()? {
            return Ok(None);
        }
        let LinePlace {
            line: number,
            offset,
            ..
        } = self.cursor.place();
        Ok(Some(NumberedLine {
            bytes: self.cursor.line(),
            number,
            offset,
        }))
    }

    /// Turns what is wrong with the current line into an error that says where it stands.
    pub fn malformed(&self, fault: LineFault) -> ReadError {
        ReadError::Malformed {
            place: self.cursor.place(),
            fault,
        }
    }
}

/// The reading side of every merge, sort and lookup.
pub(crate) struct Cursor {
    name: String,
    reader: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    /// The current line without its line feed.
    current: Range<usize>,
    /// Where the next line begins: after the current line's feed.
    next: usize,
    filled: usize,
    /// The offset in the file of the buffer's first byte.
    base: u64,
    number: u64,
    line_bytes: usize,
}

impl Cursor {
    pub(crate) fn new(source: LineSource, buffer_bytes: usize, line_bytes: usize) -> Self {
        Self {
            name: source.name,
            reader: source.reader,
            buffer: vec![0; buffer_bytes.max(16)],
            current: 0..0,
            next: 0,
            filled: 0,
            base: 0,
            number: 0,
            line_bytes,
        }
    }

    /// Begins in the middle of a file, at the beginning of a line.
    pub(crate) fn starting_at(mut self, offset: u64) -> Self {
        self.base = offset;
        self
    }

    pub(crate) fn line(&self) -> &[u8] {
        &self.buffer[self.current.clone()]
    }

    /// Returns where the current line is in the buffer, its line feed included.
    pub(crate) fn line_with_feed(&self) -> Range<usize> {
        self.current.start..self.next
    }

    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    pub(crate) fn place(&self) -> LinePlace {
        LinePlace {
            file: self.name.clone(),
            line: self.number,
            offset: self.base + self.current.start as u64,
        }
    }

    /// Goes to the next line; false at the end.
    pub(crate) fn advance(&mut self) -> Result<bool, ReadError> {
        loop {
            if self.advance_in_buffer().is_some() {
                return Ok(true);
            }
            if !self.refill()? {
                return Ok(false);
            }
        }
    }

    /// Goes to the next line if all of it is in the buffer, and returns where the line before it is.
    #[inline]
    pub(crate) fn advance_in_buffer(&mut self) -> Option<Range<usize>> {
        let length = memchr(b'\n', &self.buffer[self.next..self.filled])?;
        if length > self.line_bytes {
            // Refused when more is to be read: what is too long must not depend on the size of the buffer.
            return None;
        }
        let previous = self.current.clone();
        self.current = self.next..self.next + length;
        self.next = self.current.end + 1;
        self.number += 1;
        Some(previous)
    }

    /// Reads more, keeping the current line and what follows it; false at the end of the file.
    pub(crate) fn refill(&mut self) -> Result<bool, ReadError> {
        self.make_room()?;
        let read = loop {
            match self.reader.read(&mut self.buffer[self.filled..]) {
                Ok(read) => break read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => {
                    let offset = self.base + self.filled as u64;
                    return Err(ReadError::Read {
                        file: self.name.clone(),
                        offset,
                        source,
                    });
                }
            }
        };
        self.filled += read;
        if read == 0 && self.next < self.filled {
            return Err(ReadError::Unterminated {
                place: self.next_place(),
            });
        }
        Ok(read > 0)
    }

    fn make_room(&mut self) -> Result<(), ReadError> {
        let shift = self.current.start;
        self.buffer.copy_within(shift..self.filled, 0);
        self.base += shift as u64;
        self.filled -= shift;
        self.next -= shift;
        self.current = 0..self.current.end - shift;
        if self.filled - self.next > self.line_bytes {
            return Err(ReadError::TooLong {
                place: self.next_place(),
                limit_bytes: self.line_bytes,
            });
        }
        if self.filled == self.buffer.len() {
            // Two lines and their feeds are all that is ever kept.
            let most = 2 * (self.line_bytes + 1) + 1;
            self.buffer
                .resize((2 * self.filled).min(most.max(self.filled + 1)), 0);
        }
        Ok(())
    }

    fn next_place(&self) -> LinePlace {
        LinePlace {
            file: self.name.clone(),
            line: self.number + 1,
            offset: self.base + self.next as u64,
        }
    }

    /// Says that the current line is smaller than the one before it.
    pub(crate) fn unsorted(&self, previous: &[u8]) -> ReadError {
        ReadError::Unsorted {
            place: self.place(),
            previous: excerpt(previous),
            found: excerpt(self.line()),
        }
    }

    /// Goes to the next line, refusing one that is smaller than the line before.
    pub(crate) fn advance_sorted(&mut self) -> Result<bool, ReadError> {
        loop {
            if let Some(previous) = self.advance_in_buffer() {
                self.check_order(previous)?;
                return Ok(true);
            }
            if !self.refill()? {
                return Ok(false);
            }
        }
    }

    /// Returns how many bytes the current line shares with the one before it, and refuses a smaller one.
    #[inline]
    pub(crate) fn check_order(&self, previous: Range<usize>) -> Result<usize, ReadError> {
        let (previous, line) = (&self.buffer[previous], self.line());
        let shared = common_prefix(previous, line);
        let in_order = match (previous.get(shared), line.get(shared)) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(before), Some(after)) => before < after,
        };
        if in_order {
            Ok(shared)
        } else {
            Err(self.unsorted(previous))
        }
    }
}

/// Returns how many bytes two strings have in common at their beginning.
#[inline]
pub(crate) fn common_prefix(left: &[u8], right: &[u8]) -> usize {
    let (left_words, _) = left.as_chunks::<8>();
    let (right_words, _) = right.as_chunks::<8>();
    let mut shared = 0;
    for (left, right) in left_words.iter().zip(right_words) {
        let difference = u64::from_le_bytes(*left) ^ u64::from_le_bytes(*right);
        if difference != 0 {
            return shared + difference.trailing_zeros() as usize / 8;
        }
        shared += 8;
    }
    let rest = left[shared..].iter().zip(&right[shared..]);
    shared + rest.take_while(|(left, right)| left == right).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Gives its bytes a few at a time, as a pipe does.
    struct Trickle(Vec<u8>, usize);

    impl Read for Trickle {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(buffer.len()).min(self.0.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0.drain(..count);
            Ok(count)
        }
    }

    fn cursor(bytes: &[u8], buffer_bytes: usize, line_bytes: usize) -> Cursor {
        Cursor::new(
            LineSource::new("x.cdxj", Trickle(bytes.to_vec(), 3)),
            buffer_bytes,
            line_bytes,
        )
    }

    proptest! {
        #[test]
        fn lines_and_places_are_those_of_a_split(
            lines in proptest::collection::vec("[a-z]{0,40}", 0..30),
            buffer_bytes in 0usize..64,
        ) {
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let mut cursor = cursor(text.as_bytes(), buffer_bytes, 100);
            let mut offset = 0;
            for (number, line) in (1..).zip(&lines) {
                prop_assert!(cursor.advance().unwrap());
                prop_assert_eq!(cursor.line(), line.as_bytes());
                prop_assert_eq!(cursor.place(), LinePlace { file: "x.cdxj".into(), line: number, offset });
                offset += line.len() as u64 + 1;
            }
            prop_assert!(!cursor.advance().unwrap());
            prop_assert!(!cursor.advance().unwrap());
        }

        #[test]
        fn the_common_prefix_is_that_of_a_byte_loop(left in "[ab]{0,40}", right in "[ab]{0,40}", same in "[ab]{0,40}") {
            for (left, right) in [(left.clone(), right.clone()), (same.clone() + &left, same + &right)] {
                let expected = left.bytes().zip(right.bytes()).take_while(|(l, r)| l == r).count();
                prop_assert_eq!(common_prefix(left.as_bytes(), right.as_bytes()), expected);
            }
        }
    }

    #[test]
    fn a_last_line_without_feed_is_named() {
        let mut cursor = cursor(b"whole\nhal", 16, 100);
        assert!(cursor.advance().unwrap());
        let error = cursor.advance().unwrap_err();
        assert_eq!(
            error.to_string(),
            "line 2 of x.cdxj at offset 6 has no line feed: the file was cut short"
        );
    }

    #[test]
    fn a_line_over_the_limit_is_refused_and_memory_stays_bounded() {
        let mut text = b"ok\n".to_vec();
        text.extend(vec![b'x'; 10_000]);
        let mut cursor = cursor(&text, 16, 100);
        assert!(cursor.advance().unwrap());
        let error = cursor.advance().unwrap_err();
        assert_eq!(
            error.to_string(),
            "line 2 of x.cdxj at offset 3 is longer than 100 bytes"
        );
        assert!(cursor.buffer.len() <= 2 * 101 + 1);
    }

    #[test]
    fn what_is_too_long_does_not_depend_on_the_buffer() {
        let long = [b"ok\n".as_slice(), &[b'x'; 101], b"\nok\n"].concat();
        for buffer_bytes in [16, 100, 4096] {
            let mut cursor = cursor(&long, buffer_bytes, 100);
            assert!(cursor.advance_sorted().unwrap());
            let error = cursor.advance_sorted().unwrap_err();
            assert!(matches!(error, ReadError::TooLong { .. }), "{error}");
        }
        let allowed = [[b'x'; 100].as_slice(), b"\n"].concat();
        for buffer_bytes in [16, 4096] {
            assert!(cursor(&allowed, buffer_bytes, 100).advance().unwrap());
        }
    }

    #[test]
    fn disorder_is_named_with_both_lines() {
        let mut cursor = cursor(b"a\nab\nab\nb\naz\n", 16, 100);
        for _ in 0..4 {
            assert!(cursor.advance_sorted().unwrap());
        }
        let error = cursor.advance_sorted().unwrap_err();
        assert_eq!(
            error.to_string(),
            "line 5 of x.cdxj at offset 10 is not in byte order: it begins \"az\", after \"b\""
        );
    }

    #[test]
    fn a_shorter_line_comes_before_the_longer_one_it_begins() {
        let mut cursor = cursor(b"ab\na\n", 16, 100);
        assert!(cursor.advance_sorted().unwrap());
        assert!(matches!(
            cursor.advance_sorted(),
            Err(ReadError::Unsorted { .. })
        ));
    }

    #[test]
    fn lines_say_where_a_fault_is() {
        let mut lines = Lines::new(LineSource::new("x.cdxj", b"a\nbc\n".as_slice()), 100);
        lines.next_line().unwrap();
        let line = lines.next_line().unwrap().unwrap();
        assert_eq!(
            line,
            NumberedLine {
                bytes: b"bc",
                number: 2,
                offset: 2
            }
        );
        let error = lines.malformed(LineFault::NoKey);
        assert_eq!(
            error.to_string(),
            "cannot parse line 2 of x.cdxj at offset 2: no key followed by a space"
        );
        assert!(lines.next_line().unwrap().is_none());
    }
}
