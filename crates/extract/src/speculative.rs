//! Which strings look like URLs.
//!
//! A string in a script or a JSON document may be anything. Each rule below turns away one kind of string that only looks like a
//! URL; what is left is worth a request. The rules are told, with examples, in `docs/formats/extraction.md`.

use std::borrow::Cow;

/// Where the string stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ground {
    /// Anywhere in a script.
    Script,
    /// A value in JSON, or an attribute that may hold anything.
    Value,
    /// A value whose key says that it is a link.
    Named,
}

/// Why a string is not taken for a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// Neither a dot nor a slash, or too short to be anything.
    Plain,
    /// Bytes that URLs do not have: spaces, quotes, brackets, backslashes, a stray percent sign.
    Bytes,
    /// A place to fill in: `:id`, `{id}`, `%s`, or an end that waits for more.
    Hole,
    /// A host that is none.
    Host,
    /// The name of a vocabulary.
    Namespace,
    /// `text/html`.
    MimeType,
    /// A relative path without an extension that is known: dates, fractions, time zones, `and/or`.
    NoExtension,
    /// One bare segment, `/month`, or none.
    Segment,
    /// A file name that is as likely a selector, a library or a property.
    Name,
    /// The name of a module in a bundle.
    Module,
    /// A query of an XML document.
    XPath,
    /// Encoded bytes.
    Encoded,
}

/// Returns the URL a string stands for, or why it is taken for none.
pub(crate) fn url_in(text: &str, ground: Ground) -> Result<Cow<'_, str>, Doubt> {
    let text = text.trim_matches(|c: char| c.is_ascii_whitespace());
    let bytes = text.as_bytes();
    if bytes.len() < 2
        || (bytes.len() < 3 && ground != Ground::Named)
        || memchr::memchr2(b'.', b'/', bytes).is_none()
    {
        return Err(Doubt::Plain);
    }
    let whole = match bytes[0] {
        b'h' | b'H' => after_scheme(text),
        b'/' => text.strip_prefix("//"),
        _ => None,
    };
    // A value is data; a string of a script may be a pattern or code, unless it says that it is a URL.
    let strict = ground == Ground::Script && whole.is_none();
    let placed = whole.is_some() || bytes[0] == b'/';
    if check_bytes(bytes, strict, placed)? {
        check_spaces(text, whole, ground)?;
    }
    if let Some(rest) = whole {
        absolute(rest)?;
        if !text.starts_with('/') {
            not_a_namespace(rest)?;
        }
        return Ok(Cow::Borrowed(text));
    }
    if is_web_host(text) {
        return absolute(text).map(|()| Cow::Owned(format!("http://{text}")));
    }
    // Any other scheme, a time of day, a key with a colon.
    let (path, query) = match text.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (text.split('#').next().unwrap_or(text), None),
    };
    let colon = path.contains(':') && (!path.starts_with('/') || path.contains("/:"));
    if colon || path.contains("//") || path.contains("...") {
        return Err(Doubt::Hole);
    }
    if query.is_some_and(|query| query.ends_with(['=', '&'])) || text.ends_with(['?', '=', '&']) {
        return Err(Doubt::Hole);
    }
    match path.strip_prefix('/') {
        Some(path) => rooted(path, query, ground)?,
        None => relative(path, ground)?,
    }
    Ok(Cow::Borrowed(text))
}

/// Tells whether a URL is one even if text is appended to it: `"https://gate.example/a.js" + version`.
pub(crate) fn stands_alone(url: &str) -> bool {
    after_scheme(url)
        .and_then(|rest| rest.split_once('/'))
        .is_some_and(|(_, path)| extension_of(path).is_some())
}

/// Tells a URL of a page from one of a file that a page shows: it has no extension, or one that pages have.
pub(crate) fn is_page(url: &str) -> bool {
    let path = match after_scheme(url).or_else(|| url.strip_prefix("//")) {
        Some(rest) => rest.find('/').map_or("", |at| &rest[at..]),
        None => url,
    };
    extension_of(path).is_none_or(|extension| {
        let extension = extension.to_ascii_lowercase();
        BARE[..PAGES].contains(&extension.as_str())
            || matches!(extension.as_str(), "do" | "action" | "cgi" | "pl" | "md")
    })
}

/// Returns what follows `http://` or `https://`.
pub(crate) fn after_scheme(text: &str) -> Option<&str> {
    ["http://", "https://"].iter().find_map(|scheme| {
        text.get(..scheme.len())
            .filter(|start| start.eq_ignore_ascii_case(scheme))
            .map(|_| &text[scheme.len()..])
    })
}

/// Looks for bytes that URLs do not have; says whether there are spaces, which files have and URLs should not. What is
/// not `placed` at a root has none.
fn check_bytes(bytes: &[u8], strict: bool, placed: bool) -> Result<bool, Doubt> {
    let mut spaces = false;
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            b' ' if placed => spaces = true,
            b'(' | b')' | b'*' if strict => return Err(Doubt::Bytes),
            // `/x/*` and `.*` are patterns, `74*74` is a size.
            b'*' if at == 0
                || bytes.get(at + 1).is_none()
                || matches!(bytes[at - 1], b'/' | b'.' | b'*') =>
            {
                return Err(Doubt::Hole);
            }
            0..=b' '
            | b'"'
            | b'\''
            | b'<'
            | b'>'
            | b'\\'
            | b'^'
            | b'`'
            | b'|'
            | b'['
            | b']'
            | 0x7F => {
                return Err(Doubt::Bytes);
            }
            b'{' | b'}' | b'$' => return Err(Doubt::Hole),
            b'%' if !bytes
                .get(at + 1..at + 3)
                .is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) =>
            {
                return Err(Doubt::Hole);
            }
            _ => {}
        }
    }
    Ok(spaces)
}

/// A string with spaces is a sentence, but for the path of a file: `/Annual reports/Report 2026.pdf`.
fn check_spaces(text: &str, whole: Option<&str>, ground: Ground) -> Result<(), Doubt> {
    let path = match whole {
        Some(rest) => rest.find('/').map(|at| &rest[at..]),
        None => Some(text).filter(|text| text.starts_with('/')),
    };
    let path = path.ok_or(Doubt::Bytes)?;
    let placed = path[1..].starts_with(|c: char| c.is_alphanumeric() || c == '_');
    let known = extension_of(path).is_some() || ground == Ground::Named;
    if placed && known && !path.contains("://") && !path.contains(" /") && !path.contains("  ") {
        Ok(())
    } else {
        Err(Doubt::Bytes)
    }
}

/// Checks what follows the two slashes of an absolute URL.
fn absolute(rest: &str) -> Result<(), Doubt> {
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if path.ends_with(['=', '&']) || path.contains("/:") {
        return Err(Doubt::Hole);
    }
    let host = match authority.rsplit_once(':') {
        Some((host, port))
            if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            host
        }
        Some(_) => return Err(Doubt::Host),
        None => authority,
    };
    let mut labels = host.split('.');
    let last = labels.next_back().unwrap_or_default();
    let numeric =
        host.split('.').count() == 4 && host.split('.').all(|label| label.parse::<u8>().is_ok());
    let named = last.len() >= 2
        && (last.bytes().all(|byte| byte.is_ascii_alphabetic()) || last.starts_with("xn--"));
    let whole = host.contains('.')
        && host.split('.').all(|label| {
            !label.is_empty()
                && label.len() <= 63
                && label.bytes().all(|byte| {
                    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || byte >= 0x80
                })
        });
    if whole && (numeric || named) {
        Ok(())
    } else {
        Err(Doubt::Host)
    }
}

/// Names of vocabularies look like URLs, and a request for one tells nobody anything.
fn not_a_namespace(rest: &str) -> Result<(), Doubt> {
    const VOCABULARIES: [&str; 17] = [
        "www.w3.org/1",
        "www.w3.org/2",
        "www.w3.org/ns/",
        "www.w3.org/TR/",
        "www.w3.org/XML/",
        "schema.org",
        "purl.org/",
        "ns.adobe.com/",
        "xmlns.com/",
        "schemas.",
        "json-schema.org/",
        "www.sitemaps.org/schemas/",
        "search.yahoo.com/mrss",
        "ogp.me/ns",
        "rdfs.org/",
        "www.opengis.net/",
        "www.inkscape.org/namespaces/",
    ];
    if VOCABULARIES.iter().any(|name| rest.starts_with(name)) {
        Err(Doubt::Namespace)
    } else {
        Ok(())
    }
}

/// `www.gate.example/a`, without a scheme.
fn is_web_host(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("www.") else {
        return false;
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    host.contains('.') && !has_extension(host)
}

/// Checks a path from the root, without its first slash.
fn rooted(path: &str, query: Option<&str>, ground: Ground) -> Result<(), Doubt> {
    let segments: Vec<&str> = path.trim_end_matches('/').split('/').take(32).collect();
    let first = segments[0];
    if !first.starts_with(|c: char| {
        c.is_alphanumeric() || matches!(c, '_' | '.' | '~' | '%' | '-' | '@')
    }) {
        let queried = path.is_empty() && query.is_some_and(|query| !query.is_empty());
        return if queried && ground == Ground::Named {
            Ok(())
        } else {
            Err(Doubt::Segment)
        };
    }
    check_modules(&segments)?;
    if extension_of(path).is_some() {
        return Ok(());
    }
    if segments.iter().any(|segment| is_encoded(segment)) || path.starts_with("9j/") {
        return Err(Doubt::Encoded);
    }
    if matches!(segments[..], ["html", "body" | "head", ..]) {
        return Err(Doubt::XPath);
    }
    if ground == Ground::Named {
        return Ok(());
    }
    if segments
        .iter()
        .all(|segment| !has_word(segment) || is_date_field(segment))
    {
        return Err(Doubt::NoExtension);
    }
    match ground {
        Ground::Named | Ground::Value => Err(Doubt::NoExtension),
        Ground::Script if segments.len() > 1 || query.is_some() => {
            if has_word(first) {
                Ok(())
            } else {
                Err(Doubt::NoExtension)
            }
        }
        Ground::Script => Err(Doubt::Segment),
    }
}

/// Checks a path from where the document is.
fn relative(path: &str, ground: Ground) -> Result<(), Doubt> {
    let dotted = path.starts_with("./") || path.starts_with("../");
    let segments: Vec<&str> = path.split('/').take(32).collect();
    check_modules(&segments)?;
    if is_mime_type(&segments) {
        return Err(Doubt::MimeType);
    }
    let Some(extension) = extension_of(path) else {
        // A key that says it is a link may say `../next`, but `en` and `2/3` are no links even then.
        return if dotted && ground == Ground::Named {
            Ok(())
        } else {
            Err(Doubt::NoExtension)
        };
    };
    let first = segments[0];
    if first.is_empty()
        || !first
            .starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '~' | '%' | '-'))
    {
        return Err(Doubt::Name);
    }
    if segments.len() > 1 || ground == Ground::Named {
        return Ok(());
    }
    let stem = &path[..path.len() - extension.len() - 1];
    // `Node.js` and `data.json` name things, and `a.pdf` and `img.png` are selectors.
    let a_name = !BARE.contains(&extension.to_ascii_lowercase().as_str());
    if a_name || is_element(stem) || stem.contains('@') || stem.contains(',') {
        Err(Doubt::Name)
    } else {
        Ok(())
    }
}

fn check_modules(segments: &[&str]) -> Result<(), Doubt> {
    let modular = segments.iter().any(|segment| {
        matches!(
            *segment,
            "node_modules" | "webpack" | "core-js" | "__webpack__"
        )
    }) || (segments.len() > 1 && segments[0].starts_with('@'))
        || matches!(segments, [".", "src", ..]);
    if modular { Err(Doubt::Module) } else { Ok(()) }
}

fn is_mime_type(segments: &[&str]) -> bool {
    matches!(
        segments,
        [
            "application" | "audio" | "font" | "image" | "message" | "model" | "multipart" | "text" | "video" | "chemical",
            subtype
        ] if !has_extension(subtype) || subtype.starts_with("vnd.") || subtype.starts_with("x-")
    )
}

/// A word: two letters in a row.
fn has_word(segment: &str) -> bool {
    segment.as_bytes().windows(2).any(|pair| {
        pair.iter()
            .all(|byte| byte.is_ascii_alphabetic() || *byte >= 0x80)
    })
}

fn is_date_field(segment: &str) -> bool {
    matches!(
        segment.to_ascii_lowercase().as_str(),
        "yy" | "yyyy" | "mm" | "mmm" | "mmmm" | "dd" | "ddd" | "dddd" | "hh" | "ss" | "do"
    )
}

/// A long run of letters and digits in both cases is Base64, a key or a hash, not a name.
fn is_encoded(segment: &str) -> bool {
    segment.len() > 60 && !segment.contains(['-', '_', '.', '%'])
}

fn is_element(stem: &str) -> bool {
    const ELEMENTS: [&str; 24] = [
        "a", "img", "li", "ul", "ol", "div", "span", "td", "tr", "th", "table", "p", "i", "b",
        "em", "body", "html", "input", "form", "video", "audio", "section", "button", "link",
    ];
    ELEMENTS.contains(&stem)
}

fn has_extension(path: &str) -> bool {
    extension_of(path).is_some()
}

/// Returns the extension of the last segment of a path, if it is one that files on the web have.
fn extension_of(path: &str) -> Option<&str> {
    let path = path.split(['?', '#', ';']).next().unwrap_or(path);
    let name = path.rsplit('/').next().unwrap_or(path);
    let (stem, extension) = name.rsplit_once('.')?;
    let stem_is_name = stem
        .bytes()
        .any(|byte| byte.is_ascii_alphanumeric() || byte >= 0x80);
    let lower = extension.to_ascii_lowercase();
    (stem_is_name && (BARE.contains(&lower.as_str()) || PLACED.contains(&lower.as_str())))
        .then_some(extension)
}

/// How many of these pages have.
const PAGES: usize = 10;
/// Extensions of files that a bare name is enough for.
const BARE: [&str; 72] = [
    "html",
    "htm",
    "xhtml",
    "shtml",
    "php",
    "asp",
    "aspx",
    "jsp",
    "jspx",
    "cfm",
    "jpg",
    "jpeg",
    "png",
    "gif",
    "svg",
    "webp",
    "avif",
    "ico",
    "bmp",
    "tif",
    "tiff",
    "jxl",
    "css",
    "mp3",
    "mp4",
    "m4a",
    "m4v",
    "webm",
    "ogg",
    "ogv",
    "oga",
    "opus",
    "wav",
    "flac",
    "mov",
    "avi",
    "mkv",
    "flv",
    "m3u8",
    "mpd",
    "vtt",
    "srt",
    "woff",
    "woff2",
    "ttf",
    "otf",
    "eot",
    "swf",
    "pdf",
    "doc",
    "docx",
    "xls",
    "xlsx",
    "ppt",
    "pptx",
    "odt",
    "ods",
    "odp",
    "rtf",
    "epub",
    "zip",
    "gz",
    "rar",
    "7z",
    "kml",
    "kmz",
    "gpx",
    "rss",
    "atom",
    "ics",
    "webmanifest",
    "glb",
];

/// Extensions of files that only count with a path before them, because their names are on everyone's lips.
const PLACED: [&str; 16] = [
    "js", "mjs", "json", "jsonp", "geojson", "xml", "txt", "csv", "wasm", "do", "action", "cgi",
    "pl", "tar", "md", "ts",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(ground: Ground, table: &[(&str, Result<&str, Doubt>)]) {
        for (text, expected) in table {
            let found = url_in(text, ground);
            assert_eq!(found.as_deref(), expected.as_deref(), "{ground:?} {text:?}");
        }
    }

    #[test]
    fn strings_that_are_urls() {
        let same = [
            "http://gate.example/",
            "https://gate.example",
            "HTTPS://Gate.Example:8080/a/b?c=d#e",
            "http://192.0.2.1/x",
            "https://écluse.example/é",
            "https://xn--cluse-9ra.xn--p1ai/",
            "//cdn.gate.example/lib.js",
            "/a.html",
            "/img/logo.png",
            "/img/logo.png?v=2",
            "/api/v1/items",
            "/article/1234",
            "/search?q=lock&page=2",
            "/news/lock/",
            "/~keeper/x",
            "./app.js",
            "../data/list.json",
            "img/logo.svg",
            "js/vendor/jquery.min.js?ver=3",
            "logo.png",
            "index.html",
            "page.php?id=3",
            "Plan%20A.pdf",
        ];
        for text in same {
            assert_eq!(url_in(text, Ground::Script).as_deref(), Ok(text), "{text}");
        }
        verdicts(
            Ground::Script,
            &[
                (" /a.html\n", Ok("/a.html")),
                ("www.gate.example/x", Ok("http://www.gate.example/x")),
            ],
        );
    }

    #[test]
    fn strings_that_only_look_like_urls() {
        verdicts(
            Ground::Script,
            &[
                ("", Err(Doubt::Plain)),
                ("/", Err(Doubt::Plain)),
                ("//", Err(Doubt::Plain)),
                ("./", Err(Doubt::Plain)),
                ("click", Err(Doubt::Plain)),
                ("use strict", Err(Doubt::Plain)),
                ("a/b c", Err(Doubt::Bytes)),
                ("</div>", Err(Doubt::Bytes)),
                ("^/a/.*$", Err(Doubt::Bytes)),
                ("/(a|b)/", Err(Doubt::Bytes)),
                ("a[href].pdf", Err(Doubt::Bytes)),
                ("C:\\a.txt", Err(Doubt::Bytes)),
                ("/users/{id}", Err(Doubt::Hole)),
                ("/users/:id", Err(Doubt::Hole)),
                ("/users/${id}.png", Err(Doubt::Hole)),
                ("/img/%s.png", Err(Doubt::Hole)),
                ("/search?q=", Err(Doubt::Hole)),
                ("https://gate.example/share?u=", Err(Doubt::Hole)),
                ("webpack:///src/a.js", Err(Doubt::Hole)),
                ("/files/*.png", Err(Doubt::Bytes)),
                ("https://gate.example/*", Err(Doubt::Hole)),
                ("https://gate.example/a/.*\\.js", Err(Doubt::Hole)),
                ("https://gate.example/a is the gate", Err(Doubt::Bytes)),
                ("https://gate.example is the gate.html", Err(Doubt::Bytes)),
                (
                    "https://gate.example/a, https://gate.example/b.png",
                    Err(Doubt::Bytes),
                ),
                ("/a slash begins this sentence", Err(Doubt::Bytes)),
                ("Report 2026.pdf", Err(Doubt::Bytes)),
                ("12:30/13:30", Err(Doubt::Hole)),
                (".../a.png", Err(Doubt::Hole)),
                ("http://", Err(Doubt::Host)),
                ("https://localhost/x.png", Err(Doubt::Host)),
                ("https://.gate.example/", Err(Doubt::Host)),
                ("http://gate.example:port/", Err(Doubt::Host)),
                ("//div/a", Err(Doubt::Host)),
                ("http://www.w3.org/2000/svg", Err(Doubt::Namespace)),
                ("https://schema.org/Person", Err(Doubt::Namespace)),
                ("text/html", Err(Doubt::MimeType)),
                ("image/svg+xml", Err(Doubt::MimeType)),
                ("application/vnd.ms-excel", Err(Doubt::MimeType)),
                ("2026/11/17", Err(Doubt::NoExtension)),
                ("17.11.2026", Err(Doubt::NoExtension)),
                ("1/2", Err(Doubt::NoExtension)),
                ("and/or", Err(Doubt::NoExtension)),
                ("Europe/Paris", Err(Doubt::NoExtension)),
                ("MM/DD/YYYY", Err(Doubt::NoExtension)),
                ("/2026/11", Err(Doubt::NoExtension)),
                ("/yyyy/MM", Err(Doubt::NoExtension)),
                ("document.body", Err(Doubt::NoExtension)),
                ("1.2.3", Err(Doubt::NoExtension)),
                ("keeper@lock.example", Err(Doubt::NoExtension)),
                ("/month", Err(Doubt::Segment)),
                ("/gi", Err(Doubt::Segment)),
                ("/assets/", Err(Doubt::Segment)),
                ("/+x", Err(Doubt::Segment)),
                ("Node.js", Err(Doubt::Name)),
                ("data.json", Err(Doubt::Name)),
                ("a.pdf", Err(Doubt::Name)),
                ("img.png", Err(Doubt::Name)),
                (".png", Err(Doubt::NoExtension)),
                (".a.png", Ok(".a.png")),
                ("./node_modules/a/index.js", Err(Doubt::Module)),
                ("./src/index.js", Err(Doubt::Module)),
                ("@babel/runtime/a.js", Err(Doubt::Module)),
                ("/html/body/div", Err(Doubt::XPath)),
                ("/9j/4AAQSkZJRgABAQEA", Err(Doubt::Encoded)),
                (
                    "/abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/x",
                    Err(Doubt::Encoded),
                ),
            ],
        );
    }

    #[test]
    fn values_need_an_extension_unless_their_key_says_they_are_links() {
        for (text, value, named) in [
            ("https://gate.example/x", true, true),
            ("/img/a.png", true, true),
            ("/api/items", false, true),
            ("/about", false, true),
            ("../next", false, true),
            ("data.json", false, true),
            ("en/fr", false, false),
            ("text/html", false, false),
            ("/", false, false),
            ("#", false, false),
        ] {
            assert_eq!(url_in(text, Ground::Value).is_ok(), value, "value {text}");
            assert_eq!(url_in(text, Ground::Named).is_ok(), named, "named {text}");
        }
    }

    #[test]
    fn urls_have_colons_brackets_stars_and_spaces() {
        for (text, script) in [
            ("https://gate.example/wiki/Lock_(canal)", true),
            ("https://gate.example/size/74*74c/a.jpg", true),
            ("https://gate.example/wiki/Category:Locks", true),
            ("//gate.example/a (1).png", true),
            ("https://gate.example/Annual reports/Report 2026.pdf", true),
            ("/wiki/Ficheiro:Lock.svg", true),
            ("/Annual reports/Report 2026.pdf", true),
            ("/wiki/Lock_(canal).jpg", false),
            ("/img/photo(1).jpg", false),
            ("/size/74*74c.jpg", false),
        ] {
            for ground in [Ground::Value, Ground::Named] {
                assert_eq!(url_in(text, ground).as_deref(), Ok(text), "{ground:?}");
            }
            assert_eq!(url_in(text, Ground::Script).is_ok(), script, "{text}");
        }
        let named = url_in("/news/All about locks", Ground::Named);
        assert_eq!(named.as_deref(), Ok("/news/All about locks"));
    }

    #[test]
    fn pages_are_told_from_files() {
        for url in [
            "/a",
            "https://gate.example",
            "https://gate.example/x.y/",
            "a.HTML?x.png",
            "../a.php",
        ] {
            assert!(is_page(url), "{url}");
        }
        for url in ["/a.css", "https://gate.example/a.js?x", "a.jpg", "/a.pdf"] {
            assert!(!is_page(url), "{url}");
        }
    }

    #[test]
    fn only_a_file_stands_alone_before_a_plus() {
        assert!(stands_alone("https://gate.example/a.js"));
        assert!(!stands_alone("https://gate.example/"));
        assert!(!stands_alone("https://gate.example/api"));
        assert!(!stands_alone("/a.js"));
    }
}
