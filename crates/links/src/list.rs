//! Packed lists of lines: a header, then lines, with the number of each.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use crate::error::{BadLinkLine, LinksError};

/// No line is longer; a page with more links has lost some when it was written.
const LINE_BYTES: u64 = 8 << 20;

/// Reads the lines of a packed list.
pub struct LineReader {
    source: Box<dyn BufRead + Send>,
    path: PathBuf,
    line: Vec<u8>,
    number: u64,
}

impl LineReader {
    /// Opens a list and reads its header.
    ///
    /// # Errors
    /// When it cannot be read, or is none of this kind.
    pub fn open(path: &Path, header: &'static str) -> Result<Self, LinksError> {
        let file = File::open(path).map_err(LinksError::io("open", path))?;
        Self::new(file, path, header)
    }

    /// Reads a list from a source; `name` is what errors call it.
    ///
    /// # Errors
    /// As [`LineReader::open`].
    pub fn new(
        source: impl Read + Send + 'static,
        name: &Path,
        header: &'static str,
    ) -> Result<Self, LinksError> {
        let unpacked = zstd::Decoder::new(source).map_err(LinksError::io("unpack", name))?;
        let mut reader = Self {
            source: Box::new(BufReader::with_capacity(128 << 10, unpacked)),
            path: name.to_owned(),
            line: Vec::new(),
            number: 0,
        };
        let found = reader.next_line()?.is_some_and(|line| line == header);
        if !found {
            return Err(reader.damaged(BadLinkLine("not the header of this list and version")));
        }
        Ok(reader)
    }

    /// Returns the next line without its line feed; none at the end.
    ///
    /// # Errors
    /// When it cannot be read, is no UTF-8, too long or cut short.
    pub fn next_line(&mut self) -> Result<Option<&str>, LinksError> {
        self.line.clear();
        let read = (&mut self.source)
            .take(LINE_BYTES)
            .read_until(b'\n', &mut self.line);
        if read.map_err(LinksError::io("read", &self.path))? == 0 {
            return Ok(None);
        }
        self.number += 1;
        if self.line.pop() != Some(b'\n') {
            return Err(self.damaged(BadLinkLine("cut short, or too long")));
        }
        match std::str::from_utf8(&self.line) {
            Ok(line) => Ok(Some(line)),
            Err(_) => Err(self.damaged(BadLinkLine("not UTF-8"))),
        }
    }

    /// Returns the line that was read last.
    pub(crate) fn last_line(&self) -> &str {
        std::str::from_utf8(&self.line).expect("it was looked at when it was read")
    }

    /// Returns the error of the line that was read last.
    pub fn damaged(&self, fault: BadLinkLine) -> LinksError {
        LinksError::damaged(&self.path, self.number)(fault)
    }
}

/// Writes the lines of a packed list.
pub struct LineWriter<Sink: Write> {
    out: zstd::Encoder<'static, Sink>,
    lines: u64,
}

impl<Sink: Write> LineWriter<Sink> {
    /// Begins a list.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(out: Sink, header: &str) -> io::Result<Self> {
        let mut out = zstd::Encoder::new(out, 3)?;
        // A file that lost its end is told from a whole one.
        out.include_checksum(true)?;
        out.write_all(header.as_bytes())?;
        out.write_all(b"\n")?;
        Ok(Self { out, lines: 0 })
    }

    /// Writes one line, which has its line feed.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&mut self, line: &[u8]) -> io::Result<()> {
        debug_assert!(line.ends_with(b"\n"));
        self.lines += 1;
        self.out.write_all(line)
    }

    /// Ends the list; returns where it was written and its lines without the header.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(self) -> io::Result<(Sink, u64)> {
        Ok((self.out.finish()?, self.lines))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_have_file_and_line() {
        let packed = |text: &str| zstd::encode_all(text.as_bytes(), 1).unwrap();
        let read = |bytes: Vec<u8>| {
            let mut reader = LineReader::new(io::Cursor::new(bytes), Path::new("x.zst"), "# a 1")?;
            let mut lines = 0;
            while reader.next_line()?.is_some() {
                lines += 1;
            }
            Ok::<u32, LinksError>(lines)
        };
        assert_eq!(read(packed("# a 1\nb\n\n")).unwrap(), 2);
        for (text, said) in [
            (
                "# a 2\n",
                "line 1 of x.zst: not the header of this list and version",
            ),
            (
                "",
                "line 0 of x.zst: not the header of this list and version",
            ),
            ("# a 1\nb\nc", "line 3 of x.zst: cut short, or too long"),
        ] {
            assert_eq!(read(packed(text)).unwrap_err().to_string(), said);
        }
        let mut cut = packed(&format!("# a 1\n{}", "abc\n".repeat(100_000)));
        cut.truncate(cut.len() - 3);
        assert!(read(cut).is_err());
    }
}
