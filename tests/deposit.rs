//! Packages made and handed over while the stages are killed again and again, to a repository in all its moods.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use ecluse_testkit::repository::{Mood, Repository};
use ecluse_testkit::root::settle_environment;
use serde_json::Value;

const ECLUSE: &str = env!("CARGO_BIN_EXE_ecluse");

const QUICK: &str = r#"
[defaults]
settle = "100ms"
min-free = "0 B"
attempts = 1000
retry = { first = "1s", max = "1s" }
[stage.bigmerge]
spare = "0 B"
[stage.transfer]
leave-free = "0 B"
[stage.backup]
targets = [{ name = "backup", kind = "directory", path = "backup", leave-free = "0 B" }]
"#;

/// The chain up to where packages begin.
const CHAIN: [&str; 9] = [
    "run", "--once", "ingest", "index", "transfer", "backup", "delete", "merge", "bigmerge",
];

struct Archive {
    dir: tempfile::TempDir,
}

fn record(uri: &str, block: &str) -> String {
    format!(
        "WARC/1.0\r\nWARC-Type: resource\r\nWARC-Target-URI: {uri}\r\nWARC-Date: 2026-01-02T03:04:05Z\r\n\
         WARC-Record-ID: <urn:uuid:1>\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{block}\r\n\r\n",
        block.len()
    )
}

impl Archive {
    /// An archive with a job of so many files, stored and in the index.
    fn new(files: usize, settings: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let settings = format!("{QUICK}{settings}");
        fs::write(dir.path().join("pipeline.toml"), settings).unwrap();
        let harvested = dir.path().join("harvested");
        fs::create_dir(&harvested).unwrap();
        let mut list = "[ARCHIVEFILE] [Opened] [Closed] [Size]\n".to_owned();
        for number in 0..files {
            let name = format!("17-4-20260102030405000-{number:05}-h.warc");
            let text = record(&format!("http://h{number}.example/"), &"page ".repeat(5000));
            fs::write(harvested.join(&name), &text).unwrap();
            let times = "2026-01-02T03:04:05.000Z 2026-01-02T03:05:05.000Z";
            list.push_str(&format!("{name} {times} {}\n", text.len()));
        }
        let uri = "metadata://a/crawl/reports/archivefiles-report.txt?harvestid=4&jobid=17";
        let text = record(uri, &list);
        fs::write(harvested.join("17-4-metadata-1.warc"), text).unwrap();
        let archive = Self { dir };
        archive.must(0, &CHAIN);
        archive
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(ECLUSE);
        settle_environment(&mut command);
        command.arg("--root").arg(self.dir.path()).args(words);
        command
    }

    fn ecluse(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    #[track_caller]
    fn must(&self, code: i32, words: &[&str]) -> String {
        let output = self.ecluse(words);
        let mut said = String::from_utf8(output.stdout).unwrap();
        said.push_str(&String::from_utf8(output.stderr).unwrap());
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        said
    }

    /// Runs the two stages until nothing waits any more.
    fn finish(&self) {
        for _ in 0..60 {
            let output = self.ecluse(&["run", "--once", "package", "deposit"]);
            match output.status.code() {
                Some(0) => return,
                Some(75) => std::thread::sleep(Duration::from_millis(300)),
                code => panic!("{code:?}: {}", String::from_utf8_lossy(&output.stderr)),
            }
        }
        panic!("it does not end");
    }
}

/// Every file below a directory, with its bytes.
fn tree(top: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    ecluse_testkit::root::contents(top)
}

/// Kill -9 two hundred times while packages are made and handed over. The repository answers late, twice, with errors or not at
/// all after it has taken the bytes.
#[test]
fn killed_and_ill_served_each_file_is_receipted_once_metadata_first() {
    let repository = Repository::open();
    let archive = Archive::new(
        14,
        &format!(
            "[stage.package]\npart-files = 6\n[stage.deposit]\nask-again = \"1s\"\nto = {}\n",
            repository.setting()
        ),
    );
    repository.dice(Some(0x2545_f491_4f6c_dd1d));
    let mut dice = 7_u64;
    let mut kills = 0;
    while kills < 200 {
        dice = dice * 1_103_515_245 % 2_147_483_647;
        let mut child = archive
            .command(&["run", "--once", "package", "deposit"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(20 + dice % 200));
        if child.try_wait().unwrap().is_none() {
            child.kill().unwrap();
            kills += 1;
        }
        child.wait().unwrap();
        if repository.files().len() > 30 && kills < 200 {
            // It goes faster than it is killed: all of it once more.
            repository.dice(None);
            forget(&archive, &repository);
            repository.dice(Some(0x2545_f491_4f6c_dd1d ^ dice));
        }
    }
    repository.dice(None);
    archive.finish();
    assert_eq!(repository.violations(), [""; 0]);
    let files = repository.files();
    let twice: Vec<_> = files.iter().filter(|(_, file)| file.taken != 1).collect();
    assert!(twice.is_empty(), "{twice:#?}");

    // What the manifest knows is what the repository gave, one identifier for each file.
    let told: Value =
        serde_json::from_str(&archive.must(0, &["deposits", "--files", "--json"])).unwrap();
    let told = told["files"].as_array().unwrap();
    assert_eq!(told.len(), files.len());
    for file in told {
        assert_eq!(file["state"], "receipted", "{file}");
        let sha256 = file["sha256"].as_str().unwrap();
        let name = file["file"].as_str().unwrap().rsplit('/').next().unwrap();
        let is_it = |(target, taken): &(&String, &ecluse_testkit::repository::TakenFile)| {
            taken.sha256 == sha256
                && target.contains(name)
                && taken.identifier == file["identifier"]
        };
        assert!(files.iter().any(|pair| is_it(&pair)), "{file}");
    }

    // The same archive undisturbed makes the same packages.
    let disturbed = tree(&archive.path("packages"));
    fs::remove_dir_all(archive.path("packages")).unwrap();
    fs::remove_dir_all(archive.path("work/package")).unwrap();
    let manifest = rusqlite::Connection::open(archive.path("manifest.sqlite")).unwrap();
    let forget = "DELETE FROM package; DELETE FROM package_file; DELETE FROM digest";
    manifest.execute_batch(forget).unwrap();
    drop(manifest);
    archive.must(0, &["run", "--once", "package"]);
    let undisturbed = tree(&archive.path("packages"));
    assert_eq!(
        disturbed.keys().collect::<Vec<_>>(),
        undisturbed.keys().collect::<Vec<_>>()
    );
    for (name, bytes) in &undisturbed {
        assert!(disturbed[name] == *bytes, "{}", name.display());
    }
}

/// Lets archive and repository begin again with nothing packed and nothing handed over.
fn forget(archive: &Archive, repository: &Repository) {
    archive.finish();
    assert_eq!(repository.violations(), [""; 0]);
    let files = repository.files();
    assert!(files.values().all(|file| file.taken == 1), "{files:#?}");
    for path in ["packages", "work/package", "work/deposit"] {
        fs::remove_dir_all(archive.path(path)).unwrap();
    }
    let manifest = rusqlite::Connection::open(archive.path("manifest.sqlite")).unwrap();
    let sql = "DELETE FROM package; DELETE FROM package_file; DELETE FROM deposit; DELETE FROM handed_over";
    manifest.execute_batch(sql).unwrap();
    repository.forget();
}

/// What an operator sees on the way: what waits and since when, what came of it, and a lost manifest with all of it.
#[test]
fn an_operator_sees_what_waits_and_what_was_handed_over() {
    let repository = Repository::open();
    let archive = Archive::new(
        2,
        &format!(
            "[stage.deposit]\nask-again = \"1s\"\nto = {}\n[stage.clean]\nremove = true\nrequires-deposit = true\nevery = \"1s\"\n",
            repository.setting()
        ),
    );
    archive.must(0, &["run", "--once", "clean"]);
    assert!(
        archive.path("harvested/17-4-metadata-1.warc").exists(),
        "no receipt yet"
    );
    repository.will(&[Mood::Good, Mood::Slow]);
    archive.must(75, &["run", "--once", "package", "deposit"]);
    let status = archive.must(0, &["status"]);
    assert!(
        status.contains("1 file that was sent waits for a receipt, the first since"),
        "{status}"
    );
    let told: Value = serde_json::from_str(&archive.must(0, &["status", "--json"])).unwrap();
    assert_eq!(told["holdings"]["awaited"]["files"], 1, "{told}");
    archive.finish();
    let told = archive.must(0, &["deposits"]);
    assert!(
        told.contains("1 package handed over whole, 0 not yet"),
        "{told}"
    );
    assert!(told.contains("4 (ecluse): 1 package, "), "{told}");
    let table = archive.must(0, &["deposits", "--format", "csv"]);
    let mut lines = table.lines();
    let heading = lines.next().unwrap();
    assert!(
        heading.contains("harvest") && heading.contains("median_seconds"),
        "{table}"
    );
    assert_eq!(lines.count(), 1, "{table}");
    let files = archive.must(0, &["deposits", "--files", "--format", "csv"]);
    assert!(files.contains("ark:/12148/bpt0"), "{files}");
    let told: Value = serde_json::from_str(&archive.must(0, &["deposits", "--json"])).unwrap();
    let sums = &told["harvests"][0];
    assert_eq!(sums["receipted"], sums["files"], "{told}");

    // What was handed over stands in a document that the schema of PREMIS accepts.
    let premis = archive.path("receipts/17-4.premis.xml");
    assert!(premis.is_file());
    if let Some(schema) = ecluse_peers::preserve("schemas/local/premis.xsd") {
        let script = "import sys\nfrom lxml import etree\nschema = etree.XMLSchema(etree.parse(sys.argv[1]))\n\
                      schema.assertValid(etree.parse(sys.argv[2]))";
        let mut python = Command::new(ecluse_peers::python());
        let output = python
            .args(["-c", script])
            .arg(schema)
            .arg(&premis)
            .output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }

    // With receipts, the harvested files may go.
    ecluse_testkit::root::until_so("clean removes what has a receipt", || {
        archive.must(0, &["run", "--once", "clean"]);
        !archive.path("harvested/17-4-metadata-1.warc").exists()
    });

    // A manifest made anew knows what was handed over, and nothing is sent again.
    let rows = |name: &str| -> Vec<String> {
        let manifest = rusqlite::Connection::open(archive.path(name)).unwrap();
        let sql = "SELECT job || harvest || file || sha256 || state || identifier || receipt || tries || sent FROM deposit \
                   UNION SELECT package || sha512 FROM handed_over ORDER BY 1";
        let mut statement = manifest.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    };
    let before = repository.log().len();
    fs::rename(archive.path("manifest.sqlite"), archive.path("lost.sqlite")).unwrap();
    archive.must(0, &["rebuild", "manifest", "--why", "a test"]);
    assert_eq!(rows("manifest.sqlite"), rows("lost.sqlite"));
    archive.must(0, &["run", "--once", "package", "deposit"]);
    assert_eq!(repository.log().len(), before);

    // `check` asks the repository, and says when it is away.
    let well = archive.ecluse(&["check"]);
    assert!(
        !String::from_utf8_lossy(&well.stdout).contains("stage.deposit.to"),
        "{well:?}"
    );
    repository.will(&[Mood::Status(403, "who are you")]);
    let told = String::from_utf8(archive.ecluse(&["check"]).stdout).unwrap();
    assert!(
        told.contains("'stage.deposit.to'") && told.contains("who are you"),
        "{told}"
    );
}
