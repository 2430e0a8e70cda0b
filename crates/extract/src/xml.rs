//! XML, read loosely: what is not well formed costs as little as possible of what is around it.
//!
//! The scanner is fed in pieces and holds back at most one tag. It knows no entities but those of HTML, and fetches none.

use crate::tag::Attribute;

/// What a document is made of, in order.
pub(crate) trait Events {
    /// Takes a start tag; `empty` if it is its own end tag too. Names of attributes are in lower case.
    fn start(&mut self, name: &str, attributes: &[Attribute<'_>], empty: bool);
    /// Takes an end tag.
    fn end(&mut self, name: &str);
    /// Takes text with character references in it.
    fn text(&mut self, text: &str);
    /// Takes text that stands for itself.
    fn literal(&mut self, text: &str);
    /// Takes the attributes of a processing instruction.
    fn instruction(&mut self, name: &str, attributes: &[Attribute<'_>]);
    /// Tells whether to stop.
    fn is_full(&self) -> bool;
}

/// An XML document being read.
#[derive(Debug)]
pub(crate) struct Xml {
    held: String,
    state: XmlState,
    limit: usize,
    pub(crate) passed_over: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum XmlState {
    Text,
    Comment,
    Literal,
    /// A document type with declarations in brackets.
    Declarations,
}

enum Step {
    To(usize),
    Unfinished,
}

impl Xml {
    /// Returns a scanner that looks at tags up to `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            held: String::new(),
            state: XmlState::Text,
            limit,
            passed_over: 0,
        }
    }

    /// Reads a piece of the document.
    pub(crate) fn push(&mut self, text: &str, events: &mut dyn Events) {
        if self.held.is_empty() {
            let read = self.scan(text, false, events);
            self.held.push_str(&text[read..]);
        } else {
            let mut held = std::mem::take(&mut self.held);
            held.push_str(text);
            let read = self.scan(&held, false, events);
            held.drain(..read);
            self.held = held;
        }
        if self.held.len() > self.limit {
            self.passed_over = self.passed_over.saturating_add(1);
            self.held.clear();
        }
    }

    /// Reads what was held back.
    pub(crate) fn finish(&mut self, events: &mut dyn Events) {
        let held = std::mem::take(&mut self.held);
        self.scan(&held, true, events);
    }

    fn scan(&mut self, text: &str, last: bool, events: &mut dyn Events) -> usize {
        let mut at = 0;
        while at < text.len() && !events.is_full() {
            let step = match self.state {
                XmlState::Text => self.markup(text, at, last, events),
                XmlState::Comment => self.skip(text, at, "-->", last),
                XmlState::Declarations => self.skip(text, at, "]>", last),
                XmlState::Literal => self.literal(text, at, last, events),
            };
            match step {
                Step::To(next) => at = next,
                Step::Unfinished => return at,
            }
        }
        text.len()
    }

    fn skip(&mut self, text: &str, at: usize, end: &str, last: bool) -> Step {
        match memchr::memmem::find(&text.as_bytes()[at..], end.as_bytes()) {
            Some(found) => {
                self.state = XmlState::Text;
                Step::To(at + found + end.len())
            }
            None if last => Step::To(text.len()),
            None => hold_tail(text, at, end.len() - 1),
        }
    }

    fn literal(&mut self, text: &str, at: usize, last: bool, events: &mut dyn Events) -> Step {
        if let Some(found) = memchr::memmem::find(&text.as_bytes()[at..], b"]]>") {
            events.literal(&text[at..at + found]);
            self.state = XmlState::Text;
            return Step::To(at + found + 3);
        }
        let step = if last {
            Step::To(text.len())
        } else {
            hold_tail(text, at, 2)
        };
        if let Step::To(next) = step {
            events.literal(&text[at..next]);
        }
        step
    }

    fn markup(&mut self, text: &str, at: usize, last: bool, events: &mut dyn Events) -> Step {
        let Some(found) = memchr::memchr(b'<', &text.as_bytes()[at..]) else {
            events.text(&text[at..]);
            return Step::To(text.len());
        };
        if found > 0 {
            events.text(&text[at..at + found]);
            return Step::To(at + found);
        }
        let rest = &text[at..];
        for (start, state) in [
            ("<!--", XmlState::Comment),
            ("<![CDATA[", XmlState::Literal),
        ] {
            if rest.starts_with(start) {
                self.state = state;
                return Step::To(at + start.len());
            }
            if !last && start.starts_with(rest) {
                return Step::Unfinished;
            }
        }
        match rest.as_bytes().get(1) {
            None if !last => return Step::Unfinished,
            Some(byte)
                if byte.is_ascii_alphabetic()
                    || matches!(byte, b'_' | b'!' | b'?' | b'/')
                    || *byte >= 0x80 => {}
            _ => {
                events.text("<");
                return Step::To(at + 1);
            }
        }
        let closed = tag_end(rest.as_bytes());
        let Some(end) = closed else {
            return if last {
                Step::To(text.len())
            } else {
                Step::Unfinished
            };
        };
        if rest.starts_with("<!") {
            if rest[..end].contains('[') {
                self.state = XmlState::Declarations;
                // The brackets may be closed already.
                return Step::To(at + rest.find('[').map_or(end, |bracket| bracket + 1));
            }
            return Step::To(at + end + 1);
        }
        self.tag(&rest[1..end], events);
        Step::To(at + end + 1)
    }

    /// Takes what stands between `<` and `>`.
    fn tag(&mut self, tag: &str, events: &mut dyn Events) {
        if let Some(name) = tag.strip_prefix('/') {
            events.end(name.trim_ascii());
        } else if let Some(instruction) = tag.strip_prefix('?') {
            let (name, rest) = name_and_rest(instruction.trim_end_matches('?'));
            events.instruction(name, &attributes(rest));
        } else {
            let (name, rest) = name_and_rest(tag);
            if name.starts_with(|c: char| c.is_alphabetic() || c == '_') {
                let empty = tag.ends_with('/');
                let rest = if empty {
                    rest.strip_suffix('/').unwrap_or(rest)
                } else {
                    rest
                };
                events.start(name, &attributes(rest), empty);
            }
        }
    }
}

/// Steps over all but the last `length` bytes, which may be half of an end.
fn hold_tail(text: &str, at: usize, length: usize) -> Step {
    let mut next = text.len().saturating_sub(length).max(at);
    while !text.is_char_boundary(next) {
        next += 1;
    }
    if next > at {
        Step::To(next)
    } else {
        Step::Unfinished
    }
}

/// Finds the `>` that ends a tag, outside of quotes. A `<` outside of quotes ends a tag that was never closed.
fn tag_end(bytes: &[u8]) -> Option<usize> {
    let mut at = 1;
    // Quotes in a document type or a comment need not match.
    let quoting = bytes.get(1) != Some(&b'!');
    while at < bytes.len() {
        match bytes[at] {
            b'>' => return Some(at),
            quote @ (b'"' | b'\'') if quoting && is_after_equals(bytes, at) => {
                at += 1 + memchr::memchr(quote, &bytes[at + 1..])?;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

fn is_after_equals(bytes: &[u8], at: usize) -> bool {
    bytes[..at].trim_ascii_end().ends_with(b"=")
}

fn name_and_rest(tag: &str) -> (&str, &str) {
    let end = tag
        .find(|c: char| c.is_ascii_whitespace() || c == '/')
        .unwrap_or(tag.len());
    tag.split_at(end)
}

fn attributes(text: &str) -> Vec<Attribute<'_>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once('=') {
        // Words without a value may stand before the name.
        let name = name.trim_ascii_end();
        let name = name
            .rsplit(|c: char| c.is_ascii_whitespace() || c == '/')
            .next()
            .unwrap_or(name);
        let after = after.trim_ascii_start();
        let (value, next) = match after.chars().next() {
            Some(quote @ ('"' | '\'')) => after[1..].split_once(quote).unwrap_or((&after[1..], "")),
            _ => after.split_at(
                after
                    .find(|c: char| c.is_ascii_whitespace())
                    .unwrap_or(after.len()),
            ),
        };
        if !name.is_empty() {
            found.push(Attribute {
                name: name.to_ascii_lowercase().into(),
                value: value.into(),
            });
        }
        rest = next;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::split_everywhere;

    #[derive(Default)]
    struct Told(Vec<String>);

    impl Told {
        fn add(&mut self, kind: char, text: &str) {
            // Text comes in as many pieces as the document does.
            match self.0.last_mut() {
                Some(last) if last.starts_with(kind) && matches!(kind, 't' | 'l') => {
                    last.push_str(text);
                }
                _ if text.is_empty() => {}
                _ => self.0.push(format!("{kind}{text}")),
            }
        }
    }

    impl Events for Told {
        fn start(&mut self, name: &str, attributes: &[Attribute<'_>], empty: bool) {
            let mut text = name.to_owned();
            for attribute in attributes {
                text.push_str(&format!(" {}={}", attribute.name, attribute.value));
            }
            self.add(if empty { '/' } else { '<' }, &text);
        }
        fn end(&mut self, name: &str) {
            self.add('>', name);
        }
        fn text(&mut self, text: &str) {
            self.add('t', text);
        }
        fn literal(&mut self, text: &str) {
            self.add('l', text);
        }
        fn instruction(&mut self, name: &str, attributes: &[Attribute<'_>]) {
            self.add('?', &format!("{name} {}", attributes.len()));
        }
        fn is_full(&self) -> bool {
            false
        }
    }

    fn told(document: &str) -> Vec<String> {
        split_everywhere(document, |pieces| {
            let mut told = Told::default();
            let mut xml = Xml::new(1 << 20);
            for piece in pieces {
                xml.push(piece, &mut told);
            }
            xml.finish(&mut told);
            told.0
        })
    }

    #[test]
    fn well_formed_documents_are_read() {
        for (document, expected) in [
            ("<a>b</a>", &["<a", "tb", ">a"] as &[&str]),
            ("<a b='c' D = \"e>f\"/>", &["/a b=c d=e>f"]),
            ("<?xml version='1.0'?><a/>", &["?xml 1", "/a"]),
            ("<a><!-- <b> --></a>", &["<a", ">a"]),
            ("<a><![CDATA[<b>&amp;]]></a>", &["<a", "l<b>&amp;", ">a"]),
            ("<!DOCTYPE a [ <!ENTITY b \"c>d\"> ]><a/>", &["/a"]),
            ("<!DOCTYPE a><a/>", &["/a"]),
            ("<x:a x:b='c'>é</x:a>", &["<x:a x:b=c", "té", ">x:a"]),
        ] {
            assert_eq!(told(document), expected, "{document}");
        }
    }

    #[test]
    fn others_cost_little() {
        for (document, expected) in [
            ("<a b=c d>e", &["<a b=c", "te"] as &[&str]),
            ("a < b <c/>", &["ta < b ", "/c"]),
            ("<a b='c", &[]),
            ("<a it's b='c'>d</a>", &["<a b=c", "td", ">a"]),
            ("<", &["t<"]),
            ("<!-", &[]),
            ("<![CDATA[x", &["lx"]),
            ("]]>", &["t]]>"]),
        ] {
            assert_eq!(told(document), expected, "{document}");
        }
    }
}
