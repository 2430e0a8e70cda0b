//! What a file is, by its bytes and never by its name.

use memchr::memchr;

use crate::arc::UrlLine;
use crate::{frame, gzip, text};

/// How the file is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Not at all.
    None,
    /// Gzip members.
    Gzip,
    /// Zstd frames.
    Zstd,
}

impl Compression {
    /// Tells from the first bytes of a file, at least four of them if it has as many.
    #[must_use]
    pub fn detect(start: &[u8]) -> Self {
        if start.starts_with(&gzip::MAGIC) {
            Self::Gzip
        } else if start.starts_with(&frame::MAGIC) || start.starts_with(&frame::DICTIONARY_MAGIC) {
            Self::Zstd
        } else {
            Self::None
        }
    }
}

/// How a record is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ArchiveFormat {
    /// As WARC, of any version.
    Warc,
    /// As ARC, version 1 or 2.
    Arc,
}

impl ArchiveFormat {
    /// Tells how the record at the start of these inflated bytes is written; blank lines before it do not count.
    ///
    /// Nothing but the bytes speaks for a record here, so an ARC line must look right in each field.
    #[must_use]
    pub fn detect(start: &[u8]) -> Option<Self> {
        let blanks = start
            .iter()
            .position(|byte| !matches!(byte, b'\r' | b'\n'))
            .unwrap_or(start.len());
        let start = &start[blanks..];
        if warc_version(start).is_some() {
            return Some(Self::Warc);
        }
        let line = &start[..memchr(b'\n', start)?];
        UrlLine::parse_strictly(text::trim_end(line)).map(|_| Self::Arc)
    }
}

/// The version of a WARC record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WarcVersion {
    /// The number before the point.
    pub major: u16,
    /// The number behind it.
    pub minor: u16,
}

/// Returns the version if these bytes start with the first line of a WARC record.
pub(crate) fn warc_version(start: &[u8]) -> Option<WarcVersion> {
    let (name, rest) = start.split_at_checked(5)?;
    if !name.eq_ignore_ascii_case(b"WARC/") {
        return None;
    }
    let (major, rest) = number(rest)?;
    let (minor, _) = number(rest.strip_prefix(b".")?)?;
    Some(WarcVersion { major, minor })
}

/// Tells whether a record may start so: with text, after blank lines.
pub(crate) fn may_start(bytes: &[u8]) -> bool {
    bytes
        .iter()
        .find(|byte| !matches!(byte, b'\r' | b'\n'))
        .is_none_or(u8::is_ascii_alphabetic)
}

/// Tells whether a line, without its end, is the first one of a WARC record.
pub(crate) fn is_version_line(line: &[u8]) -> bool {
    line.len() <= 11 && warc_version(line).is_some()
}

fn number(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let digits = bytes
        .iter()
        .take(3)
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let value = bytes[..digits]
        .iter()
        .fold(0u16, |value, byte| value * 10 + u16::from(byte - b'0'));
    (digits > 0).then(|| (value, &bytes[digits..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_by_bytes() {
        assert_eq!(
            Compression::detect(&[0x1F, 0x8B, 0x08, 0]),
            Compression::Gzip
        );
        assert_eq!(
            Compression::detect(&[0x28, 0xB5, 0x2F, 0xFD]),
            Compression::Zstd
        );
        assert_eq!(
            Compression::detect(&[0x5D, 0x2A, 0x4D, 0x18]),
            Compression::Zstd
        );
        assert_eq!(Compression::detect(b"WARC/1.0"), Compression::None);
        assert_eq!(Compression::detect(b""), Compression::None);
    }

    #[test]
    fn format_by_bytes() {
        assert_eq!(
            ArchiveFormat::detect(b"WARC/0.17\r\n"),
            Some(ArchiveFormat::Warc)
        );
        assert_eq!(
            ArchiveFormat::detect(b"\r\n\nwarc/1.1\r\n"),
            Some(ArchiveFormat::Warc)
        );
        assert_eq!(
            ArchiveFormat::detect(b"filedesc://a.arc 0.0.0.0 20010203040506 text/plain 76\n"),
            Some(ArchiveFormat::Arc)
        );
        assert_eq!(ArchiveFormat::detect(b"WARC-Type: response"), None);
        assert_eq!(ArchiveFormat::detect(b"<html>\n"), None);
        assert_eq!(ArchiveFormat::detect(&[0; 100]), None);
        assert_eq!(
            warc_version(b"WARC/0.18\n"),
            Some(WarcVersion {
                major: 0,
                minor: 18
            })
        );
    }
}
