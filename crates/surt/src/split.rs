//! Cuts a URL into the parts a key is made of.
//!
//! It is the generic syntax of RFC 2396, with the repairs the peer makes first: white space, a missing scheme,
//! a doubled `http://`, slashes before the host. Nothing is unescaped here, and only a bad port can fail.

use std::borrow::Cow;

use crate::SurtError;

/// The port and host numbers Python will convert; it refuses longer ones (its guard against slow conversions).
pub(crate) const DIGITS_AT_MOST: usize = 4300;

/// The parts of one URL, as they stand in it.
#[derive(Debug, PartialEq)]
pub(crate) struct Parts<'a> {
    pub(crate) scheme: &'a [u8],
    /// Empty if there is none.
    pub(crate) host: &'a [u8],
    pub(crate) port: Option<u16>,
    /// The path; with `slash_before_path`, without its leading slash.
    pub(crate) path: &'a [u8],
    pub(crate) slash_before_path: bool,
    /// Empty if there is none.
    pub(crate) query: &'a [u8],
}

/// Returns `url` as the peer repairs it before reading it.
pub(crate) fn repair(url: &[u8]) -> Result<Cow<'_, [u8]>, SurtError> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c);
    let start = url
        .iter()
        .position(|byte| !is_space(byte))
        .ok_or(SurtError::Blank)?;
    let end = url
        .iter()
        .rposition(|byte| !is_space(byte))
        .map_or(start, |last| last + 1);
    let mut repaired = Cow::Borrowed(&url[start..end]);
    // Inside a URL only these three vanish; spaces, vertical tabs and form feeds stay and are escaped.
    let vanishes = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r');
    if repaired.iter().any(vanishes) {
        repaired.to_mut().retain(|byte| !vanishes(byte));
    }
    if scheme_end(&repaired).is_none() {
        repaired.to_mut().splice(0..0, *b"http://");
    }
    Ok(repaired)
}

impl<'a> Parts<'a> {
    /// Cuts a repaired URL.
    pub(crate) fn of(repaired: &'a [u8]) -> Result<Self, SurtError> {
        let url = last_of_many_protocols(repaired);
        let colon = scheme_end(url).unwrap_or(0);
        let (scheme, rest) = (&url[..colon], url.get(colon + 1..).unwrap_or_default());
        let (rest, _fragment) = cut(rest, |byte| byte == b'#');
        let (before_query, query) = cut(rest, |byte| byte == b'?');
        let query = query.get(1..).unwrap_or_default();
        let (authority, path) = match before_query.strip_prefix(b"//") {
            Some(rest) => cut(rest, |byte| byte == b'/'),
            None => (&[][..], before_query),
        };
        let (host, port) = host_and_port(authority);
        let port = port_number(port)?;
        let mut parts = Parts {
            scheme,
            host,
            port,
            path,
            slash_before_path: false,
            query,
        };
        if scheme.starts_with(b"http") && host.is_empty() && !path.is_empty() {
            parts.take_host_from_path();
        }
        Ok(parts)
    }

    /// Mends `http:////////example.com/`, where the host ended up in the path.
    fn take_host_from_path(&mut self) {
        let slashes = self.path.iter().take_while(|&&byte| byte == b'/').count();
        let (host, path) = cut(&self.path[slashes..], |byte| byte == b'/');
        self.host = host;
        self.path = path.get(1..).unwrap_or_default();
        self.slash_before_path = true;
    }
}

/// Returns where the colon after the scheme is.
fn scheme_end(url: &[u8]) -> Option<usize> {
    let is_scheme = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    let end = url.iter().position(|&byte| !is_scheme(byte))?;
    (url[end] == b':' && url[0].is_ascii_alphabetic()).then_some(end)
}

/// Drops all but the last of `http://http://https://…`; only lower case counts.
fn last_of_many_protocols(url: &[u8]) -> &[u8] {
    let mut last = url;
    while let Some(rest) = after_protocol(last)
        && after_protocol(rest).is_some()
    {
        last = rest;
    }
    last
}

fn after_protocol(url: &[u8]) -> Option<&[u8]> {
    url.strip_prefix(b"http://")
        .or_else(|| url.strip_prefix(b"https://"))
}

/// Splits before the first byte that `stops`, which stays with the second half.
fn cut(text: &[u8], stops: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    text.split_at(
        text.iter()
            .position(|&byte| stops(byte))
            .unwrap_or(text.len()),
    )
}

fn host_and_port(authority: &[u8]) -> (&[u8], &[u8]) {
    let mut authority = authority;
    while let Some(rest) = authority.strip_suffix(b":") {
        authority = rest;
    }
    let after_user = authority
        .iter()
        .rposition(|&byte| byte == b'@')
        .map_or(0, |at| at + 1);
    let address = &authority[after_user..];
    let (host, rest) = match cut(address, |byte| byte == b'[') {
        (_, [b'[', bracketed @ ..]) => cut(bracketed, |byte| byte == b']'),
        _ => cut(address, |byte| byte == b':'),
    };
    let (_, port) = cut(rest, |byte| byte == b':');
    (host, port.get(1..).unwrap_or_default())
}

fn port_number(digits: &[u8]) -> Result<Option<u16>, SurtError> {
    if digits.is_empty() {
        return Ok(None);
    }
    let bad = || SurtError::BadPort {
        port: String::from_utf8_lossy(digits).into_owned(),
    };
    if digits.len() > DIGITS_AT_MOST || !digits.iter().all(u8::is_ascii_digit) {
        return Err(bad());
    }
    let number = digits.iter().try_fold(0_u16, |number, digit| {
        number.checked_mul(10)?.checked_add(u16::from(digit - b'0'))
    });
    Ok(Some(number.ok_or_else(bad)?).filter(|&port| port != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(url: &str) -> (String, String, Option<u16>, String, String) {
        let repaired = repair(url.as_bytes()).unwrap();
        let parts = Parts::of(&repaired).unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let slash = if parts.slash_before_path { "/" } else { "" };
        (
            text(parts.scheme),
            text(parts.host),
            parts.port,
            slash.to_owned() + &text(parts.path),
            text(parts.query),
        )
    }

    fn expect(url: &str, scheme: &str, host: &str, port: Option<u16>, path: &str, query: &str) {
        let expected = (scheme.into(), host.into(), port, path.into(), query.into());
        assert_eq!(parts(url), expected, "{url:?}");
    }

    #[test]
    fn cuts_at_the_first_of_each_delimiter() {
        expect(
            "http://a.b:8/c/d?e?f#g?h#i",
            "http",
            "a.b",
            Some(8),
            "/c/d",
            "e?f",
        );
        expect("https://a?b", "https", "a", None, "", "b");
        expect("http://a#b?c", "http", "a", None, "", "");
        expect("ftp://u:p@q@a:21/x@y:z", "ftp", "a", Some(21), "/x@y:z", "");
        expect("urn:a:b?c", "urn", "", None, "a:b", "c");
    }

    #[test]
    fn repairs_what_people_type() {
        expect(" \u{b}\ta.b/c d\r\n ", "http", "a.b", None, "/c d", "");
        expect("ht\ntp://a\t.b/", "http", "a.b", None, "/", "");
        expect("a.b:80/c", "a.b", "", None, "80/c", "");
        expect("1a:80/c", "http", "1a", Some(80), "/c", "");
        expect("http://https://http://a/b", "http", "a", None, "/b", "");
        expect("http:////a:80/b/c", "http", "a:80", None, "/b/c", "");
        expect("http:a", "http", "a", None, "/", "");
        expect("HTTP:////a/b", "HTTP", "", None, "//a/b", "");
    }

    #[test]
    fn reads_hosts_and_ports_as_urllib_does() {
        expect("http://a:::", "http", "a", None, "", "");
        expect("http://a:0080:/", "http", "a", Some(80), "/", "");
        expect("http://a:0/", "http", "a", None, "/", "");
        expect("http://[::1]:81/", "http", "::1", Some(81), "/", "");
        expect("http://x[::1]y:81/", "http", "::1", Some(81), "/", "");
        expect("http://[::1/", "http", "::1", None, "/", "");
        expect("http://:81/a/b", "http", "a", Some(81), "/b", "");
    }

    #[test]
    fn refuses_bad_ports_and_blanks() {
        for url in [
            "http://a:b/",
            "http://a:65536/",
            "http://a:8 0/",
            "http://a:80:81/",
            "http://u:p/x",
        ] {
            let repaired = repair(url.as_bytes()).unwrap();
            assert!(
                matches!(Parts::of(&repaired), Err(SurtError::BadPort { .. })),
                "{url}"
            );
        }
        assert!(matches!(repair(b" \t\x0c"), Err(SurtError::Blank)));
    }
}
