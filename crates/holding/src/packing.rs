//! The packing list in a job's metadata file: which (W)ARC files the job wrote.
//!
//! NetarchiveSuite writes it as `metadata://…/crawl/reports/archivefiles-report.txt`: a heading, then a line a file with
//! its name, when it was opened, when it was closed, and its size. Older ones lack a time. The names are told, never
//! used as paths.

use std::io::Read;

use ecluse_warc::{Record, WarcReadError};
use serde::Serialize;

/// What stands in the target URI of the list.
const REPORT: &str = "/archivefiles-report.txt";

/// The most that is read of a list; a job of 50,000 files has less.
const LIST_BYTES: u64 = 16 << 20;

/// The most files that are told one by one.
const FILES: usize = 100_000;

/// A job's packing list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PackingList {
    /// The job, as the URI of the list says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The harvest, as the URI of the list says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub harvest: Option<String>,
    /// How many files are on it.
    pub count: u64,
    /// Its files, in its order; not all of them if there are very many.
    pub files: Vec<PackedFile>,
}

/// One file of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PackedFile {
    /// Its name.
    pub name: String,
    /// When it was opened, as it stands there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opened: Option<String>,
    /// When it was closed, as it stands there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed: Option<String>,
    /// Its size, if the line ends with a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// Tells whether a target URI is that of a packing list.
pub fn is_packing_list(uri: &str) -> bool {
    uri.starts_with("metadata://") && path_of(uri).ends_with(REPORT)
}

/// Reads the list from its record.
///
/// # Errors
/// When the file cannot be read.
pub fn read_packing_list<Source: Read>(
    record: &mut Record<'_, Source>,
) -> Result<PackingList, WarcReadError> {
    let uri = record.target_uri().unwrap_or_default().into_owned();
    let number = record.number();
    let mut text = Vec::new();
    let read = match record.block() {
        Some(block) => {
            text.extend_from_slice(block);
            Ok(0)
        }
        None => record.take(LIST_BYTES).read_to_end(&mut text),
    };
    read.map_err(|source| WarcReadError::Io {
        record: number,
        source,
    })?;
    Ok(parse(&uri, &ecluse_warc::decode(&text)))
}

fn parse(uri: &str, text: &str) -> PackingList {
    let mut list = PackingList {
        job: query_value(uri, "jobid"),
        harvest: query_value(uri, "harvestid"),
        count: 0,
        files: Vec::new(),
    };
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some(name) = words.next().filter(|name| !name.starts_with('[')) else {
            continue;
        };
        list.count += 1;
        if list.files.len() < FILES {
            list.files.push(packed_file(name, words.collect()));
        }
    }
    list
}

fn packed_file(name: &str, mut words: Vec<&str>) -> PackedFile {
    let bytes = words.last().and_then(|word| word.parse().ok());
    if bytes.is_some() {
        words.pop();
    }
    let mut words = words.into_iter().map(str::to_owned);
    PackedFile {
        name: name.to_owned(),
        opened: words.next(),
        closed: words.next(),
        bytes,
    }
}

fn path_of(uri: &str) -> &str {
    uri.split(['?', '#']).next().unwrap_or(uri)
}

fn query_value(uri: &str, name: &str) -> Option<String> {
    let (_, query) = uri.split_once('?')?;
    let values = query.split('&').filter_map(|pair| pair.split_once('='));
    let mut named = values.filter(|(key, value)| *key == name && !value.is_empty());
    named.next().map(|(_, value)| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const URI: &str =
        "metadata://example.org/crawl/reports/archivefiles-report.txt?harvestid=4&jobid=17";

    #[test]
    fn lists_are_known_by_their_uri() {
        assert!(is_packing_list(URI));
        assert!(!is_packing_list(
            "metadata://a/crawl/reports/crawl-report.txt"
        ));
        assert!(!is_packing_list("http://a/archivefiles-report.txt"));
        assert!(!is_packing_list(
            "metadata://a/x?f=/archivefiles-report.txt"
        ));
    }

    #[test]
    fn lines_have_two_times_or_one() {
        let text = "[ARCHIVEFILE] [Opened] [Closed] [Size]\r\n\
                    a.warc.gz 2026-01-02T03:04:05.000Z 2026-01-02T04:04:05.000Z 1234\r\n\
                    b.warc.gz 2026-01-02T03:04:05.000Z 99\n\nc.warc.gz\n";
        let list = parse(URI, text);
        assert_eq!(list.count, 3);
        assert_eq!(
            (list.job.as_deref(), list.harvest.as_deref()),
            (Some("17"), Some("4"))
        );
        let [a, b, c] = list.files.as_slice() else {
            panic!("{list:?}");
        };
        assert_eq!((a.name.as_str(), a.bytes), ("a.warc.gz", Some(1234)));
        assert_eq!(a.closed.as_deref(), Some("2026-01-02T04:04:05.000Z"));
        assert_eq!((b.bytes, b.closed.as_deref()), (Some(99), None));
        assert_eq!(b.opened.as_deref(), Some("2026-01-02T03:04:05.000Z"));
        assert_eq!((c.bytes, c.opened.as_deref()), (None, None));
    }
}
