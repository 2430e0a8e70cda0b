//! CDXJ: `key SP time SP {json}`, byte for byte as cdxj-indexer 1.5 writes it.
//!
//! That program prints `json.dumps` of an ordered dictionary: `", "` and `": "` between the parts, everything
//! outside printable ASCII escaped, every value a string. Fields come in the order url, mime, status, digest,
//! length, offset, filename, then whatever was asked for beyond them.

use std::borrow::Cow;
use std::fmt;
use std::io::Write;
use std::sync::LazyLock;

use memchr::memmem::FinderRev;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::fault::excerpt;
use crate::{Capture, CaptureTime, Extra, LineFault};

/// Appends the line of `capture`, with its line feed.
///
/// A control character or a space in the key would make another line of it, so the key is refused and nothing
/// is appended. JSON escapes everything else.
pub fn write(capture: &Capture<'_>, line: &mut Vec<u8>) -> Result<(), LineFault> {
    check_key(&capture.key)?;
    line.extend_from_slice(capture.key.as_bytes());
    line.push(b' ');
    line.extend_from_slice(capture.time.as_str().as_bytes());
    line.extend_from_slice(b" {");
    let fields_start = line.len();
    let texts = [
        ("url", &capture.url),
        ("mime", &capture.mime),
        ("status", &capture.status),
        ("digest", &capture.digest),
    ];
    for (name, value) in texts {
        if let Some(value) = value {
            write_name(name, fields_start, line);
            write_string(value, line);
        }
    }
    for (name, value) in [("length", capture.length_bytes), ("offset", capture.offset)] {
        if let Some(value) = value {
            write_name(name, fields_start, line);
            write!(line, "\"{value}\"").expect("a vector takes every byte");
        }
    }
    if let Some(filename) = &capture.filename {
        write_name("filename", fields_start, line);
        write_string(filename, line);
    }
    for (name, value) in &capture.extras {
        write_name(name, fields_start, line);
        match value {
            Extra::Text(text) => write_string(text, line),
            Extra::Json(json) => line.extend_from_slice(json.as_bytes()),
        }
    }
    line.extend_from_slice(b"}\n");
    Ok(())
}

/// Reads one line, with or without its line feed.
///
/// Lengths, offsets and statuses are taken as strings or as numbers; pywb takes both. A field that is `"-"` or
/// `null` counts as absent.
pub fn parse(line: &[u8]) -> Result<Capture<'_>, LineFault> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = str::from_utf8(line).map_err(|error| LineFault::NotUtf8 {
        valid_bytes: error.valid_up_to(),
    })?;
    let (key, rest) = line
        .split_once(' ')
        .filter(|(key, _)| !key.is_empty())
        .ok_or(LineFault::NoKey)?;
    let (time, json) = rest.split_once(' ').unwrap_or((rest, ""));
    let time = CaptureTime::from_digits(time.as_bytes()).ok_or_else(|| LineFault::BadTime {
        found: excerpt(time.as_bytes()),
    })?;
    let fields: Fields<'_> = serde_json::from_str(json).map_err(|error| LineFault::NotJson {
        reason: error.to_string(),
    })?;
    let mut capture = Capture::new(key, time);
    for (name, raw) in fields.0 {
        take_field(&mut capture, name, raw)?;
    }
    Ok(capture)
}

/// Returns the `filename` of a line without parsing the rest of it; none where there is no such field.
///
/// Within a JSON string a quotation mark is escaped, so the name of the field with its marks stands nowhere else.
pub fn filename_of(line: &[u8]) -> Option<Cow<'_, str>> {
    static FIELD: LazyLock<FinderRev<'static>> = LazyLock::new(|| FinderRev::new(b"\"filename\":"));
    let value = line.get(FIELD.rfind(line)? + b"\"filename\":".len()..)?;
    let value = value.trim_ascii_start().strip_prefix(b"\"")?;
    let end = memchr::memchr2(b'"', b'\\', value)?;
    if value[end] == b'"' {
        return str::from_utf8(&value[..end]).ok().map(Cow::Borrowed);
    }
    parse(line).ok()?.filename
}

fn take_field<'a>(
    capture: &mut Capture<'a>,
    name: Cow<'a, str>,
    raw: &'a str,
) -> Result<(), LineFault> {
    match name.as_ref() {
        "url" => capture.url = text("url", raw)?,
        "mime" => capture.mime = text("mime", raw)?,
        "status" => capture.status = text("status", raw)?,
        "digest" => capture.digest = text("digest", raw)?,
        "length" => capture.length_bytes = number("length", raw)?,
        "offset" => capture.offset = number("offset", raw)?,
        "filename" => capture.filename = text("filename", raw)?,
        _ => {
            let value = if raw.starts_with('"') {
                Extra::Text(unescape(raw)?)
            } else {
                Extra::Json(Cow::Borrowed(raw))
            };
            capture.extras.push((name, value));
        }
    }
    Ok(())
}

fn text<'a>(field: &'static str, raw: &'a str) -> Result<Option<Cow<'a, str>>, LineFault> {
    match raw.as_bytes().first() {
        Some(b'"') => Ok(Some(unescape(raw)?).filter(|value| value != "-")),
        Some(b'0'..=b'9') => Ok(Some(Cow::Borrowed(raw))),
        _ if raw == "null" => Ok(None),
        _ => Err(LineFault::BadField {
            field,
            found: excerpt(raw.as_bytes()),
        }),
    }
}

fn number(field: &'static str, raw: &str) -> Result<Option<u64>, LineFault> {
    let Some(value) = text(field, raw)? else {
        return Ok(None);
    };
    value.parse().map(Some).map_err(|_| LineFault::BadField {
        field,
        found: excerpt(value.as_bytes()),
    })
}

fn unescape(raw: &str) -> Result<Cow<'_, str>, LineFault> {
    let quoted = raw
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    match quoted {
        Some(plain) if !plain.contains('\\') => Ok(Cow::Borrowed(plain)),
        _ => serde_json::from_str::<String>(raw)
            .map(Cow::Owned)
            .map_err(|error| LineFault::NotJson {
                reason: error.to_string(),
            }),
    }
}

/// The members of a JSON object, in order, their values unread.
struct Fields<'a>(Vec<(Cow<'a, str>, &'a str)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::with_capacity(8);
                while let Some((name, value)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
                    fields.push((name.0, value.get()));
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(Members)
    }
}

/// A member's name, borrowed where it has no escapes.
struct Name<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl<'de> Visitor<'de> for Text {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_str(Text)
    }
}

pub(crate) fn check_key(key: &str) -> Result<(), LineFault> {
    if key.is_empty() {
        return Err(LineFault::NoKey);
    }
    match key.bytes().find(|byte| *byte <= b' ' || *byte == 0x7f) {
        Some(byte) => Err(LineFault::Unwritable { field: "key", byte }),
        None => Ok(()),
    }
}

fn write_name(name: &str, fields_start: usize, line: &mut Vec<u8>) {
    if line.len() > fields_start {
        line.extend_from_slice(b", ");
    }
    write_string(name, line);
    line.extend_from_slice(b": ");
}

/// Appends a JSON string as Python's `json.dumps` with `ensure_ascii` does.
fn write_string(text: &str, line: &mut Vec<u8>) {
    line.push(b'"');
    let mut rest = text;
    while let Some(at) = rest.bytes().position(needs_escape) {
        let (plain, escaped) = rest.split_at(at);
        line.extend_from_slice(plain.as_bytes());
        let character = escaped
            .chars()
            .next()
            .expect("the position found is inside the text");
        write_escape(character, line);
        rest = &escaped[character.len_utf8()..];
    }
    line.extend_from_slice(rest.as_bytes());
    line.push(b'"');
}

fn needs_escape(byte: u8) -> bool {
    !(b' '..=b'~').contains(&byte) || byte == b'"' || byte == b'\\'
}

fn write_escape(character: char, line: &mut Vec<u8>) {
    let short: &[u8] = match character {
        '"' => b"\\\"",
        '\\' => b"\\\\",
        '\n' => b"\\n",
        '\r' => b"\\r",
        '\t' => b"\\t",
        '\u{8}' => b"\\b",
        '\u{c}' => b"\\f",
        _ => {
            for unit in character.encode_utf16(&mut [0; 2]) {
                write!(line, "\\u{unit:04x}").expect("a vector takes every byte");
            }
            return;
        }
    };
    line.extend_from_slice(short);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn time() -> CaptureTime {
        CaptureTime::from_digits(b"20140103030321").unwrap()
    }

    fn written(capture: &Capture<'_>) -> String {
        let mut line = Vec::new();
        write(capture, &mut line).unwrap();
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn the_filename_is_found_without_parsing() {
        for (line, name) in [
            (
                r#"a 2026 {"url": "u", "filename": "x.warc.gz"}"#,
                Some("x.warc.gz"),
            ),
            (
                r#"a 2026 {"filename":"x", "more": {"filename_": 1}}"#,
                Some("x"),
            ),
            (
                r#"a 2026 {"url": "\"filename\": \"evil\"", "filename": "x"}"#,
                Some("x"),
            ),
            (
                r#"a 20260101000000 {"filename": "\u00e9\"x"}"#,
                Some("é\"x"),
            ),
            (r#"a 2026 {"url": "u"}"#, None),
            (r#"a 2026 {"filename": "#, None),
        ] {
            assert_eq!(filename_of(line.as_bytes()).as_deref(), name, "{line}");
        }
    }

    #[test]
    fn a_capture_is_written_as_cdxj_indexer_writes_it() {
        let mut capture = Capture::new("com,example)/?a=1", time());
        capture.url = Some("http://example.com/?a=1".into());
        capture.mime = Some("text/html".into());
        capture.status = Some("200".into());
        capture.digest = Some("sha1:B2LTWWPUOYAH7UIPQ7ZUPQ4VMBSVC36A".into());
        capture.length_bytes = Some(1043);
        capture.offset = Some(0);
        capture.filename = Some("a.warc.gz".into());
        capture
            .extras
            .push(("requestBody".into(), Extra::Text("x=\"1\"".into())));
        capture
            .extras
            .push(("n".into(), Extra::Json("[1, null]".into())));
        let line = "com,example)/?a=1 20140103030321 {\"url\": \"http://example.com/?a=1\", \"mime\": \"text/html\", \
                    \"status\": \"200\", \"digest\": \"sha1:B2LTWWPUOYAH7UIPQ7ZUPQ4VMBSVC36A\", \"length\": \"1043\", \
                    \"offset\": \"0\", \"filename\": \"a.warc.gz\", \"requestBody\": \"x=\\\"1\\\"\", \"n\": [1, null]}\n";
        assert_eq!(written(&capture), line);
        assert_eq!(parse(line.as_bytes()).unwrap(), capture);
    }

    #[test]
    fn what_python_escapes_is_escaped() {
        let mut capture = Capture::new("é)/", time());
        capture.url = Some("\u{7f}\0\u{8}\u{c}\n\r\té\u{1f600}/\"\\ ~".into());
        assert_eq!(
            written(&capture),
            "é)/ 20140103030321 {\"url\": \"\\u007f\\u0000\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00/\\\"\\\\ ~\"}\n"
        );
    }

    #[test]
    fn absent_fields_are_left_out_and_empty_ones_kept() {
        assert_eq!(written(&Capture::new("k", time())), "k 20140103030321 {}\n");
        let mut capture = Capture::new("k", time());
        capture.mime = Some("".into());
        assert_eq!(written(&capture), "k 20140103030321 {\"mime\": \"\"}\n");
    }

    #[test]
    fn lines_of_other_makes_are_read() {
        let line = br#"org,x)/ 20171130220904 {"filename":"x.warc.gz","length":465,"offset":"0","status":200,"digest":"-","mime":null,"z":{"a":[1]}}"#;
        let capture = parse(line).unwrap();
        assert_eq!(capture.length_bytes, Some(465));
        assert_eq!(capture.offset, Some(0));
        assert_eq!(capture.status.as_deref(), Some("200"));
        assert_eq!((capture.digest, capture.mime), (None, None));
        assert_eq!(
            capture.extras,
            [("z".into(), Extra::Json(r#"{"a":[1]}"#.into()))]
        );
    }

    #[test]
    fn bad_lines_are_refused_with_the_reason() {
        let fault = |line: &[u8]| parse(line).unwrap_err();
        assert_eq!(fault(b""), LineFault::NoKey);
        assert_eq!(fault(b" CDX N b a m s k r M S V g"), LineFault::NoKey);
        assert_eq!(fault(b"com,example)/"), LineFault::NoKey);
        assert_eq!(
            fault(b"k 2014 {}"),
            LineFault::BadTime {
                found: "2014".into()
            }
        );
        assert_eq!(fault(b"k \xff"), LineFault::NotUtf8 { valid_bytes: 2 });
        for line in [
            "k 20140103030321",
            "k 20140103030321 {",
            "k 20140103030321 []",
            "k 20140103030321 {} x",
            "k 20140103030321 {\"url\": \"a",
            "k 20140103030321 {\"url\": \"\\ud800\"}",
        ] {
            assert!(
                matches!(fault(line.as_bytes()), LineFault::NotJson { .. }),
                "{line}"
            );
        }
        for line in [
            "k 20140103030321 {\"offset\": \"x\"}",
            "k 20140103030321 {\"offset\": -1}",
            "k 20140103030321 {\"length\": \"99999999999999999999\"}",
            "k 20140103030321 {\"url\": [1]}",
        ] {
            assert!(
                matches!(fault(line.as_bytes()), LineFault::BadField { .. }),
                "{line}"
            );
        }
    }

    #[test]
    fn a_key_that_would_break_the_line_is_refused() {
        for (key, byte) in [("a b", b' '), ("a\nb", b'\n'), ("a\u{7f}", 0x7f)] {
            let mut line = Vec::new();
            let refused = write(&Capture::new(key, time()), &mut line);
            assert_eq!(refused, Err(LineFault::Unwritable { field: "key", byte }));
            assert!(line.is_empty());
        }
        assert_eq!(
            write(&Capture::new("", time()), &mut Vec::new()),
            Err(LineFault::NoKey)
        );
    }

    fn texts() -> impl Strategy<Value = Option<Cow<'static, str>>> {
        proptest::option::of(
            any::<String>()
                .prop_filter("means absent", |text| text != "-")
                .prop_map(Cow::Owned),
        )
    }

    proptest! {
        #[test]
        fn reading_undoes_writing(
            key in "[^\\x00-\\x20\\x7f]{1,20}",
            (url, mime, status, digest, filename) in (texts(), texts(), texts(), texts(), texts()),
            length_bytes: Option<u64>,
            offset: Option<u64>,
            extra in texts(),
        ) {
            let mut capture = Capture::new(key, time());
            (capture.url, capture.mime, capture.status) = (url, mime, status);
            (capture.digest, capture.filename) = (digest, filename);
            (capture.length_bytes, capture.offset) = (length_bytes, offset);
            capture.extras.extend(extra.map(|text| ("referrer".into(), Extra::Text(text))));
            let line = written(&capture);
            prop_assert_eq!(line.bytes().filter(|byte| *byte == b'\n').count(), 1);
            prop_assert_eq!(parse(line.as_bytes()).unwrap(), capture);
        }

        #[test]
        fn whatever_is_read_can_be_written_and_read_again(value: Vec<u8>) {
            let mut line = b"k 20140103030321 {\"url\": ".to_vec();
            line.extend_from_slice(&value);
            line.push(b'}');
            if let Ok(capture) = parse(&line) {
                let again = written(&capture);
                prop_assert_eq!(parse(again.as_bytes()).unwrap(), capture);
            }
        }
    }
}
