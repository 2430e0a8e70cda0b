//! Keeps hostile text inside its field.
//!
//! A field of a log has no blank, no control character and no end of line in it, whatever it was made of. What cannot
//! stand there is written as `%` and two hexadecimal digits for each byte of its UTF-8. A `%` stays a `%`: a URL that
//! comes escaped is shown as it is.

use std::fmt::Write;

/// Puts a URL, or what else is ASCII by its nature: everything but visible ASCII is escaped. Nothing becomes `-`.
pub(crate) fn put_url(out: &mut String, text: &str) {
    put(out, text, |character| character.is_ascii_graphic());
}

/// Puts a word of any language: letters and digits stay. Nothing becomes `-`.
pub(crate) fn put_word(out: &mut String, text: &str) {
    put(out, text, is_plain);
}

/// Puts one of several words that commas part.
pub(crate) fn put_item(out: &mut String, text: &str) {
    put(out, text, |character| {
        character != ',' && is_plain(character)
    });
}

/// Puts the rest of a line: words with blanks between them.
pub(crate) fn put_phrase(out: &mut String, text: &str) {
    put(out, text.trim(), |character| {
        character == ' ' || is_plain(character)
    });
}

/// Returns a word as [`put_word`] puts it.
pub(crate) fn word(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    put_word(&mut out, text);
    out
}

/// Returns a URL as [`put_url`] puts it.
pub(crate) fn url(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    put_url(&mut out, text);
    out
}

/// Returns a phrase as [`put_phrase`] puts it.
pub(crate) fn phrase(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    put_phrase(&mut out, text);
    out
}

/// Returns at most `bytes` of a text, whole characters.
pub(crate) fn shortened(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// Outside ASCII only letters and digits are harmless: the rest has blanks, ends of lines and turns of direction.
fn is_plain(character: char) -> bool {
    character.is_ascii_graphic() || (!character.is_ascii() && character.is_alphanumeric())
}

fn put(out: &mut String, text: &str, is_kept: impl Fn(char) -> bool) {
    if text.is_empty() {
        out.push('-');
        return;
    }
    for character in text.chars() {
        if is_kept(character) {
            out.push(character);
        } else {
            let mut bytes = [0; 4];
            for byte in character.encode_utf8(&mut bytes).bytes() {
                write!(out, "%{byte:02X}").expect("a String takes everything");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn blanks_and_controls_are_escaped() {
        assert_eq!(url("http://a/b c\r\n\td\0"), "http://a/b%20c%0D%0A%09d%00");
        assert_eq!(url("http://a/%20é"), "http://a/%20%C3%A9");
        assert_eq!(url(""), "-");
        assert_eq!(word("Élections 2027"), "Élections%202027");
        assert_eq!(
            word("a\u{2028}b\u{a0}c\u{202e}d\u{85}e\u{7f}"),
            "a%E2%80%A8b%C2%A0c%E2%80%AEd%C2%85e%7F"
        );
        assert_eq!(phrase(" no route\nto host "), "no route%0Ato host");
        assert_eq!(phrase("  "), "-");
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(shortened("éé", 3), "é");
        assert_eq!(shortened("ab", 5), "ab");
    }

    proptest! {
        #[test]
        fn a_word_is_one_word(text in any::<String>()) {
            for shown in [url(&text), word(&text)] {
                prop_assert_eq!(shown.split_whitespace().count(), 1);
                prop_assert!(!shown.chars().any(char::is_control));
            }
            prop_assert_eq!(phrase(&text).lines().count(), 1);
        }
    }
}
