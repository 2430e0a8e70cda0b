//! A line of the register as planning needs it: read once, and no more of it than is asked for.

use std::collections::BTreeMap;

use ecluse_register::{RegisterDay, RegisterRecord, StopReason};
use serde::Deserialize;

use crate::sizes::PastResult;

/// A line of the register.
#[derive(Debug)]
pub struct RecordView<'a> {
    /// Its key.
    pub key: &'a str,
    /// The domain.
    pub domain: &'a str,
    /// It is harvested.
    pub is_active: bool,
    /// The day a source last had it.
    pub last: &'a str,
    sources: &'a str,
    dns: &'a str,
    /// Which of its names answer.
    pub forms: &'a str,
    /// The rest.
    pub more: MoreView,
}

/// What planning reads of the last column.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct MoreView {
    /// What librarians said.
    pub forced: Option<ForcedView>,
    /// URLs to begin at, too.
    pub seeds: Vec<String>,
    /// Other names of the domain that answer.
    pub hosts: Vec<String>,
    /// Where it answers.
    pub addresses: Vec<String>,
    /// What it brought, newest first.
    pub harvests: Vec<ResultView>,
    /// What was learned of it.
    pub evidence: BTreeMap<String, EvidenceView>,
    /// Since when DNS denies it.
    pub absent: String,
    /// The name that was checked, where it is not the domain itself.
    pub checked_name: String,
}

/// What librarians said.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ForcedView {
    /// `in` or `out`.
    pub verdict: String,
}

/// What it brought in one job.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ResultView {
    /// The harvest.
    pub harvest: String,
    /// URLs that were answered.
    pub objects: u64,
    /// Bytes of their content.
    pub bytes: u64,
    /// Why it stopped.
    pub stop: String,
}

/// Something that was learned.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct EvidenceView {
    /// What.
    pub value: String,
    /// When.
    pub day: String,
    /// The sites that tell it.
    pub from: Vec<String>,
}

impl<'a> RecordView<'a> {
    /// Reads a line; none where it is no line of a register.
    pub fn read(line: &'a str) -> Option<Self> {
        let mut columns = line.splitn(9, '\t');
        let mut next = || columns.next();
        let (key, domain, state) = (next()?, next()?, next()?);
        let (_first, last) = (next()?, next()?);
        let (sources, dns, forms, more) = (next()?, next()?, next()?, next()?);
        Some(Self {
            key,
            domain,
            is_active: state == "active",
            last,
            sources,
            dns,
            forms: if forms == "-" { "" } else { forms },
            more: match more {
                "{}" => MoreView::default(),
                more => serde_json::from_str(more).ok()?,
            },
        })
    }

    /// Returns the names of the sources that had it.
    pub fn sources(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let column = if self.sources == "-" {
            ""
        } else {
            self.sources
        };
        column
            .split(',')
            .filter_map(|source| source.split_once('=').map(|(name, _)| name))
    }

    /// Returns the day on which DNS was asked.
    pub fn checked(&self) -> Option<RegisterDay> {
        RegisterDay::parse(self.dns.split_once('@')?.1)
    }

    /// Tells whether the one check there was since it answered denied it. Whoever asked again and heard nothing keeps it.
    pub(crate) fn is_denied_once(&self) -> bool {
        let absent = RegisterDay::parse(&self.more.absent);
        absent.is_some() && self.checked() <= absent && self.forced().is_none()
    }

    /// Returns the names that DNS is asked about: the one that was checked, and those below the domain.
    pub(crate) fn checked_names(&self) -> impl Iterator<Item = &str> {
        let first = match self.more.checked_name.as_str() {
            "" => self.domain,
            name => name,
        };
        std::iter::once(first).chain(self.more.hosts.iter().map(String::as_str))
    }

    /// Returns something that was learned.
    pub fn evidence(&self, what: &str) -> Option<&EvidenceView> {
        self.more.evidence.get(what)
    }

    /// Tells what librarians said: in, out, or nothing.
    pub fn forced(&self) -> Option<bool> {
        match self.more.forced.as_ref()?.verdict.as_str() {
            "in" => Some(true),
            "out" => Some(false),
            _ => None,
        }
    }

    /// Returns what it brought, newest first: in the same harvest, or where it never was in it, in any.
    pub(crate) fn history(&self, harvest: &str) -> Vec<PastResult> {
        let all = || self.more.harvests.iter();
        let is_known = all().any(|result| result.harvest == harvest);
        let fitting = all().filter(|result| !is_known || result.harvest == harvest);
        let results = fitting.filter_map(|result| {
            Some(PastResult {
                objects: result.objects,
                bytes: result.bytes,
                stop: StopReason::parse(&result.stop)?,
            })
        });
        results.collect()
    }
}

/// Writes a record as its line.
pub(crate) fn line_of(record: &RegisterRecord) -> Option<String> {
    let mut line = Vec::new();
    record.write(&mut line).ok()?;
    line.pop();
    String::from_utf8(line).ok()
}
