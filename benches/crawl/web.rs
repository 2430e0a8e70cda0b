//! The web that crawls are measured on: files that are made once, a real nginx, names, and a network of their own.

use std::fmt::Write;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ecluse_testkit::dns::{Named, Names};

/// Where the name server listens.
pub(crate) const RESOLVER: &str = "127.0.0.153:53";
/// Hosts are spread over so many addresses.
const ADDRESSES: usize = 64;
/// Set in the process that runs inside.
const INSIDE: &str = "ECLUSE_BENCH_INSIDE";

const PAGES: usize = 20;
const IMAGES: usize = 5;

/// A web that is served.
pub(crate) struct Served {
    nginx: Child,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.nginx.kill();
        let _ = self.nginx.wait();
    }
}

/// Runs this program again in a network of its own, where it may have any address and name server. `false`: this is the
/// process outside, and all is done.
pub(crate) fn inside(dir: &Path) -> bool {
    if std::env::var_os(INSIDE).is_none() {
        let status = Command::new("unshare")
            .args(["-n", "-m", "--propagation", "private"])
            .arg(std::env::current_exe().unwrap())
            .args(std::env::args_os().skip(1))
            .env(INSIDE, "1")
            .status()
            .unwrap();
        assert!(status.success(), "the bench needs root: {status}");
        return false;
    }
    let conf = dir.join("resolv.conf");
    fs::create_dir_all(dir).unwrap();
    fs::write(
        &conf,
        "nameserver 127.0.0.153\noptions timeout:2 attempts:2\n",
    )
    .unwrap();
    run(Command::new("ip").args(["link", "set", "lo", "up"]));
    run(Command::new("mount")
        .args(["--bind"])
        .arg(&conf)
        .arg("/etc/resolv.conf"));
    let ports = "/proc/sys/net/ipv4/ip_local_port_range";
    let _ = fs::write(ports, "1024 65535");
    true
}

/// The name of a host.
pub(crate) fn host(number: usize) -> String {
    format!("s{number:04}.test")
}

/// The URLs of a host, robots.txt apart.
pub(crate) fn urls(host: &str) -> Vec<String> {
    let mut paths = vec![String::new()];
    paths.extend((1..PAGES).map(|page| format!("page{page}.html")));
    paths.extend((0..IMAGES).map(|image| format!("image{image}.jpg")));
    paths.extend(["style.css".to_owned(), "script.js".to_owned()]);
    paths
        .iter()
        .map(|path| format!("http://{host}/{path}"))
        .collect()
}

/// Makes the files of the web, unless they are there: pages of some 18 KB, images that do not shrink, a style, a script.
pub(crate) fn make(dir: &Path, hosts: usize) -> PathBuf {
    let root = dir.join(format!("web-{hosts}"));
    if root.join("done").exists() {
        return root;
    }
    let mut dice = Dice(hosts as u64);
    for number in 0..hosts {
        let site = root.join(host(number));
        fs::create_dir_all(&site).unwrap();
        let robots = "User-agent: *\nDisallow: /private/\n";
        fs::write(site.join("robots.txt"), robots).unwrap();
        for page in 0..PAGES {
            let name = if page == 0 {
                "index.html".to_owned()
            } else {
                format!("page{page}.html")
            };
            fs::write(site.join(name), html(&mut dice, number, page)).unwrap();
        }
        for image in 0..IMAGES {
            let bytes: Vec<u8> = (0..75_000).map(|_| dice.below(256) as u8).collect();
            fs::write(site.join(format!("image{image}.jpg")), bytes).unwrap();
        }
        let style = text(&mut dice, 2_000).replace(' ', " { margin: 0; }\n.");
        fs::write(
            site.join("style.css"),
            format!("body {{ margin: 1px; }}\n/* {style} */\n"),
        )
        .unwrap();
        let script = text(&mut dice, 5_000).replace(' ', " += 1;\n");
        fs::write(site.join("script.js"), format!("/*\n{script}\n*/\n")).unwrap();
    }
    fs::write(root.join("done"), "").unwrap();
    root
}

/// A page that leads to all that its host has, as menus do.
fn html(dice: &mut Dice, number: usize, page: usize) -> String {
    let mut out = format!(
        "<!DOCTYPE html><html><head><meta charset=utf-8><title>{number} {page}</title><link rel=stylesheet href=/style.css>\
         <script src=/script.js></script></head><body><ul>"
    );
    write!(out, "<li><a href=/>home</a>").unwrap();
    for other in 1..PAGES {
        write!(
            out,
            "<li><a href=\"/page{other}.html\">{}</a>",
            text(dice, 2)
        )
        .unwrap();
    }
    out.push_str("<li><a href=/private/x>not for robots</a></ul>");
    for image in 0..IMAGES {
        write!(out, "<img src=/image{image}.jpg alt=\"{}\">", text(dice, 3)).unwrap();
    }
    while out.len() < 18_000 {
        writeln!(out, "<p>{}</p>", text(dice, 60)).unwrap();
    }
    out.push_str("</body></html>\n");
    out
}

/// Makes a web whose first pages name so many URLs in all.
pub(crate) fn make_wide(dir: &Path, hosts: usize, links: usize) -> PathBuf {
    let root = dir.join(format!("wide-{hosts}-{links}"));
    if root.join("done").exists() {
        return root;
    }
    for number in 0..hosts {
        let site = root.join(host(number));
        fs::create_dir_all(&site).unwrap();
        let mut page = String::from("<html><body>");
        for link in 0..links {
            writeln!(
                page,
                "<a href=/archive/{}/document-{link}.html>x</a>",
                link % 97
            )
            .unwrap();
        }
        fs::write(site.join("index.html"), page).unwrap();
    }
    fs::write(root.join("done"), "").unwrap();
    root
}

/// Starts the name server: so many hosts, spread over the addresses.
pub(crate) fn name(hosts: usize) -> Names {
    let names = Names::start_at(RESOLVER.parse().unwrap(), 86_400);
    for number in 0..hosts {
        let last = u8::try_from(number % ADDRESSES + 1).unwrap();
        let address = Ipv4Addr::new(127, 1, 0, last);
        names.set(&host(number), Named::V4(vec![address]));
    }
    names
}

/// Serves the files below a directory, one host a directory.
pub(crate) fn serve(dir: &Path, root: &Path) -> Served {
    let conf = dir.join("nginx.conf");
    fs::write(&conf, nginx(dir, root)).unwrap();
    let nginx = Command::new("nginx")
        .arg("-c")
        .arg(fs::canonicalize(&conf).unwrap())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("nginx is installed");
    let began = Instant::now();
    while std::net::TcpStream::connect("127.1.0.1:80").is_err() {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "nginx does not listen"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    Served { nginx }
}

fn nginx(dir: &Path, root: &Path) -> String {
    let dir = fs::canonicalize(dir).unwrap();
    let root = fs::canonicalize(root).unwrap();
    let (dir, root) = (dir.display(), root.display());
    let mut listen = String::new();
    for last in 1..=ADDRESSES {
        writeln!(listen, "listen 127.1.0.{last}:80;").unwrap();
    }
    let mut places = String::new();
    for name in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        writeln!(places, "{name}_temp_path {dir}/nginx-{name};").unwrap();
    }
    format!(
        "daemon off; master_process off; pid {dir}/nginx.pid; error_log {dir}/nginx.log error;\n\
         events {{ worker_connections 8192; }}\n\
         http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000; {places}\
         types {{ text/html html; text/css css; text/javascript js; image/jpeg jpg; text/plain txt; }}\n\
         open_file_cache max=20000 inactive=600s; open_file_cache_valid 600s;\n\
         server {{ {listen} server_name _; root {root}/$host; index index.html; }} }}\n"
    )
}

fn run(command: &mut Command) {
    let status = command.status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
}

/// Words that shrink as a text does.
fn text(dice: &mut Dice, words: usize) -> String {
    const SYLLABLES: [&str; 24] = [
        "ca", "nal", "é", "clu", "se", "pé", "ni", "che", "lo", "ck", "ga", "te", "wa", "ter",
        "ri", "ver", "bri", "dge", "to", "wn", "sta", "tion", "ar", "chive",
    ];
    let mut out = String::new();
    for _ in 0..words {
        for _ in 0..=dice.below(3) {
            out.push_str(SYLLABLES[dice.below(24) as usize]);
        }
        out.push(' ');
    }
    out.truncate(out.len() - 1);
    out
}

/// The same numbers each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}
