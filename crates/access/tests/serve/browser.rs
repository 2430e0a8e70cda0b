//! Replay in a real browser: Chromium, with every name of the test's live web led to a canary that must hear nothing.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::made::{Made, Served};

/// Listens and counts: whoever connects to it is written down.
pub(crate) struct Canary {
    pub(crate) port: u16,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Canary {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&heard);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut stream = stream;
                let mut bytes = [0; 2048];
                let read = stream.read(&mut bytes).unwrap_or(0);
                let text = String::from_utf8_lossy(&bytes[..read]).into_owned();
                log.lock().unwrap().push(text);
            }
        });
        Self { port, heard }
    }

    pub(crate) fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }
}

/// Passes bytes between a browser and the server, and writes down what is asked.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Relay {
    pub(crate) fn before(served: &Served) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, to) = (listener.local_addr().unwrap(), served.address);
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let log = Arc::clone(&log);
                thread::spawn(move || pass(client, to, &log));
            }
        });
        Self { address, asked }
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    pub(crate) fn has_asked(&self, part: &str) -> bool {
        self.asked().iter().any(|line| line.contains(part))
    }
}

fn pass(mut client: TcpStream, to: SocketAddr, log: &Mutex<Vec<String>>) {
    let Ok(mut server) = TcpStream::connect(to) else {
        return;
    };
    let (mut back, mut answers) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    thread::spawn(move || {
        let _ = std::io::copy(&mut answers, &mut back);
        let _ = back.shutdown(std::net::Shutdown::Both);
    });
    let mut bytes = [0; 64 << 10];
    while let Ok(read @ 1..) = client.read(&mut bytes) {
        let text = String::from_utf8_lossy(&bytes[..read]);
        let lines = text
            .split("\r\n")
            .filter(|line| line.ends_with(" HTTP/1.1"));
        log.lock().unwrap().extend(lines.map(str::to_owned));
        if server.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    let _ = server.shutdown(std::net::Shutdown::Write);
}

/// Opens a page and returns the document of its window, once nothing moves any more; none where there is no browser.
pub(crate) fn open(canary: &Canary, url: &str, more: &[&str]) -> Option<String> {
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
        ])
        .args([
            "--disable-sync",
            "--disable-domain-reliability",
            "--virtual-time-budget=15000",
        ])
        .arg(format!("--user-data-dir={}", home.path().display()))
        .arg(format!(
            "--host-resolver-rules=MAP *.example 127.0.0.1:{}, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            canary.port
        ))
        .args(more)
        .arg("--dump-dom")
        .arg(url)
        .stdin(Stdio::null());
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            let must = std::env::var_os("ECLUSE_MUST").is_some_and(|must| must == "1");
            assert!(!must, "cannot run, and ECLUSE_MUST=1: no chromium: {error}");
            eprintln!("skipped: no chromium: {error}");
            return None;
        }
    };
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

const TIME: &str = "20260101000000";

fn site(made: &mut Made) {
    let script = "Content-Type: text/javascript\r\n";
    let png = "Content-Type: image/png\r\n";
    let mut at = |url: &str, head: &str, body: &str| made.page(url, TIME, head, body.as_bytes());
    at(
        "https://www.a.example/",
        "Content-Type: text/html; charset=utf-8\r\n",
        r#"<!doctype html><html><head><title>A page</title>
<link rel=stylesheet href=/style.css><link rel=dns-prefetch href=//live.example>
<script src="https://cdn.example/lib.js" integrity="sha256-wrong" crossorigin=use-credentials></script>
<script type=module>import { name } from "/mod.js"; new Image().src = "/report/module-" + name;</script>
</head><body><h1>A</h1><img srcset="one.png 1x, https://cdn.example/two.png 2x">
<iframe src=/inner.html></iframe>
<script>
localStorage.setItem("k", "v"); document.cookie = "c=d; path=/";
if (localStorage.getItem("k") === "v" && document.cookie === "c=d") new Image().src = "/report/storage";
fetch("/data.json").then(r => r.json()).then(d => { new Image().src = "/report/fetch-" + d.x; });
fetch("https://api.example/data.json").then(r => r.json()).then(d => { new Image().src = "/report/far-" + d.x; });
var x = new XMLHttpRequest(); x.open("GET", "data.json"); x.onload = () => { new Image().src = "/report/xhr-" + JSON.parse(x.responseText).x; }; x.send();
var s = document.createElement("script"); s.src = "https://cdn.example/late.js"; document.head.appendChild(s);
var d = document.createElement("div"); d.innerHTML = '<img src="https://cdn.example/inner.png">'; document.body.appendChild(d);
history.pushState({}, "", "/pushed"); new Image().src = "/report/url-" + encodeURIComponent(document.URL);
import("/mod.js").then(m => { new Image().src = "/report/dynamic-" + m.name; });
new Worker("/worker.js").onmessage = e => { new Image().src = "/report/worker-" + e.data; };
</script></body></html>"#,
    );
    at(
        "https://www.a.example/style.css",
        "Content-Type: text/css\r\n",
        "@import '/more.css'; h1{background:url(https://cdn.example/bg.png)}",
    );
    at(
        "https://www.a.example/more.css",
        "Content-Type: text/css\r\n",
        "body{color:#123}",
    );
    at(
        "https://cdn.example/lib.js",
        script,
        "new Image().src = '/report/lib';",
    );
    at(
        "https://cdn.example/late.js",
        script,
        "new Image().src = '/report/late';",
    );
    at(
        "https://www.a.example/mod.js",
        script,
        "import '/deep.js'; export const name = 'x';",
    );
    at(
        "https://www.a.example/deep.js",
        script,
        "new Image().src = '/report/deep';",
    );
    at(
        "https://www.a.example/worker.js",
        script,
        "postMessage('w');",
    );
    at(
        "https://www.a.example/inner.html",
        "Content-Type: text/html\r\n",
        "<a id=l href=/next target=_top>x</a><script>new Image().src='/report/inner'</script>",
    );
    for url in [
        "https://www.a.example/data.json",
        "https://api.example/data.json",
    ] {
        at(url, "Content-Type: application/json\r\n", "{\"x\": 1}");
    }
    for name in [
        "www.a.example/one",
        "cdn.example/two",
        "cdn.example/bg",
        "cdn.example/inner",
    ] {
        at(&format!("https://{name}.png"), png, "png");
    }
}

#[test]
fn a_page_and_what_it_needs_come_from_the_archive_alone() {
    let mut made = Made::new();
    site(&mut made);
    made.publish(1);
    let served = made.serve();
    let (relay, canary) = (Relay::before(&served), Canary::start());
    let url = format!("http://{}/web/{TIME}/https://www.a.example/", relay.address);
    let Some(dom) = open(&canary, &url, &[]) else {
        return;
    };
    assert!(dom.contains("1 January 2026, 00:00:00"), "{dom}");
    for asked in [
        "20260101000000mp_/https://www.a.example/ ",
        "cs_/https://www.a.example/style.css",
        "/https://www.a.example/more.css",
        "/https://cdn.example/bg.png",
        "im_/https://www.a.example/one.png",
        "/https://cdn.example/inner.png",
        "fr_/https://www.a.example/inner.html",
        "/report/lib",
        "/report/late",
        "/report/module-x",
        "/report/dynamic-x",
        "/report/deep",
        "/report/storage",
        "/report/fetch-1",
        "/report/far-1",
        "/report/xhr-1",
        "/report/worker-w",
        "/report/inner",
        "/report/url-https%3A%2F%2Fwww.a.example%2Fpushed",
    ] {
        assert!(relay.has_asked(asked), "{asked}\n{:#?}", relay.asked());
    }
    assert_eq!(canary.heard(), [""; 0], "the live web was asked");
}

#[test]
fn a_hostile_page_reaches_neither_the_live_web_nor_the_archives_own_pages() {
    let mut made = Made::new();
    let page = |script: &str| format!("<!doctype html><html><body><script>{script}</script>");
    let evil = page(
        r#"
function breach(what) { new Image().src = "/report/BREACH-" + what; }
function attempt(what, run) { try { run(() => breach(what)); } catch (e) { } }
attempt("cookie", done => { if (Document.prototype.__lookupGetter__("cookie").call(document) !== undefined) done(); });
attempt("storage", done => { var f = document.createElement("iframe"); document.body.appendChild(f); f.contentWindow.localStorage.length; done(); });
attempt("parent", done => { parent.document.title; done(); });
attempt("own", done => { var f = document.createElement("iframe"); document.body.appendChild(f); f.contentWindow.fetch(location.origin + "/").then(r => r.text()).then(done); });
attempt("cdx", done => { var f = document.createElement("iframe"); document.body.appendChild(f); f.contentWindow.fetch(location.origin + "/web/cdx?url=a.example").then(r => r.text()).then(done); });
attempt("fetch", done => { var f = document.createElement("iframe"); document.body.appendChild(f); f.contentWindow.fetch("http://live.example/fetch", {mode: "no-cors"}).then(done); });
attempt("image", done => { var f = document.createElement("iframe"); document.body.appendChild(f); var i = new f.contentWindow.Image(); i.onload = done; i.src = "http://live.example/image"; });
attempt("loopback", done => { var f = document.createElement("iframe"); document.body.appendChild(f); f.contentWindow.fetch("http://127.0.0.1:CANARY/loopback", {mode: "no-cors"}).then(done); });
attempt("socket", done => { new WebSocket("ws://live.example/socket").onopen = done; });
attempt("beacon", done => { Navigator.prototype.sendBeacon.call(navigator, "http://live.example/beacon"); });
attempt("worker", done => { navigator.serviceWorker.register("/static/replay.js").then(done); });
attempt("markup", done => { document.body.insertAdjacentHTML("beforeend", "<link rel=dns-prefetch href=//live.example><link rel=preconnect href=//live.example><img src=//live.example/m><object data=http://live.example/o></object><iframe src=http://live.example/i></iframe><style>@import 'http://live.example/s'</style>"); });
attempt("rtc", done => { new RTCPeerConnection({iceServers: [{urls: "stun:live.example"}]}).createDataChannel("x"); });
attempt("message", done => { parent.postMessage({ecluse: "page", time: "20260101000000", url: "javascript:alert(1)"}, "*"); parent.postMessage({ecluse: "page", time: "x", url: "http://live.example/"}, "*"); });
new Image().src = "/report/ran";
"#,
    );
    let canary = Canary::start();
    let evil = evil.replace("CANARY", &canary.port.to_string());
    made.html("http://a.example/", TIME, &evil);
    // Each of these leads the page away, or would.
    for (name, script) in [
        ("location", "location = 'http://live.example/away'"),
        ("replace", "location.replace('http://live.example/away')"),
        (
            "top",
            "try { top.location = 'http://live.example/top' } catch (e) {} try { parent.location.href = 'http://live.example/top' } catch (e) {}",
        ),
        (
            "open",
            "open('http://live.example/open'); document.body.insertAdjacentHTML('beforeend', '<a id=l target=_blank href=http://live.example/blank>x</a>'); document.getElementById('l').click()",
        ),
        (
            "form",
            "document.body.insertAdjacentHTML('beforeend', '<form id=f method=post action=http://live.example/form><input name=a></form>'); HTMLFormElement.prototype.submit.call(document.getElementById('f'))",
        ),
    ] {
        made.html(&format!("http://away.example/{name}"), TIME, &page(script));
    }
    made.html(
        "http://away.example/refresh",
        TIME,
        "<meta http-equiv=refresh content='0;url=http://live.example/r'>",
    );
    let raw = "<img src=http://live.example/raw><script>new Image().src='http://live.example/raw2'; try { localStorage.length; if (!window.__ecluse) new Image().src='/report/BREACH-raw' } catch (e) {}</script>";
    made.html("http://b.example/", TIME, raw);
    made.page(
        "http://c.example/",
        TIME,
        "Content-Type: image/svg+xml\r\n",
        b"<svg xmlns='http://www.w3.org/2000/svg'><image href='http://live.example/svg'/><script>try { localStorage.length; location='/report/BREACH-svg' } catch (e) {}</script></svg>",
    );
    made.publish(1);
    let served = made.serve();
    let relay = Relay::before(&served);
    let base = format!("http://{}", relay.address);
    let Some(dom) = open(
        &canary,
        &format!("{base}/web/{TIME}/http://a.example/"),
        &[],
    ) else {
        return;
    };
    assert!(
        dom.contains("class=\"banner\"") && dom.contains("http://a.example/"),
        "{dom}"
    );
    assert!(!dom.contains("javascript:alert"), "{dom}");
    assert!(relay.has_asked("/report/ran"), "{:#?}", relay.asked());
    for name in ["location", "replace", "top", "open", "form", "refresh"] {
        let url = format!("{base}/web/{TIME}/http://away.example/{name}");
        let dom = open(&canary, &url, &[]).unwrap();
        assert!(dom.contains("class=\"banner\""), "{name}: {dom}");
    }
    // The raw capture, a page opened without its frame, and a picture that is a document.
    for path in [
        "id_/http://b.example/",
        "mp_/http://b.example/",
        "mp_/http://c.example/",
        "id_/http://c.example/",
    ] {
        open(&canary, &format!("{base}/web/{TIME}{path}"), &[]);
    }
    let breaches: Vec<String> = relay
        .asked()
        .into_iter()
        .filter(|line| line.contains("BREACH"))
        .collect();
    assert_eq!(breaches, [""; 0]);
    // Chromium connects ahead when a script wants to go elsewhere, before it finds that the policy forbids it. Nothing is sent.
    let mut heard = canary.heard();
    heard.retain(|text| !text.is_empty());
    assert_eq!(heard, [""; 0], "the live web was asked");
}

#[test]
fn not_even_a_connection_is_opened_ahead() {
    let mut made = Made::new();
    let ahead = "<link rel=preconnect href=//live.example><link rel='x PRE&#99;ONNECT' href=http://one.live.example:8080/ crossorigin>\
        <link rel=dns-prefetch href=http://two.live.example/><link rel=prefetch href=http://three.live.example/x>\
        <link rel=prerender href=http://four.live.example/x><link rel=preload as=image href=http://five.live.example/x>\
        <script type=speculationrules>{\"prefetch\": [{\"source\": \"list\", \"urls\": [\"http://six.live.example/x\"]}]}</script>";
    let quoted = serde_json::Value::from(ahead)
        .to_string()
        .replace("</", "<\\/");
    let page = format!(
        "<!doctype html><html><head><meta http-equiv=x-dns-prefetch-control content=on>{ahead}</head><body><a href=http://seven.live.example/>a</a>\
         <div id=d></div><script>\
         var ahead = {quoted}, d = document.getElementById('d');\
         function attempt(run) {{ try {{ run(); }} catch (e) {{ new Image().src = '/report/failed-' + encodeURIComponent(e); }} }}\
         attempt(() => {{ d.innerHTML = ahead; }});\
         attempt(() => {{ document.head.insertAdjacentHTML('beforeend', ahead); }});\
         attempt(() => {{ d.appendChild(document.createRange().createContextualFragment(ahead)); }});\
         attempt(() => {{ d.appendChild(document.adoptNode(new DOMParser().parseFromString(ahead, 'text/html').head)); }});\
         attempt(() => {{ for (const rel of ['preconnect', 'dns-prefetch', 'prefetch']) {{ const l = document.createElement('link'); l.rel = rel; l.href = '//eight.live.example/'; document.head.appendChild(l); }} }});\
         attempt(() => {{ for (const rel of ['preconnect', 'dns-prefetch']) {{ const l = document.createElement('link'); l.setAttribute('href', 'http://nine.live.example/'); l.setAttribute('rel', rel); document.head.appendChild(l); }} }});\
         attempt(() => {{ document.write(ahead); }});\
         addEventListener('load', () => {{ new Image().src = '/report/done'; }});\
         </script></body></html>"
    );
    let head = "Content-Type: text/html\r\nLink: <http://ten.live.example>; rel=preconnect, <http://eleven.live.example/x.css>; rel=preload; as=style\r\n\
        X-DNS-Prefetch-Control: on\r\nSpeculation-Rules: \"http://twelve.live.example/rules.json\"\r\n";
    made.page("http://a.example/", TIME, head, page.as_bytes());
    made.publish(1);
    let served = made.serve();
    let answer = served.get(&format!("/web/{TIME}mp_/http://a.example/"));
    assert_eq!(answer.field("x-dns-prefetch-control"), Some("off"));
    let link = answer.field("link").unwrap();
    assert!(
        !link.contains("preconnect") && !link.contains("preload"),
        "{link}"
    );
    assert_eq!(answer.field("speculation-rules"), None);
    let (relay, canary) = (Relay::before(&served), Canary::start());
    let url = format!("http://{}/web/{TIME}/http://a.example/", relay.address);
    if open(&canary, &url, &[]).is_none() {
        return;
    }
    assert!(relay.has_asked("/report/done"), "{:#?}", relay.asked());
    assert!(!relay.has_asked("/report/failed"), "{:#?}", relay.asked());
    // Whoever connects is written down, with or without a word.
    assert_eq!(canary.heard(), [""; 0], "a connection was opened");
}

#[test]
fn pages_fit_a_small_and_a_wide_screen() {
    let mut made = Made::new();
    for day in 1..28 {
        let time = format!("202601{day:02}120000");
        made.html(
            "http://a.example/a-rather-long-address-of-a-page-that-does-not-fit.html",
            &time,
            &time,
        );
    }
    made.publish(1);
    let served = made.serve();
    let canary = Canary::start();
    let page = "/web/*/http://a.example/a-rather-long-address-of-a-page-that-does-not-fit.html";
    for width in [360, 1600] {
        for path in ["/", page, "/web/*/http://nowhere.example/"] {
            let picture = made.path().join("page.png");
            let shot = format!("--screenshot={}", picture.display());
            let size = format!("--window-size={width},900");
            let url = format!("{}{path}", served.base());
            if open(&canary, &url, &[&shot, &size]).is_none() {
                return;
            }
            assert!(is_picture(&picture), "{path} at {width}");
        }
    }
}

fn is_picture(path: &Path) -> bool {
    std::fs::read(path).is_ok_and(|bytes| bytes.len() > 5_000 && bytes.starts_with(b"\x89PNG"))
}
