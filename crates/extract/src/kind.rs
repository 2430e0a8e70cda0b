//! What a document is: by its header, its name and its first bytes, in this order.

use url::Url;

/// What a document is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DocumentKind {
    /// HTML.
    Html,
    /// XHTML or SVG: the elements of HTML, the syntax of XML.
    Xhtml,
    /// A style sheet.
    Css,
    /// JavaScript.
    Script,
    /// JSON, a web manifest too.
    Json,
    /// A sitemap, or an index of them.
    Sitemap,
    /// XML: RSS, Atom and all other.
    Xml,
    /// `robots.txt`.
    Robots,
    /// A sitemap in plain text: one URL a line.
    UrlList,
    /// A media playlist (HLS).
    Playlist,
    /// Nothing that links are looked for in.
    Other,
}

/// Returns what a document is; `start` is its first few thousand bytes, without a byte order mark, in an encoding like ASCII.
pub(crate) fn kind_of(url: &Url, content_type: Option<&str>, start: &[u8]) -> DocumentKind {
    let essence = content_type.map(essence).unwrap_or_default();
    match essence.as_str() {
        "text/html" => match root(start) {
            // Feeds and sitemaps are sent as HTML often enough that the MIME sniffing standard has a rule for it.
            Some("urlset" | "sitemapindex") => DocumentKind::Sitemap,
            Some("rss" | "feed" | "RDF") => DocumentKind::Xml,
            _ => DocumentKind::Html,
        },
        "application/xhtml+xml" | "application/vnd.wap.xhtml+xml" | "image/svg+xml" => {
            DocumentKind::Xhtml
        }
        "text/css" => DocumentKind::Css,
        "application/vnd.apple.mpegurl"
        | "application/x-mpegurl"
        | "audio/mpegurl"
        | "audio/x-mpegurl" => DocumentKind::Playlist,
        "text/plain" => plain(url, start),
        ""
        | "application/octet-stream"
        | "binary/octet-stream"
        | "unknown/unknown"
        | "application/unknown"
        | "application/x-unknown-content-type"
        | "*/*" => unnamed(url, start),
        other if is_script(other) => DocumentKind::Script,
        other if is_json(other) => DocumentKind::Json,
        "text/xml" | "application/xml" => xml(start),
        other if other.ends_with("+xml") => xml(start),
        other => unlisted(other, start),
    }
}

/// A type that nobody knows, as `application/xhtml`: its first bytes may still be markup.
fn unlisted(essence: &str, start: &[u8]) -> DocumentKind {
    let (top, _) = essence.split_once('/').unwrap_or_default();
    if matches!(top, "image" | "audio" | "video" | "font") {
        return DocumentKind::Other;
    }
    let text = start.trim_ascii_start();
    match markup(text) {
        Some(kind) => kind,
        None if essence.contains("html") && !is_binary(text) => DocumentKind::Html,
        None => DocumentKind::Other,
    }
}

/// Returns the type and subtype of a `Content-Type`, in lower case.
pub(crate) fn essence(content_type: &str) -> String {
    content_type
        .split([';', ','])
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
}

/// Tells the types of JavaScript, of which there have been many.
pub(crate) fn is_script(essence: &str) -> bool {
    let Some((top, name)) = essence.split_once('/') else {
        return false;
    };
    let name = name.strip_prefix("x-").unwrap_or(name);
    matches!(top, "text" | "application")
        && (matches!(name, "ecmascript" | "jscript" | "livescript")
            || name.starts_with("javascript"))
}

/// Tells the types of JSON.
pub(crate) fn is_json(essence: &str) -> bool {
    essence.ends_with("+json")
        || essence.ends_with("/json")
        || matches!(essence, "application/x-json" | "application/x-ndjson")
}

fn xml(start: &[u8]) -> DocumentKind {
    match root(start) {
        Some("html" | "svg") => DocumentKind::Xhtml,
        Some("urlset" | "sitemapindex") => DocumentKind::Sitemap,
        _ => DocumentKind::Xml,
    }
}

fn plain(url: &Url, start: &[u8]) -> DocumentKind {
    let path = url.path();
    if path == "/robots.txt" {
        DocumentKind::Robots
    } else if path.contains("sitemap") && path.strip_suffix(".gz").unwrap_or(path).ends_with(".txt")
    {
        DocumentKind::UrlList
    } else {
        match by_name(url) {
            // What a server calls plain text on purpose is not markup, whatever its name.
            Some(
                kind @ (DocumentKind::Css
                | DocumentKind::Script
                | DocumentKind::Json
                | DocumentKind::Playlist),
            ) => kind,
            Some(DocumentKind::Xml) => xml(start),
            _ => DocumentKind::Other,
        }
    }
}

fn unnamed(url: &Url, start: &[u8]) -> DocumentKind {
    let text = start.trim_ascii_start();
    if is_binary(text) {
        return DocumentKind::Other;
    }
    if url.path() == "/robots.txt" {
        return DocumentKind::Robots;
    }
    match markup(text) {
        Some(kind) => kind,
        None if text.starts_with(b"#EXTM3U") => DocumentKind::Playlist,
        None => by_name(url).unwrap_or_else(|| plain(url, start)),
    }
}

/// What a text is that begins with a tag or a document type.
fn markup(text: &[u8]) -> Option<DocumentKind> {
    if is_binary(text) {
        return None;
    }
    Some(match root(text) {
        Some("urlset" | "sitemapindex") => DocumentKind::Sitemap,
        Some("svg") => DocumentKind::Xhtml,
        Some("html") if text.starts_with(b"<?xml") => DocumentKind::Xhtml,
        Some(_) if text.starts_with(b"<?xml") => DocumentKind::Xml,
        Some("rss" | "feed" | "RDF") => DocumentKind::Xml,
        Some(name) if is_html(name) => DocumentKind::Html,
        _ if doctype_is_html(text) => DocumentKind::Html,
        _ => return None,
    })
}

fn by_name(url: &Url) -> Option<DocumentKind> {
    let name = url.path().rsplit('/').next()?;
    let (_, extension) = name.rsplit_once('.')?;
    Some(match extension.to_ascii_lowercase().as_str() {
        "html" | "htm" | "shtml" | "php" | "asp" | "aspx" | "jsp" => DocumentKind::Html,
        "xhtml" | "xht" | "svg" => DocumentKind::Xhtml,
        "css" => DocumentKind::Css,
        "js" | "mjs" => DocumentKind::Script,
        "json" | "webmanifest" | "jsonld" | "geojson" => DocumentKind::Json,
        "xml" | "rss" | "atom" | "rdf" => DocumentKind::Xml,
        "m3u8" => DocumentKind::Playlist,
        _ => return None,
    })
}

fn is_html(name: &str) -> bool {
    const NAMES: [&str; 21] = [
        "html", "head", "body", "title", "script", "iframe", "h1", "div", "font", "table", "a",
        "style", "b", "br", "p", "meta", "link", "frameset", "img", "center", "span",
    ];
    NAMES.iter().any(|known| known.eq_ignore_ascii_case(name))
}

fn doctype_is_html(text: &[u8]) -> bool {
    text.get(..14)
        .is_some_and(|start| start.eq_ignore_ascii_case(b"<!doctype html"))
}

/// Bytes that text does not have, as the MIME sniffing standard lists them.
fn is_binary(text: &[u8]) -> bool {
    text.iter()
        .take(1024)
        .any(|byte| matches!(byte, 0..=8 | 0x0B | 0x0E..=0x1A | 0x1C..=0x1F))
}

/// Returns the name of the first element, without its prefix.
fn root(start: &[u8]) -> Option<&str> {
    let mut rest = start;
    // A document that opens with ten comments is not worth an eleventh look.
    for _ in 0..10 {
        rest = rest.trim_ascii_start().strip_prefix(b"<")?;
        let end: &[u8] = if rest.starts_with(b"!--") {
            b"-->"
        } else if rest.starts_with(b"?") || rest.starts_with(b"!") {
            b">"
        } else {
            let end = rest
                .iter()
                .position(|byte| matches!(byte, b'>' | b'/') || byte.is_ascii_whitespace())
                .unwrap_or(rest.len());
            let name = str::from_utf8(&rest[..end]).ok()?;
            let name = name.rsplit(':').next().unwrap_or(name);
            return (!name.is_empty()).then_some(name);
        };
        let at = memchr::memmem::find(rest, end)?;
        rest = &rest[at + end.len()..];
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(path: &str, content_type: Option<&str>, start: &str) -> DocumentKind {
        let url = Url::parse("http://lock.example").unwrap();
        kind_of(&url.join(path).unwrap(), content_type, start.as_bytes())
    }

    #[test]
    fn the_header_comes_first() {
        for (content_type, start, expected) in [
            ("text/html; charset=utf-8", "", DocumentKind::Html),
            ("TEXT/HTML", "var x", DocumentKind::Html),
            ("text/html", "<?xml version='1.0'?><rss>", DocumentKind::Xml),
            ("text/html", "<!-- x --><urlset>", DocumentKind::Sitemap),
            (
                "text/html",
                "<?xml version='1.0'?><html>",
                DocumentKind::Html,
            ),
            ("application/xhtml+xml", "", DocumentKind::Xhtml),
            ("image/svg+xml", "<svg>", DocumentKind::Xhtml),
            ("text/css", "<html>", DocumentKind::Css),
            ("application/javascript", "", DocumentKind::Script),
            ("text/x-javascript", "", DocumentKind::Script),
            ("text/javascript1.5", "", DocumentKind::Script),
            ("application/ld+json", "", DocumentKind::Json),
            ("application/manifest+json", "", DocumentKind::Json),
            ("application/json;x", "", DocumentKind::Json),
            (
                "application/xml",
                "<?xml?><sitemapindex xmlns='x'>",
                DocumentKind::Sitemap,
            ),
            ("text/xml", "<!DOCTYPE html><html>", DocumentKind::Xhtml),
            ("application/rss+xml", "<rss>", DocumentKind::Xml),
            ("application/vnd.apple.mpegurl", "", DocumentKind::Playlist),
            ("image/png", "<html>", DocumentKind::Other),
            ("application/pdf", "", DocumentKind::Other),
            ("text/plain", "<html>", DocumentKind::Other),
            ("nonsense", "", DocumentKind::Other),
            ("nonsense", "<!DOCTYPE html>", DocumentKind::Html),
            ("application/xhtml", "<a href=x>", DocumentKind::Html),
            ("text/x-server-parsed-html", "<form>", DocumentKind::Html),
            (
                "application/msword",
                "<?xml version='1.0'?><html>",
                DocumentKind::Xhtml,
            ),
            ("application/msword", "\u{1}<html>", DocumentKind::Other),
            ("text/x-csrc", "#include <html>", DocumentKind::Other),
        ] {
            assert_eq!(
                kind("/x", Some(content_type), start),
                expected,
                "{content_type}"
            );
        }
    }

    #[test]
    fn without_a_header_the_bytes_speak_and_then_the_name() {
        for (path, start, expected) in [
            ("/", " <!DOCTYPE HTML>", DocumentKind::Html),
            ("/", "<HTML>", DocumentKind::Html),
            ("/", "<a href=x>", DocumentKind::Html),
            (
                "/",
                "<?xml version='1.0'?>\n<!-- x --><html>",
                DocumentKind::Xhtml,
            ),
            ("/", "<?xml version='1.0'?><x:feed>", DocumentKind::Xml),
            ("/", "#EXTM3U\n", DocumentKind::Playlist),
            ("/a.css", "a{}", DocumentKind::Css),
            ("/a.JS?x", "a{}", DocumentKind::Script),
            ("/a.css", "<!doctype html>", DocumentKind::Html),
            ("/a.js", "\0\u{1}", DocumentKind::Other),
            ("/robots.txt", "User-agent: *", DocumentKind::Robots),
            ("/", "words", DocumentKind::Other),
            ("/", "", DocumentKind::Other),
        ] {
            assert_eq!(kind(path, None, start), expected, "{path} {start}");
        }
    }

    #[test]
    fn plain_text_is_looked_into_by_its_name() {
        for (path, expected) in [
            ("/robots.txt", DocumentKind::Robots),
            ("/a/robots.txt", DocumentKind::Other),
            ("/sitemap1.txt", DocumentKind::UrlList),
            ("/sitemap1.txt.gz", DocumentKind::UrlList),
            ("/a.js", DocumentKind::Script),
            ("/a.html", DocumentKind::Other),
            ("/notes.txt", DocumentKind::Other),
        ] {
            assert_eq!(kind(path, Some("text/plain"), "x"), expected, "{path}");
        }
    }
}
