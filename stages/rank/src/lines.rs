//! Lines out of a stream of bytes that is written.

use std::io::{self, Write};

use crate::error::RankError;

/// Gives every whole line that is written to it to a function.
pub(crate) struct LineSink<Each> {
    rest: Vec<u8>,
    each: Each,
    failure: Option<RankError>,
}

impl<Each: FnMut(&[u8]) -> Result<(), RankError>> LineSink<Each> {
    pub(crate) fn new(each: Each) -> Self {
        Self {
            rest: Vec::new(),
            each,
            failure: None,
        }
    }

    /// Turns what a writer of it came to into why it stopped.
    pub(crate) fn end<Done>(self, written: Result<Done, RankError>) -> Result<Done, RankError> {
        match self.failure {
            Some(failure) => Err(failure),
            None => written,
        }
    }
}

impl<Each: FnMut(&[u8]) -> Result<(), RankError>> Write for LineSink<Each> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut left = bytes;
        while let Some(feed) = memchr::memchr(b'\n', left) {
            let given = if self.rest.is_empty() {
                (self.each)(&left[..feed])
            } else {
                self.rest.extend_from_slice(&left[..feed]);
                let given = (self.each)(&self.rest);
                self.rest.clear();
                given
            };
            if let Err(failure) = given {
                self.failure = Some(failure);
                return Err(io::Error::other("the lines are not wanted"));
            }
            left = &left[feed + 1..];
        }
        self.rest.extend_from_slice(left);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
