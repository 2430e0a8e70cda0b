//! The writing side: whole lines, gathered into large writes.

use std::io::Write;

use super::MergeError;

/// Gathers lines; what it hands over always ends with a line.
pub(crate) struct Output<'w> {
    writer: &'w mut dyn Write,
    buffer: Vec<u8>,
    limit_bytes: usize,
    bytes_written: u64,
}

impl<'w> Output<'w> {
    pub(crate) fn new(writer: &'w mut dyn Write, limit_bytes: usize) -> Self {
        Self {
            writer,
            buffer: Vec::with_capacity(limit_bytes),
            limit_bytes,
            bytes_written: 0,
        }
    }

    /// Takes whole lines. Long runs go straight from the buffer they were read into.
    #[inline]
    pub(crate) fn write(&mut self, lines: &[u8]) -> Result<(), MergeError> {
        if self.buffer.len() + lines.len() > self.limit_bytes {
            self.hand_over()?;
            if lines.len() > self.limit_bytes / 4 {
                return write_all(self.writer, lines, &mut self.bytes_written);
            }
        }
        self.buffer.extend_from_slice(lines);
        Ok(())
    }

    /// Hands over the rest and returns how many bytes there were.
    pub(crate) fn finish(mut self) -> Result<u64, MergeError> {
        self.hand_over()?;
        let bytes_written = self.bytes_written;
        self.writer.flush().map_err(|source| MergeError::Write {
            bytes_written,
            source,
        })?;
        Ok(bytes_written)
    }

    fn hand_over(&mut self) -> Result<(), MergeError> {
        write_all(self.writer, &self.buffer, &mut self.bytes_written)?;
        self.buffer.clear();
        Ok(())
    }
}

fn write_all(
    writer: &mut dyn Write,
    lines: &[u8],
    bytes_written: &mut u64,
) -> Result<(), MergeError> {
    debug_assert!(
        lines.is_empty() || lines.ends_with(b"\n"),
        "half a line must never be handed over"
    );
    writer
        .write_all(lines)
        .map_err(|source| MergeError::Write {
            bytes_written: *bytes_written,
            source,
        })?;
    *bytes_written += lines.len() as u64;
    Ok(())
}
