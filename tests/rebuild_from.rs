//! An archive of which nothing is left but its packages comes back: the same rows, the same lines, the same jobs.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ecluse_testkit::root::settle_environment;
use serde_json::Value;

const ECLUSE: &str = env!("CARGO_BIN_EXE_ecluse");

const QUICK: &str = r#"
[defaults]
settle = "100ms"
min-free = "0 B"
[stage.bigmerge]
spare = "0 B"
[[archive.repository]]
name = "repository"
path = "repository"
leave-free = "0 B"
[[stage.backup.targets]]
name = "backup"
kind = "directory"
path = "backup"
leave-free = "0 B"
"#;

struct Archive {
    dir: tempfile::TempDir,
}

impl Archive {
    fn new(settings: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("pipeline.toml"), settings).unwrap();
        Self { dir }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn ecluse(&self, words: &[&str]) -> Output {
        let mut command = Command::new(ECLUSE);
        settle_environment(&mut command);
        command.arg("--root").arg(self.dir.path()).args(words);
        command.output().unwrap()
    }

    fn ecluse_json(&self, words: &[&str]) -> String {
        let output = self.ecluse(&[words, &["--json"]].concat());
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn run(&self, words: &[&str]) -> String {
        let output = self.ecluse(words);
        let said = String::from_utf8_lossy(&output.stderr);
        let out = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {said} {out}");
        out.into_owned()
    }

    /// All rows of the manifest but for what is only known later: the last checks, and when the package was told of.
    fn rows(&self) -> BTreeMap<&'static str, Vec<String>> {
        let manifest = rusqlite::Connection::open(self.path("manifest.sqlite")).unwrap();
        let tables = [
            // That the harvested file is gone is seen, and not told.
            (
                "file",
                "name, bytes, sha256, kind, job, harvest, collection, source, parcel, replace(state, 'cleaned', 'published'), \
                 captures, damages, generation, ingested, indexed, stored, backed_up, deleted, published",
            ),
            (
                "copy",
                "file, kind, target, place, bytes, sha256, proof, made",
            ),
            ("damage", "*"),
            ("digest", "*"),
            (
                "package",
                "job, harvest, part, parts, ark, package, files, bytes, sha512",
            ),
        ];
        let mut rows = BTreeMap::new();
        for (table, columns) in tables {
            let sql = format!("SELECT {columns} FROM {table}");
            let mut statement = manifest.prepare(&sql).unwrap();
            let width = statement.column_count();
            let found = statement.query_map([], |row| {
                let values = (0..width).map(|at| row.get::<_, rusqlite::types::Value>(at));
                let values: Vec<String> = values.map(|v| format!("{:?}", v.unwrap())).collect();
                Ok(values.join(" "))
            });
            let mut found: Vec<String> = found.unwrap().map(Result::unwrap).collect();
            found.sort();
            rows.insert(table, found);
        }
        rows
    }

    fn index(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    /// The jobs as `ecluse jobs` tells them, without where they are and what is true only while they run.
    fn jobs(&self) -> Vec<Value> {
        let said: Value = serde_json::from_str(&self.run(&["jobs", "--json"])).unwrap();
        let mut jobs = said["jobs"].as_array().unwrap().clone();
        for job in &mut jobs {
            let job = job.as_object_mut().unwrap();
            let reports: Vec<String> = job["reports"]
                .as_array()
                .unwrap()
                .iter()
                .map(name_of)
                .collect();
            job.insert("reports".into(), reports.into());
            for key in [
                // The status counts a few more than the report does.
                "bytes",
                "dir",
                "pid",
                "updated",
                "seconds",
                "queues",
                "urls_per_second",
                "bytes_per_second",
                "handed_out",
                "last_url",
                "slowest",
                "priority",
            ] {
                job.remove(key);
            }
        }
        jobs
    }

    /// Spoils a document of each package, which is then made again: it must have the bytes that it had.
    fn make_again_all(&self) {
        let mut count = 0;
        for package in fs::read_dir(self.path("packages")).unwrap() {
            let package = package.unwrap().path();
            let name = package.file_name().unwrap().to_str().unwrap().to_owned();
            if name.starts_with('.') {
                continue;
            }
            count += 1;
            let statistics = package.join("data/documentation/statistics.txt");
            let seal = package.join("tagmanifest-sha512.txt");
            let read = || [&statistics, &seal].map(|path| fs::read_to_string(path).unwrap());
            let before = read();
            fs::remove_file(package.join("data/METS.xml")).unwrap();
            let output = self.ecluse(&["repair", &name]);
            assert_eq!(output.status.code(), Some(75), "{name}");
            assert!(!seal.exists());
            self.run(&["run", "--once", "package"]);
            must_agree(&before, &read());
            self.run(&["repair", &name]);
        }
        assert!(count > 1);
    }

    /// Leaves nothing but the packages, which go elsewhere, and the settings.
    fn lose(&self, packages: &Path) {
        fs::rename(self.path("packages"), packages).unwrap();
        for entry in fs::read_dir(self.dir.path()).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => fs::remove_dir_all(path).unwrap(),
                false if path.ends_with("pipeline.toml") => {}
                false => fs::remove_file(path).unwrap(),
            }
        }
    }
}

fn name_of(path: &Value) -> String {
    let path = path.as_str().unwrap();
    path.rsplit('/').next().unwrap().to_owned()
}

#[track_caller]
fn must_agree<Thing: PartialEq + std::fmt::Debug>(before: &Thing, after: &Thing) {
    assert!(before == after, "before: {before:#?}\nafter: {after:#?}");
}

#[test]
fn a_crawled_archive_comes_back_from_its_packages() {
    let archive = Archive::new(QUICK);
    let port = {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port().to_string()
    };
    for _ in 0..2 {
        let output = archive.ecluse(&["demo", "--port", &port]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
    }
    let (rows, jobs) = (archive.rows(), archive.jobs());
    let lines = archive.index("index/current/index.cdxj");
    let paths = archive.index("index/current/path-index.txt");
    assert_eq!(jobs.len(), 2, "{jobs:#?}");
    assert_eq!(rows["package"].len(), 2, "{rows:#?}");

    let elsewhere = tempfile::tempdir().unwrap();
    let packages = elsewhere.path().join("packages");
    archive.lose(&packages);
    let from = packages.to_str().unwrap();
    archive.run(&["rebuild", "--from", from, "--dry-run"]);
    assert!(!archive.path("manifest.sqlite").exists());
    assert!(!archive.path("repository").exists());
    archive.run(&["rebuild", "--from", from, "--why", "a test"]);

    must_agree(&rows, &archive.rows());
    must_agree(&jobs, &archive.jobs());
    must_agree(&lines, &archive.index("index/current/index.cdxj"));
    must_agree(&paths, &archive.index("index/current/path-index.txt"));

    // Everything is in its place and good, and there is nothing left to do.
    archive.run(&["verify"]);
    archive.run(&["verify", "--release", "--why", "a test"]);
    archive.run(&["run", "--once"]);
    must_agree(&rows, &archive.rows());
    let names = fs::read_dir(archive.path("packages")).unwrap();
    for package in names {
        let package = package.unwrap().path();
        archive.run(&["validate", package.to_str().unwrap()]);
    }

    // The manifest is made again as it was, though no receipt tells of what was before.
    archive.run(&["rebuild", "manifest"]);
    must_agree(&rows, &archive.rows());
    must_agree(&jobs, &archive.jobs());
    archive.make_again_all();

    // Who has a manifest has not lost his archive.
    let again = archive.ecluse(&["rebuild", "--from", from]);
    assert_eq!(again.status.code(), Some(64));
}

fn record(kind: &str, uri: &str, content_type: &str, block: &str) -> String {
    format!(
        "WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {uri}\r\nWARC-Date: 2026-01-02T03:04:05Z\r\n\
         WARC-Record-ID: <urn:uuid:1>\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n{block}\r\n\r\n",
        block.len()
    )
}

/// A job of another crawler in a collection of its own, in parts, with a damaged file; and a package that was damaged since.
#[test]
fn collections_damage_and_parts_come_back_and_a_bad_package_is_named() {
    let settings = format!(
        "{QUICK}\n[stage.package]\npart-files = 2\n[stage.ingest]\ncollections = [{{ name = \"elections\", harvests = \"4\" }}]\n"
    );
    let archive = Archive::new(&settings);
    fs::create_dir(archive.path("harvested")).unwrap();
    let harvested = |name: &str, text: &str| {
        fs::write(archive.path("harvested").join(name), text).unwrap();
    };
    for job in ["17", "18"] {
        let mut list = "[ARCHIVEFILE] [Opened] [Closed] [Size]\n".to_owned();
        for number in 0..3 {
            let name = format!("{job}-4-20260102030405000-{number:05}-h.warc");
            let page = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>page</p>";
            let http = "application/http; msgtype=response";
            let uri = format!("http://h{number}.example/{job}");
            let mut text = record("response", &uri, http, page);
            if number == 1 {
                text.push_str("no record");
            }
            harvested(&name, &text);
            list.push_str(&format!("{name} 2026-01-02T03:04:05Z {}\n", text.len()));
        }
        let uri = format!("metadata://a/crawl/reports/archivefiles-report.txt?jobid={job}");
        harvested(
            &format!("{job}-4-metadata-1.warc"),
            &record("resource", &uri, "text/plain", &list),
        );
    }
    // Of one that nobody listed, somebody says that it is complete.
    let page = record(
        "response",
        "http://h.example/19",
        "text/html",
        "<p>page</p>",
    );
    harvested("19-4-20260102030405000-00000-h.warc", &page);
    archive.run(&["run", "--once"]);
    archive.run(&["job", "close", "19", "--why", "the crawler died"]);
    archive.run(&["run", "--once"]);
    let rows = archive.rows();
    assert_eq!(rows["package"].len(), 5, "{rows:#?}");
    assert_eq!(rows["damage"].len(), 2, "{rows:#?}");
    let current = "index/elections/current/index.cdxj";
    let lines = archive.index(current);

    let elsewhere = tempfile::tempdir().unwrap();
    let packages = elsewhere.path().join("packages");
    archive.lose(&packages);
    let bad = packages.join("18-4.2/bag-info.txt");
    let good = fs::read(&bad).unwrap();
    fs::write(&bad, "Bag-Count: 1 of 1\n").unwrap();
    let from = packages.to_str().unwrap();
    // Nothing is begun with a bad one, so that the same words do it all once it is mended.
    for words in [
        &["rebuild", "--from", from][..],
        &["rebuild", "--from", from, "--leave-out-bad"],
    ] {
        let output = archive.ecluse(words);
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(65), "{said}");
        assert!(said.contains("18-4.2: not valid: "), "{said}");
        let has_begun = words.len() == 4;
        for made in ["manifest.sqlite", "repository", "packages", "index"] {
            assert_eq!(archive.path(made).exists(), has_begun, "{made}");
        }
    }
    assert_eq!(archive.rows()["package"].len(), 4);
    assert!(archive.jobs().is_empty(), "nobody here crawled it");

    // The bad one was mended: once more, from nothing.
    fs::write(&bad, good).unwrap();
    for lost in ["manifest.sqlite", ".manifest.sqlite.made"] {
        fs::remove_file(archive.path(lost)).unwrap();
    }
    fs::remove_dir_all(archive.path("index")).unwrap();
    archive.run(&["rebuild", "--from", from]);
    must_agree(&rows, &archive.rows());
    must_agree(&lines, &archive.index(current));
    archive.run(&["rebuild", "manifest"]);
    must_agree(&rows, &archive.rows());
    archive.make_again_all();
}

/// Somebody put another file where a stored copy was: it is told, stays told, and the index has the lines of the right one.
#[test]
fn another_file_in_the_repository_is_told_and_gives_no_lines() {
    let archive = Archive::new(QUICK);
    fs::create_dir(archive.path("harvested")).unwrap();
    let name = "17-4-20260102030405000-00000-h.warc";
    let http = "application/http; msgtype=response";
    let page = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>page</p>";
    let right = record("response", "http://right.example/", http, page);
    fs::write(archive.path("harvested").join(name), right).unwrap();
    archive.run(&["run", "--once"]);
    archive.run(&["job", "close", "17", "--why", "a test"]);
    archive.run(&["run", "--once"]);
    let lines = archive.index("index/current/index.cdxj");
    assert!(lines.contains("right.example"), "{lines}");

    let place = {
        let sql = "SELECT place FROM copy WHERE kind = 'stored'";
        let manifest = rusqlite::Connection::open(archive.path("manifest.sqlite")).unwrap();
        let place: String = manifest.query_row(sql, [], |row| row.get(0)).unwrap();
        archive.path(place.strip_prefix("./").unwrap())
    };
    let elsewhere = tempfile::tempdir().unwrap();
    let packages = elsewhere.path().join("packages");
    archive.lose(&packages);
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    let foreign = record("response", "http://wrong.example/", http, page);
    fs::write(&place, &foreign).unwrap();

    let output = archive.ecluse(&["rebuild", "--from", packages.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(65), "{said}");
    assert!(said.contains("is taken by another file"), "{said}");
    must_agree(&lines, &archive.index("index/current/index.cdxj"));
    assert_eq!(
        fs::read_to_string(&place).unwrap(),
        foreign,
        "it is somebody's"
    );
    let status: Value = serde_json::from_str(&archive.ecluse_json(&["status"])).unwrap();
    let told = status.to_string();
    assert!(told.contains("is taken by another file"), "{told}");

    // Neither copy is good: the package has the file.
    let backup = walkdir::WalkDir::new(archive.path("backup"));
    let mut backup = backup.into_iter().map(Result::unwrap);
    let backup = backup.find(|entry| entry.file_name() == name).unwrap();
    let good = fs::read(backup.path()).unwrap();
    fs::write(backup.path(), &foreign).unwrap();
    fs::remove_dir_all(archive.path("index")).unwrap();
    archive.run(&["rebuild", "index"]);
    must_agree(&lines, &archive.index("index/current/index.cdxj"));

    // Nothing has it any more: that is told, and no line of another file is taken for its own.
    let package = archive.path("packages/17-4/data/representations/harvest/data");
    fs::write(package.join(name), &foreign).unwrap();
    fs::remove_dir_all(archive.path("index")).unwrap();
    let output = archive.ecluse(&["rebuild", "index"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(65), "{said}");
    assert!(
        said.contains("1 lines are missing, 1 files have no good copy"),
        "{said}"
    );
    assert_eq!(archive.index("index/current/index.cdxj"), "");

    // One good copy is enough to put all right.
    fs::write(backup.path(), good).unwrap();
    archive.run(&["repair", "--all"]);
    archive.run(&["verify"]);
}
