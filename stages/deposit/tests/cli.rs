//! What is handed over, in which order, and above all what is not sent twice.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ecluse_manifest::{DepositFile, DepositState, Manifest, NewFile, PackageRow};
use ecluse_testkit::contract::Contract;
use ecluse_testkit::machine::{empty, fill, inside, mount, sh};
use ecluse_testkit::repository::{Mood, Repository, TestAuthority};
use ecluse_testkit::root::{Root, until_so};
use sha2::{Digest, Sha512};

const DEPOSIT: &str = env!("CARGO_BIN_EXE_ecluse-deposit");
const META: &str = "17-4-metadata-1.warc";
const ONE: &str = "17-4-20260102030405000-00000-h.warc";
const TWO: &str = "17-4-20260102030405000-00001-h.warc";

/// Puts a package with these archive files into an archive, as package makes them.
fn pack(root: &Path, places: &Path, job: (&str, &str), package: &str, part: u64, files: &[&str]) {
    let mut manifest = Manifest::open(&root.join("manifest.sqlite"), places).unwrap();
    let path = root.join("packages").join(package);
    let data = path.join("data/representations/harvest/data");
    fs::create_dir_all(&data).unwrap();
    for name in files {
        let text = format!("the bytes of {name}");
        fs::write(data.join(name), &text).unwrap();
        let new = NewFile {
            name,
            bytes: text.len() as u64,
            sha256: &ecluse_spool::digest(text.as_bytes()),
            kind: if name.contains("metadata") {
                "metadata"
            } else {
                "warc"
            },
            job: Some(job.0),
            harvest: Some(job.1),
            collection: None,
            source: "/harvested",
            parcel: name,
        };
        manifest.ingest(&new).unwrap();
    }
    fs::write(path.join("data/METS.xml"), "<mets/>").unwrap();
    fs::write(path.join("data/a.xml"), "<a/>").unwrap();
    fs::write(path.join("bag-info.txt"), "Channel: ecluse\n").unwrap();
    let seal = format!("the seal of {package}");
    fs::write(path.join("tagmanifest-sha512.txt"), &seal).unwrap();
    let row = PackageRow {
        job: job.0.into(),
        harvest: job.1.into(),
        part,
        parts: 1,
        supplement: 0,
        ark: format!("ark:/99999/{package}"),
        package: package.into(),
        files: files.len() as u64,
        bytes: 1,
        sha512: ecluse_stage::hex(&Sha512::digest(seal.as_bytes())),
    };
    let names = files.iter().map(|name| (*name).to_owned()).collect();
    manifest.packaged(&[(row, names)]).unwrap();
}

struct Archive {
    root: Root,
}

impl Archive {
    fn new(settings: &str) -> Self {
        Self::limited("1d", settings)
    }

    fn limited(limit: &str, settings: &str) -> Self {
        let root = Root::new();
        let settings = format!(
            "[stage.deposit]\nask-again = \"1s\"\nretry = {{ first = \"1s\", max = \"1s\", limit = \"{limit}\" }}\n{settings}\n"
        );
        root.settings(&["deposit"], &settings);
        let archive = Self { root };
        archive.pack("17-4", 1, &[META, ONE, TWO]);
        archive
    }

    fn with(repository: &Repository) -> Self {
        Self::new(&format!("to = {}", repository.setting()))
    }

    fn pack(&self, package: &str, part: u64, files: &[&str]) {
        let root = self.root.path();
        pack(root, root, ("17", "4"), package, part, files);
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn run(&self) -> (i32, String) {
        self.root.run(Path::new(DEPOSIT), &["--once"])
    }

    #[track_caller]
    fn must(&self, code: i32) -> String {
        let (found, said) = self.run();
        assert_eq!(found, code, "{said}");
        said
    }

    /// Runs it until nothing waits any more.
    #[track_caller]
    fn must_end(&self) {
        for _ in 0..30 {
            match self.run() {
                (0, _) => return,
                (75, _) => std::thread::sleep(std::time::Duration::from_millis(300)),
                (code, said) => panic!("{code}: {said}"),
            }
        }
        panic!("it does not end");
    }

    fn manifest(&self) -> Manifest {
        Manifest::open(&self.path("manifest.sqlite"), self.root.path()).unwrap()
    }

    fn deposits(&self) -> Vec<DepositFile> {
        let mut files = Vec::new();
        let manifest = self.manifest();
        manifest.each_deposit(&mut |file| files.push(file)).unwrap();
        files
    }
}

/// The files that were sent, in order, by their last names.
fn sent(repository: &Repository) -> Vec<String> {
    let log = repository.log();
    let puts = log.iter().filter(|(method, _)| method == "PUT");
    let names = puts.map(|(_, target)| {
        let name = target.split('?').next().unwrap();
        name.rsplit(['/', 'F']).next().unwrap().to_owned()
    });
    names.collect()
}

#[test]
fn deposit_keeps_the_contract() {
    let prepared = tempfile::tempdir().unwrap();
    let elsewhere = Path::new("/elsewhere");
    pack(prepared.path(), elsewhere, ("17", "4"), "17-4", 1, &[ONE]);
    let mut manifest = Manifest::open(&prepared.path().join("manifest.sqlite"), elsewhere).unwrap();
    let row = manifest.package("17-4").unwrap().unwrap();
    // It takes what it is given, and brings nothing in by itself.
    manifest.handed_over(&row).unwrap();
    let good = format!("{{\"package\": \"17-4\", \"sha512\": \"{}\"}}", row.sha512);
    let at = |path: &str| prepared.path().join(path).display().to_string();
    fs::create_dir(at("taken")).unwrap();
    Contract {
        stage: "deposit",
        binary: Path::new(DEPOSIT),
        settings: &format!(
            "next = [\"sink\"]\nto = {{ kind = \"directory\", path = {:?}, leave-free = \"0 B\" }}\n[archive]\nmanifest = {:?}\npackages = {:?}",
            at("taken"),
            at("manifest.sqlite"),
            at("packages")
        ),
        good: &[("package.json", good.as_bytes())],
        bad: &[("package.json", b"{\"package\": 17}")],
    }
    .keep();
}

#[test]
fn the_metadata_goes_first_and_the_seal_last_each_once() {
    let repository = Repository::open();
    let archive = Archive::with(&repository);
    archive.must(0);
    let order = [
        META,
        "METS.xml",
        "a.xml",
        ONE,
        TWO,
        "bag-info.txt",
        "tagmanifest-sha512.txt",
    ];
    assert_eq!(sent(&repository), order);
    assert_eq!(repository.violations(), [""; 0]);
    let files = repository.files();
    let metadata = files.values().find(|file| file.role == "metadata").unwrap();
    let data: Vec<_> = files.values().filter(|file| file.role == "data").collect();
    assert_eq!(data.len(), 2);
    for file in &data {
        // What the repository calls the job's metadata goes with its data.
        let known = file.metadata_identifier.as_deref().unwrap();
        assert_eq!(
            known.replace("%3A", ":").replace("%2F", "/"),
            metadata.identifier
        );
    }
    for file in archive.deposits() {
        assert_eq!(file.state, DepositState::Receipted);
        let known = files.values().find(|known| known.sha256 == file.key.sha256);
        assert_eq!(file.identifier.as_ref(), Some(&known.unwrap().identifier));
    }
    let premis = fs::read_to_string(archive.path("receipts/17-4.premis.xml")).unwrap();
    assert_eq!(premis.matches("<premis:event>").count(), 2, "{premis}");
    assert!(premis.contains(&metadata.identifier), "{premis}");

    // Nothing is done twice; a part that comes later brings its own files only.
    archive.must(0);
    assert_eq!(sent(&repository).len(), order.len());
    archive.pack("17-4.2", 2, &["17-4-20260102030405000-00002-h.warc"]);
    archive.must(0);
    let sent = sent(&repository);
    assert_eq!(sent.iter().filter(|name| *name == META).count(), 1);
    assert_eq!(sent.len(), order.len() + 5);
}

/// A part without the metadata of its job brings it first, wherever it lies.
#[test]
fn no_part_goes_before_the_metadata_of_its_job() {
    let repository = Repository::open();
    let archive = Archive::with(&repository);
    archive.pack("17-4.2", 2, &["17-4-20260102030405000-00002-h.warc"]);
    archive.must(0);
    assert_eq!(repository.violations(), [""; 0]);
    assert_eq!(sent(&repository)[0], META);
    assert_eq!(repository.files().len(), 7 + 5);
}

#[test]
fn what_was_sent_without_an_answer_is_asked_for_and_not_sent_again() {
    for mood in [Mood::Silent, Mood::Twice, Mood::Slow, Mood::Late(300)] {
        let repository = Repository::open();
        let archive = Archive::with(&repository);
        // Ask and send, for the metadata and for the first document.
        repository.will(&[Mood::Good, mood, Mood::Good, mood]);
        archive.must_end();
        assert_eq!(repository.violations(), [""; 0], "{mood:?}");
        let files = repository.files();
        assert_eq!(files.len(), 7, "{mood:?}");
        let twice = files.values().filter(|file| file.taken != 1);
        assert_eq!(twice.count(), 0, "{mood:?}: {files:#?}");
    }
}

#[test]
fn data_waits_for_the_receipt_of_the_metadata_and_status_knows_since_when() {
    let repository = Repository::open();
    let archive = Archive::with(&repository);
    repository.will(&[Mood::Good, Mood::Slow]);
    let said = archive.must(75);
    assert!(said.contains("the receipt of the metadata file"), "{said}");
    assert_eq!(sent(&repository), [META]);
    let awaited = archive.manifest().awaited_receipts().unwrap();
    assert_eq!(awaited.files, 1);
    assert!(awaited.since.is_some());
    archive.must_end();
    assert_eq!(archive.manifest().awaited_receipts().unwrap().files, 0);
}

#[test]
fn a_pause_that_is_asked_for_is_no_error_and_an_error_is_tried_again() {
    let repository = Repository::open();
    // Even the shortest limit is not reached by pauses.
    let archive = Archive::limited("1s", &format!("to = {}", repository.setting()));
    for _ in 0..3 {
        repository.will(&[Mood::Busy]);
        let said = archive.must(75);
        assert!(said.contains("asks for a pause of 1s"), "{said}");
        std::thread::sleep(std::time::Duration::from_millis(1100));
    }
    archive.must_end();

    let repository = Repository::open();
    let archive = Archive::with(&repository);
    repository.will(&[Mood::Status(500, "the database\nis away")]);
    let said = archive.must(75);
    assert!(said.contains("the database is away"), "{said}");
    archive.must_end();
}

#[test]
fn what_is_refused_is_held_with_the_repositorys_words() {
    let repository = Repository::open();
    let archive = Archive::with(&repository);
    repository.will(&[Mood::Good, Mood::Status(422, "profile unknown: <x>")]);
    let said = archive.must(65);
    assert!(said.contains("profile unknown: <x>"), "{said}");
    let files = archive.deposits();
    let words = files.iter().find_map(|file| file.said.clone()).unwrap();
    assert!(words.contains("422"), "{words}");

    // The second package in a row is not at fault itself: nothing more is sent until a person has looked.
    archive.pack("18-4", 2, &["18-4-metadata-1.warc"]);
    archive.pack("19-4", 3, &["19-4-metadata-1.warc"]);
    archive.pack("20-4", 4, &["20-4-metadata-1.warc"]);
    repository.will(&[Mood::Status(400, "no"); 2]);
    archive.run();
    let paused = archive.root.tree().paused("deposit").unwrap().unwrap();
    assert!(paused.why.contains("in a row"), "{}", paused.why);
    assert_eq!(archive.root.list("deposit", "ready").len(), 1);
    assert_eq!(archive.root.list("deposit", "held").len(), 3);

    // Who is not let in at all stops; so does who finds no room.
    for status in [403, 507] {
        let repository = Repository::open();
        let archive = Archive::with(&repository);
        repository.will(&[Mood::Status(status, "no"); 20]);
        let said = archive.must(74);
        assert!(said.contains(&status.to_string()), "{said}");
        assert_eq!(archive.root.list("deposit", "held"), [""; 0]);
    }
}

/// Only the repository that the right authority vouches for gets a byte, and it only with the right token.
#[test]
fn a_repository_with_tls_and_a_token_takes_packages() {
    let authority = TestAuthority::default();
    let good = || authority.server("localhost", 2099);
    let settings = |repository: &Repository, more: &str| {
        let more = format!(", ca-file = \"ca.pem\", token-file = \"token\"{more}");
        format!("to = {}", repository.setting_with(&more))
    };
    let archive_of = |repository: &Repository| {
        let archive = Archive::new(&settings(repository, ""));
        fs::write(archive.path("ca.pem"), authority.pem()).unwrap();
        fs::write(archive.path("token"), "open sesame\n").unwrap();
        let only_ours = fs::Permissions::from_mode(0o600);
        fs::set_permissions(archive.path("token"), only_ours).unwrap();
        archive
    };

    // Another authority's, another name's, and one that has run out: nobody is told anything, and the package waits.
    for tls in [
        TestAuthority::default().server("localhost", 2099),
        authority.server("elsewhere.example", 2099),
        authority.server("localhost", 2020),
    ] {
        let repository = Repository::open_tls(tls);
        let archive = archive_of(&repository);
        let said = archive.must(75);
        assert!(said.contains("certificate"), "{said}");
        assert_eq!(repository.log(), []);
        assert_eq!(archive.root.list("deposit", "held"), [""; 0]);
        let sent = archive.deposits();
        assert!(sent.iter().all(|file| file.receipt.is_none()), "{sent:?}");
    }
    // Without a file of ours, those that the machine trusts count.
    let repository = Repository::open_tls(good());
    let archive = Archive::new(&format!("to = {}", repository.setting()));
    let said = archive.must(75);
    assert!(said.contains("certificate"), "{said}");
    assert_eq!(repository.log(), []);

    // The right one, and a token that has expired: the stage stops and says so; nothing is taken, nothing held.
    let repository = Repository::open_tls(good());
    let archive = archive_of(&repository);
    repository.wants("open sesame");
    archive.must(0);
    let taken = repository.files();
    assert_eq!(taken.len(), archive.deposits().len());
    assert!(taken.values().all(|file| file.taken == 1), "{taken:?}");
    archive.pack("18-4", 2, &["18-4-metadata-1.warc"]);
    repository.wants("a new word");
    let said = archive.must(74);
    assert!(said.contains("401") && said.contains("expired"), "{said}");
    assert_eq!(repository.files(), taken);
    assert_eq!(archive.root.list("deposit", "held"), [""; 0]);
    assert!(!said.contains("open sesame"), "the word is told: {said}");

    // Replaced while the stage runs, it goes on by itself.
    let asked = repository.log().len();
    let stage = archive.root.start(Path::new(DEPOSIT), &[]);
    until_so("it was refused", || repository.log().len() > asked);
    fs::write(archive.path("token"), "a new word").unwrap();
    until_so("it is taken", || repository.files().len() > taken.len());
    drop(stage);
    archive.must_end();
    assert_eq!(repository.violations(), [""; 0]);

    // Who has no such file is told before anything is touched.
    fs::remove_file(archive.path("token")).unwrap();
    let said = archive.must(78);
    assert!(said.contains("token"), "{said}");
}

#[test]
fn a_receipt_for_other_bytes_is_not_believed() {
    let repository = Repository::open();
    let archive = Archive::with(&repository);
    repository.will(&[Mood::Good, Mood::Confused]);
    archive.must_end();
    assert_eq!(sent(&repository)[..2], [META, META], "sent again, once");

    let repository = Repository::open();
    let archive = Archive::with(&repository);
    repository.will(&[Mood::Good, Mood::Confused, Mood::Confused]);
    let said = archive.must(65);
    assert!(said.contains("with sha256 000"), "{said}");
    assert_eq!(sent(&repository), [META, META]);
}

#[test]
fn bytes_that_changed_are_never_sent_whole() {
    let repository = Repository::open();
    let archive = Archive::with(&repository);
    let data = archive.path("packages/17-4/data/representations/harvest/data");
    fs::write(data.join(ONE), format!("the Bytes of {ONE}")).unwrap();
    let said = archive.must(65);
    assert!(said.contains("it was not sent"), "{said}");
    assert!(!repository.files().keys().any(|target| target.contains(ONE)));
    assert_eq!(repository.violations(), [""; 0]);
    // Nor is a package that is not the one that was made.
    let archive = Archive::with(&repository);
    fs::write(archive.path("packages/17-4/tagmanifest-sha512.txt"), "x").unwrap();
    let said = archive.must(65);
    assert!(said.contains("is not what was made"), "{said}");
}

#[test]
fn files_an_hour_are_counted() {
    let repository = Repository::open();
    let archive = Archive::new(&format!("files-an-hour = 3\nto = {}", repository.setting()));
    let said = archive.must(75);
    assert!(
        said.contains("3 files were sent within the last hour"),
        "{said}"
    );
    assert_eq!(sent(&repository).len(), 3);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    archive.run();
    assert_eq!(sent(&repository).len(), 3, "not after a restart either");
}

#[test]
fn a_directory_takes_packages_and_nobody_leaves_them() {
    let archive = Archive::new("");
    archive.must(0);
    assert!(archive.deposits().is_empty(), "nobody takes them");
    let to = "to = { kind = \"directory\", path = \"taken\", leave-free = \"0 B\" }";
    archive
        .root
        .settings(&["deposit"], &format!("[stage.deposit]\n{to}\n"));
    archive.must(0);
    let taken = ecluse_testkit::root::contents(&archive.path("taken"));
    assert_eq!(
        taken,
        ecluse_testkit::root::contents(&archive.path("packages"))
    );
    assert!(
        archive
            .deposits()
            .iter()
            .all(|file| file.receipted.is_some())
    );
}

/// Where a disk is not mounted lies an empty directory: that must not take packages.
#[test]
fn a_directory_that_holds_nothing_of_what_it_took_takes_nothing() {
    let to = |path: &Path| {
        format!("to = {{ kind = \"directory\", path = {path:?}, leave-free = \"0 B\" }}")
    };
    let disk = tempfile::tempdir().unwrap();
    let disk = disk.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let archive = Archive::new(&to(&disk));
    let check = || archive.root.run(Path::new(DEPOSIT), &["--check"]).1;
    assert!(!check().contains("is it mounted"), "{}", check());
    archive.must(0);
    assert!(!check().contains("is it mounted"), "{}", check());

    let mounted = disk.with_file_name("mounted");
    fs::rename(&disk, &mounted).unwrap();
    fs::create_dir(&disk).unwrap();
    archive.pack("18-4", 2, &["18-4-metadata-1.warc"]);
    let line = format!(
        "{} holds nothing of what was handed over before; is it mounted?",
        disk.display()
    );
    let said = archive.must(75);
    assert!(said.contains(&line), "{said}");
    assert!(check().contains(&line), "{}", check());
    assert_eq!(fs::read_dir(&disk).unwrap().count(), 0);
    let files = archive.deposits().into_iter();
    let mut files = files.filter(|file| file.package == "18-4");
    assert!(files.all(|file| file.state == DepositState::Built));
    // Something else that lies there is no disk either.
    fs::create_dir(disk.join("lost+found")).unwrap();
    assert!(check().contains(&line), "{}", check());
    fs::remove_dir(disk.join("lost+found")).unwrap();

    fs::remove_dir(&disk).unwrap();
    fs::rename(&mounted, &disk).unwrap();
    archive.must_end();
    assert!(disk.join("18-4/tagmanifest-sha512.txt").exists());

    // A new, empty disk gets a path of its own.
    fs::create_dir(&mounted).unwrap();
    archive.pack("19-4", 3, &["19-4-metadata-1.warc"]);
    let settings = format!("[stage.deposit]\n{}\n", to(&mounted));
    archive.root.settings(&["deposit"], &settings);
    archive.must(0);
    assert!(mounted.join("19-4/tagmanifest-sha512.txt").exists());
}

/// What the directory says is told, with its name; what was not copied does not wait for a receipt.
#[test]
fn a_directory_that_is_read_only_or_full_is_named_and_nothing_counts_as_sent() {
    if !inside("a_directory_that_is_read_only_or_full_is_named_and_nothing_counts_as_sent") {
        return;
    }
    let disk = tempfile::tempdir().unwrap();
    let disk = disk.path().join("disk");
    mount(&disk, "1m");
    let archive = Archive::new(&format!(
        "to = {{ kind = \"directory\", path = {disk:?}, leave-free = \"0 B\" }}"
    ));
    let must_be_unsent = || {
        let files = archive.deposits();
        let mut built = files
            .iter()
            .filter(|file| file.state == DepositState::Built);
        assert_eq!(built.clone().count(), files.len(), "{files:#?}");
        assert!(built.all(|file| file.tries == 0 && file.sent.is_none()));
        assert_eq!(archive.manifest().awaited_receipts().unwrap().files, 0);
    };
    sh("mount -o remount,ro \"$1\"", &disk);
    let said = archive.must(75);
    let wanted = format!("cannot make {}/17-4/", disk.display());
    assert!(said.contains(&wanted), "{said}");
    assert!(said.contains("Read-only file system"), "{said}");
    must_be_unsent();

    sh("mount -o remount,rw \"$1\"", &disk);
    let filler = fill(&disk);
    ecluse_testkit::root::until_so("it is tried again", || {
        let (code, said) = archive.run();
        assert!(code == 74 || code == 75, "{code}: {said}");
        code == 74 && said.contains(&format!("{}: 0 bytes are free", disk.display()))
    });
    must_be_unsent();
    empty(&filler);
    archive.must_end();
    assert!(disk.join("17-4/tagmanifest-sha512.txt").exists());
    assert!(archive.deposits().iter().all(|file| file.tries == 1));
}

#[test]
fn a_command_takes_packages() {
    let archive = Archive::new("");
    fs::create_dir(archive.path("taken")).unwrap();
    let program = |name: &str, text: &str| {
        let path = archive.path(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    };
    let taken = archive.path("taken").display().to_string();
    // It is busy once, and answers nothing to the first file: the receipt is asked for.
    let take = program(
        "take",
        &format!(
            "cd {taken}; test -e busy || {{ touch busy; exit 75; }}\ncp \"$1\" \"$2\"\ntest -e quiet || {{ touch quiet; exit 0; }}\necho \"ark:/1/$2\""
        ),
    );
    let ask = program(
        "ask",
        &format!(
            "cd {taken}; test -e \"$2\" || exit 66\necho \"{{\\\"ark\\\": \\\"ark:/1/$2\\\", \\\"sha256\\\": \\\"$2\\\"}}\""
        ),
    );
    let to = format!(
        "to = {{ kind = \"command\", command = [{take:?}, \"{{path}}\", \"{{sha256}}\"], ask = [{ask:?}, \"\", \"{{sha256}}\"] }}\n\
         ask-again = \"1s\"\nretry = {{ first = \"1s\", max = \"1s\" }}"
    );
    archive
        .root
        .settings(&["deposit"], &format!("[stage.deposit]\n{to}\n"));
    archive.must_end();
    for file in archive.deposits() {
        let known = format!("ark:/1/{}", file.key.sha256);
        assert_eq!(file.identifier, Some(known));
        assert_eq!(file.tries, if file.role == "metadata" { 2 } else { 1 });
    }
}

#[test]
fn hostile_names_stay_in_their_place() {
    for (job, harvest) in [
        ("..", ".."),
        ("../../etc", "a?b#c"),
        ("a\nEcluse-Role: metadata", "\u{1}<&\"]]>"),
        ("{path}", "{{sha256}}"),
        ("", ""),
    ] {
        let repository = Repository::open();
        let root = Root::new();
        let to = repository.setting();
        root.settings(&["deposit"], &format!("[stage.deposit]\nto = {to}\n"));
        let name = "x&y<z%41 #?.warc";
        pack(
            root.path(),
            root.path(),
            (job, harvest),
            "job-x",
            1,
            &[name],
        );
        let (code, said) = root.run(Path::new(DEPOSIT), &["--once"]);
        assert_eq!(
            code, 65,
            "a data file without metadata is out of order here: {said}"
        );
        for target in repository.log().iter().map(|(_, target)| target) {
            let path = target.split('?').next().unwrap();
            assert_eq!(path.matches('/').count(), 3, "{target}");
            assert!(
                !path.split('/').any(|part| part == ".." || part == "."),
                "{target}"
            );
            assert!(target.contains("?sha256="), "{target}");
        }

        // A directory gets them where they belong, and the PREMIS document is one.
        let to = "{ kind = \"directory\", path = \"taken\", leave-free = \"0 B\" }";
        let root = Root::new();
        root.settings(&["deposit"], &format!("[stage.deposit]\nto = {to}\n"));
        pack(
            root.path(),
            root.path(),
            (job, harvest),
            "job-x",
            1,
            &[name],
        );
        let (code, said) = root.run(Path::new(DEPOSIT), &["--once"]);
        assert_eq!(code, 0, "{job:?}: {said}");
        let text = fs::read_to_string(root.path().join("receipts/job-x.premis.xml")).unwrap();
        let mut reader = quick_xml::Reader::from_str(&text);
        while !matches!(reader.read_event().unwrap(), quick_xml::events::Event::Eof) {}
        assert!(text.contains("x&amp;y&lt;z%41"), "{text}");
    }
}
