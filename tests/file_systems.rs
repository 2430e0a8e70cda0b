//! `ecluse init` and `ecluse check` on real file systems, each in an image of its own on a loop device.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A mounted image; dropping it unmounts it.
struct Mounted {
    dir: TempDir,
}

impl Mounted {
    /// Makes a file system and mounts it; none where the machine does not let us.
    fn new(mkfs: &[&str]) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        // XFS is no smaller.
        let file = fs::File::create(&image).unwrap();
        file.set_len(400 << 20).unwrap();
        fs::create_dir(dir.path().join("mount")).unwrap();
        let made = Command::new(mkfs[0]).args(&mkfs[1..]).arg(&image).output();
        assert!(made.is_ok_and(|made| made.status.success()), "{mkfs:?}");
        let mut mount = Command::new("mount");
        mount
            .args(["-o", "loop"])
            .args([&image, &dir.path().join("mount")]);
        let output = mount.output().unwrap();
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr);
            ecluse_testkit::cannot_run(&format!("loop mounts need root and loop devices: {why}"));
            return None;
        }
        Some(Self { dir })
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("mount")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.root()).status();
    }
}

fn ecluse(root: &Path, arguments: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ecluse"))
        .arg("--root")
        .arg(root)
        .args(arguments)
        .env_remove("ECLUSE_CONFIG")
        .output()
        .unwrap();
    let mut said = String::from_utf8(output.stdout).unwrap();
    said.push_str(&String::from_utf8(output.stderr).unwrap());
    (output.status.code().unwrap(), said)
}

#[test]
fn local_file_systems_are_tried_by_two_processes() {
    for (mkfs, fault) in [
        (&["mkfs.ext4", "-q"][..], None),
        (&["mkfs.xfs", "-q"], None),
        (
            &["mkfs.ext4", "-q", "-O", "^has_journal"],
            Some("without a journal"),
        ),
    ] {
        let Some(mounted) = Mounted::new(mkfs) else {
            return;
        };
        let root = mounted.root();
        let (code, said) = ecluse(&root, &["init"]);
        assert_eq!(code, 0, "{mkfs:?}: {said}");
        let (code, said) = ecluse(&root, &["check"]);
        match fault {
            Some(words) => {
                assert_eq!(code, 2, "{mkfs:?}: {said}");
                assert!(said.contains(words), "{mkfs:?}: {said}");
            }
            None => assert!(!said.contains("docs/file-systems.md"), "{mkfs:?}: {said}"),
        }
        let work = root.join("work/ingest/tmp");
        assert_eq!(fs::read_dir(work).unwrap().count(), 0, "nothing is left");
    }
}

#[test]
fn the_other_process_does_what_it_is_told() {
    use std::io::{BufRead, BufReader, Write};

    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_ecluse"))
        .arg("try-file-system")
        .arg(dir.path())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut orders = child.stdin.take().unwrap();
    orders.write_all(b"write a text\nread a\nread b\n").unwrap();
    drop(orders);
    let answers = BufReader::new(child.stdout.take().unwrap());
    let answers: Vec<String> = answers.lines().map(Result::unwrap).collect();
    assert_eq!(answers[..2], ["sees: yes", "sees: text"]);
    assert!(answers[2].starts_with("sees: error: "), "{answers:?}");
    assert!(child.wait().unwrap().success());
    assert_eq!(fs::read(dir.path().join("a")).unwrap(), b"text");
}
