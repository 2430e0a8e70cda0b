//! Writing ZipNum from a sorted source, in one pass.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use libdeflater::{CompressionLvl, Compressor};
use memchr::memchr;

use crate::cursor::Cursor;
use crate::merge::LineShape;
use crate::{LineSource, MAX_LINE_BYTES, ReadError, cdx};

/// How to write ZipNum.
#[derive(Debug, Clone)]
pub struct ZipNumOptions {
    /// How many lines a gzip member has; the last of a shard may have fewer.
    pub lines_per_member: usize,
    /// gzip's level, 1 to 12.
    pub level: u8,
    /// Where shards are cut.
    pub shards: Shards,
}

impl Default for ZipNumOptions {
    /// What Common Crawl uses: 3,000 lines and level 6; shards of a gigabyte.
    fn default() -> Self {
        Self {
            lines_per_member: 3_000,
            level: 6,
            shards: Shards::Bytes(1 << 30),
        }
    }
}

/// Where shards are cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shards {
    /// At the first new key after so many compressed bytes.
    Bytes(u64),
    /// Before the first line that is not below each of these, which ascend. A range without lines has no shard.
    At(Vec<Vec<u8>>),
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenZipNum {
    /// The summary: what a reader is pointed to.
    pub summary: PathBuf,
    /// The list of shards.
    pub locations: PathBuf,
    /// The shards, in order.
    pub shards: Vec<Shard>,
    /// Lines in all shards. Header lines of the source are left out and not counted.
    pub lines: u64,
    /// gzip members in all shards.
    pub members: u64,
}

/// One file of gzip members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shard {
    /// What the summary calls it.
    pub name: String,
    /// The file.
    pub path: PathBuf,
    /// Its lines.
    pub lines: u64,
    /// Its size.
    pub bytes: u64,
}

/// Why ZipNum cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ZipNumWriteError {
    /// The source cannot be read further.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A file cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The level is not one gzip has.
    #[error("compression level {level} is not between 1 and 12")]
    Level {
        /// What was asked for.
        level: u8,
    },
    /// The name cannot stand in a summary, or would leave the directory.
    #[error("{name:?} cannot name an index")]
    Name {
        /// What was asked for.
        name: String,
    },
}

/// Writes a sorted source as ZipNum into a directory that holds no file of these names, and syncs every file.
///
/// The order is checked. Nothing is renamed: a directory in which this has failed is to be thrown away.
pub fn write(
    source: LineSource,
    directory: &Path,
    name: &str,
    options: &ZipNumOptions,
) -> Result<WrittenZipNum, ZipNumWriteError> {
    must_be_name(name)?;
    let summary = Output::create(directory.join(format!("{name}.idx")))?;
    let mut writer = Writer::create(directory, name, options, summary)?;
    push_all(source, &mut writer)?;
    writer.finish()
}

/// Refuses a name that cannot stand in a summary, or would leave the directory.
pub(super) fn must_be_name(name: &str) -> Result<(), ZipNumWriteError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || name.starts_with('.') || !name.bytes().all(is_plain) {
        return Err(ZipNumWriteError::Name { name: name.into() });
    }
    Ok(())
}

pub(super) fn shard_name(name: &str, number: usize) -> String {
    format!("{name}-{number:05}")
}

pub(super) fn push_all(
    source: LineSource,
    writer: &mut Writer<'_>,
) -> Result<(), ZipNumWriteError> {
    let mut cursor = Cursor::new(source, 256 << 10, MAX_LINE_BYTES);
    while cursor.advance_sorted()? {
        let line = cursor.line();
        if cdx::is_header(line) {
            continue;
        }
        let key_bytes = LineShape::Capture
            .check(line)
            .map(|()| memchr(b' ', line).expect("the shape has a space"))
            .map_err(|fault| ReadError::Malformed {
                place: cursor.place(),
                fault,
            })?;
        writer.push(line, key_bytes)?;
    }
    Ok(())
}

/// Writes the list of shards.
pub(super) fn write_locations(written: &WrittenZipNum) -> Result<(), ZipNumWriteError> {
    let mut locations = Output::create(written.locations.clone())?;
    for shard in &written.shards {
        locations.write(format!("{}\t{}.cdxj.gz\n", shard.name, shard.name).as_bytes())?;
    }
    locations.finish()
}

pub(super) struct Writer<'o> {
    directory: &'o Path,
    name: &'o str,
    options: &'o ZipNumOptions,
    compressor: Compressor,
    summary: Output,
    shard: Option<Output>,
    written: WrittenZipNum,
    /// The lines of the member being gathered.
    lines: Vec<u8>,
    line_count: usize,
    /// Key and time of the member's first line.
    first: Vec<u8>,
    last_key: Vec<u8>,
    /// How many split points have been passed.
    splits: usize,
    member: Vec<u8>,
    /// The number of the first shard.
    pub(super) first_shard: usize,
}

impl<'o> Writer<'o> {
    pub(super) fn create(
        directory: &'o Path,
        name: &'o str,
        options: &'o ZipNumOptions,
        summary: Output,
    ) -> Result<Self, ZipNumWriteError> {
        let level = CompressionLvl::new(i32::from(options.level))
            .ok()
            .filter(|_| options.level > 0)
            .ok_or(ZipNumWriteError::Level {
                level: options.level,
            })?;
        Ok(Self {
            directory,
            name,
            options,
            compressor: Compressor::new(level),
            shard: None,
            written: WrittenZipNum {
                summary: summary.path.clone(),
                locations: directory.join(format!("{name}.loc")),
                shards: Vec::new(),
                lines: 0,
                members: 0,
            },
            lines: Vec::new(),
            line_count: 0,
            first: Vec::new(),
            last_key: Vec::new(),
            splits: 0,
            member: Vec::new(),
            summary,
            first_shard: 0,
        })
    }

    fn push(&mut self, line: &[u8], key_bytes: usize) -> Result<(), ZipNumWriteError> {
        if self.is_cut_before(line, &line[..key_bytes]) {
            self.end_member()?;
            self.end_shard()?;
        } else if self.line_count == self.options.lines_per_member.max(1) {
            self.end_member()?;
        }
        if self.line_count == 0 {
            let rest = &line[key_bytes + 1..];
            let time_bytes = memchr(b' ', rest).unwrap_or(rest.len());
            self.first.clear();
            self.first
                .extend_from_slice(&line[..key_bytes + 1 + time_bytes]);
        }
        self.lines.extend_from_slice(line);
        self.lines.push(b'\n');
        self.line_count += 1;
        self.last_key.clear();
        self.last_key.extend_from_slice(&line[..key_bytes]);
        Ok(())
    }

    fn is_cut_before(&mut self, line: &[u8], key: &[u8]) -> bool {
        match &self.options.shards {
            Shards::Bytes(limit) => {
                let full = self.shard.is_some()
                    && self
                        .written
                        .shards
                        .last()
                        .is_some_and(|shard| shard.bytes >= *limit);
                full && key != self.last_key
            }
            Shards::At(splits) => {
                let passed = splits[self.splits..]
                    .iter()
                    .take_while(|split| line >= split.as_slice())
                    .count();
                self.splits += passed;
                passed > 0
            }
        }
    }

    fn end_member(&mut self) -> Result<(), ZipNumWriteError> {
        if self.line_count == 0 {
            return Ok(());
        }
        self.member
            .resize(self.compressor.gzip_compress_bound(self.lines.len()), 0);
        let member_bytes = self
            .compressor
            .gzip_compress(&self.lines, &mut self.member)
            .expect("the bound leaves room for every input");
        let member = &self.member[..member_bytes];
        if self.shard.is_none() {
            let name = shard_name(self.name, self.first_shard + self.written.shards.len());
            let path = self.directory.join(format!("{name}.cdxj.gz"));
            self.shard = Some(Output::create(path.clone())?);
            self.written.shards.push(Shard {
                name,
                path,
                lines: 0,
                bytes: 0,
            });
        }
        let output = self.shard.as_mut().expect("it has just been made");
        let shard = self
            .written
            .shards
            .last_mut()
            .expect("it has just been noted");
        output.write(member)?;
        self.written.members += 1;
        self.written.lines += self.line_count as u64;
        self.summary.write(&self.first)?;
        let rest = format!(
            "\t{}\t{}\t{}\t{}\n",
            shard.name, shard.bytes, member_bytes, self.written.members
        );
        self.summary.write(rest.as_bytes())?;
        shard.bytes += member_bytes as u64;
        shard.lines += self.line_count as u64;
        self.lines.clear();
        self.line_count = 0;
        Ok(())
    }

    fn end_shard(&mut self) -> Result<(), ZipNumWriteError> {
        self.shard.take().map_or(Ok(()), Output::finish)
    }

    fn finish(mut self) -> Result<WrittenZipNum, ZipNumWriteError> {
        self.end_member()?;
        self.end_shard()?;
        self.summary.finish()?;
        write_locations(&self.written)?;
        Ok(self.written)
    }

    /// Ends the shards and leaves summary and locations to others.
    pub(super) fn end_shards(mut self) -> Result<WrittenZipNum, ZipNumWriteError> {
        self.end_member()?;
        self.end_shard()?;
        self.summary.flush()?;
        Ok(self.written)
    }
}

/// One file being written.
pub(super) struct Output {
    pub(super) path: PathBuf,
    pub(super) file: BufWriter<File>,
}

impl Output {
    pub(super) fn create(path: PathBuf) -> Result<Self, ZipNumWriteError> {
        match File::create_new(&path) {
            Ok(file) => Ok(Self {
                path,
                file: BufWriter::new(file),
            }),
            Err(source) => Err(ZipNumWriteError::Write { path, source }),
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), ZipNumWriteError> {
        self.file
            .write_all(bytes)
            .map_err(|source| ZipNumWriteError::Write {
                path: self.path.clone(),
                source,
            })
    }

    pub(super) fn finish(mut self) -> Result<(), ZipNumWriteError> {
        let synced = self
            .file
            .flush()
            .and_then(|()| self.file.get_ref().sync_all());
        synced.map_err(|source| ZipNumWriteError::Write {
            path: self.path,
            source,
        })
    }
}
