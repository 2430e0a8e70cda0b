//! The metadata WARC of a job, read back.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::fs;
use std::io::Read;

use ecluse_report::{
    JobFacts, MetadataEntry, MetadataError, Moment, PACKING_LIST, Packed, Part,
    archivefiles_report, metadata_name, write_metadata,
};
use ecluse_warc::{ReaderLimits, RecordKind, WarcReader, WarcWriter};

fn facts() -> JobFacts {
    JobFacts {
        job: "17".to_owned(),
        harvest: "4".to_owned(),
        harvest_run: Some(0),
        description: "Élections\r\n 2027".to_owned(),
        ended: Moment(1_794_790_841_968),
        host: "crawler.example".to_owned(),
        address: Some("192.0.2.7".to_owned()),
        software: "Ecluse/0.1.0".to_owned(),
        ..JobFacts::default()
    }
}

fn written(org: &str, facts: &JobFacts, entries: &[MetadataEntry]) -> Vec<u8> {
    let mut out = WarcWriter::new(Vec::new(), 6);
    write_metadata(&mut out, org, facts, entries).unwrap();
    out.into_inner()
}

struct Found {
    kind: RecordKind,
    id: String,
    date: String,
    uri: String,
    content_type: String,
    info: String,
    address: String,
    block: Vec<u8>,
}

fn found(bytes: &[u8]) -> Vec<Found> {
    let mut reader = WarcReader::new(bytes, ReaderLimits::default());
    let mut records = Vec::new();
    while let Some(mut record) = reader.next().unwrap() {
        let text = |name: &str| record.text(name).unwrap_or_default().into_owned();
        let mut read = Found {
            kind: record.kind(),
            id: text("WARC-Record-ID"),
            date: text("WARC-Date"),
            uri: text("WARC-Target-URI"),
            content_type: text("Content-Type"),
            info: text("WARC-Warcinfo-ID"),
            address: text("WARC-IP-Address"),
            block: Vec::new(),
        };
        match record.block() {
            Some(block) => read.block.extend_from_slice(block),
            None => {
                record.read_to_end(&mut read.block).unwrap();
            }
        }
        records.push(read);
    }
    assert_eq!(reader.damage_count(), 0);
    records
}

#[test]
fn names_are_those_of_netarchivesuite() {
    assert_eq!(metadata_name(&facts()), "17-4-metadata-1.warc.gz");
    let facts = JobFacts {
        prefix: "BnF".to_owned(),
        job: "../17 é".to_owned(),
        ..facts()
    };
    assert_eq!(metadata_name(&facts), "BnF-.._17__-4-metadata-1.warc.gz");
}

#[test]
fn setup_reports_and_logs_become_records() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("crawl.log");
    let lines = "2026-11-16T01:00:00.123Z   200 …\n".repeat(100_000);
    fs::write(&log, &lines).unwrap();
    fs::write(dir.path().join("uri-errors.log"), "").unwrap();
    let list = archivefiles_report(&[Packed {
        name: "17-4-20261116010000123-00000-crawler.warc.gz".to_owned(),
        opened: Moment(1_794_790_800_123),
        closed: Moment(1_794_790_841_000),
        bytes: 155_907,
    }]);
    let bytes = written(
        "archive.example",
        &facts(),
        &[
            MetadataEntry::of_file(Part::Logs, &log),
            MetadataEntry::of_file(Part::Logs, &dir.path().join("uri-errors.log")),
            MetadataEntry::of_bytes(Part::Reports, PACKING_LIST, list.as_str()),
            MetadataEntry::of_bytes(Part::Reports, "crawl-report.json", "{}"),
            MetadataEntry::of_bytes(Part::Setup, "order.toml", "seeds = []\n"),
        ],
    );
    let records = found(&bytes);
    let info = &records[0];
    assert_eq!(info.kind, RecordKind::Warcinfo);
    let block = String::from_utf8(info.block.clone()).unwrap();
    assert!(
        block.starts_with(
            "software: Ecluse/0.1.0\r\nip: 192.0.2.7\r\nhostname: crawler.example\r\n"
        )
    );
    for line in [
        "isPartOf: 17",
        "description: Élections 2027",
        "harvestInfo.origHarvestDefinitionID: 4",
        "harvestInfo.harvestNum: 0",
    ] {
        assert!(block.lines().any(|found| found == line), "{line}: {block}");
    }
    let query = "?software=Ecluse%2F0.1.0&harvestid=4&harvestnum=0&jobid=17";
    let told: Vec<(&str, &str)> = records[1..]
        .iter()
        .map(|record| {
            assert_eq!(record.kind, RecordKind::Resource);
            assert_eq!(record.date, "2026-11-16T01:00:41.968Z");
            assert_eq!(
                (record.info.as_str(), record.address.as_str()),
                (info.id.as_str(), "192.0.2.7")
            );
            let uri = record.uri.strip_prefix("metadata://archive.example/crawl/");
            let name = uri.and_then(|uri| uri.strip_suffix(query));
            (name.unwrap(), record.content_type.as_str())
        })
        .collect();
    assert_eq!(
        told,
        [
            ("setup/order.toml", "application/toml"),
            ("reports/archivefiles-report.txt", "text/plain"),
            ("reports/crawl-report.json", "application/json"),
            ("logs/crawl.log", "text/plain"),
            ("logs/uri-errors.log", "text/plain"),
        ]
    );
    assert_eq!(records[2].block, list.as_bytes());
    assert!(records[4].block == lines.as_bytes());
    assert!(records[5].block.is_empty());
}

#[test]
fn written_twice_the_bytes_are_the_same() {
    let entries = [
        MetadataEntry::of_bytes(Part::Setup, "a.txt", "a"),
        MetadataEntry::of_bytes(Part::Reports, "a.txt", "a"),
    ];
    let bytes = written("o", &facts(), &entries);
    assert_eq!(bytes, written("o", &facts(), &entries));
    let ids = |bytes: &[u8]| -> Vec<String> {
        let mut ids: Vec<String> = found(bytes).into_iter().map(|record| record.id).collect();
        ids.sort();
        ids.dedup();
        ids
    };
    let first = ids(&bytes);
    assert_eq!(first.len(), 3);
    for id in &first {
        let digits = id
            .strip_prefix("<urn:uuid:")
            .and_then(|id| id.strip_suffix('>'));
        let parts: Vec<&str> = digits.unwrap().split('-').collect();
        assert_eq!(
            parts.iter().map(|part| part.len()).collect::<Vec<_>>(),
            [8, 4, 4, 4, 12]
        );
        assert!(parts[2].starts_with('5') && parts[3].starts_with(['8', '9', 'a', 'b']));
    }
    let other_job = JobFacts {
        job: "18".to_owned(),
        ..facts()
    };
    let other = ids(&written("o", &other_job, &entries));
    assert!(other.iter().all(|id| !first.contains(id)));
}

#[test]
fn hostile_names_cannot_break_a_header() {
    let facts = JobFacts {
        job: "1\r\nX: y&jobid=2".to_owned(),
        description: "\r\n\r\nWARC/1.1".to_owned(),
        ..facts()
    };
    let entry = MetadataEntry::of_bytes(Part::Setup, "a b?c#d/é\r\n.txt", "x");
    let records = found(&written("o rg/\n", &facts, &[entry]));
    assert_eq!(records.len(), 2);
    assert_eq!(
        records[1].uri,
        "metadata://o%20rg%2F%0A/crawl/setup/a%20b%3Fc%23d%2F%C3%A9%0D%0A.txt\
         ?software=Ecluse%2F0.1.0&harvestid=4&harvestnum=0&jobid=1%0D%0AX%3A%20y%26jobid%3D2"
    );
    let block = String::from_utf8(records[0].block.clone()).unwrap();
    assert!(block.lines().all(|line| line.contains(": ")), "{block}");
}

#[test]
fn what_cannot_be_written_is_named() {
    let mut out = WarcWriter::new(Vec::new(), 6);
    let entry = MetadataEntry::of_bytes(Part::Logs, "crawl.log", "x");
    let twice = write_metadata(&mut out, "o", &facts(), &[entry.clone(), entry]).unwrap_err();
    assert_eq!(twice.to_string(), "two entries named logs/crawl.log");
    assert_eq!(out.offset(), 0);

    let dir = tempfile::tempdir().unwrap();
    let gone = MetadataEntry::of_file(Part::Logs, &dir.path().join("gone.log"));
    let error = write_metadata(&mut out, "o", &facts(), &[gone]).unwrap_err();
    assert!(matches!(error, MetadataError::Open { path, .. } if path.ends_with("gone.log")));
}
