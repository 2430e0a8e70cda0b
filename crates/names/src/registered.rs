//! The registered domain of a name, by the Public Suffix List as it was when this program was built.
//!
//! The list has two sections. The ICANN section is what registries register under; the private one is what companies let others
//! use as if it were theirs, such as `blogspot.com`: each name below is a site of its own.

use memchr::memrchr;
use psl::{List, Psl, Type};

use crate::flags::NameFlags;

/// What the Public Suffix List says of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registered<'a> {
    /// The registered domain by the ICANN section; none where the name is a public suffix of it.
    pub domain: Option<&'a str>,
    /// The registered domain by both sections; the name itself where it is a public suffix.
    pub site: &'a str,
    /// [`NameFlags::SUFFIX`] and [`NameFlags::UNLISTED`], where they are so.
    pub flags: NameFlags,
}

impl<'a> Registered<'a> {
    /// Looks a normalised name up.
    pub fn of(name: &'a str) -> Self {
        let suffix = List.suffix(name.as_bytes());
        let (bytes, kind) =
            suffix.map_or((0, None), |suffix| (suffix.as_bytes().len(), suffix.typ()));
        let site = with_one_label_more(name, bytes);
        let domain = match kind {
            Some(Type::Private) => {
                with_one_label_more(name, icann_suffix(&name[name.len() - bytes..]))
            }
            _ => site,
        };
        Self {
            domain,
            site: site.unwrap_or(name),
            flags: NameFlags::SUFFIX
                .when(site.is_none() && kind.is_some())
                .with(NameFlags::UNLISTED.when(kind.is_none())),
        }
    }
}

/// Returns how long the ICANN suffix of a private suffix is: the list gives the longest rule only, so shorter names are asked for.
fn icann_suffix(private: &str) -> usize {
    let mut rest = private;
    while let Some((_, parent)) = rest.split_once('.') {
        match List.suffix(parent.as_bytes()) {
            Some(suffix) if suffix.typ() == Some(Type::Private) => rest = parent,
            Some(suffix) => return suffix.as_bytes().len(),
            None => break,
        }
    }
    rest.len()
}

/// Returns the last `suffix_bytes` of a name with the label before them.
fn with_one_label_more(name: &str, suffix_bytes: usize) -> Option<&str> {
    let before = name.len().checked_sub(suffix_bytes + 1)?;
    let start = memrchr(b'.', &name.as_bytes()[..before]).map_or(0, |dot| dot + 1);
    Some(&name[start..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sections_have_their_say() {
        let none = NameFlags::NONE;
        let cases = [
            ("exemple.fr", Some("exemple.fr"), "exemple.fr", none),
            ("www.exemple.fr", Some("exemple.fr"), "exemple.fr", none),
            ("a.b.c.asso.fr", Some("c.asso.fr"), "c.asso.fr", none),
            ("x.gouv.nc", Some("gouv.nc"), "gouv.nc", none),
            ("fr", None, "fr", NameFlags::SUFFIX),
            ("co.uk", None, "co.uk", NameFlags::SUFFIX),
            (
                "a.foo.blogspot.com",
                Some("blogspot.com"),
                "foo.blogspot.com",
                none,
            ),
            (
                "blogspot.com",
                Some("blogspot.com"),
                "blogspot.com",
                NameFlags::SUFFIX,
            ),
            ("x.github.io", Some("github.io"), "x.github.io", none),
            // A private suffix of several labels, and one below another.
            (
                "b.s3.amazonaws.com",
                Some("amazonaws.com"),
                "b.s3.amazonaws.com",
                none,
            ),
            (
                "b.s3.dualstack.eu-west-3.amazonaws.com",
                Some("amazonaws.com"),
                "b.s3.dualstack.eu-west-3.amazonaws.com",
                none,
            ),
            // A wildcard and its exception.
            ("a.b.ck", Some("a.b.ck"), "a.b.ck", none),
            ("a.www.ck", Some("www.ck"), "www.ck", none),
            // International suffixes in their A-labels.
            ("a.b.xn--p1ai", Some("b.xn--p1ai"), "b.xn--p1ai", none),
            (
                "a.b.xn--55qx5d.cn",
                Some("b.xn--55qx5d.cn"),
                "b.xn--55qx5d.cn",
                none,
            ),
            (
                "host.lan",
                Some("host.lan"),
                "host.lan",
                NameFlags::UNLISTED,
            ),
        ];
        for (name, domain, site, flags) in cases {
            let expected = Registered {
                domain,
                site,
                flags,
            };
            assert_eq!(Registered::of(name), expected, "{name}");
        }
    }
}
