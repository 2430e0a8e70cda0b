//! What can be wrong with a line, and where it stands.

use std::fmt;
use std::io;

/// Where a line stands: for a message an operator can act on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinePlace {
    /// The file, as the caller named it.
    pub file: String,
    /// The line's number, from 1.
    pub line: u64,
    /// The offset of the line's first byte.
    pub offset: u64,
}

impl fmt::Display for LinePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A file's name may come from anywhere; its control characters must not reach a terminal.
        write!(
            f,
            "line {} of {} at offset {}",
            self.line,
            self.file.escape_debug(),
            self.offset
        )
    }
}

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineFault {
    /// There is no key, or nothing after it.
    #[error("no key followed by a space")]
    NoKey,
    /// The second field is not a capture time.
    #[error("time {found:?} is not 14 or 17 digits")]
    BadTime {
        /// What stands there instead, cut to 40 bytes.
        found: String,
    },
    /// The line is not UTF-8.
    #[error("not UTF-8 after {valid_bytes} bytes")]
    NotUtf8 {
        /// How many bytes are good.
        valid_bytes: usize,
    },
    /// What follows the time is not a JSON object.
    #[error("not a JSON object: {reason}")]
    NotJson {
        /// The JSON reader's words.
        reason: String,
    },
    /// A field has a value it cannot have.
    #[error("field {field:?} is {found:?}")]
    BadField {
        /// The field's name.
        field: &'static str,
        /// Its value, cut to 40 bytes.
        found: String,
    },
    /// A CDX line has another number of fields.
    #[error("{found} fields, expected {expected}")]
    FieldCount {
        /// How many the layout has.
        expected: usize,
        /// How many the line has.
        found: usize,
    },
    /// A header line names another layout.
    #[error("unknown CDX layout {found:?}")]
    UnknownLayout {
        /// The header, cut to 40 bytes.
        found: String,
    },
    /// A PATH line has no tab, or nothing on one side of it.
    #[error("not a file name, a tab and a location")]
    NotPath,
    /// The line is longer than any reader takes.
    #[error("a line of {bytes} bytes, the limit is {limit_bytes}")]
    TooLong {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        limit_bytes: usize,
    },
    /// A value holds a byte that would break the line.
    #[error("byte {byte:#04x} cannot stand in a {field}")]
    Unwritable {
        /// The field.
        field: &'static str,
        /// The byte.
        byte: u8,
    },
}

/// Why lines cannot be read further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file cannot be opened.
    #[error("cannot open {}", file.escape_debug())]
    Open {
        /// The file.
        file: String,
        /// What the system said.
        source: io::Error,
    },
    /// The file cannot be read.
    #[error("cannot read {} at offset {offset}", file.escape_debug())]
    Read {
        /// The file.
        file: String,
        /// Where reading stopped.
        offset: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The last line has no line feed: whoever wrote the file did not finish.
    #[error("{place} has no line feed: the file was cut short")]
    Unterminated {
        /// The line.
        place: LinePlace,
    },
    /// A line is longer than the limit.
    #[error("{place} is longer than {limit_bytes} bytes")]
    TooLong {
        /// The line.
        place: LinePlace,
        /// The limit.
        limit_bytes: usize,
    },
    /// A line is smaller than the one before it.
    #[error("{place} is not in byte order: it begins {found:?}, after {previous:?}")]
    Unsorted {
        /// The line.
        place: LinePlace,
        /// The beginning of the line before it.
        previous: String,
        /// The beginning of the line.
        found: String,
    },
    /// A line does not have the shape it must have.
    #[error("cannot parse {place}: {fault}")]
    Malformed {
        /// The line.
        place: LinePlace,
        /// What is wrong with it.
        fault: LineFault,
    },
}

impl ReadError {
    /// Returns the file, by the name it was opened under.
    pub fn file(&self) -> &str {
        match self {
            Self::Open { file, .. } | Self::Read { file, .. } => file,
            Self::Unterminated { place }
            | Self::TooLong { place, .. }
            | Self::Unsorted { place, .. }
            | Self::Malformed { place, .. } => &place.file,
        }
    }
}

/// Returns the beginning of what was found, short enough for a message.
pub(crate) fn excerpt(found: &[u8]) -> String {
    const EXCERPT_BYTES: usize = 40;
    String::from_utf8_lossy(&found[..found.len().min(EXCERPT_BYTES)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_the_place_and_hides_control_characters() {
        let place = LinePlace {
            file: "day\n\u{1b}[31m.cdxj".into(),
            line: 7,
            offset: 1234,
        };
        let error = ReadError::Malformed {
            place,
            fault: LineFault::NoKey,
        };
        assert_eq!(
            error.to_string(),
            "cannot parse line 7 of day\\n\\u{1b}[31m.cdxj at offset 1234: no key followed by a space"
        );
    }

    #[test]
    fn an_excerpt_is_short_whatever_the_bytes() {
        assert_eq!(excerpt(b"abc"), "abc");
        assert!(excerpt(&[0xff; 1000]).chars().count() <= 40);
    }
}
