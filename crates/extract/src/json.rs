//! JSON: the values that are URLs. Read loosely, so that a cut or broken document still gives what it has.

use crate::collector::Collector;
use crate::link::{Hop, LinkPlace};
use crate::markup;
use crate::page::hop_of_key;
use crate::script::unescaped;
use crate::speculative::{Ground, url_in};

/// The longest key that is looked at.
const KEY: usize = 64;

/// A JSON document being read.
#[derive(Debug)]
pub(crate) struct Json {
    depth: u8,
    held: String,
    /// Inside a string too long to be looked at; whether its last byte was an odd backslash.
    long: Option<bool>,
    key: Key,
    /// The last key, if it says that its value is a link.
    name: String,
    /// A string that is a key if a colon follows.
    waiting: Option<String>,
}

/// What the last key says of its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Other,
    /// The value is a link, as in `"url"`.
    Link,
    /// The value names a vocabulary, as in `"@context"`.
    Vocabulary,
}

/// Tells a string that holds a JSON object or array.
pub(crate) fn is_json(text: &str) -> bool {
    let bytes = text.trim_ascii().as_bytes();
    bytes.len() > 8
        && matches!(
            (bytes[0], bytes[bytes.len() - 1]),
            (b'{', b'}') | (b'[', b']')
        )
        && memchr::memchr(b'"', bytes).is_some()
        && memchr::memchr(b'/', bytes).is_some()
}

impl Json {
    /// Returns a reader of JSON that is `depth` documents deep in another.
    pub(crate) fn new(depth: u8) -> Self {
        Self {
            depth,
            held: String::new(),
            long: None,
            key: Key::Other,
            name: String::new(),
            waiting: None,
        }
    }

    /// Reads a whole document.
    pub(crate) fn read(text: &str, depth: u8, collector: &mut Collector<'_>) {
        let mut json = Self::new(depth);
        json.scan(text, collector);
        json.settle(collector);
    }

    /// Reads a piece of the document.
    pub(crate) fn push(&mut self, text: &str, collector: &mut Collector<'_>) {
        let mut text = text;
        if text.is_empty() {
            return;
        }
        if let Some(escaped) = self.long {
            match string_end(text.as_bytes(), usize::from(escaped)) {
                Some(end) => {
                    self.long = None;
                    text = &text[end + 1..];
                }
                None => {
                    self.long = Some(ends_escaped(text.as_bytes(), usize::from(escaped)));
                    return;
                }
            }
        }
        if self.held.is_empty() {
            let read = self.scan(text, collector);
            self.held.push_str(&text[read..]);
        } else {
            let mut held = std::mem::take(&mut self.held);
            held.push_str(text);
            let read = self.scan(&held, collector);
            held.drain(..read);
            self.held = held;
        }
        if self.held.len() > collector.limits().token_bytes {
            collector.passed_over = collector.passed_over.saturating_add(1);
            self.long = Some(ends_escaped(self.held.as_bytes(), 1));
            self.held.clear();
        }
    }

    /// Ends the document; the next piece begins another.
    pub(crate) fn finish(&mut self, collector: &mut Collector<'_>) {
        self.settle(collector);
        *self = Self::new(self.depth);
    }

    /// Scans text and returns how much of it is done with; the rest is the beginning of a string.
    fn scan(&mut self, text: &str, collector: &mut Collector<'_>) -> usize {
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() && !collector.is_full() {
            match bytes[at] {
                b'"' => {
                    let Some(end) = string_end(bytes, at + 1) else {
                        return at;
                    };
                    self.settle(collector);
                    self.waiting = Some(unescaped(&text[at + 1..end]).into_owned());
                    at = end + 1;
                }
                b':' => {
                    if let Some(key) = self.waiting.take() {
                        self.key = kind_of(&key);
                        if self.key == Key::Link {
                            self.name = key;
                        }
                    }
                    at += 1;
                }
                byte if byte.is_ascii_whitespace() => at += 1,
                b'}' => {
                    self.settle(collector);
                    self.key = Key::Other;
                    at += 1;
                }
                _ => {
                    self.settle(collector);
                    at += 1;
                }
            }
        }
        bytes.len()
    }

    fn settle(&mut self, collector: &mut Collector<'_>) {
        let Some(text) = self.waiting.take() else {
            return;
        };
        if markup::is_markup(&text) {
            markup::read(&text, collector);
        } else if is_json(&text) {
            let depth = self.depth.saturating_add(1);
            collector.fragment(depth, |collector| Self::read(&text, depth, collector));
        } else {
            let ground = match self.key {
                Key::Vocabulary => return,
                Key::Link => Ground::Named,
                Key::Other => Ground::Value,
            };
            if let Ok(url) = url_in(&text, ground) {
                let hop = match self.key {
                    Key::Link => hop_of_key(&self.name, &url),
                    Key::Vocabulary | Key::Other => Hop::Speculative,
                };
                collector.offer(&url, hop, LinkPlace::JSON);
            }
        }
    }
}

/// Returns the pairs of a key and a string value in a document, whatever they are nested in.
pub(crate) fn pairs(text: &str) -> impl Iterator<Item = (String, String)> {
    let bytes = text.as_bytes();
    let mut at = 0;
    let mut key: Option<String> = None;
    std::iter::from_fn(move || {
        while at < bytes.len() {
            match bytes[at] {
                b'"' => {
                    let end = string_end(bytes, at + 1)?;
                    let string = unescaped(&text[at + 1..end]).into_owned();
                    let after = bytes[end + 1..].trim_ascii_start();
                    at = end + 1;
                    if after.first() == Some(&b':') {
                        key = Some(string);
                    } else if let Some(key) = key.take() {
                        return Some((key, string));
                    }
                }
                b':' => at += 1,
                byte => {
                    if !byte.is_ascii_whitespace() {
                        key = None;
                    }
                    at += 1;
                }
            }
        }
        None
    })
}

fn kind_of(key: &str) -> Key {
    if key.len() > KEY {
        return Key::Other;
    }
    if matches!(
        key,
        "@context" | "@type" | "@vocab" | "$schema" | "$ref" | "xmlns"
    ) {
        return Key::Vocabulary;
    }
    let key = key.to_ascii_lowercase();
    let link = ["url", "uri", "href", "src", "link", "permalink"]
        .iter()
        .any(|end| key.ends_with(end));
    if link { Key::Link } else { Key::Other }
}

fn string_end(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes[at] == b'"' {
            return Some(at);
        }
        at += 2;
    }
}

/// Tells whether the text of a string ends in the middle of an escape.
fn ends_escaped(bytes: &[u8], from: usize) -> bool {
    let text = bytes.get(from..).unwrap_or_default();
    text.iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{collected, split_everywhere};

    fn urls(document: &str) -> Vec<String> {
        split_everywhere(document, |pieces| {
            collected(|collector| {
                let mut json = Json::new(0);
                for piece in pieces {
                    json.push(piece, collector);
                }
                json.finish(collector);
            })
        })
    }

    #[test]
    fn values_are_found_and_keys_are_not() {
        for (document, expected) in [
            ("{\"a\":\"/x/y.png\"}", &["x/y.png"] as &[&str]),
            ("{\"/k.png\" : \"/x.png\"}", &["x.png"]),
            (
                "[\"https:\\/\\/gate.example\\/x\",\"\\u002fa.html\"]",
                &["https://gate.example/x", "a.html"],
            ),
            ("{\"url\":\"/items/2\",\"id\":\"/items/3\"}", &["items/2"]),
            ("{\"imageUrl\":\"/items/2\"}", &["items/2"]),
            (
                "{\"urls\":{\"href\":[\"/a\",\"/b\"]},\"c\":\"/d/e\"}",
                &["a", "b"],
            ),
            (
                "{\"@context\":\"https://gate.example/ctx\",\"@id\":\"https://gate.example/id\"}",
                &["https://gate.example/id"],
            ),
            (
                "{\"icons\":[{\"src\":\"icon\\/192.png\",\"type\":\"image\\/png\"}],\"start_url\":\"/?x=1\"}",
                &["icon/192.png", "?x=1"],
            ),
            ("{\"html\":\"<img src=\\\"/a.png\\\">\"}", &["a.png"]),
            ("{\"data\":\"{\\\"url\\\":\\\"/a/b\\\"}\"}", &["a/b"]),
            ("\"/a.png\"", &["a.png"]),
            ("{\"a\":\"/x.png\",\"b\":", &["x.png"]),
            (
                "{\"a\":\"text/html\",\"b\":\"2026/11/17\",\"c\":\"a/b\",\"d\":\"1/2\"}",
                &[],
            ),
            ("{\"a\":\"/cut", &[]),
            ("not \\ json", &[]),
        ] {
            assert_eq!(urls(document), expected, "{document}");
        }
    }

    #[test]
    fn a_string_over_the_limit_is_passed_over() {
        let found = collected(|collector| {
            let mut json = Json::new(0);
            json.push("[\"", collector);
            let piece = "A/b.png\\\" ".repeat(4000);
            for _ in 0..60 {
                json.push(&piece, collector);
                assert!(json.held.len() <= collector.limits().token_bytes);
            }
            json.push("\",\"/a.png\"]", collector);
            json.finish(collector);
        });
        assert_eq!(found, ["a.png"]);
    }
}
