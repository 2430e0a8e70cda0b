//! `ranks.tsv.zst`: what is known of the importance of every URL.

use std::io::{self, Write};
use std::path::Path;

use ecluse_cdx::CaptureTime;

use crate::error::{BadLinkLine, LinksError};
use crate::list::{LineReader, LineWriter};

/// The first line of the list.
pub const RANKS_HEADER: &str = "# ecluse ranks 1";

/// One known URL.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankRecord<'a> {
    /// Its key.
    pub surt: &'a str,
    /// The URL itself.
    pub url: &'a str,
    /// PageRank; all of them together are 1.
    pub rank: f32,
    /// The inverse rank; all of them together are 1.
    pub interest: f32,
    /// How relevant it is to the perimeter.
    pub relevance: f32,
    /// Pages that link to it.
    pub links_in: u32,
    /// URLs that it links to.
    pub links_out: u32,
    /// When it was captured last; none for a URL that is only known from links.
    pub fetched: Option<CaptureTime>,
}

impl<'a> RankRecord<'a> {
    /// Reads a line without its line feed.
    ///
    /// # Errors
    /// Which column is not as it should be.
    pub fn parse(line: &'a str) -> Result<Self, BadLinkLine> {
        let mut columns = line.split('\t');
        let mut next = |fault| columns.next().ok_or(BadLinkLine(fault));
        let record = Self {
            surt: next("no key")?,
            url: next("no URL")?,
            rank: float(next("no rank")?).ok_or(BadLinkLine("bad rank"))?,
            interest: float(next("no interest")?).ok_or(BadLinkLine("bad interest"))?,
            relevance: float(next("no relevance")?).ok_or(BadLinkLine("bad relevance"))?,
            links_in: count(next("no links-in")?).ok_or(BadLinkLine("bad links-in"))?,
            links_out: count(next("no links-out")?).ok_or(BadLinkLine("bad links-out"))?,
            fetched: match next("no time")? {
                "-" => None,
                digits => Some(
                    CaptureTime::from_digits(digits.as_bytes()).ok_or(BadLinkLine("bad time"))?,
                ),
            },
        };
        if columns.next().is_some() {
            return Err(BadLinkLine("too many columns"));
        }
        Ok(record)
    }

    /// Appends the line, with its line feed.
    pub fn write(&self, line: &mut Vec<u8>) {
        let Self { surt, url, .. } = self;
        let (rank, interest, relevance) = (self.rank, self.interest, self.relevance);
        let (links_in, links_out) = (self.links_in, self.links_out);
        let written = write!(
            line,
            "{surt}\t{url}\t{rank:e}\t{interest:e}\t{relevance:e}\t{links_in}\t{links_out}\t"
        );
        written.expect("a vector takes all");
        match &self.fetched {
            Some(time) => line.extend_from_slice(time.as_str().as_bytes()),
            None => line.push(b'-'),
        }
        line.push(b'\n');
    }
}

/// Reads a number that is one.
pub(crate) fn float(text: &str) -> Option<f32> {
    text.parse().ok().filter(|value: &f32| value.is_finite())
}

pub(crate) fn count(text: &str) -> Option<u32> {
    text.parse().ok()
}

/// Reads the list in the order of its keys.
pub struct RankReader {
    lines: LineReader,
    last: Vec<u8>,
}

impl RankReader {
    /// Opens a list.
    ///
    /// # Errors
    /// When it cannot be read, or is none of this kind.
    pub fn open(path: &Path) -> Result<Self, LinksError> {
        Ok(Self {
            lines: LineReader::open(path, RANKS_HEADER)?,
            last: Vec::new(),
        })
    }

    /// Returns the next record; none at the end.
    ///
    /// # Errors
    /// When a line cannot be read, is not as it should be or out of order; with file and line.
    pub fn next_record(&mut self) -> Result<Option<RankRecord<'_>>, LinksError> {
        let fault = match self.lines.next_line()? {
            None => return Ok(None),
            Some(line) => match RankRecord::parse(line) {
                Ok(record) if record.surt.as_bytes() > self.last.as_slice() => {
                    self.last.clear();
                    self.last.extend_from_slice(record.surt.as_bytes());
                    None
                }
                Ok(_) => Some(BadLinkLine("not in the order of keys")),
                Err(fault) => Some(fault),
            },
        };
        match fault {
            Some(fault) => Err(self.lines.damaged(fault)),
            None => Ok(Some(
                RankRecord::parse(self.lines.last_line()).expect("it was read just now"),
            )),
        }
    }
}

/// Writes the list; records come in the order of their keys.
pub struct RankWriter<Sink: Write> {
    lines: LineWriter<Sink>,
    line: Vec<u8>,
}

impl<Sink: Write> RankWriter<Sink> {
    /// Begins a list.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(out: Sink) -> io::Result<Self> {
        Ok(Self {
            lines: LineWriter::new(out, RANKS_HEADER)?,
            line: Vec::new(),
        })
    }

    /// Writes one record.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&mut self, record: &RankRecord<'_>) -> io::Result<()> {
        self.line.clear();
        record.write(&mut self.line);
        self.lines.write(&self.line)
    }

    /// Ends the list; returns where it was written and how many records it has.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(self) -> io::Result<(Sink, u64)> {
        self.lines.finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_written_is_read(
            rank in 0f32..1.0, interest in 0f32..1.0, relevance in -10f32..10.0,
            links in (any::<u32>(), any::<u32>()), fetched in proptest::option::of(0u64..99_999_999_999_999),
        ) {
            let fetched = fetched.map(|digits| CaptureTime::from_digits(format!("{digits:014}").as_bytes()).unwrap());
            let record = RankRecord {
                surt: "fr,example)/", url: "https://example.fr/", rank, interest, relevance,
                links_in: links.0, links_out: links.1, fetched,
            };
            let mut line = Vec::new();
            record.write(&mut line);
            let text = std::str::from_utf8(&line).unwrap().strip_suffix('\n').unwrap();
            prop_assert_eq!(RankRecord::parse(text), Ok(record));
        }
    }

    #[test]
    fn order_and_columns_are_checked() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ranks.tsv.zst");
        let good = "a)/\thttp://a/\t5e-1\t5e-1\t0e0\t1\t2\t20261118000000";
        let other = "b)/\thttp://b/\t5e-1\t5e-1\t-1.5e0\t2\t1\t-";
        for (lines, said) in [
            (vec![good, other], None),
            (vec![other, good], Some("line 3: not in the order of keys")),
            (vec![good, good], Some("line 3: not in the order of keys")),
            (
                vec!["a)/\thttp://a/\tNaN\t1\t1\t1\t1\t-"],
                Some("line 2: bad rank"),
            ),
            (vec!["a)/\thttp://a/"], Some("line 2: no rank")),
            (
                vec![&format!("{good}\tx")],
                Some("line 2: too many columns"),
            ),
            (
                vec!["a)/\thttp://a/\t0\t0\t0\t1\t1\t2026"],
                Some("line 2: bad time"),
            ),
        ] {
            let text = format!("{RANKS_HEADER}\n{}\n", lines.join("\n"));
            std::fs::write(&path, zstd::encode_all(text.as_bytes(), 1).unwrap()).unwrap();
            let mut reader = RankReader::open(&path).unwrap();
            let ended = loop {
                match reader.next_record() {
                    Ok(Some(_)) => {}
                    Ok(None) => break None,
                    Err(error) => break Some(error.to_string()),
                }
            };
            let ended = ended.map(|text| text.replace(&format!(" of {}", path.display()), ""));
            assert_eq!(ended.as_deref(), said);
        }
    }
}
