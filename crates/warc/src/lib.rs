//! Reads WARC and ARC files as the web archives hold them, and writes WARC 1.1.
//!
//! Read are WARC 0.17 to 1.1 and ARC 1 and 2; one gzip member a record, one for the whole file, zstd frames with and
//! without a dictionary, or nothing packed at all; told by bytes, never by name. `docs/formats/warc.md` says what is
//! tolerated and how offsets count.
//!
//! * Memory is bounded by [`ReaderLimits`], whatever the file says.
//! * Damage is reported with evidence ([`WarcReader::damages`]) and costs the record it is in. Only a source that fails
//!   is an error.
//! * Nothing is allocated per record: headers are views of the inflated bytes.
//!
//! # Reading
//!
//! [`WarcReader::next`] lends one record at a time. The header can be asked at any time, the block is a slice if it fits
//! in memory ([`Record::block`]) and a stream in any case ([`std::io::Read`]). [`Record::finish`] reads to the end and
//! gives the [`Extent`]: the length of a member is known only then. Skipping it is fine.
//!
//! ```
//! use ecluse_warc::{Extent, ReaderLimits, RecordKind, WarcReader};
//!
//! # fn main() -> Result<(), ecluse_warc::WarcReadError> {
//! # let file: &[u8] = b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: <http://a.example/>\r\n\
//! #     WARC-Date: 2026-01-02T03:04:05Z\r\nContent-Length: 24\r\n\r\nHTTP/1.1 200 OK\r\n\r\nhello\r\n\r\n";
//! let mut reader = WarcReader::new(file, ReaderLimits::default());
//! while let Some(mut record) = reader.next()? {
//!     let kind = record.kind();
//!     if !matches!(kind, RecordKind::Response | RecordKind::Revisit | RecordKind::Resource) {
//!         continue;
//!     }
//!     let mut line = String::new();
//!     line.push_str(&record.target_uri().unwrap_or_default());
//!     if let Ok(time) = record.capture_time() {
//!         line.push_str(time.as_str());
//!     }
//!     if let Some(head) = record.http() {
//!         line.push_str(&head.status().unwrap_or_default());
//!         line.push_str(&head.text("Content-Type").unwrap_or_default());
//!     }
//!     match record.text("WARC-Payload-Digest") {
//!         Some(digest) => line.push_str(&digest),
//!         None if kind == RecordKind::Revisit => {}
//!         None => line.push_str(&record.digest_payload()?.to_string()),
//!     }
//!     if let Extent::Own { offset, length } = record.finish()? {
//!         line.push_str(&format!(" {offset} {length}"));
//!     }
//!     # assert_eq!(line, "http://a.example/20260102030405200sha1:VL2MMHO4YXUKFWV63YHTWSBM3GXKSQ2N 0 148");
//! }
//! assert_eq!(reader.damage_count(), 0);
//! # Ok(())
//! # }
//! ```
//!
//! # For an index that agrees with cdxj-indexer 1.5
//!
//! | field | from |
//! |---|---|
//! | url | [`Record::target_uri`] |
//! | timestamp | [`Record::capture_time`] |
//! | mime | `warc/revisit` for revisits; `Content-Type` of [`Record::http`] for requests and responses; else [`Record::content_type`]; up to the first `;` or blank |
//! | status | [`HttpHead::status`] of responses and revisits; absent if `None` |
//! | digest | the field `WARC-Payload-Digest` if it is there and not empty; else [`Record::digest_payload`], but never for `warcinfo` and `revisit` |
//! | offset, length | [`Record::finish`] |
//!
//! It indexes `response`, `revisit`, `resource` and `metadata`, the last two unless their `Content-Type` is exactly
//! `application/warc-fields`. It compares types as written, so that `RESPONSE` is none of them; [`Record::kind`] is not so
//! strict. The first record of an ARC file counts as `warcinfo`, the others as `response`.
//!
//! With `-p` it joins a request and the response next to it, in either order, if both have the same target URI and the
//! second's `WARC-Concurrent-To` is the first's `WARC-Record-ID`; the method is [`HttpHead::protocol`] of the request and
//! the body is what follows [`HttpHead::head_bytes`]. Fields of any name are had by [`Record::field`].
//!
//! # Writing
//!
//! [`WarcWriter`] writes one gzip member a record, with digests of block and payload. [`Packer`] makes the bytes of a record
//! without a file, for those who pack in several threads.

mod arc;
mod damage;
mod date;
mod digest;
mod format;
mod frame;
mod gzip;
mod header;
mod http;
mod input;
mod limits;
mod pack;
mod reader;
mod record;
mod text;
mod unpack;
mod writer;

pub use damage::{DamageReason, RecordDamage, Snippet};
pub use date::{DateError, RecordDate};
pub use digest::{Digester, Sha1Digest};
pub use format::{ArchiveFormat, Compression, WarcVersion};
pub use header::{Field, Fields};
pub use http::HttpHead;
pub use limits::ReaderLimits;
pub use pack::{Digests, Packer, Packing};
pub use reader::{WarcReadError, WarcReader};
pub use record::{Extent, Record, RecordKind};
pub use text::decode;
pub use writer::{NewRecord, Payload, WarcWriteError, WarcWriter, WrittenRecord};
