//! How many questions does a core ask in a second, and does memory grow with the list?
//!
//! `ecluse-dns-filter` as a filter, with everything it does by default (both forms, both kinds of addresses, a second opinion for
//! whatever says no, wildcards), against two nsd on loopback; beside it `massdns`, which asks once for one kind and writes what it
//! hears. In CPU-seconds of the client, user and system together. Half of the names do not exist.
//!
//! Worrying below 60,000 questions a core-second, at more than twice what massdns takes for each, or when ten times the names
//! take more memory.
//!
//! `cargo build --release -p ecluse-dns-filter`, then
//! `cargo bench -p ecluse-names --bench dns -- [--dir DIR] [--names N] [--long N] [--massdns PROGRAM]`. It wants nsd; Debian has no
//! package of massdns: its source is at github.com/blechschmidt/massdns.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a bench may die, and makes and removes its own files"
)]

#[path = "page.rs"]
mod page;

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use page::Page;

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
    let (names, long) = (number("--names", 1_000_000), number("--long", 10_000_000));
    let massdns = option("--massdns");
    let servers = [
        Nsd::start(&directory, 1, names),
        Nsd::start(&directory, 2, names),
    ];
    let mut page = Page::begin("dns");
    page.say("| program | names | questions | CPU s | questions a core-second | CPU µs each | peak MiB |\n|---|--:|--:|--:|--:|--:|--:|");
    let list = write_names(&directory, names);
    let short = ours(&directory, &list, &servers, names);
    row(&mut page, "`ecluse-dns-filter`", names, &short);
    let mut peer = None;
    if let Some(massdns) = &massdns {
        let run = massdns_run(massdns, &directory, &list, &servers[0], names);
        row(&mut page, "`massdns -t A -s 2000`", names, &run);
        peer = Some(run);
    }
    let list = write_names(&directory, long);
    let longer = ours(&directory, &list, &servers, long);
    row(&mut page, "`ecluse-dns-filter`", long, &longer);
    let each = |run: &Run| run.cpu_seconds / run.questions as f64;
    if let Some(peer) = &peer {
        page.say(format!(
            "\nFor each question {:.2} × of what massdns takes.",
            each(&short) / each(peer)
        ));
    }
    page.end(massdns.is_some());
}

/// What a run took.
struct Run {
    questions: u64,
    cpu_seconds: f64,
    peak_mebibytes: u64,
}

fn row(page: &mut Page, program: &str, names: u64, run: &Run) {
    let each = run.cpu_seconds / run.questions as f64;
    page.say(format!(
        "| {program} | {names} | {} | {:.2} | {:.0} | {:.1} | {} |",
        run.questions,
        run.cpu_seconds,
        1.0 / each,
        each * 1e6,
        run.peak_mebibytes
    ));
}

/// A name server with half of the names.
struct Nsd {
    child: Child,
    address: SocketAddr,
}

impl Nsd {
    fn start(directory: &Path, number: u32, names: u64) -> Self {
        let place = directory.join(format!("nsd-{number}"));
        fs::create_dir_all(&place).unwrap();
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = port.local_addr().unwrap();
        drop(port);
        let mut zone = BufWriter::new(File::create(place.join("essai.zone")).unwrap());
        writeln!(
            zone,
            "$ORIGIN essai.\n$TTL 300\n@ SOA ns hostmaster 1 3600 600 86400 60\n@ NS ns\nns A 127.0.0.1"
        )
        .unwrap();
        for number in (0..names).step_by(2) {
            writeln!(
                zone,
                "n{number:08} A 9.9.{}.{}",
                number / 250 % 250,
                number % 250
            )
            .unwrap();
            writeln!(zone, "www.n{number:08} CNAME n{number:08}").unwrap();
        }
        zone.flush().unwrap();
        let shown = place.display();
        let settings = format!(
            "server:\n  ip-address: {}\n  port: {}\n  username: \"\"\n  chroot: \"\"\n  zonesdir: \"{shown}\"\n  pidfile: \"\"\n  \
             xfrdfile: \"{shown}/xfrd\"\n  zonelistfile: \"{shown}/zones\"\n  database: \"\"\n  logfile: \"{shown}/log\"\n  rrl-ratelimit: 0\n\
             remote-control:\n  control-enable: no\nzone:\n  name: \"essai.\"\n  zonefile: \"essai.zone\"\n",
            address.ip(),
            address.port()
        );
        fs::write(place.join("nsd.conf"), settings).unwrap();
        let child = Command::new("nsd")
            .args(["-d", "-c"])
            .arg(place.join("nsd.conf"))
            .stderr(Stdio::null())
            .spawn()
            .expect("nsd, of the Debian package of that name");
        let server = Self { child, address };
        while !server.answers() {
            std::thread::sleep(Duration::from_millis(100));
        }
        server
    }

    fn answers(&self) -> bool {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        let question = *b"\x07\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x01";
        socket.send_to(&question, self.address).is_ok() && socket.recv(&mut [0; 512]).is_ok()
    }
}

impl Drop for Nsd {
    fn drop(&mut self) {
        // It has children, which end when it is asked to.
        let _ = Command::new("kill")
            .arg(self.child.id().to_string())
            .status();
        let _ = self.child.wait();
    }
}

/// Writes a list; names beyond those of the zone do not exist.
fn write_names(directory: &Path, names: u64) -> PathBuf {
    let path = directory.join(format!("names-{names}.txt"));
    let mut list = BufWriter::new(File::create(&path).unwrap());
    for number in 0..names {
        writeln!(list, "n{number:08}.essai").unwrap();
    }
    list.flush().unwrap();
    path
}

fn ours(directory: &Path, list: &Path, servers: &[Nsd; 2], names: u64) -> Run {
    let itself = std::env::current_exe().unwrap();
    let program = itself.ancestors().nth(2).unwrap().join("ecluse-dns-filter");
    assert!(
        program.exists(),
        "cargo build --release -p ecluse-dns-filter"
    );
    let settings = directory.join("pipeline.toml");
    let resolvers: Vec<String> = servers.iter().map(|nsd| nsd.address.to_string()).collect();
    let text = format!(
        "[stage.dns-filter]\nresolvers = {resolvers:?}\nrate = 0\nin-flight = 2000\nlater = 0\ntimeout = \"10s\"\n"
    );
    fs::write(&settings, text).unwrap();
    let out = directory.join("checked.tsv");
    let command = format!(
        "'{}' --config '{}' '{}' > '{}'",
        program.display(),
        settings.display(),
        list.display(),
        out.display()
    );
    let (said, cpu_seconds, peak_mebibytes) = measured(&command);
    let text = fs::read(&out).unwrap();
    let lines = text.iter().filter(|byte| **byte == b'\n').count() as u64;
    assert_eq!(lines, names);
    fs::remove_file(out).unwrap();
    let questions = said.split(" questions").next().unwrap_or_default();
    let questions = questions.rsplit(' ').next().unwrap_or_default();
    Run {
        questions: questions.replace(',', "").parse().unwrap(),
        cpu_seconds,
        peak_mebibytes,
    }
}

fn massdns_run(massdns: &str, directory: &Path, list: &Path, server: &Nsd, names: u64) -> Run {
    let resolvers = directory.join("resolvers.txt");
    fs::write(&resolvers, format!("{}\n", server.address)).unwrap();
    let out = directory.join("massdns.txt");
    let command = format!(
        "'{massdns}' -q -r '{}' -t A -s 2000 -o S -w '{}' '{}'",
        resolvers.display(),
        out.display(),
        list.display()
    );
    let (_, cpu_seconds, peak_mebibytes) = measured(&command);
    fs::remove_file(out).unwrap();
    Run {
        // Without what it asked again.
        questions: names,
        cpu_seconds,
        peak_mebibytes,
    }
}

/// Runs a command; returns what it said, the CPU seconds of its processes, and the most memory one of them had.
fn measured(command: &str) -> (String, f64, u64) {
    let output = Command::new("/usr/bin/time")
        .args(["-f", "%U %S %M", "sh", "-c", command])
        .env_remove("ECLUSE_CONFIG")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command} failed: {said}");
    let last = said.lines().last().unwrap();
    let figures: Vec<f64> = last.split(' ').map(|word| word.parse().unwrap()).collect();
    (
        said.clone(),
        figures[0] + figures[1],
        figures[2] as u64 / 1024,
    )
}
