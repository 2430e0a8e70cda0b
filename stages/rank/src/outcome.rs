//! What is known of every URL and of every site in the end, as lists.

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};

use ecluse_cdx::{CaptureTime, Duplicates, SortOptions, Sorter};
use ecluse_changes::WordMeasures;
use ecluse_links::{
    LINKS_FILE, LINKS_HEADER, LineReader, PageLinks, RANKS_FILE, RankRecord, RankWriter,
    SITES_FILE, SiteRecord, SiteWriter, SlicePart, URLS_FILE, Urls, read_slice,
};
use ecluse_names::Registered;

use crate::criteria::{Criteria, host_of};
use crate::error::RankError;
use crate::evidence::PageText;
use crate::graph::GraphFiles;
use crate::lines::LineSink;
use crate::settings::Settings;
use crate::sweep::Swept;
use crate::texts::TextReader;
use crate::vector::{NumberReader, NumberWriter};
use crate::workspace::Workspace;

/// A vector, and what its numbers are multiplied with.
pub(crate) struct Measured {
    values: PathBuf,
    scale: f64,
}

impl Measured {
    pub(crate) fn of(swept: &Swept) -> Self {
        Self {
            values: swept.values.clone(),
            scale: swept.scale,
        }
    }
}

/// What the lists are made of.
pub(crate) struct Outcome<'a> {
    pub(crate) workspace: &'a Workspace,
    pub(crate) settings: &'a Settings,
    pub(crate) criteria: &'a Criteria,
    pub(crate) forward: &'a GraphFiles,
    pub(crate) back: &'a GraphFiles,
    pub(crate) rank: Measured,
    pub(crate) interest: Measured,
    /// The sum of these, less the criterion for all but the first.
    pub(crate) relevance: &'a [PathBuf],
    pub(crate) is_stopped: &'a (dyn Fn() -> bool + Sync),
}

impl Outcome<'_> {
    /// Writes both lists; returns how many sites there are.
    pub(crate) fn write(&self) -> Result<u64, RankError> {
        self.write_sites_of_urls()?;
        let foreign = |graph: &GraphFiles, name: &str| {
            let path = self.workspace.file(name);
            count_foreign(
                graph,
                &self.workspace.file("sites.u32"),
                &path,
                self.is_stopped,
            )?;
            Ok::<_, RankError>(path)
        };
        let foreign_in = foreign(self.forward, "foreign-in.u32")?;
        let foreign_out = foreign(self.back, "foreign-out.u32")?;
        let most = self.largest_relevance()?;
        let mut sites = SiteSums::new(self.settings, self.workspace);
        let mut lines = UrlNumbers::open(self, &foreign_in, &foreign_out)?;
        let urls = Urls::open(&self.workspace.file(URLS_FILE))?;
        let mut cursor = urls.from(0)?;
        let path = self.workspace.file(RANKS_FILE);
        let failed = |error| RankError::io("write", &path)(error);
        let file = File::create(&path).map_err(failed)?;
        let mut ranks =
            RankWriter::new(BufWriter::with_capacity(128 << 10, file)).map_err(failed)?;
        let mut count = 0u64;
        while cursor.advance()? {
            if count.is_multiple_of(4096) && (self.is_stopped)() {
                return Err(RankError::Stopped);
            }
            count += 1;
            let mut numbers = lines.next(cursor.surt())?;
            // Whatever links say, what librarians chose is as relevant as anything.
            if self.criteria.is_seed(cursor.surt()) {
                numbers.relevance = most;
            }
            let record = RankRecord {
                surt: cursor.surt(),
                url: cursor.url(),
                rank: numbers.rank,
                interest: numbers.interest,
                relevance: numbers.relevance,
                links_in: numbers.links_in,
                links_out: numbers.links_out,
                fetched: numbers.fetched,
            };
            ranks.write(&record).map_err(failed)?;
            sites.add(cursor.surt(), &numbers)?;
        }
        let (out, _) = ranks.finish().map_err(failed)?;
        out.into_inner()
            .map_err(|error| failed(error.into_error()))?;
        sites.finish(&self.workspace.file(SITES_FILE))
    }

    /// Writes a number for the site of each URL.
    fn write_sites_of_urls(&self) -> Result<(), RankError> {
        let urls = Urls::open(&self.workspace.file(URLS_FILE))?;
        let mut cursor = urls.from(0)?;
        let mut out = NumberWriter::create(&self.workspace.file("sites.u32"))?;
        while cursor.advance()? {
            out.count(hash_of(&site_of(cursor.surt())))?;
        }
        out.finish()
    }

    fn largest_relevance(&self) -> Result<f32, RankError> {
        let mut relevance = RelevanceReader::open(self)?;
        let mut most = 0.0f32;
        for _ in 0..self.forward.urls {
            most = most.max(relevance.next()?);
        }
        Ok(most)
    }
}

/// Two sites have the same one once in four thousand million times, and then a link between them counts as one inside.
fn hash_of(site: &str) -> u32 {
    site.bytes().fold(0x811c_9dc5, |hash: u32, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

/// Returns the key of the site of a URL: its registered domain, or its address.
pub(crate) fn site_of(surt: &str) -> String {
    let host = host_of(surt);
    let is_address = host.starts_with('[')
        || host
            .bytes()
            .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b','));
    if is_address {
        return host.to_owned();
    }
    let mut name = Vec::new();
    ecluse_names::name_of(host.as_bytes(), &mut name);
    let name = String::from_utf8_lossy(&name);
    ecluse_names::key_of(Registered::of(&name).site)
}

/// Counts, for each URL, the links that lead to it from other sites; on the graph turned around those that lead from it.
fn count_foreign(
    graph: &GraphFiles,
    sites: &Path,
    out: &Path,
    is_stopped: &(dyn Fn() -> bool + Sync),
) -> Result<(), RankError> {
    let mut writer = NumberWriter::create(out)?;
    let mut own = NumberReader::open(sites)?;
    for slice in 0..graph.slices() {
        if is_stopped() {
            return Err(RankError::Stopped);
        }
        let range = graph.range(slice);
        let mut inside = Vec::with_capacity(range.len());
        for _ in range.clone() {
            inside.push(own.count()?);
        }
        let mut counts = vec![0u32; range.len()];
        let begin = range.start;
        let mut others = NumberReader::open(sites)?;
        let (mut read, mut other, mut fault) = (0u64, 0, None);
        read_slice(&graph.file(slice, SlicePart::External), |source, target| {
            while read <= u64::from(source) && fault.is_none() {
                match others.count() {
                    Ok(site) => other = site,
                    Err(error) => fault = Some(error),
                }
                read += 1;
            }
            let at = (target - begin) as usize;
            counts[at] += u32::from(inside[at] != other);
        })?;
        if let Some(fault) = fault {
            return Err(fault);
        }
        read_slice(&graph.file(slice, SlicePart::Internal), |source, target| {
            let (source, target) = ((source - begin) as usize, (target - begin) as usize);
            counts[target] += u32::from(inside[source] != inside[target]);
        })?;
        for count in counts {
            writer.count(count)?;
        }
    }
    writer.finish()
}

/// What is known of one URL.
struct UrlNumber {
    rank: f32,
    interest: f32,
    relevance: f32,
    links_in: u32,
    links_out: u32,
    foreign_in: u32,
    foreign_out: u32,
    fetched: Option<CaptureTime>,
    text: PageText,
}

/// Reads what is known of URLs, in their order.
struct UrlNumbers {
    rank: (NumberReader, f64),
    interest: (NumberReader, f64),
    relevance: RelevanceReader,
    links_in: NumberReader,
    links_out: NumberReader,
    foreign_in: NumberReader,
    foreign_out: NumberReader,
    texts: TextReader,
    pages: LineReader,
    page: Option<(String, CaptureTime)>,
}

impl UrlNumbers {
    fn open(
        outcome: &Outcome<'_>,
        foreign_in: &Path,
        foreign_out: &Path,
    ) -> Result<Self, RankError> {
        let urls = f64::from(outcome.forward.urls);
        let measured = |measured: &Measured| {
            let reader = NumberReader::open(&measured.values)?;
            Ok::<_, RankError>((reader, measured.scale / urls))
        };
        let workspace = outcome.workspace;
        let path = workspace.file(LINKS_FILE);
        let file = File::open(&path).map_err(RankError::io("open", &path))?;
        let mut numbers = Self {
            rank: measured(&outcome.rank)?,
            interest: measured(&outcome.interest)?,
            relevance: RelevanceReader::open(outcome)?,
            links_in: NumberReader::open(&workspace.file("in.u32"))?,
            links_out: NumberReader::open(&workspace.file("out.u32"))?,
            foreign_in: NumberReader::open(foreign_in)?,
            foreign_out: NumberReader::open(foreign_out)?,
            texts: TextReader::open(workspace)?,
            pages: LineReader::new(BufReader::new(file), &path, LINKS_HEADER)?,
            page: None,
        };
        numbers.next_page()?;
        Ok(numbers)
    }

    fn next(&mut self, surt: &str) -> Result<UrlNumber, RankError> {
        let mut fetched = None;
        if let Some((key, time)) = &self.page
            && key == surt
        {
            // To the second: that is what others take.
            fetched = time
                .as_str()
                .get(..14)
                .and_then(|digits| CaptureTime::from_digits(digits.as_bytes()));
            self.next_page()?;
        }
        let measured = |(reader, scale): &mut (NumberReader, f64)| {
            Ok::<_, RankError>((f64::from(reader.float()?) * *scale) as f32)
        };
        Ok(UrlNumber {
            rank: measured(&mut self.rank)?,
            interest: measured(&mut self.interest)?,
            relevance: self.relevance.next()?,
            links_in: self.links_in.count()?,
            links_out: self.links_out.count()?,
            foreign_in: self.foreign_in.count()?,
            foreign_out: self.foreign_out.count()?,
            fetched,
            text: self.texts.next()?,
        })
    }

    fn next_page(&mut self) -> Result<(), RankError> {
        let page = match self.pages.next_line()? {
            Some(line) => {
                PageLinks::parse(line).map(|page| Some((page.surt.to_owned(), page.time)))
            }
            None => Ok(None),
        };
        self.page = page.map_err(|fault| self.pages.damaged(fault))?;
        Ok(())
    }
}

/// Reads the relevance of URLs, in their order.
struct RelevanceReader {
    parts: Vec<NumberReader>,
    criterion: NumberReader,
}

impl RelevanceReader {
    fn open(outcome: &Outcome<'_>) -> Result<Self, RankError> {
        let parts = outcome
            .relevance
            .iter()
            .map(|path| NumberReader::open(path));
        Ok(Self {
            parts: parts.collect::<Result<_, _>>()?,
            criterion: NumberReader::open(&outcome.workspace.file("criterion.f32"))?,
        })
    }

    fn next(&mut self) -> Result<f32, RankError> {
        let criterion = self.criterion.float()?;
        let mut sum = 0.0;
        for (at, part) in self.parts.iter_mut().enumerate() {
            sum += part.float()?;
            // It is the first term of each series, and counts once.
            if at > 0 {
                sum -= criterion;
            }
        }
        Ok(sum)
    }
}

/// What the pages of a site come to, as far as they stood together.
#[derive(Debug, Clone, Default)]
struct SiteSum {
    pages: u64,
    fetched: u64,
    rank: f64,
    interest: f64,
    relevance: f32,
    links_in: u64,
    links_out: u64,
    /// Documents whose text was measured, and their weights together.
    texts: (u64, f64),
    /// Those whose words were, and their infrequencies and shares together.
    words: (u64, WordMeasures),
}

impl SiteSum {
    fn add(&mut self, other: &Self) {
        self.relevance = match self.pages {
            0 => other.relevance,
            _ => self.relevance.max(other.relevance),
        };
        self.pages += other.pages;
        self.fetched += other.fetched;
        self.rank += other.rank;
        self.interest += other.interest;
        self.links_in += other.links_in;
        self.links_out += other.links_out;
        self.texts.0 += other.texts.0;
        self.texts.1 += other.texts.1;
        self.words.0 += other.words.0;
        self.words.1.infrequency += other.words.1.infrequency;
        self.words.1.share += other.words.1.share;
    }

    /// The mean text weight of its documents.
    fn text_weight(&self) -> Option<f32> {
        let (texts, weights) = self.texts;
        (texts > 0).then(|| (weights / texts as f64) as f32)
    }

    /// The infrequency of its words, which is that of its documents together, and their mean share.
    fn word_measures(&self) -> Option<(f32, f32)> {
        let (texts, sums) = self.words;
        let share = sums.share / texts.max(1) as f64;
        (texts > 0).then_some((sums.infrequency as f32, share as f32))
    }

    fn line(&self, key: &str) -> String {
        let (rank, interest) = (self.rank.to_bits(), self.interest.to_bits());
        format!(
            "{key}\t{}\t{}\t{rank}\t{interest}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}",
            self.pages,
            self.fetched,
            self.relevance.to_bits(),
            self.links_in,
            self.links_out,
            self.texts.0,
            self.texts.1.to_bits(),
            self.words.0,
            self.words.1.infrequency.to_bits(),
            self.words.1.share.to_bits(),
        )
    }

    fn parse(line: &str) -> Option<(&str, Self)> {
        let (key, rest) = line.split_once('\t')?;
        let mut numbers = rest.split('\t').map(str::parse::<u64>);
        let mut next = || numbers.next()?.ok();
        let sum = Self {
            pages: next()?,
            fetched: next()?,
            rank: f64::from_bits(next()?),
            interest: f64::from_bits(next()?),
            relevance: f32::from_bits(u32::try_from(next()?).ok()?),
            links_in: next()?,
            links_out: next()?,
            texts: (next()?, f64::from_bits(next()?)),
            words: (
                next()?,
                WordMeasures {
                    infrequency: f64::from_bits(next()?),
                    share: f64::from_bits(next()?),
                },
            ),
        };
        Some((key, sum))
    }
}

/// Sums up sites. Their pages stand together, but for those on other ports: a site may come more than once.
struct SiteSums {
    sorter: Sorter,
    host: String,
    site: String,
    sum: SiteSum,
}

impl SiteSums {
    fn new(settings: &Settings, workspace: &Workspace) -> Self {
        let sorter = Sorter::new(SortOptions {
            duplicates: Duplicates::Keep,
            memory_bytes: settings.memory_bytes() / 2,
            temporary: workspace.path().to_owned(),
        });
        Self {
            sorter,
            host: String::new(),
            site: String::new(),
            sum: SiteSum::default(),
        }
    }

    fn add(&mut self, surt: &str, numbers: &UrlNumber) -> Result<(), RankError> {
        let host = host_of(surt);
        if host != self.host || self.sum.pages == 0 {
            let site = site_of(surt);
            if site != self.site {
                self.end_site()?;
                self.site = site;
            }
            host.clone_into(&mut self.host);
        }
        self.sum.add(&SiteSum {
            pages: 1,
            fetched: u64::from(numbers.fetched.is_some()),
            rank: f64::from(numbers.rank),
            interest: f64::from(numbers.interest),
            relevance: numbers.relevance,
            links_in: u64::from(numbers.foreign_in),
            links_out: u64::from(numbers.foreign_out),
            texts: (
                u64::from(numbers.text.weight.is_some()),
                numbers.text.weight.unwrap_or(0.0),
            ),
            words: (
                u64::from(numbers.text.words.is_some()),
                numbers.text.words.unwrap_or_default(),
            ),
        });
        Ok(())
    }

    fn end_site(&mut self) -> Result<(), RankError> {
        let sum = std::mem::take(&mut self.sum);
        if sum.pages > 0 {
            self.sorter.push(sum.line(&self.site).as_bytes())?;
        }
        Ok(())
    }

    fn finish(mut self, path: &Path) -> Result<u64, RankError> {
        self.end_site()?;
        let failed = |error| RankError::io("write", path)(error);
        let file = File::create(path).map_err(failed)?;
        let mut out = SiteWriter::new(BufWriter::new(file)).map_err(failed)?;
        let (mut site, mut sum) = (String::new(), SiteSum::default());
        let mut end = |site: &str, sum: &SiteSum| {
            if sum.pages == 0 {
                return Ok(());
            }
            let mut domain = Vec::new();
            match site.starts_with('[') || site.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
                true => domain.extend_from_slice(site.as_bytes()),
                false => ecluse_names::name_of(site.as_bytes(), &mut domain),
            }
            let record = SiteRecord {
                key: site,
                domain: &String::from_utf8_lossy(&domain),
                pages: sum.pages,
                fetched: sum.fetched,
                rank: sum.rank as f32,
                interest: sum.interest as f32,
                relevance: sum.relevance,
                links_in: sum.links_in,
                links_out: sum.links_out,
                text_weight: sum.text_weight(),
                infrequency: sum.word_measures().map(|(infrequency, _)| infrequency),
                word_share: sum.word_measures().map(|(_, share)| share),
            };
            out.write(&record).map_err(failed)
        };
        let mut sink = LineSink::new(|line: &[u8]| {
            let text = std::str::from_utf8(line).ok();
            let (key, part) = text
                .and_then(SiteSum::parse)
                .expect("it was written so just now");
            if key != site {
                end(&site, &std::mem::take(&mut sum))?;
                key.clone_into(&mut site);
            }
            sum.add(&part);
            Ok(())
        });
        let sorted = self.sorter.finish(&mut sink).map_err(RankError::from);
        sink.end(sorted)?;
        end(&site, &sum)?;
        let (out, sites) = out.finish().map_err(failed)?;
        out.into_inner()
            .map_err(|error| failed(error.into_error()))?;
        Ok(sites)
    }
}
