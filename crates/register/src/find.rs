//! Finding one line of a sorted file without reading what is before it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use memchr::memchr;

use crate::blocks::key_at;
use crate::error::RegisterError;
use crate::record::RECORD_BYTES;

/// How much is read at first around a place; most lines are shorter.
const LOOK_BYTES: usize = 4096;

/// A line that was found.
pub(crate) struct FoundLine {
    /// Where it begins.
    pub(crate) offset: u64,
    /// Without its line feed.
    pub(crate) line: Vec<u8>,
}

/// Returns the line with a key, by halving the file.
pub(crate) fn find(path: &Path, key: &[u8]) -> Result<Option<FoundLine>, RegisterError> {
    let file = File::open(path).map_err(RegisterError::io("open", path))?;
    let failed = RegisterError::io("read", path);
    let bytes = match file.metadata() {
        Ok(about) => about.len(),
        Err(error) => return Err(failed(error)),
    };
    halve(&file, bytes, key).map_err(failed)
}

fn halve(file: &File, bytes: u64, key: &[u8]) -> io::Result<Option<FoundLine>> {
    let (mut low, mut high) = (0, bytes);
    while low < high {
        let middle = low + (high - low) / 2;
        let Some(found) = line_from(file, middle)?.filter(|found| found.offset < high) else {
            high = middle;
            continue;
        };
        match key_at(&found.line).cmp(key) {
            std::cmp::Ordering::Less => low = found.offset + found.line.len() as u64 + 1,
            std::cmp::Ordering::Equal => return Ok(Some(found)),
            std::cmp::Ordering::Greater => high = middle,
        }
    }
    Ok(None)
}

/// Returns the first line that begins at a place or after it.
fn line_from(file: &File, place: u64) -> io::Result<Option<FoundLine>> {
    // A line begins at the place when a line feed is before it.
    let from = place.saturating_sub(1);
    let mut block = Vec::new();
    let mut is_end = false;
    loop {
        let begin = match place {
            0 => Some(0),
            _ => memchr(b'\n', &block).map(|feed| feed + 1),
        };
        let end = begin.and_then(|begin| memchr(b'\n', &block[begin..]).map(|end| begin + end));
        if let Some((begin, end)) = begin.zip(end) {
            return Ok(Some(FoundLine {
                offset: from + begin as u64,
                line: block[begin..end].to_vec(),
            }));
        }
        if is_end || block.len() > 2 * (RECORD_BYTES + LOOK_BYTES) {
            return Ok(None);
        }
        let before = block.len();
        block.resize(before.max(LOOK_BYTES / 2) * 2, 0);
        let read = file.read_at(&mut block[before..], from + before as u64)?;
        block.truncate(before + read);
        is_end = read == 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_found_and_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lines");
        for count in [0, 1, 2, 3, 1000] {
            let mut text = String::new();
            let mut offsets = Vec::new();
            for n in 0..count {
                offsets.push(text.len() as u64);
                // Some are longer than what is read at first.
                let more = "x".repeat(if n % 97 == 0 { 10_000 } else { n % 7 });
                text += &format!("k{:05}\t{more}\n", 2 * n);
            }
            std::fs::write(&path, &text).unwrap();
            for (n, offset) in offsets.iter().enumerate() {
                let found = find(&path, format!("k{:05}", 2 * n).as_bytes()).unwrap();
                assert_eq!(found.unwrap().offset, *offset, "{n} of {count}");
                let missing = find(&path, format!("k{:05}", 2 * n + 1).as_bytes()).unwrap();
                assert!(missing.is_none());
            }
            assert!(find(&path, b"a").unwrap().is_none());
            assert!(find(&path, b"z").unwrap().is_none());
        }
    }
}
