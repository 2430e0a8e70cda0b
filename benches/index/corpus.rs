//! Makes WARC files for the benchmark of the index stage: the same bytes each time, nothing fetched.
//!
//! Four styles, as crawlers write them: Heritrix with requests, metadata and names looked up; the same with revisits;
//! wget with angle brackets and block digests; a browser with fractions of seconds and resources. Pages are words and
//! tags, a third of the bodies is noise, as images are, so that a file packs to about half. Now and then a head
//! has LF alone for line ends, or a response no payload digest.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use ecluse_warc::Sha1Digest;
use libdeflater::{CompressionLvl, Compressor};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Heritrix,
    Revisits,
    Wget,
    Browser,
}

/// Returns the files in `dir`, made if they are not there yet.
pub(crate) fn make(dir: &Path, megabytes: u64) -> io::Result<Vec<PathBuf>> {
    fs::create_dir_all(dir)?;
    let styles = [
        ("heritrix", Style::Heritrix),
        ("revisits", Style::Revisits),
        ("wget", Style::Wget),
        ("browser", Style::Browser),
    ];
    let mut paths = Vec::new();
    for (seed, (name, style)) in (1..).zip(styles) {
        let path = dir.join(format!("bench-{megabytes}-{name}.warc.gz"));
        if !path.exists() {
            println!("making {}", path.display());
            let mut out = BufWriter::new(File::create(&path)?);
            Maker::new(style, seed).write(&mut out, megabytes * 1_000_000)?;
            out.flush()?;
        }
        paths.push(path);
    }
    Ok(paths)
}

struct Maker {
    style: Style,
    dice: Dice,
    words: Vec<String>,
    packer: Compressor,
    packed: Vec<u8>,
    bytes: u64,
    second: u64,
}

impl Maker {
    fn new(style: Style, seed: u64) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let words = (0..4000).map(|_| word(&mut dice)).collect();
        Self {
            style,
            dice,
            words,
            packer: Compressor::new(CompressionLvl::new(6).expect("6 is a level")),
            packed: Vec::new(),
            bytes: 0,
            second: 0,
        }
    }

    fn write(&mut self, out: &mut impl Write, bytes: u64) -> io::Result<()> {
        self.record(
            out,
            "warcinfo",
            "",
            "application/warc-fields",
            b"software: bench\r\n",
        )?;
        let mut number = 0;
        while self.bytes < bytes {
            number += 1;
            self.second += 1;
            self.capture(out, number)?;
        }
        Ok(())
    }

    fn capture(&mut self, out: &mut impl Write, number: u64) -> io::Result<()> {
        let host = self.host();
        let heritrix = matches!(self.style, Style::Heritrix | Style::Revisits);
        if heritrix && number % 12 == 1 {
            let uri = format!("WARC-Target-URI: dns:{host}\r\n");
            let block = format!("20260102030405\n{host}.\t3600\tIN\tA\t192.0.2.1\n");
            self.record(out, "response", &uri, "text/dns", block.as_bytes())?;
        }
        let url = self.url(&host, number);
        let target = match self.style {
            Style::Wget => format!("WARC-Target-URI: <{url}>\r\n"),
            _ => format!("WARC-Target-URI: {url}\r\n"),
        };
        let request = format!(
            "GET /{number} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: Mozilla/5.0 (compatible; bench)\r\n\
             Accept: text/html,*/*;q=0.8\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n"
        );
        let (mime, body) = self.body();
        let head = self.head(mime, body.len());
        let payload = if self.style == Style::Browser {
            format!("sha256:{:064x}", self.dice.next())
        } else {
            Sha1Digest::of(&body).to_string()
        };
        let mut fields = target.clone();
        if self.dice.below(250) > 0 {
            fields.push_str(&format!("WARC-Payload-Digest: {payload}\r\n"));
        }
        let http = "application/http; msgtype=response";
        if self.style == Style::Revisits && self.dice.below(6) == 0 {
            fields.push_str("WARC-Profile: http://netpreserve.org/warc/1.1/revisit/identical-payload-digest\r\n");
            self.record(out, "revisit", &fields, http, &head)?;
        } else {
            let block = [head, body].concat();
            if self.style == Style::Wget {
                fields.push_str(&format!(
                    "WARC-Block-Digest: {}\r\n",
                    Sha1Digest::of(&block)
                ));
            }
            self.record(out, "response", &fields, http, &block)?;
        }
        let asked = "application/http; msgtype=request";
        self.record(out, "request", &target, asked, request.as_bytes())?;
        if heritrix {
            let outlinks = self.outlinks();
            self.record(
                out,
                "metadata",
                &target,
                "application/warc-fields",
                &outlinks,
            )?;
        }
        if self.style == Style::Browser && number.is_multiple_of(4) {
            let target = format!("WARC-Target-URI: urn:pageinfo:{url}\r\n");
            self.record(
                out,
                "resource",
                &target,
                "application/json",
                b"{\"urls\": {}}",
            )?;
        }
        Ok(())
    }

    fn record(
        &mut self,
        out: &mut impl Write,
        kind: &str,
        fields: &str,
        content_type: &str,
        block: &[u8],
    ) -> io::Result<()> {
        let second = self.second;
        let (day, hour, minute) = (1 + second / 86_400, second / 3600 % 24, second / 60 % 60);
        let fraction = if self.style == Style::Browser {
            ".123"
        } else {
            ""
        };
        let id = self.dice.next();
        let mut record = format!(
            "WARC/1.0\r\nWARC-Type: {kind}\r\n{fields}WARC-Date: 2026-03-{day:02}T{hour:02}:{minute:02}:{:02}{fraction}Z\r\n\
             WARC-Record-ID: <urn:uuid:00000000-0000-4000-8000-{:012x}>\r\nWARC-IP-Address: 192.0.2.{}\r\n\
             Content-Type: {content_type}\r\nContent-Length: {}\r\n\r\n",
            second % 60,
            id & 0xffff_ffff_ffff,
            id % 250,
            block.len()
        )
        .into_bytes();
        record.extend_from_slice(block);
        record.extend_from_slice(b"\r\n\r\n");
        let bound = self.packer.gzip_compress_bound(record.len());
        self.packed.resize(bound, 0);
        let packed = self
            .packer
            .gzip_compress(&record, &mut self.packed)
            .expect("the bound leaves room");
        self.bytes += packed as u64;
        out.write_all(&self.packed[..packed])
    }

    fn host(&mut self) -> String {
        let number = self.dice.below(60).pow(2) as usize;
        let start = ["www.", "", "static.", "www2."][self.dice.below(4) as usize];
        let end = ["fr", "com", "org", "co.uk"][self.dice.below(4) as usize];
        format!("{start}{}.{end}", self.words[number])
    }

    fn url(&mut self, host: &str, number: u64) -> String {
        let scheme = if self.dice.below(4) > 0 {
            "https"
        } else {
            "http"
        };
        let (a, b) = (self.word().to_owned(), self.word().to_owned());
        let rest = match self.dice.below(12) {
            0 => format!("?page={number}&lang=fr&Sort=Date"),
            1 => "?utm_source=letter&b=2&a=1".to_owned(),
            2 => format!(";jsessionid={:032X}?x=%7B%22q%22%7D", self.dice.next()),
            3 => format!("/caf%C3%A9/{number}.html"),
            _ => format!("/{number}.html"),
        };
        format!("{scheme}://{host}/{a}/{b}{rest}")
    }

    fn head(&mut self, mime: &str, bytes: usize) -> Vec<u8> {
        let status = match self.dice.below(25) {
            0 => "301 Moved Permanently",
            1 => "404 Not Found",
            _ => "200 OK",
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nDate: Mon, 02 Mar 2026 03:04:05 GMT\r\nServer: nginx\r\nContent-Type: {mime}\r\n\
             ETag: \"{:x}\"\r\nCache-Control: public, max-age=3600\r\nSet-Cookie: id={:x}; path=/; HttpOnly; SameSite=Lax\r\n\
             Strict-Transport-Security: max-age=63072000; includeSubDomains\r\nContent-Length: {bytes}\r\nConnection: close\r\n\r\n",
            self.dice.next(),
            self.dice.next()
        );
        if self.dice.below(500) == 0 {
            head.replace("\r\n", "\n").into_bytes()
        } else {
            head.into_bytes()
        }
    }

    /// Returns a media type and a body of it.
    fn body(&mut self) -> (&'static str, Vec<u8>) {
        // Most bodies are small, a few are large.
        let scale = 1 << self.dice.below(7);
        let bytes = (300 + self.dice.below(900)) as usize * scale;
        match self.dice.below(10) {
            0..3 => ("image/jpeg", self.noise(bytes / 2)),
            3 => ("text/css", self.text(bytes)),
            4 => ("application/javascript", self.text(bytes)),
            _ => ("text/html; charset=utf-8", self.text(bytes)),
        }
    }

    fn text(&mut self, bytes: usize) -> Vec<u8> {
        let mut text = String::with_capacity(bytes + 100);
        while text.len() < bytes {
            match self.dice.below(14) {
                0 => text.push_str("</p>\n<p class=\"text\">"),
                1 => {
                    let number = self.dice.below(100_000);
                    text.push_str(&format!("<a href=\"/{}/{number}.html\">", self.word()));
                }
                _ => {
                    text.push_str(self.word());
                    text.push(' ');
                }
            }
        }
        text.into_bytes()
    }

    fn noise(&mut self, bytes: usize) -> Vec<u8> {
        let mut noise = Vec::with_capacity(bytes + 8);
        while noise.len() < bytes {
            noise.extend_from_slice(&self.dice.next().to_le_bytes());
        }
        noise
    }

    fn outlinks(&mut self) -> Vec<u8> {
        let mut text = "via: https://www.example.org/\r\nhopsFromSeed: LL\r\n".to_owned();
        for number in 0..self.dice.below(40) {
            let host = self.host();
            text.push_str(&format!(
                "outlink: {} L a/@href\r\n",
                self.url(&host, number)
            ));
        }
        text.into_bytes()
    }

    fn word(&mut self) -> &str {
        // The product of two numbers leans to the common words.
        let at = self.dice.below(64) * self.dice.below(62);
        &self.words[at as usize]
    }
}

fn word(dice: &mut Dice) -> String {
    let syllables = [
        "bon", "jour", "mai", "son", "ville", "pa", "ris", "ly", "on", "cul", "ture", "ri", "ve",
        "mer", "so", "leil", "li", "vre", "jar", "din", "eau", "nu", "it", "me", "dia", "sa",
        "voir", "mu",
    ];
    let count = 1 + dice.below(4);
    (0..count)
        .map(|_| syllables[dice.below(syllables.len() as u64) as usize])
        .collect()
}

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 20) % bound
    }
}
