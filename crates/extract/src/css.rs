//! Style sheets: `url()`, `src()`, `@import` and the strings of `image-set()`, with escapes and comments.
//!
//! A tokenizer small enough to skip nearly everything: between two bytes that matter it only looks for the next one. It is fed in
//! pieces, and holds back at most one unfinished token.

use std::borrow::Cow;

use crate::collector::Collector;
use crate::link::{Hop, LinkPlace};

/// The longest function name that matters, `-webkit-image-set`, with room for escapes.
const NAME: usize = 48;
/// Parentheses within parentheses that are told apart.
const DEPTH: usize = 32;

/// A style sheet being read.
#[derive(Debug, Default)]
pub(crate) struct Css {
    held: String,
    comment: bool,
    rule: Rule,
    /// For each open parenthesis, whether a string in it is an image.
    open: Vec<bool>,
    /// Open parentheses beyond those.
    deeper: u32,
}

/// What the strings of the statement are.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Rule {
    #[default]
    Other,
    /// The first string or `url()` is a style sheet.
    Import,
    /// Names, not links: `@namespace`, `@charset`.
    Names,
}

/// How far a scan came.
enum Step {
    /// To this byte.
    To(usize),
    /// To a token that goes on beyond the text there is.
    Unfinished,
}

impl Css {
    /// Reads a piece of the style sheet.
    pub(crate) fn push(&mut self, text: &str, collector: &mut Collector<'_>) {
        if self.held.is_empty() {
            let read = self.scan(text, false, collector);
            self.hold(&text[read..], collector);
        } else {
            let mut held = std::mem::take(&mut self.held);
            held.push_str(text);
            let read = self.scan(&held, false, collector);
            held.drain(..read);
            self.held = held;
            self.check_held(collector);
        }
    }

    /// Reads what was held back; the next piece begins another style sheet.
    pub(crate) fn finish(&mut self, collector: &mut Collector<'_>) {
        let held = std::mem::take(&mut self.held);
        self.scan(&held, true, collector);
        *self = Self::default();
    }

    fn hold(&mut self, rest: &str, collector: &mut Collector<'_>) {
        self.held.push_str(rest);
        self.check_held(collector);
    }

    fn check_held(&mut self, collector: &mut Collector<'_>) {
        if self.held.len() > collector.limits().token_bytes {
            collector.passed_over = collector.passed_over.saturating_add(1);
            self.held.clear();
        }
    }

    /// Scans text and returns how much of it is done with.
    fn scan(&mut self, text: &str, last: bool, collector: &mut Collector<'_>) -> usize {
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() && !collector.is_full() {
            if self.comment {
                match memchr::memmem::find(&bytes[at..], b"*/") {
                    Some(end) => {
                        self.comment = false;
                        at += end + 2;
                    }
                    None => {
                        return if last {
                            bytes.len()
                        } else {
                            keep(text, at.max(bytes.len() - 1))
                        };
                    }
                }
                continue;
            }
            let Some(found) = bytes[at..]
                .iter()
                .position(|&byte| MATTERS[usize::from(byte)])
            else {
                return if last {
                    bytes.len()
                } else {
                    start_of_name(text, bytes.len())
                };
            };
            let special = at + found;
            match self.token(text, special, last, collector) {
                Step::To(next) => at = next,
                // The name before a parenthesis must be there when the scan begins again.
                Step::Unfinished => return start_of_name(text, special),
            }
        }
        if last {
            bytes.len()
        } else {
            start_of_name(text, bytes.len())
        }
    }

    fn token(&mut self, text: &str, at: usize, last: bool, collector: &mut Collector<'_>) -> Step {
        let bytes = text.as_bytes();
        match bytes[at] {
            b'/' => match bytes.get(at + 1) {
                Some(b'*') => {
                    self.comment = true;
                    Step::To(at + 2)
                }
                None if !last => Step::Unfinished,
                _ => Step::To(at + 1),
            },
            quote @ (b'"' | b'\'') => {
                let Some((end, next)) = string_end(bytes, at + 1, quote, last) else {
                    return Step::Unfinished;
                };
                self.string(&text[at + 1..end], collector);
                Step::To(next)
            }
            b'@' => self.at_rule(text, at, last),
            b'(' => self.function(text, at, last, collector),
            b')' => {
                if self.deeper > 0 {
                    self.deeper -= 1;
                } else {
                    self.open.pop();
                }
                Step::To(at + 1)
            }
            // An escape: whatever follows is no syntax. It may be longer than one byte, but then it is no syntax either.
            b'\\' if at + 1 < bytes.len() => Step::To(next_char(text, at + 1)),
            b'\\' if !last => Step::Unfinished,
            b'\\' => Step::To(at + 1),
            // `;`, `{` and `}` end a statement, and with it whatever was left open.
            _ => {
                self.rule = Rule::Other;
                self.open.clear();
                self.deeper = 0;
                Step::To(at + 1)
            }
        }
    }

    fn at_rule(&mut self, text: &str, at: usize, last: bool) -> Step {
        let name = &text[at + 1..];
        let end = name
            .bytes()
            .position(|byte| !is_name(byte))
            .unwrap_or(name.len());
        if end == name.len() && end < NAME && !last {
            return Step::Unfinished;
        }
        let name = unescaped(&name[..end]);
        self.rule = if name.eq_ignore_ascii_case("import") {
            Rule::Import
        } else if name.eq_ignore_ascii_case("namespace") || name.eq_ignore_ascii_case("charset") {
            Rule::Names
        } else {
            Rule::Other
        };
        Step::To(at + 1 + end)
    }

    fn function(
        &mut self,
        text: &str,
        at: usize,
        last: bool,
        collector: &mut Collector<'_>,
    ) -> Step {
        let name = unescaped(&text[start_of_name(text, at)..at]);
        if name.eq_ignore_ascii_case("url") || name.eq_ignore_ascii_case("src") {
            return self.url(text, at + 1, last, collector);
        }
        if self.open.len() < DEPTH {
            self.open.push(
                name.eq_ignore_ascii_case("image-set")
                    || name.eq_ignore_ascii_case("-webkit-image-set")
                    || name.eq_ignore_ascii_case("image"),
            );
        } else {
            self.deeper = self.deeper.saturating_add(1);
        }
        Step::To(at + 1)
    }

    /// Reads what stands between the parentheses of `url()`, and the second of them.
    fn url(&mut self, text: &str, from: usize, last: bool, collector: &mut Collector<'_>) -> Step {
        let bytes = text.as_bytes();
        let start = from
            + bytes[from..]
                .iter()
                .position(|byte| !byte.is_ascii_whitespace())
                .unwrap_or(bytes.len() - from);
        if start == bytes.len() {
            return if last {
                Step::To(start)
            } else {
                Step::Unfinished
            };
        }
        if let quote @ (b'"' | b'\'') = bytes[start] {
            let Some((end, next)) = string_end(bytes, start + 1, quote, last) else {
                return Step::Unfinished;
            };
            self.found(&text[start + 1..end], collector);
            // Modifiers may follow; the parenthesis that ends them is taken for one of ours, and there is none.
            return Step::To(next);
        }
        let mut at = start;
        while at < bytes.len() && bytes[at] != b')' {
            at += if bytes[at] == b'\\' { 2 } else { 1 };
        }
        if at >= bytes.len() {
            if !last {
                return Step::Unfinished;
            }
            at = bytes.len();
        }
        let value = text[start..at].trim_ascii_end();
        // Unescaped quotes, parentheses and spaces make a bad URL, which browsers drop.
        if !has_bad_byte(value.as_bytes()) {
            self.found(value, collector);
        }
        Step::To((at + 1).min(bytes.len()))
    }

    fn string(&mut self, value: &str, collector: &mut Collector<'_>) {
        let image = self.deeper == 0 && self.open.last() == Some(&true);
        if image || (self.rule == Rule::Import && self.open.is_empty()) {
            self.found(value, collector);
        }
    }

    fn found(&mut self, value: &str, collector: &mut Collector<'_>) {
        if self.rule != Rule::Names {
            collector.offer(&unescaped(value), Hop::Embed, LinkPlace::CSS);
        }
        if self.rule == Rule::Import {
            // What follows on the line are conditions: `supports(...)`, media, a layer.
            self.rule = Rule::Other;
        }
    }
}

/// The bytes that change what the tokenizer does.
static MATTERS: [bool; 256] = {
    let mut table = [false; 256];
    let bytes = b"/\"'@();{}\\";
    let mut at = 0;
    while at < bytes.len() {
        table[bytes[at] as usize] = true;
        at += 1;
    }
    table
};

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'\\') || byte >= 0x80
}

/// Returns where the name that ends before `end` begins, but not more than a name's length back.
fn start_of_name(text: &str, end: usize) -> usize {
    let bytes = text.as_bytes();
    let floor = end.saturating_sub(NAME);
    let mut at = end;
    while at > floor && is_name(bytes[at - 1]) {
        at -= 1;
    }
    keep(text, at)
}

/// Moves forward to the start of a character.
fn keep(text: &str, at: usize) -> usize {
    (at..=text.len())
        .find(|&at| text.is_char_boundary(at))
        .unwrap_or(text.len())
}

fn next_char(text: &str, at: usize) -> usize {
    keep(text, at + 1)
}

/// Returns where a string ends and where to go on; `None` if it goes on beyond the text. An unescaped line end is the end of a bad string.
fn string_end(bytes: &[u8], from: usize, quote: u8, last: bool) -> Option<(usize, usize)> {
    let mut at = from;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            byte if byte == quote => return Some((at, at + 1)),
            b'\n' => return Some((from, at)),
            _ => at += 1,
        }
    }
    // CSS closes what is open at the end of a style sheet.
    last.then_some((bytes.len(), bytes.len()))
}

fn has_bad_byte(value: &[u8]) -> bool {
    let mut at = 0;
    while at < value.len() {
        match value[at] {
            b'\\' => {
                let digits = value[at + 1..]
                    .iter()
                    .take(6)
                    .take_while(|byte| byte.is_ascii_hexdigit())
                    .count();
                // The space that ends a hexadecimal escape belongs to it.
                at += digits.max(1);
                if digits > 0 && value.get(at + 1).is_some_and(u8::is_ascii_whitespace) {
                    at += 1;
                }
            }
            b'"' | b'\'' | b'(' => return true,
            byte if byte.is_ascii_whitespace() => return true,
            _ => {}
        }
        at += 1;
    }
    false
}

/// Resolves CSS escapes: one to six hexadecimal digits and one space, or any other character.
fn unescaped(text: &str) -> Cow<'_, str> {
    if memchr::memchr(b'\\', text.as_bytes()).is_none() {
        return Cow::Borrowed(text);
    }
    let mut result = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(letter) = rest.next() {
        if letter != '\\' {
            result.push(letter);
            continue;
        }
        let mut code = 0;
        let mut digits = 0;
        while digits < 6
            && let Some(digit) = rest.peek().and_then(|letter| letter.to_digit(16))
        {
            code = code * 16 + digit;
            digits += 1;
            rest.next();
        }
        if digits > 0 {
            result.push(
                char::from_u32(code)
                    .filter(|&letter| letter != '\0')
                    .unwrap_or(char::REPLACEMENT_CHARACTER),
            );
            if rest
                .peek()
                .is_some_and(|letter| letter.is_ascii_whitespace())
            {
                rest.next();
            }
        } else if let Some(letter) = rest.next() {
            // An escaped line end continues a string.
            if letter != '\n' {
                result.push(letter);
            }
        }
    }
    Cow::Owned(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{collected, split_everywhere};

    fn urls(sheet: &str) -> Vec<String> {
        split_everywhere(sheet, |pieces| {
            collected(|collector| {
                let mut css = Css::default();
                for piece in pieces {
                    css.push(piece, collector);
                }
                css.finish(collector);
            })
        })
    }

    #[test]
    fn links_are_found() {
        for (sheet, expected) in [
            ("a{background:url(x.png)}", &["x.png"] as &[&str]),
            ("a{background:URL( 'x.png' )}", &["x.png"]),
            (
                "a{background:url(\"a b.png\") no-repeat,url(y.png)}",
                &["a%20b.png", "y.png"],
            ),
            ("@import 'x.css';", &["x.css"]),
            (
                "@import url(x.css) screen;@IMPORT\"y.css\"layer(z);",
                &["x.css", "y.css"],
            ),
            ("@import/**/'x.css'", &["x.css"]),
            (
                "a{background:image-set('x.png' 1x,\"y.png\" type('image/png') 2x)}",
                &["x.png", "y.png"],
            ),
            (
                "a{b:-webkit-image-set(url(x.png) 1x, 'y.png' 2x)}",
                &["x.png", "y.png"],
            ),
            (
                "@font-face{src:url(x.woff2)format('woff2'),local('Arial'),url(x.eot?#iefix)}",
                &["x.woff2", "x.eot?"],
            ),
            ("a{b:url(a\\).png)}", &["a).png"]),
            ("a{b:url(\\78 .png)}", &["x.png"]),
            ("a{b:u\\72l(x.png)}", &["x.png"]),
            ("a{b:url('x\\\n.png')}", &["x.png"]),
            ("/*x*/a{/**/b:url(x.png)}/***/", &["x.png"]),
            ("a{b:url(x.png", &["x.png"]),
            ("a{b:url('x.png", &["x.png"]),
            ("a{b:'\n;c:url(x.png)}", &["x.png"]),
            ("a{b:calc((1px + 2px) * var(--x)) url(x.png)}", &["x.png"]),
            ("écluse{b:url(é.png)}", &["%C3%A9.png"]),
            ("a{src:src('x.png')}", &["x.png"]),
        ] {
            assert_eq!(urls(sheet), expected, "{sheet}");
        }
    }

    #[test]
    fn what_is_no_link_is_not() {
        for sheet in [
            "/* url(x.png) @import 'x.css' */",
            "a{content:'url(x.png)'}",
            "a::before{content:\"x.png\"}",
            "@namespace url(http://www.w3.org/1999/xhtml);",
            "@namespace svg 'http://www.w3.org/2000/svg';",
            "@charset 'utf-8';",
            "a{b:curl(x.png)}",
            "a{b:url(#gradient)}",
            "a{b:url()}",
            "a{b:url('')}",
            "a{b:url(x y.png)}",
            "a{b:url(data:image/png;base64,AA==)}",
            "a{b:local('x.png')}",
            "@import",
            "\\",
            "(((((",
        ] {
            assert_eq!(urls(sheet), [] as [&str; 0], "{sheet}");
        }
    }

    #[test]
    fn a_token_over_the_limit_is_passed_over() {
        let found = collected(|collector| {
            let mut css = Css::default();
            css.push("a{b:url(data:", collector);
            let piece = "A".repeat(40_000);
            for _ in 0..60 {
                css.push(&piece, collector);
                assert!(css.held.len() <= collector.limits().token_bytes);
            }
            css.push(")} b{c:url(x.png)}", collector);
            css.finish(collector);
            assert!(collector.passed_over > 0);
        });
        assert_eq!(found, ["x.png"]);
    }
}
