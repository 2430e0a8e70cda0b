//! The short way for a clean line: most lines of most lists.
//!
//! A line of letters, digits, dots and single hyphens, perhaps with `http://` before it and a path behind, needs no URL parser and no
//! Unicode. Whatever is odd in any way is left to the long way; where this one answers, both answer the same.

use crate::flags::NameFlags;
use crate::host::is_local;

/// What a byte is to the short way.
const LETTER: u8 = 0;
const DOT: u8 = 1;
const END: u8 = 2;
const ODD: u8 = 3;

const CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut classes = [ODD; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' => LETTER,
            b'.' => DOT,
            b'/' | b'?' | b'#' => END,
            _ => ODD,
        };
        byte += 1;
    }
    classes
}

/// Reads a clean line into `name`; none where the long way must look.
pub(crate) fn read(line: &[u8], name: &mut Vec<u8>) -> Option<NameFlags> {
    let line = without_scheme(line.trim_ascii());
    let mut label = 0;
    let mut end = line.len();
    for (at, &byte) in line.iter().enumerate() {
        match CLASSES[usize::from(byte)] {
            LETTER => {}
            DOT => {
                if !is_clean(&line[label..at]) {
                    return None;
                }
                label = at + 1;
            }
            END => {
                end = at;
                break;
            }
            _ => return None,
        }
    }
    // In one piece: byte by byte takes twice as long.
    name.clear();
    name.extend_from_slice(&line[..end]);
    name.make_ascii_lowercase();
    // One dot at the end is the root's.
    if label == name.len() && label > 0 {
        name.pop();
        label = name.iter().rposition(|byte| *byte == b'.')? + 1;
    } else if label == 0 || !is_clean(&name[label..]) {
        return None;
    }
    let last = &name[label..];
    if name.len() > 253 || last[0].is_ascii_digit() || is_local(last) {
        return None;
    }
    let path = &line[end..];
    if !is_plain_path(path) {
        return None;
    }
    let flags = NameFlags::WWW.when(name.starts_with(b"www."));
    Some(flags.with(NameFlags::PATH.when(!matches!(path, b"" | b"/"))))
}

/// Tells whether a label is one that nothing is to be said of.
fn is_clean(label: &[u8]) -> bool {
    match label {
        [] | [b'-', ..] | [.., b'-'] => false,
        [_, _, b'-', b'-', ..] => false,
        label => label.len() <= 63,
    }
}

/// Tells whether a path says no more than that it is there: neither bytes that a URL changes, nor quotes around the line, nor
/// segments such as `/.`, which are none.
fn is_plain_path(path: &[u8]) -> bool {
    let is_plain = |byte: &u8| (0x21..0x7f).contains(byte) && *byte != b'\\';
    path.iter().all(is_plain)
        && !matches!(path.last(), Some(b'"' | b'\'' | b'`'))
        && !path
            .windows(2)
            .any(|pair| matches!(pair, [b'/', b'.' | b'%']))
}

fn without_scheme(line: &[u8]) -> &[u8] {
    // Most lines have none.
    if !matches!(line, [_, _, _, _, b':' | b's' | b'S', ..]) {
        return line;
    }
    for scheme in [&b"http://"[..], b"https://"] {
        if let Some((begin, rest)) = line.split_at_checked(scheme.len())
            && begin.eq_ignore_ascii_case(scheme)
        {
            return rest;
        }
    }
    line
}
