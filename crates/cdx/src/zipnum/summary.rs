//! The summary of a ZipNum index, and the files its shards are in.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use memchr::memchr;

use super::BlockError;
use super::blocks::Blocks;
use crate::lookup::FlatFile;
use crate::{LineFault, LineSource, LookupError, ReadError};

/// One line of a summary: where one gzip member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SummaryLine<'a> {
    /// Key and time of the member's first line, with a space between.
    pub first: &'a [u8],
    /// The shard.
    pub shard: &'a str,
    /// Where the member begins in it.
    pub offset: u64,
    /// How many bytes it takes there.
    pub length_bytes: u64,
    /// The member's number, from 1, if the line has it.
    pub number: Option<u64>,
}

/// Reads one line of a summary, with or without its line feed.
pub fn parse_summary_line(line: &[u8]) -> Result<SummaryLine<'_>, LineFault> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let mut fields = line.split(|byte| *byte == b'\t');
    let first = fields
        .next()
        .filter(|first| !first.is_empty())
        .ok_or(LineFault::NoKey)?;
    let rest: Vec<&str> = fields
        .map(|field| {
            str::from_utf8(field).map_err(|_| LineFault::NotUtf8 {
                valid_bytes: first.len(),
            })
        })
        .collect::<Result<_, _>>()?;
    let number = |field: &'static str, digits: &str| {
        digits.parse().map_err(|_| LineFault::BadField {
            field,
            found: crate::fault::excerpt(digits.as_bytes()),
        })
    };
    let (shard, offset, length, count) = match rest[..] {
        [shard, offset, length] => (shard, offset, length, None),
        [shard, offset, length, count] => (shard, offset, length, Some(count)),
        _ => {
            return Err(LineFault::FieldCount {
                expected: 5,
                found: rest.len() + 1,
            });
        }
    };
    Ok(SummaryLine {
        first,
        shard,
        offset: number("offset", offset)?,
        length_bytes: number("length", length)?,
        number: count.map(|count| number("number", count)).transpose()?,
    })
}

/// An open summary.
pub(crate) struct Summary {
    file: FlatFile,
    shards: HashMap<String, ShardFile>,
}

/// A shard, opened when it is first needed.
struct ShardFile {
    paths: Vec<PathBuf>,
    file: OnceLock<Arc<File>>,
}

impl Summary {
    pub(crate) fn open(path: &Path) -> Result<Self, ReadError> {
        Ok(Self {
            file: FlatFile::open(path)?,
            shards: read_locations(&path.with_extension("loc"))?,
        })
    }

    /// Begins at the last member that can hold the first line at or above `from`.
    pub(crate) fn blocks_from(&self, from: &[u8]) -> Result<Blocks<'_>, LookupError> {
        // A summary's line is the beginning of a member's first line. Where it is also the beginning of `from`, that
        // first line may be above `from`, and what is wanted may begin in the member before.
        let is_before = |line: &[u8]| {
            let first = &line[..memchr(b'\t', line).unwrap_or(line.len())];
            first < from && !from.starts_with(first)
        };
        let mut offset = self.file.last_start_where(is_before, from.len())?;
        let mut lines = self.file.lines_from(offset);
        while lines.advance()? && is_before(lines.line()) {
            offset = lines.place().offset;
        }
        Ok(Blocks::new(self, self.file.lines_from(offset)))
    }

    /// Returns a shard's file, from the first of its locations that can be opened.
    pub(crate) fn shard(&self, name: &str) -> Result<&Arc<File>, BlockError> {
        let shard = self
            .shards
            .get(name)
            .ok_or_else(|| BlockError::UnknownShard { shard: name.into() })?;
        if let Some(file) = shard.file.get() {
            return Ok(file);
        }
        let mut failure = None;
        for path in &shard.paths {
            match File::open(path) {
                Ok(file) => return Ok(shard.file.get_or_init(|| Arc::new(file))),
                Err(source) => {
                    failure = Some(BlockError::Open {
                        path: path.clone(),
                        source,
                    });
                }
            }
        }
        Err(failure.unwrap_or_else(|| BlockError::UnknownShard { shard: name.into() }))
    }
}

fn read_locations(path: &Path) -> Result<HashMap<String, ShardFile>, ReadError> {
    let directory = path.parent().unwrap_or(Path::new(""));
    let mut lines = crate::Lines::new(LineSource::open(path)?, crate::MAX_LINE_BYTES);
    let mut shards = HashMap::new();
    while let Some(line) = lines.next_line()? {
        let fields: Option<Vec<&str>> = str::from_utf8(line.bytes)
            .ok()
            .map(|line| line.split('\t').collect());
        match fields.as_deref() {
            Some([name, paths @ ..]) if !paths.is_empty() => {
                let paths = paths.iter().map(|path| directory.join(path)).collect();
                shards.insert(
                    (*name).to_owned(),
                    ShardFile {
                        paths,
                        file: OnceLock::new(),
                    },
                );
            }
            _ => return Err(lines.malformed(LineFault::NotPath)),
        }
    }
    Ok(shards)
}
