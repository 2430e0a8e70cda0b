//! What one capture links to: a line of `NAME.links.zst`.

use std::borrow::Cow;

use ecluse_cdx::CaptureTime;

use crate::error::BadLinkLine;

/// The first line of a list of links.
pub const LINKS_HEADER: &str = "# ecluse links 1";

/// A capture has at most so many links.
pub const TARGETS: usize = 65_536;

/// How a page names another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LinkKind {
    /// A reader follows it.
    Anchor,
    /// A browser fetches it to show the page.
    Embed,
    /// The server or the page sends the reader on.
    Redirect,
    /// The page says that it is there.
    Canonical,
}

impl LinkKind {
    /// All of them, by their letters.
    pub const ALL: [Self; 4] = [Self::Anchor, Self::Canonical, Self::Embed, Self::Redirect];

    /// Returns the letter that stands for it in a line.
    pub fn letter(self) -> char {
        match self {
            Self::Anchor => 'a',
            Self::Embed => 'e',
            Self::Redirect => 'r',
            Self::Canonical => 'c',
        }
    }

    /// Returns its name: `a`, `embed`, `redirect`, `canonical`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Anchor => "a",
            Self::Embed => "embed",
            Self::Redirect => "redirect",
            Self::Canonical => "canonical",
        }
    }

    fn of_letter(letter: u8) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.letter() as u8 == letter)
    }
}

/// A URL that a page links to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageTarget<'a> {
    /// How.
    pub kind: LinkKind,
    /// The absolute URL.
    pub url: Cow<'a, str>,
}

/// Returns scheme, host and port of a URL as they stand there: what precedes the path of a link that is written as a path.
pub fn origin_of(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + 3);
    let end = url[host..].find(['/', '?', '#']);
    &url[..end.map_or(url.len(), |end| host + end)]
}

/// What a capture links to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLinks<'a> {
    /// The key of the capture.
    pub surt: &'a str,
    /// When it was made.
    pub time: CaptureTime,
    /// The digest of its payload, or `-`.
    pub digest: &'a str,
    /// Its URL.
    pub url: &'a str,
    /// The columns of its links, parted by tabs.
    targets: &'a str,
}

impl<'a> PageLinks<'a> {
    /// Reads a line without its line feed.
    ///
    /// # Errors
    /// Which column is not as it should be.
    pub fn parse(line: &'a str) -> Result<Self, BadLinkLine> {
        let mut columns = line.splitn(5, '\t');
        let mut next = |fault| columns.next().ok_or(BadLinkLine(fault));
        let surt = next("no key")?;
        let time = next("no time")?;
        let time = CaptureTime::from_digits(time.as_bytes()).ok_or(BadLinkLine("bad time"))?;
        let (digest, url) = (next("no digest")?, next("no URL")?);
        let targets = columns.next().unwrap_or_default();
        if surt.is_empty() || surt.as_bytes()[0] < b'$' {
            return Err(BadLinkLine("bad key"));
        }
        if url.is_empty() {
            return Err(BadLinkLine("no URL"));
        }
        if !targets.is_empty() && targets != "=" {
            let is_target = |column: &str| matches!(column.as_bytes(), [letter, b' ', _, ..] if LinkKind::of_letter(*letter).is_some());
            if !targets.split('\t').all(is_target) {
                return Err(BadLinkLine("bad link"));
            }
        }
        Ok(Self {
            surt,
            time,
            digest,
            url,
            targets,
        })
    }

    /// Tells whether what the capture before it linked to still holds: it is a revisit.
    pub fn is_unchanged(&self) -> bool {
        self.targets == "="
    }

    /// Returns what it links to.
    pub fn targets(&self) -> impl Iterator<Item = PageTarget<'a>> + use<'a> {
        let columns = match self.targets {
            "" | "=" => None,
            targets => Some(targets.split('\t')),
        };
        let origin = origin_of(self.url);
        columns.into_iter().flatten().filter_map(move |column| {
            let kind = LinkKind::of_letter(*column.as_bytes().first()?)?;
            let url = column.get(2..)?;
            let url = match url.starts_with('/') {
                true => Cow::Owned([origin, url].concat()),
                false => Cow::Borrowed(url),
            };
            Some(PageTarget { kind, url })
        })
    }

    /// Returns the same links as those of another capture of the page, at another time.
    pub fn seen_again(self, time: CaptureTime) -> Self {
        Self { time, ..self }
    }

    /// Appends the line with its line feed.
    pub fn write(&self, line: &mut Vec<u8>) {
        let Self {
            surt, digest, url, ..
        } = self;
        for column in [surt, self.time.as_str(), digest, url] {
            line.extend_from_slice(column.as_bytes());
            line.push(b'\t');
        }
        line.extend_from_slice(self.targets.as_bytes());
        if self.targets.is_empty() {
            line.pop();
        }
        line.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_and_written() {
        let text = "fr,a)/\t20261118000000\tsha1:X\thttps://a.fr/\ta https://b.fr/\te /x.png\tr https://c.fr/\tc https://a.fr/i";
        for line in [
            text,
            "fr,a)/\t20261118000000\t-\thttps://a.fr/",
            "fr,a)/\t20261118000000\t-\thttps://a.fr/\t=",
        ] {
            let page = PageLinks::parse(line).unwrap();
            let mut written = Vec::new();
            page.write(&mut written);
            assert_eq!(String::from_utf8(written).unwrap(), format!("{line}\n"));
            assert_eq!(page.is_unchanged(), line.ends_with('='));
        }
        let targets: Vec<String> = PageLinks::parse(text)
            .unwrap()
            .targets()
            .map(|target| format!("{} {}", target.kind.name(), target.url))
            .collect();
        assert_eq!(
            targets,
            [
                "a https://b.fr/",
                "embed https://a.fr/x.png",
                "redirect https://c.fr/",
                "canonical https://a.fr/i",
            ]
        );
    }

    #[test]
    fn a_path_is_on_the_host_of_its_page() {
        for (url, origin) in [
            ("https://a.fr/x/y", "https://a.fr"),
            ("https://a.fr:8443/?x", "https://a.fr:8443"),
            ("http://a.fr", "http://a.fr"),
            ("http://a.fr?x/y", "http://a.fr"),
            ("http://u:p@a.fr#/", "http://u:p@a.fr"),
        ] {
            assert_eq!(origin_of(url), origin);
        }
    }

    #[test]
    fn what_is_no_line_is_said() {
        for (line, said) in [
            ("", "no time"),
            ("fr,a)/\t2026\t-\thttps://a.fr/", "bad time"),
            ("fr,a)/\t20261118000000\t-", "no URL"),
            ("fr,a)/\t20261118000000\t-\t", "no URL"),
            ("#a)/\t20261118000000\t-\thttps://a.fr/", "bad key"),
            ("fr,a)/\t20261118000000\t-\thttps://a.fr/\tx y", "bad link"),
            ("fr,a)/\t20261118000000\t-\thttps://a.fr/\ta ", "bad link"),
            (
                "fr,a)/\t20261118000000\t-\thttps://a.fr/\ta b\t",
                "bad link",
            ),
        ] {
            assert_eq!(
                PageLinks::parse(line).unwrap_err().to_string(),
                said,
                "{line}"
            );
        }
    }
}
