//! A document cut into blocks by its structure, with the texts, links and images of each.
//!
//! The paper cuts a page by how it looks, which needs a renderer. We cut it at landmark elements (`header`, `nav`, `main`, `article`,
//! `section`, `aside`, `footer`, `form`, and the roles that mean them), at headings, and where three or more siblings of one element and
//! class have some text each. A document that is no markup is one block, its lines its texts.
//!
//! Bytes are read as they stand: a word is a run of letters, digits and bytes above 127, ASCII letters compared without case.
//! No bytes make it fail, and it keeps no more of a document than the hashes of what it found.

use memchr::{memchr, memmem};

use crate::simhash::{Simhash, mixed, word_hash};
use crate::words::{WordList, WordMeasures};

/// How a document is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentForm {
    /// HTML, XHTML.
    Page,
    /// Other XML: feeds, sitemaps.
    Xml,
    /// Anything else that is text.
    Text,
}

/// A text, a link or an image in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockElement {
    /// Of its words, or of its address.
    pub(crate) hash: u64,
    /// A link's own text, an image's alternative text; 0 without one.
    pub(crate) label: u64,
    /// The words of a text, among those of the document.
    pub(crate) words: (u32, u32),
    /// Its address has the mark of an advertisement.
    pub(crate) is_advertisement: bool,
}

/// A block of a document.
#[derive(Debug, Clone, Default)]
pub(crate) struct DocumentBlock {
    /// What it is called, by its landmarks and its heading; 0 where nothing tells it from its siblings.
    pub(crate) name: u64,
    /// Words, links and images in it.
    pub(crate) size: u64,
    /// By kind: texts, links, images.
    pub(crate) elements: [Vec<BlockElement>; 3],
}

/// A document as blocks.
#[derive(Debug, Clone, Default)]
pub struct BlockDocument {
    pub(crate) blocks: Vec<DocumentBlock>,
    pub(crate) words: Vec<u64>,
    /// The fingerprint of its text.
    pub simhash: u64,
    /// The share of its bytes that is text.
    pub text_weight: f64,
}

/// Deeper elements belong to the block around them.
const DEEPEST: usize = 512;
/// So many siblings of one kind are a row.
const ROW: usize = 3;
/// A sibling with fewer words is no block of its own.
const SIBLING_WORDS: u32 = 8;
/// More elements than this are not looked at.
const ELEMENTS: usize = 1_000_000;

/// An element that is open, or was.
#[derive(Clone, Copy)]
struct OpenElement {
    parent: u32,
    /// Of its name and class.
    kind: u64,
    /// The block it begins; none of its own: that of its parent.
    block: Option<u32>,
    /// How many words were read before it, and when it ended.
    words: (u32, u32),
    tag: Tag,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tag {
    Landmark,
    Division,
    List,
    Item,
    Heading,
    Link,
    Image,
    /// Its content is no text.
    Raw,
    /// Within a text: `b`, `span`.
    Inline,
    Other,
}

impl BlockDocument {
    /// Cuts a document into blocks; addresses with one of `advertisements` in them count as advertisements.
    pub fn read(document: &[u8], form: DocumentForm, advertisements: &[String]) -> Self {
        let mut builder = Builder::new(form, advertisements);
        match form {
            DocumentForm::Page | DocumentForm::Xml => builder.markup(document),
            DocumentForm::Text => {
                for line in document.split(|byte| *byte == b'\n') {
                    builder.text(line);
                    builder.end_text();
                }
            }
        }
        builder.finish(document.len())
    }

    /// Measures its words by a list of them; it was made of so many bytes.
    pub fn measure_words(&self, list: &WordList, document_bytes: usize) -> WordMeasures {
        list.measure(&self.words, document_bytes)
    }

    pub(crate) fn words_of(&self, element: &BlockElement) -> &[u64] {
        &self.words[element.words.0 as usize..element.words.1 as usize]
    }
}

/// An element found, with the open element it is in.
struct FoundElement {
    place: u32,
    /// The block of a heading before it in the same parent.
    section: u32,
    kind: usize,
    element: BlockElement,
}

struct Builder<'a> {
    form: DocumentForm,
    advertisements: Vec<memmem::Finder<'a>>,
    nodes: Vec<OpenElement>,
    stack: Vec<u32>,
    /// The section that each open element is in, begun by a heading in it.
    sections: Vec<u32>,
    section_names: Vec<u64>,
    found: Vec<FoundElement>,
    words: Vec<u64>,
    simhash: Simhash,
    text_bytes: usize,
    text_from: u32,
    /// The link that is open: where it stands in `found`.
    link: Option<usize>,
    /// The words of a heading that is open.
    heading: Option<(usize, u32)>,
}

impl<'a> Builder<'a> {
    fn new(form: DocumentForm, advertisements: &'a [String]) -> Self {
        let find = |mark: &'a String| memmem::Finder::new(mark.as_bytes());
        Self {
            form,
            advertisements: advertisements.iter().map(find).collect(),
            nodes: vec![OpenElement {
                parent: 0,
                kind: 0,
                block: Some(0),
                words: (0, 0),
                tag: Tag::Other,
            }],
            stack: vec![0],
            sections: vec![0],
            section_names: vec![0],
            found: Vec::new(),
            words: Vec::new(),
            simhash: Simhash::new(),
            text_bytes: 0,
            text_from: 0,
            link: None,
            heading: None,
        }
    }

    fn markup(&mut self, document: &[u8]) {
        let mut rest = document;
        while let Some(open) = memchr(b'<', rest) {
            self.text(&rest[..open]);
            rest = &rest[open..];
            rest = match rest.get(1) {
                Some(b'!') if rest.starts_with(b"<!--") => after(&rest[4..], b"-->"),
                Some(b'!') if rest.starts_with(b"<![CDATA[") => {
                    let content = &rest[9..];
                    let end = memmem::find(content, b"]]>").unwrap_or(content.len());
                    self.text(&content[..end]);
                    &content[content.len().min(end + 3)..]
                }
                Some(b'!' | b'?') => after(rest, b">"),
                Some(b'/') => {
                    let name = tag_name(&rest[2..]);
                    self.close(name);
                    after(&rest[2 + name.len()..], b">")
                }
                Some(byte) if byte.is_ascii_alphabetic() => self.open(rest),
                _ => {
                    self.text(b"<");
                    &rest[1..]
                }
            };
        }
        self.text(rest);
        self.end_text();
    }

    /// Reads a start tag; returns what is behind it.
    fn open<'d>(&mut self, rest: &'d [u8]) -> &'d [u8] {
        let name = tag_name(&rest[1..]);
        let (attributes, behind, is_closed) = tag_end(&rest[1 + name.len()..]);
        let tag = self.tag_of(name, attributes);
        match tag {
            Tag::Inline => return behind,
            Tag::Raw => {
                self.end_text();
                // `<script>` ends at `</script`, whatever is in it.
                return match is_closed && self.form == DocumentForm::Xml {
                    true => behind,
                    false => after_raw(behind, name),
                };
            }
            Tag::Link => {
                self.end_text();
                self.end_link();
                if let Some(address) = attribute(attributes, b"href") {
                    self.link = Some(self.found.len());
                    self.element(1, address, 0);
                }
                return behind;
            }
            Tag::Image => {
                self.end_text();
                let address =
                    attribute(attributes, b"src").or_else(|| attribute(attributes, b"data-src"));
                if let Some(address) = address {
                    let label = attribute(attributes, b"alt").unwrap_or_default();
                    let label = if label.is_empty() {
                        0
                    } else {
                        word_hash(label)
                    };
                    self.element(2, address, label);
                }
                return behind;
            }
            Tag::Heading => {
                self.end_text();
                self.heading = Some((self.stack.len() - 1, self.words.len() as u32));
                let section = self.section_names.len() as u32;
                self.section_names.push(0);
                if let Some(open) = self.sections.last_mut() {
                    *open = section;
                }
                return behind;
            }
            Tag::Other => {
                self.end_text();
                return behind;
            }
            Tag::Landmark | Tag::Division | Tag::List | Tag::Item => self.end_text(),
        }
        if is_closed && self.form == DocumentForm::Xml {
            return behind;
        }
        if tag == Tag::Item {
            self.close_item();
        }
        if self.stack.len() < DEEPEST && self.nodes.len() < ELEMENTS {
            let parent = self.stack.last().copied().unwrap_or(0);
            let class = attribute(attributes, b"class").unwrap_or_default();
            let mut kind = mixed(word_hash(name) ^ word_hash(class).rotate_left(1));
            if tag == Tag::Landmark {
                let id = attribute(attributes, b"id").unwrap_or_default();
                let role = attribute(attributes, b"role").unwrap_or_default();
                kind = mixed(kind ^ word_hash(id).rotate_left(2) ^ word_hash(role).rotate_left(3));
            }
            self.stack.push(self.nodes.len() as u32);
            self.sections.push(0);
            self.nodes.push(OpenElement {
                parent,
                kind,
                block: None,
                words: (self.words.len() as u32, u32::MAX),
                tag,
            });
        }
        behind
    }

    fn close(&mut self, name: &[u8]) {
        match self.tag_of(name, b"") {
            Tag::Inline => {}
            Tag::Link => {
                self.end_text();
                self.end_link();
            }
            Tag::Heading => {
                self.end_text();
                if let Some((_, from)) = self.heading.take() {
                    let words = &self.words[from as usize..];
                    let name = words.iter().fold(1, |name, word| mixed(name ^ word));
                    if let Some(last) = self.section_names.last_mut() {
                        *last = name;
                    }
                }
            }
            Tag::Raw | Tag::Image | Tag::Other => self.end_text(),
            tag @ (Tag::Landmark | Tag::Division | Tag::List | Tag::Item) => {
                self.end_text();
                self.end_link();
                // By a role, an element of any name may be a landmark.
                let is_it = |open: &u32| {
                    let found = self.nodes[*open as usize].tag;
                    found == tag || (found == Tag::Landmark && tag == Tag::Division)
                };
                if let Some(at) = self.stack.iter().skip(1).rposition(is_it) {
                    self.close_to(at + 1);
                }
            }
        }
    }

    /// An item ends the one before it in the same list.
    fn close_item(&mut self) {
        let is_border =
            |open: &&u32| matches!(self.nodes[**open as usize].tag, Tag::List | Tag::Item);
        let border = self.stack.iter().skip(1).rev().find(is_border).copied();
        if let Some(open) = border
            && self.nodes[open as usize].tag == Tag::Item
            && let Some(at) = self.stack.iter().position(|other| *other == open)
        {
            self.close_to(at);
        }
    }

    fn close_to(&mut self, depth: usize) {
        let end = self.words.len() as u32;
        for open in self.stack.drain(depth..) {
            self.nodes[open as usize].words.1 = end;
        }
        self.sections.truncate(depth);
    }

    fn text(&mut self, text: &[u8]) {
        let mut at = 0;
        while at < text.len() {
            let Some(from) = text[at..].iter().position(|byte| is_word(*byte)) else {
                break;
            };
            let from = at + from;
            let end = text[from..].iter().position(|byte| !is_word(*byte));
            let end = end.map_or(text.len(), |end| from + end);
            let hash = word_hash(&text[from..end]);
            self.simhash.add(hash);
            self.words.push(hash);
            self.text_bytes += end - from + 1;
            at = end;
        }
    }

    /// Ends a text, which becomes an element unless it has no word.
    fn end_text(&mut self) {
        let (from, to) = (self.text_from, self.words.len() as u32);
        if from == to || self.found.len() >= ELEMENTS {
            self.text_from = to;
            return;
        }
        let words = &self.words[from as usize..to as usize];
        let hash = words.iter().fold(2, |hash, word| mixed(hash ^ word));
        if let Some(link) = self.link
            && let Some(found) = self.found.get_mut(link)
        {
            found.element.label = mixed(found.element.label ^ hash);
        }
        self.text_from = to;
        self.push(0, hash, 0, (from, to), false);
    }

    fn end_link(&mut self) {
        self.link = None;
    }

    fn element(&mut self, kind: usize, address: &[u8], label: u64) {
        let is_advertisement = {
            let marks = &self.advertisements;
            marks.iter().any(|mark| mark.find(address).is_some())
        };
        // Case matters in an address.
        let hash = address
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
            });
        let at = self.words.len() as u32;
        self.push(kind, mixed(hash), label, (at, at), is_advertisement);
    }

    fn push(&mut self, kind: usize, hash: u64, label: u64, words: (u32, u32), is_ad: bool) {
        if self.found.len() >= ELEMENTS {
            return;
        }
        self.found.push(FoundElement {
            place: self.stack.last().copied().unwrap_or(0),
            section: self.sections.last().copied().unwrap_or(0),
            kind,
            element: BlockElement {
                hash,
                label,
                words,
                is_advertisement: is_ad,
            },
        });
    }

    fn tag_of(&self, name: &[u8], attributes: &[u8]) -> Tag {
        let mut lower = [0; 12];
        let Some(lower) = lower.get_mut(..name.len()) else {
            return Tag::Other;
        };
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        if self.form == DocumentForm::Xml {
            return match &*lower {
                b"item" | b"entry" | b"url" | b"sitemap" => Tag::Item,
                b"channel" | b"feed" | b"urlset" => Tag::List,
                _ => Tag::Other,
            };
        }
        match &*lower {
            b"a" => Tag::Link,
            b"img" => Tag::Image,
            b"script" | b"style" | b"template" | b"noscript" | b"svg" => Tag::Raw,
            b"header" | b"nav" | b"main" | b"article" | b"section" | b"aside" | b"footer"
            | b"form" => Tag::Landmark,
            b"div" => match attribute(attributes, b"role").is_some_and(is_landmark_role) {
                true => Tag::Landmark,
                false => Tag::Division,
            },
            b"ul" | b"ol" | b"table" | b"tbody" | b"dl" => Tag::List,
            b"li" | b"tr" => Tag::Item,
            b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" => Tag::Heading,
            b"b" | b"i" | b"em" | b"strong" | b"span" | b"font" | b"u" | b"small" | b"sub"
            | b"sup" | b"abbr" | b"code" | b"mark" | b"time" | b"wbr" | b"cite" | b"q" | b"tt"
            | b"s" | b"kbd" | b"var" | b"samp" | b"bdi" | b"bdo" | b"ins" | b"del" => Tag::Inline,
            _ => Tag::Other,
        }
    }

    /// Says which elements begin a block, and deals what was found to the blocks.
    fn finish(mut self, bytes: usize) -> BlockDocument {
        self.close_to(0);
        let rows = self.rows();
        let mut blocks = vec![DocumentBlock {
            name: 1,
            ..DocumentBlock::default()
        }];
        let mut names = vec![1u64];
        for (at, is_row) in rows.iter().enumerate().skip(1) {
            let node = self.nodes[at];
            let parent = names[node.parent as usize];
            let (name, begins) = match node.tag {
                Tag::Landmark if !is_row => (mixed(parent ^ node.kind), true),
                _ => (parent, *is_row),
            };
            names.push(name);
            self.nodes[at].block = if begins {
                blocks.push(DocumentBlock {
                    // Nothing but its content tells one of a row from the others.
                    name: if *is_row { 0 } else { name },
                    ..DocumentBlock::default()
                });
                Some(blocks.len() as u32 - 1)
            } else {
                self.nodes[node.parent as usize].block
            };
        }
        let mut sections: Vec<Option<u32>> = vec![None; self.section_names.len()];
        for found in &self.found {
            let own = self.nodes[found.place as usize].block.unwrap_or(0);
            let block = match sections.get_mut(found.section as usize) {
                // What is below a heading is a block, unless it is one of a row.
                Some(section) if found.section > 0 && blocks[own as usize].name != 0 => *section
                    .get_or_insert_with(|| {
                        let name = self.section_names[found.section as usize];
                        blocks.push(DocumentBlock {
                            name: mixed(blocks[own as usize].name ^ name).max(2),
                            ..DocumentBlock::default()
                        });
                        blocks.len() as u32 - 1
                    }),
                _ => own,
            };
            let block = &mut blocks[block as usize];
            let (from, to) = found.element.words;
            block.size += match found.kind {
                0 => u64::from(to - from),
                _ => 1,
            };
            block.elements[found.kind].push(found.element);
        }
        blocks.retain(|block| block.size > 0);
        BlockDocument {
            blocks,
            simhash: self.simhash.finish(),
            text_weight: match bytes {
                0 => 0.0,
                _ => (self.text_bytes as f64 / bytes as f64).min(1.0),
            },
            words: self.words,
        }
    }

    /// Tells of each element whether it is one of a row of siblings with some text.
    fn rows(&self) -> Vec<bool> {
        let mut siblings: Vec<(u32, u64, u32)> = Vec::new();
        for (node, at) in self.nodes.iter().zip(0u32..).skip(1) {
            let words = node.words.1.saturating_sub(node.words.0);
            if node.tag != Tag::List && words >= SIBLING_WORDS {
                siblings.push((node.parent, node.kind, at));
            }
        }
        siblings.sort_unstable();
        let mut rows = vec![false; self.nodes.len()];
        for row in siblings.chunk_by(|one, other| (one.0, one.1) == (other.0, other.1)) {
            if row.len() >= ROW {
                for (_, _, at) in row {
                    rows[*at as usize] = true;
                }
            }
        }
        rows
    }
}

fn is_landmark_role(role: &[u8]) -> bool {
    matches!(
        role,
        b"banner"
            | b"navigation"
            | b"main"
            | b"complementary"
            | b"contentinfo"
            | b"search"
            | b"form"
            | b"region"
    )
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte >= 0x80
}

fn tag_name(rest: &[u8]) -> &[u8] {
    let end = rest
        .iter()
        .position(|byte| !(byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'-' | b'_')));
    &rest[..end.unwrap_or(rest.len())]
}

fn after<'d>(rest: &'d [u8], end: &[u8]) -> &'d [u8] {
    memmem::find(rest, end).map_or(&[], |at| &rest[at + end.len()..])
}

/// Returns what is behind the end tag of an element that holds no markup.
fn after_raw<'d>(rest: &'d [u8], name: &[u8]) -> &'d [u8] {
    let mut from = 0;
    while let Some(at) = memmem::find(&rest[from..], b"</") {
        let tag = from + at + 2;
        if rest.len() >= tag + name.len() && rest[tag..tag + name.len()].eq_ignore_ascii_case(name)
        {
            return after(&rest[tag..], b">");
        }
        from = tag;
    }
    &[]
}

/// Returns the attributes of a tag, what is behind it, and whether it closes itself. A `>` in quotes does not end it.
fn tag_end(rest: &[u8]) -> (&[u8], &[u8], bool) {
    let mut at = 0;
    while let Some(found) = memchr::memchr3(b'>', b'"', b'\'', &rest[at..]) {
        at += found;
        match rest[at] {
            b'>' => {
                let is_closed = at > 0 && rest[at - 1] == b'/';
                return (&rest[..at], &rest[at + 1..], is_closed);
            }
            quote => match memchr(quote, &rest[at + 1..]) {
                Some(end) => at += end + 2,
                None => break,
            },
        }
    }
    // A quote that never ends: the tag ends at its first `>` all the same.
    match memchr(b'>', rest) {
        Some(end) => (&rest[..end], &rest[end + 1..], false),
        None => (rest, &[], false),
    }
}

/// Returns the value of an attribute.
fn attribute<'t>(attributes: &'t [u8], wanted: &[u8]) -> Option<&'t [u8]> {
    let mut rest = attributes;
    loop {
        let begin = rest
            .iter()
            .position(|byte| !byte.is_ascii_whitespace() && *byte != b'/')?;
        rest = &rest[begin..];
        let end = rest
            .iter()
            .position(|byte| byte.is_ascii_whitespace() || *byte == b'=')
            .unwrap_or(rest.len());
        let name = &rest[..end.max(1).min(rest.len())];
        rest = &rest[name.len()..];
        let begin = rest.iter().position(|byte| !byte.is_ascii_whitespace());
        let value = match begin.map(|begin| &rest[begin..]) {
            Some([b'=', behind @ ..]) => {
                let begin = behind.iter().position(|byte| !byte.is_ascii_whitespace())?;
                let behind = &behind[begin..];
                let quote = behind[0];
                let (value, end) = if matches!(quote, b'"' | b'\'') {
                    let end = memchr(quote, &behind[1..]).unwrap_or(behind.len() - 1);
                    (&behind[1..=end], (end + 2).min(behind.len()))
                } else {
                    let end = behind.iter().position(u8::is_ascii_whitespace);
                    let end = end.unwrap_or(behind.len());
                    (&behind[..end], end)
                };
                rest = &behind[end..];
                value
            }
            _ => &[],
        };
        if name.eq_ignore_ascii_case(wanted) {
            return Some(value.trim_ascii());
        }
        if rest.is_empty() {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn page(text: &str) -> BlockDocument {
        BlockDocument::read(text.as_bytes(), DocumentForm::Page, &["/ads/".to_owned()])
    }

    fn sizes(document: &BlockDocument) -> Vec<u64> {
        document.blocks.iter().map(|block| block.size).collect()
    }

    #[test]
    fn landmarks_and_headings_begin_blocks() {
        let document = page(
            "<html><head><title>Lock</title><script>var a = '<nav>no</nav>';</script></head><body>\
             <nav><a href=/>Home</a> <a href='/ads/1'>Buy</a></nav>\
             <main><h1>Water level</h1><p>It is <b>high</b> today<h2>Yesterday</h2><p>It was low</main>\
             <!-- <footer>not here</footer> --><footer>Contact us</footer></body></html>",
        );
        // The title; two links with a word each; below each heading, its own words too; the footer.
        assert_eq!(sizes(&document), [1, 4, 2, 6, 4]);
        let nav = &document.blocks[1];
        let ads: Vec<bool> = nav.elements[1]
            .iter()
            .map(|link| link.is_advertisement)
            .collect();
        assert_eq!(ads, [false, true]);
        assert!(document.text_weight > 0.1 && document.text_weight < 0.5);
    }

    #[test]
    fn siblings_with_some_text_are_a_row() {
        let teaser =
            |n| format!("<li class=t><a href=/{n}>News {n}</a> one two three four five six seven");
        let list: String = (0..3).map(teaser).collect();
        assert_eq!(sizes(&page(&format!("<ul>{list}</ul>"))), [10, 10, 10]);
        // Short ones, and fewer than three, are part of what is around them.
        assert_eq!(
            sizes(&page("<ul><li>One<li>Two<li>Three<li>Four</ul>")),
            [4]
        );
        let two: String = (0..2).map(teaser).collect();
        assert_eq!(sizes(&page(&format!("<ul>{two}</ul>"))), [20]);
    }

    #[test]
    fn lines_are_the_texts_of_what_is_no_markup() {
        let document = BlockDocument::read(b"one two\nthree\n\n<b>", DocumentForm::Text, &[]);
        assert_eq!(sizes(&document), [4]);
        assert_eq!(document.blocks[0].elements[0].len(), 3);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_fail(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            for form in [DocumentForm::Page, DocumentForm::Xml, DocumentForm::Text] {
                BlockDocument::read(&bytes, form, &[]);
            }
        }

        #[test]
        fn no_markup_makes_it_fail(text in "(<(/|!|!--)?(li|nav|a href=|img src=\"|h1|div role='|script)?[>'\" /]?| x|=){0,60}") {
            BlockDocument::read(text.as_bytes(), DocumentForm::Page, &[]);
        }
    }
}
