//! The indexing process over both engines, with the real program: the same files give the same archive.
//!
//! `ECLUSE_TEST_FILES=300 cargo test --test engine same_files` compares so many files; without it, as many as a test has time for.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use ecluse_manifest::Manifest;
use ecluse_testkit::root::{settle_environment, until};
use ecluse_testkit::servers::EngineServers;
use flate2::Compression;
use flate2::write::GzEncoder;
use rusqlite::Connection;
use rusqlite::types::Value;

const ECLUSE: &str = env!("CARGO_BIN_EXE_ecluse");
/// How many files are compared, where nobody asks for more.
const FILES: usize = 12;

/// The day's files are gathered in one batch, whatever the engine.
const SETTINGS: &str = r#"
[chain]
stages = ["ingest", "index", "transfer", "backup", "delete", "merge", "bigmerge", "clean", "package"]
# Nobody's death is a parcel's fault here.
[defaults]
attempts = 1000
scan = "200ms"
settle = "100ms"
heartbeat = "1s"
lease = "5s"
min-free = "0 B"
[stage.bigmerge]
spare = "0 B"
zipnum = true
zipnum-lines = 7
zipnum-shard = "500 B"
[stage.clean]
remove = true
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
    files: usize,
    /// How far the clock of its host is off.
    off_by: Option<&'static str>,
}

impl Archive {
    fn new(more: &str) -> Self {
        Self::of(FILES, more)
    }

    /// An archive into which a job with so many files has come.
    fn of(files: usize, more: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(
            dir.path().join("pipeline.toml"),
            format!("{SETTINGS}{more}"),
        )
        .unwrap();
        fs::create_dir(dir.path().join("harvested")).unwrap();
        let mut list = "[ARCHIVEFILE] [Opened] [Closed] [Size]\n".to_owned();
        for number in 0..files {
            let name = format!("1-1-2026031210150{number:04}-{number:05}-h.warc.gz");
            let bytes = warc(number);
            let times = "2026-03-12T10:15:00.000Z 2026-03-12T10:16:00.000Z";
            list.push_str(&format!("{name} {times} {}\n", bytes.len()));
            fs::write(dir.path().join("harvested").join(name), bytes).unwrap();
        }
        // With its metadata file the job is whole, and a package is made of it.
        let metadata = dir.path().join("harvested/1-1-metadata-1.warc.gz");
        fs::write(metadata, packing_list(&list)).unwrap();
        Self {
            dir,
            files,
            off_by: None,
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn ecluse(&self, words: &[&str]) -> Output {
        let mut command = Command::new(ECLUSE);
        settle_environment(&mut command);
        if let Some(off_by) = self.off_by {
            command
                .env("LD_PRELOAD", ecluse_peers::libfaketime())
                .env("FAKETIME", off_by)
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        command
            .arg("--root")
            .arg(self.dir.path())
            .args(words)
            .output()
            .unwrap()
    }

    fn start(&self, words: &[&str]) -> Child {
        let mut command = Command::new(ECLUSE);
        settle_environment(&mut command);
        command.arg("--root").arg(self.dir.path()).args(words);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    }

    fn must(&self, words: &[&str]) -> String {
        let output = self.ecluse(words);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {said}{errors}");
        said
    }

    /// What is kept for good, by path; where the root stands in a text it is taken out.
    fn kept(&self) -> BTreeMap<String, Vec<u8>> {
        let mut kept = BTreeMap::new();
        for part in ["repository", "backup", "harvested"] {
            read_below(&self.path(part), part, &mut kept);
        }
        let mut index = BTreeMap::new();
        read_below(&self.path("index/current"), "index", &mut index);
        let has_shards = index.keys().any(|name| name.ends_with(".cdxj.gz"));
        assert!(has_shards, "there is no ZipNum: {:?}", index.keys());
        // It says when it was made, and of what; how often the index grew on the way is another matter.
        index.remove("index/generation.json").unwrap();
        let paths = index.get_mut("index/path-index.txt").unwrap();
        let text = String::from_utf8(std::mem::take(paths)).unwrap();
        *paths = self.rootless(&text).into_bytes();
        kept.append(&mut index);
        let rows = self.rows();
        let files = rows.keys().filter(|row| row.starts_with("manifest file "));
        assert_eq!(files.count(), self.files + 1);
        kept.extend(rows);
        self.packed(&mut kept);
        kept
    }

    fn rootless(&self, text: &str) -> String {
        text.replace(&self.dir.path().display().to_string(), "")
    }

    /// Every row of the manifest. Of times it says only whether there is one; what else is another each time is taken out: the
    /// inode of a file, the digest of a package with its documents, and the names that follow from when and where.
    fn rows(&self) -> BTreeMap<String, Vec<u8>> {
        const PASSING: [&str; 16] = [
            "ingested",
            "indexed",
            "stored",
            "backed_up",
            "deleted",
            "published",
            "cleaned",
            "made",
            "checked",
            "since",
            "at",
            "sent",
            "receipted",
            "stamp",
            "package.sha512",
            // Another one in an index that grew in more steps.
            "generation",
        ];
        let passing = [
            r"\d{4}-\d{2}-\d{2}T[0-9:.]+Z?",
            r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
            r"warc\.gz-[0-9a-f]{12}",
        ];
        let passing = regex::Regex::new(&passing.join("|")).unwrap();
        let manifest = Connection::open(self.path("manifest.sqlite")).unwrap();
        let tables = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name";
        let mut tables = manifest.prepare(tables).unwrap();
        let tables = tables.query_map([], |row| row.get(0)).unwrap();
        let mut kept = BTreeMap::new();
        for table in tables.collect::<rusqlite::Result<Vec<String>>>().unwrap() {
            let mut statement = manifest.prepare(&format!("SELECT * FROM {table}")).unwrap();
            let columns: Vec<String> = statement
                .column_names()
                .into_iter()
                .map(Into::into)
                .collect();
            let mut rows = statement.query([]).unwrap();
            while let Some(row) = rows.next().unwrap() {
                let mut key = String::new();
                let mut line = String::new();
                for (at, column) in columns.iter().enumerate() {
                    let value = format!("{:?}", row.get::<_, Value>(at).unwrap());
                    let value = passing
                        .replace_all(&self.rootless(&value), "_")
                        .into_owned();
                    let is_passing = PASSING.contains(&column.as_str())
                        || PASSING.contains(&format!("{table}.{column}").as_str());
                    let value = match is_passing && value != "Null" {
                        true => "_".to_owned(),
                        false => value,
                    };
                    if at == 0 {
                        key.clone_from(&value);
                    }
                    line.push_str(&format!("{column}={value} "));
                }
                let rows: &mut Vec<u8> = kept.entry(format!("manifest {table} {key}")).or_default();
                rows.extend(format!("{line}\n").into_bytes());
            }
        }
        kept
    }

    /// In which generation of the index each file was first, and which there are.
    fn generations(&self) -> (Vec<Option<u64>>, Vec<String>) {
        let manifest = Manifest::open(&self.path("manifest.sqlite"), self.dir.path()).unwrap();
        let files = manifest.files_after("", self.files + 2).unwrap();
        let entries = fs::read_dir(self.path("index/generations")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.collect();
        names.sort();
        (files.iter().map(|file| file.generation).collect(), names)
    }

    /// What the package of the job holds. Its documents say when each thing was done, and have digests and lengths of documents that
    /// do, and names of parcels, which follow from where a file lay and since when: these are taken out. The archive files
    /// are compared as they are.
    fn packed(&self, kept: &mut BTreeMap<String, Vec<u8>>) {
        let mut package = BTreeMap::new();
        read_below(&self.path("packages"), "packages", &mut package);
        assert!(
            package.len() > self.files,
            "there is no package: {:?}",
            package.keys()
        );
        let passing = [
            r"\d{4}-\d{2}-\d{2}(T[0-9:.]+Z?)?",
            r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
            r"ark:/?\w+/[\w/.-]+",
            r"\b[0-9a-f]{64,128}\b",
            r"warc\.gz-[0-9a-f]{12}",
            r"Payload-Oxum: \d+",
            "SIZE=\"\\d+\"",
        ];
        let passing = regex::bytes::Regex::new(&passing.join("|")).unwrap();
        for (name, bytes) in package {
            let bytes = match name.ends_with(".warc.gz") {
                true => bytes,
                false => passing.replace_all(&bytes, &b"_"[..]).into_owned(),
            };
            kept.insert(name, bytes);
        }
    }
}

fn read_below(dir: &Path, name: &str, kept: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{name}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            read_below(&entry.path(), &name, kept);
        } else {
            kept.insert(name, fs::read(entry.path()).unwrap());
        }
    }
}

fn warc(number: usize) -> Vec<u8> {
    let mut file = Vec::new();
    for page in 0..3 {
        let body = format!(
            "<p>{}</p>",
            format!("text {number} {page} ").repeat(20 + number)
        );
        let http = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let record = format!(
            "WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:{number:08x}-0000-4000-8000-{page:012x}>\r\n\
             WARC-Date: 2026-03-12T10:15:00Z\r\nWARC-Target-URI: http://h{number}.example.org/{page}\r\n\
             Content-Type: application/http; msgtype=response\r\nContent-Length: {}\r\n\r\n{http}\r\n\r\n",
            http.len()
        );
        let mut member = GzEncoder::new(Vec::new(), Compression::default());
        member.write_all(record.as_bytes()).unwrap();
        file.extend(member.finish().unwrap());
    }
    file
}

/// The metadata file of the job, with the list of its files.
fn packing_list(list: &str) -> Vec<u8> {
    let uri = "metadata://a/crawl/reports/archivefiles-report.txt?harvestid=1&jobid=1";
    let record = format!(
        "WARC/1.0\r\nWARC-Type: resource\r\nWARC-Target-URI: {uri}\r\nWARC-Date: 2026-03-12T10:17:00Z\r\n\
         WARC-Record-ID: <urn:uuid:00000000-0000-4000-8000-000000000000>\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{list}\r\n\r\n",
        list.len()
    );
    let mut member = GzEncoder::new(Vec::new(), Compression::default());
    member.write_all(record.as_bytes()).unwrap();
    member.finish().unwrap()
}

/// How many files the test of equality compares.
fn files_to_compare() -> usize {
    let asked = std::env::var("ECLUSE_TEST_FILES").ok();
    asked.map_or(FILES, |files| {
        files.parse().expect("ECLUSE_TEST_FILES is a number")
    })
}

fn servers() -> EngineServers {
    let (nats, weed) = (
        ecluse_peers::server("nats-server"),
        ecluse_peers::server("weed"),
    );
    EngineServers::start(&nats, &weed)
}

#[test]
fn a_host_whose_clock_is_off_does_its_work_and_says_so() {
    let servers = servers();
    let directories = Archive::of(3, "");
    directories.must(&["run", "--once"]);
    let mut off = Archive::of(3, &servers.settings("off-clock"));
    off.off_by = Some("+1h");
    off.must(&["run", "--once"]);
    must_be_equal(&off.kept(), &directories.kept());
    let told = "this host's clock is 1h 00m ahead of the store's";
    let status = off.must(&["status"]);
    assert!(status.contains(told), "{status}");
    let check = off.ecluse(&["check"]);
    let said = String::from_utf8_lossy(&check.stdout);
    assert_eq!(check.status.code(), Some(1), "{said}");
    assert!(said.contains(told), "{said}");
}

#[test]
fn the_same_files_give_the_same_archive_on_both_engines() {
    let mut servers = servers();
    let files = files_to_compare();
    let directories = Archive::of(files, "");
    let jetstream = Archive::of(files, &servers.settings("chain"));
    directories.must(&["run", "--once"]);
    jetstream.must(&["run", "--once"]);
    let kept = jetstream.kept();
    assert!(kept.contains_key("index/index-00001.cdxj.gz"), "one shard");
    must_be_equal(&kept, &directories.kept());
    assert_eq!(jetstream.generations(), directories.generations());
    assert!(
        !jetstream.path("work").exists(),
        "the parcels live elsewhere"
    );

    // The operator's verbs show the same of both.
    let status = jetstream.must(&["status"]);
    assert!(status.contains("Nothing needs you"), "{status}");
    let name = "1-1-20260312101500003-00003-h.warc.gz";
    let life = jetstream.must(&["why", name]);
    for step in ["ingest", "index", "transfer", "backup", "delete", "merge"] {
        assert!(life.contains(step), "{step}: {life}");
    }
    let paused = jetstream.must(&["pause", "index", "--why", "a test"]);
    assert!(paused.contains("index is paused"), "{paused}");
    let bad = "1-1-20260312101509999-09999-h.warc.gz";
    fs::write(
        jetstream.path("harvested").join(bad),
        b"no WARC file at all",
    )
    .unwrap();
    let output = jetstream.ecluse(&["run", "--once"]);
    assert_eq!(
        output.status.code(),
        Some(75),
        "index is paused: {output:?}"
    );
    let status = jetstream.must(&["status", "--json"]);
    assert!(status.contains("a test"), "{status}");
    jetstream.must(&["resume", "index"]);

    // The servers lose all messages, and a run finds what waits.
    servers.lose_all_messages();
    let reconciled = jetstream.must(&["reconcile", "index"]);
    assert!(
        reconciled.contains("index: 1 parcel told of"),
        "{reconciled}"
    );
    let output = jetstream.ecluse(&["run", "--once"]);
    assert_eq!(
        output.status.code(),
        Some(65),
        "it is no WARC file: {output:?}"
    );
    let why = jetstream.must(&["why", bad]);
    assert!(why.contains("held"), "{why}");
    let found = jetstream.must(&["find", "job=1"]);
    assert!(found.contains(bad), "{found}");
    jetstream.must(&["retry", bad]);
    let output = jetstream.ecluse(&["run", "--once"]);
    assert_eq!(
        output.status.code(),
        Some(65),
        "it is still none: {output:?}"
    );
    jetstream.must(&["discard", bad, "--why", "a test"]);
    let status = jetstream.must(&["status"]);
    assert!(status.contains("Nothing needs you"), "{status}");

    // What cannot carry an archive is refused, with the line.
    let settings = servers
        .settings("chain")
        .replace("replicas = 1", "replicas = 3");
    let three = Archive::new(&settings);
    let output = three.ecluse(&["check"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = settings_line(&three.path("pipeline.toml"), "replicas");
    assert!(
        said.contains(&format!(":{line}: 'engine.replicas'")),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(2), "{said}");
}

fn must_be_equal(found: &BTreeMap<String, Vec<u8>>, expected: &BTreeMap<String, Vec<u8>>) {
    let names = |kept: &BTreeMap<String, Vec<u8>>| kept.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(expected));
    for (name, bytes) in expected {
        let texts = || {
            (
                String::from_utf8_lossy(&found[name]),
                String::from_utf8_lossy(bytes),
            )
        };
        assert!(found[name] == *bytes, "{name} is another: {:?}", texts());
    }
}

/// Two copies of the chain on one archive are killed again and again, and once the broker forgets everything.
#[test]
fn killed_at_any_moment_it_ends_with_the_same_archive() {
    let mut servers = servers();
    let directories = Archive::new("");
    directories.must(&["run", "--once"]);
    let killed = Archive::new(&servers.settings("kills"));
    for round in 0..8_u64 {
        let mut copies = [(); 2].map(|()| killed.start(&["run"]));
        for (copy, child) in (1..).zip(&mut copies) {
            thread::sleep(Duration::from_millis(round * 397 * copy % 1500));
            child.kill().unwrap();
            child.wait().unwrap();
        }
        if round == 4 {
            servers.lose_all_messages();
        }
    }
    killed.must(&["run", "--once"]);
    must_be_equal(&killed.kept(), &directories.kept());
    let status = killed.must(&["status"]);
    assert!(status.contains("Nothing needs you"), "{status}");
}

/// What cannot carry an archive is refused, with the line of the settings and what to do.
#[test]
fn bad_servers_are_refused_with_line_and_remedy() {
    let servers = servers();
    let good = servers.settings("refused");
    let endpoint = good.lines().find(|line| line.starts_with("endpoint"));
    let endpoint = endpoint.unwrap();
    let at = |port: u16| format!("endpoint = \"http://127.0.0.1:{port}\"");
    let wrong = tempfile::NamedTempFile::new().unwrap();
    fs::write(wrong.path(), "not-it").unwrap();
    let secret = good.lines().find(|line| line.starts_with("secret-file"));
    let wrong_secret = format!("secret-file = {:?}", wrong.path());
    for (from, to, key, remedy) in [
        (
            "bucket = \"archive\"",
            "bucket = \"elsewhere\"",
            "bucket",
            "make the bucket",
        ),
        (
            secret.unwrap(),
            &wrong_secret,
            "key-file",
            "look into key-file and secret-file",
        ),
        (
            endpoint,
            &at(careless_store("200 OK")),
            "endpoint",
            "does not keep If-None-Match",
        ),
        (
            endpoint,
            &at(careless_store("501 Not Implemented")),
            "endpoint",
            "knows no conditional put",
        ),
        ("replicas = 1", "replicas = 3", "replicas", "set fewer"),
    ] {
        let archive = Archive::new(&good.replace(from, to));
        let output = archive.ecluse(&["check"]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = settings_line(&archive.path("pipeline.toml"), key);
        let is_it = |found: &str| {
            found.contains(&format!(":{line}: 'engine.{key}'")) && found.contains(remedy)
        };
        assert!(said.lines().any(is_it), "{key}: {said}");
        let code = output.status.code();
        assert!(
            code.is_some_and(|code| code >= 2),
            "{key}: {code:?}: {said}"
        );
    }
}

/// With TLS, credentials, another region and a scratch directory elsewhere the chain does the same; what of them is wrong is
/// refused by all programs with the line and the remedy, and not tried again for ever.
#[test]
fn a_guarded_engine_carries_the_chain_and_what_is_wrong_is_refused_by_its_line() {
    let (nats, weed) = (
        ecluse_peers::server("nats-server"),
        ecluse_peers::server("weed"),
    );
    let servers = EngineServers::start_guarded(&nats, &weed);
    let good = format!(
        "{}region = \"lake-1\"\nscratch = \"elsewhere/scratch\"\n",
        servers.settings("guarded")
    );
    let directories = Archive::of(2, "");
    directories.must(&["run", "--once"]);
    let guarded = Archive::of(2, &good);
    guarded.must(&["run", "--once"]);
    must_be_equal(&guarded.kept(), &directories.kept());
    assert!(guarded.path("elsewhere/scratch/index").exists());
    assert!(!guarded.path("scratch").exists());
    let status = guarded.must(&["status"]);
    assert!(status.contains("Nothing needs you"), "{status}");

    let wrong = tempfile::NamedTempFile::new().unwrap();
    fs::write(wrong.path(), "not-it").unwrap();
    let of = |name: &str| format!("{:?}", servers.file(name).display().to_string());
    let wrong = format!("{:?}", wrong.path().display().to_string());
    for (setting, value, key, remedy) in [
        (
            "credentials",
            of("other-user.creds"),
            "credentials",
            "the servers refuse the user in this file",
        ),
        ("credentials", of("no-such-file"), "credentials", "No such"),
        (
            "servers-ca",
            of("other-ca.pem"),
            "servers-ca",
            "name the file with the authority",
        ),
        (
            "store-ca",
            of("other-ca.pem"),
            "store-ca",
            "name the file with the authority",
        ),
        (
            "store-ca",
            wrong.clone(),
            "store-ca",
            "holds no certificate",
        ),
        (
            "secret-file",
            wrong,
            "key-file",
            "look into key-file and secret-file",
        ),
    ] {
        let from = format!("{setting} = {}", settings_value(&good, setting));
        let archive = Archive::of(1, &good.replace(&from, &format!("{setting} = {value}")));
        let line = settings_line(&archive.path("pipeline.toml"), key);
        let told = format!(":{line}: 'engine.{key}'");
        for (words, code) in [(["check"].as_slice(), 2), (&["run", "--once"], 78)] {
            let output = archive.ecluse(words);
            let said = String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr);
            let is_it = |found: &str| found.contains(&told) && found.contains(remedy);
            assert!(said.lines().any(is_it), "{words:?} {told}: {said}");
            assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        }
    }
}

/// Whoever is told of nothing finds what waits when it is time to reconcile, and not before.
#[test]
fn what_nobody_was_told_of_is_found_when_it_is_time_to_reconcile() {
    let mut servers = servers();
    let often = servers.settings("often") + "reconcile = \"500ms\"\n";
    let archive = Archive::of(1, &often);
    archive.must(&["pause", "index", "--why", "a test"]);
    let mut run = archive.start(&["run"]);
    let waits = |stage: &str, what: &str| {
        until("a parcel", || {
            let status = archive.ecluse(&["--json", "status"]);
            let status: serde_json::Value = serde_json::from_slice(&status.stdout).ok()?;
            let stages = status["stages"].as_array()?.iter();
            let mut stages = stages.filter(|found| found["name"] == stage);
            let depth = stages.next()?[what].as_u64()?;
            (depth > 0).then_some(())
        });
    };
    waits("index", "ready");
    servers.lose_all_messages();
    archive.must(&["resume", "index"]);
    until("the file in the repository", || {
        let stored = fs::read_dir(archive.path("repository")).ok()?;
        (stored.count() >= 2).then_some(())
    });
    run.kill().unwrap();
    run.wait().unwrap();
}

/// Of two servers one is away: `status` and `check` say so, and everything else is there.
#[test]
fn a_server_that_is_away_is_told_of() {
    let servers = servers();
    let settings = servers
        .settings("away")
        .replace("servers = [", "servers = [\"nats://127.0.0.1:1\", ");
    let archive = Archive::new(&settings);
    let told = "the server nats://127.0.0.1:1 is cut off from here";
    let status = archive.must(&["status"]);
    assert!(status.contains(told), "{status}");
    assert!(status.contains("NEEDS YOU"), "{status}");
    let is_row = |line: &str| line.contains("CUT OFF") && line.ends_with("nats://127.0.0.1:1");
    assert!(status.lines().any(is_row), "{status}");
    assert!(status.contains("ingest"), "the stages are there: {status}");
    let json: serde_json::Value =
        serde_json::from_str(&archive.must(&["--json", "status"])).unwrap();
    let states: Vec<&str> = json["cluster"]["servers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|server| server["state"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["cut-off", "ok"], "{json}");
    assert!(json["cluster"]["store"]["read_ms"].is_u64(), "{json}");
    let output = archive.ecluse(&["check"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        said.contains(&format!("warning: servers: {told}")),
        "{said}"
    );
    assert!(output.status.code().is_some_and(|code| code >= 1), "{said}");

    // Without any server it ends as something that passes, so that units start it again.
    let none = Archive::new(&servers.settings("away").replace(
        settings_value(&servers.settings("away"), "servers"),
        "[\"nats://127.0.0.1:1\"]",
    ));
    let output = none.ecluse(&["status"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("cannot reach nats://127.0.0.1:1"), "{said}");
    assert_eq!(output.status.code(), Some(75), "{said}");
}

fn settings_value<'a>(settings: &'a str, key: &str) -> &'a str {
    let mut lines = settings.lines();
    let line = lines.find(|line| line.starts_with(key)).unwrap();
    line.split_once(" = ").unwrap().1
}

/// Starts a store that gives every object that is put the same answer, whatever lies there. It ends with the test.
fn careless_store(answer: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // Who hangs up has heard enough.
            thread::spawn(move || answer_carelessly(client, answer));
        }
    });
    port
}

fn answer_carelessly(client: TcpStream, answer: &str) -> io::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    let (mut method, mut bytes) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        if method.is_empty() {
            method = line.split(' ').next().unwrap().to_owned();
        }
        let (name, value) = line.split_once(':').unwrap_or(("", ""));
        if name.eq_ignore_ascii_case("content-length") {
            bytes = value.trim().parse().unwrap();
        }
    }
    io::copy(&mut reader.take(bytes), &mut io::sink())?;
    let status = match method.as_str() {
        "PUT" => answer,
        _ => "404 Not Found",
    };
    let mut client = client;
    write!(
        client,
        "HTTP/1.1 {status}\r\nETag: \"one\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
}

fn settings_line(path: &Path, key: &str) -> usize {
    let text = fs::read_to_string(path).unwrap();
    text.lines().position(|line| line.starts_with(key)).unwrap() + 1
}
