//! Reading the current generation, line by line or for one domain.

use std::path::Path;

use ecluse_generation::IndexFile;
use memchr::memchr;

use crate::blocks::LineBlocks;
use crate::error::RegisterError;
use crate::record::{RegisterRecord, items};

/// Reads a register in order.
pub struct RegisterReader {
    blocks: LineBlocks,
    written: Option<IndexFile>,
    last_key: Vec<u8>,
    /// The line that was given last: it is taken when the next one is asked for.
    given: usize,
}

/// One line of a register, not looked at any closer than it must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegisterLine<'a> {
    /// The whole line without its line feed.
    pub text: &'a str,
    /// Its key.
    pub key: &'a str,
}

impl<'a> RegisterLine<'a> {
    /// Returns the names of the sources that had the domain.
    pub fn sources(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let column = self.text.split('\t').nth(5).unwrap_or("-");
        items(column).map(|source| source.split_once('=').map_or(source, |(name, _)| name))
    }

    /// Reads all of it.
    ///
    /// # Errors
    /// Which column is not as it should be.
    pub fn record(&self) -> Result<RegisterRecord, crate::record::BadRecord> {
        RegisterRecord::parse(self.text)
    }
}

impl RegisterReader {
    /// Opens a file; `written` is what is known of it, to be checked at its end.
    pub(crate) fn open(path: &Path, written: Option<IndexFile>) -> Result<Self, RegisterError> {
        Ok(Self {
            blocks: LineBlocks::open(path)?,
            written,
            last_key: Vec::new(),
            given: 0,
        })
    }

    /// Returns how many records there are, as far as that was written down.
    pub fn records(&self) -> u64 {
        let written = self.written.as_ref();
        written.and_then(|written| written.lines).unwrap_or(0)
    }

    /// Returns the next line; none at the end, when all of the file was what was written.
    ///
    /// # Errors
    /// When the file cannot be read, is out of order, or is not what was written.
    pub fn next_line(&mut self) -> Result<Option<RegisterLine<'_>>, RegisterError> {
        self.blocks.take(std::mem::take(&mut self.given));
        let bytes = match memchr(b'\n', self.blocks.lines()?) {
            Some(feed) => feed,
            None => {
                if let Some(written) = &self.written {
                    self.blocks.must_be(written)?;
                }
                return Ok(None);
            }
        };
        let is_above = {
            let line = &self.blocks.lines()?[..bytes];
            let key = &line[..memchr(b'\t', line).unwrap_or(0)];
            let is_above = key > self.last_key.as_slice() && std::str::from_utf8(line).is_ok();
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
            is_above
        };
        if !is_above {
            return Err(self.blocks.damaged("key"));
        }
        self.given = bytes + 1;
        let line = &self.blocks.lines()?[..bytes];
        let text = std::str::from_utf8(line).expect("it was looked at just now");
        let key = &text[..self.last_key.len()];
        Ok(Some(RegisterLine { text, key }))
    }
}
