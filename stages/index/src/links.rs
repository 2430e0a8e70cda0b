//! What the captures of a file link to: the lines of `NAME.links.zst`, made in the same reading.
//!
//! `docs/formats/links.md` has the lines, and says what this scan does not see. It decides nothing, and memory is bounded whatever the file says.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use ecluse_cdx::{Capture, MergeError, Sorter};
use ecluse_extract::{Position, ScannedKind, Url, resolve_link, scan_links};
use ecluse_links::{LINKS_HEADER, LinkKind, TARGETS, origin_of};
use ecluse_warc::{HttpHead, Record, RecordKind};
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use twox_hash::XxHash3_64;

use crate::evidence::without_chunks;
use crate::settings::Settings;

/// So much of a page is looked at.
const PAGE_BYTES: usize = 1 << 20;
/// A longer URL is none that counts.
const URL_BYTES: usize = 4096;
/// The links of a capture take no more of a line.
const LINE_BYTES: usize = 4 << 20;

/// A page with more links than this leaves no large table behind.
const LARGE_PAGE: usize = 4096;

/// Gathers what captures link to.
pub(crate) struct LinkGatherer {
    sorter: Sorter,
    /// The columns of the links of the capture at hand, each with its tab.
    text: Vec<u8>,
    /// Their hashes: what is there is not taken again.
    known: HashTable<u64>,
    /// Scheme, host and port of the capture at hand: links to the same host are written without them.
    home: String,
    /// Path and query of the capture at hand.
    own: String,
    what: Capturing,
    line: Vec<u8>,
    page: Vec<u8>,
}

/// What the record at hand is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Capturing {
    /// Something without a line.
    Nothing,
    /// A response.
    Response,
    /// A revisit: what was linked to before still is.
    Revisit,
}

impl LinkGatherer {
    pub(crate) fn new(settings: &Settings, temporary: PathBuf) -> Self {
        Self {
            sorter: Sorter::new(settings.sort_options(temporary)),
            text: Vec::new(),
            known: HashTable::new(),
            home: String::new(),
            own: String::new(),
            what: Capturing::Nothing,
            line: Vec::new(),
            page: Vec::new(),
        }
    }

    /// Looks at a record of which nothing was read yet.
    pub(crate) fn look<Source: Read>(&mut self, record: &Record<'_, Source>) {
        self.text.clear();
        match self.known.len() > LARGE_PAGE {
            true => self.known = HashTable::new(),
            false => self.known.clear(),
        }
        self.what = match record.kind() {
            RecordKind::Response => Capturing::Response,
            RecordKind::Revisit => Capturing::Revisit,
            _ => Capturing::Nothing,
        };
        if self.what != Capturing::Response {
            return;
        }
        let (Some(head), Some(block)) = (record.http(), record.block()) else {
            return;
        };
        let Some(status) = head.status() else { return };
        let is_redirect = status.starts_with('3');
        let is_page = status == "200" && is_html(head);
        if !is_redirect && !is_page {
            return;
        }
        let Some(uri) = record.target_uri() else {
            return;
        };
        let Ok(url) = Url::parse(&uri) else { return };
        self.home.clear();
        self.home.push_str(&url[..Position::BeforePath]);
        self.own.clear();
        self.own
            .push_str(&url[Position::BeforePath..Position::AfterQuery]);
        if is_redirect {
            if let Some(target) = head.text("Location")
                && let Some(target) = resolve_link(&url, &target)
            {
                self.take_whole(LinkKind::Redirect, &target);
            }
            return;
        }
        if let Some(canonical) = head.text("Link").as_deref().and_then(canonical_of)
            && let Some(target) = resolve_link(&url, canonical)
        {
            self.take_whole(LinkKind::Canonical, &target);
        }
        self.scan(block, head, &url);
    }

    /// Notes the line of the capture that was looked at last.
    pub(crate) fn push(&mut self, capture: &Capture<'_>) -> Result<(), MergeError> {
        let url = capture.url.as_deref().unwrap_or_default();
        let is_web = url.starts_with("http://") || url.starts_with("https://");
        let is_key = capture
            .key
            .as_bytes()
            .first()
            .is_some_and(|byte| *byte >= b'$');
        if self.what == Capturing::Nothing || !is_web || !is_key || breaks_line(url) {
            return Ok(());
        }
        let digest = capture.digest.as_deref().unwrap_or_default();
        let digest = match digest.is_empty() || breaks_line(digest) {
            true => "-",
            false => digest,
        };
        self.line.clear();
        for column in [&*capture.key, capture.time.as_str(), digest, url] {
            self.line.extend_from_slice(column.as_bytes());
            self.line.push(b'\t');
        }
        let links: &[u8] = match self.what {
            Capturing::Revisit => b"=",
            _ if self.text.is_empty() => {
                self.line.pop();
                &[]
            }
            _ if origin_of(url) != self.home => {
                self.write_whole();
                &[]
            }
            _ => &self.text[..self.text.len() - 1],
        };
        self.sorter.push_parts(&[&self.line, links])
    }

    /// Appends the links to the line with scheme, host and port: those of the capture are not as its URL has them.
    fn write_whole(&mut self) {
        for column in self.text.split_inclusive(|byte| *byte == b'\t') {
            let (kind, target) = column.split_at(2);
            self.line.extend_from_slice(kind);
            if target.starts_with(b"/") {
                self.line.extend_from_slice(self.home.as_bytes());
            }
            self.line.extend_from_slice(target);
        }
        self.line.pop();
    }

    /// Writes all lines, packed; returns how many there are.
    pub(crate) fn finish(self, out: &mut impl Write) -> Result<u64, MergeError> {
        let failed = |source: io::Error| MergeError::Write {
            bytes_written: 0,
            source,
        };
        let mut packed = Frames::new(out).map_err(failed)?;
        let header = format!("{LINKS_HEADER}\n");
        packed.write_all(header.as_bytes()).map_err(failed)?;
        let stats = self.sorter.finish(&mut packed)?;
        Ok(stats.lines_written)
    }

    fn scan(&mut self, block: &[u8], head: HttpHead<'_>, url: &Url) {
        let body = head.head_bytes().and_then(|bytes| block.get(bytes..));
        let Some(body) = body else { return };
        let unchunked;
        let body = match head.is_chunked() {
            true => {
                unchunked = without_chunks(body);
                unchunked.as_slice()
            }
            false => body,
        };
        let encoding = head.text("Content-Encoding").unwrap_or_default();
        let mut page = std::mem::take(&mut self.page);
        page.clear();
        let limit = PAGE_BYTES as u64;
        let body = match encoding.trim().to_ascii_lowercase().as_str() {
            "" | "identity" | "none" => &body[..body.len().min(PAGE_BYTES)],
            "gzip" | "x-gzip" => {
                // A damaged stream gives what came before the damage.
                let _ = MultiGzDecoder::new(body).take(limit).read_to_end(&mut page);
                &page
            }
            "deflate" => {
                let _ = ZlibDecoder::new(body).take(limit).read_to_end(&mut page);
                &page
            }
            _ => &[],
        };
        scan_links(body, url, &mut |kind, target| {
            let kind = match kind {
                ScannedKind::Anchor => LinkKind::Anchor,
                ScannedKind::Canonical => LinkKind::Canonical,
                ScannedKind::Embed => LinkKind::Embed,
                ScannedKind::Redirect => LinkKind::Redirect,
            };
            self.take(kind, target);
        });
        self.page = page;
    }

    /// Takes an absolute URL out of a header.
    fn take_whole(&mut self, kind: LinkKind, url: &str) {
        let path = url.strip_prefix(&*self.home);
        let path = path.filter(|path| path.starts_with('/'));
        let target = path.unwrap_or(url).to_owned();
        self.take(kind, target.as_bytes());
    }

    /// Takes an absolute URL, or a path on the host of the capture. One that it has, or its own, is left out.
    fn take(&mut self, kind: LinkKind, target: &[u8]) {
        let is_full = self.known.len() >= TARGETS || self.text.len() >= LINE_BYTES;
        if is_full || target.len() > URL_BYTES || target == self.own.as_bytes() {
            return;
        }
        let hash = XxHash3_64::oneshot_with_seed(u64::from(u32::from(kind.letter())), target);
        let known = self
            .known
            .entry(hash, |known| *known == hash, |known| *known);
        if let Entry::Vacant(free) = known {
            free.insert(hash);
            self.text.reserve(target.len() + 3);
            self.text.extend_from_slice(&[kind.letter() as u8, b' ']);
            self.text.extend_from_slice(target);
            self.text.push(b'\t');
        }
    }
}

/// Packs each write as a frame of its own. The sorter writes large pieces, and a piece that lies in memory as one is packed faster than a stream. Fast
/// rather than small: it lives for a day.
struct Frames<'a, Sink> {
    out: &'a mut Sink,
    packer: zstd::bulk::Compressor<'static>,
    packed: Vec<u8>,
}

impl<'a, Sink: Write> Frames<'a, Sink> {
    fn new(out: &'a mut Sink) -> io::Result<Self> {
        let mut packer = zstd::bulk::Compressor::new(1)?;
        packer.include_checksum(true)?;
        Ok(Self {
            out,
            packer,
            packed: Vec::new(),
        })
    }
}

impl<Sink: Write> Write for Frames<'_, Sink> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.packed.clear();
        self.packed
            .reserve(zstd::zstd_safe::compress_bound(piece.len()));
        self.packer.compress_to_buffer(piece, &mut self.packed)?;
        self.out.write_all(&self.packed)?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn breaks_line(text: &str) -> bool {
    text.bytes().any(|byte| byte <= b' ' || byte == 0x7f)
}

fn is_html(head: HttpHead<'_>) -> bool {
    let Some(content_type) = head.text("Content-Type") else {
        return false;
    };
    let content_type = content_type.trim_start().as_bytes();
    let begins = |known: &[u8]| {
        let begin = content_type.get(..known.len());
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(known))
    };
    begins(b"text/html") || begins(b"application/xhtml")
}

/// Returns what a `Link` header calls the canonical URL.
fn canonical_of(header: &str) -> Option<&str> {
    for part in header.split('<').skip(1) {
        let (target, parameters) = part.split_once('>')?;
        let parameters = parameters.to_ascii_lowercase();
        if parameters.contains("rel=\"canonical\"") || parameters.contains("rel=canonical") {
            return Some(target);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_canonical_url_stands_in_a_header_too() {
        for (header, found) in [
            (
                "<https://a.fr/c>; rel=\"canonical\"",
                Some("https://a.fr/c"),
            ),
            (
                "</s.css>; rel=preload, </c>; type=x; rel=canonical",
                Some("/c"),
            ),
            ("</s.css>; rel=preload", None),
            ("<never closed", None),
            ("", None),
        ] {
            assert_eq!(canonical_of(header), found, "{header}");
        }
    }
}
