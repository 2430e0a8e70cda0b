//! Addresses of replay: `/web/20260101000000mp_/http://example.org/`.

use std::borrow::Cow;

use url::Url;

use crate::moment::Moment;
use crate::url_text::with_scheme;

/// What is asked of a capture. The empty one is the page with the banner around it.
pub(crate) const MODIFIERS: [&str; 12] = [
    "", "id_", "ir_", "mp_", "if_", "js_", "cs_", "im_", "fr_", "oe_", "fw_", "bn_",
];

/// An address of replay, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReplayPath<'a> {
    /// The digits of the time as they were written; empty where there were none.
    pub(crate) digits: &'a str,
    pub(crate) modifier: &'static str,
    /// The URL as it was written.
    pub(crate) url: &'a str,
}

impl<'a> ReplayPath<'a> {
    /// Reads what follows the collection: `20260101000000mp_/http://…`; none where it does not begin with a time or a modifier.
    pub(crate) fn parse(rest: &'a str) -> Option<Self> {
        let (head, url) = rest.split_once('/')?;
        let end = head
            .bytes()
            .position(|byte| !byte.is_ascii_digit())
            .unwrap_or(head.len());
        let (digits, modifier) = head.split_at(end);
        let modifier = MODIFIERS.into_iter().find(|known| *known == modifier)?;
        let is_some = !(digits.is_empty() && modifier.is_empty());
        (is_some && digits.len() <= 17 && !url.is_empty()).then_some(Self {
            digits,
            modifier,
            url,
        })
    }
}

/// Where a capture is shown, and how its links become addresses here.
#[derive(Debug, Clone)]
pub(crate) struct ReplayAddress<'a> {
    /// The path of the collection: `/web`.
    pub(crate) collection: &'a str,
    /// The time of the capture.
    pub(crate) moment: Moment,
    pub(crate) modifier: &'a str,
    /// The URL of the capture.
    pub(crate) url: Cow<'a, str>,
}

impl ReplayAddress<'_> {
    /// Returns the address of a link in the capture. What leads to no server (`data:`, `javascript:`, `#top`) stays as it is.
    pub(crate) fn rewritten(&self, link: &str, modifier: &str) -> String {
        let base = Url::parse(&self.url).ok();
        self.rewritten_from(base.as_ref(), link, modifier)
    }

    pub(crate) fn rewritten_from(&self, base: Option<&Url>, link: &str, modifier: &str) -> String {
        let trimmed = link.trim_matches(|c: char| c.is_ascii_whitespace() || c.is_ascii_control());
        if trimmed.is_empty() || trimmed.starts_with('#') || has_no_server(trimmed) {
            return link.to_owned();
        }
        let target = match base {
            Some(base) => base.join(trimmed),
            None => Url::parse(&with_scheme(trimmed)),
        };
        match target {
            Ok(target) => self.address_of(target.as_str(), modifier),
            // A browser makes nothing of it either.
            Err(_) => format!(
                "{}/{}{modifier}/{trimmed}",
                self.collection,
                self.moment.as_str()
            ),
        }
    }

    /// Returns the address of a whole URL.
    pub(crate) fn address_of(&self, url: &str, modifier: &str) -> String {
        let (collection, time) = (self.collection, self.moment.as_str());
        format!("{collection}/{time}{modifier}/{url}")
    }
}

/// Says whether a link leads to no server.
pub(crate) fn has_no_server(link: &str) -> bool {
    let Some((scheme, _)) = link.split_once(':') else {
        return false;
    };
    let is_other = [
        "data",
        "javascript",
        "mailto",
        "about",
        "blob",
        "tel",
        "sms",
        "news",
        "magnet",
        "urn",
        "irc",
        "skype",
        "callto",
        "geo",
        "view-source",
        "res",
        "chrome",
        "file",
        "whatsapp",
    ];
    is_other
        .iter()
        .any(|known| scheme.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        let read = |rest| ReplayPath::parse(rest).map(|p| (p.digits, p.modifier, p.url));
        assert_eq!(
            read("20260101000000mp_/http://a/?b=c"),
            Some(("20260101000000", "mp_", "http://a/?b=c"))
        );
        assert_eq!(read("2026/a.example"), Some(("2026", "", "a.example")));
        assert_eq!(read("id_/http://a/"), Some(("", "id_", "http://a/")));
        for none in [
            "http://a/",
            "2026xx_/http://a/",
            "2026mp_/",
            "*/http://a/",
            "202601010000001234/x",
        ] {
            assert_eq!(read(none), None, "{none}");
        }
    }

    #[test]
    fn links_become_addresses_here() {
        let address = ReplayAddress {
            collection: "/web",
            moment: Moment::first_of("20260101000000").unwrap(),
            modifier: "mp_",
            url: "http://a.example/dir/page?x=1".into(),
        };
        for (link, rewritten) in [
            (
                "b.html",
                "/web/20260101000000mp_/http://a.example/dir/b.html",
            ),
            ("/b", "/web/20260101000000mp_/http://a.example/b"),
            ("//c.example/b", "/web/20260101000000mp_/http://c.example/b"),
            (
                "https://c.example",
                "/web/20260101000000mp_/https://c.example/",
            ),
            (
                " \n?y=2 ",
                "/web/20260101000000mp_/http://a.example/dir/page?y=2",
            ),
            ("#top", "#top"),
            ("data:,x", "data:,x"),
            ("JavaScript:alert(1)", "JavaScript:alert(1)"),
            ("", ""),
        ] {
            assert_eq!(address.rewritten(link, "mp_"), rewritten, "{link}");
        }
    }
}
