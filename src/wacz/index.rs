//! The index in a WACZ file: CDXJ lines in gzip members, and a summary with a line for each member, as py-wacz and ReplayWeb.page
//! have it.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};

use ecluse_cdx::Sorter;
use ecluse_stage::Exit;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;

use crate::context::Trouble;

/// What py-wacz uses.
const LINES: usize = 1024;

/// Writes sorted lines; returns the members, and the summary.
pub(super) fn write(lines: Sorter) -> Result<(File, Vec<u8>), Trouble> {
    let mut members = Members {
        file: BufWriter::new(tempfile::tempfile()?),
        offset: 0,
        block: Vec::new(),
        count: 0,
        summary: b"!meta 0 {\"format\": \"cdxj-gzip-1.0\", \"filename\": \"index.cdx.gz\"}\n"
            .to_vec(),
    };
    let finished = lines.finish(&mut members);
    finished.map_err(|error| Trouble::new(Exit::Machine, error))?;
    members.end_block()?;
    let mut file = members
        .file
        .into_inner()
        .map_err(|error| error.into_error())?;
    file.seek(SeekFrom::Start(0))?;
    Ok((file, members.summary))
}

struct Members {
    file: BufWriter<File>,
    offset: u64,
    block: Vec<u8>,
    /// Lines in the block.
    count: usize,
    summary: Vec<u8>,
}

impl Members {
    fn end_block(&mut self) -> io::Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(&self.block)?;
        let member = gzip.finish()?;
        self.file.write_all(&member)?;
        let first = self
            .block
            .split(|byte| *byte == b'\n')
            .next()
            .unwrap_or_default();
        let key = String::from_utf8_lossy(first);
        let key: Vec<&str> = key.splitn(3, ' ').take(2).collect();
        let says = json!({
            "offset": self.offset,
            "length": member.len(),
            "digest": format!("sha256:{}", ecluse_spool::digest(&member)),
            "filename": "index.cdx.gz",
        });
        writeln!(self.summary, "{} {says}", key.join(" "))?;
        self.offset += member.len() as u64;
        self.block.clear();
        self.count = 0;
        Ok(())
    }
}

impl Write for Members {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.block.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                self.count += 1;
                if self.count == LINES {
                    self.end_block()?;
                }
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
