//! What sitemaps and feeds tell of other pages: where they are, and when they changed.

use memchr::memmem;
use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};
use serde::Deserialize;

use crate::announcement::SignalKind;
use crate::archive_time::ArchiveTime;
use crate::dates::any_date;

/// What a document tells of one page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldChange {
    /// The address, as it stands there.
    pub address: String,
    /// When it changed.
    pub time: ArchiveTime,
    /// What told it.
    pub kind: SignalKind,
}

/// Reads a sitemap, an RSS, Atom or JSON feed, and gives what it tells of each page to `sink`. Another document tells nothing; XML that is
/// not well formed tells what is before the fault, JSON nothing.
pub fn told_changes(document: &[u8], sink: &mut dyn FnMut(ToldChange)) {
    let document = document.strip_prefix(b"\xef\xbb\xbf").unwrap_or(document);
    match document.trim_ascii_start().first() {
        Some(b'{') => told_by_json(document, sink),
        Some(b'<') => told_by_xml(document, sink),
        _ => {}
    }
}

/// A JSON feed, as far as it tells of pages (jsonfeed.org, versions 1 and 1.1).
#[derive(Deserialize)]
struct JsonFeed {
    version: String,
    #[serde(default)]
    items: Vec<JsonItem>,
}

#[derive(Deserialize)]
struct JsonItem {
    url: Option<String>,
    date_published: Option<String>,
    date_modified: Option<String>,
}

fn told_by_json(document: &[u8], sink: &mut dyn FnMut(ToldChange)) {
    // Most JSON is none; slashes may be escaped.
    if memmem::find(document, b"jsonfeed.org").is_none() {
        return;
    }
    let Ok(feed) = serde_json::from_slice::<JsonFeed>(document) else {
        return;
    };
    if !feed.version.contains("jsonfeed.org/version/") {
        return;
    }
    for item in feed.items {
        let dates = [item.date_published, item.date_modified];
        // An item that was published and modified was modified last.
        let time = dates
            .iter()
            .flatten()
            .filter_map(|date| any_date(date))
            .max();
        let entry = Entry {
            kind: SignalKind::Feed,
            address: item.url.map(|url| url.trim().to_owned()),
            time,
        };
        if let Some(told) = entry.told() {
            sink(told);
        }
    }
}

fn told_by_xml(document: &[u8], sink: &mut dyn FnMut(ToldChange)) {
    let mut reader = Reader::from_reader(document);
    let config = reader.config_mut();
    config.check_end_names = false;
    config.allow_unmatched_ends = true;
    let mut entry: Option<Entry> = None;
    let mut is_known = false;
    let mut text = String::new();
    let mut buffer = Vec::new();
    loop {
        buffer.clear();
        let event = match reader.read_event_into(&mut buffer) {
            Ok(event) => event,
            Err(_) => return,
        };
        match event {
            Event::Start(start) => {
                text.clear();
                let name = start.local_name();
                if !is_known {
                    // The root element says what it is.
                    is_known = matches!(
                        name.as_ref(),
                        b"urlset" | b"sitemapindex" | b"rss" | b"feed" | b"RDF"
                    );
                    if !is_known {
                        return;
                    }
                }
                match name.as_ref() {
                    b"url" | b"sitemap" => entry = Some(Entry::of(SignalKind::Sitemap)),
                    b"item" | b"entry" => entry = Some(Entry::of(SignalKind::Feed)),
                    b"link" => link(&start, entry.as_mut()),
                    _ => {}
                }
            }
            Event::Empty(start) if start.local_name().as_ref() == b"link" => {
                link(&start, entry.as_mut());
            }
            Event::Text(more) => {
                if let Ok(more) = more.decode() {
                    text.push_str(&more);
                }
            }
            Event::CData(more) => {
                if let Ok(more) = more.decode() {
                    text.push_str(&more);
                }
            }
            Event::GeneralRef(reference) => match reference.as_ref() {
                b"amp" => text.push('&'),
                _ => text.push(' '),
            },
            Event::End(end) => {
                if let Some(open) = &mut entry {
                    match (open.kind, end.local_name().as_ref()) {
                        (SignalKind::Sitemap, b"url" | b"sitemap")
                        | (SignalKind::Feed, b"item" | b"entry") => {
                            if let Some(told) = entry.take().and_then(Entry::told) {
                                sink(told);
                            }
                        }
                        (SignalKind::Sitemap, b"loc") | (SignalKind::Feed, b"link") => {
                            let address = text.trim();
                            if !address.is_empty() {
                                open.address = Some(address.to_owned());
                            }
                        }
                        (SignalKind::Sitemap, b"lastmod")
                        | (SignalKind::Feed, b"updated" | b"pubDate" | b"published" | b"date") => {
                            // An entry that was published and updated was updated last.
                            open.time = open.time.max(any_date(&text));
                        }
                        _ => {}
                    }
                }
                text.clear();
            }
            Event::Eof => return,
            _ => {}
        }
    }
}

/// An entry that is being read.
struct Entry {
    kind: SignalKind,
    address: Option<String>,
    time: Option<ArchiveTime>,
}

impl Entry {
    fn of(kind: SignalKind) -> Self {
        Self {
            kind,
            address: None,
            time: None,
        }
    }

    fn told(self) -> Option<ToldChange> {
        Some(ToldChange {
            address: self.address?,
            time: self.time?,
            kind: self.kind,
        })
    }
}

/// Takes the address of Atom's `link`, which stands in an attribute.
fn link(start: &BytesStart<'_>, entry: Option<&mut Entry>) {
    let Some(entry) = entry else { return };
    let value = |name: &str| {
        let attribute = start.try_get_attribute(name).ok().flatten()?;
        Some(
            attribute
                .normalized_value(XmlVersion::Implicit1_0)
                .ok()?
                .into_owned(),
        )
    };
    let relation = value("rel");
    if relation.is_none_or(|relation| relation == "alternate")
        && let Some(address) = value("href")
    {
        entry.address = Some(address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(document: &str) -> Vec<String> {
        let mut told = Vec::new();
        told_changes(document.as_bytes(), &mut |it| {
            told.push(format!("{} {} {}", it.kind.word(), it.time, it.address));
        });
        told
    }

    #[test]
    fn a_sitemap_tells_when_pages_changed() {
        let sitemap = "<?xml version='1.0'?><urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'>\
            <url><loc>http://a.example/?x=1&amp;y=2</loc><lastmod>2026-01-02</lastmod></url>\
            <url><loc>http://a.example/without</loc></url>\
            <url><loc> http://a.example/b </loc><lastmod>2026-01-02T03:04:05+00:00</lastmod><priority>1</priority></url>\
            <url><loc>http://a.example/cut";
        assert_eq!(
            told(sitemap),
            [
                "sitemap 20260102000000 http://a.example/?x=1&y=2",
                "sitemap 20260102030405 http://a.example/b",
            ]
        );
    }

    #[test]
    fn feeds_tell_when_entries_were_updated() {
        let rss = "<rss version='2.0'><channel><title>T</title><link>http://a.example/</link>\
            <item><title>One</title><link><![CDATA[http://a.example/1]]></link>\
            <pubDate>Thu, 01 Jan 2026 10:00:00 GMT</pubDate></item></channel></rss>";
        assert_eq!(told(rss), ["feed 20260101100000 http://a.example/1"]);
        let atom = "<feed xmlns='http://www.w3.org/2005/Atom'><link href='/'/><updated>2026-05-01T00:00:00Z</updated>\
            <entry><link rel='edit' href='/edit'/><link rel='alternate' href='/2?a=1&amp;b=2'/>\
            <published>2026-01-01T00:00:00Z</published><updated>2026-02-01T00:00:00Z</updated></entry></feed>";
        assert_eq!(told(atom), ["feed 20260201000000 /2?a=1&b=2"]);
    }

    #[test]
    fn a_json_feed_tells_when_items_were_modified() {
        let feed = r#"{"version":"https:\/\/jsonfeed.org\/version\/1.1","title":"T","home_page_url":"http://a.example/",
            "items":[{"id":1,"url":"http:\/\/a.example\/1","date_published":"2026-01-01T10:00:00+01:00","tags":["x"]},
            {"id":"2","url":"/2","date_published":"2026-01-01T00:00:00Z","date_modified":"2026-02-01T00:00:00Z"},
            {"id":"3","date_modified":"2026-02-01T00:00:00Z"},{"id":"4","url":"/4"},{"id":"5","url":"/5","date_modified":"soon"}]}"#;
        let expected = [
            "feed 20260101090000 http://a.example/1",
            "feed 20260201000000 /2",
        ];
        assert_eq!(told(feed), expected);
        assert_eq!(told(&format!("\u{feff} {feed}")), expected);
        assert!(told(&feed[..feed.len() - 1]).is_empty());
    }

    #[test]
    fn other_documents_tell_nothing() {
        for text in [
            "{",
            r#"{"version":"1","items":[{"url":"/","date_modified":"2026-02-01T00:00:00Z"}]}"#,
            r#"{"version":"1","about":"jsonfeed.org","items":[{"url":"/","date_modified":"2026-02-01T00:00:00Z"}]}"#,
            "",
            "<",
            "<html><url><loc>x</loc></url></html>",
            "plain",
            "<urlset><url></urlset>",
        ] {
            assert!(told(text).is_empty(), "{text}");
        }
    }
}
