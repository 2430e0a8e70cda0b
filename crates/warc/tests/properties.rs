//! Whatever the bytes are, reading ends without a panic, in order, and within the limits.

#![allow(clippy::unwrap_used, reason = "a test that cannot unwrap has failed")]

mod common;

use std::io::{self, Read};

use common::{arc, arc_head, gzip, response, zstd};
use ecluse_warc::{
    Extent, HttpHead, NewRecord, Payload, ReaderLimits, RecordDate, RecordKind, WarcReader,
    WarcWriter,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// Gives bytes in pieces of odd sizes, as pipes do.
struct Pieces<'a>(&'a [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.1 = self.1 * 7 % 8191 + 1;
        let bytes = out.len().min(self.1).min(self.0.len());
        self.0.take(bytes as u64).read_exact(&mut out[..bytes])?;
        self.0 = &self.0[bytes..];
        Ok(bytes)
    }
}

fn small() -> ReaderLimits {
    ReaderLimits {
        member_bytes: 0,
        header_bytes: 0,
        prefix_bytes: 0,
        damages: 10,
        ..ReaderLimits::default()
    }
}

/// Reads all there is in every way, and checks what must hold of any file.
fn survey(file: &[u8], limits: ReaderLimits) -> Vec<Extent> {
    let mut reader = WarcReader::new(Pieces(file, 1), limits);
    let mut extents = Vec::new();
    let mut behind = 0;
    while let Some(mut record) = reader.next().unwrap() {
        assert!(record.fields().count() <= limits.header_lines);
        let _ = record.target_uri();
        record.capture_time().ok();
        let _ = record.content_type();
        if let Some(head) = record.http() {
            let _ = head.status();
            let _ = head.text("Content-Type");
            assert!(
                head.head_bytes()
                    .is_none_or(|bytes| bytes <= record.block_start().len())
            );
        }
        match extents.len() % 3 {
            0 => drop(record.digest_payload().unwrap()),
            1 => drop(io::copy(&mut record, &mut io::sink()).unwrap()),
            _ => {}
        }
        let extent = record.finish().unwrap();
        if let Extent::Own { offset, length } = extent {
            assert!(offset >= behind, "records are in order and apart");
            assert!(length > 0);
            behind = offset + length;
            assert!(
                behind <= file.len() as u64,
                "no record reaches beyond the file"
            );
        }
        extents.push(extent);
    }
    assert!(reader.damages().len() <= limits.damages);
    extents
}

#[derive(Debug, Clone, Copy)]
enum Packing {
    Plain,
    Members,
    OneMember,
    Frames,
    Arc,
}

fn file_of(packing: Packing, count: u32) -> Vec<u8> {
    let each = |pack: fn(&[u8]) -> Vec<u8>| {
        (0..count)
            .flat_map(|number| pack(&response(number)))
            .collect::<Vec<u8>>()
    };
    match packing {
        Packing::Plain => each(<[u8]>::to_vec),
        Packing::Members => each(gzip),
        Packing::Frames => each(zstd),
        Packing::OneMember => gzip(&each(<[u8]>::to_vec)),
        Packing::Arc => std::iter::once(arc_head())
            .chain((0..count).map(arc))
            .flatten()
            .collect(),
    }
}

fn packing() -> impl Strategy<Value = Packing> {
    prop_oneof![
        Just(Packing::Plain),
        Just(Packing::Members),
        Just(Packing::OneMember),
        Just(Packing::Frames),
        Just(Packing::Arc)
    ]
}

/// One way to spoil a file.
#[derive(Debug, Clone)]
enum Blow {
    Set(Index, u8),
    Cut(Index, Index),
    Insert(Index, Vec<u8>),
    Repeat(Index, Index),
}

fn blow() -> impl Strategy<Value = Blow> {
    let piece = prop_oneof![
        vec(any::<u8>(), 0..40),
        Just(b"\r\n\r\n".to_vec()),
        Just(b"WARC/1.0\r\n".to_vec()),
        Just(b"Content-Length: 99999999999\r\n".to_vec()),
        Just(b"Content-Length: -1\r\n".to_vec()),
        Just(vec![0x1F, 0x8B, 0x08, 0, 0, 0, 0, 0, 0, 3]),
        Just(vec![0x28, 0xB5, 0x2F, 0xFD]),
        Just(vec![0x5D, 0x2A, 0x4D, 0x18, 0xFF, 0xFF, 0, 0]),
        Just(b"\nhttp://a/ 192.0.2.1 20010203040506 text/html 99\n".to_vec()),
    ];
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Blow::Set(at, byte)),
        (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Blow::Cut(from, to)),
        (any::<Index>(), piece).prop_map(|(at, piece)| Blow::Insert(at, piece)),
        (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Blow::Repeat(from, to)),
    ]
}

fn strike(file: &mut Vec<u8>, blow: &Blow) {
    let range = |file: &Vec<u8>, from: &Index, to: &Index| {
        let (from, to) = (from.index(file.len() + 1), to.index(file.len() + 1));
        from.min(to)..from.max(to)
    };
    match blow {
        Blow::Set(at, byte) if !file.is_empty() => {
            let at = at.index(file.len());
            file[at] = *byte;
        }
        Blow::Set(..) => {}
        Blow::Cut(from, to) => drop(file.drain(range(file, from, to))),
        Blow::Insert(at, piece) => {
            let at = at.index(file.len() + 1);
            file.splice(at..at, piece.iter().copied());
        }
        Blow::Repeat(from, to) => {
            let range = range(file, from, to);
            let piece = file[range.clone()].to_vec();
            file.splice(range.end..range.end, piece);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn any_bytes_are_read_to_their_end(start in prop_oneof![
        Just(vec![]), Just(b"WARC/1.0\r\n".to_vec()), Just(vec![0x1F, 0x8B, 0x08, 0]), Just(vec![0x28, 0xB5, 0x2F, 0xFD]),
        Just(b"filedesc://a 0.0.0.0 20010203040506 text/plain 9\n".to_vec()),
    ], rest in vec(any::<u8>(), 0..600)) {
        let file = [start, rest].concat();
        survey(&file, ReaderLimits::default());
        survey(&file, small());
    }

    #[test]
    fn spoilt_files_are_read_to_their_end(packing in packing(), count in 0..5u32, blows in vec(blow(), 0..6)) {
        let mut file = file_of(packing, count);
        for blow in &blows {
            strike(&mut file, blow);
        }
        survey(&file, ReaderLimits::default());
        survey(&file, small());
    }

    #[test]
    fn the_window_does_not_change_what_is_read(packing in packing(), count in 0..40u32) {
        let file = file_of(packing, count);
        prop_assert_eq!(survey(&file, ReaderLimits::default()), survey(&file, small()));
    }

    #[test]
    fn what_is_written_reads_back(blocks in vec(vec(any::<u8>(), 0..3000), 0..8), level in 1..9u8, cut in any::<Index>()) {
        let mut writer = WarcWriter::new(Vec::new(), level);
        let mut places = Vec::new();
        for (number, block) in blocks.iter().enumerate() {
            let id = format!("urn:uuid:{number}");
            let record = NewRecord {
                kind: RecordKind::Resource,
                id: &id,
                date: "2026-01-02T03:04:05Z",
                target_uri: Some("urn:a"),
                content_type: None,
                fields: &[],
                payload: Payload::Behind(cut.index(block.len() + 1) as u64),
            };
            let written = if number % 2 == 0 {
                writer.write(&record, block).unwrap()
            } else {
                writer.write_from(&record, &mut io::Cursor::new(block)).unwrap()
            };
            places.push(Extent::Own { offset: written.offset, length: written.length });
        }
        let file = writer.into_inner();
        let (seen, damages) = common::read(&file[..]);
        prop_assert_eq!(damages, vec![]);
        prop_assert_eq!(seen.iter().map(|record| record.extent).collect::<Vec<_>>(), places);
        prop_assert_eq!(seen.into_iter().map(|record| record.block).collect::<Vec<_>>(), blocks);
    }

    #[test]
    fn any_date_is_read_or_refused(date in vec(any::<u8>(), 0..30), digits in "[0-9]{0,20}") {
        RecordDate::from_warc_date(&date).ok();
        RecordDate::from_warc_date(digits.as_bytes()).ok();
        prop_assert_eq!(RecordDate::from_arc_date(&date).as_str().len(), 14);
        prop_assert_eq!(RecordDate::from_arc_date(digits.as_bytes()).as_str().len(), 14);
    }

    #[test]
    fn any_http_head_is_read(bytes in vec(prop_oneof![Just(b'\n'), Just(b' '), Just(b':'), any::<u8>()], 1..200)) {
        let head = HttpHead::parse(&bytes).unwrap();
        let behind = head.head_bytes().unwrap_or(bytes.len());
        prop_assert!(behind <= bytes.len());
        for field in head.fields() {
            prop_assert!(!field.value().contains(&b'\n'));
            let _ = field.text();
        }
        let _ = head.status();
    }
}
