//! The stage's program: its contract, the filter, and what becomes of bad files.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::path::Path;

use common::{INDEX, assorted, gzip, index_bytes, members, record, response, run};
use ecluse_manifest::IndexFacts;
use ecluse_testkit::contract::Contract;
use ecluse_testkit::root::{Root, contents};

#[test]
fn index_keeps_the_contract() {
    Contract {
        stage: "index",
        binary: Path::new(INDEX),
        settings: "",
        good: &[("a.warc.gz", &members(&assorted()))],
        bad: &[("a.warc.gz", b"this is no archive at all")],
    }
    .keep();
}

#[test]
fn the_lines_are_sorted_and_whole() {
    let (code, lines, said) = index_bytes("a.warc.gz", &members(&assorted()));
    assert_eq!((code, said.as_str()), (0, ""));
    assert_eq!(lines.len(), 9);
    assert!(lines.is_sorted());
    let line = lines.iter().find(|line| line.starts_with("example,c)"));
    assert_eq!(
        line.unwrap().split_once(", \"length\"").unwrap().0,
        "example,c)/%c3%a9?a=\"&z=1 20260102030405 {\"url\": \"https://c.example/%C3%A9?Z=1&a=%22\", \
         \"mime\": \"\", \"status\": \"404\", \"digest\": \"sha1:AAAA\""
    );
}

/// pywb 2.10 answers with the head of a revisit: a 304, and no body, where there is a capture with the same payload.
#[test]
fn nobody_is_led_to_a_304_instead_of_the_capture_it_refers_to() {
    let (_, lines, _) = index_bytes("a.warc.gz", &members(&assorted()));
    assert!(lines.iter().all(|line| !line.contains("\"304\"")));
    assert!(lines.iter().any(|line| line.contains("warc/revisit")));
}

#[test]
fn several_files_are_one_index() {
    let directory = tempfile::tempdir().unwrap();
    let [a, b] = ["a.warc.gz", "b.warc.gz"].map(|name| directory.path().join(name));
    std::fs::write(&a, members(&[response(2), response(1)])).unwrap();
    std::fs::write(&b, members(&[response(3), response(1)])).unwrap();
    let output = run(&[&b, &a]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4);
    assert!(lines.is_sorted());
    let reversed = run(&[&a, &b]);
    assert_eq!(text, String::from_utf8(reversed.stdout).unwrap());
}

#[test]
fn good_records_are_printed_and_damage_is_named() {
    let mut bytes = members(&[response(1), response(2), response(3)]);
    let second = gzip(&response(1)).len();
    bytes[second + 40] ^= 0x55;
    let (code, lines, said) = index_bytes("a.warc.gz", &bytes);
    assert_eq!(code, 65);
    assert_eq!(lines.len(), 2);
    assert!(
        said.contains(&format!("a.warc.gz: record 2 at offset {second}: ")),
        "{said}"
    );
}

#[test]
fn a_file_that_is_not_there_and_one_that_is_a_directory_are_named() {
    let directory = tempfile::tempdir().unwrap();
    for path in [directory.path().to_owned(), directory.path().join("none")] {
        let output = run(&[&path]);
        assert_eq!(output.status.code(), Some(65));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("cannot read"), "{said}");
    }
}

#[test]
fn a_name_that_leads_nowhere_costs_the_others_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let [a, none, bad, b] =
        ["a.warc.gz", "none", "bad.warc", "b.warc.gz"].map(|name| directory.path().join(name));
    std::fs::write(&a, members(&[response(1)])).unwrap();
    std::fs::write(&bad, b"\0\\").unwrap();
    std::fs::write(&b, members(&[response(2)])).unwrap();
    let output = run(&[&a, &none, &bad, &b]);
    assert_eq!(output.status.code(), Some(65));
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 2);
    let said = String::from_utf8(output.stderr).unwrap();
    let said: Vec<&str> = said.lines().collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].starts_with("cannot read ") && said[0].contains("none"));
    // What is quoted of a file is escaped once.
    assert!(said[1].ends_with(r#"first "\x00\\""#), "{said:?}");
}

#[test]
fn whoever_reads_along_may_stop() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.warc.gz");
    // More lines than a pipe and our own buffers hold.
    let records: Vec<Vec<u8>> = (0..8000).map(response).collect();
    std::fs::write(&path, members(&records)).unwrap();
    let mut child = Command::new(INDEX)
        .arg(&path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    reader.read_line(&mut line).unwrap();
    drop(reader);
    let output = child.wait_with_output().unwrap();
    assert!(line.starts_with("org,example)"), "{line}");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(output.stderr, b"");
}

#[test]
fn a_header_too_long_for_any_line_costs_its_capture_only() {
    // Each of these letters has six bytes in a line.
    let long = "\u{e9}".repeat((8 << 20) / 6 + 1);
    let block = format!("HTTP/1.1 200 OK\r\nContent-Type: {long}\r\n\r\nx");
    let hostile = record(
        "response",
        &[("WARC-Target-URI", "http://hostile.example/")],
        block.as_bytes(),
    );
    let bytes = members(&[response(1), hostile, response(2)]);
    let (code, lines, said) = index_bytes("a.warc.gz", &bytes);
    assert_eq!(code, 65);
    assert_eq!(lines.len(), 2);
    let offset = gzip(&response(1)).len();
    let named = format!("record 2 at offset {offset}: a line of ");
    assert!(said.contains(&named), "{said}");
}

#[test]
fn standard_input_is_a_file_without_a_name() {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let mut child = Command::new(INDEX)
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&members(&[response(1)])).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.ends_with("\"filename\": \"-\"}\n"), "{text}");
}

#[test]
fn what_is_piped_in_is_indexed_and_a_service_without_input_is_a_stage() {
    use std::fs::File;
    use std::process::{Command, Stdio};
    let root = Root::new();
    root.settings(&["index", "transfer"], "");
    let path = root.path().join("a.warc.gz");
    std::fs::write(&path, members(&[response(1)])).unwrap();
    let run = |arguments: &[&str], stdin: Stdio| {
        let mut command = Command::new(INDEX);
        ecluse_testkit::root::settle_environment(&mut command);
        command.args(arguments).current_dir(root.path());
        let output = command.stdin(stdin).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let file = || Stdio::from(File::open(&path).unwrap());
    let pipe = || {
        let mut cat = Command::new("cat");
        let child = cat.arg(&path).stdout(Stdio::piped()).spawn();
        Stdio::from(child.unwrap().stdout.unwrap())
    };
    let lines = run(&["-"], file());
    assert!(lines.ends_with("\"filename\": \"-\"}\n"), "{lines}");
    assert_eq!(run(&[], file()), lines);
    assert_eq!(run(&[], pipe()), lines);
    assert!(!root.path().join("work").exists());
    // As systemd and cron start it, it is a stage, and ends when it is told to.
    for arguments in [&["--once"][..], &["--once", "--root", "."]] {
        assert_eq!(run(arguments, pipe()), "");
    }
    assert!(root.path().join("work/index").is_dir());
    let null = File::open("/dev/null").unwrap();
    let mut command = Command::new(INDEX);
    ecluse_testkit::root::settle_environment(&mut command);
    command.current_dir(root.path()).stdin(null);
    let mut service = ecluse_testkit::root::Program::start(command);
    root.await_note("index", "idle");
    assert_eq!(service.stop(), 0, "{}", service.log());
}

#[test]
fn the_settings_choose_records_and_layout() {
    let root = Root::new();
    let path = root.path().join("a.warc.gz");
    std::fs::write(&path, members(&assorted())).unwrap();
    let count = |more: &str| {
        root.settings(&["index"], &format!("[stage.index]\n{more}\n"));
        let mut command = root.program(INDEX);
        let output = command.arg(&path).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for (more, lines) in [
        ("", 9),
        ("revisits = false", 8),
        ("revisits = false\nnot-modified = true", 8),
        ("not-modified = true", 10),
        ("dns = false", 8),
        ("metadata = false", 8),
        ("warc-fields = true", 10),
        ("sort-memory = \"1 B\"", 9),
    ] {
        assert_eq!(count(more).lines().count(), lines, "{more}");
    }
    assert_eq!(count("sort-memory = \"1 B\""), count(""));
    for (format, header, fields) in [
        ("cdx11", " CDX N b a m s k r M S V g", 11),
        ("cdx9", " CDX N b a m s k r V g", 9),
    ] {
        let text = count(&format!("format = \"{format}\""));
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some(header));
        for line in lines {
            assert_eq!(line.split(' ').count(), fields, "{line}");
        }
    }
}

/// Runs one parcel through the stage and returns its code and the root.
fn process(name: &str, bytes: &[u8], more: &str) -> (i32, Root) {
    let root = Root::new();
    root.settings(&["index", "sink"], &format!("[stage.index]\n{more}\n"));
    root.put_files("index", "parcel", &[(name, bytes)]);
    let (code, _) = root.run(INDEX, &["--once"]);
    (code, root)
}

fn output(root: &Root, name: &str) -> String {
    let path = root.part("sink", "ready/parcel~0").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn seen(root: &Root, name: &str) -> serde_json::Value {
    serde_json::from_str(&output(root, &format!("{name}.seen.json"))).unwrap()
}

#[test]
fn a_parcel_leaves_with_its_lines_and_what_was_seen() {
    let bytes = members(&assorted());
    let (code, root) = process("a.warc.gz", &bytes, "format = \"cdx11\"");
    assert_eq!(code, 0);
    let (_, lines, _) = index_bytes("a.warc.gz", &bytes);
    let text = output(&root, "a.warc.gz.cdxj");
    assert_eq!(text.lines().collect::<Vec<_>>(), lines);
    assert!(output(&root, "a.warc.gz.cdx").starts_with(" CDX N "));
    let seen = seen(&root, "a.warc.gz");
    assert_eq!(seen["bytes"], bytes.len());
    assert_eq!(seen["packing"], "gzip");
    assert_eq!(
        (&seen["records"], &seen["captures"]),
        (&14.into(), &9.into())
    );
    assert_eq!(seen["types"]["response"], 6);
    assert_eq!(seen["types"]["conversion"], 1);
    assert_eq!(seen["mime"]["text/html"], 2);
    assert_eq!(seen["status"]["200"], 3);
    assert_eq!(seen["first"], "20260102030405");
    assert_eq!(seen["damage"]["count"], 0);
    let facts = facts(&root);
    assert_eq!((&facts["lines"], &facts["damages"]), (&9.into(), &0.into()));
    // Many machines may index, and one host writes the manifest.
    assert!(!root.path().join("manifest.sqlite").exists());
}

/// What the receipt says.
fn facts(root: &Root) -> serde_json::Map<String, serde_json::Value> {
    let mut facts = Vec::new();
    root.tree()
        .each_receipt("index", &mut |filed| facts.push(filed.receipt.facts))
        .unwrap();
    facts.remove(0)
}

#[test]
fn what_it_writes_in_any_layout_is_known_to_stand_beside_the_file() {
    for format in ["cdxj", "cdx11", "cdx9"] {
        let bytes = members(&assorted());
        let (code, root) = process("a.warc.gz", &bytes, &format!("format = \"{format}\""));
        assert_eq!(code, 0, "{format}");
        let left = contents(&root.part("sink", "ready/parcel~0"));
        let mut manifest = ecluse_spool::ParcelManifest::new(
            ecluse_spool::ParcelId::new("parcel").unwrap(),
            "warc",
            String::new(),
        );
        let names = left.keys().map(|path| path.to_str().unwrap().to_owned());
        for name in names.filter(|name| name.starts_with("a.warc.gz")) {
            manifest.put(ecluse_spool::FileEntry {
                name,
                bytes: 0,
                sha256: String::new(),
            });
        }
        assert_eq!(manifest.files.len(), if format == "cdxj" { 4 } else { 5 });
        let archived = ecluse_holding::payload(&manifest).unwrap();
        assert_eq!(archived.name, "a.warc.gz", "{format}");
    }
}

#[test]
fn a_damaged_file_passes_and_says_so() {
    let mut bytes = members(&[response(1), response(2)]);
    bytes.truncate(bytes.len() - 20);
    let (code, root) = process("a.warc.gz", &bytes, "");
    assert_eq!(code, 0);
    let seen = seen(&root, "a.warc.gz");
    // What is left of the second one can be replayed, so it has a line.
    assert_eq!(seen["captures"], 2);
    assert_eq!(seen["damage"]["count"], 1);
    assert_eq!(seen["damage"]["list"][0]["record"], 2);
    let facts = IndexFacts::of(&facts(&root));
    assert_eq!((facts.lines, facts.damages), (2, 1));
    assert_eq!((facts.told.len(), facts.told[0].record), (1, 2));
}

#[test]
fn an_empty_file_passes_without_lines() {
    let (code, root) = process("a.warc.gz", b"", "");
    assert_eq!(code, 0);
    assert_eq!(output(&root, "a.warc.gz.cdxj"), "");
    assert_eq!(seen(&root, "a.warc.gz")["records"], 0);
    let facts = IndexFacts::of(&facts(&root));
    assert_eq!((facts.lines, facts.damages), (0, 1));
    assert_eq!(
        facts.told[0].to_string(),
        "record 1 at offset 0: the file is empty"
    );
    let (code, lines, said) = index_bytes("a.warc", b"");
    assert_eq!((code, lines.len(), said.as_str()), (0, 0, ""));
}

fn held(name: &str, bytes: &[u8]) -> String {
    let (code, root) = process(name, bytes, "");
    assert_eq!(code, 65, "{name}");
    root.why("index", "parcel")
}

#[test]
fn a_file_without_any_record_is_held_with_the_reason() {
    let nul = held("nul.warc.gz", &[0; 100_000]);
    assert!(
        nul.starts_with("no record in nul.warc.gz: record 1 at offset 0: 100000 bytes"),
        "{nul}"
    );
    // Three times what is held in memory.
    let bomb = held("bomb.warc.gz", &gzip(&vec![0; 24 << 20]));
    assert!(
        bomb.contains("bomb.warc.gz: record 1 at offset 0: "),
        "{bomb}"
    );
    let cut = held("cut.warc.gz", &gzip(&response(1))[..15]);
    assert!(cut.contains("cut.warc.gz: record 1 at offset 0: "), "{cut}");
}

#[test]
fn a_bomb_among_good_members_costs_only_itself() {
    let mut bomb = record(
        "response",
        &[("WARC-Target-URI", "http://bomb.example/")],
        b"",
    );
    bomb.truncate(bomb.len() - 4);
    let claims = String::from_utf8(bomb).unwrap();
    let claims = claims.replace("Content-Length: 0", "Content-Length: 9999999999999");
    let mut bomb = claims.into_bytes();
    bomb.extend(std::iter::repeat_n(b'A', 24 << 20));
    let bytes = [gzip(&response(1)), gzip(&bomb), gzip(&response(2))].concat();
    let (code, lines, said) = index_bytes("a.warc.gz", &bytes);
    assert_eq!(code, 65);
    assert!(said.contains("record 2 at offset "), "{said}");
    let good = lines.iter().filter(|line| line.starts_with("org,example"));
    assert_eq!(good.count(), 2);
}

#[test]
fn a_well_formed_bomb_is_held_with_its_place() {
    let large = |uri: &str, body: &[u8]| record("response", &[("WARC-Target-URI", uri)], body);
    let bomb = large("http://bomb.example/", &vec![0; 24 << 20]);
    // As large, and of the kind that does not deflate so well.
    let rows: Vec<u8> = (0..3_000_000_u32)
        .flat_map(|row| row.to_le_bytes())
        .collect();
    let good = large("http://rows.example/", &rows);
    let parts = [response(1), bomb, response(2), good].map(|part| gzip(&part));
    let (bytes, at) = (parts.concat(), parts[0].len());
    let (code, root) = process("a.warc.gz", &bytes, "bomb = \"10 MiB\"");
    assert_eq!(code, 65);
    let why = root.why("index", "parcel");
    let place = format!("a.warc.gz: record 2 at offset {at}: a bomb: ");
    assert!(why.starts_with(&place), "{why}");
    assert!(why.contains("stage.index.bomb"), "{why}");
    let (code, root) = process("a.warc.gz", &bytes, "");
    assert_eq!(code, 0);
    assert_eq!(output(&root, "a.warc.gz.cdxj").lines().count(), 4);
}

#[test]
fn the_filter_indexes_what_stands_beside_a_bomb() {
    let bomb = |name: &str| {
        let uri = format!("http://{name}.example/");
        let mut fields = vec![("WARC-Target-URI", uri.as_str())];
        // With its digest stated the block is passed over, not read.
        fields.push((
            "WARC-Payload-Digest",
            "sha1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        ));
        record("response", &fields, &vec![0; 24 << 20])
    };
    let bytes = members(&[response(1), bomb("b"), bomb("c"), response(2)]);
    let root = Root::new();
    root.settings(&["index", "sink"], "[stage.index]\nbomb = \"10 MiB\"\n");
    let path = root.path().join("a.warc.gz");
    std::fs::write(&path, bytes).unwrap();
    let output = std::process::Command::new(INDEX)
        .args([Path::new("--root"), root.path(), &path])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(65));
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 2);
    let said = String::from_utf8(output.stderr).unwrap();
    for record in ["record 2 at offset ", "record 3 at offset "] {
        assert!(said.contains(record), "{said}");
    }
}

#[test]
fn ten_thousand_header_lines_are_damage() {
    let fields = vec![("X-Deep", "y"); 10_000];
    let deep = record("response", &fields, b"x");
    let bytes = members(&[response(1), deep, response(2)]);
    let (code, lines, said) = index_bytes("a.warc.gz", &bytes);
    assert_eq!((code, lines.len()), (65, 2));
    assert!(said.contains("header of more than 1000 lines"), "{said}");
    // HTTP headers of that depth are read for what stands in them.
    let mut block = b"HTTP/1.1 200 OK\r\n".to_vec();
    block.extend(b"X: y\r\n".repeat(10_000));
    block.extend(b"Content-Type: text/x\r\n\r\nbody");
    let deep = record(
        "response",
        &[("WARC-Target-URI", "http://a.example/")],
        &block,
    );
    let (code, lines, _) = index_bytes("a.warc.gz", &members(&[deep]));
    assert_eq!((code, lines.len()), (0, 1));
    assert!(lines[0].contains("\"mime\": \"text/x\""), "{}", lines[0]);
}

#[test]
fn names_from_outside_do_not_reach_the_terminal_raw() {
    let mut bytes = members(&[response(1)]);
    bytes.extend_from_slice(b"\x1b[2Jgarbage");
    let (code, _, said) = index_bytes("a\x1b[31m\nb.warc.gz", &bytes);
    assert_eq!(code, 65);
    assert_eq!(said.lines().count(), 1, "{said:?}");
    assert!(!said.contains('\x1b'), "{said:?}");
}

#[test]
fn a_packing_list_is_read() {
    let list = "[ARCHIVEFILE] [Opened] [Closed] [Size]\n\
                17-4-20260102030405678-00000-c1.warc.gz 2026-01-02T03:04:05.678Z 2026-01-02T04:00:00.000Z 1234\n";
    let uri = "metadata://example.org/crawl/reports/archivefiles-report.txt?heritrixVersion=3.4&harvestid=4&jobid=17";
    let fields = [("WARC-Target-URI", uri), ("Content-Type", "text/plain")];
    let records = [record("resource", &fields, list.as_bytes())];
    let (code, root) = process("17-metadata-1.warc.gz", &members(&records), "");
    assert_eq!(code, 0);
    let seen = seen(&root, "17-metadata-1.warc.gz");
    let list = &seen["packing-list"];
    assert_eq!(
        (&list["job"], &list["harvest"]),
        (&"17".into(), &"4".into())
    );
    assert_eq!(list["count"], 1);
    assert_eq!(list["files"][0]["bytes"], 1234);
    assert_eq!(seen["captures"], 1);
}

/// A page of a host, in French, with links.
fn page(url: &str, links: &str, field: &str, pack: fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let body = format!(
        "<html><body><p>Les écluses permettent aux bateaux de franchir les dénivellations des canaux et des rivières; \
         l'éclusier ouvre les portes quand le niveau est le même.</p>{links}</body></html>"
    );
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n{field}\r\n");
    let block = [head.into_bytes(), pack(body.as_bytes())].concat();
    let fields = [
        ("WARC-Target-URI", url),
        ("WARC-Payload-Digest", "sha1:AAAA"),
        ("Content-Type", "application/http; msgtype=response"),
    ];
    record("response", &fields, &block)
}

/// What index sent back about a file with a few pages.
fn evidence_of(more: &str) -> Vec<String> {
    let root = Root::new();
    root.settings(
        &["index", "sink", "plan"],
        &format!("[stage.index]\nnext = ['sink']\n{more}"),
    );
    let plain: fn(&[u8]) -> Vec<u8> = <[u8]>::to_vec;
    let chunked = |body: &[u8]| {
        let (one, other) = body.split_at(40);
        let lengths = (
            format!("{:x}\r\n", one.len()),
            format!("\r\n{:x}\r\n", other.len()),
        );
        [
            lengths.0.as_bytes(),
            one,
            lengths.1.as_bytes(),
            other,
            b"\r\n0\r\n\r\n",
        ]
        .concat()
    };
    let file = members(&[
        page(
            "http://www.exemple.fr/",
            "<a href=http://blog.voisin.fr/a>v</a><a href=/b>b</a><img src=http://image.fr/i><a href=http://127.0.0.1/>n</a>",
            "",
            plain,
        ),
        page(
            "http://exemple.fr:8080/b",
            "<a href='https://autre.co.uk/'>a</a>",
            "Content-Encoding: gzip\r\n",
            gzip,
        ),
        page(
            "http://c.fr/",
            "<a href=http://exemple.fr/>e</a>",
            "Transfer-Encoding: chunked\r\n",
            chunked,
        ),
        page("http://127.0.0.1/", "", "", plain),
    ]);
    root.put_files(
        "index",
        "p",
        &[("1-2-20261117010203000-00000-h.warc.gz", &file)],
    );
    let (code, said) = root.run(INDEX, &["--once"]);
    assert_eq!(code, 0, "{said}");
    let sent = contents(&root.part("plan", "ready"));
    let told = sent.iter().find(|(path, _)| path.ends_with("evidence.tsv"));
    let told = told.map_or(String::new(), |(_, bytes)| {
        String::from_utf8(bytes.clone()).unwrap()
    });
    told.lines().map(|line| line.replace('\t', " ")).collect()
}

#[test]
fn what_pages_tell_of_their_sites_goes_back() {
    assert_eq!(
        evidence_of("back = ['plan']"),
        [
            "autre.co.uk linked exemple.fr 20260102",
            "c.fr language fr 20260102",
            "c.fr media text/html 20260102",
            "exemple.fr language fr 20260102",
            "exemple.fr linked c.fr 20260102",
            "exemple.fr media text/html 20260102",
            "voisin.fr linked exemple.fr 20260102",
        ]
    );
    // One page of each site: the link on the second is not seen.
    let fewer = evidence_of("back = ['plan']\nevidence-pages = 1");
    assert!(
        !fewer.iter().any(|line| line.starts_with("autre.co.uk")),
        "{fewer:?}"
    );
    assert_eq!(fewer.len(), 6);
    assert_eq!(evidence_of("back = ['plan']\nevidence-pages = 0"), [""; 0]);
    assert_eq!(evidence_of("back = []"), [""; 0]);
}

/// What is written of the links of a file.
fn links_of(file: &[u8], more: &str) -> Option<Vec<String>> {
    let (code, root) = process("a.warc.gz", file, more);
    assert_eq!(code, 0);
    let path = root
        .part("sink", "ready/parcel~0")
        .join("a.warc.gz.links.zst");
    let packed = std::fs::File::open(path).ok()?;
    let text = zstd::decode_all(packed).unwrap();
    let text = String::from_utf8(text).unwrap();
    Some(text.lines().map(|line| line.replace('\t', " | ")).collect())
}

#[test]
fn what_captures_link_to_is_written_beside_their_lines() {
    let plain: fn(&[u8]) -> Vec<u8> = <[u8]>::to_vec;
    let answer = |url: &str, status: &str, field: &str| {
        let block = format!("HTTP/1.1 {status}\r\n{field}\r\n");
        let fields = [
            ("WARC-Target-URI", url),
            ("WARC-Payload-Digest", "sha1:BBBB"),
            ("Content-Type", "application/http; msgtype=response"),
        ];
        record("response", &fields, block.as_bytes())
    };
    let revisit = record(
        "revisit",
        &[
            ("WARC-Target-URI", "http://c.fr/"),
            ("WARC-Payload-Digest", "sha1:AAAA"),
            (
                "WARC-Profile",
                "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest",
            ),
            ("Content-Type", "application/http; msgtype=response"),
        ],
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n",
    );
    let links = "<a href=/b>b</a><a href=/b#x>b</a><a href='http://www.exemple.fr/'>self</a><img src=i.png>\
                 <link rel=canonical href='https://exemple.fr/'><a href='mailto:x@exemple.fr'>m</a>\
                 <script>'<a href=/no>'</script>";
    let file = members(&[
        page("http://www.exemple.fr/", links, "", plain),
        page(
            "http://exemple.fr/z",
            "<a href='https://autre.co.uk/?a&amp;b'>a</a>",
            "Content-Encoding: gzip\r\nLink: </l>; rel=canonical\r\n",
            gzip,
        ),
        answer("http://b.fr/", "301 Moved", "Location: /there#x\r\n"),
        answer(
            "http://b.fr/gone",
            "404 Not Found",
            "Content-Type: text/html\r\n",
        ),
        answer("http://b.fr/i.png", "200 OK", "Content-Type: image/png\r\n"),
        // As its URL has the host, its links would have another one.
        page(
            "http://A.fr:80/",
            "<a href=/q><a href=http://c.fr/>",
            "",
            plain,
        ),
        revisit,
        answer("urn:x", "200 OK", "Content-Type: text/html\r\n"),
    ]);
    let expected = [
        "# ecluse links 1",
        "fr,a)/ | 20260102030405 | sha1:AAAA | http://A.fr:80/ | a http://a.fr/q | a http://c.fr/",
        "fr,b)/ | 20260102030405 | sha1:BBBB | http://b.fr/ | r /there",
        "fr,b)/gone | 20260102030405 | sha1:BBBB | http://b.fr/gone",
        "fr,b)/i.png | 20260102030405 | sha1:BBBB | http://b.fr/i.png",
        "fr,c)/ | 20260102030405 | sha1:AAAA | http://c.fr/ | =",
        "fr,exemple)/ | 20260102030405 | sha1:AAAA | http://www.exemple.fr/ | a /b | e /i.png | c https://exemple.fr/",
        "fr,exemple)/z | 20260102030405 | sha1:AAAA | http://exemple.fr/z | c /l | a https://autre.co.uk/?a&b",
    ];
    assert_eq!(links_of(&file, "").unwrap(), expected);
    // With next to no memory the same lines come from the disk.
    assert_eq!(links_of(&file, "sort-memory = \"0 B\"").unwrap(), expected);
    assert_eq!(links_of(&file, "links = false"), None);
    assert_eq!(links_of(b"", "").unwrap(), ["# ecluse links 1"]);
}
