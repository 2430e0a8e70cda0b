//! Every setting turned away from its shipped value, and files taken through the whole chain with it.
//!
//! A key of pipeline.toml that no run below turns is a failure, so that a new one comes with its run. What can be seen of a
//! setting from outside is looked for; the others must at least leave the chain as good as it was.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ecluse_register::{Register, RegisterDay, RegisterRecord};
use ecluse_testkit::root::{Program, settle_environment, until_so};

const ECLUSE: &str = env!("CARGO_BIN_EXE_ecluse");

/// Everything elsewhere and in small pieces; names, collections and proofs of another kind.
const ELSEWHERE: &str = r#"
[archive]
harvested = ["in/one", "in/two"]
repository = [{ name = "a", path = "shelf/a" }, { name = "b", path = "shelf/b" }]
index = "big"
manifest = "files.sqlite"
packages = "boxes"
[defaults]
workers = 2
attempts = 7
heartbeat = "1s"
lease = "5s"
scan = "200ms"
settle = "100ms"
high-mark = 500
low-mark = 100
min-free = "0 B"
keep-receipts = "1d"
grace = "10s"
retry = { first = "100ms", factor = 1.5, max = "500ms", limit = "1d" }
group = { parcels = 2, wait = "1ms" }
batch = { parcels = 50, wait = "300ms" }
[chain]
stages = ["ingest", "index", "transfer", "backup", "delete", "merge", "bigmerge", "clean", "package"]
[stage.ingest]
ignore = [".draft.warc.gz"]
names = ['^(?<job>\d+)_(?<harvest>\d+)\.warc\.gz$']
metadata-names = ['^(?<job>\d+)_(?<harvest>\d+)_meta\.warc\.gz$']
other-names = "hold"
collections = [{ name = "elections", harvests = "9" }]
[stage.index]
format = "cdx11"
revisits = false
not-modified = true
dns = false
metadata = false
warc-fields = true
member = "1 MiB"
bomb = "1 GiB"
header = "64 KiB"
header-lines = 100
sort-memory = "1 B"
damages = 1
[stage.transfer]
choose = "round-robin"
leave-free = "0 B"
layout = "{harvest}/{job}"
[stage.backup]
targets = [
  { name = "one", kind = "directory", path = "copies/one", leave-free = "0 B" },
  { name = "two", kind = "directory", path = "copies/two", leave-free = "0 B" },
]
[stage.delete]
backups = 2
[stage.merge]
batch = { parcels = 50, wait = "300ms" }
memory = "2 MiB"
open-files = 2
[stage.bigmerge]
batch = { parcels = 50, wait = "300ms" }
keep = 1
spare = "0 B"
memory = "2 MiB"
recheck = true
zipnum = true
zipnum-lines = 2
zipnum-shard = "1 KiB"
[stage.clean]
batch = { parcels = 50, wait = "300ms" }
next = ["package"]
remove = true
backups = 2
every = "0s"
[stage.package]
profile = "profile"
part-bytes = "1 B"
part-files = 1
fresh = "0s"
channel = "elsewhere"
naan = "12148"
shoulder = "bc6p0"
check-zone = "name"
[alert]
oldest = { warn = "1h", crit = "2h" }
held = { warn = 0, crit = 1 }
free = { warn = "1 B", crit = "0 B" }
silent = { warn = "1h", crit = "2h" }
[log]
format = "json"
level = "debug"
[metrics]
listen = "127.0.0.1:0"
textfile = "/ROOT/figures/{stage}.prom"
"#;

/// A package with one document.
const PROFILE: &str = r#"
archive = "files"
[[file]]
path = "note.txt"
template = "note.txt"
media-type = "text/plain"
"#;

/// One machine's copy of index, and working copies that stay.
const KEPT: &str = r#"
[defaults]
settle = "100ms"
min-free = "0 B"
[stage.ingest]
next = ["index@alpha"]
[stage.index]
format = "cdx9"
[stage.transfer]
choose = "most-free"
leave-free = "1%"
layout = "{collection}"
[stage.delete]
working-copy = false
[stage.bigmerge]
spare = "0 B"
[stage.clean]
remove = true
"#;

/// The crawl.
const CRAWLED: &str = r#"
[site]
organization = "lock.example"
platform = "rehearsal"
contact = "keeper@lock.example"
[archive]
harvested = ["fresh"]
[defaults]
settle = "100ms"
min-free = "0 B"
[stage.crawl]
next = ["ingest"]
workers = 1
attempts = 10
jobs = "orders"
digests = "seen.sqlite"
pack-threads = 1
commit = "500ms"
active-queues = 10
frontier-memory = "8 MiB"
[stage.transfer]
leave-free = "0 B"
[stage.bigmerge]
spare = "0 B"
"#;

/// Lists of names, elsewhere and in small pieces.
const LISTED: &str = r#"
[archive]
register = "domains"
[defaults]
settle = "100ms"
min-free = "0 B"
[chain]
stages = ["preload", "checked"]
[stage.preload]
next = ["checked"]
batch = { parcels = 9, wait = "300ms" }
sources = "lists"
forced = "rules.toml"
reports = "told"
list = 2
line = "32 B"
memory = "1 MiB"
"#;

/// Keys that have one value only.
const FIXED: [&str; 1] = ["version"];

/// The values of a document by their whole keys; an array is one value.
fn leaves(text: &str) -> BTreeMap<String, toml::Value> {
    fn walk(table: &toml::Table, path: &str, found: &mut BTreeMap<String, toml::Value>) {
        for (key, value) in table {
            let path = if path.is_empty() {
                key.clone()
            } else {
                format!("{path}.{key}")
            };
            match value {
                toml::Value::Table(table) => walk(table, &path, found),
                value => drop(found.insert(path, value.clone())),
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(&text.parse().unwrap(), "", &mut found);
    found
}

#[test]
fn every_documented_setting_is_turned_in_a_run_below() {
    let runs = [ELSEWHERE, KEPT, CRAWLED, LISTED].map(leaves);
    let is_turned = |key: &String, shipped: &toml::Value| {
        let mut values = runs.iter().filter_map(|run| run.get(key));
        values.any(|value| value != shipped)
    };
    let mut forgotten: Vec<String> = leaves(ecluse_config::SHIPPED)
        .into_iter()
        .filter(|(key, value)| !is_turned(key, value))
        .map(|(key, _)| key)
        .collect();
    forgotten.retain(|key| !FIXED.contains(&key.as_str()));
    assert_eq!(forgotten, [""; 0], "no run turns these");
}

struct Archive {
    dir: tempfile::TempDir,
}

impl Archive {
    fn new(settings: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().to_str().unwrap();
        let settings = settings.replace("/ROOT", root);
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

    /// Runs one stage until nothing is left; returns what was said.
    fn stage(&self, stage: &str, expected: i32) -> String {
        let output = self.ecluse(&["run", "--once", stage]);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(expected), "{stage}: {said}");
        said
    }

    fn harvest(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let draft = self.path("draft.tmp");
        fs::write(&draft, bytes).unwrap();
        fs::rename(&draft, path).unwrap();
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The files below a directory, by their paths in it, sorted.
fn below(top: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut stack = vec![top.to_owned()];
    while let Some(directory) = stack.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                stack.push(entry.path());
            } else {
                let path = entry.path();
                found.push(path.strip_prefix(top).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

fn record(kind: &str, uri: &str, content_type: &str, block: &str) -> String {
    let profile = match kind {
        "revisit" => {
            "WARC-Profile: http://netpreserve.org/warc/1.0/revisit/identical-payload-digest\r\n"
        }
        _ => "",
    };
    format!(
        "WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {uri}\r\nWARC-Date: 2026-01-02T03:04:05Z\r\n\
         WARC-Record-ID: <urn:uuid:{kind}-{}>\r\n{profile}Content-Type: {content_type}\r\nContent-Length: {}\r\n\r\n{block}\r\n\r\n",
        uri.len(),
        block.len()
    )
}

/// The metadata of a job that wrote nothing, as its list says.
fn job_metadata() -> Vec<u8> {
    let http = "application/http; msgtype=response";
    let page = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>page</p>";
    let list = "metadata://lock.example/crawl/reports/archivefiles-report.txt?harvestid=9&jobid=8";
    pack(&[
        record("response", "http://job.example/page", http, page),
        record(
            "resource",
            list,
            "text/plain",
            "[ARCHIVEFILE] [Opened] [Closed] [Size]\n",
        ),
    ])
}

/// A file with one record of each kind that a setting is about.
fn warc(host: &str) -> Vec<u8> {
    let http = "application/http; msgtype=response";
    let page = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>page</p>";
    pack(&[
        record("response", &format!("http://{host}/page"), http, page),
        record("revisit", &format!("http://{host}/again"), http, page),
        record(
            "response",
            &format!("dns:{host}"),
            "text/dns",
            "20260102030405\n",
        ),
        record(
            "metadata",
            &format!("http://{host}/said"),
            "text/plain",
            "said",
        ),
        record(
            "resource",
            &format!("http://{host}/fields"),
            "application/warc-fields",
            "a: b\r\n",
        ),
    ])
}

fn pack(records: &[String]) -> Vec<u8> {
    let mut compressor = libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
    let mut file = Vec::new();
    for record in records {
        let mut packed = vec![0; compressor.gzip_compress_bound(record.len())];
        let bytes = compressor
            .gzip_compress(record.as_bytes(), &mut packed)
            .unwrap();
        file.extend(&packed[..bytes]);
    }
    file
}

fn text_of(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The lists in the layout of CDX that wait for transfer.
fn cdx_lists(archive: &Archive) -> Vec<String> {
    let waiting = archive.path("work/transfer/ready");
    let lists = below(&waiting).into_iter();
    let lists = lists.filter(|name| name.ends_with(".cdx"));
    lists.map(|name| text_of(&waiting.join(name))).collect()
}

#[test]
fn everything_elsewhere() {
    let archive = Archive::new(ELSEWHERE);
    fs::create_dir(archive.path("figures")).unwrap();
    fs::create_dir(archive.path("profile")).unwrap();
    fs::write(archive.path("profile/profile.toml"), PROFILE).unwrap();
    let template = "{{ job.name }} by {{ job.channel }}: {{ package.id }}\n";
    fs::write(archive.path("profile/note.txt"), template).unwrap();
    let chain = [
        "transfer", "backup", "delete", "merge", "bigmerge", "clean", "package",
    ];
    for number in 0..4 {
        archive.harvest(
            &format!("in/one/{number}_3.warc.gz"),
            &warc(&format!("h{number}.example")),
        );
    }
    archive.harvest("in/two/7_9.warc.gz", &warc("vote.example"));
    archive.harvest("in/two/8_9_meta.warc.gz", &job_metadata());
    archive.harvest("in/two/odd.warc.gz", &warc("odd.example"));
    archive.harvest("in/one/5_3.draft.warc.gz", &warc("draft.example"));

    let log = archive.stage("ingest", 65);
    let lines: Vec<&str> = log.lines().filter(|line| line.starts_with('{')).collect();
    assert!(
        lines
            .iter()
            .any(|line| line.to_lowercase().contains("\"debug\"")),
        "{log}"
    );
    let held = below(&archive.path("work/ingest/held"));
    assert!(!held.is_empty(), "other-names = hold");
    let check = archive.ecluse(&["check"]);
    assert_eq!(check.status.code(), Some(2), "{}", said(&check));
    assert!(
        said(&check).contains("critical: 1 held"),
        "{}",
        said(&check)
    );

    archive.stage("index", 0);
    let lists = cdx_lists(&archive);
    assert_eq!(lists.len(), 6);
    for list in lists {
        let fields = list.lines().filter(|line| !line.starts_with(" CDX"));
        let fields: Vec<usize> = fields.map(|line| line.split(' ').count()).collect();
        assert_eq!(fields, [11, 11], "{list}");
        assert!(list.lines().is_sorted(), "in pieces of one line: {list}");
    }
    for stage in chain {
        archive.stage(stage, 0);
    }
    let stored: Vec<Vec<String>> = ["shelf/a", "shelf/b"]
        .iter()
        .map(|place| below(&archive.path(place)))
        .collect();
    assert!(
        stored.iter().all(|files| !files.is_empty()),
        "each in its turn: {stored:?}"
    );
    let mut stored: Vec<String> = stored.concat();
    stored.sort();
    let expected = [
        "3/0/0_3.warc.gz",
        "3/1/1_3.warc.gz",
        "3/2/2_3.warc.gz",
        "3/3/3_3.warc.gz",
        "9/7/7_9.warc.gz",
        "9/8/8_9_meta.warc.gz",
    ];
    assert_eq!(stored, expected, "folders by harvest and job");
    for place in ["copies/one", "copies/two"] {
        assert_eq!(below(&archive.path(place)).len(), 6, "{place}");
    }
    let index = text_of(&archive.path("big/current/index.cdxj"));
    assert_eq!(index.lines().count(), 8, "{index}");
    for (word, expected) in [
        ("/page ", 4),
        ("/fields ", 4),
        ("/again ", 0),
        ("/said ", 0),
        ("dns:", 0),
    ] {
        assert_eq!(index.matches(word).count(), expected, "{word}: {index}");
    }
    assert_eq!(
        text_of(&archive.path("big/elections/current/index.cdxj"))
            .lines()
            .count(),
        4
    );
    let current = below(&archive.path("big/current").canonicalize().unwrap());
    assert!(current.contains(&"index.idx".to_owned()), "{current:?}");
    let summary = text_of(&archive.path("big/current/index.idx"));
    assert_eq!(summary.lines().count(), 4, "two lines a member: {summary}");
    assert!(archive.path("files.sqlite").is_file() && !archive.path("manifest.sqlite").exists());
    assert_eq!(
        below(&archive.path("in")),
        ["one/5_3.draft.warc.gz", "two/odd.warc.gz"],
        "what is safe is removed, and nothing else"
    );
    assert!(
        !below(&archive.path("figures")).is_empty(),
        "figures are written"
    );

    let note = text_of(&archive.path("boxes/8-9/data/note.txt"));
    assert!(
        note.starts_with("8 by elsewhere: ark:/12148/bc6p0"),
        "{note}"
    );
    assert_eq!(
        below(&archive.path("boxes/8-9/data/files")),
        ["8_9_meta.warc.gz"]
    );
    let valid = archive.ecluse(&["validate", archive.path("boxes/8-9").to_str().unwrap()]);
    assert_eq!(valid.status.code(), Some(0), "{}", said(&valid));

    archive.harvest("in/one/4_3.warc.gz", &warc("late.example"));
    for stage in ["ingest", "index"].iter().chain(&chain) {
        archive.stage(stage, 0);
    }
    let generations = fs::read_dir(archive.path("big/generations")).unwrap();
    assert_eq!(generations.count(), 1, "one generation stays");
    let index = text_of(&archive.path("big/current/index.cdxj"));
    assert_eq!(index.lines().count(), 10, "{index}");

    // A name that is taken is refused at the door, and so is a file that was never taken in.
    fs::create_dir(archive.path("given")).unwrap();
    for (name, told) in [
        ("4_3.warc.gz", "is in the archive with other bytes"),
        ("6_3.warc.gz", "new files are taken in by ingest"),
    ] {
        let file = archive.path("given").join(name);
        fs::write(&file, warc("other.example")).unwrap();
        let given = archive.ecluse(&["give", "index", file.to_str().unwrap()]);
        assert_eq!(given.status.code(), Some(64), "{}", said(&given));
        assert!(said(&given).contains(told), "{}", said(&given));
    }
    let waiting = fs::read_dir(archive.path("work/index/ready")).unwrap();
    assert_eq!(waiting.count(), 0);
    heartbeat_and_lease(&archive);
}

/// With the shipped values neither would be seen while a test waits.
fn heartbeat_and_lease(archive: &Archive) {
    let start = |host: &str| {
        let mut command = Command::new(ECLUSE);
        settle_environment(&mut command);
        command.arg("--root").arg(archive.dir.path());
        command.args(["run", "transfer"]).env("ECLUSE_HOST", host);
        Program::start(command)
    };
    let workers = || -> Vec<PathBuf> {
        let claim = fs::read_dir(archive.path("work/transfer/claim")).unwrap();
        claim.map(|entry| entry.unwrap().path()).collect()
    };
    let are_from = |workers: &[PathBuf], host: &str| {
        let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        workers.iter().all(|path| name(path).starts_with(host))
    };
    let far = start("far");
    until_so("two workers", || {
        far.must_live();
        workers().len() == 2
    });
    let lease = workers()[0].join(".lease");
    let beat = || lease.metadata().and_then(|meta| meta.modified()).unwrap();
    let first = beat();
    until_so("a heartbeat", || beat() != first);
    drop(far);
    assert_eq!(workers().len(), 2, "left by the dead");
    let mut near = start("near");
    until_so("the lease of another host's workers is over", || {
        near.must_live();
        workers().len() == 2 && are_from(&workers(), "near-")
    });
    assert_eq!(near.stop(), 0, "{}", near.log());
}

#[test]
fn an_instance_and_working_copies_that_stay() {
    let archive = Archive::new(KEPT);
    archive.harvest(
        "harvested/12-3-20261116120000000-00000-h.warc.gz",
        &warc("h.example"),
    );
    archive.stage("ingest", 0);
    archive.stage("index@alpha", 0);
    let lists = cdx_lists(&archive);
    let fields = lists[0].lines().filter(|line| !line.starts_with(" CDX"));
    let fields: Vec<usize> = fields.map(|line| line.split(' ').count()).collect();
    assert_eq!(fields, [9; 4], "{lists:?}");
    for stage in ["transfer", "backup", "delete"] {
        archive.stage(stage, 0);
    }
    let waiting = below(&archive.path("work/merge/ready"));
    assert!(
        waiting.iter().any(|name| name.ends_with(".warc.gz")),
        "{waiting:?}"
    );
    for stage in ["merge", "bigmerge", "clean"] {
        archive.stage(stage, 0);
    }
    let stored = below(&archive.path("repository"));
    assert_eq!(stored, ["unknown/12-3-20261116120000000-00000-h.warc.gz"]);
    assert_eq!(
        text_of(&archive.path("index/current/index.cdxj"))
            .lines()
            .count(),
        4
    );
    // Its working copy was not deleted, so that one proof is missing.
    assert_eq!(below(&archive.path("harvested")).len(), 1);
}

#[test]
fn lists_of_another_kind() {
    let archive = Archive::new(LISTED);
    let day = RegisterDay::new(2026, 1, 1).unwrap();
    let register = Register::at(&archive.path("domains")).unwrap();
    let known = [Ok(RegisterRecord::new("b.fr", day))].into_iter();
    register.update(Vec::new(), known, 3, &|| false).unwrap();
    let rule = "[[rule]]\nverdict = \"out\"\ndomain = \"a.fr\"\nwho = \"x\"\nwhen = \"2026-01-01\"\nwhy = \"y\"\n";
    fs::write(archive.path("rules.toml"), rule).unwrap();
    let list = format!("a.fr\nb.fr\nc.fr\nd.fr\n{}.fr\n", "e".repeat(32));
    archive.harvest("lists/registry/afnic.txt", list.as_bytes());
    archive.stage("preload", 0);
    let mut lists: Vec<String> = below(&archive.path("work/checked/ready"));
    lists.retain(|path| path.ends_with("names.tsv"));
    let lists = lists
        .iter()
        .map(|path| text_of(&archive.path("work/checked/ready").join(path)));
    let lists: Vec<Vec<String>> = lists
        .map(|list| list.lines().map(str::to_owned).collect())
        .collect();
    assert_eq!(lists.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(lists[0][0], "fr,b\tb.fr\tb.fr\tb.fr\tafnic:1\tknown\t-\t-");
    let reports = below(&archive.path("told"));
    let told = reports
        .iter()
        .find(|path| path.ends_with("statistics.json"))
        .unwrap();
    let told: toml::Table =
        serde_json::from_str(&text_of(&archive.path("told").join(told)).replace("null", "0"))
            .unwrap();
    let rejected = &told["sources"].as_array().unwrap()[0]["rejected"];
    assert_eq!(rejected["too-long"].as_integer(), Some(1));
    assert_eq!(rejected["forced-out"].as_integer(), Some(1));
}

fn serve(mut stream: &TcpStream) {
    let mut lines = BufReader::new(stream).lines();
    while let Some(Ok(first)) = lines.next() {
        while lines
            .next()
            .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
        {}
        let (status, body) = match first.split(' ').nth(1) {
            Some("/") => ("200 OK", "<a href=/next>next</a>"),
            Some("/next") => ("200 OK", "<p>the end</p>"),
            _ => ("404 Not Found", ""),
        };
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

#[test]
fn a_crawl_of_another_kind() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            std::thread::spawn(move || serve(&stream));
        }
    });
    let archive = Archive::new(CRAWLED);
    let output = archive.ecluse(&["harvest", &url, "--allow-private", "--delay", "10ms"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let found = archive.ecluse(&["lookup", &format!("{url}next")]);
    assert_eq!(found.status.code(), Some(0), "{}", said(&found));
    assert!(archive.path("seen.sqlite").is_file(), "digests");
    assert!(!below(&archive.path("orders")).is_empty(), "jobs");
    assert!(!archive.path("jobs").exists() && !archive.path("harvested").exists());
    assert!(!below(&archive.path("fresh")).is_empty(), "harvested");
    let status = said(&archive.ecluse(&["status"]));
    assert!(
        status.contains("lock.example") && status.contains("rehearsal"),
        "{status}"
    );
}
