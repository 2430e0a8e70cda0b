//! `ecluse lookup` and `ecluse plan --simulate`, on indexes made by hand.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use ecluse_cdx::{LineSource, zipnum};
use ecluse_manifest::{Manifest, NewFile};
use tempfile::TempDir;

fn line(key: &str, second: u32) -> String {
    format!("{key} 202601010000{second:02} {{\"url\": \"https://x/\", \"length\": \"{second}\"}}\n")
}

fn all_lines() -> String {
    let mut lines: Vec<String> = (0..2_000)
        .map(|n| line(&format!("org,example)/{n:05}"), 1))
        .collect();
    for key in [
        "org,example)/",
        "org,example)/news",
        "org,example,shop)/",
        "org,example-x)/",
    ] {
        lines.push(line(key, 1));
        lines.push(line(key, 2));
    }
    lines.sort();
    lines.concat()
}

/// Puts an index under a root, flat or as ZipNum alone.
fn put(root: &Path, shelf: &str, lines: &str, is_zipnum: bool) {
    let generation = root.join(shelf).join("generations/1");
    fs::create_dir_all(&generation).unwrap();
    if is_zipnum {
        let source = LineSource::new("lines", std::io::Cursor::new(lines.as_bytes().to_vec()));
        zipnum::write(
            source,
            &generation,
            "index",
            &zipnum::ZipNumOptions::default(),
        )
        .unwrap();
    } else {
        fs::write(generation.join("index.cdxj"), lines).unwrap();
    }
    symlink("generations/1", root.join(shelf).join("current")).unwrap();
}

fn lookup(root: &Path, arguments: &[&str]) -> (i32, String, String) {
    ask("lookup", root, arguments)
}

fn ask(verb: &str, root: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ecluse"))
        .env_remove("ECLUSE_CONFIG")
        .arg("--root")
        .arg(root)
        .arg(verb)
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn flat_and_zipnum_give_the_same_answers() {
    for is_zipnum in [false, true] {
        let root = TempDir::new().unwrap();
        put(root.path(), "index", &all_lines(), is_zipnum);
        let ask = |arguments: &[&str]| lookup(root.path(), arguments);
        let (code, out, _) = ask(&["https://www.example.org/news"]);
        assert_eq!(
            (code, out),
            (
                0,
                line("org,example)/news", 1) + &line("org,example)/news", 2)
            )
        );
        let (code, out, _) = ask(&["example.org/0012", "--match", "prefix"]);
        assert_eq!((code, out.lines().count()), (0, 10));
        let (code, out, _) = ask(&["example.org", "--match", "host"]);
        assert_eq!((code, out.lines().count()), (0, 2_004));
        let (code, out, _) = ask(&["example.org", "--match", "domain"]);
        assert_eq!((code, out.lines().count()), (0, 2_006));
        let (code, out, _) = ask(&["example.org", "--match", "domain", "--limit", "3"]);
        assert_eq!((code, out.lines().count()), (0, 3));
        let (code, out, said) = ask(&["https://example.org/nothing"]);
        assert_eq!(
            (code, out.as_str(), said.as_str()),
            (1, "", ""),
            "none is an answer"
        );
        let (code, out, _) = ask(&["example.org/news", "--json", "--limit", "1"]);
        let object: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!((code, &object["urlkey"]), (0, &"org,example)/news".into()));
    }
}

#[test]
fn a_collection_is_asked_by_name() {
    let root = TempDir::new().unwrap();
    put(root.path(), "index", &line("org,example)/a", 1), false);
    put(
        root.path(),
        "index/presse",
        &line("org,example)/b", 1),
        false,
    );
    let (code, out, _) = lookup(root.path(), &["example.org/b", "--collection", "presse"]);
    assert_eq!((code, out), (0, line("org,example)/b", 1)));
    assert_eq!(lookup(root.path(), &["example.org/b"]).0, 1);
    let (code, _, said) = lookup(root.path(), &["example.org/b", "--collection", "../index"]);
    assert_eq!(code, 64);
    assert!(said.contains("cannot name an index"), "{said}");
}

#[test]
fn no_index_is_one_clear_line() {
    let root = TempDir::new().unwrap();
    let (code, out, said) = lookup(root.path(), &["example.org"]);
    assert_eq!((code, out.as_str()), (64, ""));
    let expected = format!(
        "ecluse: no index in {}/index: bigmerge has made none yet\n",
        root.path().display()
    );
    assert_eq!(said, expected);
    assert!(
        fs::read_dir(root.path()).unwrap().next().is_none(),
        "asking makes nothing"
    );
}

fn gzipped(text: &str) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(text.as_bytes()).unwrap();
    gzip.finish().unwrap()
}

/// Returns one record of an HTTP response, not packed.
fn record(fields: &str, block: &[u8]) -> Vec<u8> {
    let head = format!(
        "WARC/1.1\r\nWARC-Target-URI: http://a.example/\r\n{fields}Content-Length: {}\r\n\r\n",
        block.len()
    );
    [head.as_bytes(), block, b"\r\n\r\n"].concat()
}

#[test]
fn a_capture_is_shown_as_a_browser_had_it() {
    let root = TempDir::new().unwrap();
    let body = gzipped("a page \u{1b}[31m in red\n");
    let (one, two) = body.split_at(9);
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n\r\n";
    let mut block = head.as_bytes().to_vec();
    for chunk in [one, two, &[]] {
        block.extend(format!("{:x}\r\n", chunk.len()).bytes());
        block.extend(chunk);
        block.extend(b"\r\n");
    }
    let first = record(
        "WARC-Type: response\r\nWARC-Date: 2026-01-01T00:00:01Z\r\nContent-Type: application/http;msgtype=response\r\n",
        &block,
    );
    let second = record(
        "WARC-Type: revisit\r\nWARC-Date: 2026-02-01T00:00:01Z\r\nWARC-Refers-To-Target-URI: http://a.example/\r\nWARC-Refers-To-Date: 2026-01-01T00:00:01Z\r\nContent-Type: application/http;msgtype=response\r\n",
        b"HTTP/1.1 200 Again\r\n\r\n",
    );
    fs::create_dir(root.path().join("harvested")).unwrap();
    fs::write(
        root.path().join("harvested/x.warc"),
        [&first[..], &second].concat(),
    )
    .unwrap();
    let line = |time: &str, mime: &str, offset: usize, length: usize| {
        format!(
            "example,a)/ {time} {{\"url\": \"http://a.example/\", \"mime\": \"{mime}\", \"status\": \"200\", \"digest\": \"sha1:X\", \"length\": \"{length}\", \"offset\": \"{offset}\", \"filename\": \"x.warc\"}}\n"
        )
    };
    let lines = line("20260101000001", "text/plain", 0, first.len())
        + &line("20260201000001", "warc/revisit", first.len(), second.len());
    put(root.path(), "index", &lines, false);
    let show = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_ecluse"))
            .env_remove("ECLUSE_CONFIG")
            .arg("--root")
            .arg(root.path())
            .arg("show")
            .args(words)
            .output()
            .unwrap();
        let code = output.status.code().unwrap();
        (
            code,
            output.stdout,
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let text = "a page \u{1b}[31m in red\n";
    let (code, out, said) = show(&["a.example", "--at", "2026-01"]);
    assert_eq!((code, said.as_str()), (0, ""));
    assert_eq!(String::from_utf8(out).unwrap(), format!("{head}{text}"));
    // An unchanged one has its own head, and the body of the other.
    let (code, out, said) = show(&["a.example"]);
    assert_eq!((code, said.as_str()), (0, ""));
    assert_eq!(
        String::from_utf8(out).unwrap(),
        format!("HTTP/1.1 200 Again\r\n\r\n{text}")
    );
    assert_eq!(show(&["a.example", "--at", "2026-01", "--raw"]).1, block);
    assert_eq!(show(&["a.example", "--at", "soon"]).0, 64);
    let (code, _, said) = show(&["a.example/b"]);
    assert_eq!(code, 1);
    assert!(
        said.contains("of its host: 2 captures of 1 URL: "),
        "{said}"
    );

    // On a terminal: a table, and nothing raw.
    let typed = |words: &str| {
        let command = format!(
            "{} --root {} {words}",
            env!("CARGO_BIN_EXE_ecluse"),
            root.path().display()
        );
        let output = Command::new("script")
            .args(["-qec", &command, "/dev/null"])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let table = typed("lookup a.example");
    assert!(
        table.contains("2026-01-01 00:00:01  200     text/plain"),
        "{table}"
    );
    assert!(table.contains("unchanged"), "{table}");
    let shown = typed("show a.example");
    assert!(
        shown.contains("in red") && !shown.contains('\u{1b}'),
        "{shown:?}"
    );
    let none = typed("lookup a.example/b");
    assert!(none.contains("no capture of a.example/b"), "{none}");
}

/// What is shown is what the index means, whole; else nothing is.
#[test]
fn a_damaged_capture_is_not_shown() {
    let root = TempDir::new().unwrap();
    fs::create_dir(root.path().join("harvested")).unwrap();
    let file = root.path().join("harvested/x.warc.gz");
    let packed = |uri: &str, date: &str, body: &str| {
        let block = format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n{body}");
        let text = format!(
            "WARC/1.1\r\nWARC-Type: response\r\nWARC-Target-URI: {uri}\r\nWARC-Date: {date}\r\nContent-Type: application/http;msgtype=response\r\nContent-Length: {}\r\n\r\n{block}\r\n\r\n",
            block.len()
        );
        gzipped(&text)
    };
    let (uri, date) = ("http://a.example/", "2026-01-01T00:00:01Z");
    // One that is held in memory, one that is read piece by piece.
    let long: String = (0..400_000_u32).map(|n| n.to_string()).collect();
    for body in ["short", &long] {
        let good = packed(uri, date, body);
        let before = packed("http://a.example/before", date, "before");
        let line = format!(
            "example,a)/ 20260101000001 {{\"url\": \"{uri}\", \"mime\": \"text/plain\", \"status\": \"200\", \"digest\": \"sha1:X\", \"length\": \"{}\", \"offset\": \"{}\", \"filename\": \"x.warc.gz\"}}\n",
            good.len(),
            before.len()
        );
        let _ = fs::remove_dir_all(root.path().join("index"));
        put(root.path(), "index", &line, false);
        let show = |record: &[u8]| {
            fs::write(&file, [&before, record].concat()).unwrap();
            ask("show", root.path(), &["a.example"])
        };
        let (code, out, said) = show(&good);
        assert_eq!(code, 0, "{said}");
        assert!(out.ends_with(body));
        let flipped = |at: usize| {
            let mut bytes = good.clone();
            bytes[at] ^= 1;
            bytes
        };
        for (what, bad) in [
            ("cut", good[..good.len() / 2].to_vec()),
            ("without its end", good[..good.len() - 4].to_vec()),
            ("gone", Vec::new()),
            ("changed", flipped(good.len() / 2)),
            ("its CRC changed", flipped(good.len() - 6)),
            ("no record", vec![b'x'; good.len()]),
            ("of another URL", packed("http://b.example/", date, body)),
            ("of another time", packed(uri, "2026-01-02T00:00:01Z", body)),
            ("shorter", packed(uri, date, "")),
        ] {
            let (code, out, said) = show(&bad);
            assert_eq!((code, out.as_str()), (65, ""), "{what}: {said}");
            let place = format!("x.warc.gz at offset {}", before.len());
            assert!(said.contains(&place), "{what}: {said}");
        }
    }
}

#[test]
fn a_lost_index_is_told_with_what_to_do() {
    let root = TempDir::new().unwrap();
    fs::create_dir_all(root.path().join("work/index/ready")).unwrap();
    let mut manifest = Manifest::open(&root.path().join("manifest.sqlite"), root.path()).unwrap();
    let file = NewFile {
        name: "a.warc",
        bytes: 1,
        sha256: "00",
        kind: "warc",
        job: None,
        harvest: None,
        collection: None,
        source: "a.warc",
        parcel: "a",
    };
    manifest.ingest(&file).unwrap();
    manifest.published(None, 1, &["a.warc".to_owned()]).unwrap();
    let must_be_told = |what: &str, advice: &str| {
        for verb in ["lookup", "show"] {
            let (code, _, said) = ask(verb, root.path(), &["http://example.org/"]);
            assert_eq!(code, 74, "{said}");
            assert!(said.contains(what), "{said}");
            assert!(said.contains(advice), "{said}");
        }
    };
    must_be_told("there is no index in ", " rebuild index");
    let (_, screen, said) = ask("status", root.path(), &[]);
    assert!(
        screen.contains("bigmerge: there is no index"),
        "{screen}{said}"
    );
    put(root.path(), "index", "", false);
    fs::remove_file(root.path().join("index/generations/1/index.cdxj")).unwrap();
    must_be_told("no index.cdxj", " rebuild index");
}

/// Sixty days of a site: ten pages change every day, ninety never do, and all were captured every day.
fn sixty_days() -> String {
    let mut lines = Vec::new();
    for page in 0..100 {
        for day in 0..60 {
            let version = if page < 10 { day } else { 0 };
            let (month, day) = (1 + day / 28, 1 + day % 28);
            lines.push(format!(
                "org,example)/{page:03} 2026{month:02}{day:02}080000 {{\"url\": \"https://example.org/{page:03}\", \"mime\": \"text/html\", \"status\": \"200\", \"digest\": \"{page}-{version}\", \"length\": \"9\", \"offset\": \"0\", \"filename\": \"a.warc.gz\"}}\n"
            ));
        }
    }
    lines.sort();
    lines.concat()
}

#[test]
fn a_harvests_history_is_replayed_with_every_policy() {
    let root = TempDir::new().unwrap();
    fs::create_dir(root.path().join("harvests")).unwrap();
    let definition = "kind = \"selective\"\nfrom = \"2030-01-01\"\nuntil = \"2031-01-01\"\nschedule = \"daily\"\nbudget = { urls = 200 }\n\n[[domains]]\nnames = [\"example.org\"]\n";
    fs::write(root.path().join("harvests/press.toml"), definition).unwrap();
    let contact = "[site]\ncontact = \"mailto:web@library.example\"\n";
    fs::write(root.path().join("pipeline.toml"), contact).unwrap();
    let simulate = |arguments: &[&str]| {
        let arguments = [&["press", "--simulate", "20"], arguments].concat();
        ask("plan", root.path(), &arguments)
    };
    let (code, _, said) = simulate(&[]);
    assert_eq!(code, 64, "{said}");
    assert!(said.contains("no index"), "{said}");

    put(root.path(), "index", &sixty_days(), false);
    let plot = root.path().join("press.svg");
    let (code, out, said) =
        simulate(&["--json", "--budget", "10", "--plot", plot.to_str().unwrap()]);
    assert_eq!(code, 0, "{said}");
    let told: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&told["pages"], &told["changes"]),
        (&100.into(), &200.into())
    );
    let caught = |name: &str| {
        let policies = told["policies"].as_array().unwrap();
        let policy = policies.iter().find(|policy| policy["policy"] == name);
        assert_eq!(policy.unwrap()["captures"], 200, "{name} spends the same");
        policy.unwrap()["completeness"].as_f64().unwrap()
    };
    // Ten captures a day: who knows what changes catches all of it, who does not a tenth of it.
    assert!(caught("uniform") < 0.2, "{out}");
    assert!(caught("belief") > 0.99, "{out}");
    assert!(caught("Lagrange") > 0.99, "{out}");
    assert!(caught("mixed") > caught("uniform"), "{out}");
    assert!(caught("signalled") > caught("uniform"), "{out}");
    let svg = fs::read_to_string(&plot).unwrap();
    assert_eq!(svg.matches("<polyline").count(), 11, "{svg}");

    let (code, out, _) = simulate(&[]);
    assert_eq!(code, 0);
    assert!(
        out.starts_with(
            "harvest press: 100 pages with 200 changes in the last 20 days, 100 captures a day\n"
        ),
        "{out}"
    );
    // A plot that cannot be written is told with its path.
    let (code, _, said) = simulate(&["--plot", "/nowhere/press.svg"]);
    assert_eq!(code, 74, "{said}");
    assert!(said.contains("/nowhere/press.svg"), "{said}");
    let (code, _, said) = ask("plan", root.path(), &["press", "--simulate", "90"]);
    assert_eq!(code, 64, "{said}");
    assert!(said.contains("nothing can be learned"), "{said}");
}
