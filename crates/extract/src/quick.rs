//! Resolves the ordinary link without parsing it.
//!
//! Nearly all links are a path from the root, or an absolute URL in the form the WHATWG URL standard would write it in. What is not
//! surely one of those is left to the parser; a property holds the two together.

use url::{Position, Url};

/// Returns what `value` is against `base`, without a fragment, if that is plain to see.
pub(crate) fn resolve(base: &Url, value: &str) -> Option<String> {
    let value = value.split('#').next().unwrap_or(value);
    if !value.bytes().all(|byte| STAYS[usize::from(byte)]) {
        return None;
    }
    if value.starts_with('/') {
        let host =
            value.as_bytes().get(1) != Some(&b'/') && matches!(base.scheme(), "http" | "https");
        return (host && is_normal(value)).then(|| {
            let origin = &base[..Position::BeforePath];
            let mut url = String::with_capacity(origin.len() + value.len());
            url.push_str(origin);
            url.push_str(value);
            url
        });
    }
    let rest = value
        .strip_prefix("https://")
        .or_else(|| value.strip_prefix("http://"))?;
    let slash = rest.find('/')?;
    (is_plain_host(&rest[..slash]) && is_normal(&rest[slash..])).then(|| value.to_owned())
}

/// Tells a path without dot segments; any segment that begins with a dot, or an escape that may be one, is left to the parser.
fn is_normal(path: &str) -> bool {
    let path = path.split('?').next().unwrap_or(path);
    memchr::memmem::find(path.as_bytes(), b"/.").is_none()
        && memchr::memmem::find(path.as_bytes(), b"/%").is_none()
}

/// Tells a host name that is its own canonical form: no upper case, no Punycode, no address.
fn is_plain_host(host: &str) -> bool {
    let Some((rest, last)) = host.rsplit_once('.') else {
        return false;
    };
    let bytes = host.as_bytes();
    !rest.is_empty()
        && last.len() >= 2
        && last.bytes().all(|byte| byte.is_ascii_lowercase())
        && bytes.iter().all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.')
        })
        && !bytes.starts_with(b"xn--")
        && memchr::memmem::find(bytes, b".xn--").is_none()
}

/// The bytes that the parser leaves as they are in paths and queries.
static STAYS: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let others = b"-._~/?=&%+,;:@!()*$";
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
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
        ] {
            let quick = resolve(&base, value);
            assert!(quick.is_some(), "{value}");
            assert_eq!(quick, parsed(&base, value), "{value}");
        }
        for value in [
            "x",
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
        fn quick_is_right(value in "(|/|//|https?:/{1,3}|HTTP://|/|http://a\\.bc)[a-zA-Z0-9./?#%&=:@;,+!$'()*|\\\\~_\\- ]{0,24}") {
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
