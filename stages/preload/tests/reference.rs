//! Two hundred thousand lines of the bench's mix, held against a slow and obvious way to do the same.
//!
//! The reference knows nothing of the stage's code: it asks the URL parser for every line, keeps everything in sorted maps, and
//! counts what it sees.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use common::{PRELOAD, report_of, root};
use ecluse_testkit::lists::{SOURCES, write_list};
use psl::{List, Psl, Type};
use serde_json::{Value, json};
use url::{Host, Url};

const LINES: u64 = 200_000;

/// What a line is, by the page of the format and nothing else.
fn read(line: &[u8]) -> Result<(String, BTreeSet<&'static str>), &'static str> {
    let mut flags = BTreeSet::new();
    let text = match std::str::from_utf8(line) {
        Ok(text) => text.to_owned(),
        Err(_) => {
            flags.insert("latin1");
            line.iter().map(|byte| char::from(*byte)).collect()
        }
    };
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '"' || c == '\u{feff}');
    if text.is_empty() {
        return Err("blank");
    }
    if text.starts_with('#') {
        return Err("comment");
    }
    if text.chars().any(char::is_control) {
        return Err("control");
    }
    if text.starts_with("javascript:") || text.starts_with("file:") {
        return Err("scheme");
    }
    let url = if text.contains("://") {
        text.to_owned()
    } else {
        format!("http://{text}")
    };
    let url = Url::parse(&url).map_err(|error| match error {
        url::ParseError::IdnaError => "bad-name",
        other => panic!("{other}: {text}"),
    })?;
    let name = match url.host().unwrap() {
        Host::Domain(name) => name.strip_suffix('.').unwrap_or(name).to_owned(),
        _ => return Err("ip-address"),
    };
    let labels: Vec<&str> = name.split('.').collect();
    if labels.iter().any(|label| label.is_empty()) {
        return Err("empty-label");
    }
    if name == "localhost" {
        return Err("local");
    }
    if labels.len() == 1 {
        return Err("one-label");
    }
    let has_path = url.path() != "/" || url.query().is_some() || url.fragment().is_some();
    for (flag, is_so) in [
        ("www", name.starts_with("www.")),
        ("path", has_path),
        ("port", url.port() == Some(8080)),
        ("user", !url.username().is_empty()),
        ("idn", labels.iter().any(|label| label.starts_with("xn--"))),
        ("underscore", name.contains('_')),
        ("hyphens", labels.iter().any(|label| label.starts_with('-'))),
    ] {
        if is_so {
            flags.insert(flag);
        }
    }
    Ok((name, flags))
}

fn last_labels(name: &str, count: usize) -> String {
    let labels: Vec<&str> = name.split('.').collect();
    labels[labels.len().saturating_sub(count)..].join(".")
}

type Lines = BTreeMap<&'static str, u64>;

#[derive(Default)]
struct Expected {
    /// By labels, last to first: the lines of each source, and the flags.
    names: BTreeMap<Vec<String>, (Lines, BTreeSet<&'static str>)>,
    lines: BTreeMap<&'static str, u64>,
    rejected: BTreeMap<(&'static str, &'static str), u64>,
}

fn expected(lists: &[(&'static str, Vec<u8>)]) -> Expected {
    let mut expected = Expected::default();
    for (source, text) in lists {
        for line in text
            .strip_suffix(b"\n")
            .unwrap()
            .split(|byte| *byte == b'\n')
        {
            *expected.lines.entry(source).or_default() += 1;
            match read(line) {
                Ok((name, flags)) => {
                    let labels = name.split('.').rev().map(str::to_owned).collect();
                    let (origins, seen) = expected.names.entry(labels).or_default();
                    *origins.entry(source).or_default() += 1;
                    seen.extend(flags);
                }
                Err(reason) => *expected.rejected.entry((source, reason)).or_default() += 1,
            }
        }
    }
    expected
}

const ORDER: [&str; 8] = [
    "www",
    "path",
    "port",
    "user",
    "latin1",
    "idn",
    "underscore",
    "hyphens",
];

impl Expected {
    /// The list, and for each domain the sources that have it.
    fn list(&self) -> (String, BTreeMap<String, BTreeSet<&'static str>>) {
        let mut list = String::new();
        let mut domains: BTreeMap<String, BTreeSet<&'static str>> = BTreeMap::new();
        for (labels, (origins, flags)) in &self.names {
            let mut forward = labels.clone();
            forward.reverse();
            let name = forward.join(".");
            let suffix = List.suffix(name.as_bytes()).unwrap();
            let suffix_labels = suffix.as_bytes().split(|byte| *byte == b'.').count();
            let site = last_labels(&name, suffix_labels + 1);
            // The one private suffix of the mix is blogspot.com.
            let domain = if suffix.typ() == Some(Type::Private) {
                last_labels(&name, 2)
            } else {
                site.clone()
            };
            let sources: Vec<String> = origins
                .iter()
                .map(|(source, lines)| format!("{source}:{lines}"))
                .collect();
            let flags: Vec<&str> = ORDER
                .into_iter()
                .filter(|flag| flags.contains(flag))
                .collect();
            let flags = if flags.is_empty() {
                "-".to_owned()
            } else {
                flags.join(",")
            };
            let key = labels.join(",");
            list += &format!(
                "{key}\t{name}\t{domain}\t{site}\t{}\tnew\t-\t{flags}\n",
                sources.join(",")
            );
            domains.entry(site).or_default().extend(origins.keys());
        }
        (list, domains)
    }
}

/// Names and domains by last label; there is no register, so every domain is new.
fn last_labels_of(
    expected: &Expected,
    domains: &BTreeMap<String, BTreeSet<&'static str>>,
) -> Value {
    let mut table: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    let label = |name: &str| match List.suffix(name.as_bytes()).unwrap().typ() {
        Some(_) => last_labels(name, 1),
        None => "(unlisted)".to_owned(),
    };
    for labels in expected.names.keys() {
        let name: Vec<&str> = labels.iter().rev().map(String::as_str).collect();
        table.entry(label(&name.join("."))).or_default()[0] += 1;
    }
    for domain in domains.keys() {
        table.entry(label(domain)).or_default()[1] += 1;
    }
    let told = table.into_iter().map(|(label, [names, domains])| {
        let figures = json!({"names": names, "domains": domains, "new-domains": domains});
        (label, figures)
    });
    told.collect::<serde_json::Map<String, Value>>().into()
}

#[test]
fn the_list_and_its_figures_are_those_of_the_obvious_way() {
    let root = root("memory = \"4 MiB\"\nlist = 7000");
    let mut lists = Vec::new();
    for (place, (name, kind, _)) in SOURCES.into_iter().enumerate() {
        let mut text = Vec::new();
        write_list(place, LINES, &mut text).unwrap();
        let directory = root.path().join("sources").join(kind);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("{name}.txt")), &text).unwrap();
        lists.push((name, text));
    }
    let (code, said) = root.run(PRELOAD, &["--once"]);
    assert_eq!(code, 0, "{said}");

    let expected = expected(&lists);
    let (list, domains) = expected.list();
    let mut given = String::new();
    for parcel in root.list("sink", "ready") {
        let part =
            fs::read_to_string(root.part("sink", "ready").join(&parcel).join("names.tsv")).unwrap();
        assert!(part.lines().count() <= 7000);
        given += &part;
    }
    assert!(
        given == list,
        "the lists differ: {:?}",
        given
            .lines()
            .zip(list.lines())
            .find(|(given, list)| given != list)
    );
    assert!(list.is_ascii() && list.lines().is_sorted());

    let report = report_of(&root);
    let figures: Value = serde_json::from_str(&report["statistics.json"]).unwrap();
    assert_eq!(figures["names"], expected.names.len());
    assert_eq!(figures["domains"], domains.len());
    let mut all_lines = 0;
    for (name, _, _) in SOURCES {
        let source = figures["sources"]
            .as_array()
            .unwrap()
            .iter()
            .find(|source| source["name"] == name)
            .unwrap();
        let count = |key: &str| source[key].as_u64().unwrap();
        let rejected: u64 = expected
            .rejected
            .iter()
            .filter(|((of, _), _)| *of == name)
            .map(|(_, count)| count)
            .sum();
        assert_eq!(count("lines"), expected.lines[name]);
        assert_eq!(
            count("lines"),
            count("accepted") + count("own-duplicates") + count("other-duplicates") + rejected
        );
        for (reason, told) in source["rejected"].as_object().unwrap() {
            let found = expected
                .rejected
                .iter()
                .find(|((of, why), _)| *of == name && why == reason);
            assert_eq!(
                found.map(|(_, count)| *count),
                told.as_u64(),
                "{name} {reason}"
            );
        }
        let first = |origins: &BTreeMap<&'static str, u64>| origins.keys().next() == Some(&name);
        assert_eq!(
            count("accepted"),
            expected
                .names
                .values()
                .filter(|(origins, _)| first(origins))
                .count() as u64
        );
        assert_eq!(
            count("names"),
            expected
                .names
                .values()
                .filter(|(origins, _)| origins.contains_key(name))
                .count() as u64
        );
        let having = domains.values().filter(|sources| sources.contains(name));
        assert_eq!(count("domains"), having.clone().count() as u64);
        assert_eq!(
            count("exclusive-domains"),
            having.filter(|sources| sources.len() == 1).count() as u64
        );
        all_lines += count("lines");
    }
    assert_eq!(all_lines, LINES);
    for shared in figures["shared"].as_array().unwrap() {
        let [left, right] = [0, 1].map(|at| shared["sources"][at].as_str().unwrap());
        let both = domains
            .values()
            .filter(|sources| sources.contains(left) && sources.contains(right))
            .count();
        assert_eq!(shared["domains"], both, "{left} and {right}");
    }
    assert_eq!(figures["last-labels"], last_labels_of(&expected, &domains));
    assert_eq!(figures["domains-of-other-sets"], 0);
    let told = figures["exactly"].as_array().unwrap();
    let exactly: BTreeMap<Vec<String>, u64> = told
        .iter()
        .map(|set| {
            let sources = set["sources"].as_array().unwrap().iter();
            let sources = sources.map(|source| source.as_str().unwrap().to_owned());
            (sources.collect(), set["domains"].as_u64().unwrap())
        })
        .collect();
    let mut sets: BTreeMap<Vec<String>, u64> = BTreeMap::new();
    for sources in domains.values() {
        let names: Vec<String> = sources.iter().map(|name| (*name).to_owned()).collect();
        *sets.entry(names).or_default() += 1;
    }
    assert_eq!((exactly.len(), &exactly), (told.len(), &sets));
    let tables = [
        ("names-by-last-label", "names"),
        ("domains-by-last-label", "domains"),
        ("new-domains-by-last-label", "new-domains"),
    ];
    for (label, told) in figures["last-labels"].as_object().unwrap() {
        for (what, key) in tables {
            let line = format!("\n{what},{label},,{}\n", told[key]);
            assert!(report["statistics.csv"].contains(&line), "{line}");
        }
        let in_text = report["statistics.txt"].lines().find(|line| {
            line.split(' ').next() == Some(label) && line.split_whitespace().count() == 4
        });
        let numbers: Vec<String> = in_text
            .unwrap_or_else(|| panic!("{label} is not in the text"))
            .split_whitespace()
            .skip(1)
            .map(|number| number.replace(',', ""))
            .collect();
        assert_eq!(
            numbers,
            tables.map(|(_, key)| told[key].to_string()),
            "{label}"
        );
    }
    for (sources, domains) in sets {
        let line = format!("\ndomains-of-exactly,{},,{domains}\n", sources.join(" "));
        assert!(report["statistics.csv"].contains(&line), "{line}");
    }
    let rejects = report["rejects.tsv.zst"].lines().count() as u64;
    let listed = expected
        .rejected
        .iter()
        .filter(|((_, reason), _)| !["blank", "comment"].contains(reason));
    assert_eq!(rejects, listed.map(|(_, count)| count).sum::<u64>());
}
