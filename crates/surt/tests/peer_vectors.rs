//! Checks keys against the test vectors of `surt` and urlcanon, where the shared corpus is at hand.
//!
//! The vectors are not ours to copy; `golden.rs` stands on its own without them.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail by panicking, as tests do"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use ecluse_surt::Surt;
use serde_json::Value;

const VECTORS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../../shared/corpus/internetarchive+surt/surt_vectors.jsonl"
);
const URLCANON: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../../shared/corpus/iipc+urlcanon/testdata"
);

fn key(url: &str) -> String {
    Surt::of(url.as_bytes()).unwrap().to_string()
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(&path).ok();
    if text.is_none() {
        println!("left out: {} is not here", path.as_ref().display());
    }
    text
}

#[test]
fn the_vectors_of_surt() {
    let Some(text) = read(VECTORS) else { return };
    let (mut checked, mut left_out) = (0, 0);
    for line in text.lines() {
        let vector: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| vector[name].as_str().unwrap();
        let url = text("in");
        if vector["surt"].is_string() {
            let understood = check_surt(url, &vector["opts"], text("surt"));
            checked += usize::from(understood);
            left_out += usize::from(!understood);
        } else if text("out").contains(':') {
            // What a parser or canonicaliser gives is a URL; it must have the key of what it was given.
            assert_eq!(key(url), key(text("out")), "{url:?}");
            checked += 1;
        } else {
            left_out += 1;
        }
    }
    // Left out: public suffixes, keys with `www`, and one with a canonicaliser of its own.
    assert_eq!((checked, left_out), (112, 10));
}

/// Compares one call of `surt()`. The options that only decorate the key are put on here.
fn check_surt(url: &str, options: &Value, expected: &str) -> bool {
    let on = |name: &str| options[name] == true;
    // The package has a URL that it does not key as its vector says: it resolves %26 before it sorts.
    let expected = match url {
        "http://example.com/script?type=a+b+%26+c&grape=wine" => {
            "com,example)/script?+c&grape=wine&type=a+b+"
        }
        _ => expected,
    };
    if options["host_massage"] == false || options["canonicalizer"].is_string() {
        return false;
    }
    let url = if url == "None" { "" } else { url };
    let mut key = key(url);
    if let Some((host, path)) = key.split_once(")/") {
        let comma = if on("trailing_comma") { "," } else { "" };
        let scheme = url.split("//").next().unwrap();
        let opening = if on("with_scheme") {
            format!("{scheme}//(")
        } else {
            String::new()
        };
        key = format!("{opening}{host}{comma})/{path}");
    }
    assert_eq!(key, expected, "{url:?} {options}");
    true
}

#[test]
fn the_surt_vectors_of_urlcanon() {
    let Some(text) = read(Path::new(URLCANON).join("surt.json")) else {
        return;
    };
    let vectors: Value = serde_json::from_str(&text).unwrap();
    let pairs = |section: &str| -> Vec<(String, String)> {
        let section = vectors[section].as_object().unwrap();
        section
            .iter()
            .map(|(from, to)| (from.clone(), to.as_str().unwrap().to_owned()))
            .collect()
    };
    for (url, expected) in pairs("defaultIASurt") {
        assert_eq!(key(&url), expected);
    }
    for (query, sorted) in pairs("alphaRorderQuery") {
        let mark = if sorted.is_empty() { "" } else { "?" };
        assert_eq!(
            key(&format!("http://h/p?{query}")),
            format!("h)/p{mark}{sorted}")
        );
    }
    for (host, massaged) in pairs("massageHost") {
        assert_eq!(
            key(&format!("http://{host}/")),
            key(&format!("http://x:y@{massaged}/"))
        );
        assert_eq!(
            key(&format!("http://{host}/")),
            massaged.rsplit('.').collect::<Vec<_>>().join(",") + ")/"
        );
    }
    for (path, stripped) in pairs("stripPathSessionId") {
        let stripped = stripped.to_lowercase();
        let stripped = stripped.strip_suffix('/').unwrap_or(&stripped);
        assert_eq!(key(&format!("http://h{path}")), format!("h){stripped}"));
    }
}

/// The sum is over the keys that `surt` 0.3.1 gives to every string in these files; `compare_with_python.rs` checks the same strings one by one.
#[test]
fn every_string_in_urlcanon_has_the_key_it_has_in_python() {
    let files = [
        "aggressive",
        "funky_ipv4",
        "idempotence",
        "parsing",
        "path_dots",
        "semantic_precise",
        "ssurt",
        "supplemental_whatwg",
        "surt",
        "urltestdata",
    ];
    let mut all = BTreeSet::new();
    for file in files {
        let Some(text) = read(Path::new(URLCANON).join(file).with_extension("json")) else {
            return;
        };
        strings(&serde_json::from_str(&text).unwrap(), &mut all);
    }
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    for url in &all {
        let mut line = url.clone().into_bytes();
        line.push(b'\t');
        if ecluse_surt::surt(url.as_bytes(), &mut line).is_err() {
            line.push(b'!');
        }
        line.push(b'\n');
        sum = line.iter().fold(sum, |sum, &byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    }
    assert_eq!((all.len(), sum), (2252, 0x4305_c5e9_7580_8f9a));
}

fn strings(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => {
            into.insert(text.clone());
        }
        Value::Array(values) => values.iter().for_each(|value| strings(value, into)),
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            into.insert(name.clone());
            strings(value, into);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
