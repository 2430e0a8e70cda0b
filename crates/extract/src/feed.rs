//! XML that is not a page: sitemaps, RSS, Atom, and whatever else.

use std::borrow::Cow;

use crate::collector::Collector;
use crate::html;
use crate::link::{Hop, LinkPlace};
use crate::page::Page;
use crate::rel::{self, Role};
use crate::speculative::{Ground, after_scheme, url_in};
use crate::tag::Attribute;
use crate::xhtml::style_sheet;
use crate::xml::Events;

/// An XML document being read.
pub(crate) struct Feed<'x, 'c> {
    collector: &'x mut Collector<'c>,
    family: Option<Family>,
    wanted: Wanted,
    text: String,
    in_image: bool,
}

/// What the root element says the document is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Sitemap,
    /// RSS and Atom, which borrow from each other.
    News,
    Other,
}

/// What the text of the element being read is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Nothing,
    Link(Hop),
    /// Something a reader may see, but the feed is whole without it.
    Spare,
    /// A link if it is one.
    Maybe,
    /// Markup, escaped.
    Markup,
}

impl<'x, 'c> Feed<'x, 'c> {
    pub(crate) fn new(collector: &'x mut Collector<'c>) -> Self {
        Self {
            collector,
            family: None,
            wanted: Wanted::Nothing,
            text: String::new(),
            in_image: false,
        }
    }

    fn hold(&mut self, text: &str) {
        let limit = match self.wanted {
            Wanted::Nothing => return,
            Wanted::Markup => self.collector.limits().token_bytes,
            Wanted::Link(_) | Wanted::Spare | Wanted::Maybe => {
                self.collector.limits().url_bytes.saturating_mul(3)
            }
        };
        if self.text.len() + text.len() > limit {
            self.wanted = Wanted::Nothing;
            self.text = String::new();
            self.collector.passed_over = self.collector.passed_over.saturating_add(1);
        } else {
            self.text.push_str(text);
        }
    }

    fn settle(&mut self) {
        let wanted = std::mem::replace(&mut self.wanted, Wanted::Nothing);
        if wanted == Wanted::Nothing {
            return;
        }
        let text = std::mem::take(&mut self.text);
        let text = htmlize::unescape(&text);
        let place = if self.family == Some(Family::Sitemap) {
            LinkPlace::MANIFEST
        } else {
            LinkPlace::XML
        };
        match wanted {
            Wanted::Nothing => {}
            Wanted::Link(hop) => self.collector.offer(&text, hop, place),
            Wanted::Spare => self.collector.offer_spare(&text, Hop::Embed, place),
            Wanted::Maybe => {
                let text = text.trim();
                if after_scheme(text).is_some()
                    && let Ok(url) = url_in(text, Ground::Value)
                {
                    self.collector.offer(&url, Hop::Speculative, place);
                }
            }
            Wanted::Markup => {
                if text.contains('<') && text.contains('=') {
                    self.collector
                        .fragment(1, |collector| html::read(&text, 1, collector));
                }
            }
        }
    }

    fn attributes(&mut self, element: &str, attributes: &[Attribute<'_>]) {
        let family = self.family.unwrap_or(Family::Other);
        for attribute in attributes {
            let name = &*attribute.name;
            let local = name.rsplit(':').next().unwrap_or(name);
            let value = attribute.text();
            let place = LinkPlace::Attribute(element, name);
            match (family, element, local) {
                (_, "link", "href") => self.link(attributes, &value, place),
                (Family::News, "enclosure" | "content" | "thumbnail", "url")
                | (Family::News, "image", "href")
                | (Family::News, "content", "src") => {
                    self.collector.offer_spare(&value, Hop::Embed, place);
                }
                (Family::News, "source" | "player", "url") => {
                    self.collector.offer(&value, Hop::Navigation, place);
                }
                (Family::Other, _, "href" | "src" | "url" | "location")
                    if (after_scheme(&value).is_none()
                        || url_in(&value, Ground::Named).is_ok()) =>
                {
                    self.collector.offer(&value, Hop::Speculative, place);
                }
                _ => {}
            }
        }
    }

    fn link(&mut self, attributes: &[Attribute<'_>], value: &str, place: LinkPlace<'_>) {
        let rel = attributes
            .iter()
            .find(|attribute| attribute.name == "rel")
            .map(|rel| &*rel.value);
        match rel {
            Some("enclosure") => self.collector.offer_spare(value, Hop::Embed, place),
            Some("edit" | "edit-media" | "service") => {}
            Some(rel) if rel::role(rel) == Role::Ignored => {}
            _ => self.collector.offer(value, Hop::Navigation, place),
        }
    }

    fn wanted(&self, prefix: &str, element: &str, attributes: &[Attribute<'_>]) -> Wanted {
        let says = |name: &str, value: &str| {
            attributes
                .iter()
                .any(|attribute| attribute.name == name && attribute.value == value)
        };
        match (self.family.unwrap_or(Family::Other), element) {
            (Family::Sitemap, "loc") if prefix == "image" => Wanted::Spare,
            (Family::Sitemap, "loc") => Wanted::Link(Hop::Manifest),
            (Family::Sitemap, "content_loc" | "thumbnail_loc") => Wanted::Spare,
            (Family::Sitemap, "player_loc") => Wanted::Link(Hop::Navigation),
            (Family::Sitemap, _) => Wanted::Nothing,
            (Family::News, "link" | "comments" | "commentRss" | "uri") => {
                Wanted::Link(Hop::Navigation)
            }
            (Family::News, "guid") if !says("ispermalink", "false") => Wanted::Maybe,
            (Family::News, "url") if self.in_image => Wanted::Spare,
            (Family::News, "icon" | "logo") => Wanted::Spare,
            (Family::News, "encoded" | "description" | "summary" | "content" | "subtitle") => {
                Wanted::Markup
            }
            (Family::News, _) => Wanted::Nothing,
            (Family::Other, _) => Wanted::Maybe,
        }
    }
}

impl Events for Feed<'_, '_> {
    fn start(&mut self, name: &str, attributes: &[Attribute<'_>], empty: bool) {
        self.settle();
        let (prefix, local) = name.split_once(':').unwrap_or(("", name));
        if self.family.is_none() {
            self.family = Some(match local {
                "urlset" | "sitemapindex" => Family::Sitemap,
                "rss" | "feed" | "RDF" => Family::News,
                _ => Family::Other,
            });
            if let Some(base) = attributes
                .iter()
                .find(|attribute| attribute.name == "xml:base")
            {
                self.collector.set_base(&base.value);
            }
        }
        if self.family == Some(Family::News)
            && matches!(local, "a" | "img" | "iframe" | "video" | "audio")
        {
            // XHTML inside of an entry.
            Page::new(1).start(local, attributes, self.collector);
        } else {
            self.attributes(local, attributes);
        }
        if local == "image" {
            self.in_image = !empty;
        }
        if !empty {
            self.wanted = self.wanted(prefix, local, attributes);
        }
    }

    fn end(&mut self, name: &str) {
        self.settle();
        if name.ends_with("image") {
            self.in_image = false;
        }
    }

    fn text(&mut self, text: &str) {
        self.hold(text);
    }

    fn literal(&mut self, text: &str) {
        // It is resolved with the rest of the text, so it is made to stand for itself.
        let text: Cow<'_, str> = if text.contains('&') {
            text.replace('&', "&amp;").into()
        } else {
            text.into()
        };
        self.hold(&text);
    }

    fn instruction(&mut self, name: &str, attributes: &[Attribute<'_>]) {
        style_sheet(name, attributes, self.collector);
    }

    fn is_full(&self) -> bool {
        self.collector.is_full()
    }
}
