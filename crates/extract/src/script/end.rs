//! Where strings, regular expressions and templates end.

pub(super) fn boundary(text: &str, at: usize) -> usize {
    (at..=text.len())
        .find(|&at| text.is_char_boundary(at))
        .unwrap_or(text.len())
}

pub(super) enum End {
    /// The closing byte is here.
    Closed(usize),
    /// The line ends here, before it was closed.
    Line(usize),
    /// The text ends.
    Open,
}

pub(super) fn string_end(bytes: &[u8], from: usize, quote: u8) -> End {
    let mut at = from;
    while let Some(found) =
        memchr::memchr3(quote, b'\\', b'\n', bytes.get(at..).unwrap_or_default())
    {
        at += found;
        match bytes[at] {
            b'\\' => at += 2,
            b'\n' => return End::Line(at),
            _ => return End::Closed(at),
        }
    }
    End::Open
}

/// Finds the end of a regular expression; a slash in brackets does not end it.
pub(super) fn pattern_end(bytes: &[u8], from: usize) -> End {
    let mut at = from;
    let mut class = false;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            b'[' => class = true,
            b']' => class = false,
            b'\n' | b'\r' => return End::Line(at),
            b'/' if !class => return End::Closed(at),
            _ => {}
        }
        at += 1;
    }
    End::Open
}

pub(super) enum Template {
    Closed(usize),
    Hole(usize),
    Open,
}

pub(super) fn template_end(bytes: &[u8], from: usize) -> Template {
    let mut at = from;
    while let Some(found) = memchr::memchr3(b'`', b'\\', b'$', bytes.get(at..).unwrap_or_default())
    {
        at += found;
        match bytes[at] {
            b'\\' => at += 2,
            b'$' if bytes.get(at + 1) == Some(&b'{') => return Template::Hole(at),
            b'$' => at += 1,
            _ => return Template::Closed(at),
        }
    }
    Template::Open
}
