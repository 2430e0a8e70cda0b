//! Every name once, with its origins, in order, in bounded memory.
//!
//! Names go to one of 256 partitions by their hash: to memory first, to a file without a name when the memory is used up. At the end
//! each partition is read into a table, which is small enough for the processor's cache to hold most of it, and a name that comes
//! again becomes one; its names are sorted and written as a run. Then the runs are merged.
//! `docs/decisions/0015-names-by-partitions.md` says why it is done so.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ecluse_names::NameFlags;
use twox_hash::XxHash3_64;

/// How many sources a run can have.
pub(crate) const SOURCES: usize = 64;
/// Names that no source gave.
const NOBODY: u8 = u8::MAX;
/// How many partitions names are dealt to.
const PARTITIONS: usize = 256;

/// Takes names in any order and gives each once, in order.
pub(crate) struct Gatherer {
    temporary: PathBuf,
    memory_bytes: usize,
    partitions: Vec<Partition>,
    /// What did not fit into memory, in blocks of one partition each.
    spilled: Option<File>,
    spilled_bytes: u64,
}

/// The names of one hash in 256, as they came.
#[derive(Default)]
struct Partition {
    records: Vec<u8>,
    blocks: Vec<Extent>,
}

/// A part of a file.
#[derive(Debug, Clone, Copy)]
struct Extent {
    offset: u64,
    bytes: u64,
}

/// A name with all that is known of it.
pub(crate) struct NameOrigins<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) flags: NameFlags,
    /// Source and number of lines, in order of the source.
    pub(crate) origins: &'a [(u8, u32)],
}

impl Gatherer {
    /// Returns one without names that takes about this much memory.
    pub(crate) fn new(memory_bytes: usize, temporary: &Path) -> Self {
        Self {
            temporary: temporary.to_owned(),
            memory_bytes,
            partitions: (0..PARTITIONS).map(|_| Partition::default()).collect(),
            spilled: None,
            spilled_bytes: 0,
        }
    }

    /// Takes a name of a source.
    pub(crate) fn add(&mut self, key: &[u8], flags: NameFlags, source: u8) -> io::Result<()> {
        // Half of the memory is the table's.
        let most = (self.memory_bytes / 2 / PARTITIONS).max(RECORD_BYTES);
        let place = (hash_of(key) >> 56) as usize;
        let records = &mut self.partitions[place].records;
        if records.capacity() == 0 {
            records.reserve_exact(most.min(4 << 10));
        }
        if records.len() + 4 + key.len() > most {
            self.spill(place)?;
        }
        let records = &mut self.partitions[place].records;
        let bytes = u8::try_from(key.len()).expect("a name has 253 bytes at most");
        let [low, high] = flags.bits().to_le_bytes();
        records.extend_from_slice(&[bytes, source, low, high]);
        records.extend_from_slice(key);
        Ok(())
    }

    /// Takes a name that no source need have.
    pub(crate) fn add_forced(&mut self, key: &[u8], flags: NameFlags) -> io::Result<()> {
        self.add(key, flags, NOBODY)
    }

    /// Writes what a partition has in memory behind what was spilled before.
    fn spill(&mut self, place: usize) -> io::Result<()> {
        let partition = &mut self.partitions[place];
        let file = match &mut self.spilled {
            Some(file) => file,
            none => none.insert(tempfile::tempfile_in(&self.temporary)?),
        };
        file.write_all(&partition.records)?;
        let bytes = partition.records.len() as u64;
        partition.blocks.push(Extent {
            offset: self.spilled_bytes,
            bytes,
        });
        self.spilled_bytes += bytes;
        partition.records.clear();
        Ok(())
    }

    /// Gives every name once, in order of its key.
    pub(crate) fn finish(
        self,
        see: &mut dyn FnMut(&NameOrigins<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut table = NameTable::new(self.memory_bytes / 2);
        let mut runs = RunFile::new(&self.temporary)?;
        let mut block = Vec::new();
        for partition in self.partitions {
            for extent in &partition.blocks {
                let file = self.spilled.as_ref().ok_or_else(cut_short)?;
                block.resize(usize::try_from(extent.bytes).map_err(io::Error::other)?, 0);
                file.read_exact_at(&mut block, extent.offset)?;
                table.take(&block, &mut runs)?;
            }
            table.take(&partition.records, &mut runs)?;
            table.empty_into(&mut runs)?;
        }
        drop(table);
        let (file, extents) = runs.finish()?;
        merge(&file, &extents, self.memory_bytes / 2, see)
    }
}

/// The names of a partition, each once.
struct NameTable {
    most_names: usize,
    most_key_bytes: usize,
    keys: Vec<u8>,
    names: Vec<Gathered>,
    /// Further origins of names that have several.
    origins: Vec<Origin>,
    slots: Vec<Slot>,
    order: Vec<SortEntry>,
}

/// A name in memory.
#[derive(Clone, Copy)]
struct Gathered {
    key: u32,
    key_bytes: u8,
    source: u8,
    flags: u16,
    count: u32,
    /// One more than the place of the next origin; 0 for none.
    more: u32,
}

#[derive(Clone, Copy)]
struct Origin {
    source: u8,
    count: u32,
    more: u32,
}

/// A place of the table: part of the hash, and one more than the place of the name; 0 for none.
#[derive(Clone, Copy, Default)]
struct Slot {
    tag: u32,
    name: u32,
}

/// What a name takes in memory: itself, its slots at the lowest load, its place in the sort, and some further origins.
const NAME_BYTES: usize = size_of::<Gathered>()
    + 4 * size_of::<Slot>()
    + size_of::<SortEntry>()
    + size_of::<Origin>() / 2;
/// What keys take on average.
const KEY_BYTES: usize = 24;

impl NameTable {
    fn new(memory_bytes: usize) -> Self {
        // Places are kept in 32 bits.
        let most_names = (memory_bytes / (NAME_BYTES + KEY_BYTES)).clamp(64, 100_000_000);
        Self {
            most_names,
            most_key_bytes: (most_names * KEY_BYTES).max(1 << 10),
            keys: Vec::new(),
            names: Vec::new(),
            origins: Vec::new(),
            slots: vec![Slot::default(); 64],
            order: Vec::new(),
        }
    }

    /// Takes the records of a partition; when the table is full it is emptied as a run.
    fn take(&mut self, mut records: &[u8], runs: &mut RunFile) -> io::Result<()> {
        while let Some((&[bytes, source, low, high], rest)) = records.split_first_chunk::<4>() {
            let (key, rest) = rest
                .split_at_checked(usize::from(bytes))
                .ok_or_else(cut_short)?;
            if self.is_full(key.len()) {
                self.empty_into(runs)?;
            }
            self.put(key, u16::from_le_bytes([low, high]), source);
            records = rest;
        }
        Ok(())
    }

    fn is_full(&self, key_bytes: usize) -> bool {
        !self.names.is_empty()
            && (self.names.len() >= self.most_names
                || self.keys.len() + key_bytes > self.most_key_bytes
                || self.origins.len() >= self.most_names)
    }

    fn put(&mut self, key: &[u8], flags: u16, source: u8) {
        let count = u32::from(source != NOBODY);
        let hash = hash_of(key);
        let tag = (hash >> 24) as u32;
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot.name == 0 {
                break;
            }
            if slot.tag == tag {
                let place = slot.name as usize - 1;
                if self.key(&self.names[place]) == key {
                    self.join(place, flags, source, count);
                    return;
                }
            }
            at = (at + 1) & mask;
        }
        self.names.push(Gathered {
            key: narrow(self.keys.len()),
            key_bytes: u8::try_from(key.len()).expect("a name has 253 bytes at most"),
            source,
            flags,
            count,
            more: 0,
        });
        self.keys.extend_from_slice(key);
        self.slots[at] = Slot {
            tag,
            name: narrow(self.names.len()),
        };
        if self.names.len() * 2 > self.slots.len() {
            self.grow();
        }
    }

    /// Adds what another line says of a name that is there.
    fn join(&mut self, place: usize, flags: u16, source: u8, count: u32) {
        let name = &mut self.names[place];
        name.flags |= flags;
        if name.source == source || source == NOBODY {
            name.count = name.count.saturating_add(count);
            return;
        }
        if name.source == NOBODY {
            (name.source, name.count) = (source, count);
            return;
        }
        let mut more = name.more;
        while more != 0 {
            let origin = &mut self.origins[more as usize - 1];
            if origin.source == source {
                origin.count = origin.count.saturating_add(count);
                return;
            }
            more = origin.more;
        }
        self.origins.push(Origin {
            source,
            count,
            more: name.more,
        });
        name.more = narrow(self.origins.len());
    }

    fn key(&self, name: &Gathered) -> &[u8] {
        &self.keys[name.key as usize..][..usize::from(name.key_bytes)]
    }

    fn grow(&mut self) {
        let slots = self.slots.len() * 2;
        self.slots.clear();
        self.slots.resize(slots, Slot::default());
        for place in 0..self.names.len() {
            let hash = hash_of(self.key(&self.names[place]));
            let mut at = hash as usize & (slots - 1);
            while self.slots[at].name != 0 {
                at = (at + 1) & (slots - 1);
            }
            self.slots[at] = Slot {
                tag: (hash >> 24) as u32,
                name: narrow(place + 1),
            };
        }
    }

    /// Writes its names in order as a run, and begins again.
    fn empty_into(&mut self, runs: &mut RunFile) -> io::Result<()> {
        if self.names.is_empty() {
            return Ok(());
        }
        let mut order = std::mem::take(&mut self.order);
        let entries = self.names.iter().enumerate();
        order.extend(entries.map(|(place, name)| SortEntry::of(self.key(name), narrow(place))));
        let key = |entry: &SortEntry| self.key(&self.names[entry.name as usize]);
        order.sort_unstable_by(|left, right| {
            left.head()
                .cmp(&right.head())
                .then_with(|| key(left).cmp(key(right)))
        });
        let mut origins = Vec::new();
        for entry in &order {
            let name = &self.names[entry.name as usize];
            origins.clear();
            if name.source != NOBODY {
                origins.push((name.source, name.count));
            }
            let mut more = name.more;
            while more != 0 {
                let origin = self.origins[more as usize - 1];
                origins.push((origin.source, origin.count));
                more = origin.more;
            }
            origins.sort_unstable();
            runs.write(self.key(name), name.flags, &origins)?;
        }
        runs.end_run();
        order.clear();
        self.order = order;
        self.keys.clear();
        self.names.clear();
        self.origins.clear();
        self.slots.fill(Slot::default());
        Ok(())
    }
}

/// A name to be sorted, with as much of its key as decides nearly always.
///
/// A key has forty different bytes, the end among them, so twelve of them fit into 64 bits and six into 32: the last label is in the
/// one, what comes after it in the other.
#[derive(Clone, Copy)]
struct SortEntry {
    rest: u64,
    last_label: u32,
    name: u32,
}

impl SortEntry {
    fn of(key: &[u8], name: u32) -> Self {
        let end = memchr::memchr(b',', key).unwrap_or(key.len());
        let (last_label, rest) = key.split_at(end);
        // A last label of six bytes looks like the beginning of a longer one: what follows must not decide.
        let is_short = end < 6;
        Self {
            last_label: pack(last_label, 6) as u32,
            rest: if is_short {
                pack(rest.get(1..).unwrap_or_default(), 12)
            } else {
                0
            },
            name,
        }
    }

    fn head(&self) -> (u32, u64) {
        (self.last_label, self.rest)
    }
}

/// Returns the first bytes of a key as a number with forty digits, in the order of the bytes.
fn pack(bytes: &[u8], most: usize) -> u64 {
    let mut number = 0;
    for at in 0..most {
        let digit = bytes.get(at).map_or(0, |byte| DIGITS[usize::from(*byte)]);
        number = number * 40 + u64::from(digit);
    }
    number
}

const DIGITS: [u8; 256] = digits();

const fn digits() -> [u8; 256] {
    let mut digits = [0; 256];
    let bytes = *b",-0123456789_abcdefghijklmnopqrstuvwxyz";
    let mut at = 0;
    while at < bytes.len() {
        digits[bytes[at] as usize] = at as u8 + 1;
        at += 1;
    }
    digits
}

fn hash_of(key: &[u8]) -> u64 {
    XxHash3_64::oneshot(key)
}

fn narrow(place: usize) -> u32 {
    u32::try_from(place).expect("the limits keep every place below 4 G")
}

/// A record of a run takes no more than this.
const RECORD_BYTES: usize = 4 + 255 + 5 * SOURCES;

/// Runs are written in pieces of about this size.
const PIECE_BYTES: usize = 256 << 10;

/// Runs, one behind the other in a file without a name.
struct RunFile {
    file: File,
    /// What is not in the file yet.
    unwritten: Vec<u8>,
    written: u64,
    begun: u64,
    extents: Vec<Extent>,
}

impl RunFile {
    fn new(temporary: &Path) -> io::Result<Self> {
        Ok(Self {
            file: tempfile::tempfile_in(temporary)?,
            unwritten: Vec::with_capacity(PIECE_BYTES + RECORD_BYTES),
            written: 0,
            begun: 0,
            extents: Vec::new(),
        })
    }

    fn write(&mut self, key: &[u8], flags: u16, origins: &[(u8, u32)]) -> io::Result<()> {
        let bytes = u8::try_from(key.len()).expect("a name has 253 bytes at most");
        let number = u8::try_from(origins.len()).expect("a run has 64 sources at most");
        let [low, high] = flags.to_le_bytes();
        self.unwritten
            .extend_from_slice(&[bytes, number, low, high]);
        self.unwritten.extend_from_slice(key);
        for (source, count) in origins {
            let [a, b, c, d] = count.to_le_bytes();
            self.unwritten.extend_from_slice(&[*source, a, b, c, d]);
        }
        self.written += 4 + key.len() as u64 + 5 * origins.len() as u64;
        if self.unwritten.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all(&self.unwritten)?;
        self.unwritten.clear();
        Ok(())
    }

    fn end_run(&mut self) {
        self.extents.push(Extent {
            offset: self.begun,
            bytes: self.written - self.begun,
        });
        self.begun = self.written;
    }

    fn finish(mut self) -> io::Result<(File, Vec<Extent>)> {
        self.flush()?;
        Ok((self.file, self.extents))
    }
}

/// A run being read, at one of its names.
struct Run<'a> {
    file: &'a File,
    rest: Extent,
    block: Vec<u8>,
    start: usize,
    end: usize,
    /// Where the record of the name is in the block.
    record: usize,
    key_bytes: usize,
}

impl<'a> Run<'a> {
    fn open(file: &'a File, rest: Extent, block_bytes: usize) -> Self {
        Self {
            file,
            rest,
            block: vec![0; block_bytes],
            start: 0,
            end: 0,
            record: 0,
            key_bytes: 0,
        }
    }

    fn key(&self) -> &[u8] {
        &self.block[self.record + 4..][..self.key_bytes]
    }

    fn flags(&self) -> u16 {
        u16::from_le_bytes([self.block[self.record + 2], self.block[self.record + 3]])
    }

    fn origins(&self) -> impl Iterator<Item = (u8, u32)> {
        let origins = &self.block[self.record + 4 + self.key_bytes..self.start];
        origins.chunks_exact(5).map(|origin| {
            let count = [origin[1], origin[2], origin[3], origin[4]];
            (origin[0], u32::from_le_bytes(count))
        })
    }

    /// Goes to the next name; tells whether there is one.
    fn advance(&mut self) -> io::Result<bool> {
        if self.end - self.start < RECORD_BYTES && self.rest.bytes > 0 {
            self.fill()?;
        }
        let block = &self.block[self.start..self.end];
        let Some((head, rest)) = block.split_first_chunk::<4>() else {
            return if block.is_empty() {
                Ok(false)
            } else {
                Err(cut_short())
            };
        };
        let (key_bytes, origins) = (usize::from(head[0]), usize::from(head[1]));
        if rest.len() < key_bytes + 5 * origins {
            return Err(cut_short());
        }
        self.record = self.start;
        self.key_bytes = key_bytes;
        self.start += 4 + key_bytes + 5 * origins;
        Ok(true)
    }

    fn fill(&mut self) -> io::Result<()> {
        self.block.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let room = self.block.len() - self.end;
        let bytes = usize::try_from(self.rest.bytes).map_or(room, |bytes| bytes.min(room));
        let part = &mut self.block[self.end..self.end + bytes];
        self.file.read_exact_at(part, self.rest.offset)?;
        self.end += bytes;
        self.rest.offset += bytes as u64;
        self.rest.bytes -= bytes as u64;
        Ok(())
    }
}

fn cut_short() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "a temporary file is cut short",
    )
}

/// Merges runs; names that are in several become one.
fn merge(
    file: &File,
    extents: &[Extent],
    memory_bytes: usize,
    see: &mut dyn FnMut(&NameOrigins<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let block_bytes = (memory_bytes / extents.len().max(1)).clamp(2 * RECORD_BYTES, 256 << 10);
    let runs = extents
        .iter()
        .map(|extent| Run::open(file, *extent, block_bytes));
    let mut contest = Contest::begin(runs.collect())?;
    let (mut key, mut origins): (Vec<u8>, Vec<(u8, u32)>) = Default::default();
    while let Some(run) = contest.first() {
        key.clear();
        key.extend_from_slice(run.key());
        let head = contest.head();
        origins.clear();
        let mut flags = 0;
        while let Some(run) = contest.first()
            && contest.head() == head
            && run.key() == key
        {
            flags |= run.flags();
            for origin in run.origins() {
                match origins.iter_mut().find(|(source, _)| *source == origin.0) {
                    Some((_, count)) => *count = count.saturating_add(origin.1),
                    None => origins.push(origin),
                }
            }
            contest.advance()?;
        }
        origins.sort_unstable();
        see(&NameOrigins {
            key: &key,
            flags: NameFlags::from_bits(flags),
            origins: &origins,
        })?;
    }
    Ok(())
}

/// Runs that compete for who has the smallest name: a tree of losers, in which a run that goes on meets only those that lost on its
/// way, one for each doubling of the runs.
struct Contest<'a> {
    runs: Vec<Run<'a>>,
    /// The head of each run's key; a run that is over, or is none, comes after every other.
    heads: Vec<u128>,
    /// At each node the run that lost there; at 0 the one that lost nowhere. The leaves come after the nodes and are not kept.
    losers: Vec<u32>,
}

/// The head of a run that is over.
const OVER: u128 = u128::MAX;

impl<'a> Contest<'a> {
    fn begin(mut runs: Vec<Run<'a>>) -> io::Result<Self> {
        let leaves = runs.len().next_power_of_two();
        let mut heads = vec![OVER; leaves];
        for (head, run) in heads.iter_mut().zip(&mut runs) {
            if run.advance()? {
                *head = head_of(run.key());
            }
        }
        let mut contest = Self {
            runs,
            heads,
            losers: vec![0; leaves],
        };
        // The winners below each node, from the leaves up.
        let mut winners: Vec<u32> = vec![0; 2 * leaves];
        for leaf in 0..leaves {
            winners[leaves + leaf] = narrow(leaf);
        }
        for node in (1..leaves).rev() {
            let (left, right) = (winners[2 * node], winners[2 * node + 1]);
            let is_left = contest.is_before(left, right);
            winners[node] = if is_left { left } else { right };
            contest.losers[node] = if is_left { right } else { left };
        }
        contest.losers[0] = winners[1];
        Ok(contest)
    }

    /// Returns the run with the smallest name.
    fn first(&self) -> Option<&Run<'a>> {
        self.runs
            .get(self.losers[0] as usize)
            .filter(|_| self.head() != OVER)
    }

    /// Returns the head of that name.
    fn head(&self) -> u128 {
        self.heads[self.losers[0] as usize]
    }

    /// Lets that run go to its next name.
    fn advance(&mut self) -> io::Result<()> {
        let mut winner = self.losers[0];
        let run = &mut self.runs[winner as usize];
        self.heads[winner as usize] = match run.advance()? {
            true => head_of(run.key()),
            false => OVER,
        };
        let mut node = (self.losers.len() + winner as usize) / 2;
        while node > 0 {
            let other = self.losers[node];
            let is_other = self.is_before(other, winner);
            self.losers[node] = if is_other { winner } else { other };
            winner = if is_other { other } else { winner };
            node /= 2;
        }
        self.losers[0] = winner;
        Ok(())
    }

    fn is_before(&self, left: u32, right: u32) -> bool {
        let (a, b) = (self.heads[left as usize], self.heads[right as usize]);
        if a == b && a != OVER {
            return self.runs[left as usize].key() < self.runs[right as usize].key();
        }
        a < b
    }
}

fn head_of(key: &[u8]) -> u128 {
    let (last_label, rest) = SortEntry::of(key, 0).head();
    u128::from(last_label) << 64 | u128::from(rest)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    type Told = (u16, BTreeMap<u8, u32>);
    type Seen = BTreeMap<Vec<u8>, Told>;

    fn gathered(lines: &[(String, u8, u16)], memory_bytes: usize) -> Vec<(Vec<u8>, Told)> {
        let mut gatherer = Gatherer::new(memory_bytes, &std::env::temp_dir());
        for (key, source, flags) in lines {
            let flags = NameFlags::from_bits(*flags);
            if *source == NOBODY {
                gatherer.add_forced(key.as_bytes(), flags).unwrap();
            } else {
                gatherer.add(key.as_bytes(), flags, *source).unwrap();
            }
        }
        let mut seen = Vec::new();
        gatherer
            .finish(&mut |name| {
                let origins = name.origins.iter().copied().collect();
                seen.push((name.key.to_vec(), (name.flags.bits(), origins)));
                Ok(())
            })
            .unwrap();
        seen
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn every_name_comes_once_in_order_whatever_the_memory(
            lines in prop::collection::vec(
                (
                    prop_oneof![
                        "(fr|com|property|properties|proper|x)(,[a-c_0-]{1,2}){1,3}",
                        "fr,aaaaaaaaaa[a-c]{1,8}",
                    ],
                    prop_oneof![0u8..64, Just(NOBODY)],
                    0u16..16,
                ),
                0..600,
            ),
            memory_bytes in prop_oneof![Just(0usize), Just(200_000), Just(10_000_000)],
        ) {
            let mut expected = Seen::new();
            for (key, source, flags) in &lines {
                let (seen, origins) = expected.entry(key.clone().into_bytes()).or_default();
                *seen |= flags;
                if *source != NOBODY {
                    *origins.entry(*source).or_default() += 1;
                }
            }
            prop_assert_eq!(gathered(&lines, memory_bytes), expected.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn memory_stays_under_the_limit_and_what_is_spilled_comes_back() {
        let memory_bytes = 1 << 20;
        let mut gatherer = Gatherer::new(memory_bytes, &std::env::temp_dir());
        for number in 0..250_000u32 {
            let key = format!("fr,name-{:06x}", number.wrapping_mul(0x9e37_79b9) >> 8);
            gatherer
                .add(key.as_bytes(), NameFlags::NONE, (number % 3) as u8)
                .unwrap();
        }
        let held = gatherer.partitions.iter();
        let held: usize = held.map(|partition| partition.records.capacity()).sum();
        assert!(held <= memory_bytes, "{held} bytes");
        assert!(gatherer.spilled_bytes > 0);
        let (mut lines, mut last) = (0, Vec::new());
        gatherer
            .finish(&mut |name| {
                let counts = name.origins.iter().map(|origin| u64::from(origin.1));
                lines += counts.sum::<u64>();
                assert!(last.as_slice() < name.key);
                last = name.key.to_vec();
                Ok(())
            })
            .unwrap();
        assert_eq!(lines, 250_000);
    }

    #[test]
    fn a_table_that_is_full_goes_on_in_another_run() {
        let temporary = std::env::temp_dir();
        let mut runs = RunFile::new(&temporary).unwrap();
        let mut table = NameTable::new(0);
        let mut records = Vec::new();
        for number in 0..1_000u32 {
            let key = format!("fr,name-{:03}", number % 300);
            records.extend_from_slice(&[key.len() as u8, (number % 2) as u8, 0, 0]);
            records.extend_from_slice(key.as_bytes());
        }
        table.take(&records, &mut runs).unwrap();
        table.empty_into(&mut runs).unwrap();
        let (file, extents) = runs.finish().unwrap();
        assert!(extents.len() > 3);
        let (mut names, mut lines) = (0, 0);
        merge(&file, &extents, 0, &mut |name| {
            names += 1;
            lines += name.origins.iter().map(|origin| origin.1).sum::<u32>();
            Ok(())
        })
        .unwrap();
        assert_eq!((names, lines), (300, 1_000));
    }
}
