//! Percent escapes: resolving them until none is left, and writing the ones a key keeps.
//!
//! Both work on bytes; what the bytes mean is left to the callers.

/// Appends `text` with its percent escapes resolved, again and again until nothing changes.
///
/// One pass is enough: an escape is `%` and two digits, so two escapes never overlap, and the order
/// in which they are resolved cannot matter. `%25` nested a thousand deep costs no more than its length.
pub(crate) fn unescape(text: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    let plain = text
        .iter()
        .position(|&byte| byte == b'%')
        .unwrap_or(text.len());
    out.extend_from_slice(&text[..plain]);
    for &byte in &text[plain..] {
        out.push(byte);
        while let [.., b'%', high, low] = out[start..]
            && let Some(value) = hex_pair(high, low)
        {
            out.truncate(out.len() - 3);
            out.push(value);
        }
    }
}

/// Appends `text` in lower case, with everything a key may not hold escaped.
pub(crate) fn escape_lower(text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    while !rest.is_empty() {
        rest = push_kept_lower(rest, is_kept, out);
        if let Some((&byte, after)) = rest.split_first() {
            push_lower(byte, out);
            rest = after;
        }
    }
}

/// Appends the start of `text` that `is_kept` accepts, in lower case, and returns the rest.
pub(crate) fn push_kept_lower<'a>(
    text: &'a [u8],
    is_kept: impl Fn(u8) -> bool,
    out: &mut Vec<u8>,
) -> &'a [u8] {
    let run = text
        .iter()
        .position(|&byte| !is_kept(byte))
        .unwrap_or(text.len());
    let start = out.len();
    out.extend_from_slice(&text[..run]);
    out[start..].make_ascii_lowercase();
    &text[run..]
}

/// Appends one byte in lower case, escaped if a key may not hold it.
pub(crate) fn push_lower(byte: u8, out: &mut Vec<u8>) {
    if is_kept(byte) {
        out.push(byte.to_ascii_lowercase());
    } else {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let (high, low) = (
            DIGITS[usize::from(byte >> 4)],
            DIGITS[usize::from(byte & 15)],
        );
        out.extend_from_slice(&[b'%', high, low]);
    }
}

/// Tells whether a key holds this byte as it is.
///
/// All that ASCII can print is kept, except `#`, which would start a fragment, and `%` itself.
pub(crate) const fn is_kept(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~') && byte != b'#' && byte != b'%'
}

/// Returns the byte that two hexadecimal digits stand for.
pub(crate) fn hex_pair(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn unescaped(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        unescape(text, &mut out);
        out
    }

    /// One round over the text, left to right, as a reader of the RFC would do it.
    fn one_round(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut rest = text;
        while let Some((&first, tail)) = rest.split_first() {
            match tail {
                [high, low, after @ ..] if first == b'%' && hex_pair(*high, *low).is_some() => {
                    out.extend(hex_pair(*high, *low));
                    rest = after;
                }
                _ => {
                    out.push(first);
                    rest = tail;
                }
            }
        }
        out
    }

    #[test]
    fn resolves_until_nothing_is_left() {
        assert_eq!(unescaped(b"plain"), b"plain");
        assert_eq!(unescaped(b"%41%4a"), b"AJ");
        assert_eq!(unescaped(b"%252525252541"), b"A");
        assert_eq!(unescaped(b"%%34%31"), b"A");
        assert_eq!(unescaped(b"%"), b"%");
        assert_eq!(unescaped(b"%4"), b"%4");
        assert_eq!(unescaped(b"%4g%g4"), b"%4g%g4");
        assert_eq!(unescaped(b"%00%ff"), b"\0\xff");
    }

    #[test]
    fn leaves_what_stood_before_alone() {
        let mut out = b"%4".to_vec();
        unescape(b"1", &mut out);
        assert_eq!(out, b"%41");
    }

    #[test]
    fn escapes_what_a_key_may_not_hold() {
        let mut out = Vec::new();
        escape_lower(b"A b#%\x7f\xc3\xA9~", &mut out);
        assert_eq!(out, b"a%20b%23%25%7f%c3%a9~");
    }

    proptest! {
        #[test]
        fn one_pass_equals_round_after_round(text in "[%%%%2345aAfFg]{0,60}") {
            let mut expected = text.clone().into_bytes();
            loop {
                let next = one_round(&expected);
                if next == expected {
                    break;
                }
                expected = next;
            }
            prop_assert_eq!(unescaped(text.as_bytes()), expected);
        }
    }
}
