//! Why a line names nothing.

use std::fmt;

/// Why a line is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RejectReason {
    /// There is nothing in it.
    Blank,
    /// It is a remark.
    Comment,
    /// It is longer than the settings allow.
    TooLong,
    /// A line of CSV without the column.
    NoColumn,
    /// It has a control character.
    Control,
    /// Its scheme is none of the web's.
    Scheme,
    /// It is no URL.
    BadUrl,
    /// It is an IP address.
    IpAddress,
    /// It is a name that no DNS knows.
    Local,
    /// It has one label and is no public suffix.
    OneLabel,
    /// It has an empty label.
    EmptyLabel,
    /// A label has more than 63 bytes.
    LabelTooLong,
    /// It has more than 253 bytes.
    NameTooLong,
    /// UTS 46 refuses it.
    BadName,
    /// A rule of the librarians says so.
    ForcedOut,
}

impl RejectReason {
    /// Every reason, in the order in which they are reported.
    pub const ALL: [Self; 15] = [
        Self::Blank,
        Self::Comment,
        Self::TooLong,
        Self::NoColumn,
        Self::Control,
        Self::Scheme,
        Self::BadUrl,
        Self::IpAddress,
        Self::Local,
        Self::OneLabel,
        Self::EmptyLabel,
        Self::LabelTooLong,
        Self::NameTooLong,
        Self::BadName,
        Self::ForcedOut,
    ];

    /// Returns the word for it in reports.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Blank => "blank",
            Self::Comment => "comment",
            Self::TooLong => "too-long",
            Self::NoColumn => "no-column",
            Self::Control => "control",
            Self::Scheme => "scheme",
            Self::BadUrl => "bad-url",
            Self::IpAddress => "ip-address",
            Self::Local => "local",
            Self::OneLabel => "one-label",
            Self::EmptyLabel => "empty-label",
            Self::LabelTooLong => "label-too-long",
            Self::NameTooLong => "name-too-long",
            Self::BadName => "bad-name",
            Self::ForcedOut => "forced-out",
        }
    }

    /// Tells whether such a line meant to name something: blank lines and comments are counted, and listed nowhere.
    pub const fn is_listed(self) -> bool {
        !matches!(self, Self::Blank | Self::Comment)
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A line that names nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// Why.
    pub reason: RejectReason,
    /// What it was found to be, where that is worth telling: the address, the scheme. Printable ASCII.
    pub detail: Option<String>,
}

impl Rejection {
    /// Returns a rejection with what it was found to be.
    pub fn told(reason: RejectReason, detail: String) -> Self {
        let detail = Some(detail);
        Self { reason, detail }
    }
}

impl From<RejectReason> for Rejection {
    fn from(reason: RejectReason) -> Self {
        let detail = None;
        Self { reason, detail }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_reason_has_a_word_of_its_own() {
        let words: BTreeSet<&str> = RejectReason::ALL
            .iter()
            .map(|reason| reason.word())
            .collect();
        assert_eq!(words.len(), RejectReason::ALL.len());
        assert!(RejectReason::ALL.is_sorted());
    }
}
