//! The lines of one output, sorted within a limit of memory.

use std::io::Write;
use std::path::PathBuf;

use ecluse_cdx::{Capture, LineFault, MAX_LINE_BYTES, MergeError, Sorter, cdx, cdxj};
use ecluse_stage::Failure;

use crate::index::Taken;
use crate::settings::{Format, Settings};

/// Gathers captures and writes them as sorted lines, each once.
pub(crate) struct Lines {
    pub(crate) format: Format,
    sorter: Sorter,
    line: Vec<u8>,
}

impl Lines {
    pub(crate) fn new(format: Format, settings: &Settings, temporary: PathBuf) -> Self {
        Self {
            format,
            sorter: Sorter::new(settings.sort_options(temporary)),
            line: Vec::new(),
        }
    }

    /// Takes a capture, or says why no line can be made of it: that costs this capture and not its neighbours.
    pub(crate) fn push(&mut self, capture: &Capture<'_>) -> Result<Taken, Failure> {
        self.line.clear();
        let written = match self.format.layout() {
            None => cdxj::write(capture, &mut self.line),
            Some(layout) => cdx::write(layout, capture, &mut self.line),
        };
        if let Err(fault) = written {
            return Ok(Err(fault));
        }
        // A server may send a header of any length; a longer line would be refused by every merge to come.
        if self.line.len() > MAX_LINE_BYTES {
            return Ok(Err(LineFault::TooLong {
                bytes: self.line.len(),
                limit_bytes: MAX_LINE_BYTES,
            }));
        }
        self.sorter.push(&self.line).map_err(unsorted)?;
        Ok(Ok(()))
    }

    /// Writes the heading of the layout, if it has one, and the lines; returns how many lines there are.
    pub(crate) fn finish(self, mut out: impl Write) -> Result<u64, MergeError> {
        if let Some(layout) = self.format.layout() {
            writeln!(out, "{}", layout.header()).map_err(|source| MergeError::Write {
                bytes_written: 0,
                source,
            })?;
        }
        Ok(self.sorter.finish(&mut out)?.lines_written)
    }
}

/// Lines are sorted in memory and in temporary files: where that fails, the machine does.
pub(crate) fn unsorted(error: MergeError) -> Failure {
    let cause = std::error::Error::source(&error);
    let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
    Failure::halt(format!("{error}{cause}"))
}
