//! Any bytes have an HTTP head that lies within them.

use ecluse_warc::HttpHead;

/// Holds what the head of this file says of these bytes.
pub fn run(bytes: &[u8]) {
    let Some(head) = HttpHead::parse(bytes) else {
        assert!(bytes.is_empty());
        return;
    };
    let _ = (head.status(), head.first_line(), head.is_chunked());
    assert!(head.head_bytes().is_none_or(|end| end <= bytes.len()));
    for field in head.fields() {
        let _ = (field.value(), field.text());
    }
}

/// Heads as records hold them.
pub fn seeds() -> Vec<Vec<u8>> {
    [
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\nbody",
        "GET / HTTP/1.0\r\nHost: a\r\n folded\r\n\r\n",
        "<html>",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}
