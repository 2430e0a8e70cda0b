//! Parcels into changes: every line of every parcel becomes a line about its domain, these are sorted, and the lines of one
//! domain together are its news. Memory is what the setting says.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::Path;

use ecluse_cdx::{Duplicates, SortOptions, Sorter};
use ecluse_names::{CheckedLine, ForcedRules, NameLine, Normaliser, Registered, key_of};
use ecluse_register::{HarvestResult, RegisterDay, RegisterReader, StopReason};
use ecluse_stage::{Failure, Parcel};
use serde::Deserialize;

use crate::news::{DnsNews, DomainChange, DomainNews, forced_of};
use crate::record_view::RecordView;

/// The files by which a parcel is known.
pub(crate) const NAMES: &str = "names.tsv";
const CHECKED: &str = "checked.tsv";
const NAME_SEEDS: &str = "seeds.tsv";
pub(crate) const RESULTS: &str = "results.tsv";
const JOB: &str = "job.json";
pub(crate) const EVIDENCE: &str = "evidence.tsv";

/// No line of a parcel is longer.
const LINE_BYTES: u64 = 256 << 10;

/// What is new, on its way to be sorted.
pub(crate) struct ChangeGatherer<'a> {
    sorter: Sorter,
    temporary: &'a Path,
    today: RegisterDay,
    pub(crate) lines: u64,
    /// Results of what is no domain of a register: addresses, names of this machine.
    pub(crate) nameless: u64,
    normaliser: Normaliser,
}

/// What a job tells of itself.
#[derive(Deserialize)]
struct JobView {
    job: String,
    harvest: String,
    ended: String,
}

impl<'a> ChangeGatherer<'a> {
    pub(crate) fn new(memory_bytes: usize, temporary: &'a Path, today: RegisterDay) -> Self {
        let sorter = Sorter::new(SortOptions {
            duplicates: Duplicates::Remove,
            memory_bytes,
            temporary: temporary.to_owned(),
        });
        Self {
            sorter,
            temporary,
            today,
            lines: 0,
            nameless: 0,
            normaliser: Normaliser::new(),
        }
    }

    /// Takes a parcel in.
    ///
    /// # Errors
    /// Holds a parcel with a line that makes no sense.
    pub(crate) fn take(&mut self, parcel: &Parcel) -> Result<(), Failure> {
        let has = |name| parcel.manifest().file(name).is_some();
        if has(NAMES) {
            self.names(parcel, has(CHECKED))?;
            if has(NAME_SEEDS) {
                self.seeds(parcel)?;
            }
            return Ok(());
        }
        if has(RESULTS) {
            return self.results(parcel);
        }
        if has(EVIDENCE) {
            return self.evidence(parcel);
        }
        Err(Failure::hold(format!(
            "{} has none of {NAMES}, {RESULTS} and {EVIDENCE}",
            parcel.id()
        )))
    }

    fn names(&mut self, parcel: &Parcel, is_checked: bool) -> Result<(), Failure> {
        let mut names = ParcelLines::open(parcel, NAMES)?;
        let mut checked = match is_checked {
            true => Some(ParcelLines::open(parcel, CHECKED)?),
            false => None,
        };
        let day = match is_checked {
            true => Some(day_of_check(parcel)?),
            false => None,
        };
        while names.advance()? {
            let line = NameLine::parse(&names.line).map_err(|fault| names.fault(&fault))?;
            let sources: Vec<&str> = match line.sources {
                "-" => Vec::new(),
                sources => sources
                    .split(',')
                    .filter_map(|s| Some(s.split_once(':')?.0))
                    .collect(),
            };
            let sources = match sources.is_empty() {
                // Nobody has it anew.
                true if line.is_asked_again() => "-".to_owned(),
                true => "forced".to_owned(),
                false => sources.join(","),
            };
            let dns = match (&mut checked, day) {
                (Some(checked), Some(day)) => {
                    if !checked.advance()? {
                        return Err(checked.fault(&"it ends before the list of names"));
                    }
                    let found =
                        CheckedLine::parse(&checked.line).map_err(|fault| checked.fault(&fault))?;
                    if (found.key.as_str(), found.name.as_str()) != (line.key, line.name) {
                        return Err(checked.fault(&"not the name that the list has there"));
                    }
                    // Forms, addresses and hints follow from the rest: they stand in the line as they are wanted here.
                    let mut columns = checked.line.split('\t').skip(5);
                    let mut next = || columns.next().unwrap_or("-");
                    let (class, verdict) = (found.class, found.verdict().as_str());
                    format!(
                        "{day}\t{class}\t{verdict}\t{}\t{}\t{}",
                        next(),
                        next(),
                        next()
                    )
                }
                _ => "-".to_owned(),
            };
            let (key, site) = (key_of(line.site), line.site);
            self.push(
                &key,
                site,
                "N",
                &format!("{}\t{}\t{sources}\t{dns}", self.today, line.name),
            )?;
        }
        if let Some(mut checked) = checked
            && checked.advance()?
        {
            return Err(checked.fault(&"it goes on after the list of names"));
        }
        Ok(())
    }

    fn seeds(&mut self, parcel: &Parcel) -> Result<(), Failure> {
        let mut seeds = ParcelLines::open(parcel, NAME_SEEDS)?;
        while seeds.advance()? {
            let columns: Vec<&str> = seeds.line.split('\t').collect();
            let [name, _source, url] = columns[..] else {
                return Err(seeds.fault(&"not three columns"));
            };
            let is_web = url.starts_with("http://") || url.starts_with("https://");
            if !is_web || url.chars().any(|c| c.is_control() || c.is_whitespace()) {
                return Err(seeds.fault(&"no URL of the web"));
            }
            let site = Registered::of(name).site;
            self.push(&key_of(site), site, "S", url)?;
        }
        Ok(())
    }

    fn results(&mut self, parcel: &Parcel) -> Result<(), Failure> {
        let hold = |fault: String| Failure::hold(format!("{JOB} of {}: {fault}", parcel.id()));
        let mut text = String::new();
        let read = parcel.open(JOB)?.take(LINE_BYTES).read_to_string(&mut text);
        read.map_err(|error| hold(error.to_string()))?;
        let job: JobView = serde_json::from_str(&text).map_err(|error| hold(error.to_string()))?;
        let is_word = |text: &str| !text.is_empty() && !text.contains(|c: char| c.is_control());
        if RegisterDay::parse(&job.ended).is_none() || !is_word(&job.job) || !is_word(&job.harvest)
        {
            return Err(hold("no job, no harvest or no day".into()));
        }
        let mut lines = ParcelLines::open(parcel, RESULTS)?;
        while lines.advance()? {
            let columns: Vec<&str> = lines.line.split('\t').collect();
            let [_, site, seeds, objects, bytes, stop] = columns[..] else {
                return Err(lines.fault(&"not six columns"));
            };
            let numbers = [seeds, objects, bytes].map(|number| number.parse::<u64>().ok());
            if numbers.contains(&None) || StopReason::parse(stop).is_none() {
                return Err(lines.fault(&"not a number, or no reason to stop"));
            }
            let found = self
                .normaliser
                .read(site.as_bytes())
                .ok()
                .map(|found| found.name.to_owned());
            if found.as_deref() != Some(site) || Registered::of(site).site != site {
                self.nameless += 1;
                continue;
            }
            if seeds != "0" {
                let told = format!(
                    "{}\t{}\t{}\t{objects}\t{bytes}\t{stop}",
                    job.job, job.harvest, job.ended
                );
                self.push(&key_of(site), site, "R", &told)?;
            }
        }
        Ok(())
    }

    fn evidence(&mut self, parcel: &Parcel) -> Result<(), Failure> {
        let mut lines = ParcelLines::open(parcel, EVIDENCE)?;
        while lines.advance()? {
            let columns: Vec<&str> = lines.line.split('\t').collect();
            let [name, what, value, day] = columns[..] else {
                return Err(lines.fault(&"not four columns"));
            };
            let is_known = ["language", "links", "linked", "media"].contains(&what);
            if !is_known || RegisterDay::parse(day).is_none() || value.len() > 1000 {
                return Err(lines
                    .fault(&"neither language, links, linked nor media with a value and a day"));
            }
            let found = self.normaliser.read(name.as_bytes());
            let found = found.map_err(|rejection| lines.fault(&rejection.reason))?;
            let site = Registered::of(found.name).site.to_owned();
            self.push(
                &key_of(&site),
                &site,
                "E",
                &format!("{what}\t{value}\t{day}"),
            )?;
        }
        Ok(())
    }

    /// Finds the records of which librarians say something else now.
    pub(crate) fn forced(
        &mut self,
        mut register: RegisterReader,
        rules: &ForcedRules,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<(), Failure> {
        let mut seen = 0u64;
        while let Some(line) = register.next_line().map_err(Failure::halt)? {
            seen += 1;
            if seen.is_multiple_of(1 << 16) && is_stopped() {
                return Err(Failure::give_back());
            }
            let rule = rules
                .of_name(line.key.as_bytes())
                .map(|(rule, _)| forced_of(rule));
            if rule.is_none() && !line.text.contains("\"forced\":") {
                continue;
            }
            let record = line.record().map_err(Failure::halt)?;
            if record.more.get("forced") != rule.as_ref() {
                self.push(line.key, &record.domain, "F", "-")?;
            }
        }
        Ok(())
    }

    fn push(&mut self, key: &str, site: &str, kind: &str, told: &str) -> Result<(), Failure> {
        self.lines += 1;
        let line = format!("{key}\t{site}\t{kind}\t{told}");
        self.sorter.push(line.as_bytes()).map_err(Failure::halt)
    }

    /// Takes in a line that was kept.
    ///
    /// # Errors
    /// When it is no line about a domain, or the disk does not take it.
    pub(crate) fn take_kept(&mut self, line: &str) -> Result<(), Failure> {
        let mut columns = line.splitn(3, '\t');
        let (key, site, told) = (columns.next(), columns.next(), columns.next());
        let is_good = key.zip(site).is_some_and(|(key, site)| key == key_of(site))
            && told.is_some_and(|told| add(&mut DomainNews::default(), told).is_some());
        if !is_good {
            return Err(Failure::hold("a line is not as it was written"));
        }
        self.lines += 1;
        self.sorter.push(line.as_bytes()).map_err(Failure::halt)
    }

    /// Returns the changes in order; `keep` is given the lines first.
    ///
    /// # Errors
    /// When the disk does not take what does not fit into memory.
    pub(crate) fn finish(
        self,
        rules: &'a ForcedRules,
        history: usize,
        keep: &mut dyn FnMut(&mut File) -> Result<(), Failure>,
    ) -> Result<Changes<'a>, Failure> {
        let mut file = tempfile::tempfile_in(self.temporary)?;
        self.sorter.finish(&mut file).map_err(Failure::halt)?;
        file.rewind()?;
        keep(&mut file)?;
        file.rewind()?;
        let mut changes = Changes {
            lines: BufReader::with_capacity(256 << 10, file),
            line: String::new(),
            rules,
            today: self.today,
            history,
        };
        changes.lines.read_line(&mut changes.line)?;
        Ok(changes)
    }
}

/// Changes in order of their keys.
pub(crate) struct Changes<'a> {
    lines: BufReader<File>,
    /// The line that comes next; empty at the end.
    line: String,
    rules: &'a ForcedRules,
    today: RegisterDay,
    history: usize,
}

impl<'a> Iterator for Changes<'a> {
    type Item = io::Result<DomainChange<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut news = DomainNews::default();
        while let Some((_, rest)) = self.line.split_once('\t') {
            let (site, told) = rest.trim_end_matches('\n').split_once('\t')?;
            if news.site.is_empty() {
                news.site = site.to_owned();
            } else if news.site != site {
                break;
            }
            if add(&mut news, told).is_none() {
                return Some(Err(io::Error::other(format!(
                    "a line of {site} is not as it was written"
                ))));
            }
            self.line.clear();
            if let Err(error) = self.lines.read_line(&mut self.line) {
                return Some(Err(error));
            }
        }
        if news.site.is_empty() {
            return None;
        }
        Some(Ok(DomainChange {
            news,
            rules: self.rules,
            today: self.today,
            history: self.history,
        }))
    }
}

/// Adds what a line tells.
fn add(news: &mut DomainNews, told: &str) -> Option<()> {
    let columns: Vec<&str> = told.split('\t').collect();
    let day = RegisterDay::parse;
    let list = |text: &str| -> Vec<String> {
        let parts = text
            .split(',')
            .filter(|part| !part.is_empty() && *part != "-");
        parts.map(str::to_owned).collect()
    };
    match columns[..] {
        ["N", seen, name, sources, ref dns @ ..] => {
            let seen = day(seen)?;
            for source in list(sources) {
                news.seen = Some(news.seen.map_or(seen, |first| first.min(seen)));
                let known = news.sources.entry(source).or_insert(seen);
                *known = seen.max(*known);
            }
            match dns {
                [checked, class, verdict, forms, addresses, hints] => news.add_dns(DnsNews {
                    day: day(checked)?,
                    is_site: name == news.site,
                    name: name.to_owned(),
                    class: (*class).to_owned(),
                    is_absent: *verdict == "absent",
                    is_present: *verdict == "present",
                    forms: list(forms),
                    addresses: list(addresses),
                    hints: list(hints),
                }),
                _ if name != news.site && name != format!("www.{}", news.site) => {
                    news.add_host(name.to_owned(), true);
                }
                _ => {}
            }
        }
        ["S", url] => news.add_seed(url.to_owned()),
        ["R", job, harvest, ended, objects, bytes, stop] => news.results.push(HarvestResult {
            job: job.to_owned(),
            harvest: harvest.to_owned(),
            day: day(ended)?,
            objects: objects.parse().ok()?,
            bytes: bytes.parse().ok()?,
            stop: StopReason::parse(stop)?,
        }),
        ["E", "linked", site, seen] => news.add_linked(site, day(seen)?),
        ["E", what, value, learned] => news.add_evidence(what, value, day(learned)?),
        ["F", _] => {}
        _ => return None,
    }
    Some(())
}

/// Returns the day on which DNS was asked about the names of a parcel.
fn day_of_check(parcel: &Parcel) -> Result<RegisterDay, Failure> {
    let receipt = parcel.receipt_of("dns-filter")?;
    let day = receipt.and_then(|receipt| {
        receipt
            .facts
            .get("checked")?
            .as_str()
            .and_then(RegisterDay::parse)
    });
    day.ok_or_else(|| {
        Failure::hold(format!(
            "{}: no receipt in it says when its names were checked",
            parcel.id()
        ))
    })
}

/// The lines of a file of a parcel.
struct ParcelLines<'a> {
    lines: BufReader<Box<dyn Read>>,
    parcel: &'a Parcel,
    name: &'static str,
    line: String,
    number: u64,
}

impl<'a> ParcelLines<'a> {
    fn open(parcel: &'a Parcel, name: &'static str) -> Result<Self, Failure> {
        let source: Box<dyn Read> = Box::new(parcel.open(name)?);
        Ok(Self {
            lines: BufReader::with_capacity(256 << 10, source),
            parcel,
            name,
            line: String::new(),
            number: 0,
        })
    }

    /// Reads the next line; tells whether there is one.
    fn advance(&mut self) -> Result<bool, Failure> {
        self.line.clear();
        self.number += 1;
        let read = (&mut self.lines).take(LINE_BYTES).read_line(&mut self.line);
        match read {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(self.fault(&"not UTF-8"));
            }
            Err(error) => return Err(Failure::halt(error)),
        }
        if self.line.pop() != Some('\n') {
            return Err(self.fault(&"it is too long, or the file was cut"));
        }
        if self.line.chars().any(|c| c.is_control() && c != '\t') {
            return Err(self.fault(&"a control character"));
        }
        Ok(true)
    }

    fn fault(&self, what: &dyn std::fmt::Display) -> Failure {
        let Self {
            parcel,
            name,
            number,
            ..
        } = self;
        Failure::hold(format!(
            "line {number} of {name} of {}: {what}",
            parcel.id()
        ))
    }
}

/// Whether a domain of the register is one that only results tell of.
pub(crate) fn is_from_results(record: &RecordView<'_>) -> bool {
    let mut sources = record.sources().peekable();
    sources.peek().is_some() && sources.all(|source| source == crate::news::FROM_RESULTS)
}
