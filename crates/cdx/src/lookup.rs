//! Finding lines by bisection, in a flat file or in ZipNum.
//!
//! Files are read at positions and never mapped or held in memory, so one [`Lookup`] serves many threads, and a new
//! generation put in the place of the file does not disturb questions begun on the old one.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use memchr::memchr;

use crate::cursor::Cursor;
use crate::zipnum::{self, Blocks, Summary};
use crate::{KeyRange, LineSource, MAX_LINE_BYTES, ReadError};

/// An index that can be asked for lines.
pub struct Lookup {
    index: Index,
}

enum Index {
    Flat(FlatFile),
    ZipNum(Summary),
}

/// Why a question cannot be answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LookupError {
    /// The index, or its summary, cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A block of a ZipNum index cannot be read.
    #[error(transparent)]
    ZipNum(#[from] zipnum::BlockError),
}

impl Lookup {
    /// Opens an index: ZipNum if the name ends in `.idx` or `.summary`, as pywb has it, and flat otherwise.
    pub fn open(path: &Path) -> Result<Self, LookupError> {
        let is_summary = path
            .extension()
            .is_some_and(|extension| extension == "idx" || extension == "summary");
        let index = if is_summary {
            Index::ZipNum(Summary::open(path)?)
        } else {
            Index::Flat(FlatFile::open(path)?)
        };
        Ok(Self { index })
    }

    /// Finds the lines of a range, in order.
    pub fn range(&self, range: KeyRange) -> Result<Matches<'_>, LookupError> {
        let lines = match &self.index {
            Index::Flat(file) => {
                OpenIndex::Flat(file.lines_from(file.first_at_or_above(&range.from)?))
            }
            Index::ZipNum(summary) => OpenIndex::ZipNum(summary.blocks_from(&range.from)?),
        };
        Ok(Matches {
            lines,
            range,
            begun: false,
            ended: false,
        })
    }
}

/// The lines of a range, in order, without their line feeds.
pub struct Matches<'a> {
    lines: OpenIndex<'a>,
    range: KeyRange,
    begun: bool,
    ended: bool,
}

enum OpenIndex<'a> {
    Flat(Cursor),
    ZipNum(Blocks<'a>),
}

impl Matches<'_> {
    /// Returns the next line without copying it; none at the end, and none after an error.
    pub fn next_line(&mut self) -> Result<Option<&[u8]>, LookupError> {
        if self.ended {
            return Ok(None);
        }
        // Whatever stops the search stops it for good.
        self.ended = true;
        while self.advance()? {
            let line = self.lines.line();
            if self.range.is_past(line) {
                return Ok(None);
            }
            // The search stops at a block, not at a line.
            if self.begun || line >= self.range.from.as_slice() {
                self.begun = true;
                self.ended = false;
                return Ok(Some(self.lines.line()));
            }
        }
        Ok(None)
    }

    fn advance(&mut self) -> Result<bool, LookupError> {
        match &mut self.lines {
            OpenIndex::Flat(cursor) => Ok(cursor.advance()?),
            OpenIndex::ZipNum(blocks) => blocks.advance(&self.range),
        }
    }
}

impl OpenIndex<'_> {
    fn line(&self) -> &[u8] {
        match self {
            Self::Flat(cursor) => cursor.line(),
            Self::ZipNum(blocks) => blocks.line(),
        }
    }
}

impl Iterator for Matches<'_> {
    type Item = Result<Vec<u8>, LookupError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.next_line() {
            Ok(line) => line.map(|line| Ok(line.to_vec())),
            Err(error) => Some(Err(error)),
        }
    }
}

/// A sorted file of lines.
pub(crate) struct FlatFile {
    pub(crate) name: String,
    file: Arc<File>,
    pub(crate) bytes: u64,
}

/// Below this many bytes, reading on is cheaper than another step of the search.
const SCAN_BYTES: u64 = 8 << 10;
const PROBE_BYTES: usize = 1 << 10;

impl FlatFile {
    pub(crate) fn open(path: &Path) -> Result<Self, ReadError> {
        let name = path.display().to_string();
        let opened = File::open(path).and_then(|file| {
            let bytes = file.metadata()?.len();
            Ok((file, bytes))
        });
        match opened {
            Ok((file, bytes)) => Ok(Self {
                name,
                file: Arc::new(file),
                bytes,
            }),
            Err(source) => Err(ReadError::Open { file: name, source }),
        }
    }

    /// Returns where a line begins that is not above the first line at or above `key`, and near it.
    pub(crate) fn first_at_or_above(&self, key: &[u8]) -> Result<u64, ReadError> {
        self.last_start_where(|line| line < key, key.len())
    }

    /// Returns the beginning of a line near the last one for which `is_below` holds, and not after it; 0 if there
    /// is none. The predicate holds for the lines up to some point, and sees their first `needed_bytes` and more.
    pub(crate) fn last_start_where(
        &self,
        is_below: impl Fn(&[u8]) -> bool,
        needed_bytes: usize,
    ) -> Result<u64, ReadError> {
        // A line begins at `low`, and it is below unless it is the first; what is wanted begins before `high`.
        let (mut low, mut high) = (0, self.bytes);
        let mut probe = Probe::default();
        while high - low > SCAN_BYTES {
            let middle = low + (high - low) / 2;
            match probe.line_after(self, middle, high, needed_bytes)? {
                Some(start) if is_below(probe.line()) => low = start,
                _ => high = middle,
            }
        }
        Ok(low)
    }

    /// Reads lines from the beginning of one.
    pub(crate) fn lines_from(&self, offset: u64) -> Cursor {
        let reader = ReadFrom {
            file: Arc::clone(&self.file),
            offset,
        };
        Cursor::new(
            LineSource::new(self.name.clone(), reader),
            2 * SCAN_BYTES as usize,
            MAX_LINE_BYTES,
        )
        .starting_at(offset)
    }

    pub(crate) fn failed(&self, offset: u64, source: io::Error) -> ReadError {
        ReadError::Read {
            file: self.name.clone(),
            offset,
            source,
        }
    }
}

/// What is read at one step of the search.
#[derive(Default)]
struct Probe {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Probe {
    /// Finds the first line that begins after `offset` and before `high`, and returns where.
    fn line_after(
        &mut self,
        file: &FlatFile,
        offset: u64,
        high: u64,
        needed_bytes: usize,
    ) -> Result<Option<u64>, ReadError> {
        self.bytes.clear();
        while memchr(b'\n', &self.bytes).is_none() {
            if offset + self.bytes.len() as u64 >= high {
                return Ok(None);
            }
            self.extend(file, offset)?;
        }
        let feed = memchr(b'\n', &self.bytes).expect("the loop ends at one");
        self.start = feed + 1;
        let start = offset + self.start as u64;
        if start >= high {
            return Ok(None);
        }
        loop {
            let rest = &self.bytes[self.start..];
            if let Some(length) = memchr(b'\n', rest) {
                self.end = self.start + length;
                return Ok(Some(start));
            }
            // A line longer than the key is decided by its beginning.
            if rest.len() > needed_bytes || offset + self.bytes.len() as u64 >= file.bytes {
                self.end = self.bytes.len();
                return Ok(Some(start));
            }
            self.extend(file, offset)?;
        }
    }

    fn line(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    fn extend(&mut self, file: &FlatFile, offset: u64) -> Result<(), ReadError> {
        let have = self.bytes.len();
        let at = offset + have as u64;
        if have > MAX_LINE_BYTES {
            let reason = format!("no line feed in {have} bytes");
            return Err(file.failed(offset, io::Error::new(io::ErrorKind::InvalidData, reason)));
        }
        // Twice as much each time, so that a long line is not read in a thousand pieces.
        self.bytes.resize(have + PROBE_BYTES.max(have), 0);
        let read = loop {
            match file.file.read_at(&mut self.bytes[have..], at) {
                Ok(read) => break read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(file.failed(at, source)),
            }
        };
        self.bytes.truncate(have + read);
        if read == 0 {
            return Err(file.failed(at, io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(())
    }
}

/// Reads a shared file from a position of its own.
pub(crate) struct ReadFrom {
    file: Arc<File>,
    offset: u64,
}

impl ReadFrom {
    pub(crate) fn new(file: &FlatFile, offset: u64) -> Self {
        Self {
            file: Arc::clone(&file.file),
            offset,
        }
    }
}

impl Read for ReadFrom {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn flat(lines: &[Vec<u8>]) -> (tempfile::TempDir, Lookup) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("index.cdxj");
        let text: Vec<u8> = lines
            .iter()
            .flat_map(|line| [line.as_slice(), b"\n"].concat())
            .collect();
        std::fs::write(&path, text).unwrap();
        let lookup = Lookup::open(&path).unwrap();
        (directory, lookup)
    }

    fn found(lookup: &Lookup, range: &KeyRange) -> Vec<Vec<u8>> {
        lookup
            .range(range.clone())
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap()
    }

    fn scan(lines: &[Vec<u8>], range: &KeyRange) -> Vec<Vec<u8>> {
        lines
            .iter()
            .filter(|line| range.contains(line))
            .cloned()
            .collect()
    }

    fn hosts() -> impl Strategy<Value = String> {
        "(com,a|com,a-b|com,ab|com,a,www|fr,x|com)"
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn a_lookup_is_a_filter_of_all_lines(
            keys in vec((hosts(), "(/|/a|/ab|/b/c|:8080)", 0u32..5, 0usize..2_000), 0..300),
            questions in vec((hosts(), "(/|/a|/ab|/zz)"), 1..12),
        ) {
            let mut lines: Vec<Vec<u8>> = keys
                .iter()
                .map(|(host, path, second, pad)| {
                    format!("{host}){path} 2020010100000{second} {{{}}}", "x".repeat(*pad)).into_bytes()
                })
                .collect();
            lines.sort();
            let (_directory, lookup) = flat(&lines);
            for (host, path) in questions {
                let key = format!("{host}){path}");
                for range in [
                    KeyRange::exact(key.as_bytes()),
                    KeyRange::prefix(key.as_bytes()),
                    KeyRange::host(key.as_bytes()),
                    KeyRange::domain(key.as_bytes()),
                    KeyRange::all(),
                ] {
                    prop_assert_eq!(found(&lookup, &range), scan(&lines, &range));
                }
            }
        }
    }

    #[test]
    fn every_line_of_a_long_file_is_found() {
        let mut lines: Vec<Vec<u8>> = (0..5_000)
            .map(|number| {
                format!("com,example)/{number:05} 20200101000000 {{\"n\": \"{number}\"}}")
                    .into_bytes()
            })
            .collect();
        // One line much longer than a step of the search.
        lines[2_500].extend(vec![b'x'; 100_000]);
        let (_directory, lookup) = flat(&lines);
        for number in (0..5_000).step_by(7).chain([0, 2_499, 2_500, 2_501, 4_999]) {
            let range = KeyRange::exact(format!("com,example)/{number:05}").as_bytes());
            assert_eq!(found(&lookup, &range), [lines[number].clone()]);
        }
        assert!(found(&lookup, &KeyRange::exact(b"com,example)/9")).is_empty());
        assert!(found(&lookup, &KeyRange::exact(b"a")).is_empty());
        assert_eq!(
            found(&lookup, &KeyRange::prefix(b"com,example)/012")).len(),
            100
        );
    }

    #[test]
    fn an_empty_index_answers() {
        let (_directory, lookup) = flat(&[]);
        assert!(found(&lookup, &KeyRange::all()).is_empty());
    }

    #[test]
    fn a_missing_index_is_named() {
        let error = Lookup::open(Path::new("/nonexistent/index.cdxj"))
            .err()
            .unwrap();
        assert_eq!(error.to_string(), "cannot open /nonexistent/index.cdxj");
    }

    #[test]
    fn the_copies_of_a_file_are_found_in_a_path_file() {
        let lines: Vec<Vec<u8>> = ["a.warc\t/1", "a.warc\t/2", "a.warc.gz\t/3", "b.warc\t/4"]
            .map(|line| line.as_bytes().to_vec())
            .into();
        let (_directory, lookup) = flat(&lines);
        assert_eq!(
            found(&lookup, &KeyRange::starting_with(b"a.warc\t")),
            lines[..2]
        );
    }
}
