//! The text of a document as a reader would read it, in lines.
//!
//! Of a page: what stands between its tags, a line for each block; no scripts, styles or templates. Of other text: its lines.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

use lol_html::html_content::{Element, TextChunk, TextType};
use lol_html::{
    AsciiCompatibleEncoding, DocumentContentHandlers, ElementContentHandlers, HtmlRewriter,
    MemorySettings, Selector, Settings,
};

use crate::rewrite::charset;

/// What the parser may hold.
const PARSER_BYTES: usize = 8 << 20;
/// Elements that begin and end no line.
const INLINE: [&str; 33] = [
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em",
    "font", "i", "ins", "kbd", "label", "mark", "q", "s", "samp", "small", "span", "strike",
    "strong", "sub", "sup", "time", "tt", "u", "var", "wbr",
];

/// The lines of a text, and whether there were more.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TextLines {
    pub(crate) lines: Vec<String>,
    pub(crate) is_cut: bool,
}

/// Says whether a document of this type is text.
pub(crate) fn is_text(media_type: &str) -> bool {
    let (kind, rest) = media_type.split_once('/').unwrap_or((media_type, ""));
    kind == "text"
        || ["json", "xml", "javascript", "ecmascript", "x-sh"]
            .iter()
            .any(|name| rest.ends_with(name))
}

/// Returns the lines of a document, at most `most_bytes` of text and `most_lines` of them.
pub(crate) fn lines_of(
    body: &[u8],
    content_type: &str,
    is_html: bool,
    most_bytes: usize,
    most_lines: usize,
) -> TextLines {
    let encoding = charset::of_page(body, content_type);
    let (text, ..) = encoding.decode(body);
    let text: Cow<'_, str> = match is_html {
        true => Cow::Owned(text_between_tags(text.as_bytes())),
        false => text,
    };
    let mut found = TextLines::default();
    let mut bytes = 0;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.is_empty() {
            continue;
        }
        let line = words.join(" ");
        bytes += line.len();
        if bytes > most_bytes || found.lines.len() == most_lines {
            found.is_cut = true;
            break;
        }
        found.lines.push(line);
    }
    found
}

/// Returns the text of a page, with line feeds where a block begins or ends.
fn text_between_tags(page: &[u8]) -> String {
    let out = Rc::new(RefCell::new(String::with_capacity(page.len() / 4)));
    let (tags, texts) = (Rc::clone(&out), Rc::clone(&out));
    let all: Selector = "*".parse().expect("our own selectors parse");
    let settings = Settings::new()
        .with_encoding(AsciiCompatibleEncoding::utf_8())
        .with_memory_settings(MemorySettings::new().with_max_allowed_memory_usage(PARSER_BYTES))
        .with_strict(false)
        .append_element_content_handler((
            Cow::Owned(all),
            ElementContentHandlers::default().element(move |element: &mut Element<'_, '_>| {
                if INLINE.contains(&element.tag_name().as_str()) {
                    return Ok(());
                }
                tags.borrow_mut().push('\n');
                let ends = Rc::clone(&tags);
                if let Some(handlers) = element.end_tag_handlers() {
                    handlers.push(Box::new(move |_| {
                        ends.borrow_mut().push('\n');
                        Ok(())
                    }));
                }
                Ok(())
            }),
        ))
        .append_document_content_handler(DocumentContentHandlers::default().text(
            move |chunk: &mut TextChunk<'_>| {
                // Scripts and styles are text too, but nobody reads them.
                if matches!(chunk.text_type(), TextType::Data | TextType::RCData) {
                    texts.borrow_mut().push_str(chunk.as_str());
                }
                Ok(())
            },
        ));
    let mut reader = HtmlRewriter::new(settings, |_: &[u8]| {});
    // A tag beyond all measure ends the text there.
    let _ = reader.write(page).and_then(|()| reader.end());
    let raw = out.take();
    htmlize::unescape(raw.as_str()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(page: &str) -> Vec<String> {
        lines_of(page.as_bytes(), "text/html", true, 1 << 20, 100).lines
    }

    #[test]
    fn a_block_is_a_line() {
        let page = "<title>A &amp; B</title><style>p{}</style><p>one <b>two</b>\n three<p>f&ouml;ur<br>five<script>six()</script>\
                    <ul><li>a<li>b</ul><table><tr><td>c<td>d</table>&lt;e&gt;";
        let found = [
            "A & B",
            "one two",
            "three",
            "f\u{f6}ur",
            "five",
            "a",
            "b",
            "c",
            "d",
            "<e>",
        ];
        assert_eq!(lines(page), found);
    }

    #[test]
    fn other_text_has_its_own_lines_and_character_set() {
        let found = lines_of(b"caf\xe9\n\n  a  b\r\n", "text/plain", false, 99, 9);
        assert_eq!(found.lines, ["caf\u{e9}", "a b"]);
        assert!(!found.is_cut);
    }

    #[test]
    fn a_long_text_is_cut_and_says_so() {
        let text = "line\n".repeat(50);
        let by_lines = lines_of(text.as_bytes(), "", false, 1 << 20, 10);
        assert_eq!((by_lines.lines.len(), by_lines.is_cut), (10, true));
        let by_bytes = lines_of(text.as_bytes(), "", false, 9, 100);
        assert_eq!((by_bytes.lines.len(), by_bytes.is_cut), (2, true));
    }

    #[test]
    fn text_is_told_by_its_type() {
        for media_type in ["text/html", "application/json", "application/rss+xml"] {
            assert!(is_text(media_type), "{media_type}");
        }
        for media_type in ["image/png", "application/pdf", ""] {
            assert!(!is_text(media_type), "{media_type}");
        }
    }
}
