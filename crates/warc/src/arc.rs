//! ARC URL-record lines: `URL IP date type length`, or with the five more fields of version 2.
//!
//! Lines are split from the right, as URLs hold blanks and nothing else should. Writers have put the date before the
//! address, a parameter behind the type, and version 2 in the file's head with version 1 in its records; each line is
//! read for what it holds.

use std::ops::Range;

use memchr::{memchr, memchr_iter};

/// Where the fields of a URL-record line are, counted from the start of the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UrlLine {
    pub(crate) url: Range<usize>,
    pub(crate) address: Range<usize>,
    pub(crate) date: Range<usize>,
    pub(crate) content_type: Range<usize>,
    pub(crate) length: Range<usize>,
}

/// The number of fields of a version 1 line.
const FIELDS: usize = 5;

/// The number of fields of a version 2 line.
const FIELDS_V2: usize = 10;

impl UrlLine {
    /// Reads a line without its end; `None` if it has too few fields or its last one is no number.
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        let parsed = Self::split(line)?;
        let url = &line[parsed.url.clone()];
        (memchr(b':', url).is_some() && !url.starts_with(b" ")).then_some(parsed)
    }

    /// Reads a line that nothing but itself speaks for: each field must look as it should.
    pub(crate) fn parse_strictly(line: &[u8]) -> Option<Self> {
        let parsed = Self::parse(line)?;
        let (scheme, rest) = line.split_at(memchr(b':', line)?);
        let plausible = scheme.len() > 1
            && scheme.first().is_some_and(u8::is_ascii_alphabetic)
            && scheme
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
            && rest.len() > 1
            && is_date(&line[parsed.date.clone()])
            && is_address(&line[parsed.address.clone()])
            && line[parsed.length.clone()].iter().all(u8::is_ascii_digit);
        plausible.then_some(parsed)
    }

    fn split(line: &[u8]) -> Option<Self> {
        let blanks: Vec<usize> = memchr_iter(b' ', line).collect();
        let length = blanks.last()? + 1..line.len();
        if !is_integer(&line[length.clone()]) {
            return None;
        }
        // The n-th field from the right, and all fields to its left as one.
        let field = |from_right: usize| -> Option<Range<usize>> {
            let start = *blanks.get(blanks.len().checked_sub(from_right)?)?;
            let end = blanks
                .get(blanks.len() - from_right + 1)
                .copied()
                .unwrap_or(line.len());
            Some(start + 1..end)
        };
        let up_to =
            |from_right: usize| Some(0..*blanks.get(blanks.len().checked_sub(from_right)?)?);
        let at = |fields: usize| -> Option<Self> {
            Some(Self {
                url: up_to(fields - 1)?,
                address: field(fields - 1)?,
                date: field(fields - 2)?,
                content_type: field(fields - 3)?,
                length: length.clone(),
            })
        };
        let sound = |parsed: &Self| {
            is_date(&line[parsed.date.clone()]) && is_address(&line[parsed.address.clone()])
        };

        let usual = at(FIELDS)?;
        if sound(&usual) {
            return Some(usual);
        }
        let swapped = Self {
            address: usual.date.clone(),
            date: usual.address.clone(),
            ..usual.clone()
        };
        if sound(&swapped) {
            return Some(swapped);
        }
        // More fields: version 2, or blanks inside the type.
        for fields in [FIELDS_V2].into_iter().chain(FIELDS + 1..FIELDS_V2) {
            if let Some(mut longer) = at(fields).filter(sound) {
                if fields != FIELDS_V2 {
                    longer.content_type.end = length.start - 1;
                }
                return Some(longer);
            }
        }
        Some(usual)
    }
}

fn is_integer(field: &[u8]) -> bool {
    let digits = field
        .strip_prefix(b"-")
        .or_else(|| field.strip_prefix(b"+"))
        .unwrap_or(field);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

fn is_date(field: &[u8]) -> bool {
    field.len() >= 8 && field[..8].iter().all(u8::is_ascii_digit)
}

fn is_address(field: &[u8]) -> bool {
    field == b"-"
        || ((memchr(b'.', field).is_some() || memchr(b':', field).is_some())
            && field
                .iter()
                .all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b'.' | b':')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(line: &str) -> Option<[&str; 5]> {
        let parsed = UrlLine::parse(line.as_bytes())?;
        Some([
            &line[parsed.url],
            &line[parsed.address],
            &line[parsed.date],
            &line[parsed.content_type],
            &line[parsed.length],
        ])
    }

    #[test]
    fn lines_of_both_versions() {
        assert_eq!(
            fields("http://a.example/ 192.0.2.1 20010203040506 text/html 12"),
            Some([
                "http://a.example/",
                "192.0.2.1",
                "20010203040506",
                "text/html",
                "12"
            ])
        );
        assert_eq!(
            fields("http://a.example/ 192.0.2.1 20010203040506 text/html 200 abc - 17 a.arc 12"),
            Some([
                "http://a.example/",
                "192.0.2.1",
                "20010203040506",
                "text/html",
                "12"
            ])
        );
        assert_eq!(
            fields("dns:a.example 2001:db8::1 20010203040506 text/dns 0").unwrap()[1],
            "2001:db8::1"
        );
    }

    #[test]
    fn lines_as_they_were_written() {
        assert_eq!(
            fields("http://a.example/b c 192.0.2.1 20010203040506 a/b 1").unwrap()[0],
            "http://a.example/b c"
        );
        assert_eq!(
            fields("http://a.example/ 20010203040506 192.0.2.1 a/b 1").unwrap()[2],
            "20010203040506"
        );
        assert_eq!(
            fields("http://a.example/ 192.0.2.1 20010203040506 text/html; charset=x 9"),
            Some([
                "http://a.example/",
                "192.0.2.1",
                "20010203040506",
                "text/html; charset=x",
                "9"
            ])
        );
        assert_eq!(
            fields("http://a.example/ 192.0.2.1 20010203040506  39").unwrap()[3],
            ""
        );
        assert_eq!(
            fields("http://a.example/ 192.0.2.1 cafe a/b 1").unwrap()[2],
            "cafe"
        );
        assert_eq!(
            fields("http://a.example/ 192.0.2.1 20010203040506 a/b -1").unwrap()[4],
            "-1"
        );
    }

    #[test]
    fn other_lines_are_refused() {
        for line in [
            "",
            "1 0 InternetArchive",
            "URL IP-address Archive-date Content-type Archive-length",
            "a b c d e",
            "a b c d 1",
        ] {
            assert_eq!(fields(line), None, "{line}");
        }
        let strict = |line: &str| UrlLine::parse_strictly(line.as_bytes()).is_some();
        assert!(strict(
            "http://a.example/ 192.0.2.1 20010203040506 text/html 12"
        ));
        assert!(!strict("http://a.example/ 192.0.2.1 cafe text/html 12"));
        assert!(!strict("Date: Fri, 10 Nov 2000 11"));
        assert!(!strict(
            "http://a.example/ 192.0.2.1 20010203040506 text/html -12"
        ));
    }
}
