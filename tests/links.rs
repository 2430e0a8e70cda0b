//! Links and ranks end to end: from (W)ARC files through the chain to `ecluse links`, and made again from the files.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ecluse_testkit::root::settle_environment;
use serde_json::Value;

const ECLUSE: &str = env!("CARGO_BIN_EXE_ecluse");
const CHAIN: [&str; 9] = [
    "ingest", "index", "transfer", "backup", "delete", "merge", "bigmerge", "clean", "rank",
];

struct Archive {
    dir: tempfile::TempDir,
}

impl Archive {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let settings = "[defaults]\nsettle = \"50ms\"\nmin-free = \"0 B\"\nbatch = { parcels = 50, wait = \"100ms\" }\n\
                        [stage.merge]\nbatch = { parcels = 50, wait = \"100ms\" }\n";
        fs::write(dir.path().join("pipeline.toml"), settings).unwrap();
        Self { dir }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn ecluse(&self, words: &[&str]) -> Output {
        let mut command = Command::new(ECLUSE);
        settle_environment(&mut command);
        command.arg("--root").arg(self.dir.path()).args(words);
        command.output().unwrap()
    }

    fn json(&self, words: &[&str]) -> Value {
        let output = self.ecluse(&[&["--json"], words].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)))
    }

    /// Takes pages in and lets the whole chain run.
    fn take(&self, job: u32, pages: &[(&str, &str)]) {
        let mut file = Vec::new();
        for (url, links) in pages {
            let block = format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>{links}</p>");
            let record = format!(
                "WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: {url}\r\nWARC-Date: 2026-01-{job:02}T03:04:05Z\r\n\
                 WARC-Record-ID: <urn:uuid:{job}-{}>\r\nContent-Type: application/http; msgtype=response\r\n\
                 Content-Length: {}\r\n\r\n{block}\r\n\r\n",
                url.len(),
                block.len()
            );
            let mut packer = libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
            let mut packed = vec![0; packer.gzip_compress_bound(record.len())];
            let bytes = packer
                .gzip_compress(record.as_bytes(), &mut packed)
                .unwrap();
            file.extend(&packed[..bytes]);
        }
        fs::create_dir_all(self.path("harvested")).unwrap();
        let draft = self.path("draft.tmp");
        fs::write(&draft, file).unwrap();
        let name = format!("harvested/{job}-3-20261116120000000-00000-h.warc.gz");
        fs::rename(&draft, self.path(&name)).unwrap();
        for stage in CHAIN {
            let output = self.ecluse(&["run", "--once", stage]);
            assert_eq!(output.status.code(), Some(0), "{stage}: {}", said(&output));
        }
    }

    fn current(&self, name: &str) -> Vec<u8> {
        fs::read(self.path("links/current").join(name)).unwrap()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn urls(list: &Value) -> Vec<&str> {
    let links = list.as_array().unwrap().iter();
    links.map(|link| link["url"].as_str().unwrap()).collect()
}

#[test]
fn links_go_through_the_chain_to_whoever_asks() {
    let archive = Archive::new();
    let none = archive.ecluse(&["links", "a.example"]);
    assert_eq!(none.status.code(), Some(1), "{}", said(&none));
    assert!(said(&none).contains("there are no links yet"));
    archive.take(
        1,
        &[
            ("http://a.example/", "<a href=/old>o</a>"),
            (
                "http://b.example/",
                "<a href=http://a.example/>a</a><img src=/i.png>",
            ),
            (
                "http://c.example/",
                "<a href=http://www.a.example/#x>a</a><a href=/d>d</a>",
            ),
        ],
    );
    archive.take(
        2,
        &[(
            "http://a.example/",
            "<a href=/new>n</a><link rel=canonical href=http://b.example/>",
        )],
    );

    let told = archive.json(&["links", "http://a.example/"]);
    assert_eq!(
        urls(&told["out"]),
        ["http://a.example/new", "http://b.example/"]
    );
    assert_eq!(told["out"][1]["kinds"], serde_json::json!(["canonical"]));
    assert_eq!(told["captured"], "20260102030405");
    assert_eq!(
        urls(&told["in"]),
        ["http://b.example/", "http://c.example/"]
    );
    assert_eq!(told["in"][0]["kinds"], serde_json::json!(["a"]));
    assert_eq!(told["in"][0]["captured"], "20260101030405");
    let told = archive.json(&["links", "a.example/new", "--in"]);
    assert_eq!(
        (urls(&told["in"]), told.get("out")),
        (vec!["http://a.example/"], None)
    );
    let told = archive.json(&["links", "a.example", "--out", "--limit", "1"]);
    assert_eq!((urls(&told["out"]).len(), told.get("in")), (1, None));
    let text = said(&archive.ecluse(&["links", "b.example"]));
    assert_eq!(
        text,
        "http://b.example/  captured 20260101030405\nlinks to 2\n  a                        http://a.example/\n  \
         embed                    http://b.example/i.png\nis linked from 1\n  canonical 20260102030405 http://a.example/\n"
    );
    let unknown = archive.ecluse(&["links", "http://a.example/old"]);
    assert_eq!(unknown.status.code(), Some(1), "{}", said(&unknown));

    // Made again from the files, they are the same but for where sweeps began.
    let links = archive.current("links.tsv.zst");
    let numbers = archive.current("urls.fc");
    let made = &archive.json(&["rebuild", "links", "--why", "lost"])["done"][0];
    assert_eq!(
        (&made["urls"], &made["unread"]),
        (&5.into(), &0.into()),
        "{made}"
    );
    assert_eq!(archive.current("links.tsv.zst"), links);
    assert_eq!(archive.current("urls.fc"), numbers);
    let aside = fs::read_dir(archive.path("links")).unwrap();
    let names = aside.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(
        names
            .into_iter()
            .any(|name| name.starts_with("generations.old-"))
    );
    assert!(Path::new(&archive.path("links/current/ranks.tsv.zst")).exists());
    // What comes later stands on it.
    archive.take(
        3,
        &[("http://d.example/", "<a href=http://a.example/>a</a>")],
    );
    let told = archive.json(&["links", "http://a.example/", "--in"]);
    assert_eq!(urls(&told["in"]).len(), 3);
}
