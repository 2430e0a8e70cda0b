//! The same captures as pywb finds: its own code is asked beside ours, on the same index, flat and as ZipNum.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use ecluse_cdx::{LineSource, zipnum};

use crate::made::{Served, serve};

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len() as u64) as usize]
    }
}

const HOSTS: [&str; 9] = [
    "example.org",
    "www.example.org",
    "shop.example.org",
    "example-x.org",
    "exampl.org",
    "a.example.fr",
    "example.fr",
    "deep.under.example.fr",
    "xn--caf-dma.example",
];
const PATHS: [&str; 10] = [
    "/",
    "/a",
    "/a/",
    "/a/b",
    "/ab",
    "/a?x=1",
    "/a?x=1&y=2",
    "/A/B.html",
    "/a%20b",
    "/z/",
];

/// URLs, and the lines of an index of them.
fn index() -> (Vec<String>, String) {
    let mut dice = Dice(7);
    let mut urls = Vec::new();
    let mut lines = Vec::new();
    for host in HOSTS {
        for path in PATHS {
            let url = format!("{}://{host}{path}", dice.of(&["http", "https"]));
            let key = ecluse_surt::Surt::of(url.as_bytes()).unwrap().into_bytes();
            let key = String::from_utf8(key).unwrap();
            for _ in 0..1 + dice.below(40) {
                let time = format!(
                    "{}{:02}{:02}{:02}0000",
                    1998 + dice.below(28),
                    1 + dice.below(12),
                    1 + dice.below(28),
                    dice.below(24)
                );
                let mime = dice.of(&["text/html", "image/png", "warc/revisit"]);
                let status = dice.of(&["200", "301", "404"]);
                lines.push(format!(
                    "{key} {time} {{\"url\": \"{url}\", \"mime\": \"{mime}\", \"status\": \"{status}\", \"digest\": \"sha1:{}\", \"length\": \"9\", \"offset\": \"{}\", \"filename\": \"a.warc.gz\"}}\n",
                    dice.below(9),
                    lines.len()
                ));
            }
            urls.push(url);
        }
    }
    lines.sort();
    (urls, lines.concat())
}

/// Questions of every kind about every URL.
fn questions(urls: &[String]) -> Vec<String> {
    let mut dice = Dice(3);
    let mut questions = Vec::new();
    for url in urls {
        let encoded = url
            .replace('%', "%25")
            .replace('&', "%26")
            .replace('=', "%3D")
            .replace('?', "%3F");
        let ask = |more: &str| format!("url={encoded}{more}");
        for kind in ["exact", "prefix", "host", "domain"] {
            questions.push(ask(&format!("&matchType={kind}")));
            let year = 1998 + dice.below(28);
            questions.push(ask(&format!(
                "&matchType={kind}&from={year}&to={}",
                year + dice.below(9)
            )));
            let filter = dice.of(&[
                "status:200",
                "!status:200",
                "=mime:text/html",
                "~status:[23]",
                "!~mime:image",
                "mime:html",
            ]);
            questions.push(ask(&format!(
                "&matchType={kind}&filter={filter}&limit={}",
                1 + dice.below(20)
            )));
        }
        questions.push(ask(&format!("&sort=reverse&limit={}", 1 + dice.below(9))));
        questions.push(ask(&format!(
            "&closest={}0615120000&limit={}",
            1998 + dice.below(28),
            1 + dice.below(9)
        )));
        questions.push(ask(&format!("&collapseTime={}", 4 + dice.below(8))));
    }
    questions
}

/// Asks pywb: for each question key, time and offset of each line.
fn pywb(index: &Path, questions: &[String]) -> Vec<Vec<String>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/serve/ask_pywb.py");
    let mut command = Command::new(ecluse_peers::python());
    command
        .arg(script)
        .arg(index)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut asked = command.spawn().unwrap();
    let mut input = asked.stdin.take().unwrap();
    let text = questions.join("\n") + "\n";
    let writing = std::thread::spawn(move || input.write_all(text.as_bytes()).unwrap());
    let output = asked.wait_with_output().unwrap();
    writing.join().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let mut answers = vec![Vec::new()];
    for line in text.lines() {
        match line {
            "" => answers.push(Vec::new()),
            line => answers.last_mut().unwrap().push(line.to_owned()),
        }
    }
    answers.pop();
    answers
}

fn ours(served: &Served, question: &str) -> Vec<String> {
    let answer = served.get(&format!(
        "/web/cdx?{question}&output=text&fl=urlkey,timestamp,offset"
    ));
    assert_eq!(answer.status, 200, "{question}");
    answer.text().lines().map(str::to_owned).collect()
}

#[test]
fn captures_are_those_that_pywb_finds() {
    let root = tempfile::tempdir().unwrap();
    let (urls, lines) = index();
    let [flat, zipped] =
        ["1", "2"].map(|number| root.path().join("index/generations").join(number));
    for generation in [&flat, &zipped] {
        fs::create_dir_all(generation).unwrap();
    }
    fs::write(flat.join("index.cdxj"), &lines).unwrap();
    let source = LineSource::new("lines", std::io::Cursor::new(lines.clone().into_bytes()));
    let options = zipnum::ZipNumOptions {
        lines_per_member: 50,
        ..zipnum::ZipNumOptions::default()
    };
    zipnum::write(source, &zipped, "index", &options).unwrap();
    let questions = questions(&urls);
    assert!(questions.len() >= 1_000);
    let expected = pywb(&flat.join("index.cdxj"), &questions);
    assert_eq!(expected.len(), questions.len());
    assert!(expected.iter().filter(|answer| !answer.is_empty()).count() > 900);
    for number in ["1", "2"] {
        let link = root.path().join("index/new");
        symlink(format!("generations/{number}"), &link).unwrap();
        fs::rename(&link, root.path().join("index/current")).unwrap();
        let served = serve(root.path(), |_| {});
        for (question, expected) in questions.iter().zip(&expected) {
            assert_eq!(
                ours(&served, question),
                *expected,
                "generation {number}: {question}"
            );
        }
    }
}
