//! Captures for others: what is written is what py-wacz, warcio and any reader of XML expect, and holds what was meant.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and makes its own mess"
)]

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output};

use ecluse_testkit::root::settle_environment;
use serde_json::Value;

const ECLUSE: &str = env!("CARGO_BIN_EXE_ecluse");

const SETTINGS: &str = r#"
[defaults]
settle = "100ms"
min-free = "0 B"
[stage.bigmerge]
spare = "0 B"
[stage.transfer]
leave-free = "0 B"
[stage.backup]
targets = [{ name = "backup", kind = "directory", path = "backup", leave-free = "0 B" }]
[stage.ingest]
collections = [{ name = "elections", harvests = "5" }]
[stage.index]
dns = false
"#;

struct Archive {
    dir: tempfile::TempDir,
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut compressor = libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
    let mut packed = vec![0; compressor.gzip_compress_bound(bytes.len())];
    let length = compressor.gzip_compress(bytes, &mut packed).unwrap();
    packed.truncate(length);
    packed
}

fn record(kind: &str, uri: &str, content_type: &str, block: &[u8]) -> Vec<u8> {
    let mut record = format!(
        "WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {uri}\r\nWARC-Date: 2026-01-02T03:04:05Z\r\n\
         WARC-Record-ID: <urn:uuid:{:032x}>\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n",
        uri.len(),
        block.len()
    )
    .into_bytes();
    record.extend_from_slice(block);
    record.extend_from_slice(b"\r\n\r\n");
    record
}

fn page(uri: &str, head: &str, body: &[u8]) -> Vec<u8> {
    let block = [b"HTTP/1.1 200 OK\r\n", head.as_bytes(), b"\r\n", body].concat();
    record(
        "response",
        uri,
        "application/http; msgtype=response",
        &block,
    )
}

impl Archive {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("pipeline.toml"), SETTINGS).unwrap();
        fs::create_dir(dir.path().join("harvested")).unwrap();
        let harvested = |name: &str, bytes: &[u8]| {
            fs::write(dir.path().join("harvested").join(name), bytes).unwrap();
        };
        let html = "Content-Type: text/html; charset=iso-8859-1\r\n";
        let first = [
            gzip(&record(
                "warcinfo",
                "x:",
                "application/warc-fields",
                b"software: other\r\n",
            )),
            gzip(&page(
                "http://a.example/",
                html,
                b"<title>D\xe9j\xe0 &lt;vu&gt;</title><p>One <b>&amp;</b> two",
            )),
            gzip(&page(
                "http://b.example/x.gif",
                "Content-Type: image/gif\r\n",
                b"GIF89a....",
            )),
            gzip(&record(
                "request",
                "http://a.example/",
                "application/http; msgtype=request",
                b"GET / HTTP/1.1\r\n\r\n",
            )),
        ];
        harvested("17-4-20260102030405000-00000-h.warc.gz", &first.concat());
        let packed = gzip(b"<p>packed");
        let head = format!("{html}Content-Encoding: gzip\r\n");
        // No member of their own: these are written anew.
        let both = [
            page("http://a.example/packed", &head, &packed),
            page("http://c.example/", html, b"<p>elsewhere"),
        ];
        harvested("17-4-20260102030405000-00001-h.warc", &both.concat());
        let list = "[ARCHIVEFILE] [Opened] [Closed]\n";
        let uri = "metadata://a/crawl/reports/archivefiles-report.txt?jobid=17";
        let metadata = record("resource", uri, "text/plain", list.as_bytes());
        harvested("17-4-metadata-1.warc.gz", &gzip(&metadata));
        let block = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nan arc";
        let arc = format!(
            "filedesc://1.arc 0.0.0.0 20260102030405 text/plain 73\n1 0 InternetArchive\n\
             URL IP-address Archive-date Content-type Archive-length\n\n\
             http://arc.example/ 1.2.3.4 20260102030405 text/plain {}\n{block}\n",
            block.len()
        );
        harvested("18-5-20260102030405000-00000-h.arc", arc.as_bytes());
        let archive = Self { dir };
        // The list does not name what came: nobody packs this job, and anybody exports it.
        let code = archive.ecluse(&["run", "--once"]).status.code();
        assert!([Some(0), Some(65)].contains(&code), "{code:?}");
        archive
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn ecluse(&self, words: &[&str]) -> Output {
        let mut command = Command::new(ECLUSE);
        settle_environment(&mut command);
        command.current_dir(self.dir.path()).args(words);
        command.output().unwrap()
    }

    #[track_caller]
    fn run(&self, words: &[&str]) -> String {
        let output = self.ecluse(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }
}

fn python(script: &str, path: &std::path::Path) -> String {
    let output = Command::new(ecluse_peers::python())
        .args(["-c", script])
        .arg(path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    String::from_utf8(output.stdout).unwrap()
}

/// The types and URLs of the records, as warcio reads them, with its check of their digests.
const RECORDS: &str = "import sys\nfrom warcio.archiveiterator import ArchiveIterator\n\
with open(sys.argv[1], 'rb') as stream:\n  for r in ArchiveIterator(stream, check_digests='raise'):\n    \
r.content_stream().read(); print(r.rec_type, r.rec_headers.get_header('WARC-Target-URI') or '-')";

#[test]
fn a_job_is_one_warc_of_whatever_its_files_are() {
    let archive = Archive::new();
    archive.run(&["export", "17", "--as", "warc"]);
    let records = python(RECORDS, &archive.path("17.warc.gz"));
    let expected = [
        "warcinfo -",
        "warcinfo x:",
        "response http://a.example/",
        "response http://b.example/x.gif",
        "request http://a.example/",
        "response http://a.example/packed",
        "response http://c.example/",
    ];
    assert_eq!(records.lines().collect::<Vec<_>>(), expected);

    // Some URLs only; the same once more gives the same bytes; nothing is written over.
    let some = [
        "export",
        "17-4",
        "--as",
        "warc",
        "--url",
        "a.example",
        "--match",
        "host",
        "-o",
    ];
    archive.run(&[&some[..], &["a.warc.gz"]].concat());
    archive.run(&[&some[..], &["b.warc.gz"]].concat());
    let records = python(RECORDS, &archive.path("a.warc.gz"));
    assert_eq!(records.lines().count(), 5, "{records}");
    assert!(
        !records.contains("b.example") && !records.contains("c.example"),
        "{records}"
    );
    let bytes = |name: &str| fs::read(archive.path(name)).unwrap();
    assert!(bytes("a.warc.gz") == bytes("b.warc.gz"));
    let again = archive.ecluse(&[&some[..], &["a.warc.gz"]].concat());
    assert_eq!(again.status.code(), Some(64));

    // An ARC file becomes a WARC file; a collection is meant by its name.
    archive.run(&["export", "elections", "--as", "warc"]);
    let records = python(RECORDS, &archive.path("elections.warc.gz"));
    assert_eq!(records, "warcinfo -\nresponse http://arc.example/\n");
    assert_eq!(
        archive
            .ecluse(&["export", "99", "--as", "cdxj"])
            .status
            .code(),
        Some(64)
    );
    let left = fs::read_dir(archive.dir.path()).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert!(
        !left
            .iter()
            .any(|name| name.to_string_lossy().ends_with(".part")),
        "{left:?}"
    );
}

#[test]
fn lines_texts_and_xml_tell_the_same_captures() {
    let archive = Archive::new();
    let lines = archive.run(&["export", "17", "--as", "cdxj"]);
    let index = fs::read_to_string(archive.path("index/current/index.cdxj")).unwrap();
    let of_web: Vec<&str> = index
        .lines()
        .filter(|line| line.contains("\"http://"))
        .collect();
    assert_eq!(lines.lines().collect::<Vec<_>>(), of_web);

    let text = archive.run(&["export", "17", "--as", "text"]);
    let first = "URL: http://a.example/\nDate: 2026-01-02T03:04:05Z\nType: text/html; charset=iso-8859-1\n\
                 Charset: windows-1252\nTitle: Déjà <vu>\nLines: 1\n\nOne & two\n\n";
    assert!(text.starts_with(first), "{text}");
    assert!(
        text.contains("\npacked\n") && !text.contains("x.gif"),
        "{text}"
    );

    archive.run(&["export", "17", "--as", "xml", "-o", "17.xml"]);
    let script = "import sys\nfrom lxml import etree\nns = '{urn:ecluse:captures:1}'\n\
                  for c in etree.parse(sys.argv[1]).getroot():\n  print(c.get('url'), c.findtext(ns + 'title'), (c.findtext(ns + 'text') or '-').strip())";
    let told = python(script, &archive.path("17.xml"));
    let expected = [
        "http://a.example/ Déjà <vu> One & two",
        "http://b.example/x.gif None -",
        "http://a.example/packed  packed",
        "http://c.example/  elsewhere",
    ];
    assert_eq!(told.lines().collect::<Vec<_>>(), expected);
}

/// Whatever became of a stored copy, no form takes it for the file that was ingested: another copy is read, or nothing written.
#[test]
fn a_damaged_copy_is_never_exported() {
    let archive = Archive::new();
    let name = "17-4-20260102030405000-00000-h.warc.gz";
    let (stored, backup) = (
        archive.path("repository").join(name),
        archive.path("backup").join(name),
    );
    let good = fs::read(&stored).unwrap();
    assert!(fs::read(&backup).unwrap() == good);
    // Where it was harvested there may be one more.
    let _ = fs::remove_file(archive.path("harvested").join(name));
    let put = |path: &PathBuf, bytes: &[u8]| {
        let _ = fs::remove_file(path);
        fs::write(path, bytes).unwrap();
    };
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 1;
    let other = gzip(&page("http://other.example/", "", b"another"));
    let forms = ["warc", "text", "xml", "cdxj", "wacz"];
    let whole = forms.map(|form| {
        archive.run(&["export", "17", "--as", form, "-o", form]);
        fs::read(archive.path(form)).unwrap()
    });
    for bad in [&good[..good.len() / 2], &flipped, &other] {
        put(&stored, bad);
        put(&backup, &good);
        for (form, whole) in forms.iter().zip(&whole) {
            fs::remove_file(archive.path(form)).unwrap();
            let output = archive.ecluse(&["export", "17", "--as", form, "-o", form]);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{form}: {said}");
            assert!(said.contains(stored.to_str().unwrap()), "{said}");
            assert!(fs::read(archive.path(form)).unwrap() == *whole, "{form}");
        }
        put(&backup, bad);
        for form in forms {
            let output = archive.ecluse(&["export", "17", "--as", form, "-o", "bad"]);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(65), "{form}: {said}");
            assert!(said.contains(stored.to_str().unwrap()), "{said}");
            assert!(!archive.path("bad").exists() && !archive.path("bad.part").exists());
        }
        let output = archive.ecluse(&["export", "17", "--as", "text"]);
        assert_eq!(output.status.code(), Some(65));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_job_of_several_harvests_is_all_of_them() {
    let archive = Archive::new();
    let uris = ["http://again.example/6", "http://again.example/7"];
    for (harvest, uri) in ["6", "7"].iter().zip(uris) {
        let name = format!("19-{harvest}-20260102030405000-00000-h.warc.gz");
        let bytes = gzip(&page(uri, "Content-Type: text/plain\r\n", b"again"));
        fs::write(archive.path("harvested").join(name), bytes).unwrap();
    }
    let code = archive.ecluse(&["run", "--once"]).status.code();
    assert!([Some(0), Some(65)].contains(&code), "{code:?}");
    let text = archive.run(&["export", "19", "--as", "text"]);
    assert!(uris.iter().all(|uri| text.contains(uri)), "{text}");
    let text = archive.run(&["export", "19-7", "--as", "text"]);
    assert!(!text.contains(uris[0]) && text.contains(uris[1]), "{text}");
}

/// As py-wacz judges; its exit code says nothing.
const WACZ: &str = "import sys, contextlib\nfrom wacz.main import main\n\
with contextlib.redirect_stdout(sys.stderr):\n  code = main(['validate', '-f', sys.argv[1]])\nprint(code)";

#[test]
fn a_wacz_file_is_valid_to_py_wacz_and_leads_to_its_records() {
    let archive = Archive::new();
    for (words, name) in [
        (vec!["export", "17", "--as", "wacz"], "17.wacz"),
        (
            vec![
                "export",
                "17",
                "--as",
                "wacz",
                "--url",
                "a.example",
                "-o",
                "a.wacz",
            ],
            "a.wacz",
        ),
        (
            vec!["export", "elections", "--as", "wacz"],
            "elections.wacz",
        ),
    ] {
        archive.run(&words);
        let path = archive.path(name);
        assert_eq!(python(WACZ, &path).trim(), "0", "{name}");
        let said = archive.run(&["validate", name]);
        assert!(
            said.contains("valid, ") && said.contains("a WACZ file of version 1.1.1"),
            "{said}"
        );
    }
    let script = "import sys, json, gzip, zipfile, io\nfrom warcio.archiveiterator import ArchiveIterator\n\
                  z = zipfile.ZipFile(sys.argv[1])\nfor line in z.read('indexes/index.idx').decode().splitlines()[1:]:\n  \
                  at = json.loads(line.split(' ', 2)[2])\n  raw = z.read('indexes/index.cdx.gz')[at['offset']:at['offset'] + at['length']]\n  \
                  for cdx in gzip.decompress(raw).decode().splitlines():\n    c = json.loads(cdx.split(' ', 2)[2])\n    \
                  data = z.read('archive/' + c['filename'])[int(c['offset']):]\n    \
                  r = next(ArchiveIterator(io.BytesIO(data)))\n    \
                  assert r.rec_headers.get_header('WARC-Target-URI') == c['url']\n    print('line', c['url'])\n\
                  for page in z.read('pages/pages.jsonl').decode().splitlines()[1:]:\n  p = json.loads(page)\n  print('page', p['url'], p['title'], p['ts'])";
    let told = python(script, &archive.path("17.wacz"));
    assert_eq!(
        told.lines()
            .filter(|line| line.starts_with("line "))
            .count(),
        4,
        "{told}"
    );
    assert!(
        told.contains("page http://a.example/ Déjà <vu> 2026-01-02T03:04:05Z"),
        "{told}"
    );
    assert_eq!(
        told.lines()
            .filter(|line| line.starts_with("page "))
            .count(),
        3,
        "{told}"
    );
    let told = python(script, &archive.path("a.wacz"));
    assert_eq!(
        told.lines()
            .filter(|line| line.starts_with("line "))
            .count(),
        2,
        "{told}"
    );
}

/// Every part of a WACZ file that is changed, left out or added is found.
#[test]
fn a_changed_wacz_file_is_not_valid() {
    let archive = Archive::new();
    archive.run(&["export", "17", "--as", "wacz"]);
    let script = r#"
import json, sys, zipfile
source = zipfile.ZipFile(sys.argv[1])
names = source.namelist()
def write(number, change):
    with zipfile.ZipFile(f"{sys.argv[1]}.{number}", "w") as target:
        for name in names:
            data = change(name, source.read(name))
            if data is not None:
                target.writestr(name, data)
        extra = change(None, None)
        if extra:
            target.writestr(*extra)
number = 0
for victim in names:
    data = source.read(victim)
    for change in (
        lambda name, data: (None if name == victim else data) if name else None,
        lambda name, data: (bytes([data[0] ^ 1]) + data[1:] if name == victim else data) if name else None,
        lambda name, data: (data + b"\n" if name == victim else data) if name else None,
    ):
        write(number, change)
        print(number, victim)
        number += 1
write(number, lambda name, data: data if name else ("archive/more.warc.gz", b""))
print(number, "an extra file")
"#;
    let cases = python(script, &archive.path("17.wacz"));
    assert!(cases.lines().count() > 20, "{cases}");
    for case in cases.lines() {
        let (number, victim) = case.split_once(' ').unwrap();
        let output = archive.ecluse(&["validate", &format!("17.wacz.{number}")]);
        let said = String::from_utf8_lossy(&output.stdout);
        // Without its digest, a description is whole.
        let may_lack = victim == "datapackage-digest.json";
        let code = output.status.code();
        assert!(
            code == Some(65) || (may_lack && code == Some(0)),
            "{case}: {said}"
        );
        if code == Some(65) {
            assert!(
                said.lines().next().unwrap().contains(": not valid: "),
                "{said}"
            );
        }
    }
    let mut file = fs::File::create(archive.path("no.wacz")).unwrap();
    file.write_all(b"no zip").unwrap();
    let output = archive.ecluse(&["validate", "no.wacz", "--json"]);
    assert_eq!(output.status.code(), Some(65));
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["packages"][0]["kind"], "wacz");
}

#[test]
fn an_export_that_cannot_be_written_says_where() {
    let archive = Archive::new();
    let mut number = 1_u64;
    let mut word = || {
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        format!("{number:016x} ")
    };
    let text: String = (0..30_000).map(|_| word()).collect();
    let head = "Content-Type: text/html\r\n";
    let large = gzip(&page("http://large.example/", head, text.as_bytes()));
    let name = "17-4-20260102030405000-00009-h.warc.gz";
    fs::write(archive.dir.path().join("harvested").join(name), large).unwrap();
    archive.run(&["run", "--once"]);
    let into = tempfile::tempdir().unwrap();
    for (format, name) in [
        ("warc", "17.warc.gz"),
        ("wacz", "17.wacz"),
        ("text", "17.txt"),
    ] {
        let path = into.path().join(name);
        // As on a disk that is full after so many blocks, which the manifest's shared memory needs.
        let script = "trap '' XFSZ; ulimit -f 128; exec \"$0\" \"$@\"";
        let mut command = Command::new("sh");
        settle_environment(&mut command);
        command
            .args(["-c", script, ECLUSE, "--root"])
            .arg(archive.dir.path());
        command
            .args(["export", "17", "--as", format, "--output"])
            .arg(&path);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(74), "{said}");
        let wanted = format!("cannot export to {}: ", path.display());
        assert!(said.contains(&wanted), "{said}");
        let left = fs::read_dir(into.path()).unwrap().count();
        assert_eq!(left, 0, "half a file was left");
    }
}

/// Who may read the archive may export from it and see what was handed over, though he may write nothing there.
#[test]
fn whoever_may_only_read_can_export() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;

    let archive = Archive::new();
    archive.run(&["run", "--once"]);
    let lines = archive.run(&["export", "17", "--as", "cdxj"]);
    assert!(lines.contains("a.example"), "{lines}");
    // Where others may look for it too.
    let program = archive.dir.path().join("ecluse");
    fs::copy(ECLUSE, &program).unwrap();
    let all: Vec<_> = walkdir::WalkDir::new(archive.dir.path())
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let allow = |entry: &walkdir::DirEntry, mode| {
        fs::set_permissions(entry.path(), fs::Permissions::from_mode(mode)).unwrap();
    };
    all.iter().for_each(|entry| allow(entry, 0o555));
    let is_root = rustix::process::geteuid().is_root();
    for words in [
        &["export", "17", "--as", "cdxj"][..],
        &["deposits", "--format", "csv"],
    ] {
        let mut command = Command::new(&program);
        settle_environment(&mut command);
        command.arg("--root").arg(archive.dir.path()).args(words);
        command.current_dir(archive.dir.path());
        if is_root {
            command.uid(65534).gid(65534);
        }
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {said}");
        if words[0] == "export" {
            assert_eq!(String::from_utf8_lossy(&output.stdout), lines);
        }
    }
    all.iter().for_each(|entry| allow(entry, 0o755));
}

/// A record whose date is none is no capture, and costs no neighbour its place: first in a file, and alone in its member or not.
#[test]
fn what_has_no_date_is_left_out_and_told() {
    let archive = Archive::new();
    let html = "Content-Type: text/html\r\n";
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let undated = text(page("http://undated.example/", html, b"<p>never"))
        .replace("2026-01-02T03:04:05Z", "2008-10-294T05:21:46-0700");
    let odd = text(page("http://odd.example/", html, b"<p>odd"))
        .replace("2026-01-02T03:04:05Z", "2026-01-02T03:04:05+0000");
    let good = text(page("http://good.example/", html, b"<p>good"));
    let plain = format!("{undated}{odd}{good}");
    let packed = [&undated, &good].map(|record| gzip(record.as_bytes()));
    let harvested = archive.path("harvested");
    fs::write(harvested.join("19-6-20260102030405000-00000-h.warc"), plain).unwrap();
    fs::write(
        harvested.join("20-7-20260102030405000-00000-h.warc.gz"),
        packed.concat(),
    )
    .unwrap();
    archive.ecluse(&["run", "--once"]);
    for job in ["19", "20"] {
        let output = archive.ecluse(&["export", job, "--as", "warc"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(
            said.contains("left out 1 record without a date that can be read"),
            "{said}"
        );
        let records = python(RECORDS, &archive.path(&format!("{job}.warc.gz")));
        assert!(
            records.contains("response http://good.example/"),
            "{records}"
        );
        assert!(!records.contains("undated"), "{records}");
    }
}
