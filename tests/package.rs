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
premis = sys.argv[2:]
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
if premis:
    schemas["premis.xml"] = premis[0]
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
            if number == 2 {
                // Servers call many things plain text.
                let page = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nGIF89a....";
                bytes.extend(record("response", "http://h.example/a.gif", http, page));
            }
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

    /// The identifiers and names of the packages.
    fn packages(&self) -> Vec<(String, String)> {
        let manifest = rusqlite::Connection::open(self.path("manifest.sqlite")).unwrap();
        let mut statement = manifest
            .prepare("SELECT ark, package FROM package")
            .unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
        rows.unwrap().map(Result::unwrap).collect()
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
    let premis = ecluse_peers::preserve("schemas/local/premis.xsd");
    let output = Command::new(ecluse_peers::python())
        .args(["-c", JUDGES])
        .arg(package)
        .args(&premis)
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
        let has_schema =
            name.ends_with("METS.xml") || (name.ends_with("premis.xml") && premis.is_some());
        let wanted = if has_schema { "valid" } else { "well-formed" };
        assert_eq!(word, wanted, "{name}");
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
    let found = "<c:format name=\"image/gif\" number=\"1\"/>";
    assert!(premis.contains(found), "{premis}");

    // What it is said to be, and what it is.
    let statistics = fs::read_to_string(package.join("data/documentation/statistics.txt"));
    let statistics = statistics.unwrap();
    for line in [
        "100.0 % of text/html are text/html (fmt/96): 3",
        "50.0 % of text/plain are image/gif (fmt/4): 1",
    ] {
        assert!(statistics.contains(line), "{statistics}");
    }
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
    archive.run(&["job", "close", "17-4", "--dry-run"]);
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

/// What is stored under a name, as the file that it is and not as its bytes.
fn inode(path: &Path) -> u64 {
    std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap())
}

/// A package is linked to the stored files: what happens to these happens to it, and must be put right in both. What happens
/// to it alone is found and told, and a package that is lost is made again with the same bytes.
#[test]
fn a_bad_or_lost_package_is_found_told_and_put_right() {
    let archive = Archive::new(3, "");
    archive.run(&["run", "--once"]);
    archive.run(&["verify"]);
    let whole = tree(&archive.path("packages/17-4"));
    let said = |words: &[&str], code: i32| {
        let output = archive.ecluse(words);
        let mut said = String::from_utf8(output.stdout).unwrap();
        said.push_str(&String::from_utf8(output.stderr).unwrap());
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        said
    };
    let must_be_well = || {
        archive.run(&["run", "--once", "package"]);
        archive.run(&["verify"]);
        archive.run(&["validate", archive.path("packages/17-4").to_str().unwrap()]);
        assert!(said(&["status"], 0).contains("Nothing needs you"));
        assert!(
            tree(&archive.path("packages/17-4")) == whole,
            "the same bytes"
        );
    };

    // The bytes of the one file that both are.
    let name = "17-4-20260102030405000-00000-h@x,y=z:1.warc.gz";
    let stored = archive.path("repository").join(name);
    let packed = archive.path("packages/17-4/data/representations/harvest/data");
    let packed = packed.join(name);
    assert_eq!(inode(&stored), inode(&packed));
    let mut bytes = fs::read(&stored).unwrap();
    bytes[20] ^= 1;
    fs::write(&stored, &bytes).unwrap();
    assert!(said(&["verify"], 65).contains("BAD"));
    let told = said(&["repair", name, "--why", "rot"], 0);
    assert!(told.contains("package 17-4 is right again"), "{told}");
    assert_eq!(inode(&stored), inode(&packed));
    must_be_well();

    // It is lost.
    fs::rename(
        archive.path("packages/17-4"),
        archive.path("packages/taken-away"),
    )
    .unwrap();
    let told = said(&["status"], 0);
    assert!(
        told.contains("package 17-4: it is not there any more"),
        "{told}"
    );
    assert!(told.contains("repair 17-4"), "{told}");
    let told = said(&["check"], 2);
    assert!(
        told.contains("critical: package 17-4: it is not there"),
        "{told}"
    );
    assert!(said(&["verify"], 65).contains("package 17-4: BAD"));
    assert!(said(&["job", "close", "17", "--why", "x"], 64).contains("repair 17-4"));
    said(&["repair", "17-4", "--dry-run"], 0);
    let told = said(
        &["repair", "packages/17-4/", "--why", "a disk was lost"],
        75,
    );
    assert!(told.contains("is made again"), "{told}");
    // It is not there yet: nothing is removed before it is, and was read.
    assert!(told.contains("delete and clean stay frozen"), "{told}");
    assert!(told.contains("run --once package`, then `"), "{told}");
    assert!(!archive.path("packages/17-4").exists());
    assert!(said(&["repair", "17-4"], 75).contains("already"));
    assert!(said(&["repair", "--all"], 75).contains("stay frozen"));
    archive.run(&["run", "--once", "package"]);
    assert!(said(&["status"], 0).contains("nothing is removed since"));
    let told = said(&["repair", "17-4"], 0);
    assert!(told.contains("delete and clean go on"), "{told}");
    must_be_well();

    // One of its documents is not what it was.
    let mets = archive.path("packages/17-4/data/METS.xml");
    fs::write(&mets, "<mets/>").unwrap();
    let told = said(&["verify"], 65);
    assert!(
        told.contains("package 17-4: BAD: ") && told.contains("METS.xml"),
        "{told}"
    );
    assert!(said(&["status"], 0).contains("nothing is removed since"));
    said(&["repair", "--all"], 75);
    archive.run(&["run", "--once", "package"]);
    said(&["repair", "--all"], 0);
    must_be_well();

    // A file of it is gone.
    fs::remove_file(&packed).unwrap();
    assert!(said(&["verify"], 65).contains("00000-h@x"));
    said(&["repair", "--all"], 0);
    assert_eq!(inode(&stored), inode(&packed));
    must_be_well();
}

/// What comes after its job was packed is in no package until somebody vouches for it: a list, or a person.
#[test]
fn files_that_come_late_become_a_supplement() {
    let archive = Archive::new(2, "");
    archive.run(&["run", "--once"]);
    let before = tree(&archive.path("packages/17-4"));
    let late = |number: usize| {
        let page = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\nlate";
        let http = "application/http; msgtype=response";
        let bytes = record(
            "response",
            &format!("http://late{number}.example/"),
            http,
            page,
        );
        let name = format!("17-4-20260102030405000-0090{number}-h.warc.gz");
        fs::write(archive.path("harvested").join(&name), &bytes).unwrap();
        (name, bytes.len())
    };
    let (first, _) = late(1);
    let output = archive.ecluse(&["run", "--once"]);
    assert_eq!(output.status.code(), Some(65), "{output:?}");
    let status = String::from_utf8(archive.ecluse(&["status"]).stdout).unwrap();
    assert!(
        status.contains("files came after job 17 was packed"),
        "{status}"
    );
    assert!(status.contains(&first), "{status}");
    archive.run(&[
        "job",
        "close",
        "17-4",
        "--why",
        "found on the crawler's disk",
    ]);
    archive.run(&["run", "--once"]);
    let supplement = archive.path("packages/17-4.supplement-1");
    must_be_accepted(&supplement);
    let data = tree(&supplement.join("data/representations/harvest/data"));
    assert_eq!(data.keys().collect::<Vec<_>>(), [&first]);
    let mets = fs::read_to_string(supplement.join("data/METS.xml")).unwrap();
    assert!(mets.contains("RECORDSTATUS=\"SUPPLEMENT\""), "{mets}");
    assert!(
        tree(&archive.path("packages/17-4")) == before,
        "sealed is sealed"
    );

    // A second metadata file of the job lists what came with it.
    let (second, bytes) = late(2);
    let mut list = "[ARCHIVEFILE] [Opened] [Closed] [Size]\n".to_owned();
    let size = fs::metadata(archive.path("repository").join(&first))
        .unwrap()
        .len();
    let times = "2026-01-02T03:04:05.000Z 2026-01-02T03:05:05.000Z";
    list.push_str(&format!(
        "{first} {times} {size}\n{second} {times} {bytes}\n"
    ));
    let uri = "metadata://a/crawl/reports/archivefiles-report.txt?harvestid=4&jobid=17";
    let bytes = record("resource", uri, "text/plain", &list);
    fs::write(archive.path("harvested/17-4-metadata-2.warc.gz"), bytes).unwrap();
    archive.run(&["run", "--once"]);
    let supplement = archive.path("packages/17-4.supplement-2");
    must_be_accepted(&supplement);
    let data = tree(&supplement.join("data/representations/harvest/data"));
    assert_eq!(data.len(), 2, "{:?}", data.keys());
    archive.run(&["run", "--once"]);
    let names = fs::read_dir(archive.path("packages")).unwrap().count();
    assert_eq!(names, 3, "nothing is packed twice");

    // A lost supplement comes back as it was, and a lost manifest with all of them.
    let whole = tree(&supplement);
    fs::rename(&supplement, archive.path("taken-away")).unwrap();
    let output = archive.ecluse(&["repair", "17-4.supplement-2"]);
    assert_eq!(output.status.code(), Some(75), "{output:?}");
    archive.run(&["run", "--once", "package"]);
    archive.run(&["repair", "17-4.supplement-2"]);
    assert!(tree(&supplement) == whole);
    fs::rename(archive.path("manifest.sqlite"), archive.path("lost.sqlite")).unwrap();
    archive.run(&["rebuild", "manifest", "--why", "a test"]);
    let rows = |name: &str| -> Vec<String> {
        let manifest = rusqlite::Connection::open(archive.path(name)).unwrap();
        let sql = "SELECT part || '/' || supplement || package || sha512 FROM package \
                   UNION SELECT file || package FROM package_file ORDER BY 1";
        let mut statement = manifest.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    };
    assert_eq!(rows("manifest.sqlite"), rows("lost.sqlite"));
    assert_eq!(rows("manifest.sqlite").len(), 3 + 6);
}

#[test]
fn what_cannot_be_packed_is_said_at_the_door_and_with_its_path() {
    let archive = Archive::new(1, "");
    archive.run(&["run", "--once", "ingest"]);
    let file = archive.path("harvested/17-4-metadata-1.warc.gz");
    let output = archive.ecluse(&["give", "package", file.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(64), "{said}");
    assert!(said.contains("package takes finished jobs"), "{said}");

    fs::write(archive.path("packages"), "in the way").unwrap();
    let output = archive.ecluse(&["run", "--once"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(74), "{said}");
    let path = archive.path("packages").display().to_string();
    assert!(said.contains(&path), "{said}");
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

/// A package is an OCFL object too, and the receipts of the repository are its second version.
#[test]
fn a_package_is_an_ocfl_object_that_ocfl_py_and_rocfl_accept() {
    let settings = "[stage.package]\nocfl = \"ocfl\"\npart-files = 2\n";
    let archive = Archive::new(3, settings);
    archive.run(&["run", "--once"]);
    let root = archive.path("ocfl");
    others_accept(&root, 2);
    let packages = archive.packages();
    assert_eq!(packages.len(), 2);
    for (ark, package) in &packages {
        let object = root.join(ecluse_ocfl::object_path(ark));
        let content = object.join("v1/content");
        let package = archive.path("packages").join(package);
        assert_eq!(tree(&content), tree(&package));
        archive.run(&["validate", content.to_str().unwrap()]);
        assert!(!object.join("v2").exists(), "nobody has taken it");
    }

    // Somebody takes them: each file has a receipt, and each object a version with those of its files.
    let taken =
        "[stage.deposit]\nto = { kind = \"directory\", path = \"taken\", leave-free = \"0 B\" }\n";
    let file = archive.path("pipeline.toml");
    let before = fs::read_to_string(&file).unwrap();
    fs::write(&file, before + taken).unwrap();
    for _ in 0..2 {
        archive.run(&["run", "--once"]);
    }
    for (ark, package) in &packages {
        let object = root.join(ecluse_ocfl::object_path(ark));
        let text = fs::read_to_string(object.join("v2/content/receipts/receipts.jsonl")).unwrap();
        let receipts: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let files = tree(&archive.path("packages").join(package));
        assert_eq!(receipts.len(), files.len());
        for receipt in &receipts {
            let name = receipt["file"].as_str().unwrap();
            let is_it = |path: &&String| {
                name == format!("{package}/{path}") || path.ends_with(&format!("/{name}"))
            };
            let path = files.keys().find(is_it).unwrap_or_else(|| panic!("{name}"));
            let sha256 = ecluse_spool::digest(&files[path]);
            assert_eq!(receipt["sha256"], sha256.as_str(), "{name}");
            let said = receipt["receipt"].as_str().unwrap();
            let said: Value = serde_json::from_str(said).unwrap();
            assert_eq!(said["sha256"], sha256.as_str(), "{name}");
        }
        assert_eq!(tree(&object.join("v1/content")), files);
        assert!(!object.join("v3").exists(), "nothing came after them");
    }
    others_accept(&root, 2);
    let said = archive.ecluse(&["validate", root.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(
        said.contains("an OCFL storage root of version 1.1"),
        "{said}"
    );

    // The same once more, as after a crash, changes nothing.
    let before = tree(&root);
    fs::remove_dir_all(archive.path("work/package")).unwrap();
    let manifest = rusqlite::Connection::open(archive.path("manifest.sqlite")).unwrap();
    manifest.execute_batch("DELETE FROM package").unwrap();
    drop(manifest);
    archive.run(&["run", "--once", "package"]);
    assert_eq!(before, tree(&root));
}

#[track_caller]
/// Has ocfl-py and rocfl judge a storage root with so many objects.
fn others_accept(root: &Path, objects: usize) {
    let script = "import sys, ocfl\nroot = ocfl.StorageRoot(root=sys.argv[1])\n\
                  good = root.validate() and root.num_objects == root.good_objects == int(sys.argv[2])\n\
                  assert good, (root.log.status_str(), root.errors)";
    let mut python = Command::new(ecluse_peers::python());
    python
        .args(["-c", script])
        .arg(root)
        .arg(objects.to_string());
    let output = python.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");

    let mut rocfl = Command::new(ecluse_peers::rocfl());
    let output = rocfl.arg("-r").arg(root).arg("validate").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    let sums = format!("Total objects:   {objects}\n  Invalid objects: 0\n  Storage issues:  0");
    assert!(said.contains(&sums), "{said}");
}

/// One METS a file, with set and group by reference: what SPAR takes.
#[test]
fn the_second_profile_has_one_mets_a_file() {
    let archive = Archive::new(2, "[stage.package]\nprofile = \"spar\"\n");
    archive.run(&["run", "--once"]);
    let package = archive.path("packages/17-4");
    archive.run(&["validate", package.to_str().unwrap()]);
    let script = r#"
import copy, hashlib, importlib.util, os, pathlib, sys
import bagit
from lxml import etree
package = pathlib.Path(sys.argv[1])
bagit.Bag(str(package)).validate()
resources = pathlib.Path(importlib.util.find_spec("eark_validator").origin).parent / "ipxml/resources"
schema = etree.XMLSchema(etree.parse(str(resources / "schema/mets.csip.local.v2-0.xsd")))
ns = {"m": "http://www.loc.gov/METS/", "x": "http://www.w3.org/1999/xlink", "p": "info:lc/xmlns/premis-v2"}
class Local(etree.Resolver):
    def resolve(self, url, name, context):
        if url.endswith("xlink.xsd"):
            return self.resolve_filename(str(resources / "schema/xlink.xsd"), context)
parser = etree.XMLParser(no_network=True)
parser.resolvers.add(Local())
premis = [etree.XMLSchema(etree.parse(path, parser)) for path in sys.argv[2:]]
found = sorted(package.glob("data/*.mets.xml"))
for path in found:
    document = etree.parse(str(path))
    # The METS schema alone does not know the types of PREMIS.
    bare = copy.deepcopy(document)
    for element in bare.iter("{info:lc/xmlns/premis-v2}object"):
        del element.attrib["{http://www.w3.org/2001/XMLSchema-instance}type"]
    assert schema.validate(bare), schema.error_log
    for fragment in document.xpath("//p:object|//p:event|//p:agent", namespaces=ns):
        for schema2 in premis:
            assert schema2.validate(etree.ElementTree(fragment)), schema2.error_log
    divs = [d.get("TYPE") for d in document.xpath("//m:structMap//m:div", namespaces=ns)]
    assert divs == ["set", "group", "object", "file"], divs
    [file] = document.xpath("//m:fileGrp[@USE='master']/m:file", namespaces=ns)
    href = file.xpath("m:FLocat/@x:href", namespaces=ns)[0]
    from urllib.parse import unquote
    data = (package / "data" / unquote(href)).read_bytes()
    assert hashlib.sha512(data).hexdigest() == file.get("CHECKSUM")
    assert len(data) == int(file.get("SIZE"))
    kinds = document.xpath("//p:eventType/text()", namespaces=ns)
    assert "capture" in kinds and "information package creation" in kinds, kinds
print(len(found))
"#;
    let mut python = Command::new(ecluse_peers::python());
    python.args(["-c", script]).arg(&package);
    python.args(ecluse_peers::preserve("schemas/premis/premis-v2-2.xsd"));
    let output = python.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "3");
}
