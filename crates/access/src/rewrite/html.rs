//! Pages: attributes that are links, and what must not be in a page that is shown from an archive.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

use encoding_rs::{Encoding, UTF_8};
use lol_html::html_content::{ContentType, Element, TextChunk};
use lol_html::{
    AsciiCompatibleEncoding, ElementContentHandlers, HandlerResult, HtmlRewriter, MemorySettings,
    Selector, Settings,
};
use url::Url;

use super::{charset, css, script};
use crate::replay_address::ReplayAddress;

/// What the parser may hold: the longest tag, and its stack of open elements.
const PARSER_BYTES: usize = 8 << 20;
/// Documents within documents (`srcdoc`) that are rewritten.
const DEPTH: usize = 3;

/// A page to be rewritten.
pub(crate) struct HtmlPage<'a> {
    pub(crate) address: &'a ReplayAddress<'a>,
    /// A picture: it gets no script.
    pub(crate) is_svg: bool,
    /// It is shown in a frame of another page.
    pub(crate) is_frame: bool,
}

impl HtmlPage<'_> {
    /// Returns the page with its links rewritten, in its own character set where our parser knows it.
    pub(crate) fn rewrite(&self, page: &[u8], content_type: &str) -> (Vec<u8>, &'static Encoding) {
        let found = charset::of_page(page, content_type);
        let (page, encoding): (Cow<'_, [u8]>, _) = match AsciiCompatibleEncoding::new(found) {
            Some(_) => (Cow::Borrowed(page), found),
            None => {
                let (text, _, _) = found.decode(page);
                (Cow::Owned(text.into_owned().into_bytes()), UTF_8)
            }
        };
        (self.rewrite_in(&page, encoding, 0), encoding)
    }

    fn rewrite_in(&self, page: &[u8], encoding: &'static Encoding, depth: usize) -> Vec<u8> {
        let rewriting = Rc::new(RefCell::new(Rewriting {
            page: self,
            base: Url::parse(&self.address.url).ok(),
            encoding,
            to_insert: (!self.is_svg && depth == 0).then(|| self.script()),
            text: String::new(),
            text_kind: TextKind::Other,
            depth,
        }));
        let mut out = Vec::with_capacity(page.len() + page.len() / 4 + 512);
        let (tags, texts) = (Rc::clone(&rewriting), Rc::clone(&rewriting));
        let known = AsciiCompatibleEncoding::new(encoding);
        let known = known.unwrap_or_else(AsciiCompatibleEncoding::utf_8);
        let settings = Settings::new()
            .with_encoding(known)
            .with_memory_settings(MemorySettings::new().with_max_allowed_memory_usage(PARSER_BYTES))
            .with_strict(false)
            .append_element_content_handler((
                Cow::Owned(selector("*")),
                ElementContentHandlers::default()
                    .element(move |element: &mut Element<'_, '_>| tags.borrow_mut().tag(element)),
            ))
            .append_element_content_handler((
                Cow::Owned(selector("script, style")),
                ElementContentHandlers::default()
                    .text(move |chunk: &mut TextChunk<'_>| texts.borrow_mut().chunk(chunk)),
            ));
        let mut rewriter = HtmlRewriter::new(settings, |bytes: &[u8]| out.extend_from_slice(bytes));
        let written = rewriter.write(page).and_then(|()| rewriter.end());
        if written.is_err() {
            // A tag beyond all measure: the page is shown as it is, within its policy.
            return page.to_vec();
        }
        out
    }

    /// Returns the tag of the script that leads into the archive what cannot be seen here.
    fn script(&self) -> String {
        let address = self.address;
        let told = serde_json::json!({
            "prefix": format!("{}/{}", address.collection, address.moment.as_str()),
            "collection": address.collection,
            "time": address.moment.as_str(),
            "url": address.url,
            "frame": self.is_frame,
        });
        let told = escape(&told.to_string());
        format!("<script src=\"/static/replay.js\" data-ecluse=\"{told}\"></script>")
    }
}

fn selector(text: &str) -> Selector {
    text.parse().expect("our own selectors parse")
}

/// Escapes a text for an attribute in double quotation marks; our parser does so for quotation marks alone.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('"', "&quot;")
}

/// What the text of an element is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextKind {
    Style,
    Script,
    ImportMap,
    Other,
}

struct Rewriting<'a> {
    page: &'a HtmlPage<'a>,
    /// What relative links begin at: the URL of the page, or what it says itself.
    base: Option<Url>,
    encoding: &'static Encoding,
    to_insert: Option<String>,
    text: String,
    text_kind: TextKind,
    depth: usize,
}

/// What an attribute holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AttributeKind {
    /// A link, with the modifier of what it leads to.
    Link(&'static str),
    /// Several links with descriptors.
    Set,
    Style,
    Document,
    Removed,
}

/// Says what an attribute holds; most hold nothing of interest.
fn kind_of(tag: &str, attribute: &str) -> Option<AttributeKind> {
    use AttributeKind::{Document, Link, Removed, Set, Style};
    Some(match (tag, attribute) {
        (_, "style") => Style,
        ("img" | "source", "srcset") | ("link", "imagesrcset") => Set,
        ("iframe", "srcdoc") => Document,
        (_, "integrity" | "nonce" | "ping" | "attributionsrc") | ("iframe", "csp") => Removed,
        ("a" | "area", "href") => Link("mp_"),
        ("script", "src") => Link("js_"),
        ("iframe" | "frame", "src") => Link("fr_"),
        ("img" | "input" | "image", "src") => Link("im_"),
        ("link", "href") => Link("mp_"),
        (_, "background" | "poster" | "lowsrc" | "dynsrc") => Link("im_"),
        ("form", "action") | ("button" | "input", "formaction") => Link("mp_"),
        ("object", "data") | ("applet", "code" | "codebase" | "archive") => Link("oe_"),
        ("object", "codebase") => Link("oe_"),
        (_, "longdesc" | "cite" | "manifest" | "profile" | "usemap") => Link("mp_"),
        ("base", _) => return None,
        (_, "src" | "href" | "xlink:href") => Link("oe_"),
        _ => return None,
    })
}

impl Rewriting<'_> {
    fn link(&self, link: &str, modifier: &str) -> String {
        let Some(base) = &self.base else {
            return self.page.address.rewritten_from(None, link, modifier);
        };
        // A browser writes the query of a link in the character set of its page.
        if self.encoding != UTF_8 && !link.is_ascii() && !crate::replay_address::has_no_server(link)
        {
            let encode = encoder(self.encoding);
            let options = Url::options()
                .base_url(Some(base))
                .encoding_override(Some(&encode));
            if let Ok(url) = options.parse(link.trim()) {
                return self.page.address.address_of(url.as_str(), modifier);
            }
        }
        self.page.address.rewritten_from(Some(base), link, modifier)
    }

    fn tag(&mut self, element: &mut Element<'_, '_>) -> HandlerResult {
        let tag = element.tag_name();
        self.insert(&tag, element);
        self.text_kind = text_kind(&tag, element);
        self.text.clear();
        let is_gone = match tag.as_str() {
            "base" => self.base_tag(element)?,
            "meta" => self.meta(element)?,
            "link" => self.link_tag(element)?,
            // Rules for asking ahead.
            "script" => attribute_text(element, "type") == "speculationrules",
            _ => false,
        };
        if is_gone {
            element.remove();
            return Ok(());
        }
        let changes: Vec<(String, AttributeKind, String)> = element
            .attributes()
            .iter()
            .filter_map(|attribute| {
                let name = attribute.name();
                Some((name.clone(), kind_of(&tag, &name)?, attribute.value()))
            })
            .collect();
        for (name, kind, raw) in changes {
            self.attribute(element, &tag, &name, kind, &raw)?;
        }
        self.harmless(element)?;
        Ok(())
    }

    /// Puts our script before everything that could run.
    fn insert(&mut self, tag: &str, element: &mut Element<'_, '_>) {
        if tag == "html" {
            return;
        }
        if let Some(script) = self.to_insert.take() {
            match tag {
                "head" => element.prepend(&script, ContentType::Html),
                _ => element.before(&script, ContentType::Html),
            }
        }
    }

    fn attribute(
        &self,
        element: &mut Element<'_, '_>,
        tag: &str,
        name: &str,
        kind: AttributeKind,
        raw: &str,
    ) -> HandlerResult {
        let value = htmlize::unescape_attribute(raw);
        let rewritten = match kind {
            AttributeKind::Removed => {
                element.remove_attribute(name);
                return Ok(());
            }
            AttributeKind::Link(modifier) => {
                let modifier = match tag {
                    "link" => modifier_of_link(element),
                    _ => modifier,
                };
                self.link(&value, modifier)
            }
            AttributeKind::Set => rewrite_set(&value, &|link| self.link(link, "im_")),
            AttributeKind::Style => {
                let link = |link: &str, modifier: &str| self.link(link, modifier);
                let style = css::rewrite_with(value.as_bytes(), &link);
                String::from_utf8_lossy(&style).into_owned()
            }
            AttributeKind::Document if self.depth < DEPTH => {
                let inner = self
                    .page
                    .rewrite_in(value.as_bytes(), UTF_8, self.depth + 1);
                String::from_utf8_lossy(&inner).into_owned()
            }
            AttributeKind::Document => String::new(),
        };
        if rewritten != value {
            element.set_attribute(name, &escape(&rewritten))?;
        }
        Ok(())
    }

    /// Takes away what would lead out of the frame, or fail in an origin of its own.
    fn harmless(&self, element: &mut Element<'_, '_>) -> HandlerResult {
        if let Some(target) = element.get_attribute("target")
            && ["_blank", "_new", "_top"].contains(&target.to_ascii_lowercase().as_str())
        {
            element.set_attribute("target", if self.page.is_frame { "_top" } else { "_self" })?;
        }
        if element
            .get_attribute("crossorigin")
            .is_some_and(|how| how.eq_ignore_ascii_case("use-credentials"))
        {
            element.set_attribute("crossorigin", "anonymous")?;
        }
        Ok(())
    }

    fn base_tag(&mut self, element: &mut Element<'_, '_>) -> Result<bool, HandlerError> {
        let Some(href) = element.get_attribute("href") else {
            return Ok(false);
        };
        let href = htmlize::unescape_attribute(href).into_owned();
        let joined = match &self.base {
            Some(base) => base.join(href.trim()),
            None => Url::parse(href.trim()),
        };
        let Ok(joined) = joined else {
            return Ok(true);
        };
        let address = self.page.address.address_of(joined.as_str(), "mp_");
        element.set_attribute("href", &escape(&address))?;
        self.base = Some(joined);
        Ok(false)
    }

    /// Rewrites a refresh; says whether the tag must go.
    fn meta(&mut self, element: &mut Element<'_, '_>) -> Result<bool, HandlerError> {
        let [equivalent, name] = ["http-equiv", "name"].map(|name| attribute_text(element, name));
        match equivalent.as_str() {
            "content-security-policy"
            | "content-security-policy-report-only"
            | "x-dns-prefetch-control"
            | "set-cookie"
            | "origin-trial" => return Ok(true),
            "refresh" => {
                let content = element.get_attribute("content").unwrap_or_default();
                let content = htmlize::unescape_attribute(content).into_owned();
                if let Some((wait, url)) = refresh_of(&content) {
                    let to = self.link(url, "mp_");
                    element.set_attribute("content", &escape(&format!("{wait};url={to}")))?;
                }
            }
            _ => {}
        }
        Ok(name == "referrer")
    }

    /// Says whether the tag must go: one that makes a browser speak to another server is stopped by no policy.
    fn link_tag(&mut self, element: &mut Element<'_, '_>) -> Result<bool, HandlerError> {
        let rel = attribute_text(element, "rel");
        let gone = ["dns-prefetch", "preconnect", "prerender", "prefetch"];
        Ok(rel.split_ascii_whitespace().any(|one| gone.contains(&one)))
    }

    fn chunk(&mut self, chunk: &mut TextChunk<'_>) -> HandlerResult {
        if self.text_kind == TextKind::Other {
            return Ok(());
        }
        self.text.push_str(chunk.as_str());
        if !chunk.last_in_text_node() {
            chunk.remove();
            return Ok(());
        }
        let text = std::mem::take(&mut self.text);
        let rewritten = match self.text_kind {
            TextKind::Style => {
                let link = |link: &str, modifier: &str| self.link(link, modifier);
                css::rewrite_with(text.as_bytes(), &link)
            }
            TextKind::Script => {
                script::rewrite_with(text.as_bytes(), &|link| self.link(link, "js_"))
            }
            TextKind::ImportMap => self.import_map(&text).into_bytes(),
            TextKind::Other => text.into_bytes(),
        };
        let rewritten = String::from_utf8_lossy(&rewritten).into_owned();
        chunk.replace(&rewritten, ContentType::Html);
        Ok(())
    }

    /// Rewrites the addresses of an import map.
    fn import_map(&self, text: &str) -> String {
        let Ok(mut map) = serde_json::from_str::<serde_json::Value>(text) else {
            return text.to_owned();
        };
        let imports = map.get_mut("imports").and_then(|map| map.as_object_mut());
        for (_, to) in imports.into_iter().flatten() {
            if let Some(link) = to.as_str() {
                *to = self.link(link, "js_").into();
            }
        }
        map.to_string().replace("</", "<\\/")
    }
}

/// Returns what writes a text in a character set.
fn encoder(encoding: &'static Encoding) -> impl Fn(&str) -> Cow<'_, [u8]> {
    move |text| encoding.encode(text).0
}

type HandlerError = Box<dyn std::error::Error + Send + Sync>;

/// Returns an attribute as a browser reads it, in lower case: a reference may stand for any letter of it.
fn attribute_text(element: &Element<'_, '_>, name: &str) -> String {
    let raw = element.get_attribute(name).unwrap_or_default();
    htmlize::unescape_attribute(raw).trim().to_ascii_lowercase()
}

fn text_kind(tag: &str, element: &Element<'_, '_>) -> TextKind {
    match tag {
        "style" => TextKind::Style,
        "script" => {
            let kind = element.get_attribute("type").unwrap_or_default();
            match kind.trim().to_ascii_lowercase().as_str() {
                "importmap" => TextKind::ImportMap,
                "" | "module" => TextKind::Script,
                kind if kind.contains("javascript") => TextKind::Script,
                _ => TextKind::Other,
            }
        }
        _ => TextKind::Other,
    }
}

/// Returns what a `<link>` leads to.
fn modifier_of_link(element: &Element<'_, '_>) -> &'static str {
    let text = |name: &str| {
        let value = element.get_attribute(name).unwrap_or_default();
        value.to_ascii_lowercase()
    };
    let (rel, kind) = (text("rel"), text("as"));
    if rel.contains("stylesheet") || kind == "style" {
        "cs_"
    } else if rel.contains("modulepreload") || kind == "script" {
        "js_"
    } else if rel.contains("icon") || kind == "image" {
        "im_"
    } else {
        "mp_"
    }
}

/// Takes `5; url='x'` apart.
fn refresh_of(content: &str) -> Option<(&str, &str)> {
    let (wait, rest) = content.split_once([';', ','])?;
    let rest = rest.trim_start();
    let url = match rest.get(..3) {
        Some(word) if word.eq_ignore_ascii_case("url") => {
            rest[3..].trim_start().strip_prefix('=')?.trim()
        }
        _ => rest.trim(),
    };
    let url = url.trim_matches(['"', '\'']).trim();
    (!url.is_empty()).then_some((wait.trim(), url))
}

/// Rewrites `a.png 1x, b.png 2x`. A comma may stand in a URL, but not at its end.
fn rewrite_set(set: &str, link: &dyn Fn(&str) -> String) -> String {
    let mut out: Vec<String> = Vec::new();
    let mut rest = set;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == ',');
        if rest.is_empty() {
            return out.join(", ");
        }
        let end = rest
            .find(|c: char| c.is_ascii_whitespace())
            .unwrap_or(rest.len());
        let (url, after) = rest.split_at(end);
        if let Some(url) = url.strip_suffix(',') {
            out.push(link(url.trim_end_matches(',')));
            rest = after;
            continue;
        }
        let end = after.find(',').unwrap_or(after.len());
        let (descriptor, after) = after.split_at(end);
        out.push(
            format!("{} {}", link(url), descriptor.trim())
                .trim()
                .to_owned(),
        );
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moment::Moment;

    fn rewritten(page: &str) -> String {
        let (bytes, _) = in_charset(page.as_bytes(), "text/html; charset=utf-8");
        String::from_utf8(bytes).unwrap()
    }

    fn in_charset(page: &[u8], content_type: &str) -> (Vec<u8>, &'static Encoding) {
        let address = ReplayAddress {
            collection: "/web",
            moment: Moment::first_of("20260101000000").unwrap(),
            modifier: "mp_",
            url: "http://a.example/d/p".into(),
        };
        let page_ = HtmlPage {
            address: &address,
            is_svg: true,
            is_frame: false,
        };
        page_.rewrite(page, content_type)
    }

    const AT: &str = "/web/20260101000000";

    #[test]
    fn attributes_that_are_links_are_rewritten() {
        for (page, expected) in [
            ("<a href=b>", "<a href=\"ATmp_/http://a.example/d/b\">"),
            (
                "<a href='?x=1&amp;y=2&copy=3'>",
                "<a href=\"ATmp_/http://a.example/d/p?x=1&amp;y=2&amp;copy=3\">",
            ),
            ("<a href=#top>", "<a href=#top>"),
            ("<a href='javascript:x()'>", "<a href='javascript:x()'>"),
            (
                "<a href=x target=_blank ping=y>",
                "<a href=\"ATmp_/http://a.example/d/x\" target=\"_self\">",
            ),
            (
                "<img src=//c.example/i.png>",
                "<img src=\"ATim_/http://c.example/i.png\">",
            ),
            (
                "<img srcset='a.png 1x,b.png 2x, c,d.png'>",
                "<img srcset=\"ATim_/http://a.example/d/a.png 1x, ATim_/http://a.example/d/b.png 2x, ATim_/http://a.example/d/c,d.png\">",
            ),
            (
                "<script src=/s.js integrity=x></script>",
                "<script src=\"ATjs_/http://a.example/s.js\"></script>",
            ),
            (
                "<link rel=stylesheet href=s.css>",
                "<link rel=stylesheet href=\"ATcs_/http://a.example/d/s.css\">",
            ),
            ("<link rel='preconnect' href=//c.example>x", "x"),
            ("<link rel=dns-prefetch href=//c.example>x", "x"),
            (
                "<link rel='nofollow PRE&#99;onnect' href=//c.example>x",
                "x",
            ),
            ("<link rel=pre&#x66;etch href=//c.example>x", "x"),
            ("<script type=SpeculationRules>{}</script>x", "x"),
            (
                "<meta http-equiv='x-dns-prefetch-&#99;ontrol' content=on>x",
                "x",
            ),
            ("<meta http-equiv=Content-Security-Policy content=x>x", "x"),
            ("<meta name=referrer content=never>x", "x"),
            (
                "<meta http-equiv=refresh content=\"0; URL='/n'\">",
                "<meta http-equiv=refresh content=\"0;url=ATmp_/http://a.example/n\">",
            ),
            (
                "<meta http-equiv=refresh content=5>",
                "<meta http-equiv=refresh content=5>",
            ),
            (
                "<form action=/f>",
                "<form action=\"ATmp_/http://a.example/f\">",
            ),
            (
                "<body background=b.gif>",
                "<body background=\"ATim_/http://a.example/d/b.gif\">",
            ),
            (
                "<p style=\"background:url('x.png')\">",
                "<p style=\"background:url('AToe_/http://a.example/d/x.png')\">",
            ),
            (
                "<style>a{b:url(/x)}</style>",
                "<style>a{b:url(AToe_/http://a.example/x)}</style>",
            ),
            (
                "<script type=module>import a from '/a.js'</script>",
                "<script type=module>import a from 'ATjs_/http://a.example/a.js'</script>",
            ),
            (
                "<script>import('/a')</script>",
                "<script>import('ATjs_/http://a.example/a')</script>",
            ),
            (
                "<script type=text/template>import('/a')</script>",
                "<script type=text/template>import('/a')</script>",
            ),
            (
                "<iframe srcdoc='&lt;img src=x&gt;'>",
                "<iframe srcdoc=\"&lt;img src=&quot;ATim_/http://a.example/d/x&quot;>\">",
            ),
            (
                "<svg><use xlink:href='#i'/><image href=i.png /></svg>",
                "<svg><use xlink:href='#i'/><image href=\"AToe_/http://a.example/d/i.png\" /></svg>",
            ),
            (
                "<base href=/e/><img src=x>",
                "<base href=\"ATmp_/http://a.example/e/\"><img src=\"ATim_/http://a.example/e/x\">",
            ),
            (
                "<video src=v poster=p crossorigin=use-credentials>",
                "<video src=\"AToe_/http://a.example/d/v\" poster=\"ATim_/http://a.example/d/p\" crossorigin=\"anonymous\">",
            ),
        ] {
            assert_eq!(rewritten(page), expected.replace("AT", AT), "{page}");
        }
    }

    #[test]
    fn an_import_map_leads_here() {
        let page = "<script type=importmap>{\"imports\":{\"vue\":\"/vue.js\"}}</script>";
        let expected = format!(
            "<script type=importmap>{{\"imports\":{{\"vue\":\"{AT}js_/http://a.example/vue.js\"}}}}</script>"
        );
        assert_eq!(rewritten(page), expected);
    }

    #[test]
    fn a_page_keeps_its_character_set() {
        let (bytes, encoding) = in_charset(
            b"<a href='?q=\xe9'>\xe9</a>",
            "text/html; charset=iso-8859-1",
        );
        assert_eq!(encoding.name(), "windows-1252");
        let expected = format!("<a href=\"{AT}mp_/http://a.example/d/p?q=%E9\">");
        assert_eq!(bytes, [expected.as_bytes(), b"\xe9</a>"].concat());
        let wide: Vec<u8> = "\u{feff}<a href=x>"
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect();
        let (bytes, encoding) = in_charset(&wide, "text/html");
        assert_eq!(encoding, UTF_8);
        assert!(
            String::from_utf8(bytes)
                .unwrap()
                .contains("mp_/http://a.example/d/x")
        );
    }

    #[test]
    fn our_script_comes_first() {
        let address = ReplayAddress {
            collection: "/web",
            moment: Moment::first_of("2026").unwrap(),
            modifier: "mp_",
            url: "http://a.example/\"><script>x".into(),
        };
        let page = HtmlPage {
            address: &address,
            is_svg: false,
            is_frame: false,
        };
        for text in [
            "<!doctype html><html><head><script>x</script></head>",
            "<!-- x --><script>x</script>",
            "<body><p>",
            "<frameset><frame src=a></frameset>",
        ] {
            let (bytes, _) = page.rewrite(text.as_bytes(), "");
            let out = String::from_utf8(bytes).unwrap();
            let ours = out.find("<script src=\"/static/replay.js\"").unwrap();
            assert_eq!(out.find("<script"), Some(ours), "{out}");
            assert_eq!(out.matches("replay.js").count(), 1);
            assert!(!out.contains("\"><script>x\""), "{out}");
        }
    }

    #[test]
    fn a_page_without_end_is_given_as_it_is() {
        let page = format!("<a href=\"{}", "x".repeat(100_000));
        assert_eq!(rewritten(&page), page);
        let deep = "<div>".repeat(200_000);
        assert_eq!(rewritten(&deep).len(), deep.len());
    }
}
