//! What is served: an index that looks like one of a national archive, and the pages of Rust's documentation.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use ecluse_cdx::{LineSource, zipnum};
use flate2::Compression;
use flate2::write::GzEncoder;

/// When each page was captured.
pub(crate) const TIMES: [&str; 3] = ["20240101000000", "20250101000000", "20260101000000"];
/// Pages that are taken of the documentation.
const PAGES: usize = 3_000;
/// Every so manieth URL was captured very often.
const OFTEN: u64 = 20_000;
/// URLs that are asked for.
const ASKED: usize = 2_000;

/// The data on disk, and what can be asked of it.
pub(crate) struct Data {
    pub(crate) root: PathBuf,
    pub(crate) lines: u64,
    /// URLs with a few captures each.
    pub(crate) few: Vec<String>,
    /// URLs with 200 captures and more.
    pub(crate) many: Vec<String>,
    /// The URLs of the real pages.
    pub(crate) pages: Vec<String>,
    page_bytes: u64,
}

impl Data {
    /// Finds the data of an earlier run, or makes it.
    pub(crate) fn make(lines: u64) -> Self {
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
            || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"),
            PathBuf::from,
        );
        fs::create_dir_all(&target).unwrap();
        let root = target.canonicalize().unwrap().join("bench-access");
        let mark = root.join("lines.txt");
        let urls = urls(lines);
        if !fs::read_to_string(&mark).is_ok_and(|made| made == lines.to_string()) {
            let _ = fs::remove_dir_all(&root);
            let [flat, zipped, pages] = ["", "zipped", "pages"].map(|name| generation(&root, name));
            eprintln!("making an index of {lines} lines in {}", root.display());
            write_index(&flat, &urls);
            let source = LineSource::open(&flat.join("index.cdxj")).unwrap();
            zipnum::write(source, &zipped, "index", &zipnum::ZipNumOptions::default()).unwrap();
            write_pages(&root, &pages);
            fs::write(&mark, lines.to_string()).unwrap();
        }
        let pages = fs::read_to_string(root.join("pages.txt")).unwrap();
        let (page_bytes, pages) = pages.split_once('\n').unwrap();
        let asked = |is_often: bool| {
            let of_kind = urls.iter().filter(|url| (url.captures >= 200) == is_often);
            let all: Vec<&Url> = of_kind.collect();
            let step = (all.len() / ASKED).max(1);
            // Not in the order of the index: neighbours would find each other's pages warm.
            let mut chosen: Vec<&&Url> = all.iter().step_by(step).collect();
            chosen.sort_by_key(|url| url.number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            chosen.into_iter().map(|url| url.url()).collect()
        };
        Self {
            few: asked(false),
            many: asked(true),
            pages: pages.lines().map(str::to_owned).collect(),
            page_bytes: page_bytes.parse().unwrap(),
            root,
            lines,
        }
    }

    /// Says what it is.
    pub(crate) fn told(&self) -> String {
        let index = fs::metadata(self.root.join("index/current/index.cdxj")).unwrap();
        let pages = self.pages.len();
        format!(
            "{} lines, {:.2} GB flat; ZipNum with 3,000 lines a block; {pages} HTML pages of Rust's documentation, {:.0} kB in the mean, three captures of each",
            self.lines,
            index.len() as f64 / 1e9,
            self.page_bytes as f64 / pages as f64 / 1e3
        )
    }
}

/// One URL of the index.
struct Url {
    number: u64,
    captures: u64,
}

impl Url {
    fn path(&self) -> String {
        format!(
            "articles/{:05}/page-{:07}.html",
            self.number % 977,
            self.number
        )
    }

    fn host(&self) -> String {
        format!("site{:05}", self.number / 37)
    }

    fn url(&self) -> String {
        format!("http://www.{}.example/{}", self.host(), self.path())
    }
}

/// Returns the URLs whose captures make so many lines: 1.7 each on average, as national archives have, and some with hundreds.
fn urls(lines: u64) -> Vec<Url> {
    let (mut urls, mut left, mut number) = (Vec::new(), lines, 0);
    while left > 0 {
        let captures = match number % OFTEN {
            0 => 200 + number / OFTEN % 250,
            _ => 1 + u64::from(number % 3 != 0) + u64::from(number % 29 == 0),
        };
        let captures = captures.min(left);
        urls.push(Url { number, captures });
        (left, number) = (left - captures, number + 1);
    }
    urls
}

fn generation(root: &Path, collection: &str) -> PathBuf {
    let index = root.join("index").join(collection);
    let generation = index.join("generations/1");
    fs::create_dir_all(&generation).unwrap();
    symlink("generations/1", index.join("current")).unwrap();
    generation
}

fn write_index(generation: &Path, urls: &[Url]) {
    let mut keyed: Vec<(String, &Url)> = urls
        .iter()
        .map(|url| (format!("example,{})/{}", url.host(), url.path()), url))
        .collect();
    keyed.sort_by(|one, other| one.0.cmp(&other.0));
    let mut out = BufWriter::new(File::create(generation.join("index.cdxj")).unwrap());
    let mut line = String::new();
    for (key, url) in keyed {
        let place = url.number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for capture in 0..url.captures {
            line.clear();
            let (year, rest) = (2005 + capture / 24 % 20, capture % 24);
            let digest = place.rotate_left(capture as u32 % 64);
            writeln!(
                line,
                "{key} {year}{:02}{:02}{:02}{:02}{:02} {{\"url\": \"{}\", \"mime\": \"text/html\", \"status\": \"200\", \"digest\": \"sha1:{digest:016X}{place:016X}\", \"length\": \"{}\", \"offset\": \"{}\", \"filename\": \"BnF-145-412-{year}0101000000000-{:05}-host.example.org.warc.gz\"}}",
                1 + rest / 2,
                1 + rest % 2 * 14,
                url.number % 24,
                capture / 480 % 60,
                url.number % 60,
                url.url(),
                1_000 + place % 40_000,
                place % 1_000_000_000,
                place % 99_999,
            )
            .unwrap();
            out.write_all(line.as_bytes()).unwrap();
        }
    }
    out.flush().unwrap();
    fs::write(generation.join("path-index.txt"), "").unwrap();
}

/// Packs real pages into WARC files, one for each time.
fn write_pages(root: &Path, generation: &Path) {
    let files = documentation();
    let repository = root.join("repository");
    fs::create_dir_all(&repository).unwrap();
    let (mut lines, mut paths) = (Vec::new(), String::new());
    let (mut urls, mut bytes) = (String::new(), 0);
    for time in TIMES {
        let name = format!("145-412-{time}000-00000-host.warc.gz");
        let path = repository.join(&name);
        writeln!(paths, "{name}\t{}", path.display()).unwrap();
        let mut out = BufWriter::new(File::create(&path).unwrap());
        let mut offset = 0;
        for (number, file) in files.iter().enumerate() {
            let mut body = Vec::new();
            File::open(file).unwrap().read_to_end(&mut body).unwrap();
            let url = format!("http://docs.example/p{number:04}/index.html");
            if time == TIMES[0] {
                writeln!(urls, "{url}").unwrap();
                bytes += body.len();
            }
            let member = record(&url, time, &body);
            lines.push(format!(
                "example,docs)/p{number:04}/index.html {time} {{\"url\": \"{url}\", \"mime\": \"text/html\", \"status\": \"200\", \"digest\": \"sha1:{number}{time}\", \"length\": \"{}\", \"offset\": \"{offset}\", \"filename\": \"{name}\"}}\n",
                member.len()
            ));
            out.write_all(&member).unwrap();
            offset += member.len();
        }
        out.flush().unwrap();
    }
    lines.sort();
    fs::write(generation.join("index.cdxj"), lines.concat()).unwrap();
    fs::write(generation.join("path-index.txt"), paths).unwrap();
    fs::write(root.join("pages.txt"), format!("{bytes}\n{urls}")).unwrap();
}

fn record(url: &str, time: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\nServer: nginx\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nETag: \"1\"\r\nSet-Cookie: a=b\r\n\r\n",
        body.len()
    );
    let text = format!(
        "WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:00000000-0000-0000-0000-000000000000>\r\nWARC-Target-URI: {url}\r\nWARC-Date: {}-01-01T00:00:00Z\r\nContent-Type: application/http; msgtype=response\r\nContent-Length: {}\r\n\r\n{head}",
        &time[..4],
        head.len() + body.len()
    );
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    packer.write_all(text.as_bytes()).unwrap();
    packer.write_all(body).unwrap();
    packer.write_all(b"\r\n\r\n").unwrap();
    packer.finish().unwrap()
}

/// Returns pages from all over the documentation that comes with the compiler.
fn documentation() -> Vec<PathBuf> {
    let printed = Command::new("rustc").args(["--print", "sysroot"]).output();
    let sysroot = String::from_utf8(printed.unwrap().stdout).unwrap();
    let root = Path::new(sysroot.trim()).join("share/doc/rust/html");
    let mut found = Vec::new();
    let mut directories = vec![root.clone()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                directories.push(path);
            } else if path
                .extension()
                .is_some_and(|extension| extension == "html")
            {
                // Redirects of a line, and tables of a megabyte, are no pages.
                let bytes = entry.metadata().unwrap().len();
                found.extend((4 << 10..512 << 10).contains(&bytes).then_some(path));
            }
        }
    }
    found.sort();
    let step = (found.len() / PAGES).max(1);
    let pages: Vec<PathBuf> = found.into_iter().step_by(step).take(PAGES).collect();
    assert!(
        pages.len() > 500,
        "{} has no documentation: rustup component add rust-docs",
        root.display()
    );
    pages
}
