//! Known bytes give known records, in every packing and of every age.

#![allow(clippy::unwrap_used, reason = "a test that cannot unwrap has failed")]

mod common;

use std::io::Read;

use common::{arc, arc_head, gzip, http, read, read_within, response, uri, uris, warc, zstd};
use ecluse_warc::{
    ArchiveFormat, Compression, DamageReason, Extent, ReaderLimits, RecordKind, WarcReader,
    WarcVersion,
};

fn three() -> Vec<Vec<u8>> {
    (1..=3).map(response).collect()
}

#[test]
fn one_gzip_member_a_record() {
    let members: Vec<_> = three().iter().map(|record| gzip(record)).collect();
    let (seen, damages) = read(&members.concat()[..]);
    assert_eq!(damages, []);
    let mut offset = 0;
    for (index, record) in seen.iter().enumerate() {
        let length = members[index].len() as u64;
        assert_eq!(record.extent, Extent::Own { offset, length });
        assert_eq!(record.uri, uri(index as u32 + 1));
        assert_eq!(record.block, http(index as u32 + 1));
        offset += length;
    }
    assert_eq!(seen.len(), 3);
}

#[test]
fn one_gzip_member_for_the_whole_file() {
    let records = three();
    let (seen, damages) = read(&gzip(&records.concat())[..]);
    assert_eq!(uris(&seen), [uri(1), uri(2), uri(3)]);
    assert_eq!(seen[2].block, http(3));
    let inside = (records[0].len() + records[1].len()) as u64;
    assert_eq!(seen[2].extent, Extent::Shared { member: 0, inside });
    assert_eq!(damages.len(), 1);
    assert_eq!(damages[0].reason, DamageReason::SharedMember);
}

#[test]
fn one_member_for_a_file_larger_than_memory() {
    let records: Vec<_> = (0..2000).map(response).collect();
    let limits = ReaderLimits {
        member_bytes: 0,
        header_bytes: 0,
        prefix_bytes: 0,
        ..ReaderLimits::default()
    };
    let (seen, damages) = read_within(&gzip(&records.concat())[..], limits);
    assert_eq!(seen.len(), 2000);
    for (number, record) in seen.iter().enumerate() {
        assert_eq!(record.block, http(number as u32));
        assert!(!record.damaged);
    }
    assert_eq!(damages.len(), 1);
}

#[test]
fn uncompressed() {
    let records = three();
    let (seen, damages) = read(&records.concat()[..]);
    assert_eq!(damages, []);
    assert_eq!(uris(&seen), [uri(1), uri(2), uri(3)]);
    // The four bytes behind a block belong to no record.
    let offset = records[0].len() as u64;
    assert_eq!(
        seen[1].extent,
        Extent::Own {
            offset,
            length: records[1].len() as u64 - 4
        }
    );
    assert_eq!(seen[1].block, http(2));
}

#[test]
fn zstd_frames() {
    let frames: Vec<_> = three().iter().map(|record| zstd(record)).collect();
    let (seen, damages) = read(&frames.concat()[..]);
    assert_eq!(damages, []);
    let offset = frames[0].len() as u64;
    assert_eq!(
        seen[1].extent,
        Extent::Own {
            offset,
            length: frames[1].len() as u64
        }
    );
    assert_eq!(seen[2].block, http(3));
}

fn with_dictionary(packed: bool) -> (Vec<u8>, usize) {
    let dictionary = response(0);
    let mut compressor = zstd::bulk::Compressor::with_dictionary(3, &dictionary).unwrap();
    let frames: Vec<_> = three()
        .iter()
        .map(|record| compressor.compress(record).unwrap())
        .collect();
    let content = if packed {
        zstd(&dictionary)
    } else {
        dictionary
    };
    let mut file = vec![0x5D, 0x2A, 0x4D, 0x18];
    file.extend((content.len() as u32).to_le_bytes());
    file.extend(content);
    let first = file.len();
    file.extend(frames.concat());
    (file, first)
}

#[test]
fn zstd_with_a_dictionary_frame() {
    for packed in [false, true] {
        let (file, first) = with_dictionary(packed);
        let (seen, damages) = read(&file[..]);
        assert_eq!(damages, [], "packed: {packed}");
        assert_eq!(uris(&seen), [uri(1), uri(2), uri(3)]);
        assert_eq!(seen[0].block, http(1));
        assert!(matches!(seen[0].extent, Extent::Own { offset, .. } if offset == first as u64));
    }
}

#[test]
fn zstd_without_its_dictionary_is_damage() {
    let (file, first) = with_dictionary(false);
    let (seen, damages) = read(&file[first..]);
    assert_eq!(seen, []);
    assert!(!damages.is_empty());
}

#[test]
fn arc_files() {
    let parts = [arc_head(), arc(1), arc(2)];
    for compressed in [false, true] {
        let file: Vec<u8> = if compressed {
            parts.iter().flat_map(|part| gzip(part)).collect()
        } else {
            parts.concat()
        };
        let mut reader = WarcReader::new(&file[..], ReaderLimits::default());
        let record = reader.next().unwrap().unwrap();
        assert_eq!(
            (record.format(), record.kind(), record.version()),
            (ArchiveFormat::Arc, RecordKind::Warcinfo, None)
        );
        assert_eq!(record.target_uri(), None);
        assert!(record.http().is_none());
        let record = reader.next().unwrap().unwrap();
        assert_eq!(
            (record.format(), record.kind()),
            (ArchiveFormat::Arc, RecordKind::Response)
        );
        assert_eq!(record.target_uri().unwrap(), uri(1));
        assert_eq!(record.capture_time().unwrap().as_str(), "20010203040506");
        assert_eq!(record.content_type().unwrap(), "text/html");
        assert_eq!(record.address().unwrap(), "192.0.2.1");
        assert_eq!(record.http().unwrap().status().unwrap(), "200");
        assert_eq!(record.block(), Some(&http(1)[..]));
        let record = reader.next().unwrap().unwrap();
        assert_eq!(record.number(), 3);
        let offset = if compressed {
            gzip(&parts[0]).len() + gzip(&parts[1]).len()
        } else {
            parts[0].len() + parts[1].len()
        };
        assert_eq!(record.offset(), offset as u64);
        assert!(reader.next().unwrap().is_none());
        assert_eq!(reader.damages(), []);
    }
}

#[test]
fn arc_version_2() {
    let head = b"filedesc://a.arc 0.0.0.0 20010203040506 text/plain 200 - - 0 a.arc 0\n";
    let line =
        b"http://a.example/b c 192.0.2.1 20010203040506 text/html 200 abc - 70 a.arc 5\nhello\n";
    let file = [&head[..], &line[..]].concat();
    let (seen, damages) = read(&file[..]);
    assert_eq!(damages, []);
    assert_eq!(uris(&seen), ["", "http://a.example/b%20c"]);
    assert_eq!(seen[1].block, b"hello");
}

#[test]
fn every_version_of_warc() {
    for (text, version) in [
        (
            "WARC/0.17",
            WarcVersion {
                major: 0,
                minor: 17,
            },
        ),
        (
            "WARC/0.18",
            WarcVersion {
                major: 0,
                minor: 18,
            },
        ),
        ("WARC/1.0", WarcVersion { major: 1, minor: 0 }),
        ("warc/1.1", WarcVersion { major: 1, minor: 1 }),
    ] {
        let file = [text.as_bytes(), &response(1)[8..]].concat();
        let mut reader = WarcReader::new(&file[..], ReaderLimits::default());
        assert_eq!(reader.next().unwrap().unwrap().version(), Some(version));
    }
}

#[test]
fn empty_files_and_empty_members() {
    assert_eq!(read(&b""[..]), (vec![], vec![]));
    assert_eq!(read(&gzip(b"")[..]), (vec![], vec![]));
    let empty = gzip(b"");
    let member = gzip(&response(1));
    let file = [
        &empty[..],
        &empty,
        &member,
        &empty,
        &gzip(b"\r\n"),
        &gzip(&response(2)),
        &empty,
    ]
    .concat();
    let (seen, damages) = read(&file[..]);
    assert_eq!(damages, []);
    assert_eq!(uris(&seen), [uri(1), uri(2)]);
    let offset = 2 * empty.len() as u64;
    assert_eq!(
        seen[0].extent,
        Extent::Own {
            offset,
            length: member.len() as u64
        }
    );
}

#[test]
fn headers_as_they_are_written() {
    let header = b"WARC/1.0\nwarc-type:  RESPONSE\nWarc-Target-URI : <http://a.example/caf\xe9 x>\n\
        WARC-Date: 2026-01-02T03:04:05Z\nX-Folded: one\n two\nno colon\nCONTENT-LENGTH: 2\n\nOK\n\n";
    let mut reader = WarcReader::new(&header[..], ReaderLimits::default());
    let record = reader.next().unwrap().unwrap();
    assert_eq!(record.kind(), RecordKind::Response);
    assert_eq!(record.target_uri().unwrap(), "http://a.example/café%20x");
    assert_eq!(record.text("x-folded").unwrap(), "one two");
    assert_eq!(record.fields().count(), 5);
    assert_eq!(record.declared_bytes(), Some(2));
    assert_eq!(record.block(), Some(&b"OK"[..]));
    assert!(record.http().is_some());
    assert!(reader.next().unwrap().is_none());
    assert_eq!(reader.damages(), []);
}

#[test]
fn http_heads_as_they_are_written() {
    for (block, status, payload) in [
        (
            &b"HTTP/1.1 200 OK\nContent-Type: text/plain\n\nbody"[..],
            Some("200"),
            &b"body"[..],
        ),
        (b"HTTP/1.1 200\r\n\r\nbody", Some("200"), b"body"),
        (b"<html>no head</html>", None, b""),
        (
            b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n",
            Some("304"),
            b"",
        ),
    ] {
        let file = gzip(&warc("response", "https://a.example/", block));
        let mut reader = WarcReader::new(&file[..], ReaderLimits::default());
        let mut record = reader.next().unwrap().unwrap();
        let found = record
            .http()
            .and_then(|head| head.status().map(|code| code.into_owned()));
        // Whatever the first line is, it is the status line: here `<html>no`, then `head</html>`.
        assert_eq!(found.as_deref(), status.or(Some("head</html>")));
        assert_eq!(
            record.digest_payload().unwrap(),
            ecluse_warc::Sha1Digest::of(payload)
        );
    }
}

#[test]
fn only_http_records_have_http_heads() {
    for (kind, uri, expected) in [
        ("response", "http://a.example/", true),
        ("request", "https://a.example/", true),
        ("revisit", "<http://a.example/>", true),
        ("response", "dns:a.example", false),
        ("resource", "http://a.example/", false),
        ("metadata", "http://a.example/", false),
    ] {
        let file = gzip(&warc(kind, uri, b"HTTP/1.1 200 OK\r\n\r\n"));
        let mut reader = WarcReader::new(&file[..], ReaderLimits::default());
        assert_eq!(
            reader.next().unwrap().unwrap().http().is_some(),
            expected,
            "{kind} {uri}"
        );
    }
    let file = gzip(&warc("revisit", "http://a.example/", b""));
    let mut reader = WarcReader::new(&file[..], ReaderLimits::default());
    assert!(reader.next().unwrap().unwrap().http().is_none());
}

#[test]
fn compression_is_told_by_bytes() {
    for (file, expected) in [
        (response(1), Compression::None),
        (gzip(&response(1)), Compression::Gzip),
        (zstd(&response(1)), Compression::Zstd),
    ] {
        let mut reader = WarcReader::new(&file[..], ReaderLimits::default());
        assert!(reader.next().unwrap().is_some());
        assert_eq!(reader.compression(), expected);
    }
}

#[test]
fn a_record_larger_than_memory_is_streamed() {
    let body = common::noise(3 << 20, 7);
    let block = [b"HTTP/1.1 200 OK\r\n\r\n", &body[..]].concat();
    let record = warc("response", &uri(1), &block);
    let limits = ReaderLimits {
        member_bytes: 1 << 20,
        ..ReaderLimits::default()
    };
    let small = response(2);
    for pack in [gzip as fn(&[u8]) -> Vec<u8>, zstd, <[u8]>::to_vec] {
        let (packed, next) = (pack(&record), pack(&small));
        let file = [&packed[..], &next].concat();
        let mut reader = WarcReader::new(&file[..], limits);
        let mut large = reader.next().unwrap().unwrap();
        assert_eq!(large.block(), None);
        assert!(large.block_start().len() >= 256 << 10);
        assert_eq!(large.http().unwrap().status().unwrap(), "200");
        assert_eq!(
            large.digest_payload().unwrap(),
            ecluse_warc::Sha1Digest::of(&body)
        );
        assert_eq!(
            large.target_uri().unwrap(),
            uri(1),
            "the header outlives the block"
        );
        let plain = packed == record;
        let length = packed.len() as u64 - if plain { 4 } else { 0 };
        assert_eq!(large.finish().unwrap(), Extent::Own { offset: 0, length });

        let mut second = reader.next().unwrap().unwrap();
        let mut read = Vec::new();
        second.read_to_end(&mut read).unwrap();
        assert_eq!(read, http(2));
        assert_eq!(second.offset(), packed.len() as u64);
        assert!(reader.next().unwrap().is_none());
        assert_eq!(reader.damages(), []);

        // Read instead of digested, and passed over.
        let (seen, _) = read_within(&file[..], limits);
        assert!(seen[0].block == block);
        let mut reader = WarcReader::new(&file[..], limits);
        reader.next().unwrap().unwrap();
        assert_eq!(
            reader.next().unwrap().unwrap().target_uri().unwrap(),
            uri(2)
        );
    }
}

#[test]
fn a_digest_after_reading_is_refused_when_the_block_is_gone() {
    let record = warc("response", &uri(1), &common::noise(3 << 20, 9));
    let limits = ReaderLimits {
        member_bytes: 1 << 20,
        ..ReaderLimits::default()
    };
    let mut reader = WarcReader::new(&record[..], limits);
    let mut large = reader.next().unwrap().unwrap();
    large.read_exact(&mut [0; 10]).unwrap();
    assert!(large.digest_payload().is_err());
}

/// A source that repeats one byte between a start and an end, so that no memory holds it.
struct Long<'a> {
    start: &'a [u8],
    middle: u64,
    end: &'a [u8],
}

impl Read for Long<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if !self.start.is_empty() {
            return self.start.read(out);
        }
        if self.middle > 0 {
            let bytes = usize::try_from(self.middle)
                .unwrap_or(usize::MAX)
                .min(out.len());
            out[..bytes].fill(b'x');
            self.middle -= bytes as u64;
            return Ok(bytes);
        }
        self.end.read(out)
    }
}

#[test]
fn records_of_more_than_4_gib() {
    let block: u64 = (4 << 30) + 5;
    let start = format!(
        "WARC/1.0\r\nWARC-Type: resource\r\nWARC-Target-URI: urn:a\r\nContent-Length: {block}\r\n\r\n"
    );
    let end = [b"\r\n\r\n", &response(2)[..]].concat();
    let source = Long {
        start: start.as_bytes(),
        middle: block,
        end: &end,
    };
    let mut reader = WarcReader::new(source, ReaderLimits::default());
    let record = reader.next().unwrap().unwrap();
    assert_eq!(record.declared_bytes(), Some(block));
    assert_eq!(
        record.finish().unwrap(),
        Extent::Own {
            offset: 0,
            length: start.len() as u64 + block
        }
    );
    let record = reader.next().unwrap().unwrap();
    assert_eq!(record.offset(), start.len() as u64 + block + 4);
    assert_eq!(record.target_uri().unwrap(), uri(2));
    assert_eq!(reader.damages(), []);
}
