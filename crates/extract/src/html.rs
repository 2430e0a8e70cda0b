//! HTML, read in a stream by `lol_html`.
//!
//! `lol_html` holds back no more than one tag. A tag over the limit, or elements nested beyond all reason, cost what stands in the
//! same piece: the parser is started anew behind it, and the report counts it.

use std::cell::RefCell;
use std::rc::Rc;

use encoding_rs::Encoding;
use lol_html::errors::RewritingError;
use lol_html::html_content::{Element, TextChunk};
use lol_html::{
    ElementContentHandlers, HandlerResult, HtmlRewriter, MemorySettings, Selector, Settings,
};

use crate::collector::Collector;
use crate::page::Page;
use crate::tag::{self, Attribute};

/// What the parser may take beside the longest tag: its stack of open elements.
const STACK_BYTES: usize = 512 << 10;
/// The elements whose text the parser does not read as markup and we want.
const WITH_TEXT: &str = "script, style, noscript, noframes, noembed";

type Rewriter<'x> = HtmlRewriter<'x, fn(&[u8])>;

/// A page being read.
pub(crate) struct Html<'x, 'c> {
    shared: Rc<RefCell<Shared<'x, 'c>>>,
    depth: u8,
    rewriter: Option<Rewriter<'x>>,
    conditional: Conditional,
}

struct Shared<'x, 'c> {
    page: Page,
    /// The piece that is being read, and where it begins in what the parser was given.
    piece: String,
    piece_start: usize,
    collector: &'x mut Collector<'c>,
}

/// Reads a whole page, `depth` documents deep in another.
pub(crate) fn read(text: &str, depth: u8, collector: &mut Collector<'_>) {
    let mut html = Html::new(depth, collector);
    html.push(text);
    html.finish();
}

impl<'x, 'c: 'x> Html<'x, 'c> {
    /// Returns a reader of a page that is `depth` documents deep in another.
    pub(crate) fn new(depth: u8, collector: &'x mut Collector<'c>) -> Self {
        Self {
            shared: Rc::new(RefCell::new(Shared {
                page: Page::new(depth),
                piece: String::new(),
                piece_start: 0,
                collector,
            })),
            depth,
            rewriter: None,
            conditional: Conditional::default(),
        }
    }

    /// Lets queries be written in the page's character set.
    pub(crate) fn encode_queries(&mut self, encoding: &'static Encoding) {
        self.shared.borrow_mut().collector.encode_queries(encoding);
    }

    /// Reads a piece of the page; returns whether more is wanted.
    pub(crate) fn push(&mut self, text: &str) -> bool {
        self.write(text);
        let mut shared = self.shared.borrow_mut();
        let depth = self.depth.saturating_add(1);
        self.conditional.push(text, depth, shared.collector);
        !shared.collector.is_full()
    }

    /// Reads what was held back.
    pub(crate) fn finish(mut self) {
        if let Some(rewriter) = self.rewriter.take() {
            // Whatever fails at the end has no links behind it.
            let _ = rewriter.end();
        }
    }

    fn write(&mut self, text: &str) {
        {
            let mut shared = self.shared.borrow_mut();
            shared.piece_start += shared.piece.len();
            shared.piece.clear();
            shared.piece.push_str(text);
        }
        // A parser that failed is started anew with the same piece: what it finds twice is given once.
        for _ in 0..2 {
            let mut rewriter = match self.rewriter.take() {
                Some(rewriter) => rewriter,
                None => rewriter(&self.shared),
            };
            match rewriter.write(text.as_bytes()) {
                Ok(()) => {
                    self.rewriter = Some(rewriter);
                    return;
                }
                Err(RewritingError::ContentHandlerError(_)) => return,
                Err(_) => {
                    let mut shared = self.shared.borrow_mut();
                    shared.page = Page::new(self.depth);
                    shared.piece_start = 0;
                    shared.collector.passed_over = shared.collector.passed_over.saturating_add(1);
                }
            }
        }
    }
}

fn rewriter<'x, 'c: 'x>(shared: &Rc<RefCell<Shared<'x, 'c>>>) -> Rewriter<'x> {
    let limit = shared
        .borrow()
        .collector
        .limits()
        .token_bytes
        .saturating_add(STACK_BYTES);
    let (tags, texts) = (Rc::clone(shared), Rc::clone(shared));
    let settings = Settings::new()
        .with_memory_settings(MemorySettings::new().with_max_allowed_memory_usage(limit))
        .with_strict(false)
        .append_element_content_handler((
            std::borrow::Cow::Owned(selector("*")),
            ElementContentHandlers::default()
                .element(move |element: &mut Element<'_, '_>| tags.borrow_mut().start(element)),
        ))
        .append_element_content_handler((
            std::borrow::Cow::Owned(selector(WITH_TEXT)),
            ElementContentHandlers::default()
                .text(move |chunk: &mut TextChunk<'_>| texts.borrow_mut().text(chunk)),
        ));
    HtmlRewriter::new(settings, |_| {})
}

fn selector(text: &str) -> Selector {
    text.parse().expect("our own selectors parse")
}

impl Shared<'_, '_> {
    fn start(&mut self, element: &Element<'_, '_>) -> HandlerResult {
        // The parser lends its attributes one string at a time. A tag that is whole in this piece is taken from there instead.
        let place = element.source_location().bytes();
        let tag = place
            .start
            .checked_sub(self.piece_start)
            .and_then(|start| self.piece.get(start..place.end - self.piece_start));
        if let Some(tag) = tag {
            let (name, attributes) = tag::parse(tag, Page::matters);
            self.page.start(&name, &attributes, self.collector);
        } else {
            let attributes: Vec<Attribute<'_>> = element
                .attributes()
                .iter()
                .map(|attribute| Attribute {
                    name: attribute.name().into(),
                    value: attribute.value().into(),
                })
                .filter(|attribute| Page::matters(&attribute.name))
                .collect();
            self.page
                .start(&element.tag_name(), &attributes, self.collector);
        }
        self.go_on()
    }

    fn text(&mut self, chunk: &TextChunk<'_>) -> HandlerResult {
        if self.page.wants_text() {
            self.page
                .text(chunk.as_str(), chunk.last_in_text_node(), self.collector);
        }
        self.go_on()
    }

    /// Stops the parser when there is no room for another link.
    fn go_on(&self) -> HandlerResult {
        if self.collector.is_full() {
            Err("no room for more links".into())
        } else {
            Ok(())
        }
    }
}

/// Comments that Internet Explorer read: `<!--[if lt IE 9]> … <![endif]-->`.
///
/// The parser passes over comments without a look, and faster for it; these few are found beside it.
#[derive(Debug, Default)]
struct Conditional {
    held: String,
    inside: bool,
}

impl Conditional {
    const START: &str = "<!--[if";
    const END: &str = "-->";

    fn push(&mut self, text: &str, depth: u8, collector: &mut Collector<'_>) {
        let joined;
        let mut rest = if self.held.is_empty() {
            text
        } else {
            self.held.push_str(text);
            joined = std::mem::take(&mut self.held);
            &joined
        };
        loop {
            if self.inside {
                let Some(end) = memchr::memmem::find(rest.as_bytes(), Self::END.as_bytes()) else {
                    break;
                };
                self.inside = false;
                let comment = &rest[..end];
                rest = &rest[end..];
                // `<!--[if !IE]><!-->` ends at once: what it guards is no comment.
                if let Some((_, markup)) = comment.split_once("]>")
                    && markup.contains('=')
                {
                    collector.fragment(depth, |collector| read(markup, depth, collector));
                }
            } else {
                let Some(start) = memchr::memmem::find(rest.as_bytes(), Self::START.as_bytes())
                else {
                    // The start may be cut in two.
                    let mut tail = rest.len().saturating_sub(Self::START.len() - 1);
                    while !rest.is_char_boundary(tail) {
                        tail += 1;
                    }
                    let tail = rest[tail..].rfind('<').map_or(rest.len(), |at| tail + at);
                    rest = &rest[tail..];
                    break;
                };
                self.inside = true;
                rest = &rest[start + Self::START.len()..];
            }
        }
        if rest.len() <= collector.limits().token_bytes {
            self.held = rest.to_owned();
        } else {
            collector.passed_over = collector.passed_over.saturating_add(1);
            self.inside = false;
        }
    }
}
