//! The captures of a site, page by page, with what is known of their changes.

use std::path::PathBuf;

use ecluse_cdx::{KeyRange, cdxj};
use ecluse_changes::{
    ArchiveTime, ChangeRecord, ChangesError, PageChanges, RecordReader, VersionChange,
};
use ecluse_generation::IndexDirectory;
use ecluse_stage::Exit;

use crate::cli::Match;
use crate::context::{DriverContext, Trouble};
use crate::lookup;

/// One capture of a page.
#[derive(Debug, Clone)]
pub(crate) struct SiteCapture {
    pub(crate) time: ArchiveTime,
    pub(crate) url: String,
    pub(crate) status: String,
    /// Without its label.
    pub(crate) digest: String,
    pub(crate) file: String,
    pub(crate) is_revisit: bool,
}

/// What a capture found, beside the captures before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CaptureStatus {
    New,
    Updated,
    Unchanged,
    Error,
}

impl CaptureStatus {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Updated => "updated",
            Self::Unchanged => "unchanged",
            Self::Error => "error",
        }
    }
}

impl SiteCapture {
    /// Says whether the server had something.
    pub(crate) fn is_error(&self) -> bool {
        !self.is_revisit && matches!(self.status.as_bytes().first(), Some(b'4' | b'5'))
    }
}

/// A page with all its captures, oldest first.
pub(crate) struct SitePage {
    pub(crate) captures: Vec<SiteCapture>,
    /// What is known of it; none without changes, and for what is no document.
    pub(crate) known: Option<PageChanges>,
    pub(crate) versions: Vec<VersionChange>,
}

impl SitePage {
    /// Returns what each capture found.
    pub(crate) fn statuses(&self) -> Vec<CaptureStatus> {
        let mut last: Option<&str> = None;
        let mut statuses = Vec::with_capacity(self.captures.len());
        for capture in &self.captures {
            if capture.is_error() {
                statuses.push(CaptureStatus::Error);
                continue;
            }
            statuses.push(match last {
                None => CaptureStatus::New,
                Some(digest) if digest == capture.digest => CaptureStatus::Unchanged,
                // Where no digest tells, a revisit says that it is the same.
                Some(_) if capture.digest.is_empty() && capture.is_revisit => {
                    CaptureStatus::Unchanged
                }
                Some(_) => CaptureStatus::Updated,
            });
            last = Some(&capture.digest);
        }
        statuses
    }

    /// Returns the version that a capture began.
    pub(crate) fn version_at(&self, time: ArchiveTime) -> Option<&VersionChange> {
        self.versions.iter().find(|version| version.time == time)
    }
}

/// Returns the lines of a site: of a host, or, where a path is written, of what is below it.
pub(crate) fn range_of_site(site: &str) -> Result<KeyRange, Trouble> {
    let without = site.split_once("://").map_or(site, |(_, rest)| rest);
    let has_path = without
        .split_once('/')
        .is_some_and(|(_, path)| !path.is_empty());
    let url = lookup::with_scheme(site);
    lookup::range_of(&url, if has_path { Match::Prefix } else { Match::Host })
}

/// Calls `see` with each page in a range of the index, in the order of keys.
pub(crate) fn each_page(
    context: &DriverContext,
    collection: Option<&str>,
    range: KeyRange,
    see: &mut dyn FnMut(&SitePage) -> Result<(), Trouble>,
) -> Result<(), Trouble> {
    let from = String::from_utf8_lossy(&range.from).into_owned();
    let mut known = KnownChanges::open(context, collection, &from)?;
    let mut key = Vec::new();
    let mut captures: Vec<SiteCapture> = Vec::new();
    let mut result = Ok(());
    let mut settle = |key: &[u8], captures: &mut Vec<SiteCapture>| -> Result<(), Trouble> {
        let captures = std::mem::take(captures);
        if captures.is_empty() {
            return Ok(());
        }
        let key = String::from_utf8_lossy(key).into_owned();
        let (page, versions) = known.of(&key)?;
        see(&SitePage {
            captures,
            known: page,
            versions,
        })
    };
    lookup::each_line(context, collection, range, &mut |line| {
        let blank = line.iter().position(|byte| *byte == b' ');
        let own = &line[..blank.unwrap_or(line.len())];
        if own != key {
            result = settle(&key, &mut captures);
            key = own.to_vec();
        }
        captures.extend(capture_of(line));
        result.is_ok()
    })?;
    result?;
    settle(&key, &mut captures)
}

fn capture_of(line: &[u8]) -> Option<SiteCapture> {
    let capture = cdxj::parse(line).ok()?;
    let text =
        |field: &Option<std::borrow::Cow<'_, str>>| field.as_deref().unwrap_or_default().to_owned();
    let url = text(&capture.url);
    if !["http://", "https://"]
        .iter()
        .any(|scheme| url.starts_with(scheme))
    {
        return None;
    }
    let digest = text(&capture.digest);
    Some(SiteCapture {
        time: ArchiveTime::parse(capture.time.as_str())?,
        url,
        status: text(&capture.status),
        digest: digest.rsplit(':').next().unwrap_or_default().to_owned(),
        file: text(&capture.filename),
        is_revisit: capture.is_revisit(),
    })
}

/// The files of `changes/current`, read beside the index.
struct KnownChanges {
    pages: Option<RecordReader<PageChanges>>,
    versions: Option<RecordReader<VersionChange>>,
}

impl KnownChanges {
    fn open(
        context: &DriverContext,
        collection: Option<&str>,
        from: &str,
    ) -> Result<Self, Trouble> {
        let Some(current) = current_changes(context, collection)? else {
            return Ok(Self {
                pages: None,
                versions: None,
            });
        };
        Ok(Self {
            pages: Some(RecordReader::open_at(&current, from).map_err(unreadable)?),
            versions: Some(RecordReader::open_at(&current, from).map_err(unreadable)?),
        })
    }

    fn of(&mut self, key: &str) -> Result<(Option<PageChanges>, Vec<VersionChange>), Trouble> {
        let page = taken(&mut self.pages, key)?.pop();
        Ok((page, taken(&mut self.versions, key)?))
    }
}

fn taken<Record: ChangeRecord>(
    reader: &mut Option<RecordReader<Record>>,
    key: &str,
) -> Result<Vec<Record>, Trouble> {
    let mut records = Vec::new();
    if let Some(reader) = reader {
        reader.skip_below(key).map_err(unreadable)?;
        while reader.peek_key().map_err(unreadable)? == Some(key) {
            records.extend(reader.next_record().map_err(unreadable)?);
        }
    }
    Ok(records)
}

/// Returns the directory of what is known of changes; none where nothing is yet.
pub(crate) fn current_changes(
    context: &DriverContext,
    collection: Option<&str>,
) -> Result<Option<PathBuf>, Trouble> {
    let changes = context.root.join(&context.pipeline.archive.changes);
    let changes = IndexDirectory::of(&changes, collection).map_err(Trouble::usage)?;
    changes
        .current()
        .map_err(|error| Trouble::new(Exit::Machine, error))
}

fn unreadable(error: ChangesError) -> Trouble {
    Trouble::new(Exit::Machine, error)
}

/// Reads a date, or its beginning, as the first moment that it may mean, or the last.
pub(crate) fn moment(date: &str, is_end: bool) -> Result<ArchiveTime, Trouble> {
    let digits: String = date.chars().filter(char::is_ascii_digit).collect();
    let fits = (4..=14).contains(&digits.len())
        && digits.len().is_multiple_of(2)
        && date
            .chars()
            .all(|c| c.is_ascii_digit() || "-:TZ ".contains(c));
    let whole = |rest: &str| ArchiveTime::parse(&format!("{digits}{}", &rest[digits.len()..]));
    let found = match (fits, is_end) {
        (false, _) => None,
        (true, false) => whole("00000101000000"),
        // The last day of a month is one of four.
        (true, true) => [
            "00001231235959",
            "00001230235959",
            "00001229235959",
            "00001228235959",
        ]
        .into_iter()
        .find_map(whole),
    };
    found.ok_or_else(|| {
        Trouble::usage(format!(
            "{date:?} is no date: 2026, 2026-01-31 or 20260131120000"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_its_first_or_its_last_moment() {
        let both = |date: &str| {
            let read = |is_end| moment(date, is_end).map(|time| time.to_string()).ok();
            (read(false), read(true))
        };
        let times = |from: &str, to: &str| (Some(from.to_owned()), Some(to.to_owned()));
        assert_eq!(both("2026"), times("20260101000000", "20261231235959"));
        assert_eq!(both("2026-02"), times("20260201000000", "20260228235959"));
        assert_eq!(
            both("2026-01-05"),
            times("20260105000000", "20260105235959")
        );
        assert_eq!(
            both("20260105123456"),
            times("20260105123456", "20260105123456")
        );
        assert_eq!(
            both("2026-01-05T12:30Z"),
            times("20260105123000", "20260105123059")
        );
        for date in ["", "next week", "2026-13", "20260", "2026-02-30"] {
            assert_eq!(both(date), (None, None), "{date}");
        }
    }
}
