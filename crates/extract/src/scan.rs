//! A quick scan of a page for what it links to: much cheaper than [`extract`](crate::extract), and blinder.
//!
//! It looks for the tags that hold links, reads their attributes, and passes over the contents of scripts, styles and comments. It sees
//! nothing in scripts and styles, in `srcset` and `data-` attributes, and takes a page for UTF-8 or else Windows-1252. Whoever archives a page
//! uses the extractor; this is for counting links in what was archived, at the speed of unpacking it.

use std::borrow::Cow;

use memchr::{memchr, memchr2, memmem};
use url::{Position, Url};

use crate::quick::{self, PlainLink};
use crate::refresh;

/// How a page names what a scan found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ScannedKind {
    /// A reader follows it; what a frame holds is such a link too.
    Anchor,
    /// `rel=canonical`.
    Canonical,
    /// A browser fetches it to show the page.
    Embed,
    /// The page sends the reader on.
    Redirect,
}

/// Gives every link of an HTML page at an `http` or `https` URL to `sink`: as an absolute URL without fragment or, where it has the scheme, host
/// and port of the page, as its path and query. All of it is ASCII without spaces and control characters.
pub fn scan_links(page: &[u8], url: &Url, sink: &mut dyn FnMut(ScannedKind, &[u8])) {
    let home = &url[..Position::BeforePath];
    let mut scan = Scan {
        home,
        directory: quick::directory(url)[home.len()..].to_owned(),
        base: Cow::Borrowed(url),
        has_base: false,
        is_home: matches!(url.scheme(), "http" | "https"),
        joined: Vec::new(),
        sink,
    };
    let mut at = 0;
    while let Some(found) = memchr(b'<', &page[at..]) {
        at += found + 1;
        at = scan.tag(page, at);
    }
}

/// Returns an absolute `http` or `https` URL without fragment for a value found in the headers of a page.
pub fn resolve_link(base: &Url, value: &str) -> Option<String> {
    let value = value.trim_matches(|c: char| c <= ' ');
    if let Some(url) = quick::resolve(base, value) {
        return Some(url);
    }
    let mut url = base.join(value).ok()?;
    if !matches!(url.scheme(), "http" | "https") {
        return None;
    }
    url.set_fragment(None);
    Some(url.into())
}

struct Scan<'a, 's> {
    /// Scheme, host and port of the page.
    home: &'a str,
    /// What links are resolved against.
    base: Cow<'a, Url>,
    has_base: bool,
    /// The base is on the host of the page too.
    is_home: bool,
    /// The path of the base up to its last slash.
    directory: String,
    /// A path of the directory and a link.
    joined: Vec<u8>,
    sink: &'s mut dyn FnMut(ScannedKind, &[u8]),
}

/// Which tags are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tag {
    Anchor,
    Base,
    Frame,
    Link,
    Meta,
    /// `src` is embedded.
    Source,
}

/// Longest name of a tag that is looked at.
const NAME_BYTES: usize = 6;

impl Scan<'_, '_> {
    /// Looks at what follows a `<`; returns where to go on.
    fn tag(&mut self, page: &[u8], at: usize) -> usize {
        let rest = &page[at..];
        match rest.first() {
            Some(b'!') => {
                if rest.starts_with(b"!--") {
                    let end = memmem::find(&rest[3..], b"-->");
                    return end.map_or(page.len(), |end| at + 3 + end + 3);
                }
                return at;
            }
            Some(byte) if byte.is_ascii_alphabetic() => {}
            _ => return at,
        }
        // What most links look like.
        if let Some(value) = rest.strip_prefix(b"a href=\"")
            && let Some(end) = memchr2(b'"', b'>', value)
            && value.get(end..end + 2) == Some(b"\">")
        {
            self.link(ScannedKind::Anchor, Some(&value[..end]));
            return at + rest.len() - value.len() + end + 2;
        }
        // Most tags are told by their first two letters.
        let second = rest.get(1).map_or(0, |byte| byte | 0x20);
        let may_be = match rest[0] | 0x20 {
            b'a' => !second.is_ascii_lowercase() || matches!(second, b'r' | b'u'),
            b'b' => second == b'a',
            b'e' => second == b'm',
            b'f' => second == b'r',
            b'i' => matches!(second, b'f' | b'm'),
            b'l' | b'v' => second == b'i',
            b'm' | b't' => second == b'e',
            b's' => matches!(second, b'c' | b'o' | b't'),
            _ => false,
        };
        if !may_be {
            return at;
        }
        let mut name = [0; NAME_BYTES + 1];
        let mut length = 0;
        while let Some(byte) = rest.get(length)
            && byte.is_ascii_alphanumeric()
            && length <= NAME_BYTES
        {
            name[length] = byte.to_ascii_lowercase();
            length += 1;
        }
        let tag = match &name[..length.min(NAME_BYTES)] {
            _ if length > NAME_BYTES => {
                return match rest.len() >= 8 && rest[..8].eq_ignore_ascii_case(b"textarea") {
                    true => after(page, at, b"textarea"),
                    false => at,
                };
            }
            b"a" | b"area" => Tag::Anchor,
            b"base" => Tag::Base,
            b"iframe" | b"frame" => Tag::Frame,
            b"link" => Tag::Link,
            b"meta" => Tag::Meta,
            b"img" | b"script" | b"source" | b"video" | b"audio" | b"embed" => Tag::Source,
            b"style" => return after(page, at, b"style"),
            _ => return at,
        };
        let end = self.attributes(tag, page, at + length);
        match &name[..length] {
            b"script" => after(page, end, b"script"),
            _ => end,
        }
    }

    /// Reads the attributes of a tag and takes its links; returns where it ends.
    fn attributes(&mut self, tag: Tag, page: &[u8], mut at: usize) -> usize {
        let (mut target, mut rel, mut content) = (None, None, None);
        let mut refreshes = false;
        loop {
            while page
                .get(at)
                .is_some_and(|byte| is_space(*byte) || *byte == b'/')
            {
                at += 1;
            }
            match page.get(at) {
                None => break,
                Some(b'>') => {
                    at += 1;
                    break;
                }
                Some(_) => {}
            }
            let begin = at;
            at += 1;
            while page
                .get(at)
                .is_some_and(|byte| !is_space(*byte) && !matches!(*byte, b'=' | b'>' | b'/'))
            {
                at += 1;
            }
            let name = &page[begin..at];
            let value;
            (value, at) = value_at(page, at);
            let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
            match tag {
                Tag::Anchor | Tag::Base if target.is_none() && is(b"href") => target = value,
                Tag::Frame | Tag::Source if target.is_none() && is(b"src") => target = value,
                Tag::Link if is(b"href") => target = value,
                Tag::Link if is(b"rel") => rel = value,
                Tag::Meta if is(b"http-equiv") => {
                    refreshes = value.is_some_and(|value| value.eq_ignore_ascii_case(b"refresh"));
                }
                Tag::Meta if is(b"content") => content = value,
                _ => {}
            }
        }
        match tag {
            Tag::Anchor | Tag::Frame => self.link(ScannedKind::Anchor, target),
            Tag::Source => self.link(ScannedKind::Embed, target),
            Tag::Link => {
                let words = rel.unwrap_or_default().split(|byte| is_space(*byte));
                for word in words {
                    let is = |known: &[u8]| word.eq_ignore_ascii_case(known);
                    if is(b"canonical") {
                        return self.take(ScannedKind::Canonical, target, at);
                    }
                    if is(b"stylesheet") || is(b"icon") {
                        return self.take(ScannedKind::Embed, target, at);
                    }
                }
            }
            Tag::Meta if refreshes => {
                if let Some(content) = content {
                    let content = text_of(content);
                    if let Some(url) = refresh::target(&content) {
                        self.link(ScannedKind::Redirect, Some(url.as_bytes()));
                    }
                }
            }
            Tag::Base if !self.has_base => {
                if let Some(target) = target {
                    let joined = self.base.join(&text_of(target));
                    if let Ok(base) = joined {
                        self.set_base(base);
                    }
                }
            }
            Tag::Meta | Tag::Base => {}
        }
        at
    }

    fn take(&mut self, kind: ScannedKind, target: Option<&[u8]>, at: usize) -> usize {
        self.link(kind, target);
        at
    }

    fn set_base(&mut self, base: Url) {
        self.has_base = true;
        let origin = &base[..Position::BeforePath];
        self.is_home = origin == self.home;
        if self.is_home {
            self.directory = quick::directory(&base)[origin.len()..].to_owned();
        }
        self.base = Cow::Owned(base);
    }

    fn link(&mut self, kind: ScannedKind, target: Option<&[u8]>) {
        let Some(target) = target else { return };
        // Within the page, or not of the web.
        if matches!(target.first(), None | Some(b'#')) {
            return;
        }
        if memchr(b'&', target).is_none() && self.plain(kind, target) {
            return;
        }
        let text = text_of(target);
        let text = text.trim_matches(|c: char| c <= ' ');
        if self.plain(kind, text.as_bytes()) {
            return;
        }
        if let Some(url) = resolve_link(&self.base, text) {
            self.absolute(kind, url.as_bytes());
        }
    }

    /// Takes an ordinary link; tells whether it was one.
    fn plain(&mut self, kind: ScannedKind, value: &[u8]) -> bool {
        match quick::plain(value) {
            Some(PlainLink::Absolute(url)) => self.absolute(kind, url),
            Some(PlainLink::Path(path)) if self.is_home => (self.sink)(kind, path),
            Some(PlainLink::Beside(up, path)) if self.is_home => {
                let directory = quick::above(self.directory.as_bytes(), up);
                self.joined.clear();
                self.joined.extend_from_slice(directory);
                self.joined.extend_from_slice(path);
                (self.sink)(kind, &self.joined);
            }
            _ => return false,
        }
        true
    }

    fn absolute(&mut self, kind: ScannedKind, url: &[u8]) {
        let path = url.strip_prefix(self.home.as_bytes());
        match path.filter(|path| path.first() == Some(&b'/')) {
            Some(path) => (self.sink)(kind, path),
            None => (self.sink)(kind, url),
        }
    }
}

/// Returns where the contents of an element end that are no markup: at its end tag.
fn after(page: &[u8], at: usize, name: &[u8]) -> usize {
    let mut at = at;
    while let Some(found) = memmem::find(&page[at..], b"</") {
        at += found + 2;
        let end = page.get(at..at + name.len());
        if end.is_some_and(|end| end.eq_ignore_ascii_case(name)) {
            return at;
        }
    }
    page.len()
}

/// Reads the value after the name of an attribute; returns it, and where it ends.
fn value_at(page: &[u8], from: usize) -> (Option<&[u8]>, usize) {
    let spaces = |mut at: usize| {
        while page.get(at).is_some_and(|byte| is_space(*byte)) {
            at += 1;
        }
        at
    };
    let at = spaces(from);
    if page.get(at) != Some(&b'=') {
        return (None, at);
    }
    let at = spaces(at + 1);
    match page.get(at) {
        Some(quote @ (b'"' | b'\'')) => {
            let rest = &page[at + 1..];
            match memchr(*quote, rest) {
                Some(end) => (Some(&rest[..end]), at + 1 + end + 1),
                // A quote that nobody closed does not swallow the rest of the page.
                None => (None, at + 1),
            }
        }
        Some(_) => {
            let rest = &page[at..];
            let end = memchr2(b'>', b' ', rest).unwrap_or(rest.len());
            let end = rest[..end]
                .iter()
                .position(|byte| is_space(*byte))
                .unwrap_or(end);
            (Some(&rest[..end]), at + end)
        }
        None => (None, at),
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0c)
}

/// Returns the text of a value, its character references resolved.
fn text_of(value: &[u8]) -> Cow<'_, str> {
    let text = match std::str::from_utf8(value) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => encoding_rs::WINDOWS_1252.decode(value).0,
    };
    match memchr(b'&', text.as_bytes()) {
        None => text,
        Some(_) => Cow::Owned(htmlize::unescape_attribute(&*text).into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Context, Hop, extract};

    fn scanned(page: &str) -> Vec<String> {
        let url = Url::parse("https://lock.example/a/b").unwrap();
        let mut found = Vec::new();
        scan_links(page.as_bytes(), &url, &mut |kind, url| {
            let url = std::str::from_utf8(url).unwrap();
            found.push(format!("{kind:?} {url}"));
        });
        found
    }

    #[test]
    fn tags_that_hold_links_are_read() {
        for (page, expected) in [
            ("<a href=x>x</a>", &["Anchor /a/x"][..]),
            (
                "<A\nclass=y HREF = '/x?a&amp;b=1#c' >",
                &["Anchor /x?a&b=1"],
            ),
            (
                "<area href=\"http://gate.example\">",
                &["Anchor http://gate.example/"],
            ),
            ("<a name=x><a href><a href=''><a href='#x'>", &[]),
            ("<a href='mailto:x@y'><a href='javascript:x()'>", &[]),
            (
                "<iframe src=/f></iframe><frame src=g>",
                &["Anchor /f", "Anchor /a/g"],
            ),
            ("<img src=i.png alt='<a href=no>'>", &["Embed /a/i.png"]),
            (
                "<script src=s.js>x('<a href=no>')</script><a href=y>",
                &["Embed /a/s.js", "Anchor /a/y"],
            ),
            ("<style>a{}<a href=no></style><a href=y>", &["Anchor /a/y"]),
            ("<!-- <a href=no> --><a href=y>", &["Anchor /a/y"]),
            (
                "<textarea><a href=no></textarea><a href=y>",
                &["Anchor /a/y"],
            ),
            (
                "<link rel='canonical' href=/c><link href=s.css rel=\"x StyleSheet\"><link rel=next href=n>",
                &["Canonical /c", "Embed /a/s.css"],
            ),
            (
                "<meta http-equiv=refresh content='0; url=/r'><meta content=x>",
                &["Redirect /r"],
            ),
            (
                "<base href='/z/'><base href='/no/'><a href=y>",
                &["Anchor /z/y"],
            ),
            (
                "<base href='https://gate.example/z/'><a href=y><a href=/x><a href='https://lock.example/a/b?c'><a href=https://lock.example.org/>",
                &[
                    "Anchor https://gate.example/z/y",
                    "Anchor https://gate.example/x",
                    "Anchor /a/b?c",
                    "Anchor https://lock.example.org/",
                ],
            ),
            (
                "<a href=' x/y.html '><a href='?z'><a href='./w/../v'>",
                &["Anchor /a/x/y.html", "Anchor /a/b?z", "Anchor /a/v"],
            ),
            (
                "<abbr href=no><address href=no><image src=no><linker href=no>",
                &[],
            ),
            ("<a href=\"never closed> <a href=y>", &["Anchor /a/y"]),
            ("<", &[]),
            ("<a", &[]),
            ("<a href=", &[]),
            ("<!--", &[]),
            ("<script>", &[]),
        ] {
            assert_eq!(scanned(page), expected, "{page}");
        }
    }

    /// Returns the URL of a link of a page of `https://lock.example`.
    fn whole(link: &[u8]) -> String {
        let link = std::str::from_utf8(link).unwrap();
        match link.starts_with('/') {
            true => format!("https://lock.example{link}"),
            false => link.to_owned(),
        }
    }

    #[test]
    fn other_character_sets_are_taken_for_windows() {
        let url = Url::parse("https://lock.example/").unwrap();
        let mut found = Vec::new();
        scan_links(b"<a href=/\xe9t\xe9>", &url, &mut |_, url| {
            found.push(url.to_owned());
        });
        assert_eq!(found, [b"/%C3%A9t%C3%A9"]);
    }

    proptest! {
        /// Links of plain pages are those that the extractor finds.
        #[test]
        fn plain_links_are_those_of_the_extractor(
            values in proptest::collection::vec("[a-z/.?=&%#:-]{0,12}|https?://[a-z]{1,6}\\.[a-z]{2,3}/[a-zA-Z]{0,5}", 0..10),
            quote in "[\"']",
        ) {
            let url = Url::parse("https://lock.example/a/b").unwrap();
            let page: String = values.iter().map(|value| format!("<p><a href={quote}{value}{quote}>x</a></p>\n")).collect();
            let mut expected = Vec::new();
            extract(&mut page.as_bytes(), &Context::new(&url, Some("text/html")), &mut |link| {
                if link.hop == Hop::Navigation && link.url.starts_with("http") {
                    expected.push(link.url);
                }
            }).unwrap();
            let mut found: Vec<String> = Vec::new();
            scan_links(page.as_bytes(), &url, &mut |_, link| found.push(whole(link)));
            expected.retain(|link| *link != url.as_str());
            found.retain(|link| *link != url.as_str());
            expected.sort();
            expected.dedup();
            found.sort();
            found.dedup();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn no_bytes_make_it_fail(page in proptest::collection::vec(any::<u8>(), 0..200), tags in "(<(a|link|meta|base|script|!--)[ a-z=\"'<>/]{0,20}){0,6}") {
            let url = Url::parse("https://lock.example/").unwrap();
            let page = [page, tags.into_bytes()].concat();
            scan_links(&page, &url, &mut |_, found| {
                let found = whole(found);
                assert!(found.bytes().all(|byte| byte.is_ascii_graphic()), "{found}");
                assert!(Url::parse(&found).is_ok(), "{found}");
            });
        }
    }
}
