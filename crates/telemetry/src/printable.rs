//! Names from outside, made safe to show.
//!
//! A file name may hold anything but a slash and a NUL: escape sequences that repaint a terminal,
//! newlines that forge a second log line, marks that turn the text around. The result holds none,
//! and two names never look the same: a backslash is doubled.

use std::fmt::Write;

/// Returns the bytes as text on one line, with everything escaped that a terminal would obey or a
/// reader would not see.
pub fn printable(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            push(&mut shown, c);
        }
        for byte in chunk.invalid() {
            write!(shown, "\\x{byte:02x}").expect("a string takes what is written");
        }
    }
    shown
}

/// Returns a text of ours on one line, as [`printable`] does, but leaves a backslash as it is: names and bytes in it were made
/// printable when it was written, and would be escaped twice.
pub fn printable_text(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => shown.push(c),
            c => push(&mut shown, c),
        }
    }
    shown
}

fn push(shown: &mut String, c: char) {
    match c {
        '\\' => shown.push_str("\\\\"),
        '\n' => shown.push_str("\\n"),
        '\r' => shown.push_str("\\r"),
        '\t' => shown.push_str("\\t"),
        _ if is_unsafe(c) => {
            write!(shown, "\\u{{{:x}}}", u32::from(c)).expect("a string takes what is written");
        }
        _ => shown.push(c),
    }
}

/// Whether a character moves the cursor, turns the text around, breaks the line or is not seen.
pub(crate) fn is_unsafe(c: char) -> bool {
    if c.is_control() {
        return true;
    }
    matches!(
        c,
        '\u{ad}'                        // soft hyphen
        | '\u{61c}'                     // Arabic letter mark
        | '\u{115f}'..='\u{1160}'       // Hangul fillers
        | '\u{180b}'..='\u{180f}'       // Mongolian selectors
        | '\u{200b}'..='\u{200f}'       // zero width, left-to-right and right-to-left marks
        | '\u{2028}'..='\u{202e}'       // line and paragraph separators, bidi embeddings, overrides
        | '\u{2060}'..='\u{206f}'       // word joiner, invisible operators, bidi isolates
        | '\u{3164}' | '\u{ffa0}'       // Hangul fillers
        | '\u{fe00}'..='\u{fe0f}'       // variation selectors
        | '\u{feff}'                    // byte order mark
        | '\u{fff9}'..='\u{fffb}'       // interlinear annotation
        | '\u{e000}'..='\u{f8ff}'       // private use: whatever the font says
        | '\u{1d173}'..='\u{1d17a}'     // musical beams
        | '\u{e0000}'..='\u{10ffff}' // tags, selectors, private use
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_was_made_printable_before_is_not_escaped_twice() {
        let name = printable(b"a\\b\x00\xff");
        let text = format!("cannot read {name}:\x1b[2J\n");
        assert_eq!(
            printable_text(&text),
            r"cannot read a\\b\u{0}\xff:\u{1b}[2J\n"
        );
    }

    #[test]
    fn what_a_reader_can_see_stays() {
        for text in [
            "job-7.warc.gz",
            "été, cafe\u{301}",
            "日本語",
            "emoji 🙂",
            "it's \"so\"",
        ] {
            assert_eq!(printable(text.as_bytes()), text);
        }
    }

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        for (bytes, shown) in [
            (&b"a\nb\r\tc"[..], "a\\nb\\r\\tc"),
            (b"\x1b[2J\x07\x00\x7f", "\\u{1b}[2J\\u{7}\\u{0}\\u{7f}"),
            ("\u{9b}31m".as_bytes(), "\\u{9b}31m"),
            ("a\u{202e}gpj.exe".as_bytes(), "a\\u{202e}gpj.exe"),
            ("\u{2066}x\u{2069}".as_bytes(), "\\u{2066}x\\u{2069}"),
            ("a\u{200b}b\u{feff}".as_bytes(), "a\\u{200b}b\\u{feff}"),
            (b"a\xff\xfeb\xc3", "a\\xff\\xfeb\\xc3"),
            (b"\\x1b", "\\\\x1b"),
            (b"", ""),
        ] {
            assert_eq!(printable(bytes), shown);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_become_one_harmless_line(bytes: Vec<u8>) {
            prop_assert!(!printable(&bytes).chars().any(is_unsafe));
        }

        #[test]
        fn two_names_never_look_the_same(one in "(\\\\|x|1|b|\n|\u{1b}|[{}]|u){0,6}", two in "(\\\\|x|1|b|\n|\u{1b}|[{}]|u){0,6}") {
            prop_assert_eq!(one == two, printable(one.as_bytes()) == printable(two.as_bytes()));
        }
    }
}
