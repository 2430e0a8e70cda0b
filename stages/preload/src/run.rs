//! One run: sources in, every name once with its origins out, and the figures of it.
//!
//! The lists are read one after the other, in order of the source's name, so that the same lists give the same bytes whoever
//! claimed them first. Then the names come out in order, and are held against the register as they pass.

use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::path::PathBuf;

use ecluse_cdx::{Duplicates, MergeError, SortOptions, Sorter};
use ecluse_names::{
    ForcedRules, ForcedVerdict, NameFlags, NameLine, Normaliser, Registered, RejectReason,
    Rejection, name_of, name_text_of,
};
use ecluse_register::{RegisterError, RegisterReader};
use memchr::memchr;

use crate::gather::{Gatherer, NameOrigins, SOURCES};
use crate::lines::{Column, LineReader, ListLine};
use crate::rejects;
use crate::sites::OpenSites;
use crate::source::{SourceList, unpacked};
use crate::statistics::{SourceFigures, Statistics};

/// What a run is told.
pub(crate) struct RunSettings {
    pub(crate) memory_bytes: usize,
    pub(crate) line_bytes: usize,
    pub(crate) temporary: PathBuf,
}

/// Why a run stopped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error("{file}: {reason}")]
    Source { file: String, reason: String },
    #[error("{} sources in one run: {SOURCES} at most", .0)]
    TooMany(usize),
    #[error("cannot write: {0}")]
    Output(io::Error),
    #[error("cannot use a temporary file: {0}")]
    Temporary(io::Error),
    #[error("cannot sort seeds: {0}")]
    Seeds(#[from] MergeError),
    #[error(transparent)]
    Register(#[from] RegisterError),
    #[error("{0}: nothing is given out")]
    Sums(String),
    #[error("asked to stop")]
    Stopped,
}

/// Where the results of a run go.
pub(crate) trait NameSink {
    /// Takes the next name.
    fn name(&mut self, line: &NameLine<'_>) -> io::Result<()>;
    /// Takes a seed of the name that came last.
    fn seed(&mut self, name: &str, source: &str, url: &str) -> io::Result<()>;
}

/// A run that takes its sources in.
pub(crate) struct Run<'a> {
    settings: &'a RunSettings,
    rules: &'a ForcedRules,
    gatherer: Gatherer,
    seeds: Sorter,
    has_seeds: bool,
    pub(crate) figures: Statistics,
    normaliser: Normaliser,
    key: Vec<u8>,
}

/// Between the columns of a seed while seeds are sorted.
const TAB: u8 = b'\t';
/// What a run does with the names of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListRole {
    /// The list is new or has changed: they are counted, and given on.
    Given,
    /// It stands there from an earlier run: they are counted.
    Standing,
}

/// How often a run looks whether it should stop, in lines.
const LOOK_EVERY: u64 = 1 << 16;

impl<'a> Run<'a> {
    /// Begins a run of lists, in order of their sources' names, each with whether it is all that its source has.
    pub(crate) fn new(
        lists: &[(&SourceList, bool)],
        settings: &'a RunSettings,
        rules: &'a ForcedRules,
    ) -> Result<Self, RunError> {
        let mut sources: Vec<SourceFigures> = Vec::new();
        for (list, is_whole) in lists {
            match sources.last_mut() {
                Some(last) if last.name == list.name => last.is_whole &= is_whole,
                _ => sources.push(SourceFigures::new(&list.name, list.kind, *is_whole)),
            }
        }
        if sources.len() > SOURCES {
            return Err(RunError::TooMany(sources.len()));
        }
        Ok(Self {
            // A tenth is for the seeds.
            gatherer: Gatherer::new(settings.memory_bytes / 10 * 9, &settings.temporary),
            seeds: Sorter::new(SortOptions {
                duplicates: Duplicates::Remove,
                memory_bytes: settings.memory_bytes / 10,
                temporary: settings.temporary.clone(),
            }),
            has_seeds: false,
            figures: Statistics::of(sources),
            settings,
            rules,
            normaliser: Normaliser::new(),
            key: Vec::new(),
        })
    }

    /// Takes a list in; `is_stopped` is asked now and then.
    pub(crate) fn take(
        &mut self,
        (list, role): (&SourceList, ListRole),
        file: &str,
        source: Box<dyn Read>,
        rejects: &mut dyn Write,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<(), RunError> {
        let bad = |reason: String| RunError::Source {
            file: file.to_owned(),
            reason,
        };
        let place = self
            .figures
            .sources
            .iter()
            .position(|known| known.name == list.name);
        let place = place.expect("every source was named at the beginning");
        let source = unpacked(source).map_err(|error| bad(error.to_string()))?;
        let mut lines = LineReader::new(source, self.settings.line_bytes);
        let (mut column, mut buffer, mut number) = (None, Vec::new(), 0u64);
        while let Some(line) = lines
            .next_line()
            .map_err(|error| bad(format!("cannot be read after line {number}: {error}")))?
        {
            number += 1;
            if number.is_multiple_of(LOOK_EVERY) && is_stopped() {
                return Err(RunError::Stopped);
            }
            let (text, length, is_whole) = match line {
                ListLine::Whole(text, length) => (text, length, true),
                ListLine::TooLong(begin) => (begin, begin.len(), false),
            };
            let bytes = &text[..length];
            if column.is_none() {
                column = Column::without_heading(list, bytes);
                if column.is_none() {
                    column = Some(Column::by_heading(list, bytes).map_err(bad)?);
                    continue;
                }
            }
            let column = column.as_ref().unwrap_or(&Column::Line);
            self.figures.sources[place].lines += 1;
            let read = match column {
                _ if !is_whole => Err(RejectReason::TooLong.into()),
                Column::Line => self.line((list, role), place, text, length)?,
                Column::Csv(csv) => match csv.field_of(bytes, &mut buffer) {
                    Ok(field) => self.line((list, role), place, field, field.len())?,
                    Err(reason) => Err(reason.into()),
                },
            };
            if let Err(rejection) = read {
                self.figures.sources[place].rejected[rejection.reason as usize] += 1;
                if rejection.reason.is_listed() {
                    rejects::write(rejects, &list.name, file, number, &rejection, bytes)
                        .map_err(RunError::Output)?;
                }
            }
        }
        Ok(())
    }

    /// Takes a line in, the first `length` bytes of a text, or says why not.
    fn line(
        &mut self,
        (list, role): (&SourceList, ListRole),
        place: usize,
        text: &[u8],
        length: usize,
    ) -> Result<Result<(), Rejection>, RunError> {
        let found = self
            .normaliser
            .read_key(text, length, list.urls, &mut self.key);
        let (flags, url) = match found {
            Ok(found) => found,
            Err(rejection) => return Ok(Err(rejection)),
        };
        if let Some((rule, by)) = self.rules.of_name(&self.key)
            && rule.verdict == ForcedVerdict::Out
        {
            let mut domain = Vec::new();
            name_of(by, &mut domain);
            let domain = String::from_utf8_lossy(&domain).into_owned();
            return Ok(Err(Rejection::told(RejectReason::ForcedOut, domain)));
        }
        let source = u8::try_from(place).expect("there are 64 sources at most");
        let added = match role {
            ListRole::Given => self.gatherer.add(&self.key, flags, source),
            ListRole::Standing => self.gatherer.add_standing(&self.key, flags, source),
        };
        added.map_err(RunError::Temporary)?;
        if let Some(url) = url
            && role == ListRole::Given
            && (list.urls || flags.has(NameFlags::PORT))
            && !self.rules.is_out(&url)
        {
            let url = if list.urls { url } else { without_path(&url) };
            push_seed(&mut self.seeds, &self.key, &list.name, &url)?;
            self.has_seeds = true;
        }
        Ok(Ok(()))
    }

    /// Adds what rules force in.
    pub(crate) fn force(&mut self) -> Result<(), RunError> {
        for key in self.rules.domains_in() {
            self.gatherer
                .add_forced(key, NameFlags::NONE)
                .map_err(RunError::Temporary)?;
        }
        for rule in self.rules.prefixes_in() {
            let over = self.rules.of_name(rule.key.as_bytes());
            if over.is_some_and(|(over, _)| over.verdict == ForcedVerdict::Out) {
                continue;
            }
            self.gatherer
                .add_forced(rule.key.as_bytes(), NameFlags::NONE)
                .map_err(RunError::Temporary)?;
            push_seed(&mut self.seeds, rule.key.as_bytes(), "forced", &rule.url)?;
            self.has_seeds = true;
        }
        Ok(())
    }

    /// Gives out every name in order, held against the register; returns the figures.
    pub(crate) fn finish(
        self,
        register: Option<RegisterReader>,
        sink: &mut dyn NameSink,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Statistics, RunError> {
        let mut seeds = Seeds::new(self.seeds, self.has_seeds, &self.settings.temporary)?;
        let mut giving = Giving {
            rules: self.rules,
            sites: OpenSites::new(register, &self.figures),
            figures: self.figures,
            name: String::new(),
            sources: String::new(),
            error: None,
            given: 0,
        };
        let given = self.gatherer.finish(&mut |found| {
            giving.given += 1;
            if giving.given.is_multiple_of(LOOK_EVERY) && is_stopped() {
                giving.error = Some(RunError::Stopped);
                return Err(io::ErrorKind::Other.into());
            }
            let given = giving.give(found, sink, &mut seeds);
            given.map_err(|error| {
                giving.error = Some(error);
                io::ErrorKind::Other.into()
            })
        });
        if let Some(error) = giving.error {
            return Err(error);
        }
        given.map_err(RunError::Temporary)?;
        let mut figures = giving.figures;
        giving.sites.finish(&mut figures)?;
        figures.settle();
        match figures.fault() {
            Some(fault) => Err(RunError::Sums(fault)),
            None => Ok(figures),
        }
    }
}

/// The second half of a run.
struct Giving<'a> {
    rules: &'a ForcedRules,
    sites: OpenSites,
    figures: Statistics,
    name: String,
    sources: String,
    error: Option<RunError>,
    given: u64,
}

impl Giving<'_> {
    fn give(
        &mut self,
        found: &NameOrigins<'_>,
        sink: &mut dyn NameSink,
        seeds: &mut Seeds,
    ) -> Result<(), RunError> {
        let key = std::str::from_utf8(found.key).expect("a name is ASCII");
        name_text_of(key, &mut self.name);
        let name = self.name.as_str();
        let registered = Registered::of(name);
        let flags = found
            .flags
            .with(registered.flags)
            .with(NameFlags::WWW.when(name.starts_with("www.")));
        // Whoever writes a list may invent as many last labels as there are lines.
        let tld = match flags.has(NameFlags::UNLISTED) {
            true => "(unlisted)",
            false => &key[..memchr(b',', found.key).unwrap_or(key.len())],
        };
        let mask = found
            .origins
            .iter()
            .fold(0, |mask, (source, _)| mask | 1 << source);
        let is_known = self.sites.see(
            found.key,
            registered.site.len(),
            tld,
            mask,
            &mut self.figures,
        )?;
        self.figures.name(tld, found.origins, found.is_given);
        if !found.is_given {
            return Ok(());
        }
        self.sources.clear();
        for (source, lines) in found.origins {
            if !self.sources.is_empty() {
                self.sources.push(',');
            }
            self.sources
                .push_str(&self.figures.sources[usize::from(*source)].name);
            self.sources.push(':');
            push_number(&mut self.sources, *lines);
        }
        if self.sources.is_empty() {
            self.sources.push('-');
        }
        let line = NameLine {
            key,
            name,
            domain: registered.domain,
            site: registered.site,
            sources: &self.sources,
            is_known,
            is_forced: found.origins.is_empty()
                || (self.rules.of_name(found.key))
                    .is_some_and(|(rule, _)| rule.verdict == ForcedVerdict::In),
            flags,
        };
        sink.name(&line).map_err(RunError::Output)?;
        while let Some((source, url)) = seeds.next_of(found.key)? {
            sink.seed(name, source, url).map_err(RunError::Output)?;
        }
        Ok(())
    }
}

/// Appends a number; most are 1.
fn push_number(text: &mut String, number: u32) {
    if number < 10 {
        text.push(char::from(b'0' + number as u8));
    } else {
        text.push_str(&number.to_string());
    }
}

/// Returns scheme, host and port of a URL.
fn without_path(url: &str) -> String {
    let host = url.find("://").map_or(0, |at| at + 3);
    let end = url[host..].find('/').map_or(url.len(), |at| host + at);
    format!("{}/", &url[..end])
}

fn push_seed(seeds: &mut Sorter, key: &[u8], source: &str, url: &str) -> Result<(), RunError> {
    let line = [key, source.as_bytes(), url.as_bytes()].join(&TAB);
    Ok(seeds.push(&line)?)
}

/// The seeds in order of the names they belong to.
struct Seeds {
    lines: Option<BufReader<std::fs::File>>,
    line: String,
    /// The line was given, or is none yet.
    is_taken: bool,
}

impl Seeds {
    fn new(sorter: Sorter, has_seeds: bool, temporary: &std::path::Path) -> Result<Self, RunError> {
        let mut lines = None;
        if has_seeds {
            let mut file = tempfile::tempfile_in(temporary).map_err(RunError::Temporary)?;
            sorter.finish(&mut file)?;
            file.rewind().map_err(RunError::Temporary)?;
            lines = Some(BufReader::new(file));
        }
        Ok(Self {
            lines,
            line: String::new(),
            is_taken: true,
        })
    }

    /// Returns the next seed of a name; the names come in order.
    fn next_of(&mut self, key: &[u8]) -> Result<Option<(&str, &str)>, RunError> {
        let Some(lines) = &mut self.lines else {
            return Ok(None);
        };
        if self.is_taken {
            self.line.clear();
            if lines
                .read_line(&mut self.line)
                .map_err(RunError::Temporary)?
                == 0
            {
                self.lines = None;
                return Ok(None);
            }
            self.is_taken = false;
        }
        let mut parts = self.line.trim_end_matches('\n').split('\t');
        if parts.next().is_none_or(|wanted| wanted.as_bytes() != key) {
            return Ok(None);
        }
        self.is_taken = true;
        Ok(parts.next().zip(parts.next()))
    }
}
