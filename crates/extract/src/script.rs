//! JavaScript: the string literals that look like URLs.
//!
//! A tokenizer that knows strings, templates, comments and regular expressions from each other, and of the code around a string only
//! its neighbours: a key of an object, an argument of `replace`, or one part of a sum is not taken for a URL. Literals that are added up
//! are joined. Whether a string looks like a URL is decided in `speculative.rs`; markup and JSON in strings are looked into.

mod bundle;
mod end;
mod escape;
mod word;

use crate::chunks::{self, ChunkSum};
use crate::collector::Collector;
use crate::json;
use crate::link::{Hop, LinkPlace};
use crate::markup;
use crate::speculative::{Ground, after_scheme, is_page, stands_alone, url_in};

use bundle::Chunks;
use end::{End, Template, boundary, pattern_end, string_end, template_end};
use word::{Word, is_word, word};

pub(crate) use escape::unescaped;

/// Templates in the holes of templates that are followed.
const TEMPLATES: usize = 16;
/// The longest word that matters, `getElementsByClassName`, and one byte more.
const WORD: usize = 23;
/// A script being read.
#[derive(Debug)]
pub(crate) struct Script {
    depth: u8,
    held: String,
    state: ScriptState,
    /// The last byte that was neither space nor comment; a letter for a word, a quote for a string.
    last: u8,
    /// The one before it.
    before_last: u8,
    word: Word,
    /// The word before the parenthesis, equals sign or colon that came last.
    subject: Word,
    waiting: Option<Literal>,
    /// For each template whose hole is being read, the braces open in it.
    templates: Vec<u32>,
    /// Whether the dot that came last stands behind `location`.
    of_location: bool,
    /// Strings and tables that are added up.
    sum: Option<ChunkSum>,
    chunks: Chunks,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScriptState {
    Code,
    LineComment,
    BlockComment,
    /// A string too long to be looked at, until this quote.
    LongString(u8),
    /// The text of a template that has a hole or is too long.
    Template,
}

/// A string that waits for what follows it.
#[derive(Debug)]
struct Literal {
    text: String,
    before: u8,
    /// What it is given to.
    subject: Word,
    plus: bool,
    /// A comma has followed: what comes then may be what it is relative to.
    comma: bool,
}

enum Step {
    To(usize),
    Unfinished,
}

impl Script {
    /// Returns a reader of a script that is `depth` documents deep in another.
    pub(crate) fn new(depth: u8) -> Self {
        Self {
            depth,
            held: String::new(),
            state: ScriptState::Code,
            last: b';',
            before_last: b';',
            word: Word::Other,
            subject: Word::Other,
            waiting: None,
            templates: Vec::new(),
            of_location: false,
            sum: None,
            chunks: Chunks::default(),
        }
    }

    /// Reads a whole script.
    pub(crate) fn read(text: &str, depth: u8, collector: &mut Collector<'_>) {
        let mut script = Self::new(depth);
        script.scan(text, true, collector);
        script.settle_all(collector);
    }

    /// Reads a piece of the script.
    pub(crate) fn push(&mut self, text: &str, collector: &mut Collector<'_>) {
        if self.held.is_empty() {
            let read = self.scan(text, false, collector);
            self.held.push_str(&text[read..]);
        } else {
            let mut held = std::mem::take(&mut self.held);
            held.push_str(text);
            let read = self.scan(&held, false, collector);
            held.drain(..read);
            self.held = held;
        }
        if self.held.len() > collector.limits().token_bytes {
            collector.passed_over = collector.passed_over.saturating_add(1);
            self.state = match self.held.as_bytes().first() {
                Some(b'`') => {
                    self.open_template();
                    ScriptState::Template
                }
                Some(&quote @ (b'"' | b'\'')) => ScriptState::LongString(quote),
                _ => ScriptState::Code,
            };
            self.settle(collector);
            self.after(b'"', Word::Other);
            self.held.clear();
        }
    }

    /// Reads what was held back; the next piece begins another script.
    pub(crate) fn finish(&mut self, collector: &mut Collector<'_>) {
        let held = std::mem::take(&mut self.held);
        self.scan(&held, true, collector);
        self.settle_all(collector);
        *self = Self::new(self.depth);
    }

    fn scan(&mut self, text: &str, last: bool, collector: &mut Collector<'_>) -> usize {
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() && !collector.is_full() {
            let step = match self.state {
                ScriptState::Code => self.code(text, at, last, collector),
                ScriptState::LineComment => Step::To(self.line_comment(bytes, at)),
                ScriptState::BlockComment => match memchr::memmem::find(&bytes[at..], b"*/") {
                    Some(end) => {
                        self.state = ScriptState::Code;
                        Step::To(at + end + 2)
                    }
                    None if last => Step::To(bytes.len()),
                    None if at + 1 < bytes.len() => Step::To(boundary(text, bytes.len() - 1)),
                    None => Step::Unfinished,
                },
                ScriptState::LongString(quote) => self.long_string(bytes, at, quote, last),
                ScriptState::Template => self.template_text(bytes, at, last),
            };
            match step {
                Step::To(next) => at = next,
                Step::Unfinished => return at,
            }
        }
        bytes.len()
    }

    fn line_comment(&mut self, bytes: &[u8], at: usize) -> usize {
        match memchr::memchr2(b'\n', b'\r', &bytes[at..]) {
            Some(end) => {
                self.state = ScriptState::Code;
                at + end + 1
            }
            None => bytes.len(),
        }
    }

    fn long_string(&mut self, bytes: &[u8], at: usize, quote: u8, last: bool) -> Step {
        match string_end(bytes, at, quote) {
            End::Closed(end) => {
                self.state = ScriptState::Code;
                Step::To(end + 1)
            }
            End::Line(end) => {
                self.state = ScriptState::Code;
                Step::To(end)
            }
            End::Open if last => Step::To(bytes.len()),
            // All but a backslash that may be half of an escape.
            End::Open => match bytes[at..]
                .iter()
                .rev()
                .take_while(|&&byte| byte == b'\\')
                .count()
            {
                0 => Step::To(bytes.len()),
                slashes if at + slashes == bytes.len() => Step::Unfinished,
                slashes => Step::To(bytes.len() - slashes),
            },
        }
    }

    /// Reads the text of a template that is no literal, to its end or its next hole.
    fn template_text(&mut self, bytes: &[u8], at: usize, last: bool) -> Step {
        match template_end(bytes, at) {
            Template::Closed(end) => {
                self.state = ScriptState::Code;
                self.templates.pop();
                self.after(b'"', Word::Other);
                Step::To(end + 1)
            }
            Template::Hole(end) => {
                self.state = ScriptState::Code;
                self.after(b'(', Word::Other);
                Step::To(end + 2)
            }
            Template::Open if last => Step::To(bytes.len()),
            // A dollar sign or a backslash at the end may be half of something.
            Template::Open => {
                let tail = bytes[at..]
                    .iter()
                    .rev()
                    .take_while(|&&byte| matches!(byte, b'\\' | b'$'))
                    .count();
                if tail == 0 {
                    Step::To(bytes.len())
                } else if at + tail == bytes.len() {
                    Step::Unfinished
                } else {
                    Step::To(bytes.len() - tail)
                }
            }
        }
    }

    fn code(&mut self, text: &str, at: usize, last: bool, collector: &mut Collector<'_>) -> Step {
        let bytes = text.as_bytes();
        match bytes[at] {
            byte if is_word(byte) => self.word(bytes, at, last, collector),
            byte if byte.is_ascii_whitespace() => Step::To(at + 1),
            quote @ (b'"' | b'\'') => match string_end(bytes, at + 1, quote) {
                End::Closed(end) => {
                    self.literal(&text[at + 1..end], collector);
                    Step::To(end + 1)
                }
                // Not a string after all, or a broken one: the line end puts things right.
                End::Line(end) => {
                    self.settle(collector);
                    Step::To(end)
                }
                End::Open if last => Step::To(bytes.len()),
                End::Open => Step::Unfinished,
            },
            b'`' => self.template(text, at, last, collector),
            b'/' => self.slash(bytes, at, last, collector),
            b'<' if bytes[at..].starts_with(b"<!--") => {
                self.state = ScriptState::LineComment;
                Step::To(at + 4)
            }
            b'<' if !last && b"<!--".starts_with(&bytes[at..]) => Step::Unfinished,
            b'+' if bytes.get(at + 1).is_none() && !last => Step::Unfinished,
            b'+' if bytes.get(at + 1) == Some(&b'+') => {
                self.settle(collector);
                // `x++ / y` divides, `++/x/` does not exist.
                self.after(b')', Word::Other);
                Step::To(at + 2)
            }
            byte => {
                self.punctuation(byte, collector);
                Step::To(at + 1)
            }
        }
    }

    fn word(&mut self, bytes: &[u8], at: usize, last: bool, collector: &mut Collector<'_>) -> Step {
        let end = bytes[at..]
            .iter()
            .position(|&byte| !is_word(byte))
            .map_or(bytes.len(), |length| at + length);
        if end == bytes.len() && !last {
            if end - at <= WORD {
                return Step::Unfinished;
            }
            // The rest of a word too long to matter is another one; the last bytes may be half a character.
            self.settle(collector);
            self.after(b'a', Word::Other);
            return Step::To(bytes.len());
        }
        let text = &bytes[at..end];
        self.begin_sum();
        self.add_up(|sum| sum.word(text));
        let found = match (self.last, text) {
            (b'.', b"replace") if self.of_location => Word::Link,
            (b'.', b"p") => Word::PublicPath,
            // Minified scripts are made of these.
            (_, [_]) => Word::Other,
            _ => word(text),
        };
        if let Some(literal) = self.waiting.as_mut().filter(|literal| literal.comma)
            && found == Word::Import
        {
            // `new URL("x", import.meta.url)`
            literal.subject = Word::Import;
        }
        self.settle(collector);
        self.chunks.vitepress |= found == Word::VitepressPages;
        self.chunks.vite |= found == Word::ViteFiles;
        self.after(b'a', found);
        Step::To(end)
    }

    fn punctuation(&mut self, byte: u8, collector: &mut Collector<'_>) {
        if matches!(byte, b'(' | b'{') {
            self.begin_sum();
            if byte == b'{' && self.sum.is_none() {
                self.begin_sum_of_table();
            }
        }
        self.add_up(|sum| sum.punctuation(byte));
        if let Some(literal) = &mut self.waiting {
            if byte == b',' && literal.subject == Word::Url && literal.before == b'(' {
                literal.comma = !literal.plus;
                if literal.comma {
                    self.after(b',', Word::Other);
                    return;
                }
            }
            if byte == b'+' && !literal.plus && !literal.comma {
                literal.plus = true;
                self.after(b'+', Word::Other);
                return;
            }
            if byte == b':' && !literal.plus && matches!(literal.before, b'{' | b',') {
                let key = word(literal.text.as_bytes());
                self.waiting = None;
                self.after(b'a', key);
            }
            self.settle(collector);
        }
        match byte {
            b'{' => {
                if let Some(braces) = self.templates.last_mut() {
                    *braces += 1;
                }
            }
            b'}' => match self.templates.last_mut() {
                Some(0) => {
                    self.state = ScriptState::Template;
                    return;
                }
                Some(braces) => *braces -= 1,
                None => {}
            },
            b'(' | b'=' | b':' => {
                self.subject = if self.last == b'a' {
                    self.word
                } else {
                    Word::Other
                };
            }
            b'.' => self.of_location = self.last == b'a' && self.word == Word::Location,
            b']' | b';' => self.chunks.vite = false,
            _ => {}
        }
        self.after(byte, Word::Other);
    }

    fn after(&mut self, last: u8, word: Word) {
        self.before_last = self.last;
        self.last = last;
        self.word = word;
    }

    fn slash(
        &mut self,
        bytes: &[u8],
        at: usize,
        last: bool,
        collector: &mut Collector<'_>,
    ) -> Step {
        match bytes.get(at + 1) {
            None if !last => return Step::Unfinished,
            Some(b'/') => {
                self.state = ScriptState::LineComment;
                return Step::To(at + 2);
            }
            Some(b'*') => {
                self.state = ScriptState::BlockComment;
                return Step::To(at + 2);
            }
            _ => {}
        }
        let divides = match self.last {
            b'a' => self.word != Word::Operator,
            b')' | b']' | b'"' => true,
            _ => false,
        };
        if divides {
            self.punctuation(b'/', collector);
            return Step::To(at + 1);
        }
        self.settle(collector);
        match pattern_end(bytes, at + 1) {
            End::Closed(end) => {
                self.after(b')', Word::Other);
                Step::To(end + 1)
            }
            End::Line(_) => {
                self.after(b'/', Word::Other);
                Step::To(at + 1)
            }
            End::Open if last => Step::To(at + 1),
            End::Open => Step::Unfinished,
        }
    }

    fn open_template(&mut self) {
        if self.templates.len() >= TEMPLATES {
            // Nobody writes this; what follows may be misread, but is still read.
            self.templates.clear();
        }
        self.templates.push(0);
    }

    fn template(
        &mut self,
        text: &str,
        at: usize,
        last: bool,
        collector: &mut Collector<'_>,
    ) -> Step {
        match template_end(text.as_bytes(), at + 1) {
            Template::Closed(end) => {
                self.literal(&text[at + 1..end], collector);
                Step::To(end + 1)
            }
            Template::Hole(_) => {
                self.settle(collector);
                self.open_template();
                self.state = ScriptState::Template;
                Step::To(at + 1)
            }
            Template::Open if last => Step::To(text.len()),
            Template::Open => Step::Unfinished,
        }
    }

    fn literal(&mut self, raw: &str, collector: &mut Collector<'_>) {
        let limit = collector.limits().token_bytes;
        let text = unescaped(raw);
        self.add_up(|sum| sum.text(&text));
        match &mut self.waiting {
            Some(literal) if literal.plus && literal.text.len() + text.len() <= limit => {
                literal.text.push_str(&text);
                literal.plus = false;
            }
            _ => {
                self.settle(collector);
                let subject = match self.last {
                    b'(' | b'=' | b':' => self.subject,
                    b'a' => self.word,
                    _ => Word::Other,
                };
                self.waiting = Some(Literal {
                    text: text.into_owned(),
                    before: self.last,
                    subject,
                    plus: false,
                    comma: false,
                });
            }
        }
        self.after(b'"', Word::Other);
    }

    /// Decides on the string that waits, now that what follows it is known.
    fn settle(&mut self, collector: &mut Collector<'_>) {
        let Some(literal) = self.waiting.take() else {
            return;
        };
        let text = literal.text.as_str();
        if literal.subject == Word::PublicPath && literal.before == b'=' && text.ends_with('/') {
            self.chunks.public_path = Some(text.to_owned());
            return;
        }
        if literal.subject == Word::Pattern || text.len() < 3 {
            return;
        }
        if self.chunks.vitepress && text.starts_with('{') {
            self.chunks.take(chunks::vitepress_names(text));
            if let Some(base) = chunks::vitepress_base(text) {
                self.chunks.public_path = Some(base);
            }
        }
        if markup::is_markup(text) {
            markup::read(text, collector);
            return;
        }
        if json::is_json(text) {
            let depth = self.depth.saturating_add(1);
            collector.fragment(depth, |collector| json::Json::read(text, depth, collector));
            return;
        }
        if let Some(module) = literal.module() {
            module.offer(text, collector);
            return;
        }
        if self.chunks.vite && text.starts_with('.') {
            Module::Lazy.offer(text, collector);
            return;
        }
        let ground = match literal.subject {
            Word::Link | Word::Location | Word::Url => Ground::Named,
            _ => Ground::Script,
        };
        let Ok(url) = url_in(text, ground) else {
            return;
        };
        let tail = literal.before == b'+' && after_scheme(&url).is_none();
        let head = literal.plus && !stands_alone(&url);
        if !tail && !head {
            collector.offer(&url, Hop::Speculative, LinkPlace::SCRIPT);
        }
    }
}

/// A file that a script loads by its own account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Module {
    /// `import "./a.js"`: nothing runs without it.
    Static,
    /// `import("./a.js")` and `new URL("a.png", import.meta.url)`: loaded when it is wanted.
    Lazy,
    /// `importScripts("a.js")`
    Script,
}

impl Literal {
    /// What the string is to the script, if that says that it loads it.
    fn module(&self) -> Option<Module> {
        match (self.subject, self.before) {
            (Word::Import | Word::From, b'a') => Some(Module::Static),
            (Word::Import, b'(') => Some(Module::Lazy),
            (Word::Scripts, b'(') => Some(Module::Script),
            _ => None,
        }
    }
}

impl Module {
    fn offer(self, text: &str, collector: &mut Collector<'_>) {
        let Ok(url) = url_in(text, Ground::Named) else {
            return;
        };
        // The name of a package is no URL; browsers look it up in a map.
        let placed = url.starts_with(['.', '/']) || after_scheme(&url).is_some();
        collector.relative_to_document(|collector| match self {
            Self::Static if placed => collector.offer(&url, Hop::Embed, LinkPlace::SCRIPT),
            Self::Script => collector.offer(&url, Hop::Embed, LinkPlace::SCRIPT),
            Self::Lazy if is_page(&url) => {
                collector.offer(&url, Hop::Speculative, LinkPlace::SCRIPT);
            }
            Self::Lazy => collector.offer_spare(&url, Hop::Embed, LinkPlace::SCRIPT),
            Self::Static => {}
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{collected, split_everywhere};

    fn urls(script: &str) -> Vec<String> {
        split_everywhere(script, |pieces| {
            collected(|collector| {
                let mut reader = Script::new(0);
                for piece in pieces {
                    reader.push(piece, collector);
                }
                reader.finish(collector);
            })
        })
    }

    #[test]
    fn strings_are_found() {
        for (script, expected) in [
            ("x='/a/b.png'", &["a/b.png"] as &[&str]),
            ("x=\"/a/b.png\";y='/c.html'", &["a/b.png", "c.html"]),
            ("x=`/a/b.png`", &["a/b.png"]),
            ("x={'k':'/a.png',k2:\"/b.png\"}", &["a.png", "b.png"]),
            ("x='\\/a\\/b.png'", &["a/b.png"]),
            ("x='\\x2fa\\u002fb.png'", &["a/b.png"]),
            ("x='/a/'+'b.png'", &["a/b.png"]),
            ("x='/a/' + // comment\n 'b' + '.png'", &["a/b.png"]),
            (
                "x='https://gate.example/a.js'+v",
                &["https://gate.example/a.js"],
            ),
            ("import x from './a.js'", &["a.js"]),
            ("import('./lazy')", &["lazy"]),
            ("a?'/a.png':'/b.png'", &["a.png", "b.png"]),
            ("/'/.test(x);y='/a.png'", &["a.png"]),
            ("x=a/b;y='/a.png'/2", &["a.png"]),
            ("return/[/'\"]/.exec('/a.png')", &["a.png"]),
            ("x='don\\'t';y='/a.png'", &["a.png"]),
            ("x='broken\ny='/a.png'", &["a.png"]),
            ("<!-- hide's\nx='/a.png'\n// -->", &["a.png"]),
            ("x=`${a}/b/${'/c.png'}`;y='/d.png'", &["c.png", "d.png"]),
            (
                "x=`a${f({a:`b${'/c.png'}`})}d`;y='/d.png'",
                &["c.png", "d.png"],
            ),
            ("document.write('<img src=\"/a.png\">')", &["a.png"]),
            (
                "document.write('<scr'+'ipt src=\"/a.js\"></scr'+'ipt>')",
                &["a.js"],
            ),
            ("x=JSON.parse('{\"url\":\"\\\\/a\\\\/b\"}')", &["a/b"]),
            ("location.href='/next'", &["next"]),
            ("window.location.replace('/next')", &["next"]),
            ("location = '/next'", &["next"]),
            ("new URL('img/a.png',import.meta.url)", &["img/a.png"]),
            ("new URL('/next', self.location)", &["next"]),
            ("new Worker(new URL('./w.js', import.meta.url))", &["w.js"]),
            ("export*from\"./a.js\"", &["a.js"]),
            (
                "import a,{b}from'./a.js';import'./b.css'",
                &["a.js", "b.css"],
            ),
            ("importScripts('a.js','/b.js')", &["a.js", "b.js"]),
            (
                "n.p='/docs/',n.u=e=>'js/'+({1:'home'}[e]||e)+'.'+{1:'a1',2:'b2'}[e]+'.js'",
                &["docs/js/home.a1.js", "docs/js/2.b2.js"],
            ),
            (
                "n.u=function(e){return\"static/\"+e+\".\"+{3:\"c3\",\"d\":\"d4\"}[e]+\".chunk.css\"}",
                &["static/3.c3.chunk.css", "static/d.d4.chunk.css"],
            ),
            (
                "r.u=e=>\"a/\"+(({5:\"x\"})[e]||e)+\"-\"+({5:\"y\"})[e]+\".js?v=\"+1",
                &[],
            ),
            (
                "r.u=e=>({5:\"x\"}[e]||e)+\".\"+{5:\"y\",6:\"z\"}[e]+\".js\"",
                &["x.y.js", "6.z.js"],
            ),
            ("n.u=function(e){return{5:'x'}[e]+'.css'}", &["x.css"]),
            ("r.u=e=>(({5:'x'})[e]||e)+'.js'", &["x.js"]),
            ("n.p+''+({0:'a'}[e]||e)+'.'+{0:'h'}[e]+'.js'", &["a.h.js"]),
            (
                "window.__VP_HASH_MAP__=JSON.parse('{\"guide_x.md\":\"a1\",\"index.md\":\"b2\"}');window.__VP_SITE_DATA__=JSON.parse('{\"lang\":\"fr\",\"base\":\"/docs/\"}')",
                &["docs/assets/guide_x.md.a1.js", "docs/assets/index.md.b2.js"],
            ),
            (
                "const __vite__mapDeps=(i,m=__vite__mapDeps,d=(m.f||(m.f=['./a.js','./b.css'])))=>i.map(i=>d[i])",
                &["a.js", "b.css"],
            ),
            ("window.open('/next')", &["next"]),
            (
                "x={url:'/next','href':'/last',path:'/no'}",
                &["next", "last"],
            ),
            ("x='é/é.png'", &["%C3%A9/%C3%A9.png"]),
        ] {
            assert_eq!(urls(script), expected, "{script}");
        }
    }

    #[test]
    fn strings_that_are_no_urls_are_not() {
        for script in [
            "x={'/a.png':1,\"/b.png\":2}",
            "x.replace('/a/b/','/')",
            "location.href.replace('/a/b.html','/')",
            "import React from 'react';import x from 'lodash/fp.js'",
            "x={from:'a/b.c'}",
            "x='js/'+({1:'a'}[e]||e)+f(e)",
            "x='js/'+{1:2}[e]+'.js'",
            "x='a/'+{1:'b'}+'.js'",
            "f=()=>({type:'a',name:'b'});g=e=>({1:'a'}[e])",
            "x.split( '/a/b/' )",
            "x.endsWith('a.png')",
            "x='/a/'+b",
            "x=b+'/a.png'",
            "x='https://gate.example/?q='+q",
            "x=`/a/${b}.png`",
            "x=`/a/${b}/c.png`",
            "// '/a.png'",
            "/* '/a.png' */",
            "x=/\\/a\\.png/",
            "x='text/html'",
            "x='/'",
            "require('./a.js')",
            "console.log('a/b.png')",
            "x='/a.png\n'",
            "`/a.png",
            "'/a.png",
        ] {
            assert_eq!(urls(script), [] as [&str; 0], "{script}");
        }
    }

    #[test]
    fn a_string_over_the_limit_is_passed_over() {
        for quote in ['"', '`', '\''] {
            let found = collected(|collector| {
                let mut script = Script::new(0);
                script.push(&format!("x={quote}"), collector);
                let piece = "A/b.png\\n ".repeat(4000);
                for _ in 0..60 {
                    script.push(&piece, collector);
                    assert!(script.held.len() <= collector.limits().token_bytes);
                }
                script.push(&format!("{quote};y='/a.png'"), collector);
                script.finish(collector);
                assert!(collector.passed_over > 0);
            });
            assert_eq!(found, ["a.png"], "{quote}");
        }
    }
}
