//! Days, and the index they end in.

use std::fs;

use ecluse_testkit::root::Root;

pub(crate) const BIGMERGE: &str = env!("CARGO_BIN_EXE_ecluse-bigmerge");

/// A root whose bigmerge sends to a stage nobody runs.
pub(crate) fn root(more: &str) -> Root {
    let root = Root::new();
    let spare = if more.contains("spare") {
        ""
    } else {
        "spare = \"0 B\""
    };
    let table = format!("[stage.bigmerge]\n{spare}\n{more}\n");
    root.settings(&["bigmerge", "sink"], &table);
    root
}

/// Runs bigmerge over what waits, and returns what it said.
pub(crate) fn run(root: &Root, expected: i32) -> String {
    let (code, said) = root.run(BIGMERGE, &["--once"]);
    assert_eq!(code, expected, "{said}");
    said
}

/// Puts a day.
pub(crate) fn put(root: &Root, name: &str, collection: Option<&str>, cdxj: &str) {
    let path = format!("{name}\t/repository/{name}\n");
    let files = format!("{name}\t00\n");
    root.put_with("bigmerge", name, "day", |parcel| {
        parcel.manifest().collection = collection.map(str::to_owned);
        for (suffix, text) in [("cdxj", cdxj), ("path", &path), ("files", &files)] {
            parcel.write(&format!("day.{suffix}"), text.as_bytes())?;
        }
        Ok(())
    });
}

/// Reads the flat index as a reader does.
pub(crate) fn index(root: &Root, shelf: &str) -> String {
    let directory = root.path().join(shelf);
    let current = directory.join("current");
    let directory = if current.exists() { current } else { directory };
    fs::read_to_string(directory.join("index.cdxj")).unwrap()
}

pub(crate) fn line(page: u32) -> String {
    format!("org,example)/{page:06} 20260101000000 {{\"offset\": \"{page}\"}}\n")
}

pub(crate) fn lines(pages: impl IntoIterator<Item = u32>) -> String {
    pages.into_iter().map(line).collect()
}
