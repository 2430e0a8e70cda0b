//! Line for line what cdxj-indexer 1.5 writes, on files made here and on real ones.
//!
//! The peer is installed when it is not there. Where it succeeds and is wrong, `docs/formats/cdxj.md` has
//! the file and the reason; the table there is the list this test goes by.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{assorted, gzip, members, record, response, run_with};

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/corpus");
const FORMAT: &str = include_str!("../../../docs/formats/cdxj.md");
const SCRIPT: &str = include_str!("peer.py");

/// What the peer makes of a file.
#[derive(serde::Deserialize)]
struct Answer {
    failure: Option<String>,
    lines: String,
}

/// Asks the peer about files.
fn ask(paths: &[PathBuf]) -> Vec<Answer> {
    let mut child = Command::new(ecluse_peers::python())
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let question = serde_json::to_vec(paths).unwrap();
    child.stdin.take().unwrap().write_all(&question).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "the peer cannot be run");
    let text = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<Answer> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(answers.len(), paths.len());
    answers
}

fn sorted(lines: &str) -> BTreeSet<&str> {
    lines.lines().collect()
}

/// Runs the filter and returns its code and its lines.
fn ours(path: &Path) -> (i32, String) {
    // The only setting of ours that is not the peer's.
    let output = run_with("not-modified = true", &[path]);
    let code = output.status.code().unwrap();
    assert!([0, 65].contains(&code), "{}: {code}", path.display());
    // Damage is named, and nothing else is complained of.
    assert_eq!(code == 65, !output.stderr.is_empty(), "{}", path.display());
    (code, String::from_utf8(output.stdout).unwrap())
}

fn arc() -> Vec<u8> {
    let version = "1 0 InternetArchive\nURL IP-address Archive-date Content-type Archive-length\n";
    let mut file = format!(
        "filedesc://a.arc 0.0.0.0 20010203040506 text/plain {}\n{version}\n",
        version.len()
    )
    .into_bytes();
    for (uri, block) in [
        (
            "http://a.example/1",
            "HTTP/1.0 200 OK\nContent-Type: text/html\n\nfirst",
        ),
        (
            "http://a.example/2 3",
            "HTTP/1.0 302\r\nLocation: x\r\n\r\n",
        ),
        (
            "dns:a.example",
            "20010203040506\na.example. 1 IN A 192.0.2.1\n",
        ),
    ] {
        let head = format!("{uri} 192.0.2.1 20010203040506 text/html {}\n", block.len());
        file.extend_from_slice(head.as_bytes());
        file.extend_from_slice(block.as_bytes());
        file.push(b'\n');
    }
    file
}

fn self_made() -> Vec<(&'static str, Vec<u8>)> {
    let mut cut = members(&[response(1), response(2)]);
    cut.truncate(cut.len() - 30);
    let plain: Vec<u8> = assorted().concat();
    let odd_uris = [
        "http://www.example.org:80/a/../b/?B=2&a=1;jsessionid=0123456789abcdef0123456789abcdef",
        "HTTP://EXAMPLE.ORG/caf\u{e9}?\u{1f600}",
        "http://user:word@example.org/%7Ex",
        "ftp://example.org/a b",
        "screenshot:http://example.org/",
        "http://[2001:db8::1]:8080/",
        "http://192.0.2.1/",
        "whois://whois.example.org/example",
    ];
    let odd_uris: Vec<Vec<u8>> = odd_uris
        .iter()
        .map(|uri| {
            record(
                "response",
                &[("WARC-Target-URI", uri)],
                b"HTTP/1.1 200 OK\r\n\r\nx",
            )
        })
        .collect();
    let odd_heads: Vec<Vec<u8>> = [
        &b"HTTP/1.1 200\r\nContent-Type:text/html\r\n\r\nx"[..],
        b"HTTP/1.1  200  OK\r\ncontent-type:  a/b ; c\r\n\r\nx",
        b"HTTP/1.1 200 OK\nContent-Type: a/b\n c/d\n\nx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: \xe9\xff\r\nContent-Type: \xe9\r\n\r\nx",
        b"\r\n\r\nx",
        b"HTTP/1.1\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nno colon here\r\nContent-Type: t\r\n\r\n",
    ]
    .iter()
    .map(|block| {
        record(
            "response",
            &[("WARC-Target-URI", "http://a.example/")],
            block,
        )
    })
    .collect();
    vec![
        ("assorted.warc.gz", members(&assorted())),
        ("assorted.warc", plain),
        ("cut.warc.gz", cut),
        ("uris.warc.gz", members(&odd_uris)),
        ("heads.warc.gz", members(&odd_heads)),
        (
            "same.warc.gz",
            [gzip(&response(1)), gzip(&response(1))].concat(),
        ),
        ("plain.arc", arc()),
    ]
}

#[test]
fn files_made_here_have_the_same_lines() {
    let directory = tempfile::tempdir().unwrap();
    let mut paths = Vec::new();
    for (name, bytes) in self_made() {
        paths.push(directory.path().join(name));
        std::fs::write(paths.last().unwrap(), bytes).unwrap();
    }
    for path in &paths {
        let (_, lines) = ours(path);
        assert!(!lines.is_empty(), "{}", path.display());
    }
    for (path, answer) in paths.iter().zip(ask(&paths)) {
        assert_eq!(answer.failure, None, "{}", path.display());
        let (_, lines) = ours(path);
        assert_eq!(sorted(&lines), sorted(&answer.lines), "{}", path.display());
    }
}

/// Returns the (W)ARC files of the corpus, by their names.
fn archives() -> Vec<String> {
    let Ok(manifest) = std::fs::read_to_string(Path::new(CORPUS).join("MANIFEST.tsv")) else {
        println!("no corpus at {CORPUS}: nothing compared");
        return Vec::new();
    };
    let is_archive = |name: &&str| {
        let name = name.to_ascii_lowercase();
        let ends = [".warc", ".arc", ".gz", ".open", ".bad"];
        ends.iter().any(|end| name.ends_with(end)) && !name.contains(".cdx")
    };
    let names = manifest.lines().skip(1);
    let names = names.filter_map(|line| line.split('\t').next());
    let names = names.filter(is_archive).map(str::to_owned);
    names
        .filter(|name| Path::new(CORPUS).join(name).is_file())
        .collect()
}

/// Returns the files that the table of the format's page lists.
fn listed() -> BTreeSet<&'static str> {
    let table = FORMAT.split("### Files where the peer is wrong").nth(1);
    let table = table.unwrap().split("\n#").next().unwrap();
    let files = table.lines().filter_map(|line| line.strip_prefix("| `"));
    files
        .filter_map(|line| line.split_once('`').map(|(file, _)| file))
        .collect()
}

#[test]
fn real_files_have_the_same_lines_but_for_those_listed() {
    let names = archives();
    let paths: Vec<PathBuf> = names
        .iter()
        .map(|name| Path::new(CORPUS).join(name))
        .collect();
    let answers = ask(&paths);
    let (mut same, mut given_up, mut rescued) = (0, 0, 0);
    let mut differ = BTreeSet::new();
    for ((name, path), answer) in names.iter().zip(&paths).zip(&answers) {
        let (_, lines) = ours(path);
        if answer.failure.is_some() {
            given_up += 1;
            rescued += usize::from(!lines.is_empty());
        } else if sorted(&lines) == sorted(&answer.lines) {
            same += 1;
        } else {
            differ.insert(name.as_str());
        }
    }
    println!(
        "{same} files the same, {} differ, {given_up} where the peer gives up, {rescued} of these with lines here",
        differ.len()
    );
    if !names.is_empty() {
        assert_eq!(
            differ,
            listed(),
            "found, and listed in docs/formats/cdxj.md"
        );
    }
}
