//! Memory stays bounded whatever a file says. Alone in its process, for the peak to be its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot unwrap has failed")]

mod common;

use std::fs;
use std::io::{self, Read, Write};

use common::{gzip, response, uri};
use ecluse_warc::{ReaderLimits, WarcReader};

/// A source made of parts, none of which is ever whole in memory.
struct Parts<Next>(Option<Box<dyn Read>>, Next);

impl<Next: FnMut() -> Option<Box<dyn Read>>> Read for Parts<Next> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.0.is_none() {
                self.0 = (self.1)();
            }
            let Some(part) = &mut self.0 else {
                return Ok(0);
            };
            let bytes = part.read(out)?;
            if bytes > 0 {
                return Ok(bytes);
            }
            self.0 = None;
        }
    }
}

fn parts(parts: Vec<Box<dyn Read>>) -> impl Read {
    let mut parts = parts.into_iter();
    Parts(None, move || parts.next())
}

fn bytes(bytes: Vec<u8>) -> Box<dyn Read> {
    Box::new(io::Cursor::new(bytes))
}

fn repeated(byte: u8, count: u64) -> Box<dyn Read> {
    Box::new(io::repeat(byte).take(count))
}

/// A member of `mebibytes` of zeros behind `start`, deflated a thousandfold. One block is made and repeated, so the
/// checksum is wrong; by then it is too late to matter.
fn bomb(start: &[u8], mebibytes: usize) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
    encoder.write_all(start).unwrap();
    encoder.flush().unwrap();
    let head = encoder.get_ref().len();
    encoder.write_all(&vec![0; 1 << 20]).unwrap();
    encoder.flush().unwrap();
    let block = encoder.get_ref()[head..].to_vec();
    let mut member = encoder.finish().unwrap();
    for _ in 1..mebibytes {
        member.splice(head..head, block.iter().copied());
    }
    member
}

/// The size of everything here that is too large: far beyond what the reader may take.
const MEBIBYTES: u64 = 48;

/// What the reader may take. The defaults are four times that.
const BOUND_KIBIBYTES: u64 = 12 << 10;

fn peak_kibibytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn nothing_a_file_says_makes_the_reader_large() {
    let record_of = |length: u64| {
        format!("WARC/1.0\r\nWARC-Type: resource\r\nContent-Length: {length}\r\n\r\n").into_bytes()
    };
    let giant_frame = {
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), 3).unwrap();
        encoder.window_log(22).unwrap();
        io::copy(&mut io::repeat(b'x').take(MEBIBYTES << 20), &mut encoder).unwrap();
        encoder.finish().unwrap()
    };
    let dictionary_head =
        |length: u32| [&[0x5D, 0x2A, 0x4D, 0x18], &length.to_le_bytes()[..]].concat();
    let cases: Vec<(&str, Vec<Box<dyn Read>>)> = vec![
        (
            "a bomb that is a record",
            vec![bytes(bomb(&record_of(MEBIBYTES << 20), MEBIBYTES as usize))],
        ),
        (
            "a bomb that is none",
            vec![bytes(bomb(b"", MEBIBYTES as usize))],
        ),
        (
            "a bomb of one header line",
            vec![bytes(bomb(b"WARC/1.0\r\nX: ", MEBIBYTES as usize))],
        ),
        (
            "a plain header line",
            vec![
                bytes(b"WARC/1.0\r\nX: ".to_vec()),
                repeated(b'y', MEBIBYTES << 20),
            ],
        ),
        (
            "a plain line of no kind",
            vec![repeated(b'y', MEBIBYTES << 20)],
        ),
        (
            "a length beyond all files",
            vec![
                bytes(record_of(u64::MAX - 2)),
                repeated(b'y', MEBIBYTES << 20),
            ],
        ),
        (
            "line ends without end",
            vec![repeated(b'\n', MEBIBYTES << 20)],
        ),
        (
            "zeros",
            vec![bytes(gzip(&response(0))), repeated(0, MEBIBYTES << 20)],
        ),
        (
            "members that open nothing",
            vec![
                repeated(0x1F, 10),
                bytes([0x1F, 0x8B, 0x08, 0].repeat(1 << 20)),
            ],
        ),
        (
            "a member header without end",
            vec![
                bytes(vec![0x1F, 0x8B, 0x08, 0x08, 0, 0, 0, 0, 0, 3]),
                repeated(b'n', MEBIBYTES << 20),
            ],
        ),
        ("a frame with a giant window", vec![bytes(giant_frame)]),
        (
            "a giant dictionary",
            vec![
                bytes(dictionary_head(u32::MAX)),
                repeated(0, u64::from(u32::MAX) / 8),
            ],
        ),
        // Last, for what it frees would hide what others take.
        (
            "header lines without end",
            vec![
                bytes(b"WARC/1.0\r\n".to_vec()),
                bytes(b"X: y\r\n".repeat(MEBIBYTES as usize * (1 << 17))),
            ],
        ),
    ];
    let limits = ReaderLimits {
        member_bytes: 2 << 20,
        zstd_window_log: 21,
        zstd_dictionary_bytes: 1 << 20,
        ..ReaderLimits::default()
    };
    let before = peak_kibibytes();
    for (name, case) in cases {
        let is_gzip = name.contains("bomb") || name.contains("zeros");
        let last = if is_gzip {
            gzip(&response(1))
        } else {
            response(1)
        };
        let mut case = case;
        case.push(bytes([b"\r\n", &last[..]].concat()));
        let mut reader = WarcReader::new(parts(case), limits);
        let mut found = Vec::new();
        while let Some(record) = reader.next().unwrap() {
            found.push(record.target_uri().unwrap_or_default().into_owned());
        }
        let reachable = is_gzip || name.contains("plain") || name.contains("line ends");
        assert!(
            !reachable || found.last() == Some(&uri(1)),
            "{name}: {found:?} {:?}",
            reader.damages()
        );
        let grown = peak_kibibytes() - before;
        assert!(grown < BOUND_KIBIBYTES, "{name}: {grown} KiB");
    }
}
