//! `bagit.txt`: which version, and in what encoding the tag files are.

use encoding_rs::Encoding;

use crate::fault::BagFault;

/// The name of the file.
pub(crate) const DECLARATION: &str = "bagit.txt";

/// The version of a bag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BagVersion {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

impl BagVersion {
    pub(crate) const V1_0: Self = Self { major: 1, minor: 0 };
    const FIRST: Self = Self {
        major: 0,
        minor: 93,
    };
    /// The last one of the drafts that became RFC 8493.
    const LAST_DRAFT: Self = Self {
        major: 0,
        minor: 97,
    };

    /// The file of free metadata; it had another name in the first drafts.
    pub(crate) fn info_name(self) -> &'static str {
        if self
            < (Self {
                major: 0,
                minor: 96,
            })
        {
            "package-info.txt"
        } else {
            "bag-info.txt"
        }
    }

    fn is_known(self) -> bool {
        self == Self::V1_0 || (Self::FIRST..=Self::LAST_DRAFT).contains(&self)
    }
}

/// What `bagit.txt` says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Declaration {
    pub(crate) version: BagVersion,
    pub(crate) encoding: &'static Encoding,
}

/// Reads `bagit.txt`: two lines, to the letter, in UTF-8 without a mark before them.
pub(crate) fn parse(bytes: &[u8]) -> Result<Declaration, BagFault> {
    let fault = |what: String| BagFault::Declaration(what);
    if bytes.starts_with(b"\xef\xbb\xbf") {
        return Err(fault("it begins with a byte order mark".into()));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| fault("it is not UTF-8".into()))?;
    let mut lines = lines_of(text);
    let version = lines.next().unwrap_or_default();
    let encoding = lines.next().unwrap_or_default();
    if lines.next().is_some() {
        return Err(fault("it has more than two lines".into()));
    }
    let number = version
        .strip_prefix("BagIt-Version: ")
        .ok_or_else(|| fault("its first line is not `BagIt-Version: M.N`".into()))?;
    let version = parse_version(number)
        .ok_or_else(|| fault(format!("\"{}\" is no version", shown(number))))?;
    if !version.is_known() {
        return Err(fault(format!(
            "version {} is not known here",
            shown(number)
        )));
    }
    let name = encoding
        .strip_prefix("Tag-File-Character-Encoding: ")
        .ok_or_else(|| {
            fault("its second line is not `Tag-File-Character-Encoding: ENCODING`".into())
        })?;
    // A label is compared with the spaces around it left out; here there are none.
    let encoding = Encoding::for_label(name.as_bytes())
        .filter(|_| name.trim() == name)
        .ok_or_else(|| {
            fault(format!(
                "the encoding \"{}\" is not known here",
                shown(name)
            ))
        })?;
    Ok(Declaration { version, encoding })
}

fn parse_version(text: &str) -> Option<BagVersion> {
    let number = |digits: &str| -> Option<u32> {
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse().ok())?
    };
    let (major, minor) = text.split_once('.')?;
    Some(BagVersion {
        major: number(major)?,
        minor: number(minor)?,
    })
}

/// Returns the lines of a tag file: ended by LF, CR or both, the last one by nothing too.
pub(crate) fn lines_of(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = rest.find(['\r', '\n']).unwrap_or(rest.len());
        let line = &rest[..end];
        let after = &rest[end..];
        rest = after
            .strip_prefix("\r\n")
            .or_else(|| after.strip_prefix(['\r', '\n']))
            .unwrap_or(after);
        Some(line)
    })
}

/// Returns a text from outside as it may be shown.
pub(crate) fn shown(text: &str) -> String {
    let mut shown = String::new();
    for character in text.chars().take(200) {
        if character.is_control() || character == '\u{202e}' {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_lines_to_the_letter() {
        let good = parse(b"BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n").unwrap();
        assert_eq!(good.version, BagVersion::V1_0);
        assert!(parse(b"BagIt-Version: 0.97\r\nTag-File-Character-Encoding: UTF-8").is_ok());
        assert!(parse(b"BagIt-Version: 0.97\rTag-File-Character-Encoding: UTF-16\r").is_ok());
        for bad in [
            &b""[..],
            b"BagIt-Version: 1.0\n",
            b"BagIt-Version : 1.0\nTag-File-Character-Encoding: UTF-8\n",
            b"BagIt-Version: 1.0 \nTag-File-Character-Encoding: UTF-8\n",
            b"BagIt-Version: .97\nTag-File-Character-Encoding: UTF-8\n",
            b"BagIt-Version: 2.0\nTag-File-Character-Encoding: UTF-8\n",
            b"BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8 \n",
            b"BagIt-Version: 1.0\nTag-File-Character-Encoding: Klingon\n",
            b"BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n\n",
            b"\xef\xbb\xbfBagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n",
            b"BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n\xff",
        ] {
            assert!(parse(bad).is_err(), "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn lines_end_in_three_ways() {
        let lines: Vec<&str> = lines_of("a\nb\r\nc\rd").collect();
        assert_eq!(lines, ["a", "b", "c", "d"]);
        assert_eq!(lines_of("a\n\nb").count(), 3);
        assert_eq!(lines_of("").count(), 0);
    }
}
