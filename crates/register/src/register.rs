//! The register as it lies on disk: its current generation, and the next one.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use ecluse_generation::{
    FileSum, IndexDirectory, IndexFile, IndexGeneration, IndexMember, LastGeneration, NewList,
    SCHEMA,
};

use crate::blocks::{LineBlocks, key_at, last_line, position};
use crate::error::RegisterError;
use crate::find::find;
use crate::reader::RegisterReader;
use crate::record::{BadRecord, RegisterRecord};

/// The file of a generation that has the records.
pub const REGISTER_FILE: &str = "register.tsv";

/// The register under a directory.
#[derive(Debug, Clone)]
pub struct Register {
    generations: IndexDirectory,
}

/// What a new generation came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegisterUpdate {
    /// Its number.
    pub number: u64,
    /// Its records.
    pub records: u64,
    /// Records that were not there before.
    pub added: u64,
    /// Records that were, and are now what the change says.
    pub replaced: u64,
}

/// What happens to one record in a new generation.
pub trait RegisterChange {
    /// Returns the key of the record.
    fn key(&self) -> String;

    /// Returns what the record becomes; `before` is what it was, where it was there. A change may be of no use where there was
    /// none; one that was there stays.
    fn apply(self, before: Option<RegisterRecord>) -> Option<RegisterRecord>;
}

impl RegisterChange for RegisterRecord {
    fn key(&self) -> String {
        self.key()
    }

    /// It takes the place of what was there.
    fn apply(self, _before: Option<RegisterRecord>) -> Option<RegisterRecord> {
        Some(self)
    }
}

impl Register {
    /// Returns the register in a directory; nothing is made or looked at.
    ///
    /// # Errors
    /// Never for a path; the directory of generations has the same rules as an index.
    pub fn at(directory: &Path) -> Result<Self, RegisterError> {
        let generations = IndexDirectory::of(directory, None)?;
        Ok(Self { generations })
    }

    /// Returns the number of the current generation; none where there is no register yet.
    ///
    /// # Errors
    /// When `current` is something else than a link to a generation.
    pub fn current(&self) -> Result<Option<u64>, RegisterError> {
        Ok(self.generations.current_number()?)
    }

    /// Opens a generation to read all of it in order.
    ///
    /// # Errors
    /// When it is not whole.
    pub fn read(&self, number: u64) -> Result<RegisterReader, RegisterError> {
        let last = self.generations.whole(number)?;
        let written = last
            .described
            .as_ref()
            .and_then(|last| last.file(REGISTER_FILE));
        RegisterReader::open(&self.file(number), written.cloned())
    }

    /// Looks one domain up in the current generation.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn lookup(&self, domain: &str) -> Result<Option<RegisterRecord>, RegisterError> {
        let Some(number) = self.current()? else {
            return Ok(None);
        };
        let path = self.file(number);
        let key = ecluse_names::key_of(domain);
        let Some(found) = find(&path, key.as_bytes())? else {
            return Ok(None);
        };
        match read_line(&found.line) {
            Ok(record) => Ok(Some(record)),
            Err(source) => Err(RegisterError::Damaged {
                path,
                offset: found.offset,
                source,
            }),
        }
    }

    /// Returns what the kept generations are made of. A generation whose builder died before it was current is made current.
    ///
    /// # Errors
    /// When another is at work, or they cannot be read.
    pub fn settle(&self) -> Result<Vec<IndexMember>, RegisterError> {
        self.generations.prepare()?;
        let busy = || RegisterError::Busy(self.generations.root().to_owned());
        let lock = self.generations.try_lock()?.ok_or_else(busy)?;
        self.generations.settle(&lock)?;
        let mut members = Vec::new();
        for number in self.generations.numbers()? {
            let generation = self.generations.describe(number)?;
            members.extend(generation.into_iter().flat_map(|known| known.members));
        }
        Ok(members)
    }

    /// Makes the next generation: the last one with `changes`, which come in order of their keys, each once. `members` are named in `generation.json`; `is_stopped` is asked now and then.
    ///
    /// # Errors
    /// When another is at work, the last generation is not what was written, or a change is out of order. Nothing is shown then.
    pub fn update(
        &self,
        members: Vec<IndexMember>,
        changes: impl Iterator<Item = io::Result<impl RegisterChange>>,
        keep: usize,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<RegisterUpdate, RegisterError> {
        self.update_if(members, changes, keep, is_stopped, &mut || true)
    }

    /// As [`Register::update`]; `may_show` is asked once, when all is written and nobody sees it yet.
    ///
    /// # Errors
    /// As there; [`RegisterError::Stopped`] when it may not be shown.
    pub fn update_if(
        &self,
        members: Vec<IndexMember>,
        changes: impl Iterator<Item = io::Result<impl RegisterChange>>,
        keep: usize,
        is_stopped: &dyn Fn() -> bool,
        may_show: &mut dyn FnMut() -> bool,
    ) -> Result<RegisterUpdate, RegisterError> {
        self.generations.prepare()?;
        let busy = || RegisterError::Busy(self.generations.root().to_owned());
        let lock = self.generations.try_lock()?.ok_or_else(busy)?;
        let last = self.generations.settle(&lock)?;
        let number = last.as_ref().map_or(0, |last| last.number) + 1;
        let building = self.generations.begin(&lock, number)?;
        let built = self
            .build(&building, last.as_ref(), changes, is_stopped)
            .and_then(|(file, mut update)| {
                update.number = number;
                let generation = IndexGeneration {
                    schema: SCHEMA,
                    number,
                    previous: last.as_ref().map(|last| last.number),
                    lines: update.records,
                    duplicates: 0,
                    files: vec![file],
                    members,
                };
                generation
                    .write(&building)
                    .map_err(RegisterError::io("write", &building))?;
                if !may_show() {
                    return Err(RegisterError::Stopped);
                }
                self.generations
                    .publish(&lock, &building, &generation, last.as_ref())?;
                Ok(update)
            });
        match built {
            Ok(update) => {
                self.generations.prune(&lock, keep)?;
                Ok(update)
            }
            Err(error) => {
                // The next builder sweeps what cannot be removed now.
                let _ = self.generations.abandon(&building);
                Err(error)
            }
        }
    }

    /// Makes a generation of `changes` alone, as [`Register::update`] does of the last one and them. What was there before is put aside as
    /// `generations.<aside>`.
    ///
    /// # Errors
    /// As [`Register::update`]; what was there before stays aside then.
    pub fn make_anew(
        &self,
        changes: impl Iterator<Item = io::Result<impl RegisterChange>>,
        aside: &str,
    ) -> Result<RegisterUpdate, RegisterError> {
        self.generations.prepare()?;
        let busy = || RegisterError::Busy(self.generations.root().to_owned());
        let lock = self.generations.try_lock()?.ok_or_else(busy)?;
        let path = self.generations.root().to_owned();
        let mut records = 0;
        let write = |out: &mut dyn Write| {
            let (mut previous, mut line) = (String::new(), Vec::new());
            for change in changes {
                let change = change.map_err(RegisterError::Changes)?;
                let key = change.key();
                if key <= previous {
                    let before = previous;
                    return Err(RegisterError::Unsorted { before, key });
                }
                if write_change(change, None, &key, &mut line)? {
                    records += 1;
                    out.write_all(&line)
                        .map_err(RegisterError::io("write", &path))?;
                }
                previous = key;
            }
            Ok(records)
        };
        let lists: Vec<NewList<'_, RegisterError>> = vec![(REGISTER_FILE, Box::new(write))];
        let number = self.generations.publish_anew(&lock, aside, lists)?;
        Ok(RegisterUpdate {
            number,
            records,
            added: records,
            replaced: 0,
        })
    }

    fn build(
        &self,
        building: &Path,
        last: Option<&LastGeneration>,
        changes: impl Iterator<Item = io::Result<impl RegisterChange>>,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<(IndexFile, RegisterUpdate), RegisterError> {
        let mut out = NewFile::create(&building.join(REGISTER_FILE))?;
        let described = last.and_then(|last| last.described.as_ref());
        let before = described.map_or(0, |last| last.lines);
        let mut blocks = last
            .map(|last| LineBlocks::open(&self.file(last.number)))
            .transpose()?;
        let mut update = RegisterUpdate {
            number: 0,
            records: 0,
            added: 0,
            replaced: 0,
        };
        let (mut previous, mut line) = (String::new(), Vec::new());
        for change in changes {
            if is_stopped() {
                return Err(RegisterError::Stopped);
            }
            let change = change.map_err(RegisterError::Changes)?;
            let key = change.key();
            if key <= previous {
                let before = previous;
                return Err(RegisterError::Unsorted { before, key });
            }
            let before = match &mut blocks {
                Some(blocks) => copy_below(blocks, key.as_bytes(), &mut out)?,
                None => None,
            };
            let was_there = before.is_some();
            if write_change(change, before, &key, &mut line)? {
                update.replaced += u64::from(was_there);
                update.added += u64::from(!was_there);
                out.write(&line)?;
            }
            previous = key;
        }
        if let Some(blocks) = &mut blocks {
            copy_rest(blocks, &mut out, is_stopped)?;
            if let Some(written) = described.and_then(|last| last.file(REGISTER_FILE)) {
                blocks.must_be(written)?;
            }
        }
        update.records = before + update.added;
        let mut file = out.finish()?;
        file.lines = Some(update.records);
        Ok((file, update))
    }

    fn file(&self, number: u64) -> PathBuf {
        self.generations.generation(number).join(REGISTER_FILE)
    }
}

/// Writes the line that a change makes; tells whether there is one.
fn write_change(
    change: impl RegisterChange,
    before: Option<RegisterRecord>,
    key: &str,
    line: &mut Vec<u8>,
) -> Result<bool, RegisterError> {
    line.clear();
    let Some(record) = change.apply(before) else {
        return Ok(false);
    };
    if record.key() != key {
        return Err(RegisterError::Changes(io::Error::other(format!(
            "a change of {key} gives a record of {}",
            record.key()
        ))));
    }
    let bad = |source| RegisterError::Damaged {
        path: PathBuf::from(key),
        offset: 0,
        source,
    };
    record.write(line).map_err(bad)?;
    Ok(true)
}

/// Copies every line below a key, and takes the record that has it, where there is one.
fn copy_below(
    blocks: &mut LineBlocks,
    key: &[u8],
    out: &mut NewFile,
) -> Result<Option<RegisterRecord>, RegisterError> {
    loop {
        let lines = blocks.lines()?;
        if lines.is_empty() {
            return Ok(None);
        }
        if key_at(last_line(lines)) < key {
            out.write(lines)?;
            let bytes = lines.len();
            blocks.take(bytes);
            continue;
        }
        let at = position(lines, key);
        out.write(&lines[..at])?;
        let rest = &lines[at..];
        if key_at(rest) != key {
            blocks.take(at);
            return Ok(None);
        }
        let feed = memchr::memchr(b'\n', rest).unwrap_or(rest.len() - 1);
        let record = read_line(&rest[..feed]);
        blocks.take(at);
        let record = record.map_err(|fault| blocks.damaged(fault.column))?;
        blocks.take(feed + 1);
        return Ok(Some(record));
    }
}

/// Reads a line without its line feed.
fn read_line(line: &[u8]) -> Result<RegisterRecord, BadRecord> {
    let text = std::str::from_utf8(line).map_err(|_| BadRecord { column: "line" })?;
    RegisterRecord::parse(text)
}

fn copy_rest(
    blocks: &mut LineBlocks,
    out: &mut NewFile,
    is_stopped: &dyn Fn() -> bool,
) -> Result<(), RegisterError> {
    loop {
        if is_stopped() {
            return Err(RegisterError::Stopped);
        }
        let lines = blocks.lines()?;
        if lines.is_empty() {
            return Ok(());
        }
        out.write(lines)?;
        let bytes = lines.len();
        blocks.take(bytes);
    }
}

/// A file being written, summed on the way.
struct NewFile {
    file: BufWriter<File>,
    path: PathBuf,
    sum: FileSum,
}

impl NewFile {
    fn create(path: &Path) -> Result<Self, RegisterError> {
        let file = File::create_new(path).map_err(RegisterError::io("make", path))?;
        Ok(Self {
            file: BufWriter::with_capacity(1 << 20, file),
            path: path.to_owned(),
            sum: FileSum::default(),
        })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), RegisterError> {
        self.sum.add(bytes);
        self.file
            .write_all(bytes)
            .map_err(RegisterError::io("write", &self.path))
    }

    fn finish(self) -> Result<IndexFile, RegisterError> {
        let Self { file, path, sum } = self;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error);
        let synced = file.and_then(|file| file.sync_all());
        synced.map_err(RegisterError::io("sync", &path))?;
        Ok(sum.entry(REGISTER_FILE))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use proptest::prelude::*;

    use super::*;
    use crate::record::RegisterDay;

    fn record(domain: &str, day: u8) -> RegisterRecord {
        let mut record = RegisterRecord::new(domain, RegisterDay::new(2026, 1, day).unwrap());
        record.sources.insert("afnic".into(), record.first);
        record
    }

    fn all(register: &Register) -> Vec<RegisterRecord> {
        let Some(number) = register.current().unwrap() else {
            return Vec::new();
        };
        let mut reader = register.read(number).unwrap();
        let mut records = Vec::new();
        while let Some(line) = reader.next_line().unwrap() {
            assert_eq!(line.sources().collect::<Vec<_>>(), ["afnic"]);
            records.push(line.record().unwrap());
        }
        records
    }

    fn update(
        register: &Register,
        records: &[RegisterRecord],
    ) -> Result<RegisterUpdate, RegisterError> {
        register.update(Vec::new(), records.iter().cloned().map(Ok), 2, &|| false)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn a_generation_is_the_last_one_with_its_changes(
            rounds in prop::collection::vec(prop::collection::btree_map("[a-c]{1,3}", 1u8..28, 0..20), 1..4),
        ) {
            let root = tempfile::tempdir().unwrap();
            let register = Register::at(root.path()).unwrap();
            let mut expected = BTreeMap::new();
            for changes in rounds {
                let mut changes: Vec<RegisterRecord> =
                    changes.iter().map(|(label, day)| record(&format!("{label}.fr"), *day)).collect();
                changes.sort_by_key(RegisterRecord::key);
                let fresh = changes.iter().filter(|change| !expected.contains_key(&change.key())).count();
                let made = update(&register, &changes).unwrap();
                prop_assert_eq!(made.added, fresh as u64);
                prop_assert_eq!(made.replaced, (changes.len() - fresh) as u64);
                expected.extend(changes.into_iter().map(|change| (change.key(), change)));
                prop_assert_eq!(made.records, expected.len() as u64);
                prop_assert_eq!(all(&register), expected.values().cloned().collect::<Vec<_>>());
                for change in expected.values() {
                    let found = register.lookup(&change.domain).unwrap();
                    prop_assert_eq!(found.as_ref(), Some(change));
                }
                prop_assert_eq!(register.lookup("zz.fr").unwrap(), None);
                prop_assert_eq!(register.lookup("a.com").unwrap(), None);
            }
        }
    }

    /// More than fits into one block, so that changes fall on both sides of its borders.
    #[test]
    fn blocks_are_joined_where_they_meet() {
        let root = tempfile::tempdir().unwrap();
        let register = Register::at(root.path()).unwrap();
        let mut records: Vec<RegisterRecord> = (0..120_000)
            .map(|n| record(&format!("name-{n:07}.fr"), 1))
            .collect();
        update(&register, &records).unwrap();
        assert!(fs::metadata(register.file(1)).unwrap().len() > 2 * (4 << 20));
        for (n, record) in records.iter_mut().enumerate() {
            if n % 997 == 0 {
                record.last = RegisterDay::new(2026, 2, 2).unwrap();
            }
        }
        let changes: Vec<RegisterRecord> = records.iter().step_by(997).cloned().collect();
        let made = update(&register, &changes).unwrap();
        assert_eq!((made.added, made.replaced), (0, changes.len() as u64));
        assert!(all(&register) == records);
        assert_eq!(
            register.lookup("name-0119640.fr").unwrap().unwrap().last,
            records[0].last
        );
    }

    #[test]
    fn disorder_and_damage_stop_it_and_nothing_is_shown() {
        let root = tempfile::tempdir().unwrap();
        let register = Register::at(root.path()).unwrap();
        update(&register, &[record("a.fr", 1), record("b.fr", 1)]).unwrap();
        let unsorted = update(&register, &[record("b.fr", 1), record("a.fr", 1)]);
        assert!(matches!(unsorted, Err(RegisterError::Unsorted { .. })));
        let stopped = register.update(Vec::new(), [Ok(record("c.fr", 1))].into_iter(), 2, &|| true);
        assert!(matches!(stopped, Err(RegisterError::Stopped)));
        let path = register.file(1);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("20260101", "20260102")).unwrap();
        let changed = update(&register, &[record("c.fr", 1)]);
        assert!(
            matches!(changed, Err(RegisterError::Changed { .. })),
            "{changed:?}"
        );
        assert_eq!(register.current().unwrap(), Some(1));
        assert_eq!(
            fs::read_dir(root.path().join("generations"))
                .unwrap()
                .count(),
            1
        );
        let mut reader = register.read(1).unwrap();
        let ended = loop {
            match reader.next_line() {
                Ok(Some(_)) => {}
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        assert!(
            matches!(ended, Some(RegisterError::Changed { .. })),
            "{ended:?}"
        );
    }
}
