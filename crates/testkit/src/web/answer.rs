//! Responses as tests write them.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

/// A response, byte for byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    bytes: Vec<u8>,
    keeps: bool,
}

impl Answer {
    /// Takes bytes as they are; the connection ends after them.
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            bytes: bytes.into(),
            keeps: false,
        }
    }

    /// Makes one with a status line, these header lines (each with its end) and a body of known length.
    pub fn new(status: &str, fields: &str, body: &[u8]) -> Self {
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\n\r\n");
        Self {
            bytes: [head.as_bytes(), body].concat(),
            keeps: true,
        }
    }

    /// Makes one with status 200.
    pub fn of(mime: &str, body: &[u8]) -> Self {
        Self::new("200 OK", &format!("Content-Type: {mime}\r\n"), body)
    }

    /// Makes one that leads elsewhere.
    pub fn redirect(location: &str) -> Self {
        Self::new("302 Found", &format!("Location: {location}\r\n"), b"")
    }

    /// Makes one that says there is nothing.
    pub fn missing() -> Self {
        Self::new(
            "404 Not Found",
            "Content-Type: text/plain\r\n",
            b"nothing here\n",
        )
    }

    /// Returns its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn keeps(&self) -> bool {
        self.keeps
    }
}

/// Makes an HTML page.
pub fn html(body: &str) -> Answer {
    Answer::of("text/html", body.as_bytes())
}

/// Returns a body in chunks of that size, with the last one.
pub fn chunked(body: &[u8], size: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for chunk in body.chunks(size) {
        bytes.extend(format!("{:x}\r\n", chunk.len()).bytes());
        bytes.extend(chunk);
        bytes.extend(b"\r\n");
    }
    bytes.extend(b"0\r\n\r\n");
    bytes
}

/// Returns these bytes as gzip.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("memory takes all");
    encoder.finish().expect("memory takes all")
}
