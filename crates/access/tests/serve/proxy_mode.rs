//! Proxy mode, seen by curl and by Chromium.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use ecluse_config::AccessSettings;
use sha2::{Digest, Sha256};

use crate::browser::{Canary, open};
use crate::made::{Answer, Made, Served};

const HTML: &str = "Content-Type: text/html; charset=utf-8\r\n";

/// An archive with two dates of a site, and proxy mode before it.
fn made() -> Made {
    let mut made = Made::new();
    for year in ["2015", "2020"] {
        let time = format!("{year}0101000000");
        let body = format!("<a href=\"https://www.a.example/\">{year}</a>");
        let head = "Content-Type: text/html\r\nSet-Cookie: a=b\r\nStrict-Transport-Security: max-age=9\r\nCache-Control: max-age=99\r\nX-Own: yes\r\n";
        made.page("https://www.a.example/", &time, head, body.as_bytes());
    }
    made
}

fn serve(made: &Made, change: impl FnOnce(&mut AccessSettings)) -> Served {
    made.serve_with(|settings| {
        settings.proxy = Some("127.0.0.1:0".parse().unwrap());
        settings.proxy_ca = Some("ca".into());
        change(settings);
    })
}

/// Asks by curl through the proxy, with the CA alone to trust.
fn curl(made: &Made, served: &Served, url: &str, more: &[&str]) -> Answer {
    let mut command = Command::new("curl");
    command
        .args([
            "-sS",
            "-i",
            "--suppress-connect-headers",
            "--max-time",
            "60",
            "--noproxy",
            "",
        ])
        .args(["--proxy", &format!("http://{}", served.proxy.unwrap())])
        .arg("--cacert")
        .arg(made.path().join("ca/ca.pem"))
        .args(more)
        .arg(url);
    for name in [
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "HTTPS_PROXY",
        "NO_PROXY",
    ] {
        command.env_remove(name);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{url}: {said}");
    let bytes = output.stdout;
    let end = bytes
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap();
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    Answer {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        body: bytes[end + 4..].to_vec(),
        head,
    }
}

/// Chooses on the page of the proxy, as a reader does.
fn choose(made: &Made, served: &Served, choice: &str, more: &[&str]) {
    let page = curl(made, served, "http://ecluse.proxy/", more).text();
    let key = page.split("name=\"key\" value=\"").nth(1).unwrap();
    let key = key.split('"').next().unwrap();
    let url = format!("http://ecluse.proxy/set?key={key}&{choice}");
    let chosen = curl(made, served, &url, more);
    assert_eq!(chosen.status, 303, "{}", chosen.text());
}

#[test]
fn a_browser_sees_the_archive_at_its_date_and_not_a_byte_is_changed() {
    let mut made = made();
    let page = "<script src=//cdn.example/x.js></script>";
    made.html("http://b.example/page?x=1", "20200101000000", page);
    made.publish(1);
    let served = serve(&made, |_| {});
    let get = |url: &str, more: &[&str]| curl(&made, &served, url, more);
    let raw = get("http://b.example/page?x=1", &[]);
    assert_eq!((raw.status, raw.text().as_str()), (200, page));
    let last = get("https://www.a.example/", &[]);
    assert!(last.text().contains(">2020<"), "{}", last.text());
    assert_eq!(
        last.field("memento-datetime"),
        Some("Wed, 01 Jan 2020 00:00:00 GMT")
    );
    assert_eq!(last.field("x-own"), Some("yes"));
    // What would outlive the date is for the record only.
    for name in ["set-cookie", "strict-transport-security"] {
        assert_eq!(last.field(name), None, "{name}");
        assert!(
            last.field(&format!("x-archive-orig-{name}")).is_some(),
            "{name}"
        );
    }
    assert_eq!(last.field("cache-control"), Some("no-store"));
    // A capture by https answers for http too, and at the date that is asked for.
    let date = ["-H", "Accept-Datetime: Sun, 01 Feb 2015 00:00:00 GMT"];
    assert!(
        get("http://www.a.example/", &date)
            .text()
            .contains(">2015<")
    );
    assert_eq!(
        get("http://www.a.example/", &["-H", "Accept-Datetime: soon"]).status,
        400
    );
    let part = get("http://b.example/page?x=1", &["-r", "1-6"]);
    assert_eq!((part.status, part.text().as_str()), (206, "script"));
    let far = [
        "-H",
        "Origin: https://www.a.example",
        "-X",
        "OPTIONS",
        "-H",
        "Access-Control-Request-Method: GET",
    ];
    let preflight = get("http://b.example/page?x=1", &far);
    assert_eq!(preflight.status, 204);
    assert_eq!(
        preflight.field("access-control-allow-origin"),
        Some("https://www.a.example")
    );
    assert_eq!(get("http://b.example/page?x=1", &["-d", "a=b"]).status, 405);
    assert_eq!(
        get(
            "http://b.example/page?x=1",
            &["-H", "Service-Worker: script"]
        )
        .status,
        403
    );
}

#[test]
fn each_client_chooses_its_date_and_no_archived_page_chooses_for_it() {
    let mut made = made();
    made.publish(1);
    let served = serve(&made, |settings| settings.proxy_date = "2016".into());
    let year = |more: &[&str]| {
        let text = curl(&made, &served, "https://www.a.example/", more).text();
        text.split(['>', '<']).nth(2).unwrap().to_owned()
    };
    let other = ["--interface", "127.0.0.2"];
    assert_eq!(
        (year(&[]).as_str(), year(&other).as_str()),
        ("2015", "2015")
    );
    choose(&made, &served, "date=2021-05-01", &[]);
    assert_eq!(
        (year(&[]).as_str(), year(&other).as_str()),
        ("2020", "2015")
    );
    let page = curl(
        &made,
        &served,
        "http://ecluse.proxy/",
        &["-H", "Accept-Language: fr"],
    )
    .text();
    assert!(
        page.contains("1 mai 2021") && page.contains("value=\"2021-05-01\""),
        "{page}"
    );
    // Without the key of the page nothing is chosen, and the page cannot be read from another site.
    let forged = curl(
        &made,
        &served,
        "http://ecluse.proxy/set?date=2015",
        &["-H", "Origin: http://evil.example"],
    );
    assert_eq!(forged.status, 403);
    let read = curl(
        &made,
        &served,
        "http://ecluse.proxy/",
        &["-H", "Origin: http://evil.example"],
    );
    assert_eq!(read.field("access-control-allow-origin"), None);
    assert_eq!(year(&[]), "2020");
    choose(&made, &served, "date=", &[]);
    assert_eq!(year(&[]), "2015", "back to that of the settings");
    let certificate = curl(&made, &served, "http://ecluse.proxy/ca.pem", &[]).text();
    assert_eq!(
        certificate,
        fs::read_to_string(made.path().join("ca/ca.pem")).unwrap()
    );
}

#[test]
fn rules_hold_in_proxy_mode_and_users_are_known_by_their_tokens() {
    let mut made = made();
    made.html("https://secret.example/", "20200101000000", "s");
    made.publish(1);
    let rules = "example,a)/ - {\"access\": \"block\"}\n\
        example,a)/ - {\"access\": \"allow\", \"user\": \"keeper\"}\n\
        example,secret)/ - {\"access\": \"exclude\"}\n";
    fs::write(made.path().join("rules.aclj"), rules).unwrap();
    // printf %s open-sesame | sha256sum
    let digest = "d7ecdf25eaf3deba0f2628771dbdd22d4138ab6cf38f91ed02a2ca0dec7c8ab7";
    fs::write(made.path().join("tokens"), format!("keeper {digest}\n")).unwrap();
    let served = serve(&made, |settings| {
        settings.rules = vec!["rules.aclj".into()];
        settings.tokens = Some("tokens".into());
        settings.staff = vec!["keeper".into()];
    });
    let keeper = ["--proxy-user", "any:open-sesame"];
    for scheme in ["http", "https"] {
        let url = format!("{scheme}://www.a.example/");
        let blocked = curl(&made, &served, &url, &[]);
        assert_eq!(
            (blocked.status, blocked.field("x-ecluse-rule")),
            (451, None)
        );
        assert_eq!(curl(&made, &served, &url, &keeper).status, 200);
        let wrong = curl(&made, &served, &url, &["--proxy-user", "any:open"]);
        assert_eq!(wrong.status, 407, "{url}");
        let url = format!("{scheme}://secret.example/");
        assert_eq!(curl(&made, &served, &url, &[]).status, 404);
        let told = curl(&made, &served, &url, &keeper);
        assert_eq!(
            told.field("x-ecluse-rule"),
            Some("rules.aclj:3: example,secret)/")
        );
    }
    // A browser asks for a token where it is asked to.
    let login = curl(&made, &served, "http://ecluse.proxy/login", &[]);
    assert!(
        login.status == 407 && login.field("proxy-authenticate").is_some(),
        "{}",
        login.head
    );
    assert_eq!(
        curl(&made, &served, "http://ecluse.proxy/login", &keeper).status,
        303
    );
}

#[test]
fn what_is_not_in_the_archive_is_put_down_for_those_who_collect_and_never_asked_for() {
    let mut made = made();
    made.html("http://secret.example/", "20200101000000", "s");
    made.publish(1);
    let rules = "example,secret)/ - {\"access\": \"exclude\"}\n";
    fs::write(made.path().join("rules.aclj"), rules).unwrap();
    let served = serve(&made, |settings| {
        settings.rules = vec!["rules.aclj".into()];
        settings.wanted = Some("wanted.txt".into());
        settings.wanted_lines = 3;
    });
    let canary = Canary::start();
    let live = format!("http://127.0.0.1:{}/live", canary.port);
    let urls = [
        "https://b.example/a?b=c",
        live.as_str(),
        "https://b.example/a?b=c",
        "http://secret.example/",
        "https://www.a.example/",
        "http://b.example/%41%20",
        "http://b.example/one-too-many",
    ];
    let browse = |more: &[&str]| urls.map(|url| curl(&made, &served, url, more).status);
    let expected = [404, 404, 404, 404, 200, 404, 404];
    assert_eq!(browse(&[]), expected);
    let list = made.path().join("wanted.txt");
    assert!(!list.exists(), "nobody collects yet");
    // The page that stands there loads nothing of the archive's: it is one of another server.
    let page = curl(&made, &served, urls[0], &[]).text();
    assert!(!page.contains("<link") && !page.contains("src="), "{page}");
    assert!(page.contains("https:&#x2f;&#x2f;b.example"), "{page}");
    choose(&made, &served, "date=&collect=on", &[]);
    assert_eq!(browse(&["--interface", "127.0.0.2"]), expected);
    assert!(!list.exists(), "another client does not collect");
    assert_eq!(browse(&[]), expected);
    let text = fs::read_to_string(&list).unwrap();
    assert_eq!(
        text,
        format!("https://b.example/a?b=c\n{live}\nhttp://b.example/%41%20\n")
    );
    assert_eq!(canary.heard(), [""; 0], "the live web was asked");
}

#[test]
fn only_staff_collects_where_there_is_staff() {
    let mut made = made();
    made.publish(1);
    let served = serve(&made, |settings| {
        settings.wanted = Some("wanted.txt".into());
        settings.staff = vec!["curator".into()];
        settings.places = vec!["curator 127.0.0.2".parse().unwrap()];
    });
    for (more, collects) in [(&[][..], false), (&["--interface", "127.0.0.2"][..], true)] {
        choose(&made, &served, "date=&collect=on", more);
        assert_eq!(curl(&made, &served, "http://b.example/", more).status, 404);
        assert_eq!(made.path().join("wanted.txt").exists(), collects);
    }
}

#[test]
fn whatever_connects_to_the_proxy_does_no_harm() {
    let mut made = made();
    made.publish(1);
    let served = serve(&made, |settings| {
        settings.connections = 2;
        settings.patience = "2s".parse().unwrap();
    });
    let send = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(served.proxy.unwrap()).unwrap();
        let mut answer = Vec::new();
        let _ = stream.write_all(bytes);
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    let own = send(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(
        own.starts_with("HTTP/1.1 400") && own.contains("ecluse.proxy"),
        "{own}"
    );
    // A tunnel in which no TLS is spoken, one to nowhere, one that says nothing.
    for bytes in [
        &b"CONNECT a.example:80 HTTP/1.1\r\nHost: a.example:80\r\n\r\nGET / HTTP/1.1\r\n\r\n"[..],
        b"CONNECT user@a.example:443 HTTP/1.1\r\n\r\n",
        b"CONNECT / HTTP/1.1\r\n\r\n",
        b"CONNECT a.example:443 HTTP/1.1\r\n\r\n",
        b"GET https://www.a.example/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET ftp://a.example/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    ] {
        let answer = send(bytes);
        assert!(!answer.contains("2020"), "{answer}");
    }
    // A tunnel is a client like any other: two hold both places until their patience ends.
    let tunnel = || {
        let mut stream = TcpStream::connect(served.proxy.unwrap()).unwrap();
        stream
            .write_all(b"CONNECT a.example:443 HTTP/1.1\r\n\r\n")
            .unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
        stream
    };
    let mut held = [tunnel(), tunnel()];
    assert_eq!(
        send(b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n"),
        ""
    );
    for stream in &mut held {
        // It ends when the server ends it.
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert_eq!(
        curl(&made, &served, "https://www.a.example/", &[]).status,
        200
    );
}

/// Returns what Chromium wants to know of a key that it shall trust.
fn key_digest(made: &Made) -> String {
    let pem = fs::read_to_string(made.path().join("ca/ca.key")).unwrap();
    let key = rcgen::KeyPair::from_pem(&pem).unwrap();
    let public = rcgen::PublicKeyData::subject_public_key_info(&key);
    let digest = Sha256::digest(&public);
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in digest.chunks(3) {
        let bits = (0..3).fold(0_u32, |bits, at| {
            bits << 8 | u32::from(*three.get(at).unwrap_or(&0))
        });
        for at in 0..=three.len() {
            text.push(char::from(alphabet[(bits >> (18 - 6 * at) & 63) as usize]));
        }
    }
    text + "="
}

#[test]
fn chromium_sees_a_page_and_what_it_needs_through_the_proxy() {
    let mut made = Made::new();
    for (year, colour) in [("2015", "red"), ("2020", "green")] {
        let time = format!("{year}0101000000");
        made.html(
            "https://www.a.example/",
            &time,
            "<!doctype html><link rel=stylesheet href=/s.css><body><p id=p>waits</p><iframe src=https://b.example/></iframe>\
             <script type=module>import { year } from 'https://cdn.example/m.js';\
             const colour = getComputedStyle(document.getElementById('p')).color;\
             const data = await (await fetch('https://api.example/d.json', { headers: { 'X-A': 'b' } })).json();\
             let live = 'nothing live'; try { await fetch('https://live.example/x'); const r = await fetch('https://live.example/x'); if (r.ok) live = 'live'; } catch (e) { }\
             document.getElementById('p').textContent = ['saw', year, colour, data.year, live, location.href, document.cookie].join('|');</script>",
        );
        let script = format!("export const year = {year};");
        made.page(
            "https://cdn.example/m.js",
            &time,
            "Content-Type: text/javascript\r\n",
            script.as_bytes(),
        );
        made.page(
            "https://www.a.example/s.css",
            &time,
            "Content-Type: text/css\r\n",
            format!("p {{ color: {colour} }}").as_bytes(),
        );
        let data = format!("{{\"year\": {year}}}");
        made.page(
            "https://api.example/d.json",
            &time,
            "Content-Type: application/json\r\n",
            data.as_bytes(),
        );
        made.page("https://b.example/", &time, HTML, b"b");
    }
    made.publish(1);
    let served = serve(&made, |settings| {
        settings.wanted = Some("wanted.txt".into());
    });
    let canary = Canary::start();
    let proxy = format!("--proxy-server=http://{}", served.proxy.unwrap());
    let trust = format!(
        "--ignore-certificate-errors-spki-list={}",
        key_digest(&made)
    );
    for (date, year, colour) in [
        ("2016", "2015", "rgb(255, 0, 0)"),
        ("", "2020", "rgb(0, 128, 0)"),
    ] {
        choose(&made, &served, &format!("date={date}&collect=on"), &[]);
        let Some(dom) = open(&canary, "https://www.a.example/", &[&proxy, &trust]) else {
            return;
        };
        let saw = format!("saw|{year}|{colour}|{year}|nothing live|https://www.a.example/|<");
        assert!(dom.contains(&saw), "{dom}");
    }
    // Without the CA there is no page.
    let dom = open(&canary, "https://www.a.example/", &[&proxy]).unwrap();
    assert!(!dom.contains("saw|"), "{dom}");
    let page = open(&canary, "http://ecluse.proxy/", &[&proxy]).unwrap();
    assert!(
        page.contains("<input type=\"hidden\" name=\"key\""),
        "{page}"
    );
    let wanted = fs::read_to_string(made.path().join("wanted.txt")).unwrap();
    assert!(
        wanted.lines().any(|line| line == "https://live.example/x"),
        "{wanted}"
    );
    assert_eq!(canary.heard(), [""; 0], "the live web was asked");
}
