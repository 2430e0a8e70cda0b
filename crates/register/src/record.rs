//! One record of the register: what is known of a domain, and the line it is.

use std::collections::BTreeMap;
use std::fmt;

use ecluse_names::key_of;
use serde_json::{Map, Value};

/// A record is no longer than this.
pub(crate) const RECORD_BYTES: usize = 1 << 20;

/// What is known of a domain.
#[derive(Debug, Clone, PartialEq)]
pub struct RegisterRecord {
    /// The site: a registered domain by both sections of the Public Suffix List.
    pub domain: String,
    /// Whether it is harvested.
    pub state: DomainState,
    /// The day it was first seen.
    pub first: RegisterDay,
    /// The day a source last had it.
    pub last: RegisterDay,
    /// The sources that had it, and when each last did.
    pub sources: BTreeMap<String, RegisterDay>,
    /// What DNS said of it, where it was asked.
    pub dns: Option<DnsAnswer>,
    /// Which of its names answer: `apex`, `www`.
    pub forms: Vec<String>,
    /// Everything else; keys that nobody knows are kept.
    pub more: Map<String, Value>,
}

/// Whether a domain is harvested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DomainState {
    /// It is.
    Active,
    /// It stays in the register, and is left alone.
    Inactive,
}

/// What DNS said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsAnswer {
    /// The class, such as `OK_BOTH` or `NXDOMAIN`.
    pub class: String,
    /// When it was asked.
    pub day: RegisterDay,
}

/// A day, `20261004`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RegisterDay(u32);

/// A line that is no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("bad {column}")]
#[non_exhaustive]
pub struct BadRecord {
    /// The column at fault, or `line`.
    pub column: &'static str,
}

impl RegisterDay {
    /// Returns a day; none where there is no such day in any month.
    pub fn new(year: u16, month: u8, day: u8) -> Option<Self> {
        let is_day =
            (1000..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
        is_day.then_some(Self(
            u32::from(year) * 10_000 + u32::from(month) * 100 + u32::from(day),
        ))
    }

    /// Reads `20261004`.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 8 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        Self::new(
            text[..4].parse().ok()?,
            text[4..6].parse().ok()?,
            text[6..].parse().ok()?,
        )
    }
}

impl fmt::Display for RegisterDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08}", self.0)
    }
}

impl DomainState {
    /// Returns the word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Inactive => "inactive",
        }
    }
}

impl RegisterRecord {
    /// Returns a record of a domain that was seen on a day, and of which nothing else is known.
    pub fn new(domain: &str, day: RegisterDay) -> Self {
        Self {
            domain: domain.to_owned(),
            state: DomainState::Active,
            first: day,
            last: day,
            sources: BTreeMap::new(),
            dns: None,
            forms: Vec::new(),
            more: Map::new(),
        }
    }

    /// Returns the key by which the register is sorted.
    pub fn key(&self) -> String {
        key_of(&self.domain)
    }

    /// Appends the line with its line feed.
    ///
    /// # Errors
    /// When a column cannot be written so that it is read again.
    pub fn write(&self, line: &mut Vec<u8>) -> Result<(), BadRecord> {
        let start = line.len();
        let sources: Vec<String> = self
            .sources
            .iter()
            .map(|(name, day)| format!("{name}={day}"))
            .collect();
        let dns = self
            .dns
            .as_ref()
            .map(|dns| format!("{}@{}", dns.class, dns.day));
        let or_dash = |text: String| {
            if text.is_empty() {
                "-".to_owned()
            } else {
                text
            }
        };
        let columns = [
            self.key(),
            self.domain.clone(),
            self.state.word().to_owned(),
            self.first.to_string(),
            self.last.to_string(),
            or_dash(sources.join(",")),
            or_dash(dns.unwrap_or_default()),
            or_dash(self.forms.join(",")),
            Value::Object(self.more.clone()).to_string(),
        ];
        line.extend_from_slice(columns.join("\t").as_bytes());
        // What would not be read as it was must not be written: the whole register would be refused for it.
        let text = std::str::from_utf8(&line[start..]).map_err(|_| BadRecord { column: "line" })?;
        if Self::parse(text)? != *self {
            return Err(BadRecord { column: "line" });
        }
        line.push(b'\n');
        Ok(())
    }

    /// Reads a line without its line feed.
    ///
    /// # Errors
    /// Which column is not as it should be.
    pub fn parse(line: &str) -> Result<Self, BadRecord> {
        let bad = |column| BadRecord { column };
        if line.len() > RECORD_BYTES || line.chars().any(|c| c.is_control() && c != '\t') {
            return Err(bad("line"));
        }
        let columns: Vec<&str> = line.split('\t').collect();
        let [key, domain, state, first, last, sources, dns, forms, more] = columns[..] else {
            return Err(bad("line"));
        };
        if domain.is_empty() || key_of(domain) != key {
            return Err(bad("key"));
        }
        let day = |text: &str, column| RegisterDay::parse(text).ok_or(bad(column));
        let mut known = BTreeMap::new();
        for source in items(sources) {
            let (name, seen) = source.split_once('=').ok_or(bad("sources"))?;
            known.insert(name.to_owned(), day(seen, "sources")?);
        }
        Ok(Self {
            domain: domain.to_owned(),
            state: match state {
                "active" => DomainState::Active,
                "inactive" => DomainState::Inactive,
                _ => return Err(bad("state")),
            },
            first: day(first, "first")?,
            last: day(last, "last")?,
            sources: known,
            dns: match dns.split_once('@') {
                None if dns == "-" => None,
                None => return Err(bad("dns")),
                Some((class, asked)) => Some(DnsAnswer {
                    class: class.to_owned(),
                    day: day(asked, "dns")?,
                }),
            },
            forms: items(forms).map(str::to_owned).collect(),
            more: serde_json::from_str(more).map_err(|_| bad("more"))?,
        })
    }
}

/// The parts of a column that lists things.
pub(crate) fn items(column: &str) -> impl Iterator<Item = &str> {
    let column = if column == "-" { "" } else { column };
    column.split(',').filter(|item| !item.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "fr,exemple\texemple.fr\tactive\t20251012\t20261004\tafnic=20261001,librarians=20251012\tOK_BOTH@20261004\tapex,www\t{\"seeds\":[\"https://www.exemple.fr/blog/\"],\"unheard-of\":1}";

    #[test]
    fn a_record_is_written_as_it_was_read() {
        let record = RegisterRecord::parse(LINE).unwrap();
        let mut line = Vec::new();
        record.write(&mut line).unwrap();
        assert_eq!(line, format!("{LINE}\n").as_bytes());
        let bare = RegisterRecord::new("a.fr", RegisterDay::parse("20260101").unwrap());
        line.clear();
        bare.write(&mut line).unwrap();
        assert_eq!(
            line,
            b"fr,a\ta.fr\tactive\t20260101\t20260101\t-\t-\t-\t{}\n"
        );
    }

    #[test]
    fn what_is_no_record_is_told_by_its_column() {
        for (from, to, column) in [
            ("fr,exemple\t", "fr,exemples\t", "key"),
            ("active", "asleep", "state"),
            ("20251012", "20251312", "first"),
            ("20261004\tafnic", "2026\tafnic", "last"),
            ("afnic=20261001", "afnic", "sources"),
            ("OK_BOTH@20261004", "OK_BOTH", "dns"),
            ("{\"seeds\"", "{seeds", "more"),
            ("\tapex,www", "", "line"),
            ("apex", "a\u{1b}pex", "line"),
        ] {
            let line = LINE.replacen(from, to, 1);
            assert_eq!(
                RegisterRecord::parse(&line),
                Err(BadRecord { column }),
                "{line}"
            );
        }
    }

    #[test]
    fn what_would_not_be_read_again_is_not_written() {
        let mut record = RegisterRecord::parse(LINE).unwrap();
        record
            .sources
            .insert("a,b\tc".into(), RegisterDay::parse("20260101").unwrap());
        assert!(record.write(&mut Vec::new()).is_err());
        let mut record = RegisterRecord::parse(LINE).unwrap();
        record.more.insert("why".into(), "tab\tand\nfeed".into());
        let mut line = Vec::new();
        record.write(&mut line).unwrap();
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
    }
}
