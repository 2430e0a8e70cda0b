//! The bytes of one record as they stand in a file: header, block and end, packed or plain.
//!
//! A record in memory is packed in one go with libdeflate; one that streams takes zlib-rs. Digests that were taken while
//! the bytes arrived are not taken again.

use std::io::{self, Read, Write};

use crate::digest::Sha1Digest;
use crate::writer::{NewRecord, WarcWriteError, compose, pump};

/// How records are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// One gzip member a record, from level 1 (fast) to 9 (small).
    Gzip(u8),
    /// Not at all.
    None,
}

/// The digests of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digests {
    /// Of the block.
    pub block: Sha1Digest,
    /// Of the payload, if it has one.
    pub payload: Option<Sha1Digest>,
}

impl Digests {
    /// Takes the digest of a block that has no payload of its own.
    #[must_use]
    pub fn of_block(block: &[u8]) -> Self {
        Self {
            block: Sha1Digest::of(block),
            payload: None,
        }
    }
}

/// Makes the bytes of records. One serves one thread.
pub struct Packer {
    packing: Packing,
    compressor: Option<libdeflater::Compressor>,
    plain: Vec<u8>,
}

impl std::fmt::Debug for Packer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Packer")
            .field("packing", &self.packing)
            .finish_non_exhaustive()
    }
}

impl Packer {
    /// A packer; a level outside 1 to 9 counts as the nearest.
    #[must_use]
    pub fn new(packing: Packing) -> Self {
        let packing = match packing {
            Packing::Gzip(level) => Packing::Gzip(level.clamp(1, 9)),
            Packing::None => Packing::None,
        };
        let compressor = match packing {
            Packing::None => None,
            Packing::Gzip(level) => {
                let level = libdeflater::CompressionLvl::new(i32::from(level))
                    .expect("libdeflate has levels 1 to 9");
                Some(libdeflater::Compressor::new(level))
            }
        };
        Self {
            packing,
            compressor,
            plain: Vec::new(),
        }
    }

    /// Appends a record whose block is in memory to `out`. The record's own `payload` is not looked at.
    ///
    /// # Errors
    /// When a field would break the header; nothing was appended then.
    pub fn pack(
        &mut self,
        record: &NewRecord<'_>,
        digests: &Digests,
        block: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), WarcWriteError> {
        let header = compose(record, block.len() as u64, digests)?;
        let Some(compressor) = &mut self.compressor else {
            out.reserve(header.len() + block.len() + END.len());
            for part in [header.as_bytes(), block, END] {
                out.extend_from_slice(part);
            }
            return Ok(());
        };
        self.plain.clear();
        for part in [header.as_bytes(), block, END] {
            self.plain.extend_from_slice(part);
        }
        let start = out.len();
        out.resize(start + compressor.gzip_compress_bound(self.plain.len()), 0);
        let packed = compressor
            .gzip_compress(&self.plain, &mut out[start..])
            .expect("the room is what libdeflate asked for");
        out.truncate(start + packed);
        Ok(())
    }

    /// Writes a record whose block streams, and returns how many bytes that took. After an error `out` may end in half a
    /// record.
    ///
    /// # Errors
    /// When a field would break the header, the block has other bytes than `block_bytes` says, or `out` fails.
    pub fn pack_from(
        &mut self,
        record: &NewRecord<'_>,
        digests: &Digests,
        block: &mut dyn Read,
        block_bytes: u64,
        out: &mut dyn Write,
    ) -> Result<u64, WarcWriteError> {
        let header = compose(record, block_bytes, digests)?;
        let counting = Counting {
            sink: out,
            bytes: 0,
        };
        match self.packing {
            Packing::None => {
                let mut plain = counting;
                stream(record, &header, block, block_bytes, &mut plain)?;
                Ok(plain.bytes)
            }
            Packing::Gzip(level) => {
                let level = flate2::Compression::new(u32::from(level));
                let mut member = flate2::write::GzEncoder::new(counting, level);
                stream(record, &header, block, block_bytes, &mut member)?;
                let counting = member.finish().map_err(failed)?;
                Ok(counting.bytes)
            }
        }
    }
}

/// What stands behind every block.
const END: &[u8] = b"\r\n\r\n";

fn stream(
    record: &NewRecord<'_>,
    header: &str,
    block: &mut dyn Read,
    block_bytes: u64,
    out: &mut dyn Write,
) -> Result<(), WarcWriteError> {
    out.write_all(header.as_bytes()).map_err(failed)?;
    let mut refused = None;
    let pumped = pump(block, block_bytes, |piece| {
        out.write_all(piece).map_err(|error| {
            let kind = error.kind();
            refused = Some(error);
            kind.into()
        })
    });
    if let Some(error) = refused {
        return Err(failed(error));
    }
    pumped.map_err(|source| WarcWriteError::Block {
        id: record.id.to_owned(),
        source,
    })?;
    out.write_all(END).map_err(failed)
}

fn failed(source: io::Error) -> WarcWriteError {
    WarcWriteError::Write { offset: 0, source }
}

/// Counts what passes.
pub(crate) struct Counting<Sink> {
    pub(crate) sink: Sink,
    pub(crate) bytes: u64,
}

impl<Sink: Write> Write for Counting<Sink> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.sink.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::ReaderLimits;
    use crate::reader::WarcReader;
    use crate::record::RecordKind;
    use crate::writer::Payload;

    const RECORD: NewRecord<'_> = NewRecord {
        kind: RecordKind::Response,
        id: "urn:uuid:5f9ac2c5-0000-4000-8000-000000000001",
        date: "2026-01-31T12:00:00.125Z",
        target_uri: Some("http://a.example/"),
        content_type: Some("application/http; msgtype=response"),
        fields: &[],
        payload: Payload::None,
    };
    const BLOCK: &[u8] = b"HTTP/1.1 200 OK\r\n\r\nhello";

    #[test]
    fn packed_or_plain_in_memory_or_streamed_it_reads_back() {
        let digests = Digests {
            block: Sha1Digest::of(BLOCK),
            payload: Some(Sha1Digest::of(b"hello")),
        };
        for packing in [Packing::Gzip(6), Packing::Gzip(0), Packing::None] {
            let mut packer = Packer::new(packing);
            let mut file = Vec::new();
            packer.pack(&RECORD, &digests, BLOCK, &mut file).unwrap();
            let first = file.len() as u64;
            let length = packer
                .pack_from(
                    &RECORD,
                    &digests,
                    &mut &BLOCK[..],
                    BLOCK.len() as u64,
                    &mut file,
                )
                .unwrap();
            assert_eq!(file.len() as u64, first + length);
            let mut reader = WarcReader::new(&file[..], ReaderLimits::default());
            for _ in 0..2 {
                let mut record = reader.next().unwrap().unwrap();
                assert_eq!(record.block(), Some(BLOCK));
                let computed = record.digest_payload().unwrap().to_string();
                assert_eq!(record.text("WARC-Payload-Digest").unwrap(), computed);
            }
            assert!(reader.next().unwrap().is_none());
            assert_eq!(reader.damage_count(), 0, "{packing:?}");
        }
    }

    #[test]
    fn a_block_that_is_too_short_is_an_error() {
        let digests = Digests::of_block(BLOCK);
        let mut packer = Packer::new(Packing::None);
        let short = packer.pack_from(&RECORD, &digests, &mut &BLOCK[1..], 24, &mut Vec::new());
        assert!(matches!(short, Err(WarcWriteError::Block { .. })));
        let mut out = Vec::new();
        let bad = NewRecord {
            target_uri: Some("http://a/\r\nX: y"),
            ..RECORD
        };
        assert!(packer.pack(&bad, &digests, BLOCK, &mut out).is_err());
        assert!(out.is_empty());
    }
}
