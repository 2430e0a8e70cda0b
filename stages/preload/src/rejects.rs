//! The list of lines that named nothing: where each stood, why, and what it began with.

use std::io::{self, Write};

use ecluse_names::Rejection;

/// How much of a line is shown.
const SHOWN_BYTES: usize = 200;

/// Writes one line of the list. Nothing of the line itself reaches it but printable ASCII.
pub(crate) fn write(
    out: &mut dyn Write,
    source: &str,
    file: &str,
    number: u64,
    rejection: &Rejection,
    line: &[u8],
) -> io::Result<()> {
    let detail = rejection.detail.as_deref().unwrap_or("-");
    write!(
        out,
        "{source}\t{}\t{number}\t{}\t{}\t",
        shown(file.as_bytes()),
        rejection.reason,
        shown(detail.as_bytes())
    )?;
    let line = &line[..line.len().min(SHOWN_BYTES)];
    writeln!(out, "{}", shown(line))
}

/// Returns bytes as printable ASCII.
fn shown(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'\\' => text.push_str("\\\\"),
            b' '..=b'~' => text.push(char::from(*byte)),
            byte => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use ecluse_names::RejectReason;

    use super::*;

    #[test]
    fn nothing_but_printable_ascii_is_written() {
        let mut out = Vec::new();
        let line = [b"a\x1b[31m\t\0\\\xe9".as_slice(), &[b'x'; 500]].concat();
        write(
            &mut out,
            "afnic",
            "a\n.txt",
            7,
            &RejectReason::Control.into(),
            &line,
        )
        .unwrap();
        let text = String::from_utf8(out).unwrap();
        let begin = "afnic\ta\\x0a.txt\t7\tcontrol\t-\ta\\x1b[31m\\x09\\x00\\\\\\xe9xxx";
        assert!(text.starts_with(begin), "{text}");
        assert!(text.len() < 300 && text.ends_with("x\n"));
    }
}
