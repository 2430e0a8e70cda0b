//! The recipes of `ops/runbook.md`, typed as they stand, each where it belongs.
//!
//! `/srv/ecluse` is the root of the test, STAGE, PARCEL and JOB are what the recipe is about. Programs of the machine that are no
//! part of Écluse (systemctl, journalctl …) only note that they were called.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use ecluse_testkit::root::{Program, settle_environment, until_so};

const ECLUSE: &str = env!("CARGO_BIN_EXE_ecluse");
const RUNBOOK: &str = include_str!("../ops/runbook.md");
const SETTINGS: &str = r#"
[site]
contact = "keeper@lock.example"
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
/// Programs that are called and do nothing here.
const OTHERS: [&str; 7] = [
    "systemctl",
    "journalctl",
    "iostat",
    "resolvectl",
    "coredumpctl",
    "findmnt",
    "systemd-sysusers",
];

/// Returns the lines that are typed in a section of the runbook.
fn recipe(title: &str) -> Vec<String> {
    let start = RUNBOOK.find(&format!("\n## {title}")).unwrap();
    let section = &RUNBOOK[start + 1..];
    let section = section[2..]
        .find("\n## ")
        .map_or(section, |end| &section[..end + 2]);
    let lines = section.lines().filter_map(|line| line.strip_prefix("    "));
    let lines: Vec<String> = lines.map(str::to_owned).collect();
    assert!(!lines.is_empty(), "{title}: nothing is typed");
    lines
}

/// A machine with an archive.
struct Machine {
    dir: tempfile::TempDir,
}

impl Machine {
    fn new(settings: &str) -> Self {
        let machine = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        for dir in ["root", "bin", "etc/systemd/system", "tmp"] {
            fs::create_dir_all(machine.path(dir)).unwrap();
        }
        fs::write(machine.root().join("pipeline.toml"), settings).unwrap();
        symlink(ECLUSE, machine.path("bin/ecluse")).unwrap();
        machine.script("sudo", "[ \"$1\" = -u ] && shift 2\nexec \"$@\"");
        for name in OTHERS {
            machine.script(name, "exit 0");
        }
        for stage in ["crawl", "index", "preload", "transfer"] {
            machine.script(
                &format!("ecluse-{stage}"),
                &format!("exec {ECLUSE} stage {stage} \"$@\""),
            );
        }
        assert!(machine.sh("ecluse init").status.success());
        machine
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn root(&self) -> PathBuf {
        self.path("root")
    }

    fn script(&self, name: &str, text: &str) {
        let path = self.path("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        settle_environment(&mut command);
        let path = std::env::var("PATH").unwrap();
        command
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .env("ECLUSE_ROOT", self.root())
            .current_dir(self.dir.path());
        command
    }

    fn sh(&self, line: &str) -> Output {
        self.command("sh").arg("-c").arg(line).output().unwrap()
    }

    fn run_once(&self) -> i32 {
        self.sh("ecluse run --once").status.code().unwrap()
    }

    fn status(&self) -> String {
        String::from_utf8(self.sh("ecluse status").stdout).unwrap()
    }

    /// Types the lines of a recipe; each must do what it says.
    fn type_all(&self, title: &str, words: &[(&str, &str)]) {
        for line in recipe(title) {
            let root = self.root().display().to_string();
            let mut typed = line.replace("/srv/ecluse", &root);
            for (from, to) in [
                ("/usr/bin/", self.path("bin/")),
                ("/etc/systemd/system", self.path("etc/systemd/system")),
                ("/tmp/units", self.path("tmp/units")),
            ] {
                typed = typed.replace(from, &to.display().to_string());
            }
            for (from, to) in words {
                typed = typed.replace(from, to);
            }
            // Units of a root in a temporary directory are refused, and rightly so.
            let is_of_units = typed.starts_with("ecluse units");
            let root = if is_of_units { "/srv/ecluse" } else { &root };
            let output = match typed.contains("--watch") {
                true => self.watched(&typed),
                false => self.sh(&format!("ECLUSE_ROOT={root}; {typed}")),
            };
            let code = output.status.code().unwrap_or(-1);
            // A monitor's code is an answer, and so is a diff.
            let is_answer = typed.contains("ecluse check") || typed.contains("| grep");
            assert!(
                code == 0 || (is_answer && code <= 2),
                "{title}: {typed}\n{code}: {}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }

    /// Types a line at a terminal of its own, and then `q`.
    fn watched(&self, line: &str) -> Output {
        let mut script = self
            .command("script")
            .args(["-qec", line, "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        script.stdin.take().unwrap().write_all(b"q").unwrap();
        script.wait_with_output().unwrap()
    }
}

/// A (W)ARC file with one capture.
fn good_warc() -> Vec<u8> {
    let block = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nhello";
    format!(
        "WARC/1.1\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:00000000-0000-4000-8000-000000000001>\r\n\
         WARC-Date: 2026-01-01T00:00:00Z\r\nWARC-Target-URI: http://a.example/\r\n\
         Content-Type: application/http;msgtype=response\r\nContent-Length: {}\r\n\r\n{block}\r\n\r\n",
        block.len()
    )
    .into_bytes()
}

fn put(machine: &Machine, name: &str, bytes: &[u8]) {
    let harvested = machine.root().join("harvested");
    fs::create_dir_all(&harvested).unwrap();
    fs::write(harvested.join(name), bytes).unwrap();
}

#[test]
fn a_held_file_is_looked_at_taken_out_and_comes_back_repaired() {
    let machine = Machine::new(SETTINGS);
    let name = "145-412-20260101000000000-00001-host.warc";
    put(&machine, name, b"this is no WARC file\n");
    assert_eq!(machine.run_once(), 65, "{}", machine.status());
    assert!(
        machine.status().contains("NEEDS YOU (1)"),
        "{}",
        machine.status()
    );
    machine.type_all("1. ", &[]);
    assert!(
        machine.status().contains("Nothing needs you"),
        "{}",
        machine.status()
    );
    // Under its old name it would end in delete, for ever: it is refused at the door.
    fs::write(machine.path(name), good_warc()).unwrap();
    let given = machine.sh(&format!("ecluse give index {name}"));
    assert_eq!(given.status.code(), Some(64));
    let said = String::from_utf8(given.stderr).unwrap();
    assert!(said.contains("another name"), "{said}");
    let repaired = "145-412-20260101000000000-00002-repaired.warc";
    put(&machine, repaired, &good_warc());
    assert_eq!(machine.run_once(), 0, "{}", machine.status());
    assert!(
        machine.status().contains("Nothing needs you"),
        "{}",
        machine.status()
    );
    let found = machine.sh("ecluse lookup http://a.example/");
    assert!(found.status.success());
    let found = String::from_utf8(found.stdout).unwrap();
    assert!(found.contains(repaired), "{found}");
}

#[test]
fn a_full_disk_a_halt_a_silence_and_a_queue_are_looked_at() {
    let machine = Machine::new(SETTINGS);
    let paused = machine.sh("ecluse pause index --why 'node swap'");
    assert!(paused.status.success());
    put(
        &machine,
        "145-412-20260101000000000-00001-host.warc",
        &good_warc(),
    );
    assert_eq!(machine.run_once(), 75, "{}", machine.status());
    let words = [("STAGE", "index"), ("PARCEL", "145-412")];
    for title in ["2. ", "3. ", "5. ", "7. ", "9. ", "10. "] {
        machine.type_all(title, &words);
    }
    assert!(machine.status().contains("PAUSED"));
    machine.type_all("4. ", &words);
    assert!(!machine.status().contains("PAUSED"), "{}", machine.status());
    machine.type_all("8. ", &words);
    assert_eq!(machine.run_once(), 0, "{}", machine.status());
}

#[test]
fn what_is_deferred_is_tried_again_when_the_cause_is_gone() {
    let full = SETTINGS.replacen("leave-free = \"0 B\"", "leave-free = \"900 PB\"", 1);
    let machine = Machine::new(&full);
    let name = "145-412-20260101000000000-00001-host.warc";
    put(&machine, name, &good_warc());
    assert_eq!(machine.run_once(), 75, "{}", machine.status());
    fs::write(machine.root().join("pipeline.toml"), SETTINGS).unwrap();
    machine.type_all("6. ", &[("STAGE", "transfer"), ("PARCEL", "145-412")]);
    assert!(machine.sh("ecluse resume transfer").status.success());
    assert_eq!(machine.run_once(), 0, "{}", machine.status());
}

#[test]
fn a_bad_copy_is_put_back() {
    let machine = Machine::new(SETTINGS);
    let name = "145-412-20260101000000000-00001-host.warc";
    put(&machine, name, &good_warc());
    assert_eq!(machine.run_once(), 0, "{}", machine.status());
    let stored = String::from_utf8(machine.sh("find root/repository -name '145*.warc'").stdout);
    let stored = machine.path(stored.unwrap().trim());
    fs::set_permissions(&stored, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(&stored, "rot").unwrap();
    assert_eq!(machine.sh("ecluse verify").status.code(), Some(65));
    assert!(
        machine.status().contains("a copy is bad"),
        "{}",
        machine.status()
    );
    machine.type_all("12. ", &[]);
    assert_eq!(fs::read(&stored).unwrap(), good_warc());
    assert!(
        machine.status().contains("Nothing needs you"),
        "{}",
        machine.status()
    );
}

/// Serves a page with many links.
fn serve() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            std::thread::spawn(move || answer(&stream));
        }
    });
    port
}

fn answer(mut stream: &TcpStream) {
    let links: String = (0..50).map(|n| format!("<a href='/{n}'>{n}</a>")).collect();
    let mut lines = BufReader::new(stream).lines();
    while let Some(Ok(line)) = lines.next() {
        if line.is_empty() {
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n",
                links.len()
            );
            if stream.write_all((head + &links).as_bytes()).is_err() {
                return;
            }
        }
    }
}

#[test]
fn a_job_is_changed_paused_and_ended() {
    let machine = Machine::new(SETTINGS);
    let url = format!("http://127.0.0.1:{}/", serve());
    let mut command = machine.command(ECLUSE);
    command.args(["harvest", &url, "--allow-private", "--delay", "500ms"]);
    let mut harvest = Program::start(command);
    until_so("the job runs", || {
        let jobs = machine.sh("ecluse jobs");
        String::from_utf8(jobs.stdout).unwrap().contains("running")
    });
    let change = "[[manners.groups]]\nname = \"weak\"\nhosts = [\"127.0.0.1\"]\nmin-delay = \"1s\"\nmax-delay = \"1s\"\n";
    fs::write(machine.path("slower.toml"), change).unwrap();
    machine.type_all("11. ", &[("JOB", "127.0.0.1")]);
    assert_eq!(harvest.wait(), 0, "{}", harvest.log());
    let jobs = String::from_utf8(machine.sh("ecluse jobs").stdout).unwrap();
    assert!(
        jobs.contains("finished") && jobs.contains("enough"),
        "{jobs}"
    );
}

#[test]
fn a_list_comes_and_has_many_rejects() {
    let settings = SETTINGS.to_owned()
        + "[stage.preload]\nnext = []\nbatch = { parcels = 64, wait = \"50ms\" }\n";
    let machine = Machine::new(&settings);
    let list = machine.path("new.txt");
    fs::write(&list, "exemple.fr\n127.0.0.1\n").unwrap();
    let tried = [machine.path("tmp/tried.tsv"), machine.path("tmp/tried")];
    let [names, reports] = tried.each_ref().map(|path| path.to_str().unwrap());
    let reports = format!("--reports {reports}");
    let words = [
        ("LIST", list.to_str().unwrap()),
        ("/tmp/tried.tsv", names),
        ("--reports /tmp/tried", &reports),
    ];
    machine.type_all("13. ", &words);
    assert!(
        fs::read_to_string(names)
            .unwrap()
            .contains("\texemple.fr\t")
    );
    assert!(tried[1].join("rejects.tsv.zst").exists());
    let taken = machine.sh("ecluse run preload --once");
    assert!(taken.status.success(), "{taken:?}");

    let stands = machine.root().join("sources/registry/afnic.txt");
    fs::write(&stands, "Nom;URL\nUn;http://seul.fr/\n").unwrap();
    machine.type_all("14. ", &[("LIST", stands.to_str().unwrap())]);
    let taken = machine.sh("ecluse run preload --once");
    assert!(taken.status.success(), "{taken:?}");
    let told = machine.sh("cat root/reports/preload/*/names.tsv");
    let told = String::from_utf8(told.stdout).unwrap();
    assert!(told.contains("\tseul.fr\t"), "{told}");
}

#[test]
fn every_recipe_is_typed_somewhere() {
    let here = include_str!("runbook.rs");
    let titles = RUNBOOK.lines().filter_map(|line| line.strip_prefix("## "));
    for title in titles.filter(|title| title.starts_with(|c: char| c.is_ascii_digit())) {
        let number = title.split_inclusive(". ").next().unwrap();
        assert!(here.contains(&format!("\"{number}\"")), "{title}");
    }
    assert!(Path::new(ECLUSE).exists());
}
