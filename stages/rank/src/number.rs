//! From lines of links to numbered URLs: merging, numbering, and the links by target.
//!
//! The lines of the last generation and the new ones are merged; of each page its latest capture counts. What it links to is
//! sorted by target together with the pages themselves: a URL's number is its place there. A page is known by how many came before it until it has its number.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use ecluse_cdx::{
    Duplicates, LineSource, MergeError, MergeOptions, ReadError, SortOptions, Sorter, merge_pieces,
};
use ecluse_links::{LINKS_HEADER, PageLinks, RankReader, UrlsWriter, url_code, url_of_code};

use crate::criteria::{Criteria, host_of, key_of};
use crate::error::RankError;
use crate::evidence::{RankSources, SiteCriteria, SiteEvidence};
use crate::lines::LineSink;
use crate::outcome::site_of;
use crate::settings::Settings;
use crate::texts::MeasuredTexts;
use crate::vector::{NumberReader, NumberWriter};
use crate::workspace::Workspace;

/// A number of 32 bits may mean something else from here on in a slice.
const MOST_URLS: u64 = 0xfff0_0000;
/// How much of the lines a frame of the list has.
const FRAME_BYTES: usize = 256 << 10;

/// A list of links to be merged: the last generation's, or a parcel's.
pub struct LinkPiece<'a> {
    /// What messages call it.
    pub name: String,
    /// Opens it.
    pub open: Box<dyn Fn() -> Result<Box<dyn Read + Send>, RankError> + 'a>,
}

/// What there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GraphSize {
    pub(crate) urls: u32,
    pub(crate) pages: u64,
    pub(crate) links: u64,
}

impl GraphSize {
    pub(crate) fn line(&self) -> String {
        format!("{} {} {}", self.urls, self.pages, self.links)
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        Some(Self {
            urls: words.next()?.parse().ok()?,
            pages: words.next()?.parse().ok()?,
            links: words.next()?.parse().ok()?,
        })
    }
}

/// Merges and numbers; everything it makes lies in the workspace.
pub(crate) fn number(
    pieces: &[LinkPiece<'_>],
    last_ranks: Option<&Path>,
    sources: &RankSources,
    criteria: &Criteria,
    settings: &Settings,
    workspace: &Workspace,
    is_stopped: &dyn Fn() -> bool,
) -> Result<GraphSize, RankError> {
    let sorter = Sorter::new(SortOptions {
        duplicates: Duplicates::Keep,
        memory_bytes: settings.memory_bytes() / 2,
        temporary: workspace.path().to_owned(),
    });
    let mut pages = PageMerger {
        sorter,
        list: LinksWriter::create(workspace)?,
        outdegrees: NumberWriter::create(&workspace.file("outdegrees.u32"))?,
        settings,
        full: Vec::new(),
        latest: Vec::new(),
        pages: 0,
        links: 0,
        targets: BTreeMap::new(),
        is_stopped,
    };
    merge(pieces, settings, workspace, &mut pages)?;
    pages.end_page()?;
    let PageMerger {
        sorter,
        list,
        outdegrees,
        pages,
        links,
        ..
    } = pages;
    list.finish()?;
    outdegrees.finish()?;

    let mut numbering = Numbering {
        urls: UrlsWriter::create(&workspace.file("urls.fc"))?,
        edges: Edges::create(&workspace.file("edges.pairs"))?,
        numbers: NumberWriter::create(&workspace.file("pages.u32"))?,
        outdegrees: NumberReader::open(&workspace.file("outdegrees.u32"))?,
        out: NumberWriter::create(&workspace.file("out.u32"))?,
        out_weight: NumberWriter::create(&workspace.file("out.f32"))?,
        incoming: NumberWriter::create(&workspace.file("in.u32"))?,
        in_weight: NumberWriter::create(&workspace.file("in.f32"))?,
        criterion: NumberWriter::create(&workspace.file("criterion.f32"))?,
        warm_rank: NumberWriter::create(&workspace.file("warm-rank.f32"))?,
        warm_interest: NumberWriter::create(&workspace.file("warm-interest.f32"))?,
        last: last_ranks.map(LastRanks::open).transpose()?,
        criteria,
        texts: MeasuredTexts::open(sources, workspace)?,
        sites: SiteEvidence::open(sources, &settings.perimeter)?,
        host: String::new(),
        site: SiteCriteria::default(),
        key: String::new(),
        url: String::new(),
        is_page: false,
        indegree: 0,
        count: 0,
        is_stopped,
    };
    let mut sink = LineSink::new(|line| numbering.take(line));
    let sorted = sorter.finish(&mut sink).map_err(RankError::from);
    sink.end(sorted)?;
    numbering.end_url()?;
    let urls = numbering.finish()?;
    Ok(GraphSize { urls, pages, links })
}

fn merge(
    pieces: &[LinkPiece<'_>],
    settings: &Settings,
    workspace: &Workspace,
    pages: &mut PageMerger<'_>,
) -> Result<(), RankError> {
    let options = MergeOptions {
        memory_bytes: settings.memory_bytes() / 2,
        // Each has a window for unpacking too.
        open_files: 16,
        ..MergeOptions::default()
    };
    let open = |piece: &LinkPiece<'_>| {
        let source = (piece.open)()?;
        let unpacked = zstd::Decoder::with_buffer(BufReader::new(source));
        let unpacked = unpacked.map_err(|source| {
            MergeError::Read(ReadError::Read {
                file: piece.name.clone(),
                offset: 0,
                source,
            })
        })?;
        Ok::<_, RankError>(LineSource::new(piece.name.clone(), Unpacked(unpacked)))
    };
    let mut sink = LineSink::new(|line| pages.take(line));
    let merged = merge_pieces(pieces, open, &mut sink, workspace.path(), &options);
    sink.end(merged)?;
    Ok(())
}

/// Says of bytes that cannot be unpacked that they are at fault, and not the machine.
struct Unpacked<Source>(Source);

impl<Source: Read> Read for Unpacked<Source> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let told = |error: io::Error| match error.raw_os_error() {
            Some(_) => error,
            None => io::Error::new(io::ErrorKind::InvalidData, error),
        };
        self.0.read(buffer).map_err(told)
    }
}

/// Takes the lines of all captures in order, and keeps the latest of each page.
struct PageMerger<'a> {
    sorter: Sorter,
    list: LinksWriter,
    outdegrees: NumberWriter,
    settings: &'a Settings,
    /// The latest line of the page that says what it links to.
    full: Vec<u8>,
    /// The latest line of the page.
    latest: Vec<u8>,
    pages: u64,
    links: u64,
    /// Targets of the page by their keys.
    targets: BTreeMap<String, String>,
    is_stopped: &'a dyn Fn() -> bool,
}

impl PageMerger<'_> {
    fn take(&mut self, line: &[u8]) -> Result<(), RankError> {
        if line == LINKS_HEADER.as_bytes() {
            return Ok(());
        }
        let key = |line: &[u8]| line.split(|byte| *byte == b'\t').next().map(<[u8]>::len);
        let is_same = match key(&self.latest) {
            Some(bytes) if bytes > 0 => line.get(..=bytes) == self.latest.get(..=bytes),
            _ => false,
        };
        if !is_same {
            self.end_page()?;
        }
        let page = page_of(line)?;
        if !page.is_unchanged() {
            self.full.clear();
            self.full.extend_from_slice(line);
        }
        self.latest.clear();
        self.latest.extend_from_slice(line);
        Ok(())
    }

    fn end_page(&mut self) -> Result<(), RankError> {
        if self.latest.is_empty() {
            return Ok(());
        }
        if self.pages.is_multiple_of(1024) && (self.is_stopped)() {
            return Err(RankError::Stopped);
        }
        let latest = std::mem::take(&mut self.latest);
        let full = std::mem::take(&mut self.full);
        let page = page_of(&latest)?;
        let page = match page.is_unchanged() && !full.is_empty() {
            true => page_of(&full)?.seen_again(page.time),
            false => page,
        };
        self.list.write(&page)?;
        self.targets.clear();
        for target in page.targets() {
            if self.settings.counts(target.kind)
                && let Some(key) = key_of(&target.url)
                && key != page.surt
            {
                match self.targets.entry(key) {
                    Entry::Vacant(free) => {
                        free.insert(target.url.into_owned());
                    }
                    Entry::Occupied(mut known) if *target.url < **known.get() => {
                        known.insert(target.url.into_owned());
                    }
                    Entry::Occupied(_) => {}
                }
            }
        }
        let mut line = Vec::new();
        push_entry(&mut line, page.surt, b'0', page.url, None);
        self.sorter.push(&line)?;
        let number = u32::try_from(self.pages).map_err(|_| RankError::TooMany)?;
        for (key, url) in &self.targets {
            push_entry(&mut line, key, b'1', url, Some(number));
            self.sorter.push(&line)?;
        }
        let outdegree = u32::try_from(self.targets.len()).unwrap_or(u32::MAX);
        self.outdegrees.count(outdegree)?;
        self.links += u64::from(outdegree);
        self.pages += 1;
        Ok(())
    }
}

/// Writes what is sorted: a key, a tab, whether it is a page or a target, the form of its URL, who links to it, and its URL.
fn push_entry(line: &mut Vec<u8>, key: &str, what: u8, url: &str, page: Option<u32>) {
    let (code, said) = url_code(key, url);
    line.clear();
    line.extend_from_slice(key.as_bytes());
    // The plainest form comes first.
    line.extend_from_slice(&[b'\t', what, b'0' + if code == 0 { 5 } else { code }]);
    if let Some(page) = page {
        let _ = write!(line, "{page:08x}");
    }
    line.extend_from_slice(said.as_bytes());
}

fn page_of(line: &[u8]) -> Result<PageLinks<'_>, RankError> {
    let text = std::str::from_utf8(line).ok();
    let page = text.and_then(|text| PageLinks::parse(text).ok());
    page.ok_or_else(|| {
        let excerpt: String = line.iter().take(60).map(|byte| *byte as char).collect();
        let reason = format!("a line of links makes no sense: {excerpt:?}");
        RankError::Parcel(Box::new(ecluse_stage::Failure::hold(reason)))
    })
}

/// Writes `links.tsv.zst` in frames, and `links.idx`.
struct LinksWriter {
    out: BufWriter<File>,
    index: BufWriter<File>,
    path: PathBuf,
    frame: Vec<u8>,
    /// The key of the first line of the frame; none while it has only the header.
    first: Option<String>,
    offset: u64,
}

impl LinksWriter {
    fn create(workspace: &Workspace) -> Result<Self, RankError> {
        let path = workspace.file(ecluse_links::LINKS_FILE);
        let index = workspace.file(ecluse_links::LINKS_INDEX);
        let create = |path: &Path| File::create(path).map_err(RankError::io("make", path));
        let mut frame = LINKS_HEADER.as_bytes().to_vec();
        frame.push(b'\n');
        Ok(Self {
            out: BufWriter::new(create(&path)?),
            index: BufWriter::new(create(&index)?),
            path,
            frame,
            first: None,
            offset: 0,
        })
    }

    fn write(&mut self, page: &PageLinks<'_>) -> Result<(), RankError> {
        self.first.get_or_insert_with(|| page.surt.to_owned());
        page.write(&mut self.frame);
        match self.frame.len() < FRAME_BYTES {
            true => Ok(()),
            false => self.end_frame(),
        }
    }

    fn end_frame(&mut self) -> Result<(), RankError> {
        let failed = |error| RankError::io("write", &self.path)(error);
        let packed = zstd::bulk::compress(&self.frame, 3).map_err(failed)?;
        self.out.write_all(&packed).map_err(failed)?;
        if let Some(first) = self.first.take() {
            writeln!(self.index, "{first}\t{}", self.offset).map_err(failed)?;
        }
        self.offset += packed.len() as u64;
        self.frame.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<(), RankError> {
        if !self.frame.is_empty() {
            self.end_frame()?;
        }
        let failed = |error| RankError::io("write", &self.path)(error);
        self.out.flush().map_err(failed)?;
        self.index.flush().map_err(failed)
    }
}

/// Pairs of a page that links and the URL it links to, in the order of the latter.
struct Edges {
    out: BufWriter<File>,
    path: PathBuf,
}

impl Edges {
    fn create(path: &Path) -> Result<Self, RankError> {
        let file = File::create(path).map_err(RankError::io("make", path))?;
        Ok(Self {
            out: BufWriter::with_capacity(128 << 10, file),
            path: path.to_owned(),
        })
    }

    fn push(&mut self, page: u32, target: u32) -> Result<(), RankError> {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&page.to_le_bytes());
        bytes[4..].copy_from_slice(&target.to_le_bytes());
        let written = self.out.write_all(&bytes);
        written.map_err(RankError::io("write", &self.path))
    }
}

/// The ranks of the last generation, read along.
struct LastRanks {
    reader: RankReader,
    key: String,
    rank: f32,
    interest: f32,
    is_ended: bool,
}

impl LastRanks {
    fn open(path: &Path) -> Result<Self, RankError> {
        Ok(Self {
            reader: RankReader::open(path)?,
            key: String::new(),
            rank: 0.0,
            interest: 0.0,
            is_ended: false,
        })
    }

    /// Returns rank and interest of a key that is above all asked for before; zeros where it is new.
    fn of(&mut self, key: &str) -> Result<(f32, f32), RankError> {
        while !self.is_ended && self.key.as_str() < key {
            match self.reader.next_record()? {
                Some(record) => {
                    self.key.clear();
                    self.key.push_str(record.surt);
                    (self.rank, self.interest) = (record.rank, record.interest);
                }
                None => self.is_ended = true,
            }
        }
        match self.key == key {
            true => Ok((self.rank, self.interest)),
            false => Ok((0.0, 0.0)),
        }
    }
}

/// Takes pages and targets in the order of their keys, and numbers them.
struct Numbering<'a> {
    urls: UrlsWriter,
    edges: Edges,
    /// The number of each page, in their order.
    numbers: NumberWriter,
    outdegrees: NumberReader,
    out: NumberWriter,
    out_weight: NumberWriter,
    incoming: NumberWriter,
    in_weight: NumberWriter,
    criterion: NumberWriter,
    warm_rank: NumberWriter,
    warm_interest: NumberWriter,
    last: Option<LastRanks>,
    criteria: &'a Criteria,
    texts: MeasuredTexts,
    sites: SiteEvidence<'a>,
    /// The last host and what is known of its site: most URLs have that of the one before.
    host: String,
    site: SiteCriteria,
    key: String,
    url: String,
    is_page: bool,
    indegree: u32,
    count: u64,
    is_stopped: &'a dyn Fn() -> bool,
}

impl Numbering<'_> {
    fn take(&mut self, line: &[u8]) -> Result<(), RankError> {
        let text = std::str::from_utf8(line).expect("it was written as text");
        let (key, rest) = text.split_once('\t').expect("it was written with a tab");
        if self.key != key {
            self.end_url()?;
            self.key.push_str(key);
        }
        let is_page = rest.starts_with('0');
        let code = (rest.as_bytes()[1] - b'0') % 5;
        let said = match is_page {
            true => &rest[2..],
            false => &rest[10..],
        };
        if self.url.is_empty() {
            url_of_code(key, code, said, &mut self.url);
        }
        if is_page {
            self.is_page = true;
            return Ok(());
        }
        let page = u32::from_str_radix(&rest[2..10], 16).expect("it was written so");
        let target = u32::try_from(self.count).map_err(|_| RankError::TooMany)?;
        self.indegree += 1;
        self.edges.push(page, target)
    }

    fn end_url(&mut self) -> Result<(), RankError> {
        if self.key.is_empty() {
            return Ok(());
        }
        if self.count.is_multiple_of(4096) && (self.is_stopped)() {
            return Err(RankError::Stopped);
        }
        if self.count >= MOST_URLS {
            return Err(RankError::TooMany);
        }
        self.urls.push(&self.key, &self.url)?;
        let mut outdegree = 0;
        if self.is_page {
            self.numbers.count(self.count as u32)?;
            outdegree = self.outdegrees.count()?;
        }
        let weight = |degree: u32| match degree {
            0 => 0.0,
            degree => 1.0 / degree as f32,
        };
        self.out.count(outdegree)?;
        self.out_weight.float(weight(outdegree))?;
        self.incoming.count(self.indegree)?;
        self.in_weight.float(weight(self.indegree))?;
        let text = self.texts.take(&self.key)?;
        if self.criteria.asks_sites() && host_of(&self.key) != self.host {
            host_of(&self.key).clone_into(&mut self.host);
            self.site = self.sites.of(&site_of(&self.key))?;
        }
        let worth = self.criteria.of(&self.key) + self.criteria.of_evidence(text, self.site);
        self.criterion.float(worth)?;
        let (rank, interest) = match &mut self.last {
            Some(last) => last.of(&self.key)?,
            None => (0.0, 0.0),
        };
        self.warm_rank.float(rank)?;
        self.warm_interest.float(interest)?;
        self.count += 1;
        self.key.clear();
        self.url.clear();
        (self.is_page, self.indegree) = (false, 0);
        Ok(())
    }

    fn finish(self) -> Result<u32, RankError> {
        let urls = u32::try_from(self.urls.finish()?).map_err(|_| RankError::TooMany)?;
        let mut edges = self.edges;
        let flushed = edges.out.flush();
        flushed.map_err(RankError::io("write", &edges.path))?;
        for numbers in [
            self.numbers,
            self.out,
            self.out_weight,
            self.incoming,
            self.in_weight,
            self.criterion,
            self.warm_rank,
            self.warm_interest,
        ] {
            numbers.finish()?;
        }
        self.texts.finish()?;
        Ok(urls)
    }
}
