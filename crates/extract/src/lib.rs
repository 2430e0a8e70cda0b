//! Links out of documents and headers.
//!
//! [`extract`] reads a document once, in pieces, and gives every link to a sink as it is found: HTML, XHTML, SVG, CSS, JavaScript, JSON,
//! XML, RSS, Atom, sitemaps, `robots.txt` and playlists, in any character set the web knows. [`extract_headers`] does it for the
//! headers of a response. What is a link, and of which kind, is told in `docs/formats/extraction.md`.
//!
//! Memory is bounded by [`ExtractLimits`], not by the document, and no bytes make it fail: what is broken is read as far as it goes. Removing
//! content encodings, deciding what is fetched, and when, are left to others.
//!
//! ```
//! use ecluse_extract::{Context, Hop, Url, extract};
//!
//! let url = Url::parse("https://lock.example/gates/")?;
//! let mut links = Vec::new();
//! extract(
//!     &mut b"<a href='upper'>Upper gate</a> <img src=/gate.jpg>".as_slice(),
//!     &Context::new(&url, Some("text/html")),
//!     &mut |link| links.push(link),
//! )?;
//! assert_eq!(links[0].url, "https://lock.example/gates/upper");
//! assert_eq!((links[1].hop, links[1].context.as_str()), (Hop::Embed, "img/@src"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod charset;
mod chunks;
mod collector;
mod context;
mod css;
mod feed;
mod header;
mod html;
mod json;
mod kind;
mod lines;
mod link;
mod markup;
mod page;
mod quick;
mod refresh;
mod rel;
mod report;
mod robots;
mod scan;
mod script;
mod source;
mod speculative;
mod srcset;
mod tag;
mod text;
mod xhtml;
mod xml;

use std::io::{self, Read};

pub use url::{Position, Url};

pub use crate::charset::CharsetSource;
pub use crate::context::{Context, ExtractLimits};
pub use crate::header::{extract_headers, extract_inferred};
pub use crate::kind::DocumentKind;
pub use crate::link::{Hop, Link};
pub use crate::report::{Ended, ExtractError, LinkCounts, Report};
pub use crate::robots::asks_not_to_follow;
pub use crate::scan::{ScannedKind, resolve_link, scan_links};
pub use crate::text::{PlainText, plain_text};

use crate::collector::Collector;
use crate::css::Css;
use crate::feed::Feed;
use crate::html::Html;
use crate::json::Json;
use crate::lines::{Format, Lines};
use crate::script::Script;
use crate::source::DocumentWindow;
use crate::xhtml::Xhtml;
use crate::xml::{Events, Xml};

/// Reads a document and gives the links in it to `sink`.
///
/// The document's content encoding (gzip and the like) must have been removed. If it cannot be read to its end, the links found
/// until then have been given, and the error holds the report.
pub fn extract(
    document: &mut dyn Read,
    context: &Context<'_>,
    sink: &mut dyn FnMut(Link),
) -> Result<Report, ExtractError> {
    let mut source = DocumentWindow::new(document, context);
    let opened = source.open(context);
    let links = match source.kind {
        DocumentKind::Sitemap | DocumentKind::UrlList => context.limits.sitemap_links,
        _ => context.limits.links,
    };
    let mut collector = Collector::new(context.url, &context.limits, links, sink);
    let read = opened.and_then(|()| read(&mut source, context, &mut collector));
    let report = Report {
        kind: source.kind,
        charset: source.encoding.name(),
        charset_source: source.charset_source,
        bytes: source.bytes,
        counts: collector.counts,
        passed_over: collector.passed_over,
        nofollow: collector.nofollow,
        ended: if collector.is_full() {
            Ended::Links
        } else if source.cut {
            Ended::Bytes
        } else {
            Ended::Complete
        },
    };
    match read {
        Ok(()) => Ok(report),
        Err(source) => Err(ExtractError::Read {
            report: Box::new(report),
            source,
        }),
    }
}

fn read(
    source: &mut DocumentWindow<'_>,
    context: &Context<'_>,
    collector: &mut Collector<'_>,
) -> io::Result<()> {
    match source.kind {
        DocumentKind::Html => read_html(source, collector),
        DocumentKind::Xhtml => {
            let mut xml = Xml::new(context.limits.token_bytes);
            let read = read_xml(source, &mut xml, &mut Xhtml::new(collector));
            collector.passed_over = collector.passed_over.saturating_add(xml.passed_over);
            read
        }
        DocumentKind::Xml | DocumentKind::Sitemap => {
            let mut xml = Xml::new(context.limits.token_bytes);
            let read = read_xml(source, &mut xml, &mut Feed::new(collector));
            collector.passed_over = collector.passed_over.saturating_add(xml.passed_over);
            read
        }
        DocumentKind::Css => {
            let mut css = Css::default();
            pieces(source, collector, |piece, collector| {
                css.push(piece, collector);
            })?;
            css.finish(collector);
            Ok(())
        }
        DocumentKind::Script => {
            collector.resolve_as_script(context.via);
            let mut script = Script::new(0);
            pieces(source, collector, |piece, collector| {
                script.push(piece, collector);
            })?;
            script.finish(collector);
            Ok(())
        }
        DocumentKind::Json => {
            let mut json = Json::new(0);
            pieces(source, collector, |piece, collector| {
                json.push(piece, collector);
            })?;
            json.finish(collector);
            Ok(())
        }
        DocumentKind::Robots => read_lines(source, collector, Format::Robots),
        DocumentKind::UrlList => read_lines(source, collector, Format::UrlList),
        DocumentKind::Playlist => read_lines(source, collector, Format::Playlist),
        DocumentKind::Other => Ok(()),
    }
}

fn pieces<'c>(
    source: &mut DocumentWindow<'_>,
    collector: &mut Collector<'c>,
    mut push: impl FnMut(&str, &mut Collector<'c>),
) -> io::Result<()> {
    while !collector.is_full() && source.advance()? {
        push(source.text(), collector);
    }
    Ok(())
}

fn read_html(source: &mut DocumentWindow<'_>, collector: &mut Collector<'_>) -> io::Result<()> {
    let mut html = Html::new(0, collector);
    while source.advance()? {
        html.encode_queries(source.encoding);
        if !html.push(source.text()) {
            return Ok(());
        }
    }
    html.finish();
    Ok(())
}

fn read_xml(
    source: &mut DocumentWindow<'_>,
    xml: &mut Xml,
    events: &mut dyn Events,
) -> io::Result<()> {
    while !events.is_full() && source.advance()? {
        xml.push(source.text(), events);
    }
    xml.finish(events);
    Ok(())
}

fn read_lines(
    source: &mut DocumentWindow<'_>,
    collector: &mut Collector<'_>,
    format: Format,
) -> io::Result<()> {
    let mut lines = Lines::new(format);
    pieces(source, collector, |piece, collector| {
        lines.push(piece, collector);
    })?;
    lines.finish(collector);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Collects the links that `work` offers, those of `http://lock.example/` without it.
    pub(crate) fn collected(work: impl FnOnce(&mut Collector<'_>)) -> Vec<String> {
        let document = Url::parse("http://lock.example/").unwrap();
        let limits = ExtractLimits::default();
        let mut found = Vec::new();
        let mut sink = |link: Link| {
            let url = link.url.strip_prefix("http://lock.example/");
            found.push(url.unwrap_or(&link.url).to_owned());
        };
        work(&mut Collector::new(
            &document,
            &limits,
            limits.links,
            &mut sink,
        ));
        found
    }

    /// Gives `work` the text whole, in two pieces parted at every place, and character by character; all must come to the same.
    pub(crate) fn split_everywhere<Found: PartialEq + std::fmt::Debug>(
        text: &str,
        mut work: impl FnMut(&[&str]) -> Found,
    ) -> Found {
        let whole = work(&[text]);
        for at in (0..=text.len()).filter(|&at| text.is_char_boundary(at)) {
            let (left, right) = text.split_at(at);
            assert_eq!(work(&[left, right]), whole, "{left:?} {right:?}");
        }
        let letters: Vec<&str> = text
            .char_indices()
            .map(|(at, letter)| &text[at..at + letter.len_utf8()])
            .collect();
        assert_eq!(work(&letters), whole, "letter by letter: {text:?}");
        whole
    }
}
