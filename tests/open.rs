//! What was harvested is looked at: in a browser that the command opens, and by pywb with the configuration that serve writes.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use ecluse_testkit::root::{settle_environment, until_so};

const ECLUSE: &str = env!("CARGO_BIN_EXE_ecluse");
const PAGE: &str = "<!doctype html><title>The lock</title><p>The gates are closed.</p>";

/// A site of one page; returns its URL.
fn site() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!(
        "http://127.0.0.1:{}/",
        listener.local_addr().unwrap().port()
    );
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut bytes = [0; 4096];
            let read = stream.read(&mut bytes).unwrap_or(0);
            let is_page = bytes[..read].starts_with(b"GET / ");
            let (status, body) = if is_page {
                ("200 OK", PAGE)
            } else {
                ("404 Not Found", "")
            };
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all((head + body).as_bytes());
        }
    });
    url
}

fn ecluse(root: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(ECLUSE);
    settle_environment(&mut command);
    for name in ["BROWSER", "DISPLAY", "WAYLAND_DISPLAY"] {
        command.env_remove(name);
    }
    command.arg("--root").arg(root).args(words);
    command
}

fn settings(root: &Path) {
    let text = "[site]\ncontact = \"keeper@lock.example\"\n[defaults]\nsettle = \"100ms\"\nmin-free = \"0 B\"\n\
        [stage.bigmerge]\nspare = \"0 B\"\n\
        [[archive.repository]]\nname = \"repository\"\npath = \"repository\"\nleave-free = \"0 B\"\n\
        [[stage.backup.targets]]\nname = \"backup\"\nkind = \"directory\"\npath = \"backup\"\nleave-free = \"0 B\"\n";
    fs::write(root.join("pipeline.toml"), text).unwrap();
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Ends a program when the test does.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_harvest_ends_in_a_browser_and_pywb_shows_the_same() {
    let url = site();
    let root = tempfile::tempdir().unwrap();
    settings(root.path());
    // A browser that looks, and then ends the command as Ctrl-C does.
    let [browser, opened, seen] =
        ["browser", "opened.txt", "seen.html"].map(|name| root.path().join(name));
    let script = format!(
        "#!/bin/sh\nprintf '%s\\n' \"$1\" > '{}'\ncurl -sSL --noproxy '*' -o '{}' \"$1\"\nkill -INT $PPID\n",
        opened.display(),
        seen.display()
    );
    fs::write(&browser, script).unwrap();
    fs::set_permissions(&browser, fs::Permissions::from_mode(0o755)).unwrap();
    let words = [
        "harvest",
        &url,
        "--allow-private",
        "--delay",
        "10ms",
        "--open",
    ];
    let mut command = ecluse(root.path(), &words);
    let output = command.env("BROWSER", &browser).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let address = fs::read_to_string(&opened).unwrap();
    let address = address.trim();
    assert!(
        address.starts_with("http://127.0.0.1:") && address.ends_with(&url),
        "{address}"
    );
    assert!(
        said(&output).contains(&format!("open {address}")),
        "{}",
        said(&output)
    );
    let page = fs::read_to_string(&seen).unwrap().replace("&#x2f;", "/");
    let frame = page.split("<iframe").nth(1).unwrap_or_default();
    assert!(
        page.contains("class=\"banner\"") && frame.contains(&format!("mp_/{url}")),
        "{page}"
    );
    // It is over: nobody listens there any more.
    let at = address.split('/').nth(2).unwrap();
    assert!(TcpStream::connect(at).is_err(), "{at}");
    pywb_shows(root.path(), &url);
}

/// Starts pywb as `serve --pywb` says, and asks it for the page.
fn pywb_shows(root: &Path, url: &str) {
    let directory = root.join("for pywb's");
    let words = ["serve", "--pywb", directory.to_str().unwrap()];
    let output = ecluse(root, &words).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("wayback"), "{}", said(&output));
    // What is there is not overwritten.
    assert_eq!(
        ecluse(root, &words).output().unwrap().status.code(),
        Some(74)
    );
    let port = {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    };
    let mut command = Command::new(ecluse_peers::program("wayback"));
    command
        .args([
            "--bind",
            "127.0.0.1",
            "--port",
            &port.to_string(),
            "--threads",
            "2",
        ])
        .current_dir(&directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(root.join("pywb.log")).unwrap());
    let mut pywb = Ended(command.spawn().unwrap());
    let log = || fs::read_to_string(root.join("pywb.log")).unwrap_or_default();
    until_so("pywb listens", || {
        assert!(pywb.0.try_wait().unwrap().is_none(), "{}", log());
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    let raw = |path: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let answer = raw(&format!("/web/2026id_/{url}"));
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains(PAGE),
        "{answer}\n{}",
        log()
    );
    let absent = raw("/web/2026id_/http://nowhere.example/");
    assert!(absent.starts_with("HTTP/1.1 404"), "{absent}");
}

#[test]
fn where_nobody_can_see_a_browser_the_address_is_told() {
    let url = site();
    let root = tempfile::tempdir().unwrap();
    settings(root.path());
    let words = [
        "harvest",
        &url,
        "--allow-private",
        "--delay",
        "10ms",
        "--open",
    ];
    let mut command = ecluse(root.path(), &words);
    let mut harvest = Ended(
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let mut output = std::io::BufReader::new(harvest.0.stdout.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("open http://127.0.0.1:") {
        line.clear();
        let read = std::io::BufRead::read_line(&mut output, &mut line).unwrap();
        assert!(read > 0, "it ended and told no address");
    }
    let at = line.split('/').nth(2).unwrap();
    assert!(TcpStream::connect(at).is_ok());
    let pid = rustix::process::Pid::from_child(&harvest.0);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(harvest.0.wait().unwrap().code(), Some(0));
}
