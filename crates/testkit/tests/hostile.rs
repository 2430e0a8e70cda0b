//! Names and links that somebody put there to do harm.
//!
//! Nothing leaves the tree, nothing outside is read or written, nothing reaches a log raw, and
//! nothing of it stops the parcels beside it.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use ecluse_spool::{ParcelId, ParcelManifest};
use ecluse_testkit::root::{Root, contents, snapshot};
use tempfile::TempDir;

const RELAY: &str = env!("CARGO_BIN_EXE_ecluse-relay");

fn relay_root() -> Root {
    let root = Root::new();
    root.settings(&["relay", "sink"], "");
    root
}

fn hostile_names() -> Vec<OsString> {
    let mut names: Vec<Vec<u8>> = [
        "new\nline",
        "{\"level\":\"error\"}\n{\"forged\":1}",
        "esc\u{1b}[2J\u{1b}]0;owned\u{7}",
        "return\rtab\tbell\u{7}null-less",
        "a..b",
        "up\\..\\..\\windows",
        "-rf",
        "--help",
        "x~1",
        "x~4294967296",
        "x@y",
        "parcel.json",
        "history",
        "trouble.json",
        "x.why.json",
        "PAUSED",
        "ff",
        " ",
        "a b",
        "a\tb",
        "$(touch pwned)",
        "`touch pwned`; touch pwned",
        "%s%n%p",
        "\u{202e}gpj.exe",
        "été-日本語",
    ]
    .into_iter()
    .map(|name| name.as_bytes().to_vec())
    .collect();
    names.push(b"\xff\xfe not \xc3 text".to_vec());
    names.push(vec![b'n'; 255]);
    names.push(vec![0xff; 255]);
    names.push([&[b'~'; 251][..], b".gz~"].concat());
    names.into_iter().map(OsString::from_vec).collect()
}

#[test]
fn a_hostile_name_is_adopted_under_a_safe_one() {
    let root = relay_root();
    let names = hostile_names();
    // The same content everywhere: only the name tells them apart.
    for name in &names {
        root.drop_file("relay", name, b"the same bytes");
    }
    let mut command = root.program(RELAY);
    // A pwned/ would appear here.
    command
        .current_dir(root.path())
        .args(["--once", "--log", "trace"]);
    let mut program = ecluse_testkit::root::Program::start(command);
    assert_eq!(program.wait(), 0, "{}", program.log());
    assert_eq!(root.list("relay", "drop"), [""; 0], "all are taken");
    let ready = root.list("sink", "ready");
    assert_eq!(ready.len(), names.len(), "each once: {ready:#?}");
    let mut originals = BTreeSet::new();
    for entry in &ready {
        let id = entry.strip_suffix("~0").unwrap();
        ParcelId::new(id).unwrap();
        assert!(!id.starts_with('-'), "{id}");
        let dir = root.part("sink", "ready").join(entry);
        let manifest: ParcelManifest =
            serde_json::from_slice(&fs::read(dir.join("parcel.json")).unwrap()).unwrap();
        assert_eq!(fs::read(dir.join("relayed")).unwrap().last(), Some(&b'\n'));
        let file = manifest
            .files
            .iter()
            .find(|file| file.name != "relayed")
            .unwrap();
        assert_eq!(fs::read(dir.join(&file.name)).unwrap(), b"the same bytes");
        let original = manifest.original.unwrap_or(file.name.clone());
        assert!(
            original.bytes().all(|b| (b' '..=b'~').contains(&b)),
            "{original}"
        );
        originals.insert(original);
    }
    let expected: BTreeSet<String> = names
        .iter()
        .map(|name| name.as_bytes().escape_ascii().to_string())
        .collect();
    assert_eq!(
        originals, expected,
        "each is known by the name it came with"
    );
    // Nothing but the work directory was made, and no log line was forged or repaints a terminal.
    let mut made: Vec<String> = fs::read_dir(root.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    made.sort();
    assert_eq!(made, ["pipeline.toml", "work"]);
    for line in program.log().lines() {
        assert!(line.starts_with("{\"time\":"), "{line:?}");
        assert!(!line.chars().any(char::is_control), "{line:?}");
    }
}

#[test]
fn a_name_that_is_no_entry_is_refused_by_name_and_stops_nobody() {
    let root = relay_root();
    root.put("relay", "good", b"fine");
    let ready = root.part("relay", "ready");
    // More than the eight lost claims after which a worker reads the directory again.
    let mut strangers: Vec<String> = (0..10).map(|n| format!("x~00{n}")).collect();
    strangers.extend(
        [
            "x~+1",
            "no-attempts",
            "~1",
            "a b~1",
            "a@b~1",
            "x~1~",
            "..x~1",
            "\u{1b}[2J~1",
        ]
        .map(str::to_owned),
    );
    for name in &strangers {
        fs::create_dir(ready.join(name)).unwrap();
        fs::write(ready.join(name).join("parcel.json"), "{}").unwrap();
    }
    fs::write(ready.join("file~0"), "a file named like a parcel").unwrap();
    let (code, said) = root.run(RELAY, &["--once"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(root.list("sink", "ready"), ["good~0"]);
    assert_eq!(
        root.list("relay", "ready").len(),
        strangers.len() + 1,
        "left as they are"
    );
    for shown in [
        "ready/x~003",
        "ready/file~0",
        "ready/a@b~1",
        "ready/\\\\x1b[2J~1",
    ] {
        let line = said.lines().find(|line| line.contains(shown));
        assert!(
            line.is_some_and(|line| line.contains("refused")),
            "{shown}: {said}"
        );
    }
}

#[test]
fn a_parcel_that_lies_about_itself_is_held() {
    let root = relay_root();
    let lies: [(&str, &str); 5] = [
        (
            "another",
            r#"{"schema":1,"id":"good","kind":"x","born":"1","files":[]}"#,
        ),
        (
            "upwards",
            r#"{"schema":1,"id":"upwards","kind":"x","born":"1","files":[{"name":"../../../../pipeline.toml","bytes":1,"sha256":"0"}]}"#,
        ),
        (
            "absolute",
            r#"{"schema":1,"id":"absolute","kind":"x","born":"1","files":[{"name":"/etc/hostname","bytes":1,"sha256":"0"}]}"#,
        ),
        (
            "missing",
            r#"{"schema":1,"id":"missing","kind":"x","born":"1","files":[{"name":"data","bytes":1,"sha256":"0"}]}"#,
        ),
        (
            "itself",
            r#"{"schema":1,"id":"itself","kind":"x","born":"1","files":[{"name":"parcel.json","bytes":1,"sha256":"0"}]}"#,
        ),
    ];
    root.put("relay", "good", b"fine");
    for (id, manifest) in lies {
        let dir = root.part("relay", "ready").join(format!("{id}~0"));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("parcel.json"), manifest).unwrap();
    }
    let (code, said) = root.run(RELAY, &["--once"]);
    assert_eq!(code, 65, "{said}");
    assert_eq!(root.list("sink", "ready"), ["good~0"]);
    for (id, _) in lies {
        assert!(
            root.list("relay", "held").contains(&format!("{id}~1")),
            "{id}"
        );
        assert_ne!(root.why("relay", id), "", "{id}");
    }
}

/// A directory outside the tree that nobody may touch.
struct Outside {
    dir: TempDir,
    before: std::collections::BTreeMap<PathBuf, String>,
}

impl Outside {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("secret"), "nobody's business").unwrap();
        fs::write(dir.path().join("data"), "nobody's business").unwrap();
        fs::write(dir.path().join("trouble.json"), "{}").unwrap();
        let parcel = r#"{"schema":1,"id":"link","kind":"x","born":"1","files":[]}"#;
        fs::write(dir.path().join("parcel.json"), parcel).unwrap();
        fs::create_dir(dir.path().join("history")).unwrap();
        let before = snapshot(dir.path());
        Self { dir, before }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn must_be_untouched(&self) {
        assert_eq!(snapshot(self.path()), self.before);
    }
}

/// Fails when the bytes outside are found anywhere in the tree.
fn must_not_hold_the_secret(root: &Root) {
    for (path, bytes) in contents(root.path()) {
        let found = bytes.windows(8).any(|window| window == b"nobody's");
        assert!(!found, "{}", path.display());
    }
}

#[test]
fn links_in_ready_and_drop_are_refused_and_left() {
    let (root, outside) = (relay_root(), Outside::new());
    root.put("relay", "good", b"fine");
    root.drop_file("relay", "plain", b"fine");
    let (ready, drop) = (root.part("relay", "ready"), root.part("relay", "drop"));
    symlink(outside.path(), ready.join("link~0")).unwrap();
    symlink(outside.path(), ready.join("ab")).unwrap();
    symlink("/nonexistent", ready.join("dangling~0")).unwrap();
    symlink(outside.path().join("secret"), drop.join("secret")).unwrap();
    symlink(outside.path(), drop.join("outside")).unwrap();
    fs::create_dir(drop.join("directory")).unwrap();
    fs::write(drop.join("directory/file"), "x").unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        drop.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let (code, said) = root.run(RELAY, &["--once"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(root.list("sink", "ready").len(), 2, "{said}");
    for entry in [
        "ready/link~0",
        "ready/ab",
        "ready/dangling~0",
        "drop/secret",
        "drop/outside",
        "drop/directory",
        "drop/pipe",
    ] {
        let line = said
            .lines()
            .find(|line| line.contains(&format!("\"{entry}\"")));
        assert!(
            line.is_some_and(|line| line.contains("refused")),
            "{entry}: {said}"
        );
    }
    outside.must_be_untouched();
    must_not_hold_the_secret(&root);
    let depths = root.tree().depths("relay").unwrap();
    assert_eq!(depths.ready + depths.dropped, 0);
    assert_eq!(depths.refused.len(), 7, "{:?}", depths.refused);
}

#[test]
fn links_inside_a_parcel_hold_it() {
    let (root, outside) = (relay_root(), Outside::new());
    root.put("relay", "good", b"fine");
    for (id, inside) in [
        ("data-link", "data"),
        ("manifest-link", "parcel.json"),
        ("history-link", "history"),
    ] {
        root.put("relay", id, b"to be replaced");
        let path = root
            .part("relay", "ready")
            .join(format!("{id}~0"))
            .join(inside);
        let aside = root.path().join(format!("aside-{id}"));
        let status = std::process::Command::new("mv")
            .arg(&path)
            .arg(&aside)
            .status();
        assert!(status.unwrap().success());
        symlink(outside.path().join(inside), &path).unwrap();
    }
    // One that no manifest names does no harm.
    root.put("relay", "extra-link", b"fine");
    let extra = root.part("relay", "ready/extra-link~0");
    symlink(outside.path(), extra.join("elsewhere")).unwrap();
    symlink(outside.path().join("secret"), extra.join("relayed")).unwrap();
    let (code, said) = root.run(RELAY, &["--once"]);
    assert_eq!(code, 65, "{said}");
    assert_eq!(root.list("sink", "ready"), ["extra-link~0", "good~0"]);
    for id in ["data-link", "manifest-link", "history-link"] {
        assert!(
            root.list("relay", "held").contains(&format!("{id}~1")),
            "{id}: {said}"
        );
        assert_ne!(root.why("relay", id), "");
    }
    outside.must_be_untouched();
    must_not_hold_the_secret(&root);
}

#[test]
fn a_link_in_the_way_of_a_parcel_is_gone_around() {
    let (root, outside) = (relay_root(), Outside::new());
    root.put("relay", "bad", b"hold");
    root.put("relay", "taken", b"fine");
    root.put("relay", "later", b"fine");
    root.put("sink", "other", b"makes the directories");
    // Where they are to go, something lies already.
    symlink(outside.path(), root.part("relay", "held/bad~1")).unwrap();
    symlink(
        outside.path().join("secret"),
        root.part("relay", "held/bad.why.json"),
    )
    .unwrap();
    symlink(outside.path(), root.part("sink", "ready/taken~0")).unwrap();
    fs::write(root.part("sink", "ready/later~0"), "a file").unwrap();
    let (code, said) = root.run(RELAY, &["--once"]);
    assert_eq!(code, 65, "{said}");
    let held = root.list("relay", "held");
    assert_eq!(held, ["bad.why.json", "bad~1", "bad~2"], "beside it");
    assert_eq!(root.why("relay", "bad"), "bad asks to be held");
    let held = root.list("sink", "held");
    let expected = ["later~0", "taken~0"];
    assert_eq!(held, expected, "{said}");
    assert_eq!(root.list("relay", "ready"), [""; 0]);
    outside.must_be_untouched();
    must_not_hold_the_secret(&root);
    // And a person who releases the link changes nothing behind it.
    let tree = root.tree();
    let places = tree
        .locate(&["relay".to_owned()], &ParcelId::new("bad").unwrap())
        .unwrap();
    let link = places.iter().find(|place| place.attempts == 1).unwrap();
    let error = tree.release(link).unwrap_err();
    assert!(error.to_string().contains("not a directory"), "{error}");
    outside.must_be_untouched();
}

#[test]
fn a_work_directory_that_is_a_link_is_refused() {
    for part in ["", "ready", "claim", "held", "receipts", "tmp", "drop"] {
        let (root, outside) = (relay_root(), Outside::new());
        let path = root.part("relay", part);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let path = PathBuf::from(path.to_string_lossy().trim_end_matches('/'));
        symlink(outside.path(), &path).unwrap();
        let (code, said) = root.run(RELAY, &["--once"]);
        assert_eq!(code, 74, "{part}: {said}");
        let line = said.lines().last().unwrap_or_default();
        assert!(line.contains("symbolic link"), "{part}: {said}");
        assert!(line.contains(path.to_str().unwrap()), "{part}: {said}");
        outside.must_be_untouched();
    }
}

#[test]
fn two_processes_adopt_a_dropped_file_once() {
    let root = relay_root();
    root.tree().init("relay").unwrap();
    let files = 60;
    let mut programs = [
        root.start_ready(RELAY, "relay", &["--workers", "2"]),
        root.start_ready(RELAY, "relay", &["--workers", "2"]),
    ];
    for number in 0..files {
        root.drop_file(
            "relay",
            format!("file-{number}"),
            format!("bytes {number}").as_bytes(),
        );
    }
    root.await_count("sink", "ready", files);
    for program in &mut programs {
        assert_eq!(program.stop(), 0, "{}", program.log());
        assert_eq!(
            program.lines_with("\"level\":\"error\""),
            0,
            "{}",
            program.log()
        );
    }
    assert_eq!(root.list("sink", "ready").len(), files);
    assert_eq!(root.receipts("relay"), files);
    for part in ["drop", "ready", "claim", "held", "tmp"] {
        assert_eq!(root.list("relay", part), [""; 0], "{part}");
    }
}

#[test]
fn a_return_of_a_long_name_that_is_taken_finds_room() {
    let root = relay_root();
    let name = OsStr::from_bytes(&[b'n'; 255]).to_owned();
    root.drop_file("relay", &name, b"first");
    // A worker died with the file in hand, before it was described; meanwhile the name came again.
    let tree = root.tree();
    let limits = ecluse_spool::WorkerLimits::default();
    let dead = ecluse_spool::Worker::open(&tree, "relay", &[], limits, "test").unwrap();
    let other = tree
        .stage("relay")
        .home(dead.id())
        .join("adopt/00000001/.taken");
    drop(dead);
    fs::create_dir_all(&other).unwrap();
    fs::write(other.join(&name), b"second").unwrap();
    let (code, said) = root.run(RELAY, &["--once"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(root.list("sink", "ready").len(), 2, "{said}");
    assert_eq!(root.list("relay", "drop"), [""; 0]);
}
