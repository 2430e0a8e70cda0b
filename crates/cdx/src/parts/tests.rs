//! Ranges merged apart and put together are what one merge writes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::zipnum::{self, Shards, ZipNumOptions};
use crate::{MergeError, MergeOptions, MergeStats, merge, merge_into};

/// Lines of few keys, so that many are equal in part or whole.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let key = "[a-d]{1,3}(,[a-d]{1,2})?\\)/[a-d]{0,2}";
    (key, 0..4u64, "[a-c]{0,30}").prop_map(|(key, time, rest)| {
        format!("{key} {} {{\"x\":\"{rest}\"}}", 20_260_101_000_000 + time).into_bytes()
    })
}

fn sorted(lines: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    lines
        .into_iter()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}

fn text(lines: &[Vec<u8>]) -> Vec<u8> {
    lines
        .iter()
        .flat_map(|line| [line.as_slice(), b"\n"].concat())
        .collect()
}

fn put(dir: &Path, name: &str, lines: &[Vec<u8>]) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, text(lines)).unwrap();
    path
}

fn open(path: &Path) -> LineSource {
    LineSource::open(path).unwrap()
}

fn sum(stats: &[MergeStats]) -> MergeStats {
    let mut all = MergeStats::default();
    for part in stats {
        all.lines_read += part.lines_read;
        all.lines_written += part.lines_written;
        all.duplicates += part.duplicates;
        all.bytes_written += part.bytes_written;
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn parts_merged_apart_are_the_whole(
        last in vec(line(), 0..120),
        new in vec(vec(line(), 0..40), 0..4),
        splits in vec(line(), 0..6),
        asked in 1usize..6,
        lines_per_member in 1usize..9,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let options = MergeOptions::default();
        let last = put(dir.path(), "last", &sorted(last));
        let new: Vec<PathBuf> = new
            .into_iter()
            .enumerate()
            .map(|(number, lines)| put(dir.path(), &format!("new-{number}"), &sorted(lines)))
            .collect();
        let mut whole = Vec::new();
        let sources = new.iter().map(|path| open(path)).collect();
        let of_whole = merge_into(open(&last), sources, &mut whole, &options).unwrap();
        let flat = dir.path().join("flat");
        fs::write(&flat, &whole).unwrap();

        // Cut anywhere, or where the last generation says.
        let found = split_points(&last, asked).unwrap();
        prop_assert!(found.len() < asked);
        prop_assert!(found.is_sorted_by(|one, next| one < next));
        let cut = PartedFile::open(&last, &found).unwrap();
        let is_empty = |part: usize| cut.part_bytes(part) == 0;
        prop_assert!(found.is_empty() || !(0..cut.parts()).any(is_empty));
        for splits in [sorted(splits), found] {
            let parted = PartedFile::open(&last, &splits).unwrap();
            let pieces: Vec<PartedFile> =
                new.iter().map(|path| PartedFile::open(path, &splits).unwrap()).collect();
            prop_assert_eq!(parted.parts(), splits.len() + 1);
            let mut merged = Vec::new();
            for part in 0..parted.parts() {
                let sources = pieces.iter().map(|piece| piece.part(part)).collect();
                let mut out = Vec::new();
                let stats = merge_into(parted.part(part), sources, &mut out, &options).unwrap();
                // A merge that trusts nobody gives the same.
                let all = std::iter::once(parted.part(part));
                let all = all.chain(pieces.iter().map(|piece| piece.part(part))).collect();
                let mut again = Vec::new();
                merge(all, &mut again, &options).unwrap();
                prop_assert_eq!(&again, &out);
                merged.push((out, stats));
            }
            let stats: Vec<MergeStats> = merged.iter().map(|(_, stats)| *stats).collect();
            prop_assert_eq!(sum(&stats), of_whole);
            let joined: Vec<u8> = merged.iter().flat_map(|(out, _)| out.clone()).collect();
            prop_assert_eq!(&joined, &whole);

            // ZipNum: each range is a shard, written last to first, and joined.
            let zipnum = ZipNumOptions {
                lines_per_member,
                shards: Shards::At(splits.clone()),
                ..ZipNumOptions::default()
            };
            let (one, many) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let written = zipnum::write(open(&flat), one.path(), "big", &zipnum).unwrap();
            let mut shards = Vec::new();
            let mut number = merged.iter().filter(|(out, _)| !out.is_empty()).count();
            for (out, _) in merged.iter().rev() {
                number -= usize::from(!out.is_empty());
                let source = LineSource::new("part", std::io::Cursor::new(out.clone()));
                let shard = zipnum::write_shard(source, many.path(), "big", number, &zipnum);
                let mut shard = shard.unwrap();
                // Its piece of the summary may come from another machine.
                let mut piece = Vec::new();
                shard.copy_summary_to(&mut piece).unwrap();
                let mut file = tempfile::tempfile().unwrap();
                std::io::Write::write_all(&mut file, &piece).unwrap();
                shards.insert(0, zipnum::WrittenShard::found(shard.shard, shard.members, file, "big.idx".into()));
            }
            let joined = zipnum::join_shards(shards, many.path(), "big").unwrap();
            prop_assert_eq!((joined.lines, joined.members), (written.lines, written.members));
            prop_assert_eq!(files(many.path()), files(one.path()));
        }
    }

    #[test]
    fn what_is_not_in_order_stops_a_part(lines in vec(line(), 2..80), at in any::<prop::sample::Index>(), splits in vec(line(), 0..6)) {
        let mut lines = sorted(lines);
        prop_assume!(lines.len() > 1);
        let at = at.index(lines.len() - 1);
        lines.swap(at, at + 1);
        let dir = tempfile::tempdir().unwrap();
        let path = put(dir.path(), "new", &lines);
        let parted = PartedFile::open(&path, &sorted(splits)).unwrap();
        let bytes: u64 = (0..parted.parts()).map(|part| parted.part_bytes(part)).sum();
        prop_assert_eq!(bytes, text(&lines).len() as u64, "every line is in a part");
        let options = MergeOptions::default();
        let is_stopped = (0..parted.parts()).any(|part| {
            let merged = merge(vec![parted.part(part)], &mut std::io::sink(), &options);
            matches!(merged, Err(MergeError::Read(ReadError::Unsorted { .. })))
        });
        prop_assert!(is_stopped);
    }
}

fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read(entry.path()).unwrap())
        })
        .collect();
    files.sort();
    files
}

#[test]
fn a_long_file_is_cut_into_even_parts_between_keys() {
    let dir = tempfile::tempdir().unwrap();
    let lines: Vec<Vec<u8>> = (0..30_000)
        .map(|number| {
            format!(
                "com,example{:05})/ {} {{}}",
                number / 7,
                20_260_101_000_000u64 + number
            )
            .into_bytes()
        })
        .collect();
    let path = put(dir.path(), "index", &lines);
    let splits = split_points(&path, 8).unwrap();
    assert_eq!(splits.len(), 7);
    let parted = PartedFile::open(&path, &splits).unwrap();
    let whole = text(&lines).len() as u64;
    let mut joined = Vec::new();
    for part in 0..parted.parts() {
        let bytes = parted.part_bytes(part);
        assert!(bytes > whole / 9 && bytes < whole / 7, "{bytes} of {whole}");
        let mut reader = parted.part(part).reader;
        let before = joined.len();
        reader.read_to_end(&mut joined).unwrap();
        let key = |text: &[u8]| text.split(|byte| *byte == b' ').next().unwrap().to_vec();
        let last = joined[..before]
            .split(|byte| *byte == b'\n')
            .rev()
            .nth(1)
            .unwrap_or_default();
        assert_ne!(key(last), key(&joined[before..]), "a key is in one part");
    }
    assert_eq!(joined, text(&lines));
    // One that is empty, and one that cannot be cut.
    let empty = put(dir.path(), "empty", &[]);
    assert_eq!(split_points(&empty, 4).unwrap(), Vec::<Vec<u8>>::new());
    let one = put(dir.path(), "one", &lines[..7]);
    let splits = split_points(&one, 4).unwrap();
    assert!(splits.len() <= 1, "{splits:?}");
    assert_eq!(PartedFile::open(&empty, &splits).unwrap().part_bytes(0), 0);
}
