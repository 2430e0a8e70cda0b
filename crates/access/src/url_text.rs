//! URLs as people type them and as addresses of replay carry them.

use std::borrow::Cow;
use std::fmt::Write;

/// Returns a URL with a scheme: `canal.example:8080/` has none, though it could be read so, and a proxy on the way may have made
/// one slash of two.
pub(crate) fn with_scheme(url: &str) -> Cow<'_, str> {
    let lower = url.get(..8.min(url.len())).unwrap_or_default();
    let lower = lower.to_ascii_lowercase();
    for scheme in ["http:", "https:"] {
        if lower.starts_with(scheme) {
            let rest = &url[scheme.len()..];
            return match rest.starts_with("//") {
                true => Cow::Borrowed(url),
                false => Cow::Owned(format!("{scheme}//{}", rest.trim_start_matches('/'))),
            };
        }
    }
    if let Some(rest) = url.strip_prefix("//") {
        return Cow::Owned(format!("http://{rest}"));
    }
    let start = url.split(['/', '?', '#']).next().unwrap_or_default();
    match start.split_once(':') {
        Some((scheme, rest)) if is_scheme(scheme) && !is_port(rest) => Cow::Borrowed(url),
        _ => Cow::Owned(format!("http://{url}")),
    }
}

/// Schemes under which archives keep records.
fn is_scheme(text: &str) -> bool {
    [
        "dns",
        "urn",
        "ftp",
        "metadata",
        "whois",
        "data",
        "filedesc",
        "warcinfo",
        "mailto",
        "javascript",
    ]
    .contains(&text)
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the key of a URL.
pub(crate) fn key_of(url: &str) -> Option<Vec<u8>> {
    ecluse_surt::Surt::of(url.as_bytes())
        .ok()
        .map(ecluse_surt::Surt::into_bytes)
}

/// Encodes a text as one value of a query string.
pub(crate) fn encode_component(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            _ => write!(out, "%{byte:02X}").expect("a string takes what is written"),
        }
    }
    out
}

/// Returns a URL that can stand in a header, a link and an address: everything that is not printable ASCII, and what would end
/// it there, as percent signs.
pub(crate) fn safe_url(url: &str) -> Cow<'_, str> {
    let is_safe = |byte: u8| {
        (b'!'..=b'~').contains(&byte) && !matches!(byte, b'<' | b'>' | b'"' | b'\\' | b'`' | b'\'')
    };
    if url.bytes().all(is_safe) {
        return Cow::Borrowed(url);
    }
    let mut out = String::with_capacity(url.len() + 8);
    for byte in url.bytes() {
        match is_safe(byte) {
            true => out.push(char::from(byte)),
            false => write!(out, "%{byte:02X}").expect("a string takes what is written"),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_a_scheme() {
        for (given, read) in [
            ("example.org", "http://example.org"),
            ("example.org:8080/a", "http://example.org:8080/a"),
            ("http:/example.org/", "http://example.org/"),
            ("https:/example.org/", "https://example.org/"),
            ("https://example.org/", "https://example.org/"),
            ("//example.org/", "http://example.org/"),
            ("dns:example.org", "dns:example.org"),
            ("example.org/a:b", "http://example.org/a:b"),
            ("é", "http://é"),
        ] {
            assert_eq!(with_scheme(given), read);
        }
    }

    #[test]
    fn what_would_end_a_link_is_encoded() {
        assert_eq!(
            safe_url("http://a/<x>\"\r\nSet-Cookie: é"),
            "http://a/%3Cx%3E%22%0D%0ASet-Cookie:%20%C3%A9"
        );
        assert_eq!(safe_url("http://a/?x=1&y=%20#z"), "http://a/?x=1&y=%20#z");
        assert_eq!(encode_component("a b/é"), "a%20b%2F%C3%A9");
    }
}
