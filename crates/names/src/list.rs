//! A line of the list of names, as preload writes it and the stages after it read it.

use std::io::{self, Write};

use crate::flags::NameFlags;
use crate::key::write_key;

/// No parcel has a longer list: who checks the names of one keeps a few bytes in memory for each.
pub const MOST_NAMES: u32 = 1_000_000;

/// One name of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameLine<'a> {
    /// The key by which the list is sorted.
    pub key: &'a str,
    /// The name.
    pub name: &'a str,
    /// Its registered domain by the ICANN section of the Public Suffix List.
    pub domain: Option<&'a str>,
    /// Its registered domain by both sections.
    pub site: &'a str,
    /// The sources and how many of their lines gave it: `afnic:1,librarians:3`.
    pub sources: &'a str,
    /// The register has its site.
    pub is_known: bool,
    /// A rule of the librarians forces it in.
    pub is_forced: bool,
    /// What was seen of it.
    pub flags: NameFlags,
}

/// A line that is none of the list's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("bad {column}")]
#[non_exhaustive]
pub struct BadNameLine {
    /// The column at fault.
    pub column: &'static str,
}

impl<'a> NameLine<'a> {
    /// Tells whether nobody gave it: plan wants to know of DNS again.
    pub fn is_asked_again(&self) -> bool {
        self.sources == "-" && !self.is_forced
    }

    /// Writes the line with its line feed.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        // One by one: formatting would cost as much as all the rest of a line.
        for text in [
            self.key,
            self.name,
            self.domain.unwrap_or("-"),
            self.site,
            self.sources,
        ] {
            out.write_all(text.as_bytes())?;
            out.write_all(b"\t")?;
        }
        out.write_all(if self.is_known { b"known\t" } else { b"new\t" })?;
        out.write_all(if self.is_forced { b"in\t" } else { b"-\t" })?;
        if self.flags == NameFlags::NONE {
            return out.write_all(b"-\n");
        }
        writeln!(out, "{}", self.flags)
    }

    /// Reads a line without its line feed.
    ///
    /// # Errors
    /// Which column is not as it should be.
    pub fn parse(line: &'a str) -> Result<Self, BadNameLine> {
        let bad = |column| BadNameLine { column };
        let mut columns = line.split('\t');
        let mut next = |column| match columns.next() {
            Some(text) if !text.is_empty() => Ok(text),
            _ => Err(bad(column)),
        };
        let (key, name) = (next("key")?, next("name")?);
        let mut expected = Vec::new();
        write_key(name.as_bytes(), &mut expected);
        if expected != key.as_bytes() {
            return Err(bad("key"));
        }
        let domain = Some(next("domain")?).filter(|text| *text != "-");
        let line = Self {
            key,
            name,
            domain,
            site: next("site")?,
            sources: next("sources")?,
            is_known: match next("register")? {
                "known" => true,
                "new" => false,
                _ => return Err(bad("register")),
            },
            is_forced: match next("forced")? {
                "in" => true,
                "-" => false,
                _ => return Err(bad("forced")),
            },
            flags: NameFlags::parse(next("flags")?).ok_or(bad("flags"))?,
        };
        match columns.next() {
            None => Ok(line),
            Some(_) => Err(bad("flags")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let line = NameLine {
            key: "fr,exemple,www",
            name: "www.exemple.fr",
            domain: Some("exemple.fr"),
            site: "exemple.fr",
            sources: "afnic:1,librarians:3",
            is_known: true,
            is_forced: false,
            flags: NameFlags::WWW,
        };
        let mut text = Vec::new();
        line.write(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(
            text,
            "fr,exemple,www\twww.exemple.fr\texemple.fr\texemple.fr\tafnic:1,librarians:3\tknown\t-\twww\n"
        );
        let text = text.trim_end();
        assert_eq!(NameLine::parse(text), Ok(line));
        for (from, to, column) in [
            ("fr,exemple,www", "fr,exemple", "key"),
            ("known", "old", "register"),
            ("\t-\t", "\tout\t", "forced"),
            ("\t-\twww", "\t-\twww\t", "flags"),
            ("\t-\twww", "\t-", "flags"),
            ("\tafnic:1,librarians:3", "\t", "sources"),
        ] {
            let changed = text.replacen(from, to, 1);
            let bad = Err(BadNameLine { column });
            assert_eq!(NameLine::parse(&changed), bad, "{changed}");
        }
    }
}
