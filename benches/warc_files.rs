//! Files that a crawl might have left, for benches that take them through the chain; and what that costs.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

/// Makes the members of a file of about this size: half of the payload text, half noise, which gives
/// the ratio of a mixed crawl, about 1.6.
pub(crate) fn model(bytes: usize) -> Vec<u8> {
    let mut members = Vec::with_capacity(bytes + (1 << 20));
    let mut dice = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        dice
    };
    let mut compressor = libdeflater::Compressor::new(libdeflater::CompressionLvl::new(6).unwrap());
    let mut record = 0_u64;
    while members.len() < bytes {
        record += 1;
        let length = 2_000 + (next() % 60_000) as usize;
        let mut body = Vec::with_capacity(length);
        while body.len() < length {
            if record.is_multiple_of(2) {
                let word = WORDS[(next() % WORDS.len() as u64) as usize];
                body.extend_from_slice(word.as_bytes());
            } else {
                body.extend_from_slice(&next().to_le_bytes());
            }
        }
        let block = [
            format!("HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(),
            &body,
        ]
        .concat();
        let digest = base32(&next().to_le_bytes());
        let head = format!(
            "WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://www{}.example.org/page/{record}?id={}\r\nWARC-Date: 2026-01-02T03:04:05Z\r\nWARC-Payload-Digest: sha1:{digest}\r\nWARC-Record-ID: <urn:uuid:{record}>\r\nContent-Type: application/http; msgtype=response\r\nContent-Length: {}\r\n\r\n",
            record % 100,
            next() % 1000,
            block.len()
        );
        let raw = [head.as_bytes(), &block, b"\r\n\r\n"].concat();
        let start = members.len();
        members.resize(start + compressor.gzip_compress_bound(raw.len()), 0);
        let written = compressor
            .gzip_compress(&raw, &mut members[start..])
            .unwrap();
        members.truncate(start + written);
    }
    members
}

const WORDS: [&str; 16] = [
    "<p>",
    "</p>\n",
    "the ",
    "archive ",
    "of ",
    "a ",
    "nation ",
    "keeps ",
    "every ",
    "page ",
    "<a href=\"/",
    "\">",
    "</a> ",
    "and ",
    "lets ",
    "readers ",
];

/// Something of the length of a digest; its value does not matter.
fn base32(seed: &[u8]) -> String {
    const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let hash = Sha256::digest(seed);
    hash.iter()
        .map(|byte| LETTERS[usize::from(byte % 32)] as char)
        .collect()
}

/// Writes a file with a member of its own before those of the model, so that no two are the same.
pub(crate) fn write_file(dir: &Path, model: &[u8], number: usize) -> PathBuf {
    let path = dir.join(format!(
        "1-1-20260102030405{number:03}-{number:05}-bench.warc.gz"
    ));
    let info = format!("software: bench {number}\r\n");
    let raw = format!(
        "WARC/1.0\r\nWARC-Type: warcinfo\r\nWARC-Date: 2026-01-02T03:04:05Z\r\nWARC-Record-ID: <urn:uuid:i{number}>\r\nContent-Type: application/warc-fields\r\nContent-Length: {}\r\n\r\n{info}\r\n\r\n",
        info.len()
    );
    let mut compressor = libdeflater::Compressor::new(libdeflater::CompressionLvl::new(6).unwrap());
    let mut member = vec![0; compressor.gzip_compress_bound(raw.len())];
    let written = compressor
        .gzip_compress(raw.as_bytes(), &mut member)
        .unwrap();
    let mut file = BufWriter::new(File::create(&path).unwrap());
    file.write_all(&member[..written]).unwrap();
    file.write_all(model).unwrap();
    file.flush().unwrap();
    let old = SystemTime::now() - Duration::from_secs(3600);
    file.get_ref().set_modified(old).unwrap();
    path
}

/// The CPU time of children that have ended, in the kernel's ticks of 10 ms.
pub(crate) fn childrens_cpu() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let ticks: u64 = fields[13].parse::<u64>().unwrap() + fields[14].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}
