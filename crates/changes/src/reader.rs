//! Reads a file of records one by one, or those of one key.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use crate::ChangeRecord;
use crate::error::{BadLine, ChangesError};
use crate::frames::frame_of;

/// The longest line that is read.
const LINE_BYTES: usize = 8 << 20;

/// Reads records one by one, in the order of their keys.
pub struct RecordReader<Record> {
    lines: BufReader<zstd::Decoder<'static, BufReader<File>>>,
    path: PathBuf,
    line: Vec<u8>,
    before: Vec<u8>,
    number: u64,
    /// The line was looked at and not yet taken.
    is_peeked: bool,
    kind: PhantomData<Record>,
}

impl<Record: ChangeRecord> RecordReader<Record> {
    /// Opens the file of these records in the directory of a generation, such as `changes/current`.
    ///
    /// # Errors
    /// When it cannot be read, or is another file.
    pub fn open(directory: &Path) -> Result<Self, ChangesError> {
        let mut reader = Self::at(directory, 0)?;
        let is_header = reader.advance()? && reader.line == Record::HEADER.as_bytes();
        if !is_header {
            return Err(ChangesError::Header {
                path: reader.path,
                expected: Record::HEADER,
            });
        }
        reader.line.clear();
        Ok(reader)
    }

    /// Opens it where a key is, or would be: the first record is not below it.
    ///
    /// # Errors
    /// As [`RecordReader::open`].
    pub fn open_at(directory: &Path, key: &str) -> Result<Self, ChangesError> {
        let offset = frame_of(&directory.join(Record::FILE), key)?;
        let mut reader = match offset {
            0 => Self::open(directory)?,
            offset => Self::at(directory, offset)?,
        };
        reader.skip_below(key)?;
        Ok(reader)
    }

    fn at(directory: &Path, offset: u64) -> Result<Self, ChangesError> {
        let path = directory.join(Record::FILE);
        let mut file = File::open(&path).map_err(ChangesError::io("open", &path))?;
        if offset > 0 {
            let sought = file.seek(SeekFrom::Start(offset));
            sought.map_err(ChangesError::io("read", &path))?;
        }
        let decoder = zstd::Decoder::new(file).map_err(ChangesError::io("open", &path))?;
        Ok(Self {
            lines: BufReader::with_capacity(256 << 10, decoder),
            path,
            line: Vec::new(),
            before: Vec::new(),
            number: 0,
            is_peeked: false,
            kind: PhantomData,
        })
    }

    /// Returns the next record; none at the end.
    ///
    /// # Errors
    /// When the file cannot be read, a line is none, or one is out of order.
    pub fn next_record(&mut self) -> Result<Option<Record>, ChangesError> {
        if !self.next_in_order()? {
            return Ok(None);
        }
        let line = std::str::from_utf8(&self.line).map_err(|_| BadLine { column: "line" });
        let record = line.and_then(Record::parse);
        record.map(Some).map_err(|source| self.damaged(source))
    }

    /// Returns the key and the line of the next record, which is not looked at further; none at the end.
    ///
    /// # Errors
    /// As [`RecordReader::next_record`].
    pub fn next_line(&mut self) -> Result<Option<(&str, &str)>, ChangesError> {
        if !self.next_in_order()? {
            return Ok(None);
        }
        match std::str::from_utf8(&self.line) {
            Ok(line) => Ok(Some((line.split('\t').next().unwrap_or(line), line))),
            Err(_) => Err(self.damaged(BadLine { column: "line" })),
        }
    }

    /// Returns the key of the next record, which stays the next; none at the end.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn peek_key(&mut self) -> Result<Option<&str>, ChangesError> {
        if !self.peek()? {
            return Ok(None);
        }
        let key = key_of(&self.line);
        match std::str::from_utf8(key) {
            Ok(key) => Ok(Some(key)),
            Err(_) => Err(self.damaged(BadLine { column: "line" })),
        }
    }

    /// Goes on to the first record that is not below a key.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn skip_below(&mut self, key: &str) -> Result<(), ChangesError> {
        while self.peek()? && key_of(&self.line) < key.as_bytes() {
            self.next_in_order()?;
        }
        Ok(())
    }

    /// Reads the line that is next, unless it is there already.
    fn peek(&mut self) -> Result<bool, ChangesError> {
        if self.is_peeked {
            return Ok(true);
        }
        std::mem::swap(&mut self.line, &mut self.before);
        if !self.advance()? {
            return Ok(false);
        }
        self.is_peeked = true;
        Ok(true)
    }

    fn next_in_order(&mut self) -> Result<bool, ChangesError> {
        if !self.peek()? {
            return Ok(false);
        }
        self.is_peeked = false;
        let (before, key) = (key_of(&self.before), key_of(&self.line));
        if key < before {
            let text = |key| String::from_utf8_lossy(key).into_owned();
            return Err(ChangesError::Unsorted {
                path: self.path.clone(),
                line: self.number,
                before: text(before),
                key: text(key),
            });
        }
        Ok(true)
    }

    fn advance(&mut self) -> Result<bool, ChangesError> {
        self.line.clear();
        let mut limited = io::Read::take(&mut self.lines, LINE_BYTES as u64);
        let read = limited.read_until(b'\n', &mut self.line);
        read.map_err(ChangesError::io("read", &self.path))?;
        if self.line.is_empty() {
            return Ok(false);
        }
        self.number += 1;
        match self.line.pop() {
            Some(b'\n') => Ok(true),
            _ => Err(self.damaged(BadLine { column: "line" })),
        }
    }

    fn damaged(&self, source: BadLine) -> ChangesError {
        ChangesError::Damaged {
            path: self.path.clone(),
            line: self.number,
            source,
        }
    }
}

impl<Record: ChangeRecord> Iterator for RecordReader<Record> {
    type Item = Result<Record, ChangesError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_record().transpose()
    }
}

fn key_of(line: &[u8]) -> &[u8] {
    &line[..memchr::memchr(b'\t', line).unwrap_or(line.len())]
}

/// Returns the records of one key.
///
/// # Errors
/// When the file cannot be read, or one of its lines is none.
pub fn read_records<Record: ChangeRecord>(
    directory: &Path,
    key: &str,
) -> Result<Vec<Record>, ChangesError> {
    let mut reader = RecordReader::<Record>::open_at(directory, key)?;
    let mut records = Vec::new();
    while reader.peek_key()? == Some(key) {
        records.extend(reader.next_record()?);
    }
    Ok(records)
}
