//! XHTML and SVG: the elements of a page in the syntax of XML.

use crate::collector::Collector;
use crate::link::{Hop, LinkPlace};
use crate::page::Page;
use crate::tag::Attribute;
use crate::xml::Events;

/// A page being read by the rules of XML.
pub(crate) struct Xhtml<'x, 'c> {
    page: Page,
    collector: &'x mut Collector<'c>,
    /// Whether a script or a style sheet is being read.
    inside: bool,
}

impl<'x, 'c> Xhtml<'x, 'c> {
    pub(crate) fn new(collector: &'x mut Collector<'c>) -> Self {
        Self {
            page: Page::new(0),
            collector,
            inside: false,
        }
    }
}

impl Events for Xhtml<'_, '_> {
    fn start(&mut self, name: &str, attributes: &[Attribute<'_>], empty: bool) {
        self.end_text();
        // `svg:image` and `image` are the same element.
        let local = name.rsplit(':').next().unwrap_or(name);
        if matches!(local, "html" | "svg")
            && let Some(base) = attributes
                .iter()
                .find(|attribute| attribute.name == "xml:base")
        {
            self.collector.set_base(&base.value);
        }
        self.page.start(local, attributes, self.collector);
        self.inside = !empty && matches!(local, "script" | "style");
    }

    fn end(&mut self, _name: &str) {
        self.end_text();
    }

    fn text(&mut self, text: &str) {
        if self.inside {
            self.page
                .text(&htmlize::unescape(text), false, self.collector);
        }
    }

    fn literal(&mut self, text: &str) {
        if self.inside {
            self.page.text(text, false, self.collector);
        }
    }

    fn instruction(&mut self, name: &str, attributes: &[Attribute<'_>]) {
        style_sheet(name, attributes, self.collector);
    }

    fn is_full(&self) -> bool {
        self.collector.is_full()
    }
}

impl Xhtml<'_, '_> {
    fn end_text(&mut self) {
        if self.inside {
            self.inside = false;
            self.page.text("", true, self.collector);
        }
    }
}

/// Takes `<?xml-stylesheet href="…"?>`.
pub(crate) fn style_sheet(name: &str, attributes: &[Attribute<'_>], collector: &mut Collector<'_>) {
    if name == "xml-stylesheet"
        && let Some(href) = attributes.iter().find(|attribute| attribute.name == "href")
    {
        let href = href.text();
        collector.offer(
            &href,
            Hop::Embed,
            LinkPlace::Attribute("?xml-stylesheet", "href"),
        );
    }
}
