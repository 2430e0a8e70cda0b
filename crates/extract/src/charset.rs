//! Which character set a document is in: byte order mark, header, the document's own word, the hint, the bytes.
//!
//! The order is that of the HTML standard; what the standard leaves to the browser's locale is left to chardetng.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252, X_USER_DEFINED};

use crate::kind::DocumentKind;

/// How much of a document is searched for its own word on its character set; the standard asks for 1,024 bytes.
const DECLARATION: usize = 4096;

/// Who said what the character set is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CharsetSource {
    /// A byte order mark, or the zero bytes of UTF-16.
    Mark,
    /// The header.
    Header,
    /// The document.
    Declared,
    /// The caller's hint.
    Hint,
    /// The bytes, by statistics.
    Detected,
    /// Nobody: it is what the format is in if nobody says.
    Assumed,
}

/// Returns the charset parameter of a `Content-Type`.
pub(crate) fn parameter(content_type: &str) -> Option<&'static Encoding> {
    let (_, parameters) = content_type.split_once(';')?;
    parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim()
            .eq_ignore_ascii_case("charset")
            .then(|| Encoding::for_label(value.trim().trim_matches(['"', '\'']).as_bytes()))?
    })
}

/// Returns what a byte order mark says, and its length; UTF-16 is known by its zeros too.
pub(crate) fn mark(start: &[u8]) -> Option<(&'static Encoding, usize)> {
    if let Some(found) = Encoding::for_bom(start) {
        return Some(found);
    }
    match start {
        [b'<', 0, next, 0, ..] if *next != 0 => Some((UTF_16LE, 0)),
        [0, b'<', 0, next, ..] if *next != 0 => Some((UTF_16BE, 0)),
        _ => None,
    }
}

/// What a caller may say of a charset, before any byte is counted; `None` leaves it to [`guess`].
pub(crate) fn told(
    kind: DocumentKind,
    header: Option<&'static Encoding>,
    hint: Option<&'static Encoding>,
    start: &[u8],
) -> Option<(&'static Encoding, CharsetSource)> {
    if kind == DocumentKind::Json {
        return Some((UTF_8, CharsetSource::Assumed));
    }
    if let Some(encoding) = header {
        return Some((encoding, CharsetSource::Header));
    }
    let start = &start[..start.len().min(DECLARATION)];
    let declared = match kind {
        DocumentKind::Html => meta(start),
        DocumentKind::Xhtml | DocumentKind::Xml | DocumentKind::Sitemap => {
            declaration(start).or_else(|| meta(start))
        }
        DocumentKind::Css => at_rule(start),
        DocumentKind::Script
        | DocumentKind::Json
        | DocumentKind::Robots
        | DocumentKind::UrlList
        | DocumentKind::Playlist
        | DocumentKind::Other => None,
    };
    if let Some(encoding) = declared {
        return Some((read_as_ascii(encoding), CharsetSource::Declared));
    }
    match kind {
        DocumentKind::Xhtml | DocumentKind::Xml | DocumentKind::Sitemap => {
            Some((UTF_8, CharsetSource::Assumed))
        }
        _ => hint.map(|encoding| (encoding, CharsetSource::Hint)),
    }
}

/// Tells whether bytes are UTF-8 to their end; a piece may end inside a character. To find that out costs a hundredth of the
/// statistics of all other encodings, and half of a crawl's time went into these.
fn is_utf8(bytes: &[u8], whole: bool) -> bool {
    match std::str::from_utf8(bytes) {
        Ok(_) => true,
        Err(error) => !whole && error.valid_up_to() > 0 && error.error_len().is_none(),
    }
}

/// Guesses from bytes of which the first is not ASCII.
pub(crate) fn guess(bytes: &[u8], whole: bool, host: Option<&str>) -> &'static Encoding {
    if is_utf8(bytes, whole) {
        return UTF_8;
    }
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Allow);
    detector.feed(bytes, whole);
    let domain = host
        .and_then(|host| host.rsplit('.').next())
        .filter(|domain| {
            !domain.is_empty()
                && domain
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'-')
        });
    detector.guess(domain.map(str::as_bytes), Utf8Detection::Allow)
}

/// A document that could be read so far as to say UTF-16 is not in UTF-16.
fn read_as_ascii(encoding: &'static Encoding) -> &'static Encoding {
    if encoding == UTF_16LE || encoding == UTF_16BE {
        UTF_8
    } else if encoding == X_USER_DEFINED {
        WINDOWS_1252
    } else {
        encoding
    }
}

/// `<?xml version="1.0" encoding="…"?>`
fn declaration(start: &[u8]) -> Option<&'static Encoding> {
    let start = start.strip_prefix(b"<?xml")?;
    let start = &start[..memchr::memmem::find(start, b"?>")?];
    let at = memchr::memmem::find(start, b"encoding")?;
    label(&start[at + 8..])
}

/// `@charset "…";` and nothing else, says CSS Syntax.
fn at_rule(start: &[u8]) -> Option<&'static Encoding> {
    let start = start.strip_prefix(b"@charset \"")?;
    let end = memchr::memmem::find(start, b"\";")?;
    Encoding::for_label(&start[..end])
}

/// `<meta charset=…>`, or the charset in any other attribute of a `meta` element, outside of comments.
fn meta(start: &[u8]) -> Option<&'static Encoding> {
    let mut rest = start;
    loop {
        rest = &rest[memchr::memchr(b'<', rest)? + 1..];
        if rest.starts_with(b"!--") {
            rest = &rest[memchr::memmem::find(rest, b"-->")?..];
        } else if rest.len() > 5
            && rest[..4].eq_ignore_ascii_case(b"meta")
            && (rest[4] == b'/' || rest[4].is_ascii_whitespace())
        {
            let tag = &rest[..memchr::memchr(b'>', rest).unwrap_or(rest.len())];
            if let Some(encoding) = charset_in(tag) {
                return Some(encoding);
            }
        }
    }
}

fn charset_in(tag: &[u8]) -> Option<&'static Encoding> {
    let tag = tag.to_ascii_lowercase();
    memchr::memmem::find_iter(&tag, b"charset").find_map(|at| label(&tag[at + 7..]))
}

/// Reads `= "label"` with or without quotes.
fn label(text: &[u8]) -> Option<&'static Encoding> {
    let text = text.trim_ascii_start().strip_prefix(b"=")?;
    let text = text.trim_ascii_start();
    let text = text
        .strip_prefix(b"\"")
        .or(text.strip_prefix(b"'"))
        .unwrap_or(text);
    let end = text
        .iter()
        .position(|byte| {
            matches!(byte, b'"' | b'\'' | b';' | b'/' | b'>') || byte.is_ascii_whitespace()
        })
        .unwrap_or(text.len());
    Encoding::for_label(&text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(found: Option<&'static Encoding>) -> &'static str {
        found.map_or("", Encoding::name)
    }

    #[test]
    fn the_header_parameter_is_read_in_every_form() {
        for (value, expected) in [
            ("text/html; charset=utf-8", "UTF-8"),
            ("text/html;x=y;Charset=\"ISO-8859-1\"", "windows-1252"),
            ("text/html; charset = 'sjis'", "Shift_JIS"),
            ("text/html; charset=none", ""),
            ("text/html", ""),
        ] {
            assert_eq!(name(parameter(value)), expected, "{value}");
        }
    }

    #[test]
    fn a_page_declares_its_charset() {
        for (page, expected) in [
            ("<meta charset=shift_jis>", "Shift_JIS"),
            ("<META CHARSET='euc-jp' />", "EUC-JP"),
            (
                "<meta http-equiv=Content-Type content='text/html; charset=koi8-r'>",
                "KOI8-R",
            ),
            ("<!-- <meta charset=koi8-r> --><meta charset=gbk>", "GBK"),
            ("<meta name=x content='charset'><meta charset=big5>", "Big5"),
            ("<metal charset=gbk>", ""),
            ("<meta charset=nonsense>", ""),
            ("<meta charset=", ""),
            ("<meta", ""),
        ] {
            assert_eq!(name(meta(page.as_bytes())), expected, "{page}");
        }
        assert_eq!(
            told(DocumentKind::Html, None, None, b"<meta charset=utf-16>"),
            Some((UTF_8, CharsetSource::Declared))
        );
    }

    #[test]
    fn style_sheets_and_xml_declare_theirs() {
        assert_eq!(name(at_rule(b"@charset \"iso-8859-2\"; a{}")), "ISO-8859-2");
        assert_eq!(name(at_rule(b"@charset iso-8859-2; a{}")), "");
        assert_eq!(
            name(declaration(b"<?xml version='1.0' encoding='iso-8859-15'?>")),
            "ISO-8859-15"
        );
        assert_eq!(
            name(declaration(b"<?xml version='1.0'?><a encoding='gbk'/>")),
            ""
        );
    }

    #[test]
    fn marks_and_zeros_are_known() {
        assert_eq!(mark(b"\xEF\xBB\xBFx"), Some((UTF_8, 3)));
        assert_eq!(mark(b"\xFF\xFE<\0"), Some((UTF_16LE, 2)));
        assert_eq!(mark(b"<\0!\0"), Some((UTF_16LE, 0)));
        assert_eq!(mark(b"\0<\0h"), Some((UTF_16BE, 0)));
        assert_eq!(mark(b"<htm"), None);
        assert_eq!(mark(b""), None);
    }

    #[test]
    fn the_header_outranks_the_page_and_the_page_the_hint() {
        let page = b"<meta charset=gbk>";
        let (header, hint) = (Encoding::for_label(b"big5"), Encoding::for_label(b"koi8-r"));
        let source = |found: Option<(_, CharsetSource)>| found.map(|(_, source)| source);
        assert_eq!(
            source(told(DocumentKind::Html, header, hint, page)),
            Some(CharsetSource::Header)
        );
        assert_eq!(
            source(told(DocumentKind::Html, None, hint, page)),
            Some(CharsetSource::Declared)
        );
        assert_eq!(
            source(told(DocumentKind::Html, None, hint, b"")),
            Some(CharsetSource::Hint)
        );
        assert_eq!(source(told(DocumentKind::Html, None, None, b"")), None);
        assert_eq!(
            source(told(DocumentKind::Json, header, hint, b"")),
            Some(CharsetSource::Assumed)
        );
    }
}
