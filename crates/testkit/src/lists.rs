//! Source lists of any length, the same whenever they are made: five sources, about 45 % of the lines unique as bytes, one line in
//! ten in a dirty form. Tests and the bench of preload read the same mix.

use std::io::{self, Write};

/// The five sources: name, directory, share of the lines in per mille.
pub const SOURCES: [(&str, &str, u64); 5] = [
    ("afnic", "registry", 480),
    ("known", "register", 400),
    ("registrar", "registrar", 90),
    ("librarians", "selection", 25),
    ("redirects", "redirects", 5),
];

const SYLLABLES: [&str; 32] = [
    "bou", "lan", "ge", "rie", "mar", "ti", "co", "du", "val", "pont", "neuf", "mai", "son", "jar",
    "din", "ville", "sur", "mer", "le", "petit", "grand", "bleu", "roi", "net", "web", "pro",
    "info", "art", "vin", "eau", "sol", "air",
];
/// Last labels, roughly as they were in 2011.
const TLDS: [(&str, u64); 8] = [
    (".fr", 620),
    (".com", 270),
    (".net", 20),
    (".org", 40),
    (".re", 10),
    (".asso.fr", 15),
    (".co.uk", 15),
    (".blogspot.com", 10),
];

/// Mixes a number: neighbours become strangers.
fn mixed(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Appends a clean name.
fn name(number: u64, out: &mut Vec<u8>) {
    let mut dice = mixed(number);
    let mut roll = |sides: u64| {
        let rolled = dice % sides;
        dice /= sides;
        rolled
    };
    if roll(100) < 8 {
        out.extend_from_slice(b"www.");
    }
    let syllables = 2 + roll(3);
    for at in 0..syllables {
        if at > 0 && roll(6) == 0 {
            out.push(b'-');
        }
        out.extend_from_slice(SYLLABLES[roll(32) as usize].as_bytes());
    }
    out.extend_from_slice((number % 100_000).to_string().as_bytes());
    let mut share = mixed(number ^ 0x5bd1_e995) % 1_000;
    for (tld, per_mille) in TLDS {
        if share < per_mille {
            out.extend_from_slice(tld.as_bytes());
            return;
        }
        share -= per_mille;
    }
}

/// Appends line `number` of a mix of `lines`, with its line feed.
fn line(number: u64, lines: u64, out: &mut Vec<u8>) {
    let dice = mixed(number.wrapping_mul(3) + 1);
    let which = dice % (lines * 42 / 100).max(1);
    let start = out.len();
    name(which, out);
    let form = mixed(number ^ 0xc0ff_ee00);
    if form.is_multiple_of(10) {
        dirty(form / 10, start, out);
    }
    out.push(b'\n');
}

/// Makes what was appended a form that people write.
fn dirty(dice: u64, start: usize, out: &mut Vec<u8>) {
    let clean = out.split_off(start);
    let (before, after): (&[u8], &[u8]) = match dice % 24 {
        0 | 1 => (b"http://", b"/"),
        2 | 3 => (b"https://", b""),
        4 => (b"HTTP://", b"/index.html?a=b"),
        5 => (b"https://", b"/blog/2026#top"),
        6 => (b"", b"."),
        7 => (b"  ", b" \r"),
        8 => (b"\"", b"\""),
        9 => (b"http://user:secret@", b"/"),
        10 => (b"", b":8080"),
        11 => (b"https://", b":443/a"),
        12 => ("é-".as_bytes(), b""),
        13 => (b"\xe9t\xe9-", b""),
        14 => (b"xn--cluse-9ra.", b""),
        15 => (b"_dns.", b""),
        16 => (b"", b".."),
        17 => (b"# ", b""),
        18 => (b"javascript:", b""),
        19 => (b"", b"\0"),
        20 => (b"-", b""),
        21 => ("\u{feff}".as_bytes(), b""),
        22 => {
            let upper = clean.to_ascii_uppercase();
            out.extend_from_slice(&upper);
            return;
        }
        _ => {
            let odd: [&[u8]; 8] = [
                b"127.0.0.1",
                b"0x7f.1",
                b"2130706433",
                b"[::1]",
                b"localhost",
                b"",
                b"intranet",
                b"file:///etc/passwd",
            ];
            out.extend_from_slice(odd[(dice / 24 % 8) as usize]);
            return;
        }
    };
    out.extend_from_slice(before);
    out.extend_from_slice(&clean);
    out.extend_from_slice(after);
}

/// Writes the list of source `place`, its part of a mix of `lines`.
///
/// # Errors
/// When it cannot be written.
pub fn write_list(place: usize, lines: u64, out: &mut dyn Write) -> io::Result<()> {
    let before: u64 = SOURCES[..place].iter().map(|source| source.2).sum();
    let (from, to) = (
        lines * before / 1_000,
        lines * (before + SOURCES[place].2) / 1_000,
    );
    let mut block = Vec::with_capacity(1 << 20);
    for number in from..to {
        line(number, lines, &mut block);
        if block.len() >= 1 << 20 {
            out.write_all(&block)?;
            block.clear();
        }
    }
    out.write_all(&block)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_mix_is_what_it_says() {
        let mut all = Vec::new();
        for place in 0..SOURCES.len() {
            write_list(place, 100_000, &mut all).expect("memory takes it");
        }
        let lines: Vec<&[u8]> = all.split(|byte| *byte == b'\n').collect();
        let different: HashSet<&[u8]> = lines.iter().copied().collect();
        assert_eq!(lines.len(), 100_001);
        assert!(
            (42_000..48_000).contains(&different.len()),
            "{} of them differ",
            different.len()
        );
    }
}
