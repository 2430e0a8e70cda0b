//! The key by which the frontier knows a URL again.
//!
//! Two URLs with one key are fetched once, so a rule that joins too much loses captures without a trace. What is safe
//! always applies; what Heritrix also does is an option each, and off where sites exist that tell the two apart.

use serde::{Deserialize, Serialize};
use url::Url;

/// What is taken for the same URL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct CanonOrder {
    /// User and password are left out.
    pub strip_userinfo: bool,
    /// Session ids are left out: jsessionid, PHPSESSID, sid, ASPSESSIONID, CFID with CFTOKEN, ASP.NET's in the path.
    pub strip_sessions: bool,
    /// Empty arguments of the query are left out, and the question mark of an empty query.
    pub fix_query: bool,
    /// `www.`, `www2.` … in front of the host is left out.
    pub strip_www: bool,
    /// Upper and lower case are the same in path and query.
    pub lower_case: bool,
    /// `//` in a path is `/`.
    pub strip_slashes: bool,
    /// http and https are the same.
    pub join_schemes: bool,
}

impl Default for CanonOrder {
    fn default() -> CanonOrder {
        CanonOrder {
            strip_userinfo: true,
            strip_sessions: true,
            fix_query: true,
            strip_www: false,
            lower_case: false,
            strip_slashes: false,
            join_schemes: false,
        }
    }
}

impl CanonOrder {
    /// Returns the key of a URL.
    pub fn key(&self, url: &Url) -> Vec<u8> {
        let mut key = Vec::with_capacity(url.as_str().len());
        self.append_key(url, &mut key);
        key
    }

    /// Appends the key of a URL.
    ///
    /// The parser has already lower-cased scheme and host, turned names into ASCII, removed default ports and resolved
    /// dots. The fragment goes, and escapes are written in one way.
    pub fn append_key(&self, url: &Url, key: &mut Vec<u8>) {
        let scheme = match url.scheme() {
            "https" if self.join_schemes => "http",
            scheme => scheme,
        };
        key.extend_from_slice(scheme.as_bytes());
        key.push(b':');
        if url.has_authority() {
            key.extend_from_slice(b"//");
        }
        if !self.strip_userinfo && (!url.username().is_empty() || url.password().is_some()) {
            key.extend_from_slice(url.username().as_bytes());
            if let Some(password) = url.password() {
                key.push(b':');
                key.extend_from_slice(password.as_bytes());
            }
            key.push(b'@');
        }
        if let Some(host) = url.host_str() {
            let host = host_name(host);
            let host = if self.strip_www {
                without_www(host)
            } else {
                host
            };
            key.extend_from_slice(host.as_bytes());
        }
        if let Some(port) = url.port() {
            key.extend_from_slice(format!(":{port}").as_bytes());
        }
        let after_host = key.len();
        self.append_path(url.path(), key);
        if let Some(query) = url.query() {
            self.append_query(query, key);
        }
        if self.lower_case {
            key[after_host..].make_ascii_lowercase();
        }
    }

    fn append_path(&self, path: &str, key: &mut Vec<u8>) {
        let mut segments = path.split('/').peekable();
        let mut is_first = true;
        while let Some(segment) = segments.next() {
            if self.strip_sessions && is_aspnet_session(segment) {
                continue;
            }
            let is_inner = !is_first && segments.peek().is_some();
            if self.strip_slashes && segment.is_empty() && is_inner {
                continue;
            }
            if !is_first {
                key.push(b'/');
            }
            is_first = false;
            let segment = if self.strip_sessions {
                without_matrix_session(segment)
            } else {
                segment
            };
            append_escaped(segment.as_bytes(), key);
        }
    }

    fn append_query(&self, query: &str, key: &mut Vec<u8>) {
        let has_cftoken = query
            .split('&')
            .any(|argument| is_named(argument, "cftoken"));
        let mut separator = b'?';
        for argument in query.split('&') {
            if self.fix_query && argument.is_empty() {
                continue;
            }
            if self.strip_sessions && is_session(argument, has_cftoken) {
                continue;
            }
            key.push(separator);
            separator = b'&';
            append_escaped(argument.as_bytes(), key);
        }
    }
}

/// A host without the dot that ends a name at the root.
pub(crate) fn host_name(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

/// A host without `www.`, `www2.` … in front.
pub(crate) fn without_www(host: &str) -> &str {
    let rest = host.strip_prefix("www").and_then(|rest| {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        rest[digits..].strip_prefix('.')
    });
    rest.filter(|rest| !rest.is_empty()).unwrap_or(host)
}

fn is_named(argument: &str, name: &str) -> bool {
    value_of(argument, name).is_some()
}

fn value_of<'a>(argument: &'a str, name: &str) -> Option<&'a str> {
    let (found, value) = argument.split_once('=')?;
    found.eq_ignore_ascii_case(name).then_some(value)
}

/// Names of session ids, and the shortest value that is one.
const SESSIONS: [(&str, usize); 6] = [
    ("jsessionid", 16),
    ("phpsessid", 16),
    ("sid", 32),
    ("oscsid", 26),
    ("zenid", 26),
    ("sessionid", 32),
];

fn is_session(argument: &str, has_cftoken: bool) -> bool {
    let named = SESSIONS.iter().any(|(name, shortest)| {
        value_of(argument, name).is_some_and(|value| value.len() >= *shortest && is_token(value))
    });
    let asp = || {
        let (name, value) = argument.split_once('=')?;
        let (front, letters) = name.split_at_checked("aspsessionid".len())?;
        let fits = front.eq_ignore_ascii_case("aspsessionid")
            && letters.len() == 8
            && letters.bytes().all(|byte| byte.is_ascii_alphabetic())
            && is_token(value);
        fits.then_some(())
    };
    let cold_fusion =
        || has_cftoken && (is_named(argument, "cfid") || is_named(argument, "cftoken"));
    named || asp().is_some() || cold_fusion()
}

fn is_token(value: &str) -> bool {
    !value.is_empty()
        && value
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._!-".contains(&byte))
}

/// A segment without `;jsessionid=…` at its end.
fn without_matrix_session(segment: &str) -> &str {
    match segment.rsplit_once(';') {
        Some((front, argument)) if is_session(argument, false) => front,
        _ => segment,
    }
}

/// `(S(…24 letters and digits…))`, and the older `(…24…)`.
fn is_aspnet_session(segment: &str) -> bool {
    let Some(inside) = segment
        .strip_prefix('(')
        .and_then(|rest| rest.strip_suffix(')'))
    else {
        return false;
    };
    let id = inside
        .strip_prefix("S(")
        .and_then(|rest| rest.strip_suffix(')'))
        .unwrap_or(inside);
    id.len() == 24 && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Appends text with the digits of its escapes in upper case, and what RFC 3986 calls unreserved without an escape.
fn append_escaped(text: &[u8], key: &mut Vec<u8>) {
    let begin = key.len();
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let octet = match after {
            [high, low, ..] if byte == b'%' => octet_of(*high, *low),
            _ => None,
        };
        let Some(octet) = octet else {
            key.push(byte);
            continue;
        };
        // A digit right behind a stray percent sign would make an escape that was none.
        let joins = matches!(key[begin..], [.., b'%'] | [.., b'%', _]) && octet.is_ascii_hexdigit();
        if !joins && (octet.is_ascii_alphanumeric() || b"-._~".contains(&octet)) {
            key.push(octet);
        } else {
            key.extend([
                b'%',
                after[0].to_ascii_uppercase(),
                after[1].to_ascii_uppercase(),
            ]);
        }
        rest = &after[2..];
    }
}

fn octet_of(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(order: &CanonOrder, url: &str) -> String {
        String::from_utf8(order.key(&Url::parse(url).unwrap())).unwrap()
    }

    const NONE: CanonOrder = CanonOrder {
        strip_userinfo: false,
        strip_sessions: false,
        fix_query: false,
        strip_www: false,
        lower_case: false,
        strip_slashes: false,
        join_schemes: false,
    };

    #[test]
    fn what_is_always_the_same() {
        for (url, expected) in [
            ("HTTP://Lock.Example:80", "http://lock.example/"),
            ("https://lock.example:443/a#b", "https://lock.example/a"),
            ("http://lock.example./a", "http://lock.example/a"),
            ("http://lock.example/a/../b/./c", "http://lock.example/b/c"),
            (
                "http://écluse.example/é?é",
                "http://xn--cluse-9ra.example/%C3%A9?%C3%A9",
            ),
            (
                "http://lock.example/%c3%a9%7e%61",
                "http://lock.example/%C3%A9~a",
            ),
            ("http://lock.example/%2f%zz%", "http://lock.example/%2F%zz%"),
            ("http://0x7f.1/", "http://127.0.0.1/"),
            ("http://[::1]:8080/", "http://[::1]:8080/"),
            ("http://u:p@lock.example/", "http://u:p@lock.example/"),
            ("http://lock.example/A?&", "http://lock.example/A?&"),
            ("dns:lock.example", "dns:lock.example"),
        ] {
            assert_eq!(key(&NONE, url), expected, "{url}");
        }
    }

    #[test]
    fn what_is_usually_the_same() {
        let session = "0123456789ABCDEF0123456789abcdef";
        let order = CanonOrder::default();
        for (url, expected) in [
            ("http://u:p@lock.example/", "/"),
            ("http://lock.example/a?", "/a"),
            ("http://lock.example/a?&", "/a"),
            ("http://lock.example/a?&b=1&&c&", "/a?b=1&c"),
            ("http://lock.example/a;jsessionid=@@?b", "/a?b"),
            ("http://lock.example/a;jsessionid=@@.node1/b", "/a/b"),
            ("http://lock.example/a?PHPSESSID=@@", "/a"),
            ("http://lock.example/a?b=1&sid=@@&c=2", "/a?b=1&c=2"),
            (
                "http://lock.example/a?ASPSESSIONIDAQBSDSRT=EOHBLBDDPFCLHKPGGKLILNAM",
                "/a",
            ),
            ("http://lock.example/a?CFID=1&CFTOKEN=2&b", "/a?b"),
            (
                "http://lock.example/(S(4hqa0555fwsecu455xqckv45))/a.aspx",
                "/a.aspx",
            ),
            ("http://lock.example/(4hqa0555fwsecu455xqckv45)/a", "/a"),
            // And what only looks like it.
            ("http://lock.example/a?sid=7", "/a?sid=7"),
            ("http://lock.example/a?jsessionid=", "/a?jsessionid="),
            ("http://lock.example/a?cfid=1", "/a?cfid=1"),
            ("http://lock.example/a?xsid=@@", "/a?xsid=@@"),
            ("http://lock.example/(S(short))/a", "/(S(short))/a"),
            ("http://lock.example/a;b=c", "/a;b=c"),
            ("http://lock.example//a//", "//a//"),
            ("http://lock.example/A", "/A"),
        ] {
            let [url, expected] = [url, expected].map(|text| text.replace("@@", session));
            assert_eq!(
                key(&order, &url),
                format!("http://lock.example{expected}"),
                "{url}"
            );
        }
        assert_ne!(
            key(&order, "http://www.lock.example/"),
            key(&order, "http://lock.example/")
        );
        assert_ne!(
            key(&order, "https://lock.example/"),
            key(&order, "http://lock.example/")
        );
    }

    #[test]
    fn what_is_the_same_when_asked_for() {
        let order = CanonOrder {
            strip_www: true,
            lower_case: true,
            strip_slashes: true,
            join_schemes: true,
            ..CanonOrder::default()
        };
        for (url, expected) in [
            (
                "https://www.lock.example/A//B?C#d",
                "http://lock.example/a/b?c",
            ),
            ("http://www12.lock.example/", "http://lock.example/"),
            ("http://www.lock.example//", "http://lock.example/"),
            ("http://wwwx.lock.example/", "http://wwwx.lock.example/"),
            ("http://www/", "http://www/"),
            ("http://www./", "http://www/"),
        ] {
            assert_eq!(key(&order, url), expected, "{url}");
        }
    }

    #[test]
    fn a_stray_percent_sign_makes_no_escape() {
        for (url, expected) in [
            ("http://a.example/?%%30a", "http://a.example/?%%30a"),
            ("http://a.example/?%a%30", "http://a.example/?%a%30"),
            ("http://a.example/?%2f%30", "http://a.example/?%2F0"),
        ] {
            assert_eq!(key(&NONE, url), expected);
            assert_eq!(key(&NONE, expected), expected);
        }
    }

    proptest! {
        /// A key is a URL, and its own key.
        #[test]
        fn a_key_is_its_own_key(
            url in "https?://(www[0-9]?\\.)?[a-z]{1,3}\\.example(:8[0-9]{3})?/[a-c/;=%(){}A-F0-9]{0,12}(\\?[a-c&=%A-F0-9]{0,12})?",
            [www, case, slashes, schemes] in any::<[bool; 4]>(),
        ) {
            let order = CanonOrder { strip_www: www, lower_case: case, strip_slashes: slashes, join_schemes: schemes, ..CanonOrder::default() };
            let url = Url::parse(&url).unwrap();
            let once = order.key(&url);
            let text = String::from_utf8(once.clone()).unwrap();
            let again = Url::parse(&text).unwrap();
            // Stripping `www.` once leaves that of `www.www.`; escapes that decode to dots make new dot segments.
            if !text.contains("/.") && !text.contains("%2E") {
                prop_assert_eq!(order.key(&again), once);
            }
        }

        #[test]
        fn no_url_panics(url in "\\PC{0,40}", web in "http://[\\PC/;?&=%()]{0,40}") {
            for text in [url, web] {
                if let Ok(url) = Url::parse(&text) {
                    let key = CanonOrder::default().key(&url);
                    prop_assert!(key.is_ascii());
                }
            }
        }
    }
}
