//! The indexing process from `harvested/` to the big index, with the real program.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

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

/// The chain as eight processes, each restarted when it was killed.
struct Fleet<'a> {
    archive: &'a Archive,
    programs: Vec<Program>,
}

impl<'a> Fleet<'a> {
    fn start(archive: &'a Archive) -> Self {
        let programs = CHAIN.map(|stage| Program::start(command(archive, stage)));
        Self {
            archive,
            programs: programs.into(),
        }
    }

    fn kill(&mut self, at: usize) {
        self.programs[at].signal(Signal::KILL);
        self.programs[at].wait();
        self.programs[at] = Program::start(command(self.archive, CHAIN[at]));
    }

    fn stop(mut self) {
        for program in &mut self.programs {
            let code = program.stop();
            // One that was killed a moment ago may not listen yet, and has said nothing either.
            let just_began = code == -15 && program.log().is_empty();
            assert!(code == 0 || just_began, "{code}: {}", program.log());
        }
    }
}

fn command(archive: &Archive, stage: &str) -> Command {
    let mut command = Command::new(ECLUSE);
    command
        .args(["stage", stage, "--root"])
        .arg(archive.dir.path());
    command.env_remove("ECLUSE_CONFIG");
    command
}

/// A small generator: the same kills every time the test runs.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn five_hundred_kills_lose_nothing_and_double_nothing() {
    const KILLS: usize = 500;
    let archive = Archive::new(QUICK);
    let files = files(200);
    let mut fleet = Fleet::start(&archive);
    let mut dice = 0x5eed_u64;
    let mut harvested = 0;
    for kill in 0..KILLS {
        // The files come while it is killed, so that every stage has work at every moment.
        while harvested < files.len() && harvested * KILLS <= kill * files.len() * 10 / 9 {
            let (name, bytes) = &files[harvested];
            archive.harvest(name, bytes);
            harvested += 1;
        }
        std::thread::sleep(Duration::from_millis(next(&mut dice) % 120));
        fleet.kill((next(&mut dice) % CHAIN.len() as u64) as usize);
    }
    assert_eq!(harvested, files.len());
    let deadline = Instant::now() + Duration::from_secs(120);
    until_so("all files cleaned", || {
        assert!(Instant::now() < deadline, "{}", archive.status());
        let counts = archive.manifest().counts().unwrap();
        counts == [(FileState::Cleaned, files.len() as u64)]
    });
    fleet.stop();
    archive.must_hold(&files, FileState::Cleaned);
    assert_eq!(
        entries(&archive.path("harvested")),
        [""; 0],
        "clean removed them"
    );
    for stage in CHAIN {
        let held = entries(&archive.path(&format!("work/{stage}/held")));
        assert_eq!(held, [""; 0], "{stage}");
    }
    let generations = entries(&archive.path("index/generations"));
    assert!(generations.len() <= 3, "{generations:?}");
}

#[test]
fn a_failing_backup_command_waits_says_why_and_goes_on() {
    let archive = Archive::new("");
    let mark = archive.path("well");
    let script = archive.path("backup.sh");
    fs::write(
        &script,
        format!("#!/bin/sh\ntest -e {} || {{ echo 'the tape robot is stuck' >&2; exit 3; }}\necho tape-1\n", mark.display()),
    )
    .unwrap();
    let targets = format!(
        "{QUICK}\n[[stage.backup.targets]]\nname = \"tape\"\nkind = \"command\"\ncommand = [\"/bin/sh\", \"{}\", \"{{path}}\", \"{{sha256}}\"]\n",
        script.display()
    );
    archive.configure(&targets);
    let files = files(3);
    for (name, bytes) in &files {
        archive.harvest(name, bytes);
    }
    let (code, said) = archive.once(&CHAIN[..7]);
    assert_eq!(code, 75, "{said}");
    let status = archive.status();
    assert!(status.contains("the tape robot is stuck"), "{status}");
    assert!(!archive.path("index/current").exists());
    // The command works again: whenever the deferred are due, they go on by themselves.
    fs::write(&mark, "").unwrap();
    until_so("the deferred go on", || archive.once(&CHAIN[..7]).0 == 0);
    assert_eq!(archive.index().len(), 15);
    let proof = archive.manifest().copies(&files[0].0).unwrap();
    let tape = proof.iter().find(|copy| copy.target == "tape").unwrap();
    assert_eq!(tape.place, "tape-1");
}

#[test]
fn a_full_disk_pauses_the_chain_and_it_goes_on_when_there_is_room() {
    if !inside("a_full_disk_pauses_the_chain_and_it_goes_on_when_there_is_room") {
        return;
    }
    let archive = Archive::new(QUICK);
    mount(archive.dir.path(), "64m");
    archive.configure(QUICK);
    fs::create_dir(archive.path("harvested")).unwrap();
    fs::create_dir(archive.path("draft")).unwrap();
    let files = files(10);
    for (name, bytes) in &files {
        fs::write(archive.path("draft").join(name), bytes).unwrap();
    }
    let mut chain = Program::start(archive.command(&["run"]));
    until_so("the chain runs", || {
        chain.must_live();
        archive.path("manifest.sqlite").exists() && archive.path("work/clean/claim").exists()
    });
    let filler = fill(archive.dir.path());
    // A rename needs no room: the files come all the same.
    for (name, _) in &files {
        let from = archive.path("draft").join(name);
        fs::rename(from, archive.path("harvested").join(name)).unwrap();
    }
    // It waits, says so, and goes on by itself.
    until_so("status says why", || {
        chain.must_live();
        let status = archive.status();
        status.contains("No space left") || status.contains("disk is full")
    });
    empty(&filler);
    until_so("all files cleaned", || {
        chain.must_live();
        archive.manifest().counts().unwrap() == [(FileState::Cleaned, 10)]
    });
    assert_eq!(chain.stop(), 0, "{}", chain.log());
    archive.must_hold(&files, FileState::Cleaned);
}

#[test]
fn a_read_only_location_pauses_the_chain_and_it_goes_on_when_it_is_well() {
    if !inside("a_read_only_location_pauses_the_chain_and_it_goes_on_when_it_is_well") {
        return;
    }
    let archive = Archive::new(QUICK);
    let repository = archive.path("repository");
    mount(&repository, "64m");
    sh("mount -o remount,ro \"$1\"", &repository);
    let files = files(5);
    for (name, bytes) in &files {
        archive.harvest(name, bytes);
    }
    let mut chain = Program::start(archive.command(&["run"]));
    until_so("status says why", || {
        chain.must_live();
        archive.status().contains("Read-only file system")
    });
    assert!(!archive.path("index/current").exists());
    sh("mount -o remount,rw \"$1\"", &repository);
    until_so("all files cleaned", || {
        chain.must_live();
        archive.manifest().counts().unwrap() == [(FileState::Cleaned, 5)]
    });
    assert_eq!(chain.stop(), 0, "{}", chain.log());
    archive.must_hold(&files, FileState::Cleaned);
}

/// What the manifest says of each file, without the seconds at which it was told.
fn rows(manifest: &Manifest) -> Vec<String> {
    let mut rows = Vec::new();
    let found = manifest.find(&[], |mut row| {
        row.deleted = row.deleted.map(|_| "then".to_owned());
        let copies = manifest.copies(&row.name)?;
        let damage = manifest.damage(&row.name)?;
        let skipped = manifest.skipped(&row.name)?;
        rows.push(format!("{row:?} {copies:?} {damage:?} {skipped:?}"));
        Ok::<(), ecluse_manifest::ManifestError>(())
    });
    found.unwrap();
    rows
}

#[test]
fn a_lost_manifest_is_made_again_from_receipts_and_stored_files() {
    let archive = Archive::new(QUICK);
    for number in 0..3 {
        let name = format!("{number}-7-20260101000000000-00001-h.warc.gz");
        archive.harvest(&name, &warc(number, 4));
    }
    let whole = warc(9, 6);
    archive.harvest("cut.warc.gz", &whole[..whole.len() - 40]);
    let (code, said) = archive.once(&CHAIN[..7]);
    assert_eq!(code, 0, "{said}");
    // One of the files a second time, and one that is on its way.
    fs::create_dir(archive.path("harvested/again")).unwrap();
    archive.harvest("again/0-7-20260101000000000-00001-h.warc.gz", &warc(0, 4));
    let (code, said) = archive.once(&["ingest"]);
    assert_eq!(code, 0, "{said}");
    archive.harvest("8-metadata-1.warc.gz", &warc(8, 2));
    let (code, said) = archive.once(&CHAIN[..3]);
    assert_eq!(code, 0, "{said}");
    let before = rows(&archive.manifest());
    assert_eq!(before.len(), 5);
    // Some of what is known is in the ledger only.
    let tree = ecluse_spool::WorkTree::open(&archive.path("work"));
    for stage in ["ingest", "index", "transfer", "merge"] {
        assert!(
            ecluse_spool::fold(&tree, stage, Duration::ZERO).unwrap() > 0,
            "{stage}"
        );
    }
    let output = archive.ecluse(&["rebuild", "manifest", "--dry-run"]);
    assert_eq!(output.status.code(), Some(0), "{}", self::said(&output));
    let garbage = "not a database, but long enough to be taken for one: ".repeat(20);
    fs::write(archive.path("manifest.sqlite"), &garbage).unwrap();
    // What only somebody's hand can have put there is taken up as well.
    fs::write(archive.path("repository/by-hand.warc.gz"), warc(5, 1)).unwrap();
    let output = archive.ecluse(&["rebuild", "manifest", "--why", "it was lost"]);
    let words = self::said(&output);
    assert_eq!(output.status.code(), Some(0), "{words}");
    assert!(
        words.contains("6 files") && words.contains("1 stored file without"),
        "{words}"
    );
    let mut after = rows(&archive.manifest());
    after.retain(|row| !row.contains("by-hand"));
    assert_eq!(after, before);
    let old = fs::read_dir(archive.dir.path()).unwrap();
    let mut old = old.map(|entry| entry.unwrap().path());
    let old = old.find(|path| {
        let path = path.to_string_lossy();
        path.contains("manifest.sqlite.old-") && path.ends_with('Z')
    });
    assert_eq!(fs::read(old.unwrap()).unwrap(), garbage.as_bytes());
    // Nobody knows whether something was frozen: nothing is removed until a person says so.
    assert!(archive.status().contains("nothing is removed since"));
    // That nothing bad is known is no reason: nothing was read.
    let output = archive.ecluse(&["repair", "--all"]);
    assert!(self::said(&output).contains("stay frozen"), "{output:?}");
    assert!(archive.manifest().frozen().unwrap().is_some());
    let output = archive.ecluse(&["verify", "--release", "--why", "looked"]);
    assert_eq!(output.status.code(), Some(0), "{}", self::said(&output));
    let (code, said) = archive.once(&CHAIN[..7]);
    assert_eq!(code, 0, "{said}");
    let row = archive
        .manifest()
        .file("8-metadata-1.warc.gz")
        .unwrap()
        .unwrap();
    assert_eq!(row.state, FileState::Published);
    // With a manifest that can be read, checks and freeze are taken over, and nothing changes.
    let output = archive.ecluse(&["verify"]);
    assert_eq!(output.status.code(), Some(0), "{}", self::said(&output));
    let checks = |manifest: &Manifest| manifest.copies("cut.warc.gz").unwrap()[0].checked.clone();
    let checked = checks(&archive.manifest());
    let output = archive.ecluse(&["rebuild", "manifest"]);
    assert_eq!(output.status.code(), Some(0), "{}", self::said(&output));
    assert!(checked.is_some());
    assert_eq!(checks(&archive.manifest()), checked);
    assert!(archive.manifest().frozen().unwrap().is_none());
}

#[test]
fn a_file_whose_claim_was_removed_by_hand_is_told_and_given_again() {
    let archive = Archive::new(QUICK);
    let files = files(3);
    for (name, bytes) in &files {
        archive.harvest(name, bytes);
    }
    let (code, said) = archive.once(&CHAIN[..3]);
    assert_eq!(code, 0, "{said}");
    assert!(!archive.status().contains("on no stage"));
    // A worker of backup has one of them, and somebody cleans up.
    let tree = ecluse_spool::WorkTree::open(&archive.path("work"));
    let limits = ecluse_spool::WorkerLimits::default();
    let mut worker = ecluse_spool::Worker::open(&tree, "backup", &[], limits, "test").unwrap();
    let scan = worker.scan().unwrap();
    assert!(worker.claim(&scan.waiting[0]).unwrap().is_some());
    assert!(!archive.status().contains("on no stage"));
    let home = archive.path("work/backup/claim").join(worker.id().as_str());
    fs::remove_dir_all(home).unwrap();
    drop(worker);
    let (code, said) = archive.once(&CHAIN[..7]);
    assert_eq!(code, 0, "{said}");
    let states = archive.manifest().counts().unwrap();
    assert_eq!(states, [(FileState::Stored, 1), (FileState::Published, 2)]);
    let status = archive.status();
    assert!(status.contains("1 file is on no stage"), "{status}");
    assert!(status.contains("give index --lost"), "{status}");
    let check = archive.ecluse(&["check"]);
    let words = self::said(&check);
    assert!(words.contains("warning: index: 1 file is on"), "{words}");
    let given = archive.ecluse(&["give", "index", "--lost", "--why", "claim was removed"]);
    assert_eq!(given.status.code(), Some(0), "{}", self::said(&given));
    assert!(!archive.status().contains("on no stage"));
    // What waits in a day's list is on a stage too.
    let (code, said) = archive.once(&CHAIN[..6]);
    assert_eq!(code, 0, "{said}");
    assert!(!entries(&archive.path("work/bigmerge/ready")).is_empty());
    assert!(!archive.status().contains("on no stage"));
    let (code, said) = archive.once(&CHAIN[..7]);
    assert_eq!(code, 0, "{said}");
    archive.must_hold(&files, FileState::Published);
    assert!(!archive.status().contains("on no stage"));
}

#[test]
fn a_root_that_was_moved_finds_its_files_again() {
    let settings = QUICK.replace("remove = true", "remove = false");
    let mut archive = Archive::new(&settings);
    let mut files = files(3);
    for (name, bytes) in &files {
        archive.harvest(name, bytes);
    }
    let (code, said) = archive.once(&CHAIN[..7]);
    assert_eq!(code, 0, "{said}");
    // One is in a day's lists, and one is on its way to its backup.
    let day = ("day.warc.gz".to_owned(), warc(76, 3));
    archive.harvest(&day.0, &day.1);
    let (code, said) = archive.once(&CHAIN[..6]);
    assert_eq!(code, 0, "{said}");
    let late = ("late.warc.gz".to_owned(), warc(77, 3));
    archive.harvest(&late.0, &late.1);
    let (code, said) = archive.once(&CHAIN[..3]);
    assert_eq!(code, 0, "{said}");
    let output = archive.ecluse(&["rebuild", "path"]);
    let words = self::said(&output);
    assert!(words.starts_with("0 places and 0 lines"), "{words}");
    let before = archive.index();
    let elsewhere = tempfile::tempdir().unwrap();
    fs::rename(archive.dir.path(), elsewhere.path()).unwrap();
    archive = Archive { dir: elsewhere };
    let status = archive.status();
    assert!(status.contains("the archive was moved"), "{status}");
    assert!(status.contains("rebuild path"), "{status}");
    let check = self::said(&archive.ecluse(&["check"]));
    assert!(check.contains("warning: transfer: the archive"), "{check}");
    let output = archive.ecluse(&["rebuild", "path", "--dry-run"]);
    assert_eq!(output.status.code(), Some(0), "{}", self::said(&output));
    assert_eq!(entries(&archive.path("index/generations")), ["1"]);
    let output = archive.ecluse(&["rebuild", "path", "--why", "a new disk"]);
    let words = self::said(&output);
    assert_eq!(output.status.code(), Some(0), "{words}");
    // What the manifest and the parcels say begins at the root: only the index names whole places.
    assert!(words.starts_with("0 places and 3 lines"), "{words}");
    assert!(words.contains("0 copies are not there"), "{words}");
    assert_eq!(words.lines().count(), 1, "{words}");
    assert_eq!(archive.index(), before);
    archive.must_be_at_home();
    let status = archive.status();
    assert!(!status.contains("was moved"), "{status}");
    let output = archive.ecluse(&["verify"]);
    assert_eq!(output.status.code(), Some(0), "{}", self::said(&output));
    let output = archive.ecluse(&["show", "http://h2.example/2/1"]);
    let words = self::said(&output);
    assert_eq!(output.status.code(), Some(0), "{words}");
    assert!(words.contains("<p>2 1</p>"), "{words}");
    let output = archive.ecluse(&["lookup", "http://h2.example/2/1"]);
    assert_eq!(output.status.code(), Some(0), "{}", self::said(&output));
    let output = archive.ecluse(&["rebuild", "path"]);
    let words = self::said(&output);
    assert!(words.starts_with("0 places and 0 lines"), "{words}");
    // What was on its way and one more file pass through the whole chain.
    files.extend([day, late]);
    files.push(("more.warc.gz".to_owned(), warc(78, 3)));
    archive.harvest("more.warc.gz", &files[5].1);
    let (code, said) = archive.once(&CHAIN);
    assert_eq!(code, 0, "{said}");
    let output = archive.ecluse(&["rebuild", "path"]);
    let words = self::said(&output);
    assert!(words.starts_with("0 places and 0 lines"), "{words}");
    archive.must_hold(&files, FileState::Published);
    archive.must_be_at_home();
    assert!(said.contains("would remove 6 files of "), "{said}");
}

#[test]
fn a_copied_archive_is_judged_by_its_own_files() {
    let settings = QUICK.replace("remove = true", "remove = false");
    let old = Archive::new(&settings);
    let mut files = files(3);
    for (name, bytes) in &files {
        old.harvest(name, bytes);
    }
    let (code, said) = old.once(&CHAIN[..7]);
    assert_eq!(code, 0, "{said}");
    let late = ("late.warc.gz".to_owned(), warc(77, 3));
    old.harvest(&late.0, &late.1);
    let (code, said) = old.once(&CHAIN[..3]);
    assert_eq!(code, 0, "{said}");
    let new = Archive {
        dir: tempfile::tempdir().unwrap(),
    };
    let copied = std::process::Command::new("cp")
        .args(["-a", "."])
        .arg(new.dir.path())
        .current_dir(old.dir.path())
        .status();
    assert!(copied.unwrap().success());
    let status = new.status();
    assert!(status.contains("was moved or copied"), "{status}");
    assert!(!old.status().contains("was moved or copied"));
    // What is wrong in one is wrong there, and nowhere else.
    let bad = new.path("repository").join(&files[0].0);
    fs::write(&bad, b"rotten").unwrap();
    let output = new.ecluse(&["verify"]);
    let words = self::said(&output);
    assert_eq!(output.status.code(), Some(65), "{words}");
    assert!(words.contains(bad.to_str().unwrap()), "{words}");
    let output = old.ecluse(&["verify"]);
    assert_eq!(output.status.code(), Some(0), "{}", self::said(&output));
    let output = new.ecluse(&["repair", "--all"]);
    assert_eq!(output.status.code(), Some(0), "{}", self::said(&output));
    let output = new.ecluse(&["rebuild", "path"]);
    let words = self::said(&output);
    assert!(words.starts_with("0 places and 3 lines"), "{words}");
    new.must_be_at_home();
    let status = new.status();
    assert!(!status.contains("was moved"), "{status}");
    // It goes on by itself, with what was on its way, and without the old one.
    drop(old);
    fs::remove_file(bad.with_file_name(format!(".ecluse-bad-1-{}", files[0].0))).unwrap();
    files.push(late);
    let (code, said) = new.once(&CHAIN);
    assert_eq!(code, 0, "{said}");
    new.must_hold(&files, FileState::Published);
    new.must_be_at_home();
    assert!(said.contains("would remove 4 files of "), "{said}");
}

#[test]
fn a_file_that_was_lost_and_moved_stays_in_the_index_of_its_collection() {
    let settings = format!(
        "{QUICK}\n[stage.ingest]\ncollections = [{{ name = \"elections\", harvests = \"9\" }}]\n"
    );
    let mut archive = Archive::new(&settings);
    archive.harvest("1-9-20261116120000000-00000-h.warc.gz", &warc(1, 2));
    archive.harvest("1-3-20261116120000000-00001-h.warc.gz", &warc(2, 3));
    let (code, said) = archive.once(&CHAIN[..6]);
    assert_eq!(code, 0, "{said}");
    // A whole day's lists are removed.
    for day in entries(&archive.path("work/bigmerge/ready")) {
        fs::remove_dir_all(archive.path("work/bigmerge/ready").join(day)).unwrap();
    }
    let status = archive.status();
    assert!(status.contains("2 files are on no stage"), "{status}");
    let given = archive.ecluse(&["give", "index", "--lost"]);
    assert_eq!(given.status.code(), Some(0), "{}", self::said(&given));
    let (code, said) = archive.once(&CHAIN[..7]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(archive.index().len(), 3);
    let elections = lines(&archive.path("index/elections/current/index.cdxj"));
    assert_eq!(elections.len(), 2);
    let row = archive.manifest();
    let row = row.file("1-9-20261116120000000-00000-h.warc.gz").unwrap();
    let row = row.unwrap();
    assert_eq!(
        (row.state, row.collection.as_deref()),
        (FileState::Published, Some("elections"))
    );
    // The index of a collection is mended too when the archive moves.
    let elsewhere = tempfile::tempdir().unwrap();
    fs::rename(archive.dir.path(), elsewhere.path()).unwrap();
    archive = Archive { dir: elsewhere };
    let output = archive.ecluse(&["rebuild", "path"]);
    let words = self::said(&output);
    assert!(words.starts_with("0 places and 2 lines"), "{words}");
    let paths = lines(&archive.path("index/elections/current/path-index.txt"));
    let home = archive.path("repository/1-9-20261116120000000-00000-h.warc.gz");
    assert_eq!(paths.len(), 1);
    assert!(
        paths[0].ends_with(&format!("\t{}", home.display())),
        "{paths:?}"
    );
    assert_eq!(
        lines(&archive.path("index/elections/current/index.cdxj")),
        elections
    );
}

#[test]
fn a_harvested_file_that_nothing_accounts_for_is_told() {
    let archive = Archive::new("[stage.clean]\nevery = \"1s\"\n");
    archive.harvest("1-3-20261116120000000-00001-h.warc.gz", &warc(2, 3));
    let (code, said) = archive.once(&CHAIN);
    assert_eq!(code, 0, "{said}");
    assert!(!archive.status().contains("nothing accounts for"));
    // Ingest does not run; clean sees the file once, and once more.
    archive.harvest("stranger.warc.gz", &warc(7, 1));
    let told = (0..50).any(|_| {
        let (code, said) = archive.once(&["clean"]);
        assert_eq!(code, 0, "{said}");
        archive.status().contains("nothing accounts for")
    });
    assert!(told, "{}", archive.status());
}

#[test]
fn a_file_that_grew_after_it_was_stored_is_told_when_its_hold_is_gone() {
    let archive = Archive::new("[stage.clean]\nevery = \"1s\"\nremove = true\n");
    let name = "1-3-20261116120000000-00001-h.warc.gz";
    archive.harvest(name, &warc(2, 3));
    let (code, said) = archive.once(&CHAIN[..7]);
    assert_eq!(code, 0, "{said}");
    let mut longer = warc(2, 3);
    longer.extend(warc(7, 1));
    archive.harvest(name, &longer);
    let (code, said) = archive.once(&["ingest"]);
    assert_eq!(code, 65, "{said}");
    let held = entries(&archive.path("work/ingest/held"));
    let parcel = held[0].split('~').next().unwrap();
    let output = archive.ecluse(&["discard", parcel, "--why", "not wanted"]);
    assert_eq!(output.status.code(), Some(0), "{}", self::said(&output));
    let told = (0..50).any(|_| {
        let (code, said) = archive.once(&["clean"]);
        assert_eq!(code, 0, "{said}");
        archive.status().contains("nothing accounts for")
    });
    assert!(told, "{}", archive.status());
    let left = fs::read(archive.path("harvested").join(name)).unwrap();
    assert_eq!(left, longer);
    let check = self::said(&archive.ecluse(&["check"]));
    assert!(check.contains("it is not the file that was"), "{check}");
}

#[test]
fn a_lost_index_is_made_anew_from_the_archives_files() {
    let settings = format!(
        "{QUICK}\n[stage.ingest]\ncollections = [{{ name = \"elections\", harvests = \"9\" }}]\n"
    );
    let archive = Archive::new(&settings);
    archive.harvest("1-9-20261116120000000-00000-h.warc.gz", &warc(1, 2));
    archive.harvest("1-3-20261116120000000-00001-h.warc.gz", &warc(2, 3));
    archive.harvest("1-3-20261116120000000-00002-h.warc.gz", &warc(3, 4));
    let (code, said) = archive.once(&CHAIN);
    assert_eq!(code, 0, "{said}");
    let lists = [
        "index/current/index.cdxj",
        "index/current/path-index.txt",
        "index/elections/current/index.cdxj",
        "index/elections/current/path-index.txt",
    ];
    let before = lists.map(|list| lines(&archive.path(list)));
    let output = archive.ecluse(&["rebuild", "index"]);
    let words = self::said(&output);
    assert_eq!(words.matches("is whole").count(), 2, "{words}");
    fs::remove_file(archive.path("index/current/index.cdxj")).unwrap();
    fs::remove_dir_all(archive.path("index/elections/generations")).unwrap();
    let status = archive.status();
    assert!(status.contains("ecluse rebuild index"), "{status}");
    let output = archive.ecluse(&["rebuild", "index", "--why", "a disk"]);
    let words = self::said(&output);
    assert_eq!(output.status.code(), Some(0), "{words}");
    assert!(words.contains("7 lines of 2 files; 0 lines"), "{words}");
    assert!(words.contains("2 lines of 1 files; 0 lines"), "{words}");
    assert_eq!(lists.map(|list| lines(&archive.path(list))), before);
    // It grows as any other.
    archive.harvest("1-3-20261116120000000-00003-h.warc.gz", &warc(4, 5));
    let (code, said) = archive.once(&CHAIN);
    assert_eq!(code, 0, "{said}");
    assert_eq!(archive.index().len(), 12);
    // Of a file without a copy the lines are missed, and that is told.
    for place in ["repository", "backup"] {
        fs::remove_file(
            archive
                .path(place)
                .join("1-3-20261116120000000-00003-h.warc.gz"),
        )
        .unwrap();
    }
    fs::remove_file(archive.path("index/current/index.cdxj")).unwrap();
    let output = archive.ecluse(&["rebuild", "index"]);
    let words = self::said(&output);
    assert_eq!(output.status.code(), Some(65), "{words}");
    assert!(words.contains("5 lines are missing"), "{words}");
    assert_eq!(archive.index().len(), 7);
}

#[test]
fn a_lost_manifest_or_index_is_told_and_nothing_goes_on_without_it() {
    let archive = Archive::new("[stage.clean]\nremove = true\n");
    let late = "1-3-20261116120000000-00002-h.warc.gz";
    archive.harvest("1-3-20261116120000000-00001-h.warc.gz", &warc(2, 3));
    let (code, said) = archive.once(&CHAIN);
    assert_eq!(code, 0, "{said}");

    let index = archive.path("index/current/index.cdxj");
    let aside = archive.path("aside.cdxj");
    fs::copy(&index, &aside).unwrap();
    fs::remove_file(&index).unwrap();
    let status = archive.status();
    assert!(status.contains("index.cdxj is not there"), "{status}");
    assert_eq!(archive.ecluse(&["check"]).status.code(), Some(2));
    fs::copy(&aside, &index).unwrap();

    for name in [
        "manifest.sqlite",
        "manifest.sqlite-wal",
        "manifest.sqlite-shm",
    ] {
        let _ = fs::remove_file(archive.path(name));
    }
    archive.harvest(late, &warc(3, 3));
    let status = archive.status();
    assert!(status.contains("is not there any more"), "{status}");
    assert_eq!(archive.ecluse(&["check"]).status.code(), Some(2));
    let verified = archive.ecluse(&["verify"]);
    assert_eq!(verified.status.code(), Some(74), "{}", said_of(&verified));
    let (code, said) = archive.once(&CHAIN);
    assert_eq!(code, 74, "{said}");
    assert!(said.contains("rebuild manifest"), "{said}");
    assert!(archive.path("harvested").join(late).exists());

    let rebuilt = archive.ecluse(&["rebuild", "manifest", "--why", "lost"]);
    assert_eq!(rebuilt.status.code(), Some(0), "{}", said_of(&rebuilt));
    let (code, said) = archive.once(&CHAIN);
    assert!([0, 75].contains(&code), "{said}");
    assert!(archive.path("repository").join(late).exists(), "{said}");
}

#[test]
fn below_min_free_delete_and_clean_make_room_and_a_run_ends() {
    let archive = Archive::new(QUICK);
    let files = files(2);
    let name = |file: usize| files[file].0.as_str();
    archive.harvest(name(0), &files[0].1);
    assert_eq!(archive.once(&CHAIN[..7]).0, 0);
    archive.harvest(name(1), &files[1].1);
    assert_eq!(archive.once(&CHAIN[..4]).0, 0);
    let waiting = |stage: &str| {
        let ready = archive.path("work").join(stage).join("ready");
        fs::read_dir(ready).map_or(0, Iterator::count)
    };
    assert_eq!((waiting("delete"), waiting("merge")), (1, 0));

    // One that is not at rest when the stages stop: nobody waits for it.
    archive.configure(&QUICK.replace("min-free = \"0 B\"", "min-free = \"900 PB\""));
    fs::write(archive.path("harvested/new.warc.gz"), "new").unwrap();
    let (code, said) = archive.once(&CHAIN);
    assert_eq!(code, 75, "{said}");
    assert!(said.contains("; stopped: ingest: "), "{said}");
    assert_eq!((waiting("delete"), waiting("merge")), (0, 1), "{said}");
    assert!(!archive.path("harvested").join(name(0)).exists(), "{said}");
    assert!(archive.path("harvested").join(name(1)).exists());

    let status = archive.ecluse(&["status", "--json"]).stdout;
    let status: serde_json::Value = serde_json::from_slice(&status).unwrap();
    for stage in status["stages"].as_array().unwrap() {
        let name = stage["name"].as_str().unwrap();
        let goes_on = ["delete", "clean"].contains(&name) || !CHAIN.contains(&name);
        assert_eq!(stage["state"] != "blocked", goes_on, "{stage}");
    }
    let status = archive.status();
    assert!(
        status.contains("make room; it goes on by itself"),
        "{status}"
    );
    assert!(!status.contains("min-free"), "{status}");
    archive.configure(QUICK);
    fs::remove_file(archive.path("harvested/new.warc.gz")).unwrap();
    assert_eq!(archive.once(&CHAIN).0, 0);
    archive.must_hold(&files, FileState::Cleaned);
}
