//! What the tests make files of.

#![allow(dead_code, reason = "each test file uses a part of this")]

use std::io::{Read, Write};

use ecluse_warc::{Extent, ReaderLimits, RecordDamage, RecordKind, WarcReader};

/// One record as a test sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) kind: RecordKind,
    pub(crate) uri: String,
    pub(crate) block: Vec<u8>,
    pub(crate) extent: Extent,
    pub(crate) damaged: bool,
}

pub(crate) fn read(source: impl Read) -> (Vec<Seen>, Vec<RecordDamage>) {
    read_within(source, ReaderLimits::default())
}

pub(crate) fn read_within(
    source: impl Read,
    limits: ReaderLimits,
) -> (Vec<Seen>, Vec<RecordDamage>) {
    let mut reader = WarcReader::new(source, limits);
    let mut seen = Vec::new();
    while let Some(mut record) = reader.next().unwrap() {
        let kind = record.kind();
        let uri = record.target_uri().unwrap_or_default().into_owned();
        let mut block = Vec::new();
        record.read_to_end(&mut block).unwrap();
        let damaged = record.is_damaged();
        let extent = record.finish().unwrap();
        seen.push(Seen {
            kind,
            uri,
            block,
            extent,
            damaged,
        });
    }
    assert_eq!(reader.record_count(), seen.len() as u64);
    assert!(reader.next().unwrap().is_none(), "the end stays the end");
    (seen, reader.damages().to_vec())
}

/// A WARC record with a block.
pub(crate) fn warc(kind: &str, uri: &str, block: &[u8]) -> Vec<u8> {
    warc_claiming(kind, uri, block, &block.len().to_string())
}

/// A WARC record that claims any length.
pub(crate) fn warc_claiming(kind: &str, uri: &str, block: &[u8], length: &str) -> Vec<u8> {
    let mut record = format!(
        "WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {uri}\r\nWARC-Date: 2026-01-02T03:04:05Z\r\n\
         WARC-Record-ID: <urn:uuid:1>\r\nContent-Type: application/http\r\nContent-Length: {length}\r\n\r\n"
    )
    .into_bytes();
    record.extend_from_slice(block);
    record.extend_from_slice(b"\r\n\r\n");
    record
}

/// An ordinary response record whose payload differs by number.
pub(crate) fn response(number: u32) -> Vec<u8> {
    warc("response", &uri(number), &http(number))
}

pub(crate) fn uri(number: u32) -> String {
    format!("http://a.example/{number}")
}

pub(crate) fn http(number: u32) -> Vec<u8> {
    let body = format!("body of {number} ").repeat(50);
    format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n{body}").into_bytes()
}

/// An ARC file's first record.
pub(crate) fn arc_head() -> Vec<u8> {
    let version = "1 0 InternetArchive\nURL IP-address Archive-date Content-type Archive-length\n";
    format!(
        "filedesc://a.arc 0.0.0.0 20010203040506 text/plain {}\n{version}\n",
        version.len()
    )
    .into_bytes()
}

pub(crate) fn arc(number: u32) -> Vec<u8> {
    let block = http(number);
    let mut record = format!(
        "{} 192.0.2.1 20010203040506 text/html {}\n",
        uri(number),
        block.len()
    )
    .into_bytes();
    record.extend_from_slice(&block);
    record.push(b'\n');
    record
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(bytes, 3).unwrap()
}

/// Members of three responses, each apart.
pub(crate) fn three_members() -> [Vec<u8>; 3] {
    [1, 2, 3].map(|number| gzip(&response(number)))
}

pub(crate) fn uris(seen: &[Seen]) -> Vec<&str> {
    seen.iter().map(|record| record.uri.as_str()).collect()
}

/// Bytes that no codec makes smaller.
pub(crate) fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}
