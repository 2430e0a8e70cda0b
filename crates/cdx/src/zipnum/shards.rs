//! ZipNum in shards that are written apart, by threads or machines that know nothing of each other, and joined.
//!
//! A shard is a range of keys. Its members begin with its first line, so it is the same whoever writes it and whatever the others
//! hold; only the number of a member counts on from shard to shard, and that stands in the summary alone. So the summary is
//! put together at the end, from one piece of it for each shard.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

use super::write::{Output, Writer};
use super::{Shard, Shards, WrittenZipNum, ZipNumOptions, ZipNumWriteError};
use crate::LineSource;

/// A shard that was written, and its piece of the summary.
#[derive(Debug)]
pub struct WrittenShard {
    /// The shard; none where the range has no lines.
    pub shard: Option<Shard>,
    /// Its lines.
    pub lines: u64,
    /// Its gzip members.
    pub members: u64,
    /// The lines of the summary, their members numbered from 1.
    summary: File,
    summary_path: PathBuf,
}

impl WrittenShard {
    /// Returns a shard that was written elsewhere, with the file that its piece of the summary was copied to; `path` is what
    /// messages call that.
    pub fn found(shard: Option<Shard>, members: u64, summary: File, path: PathBuf) -> Self {
        Self {
            lines: shard.as_ref().map_or(0, |shard| shard.lines),
            shard,
            members,
            summary,
            summary_path: path,
        }
    }

    /// Copies the piece of the summary, for [`WrittenShard::found`].
    ///
    /// # Errors
    /// When it cannot be read back or written.
    pub fn copy_summary_to(&mut self, out: &mut impl Write) -> io::Result<u64> {
        self.summary.rewind()?;
        io::copy(&mut self.summary, out)
    }
}

/// Writes the lines of one range as the shard of this number: its name has the number, so only ranges with lines are counted.
/// `options.shards` does not count. Nothing else is written; the piece of the summary has no name.
///
/// # Errors
/// As [`write`](super::write()).
pub fn write_shard(
    source: LineSource,
    directory: &Path,
    name: &str,
    number: usize,
    options: &ZipNumOptions,
) -> Result<WrittenShard, ZipNumWriteError> {
    super::write::must_be_name(name)?;
    let options = ZipNumOptions {
        shards: Shards::At(Vec::new()),
        ..options.clone()
    };
    let summary_path = directory.join(format!("{name}.idx"));
    let failed = |source: io::Error| ZipNumWriteError::Write {
        path: summary_path.clone(),
        source,
    };
    let summary = tempfile::tempfile_in(directory).map_err(failed)?;
    let summary_out = Output::over(summary_path.clone(), summary.try_clone().map_err(failed)?);
    let mut writer = Writer::create(directory, name, &options, summary_out)?;
    writer.first_shard = number;
    super::write::push_all(source, &mut writer)?;
    let mut written = writer.end_shards()?;
    Ok(WrittenShard {
        lines: written.lines,
        members: written.members,
        shard: written.shards.pop(),
        summary,
        summary_path,
    })
}

/// Writes the summary and the locations of shards, which are given in their order: byte for byte what
/// [`write`](super::write()) makes of the same lines when it is told to cut at the same places.
///
/// # Errors
/// When a file cannot be written or read back, and when shards are not numbered as they come.
pub fn join_shards(
    shards: Vec<WrittenShard>,
    directory: &Path,
    name: &str,
) -> Result<WrittenZipNum, ZipNumWriteError> {
    super::write::must_be_name(name)?;
    let summary = directory.join(format!("{name}.idx"));
    let mut joined = WrittenZipNum {
        locations: directory.join(format!("{name}.loc")),
        summary: summary.clone(),
        shards: Vec::new(),
        lines: 0,
        members: 0,
    };
    let mut out = Output::create(summary)?;
    for mut piece in shards {
        let Some(shard) = piece.shard.take() else {
            continue;
        };
        let expected = super::write::shard_name(name, joined.shards.len());
        if shard.name != expected {
            return Err(ZipNumWriteError::Name { name: shard.name });
        }
        copy_summary(&mut piece, joined.members, &mut out)?;
        joined.lines += piece.lines;
        joined.members += piece.members;
        joined.shards.push(shard);
    }
    out.finish()?;
    super::write::write_locations(&joined)?;
    Ok(joined)
}

/// Copies a piece of the summary, its members counted on from those before.
fn copy_summary(
    piece: &mut WrittenShard,
    before: u64,
    out: &mut Output,
) -> Result<(), ZipNumWriteError> {
    let path = piece.summary_path.clone();
    let failed = |source: io::Error| ZipNumWriteError::Write {
        path: path.clone(),
        source,
    };
    piece.summary.rewind().map_err(failed)?;
    let mut lines = BufReader::new(&piece.summary);
    let mut line = Vec::new();
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line).map_err(failed)? == 0 {
            return Ok(());
        }
        let tab = memchr::memrchr(b'\t', &line);
        let (rest, number) = line.split_at(tab.map_or(0, |tab| tab + 1));
        let number: Option<u64> = str::from_utf8(number.trim_ascii_end())
            .ok()
            .and_then(|number| number.parse().ok());
        let number = number.ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))?;
        out.write(rest)?;
        out.write(format!("{}\n", number + before).as_bytes())?;
    }
}

impl Output {
    /// Writes to a file without a name; `path` is what messages call it.
    fn over(path: PathBuf, file: File) -> Self {
        Self {
            path,
            file: BufWriter::new(file),
        }
    }

    /// Ends a file that need not be durable.
    pub(super) fn flush(&mut self) -> Result<(), ZipNumWriteError> {
        self.file.flush().map_err(|source| ZipNumWriteError::Write {
            path: self.path.clone(),
            source,
        })
    }
}
