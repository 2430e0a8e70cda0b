//! Where a crawl begins: seeds as people write them, made into URLs, each line accounted for.

use std::collections::HashSet;
use std::fmt;
use std::io::{self, BufRead};

use serde::{Deserialize, Serialize};
use thiserror::Error;
use url::Url;

use crate::canon::CanonOrder;
use crate::surts::Reach;

/// A place where the crawl begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seed {
    /// The URL.
    pub url: Url,
    /// Where it was named: the source tag of logs and reports.
    pub tag: String,
    /// How far it reaches, when it is not as far as the order says.
    pub reach: Option<Reach>,
}

/// What becomes of a host name without a scheme.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bare {
    /// A seed with http: a site that wants https redirects, and the redirect is archived too.
    #[default]
    Http,
    /// A seed with https.
    Https,
    /// Both seeds.
    Both,
}

/// Why a text is no seed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SeedError {
    /// The scheme is not one that is crawled.
    #[error("cannot crawl the scheme {scheme:?}")]
    Scheme {
        /// The scheme.
        scheme: String,
    },
    /// It is no URL.
    #[error("no URL: {why}")]
    NotUrl {
        /// What the parser says.
        why: String,
    },
    /// It is one word without a dot.
    #[error("no host name: {text:?} has no dot; write http:// in front if it is one")]
    NotHost {
        /// The word.
        text: String,
    },
    /// It is longer than a URL may be.
    #[error("{bytes} bytes are too long for a URL")]
    TooLong {
        /// How long it is.
        bytes: usize,
    },
}

/// A line that is no seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeedFault {
    /// The line, counted from one.
    pub line: u64,
    /// What stands there, cut.
    pub text: String,
    /// What is wrong.
    pub error: SeedError,
}

impl fmt::Display for SeedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "line {}: {} ({})",
            self.line,
            self.error,
            self.text.escape_debug()
        )
    }
}

/// How many lines there were and what became of them: `lines` is the sum of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeedCount {
    /// Lines, or items of a list.
    pub lines: u64,
    /// Those that gave a new seed.
    pub kept: u64,
    /// Those that only gave seeds there were already.
    pub duplicates: u64,
    /// SURT directives.
    pub directives: u64,
    /// Those that are no seed.
    pub rejected: u64,
    /// Blank lines and comments.
    pub blank: u64,
}

/// The seeds of a job.
#[derive(Clone, Debug, Default)]
pub struct SeedList {
    /// The seeds, in the order in which they were first named.
    pub seeds: Vec<Seed>,
    /// What Heritrix's seed files say beside seeds: `+http://(org,example,` widens the scope.
    pub accept_surts: Vec<String>,
    /// What became of the lines.
    pub count: SeedCount,
    /// The first lines that are no seeds; `count` has their number.
    pub faults: Vec<SeedFault>,
    canon: CanonOrder,
    bare: Bare,
    keys: HashSet<Vec<u8>>,
}

/// No seed is longer; the limit of the scope may be lower.
const LONGEST_SEED: usize = 8_192;

/// What is kept of a faulty line.
const LONGEST_TEXT: usize = 120;

/// Faults that are kept; the rest is counted.
const MOST_FAULTS: usize = 1_000;

impl SeedList {
    /// A list without seeds.
    pub fn new(canon: &CanonOrder, bare: Bare) -> SeedList {
        SeedList {
            canon: canon.clone(),
            bare,
            ..SeedList::default()
        }
    }

    /// Adds one seed; the error is counted, and returned.
    pub fn add(&mut self, text: &str, tag: &str, reach: Option<Reach>) -> Result<(), SeedError> {
        self.keeping(|list, keep| list.pass(text, tag, reach, keep))
    }

    /// Adds the seeds of a file: one a line, a tag of its own after white space, `#` for comments.
    ///
    /// A line that is no seed is kept as a fault and harms no other.
    pub fn add_lines(&mut self, bytes: &[u8], tag: &str, reach: Option<Reach>) {
        // Bytes in memory can always be read.
        let _ = self.keeping(|list, keep| list.pass_lines(bytes, tag, reach, keep));
    }

    /// Does this with a list that keeps what is new to it.
    fn keeping<Output>(
        &mut self,
        act: impl FnOnce(&mut SeedList, &mut dyn FnMut(Seed) -> bool) -> Output,
    ) -> Output {
        let canon = std::mem::take(&mut self.canon);
        let (mut seeds, mut keys) = (
            std::mem::take(&mut self.seeds),
            std::mem::take(&mut self.keys),
        );
        let done = act(self, &mut |seed| {
            let is_new = keys.insert(canon.key(&seed.url));
            if is_new {
                seeds.push(seed);
            }
            is_new
        });
        (self.canon, self.seeds, self.keys) = (canon, seeds, keys);
        done
    }

    /// Gives what one text means to `each`, which says whether it is new; the list keeps only the count. The error is
    /// counted, and returned.
    pub fn pass(
        &mut self,
        text: &str,
        tag: &str,
        reach: Option<Reach>,
        each: &mut dyn FnMut(Seed) -> bool,
    ) -> Result<(), SeedError> {
        self.count.lines += 1;
        let urls = match seed_urls(text, self.bare) {
            Ok(urls) => urls,
            Err(error) => {
                self.count.rejected += 1;
                return Err(error);
            }
        };
        let mut is_new = false;
        for url in urls {
            // Without a source, a seed is its own: reports then count by seed.
            let tag = if tag.is_empty() { url.as_str() } else { tag };
            is_new |= each(Seed {
                tag: tag.to_owned(),
                url,
                reach,
            });
        }
        match is_new {
            true => self.count.kept += 1,
            false => self.count.duplicates += 1,
        }
        Ok(())
    }

    /// Gives the seeds of a file to `each` as [`SeedList::pass`] does, line by line: a file may be larger than memory.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn pass_lines(
        &mut self,
        mut file: impl BufRead,
        tag: &str,
        reach: Option<Reach>,
        each: &mut dyn FnMut(Seed) -> bool,
    ) -> io::Result<()> {
        let mut bytes = Vec::new();
        for number in 1.. {
            bytes.clear();
            if file.read_until(b'\n', &mut bytes)? == 0 {
                break;
            }
            let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
            let mark = if number == 1 { "\u{feff}" } else { "" };
            let line = line.strip_prefix(mark.as_bytes()).unwrap_or(line);
            self.pass_line(number, line, tag, reach, each);
        }
        Ok(())
    }

    fn pass_line(
        &mut self,
        number: u64,
        line: &[u8],
        tag: &str,
        reach: Option<Reach>,
        each: &mut dyn FnMut(Seed) -> bool,
    ) {
        // Seed lists of thirty years hold Latin-1 too.
        let line = ecluse_surt::header_text(line);
        let mut words = line.split_ascii_whitespace();
        let Some(first) = words.next().filter(|word| !word.starts_with('#')) else {
            self.count.lines += 1;
            self.count.blank += 1;
            return;
        };
        if first.starts_with('+') {
            self.count.lines += 1;
            self.count.directives += 1;
            self.accept_surts.push(line.trim().to_owned());
            return;
        }
        let tag = words
            .next()
            .filter(|word| !word.starts_with('#'))
            .unwrap_or(tag);
        if let Err(error) = self.pass(first, tag, reach, each)
            && self.faults.len() < MOST_FAULTS
        {
            self.faults.push(SeedFault {
                line: number,
                text: first.chars().take(LONGEST_TEXT).collect(),
                error,
            });
        }
    }
}

/// Returns the URLs that a seed means: one, or two for a bare host with [`Bare::Both`].
///
/// `lock.example`, `lock.example:8080/a` and `//lock.example` are bare. A word without a dot is not taken for a host,
/// unless it is `localhost`: it is more often a heading, or half a line.
pub fn seed_urls(text: &str, bare: Bare) -> Result<Vec<Url>, SeedError> {
    let text = text.trim();
    if text.len() > LONGEST_SEED {
        return Err(SeedError::TooLong { bytes: text.len() });
    }
    if let Some((scheme, _)) = text.split_once("://")
        && is_scheme(scheme)
    {
        return Ok(vec![web_url(text)?]);
    }
    if let Some((scheme, rest)) = text.split_once(':')
        && is_scheme(scheme)
        && !scheme.contains('.')
        && !is_port(rest)
    {
        return Err(SeedError::Scheme {
            scheme: scheme.chars().take(LONGEST_TEXT).collect(),
        });
    }
    let rest = text.trim_start_matches('/');
    let schemes: &[&str] = match bare {
        Bare::Http => &["http"],
        Bare::Https => &["https"],
        Bare::Both => &["http", "https"],
    };
    let urls: Result<Vec<Url>, SeedError> = schemes
        .iter()
        .map(|scheme| web_url(&format!("{scheme}://{rest}")))
        .collect();
    let urls = urls?;
    let is_host = |url: &Url| match url.host() {
        Some(url::Host::Domain(name)) => name.contains('.') || name == "localhost",
        // `2026` is a number of a line rather than an address.
        Some(url::Host::Ipv4(_)) => rest.contains('.'),
        Some(url::Host::Ipv6(_)) => true,
        None => false,
    };
    if urls.iter().all(is_host) {
        Ok(urls)
    } else {
        Err(SeedError::NotHost {
            text: rest.chars().take(LONGEST_TEXT).collect(),
        })
    }
}

fn web_url(text: &str) -> Result<Url, SeedError> {
    let mut url = Url::parse(text).map_err(|error| SeedError::NotUrl {
        why: error.to_string(),
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(SeedError::Scheme {
            scheme: url.scheme().to_owned(),
        });
    }
    url.set_fragment(None);
    Ok(url)
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// Tells whether what stands after a colon begins with a port.
fn is_port(text: &str) -> bool {
    let end = text.find(['/', '?', '#']).unwrap_or(text.len());
    !text[..end].is_empty() && text[..end].bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn urls(text: &str, bare: Bare) -> Vec<String> {
        let urls = seed_urls(text, bare).unwrap();
        urls.into_iter().map(String::from).collect()
    }

    #[test]
    fn seeds_as_people_write_them() {
        for (text, url) in [
            ("http://lock.example", "http://lock.example/"),
            (
                "HTTPS://Lock.Example:443/a/../b#c",
                "https://lock.example/b",
            ),
            (" lock.example ", "http://lock.example/"),
            ("lock.example/a?b", "http://lock.example/a?b"),
            ("lock.example:8080", "http://lock.example:8080/"),
            ("lock.example:8080/a", "http://lock.example:8080/a"),
            ("//lock.example/a", "http://lock.example/a"),
            ("localhost:8080/a", "http://localhost:8080/a"),
            ("écluse.example", "http://xn--cluse-9ra.example/"),
            ("192.0.2.1", "http://192.0.2.1/"),
            ("[2001:db8::1]:80/", "http://[2001:db8::1]/"),
            ("http://intranet/", "http://intranet/"),
            (
                "lock.example/http://other.example",
                "http://lock.example/http://other.example",
            ),
            ("user@lock.example", "http://user@lock.example/"),
        ] {
            assert_eq!(urls(text, Bare::Http), [url], "{text}");
        }
        assert_eq!(urls("lock.example", Bare::Https), ["https://lock.example/"]);
        assert_eq!(
            urls("lock.example", Bare::Both),
            ["http://lock.example/", "https://lock.example/"]
        );
        assert_eq!(
            urls("http://lock.example", Bare::Both),
            ["http://lock.example/"]
        );
    }

    #[test]
    fn what_is_no_seed_says_why() {
        for (text, why) in [
            ("ftp://lock.example/", r#"cannot crawl the scheme "ftp""#),
            (
                "mailto:keeper@lock.example",
                r#"cannot crawl the scheme "mailto""#,
            ),
            (
                "javascript:void(0)",
                r#"cannot crawl the scheme "javascript""#,
            ),
            ("dns:lock.example", r#"cannot crawl the scheme "dns""#),
            ("http:lock.example", r#"cannot crawl the scheme "http""#),
            ("http://", "no URL: empty host"),
            ("http://a b/", "no URL: invalid international domain name"),
            ("lock.example:99999", "no URL: invalid port number"),
            (
                "lock",
                r#"no host name: "lock" has no dot; write http:// in front if it is one"#,
            ),
            (
                "2026",
                r#"no host name: "2026" has no dot; write http:// in front if it is one"#,
            ),
        ] {
            assert_eq!(
                seed_urls(text, Bare::Http).unwrap_err().to_string(),
                why,
                "{text}"
            );
        }
        for text in [
            "",
            " ",
            "/",
            "//",
            "?",
            "#",
            "a/b.example",
            "http://[::1",
            "http://256.1.1.1.1.1/",
            ":80",
        ] {
            assert!(seed_urls(text, Bare::Both).is_err(), "{text:?}");
        }
        let long = format!("http://lock.example/{}", "a".repeat(9_000));
        assert!(matches!(
            seed_urls(&long, Bare::Http),
            Err(SeedError::TooLong { .. })
        ));
    }

    #[test]
    fn every_line_of_a_file_is_accounted_for() {
        let mut list = SeedList::new(&CanonOrder::default(), Bare::Http);
        let file = "\u{feff}# seeds\r\nlock.example\r\n\r\nhttp://LOCK.example/#x   press\r\nhttps://lock.example/ press # secure\n+http://(example,canal,\nnonsense\nftp://a.example/\nhttp://caf\u{e9}.example/";
        list.add_lines(file.as_bytes(), "register", None);
        let seeds: Vec<(&str, &str)> = list
            .seeds
            .iter()
            .map(|seed| (seed.url.as_str(), seed.tag.as_str()))
            .collect();
        assert_eq!(
            seeds,
            [
                ("http://lock.example/", "register"),
                ("https://lock.example/", "press"),
                ("http://xn--caf-dma.example/", "register"),
            ]
        );
        assert_eq!(
            list.count,
            SeedCount {
                lines: 9,
                kept: 3,
                duplicates: 1,
                directives: 1,
                rejected: 2,
                blank: 2,
            }
        );
        assert_eq!(list.accept_surts, ["+http://(example,canal,"]);
        let faults: Vec<String> = list.faults.iter().map(SeedFault::to_string).collect();
        assert_eq!(
            faults,
            [
                "line 7: no host name: \"nonsense\" has no dot; write http:// in front if it is one (nonsense)",
                "line 8: cannot crawl the scheme \"ftp\" (ftp://a.example/)",
            ]
        );
        // Without a tag, a seed is its own.
        list.add("canal.example", "", None).unwrap();
        assert_eq!(list.seeds[3].tag, "http://canal.example/");
        // Latin-1 is read as that.
        list.add_lines(b"http://caf\xe9.example/\n", "old", None);
        assert_eq!(list.count.duplicates, 2);
    }

    #[test]
    fn seeds_that_are_passed_on_are_counted_and_not_kept() {
        let mut list = SeedList::new(&CanonOrder::default(), Bare::Http);
        let lines = b"\xef\xbb\xbfa.example tag\n+http://(org,\r\nb.example\nno seed\na.example";
        let mut passed = Vec::new();
        let read = list.pass_lines(&lines[..], "", None, &mut |seed| {
            passed.push((seed.url.to_string(), seed.tag));
            passed.len() < 3
        });
        assert!(read.is_ok());
        let url = |host: &str| format!("http://{host}.example/");
        let expected = [("a", "tag".to_owned()), ("b", url("b")), ("a", url("a"))];
        let expected = expected.map(|(host, tag)| (url(host), tag));
        assert_eq!(passed, expected);
        assert!(list.seeds.is_empty() && list.keys.is_empty());
        let SeedCount {
            lines,
            kept,
            duplicates,
            directives,
            rejected,
            ..
        } = list.count;
        assert_eq!(
            [lines, kept, duplicates, directives, rejected],
            [5, 2, 1, 1, 1]
        );
        assert_eq!(list.faults[0].line, 4);
    }

    #[test]
    fn faults_are_kept_up_to_a_limit_and_counted_beyond() {
        let mut list = SeedList::new(&CanonOrder::default(), Bare::Http);
        list.add_lines("nonsense\n".repeat(5_000).as_bytes(), "", None);
        assert_eq!(
            (list.faults.len(), list.count.rejected),
            (MOST_FAULTS, 5_000)
        );
    }

    proptest! {
        #[test]
        fn counts_add_up_whatever_is_given(bytes: Vec<u8>, text in "(\\PC{0,20}[ \n]){0,8}") {
            let mut list = SeedList::new(&CanonOrder::default(), Bare::Both);
            list.add_lines(&bytes, "", None);
            list.add_lines(text.as_bytes(), "", None);
            let count = list.count;
            let sum = count.kept + count.duplicates + count.directives + count.rejected + count.blank;
            prop_assert_eq!(count.lines, sum);
            for seed in &list.seeds {
                prop_assert!(seed.url.host().is_some());
            }
        }
    }
}
