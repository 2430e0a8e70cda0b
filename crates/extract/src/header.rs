//! Links in the headers of a response.

use std::borrow::Cow;

use url::Url;

use crate::collector::Collector;
use crate::context::ExtractLimits;
use crate::link::{Hop, Link, LinkPlace};
use crate::refresh;
use crate::rel::{self, Role};
use crate::report::LinkCounts;

/// Gives the links in the headers of the response for `url` to `sink`.
///
/// `Location` and `Refresh` redirect, `Content-Location` is a place to go, and each link of `Link` is what its relation says. Names
/// are compared without regard to case; values are UTF-8 if they can be and Latin-1 if not.
pub fn extract_headers<'h>(
    url: &Url,
    fields: impl IntoIterator<Item = (&'h str, &'h [u8])>,
    limits: &ExtractLimits,
    sink: &mut dyn FnMut(Link),
) -> LinkCounts {
    let mut collector = Collector::new(url, limits, limits.links, sink);
    for (name, value) in fields {
        let value = text(value);
        match name.to_ascii_lowercase().as_str() {
            "location" => collector.offer(&value, Hop::Redirect, LinkPlace::Named("Location:")),
            "content-location" => {
                collector.offer(
                    &value,
                    Hop::Navigation,
                    LinkPlace::Named("Content-Location:"),
                );
            }
            "refresh" => {
                if let Some(target) = refresh::target(&value) {
                    collector.offer(target, Hop::Redirect, LinkPlace::Named("Refresh:"));
                }
            }
            "link" => link_header(&value, &mut collector),
            _ => {}
        }
    }
    collector.counts
}

/// Gives what no document names but a site is likely to have: its first page and its icon.
pub fn extract_inferred(
    url: &Url,
    limits: &ExtractLimits,
    sink: &mut dyn FnMut(Link),
) -> LinkCounts {
    let mut collector = Collector::new(url, limits, limits.links, sink);
    for path in ["/", "/favicon.ico"] {
        collector.offer(path, Hop::Inferred, LinkPlace::INFERRED);
    }
    collector.counts
}

fn text(value: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(value) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(value.iter().map(|&byte| char::from(byte)).collect()),
    }
}

/// Reads `<a>; rel=x, <b>; rel="y z"`.
pub(crate) fn link_header(value: &str, collector: &mut Collector<'_>) {
    let mut rest = value;
    while let Some((_, after)) = rest.split_once('<') {
        let Some((target, after)) = after.split_once('>') else {
            return;
        };
        let (parameters, next) = until_comma(after);
        rest = next;
        let place = LinkPlace::Named("Link:");
        match parameter(parameters, "rel").map_or(Role::Navigation, rel::role) {
            Role::Requisite => collector.offer(target, Hop::Embed, place),
            Role::Spare => collector.offer_spare(target, Hop::Embed, place),
            Role::Navigation => collector.offer(target, Hop::Navigation, place),
            Role::Ignored => {}
        }
    }
}

/// Splits at the first comma outside of quotes.
fn until_comma(text: &str) -> (&str, &str) {
    let mut quoted = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' => quoted = !quoted,
            b',' if !quoted => return (&text[..at], &text[at + 1..]),
            _ => {}
        }
    }
    (text, "")
}

fn parameter<'a>(parameters: &'a str, wanted: &str) -> Option<&'a str> {
    parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim()
            .eq_ignore_ascii_case(wanted)
            .then(|| value.trim().trim_matches('"'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(fields: &[(&str, &[u8])]) -> Vec<String> {
        let url = Url::parse("http://lock.example/a/b").unwrap();
        let mut found = Vec::new();
        let mut sink = |link: Link| {
            found.push(format!(
                "{} {} {} {}",
                link.hop, link.url, link.context, link.requisite
            ));
        };
        extract_headers(
            &url,
            fields.iter().copied(),
            &ExtractLimits::default(),
            &mut sink,
        );
        found
    }

    #[test]
    fn headers_name_links() {
        assert_eq!(
            links(&[
                ("LOCATION", b"/next#x"),
                ("Content-Location", b"b.fr.html"),
                ("Refresh", b"0; url=../c"),
                ("X-Other", b"/no"),
            ]),
            [
                "R http://lock.example/next Location: false",
                "L http://lock.example/a/b.fr.html Content-Location: false",
                "R http://lock.example/c Refresh: false",
            ]
        );
    }

    #[test]
    fn relations_say_what_a_link_is() {
        assert_eq!(
            links(&[(
                "Link",
                b"</a.css>; rel=preload; as=style, <c>;rel=\"next, x\" ; title=\"<no>, no\",</d>; rel=dns-prefetch, <//gate.example/?x=1,2>"
            )]),
            [
                "E http://lock.example/a.css Link: true",
                "L http://lock.example/a/c Link: false",
                "L http://gate.example/?x=1,2 Link: false",
            ]
        );
        assert_eq!(
            links(&[("link", b"<unclosed"), ("link", b""), ("link", b"<>")]),
            [] as [&str; 0]
        );
    }

    #[test]
    fn values_are_bytes() {
        assert_eq!(
            links(&[
                ("Location", b"/\xE9"),
                ("Location", "/é".as_bytes()),
                ("Location", b"\xFF\xFE")
            ]),
            [
                "R http://lock.example/%C3%A9 Location: false",
                "R http://lock.example/a/%C3%BF%C3%BE Location: false"
            ]
        );
    }

    #[test]
    fn a_site_has_a_first_page_and_an_icon() {
        let url = Url::parse("http://lock.example/a/b").unwrap();
        let mut found = Vec::new();
        extract_inferred(&url, &ExtractLimits::default(), &mut |link| {
            found.push((link.hop.letter(), link.url));
        });
        assert_eq!(
            found,
            [
                ('I', "http://lock.example/".to_owned()),
                ('I', "http://lock.example/favicon.ico".to_owned())
            ]
        );
    }
}
