//! Resolves the ordinary link without parsing it.
//!
//! Nearly all links are a path from the root, or an absolute URL in the form the WHATWG URL standard would write it in. What is not
//! surely one of those is left to the parser; a property holds the two together.

use url::{Position, Url};

/// An ordinary link, as it stands in a page, without its fragment. It is ASCII, and in the form the parser would write it in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlainLink<'a> {
    /// An `http` or `https` URL.
    Absolute(&'a [u8]),
    /// A path from the root, and a query.
    Path(&'a [u8]),
    /// A path from the directory so many levels above that of the page, and a query.
    Beside(usize, &'a [u8]),
}

/// Returns what a value is, if that is plain to see.
pub(crate) fn plain(value: &[u8]) -> Option<PlainLink<'_>> {
    match value.first()? {
        b'/' if value.get(1) == Some(&b'/') => None,
        b'/' => Some(PlainLink::Path(&value[..path_end(value, 0)?])),
        b'h' if value.starts_with(b"http:") || value.starts_with(b"https:") => {
            let path = host_end(value)?;
            Some(PlainLink::Absolute(&value[..path_end(value, path)?]))
        }
        b'.' => {
            let (mut up, mut rest) = (0, value);
            loop {
                if let Some(above) = rest.strip_prefix(b"../") {
                    (up, rest) = (up + 1, above);
                } else if let Some(here) = rest.strip_prefix(b"./") {
                    rest = here;
                } else {
                    break;
                }
            }
            // A slash first would be a segment without a name.
            let is_plain =
                rest.len() < value.len() && !matches!(rest.first(), Some(b'/' | b'.' | b'%'));
            is_plain.then_some(PlainLink::Beside(up, &rest[..path_end(rest, 0)?]))
        }
        byte if byte.is_ascii_alphanumeric() => {
            let end = path_end(value, 0)?;
            // What ends with a colon may be a scheme.
            let is_path = memchr::memchr(b':', &value[..end]).is_none();
            is_path.then(|| PlainLink::Beside(0, &value[..end]))
        }
        _ => None,
    }
}

/// Returns what `value` is against `base`, without a fragment, if that is plain to see.
pub(crate) fn resolve(base: &Url, value: &str) -> Option<String> {
    let (before, value) = match plain(value.as_bytes())? {
        PlainLink::Absolute(url) => ("", url),
        _ if !matches!(base.scheme(), "http" | "https") => return None,
        PlainLink::Path(path) => (&base[..Position::BeforePath], path),
        // What lies beside the page may lie elsewhere for a script.
        PlainLink::Beside(..) => return None,
    };
    let mut url = String::with_capacity(before.len() + value.len());
    url.push_str(before);
    url.push_str(std::str::from_utf8(value).ok()?);
    Some(url)
}

/// Returns an `http` or `https` URL up to the last slash of its path.
pub(crate) fn directory(base: &Url) -> &str {
    let path = &base[..Position::AfterPath];
    path.rfind('/').map_or(path, |slash| &path[..=slash])
}

/// Returns a directory so many levels above another; above the root is the root. Both begin and end with a slash.
pub(crate) fn above(directory: &[u8], levels: usize) -> &[u8] {
    let mut directory = directory;
    for _ in 0..levels {
        let Some((_, inside)) = directory.split_last() else {
            break;
        };
        match memchr::memrchr(b'/', inside) {
            Some(slash) => directory = &directory[..=slash],
            None => break,
        }
    }
    directory
}

/// Returns where a path and its query end: at their fragment. None where the parser might change them: dot segments, anything that may be
/// one, and bytes that it escapes.
fn path_end(value: &[u8], from: usize) -> Option<usize> {
    let mut before = 0;
    let mut dots = 0;
    for (at, byte) in value.iter().enumerate().skip(from) {
        let class = BYTES[usize::from(*byte)];
        if class >= HASH {
            return (class == HASH && dots == 0).then_some(at);
        }
        // A dot right after a slash leaves its bit.
        dots |= before & class;
        before = class << 1;
    }
    (dots == 0).then_some(value.len())
}

/// Returns where the host of an absolute URL ends, if it is its own canonical form (no upper case, no Punycode, no address) and a path follows.
fn host_end(value: &[u8]) -> Option<usize> {
    let rest = value.strip_prefix(b"http")?;
    let rest = rest.strip_prefix(b"s").unwrap_or(rest);
    let rest = rest.strip_prefix(b"://")?;
    let end = memchr::memchr(b'/', rest)?;
    let host = &rest[..end];
    let dot = host.iter().rposition(|byte| *byte == b'.')?;
    let last = &host[dot + 1..];
    let is_plain = dot > 0
        && last.len() >= 2
        && last.iter().all(u8::is_ascii_lowercase)
        && host.iter().all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.')
        })
        && !host.starts_with(b"xn--")
        && memchr::memmem::find(host, b".xn--").is_none();
    is_plain.then(|| value.len() - rest.len() + end)
}

/// The parser leaves it as it is.
const STAYS: u8 = 0;
/// A segment follows.
const SLASH: u8 = 1;
/// At the begin of a segment it may make it a dot segment: a dot, or an escape.
const DOT: u8 = SLASH << 1;
/// A fragment follows.
const HASH: u8 = 8;
/// The parser changes it.
const OTHER: u8 = 9;

/// What each byte does in a path or query.
static BYTES: [u8; 256] = {
    let mut table = [OTHER; 256];
    let mut byte = 0;
    while byte < 256 {
        if (byte as u8).is_ascii_alphanumeric() {
            table[byte] = STAYS;
        }
        byte += 1;
    }
    let others = b"-_~=&+,;:@!()*$?";
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = STAYS;
        at += 1;
    }
    table[b'/' as usize] = SLASH;
    table[b'.' as usize] = DOT;
    table[b'%' as usize] = DOT;
    table[b'#' as usize] = HASH;
    table
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(base: &Url, value: &str) -> Option<String> {
        let mut url = base.join(value).ok()?;
        url.set_fragment(None);
        Some(url.into())
    }

    #[test]
    fn ordinary_links_are_quick() {
        let base = Url::parse("https://lock.example:8443/a/b?c").unwrap();
        for value in [
            "/x",
            "/x/y.html?z=1&a=%20#b",
            "http://gate.example/",
            "https://www.gate-2.example/x/y?http://a",
            "/x/y.html?z=./a#b",
        ] {
            let quick = resolve(&base, value);
            assert!(quick.is_some(), "{value}");
            assert_eq!(quick, parsed(&base, value), "{value}");
        }
        for value in [
            "",
            "x",
            "?x",
            "#x",
            "x:y",
            "x/../y",
            "//gate.example/",
            "/a/../b",
            "/a b",
            "/é",
            "http://GATE.example/",
            "http://1.2/",
            "http://gate.example",
        ] {
            assert_eq!(resolve(&base, value), None, "{value}");
        }
    }

    proptest! {
        #[test]
        fn what_lies_beside_a_page_is_near_its_directory(value in "(\\./|\\.\\./){0,4}[a-zA-Z0-9./?#%&=:@;,+!$()*~_\\-]{0,24}") {
            for base in ["http://lock.example/a/b//c/d?c/d#d", "https://u:p@lock.example:81/"] {
                let base = Url::parse(base).unwrap();
                if let Some(PlainLink::Beside(up, path)) = plain(value.as_bytes()) {
                    let origin = &base[..Position::BeforePath];
                    let directory = above(&directory(&base).as_bytes()[origin.len()..], up);
                    let url = [origin.as_bytes(), directory, path].concat();
                    prop_assert_eq!(Some(String::from_utf8(url).unwrap()), parsed(&base, &value));
                }
            }
        }

        #[test]
        fn quick_is_right(value in "(|/|//|a|x/|https?:/{1,3}|HTTP://|/|http://a\\.bc)[a-zA-Z0-9./?#%&=:@;,+!$'()*|\\\\~_\\- ]{0,24}") {
            for base in ["http://lock.example/a/b?c#d", "https://u:p@lock.example:81/", "ftp://lock.example/x/"] {
                let base = Url::parse(base).unwrap();
                if let Some(url) = resolve(&base, &value) {
                    prop_assert_eq!(Some(url), parsed(&base, &value));
                }
            }
        }

        #[test]
        fn quick_is_right_on_hosts(host in "[a-z0-9.\\-]{1,20}", path in "[a-z./%]{0,10}") {
            let base = Url::parse("http://lock.example/").unwrap();
            let value = format!("http://{host}/{path}");
            if let Some(url) = resolve(&base, &value) {
                prop_assert_eq!(Some(url), parsed(&base, &value));
            }
        }
    }
}
