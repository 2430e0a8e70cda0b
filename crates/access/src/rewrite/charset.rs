//! Which character set a page is in, as a browser would find it.

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};

/// How much of a page is searched for its own word.
const DECLARATION: usize = 2048;

/// Returns what the header says, else the page itself, else what its bytes allow.
pub(crate) fn of_page(page: &[u8], content_type: &str) -> &'static Encoding {
    if let Some((encoding, _)) = Encoding::for_bom(page) {
        return encoding;
    }
    if let Some(encoding) = parameter(content_type) {
        return encoding;
    }
    let start = String::from_utf8_lossy(&page[..page.len().min(DECLARATION)]);
    let start = start.to_ascii_lowercase();
    // `<meta charset=x>` and `<meta http-equiv=content-type content="text/html; charset=x">` alike.
    for meta in start.split("<meta").skip(1) {
        let tag = meta.split('>').next().unwrap_or_default();
        if let Some(encoding) = parameter(tag) {
            // A page that says so in ASCII is not in UTF-16.
            return encoding.output_encoding();
        }
    }
    match str::from_utf8(page) {
        Ok(_) => UTF_8,
        Err(_) => WINDOWS_1252,
    }
}

/// Reads `charset=` wherever it stands in a text.
fn parameter(text: &str) -> Option<&'static Encoding> {
    let lower = text.to_ascii_lowercase();
    let rest = &lower[lower.find("charset")? + "charset".len()..];
    let rest = rest.trim_start().strip_prefix('=')?.trim_start();
    let label = rest.trim_start_matches(['"', '\'']);
    let end = label.find(|c: char| c.is_ascii_whitespace() || "\"';,/>".contains(c));
    Encoding::for_label(&label.as_bytes()[..end.unwrap_or(label.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_character_set_is_found() {
        for (page, content_type, name) in [
            (&b"<p>"[..], "text/html; charset=ISO-8859-1", "windows-1252"),
            (b"<meta charset=\"koi8-r\">", "text/html", "KOI8-R"),
            (
                b"<META http-equiv=Content-Type content='text/html; charset=shift_jis'>",
                "",
                "Shift_JIS",
            ),
            (b"<meta charset=utf-16>", "", "UTF-8"),
            (b"caf\xc3\xa9", "", "UTF-8"),
            (b"caf\xe9", "", "windows-1252"),
            (b"\xef\xbb\xbfx", "text/html; charset=latin1", "UTF-8"),
            (b"x", "text/html; charset=nonsense", "UTF-8"),
        ] {
            assert_eq!(of_page(page, content_type).name(), name, "{content_type}");
        }
    }
}
