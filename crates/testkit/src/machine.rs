//! A sick machine: file systems of their own that are small, full or read-only, and sudden deaths.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use crate::cannot_run;
use crate::root::{Root, until_so};

/// Set in the process that runs inside the namespaces.
pub const INSIDE: &str = "ECLUSE_TEST_INSIDE";

/// Runs the rest of a test in namespaces of its own. `false`: this is the process outside, and the
/// test is over.
pub fn inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let flags = ["-Urm", "-m"].into_iter().find(|flags| {
        let mut probe = Command::new("unshare");
        probe.args([flags, "sh", "-c", "mount -t tmpfs none /mnt"]);
        let output = probe.output();
        output.is_ok_and(|output| output.status.success())
    });
    let Some(flags) = flags else {
        cannot_run(&format!(
            "{test} needs root, or unshare and user namespaces"
        ));
        return false;
    };
    let itself = std::env::current_exe().expect("a test has a program");
    let mut command = Command::new("unshare");
    command.arg(flags).arg(itself);
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    let output = command.env(INSIDE, "1").output();
    let output = output.expect("unshare was there a moment ago");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    for line in text(&output.stderr)
        .lines()
        .filter(|line| line.starts_with("measured: "))
    {
        eprintln!("{line}");
    }
    assert!(
        output.status.success(),
        "{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    assert!(
        text(&output.stdout).contains("1 passed"),
        "{test} is misspelt"
    );
    false
}

/// Runs a line of shell with a path as `$1`.
pub fn sh(script: &str, path: &Path) {
    let mut command = Command::new("sh");
    let status = command.args(["-ec", script, "sh"]).arg(path).status();
    let status = status.expect("there is a shell");
    assert!(status.success(), "{script} {}", path.display());
}

/// Mounts an empty file system of that size on a directory.
pub fn mount(path: &Path, size: &str) {
    fs::create_dir_all(path).expect("a mount point can be made");
    sh(
        &format!("mount -t tmpfs -o size={size},nr_inodes=0 none \"$1\""),
        path,
    );
}

/// Fills a file system to the last byte; returns the file that does.
pub fn fill(dir: &Path) -> PathBuf {
    let path = dir.join("filler");
    let mut file = File::create(&path).expect("a full disk still takes a name");
    let mut size = 64 << 10;
    while size > 0 {
        if file.write_all(&vec![0; size]).is_err() {
            size /= 2;
        }
    }
    path
}

/// Gives back what [`fill`] took.
pub fn empty(filler: &Path) {
    let file = File::options().write(true).open(filler);
    let cut = file.and_then(|file| file.set_len(0));
    cut.expect("a filler can be cut");
}

/// Starts a stage again and again and kills it, each time at another of these moments, until nothing
/// waits for it or it has died `most` deaths; returns how many it died.
pub fn kill_at(
    root: &Root,
    binary: &str,
    stage: &str,
    most: usize,
    moments: &[&dyn Fn() -> bool],
) -> usize {
    let is_over = || root.list(stage, "ready").is_empty() && root.claimed(stage).is_empty();
    let mut kills = 0;
    while kills < most && !is_over() {
        let mut program = root.start(binary, &["--workers", "2"]);
        until_so("the moment to die", || {
            program.must_live();
            moments[kills % moments.len()]() || is_over()
        });
        program.signal(Signal::KILL);
        program.wait();
        kills += 1;
    }
    kills
}

/// Returns the moment at which a name of that kind shows up in a directory that was not seen there
/// before.
pub fn newcomer(dir: &Path, is_wanted: fn(&str) -> bool) -> impl Fn() -> bool + use<> {
    let dir = dir.to_owned();
    let seen = RefCell::new(BTreeSet::new());
    move || {
        let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut seen = seen.borrow_mut();
        // All of them: the next moment is of the next name.
        names.fold(false, |is_new, name| {
            is_new | (is_wanted(&name) && seen.insert(name))
        })
    }
}
