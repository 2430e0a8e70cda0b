//! Compares keys with those of the Python package `surt` itself, on URLs that `python_oracle.py` generates.
//!
//! Python must be 3.11 or newer: older ones read ports more loosely; see `docs/formats/surt.md`. The package is installed
//! when it is not there.
//! `ECLUSE_SURT_URLS` and `ECLUSE_SURT_SEED` choose how many and which; `ECLUSE_SURT_DNS` lets the package ask DNS
//! for names of digits, as it would by itself.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail by panicking, as tests do"
)]

use std::env;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const ORACLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python_oracle.py");
const SHARED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/corpus");

/// URLs whose keys may differ, each with its reason in `docs/formats/surt.md`. There are none.
const DOCUMENTED: [&[u8]; 0] = [];

#[test]
fn keys_equal_those_of_the_python_package() {
    let python = python_with_surt();
    let number = |name: &str, default: u64| {
        env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let count = number("ECLUSE_SURT_URLS", 20_000);
    let seed = number("ECLUSE_SURT_SEED", 1);
    let mut oracle = Command::new(python);
    oracle
        .arg(ORACLE)
        .args(["--count", &count.to_string(), "--seed", &seed.to_string()]);
    if env::var_os("ECLUSE_SURT_DNS").is_some() {
        oracle.arg("--dns");
    }
    let corpus = json_files(Path::new(SHARED));
    if corpus.is_empty() {
        println!("generated URLs only: no shared corpus here");
    }
    for file in corpus {
        oracle.arg("--json").arg(file);
    }
    let mut child = oracle.stdout(Stdio::piped()).spawn().unwrap();
    let mut tally = Tally::default();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        tally.compare(&line.unwrap());
    }
    assert!(child.wait().unwrap().success(), "the oracle failed");
    println!("seed {seed}: {tally:?}");
    assert!(tally.compared >= count);
    assert_eq!(tally.differences, 0);
}

#[derive(Debug, Default)]
struct Tally {
    compared: u64,
    without_key: u64,
    documented: u64,
    differences: u64,
}

impl Tally {
    fn compare(&mut self, line: &str) {
        let (url, theirs) = line.split_once('\t').expect("a URL and a key");
        let url = from_hex(url);
        let theirs = (theirs != "!").then(|| from_hex(theirs));
        let mut key = Vec::new();
        let ours = ecluse_surt::surt(&url, &mut key).is_ok().then_some(key);
        self.compared += 1;
        self.without_key += u64::from(theirs.is_none());
        if ours == theirs {
            return;
        }
        if DOCUMENTED.contains(&&url[..]) {
            self.documented += 1;
            return;
        }
        self.differences += 1;
        if self.differences <= 20 {
            let show = |key: Option<Vec<u8>>| {
                key.map_or("none".to_owned(), |key| key.escape_ascii().to_string())
            };
            println!(
                "{}\n  ours   {}\n  theirs {}",
                url.escape_ascii(),
                show(ours),
                show(theirs)
            );
        }
    }
}

fn python_with_surt() -> PathBuf {
    let python = ecluse_peers::python();
    let script = "import sys, surt, importlib.metadata as m; print(sys.version_info >= (3, 11) and m.version('surt'))";
    let output = Command::new(&python)
        .args(["-W", "ignore", "-c", script])
        .output()
        .unwrap();
    assert_eq!(
        output.stdout.trim_ascii(),
        b"0.3.1",
        "{} is not Python 3.11 or newer with surt 0.3.1",
        python.display()
    );
    python
}

fn json_files(corpus: &Path) -> Vec<PathBuf> {
    let folders = ["internetarchive+surt", "iipc+urlcanon/testdata"];
    let entries = folders
        .into_iter()
        .filter_map(|folder| corpus.join(folder).read_dir().ok())
        .flatten();
    let files = entries.map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files
        .filter(|path| {
            path.extension()
                .is_some_and(|e| e == "json" || e == "jsonl")
        })
        .collect();
    files.sort();
    files
}

fn from_hex(text: &str) -> Vec<u8> {
    let pairs = text
        .as_bytes()
        .chunks(2)
        .map(|pair| str::from_utf8(pair).unwrap());
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).unwrap())
        .collect()
}
