//! The words of a document, without markup: for whoever reads or counts them, not for links.

use encoding_rs::{Encoding, UTF_8};

use crate::charset;
use crate::kind::{DocumentKind, essence};

/// The words of a document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlainText {
    /// What its title element says.
    pub title: String,
    /// Its words: one line a paragraph, each with single blanks.
    pub text: String,
    /// The name of its character set.
    pub charset: &'static str,
}

/// What is between these is no text.
const HIDDEN: [&str; 5] = ["script", "style", "template", "noscript", "svg"];

/// Elements that stand in the middle of a line.
const INLINE: [&str; 24] = [
    "a", "abbr", "b", "bdi", "bdo", "cite", "code", "data", "dfn", "em", "font", "i", "kbd",
    "mark", "q", "s", "samp", "small", "span", "strong", "sub", "sup", "u", "var",
];

/// Returns the words of a document whose content encoding has been removed; none of what is no text by its type.
#[must_use]
pub fn plain_text(document: &[u8], content_type: &str) -> Option<PlainText> {
    let kind = match essence(content_type).as_str() {
        "text/html" => DocumentKind::Html,
        "application/xhtml+xml" => DocumentKind::Xhtml,
        "text/xml" | "application/xml" => DocumentKind::Xml,
        essence if essence.ends_with("+xml") && !essence.starts_with("image/") => DocumentKind::Xml,
        essence if essence.starts_with("text/") => DocumentKind::Other,
        _ => return None,
    };
    let (encoding, document) = match charset::mark(document) {
        Some((encoding, bytes)) => (encoding, &document[bytes..]),
        None => (encoding_of(document, content_type, kind), document),
    };
    let (text, _) = encoding.decode_without_bom_handling(document);
    let charset = encoding.name();
    Some(match kind {
        DocumentKind::Other => PlainText {
            title: String::new(),
            text: lines_of(&text),
            charset,
        },
        _ => PlainText {
            charset,
            ..without_markup(&text)
        },
    })
}

fn encoding_of(document: &[u8], content_type: &str, kind: DocumentKind) -> &'static Encoding {
    let header = charset::parameter(content_type);
    if let Some((encoding, _)) = charset::told(kind, header, None, document) {
        return encoding;
    }
    let first = document.iter().position(|byte| !byte.is_ascii());
    first.map_or(UTF_8, |at| charset::guess(&document[at..], true, None))
}

fn without_markup(text: &str) -> PlainText {
    let mut words = String::with_capacity(text.len() / 2);
    let mut title: Option<String> = None;
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        push_words(&mut words, &rest[..at]);
        rest = &rest[at..];
        if let Some(comment) = rest.strip_prefix("<!--") {
            rest = comment.split_once("-->").map_or("", |(_, rest)| rest);
            continue;
        }
        if let Some(section) = rest.strip_prefix("<![CDATA[") {
            let (inside, after) = section.split_once("]]>").unwrap_or((section, ""));
            push_words(&mut words, inside);
            rest = after;
            continue;
        }
        let Some((name, after)) = tag_of(rest) else {
            // A sign of its own, as in a formula.
            words.push('<');
            rest = &rest[1..];
            continue;
        };
        let is_end = name.starts_with('/');
        let name = name.trim_start_matches('/');
        rest = after;
        if !INLINE.contains(&name) {
            words.push('\n');
        }
        if !is_end && (name == "title" || HIDDEN.contains(&name)) {
            let (inside, after) = until_end(rest, name);
            if name == "title" && title.is_none() {
                title = Some(lines_of(&htmlize::unescape(inside)).replace('\n', " "));
            }
            rest = after;
        }
    }
    push_words(&mut words, rest);
    PlainText {
        title: title.unwrap_or_default(),
        text: lines_of(&htmlize::unescape(&words)),
        charset: "",
    }
}

/// In markup the end of a line is a blank: elements make lines.
fn push_words(words: &mut String, text: &str) {
    words.extend(text.chars().map(|c| if c == '\n' { ' ' } else { c }));
}

/// Returns the name of the tag that a text begins with, in lower case and with its slash, and what follows the tag.
fn tag_of(text: &str) -> Option<(String, &str)> {
    let inside = &text[1..];
    let is_tag = |character: char| character.is_ascii_alphabetic() || "/!?".contains(character);
    inside.chars().next().filter(|first| is_tag(*first))?;
    let mut quote = None;
    for (at, character) in inside.char_indices() {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') if at > 0 => quote = Some(character),
            (None, '>') => {
                let is_end = |c: char| c.is_whitespace() || c == '>';
                let name = inside[..at].split(is_end).next().unwrap_or_default();
                let name = name.trim_end_matches('/').to_ascii_lowercase();
                return Some((name, &inside[at + 1..]));
            }
            _ => {}
        }
    }
    None
}

/// Splits a text before the end of an element and behind it.
fn until_end<'t>(text: &'t str, name: &str) -> (&'t str, &'t str) {
    let mut from = 0;
    while let Some(at) = text[from..].find("</") {
        let at = from + at;
        let behind = &text.as_bytes()[at + 2..];
        let is_it = behind.len() >= name.len()
            && behind[..name.len()].eq_ignore_ascii_case(name.as_bytes())
            && !behind
                .get(name.len())
                .is_some_and(u8::is_ascii_alphanumeric);
        if is_it {
            let end = text[at..].find('>').map_or(text.len(), |end| at + end + 1);
            return (&text[..at], &text[end..]);
        }
        from = at + 2;
    }
    (text, "")
}

/// Returns the lines that are not empty, with single blanks and without controls.
fn lines_of(text: &str) -> String {
    let mut lines = String::with_capacity(text.len());
    for line in text.lines() {
        let mut is_first = true;
        let parts = line.split(|c: char| c.is_whitespace() || c.is_control());
        for word in parts.filter(|word| !word.is_empty()) {
            lines.push_str(if is_first { "" } else { " " });
            lines.push_str(word);
            is_first = false;
        }
        if !is_first {
            lines.push('\n');
        }
    }
    lines.truncate(lines.trim_end().len());
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(html: &str) -> PlainText {
        plain_text(html.as_bytes(), "text/html; charset=utf-8").unwrap()
    }

    #[test]
    fn markup_scripts_and_comments_are_no_words() {
        let page = words(
            "<!doctype html><TITLE>Le\n canal &amp; l&rsquo;écluse</TITLE><style>p { x: '</p>' }</style>\
             <script>if (a < b) { '<p>no</p>' }</script><!-- <p>no --><p title=\"a > b\">One <b>wo</b>rd,\n two</p><p>1 < 2 &lt; 3<br>end",
        );
        assert_eq!(page.title, "Le canal & l’écluse");
        assert_eq!(page.text, "One word, two\n1 < 2 < 3\nend");
        assert_eq!(words("<p>cut <a href='x").text, "cut <a href='x");
        assert_eq!(words("<script>never ends").text, "");
    }

    #[test]
    fn the_character_set_is_found() {
        let latin = plain_text(b"<meta charset=iso-8859-1><p>d\xe9j\xe0", "text/html").unwrap();
        assert_eq!(
            (latin.text.as_str(), latin.charset),
            ("déjà", "windows-1252")
        );
        let text = plain_text(b"\xef\xbb\xbfa\tb\r\n\r\n\x1b[2Jc", "text/plain").unwrap();
        assert_eq!(text.text, "a b\n[2Jc");
        assert_eq!(plain_text(b"\xff\xd8", "image/jpeg"), None);
        let feed = plain_text(
            b"<rss><title>t</title><p><![CDATA[a <b> c]]></p>",
            "application/rss+xml",
        );
        assert_eq!(feed.unwrap().text, "a <b> c");
    }

    proptest! {
        #[test]
        fn anything_gives_lines_without_controls(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let page = plain_text(&bytes, "text/html").unwrap();
            prop_assert!(page.text.chars().all(|c| c == '\n' || !c.is_control()));
            prop_assert!(!page.title.contains('\n'));
        }
    }
}
