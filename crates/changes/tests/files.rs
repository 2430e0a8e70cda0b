//! Read after write is identity; what is damaged is told with its place.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::fs;
use std::path::Path;

use ecluse_changes::{
    Announcement, ArchiveTime, ChangeRecord, ChangesError, ElementCounts, PageChanges, PagePattern,
    PatternOf, PatternSums, ReadOutcome, RecordReader, RecordWriter, SignalKind, SitePattern,
    VersionChange, WordMeasures, read_records,
};
use ecluse_refresh::IntervalHistogram;
use proptest::prelude::*;

fn time(digits: &str) -> ArchiveTime {
    ArchiveTime::parse(digits).unwrap()
}

fn page(surt: &str) -> PageChanges {
    PageChanges {
        surt: surt.to_owned(),
        url: "http://example.org/".to_owned(),
        first: time("20260101000000"),
        last: time("20261118024509"),
        looks: 3,
        changes: 1,
        last_change: Some(time("20261118024509")),
        quiet_days: 1.5,
        declared_days: 0.0,
        declared_changes: 0,
        intervals: IntervalHistogram::default(),
        rate: 0.25,
        change_weight: Some(0.04),
        text_weight: None,
        status: Some(200),
        etag: Some("\"a b\"".to_owned()),
        last_modified: None,
        signal: Some((SignalKind::Sitemap, time("20261101000000"))),
        simhash: Some(7),
        pattern: Some(PatternOf::Site),
        words: Some(WordMeasures {
            infrequency: 12.5,
            share: 0.25,
        }),
    }
}

fn written<Record: ChangeRecord>(directory: &Path, records: &[Record]) {
    let mut writer = RecordWriter::create(directory).unwrap();
    for record in records {
        writer.write(record).unwrap();
    }
    assert_eq!(writer.finish().unwrap(), records.len() as u64);
}

fn read<Record: ChangeRecord>(directory: &Path) -> Vec<Record> {
    let reader = RecordReader::open(directory).unwrap();
    reader.map(Result::unwrap).collect()
}

fn any_time() -> impl Strategy<Value = ArchiveTime> {
    (0i64..4_000_000_000).prop_map(|seconds| ArchiveTime::from_seconds(seconds).unwrap())
}

/// Numbers with no more digits than are written.
fn any_number() -> impl Strategy<Value = f64> {
    (0u32..1_000_000_000).prop_map(|number| f64::from(number) / 1e6)
}

prop_compose! {
    fn any_page()(
        surt in "[a-z]{1,3},[a-z]{1,4}\\)/[a-z?=é]{0,5}",
        url in "https?://[a-z]{1,5}/[a-z%?=é]{0,9}",
        times in (any_time(), any_time(), prop::option::of(any_time())),
        figures in (any::<u64>(), any::<u64>(), any::<u64>()),
        numbers in (any_number(), any_number(), any_number()),
        weights in (prop::option::of(any_number()), prop::option::of(any_number())),
        counts in any::<[u16; 16]>(),
        sent in (prop::option::of(any::<String>()), prop::option::of("[ -~]{0,30}")),
        more in (prop::option::of(any::<u16>()), prop::option::of(any::<u64>()), prop::option::of(any_time())),
        pattern in prop::option::of(prop::sample::select(vec![PatternOf::Page, PatternOf::Site])),
    ) -> PageChanges {
        PageChanges {
            surt, url,
            first: times.0, last: times.1, last_change: times.2,
            looks: figures.0, changes: figures.1, declared_changes: figures.2,
            quiet_days: numbers.0, declared_days: numbers.1, rate: numbers.2,
            intervals: IntervalHistogram { counts },
            change_weight: weights.0, text_weight: weights.1,
            status: more.0, simhash: more.1,
            etag: sent.0, last_modified: sent.1,
            signal: more.2.map(|time| (SignalKind::Feed, time)),
            pattern,
            words: weights.0.map(|share| WordMeasures { infrequency: share, share }),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn pages_come_back_as_they_were(mut pages in prop::collection::vec(any_page(), 0..20)) {
        pages.sort_by(|left, right| left.surt.cmp(&right.surt));
        pages.dedup_by(|left, right| left.surt == right.surt);
        let directory = tempfile::tempdir().unwrap();
        written(directory.path(), &pages);
        prop_assert_eq!(&read::<PageChanges>(directory.path()), &pages);
    }

    #[test]
    fn no_line_makes_a_reader_panic(line in any::<String>()) {
        let _ = PageChanges::parse(&line);
        let _ = VersionChange::parse(&line);
        let _ = PagePattern::parse(&line);
        let _ = SitePattern::parse(&line);
        let _ = Announcement::parse(&line);
    }
}

#[test]
fn the_line_of_a_page_is_that_of_the_format() {
    let mut line = String::new();
    page("org,example)/").write(&mut line);
    assert_eq!(
        line,
        "org,example)/\thttp://example.org/\t20260101000000\t20261118024509\t3\t1\t20261118024509\t1.5\t0\t0\t\
         0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0\t0.25\t0.04\t-\t200\t\"a%20b\"\t-\tsitemap:20261101000000\t0000000000000007\tsite\t12.5\t0.25"
    );
    // Lines of earlier programs end before the words.
    let old = line.strip_suffix("\t12.5\t0.25").unwrap();
    let read = PageChanges::parse(old).unwrap();
    assert_eq!((read.pattern, read.words), (Some(PatternOf::Site), None));
    assert!(PageChanges::parse(line.strip_suffix("\t0.25").unwrap()).is_err());
}

#[test]
fn versions_patterns_and_signals_come_back_as_they_were() {
    let directory = tempfile::tempdir().unwrap();
    let first = VersionChange {
        surt: "org,example)/".into(),
        time: time("20260101000000"),
        digest: "sha1:A".into(),
        before: None,
        weight: None,
        counts: ElementCounts::default(),
        simhash: Some(1),
        distance: None,
        text_weight: Some(0.5),
        etag: None,
        last_modified: Some("Thu, 01 Jan 2026 00:00:00 GMT".into()),
        outcome: ReadOutcome::Read,
        words: None,
    };
    let mut second = first.clone();
    second.before = Some((first.time, first.digest.clone()));
    second.time = time("20260102000000");
    second.counts.counts[1][2] = 3;
    (second.weight, second.distance) = (Some(0.1), Some(12));
    second.outcome = ReadOutcome::Damaged;
    let versions = [first, second];
    written(directory.path(), &versions);
    assert_eq!(read::<VersionChange>(directory.path()), versions);

    let mut sums = PatternSums::new(24);
    sums.see(time("20261120120000"), time("20261121120000"), Some(0.5));
    let patterns = [PagePattern {
        surt: "org,example)/".into(),
        sums: sums.clone(),
    }];
    written(directory.path(), &patterns);
    assert_eq!(read::<PagePattern>(directory.path()), patterns);
    let sites = [SitePattern {
        site: "org,example)".into(),
        pages: 1,
        changes: 1,
        rate: 0.5,
        sums,
    }];
    written(directory.path(), &sites);
    assert_eq!(read::<SitePattern>(directory.path()), sites);
    let signals = [Announcement {
        surt: "org,example)/".into(),
        time: time("20260102000000"),
        kind: SignalKind::Feed,
        url: "http://example.org/".into(),
    }];
    written(directory.path(), &signals);
    assert_eq!(read::<Announcement>(directory.path()), signals);
}

#[test]
fn a_key_is_found_in_a_file_of_many_frames() {
    let directory = tempfile::tempdir().unwrap();
    let pages: Vec<PageChanges> = (0..30_000)
        .map(|n| page(&format!("org,example)/{n:06}")))
        .collect();
    written(directory.path(), &pages);
    let bytes = fs::read(directory.path().join(PageChanges::FILE)).unwrap();
    let list = String::from_utf8_lossy(&bytes[bytes.len() - 400..]).into_owned();
    assert!(list.ends_with("ecluseFL"), "{list}");
    assert!(
        list.lines().filter(|line| line.contains(")/0")).count() > 3,
        "{list}"
    );
    for n in [0, 1, 9_999, 15_000, 29_999] {
        let key = format!("org,example)/{n:06}");
        let found: Vec<PageChanges> = read_records(directory.path(), &key).unwrap();
        assert_eq!(found, [pages[n].clone()]);
    }
    for key in ["a", "org,example)/000001x", "org,example)/030000", "z"] {
        let found: Vec<PageChanges> = read_records(directory.path(), key).unwrap();
        assert!(found.is_empty(), "{key}");
    }
    // The whole of it is one zstd file, whatever its frames.
    assert_eq!(read::<PageChanges>(directory.path()).len(), pages.len());
}

#[test]
fn damage_and_disorder_are_told_with_file_and_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(PageChanges::FILE);
    let mut line = String::new();
    page("b").write(&mut line);
    let put =
        |text: String| fs::write(&path, zstd::encode_all(text.as_bytes(), 0).unwrap()).unwrap();
    let header = PageChanges::HEADER;
    let error = || {
        let reader = RecordReader::<PageChanges>::open(directory.path());
        reader
            .and_then(|reader| reader.collect::<Result<Vec<_>, _>>())
            .unwrap_err()
    };
    put(format!(
        "{header}\n{line}\n{}\n",
        line.replacen('b', "a", 1)
    ));
    assert!(
        error()
            .to_string()
            .contains("not in order at line 3: a comes after b"),
        "{}",
        error()
    );
    put(format!(
        "{header}\n{}\n",
        line.replace("20260101000000", "20260230000000")
    ));
    assert!(
        error()
            .to_string()
            .ends_with("pages.tsv.zst is damaged at line 2: its first is none"),
        "{}",
        error()
    );
    put(format!("{header}\n{line}"));
    assert!(error().to_string().contains("line 2"), "{}", error());
    put("# ecluse pages 2\n".into());
    assert!(matches!(error(), ChangesError::Header { .. }));
    let whole = zstd::encode_all(format!("{header}\n{line}\n").as_bytes(), 0).unwrap();
    fs::write(&path, &whole[..whole.len() - 5]).unwrap();
    assert!(matches!(error(), ChangesError::Io { .. }), "{}", error());
    let mut writer = RecordWriter::create(tempfile::tempdir().unwrap().path()).unwrap();
    writer.write(&page("b")).unwrap();
    assert!(writer.write(&page("a")).is_err());
}
