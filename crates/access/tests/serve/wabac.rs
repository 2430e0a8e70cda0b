//! A worker that the operator installed shows the pages: a stand-in here, and wabac.js itself where `ECLUSE_TEST_WABAC` names its directory.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::browser::{Canary, Relay};
use crate::made::Made;

const TIME: &str = "20260101000000";

/// Speaks as wabac.js does, and changes one word of what it shows.
const STAND_IN: &str = r#"
let archive = "", modifier = "";
addEventListener("install", () => skipWaiting());
addEventListener("message", event => {
  if (event.data.msg_type !== "addColl") return;
  archive = event.data.extraConfig.archivePrefix;
  modifier = event.data.extraConfig.archiveMod;
  event.source.postMessage({ msg_type: "collAdded", name: event.data.name });
});
addEventListener("fetch", event => {
  const found = /\/wabac\/w\/[^/]+\/(\d+)mp_\/(.*)$/.exec(event.request.url);
  if (!found) return;
  event.respondWith(fetch(archive + found[1] + modifier + "/" + found[2]).then(async answer => {
    const live = await fetch("http://live.example/from-the-worker", { mode: "no-cors" }).then(() => "live", () => "still");
    const text = (await answer.text()).replace("by-nobody", "by-worker-" + live);
    return new Response(text, { headers: { "Content-Type": answer.headers.get("Content-Type") } });
  }));
});
"#;

/// A browser that stays until it is dropped.
struct Browser {
    program: Child,
    _home: tempfile::TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

fn browse(canary: &Canary, url: &str) -> Option<Browser> {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new("chromium");
    command
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
        ])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ])
        .arg(format!("--user-data-dir={}", home.path().display()))
        .arg(format!(
            "--host-resolver-rules=MAP *.example 127.0.0.1:{}, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            canary.port
        ))
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    match command.spawn() {
        Ok(program) => Some(Browser {
            program,
            _home: home,
        }),
        Err(error) => {
            let must = std::env::var_os("ECLUSE_MUST").is_some_and(|must| must == "1");
            assert!(!must, "cannot run, and ECLUSE_MUST=1: no chromium: {error}");
            eprintln!("skipped: no chromium: {error}");
            None
        }
    }
}

/// Waits until something was asked for.
fn until_asked(relay: &Relay, part: &str) {
    let begun = Instant::now();
    while !relay.has_asked(part) {
        assert!(
            begun.elapsed() < Duration::from_secs(120),
            "{part}\n{:#?}",
            relay.asked()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn made() -> Made {
    let mut made = Made::new();
    made.html(
        "http://a.example/",
        TIME,
        "<!doctype html><title>by-nobody</title><link rel=stylesheet href=http://live.example/s.css><h1>A</h1><img src=http://b.example/i.png>\
         <script type=module>import { x } from '/m.js'; new Image().src = '/report/seen-' + document.title + '-' + x;</script>",
    );
    made.page(
        "http://a.example/m.js",
        TIME,
        "Content-Type: text/javascript\r\n",
        b"export const x = 'module';",
    );
    made.page(
        "http://b.example/i.png",
        TIME,
        "Content-Type: image/png\r\n",
        b"png",
    );
    made.publish(1);
    made
}

#[test]
fn a_worker_of_the_operators_shows_the_page() {
    let mut shown = vec![(None, "/report/seen-by-worker-still-")];
    if let Some(directory) = std::env::var_os("ECLUSE_TEST_WABAC") {
        shown.push((
            Some(PathBuf::from(directory)),
            "ir_/http://a.example/report/seen-by-nobody-module",
        ));
    }
    for (directory, report) in shown {
        let mut made = made();
        let directory = directory.unwrap_or_else(|| {
            // The stand-in leads no links: what the page imports is asked for where it stands.
            made.page("http://a.example/", "20260102000000", "Content-Type: text/html\r\n", b"<title>by-nobody</title><script>new Image().src = '/report/seen-' + document.title + '-'</script>");
            made.publish(2);
            let own = made.path().join("worker");
            fs::create_dir(&own).unwrap();
            fs::write(own.join("sw.js"), STAND_IN).unwrap();
            own
        });
        let served = made.serve_with(|settings| settings.wabac = Some(directory.clone()));
        let (relay, canary) = (Relay::before(&served), Canary::start());
        let time = if report.contains("worker") {
            "20260102000000"
        } else {
            TIME
        };
        let url = format!("http://{}/web/{time}/http://a.example/", relay.address);
        let Some(_browser) = browse(&canary, &url) else {
            return;
        };
        until_asked(&relay, report);
        assert!(relay.has_asked("GET /wabac/sw.js"), "{:#?}", relay.asked());
        assert!(
            relay.has_asked(&format!("/web/{time}ir_/http://a.example/ ")),
            "{:#?}",
            relay.asked()
        );
        assert!(
            !relay.has_asked(&format!("/web/{time}mp_/")),
            "{:#?}",
            relay.asked()
        );
        assert_eq!(canary.heard(), [""; 0], "the live web was asked");
    }
}

#[test]
fn where_the_worker_does_not_start_the_page_is_shown_and_it_is_said() {
    let made = made();
    let own = made.path().join("worker");
    fs::create_dir(&own).unwrap();
    fs::write(own.join("sw.js"), "throw new Error('broken');").unwrap();
    let served = made.serve_with(|settings| settings.wabac = Some("worker".into()));
    let (relay, canary) = (Relay::before(&served), Canary::start());
    let url = format!("http://{}/web/{TIME}/http://a.example/", relay.address);
    let Some(_browser) = browse(&canary, &url) else {
        return;
    };
    until_asked(&relay, "/report/seen-by-nobody-module");
    assert!(
        relay.has_asked(&format!("/web/{TIME}mp_/http://a.example/ ")),
        "{:#?}",
        relay.asked()
    );
    assert_eq!(canary.heard(), [""; 0], "the live web was asked");
    let frame = served.get(&format!("/web/{TIME}/http://a.example/")).text();
    assert!(
        frame.contains("id=\"no-worker\" hidden") && !frame.contains("sandbox="),
        "{frame}"
    );
}

#[test]
fn only_files_of_the_directory_are_given_and_only_where_it_is_named() {
    let made = made();
    let own = made.path().join("worker");
    fs::create_dir(&own).unwrap();
    fs::write(own.join("sw.js"), "// worker").unwrap();
    fs::write(own.join(".secret.js"), "x").unwrap();
    fs::write(own.join("index.html"), "x").unwrap();
    fs::write(made.path().join("outside.js"), "x").unwrap();
    let served = made.serve_with(|settings| settings.wabac = Some("worker".into()));
    let script = served.get("/wabac/sw.js");
    assert_eq!((script.status, script.text().as_str()), (200, "// worker"));
    assert!(
        script
            .field("content-type")
            .unwrap()
            .starts_with("text/javascript")
    );
    let policy = script.field("content-security-policy").unwrap();
    assert!(
        policy.contains(&format!("connect-src {}", served.base())),
        "{policy}"
    );
    for path in [
        "/wabac/",
        "/wabac/.secret.js",
        "/wabac/index.html",
        "/wabac/../outside.js",
        "/wabac/%2e%2e/outside.js",
        "/wabac/a/sw.js",
        "/wabac/none.js",
    ] {
        assert_eq!(served.get(path).status, 404, "{path}");
    }
    let lost = served.get(&format!("/wabac/w/web/{TIME}mp_/http://a.example/?x=1"));
    assert_eq!(lost.status, 307);
    assert_eq!(
        lost.field("location"),
        Some(format!("/web/{TIME}/http://a.example/?x=1").as_str())
    );
    // What the worker asks for is what was archived, in the sandbox of its policy.
    let raw = served.get(&format!("/web/{TIME}ir_/http://a.example/"));
    assert!(
        raw.text().contains("src=http://b.example/i.png"),
        "{}",
        raw.text()
    );
    assert!(
        raw.field("content-security-policy")
            .unwrap()
            .starts_with("sandbox ")
    );
    let without = made.serve();
    assert_eq!(without.get("/wabac/sw.js").status, 404);
    let frame = without
        .get(&format!("/web/{TIME}/http://a.example/"))
        .text();
    assert!(
        frame.contains("sandbox=") && !frame.contains("wabac"),
        "{frame}"
    );
}
