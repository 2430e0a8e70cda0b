//! A line that can be read is written again and read as the same; the line that was written is one line.

use ecluse_cdx::{cdx, cdxj};

/// Holds what the head of this file says of these bytes.
pub fn run(line: &[u8]) {
    if let Ok(capture) = cdxj::parse(line) {
        let mut written = Vec::new();
        if cdxj::write(&capture, &mut written).is_ok() {
            assert!(written.ends_with(b"}\n"));
            let again = cdxj::parse(&written).expect("what was written can be read");
            assert_eq!(again.key, capture.key);
            assert_eq!(again.offset, capture.offset);
            assert_eq!(again.url, capture.url);
            for layout in [cdx::Layout::Eleven, cdx::Layout::Nine] {
                let mut fields = Vec::new();
                if cdx::write(layout, &capture, &mut fields).is_ok() {
                    let count = fields.split(|byte| *byte == b' ').count();
                    assert_eq!(count, layout.field_count());
                    assert_eq!(fields.iter().filter(|byte| **byte == b'\n').count(), 1);
                }
            }
        }
    }
    let _ = cdx::parse(line);
    let _ = cdx::Layout::from_header(line);
}

/// Lines of three layouts.
pub fn seeds() -> Vec<Vec<u8>> {
    [
        "com,example)/ 20200101000000 {\"url\": \"http://example.com/\", \"mime\": \"text/html\", \"status\": \"200\", \"digest\": \"sha1:AAAA\", \"length\": \"10\", \"offset\": \"0\", \"filename\": \"a.warc.gz\"}",
        "com,example)/ 20200101000000 http://example.com/ text/html 200 AAAA - - 10 0 a.warc.gz",
        " CDX N b a m s k r M S V g",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}
