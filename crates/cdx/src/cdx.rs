//! CDX in 11 and 9 fields, separated by single spaces, `-` for what is absent.
//!
//! The layouts are those cdxj-indexer writes with `-11` and `-9`, and pywb, OpenWayback and OutbackCDX read:
//! key, time, url, mime, status, digest, redirect, then meta and length in the longer one, then offset and file
//! name. The digest loses its label (`sha1:`). A file begins with the header line of its layout.

use std::borrow::Cow;
use std::io::Write;

use crate::cdxj::check_key;
use crate::fault::excerpt;
use crate::{Capture, CaptureTime, Extra, LineFault};

/// Which fields a CDX line has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// `N b a m s k r M S V g`.
    Eleven,
    /// `N b a m s k r V g`.
    Nine,
}

impl Layout {
    /// The first line of a file, without its line feed. It begins with a space, so it sorts before every capture.
    pub const fn header(self) -> &'static str {
        match self {
            Self::Eleven => " CDX N b a m s k r M S V g",
            Self::Nine => " CDX N b a m s k r V g",
        }
    }

    /// Reads a header line, with or without its line feed.
    pub fn from_header(line: &[u8]) -> Result<Self, LineFault> {
        let header = line.trim_ascii_end();
        [Self::Eleven, Self::Nine]
            .into_iter()
            .find(|layout| layout.header().as_bytes() == header)
            .ok_or_else(|| LineFault::UnknownLayout {
                found: excerpt(header),
            })
    }

    /// Returns the number of fields.
    pub const fn field_count(self) -> usize {
        match self {
            Self::Eleven => 11,
            Self::Nine => 9,
        }
    }
}

/// Says whether a line is a header and not a capture.
pub fn is_header(line: &[u8]) -> bool {
    line.starts_with(b" CDX ")
}

/// Appends the line of `capture`, with its line feed.
///
/// A space or a control character inside a field would shift the fields after it, so it is written percent-encoded,
/// as Internet Archive's CDX-Writer does for spaces. An empty field is written `-`.
pub fn write(layout: Layout, capture: &Capture<'_>, line: &mut Vec<u8>) -> Result<(), LineFault> {
    check_key(&capture.key)?;
    line.extend_from_slice(capture.key.as_bytes());
    line.push(b' ');
    line.extend_from_slice(capture.time.as_str().as_bytes());
    let digest = capture
        .digest
        .as_deref()
        .map(|digest| digest.rsplit(':').next().unwrap_or(digest));
    write_text(capture.url.as_deref(), line);
    write_text(capture.mime.as_deref(), line);
    write_text(capture.status.as_deref(), line);
    write_text(digest, line);
    write_text(capture.extra_text("redirect"), line);
    match layout {
        Layout::Eleven => {
            write_text(capture.extra_text("meta"), line);
            write_number(capture.length_bytes, line);
        }
        Layout::Nine => {}
    }
    write_number(capture.offset, line);
    write_text(capture.filename.as_deref(), line);
    line.push(b'\n');
    Ok(())
}

/// Reads one line, with or without its line feed; the number of fields tells the layout.
pub fn parse(line: &[u8]) -> Result<(Layout, Capture<'_>), LineFault> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = str::from_utf8(line).map_err(|error| LineFault::NotUtf8 {
        valid_bytes: error.valid_up_to(),
    })?;
    if line.is_empty() || line.starts_with(' ') {
        return Err(LineFault::NoKey);
    }
    let mut fields = [""; 11];
    let mut count = 0;
    for field in line.split(' ') {
        if let Some(slot) = fields.get_mut(count) {
            *slot = field;
        }
        count += 1;
    }
    let layout = match count {
        11 => Layout::Eleven,
        9 => Layout::Nine,
        0 | 1 => return Err(LineFault::NoKey),
        found => {
            return Err(LineFault::FieldCount {
                expected: 11,
                found,
            });
        }
    };
    let [key, time, url, mime, status, digest, redirect, ..] = fields;
    let (meta, length, offset, filename) = match layout {
        Layout::Eleven => (fields[7], fields[8], fields[9], fields[10]),
        Layout::Nine => ("-", "-", fields[7], fields[8]),
    };
    let time = CaptureTime::from_digits(time.as_bytes()).ok_or_else(|| LineFault::BadTime {
        found: excerpt(time.as_bytes()),
    })?;
    let mut capture = Capture::new(key, time);
    capture.url = text(url);
    capture.mime = text(mime);
    capture.status = text(status);
    capture.digest = text(digest);
    capture.length_bytes = number("length", length)?;
    capture.offset = number("offset", offset)?;
    capture.filename = text(filename);
    for (name, value) in [("redirect", redirect), ("meta", meta)] {
        if let Some(value) = text(value) {
            capture.extras.push((name.into(), Extra::Text(value)));
        }
    }
    Ok((layout, capture))
}

fn text(field: &str) -> Option<Cow<'_, str>> {
    (!matches!(field, "-" | "")).then_some(Cow::Borrowed(field))
}

fn number(field: &'static str, digits: &str) -> Result<Option<u64>, LineFault> {
    match text(digits) {
        None => Ok(None),
        Some(digits) => digits.parse().map(Some).map_err(|_| LineFault::BadField {
            field,
            found: excerpt(digits.as_bytes()),
        }),
    }
}

fn write_text(value: Option<&str>, line: &mut Vec<u8>) {
    line.push(b' ');
    let value = value.filter(|value| !value.is_empty()).unwrap_or("-");
    for byte in value.bytes() {
        if byte <= b' ' || byte == 0x7f {
            write!(line, "%{byte:02X}").expect("a vector takes every byte");
        } else {
            line.push(byte);
        }
    }
}

fn write_number(value: Option<u64>, line: &mut Vec<u8>) {
    match value {
        Some(value) => write!(line, " {value}").expect("a vector takes every byte"),
        None => line.extend_from_slice(b" -"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ELEVEN: &str = "com,example)/ 20140127171200 http://example.com text/html 200 \
                          B2LTWWPUOYAH7UIPQ7ZUPQ4VMBSVC36A - - 1046 334 dupes.warc.gz\n";
    const NINE: &str = "com,example)/ 20140127171200 http://example.com text/html 200 \
                        B2LTWWPUOYAH7UIPQ7ZUPQ4VMBSVC36A - 334 dupes.warc.gz\n";

    fn written(layout: Layout, capture: &Capture<'_>) -> String {
        let mut line = Vec::new();
        write(layout, capture, &mut line).unwrap();
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn both_layouts_are_read_and_written() {
        for (layout, line) in [(Layout::Eleven, ELEVEN), (Layout::Nine, NINE)] {
            let (found, capture) = parse(line.as_bytes()).unwrap();
            assert_eq!(found, layout);
            assert_eq!(capture.offset, Some(334));
            assert_eq!(capture.filename.as_deref(), Some("dupes.warc.gz"));
            assert_eq!(written(layout, &capture), line);
        }
    }

    #[test]
    fn the_digest_loses_its_label_and_the_rest_its_spaces() {
        let (_, mut capture) = parse(ELEVEN.as_bytes()).unwrap();
        capture.digest = Some("sha1:ABC".into());
        capture.url = Some("http://example.com/a b\r\n".into());
        capture.mime = Some("".into());
        capture
            .extras
            .push(("redirect".into(), Extra::Text("/there".into())));
        assert_eq!(
            written(Layout::Eleven, &capture),
            "com,example)/ 20140127171200 http://example.com/a%20b%0D%0A - 200 ABC /there - 1046 334 dupes.warc.gz\n"
        );
    }

    #[test]
    fn headers_tell_the_layout() {
        for layout in [Layout::Eleven, Layout::Nine] {
            let header = layout.header();
            assert_eq!(Layout::from_header(header.as_bytes()), Ok(layout));
            assert_eq!(
                Layout::from_header(format!("{header}\n").as_bytes()),
                Ok(layout)
            );
            assert_eq!(header.split(' ').count() - 2, layout.field_count());
            assert!(is_header(header.as_bytes()));
            assert!(matches!(parse(header.as_bytes()), Err(LineFault::NoKey)));
        }
        assert!(matches!(
            Layout::from_header(b" CDX A b"),
            Err(LineFault::UnknownLayout { .. })
        ));
        assert!(!is_header(ELEVEN.as_bytes()));
    }

    #[test]
    fn bad_lines_are_refused_with_the_reason() {
        let fault = |line: &str| parse(line.as_bytes()).unwrap_err();
        assert_eq!(fault(""), LineFault::NoKey);
        assert_eq!(fault("alone"), LineFault::NoKey);
        assert_eq!(
            fault("k 20140127171200 u"),
            LineFault::FieldCount {
                expected: 11,
                found: 3
            }
        );
        assert_eq!(
            fault("k 1 u m s d - - 1 2 f"),
            LineFault::BadTime { found: "1".into() }
        );
        assert_eq!(
            fault("k 20140127171200 u m s d - - x 2 f"),
            LineFault::BadField {
                field: "length",
                found: "x".into()
            }
        );
        assert_eq!(parse(b"\xff 2"), Err(LineFault::NotUtf8 { valid_bytes: 0 }));
    }

    proptest! {
        #[test]
        fn reading_undoes_writing(
            key in "[^\\x00-\\x20\\x7f]{1,20}",
            fields in proptest::collection::vec(proptest::option::of("[!-,.-~é]{1,12}"), 5),
            length_bytes: Option<u64>,
            offset: Option<u64>,
        ) {
            let mut capture = Capture::new(key, CaptureTime::from_digits(b"20140127171200").unwrap());
            let field = |at: usize| fields[at].as_deref().map(Cow::Borrowed);
            (capture.url, capture.mime, capture.status) = (field(0), field(1), field(2));
            capture.digest = field(3).map(|digest| digest.replace(':', "_").into());
            capture.filename = field(4);
            (capture.length_bytes, capture.offset) = (length_bytes, offset);
            let line = written(Layout::Eleven, &capture);
            prop_assert_eq!(parse(line.as_bytes()).unwrap(), (Layout::Eleven, capture));
        }
    }
}
