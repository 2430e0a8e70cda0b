//! `sites.tsv.zst`: the importance of sites, which is that of their pages together.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;

use crate::error::{BadLinkLine, LinksError};
use crate::list::{LineReader, LineWriter};
use crate::rank::float;

/// The first line of the list.
pub const SITES_HEADER: &str = "# ecluse sites 1";

/// One site: a registered domain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SiteRecord<'a> {
    /// The key of the domain, as the register has it: `fr,example`.
    pub key: &'a str,
    /// The domain.
    pub domain: &'a str,
    /// Known URLs.
    pub pages: u64,
    /// Those of them that were captured.
    pub fetched: u64,
    /// The sum of their ranks.
    pub rank: f32,
    /// The sum of their interests.
    pub interest: f32,
    /// The largest relevance among them.
    pub relevance: f32,
    /// Links from other sites.
    pub links_in: u64,
    /// Links to other sites.
    pub links_out: u64,
    /// The share of text in its documents, in the mean of those that were measured.
    pub text_weight: Option<f32>,
    /// How rare the words of its documents are on the web, all together; none without a list of words.
    pub infrequency: Option<f32>,
    /// The share of its documents that is words of the list, in the mean.
    pub word_share: Option<f32>,
}

impl<'a> SiteRecord<'a> {
    /// Reads a line without its line feed.
    ///
    /// # Errors
    /// Which column is not as it should be.
    pub fn parse(line: &'a str) -> Result<Self, BadLinkLine> {
        let mut columns = line.split('\t');
        let mut next = |fault| columns.next().ok_or(BadLinkLine(fault));
        let number = |text: &str, fault| text.parse().map_err(|_| BadLinkLine(fault));
        let record = Self {
            key: next("no key")?,
            domain: next("no domain")?,
            pages: number(next("no pages")?, "bad pages")?,
            fetched: number(next("no fetched")?, "bad fetched")?,
            rank: float(next("no rank")?).ok_or(BadLinkLine("bad rank"))?,
            interest: float(next("no interest")?).ok_or(BadLinkLine("bad interest"))?,
            relevance: float(next("no relevance")?).ok_or(BadLinkLine("bad relevance"))?,
            links_in: number(next("no links-in")?, "bad links-in")?,
            links_out: number(next("no links-out")?, "bad links-out")?,
            text_weight: None,
            infrequency: None,
            word_share: None,
        };
        let measures: Vec<Option<f32>> = columns
            .map(|text| match text {
                "-" => Ok(None),
                text => float(text).map(Some).ok_or(BadLinkLine("bad measure")),
            })
            .collect::<Result<_, _>>()?;
        match measures[..] {
            // Lines of earlier programs end here.
            [] => Ok(record),
            [text_weight, infrequency, word_share] => Ok(Self {
                text_weight,
                infrequency,
                word_share,
                ..record
            }),
            _ => Err(BadLinkLine("not as many columns as there are")),
        }
    }
}

/// Reads the list in the order of its keys.
pub struct SiteReader {
    lines: LineReader,
}

impl SiteReader {
    /// Opens a list.
    ///
    /// # Errors
    /// When it cannot be read, or is none of this kind.
    pub fn open(path: &Path) -> Result<Self, LinksError> {
        let lines = LineReader::open(path, SITES_HEADER)?;
        Ok(Self { lines })
    }

    /// Returns the next record; none at the end.
    ///
    /// # Errors
    /// When a line cannot be read or is not as it should be; with file and line.
    pub fn next_record(&mut self) -> Result<Option<SiteRecord<'_>>, LinksError> {
        let fault = match self.lines.next_line()? {
            None => return Ok(None),
            Some(line) => SiteRecord::parse(line).err(),
        };
        match fault {
            Some(fault) => Err(self.lines.damaged(fault)),
            None => Ok(Some(
                SiteRecord::parse(self.lines.last_line()).expect("it was read just now"),
            )),
        }
    }
}

/// Writes the list; records come in the order of their keys.
pub struct SiteWriter<Sink: Write> {
    lines: LineWriter<Sink>,
}

impl<Sink: Write> SiteWriter<Sink> {
    /// Begins a list.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(out: Sink) -> io::Result<Self> {
        let lines = LineWriter::new(out, SITES_HEADER)?;
        Ok(Self { lines })
    }

    /// Writes one record.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&mut self, record: &SiteRecord<'_>) -> io::Result<()> {
        let SiteRecord { key, domain, .. } = record;
        let (pages, fetched) = (record.pages, record.fetched);
        let (rank, interest, relevance) = (record.rank, record.interest, record.relevance);
        let (links_in, links_out) = (record.links_in, record.links_out);
        let mut line = format!(
            "{key}\t{domain}\t{pages}\t{fetched}\t{rank:e}\t{interest:e}\t{relevance:e}\t{links_in}\t{links_out}"
        );
        for measure in [record.text_weight, record.infrequency, record.word_share] {
            let _ = match measure {
                Some(measure) => write!(line, "\t{measure:e}"),
                None => write!(line, "\t-"),
            };
        }
        line.push('\n');
        self.lines.write(line.as_bytes())
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
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sites.tsv.zst");
        let record = SiteRecord {
            key: "fr,example",
            domain: "example.fr",
            pages: 3,
            fetched: 2,
            rank: 0.25,
            interest: 1e-9,
            relevance: -0.5,
            links_in: 7,
            links_out: 1,
            text_weight: Some(0.25),
            infrequency: None,
            word_share: Some(0.0),
        };
        let mut writer = SiteWriter::new(std::fs::File::create(&path).unwrap()).unwrap();
        writer.write(&record).unwrap();
        assert_eq!(writer.finish().unwrap().1, 1);
        let mut reader = SiteReader::open(&path).unwrap();
        assert_eq!(reader.next_record().unwrap(), Some(record));
        assert_eq!(reader.next_record().unwrap(), None);
    }

    #[test]
    fn lines_of_earlier_programs_have_no_measures() {
        let line = "fr,example\texample.fr\t3\t2\t2.5e-1\t1e-9\t0e0\t7\t1";
        assert_eq!(SiteRecord::parse(line).unwrap().text_weight, None);
        for more in ["\t-", "\t-\t-\tx", "\t-\t-\t-\t-", "\t"] {
            assert!(
                SiteRecord::parse(&format!("{line}{more}")).is_err(),
                "{more:?}"
            );
        }
    }
}
