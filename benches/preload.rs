//! How fast do many lists become one list of names, and which way of sorting is the best for it?
//!
//! In CPU-seconds, user and system together, on five generated sources (45 % of the lines unique, 10 % in dirty forms):
//!
//! * `ecluse-preload` as a filter and as a stage, with IDNA, Public Suffix List and origins, against `LC_ALL=C sort -u`, which does
//!   none of that: worrying below twice as fast, above 30 CPU-seconds for 50 M lines, or above 2 GiB;
//! * three ways to bring keys and their sources together: partitions by hash with a table each and then ranges of keys, as preload does it,
//!   `crates/cdx`'s sorter, and `extsort`. Worrying when another than the one that is used is the best.
//!
//! `cargo build --release -p ecluse-preload`, then
//! `cargo bench -p ecluse-names --bench preload -- [--dir DIR] [--lines N] [--keys N] [--memory MIB]`. Each way runs in a process of its own.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a bench may die, and makes and removes its own files"
)]

#[allow(dead_code, unused_imports, reason = "their tests run elsewhere")]
#[path = "../stages/preload/src/gather.rs"]
mod gather;
#[allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "its tests run elsewhere, and others use it"
)]
#[path = "../crates/testkit/src/lists.rs"]
mod lists;
#[path = "page.rs"]
mod page;

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ecluse_cdx::{Duplicates, SortOptions, Sorter};
use ecluse_names::{NameFlags, Normaliser, write_key};
use extsort::{ExternalSorter, Sortable};
use gather::Gatherer;
use lists::{SOURCES, write_list};
use page::Page;

const WAYS: [(&str, &str); 3] = [
    (
        "partitions",
        "partitions by hash, a table each, then ranges of keys",
    ),
    ("cdx", "`crates/cdx`'s sorter"),
    ("extsort", "`extsort` 0.5"),
];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let number = |name, default: u64| option(name).map_or(default, |text| text.parse().unwrap());
    let directory =
        option("--dir").map_or_else(|| std::env::temp_dir().join("ecluse-bench"), PathBuf::from);
    fs::create_dir_all(&directory).unwrap();
    let bench = Bench {
        lines: number("--lines", 50_000_000),
        keys: number("--keys", 10_000_000),
        memory: number("--memory", 256),
        directory,
    };
    if let Some(way) = option("--way") {
        return bench.way(&way);
    }
    let mut page = Page::begin("preload");
    bench.whole(&mut page);
    bench.ways(&mut page);
    page.end(true);
}

/// The program, which was built before.
fn program() -> String {
    let itself = std::env::current_exe().unwrap();
    let program = itself.ancestors().nth(2).unwrap().join("ecluse-preload");
    assert!(program.exists(), "cargo build --release -p ecluse-preload");
    program.display().to_string()
}

struct Bench {
    directory: PathBuf,
    lines: u64,
    keys: u64,
    /// Mebibytes that a way of sorting may take.
    memory: u64,
}

impl Bench {
    fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    /// The program beside `sort -u`.
    fn whole(&self, page: &mut Page) {
        let sources = self.directory.join(format!("sources-{}", self.lines));
        let mut files = Vec::new();
        for (place, (name, kind, _)) in SOURCES.into_iter().enumerate() {
            let path = sources.join(kind).join(format!("{name}.txt"));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            if !path.exists() {
                let draft = sources.join(format!("{name}.draft"));
                write_list(place, self.lines, &mut File::create(&draft).unwrap()).unwrap();
                fs::rename(&draft, &path).unwrap();
            }
            files.push(path.display().to_string());
        }
        let program = program();
        let (ours, peer) = (self.path("ours.tsv"), self.path("peer.txt"));
        let words = |words: &[&str]| -> Vec<String> {
            words.iter().map(|word| (*word).to_owned()).collect()
        };
        let sort = [
            words(&[
                "sort",
                "-u",
                "-S1G",
                "--parallel=1",
                "-T",
                &self.path("."),
                "-o",
                &peer,
            ]),
            files.clone(),
        ]
        .concat();
        let filter = [
            words(&[
                "sh",
                "-c",
                &format!("\"$0\" \"$@\" > '{ours}'"),
                &program,
                "--root",
                &self.path("none"),
            ]),
            files,
        ]
        .concat();
        let root = self.directory.join("preload-root");
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).unwrap();
        let settings = format!(
            "[chain]\nstages = [\"preload\", \"sink\"]\n[defaults]\nsettle = \"0s\"\n[stage.preload]\nnext = [\"sink\"]\nsources = {sources:?}\n"
        );
        fs::write(root.join("pipeline.toml"), settings).unwrap();
        let stage = words(&[
            &program,
            "--root",
            &root.display().to_string(),
            "--once",
            "--log",
            "error",
        ]);
        page.say(format!(
            "| {} lines | CPU s | peak MiB | ratio |\n|---|--:|--:|--:|",
            self.lines
        ));
        let reference = measured(&sort);
        row(page, "`LC_ALL=C sort -u -S1G`", reference, reference);
        row(
            page,
            "`ecluse-preload` as a filter",
            measured(&filter),
            reference,
        );
        row(
            page,
            "`ecluse-preload --once`: parcels, SHA-256, reports",
            measured(&stage),
            reference,
        );
        let names = BufReader::new(File::open(&ours).unwrap()).lines().count();
        page.say(format!("\n{names} names."));
        fs::remove_dir_all(&root).unwrap();
        for file in [&ours, &peer] {
            fs::remove_file(file).unwrap();
        }
    }

    /// The ways of sorting beside each other, on keys that are normalised already.
    fn ways(&self, page: &mut Page) {
        self.write_keys();
        page.say(format!("\n| {} keys with their sources, {} MiB | CPU s | peak MiB | ratio |\n|---|--:|--:|--:|", self.keys, self.memory));
        let itself = std::env::current_exe().unwrap().display().to_string();
        let mut reference = None;
        for (way, shown) in WAYS {
            let command: Vec<String> = [
                &itself,
                "--way",
                way,
                "--dir",
                &self.path("."),
                "--keys",
                &self.keys.to_string(),
                "--memory",
                &self.memory.to_string(),
            ]
            .map(str::to_owned)
            .into();
            let found = measured(&command);
            row(page, shown, found, *reference.get_or_insert(found));
            let (first, this) = (
                self.path("partitions.out"),
                self.path(&format!("{way}.out")),
            );
            let compared = Command::new("cmp").args([&first, &this]).status().unwrap();
            assert!(compared.success(), "{way} gives something else");
        }
        for (way, _) in WAYS {
            fs::remove_file(self.path(&format!("{way}.out"))).unwrap();
        }
    }

    /// Writes `source key` for every line of the mix that names something.
    fn write_keys(&self) {
        let path = self.path(&format!("keys-{}", self.keys));
        if Path::new(&path).exists() {
            return;
        }
        let draft = self.path("keys.draft");
        let mut out = BufWriter::with_capacity(1 << 20, File::create(&draft).unwrap());
        let (mut normaliser, mut key) = (Normaliser::new(), Vec::new());
        for place in 0..SOURCES.len() {
            let mut text = Vec::new();
            write_list(place, self.keys, &mut text).unwrap();
            for line in text.split(|byte| *byte == b'\n') {
                if let Ok(found) = normaliser.read(line) {
                    key.clear();
                    write_key(found.name.as_bytes(), &mut key);
                    out.write_all(&[b'0' + place as u8, b' ']).unwrap();
                    out.write_all(&key).unwrap();
                    out.write_all(b"\n").unwrap();
                }
            }
        }
        out.flush().unwrap();
        fs::rename(draft, path).unwrap();
    }

    fn way(&self, way: &str) {
        let memory = usize::try_from(self.memory << 20).unwrap();
        let mut source = BufReader::with_capacity(
            1 << 20,
            File::open(self.path(&format!("keys-{}", self.keys))).unwrap(),
        );
        let mut out = BufWriter::with_capacity(
            1 << 20,
            File::create(self.path(&format!("{way}.out"))).unwrap(),
        );
        let mut line = Vec::new();
        let mut next = move || {
            line.clear();
            (source.read_until(b'\n', &mut line).unwrap() > 0).then(|| {
                line.pop();
                (line[0] - b'0', line[2..].to_vec())
            })
        };
        let keys = std::iter::from_fn(&mut next);
        match way {
            "partitions" => by_partitions(keys, memory, &self.directory, &mut out),
            "cdx" => by_cdx(keys, memory, &self.directory, &mut out),
            "extsort" => by_extsort(keys, memory, &self.directory, &mut out),
            other => panic!("no way {other}"),
        }
        out.flush().unwrap();
    }
}

fn write_name(out: &mut dyn Write, key: &[u8], origins: &[(u8, u32)]) -> io::Result<()> {
    out.write_all(key)?;
    for (source, count) in origins {
        write!(out, " {source}:{count}")?;
    }
    out.write_all(b"\n")
}

fn by_partitions(
    keys: impl Iterator<Item = (u8, Vec<u8>)>,
    memory: usize,
    temporary: &Path,
    out: &mut dyn Write,
) {
    let mut gatherer = Gatherer::new(memory, temporary);
    for (source, key) in keys {
        gatherer.add(&key, NameFlags::NONE, source).unwrap();
    }
    gatherer
        .finish(&mut |name| write_name(out, name.key, name.origins))
        .unwrap();
}

/// Brings sorted keys together.
struct Collapse<'a> {
    out: &'a mut dyn Write,
    key: Vec<u8>,
    origins: Vec<(u8, u32)>,
}

impl Collapse<'_> {
    fn see(&mut self, key: &[u8], source: u8) {
        if self.key != key {
            self.end();
            self.key = key.to_vec();
        }
        match self.origins.iter_mut().find(|origin| origin.0 == source) {
            Some(origin) => origin.1 += 1,
            None => self.origins.push((source, 1)),
        }
    }

    fn end(&mut self) {
        if !self.origins.is_empty() {
            self.origins.sort_unstable();
            write_name(self.out, &self.key, &self.origins).unwrap();
            self.origins.clear();
        }
    }
}

fn by_cdx(
    keys: impl Iterator<Item = (u8, Vec<u8>)>,
    memory: usize,
    temporary: &Path,
    out: &mut dyn Write,
) {
    let mut sorter = Sorter::new(SortOptions {
        duplicates: Duplicates::Keep,
        memory_bytes: memory,
        temporary: temporary.to_owned(),
    });
    for (source, mut key) in keys {
        key.extend_from_slice(&[b' ', b'0' + source]);
        sorter.push(&key).unwrap();
    }
    let mut sorted = tempfile::tempfile_in(temporary).unwrap();
    sorter.finish(&mut sorted).unwrap();
    sorted.rewind().unwrap();
    let mut collapse = Collapse {
        out,
        key: Vec::new(),
        origins: Vec::new(),
    };
    let mut reader = BufReader::with_capacity(1 << 20, sorted);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).unwrap() > 0 {
        let (key, source) = line.split_at(line.len() - 3);
        collapse.see(key, source[1] - b'0');
        line.clear();
    }
    collapse.end();
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct KeyOfSource(Vec<u8>, u8);

impl Sortable for KeyOfSource {
    fn encode<Out: Write>(&self, writer: &mut Out) -> io::Result<()> {
        writer.write_all(&[self.1, self.0.len() as u8])?;
        writer.write_all(&self.0)
    }

    fn decode<Source: Read>(reader: &mut Source) -> io::Result<Self> {
        let mut head = [0; 2];
        reader.read_exact(&mut head)?;
        let mut key = vec![0; usize::from(head[1])];
        reader.read_exact(&mut key)?;
        Ok(Self(key, head[0]))
    }
}

fn by_extsort(
    keys: impl Iterator<Item = (u8, Vec<u8>)>,
    memory: usize,
    temporary: &Path,
    out: &mut dyn Write,
) {
    // A key on the heap takes about 80 bytes.
    let sorter = ExternalSorter::new()
        .with_segment_size(memory / 80)
        .with_sort_dir(temporary.to_owned());
    let sorted = sorter
        .sort(keys.map(|(source, key)| KeyOfSource(key, source)))
        .unwrap();
    let mut collapse = Collapse {
        out,
        key: Vec::new(),
        origins: Vec::new(),
    };
    for item in sorted {
        let KeyOfSource(key, source) = item.unwrap();
        collapse.see(&key, source);
    }
    collapse.end();
}

fn row(page: &mut Page, name: &str, (seconds, mebibytes): (f64, u64), reference: (f64, u64)) {
    page.say(format!(
        "| {name} | {seconds:.2} | {mebibytes} | {:.2} × |",
        reference.0 / seconds
    ));
}

/// Runs a command; returns its CPU-seconds and the most memory it had, in MiB, as GNU time tells them.
fn measured(command: &[String]) -> (f64, u64) {
    assert!(Command::new("sync").status().unwrap().success());
    let output = Command::new("/usr/bin/time")
        .args(["-f", "%U %S %M"])
        .args(command)
        .env("LC_ALL", "C")
        .env_remove("ECLUSE_CONFIG")
        .stdout(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?} failed: {said}");
    let figures: Vec<f64> = said
        .lines()
        .last()
        .unwrap()
        .split(' ')
        .map(|word| word.parse().unwrap())
        .collect();
    (figures[0] + figures[1], figures[2] as u64 / 1024)
}
