//! What is written is found again, and what is damaged is named.

use std::fs;
use std::io;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::{KeyRange, LineSource, Lookup, LookupError};

fn source(lines: &[String]) -> LineSource {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    LineSource::new("index.cdxj", io::Cursor::new(text.into_bytes()))
}

fn found(summary: &Path, range: &KeyRange) -> Vec<String> {
    let lookup = Lookup::open(summary).unwrap();
    let lines = lookup.range(range.clone()).unwrap();
    lines
        .map(|line| String::from_utf8(line.unwrap()).unwrap())
        .collect()
}

fn numbered(count: usize) -> Vec<String> {
    (0..count)
        .map(|n| {
            format!(
                "com,example)/{:06} 20200101000000 {{\"offset\": \"{n:06}\"}}",
                n / 3
            )
        })
        .collect()
}

/// Keys that are near each other, with several captures at one time: what makes borders of members hard.
fn lines() -> impl Strategy<Value = Vec<String>> {
    let line = (
        "(com,a|com,a,www|com,a-b|fr)",
        "(/|/a|/ab|/b)",
        0u8..3,
        0u16..40,
    );
    vec(line, 0..120).prop_map(|parts| {
        let mut lines: Vec<String> = parts
            .into_iter()
            .map(|(host, path, second, offset)| {
                format!("{host}){path} 2020010100000{second} {{\"offset\": \"{offset}\"}}")
            })
            .collect();
        lines.sort();
        lines.dedup();
        lines
    })
}

fn shards() -> impl Strategy<Value = Shards> {
    prop_oneof![
        (1u64..2_000).prop_map(Shards::Bytes),
        Just(Shards::At(vec![
            b"aa".to_vec(),
            b"ab".to_vec(),
            b"com,a)/ab".to_vec(),
            b"fr".to_vec()
        ])),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn what_is_written_is_found(lines in lines(), shards in shards(), lines_per_member in 1usize..12) {
        let directory = tempfile::tempdir().unwrap();
        let options = ZipNumOptions { lines_per_member, level: 6, shards };
        let written = write(source(&lines), directory.path(), "cdx", &options).unwrap();
        prop_assert_eq!(written.lines, lines.len() as u64);
        prop_assert_eq!(&found(&written.summary, &KeyRange::all()), &lines);
        let mut ranges = vec![KeyRange::domain(b"com"), KeyRange::exact(b"com,a)/none"), KeyRange::prefix(b"zz")];
        for line in &lines {
            let key = line.split(' ').next().unwrap().as_bytes();
            ranges.extend([KeyRange::exact(key), KeyRange::prefix(key), KeyRange::host(key), KeyRange::domain(key)]);
            // Ranges that begin and end inside the captures of one key and time.
            ranges.push(KeyRange { from: line.clone().into_bytes(), to: Some(b"com,a,x".to_vec()) });
            ranges.push(KeyRange { from: b"com".to_vec(), to: Some(line.clone().into_bytes()) });
        }
        for range in ranges {
            let expected: Vec<String> = lines.iter().filter(|line| range.contains(line.as_bytes())).cloned().collect();
            prop_assert_eq!(found(&written.summary, &range), expected, "{:?}", range);
        }
    }
}

#[test]
fn the_files_are_as_pywb_reads_them() {
    let directory = tempfile::tempdir().unwrap();
    let lines = numbered(7);
    let options = ZipNumOptions {
        lines_per_member: 3,
        ..ZipNumOptions::default()
    };
    let written = write(source(&lines), directory.path(), "cdx", &options).unwrap();
    assert_eq!(
        (written.lines, written.members, written.shards.len()),
        (7, 3, 1)
    );
    let shard = fs::read(directory.path().join("cdx-00000.cdxj.gz")).unwrap();
    assert_eq!(shard.len() as u64, written.shards[0].bytes);
    let summary = fs::read_to_string(directory.path().join("cdx.idx")).unwrap();
    let members: Vec<SummaryLine<'_>> = summary
        .lines()
        .map(|line| parse_summary_line(line.as_bytes()).unwrap())
        .collect();
    let firsts = [0, 1, 2].map(|key| format!("com,example)/{key:06} 20200101000000"));
    let mut offset = 0;
    for (number, member) in (1..).zip(&members) {
        assert_eq!(member.first, firsts[number as usize - 1].as_bytes());
        assert_eq!(
            (member.shard, member.offset, member.number),
            ("cdx-00000", offset, Some(number))
        );
        assert_eq!(
            shard[offset as usize..][..2],
            [0x1f, 0x8b],
            "a gzip member begins here"
        );
        offset += member.length_bytes;
    }
    assert_eq!(offset, written.shards[0].bytes);
    let locations = fs::read_to_string(directory.path().join("cdx.loc")).unwrap();
    assert_eq!(locations, "cdx-00000\tcdx-00000.cdxj.gz\n");
}

#[test]
fn shards_are_cut_between_keys() {
    let directory = tempfile::tempdir().unwrap();
    let lines = numbered(600);
    let options = ZipNumOptions {
        lines_per_member: 10,
        level: 1,
        shards: Shards::Bytes(500),
    };
    let written = write(source(&lines), directory.path(), "cdx", &options).unwrap();
    assert!(written.shards.len() > 3);
    assert_eq!(
        written.shards.iter().map(|shard| shard.lines).sum::<u64>(),
        600
    );
    let mut last = 0;
    for shard in &written.shards[..written.shards.len() - 1] {
        last += shard.lines as usize;
        let key = |line: &String| line.split(' ').next().map(str::to_owned);
        assert_ne!(key(&lines[last - 1]), key(&lines[last]));
    }
}

#[test]
fn an_empty_index_and_one_with_a_header_can_be_written() {
    let directory = tempfile::tempdir().unwrap();
    let written = write(
        source(&[]),
        directory.path(),
        "empty",
        &ZipNumOptions::default(),
    )
    .unwrap();
    assert!(written.shards.is_empty());
    assert!(found(&written.summary, &KeyRange::all()).is_empty());
    let lines = [
        " CDX N b a m s k r M S V g".to_owned(),
        "k 20200101000000 u - - - - - 1 2 f".to_owned(),
    ];
    let written = write(
        source(&lines),
        directory.path(),
        "cdx",
        &ZipNumOptions::default(),
    )
    .unwrap();
    assert_eq!(written.lines, 1);
    assert_eq!(found(&written.summary, &KeyRange::all()), lines[1..]);
}

#[test]
fn what_cannot_be_written_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |lines: &[&str], name: &str, level| {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        let options = ZipNumOptions {
            level,
            ..ZipNumOptions::default()
        };
        write(source(&lines), directory.path(), name, &options)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(refused(&[], "../up", 6), "\"../up\" cannot name an index");
    assert_eq!(
        refused(&[], "a", 13),
        "compression level 13 is not between 1 and 12"
    );
    assert_eq!(
        refused(&["b 20200101000000 {}", "a 20200101000000 {}"], "b", 6),
        "line 2 of index.cdxj at offset 20 is not in byte order: it begins \"a 20200101000000 {}\", \
         after \"b 20200101000000 {}\""
    );
    assert_eq!(
        refused(&["oops"], "c", 6),
        "cannot parse line 1 of index.cdxj at offset 0: no key followed by a space"
    );
    fs::write(directory.path().join("d.idx"), "").unwrap();
    assert!(
        refused(&[], "d", 6).ends_with("d.idx"),
        "an index is never overwritten"
    );
}

#[test]
fn damage_is_named() {
    let asked = |spoil: &dyn Fn(&Path)| {
        let directory = tempfile::tempdir().unwrap();
        let written = write(
            source(&numbered(50)),
            directory.path(),
            "cdx",
            &ZipNumOptions::default(),
        )
        .unwrap();
        spoil(directory.path());
        let lookup = Lookup::open(&written.summary)?;
        let mut lines = lookup.range(KeyRange::all())?;
        let first = lines.next().unwrap().map(|_| ());
        assert!(
            first.is_ok() || lines.next().is_none(),
            "nothing comes after an error"
        );
        first
    };
    let edit = |name: &'static str, from: &'static str, to: &'static str| {
        move |directory: &Path| {
            let path = directory.join(name);
            let text = fs::read_to_string(&path).unwrap();
            fs::write(&path, text.replace(from, to)).unwrap();
        }
    };
    assert!(asked(&|_| ()).is_ok());
    let error = asked(&edit("cdx.loc", "00000.cdxj", "0000x.cdxj")).unwrap_err();
    assert!(error.to_string().contains("cdx-0000x.cdxj.gz"), "{error}");
    let error = asked(&edit("cdx.loc", "cdx-00000\t", "other\t")).unwrap_err();
    assert_eq!(error.to_string(), "no location for shard \"cdx-00000\"");
    let error = asked(&edit("cdx.loc", "\t", " ")).unwrap_err();
    assert!(error.to_string().contains("line 1 of"), "{error}");
    let error = asked(&edit("cdx.idx", "\tcdx-00000\t0\t", "\tcdx-00000\t1\t")).unwrap_err();
    assert!(
        matches!(error, LookupError::ZipNum(BlockError::Read { .. })),
        "{error}"
    );
    let error = asked(&edit("cdx.idx", "\tcdx-00000\t0\t", "\tcdx-00000\t0\t9")).unwrap_err();
    assert!(
        matches!(error, LookupError::ZipNum(BlockError::Read { .. })),
        "{error}"
    );
    let error = asked(&edit(
        "cdx.idx",
        "\tcdx-00000\t0\t",
        "\tcdx-00000\t0\t9999999999",
    ))
    .unwrap_err();
    assert!(
        matches!(error, LookupError::ZipNum(BlockError::Damaged { .. })),
        "{error}"
    );
    let error = asked(&edit("cdx.idx", "\tcdx-00000\t0\t", "\tcdx-00000\tx\t")).unwrap_err();
    assert!(
        error.to_string().contains("field \"offset\" is \"x\""),
        "{error}"
    );
    for at in [0, 40] {
        let error = asked(&|directory: &Path| {
            let path = directory.join("cdx-00000.cdxj.gz");
            let mut bytes = fs::read(&path).unwrap();
            bytes[at] ^= 0xff;
            fs::write(&path, bytes).unwrap();
        });
        assert!(
            matches!(error, Err(LookupError::ZipNum(BlockError::Damaged { .. }))),
            "{error:?}"
        );
    }
}

#[test]
fn summary_lines_with_and_without_number_are_read() {
    let line = parse_summary_line(b"com,a)/ 20200101000000\tcdx-00000\t275\t328\n").unwrap();
    assert_eq!(
        (line.shard, line.offset, line.length_bytes, line.number),
        ("cdx-00000", 275, 328, None)
    );
    for line in [
        "",
        "\ta\t1\t2\t3",
        "k\ta\t1",
        "k\ta\t1\t2\t3\t4",
        "k\ta\t1\t-2\t3",
    ] {
        assert!(parse_summary_line(line.as_bytes()).is_err(), "{line:?}");
    }
}
