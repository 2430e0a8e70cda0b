//! Parts of a generation put together: the flat list copied and summed once more, shards linked, the summary counted on.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ecluse_cdx::zipnum::{self, Shard, WrittenShard};
use ecluse_cdx::{LineSource, Lines, MAX_LINE_BYTES, MergeStats};
use ecluse_generation::{
    AskedToStop, FLAT, FileSum, IndexFile, RangePart, SummedFile, ZIPNUM, entry_of,
};
use ecluse_stage::Failure;

use crate::blame;
use crate::building::{Building, cannot, with_cause};
use crate::planning::Planned;

/// How much is copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// What the parts came to.
pub(crate) struct Joined {
    pub(crate) flat: IndexFile,
    pub(crate) stats: MergeStats,
    parts: Vec<(PathBuf, RangePart)>,
}

impl Building<'_> {
    /// Puts the parts together as they come, in the order of their keys.
    pub(crate) fn join_parts(&self, planned: &Planned<'_>) -> Result<Joined, Failure> {
        let plan = &planned.plan;
        let path = self.directory.join(FLAT);
        let sum = FileSum::in_blocks(self.flat_block_bytes()?);
        let mut out = SummedFile::create(&path, sum, self.outbox.signs())
            .map_err(|error| cannot("make", &path, &error))?;
        let (mut stats, mut parts) = (MergeStats::default(), Vec::new());
        let mut last_line = Vec::new();
        for range in 0..plan.ranges() {
            let part = planned.wait_for(self.index, range, self.members, self.outbox)?;
            let from = part.0.join(FLAT);
            must_follow(&from, &mut last_line)?;
            copy(&from, &part.1.flat, &mut out)?;
            stats.lines_read += part.1.lines_read;
            stats.duplicates += part.1.duplicates;
            stats.lines_written += part.1.flat.lines.unwrap_or_default();
            stats.bytes_written += part.1.flat.bytes;
            parts.push(part);
        }
        let mut flat = out
            .finish(FLAT)
            .map_err(|error| cannot("sync", &path, &error))?;
        flat.lines = Some(stats.lines_written);
        let read = plan.last.lines.unwrap_or_default() + plan.new.lines.unwrap_or_default();
        let expected = (read, read - stats.duplicates.min(read), stats.bytes_written);
        let found = (stats.lines_read, stats.lines_written, flat.bytes);
        if found != expected {
            return Err(Failure::halt(format!(
                "{}: lines read, lines and bytes are {found:?}, expected {expected:?}",
                path.display()
            )));
        }
        Ok(Joined { flat, stats, parts })
    }

    /// Puts ZipNum together.
    pub(crate) fn join_zipnum(&self, joined: &Joined) -> Result<Vec<IndexFile>, Failure> {
        let (mut shards, mut entries) = (Vec::new(), Vec::new());
        for (directory, part) in &joined.parts {
            let Some(found) = &part.zipnum else {
                let problem = format!("{} has no shard", directory.display());
                return Err(Failure::halt(problem));
            };
            let (from, to) = (
                directory.join(&found.shard.name),
                self.directory.join(&found.shard.name),
            );
            self.index.take_from_part(&from, &to).map_err(blame)?;
            self.outbox.tick();
            must_be(&to, &found.shard)?;
            let summary = directory.join(&found.summary.name);
            must_be(&summary, &found.summary)?;
            let open = File::open(&summary).map_err(|error| cannot("open", &summary, &error))?;
            let name = found.shard.name.trim_end_matches(".cdxj.gz").to_owned();
            let shard = Shard {
                name,
                path: to,
                lines: found.shard.lines.unwrap_or_default(),
                bytes: found.shard.bytes,
            };
            shards.push(WrittenShard::found(
                Some(shard),
                found.members,
                open,
                summary,
            ));
            entries.push(IndexFile {
                lines: None,
                ..found.shard.clone()
            });
        }
        let written = zipnum::join_shards(shards, self.directory, ZIPNUM);
        let written = written.map_err(|error| Failure::halt(with_cause(&error)))?;
        let mut files = Vec::new();
        for path in [&written.summary, &written.locations] {
            files.push(self.entry(path)?);
        }
        files.extend(entries);
        Ok(files)
    }
}

/// Fails unless a file is what was written.
fn must_be(path: &Path, expected: &IndexFile) -> Result<(), Failure> {
    let found = entry_of(path, &expected.name).map_err(|error| cannot("read", path, &error))?;
    match (found.bytes, &found.xxh128) == (expected.bytes, &expected.xxh128) {
        true => Ok(()),
        false => Err(spoilt(path)),
    }
}

fn spoilt(path: &Path) -> Failure {
    let part = path.parent().unwrap_or(path);
    Failure::halt(format!(
        "{} is not what was written: remove {}, and the range is built again",
        path.display(),
        part.display()
    ))
}

/// Appends a part of the flat list.
fn copy(from: &Path, expected: &IndexFile, out: &mut SummedFile) -> Result<(), Failure> {
    let mut file = File::open(from).map_err(|error| cannot("open", from, &error))?;
    let mut sum = FileSum::default();
    let mut buffer = vec![0; COPY_BYTES];
    loop {
        let read = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(cannot("read", from, &error)),
        };
        sum.add(&buffer[..read]);
        out.write_all(&buffer[..read]).map_err(|error| {
            if AskedToStop::is(&error) {
                return Failure::give_back();
            }
            cannot("copy", from, &error)
        })?;
    }
    let found = sum.entry(&expected.name);
    match (found.bytes, &found.xxh128) == (expected.bytes, &expected.xxh128) {
        true => Ok(()),
        false => Err(spoilt(from)),
    }
}

/// Fails unless a part begins after the last line of the part before it, which becomes its own last one.
fn must_follow(part: &Path, last_line: &mut Vec<u8>) -> Result<(), Failure> {
    let source = LineSource::open(part).map_err(Failure::halt)?;
    let mut lines = Lines::new(source, MAX_LINE_BYTES);
    let Some(first) = lines.next_line().map_err(Failure::halt)? else {
        return Ok(());
    };
    if first.bytes <= last_line.as_slice() && !last_line.is_empty() {
        let part = part.display();
        let problem = format!("{part} does not begin after the end of the part before it");
        return Err(Failure::halt(problem));
    }
    *last_line = last_line_of(part).map_err(|error| cannot("read", part, &error))?;
    Ok(())
}

/// Returns the last line of a file, without its line feed.
fn last_line_of(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let mut window: u64 = 64 << 10;
    loop {
        let from = bytes.saturating_sub(window);
        let mut end = vec![0; usize::try_from(bytes - from).map_err(io::Error::other)?];
        file.read_exact_at(&mut end, from)?;
        if end.last() == Some(&b'\n') {
            end.pop();
        }
        let before = end.iter().rposition(|byte| *byte == b'\n');
        if before.is_some() || from == 0 {
            return Ok(end.split_off(before.map_or(0, |at| at + 1)));
        }
        window *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_begins_after_the_end_of_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("part");
        let mut last = Vec::new();
        let long = format!("c {}", "x".repeat(200_000));
        for (text, is_after) in [
            ("a 1\nb 1\n".to_owned(), true),
            (format!("{long}\n"), true),
            ("c 2\n".to_owned(), false),
            (format!("{long}\n"), false),
            ("d 1\nd 2\n".to_owned(), true),
        ] {
            std::fs::write(&path, &text).unwrap();
            assert_eq!(must_follow(&path, &mut last).is_ok(), is_after, "{text:.9}");
        }
        assert_eq!(last, b"d 2");
    }
}
