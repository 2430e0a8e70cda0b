//! `ecluse lookup`, on indexes made by hand.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use ecluse_cdx::{LineSource, zipnum};
use ecluse_manifest::{Manifest, NewFile};
use tempfile::TempDir;

fn line(key: &str, second: u32) -> String {
    format!("{key} 202601010000{second:02} {{\"url\": \"https://x/\", \"length\": \"{second}\"}}\n")
}

fn all_lines() -> String {
    let mut lines: Vec<String> = (0..2_000)
        .map(|n| line(&format!("org,example)/{n:05}"), 1))
        .collect();
    for key in [
        "org,example)/",
        "org,example)/news",
        "org,example,shop)/",
        "org,example-x)/",
    ] {
        lines.push(line(key, 1));
        lines.push(line(key, 2));
    }
    lines.sort();
    lines.concat()
}

/// Puts an index under a root, flat or as ZipNum alone.
fn put(root: &Path, shelf: &str, lines: &str, is_zipnum: bool) {
    let generation = root.join(shelf).join("generations/1");
    fs::create_dir_all(&generation).unwrap();
    if is_zipnum {
        let source = LineSource::new("lines", std::io::Cursor::new(lines.as_bytes().to_vec()));
        zipnum::write(source, &generation, "index", &zipnum::Options::default()).unwrap();
    } else {
        fs::write(generation.join("index.cdxj"), lines).unwrap();
    }
    symlink("generations/1", root.join(shelf).join("current")).unwrap();
}

fn lookup(root: &Path, arguments: &[&str]) -> (i32, String, String) {
    ask("lookup", root, arguments)
}

fn ask(verb: &str, root: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ecluse"))
        .env_remove("ECLUSE_CONFIG")
        .arg("--root")
        .arg(root)
        .arg(verb)
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn flat_and_zipnum_give_the_same_answers() {
    for is_zipnum in [false, true] {
        let root = TempDir::new().unwrap();
        put(root.path(), "index", &all_lines(), is_zipnum);
        let ask = |arguments: &[&str]| lookup(root.path(), arguments);
        let (code, out, _) = ask(&["https://www.example.org/news"]);
        assert_eq!(
            (code, out),
            (
                0,
                line("org,example)/news", 1) + &line("org,example)/news", 2)
            )
        );
        let (code, out, _) = ask(&["example.org/0012", "--match", "prefix"]);
        assert_eq!((code, out.lines().count()), (0, 10));
        let (code, out, _) = ask(&["example.org", "--match", "host"]);
        assert_eq!((code, out.lines().count()), (0, 2_004));
        let (code, out, _) = ask(&["example.org", "--match", "domain"]);
        assert_eq!((code, out.lines().count()), (0, 2_006));
        let (code, out, _) = ask(&["example.org", "--match", "domain", "--limit", "3"]);
        assert_eq!((code, out.lines().count()), (0, 3));
        let (code, out, said) = ask(&["https://example.org/nothing"]);
        assert_eq!(
            (code, out.as_str(), said.as_str()),
            (1, "", ""),
            "none is an answer"
        );
        let (code, out, _) = ask(&["example.org/news", "--json", "--limit", "1"]);
        let object: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!((code, &object["urlkey"]), (0, &"org,example)/news".into()));
    }
}

#[test]
fn a_collection_is_asked_by_name() {
    let root = TempDir::new().unwrap();
    put(root.path(), "index", &line("org,example)/a", 1), false);
    put(
        root.path(),
        "index/presse",
        &line("org,example)/b", 1),
        false,
    );
    let (code, out, _) = lookup(root.path(), &["example.org/b", "--collection", "presse"]);
    assert_eq!((code, out), (0, line("org,example)/b", 1)));
    assert_eq!(lookup(root.path(), &["example.org/b"]).0, 1);
    let (code, _, said) = lookup(root.path(), &["example.org/b", "--collection", "../index"]);
    assert_eq!(code, 64);
    assert!(said.contains("cannot name an index"), "{said}");
}

#[test]
fn no_index_is_one_clear_line() {
    let root = TempDir::new().unwrap();
    let (code, out, said) = lookup(root.path(), &["example.org"]);
    assert_eq!((code, out.as_str()), (64, ""));
    let expected = format!(
        "ecluse: no index in {}/index: bigmerge has made none yet\n",
        root.path().display()
    );
    assert_eq!(said, expected);
    assert!(
        fs::read_dir(root.path()).unwrap().next().is_none(),
        "asking makes nothing"
    );
}

fn gzipped(text: &str) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(text.as_bytes()).unwrap();
    gzip.finish().unwrap()
}

/// Returns one record of an HTTP response, not packed.
fn record(fields: &str, block: &[u8]) -> Vec<u8> {
    let head = format!(
        "WARC/1.1\r\nWARC-Target-URI: http://a.example/\r\n{fields}Content-Length: {}\r\n\r\n",
        block.len()
    );
    [head.as_bytes(), block, b"\r\n\r\n"].concat()
}

#[test]
fn a_capture_is_shown_as_a_browser_had_it() {
    let root = TempDir::new().unwrap();
    let body = gzipped("a page \u{1b}[31m in red\n");
    let (one, two) = body.split_at(9);
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n\r\n";
    let mut block = head.as_bytes().to_vec();
    for chunk in [one, two, &[]] {
        block.extend(format!("{:x}\r\n", chunk.len()).bytes());
        block.extend(chunk);
        block.extend(b"\r\n");
    }
    let first = record(
        "WARC-Type: response\r\nWARC-Date: 2026-01-01T00:00:01Z\r\nContent-Type: application/http;msgtype=response\r\n",
        &block,
    );
    let second = record(
        "WARC-Type: revisit\r\nWARC-Date: 2026-02-01T00:00:01Z\r\nWARC-Refers-To-Target-URI: http://a.example/\r\nWARC-Refers-To-Date: 2026-01-01T00:00:01Z\r\nContent-Type: application/http;msgtype=response\r\n",
        b"HTTP/1.1 200 Again\r\n\r\n",
    );
    fs::create_dir(root.path().join("harvested")).unwrap();
    fs::write(
        root.path().join("harvested/x.warc"),
        [&first[..], &second].concat(),
    )
    .unwrap();
    let line = |time: &str, mime: &str, offset: usize, length: usize| {
        format!(
            "example,a)/ {time} {{\"url\": \"http://a.example/\", \"mime\": \"{mime}\", \"status\": \"200\", \"digest\": \"sha1:X\", \"length\": \"{length}\", \"offset\": \"{offset}\", \"filename\": \"x.warc\"}}\n"
        )
    };
    let lines = line("20260101000001", "text/plain", 0, first.len())
        + &line("20260201000001", "warc/revisit", first.len(), second.len());
    put(root.path(), "index", &lines, false);
    let show = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_ecluse"))
            .env_remove("ECLUSE_CONFIG")
            .arg("--root")
            .arg(root.path())
            .arg("show")
            .args(words)
            .output()
            .unwrap();
        let code = output.status.code().unwrap();
        (
            code,
            output.stdout,
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let text = "a page \u{1b}[31m in red\n";
    let (code, out, said) = show(&["a.example", "--at", "2026-01"]);
    assert_eq!((code, said.as_str()), (0, ""));
    assert_eq!(String::from_utf8(out).unwrap(), format!("{head}{text}"));
    // An unchanged one has its own head, and the body of the other.
    let (code, out, said) = show(&["a.example"]);
    assert_eq!((code, said.as_str()), (0, ""));
    assert_eq!(
        String::from_utf8(out).unwrap(),
        format!("HTTP/1.1 200 Again\r\n\r\n{text}")
    );
    assert_eq!(show(&["a.example", "--at", "2026-01", "--raw"]).1, block);
    assert_eq!(show(&["a.example", "--at", "soon"]).0, 64);
    let (code, _, said) = show(&["a.example/b"]);
    assert_eq!(code, 1);
    assert!(
        said.contains("of its host: 2 captures of 1 URL: "),
        "{said}"
    );

    // On a terminal: a table, and nothing raw.
    let typed = |words: &str| {
        let command = format!(
            "{} --root {} {words}",
            env!("CARGO_BIN_EXE_ecluse"),
            root.path().display()
        );
        let output = Command::new("script")
            .args(["-qec", &command, "/dev/null"])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let table = typed("lookup a.example");
    assert!(
        table.contains("2026-01-01 00:00:01  200     text/plain"),
        "{table}"
    );
    assert!(table.contains("unchanged"), "{table}");
    let shown = typed("show a.example");
    assert!(
        shown.contains("in red") && !shown.contains('\u{1b}'),
        "{shown:?}"
    );
    let none = typed("lookup a.example/b");
    assert!(none.contains("no capture of a.example/b"), "{none}");
}

#[test]
fn a_lost_index_is_told_with_what_to_do() {
    let root = TempDir::new().unwrap();
    fs::create_dir_all(root.path().join("work/index/ready")).unwrap();
    let mut manifest = Manifest::open(&root.path().join("manifest.sqlite"), root.path()).unwrap();
    let file = NewFile {
        name: "a.warc",
        bytes: 1,
        sha256: "00",
        kind: "warc",
        job: None,
        harvest: None,
        collection: None,
        source: "a.warc",
        parcel: "a",
    };
    manifest.ingest(&file).unwrap();
    manifest.published(None, 1, &["a.warc".to_owned()]).unwrap();
    let must_be_told = |what: &str| {
        for verb in ["lookup", "show"] {
            let (code, _, said) = ask(verb, root.path(), &["http://example.org/"]);
            assert_eq!(code, 74, "{said}");
            assert!(said.contains(what), "{said}");
            assert!(said.contains("docs/formats/index-generation.md"), "{said}");
        }
    };
    must_be_told("there is no index in ");
    let (_, screen, said) = ask("status", root.path(), &[]);
    assert!(
        screen.contains("bigmerge: there is no index"),
        "{screen}{said}"
    );
    put(root.path(), "index", "", false);
    fs::remove_file(root.path().join("index/generations/1/index.cdxj")).unwrap();
    must_be_told("no index.cdxj");
}
