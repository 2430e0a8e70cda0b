//! What the tests of dns-filter share.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test uses its part, and stops where it fails"
)]

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;

use ecluse_names::{CheckedLine, NameFlags, NameLine, Registered, key_of};
use ecluse_testkit::root::Root;

pub(crate) const DNS_FILTER: &str = env!("CARGO_BIN_EXE_ecluse-dns-filter");

/// A root whose dns-filter asks these resolvers and sends to a stage nobody runs.
pub(crate) fn root(resolvers: &[SocketAddr], more: &str) -> Root {
    let root = Root::new();
    root.settings(&["dns-filter", "sink"], &table(resolvers, more));
    root
}

pub(crate) fn table(resolvers: &[SocketAddr], more: &str) -> String {
    let resolvers: Vec<String> = resolvers.iter().map(ToString::to_string).collect();
    format!("[stage.dns-filter]\nnext = [\"sink\"]\nback = []\nresolvers = {resolvers:?}\n{more}\n")
}

/// A list as preload writes it, of names in any order.
pub(crate) fn list(names: &[&str]) -> Vec<u8> {
    list_of(names, "afnic:1")
}

pub(crate) fn list_of(names: &[&str], sources: &str) -> Vec<u8> {
    let mut keys: Vec<(String, &str)> = names.iter().map(|name| (key_of(name), *name)).collect();
    keys.sort();
    let mut text = Vec::new();
    for (key, name) in &keys {
        let registered = Registered::of(name);
        let line = NameLine {
            key,
            name,
            domain: registered.domain,
            site: registered.site,
            sources,
            is_known: false,
            is_forced: false,
            flags: NameFlags::NONE,
        };
        line.write(&mut text).unwrap();
    }
    text
}

/// What was found of every name that went on.
pub(crate) fn checked(root: &Root) -> BTreeMap<String, CheckedLine> {
    let mut found = BTreeMap::new();
    for parcel in root.list("sink", "ready") {
        let path = root.part("sink", "ready").join(parcel).join("checked.tsv");
        for line in fs::read_to_string(path).unwrap().lines() {
            let line = CheckedLine::parse(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            found.insert(line.name.clone(), line);
        }
    }
    found
}

/// Class, class with `www.`, and hints of every name.
pub(crate) fn classes(root: &Root) -> BTreeMap<String, String> {
    let told = |line: &CheckedLine| {
        let www = line.www.map_or("-", |class| class.as_str());
        let hints: Vec<&str> = line.hints.iter().map(|hint| hint.as_str()).collect();
        format!("{} {www} {}", line.class, hints.join(","))
            .trim_end()
            .to_owned()
    };
    let found = checked(root);
    found
        .iter()
        .map(|(name, line)| (name.clone(), told(line)))
        .collect()
}
