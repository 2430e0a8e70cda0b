//! A few lines into a big file: the place of each is found by bisection in the block that holds it, and what lies
//! between two places is copied as one piece.

use std::io::{self, Read, Write};

use memchr::{memchr, memchr_iter, memrchr};

use super::tree::Tree;
use super::{Duplicates, MergeError, MergeOptions, MergeStats, Output};
use crate::fault::excerpt;
use crate::{LinePlace, LineSource, ReadError};

pub(super) fn merge_into(
    big: LineSource,
    small: Vec<LineSource>,
    out: &mut dyn Write,
    options: &MergeOptions,
) -> Result<MergeStats, MergeError> {
    let buffer_bytes = options.buffer_bytes(small.len() + 2);
    let mut output = Output::new(out, buffer_bytes);
    let merged = merge_lines(big, small, &mut output, buffer_bytes, options);
    super::finish(merged, output)
}

fn merge_lines(
    big: LineSource,
    small: Vec<LineSource>,
    output: &mut Output<'_>,
    buffer_bytes: usize,
    options: &MergeOptions,
) -> Result<MergeStats, MergeError> {
    let mut tree = Tree::new(small, buffer_bytes, options)?;
    let mut blocks = Blocks::new(big, buffer_bytes, options.line_bytes);
    let mut stats = MergeStats::default();
    while let Some(winner) = tree.winner() {
        let cursor = tree.cursor(winner);
        let is_known = blocks.copy_below(cursor.line(), output)? || tree.is_duplicate();
        stats.lines_read += 1;
        if is_known && options.duplicates == Duplicates::Remove {
            stats.duplicates += 1;
        } else {
            stats.lines_written += 1;
            output.write(cursor.bytes(cursor.line_with_feed()))?;
        }
        if !tree.advance_in_buffer()? {
            tree.advance_by_reading()?;
        }
    }
    blocks.copy_rest(output)?;
    stats.lines_read += blocks.lines;
    stats.lines_written += blocks.lines;
    Ok(stats)
}

/// The big file, one block of whole lines at a time.
struct Blocks {
    name: String,
    reader: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    /// What is before this has been copied.
    done: usize,
    /// The end of the last whole line.
    whole: usize,
    filled: usize,
    /// The offset in the file of the buffer's first byte.
    base: u64,
    /// Lines copied.
    lines: u64,
    /// The last line copied, which the next block must not be below.
    last: Vec<u8>,
    line_bytes: usize,
}

impl Blocks {
    fn new(source: LineSource, buffer_bytes: usize, line_bytes: usize) -> Self {
        Self {
            name: source.name,
            reader: source.reader,
            buffer: vec![0; buffer_bytes],
            done: 0,
            whole: 0,
            filled: 0,
            base: 0,
            lines: 0,
            last: Vec::new(),
            line_bytes,
        }
    }

    /// Copies every line below `line`, and says whether the next one equals it.
    fn copy_below(&mut self, line: &[u8], output: &mut Output<'_>) -> Result<bool, MergeError> {
        loop {
            if self.done < self.whole && self.last_whole_line() >= line {
                break;
            }
            self.copy_to(self.whole, output)?;
            if !self.refill()? {
                return Ok(false);
            }
        }
        let place = self.lower_bound(line);
        self.copy_to(place, output)?;
        Ok(first_line(&self.buffer[place..self.whole]) == line)
    }

    fn copy_rest(&mut self, output: &mut Output<'_>) -> Result<(), MergeError> {
        loop {
            self.copy_to(self.whole, output)?;
            if !self.refill()? {
                return Ok(());
            }
        }
    }

    fn copy_to(&mut self, end: usize, output: &mut Output<'_>) -> Result<(), MergeError> {
        let run = &self.buffer[self.done..end];
        self.lines += memchr_iter(b'\n', run).count() as u64;
        output.write(run)?;
        self.done = end;
        Ok(())
    }

    /// Returns where the first line that is not below `line` begins. There is one in the block.
    fn lower_bound(&self, line: &[u8]) -> usize {
        // Every line that begins before `low` is below the line; the one that begins at or after `high` is not.
        let (mut low, mut high) = (self.done, self.whole);
        while low < high {
            let middle = low + (high - low) / 2;
            let start =
                memrchr(b'\n', &self.buffer[low..middle]).map_or(low, |feed| low + feed + 1);
            let candidate = first_line(&self.buffer[start..self.whole]);
            if candidate < line {
                low = start + candidate.len() + 1;
            } else {
                high = start;
            }
        }
        low
    }

    fn last_whole_line(&self) -> &[u8] {
        last_line(&self.buffer[self.done..self.whole])
    }

    /// Reads the next block, all of the last having been copied; false at the end of the file.
    fn refill(&mut self) -> Result<bool, ReadError> {
        if self.whole > 0 {
            self.last.clear();
            self.last
                .extend_from_slice(last_line(&self.buffer[..self.whole]));
        }
        self.buffer.copy_within(self.whole..self.filled, 0);
        self.base += self.whole as u64;
        self.filled -= self.whole;
        (self.done, self.whole) = (0, 0);
        loop {
            let begun = self.filled;
            if begun == self.buffer.len() {
                self.grow()?;
            }
            let read = self.read()?;
            if read == 0 {
                return if self.filled == 0 {
                    Ok(false)
                } else {
                    Err(self.unterminated())
                };
            }
            self.filled += read;
            if let Some(feed) = memrchr(b'\n', &self.buffer[begun..self.filled]) {
                self.whole = begun + feed + 1;
                return self.check_border();
            }
        }
    }

    fn read(&mut self) -> Result<usize, ReadError> {
        loop {
            match self.reader.read(&mut self.buffer[self.filled..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(read) => return Ok(read),
                Err(source) => {
                    let offset = self.base + self.filled as u64;
                    return Err(ReadError::Read {
                        file: self.name.clone(),
                        offset,
                        source,
                    });
                }
            }
        }
    }

    fn grow(&mut self) -> Result<(), ReadError> {
        if self.filled > self.line_bytes {
            return Err(ReadError::TooLong {
                place: self.place(0),
                limit_bytes: self.line_bytes,
            });
        }
        self.buffer
            .resize((2 * self.filled).min(self.line_bytes + 2), 0);
        Ok(())
    }

    /// Refuses a block that begins below the last one or ends below its own beginning.
    fn check_border(&self) -> Result<bool, ReadError> {
        let block = &self.buffer[..self.whole];
        let (first, last) = (first_line(block), last_line(block));
        let unsorted = |at, previous: &[u8], found: &[u8]| {
            let (place, previous, found) = (self.place(at), excerpt(previous), excerpt(found));
            Err(ReadError::Unsorted {
                place,
                previous,
                found,
            })
        };
        if self.lines > 0 && self.last.as_slice() > first {
            return unsorted(0, &self.last, first);
        }
        if first > last {
            return unsorted(self.whole - last.len() - 1, first, last);
        }
        Ok(true)
    }

    fn unterminated(&self) -> ReadError {
        ReadError::Unterminated {
            place: self.place(0),
        }
    }

    fn place(&self, at: usize) -> LinePlace {
        let lines_before =
            memchr_iter(b'\n', &self.buffer[self.done..at.max(self.done)]).count() as u64;
        LinePlace {
            file: self.name.clone(),
            line: self.lines + lines_before + 1,
            offset: self.base + at as u64,
        }
    }
}

/// Returns the first line without its feed.
fn first_line(lines: &[u8]) -> &[u8] {
    &lines[..memchr(b'\n', lines).unwrap_or(lines.len())]
}

/// Returns the last line without its feed.
fn last_line(lines: &[u8]) -> &[u8] {
    let body = lines.strip_suffix(b"\n").unwrap_or(lines);
    let start = memrchr(b'\n', body).map_or(0, |feed| feed + 1);
    &body[start..]
}
