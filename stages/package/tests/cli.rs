//! What is packed, and above all what is not.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

use std::fs;
use std::path::{Path, PathBuf};

use ecluse_bag::{ValidateOptions, validate};
use ecluse_manifest::{CheckOutcome, Copy, Manifest, NewFile};
use ecluse_testkit::contract::Contract;
use ecluse_testkit::root::Root;
use serde_json::json;

const PACKAGE: &str = env!("CARGO_BIN_EXE_ecluse-package");

/// An archive of which the manifest says that its files have passed the chain.
struct Archive {
    root: Root,
}

fn record(uri: &str, block: &str) -> String {
    format!(
        "WARC/1.0\r\nWARC-Type: resource\r\nWARC-Target-URI: {uri}\r\nWARC-Date: 2026-01-02T03:04:05Z\r\n\
         WARC-Record-ID: <urn:uuid:1>\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{block}\r\n\r\n",
        block.len()
    )
}

/// A metadata file with this list.
fn metadata(lines: &[(&str, usize)]) -> String {
    let mut list = "[ARCHIVEFILE] [Opened] [Closed] [Size]\n".to_owned();
    for (name, bytes) in lines {
        list.push_str(&format!(
            "{name} 2026-01-02T03:04:05Z 2026-01-02T03:05:05Z {bytes}\n"
        ));
    }
    let uri = "metadata://a/crawl/reports/archivefiles-report.txt?harvestid=4&jobid=17";
    record(uri, &list)
}

const ONE: &str = "17-4-20260102030405000-00000-h.warc";
const TWO: &str = "17-4-20260102030405000-00001-h.warc";
const META: &str = "17-4-metadata-1.warc";

/// Writes a file into the repository of a directory and tells its manifest that it is published.
fn publish(root: &Path, name: &str, job: (&str, Option<&str>), text: &str) {
    publish_for(root, root, name, job, text);
}

/// The same for a stage with another root.
fn publish_for(
    root: &Path,
    places: &Path,
    name: &str,
    (job, harvest): (&str, Option<&str>),
    text: &str,
) {
    let at = |path: &str| root.join(path);
    for directory in ["repository", "backup"] {
        fs::create_dir_all(at(directory)).unwrap();
        fs::write(at(directory).join(name), text).unwrap();
    }
    let sha256 = ecluse_spool::digest(text.as_bytes());
    let mut manifest = Manifest::open(&at("manifest.sqlite"), places).unwrap();
    let new = NewFile {
        name,
        bytes: text.len() as u64,
        sha256: &sha256,
        kind: if name.contains("metadata") {
            "metadata"
        } else {
            "warc"
        },
        job: Some(job),
        harvest,
        collection: None,
        source: "/harvested",
        parcel: name,
    };
    manifest.ingest(&new).unwrap();
    manifest.indexed(name, 1, 0, &[]).unwrap();
    let (stored, backup) = (at("repository").join(name), at("backup").join(name));
    let copy = |place| Copy {
        target: "x",
        place,
        bytes: text.len() as u64,
        sha256: &sha256,
    };
    manifest
        .stored(name, &copy(stored.to_str().unwrap()))
        .unwrap();
    let backup = copy(backup.to_str().unwrap());
    manifest
        .backed_up(name, &backup, &json!({"kind": "directory"}))
        .unwrap();
    manifest.deleted(name).unwrap();
    manifest.published(None, 1, &[name.to_owned()]).unwrap();
}

impl Archive {
    fn new(settings: &str) -> Self {
        let root = Root::new();
        root.settings(&["package"], &format!("[stage.package]\n{settings}\n"));
        Self { root }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn publish(&self, name: &str, text: &str) {
        publish(self.root.path(), name, ("17", Some("4")), text);
    }

    /// A job with two files and its list.
    fn job(&self) {
        self.publish(ONE, &record("http://a/1", "one"));
        self.publish(TWO, &record("http://a/2", "two"));
        let bytes = record("http://a/1", "one").len();
        self.publish(META, &metadata(&[(TWO, bytes), (ONE, bytes)]));
    }

    fn run(&self) -> (i32, String) {
        self.root.run(Path::new(PACKAGE), &["--once"])
    }

    fn packages(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path("packages")) else {
            return Vec::new();
        };
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    #[track_caller]
    fn must_be_valid(&self, package: &str) {
        let options = ValidateOptions {
            is_strict: true,
            threads: 2,
        };
        let bag = self.path("packages").join(package);
        let report = validate(&bag, options, &|_| true).unwrap();
        assert_eq!(report.faults, []);
    }

    /// Runs the stage, which must not pack and say this.
    #[track_caller]
    fn must_refuse(&self, code: i32, words: &[&str]) {
        let (found, said) = self.run();
        assert_eq!(found, code, "{said}");
        for words in words {
            assert!(said.contains(words), "{words}: {said}");
        }
        assert_eq!(self.packages(), [""; 0]);
    }
}

#[test]
fn package_keeps_the_contract() {
    let prepared = tempfile::tempdir().unwrap();
    publish_for(
        prepared.path(),
        Path::new("/elsewhere"),
        ONE,
        ("17", Some("4")),
        &record("http://a/1", "one"),
    );
    let manifest = prepared.path().join("manifest.sqlite");
    let closed = br#"{"job": "17", "harvest": "4", "closed": {"by": "a", "why": "b", "at": "2026-01-03T00:00:00Z"}}"#;
    Contract {
        stage: "package",
        binary: Path::new(PACKAGE),
        settings: &format!(
            "next = [\"sink\"]\n[archive]\nmanifest = {:?}",
            manifest.to_str().unwrap()
        ),
        good: &[("job.json", closed)],
        bad: &[("job.json", b"{\"job\": 17}")],
    }
    .keep();
}

#[test]
fn a_job_becomes_a_package_in_the_order_of_its_list() {
    let archive = Archive::new("");
    archive.job();
    let (code, said) = archive.run();
    assert_eq!(code, 0, "{said}");
    assert_eq!(archive.packages(), ["17-4"]);
    archive.must_be_valid("17-4");
    let mets =
        fs::read_to_string(archive.path("packages/17-4/data/representations/harvest/METS.xml"));
    let mets = mets.unwrap();
    let at = |name: &str| mets.find(&format!("href=\"data/{name}\"")).unwrap();
    assert!(
        at(META) < at(TWO) && at(TWO) < at(ONE),
        "the metadata first"
    );
    // Linked, not copied.
    let packed = archive
        .path("packages/17-4/data/representations/harvest/data")
        .join(ONE);
    let stored = archive.path("repository").join(ONE);
    assert!(ecluse_holding::is_same_file(&packed, &stored).unwrap());
    let manifest = Manifest::open(&archive.path("manifest.sqlite"), archive.root.path()).unwrap();
    let [row] = manifest.packages().unwrap().try_into().unwrap();
    assert_eq!((row.job.as_str(), row.files, row.parts), ("17", 3, 1));
    // Nothing is done twice.
    let (code, said) = archive.run();
    assert_eq!(code, 0, "{said}");
    assert_eq!(archive.packages(), ["17-4"]);
}

#[test]
fn a_large_job_has_parts() {
    let archive = Archive::new("part-files = 2");
    archive.job();
    let (code, said) = archive.run();
    assert_eq!(code, 0, "{said}");
    assert_eq!(archive.packages(), ["17-4.1", "17-4.2"]);
    for package in archive.packages() {
        archive.must_be_valid(&package);
    }
    let info = fs::read_to_string(archive.path("packages/17-4.2/bag-info.txt")).unwrap();
    assert!(info.contains("Bag-Count: 2 of 2\n"), "{info}");
}

/// One event tells of all files that it is true of: a thousand files do not make a document that nobody can read.
#[test]
fn a_thousand_files_have_small_documents() {
    let archive = Archive::new("part-files = 2000");
    let text = record("http://a/1", "one");
    let names: Vec<String> = (0..1000)
        .map(|number| format!("17-4-20260102030405000-{number:05}-h.warc"))
        .collect();
    let lines: Vec<(&str, usize)> = names
        .iter()
        .map(|name| (name.as_str(), text.len()))
        .collect();
    for name in &names {
        archive.publish(name, &text);
    }
    archive.publish(META, &metadata(&lines));
    let (code, said) = archive.run();
    assert_eq!(code, 0, "{said}");
    archive.must_be_valid("17-4");
    let package = archive.path("packages/17-4/data");
    let mets = [
        package.join("METS.xml"),
        package.join("representations/harvest/METS.xml"),
    ];
    for document in mets {
        let text = fs::read_to_string(&document).unwrap();
        assert!(
            text.len() < 5_000_000,
            "{}: {}",
            document.display(),
            text.len()
        );
        well_formed(&text).unwrap();
    }
    let text = fs::read_to_string(package.join("representations/harvest/METS.xml")).unwrap();
    assert!(names.iter().all(|name| text.contains(name.as_str())));
}

#[test]
fn a_job_waits_for_what_its_list_has() {
    let archive = Archive::new("");
    archive.publish(ONE, &record("http://a/1", "one"));
    archive.publish(
        META,
        &metadata(&[(ONE, record("http://a/1", "one").len()), (TWO, 9)]),
    );
    let words = [
        "the list of job 17 has 2 files, 1 came; listed and not here: 17-4-20260102030405000-00001",
    ];
    archive.must_refuse(75, &words);
}

#[test]
fn both_sides_of_a_disagreement_are_told() {
    let archive = Archive::new("");
    archive.publish(ONE, &record("http://a/1", "one"));
    archive.publish(META, &metadata(&[(ONE, 9)]));
    archive.must_refuse(65, &["is listed with 9 bytes and came with", "sha256 "]);

    let archive = Archive::new("");
    archive.publish(ONE, &record("http://a/1", "one"));
    archive.publish(TWO, &record("http://a/2", "two"));
    archive.publish(META, &metadata(&[(ONE, record("http://a/1", "one").len())]));
    let extra = format!("has 1 files, 2 came; here and not listed: {TWO}");
    archive.must_refuse(65, &[&extra]);
}

#[test]
fn a_job_without_a_list_waits_for_a_person() {
    let archive = Archive::new("");
    archive.publish(ONE, &record("http://a/1", "one"));
    archive.publish(META, &record("metadata://a/x", "no list"));
    archive.must_refuse(65, &["job 17 has no packing list", "ecluse job close 17"]);
}

#[test]
fn only_what_is_safe_is_packed() {
    let archive = Archive::new("");
    archive.job();
    let mut manifest =
        Manifest::open(&archive.path("manifest.sqlite"), archive.root.path()).unwrap();
    let due = manifest.due(u64::MAX).unwrap();
    let bad = due.iter().find(|copy| copy.file == ONE).unwrap();
    manifest
        .checked(bad, &CheckOutcome::Bad("rot".into()))
        .unwrap();
    archive.must_refuse(75, &[ONE, "of the digest taken at ingest"]);

    // The SHA-512 is not known yet, so that it is read; what is not what ingest took is not packed.
    let archive = Archive::new("");
    archive.job();
    let stored = archive.path("repository").join(TWO);
    fs::write(&stored, record("http://a/2", "owt")).unwrap();
    archive.must_refuse(65, &["the stored copy", "ingest took"]);

    // Nor is it once the last read is too old.
    let archive = Archive::new("fresh = \"0s\"");
    archive.job();
    let mut manifest =
        Manifest::open(&archive.path("manifest.sqlite"), archive.root.path()).unwrap();
    let text = record("http://a/2", "two");
    let sha256 = ecluse_spool::digest(text.as_bytes());
    manifest
        .note_sha512(TWO, &sha256, &"0".repeat(128))
        .unwrap();
    archive.must_refuse(65, &["has sha512", "ingest took 000"]);
}

#[test]
fn hostile_names_stay_inside_and_break_nothing() {
    for (job, harvest) in [
        ("..", ".."),
        ("../../outside", "x"),
        ("/etc", "a\"b<c>&'d"),
        ("a\nPayload-Oxum: 0.0", "\u{1}\u{0}\u{ffff}]]>"),
        ("", ""),
        ("a-b", "c"),
        ("{{ 7*7 }}", "{% raw %}"),
    ] {
        let archive = Archive::new("");
        let text = record("http://a/1", "one");
        let name = "x&y<z%41.warc";
        publish(archive.root.path(), name, (job, Some(harvest)), &text);
        let closing = json!({
            "job": job, "harvest": harvest,
            "closed": {"by": "<root>", "why": "\u{8}&", "at": "2026-01-03T00:00:00Z"},
        });
        archive.root.put_files(
            "package",
            "closed",
            &[("job.json", closing.to_string().as_bytes())],
        );
        let before: Vec<_> = fs::read_dir(archive.root.path())
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        let (code, said) = archive.run();
        assert_eq!(code, 0, "{job:?}: {said}");
        let [package] = archive.packages().try_into().unwrap();
        archive.must_be_valid(&package);
        let mut after: Vec<_> = fs::read_dir(archive.root.path())
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        after.retain(|name| !before.contains(name) && name != "packages");
        assert_eq!(after, [""; 0], "{job:?}");
        let data = archive.path("packages").join(&package).join("data");
        let mets = fs::read_to_string(data.join("METS.xml")).unwrap();
        assert!(!job.contains('{') || mets.contains("LABEL=\"crawl job {{ 7*7 }}\""));
        for document in [
            "METS.xml",
            "metadata/descriptive/dc.xml",
            "metadata/other/harvestDefinition.xml",
            "metadata/preservation/premis.xml",
            "representations/harvest/METS.xml",
            "representations/harvest/metadata/preservation/premis.xml",
        ] {
            let text = fs::read_to_string(data.join(document)).unwrap();
            well_formed(&text).unwrap_or_else(|why| panic!("{document} of {job:?}: {why}\n{text}"));
        }
    }
}

/// Reads XML to its end.
fn well_formed(text: &str) -> Result<(), String> {
    let mut reader = quick_xml::Reader::from_str(text);
    reader.config_mut().check_end_names = true;
    let mut depth = 0;
    loop {
        match reader.read_event().map_err(|error| error.to_string())? {
            quick_xml::events::Event::Start(start) => {
                depth += 1;
                for attribute in start.attributes() {
                    attribute.map_err(|error| error.to_string())?;
                }
            }
            quick_xml::events::Event::End(_) => depth -= 1,
            quick_xml::events::Event::Text(text) => {
                let text = text.decode().map_err(|error| error.to_string())?;
                if text
                    .chars()
                    .any(|c| c.is_control() && !"\t\r\n".contains(c))
                {
                    return Err(format!("{text:?}"));
                }
            }
            quick_xml::events::Event::Eof if depth == 0 => return Ok(()),
            quick_xml::events::Event::Eof => return Err("it ends too early".into()),
            _ => {}
        }
    }
}

/// Every file of a whole package, flipped, cut, longer, removed, renamed or with another beside it: each is found.
#[test]
fn every_change_of_a_whole_package_is_found() {
    let archive = Archive::new("");
    archive.job();
    let (code, said) = archive.run();
    assert_eq!(code, 0, "{said}");
    let package = archive.path("packages/17-4");
    let mut files = Vec::new();
    let mut stack = vec![package.clone()];
    while let Some(directory) = stack.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            match entry.file_type().unwrap().is_dir() {
                true => stack.push(entry.path()),
                false => files.push(entry.path()),
            }
        }
    }
    assert!(files.len() > 15, "{files:?}");
    let options = ValidateOptions {
        is_strict: false,
        threads: 1,
    };
    let is_valid = || {
        let report = validate(&package, options, &|_| true).unwrap();
        report.is_valid()
    };
    let mut dice = 7_usize;
    for path in files {
        let shown = path.display();
        let good = fs::read(&path).unwrap();
        let seal = path.ends_with("tagmanifest-sha512.txt");
        for round in 0..20 {
            dice = dice * 1_103_515_245 % 2_147_483_647;
            let mut bad = good.clone();
            let at = dice % good.len();
            match round {
                0 => bad.truncate(at),
                1 => bad.extend_from_slice(b"more\n"),
                2 => bad.insert(at, b'x'),
                _ => bad[at] ^= 1 << (dice % 8),
            }
            // Nothing in a bag fixes the white space of its tag manifest; the manifest database does.
            let words = |bytes: &[u8]| -> Vec<String> {
                let text = String::from_utf8_lossy(bytes);
                text.split_whitespace().map(str::to_owned).collect()
            };
            if seal && words(&bad) == words(&good) {
                continue;
            }
            // A new file: the old one may be linked with a stored copy.
            fs::remove_file(&path).unwrap();
            fs::write(&path, &bad).unwrap();
            assert!(!is_valid(), "round {round} of {shown}");
        }
        fs::remove_file(&path).unwrap();
        assert!(!is_valid(), "{shown} is gone");
        let other = path.with_extension("other");
        fs::write(&other, &good).unwrap();
        assert!(!is_valid(), "{shown} has another name");
        fs::write(&path, &good).unwrap();
        assert!(!is_valid(), "{shown} is there twice");
        fs::remove_file(&other).unwrap();
        assert!(is_valid(), "{shown}");
    }
}
