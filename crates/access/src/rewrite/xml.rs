//! XML that a browser shows: feeds, maps of sites, documents with a style sheet of their own.
//!
//! Links are known by where they stand: the style sheet, attributes, and the elements that feeds and maps of sites have for them. Names of
//! vocabularies look like links and are none; they stay.

use std::sync::LazyLock;

use regex::bytes::{Captures, Regex};

use crate::replay_address::ReplayAddress;

/// Before a link, the link, and the quotation mark behind it if there is one.
static LINKS: LazyLock<[(Regex, &str); 3]> = LazyLock::new(|| {
    let pattern = |text: &str| Regex::new(text).expect("the patterns are tested");
    [
        (
            pattern(r#"(?-u)(<\?xml-stylesheet\s[^>]{0,1000}?\bhref\s*=\s*["'])([^"'<>]+)(["'])"#),
            "cs_",
        ),
        (
            pattern(r#"(?-u)(\s(?:xlink:)?(?:href|src|url)\s*=\s*["'])(https?://[^"'<>]+)(["'])"#),
            "mp_",
        ),
        (
            pattern(
                r"(?-u)(<(?:\w+:)?(?:link|loc|url|comments)(?:\s[^<>]{0,1000})?>\s*)(https?://[^<>\s]+)()",
            ),
            "mp_",
        ),
    ]
});

pub(super) fn rewrite(document: &[u8], address: &ReplayAddress<'_>) -> Vec<u8> {
    rewrite_with(document, &|link, modifier| {
        address.rewritten(link, modifier)
    })
}

fn rewrite_with(document: &[u8], link: &dyn Fn(&str, &str) -> String) -> Vec<u8> {
    let mut document = document.to_vec();
    for (pattern, modifier) in LINKS.iter() {
        let replace = |found: &Captures<'_>| {
            let Ok(url) = str::from_utf8(&found[2]) else {
                return found[0].to_vec();
            };
            let to = link(&url.replace("&amp;", "&"), modifier);
            let to = to.replace('&', "&amp;").replace('"', "%22");
            [&found[1], to.replace('\'', "%27").as_bytes(), &found[3]].concat()
        };
        document = pattern.replace_all(&document, replace).into_owned();
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_rewritten_and_names_of_vocabularies_stay() {
        let rewritten = |document: &str| {
            let out = rewrite_with(document.as_bytes(), &|link, modifier| {
                format!("/{modifier}/{link}")
            });
            String::from_utf8(out).unwrap()
        };
        for (document, expected) in [
            (
                "<?xml-stylesheet type='text/xsl' href='/x.xsl'?>",
                "<?xml-stylesheet type='text/xsl' href='/cs_//x.xsl'?>",
            ),
            (
                "<rss xmlns:a=\"http://a/\"><link>http://a/?x=1&amp;y</link></rss>",
                "<rss xmlns:a=\"http://a/\"><link>/mp_/http://a/?x=1&amp;y</link></rss>",
            ),
            (
                "<url><loc> https://a/b </loc></url>",
                "<url><loc> /mp_/https://a/b </loc></url>",
            ),
            (
                "<entry><link rel=\"x\" href=\"http://a/\"/><enclosure url='http://a/1'/></entry>",
                "<entry><link rel=\"x\" href=\"/mp_/http://a/\"/><enclosure url='/mp_/http://a/1'/></entry>",
            ),
            ("<p>see http://a/</p>", "<p>see http://a/</p>"),
            ("<a href='rel'/>", "<a href='rel'/>"),
        ] {
            assert_eq!(rewritten(document), expected);
        }
    }
}
