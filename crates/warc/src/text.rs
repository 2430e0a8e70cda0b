//! Header text as web archives hold it: UTF-8 or, failing that, ISO 8859-1, and trimmed as Python trims.
//!
//! Replay tools and indexes are built on warcio, so "blank" and "trimmed" mean here what `str.strip` means in Python:
//! the ASCII blanks, the four separators 0x1C to 0x1F, and the Unicode white space of the decoded line.

use std::borrow::Cow;

/// Returns the text of a header line or of a part of one: UTF-8 if it is valid, ISO 8859-1 otherwise.
#[must_use]
pub fn decode(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(bytes.iter().map(|&byte| char::from(byte)).collect()),
    }
}

/// Returns the line without white space at its end.
pub(crate) fn trim_end(line: &[u8]) -> &[u8] {
    let mut end = line.len();
    while let Some(&last) = line[..end].last() {
        if is_ascii_blank(last) {
            end -= 1;
        } else if last.is_ascii() {
            break;
        } else {
            return trim_end_decoded(line, end);
        }
    }
    &line[..end]
}

/// Returns the part of a line without white space at its start.
pub(crate) fn trim_start(part: &[u8]) -> &[u8] {
    let start = part
        .iter()
        .position(|&byte| !is_ascii_blank(byte))
        .unwrap_or(part.len());
    let rest = &part[start..];
    match rest.first() {
        Some(first) if !first.is_ascii() => {
            let text = decode(rest);
            let kept = text.trim_start_matches(is_blank);
            let dropped = text.chars().count() - kept.chars().count();
            let skip = match &text {
                Cow::Borrowed(_) => text.len() - kept.len(),
                Cow::Owned(_) => dropped,
            };
            &rest[skip..]
        }
        _ => rest,
    }
}

fn trim_end_decoded(line: &[u8], end: usize) -> &[u8] {
    // The decoding depends on the whole line, not on its end alone.
    match std::str::from_utf8(line) {
        Ok(text) => text[..end].trim_end_matches(is_blank).as_bytes(),
        Err(_) => {
            let blanks = line[..end]
                .iter()
                .rev()
                .take_while(|&&byte| is_blank(char::from(byte)))
                .count();
            &line[..end - blanks]
        }
    }
}

fn is_ascii_blank(byte: u8) -> bool {
    matches!(byte, b'\t'..=b'\r' | 0x1C..=0x1F | b' ')
}

fn is_blank(character: char) -> bool {
    character.is_whitespace() || ('\u{1C}'..='\u{1F}').contains(&character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trims_what_python_trims() {
        assert_eq!(trim_end(b"a \t\r\n"), b"a");
        assert_eq!(trim_end(b"a\x1c\x1f\x0b\x0c"), b"a");
        assert_eq!(trim_end("a\u{a0}\u{3000} ".as_bytes()), b"a");
        assert_eq!(trim_end(b"a\xa0\x85 "), b"a");
        assert_eq!(trim_end("aé".as_bytes()), "aé".as_bytes());
        assert_eq!(trim_end(b" \r\n"), b"");
        assert_eq!(trim_start(b" \t a "), b"a ");
        assert_eq!(trim_start("\u{a0}\u{2003}é".as_bytes()), "é".as_bytes());
        assert_eq!(trim_start(b"\xa0\xa0\xe9"), b"\xe9");
    }

    #[test]
    fn decodes_latin_1_when_not_utf_8() {
        assert_eq!(decode(b"caf\xc3\xa9"), "café");
        assert_eq!(decode(b"caf\xe9"), "café");
    }
}
