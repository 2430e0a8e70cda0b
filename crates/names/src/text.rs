//! The text of a line: decoded, and without what people and programs put around a name.

use std::borrow::Cow;

/// Decodes a line: UTF-8, or Latin-1 where it is none. Tells which.
pub(crate) fn decode(line: &[u8]) -> (Cow<'_, str>, bool) {
    match std::str::from_utf8(line) {
        Ok(text) => (Cow::Borrowed(text), false),
        Err(_) => {
            let text = line.iter().map(|byte| char::from(*byte)).collect();
            (Cow::Owned(text), true)
        }
    }
}

/// Takes white space, byte order marks, zero-width characters and quotes from both ends.
pub(crate) fn trim(text: &str) -> &str {
    text.trim_matches(is_around)
}

fn is_around(c: char) -> bool {
    // The byte order mark of UTF-8 read as Latin-1 is three letters; such a line is no UTF-8 elsewhere.
    c.is_whitespace()
        || matches!(
            c,
            '\u{feff}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{180e}'
                | '"' | '\'' | '`' | '\u{ab}' | '\u{bb}' | '\u{2018}'..='\u{201f}'
        )
}

/// Tells whether a trimmed line is a remark. A line that begins with `//` and a name is a URL without its scheme.
pub(crate) fn is_comment(text: &str) -> bool {
    text.starts_with(['#', ';']) || text.starts_with("// ")
}

/// Tells whether a trimmed line has a character that is none.
pub(crate) fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}

/// Returns the scheme of a line, and what follows its colon.
///
/// `exemple.fr:8080` and `localhost:80/x` have a port and no scheme: what WHATWG would call a scheme there is a host.
pub(crate) fn scheme_of(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let is_scheme_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    if !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) || !scheme.chars().all(is_scheme_char)
    {
        return None;
    }
    if rest.starts_with("//") {
        return Some((scheme, rest));
    }
    let port = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let is_port = port.bytes().all(|byte| byte.is_ascii_digit());
    (!is_port && !scheme.contains('.')).then_some((scheme, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_no_scheme() {
        for (text, scheme) in [
            ("http://a.fr", Some("http")),
            ("javascript:alert(1)", Some("javascript")),
            ("mailto:a@b.fr", Some("mailto")),
            ("urn:isbn:1", Some("urn")),
            ("a.fr:80", None),
            ("a.fr:", None),
            ("a.fr:x", None),
            ("localhost:8080/x", None),
            ("user:secret@a.fr", Some("user")),
            ("a.fr/b:c", None),
            ("1a:b", None),
            ("svn+ssh://a.fr", Some("svn+ssh")),
            ("tel:112", None),
        ] {
            assert_eq!(scheme_of(text).map(|found| found.0), scheme, "{text}");
        }
    }

    #[test]
    fn what_stands_around_a_name_goes() {
        for text in [
            "\u{feff} \"a.fr\" ",
            "«\u{a0}a.fr\u{a0}»",
            "\u{200b}a.fr\u{2060}",
            "'a.fr'\r",
            "“a.fr”",
        ] {
            assert_eq!(trim(text), "a.fr", "{text:?}");
        }
    }
}
