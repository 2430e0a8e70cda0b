//! Real files, many of them broken on purpose: each record is found again at its offset, by its length alone.
//!
//! The files lie beside the workspace and are not part of it; without them there is nothing to check here.

#![allow(clippy::unwrap_used, reason = "a test that cannot unwrap has failed")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Seen, read, read_within};
use ecluse_warc::{Extent, Limits};

const SHARED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/corpus");

/// Returns the archives that the manifest names, in order.
fn archives() -> Option<Vec<PathBuf>> {
    let manifest = fs::read_to_string(Path::new(SHARED).join("MANIFEST.tsv")).ok()?;
    let names = manifest
        .lines()
        .skip(1)
        .filter_map(|line| line.split('\t').next());
    let is_archive = |name: &&str| {
        let name = name.to_ascii_lowercase();
        [".warc", ".arc", ".gz", ".open", ".bad"]
            .iter()
            .any(|end| name.ends_with(end))
            && !name.contains(".cdx")
    };
    Some(
        names
            .filter(is_archive)
            .map(|name| Path::new(SHARED).join(name))
            .filter(|path| path.is_file())
            .collect(),
    )
}

#[test]
fn each_record_is_found_at_its_offset() {
    let Some(archives) = archives() else {
        println!("no corpus at {SHARED}: nothing checked");
        return;
    };
    let (mut records, mut own) = (0, 0);
    for path in &archives {
        let file = fs::read(path).unwrap();
        let (seen, _) = read(&file[..]);
        records += seen.len();
        for record in &seen {
            let Extent::Own { offset, length } = record.extent else {
                continue;
            };
            own += 1;
            let range = usize::try_from(offset).unwrap()..usize::try_from(offset + length).unwrap();
            let (again, _) = read(&file[range]);
            assert_eq!(again.len(), 1, "{} at {offset}", path.display());
            let Seen {
                kind, uri, block, ..
            } = &again[0];
            assert_eq!(
                (kind, uri),
                (&record.kind, &record.uri),
                "{} at {offset}",
                path.display()
            );
            assert!(*block == record.block, "{} at {offset}", path.display());
        }
    }
    println!(
        "{} files, {records} records, {own} found again",
        archives.len()
    );
    // Counted with warcio 1.7.5 over the same files, the records before its failures included.
    assert!(records > 2_371, "warcio finds 2371 records in these files");
}

#[test]
fn a_small_window_reads_the_same() {
    let Some(archives) = archives() else {
        println!("no corpus at {SHARED}: nothing checked");
        return;
    };
    let limits = Limits {
        member_bytes: 400 << 10,
        header_bytes: 16 << 10,
        prefix_bytes: 16 << 10,
        ..Limits::default()
    };
    for path in &archives {
        let file = fs::read(path).unwrap();
        let (whole, damages) = read(&file[..]);
        let (windowed, _) = read_within(&file[..], limits);
        // What is damaged is cut where the window ends, which may be elsewhere.
        if damages.is_empty() {
            assert!(whole == windowed, "{}", path.display());
        } else {
            assert_eq!(whole.len(), windowed.len(), "{}", path.display());
        }
    }
}
