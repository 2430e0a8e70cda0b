//! Any URL has a printable key or none.

use ecluse_surt::surt;

/// Holds what the head of this file says of these bytes.
pub fn run(url: &[u8]) {
    let mut key = b"before ".to_vec();
    let outcome = surt(url, &mut key);
    let key = key.strip_prefix(b"before ").expect("a key is appended");
    assert_eq!(outcome.is_err(), key.is_empty());
    if !url.starts_with(b"filedesc") {
        assert!(key.iter().all(u8::is_ascii_graphic));
    }
}

/// URLs.
pub fn seeds() -> Vec<Vec<u8>> {
    [
        "http://www.example.com:80/a/../b?C=d&a=b#x",
        "https://user:pass@EXAMPLE.org/%7Efoo;jsessionid=0123456789ABCDEF",
        "dns:example.com",
        "filedesc://a.arc",
        "http://192.0.2.1/\u{e9}",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}
