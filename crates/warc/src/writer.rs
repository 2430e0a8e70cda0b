//! Writes WARC 1.1: one gzip member a record, with digests of block and payload.
//!
//! The identifier and the date of a record come from the caller; there is no clock and no chance in here. Values that
//! would break the header are refused before a byte is written. After a failed write the file ends in half a member, so
//! the writer refuses all further work.

use std::io::{self, Read, Seek, SeekFrom, Write};

use crate::date::{DateError, RecordDate};
use crate::digest::{Digester, Sha1Digest};
use crate::pack::{Counting, Digests, Packer, Packing};
use crate::record::RecordKind;

/// A record to be written, without its block.
#[derive(Debug, Clone, Copy)]
pub struct NewRecord<'a> {
    /// What it is; the standard must have a name for it.
    pub kind: RecordKind,
    /// Its identifier, a URI without angle brackets.
    pub id: &'a str,
    /// When it was captured or made, as `2026-01-31T12:00:00Z`, with any fraction of a second.
    pub date: &'a str,
    /// What was captured.
    pub target_uri: Option<&'a str>,
    /// The type of the block.
    pub content_type: Option<&'a str>,
    /// Further fields, in order: name and value.
    pub fields: &'a [(&'a str, &'a str)],
    /// Where the payload is, for `WARC-Payload-Digest`.
    pub payload: Payload,
}

/// What of a block is its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload {
    /// Nothing: no digest is written. A revisit has its digest among its fields.
    None,
    /// All of it.
    Block,
    /// What follows an HTTP head of this many bytes.
    Behind(u64),
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrittenRecord {
    /// The offset of the record's member.
    pub offset: u64,
    /// The length of the member.
    pub length: u64,
    /// The digest of the block.
    pub block: Sha1Digest,
    /// The digest of the payload, if it has one.
    pub payload: Option<Sha1Digest>,
}

/// Why a record was not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WarcWriteError {
    /// The standard has no name for this kind of record.
    #[error("no record type for {kind:?}")]
    Kind {
        /// What was asked for.
        kind: RecordKind,
    },
    /// A field's name is not a token, or its value would break the header.
    #[error("cannot write field {name}: {value:?}")]
    Field {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
    /// The record's date is none.
    #[error("cannot write WARC-Date")]
    Date(#[from] DateError),
    /// The HTTP head is said to be longer than the block.
    #[error("HTTP head of {head} bytes in a block of {block} bytes")]
    Head {
        /// Said of the head.
        head: u64,
        /// Found in the block.
        block: u64,
    },
    /// The block could not be read, or was not the same when read again.
    #[error("cannot read the block of {id}")]
    Block {
        /// The record's identifier.
        id: String,
        /// What its source said.
        source: io::Error,
    },
    /// The file could not be written. It ends at `offset`, perhaps with half a member behind it.
    #[error("cannot write record at offset {offset}")]
    Write {
        /// Where the last whole record ends.
        offset: u64,
        /// What the file said.
        source: io::Error,
    },
    /// An earlier write failed.
    #[error("file failed at offset {offset} before")]
    Dead {
        /// Where the last whole record ends.
        offset: u64,
    },
}

/// Writes records to a file.
pub struct WarcWriter<Sink> {
    sink: Sink,
    level: u8,
    packer: Packer,
    offset: u64,
    dead: bool,
    packed: Vec<u8>,
}

impl<Sink> std::fmt::Debug for WarcWriter<Sink> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("WarcWriter")
            .field("offset", &self.offset)
            .field("dead", &self.dead)
            .finish_non_exhaustive()
    }
}

impl<Sink: Write> WarcWriter<Sink> {
    /// Writes to the start of `sink`, with a gzip level from 1 (fast) to 9 (small).
    pub fn new(sink: Sink, level: u8) -> Self {
        Self::appending(sink, 0, level)
    }

    /// Writes to a sink that holds `offset` bytes of whole records already.
    pub fn appending(sink: Sink, offset: u64, level: u8) -> Self {
        let level = level.clamp(1, 9);
        Self {
            sink,
            level,
            packer: Packer::new(Packing::Gzip(level)),
            offset,
            dead: false,
            packed: Vec::new(),
        }
    }

    /// Returns the offset of the next record.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Writes a record whose block is in memory.
    pub fn write(
        &mut self,
        record: &NewRecord<'_>,
        block: &[u8],
    ) -> Result<WrittenRecord, WarcWriteError> {
        let digests = Digests::taken(record, block.len() as u64, |digester| {
            digester.update(block);
            Ok(())
        })?;
        self.check_alive()?;
        self.packed.clear();
        self.packer
            .pack(record, &digests, block, &mut self.packed)?;
        let packed = self.packed.len() as u64;
        let written = self.sink.write_all(&self.packed).map(|()| packed);
        self.finish(written, &digests)
    }

    /// Writes a record whose block is read twice from where `block` stands now: for its digests, and for itself.
    pub fn write_from(
        &mut self,
        record: &NewRecord<'_>,
        block: &mut (impl Read + Seek),
    ) -> Result<WrittenRecord, WarcWriteError> {
        let unreadable = |source| WarcWriteError::Block {
            id: record.id.to_owned(),
            source,
        };
        let start = block.stream_position().map_err(unreadable)?;
        let end = block.seek(SeekFrom::End(0)).map_err(unreadable)?;
        let block_bytes = end.saturating_sub(start);
        block.seek(SeekFrom::Start(start)).map_err(unreadable)?;
        let digests = Digests::taken(record, block_bytes, |digester| {
            pump(block, block_bytes, |piece| {
                digester.update(piece);
                Ok(())
            })
        })?;
        block.seek(SeekFrom::Start(start)).map_err(unreadable)?;
        self.check_alive()?;
        let header = compose(record, block_bytes, &digests)?;

        // From here on a fault leaves half a member behind.
        self.dead = true;
        let mut member = flate2::write::GzEncoder::new(
            Counting {
                sink: &mut self.sink,
                bytes: 0,
            },
            flate2::Compression::new(u32::from(self.level)),
        );
        let mut again = Digester::default();
        let mut written = member.write_all(header.as_bytes());
        if written.is_ok() {
            pump(block, block_bytes, |piece| {
                again.update(piece);
                written = member.write_all(piece);
                written
                    .as_ref()
                    .map(|_| ())
                    .map_err(|error| error.kind().into())
            })
            .or_else(|error| {
                if written.is_ok() {
                    Err(unreadable(error))
                } else {
                    Ok(())
                }
            })?;
        }
        if written.is_ok() && again.finish() != digests.block {
            return Err(unreadable(io::Error::other(
                "the block changed while it was written",
            )));
        }
        let written = written
            .and_then(|()| member.write_all(b"\r\n\r\n"))
            .and_then(|()| member.finish())
            .map(|counting| counting.bytes);
        self.dead = false;
        self.finish(written, &digests)
    }

    /// Returns the sink. It may still have to be flushed and synced.
    pub fn into_inner(self) -> Sink {
        self.sink
    }

    fn check_alive(&self) -> Result<(), WarcWriteError> {
        if self.dead {
            return Err(WarcWriteError::Dead {
                offset: self.offset,
            });
        }
        Ok(())
    }

    fn finish(
        &mut self,
        written: io::Result<u64>,
        digests: &Digests,
    ) -> Result<WrittenRecord, WarcWriteError> {
        match written {
            Ok(length) => {
                let offset = self.offset;
                self.offset += length;
                Ok(WrittenRecord {
                    offset,
                    length,
                    block: digests.block,
                    payload: digests.payload,
                })
            }
            Err(source) => {
                self.dead = true;
                Err(WarcWriteError::Write {
                    offset: self.offset,
                    source,
                })
            }
        }
    }
}

impl Digests {
    fn taken(
        record: &NewRecord<'_>,
        block_bytes: u64,
        feed: impl FnOnce(&mut BothDigests) -> io::Result<()>,
    ) -> Result<Self, WarcWriteError> {
        let head = match record.payload {
            Payload::None | Payload::Block => 0,
            Payload::Behind(head) if head > block_bytes => {
                return Err(WarcWriteError::Head {
                    head,
                    block: block_bytes,
                });
            }
            Payload::Behind(head) => head,
        };
        let payload = matches!(record.payload, Payload::Behind(1..)).then(Digester::default);
        let mut both = BothDigests {
            block: Digester::default(),
            payload,
            head_left: head,
        };
        feed(&mut both).map_err(|source| WarcWriteError::Block {
            id: record.id.to_owned(),
            source,
        })?;
        let block = both.block.finish();
        let payload = match record.payload {
            Payload::None => None,
            Payload::Block | Payload::Behind(_) => {
                Some(both.payload.map_or(block, Digester::finish))
            }
        };
        Ok(Self { block, payload })
    }
}

/// Digests of a block and, where it is not the same, of its payload.
struct BothDigests {
    block: Digester,
    payload: Option<Digester>,
    head_left: u64,
}

impl BothDigests {
    fn update(&mut self, piece: &[u8]) {
        self.block.update(piece);
        if let Some(payload) = &mut self.payload {
            let skip =
                usize::try_from(self.head_left).map_or(piece.len(), |left| left.min(piece.len()));
            self.head_left -= skip as u64;
            payload.update(&piece[skip..]);
        }
    }
}

/// Hands exactly `bytes` of `source` to `take`.
pub(crate) fn pump(
    source: &mut (impl Read + ?Sized),
    bytes: u64,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    let mut left = bytes;
    while left > 0 {
        let room = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        match source.read(&mut buffer[..room]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                take(&buffer[..read])?;
                left -= read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Most headers fit.
const HEADER_ROOM: usize = 768;

/// Tells whether a byte may stand in the name of a field.
fn is_token(byte: u8) -> bool {
    const SEPARATORS: u128 = {
        let (mut set, mut at, text) = (0, 0, b"()<>@,;:\\\"/[]?={}");
        while at < text.len() {
            set |= 1 << text[at];
            at += 1;
        }
        set
    };
    byte.is_ascii_graphic() && SEPARATORS >> byte & 1 == 0
}

/// Tells whether a value can stand in a field as it is: no control characters but tabs, no blanks at its ends.
fn is_one_line(value: &str) -> bool {
    // Nearly all are such texts, and need not be taken apart into characters.
    if value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return !value.starts_with(' ') && !value.ends_with(' ');
    }
    let is_control = |character: char| character.is_control() && character != '\t';
    value.trim() == value && !value.chars().any(is_control)
}

pub(crate) fn compose(
    record: &NewRecord<'_>,
    block_bytes: u64,
    digests: &Digests,
) -> Result<String, WarcWriteError> {
    let kind = record
        .kind
        .name()
        .ok_or(WarcWriteError::Kind { kind: record.kind })?;
    RecordDate::from_warc_date(record.date.as_bytes())?;
    let mut header = String::with_capacity(HEADER_ROOM);
    header.push_str("WARC/1.1\r\n");
    let mut put = |name: &str, value: &str| -> Result<(), WarcWriteError> {
        if name.is_empty() || !name.bytes().all(is_token) || !is_one_line(value) {
            return Err(WarcWriteError::Field {
                name: name.to_owned(),
                value: value.to_owned(),
            });
        }
        for part in [name, ": ", value, "\r\n"] {
            header.push_str(part);
        }
        Ok(())
    };
    put("WARC-Type", kind)?;
    if record.id.is_empty() || record.id.contains(['<', '>', ' ']) {
        return Err(WarcWriteError::Field {
            name: "WARC-Record-ID".to_owned(),
            value: record.id.to_owned(),
        });
    }
    put("WARC-Record-ID", &format!("<{}>", record.id))?;
    put("WARC-Date", record.date)?;
    if let Some(uri) = record.target_uri {
        put("WARC-Target-URI", uri)?;
    }
    for (name, value) in record.fields {
        put(name, value)?;
    }
    put("WARC-Block-Digest", &digests.block.to_string())?;
    if let Some(payload) = digests.payload {
        put("WARC-Payload-Digest", &payload.to_string())?;
    }
    if let Some(content_type) = record.content_type {
        put("Content-Type", content_type)?;
    }
    put("Content-Length", &block_bytes.to_string())?;
    header.push_str("\r\n");
    Ok(header)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::limits::ReaderLimits;
    use crate::reader::WarcReader;
    use crate::record::Extent;

    const RECORD: NewRecord<'_> = NewRecord {
        kind: RecordKind::Response,
        id: "urn:uuid:5f9ac2c5-0000-4000-8000-000000000001",
        date: "2026-01-31T12:00:00.125Z",
        target_uri: Some("http://a.example/é"),
        content_type: Some("application/http; msgtype=response"),
        fields: &[("WARC-IP-Address", "192.0.2.1")],
        payload: Payload::Behind(19),
    };
    const BLOCK: &[u8] = b"HTTP/1.1 200 OK\r\n\r\nhello";

    #[test]
    fn a_record_reads_back_from_memory_and_from_a_source() {
        let mut writer = WarcWriter::new(Vec::new(), 6);
        let first = writer.write(&RECORD, BLOCK).unwrap();
        let second = writer.write_from(&RECORD, &mut Cursor::new(BLOCK)).unwrap();
        assert_eq!((first.offset, second.offset), (0, first.length));
        assert_eq!(first.payload, Some(Sha1Digest::of(b"hello")));
        assert_eq!((first.block, first.payload), (second.block, second.payload));
        let file = writer.into_inner();
        let mut reader = WarcReader::new(&file[..], ReaderLimits::default());
        for written in [first, second] {
            let mut record = reader.next().unwrap().unwrap();
            assert_eq!(record.target_uri().unwrap(), "http://a.example/é");
            assert_eq!(record.capture_time().unwrap().as_str(), "20260131120000");
            assert_eq!(record.block(), Some(BLOCK));
            assert_eq!(
                record.text("warc-block-digest").unwrap(),
                written.block.to_string()
            );
            let computed = record.digest_payload().unwrap().to_string();
            assert_eq!(record.text("WARC-Payload-Digest").unwrap(), computed);
            let extent = Extent::Own {
                offset: written.offset,
                length: written.length,
            };
            assert_eq!(record.finish().unwrap(), extent);
        }
        assert!(reader.next().unwrap().is_none());
        assert_eq!(reader.damage_count(), 0);
    }

    #[test]
    fn values_that_break_a_header_are_refused() {
        let mut writer = WarcWriter::new(Vec::new(), 6);
        let refused = |record: NewRecord<'_>, writer: &mut WarcWriter<Vec<u8>>| {
            writer.write(&record, BLOCK).is_err()
        };
        assert!(refused(
            NewRecord {
                target_uri: Some("http://a/\r\nX: y"),
                ..RECORD
            },
            &mut writer
        ));
        assert!(refused(
            NewRecord {
                fields: &[("A B", "c")],
                ..RECORD
            },
            &mut writer
        ));
        assert!(refused(
            NewRecord {
                fields: &[("A", "c\u{85}d")],
                ..RECORD
            },
            &mut writer
        ));
        assert!(refused(
            NewRecord {
                id: "urn:a>",
                ..RECORD
            },
            &mut writer
        ));
        assert!(refused(
            NewRecord {
                date: "today",
                ..RECORD
            },
            &mut writer
        ));
        assert!(refused(
            NewRecord {
                kind: RecordKind::Other,
                ..RECORD
            },
            &mut writer
        ));
        assert!(refused(
            NewRecord {
                payload: Payload::Behind(99),
                ..RECORD
            },
            &mut writer
        ));
        assert!(writer.write(&RECORD, BLOCK).is_ok());
        assert_eq!(writer.offset(), writer.into_inner().len() as u64);
    }

    /// A sink with room for so many bytes.
    struct Full(usize);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let written = bytes.len().min(self.0);
            self.0 -= written;
            if written == 0 {
                Err(io::ErrorKind::StorageFull.into())
            } else {
                Ok(written)
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn after_a_failed_write_the_writer_is_dead() {
        for from_source in [false, true] {
            let mut writer = WarcWriter::new(Full(100), 6);
            let failed = if from_source {
                writer.write_from(&RECORD, &mut Cursor::new(BLOCK))
            } else {
                writer.write(&RECORD, BLOCK)
            };
            assert!(
                matches!(failed, Err(WarcWriteError::Write { offset: 0, .. })),
                "{failed:?}"
            );
            assert!(matches!(
                writer.write(&RECORD, BLOCK),
                Err(WarcWriteError::Dead { offset: 0 })
            ));
        }
    }

    #[test]
    fn a_payload_digest_only_where_there_is_a_payload() {
        let mut writer = WarcWriter::new(Vec::new(), 1);
        let none = writer
            .write(
                &NewRecord {
                    payload: Payload::None,
                    ..RECORD
                },
                BLOCK,
            )
            .unwrap();
        let whole = writer
            .write(
                &NewRecord {
                    payload: Payload::Block,
                    ..RECORD
                },
                BLOCK,
            )
            .unwrap();
        assert_eq!(none.payload, None);
        assert_eq!(whole.payload, Some(whole.block));
    }
}
