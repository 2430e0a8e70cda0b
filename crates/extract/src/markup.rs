//! Markup in the strings of scripts, where only whole attribute values count.
//!
//! What is in such a string is seldom a whole document, and often has holes, so it is not parsed: the values of attributes that hold
//! links are taken if they are closed. What the markup would show is speculative, since it may never be put into a page; a link is a
//! link, so that the scope decides on it as on any other.

use crate::collector::Collector;
use crate::link::{Hop, LinkPlace};
use crate::srcset;

/// Tells a string with a tag and an attribute in it.
pub(crate) fn is_markup(text: &str) -> bool {
    let bytes = text.as_bytes();
    memchr::memchr(b'=', bytes).is_some()
        && memchr::memchr_iter(b'<', bytes)
            .any(|at| bytes.get(at + 1).is_some_and(u8::is_ascii_alphabetic))
}

/// Offers the values of the attributes that hold links.
pub(crate) fn read(text: &str, collector: &mut Collector<'_>) {
    let bytes = text.as_bytes();
    let (mut tag, mut from) = (None, 0);
    for at in memchr::memchr_iter(b'=', bytes) {
        if let Some(start) = memchr::memrchr(b'<', &bytes[from..at]) {
            tag = Some(from + start + 1);
        }
        from = at;
        let name = &text[name_before(bytes, at)..at];
        let list = name.eq_ignore_ascii_case("srcset") || name.eq_ignore_ascii_case("data-srcset");
        if !list
            && !["src", "href", "poster", "data-src"]
                .iter()
                .any(|known| name.eq_ignore_ascii_case(known))
        {
            continue;
        }
        let Some(value) = value_after(text, at + 1) else {
            continue;
        };
        let value = htmlize::unescape_attribute(value);
        if value.contains(['{', '}', '<', '>', '"', '\\', '\n']) {
            continue;
        }
        let hop =
            if name.eq_ignore_ascii_case("href") && tag.is_none_or(|tag| is_link(&text[tag..at])) {
                Hop::Navigation
            } else {
                Hop::Speculative
            };
        if list {
            srcset::urls(&value, |url| {
                collector.offer(url, Hop::Speculative, LinkPlace::SCRIPT);
            });
        } else if !value.contains(' ') {
            collector.offer(&value, hop, LinkPlace::SCRIPT);
        }
    }
}

/// Tells whether a tag is of an element whose `href` a reader follows.
fn is_link(tag: &str) -> bool {
    let name = tag
        .split(|c: char| !c.is_ascii_alphanumeric())
        .next()
        .unwrap_or_default();
    !["link", "use", "image", "script", "base"]
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known))
}

fn name_before(bytes: &[u8], end: usize) -> usize {
    let mut at = end;
    while at > 0
        && end - at < 16
        && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'-')
    {
        at -= 1;
    }
    at
}

/// Returns a value that is closed by its quote, or by a space or the end of its tag if it has none.
fn value_after(text: &str, from: usize) -> Option<&str> {
    let rest = &text[from..];
    // The quotes may be escaped once more than the string was.
    let rest = rest.strip_prefix('\\').unwrap_or(rest);
    match rest.chars().next()? {
        quote @ ('"' | '\'') => {
            let (value, _) = rest[1..].split_once(quote)?;
            Some(value.strip_suffix('\\').unwrap_or(value))
        }
        _ => rest.find([' ', '>']).map(|end| &rest[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::collected;

    #[test]
    fn closed_values_are_found() {
        for (text, expected) in [
            ("<a href=\"/x\">", &["x"] as &[&str]),
            (
                "<img src='/a.png' srcset='/b.png 2x, /c.png 3x'>",
                &["a.png", "b.png", "c.png"],
            ),
            ("<img src=/a.png>", &["a.png"]),
            ("<a href=\\\"/x\\\">", &["x"]),
            ("<a href=\"?a=1&amp;b=2\">", &["?a=1&b=2"]),
            ("<a href=\"", &[]),
            ("<a href=\"/x", &[]),
            ("<a href=\"/x/{{id}}\">", &[]),
            ("<a class=\"/x\">", &[]),
            ("<a href=\"#\">", &[]),
        ] {
            assert!(is_markup(text), "{text}");
            assert_eq!(
                collected(|collector| read(text, collector)),
                expected,
                "{text}"
            );
        }
        let mut hops = Vec::new();
        let document = url::Url::parse("http://lock.example/").unwrap();
        let limits = crate::ExtractLimits::default();
        let mut sink = |link: crate::Link| hops.push((link.hop.letter(), link.url));
        let mut collector = Collector::new(&document, &limits, limits.links, &mut sink);
        let text = "<p><A class=x href='http://a.example/'><img src=http://b.example/b.png><link rel=x href='http://c.example/c'>";
        read(text, &mut collector);
        let expected = [
            ('L', "http://a.example/".to_owned()),
            ('X', "http://b.example/b.png".to_owned()),
            ('X', "http://c.example/c".to_owned()),
        ];
        assert_eq!(hops, expected);
        assert!(!is_markup("a < b && c==d"));
        assert!(!is_markup("</div>"));
    }
}
