//! A disk that hangs under `ecluse serve`: whoever opens a file there is held by strace, as a dead mount would hold it.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use ecluse_testkit::root::{settle_environment, until_so};

const ECLUSE: &str = env!("CARGO_BIN_EXE_ecluse");

/// The server, and strace above it; both end when the test does.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id()));
        let tracer = status.ok().and_then(|text| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("TracerPid:"))?;
            rustix::process::Pid::from_raw(line.trim().parse().ok()?)
        });
        let _ = self.0.kill();
        // It sleeps as long as it holds somebody, and nobody can be buried meanwhile.
        if let Some(tracer) = tracer {
            let _ = rustix::process::kill_process(tracer, rustix::process::Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

/// Puts a file with one capture into a directory of its own; returns its line and its place.
fn stored(root: &Path, name: &str) -> (String, String) {
    let block = format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nfrom {name}");
    let record = format!(
        "WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://{name}.example/\r\nWARC-Date: 2026-01-01T00:00:00Z\r\nContent-Length: {}\r\n\r\n{block}\r\n\r\n",
        block.len()
    );
    fs::create_dir(root.join(name)).unwrap();
    let path = root.join(name).join(format!("{name}.warc"));
    fs::write(&path, &record).unwrap();
    let line = format!(
        "example,{name})/ 20260101000000 {{\"url\": \"http://{name}.example/\", \"mime\": \"text/plain\", \"status\": \"200\", \"length\": \"{}\", \"offset\": \"0\", \"filename\": \"{name}.warc\"}}\n",
        record.len()
    );
    (line, format!("{name}.warc\t{}\n", path.display()))
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    // A server that is ended answers nobody.
    let _ = stream.read_to_string(&mut text);
    text
}

#[test]
fn a_disk_that_hangs_holds_only_those_who_ask_for_it() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let [well, hung] = ["awake", "hung"].map(|name| stored(root, name));
    let generation = root.join("index/generations/1");
    fs::create_dir_all(&generation).unwrap();
    fs::write(generation.join("index.cdxj"), well.0 + &hung.0).unwrap();
    fs::write(generation.join("path-index.txt"), well.1 + &hung.1).unwrap();
    std::os::unix::fs::symlink("generations/1", root.join("index/current")).unwrap();
    let settings = "[access]\nlisten = \"127.0.0.1:0\"\nreaders = 4\n";
    fs::write(root.join("pipeline.toml"), settings).unwrap();
    // For a quarter of an hour: the test is over long before. With -D our child is the server, not strace.
    let mut command = Command::new("strace");
    settle_environment(&mut command);
    command
        .args([
            "-f",
            "-q",
            "-o",
            "/dev/null",
            "-D",
            "--seccomp-bpf",
            "-e",
            "trace=open,openat",
        ])
        .args(["-e", "inject=open,openat:delay_enter=900000000", "-P"])
        .arg(root.join("hung/hung.warc"))
        .arg(ECLUSE)
        .arg("--root")
        .arg(root)
        .arg("serve");
    let command = command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = Ended(command.spawn().unwrap());
    let mut said = String::new();
    let mut output = BufReader::new(server.0.stdout.take().unwrap());
    output.read_line(&mut said).unwrap();
    let address = said.trim().strip_prefix("serving http://").unwrap();
    let address = address.trim_end_matches('/').to_owned();
    let [awake, asleep] =
        ["awake", "hung"].map(|name| format!("/web/2026id_/http://{name}.example/"));
    assert!(get(&address, &awake).ends_with("from awake"));
    // Twice as many as there are readers.
    let refused = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let answer = get(&address, &asleep);
                assert!(
                    answer.is_empty() || answer.starts_with("HTTP/1.1 503"),
                    "{answer}"
                );
                refused.fetch_add(usize::from(!answer.is_empty()), Ordering::SeqCst);
            });
        }
        // Three are held, the others are told; and whoever wants something else has it.
        until_so("five were refused", || refused.load(Ordering::SeqCst) == 5);
        assert!(get(&address, &awake).ends_with("from awake"));
        assert!(get(&address, "/web/cdx?url=hung.example").contains("hung.warc"));
        assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200"));
        assert!(
            get(&address, &asleep).starts_with("HTTP/1.1 503"),
            "at once"
        );
        assert_eq!(refused.load(Ordering::SeqCst), 5);
        drop(server);
    });
}
