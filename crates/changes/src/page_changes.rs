//! What is known of the changes of one page: a line of `pages.tsv.zst`.

use std::fmt::Write as _;

use ecluse_refresh::IntervalHistogram;

use crate::ChangeRecord;
use crate::announcement::{SignalKind, parse_signal, push_signal};
use crate::archive_time::ArchiveTime;
use crate::error::BadLine;
use crate::field::{Fields, push_escaped, push_number, push_optional, push_url, push_words};
use crate::words::WordMeasures;

/// Whose pattern of the day a page follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatternOf {
    /// Its own, in `patterns.tsv.zst`.
    Page,
    /// That of its site, in `sites.tsv.zst`.
    Site,
}

/// What is known of the changes of one page.
#[derive(Debug, Clone, PartialEq)]
pub struct PageChanges {
    /// Its key in the index.
    pub surt: String,
    /// Its URL, as the latest capture has it.
    pub url: String,
    /// The first capture of the document.
    pub first: ArchiveTime,
    /// The latest capture of the document.
    pub last: ArchiveTime,
    /// How many captures of the document there are.
    pub looks: u64,
    /// How many of them found another content than the one before.
    pub changes: u64,
    /// The latest capture that did.
    pub last_change: Option<ArchiveTime>,
    /// Days in which it did not change: the sum of the intervals between captures with the same content.
    pub quiet_days: f64,
    /// Days between a change whose moment the server declared and the capture that saw it, summed up.
    pub declared_days: f64,
    /// How many changes have a declared moment. The first version is one, where its moment is declared.
    pub declared_changes: u64,
    /// The intervals, in hours, in which it changed at a moment that nobody declared.
    pub intervals: IntervalHistogram,
    /// Changes a day, as estimated; neither 0 nor infinite.
    pub rate: f64,
    /// The mean weight of its changes; none where none was weighed.
    pub change_weight: Option<f64>,
    /// The share of the latest document that is text; none where it was not read.
    pub text_weight: Option<f64>,
    /// The HTTP status of the latest capture of the URL, be it a document or not.
    pub status: Option<u16>,
    /// The `ETag` of the latest version.
    pub etag: Option<String>,
    /// The `Last-Modified` of the latest version, as it was sent.
    pub last_modified: Option<String>,
    /// What last announced a change of it, and when that change was.
    pub signal: Option<(SignalKind, ArchiveTime)>,
    /// The simhash of the latest version; none where it was not read.
    pub simhash: Option<u64>,
    /// Whose pattern of the day it follows; none where no pattern is known.
    pub pattern: Option<PatternOf>,
    /// What the words of the latest version say; none without a list of words.
    pub words: Option<WordMeasures>,
}

impl ChangeRecord for PageChanges {
    const FILE: &'static str = "pages.tsv.zst";
    const HEADER: &'static str = "# ecluse pages 1";

    fn key(&self) -> &str {
        &self.surt
    }

    fn write(&self, line: &mut String) {
        line.push_str(&self.surt);
        line.push('\t');
        push_url(line, &self.url);
        let (first, last, looks, changes) = (self.first, self.last, self.looks, self.changes);
        let _ = write!(line, "\t{first}\t{last}\t{looks}\t{changes}");
        push_optional(line, self.last_change, |line, time| {
            let _ = write!(line, "{time}");
        });
        line.push('\t');
        push_number(line, self.quiet_days);
        line.push('\t');
        push_number(line, self.declared_days);
        let _ = write!(line, "\t{}", self.declared_changes);
        for (count, at) in self.intervals.counts.iter().zip(0..) {
            let _ = write!(line, "{}{count}", if at == 0 { '\t' } else { ',' });
        }
        line.push('\t');
        push_number(line, self.rate);
        push_optional(line, self.change_weight, push_number);
        push_optional(line, self.text_weight, push_number);
        push_optional(line, self.status, |line, status| {
            let _ = write!(line, "{status}");
        });
        push_optional(line, self.etag.as_deref(), push_escaped);
        push_optional(line, self.last_modified.as_deref(), push_escaped);
        push_optional(line, self.signal, push_signal);
        push_optional(line, self.simhash, |line, simhash| {
            let _ = write!(line, "{simhash:016x}");
        });
        push_optional(line, self.pattern, |line, pattern| {
            line.push_str(match pattern {
                PatternOf::Page => "own",
                PatternOf::Site => "site",
            });
        });
        push_words(line, self.words);
    }

    fn parse(line: &str) -> Result<Self, BadLine> {
        let mut fields = Fields::of(line);
        let page = Self {
            surt: fields.text("surt")?.to_owned(),
            url: fields.text("url")?.to_owned(),
            first: fields.time("first")?,
            last: fields.time("last")?,
            looks: fields.parsed("looks")?,
            changes: fields.parsed("changes")?,
            last_change: fields.optional_time("last-change")?,
            quiet_days: fields.number("quiet-days")?,
            declared_days: fields.number("declared-days")?,
            declared_changes: fields.parsed("declared-changes")?,
            intervals: parse_intervals(fields.text("intervals")?).ok_or(BadLine {
                column: "intervals",
            })?,
            rate: fields.number("rate")?,
            change_weight: fields.optional_number("change-weight")?,
            text_weight: fields.optional_number("text-weight")?,
            status: fields.optional("status", |text| text.parse().ok())?,
            etag: fields.escaped("etag")?,
            last_modified: fields.escaped("last-modified")?,
            signal: fields.optional("signal", parse_signal)?,
            simhash: fields.optional("simhash", |text| u64::from_str_radix(text, 16).ok())?,
            pattern: fields.optional("pattern", |text| match text {
                "own" => Some(PatternOf::Page),
                "site" => Some(PatternOf::Site),
                _ => None,
            })?,
            words: fields.words()?,
        };
        fields.end()?;
        Ok(page)
    }
}

fn parse_intervals(text: &str) -> Option<IntervalHistogram> {
    let mut histogram = IntervalHistogram::default();
    let mut parts = text.split(',');
    for count in &mut histogram.counts {
        *count = parts.next()?.parse().ok()?;
    }
    parts.next().is_none().then_some(histogram)
}
