//! International host names by IDNA 2003 (RFC 3490, 3491, 3492), as Python's `idna` codec has it.
//!
//! Keys must stay what they were when the first index was written, so neither IDNA 2008 nor a newer Unicode
//! will do: names are prepared with the tables of Unicode 3.2, and letters that came later keep the lower case
//! they had when the peer was fixed. A test holds a checksum over all code points against an upgrade that
//! would quietly change keys.

use stringprep::tables;
use unicode_normalization::char::{canonical_combining_class, compose, decompose_compatible};

/// The longest label DNS can carry.
const LABEL_BYTES: usize = 63;

/// Returns `host` with every label in ASCII, or `None` when a label cannot be written so.
///
/// The caller keeps the host as it was in that case, so why it failed does not matter.
pub(crate) fn to_ascii(host: &str) -> Option<Vec<u8>> {
    if host.is_ascii() {
        return ascii_labels_fit(host).then(|| host.as_bytes().to_vec());
    }
    let mut labels: Vec<&str> = host
        .split(['.', '\u{3002}', '\u{ff0e}', '\u{ff61}'])
        .collect();
    let rooted = labels.last().is_some_and(|label| label.is_empty());
    if rooted {
        labels.pop();
    }
    let mut ascii = Vec::with_capacity(host.len() + 8);
    for label in labels {
        if !ascii.is_empty() {
            ascii.push(b'.');
        }
        label_to_ascii(label, &mut ascii)?;
    }
    if rooted {
        ascii.push(b'.');
    }
    Some(ascii)
}

fn ascii_labels_fit(host: &str) -> bool {
    let mut labels = host.rsplit('.');
    labels.next().is_none_or(|last| last.len() <= LABEL_BYTES)
        && labels.all(|label| (1..=LABEL_BYTES).contains(&label.len()))
}

fn label_to_ascii(label: &str, out: &mut Vec<u8>) -> Option<()> {
    let start = out.len();
    if label.is_ascii() {
        out.extend_from_slice(label.as_bytes());
    } else {
        let prepared = nameprep(label)?;
        if prepared.iter().all(char::is_ascii) {
            out.extend(prepared.iter().map(|&c| c as u8));
        } else if prepared.starts_with(&['x', 'n', '-', '-']) || prepared.len() > LABEL_BYTES - 4 {
            // Each character costs a byte at least, so the longer ones need not be encoded to be refused.
            return None;
        } else {
            out.extend_from_slice(b"xn--");
            punycode(&prepared, out);
        }
    }
    (1..=LABEL_BYTES)
        .contains(&(out.len() - start))
        .then_some(())
}

/// Prepares one label: fold, normalise, refuse (RFC 3491).
fn nameprep(label: &str) -> Option<Vec<char>> {
    let mut folded = Vec::with_capacity(label.len());
    for c in label
        .chars()
        .filter(|&c| !tables::commonly_mapped_to_nothing(c))
    {
        fold(c, &mut folded);
    }
    let prepared = normalize(&folded);
    if prepared.iter().any(|&c| is_prohibited(c)) {
        return None;
    }
    let right_to_left = |c: &char| is_assigned(*c) && tables::bidi_r_or_al(*c);
    if prepared.iter().any(right_to_left) {
        let ends = [prepared.first(), prepared.last()];
        let framed = ends.into_iter().flatten().all(right_to_left);
        if !framed || prepared.iter().any(|&c| is_left_to_right(c)) {
            return None;
        }
    }
    Some(prepared)
}

/// Appends the folded form of `c`: table B.2, and for what it does not list, the lower case.
///
/// Python takes the lower case from its own, newer Unicode, so letters younger than 3.2 are folded too.
fn fold(c: char, out: &mut Vec<char>) {
    let start = out.len();
    out.extend(tables::case_fold_for_nfkc(c));
    if out[start..] == [c] && !is_cased_since_unicode_16(c) {
        out.truncate(start);
        for lower in c.to_lowercase() {
            out.extend(tables::case_fold_for_nfkc(lower));
        }
    }
}

/// Tells whether Python 3.11 to 3.13 (Unicode 14 to 15.1) know no lower case for `c`, but this toolchain does.
fn is_cased_since_unicode_16(c: char) -> bool {
    matches!(
        c,
        '\u{1c89}'
            | '\u{a7cb}'
            | '\u{a7cc}'
            | '\u{a7ce}'
            | '\u{a7d2}'
            | '\u{a7d4}'
            | '\u{a7da}'
            | '\u{a7dc}'
            | '\u{10d50}'..='\u{10d65}'
            | '\u{16ea0}'..='\u{16eb8}'
    )
}

/// Returns the NFKC form by the decompositions of Unicode 3.2.
fn normalize(text: &[char]) -> Vec<char> {
    let mut decomposed = Vec::with_capacity(text.len());
    for &c in text {
        match decomposition_before_corrigendum(c) {
            Some(old) => decomposed.push(old),
            None if is_assigned(c) => decompose_compatible(c, |part| decomposed.push(part)),
            None => decomposed.push(c),
        }
    }
    for marks in decomposed.chunk_by_mut(|_, &next| canonical_combining_class(next) != 0) {
        let base = usize::from(canonical_combining_class(marks[0]) == 0);
        marks[base..].sort_by_key(|&mark| canonical_combining_class(mark));
    }
    compose_all(&decomposed)
}

/// Joins bases and marks (UAX 15), reading marks that are already in order.
fn compose_all(decomposed: &[char]) -> Vec<char> {
    let mut out: Vec<char> = Vec::with_capacity(decomposed.len());
    let mut base: Option<usize> = None;
    let mut last_class = 0;
    for &c in decomposed {
        let class = canonical_combining_class(c);
        if let Some(at) = base {
            // A mark is blocked by an earlier one of its class or a higher; a base by anything in between.
            let adjacent = at + 1 == out.len();
            if (adjacent || (last_class != 0 && last_class < class))
                && let Some(joined) = compose(out[at], c)
            {
                out[at] = joined;
                continue;
            }
        }
        if class == 0 {
            base = Some(out.len());
        }
        last_class = class;
        out.push(c);
    }
    out
}

/// Returns the five mappings that Unicode 3.2 had wrong and Corrigendum 4 mended later.
fn decomposition_before_corrigendum(c: char) -> Option<char> {
    match c {
        '\u{2f868}' => Some('\u{2136a}'),
        '\u{2f874}' => Some('\u{5f33}'),
        '\u{2f91f}' => Some('\u{43ab}'),
        '\u{2f95f}' => Some('\u{7aae}'),
        '\u{2f9bf}' => Some('\u{4d57}'),
        _ => None,
    }
}

fn is_assigned(c: char) -> bool {
    !tables::unassigned_code_point(c)
}

fn is_prohibited(c: char) -> bool {
    tables::non_ascii_space_character(c)
        || tables::non_ascii_control_character(c)
        || tables::private_use(c)
        || tables::non_character_code_point(c)
        || tables::inappropriate_for_plain_text(c)
        || tables::inappropriate_for_canonical_representation(c)
        || tables::change_display_properties_or_deprecated(c)
        || tables::tagging_character(c)
}

/// Tells whether Unicode 3.2 gave `c` the direction L, which some characters have gained or lost since.
fn is_left_to_right(c: char) -> bool {
    match c {
        '\u{17b4}' | '\u{17b5}' | '\u{1885}' | '\u{1886}' => true,
        // Bold, italic and sans-serif nabla and partial differential.
        '\u{1d6c1}' | '\u{1d6db}' | '\u{1d6fb}' | '\u{1d715}' | '\u{1d735}' => true,
        '\u{1d74f}' | '\u{1d76f}' | '\u{1d789}' | '\u{1d7a9}' | '\u{1d7c3}' => true,
        '\u{0cbf}' | '\u{0cc6}' | '\u{1734}' | '\u{2132}' | '\u{302e}' | '\u{302f}' => false,
        '\u{2800}'..='\u{28ff}' => false,
        _ => is_assigned(c) && tables::bidi_l(c),
    }
}

/// Appends `label` in Punycode (RFC 3492). Fewer than 64 characters come here, so nothing can overflow.
fn punycode(label: &[char], out: &mut Vec<u8>) {
    out.extend(label.iter().filter(|c| c.is_ascii()).map(|&c| c as u8));
    let basic = label.iter().filter(|c| c.is_ascii()).count();
    if basic > 0 {
        out.push(b'-');
    }
    let (mut handled, mut delta, mut bias, mut current) = (basic, 0_u32, 72, 0x80_u32);
    while handled < label.len() {
        let points = label.iter().map(|&c| u32::from(c));
        let Some(next) = points.clone().filter(|&point| point >= current).min() else {
            break;
        };
        delta += (next - current) * (handled as u32 + 1);
        current = next;
        for point in points {
            if point < current {
                delta += 1;
            } else if point == current {
                push_variable_length(delta, bias, out);
                bias = adapt(delta, handled as u32 + 1, handled == basic);
                delta = 0;
                handled += 1;
            }
        }
        delta += 1;
        current += 1;
    }
}

fn push_variable_length(delta: u32, bias: u32, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut rest = delta;
    let mut weight = 36;
    loop {
        let threshold = (weight - weight.min(bias)).clamp(1, 26);
        if rest < threshold {
            out.push(DIGITS[rest as usize]);
            return;
        }
        let span = 36 - threshold;
        out.push(DIGITS[(threshold + (rest - threshold) % span) as usize]);
        rest = (rest - threshold) / span;
        weight += 36;
    }
}

fn adapt(delta: u32, points: u32, first: bool) -> u32 {
    let mut delta = if first { delta / 700 } else { delta / 2 };
    delta += delta / points;
    let mut bias = 0;
    while delta > 455 {
        delta /= 35;
        bias += 36;
    }
    bias + 36 * delta / (delta + 38)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ascii(host: &str) -> Option<String> {
        to_ascii(host).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn encodes_what_idna_2003_allows() {
        let cases = [
            ("écluse.example", "xn--cluse-9ra.example"),
            ("straße.example", "strasse.example"),
            ("Ünïcode.example.", "xn--ncode-cta3g.example."),
            ("点.example。test", "xn--3px.example.test"),
            ("ＡＢＣ.example", "abc.example"),
            ("한글.kr", "xn--bj0bj06e.kr"),
            ("\u{1112}\u{1161}\u{11ab}.kr", "xn--6q8b.kr"),
            ("e\u{301}.fr", "xn--9ca.fr"),
            ("a\u{ad}é", "xn--a-bga"),
            ("אב.il", "xn--4dbc.il"),
            ("a\u{2024}é", "xn--a.-cja"),
            ("😀.la", "xn--e28h.la"),
        ];
        for (host, expected) in cases {
            assert_eq!(ascii(host).as_deref(), Some(expected), "{host}");
        }
    }

    #[test]
    fn refuses_what_idna_2003_refuses() {
        let long = "é".repeat(60);
        let overlong = "a".repeat(64) + ".é";
        let refused = [
            "é..example",
            ".é",
            "\u{ad}.é",
            "\u{e000}.example",
            "t\u{fffd}.example",
            "xn--é.example",
            "אa.example",
            "א1.example",
            &long,
            &overlong,
        ];
        for host in refused {
            assert_eq!(ascii(host), None, "{host}");
        }
    }

    #[test]
    fn ascii_hosts_pass_if_their_labels_fit() {
        assert_eq!(ascii("").as_deref(), Some(""));
        assert_eq!(ascii("a.b.").as_deref(), Some("a.b."));
        assert_eq!(ascii("a..b"), None);
        assert_eq!(ascii(&"a".repeat(64)), None);
    }

    #[test]
    fn marks_are_put_in_order_and_joined_unless_blocked() {
        let cases = [
            ("s\u{307}\u{323}", "\u{1e69}"),
            (
                "a\u{315}\u{300}\u{5ae}\u{300}",
                "\u{e0}\u{5ae}\u{300}\u{315}",
            ),
            // The second mark has the class of the first, which did not join: it is blocked.
            (
                "x\u{301}\u{300}a\u{304}\u{300}",
                "x\u{301}\u{300}\u{101}\u{300}",
            ),
            ("b\u{304}\u{307}", "b\u{304}\u{307}"),
            ("\u{301}a", "\u{301}a"),
            (
                "\u{1100}\u{1161}\u{11a8}\u{1100}\u{1161}\u{11a7}",
                "\u{ac01}\u{ac00}\u{11a7}",
            ),
            ("\u{2f868}\u{fb01}\u{1f100}", "\u{2136a}fi\u{1f100}"),
        ];
        for (text, expected) in cases {
            let text: Vec<char> = text.chars().collect();
            assert_eq!(normalize(&text).into_iter().collect::<String>(), expected);
        }
    }

    /// The sum was made with Python 3.11: FNV-1a over the NFKC of table B.2, and the three properties, of every code point.
    #[test]
    fn tables_are_those_of_the_peer() {
        let mut sum = 0xcbf2_9ce4_8422_2325_u64;
        let mut add = |byte: u8| sum = (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        for c in '\0'..=char::MAX {
            let mut folded = Vec::new();
            if !tables::commonly_mapped_to_nothing(c) {
                fold(c, &mut folded);
            }
            let prepared: String = normalize(&folded).into_iter().collect();
            let prohibited = is_prohibited(c);
            let right = !prohibited && is_assigned(c) && tables::bidi_r_or_al(c);
            let left = !prohibited && is_left_to_right(c);
            let flags = u8::from(prohibited) | u8::from(right) << 1 | u8::from(left) << 2;
            prepared.bytes().for_each(&mut add);
            add(0xf8 | flags);
        }
        assert_eq!(sum, 0xd79e_9423_235c_09fd);
    }
}
