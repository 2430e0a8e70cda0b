//! What belongs to the seeds of a job: a set of SURT prefixes of which few are in memory, however many seeds there are.
//!
//! Those added last are in memory. When they are many, they become a sorted file without a name; when there are many
//! files, they become one. A look-up reads one block of each file, and decides as if all were in one [`SurtSet`].

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use url::Url;

use super::{Reach, SurtMatch, SurtSet, find_prefix, host_of};

/// What the entries in memory may take, roughly.
const MEMORY_BYTES: usize = 4 << 20;
/// What an entry in memory takes beside its own bytes.
const ENTRY_BYTES: usize = 48;
/// With more files than this, all become one.
const MOST_RUNS: usize = 8;
/// A block ends with the entry that reaches this.
const BLOCK_BYTES: usize = 8 << 10;
/// Blocks kept at hand.
const KEPT_BLOCKS: usize = 64;

/// The set.
#[derive(Debug, Default)]
pub(crate) struct SeedSurts {
    recent: SurtSet,
    recent_bytes: usize,
    runs: Vec<Run>,
    /// Where files may be made; without it everything stays in memory.
    place: Option<RunPlace>,
    blocks: Mutex<KeptBlocks>,
}

/// Where files are made, and when.
#[derive(Debug)]
struct RunPlace {
    directory: PathBuf,
    memory_bytes: usize,
    /// Files made so far: by its number a run's blocks are known.
    made: usize,
}

/// A kind of entry, as files have it.
fn letter(reach: Reach) -> u8 {
    match reach {
        Reach::Domain => b'd',
        Reach::Host => b'h',
        Reach::Path => b'p',
        Reach::Page => b's',
    }
}

impl SeedSurts {
    /// Keeps what is more than a few megabytes in files of this directory, which have no names.
    pub(crate) fn keep_in(&mut self, directory: &Path) {
        self.keep_above(MEMORY_BYTES, directory);
    }

    fn keep_above(&mut self, memory_bytes: usize, directory: &Path) {
        self.place = Some(RunPlace {
            directory: directory.to_owned(),
            memory_bytes,
            made: 0,
        });
    }

    /// Adds what belongs to a seed.
    pub(crate) fn insert(&mut self, url: &Url, reach: Reach) -> io::Result<()> {
        let before = self.recent.len();
        self.recent.insert_seed(url, reach);
        let added = self.recent.len().saturating_sub(before);
        self.recent_bytes += added * (ENTRY_BYTES + url.as_str().len());
        match &self.place {
            Some(place) if self.recent_bytes > place.memory_bytes => self.put_down(),
            _ => Ok(()),
        }
    }

    /// Makes one file of all there are, so that a look-up reads one block.
    pub(crate) fn gather(&mut self) -> io::Result<()> {
        if self.runs.len() > 1 {
            self.merge()?;
        }
        Ok(())
    }

    /// Makes a file of what is in memory.
    fn put_down(&mut self) -> io::Result<()> {
        let Some(place) = &mut self.place else {
            return Ok(());
        };
        let mut entries = Vec::with_capacity(self.recent.len());
        let SurtSet {
            domains,
            hosts,
            prefixes,
            pages,
            with_www: _,
        } = std::mem::take(&mut self.recent);
        let mut take =
            |reach: Reach, entry: &[u8]| entries.push([&[letter(reach)], entry].concat());
        domains.iter().for_each(|entry| take(Reach::Domain, entry));
        hosts.iter().for_each(|entry| take(Reach::Host, entry));
        prefixes.iter().for_each(|entry| take(Reach::Path, entry));
        pages.iter().for_each(|entry| take(Reach::Page, entry));
        drop((domains, hosts, prefixes, pages));
        self.recent_bytes = 0;
        entries.sort_unstable();
        let mut out = RunWriter::create(place)?;
        entries.iter().try_for_each(|entry| out.push(entry))?;
        self.runs.push(out.finish()?);
        match self.runs.len() > MOST_RUNS {
            true => self.merge(),
            false => Ok(()),
        }
    }

    fn merge(&mut self) -> io::Result<()> {
        let Some(place) = &mut self.place else {
            return Ok(());
        };
        let mut out = RunWriter::create(place)?;
        let mut cursors = Vec::new();
        for run in &self.runs {
            cursors.push(Cursor::begin(run)?);
        }
        while let Some(least) = cursors.iter().filter_map(Cursor::entry).min() {
            out.push(least)?;
            let least = least.to_vec();
            for cursor in &mut cursors {
                if cursor.entry() == Some(&least) {
                    cursor.advance()?;
                }
            }
        }
        self.runs = vec![out.finish()?];
        Ok(())
    }

    /// Returns what a key is found by.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(crate) fn find<'a>(&self, key: &'a [u8]) -> io::Result<Option<SurtMatch<'a>>> {
        let host = host_of(key);
        if !host.is_empty() {
            let ends = host.iter().enumerate().filter(|(_, byte)| **byte == b',');
            let ends = ends.map(|(at, _)| at).chain([host.len()]);
            for end in ends {
                if self.has(Reach::Domain, &host[..end])? {
                    return Ok(Some(SurtMatch {
                        reach: Reach::Domain,
                        entry: &host[..end],
                    }));
                }
            }
            if self.has(Reach::Host, host)? {
                return Ok(Some(SurtMatch {
                    reach: Reach::Host,
                    entry: host,
                }));
            }
        }
        if let Some(bytes) = self.prefix_of(key)? {
            return Ok(Some(SurtMatch {
                reach: Reach::Path,
                entry: &key[..bytes],
            }));
        }
        let is_page = self.has(Reach::Page, key)?;
        Ok(is_page.then_some(SurtMatch {
            reach: Reach::Page,
            entry: key,
        }))
    }

    fn has(&self, reach: Reach, entry: &[u8]) -> io::Result<bool> {
        let is_recent = match reach {
            Reach::Domain => self.recent.domains.contains(entry),
            Reach::Host => self.recent.hosts.contains(entry),
            Reach::Path => self.recent.prefixes.contains(entry),
            Reach::Page => self.recent.pages.contains(entry),
        };
        if is_recent {
            return Ok(true);
        }
        for run in self.runs.iter().filter(|run| run.knows(reach)) {
            let wanted = [&[letter(reach)], entry].concat();
            let found = run.last_up_to(&wanted, &self.blocks, |found| found == wanted)?;
            if found == Some(true) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The length of the shortest entry that a key begins with.
    fn prefix_of(&self, key: &[u8]) -> io::Result<Option<usize>> {
        let mut shortest = find_prefix(&self.recent.prefixes, key).map(<[u8]>::len);
        for run in self.runs.iter().filter(|run| run.knows(Reach::Path)) {
            let wanted = [&[letter(Reach::Path)], key].concat();
            let found = run.last_up_to(&wanted, &self.blocks, |found| {
                wanted.starts_with(found).then_some(found.len() - 1)
            })?;
            let found = found.flatten();
            shortest = shortest.into_iter().chain(found).min();
        }
        Ok(shortest)
    }
}

/// A sorted file of entries, none of which is there twice; no path is the beginning of another.
#[derive(Debug)]
struct Run {
    number: usize,
    file: File,
    index: Index,
    /// How many entries of each kind there are, in the order of [`KINDS`].
    counts: [u64; KINDS.len()],
}

const KINDS: [Reach; 4] = [Reach::Domain, Reach::Host, Reach::Path, Reach::Page];

/// Where blocks begin, and their first entries.
#[derive(Debug, Default)]
struct Index {
    first: Vec<u8>,
    ends: Vec<(u32, u64)>,
}

impl Index {
    fn push(&mut self, first: &[u8], end: u64) {
        self.first.extend_from_slice(first);
        let bytes = u32::try_from(self.first.len()).unwrap_or(u32::MAX);
        self.ends.push((bytes, end));
    }

    fn first(&self, block: usize) -> &[u8] {
        let from = block.checked_sub(1).map_or(0, |before| self.ends[before].0);
        &self.first[from as usize..self.ends[block].0 as usize]
    }

    /// From where to where a block goes in the file.
    fn extent(&self, block: usize) -> (u64, usize) {
        let from = block.checked_sub(1).map_or(0, |before| self.ends[before].1);
        let bytes = self.ends[block].1 - from;
        (from, usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// The last block that begins with an entry up to this one.
    fn block_of(&self, entry: &[u8]) -> Option<usize> {
        let (mut low, mut high) = (0, self.ends.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.first(middle) <= entry {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low.checked_sub(1)
    }
}

/// Blocks read lately, each at the place its number chooses.
#[derive(Debug, Default)]
struct KeptBlocks(Vec<Option<KeptBlock>>);

#[derive(Debug, Clone)]
struct KeptBlock {
    run: usize,
    number: usize,
    bytes: Arc<[u8]>,
}

impl KeptBlocks {
    fn get(&mut self, run: &Run, number: usize) -> io::Result<Arc<[u8]>> {
        self.0.resize(KEPT_BLOCKS, None);
        let place = &mut self.0[(run.number.wrapping_mul(31) + number) % KEPT_BLOCKS];
        if let Some(kept) = place
            && kept.run == run.number
            && kept.number == number
        {
            return Ok(Arc::clone(&kept.bytes));
        }
        let bytes: Arc<[u8]> = run.block(number)?.into();
        *place = Some(KeptBlock {
            run: run.number,
            number,
            bytes: Arc::clone(&bytes),
        });
        Ok(bytes)
    }
}

impl Run {
    fn knows(&self, reach: Reach) -> bool {
        let mut kinds = KINDS.iter().zip(self.counts);
        kinds.any(|(kind, count)| *kind == reach && count > 0)
    }

    /// Gives the last entry that is not behind this one to `look`.
    fn last_up_to<Output>(
        &self,
        entry: &[u8],
        kept: &Mutex<KeptBlocks>,
        look: impl FnOnce(&[u8]) -> Output,
    ) -> io::Result<Option<Output>> {
        let Some(number) = self.index.block_of(entry) else {
            return Ok(None);
        };
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let block = kept.get(self, number)?;
        drop(kept);
        let mut last = None;
        let mut rest = &block[..];
        while let Some((found, behind)) = split_entry(rest) {
            if found > entry {
                break;
            }
            (last, rest) = (Some(found), behind);
        }
        Ok(last.map(look))
    }

    fn block(&self, number: usize) -> io::Result<Vec<u8>> {
        let (from, bytes) = self.index.extent(number);
        let mut block = vec![0; bytes];
        self.file.read_exact_at(&mut block, from)?;
        Ok(block)
    }
}

/// The first entry of a block, and what is behind it. In the file its length stands before it.
fn split_entry(block: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = block.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}

/// Goes through a run.
struct Cursor<'r> {
    run: &'r Run,
    next_block: usize,
    block: Vec<u8>,
    /// Where in the block the entry stands.
    at: usize,
}

impl<'r> Cursor<'r> {
    fn begin(run: &'r Run) -> io::Result<Self> {
        let mut cursor = Self {
            run,
            next_block: 0,
            block: Vec::new(),
            at: 0,
        };
        cursor.settle()?;
        Ok(cursor)
    }

    /// None at the end.
    fn entry(&self) -> Option<&[u8]> {
        split_entry(&self.block[self.at..]).map(|(entry, _)| entry)
    }

    fn advance(&mut self) -> io::Result<()> {
        self.at += 4 + self.entry().map_or(0, <[u8]>::len);
        self.settle()
    }

    fn settle(&mut self) -> io::Result<()> {
        if self.at >= self.block.len() && self.next_block < self.run.index.ends.len() {
            self.block = self.run.block(self.next_block)?;
            self.next_block += 1;
            self.at = 0;
        }
        Ok(())
    }
}

/// Writes a run, entry by entry in their order.
struct RunWriter {
    out: BufWriter<File>,
    number: usize,
    bytes: u64,
    block_begin: u64,
    first: Vec<u8>,
    last: Vec<u8>,
    index: Index,
    counts: [u64; KINDS.len()],
}

impl RunWriter {
    fn create(place: &mut RunPlace) -> io::Result<Self> {
        place.made += 1;
        Ok(Self {
            out: BufWriter::with_capacity(1 << 16, tempfile::tempfile_in(&place.directory)?),
            number: place.made,
            bytes: 0,
            block_begin: 0,
            first: Vec::new(),
            last: Vec::new(),
            index: Index::default(),
            counts: [0; KINDS.len()],
        })
    }

    fn push(&mut self, entry: &[u8]) -> io::Result<()> {
        let kind = KINDS
            .iter()
            .position(|kind| entry.first() == Some(&letter(*kind)));
        let kind = kind.expect("an entry begins with its kind");
        // What begins with a path that is there already is there with it.
        if KINDS[kind] == Reach::Path && !self.last.is_empty() && entry.starts_with(&self.last) {
            return Ok(());
        }
        let length = u32::try_from(entry.len()).map_err(io::Error::other)?;
        if self.block_begin == self.bytes {
            self.first = entry.to_vec();
        }
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(entry)?;
        self.bytes += 4 + u64::from(length);
        self.last.clear();
        self.last.extend_from_slice(entry);
        self.counts[kind] += 1;
        if self.bytes - self.block_begin >= BLOCK_BYTES as u64 {
            self.end_block();
        }
        Ok(())
    }

    fn end_block(&mut self) {
        if self.bytes > self.block_begin {
            self.index.push(&self.first, self.bytes);
            self.block_begin = self.bytes;
        }
    }

    fn finish(mut self) -> io::Result<Run> {
        self.end_block();
        let file = self
            .out
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        Ok(Run {
            number: self.number,
            file,
            index: self.index,
            counts: self.counts,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn urls() -> impl Strategy<Value = String> {
        "https?://(www\\.)?[ab]{1,2}(\\.[ab]{1,2}){0,2}\\.(fr|co\\.uk)(:81)?/([ab]{1,2}/){0,3}[ab]{0,2}(\\?[ab]{0,2})?"
    }

    fn reaches() -> impl Strategy<Value = Reach> {
        prop::sample::select(KINDS.to_vec())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn it_finds_what_a_set_in_memory_finds_and_by_the_same(
            seeds in prop::collection::vec((urls(), reaches()), 0..120),
            asked in prop::collection::vec(urls(), 1..60),
            memory_bytes in 100..3000_usize,
            gathered in any::<bool>(),
        ) {
            let mut set = SurtSet::default();
            let mut seed_surts = SeedSurts::default();
            seed_surts.keep_above(memory_bytes, &std::env::temp_dir());
            for (url, reach) in &seeds {
                let url = Url::parse(url).unwrap();
                set.insert_seed(&url, *reach);
                seed_surts.insert(&url, *reach).unwrap();
            }
            if gathered {
                seed_surts.gather().unwrap();
                prop_assert!(seed_surts.runs.len() <= 1);
            }
            prop_assert!(seed_surts.runs.len() <= MOST_RUNS);
            for url in asked.iter().chain(seeds.iter().map(|(url, _)| url)) {
                let key = ecluse_surt::Surt::of(url.as_bytes()).unwrap().into_bytes();
                prop_assert_eq!(seed_surts.find(&key).unwrap(), set.find(&key, url), "{}", url);
            }
        }
    }

    #[test]
    fn many_are_in_files_of_several_blocks_and_all_are_found() {
        let mut surts = SeedSurts::default();
        surts.keep_above(20_000, &std::env::temp_dir());
        let url = |number: u32| {
            let name = number.wrapping_mul(0x9e37_79b9);
            Url::parse(&format!("http://site-{name:08x}.example/")).unwrap()
        };
        for number in 0..5000 {
            surts
                .insert(&url(number), KINDS[number as usize % 4])
                .unwrap();
            assert!(surts.recent_bytes <= 20_000);
        }
        surts.gather().unwrap();
        assert!(surts.runs[0].index.ends.len() > 10);
        let found = |number: u32| {
            let key = super::super::key_of(&url(number));
            surts.find(&key).unwrap().map(|found| found.reach)
        };
        for number in 0..5000 {
            assert_eq!(found(number), Some(KINDS[number as usize % 4]), "{number}");
        }
        assert!((5000..10_000).all(|number| found(number).is_none()));
    }

    #[test]
    fn a_directory_that_is_not_there_is_an_error_and_nothing_is_forgotten_in_silence() {
        let mut surts = SeedSurts::default();
        surts.keep_above(10, Path::new("/nonexistent/of/course"));
        let url = Url::parse("http://lock.example/").unwrap();
        assert!(surts.insert(&url, Reach::Domain).is_err());
    }
}
