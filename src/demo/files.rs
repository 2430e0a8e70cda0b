//! `files.localhost`: what is not a page: a feed, a plan, and something big.

use super::page::{Page, links};

/// The size of the big file.
const BIG: usize = 3_000_000;

pub(crate) fn page(path: &str, port: u16) -> Option<Page> {
    let page = match path {
        "/" => Page::html(
            "Files",
            &links([
                ("Feed", "/feed.xml".to_owned()),
                ("Report", "/report.pdf".to_owned()),
                ("Survey, 3 MB", "/survey.bin".to_owned()),
            ]),
        ),
        "/style.css" => Page::of("text/css", "body { margin: 2em }\n"),
        "/feed.xml" => Page::of(
            "application/rss+xml",
            format!(
                "<?xml version=\"1.0\"?>\n<rss version=\"2.0\"><channel><title>Files</title><link>http://files.localhost:{port}/</link>\
                 <item><title>One</title><link>http://files.localhost:{port}/notes/1.txt</link></item>\
                 <item><title>Two</title><link>http://files.localhost:{port}/notes/2.txt</link></item></channel></rss>\n"
            ),
        ),
        "/notes/1.txt" => Page::text("The upper gate leaks.\n"),
        "/notes/2.txt" => Page::text("The upper gate was mended.\n"),
        "/report.pdf" => Page::of(
            "application/pdf",
            b"%PDF-1.4\n1 0 obj << >> endobj\ntrailer << >>\n%%EOF\n".to_vec(),
        ),
        "/survey.bin" => Page::of("application/octet-stream", noise()),
        _ => return None,
    };
    Some(page)
}

/// Returns bytes that do not compress, always the same.
fn noise() -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut bytes = Vec::with_capacity(BIG);
    while bytes.len() < BIG {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(BIG);
    bytes
}
