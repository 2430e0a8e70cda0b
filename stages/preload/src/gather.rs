//! Every name once, with its origins, in order, in bounded memory.
//!
//! Names are looked up in a table in memory, so that a name that comes again costs no room. When the memory is used up, the names are
//! sorted and written as a run to a file without a name; at the end the runs are merged and equal names become one.
//! `docs/decisions/0015-names-in-a-table-and-sorted-runs.md` says why it is done so.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use ecluse_names::NameFlags;
use twox_hash::XxHash3_128;

/// How many sources a run can have.
pub(crate) const SOURCES: usize = 64;
/// Names that no source gave.
const NOBODY: u8 = u8::MAX;
/// How many runs are merged at once.
const RUNS: usize = 128;
/// How much of a run is in memory while runs are merged.
const RUN_BYTES: usize = 128 << 10;

/// Takes names in any order and gives each once, in order.
pub(crate) struct Gatherer {
    temporary: PathBuf,
    most_names: usize,
    most_key_bytes: usize,
    keys: Vec<u8>,
    names: Vec<Gathered>,
    /// Further origins of names that have several.
    origins: Vec<Origin>,
    slots: Vec<Slot>,
    runs: Vec<File>,
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

/// A name with all that is known of it.
pub(crate) struct NameOrigins<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) flags: NameFlags,
    /// Source and number of lines, in order of the source.
    pub(crate) origins: &'a [(u8, u32)],
}

/// What a name takes in memory: itself, its slots at the lowest load, its place in the sort, and some further origins.
const NAME_BYTES: usize = size_of::<Gathered>()
    + 4 * size_of::<Slot>()
    + size_of::<SortEntry>()
    + size_of::<Origin>() / 2;
/// What keys take on average.
const KEY_BYTES: usize = 24;

impl Gatherer {
    /// Returns one without names that takes about this much memory.
    pub(crate) fn new(memory_bytes: usize, temporary: &Path) -> Self {
        // Places are kept in 32 bits.
        let most_names = (memory_bytes / (NAME_BYTES + KEY_BYTES)).clamp(64, 100_000_000);
        Self {
            temporary: temporary.to_owned(),
            most_names,
            most_key_bytes: (most_names * KEY_BYTES).max(1 << 10),
            keys: Vec::new(),
            names: Vec::new(),
            origins: Vec::new(),
            slots: vec![Slot::default(); 64],
            runs: Vec::new(),
        }
    }

    /// Takes a name of a source.
    pub(crate) fn add(&mut self, key: &[u8], flags: NameFlags, source: u8) -> io::Result<()> {
        self.put(key, flags, source, 1)
    }

    /// Takes a name that no source need have.
    pub(crate) fn add_forced(&mut self, key: &[u8], flags: NameFlags) -> io::Result<()> {
        self.put(key, flags, NOBODY, 0)
    }

    fn put(&mut self, key: &[u8], flags: NameFlags, source: u8, count: u32) -> io::Result<()> {
        let hash = hash_of(key);
        let tag = (hash >> 32) as u32;
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
                    return Ok(());
                }
            }
            at = (at + 1) & mask;
        }
        if self.is_full(key.len()) {
            self.spill()?;
            return self.put(key, flags, source, count);
        }
        self.names.push(Gathered {
            key: narrow(self.keys.len()),
            key_bytes: u8::try_from(key.len()).expect("a name has 253 bytes at most"),
            source,
            flags: flags.bits(),
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
        Ok(())
    }

    fn is_full(&self, key_bytes: usize) -> bool {
        !self.names.is_empty()
            && (self.names.len() >= self.most_names
                || self.keys.len() + key_bytes > self.most_key_bytes
                || self.origins.len() >= self.most_names)
    }

    /// Adds what another line says of a name that is there.
    fn join(&mut self, place: usize, flags: NameFlags, source: u8, count: u32) {
        let name = &mut self.names[place];
        name.flags |= flags.bits();
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
        // A small table grows fast; a large one only as far as it must.
        let slots = self.slots.len() * if self.slots.len() < 1 << 20 { 4 } else { 2 };
        // The old one goes first: both at once would be too much.
        self.slots = Vec::new();
        self.slots = vec![Slot::default(); slots];
        for place in 0..self.names.len() {
            let hash = hash_of(self.key(&self.names[place]));
            let mut at = hash as usize & (slots - 1);
            while self.slots[at].name != 0 {
                at = (at + 1) & (slots - 1);
            }
            self.slots[at] = Slot {
                tag: (hash >> 32) as u32,
                name: narrow(place + 1),
            };
        }
    }

    /// Writes what is in memory as a run, and begins again.
    fn spill(&mut self) -> io::Result<()> {
        let file = tempfile::tempfile_in(&self.temporary)?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        self.each_in_order(&mut |name| write_record(&mut out, name))?;
        let mut file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.rewind()?;
        self.runs.push(file);
        self.keys.clear();
        self.names.clear();
        self.origins.clear();
        self.slots.fill(Slot::default());
        if self.runs.len() == RUNS {
            let runs = std::mem::take(&mut self.runs);
            let file = tempfile::tempfile_in(&self.temporary)?;
            let mut out = BufWriter::with_capacity(1 << 20, file);
            merge(runs, &mut |name| write_record(&mut out, name))?;
            let mut file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
            file.rewind()?;
            self.runs.push(file);
        }
        Ok(())
    }

    /// Gives every name once, in order of its key.
    pub(crate) fn finish(
        mut self,
        see: &mut dyn FnMut(&NameOrigins<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.runs.is_empty() {
            return self.each_in_order(see);
        }
        self.spill()?;
        let runs = std::mem::take(&mut self.runs);
        drop(self);
        merge(runs, see)
    }

    fn each_in_order(
        &mut self,
        see: &mut dyn FnMut(&NameOrigins<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        // The table is of no use any more; the sort needs its room.
        let slots = self.slots.len();
        self.slots = Vec::new();
        let mut order: Vec<SortEntry> = Vec::with_capacity(self.names.len());
        for (place, name) in self.names.iter().enumerate() {
            order.push(SortEntry::of(self.key(name), narrow(place)));
        }
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
            see(&NameOrigins {
                key: self.key(name),
                flags: NameFlags::from_bits(name.flags),
                origins: &origins,
            })?;
        }
        self.slots = vec![Slot::default(); slots];
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
    XxHash3_128::oneshot(key) as u64
}

fn narrow(place: usize) -> u32 {
    u32::try_from(place).expect("the limits keep every place below 4 G")
}

fn write_record(out: &mut impl Write, name: &NameOrigins<'_>) -> io::Result<()> {
    let bytes = u8::try_from(name.key.len()).expect("a name has 253 bytes at most");
    let origins = u8::try_from(name.origins.len()).expect("a run has 64 sources at most");
    out.write_all(&[bytes, origins])?;
    out.write_all(&name.flags.bits().to_le_bytes())?;
    out.write_all(name.key)?;
    for (source, count) in name.origins {
        out.write_all(&[*source])?;
        out.write_all(&count.to_le_bytes())?;
    }
    Ok(())
}

/// A run being read, at one of its names.
struct Run {
    file: File,
    block: Vec<u8>,
    start: usize,
    end: usize,
    key: Vec<u8>,
    flags: u16,
    origins: Vec<(u8, u32)>,
}

impl Run {
    fn open(file: File) -> io::Result<Option<Self>> {
        let mut run = Self {
            file,
            block: vec![0; RUN_BYTES],
            start: 0,
            end: 0,
            key: Vec::new(),
            flags: 0,
            origins: Vec::new(),
        };
        Ok(run.advance()?.then_some(run))
    }

    /// Goes to the next name; tells whether there is one.
    fn advance(&mut self) -> io::Result<bool> {
        // More than any record takes.
        const RECORD_BYTES: usize = 4 + 255 + 5 * SOURCES;
        if self.end - self.start < RECORD_BYTES {
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
        let (key, rest) = rest
            .split_at_checked(usize::from(head[0]))
            .ok_or_else(cut_short)?;
        let (origins, _) = rest
            .split_at_checked(5 * usize::from(head[1]))
            .ok_or_else(cut_short)?;
        self.flags = u16::from_le_bytes([head[2], head[3]]);
        self.key.clear();
        self.key.extend_from_slice(key);
        self.origins.clear();
        for origin in origins.chunks_exact(5) {
            let count = [origin[1], origin[2], origin[3], origin[4]];
            self.origins.push((origin[0], u32::from_le_bytes(count)));
        }
        self.start += 4 + usize::from(head[0]) + 5 * usize::from(head[1]);
        Ok(true)
    }

    fn fill(&mut self) -> io::Result<()> {
        self.block.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        while self.end < self.block.len() {
            match self.file.read(&mut self.block[self.end..]) {
                Ok(0) => break,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
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
    files: Vec<File>,
    see: &mut dyn FnMut(&NameOrigins<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let mut runs = Vec::new();
    for file in files {
        runs.extend(Run::open(file)?);
    }
    // The run with the smallest key is the last.
    let mut order: Vec<usize> = (0..runs.len()).collect();
    order.sort_unstable_by(|left, right| runs[*right].key.cmp(&runs[*left].key));
    let (mut key, mut origins): (Vec<u8>, Vec<(u8, u32)>) = Default::default();
    while let Some(first) = order.last() {
        key.clone_from(&runs[*first].key);
        origins.clear();
        let mut flags = 0;
        while let Some(place) = order.pop_if(|place| runs[*place].key == key) {
            let run = &mut runs[place];
            flags |= run.flags;
            for origin in &run.origins {
                match origins.iter_mut().find(|(source, _)| *source == origin.0) {
                    Some((_, count)) => *count = count.saturating_add(origin.1),
                    None => origins.push(*origin),
                }
            }
            if run.advance()? {
                let key = &runs[place].key;
                let at = order.partition_point(|other| runs[*other].key >= *key);
                order.insert(at, place);
            }
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
            memory_bytes in prop_oneof![Just(0usize), Just(40_000), Just(10_000_000)],
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
    fn memory_stays_under_the_limit_and_many_runs_become_one() {
        let memory_bytes = 128 << 10;
        let mut gatherer = Gatherer::new(memory_bytes, &std::env::temp_dir());
        for number in 0..250_000u32 {
            let key = format!("fr,name-{:06x}", number.wrapping_mul(0x9e37_79b9) >> 8);
            gatherer
                .add(key.as_bytes(), NameFlags::NONE, (number % 3) as u8)
                .unwrap();
            let held = gatherer.keys.capacity()
                + gatherer.names.capacity() * size_of::<Gathered>()
                + gatherer.slots.capacity() * size_of::<Slot>()
                + gatherer.origins.capacity() * size_of::<Origin>();
            assert!(
                held <= 2 * memory_bytes,
                "{held} bytes after {number} names"
            );
            assert!(gatherer.runs.len() < RUNS);
        }
        let (mut lines, mut last) = (0, Vec::new());
        gatherer
            .finish(&mut |name| {
                lines += name
                    .origins
                    .iter()
                    .map(|origin| u64::from(origin.1))
                    .sum::<u64>();
                assert!(last.as_slice() < name.key);
                last = name.key.to_vec();
                Ok(())
            })
            .unwrap();
        assert_eq!(lines, 250_000);
    }
}
