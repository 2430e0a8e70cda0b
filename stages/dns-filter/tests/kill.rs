//! Killed two hundred times, anywhere in its work, it gives the same bytes as when it is left alone.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use common::{DNS_FILTER, list, root};
use ecluse_testkit::cannot_run;
use ecluse_testkit::name_servers::NameServer;
use ecluse_testkit::root::{Root, contents};
use rustix::process::Signal;

const KILLS: usize = 200;
const NAMES: usize = 3_000;

fn full_root(resolvers: &[SocketAddr]) -> Root {
    let more = "rate = 5000\nin-flight = 200\nlater = 0\nattempts = 100000";
    let root = root(resolvers, more);
    for part in 0..2 {
        let names: Vec<String> = (0..NAMES)
            .filter(|number| number % 2 == part)
            .map(|number| format!("n{number:05}.essai"))
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let id = format!("names-{part}");
        root.put_files("dns-filter", &id, &[("names.tsv", &list(&names))]);
    }
    root
}

/// Everything it gave.
fn given(root: &Root) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut given = contents(&root.part("sink", "ready"));
    // Who did it and when is told there.
    given.retain(|path, _| !path.to_string_lossy().contains("history"));
    given
}

#[test]
fn killed_two_hundred_times_it_gives_the_same_bytes() {
    if !["nsd", "unbound"]
        .iter()
        .all(|name| NameServer::is_there(name))
    {
        return cannot_run("nsd and unbound are not installed");
    }
    let mut zone = String::new();
    for number in (0..NAMES).filter(|number| number % 5 > 0) {
        writeln!(zone, "n{number:05} A 9.9.9.{}", number % 250).unwrap();
        if number % 3 == 0 {
            writeln!(zone, "www.n{number:05} CNAME n{number:05}").unwrap();
        }
    }
    let nsd = NameServer::nsd(&[("essai", &zone)]);
    let zones = [("essai", nsd.address())];
    let (one, other) = (
        NameServer::unbound(&zones, ""),
        NameServer::unbound(&zones, ""),
    );
    let resolvers = [one.address(), other.address()];
    let quiet = full_root(&resolvers);
    let begun = Instant::now();
    let (code, said) = quiet.run(DNS_FILTER, &["--once"]);
    assert_eq!(code, 0, "{said}");
    let whole = begun.elapsed();
    let expected = given(&quiet);
    assert_eq!(expected.len(), 6, "two parcels of three files");

    let (mut kills, mut tries, mut rounds) = (0, 0, 0);
    while kills < KILLS {
        let root = full_root(&resolvers);
        loop {
            let mut program = root.start(DNS_FILTER, &["--once"]);
            // Somewhere in its work; where exactly is left to the machine.
            let part = tries * 37 % 100;
            tries += 1;
            std::thread::sleep(whole * part / 150 + Duration::from_millis(1));
            program.signal(Signal::KILL);
            match program.wait() {
                0 => break,
                -9 => kills += 1,
                code => panic!("{code}: {}", program.log()),
            }
        }
        rounds += 1;
        assert!(
            given(&root) == expected,
            "round {rounds}, after {kills} kills"
        );
        assert_eq!(root.list("dns-filter", "held"), [""; 0]);
    }
    eprintln!("measured: {kills} kills, {rounds} times the same bytes");
}
