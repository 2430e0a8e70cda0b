//! The bytes of the file as they are: a window that slides, and never grows beyond its capacity.
//!
//! Offsets count bytes of the file. A mark keeps bytes in the window after they were taken, so that a search can start
//! over behind a damaged member; it is dropped when the window would have to outgrow its capacity.

use std::io::{self, Read};

/// Goes to an offset of a source that can.
pub(crate) type SeekTo<Source> = fn(&mut Source, u64) -> io::Result<()>;

/// Asks a source whether to go on, where nothing is read for long.
pub(crate) type Ask<Source> = fn(&mut Source) -> io::Result<()>;

/// A window on a source.
#[derive(Debug)]
pub(crate) struct Input<Source> {
    source: Source,
    seek: Option<SeekTo<Source>>,
    ask: Option<Ask<Source>>,
    buffer: Vec<u8>,
    capacity: usize,
    /// The next byte to take.
    position: usize,
    /// The end of the bytes that were read.
    end: usize,
    /// The file offset of the first byte of the buffer.
    base: u64,
    mark: Option<usize>,
    exhausted: bool,
}

/// How large the window is as long as nothing needs a larger one: several times what must be at hand, so that little is
/// moved when it slides.
const READ_BYTES: usize = 8 << 20;

impl<Source: Read> Input<Source> {
    pub(crate) fn new(source: Source, capacity: usize, seek: Option<SeekTo<Source>>) -> Self {
        Self {
            source,
            seek,
            ask: None,
            buffer: Vec::new(),
            capacity,
            position: 0,
            end: 0,
            base: 0,
            mark: None,
            exhausted: false,
        }
    }

    /// Returns how many bytes were read: the file offset behind the buffer.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.base + self.end as u64
    }

    /// Returns the bytes at hand.
    pub(crate) fn available(&self) -> &[u8] {
        &self.buffer[self.position..self.end]
    }

    /// Returns the file offset of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.base + self.position as u64
    }

    /// Tells whether the bytes at hand are the last ones.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.exhausted
    }

    pub(crate) fn advance(&mut self, bytes: usize) {
        assert!(
            bytes <= self.end - self.position,
            "only bytes at hand can be taken"
        );
        self.position += bytes;
    }

    /// Keeps the bytes from here on, as long as there is room.
    pub(crate) fn set_mark(&mut self) {
        self.mark = Some(self.position);
    }

    pub(crate) fn clear_mark(&mut self) {
        self.mark = None;
    }

    /// Goes back to the mark, or stays if it was dropped; tells which.
    pub(crate) fn rewind(&mut self) -> bool {
        match self.mark.take() {
            Some(mark) => {
                self.position = mark;
                true
            }
            None => false,
        }
    }

    /// Tries to have `bytes` at hand (at most the capacity); fewer are there only at the end of the source.
    pub(crate) fn fill(&mut self, bytes: usize) -> io::Result<()> {
        let wanted = bytes.min(self.capacity);
        if self.end - self.position >= wanted || self.exhausted {
            return Ok(());
        }
        self.make_room(wanted);
        // A window that once grew keeps its room, but is not filled beyond need: small windows stay in the cache.
        let goal = self
            .buffer
            .len()
            .min(self.position + wanted.max(READ_BYTES.min(self.capacity)));
        while self.end - self.position < wanted && !self.exhausted {
            self.read_up_to(goal)?;
        }
        Ok(())
    }

    /// Has more bytes at hand than now, and tells whether it could: not at the end, nor with a full window.
    pub(crate) fn grow(&mut self) -> io::Result<bool> {
        let before = self.end - self.position;
        self.fill(before.saturating_mul(2).max(READ_BYTES.min(self.capacity)))?;
        Ok(self.end - self.position > before)
    }

    /// Says how the source is asked whether to go on.
    pub(crate) fn set_ask(&mut self, ask: Ask<Source>) {
        self.ask = Some(ask);
    }

    /// Asks the source whether to go on.
    pub(crate) fn ask(&mut self) -> io::Result<()> {
        self.ask.map_or(Ok(()), |ask| ask(&mut self.source))
    }

    /// Returns the bytes at hand, and what asks the source while they are worked on.
    pub(crate) fn window_and_ask(&mut self) -> (&[u8], impl FnMut() -> io::Result<()>) {
        let (ask, source) = (self.ask, &mut self.source);
        let window = &self.buffer[self.position..self.end];
        (window, move || ask.map_or(Ok(()), |ask| ask(source)))
    }

    /// Moves bytes into `out`: those at hand first, then straight from the source. Returns 0 at the end.
    pub(crate) fn take(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let at_hand = self.available();
        if !at_hand.is_empty() {
            let bytes = at_hand.len().min(out.len());
            out[..bytes].copy_from_slice(&at_hand[..bytes]);
            self.advance(bytes);
            return Ok(bytes);
        }
        if self.exhausted {
            return Ok(0);
        }
        let bytes = read_retrying(&mut self.source, out)?;
        self.exhausted = bytes == 0 && !out.is_empty();
        self.base += (self.position + bytes) as u64;
        self.position = 0;
        self.end = 0;
        Ok(bytes)
    }

    /// Reads from any offset of the source and goes back to where it was; `None` if the source cannot. Fewer bytes than
    /// asked for are the last ones.
    pub(crate) fn look(&mut self, offset: u64, out: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(seek) = self.seek else {
            return Ok(None);
        };
        // No file is longer, and some systems take no more for an offset.
        match seek(&mut self.source, offset.min(i64::MAX.unsigned_abs())) {
            Err(error) if error.kind() == io::ErrorKind::NotSeekable => return Ok(None),
            other => other?,
        }
        let mut filled = 0;
        while filled < out.len() {
            match read_retrying(&mut self.source, &mut out[filled..])? {
                0 => break,
                bytes => filled += bytes,
            }
        }
        let back = self.bytes_read();
        seek(&mut self.source, back)?;
        Ok(Some(filled))
    }

    /// Gives back the bytes that were taken last. The window may outgrow its capacity by them, once.
    pub(crate) fn put_back(&mut self, bytes: &[u8]) {
        let base = self.offset() - bytes.len() as u64;
        let buffer = [bytes, self.available()].concat();
        (self.position, self.end) = (0, buffer.len());
        (self.base, self.buffer, self.mark) = (base, buffer, None);
    }

    fn make_room(&mut self, wanted: usize) {
        let mut keep = self.mark.unwrap_or(self.position).min(self.position);
        if self.position - keep + wanted > self.capacity {
            self.mark = None;
            keep = self.position;
        }
        self.buffer.copy_within(keep..self.end, 0);
        self.base += keep as u64;
        self.end -= keep;
        self.position -= keep;
        self.mark = self.mark.map(|mark| mark - keep);
        let size = (self.position + wanted.max(READ_BYTES.min(self.capacity)))
            .min(self.capacity)
            .max(self.position + wanted);
        if self.buffer.len() < size {
            enlarge(&mut self.buffer, size, self.end);
        }
    }

    fn read_up_to(&mut self, goal: usize) -> io::Result<()> {
        let bytes = read_retrying(&mut self.source, &mut self.buffer[self.end..goal])?;
        self.end += bytes;
        self.exhausted = bytes == 0;
        Ok(())
    }
}

/// Makes a buffer larger and keeps its first bytes. New memory is zero as it comes, so nothing has to be filled.
pub(crate) fn enlarge(buffer: &mut Vec<u8>, size: usize, kept: usize) {
    let mut larger = vec![0; size];
    larger[..kept].copy_from_slice(&buffer[..kept]);
    *buffer = larger;
}

fn read_retrying(source: &mut impl Read, out: &mut [u8]) -> io::Result<usize> {
    loop {
        match source.read(out) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(bytes) if bytes > out.len() => {
                return Err(io::Error::other(
                    "source claims more bytes than it was asked for",
                ));
            }
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source that gives a few bytes at a time.
    struct Drip(Vec<u8>, usize);

    impl Read for Drip {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let bytes = out.len().min(self.0.len() - self.1).min(7777);
            out[..bytes].copy_from_slice(&self.0[self.1..self.1 + bytes]);
            self.1 += bytes;
            Ok(bytes)
        }
    }

    fn numbers(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|index| (index % 251) as u8).collect()
    }

    #[test]
    fn the_window_slides_over_the_whole_source() {
        let whole = numbers(3_000_000);
        let mut input = Input::new(Drip(whole.clone(), 0), 600_000, None);
        let mut seen = Vec::new();
        loop {
            input.fill(100_000).unwrap();
            assert_eq!(input.offset(), seen.len() as u64);
            let bytes = input.available().len().min(90_001);
            if bytes == 0 {
                break;
            }
            seen.extend_from_slice(&input.available()[..bytes]);
            input.advance(bytes);
            assert!(input.buffer.len() <= 600_000);
        }
        assert!(seen == whole);
    }

    #[test]
    fn a_mark_survives_until_the_window_is_full() {
        let mut input = Input::new(Drip(numbers(3_000_000), 0), 1_000_000, None);
        input.fill(10).unwrap();
        input.advance(5);
        input.set_mark();
        for _ in 0..9 {
            input.fill(100_000).unwrap();
            input.advance(100_000);
        }
        assert!(input.rewind());
        assert_eq!(input.offset(), 5);
        assert_eq!(input.available()[0], 5);

        input.set_mark();
        for _ in 0..11 {
            input.fill(100_000).unwrap();
            input.advance(100_000);
        }
        assert!(!input.rewind());
        assert_eq!(input.offset(), 1_100_005);
    }

    #[test]
    fn taking_keeps_the_offset() {
        let mut input = Input::new(Drip(numbers(1_000_000), 0), 600_000, None);
        input.fill(100).unwrap();
        let mut out = vec![0; 300_000];
        let mut offset = 0;
        loop {
            let bytes = input.take(&mut out).unwrap();
            if bytes == 0 {
                break;
            }
            assert_eq!(out[0], (offset % 251) as u8);
            offset += bytes;
            assert_eq!(input.offset(), offset as u64);
        }
        assert_eq!(offset, 1_000_000);
    }
}
