//! The slices of a graph: made of links that come sorted by target, or turned around.

use std::path::{Path, PathBuf};

use ecluse_links::{SLICE_PAGES, SliceHead, SlicePart, SliceWriter};

use crate::error::RankError;
use crate::pairs::PairSorter;
use crate::vector::NumberReader;

/// A graph as it lies on disk.
#[derive(Debug, Clone)]
pub struct GraphFiles {
    /// Where.
    pub directory: PathBuf,
    /// What its files begin with.
    pub name: &'static str,
    /// How many URLs there are.
    pub urls: u32,
    /// How many of them a slice owns.
    pub pages: u32,
}

impl GraphFiles {
    /// Returns how many slices there are.
    pub fn slices(&self) -> u32 {
        self.urls.div_ceil(self.pages)
    }

    /// Returns the URLs of a slice.
    pub fn range(&self, slice: u32) -> std::ops::Range<u32> {
        let begin = slice * self.pages;
        begin..begin.saturating_add(self.pages).min(self.urls)
    }

    /// Returns the file of a slice.
    pub fn file(&self, slice: u32, part: SlicePart) -> PathBuf {
        self.directory.join(part.file_name(self.name, slice))
    }

    /// Returns the names of all files.
    pub fn file_names(&self) -> impl Iterator<Item = String> + '_ {
        let parts = [SlicePart::External, SlicePart::Internal];
        (0..self.slices()).flat_map(move |slice| parts.map(|part| part.file_name(self.name, slice)))
    }
}

/// Writes the slices of a graph whose links come slice by slice of their targets, in any order inside a slice.
pub struct GraphWriter<'a> {
    graph: &'a GraphFiles,
    memory_bytes: usize,
    temporary: &'a Path,
    slice: u32,
    /// The links of the slice, as (source, target).
    links: PairSorter,
    /// The numbers of sources that are given by their places.
    numbers: Option<&'a Path>,
    /// All links by source, for the graph that is turned around.
    turned: Option<PairSorter>,
    total: u64,
}

impl<'a> GraphWriter<'a> {
    /// Begins to write all slices.
    ///
    /// # Panics
    /// When the graph has slices that are too large for their files.
    pub fn new(graph: &'a GraphFiles, memory_bytes: usize, temporary: &'a Path) -> Self {
        assert!(
            (1..=SLICE_PAGES).contains(&graph.pages),
            "a slice has between 1 and 2^20 URLs"
        );
        Self {
            graph,
            memory_bytes,
            temporary,
            slice: 0,
            links: PairSorter::new(memory_bytes / 4, temporary),
            numbers: None,
            turned: None,
            total: 0,
        }
    }

    /// Sources will be given by their places in a list of numbers, which ascend.
    #[must_use]
    pub fn numbered_by(self, numbers: &'a Path) -> Self {
        Self {
            numbers: Some(numbers),
            ..self
        }
    }

    /// Gathers all links by source too; [`GraphWriter::finish`] gives them back.
    #[must_use]
    pub fn turning(self) -> Self {
        let turned = PairSorter::new(self.memory_bytes / 2, self.temporary);
        Self {
            turned: Some(turned),
            ..self
        }
    }

    /// Adds a link.
    ///
    /// # Errors
    /// When something cannot be written.
    pub fn push(&mut self, source: u32, target: u32) -> Result<(), RankError> {
        while target >= self.graph.range(self.slice).end {
            self.end_slice()?;
        }
        self.links.push(source, target)
    }

    /// Writes the slices that are left; returns how many links there are, and the links as (source, target) if they were gathered.
    ///
    /// # Errors
    /// When something cannot be written.
    pub fn finish(mut self) -> Result<(u64, Option<PairSorter>), RankError> {
        while self.slice < self.graph.slices() {
            self.end_slice()?;
        }
        Ok((self.total, self.turned))
    }

    fn end_slice(&mut self) -> Result<(), RankError> {
        let range = self.graph.range(self.slice);
        let head = |part| SliceHead {
            slice: self.slice,
            pages: self.graph.pages,
            urls: self.graph.urls,
            links: 0,
            part,
        };
        let create = |part| SliceWriter::create(&self.graph.file(self.slice, part), head(part));
        let mut external = create(SlicePart::External)?;
        let mut inside = PairSorter::new(self.memory_bytes / 4, self.temporary);
        let fresh = PairSorter::new(self.memory_bytes / 4, self.temporary);
        let links = std::mem::replace(&mut self.links, fresh);
        let mut numbers = self.numbers.map(NumberedSources::open).transpose()?;
        let turned = &mut self.turned;
        links.finish(|source, target| {
            let source = match &mut numbers {
                Some(numbers) => numbers.of(source)?,
                None => source,
            };
            if let Some(turned) = turned {
                turned.push(source, target)?;
            }
            if range.contains(&source) {
                return inside.push(target, source);
            }
            Ok(external.push(source, target)?)
        })?;
        self.total += external.finish()?;
        let mut internal = create(SlicePart::Internal)?;
        inside.finish(|target, source| Ok(internal.push(source, target)?))?;
        self.total += internal.finish()?;
        self.slice += 1;
        Ok(())
    }
}

/// The numbers of sources, asked for in order.
struct NumberedSources {
    reader: NumberReader,
    /// The place that was read last, and one more.
    read: u64,
    number: u32,
}

impl NumberedSources {
    fn open(path: &Path) -> Result<Self, RankError> {
        Ok(Self {
            reader: NumberReader::open(path)?,
            read: 0,
            number: 0,
        })
    }

    fn of(&mut self, place: u32) -> Result<u32, RankError> {
        while self.read <= u64::from(place) {
            self.number = self.reader.count()?;
            self.read += 1;
        }
        Ok(self.number)
    }
}
