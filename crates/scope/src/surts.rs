//! Sets of SURT prefixes: which part of the web a seed or a rule means.
//!
//! Domains and hosts are looked up by name, label by label; only paths need an ordered set. So a lookup costs the same
//! with four seeds and with four million.

mod seeds;

use std::collections::{BTreeSet, HashSet};
use std::fmt;

use thiserror::Error;
use url::Url;

use crate::canon::host_name;
use crate::queue::registered_domain;

pub(crate) use self::seeds::SeedSurts;

/// How much of the web around a seed belongs to it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    /// The registered domain and every host below it.
    #[default]
    Domain,
    /// The host, with or without `www`, on any port.
    Host,
    /// What lies in the seed's directory.
    Path,
    /// The seed alone, with its requisites.
    Page,
}

impl Reach {
    /// The name it has in an order.
    pub fn name(self) -> &'static str {
        match self {
            Reach::Domain => "domain",
            Reach::Host => "host",
            Reach::Path => "path",
            Reach::Page => "page",
        }
    }
}

/// Why a text is no SURT prefix.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SurtPrefixError {
    /// It is neither a SURT, nor a URL, nor a host.
    #[error(
        r#"{text:?} is no SURT prefix; write "org,example," for a domain, "org,example)/" for a host, "org,example)/news/" for a path, or a URL"#
    )]
    Unreadable {
        /// What was written.
        text: String,
    },
}

/// Parts of the web.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SurtSet {
    /// Reversed hosts without port, all below them included.
    domains: HashSet<Box<[u8]>>,
    /// Reversed hosts without port.
    hosts: HashSet<Box<[u8]>>,
    /// Beginnings of keys; none is the beginning of another, so that only the greatest before a key can be its own.
    prefixes: BTreeSet<Box<[u8]>>,
    /// Whole keys.
    pages: HashSet<Box<[u8]>>,
    /// Entries that name `www`, which keys have lost: here they have kept it.
    with_www: Option<Box<SurtSet>>,
}

/// What in a set a key was found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SurtMatch<'a> {
    /// What kind of entry it is.
    pub reach: Reach,
    /// The entry.
    pub entry: &'a [u8],
}

impl fmt::Display for SurtMatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = String::from_utf8_lossy(self.entry);
        write!(f, "{} {}", self.reach.name(), entry.escape_debug())
    }
}

impl SurtSet {
    /// Adds what belongs to a seed.
    pub fn insert_seed(&mut self, url: &Url, reach: Reach) {
        let key = key_of(url);
        match reach {
            Reach::Domain => {
                let host = host_name(url.host_str().unwrap_or_default());
                let domain = registered_domain(host);
                // The host of the key has lost its `www`, and `www.co.uk` is no domain below `co.uk`.
                let name = if domain == host {
                    host_of(&key).into()
                } else {
                    reversed(domain)
                };
                self.domains.insert(name);
            }
            Reach::Host => {
                self.hosts.insert(host_of(&key).into());
            }
            Reach::Path => self.insert_directory(url, key_of),
            Reach::Page => {
                self.pages.insert(key.into());
            }
        }
    }

    fn insert_directory(&mut self, url: &Url, key_of: KeyOf) {
        let mut directory = url.clone();
        directory.set_query(None);
        directory.set_fragment(None);
        let path = url.path();
        let end = path.rfind('/').map_or(0, |at| at + 1);
        directory.set_path(&path[..end]);
        let mut key = key_of(&directory);
        if !key.ends_with(b"/") {
            // A key has no slash at its end: the directory itself is a page of its own, with any query.
            self.pages.insert(key.clone().into());
            self.insert_prefix([key.as_slice(), b"?"].concat());
            key.push(b'/');
        }
        self.insert_prefix(key);
    }

    /// Adds a prefix as people write it.
    ///
    /// Heritrix's form is read too (`+http://(org,example,www,)/news`); the scheme says nothing, since keys have none. A
    /// prefix that names `www` means hosts with it, and a URL those with and without.
    pub fn insert_text(&mut self, text: &str) -> Result<(), SurtPrefixError> {
        let error = || SurtPrefixError::Unreadable {
            text: text.to_owned(),
        };
        let trimmed = text.trim();
        let trimmed = trimmed.strip_prefix('+').unwrap_or(trimmed).trim();
        let surt = match trimmed.split_once("://(") {
            Some((_, surt)) => surt,
            None if trimmed.contains("://") => {
                let url = Url::parse(trimmed).map_err(|_| error())?;
                url.host_str().ok_or_else(error)?;
                self.insert_url_prefix(&url, key_of);
                return Ok(());
            }
            None => trimmed,
        };
        let (labels, path) = match surt.split_once(')') {
            Some((labels, path)) => (labels, Some(path)),
            None => (surt, None),
        };
        if path.is_some_and(|path| !path.is_empty() && !path.starts_with('/')) {
            return Err(error());
        }
        let is_host_name = !labels.contains(',') && labels.contains('.') && path.is_none();
        let (labels, port) = match labels.rsplit_once(':') {
            Some((labels, port)) => (labels, Some(port)),
            None => (labels, None),
        };
        let labels = labels.strip_suffix(',').unwrap_or(labels);
        if labels.split([',', '.']).any(str::is_empty) {
            return Err(error());
        }
        let host: String = if is_host_name {
            labels.to_owned()
        } else {
            labels.rsplit(',').collect::<Vec<_>>().join(".")
        };
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        let url = format!("http://{host}{port}{}", path.unwrap_or("/"));
        let url = Url::parse(&url).map_err(|_| error())?;
        if url.host_str() != Some(&host.to_ascii_lowercase()) && host.is_ascii() {
            return Err(error());
        }
        let mut key = Vec::new();
        ecluse_surt::surt(url.as_str().as_bytes(), &mut key).map_err(|_| error())?;
        let (set, key_of): (_, KeyOf) = match with_www(&key, url.as_str()) {
            Some(kept) => {
                key = kept;
                (&mut **self.with_www.get_or_insert_default(), key_with_www)
            }
            None => (self, key_of),
        };
        match path {
            None if port.is_empty() => {
                set.domains.insert(host_of(&key).into());
            }
            Some("" | "/") if port.is_empty() => {
                set.hosts.insert(host_of(&key).into());
            }
            None | Some(_) => set.insert_url_prefix(&url, key_of),
        }
        Ok(())
    }

    /// Adds everything whose URL begins so.
    fn insert_url_prefix(&mut self, url: &Url, key_of: KeyOf) {
        if url.path().len() > 1 && url.query().is_none() && url.path().ends_with('/') {
            self.insert_directory(url, key_of);
        } else {
            self.insert_prefix(key_of(url));
        }
    }

    fn insert_prefix(&mut self, prefix: Vec<u8>) {
        if find_prefix(&self.prefixes, &prefix).is_some() {
            return;
        }
        let longer: Vec<Box<[u8]>> = self
            .prefixes
            .range::<[u8], _>((
                std::ops::Bound::Included(prefix.as_slice()),
                std::ops::Bound::Unbounded,
            ))
            .take_while(|entry| entry.starts_with(&prefix))
            .cloned()
            .collect();
        for entry in longer {
            self.prefixes.remove(&entry);
        }
        self.prefixes.insert(prefix.into());
    }

    /// Returns what a URL is found by; `key` is its SURT key.
    pub fn find<'a>(&'a self, key: &[u8], url: &str) -> Option<SurtMatch<'a>> {
        self.find_key(key).or_else(|| {
            let entries = self.with_www.as_ref()?;
            let whole = with_www(key, url);
            entries.find_key(whole.as_deref().unwrap_or(key))
        })
    }

    fn find_key<'a>(&'a self, key: &[u8]) -> Option<SurtMatch<'a>> {
        let found = |reach: Reach| move |entry: &'a [u8]| SurtMatch { reach, entry };
        let host = host_of(key);
        if !host.is_empty() {
            if !self.domains.is_empty() {
                let ends = host.iter().enumerate().filter(|(_, byte)| **byte == b',');
                let ends = ends.map(|(at, _)| at).chain([host.len()]);
                let mut domains = ends.filter_map(|end| self.domains.get(&host[..end]));
                if let Some(entry) = domains.next() {
                    return Some(found(Reach::Domain)(entry));
                }
            }
            if let Some(entry) = self.hosts.get(host) {
                return Some(found(Reach::Host)(entry));
            }
        }
        find_prefix(&self.prefixes, key)
            .map(found(Reach::Path))
            .or_else(|| self.pages.get(key).map(|entry| found(Reach::Page)(entry)))
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        let with_www = self.with_www.as_ref().map_or(0, |set| set.len());
        self.domains.len() + self.hosts.len() + self.prefixes.len() + self.pages.len() + with_www
    }

    /// Tells whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Makes the key of a URL.
type KeyOf = fn(&Url) -> Vec<u8>;

fn key_of(url: &Url) -> Vec<u8> {
    let mut key = Vec::new();
    ecluse_surt::surt_or_url(url.as_str().as_bytes(), &mut key);
    key
}

fn key_with_www(url: &Url) -> Vec<u8> {
    let key = key_of(url);
    with_www(&key, url.as_str()).unwrap_or(key)
}

/// Gives a key the `www` back that the host of its URL has; `None` when it has none.
fn with_www(key: &[u8], url: &str) -> Option<Vec<u8>> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?;
    let host = host.split(':').next()?;
    if !host.starts_with("www") {
        return None;
    }
    let bare = host_of(key);
    let whole = reversed(host);
    (whole.len() > bare.len() && whole.starts_with(bare))
        .then(|| [&whole, &key[bare.len()..]].concat())
}

fn find_prefix<'a>(prefixes: &'a BTreeSet<Box<[u8]>>, key: &[u8]) -> Option<&'a [u8]> {
    let up_to = (std::ops::Bound::Unbounded, std::ops::Bound::Included(key));
    let nearest = prefixes.range::<[u8], _>(up_to).next_back()?;
    key.starts_with(nearest).then_some(&**nearest)
}

/// The reversed host of a key, without its port; empty when it has none.
fn host_of(key: &[u8]) -> &[u8] {
    let Some(end) = memchr::memchr(b')', key) else {
        return &[];
    };
    let host = &key[..end];
    match (memchr::memchr(b':', host), memchr::memrchr(b':', host)) {
        (Some(first), Some(last)) if first == last => &host[..first],
        // An IPv6 address, its port not told apart.
        _ => host,
    }
}

/// A host with its labels from last to first.
fn reversed(host: &str) -> Box<[u8]> {
    let labels: Vec<&[u8]> = host.as_bytes().rsplit(|byte| *byte == b'.').collect();
    labels.join(&b',').into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(url: &str) -> Vec<u8> {
        ecluse_surt::Surt::of(url.as_bytes()).unwrap().into_bytes()
    }

    fn seed(url: &str, reach: Reach) -> SurtSet {
        let mut set = SurtSet::default();
        set.insert_seed(&Url::parse(url).unwrap(), reach);
        set
    }

    fn check(set: &SurtSet, inside: &[&str], outside: &[&str]) {
        for url in inside {
            assert!(set.find(&key(url), url).is_some(), "{url} in {set:?}");
        }
        for url in outside {
            assert!(set.find(&key(url), url).is_none(), "{url} in {set:?}");
        }
    }

    #[test]
    fn a_seed_reaches_its_domain() {
        let set = seed("https://www.lock.example/a/b", Reach::Domain);
        check(
            &set,
            &[
                "http://lock.example/",
                "http://x.y.lock.example:8080/z",
                "https://WWW.lock.example/",
            ],
            &[
                "http://lock.example.com/",
                "http://clock.example/",
                "http://example/",
                "http://lock-x.example/",
                "dns:lock.example",
            ],
        );
        let british = seed("http://a.lock.co.uk/", Reach::Domain);
        check(&british, &["http://lock.co.uk/"], &["http://other.co.uk/"]);
        let suffix = seed("http://www.co.uk/", Reach::Domain);
        check(
            &suffix,
            &["http://www.co.uk/", "http://x.www.co.uk/"],
            &["http://com/"],
        );
        let address = seed("http://192.0.2.1:81/", Reach::Domain);
        check(
            &address,
            &["http://192.0.2.1/"],
            &["http://192.0.2.2/", "http://9.192.0.2/"],
        );
    }

    #[test]
    fn a_seed_reaches_its_host() {
        let set = seed("http://www.lock.example:8080/a", Reach::Host);
        check(
            &set,
            &["https://lock.example/b", "http://www.lock.example/"],
            &["http://a.lock.example/", "http://lock.example2/"],
        );
        check(
            &seed("http://[::1]:80/", Reach::Host),
            &["http://[::1]/a"],
            &["http://[::2]/"],
        );
    }

    #[test]
    fn a_seed_reaches_its_directory() {
        let set = seed("http://lock.example/News/today.html?x", Reach::Path);
        check(
            &set,
            &[
                "http://lock.example/news/",
                "http://lock.example/news",
                "https://www.lock.example/News/a/b?c",
                "http://lock.example/news?page=2",
            ],
            &[
                "http://lock.example/",
                "http://lock.example/newspaper",
                "http://lock.example:81/news/",
                "http://a.lock.example/news/",
            ],
        );
        let root = seed("http://lock.example/index.html", Reach::Path);
        check(
            &root,
            &["http://lock.example/", "http://lock.example/x"],
            &["http://x.lock.example/"],
        );
        let deep = seed("http://lock.example/a/b/", Reach::Path);
        check(
            &deep,
            &["http://lock.example/a/b/c"],
            &["http://lock.example/a/c"],
        );
    }

    #[test]
    fn a_seed_reaches_itself() {
        let set = seed("http://lock.example/a?b=1", Reach::Page);
        check(
            &set,
            &["http://www.lock.example/a?b=1#c"],
            &["http://lock.example/a", "http://lock.example/a?b=12"],
        );
    }

    #[test]
    fn prefixes_are_read_as_people_write_them() {
        let sub = "http://a.lock.example/x";
        let host = "http://lock.example/x";
        let news = "http://lock.example/news/1";
        let port = "http://lock.example:81/x";
        for (text, inside, outside) in [
            (
                "example,lock,",
                &[sub, host, news, port][..],
                &["http://clock.example/"][..],
            ),
            ("example,lock", &[sub, host], &["http://lock2.example/"]),
            ("+http://(example,lock,", &[sub, host, port], &[]),
            ("https://(example,lock,)/", &[host, news, port], &[sub]),
            (
                "http://(example,lock,www,)/news",
                &["https://www.lock.example/news/1"],
                &[sub, host, news, "http://www.lock.example/x"],
            ),
            (
                "http://(example,lock,www,)",
                &["http://www.lock.example/x", "http://www.lock.example:81/"],
                &[
                    sub,
                    host,
                    "http://a.www.lock.example/",
                    "http://www2.lock.example/",
                ],
            ),
            (
                "http://(example,lock,www,",
                &["http://www.lock.example/x", "http://a.www.lock.example/"],
                &[sub, host, news, "http://www.clock.example/"],
            ),
            (
                "example,lock,www)/news/",
                &[
                    "http://www.lock.example/news",
                    "http://www.lock.example/news/1",
                ],
                &[news, "http://www.lock.example/newsx"],
            ),
            ("http://www.lock.example/news/", &[news], &[host]),
            ("http://(example,lock,:81)/", &[port], &[host, sub]),
            (
                "example,lock)/news/",
                &[news, "http://lock.example/news"],
                &[host, "http://lock.example/newsx"],
            ),
            (
                "example,lock)/news",
                &[news, "http://lock.example/newsx"],
                &[host],
            ),
            ("http://lock.example/News/", &[news], &[host]),
            ("http://lock.example/ne", &[news], &[host]),
            ("lock.example", &[sub, host], &[]),
            ("example,", &[sub, host], &["http://example.org/"]),
            ("example", &[sub, host], &[]),
        ] {
            let mut set = SurtSet::default();
            set.insert_text(text).unwrap();
            assert!(!set.is_empty(), "{text}");
            check(&set, inside, outside);
        }
        for text in [
            "",
            "+",
            "a b",
            "org,exa mple,",
            "http://",
            "org,example)news",
            "http://(",
            "org,,example",
            "a:x)/",
            "org,example:99999)/",
            "/path",
            "lock.example/",
        ] {
            let mut set = SurtSet::default();
            assert!(set.insert_text(text).is_err(), "{text} {set:?}");
            assert!(set.is_empty(), "{text}");
        }
    }

    #[test]
    fn a_find_says_by_what() {
        let mut set = seed("http://lock.example/", Reach::Domain);
        set.insert_text("org,canal)/boats/").unwrap();
        let found = |url: &str| set.find(&key(url), url).unwrap().to_string();
        assert_eq!(found("http://a.lock.example/"), "domain example,lock");
        assert_eq!(found("http://canal.org/boats/7"), "path org,canal)/boats/");
    }

    proptest! {
        #[test]
        fn prefixes_are_found_as_if_each_were_tried(
            prefixes in proptest::collection::vec("[ab]{1,4}", 0..8),
            key in "[ab]{0,6}",
        ) {
            let mut set = SurtSet::default();
            for prefix in &prefixes {
                set.insert_prefix(prefix.as_bytes().to_vec());
            }
            let expected = prefixes.iter().any(|prefix| key.starts_with(prefix.as_str()));
            prop_assert_eq!(find_prefix(&set.prefixes, key.as_bytes()).is_some(), expected);
        }

        #[test]
        fn no_text_panics(text in "\\PC*", surt in "(\\+?http://\\()?[a-z,:0-9]{0,10}\\)?[/a-z%?]{0,6}", key: Vec<u8>) {
            let mut set = SurtSet::default();
            for text in [text, surt] {
                let _ = set.insert_text(&text);
                if let Ok(url) = Url::parse(&text) {
                    for reach in [Reach::Domain, Reach::Host, Reach::Path, Reach::Page] {
                        set.insert_seed(&url, reach);
                    }
                }
            }
            let _ = set.find(&key, "http://www.example/");
        }

        /// Whatever the reach, a seed reaches itself.
        #[test]
        fn a_seed_is_in_its_own_reach(url in "https?://[a-z]{1,3}(\\.[a-z]{2,3}){0,2}(:[1-9][0-9]{2})?/[a-cA-C/.]{0,9}(\\?[a-c=&]{0,4})?") {
            for reach in [Reach::Domain, Reach::Host, Reach::Path, Reach::Page] {
                let parsed = Url::parse(&url).unwrap();
                prop_assert!(seed(&url, reach).find(&key(parsed.as_str()), parsed.as_str()).is_some(), "{:?}", reach);
            }
        }
    }
}
