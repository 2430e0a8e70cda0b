//! Any bytes have an HTTP head that lies within them.

#![no_main]

use ecluse_warc::HttpHead;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(head) = HttpHead::parse(bytes) else {
        assert!(bytes.is_empty());
        return;
    };
    let _ = (head.status(), head.protocol(), head.first_line());
    let _ = (head.is_http(), head.is_chunked());
    assert!(head.head_bytes().is_none_or(|end| end <= bytes.len()));
    for field in head.fields() {
        let _ = (field.value(), field.text());
    }
});
