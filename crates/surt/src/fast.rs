//! Makes the key of an ordinary URL in one go, without allocating.
//!
//! Ordinary is `http` or `https` in lower case, a host of letters, digits, hyphens and dots that is not an address,
//! a plain port, and a path without dot segments or doubled slashes. Escapes are read when each stands for itself.
//! Whatever else it meets, it gives up and leaves the URL to `exact`; it must never guess.

use crate::escape::{hex_pair, is_kept, push_kept_lower, push_lower};
use crate::{host, query};

/// Appends the key of `url` and tells so, or appends nothing.
pub(crate) fn append(url: &[u8], key: &mut Vec<u8>) -> bool {
    let start = key.len();
    // A key is as long as its URL at most, but for the slash of an empty path and what sorting borrows.
    key.reserve(2 * url.len() + 2);
    let done = append_ordinary(url, key).is_some();
    if !done {
        key.truncate(start);
    }
    done
}

fn append_ordinary(url: &[u8], key: &mut Vec<u8>) -> Option<()> {
    let (rest, default_port) = match url.strip_prefix(b"http://") {
        Some(rest) => (rest, &b"80"[..]),
        None => (url.strip_prefix(b"https://")?, &b"443"[..]),
    };
    let host_end = rest
        .iter()
        .position(|&byte| !is_plain_in_host(byte))
        .unwrap_or(rest.len());
    let (host, rest) = rest.split_at(host_end);
    push_host(host, key)?;
    let rest = push_port(rest, default_port, key)?;
    key.push(b')');
    let rest = push_path(rest, key)?;
    match rest {
        [b'?', query @ ..] => push_query(query, key),
        _ => Some(()),
    }
}

const fn is_plain_in_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_')
}

/// Appends the host turned round, unless it is empty, an address or has an empty label.
fn push_host(host: &[u8], key: &mut Vec<u8>) -> Option<()> {
    let named = host
        .iter()
        .any(|byte| !byte.is_ascii_digit() && *byte != b'.');
    let dots =
        host.starts_with(b".") || host.ends_with(b".") || host.windows(2).any(|pair| pair == b"..");
    if !named || dots {
        return None;
    }
    let start = key.len();
    // The host goes behind its place first, so that it is in lower case when `www` is looked for.
    key.extend_from_slice(host);
    key[start..].make_ascii_lowercase();
    let www = host.len() - host::without_www(&key[start..]).len();
    let end = key.len();
    let mut label_end = end;
    for at in (start + www..end).rev() {
        if key[at] == b'.' {
            key.extend_from_within(at + 1..label_end);
            key.push(b',');
            label_end = at;
        }
    }
    key.extend_from_within(start + www..label_end);
    key.copy_within(end.., start);
    key.truncate(key.len() - host.len());
    Some(())
}

/// Appends a port that is not the default, and returns what follows it.
fn push_port<'a>(rest: &'a [u8], default_port: &[u8], key: &mut Vec<u8>) -> Option<&'a [u8]> {
    let after = match rest {
        [b':', after @ ..] => {
            let digits = after
                .iter()
                .take_while(|byte| byte.is_ascii_digit())
                .count();
            let (port, after) = after.split_at(digits);
            // Four digits cannot be too many; the rest of the ports, and zeros in front, are rare.
            if !(1..=4).contains(&digits) || port[0] == b'0' {
                return None;
            }
            if port != default_port {
                key.push(b':');
                key.extend_from_slice(port);
            }
            after
        }
        _ => rest,
    };
    matches!(after.first(), None | Some(b'/' | b'?' | b'#')).then_some(after)
}

/// Appends the path and returns what follows it, beginning with `?` or `#`.
fn push_path<'a>(rest: &'a [u8], key: &mut Vec<u8>) -> Option<&'a [u8]> {
    let start = key.len();
    let rest = push_text(rest, is_plain_in_path, key)?;
    if key.len() == start {
        key.push(b'/');
    }
    // After a slash: an empty segment or the end, a dot segment, or what may be a session.
    let odd = |pair: &[u8]| pair[0] == b'/' && matches!(pair[1], b'/' | b'.' | b'(');
    if key[start..].windows(2).any(odd) {
        return None;
    }
    if key.len() > start + 1 && key.ends_with(b"/") {
        key.pop();
    }
    Some(rest)
}

fn push_query(query: &[u8], key: &mut Vec<u8>) -> Option<()> {
    let before = key.len();
    key.push(b'?');
    let start = key.len();
    push_text(query, is_kept, key)?;
    query::strip_sessions(key, start);
    if key.len() == start {
        key.truncate(before);
    } else {
        query::sort(key, start);
    }
    Some(())
}

const fn is_plain_in_path(byte: u8) -> bool {
    is_kept(byte) && byte != b'?'
}

/// Appends text in lower case up to a `#`, or a `?` that is not plain, and returns what is left.
fn push_text<'a>(
    text: &'a [u8],
    is_plain: impl Fn(u8) -> bool,
    key: &mut Vec<u8>,
) -> Option<&'a [u8]> {
    let mut rest = text;
    loop {
        rest = push_kept_lower(rest, &is_plain, key);
        match rest {
            [] | [b'?' | b'#', ..] => return Some(rest),
            [b'%', high, low, after @ ..] => {
                let byte = hex_pair(*high, *low)?;
                // An escaped percent sign may begin another escape; then the order of things matters.
                if byte == b'%' {
                    return None;
                }
                push_lower(byte, key);
                rest = after;
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::exact;

    fn fast(url: &str) -> Option<String> {
        let mut key = b"> ".to_vec();
        let done = append(url.as_bytes(), &mut key);
        assert!(done || key == b"> ");
        done.then(|| String::from_utf8(key).unwrap().split_off(2))
    }

    #[test]
    fn takes_ordinary_urls() {
        let cases = [
            ("http://www.Example.com/", "com,example)/"),
            (
                "https://example.com:443/A/b/?B=1&a=%C3%A9#x",
                "com,example)/a/b?a=%c3%a9&b=1",
            ),
            ("http://WWW2.example.com:8080?", "com,example:8080)/"),
            (
                "http://a/%7Eb%20c?sid=0123456789abcdef0123456789ABCDEF",
                "a)/~b%20c",
            ),
            ("http://www5.com#", "com)/"),
        ];
        for (url, expected) in cases {
            assert_eq!(fast(url).as_deref(), Some(expected), "{url}");
        }
    }

    #[test]
    fn leaves_the_rest_alone() {
        for url in [
            "",
            "http://",
            "http:///a",
            "HTTP://a/",
            "ftp://a/",
            "dns:a",
            "a.com",
            "http://1.2/",
            "http://.a/",
            "http://a./",
            "http://a..b/",
            "http://u@a/",
            "http://a:/",
            "http://a:080/",
            "http://a:80x/",
            "http://a:12345/",
            "http://a//b",
            "http://a/./b",
            "http://a/%2e%2E/b",
            "http://a/(x)/b.aspx",
            "http://a/b c",
            "http://a/b\n",
            "http://é/",
            "http://a/é",
            "http://a/%",
            "http://a/%4",
            "http://a/%zz",
            "http://a/%2541",
            "http://a/?%25",
            "http://http://a/",
            "http://[::1]/",
            "http://a\\b/",
        ] {
            assert_eq!(fast(url), None, "{url}");
        }
    }

    /// Text near the border of what the fast path takes.
    fn url() -> impl Strategy<Value = String> {
        let host = prop_oneof![
            "(www[0-9]{0,2}\\.)?[a-zA-Z0-9_.-]{1,12}(\\.[a-z]{1,3})?",
            "[0-9.]{1,8}",
            "[wW]{3}[0-9.]{0,3}[a-zA-Z0-9.%:@\\[-]{0,12}",
        ];
        let text = "([a-zA-Z0-9/.&=;:@!()?~-]|%[0-9A-Fa-f]{2}|[/.&=#%+ ]|id=|sid=[0-9a-f]{32}|cfid=1&cftoken=2|&){0,24}";
        let port = prop_oneof![4 => Just(String::new()), 1 => ":[0-9]{0,6}"];
        let scheme = prop_oneof![
            Just("http://"),
            Just("https://"),
            Just("http:/"),
            Just("HTTP://"),
            Just("http://http://")
        ];
        (scheme, host, port, "[/?#]?", text, "[?#]?", text).prop_map(
            |(scheme, host, port, first, path, second, query)| {
                format!("{scheme}{host}{port}{first}{path}{second}{query}")
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1024))]

        #[test]
        fn equals_the_exact_path(url in url()) {
            if let Some(key) = fast(&url) {
                let mut expected = Vec::new();
                prop_assert!(exact::append(url.as_bytes(), &mut expected).is_ok());
                prop_assert_eq!(key.as_bytes(), expected);
            }
        }
    }
}
