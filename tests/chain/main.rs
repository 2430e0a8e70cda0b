//! The indexing process from `harvested/` to the big index, with the real program.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

mod deaths;
mod lost;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant, SystemTime};

use ecluse_manifest::{FileState, Manifest};
use ecluse_testkit::machine::{empty, fill, inside, mount, sh};
use ecluse_testkit::root::{Program, until_so};
use rustix::process::Signal;

const ECLUSE: &str = env!("CARGO_BIN_EXE_ecluse");
/// The indexing process, in order.
const CHAIN: [&str; 8] = [
    "ingest", "index", "transfer", "backup", "delete", "merge", "bigmerge", "clean",
];
/// Gathering stages do not wait for the end of a day here, and files are at rest at once.
const QUICK: &str = r#"
[defaults]
scan = "200ms"
settle = "100ms"
heartbeat = "1s"
lease = "5s"
min-free = "0 B"
attempts = 1000
[defaults.retry]
first = "100ms"
max = "500ms"
[stage.merge]
batch = { parcels = 50, wait = "300ms" }
[stage.bigmerge]
batch = { parcels = 50, wait = "300ms" }
spare = "0 B"
[stage.clean]
batch = { parcels = 50, wait = "300ms" }
remove = true
every = "1s"
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

/// An archive in a directory of its own.
struct Archive {
    dir: tempfile::TempDir,
}

impl Archive {
    fn new(settings: &str) -> Self {
        let archive = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        archive.configure(settings);
        fs::create_dir(archive.path("harvested")).unwrap();
        archive
    }

    fn configure(&self, settings: &str) {
        fs::write(self.path("pipeline.toml"), settings).unwrap();
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(ECLUSE);
        command.arg("--root").arg(self.dir.path()).args(arguments);
        command.env_remove("ECLUSE_CONFIG").env("NO_COLOR", "1");
        command
    }

    fn ecluse(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Takes everything through the chain; returns the exit code and what was said.
    fn once(&self, stages: &[&str]) -> (i32, String) {
        let output = self
            .command(&["run", "--once"])
            .args(stages)
            .output()
            .unwrap();
        let code = output.status.code().unwrap();
        (code, said(&output))
    }

    /// Harvests a file that has been at rest for an hour, whole at once.
    fn harvest(&self, name: &str, bytes: &[u8]) {
        let draft = self.path("draft.tmp");
        fs::write(&draft, bytes).unwrap();
        let old = SystemTime::now() - Duration::from_secs(3600);
        fs::File::open(&draft).unwrap().set_modified(old).unwrap();
        fs::rename(&draft, self.path("harvested").join(name)).unwrap();
    }

    fn manifest(&self) -> Manifest {
        Manifest::open(&self.path("manifest.sqlite"), self.dir.path()).unwrap()
    }

    fn status(&self) -> String {
        said(&self.ecluse(&["status"]))
    }

    /// Returns the lines of the current index.
    fn index(&self) -> Vec<String> {
        lines(&self.path("index/current/index.cdxj"))
    }

    /// Every file is where it belongs, once, with its bytes and its lines.
    fn must_hold(&self, files: &[(String, Vec<u8>)], state: FileState) {
        let mut expected = Vec::new();
        let mut names = Vec::new();
        for (name, bytes) in files {
            assert_eq!(
                fs::read(self.path("repository").join(name)).unwrap(),
                *bytes
            );
            assert_eq!(fs::read(self.path("backup").join(name)).unwrap(), *bytes);
            expected.extend(self.lines_of(name));
            names.push(name.clone());
        }
        expected.sort();
        assert_eq!(self.index(), expected, "each line once, in order");
        names.sort();
        let paths = lines(&self.path("index/current/path-index.txt"));
        let located: Vec<&str> = paths
            .iter()
            .map(|l| l.split('\t').next().unwrap())
            .collect();
        assert_eq!(located, names, "each file once in the PATH file");
        assert_eq!(
            self.manifest().counts().unwrap(),
            [(state, files.len() as u64)]
        );
        for place in ["repository", "backup"] {
            let found: BTreeSet<String> = entries(&self.path(place)).into_iter().collect();
            assert_eq!(
                found,
                names.iter().cloned().collect(),
                "nothing else in {place}"
            );
        }
        let left = payloads(&self.path("work"));
        assert_eq!(left, [""; 0], "no working copy is left");
    }

    /// Every place that the index and the manifest name is below the root, and a file is there.
    fn must_be_at_home(&self) {
        let lines = lines(&self.path("index/current/path-index.txt"));
        let mut places: Vec<String> = lines
            .iter()
            .map(|line| line.split('\t').nth(1).unwrap().to_owned())
            .collect();
        let manifest = self.manifest();
        let found = manifest.find(&[], |row| {
            let copies = manifest.copies(&row.name)?;
            for copy in copies {
                if let Some(proof) = copy.proof {
                    let place = manifest.places().short(&copy.place);
                    assert!(proof.contains(&*place), "{proof}");
                }
                places.push(copy.place);
            }
            places.extend(row.source);
            Ok::<(), ecluse_manifest::ManifestError>(())
        });
        found.unwrap();
        for place in places {
            let is_ours = Path::new(&place).starts_with(self.dir.path());
            assert!(is_ours && Path::new(&place).is_file(), "{place}");
        }
    }

    /// Returns the lines of a stored file as the filter gives them.
    fn lines_of(&self, name: &str) -> Vec<String> {
        let output = Command::new(ECLUSE)
            .args(["stage", "index", "--root"])
            .arg(self.dir.path())
            .arg(self.path("repository").join(name))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

fn said(output: &Output) -> String {
    let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.push_str(&String::from_utf8_lossy(&output.stderr));
    said
}

fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.lines().map(str::to_owned).collect()
}

fn entries(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap();
    let name =
        |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    entries.map(name).collect()
}

/// Returns the archive files below a directory.
fn payloads(top: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut stack = vec![top.to_owned()];
    while let Some(dir) = stack.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                stack.push(entry.path());
            } else if entry.file_name().to_string_lossy().ends_with(".warc.gz") {
                found.push(entry.path().display().to_string());
            }
        }
    }
    found
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Makes an archive file: one gzip member a record.
fn warc(seed: usize, records: usize) -> Vec<u8> {
    let mut file = gzip(b"WARC/1.0\r\nWARC-Type: warcinfo\r\nWARC-Date: 2026-01-02T03:04:05Z\r\nWARC-Record-ID: <urn:uuid:0>\r\nContent-Type: application/warc-fields\r\nContent-Length: 13\r\n\r\nsoftware: x\r\n\r\n\r\n");
    for record in 0..records {
        let body = format!("<p>{seed} {record}</p>").repeat(30);
        let block = format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n{body}");
        let head = format!(
            "WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://h{}.example/{seed}/{record}\r\nWARC-Date: 2026-01-02T03:{:02}:{:02}Z\r\nWARC-Record-ID: <urn:uuid:{seed}-{record}>\r\nContent-Type: application/http; msgtype=response\r\nContent-Length: {}\r\n\r\n",
            seed % 7,
            record / 60 % 60,
            record % 60,
            block.len()
        );
        file.extend(gzip(format!("{head}{block}\r\n\r\n").as_bytes()));
    }
    file
}

fn files(count: usize) -> Vec<(String, Vec<u8>)> {
    let name = |number: usize| {
        format!(
            "12-3-20261116120000{:03}-{number:05}-h.warc.gz",
            number % 1000
        )
    };
    (0..count)
        .map(|number| (name(number), warc(number, 5)))
        .collect()
}

#[test]
fn what_lies_in_harvested_is_in_the_index_and_stored() {
    let archive = Archive::new("");
    let files = files(5);
    for (name, bytes) in &files {
        archive.harvest(name, bytes);
    }
    let stages = &CHAIN[..7];
    let (code, said) = archive.once(stages);
    assert_eq!(code, 0, "{said}");
    archive.must_hold(&files, FileState::Published);
    let found = archive.ecluse(&["lookup", "http://h3.example/3/2"]);
    assert_eq!(found.status.code(), Some(0));
    let line = String::from_utf8(found.stdout).unwrap();
    assert!(
        line.starts_with("example,h3)/3/2 20260102030002 {"),
        "{line}"
    );
    // Once more there is nothing to do; a new file joins.
    let (code, said) = archive.once(stages);
    assert_eq!(code, 0, "{said}");
    archive.must_hold(&files, FileState::Published);
    assert!(archive.path("index/generations/1").exists());
    let mut more = files.clone();
    more.push(("late.warc.gz".to_owned(), warc(99, 3)));
    archive.harvest("late.warc.gz", &more[5].1);
    let (code, said) = archive.once(stages);
    assert_eq!(code, 0, "{said}");
    archive.must_hold(&more, FileState::Published);
    // As shipped, clean only says what it would remove.
    let (code, said) = archive.once(&["clean"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("would remove 6 files of "), "{said}");
    assert_eq!(entries(&archive.path("harvested")).len(), 6);
}

#[test]
fn an_index_machine_sorts_in_its_own_directory() {
    // More lines than memory: they are sorted on disk.
    let archive = Archive::new(
        "[stage.ingest]\nnext = [\"index@alpha\"]\n[stage.index]\nsort-memory = \"1 B\"\n",
    );
    let files = files(2);
    for (name, bytes) in &files {
        archive.harvest(name, bytes);
    }
    let machine = ["ingest", "index@alpha", "transfer", "backup", "delete"];
    for stage in machine.iter().chain(&["merge", "bigmerge"]) {
        let (code, said) = archive.once(&[stage]);
        assert_eq!(code, 0, "{stage}: {said}");
    }
    assert!(!archive.path("work/index").exists());
    archive.must_hold(&files, FileState::Published);
}

#[test]
fn a_collection_goes_to_an_index_of_its_own() {
    let archive = Archive::new(
        "[stage.ingest]\ncollections = [{ name = \"elections\", harvests = \"9\" }]\n",
    );
    archive.harvest("1-9-20261116120000000-00000-h.warc.gz", &warc(1, 2));
    archive.harvest("1-3-20261116120000000-00001-h.warc.gz", &warc(2, 3));
    let (code, said) = archive.once(&CHAIN[..7]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(archive.index().len(), 3);
    assert_eq!(
        lines(&archive.path("index/elections/current/index.cdxj")).len(),
        2
    );
    let found = archive.ecluse(&[
        "lookup",
        "--collection",
        "elections",
        "http://h1.example/1/0",
    ]);
    assert_eq!(found.status.code(), Some(0), "{}", said_of(&found));
}

fn said_of(output: &Output) -> String {
    said(output)
}

#[test]
fn bad_files_are_held_with_a_reason_and_cost_no_neighbour() {
    let archive = Archive::new(QUICK);
    let good = files(3);
    for (name, bytes) in &good {
        archive.harvest(name, bytes);
    }
    archive.harvest("nul.warc.gz", &[0; 100_000]);
    archive.harvest("text.warc", b"this is no archive file\n");
    archive.harvest("new\nline\x1b[31m.warc.gz", &warc(50, 1));
    fs::create_dir(archive.path("harvested/directory.warc.gz")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", archive.path("harvested/link.warc.gz")).unwrap();
    let (code, said) = archive.once(&CHAIN[..7]);
    assert_eq!(code, 65, "{said}");
    let status = archive.status();
    for words in [
        // Two files with one fault are one entry.
        "2 parcels: no record in nul.warc.gz",
        "is a directory",
        "is a symbolic link",
        "its name",
    ] {
        assert!(status.contains(words), "{words}: {status}");
    }
    assert!(!status.contains('\x1b'), "{status:?}");
    for (name, bytes) in &good {
        assert_eq!(
            fs::read(archive.path("repository").join(name)).unwrap(),
            *bytes
        );
    }
    assert_eq!(archive.index().len(), 15);
}

#[test]
fn a_truncated_file_passes_with_its_good_records_and_says_so() {
    let archive = Archive::new("");
    let whole = warc(4, 6);
    archive.harvest("truncated.warc.gz", &whole[..whole.len() - 40]);
    let (code, said) = archive.once(&CHAIN[..7]);
    assert_eq!(code, 0, "{said}");
    assert!(archive.index().len() >= 5);
    let row = archive
        .manifest()
        .file("truncated.warc.gz")
        .unwrap()
        .unwrap();
    assert_eq!(row.damages, Some(1));
    archive.harvest("empty.warc.gz", b"");
    let (code, said) = archive.once(&CHAIN[..7]);
    assert_eq!(code, 0, "{said}");
    let status = archive.status();
    assert!(status.contains("2 damaged files"), "{status}");
    assert!(status.contains("find damaged"), "{status}");
    let output = self::said(&archive.ecluse(&["find", "damaged"]));
    assert!(
        output.contains("truncated.warc.gz  (damaged in 1 place)"),
        "{output}"
    );
    assert!(
        output.contains("empty.warc.gz  (damaged in 1 place)"),
        "{output}"
    );
    let output = archive.ecluse(&["find", "damaged", "--json"]);
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["found"].as_array().unwrap().len(), 2, "{found}");
    let why = self::said(&archive.ecluse(&["why", "truncated.warc.gz"]));
    let damage = archive.manifest().damage("truncated.warc.gz").unwrap();
    assert!(why.contains("damaged in 1 place"), "{why}");
    assert!(why.contains(&damage[0].to_string()), "{why}");
    let why = self::said(&archive.ecluse(&["why", "empty.warc.gz"]));
    assert!(why.contains("the file is empty"), "{why}");
}
