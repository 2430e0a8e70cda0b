//! The merge against the plain truth: sort everything, then look.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn text(lines: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut text = Vec::new();
    for line in lines {
        text.extend_from_slice(line.as_ref());
        text.push(b'\n');
    }
    text
}

fn source(name: &str, text: Vec<u8>) -> LineSource {
    LineSource::new(name, io::Cursor::new(text))
}

fn sources(files: &[Vec<Vec<u8>>]) -> Vec<LineSource> {
    (0..)
        .zip(files)
        .map(|(number, lines)| source(&format!("{number}.cdxj"), text(lines)))
        .collect()
}

/// Few letters and shared beginnings, so that long common prefixes and equal lines are the rule.
fn line() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => vec(prop_oneof![Just(b'a'), Just(b'b'), Just(b'\t'), Just(0xff)], 0..6),
        3 => vec(prop_oneof![Just(b'a'), Just(b'b')], 0..4).prop_map(|tail| [b"com,example)/page".to_vec(), tail].concat()),
        1 => vec(any::<u8>().prop_filter("ends the line", |byte| *byte != b'\n'), 0..40),
    ]
}

fn files() -> impl Strategy<Value = Vec<Vec<Vec<u8>>>> {
    vec(vec(line(), 0..30), 0..9).prop_map(|mut files| {
        files.iter_mut().for_each(|lines| lines.sort());
        files
    })
}

fn tiny() -> MergeOptions {
    MergeOptions {
        memory_bytes: 0,
        line_bytes: 100,
        ..MergeOptions::default()
    }
}

proptest! {
    #[test]
    fn a_merge_is_the_sort_of_the_concatenation(files in files()) {
        let mut all: Vec<_> = files.concat();
        all.sort();
        let options = MergeOptions { duplicates: Duplicates::Keep, ..tiny() };
        let mut out = Vec::new();
        let stats = merge(sources(&files), &mut out, &options).unwrap();
        prop_assert_eq!(&out, &text(&all));
        prop_assert_eq!(stats.lines_read, all.len() as u64);
        prop_assert_eq!(stats.lines_written, all.len() as u64);
        prop_assert_eq!(stats.bytes_written, out.len() as u64);
    }

    #[test]
    fn without_duplicates_it_is_the_set_of_lines(files in files()) {
        let set: BTreeSet<_> = files.concat().into_iter().collect();
        let set: Vec<_> = set.into_iter().collect();
        let mut out = Vec::new();
        let stats = merge(sources(&files), &mut out, &tiny()).unwrap();
        prop_assert_eq!(out, text(&set));
        prop_assert_eq!(stats.lines_written, set.len() as u64);
        prop_assert_eq!(stats.duplicates, stats.lines_read - stats.lines_written);
    }

    #[test]
    fn merging_into_a_big_file_gives_the_same_bytes(big in vec(line(), 0..200), small in files()) {
        let big: BTreeSet<_> = big.into_iter().collect();
        let big: Vec<_> = big.into_iter().collect();
        let mut both = small.clone();
        both.push(big.clone());
        for duplicates in [Duplicates::Keep, Duplicates::Remove] {
            let options = MergeOptions { duplicates, ..tiny() };
            let mut expected = Vec::new();
            let plain = merge(sources(&both), &mut expected, &options).unwrap();
            let mut out = Vec::new();
            let stats = merge_into(source("big", text(&big)), sources(&small), &mut out, &options).unwrap();
            prop_assert_eq!(out, expected);
            prop_assert_eq!(stats, plain);
        }
    }

    #[test]
    fn disorder_anywhere_is_found_and_what_was_written_is_whole_lines(
        files in files().prop_filter("needs a file", |files| files.iter().any(|lines| lines.len() > 1)),
        pick: prop::sample::Index,
        swap: prop::sample::Index,
    ) {
        let mut files = files;
        let long: Vec<usize> = (0..files.len()).filter(|at| files[*at].len() > 1).collect();
        let chosen = long[pick.index(long.len())];
        let lines = &mut files[chosen];
        let at = swap.index(lines.len() - 1);
        lines.swap(at, at + 1);
        let first_bad = (1..lines.len()).find(|at| lines[*at] < lines[at - 1]);
        let mut out = Vec::new();
        let result = merge(sources(&files), &mut out, &tiny());
        prop_assert!(out.is_empty() || out.ends_with(b"\n"));
        match (first_bad, result) {
            (None, Ok(_)) => {}
            (Some(bad), Err(MergeError::Read(ReadError::Unsorted { place, .. }))) => {
                prop_assert_eq!(place.file, format!("{chosen}.cdxj"));
                prop_assert_eq!(place.line, bad as u64 + 1);
                prop_assert_eq!(place.offset, text(&files[chosen][..bad]).len() as u64);
            }
            (expected, found) => prop_assert!(false, "{expected:?} {found:?}"),
        }
    }
}

/// Lines enough to fill several buffers.
fn many(count: usize, step: usize) -> Vec<String> {
    (0..count)
        .map(|n| {
            format!(
                "com,example)/{:08} 20200101000000 {{\"offset\": \"{n}\"}}",
                n * step
            )
        })
        .collect()
}

#[test]
fn files_larger_than_the_buffers_merge() {
    let (big, small) = (many(20_000, 3), many(300, 200));
    let mut expected: Vec<_> = big.iter().chain(&small).cloned().collect();
    expected.sort();
    for into in [false, true] {
        let options = tiny();
        let mut out = Vec::new();
        let (big, small) = (source("big", text(&big)), source("small", text(&small)));
        let stats = if into {
            merge_into(big, vec![small], &mut out, &options).unwrap()
        } else {
            merge(vec![big, small], &mut out, &options).unwrap()
        };
        assert_eq!(stats.lines_read, 20_300);
        let mut unique = expected.clone();
        unique.dedup();
        assert!(out == text(&unique), "the bytes differ");
        assert_eq!(stats.duplicates as usize, expected.len() - unique.len());
    }
}

#[test]
fn a_file_cut_short_stops_both_merges() {
    for into in [false, true] {
        let (cut, other) = (
            source("cut.cdxj", b"a\nb\nc".to_vec()),
            source("other", b"a\nd\n".to_vec()),
        );
        let mut out = Vec::new();
        let result = if into {
            merge_into(cut, vec![other], &mut out, &tiny())
        } else {
            merge(vec![other, cut], &mut out, &tiny())
        };
        let message = result.unwrap_err().to_string();
        assert_eq!(
            message,
            "line 3 of cut.cdxj at offset 4 has no line feed: the file was cut short"
        );
    }
}

#[test]
fn a_big_file_out_of_order_where_it_can_be_seen_is_refused() {
    // At a border of blocks.
    let mut lines = many(2_000, 1);
    lines.rotate_left(1_000);
    let big = source("big.cdxj", text(&lines));
    let error = merge_into(
        big,
        vec![source("new", b"z\n".to_vec())],
        &mut Vec::new(),
        &tiny(),
    )
    .unwrap_err();
    assert!(
        error.to_string().contains("of big.cdxj at offset"),
        "{error}"
    );
    // Between the ends of one block.
    let big = source("big.cdxj", b"b\nz\nc\na\n".to_vec());
    let error = merge_into(
        big,
        vec![source("new", b"c1\n".to_vec())],
        &mut Vec::new(),
        &tiny(),
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 4 of big.cdxj at offset 6 is not in byte order: it begins \"a\", after \"b\""
    );
}

#[test]
fn lines_of_another_shape_are_named() {
    let merged = |shape, line: &str| {
        let options = MergeOptions { shape, ..tiny() };
        merge(vec![source("x", text(&[line]))], &mut Vec::new(), &options)
            .map_err(|error| error.to_string())
    };
    for line in [
        "com,a)/ 20200101000000 {}",
        "com,a)/ 20200101000000123 u",
        " CDX N b a m s k r M S V g",
    ] {
        assert!(merged(LineShape::Capture, line).is_ok(), "{line}");
    }
    for line in [
        "",
        "Traceback (most recent call last):",
        "com,a)/",
        " x",
        "k 2020 {}",
        "k 20200101000000",
        "k 202001010000000 {}",
    ] {
        let error = merged(LineShape::Capture, line).unwrap_err();
        assert!(
            error.starts_with("cannot parse line 1 of x at offset 0: "),
            "{error}"
        );
    }
    assert!(merged(LineShape::Path, "a\tb").is_ok());
    for line in ["", "a", "a\t", "\tb"] {
        assert!(merged(LineShape::Path, line).is_err(), "{line}");
    }
}

#[test]
fn more_files_than_may_be_open_merge_in_rounds() {
    let directory = tempfile::tempdir().unwrap();
    let mut expected = BTreeSet::new();
    let mut paths = Vec::new();
    for number in 0..23 {
        let lines = many(50 + number, 1 + number % 5);
        let path = directory.path().join(format!("{number}.cdxj"));
        std::fs::write(&path, text(&lines)).unwrap();
        expected.extend(lines);
        paths.push(path);
    }
    let read: usize = (0..23).map(|number| 50 + number).sum();
    for open_files in [2, 3, 7, 100] {
        let options = MergeOptions {
            open_files,
            ..tiny()
        };
        let mut out = Vec::new();
        let open = |path: &PathBuf| -> Result<_, MergeError> { Ok(LineSource::open(path)?) };
        let stats = merge_pieces(&paths, open, &mut out, directory.path(), &options).unwrap();
        assert!(
            out == text(&expected.iter().collect::<Vec<_>>()),
            "{open_files} open files"
        );
        assert_eq!(stats.lines_read as usize, read);
        assert_eq!(stats.lines_written as usize, expected.len());
        assert_eq!(stats.duplicates as usize, read - expected.len());
    }
    assert_eq!(
        std::fs::read_dir(directory.path()).unwrap().count(),
        23,
        "temporary files were left"
    );
}

#[test]
fn a_check_counts_or_names_the_fault() {
    let stats = check(source("x", b"a\na\nb\n".to_vec()), &tiny()).unwrap();
    assert_eq!(
        stats,
        MergeStats {
            lines_read: 3,
            lines_written: 2,
            duplicates: 1,
            bytes_written: 4
        }
    );
    let error = check(source("x", b"b\na\n".to_vec()), &tiny()).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("line 2 of x at offset 2 is not in byte order"),
        "{error}"
    );
}

#[test]
fn a_write_that_fails_stops_the_merge() {
    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let error = merge(vec![source("x", b"a\n".to_vec())], &mut Full, &tiny()).unwrap_err();
    assert_eq!(error.to_string(), "cannot write merged lines after 0 bytes");
}
