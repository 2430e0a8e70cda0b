//! Any bytes are the head of an answer; its fields lie within them.

use ecluse_http::Head;

/// Holds what the head of this file says of these bytes.
pub fn run(bytes: &[u8]) {
    for head in [
        Head::parse(bytes.to_vec()),
        Head::parse_without_status_line(bytes.to_vec()),
    ] {
        assert_eq!(head.bytes(), bytes);
        let _ = (head.version(), head.has_folded(), head.has_bare_lf());
        assert!(head.status().is_none_or(|status| status < 1000));
        assert!(head.leading_blank_bytes() <= bytes.len());
        let mut total = 0;
        for field in head.fields() {
            total += field.value().len();
            let _ = field.text();
        }
        assert!(total <= bytes.len(), "{total} bytes of values");
        for name in [
            "content-length",
            "transfer-encoding",
            "connection",
            "set-cookie",
        ] {
            let _ = (head.tokens(name), head.text(name), head.all(name).count());
        }
    }
}

/// Heads of servers, good and bad.
pub fn seeds() -> Vec<Vec<u8>> {
    [
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\nSet-Cookie: a=b; Path=/\r\n\r\n",
        "HTTP/1.0 302 Found\nLocation: /x\n folded\n\tmore\n\n",
        "\r\n\r\nHTTP/1.1 200\r\nTransfer-Encoding: gzip, chunked\r\nConnection: close, keep-alive\r\n\r\n",
        "ICY 200 OK\r\nicy-name: x\r\nno colon\r\n: no name\r\n\r\n",
        "<html>an old server",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}
