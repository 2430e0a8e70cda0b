//! The elements of HTML and SVG that hold links, whichever parser reads them.
//!
//! A parser calls [`Page::start`] for every start tag and [`Page::text`] for the text of `script`, `style` and the like. The tables are
//! told in `docs/formats/extraction.md`.

use std::borrow::Cow;

use encoding_rs::Encoding;

use crate::collector::{Collector, Declared};
use crate::css::Css;
use crate::html;
use crate::json::{self, Json};
use crate::kind;
use crate::link::{Hop, LinkPlace};
use crate::refresh;
use crate::rel::{self, Role};
use crate::robots::asks_not_to_follow;
use crate::script::Script;
use crate::speculative::{Ground, is_page, url_in};
use crate::srcset;
use crate::tag::Attribute;

/// A page being read.
#[derive(Debug)]
pub(crate) struct Page {
    depth: u8,
    inside: Inside,
    css: Css,
    script: Script,
    json: Json,
    /// The text of an element whose content is markup to us and text to the parser.
    markup: String,
}

/// The element whose text is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inside {
    Other,
    Style,
    Script,
    Json,
    /// A template in a `script`: what it links to may never be shown.
    Template,
    /// `noscript`, `noframes` and `noembed`.
    Fallback,
}

impl Page {
    /// Returns a page that is `depth` documents deep in another.
    pub(crate) fn new(depth: u8) -> Self {
        Self {
            depth,
            inside: Inside::Other,
            css: Css::default(),
            script: Script::new(depth),
            json: Json::new(depth),
            markup: String::new(),
        }
    }

    /// Tells whether an attribute of this name, in lower case, may matter.
    pub(crate) fn matters(name: &str) -> bool {
        name.starts_with("data-")
            || name.starts_with("on")
            || matches!(
                name,
                "action"
                    | "archive"
                    | "background"
                    | "charset"
                    | "cite"
                    | "code"
                    | "codebase"
                    | "content"
                    | "data"
                    | "dynsrc"
                    | "formaction"
                    | "formmethod"
                    | "href"
                    | "http-equiv"
                    | "imagesrcset"
                    | "itemprop"
                    | "longdesc"
                    | "lowsrc"
                    | "manifest"
                    | "method"
                    | "name"
                    | "object"
                    | "poster"
                    | "property"
                    | "rel"
                    | "src"
                    | "srcdoc"
                    | "srcset"
                    | "style"
                    | "type"
                    | "value"
                    | "xlink:href"
                    | "xml:base"
            )
    }

    /// Takes a start tag.
    pub(crate) fn start(
        &mut self,
        element: &str,
        attributes: &[Attribute<'_>],
        collector: &mut Collector<'_>,
    ) {
        // Text belongs to the element whose start tag came last; nothing else can stand between.
        self.inside = inside(element, attributes);
        match element {
            "a" | "area" | "form" | "link" | "script" if attributes.len() > 1 => {
                collector.declared = declared(attributes);
            }
            _ => {}
        }
        match element {
            "base" => {
                if let Some(href) = find(attributes, "href") {
                    collector.set_base(&href);
                }
                return;
            }
            "link" => link(attributes, collector),
            "meta" => meta(attributes, collector),
            "object" | "applet" => object(element, attributes, collector),
            "param" => param(attributes, collector),
            "form" => form(attributes, collector),
            _ => {}
        }
        for attribute in attributes {
            self.attribute(element, attribute, attributes, collector);
        }
        collector.declared = Declared::default();
    }

    /// Takes a piece of the text of the element that began last; `last` with its last piece.
    pub(crate) fn text(&mut self, text: &str, last: bool, collector: &mut Collector<'_>) {
        match self.inside {
            Inside::Other => {}
            Inside::Style => {
                self.css.push(text, collector);
                if last {
                    self.css.finish(collector);
                }
            }
            Inside::Script => {
                self.script.push(text, collector);
                if last {
                    self.script.finish(collector);
                }
            }
            Inside::Json => {
                self.json.push(text, collector);
                if last {
                    self.json.finish(collector);
                }
            }
            Inside::Template | Inside::Fallback => self.hold(text, last, collector),
        }
    }

    /// Tells whether the text of the element that began last is wanted.
    pub(crate) fn wants_text(&self) -> bool {
        self.inside != Inside::Other
    }

    fn hold(&mut self, text: &str, last: bool, collector: &mut Collector<'_>) {
        if self.markup.len() + text.len() <= collector.limits().token_bytes {
            self.markup.push_str(text);
        } else {
            collector.passed_over = collector.passed_over.saturating_add(1);
            self.inside = Inside::Other;
            self.markup = String::new();
            return;
        }
        if last {
            let markup = std::mem::take(&mut self.markup);
            if self.inside == Inside::Template {
                collector.speculate(|collector| self.fragment(&markup, collector));
            } else {
                self.fragment(&markup, collector);
            }
        }
    }

    /// Reads markup that is embedded in this page.
    fn fragment(&self, markup: &str, collector: &mut Collector<'_>) {
        if memchr::memchr(b'<', markup.as_bytes()).is_some() {
            let depth = self.depth.saturating_add(1);
            collector.fragment(depth, |collector| html::read(markup, depth, collector));
        }
    }

    fn attribute(
        &mut self,
        element: &str,
        attribute: &Attribute<'_>,
        all: &[Attribute<'_>],
        collector: &mut Collector<'_>,
    ) {
        let name = &*attribute.name;
        let place = LinkPlace::Attribute(element, name);
        match name {
            "href" | "xlink:href" => {
                if let Some(hop) = hop_of_href(element) {
                    self.link(&attribute.text(), hop, place, collector);
                }
            }
            "src" if (element != "input" || is(all, "type", "image")) => {
                self.link(&attribute.text(), Hop::Embed, place, collector);
            }
            "srcset" | "imagesrcset" => {
                srcset::urls(&attribute.text(), |url| {
                    collector.offer(url, Hop::Embed, place);
                });
            }
            "style" if has_function(&attribute.value) => {
                let text = attribute.text();
                self.css.push(&text, collector);
                self.css.finish(collector);
            }
            "srcdoc" if element == "iframe" => {
                let text = attribute.text();
                if text.len() <= collector.limits().token_bytes {
                    self.fragment(&text, collector);
                }
            }
            "poster" | "background" | "lowsrc" | "dynsrc" | "manifest" => {
                collector.offer(&attribute.text(), Hop::Embed, place);
            }
            "cite" | "longdesc" => collector.offer(&attribute.text(), Hop::Navigation, place),
            "formaction" if !is(all, "formmethod", "post") => {
                collector.offer(&attribute.text(), Hop::Navigation, place);
            }
            "value" if element == "option" => {
                speculate(&attribute.text(), Ground::Value, place, collector);
            }
            _ if name.starts_with("on") => Script::read(&attribute.text(), self.depth, collector),
            _ if name.starts_with("data-") => self.data(element, attribute, collector),
            _ => {}
        }
    }

    /// Takes a link that may be a script.
    fn link(&mut self, value: &str, hop: Hop, place: LinkPlace<'_>, collector: &mut Collector<'_>) {
        let value = value.trim_start_matches(|c: char| c <= ' ');
        match value.get(..11) {
            Some(scheme) if scheme.eq_ignore_ascii_case("javascript:") => {
                Script::read(&value[11..], self.depth, collector);
            }
            _ => collector.offer(value, hop, place),
        }
    }

    /// Takes an attribute that scripts read: a picture to be shown later, settings as JSON, or anything at all.
    fn data(&mut self, element: &str, attribute: &Attribute<'_>, collector: &mut Collector<'_>) {
        if attribute.value.is_empty() || attribute.value.len() > collector.limits().token_bytes {
            return;
        }
        let name = &*attribute.name;
        let place = LinkPlace::Attribute(element, name);
        let value = attribute.text();
        let key = &name["data-".len()..];
        if json::is_json(&value) {
            let depth = self.depth.saturating_add(1);
            collector.fragment(depth, |collector| Json::read(&value, depth, collector));
        } else if key.ends_with("srcset") || key == "original-set" {
            srcset::urls(&value, |url| {
                if looks_like_file(url) {
                    collector.offer(url, Hop::Embed, place);
                }
            });
        } else if has_function(&value) {
            self.css.push(&value, collector);
            self.css.finish(collector);
        } else if is_list(&value) && LAZY.iter().any(|lazy| key.contains(lazy)) {
            srcset::urls(&value, |url| {
                if let Ok(url) = url_in(url, Ground::Value) {
                    collector.offer(&url, Hop::Embed, place);
                }
            });
        } else if matches!(key, "src" | "original" | "lazy-src") && shows_source(element) {
            if !matches!(value.trim(), "true" | "false" | "none" | "auto" | "lazy") {
                collector.offer(&value, Hop::Embed, place);
            }
        } else if LAZY.iter().any(|lazy| key.contains(lazy)) {
            if let Ok(url) = url_in(&value, Ground::Value) {
                collector.offer(&url, Hop::Embed, place);
            }
        } else if LINKS.iter().any(|link| key.ends_with(link)) {
            if let Ok(url) = url_in(&value, Ground::Named) {
                collector.offer(&url, hop_of_key(key, &url), place);
            }
        } else {
            speculate(&value, Ground::Value, place, collector);
        }
    }
}

/// Parts of the names of attributes that hold a picture to be shown later.
const LAZY: [&str; 15] = [
    "src",
    "lazy",
    "bg",
    "background",
    "image",
    "img",
    "original",
    "poster",
    "thumb",
    "photo",
    "picture",
    "retina",
    "full",
    "large",
    "video",
];
/// Ends of the names of attributes that hold a link.
const LINKS: [&str; 5] = ["url", "href", "link", "uri", "permalink"];

/// Ends of the names of attributes and JSON values that hold a link to a page, unless it is one to a file.
const TO_PAGES: [&str; 3] = ["href", "link", "permalink"];

/// What a link is that stands under a name which says that it is one.
pub(crate) fn hop_of_key(key: &str, url: &str) -> Hop {
    let to_page = TO_PAGES.iter().any(|name| {
        let start = key.len().checked_sub(name.len());
        start
            .and_then(|start| key.get(start..))
            .is_some_and(|end| end.eq_ignore_ascii_case(name))
    });
    if to_page && is_page(url) {
        Hop::Navigation
    } else {
        Hop::Speculative
    }
}

/// What an element says of the document it links to.
fn declared(attributes: &[Attribute<'_>]) -> Declared {
    Declared {
        nofollow: find(attributes, "rel").is_some_and(|rel| {
            rel.split_ascii_whitespace()
                .any(|word| word.eq_ignore_ascii_case("nofollow"))
        }),
        charset: find(attributes, "charset")
            .and_then(|label| Encoding::for_label(label.trim().as_bytes())),
    }
}

fn find<'a>(attributes: &'a [Attribute<'_>], name: &str) -> Option<Cow<'a, str>> {
    attributes
        .iter()
        .find(|attribute| attribute.name == name)
        .map(Attribute::text)
}

fn is(attributes: &[Attribute<'_>], name: &str, value: &str) -> bool {
    find(attributes, name).is_some_and(|found| found.trim().eq_ignore_ascii_case(value))
}

fn inside(element: &str, attributes: &[Attribute<'_>]) -> Inside {
    match element {
        "style" => Inside::Style,
        "noscript" | "noframes" | "noembed" => Inside::Fallback,
        "script" => {
            let essence = find(attributes, "type")
                .map(|value| kind::essence(&value))
                .unwrap_or_default();
            match essence.as_str() {
                "" | "module" => Inside::Script,
                "importmap" | "speculationrules" => Inside::Json,
                essence if kind::is_script(essence) => Inside::Script,
                essence if kind::is_json(essence) => Inside::Json,
                essence
                    if essence.contains("template")
                        || essence.contains("html")
                        || essence.contains("handlebars") =>
                {
                    Inside::Template
                }
                _ => Inside::Other,
            }
        }
        _ => Inside::Other,
    }
}

/// What the `href` of an element is; `None` where it was dealt with or is no link.
fn hop_of_href(element: &str) -> Option<Hop> {
    match element {
        "link" | "base" => None,
        // The parts of a picture in SVG, with names as parsers of HTML and of XML give them.
        "image" | "use" | "script" | "feimage" | "feImage" | "pattern" | "mpath" | "textpath"
        | "textPath" | "tref" | "cursor" | "lineargradient" | "linearGradient"
        | "radialgradient" | "radialGradient" | "filter" | "font-face-uri" | "color-profile" => {
            Some(Hop::Embed)
        }
        _ => Some(Hop::Navigation),
    }
}

/// Elements for which `data-src` is `src` put off.
fn shows_source(element: &str) -> bool {
    matches!(
        element,
        "img" | "iframe" | "source" | "video" | "audio" | "script" | "embed" | "amp-img" | "track"
    )
}

/// Tells several URLs with commas and spaces between them from one that has commas in it.
fn is_list(value: &str) -> bool {
    value
        .split_once(',')
        .is_some_and(|(_, rest)| rest.starts_with(|c: char| c.is_ascii_whitespace()))
}

fn looks_like_file(url: &str) -> bool {
    url.contains('/') || url.contains('.')
}

fn has_function(style: &str) -> bool {
    memchr::memchr(b'(', style.as_bytes()).is_some()
        || memchr::memchr(b'\\', style.as_bytes()).is_some()
}

fn speculate(value: &str, ground: Ground, place: LinkPlace<'_>, collector: &mut Collector<'_>) {
    if let Ok(url) = url_in(value, ground) {
        collector.offer(&url, Hop::Speculative, place);
    }
}

fn link(attributes: &[Attribute<'_>], collector: &mut Collector<'_>) {
    let role = find(attributes, "rel").map_or(Role::Navigation, |rel| rel::role(&rel));
    let Some(href) = find(attributes, "href") else {
        return;
    };
    let place = LinkPlace::Attribute("link", "href");
    match role {
        Role::Requisite => collector.offer(&href, Hop::Embed, place),
        Role::Spare => collector.offer_spare(&href, Hop::Embed, place),
        Role::Navigation => collector.offer(&href, Hop::Navigation, place),
        Role::Ignored => {}
    }
}

fn meta(attributes: &[Attribute<'_>], collector: &mut Collector<'_>) {
    let Some(content) = find(attributes, "content") else {
        return;
    };
    let place = LinkPlace::Attribute("meta", "content");
    if let Some(equivalent) = find(attributes, "http-equiv") {
        match equivalent.trim().to_ascii_lowercase().as_str() {
            "refresh" => {
                if let Some(url) = refresh::target(&content) {
                    collector.offer(url, Hop::Redirect, place);
                }
            }
            "link" => crate::header::link_header(&content, collector),
            "content-location" => collector.offer(&content, Hop::Navigation, place),
            _ => {}
        }
        return;
    }
    let named = ["property", "name", "itemprop"]
        .iter()
        .find_map(|name| find(attributes, name));
    let name = named
        .map(|name| name.trim().to_ascii_lowercase())
        .unwrap_or_default();
    match name.as_str() {
        "robots" => collector.nofollow |= asks_not_to_follow(&content),
        "og:image"
        | "og:image:url"
        | "og:image:secure_url"
        | "og:video"
        | "og:video:url"
        | "og:video:secure_url"
        | "og:audio"
        | "og:audio:url"
        | "og:audio:secure_url"
        | "twitter:image"
        | "twitter:image:src"
        | "twitter:player:stream"
        | "thumbnail"
        | "thumbnailurl"
        | "image"
        | "contenturl"
        | "msapplication-tileimage"
        | "msapplication-square70x70logo"
        | "msapplication-square150x150logo"
        | "msapplication-square310x310logo"
        | "msapplication-wide310x150logo"
        | "msapplication-config"
            if content.contains(['/', '.']) =>
        {
            collector.offer_spare(&content, Hop::Embed, place);
        }
        "og:url"
        | "twitter:player"
        | "twitter:url"
        | "url"
        | "citation_pdf_url"
        | "citation_fulltext_html_url"
            if content.contains(['/', '.']) =>
        {
            collector.offer(&content, Hop::Navigation, place);
        }
        _ => {}
    }
}

/// Takes an `object` or an `applet`, whose files are relative to its code base.
fn object(element: &str, attributes: &[Attribute<'_>], collector: &mut Collector<'_>) {
    let base = find(attributes, "codebase").unwrap_or_default();
    for name in ["data", "code", "object"] {
        let Some(value) = find(attributes, name) else {
            continue;
        };
        let value = if name == "code" && !value.ends_with(".class") {
            Cow::Owned(format!("{value}.class"))
        } else {
            value
        };
        collector.offer_based(
            &base,
            &value,
            Hop::Embed,
            LinkPlace::Attribute(element, name),
        );
    }
    for archive in find(attributes, "archive")
        .unwrap_or_default()
        .split([',', ' '])
    {
        if !archive.is_empty() {
            collector.offer_based(
                &base,
                archive,
                Hop::Embed,
                LinkPlace::Attribute(element, "archive"),
            );
        }
    }
}

/// Takes a parameter of a plug-in: the film it shows.
fn param(attributes: &[Attribute<'_>], collector: &mut Collector<'_>) {
    let name = find(attributes, "name")
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    if !matches!(
        name.as_str(),
        "movie" | "src" | "filename" | "url" | "data" | "source"
    ) {
        return;
    }
    if let Some(value) = find(attributes, "value")
        && looks_like_file(&value)
    {
        collector.offer(&value, Hop::Embed, LinkPlace::Attribute("param", "value"));
    }
}

fn form(attributes: &[Attribute<'_>], collector: &mut Collector<'_>) {
    if let Some(action) = find(attributes, "action")
        && find(attributes, "method").is_none_or(|method| {
            !matches!(
                method.trim().to_ascii_lowercase().as_str(),
                "post" | "dialog"
            )
        })
    {
        collector.offer(
            &action,
            Hop::Navigation,
            LinkPlace::Attribute("form", "action"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_attributes_do_not_matter() {
        for name in ["href", "src", "data-x", "onclick", "style", "xlink:href"] {
            assert!(Page::matters(name), "{name}");
        }
        for name in ["class", "id", "alt", "width", "aria-label", ""] {
            assert!(!Page::matters(name), "{name}");
        }
    }
}
