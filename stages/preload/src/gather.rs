//! Every name once, with its origins, in order, in bounded memory.
//!
//! Names are dealt twice. First to partitions by their hash: each is read into a table, which is small enough for the processor's
//! cache, and a name that comes again becomes a count. What a table holds is dealt again, to ranges of keys. Each range is sorted and
//! given, and one range behind the other is the order of all. The names of the first table say where the ranges begin: a part of
//! the hashes is a fair sample of the keys, however the lists are sorted.
//! `docs/decisions/0026-names-by-hash-then-by-range.md` says why it is done so.

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
/// In a partition, with a source: what follows is of a list that stands there from an earlier run.
const STANDING: u8 = 0x80;
/// Among the flags of a name, where [`NameFlags`] has none: a list or a rule of this run gives it.
const GIVEN: u16 = 1 << 15;
/// How many partitions names are dealt to by their hash, as a power of two.
const PARTITION_BITS: u32 = 10;
/// A range has about this many bytes: the cache should hold it.
const RANGE_BYTES: u64 = 1 << 20;
/// How many ranges there are at most, unless memory is short.
const RANGES: u64 = 1 << 10;
/// The longest key.
const KEY_BYTES: usize = 253;
/// What a name and its origins take at most.
const RECORD_BYTES: usize = 4 + KEY_BYTES + 6 * SOURCES;

/// Takes names in any order and gives each once, in order.
pub(crate) struct Gatherer {
    temporary: PathBuf,
    memory_bytes: usize,
    /// Names as they came, by their hash.
    partitions: Deal,
    /// The source that was told last in each partition.
    told: Vec<u8>,
}

/// A name with all that is known of it.
pub(crate) struct NameOrigins<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) flags: NameFlags,
    /// Source and number of lines, in order of the source.
    pub(crate) origins: &'a [(u8, u32)],
    /// A list of this run or a rule gives it; else only lists that stand there from earlier runs have it.
    pub(crate) is_given: bool,
}

/// In a partition, before a key: what follows is of another source than what came before.
const OTHER_SOURCE: u8 = 254;
/// In a partition, before a key: two bytes of flags.
const WITH_FLAGS: u8 = 255;

impl Gatherer {
    /// Returns one without names that takes about this much memory.
    pub(crate) fn new(memory_bytes: usize, temporary: &Path) -> Self {
        let partitions = 1 << PARTITION_BITS;
        Self {
            temporary: temporary.to_owned(),
            memory_bytes,
            // A quarter is the table's, and a quarter the ranges'.
            partitions: Deal::new(partitions, memory_bytes / 2, temporary),
            told: vec![NOBODY; partitions],
        }
    }

    /// Takes a name of a source.
    pub(crate) fn add(&mut self, key: &[u8], flags: NameFlags, source: u8) -> io::Result<()> {
        let place = (hash_of(key) >> (64 - PARTITION_BITS)) as usize;
        let records = self.partitions.room(place, 6 + key.len())?;
        if self.told[place] != source {
            self.told[place] = source;
            records.extend_from_slice(&[OTHER_SOURCE, source]);
        }
        if flags != NameFlags::NONE {
            let [low, high] = flags.bits().to_le_bytes();
            records.extend_from_slice(&[WITH_FLAGS, low, high]);
        }
        records.push(key_length(key));
        records.extend_from_slice(key);
        Ok(())
    }

    /// Takes a name of a list that stands there from an earlier run.
    pub(crate) fn add_standing(
        &mut self,
        key: &[u8],
        flags: NameFlags,
        source: u8,
    ) -> io::Result<()> {
        self.add(key, flags, source | STANDING)
    }

    /// Takes a name that no source need have.
    pub(crate) fn add_forced(&mut self, key: &[u8], flags: NameFlags) -> io::Result<()> {
        self.add(key, flags, NOBODY)
    }

    /// Gives every name once, in order of its key.
    pub(crate) fn finish(
        self,
        see: &mut dyn FnMut(&NameOrigins<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let Self {
            temporary,
            memory_bytes,
            mut partitions,
            ..
        } = self;
        let wanted = wanted_ranges(partitions.bytes(), memory_bytes);
        let mut table = NameTable::new(memory_bytes / 4);
        let mut ranges: Option<Ranges> = None;
        let mut empty = |table: &mut NameTable| {
            let ranges = ranges
                .get_or_insert_with(|| Ranges::of(table, wanted, memory_bytes / 4, &temporary));
            table.empty_into(ranges)
        };
        let mut block = Vec::new();
        for place in 0..partitions.places.len() {
            let mut source = NOBODY;
            partitions.take(place, &mut block, &mut |records| {
                table.take(records, &mut source, &mut empty)
            })?;
            empty(&mut table)?;
        }
        drop((table, partitions));
        ranges.map_or(Ok(()), |ranges| ranges.give(see))
    }
}

/// Returns how many ranges there should be for so many bytes, if no name came twice.
fn wanted_ranges(bytes: u64, memory_bytes: usize) -> usize {
    let for_the_cache = (bytes / RANGE_BYTES).min(RANGES);
    let for_the_memory = bytes / (memory_bytes as u64 / 16).max(RECORD_BYTES as u64);
    usize::try_from(for_the_cache.max(for_the_memory).clamp(1, 1 << 14)).unwrap_or(1)
}

/// Records in many places: in memory first, in one file without a name when the memory of a place is used up.
struct Deal {
    temporary: PathBuf,
    /// How many bytes a place holds in memory.
    most: usize,
    places: Vec<Place>,
    spilled: Option<File>,
    spilled_bytes: u64,
}

#[derive(Default)]
struct Place {
    records: Vec<u8>,
    blocks: Vec<Extent>,
}

/// A part of a file.
#[derive(Debug, Clone, Copy)]
struct Extent {
    offset: u64,
    bytes: usize,
}

impl Deal {
    fn new(places: usize, memory_bytes: usize, temporary: &Path) -> Self {
        Self {
            temporary: temporary.to_owned(),
            most: (memory_bytes / places).max(RECORD_BYTES),
            places: (0..places).map(|_| Place::default()).collect(),
            spilled: None,
            spilled_bytes: 0,
        }
    }

    /// Returns the records of a place, which may grow by so many bytes.
    fn room(&mut self, place: usize, bytes: usize) -> io::Result<&mut Vec<u8>> {
        if self.places[place].records.len() + bytes > self.most {
            self.spill(place)?;
        }
        let records = &mut self.places[place].records;
        if records.capacity() - records.len() < bytes {
            // Not left to the vector, which might take twice what a place may have.
            let wanted = (2 * records.capacity()).max(4 << 10).min(self.most);
            records.reserve_exact(wanted - records.len());
        }
        Ok(records)
    }

    /// Writes what a place has in memory behind what was spilled before.
    fn spill(&mut self, place: usize) -> io::Result<()> {
        let place = &mut self.places[place];
        let file = match &mut self.spilled {
            Some(file) => file,
            none => none.insert(tempfile::tempfile_in(&self.temporary)?),
        };
        file.write_all(&place.records)?;
        let bytes = place.records.len();
        place.blocks.push(Extent {
            offset: self.spilled_bytes,
            bytes,
        });
        self.spilled_bytes += bytes as u64;
        place.records.clear();
        Ok(())
    }

    /// Returns how many bytes it was given.
    fn bytes(&self) -> u64 {
        let held = self.places.iter().map(|place| place.records.len() as u64);
        self.spilled_bytes + held.sum::<u64>()
    }

    /// Shows the records of a place in the order they came in, and forgets them.
    fn take(
        &mut self,
        place: usize,
        block: &mut Vec<u8>,
        see: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let Place { records, blocks } = std::mem::take(&mut self.places[place]);
        for extent in blocks {
            let file = self.spilled.as_ref().ok_or_else(cut_short)?;
            block.resize(extent.bytes, 0);
            file.read_exact_at(block, extent.offset)?;
            see(block)?;
        }
        see(&records)
    }
}

/// The names of a partition, each once.
struct NameTable {
    most_names: usize,
    most_bytes: usize,
    /// Each name behind the other: [`Gathered`], then the key.
    names: Vec<u8>,
    /// How many there are.
    count: usize,
    /// Further origins of names that have several.
    origins: Vec<Origin>,
    slots: Vec<Slot>,
}

/// What stands before a key in the table.
#[derive(Clone, Copy)]
struct Gathered {
    count: u32,
    /// One more than the place of the next origin; 0 for none.
    more: u32,
    flags: u16,
    source: u8,
    key_bytes: u8,
}

/// What [`Gathered`] takes.
const GATHERED_BYTES: usize = 12;

impl Gathered {
    fn at(names: &[u8], at: usize) -> Self {
        let bytes: &[u8; GATHERED_BYTES] = names[at..].first_chunk().expect("it was written whole");
        let [a, b, c, d, e, f, g, h, low, high, source, key_bytes] = *bytes;
        Self {
            count: u32::from_le_bytes([a, b, c, d]),
            more: u32::from_le_bytes([e, f, g, h]),
            flags: u16::from_le_bytes([low, high]),
            source,
            key_bytes,
        }
    }

    fn bytes(self) -> [u8; GATHERED_BYTES] {
        let [a, b, c, d] = self.count.to_le_bytes();
        let [e, f, g, h] = self.more.to_le_bytes();
        let [low, high] = self.flags.to_le_bytes();
        [
            a,
            b,
            c,
            d,
            e,
            f,
            g,
            h,
            low,
            high,
            self.source,
            self.key_bytes,
        ]
    }
}

#[derive(Clone, Copy)]
struct Origin {
    source: u8,
    count: u32,
    more: u32,
}

/// A place of the table: part of the hash, and one more than where the name is; 0 for none.
#[derive(Clone, Copy, Default)]
struct Slot {
    tag: u32,
    name: u32,
}

/// What a name takes in the table: itself, its slots at the lowest load, and some further origins.
const NAME_BYTES: usize = GATHERED_BYTES + 24 + 3 * size_of::<Slot>() + size_of::<Origin>();

impl NameTable {
    fn new(memory_bytes: usize) -> Self {
        // Places are kept in 32 bits.
        let most_names = (memory_bytes / NAME_BYTES).clamp(64, 50_000_000);
        Self {
            most_names,
            most_bytes: most_names * (GATHERED_BYTES + 24) + RECORD_BYTES,
            names: Vec::new(),
            count: 0,
            origins: Vec::new(),
            slots: vec![Slot::default(); 64],
        }
    }

    /// Takes the records of a partition; `empty` is called when the table is full.
    fn take(
        &mut self,
        mut records: &[u8],
        source: &mut u8,
        empty: &mut dyn FnMut(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut flags = 0;
        while let [first, rest @ ..] = records {
            match *first {
                OTHER_SOURCE => {
                    let (other, rest) = rest.split_first().ok_or_else(cut_short)?;
                    (*source, records) = (*other, rest);
                }
                WITH_FLAGS => {
                    let (bytes, rest) = rest.split_first_chunk().ok_or_else(cut_short)?;
                    (flags, records) = (u16::from_le_bytes(*bytes), rest);
                }
                key_bytes => {
                    let key = rest.get(..usize::from(key_bytes)).ok_or_else(cut_short)?;
                    records = &rest[key.len()..];
                    if self.is_full(key.len()) {
                        empty(self)?;
                    }
                    let flags = std::mem::take(&mut flags);
                    match *source {
                        NOBODY => self.put(key, flags | GIVEN, NOBODY),
                        given if given & STANDING == 0 => self.put(key, flags | GIVEN, given),
                        standing => self.put(key, flags, standing & !STANDING),
                    }
                }
            }
        }
        Ok(())
    }

    fn is_full(&self, key_bytes: usize) -> bool {
        self.count >= self.most_names
            || self.names.len() + key_bytes > self.most_bytes
            || self.origins.len() >= self.most_names
    }

    fn put(&mut self, key: &[u8], flags: u16, source: u8) {
        let count = u32::from(source != NOBODY);
        let hash = hash_of(key);
        let tag = (hash >> 20) as u32;
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot.name == 0 {
                break;
            }
            if slot.tag == tag {
                let place = slot.name as usize - 1;
                let known = Gathered::at(&self.names, place);
                if self.key(place, known) == key {
                    self.join(place, known, flags, source, count);
                    return;
                }
            }
            at = (at + 1) & mask;
        }
        let name = Gathered {
            count,
            more: 0,
            flags,
            source,
            key_bytes: key_length(key),
        };
        self.slots[at] = Slot {
            tag,
            name: narrow(self.names.len() + 1),
        };
        self.names.extend_from_slice(&name.bytes());
        self.names.extend_from_slice(key);
        self.count += 1;
        if self.count * 3 > self.slots.len() * 2 {
            self.grow();
        }
    }

    /// Adds what another line says of a name that is there.
    fn join(&mut self, place: usize, mut name: Gathered, flags: u16, source: u8, count: u32) {
        name.flags |= flags;
        if name.source == source || source == NOBODY {
            name.count = name.count.saturating_add(count);
        } else if name.source == NOBODY {
            (name.source, name.count) = (source, count);
        } else {
            let mut more = name.more;
            while more != 0 {
                let origin = &mut self.origins[more as usize - 1];
                if origin.source == source {
                    origin.count = origin.count.saturating_add(count);
                    break;
                }
                more = origin.more;
            }
            if more == 0 {
                self.origins.push(Origin {
                    source,
                    count,
                    more: name.more,
                });
                name.more = narrow(self.origins.len());
            }
        }
        self.names[place..place + GATHERED_BYTES].copy_from_slice(&name.bytes());
    }

    fn key(&self, place: usize, name: Gathered) -> &[u8] {
        &self.names[place + GATHERED_BYTES..][..usize::from(name.key_bytes)]
    }

    /// The keys of the names, each with where its name is.
    fn keys(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let place = next;
            (place < self.names.len()).then(|| {
                let key = self.key(place, Gathered::at(&self.names, place));
                next += GATHERED_BYTES + key.len();
                (place, key)
            })
        })
    }

    fn grow(&mut self) {
        let mask = self.slots.len() * 2 - 1;
        let mut slots = vec![Slot::default(); mask + 1];
        for (place, key) in self.keys() {
            let hash = hash_of(key);
            let mut at = hash as usize & mask;
            while slots[at].name != 0 {
                at = (at + 1) & mask;
            }
            slots[at] = Slot {
                tag: (hash >> 20) as u32,
                name: narrow(place + 1),
            };
        }
        self.slots = slots;
    }

    /// Deals its names to ranges, and begins again.
    fn empty_into(&mut self, ranges: &mut Ranges) -> io::Result<()> {
        for (place, key) in self.keys() {
            let name = Gathered::at(&self.names, place);
            let head = head_of(&self.names[place + GATHERED_BYTES..], key.len());
            let records = ranges.room(head, key)?;
            let [low, high] = name.flags.to_le_bytes();
            let begin = records.len();
            records.extend_from_slice(&[name.key_bytes, 0, low, high]);
            records.extend_from_slice(key);
            let mut push = |source, count: u32| match u8::try_from(count) {
                Ok(count) if count < MANY => records.extend_from_slice(&[source, count]),
                _ => {
                    records.extend_from_slice(&[source, MANY]);
                    records.extend_from_slice(&count.to_le_bytes());
                }
            };
            if name.source != NOBODY {
                push(name.source, name.count);
            }
            let mut more = name.more;
            while more != 0 {
                let origin = self.origins[more as usize - 1];
                push(origin.source, origin.count);
                more = origin.more;
            }
            let origins = records.len() - begin - 4 - key.len();
            records[begin + 1] = u8::try_from(origins / 2).expect("a run has 64 sources at most");
        }
        self.names.clear();
        self.count = 0;
        self.origins.clear();
        self.slots.fill(Slot::default());
        Ok(())
    }
}

/// In a range, for the count of an origin: it follows in four bytes.
const MANY: u8 = u8::MAX;

/// Names by ranges of their keys.
struct Ranges {
    /// The first key of each range but the first.
    cuts: Vec<Cut>,
    deal: Deal,
}

/// A key with its head, which decides nearly always.
struct Cut {
    head: u128,
    key: Box<[u8]>,
}

impl Ranges {
    /// Cuts the keys of a table into about equal ranges.
    fn of(table: &NameTable, wanted: usize, memory_bytes: usize, temporary: &Path) -> Self {
        let mut keys: Vec<&[u8]> = table.keys().map(|(_, key)| key).collect();
        keys.sort_unstable();
        let wanted = wanted.min(keys.len()).max(1);
        let cuts = (1..wanted).map(|range| {
            let key = keys[keys.len() * range / wanted];
            Cut {
                head: head_of(key, key.len()),
                key: key.into(),
            }
        });
        Self {
            cuts: cuts.collect(),
            deal: Deal::new(wanted, memory_bytes, temporary),
        }
    }

    /// Returns the records of the range of a key, with room for a name.
    fn room(&mut self, head: u128, key: &[u8]) -> io::Result<&mut Vec<u8>> {
        let is_behind = |cut: &Cut| match cut.head == head {
            true => &*cut.key <= key,
            false => cut.head < head,
        };
        let range = self.cuts.partition_point(is_behind);
        self.deal.room(range, RECORD_BYTES)
    }

    /// Returns how many bytes all keys of a range begin with.
    fn shared_bytes(&self, range: usize) -> usize {
        let from = range.checked_sub(1).map(|cut| &self.cuts[cut]);
        let (Some(from), Some(to)) = (from, self.cuts.get(range)) else {
            return 0;
        };
        let pairs = from.key.iter().zip(&to.key);
        pairs.take_while(|(one, other)| one == other).count()
    }

    /// Sorts one range after the other, and gives its names.
    fn give(mut self, see: &mut dyn FnMut(&NameOrigins<'_>) -> io::Result<()>) -> io::Result<()> {
        let (mut block, mut records) = (Vec::new(), Vec::new());
        let (mut order, mut origins) = (Vec::new(), Vec::new());
        for range in 0..self.deal.places.len() {
            let shared = self.shared_bytes(range);
            records.clear();
            self.deal.take(range, &mut block, &mut |part| {
                records.extend_from_slice(part);
                Ok(())
            })?;
            sort(&records, shared, &mut order)?;
            let mut sorted = order.iter().peekable();
            while let Some(entry) = sorted.next() {
                let name = Record::at(&records, entry.at);
                let mut flags = name.flags;
                origins.clear();
                name.add_origins(&mut origins);
                // A table that was full has given a name before all of its lines were there.
                while let Some(again) = sorted.next_if(|next| {
                    next.head() == entry.head() && Record::at(&records, next.at).key == name.key
                }) {
                    let again = Record::at(&records, again.at);
                    flags |= again.flags;
                    again.add_origins(&mut origins);
                }
                if !origins.is_sorted() {
                    origins.sort_unstable();
                }
                see(&NameOrigins {
                    key: name.key,
                    flags: NameFlags::from_bits(flags),
                    origins: &origins,
                    is_given: flags & GIVEN != 0,
                })?;
            }
        }
        Ok(())
    }
}

/// A name of a range.
struct Record<'a> {
    key: &'a [u8],
    flags: u16,
    /// Pairs of bytes: source and count.
    origins: &'a [u8],
}

impl<'a> Record<'a> {
    fn at(records: &'a [u8], at: u32) -> Self {
        let record = &records[at as usize..];
        let [key_bytes, pairs, low, high] = *record.first_chunk().expect("it was read before");
        let (key, rest) = record[4..].split_at(usize::from(key_bytes));
        Self {
            key,
            flags: u16::from_le_bytes([low, high]),
            origins: &rest[..2 * usize::from(pairs)],
        }
    }

    /// Adds its origins to those that are known.
    fn add_origins(&self, known: &mut Vec<(u8, u32)>) {
        let mut rest = self.origins;
        while let [source, count, more @ ..] = rest {
            let mut count = u32::from(*count);
            rest = more;
            if count == u32::from(MANY) {
                let (bytes, more) = rest.split_first_chunk().expect("it was written whole");
                (count, rest) = (u32::from_le_bytes(*bytes), more);
            }
            match known.iter_mut().find(|origin| origin.0 == *source) {
                Some(origin) => origin.1 = origin.1.saturating_add(count),
                None => known.push((*source, count)),
            }
        }
    }
}

/// A name to be sorted, with as much of its key as decides nearly always.
#[derive(Clone, Copy)]
struct SortEntry {
    head: [u64; 2],
    at: u32,
}

impl SortEntry {
    fn head(&self) -> u128 {
        u128::from(self.head[0]) << 64 | u128::from(self.head[1])
    }
}

/// Puts the records of a range in order; their keys all begin with the same `shared` bytes.
fn sort(records: &[u8], shared: usize, order: &mut Vec<SortEntry>) -> io::Result<()> {
    order.clear();
    let mut at = 0;
    while at < records.len() {
        let [key_bytes, pairs, _, _] = *records[at..].first_chunk().ok_or_else(cut_short)?;
        let (key_bytes, pairs) = (usize::from(key_bytes), usize::from(pairs));
        let key = records.get(at + 4 + shared..).ok_or_else(cut_short)?;
        let head = head_of(key, key_bytes.saturating_sub(shared));
        order.push(SortEntry {
            head: [(head >> 64) as u64, head as u64],
            at: narrow(at),
        });
        at += 4 + key_bytes + 2 * pairs;
    }
    if at > records.len() {
        return Err(cut_short());
    }
    let key = |entry: &SortEntry| Record::at(records, entry.at).key;
    order.sort_unstable_by(|left, right| {
        let heads = left.head().cmp(&right.head());
        heads.then_with(|| key(left).cmp(key(right)))
    });
    Ok(())
}

/// Returns the first sixteen of the first `key_bytes` as a number in the order of the bytes; what may follow them is left out.
fn head_of(bytes: &[u8], key_bytes: usize) -> u128 {
    let head = match bytes.first_chunk() {
        Some(head) => u128::from_be_bytes(*head),
        None => {
            let mut head = [0; 16];
            head[..bytes.len()].copy_from_slice(bytes);
            u128::from_be_bytes(head)
        }
    };
    match key_bytes {
        0..16 => head & !(u128::MAX >> (8 * key_bytes)),
        _ => head,
    }
}

fn hash_of(key: &[u8]) -> u64 {
    XxHash3_64::oneshot(key)
}

fn key_length(key: &[u8]) -> u8 {
    let length = u8::try_from(key.len()).expect("a name has 253 bytes at most");
    debug_assert!(usize::from(length) <= KEY_BYTES);
    length
}

fn narrow(place: usize) -> u32 {
    u32::try_from(place).expect("the limits keep every place below 4 G")
}

fn cut_short() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "a temporary file is cut short",
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Flags, origins, and whether it is given.
    type Told = (u16, BTreeMap<u8, u32>, bool);
    type Seen = BTreeMap<Vec<u8>, Told>;

    fn gathered(lines: &[(String, u8, u16)], memory_bytes: usize) -> Vec<(Vec<u8>, Told)> {
        let mut gatherer = Gatherer::new(memory_bytes, &std::env::temp_dir());
        for (key, source, flags) in lines {
            let flags = NameFlags::from_bits(*flags);
            if *source == NOBODY {
                gatherer.add_forced(key.as_bytes(), flags).unwrap();
            } else if *source & STANDING != 0 {
                let source = *source & !STANDING;
                gatherer
                    .add_standing(key.as_bytes(), flags, source)
                    .unwrap();
            } else {
                gatherer.add(key.as_bytes(), flags, *source).unwrap();
            }
        }
        let mut seen = Vec::new();
        gatherer
            .finish(&mut |name| {
                let origins = name.origins.iter().copied().collect();
                let told = (name.flags.bits(), origins, name.is_given);
                seen.push((name.key.to_vec(), told));
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
                    prop_oneof![0u8..64, 128u8..192, Just(NOBODY)],
                    0u16..16,
                ),
                0..600,
            ),
            memory_bytes in prop_oneof![Just(0usize), Just(200_000), Just(10_000_000)],
        ) {
            let mut expected = Seen::new();
            for (key, source, flags) in &lines {
                let (seen, origins, is_given) = expected.entry(key.clone().into_bytes()).or_default();
                *seen |= flags;
                *is_given |= *source == NOBODY || source & STANDING == 0;
                if *source != NOBODY {
                    *origins.entry(source & !STANDING).or_default() += 1;
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
        let held = gatherer.partitions.places.iter();
        let held: usize = held.map(|place| place.records.capacity()).sum();
        assert!(held <= memory_bytes, "{held} bytes");
        assert!(gatherer.partitions.spilled_bytes > 0);
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
    fn a_table_that_is_full_goes_on_with_another() {
        let mut table = NameTable::new(0);
        let mut ranges: Option<Ranges> = None;
        let mut records = Vec::new();
        for number in 0..1_000u32 {
            let key = format!("fr,name-{:03}", number % 300);
            records.extend_from_slice(&[OTHER_SOURCE, (number % 2) as u8, key.len() as u8]);
            records.extend_from_slice(key.as_bytes());
        }
        let mut emptied = 0;
        let mut empty = |table: &mut NameTable| {
            emptied += 1;
            let ranges =
                ranges.get_or_insert_with(|| Ranges::of(table, 7, 0, &std::env::temp_dir()));
            table.empty_into(ranges)
        };
        table.take(&records, &mut 0, &mut empty).unwrap();
        empty(&mut table).unwrap();
        assert!(emptied > 3);
        let ranges = ranges.unwrap();
        assert_eq!(ranges.cuts.len(), 6);
        let (mut names, mut lines) = (0, 0);
        ranges
            .give(&mut |name| {
                names += 1;
                lines += name.origins.iter().map(|origin| origin.1).sum::<u32>();
                Ok(())
            })
            .unwrap();
        assert_eq!((names, lines), (300, 1_000));
    }
}
