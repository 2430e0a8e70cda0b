//! What a job left: the records of its (W)ARC files and the lines of its crawl.log.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use ecluse_warc::{Digester, ReaderLimits, RecordKind, WarcReader};

use super::Job;

/// What a job left.
pub(crate) struct Harvest {
    pub(crate) job: Job,
    pub(crate) records: Vec<Kept>,
    pub(crate) lines: Vec<Line>,
}

/// A record.
#[derive(Clone)]
pub(crate) struct Kept {
    pub(crate) kind: RecordKind,
    pub(crate) url: String,
    /// The header as it is.
    pub(crate) header: String,
    /// Of a block of many megabytes, its beginning.
    pub(crate) block: Vec<u8>,
    /// The status of an HTTP response.
    pub(crate) status: Option<String>,
}

/// A line of crawl.log.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) status: i32,
    pub(crate) size: String,
    pub(crate) url: String,
    pub(crate) hops: String,
    pub(crate) digest: String,
    pub(crate) annotations: Vec<String>,
}

impl Kept {
    /// Returns a field of the header.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.header.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

impl Line {
    fn parse(text: &str) -> Self {
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        assert!((12..=13).contains(&fields.len()), "{text}");
        assert_eq!(fields[0].len(), "2026-11-16T01:00:00.123Z".len(), "{text}");
        Self {
            status: fields[1].parse().unwrap(),
            size: fields[2].to_owned(),
            url: fields[3].to_owned(),
            hops: fields[4].to_owned(),
            digest: fields[9].to_owned(),
            annotations: fields[11].split(',').map(str::to_owned).collect(),
        }
    }

    pub(crate) fn has(&self, annotation: &str) -> bool {
        self.annotations.iter().any(|found| found == annotation)
    }
}

impl Harvest {
    /// Reads what a finished job left; every file is whole, and every digest right.
    pub(crate) fn read(job: Job) -> Self {
        let mut records = Vec::new();
        for path in files(&job) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let is_whole = name.ends_with(".warc.gz") || name.ends_with(".warc");
            assert!(is_whole, "{name} was left");
            read_file(&path, &mut records);
        }
        let log = fs::read_to_string(job.dir().join("logs/crawl.log")).unwrap();
        let lines = log.lines().map(Line::parse).collect();
        Self {
            job,
            records,
            lines,
        }
    }

    /// Returns the records of a kind about a URL.
    pub(crate) fn of(&self, kind: RecordKind, url: &str) -> Vec<&Kept> {
        let all = self.records.iter();
        all.filter(|record| record.kind == kind && record.url == url)
            .collect()
    }

    /// Returns the one response of a URL.
    pub(crate) fn response(&self, url: &str) -> &Kept {
        let found = self.of(RecordKind::Response, url);
        assert_eq!(found.len(), 1, "{url} has {} responses", found.len());
        found[0]
    }

    /// Returns the one line of a URL.
    pub(crate) fn line(&self, url: &str) -> &Line {
        let found: Vec<&Line> = self.lines.iter().filter(|line| line.url == url).collect();
        assert_eq!(found.len(), 1, "{url} has {} lines", found.len());
        found[0]
    }

    /// Returns what was captured over HTTP: URL, status, payload digest. No URL may be there twice.
    pub(crate) fn captures(&self) -> BTreeSet<(String, String, String)> {
        let mut seen = BTreeMap::new();
        let mut captures = BTreeSet::new();
        for record in &self.records {
            if !matches!(record.kind, RecordKind::Response | RecordKind::Revisit)
                || !record.url.starts_with("http")
            {
                continue;
            }
            let digest = record.field("WARC-Payload-Digest").unwrap_or_default();
            let status = record.status.clone().unwrap_or_default();
            let twice = seen.insert(record.url.clone(), record.header.clone());
            assert_eq!(twice, None, "captured twice: {}", record.header);
            captures.insert((record.url.clone(), status, digest.to_owned()));
        }
        captures
    }

    /// Fails unless crawl.log has every URL once. Names and robots.txt are asked for again when they are too old, or
    /// were not to be had.
    pub(crate) fn each_line_once(&self) {
        let mut seen = BTreeSet::new();
        for line in self.lines.iter().filter(|line| !line.hops.ends_with('P')) {
            assert!(seen.insert(&line.url), "logged twice: {line:?}");
        }
    }
}

/// All files in the harvested directory, metadata apart.
pub(crate) fn files(job: &Job) -> Vec<PathBuf> {
    let entries = fs::read_dir(job.root.path().join("harvested")).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| !path.to_string_lossy().contains("-metadata-"));
    paths.sort();
    paths
}

/// More of a block is read, but not kept.
const KEPT_BYTES: usize = 64 << 20;

/// Reads the records of a file, which must be whole, with right digests.
pub(crate) fn read_file(path: &Path, records: &mut Vec<Kept>) {
    let mut reader = WarcReader::new(File::open(path).unwrap(), ReaderLimits::default());
    while let Some(mut record) = reader.next().unwrap() {
        let header = String::from_utf8_lossy(record.header()).into_owned();
        let mut kept = Kept {
            kind: record.kind(),
            url: record.target_uri().unwrap_or_default().into_owned(),
            status: record
                .http()
                .and_then(|head| Some(head.status()?.into_owned())),
            header,
            block: Vec::new(),
        };
        let (mut digester, mut bytes) = (Digester::default(), 0);
        let mut piece = vec![0; 1 << 20];
        loop {
            let count = record.read(&mut piece).unwrap();
            if count == 0 {
                break;
            }
            digester.update(&piece[..count]);
            bytes += count;
            let room = KEPT_BYTES - kept.block.len();
            kept.block.extend_from_slice(&piece[..count.min(room)]);
        }
        if let Some(stated) = kept.field("WARC-Block-Digest") {
            let found = digester.finish().to_string();
            assert_eq!(found, stated, "{}", kept.header);
        }
        let length: usize = kept.field("Content-Length").unwrap().parse().unwrap();
        assert_eq!(length, bytes, "{}", kept.header);
        records.push(kept);
    }
    assert_eq!(reader.damage_count(), 0, "{path:?}: {:?}", reader.damages());
}
