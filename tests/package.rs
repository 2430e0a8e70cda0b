//! Packages of the whole chain, as the validators of others see them, and killed while they are made.
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

use ecluse_testkit::root::settle_environment;
use serde_json::Value;

const ECLUSE: &str = env!("CARGO_BIN_EXE_ecluse");

const QUICK: &str = r#"
[defaults]
settle = "100ms"
min-free = "0 B"
attempts = 1000
[stage.bigmerge]
spare = "0 B"
[stage.transfer]
leave-free = "0 B"
[stage.backup]
targets = [{ name = "backup", kind = "directory", path = "backup", leave-free = "0 B" }]
"#;

/// Asks bagit-python, eark-validator and the schemas; prints what they say as JSON. The validator fetches four vocabularies
/// from the web when it is loaded: it gets those it has with it. Its exit code says nothing.
const JUDGES: &str = r#"
import contextlib, importlib.util, io, json, os, pathlib, sys, urllib.request
package = pathlib.Path(sys.argv[1])
said = {}
import bagit
try:
    bagit.Bag(str(package)).validate()
    said["bagit"] = "valid"
except bagit.BagError as error:
    said["bagit"] = str(error)
resources = pathlib.Path(importlib.util.find_spec("eark_validator").origin).parent / "ipxml/resources"
urllib.request.urlopen = lambda url, *a, **k: open(resources / "vocabs" / url.rsplit("/", 1)[1], "rb")
from eark_validator.cli.app import main
out = io.StringIO()
sys.argv = ["eark-validator", str(package / "data")]
with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
    main()
report = json.loads(next(line for line in out.getvalue().splitlines() if line.startswith("{")))
said["structure"] = report["structure"]["status"]
said["schema"] = report["metadata"]["schema_results"]["status"]
said["schematron"] = report["metadata"]["schematron_results"]["status"]
said["messages"] = [m for part in report["metadata"].values() for m in part["messages"]]
from lxml import etree
schemas = {"METS.xml": resources / "schema/mets.csip.local.v2-0.xsd"}
if os.environ.get("ECLUSE_PREMIS_XSD"):
    schemas["premis.xml"] = os.environ["ECLUSE_PREMIS_XSD"]
said["xml"] = {}
for path in sorted(package.glob("data/**/*.xml")):
    document = etree.parse(str(path))
    name = str(path.relative_to(package))
    said["xml"][name] = "well-formed"
    if path.name in schemas:
        schema = etree.XMLSchema(etree.parse(str(schemas[path.name])))
        said["xml"][name] = "valid" if schema.validate(document) else str(schema.error_log)
own = etree.XMLSchema(etree.parse(str(package / "data/schemas/harvestDefinition.xsd")))
definition = etree.parse(str(package / "data/metadata/other/harvestDefinition.xml"))
said["definition"] = "valid" if own.validate(definition) else str(own.error_log)
print(json.dumps(said))
"#;

struct Archive {
    dir: tempfile::TempDir,
}

fn record(kind: &str, uri: &str, content_type: &str, block: &str) -> Vec<u8> {
    let text = format!(
        "WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {uri}\r\nWARC-Date: 2026-01-02T03:04:05Z\r\n\
         WARC-Record-ID: <urn:uuid:1>\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n{block}\r\n\r\n",
        block.len()
    );
    let mut compressor = libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
    let mut packed = vec![0; compressor.gzip_compress_bound(text.len())];
    let bytes = compressor
        .gzip_compress(text.as_bytes(), &mut packed)
        .unwrap();
    packed.truncate(bytes);
    packed
}

impl Archive {
    /// An archive into which a job with so many files has come.
    fn new(files: usize, settings: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(
            dir.path().join("pipeline.toml"),
            format!("{QUICK}{settings}"),
        )
        .unwrap();
        fs::create_dir(dir.path().join("harvested")).unwrap();
        let harvested = |name: &str, bytes: &[u8]| {
            fs::write(dir.path().join("harvested").join(name), bytes).unwrap();
        };
        let mut list = "[ARCHIVEFILE] [Opened] [Closed] [Size]\n".to_owned();
        for number in 0..files {
            let name = format!("17-4-20260102030405000-{number:05}-h@x,y=z:1.warc.gz");
            let page = "HTTP/1.1 200 OK\r\nContent-Type: text/html; x=\"<&>\"\r\n\r\n<p>page</p>";
            let http = "application/http; msgtype=response";
            let mut bytes = record(
                "response",
                &format!("http://h{number}.example/"),
                http,
                page,
            );
            if number == 1 {
                // A damaged place is told in the package and is no reason to leave the file out.
                bytes.extend(b"no record");
            }
            harvested(&name, &bytes);
            let times = "2026-01-02T03:04:05.000Z 2026-01-02T03:05:05.000Z";
            list.push_str(&format!("{name} {times} {}\n", bytes.len()));
        }
        let uri = "metadata://a/crawl/reports/archivefiles-report.txt?harvestid=4&jobid=17";
        let bytes = record("resource", uri, "text/plain", &list);
        harvested("17-4-metadata-1.warc.gz", &bytes);
        Self { dir }
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

    fn run(&self, words: &[&str]) {
        let output = self.ecluse(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {said}");
    }
}

/// Every file below a directory, with its bytes.
fn tree(top: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut stack = vec![top.to_owned()];
    while let Some(directory) = stack.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                stack.push(entry.path());
            } else {
                let name = entry
                    .path()
                    .strip_prefix(top)
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned();
                found.insert(name, fs::read(entry.path()).unwrap());
            }
        }
    }
    found
}

#[track_caller]
fn must_be_accepted(package: &Path) {
    let output = Command::new(ecluse_peers::python())
        .args(["-c", JUDGES])
        .arg(package)
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    let said = String::from_utf8(output.stdout).unwrap();
    let said: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    for (judge, word) in [
        ("bagit", "valid"),
        ("structure", "WellFormed"),
        ("schema", "VALID"),
        ("schematron", "VALID"),
        ("definition", "valid"),
    ] {
        assert_eq!(said[judge], word, "{judge}: {said:#}");
    }
    let documents = said["xml"].as_object().unwrap();
    assert_eq!(documents.len(), 6, "{said:#}");
    for (name, word) in documents {
        let is_good = word == "valid" || (word == "well-formed" && !name.ends_with("METS.xml"));
        assert!(is_good, "{name}: {word}");
    }
    let sums = Command::new("sha512sum")
        .args(["--check", "--quiet", "manifest-sha512.txt"])
        .current_dir(package)
        .output()
        .unwrap();
    assert!(sums.status.success(), "{sums:?}");
}

#[test]
fn the_package_of_a_job_is_accepted_by_everybody() {
    let archive = Archive::new(3, "");
    archive.run(&["run", "--once"]);
    let package = archive.path("packages/17-4");
    must_be_accepted(&package);
    archive.run(&["validate", package.to_str().unwrap()]);

    // What was done to the files is told, once for all of them.
    let premis = package.join("data/representations/harvest/metadata/preservation/premis.xml");
    let premis = fs::read_to_string(premis).unwrap();
    for (event, times) in [
        (">capture<", 1),
        (">message digest calculation<", 1),
        ("SHA-256, SHA-512", 1),
        // The damaged one has its own.
        (">validation<", 2),
        (">transfer<", 1),
        (">replication<", 1),
        (">deletion<", 1),
        (">information package creation<", 1),
    ] {
        assert_eq!(premis.matches(event).count(), times, "{event}: {premis}");
    }
    assert!(
        premis.contains("1 places cannot be read: record 2 at offset"),
        "{premis}"
    );
    assert!(
        premis.contains("<c:responseRecords number=\"1\"/>"),
        "{premis}"
    );
    assert!(premis.contains(">200</c:response>"), "{premis}");
}

#[test]
fn parts_are_packages_too() {
    let archive = Archive::new(3, "[stage.package]\npart-files = 2\n");
    archive.run(&["run", "--once"]);
    for part in ["packages/17-4.1", "packages/17-4.2"] {
        must_be_accepted(&archive.path(part));
    }
}

/// A job of another archive, without a list, is complete when a person says so; the package says who.
#[test]
fn a_job_closed_by_hand_is_packed() {
    let archive = Archive::new(2, "");
    fs::remove_file(archive.path("harvested/17-4-metadata-1.warc.gz")).unwrap();
    let foreign = record("resource", "metadata://a/x", "text/plain", "no list");
    fs::write(archive.path("harvested/17-4-metadata-1.warc.gz"), foreign).unwrap();
    let output = archive.ecluse(&["run", "--once"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(65), "{said}");
    assert!(!archive.path("packages/17-4").exists());

    let close = |words: &[&str]| archive.ecluse(&[&["job", "close"], words].concat());
    assert_eq!(close(&["17"]).status.code(), Some(64), "without a reason");
    assert_eq!(
        close(&["18", "--why", "x"]).status.code(),
        Some(64),
        "no such job"
    );
    let why = "counted by hand: <all> & \u{1}nothing else";
    archive.run(&["job", "close", "17-4", "--why", why, "--dry-run"]);
    archive.run(&["job", "close", "17-4", "--why", why]);
    archive.run(&["run", "--once", "package"]);
    let package = archive.path("packages/17-4");
    must_be_accepted(&package);
    let definition = fs::read_to_string(package.join("data/metadata/other/harvestDefinition.xml"));
    assert!(
        definition
            .unwrap()
            .contains("counted by hand: &lt;all&gt; &amp; ")
    );
    assert_eq!(
        close(&["17", "--why", "x"]).status.code(),
        Some(64),
        "it has a package"
    );
    let status = String::from_utf8(archive.ecluse(&["status"]).stdout).unwrap();
    assert!(status.contains("Nothing needs you"), "{status}");

    // A lost manifest comes back with the package.
    fs::rename(archive.path("manifest.sqlite"), archive.path("lost.sqlite")).unwrap();
    archive.run(&["rebuild", "manifest", "--why", "a test"]);
    let rows = |name: &str| -> Vec<String> {
        let manifest = rusqlite::Connection::open(archive.path(name)).unwrap();
        let sql = "SELECT job || harvest || part || parts || ark || package || files || bytes || sha512 FROM package \
                   UNION SELECT file || sha256 || sha512 FROM digest ORDER BY 1";
        let mut statement = manifest.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    };
    assert_eq!(rows("manifest.sqlite"), rows("lost.sqlite"));
    assert_eq!(rows("manifest.sqlite").len(), 4);
}

/// Killed again and again while it packs, it makes the package that it makes undisturbed.
#[test]
fn a_killed_stage_makes_the_same_package() {
    let archive = Archive::new(60, "[stage.package]\npart-files = 25\n");
    let chain = [
        "ingest", "index", "transfer", "backup", "delete", "merge", "bigmerge",
    ];
    let words: Vec<&str> = ["run", "--once"].into_iter().chain(chain).collect();
    archive.run(&words);
    // A number between 1 and 160 that follows from the one before: the same at every run.
    let mut dice = 7_u64;
    let mut is_there = 0;
    for _ in 0..60 {
        dice = dice * 1103515245 % 2147483647;
        let mut command = archive.command(&["run", "--once", "package"]);
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(20 + dice % 160));
        child.kill().unwrap();
        child.wait().unwrap();
        let names = tree(&archive.path("packages"));
        is_there += usize::from(names.keys().any(|name| !name.starts_with('.')));
        // A package that has its name is whole.
        for number in 1..=3 {
            let package = archive.path(&format!("packages/17-4.{number}"));
            if package.exists() {
                archive.run(&["validate", package.to_str().unwrap()]);
            }
        }
        if is_there > 3 {
            break;
        }
    }
    archive.run(&["run", "--once", "package"]);
    let disturbed = tree(&archive.path("packages"));
    assert!(
        disturbed.keys().all(|name| name.starts_with("17-4.")),
        "no rubbish"
    );

    // The same archive, with nothing of the stage.
    fs::remove_dir_all(archive.path("packages")).unwrap();
    fs::remove_dir_all(archive.path("work/package")).unwrap();
    let manifest = rusqlite::Connection::open(archive.path("manifest.sqlite")).unwrap();
    manifest
        .execute_batch("DELETE FROM package; DELETE FROM digest")
        .unwrap();
    drop(manifest);
    archive.run(&["run", "--once", "package"]);
    let undisturbed = tree(&archive.path("packages"));
    assert_eq!(
        disturbed.keys().collect::<Vec<_>>(),
        undisturbed.keys().collect::<Vec<_>>()
    );
    for (name, bytes) in &undisturbed {
        assert!(disturbed[name] == *bytes, "{name}");
    }
    assert_eq!(
        undisturbed
            .keys()
            .filter(|name| name.ends_with("bagit.txt"))
            .count(),
        3
    );
}
