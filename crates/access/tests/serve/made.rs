//! A small archive made by hand, a server over it, and a client that sees every byte.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use ecluse_access::{AccessServer, AccessSite};
use ecluse_config::{AccessSettings, Pipeline};
use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;

/// An archive under construction.
pub(crate) struct Made {
    pub(crate) root: TempDir,
    pub(crate) lines: Vec<String>,
    file: String,
    bytes: Vec<u8>,
    files: Vec<String>,
}

impl Made {
    pub(crate) fn new() -> Self {
        let root = TempDir::new().unwrap();
        fs::create_dir(root.path().join("repository")).unwrap();
        Self {
            root,
            lines: Vec::new(),
            file: "1-1-20260101000000000-00000-test.warc.gz".into(),
            bytes: Vec::new(),
            files: Vec::new(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.root.path()
    }

    pub(crate) fn stored(&self, file: &str) -> PathBuf {
        self.path().join("repository").join(file)
    }

    /// Ends the file and begins another.
    pub(crate) fn next_file(&mut self, name: &str) {
        self.flush();
        self.file = name.to_owned();
        self.bytes.clear();
    }

    fn flush(&mut self) {
        fs::write(self.stored(&self.file), &self.bytes).unwrap();
        if !self.files.contains(&self.file) {
            self.files.push(self.file.clone());
        }
    }

    /// Adds a record and its line; `block` is the HTTP response with its head.
    pub(crate) fn record(
        &mut self,
        kind: &str,
        url: &str,
        time: &str,
        more: &str,
        block: &[u8],
    ) -> String {
        let date = format!(
            "{}-{}-{}T{}:{}:{}Z",
            &time[..4],
            &time[4..6],
            &time[6..8],
            &time[8..10],
            &time[10..12],
            &time[12..14]
        );
        let mut record = format!(
            "WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {url}\r\nWARC-Date: {date}\r\n{more}Content-Length: {}\r\n\r\n",
            block.len()
        )
        .into_bytes();
        record.extend_from_slice(block);
        record.extend_from_slice(b"\r\n\r\n");
        let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
        packer.write_all(&record).unwrap();
        let member = packer.finish().unwrap();
        let offset = self.bytes.len();
        self.bytes.extend_from_slice(&member);
        let head = String::from_utf8_lossy(&block[..block.len().min(4096)]).into_owned();
        let field = |name: &str| {
            head.lines()
                .take_while(|line| !line.is_empty())
                .find_map(|line| line.strip_prefix(name))
                .map(|value| value.trim().to_owned())
        };
        let status = head.split(' ').nth(1).unwrap_or("-").to_owned();
        let mime = match kind {
            "revisit" => "warc/revisit".to_owned(),
            _ => field("Content-Type:").unwrap_or_default(),
        };
        let mime = mime.split(';').next().unwrap_or_default().to_owned();
        let digest = more
            .lines()
            .find_map(|line| line.strip_prefix("WARC-Payload-Digest: "))
            .map_or_else(|| format!("sha1:{:x}", block.len()), str::to_owned);
        let key = String::from_utf8(ecluse_surt::Surt::of(url.as_bytes()).unwrap().into_bytes());
        let line = format!(
            "{} {time} {{\"url\": {}, \"mime\": \"{mime}\", \"status\": \"{status}\", \"digest\": \"{digest}\", \"length\": \"{}\", \"offset\": \"{offset}\", \"filename\": \"{}\"}}",
            key.unwrap(),
            serde_json::Value::from(url),
            member.len(),
            self.file
        );
        self.lines.push(line.clone());
        line
    }

    /// Adds a response with a head of these fields.
    pub(crate) fn page(&mut self, url: &str, time: &str, head: &str, body: &[u8]) {
        let mut block = format!("HTTP/1.1 200 OK\r\n{head}\r\n").into_bytes();
        block.extend_from_slice(body);
        self.record("response", url, time, "", &block);
    }

    pub(crate) fn html(&mut self, url: &str, time: &str, body: &str) {
        self.page(
            url,
            time,
            "Content-Type: text/html; charset=utf-8\r\n",
            body.as_bytes(),
        );
    }

    /// Puts everything as a generation and makes it current.
    pub(crate) fn publish(&mut self, number: u64) {
        self.publish_in("index", number);
    }

    pub(crate) fn publish_in(&mut self, index: &str, number: u64) {
        self.flush();
        let index = self.path().join(index);
        let generation = index.join("generations").join(number.to_string());
        fs::create_dir_all(&generation).unwrap();
        let mut lines = self.lines.clone();
        lines.sort();
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        fs::write(generation.join("index.cdxj"), text).unwrap();
        let mut paths: Vec<String> = self
            .files
            .iter()
            .map(|file| format!("{file}\t{}\n", self.stored(file).display()))
            .collect();
        paths.sort();
        fs::write(generation.join("path-index.txt"), paths.concat()).unwrap();
        let link = index.join("current.new");
        symlink(format!("generations/{number}"), &link).unwrap();
        fs::rename(link, index.join("current")).unwrap();
    }

    pub(crate) fn serve(&self) -> Served {
        self.serve_with(|_| {})
    }

    pub(crate) fn serve_with(&self, change: impl FnOnce(&mut AccessSettings)) -> Served {
        serve(self.path(), change)
    }
}

/// Serves the archive of a root.
pub(crate) fn serve(root: &Path, change: impl FnOnce(&mut AccessSettings)) -> Served {
    let mut settings = Pipeline::default().access;
    settings.listen = "127.0.0.1:0".parse().unwrap();
    change(&mut settings);
    let site = AccessSite::new(root.to_owned(), Path::new("index"), settings).unwrap();
    let site = site.with_changes(Path::new("changes"));
    let server = AccessServer::start(site).unwrap();
    Served {
        address: server.address(),
        proxy: server.proxy_address(),
        _server: server,
    }
}

/// A running server.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    /// The address of proxy mode.
    pub(crate) proxy: Option<SocketAddr>,
    _server: AccessServer,
}

/// An answer as it came over the wire.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Served {
    pub(crate) fn base(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "")
    }

    /// Asks with further fields, each ended by its line end.
    pub(crate) fn ask(&self, method: &str, path: &str, more: &str) -> Answer {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{more}\r\n",
            self.address
        );
        let bytes = self.send(request.as_bytes());
        let end = bytes
            .windows(4)
            .position(|window| window == b"\r\n\r\n")
            .unwrap_or_else(|| panic!("no head: {}", String::from_utf8_lossy(&bytes)));
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let mut body = bytes[end + 4..].to_vec();
        if head
            .to_ascii_lowercase()
            .contains("transfer-encoding: chunked")
        {
            let mut plain = Vec::new();
            ecluse_access::Dechunked::new(body.as_slice())
                .read_to_end(&mut plain)
                .unwrap();
            body = plain;
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head, body }
    }

    /// Sends bytes and returns all that comes back.
    pub(crate) fn send(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let mut answer = Vec::new();
        // A server that turns a client away may do so before it has read all.
        let _ = stream.write_all(bytes);
        let _ = stream.read_to_end(&mut answer);
        answer
    }
}
