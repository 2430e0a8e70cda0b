//! `ecluse repair` with backups that are no directories: a real S3 service, rclone's, on loopback, and a command.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use ecluse_testkit::root::until_so;
use tempfile::TempDir;

const NAME: &str = "1-3-20261116120000000-00001-h.warc";

/// An archive whose only backups are a bucket, `vault`, and what a command takes to `tape/`.
struct Archive {
    dir: TempDir,
    service: Child,
}

impl Archive {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for part in ["harvested", "tape", "store/vault"] {
            fs::create_dir_all(root.join(part)).unwrap();
        }
        let port = free_port();
        let service = Command::new(ecluse_peers::program("rclone"))
            .args(["serve", "s3", "--auth-key", "operator,secret-words"])
            .args(["--config", "/dev/null", "--addr"])
            .arg(format!("127.0.0.1:{port}"))
            .arg(root.join("store"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until_so("the service", || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        fs::write(root.join("key"), "operator\n").unwrap();
        fs::write(root.join("secret"), "secret-words\n").unwrap();
        fs::set_permissions(root.join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
        let tape = root.join("tape");
        let tape = tape.display();
        let settings = format!(
            r#"
[defaults]
settle = "100ms"
min-free = "0 B"
[[archive.repository]]
name = "repository"
path = "repository"
leave-free = "0 B"
[[stage.backup.targets]]
name = "store"
kind = "s3"
endpoint = "http://127.0.0.1:{port}"
bucket = "vault"
prefix = "warc/"
key-file = "key"
secret-file = "secret"
timeout = "10s"
[[stage.backup.targets]]
name = "tape"
kind = "command"
command = ["/bin/sh", "-c", "cp \"$1\" \"$0/$2\" && echo \"$0/$2\"", "{tape}", "{{path}}", "{{name}}"]
fetch = ["/bin/sh", "-c", "test -e \"$0\" || exit 66; cat \"$0\"", "{{place}}"]
"#
        );
        fs::write(root.join("pipeline.toml"), settings).unwrap();
        Self { dir, service }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn must(&self, wanted: i32, arguments: &[&str]) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_ecluse"))
            .arg("--root")
            .arg(self.dir.path())
            .args(arguments)
            .env_remove("ECLUSE_CONFIG")
            .output()
            .unwrap();
        let mut said = String::from_utf8(output.stdout).unwrap();
        said.push_str(&String::from_utf8(output.stderr).unwrap());
        assert_eq!(output.status.code(), Some(wanted), "{arguments:?}: {said}");
        said
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        let _ = self.service.kill();
        let _ = self.service.wait();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn is_file(path: &Path, bytes: &[u8]) -> bool {
    fs::read(path).is_ok_and(|found| found == bytes)
}

#[test]
fn copies_in_services_are_read_and_put_back() {
    let mut archive = Archive::new();
    let body = "software: a test\r\n";
    let record = format!(
        "WARC/1.0\r\nWARC-Type: warcinfo\r\nWARC-Date: 2026-11-16T12:00:00Z\r\n\
         WARC-Record-ID: <urn:uuid:5ba56d7e-27b3-4a1e-8a4e-4e9d1e7e0a01>\r\nContent-Type: application/warc-fields\r\n\
         Content-Length: {}\r\n\r\n{body}\r\n\r\n",
        body.len()
    );
    let good = record.as_bytes();
    let harvested = archive.path("harvested").join(NAME);
    fs::write(&harvested, good).unwrap();
    let old = SystemTime::now() - Duration::from_secs(3600);
    let file = fs::File::options().write(true).open(&harvested).unwrap();
    file.set_modified(old).unwrap();
    archive.must(
        0,
        &["run", "--once", "ingest", "index", "transfer", "backup"],
    );
    let stored = archive.path("repository").join(NAME);
    let object = archive.path("store/vault/warc").join(NAME);
    let tape = archive.path("tape").join(NAME);
    for copy in [&stored, &object, &tape] {
        assert!(is_file(copy, good), "{}", copy.display());
    }

    // The stored copy comes back from the store, which is the first good one.
    fs::write(&stored, b"rotten").unwrap();
    archive.must(65, &["verify"]);
    let said = archive.must(0, &["repair", "--all", "--dry-run"]);
    assert!(said.contains("from http://127.0.0.1"), "{said}");
    assert!(is_file(&stored, b"rotten"), "dry");
    let said = archive.must(0, &["repair", "--all"]);
    assert!(said.contains("delete and clean go on"), "{said}");
    assert!(is_file(&stored, good));

    // Whoever names the file has every copy of it read, and mended.
    // Of the same size: the service remembers how long it was.
    let rotten = vec![b'x'; good.len()];
    fs::write(&object, &rotten).unwrap();
    fs::remove_file(&tape).unwrap();
    let said = archive.must(0, &["repair", NAME]);
    assert_eq!(said.matches("put back").count(), 2, "{said}");
    assert!(is_file(&object, good) && is_file(&tape, good), "{said}");
    let aside = object.with_file_name(format!(".ecluse-bad-1-{NAME}"));
    assert!(is_file(&aside, &rotten), "{said}");
    assert_eq!(archive.must(0, &["repair", NAME]), "");

    // The store is away: the tape is good enough, and the store is left alone.
    archive.service.kill().unwrap();
    archive.service.wait().unwrap();
    fs::remove_file(&stored).unwrap();
    fs::write(archive.path("repository/neighbour"), b"").unwrap();
    archive.must(65, &["verify"]);
    let said = archive.must(75, &["repair", "--all"]);
    assert!(is_file(&stored, good), "{said}");
    assert!(said.contains("cannot reach"), "{said}");
    assert!(is_file(&object, good));

    // Nothing good is left.
    for copy in [&stored, &tape] {
        fs::write(copy, b"rotten").unwrap();
    }
    let said = archive.must(65, &["repair", NAME]);
    assert!(said.contains("no good copy can be read"), "{said}");
}
