//! Each line leads to its record: seeking to the offset and reading the length gives that record and nothing else.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::io::Read;
use std::path::{Path, PathBuf};

use common::{assorted, gzip, members, response, run};
use ecluse_cdx::{Capture, cdxj};
use ecluse_warc::{ReaderLimits, WarcReader};

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/corpus");

/// Checks every line of a file and returns how many there are.
fn check(path: &Path) -> usize {
    let file = std::fs::read(path).unwrap();
    let output = run(&[path]);
    let text = String::from_utf8(output.stdout).unwrap();
    for line in text.lines() {
        let capture = cdxj::parse(line.as_bytes()).unwrap();
        let offset = usize::try_from(capture.offset.unwrap()).unwrap();
        let length = usize::try_from(capture.length_bytes.unwrap()).unwrap();
        let bytes = &file[offset..offset + length];
        // The one giant is left to the reader: another library takes minutes for it in a debug build.
        if bytes.starts_with(&[0x1f, 0x8b]) && length < 1 << 20 {
            check_record(&inflate_one(bytes, line), &capture, line);
        } else {
            check_record(bytes, &capture, line);
        }
    }
    text.lines().count()
}

/// Inflates one gzip member with another library than the reader's; nothing may follow it.
fn inflate_one(bytes: &[u8], line: &str) -> Vec<u8> {
    let mut decoder = flate2::bufread::GzDecoder::new(bytes);
    let mut plain = Vec::new();
    // A damaged member gives what there is of it.
    if decoder.read_to_end(&mut plain).is_ok() {
        assert!(
            decoder.into_inner().is_empty(),
            "more than a member: {line}"
        );
    }
    plain
}

fn check_record(plain: &[u8], capture: &Capture<'_>, line: &str) {
    let mut reader = WarcReader::new(plain, ReaderLimits::default());
    let record = reader.next().unwrap();
    let record = record.unwrap_or_else(|| panic!("no record: {line}"));
    assert_eq!(record.offset(), 0, "{line}");
    assert_eq!(
        record.target_uri().as_deref(),
        capture.url.as_deref(),
        "{line}"
    );
    assert_eq!(
        record.capture_time().unwrap().as_str(),
        capture.time.as_str()
    );
    record.finish().unwrap();
    assert!(reader.next().unwrap().is_none(), "two records: {line}");
}

#[test]
fn lines_of_files_made_here_lead_to_their_records() {
    let directory = tempfile::tempdir().unwrap();
    let pages: Vec<Vec<u8>> = (0..200).map(response).collect();
    let mut damaged = members(&pages);
    let at = damaged.len() / 2;
    damaged[at] ^= 0xff;
    let garbage = [
        gzip(&pages[0]),
        b"garbage".to_vec(),
        gzip(&[]),
        gzip(&pages[1]),
    ]
    .concat();
    for (name, bytes, lines) in [
        ("assorted.warc.gz", members(&assorted()), 9),
        ("assorted.warc", assorted().concat(), 9),
        ("pages.warc.gz", members(&pages), 200),
        ("pages.warc", pages.concat(), 200),
        ("garbage.warc.gz", garbage, 2),
        ("one-member.warc.gz", gzip(&pages.concat()), 0),
    ] {
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(check(&path), lines, "{name}");
    }
    let path = directory.path().join("damaged.warc.gz");
    std::fs::write(&path, damaged).unwrap();
    assert!(check(&path) >= 199);
}

#[test]
fn lines_of_real_files_lead_to_their_records() {
    let (mut files, mut lines) = (0, 0);
    for path in archives(Path::new(CORPUS)) {
        files += 1;
        lines += check(&path);
    }
    if files == 0 {
        println!("no corpus at {CORPUS}: nothing checked");
    } else {
        println!("{lines} lines of {files} files lead to their records");
        assert!(lines > 1000, "{lines}");
    }
}

fn archives(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let of = |path: PathBuf| {
        let name = path.to_string_lossy().to_ascii_lowercase();
        let ends = [".warc", ".arc", "arc.gz", ".open", ".bad"];
        if path.is_dir() {
            archives(&path)
        } else if ends.iter().any(|end| name.ends_with(end)) {
            vec![path]
        } else {
            Vec::new()
        }
    };
    paths.into_iter().flat_map(of).collect()
}
