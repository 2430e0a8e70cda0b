//! The short way for a clean line: most lines of most lists.
//!
//! A line of letters, digits, dots, hyphens and underscores, perhaps with `http://` before it and a path behind, needs no URL parser
//! and no Unicode. Sixty-four bytes are looked at together, a bit of a word for each. Whatever is odd in any way, or longer, is left
//! to the long way; where this one answers, both answer the same.

use crate::flags::NameFlags;
use crate::host::is_local;

/// How many bytes are looked at.
const WINDOW: usize = 64;

/// A name that the short way has read; its memory is kept from one to the next.
#[derive(Debug)]
pub(crate) struct CleanName {
    /// The name in lower case, then anything: a label is copied with what follows, which is faster than with its length.
    window: [u8; 2 * WINDOW],
    /// How long the name is.
    length: usize,
    /// Where the dots are.
    dots: u64,
}

impl Default for CleanName {
    fn default() -> Self {
        Self {
            window: [0; 2 * WINDOW],
            length: 0,
            dots: 0,
        }
    }
}

impl CleanName {
    /// Returns the name.
    pub(crate) fn name(&self) -> &[u8] {
        &self.window[..self.length]
    }

    /// Appends the key of the name.
    pub(crate) fn write_key(&self, key: &mut Vec<u8>) {
        let begin = key.len();
        key.reserve(2 * WINDOW);
        let (mut dots, mut end) = (self.dots, self.length);
        while dots != 0 {
            let dot = 63 - dots.leading_zeros() as usize;
            dots ^= 1 << dot;
            self.copy_label(dot + 1, end, key);
            key.push(b',');
            end = dot;
        }
        self.copy_label(0, end, key);
        debug_assert_eq!(key.len() - begin, self.length);
    }

    fn copy_label(&self, from: usize, to: usize, key: &mut Vec<u8>) {
        let begin = key.len();
        if let Some(label) = self.window[from..].first_chunk::<32>()
            && to - from <= 32
        {
            key.extend_from_slice(label);
            key.truncate(begin + to - from);
        } else {
            key.extend_from_slice(&self.window[from..to]);
        }
    }

    /// Reads a clean line, the first `length` bytes of a text; none where the long way must look.
    ///
    /// Where the text goes on behind the line, the line is looked at where it lies. Else it is copied first, and a copy of unknown
    /// length takes longer than to look.
    pub(crate) fn read(&mut self, text: &[u8], length: usize) -> Option<NameFlags> {
        let (before, after) = around(&text[..length]);
        let text = &text[before..];
        let line = &text[..length - before - after];
        let copy;
        let bytes = match text.first_chunk() {
            Some(bytes) => bytes,
            None => {
                copy = padded(line)?;
                &copy
            }
        };
        let marks = match line.len() {
            0..=32 => Marks::of::<32>(bytes, &mut self.window),
            _ => Marks::of::<WINDOW>(bytes, &mut self.window),
        };
        let behind = u64::MAX.checked_shl(line.len() as u32).unwrap_or(0);
        let end = (marks.odd | behind).trailing_zeros() as usize;
        if end >= WINDOW {
            return None;
        }
        let rest = &line[end..];
        let path = rest
            .strip_prefix(b":443")
            .or(rest.strip_prefix(b":80"))
            .unwrap_or(rest);
        if !is_plain_path(path) {
            return None;
        }
        let name = (1 << end) - 1;
        // One dot at the end is the root's.
        let root = marks.dots & (1 << end >> 1);
        self.length = end - usize::from(root != 0);
        self.dots = marks.dots & name & !root;
        // A label begins at the first byte and after a dot; it ends before a dot.
        let begins = self.dots << 1 | 1;
        let ends = (self.dots | 1 << self.length) >> 1;
        let doubled = marks.hyphens & marks.hyphens >> 1 & begins << 2;
        if self.dots == 0 || (self.dots | 1 << self.length) & begins != 0 {
            return None;
        }
        if doubled != 0 && self.has_ascii_form(doubled) {
            return None;
        }
        let last = &self.window[64 - self.dots.leading_zeros() as usize..self.length];
        if last[0].is_ascii_digit() || is_local(last) {
            return None;
        }
        let is_odd = (marks.hyphens & (begins | ends) | doubled) & name != 0;
        let flags = NameFlags::WWW
            .when(self.name().starts_with(b"www."))
            .with(NameFlags::HYPHENS.when(is_odd))
            .with(NameFlags::UNDERSCORE.when(marks.underscores & name != 0))
            .with(NameFlags::PATH.when(!matches!(path, b"" | b"/")));
        Some(flags)
    }

    /// Tells whether one of the labels with two hyphens after two letters is an international one.
    fn has_ascii_form(&self, mut doubled: u64) -> bool {
        while doubled != 0 {
            let hyphen = doubled.trailing_zeros() as usize;
            if &self.window[hyphen - 2..hyphen] == b"xn" {
                return true;
            }
            doubled &= doubled - 1;
        }
        false
    }
}

/// What each byte of a window is, a bit for each.
struct Marks {
    dots: u64,
    hyphens: u64,
    underscores: u64,
    /// What cannot stand in a name of the short way.
    odd: u64,
}

impl Marks {
    /// Looks at the first bytes of a line, and writes them in lower case.
    ///
    /// Written so that the compiler makes vectors of it.
    fn of<const BYTES: usize>(line: &[u8; WINDOW], window: &mut [u8; 2 * WINDOW]) -> Self {
        let (mut dots, mut hyphens) = ([0; BYTES], [0; BYTES]);
        let (mut underscores, mut odd) = ([0; BYTES], [0; BYTES]);
        for at in 0..BYTES {
            let byte = line[at];
            let lower = byte | u8::from(byte.wrapping_sub(b'A') < 26) << 5;
            window[at] = lower;
            dots[at] = u8::from(lower == b'.');
            hyphens[at] = u8::from(lower == b'-');
            underscores[at] = u8::from(lower == b'_');
            let is_plain = lower.wrapping_sub(b'a') < 26 || lower.wrapping_sub(b'0') < 10;
            odd[at] = u8::from(!is_plain) & (1 ^ dots[at] ^ hyphens[at] ^ underscores[at]);
        }
        Self {
            dots: bits(&dots),
            hyphens: bits(&hyphens),
            underscores: bits(&underscores),
            odd: bits(&odd),
        }
    }
}

/// Copies a line that nothing follows; none where it is longer than the window.
fn padded(line: &[u8]) -> Option<[u8; WINDOW]> {
    let mut padded = [0; WINDOW];
    padded.get_mut(..line.len())?.copy_from_slice(line);
    Some(padded)
}

/// Makes a bit of each byte, which is 0 or 1.
fn bits<const BYTES: usize>(bytes: &[u8; BYTES]) -> u64 {
    let mut bits = 0;
    let (groups, _) = bytes.as_chunks::<8>();
    for (at, group) in groups.iter().enumerate() {
        // Each byte comes to stand in the highest byte, one bit above the one before.
        let gathered = u64::from_le_bytes(*group).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        bits |= gathered << (8 * at);
    }
    bits
}

/// Returns how much stands before and after a name, of what stands there most often; the long way knows more of it.
fn around(line: &[u8]) -> (usize, usize) {
    let is_around = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\r' | b'"' | b'\'' | b'`');
    let mark = match line {
        [0xef, 0xbb, 0xbf, ..] => 3,
        _ => 0,
    };
    let before = mark + line[mark..].iter().take_while(is_around).count();
    let line = &line[before..];
    let after = line.iter().rev().take_while(is_around).count();
    (before + scheme_bytes(&line[..line.len() - after]), after)
}

/// Tells whether a path says no more than that it is there: it begins as one, and has neither bytes that a URL changes nor segments
/// such as `/.`, which are none.
fn is_plain_path(path: &[u8]) -> bool {
    let is_plain = |byte: &u8| (0x21..0x7f).contains(byte) && *byte != b'\\';
    matches!(path, [] | [b'/' | b'?' | b'#', ..])
        && path.iter().all(is_plain)
        && !path
            .windows(2)
            .any(|pair| matches!(pair, [b'/', b'.' | b'%']))
}

/// Returns how long the scheme of a line is, with its slashes.
fn scheme_bytes(line: &[u8]) -> usize {
    // Most lines have none.
    if !matches!(line, [_, _, _, _, b':' | b's' | b'S', ..]) {
        return 0;
    }
    let begins = |scheme: &&&[u8]| {
        line.get(..scheme.len())
            .is_some_and(|begin| begin.eq_ignore_ascii_case(scheme))
    };
    let schemes: [&[u8]; 2] = [b"http://", b"https://"];
    schemes.iter().find(begins).map_or(0, |scheme| scheme.len())
}
