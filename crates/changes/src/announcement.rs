//! What announces that a page has changed: a line of `signals.tsv.zst`.

use std::fmt::Write as _;

use crate::ChangeRecord;
use crate::archive_time::ArchiveTime;
use crate::error::BadLine;
use crate::field::{Fields, push_url};

/// What announced a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SignalKind {
    /// An entry of a feed, by its date.
    Feed,
    /// `lastmod` of a sitemap.
    Sitemap,
}

impl SignalKind {
    /// Returns the word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Feed => "feed",
            Self::Sitemap => "sitemap",
        }
    }
}

/// The latest change of a URL that something else announced; the URL itself may never have been captured.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Announcement {
    /// Its key in the index.
    pub surt: String,
    /// When it changed, as was announced.
    pub time: ArchiveTime,
    /// What announced it.
    pub kind: SignalKind,
    /// The URL, as announced.
    pub url: String,
}

impl Announcement {
    /// Keeps the later one; of two at one time always the same.
    pub fn merge(&mut self, other: Self) {
        if other > *self {
            *self = other;
        }
    }
}

pub(crate) fn push_signal(line: &mut String, (kind, time): (SignalKind, ArchiveTime)) {
    let _ = write!(line, "{}:{time}", kind.word());
}

pub(crate) fn parse_signal(text: &str) -> Option<(SignalKind, ArchiveTime)> {
    let (kind, time) = text.split_once(':')?;
    let kind = [SignalKind::Feed, SignalKind::Sitemap]
        .into_iter()
        .find(|known| known.word() == kind)?;
    Some((kind, ArchiveTime::parse(time)?))
}

impl ChangeRecord for Announcement {
    const FILE: &'static str = "signals.tsv.zst";
    const HEADER: &'static str = "# ecluse signals 1";

    fn key(&self) -> &str {
        &self.surt
    }

    fn write(&self, line: &mut String) {
        line.push_str(&self.surt);
        line.push('\t');
        push_signal(line, (self.kind, self.time));
        line.push('\t');
        push_url(line, &self.url);
    }

    fn parse(line: &str) -> Result<Self, BadLine> {
        let mut fields = Fields::of(line);
        let surt = fields.text("surt")?.to_owned();
        let signal = parse_signal(fields.text("signal")?);
        let (kind, time) = signal.ok_or(BadLine { column: "signal" })?;
        let url = fields.text("url")?.to_owned();
        fields.end()?;
        Ok(Self {
            surt,
            time,
            kind,
            url,
        })
    }
}
