//! The smallest file that tells in which country an address is.

/// Returns an mmdb file that knows one network of 256 addresses.
pub fn country(code: &str, network: [u8; 3]) -> Vec<u8> {
    const BITS: u32 = 24;
    let mut file = Vec::new();
    let mut record = |number: u32| file.extend_from_slice(&number.to_be_bytes()[1..]);
    for node in 0..BITS {
        let bit = network[(node / 8) as usize] >> (7 - node % 8) & 1;
        // After the last bit comes the data: its first byte lies behind the nodes and sixteen zeros.
        let on = if node + 1 == BITS {
            BITS + 16
        } else {
            node + 1
        };
        for side in 0..2 {
            record(if side == bit { on } else { BITS });
        }
    }
    file.extend_from_slice(&[0; 16]);
    map(&mut file, 1);
    text(&mut file, "country");
    map(&mut file, 1);
    text(&mut file, "iso_code");
    text(&mut file, code);
    file.extend_from_slice(b"\xab\xcd\xefMaxMind.com");
    map(&mut file, 9);
    for (key, kind, value) in [
        ("binary_format_major_version", 5, 2),
        ("binary_format_minor_version", 5, 0),
        ("ip_version", 5, 4),
        ("node_count", 6, BITS),
        ("record_size", 5, 24),
    ] {
        text(&mut file, key);
        let bytes = value.to_be_bytes();
        let bytes = if kind == 5 { &bytes[2..] } else { &bytes[..] };
        file.push(kind << 5 | bytes.len() as u8);
        file.extend_from_slice(bytes);
    }
    text(&mut file, "build_epoch");
    file.extend_from_slice(&[1, 2, 7]);
    text(&mut file, "database_type");
    text(&mut file, "Country");
    text(&mut file, "description");
    map(&mut file, 0);
    text(&mut file, "languages");
    file.extend_from_slice(&[0, 4]);
    file
}

fn map(file: &mut Vec<u8>, entries: u8) {
    file.push(7 << 5 | entries);
}

fn text(file: &mut Vec<u8>, text: &str) {
    file.push(2 << 5 | text.len() as u8);
    file.extend_from_slice(text.as_bytes());
}
