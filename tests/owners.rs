//! Two hosts on one archive, with the real program: one owns the manifest and all that is told in it, the other stands by and
//! takes over. Whatever becomes of the first, every file ends once in repository, manifest and index.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ecluse_manifest::{FileState, Manifest};
use ecluse_testkit::root::settle_environment;
use ecluse_testkit::servers::EngineServers;
use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::process::{Pid, Signal, kill_process};

const ECLUSE: &str = env!("CARGO_BIN_EXE_ecluse");
const FILES: usize = 16;
const PATIENCE: Duration = Duration::from_secs(300);
const STAGES: &str =
    r#"["ingest", "index", "transfer", "backup", "delete", "merge", "bigmerge", "clean"]"#;

const SETTINGS: &str = r#"
# Nobody's death is a parcel's fault here.
[defaults]
attempts = 1000
scan = "200ms"
settle = "100ms"
heartbeat = "500ms"
lease = "LEASE"
min-free = "0 B"
[stage.merge]
batch.wait = "200ms"
[stage.bigmerge]
spare = "0 B"
batch.wait = "200ms"
[stage.clean]
remove = true
batch.wait = "200ms"
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

/// An archive that hosts share, each with settings and a scratch directory of its own.
struct Archive {
    dir: tempfile::TempDir,
}

impl Archive {
    fn new(lease: &str, engine: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for host in ["alpha", "beta"] {
            let scratch = match engine {
                "" => String::new(),
                _ => format!(
                    "scratch = \"scratch-{host}\"\n[hosts]\nalpha = {STAGES}\nbeta = {STAGES}\n"
                ),
            };
            let settings = SETTINGS.replace("LEASE", lease);
            let text = format!("[chain]\nstages = {STAGES}\n{settings}{engine}{scratch}");
            fs::write(dir.path().join(format!("{host}.toml")), text).unwrap();
        }
        fs::create_dir(dir.path().join("harvested")).unwrap();
        Self { dir }
    }

    /// Puts files there, these numbers of all.
    fn harvest(&self, numbers: std::ops::Range<usize>) {
        for number in numbers {
            let name = format!("1-1-2026031210150{number:04}-{number:05}-h.warc.gz");
            let at = self.path("harvested").join(name);
            let draft = at.with_extension("open");
            fs::write(&draft, warc(number)).unwrap();
            fs::rename(draft, at).unwrap();
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn command(&self, host: &str, words: &[&str]) -> Command {
        let mut command = Command::new(ECLUSE);
        settle_environment(&mut command);
        command.env("ECLUSE_HOST", host);
        command.arg("--root").arg(self.dir.path());
        command
            .arg("--config")
            .arg(self.path(&format!("{host}.toml")));
        command.args(words);
        command
    }

    fn ecluse(&self, host: &str, words: &[&str]) -> Output {
        self.command(host, words).output().unwrap()
    }

    fn must(&self, host: &str, words: &[&str]) -> String {
        let output = self.ecluse(host, words);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {said}{errors}");
        said
    }

    fn start(&self, host: &str, words: &[&str]) -> Host {
        let path = self.path(&format!("{host}.log"));
        let log = fs::File::options().create(true).append(true).open(path);
        let mut command = self.command(host, words);
        command.stdout(Stdio::null()).stderr(log.unwrap());
        Host(command.spawn().unwrap())
    }

    /// Ends a host in good order, and does what is left.
    fn finish(&self, hosts: Vec<Host>) {
        for mut host in hosts {
            host.signal(Signal::TERM);
            host.0.wait().unwrap();
        }
        let ended = self.ecluse("beta", &["run", "--once"]);
        let said = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert!(ended.status.success(), "{said}{}", self.logs());
    }

    fn logs(&self) -> String {
        let logs = ["alpha", "beta"].map(|host| {
            let log = fs::read_to_string(self.path(&format!("{host}.log"))).unwrap_or_default();
            let end = log.lines().rev().take(30).collect::<Vec<_>>();
            format!("\n== {host}\n{}", end.join("\n"))
        });
        logs.concat()
    }

    /// Returns how many files the manifest has in the index.
    fn published(&self) -> usize {
        let manifest = self.path("manifest.sqlite");
        let Ok(manifest) = Manifest::open_to_read(&manifest, self.dir.path()) else {
            return 0;
        };
        let files = manifest.files_after("", FILES + 1).unwrap_or_default();
        let files = files.iter();
        files
            .filter(|file| file.state >= FileState::Published)
            .count()
    }

    /// What is kept for good, by path; where the root stands in a text it is taken out.
    fn kept(&self) -> BTreeMap<String, Vec<u8>> {
        let mut kept = BTreeMap::new();
        for part in ["repository", "backup", "harvested"] {
            read_below(&self.path(part), part, &mut kept);
        }
        for name in ["index.cdxj", "path-index.txt"] {
            let text = fs::read_to_string(self.path("index/current").join(name)).unwrap();
            let root = self.dir.path().display().to_string();
            kept.insert(name.to_owned(), text.replace(&root, "").into_bytes());
        }
        let manifest = Manifest::open(&self.path("manifest.sqlite"), self.dir.path()).unwrap();
        for file in manifest.files_after("", FILES + 1).unwrap() {
            let line = format!("{:?} {:?} {:?}", file.state, file.bytes, file.sha256);
            kept.insert(format!("manifest {}", file.name), line.into_bytes());
        }
        kept
    }
}

/// The processes of a host.
struct Host(Child);

impl Host {
    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads who owns the manifest, and under which fence.
fn owner(servers: &EngineServers, prefix: &str) -> Option<(String, u64)> {
    let dir = tempfile::tempdir().unwrap();
    servers
        .mirror(&format!("{prefix}/owners"), dir.path())
        .ok()?;
    let sheet = fs::read(dir.path().join("manifest")).ok()?;
    let sheet: serde_json::Value = serde_json::from_slice(&sheet).ok()?;
    let is_free = sheet["free"].as_bool().unwrap_or(false);
    let host = sheet["host"].as_str()?.to_owned();
    (!is_free).then_some((host, sheet["fence"].as_u64()?))
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

/// Waits for what several processes do one after the other: longer than that takes on a busy machine.
fn eventually<Value>(
    archive: &Archive,
    what: &str,
    mut is_so: impl FnMut() -> Option<Value>,
) -> Value {
    let began = Instant::now();
    loop {
        if let Some(value) = is_so() {
            return value;
        }
        let waited = began.elapsed();
        assert!(
            waited < PATIENCE,
            "waited {waited:?} in vain: {what}{}",
            archive.logs()
        );
        thread::sleep(Duration::from_millis(50));
    }
}

fn servers() -> EngineServers {
    let (nats, weed) = (
        ecluse_peers::server("nats-server"),
        ecluse_peers::server("weed"),
    );
    EngineServers::start(&nats, &weed)
}

/// What one machine makes of all files.
fn by_one_machine() -> BTreeMap<String, Vec<u8>> {
    let archive = Archive::new("60s", "");
    archive.harvest(0..FILES);
    archive.must("alpha", &["run", "--once"]);
    archive.kept()
}

fn must_be_equal(found: &BTreeMap<String, Vec<u8>>, expected: &BTreeMap<String, Vec<u8>>) {
    let names = |kept: &BTreeMap<String, Vec<u8>>| kept.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(expected));
    for (name, bytes) in expected {
        assert!(found[name] == *bytes, "{name} is another");
    }
}

#[test]
fn when_the_owner_dies_another_host_takes_over() {
    let servers = servers();
    let archive = Archive::new("12s", &servers.settings("dies"));
    archive.harvest(0..FILES / 2);
    // Allowed, and said what it takes.
    let checked = archive.ecluse("alpha", &["check"]);
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(said.contains("one owns the manifest at a time"), "{said}");

    // The lease is long enough that a busy machine is not taken for a dead one.
    // Alpha owns it and only takes in: what comes after that waits, and beta says for whom.
    let alpha = archive.start("alpha", &["run", "ingest", "index"]);
    eventually(&archive, "alpha to own the manifest", || {
        (owner(&servers, "dies")? == ("alpha".to_owned(), 1)).then_some(())
    });
    let beta = archive.start("beta", &["run"]);
    let status = eventually(&archive, "beta to stand by", || {
        // Until the first file is taken in there is no archive to look at.
        let status = archive.ecluse("alpha", &["status"]).stdout;
        let status = String::from_utf8_lossy(&status).into_owned();
        let lines = status.lines().filter(|line| line.contains("transfer"));
        let said = lines.filter(|line| line.contains("stands by: alpha owns the manifest"));
        (said.count() > 0).then_some(status)
    });
    assert!(status.contains("BLOCKED"), "{status}");
    assert_eq!(
        archive.published(),
        0,
        "nobody but the owner stores anything"
    );
    let once = archive.ecluse("beta", &["run", "transfer", "--once"]);
    assert_eq!(once.status.code(), Some(75), "{once:?}");

    drop(alpha);
    archive.harvest(FILES / 2..FILES);
    eventually(&archive, "beta to take over", || {
        (owner(&servers, "dies")? == ("beta".to_owned(), 2)).then_some(())
    });
    eventually(&archive, "all files to be in the index", || {
        (archive.published() == FILES).then_some(())
    });
    archive.finish(vec![beta]);
    must_be_equal(&archive.kept(), &by_one_machine());
    let status = archive.must("beta", &["status"]);
    assert!(status.contains("Nothing needs you"), "{status}");

    // Given up in good order: another host need not wait for the lease to end.
    assert_eq!(owner(&servers, "dies"), None);
    archive.must("alpha", &["run", "--once"]);
}

#[test]
fn an_owner_that_was_stopped_and_wakes_up_does_no_harm() {
    let servers = servers();
    let archive = Archive::new("3s", &servers.settings("stopped"));
    let mut hosts = BTreeMap::from([
        ("alpha", archive.start("alpha", &["run"])),
        ("beta", archive.start("beta", &["run"])),
    ]);
    let rounds = 3;
    let mut fence = 0;
    for round in 0..rounds {
        let (name, before) = eventually(&archive, "an owner", || owner(&servers, "stopped"));
        assert!(before >= fence, "fences rise");
        // In the middle of what it does with these; how far it is, is another thing each time.
        archive.harvest(round * 4..round * 4 + 4);
        eventually(&archive, "the owner to have begun", || {
            let manifest = archive.path("manifest.sqlite");
            let manifest = Manifest::open_to_read(&manifest, archive.dir.path()).ok()?;
            let files = manifest.files_after("", FILES + 1).ok()?;
            (files.len() > round * 4 + round).then_some(())
        });
        hosts[name.as_str()].signal(Signal::STOP);
        fence = eventually(&archive, "another owner", || {
            let (other, fence) = owner(&servers, "stopped")?;
            (other != name && fence > before).then_some(fence)
        });
        hosts[name.as_str()].signal(Signal::CONT);
    }
    archive.harvest(rounds * 4..FILES);
    eventually(&archive, "all files to be in the index", || {
        (archive.published() == FILES).then_some(())
    });
    let hosts = ["alpha", "beta"].map(|name| hosts.remove(name).unwrap());
    archive.finish(hosts.into());
    must_be_equal(&archive.kept(), &by_one_machine());
    let status = archive.must("beta", &["status"]);
    assert!(status.contains("Nothing needs you"), "{status}");
    let log = fs::read_to_string(archive.path("alpha.log")).unwrap()
        + &fs::read_to_string(archive.path("beta.log")).unwrap();
    assert!(
        log.contains("stands by:") && log.contains("taken over"),
        "{log}"
    );
}
