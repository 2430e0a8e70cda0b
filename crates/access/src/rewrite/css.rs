//! Style sheets: `url(…)` and `@import`.

use crate::replay_address::ReplayAddress;

/// Rewrites a style sheet. Everything that matters is ASCII, so bytes of any character set pass as they are.
pub(super) fn rewrite(sheet: &[u8], address: &ReplayAddress<'_>) -> Vec<u8> {
    rewrite_with(sheet, &|link, modifier| address.rewritten(link, modifier))
}

/// Rewrites a style sheet with a given way to rewrite a link.
pub(super) fn rewrite_with(sheet: &[u8], link: &dyn Fn(&str, &str) -> String) -> Vec<u8> {
    let mut out = Vec::with_capacity(sheet.len() + sheet.len() / 8);
    let mut rest = sheet;
    while let Some(&byte) = rest.first() {
        let (kept, after) = match byte {
            b'/' if rest.starts_with(b"/*") => {
                let end = find(&rest[2..], b"*/").map_or(rest.len(), |at| at + 4);
                (&rest[..end], &rest[end..])
            }
            b'"' | b'\'' => {
                let end = string_end(rest);
                (&rest[..end], &rest[end..])
            }
            b'u' | b'U' if has_start(rest, b"url(") && !ends_in_name(&out) => {
                rest = rewrite_url(rest, link, &mut out);
                continue;
            }
            b'@' if has_start(rest, b"@import") => {
                rest = rewrite_import(rest, link, &mut out);
                continue;
            }
            _ => rest.split_at(1),
        };
        out.extend_from_slice(kept);
        rest = after;
    }
    out
}

fn has_start(text: &[u8], start: &[u8]) -> bool {
    text.len() >= start.len() && text[..start.len()].eq_ignore_ascii_case(start)
}

/// Says whether what was written ends within a name, such as `my-url(`.
fn ends_in_name(out: &[u8]) -> bool {
    out.last()
        .is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|part| part == wanted)
}

/// Returns where a string ends, its quotation mark included; a line end ends it too.
fn string_end(text: &[u8]) -> usize {
    let mark = text[0];
    let mut at = 1;
    while at < text.len() {
        match text[at] {
            b'\\' => at += 2,
            b'\n' => return at,
            byte if byte == mark => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

/// Rewrites `url(…)` at the beginning of a text; returns what follows.
fn rewrite_url<'t>(
    text: &'t [u8],
    link: &dyn Fn(&str, &str) -> String,
    out: &mut Vec<u8>,
) -> &'t [u8] {
    out.extend_from_slice(&text[..4]);
    let rest = &text[4..];
    let blank = rest
        .iter()
        .position(|b| !b.is_ascii_whitespace())
        .unwrap_or(rest.len());
    let rest = &rest[blank..];
    match rest.first() {
        Some(b'"' | b'\'') => {
            let end = string_end(rest);
            put_string(&rest[..end], link, "oe_", out);
            &rest[end..]
        }
        _ => {
            let end = rest.iter().position(|b| *b == b')').unwrap_or(rest.len());
            let url = &rest[..end];
            match str::from_utf8(url) {
                Ok(url) if !url.contains('\\') => {
                    let to = link(url.trim(), "oe_");
                    // Within bare brackets none of these may stand.
                    let to = to.replace('(', "%28").replace(')', "%29");
                    out.extend_from_slice(to.replace(' ', "%20").as_bytes());
                }
                _ => out.extend_from_slice(url),
            }
            &rest[end..]
        }
    }
}

/// Rewrites a string with its quotation marks.
fn put_string(
    string: &[u8],
    link: &dyn Fn(&str, &str) -> String,
    modifier: &str,
    out: &mut Vec<u8>,
) {
    let mark = string[0];
    let is_closed = string.len() > 1 && string.last() == Some(&mark);
    let inner = &string[1..string.len() - usize::from(is_closed)];
    out.push(mark);
    match str::from_utf8(inner) {
        Ok(url) if !url.contains('\\') => {
            let to = link(url, modifier);
            let escaped = to.replace('"', "%22").replace('\'', "%27");
            out.extend_from_slice(escaped.as_bytes());
        }
        _ => out.extend_from_slice(inner),
    }
    if is_closed {
        out.push(mark);
    }
}

/// Rewrites `@import` and the string after it; one with `url(…)` is left to that.
fn rewrite_import<'t>(
    text: &'t [u8],
    link: &dyn Fn(&str, &str) -> String,
    out: &mut Vec<u8>,
) -> &'t [u8] {
    let word = b"@import".len();
    let rest = &text[word..];
    let blank = rest
        .iter()
        .position(|b| !b.is_ascii_whitespace())
        .unwrap_or(rest.len());
    out.extend_from_slice(&text[..word + blank]);
    let rest = &rest[blank..];
    match rest.first() {
        Some(b'"' | b'\'') => {
            let end = string_end(rest);
            put_string(&rest[..end], link, "cs_", out);
            &rest[end..]
        }
        _ => rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(sheet: &str) -> String {
        let link = |link: &str, modifier: &str| match link.starts_with("data:") {
            true => link.to_owned(),
            false => format!("/{modifier}/{link}"),
        };
        String::from_utf8(rewrite_with(sheet.as_bytes(), &link)).unwrap()
    }

    #[test]
    fn links_of_a_sheet_are_rewritten() {
        for (sheet, expected) in [
            ("a{b:url(x.png)}", "a{b:url(/oe_/x.png)}"),
            ("a{b:URL( 'x.png' )}", "a{b:URL('/oe_/x.png' )}"),
            (
                "a{b:url(\"x.png\") no-repeat}",
                "a{b:url(\"/oe_/x.png\") no-repeat}",
            ),
            ("@import 'x.css' screen;", "@import '/cs_/x.css' screen;"),
            ("@import url(x.css);", "@import url(/oe_/x.css);"),
            (
                "a{b:url(data:image/png;base64,AA==)}",
                "a{b:url(data:image/png;base64,AA==)}",
            ),
            ("/* url(x) */a", "/* url(x) */a"),
            ("a::after{content:'url(x)'}", "a::after{content:'url(x)'}"),
            ("a{b:my-url(x)}", "a{b:my-url(x)}"),
            ("a{b:url(x", "a{b:url(/oe_/x"),
            ("a{b:url('x", "a{b:url('/oe_/x"),
            ("a{content:'\\'", "a{content:'\\'"),
        ] {
            assert_eq!(rewritten(sheet), expected);
        }
    }

    #[test]
    fn bytes_of_another_character_set_pass() {
        let sheet = b"a{content:'\xe9'} b{c:url(\xe9.png)}";
        assert_eq!(rewrite_with(sheet, &|link, _| link.to_owned()), sheet);
    }
}
