//! `ecluse demo` with the real program: to the end, again, and killed on the way.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ecluse_testkit::root::settle_environment;
use serde_json::Value;

const ECLUSE: &str = env!("CARGO_BIN_EXE_ecluse");
/// A small disk is no reason to wait, and a file left by a kill is at rest at once.
const QUICK: &str = r#"
[defaults]
settle = "100ms"
min-free = "0 B"
attempts = 100
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

struct Demo {
    dir: tempfile::TempDir,
    port: u16,
}

impl Demo {
    fn new() -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        Self::at(free.local_addr().unwrap().port())
    }

    fn at(port: u16) -> Self {
        // A shell must be told where such a name ends.
        let mut dir = tempfile::Builder::new();
        let dir = dir.prefix("a demo's archive ").tempdir().unwrap();
        fs::write(dir.path().join("pipeline.toml"), QUICK).unwrap();
        Self { dir, port }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn command(&self) -> Command {
        let mut command = self.command_in_words();
        command.arg("--json");
        command
    }

    fn command_in_words(&self) -> Command {
        let mut command = Command::new(ECLUSE);
        settle_environment(&mut command);
        let port = self.port.to_string();
        command
            .args(["demo", "--port", &port, "--into"])
            .arg(self.dir.path());
        command
    }

    /// Runs it to its end; returns what it reports.
    fn finish(&self) -> Value {
        let output = self.command().output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{complaint}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns the URLs of the index, whatever their port.
    fn urls(&self) -> BTreeSet<String> {
        let index = fs::read_to_string(self.path("index/current/index.cdxj")).unwrap();
        let port = format!(":{}", self.port);
        let lines = index.lines().map(|line| {
            let fields = line.splitn(3, ' ').nth(2).unwrap();
            let fields: Value = serde_json::from_str(fields).unwrap();
            fields["url"].as_str().unwrap().replace(&port, "")
        });
        // What is written about a job is named after it.
        let of_web = lines.filter(|url| url.starts_with("http"));
        of_web.collect()
    }
}

impl Demo {
    /// The lines of the index about the web, without times and places: one for each capture, and one for each with its
    /// payload and type. Which of two equal pages came first and is the whole one depends on when the crawl was killed.
    fn captures(&self) -> Vec<String> {
        let index = fs::read_to_string(self.path("index/current/index.cdxj")).unwrap();
        let lines = index.lines().flat_map(|line| {
            let (key, rest) = line.split_once(' ').unwrap();
            let fields: Value = serde_json::from_str(&rest[15..]).unwrap();
            let field = |name: &str| fields[name].as_str().unwrap_or("-").to_owned();
            let (url, mime, status) = (field("url"), field("mime"), field("status"));
            let digest = field("digest");
            let of_web = url.starts_with("http");
            let pair = [
                format!("{key} {url} {status} {digest}"),
                format!("{digest} {mime}"),
            ];
            of_web.then_some(pair).into_iter().flatten()
        });
        let mut captures: Vec<String> = lines.collect();
        captures.sort();
        captures
    }
}

impl Demo {
    /// The files of all packages, with a sign for every number: times, serials and ports differ from run to run.
    fn packed(&self) -> BTreeSet<String> {
        let top = self.path("packages");
        let files = ecluse_testkit::root::contents(&top).into_keys();
        let names = files.map(|path| path.to_string_lossy().into_owned());
        let shown = |name: String| {
            let mut shown = String::new();
            for character in name.chars() {
                match character.is_ascii_digit() {
                    true if shown.ends_with('#') => {}
                    true => shown.push('#'),
                    false => shown.push(character),
                }
            }
            shown
        };
        names.map(shown).collect()
    }

    /// The archive files in all packages, by name.
    fn packed_archives(&self) -> BTreeSet<String> {
        let files = ecluse_testkit::root::contents(&self.path("packages")).into_keys();
        let names = files.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
        names.filter(|name| name.contains(".warc")).collect()
    }
}

fn count(report: &Value, key: &str) -> u64 {
    report[key]
        .as_u64()
        .unwrap_or_else(|| panic!("{key}: {report}"))
}

fn names_in(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn a_demo_goes_to_its_end_and_finds_little_new_the_second_time() {
    let demo = Demo::new();
    let first = demo.finish();
    assert!(count(&first, "captures") > 60, "{first}");
    assert_eq!(first["held"].as_array().unwrap().len(), 0, "{first}");
    let urls = demo.urls();
    for url in [
        "http://canal.localhost/",
        "http://canal.localhost/locks/12",
        "http://canal.localhost/oldest?from=older",
        "http://canal.localhost/base.css",
        "http://canal.localhost/font/lock.woff",
        "http://canal.localhost/img/lock5.svg",
        "http://canal.localhost/maps/canal.svg",
        "http://canal.localhost/visit/in",
        "http://museum.localhost/cellar/5",
        "http://files.localhost/survey.bin",
        "http://files.localhost/notes/2.txt",
        "http://slow.localhost/busy",
        "http://slow.localhost/drip",
        "http://calendar.localhost/calendar/2026/11/",
    ] {
        assert!(urls.contains(url), "{url} is missing in {urls:#?}");
    }
    for url in [
        "http://canal.localhost/staff/",
        "http://museum.localhost/private/vault",
        "http://calendar.localhost/calendar/2030/1/",
    ] {
        assert!(!urls.contains(url), "{url} should not be there");
    }
    let failed = first["failed"].as_array().unwrap();
    for status in [404, -9998] {
        assert!(failed.iter().any(|one| one["status"] == status), "{first}");
    }
    let stored = names_in(&demo.path("repository"));
    assert_eq!(stored, names_in(&demo.path("backup")));
    assert_eq!(stored.len(), first["files"].as_array().unwrap().len());
    assert_eq!(demo.packed_archives(), stored, "it ends with a package");

    let second = demo.finish();
    assert_ne!(first["harvest"], second["harvest"]);
    assert_eq!(second["went_on"], false);
    assert!(count(&second, "revisits") > 40, "{second}");
    assert!(count(&second, "captures") < count(&first, "captures") / 2);
    assert_eq!(demo.urls(), urls);
}

/// How often a demo is killed; one that is done before is begun once more, from nothing.
const KILLS: u32 = 50;

#[test]
fn a_demo_that_is_killed_ends_with_the_same_captures() {
    let whole = Demo::new();
    whole.finish();
    let reference = whole.captures();
    let mut dice = 0x2545_f491_4f6c_dd1d_u64;
    let mut kills = 0;
    while kills < KILLS {
        // On the same port: it stands in the links of the pages, and so in their digests.
        let killed = Demo::at(whole.port);
        let before = kills;
        while kills < KILLS && kill_once(&killed, &mut dice) {
            kills += 1;
        }
        let report = killed.finish();
        assert!(kills > before, "it was done before it could be killed");
        assert_eq!(
            killed.captures(),
            reference,
            "after {kills} kills: {report}"
        );
        assert_eq!(killed.packed(), whole.packed());
        assert_eq!(
            killed.packed_archives(),
            names_in(&killed.path("repository"))
        );
        let jobs = names_in(&killed.path("jobs"));
        let jobs = jobs.iter().filter(|name| name.starts_with("demo-"));
        assert_eq!(jobs.count(), 1, "one harvest, however often it died");
    }
}

/// Starts a demo and kills it after a while; tells whether it was still at work.
fn kill_once(demo: &Demo, dice: &mut u64) -> bool {
    let mut child = demo
        .command()
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    *dice ^= *dice << 13;
    *dice ^= *dice >> 7;
    *dice ^= *dice << 17;
    let deadline = Instant::now() + Duration::from_millis(20 + *dice % 400);
    while Instant::now() < deadline && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    if child.try_wait().unwrap().is_some() {
        return false;
    }
    child.kill().unwrap();
    child.wait().unwrap();
    true
}

#[test]
fn what_a_newcomer_is_told_to_try_works() {
    let demo = Demo::new();
    let output = demo.command_in_words().output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    let look = text.lines().find_map(|line| line.strip_prefix("  look "));
    let tries = text.lines().skip_while(|line| *line != "Try next:").skip(1);
    let mut commands: Vec<&str> = tries.collect();
    assert_eq!(commands.len(), 4, "{text}");
    commands.extend(look);
    for command in commands {
        // What stands behind a wide gap is for people.
        let command = command.trim().split("   ").next().unwrap();
        let mut shell = Command::new("sh");
        settle_environment(&mut shell);
        let output = shell.args(["-c", command]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{command}\n{output:?}");
        assert!(!output.stdout.is_empty(), "{command}");
    }
    // A harvest leaves nothing behind that looks like trouble.
    let mut status = Command::new(ECLUSE);
    settle_environment(&mut status);
    status.arg("status").arg("--root").arg(demo.dir.path());
    let status = status.output().unwrap();
    let screen = String::from_utf8(status.stdout).unwrap();
    assert!(screen.contains("Nothing needs you."), "{screen}");
}

#[test]
fn a_port_that_is_taken_is_named() {
    let demo = Demo::new();
    let _taken = TcpListener::bind(("127.0.0.1", demo.port)).unwrap();
    let output = demo.command().output().unwrap();
    assert_eq!(output.status.code(), Some(64));
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(
        complaint.contains(&format!("127.0.0.1:{}", demo.port)) && complaint.contains("--port"),
        "{complaint}"
    );
}
