//! What a payload is, told by its first bytes: what the server says of it is another matter, and both are counted.
//!
//! Only what the reader has in memory anyway is looked at, and of a compressed payload as much as gives one such look. Markup is
//! told as WHATWG's MIME sniffing tells it, binary formats by `infer`; texts, JSON and WARC by rules of our own. Identifiers are
//! those of PRONOM, where the first bytes say enough for one.

use std::io::Read;

use ecluse_warc::{HttpHead, Record};
use flate2::{Decompress, FlushDecompress};

/// So much of a payload is looked at.
const LOOKED_AT: usize = 1445;

/// So much of a compressed payload is enough for that.
const PACKED: usize = 4096;

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FoundFormat {
    /// Its media type; `-` where there was nothing to look at.
    pub(crate) media_type: &'static str,
    /// Its identifier in PRONOM.
    pub(crate) puid: Option<&'static str>,
}

impl FoundFormat {
    const NOTHING: Self = Self::of("-", None);

    const fn of(media_type: &'static str, puid: Option<&'static str>) -> Self {
        Self { media_type, puid }
    }
}

/// Looks at payloads, with buffers that serve for all of them.
pub(crate) struct FormatFinder {
    inflate: Decompress,
    unpacked: Vec<u8>,
}

impl FormatFinder {
    pub(crate) fn new() -> Self {
        Self {
            inflate: Decompress::new(false),
            unpacked: vec![0; LOOKED_AT],
        }
    }

    /// Returns what the payload of a record is.
    pub(crate) fn find<Source: Read>(&mut self, record: &Record<'_, Source>) -> FoundFormat {
        let block = record.block_start();
        match record.http() {
            Some(head) => self.find_in_message(block, head),
            None => format_of(block),
        }
    }

    fn find_in_message(&mut self, block: &[u8], head: HttpHead<'_>) -> FoundFormat {
        let body = head.head_bytes().and_then(|at| block.get(at..));
        let Some(mut body) = body else {
            return FoundFormat::NOTHING;
        };
        if head.is_chunked() {
            body = first_chunk(body);
        }
        let encoding = head.field("Content-Encoding");
        let encoding = encoding.map(|field| field.value().to_ascii_lowercase());
        let encoding = encoding.as_deref().map(<[u8]>::trim_ascii);
        match encoding {
            None | Some(b"" | b"identity" | b"none") => format_of(body),
            Some(b"gzip" | b"x-gzip") => match gzip_data(body) {
                Some(packed) => format_of(self.unpack(packed)),
                // It says so and is not.
                None => format_of(body),
            },
            Some(b"deflate") if body.first().is_some_and(|byte| byte & 0x0f == 8) => {
                format_of(self.unpack(body.get(2..).unwrap_or_default()))
            }
            Some(_) => FoundFormat::NOTHING,
        }
    }

    /// Returns the beginning of a raw deflate stream, unpacked as far as it can be.
    fn unpack(&mut self, packed: &[u8]) -> &[u8] {
        let packed = &packed[..packed.len().min(PACKED)];
        self.inflate.reset(false);
        let flush = FlushDecompress::None;
        // A damaged stream gives what came before the damage.
        let _ = self.inflate.decompress(packed, &mut self.unpacked, flush);
        let bytes = usize::try_from(self.inflate.total_out()).unwrap_or(0);
        &self.unpacked[..bytes.min(LOOKED_AT)]
    }
}

/// Returns what follows the length of the first chunk; all of it where there is no length.
fn first_chunk(body: &[u8]) -> &[u8] {
    let digits = body.iter().take_while(|byte| byte.is_ascii_hexdigit());
    let digits = digits.count();
    if digits == 0 || digits > 8 {
        return body;
    }
    let line = &body[..body.len().min(256)];
    match memchr::memchr(b'\n', line) {
        Some(end) => &body[end + 1..],
        None => body,
    }
}

/// Returns the deflate stream of a gzip member.
fn gzip_data(body: &[u8]) -> Option<&[u8]> {
    const NAME: u8 = 8;
    const COMMENT: u8 = 16;
    const EXTRA: u8 = 4;
    const CHECK: u8 = 2;
    let [0x1f, 0x8b, 8, flags, _, _, _, _, _, _, rest @ ..] = body else {
        return None;
    };
    let mut rest = rest;
    if flags & EXTRA != 0 {
        let [low, high, extra @ ..] = rest else {
            return None;
        };
        rest = extra.get(usize::from(u16::from_le_bytes([*low, *high]))..)?;
    }
    for flag in [NAME, COMMENT] {
        if flags & flag != 0 {
            rest = &rest[memchr::memchr(0, rest)? + 1..];
        }
    }
    match flags & CHECK {
        0 => Some(rest),
        _ => rest.get(2..),
    }
}

/// Returns what some bytes begin.
fn format_of(bytes: &[u8]) -> FoundFormat {
    let bytes = &bytes[..bytes.len().min(LOOKED_AT)];
    if bytes.is_empty() {
        return FoundFormat::NOTHING;
    }
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = text.trim_ascii_start();
    match text.first() {
        Some(b'<') => markup_of(bytes, text),
        Some(b'{' | b'[') if is_json(text) => FoundFormat::of("application/json", Some("fmt/817")),
        Some(b'W') if text.starts_with(b"WARC/") => {
            FoundFormat::of("application/warc", Some("fmt/289"))
        }
        _ => binary_of(bytes).unwrap_or_else(|| text_of(bytes)),
    }
}

fn markup_of(bytes: &[u8], text: &[u8]) -> FoundFormat {
    let has = |word: &[u8]| find_ignoring_case(text, word);
    if text.starts_with(b"<?xml") || text.starts_with(b"<svg") || text.starts_with(b"<!DOCTYPE svg")
    {
        return match () {
            () if has(b"<svg") => FoundFormat::of("image/svg+xml", svg_version(text)),
            () if has(b"<html") => FoundFormat::of("application/xhtml+xml", html_version(text)),
            () if has(b"<rss") => FoundFormat::of("application/rss+xml", Some("fmt/101")),
            () if has(b"<feed") => FoundFormat::of("application/atom+xml", Some("fmt/101")),
            () => FoundFormat::of("text/xml", Some("fmt/101")),
        };
    }
    if infer::text::is_html(text) {
        return FoundFormat::of("text/html", html_version(text));
    }
    text_of(bytes)
}

/// The version of HTML is what its document type says.
fn html_version(text: &[u8]) -> Option<&'static str> {
    let doctype = &text[..text.len().min(512)];
    let has = |word: &[u8]| find_ignoring_case(doctype, word);
    Some(match () {
        () if has(b"//DTD XHTML 1.0") => "fmt/102",
        () if has(b"//DTD XHTML 1.1") => "fmt/103",
        () if has(b"//DTD HTML 4.01") => "fmt/100",
        () if has(b"//DTD HTML 4.0") => "fmt/99",
        () if has(b"//DTD HTML 3.2") => "fmt/98",
        () if has(b"//IETF//DTD HTML") => "fmt/97",
        () if has(b"<!doctype html>") => "fmt/471",
        () => "fmt/96",
    })
}

fn svg_version(text: &[u8]) -> Option<&'static str> {
    let has = |word: &[u8]| find_ignoring_case(text, word);
    match () {
        () if has(b"version=\"1.1\"") => Some("fmt/92"),
        () if has(b"version=\"1.0\"") => Some("fmt/91"),
        () => None,
    }
}

/// JSON begins an object with a name, or an array with a value; a script begins otherwise.
fn is_json(text: &[u8]) -> bool {
    let inside = text[1..].trim_ascii_start().first();
    match (text[0], inside) {
        (b'{', Some(b'"' | b'}')) | (b'[', Some(b'{' | b'[' | b'"' | b']' | b'-')) => true,
        (b'[', Some(byte)) => byte.is_ascii_digit(),
        _ => false,
    }
}

/// Returns the binary format that its magic number tells.
fn binary_of(bytes: &[u8]) -> Option<FoundFormat> {
    let kind = infer::get(bytes)?;
    let media_type = kind.mime_type();
    // What begins a script or a page is a text to us.
    if kind.matcher_type() == infer::MatcherType::Text {
        return None;
    }
    Some(FoundFormat::of(media_type, puid_of(media_type, bytes)))
}

/// What has no bytes that no text has is a text.
fn text_of(bytes: &[u8]) -> FoundFormat {
    let is_wide = bytes.starts_with(b"\xfe\xff") || bytes.starts_with(b"\xff\xfe");
    // WHATWG's binary data bytes.
    let is_binary = |byte: &u8| matches!(byte, 0..=0x08 | 0x0b | 0x0e..=0x1a | 0x1c..=0x1f);
    match is_wide || !bytes.iter().any(is_binary) {
        true => FoundFormat::of("text/plain", Some("x-fmt/111")),
        false => FoundFormat::of("application/octet-stream", None),
    }
}

/// The identifiers that a media type and a few more bytes give.
const PUIDS: [(&str, &str); 30] = [
    ("application/epub+zip", "fmt/483"),
    ("application/gzip", "x-fmt/266"),
    (
        "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        "fmt/215",
    ),
    (
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "fmt/214",
    ),
    (
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "fmt/412",
    ),
    ("application/x-7z-compressed", "fmt/484"),
    ("application/x-bzip2", "x-fmt/268"),
    ("application/x-ole-storage", "fmt/111"),
    ("application/x-tar", "x-fmt/265"),
    ("application/zip", "x-fmt/263"),
    ("audio/mpeg", "fmt/134"),
    ("audio/x-flac", "fmt/279"),
    ("font/woff", "fmt/616"),
    ("font/woff2", "fmt/1172"),
    ("font/otf", "fmt/520"),
    ("font/ttf", "x-fmt/453"),
    ("application/font-woff", "fmt/616"),
    ("application/font-sfnt", "x-fmt/453"),
    ("image/heif", "fmt/1101"),
    ("image/jp2", "x-fmt/392"),
    ("image/jxl", "fmt/1484"),
    ("image/tiff", "fmt/353"),
    ("image/vnd.microsoft.icon", "x-fmt/418"),
    ("image/x-icon", "x-fmt/418"),
    ("video/mp4", "fmt/199"),
    ("video/webm", "fmt/573"),
    ("video/x-flv", "x-fmt/382"),
    ("video/x-matroska", "fmt/569"),
    ("video/x-ms-wmv", "fmt/133"),
    ("video/x-msvideo", "fmt/5"),
];

fn puid_of(media_type: &str, bytes: &[u8]) -> Option<&'static str> {
    match media_type {
        "application/pdf" => pdf_version(bytes),
        "image/gif" => match bytes.get(4) {
            Some(b'7') => Some("fmt/3"),
            Some(b'9') => Some("fmt/4"),
            _ => None,
        },
        "image/jpeg" => match bytes.get(6..13) {
            Some([b'J', b'F', b'I', b'F', 0, 1, 0]) => Some("fmt/42"),
            Some([b'J', b'F', b'I', b'F', 0, 1, 1]) => Some("fmt/43"),
            Some([b'J', b'F', b'I', b'F', 0, 1, 2]) => Some("fmt/44"),
            Some([b'E', b'x', b'i', b'f', ..]) => None,
            _ => Some("fmt/41"),
        },
        "image/webp" => match bytes.get(12..16) {
            Some(b"VP8 ") => Some("fmt/566"),
            Some(b"VP8L") => Some("fmt/567"),
            Some(b"VP8X") => Some("fmt/568"),
            _ => None,
        },
        _ => {
            let mut known = PUIDS.iter();
            let found = known.find(|(known, _)| *known == media_type);
            found.map(|(_, puid)| *puid)
        }
    }
}

fn pdf_version(bytes: &[u8]) -> Option<&'static str> {
    match bytes.strip_prefix(b"%PDF-")?.get(..3)? {
        b"1.0" => Some("fmt/14"),
        b"1.1" => Some("fmt/15"),
        b"1.2" => Some("fmt/16"),
        b"1.3" => Some("fmt/17"),
        b"1.4" => Some("fmt/18"),
        b"1.5" => Some("fmt/19"),
        b"1.6" => Some("fmt/20"),
        b"1.7" => Some("fmt/276"),
        b"2.0" => Some("fmt/1129"),
        _ => None,
    }
}

fn find_ignoring_case(text: &[u8], word: &[u8]) -> bool {
    let first = word[0];
    let begins = memchr::memchr2_iter(first.to_ascii_lowercase(), first.to_ascii_uppercase(), text);
    let mut begins = begins.filter_map(|at| text.get(at..at + word.len()));
    begins.any(|found| found.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn message(head: &str, body: &[u8]) -> Vec<u8> {
        [b"HTTP/1.1 200 OK\r\n", head.as_bytes(), b"\r\n", body].concat()
    }

    fn found(block: &[u8]) -> String {
        let head = HttpHead::parse(block).unwrap();
        let found = FormatFinder::new().find_in_message(block, head);
        format!("{} {}", found.media_type, found.puid.unwrap_or("-"))
    }

    #[test]
    fn first_bytes_tell_the_format() {
        for (bytes, expected) in [
            (
                &b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x02"[..],
                "image/jpeg fmt/44",
            ),
            (b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x01", "image/jpeg fmt/43"),
            (b"\xff\xd8\xff\xdb....", "image/jpeg fmt/41"),
            (b"GIF89a....", "image/gif fmt/4"),
            (b"%PDF-1.4\n", "application/pdf fmt/18"),
            (b"PK\x03\x04....", "application/zip x-fmt/263"),
            (b"RIFF....WEBPVP8L", "image/webp fmt/567"),
            (b"<!DOCTYPE html><title>a", "text/html fmt/471"),
            (b"\xef\xbb\xbf \n<HTML><body>", "text/html fmt/96"),
            (
                b"<!DOCTYPE HTML PUBLIC \"-//W3C//DTD HTML 4.01//EN\"><html>",
                "text/html fmt/100",
            ),
            (
                b"<?xml version='1.0'?><html xmlns='x'>",
                "application/xhtml+xml fmt/96",
            ),
            (b"<?xml version='1.0'?><a/>", "text/xml fmt/101"),
            (
                b"<?xml version='1.0'?>\n<rss version='2.0'>",
                "application/rss+xml fmt/101",
            ),
            (b"<svg xmlns='x' version=\"1.1\">", "image/svg+xml fmt/92"),
            (b" {\"a\": 1}", "application/json fmt/817"),
            (b"[1, 2]", "application/json fmt/817"),
            (b"[a, b] = c", "text/plain x-fmt/111"),
            (b"{ color: red }", "text/plain x-fmt/111"),
            (b"WARC/1.0\r\nWARC-Type: x", "application/warc fmt/289"),
            (b"d\xe9j\xe0 vu", "text/plain x-fmt/111"),
            (b"\xff\xfea\0b\0", "text/plain x-fmt/111"),
            (b"\0\x01\x02 nobody's", "application/octet-stream -"),
            (b"", "- -"),
        ] {
            let block = message("Content-Type: text/plain\r\n", bytes);
            assert_eq!(found(&block), expected, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn chunks_and_encodings_are_undone_as_far_as_needed() {
        let page = [&b"<html>"[..], &[b'x'; 9000]].concat();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&page).unwrap();
        let gzip = gzip.finish().unwrap();
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        zlib.write_all(&page).unwrap();
        let zlib = zlib.finish().unwrap();
        let chunked = |bytes: &[u8]| {
            let mut chunk = format!("{:x};x=y\r\n", bytes.len()).into_bytes();
            chunk.extend_from_slice(bytes);
            chunk
        };
        for (head, body, expected) in [
            (
                "Content-Encoding: GZIP \r\n",
                gzip.clone(),
                "text/html fmt/96",
            ),
            (
                "Content-Encoding: gzip\r\n",
                page.clone(),
                "text/html fmt/96",
            ),
            (
                "Content-Encoding: gzip\r\n",
                gzip[..9].to_vec(),
                "application/gzip x-fmt/266",
            ),
            ("Content-Encoding: deflate\r\n", zlib, "text/html fmt/96"),
            ("Content-Encoding: br\r\n", page.clone(), "- -"),
            (
                "Transfer-Encoding: chunked\r\n",
                chunked(&page),
                "text/html fmt/96",
            ),
            (
                "Transfer-Encoding: chunked\r\n",
                page.clone(),
                "text/html fmt/96",
            ),
            (
                "Transfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n",
                chunked(&gzip),
                "text/html fmt/96",
            ),
            ("", gzip, "application/gzip x-fmt/266"),
        ] {
            let block = message(head, &body);
            assert_eq!(found(&block), expected, "{head}");
        }
    }
}
