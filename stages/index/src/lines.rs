//! The lines of one output, sorted within a limit of memory.

use std::io::Write;
use std::path::PathBuf;

use ecluse_cdx::{Capture, LineFault, MergeError, Sorter, cdx, cdxj};
use ecluse_stage::Failure;

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

    pub(crate) fn push(&mut self, capture: &Capture<'_>) -> Result<(), Failure> {
        self.line.clear();
        let written = match self.format.layout() {
            None => cdxj::write(capture, &mut self.line),
            Some(layout) => cdx::write(layout, capture, &mut self.line),
        };
        written.map_err(unwritable)?;
        self.sorter.push(&self.line).map_err(unsorted)
    }

    /// Writes the heading of the layout, if it has one, and the lines.
    pub(crate) fn finish(self, mut out: impl Write) -> Result<(), Failure> {
        if let Some(layout) = self.format.layout() {
            writeln!(out, "{}", layout.header())?;
        }
        self.sorter.finish(&mut out).map_err(unsorted)?;
        Ok(())
    }
}

/// The key was looked at before, so this is our fault; it must not cost the file's neighbours.
fn unwritable(fault: LineFault) -> Failure {
    Failure::hold(fault)
}

fn unsorted(error: MergeError) -> Failure {
    let cause = std::error::Error::source(&error);
    let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
    Failure::halt(format!("{error}{cause}"))
}
