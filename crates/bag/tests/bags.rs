//! Bags made here, and everything that can be done to them.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

use std::fs;
use std::path::{Path, PathBuf};

use ecluse_bag::{
    BagReport, InfoField, PayloadEntry, SOFTWARE, ValidateError, ValidateOptions, validate,
    write_tags,
};
use proptest::prelude::*;
use sha2::{Digest, Sha512};

const OPTIONS: ValidateOptions = ValidateOptions {
    is_strict: false,
    threads: 2,
};

fn check(bag: &Path) -> BagReport {
    validate(bag, OPTIONS, &|_| true).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    let digest = Sha512::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Makes a bag of ours with these files in its payload.
fn bag_of(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("data")).unwrap();
    let mut payload = Vec::new();
    for (path, bytes) in files {
        let whole = dir.path().join(path);
        fs::create_dir_all(whole.parent().unwrap()).unwrap();
        fs::write(&whole, bytes).unwrap();
        payload.push(PayloadEntry {
            path: (*path).to_owned(),
            bytes: bytes.len() as u64,
            sha512: hex(bytes),
        });
    }
    let info = [
        InfoField::new("Bag-Software-Agent", format!("{SOFTWARE}1")),
        InfoField::new("Crawl-Job", "17"),
    ];
    write_tags(dir.path(), &info, &payload, &[]).unwrap();
    dir
}

const FILES: [(&str, &[u8]); 4] = [
    ("data/a.warc.gz", b"one file"),
    ("data/deep/er/b", b"another"),
    ("data/empty", b""),
    ("data/odd %25\n name\r", b"odd"),
];

/// Every file of a directory, by its path.
fn all_files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut stack = vec![dir.to_owned()];
    while let Some(directory) = stack.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            match entry.file_type().unwrap().is_dir() {
                true => stack.push(entry.path()),
                false => found.push(entry.path()),
            }
        }
    }
    found.sort();
    found
}

#[test]
fn what_was_written_is_valid() {
    let bag = bag_of(&FILES);
    let report = check(bag.path());
    assert_eq!(report.faults, []);
    assert_eq!((report.payload_files, report.payload_bytes), (4, 18));
    assert_eq!(report.version, "1.0");
}

/// Files of all lengths are hashed beside each other, and each by itself is found when it is another.
#[test]
fn files_of_different_lengths_do_not_disturb_each_other() {
    let lengths = [
        0, 1, 111, 112, 127, 128, 129, 65_535, 65_536, 65_537, 200_000, 300_000, 131_072, 5,
        70_000, 900_000,
    ];
    let texts: Vec<(String, Vec<u8>)> = lengths
        .iter()
        .enumerate()
        .map(|(number, length)| {
            let text = (0..*length).map(|at: usize| (at * 31 + number) as u8);
            (format!("data/f{number}"), text.collect())
        })
        .collect();
    let files: Vec<(&str, &[u8])> = texts
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_slice()))
        .collect();
    let bag = bag_of(&files);
    for threads in 1..4 {
        let options = ValidateOptions {
            is_strict: false,
            threads,
        };
        let faults = || validate(bag.path(), options, &|_| true).unwrap().faults;
        assert_eq!(faults(), []);
        for (name, text) in &texts {
            let path = bag.path().join(name);
            let mut other = text.clone();
            match other.last_mut() {
                Some(last) => *last ^= 1,
                None => other.push(0),
            }
            fs::write(&path, &other).unwrap();
            let found = faults();
            assert!(!found.is_empty(), "{name} by {threads}");
            assert!(
                found
                    .iter()
                    .all(|fault| fault.to_string().contains(name.as_str()) || text.is_empty()),
                "{found:?}"
            );
            fs::write(&path, text).unwrap();
        }
    }
}

#[test]
fn the_same_payload_gives_the_same_bytes() {
    let (one, other) = (bag_of(&FILES), bag_of(&FILES));
    for path in all_files(one.path()) {
        let name = path.strip_prefix(one.path()).unwrap();
        assert_eq!(
            fs::read(&path).unwrap(),
            fs::read(other.path().join(name)).unwrap(),
            "{}",
            name.display()
        );
    }
}

#[test]
fn every_single_bit_flip_is_found() {
    let bag = bag_of(&FILES);
    let mut flips = 0;
    for path in all_files(bag.path()) {
        let good = fs::read(&path).unwrap();
        for at in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[at / 8] ^= 1 << (at % 8);
            fs::write(&path, &bad).unwrap();
            let report = check(bag.path());
            assert!(!report.is_valid(), "bit {at} of {}", path.display());
            flips += 1;
        }
        fs::write(&path, &good).unwrap();
    }
    assert!(flips > 9_000, "{flips}");
    assert!(check(bag.path()).is_valid());
}

#[test]
fn every_removed_and_renamed_file_is_found() {
    let bag = bag_of(&FILES);
    let aside = tempfile::tempdir().unwrap();
    for path in all_files(bag.path()) {
        let away = aside.path().join("away");
        fs::rename(&path, &away).unwrap();
        assert!(!check(bag.path()).is_valid(), "without {}", path.display());
        let mut other = path.clone().into_os_string();
        other.push("x");
        fs::rename(&away, &other).unwrap();
        assert!(!check(bag.path()).is_valid(), "{}x", path.display());
        fs::rename(&other, &path).unwrap();
    }
    assert!(check(bag.path()).is_valid());
}

#[test]
fn what_was_added_is_found() {
    let bag = bag_of(&FILES);
    for name in [
        "data/extra",
        "data/deep/extra",
        "extra.txt",
        "tags/extra",
        "manifest-md5.txt",
    ] {
        let path = bag.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        assert!(!check(bag.path()).is_valid(), "{name}");
        fs::remove_file(&path).unwrap();
    }
    let link = bag.path().join("data/link");
    std::os::unix::fs::symlink("a.warc.gz", &link).unwrap();
    assert!(!check(bag.path()).is_valid());
    fs::remove_file(&link).unwrap();
    assert!(check(bag.path()).is_valid());
}

/// A name that lies outside is a fault, and is not even looked at.
#[test]
fn a_path_that_leads_out_is_refused() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "s").unwrap();
    for path in [
        "data/../../secret",
        "/etc/hostname",
        "~/x",
        "data/./x",
        "bagit.txt",
    ] {
        let bag = bag_of(&FILES);
        let manifest = bag.path().join("manifest-sha512.txt");
        let mut text = fs::read_to_string(&manifest).unwrap();
        text.push_str(&format!("{}  {path}\n", hex(b"s")));
        fs::write(&manifest, text).unwrap();
        let report = check(bag.path());
        let said = report.faults[0].to_string();
        assert!(
            said.starts_with("line 5 of manifest-sha512.txt: "),
            "{said}"
        );
        let entry = PayloadEntry {
            path: path.to_owned(),
            bytes: 1,
            sha512: hex(b"s"),
        };
        assert!(
            write_tags(bag.path(), &[], &[entry], &[]).is_err(),
            "{path}"
        );
    }
}

#[test]
fn a_check_can_be_stopped() {
    let bag = bag_of(&FILES);
    let stopped = validate(bag.path(), OPTIONS, &|_| false);
    assert!(matches!(stopped, Err(ValidateError::Stopped)));
}

#[test]
fn what_a_stranger_may_do_is_a_warning_unless_strict() {
    let bag = bag_of(&FILES);
    // Without the mark of ours, an added tag file is what RFC 8493 only advises against.
    let info = "Contact-Name: nobody\n";
    fs::write(bag.path().join("bag-info.txt"), info).unwrap();
    let list = bag.path().join("tagmanifest-sha512.txt");
    let text = fs::read_to_string(&list).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines[0] = format!("{}  bag-info.txt", hex(info.as_bytes()));
    fs::write(&list, lines.join("\n")).unwrap();
    fs::write(bag.path().join("notes"), "").unwrap();
    let report = check(bag.path());
    assert_eq!((report.faults.len(), report.warnings.len()), (0, 1));
    let options = ValidateOptions {
        is_strict: true,
        ..OPTIONS
    };
    let strict = validate(bag.path(), options, &|_| true).unwrap();
    assert_eq!(strict.faults.len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Any edit of any file but one that leaves its bytes as they were.
    #[test]
    fn every_edit_is_found(which in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(),
                           cut in 0_usize..4, put in prop::collection::vec(any::<u8>(), 0..4)) {
        let bag = bag_of(&FILES);
        let files = all_files(bag.path());
        let path = &files[which.index(files.len())];
        let good = fs::read(path).unwrap();
        let at = if good.is_empty() { 0 } else { at.index(good.len()) };
        let mut bad = good.clone();
        bad.splice(at..(at + cut).min(good.len()), put);
        prop_assume!(bad != good);
        fs::write(path, &bad).unwrap();
        let report = check(bag.path());
        // White space in the tag manifest, which nothing covers, is the one edit that changes nothing.
        let words = |bytes: &[u8]| -> Vec<String> {
            String::from_utf8_lossy(bytes).split_whitespace().map(str::to_owned).collect()
        };
        let is_only_space = path.ends_with("tagmanifest-sha512.txt") && words(&bad) == words(&good);
        prop_assert!(!report.is_valid() || is_only_space, "{}", path.display());
    }
}

/// A bag of a draft, as others made them, with MD5; what is said of a file is set in the same breath.
struct Draft {
    dir: tempfile::TempDir,
    version: &'static str,
    manifest: String,
}

const HELLO: &str = "5d41402abc4b2a76b9719d911017c592";

impl Draft {
    fn new(version: &'static str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("data")).unwrap();
        fs::write(dir.path().join("data/hello.txt"), "hello").unwrap();
        let declaration = format!("BagIt-Version: {version}\nTag-File-Character-Encoding: UTF-8\n");
        fs::write(dir.path().join("bagit.txt"), declaration).unwrap();
        let manifest = format!("{HELLO}  data/hello.txt\n");
        Self {
            dir,
            version,
            manifest,
        }
    }

    fn file(self, name: &str, bytes: impl AsRef<[u8]>) -> Self {
        fs::write(self.dir.path().join(name), bytes).unwrap();
        self
    }

    fn list(mut self, line: &str) -> Self {
        self.manifest.push_str(line);
        self
    }

    #[track_caller]
    fn is(self, is_valid: bool, warnings: usize) {
        fs::write(self.dir.path().join("manifest-md5.txt"), &self.manifest).unwrap();
        let report = check(self.dir.path());
        let said = (&report.faults, &report.warnings);
        assert_eq!(report.is_valid(), is_valid, "{}: {said:?}", self.version);
        // There is no tag manifest, of which it always warns.
        assert_eq!(report.warnings.len(), warnings + 1, "{said:?}");
    }
}

/// The cases of the conformance suite, made here.
#[test]
fn bags_of_others_are_judged_as_the_conformance_suite_judges() {
    let draft = || Draft::new("0.97");
    let twice = format!("{HELLO}  data/hello.txt\n");
    for version in ["0.93", "0.94", "0.95", "0.96", "0.97", "1.0"] {
        Draft::new(version).is(true, 0);
    }
    draft().list(&twice).is(true, 1);
    Draft::new("1.0").list(&twice).is(false, 0);
    draft().list(&twice.replace('5', "6")).is(false, 0);
    draft().file("data/extra", "").is(false, 0);
    draft().file("data/hello.txt", "jello").is(false, 0);
    draft()
        .list(&format!("{HELLO}  data/gone.txt\n"))
        .is(false, 0);
    draft()
        .file("data/a", "hello")
        .list(&format!("{HELLO} *data/a\n"))
        .is(true, 1);
    draft()
        .file("data/a b", "hello")
        .list(&format!("{HELLO} ./data/a b\n"))
        .is(true, 1);
    draft()
        .file("data/%7Ea", "hello")
        .list(&format!("{HELLO} data/%7Ea\n"))
        .is(true, 0);
    draft()
        .file("data/HELLO.txt", "hello")
        .list(&format!("{HELLO} data/HELLO.txt\n"))
        .is(true, 1);
    draft()
        .file("data/Thumbs.db", "hello")
        .list(&format!("{HELLO} data/Thumbs.db\n"))
        .is(true, 1);
    for path in ["../../../README.md", "/tmp/foo", "~/foo", "~root/foo"] {
        draft().list(&format!("{HELLO}  {path}\n")).is(false, 0);
        let fetch = format!("https://example.org - {path}\r\n");
        draft().file("fetch.txt", fetch).is(false, 0);
    }
    let fetch = "https://example.org 5 data/hello.txt\n";
    draft().file("fetch.txt", fetch).is(true, 0);
    draft()
        .file("bag-info.txt", "A   :   b\nPayload-Oxum: 5.1\n")
        .is(true, 0);
    draft()
        .file("bag-info.txt", "Payload-Oxum: 5.2\n")
        .is(false, 0);
    draft().file("manifest-crc32.txt", "").is(false, 0);
    let sixteen: Vec<u8> = "\u{feff}A: b\n"
        .encode_utf16()
        .flat_map(u16::to_be_bytes)
        .collect();
    let declaration = "BagIt-Version: 0.97\nTag-File-Character-Encoding: UTF-16\n";
    let mut utf16 = draft()
        .file("bagit.txt", declaration)
        .file("bag-info.txt", sixteen);
    let bytes = |text: &str| -> Vec<u8> {
        "\u{feff}"
            .chars()
            .chain(text.chars())
            .collect::<String>()
            .encode_utf16()
            .flat_map(u16::to_be_bytes)
            .collect()
    };
    let manifest = bytes(&std::mem::take(&mut utf16.manifest));
    fs::write(utf16.dir.path().join("manifest-md5.txt"), manifest).unwrap();
    assert_eq!(check(utf16.dir.path()).faults, []);
    suite();
}

/// The suite of the Library of Congress itself.
fn suite() {
    let Some(suite) = ecluse_peers::preserve("bagit-conformance-suite") else {
        return;
    };
    let mut bags = 0;
    for version in fs::read_dir(suite)
        .unwrap()
        .map(|entry| entry.unwrap().path())
    {
        for (kind, is_valid) in [
            ("valid", true),
            ("warning", true),
            ("invalid", false),
            ("linux-only", false),
            ("windows-only", false),
        ] {
            for bag in fs::read_dir(version.join(kind)).into_iter().flatten() {
                let bag = bag.unwrap().path();
                // Its two files are one where case does not count, and so its Oxum says.
                if !bag.is_dir() || bag.ends_with("duplicate-file-with-different-case") {
                    continue;
                }
                let whole = restored(&bag);
                let report = check(whole.path());
                assert_eq!(
                    report.is_valid(),
                    is_valid,
                    "{}: {:?}",
                    bag.display(),
                    report.faults
                );
                assert!(
                    kind != "warning" || !report.warnings.is_empty(),
                    "{}",
                    bag.display()
                );
                bags += 1;
            }
        }
    }
    eprintln!("{bags} bags of the suite agree");
    assert!(bags >= 50, "{bags}");
}

/// Copies a bag of the suite. Two have files that some checkouts lose: they have the bytes of the other file.
fn restored(bag: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for path in all_files(bag) {
        let to = copy.path().join(path.strip_prefix(bag).unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(&path, &to).unwrap();
    }
    for (name, one, other) in [
        ("special-system-files", "data/Thumbs.db", "data/.DS_Store"),
        (
            "same-filename-listed-twice-with-different-normalization",
            "data/N\u{fa}\u{f1}ez",
            "data/Nu\u{301}n\u{303}ez",
        ),
    ] {
        let (one, other) = (copy.path().join(one), copy.path().join(other));
        match (bag.ends_with(name), one.exists(), other.exists()) {
            (true, true, false) => drop(fs::copy(&one, &other).unwrap()),
            (true, false, true) => drop(fs::copy(&other, &one).unwrap()),
            _ => {}
        }
    }
    copy
}
