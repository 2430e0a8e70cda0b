//! What the tests of preload share.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test uses its part, and stops where it fails"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use ecluse_testkit::root::Root;

pub(crate) const PRELOAD: &str = env!("CARGO_BIN_EXE_ecluse-preload");

/// A root whose preload sends to a stage nobody runs.
pub(crate) fn root(more: &str) -> Root {
    let root = Root::new();
    root.settings(
        &["preload", "sink"],
        &format!("[stage.preload]\nnext = [\"sink\"]\n{more}\n"),
    );
    root
}

/// The files of the only report, unpacked.
pub(crate) fn report_of(root: &Root) -> BTreeMap<String, String> {
    let mut runs = runs_of(root);
    assert_eq!(runs.len(), 1, "{runs:?}");
    report_in(&runs.pop_first().unwrap())
}

/// The directories of all reports.
pub(crate) fn runs_of(root: &Root) -> BTreeSet<PathBuf> {
    let runs = fs::read_dir(root.path().join("reports/preload")).unwrap();
    runs.map(|run| run.unwrap().path()).collect()
}

/// The files of a report, unpacked.
pub(crate) fn report_in(run: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(run).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let mut bytes = fs::read(entry.path()).unwrap();
        if name.ends_with(".zst") {
            bytes = zstd::decode_all(bytes.as_slice()).unwrap();
        }
        files.insert(name, String::from_utf8(bytes).unwrap());
    }
    files
}

/// All names given to the next stage, by what the list says of them.
pub(crate) fn names_of(root: &Root) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for parcel in root.list("sink", "ready") {
        let list =
            fs::read_to_string(root.part("sink", "ready").join(parcel).join("names.tsv")).unwrap();
        for line in list.lines() {
            let columns: Vec<&str> = line.split('\t').collect();
            names.insert(columns[1].to_owned(), columns[4..].join(" "));
        }
    }
    names
}
