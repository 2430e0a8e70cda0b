//! PATH: where each (W)ARC file is, `filename TAB location`, sorted, one line for each copy.
//!
//! pywb reads the same file as a path index.

use crate::LineFault;

/// One copy of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathLine<'a> {
    /// The file's name, as index lines have it.
    pub filename: &'a str,
    /// Where this copy is: a path or a URL.
    pub location: &'a str,
}

/// Appends the line, with its line feed; a tab or a line feed on either side is refused.
pub fn write(entry: PathLine<'_>, line: &mut Vec<u8>) -> Result<(), LineFault> {
    for (field, value) in [("filename", entry.filename), ("location", entry.location)] {
        if value.is_empty() {
            return Err(LineFault::NotPath);
        }
        if let Some(byte) = value.bytes().find(|byte| *byte < b' ' || *byte == 0x7f) {
            return Err(LineFault::Unwritable { field, byte });
        }
    }
    line.extend_from_slice(entry.filename.as_bytes());
    line.push(b'\t');
    line.extend_from_slice(entry.location.as_bytes());
    line.push(b'\n');
    Ok(())
}

/// Reads one line, with or without its line feed.
pub fn parse(line: &[u8]) -> Result<PathLine<'_>, LineFault> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = str::from_utf8(line).map_err(|error| LineFault::NotUtf8 {
        valid_bytes: error.valid_up_to(),
    })?;
    match line.split_once('\t') {
        Some((filename, location))
            if !filename.is_empty() && !location.is_empty() && !location.contains('\t') =>
        {
            Ok(PathLine { filename, location })
        }
        _ => Err(LineFault::NotPath),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_and_written() {
        let entry = PathLine {
            filename: "a.warc.gz",
            location: "/repository/01/a b.warc.gz",
        };
        let mut line = Vec::new();
        write(entry, &mut line).unwrap();
        assert_eq!(line, b"a.warc.gz\t/repository/01/a b.warc.gz\n");
        assert_eq!(parse(&line), Ok(entry));
    }

    #[test]
    fn what_would_break_the_line_is_refused() {
        for (filename, location, fault) in [
            ("", "x", LineFault::NotPath),
            ("x", "", LineFault::NotPath),
            (
                "a\tb",
                "x",
                LineFault::Unwritable {
                    field: "filename",
                    byte: b'\t',
                },
            ),
            (
                "a",
                "x\ny",
                LineFault::Unwritable {
                    field: "location",
                    byte: b'\n',
                },
            ),
        ] {
            let mut line = Vec::new();
            assert_eq!(
                write(PathLine { filename, location }, &mut line),
                Err(fault)
            );
            assert!(line.is_empty());
        }
        for line in ["", "a", "a\t", "\tb", "a\tb\tc"] {
            assert_eq!(parse(line.as_bytes()), Err(LineFault::NotPath), "{line:?}");
        }
    }
}
