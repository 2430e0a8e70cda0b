//! The escapes of JavaScript.

use std::borrow::Cow;

/// Resolves the escapes of JavaScript, which are those of JSON and some more.
pub(crate) fn unescaped(text: &str) -> Cow<'_, str> {
    if memchr::memchr(b'\\', text.as_bytes()).is_none() {
        return Cow::Borrowed(text);
    }
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        result.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let Some(letter) = rest.chars().next() else {
            break;
        };
        rest = &rest[letter.len_utf8()..];
        match letter {
            'n' => result.push('\n'),
            't' => result.push('\t'),
            'r' => result.push('\r'),
            'b' | 'f' | 'v' | '0' => result.push(' '),
            'x' => rest = code_unit(rest, 2, &mut result),
            'u' => rest = unicode(rest, &mut result),
            '\n' => {}
            '\r' => rest = rest.strip_prefix('\n').unwrap_or(rest),
            other => result.push(other),
        }
    }
    result.push_str(rest);
    Cow::Owned(result)
}

fn unicode<'a>(rest: &'a str, result: &mut String) -> &'a str {
    if let Some(inside) = rest.strip_prefix('{') {
        let Some((digits, after)) = inside.split_once('}') else {
            return rest;
        };
        let code = u32::from_str_radix(digits, 16)
            .ok()
            .and_then(char::from_u32);
        result.push(code.unwrap_or(char::REPLACEMENT_CHARACTER));
        return after;
    }
    // A character outside the basic plane is two escapes.
    if let Some(high @ 0xD800..0xDC00) = hex(rest, 4)
        && let Some(low @ 0xDC00..0xE000) = rest
            .get(4..)
            .and_then(|rest| rest.strip_prefix("\\u"))
            .and_then(|rest| hex(rest, 4))
    {
        let code = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
        result.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
        return &rest[10..];
    }
    code_unit(rest, 4, result)
}

fn code_unit<'a>(rest: &'a str, digits: usize, result: &mut String) -> &'a str {
    match hex(rest, digits) {
        Some(code) => {
            result.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            &rest[digits..]
        }
        None => rest,
    }
}

fn hex(rest: &str, digits: usize) -> Option<u32> {
    let digits = rest.get(..digits)?;
    digits
        .bytes()
        .all(|byte| byte.is_ascii_hexdigit())
        .then(|| u32::from_str_radix(digits, 16).ok())?
}
