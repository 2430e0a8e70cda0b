//! `ecluse lookup`, on indexes made by hand.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use ecluse_cdx::{Source, zipnum};
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
        let source = Source::new("lines", std::io::Cursor::new(lines.as_bytes().to_vec()));
        zipnum::write(source, &generation, "index", &zipnum::Options::default()).unwrap();
    } else {
        fs::write(generation.join("index.cdxj"), lines).unwrap();
    }
    symlink("generations/1", root.join(shelf).join("current")).unwrap();
}

fn lookup(root: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ecluse"))
        .env_remove("ECLUSE_CONFIG")
        .arg("--root")
        .arg(root)
        .arg("lookup")
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
