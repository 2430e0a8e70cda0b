//! Against real servers: nsd, which knows the zones, and unbound, which finds out.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use common::{DNS_FILTER, checked, list, root};
use ecluse_names::{CheckedLine, DnsVerdict};
use ecluse_testkit::cannot_run;
use ecluse_testkit::dns::Names;
use ecluse_testkit::name_servers::{LossyRelay, NameServer};
use ecluse_testkit::root::Root;

/// Names of each world; `ECLUSE_DNS_NAMES` asks for more.
const NAMES: usize = 20_000;

fn names() -> usize {
    std::env::var("ECLUSE_DNS_NAMES").map_or(NAMES, |count| count.parse().unwrap())
}

/// Lets it work until the names have come through, however many there are.
fn check_all(root: &Root) -> String {
    let mut program = root.start(DNS_FILTER, &[]);
    while root.list("sink", "ready").is_empty() {
        program.must_live();
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(program.stop(), 0, "{}", program.log());
    program.log()
}

/// As fast as it goes, and asked again soon.
const LATER: &str =
    "rate = 0\nlater = 2\nretry = { first = \"1s\", factor = 1.0, max = \"1s\", limit = \"1h\" }";
/// A zone whose server does not want to know of it.
const BROKEN: &str = "panne";

/// Names of every class that a zone can have: what each is, and what must be found.
struct World {
    zone: String,
    expected: BTreeMap<String, &'static str>,
}

fn world() -> World {
    let mut zone = String::from("cible A 9.9.9.9\ncible AAAA 2a00::9\nloin A 9.9.9.8\n");
    let mut expected = BTreeMap::new();
    for number in 0..names() {
        let name = format!("n{number:05}");
        let mut put = |records: &str| {
            for record in records.split(';').filter(|record| !record.is_empty()) {
                let (label, data) = record.split_once(' ').unwrap();
                let owner = match label {
                    "@" => name.clone(),
                    label => format!("{label}.{name}"),
                };
                writeln!(zone, "{owner} {data}").unwrap();
            }
        };
        let class = match number % 20 {
            // A third of a registry's names are gone.
            0..6 => "NXDOMAIN NXDOMAIN",
            6..9 => {
                put("@ A 9.9.9.1;www A 9.9.9.1");
                "OK_A OK_A"
            }
            9 => {
                put("@ A 9.9.9.2;@ AAAA 2a00::2;www CNAME cible.essai.");
                "OK_BOTH OK_BOTH"
            }
            10 => {
                put("@ AAAA 2a00::3");
                "OK_AAAA NXDOMAIN"
            }
            11 => {
                put("@ TXT rien;www A 9.9.9.4");
                "NODATA OK_A"
            }
            12 => {
                put("@ MX 10 cible.essai.");
                "NODATA NXDOMAIN"
            }
            13 => {
                put("www A 9.9.9.5");
                // It has something below it: RFC 8020.
                "NODATA OK_A"
            }
            14 => {
                put("@ CNAME parti.essai.");
                "CNAME_DANGLING NXDOMAIN"
            }
            15 => {
                put("@ A 192.168.1.1");
                "PRIVATE NXDOMAIN"
            }
            16 => {
                put("@ A 9.9.9.6;* A 9.9.9.7");
                "OK_A OK_A"
            }
            17 => {
                put(&format!("@ CNAME loin.essai.;www CNAME {name}.essai."));
                "OK_A OK_A"
            }
            18 => {
                let many: String = (1..=120).map(|last| format!("@ A 9.9.8.{last};")).collect();
                put(&many);
                "OK_A NXDOMAIN"
            }
            _ => {
                expected.insert(format!("{name}.{BROKEN}"), "SERVFAIL SERVFAIL");
                continue;
            }
        };
        expected.insert(format!("{name}.essai"), class);
    }
    World { zone, expected }
}

fn class_of(line: &CheckedLine) -> String {
    format!(
        "{} {}",
        line.class,
        line.www.map_or("-", |class| class.as_str())
    )
}

fn are_there() -> bool {
    let are_there = ["nsd", "unbound"]
        .iter()
        .all(|name| NameServer::is_there(name));
    if !are_there {
        cannot_run("nsd and unbound are not installed");
    }
    are_there
}

fn put(root: &Root, world: &World) {
    let names: Vec<&str> = world.expected.keys().map(String::as_str).collect();
    root.put_files("dns-filter", "names", &[("names.tsv", &list(&names))]);
}

#[test]
fn every_class_is_found_with_real_servers() {
    if !are_there() {
        return;
    }
    let world = world();
    let nsd = NameServer::nsd(&[("essai", &world.zone)]);
    let zones = [("essai", nsd.address()), (BROKEN, nsd.address())];
    let (one, other) = (
        NameServer::unbound(&zones, ""),
        NameServer::unbound(&zones, ""),
    );
    let root = root(
        &[one.address(), other.address()],
        &format!("in-flight = 1000\n{LATER}"),
    );
    put(&root, &world);
    check_all(&root);
    let found = checked(&root);
    assert_eq!(found.len(), world.expected.len());
    let wrong: Vec<String> = world
        .expected
        .iter()
        .filter(|(name, class)| class_of(&found[*name]) != **class)
        .map(|(name, class)| format!("{name}: {class}, found {}", class_of(&found[name])))
        .collect();
    assert_eq!(wrong, [""; 0], "{} of {}", wrong.len(), names());
    eprintln!("measured: {} names have their class", found.len());
    let many = &found["n00018.essai"];
    assert_eq!(
        many.addresses().len(),
        16,
        "by TCP, and no more than are kept"
    );
    let joker = &found["n00016.essai"];
    let hints: Vec<&str> = joker.hints.iter().map(|hint| hint.as_str()).collect();
    assert_eq!(hints, ["wildcard-www"]);
}

#[test]
fn cnames_that_go_round_are_told_from_names_that_fail() {
    if !are_there() {
        return;
    }
    let zone = "a CNAME b\nb CNAME c\nc CNAME a\n";
    let servers = [(); 2].map(|()| NameServer::nsd(&[("essai", zone)]));
    let root = root(&servers.each_ref().map(NameServer::address), "later = 0");
    root.put_files("dns-filter", "names", &[("names.tsv", &list(&["a.essai"]))]);
    let (code, said) = root.run(DNS_FILTER, &["--once"]);
    assert_eq!(code, 0, "{said}");
    let line = &checked(&root)["a.essai"];
    assert_eq!(class_of(line), "CNAME_LOOP NXDOMAIN");
    assert_eq!(line.evidence.apex.cname, ["b.essai", "c.essai", "a.essai"]);
}

#[test]
fn no_existing_name_is_dropped_when_one_is_dead_and_one_lies_and_packets_are_lost() {
    if !are_there() {
        return;
    }
    let world = world();
    let nsd = NameServer::nsd(&[("essai", &world.zone)]);
    let unbound = NameServer::unbound(&[("essai", nsd.address()), (BROKEN, nsd.address())], "");
    let relay = LossyRelay::start(unbound.address(), 5);
    // It takes everything in and says nothing.
    let dead = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    // It denies everything.
    let liar = Names::start(60);
    let resolvers: [SocketAddr; 3] = [dead.local_addr().unwrap(), liar.address(), relay.address()];
    let more = format!("in-flight = 500\ntimeout = \"1s\"\nwildcards = false\n{LATER}");
    let root = root(&resolvers, &more);
    put(&root, &world);
    let said = check_all(&root);
    assert!(relay.lost() > 500, "{} lost", relay.lost());
    let found = checked(&root);
    let exists = |name: &str| world.expected[name] != "NXDOMAIN NXDOMAIN";
    let of = |verdict: DnsVerdict, there: bool| {
        let lines = found.values();
        lines
            .filter(|line| line.verdict() == verdict && exists(&line.name) == there)
            .count()
    };
    assert_eq!(
        of(DnsVerdict::Absent, true),
        0,
        "no name that exists is dropped"
    );
    assert_eq!(of(DnsVerdict::Present, false), 0);
    let known = of(DnsVerdict::Present, true);
    // Of thirteen, one has an answer too long for a datagram, and the relay has no TCP.
    assert!(
        known > names() * 11 / 20,
        "{known} of {} are known to exist",
        names()
    );
    assert!(of(DnsVerdict::Absent, false) > names() * 5 / 20);
    eprintln!(
        "measured: of {} names, {known} are known to exist, {} are left unknown, none that exists is dropped; {} packets lost",
        found.len(),
        of(DnsVerdict::Unknown, true) + of(DnsVerdict::Unknown, false),
        relay.lost()
    );
    assert!(
        said.contains("resolver denies names that others know"),
        "{said}"
    );
    assert!(said.contains("resolver is taken to be down"), "{said}");
}
