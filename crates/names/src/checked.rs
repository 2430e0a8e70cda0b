//! A line of checked names: what DNS says of a name, as dns-filter writes it and plan reads it.
//!
//! Verdict, forms and addresses follow from the classes and the evidence: they stand in the line for people and for `cut`, and a
//! line in which they say something else is none.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// Addresses in the column of that name, and of each kind in the evidence of a form.
pub const ADDRESSES: usize = 16;

/// What DNS says of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DnsClass {
    /// It has an IPv4 address.
    OkA,
    /// It has an IPv6 address.
    OkAaaa,
    /// It has both.
    OkBoth,
    /// No address of it can be reached from outside.
    Private,
    /// It exists and has no address.
    Nodata,
    /// Its CNAMEs lead nowhere but to themselves.
    CnameLoop,
    /// It is a CNAME to a name that does not exist.
    CnameDangling,
    /// It does not exist; two resolvers say so.
    Nxdomain,
    /// It does not exist, says one resolver alone.
    NxdomainOnce,
    /// The resolvers could not find out.
    Servfail,
    /// The resolvers do not want to answer.
    Refused,
    /// The resolvers do not know how to answer.
    Notimp,
    /// The resolvers did not understand, or what they say is not to be understood.
    Formerr,
    /// An answer that answers nothing.
    Lame,
    /// No answer.
    Timeout,
    /// The whole answer could not be had.
    Truncated,
    /// It is no name.
    BadName,
}

/// Whether a name exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DnsVerdict {
    /// It does.
    Present,
    /// It does not: two resolvers say so of every form.
    Absent,
    /// Nobody could say: it is kept.
    Unknown,
}

impl DnsClass {
    /// Every class, in the order of the documents.
    pub const ALL: [Self; 17] = [
        Self::OkA,
        Self::OkAaaa,
        Self::OkBoth,
        Self::Private,
        Self::Nodata,
        Self::CnameLoop,
        Self::CnameDangling,
        Self::Nxdomain,
        Self::NxdomainOnce,
        Self::Servfail,
        Self::Refused,
        Self::Notimp,
        Self::Formerr,
        Self::Lame,
        Self::Timeout,
        Self::Truncated,
        Self::BadName,
    ];

    /// Returns the class as it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OkA => "OK_A",
            Self::OkAaaa => "OK_AAAA",
            Self::OkBoth => "OK_BOTH",
            Self::Private => "PRIVATE",
            Self::Nodata => "NODATA",
            Self::CnameLoop => "CNAME_LOOP",
            Self::CnameDangling => "CNAME_DANGLING",
            Self::Nxdomain => "NXDOMAIN",
            Self::NxdomainOnce => "NXDOMAIN_ONCE",
            Self::Servfail => "SERVFAIL",
            Self::Refused => "REFUSED",
            Self::Notimp => "NOTIMP",
            Self::Formerr => "FORMERR",
            Self::Lame => "LAME",
            Self::Timeout => "TIMEOUT",
            Self::Truncated => "TRUNCATED",
            Self::BadName => "BAD_NAME",
        }
    }

    /// Reads a class.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == text)
    }

    /// Tells whether it exists.
    pub const fn verdict(self) -> DnsVerdict {
        match self {
            Self::OkA
            | Self::OkAaaa
            | Self::OkBoth
            | Self::Private
            | Self::Nodata
            | Self::CnameLoop
            | Self::CnameDangling => DnsVerdict::Present,
            Self::Nxdomain => DnsVerdict::Absent,
            Self::NxdomainOnce
            | Self::Servfail
            | Self::Refused
            | Self::Notimp
            | Self::Formerr
            | Self::Lame
            | Self::Timeout
            | Self::Truncated
            | Self::BadName => DnsVerdict::Unknown,
        }
    }

    /// Tells whether it has an address that can be reached.
    pub const fn has_address(self) -> bool {
        matches!(self, Self::OkA | Self::OkAaaa | Self::OkBoth)
    }
}

impl fmt::Display for DnsClass {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl DnsVerdict {
    /// Returns the verdict as it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::Absent => "absent",
            Self::Unknown => "unknown",
        }
    }
}

/// What was noted of a name, and not acted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DnsHint {
    /// A form has its address by way of a CNAME.
    Cname,
    /// A random label in place of its first has the same addresses.
    WildcardApex,
    /// A random label in place of `www` has.
    WildcardWww,
    /// It is with a parking service.
    Parked,
    /// It was taken away from somebody.
    Sinkhole,
}

impl DnsHint {
    /// Every hint, in the order in which they are written.
    pub const ALL: [Self; 5] = [
        Self::Cname,
        Self::WildcardApex,
        Self::WildcardWww,
        Self::Parked,
        Self::Sinkhole,
    ];

    /// Returns the hint as it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cname => "cname",
            Self::WildcardApex => "wildcard-apex",
            Self::WildcardWww => "wildcard-www",
            Self::Parked => "parked",
            Self::Sinkhole => "sinkhole",
        }
    }
}

/// What the class of one form rests on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FormEvidence {
    /// Its IPv4 addresses, by number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub a: Vec<Ipv4Addr>,
    /// Its IPv6 addresses, by number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aaaa: Vec<Ipv6Addr>,
    /// The names its CNAMEs lead to, one after the other.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cname: Vec<String>,
    /// The zone that says no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soa: Option<String>,
    /// Why resolvers failed, as RFC 8914 numbers it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ede: Vec<u16>,
    /// Its name servers, where they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ns: Vec<String>,
}

impl FormEvidence {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Where a name leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedirectEvidence {
    /// The first URL that answered.
    pub from: String,
    /// The last one.
    pub to: String,
    /// The site of the last one.
    pub domain: String,
    /// How far that is from the first.
    pub kind: RedirectKind,
    /// The status of the last answer.
    pub status: u16,
}

/// How far a redirect leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RedirectKind {
    /// Nowhere: the same host and scheme.
    Same,
    /// From http to https, or back.
    Scheme,
    /// To the same name with or without `www.`.
    Www,
    /// To another name of the same site.
    Site,
    /// To another site.
    Other,
}

/// What a line rests on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CheckedEvidence {
    /// Of the name itself, unless it begins with `www.`.
    #[serde(skip_serializing_if = "FormEvidence::is_empty")]
    pub apex: FormEvidence,
    /// Of the name with `www.`.
    #[serde(skip_serializing_if = "FormEvidence::is_empty")]
    pub www: FormEvidence,
    /// Where it leads, if that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect: Option<RedirectEvidence>,
    /// Why it is no name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A name that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedLine {
    /// The key by which the list is sorted; `-` for what is no name.
    pub key: String,
    /// The name.
    pub name: String,
    /// What DNS says of it.
    pub class: DnsClass,
    /// What DNS says of `www.` before it; none where that was not asked.
    pub www: Option<DnsClass>,
    /// What was noted.
    pub hints: BTreeSet<DnsHint>,
    /// What all this rests on.
    pub evidence: CheckedEvidence,
}

/// A line that is none of checked names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("bad {column}")]
#[non_exhaustive]
pub struct BadCheckedLine {
    /// The column at fault.
    pub column: &'static str,
}

impl CheckedLine {
    /// Tells whether a name of either form exists.
    pub fn verdict(&self) -> DnsVerdict {
        let verdicts = [Some(self.class), self.www].into_iter().flatten();
        let verdicts: Vec<DnsVerdict> = verdicts.map(DnsClass::verdict).collect();
        if verdicts.contains(&DnsVerdict::Present) {
            DnsVerdict::Present
        } else if verdicts.contains(&DnsVerdict::Unknown) {
            DnsVerdict::Unknown
        } else {
            DnsVerdict::Absent
        }
    }

    /// Tells whether the name itself answers, and whether it does with `www.`.
    pub fn forms(&self) -> (bool, bool) {
        match self.name.starts_with("www.") {
            true => (false, self.class.has_address()),
            false => (
                self.class.has_address(),
                self.www.is_some_and(DnsClass::has_address),
            ),
        }
    }

    /// Returns the addresses of both forms, each once, by number.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let forms = [&self.evidence.apex, &self.evidence.www];
        let mut found: Vec<IpAddr> = Vec::new();
        for form in forms {
            found.extend(form.a.iter().map(|address| IpAddr::V4(*address)));
            found.extend(form.aaaa.iter().map(|address| IpAddr::V6(*address)));
        }
        found.sort_unstable();
        found.dedup();
        found.truncate(ADDRESSES);
        found
    }

    /// Writes the line with its line feed.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let www = self.www.map_or("-", DnsClass::as_str);
        for text in [
            self.key.as_str(),
            &self.name,
            self.class.as_str(),
            www,
            self.verdict().as_str(),
            self.forms_column(),
            &self.addresses_column(),
            &self.hints_column(),
        ] {
            out.write_all(text.as_bytes())?;
            out.write_all(b"\t")?;
        }
        serde_json::to_writer(&mut *out, &self.evidence)?;
        out.write_all(b"\n")
    }

    fn forms_column(&self) -> &'static str {
        match self.forms() {
            (true, true) => "apex,www",
            (true, false) => "apex",
            (false, true) => "www",
            (false, false) => "-",
        }
    }

    fn addresses_column(&self) -> String {
        let addresses: Vec<String> = self.addresses().iter().map(IpAddr::to_string).collect();
        or_none(addresses.join(","))
    }

    fn hints_column(&self) -> String {
        let hints: Vec<&str> = self.hints.iter().map(|hint| hint.as_str()).collect();
        or_none(hints.join(","))
    }

    /// Reads a line without its line feed.
    ///
    /// # Errors
    /// Which column is not as it should be.
    pub fn parse(line: &str) -> Result<Self, BadCheckedLine> {
        let bad = |column| BadCheckedLine { column };
        let mut columns = line.splitn(9, '\t');
        let mut next = |column| match columns.next() {
            Some(text) if !text.is_empty() => Ok(text),
            _ => Err(bad(column)),
        };
        let (key, name) = (next("key")?, next("name")?);
        if key != "-" && crate::key_of(name) != key {
            return Err(bad("key"));
        }
        let class = DnsClass::parse(next("class")?).ok_or(bad("class"))?;
        let www = match next("www")? {
            "-" => None,
            text => Some(DnsClass::parse(text).ok_or(bad("www"))?),
        };
        let (verdict, forms) = (next("verdict")?, next("forms")?);
        let (addresses, hints) = (next("addresses")?, next("hints")?);
        let evidence = next("evidence")?;
        let read = Self {
            key: key.to_owned(),
            name: name.to_owned(),
            class,
            www,
            hints: parse_hints(hints).ok_or(bad("hints"))?,
            evidence: serde_json::from_str(evidence).map_err(|_| bad("evidence"))?,
        };
        for (is_so, column) in [
            (read.verdict().as_str() == verdict, "verdict"),
            (read.forms_column() == forms, "forms"),
            (read.addresses_column() == addresses, "addresses"),
            (read.hints_column() == hints, "hints"),
        ] {
            if !is_so {
                return Err(bad(column));
            }
        }
        Ok(read)
    }
}

fn or_none(text: String) -> String {
    match text.is_empty() {
        true => "-".to_owned(),
        false => text,
    }
}

fn parse_hints(text: &str) -> Option<BTreeSet<DnsHint>> {
    if text == "-" {
        return Some(BTreeSet::new());
    }
    let hints = text.split(',').map(|word| {
        let mut known = DnsHint::ALL.into_iter();
        known.find(|hint| hint.as_str() == word)
    });
    hints.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> CheckedLine {
        let evidence = r#"{"apex":{"a":["192.0.2.1"],"aaaa":["2001:db8::1"]},"www":{"a":["192.0.2.1"],"cname":["exemple.fr"]}}"#;
        CheckedLine {
            key: "fr,exemple".to_owned(),
            name: "exemple.fr".to_owned(),
            class: DnsClass::OkBoth,
            www: Some(DnsClass::OkA),
            hints: [DnsHint::Parked, DnsHint::Cname].into(),
            evidence: serde_json::from_str(evidence).unwrap(),
        }
    }

    fn text(line: &CheckedLine) -> String {
        let mut bytes = Vec::new();
        line.write(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let line = line();
        let written = text(&line);
        assert_eq!(
            written,
            "fr,exemple\texemple.fr\tOK_BOTH\tOK_A\tpresent\tapex,www\t192.0.2.1,2001:db8::1\tcname,parked\t\
             {\"apex\":{\"a\":[\"192.0.2.1\"],\"aaaa\":[\"2001:db8::1\"]},\"www\":{\"a\":[\"192.0.2.1\"],\"cname\":[\"exemple.fr\"]}}\n"
        );
        let written = written.trim_end();
        assert_eq!(CheckedLine::parse(written), Ok(line));
        for (from, to, column) in [
            ("fr,exemple", "fr,autre", "key"),
            ("OK_BOTH", "OK_NONE", "class"),
            ("\tOK_A\t", "\tOK\t", "www"),
            ("present", "absent", "verdict"),
            ("apex,www\t", "apex\t", "forms"),
            ("\t192.0.2.1,", "\t192.0.2.2,", "addresses"),
            ("cname,parked", "parked,cname", "hints"),
            ("{\"apex\"", "\"apex\"", "evidence"),
        ] {
            let changed = written.replacen(from, to, 1);
            let bad = Err(BadCheckedLine { column });
            assert_eq!(CheckedLine::parse(&changed), bad, "{changed}");
        }
    }

    #[test]
    fn a_name_is_absent_only_when_every_form_is() {
        use DnsClass::{Nodata, Nxdomain, NxdomainOnce, OkA, Timeout};
        for (class, www, verdict) in [
            (Nxdomain, Some(Nxdomain), DnsVerdict::Absent),
            (Nxdomain, None, DnsVerdict::Absent),
            (Nxdomain, Some(NxdomainOnce), DnsVerdict::Unknown),
            (Nxdomain, Some(Timeout), DnsVerdict::Unknown),
            (Timeout, Some(Nxdomain), DnsVerdict::Unknown),
            (Nxdomain, Some(OkA), DnsVerdict::Present),
            (Nodata, Some(Timeout), DnsVerdict::Present),
        ] {
            let line = CheckedLine {
                class,
                www,
                ..line()
            };
            assert_eq!(line.verdict(), verdict, "{class} {www:?}");
        }
    }

    #[test]
    fn a_name_with_www_is_that_form_itself() {
        let line = CheckedLine {
            key: "fr,exemple,www".to_owned(),
            name: "www.exemple.fr".to_owned(),
            www: None,
            ..line()
        };
        assert_eq!(line.forms(), (false, true));
        assert_eq!(CheckedLine::parse(text(&line).trim_end()), Ok(line));
    }

    #[test]
    fn every_class_and_hint_is_read_again() {
        for class in DnsClass::ALL {
            assert_eq!(DnsClass::parse(class.as_str()), Some(class));
        }
        for hint in DnsHint::ALL {
            assert_eq!(parse_hints(hint.as_str()), Some([hint].into()));
        }
    }
}
