//! One answer of the small web.

use std::io::Write;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;

/// The one moment of this web: nothing in it depends on when it is asked.
pub(crate) const MOMENT: &str = "Sun, 01 Nov 2026 08:00:00 GMT";

/// How the body goes over the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// With its length.
    Plain,
    /// In chunks.
    Chunked,
    /// In small pieces with pauses between them.
    Dripping(Duration),
}

/// An answer.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    pub(crate) status: u16,
    pub(crate) kind: &'static str,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) manner: Manner,
    /// Whether the server can be asked if it has changed.
    pub(crate) validates: bool,
}

impl Page {
    /// Returns a page of any kind.
    pub(crate) fn of(kind: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status: 200,
            kind,
            headers: Vec::new(),
            body: body.into(),
            manner: Manner::Plain,
            validates: true,
        }
    }

    /// Returns a page of HTML.
    pub(crate) fn html(title: &str, body: &str) -> Self {
        let text = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
             <link rel=\"stylesheet\" href=\"/style.css\">\n</head>\n<body>\n<h1>{title}</h1>\n{body}\n</body>\n</html>\n"
        );
        Self::of("text/html; charset=utf-8", text)
    }

    /// Returns a page of plain text.
    pub(crate) fn text(body: &str) -> Self {
        Self::of("text/plain; charset=utf-8", body)
    }

    /// Returns a picture: a word on a coloured ground.
    pub(crate) fn picture(word: &str, hue: usize) -> Self {
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 320 180\">\
             <rect width=\"320\" height=\"180\" fill=\"hsl({},50%,70%)\"/>\
             <text x=\"20\" y=\"100\" font-size=\"32\">{word}</text></svg>\n",
            hue * 37 % 360
        );
        Self::of("image/svg+xml", text)
    }

    /// Returns a redirect.
    pub(crate) fn redirect(status: u16, to: &str) -> Self {
        Self {
            status,
            validates: false,
            ..Self::text(&format!("see {to}\n"))
        }
        .with("Location", to)
    }

    /// Returns what is said of a page that is not there.
    pub(crate) fn missing(path: &str) -> Self {
        Self {
            status: 404,
            validates: false,
            ..Self::text(&format!("no {path} here\n"))
        }
    }

    /// Adds a header.
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// Sends the body in another manner.
    pub(crate) fn sent(mut self, manner: Manner) -> Self {
        self.manner = manner;
        self
    }

    /// Compresses the body.
    pub(crate) fn gzipped(mut self) -> Self {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        let written = encoder.write_all(&self.body);
        let packed = written.and_then(|()| encoder.finish());
        self.body = packed.expect("memory takes what is written");
        self.with("Content-Encoding", "gzip")
    }

    /// Returns what is said of a page that is as it was.
    pub(crate) fn unchanged(self) -> Self {
        let tag = self.tag();
        Self {
            status: 304,
            body: Vec::new(),
            ..self
        }
        .with("ETag", &tag)
    }

    /// Returns a mark that changes with the body.
    pub(crate) fn tag(&self) -> String {
        // FNV-1a: short, and the same everywhere.
        let mark = self
            .body
            .iter()
            .fold(0xcbf2_9ce4_8422_2325u64, |mark, byte| {
                (mark ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
            });
        format!("\"{mark:016x}\"")
    }
}

/// Returns a list of links.
pub(crate) fn links<'a>(links: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let items = links
        .into_iter()
        .map(|(name, href)| format!("<li><a href=\"{href}\">{name}</a></li>\n"));
    format!("<ul>\n{}</ul>\n", items.collect::<String>())
}
