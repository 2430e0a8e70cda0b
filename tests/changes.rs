//! A small site harvested twice: what changed is known, told and judged.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ecluse_changes::{ChangeRecord, PageChanges, RecordReader, VersionChange};
use ecluse_testkit::root::settle_environment;
use quick_xml::Reader;
use quick_xml::events::Event;
use serde_json::Value;

const ECLUSE: &str = env!("CARGO_BIN_EXE_ecluse");
const QUICK: &str = r#"
[site]
contact = "keeper@lock.example"
[defaults]
settle = "100ms"
min-free = "0 B"
[stage.bigmerge]
spare = "0 B"
[stage.transfer]
leave-free = "0 B"
[[stage.backup.targets]]
name = "backup"
kind = "directory"
path = "backup"
leave-free = "0 B"
"#;

/// A site with a page that is another at each visit of the crawler, one that is not, and a sitemap.
struct Site {
    port: u16,
    visit: Arc<AtomicUsize>,
}

impl Site {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let site = Self {
            port: listener.local_addr().unwrap().port(),
            visit: Arc::default(),
        };
        let (visit, port) = (Arc::clone(&site.visit), site.port);
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let visit = Arc::clone(&visit);
                std::thread::spawn(move || serve(&stream, port, &visit));
            }
        });
        site
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }
}

fn serve(mut stream: &TcpStream, port: u16, visit: &AtomicUsize) {
    let mut lines = BufReader::new(stream).lines();
    while let Some(Ok(first)) = lines.next() {
        let path = first.split(' ').nth(1).unwrap_or("/").to_owned();
        while lines
            .next()
            .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
        {}
        let news = match visit.load(Ordering::SeqCst) {
            0 => "The gate is open today",
            _ => "The gate is closed today",
        };
        let (status, kind, body) = match path.as_str() {
            "/" => (
                "200 OK",
                "text/html",
                format!(
                    "<nav><a href=/still>Still &amp; quiet</a> <a href=/map.xml>Map</a></nav><main><h1>News</h1><p>{news}</p></main>"
                ),
            ),
            "/still" => (
                "200 OK",
                "text/html",
                "<h1>Nothing happens here</h1>".to_owned(),
            ),
            "/map.xml" => (
                "200 OK",
                "application/xml",
                format!(
                    "<urlset><url><loc>http://127.0.0.1:{port}/still</loc><lastmod>2020-01-02</lastmod></url></urlset>"
                ),
            ),
            _ => ("404 Not Found", "text/plain", "no".to_owned()),
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nETag: \"{}\"\r\nContent-Length: {}\r\n\r\n",
            body.len(),
            body.len()
        );
        if stream.write_all((head + &body).as_bytes()).is_err() {
            return;
        }
    }
}

struct Archive {
    dir: tempfile::TempDir,
}

impl Archive {
    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn ecluse(&self, words: &[&str], expected: i32) -> Output {
        let mut command = Command::new(ECLUSE);
        settle_environment(&mut command);
        command.arg("--root").arg(self.dir.path()).args(words);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(expected), "{words:?}: {said}");
        output
    }

    fn json(&self, words: &[&str]) -> Value {
        let output = self.ecluse(&[words, &["--json"]].concat(), 0);
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn records<Record: ChangeRecord>(&self) -> Vec<Record> {
        let reader = RecordReader::open(&self.path("changes/current")).unwrap();
        reader.map(Result::unwrap).collect()
    }

    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let entries = fs::read_dir(self.path("changes/current")).unwrap();
        let mut files: Vec<(String, Vec<u8>)> = entries
            .map(|entry| entry.unwrap())
            .map(|entry| {
                (
                    entry.file_name().into_string().unwrap(),
                    fs::read(entry.path()).unwrap(),
                )
            })
            .filter(|(name, _)| name != "generation.json")
            .collect();
        files.sort();
        files
    }
}

#[test]
fn a_site_harvested_twice_has_the_right_changes() {
    let site = Site::new();
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("pipeline.toml"), QUICK).unwrap();
    let archive = Archive { dir };
    for visit in 0..2 {
        site.visit.store(visit, Ordering::SeqCst);
        archive.ecluse(
            &[
                "harvest",
                &site.url("/"),
                "--allow-private",
                "--delay",
                "1ms",
            ],
            0,
        );
    }
    let pages: Vec<PageChanges> = archive.records();
    let page = |path: &str| {
        let url = site.url(path);
        pages
            .iter()
            .find(|page| page.url == url)
            .unwrap_or_else(|| panic!("{pages:?}"))
    };
    let home = page("/");
    assert_eq!((home.looks, home.changes), (2, 1));
    assert!(home.change_weight.unwrap() > 0.0 && home.etag.is_some());
    let still = page("/still");
    assert_eq!(
        (still.looks, still.changes, still.change_weight),
        (2, 0, None)
    );
    assert_eq!(still.signal.unwrap().1.to_string(), "20200102000000");
    let versions: Vec<VersionChange> = archive.records();
    let changed: Vec<&VersionChange> = versions
        .iter()
        .filter(|version| version.before.is_some())
        .collect();
    let [change] = &changed[..] else {
        panic!("{versions:?}")
    };
    assert_eq!(change.surt, home.surt);
    // One text of the two below the heading, rewritten in part.
    assert_eq!(change.counts.counts, [[0, 0, 1], [0, 0, 0], [0, 0, 0]]);

    // The same once more, from the index and the documents alone.
    let before = archive.files();
    archive.ecluse(&["rebuild", "changes", "--why", "a test"], 0);
    assert!(archive.files() == before, "made anew, it is the same");

    // As a site-delta.
    let name = format!("127.0.0.1:{}", site.port);
    let output = archive.ecluse(&["delta", &name], 0);
    let xml = String::from_utf8(output.stdout).unwrap();
    let mut statuses = Vec::new();
    let mut has_mirror = false;
    let mut reader = Reader::from_str(&xml);
    loop {
        match reader.read_event().unwrap() {
            Event::Start(element) | Event::Empty(element) => {
                has_mirror |= element.name().as_ref() == b"mirror";
                if let Some(status) = element.try_get_attribute("status").unwrap() {
                    statuses.push(String::from_utf8(status.value.into_owned()).unwrap());
                }
            }
            Event::Eof => break,
            _ => {}
        }
    }
    assert!(has_mirror, "{xml}");
    for status in ["new", "updated", "unchanged", "error"] {
        assert!(
            statuses.iter().any(|found| found == status),
            "{status} {xml}"
        );
    }
    let told = archive.json(&["delta", &name]);
    let pages = told["pages"].as_array().unwrap();
    let home = pages
        .iter()
        .find(|page| page["url"] == site.url("/"))
        .unwrap();
    assert_eq!(
        home["documents"][0]["status"], "updated",
        "newest first: {home}"
    );
    assert_eq!(home["documents"][1]["status"], "new");
    let time = home["documents"][1]["date"].as_str().unwrap();
    for (which, expected) in [("last-before", 1), ("first-after", 1), ("likeliest", 1)] {
        let told = archive.json(&["delta", &name, "--at", time, "--which", which]);
        let pages = told["pages"].as_array().unwrap();
        let found = pages
            .iter()
            .find(|page| page["url"] == site.url("/"))
            .unwrap();
        assert_eq!(
            found["documents"][0]["date"], home["documents"][expected]["date"],
            "{which}"
        );
    }
    archive.ecluse(&["delta", &name, "--to", "2001"], 1);
    archive.ecluse(&["delta", &name, "--from", "yesterday"], 64);

    // What was caught: all that the archive knows of.
    let told = archive.json(&["quality", &name]);
    assert_eq!(
        (&told["kind"], &told["changes"]),
        (&Value::from("site"), &Value::from(1)),
        "{told}"
    );
    assert_eq!(told["completeness"]["in_all"], 1.0, "{told}");
    assert!(told["completeness"]["estimated"].as_f64().unwrap() <= 1.0);
    let coherence = &told["coherence"];
    assert_eq!(coherence["changed"], 0, "{told}");
    let jobs = fs::read_dir(archive.path("jobs")).unwrap();
    let mut jobs: Vec<String> = jobs
        .map(|job| job.unwrap().file_name().into_string().unwrap())
        .collect();
    jobs.retain(|job| job.contains('-'));
    jobs.sort();
    let told = archive.json(&["quality", &jobs[0]]);
    assert_eq!(told["kind"], "job", "{told}");
    assert!(told["pages"].as_u64().unwrap() >= 3, "{told}");
    let output = archive.ecluse(&["jobs", &jobs[0]], 0);
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(
        told.contains("of the changes known of were caught"),
        "{told}"
    );
    archive.ecluse(&["quality", "nobody.example"], 1);
}
