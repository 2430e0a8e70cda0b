//! The program as an operator meets it, against name servers that do as they are told.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use common::{DNS_FILTER, checked, classes, list, list_of, root, table};
use ecluse_names::{CheckedLine, DnsHint};
use ecluse_testkit::contract::Contract;
use ecluse_testkit::dns::{Named, Names};
use ecluse_testkit::root::{Root, settle_environment, until_so};
use ecluse_testkit::web::{Answer, Web, html};

fn v4(last: u8) -> Named {
    Named::V4(vec![Ipv4Addr::new(9, 9, 9, last)])
}

fn v6() -> Named {
    Named::V6(vec!["2a00::1".parse().unwrap()])
}

/// Two resolvers that know the same.
fn pair(names: &[(&str, Named)]) -> (Names, Names) {
    let servers = (Names::start(60), Names::start(60));
    // Who denies the root is no resolver.
    let root = ("", Named::NoAddress);
    for (name, named) in names.iter().chain([&root]) {
        servers.0.set(name, named.clone());
        servers.1.set(name, named.clone());
    }
    servers
}

const QUICK: &str = "timeout = \"150ms\"\ntries = 2\nlater = 0";

#[test]
fn it_keeps_the_contract() {
    let (one, other) = pair(&[("exemple.fr", v4(1)), ("www.exemple.fr", v4(1))]);
    let resolvers = [one.address().to_string(), other.address().to_string()];
    Contract {
        stage: "dns-filter",
        binary: Path::new(DNS_FILTER),
        settings: &format!("next = [\"sink\"]\nback = []\nresolvers = {resolvers:?}\n{QUICK}"),
        good: &[("names.tsv", &list(&["exemple.fr", "parti.fr"]))],
        bad: &[("names.tsv", b"exemple.fr\n")],
    }
    .keep();
}

#[test]
fn a_list_that_does_not_fit_in_memory_is_held() {
    let (one, other) = pair(&[]);
    let root = root(&[one.address(), other.address()], QUICK);
    let line = String::from_utf8(list(&["n0000000.fr"])).unwrap();
    let lines: String = (0..=1_000_000)
        .map(|number| line.replace("0000000", &format!("{number:07}")))
        .collect();
    root.put_files("dns-filter", "names", &[("names.tsv", lines.as_bytes())]);
    let (code, said) = root.run(DNS_FILTER, &["--once"]);
    assert_eq!(code, 65, "{said}");
    let why = root.why("dns-filter", "names");
    assert!(why.contains("more than 1000000 names"), "{why}");
}

#[test]
fn every_name_gets_its_class_with_www_and_without() {
    let (one, other) = pair(&[
        ("a.fr", v4(1)),
        ("www.a.fr", Named::Alias("a.fr".to_owned())),
        ("six.fr", v6()),
        ("www.six.fr", v4(2)),
        ("bare.fr", Named::NoAddress),
        ("only-www.fr", Named::NoSuchName),
        ("www.only-www.fr", v4(3)),
        ("inside.fr", Named::V4(vec![Ipv4Addr::new(10, 0, 0, 1)])),
        ("dangling.fr", Named::Alias("gone.fr".to_owned())),
        ("fails.fr", Named::Fails),
        ("www.fails.fr", Named::Refused),
        ("deaf.fr", Named::Silent),
        ("www.deaf.fr", v4(4)),
        ("www.seul.fr", v4(5)),
        ("*.joker.fr", v4(6)),
        ("joker.fr", v4(7)),
        ("parked.fr", Named::V4(vec![Ipv4Addr::new(91, 195, 240, 9)])),
    ]);
    let root = root(&[one.address(), other.address()], QUICK);
    let names = [
        "a.fr",
        "six.fr",
        "bare.fr",
        "only-www.fr",
        "inside.fr",
        "dangling.fr",
        "fails.fr",
        "deaf.fr",
        "www.seul.fr",
        "joker.fr",
        "parked.fr",
        "parti.fr",
    ];
    root.put_files("dns-filter", "names", &[("names.tsv", &list(&names))]);
    let (code, said) = root.run(DNS_FILTER, &["--once"]);
    assert_eq!(code, 0, "{said}");
    let found = classes(&root);
    for (name, told) in [
        ("a.fr", "OK_A OK_A cname"),
        ("six.fr", "OK_AAAA OK_A"),
        ("bare.fr", "NODATA NXDOMAIN"),
        ("only-www.fr", "NXDOMAIN OK_A"),
        ("inside.fr", "PRIVATE NXDOMAIN"),
        ("dangling.fr", "CNAME_DANGLING NXDOMAIN"),
        ("fails.fr", "SERVFAIL REFUSED"),
        ("deaf.fr", "TIMEOUT OK_A"),
        ("www.seul.fr", "OK_A -"),
        ("joker.fr", "OK_A OK_A wildcard-www"),
        ("parked.fr", "OK_A NXDOMAIN parked"),
        ("parti.fr", "NXDOMAIN NXDOMAIN"),
    ] {
        assert_eq!(found[name], told, "{name}");
    }
    assert_eq!(found.len(), names.len());
    let lines = checked(&root);
    let mut line = Vec::new();
    lines["a.fr"].write(&mut line).unwrap();
    assert_eq!(
        String::from_utf8(line).unwrap(),
        "fr,a\ta.fr\tOK_A\tOK_A\tpresent\tapex,www\t9.9.9.1\tcname\t{\"apex\":{\"a\":[\"9.9.9.1\"]},\"www\":{\"a\":[\"9.9.9.1\"],\"cname\":[\"a.fr\"]}}\n"
    );
    assert_eq!(lines["www.seul.fr"].forms(), (false, true));
    assert_eq!(lines["parti.fr"].verdict().as_str(), "absent");
    assert_eq!(lines["deaf.fr"].verdict().as_str(), "present");
    assert_eq!(lines["fails.fr"].verdict().as_str(), "unknown");
    let receipt = receipt(&root, "names");
    assert_eq!(receipt["facts"]["classes"]["OK_A"], 4);
    let day = receipt["facts"]["checked"].as_str().unwrap();
    assert!(day.len() == 8 && day.starts_with("20"), "{day}");
    let left = root.part("dns-filter", "progress");
    assert_eq!(fs::read_dir(&left).unwrap().count(), 1);
    root.run(DNS_FILTER, &["--once"]);
    root.put_files("dns-filter", "more", &[("names.tsv", &list(&["a.fr"]))]);
    root.run(DNS_FILTER, &["--once"]);
    let names: Vec<_> = fs::read_dir(left).unwrap().flatten().collect();
    assert_eq!(names.len(), 1, "what has its receipt is swept: {names:?}");
}

fn receipt(root: &Root, parcel: &str) -> serde_json::Value {
    let id = ecluse_spool::ParcelId::new(parcel).unwrap();
    let filed = root.tree().receipt("dns-filter", &id).unwrap().unwrap();
    serde_json::to_value(filed.receipt).unwrap()
}

#[test]
fn no_name_is_absent_on_the_word_of_one() {
    let (knows, denies) = (Names::start(60), Names::start(60));
    for server in [&knows, &denies] {
        server.set("alone.fr", Named::NoSuchName);
        server.set("www.alone.fr", Named::NoSuchName);
    }
    knows.set("there.fr", v4(1));
    knows.set("www.there.fr", v4(1));
    knows.set("bare.fr", Named::NoAddress);
    knows.set("lost.fr", Named::Fails);
    knows.set("www.lost.fr", Named::Silent);
    let names = ["alone.fr", "there.fr", "bare.fr", "lost.fr"];
    for order in [
        [knows.address(), denies.address()],
        [denies.address(), knows.address()],
    ] {
        let root = root(&order, QUICK);
        root.put_files("dns-filter", "names", &[("names.tsv", &list(&names))]);
        let (code, said) = root.run(DNS_FILTER, &["--once"]);
        assert_eq!(code, 0, "{said}");
        let found = classes(&root);
        assert_eq!(found["alone.fr"], "NXDOMAIN NXDOMAIN");
        assert_eq!(found["there.fr"], "OK_A OK_A");
        assert_eq!(found["bare.fr"], "NODATA NXDOMAIN");
        assert_eq!(found["lost.fr"], "NXDOMAIN_ONCE NXDOMAIN_ONCE");
        let verdict = |name: &str| checked(&root)[name].verdict().as_str();
        assert_eq!(
            (verdict("alone.fr"), verdict("lost.fr")),
            ("absent", "unknown")
        );
    }
    // With one resolver alone nothing is absent at all.
    let root = root(&[denies.address()], QUICK);
    root.put_files("dns-filter", "names", &[("names.tsv", &list(&names))]);
    root.run(DNS_FILTER, &["--once"]);
    assert!(
        checked(&root)
            .values()
            .all(|line| line.verdict().as_str() == "unknown")
    );
    let (_, said) = root.run(DNS_FILTER, &["--check"]);
    assert!(said.contains("one resolver alone"), "{said}");
}

#[test]
fn names_without_an_answer_are_asked_again_later_and_kept_in_the_end() {
    let (one, other) = pair(&[
        ("a.fr", v4(1)),
        ("slow.fr", Named::Fails),
        ("never.fr", Named::Fails),
        ("mute.fr", Named::Fails),
    ]);
    let more = "timeout = \"150ms\"\ntries = 2\nlater = 1\nretry = { first = \"3s\", factor = 1.0, max = \"3s\", limit = \"1h\" }";
    let root = root(&[one.address(), other.address()], more);
    let names = ["a.fr", "slow.fr", "never.fr", "mute.fr"];
    root.put_files("dns-filter", "names", &[("names.tsv", &list(&names))]);
    let (code, said) = root.run(DNS_FILTER, &["--once"]);
    assert_eq!(code, 75, "{said}");
    assert!(
        said.contains("3 of 4 names have no answer yet: they are asked again (1 of 1 times)"),
        "{said}"
    );
    let asked = |name: &str| {
        one.questions()
            .iter()
            .filter(|asked| *asked == name)
            .count()
    };
    let before = asked("a.fr") + asked("www.a.fr");
    for server in [&one, &other] {
        server.set("slow.fr", v4(2));
        server.set("mute.fr", Named::Silent);
    }
    let mut program = root.start(DNS_FILTER, &[]);
    root.await_count("sink", "ready", 1);
    assert_eq!(program.stop(), 0, "{}", program.log());
    let found = classes(&root);
    assert_eq!(found["slow.fr"], "OK_A NXDOMAIN");
    assert_eq!(found["never.fr"], "SERVFAIL NXDOMAIN", "it is kept");
    assert_eq!(
        found["mute.fr"], "SERVFAIL NXDOMAIN",
        "silence takes nothing back"
    );
    assert_eq!(asked("a.fr") + asked("www.a.fr"), before, "it was settled");
}

/// A server that makes its own of every datagram; it ends with the program.
fn odd_server(answer: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + 'static) -> SocketAddr {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((bytes, client)) = socket.recv_from(&mut buffer) {
            if let Some(answer) = answer(&buffer[..bytes]) {
                let _ = socket.send_to(&answer, client);
            }
        }
    });
    address
}

/// The question as an answer with this code.
fn answer_of(question: &[u8], code: u8) -> Vec<u8> {
    let mut answer = question.to_vec();
    answer[2] |= 0x80;
    answer[3] = 0x80 | code;
    answer
}

#[test]
fn hostile_and_broken_resolvers_cost_nothing_but_their_answers() {
    let closed = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let closed_address = closed.local_addr().unwrap();
    drop(closed);
    type Change = fn(&[u8]) -> Option<Vec<u8>>;
    let servers: [(&str, Change); 9] = [
        ("garbage", |_| Some(b"garbage".to_vec())),
        ("garbage with the id", |asked| {
            Some([&asked[..2], &[0xff; 300]].concat())
        }),
        ("another id", |asked| {
            let mut answer = answer_of(asked, 3);
            answer[0] ^= 1;
            Some(answer)
        }),
        ("another question", |asked| {
            let mut answer = answer_of(asked, 3);
            answer[13] = b'x';
            Some(answer)
        }),
        ("the question itself", |asked| Some(asked.to_vec())),
        ("nothing in it", |_| Some(Vec::new())),
        ("other letters", |asked| {
            Some(answer_of(asked, 3).to_ascii_lowercase())
        }),
        ("always truncated", |asked| {
            let mut answer = answer_of(asked, 0);
            answer[2] |= 2;
            Some(answer)
        }),
        ("a thousand records that are not there", |asked| {
            let mut answer = answer_of(asked, 0);
            (answer[6], answer[7]) = (3, 232);
            Some(answer)
        }),
    ];
    let good = Names::start(60);
    good.set("a.fr", v4(1));
    good.set("www.a.fr", v4(1));
    for (what, change) in servers {
        let odd = odd_server(change);
        let root = root(&[odd, closed_address, good.address()], QUICK);
        root.put_files(
            "dns-filter",
            "names",
            &[("names.tsv", &list(&["a.fr", "parti.fr"]))],
        );
        let (code, said) = root.run(DNS_FILTER, &["--once"]);
        assert_eq!(code, 0, "{what}: {said}");
        let found = classes(&root);
        assert_eq!(found["a.fr"], "OK_A OK_A", "{what}");
        assert_eq!(
            checked(&root)["parti.fr"].verdict().as_str(),
            "unknown",
            "{what}"
        );
    }
}

#[test]
fn a_long_list_takes_no_more_memory_than_a_short_one() {
    let denies = || odd_server(|question| Some(answer_of(question, 3)));
    let root = root(
        &[denies(), denies()],
        "rate = 0\nin-flight = 200\nlater = 0\ntimeout = \"60s\"",
    );
    let names: Vec<String> = (0..40_000)
        .map(|number| format!("n{number:05}.fr"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    root.put_files("dns-filter", "names", &[("names.tsv", &list(&names))]);
    // What is known of so many names takes more than that in memory, as the file they come from shows.
    let mut command = Command::new("sh");
    settle_environment(&mut command);
    let output = command
        .args([
            "-c",
            "ulimit -d 49152; exec \"$0\" --once --root \"$1\"",
            DNS_FILTER,
        ])
        .arg(root.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let found = checked(&root);
    assert_eq!(found.len(), names.len());
    assert!(
        found
            .values()
            .all(|line| line.verdict().as_str() == "absent")
    );
}

#[test]
fn a_question_is_asked_again_without_edns_where_nobody_knows_that() {
    // A server of before 1999: an additional record makes no sense to it.
    let old = || {
        odd_server(|asked| match asked[11] {
            0 => Some(answer_of(asked, 3)),
            _ => Some(answer_of(asked, 1)),
        })
    };
    let root = root(&[old(), old()], QUICK);
    root.put_files(
        "dns-filter",
        "names",
        &[("names.tsv", &list(&["parti.fr"]))],
    );
    root.run(DNS_FILTER, &["--once"]);
    assert_eq!(classes(&root)["parti.fr"], "NXDOMAIN NXDOMAIN");
}

#[test]
fn without_a_resolver_the_parcel_waits_and_goes_on_where_it_was() {
    // Nobody listens at first.
    let place = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = place.local_addr().unwrap();
    drop(place);
    let more = "timeout = \"150ms\"\nlater = 0\nretry = { first = \"3s\", factor = 1.0, max = \"3s\", limit = \"1h\" }";
    let root = root(&[address], more);
    root.put_files("dns-filter", "names", &[("names.tsv", &list(&["a.fr"]))]);
    let (code, said) = root.run(DNS_FILTER, &["--once"]);
    assert_eq!(code, 75, "{said}");
    assert!(said.contains("no resolver answers: "), "{said}");
    let (_, said) = root.run(DNS_FILTER, &["--check"]);
    assert!(said.contains(&format!("{address} ")), "{said}");
    let server = Names::start_at(address, 60);
    server.set("a.fr", v4(1));
    server.set("www.a.fr", v4(1));
    let mut program = root.start(DNS_FILTER, &[]);
    root.await_count("sink", "ready", 1);
    assert_eq!(program.stop(), 0, "{}", program.log());
    assert_eq!(classes(&root)["a.fr"], "OK_A OK_A");
}

#[test]
fn it_says_how_far_it_is_and_a_pause_is_kept_at_once() {
    let (one, other) = pair(&[]);
    let root = root(&[one.address(), other.address()], "rate = 20\nlater = 0");
    let names: Vec<String> = (0..200).map(|number| format!("n{number:03}.fr")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    root.put_files("dns-filter", "names", &[("names.tsv", &list(&names))]);
    let mut program = root.start(DNS_FILTER, &[]);
    until_so("a sign of how far it is", || {
        let notes = root.notes("dns-filter");
        notes
            .iter()
            .any(|note| note.why.contains(" of 200 names, ") && note.why.contains(" left"))
    });
    fs::write(root.part("dns-filter", "PAUSED"), "").unwrap();
    until_so("the parcel is back", || {
        root.list("dns-filter", "ready") == ["names~0"]
    });
    assert_eq!(program.stop(), 0, "{}", program.log());
    let noted = fs::read_to_string(root.part("dns-filter", "progress").join("names")).unwrap();
    assert!(noted.lines().count() > 1, "{noted}");
    // What it knows it does not ask again.
    let known = noted
        .lines()
        .filter(|line| line.contains("\tname\t"))
        .count();
    let asked = one.questions().len() + other.questions().len();
    assert!(known > 0 && asked < 200 * 4, "{known} {asked}");
}

#[test]
fn where_names_lead_is_found_out_and_new_sites_go_back_to_preload() {
    let web = Web::start();
    let port = web.port();
    let page = |host: &str, answer: Answer| web.pages(host, [("/".to_owned(), answer)]);
    let to = |url: &str| Answer::redirect(&url.replace("PORT", &port.to_string()));
    page("vieux.fr", to("http://www.neuf.fr:PORT/accueil"));
    web.pages("www.neuf.fr", [("/accueil".to_owned(), html("neuf"))]);
    page("meme.fr", to("http://www.meme.fr:PORT/"));
    page("www.meme.fr", html("meme"));
    page("rond.fr", to("http://rond.fr:PORT/"));
    let local = Named::V4(vec![Ipv4Addr::LOCALHOST]);
    let hosts = [
        "vieux.fr",
        "www.neuf.fr",
        "meme.fr",
        "www.meme.fr",
        "rond.fr",
    ];
    let mut names: Vec<(&str, Named)> = hosts.map(|host| (host, local.clone())).into();
    // Nobody listens there.
    names.push(("ferme.fr", Named::V4(vec![Ipv4Addr::new(127, 0, 0, 2)])));
    let (one, other) = pair(&names);
    let closed = {
        let socket = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.local_addr().unwrap().port()
    };
    let root = Root::new();
    let more = format!(
        "{QUICK}\nredirects = true\nallow-private = true\nports = [{closed}, {port}]\n[site]\ncontact = \"https://example.org/\"\n"
    );
    let table = table(&[one.address(), other.address()], &more)
        .replace("back = []", "back = [\"preload\"]");
    root.settings(&["preload", "dns-filter", "sink"], &table);
    let names = list(&["vieux.fr", "meme.fr", "rond.fr", "ferme.fr"]);
    root.put_files("dns-filter", "names", &[("names.tsv", &names)]);
    let (code, said) = root.run(DNS_FILTER, &["--once"]);
    assert_eq!(code, 0, "{said}");
    let found = checked(&root);
    let lead = |name: &str| found[name].evidence.redirect.clone().unwrap();
    let vieux = lead("vieux.fr");
    assert_eq!(vieux.to, format!("http://www.neuf.fr:{port}/accueil"));
    assert_eq!((vieux.domain.as_str(), vieux.status), ("neuf.fr", 200));
    assert_eq!(serde_json::to_value(vieux.kind).unwrap(), "other");
    assert_eq!(serde_json::to_value(lead("meme.fr").kind).unwrap(), "www");
    assert_eq!(lead("rond.fr").status, 302, "five redirects and no more");
    assert_eq!(found["ferme.fr"].evidence.redirect, None);
    let back = root.list("preload", "ready");
    assert_eq!(back, ["redirects-names~0"]);
    let place = root.part("preload", "ready").join(&back[0]);
    let text = |name: &str| fs::read_to_string(place.join(name)).unwrap();
    assert_eq!(text("redirects.txt"), "neuf.fr\n");
    assert!(text("source.toml").contains("kind = \"redirects\""));
    let log = web.log();
    let asked = |host: &str, target: &str| {
        let of = log
            .iter()
            .filter(|seen| seen.host == host && seen.target == target);
        of.count()
    };
    assert_eq!(asked("vieux.fr", "/robots.txt"), 1);
    assert_eq!(asked("rond.fr", "/"), 6);
    assert_eq!(
        asked("www.meme.fr", "/"),
        1,
        "once, though two forms lead there"
    );
    let told = |seen: &ecluse_testkit::web::SeenRequest| {
        String::from_utf8_lossy(&seen.bytes).contains("+https://example.org/")
    };
    assert!(log.iter().all(told));
    // What came from redirects is not followed further.
    let names = list_of(&["vieux.fr"], "redirects:1");
    root.put_files("dns-filter", "again", &[("names.tsv", &names)]);
    let before = web.log().len();
    root.run(DNS_FILTER, &["--once"]);
    assert_eq!(web.log().len(), before);
}

/// What a server asks for itself, and what librarians forbid, as the server saw it kept.
#[test]
fn where_names_lead_is_asked_with_the_manners_of_the_crawl() {
    let web = Web::start();
    let port = web.port();
    let to = |url: &str| Answer::redirect(&url.replace("PORT", &port.to_string()));
    let page = |path: &str, answer: Answer| (path.to_owned(), answer);
    let busy = Answer::new("503 Busy", "Retry-After: 3600\r\n", b"");
    web.pages(
        "a-busy.fr",
        [page("/", busy), page("/again", html("again"))],
    );
    web.pages("b.fr", [page("/", to("http://a-busy.fr:PORT/again"))]);
    let robots = Answer::of("text/plain", b"User-agent: *\nCrawl-delay: 5\n");
    web.pages(
        "lent.fr",
        [
            page("/robots.txt", robots),
            page("/", to("http://lent.fr:PORT/la")),
            page("/la", html("la")),
        ],
    );
    web.pages("mene.fr", [page("/", to("http://www.sorti.fr:PORT/x"))]);
    web.pages("www.sorti.fr", [page("/x", html("never"))]);
    web.pages("vendu.fr", [page("/", to("http://a.parking.fr:PORT/"))]);
    web.pages("a.parking.fr", [page("/", html("to be sold"))]);
    let local = Named::V4(vec![Ipv4Addr::LOCALHOST]);
    let asked = ["a-busy.fr", "b.fr", "lent.fr", "mene.fr", "vendu.fr"];
    let led_to = ["www.sorti.fr", "a.parking.fr"];
    let hosts = asked.iter().chain(&led_to);
    let names: Vec<(&str, Named)> = hosts.map(|host| (*host, local.clone())).collect();
    let (one, other) = pair(&names);
    let closed = {
        let socket = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.local_addr().unwrap().port()
    };
    let root = Root::new();
    // One name after the other: b.fr leads back to whom has been asked already.
    let more = format!(
        "{QUICK}\nredirects = true\nconnections = 1\nforced = \"rules.toml\"\nallow-private = true\n\
         ports = [{closed}, {port}]\n[site]\ncontact = \"https://example.org/\"\n"
    );
    let table = table(&[one.address(), other.address()], &more);
    root.settings(&["dns-filter", "sink"], &table);
    let rule = "[[rule]]\nverdict = 'out'\ndomain = 'sorti.fr'\nwho = 'a'\nwhen = '2026-11-01'\nwhy = 'b'\n";
    fs::write(root.path().join("rules.toml"), rule).unwrap();
    fs::write(root.path().join("hints.txt"), "parked ns parking.fr\n").unwrap();
    root.put_files("dns-filter", "names", &[("names.tsv", &list(&asked))]);
    let (code, said) = root.run(DNS_FILTER, &["--once"]);
    assert_eq!(code, 0, "{said}");
    let targets = |host: &str| -> Vec<String> {
        let log = web.log_of(&[host]);
        log.into_iter().map(|seen| seen.target).collect()
    };
    assert_eq!(
        targets("a-busy.fr"),
        ["/robots.txt", "/"],
        "it asked for an hour"
    );
    assert_eq!(targets("b.fr"), ["/robots.txt", "/"]);
    let slow = web.log_of(&["lent.fr"]);
    let told: Vec<&str> = slow.iter().map(|seen| seen.target.as_str()).collect();
    assert_eq!(told, ["/robots.txt", "/", "/la"]);
    for two in slow.windows(2) {
        let gap = two[1].start - two[0].end.unwrap();
        assert!(
            gap >= Duration::from_secs(5),
            "{gap:?} before {}",
            two[1].target
        );
    }
    assert_eq!(targets("www.sorti.fr"), [""; 0]);
    let found = checked(&root);
    let lead = |name: &str| found[name].evidence.redirect.clone().unwrap();
    assert_eq!(lead("mene.fr").domain, "sorti.fr");
    assert_eq!(lead("a-busy.fr").status, 503);
    let is_parked = |name: &str| found[name].hints.contains(&DnsHint::Parked);
    assert!(is_parked("vendu.fr") && !is_parked("mene.fr"));
}

#[test]
fn the_filter_keeps_the_order_and_tells_what_is_no_name() {
    let (one, other) = pair(&[("exemple.fr", v4(1)), ("www.exemple.fr", v4(1))]);
    let root = root(&[one.address(), other.address()], QUICK);
    let mut input: Vec<u8> = Vec::new();
    let long_label = format!("{}.fr", "a".repeat(300));
    for line in [
        b"parti.fr".as_slice(),
        b"# a remark",
        b"",
        b"https://EXEMPLE.fr/page",
        b"a\0b.fr",
        b"a\x1b]0;title\x07.fr",
        b"\xff\xfe\xfd",
        long_label.as_bytes(),
        b"127.0.0.1",
        b"0x7f.1",
        b"localhost",
        b"file:///etc/passwd",
        b"javascript:alert(1)",
        "\u{430}pple.fr".as_bytes(),
        &vec![b'x'; 1 << 20],
    ] {
        input.extend_from_slice(line);
        input.push(b'\n');
    }
    input.extend(list(&["exemple.fr"]));
    let file = root.path().join("names.txt");
    fs::write(&file, &input).unwrap();
    let mut command = Command::new(DNS_FILTER);
    settle_environment(&mut command);
    let config = root.path().join("pipeline.toml");
    command.arg("--config").arg(config).arg(&file).arg("-");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"exemple.fr")
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let (text, said) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    assert_eq!(output.status.code(), Some(0), "{said}");
    let lines: Vec<CheckedLine> = text
        .lines()
        .map(|line| CheckedLine::parse(line).unwrap())
        .collect();
    let told: Vec<(&str, &str)> = lines
        .iter()
        .map(|line| {
            let reason = line.evidence.reason.as_deref();
            (line.name.as_str(), reason.unwrap_or(line.class.as_str()))
        })
        .collect();
    let reasons: Vec<&str> = told.iter().map(|(_, reason)| *reason).collect();
    assert_eq!(
        reasons,
        [
            "NXDOMAIN",
            "OK_A",
            "control",
            "control",
            "one-label",
            "label-too-long",
            "ip-address",
            "ip-address",
            "local",
            "scheme",
            "scheme",
            "NXDOMAIN",
            "too-long",
            "OK_A",
            "OK_A",
        ]
    );
    assert_eq!(
        (told[0].0, told[1].0, told[11].0),
        ("parti.fr", "exemple.fr", "xn--pple-43d.fr")
    );
    assert_eq!(told[3].0, "a\\x1b]0;title\\x07.fr");
    assert!(told[12].0.len() == 200);
    let raw = (text + &said)
        .chars()
        .find(|c| (c.is_control() && !"\n\t".contains(*c)) || !c.is_ascii());
    assert_eq!(raw, None);
    assert!(said.contains("15 names"), "{said}");
}

#[test]
fn the_filter_reads_on_after_any_number_of_lines_that_are_no_names() {
    let (one, other) = pair(&[]);
    let root = root(&[one.address(), other.address()], QUICK);
    let path = root.path().join("names.txt");
    let bad = 120_000;
    fs::write(&path, "a b.fr\n".repeat(bad) + "parti.fr\n").unwrap();
    let mut command = Command::new(DNS_FILTER);
    settle_environment(&mut command);
    let config = root.path().join("pipeline.toml");
    let output = command.arg("--config").arg(config).arg(&path).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), bad + 1);
    let last = text.lines().last().unwrap();
    assert!(last.starts_with("fr,parti\tparti.fr\tNXDOMAIN"), "{last}");
}

#[test]
fn without_a_stage_after_it_the_results_lie_with_the_reports() {
    let (one, other) = pair(&[("a.fr", v4(1))]);
    let root = Root::new();
    let table = table(&[one.address(), other.address()], QUICK).replace("[\"sink\"]", "[]");
    root.settings(&["dns-filter"], &table);
    root.put_files("dns-filter", "names", &[("names.tsv", &list(&["a.fr"]))]);
    let (code, said) = root.run(DNS_FILTER, &["--once"]);
    assert_eq!(code, 0, "{said}");
    let text = fs::read_to_string(root.path().join("reports/dns-filter/names.tsv")).unwrap();
    assert!(
        text.starts_with("fr,a\ta.fr\tOK_A\tNXDOMAIN\tpresent\tapex\t9.9.9.1\t"),
        "{text}"
    );
}

#[test]
fn settings_that_make_no_sense_are_refused_with_their_key() {
    for (more, key, words) in [
        (
            "resolvers = [\"dns.example\"]",
            "resolvers",
            "is no address",
        ),
        (
            "resolvers = [\"192.0.2.1\", \"192.0.2.1:53\"]",
            "resolvers",
            "is there twice",
        ),
        ("redirects = true", "redirects", "site.contact is empty"),
        ("hints = \"pipeline.toml\"", "hints", "pipeline.toml:"),
    ] {
        let root = Root::new();
        root.settings(
            &["dns-filter"],
            &format!("[stage.dns-filter]\nnext = []\nback = []\n{more}"),
        );
        let (code, said) = root.run(DNS_FILTER, &["--once"]);
        assert_eq!(code, 78, "{more}: {said}");
        assert!(
            said.contains(&format!("stage.dns-filter.{key}")) && said.contains(words),
            "{said}"
        );
    }
}
