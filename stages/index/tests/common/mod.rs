//! What the tests make files of.

#![allow(dead_code, reason = "each test file uses a part of this")]
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

pub(crate) const INDEX: &str = env!("CARGO_BIN_EXE_ecluse-index");

/// A WARC record with these fields beside its type, date and length.
pub(crate) fn record(kind: &str, fields: &[(&str, &str)], block: &[u8]) -> Vec<u8> {
    let mut record =
        format!("WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Date: 2026-01-02T03:04:05Z\r\n")
            .into_bytes();
    for (name, value) in fields {
        write!(record, "{name}: {value}\r\n").unwrap();
    }
    write!(record, "Content-Length: {}\r\n\r\n", block.len()).unwrap();
    record.extend_from_slice(block);
    record.extend_from_slice(b"\r\n\r\n");
    record
}

pub(crate) fn response(number: u32) -> Vec<u8> {
    let body = format!("<p>page {number}</p>").repeat(20);
    let block = format!("HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n{body}");
    let uri = format!("http://www{}.example.org/Page?b={number}&a=1", number % 3);
    record("response", &[("WARC-Target-URI", &uri)], block.as_bytes())
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// One gzip member a record.
pub(crate) fn members(records: &[Vec<u8>]) -> Vec<u8> {
    records.iter().flat_map(|record| gzip(record)).collect()
}

/// A little of everything.
pub(crate) fn assorted() -> Vec<Vec<u8>> {
    let http = |head: &str, body: &str| format!("{head}\r\n\r\n{body}").into_bytes();
    let html = "HTTP/1.1 200 OK\r\nContent-Type: text/html";
    vec![
        record(
            "warcinfo",
            &[("Content-Type", "application/warc-fields")],
            b"software: x\r\n",
        ),
        response(1),
        record(
            "request",
            &[("WARC-Target-URI", "http://a.example/")],
            b"GET / HTTP/1.0\r\n\r\n",
        ),
        record(
            "response",
            &[("WARC-Target-URI", "<http://b.example/ x>")],
            &http(html, "y"),
        ),
        record(
            "response",
            &[
                ("WARC-Target-URI", "https://c.example/%C3%A9?Z=1&a=%22"),
                ("WARC-Payload-Digest", "sha1:AAAA"),
            ],
            b"HTTP/1.0 404\nContent-Type: ;x\n\nLF only",
        ),
        record(
            "response",
            &[("WARC-Target-URI", "dns:d.example")],
            b"20260102030405\nd.example. 1 IN A\n",
        ),
        record(
            "revisit",
            &[
                ("WARC-Target-URI", "http://e.example:8080/"),
                ("WARC-Payload-Digest", "sha1:BBBB"),
            ],
            &http("HTTP/1.1 304 Not Modified", ""),
        ),
        record(
            "revisit",
            &[
                ("WARC-Target-URI", "http://e.example/"),
                ("WARC-Payload-Digest", "sha1:BBBB"),
            ],
            &http(html, ""),
        ),
        record(
            "metadata",
            &[
                ("WARC-Target-URI", "http://a.example/"),
                ("Content-Type", "application/warc-fields"),
            ],
            b"via: x\r\n",
        ),
        record(
            "metadata",
            &[
                ("WARC-Target-URI", "http://a.example/"),
                ("Content-Type", "text/anvl; x=y"),
            ],
            b"via: x\r\n",
        ),
        record(
            "resource",
            &[
                ("WARC-Target-URI", "urn:pageinfo:http://a.example/"),
                ("Content-Type", "application/json"),
            ],
            b"{}",
        ),
        record(
            "response",
            &[("WARC-Target-URI", "http://f.example/caf\u{e9}")],
            b"no head at all",
        ),
        record("response", &[("WARC-Target-URI", "http://g.example/")], b""),
        record(
            "conversion",
            &[("WARC-Target-URI", "http://h.example/")],
            b"x",
        ),
    ]
}

pub(crate) fn run(arguments: &[&Path]) -> Output {
    run_with("", arguments)
}

/// Runs the filter with these settings.
pub(crate) fn run_with(settings: &str, arguments: &[&Path]) -> Output {
    let empty = tempfile::tempdir().unwrap();
    let settings = format!("[stage.index]\n{settings}\n");
    std::fs::write(empty.path().join("pipeline.toml"), settings).unwrap();
    Command::new(INDEX)
        .env_remove("ECLUSE_CONFIG")
        .env_remove("ECLUSE_ROOT")
        .current_dir(empty.path())
        .args(arguments)
        .output()
        .unwrap()
}

/// Runs the filter on a file of these bytes and returns its code, lines and complaints.
pub(crate) fn index_bytes(name: &str, bytes: &[u8]) -> (i32, Vec<String>, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    let output = run(&[&path]);
    let lines = String::from_utf8(output.stdout).unwrap();
    (
        output.status.code().unwrap(),
        lines.lines().map(str::to_owned).collect(),
        String::from_utf8(output.stderr).unwrap(),
    )
}
