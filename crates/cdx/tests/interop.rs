//! Other programs read what we write, and we write what they write.
//!
//! The peers are Python packages, `cdxj-indexer` and `pywb`, which are installed when they are not there.

#![allow(clippy::unwrap_used, reason = "a test that cannot unwrap has failed")]

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ecluse_cdx::{
    Capture, CaptureTime, Duplicates, Extra, KeyRange, LineSource, Lookup, SortOptions, Sorter,
    cdx, cdxj, zipnum,
};

/// Runs a script beside the peers, and returns what it printed.
fn python(script: &str, arguments: &[&Path], input: &[u8]) -> String {
    let mut child = Command::new(ecluse_peers::python())
        .args(["-c", script])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("an interpreter that imports can run");
    let mut stdin = child.stdin.take().expect("it is piped");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().expect("the script ends");
    let sent = writer.join().expect("the writer does not panic");
    sent.expect("the script reads all of its input");
    assert!(
        output.status.success(),
        "the script failed: {}",
        output.status
    );
    String::from_utf8(output.stdout).expect("the script prints UTF-8")
}

/// Real files beside the workspace, which are not part of it; where they are missing, what is made here must do.
fn corpus() -> Option<PathBuf> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus");
    corpus.is_dir().then_some(corpus)
}

/// Writes a WARC and an ARC file with what makes index lines differ: schemes, ports, queries, letters, types, statuses,
/// revisits, redirects.
fn write_archives(directory: &Path) {
    let places = [
        "http://example.com/",
        "https://www.example.com:8443/a/b?c=d&A=B",
        "http://example.com/%E2%82%AC?q=%C3%A9",
        "http://xn--bcher-kva.example/ok",
        "http://192.0.2.7:8080/path;v=1",
        "https://example.org/a%20b/c+d",
        "http://user@example.net/~x",
    ];
    let types = [
        "text/html; charset=utf-8",
        "image/png",
        "application/json",
        "text/x-odd type",
        "",
    ];
    let (mut warc, mut arc) = (Vec::new(), Vec::new());
    let head = "1 0 InternetArchive\nURL IP-address Archive-date Content-type Archive-length\n";
    write!(
        arc,
        "filedesc://own.arc 0.0.0.0 20010203040506 text/plain {}\n{head}\n",
        head.len()
    )
    .unwrap();
    for number in 0..140_usize {
        let place = places[number % places.len()];
        let url = if number < 70 {
            place.to_owned()
        } else {
            format!("{place}x{number}")
        };
        let mime = types[number % types.len()];
        let status = ["200 OK", "404 Not Found", "301 Moved Permanently"][number % 3];
        let block = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {mime}\r\nLocation: /elsewhere/{number}\r\n\r\nbody of {number}\n"
        );
        let kind = if number % 11 == 10 {
            "revisit"
        } else {
            "response"
        };
        write!(
            warc,
            "WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Record-ID: <urn:uuid:00000000-0000-0000-0000-{number:012}>\r\n\
             WARC-Target-URI: {url}\r\nWARC-Date: 2026-01-02T03:{:02}:{:02}Z\r\nContent-Type: application/http; msgtype=response\r\n\
             WARC-Payload-Digest: sha1:{:A>32}\r\nContent-Length: {}\r\n\r\n{block}\r\n\r\n",
            number / 60,
            number % 60,
            number % 8,
            block.len()
        )
        .unwrap();
        let word = mime
            .split([';', ' '])
            .next()
            .filter(|word| !word.is_empty());
        write!(
            arc,
            "{url} 192.0.2.1 200102030405{:02} {} {}\n{block}\n",
            number % 60,
            word.unwrap_or("no-type"),
            block.len()
        )
        .unwrap();
    }
    fs::write(directory.join("own.warc"), warc).unwrap();
    fs::write(directory.join("own.arc"), arc).unwrap();
}

#[test]
fn strings_are_escaped_as_python_escapes_them() {
    let mut texts: Vec<String> = (0..0x250)
        .chain(0x2020..0x2040)
        .filter_map(char::from_u32)
        .map(String::from)
        .collect();
    texts.extend(
        [
            "",
            "\u{10000}\u{10ffff}",
            "\u{fffd}é\"\\/\u{7f}",
            "a\u{2028}b",
        ]
        .map(String::from),
    );
    let time = CaptureTime::from_digits(b"20200101000000").unwrap();
    let mut ours = Vec::new();
    let mut input = Vec::new();
    for text in &texts {
        let mut capture = Capture::new("k", time);
        capture.url = Some(text.as_str().into());
        capture
            .extras
            .push((text.as_str().into(), Extra::Text(text.as_str().into())));
        cdxj::write(&capture, &mut ours).unwrap();
        let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
        writeln!(input, "{hex}").unwrap();
    }
    let script = "import json, sys\n\
                  for line in sys.stdin:\n\
                  \x20   text = bytes.fromhex(line.strip()).decode()\n\
                  \x20   print('k 20200101000000 ' + json.dumps(dict([('url', text), (text, text)])))\n";
    let theirs = python(script, &[], &input);
    assert_eq!(String::from_utf8(ours).unwrap(), theirs);
}

/// Every line cdxj-indexer makes of whole files is read and written again without a difference, in all three layouts.
#[test]
fn lines_of_cdxj_indexer_are_written_again_byte_for_byte() {
    let directory = tempfile::tempdir().unwrap();
    write_archives(directory.path());
    assert!(lines_written_again(directory.path()) > 200);
    if let Some(corpus) = corpus() {
        assert!(lines_written_again(&corpus) > 100);
    }
}

/// Compares all lines of the archives below a directory; returns how many.
fn lines_written_again(archives: &Path) -> usize {
    let script = "import io, os, sys, tempfile\n\
                  from cdxj_indexer.main import CDXJIndexer, CDX11Indexer, CDX09Indexer\n\
                  for root, _, names in sorted(os.walk(sys.argv[1])):\n\
                  \x20   for name in sorted(names):\n\
                  \x20       if not name.endswith(('.warc', '.warc.gz', '.arc', '.arc.gz')): continue\n\
                  \x20       texts = []\n\
                  \x20       for indexer in (CDXJIndexer, CDX11Indexer, CDX09Indexer):\n\
                  \x20           with tempfile.NamedTemporaryFile('r', encoding='utf-8', newline='\\n') as out:\n\
                  \x20               try: indexer(out.name, [os.path.join(root, name)]).process_all()\n\
                  \x20               except Exception: break\n\
                  \x20               texts.append([l for l in out.read().split('\\n') if l and not l.startswith(' CDX ')])\n\
                  \x20       if len(texts) == 3 and len(set(map(len, texts))) == 1:\n\
                  \x20           for triple in zip(*texts): print('\\n'.join(triple))\n";
    let theirs = python(script, &[archives], b"");
    let lines: Vec<&str> = theirs.lines().collect();
    let mut compared = 0;
    for triple in lines.chunks_exact(3) {
        let capture = cdxj::parse(triple[0].as_bytes())
            .unwrap_or_else(|fault| panic!("{fault}: {}", triple[0]));
        let mut ours = Vec::new();
        cdxj::write(&capture, &mut ours).unwrap();
        assert_eq!(
            str::from_utf8(&ours).unwrap().trim_end_matches('\n'),
            triple[0]
        );
        for (layout, line) in [
            (cdx::Layout::Eleven, triple[1]),
            (cdx::Layout::Nine, triple[2]),
        ] {
            // An empty value or a space inside one shifts the peer's fields: no reader could make sense of them.
            if line.split(' ').count() != layout.field_count() || line.contains("  ") {
                continue;
            }
            let mut ours = Vec::new();
            cdx::write(layout, &capture, &mut ours).unwrap();
            let ours = String::from_utf8(ours).unwrap();
            if line.bytes().all(|byte| byte >= b' ' && byte != 0x7f) {
                assert_eq!(ours.trim_end_matches('\n'), line);
            }
        }
        compared += 1;
    }
    println!("{compared} lines compared");
    compared
}

/// An index with many hosts, captures and paths.
fn index_lines() -> Vec<String> {
    let hosts = [
        "com,example",
        "com,example,www",
        "com,example-shop",
        "fr,gouv,culture",
        "fr,gouv",
        "org,iana",
    ];
    let mut lines = BTreeSet::new();
    for (number, host) in hosts.iter().enumerate() {
        for page in 0..400 {
            for capture in 0..=(page % 3) {
                let name = host.split(',').rev().collect::<Vec<_>>().join(".");
                lines.insert(format!(
                    "{host})/{page:03}/x 202{number}010100000{capture} {{\"url\": \"http://{name}/{page:03}/x\", \
                     \"mime\": \"text/html\", \"status\": \"200\", \"digest\": \"sha1:AAAA\", \"length\": \"{page}\", \
                     \"offset\": \"{capture}\", \"filename\": \"{number}.warc.gz\"}}"
                ));
            }
        }
    }
    lines.into_iter().collect()
}

/// pywb finds in our flat and ZipNum files what our own lookup finds there.
#[test]
fn pywb_serves_what_we_write() {
    let directory = tempfile::tempdir().unwrap();
    let text: String = index_lines()
        .iter()
        .map(|line| format!("{line}\n"))
        .collect();
    let flat = directory.path().join("index.cdxj");
    fs::write(&flat, &text).unwrap();
    let options = zipnum::ZipNumOptions {
        lines_per_member: 70,
        level: 6,
        shards: zipnum::Shards::Bytes(4_000),
    };
    let source = LineSource::new("index.cdxj", io::Cursor::new(text.clone().into_bytes()));
    let written = zipnum::write(source, directory.path(), "cdx", &options).unwrap();
    assert!(written.shards.len() > 2);
    let questions = [
        ("exact", "http://example.com/000/x", "com,example)/000/x"),
        ("exact", "http://www.iana.org/none", "org,iana)/none"),
        ("exact", "http://iana.org/399/x", "org,iana)/399/x"),
        (
            "exact",
            "http://culture.gouv.fr/101/x",
            "fr,gouv,culture)/101/x",
        ),
        ("prefix", "http://example.com/1", "com,example)/1"),
        ("host", "http://example.com/", "com,example)/"),
        ("host", "http://gouv.fr/", "fr,gouv)/"),
        ("domain", "http://example.com/", "com,example)/"),
        ("domain", "http://gouv.fr/", "fr,gouv)/"),
    ];
    let script = "import sys\n\
                  from pywb.warcserver.index.indexsource import FileIndexSource\n\
                  from pywb.warcserver.index.zipnum import ZipNumIndexSource\n\
                  from pywb.warcserver.index.query import CDXQuery\n\
                  sources = [FileIndexSource(sys.argv[1]), ZipNumIndexSource(sys.argv[2], {'max_blocks': 1000})]\n\
                  for line in sys.stdin:\n\
                  \x20   kind, url = line.split()\n\
                  \x20   for source in sources:\n\
                  \x20       params = {'url': url, 'matchType': kind}\n\
                  \x20       CDXQuery(params)\n\
                  \x20       print('?')\n\
                  \x20       for cdx in source.load_index(params): print(str(cdx).rstrip())\n";
    let input: String = questions
        .iter()
        .map(|(kind, url, _)| format!("{kind} {url}\n"))
        .collect();
    let mut ours = String::new();
    let mut total = 0;
    for (kind, _, key) in questions {
        let range = match kind {
            "exact" => KeyRange::exact(key.as_bytes()),
            "prefix" => KeyRange::prefix(key.as_bytes()),
            "host" => KeyRange::host(key.as_bytes()),
            _ => KeyRange::domain(key.as_bytes()),
        };
        for path in [&flat, &written.summary] {
            ours.push_str("?\n");
            for line in Lookup::open(path).unwrap().range(range.clone()).unwrap() {
                ours.push_str(str::from_utf8(&line.unwrap()).unwrap());
                ours.push('\n');
                total += 1;
            }
        }
    }
    assert!(total > 1_000, "the questions find {total} lines");
    let theirs = python(script, &[&flat, &written.summary], input.as_bytes());
    assert!(theirs == ours, "pywb finds other lines");
}

/// A whole index of cdxj-indexer is read, in its order; so are the indexes of the corpus.
#[test]
fn the_indexes_of_others_are_read() {
    let directory = tempfile::tempdir().unwrap();
    write_archives(directory.path());
    let flat = directory.path().join("flat.cdxj");
    let script = "import sys\n\
                  from cdxj_indexer.main import CDXJIndexer\n\
                  CDXJIndexer(sys.argv[1], [sys.argv[2]], sort=True).process_all()\n";
    python(script, &[&flat, &directory.path().join("own.warc")], b"");
    let lookup = Lookup::open(&flat).unwrap();
    let lines = lookup.range(KeyRange::all()).unwrap();
    let lines: Vec<String> = lines
        .map(|line| String::from_utf8(line.unwrap()).unwrap())
        .collect();
    assert!(lines.is_sorted() && lines.len() > 100, "{}", lines.len());
    let theirs = fs::read_to_string(&flat).unwrap();
    assert_eq!(lines, theirs.lines().collect::<Vec<_>>());
    if let Some(corpus) = corpus() {
        read_indexes_of_the_corpus(&corpus);
    }
}

fn read_indexes_of_the_corpus(corpus: &Path) {
    let mut read = 0;
    for name in [
        "dupes",
        "example",
        "example2",
        "example-no-digest",
        "iana",
        "url-agnost-example",
        "post-test",
    ] {
        let text =
            fs::read_to_string(corpus.join(format!("webrecorder+pywb/cdxj/{name}.cdxj"))).unwrap();
        for line in text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'))
        {
            let mut ours = Vec::new();
            cdxj::write(&cdxj::parse(line.as_bytes()).unwrap(), &mut ours).unwrap();
            assert_eq!(str::from_utf8(&ours).unwrap(), line);
            read += 1;
        }
    }
    for name in [
        "dupes",
        "example",
        "example-extra",
        "example-arc-test",
        "iana",
        "url-agnost-example",
        "post-test",
    ] {
        let text =
            fs::read_to_string(corpus.join(format!("webrecorder+pywb/cdx/{name}.cdx"))).unwrap();
        let mut lines = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        let layout = cdx::Layout::from_header(lines.next().unwrap().as_bytes()).unwrap();
        for line in lines {
            let (found, capture) = cdx::parse(line.as_bytes()).unwrap();
            assert_eq!(found, layout);
            let mut ours = Vec::new();
            cdx::write(layout, &capture, &mut ours).unwrap();
            assert_eq!(str::from_utf8(&ours).unwrap(), line);
            read += 1;
        }
    }
    println!("{read} lines read");
    assert!(read > 100);
    let lookup = Lookup::open(&corpus.join("webrecorder+pywb/zipcdx/zipnum-sample.idx")).unwrap();
    let sample: Vec<Vec<u8>> = lookup
        .range(KeyRange::all())
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert!(
        sample.is_sorted() && sample.len() > 100,
        "{} lines",
        sample.len()
    );
    let iana: Vec<Vec<u8>> = lookup
        .range(KeyRange::exact(b"org,iana)/"))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert!(!iana.is_empty());
}

/// `LC_ALL=C sort` and ours agree on real bytes.
#[test]
fn the_order_is_that_of_sort() {
    let mut lines = index_lines();
    lines.extend(["a\tb", "a", "a b", "é)/ 2", "Z)/", "~", "\u{1}"].map(String::from));
    lines.reverse();
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let temporary = env::temp_dir();
    let mut sorter = Sorter::new(SortOptions {
        duplicates: Duplicates::Keep,
        memory_bytes: 100_000,
        temporary,
    });
    for line in &lines {
        sorter.push(line.as_bytes()).unwrap();
    }
    let mut ours = Vec::new();
    sorter.finish(&mut ours).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("unsorted");
    fs::write(&path, text).unwrap();
    let mut sort = Command::new("sort");
    let theirs = sort.arg(&path).env("LC_ALL", "C").output();
    let theirs = theirs.expect("coreutils are installed");
    assert!(ours == theirs.stdout, "sort has another order");
    let mut expected = lines;
    expected.sort();
    let expected: String = expected.iter().map(|line| format!("{line}\n")).collect();
    assert!(ours == expected.into_bytes());
}
