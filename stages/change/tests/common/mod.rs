//! An archive of a few captures: stored files, the index over them, and parcels that tell of them.
#![allow(dead_code, reason = "each test takes what it needs")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use ecluse_changes::{ChangeRecord, RecordReader};
use ecluse_generation::{FLAT, IndexDirectory, IndexGeneration, PATHS, SCHEMA, entry_of};
use ecluse_testkit::root::Root;

pub(crate) const CHANGE: &str = env!("CARGO_BIN_EXE_ecluse-change");

pub(crate) fn root(more: &str) -> Root {
    let root = Root::new();
    let table = format!("[stage.change]\nnext = []\n{more}\n");
    root.settings(&["change"], &table);
    root
}

pub(crate) fn run(root: &Root, expected: i32) -> String {
    let (code, said) = root.run(CHANGE, &["--once"]);
    assert_eq!(code, expected, "{said}");
    said
}

/// A capture to be stored.
#[derive(Clone)]
pub(crate) struct Fetched {
    pub(crate) path: String,
    pub(crate) time: String,
    pub(crate) status: u16,
    pub(crate) mime: &'static str,
    pub(crate) headers: String,
    pub(crate) body: Vec<u8>,
    /// It refers to another capture with this body, and has none itself.
    pub(crate) is_revisit: bool,
}

pub(crate) fn page(path: &str, time: &str, body: &str) -> Fetched {
    Fetched {
        path: path.into(),
        time: time.into(),
        status: 200,
        mime: "text/html",
        headers: String::new(),
        body: body.into(),
        is_revisit: false,
    }
}

pub(crate) fn revisit(path: &str, time: &str, body: &str) -> Fetched {
    Fetched {
        is_revisit: true,
        ..page(path, time, body)
    }
}

fn digest(body: &[u8]) -> String {
    let sum = body.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("sha1:{sum:016X}")
}

/// Stores captures in one file and returns their lines, sorted.
pub(crate) fn store(root: &Root, file: &str, captures: &[Fetched]) -> Vec<String> {
    let directory = root.path().join("repository");
    fs::create_dir_all(&directory).unwrap();
    let mut out = fs::File::create(directory.join(file)).unwrap();
    let (mut offset, mut lines) = (0, Vec::new());
    for capture in captures {
        let Fetched {
            path,
            time,
            status,
            mime,
            headers,
            body,
            is_revisit,
        } = capture;
        let url = format!("http://example.org/{path}");
        let head = format!("HTTP/1.1 {status} x\r\nContent-Type: {mime}\r\n{headers}\r\n");
        let mut block = head.into_bytes();
        if !is_revisit {
            block.extend_from_slice(body);
        }
        let date = format!(
            "{}-{}-{}T{}:{}:{}Z",
            &time[..4],
            &time[4..6],
            &time[6..8],
            &time[8..10],
            &time[10..12],
            &time[12..14]
        );
        let kind = if *is_revisit { "revisit" } else { "response" };
        let profile = match is_revisit {
            true => {
                "WARC-Profile: http://netpreserve.org/warc/1.1/revisit/identical-payload-digest\r\n"
            }
            false => "",
        };
        let head = format!(
            "WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Record-ID: <urn:uuid:00000000-0000-0000-0000-{offset:012}>\r\n\
             WARC-Date: {date}\r\nWARC-Target-URI: {url}\r\nWARC-Payload-Digest: {}\r\n{profile}\
             Content-Type: application/http; msgtype=response\r\nContent-Length: {}\r\n\r\n",
            digest(body),
            block.len()
        );
        let record = [head.as_bytes(), &block, b"\r\n\r\n"].concat();
        out.write_all(&record).unwrap();
        let mime = if *is_revisit { "warc/revisit" } else { mime };
        lines.push(format!(
            "org,example)/{path} {time} {{\"url\": \"{url}\", \"mime\": \"{mime}\", \"status\": \"{status}\", \"digest\": \"{}\", \
             \"length\": \"{}\", \"offset\": \"{offset}\", \"filename\": \"{file}\"}}\n",
            digest(body),
            record.len() - 4
        ));
        offset += record.len();
    }
    lines.sort();
    lines
}

/// Makes the next generation of an index of all these lines.
pub(crate) fn publish(root: &Root, collection: Option<&str>, lines: &[String], files: &[&str]) {
    let index = IndexDirectory::of(&root.path().join("index"), collection).unwrap();
    index.prepare().unwrap();
    let lock = index.try_lock().unwrap().unwrap();
    let last = index.settle(&lock).unwrap();
    let number = last.as_ref().map_or(0, |last| last.number) + 1;
    let building = index.begin(&lock, number).unwrap();
    let mut lines = lines.to_vec();
    lines.sort();
    fs::write(building.join(FLAT), lines.concat()).unwrap();
    let mut places: Vec<String> = files
        .iter()
        .map(|file| format!("{file}\trepository/{file}\n"))
        .collect();
    places.sort();
    fs::write(building.join(PATHS), places.concat()).unwrap();
    let files = [FLAT, PATHS].map(|name| entry_of(&building.join(name), name).unwrap());
    let generation = IndexGeneration {
        schema: SCHEMA,
        number,
        previous: last.as_ref().map(|last| last.number),
        lines: lines.len() as u64,
        duplicates: 0,
        files: files.to_vec(),
        members: Vec::new(),
    };
    generation.write(&building).unwrap();
    index
        .publish(&lock, &building, &generation, last.as_ref())
        .unwrap();
}

/// Tells the stage of captures that are in the index.
pub(crate) fn tell(root: &Root, id: &str, collection: Option<&str>, lines: &[String]) {
    let mut lines = lines.to_vec();
    lines.sort();
    root.put_with("change", id, "captures", |parcel| {
        parcel.manifest().collection = collection.map(str::to_owned);
        parcel.write("captures.cdxj", lines.concat().as_bytes())
    });
}

pub(crate) fn current(root: &Root) -> PathBuf {
    root.path().join("changes/current")
}

pub(crate) fn records<Record: ChangeRecord>(directory: &Path) -> Vec<Record> {
    let reader = RecordReader::open(directory).unwrap();
    reader.map(Result::unwrap).collect()
}

/// The files of a generation, but for what says how it came about.
pub(crate) fn given(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut given = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if name != "generation.json" {
            given.insert(name, fs::read(entry.path()).unwrap());
        }
    }
    given
}
