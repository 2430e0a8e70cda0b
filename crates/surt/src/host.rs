//! Brings a host into the form a key has, and turns it round.
//!
//! It covers unescaping, international names, the odd forms of IPv4 addresses and the `www` in front.
//! IPv6 addresses and anything else come through as text.

use std::net::Ipv4Addr;

use crate::SurtError;
use crate::escape::{escape_lower, unescape};
use crate::idna;
use crate::split::DIGITS_AT_MOST;

/// Returns the canonical host, which is empty if nothing of it is left.
pub(crate) fn canonical(host: &[u8]) -> Result<Vec<u8>, SurtError> {
    let mut name = Vec::with_capacity(host.len());
    unescape(host, &mut name);
    if !name.is_ascii() {
        let readable: String = name.utf8_chunks().map(|chunk| chunk.valid()).collect();
        // A name that IDNA refuses keeps its bytes, the unreadable ones too, and is escaped below.
        if let Some(ascii) = idna::to_ascii(&readable) {
            name = ascii;
        }
    }
    halve_double_dots(&mut name);
    let name = trim_dots(&name);
    if let Some(address) = ipv4(name)? {
        return Ok(address.to_string().into_bytes());
    }
    let mut canonical = Vec::with_capacity(name.len());
    escape_lower(name, &mut canonical);
    Ok(canonical)
}

/// Returns `host`, which is in lower case, without a leading `www.`, `www1.`, `www23.` …
pub(crate) fn without_www(host: &[u8]) -> &[u8] {
    let Some(rest) = host.strip_prefix(b"www") else {
        return host;
    };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    rest[digits..].strip_prefix(b".").unwrap_or(host)
}

/// Appends the labels of `host`, last label first, between commas.
pub(crate) fn push_reversed(host: &[u8], key: &mut Vec<u8>) {
    for (at, label) in host.rsplit(|&byte| byte == b'.').enumerate() {
        if at > 0 {
            key.push(b',');
        }
        key.extend_from_slice(label);
    }
}

/// Puts one dot for each two. Once only: of four dots two remain, as they do in the peer.
fn halve_double_dots(name: &mut Vec<u8>) {
    let mut after_dot = false;
    name.retain(|&byte| {
        let second = after_dot && byte == b'.';
        after_dot = byte == b'.' && !second;
        !second
    });
}

fn trim_dots(name: &[u8]) -> &[u8] {
    let start = name.iter().take_while(|&&byte| byte == b'.').count();
    let end = name
        .iter()
        .rposition(|&byte| byte != b'.')
        .map_or(start, |last| last + 1);
    &name[start..end]
}

/// Reads the forms of an IPv4 address that the peer recognises.
///
/// One number is taken modulo 2³², however long. Two to four numbers go to the resolver in the peer,
/// which reads them as `inet_aton` does or, when it cannot, asks DNS; that a name of digits resolves is not foreseen here.
fn ipv4(name: &[u8]) -> Result<Option<Ipv4Addr>, SurtError> {
    let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    if is_number(name) {
        if name.len() > DIGITS_AT_MOST {
            return Err(SurtError::HostNumberTooLong { digits: name.len() });
        }
        let bits = name.iter().fold(0_u32, |bits, digit| {
            bits.wrapping_mul(10).wrapping_add(u32::from(digit - b'0'))
        });
        return Ok(Some(Ipv4Addr::from_bits(bits)));
    }
    let octal = name.first() == Some(&b'0');
    let fits = |part: &[u8]| is_number(part) && !(octal && part.iter().any(|&digit| digit > b'7'));
    let parts = name.split(|&byte| byte == b'.');
    let well_formed = parts.clone().count() <= 4 && parts.clone().all(fits);
    Ok(if well_formed {
        inet_aton(parts.collect())
    } else {
        None
    })
}

/// Joins two to four numbers: each is a byte, and the last fills what remains.
fn inet_aton(parts: Vec<&[u8]>) -> Option<Ipv4Addr> {
    let numbers: Vec<u32> = parts.into_iter().map(c_number).collect::<Option<_>>()?;
    let (&last, leading) = numbers.split_last()?;
    let mut bits = 0;
    for (at, &number) in leading.iter().enumerate() {
        bits |= u32::from(u8::try_from(number).ok()?) << (24 - 8 * at);
    }
    let room = u32::MAX >> (8 * leading.len());
    (last <= room).then(|| Ipv4Addr::from_bits(bits | last))
}

/// Reads a number as C does: a leading zero makes it octal.
fn c_number(digits: &[u8]) -> Option<u32> {
    let base = if digits.first() == Some(&b'0') { 8 } else { 10 };
    digits.iter().try_fold(0_u32, |number, &digit| {
        number
            .checked_mul(base)?
            .checked_add(char::from(digit).to_digit(base)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> String {
        String::from_utf8(canonical(name.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn reads_odd_addresses() {
        let cases = [
            ("0", "0.0.0.0"),
            ("3232235777", "192.168.1.1"),
            ("4294967297", "0.0.0.1"),
            ("192.168.257", "192.168.1.1"),
            ("192.11010305", "192.168.1.1"),
            ("0300.0250.01.01", "192.168.1.1"),
            ("192.0250.1.1", "192.168.1.1"),
            ("01.2", "1.0.0.2"),
            ("%31%32%37.1", "127.0.0.1"),
            ("127.0.0.1.", "127.0.0.1"),
        ];
        for (name, address) in cases {
            assert_eq!(host(name), address, "{name}");
        }
    }

    #[test]
    fn leaves_what_only_looks_like_an_address() {
        for name in [
            "256.1.1.1",
            "1.2.3.256",
            "1.09.1",
            "010.8",
            "1.2.3.4.5",
            "0x7f.1",
            "1.4294967296",
            "1.-2",
            "1.2\u{7f}",
        ] {
            assert_eq!(host(name), name.replace('\u{7f}', "%7f"), "{name}");
        }
    }

    #[test]
    fn halves_and_trims_dots() {
        assert_eq!(host("...a..b....c..."), "a.b..c");
        assert_eq!(host("...."), "");
    }

    #[test]
    fn keeps_the_bytes_of_a_name_idna_refuses() {
        assert_eq!(
            canonical(b"t%EF%BF%BD%04.net").unwrap(),
            b"t%ef%bf%bd%04.net"
        );
        assert_eq!(canonical(b"\xff\xfe").unwrap(), b"");
        assert_eq!(canonical(b"a\xffb.com").unwrap(), b"ab.com");
    }

    #[test]
    fn refuses_a_number_python_will_not_convert() {
        assert!(canonical(&[b'1'; 4300]).is_ok());
        assert!(matches!(
            canonical(&[b'0'; 4301]),
            Err(SurtError::HostNumberTooLong { digits: 4301 })
        ));
    }

    #[test]
    fn drops_www_once() {
        assert_eq!(without_www(b"www.example.com"), b"example.com");
        assert_eq!(without_www(b"www12.www.example.com"), b"www.example.com");
        assert_eq!(without_www(b"www2x.example.com"), b"www2x.example.com");
        assert_eq!(without_www(b"www"), b"www");
    }

    #[test]
    fn turns_labels_round() {
        let mut key = b">".to_vec();
        push_reversed(b".a.b..c", &mut key);
        assert_eq!(key, b">c,,b,a,");
    }
}
