//! One line of a list: what it names, or why it names nothing.
//!
//! The steps are those of `docs/formats/names.md`, in its order.

use url::{Host, ParseError, Url};

use crate::context;
use crate::fast::CleanName;
use crate::flags::NameFlags;
use crate::host;
use crate::key::write_key;
use crate::reason::{RejectReason, Rejection};
use crate::text::{decode, has_control, is_comment, scheme_of, trim};

/// Reads lines; keeps its memory from one to the next.
#[derive(Debug, Default)]
pub struct Normaliser {
    clean: CleanName,
    name: Vec<u8>,
}

/// What a line names.
#[derive(Debug, PartialEq, Eq)]
pub struct FoundName<'a> {
    /// The name: lower case, A-labels, no trailing dot.
    pub name: &'a str,
    /// What was seen on the way. What the Public Suffix List says is for [`crate::Registered`] to tell.
    pub flags: NameFlags,
    /// The URL, where it says more than the name does: it has a path, a query or a port of its own. Without user and fragment.
    pub url: Option<String>,
}

impl Normaliser {
    /// Returns a reader of lines.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads one line, without its line feed, and leaves its path alone.
    ///
    /// # Errors
    /// Why the line names nothing.
    pub fn read(&mut self, line: &[u8]) -> Result<FoundName<'_>, Rejection> {
        match self.clean.read(line, line.len()) {
            Some(flags) => Ok(FoundName {
                name: text_of(self.clean.name()),
                flags,
                url: None,
            }),
            None => self.read_long(line),
        }
    }

    /// Reads one line, with its URL where it has more than a name.
    ///
    /// # Errors
    /// As [`Normaliser::read`].
    pub fn read_url(&mut self, line: &[u8]) -> Result<FoundName<'_>, Rejection> {
        match self.clean.read(line, line.len()) {
            Some(flags) if !flags.has(NameFlags::PATH) => Ok(FoundName {
                name: text_of(self.clean.name()),
                flags,
                url: None,
            }),
            _ => self.read_long(line),
        }
    }

    /// Reads the first `length` bytes of a text as [`Normaliser::read`] does, or [`Normaliser::read_url`]; writes the key of the name
    /// over `key`, and returns flags and URL. It is faster where the text goes on for 64 bytes at least.
    ///
    /// # Errors
    /// As [`Normaliser::read`].
    pub fn read_key(
        &mut self,
        text: &[u8],
        length: usize,
        with_url: bool,
        key: &mut Vec<u8>,
    ) -> Result<(NameFlags, Option<String>), Rejection> {
        key.clear();
        match self.clean.read(text, length) {
            Some(flags) if !(with_url && flags.has(NameFlags::PATH)) => {
                self.clean.write_key(key);
                Ok((flags, None))
            }
            _ => {
                let found = self.read_long(&text[..length])?;
                write_key(found.name.as_bytes(), key);
                Ok((found.flags, found.url))
            }
        }
    }

    /// Reads any line.
    fn read_long(&mut self, line: &[u8]) -> Result<FoundName<'_>, Rejection> {
        let (text, is_latin1) = decode(line);
        let text = trim(&text);
        if text.is_empty() {
            return Err(RejectReason::Blank.into());
        }
        if is_comment(text) {
            return Err(RejectReason::Comment.into());
        }
        if has_control(text) {
            return Err(RejectReason::Control.into());
        }
        let (url, odd) = match parse(text) {
            Ok(url) => (url, None),
            Err(rejection) => {
                let (url, name) = parse_odd(text, rejection)?;
                (url, Some(name))
            }
        };
        let name = match url.host() {
            Some(Host::Domain(name)) => {
                let name = odd.as_deref().unwrap_or(name);
                name.strip_suffix('.').unwrap_or(name)
            }
            Some(Host::Ipv4(address)) => {
                return Err(Rejection::told(
                    RejectReason::IpAddress,
                    address.to_string(),
                ));
            }
            Some(Host::Ipv6(address)) => {
                return Err(Rejection::told(
                    RejectReason::IpAddress,
                    address.to_string(),
                ));
            }
            None => return Err(RejectReason::BadUrl.into()),
        };
        let mut flags = host::check(name)?;
        self.name.clear();
        self.name.extend_from_slice(name.as_bytes());
        let has_port = url.port().is_some_and(|port| port != 80 && port != 443);
        let has_path = url.path() != "/" || url.query().is_some();
        let has_user = !url.username().is_empty() || url.password().is_some();
        flags = flags
            .with(NameFlags::PATH.when(has_path || url.fragment().is_some()))
            .with(NameFlags::PORT.when(has_port))
            .with(NameFlags::USER.when(has_user))
            .with(NameFlags::LATIN1.when(is_latin1))
            .with(NameFlags::CONTEXT.when(odd.is_some()));
        Ok(FoundName {
            name: text_of(&self.name),
            flags,
            // Nobody could read the URL of a name that URLs cannot have.
            url: (odd.is_none() && (has_path || has_port)).then(|| bare(url)),
        })
    }
}

fn parse(text: &str) -> Result<Url, Rejection> {
    let parsed = match scheme_of(text) {
        Some((scheme, _)) if is_of_the_web(scheme) => Url::parse(text),
        Some((scheme, _)) => {
            let scheme = scheme.chars().take(20).collect();
            return Err(Rejection::told(RejectReason::Scheme, scheme));
        }
        None => Url::parse(&format!(
            "http://{}",
            text.strip_prefix("//").unwrap_or(text)
        )),
    };
    parsed.map_err(|error| {
        let reason = match error {
            ParseError::InvalidIpv4Address | ParseError::InvalidIpv6Address => {
                RejectReason::IpAddress
            }
            ParseError::IdnaError | ParseError::InvalidDomainCharacter => RejectReason::BadName,
            ParseError::EmptyHost => RejectReason::EmptyLabel,
            _ => RejectReason::BadUrl,
        };
        reason.into()
    })
}

/// Parses a line whose host URLs cannot have, when that is for its context only: returns the URL with another host in its place, and
/// the name.
fn parse_odd(text: &str, rejection: Rejection) -> Result<(Url, String), Rejection> {
    if rejection.reason != RejectReason::BadName {
        return Err(rejection);
    }
    let host = host_range(text);
    let last_label = |name: &str| {
        name.trim_end_matches('.')
            .rsplit('.')
            .next()
            .map(str::to_owned)
    };
    // A number at the end makes an address of any host.
    let is_name = |name: &String| {
        last_label(name).is_some_and(|last| !last.starts_with(|c: char| c.is_ascii_digit()))
    };
    let Some(name) = context::ascii_form(&text[host.clone()]).filter(is_name) else {
        return Err(rejection);
    };
    let mut in_its_place = text.to_owned();
    in_its_place.replace_range(host, "exemple.fr");
    Ok((parse(&in_its_place)?, name))
}

/// Returns where the host stands in a line.
fn host_range(text: &str) -> std::ops::Range<usize> {
    let begin = scheme_of(text).map_or(0, |(scheme, _)| scheme.len() + 1);
    let begin = text.len() - text[begin..].trim_start_matches(['/', '\\']).len();
    let end = text[begin..].find(['/', '\\', '?', '#']);
    let end = end.map_or(text.len(), |end| begin + end);
    let begin = text[begin..end]
        .rfind('@')
        .map_or(begin, |at| begin + at + 1);
    let port = text[begin..end].rfind(':');
    begin..port.map_or(end, |port| begin + port)
}

fn is_of_the_web(scheme: &str) -> bool {
    ["http", "https", "ftp"]
        .iter()
        .any(|known| scheme.eq_ignore_ascii_case(known))
}

/// Takes user, password and fragment from a URL.
fn bare(mut url: Url) -> String {
    url.set_fragment(None);
    // These fail for URLs without a host only.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.into()
}

fn text_of(name: &[u8]) -> &str {
    std::str::from_utf8(name).expect("a name is ASCII")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn long(line: &[u8]) -> Result<(String, NameFlags), Rejection> {
        let mut normaliser = Normaliser::new();
        normaliser
            .read_long(line)
            .map(|found| (found.name.to_owned(), found.flags))
    }

    fn read(line: impl AsRef<[u8]>) -> Result<(String, NameFlags), Rejection> {
        let mut normaliser = Normaliser::new();
        normaliser
            .read(line.as_ref())
            .map(|found| (found.name.to_owned(), found.flags))
    }

    #[track_caller]
    fn gives(line: impl AsRef<[u8]>, name: &str, flags: &str) {
        let found = read(line.as_ref());
        let found = found.map(|(name, flags)| (name, flags.to_string()));
        let shown = line.as_ref().escape_ascii().to_string();
        assert_eq!(found, Ok((name.to_owned(), flags.to_owned())), "{shown}");
    }

    #[track_caller]
    fn is_rejected(line: impl AsRef<[u8]>, reason: RejectReason, detail: Option<&str>) {
        let shown: String = line
            .as_ref()
            .escape_ascii()
            .to_string()
            .chars()
            .take(100)
            .collect();
        let detail = detail.map(str::to_owned);
        assert_eq!(read(line), Err(Rejection { reason, detail }), "{shown}");
    }

    #[test]
    fn names_come_out_of_whatever_people_write() {
        gives("exemple.fr", "exemple.fr", "-");
        gives("  Exemple.FR.\r", "exemple.fr", "-");
        gives("\u{feff}exemple.fr", "exemple.fr", "-");
        gives("\"exemple.fr\"", "exemple.fr", "-");
        gives("http://www.exemple.fr/", "www.exemple.fr", "www");
        gives("HTTPS://www.Exemple.fr/a?b#c", "www.exemple.fr", "www,path");
        gives("//exemple.fr/a", "exemple.fr", "path");
        gives("exemple.fr?x", "exemple.fr", "path");
        gives("exemple.fr#x", "exemple.fr", "path");
        gives("exemple.fr:80", "exemple.fr", "-");
        gives("exemple.fr:443/", "exemple.fr", "-");
        gives("exemple.fr:8080", "exemple.fr", "port");
        gives("https://exemple.fr:80/", "exemple.fr", "-");
        gives("http://u:p@exemple.fr:81/x", "exemple.fr", "path,port,user");
        gives("contact@exemple.fr", "exemple.fr", "user");
        gives("ftp://ftp.exemple.fr/pub", "ftp.exemple.fr", "path");
        gives("ex%65mple.fr", "exemple.fr", "-");
        gives("http:\\\\exemple.fr\\a", "exemple.fr", "path");
        gives("écluse.fr", "xn--cluse-9ra.fr", "idn");
        gives("XN--CLUSE-9RA.fr", "xn--cluse-9ra.fr", "idn");
        gives(b"\xe9cluse.fr", "xn--cluse-9ra.fr", "latin1,idn");
        gives("ｅxemple。fr", "exemple.fr", "-");
        gives("straße.de", "xn--strae-oqa.de", "idn,deviation");
        gives("\u{430}pple.fr", "xn--pple-43d.fr", "idn,mixed");
        gives("_dmarc.exemple.fr", "_dmarc.exemple.fr", "underscore");
        gives("-a.exemple.fr", "-a.exemple.fr", "hyphens");
        gives(
            "r3---sn-abc.googlevideo.com",
            "r3---sn-abc.googlevideo.com",
            "hyphens",
        );
        gives("fr", "fr", "-");
        gives(
            format!("{}.fr", "a".repeat(63)),
            &format!("{}.fr", "a".repeat(63)),
            "-",
        );
        gives("1.exemple.fr", "1.exemple.fr", "-");
    }

    #[test]
    fn whatever_names_nothing_is_told_by_its_reason() {
        for blank in ["", "   ", "\t\r", "\u{feff}", "\"\""] {
            is_rejected(blank, RejectReason::Blank, None);
        }
        for comment in ["# a.fr", ";a.fr", "// a.fr"] {
            is_rejected(comment, RejectReason::Comment, None);
        }
        for control in ["a\0.fr", "a\x1b[31m.fr", "a\tb.fr", "a.fr\u{85}b"] {
            is_rejected(control, RejectReason::Control, None);
        }
        is_rejected(
            "javascript:alert(1)",
            RejectReason::Scheme,
            Some("javascript"),
        );
        is_rejected("file:///etc/passwd", RejectReason::Scheme, Some("file"));
        is_rejected("mailto:a@b.fr", RejectReason::Scheme, Some("mailto"));
        is_rejected("data:text/html,x", RejectReason::Scheme, Some("data"));
        for (address, told) in [
            ("127.0.0.1", "127.0.0.1"),
            ("http://2130706433/", "127.0.0.1"),
            ("0x7f.1", "127.0.0.1"),
            ("0177.0.0.01", "127.0.0.1"),
            ("127.1.", "127.0.0.1"),
            ("１２７.0.0.1", "127.0.0.1"),
            ("http://[::1]:80/", "::1"),
            ("[2001:DB8::1]", "2001:db8::1"),
            ("[::ffff:1.2.3.4]", "::ffff:1.2.3.4"),
        ] {
            is_rejected(address, RejectReason::IpAddress, Some(told));
        }
        is_rejected("256.256.256.256", RejectReason::IpAddress, None);
        is_rejected("1.2.3.4.5", RejectReason::IpAddress, None);
        is_rejected("[::g]", RejectReason::IpAddress, None);
        for local in [
            "localhost",
            "a.localhost",
            "LOCALHOST.",
            "printer.local",
            "http://localhost:8080/x",
            "x.onion",
        ] {
            is_rejected(local, RejectReason::Local, None);
        }
        is_rejected("intranet", RejectReason::OneLabel, None);
        for empty in ["a..fr", ".a.fr", "a.fr..", "."] {
            is_rejected(empty, RejectReason::EmptyLabel, None);
        }
        is_rejected(
            format!("{}.fr", "a".repeat(64)),
            RejectReason::LabelTooLong,
            None,
        );
        is_rejected(
            format!("{}.fr", "a".repeat(300)),
            RejectReason::LabelTooLong,
            None,
        );
        is_rejected(
            format!("{}fr", "abcdefg.".repeat(40)),
            RejectReason::NameTooLong,
            None,
        );
        for bad in [
            "a b.fr",
            "a!b.fr",
            "a,b.fr",
            "xn--a.fr",
            "xn--zzzzzz9.fr",
            "a|b.fr",
            "a\u{fffd}.fr",
            "<a>.fr",
            "*.fr",
        ] {
            is_rejected(bad, RejectReason::BadName, None);
        }
        is_rejected("http://exemple.fr:port/", RejectReason::BadUrl, None);
        is_rejected("exemple.fr:99999", RejectReason::BadUrl, None);
    }

    /// Of Unicode's IdnaTestV2.txt 16.0.0, as in the `idna` crate: all kinds of lines whose only faults are B1 to B6 and C1, C2.
    #[test]
    fn what_is_wrong_with_its_context_only_is_kept_and_flagged() {
        for (line, name, fault) in [
            ("\u{e0}\u{5d0}", "xn--0ca24w", "B5, B6"),
            ("A\u{300}\u{5d0}", "xn--0ca24w", "B5, B6"),
            ("xn--0ca24w", "xn--0ca24w", "B5, B6"),
            ("0\u{e0}.\u{5d0}", "xn--0-sfa.xn--4db", "B1"),
            ("0A\u{300}.\u{5d0}", "xn--0-sfa.xn--4db", "B1"),
            (
                "\u{e0}.\u{5d0}0\u{660}\u{5d0}",
                "xn--0ca.xn--0-zhcb98c",
                "B4",
            ),
            ("xn--0ca.xn--0-zhc74b", "xn--0ca.xn--0-zhc74b", "B4"),
            ("a\u{200c}b", "xn--ab-j1t", "C1"),
            ("A\u{200C}B", "xn--ab-j1t", "C1"),
            ("xn--ab-j1t", "xn--ab-j1t", "C1"),
            ("a\u{200d}b", "xn--ab-m1t", "C2"),
            ("\u{bb9}\u{200d}", "xn--dmc225h", "C2"),
            ("xn--dmc225h", "xn--dmc225h", "C2"),
        ] {
            let line = format!("{line}.fr");
            let (found, flags) = read(&line).unwrap();
            assert_eq!(found, format!("{name}.fr"), "{line} [{fault}]");
            assert!(
                flags.has(NameFlags::CONTEXT.with(NameFlags::IDN)),
                "{line} [{fault}]: {flags}"
            );
        }
        // In a URL it stands as any other; a name with as good a label is not flagged.
        let url = "HTTPS://u:p@a\u{200d}b.fr.:8080/x?y#z";
        gives(url, "xn--ab-m1t.fr", "path,port,user,idn,deviation,context");
        let mut normaliser = Normaliser::new();
        assert_eq!(normaliser.read_url(url.as_bytes()).unwrap().url, None);
        for good in ["\u{5d0}.fr", "\u{bb9}\u{bcd}\u{200d}.fr"] {
            assert!(!read(good).unwrap().1.has(NameFlags::CONTEXT), "{good}");
        }
        // Of the same file: what is wrong in another way as well, or is another name.
        for bad in [
            "a\u{200c}b!.fr",
            "\u{300}\u{5d0}.fr",
            "xn--ab-j1t\u{e9}.fr",
            "xn--xn---epa.\u{5d0}0.fr",
            "\u{e0}\u{5d0}\u{fffd}.fr",
            "\u{e0}\u{5d0}\u{378}.fr",
        ] {
            is_rejected(bad, RejectReason::BadName, None);
        }
    }

    #[test]
    fn a_url_is_kept_where_it_says_more_than_the_name() {
        let mut normaliser = Normaliser::new();
        for (line, url) in [
            ("http://exemple.fr/", None),
            ("exemple.fr#top", None),
            (
                "https://u:p@Exemple.fr/a/../b?c#d",
                Some("https://exemple.fr/b?c"),
            ),
            ("exemple.fr/blog", Some("http://exemple.fr/blog")),
            ("exemple.fr:8080", Some("http://exemple.fr:8080/")),
            ("exemple.fr/a b", Some("http://exemple.fr/a%20b")),
        ] {
            let found = normaliser.read_url(line.as_bytes()).unwrap();
            assert_eq!(found.url.as_deref(), url, "{line}");
        }
    }

    /// Lines made of the pieces that names and mistakes are made of.
    fn lines() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            4 => "[a-zA-Z0-9-]{1,4}".prop_map(String::into_bytes),
            4 => Just(b".".to_vec()),
            1 => prop::sample::select(vec![
                "http://", "HTTPS://", "/", "?", "#", "@", ":", ":80", "www.", "xn--", "_", " ", "\t", "\"", "..", "fr", "localhost",
                "local", "0x7f", "1", "é", "\\", "\u{feff}", "ß", "-", "--", "%41", "//", "'", "`", "]", "[", "\0", ";", ",", "\u{200d}", "\u{5d0}", "xn--ab-m1t",
            ]).prop_map(|text| text.as_bytes().to_vec()),
            1 => prop::collection::vec(any::<u8>(), 1..3),
        ];
        prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]
        #[test]
        fn the_short_way_and_the_long_way_agree(line in lines()) {
            let (mut clean, mut key) = (CleanName::default(), Vec::new());
            let mut followed = line.clone();
            followed.extend_from_slice(&[b'\n', b'a', b'.', b'-'].repeat(20));
            let flags = clean.read(&followed, line.len());
            prop_assert_eq!(CleanName::default().read(&line, line.len()), flags);
            if let Some(flags) = flags {
                let name = text_of(clean.name());
                prop_assert_eq!(long(&line), Ok((name.to_owned(), flags)));
                clean.write_key(&mut key);
                prop_assert_eq!(text_of(&key), crate::key_of(name));
            }
        }

        #[test]
        fn what_is_found_is_found_again_and_fits_dns(line in lines()) {
            if let Ok((name, _)) = read(&line) {
                prop_assert!(name.len() <= 253 && name.split('.').all(|label| (1..=63).contains(&label.len())));
                prop_assert!(name.bytes().all(|byte| host::is_label_byte(byte) || byte == b'.'));
                prop_assert_eq!(read(&name).map(|found| found.0), Ok(name));
            }
        }
    }
}
