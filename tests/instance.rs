//! A batch stage that runs once for each machine: its receipts are read like any other's.

use std::process::Command;

use ecluse_testkit::root::Root;

#[test]
fn the_receipts_of_one_machines_merge_can_be_read() {
    let root = Root::new();
    let settings = "[stage.index]\nnext = [\"merge@alpha\"]\n\
                    [stage.merge]\nbatch = { parcels = 100, wait = \"50ms\" }\n";
    root.settings(&["index", "merge", "sink"], settings);
    for name in ["a.warc.gz", "b.warc.gz"] {
        let line = "org,example)/ 20260101000000 {\"url\": \"https://example.org/\"}\n";
        let path = format!("{name}\t/repository/{name}\n");
        let files = [
            (format!("{name}.cdxj"), line),
            (format!("{name}.path"), path.as_str()),
        ];
        let files: Vec<(&str, &[u8])> = files
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_bytes()))
            .collect();
        root.put_files("merge@alpha", name, &files);
    }
    ecluse(&root, &["stage", "merge", "--instance", "alpha", "--once"]);
    assert_eq!(root.list("merge@alpha", "ready"), [""; 0]);
    let days = root.list("sink", "ready");
    let [day] = days.as_slice() else {
        panic!("one day, not {days:?}");
    };
    let day = day.trim_end_matches("~0");
    for what in ["a.warc.gz", "b.warc.gz", day] {
        let life = ecluse(&root, &["why", what]);
        assert!(life.contains("merge@alpha"), "{what}: {life}");
        assert!(life.contains(day), "{what}: {life}");
    }
}

/// Runs the program, which must end well, and returns what it printed.
fn ecluse(root: &Root, words: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_ecluse"))
        .env("ECLUSE_ROOT", root.path())
        .args(words)
        .output()
        .expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
